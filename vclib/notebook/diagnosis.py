"""One sentence on each curve of a run: what it says, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vclib.rl.figures import Row

RECENT = 8
"""Updates whose mean is the present state of a run."""


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


def reward(rows: Sequence[Row]) -> str:
    """Whether the reward rises, by the means of the first and of the last updates."""
    column = _known(values(rows, "mean_terminal_reward"))
    if len(column) < 4:
        return _too_few(column)
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


def spread(rows: Sequence[Row]) -> str:
    """Whether the episodes of a group differ enough to be compared."""
    column = _known(values(rows, "group_std"))
    if not len(column):
        return _too_few(column)
    now = _now(column)
    if now < 0.01:
        return f"{now:.3f}: the episodes of a group are alike: raise the temperature or K."
    return f"{now:.3f} lately: the episodes of a group differ, so there is something to compare."


def silent(rows: Sequence[Row]) -> str:
    """How many groups teach nothing."""
    column = _known(values(rows, "silent_share"))
    if not len(column):
        return _too_few(column)
    now = _now(column)
    if now >= 0.5:
        return f"{now:.0%} of the groups have no spread: raise the temperature or K."
    if now >= 0.2:
        return f"{now:.0%} of the groups teach nothing; half would be too many."
    return f"{now:.0%} of the groups teach nothing: that is few."


def gradient(rows: Sequence[Row]) -> str:
    """Whether the gradient is clipped, climbs, or is gone."""
    column = _known(values(rows, "grad_norm"))
    if not len(column):
        return _too_few(column)
    now, clipped = _now(column), float((column[-RECENT:] > 1).mean())
    if now == 0:
        return "0: nothing is learnt; see the silent groups."
    if clipped >= 0.5:
        return f"{clipped:.0%} of the last steps were clipped at 1: lower the learning rate."
    start = float(np.median(column[:RECENT]))
    if len(column) >= 2 * RECENT and now > 10 * start > 0:
        return f"{now / start:.0f} times that of the start: lower the learning rate."
    return f"{now:.2g} lately, below the clip at 1: steady."


def entropy(rows: Sequence[Row]) -> str:
    """Whether sampling still varies."""
    column = _known(values(rows, "entropy"))
    if not len(column):
        return _too_few(column)
    now, start = _now(column), float(column[:RECENT].mean())
    if len(column) >= 4 and now < 0.1 * start:
        return f"{now:.2g} nats, a tenth of the start: choices are gone; raise the temperature."
    if len(column) >= 4 and now > 3 * start:
        return f"{now:.2g} nats, {now / start:.0f} times the start: it forgets; lower the rate."
    return f"{now:.2g} nats a token: the next token is still open."


def lengths(rows: Sequence[Row]) -> str:
    """Whether turns grow or shrink."""
    found = keys(rows, "lengths")
    if not found:
        return "Not logged."
    said = []
    for agent in found:
        column = _known(values(rows, "lengths", agent))
        if len(column):
            now, start = _now(column), float(column[:RECENT].mean())
            trend = " and growing" if now > 1.5 * start else ""
            trend = " and shrinking" if now < 0.67 * start else trend
            said.append(f"{agent} {now:.0f} tokens{trend}")
    return f"{'; '.join(said)}." if said else _too_few(np.zeros(0))


def truncated(rows: Sequence[Row]) -> str:
    """How many turns the length limit cuts off."""
    found = {
        agent: _now(column)
        for agent in keys(rows, "truncated_share")
        if len(column := _known(values(rows, "truncated_share", agent)))
    }
    if not found:
        return "Not logged."
    agent = max(found, key=found.__getitem__)
    if found[agent] >= 0.1:
        return f"{found[agent]:.0%} of the {agent}'s turns are cut off: raise its token limit."
    if found[agent] == 0:
        return "No turn is cut off: the limits suffice."
    return f"At most {found[agent]:.1%} of an agent's turns are cut off: the limits suffice."


def seconds(rows: Sequence[Row]) -> str:
    """Where the time goes."""
    means = {
        stage: _now(column)
        for stage in keys(rows, "seconds")
        if len(column := _known(values(rows, "seconds", stage)))
    }
    total = sum(means.values())
    if not total:
        return "Not logged."
    stage = max(means, key=means.__getitem__)
    return f"{total:.1f} s an update; most of it, {means[stage] / total:.0%}, is {stage}."


OF_PHASE = ("reward", "spread", "silent", "gradient", "entropy")
READINGS: dict[str, Callable[[Sequence[Row]], str]] = {
    "reward": reward,
    "spread": spread,
    "silent": silent,
    "gradient": gradient,
    "entropy": entropy,
    "lengths": lengths,
    "truncated": truncated,
    "seconds": seconds,
}


def _known(column: np.ndarray) -> np.ndarray:
    return column[np.isfinite(column)]


def _now(column: np.ndarray) -> float:
    return float(column[-RECENT:].mean())


def _too_few(column: np.ndarray) -> str:
    return "Too few updates to say." if len(column) else "Not logged."
