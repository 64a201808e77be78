"""What is stored in notebooks/: executed, whole, small, and fit for comparison by nbval."""

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import get_sanitize_patterns

from vclib.notebook.exercises import EXERCISES
from vclib.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SANITIZE = (Path(__file__).parent / "sanitize.cfg").read_text()
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def sanitized(text):
    for regex, replacement in get_sanitize_patterns(SANITIZE):
        text = re.sub(regex, replacement, text)
    return text


def test_there_are_notebooks():
    assert {"00_start_here", "09_the_training_loop"} <= {path.stem for path in NOTEBOOKS}


@each_notebook
def test_every_code_cell_was_executed_in_order_and_without_an_error(path):
    code = cells(path, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


@each_notebook
def test_what_was_printed_in_one_go_is_stored_in_one_piece(path):
    for cell in cells(path, "code"):
        for before, after in pairwise(cell.outputs):
            assert not before.get("name") or before.get("name") != after.get("name"), cell.source


@each_notebook
def test_cells_that_show_a_figure_store_its_picture(path):
    showing = [c for c in cells(path, "code") if re.search(r"plt\.show|_strip\(|\.add\(", c.source)]
    assert showing
    for cell in showing:
        assert any("image/png" in output.get("data", {}) for output in cell.outputs), cell.source


@each_notebook
def test_the_file_is_small_and_its_cells_are_short(path):
    assert path.stat().st_size < 500_000
    for cell in cells(path, "code"):
        assert cell.source.count("\n") < 40, cell.source


@each_notebook
def test_no_state_of_widgets_or_of_the_machine_is_stored(path):
    notebook = nbformat.read(path, as_version=4)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}
    assert not re.search(r"/(root|home|tmp|Users)/", path.read_text())


@each_notebook
def test_no_output_is_left_out_of_the_comparison(path):
    text = path.read_text()
    for mark in ("NBVAL_IGNORE_OUTPUT", "NBVAL_SKIP", "nbval-ignore-output", "nbval-skip"):
        assert mark not in text


@each_notebook
def test_it_ends_with_an_assert_and_its_exercises_exist(path):
    code = [cell.source for cell in cells(path, "code")]
    assert any(source.startswith("assert ") or "\nassert " in source for source in code[-6:])
    for name in re.findall(r'(?:check|solution)\("(\w+)"', "\n".join(code)):
        assert name in EXERCISES


@each_notebook
def test_each_exercise_states_its_difficulty_and_minutes_and_is_solved_at_the_end(path):
    prose = "\n".join(cell.source for cell in cells(path, "markdown"))
    code = "\n".join(cell.source for cell in cells(path, "code"))
    stated = re.findall(r"### Your turn: `(\w+)` · (\w+), (\d+) minutes", prose)
    for name, difficulty, minutes in stated:
        exercise = EXERCISES[name]
        assert (difficulty, int(minutes)) == (exercise.difficulty, exercise.minutes), name
    assert {name for name, *_ in stated} == set(re.findall(r'\bcheck\("(\w+)"', code))
    assert {name for name, *_ in stated} == set(re.findall(r'\bsolution\("(\w+)"', code))


def test_every_exercise_stands_in_some_notebook():
    code = "\n".join(cell.source for path in NOTEBOOKS for cell in cells(path, "code"))
    assert set(EXERCISES) <= set(re.findall(r'\bcheck\("(\w+)"', code))


def test_the_sanitiser_reads_every_pair_of_its_file():
    assert len(get_sanitize_patterns(SANITIZE)) == len(re.findall("^regex:", SANITIZE, re.M)) > 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 12.3 s", "took 4 s"),
        ("0.8 ms a step", "1.25 ms a step"),
        ("serving on 127.0.0.1:8123", "serving on 127.0.0.1:40001"),
        ("<object at 0x7f01ab23cd45>", "<object at 0x55d0c0ffee00>"),
    ],
)
def test_the_sanitiser_makes_two_runs_alike(one, other):
    assert sanitized(one) == sanitized(other)


def test_the_sanitiser_leaves_rewards_alone():
    assert sanitized("reward 0.53 after 5 steps") == "reward 0.53 after 5 steps"
