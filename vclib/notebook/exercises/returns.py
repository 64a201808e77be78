"""Exercises on returns and advantages."""

from __future__ import annotations

import itertools

from vclib.notebook.exercises.exercise import Exercise


def step_returns(rewards, lambda_shaped):
    last = rewards[-1]
    return [last + lambda_shaped * (last - reward) for reward in rewards]


def group_advantages(returns):
    pooled = [value for episode in returns for value in episode]
    mean = sum(pooled) / len(pooled)
    std = (sum((value - mean) ** 2 for value in pooled) / len(pooled)) ** 0.5
    return [[(value - mean) / (std + 1e-8) for value in episode] for episode in returns]


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
    "step_returns": Exercise(
        step_returns,
        cases=[([0.2, 0.5, 0.9], 0.2), ([0.6, 0.3], 1.0), ([0.4, 0.7], 0.0), ([0.5], 0.2)],
        slips=[
            (_without_terminal, "the last reward itself is missing from each turn's return"),
            (_next_gain_only, "only the next gain is counted; the sum runs to the episode's end"),
            (_past_gains, "it credits a turn with what was gained before it; the sum looks ahead"),
        ],
        difficulty="easy",
        minutes=5,
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
        difficulty="easy",
        minutes=10,
    ),
}
