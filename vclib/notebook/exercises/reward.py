"""Exercises on the reward."""

from __future__ import annotations

from itertools import pairwise, permutations

from vclib.notebook.exercises.exercise import Exercise


def total_reward(parts, weights, gate):
    present = {name: part for name, part in parts.items() if part is not None}
    weight = sum(weights[name] for name in present)
    return gate * sum(weights[name] * part for name, part in present.items()) / weight


def best_pairing(worth):
    rows, columns = len(worth), len(worth[0])
    if rows > columns:
        return best_pairing([list(column) for column in zip(*worth, strict=True)])
    ways = permutations(range(columns), rows)
    return max(sum(worth[row][column] for row, column in enumerate(way)) for way in ways)


def soft_f1(qualities, reference_count, candidate_count):
    if reference_count + candidate_count == 0:
        return 1.0
    return 2 * sum(qualities) / (reference_count + candidate_count)


def ssim_window(a, b):
    c1, c2, n = 6.5025, 58.5225, len(a)
    mean_a, mean_b = sum(a) / n, sum(b) / n
    var_a = sum((x - mean_a) ** 2 for x in a) / (n - 1)
    var_b = sum((y - mean_b) ** 2 for y in b) / (n - 1)
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / (n - 1)
    top = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    return top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))


def content_gate(shown, found):
    return min(1, shown / 0.2) * min(1, found / 0.2)


def ordered_share(scores):
    right = pairs = 0
    for worse in range(len(scores)):
        for better in range(worse):
            pairs += 1
            right += scores[better] > scores[worse]
    return right / pairs


def _absent_as_zero(parts: dict, weights: dict, gate: float) -> float:
    known = {name: part or 0.0 for name, part in parts.items()}
    return gate * sum(weights[n] * part for n, part in known.items()) / sum(weights.values())


def _row_by_row(worth: list[list[float]]) -> float:
    total, free = 0.0, set(range(len(worth[0])))
    for row in worth:
        if free:
            column = max(free, key=row.__getitem__)
            total += row[column]
            free.remove(column)
    return total


def _best_first(worth: list[list[float]]) -> float:
    cells = [(value, i, j) for i, row in enumerate(worth) for j, value in enumerate(row)]
    total, rows, columns = 0.0, set(), set()
    for value, i, j in sorted(cells, reverse=True):
        if i not in rows and j not in columns:
            total += value
            rows.add(i)
            columns.add(j)
    return total


def _no_mercy_for_dark(a: list[float], b: list[float]) -> float:
    n, mean_a, mean_b = len(a), sum(a) / len(a), sum(b) / len(b)
    var_a = sum((x - mean_a) ** 2 for x in a) / (n - 1)
    var_b = sum((y - mean_b) ** 2 for y in b) / (n - 1)
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / (n - 1)
    return 4 * mean_a * mean_b * both / ((mean_a**2 + mean_b**2) * (var_a + var_b))


def _means_alone(a: list[float], b: list[float]) -> float:
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    return (2 * mean_a * mean_b + 6.5025) / (mean_a**2 + mean_b**2 + 6.5025)


def _ties_are_right(scores: list[float]) -> float:
    pairs = [(i, j) for j in range(len(scores)) for i in range(j)]
    return sum(scores[i] >= scores[j] for i, j in pairs) / len(pairs)


def _neighbours(scores: list[float]) -> float:
    return sum(a > b for a, b in pairwise(scores)) / (len(scores) - 1)


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
        difficulty="easy",
        minutes=5,
    ),
    "best_pairing": Exercise(
        best_pairing,
        cases=[
            ([[1.0, 0.0], [0.0, 1.0]],),
            ([[0.6, 0.5], [0.9, 0.7]],),
            ([[0.9, 0.8], [0.8, 0.1]],),
            ([[0.2, 0.9, 0.5], [0.1, 0.8, 0.7]],),
            ([[0.5], [0.9], [0.1]],),
        ],
        slips=[
            (
                lambda worth: sum(map(max, worth)),
                "two rows take the same column; each may be used once",
            ),
            (_best_first, "the best pair of all need not be in the best pairing: try every way"),
            (_row_by_row, "who chooses first takes all: try every way of pairing them"),
        ],
        difficulty="medium",
        minutes=15,
    ),
    "soft_f1": Exercise(
        soft_f1,
        cases=[
            ([1.0, 1.0], 2, 2),
            ([1.0, 0.5], 4, 2),
            ([1.0, 1.0], 2, 8),
            ([], 3, 0),
            ([], 0, 0),
        ],
        slips=[
            (
                lambda qualities, ref, cand: sum(qualities) / ref if ref else 1.0,
                "that is recall: what the candidate has too much costs nothing",
            ),
            (
                lambda qualities, ref, cand: sum(qualities) / cand if cand else float(not ref),
                "that is precision: what the candidate leaves out costs nothing",
            ),
            (
                lambda qualities, ref, cand: soft_f1([1] * len(qualities), ref, cand),
                "a pair counts as much as it agrees, not 1",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "ssim_window": Exercise(
        ssim_window,
        cases=[
            ([10.0, 20.0, 30.0], [10.0, 20.0, 30.0]),
            ([100.0, 120.0, 140.0], [140.0, 120.0, 100.0]),
            ([200.0, 220.0, 240.0], [100.0, 120.0, 140.0]),
            ([0.0, 0.0, 1.0], [0.0, 2.0, 0.0]),
        ],
        slips=[
            (_no_mercy_for_dark, "the two constants are missing"),
            (_means_alone, "the means alone tell brightness; the covariance tells structure"),
        ],
        difficulty="medium",
        minutes=15,
    ),
    "content_gate": Exercise(
        content_gate,
        cases=[(0.0, 0.0), (1.0, 0.0), (0.1, 0.1), (0.2, 0.2), (0.5, 0.15), (3.0, 1.0)],
        slips=[
            (
                lambda shown, found: min(1, shown / 0.2, found / 0.2),
                "it takes the smaller; both count, so multiply",
            ),
            (
                lambda shown, found: (min(1, shown / 0.2) + min(1, found / 0.2)) / 2,
                "a mean is open halfway for paint alone; multiply, so that both must hold",
            ),
            (
                lambda shown, found: shown / 0.2 * found / 0.2,
                "each factor is at most 1",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "ordered_share": Exercise(
        ordered_share,
        cases=[
            ([1.0, 0.8, 0.5, 0.2],),
            ([1.0, 0.8, 0.9, 0.2],),
            ([1.0, 0.4, 0.4],),
            ([0.1, 0.2, 0.3],),
        ],
        slips=[
            (_ties_are_right, "a tie is no order: the better copy must score higher"),
            (_neighbours, "neighbours alone are compared; compare every two"),
        ],
        difficulty="easy",
        minutes=10,
    ),
}
