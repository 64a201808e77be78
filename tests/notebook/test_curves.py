"""The reward explorer without a browser: runs and choices in, curves out."""

import json
from pathlib import Path

import numpy as np
import pytest

from vclib.errors import VclibError
from vclib.notebook.curves import RewardExplorer
from vclib.notebook.curves_figure import band_of, curve_of, curves_figure, smooth
from vclib.notebook.dashboard_figure import thin
from vclib.notebook.runs import Run, read_run
from vclib.rl import figures, kept

ROWS = [
    {"iter": i, "easy": 0.5 + i / 100, "medium": None, "hard": 0.2, "mean": 0.4 + i / 100}
    for i in range(1, 21)
]
PHASES = [("developer", 1, 10), ("critic", 11, 20)]
HEAD = "phase,episode,difficulty,mean_terminal_reward,mean_steps,loss\n"


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def whole(run_folder):
    """A run's folder with everything in it."""
    phase = {i: name for name, first, last in PHASES for i in range(first, last + 1)}
    spent = [{"iter": i, "phase": phase[i], "seconds": {"sample": 40, "render": 20}} for i in phase]

    def make(name="run", shift=0.0):
        rows = [row | {"mean": row["mean"] + shift} for row in ROWS]
        return run_folder(
            name,
            train=lines(rows),
            diagnostics=lines(spent),
            reward_log=HEAD + "".join(f"{phase[i]},{i},mixed,0.5,2.0,0.1\n" for i in phase),
            config=json.dumps({"settings": {"k_rollouts": 4, "pages_per_update": 2}}),
        )

    return make


def drawn(figure):
    """The curves of a figure by their label."""
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_the_curve_is_the_moving_mean_of_the_column_that_is_chosen(whole):
    run = read_run(whole())
    places, rewards, means = curve_of(run, "easy", "update", 2)
    assert places.tolist() == [row["iter"] for row in ROWS]
    assert np.allclose(rewards, [row["easy"] for row in ROWS])
    assert np.allclose(means[1:], (rewards[1:] + rewards[:-1]) / 2) and means[0] == rewards[0]


@pytest.mark.parametrize(
    ("axis", "of_update_3"), [("update", 3), ("episodes", 3 * 8), ("minutes", 3)]
)
def test_the_axis_counts_updates_episodes_or_minutes(axis, of_update_3, whole):
    run = read_run(whole())
    assert curve_of(run, "mean", axis, 1)[0][2] == of_update_3
    spans = [
        patch.get_x() + patch.get_width() for patch in curves_figure({"a": run}).axes[0].patches
    ]
    assert spans == [10.5, 20.5]


def test_a_band_lies_between_the_lowest_and_the_highest_run(whole):
    runs = [read_run(whole(name, shift)) for name, shift in (("a", 0.0), ("b", 0.1), ("c", 0.05))]
    runs[2].rows = runs[2].rows[:15]  # this one is not finished
    _, mean, low, high = band_of([curve_of(run, "mean", "update", 1) for run in runs])
    assert len(mean) == 15
    assert np.allclose(high - low, 0.1) and np.allclose(mean - low, 0.05)
    figure = curves_figure(dict(zip("abc", runs, strict=True)), band=True)
    assert "mean of 3 runs, each over 1 updates" in drawn(figure)


def test_several_runs_differ_in_more_than_colour(whole):
    runs = {name: read_run(whole(name)) for name in "abc"}
    curves = drawn(curves_figure(runs))
    assert set(curves) == {"a", "b", "c"}
    assert len({line.get_linestyle() for line in curves.values()}) == 3


def test_the_explorer_redraws_for_every_control(whole):
    explorer = RewardExplorer({"a": whole("a"), "b": ROWS[:5]}, {"b": PHASES})
    seen = {explorer.image.value}
    for control, value in (
        (explorer.run, ("a", "b")),
        (explorer.band, True),
        (explorer.difficulty, "easy"),
        (explorer.axis, "minutes"),
        (explorer.smoothing, 1),
    ):
        control.value = value
        seen.add(explorer.image.value)
    assert len(seen) == 6
    assert list(explorer.chosen) == ["a", "b"] and list(explorer.chosen["b"].phases) == PHASES


def test_an_update_that_is_picked_opens_the_nearest_kept_episode(whole, update):
    folder = whole()
    explorer = RewardExplorer({"a": folder})
    explorer.opener.click()
    assert "a keeps no episodes" in explorer.below.children[0].value
    assert explorer.back.disabled and explorer.forward.disabled
    for index in (1, 8, 16):
        kept.keep_of(update(index, total=20), folder)
    explorer.reload.click()
    explorer.update.value = 10
    (replayer,) = explorer.below.children
    assert list(replayer.episodes) == ["a, update 8"]
    assert explorer.opener.description == "open an episode of update 10"
    assert "update 10" in drawn(curves_figure(explorer.chosen, picked=10))
    explorer.forward.click()
    assert (explorer.update.value, list(replayer.episodes)) == (16, ["a, update 16"])
    explorer.forward.click()
    assert explorer.update.value == 16
    explorer.back.click()
    assert (explorer.update.value, list(replayer.episodes)) == (8, ["a, update 8"])
    assert explorer.below.children == (replayer,)


def test_a_shorter_run_pulls_the_choice_of_update_back_and_opens_nothing(whole):
    explorer = RewardExplorer({"a": whole(), "b": ROWS[:5]})
    explorer.update.value = 18
    explorer.below.children = ()
    explorer.run.value = ("b",)
    assert (explorer.update.value, explorer.update.max) == (5, 5)
    assert explorer.below.children == ()


def test_the_axis_of_updates_is_as_long_as_the_slider_below_it(whole):
    explorer = RewardExplorer({"a": whole(), "b": ROWS[:5]})
    for chosen in (("a",), ("b",), ("a", "b")):
        explorer.run.value = chosen
        limits = curves_figure(explorer.chosen).axes[0].get_xlim()
        assert limits == (explorer.update.min, explorer.update.max)


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("",)])
@pytest.mark.parametrize("axis", ["update", "minutes"])
def test_another_smoothing_is_the_picture_that_is_drawn_anew(names, axis, whole):
    runs = {name: read_run(whole(f"run {name}", 0.1 * i)) for i, name in enumerate(names)}
    figure = curves_figure(runs, axis=axis, window=9)
    for window in (1, 20):
        smooth(figure, runs, axis=axis, window=window)
        anew = curves_figure(runs, axis=axis, window=window)
        assert figures.png(figure) == figures.png(anew)


def test_a_live_run_grows_when_it_is_read_again(whole):
    folder = whole()
    explorer = RewardExplorer({"a": folder})
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"iter": 21, "mean": 0.7}\n{"iter": 22, "me')
    explorer.reload.click()
    assert explorer.update.max == 21
    assert "half-written" in explorer.said.value


def test_a_difficulty_that_a_run_never_saw_is_said_to_be_missing():
    figure = curves_figure({"a": read_rows(ROWS)}, "medium")
    assert "medium pages" in figure.axes[0].texts[0].get_text()


def read_rows(rows):
    return RewardExplorer({"a": rows}).runs["a"]


@pytest.mark.parametrize(
    ("files", "said", "updates"),
    [
        ({}, ("train.jsonl is missing", "no update yet", "config.json is missing"), 0),
        ({"train": ""}, ("no update yet", "reward_log.csv is missing"), 0),
        ({"train": '{"iter": 1, "mean": 0.5}\n{"iter": 2, "mea'}, ("half-written",), 1),
        ({"train": '{"iter": 1, "mean": 0.5}\n{oops}\n[1]\n'}, ("2 damaged lines",), 1),
        ({"train": '{"iter": 1, "easy": 0.5}\n'}, ("no column mean", "no column hard"), 1),
        ({"train": '{"mean": 0.5}\n'}, ("no update yet",), 0),
        ({"train": '{"iter": 1, "mean": "x"}\n', "config": "{}"}, ("config.json",), 1),
        ({"train": '{"iter": 1, "mean": NaN}\n', "diagnostics": "null\n"}, ("1 damaged",), 1),
    ],
)
def test_a_broken_run_shows_what_is_there_and_says_what_is_not(files, said, updates, run_folder):
    folder = run_folder(**files)
    run = read_run(folder)
    assert len(run.rows) == updates
    explorer = RewardExplorer({"a": folder})
    for words in said:
        assert words in explorer.said.value
    for axis in explorer.axis.options:
        explorer.axis.value = axis
        assert explorer.fallback().startswith(b"\x89PNG")


def test_phases_too_many_to_be_seen_are_not_drawn():
    few, many = ([("developer", i, i) for i in range(1, n)] for n in (20, 500))
    for phases, drawn_phases in ((few, 19), (many, 0)):
        run = RewardExplorer({"a": ROWS}, {"a": phases}).runs["a"]
        assert len(curves_figure({"a": run}).axes[0].patches) == drawn_phases


@pytest.mark.parametrize("runs", [{}, None, "", [], 7])
def test_no_run_at_all_is_an_error_that_says_so(runs):
    with pytest.raises(VclibError, match="no run to explore"):
        RewardExplorer(runs)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_single_folder_needs_no_name(kind, run_folder):
    folder = run_folder()
    assert list(RewardExplorer(kind(folder)).runs) == [folder.name]


def test_a_long_curve_is_thinned_to_means_of_neighbours_that_keep_its_mean():
    x, y = np.arange(10_000.0), np.random.default_rng(0).random(10_000)
    few, means = thin(x, y, 400)
    assert len(few) == 400 and np.isclose(means.mean(), y.mean(), atol=1e-3)
    assert np.allclose(means[:3], [y[:25].mean(), y[25:50].mean(), y[50:75].mean()])


@pytest.mark.parametrize("count", [1, 3, 7, 12])
def test_the_names_of_many_runs_stand_within_the_picture(count):
    runs = {f"a run with the seed {n}": Run(ROWS, PHASES) for n in range(count)}
    figure = curves_figure(runs, picked=3)
    figure.canvas.draw()
    legend = figure.axes[0].get_legend().get_window_extent()
    assert figure.bbox.y1 >= legend.y1 and legend.x0 >= 0 and legend.x1 <= figure.bbox.x1
