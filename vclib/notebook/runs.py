"""What a run's folder holds for a plot, however damaged or unfinished it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from vclib.rl import kept
from vclib.rl.figures import Phase, Row
from vclib.rl.runlog import CONFIG, DIAGNOSTICS, REWARD_LOG, TRAIN_LOG, is_number

AXES = ("update", "episodes", "minutes")
"""What the horizontal axis may count: updates, episodes played, minutes spent in the stages."""
MOST_UPDATES = 10**9
"""A larger number is a damaged one."""


@dataclass
class Run:
    """One run: lines of train.jsonl and diagnostics.jsonl, its phases, and what is not there.

    `rows` have `iter`, and those of easy, medium, hard and mean that are known. `episodes` are the
    files of kept episodes by update.
    """

    rows: Sequence[Row] = ()
    phases: Sequence[Phase] = ()
    diagnostics: Sequence[Row] = ()
    episodes_per_update: int | None = None
    episodes: Mapping[int, Path] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def x(self, axis: str) -> np.ndarray | None:
        """Where each row stands on an axis; None where the run does not say."""
        updates = np.array([row["iter"] for row in self.rows], dtype=float)
        if axis == "update":
            return updates
        if axis == "episodes":
            return updates * self.episodes_per_update if self.episodes_per_update else None
        spent = {row["iter"]: seconds_of(row) for row in self.diagnostics}
        if not spent or not any(spent.values()):
            return None
        return np.cumsum([spent.get(row["iter"], 0.0) for row in self.rows]) / 60


def read_run(folder: Path) -> Run:
    """Read a run's folder, live or finished; never raises for what is missing or damaged there."""
    notes: list[str] = []
    rows = checked(read_lines(folder / TRAIN_LOG, notes))
    if not rows:
        notes.append(f"{TRAIN_LOG} has no update yet")
    for name in ("mean", "easy", "medium", "hard"):
        if rows and not any(name in row for row in rows):
            notes.append(f"{TRAIN_LOG} has no column {name}")
    diagnostics = [row for row in read_lines(folder / DIAGNOSTICS, notes) if _is_update(row)]
    return Run(
        rows,
        _phases(folder / REWARD_LOG, diagnostics, notes),
        diagnostics,
        _episodes_per_update(folder / CONFIG, notes),
        kept.stored(folder),
        notes,
    )


def read_lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The whole lines of a JSON-lines file; what is wrong with the others goes to notes."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        notes.append(f"{path.name} is missing")
        return []
    rows, bad = [], 0
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):  # no newline yet: a process is writing it
                notes.append(f"the last line of {path.name} is half-written")
            else:
                bad += 1
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad += 1
    if bad:
        notes.append(f"{bad} damaged line{'s' * (bad > 1)} of {path.name} left out")
    return rows


def seconds_of(row: Row) -> float:
    """Seconds of all stages of an update; 0 where they are not known."""
    stages = row.get("seconds")
    if not isinstance(stages, Mapping):
        return 0.0
    return float(sum(seconds for seconds in stages.values() if is_number(seconds)))


def checked(rows: Iterable[Row]) -> list[Row]:
    """The rows of train.jsonl that name their update, their rewards numbers or None."""
    names = ("easy", "medium", "hard", "mean")
    return [
        {k: None if k in names and not is_number(v) else v for k, v in row.items()}
        for row in rows
        if _is_update(row)
    ]


def _is_update(row: Row) -> bool:
    return is_number(row.get("iter")) and abs(row["iter"]) < MOST_UPDATES


def _phases(path: Path, diagnostics: Sequence[Row], notes: list[str]) -> list[Phase]:
    """(phase, first, last update), from reward_log.csv or else from the diagnostics."""
    named: list[tuple[int, str]] = []
    try:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
            cells = line.split(",")
            if len(cells) > 1 and cells[1].isdecimal():
                named.append((int(cells[1]), cells[0]))
    except OSError:
        notes.append(f"{path.name} is missing")
        named = [(row["iter"], str(row["phase"])) for row in diagnostics if "phase" in row]
    blocks = [list(block) for _, block in groupby(named, key=lambda pair: pair[1])]
    return [(block[0][1], block[0][0], block[-1][0]) for block in blocks]


def _episodes_per_update(path: Path, notes: list[str]) -> int | None:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
        count = int(settings["k_rollouts"]) * int(settings["pages_per_update"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        count = 0
    if not 0 < count < MOST_UPDATES:
        notes.append(f"{path.name} is missing or does not say how many episodes an update has")
        return None
    return count
