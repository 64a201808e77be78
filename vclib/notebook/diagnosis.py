"""One sentence on each curve of a run: what it says, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vclib.rl.figures import Row

RECENT = 8
"""Updates whose mean is the present state of a run."""
NOT_LOGGED = "Not logged."
Reading = Callable[[Sequence[Row]], str]
"""From lines of diagnostics.jsonl to a sentence."""


def values(rows: Sequence[Row], name: str, key: str | None = None) -> np.ndarray:
    """A column by update, or one key of a column of mappings; NaN where it is not known."""
    column = []
    for row in rows:
        value: Any = row.get(name)
        if key is not None:
            value = value.get(key) if isinstance(value, Mapping) else None
        column.append(value if isinstance(value, int | float) else np.nan)
    return np.array(column, dtype=float)


def keys(rows: Sequence[Row], name: str) -> list[str]:
    """All keys of a column of mappings, in the order in which they appear."""
    found: dict[str, None] = {}
    for row in rows:
        if isinstance(row.get(name), Mapping):
            found |= dict.fromkeys(row[name])
    return list(found)


def diagnose(rows: Sequence[Row]) -> dict[str, str]:
    """A sentence for every panel of the dashboard, from lines of diagnostics.jsonl.

    What depends on who is trained is read from the phases of the agent that is trained now: the two
    agents' entropies and gradients do not compare.
    """
    phase = rows[-1].get("phase") if rows else None
    now = [row for row in rows if row.get("phase") == phase]
    return {name: read(now if name in OF_PHASE else rows) for name, read in READINGS.items()}


def reward(column: np.ndarray) -> str:
    """Whether the reward rises, by the means of the first and of the last updates."""
    size = min(RECENT, len(column) // 2)
    first, last = column[:size].mean(), column[-size:].mean()
    noise = np.hypot(column[:size].std(), column[-size:].std()) / np.sqrt(size)
    change = f"from {first:.2f} to {last:.2f} (means of {size} updates)"
    if last - first > 2 * noise:
        return f"Rising, {change}."
    if first - last > 2 * noise:
        return f"Falling, {change}: lower the learning rate, or look at the drafts."
    if last > 0.95:
        return f"Near the top, {change}: harder pages would teach more."
    return f"No clear change, {change}: wait, or see the spread and the silent groups."


def spread(column: np.ndarray) -> str:
    """Whether the episodes of a group differ enough to be compared."""
    now = _now(column)
    if now < 0.01:
        return f"{now:.3f}: the episodes of a group are alike: raise the temperature or K."
    return f"{now:.3f} lately: the episodes of a group differ, so there is something to compare."


def silent(column: np.ndarray) -> str:
    """How many groups teach nothing."""
    now = _now(column)
    if now >= 0.5:
        return f"{now:.0%} of the groups have no spread: raise the temperature or K."
    if now >= 0.2:
        return f"{now:.0%} of the groups teach nothing; half would be too many."
    return f"{now:.0%} of the groups teach nothing: that is few."


def gradient(column: np.ndarray) -> str:
    """Whether the gradient is clipped, climbs, or is gone."""
    now, clipped = _now(column), float((column[-RECENT:] > 1).mean())
    if now == 0:
        return "0: nothing is learnt; see the silent groups."
    if clipped >= 0.5:
        return f"{clipped:.0%} of the last steps were clipped at 1: lower the learning rate."
    start = float(np.median(column[:RECENT]))
    if len(column) >= 2 * RECENT and now > 10 * start > 0:
        return f"{now / start:.0f} times that of the start: lower the learning rate."
    return f"{now:.2g} lately, below the clip at 1: steady."


def entropy(column: np.ndarray) -> str:
    """Whether sampling still varies."""
    now, start = _now(column), float(column[:RECENT].mean())
    if len(column) >= 4 and now < 0.1 * start:
        return f"{now:.2g} nats, a tenth of the start: choices are gone; raise the temperature."
    if len(column) >= 4 and now > 3 * start:
        return f"{now:.2g} nats, {now / start:.0f} times the start: it forgets; lower the rate."
    return f"{now:.2g} nats a token: the next token is still open."


def lengths(columns: Mapping[str, np.ndarray]) -> str:
    """Whether turns grow or shrink, by agent."""
    said = []
    for agent, column in columns.items():
        now, start = _now(column), float(column[:RECENT].mean())
        trend = " and growing" if now > 1.5 * start else ""
        trend = " and shrinking" if now < 0.67 * start else trend
        said.append(f"{agent} {now:.0f} tokens{trend}")
    return f"{'; '.join(said)}."


def truncated(columns: Mapping[str, np.ndarray]) -> str:
    """How many turns the length limit cuts off, by agent."""
    now = {agent: _now(column) for agent, column in columns.items()}
    agent = max(now, key=now.__getitem__)
    if now[agent] >= 0.1:
        return f"{now[agent]:.0%} of the {agent}'s turns are cut off: raise its token limit."
    if now[agent] == 0:
        return "No turn is cut off: the limits suffice."
    return f"At most {now[agent]:.1%} of an agent's turns are cut off: the limits suffice."


def seconds(columns: Mapping[str, np.ndarray]) -> str:
    """Where the time goes, by stage."""
    now = {stage: _now(column) for stage, column in columns.items()}
    total = sum(now.values())
    if not total:
        return NOT_LOGGED
    stage = max(now, key=now.__getitem__)
    doing = f"{stage.removesuffix('e')}ing"  # sampling, rendering, scoring, updating
    return f"{total:.1f} s an update; most of it, {now[stage] / total:.0%}, is {doing}."


def _of(name: str, read: Callable[[np.ndarray], str], least: int = 1) -> Reading:
    """The reading of a column, where at least so many of its values are known."""

    def reading(rows: Sequence[Row]) -> str:
        column = _known(values(rows, name))
        if len(column) >= least:
            return read(column)
        return "Too few updates to say." if len(column) else NOT_LOGGED

    return reading


def _of_keys(name: str, read: Callable[[Mapping[str, np.ndarray]], str]) -> Reading:
    """The reading of a column of mappings, where a value of any key is known."""

    def reading(rows: Sequence[Row]) -> str:
        columns = {key: _known(values(rows, name, key)) for key in keys(rows, name)}
        known = {key: column for key, column in columns.items() if len(column)}
        return read(known) if known else NOT_LOGGED

    return reading


def _known(column: np.ndarray) -> np.ndarray:
    return column[np.isfinite(column)]


def _now(column: np.ndarray) -> float:
    return float(column[-RECENT:].mean())


OF_PHASE = ("reward", "spread", "silent", "gradient", "entropy")
READINGS: dict[str, Reading] = {
    "reward": _of("mean_terminal_reward", reward, least=4),
    "spread": _of("group_std", spread),
    "silent": _of("silent_share", silent),
    "gradient": _of("grad_norm", gradient),
    "entropy": _of("entropy", entropy),
    "lengths": _of_keys("lengths", lengths),
    "truncated": _of_keys("truncated_share", truncated),
    "seconds": _of_keys("seconds", seconds),
}
