"""Runs and episodes damaged in every way that we thought of: what is there is shown."""

import json
import random

import pytest

from vclib.errors import VclibError
from vclib.notebook.curves import RewardExplorer
from vclib.notebook.dashboard import Dashboard
from vclib.notebook.replayer import EpisodeReplayer
from vclib.notebook.runs import read_run
from vclib.rl.runlog import CONFIG, DIAGNOSTICS, REWARD_LOG, TRAIN_LOG

NAN, INF = float("nan"), float("inf")
GOOD = [{"iter": 1, "mean": 0.5}, {"iter": 2, "mean": 0.6}]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def settings(**values):
    return json.dumps({"settings": values})


RUNS = {
    "no files": {},
    "no reward is a number": {TRAIN_LOG: lines([{"iter": i, "mean": NAN} for i in (1, 2, 3)])},
    "a reward without end": {TRAIN_LOG: lines([{"iter": 1, "mean": INF}, GOOD[1]])},
    "a number of 400 digits": {TRAIN_LOG: '{"iter": 1, "mean": 1' + "0" * 400 + "}\n"},
    "one update": {TRAIN_LOG: lines(GOOD[:1])},
    "updates named by words": {TRAIN_LOG: lines([{"iter": "1", "mean": 0.5}])},
    "updates that are truths": {TRAIN_LOG: lines([{"iter": True, "mean": True}])},
    "an update of 30 digits": {TRAIN_LOG: lines([{"iter": 10**30, "mean": 0.5}])},
    "updates below zero": {TRAIN_LOG: lines([{"iter": -5, "mean": 0.5}, {"iter": 0, "mean": 0.5}])},
    "an update three times": {TRAIN_LOG: lines([GOOD[0]] * 3)},
    "updates backwards": {TRAIN_LOG: lines(GOOD[::-1])},
    "lines that are no rows": {TRAIN_LOG: '[1, 2]\n3\nnull\n"x"\n'},
    "bytes": {name: random.Random(0).randbytes(300) for name in (TRAIN_LOG, DIAGNOSTICS, CONFIG)},
    "settings that are a list": {TRAIN_LOG: lines(GOOD), CONFIG: "[1]"},
    "groups of nobody": {
        TRAIN_LOG: lines(GOOD),
        CONFIG: settings(k_rollouts=0, pages_per_update=2),
    },
    "groups without end": {
        TRAIN_LOG: lines(GOOD),
        CONFIG: settings(k_rollouts=3, pages_per_update=INF),
    },
    "a table with holes": {TRAIN_LOG: lines(GOOD), REWARD_LOG: "phase,episode\n\n,,\nx,?\nfoo,1\n"},
    "phases without a name": {TRAIN_LOG: lines(GOOD), REWARD_LOG: "h\n,1\n ,2\n"},
    "diagnostics of other kinds": {
        TRAIN_LOG: lines(GOOD),
        DIAGNOSTICS: lines(
            [
                {"iter": 1, "phase": None, "seconds": {"a": None, "b": "x"}, "total": -3},
                {"iter": 2, "phase": 3, "seconds": {"a": NAN}, "grad_norm": NAN, "entropy": INF},
                {"iter": 3, "phase": ["a"], "total": 10**40, "lengths": {"d": NAN}},
            ]
        ),
    },
}


def turn(**values):
    return {"agent": "developer", "text": "<p>", **values}


EPISODES = {
    "empty": "",
    "half written": '{"turns": [{"ag',
    "a list": "[]",
    "no turns": json.dumps({"turns": []}),
    "pictures that are none": json.dumps({"reference": "AAAA", "turns": [turn(render="!!")]}),
    "a reward in words": json.dumps({"turns": [turn(reward="x")]}),
    "a reward that is no number": json.dumps({"turns": [turn(reward=NAN, advantage=NAN)]}),
    "parts that are a list": json.dumps({"turns": [turn(rewards=[1])]}),
    "parts in words": json.dumps({"turns": [turn(rewards={"a": "x", "reason": 5})]}),
    "fewer log-probabilities than tokens": json.dumps(
        {"turns": [turn(tokens=["a", "b"], logprobs=[-1.0], advantage=1.0)]}
    ),
    "log-probabilities without end": json.dumps(
        {"turns": [turn(tokens=["a"], logprobs=[-INF], advantage=1.0)]}
    ),
    "a reward of 400 digits": '{"turns": [{"agent": "developer", "reward": 1' + "0" * 400 + "}]}",
    "an agent that nobody knows": json.dumps({"turns": [turn(agent="<b>", text=None)]}),
    "a Critic alone": json.dumps({"turns": [turn(agent="critic")]}),
    "formulas": json.dumps(
        {"page_id": "$x", "update": "$\\frac", "turns": [turn(text="$\\frac{$")]}
    ),
}


def folder_of(tmp_path, files):
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("name", RUNS)
def test_a_damaged_run_is_shown_as_far_as_it_goes(name, tmp_path):
    folder = folder_of(tmp_path, RUNS[name])
    explorer = RewardExplorer({"$a_": folder})
    explorer.axis.value = explorer.axis.options[-1]
    explorer.smoothing.value = explorer.smoothing.max
    assert explorer.fallback()
    board = Dashboard()
    board.take(read_run(folder))
    board.figure().canvas.draw()


@pytest.mark.parametrize("name", EPISODES)
def test_a_damaged_episode_is_shown_or_said_to_be_damaged(name, tmp_path):
    folder = folder_of(tmp_path, {TRAIN_LOG: lines(GOOD)})
    (folder / "episodes").mkdir()
    (folder / "episodes" / "update-000002.json").write_text(EPISODES[name])
    explorer = RewardExplorer({"a": folder})
    try:
        explorer._open()
    except VclibError as error:
        assert "update-000002.json" in str(error)
    for shown in explorer.below.children:
        if isinstance(shown, EpisodeReplayer):
            assert shown.fallback()
