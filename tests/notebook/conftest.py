"""Episodes and updates small enough to be written down."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from vclib.policy.encoding import Prompt
from vclib.policy.sampling import Sample
from vclib.rl.episodes import Episode, Turn
from vclib.rl.learner import Learned
from vclib.rl.update import Update, assign_credit, records, summarise

PARTS = {"total": 0.5, "gate": 1.0, "reason": None, "format": 1.0, "text_block": 0.4, "clip": None}


def page(shade):
    return np.full((192, 256, 3), shade, np.uint8)


def turn(agent, text, reward=None, shade=0):
    nothing = torch.zeros(1, dtype=torch.long)
    prompt = Prompt(nothing, nothing, nothing.expand(3, 1))
    sample = Sample(agent, prompt, nothing, text, False, torch.full((1,), -0.5), 0.7)
    render = page(shade % 256) if agent == "developer" else None
    rewards = PARTS | {"total": reward} if agent == "developer" else None
    return Turn(agent, sample, text, reward, rewards, render)


def make_episode(*rewards, critic=True):
    turns = []
    for number, reward in enumerate(rewards):
        if number and critic:
            turns.append(turn("critic", "bar 2 should be #16a34a\n" * number))
        html = f"<!doctype html><p>draft {number}</p>"
        turns.append(turn("developer", html, reward, shade=40 * number))
    return Episode("blocks/train/easy/0", "easy", 0, page(255), turns)


def make_update(index, phase="developer", total=4):
    groups = [[make_episode(0.2, 0.5), make_episode(0.4, 0.3), make_episode(0.9)]]
    gathered = [records(groups, assign_credit(groups, (phase,), "flat", 0.2))]
    learned = Learned(loss=0.1, grad_norm=0.5, entropy=0.5)
    return Update(
        phase=phase,
        phase_number=0,
        index=index,
        total=total,
        **summarise(gathered),
        loss=learned.loss,
        grad_norm=learned.grad_norm,
        entropy=learned.entropy,
        skipped_steps=0,
        faults=0,
        tokens_per_second=1.0,
        seconds={"sample": 2.0, "render": 1.0},
        episodes=groups,
    )


@pytest.fixture
def episode():
    return make_episode


@pytest.fixture
def update():
    return make_update


@pytest.fixture
def size():
    """Width and height of a PNG."""
    return lambda png: Image.open(io.BytesIO(png)).size


@pytest.fixture
def run_folder(tmp_path):
    """Makes a run's folder from the text of its files."""

    def make(name="run", **files):
        folder = tmp_path / name
        folder.mkdir()
        for stem, text in files.items():
            suffix = {"reward_log": "csv", "config": "json"}.get(stem, "jsonl")
            (folder / f"{stem}.{suffix}").write_text(text)
        return folder

    return make
