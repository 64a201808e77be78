"""Exercises on the reward."""

from __future__ import annotations

from vclib.notebook.exercises.exercise import Exercise


def total_reward(parts, weights, gate):
    present = {name: part for name, part in parts.items() if part is not None}
    weight = sum(weights[name] for name in present)
    return gate * sum(weights[name] * part for name, part in present.items()) / weight


def _absent_as_zero(parts: dict, weights: dict, gate: float) -> float:
    known = {name: part or 0.0 for name, part in parts.items()}
    return gate * sum(weights[n] * part for n, part in known.items()) / sum(weights.values())


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
}
