"""How the course's exercises check themselves; the exercises are in `vclib.notebook.exercises`.

In a notebook, `check("step_returns", my_function)` prints a verdict and `solution("step_returns")`
shows, folded, one answer that passes.
"""

from __future__ import annotations

import copy
import html
import inspect
import math
from dataclasses import dataclass
from itertools import islice
from typing import Any

from vclib.errors import VclibError
from vclib.notebook.exercises import EXERCISES
from vclib.notebook.exercises.exercise import Answer, Exercise

NOT_ATTEMPTED = "not attempted yet"
CORRECT = "correct"
LONGEST = 500
"""Characters of an answer that are shown."""


@dataclass(frozen=True)
class Solution:
    """The source of a solution, folded where HTML is shown."""

    source: str

    def __repr__(self) -> str:
        return self.source

    def _repr_html_(self) -> str:
        code = html.escape(self.source)
        return f"<details><summary>A solution</summary><pre>{code}</pre></details>"


def check(name: str, answer: Answer) -> None:
    """Print the verdict on an answer: not attempted yet, not yet (and why), or correct."""
    print(f"{name}: {verdict(name, answer)}")


def solution(name: str) -> Solution:
    """One answer to the exercise that passes its check."""
    return Solution(inspect.getsource(_exercise(name).solution).rstrip())


def verdict(name: str, answer: Answer) -> str:
    """What `check` prints; never raises, whatever the answer does."""
    exercise = _exercise(name)
    for case in exercise.cases:
        expected = exercise.solution(*copy.deepcopy(case))
        try:
            got = answer(*copy.deepcopy(case))
        except NotImplementedError:
            return NOT_ATTEMPTED
        except Exception as error:
            return f"not yet: because {_call(case)} raised {type(error).__name__}: {error}"
        if got is None or got is Ellipsis:
            return NOT_ATTEMPTED
        if not _close(got, expected):
            return f"not yet: because {_why(exercise, case, got, expected)}"
    return CORRECT


def _why(exercise: Exercise, case: tuple[Any, ...], got: Any, expected: Any) -> str:
    for slip, hint in exercise.slips:
        if _close(got, slip(*copy.deepcopy(case))):
            return hint
    return f"{_call(case)} gives {_short(got)}, expected {_short(expected)}"


def _exercise(name: str) -> Exercise:
    if name not in EXERCISES:
        raise VclibError(f"no exercise is named {name!r}; there are: {', '.join(EXERCISES)}")
    return EXERCISES[name]


def _close(got: Any, expected: Any) -> bool:
    """Equal to 1e-6, through lists, arrays and tensors of numbers."""
    try:
        if isinstance(expected, int | float):
            return math.isclose(float(got), expected, rel_tol=0, abs_tol=1e-6)
        got = list(islice(got, len(expected) + 1))
        return len(got) == len(expected) and all(map(_close, got, expected))
    except Exception:  # An answer may be any object, with methods that raise anything.
        return False


def _call(case: tuple[Any, ...]) -> str:
    return f"f({', '.join(_short(argument) for argument in case)})"


def _short(value: Any) -> str:
    try:
        text = _text(value)
    except Exception as error:
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value)
