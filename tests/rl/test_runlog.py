import json

import pytest

from vclib.errors import VclibError
from vclib.rl.runlog import (
    CONFIG,
    DIAGNOSTICS,
    REWARD_LOG,
    TRAIN_LOG,
    Meter,
    RunLog,
    read_jsonl,
    read_rewards,
)


def write(log, iteration, by_difficulty=None):
    log.write(
        phase="developer",
        iteration=iteration,
        by_difficulty=by_difficulty or {"easy": 0.5},
        mean=0.5,
        mean_steps=2.0,
        loss=-0.125,
        diagnostics={"entropy": 1.5},
    )


def test_reward_log_has_the_promised_columns(tmp_path):
    write(RunLog(tmp_path), 1)
    assert (tmp_path / REWARD_LOG).read_text() == (
        "phase,episode,difficulty,mean_terminal_reward,mean_steps,loss\n"
        "developer,1,easy,0.500000,2.0000,-0.125000\n"
    )


def test_difficulty_of_an_update_over_several_is_mixed(tmp_path):
    write(RunLog(tmp_path), 1, {"easy": 0.75, "hard": 0.25})
    [row] = read_rewards(tmp_path)
    assert row["difficulty"] == "mixed"


def test_train_log_has_null_for_a_difficulty_that_was_not_seen(tmp_path):
    write(RunLog(tmp_path), 1, {"easy": 0.75, "hard": 0.25})
    text = (tmp_path / TRAIN_LOG).read_text()
    assert json.loads(text) == {
        "iter": 1,
        "easy": 0.75,
        "medium": None,
        "hard": 0.25,
        "mean": 0.5,
        "loss": -0.125,
    }
    assert '"medium": null' in text


def test_diagnostics_are_a_row_an_update(tmp_path):
    log = RunLog(tmp_path)
    write(log, 1)
    write(log, 2)
    rows = read_jsonl(tmp_path / DIAGNOSTICS)
    assert [row["iter"] for row in rows] == [1, 2]
    assert rows[0]["phase"] == "developer" and rows[0]["entropy"] == 1.5


def test_a_row_is_on_disk_as_soon_as_it_is_written(tmp_path):
    log = RunLog(tmp_path)
    for iteration in (1, 2, 3):
        write(log, iteration)
        assert len(read_rewards(tmp_path)) == iteration


def test_a_resumed_run_appends(tmp_path):
    log = RunLog(tmp_path)
    write(log, 1)
    write(log, 2)
    write(RunLog(tmp_path, after=2), 3)
    assert [row["episode"] for row in read_rewards(tmp_path)] == [1, 2, 3]
    assert (tmp_path / REWARD_LOG).read_text().count("phase") == 1


def test_rows_past_the_checkpoint_and_torn_rows_are_cut(tmp_path):
    log = RunLog(tmp_path)
    write(log, 1)
    expected = {name: (tmp_path / name).read_bytes() for name in (REWARD_LOG, TRAIN_LOG)}
    write(log, 2)
    for name, torn in ((REWARD_LOG, "developer,3,ea"), (TRAIN_LOG, '{"iter": 3, "ea')):
        with (tmp_path / name).open("a") as file:
            file.write(torn)
    RunLog(tmp_path, after=1)
    for name, content in expected.items():
        assert (tmp_path / name).read_bytes() == content


def test_beginning_afresh_leaves_no_old_rows(tmp_path):
    write(RunLog(tmp_path), 1)
    RunLog(tmp_path)
    assert read_rewards(tmp_path) == []
    assert (tmp_path / REWARD_LOG).read_text().startswith("phase,")


def test_config_names_settings_packages_and_browser(tmp_path):
    RunLog(tmp_path).write_config({"seed": 3}, browser="a browser 1.2")
    config = json.loads((tmp_path / CONFIG).read_text())
    assert config["settings"] == {"seed": 3}
    assert config["browser"] == "a browser 1.2"
    assert config["packages"]["torch"] and "transformers" in config["packages"]


def test_a_log_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    log = RunLog(tmp_path)
    (tmp_path / REWARD_LOG).unlink()
    (tmp_path / REWARD_LOG).mkdir()
    with pytest.raises(VclibError, match=REWARD_LOG):
        write(log, 1)


def test_meter_adds_up_the_time_of_a_stage():
    meter = Meter()
    for _ in range(2):
        with meter.stage("sample"):
            pass
    assert set(meter.seconds) == {"sample"} and 0 < meter.seconds["sample"] < 1
