"""The exercises check themselves, and tell people what is wrong."""

from itertools import count

import numpy as np
import pytest

from vclib.errors import VclibError
from vclib.notebook.checks import check, solution, verdict
from vclib.notebook.exercises import EXERCISES
from vclib.rl.returns import compute_step_returns, grpo_advantages


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_of_every_exercise_is_correct(name):
    assert verdict(name, EXERCISES[name].solution) == "correct"


@pytest.mark.parametrize("name", EXERCISES)
def test_a_stub_is_not_attempted_yet(name):
    def raises(*_):
        raise NotImplementedError

    for stub in (raises, lambda *_: None, lambda *_: ...):
        assert verdict(name, stub) == "not attempted yet"


@pytest.mark.parametrize("name", EXERCISES)
def test_each_known_slip_is_answered_with_its_own_hint(name):
    for slip, hint in EXERCISES[name].slips:
        assert verdict(name, slip) == f"not yet: because {hint}"


def test_an_unknown_wrong_answer_is_shown_beside_what_was_expected():
    said = verdict("step_returns", lambda rewards, lambda_shaped: [0.0] * len(rewards))
    assert said.startswith("not yet: because f([0.2, 0.5, 0.9], 0.2) gives [0, 0, 0], expected")


@pytest.mark.parametrize(
    "answer", [lambda *_: 1 / 0, lambda: 1, lambda *_: "text", lambda *_: [[]]]
)
def test_no_answer_makes_the_check_raise(answer):
    for name in EXERCISES:
        assert verdict(name, answer).startswith("not yet: because")


def test_an_answer_that_changes_its_arguments_does_not_spoil_the_check():
    def eats(rewards, lambda_shaped):
        answer = EXERCISES["step_returns"].solution(rewards, lambda_shaped)
        rewards.clear()
        return answer

    assert verdict("step_returns", eats) == "correct"


def test_the_exercises_agree_with_the_library():
    assert verdict("step_returns", compute_step_returns) == "correct"
    assert verdict("group_advantages", lambda returns: grpo_advantages(returns).values) == "correct"


def test_arrays_are_taken_like_lists():
    def answer(rewards, lambda_shaped):
        rewards = np.array(rewards)
        return rewards[-1] + lambda_shaped * (rewards[-1] - rewards)

    assert verdict("step_returns", answer) == "correct"


def test_the_verdict_is_printed_with_the_name_of_the_exercise(capsys):
    check("step_returns", EXERCISES["step_returns"].solution)
    assert capsys.readouterr().out == "step_returns: correct\n"


def test_a_solution_is_shown_folded_as_the_source_that_is_checked():
    shown = solution("step_returns")
    assert "<details>" in shown._repr_html_() and "def step_returns" in repr(shown)


def test_an_unknown_exercise_is_named_with_those_that_exist():
    with pytest.raises(VclibError, match="there are: total_reward, "):
        verdict("retruns", lambda: None)


def test_no_object_that_is_answered_makes_the_check_raise_or_go_on_for_ever():
    class Raises:
        def __float__(self):
            raise RuntimeError

        __iter__ = __repr__ = __len__ = __float__

    deep = 0.5
    for _ in range(5000):
        deep = [deep]
    for answer in (10**400, 10**5000, deep, Raises(), [Raises()], count(), [count()], object):
        for name in EXERCISES:
            said = verdict(name, lambda *_, answer=answer: answer)
            assert said.startswith("not yet: because") and len(said) < 2500
