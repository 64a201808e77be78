"""Exercises on how the small model is made: splits, tokens, the loss, uneven demonstrations."""

from __future__ import annotations

import hashlib

from vclib.notebook.exercises.exercise import Exercise


def held_out(html):
    return hashlib.sha256(html.encode()).digest()[0] % 5 == 0


def merge_pair(ids, pair, new_id):
    merged, place = [], 0
    while place < len(ids):
        if tuple(ids[place : place + 2]) == tuple(pair):
            merged.append(new_id)
            place += 2
        else:
            merged.append(ids[place])
            place += 1
    return merged


def answer_mean(logprobs, is_answer):
    kept = [value for value, wanted in zip(logprobs, is_answer, strict=True) if wanted]
    return -sum(kept) / len(kept)


def room_to_learn(shares, rewards):
    mean = sum(shares[name] * rewards[name] for name in shares)
    return max(rewards.values()) - mean


def _overlapping(ids: list[int], pair: tuple[int, int], new_id: int) -> list[int]:
    merged = []
    for place, value in enumerate(ids):
        if tuple(ids[place : place + 2]) == pair:
            merged.append(new_id)
        elif place == 0 or tuple(ids[place - 1 : place + 1]) != pair:
            merged.append(value)
    return merged


def _first_only(ids: list[int], pair: tuple[int, int], new_id: int) -> list[int]:
    for place in range(len(ids) - 1):
        if tuple(ids[place : place + 2]) == pair:
            return [*ids[:place], new_id, *ids[place + 2 :]]
    return ids


def _most_frequent(shares: dict[str, float], rewards: dict[str, float]) -> float:
    mean = sum(shares[name] * rewards[name] for name in shares)
    return rewards[max(shares, key=lambda name: shares[name])] - mean


EXERCISES = {
    "held_out": Exercise(
        held_out,
        cases=[(f"<html>page {number}</html>",) for number in range(12)],
        slips=[
            (
                lambda html: hashlib.sha256(html.encode()).digest()[-1] % 5 == 0,
                "it is the first byte of the digest that decides",
            ),
            (
                lambda html: not held_out(html),
                "the two splits are swapped: a remainder of 0 is held out",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "merge_pair": Exercise(
        merge_pair,
        cases=[
            ([1, 2, 3, 1, 2], (1, 2), 9),
            ([1, 1, 1], (1, 1), 9),
            ([1, 1, 1, 1, 2], (1, 1), 9),
            ([5], (5, 5), 9),
            ([], (1, 2), 9),
        ],
        slips=[
            (_first_only, "only the first occurrence is merged; go on to the end"),
            (_overlapping, "an id is used twice: after a merge, go on behind both of its ids"),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "answer_mean": Exercise(
        answer_mean,
        cases=[
            ([-1.0, -2.0, -4.0], [False, True, True]),
            ([-0.5, -0.25], [True, True]),
            ([-3.0, -1.0, -1.0, -1.0], [True, False, False, False]),
        ],
        slips=[
            (
                lambda logprobs, is_answer: (
                    answer_mean(logprobs, is_answer) * sum(is_answer) / len(is_answer)
                ),
                "it divides by all tokens; divide by those of the answer",
            ),
            (
                lambda logprobs, is_answer: -answer_mean(logprobs, is_answer),
                "the sign is wrong: likelier answers must cost less",
            ),
            (
                lambda logprobs, is_answer: -sum(logprobs) / len(logprobs),
                "the prompt's tokens are in the mean; leave them out",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "room_to_learn": Exercise(
        room_to_learn,
        cases=[
            ({"careful": 0.3, "grey": 0.7}, {"careful": 0.8, "grey": 0.4}),
            ({"a": 0.2, "b": 0.5, "c": 0.3}, {"a": 0.9, "b": 0.5, "c": 0.1}),
            ({"only": 1.0}, {"only": 0.6}),
        ],
        slips=[
            (
                _most_frequent,
                "it compares with the most frequent writer; compare with the one that scores most",
            ),
            (
                lambda shares, rewards: (
                    max(rewards.values()) - sum(rewards.values()) / len(rewards)
                ),
                "the writers are not equally frequent: weigh each reward by its share",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
}
