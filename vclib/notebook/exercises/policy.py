"""Exercises on the policy: pictures as tokens, sampling, padding."""

from __future__ import annotations

import math
from itertools import accumulate

from vclib.notebook.exercises.exercise import Exercise


def image_tokens(height, width):
    rows, columns = round(height / 32), round(width / 32)
    return rows * columns


def tempered_softmax(logits, temperature):
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def draw_token(probabilities, uniform):
    reached = 0.0
    for token, probability in enumerate(probabilities):
        reached += probability
        if reached > uniform:
            return token
    return token


def left_pad(rows, pad_id):
    width = max(len(row) for row in rows)
    ids = [[pad_id] * (width - len(row)) + row for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return ids, mask


def _right_pad(rows: list[list[int]], pad_id: int) -> tuple[list, list]:
    width = max(len(row) for row in rows)
    ids = [row + [pad_id] * (width - len(row)) for row in rows]
    return ids, [[1] * len(row) + [0] * (width - len(row)) for row in rows]


def _mask_of_pads(rows: list[list[int]], pad_id: int) -> tuple[list, list]:
    ids, mask = left_pad(rows, pad_id)
    return ids, [[1 - seen for seen in row] for row in mask]


def _mask_by_id(rows: list[list[int]], pad_id: int) -> tuple[list, list]:
    ids, _ = left_pad(rows, pad_id)
    return ids, [[int(token != pad_id) for token in row] for row in ids]


def _first_to_reach(probabilities: list[float], uniform: float) -> int:
    return sum(total < uniform for total in accumulate(probabilities))


EXERCISES = {
    "image_tokens": Exercise(
        image_tokens,
        cases=[(192, 256), (480, 640), (64, 32), (250, 250), (200, 300)],
        slips=[
            (
                lambda height, width: round(height / 16) * round(width / 16),
                "these are the patches; two by two of them are merged into one token",
            ),
            (
                lambda height, width: round(height / 16) * round(width / 16) // 2,
                "a token is two patches wide and two high: four patches, not two",
            ),
            (
                lambda height, width: (height // 32) * (width // 32),
                "the side is rounded down; the picture is resized to the nearest multiple of 32",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "tempered_softmax": Exercise(
        tempered_softmax,
        cases=[
            ([2.0, 1.0, 0.0], 0.5),
            ([2.0, 1.0, 0.0], 2.0),
            ([0.3, 0.3], 0.7),
            ([1000.0, 999.0], 0.7),
        ],
        slips=[
            (
                lambda logits, temperature: tempered_softmax(logits, 1.0),
                "the temperature has no effect; divide each logit by it before the exponential",
            ),
            (
                lambda logits, temperature: tempered_softmax(logits, 1 / temperature),
                "the logits are multiplied by the temperature; divide by it",
            ),
            (
                lambda logits, temperature: [
                    p / temperature for p in tempered_softmax(logits, 1.0)
                ],
                "it is the probabilities that are divided; divide the logits, then normalise",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "draw_token": Exercise(
        draw_token,
        cases=[
            ([0.5, 0.25, 0.25], 0.0),
            ([0.5, 0.25, 0.25], 0.6),
            ([0.5, 0.25, 0.25], 0.5),
            ([0.0, 1.0], 0.0),
            ([0.125, 0.125, 0.75], 0.99),
        ],
        slips=[
            (
                _first_to_reach,
                "a token of probability 0 can be drawn: the sum must exceed `uniform`",
            ),
            (
                lambda probabilities, uniform: probabilities.index(max(probabilities)),
                "it always takes the likeliest token; which one it is depends on `uniform`",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "left_pad": Exercise(
        left_pad,
        cases=[([[5, 6, 7], [8]], 0), ([[1, 2]], 0), ([[9], [4, 0, 4], [3, 3]], 0)],
        slips=[
            (
                _right_pad,
                "the pads are on the right; generation goes on there, put them on the left",
            ),
            (_mask_of_pads, "the mask is 1 for pads; it is 1 where there is a token"),
            (
                _mask_by_id,
                "the mask is made from the ids; a prompt may hold the pad's id as a real token",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
}
