"""What an exercise of the course is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Answer = Callable[..., Any]


@dataclass(frozen=True)
class Exercise:
    """One function to write, `difficulty` and `minutes` as its heading in the notebook says.

    `cases` are the arguments that it is tried on. `slips` are wrong answers that people give, each
    with the sentence that helps; they are told apart by what they return.
    """

    solution: Answer
    cases: Sequence[tuple[Any, ...]]
    slips: Sequence[tuple[Answer, str]]
    difficulty: Literal["easy", "medium", "hard"]
    minutes: int
