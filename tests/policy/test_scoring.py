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


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("agent", [*AGENTS, None])
def test_a_batch_scores_as_each_sample_alone_and_as_the_plain_model(
    policy, drawn, plain_logprobs, agent, checkpointing
):
    """One to three pictures of different sizes, both kinds of layer, adapters on and off."""
    assert [len(item.prompt.images) for item in drawn] == [1, 1, 2, 3]
    assert len({len(item.prompt) + len(item.completion_ids) for item in drawn}) == 4
    logprobs, mask = score(policy, drawn, agent, checkpointing=checkpointing)
    for row, kept, item in zip(logprobs, mask, drawn, strict=True):
        alone, _ = score(policy, [item], agent, checkpointing=checkpointing)
        assert torch.allclose(row[kept], alone[0], atol=1e-4)
        with torch.no_grad(), policy.acting(agent):
            assert torch.allclose(row[kept], plain_logprobs(policy, item), atol=1e-4)


def test_the_gradient_of_a_batch_is_the_sum_of_the_plain_models(policy, drawn, plain_logprobs):
    found = gradients(policy, drawn, "critic", checkpointing=True)
    policy.model.zero_grad(set_to_none=True)
    with policy.acting("critic"):
        for item in drawn:
            plain_logprobs(policy, item).sum().backward()
    for grad, parameter in zip(found, policy.adapter_parameters("critic").values(), strict=True):
        assert parameter.grad.abs().max() > 0
        assert (grad - parameter.grad).norm() < 1e-4 * parameter.grad.norm()


def test_layouts_that_corrupt_linear_attention_would_be_noticed(policy, drawn):
    """What scoring must never do, done on purpose: each misses by more than scoring may."""
    one, other = (
        torch.cat([item.prompt.input_ids, item.completion_ids]) for item in text_only(policy)
    )
    pads = torch.full((8,), policy.pad_id)
    keep, drop = torch.ones_like(one), torch.zeros_like(pads)
    half = len(one) // 2
    gap = torch.cat([one[:half], pads, one[half:]])
    layouts = {
        "padding without its mask": (torch.cat([pads, one]), None),
        "a masked gap": (gap, torch.cat([keep[:half], drop, keep[half:]])),
        "two samples in a row": (torch.cat([other, one]), None),
    }
    right = next_logprobs(policy, one, None, None)[-5:]
    padded = torch.cat([pads, one]), torch.cat([drop, keep])
    positions = torch.cat([drop, torch.arange(len(one))])
    assert torch.allclose(next_logprobs(policy, *padded, positions)[-5:], right, atol=1e-4)
    for name, (ids, mask) in layouts.items():
        # Positions are those of the sample alone, so that the layout is all that is wrong.
        positions = torch.arange(len(ids)) - (len(ids) - len(one))
        if name == "a masked gap":
            positions = torch.cat([torch.arange(half), drop, torch.arange(half, len(one))])
        wrong = next_logprobs(policy, ids, mask, positions.clamp(min=0))[-5:]
        assert (wrong - right).abs().max() > 5e-4, name


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


def text_only(policy):
    """Two samples without pictures, of different lengths."""
    asked = [[{"role": "user", "content": text}] for text in ("Write a page " * 6, "Say DONE.")]
    settings = SamplingSettings(6, T)
    return sample(policy, [policy.encode(each) for each in asked], None, settings)


@torch.no_grad()
def next_logprobs(policy, ids, mask, positions):
    """log pi of each id of one row after those before it, by the plain language model, [T - 1]."""
    with policy.acting("developer"):
        hidden = policy.base.model.language_model(
            input_ids=ids[None],
            attention_mask=None if mask is None else mask[None],
            position_ids=None if positions is None else positions.expand(3, 1, -1),
            use_cache=False,
        ).last_hidden_state[0, :-1]
        scores = torch.log_softmax(policy.base.lm_head(hidden), dim=-1)
    return scores.gather(-1, ids[1:, None])[:, 0]


def image_of(encoded):
    """A picture of the size of the first prompt's."""
    _, rows, columns = encoded[0].image_grid_thw[0].tolist()
    return np.zeros((rows * 16, columns * 16, 3), np.uint8)


def test_token_types_of_zero_would_be_silently_wrong(policy, drawn, plain_logprobs):
    item = drawn[2]
    right, _ = score(policy, [item])
    with torch.no_grad(), policy.acting("developer"):
        zero = torch.zeros(1, len(item.prompt) + len(item.completion_ids), dtype=torch.long)
        wrong = plain_logprobs(policy, item, mm_token_type_ids=zero)
    assert (right[0] - wrong).abs().max() > 1e-3
    flat = torch.arange(len(item.prompt)).expand(3, -1)
    prompt = Prompt(item.prompt.input_ids, item.prompt.mm_token_type_ids, flat, item.prompt.images)
    assert torch.allclose(score(policy, [replace(item, prompt=prompt)])[0][0], wrong, atol=1e-4)


def test_logits_are_divided_by_the_temperature(policy, drawn, plain_logprobs):
    at, _ = score(policy, drawn[:1], temperature=2.0)
    with torch.no_grad(), policy.acting("developer"):
        assert torch.allclose(at[0], plain_logprobs(policy, drawn[0], temperature=2.0), atol=1e-4)
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


@pytest.fixture
def groups(drawn):
    """Four prompts of different lengths, three rows each, mixed, of 1 to 12 tokens."""
    lengths = (12, 3, 7, 2, 1, 5, 9, 12, 4, 1, 6, 2)
    return [
        replace(drawn[i % 4], completion_ids=drawn[0].completion_ids[:n])
        for i, n in enumerate(lengths)
    ]


@pytest.mark.parametrize("longest", [1, 2, 12])
def test_running_equal_prompts_once_changes_no_gradient(policy, groups, longest):
    policy.model.double()
    groups = [replace(s, completion_ids=s.completion_ids[:longest]) for s in groups]
    expected = gradients(policy, groups, "developer", share_prompts=False)
    assert all(grad.abs().max() > 0 for grad in expected)
    shared = gradients(policy, groups, "developer")
    for x, y in zip(shared, expected, strict=True):
        # Linear attention computes in fp32 always.
        assert (x - y).norm() < 1e-4 * y.norm()


def test_equal_prompts_are_run_once(policy, groups):
    tokens = []
    norm = policy.base.model.language_model.layers[0].input_layernorm
    hook = norm.register_forward_hook(
        lambda _, inputs, __: tokens.append(inputs[0][..., 0].numel())
    )
    prompts = [len(s.prompt) for s in groups[:4]]
    shared, mask = score(policy, groups)
    once, tokens[:] = sum(tokens), []
    apart, _ = score(policy, groups, share_prompts=False)
    hook.remove()
    assert once == 4 * max(prompts) + 12 * 11
    assert sum(tokens) == 12 * (max(prompts) + 11)
    assert torch.allclose(shared[mask], apart[mask], atol=1e-5)


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
