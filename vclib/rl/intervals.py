"""Means with bootstrap intervals over pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A mean over pages and its 95 % interval; `low` and `high` are NaN below two pages."""

    mean: float
    low: float
    high: float
    pages: int

    @property
    def verdict(self) -> str:
        """A difference is a "gain", a "loss", or "unclear": no interval, or one that holds zero."""
        if self.low > 0:
            return "gain"
        return "loss" if self.high < 0 else "unclear"

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON, where NaN is null."""
        low, high = (None if math.isnan(x) else x for x in (self.low, self.high))
        return {"mean": self.mean, "low": low, "high": high, "pages": self.pages}

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Mean of one value per page, with the percentile interval of means of resampled pages.

    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
    """
    data = np.asarray(values, dtype=float)
    if len(data) < 2:
        return Interval(float(data.mean()), math.nan, math.nan, len(data))
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(len(data), np.full(len(data), 1 / len(data)), size=resamples)
    low, high = np.quantile(counts @ data / len(data), [0.025, 0.975])
    return Interval(float(data.mean()), float(low), float(high), len(data))


def paired_difference(
    after: Sequence[float], before: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Mean of after - before with its interval; both hold the same pages in the same order.

    What makes a page easy or hard for both cancels, so the interval is narrower than two apart.
    """
    difference = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    return bootstrap(difference.tolist(), seed=seed, resamples=resamples)
