"""CLIP's part of the reward: there with the weights, absent without them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from vclib.env import synth
from vclib.env.browser import Renderer
from vclib.env.clip import CLIP, load_clip
from vclib.env.environment import WebPageEnv
from vclib.env.ladder import halves
from vclib.env.reward import WEIGHTS, Reference, score

PAGE = synth.block_page("train", "medium", 0)
EPISODE = """
from vclib.env.environment import WebPageEnv
from vclib.env.ladder import halves
with WebPageEnv("web") as env:
    seen = env.reset("easy", seed=0)
    page = env.pages.page(seen.page_id)
    for html in (page.html, halves(page.html)[0]):
        print("clip", env.step(html, seen.session_id).metadata["rewards"]["clip"])
"""


@pytest.fixture(scope="module")
def reference(renderer: Renderer) -> Reference:
    return Reference(renderer.render(PAGE))


def save_small_clip(folder: Path) -> None:
    """A small random CLIP with both of its towers, in the layout of the real one."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    size["num_attention_heads"] = 2
    CLIPModel(CLIPConfig(text_config=size, vision_config=size)).save_pretrained(folder)
    CLIPImageProcessor().save_pretrained(folder)


def test_clip_is_absent_unless_asked_for_and_its_weight_is_shared_out(
    renderer: Renderer, reference: Reference
) -> None:
    def coarse_colors(pixels: np.ndarray) -> np.ndarray:
        return cv2.resize(pixels, (8, 6), interpolation=cv2.INTER_AREA).ravel() - 128.0

    unfinished = renderer.render(halves(PAGE)[0])
    without = score(reference, unfinished)
    having = score(reference, unfinished, clip=coarse_colors)
    assert without.as_dict()["clip"] is None
    parts = {name: value for name, value in without.parts.items() if value is not None}
    weights = sum(WEIGHTS[name] for name in parts)
    mean = sum(WEIGHTS[name] * value for name, value in parts.items()) / weights
    assert without.total == pytest.approx(mean * without.gate, abs=1e-5)
    assert having.parts["clip"] is not None
    assert 0 < having.parts["clip"] < 1
    assert score(reference, reference.render, clip=coarse_colors).total == 1
    ground = reference.render.background
    blank = renderer.render(f'<!doctype html><body style="background:rgb{ground}"></body></html>')
    assert score(reference, blank, clip=coarse_colors).parts["clip"] == 0


def test_weights_are_taken_from_a_folder_or_not_at_all(
    renderer: Renderer, reference: Reference, tmp_path: Path
) -> None:
    assert load_clip(str(tmp_path)) is None
    assert load_clip("nobody/no-such-model") is None
    save_small_clip(tmp_path)
    clip = load_clip(str(tmp_path))
    assert clip is not None
    assert clip(reference.render.pixels).shape == (512,)
    assert score(reference, reference.render, clip=clip).total == 1
    part = score(reference, renderer.render(halves(PAGE)[0]), clip=clip).parts["clip"]
    assert part is not None
    assert part < 1


@pytest.mark.timeout(900)
def test_the_environment_takes_clip_from_the_local_cache_and_asks_no_network(
    tmp_path: Path,
) -> None:
    repository = tmp_path / "hub" / f"models--{CLIP.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    save_small_clip(repository / "snapshots" / ("0" * 40))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        cache = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
        proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), proxy)
        surroundings = os.environ | cache | proxies
        done = subprocess.run(
            [sys.executable, "-c", EPISODE], env=surroundings, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    same, unfinished = [
        float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("clip")
    ]
    assert same == 1
    assert 0 <= unfinished < 1


def test_blocks_pages_are_scored_alike_on_every_machine() -> None:
    with WebPageEnv("blocks") as env:
        assert env.clip is None


def test_an_environment_uses_the_embedding_that_it_is_given() -> None:
    def mean_color(pixels: np.ndarray) -> np.ndarray:
        return pixels.mean((0, 1)) - 128.0

    with WebPageEnv("blocks", clip=mean_color) as env:
        seen = env.reset("easy", seed=0)
        rewards = env.step(PAGE, seen.session_id).metadata["rewards"]
    assert rewards["clip"] is not None


def test_the_environment_side_runs_without_torch() -> None:
    code = """
import sys
from vclib.env.environment import WebPageEnv
WebPageEnv("web").close()
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
