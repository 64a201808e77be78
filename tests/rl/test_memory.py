"""What is planned is what a real model takes."""

import pytest
import torch

from vclib.policy import prompts
from vclib.policy.decoding import prefill
from vclib.policy.model import LoraSettings
from vclib.rl.memory import (
    SHAPES,
    activation_bytes,
    cache_bytes,
    kept_bytes,
    plan_memory,
    qwen_config,
)

ROWS, LENGTH = 3, 200
LORA = LoraSettings(r=4)


def test_parameters_are_counted_as_the_model_has_them(policy):
    plan = plan_memory(
        policy.base.config, rows=1, turns=1, prompt=10, new=10, token_budget=100,
        dtype=torch.float32, lora=LORA,
    )  # fmt: skip
    adapters = sum(len(policy.adapter_parameters(a)) > 0 for a in ("developer", "critic"))
    one = sum(p.numel() for p in policy.adapter_parameters("developer").values())
    everything = sum(p.numel() for p in policy.base.parameters())
    assert plan.parameters == 4 * (everything - adapters * one)
    assert plan.adapters == 7 * 4 * one


@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_those_that_autograd_keeps(policy, checkpointing):
    config = policy.base.config
    text = policy.base.model.language_model
    policy.train_only("developer")
    embeds = torch.randn(ROWS, LENGTH, config.text_config.hidden_size, requires_grad=True)
    positions = torch.zeros(3, ROWS, LENGTH, dtype=torch.long)

    def run():
        return text(inputs_embeds=embeds, position_ids=positions, use_cache=False)

    planned = activation_bytes(config, ROWS, LENGTH, checkpointing, torch.float32, LORA)
    if checkpointing:
        angles = text.rotary_emb(embeds, positions)
        each = [
            kept_bytes(lambda x=x: x(embeds, position_embeddings=angles), x.parameters())
            for x in text.layers
        ]
        found = embeds.nbytes * len(text.layers) + max(each)
    else:
        found = kept_bytes(run, text.parameters())
    assert found == pytest.approx(planned, rel=0.1)


def test_the_cache_is_as_large_as_what_generation_keeps(policy, noise):
    prompt = policy.encode(prompts.developer_first(noise(64, 96)))
    with torch.no_grad():
        state = prefill(policy, [prompt] * ROWS, room=1)
    found = 0
    for layer in state.cache.layers:
        tensors = [layer.keys, layer.values] if hasattr(layer, "keys") else []
        tensors += [*getattr(layer, "conv_states", {}).values()]
        tensors += [*getattr(layer, "recurrent_states", {}).values()]
        found += sum(tensor.nbytes for tensor in tensors)
    planned = ROWS * cache_bytes(policy.base.config, len(prompt), torch.float32)
    assert found == pytest.approx(planned, rel=0.1)


@pytest.mark.parametrize("size", SHAPES)
def test_the_shapes_have_as_many_parameters_as_their_names_say(size):
    plan = plan_memory(qwen_config(size), rows=4, turns=20, prompt=100, new=100, token_budget=1000)
    assert 1 <= plan.parameters / 2e9 / float(size.removesuffix("B")) <= 1.15
    assert plan.total < 80e9
