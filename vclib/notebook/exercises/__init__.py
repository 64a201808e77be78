"""The course's exercises: what is asked, wrong answers with their hints, and a solution.

A module for each part of the course; `EXERCISES` holds all of them by name.
"""

from vclib.notebook.exercises import (
    bugs,
    environment,
    episodes,
    gradient,
    groups,
    hardware,
    policy,
    pretraining,
    rendering,
    results,
    reward,
    shaping,
)
from vclib.notebook.exercises.exercise import Exercise

PARTS = (
    reward,
    rendering,
    environment,
    shaping,
    groups,
    hardware,
    pretraining,
    policy,
    episodes,
    gradient,
    results,
    bugs,
)

EXERCISES: dict[str, Exercise] = {
    name: exercise for part in PARTS for name, exercise in part.EXERCISES.items()
}
