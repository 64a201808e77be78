"""Files of a run or a model that are torn, of another shape or missing end in one sentence."""

import json
import shutil

import pytest
import torch

from vclib.errors import VclibError
from vclib.policy.loading import load_base
from vclib.rl import checkpoint
from vclib.rl.pretrain import PretrainSettings, _next, pretrain
from vclib.rl.results_file import load
from vclib.rl.runlog import (
    REWARD_LOG,
    TRAIN_LOG,
    RunLog,
    read_jsonl,
    read_rewards,
)
from vclib.settings import find_adapters

WRONG = ["{", "5", "null", "[]", '"text"', "{}", '{"a": 3}']


def written(folder, updates=2):
    log = RunLog(folder)
    for update in range(1, updates + 1):
        log.write(
            phase="developer", iteration=update, by_difficulty={"easy": 0.5}, mean=0.5,
            mean_steps=1.0, loss=0.0, diagnostics={},
        )  # fmt: skip
    return folder


@pytest.mark.parametrize("torn", [b'{"iter": 3, "ea', b"5", b"null", b"[]", b"\xff\xfe", b"dev,3"])
def test_a_torn_last_line_is_left_out_and_a_resumed_run_cuts_it(tmp_path, torn):
    whole = written(tmp_path / "whole")
    for name in (TRAIN_LOG, REWARD_LOG):
        with (written(tmp_path / name) / name).open("ab") as file:
            file.write(torn)
    assert [row["iter"] for row in read_jsonl(tmp_path / TRAIN_LOG / TRAIN_LOG)] == [1, 2]
    assert [row["episode"] for row in read_rewards(tmp_path / REWARD_LOG)] == [1, 2]
    for name in (TRAIN_LOG, REWARD_LOG):
        RunLog(tmp_path / name, after=2)
        assert (tmp_path / name / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(("name", "read"), [(TRAIN_LOG, read_jsonl), (REWARD_LOG, read_rewards)])
def test_a_damaged_line_in_the_middle_is_named(tmp_path, name, read):
    path = written(tmp_path, updates=3) / name
    lines = path.read_text().splitlines()
    lines[-2] = lines[-2][:9]
    path.write_text("\n".join(lines))
    with pytest.raises(VclibError, match=f"{name}, line {len(lines) - 1} is damaged"):
        read(tmp_path if name == REWARD_LOG else path)


@pytest.mark.parametrize("text", WRONG)
def test_a_file_of_another_shape_is_damage(tmp_path, text):
    (tmp_path / "eval.json").write_text(text)
    with pytest.raises(VclibError, match=r"eval\.json.* damaged"):
        load(tmp_path)
    (tmp_path / "developer").mkdir()
    (tmp_path / "developer" / "adapter_config.json").write_text(text)
    with pytest.raises(VclibError, match=r"adapter_config\.json does not describe an adapter"):
        find_adapters(tmp_path)


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("name", [checkpoint.MANIFEST, checkpoint.STATE])
def test_a_checkpoint_with_a_file_of_another_shape_is_passed_over(tmp_path, settings, name, text):
    def make(update):
        path = tmp_path / f"update-{update:06d}"
        path.mkdir()
        state = {"update": update, "phase_end": False, "settings": settings.as_dict()}
        (path / checkpoint.STATE).write_text(json.dumps(state))
        (path / checkpoint.MANIFEST).write_text(json.dumps(checkpoint._manifest(path)))
        return path

    good, bad = make(1), make(2)
    assert checkpoint.find(tmp_path) == bad
    (bad / name).write_text(text)
    if name == checkpoint.STATE:
        (bad / checkpoint.MANIFEST).unlink()
        (bad / checkpoint.MANIFEST).write_text(json.dumps(checkpoint._manifest(bad)))
    assert checkpoint.find(tmp_path) == good
    with pytest.raises(VclibError, match="damaged"):
        checkpoint.find(bad)


@pytest.mark.parametrize(
    ("name", "text"),
    [("tokenizer.json", '{"a": 1}'), ("tokenizer.json", None), ("chat_template.jinja", None),
     ("config.json", "{}"), ("config.json", "sizes"),
     ("processor_config.json", "[]")],
)  # fmt: skip
def test_a_faulty_model_folder_is_one_sentence(model_folder, tmp_path, name, text):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    if text == "sizes":
        config = json.loads((folder / name).read_text())
        config["text_config"]["intermediate_size"] *= 2
        text = json.dumps(config)
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(VclibError, match="model"):
        load_base(str(folder), torch.device("cpu"), torch.float32)


def test_pretraining_does_not_replace_a_model_unasked(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(VclibError, match="already holds a model"):
        next(pretrain(PretrainSettings(output=str(folder))))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_pretraining_ends_when_the_process_that_draws_pages_has_died():
    context = torch.multiprocessing.get_context("fork")
    process = context.Process(target=int)
    process.start()
    process.join()
    with pytest.raises(VclibError, match="has ended"):
        _next(context.Queue(), process)
