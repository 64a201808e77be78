"""The policy-gradient loss, and its gradient over a batch of turns, one micro-batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vclib.policy.model import Policy
from vclib.policy.sampling import Sample
from vclib.policy.scoring import micro_batches, sequence_logprobs
from vclib.rl.profiles import TrainSettings
from vclib.rl.runlog import Meter


def token_weights(
    mask: Tensor, aggregation: str, *, turns: int, tokens: int, limit: int = 1
) -> Tensor:
    """Weight of each token in the loss of the whole update, zero on padding.

    `mask` is [batch, T]; `turns` and `tokens` count the whole update, of which this batch is a
    part, so that the micro-batches' losses add up to the mean; `limit` is the longest that a turn
    may be. In TRL's names (`loss_type`):

    - "turn" (`grpo`): the mean over a turn's tokens, then over turns (arXiv:2402.03300).
    - "token" (`dapo`): the mean over all tokens (arXiv:2503.14476).
    - "limit" (`dr_grpo`): a turn's sum over `limit`, then the mean over turns (arXiv:2503.20783).
    """
    weights = mask.float()
    if aggregation == "token":
        return weights / tokens
    if aggregation == "limit":
        return weights / limit / turns
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=1) / turns


def policy_loss(
    logprobs: Tensor,
    weights: Tensor,
    advantages: Tensor,
    *,
    old_logprobs: Tensor | None = None,
    clip_ratio: float | None = None,
    base_logprobs: Tensor | None = None,
    kl_beta: float = 0.0,
) -> Tensor:
    """Σ weights · (-A · log π), a scalar.

    `logprobs`, `weights`, `old_logprobs`, `base_logprobs` are [batch, T]; `advantages` [batch].
    With `clip_ratio` ε: -min(r·A, clip(r, 1-ε, 1+ε)·A), r = exp(log π - log π_old)
    (PPO, arXiv:1707.06347, equation 7). With `kl_beta` β, plus β · (e^δ - δ - 1),
    δ = log π_base - log π (GRPO, arXiv:2402.03300, equation 4).
    """
    advantages = advantages[:, None]
    if clip_ratio is None:
        loss = -advantages * logprobs
    else:
        assert old_logprobs is not None, "a ratio needs the log-probabilities before the update"
        ratio = torch.exp(logprobs - old_logprobs)
        clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
        loss = -torch.minimum(ratio * advantages, clipped * advantages)
    if kl_beta:
        assert base_logprobs is not None, "the divergence needs the base's log-probabilities"
        delta = base_logprobs - logprobs
        loss = loss + kl_beta * (torch.exp(delta) - delta - 1)
    return (weights * loss).sum()


@dataclass
class BackwardReport:
    """What one pass over the turns of an agent added up."""

    loss: float = 0.0
    entropy_sum: float = 0.0
    tokens: int = 0
    old_logprobs: dict[int, Tensor] = field(default_factory=dict)


def backward(
    policy: Policy,
    samples: Sequence[Sample],
    advantages: Sequence[float],
    agent: str,
    settings: TrainSettings,
    *,
    turns: int,
    tokens: int,
    old_logprobs: dict[int, Tensor] | None = None,
    scale: float = 1.0,
    share_prompts: bool = True,
    meter: Meter | None = None,
) -> BackwardReport:
    """Add the gradient of the loss over `samples`, times `scale`, to the adapter of `agent`.

    The graph of one micro-batch is alive at a time, so that memory does not grow with the number
    of turns. `turns` and `tokens` are the counts that the loss is a mean over (`token_weights`).
    `old_logprobs` maps the index of a sample to its log-probabilities [T] before the first step;
    None on the first pass, whose own they are: the report hands them back. They come from the
    same forward as the new ones, for in low precision cached decoding gives slightly others.
    """
    meter = meter or Meter()
    report = BackwardReport(old_logprobs=dict(old_logprobs or {}))
    for indices in micro_batches(samples, settings.token_budget):
        batch = [samples[i] for i in indices]
        with meter.stage("score"):
            base_logprobs = None
            if settings.kl_beta:
                with torch.no_grad():
                    base_logprobs, _ = sequence_logprobs(
                        policy,
                        batch,
                        None,
                        temperature=settings.temperature,
                        share_prompts=share_prompts,
                    )
            logprobs, mask, entropy = sequence_logprobs(
                policy,
                batch,
                agent,
                temperature=settings.temperature,
                with_entropy=True,
                checkpointing=settings.gradient_checkpointing,
                share_prompts=share_prompts,
            )
        if old_logprobs is None:
            for i, row, kept in zip(indices, logprobs.detach(), mask, strict=True):
                report.old_logprobs[i] = row[kept]
        old = [report.old_logprobs[i] for i in indices]
        loss = policy_loss(
            logprobs,
            token_weights(
                mask,
                settings.loss_aggregation,
                turns=turns,
                tokens=tokens,
                limit=settings.token_limit(agent),
            ),
            torch.tensor([advantages[i] for i in indices], device=logprobs.device),
            old_logprobs=nn.utils.rnn.pad_sequence(old, batch_first=True),
            clip_ratio=settings.clip_ratio,
            base_logprobs=base_logprobs,
            kl_beta=settings.kl_beta,
        )
        with meter.stage("update"):
            (loss * scale).backward()
        report.loss += loss.item()
        report.entropy_sum += entropy.sum().item()
        report.tokens += int(mask.sum())
    return report
