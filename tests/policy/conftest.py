import numpy as np
import pytest
import torch

from vclib.policy import prompts
from vclib.policy.model import AGENTS, LoraSettings, Policy


@pytest.fixture(scope="session")
def loaded(model_folder):
    """A small random model whose adapters do something: B is no longer zero."""
    policy = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for agent in AGENTS:
            for name, parameter in policy.adapter_parameters(agent).items():
                if "lora_B" in name:
                    parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return policy


@pytest.fixture
def policy(loaded):
    """The loaded policy; after the test it is as it was."""
    eos_ids, suppressed_ids = list(loaded.eos_ids), list(loaded.suppressed_ids)
    state = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    yield loaded
    loaded.model.float().load_state_dict(state)
    loaded.model.eval().zero_grad(set_to_none=True)
    loaded.train_only()
    loaded.eos_ids, loaded.suppressed_ids = eos_ids, suppressed_ids


@pytest.fixture(scope="session")
def pictures():
    """Four pictures of four sizes."""
    generator = np.random.default_rng(0)
    sizes = ((96, 128), (64, 64), (160, 96), (64, 192))
    return [generator.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]


@pytest.fixture(scope="session")
def conversations(pictures):
    """All four messages, of different lengths, with one to three pictures of different sizes."""
    a, b, c, d = pictures
    return [
        prompts.developer_first(a),
        prompts.developer_revision("<p>A page</p>\n" * 3, "row 1: the colour is #ffffff", b),
        prompts.critic_first(a, c),
        prompts.critic_again(d, b, c, "row 2: it lacks a word"),
    ]


@pytest.fixture
def encoded(policy, conversations):
    return [policy.encode(messages) for messages in conversations]
