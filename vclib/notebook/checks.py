"""The course's exercises: what is asked, how an answer is checked, and a solution, in one place.

In a notebook, `check("returns", my_function)` prints a verdict and `solution("returns")` shows,
folded, one answer that passes.
"""

from __future__ import annotations

import copy
import html
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vclib.errors import VclibError

Answer = Callable[..., Any]
NOT_ATTEMPTED = "not attempted yet"
CORRECT = "correct"


@dataclass(frozen=True)
class Exercise:
    """One function to write.

    `cases` are the arguments that it is tried on. `slips` are wrong answers that people give, each
    with the sentence that helps; they are told apart by what they return.
    """

    solution: Answer
    cases: Sequence[tuple[Any, ...]]
    slips: Sequence[tuple[Answer, str]] = ()


@dataclass(frozen=True)
class Solution:
    """The source of a solution, folded where HTML is shown."""

    source: str

    def __repr__(self) -> str:
        return self.source

    def _repr_html_(self) -> str:
        code = html.escape(self.source)
        return f"<details><summary>A solution</summary><pre>{code}</pre></details>"


def check(name: str, answer: Answer) -> None:
    """Print the verdict on an answer: not attempted yet, not yet (and why), or correct."""
    print(f"{name}: {verdict(name, answer)}")


def solution(name: str) -> Solution:
    """One answer to the exercise that passes its check."""
    return Solution(inspect.getsource(_exercise(name).solution).rstrip())


def verdict(name: str, answer: Answer) -> str:
    """What `check` prints; never raises, whatever the answer does."""
    exercise = _exercise(name)
    for case in exercise.cases:
        expected = exercise.solution(*copy.deepcopy(case))
        try:
            got = answer(*copy.deepcopy(case))
        except NotImplementedError:
            return NOT_ATTEMPTED
        except Exception as error:
            return f"not yet: because {_call(case)} raised {type(error).__name__}: {error}"
        if got is None or got is Ellipsis:
            return NOT_ATTEMPTED
        if not _close(got, expected):
            return f"not yet: because {_why(exercise, case, got, expected)}"
    return CORRECT


def _why(exercise: Exercise, case: tuple[Any, ...], got: Any, expected: Any) -> str:
    for slip, hint in exercise.slips:
        if _close(got, slip(*copy.deepcopy(case))):
            return hint
    return f"{_call(case)} gives {_short(got)}, expected {_short(expected)}"


def _exercise(name: str) -> Exercise:
    if name not in EXERCISES:
        raise VclibError(f"no exercise is named {name!r}; there are: {', '.join(EXERCISES)}")
    return EXERCISES[name]


def _close(got: Any, expected: Any) -> bool:
    """Equal to 1e-6, through lists, arrays and tensors of numbers."""
    try:
        if isinstance(expected, int | float):
            return math.isclose(float(got), expected, rel_tol=0, abs_tol=1e-6)
        got = list(got)
        return len(got) == len(expected) and all(map(_close, got, expected))
    except (TypeError, ValueError):
        return False


def _call(case: tuple[Any, ...]) -> str:
    return f"f({', '.join(_short(argument) for argument in case)})"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return repr(value)


def total_reward(parts, weights, gate):
    present = {name: part for name, part in parts.items() if part is not None}
    weight = sum(weights[name] for name in present)
    return gate * sum(weights[name] * part for name, part in present.items()) / weight


def step_returns(rewards, lambda_shaped):
    last = rewards[-1]
    return [last + lambda_shaped * (last - reward) for reward in rewards]


def group_advantages(returns):
    pooled = [value for episode in returns for value in episode]
    mean = sum(pooled) / len(pooled)
    std = (sum((value - mean) ** 2 for value in pooled) / len(pooled)) ** 0.5
    return [[(value - mean) / (std + 1e-8) for value in episode] for episode in returns]


def _absent_as_zero(parts: dict, weights: dict, gate: float) -> float:
    known = {name: part or 0.0 for name, part in parts.items()}
    return gate * sum(weights[n] * part for n, part in known.items()) / sum(weights.values())


def _without_terminal(rewards: list[float], lambda_shaped: float) -> list[float]:
    return [lambda_shaped * (rewards[-1] - reward) for reward in rewards]


def _next_gain_only(rewards: list[float], lambda_shaped: float) -> list[float]:
    gains = [after - before for before, after in itertools.pairwise(rewards)]
    return [rewards[-1] + lambda_shaped * gain for gain in [*gains, 0.0]]


def _past_gains(rewards: list[float], lambda_shaped: float) -> list[float]:
    return [rewards[-1] + lambda_shaped * (reward - rewards[0]) for reward in rewards]


def _centred_only(returns: list[list[float]]) -> list[list[float]]:
    pooled = [value for episode in returns for value in episode]
    mean = sum(pooled) / len(pooled)
    return [[value - mean for value in episode] for episode in returns]


def _mean_of_means(returns: list[list[float]]) -> list[list[float]]:
    pooled = [value for episode in returns for value in episode]
    mean = sum(sum(episode) / len(episode) for episode in returns) / len(returns)
    std = (sum((value - mean) ** 2 for value in pooled) / len(pooled)) ** 0.5
    return [[(value - mean) / (std + 1e-8) for value in episode] for episode in returns]


EXERCISES = {
    "total_reward": Exercise(
        total_reward,
        cases=[
            ({"text": 0.5, "color": 1.0}, {"text": 3.0, "color": 1.0}, 1.0),
            ({"text": 0.5, "color": 1.0}, {"text": 3.0, "color": 1.0}, 0.5),
            ({"text": 0.5, "color": 1.0, "clip": None}, {"text": 3, "color": 1, "clip": 2.5}, 1.0),
        ],
        slips=[
            (
                lambda parts, weights, gate: total_reward(parts, weights, 1.0),
                "the gate is missing: it multiplies the whole mean",
            ),
            (_absent_as_zero, "an absent part counts as 0; it must leave the mean, weight and all"),
            (
                lambda parts, weights, gate: (
                    gate * sum(weights[n] * (parts[n] or 0) for n in parts)
                ),
                "the sum is not divided by the sum of the weights",
            ),
        ],
    ),
    "step_returns": Exercise(
        step_returns,
        cases=[([0.2, 0.5, 0.9], 0.2), ([0.6, 0.3], 1.0), ([0.4, 0.7], 0.0), ([0.5], 0.2)],
        slips=[
            (_without_terminal, "the last reward itself is missing from each turn's return"),
            (_next_gain_only, "only the next gain is counted; the sum runs to the episode's end"),
            (_past_gains, "it credits a turn with what was gained before it; the sum looks ahead"),
        ],
    ),
    "group_advantages": Exercise(
        group_advantages,
        cases=[([[1.0], [0.0]],), ([[0.2, 0.4], [0.9]],), ([[0.5, 0.5], [0.5]],)],
        slips=[
            (
                _centred_only,
                "the spread is not divided by; divide by the standard deviation + 1e-8",
            ),
            (_mean_of_means, "the mean is over the episodes; pool the turns of all of them first"),
        ],
    ),
}
