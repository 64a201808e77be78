"""The course's exercises: what is asked, wrong answers with their hints, and a solution.

A module for each part of the course; `EXERCISES` holds all of them by name.
"""

from vclib.notebook.exercises import groups, reward, shaping
from vclib.notebook.exercises.exercise import Exercise

EXERCISES: dict[str, Exercise] = {**reward.EXERCISES, **shaping.EXERCISES, **groups.EXERCISES}
