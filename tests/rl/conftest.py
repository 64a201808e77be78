import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import settings as hypothesis_settings

from vclib.env.environment import WebPageEnv
from vclib.policy.model import LoraSettings, Policy
from vclib.policy.sampling import SamplingSettings
from vclib.rl.episodes import EpisodeSettings
from vclib.rl.profiles import PROFILES

hypothesis_settings.register_profile("any machine", deadline=None, max_examples=50)
hypothesis_settings.load_profile("any machine")
BLANK_PAGES = runpy.run_path(str(Path(__file__).with_name("run_training.py")))["BlankPages"]


@pytest.fixture
def policy(model_folder):
    """A small random model whose adapters do something: B is no longer zero."""
    policy = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for agent in ("developer", "critic"):
            for name, parameter in policy.adapter_parameters(agent).items():
                if "lora_B" in name:
                    parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


@pytest.fixture(scope="session")
def blank_pages():
    return BLANK_PAGES()


@pytest.fixture(scope="session")
def env(blank_pages):
    """A real browser; pages on which a random model's rewards differ."""
    with WebPageEnv(blank_pages) as environment:
        yield environment


@pytest.fixture(scope="session")
def base_settings(model_folder):
    """Two updates of one group of two short episodes."""
    return PROFILES["ci"].but(
        model=str(model_folder),
        phase="developer",
        episodes=2,
        k_rollouts=2,
        developer_tokens=8,
        critic_tokens=3,
        lora_r=4,
        device="cpu",
    )


@pytest.fixture
def settings(base_settings, tmp_path):
    """The same, in a folder of the test's own."""
    return base_settings.but(output=str(tmp_path / "outputs"))


@pytest.fixture
def short_episodes():
    """Two Developer turns of up to ten tokens."""
    return EpisodeSettings(
        developer=SamplingSettings(10, temperature=0.7),
        critic=SamplingSettings(4, temperature=0.7),
        max_steps=2,
    )
