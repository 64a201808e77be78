"""What a run writes down: rows that a plot or a spreadsheet reads, flushed at every update."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vclib.errors import VclibError
from vclib.files import replace_text

REWARD_LOG = "reward_log.csv"
TRAIN_LOG = "train.jsonl"
DIAGNOSTICS = "diagnostics.jsonl"
CONFIG = "config.json"
COLUMNS = ("phase", "episode", "difficulty", "mean_terminal_reward", "mean_steps", "loss")
PACKAGES = ("vclib", "torch", "transformers", "peft", "accelerate", "playwright", "numpy")


@dataclass
class Meter:
    """Seconds per stage, tokens drawn and faults met in one update."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tokens: int = 0
    faults: int = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside to `seconds[name]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start


class RunLog:
    """The log files of one run, in its folder.

    - `reward_log.csv`: phase, episode (the update, from 1), difficulty, mean_terminal_reward,
      mean_steps (Developer turns), loss.
    - `train.jsonl`: iter (the same number), easy, medium, hard, mean (terminal rewards; null for
      a difficulty that the update did not see), loss.
    - `diagnostics.jsonl`: everything else that tells a healthy run from a sick one.
    - `config.json`: settings, the browser that rendered, package versions.

    `after` is the number of updates already done: rows past it, which a killed run may have left,
    are cut, so that a resumed run's files equal an undisturbed run's. 0 begins afresh.
    """

    def __init__(self, folder: Path, *, after: int = 0) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        keep_lines(folder / TRAIN_LOG, lambda line: json.loads(line)["iter"] <= after)
        keep_lines(folder / DIAGNOSTICS, lambda line: json.loads(line)["iter"] <= after)
        keep_lines(folder / REWARD_LOG, lambda line: _episode_of(line) <= after)
        if not (folder / REWARD_LOG).exists():
            _append(folder / REWARD_LOG, ",".join(COLUMNS))

    def write_config(self, settings: Mapping[str, Any], **facts: Any) -> None:
        """Write `config.json`: the settings, the packages' versions and any further facts."""
        config = {"settings": dict(settings), "packages": package_versions(), **facts}
        replace_text(self.folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")

    def write(
        self,
        *,
        phase: str,
        iteration: int,
        by_difficulty: Mapping[str, float],
        mean: float,
        mean_steps: float,
        loss: float,
        diagnostics: Mapping[str, Any],
    ) -> None:
        """Append one update to the three files."""
        difficulty = next(iter(by_difficulty)) if len(by_difficulty) == 1 else "mixed"
        cells = (phase, iteration, difficulty, f"{mean:.6f}", f"{mean_steps:.4f}", f"{loss:.6f}")
        _append(self.folder / REWARD_LOG, ",".join(map(str, cells)))
        row: dict[str, Any] = {"iter": iteration}
        for name in ("easy", "medium", "hard"):
            row[name] = by_difficulty.get(name)
        row |= {"mean": mean, "loss": loss}
        _append(self.folder / TRAIN_LOG, json.dumps(row))
        _append(
            self.folder / DIAGNOSTICS,
            json.dumps({"iter": iteration, "phase": phase, **diagnostics}),
        )


def read_rewards(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's `reward_log.csv`, with numbers as numbers."""
    numbers: dict[str, Callable[[str], Any]] = {"episode": int}
    for name in ("mean_terminal_reward", "mean_steps", "loss"):
        numbers[name] = float

    def read(line: str) -> dict[str, Any]:
        cells = zip(COLUMNS, line.split(","), strict=True)
        return {name: numbers.get(name, str)(cell) for name, cell in cells}

    return _rows(folder / REWARD_LOG, read, first=1)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of `train.jsonl` or `diagnostics.jsonl`."""

    def read(line: str) -> dict[str, Any]:
        if not isinstance(row := json.loads(line), dict):
            raise ValueError("not an object")
        return row

    return _rows(path, read)


def _rows(path: Path, read: Callable[[str], dict[str, Any]], first: int = 0) -> list[Any]:
    """The lines from number `first` on, without a torn last one. Raises `VclibError`."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = []
    for number, line in enumerate(lines[first:], first + 1):
        try:
            rows.append(read(line))
        except ValueError as error:
            if number < len(lines):
                raise VclibError(
                    f"{path}, line {number} is damaged ({error}): remove that line."
                ) from error
    return rows


def package_versions() -> dict[str, str | None]:
    """Versions of the packages that a run's numbers depend on; None if not installed."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def is_number(value: Any) -> bool:
    """Whether a value that was read back is a finite number, and not a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # of a whole number without end too; never of NaN


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(line + "\n")
    except OSError as error:
        raise VclibError(
            f"The log {path} could not be written ({error}). If that disk is full, make room on "
            "it; then go on from the last checkpoint with --resume-from."
        ) from error


def _episode_of(line: str) -> int:
    cells = line.split(",")
    if len(cells) != len(COLUMNS):
        raise ValueError("a torn row")
    return 0 if tuple(cells) == COLUMNS else int(cells[1])


def keep_lines(path: Path, wanted: Callable[[str], bool]) -> None:
    """Cut the lines that are not wanted, a torn last line among them."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            keep = wanted(line)
        except (ValueError, IndexError, KeyError, TypeError):
            keep = False
        if keep:
            kept.append(line + "\n")
    if kept:
        replace_text(path, "".join(kept))
    else:
        path.unlink()
