"""Exercises on the policy gradient."""

from __future__ import annotations

import math

from vclib.notebook.exercises.exercise import Exercise


def score_function(probabilities, action):
    return [(i == action) - p for i, p in enumerate(probabilities)]


def token_logprobs(logits, ids):
    logprobs = []
    for row, token in zip(logits[:-1], ids[1:], strict=True):
        total = math.log(sum(math.exp(value) for value in row))
        logprobs.append(row[token] - total)
    return logprobs


def mean_over_turns(values, mask):
    means = []
    for row, kept in zip(values, mask, strict=True):
        means.append(sum(v * k for v, k in zip(row, kept, strict=True)) / sum(kept))
    return sum(means) / len(means)


def clipped_loss(ratio, advantage, epsilon):
    clipped = min(max(ratio, 1 - epsilon), 1 + epsilon)
    return -min(ratio * advantage, clipped * advantage)


def kl_k3(logprob, base_logprob):
    delta = base_logprob - logprob
    return math.exp(delta) - delta - 1


def _of_probability(probabilities: list[float], action: int) -> list[float]:
    return [probabilities[action] * g for g in score_function(probabilities, action)]


def _without_shift(logits: list[list[float]], ids: list[int]) -> list[float]:
    return token_logprobs([*logits[1:], logits[-1]], ids)


def _own_position_too(logits: list[list[float]], ids: list[int]) -> list[float]:
    return token_logprobs([*logits, logits[-1]], [ids[0], *ids])


def _kept(values: list[list[float]], mask: list[list[int]]) -> list[list[float]]:
    pairs = [zip(*row, strict=True) for row in zip(values, mask, strict=True)]
    return [[value * kept for value, kept in row] for row in pairs]


def _over_all_tokens(values: list[list[float]], mask: list[list[int]]) -> float:
    kept = sum(map(sum, mask))
    return sum(map(sum, _kept(values, mask))) / kept


def _over_the_width(values: list[list[float]], mask: list[list[int]]) -> float:
    rows = [sum(row) / len(row) for row in _kept(values, mask)]
    return sum(rows) / len(rows)


def _clamped(ratio: float, epsilon: float) -> float:
    return min(max(ratio, 1 - epsilon), 1 + epsilon)


EXERCISES = {
    "score_function": Exercise(
        score_function,
        cases=[([0.5, 0.3, 0.2], 1), ([0.25, 0.25, 0.25, 0.25], 0), ([0.9, 0.1], 1)],
        slips=[
            (
                lambda probabilities, action: [-g for g in score_function(probabilities, action)],
                "the sign is turned: the drawn action's own entry is 1 - p, above 0",
            ),
            (
                _of_probability,
                "this is the gradient of p itself; that of log p is 1/p times as large",
            ),
            (
                lambda probabilities, action: [
                    float(i == action) for i in range(len(probabilities))
                ],
                "the probabilities are not taken away: the others must be pushed down",
            ),
        ],
        difficulty="easy",
        minutes=10,
    ),
    "token_logprobs": Exercise(
        token_logprobs,
        cases=[
            ([[0.0, 1.0], [2.0, 0.0], [0.5, 0.0]], [0, 1, 0]),
            ([[0.0, 0.0, 1.0], [1.0, 2.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 0.0]], [2, 0, 1, 2]),
        ],
        slips=[
            (
                _without_shift,
                "there is no shift: the logits at a position are about the *next* token",
            ),
            (
                _own_position_too,
                "it has an entry too many: nothing predicts the first token",
            ),
            (
                lambda logits, ids: [math.exp(value) for value in token_logprobs(logits, ids)],
                "these are probabilities; take their logarithm",
            ),
            (
                lambda logits, ids: [r[t] for r, t in zip(logits[:-1], ids[1:], strict=True)],
                "these are logits; take away the logarithm of the sum of all exponentials",
            ),
        ],
        difficulty="medium",
        minutes=15,
    ),
    "mean_over_turns": Exercise(
        mean_over_turns,
        cases=[
            ([[1.0, 3.0, 8.0], [4.0, 5.0, 6.0]], [[1, 1, 0], [1, 1, 1]]),
            ([[2.0, 9.0], [1.0, 3.0]], [[1, 0], [1, 1]]),
        ],
        slips=[
            (_over_all_tokens, "it is the mean over all tokens; first over each turn's own"),
            (_over_the_width, "each turn is divided by the padded width; divide by its own length"),
            (
                lambda values, mask: mean_over_turns(values, [[1] * len(row) for row in mask]),
                "padding is in the mean; the mask says what counts",
            ),
        ],
        difficulty="easy",
        minutes=10,
    ),
    "clipped_loss": Exercise(
        clipped_loss,
        cases=[
            (1.1, 1.0, 0.2),
            (1.5, 1.0, 0.2),
            (0.5, 1.0, 0.2),
            (1.5, -1.0, 0.2),
            (0.5, -2.0, 0.2),
        ],
        slips=[
            (
                lambda ratio, advantage, epsilon: -clipped_loss(ratio, advantage, epsilon),
                "the sign is turned: the optimizer makes a loss small, so it is minus the gain",
            ),
            (
                lambda ratio, advantage, epsilon: -ratio * advantage,
                "nothing is clipped: compare with the ratio held within 1 - ε and 1 + ε",
            ),
            (
                lambda ratio, advantage, epsilon: -_clamped(ratio, epsilon) * advantage,
                "take the smaller of the two: a token that moved the wrong way must come back",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "kl_k3": Exercise(
        kl_k3,
        cases=[(-1.0, -1.5), (-1.5, -1.0), (-2.0, -2.0), (-0.1, -3.0)],
        slips=[
            (
                lambda logprob, base_logprob: kl_k3(base_logprob, logprob),
                "δ is the wrong way round: the base's log-probability minus the policy's",
            ),
            (
                lambda logprob, base_logprob: logprob - base_logprob,
                "that is -δ alone, which may be below 0; add e^δ - 1",
            ),
            (
                lambda logprob, base_logprob: math.exp(base_logprob - logprob) - 1,
                "δ itself is not taken away",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
}
