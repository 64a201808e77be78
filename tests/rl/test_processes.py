import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vclib.rl import checkpoint
from vclib.rl.runlog import DIAGNOSTICS, TRAIN_LOG, read_jsonl
from vclib.rl.trainer import Trainer

WORKER = Path(__file__).with_name("run_training.py")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def launch(settings, count):
    """What `accelerate launch` and torchrun do: a process for each rank, told of the others."""
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    command = [sys.executable, str(WORKER), json.dumps(settings.as_dict())]
    workers = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank})
        for rank in map(str, range(count))
    ]
    return [worker.wait() for worker in workers]


def test_two_processes_make_the_update_of_one(base_settings, env, tmp_path):
    one = base_settings.but(
        output=str(tmp_path), run="one", pages_per_update=3, episodes=1, phase="combined"
    )
    two = one.but(run="two")
    assert launch(two, 2) == [0, 0]
    with Trainer(one, env) as trainer:
        list(trainer.run())
    [expected], [found] = (read_jsonl(s.run_folder / TRAIN_LOG) for s in (one, two))
    assert found == pytest.approx(expected, abs=1e-5)
    [expected], [found] = (read_jsonl(s.run_folder / DIAGNOSTICS) for s in (one, two))
    for name in ("grad_norm", "entropy", "group_std", "silent_share", "mean_first_reward"):
        assert found[name] == pytest.approx(expected[name], abs=1e-5), name
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
