from dataclasses import replace

import numpy as np
import pytest
import torch

from vclib.policy.encoding import Prompt
from vclib.policy.model import AGENTS, LoraSettings, Policy
from vclib.policy.sampling import SamplingSettings, sample
from vclib.policy.scoring import micro_batches, sequence_logprobs

T = 0.7


@pytest.fixture
def drawn(policy, encoded, seeded):
    """Completions of 1 to 12 tokens to prompts of different lengths and pictures."""
    samples = sample(policy, encoded, "developer", SamplingSettings(12, T), seeded(0))
    return [
        replace(s, completion_ids=s.completion_ids[:n])
        for s, n in zip(samples, (12, 1, 7, 4), strict=True)
    ]


def score(policy, samples, agent="developer", temperature=T, **options):
    with torch.no_grad():
        return sequence_logprobs(policy, samples, agent, temperature=temperature, **options)


def plain_logprobs(policy, item, temperature=T, **changed):
    """The slow and sure way: the whole model on one row as the processor makes it."""
    ids = torch.cat([item.prompt.input_ids, item.completion_ids])[None]
    types = torch.nn.functional.pad(item.prompt.mm_token_type_ids, (0, len(item.completion_ids)))
    inputs = {
        "pixel_values": item.prompt.pixel_values,
        "image_grid_thw": item.prompt.image_grid_thw,
        "mm_token_type_ids": types[None],
        **changed,
    }
    logits = policy.model(input_ids=ids, **inputs).logits[0, len(item.prompt) - 1 : -1]
    logits[:, policy.suppressed_ids] = float("-inf")
    scores = torch.log_softmax(logits / temperature, dim=-1)
    return scores.gather(-1, item.completion_ids[:, None])[:, 0]


@pytest.mark.parametrize("agent", [*AGENTS, None])
def test_a_batch_scores_as_each_sample_alone_and_as_the_plain_model(policy, drawn, agent):
    logprobs, mask = score(policy, drawn, agent)
    for row, kept, item in zip(logprobs, mask, drawn, strict=True):
        alone, _ = score(policy, [item], agent)
        assert torch.allclose(row[kept], alone[0], atol=1e-4)
        with torch.no_grad(), policy.acting(agent):
            assert torch.allclose(row[kept], plain_logprobs(policy, item), atol=1e-4)


def test_the_mask_covers_the_completions_and_the_rest_is_zero(policy, drawn):
    logprobs, mask = score(policy, drawn)
    assert mask.dtype is torch.bool and mask.sum(1).tolist() == [12, 1, 7, 4]
    assert (logprobs[~mask] == 0).all() and (logprobs[mask] < 0).all()


def test_the_first_eos_is_scored_and_what_follows_is_masked(policy, drawn):
    eos, other = policy.eos_ids[0], policy.eos_ids[1]
    ended = torch.cat([drawn[0].completion_ids[:3], torch.tensor([other])])
    junk = torch.cat([ended, torch.tensor([eos, 50, 51, other])])
    logprobs, mask = score(policy, [replace(drawn[0], completion_ids=ids) for ids in (ended, junk)])
    assert mask.tolist() == [[True] * 4] * 2
    assert torch.equal(logprobs[0], logprobs[1])


def test_the_pictures_matter(policy, drawn, encoded):
    item = drawn[0]
    right, _ = score(policy, [item])
    other = policy.encode(
        [{"role": "user", "content": [{"type": "image", "image": 255 - image_of(encoded)}]}]
    ).images
    blind, _ = score(policy, [replace(item, prompt=replace(item.prompt, images=other))])
    assert (right - blind).abs().max() > 1e-3


def image_of(encoded):
    """A picture of the size of the first prompt's."""
    _, rows, columns = encoded[0].image_grid_thw[0].tolist()
    return np.zeros((rows * 16, columns * 16, 3), np.uint8)


def test_token_types_of_zero_would_be_silently_wrong(policy, drawn):
    item = drawn[2]
    right, _ = score(policy, [item])
    with torch.no_grad(), policy.acting("developer"):
        zero = torch.zeros(1, len(item.prompt) + len(item.completion_ids), dtype=torch.long)
        wrong = plain_logprobs(policy, item, mm_token_type_ids=zero)
    assert (right[0] - wrong).abs().max() > 1e-3
    flat = torch.arange(len(item.prompt)).expand(3, -1)
    prompt = Prompt(item.prompt.input_ids, item.prompt.mm_token_type_ids, flat, item.prompt.images)
    assert torch.allclose(score(policy, [replace(item, prompt=prompt)])[0][0], wrong, atol=1e-4)


def test_logits_are_divided_by_the_temperature(policy, drawn):
    at, _ = score(policy, drawn[:1], temperature=2.0)
    with torch.no_grad(), policy.acting("developer"):
        assert torch.allclose(at[0], plain_logprobs(policy, drawn[0], 2.0), atol=1e-4)
    assert (at - score(policy, drawn[:1], temperature=1.0)[0]).abs().max() > 1e-2


def test_only_generated_positions_get_logits_and_in_chunks(policy, drawn):
    sizes = []
    hook = policy.base.lm_head.register_forward_hook(lambda m, i, out: sizes.append(len(out)))
    expected, _ = score(policy, drawn)
    assert sum(sizes) == 12 + 1 + 7 + 4
    sizes.clear()
    chunked, _ = score(policy, drawn, chunk=5)
    hook.remove()
    assert sizes == [5, 5, 5, 5, 4]
    assert torch.allclose(chunked, expected, atol=1e-6)


def gradients(policy, drawn, agent, **options):
    policy.train_only(agent)
    policy.model.zero_grad(set_to_none=True)
    logprobs, _ = sequence_logprobs(policy, drawn, agent, temperature=T, **options)
    logprobs.sum().backward()
    return [p.grad.clone() for p in policy.adapter_parameters(agent).values()]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("options", [{"checkpointing": True}, {"chunk": 3}])
def test_saving_memory_changes_no_gradient(policy, drawn, agent, options):
    policy.model.double()
    # The backward pass runs after this adapter was switched on again.
    assert policy.agent == "developer"
    expected = gradients(policy, drawn, agent)
    assert all(grad.abs().max() > 0 for grad in expected)
    saved = gradients(policy, drawn, agent, **options)
    assert all(torch.allclose(x, y, atol=1e-9) for x, y in zip(saved, expected, strict=True))


def test_checkpointing_computes_the_layers_again(policy, drawn):
    runs = []
    norm = policy.base.model.language_model.layers[0].input_layernorm
    hook = norm.register_forward_hook(lambda *_: runs.append(1))
    gradients(policy, drawn, "critic", checkpointing=True)
    assert len(runs) == 2
    gradients(policy, drawn, "critic")
    hook.remove()
    assert len(runs) == 3


def test_gradients_agree_with_finite_differences(policy, drawn, seeded):
    policy.model.double()
    grads = gradients(policy, drawn, "developer")
    parameters = list(policy.adapter_parameters("developer").values())
    step = 1e-4
    for grad, parameter in list(zip(grads, parameters, strict=True))[::3]:
        noise = torch.randn(
            parameter.shape, generator=seeded(parameter.numel()), dtype=torch.float64
        )
        direction = grad / grad.norm() + noise / noise.norm()
        sums = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step * direction)
                sums.append(score(policy, drawn)[0].sum().item())
                parameter.sub_(sign * step * direction)
        difference = (sums[0] - sums[1]) / (2 * step)
        # Norms and linear attention compute in fp32 always: that bounds how well this is known.
        assert difference == pytest.approx((grad * direction).sum().item(), rel=2e-3, abs=5e-3)


def test_dropout_is_off_where_log_probabilities_are_compared(model_folder, drawn):
    policy = Policy.load(model_folder, lora=LoraSettings(r=4, dropout=0.5), device="cpu")
    with torch.no_grad():
        for name, parameter in policy.adapter_parameters("developer").items():
            if "lora_B" in name:
                parameter.fill_(0.1)
    policy.train_only("developer")
    first, _ = score(policy, drawn)
    policy.model.train()
    for checkpointing in (False, True):
        again, _ = sequence_logprobs(
            policy, drawn, "developer", temperature=T, checkpointing=checkpointing
        )
        assert torch.allclose(again, first, atol=1e-6)


def test_entropy_is_that_of_the_policy_and_carries_no_gradient(policy, drawn):
    policy.train_only("developer")
    logprobs, mask, entropy = sequence_logprobs(
        policy, drawn, "developer", temperature=T, with_entropy=True
    )
    assert logprobs.requires_grad and not entropy.requires_grad
    allowed = policy.base.config.text_config.vocab_size - len(policy.suppressed_ids)
    assert (entropy[mask] > 0).all() and (entropy[mask] <= torch.log(torch.tensor(allowed))).all()
    hot = score(policy, drawn, temperature=1e4, with_entropy=True)[2]
    assert torch.allclose(hot[mask], torch.log(torch.tensor(float(allowed))), atol=1e-3)


def test_micro_batches_hold_every_sample_once_within_the_budget(drawn):
    lengths = [len(s.prompt) + len(s.completion_ids) for s in drawn]
    budget = 2 * sorted(lengths)[1]
    batches = micro_batches(drawn, budget)
    assert sorted(i for batch in batches for i in batch) == [0, 1, 2, 3]
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= budget
