"""A run folder belongs to one run and to one process at a time."""

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from vclib.cli import parse
from vclib.errors import VclibError
from vclib.rl import checkpoint
from vclib.rl.run_folder import claim, next_free
from vclib.rl.runlog import TRAIN_LOG
from vclib.rl.trainer import Trainer
from vclib.settings import train_settings

fork = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def stored(base_settings, env, tmp_path_factory):
    """The folder of a run of one update."""
    return run(base_settings.but(output=str(tmp_path_factory.mktemp("stored")), episodes=1), env)


def run(settings, env):
    with Trainer(settings, env) as trainer:
        list(trainer.run())
    return settings.run_folder


def copy(stored, place):
    shutil.copytree(stored, place)
    return place


def resumed(*words):
    return train_settings(parse(["train", "--resume-from", *map(str, words), "--episodes", "2"]))


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


def test_a_run_that_was_moved_or_copied_goes_on_where_it_lies(stored, env, tmp_path):
    best, before = copy(stored, tmp_path / "best"), content(stored)
    got = resumed(best)
    assert got.run_folder == best and got.checkpoint_folder == best / "checkpoints"
    run(got, env)
    assert checkpoint.find(best).name == "update-000002"
    assert len((best / TRAIN_LOG).read_text().splitlines()) == 2
    assert content(stored) == before


@pytest.mark.parametrize(
    ("place", "said"),
    [("best", "."), ("best", "checkpoints"), ("best/checkpoints", "update-000001"),
     ("best/checkpoints", ".."), ("best/checkpoints/update-000001", "../../checkpoints")],
)  # fmt: skip
def test_a_run_may_be_named_from_inside(stored, tmp_path, monkeypatch, place, said):
    best = copy(stored, tmp_path / "best")
    monkeypatch.chdir(tmp_path / place)
    assert resumed(said).run_folder.resolve() == best


def test_a_run_does_not_go_on_in_the_folder_of_another(stored, tmp_path):
    here, other = (copy(stored, tmp_path / name) for name in ("here", "other"))
    before = content(other)
    other_checkpoints = ["--checkpoint-dir", other / "checkpoints", "--run-name", "new"]
    lone = copy(here / "checkpoints/update-000001", tmp_path / "kept/update-000001")
    for words in (
        [here, "--run-name", "other"],
        [here, *other_checkpoints],
        [lone, "--output", tmp_path, "--run-name", "other"],
    ):
        got = resumed(*words)
        with pytest.raises(VclibError, match="already holds another run"):
            claim(got, checkpoint.find(Path(got.resume_from)))
    assert content(other) == before


def test_checkpoints_in_a_folder_of_their_own_belong_to_their_run(settings, env, tmp_path):
    kept = tmp_path / "kept"
    first = run(settings.but(episodes=1, checkpoint_dir=str(kept)), env)
    with pytest.raises(VclibError, match="kept already holds a run"):
        claim(settings.but(run="second", checkpoint_dir=str(kept)), None)
    claim(resumed(kept), checkpoint.find(kept))
    # The run goes away, another takes its name.
    first.rename(tmp_path / "best")
    run(settings.but(episodes=1), env)
    with pytest.raises(VclibError, match="already holds another run"):
        claim(resumed(kept), checkpoint.find(kept))


def test_a_run_folder_in_use_is_refused_to_another_process(settings, tmp_path):
    def claimed(settings, out):
        try:
            out.put(len(claim(settings, None)))
        except VclibError as error:
            out.put(str(error))

    def elsewhere(settings):
        out = fork.Queue()
        process = fork.Process(target=claimed, args=(settings, out))
        process.start()
        said = out.get(timeout=60)
        process.join()
        return said

    settings = settings.but(checkpoint_dir=str(tmp_path / "kept"))
    locks = claim(settings, None)
    assert "Another process is at work" in elsewhere(settings.but(overwrite=True))
    assert "kept" in elsewhere(settings.but(run="other"))
    for lock in locks:
        lock.close()
    assert elsewhere(settings) == 2


def test_a_run_folder_in_use_is_refused_to_the_same_process_too(settings, env):
    with Trainer(settings, env):
        with pytest.raises(VclibError, match=r"This process already trains in .*run=\.\.\."):
            Trainer(settings, env)
        Trainer(settings.but(run="another"), env).close()
    with Trainer(settings, env) as trainer:
        assert trainer.done == 0


def test_two_spellings_of_one_folder_are_one(settings, env, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = settings.but(output=str(tmp_path), run="one", checkpoint_dir="one")
    Trainer(here, env).close()


def test_a_trainer_that_cannot_be_made_leaves_the_folder_free(settings, env, tmp_path):
    wrong = settings.but(model=str(tmp_path / "none"))
    with pytest.raises(VclibError) as kept:
        Trainer(wrong, env)
    assert kept.value.__traceback__  # which holds on to the trainer that was begun
    Trainer(settings, env).close()


def test_processes_that_begin_together_take_folders_of_their_own(tmp_path):
    def take(out):
        out.put([str(next_free(tmp_path / "outputs", "run")) for _ in range(50)])
        out.close()
        out.join_thread()
        os._exit(0)

    out = fork.Queue()
    processes = [fork.Process(target=take, args=(out,)) for _ in range(4)]
    for process in processes:
        process.start()
    taken = [path for _ in processes for path in out.get(timeout=60)]
    for process in processes:
        process.join()
    assert len(set(taken)) == len(taken) == 200


@pytest.mark.parametrize("flag", ["output", "checkpoint_dir"])
def test_a_path_that_takes_no_files_is_refused_before_the_model_is_loaded(settings, flag):
    wrong = settings.but(model="no model", **{flag: "/etc/passwd"})
    with pytest.raises(VclibError, match="Nothing can be written to /etc/passwd"):
        Trainer(wrong)
