import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vclib.rl import checkpoint, kept
from vclib.rl.runlog import CONFIG, DIAGNOSTICS, TRAIN_LOG, read_jsonl
from vclib.rl.trainer import Trainer

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("run_training.py")


pytestmark = pytest.mark.timeout(900)  # several programs start, on a machine that may be busy


@pytest.fixture
def blank_folder(tmp_path):
    """Pages with nothing on them: even a random model's rewards differ there and are not 0."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for index in range(30):
        comment = "-" * index
        (folder / f"{index}.html").write_text(
            f"<!doctype html><html><body><!--{comment}--></body></html>"
        )
    return folder


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@pytest.mark.parametrize(
    "config", ["accelerate_ddp.yaml", pytest.param("accelerate_fsdp.yaml", marks=pytest.mark.long)]
)
def test_accelerate_launch_with_two_processes_makes_the_update_of_one(
    base_settings, blank_folder, tmp_path, config
):
    one = base_settings.but(
        output=str(tmp_path),
        run="one",
        pages=f"folder:{blank_folder}",
        pages_per_update=3,
        episodes=1,
        phase="combined",
        lora_r=16,  # the profile's, which the command line leaves as it is
    )
    two = one.but(run="two")
    launch = [sys.executable, "-m", "accelerate.commands.launch"]
    launch += ["--config_file", str(ROOT / "deploy" / config)]
    launch += ["--num_processes", "2", "--main_process_port", free_port(), "-m", "vclib", "train"]
    launch += ["--profile", "ci", "--no-eval", "--run-name", two.run]
    names = "model phase pages output device episodes k_rollouts pages_per_update"
    for name in f"{names} developer_tokens critic_tokens".split():
        launch += ["--" + name.replace("_", "-"), str(getattr(two, name))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(launch, check=True, cwd=ROOT, env=environment)
    written = json.loads((two.run_folder / CONFIG).read_text())
    assert (written["processes"], written["weights_shared_out"]) == (2, "fsdp" in config)
    with Trainer(one) as trainer:
        list(trainer.run())
    assert_same_updates(one, two)


def test_processes_that_share_the_weights_make_the_updates_of_one(base_settings, env, tmp_path):
    one = base_settings.but(
        output=str(tmp_path),
        run="one",
        pages_per_update=3,
        phase="alternate",
        num_phases=2,
        episodes_per_phase=1,
        token_budget=300,  # so that one process has more micro-batches than the other
        gradient_checkpointing=True,
    )
    two = one.but(run="two")
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), "--shard"],
            env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    line = json.dumps(two.as_dict()) + "\n"
    for worker in workers:
        worker.stdin.write(line)
        worker.stdin.close()
    for worker in workers:
        assert worker.stdout.read().split()[-2:] == ["ended", "0"]
        assert worker.wait() == 0
    with Trainer(one, env) as trainer:
        list(trainer.run())
    assert_same_updates(one, two)


def assert_same_updates(one, two):
    """Logs, diagnostics and the last adapters agree to 1e-5; the same episodes were kept."""
    episodes = [[kept.load(f) for f in kept.stored(s.run_folder).values()] for s in (one, two)]
    assert len(episodes[0]) == one.total_updates
    for expected, found in zip(*episodes, strict=True):
        assert (found.page_id, found.update) == (expected.page_id, expected.update)
        assert [turn.text for turn in found.turns] == [turn.text for turn in expected.turns]
    logs = [read_jsonl(s.run_folder / TRAIN_LOG) for s in (one, two)]
    diagnostics = [read_jsonl(s.run_folder / DIAGNOSTICS) for s in (one, two)]
    for expected, found in zip(*logs, strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    for expected, found in zip(*diagnostics, strict=True):
        for name in ("grad_norm", "entropy", "group_std", "silent_share", "mean_first_reward"):
            assert found[name] == pytest.approx(expected[name], abs=1e-5), name
        assert found["grad_norm"] > 0
    for agent in ("developer", "critic"):
        expected, found = (
            load_file(
                checkpoint.find(s.run_folder) / "adapters" / agent / "adapter_model.safetensors"
            )
            for s in (one, two)
        )
        assert expected.keys() == found.keys()
        for name in expected:
            assert torch.allclose(expected[name], found[name], atol=1e-5), name
