"""What all tests of a model share: one thread, a small random model, generators by seed."""

import numpy as np
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


@pytest.fixture(scope="session")
def plain_logprobs():
    """The slow and sure way to score: the whole model on one row, as the processor makes it."""

    def score(policy, sample, *, temperature=None, **changed):
        """log pi of the sampled ids, [T], under whichever adapter is on."""
        ids = torch.cat([sample.prompt.input_ids, sample.completion_ids])[None]
        types = torch.nn.functional.pad(
            sample.prompt.mm_token_type_ids, (0, len(sample.completion_ids))
        )
        inputs = {
            "pixel_values": sample.prompt.pixel_values,
            "image_grid_thw": sample.prompt.image_grid_thw,
            "mm_token_type_ids": types[None],
            **changed,
        }
        logits = policy.model(input_ids=ids, **inputs).logits[0, len(sample.prompt) - 1 : -1]
        suppressed = torch.tensor(policy.suppressed_ids, dtype=torch.long)
        logits = logits.index_fill(-1, suppressed, float("-inf"))
        scores = torch.log_softmax(logits / (temperature or sample.temperature), dim=-1)
        return scores.gather(-1, sample.completion_ids[:, None])[:, 0]

    return score


@pytest.fixture(scope="session")
def noise():
    """A picture of random pixels, uint8 RGB [height, width, 3]; the same for the same size."""

    def picture(height, width):
        generator = np.random.default_rng(height * 10_000 + width)
        return generator.integers(0, 256, (height, width, 3), dtype=np.uint8)

    return picture
