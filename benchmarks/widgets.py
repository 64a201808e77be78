"""How fast the reward explorer opens a long run and answers a slider, beside a short one.

    python benchmarks/widgets.py [--updates 10000] [--rounds 15]

The long run is the stored laptop run over and over, as files, with the updates numbered on: as
many bytes a line as a real one has. Opening reads the run's folder and draws the first picture;
an answer is all that Python does between the slider's new value and the PNG. Both runs take turns
in every round; milliseconds are medians over rounds. CPU time, unlike the clock's, is little moved
by other work on the machine; ratios are of CPU time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from measure import machine, note, ratio

from vclib.notebook.curves import RewardExplorer
from vclib.notebook.dashboard import Dashboard
from vclib.notebook.runs import read_run
from vclib.paths import DATA
from vclib.rl import figures
from vclib.rl.runlog import CONFIG, DIAGNOSTICS, REWARD_LOG, TRAIN_LOG

Taken = tuple[float, float]
"""Seconds, by the clock and of CPU time."""
STORED = DATA / "runs" / "laptop"
TARGETS = {"open": 2000, "smoothing": 200}
"""Milliseconds within which the long run must have been opened, and a slider answered."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        long = prolonged(Path(scratch), flags.updates)
        RewardExplorer({"": STORED})  # the first picture of a process looks for fonts
        seconds: dict[str, dict[str, list[Taken]]] = {}
        for number in range(flags.rounds):
            for name, folder in (("long", long), ("short", STORED)):
                for what, taken in answers(folder, number).items():
                    seconds.setdefault(what, {}).setdefault(name, []).append(taken)
            note(f"round {number + 1} of {flags.rounds}")
    short = len((STORED / TRAIN_LOG).read_text().splitlines())
    print(f"median milliseconds, {flags.updates} updates, then {short}, and their ratio")
    for what, taken in seconds.items():
        clock = {name: 1000 * median(row[0] for row in rows) for name, rows in taken.items()}
        cpu = {name: [row[1] for row in rows] for name, rows in taken.items()}
        cells = [f"{clock[name]:7.0f} ({1000 * median(cpu[name]):4.0f} of CPU)" for name in clock]
        said = f"{what:12}{''.join(cells)}   {ratio(cpu['long'], cpu['short'])}"
        if what in TARGETS:
            said += f"; target {TARGETS[what]}: {clock['long'] < TARGETS[what]}"
        print(said)


def prolonged(folder: Path, updates: int) -> Path:
    """The stored run over and over in a folder of its own, its updates numbered from 1.

    Its phases are as many, and longer: those of the stored run drawn out.
    """
    head, *lines = (STORED / REWARD_LOG).read_text().splitlines()
    cells = [lines[index * len(lines) // updates].split(",") for index in range(updates)]
    for name in (TRAIN_LOG, DIAGNOSTICS):
        rows = [json.loads(line) for line in (STORED / name).read_text().splitlines()]
        with (folder / name).open("w") as file:
            for index in range(updates):
                changed = {"iter": index + 1, "index": index + 1, "total": updates}
                changed |= {"phase": cells[index][0]}
                row = rows[index % len(rows)]
                new = row | {k: v for k, v in changed.items() if k in row}
                file.write(json.dumps(new) + "\n")
    text = [",".join([row[0], str(i), *row[2:]]) for i, row in enumerate(cells, 1)]
    (folder / REWARD_LOG).write_text("\n".join([head, *text]) + "\n")
    (folder / CONFIG).write_bytes((STORED / CONFIG).read_bytes())
    return folder


def answers(folder: Path, number: int) -> dict[str, Taken]:
    """What it takes to open a run's folder, to answer each control, and to draw its dashboard."""
    explorer: list[RewardExplorer] = []
    taken = {"open": timed(lambda: explorer.append(RewardExplorer({"": folder})))}
    shown = explorer[0]
    smooth = 2 + number % (shown.smoothing.max - 1)
    smooth = 1 if smooth == shown.smoothing.value else smooth
    taken["smoothing"] = timed(lambda: setattr(shown.smoothing, "value", smooth))
    taken["pages"] = timed(lambda: setattr(shown.difficulty, "value", "hard"))
    taken["axis"] = timed(lambda: setattr(shown.axis, "value", "minutes"))
    board = Dashboard()
    board.take(read_run(folder))
    taken["dashboard"] = timed(lambda: figures.png(board.figure()))
    return taken


def timed(run: Callable[[], object]) -> Taken:
    """What a call takes."""
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - cpu


if __name__ == "__main__":
    main()
