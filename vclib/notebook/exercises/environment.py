"""Exercises on the environment."""

from __future__ import annotations

from itertools import accumulate

from vclib.notebook.exercises.exercise import Exercise


def mixed_page(seed):
    return seed % 3, seed // 3


def episode_statuses(calls, max_steps):
    statuses, steps, closed = [], 0, False
    for call in calls:
        if closed:
            status = 404
        elif call == "step" and steps == max_steps:
            status = 409
        else:
            status = 200
            steps += call == "step"
            closed = call == "close" and steps < max_steps
        statuses.append(status)
    return statuses


def kept_drafts(rewards):
    best, kept = 0, []
    for index, reward in enumerate(rewards):
        if reward > rewards[best]:
            best = index
        kept.append(best)
    return kept


def low_size(width, height):
    scale = min(1, 512 / max(width, height))
    return round(width * scale), round(height * scale)


def _done_is_unknown(calls: list[str], max_steps: int) -> list[int]:
    return [404 if status == 409 else status for status in episode_statuses(calls, max_steps)]


def _closing_ends_like_the_last_step(calls: list[str], max_steps: int) -> list[int]:
    return [409 if status == 404 else status for status in episode_statuses(calls, max_steps)]


def _better_than_the_one_before(rewards: list[float]) -> list[int]:
    kept = [0]
    for index in range(1, len(rewards)):
        kept.append(index if rewards[index] > rewards[index - 1] else kept[-1])
    return kept


def _later_wins_ties(rewards: list[float]) -> list[int]:
    def better(best: int, index: int) -> int:
        return index if rewards[index] >= rewards[best] else best

    return list(accumulate(range(len(rewards)), better))


EXERCISES = {
    "mixed_page": Exercise(
        mixed_page,
        cases=[(0,), (1,), (2,), (3,), (7,), (3000,)],
        slips=[
            (lambda seed: (seed // 3, seed % 3), "the two are the wrong way round"),
            (
                lambda seed: (seed % 3, seed),
                "the difficulties take turns, so each moves on only every third time",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "episode_statuses": Exercise(
        episode_statuses,
        cases=[
            (["step", "step", "step"], 2),
            (["step", "close", "step"], 2),
            (["close", "close"], 1),
            (["step", "close", "step"], 1),
            (["step"] * 5, 5),
        ],
        slips=[
            (_done_is_unknown, "an episode that ended is known still, and says so: 409"),
            (_closing_ends_like_the_last_step, "a session that was given up is forgotten: 404"),
            (
                lambda calls, max_steps: episode_statuses(calls, max_steps + 1),
                "it allows one step too many",
            ),
        ],
        difficulty="medium",
        minutes=15,
    ),
    "kept_drafts": Exercise(
        kept_drafts,
        cases=[
            ([0.2, 0.5, 0.4, 0.45, 0.6],),
            ([0.5, 0.5, 0.5],),
            ([0.9, 0.1, 0.2],),
            ([0.3],),
        ],
        slips=[
            (
                _better_than_the_one_before,
                "it compares with the attempt before; compare with the best so far",
            ),
            (_later_wins_ties, "an attempt that is only as good replaces nothing"),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "low_size": Exercise(
        low_size,
        cases=[(640, 480), (480, 640), (256, 192), (512, 512), (1280, 100)],
        slips=[
            (
                lambda width, height: (
                    round(width * 512 / max(width, height)),
                    round(height * 512 / max(width, height)),
                ),
                "small pictures grow; one that fits already stays as it is",
            ),
            (
                lambda width, height: (min(512, width), min(512, height)),
                "each side is cut by itself, which distorts; scale both by the same factor",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
}
