"""What all tests of a model share: one thread, a small random model, generators by seed."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    # The tests of the environment, which ask for no model, do not wait for transformers.
    from vclib.policy.tiny import random_model

    return random_model(tmp_path_factory.mktemp("model"), seed=0)


@pytest.fixture
def seeded():
    return lambda seed: torch.Generator().manual_seed(seed)
