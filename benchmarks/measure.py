"""What the benchmarks of speed share: medians of turns taken, memory of a process, the machine."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from vclib.paths import TINY


def flags(doc: str, rounds: int) -> argparse.ArgumentParser:
    """The flags of every benchmark of the trainer; `doc` is the module's docstring."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--model", default=str(TINY))
    parser.add_argument("--k", type=int, default=8, help="episodes on a page, default 8")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default {rounds}")
    parser.add_argument("--threads", type=int, default=2, help="of torch, default 2")
    return parser


def machine() -> str:
    """Processor, cores, threads of torch, and how busy the machine was with other work."""
    cores, (load, _, _) = os.cpu_count(), os.getloadavg()
    return (
        f"{platform.machine()}, {cores} cores, {torch.get_num_threads()} threads of torch, "
        f"torch {torch.__version__}; load average before the run {load:.1f}"
    )


def take_turns(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each way in each round; all ways run in every round, one after the other."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(repeats):
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
            note(f"round {round_ + 1} of {repeats}: {name} {seconds[name][-1]:.2f} s")
    return seconds


def ratio(slow: Sequence[float], fast: Sequence[float]) -> str:
    """How many times faster, as the median over rounds, with its range."""
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return f"{median(ratios):.2f}x (rounds {min(ratios):.2f} to {max(ratios):.2f})"


def note(text: str) -> None:
    """A line of progress, away from the figures."""
    print(text, file=sys.stderr, flush=True)


def forget_peak() -> int:
    """Set the peak of this process's resident memory back to what is resident now: MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The highest resident memory of this process since `forget_peak`, in MiB (Linux)."""
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


def in_fork(run: Callable[[], Any]) -> tuple[int, int]:
    """Peak memory of a fork that does this, and its memory before, in MiB; torch on one thread."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        before = forget_peak()
        run()
        os.write(writer, f"{peak()} {before}".encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as pipe:
        highest, before = map(int, pipe.read().split())
    return highest, before
