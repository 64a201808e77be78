from dataclasses import replace

import pytest
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vclib.errors import VclibError
from vclib.policy import decoding, prompts
from vclib.policy.decoding import RoomyLayer
from vclib.policy.model import AGENTS
from vclib.policy.sampling import SamplingSettings, sample
from vclib.policy.scoring import sequence_logprobs

ENDS_SOON = 1 / 6
"""The share of ids that end a turn, where a test wants rows of different lengths."""


@pytest.fixture
def ends_soon(policy):
    """Rows end at different steps, for each sixth id ends a turn."""
    vocab = policy.base.config.text_config.vocab_size
    ends = torch.randperm(vocab, generator=torch.Generator().manual_seed(9))
    policy.eos_ids = ends[: int(vocab * ENDS_SOON)].tolist()


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("agent", [*AGENTS, None])
def test_sampled_log_probabilities_are_the_scored_ones(
    policy, encoded, seeded, agent, ends_soon, checkpointing
):
    drawn = sample(policy, encoded * 3, agent, SamplingSettings(24), seeded(0))
    lengths = {len(s.completion_ids) for s in drawn}
    assert len(lengths) > 3
    with torch.no_grad():
        logprobs, mask = sequence_logprobs(
            policy, drawn, agent, temperature=drawn[0].temperature, checkpointing=checkpointing
        )
    for row, kept, one in zip(logprobs, mask, drawn, strict=True):
        assert torch.allclose(row[kept], one.logprobs, atol=1e-4)


@pytest.mark.parametrize("agent", ["developer", None])
def test_a_row_is_the_same_in_a_batch_and_alone(policy, encoded, seeded, agent, ends_soon):
    settings = SamplingSettings(24)
    luck = [seeded(i) for i in range(8)]
    batch = sample(policy, encoded * 2, agent, settings, luck)
    for i, (prompt, together) in enumerate(zip(encoded * 2, batch, strict=True)):
        (alone,) = sample(policy, [prompt], agent, settings, [seeded(i)])
        assert torch.equal(alone.completion_ids, together.completion_ids)
        assert torch.allclose(alone.logprobs, together.logprobs, atol=1e-4)


def test_rows_of_prompts_run_in_small_batches_are_the_same(policy, encoded, seeded, monkeypatch):
    settings = SamplingSettings(12)
    together = sample(policy, encoded * 2, "critic", settings, seeded(0))
    monkeypatch.setattr(decoding, "PREFILL_TOKENS", {"cpu": 1})
    apart = sample(policy, encoded * 2, "critic", settings, seeded(0))
    for one, other in zip(together, apart, strict=True):
        assert torch.equal(one.completion_ids, other.completion_ids)
        assert torch.allclose(one.logprobs, other.logprobs, atol=1e-4)


def test_greedy_writes_what_transformers_generate_writes(policy, encoded):
    drawn = sample(policy, encoded, "developer", SamplingSettings(16, greedy=True))
    for one in drawn:
        with policy.acting("developer"):
            expected = policy.base.generate(
                input_ids=one.prompt.input_ids[None],
                attention_mask=torch.ones_like(one.prompt.input_ids)[None],
                mm_token_type_ids=one.prompt.mm_token_type_ids[None],
                pixel_values=one.prompt.pixel_values,
                image_grid_thw=one.prompt.image_grid_thw,
                do_sample=False,
                max_new_tokens=16,
                suppress_tokens=policy.suppressed_ids,
                eos_token_id=policy.eos_ids,
            )
        assert torch.equal(one.completion_ids, expected[0, len(one.prompt) :])


def test_the_same_seed_gives_the_same_samples_bit_for_bit(policy, encoded, seeded):
    first, again, other = (
        sample(policy, encoded, "developer", SamplingSettings(12), seeded(s)) for s in (7, 7, 8)
    )
    for one, same in zip(first, again, strict=True):
        assert torch.equal(one.completion_ids, same.completion_ids)
        assert torch.equal(one.logprobs, same.logprobs)
    assert any(
        not torch.equal(one.completion_ids, different.completion_ids)
        for one, different in zip(first, other, strict=True)
    )


def test_draws_follow_the_probabilities(policy, encoded, seeded):
    count = 3000
    drawn = sample(policy, [encoded[0]] * count, None, SamplingSettings(1, 1.0), seeded(0))
    ids = torch.tensor([int(s.completion_ids[0]) for s in drawn])
    seen = torch.bincount(ids, minlength=policy.base.config.text_config.vocab_size) / count
    probabilities = {int(s.completion_ids[0]): float(s.logprobs[0].exp()) for s in drawn}
    for token, p in sorted(probabilities.items(), key=lambda item: -item[1])[:5]:
        assert abs(float(seen[token]) - p) < 5 * (p / count) ** 0.5


def test_a_group_shares_one_run_of_its_prompt_and_its_rollouts_differ(policy, encoded, seeded):
    rows = []
    hook = policy.base.model.language_model.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(kwargs["inputs_embeds"].shape[:2]),
        with_kwargs=True,
    )
    drawn = sample(policy, [encoded[0]] * 6, "developer", SamplingSettings(8), seeded(0))
    hook.remove()
    assert rows[0] == (1, len(encoded[0])) and rows[1] == (6, 1)
    assert len({tuple(s.completion_ids.tolist()) for s in drawn}) == 6


def test_suppressed_ids_are_never_sampled_though_the_model_wants_them(policy, encoded, seeded):
    # So hot that ids are nearly equal in probability: thousands of draws would hit each.
    drawn = sample(policy, encoded * 12, None, SamplingSettings(60, 50.0), seeded(0))
    ids = torch.cat([s.completion_ids for s in drawn])
    assert len(ids) > 1000
    assert not torch.isin(ids, torch.tensor(policy.suppressed_ids)).any()
    wanted = drawn[0].completion_ids[0].item()
    policy.suppressed_ids = sorted({*policy.suppressed_ids, wanted})
    (again,) = sample(policy, encoded[:1], None, SamplingSettings(1, greedy=True))
    assert again.completion_ids[0] != wanted


def test_every_eos_id_ends_a_row_and_is_kept_once(policy, encoded, seeded, ends_soon):
    drawn = sample(policy, encoded * 4, None, SamplingSettings(24), seeded(1))
    ended = [s for s in drawn if not s.truncated]
    assert len({int(s.completion_ids[-1]) for s in ended}) > 2
    eos = torch.tensor(policy.eos_ids)
    for one in ended:
        assert torch.isin(one.completion_ids, eos).nonzero().tolist() == [
            [len(one.completion_ids) - 1]
        ]
        assert one.text == policy.tokenizer.decode(one.completion_ids[:-1])


def test_a_row_that_ends_by_the_limit_alone_is_truncated(policy, encoded, seeded):
    policy.eos_ids = []
    drawn = sample(policy, encoded, None, SamplingSettings(5), seeded(0))
    assert all(s.truncated and len(s.completion_ids) == len(s.logprobs) == 5 for s in drawn)


def test_a_stop_text_ends_a_row_within_one_token_or_over_several(policy, encoded, seeded):
    policy.eos_ids = []
    settings = SamplingSettings(20)
    (free,) = sample(policy, encoded[:1], None, settings, seeded(2))
    pieces = [policy.tokenizer.decode(i) for i in free.completion_ids]
    for stop in (pieces[9], pieces[9] + pieces[10], pieces[7] + pieces[8] + pieces[9]):
        (one,) = sample(policy, encoded[:1], None, replace(settings, stop=(stop,)), seeded(2))
        length = len(one.completion_ids)
        assert not one.truncated and stop in one.text
        assert torch.equal(one.completion_ids, free.completion_ids[:length])
        assert stop not in policy.tokenizer.decode(free.completion_ids[: length - 1])


def test_the_generation_config_of_a_model_does_not_leak_into_sampling(policy, encoded, seeded):
    expected = sample(policy, encoded, None, SamplingSettings(10), seeded(0))
    config = policy.base.generation_config
    kept = dict(vars(config))
    config.update(top_k=1, top_p=0.1, repetition_penalty=9.0, temperature=0.01, do_sample=True)
    drawn = sample(policy, encoded, None, SamplingSettings(10), seeded(0))
    vars(config).update(kept)
    for one, other in zip(drawn, expected, strict=True):
        assert torch.equal(one.completion_ids, other.completion_ids)


def test_training_mode_and_checkpointing_leave_sampling_as_it_is(policy, encoded, seeded):
    expected = sample(policy, encoded, "critic", SamplingSettings(8), seeded(0))
    policy.train_only("critic")
    sequence_logprobs(policy, expected, "critic", temperature=1.0, checkpointing=True)
    policy.model.train()
    # In train mode with checkpointing, transformers turns the cache off without an error.
    policy.base.gradient_checkpointing_enable()
    widths = []
    hook = policy.base.model.language_model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["inputs_embeds"].shape[1]),
        with_kwargs=True,
    )
    drawn = sample(policy, encoded, "critic", SamplingSettings(8), seeded(0))
    hook.remove()
    policy.base.gradient_checkpointing_disable()
    assert widths.count(1) == 7
    for one, other in zip(drawn, expected, strict=True):
        assert torch.equal(one.logprobs, other.logprobs)
        assert not one.logprobs.requires_grad


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"temperature": -1.0}])
def test_a_temperature_that_cannot_be_sampled_at_is_refused(wrong):
    with pytest.raises(VclibError, match="greedy"):
        SamplingSettings(8, **wrong)
    with pytest.raises(VclibError, match="0 tokens"):
        SamplingSettings(0)


def test_no_prompts_make_no_samples(policy):
    assert sample(policy, [], "developer", SamplingSettings(4)) == []


def test_the_layer_with_room_holds_what_the_stock_layer_holds(seeded):
    generator = seeded(0)
    stock, roomy = DynamicLayer(), RoomyLayer(room=2)

    def append(rows, tokens):
        states = torch.randn(2, rows, 2, tokens, 3, generator=generator)
        for one, other in zip(stock.update(*states), roomy.update(*states), strict=True):
            assert torch.equal(one, other)

    append(4, 5)
    for _ in range(4):
        append(4, 1)
    for layer in (stock, roomy):
        layer.reorder_cache(torch.tensor([0, 3, 3]))
    for _ in range(4):
        append(3, 1)
    assert roomy.get_seq_length() == stock.get_seq_length() == 13


def test_a_language_model_with_other_caches_would_be_noticed(policy):
    kinds = {type(layer).__name__ for layer in DynamicCache(config=policy.base.config).layers}
    assert kinds == {"DynamicLayer", "LinearAttentionLayer"}


def test_only_what_follows_the_thought_is_the_answer():
    assert prompts.answer_of("<think>DONE</think>\n\nrow 1") == "row 1"
    assert prompts.answer_of("row 1") == "row 1"
