"""Log-probabilities of sampled ids under the policy, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from vclib.policy.decoding import prefill
from vclib.policy.encoding import by_length
from vclib.policy.model import Policy
from vclib.policy.sampling import Sample, log_softmax


def sequence_logprobs(
    policy: Policy,
    samples: Sequence[Sample],
    agent: str | None,
    *,
    temperature: float,
    with_entropy: bool = False,
    checkpointing: bool = False,
    share_prompts: bool = True,
    chunk: int = 1024,
) -> tuple[Tensor, ...]:
    """log pi of every sampled id under its own prompt, with that prompt's images.

    Returns logprobs [batch, T] (0 where masked) and mask [batch, T] (True up to the first EOS),
    and with `with_entropy` also the policy's entropy [batch, T] in nats, without gradient.
    Dropout is off. `checkpointing` computes activations twice to keep few; without it, and with
    `share_prompts`, equal prompts are run once where at least half of them are repeated. Logits
    are made for generated positions only, `chunk` at a time, and made again in the backward pass.
    """
    policy.model.eval()
    lengths = [_scored_length(sample, policy.eos_ids) for sample in samples]
    targets = torch.cat([s.completion_ids[:n] for s, n in zip(samples, lengths, strict=True)])
    share = share_prompts and not checkpointing and 2 * _different(samples) <= len(samples)
    with policy.acting(agent), _recomputing(policy, agent, checkpointing):
        hidden = (_hidden_after_prompts if share else _hidden_before)(policy, samples, lengths)
        score = _Scorer(policy, temperature, with_entropy)
        chunks = zip(hidden.split(chunk), targets.to(policy.device).split(chunk), strict=True)
        pieces = [checkpoint(score, *pair, use_reentrant=False) for pair in chunks]
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    mask = mask.to(policy.device)
    logprobs, *entropy = (
        values.new_zeros(mask.shape).masked_scatter(mask, values)
        for values in map(torch.cat, zip(*pieces, strict=True))
    )
    return logprobs, mask, *entropy


def micro_batches(samples: Sequence[Sample], token_budget: int) -> list[list[int]]:
    """Indices of samples of like length, in batches of at most `token_budget` tokens, or one."""
    return by_length([len(s.prompt) + len(s.completion_ids) for s in samples], token_budget)


def _scored_length(sample: Sample, eos_ids: list[int]) -> int:
    ends = torch.isin(sample.completion_ids, torch.tensor(eos_ids)).nonzero()
    return int(ends[0]) + 1 if len(ends) else len(sample.completion_ids)


def _hidden_before(policy: Policy, samples: Sequence[Sample], lengths: list[int]) -> Tensor:
    """The hidden states that predict each scored id, [sum of lengths, hidden].

    Rows are prompt and completion without a gap, padded on the right: what follows a position
    cannot touch it, in full attention or linear, so no mask is needed.
    """
    sizes = [len(s.prompt) + n - 1 for s, n in zip(samples, lengths, strict=True)]
    input_ids = torch.full((len(samples), max(sizes)), policy.pad_id)
    position_ids = torch.zeros(3, len(samples), max(sizes), dtype=torch.long)
    predicts = torch.zeros(len(samples), max(sizes), dtype=torch.bool)
    for row, (item, size) in enumerate(zip(samples, sizes, strict=True)):
        start = len(item.prompt)
        input_ids[row, :start] = item.prompt.input_ids
        input_ids[row, start:size] = item.completion_ids[: size - start]
        position_ids[:, row, :start] = item.prompt.position_ids
        position_ids[:, row, start:size] = item.prompt.next_position + torch.arange(size - start)
        predicts[row, start - 1 : size] = True
    output = policy.base.model.language_model(
        inputs_embeds=policy.embed(input_ids.to(policy.device), [s.prompt for s in samples]),
        position_ids=position_ids.to(policy.device),
        use_cache=False,
    )
    return output.last_hidden_state[predicts.to(policy.device)]


def _different(samples: Sequence[Sample]) -> int:
    return len({sample.prompt.key for sample in samples})


def _hidden_after_prompts(policy: Policy, samples: Sequence[Sample], lengths: list[int]) -> Tensor:
    """What `_hidden_before` gives: each prompt is run once, and its rows go on from its state."""
    state = prefill(policy, [s.prompt for s in samples], room=0)
    # One token alone would be taken for a step of decoding, which writes over states.
    width = max(max(lengths) - 1, 2)
    input_ids = torch.full((len(samples), width), policy.pad_id)
    for row, (item, n) in enumerate(zip(samples, lengths, strict=True)):
        input_ids[row, : n - 1] = item.completion_ids[: n - 1]
    positions = state.position[:, None] + torch.arange(width, device=policy.device)
    output = policy.base.model.language_model(
        inputs_embeds=policy.base.get_input_embeddings()(input_ids.to(policy.device)),
        position_ids=positions.expand(3, -1, -1),
        attention_mask=pad(state.mask, (0, width), value=1),
        cache=state.cache,
        use_cache=True,
    )
    hidden = torch.cat([state.hidden[:, None], output.last_hidden_state], dim=1)
    predicts = torch.arange(width + 1)[None] < torch.tensor(lengths)[:, None]
    return hidden[predicts.to(policy.device)]


class _Scorer:
    """Log-probabilities, and entropies if wanted, of ids [n] from the states [n, hidden] before."""

    def __init__(self, policy: Policy, temperature: float, with_entropy: bool) -> None:
        self.lm_head = policy.base.lm_head
        self.suppressed = policy.suppressed
        self.temperature = temperature
        self.with_entropy = with_entropy

    def __call__(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        scores = log_softmax(self.lm_head(hidden), self.temperature, self.suppressed)
        logprobs = scores.gather(-1, targets[:, None])[:, 0]
        if not self.with_entropy:
            return (logprobs,)
        with torch.no_grad():
            return logprobs, torch.special.entr(scores.exp()).sum(-1)


@contextmanager
def _recomputing(policy: Policy, agent: str | None, on: bool) -> Iterator[None]:
    """Checkpoint each layer; a layer does so in train mode only, its children stay in eval mode."""

    def run(layer_forward: Callable[..., Tensor], *args: Tensor) -> Tensor:
        def forward(*args: Tensor) -> Tensor:
            # The backward pass comes here again, when another adapter may be switched on.
            with nullcontext() if policy.agent == agent else policy.acting(agent):
                return layer_forward(*args)

        return checkpoint(forward, *args, use_reentrant=False)

    layers = policy.base.model.language_model.layers
    for layer in layers:
        layer.training = layer.gradient_checkpointing = on
        layer._gradient_checkpointing_func = run
    try:
        yield
    finally:
        for layer in layers:
            layer.training = layer.gradient_checkpointing = False
