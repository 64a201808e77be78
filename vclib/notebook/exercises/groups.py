"""Exercises on groups and their advantages."""

from __future__ import annotations

from vclib.notebook.exercises.exercise import Exercise

Returns = list[list[float]]


def group_advantages(returns):
    pooled = [value for episode in returns for value in episode]
    mean = sum(pooled) / len(pooled)
    std = (sum((value - mean) ** 2 for value in pooled) / len(pooled)) ** 0.5
    return [[(value - mean) / (std + 1e-8) for value in episode] for episode in returns]


def per_turn_advantages(returns):
    advantages = [[0.0] * len(episode) for episode in returns]
    for turn in range(max(map(len, returns))):
        column = [episode[turn] for episode in returns if len(episode) > turn]
        mean = sum(column) / len(column)
        std = (sum((value - mean) ** 2 for value in column) / len(column)) ** 0.5
        for row, episode in enumerate(returns):
            if len(episode) > turn:
                advantages[row][turn] = (episode[turn] - mean) / (std + 1e-8)
    return advantages


def centred_advantages(returns):
    pooled = [value for episode in returns for value in episode]
    mean = sum(pooled) / len(pooled)
    return [[value - mean for value in episode] for episode in returns]


def leave_one_out(returns):
    advantages = []
    for row, episode in enumerate(returns):
        others = [value for i, other in enumerate(returns) if i != row for value in other]
        mean = sum(others) / len(others) if others else None
        advantages.append([0.0 if mean is None else value - mean for value in episode])
    return advantages


def silent_probability(p, k):
    return p**k + (1 - p) ** k


def _mean_of_means(returns: Returns) -> Returns:
    pooled = [value for episode in returns for value in episode]
    mean = sum(sum(episode) / len(episode) for episode in returns) / len(returns)
    std = (sum((value - mean) ** 2 for value in pooled) / len(pooled)) ** 0.5
    return [[(value - mean) / (std + 1e-8) for value in episode] for episode in returns]


def _per_turn_centred(returns: Returns) -> Returns:
    columns = [[e[t] for e in returns if len(e) > t] for t in range(max(map(len, returns)))]
    return [[e[t] - sum(columns[t]) / len(columns[t]) for t in range(len(e))] for e in returns]


def _mean_of_episode_means(returns: Returns) -> Returns:
    mean = sum(sum(episode) / len(episode) for episode in returns) / len(returns)
    return [[value - mean for value in episode] for episode in returns]


def _one_turn_left_out(returns: Returns) -> Returns:
    pooled = [value for episode in returns for value in episode]
    rest = len(pooled) - 1
    return [[v - (sum(pooled) - v) / rest if rest else 0.0 for v in e] for e in returns]


EXERCISES = {
    "group_advantages": Exercise(
        group_advantages,
        cases=[([[1.0], [0.0]],), ([[0.2, 0.4], [0.9]],), ([[0.5, 0.5], [0.5]],)],
        slips=[
            (
                centred_advantages,
                "the spread is not divided by; divide by the standard deviation + 1e-8",
            ),
            (_mean_of_means, "the mean is over the episodes; pool the turns of all of them first"),
        ],
        difficulty="easy",
        minutes=10,
    ),
    "per_turn_advantages": Exercise(
        per_turn_advantages,
        cases=[
            ([[0.9, 0.8], [0.5, 0.6]],),
            ([[0.2, 0.4], [0.9]],),
            ([[0.5], [0.5]],),
            ([[0.1, 0.2, 0.3], [0.3, 0.2], [0.2]],),
        ],
        slips=[
            (
                group_advantages,
                "it pools all turns; compare first with first, second with second",
            ),
            (_per_turn_centred, "the spread of the turns of equal number is not divided by"),
        ],
        difficulty="medium",
        minutes=15,
    ),
    "centred_advantages": Exercise(
        centred_advantages,
        cases=[([[1.0], [0.0]],), ([[0.2, 0.4], [0.9]],), ([[0.5, 0.5], [0.5]],)],
        slips=[
            (group_advantages, "it divides by the spread; this variant does not"),
            (
                _mean_of_episode_means,
                "the mean is over the episodes; pool the turns of all of them first",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "leave_one_out": Exercise(
        leave_one_out,
        cases=[
            ([[0.2], [0.6], [0.6], [1.0]],),
            ([[0.2, 0.4], [0.9]],),
            ([[0.5, 0.7]],),
            ([[0.1, 0.2], [0.4, 0.6], [0.8]],),
        ],
        slips=[
            (centred_advantages, "the turn's own episode is in the mean; leave it out"),
            (_one_turn_left_out, "only the turn itself is left out; leave out its whole episode"),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "silent_probability": Exercise(
        silent_probability,
        cases=[(0.9, 4), (0.5, 2), (0.0, 8), (0.3, 3)],
        slips=[
            (lambda p, k: p**k, "all may also fail: that is silent too"),
            (lambda p, k: (1 - p) ** k, "all may also succeed: that is silent too"),
        ],
        difficulty="easy",
        minutes=5,
    ),
}
