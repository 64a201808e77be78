"""Exercises on finding faults that raise no error."""

from __future__ import annotations

from vclib.notebook.exercises.exercise import Exercise


def widest_gap(drawn, scored, mask):
    gaps = [abs(a - b) for a, b, kept in zip(drawn, scored, mask, strict=True) if kept]
    return max(gaps, default=0.0)


def page_sums(advantages, pages):
    sums = {page: 0.0 for page in pages}
    for value, page in zip(advantages, pages, strict=True):
        sums[page] += value
    return [sums[page] for page in sorted(sums)]


def apart(ours, theirs):
    gap = sum(ours) / len(ours) - sum(theirs) / len(theirs)
    error = _variance(ours) / len(ours) + _variance(theirs) / len(theirs)
    return abs(gap) / (error**0.5 + 1e-8)


def _variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _population_variance(values: list[float]) -> float:
    return _variance(values) * (len(values) - 1) / len(values)


def _populations_apart(ours: list[float], theirs: list[float]) -> float:
    gap = sum(ours) / len(ours) - sum(theirs) / len(theirs)
    error = _population_variance(ours) / len(ours) + _population_variance(theirs) / len(theirs)
    return abs(gap) / (error**0.5 + 1e-8)


def _deviations_apart(ours: list[float], theirs: list[float]) -> float:
    gap = sum(ours) / len(ours) - sum(theirs) / len(theirs)
    return abs(gap) / ((_variance(ours) + _variance(theirs)) ** 0.5 + 1e-8)


EXERCISES = {
    "widest_gap": Exercise(
        widest_gap,
        cases=[
            ([-1.0, -2.0], [-1.0, -2.5], [True, True]),
            ([-1.0, -2.0, 0.0], [-1.25, -2.0, -9.0], [True, True, False]),
            ([-1.0, -3.0], [-2.0, -3.0], [False, True]),
            ([-0.5], [-4.0], [False]),
        ],
        slips=[
            (
                lambda drawn, scored, mask: widest_gap(drawn, scored, [True] * len(mask)),
                "padding is compared too; look only where the mask is True",
            ),
            (
                lambda drawn, scored, mask: max(
                    (b - a for a, b, kept in zip(drawn, scored, mask, strict=True) if kept),
                    default=0.0,
                ),
                "the sign is kept: a token that became less likely counts as much",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "page_sums": Exercise(
        page_sums,
        cases=[
            ([1.0, -1.0, 0.5, -0.5], ["a", "a", "b", "b"]),
            ([1.0, 0.5, -0.5, -1.0], ["a", "a", "b", "b"]),
            ([2.0, 0.5], ["b", "a"]),
        ],
        slips=[
            (
                lambda advantages, pages: [sum(advantages)],
                "that is one sum over all pages; make one for each page",
            ),
            (
                lambda advantages, pages: [
                    total / pages.count(page)
                    for total, page in zip(
                        page_sums(advantages, pages), sorted(set(pages)), strict=True
                    )
                ],
                "those are means; the sums are asked for",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "apart": Exercise(
        apart,
        cases=[
            ([0.9, 0.92, 0.94], [0.8, 0.82, 0.84]),
            ([0.5, 0.7], [0.9, 0.95]),
            ([0.6, 0.7, 0.8, 0.9], [0.7, 0.8]),
        ],
        slips=[
            (
                _deviations_apart,
                "it divides by the spread of single runs; a mean of n runs is surer than one",
            ),
            (
                _populations_apart,
                "divide the squares by n - 1: with few seeds the difference is large",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
}
