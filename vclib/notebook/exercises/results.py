"""Exercises on results: intervals, gains and seeds."""

from __future__ import annotations

import math

from vclib.notebook.exercises.exercise import Exercise


def paired_interval(after, before):
    n = len(after)
    gains = [a - b for a, b in zip(after, before, strict=True)]
    mean = sum(gains) / n
    variance = sum((gain - mean) ** 2 for gain in gains) / (n - 1)
    half = 1.96 * math.sqrt(variance / n)
    return mean, mean - half, mean + half


def won_back(after, before):
    start, end = sum(before) / len(before), sum(after) / len(after)
    return 0.0 if start == 1 else (end - start) / (1 - start)


def seed_spread(values):
    return sum(values) / len(values), max(values) - min(values)


def _spread_of_pages(after: list[float], before: list[float]) -> tuple[float, float, float]:
    mean, low, _ = paired_interval(after, before)
    half = (mean - low) * math.sqrt(len(after))
    return mean, mean - half, mean + half


def _two_heaps(after: list[float], before: list[float]) -> tuple[float, float, float]:
    mean, low, _ = paired_interval(after, [sum(before) / len(before)] * len(before))
    other, least, _ = paired_interval(before, [0.0] * len(before))
    half = math.hypot(mean - low, other - least)
    return mean, mean - half, mean + half


def _divided_by_n(after: list[float], before: list[float]) -> tuple[float, float, float]:
    mean, low, _ = paired_interval(after, before)
    half = (mean - low) * math.sqrt((len(after) - 1) / len(after))
    return mean, mean - half, mean + half


def _relative(after: list[float], before: list[float]) -> float:
    return sum(after) / sum(before) - 1


def _by_page(after: list[float], before: list[float]) -> float:
    shares = [(a - b) / (1 - b) if b < 1 else 0.0 for a, b in zip(after, before, strict=True)]
    return sum(shares) / len(shares)


def _best_and_spread(values: list[float]) -> tuple[float, float]:
    return max(values), max(values) - min(values)


BASE, TRAINED = [0.6, 0.8, 0.5, 0.9, 0.7], [0.75, 0.85, 0.7, 0.95, 0.75]

EXERCISES = {
    "paired_interval": Exercise(
        paired_interval,
        cases=[(TRAINED, BASE), ([0.9, 0.4, 0.8], [0.5, 0.6, 0.8]), ([0.5, 0.5], [0.5, 0.5])],
        slips=[
            (
                _spread_of_pages,
                "that is how far single pages spread: a mean over n pages spreads less, by the "
                "square root of n",
            ),
            (_two_heaps, "take the difference page by page first, then its spread"),
            (_divided_by_n, "n pages have one mean in common: divide by n - 1, not by n"),
        ],
        difficulty="easy",
        minutes=10,
    ),
    "won_back": Exercise(
        won_back,
        cases=[(TRAINED, BASE), ([0.9, 1.0], [0.4, 0.8]), ([1.0, 1.0], [1.0, 1.0]), ([0.3], [0.6])],
        slips=[
            (_relative, "that is the gain relative to before; divide by what was missing to 1"),
            (_by_page, "take the two means first: a page that lacked 0.01 would count like others"),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "seed_spread": Exercise(
        seed_spread,
        cases=[([0.92, 0.94, 0.9],), ([0.5],), ([0.1, 0.7],)],
        slips=[(_best_and_spread, "the best seed is not the result; report the mean")],
        difficulty="easy",
        minutes=5,
    ),
}
