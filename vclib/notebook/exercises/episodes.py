"""Exercises on episodes: when they end, how long they are, and how to average over them."""

from __future__ import annotations

from vclib.notebook.exercises.exercise import Exercise


def says_done(critique):
    answer = critique.rpartition("</think>")[2]
    return any(line.strip().rstrip(".") == "DONE" for line in answer.splitlines())


def turns_of_episode(max_steps, done_at):
    if done_at is not None and done_at < max_steps:
        return done_at, done_at
    return max_steps, max_steps - 1


def mean_of_those_left(episodes):
    means = []
    for turn in range(max(map(len, episodes))):
        reached = [rewards[turn] for rewards in episodes if len(rewards) > turn]
        means.append(sum(reached) / len(reached))
    return means


def mean_carried_on(episodes):
    means = []
    for turn in range(max(map(len, episodes))):
        standing = [rewards[min(turn, len(rewards) - 1)] for rewards in episodes]
        means.append(sum(standing) / len(standing))
    return means


def _missing_as_zero(episodes: list[list[float]]) -> list[float]:
    turns = range(max(map(len, episodes)))
    return [sum(e[t] for e in episodes if len(e) > t) / len(episodes) for t in turns]


def _up_to_the_shortest(episodes: list[list[float]]) -> list[float]:
    return [sum(column) / len(episodes) for column in zip(*episodes, strict=False)]


EXERCISES = {
    "says_done": Exercise(
        says_done,
        cases=[
            ("DONE",),
            ("DONE.",),
            ("row 1: words Buy\nDONE",),
            ("row 2: height 48px\nrow 3: words Help",),
            ("row 1 is NOT DONE yet",),
            ("It is all\n  DONE  \n",),
            ("done",),
            ("Is it\nDONE\n?</think>\n\nrow 1: remove",),
        ],
        slips=[
            (
                lambda critique: critique.strip() == "DONE",
                "DONE may stand on any line of its own, with or without a full stop",
            ),
            (
                lambda critique: any(
                    line.strip().rstrip(".") == "DONE" for line in critique.splitlines()
                ),
                "what stands before </think> is not part of the answer",
            ),
            (
                lambda critique: "DONE" in critique,
                "the word inside a sentence ends nothing; it must stand alone on its line",
            ),
        ],
        difficulty="easy",
        minutes=10,
    ),
    "turns_of_episode": Exercise(
        turns_of_episode,
        cases=[(3, None), (3, 1), (5, 4), (2, 2), (1, None)],
        slips=[
            (
                lambda max_steps, done_at: (
                    (done_at, done_at) if done_at else (max_steps, max_steps - 1)
                ),
                "the episode may be over before that critique: max_steps is a limit too",
            ),
            (
                lambda max_steps, done_at: (
                    (done_at, done_at) if done_at and done_at < max_steps else (max_steps,) * 2
                ),
                "nobody criticises the last draft: no draft would follow",
            ),
            (
                lambda max_steps, done_at: (
                    (done_at + 1, done_at)
                    if done_at and done_at < max_steps
                    else (max_steps, max_steps - 1)
                ),
                "DONE ends the episode at once: no draft follows it",
            ),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "mean_of_those_left": Exercise(
        mean_of_those_left,
        cases=[
            ([[0.4, 0.8], [0.6, 0.6]],),
            ([[0.2, 0.4], [0.9]],),
            ([[0.5], [0.1, 0.3, 0.2], [0.6, 0.7]],),
        ],
        slips=[
            (_missing_as_zero, "a draft that was never written counts as 0; leave it out"),
            (mean_carried_on, "it counts the last draft of those that ended; leave them out"),
            (_up_to_the_shortest, "it stops at the shortest episode; go on to the longest"),
        ],
        difficulty="easy",
        minutes=10,
    ),
    "mean_carried_on": Exercise(
        mean_carried_on,
        cases=[
            ([[0.4, 0.8], [0.6, 0.6]],),
            ([[0.2, 0.4], [0.9]],),
            ([[0.5], [0.1, 0.3, 0.2], [0.6, 0.7]],),
        ],
        slips=[
            (
                mean_of_those_left,
                "episodes that ended have left the mean; their last draft still stands",
            ),
            (_missing_as_zero, "a draft that was never written counts as 0; take the last one"),
        ],
        difficulty="medium",
        minutes=10,
    ),
}
