"""The dashboard without a browser: updates in, curves and sentences out; real runs on a thread."""

import time

import pytest
import torch

from vclib.errors import VclibError
from vclib.notebook import dashboard as module
from vclib.notebook.dashboard import Dashboard
from vclib.notebook.dashboard_figure import PANELS, axis_end
from vclib.notebook.diagnosis import READINGS, diagnose
from vclib.notebook.runs import read_run
from vclib.policy.model import LoraSettings, Policy
from vclib.rl import kept
from vclib.rl.profiles import PROFILES
from vclib.rl.runlog import DIAGNOSTICS, read_jsonl
from vclib.rl.trainer import Trainer


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    """What is displayed, in place of a notebook's front end."""
    seen = []

    class Handle:
        def update(self, picture):
            seen.append(picture)

    def display(thing, display_id=None):
        seen.append(thing)
        return Handle()

    monkeypatch.setattr(module, "display", display)
    return seen


@pytest.fixture
def trainer(model_folder, tmp_path):
    settings = PROFILES["ci"].but(
        model=str(model_folder), phase="developer", episodes=40, output=str(tmp_path), device="cpu"
    )
    policy = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu")
    return Trainer(settings, policy=policy)


def panels(figure):
    """Each panel's axes and sentence by its title."""
    titled = {axes.get_title(loc="left"): axes for axes in figure.axes}
    return {title: titled[title] for _, title in PANELS.values()}


def rows_of(**columns):
    """Diagnostics with these columns, as many as the longest has values."""
    count = max(len(values) for values in columns.values())
    return [{"iter": i + 1, **{k: v[i] for k, v in columns.items()}} for i in range(count)]


def test_it_replaces_one_picture_of_fixed_size(shown, update, size):
    board = Dashboard(total=4)
    for index, phase in ((1, "developer"), (2, "developer"), (3, "critic")):
        board.add(update(index, phase))
    assert len({size(picture.png) for picture in shown}) == 1
    assert len({picture.png for picture in shown}) == 3
    assert {repr(picture) for picture in shown} == {"<training dashboard>"}


def test_every_panel_holds_its_column_and_its_sentence(update):
    board = Dashboard(total=4)
    for index in (1, 2):
        board.add(update(index))
    figure, readings = board.figure(), board.readings
    drawn = panels(figure)
    for name, (column, title) in PANELS.items():
        axes = drawn[title]
        assert axes.get_xlabel() == "update" and axes.lines, title
        assert readings[name][:12] in axes.texts[-1].get_text()
        if isinstance(board.rows[0][column], float):
            assert axes.lines[-1].get_ydata().tolist() == [row[column] for row in board.rows]
    titles = [axes.get_title() for axes in figure.axes]
    assert [t for t in titles if t] == ["reference", "0.50", "0.30", "0.90"]


@pytest.mark.parametrize(
    ("update", "total", "end"),
    [(1, 500, 24), (30, 500, 48), (400, 500, 500), (9, 18, 18), (9, 3, 9)],
)
def test_the_axis_grows_with_the_run_up_to_its_total(update, total, end):
    assert axis_end(update, total) == end


def test_it_keeps_numbers_but_no_pictures_of_earlier_updates(update):
    board = Dashboard(total=4)
    board.add(update(1))
    assert not any(isinstance(value, list) for value in board.rows[0].values())


def test_the_button_ends_training_within_one_update_and_leaves_it_saved(trainer):
    board, pressed_at = Dashboard(), []

    def press(update):
        if update.index == 2:
            pressed_at.append(update.index)
            board.button.click()

    board.train(trainer, on_update=press).wait()
    assert pressed_at == [2] and trainer.done == 2 and board.button.disabled
    assert trainer.checkpoint_path.name.endswith("2")
    assert "Stopped after update 2 of 40" in board.status.value
    assert sorted(kept.stored(trainer.settings.run_folder)) == [1, 2]
    assert [row["index"] for row in board.rows] == [1, 2]


def test_the_kernel_is_free_while_it_trains_and_the_numbers_are_those_of_any_thread(
    trainer, model_folder, tmp_path
):
    board = Dashboard().train(trainer)
    while len(board.rows) < 2:  # this thread goes on meanwhile
        assert board.button.disabled is False
        time.sleep(0.01)
    trainer.stop()
    board.wait()
    logged = read_jsonl(trainer.settings.run_folder / DIAGNOSTICS)
    again = trainer.settings.but(output=str(tmp_path / "again"))
    policy = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu")
    with Trainer(again, policy=policy) as other:
        for update in other.run():
            if update.index == 2:
                other.stop()
    theirs = read_jsonl(again.run_folder / DIAGNOSTICS)
    for one, two in zip(logged, theirs, strict=False):
        assert (one["loss"], one["entropy"]) == (two["loss"], two["entropy"])


def test_a_dashboard_that_is_busy_goes_on_and_its_button_ends_what_it_shows(trainer, tmp_path):
    board = Dashboard().train(trainer)
    for begin in (lambda: board.train(trainer), lambda: board.watch(tmp_path)):
        with pytest.raises(VclibError, match="busy"):
            begin()
    board.button.click()
    board.wait()
    assert trainer.told_to_stop and board.total == 40
    said = board.status.value
    assert "Stopped" in said
    board.button.click()  # a click that comes late
    assert board.status.value == said


def test_a_run_that_is_begun_again_on_a_dashboard_takes_the_place_of_the_first(update, shown):
    board = Dashboard(total=4)
    for index in (1, 2, 3, 1, 2):
        board.add(update(index))
    assert [row["iter"] for row in board.rows] == [1, 2]


def test_every_start_shows_a_picture_of_its_own(tmp_path, shown):
    board = Dashboard()
    for times in (1, 2):
        before = len(shown)
        board.watch(tmp_path, 0.01)
        # The controls and a picture, for the cell that showed the last one may be gone.
        assert [type(thing).__name__ for thing in shown[before:][:2]] == ["_Controls", "Picture"]
        board.button.click()
        board.wait()
        assert "no longer watched" in board.status.value, times


def test_an_error_in_training_is_shown_and_raised_again_by_wait(trainer, monkeypatch):
    def broken(update):
        raise RuntimeError("the disk is gone")

    board = Dashboard().train(trainer, on_update=broken)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        board.wait()
    assert "RuntimeError: the disk is gone" in board.status.value
    assert trainer.done == 1 and torch.is_grad_enabled()


def test_a_run_that_another_process_writes_is_followed_until_told_to_stop(run_folder, update):
    folder = run_folder()
    board = Dashboard().watch(folder, seconds=0.01)
    wait_until(lambda: "is missing" in board.status.value)
    (folder / DIAGNOSTICS).write_text('{"iter": 1, "total": 9, "grad_norm": 0.2}\n{"iter": 2, "gr')
    wait_until(lambda: "1 updates of 9" in board.status.value)
    assert "half-written" in board.status.value and "keeps no episodes" in board.status.value
    kept.keep_of(update(1), folder)
    with (folder / DIAGNOSTICS).open("a") as file:
        file.write('ad_norm": 0.3}\n')
    wait_until(lambda: len(board.rows) == 2 and board.shown)
    assert board.shown[0][0] == "reference, update 1"
    board.button.click()
    board.wait()
    assert [row["grad_norm"] for row in board.rows] == [0.2, 0.3]


def wait_until(true):
    """The timeout of every test ends this if it never is."""
    while not true():
        time.sleep(0.01)


@pytest.mark.parametrize(
    "rows", [[], [{"iter": 1}], [{"iter": 1, "lengths": "3", "seconds": None}]]
)
def test_columns_that_are_missing_are_said_not_to_be_logged(rows):
    board = Dashboard()
    board.rows = rows
    for title, axes in panels(board.figure()).items():
        assert "not logged" in [text.get_text() for text in axes.texts], title
    assert set(board.readings.values()) == {"Not logged."}


def test_rewards_are_shown_of_a_run_without_diagnostics(run_folder):
    board = Dashboard()
    said = board.take(read_run(run_folder(train='{"iter": 1, "mean": 0.5, "easy": 0.5}\n')))
    assert "diagnostics.jsonl is missing" in said
    assert board.rows[0]["mean_terminal_reward"] == 0.5
    assert len(panels(board.figure())[PANELS["reward"][1]].lines) == 2


UP = [0.3 + i / 20 for i in range(12)]
SAMPLE = {"developer": 0.3, "critic": 0.0}


@pytest.mark.parametrize(
    ("panel", "columns", "said"),
    [
        ("reward", {"mean_terminal_reward": UP}, "Rising, from 0.42 to 0.72"),
        ("reward", {"mean_terminal_reward": UP[::-1]}, "Falling"),
        ("reward", {"mean_terminal_reward": [0.5] * 9}, "No clear change"),
        ("reward", {"mean_terminal_reward": [0.99] * 9}, "Near the top"),
        ("reward", {"mean_terminal_reward": [0.5]}, "Too few"),
        ("spread", {"group_std": [0.001] * 4}, "raise the temperature or K"),
        ("spread", {"group_std": [0.1] * 4}, "something to compare"),
        ("silent", {"silent_share": [0.6] * 4}, "60% of the groups have no spread: raise"),
        ("silent", {"silent_share": [0.3] * 4}, "half would be too many"),
        ("silent", {"silent_share": [0.0] * 4}, "that is few"),
        ("gradient", {"grad_norm": [2.0] * 9}, "clipped at 1: lower the learning rate"),
        ("gradient", {"grad_norm": [0.01] * 8 + [0.5] * 8}, "50 times that of the start"),
        ("gradient", {"grad_norm": [0.0] * 8}, "nothing is learnt"),
        ("gradient", {"grad_norm": [0.2] * 8}, "steady"),
        ("entropy", {"entropy": [1.0] * 8 + [0.01] * 8}, "raise the temperature"),
        ("entropy", {"entropy": [0.1] * 8 + [1.0] * 8}, "it forgets"),
        ("entropy", {"entropy": [0.3] * 8}, "still open"),
        ("lengths", {"lengths": [{"critic": 10}] * 8 + [{"critic": 30}] * 8}, "growing"),
        ("truncated", {"truncated_share": [SAMPLE] * 4}, "30% of the developer's turns"),
        ("truncated", {"truncated_share": [{"critic": 0.01}] * 4}, "the limits suffice"),
        (
            "seconds",
            {"seconds": [{"sample": 6, "score": 2}] * 3},
            "8.0 s an update; most of it, 75%, is sampling",
        ),
    ],
)
def test_a_sentence_says_what_a_curve_says(panel, columns, said):
    assert said in diagnose(rows_of(**columns))[panel]


def test_the_entropies_of_two_agents_are_not_compared():
    entropies = [0.05] * 8 + [0.4] * 8 + [0.05] * 8
    phases = ["developer"] * 8 + ["critic"] * 8 + ["developer"] * 8
    for end in (8, 16, 24):
        rows = rows_of(entropy=entropies[:end], phase=phases[:end])
        assert "still open" in diagnose(rows)["entropy"]


def test_every_panel_has_a_reading_and_the_other_way_round():
    assert set(PANELS) == set(READINGS)
