"""Many generations at once, from prompts of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vclib.errors import VclibError
from vclib.policy.decoding import prefill
from vclib.policy.encoding import Prompt
from vclib.policy.model import Policy

KEEP = 0.875
"""Rows that have ended leave the batch when no more than this share still generates."""

Luck = torch.Generator | Sequence[torch.Generator] | None
"""Where the uniform numbers come from: one generator, one for each prompt, or torch's own."""


@dataclass(frozen=True)
class SamplingSettings:
    """How to generate. Top-k, top-p and penalties are not offered: they would bias the gradient.

    `stop`: texts that end a generation as soon as they are written, such as "</html>".
    """

    max_new_tokens: int
    temperature: float = 0.7
    greedy: bool = False
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.temperature <= 0 or self.max_new_tokens < 1:
            raise VclibError(
                f"Cannot sample {self.max_new_tokens} tokens at temperature {self.temperature}: "
                "both must be positive; for the likeliest token set greedy=True."
            )


@dataclass(frozen=True, eq=False)
class Sample:
    """One generation.

    completion_ids: [T], with the EOS if it was sampled; text: without it; truncated: it ended by
    the limit alone; logprobs: [T], of each sampled id at `temperature` without suppressed ids. In
    bf16 the cached decoding that made them differs from a full forward (up to 0.1): there, take
    old log-probabilities from `scoring`.
    """

    agent: str | None
    prompt: Prompt
    completion_ids: Tensor
    text: str
    truncated: bool
    logprobs: Tensor
    temperature: float


@torch.no_grad()
def sample(
    policy: Policy,
    prompts: Sequence[Prompt],
    agent: str | None,
    settings: SamplingSettings,
    generator: Luck = None,
    on_end: Callable[[int, str], None] | None = None,
) -> list[Sample]:
    """Generate one completion for each prompt, in order.

    `max_new_tokens` uniform numbers a prompt are drawn (on the CPU), whether or not the row goes
    on, so that a row's luck does not depend on when the others end. With a generator for each
    prompt it does not depend on which others are in the batch either. `on_end` is called with the
    number and the text of each row that ends by itself, as soon as it does.
    """
    if not prompts:
        return []
    policy.model.eval()
    with policy.acting(agent):
        ids, logprobs, ended = _decode(policy, prompts, settings, generator, on_end)
    samples = []
    for prompt, row, scores, end in zip(prompts, ids, logprobs, ended, strict=True):
        samples.append(
            Sample(
                agent=agent,
                prompt=prompt,
                completion_ids=torch.tensor(row),
                text=_answer(policy, row),
                truncated=not end,
                logprobs=torch.tensor(scores),
                temperature=settings.temperature,
            )
        )
    return samples


def log_softmax(logits: Tensor, temperature: float, suppressed: Tensor) -> Tensor:
    """The policy's log-probabilities [..., vocab], fp32 or wider: tempered, suppressed ids -inf."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(dtype).index_fill(-1, suppressed, float("-inf"))
    return torch.log_softmax(logits / temperature, dim=-1)


def _decode(
    policy: Policy,
    prompts: Sequence[Prompt],
    settings: SamplingSettings,
    generator: Luck,
    on_end: Callable[[int, str], None] | None,
) -> tuple[list[list[int]], list[list[float]], list[bool]]:
    count = len(prompts)
    ids: list[list[int]] = [[] for _ in range(count)]
    logprobs: list[list[float]] = [[] for _ in range(count)]
    ended = [False] * count
    suppressed = policy.suppressed
    stops = StopStrings(policy, settings.stop)
    eos = set(policy.eos_ids)

    luck = _luck(generator, settings.max_new_tokens, count)
    state = prefill(policy, prompts, settings.max_new_tokens)
    rows = list(range(count))
    for step in range(settings.max_new_tokens):
        scores = log_softmax(policy.base.lm_head(state.hidden), settings.temperature, suppressed)
        chosen = scores.argmax(-1) if settings.greedy else _draw(scores, luck[step, rows])
        values = scores.gather(-1, chosen[:, None])[:, 0].tolist()
        for row, token, value in zip(rows, chosen.tolist(), values, strict=True):
            if not ended[row]:
                ids[row].append(token)
                logprobs[row].append(value)
                ended[row] = token in eos or stops.reached(ids[row])
                if ended[row] and on_end:
                    on_end(row, _answer(policy, ids[row]))
        live = [i for i, row in enumerate(rows) if not ended[row]]
        if not live or step + 1 == settings.max_new_tokens:
            break
        # Dropping rows copies the cache, so it waits until it saves enough.
        if len(live) <= KEEP * len(rows):
            index = torch.tensor(live, device=policy.device)
            state.select(index)
            chosen, rows = chosen[index], [rows[i] for i in live]
        state.advance(policy, chosen)
    return ids, logprobs, ended


def _luck(generator: Luck, steps: int, count: int) -> Tensor:
    """Uniform numbers, [steps, count]."""
    if generator is None or isinstance(generator, torch.Generator):
        return torch.rand(steps, count, generator=generator, dtype=torch.float64)
    return torch.stack([torch.rand(steps, generator=g, dtype=torch.float64) for g in generator], 1)


def _draw(scores: Tensor, uniform: Tensor) -> Tensor:
    """One draw a row [rows] from log-probabilities [rows, vocab], by inverting the sum."""
    cumulative = scores.double().exp().cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    drawn = torch.searchsorted(cumulative, uniform.to(scores.device)[:, None] * total, right=True)
    # Rounding may carry the product up to the total; the last id that can be drawn reaches it.
    return torch.minimum(drawn, torch.searchsorted(cumulative, total))[:, 0]


class StopStrings:
    """Tells when a row of ids has just written one of some texts."""

    def __init__(self, policy: Policy, stops: tuple[str, ...]) -> None:
        self.policy = policy
        self.stops = stops
        self._pieces: dict[int, str] = {}

    def reached(self, ids: list[int]) -> bool:
        """True if the last token of `ids` completes a stop text; earlier ones did not."""
        if not self.stops:
            return False
        piece = self._pieces.get(ids[-1])
        if piece is None:
            piece = self._pieces[ids[-1]] = _text(self.policy, ids[-1:])
        for stop in self.stops:
            # Every token spells at least one byte, so the text lies within as many last tokens.
            if stop[-1] in piece and stop in _text(self.policy, ids[-len(stop) :]):
                return True
        return False


def _answer(policy: Policy, ids: list[int]) -> str:
    return _text(policy, ids[:-1] if ids[-1] in policy.eos_ids else ids)


def _text(policy: Policy, ids: list[int]) -> str:
    return policy.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
