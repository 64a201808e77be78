"""The result of a run in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vclib.rl.intervals import Interval
from vclib.rl.results import Arm, Evaluation, comparisons, count_of
from vclib.rl.runlog import DIAGNOSTICS, read_jsonl

LITTLE = 0.01
"""A clear gain below this is called small: one hundredth of the way from nothing to a copy."""


@dataclass(frozen=True)
class Headline:
    """The result in plain words, and the numbers behind it."""

    title: str
    sentences: tuple[str, ...]
    base: Interval
    trained: Interval
    gain: Interval


def headline(evaluation: Evaluation) -> Headline | None:
    """What training changed on held-out pages; None unless base and trained were both played.

    The comparison is fixed beforehand: with the Critic and sampled, as in training, where the
    evaluation has them.
    """
    found = [c for c in comparisons(evaluation) if c[0].startswith("trained - base")]
    if not found:
        return None
    loop, decoding = evaluation.settings.loops[-1], evaluation.settings.decodings[0]
    trained, base = next((c[2], c[3]) for c in found if (c[2].loop, c[1]) == (loop, decoding))
    gain = evaluation.gain(trained, base)
    pages = count_of(f"{split_of(evaluation)} page", evaluation.pages())
    titles = {
        "gain": f"Training raised the reward on {pages} by {gain.mean:.3f}",
        "loss": f"Training lowered the reward on {pages} by {-gain.mean:.3f}",
        "unclear": f"Training made no clear difference on {pages}",
    }
    small = gain.verdict == "gain" and gain.mean < LITTLE
    title = titles[gain.verdict] + (": a small gain" if small else "")
    return Headline(
        title,
        tuple(_sentences(evaluation, trained, base, gain)),
        evaluation.mean(base),
        evaluation.mean(trained),
        gain,
    )


def _sentences(evaluation: Evaluation, trained: Arm, base: Arm, gain: Interval) -> Iterator[str]:
    before, after = evaluation.mean(base), evaluation.mean(trained)
    how = f"{'with' if base.loop == 'critic' else 'without'} the Critic, {base.decoding}"
    yield (
        f"The last draft of an episode ({how}) scores {after.mean:.3f} on average after training "
        f"and {before.mean:.3f} before, where 1 is a perfect copy. The difference is "
        f"{signed(gain)}."
    )
    if gain.verdict == "unclear":
        yield "The interval holds zero: these pages do not show whether training helped."
    for name, decoding, this, other in comparisons(evaluation):
        if name.startswith("trained - base") and this != trained:
            ways = f"{this.label.removeprefix('trained ')}, {decoding}"
            yield f"The same difference {ways}: {signed(evaluation.gain(this, other))}."
    for name, decoding, this, other in comparisons(evaluation):
        if name.startswith("with Critic") and decoding == base.decoding:
            yield _on_the_critic(evaluation.gain(this, other), this)
    for arm in evaluation.arms:
        revised = evaluation.revision_gain(arm)
        if arm.decoding == base.decoding and revised.verdict == "loss":
            yield f"Revising makes drafts worse, {arm.label}: last - first {signed(revised)}."
    for arm in (base, trained):
        if evaluation.truncated(arm) > 0.01:
            share = f"{100 * evaluation.truncated(arm):.0f} %"
            yield f"{share} of the {arm.policy} model's drafts were cut at the limit of tokens."


def _on_the_critic(gain: Interval, arm: Arm) -> str:
    says = {"gain": "helps", "loss": "hurts", "unclear": "makes no clear difference to"}
    return (
        f"The Critic {says[gain.verdict]} the {arm.policy} Developer, compared with as many turns "
        f"without critique: {signed(gain)}."
    )


def idle_updates(folder: Path) -> str | None:
    """One sentence on the updates of a run that changed nothing; None where each moved a weight."""
    path = folder / DIAGNOSTICS
    rows = [row for row in read_jsonl(path) if "grad_norm" in row] if path.is_file() else []
    idle = [row for row in rows if not 0 < row["grad_norm"] < math.inf]
    if not idle:
        return None
    silent = all(row["silent_share"] == 1 for row in idle)
    why = "all groups were silent, as" if silent else "there was no finite gradient, or"
    where = "in the others " if len(idle) < len(rows) else ""
    return (
        f"{len(rows) - len(idle)} of {count_of('update', len(rows))} moved a weight: {where}{why} "
        "the episodes of each group scored alike."
    )


def split_of(evaluation: Evaluation) -> str:
    split = evaluation.settings.split
    return "held-out" if split == "heldout" else split


def range_of(interval: Interval) -> str:
    if interval.pages < 2:
        return "one page: no interval"
    return f"95\u00a0% interval {interval.low:z.3f} to {interval.high:z.3f}"


def signed(interval: Interval) -> str:
    return f"{interval.mean:+z.3f} ({range_of(interval)})"
