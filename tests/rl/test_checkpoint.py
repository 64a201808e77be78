import json
import random
import resource
import shutil

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from vclib.errors import VclibError
from vclib.policy.model import LoraSettings, Policy
from vclib.rl import checkpoint
from vclib.rl.learner import Learner


def state_of(settings, update, phase_end=False):
    return {
        "update": update,
        "phase": "developer",
        "phase_number": 0,
        "phase_end": phase_end,
        "page_cursor": update,
        "settings": settings.as_dict(),
    }


@pytest.fixture
def learner(policy, settings):
    """A learner whose optimizers have taken a step."""
    learner = Learner(policy, settings, Accelerator())
    for agent, optimizer in learner.optimizers.items():
        policy.train_only(agent)
        for parameter in policy.adapter_parameters(agent).values():
            parameter.grad = torch.full_like(parameter, 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return learner


def save(folder, learner, settings, update, **options):
    state = state_of(settings, update, **options)
    return checkpoint.save(folder, learner.policy, learner.optimizers, state)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_holds_adapters_optimizers_rngs_phase_step_and_cursor(
    tmp_path, learner, settings
):
    path = save(tmp_path, learner, settings, 7)
    for agent in ("developer", "critic"):
        weights = load_file(path / "adapters" / agent / "adapter_model.safetensors")
        assert len(weights) == len(learner.policy.adapter_parameters(agent))
        assert (path / "adapters" / agent / "adapter_config.json").is_file()
    optimizers = torch.load(path / "optimizers.pt", weights_only=True)
    assert all(optimizers[agent]["state"] for agent in ("developer", "critic"))
    assert set(torch.load(path / "rng.pt", weights_only=True)) >= {"python", "numpy", "torch"}
    state = checkpoint.read_state(path)
    assert (state["update"], state["phase"], state["page_cursor"]) == (7, "developer", 7)
    assert state["settings"]["learning_rate"] == settings.learning_rate


def test_restoring_gives_back_adapters_optimizers_and_rngs(
    tmp_path, learner, settings, model_folder
):
    path = save(tmp_path, learner, settings, 1)
    drawn = (random.random(), np.random.rand(), torch.rand(1))
    fresh = Policy.load(model_folder, lora=LoraSettings(r=4), seed=9, device="cpu")
    other = Learner(fresh, settings, Accelerator())
    checkpoint.restore(path, fresh, other.optimizers)
    assert drawn == (random.random(), np.random.rand(), torch.rand(1))
    for agent in ("developer", "critic"):
        own, restored = learner.policy.adapter_parameters(agent), fresh.adapter_parameters(agent)
        assert all(torch.equal(own[name], restored[name]) for name in own)
        states = [one.optimizers[agent].state_dict()["state"] for one in (learner, other)]
        for key, values in states[0].items():
            assert all(torch.equal(values[name], states[1][key][name]) for name in values)


def test_the_two_newest_and_the_ends_of_phases_are_kept(tmp_path, learner, settings):
    for update in range(1, 7):
        save(tmp_path, learner, settings, update, phase_end=update == 3)
    assert names(tmp_path) == ["update-000003", "update-000005", "update-000006"]


def test_saving_the_same_update_again_replaces_it(tmp_path, learner, settings):
    save(tmp_path, learner, settings, 1)
    path = save(tmp_path, learner, settings, 1)
    assert names(tmp_path) == ["update-000001"]
    assert checkpoint.damage(path) is None


def test_leftovers_of_a_killed_save_are_no_checkpoint_and_go_away(tmp_path, learner, settings):
    good = save(tmp_path, learner, settings, 1)
    shutil.copytree(good, tmp_path / ".update-000002.123.tmp")
    (tmp_path / ".update-000002.123.tmp" / "MANIFEST.json").unlink()
    assert checkpoint.find(tmp_path) == good
    save(tmp_path, learner, settings, 2)
    assert names(tmp_path) == ["update-000001", "update-000002"]


@pytest.mark.parametrize("harm", ["cut", "flip", "remove", "no manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_refused_by_name(tmp_path, learner, settings, harm):
    good = save(tmp_path, learner, settings, 1)
    bad = save(tmp_path, learner, settings, 2)
    weights = bad / "adapters" / "critic" / "adapter_model.safetensors"
    content = weights.read_bytes()
    if harm == "cut":
        weights.write_bytes(content[: len(content) // 2])
    elif harm == "flip":
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif harm == "remove":
        weights.unlink()
    else:
        (bad / "MANIFEST.json").unlink()
    assert checkpoint.find(tmp_path) == good
    with pytest.raises(VclibError, match="damaged"):
        checkpoint.find(bad)


def test_a_full_disk_is_a_clear_error_and_the_last_checkpoint_stays(tmp_path, learner, settings):
    good = save(tmp_path, learner, settings, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(VclibError, match=r"not be written.*--resume-from .*update-000001"):
            save(tmp_path, learner, settings, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == ["update-000001"]
    assert checkpoint.find(tmp_path) == good


def test_a_run_folder_means_its_newest_checkpoint(tmp_path, learner, settings):
    save(tmp_path / "checkpoints", learner, settings, 9)
    newest = save(tmp_path / "checkpoints", learner, settings, 10)
    assert checkpoint.find(tmp_path) == newest
    assert checkpoint.find(tmp_path / "checkpoints") == newest
    assert checkpoint.find(newest) == newest


def test_a_folder_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(VclibError, match="No whole checkpoint"):
        checkpoint.find(tmp_path)


def test_checkpoints_past_the_one_gone_back_to_are_dropped(tmp_path, learner, settings):
    for update in (1, 2):
        save(tmp_path, learner, settings, update)
    checkpoint.drop_after(tmp_path, 1)
    assert names(tmp_path) == ["update-000001"]


def test_a_copy_with_a_name_of_its_own_is_neither_dropped_nor_taken(tmp_path, learner, settings):
    first = save(tmp_path, learner, settings, 1)
    shutil.copytree(first, tmp_path / "update-000001-good")
    last = 2 * checkpoint.KEEP
    for update in range(2, last + 1):
        save(tmp_path, learner, settings, update)
    shutil.copytree(first.with_name(f"update-{last:06d}"), tmp_path / "update-999999-copy")
    checkpoint.drop_after(tmp_path, last - 1)
    assert {"update-000001-good", "update-999999-copy"} <= set(names(tmp_path))
    assert checkpoint.find(tmp_path).name == f"update-{last - 1:06d}"


def test_an_empty_name_to_resume_from_does_not_begin_afresh(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(VclibError, match="No whole checkpoint"):
        checkpoint.look_up(settings.but(resume_from=""))


def test_settings_that_matter_must_be_the_same(settings):
    state = json.loads(json.dumps(state_of(settings, 1)))
    changed = settings.but(k_rollouts=5, lambda_shaped=0.9)
    with pytest.raises(VclibError, match=r"k_rollouts was 2, is 5; lambda_shaped was 0.2, is 0.9"):
        checkpoint.check_settings(state, changed)


def test_settings_that_do_not_matter_may_change(settings):
    state = json.loads(json.dumps(state_of(settings, 1)))
    moved = settings.but(output="elsewhere", episodes=50, threads=2, trackers=("tensorboard",))
    checkpoint.check_settings(state, moved)


def test_a_run_shorter_than_its_checkpoint_is_refused(settings):
    state = json.loads(json.dumps(state_of(settings, 9)))
    with pytest.raises(VclibError, match="9 updates, more than the 2"):
        checkpoint.check_settings(state, settings)
