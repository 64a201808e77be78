"""What an evaluation measured: rewards page by page, their means and gains."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vclib.rl.intervals import Interval, bootstrap, paired_difference

POLICIES = ("base", "trained")
LOOPS = ("alone", "critic")
DECODINGS = ("sampled", "greedy")
DIFFICULTIES = ("easy", "medium", "hard")


@dataclass(frozen=True)
class EvalSettings:
    """What is measured; every arm sees the same pages and starts from the same seed."""

    pages: str = "blocks"
    split: str = "heldout"
    difficulty: str = "mixed"
    count: int = 60
    max_steps: int = 5
    samples_per_page: int = 1
    temperature: float = 0.7
    developer_tokens: int = 2048
    critic_tokens: int = 512
    revision_screenshot: bool = False
    policies: tuple[str, ...] = POLICIES
    loops: tuple[str, ...] = LOOPS
    decodings: tuple[str, ...] = DECODINGS
    episodes_per_batch: int = 32
    seed: int = 0

    def arms(self) -> list[Arm]:
        """Every combination of policy, loop and decoding asked for."""
        return [Arm(*n) for n in itertools.product(self.policies, self.loops, self.decodings)]


@dataclass(frozen=True)
class Arm:
    """One way of playing: whose adapters, with or without the Critic, sampled or greedy."""

    policy: str
    loop: str
    decoding: str

    @property
    def label(self) -> str:
        """For instance "trained with Critic"."""
        return f"{self.policy} {'with Critic' if self.loop == 'critic' else 'alone'}"


@dataclass(frozen=True)
class Draft:
    """One Developer turn to be shown, the critique before it, and the parts of its reward."""

    html: str
    pixels: np.ndarray
    reward: float
    critique: str | None
    parts: Mapping[str, float | None] | None = None

    def lacks(self) -> str:
        """The parts below 1, for instance "format 0.50, ssim 0.97"."""
        parts = {name: value for name, value in (self.parts or {}).items() if value is not None}
        return ", ".join(f"{name} {value:.2f}" for name, value in parts.items() if value < 0.995)


@dataclass
class PageResult:
    """How one arm did on one page: the reward of every turn of every sample."""

    page_id: str
    difficulty: str
    rewards: list[list[float]]
    truncated: int = 0
    drafts: list[Draft] = field(default_factory=list)

    def value(self, measure: str) -> float:
        """Mean over samples of the "first", "last" or "best" reward, or that after turn "1", "2", …

        An episode that the Critic ended keeps its last reward for the turns that it did not use.
        """
        return float(np.mean([_measure(rewards, measure) for rewards in self.rewards]))


@dataclass
class Evaluation:
    """All results, in the same order of pages for every arm.

    `about` holds what made them: model, adapters, command, versions, browser, seconds.
    """

    settings: EvalSettings
    arms: dict[Arm, list[PageResult]]
    references: dict[str, np.ndarray] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def mean(self, arm: Arm, measure: str = "last", difficulty: str = "all") -> Interval:
        """Mean reward of an arm with its interval over pages."""
        return bootstrap(self._values(arm, measure, difficulty), seed=self.settings.seed)

    def gain(
        self, after: Arm, before: Arm, measure: str = "last", difficulty: str = "all"
    ) -> Interval:
        """Mean difference between two arms, paired by page."""
        pair = (self._values(arm, measure, difficulty) for arm in (after, before))
        return paired_difference(*pair, seed=self.settings.seed)

    def revision_gain(self, arm: Arm, difficulty: str = "all") -> Interval:
        """Mean difference between an arm's last drafts and its first, paired by page."""
        pair = (self._values(arm, measure, difficulty) for measure in ("last", "first"))
        return paired_difference(*pair, seed=self.settings.seed)

    def curve(self, arm: Arm) -> list[Interval]:
        """Mean reward after each turn."""
        return [self.mean(arm, str(turn)) for turn in range(1, self.settings.max_steps + 1)]

    def page_gains(self, after: Arm, before: Arm) -> dict[str, float]:
        """The difference in the last reward on each page."""
        return {
            result.page_id: result.value("last") - other.value("last")
            for result, other in zip(self.arms[after], self.arms[before], strict=True)
        }

    def difficulties(self) -> list[str]:
        """The difficulties met, after "all"; only "all" if there is one."""
        met = {result.difficulty for result in next(iter(self.arms.values()))}
        return ["all", *(name for name in DIFFICULTIES if name in met and len(met) > 1)]

    def pages(self) -> int:
        """How many pages every arm has played."""
        return len(next(iter(self.arms.values())))

    def truncated(self, arm: Arm) -> float:
        """Share of the arm's Developer turns that hit the limit of new tokens."""
        turns = sum(len(rewards) for result in self.arms[arm] for rewards in result.rewards)
        return sum(result.truncated for result in self.arms[arm]) / max(1, turns)

    def mean_turns(self, arm: Arm) -> float:
        """Mean number of Developer turns; fewer than the most if the Critic ended episodes."""
        return float(np.mean([len(r) for result in self.arms[arm] for r in result.rewards]))

    def _values(self, arm: Arm, measure: str, difficulty: str) -> list[float]:
        return [
            result.value(measure)
            for result in self.arms[arm]
            if difficulty in ("all", result.difficulty)
        ]


def comparisons(evaluation: Evaluation) -> list[tuple[str, str, Arm, Arm]]:
    """The differences worth reading: (name, decoding, after, before)."""
    settings = evaluation.settings
    found = []
    for decoding in settings.decodings:
        arms = {(a.policy, a.loop): a for a in evaluation.arms if a.decoding == decoding}
        for loop in settings.loops:
            if ("trained", loop) in arms and ("base", loop) in arms:
                name = f"trained - base, {'with Critic' if loop == 'critic' else 'alone'}"
                found.append((name, decoding, arms["trained", loop], arms["base", loop]))
        for policy in settings.policies:
            if (policy, "critic") in arms and (policy, "alone") in arms:
                name = f"with Critic - alone, {policy}"
                found.append((name, decoding, arms[policy, "critic"], arms[policy, "alone"]))
    return found


def shown_pages(evaluation: Evaluation, per_difficulty: int = 2) -> dict[str, str]:
    """Pages for a report, {id: why}: the first of each difficulty, then the extremes.

    The first ones are chosen before anything is known of them, so they flatter nobody.
    """
    arms = [arm for arm, results in evaluation.arms.items() if any(r.drafts for r in results)]
    results = evaluation.arms[arms[0]]
    shown: dict[str, str] = {}
    for difficulty in DIFFICULTIES:
        same = [result.page_id for result in results if result.difficulty == difficulty]
        shown |= {page_id: f"{difficulty} page" for page_id in same[:per_difficulty]}
    if len(arms) == 2:
        base, trained = arms
        gains = evaluation.page_gains(trained, base)
        for why, pick in (("most", max), ("least", min)):
            page_id = pick(gains, key=gains.__getitem__)
            words = f"the page that gained {why}, {gains[page_id]:+z.3f}"
            shown[page_id] = f"{shown[page_id]}, {words}" if page_id in shown else words
    return shown


def count_of(noun: str, number: int) -> str:
    """For instance "1 page" or "12 pages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _measure(rewards: Sequence[float], measure: str) -> float:
    if measure == "best":
        return max(rewards)
    turn = {"first": 1, "last": len(rewards)}.get(measure) or int(measure)
    return rewards[min(turn, len(rewards)) - 1]
