"""The optimizer steps of an update, the same for one process and for many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor

from vclib.policy.model import Policy
from vclib.policy.sampling import Sample
from vclib.policy.scoring import micro_batches
from vclib.rl.episodes import Episode, Turn
from vclib.rl.loss import backward
from vclib.rl.profiles import AGENTS, TrainSettings
from vclib.rl.runlog import Meter

HALF_PRECISION_SCALE = 1024.0
"""In fp16 the loss is first multiplied by this, for small gradients would be rounded to 0."""


@dataclass
class Learned:
    """What the steps of one update report, over all processes.

    `loss` is summed over agents and averaged over epochs; `grad_norm` is the largest, before
    clipping; `entropy` is in nats a token; `skipped_steps` counts the optimizer steps left out
    because nothing was to be learnt or the gradient was not finite.
    """

    loss: float = 0.0
    grad_norm: float = 0.0
    entropy: float = 0.0
    skipped_steps: int = 0


class Learner:
    """Two AdamW, one for each adapter: a step of one never touches the other.

    With several processes each brings its own turns; the counts that the loss is a mean over and
    the gradients are summed over processes, so that all take the step that one process with all
    the turns would take. With `in_step` all run the layers equally often, as processes that share
    the model's weights must (`vclib.policy.sharding`).
    """

    def __init__(
        self,
        policy: Policy,
        settings: TrainSettings,
        accelerator: Accelerator,
        in_step: bool = False,
    ) -> None:
        self.policy, self.settings, self.accelerator = policy, settings, accelerator
        self.in_step = in_step
        self.scale = HALF_PRECISION_SCALE if policy.base.dtype == torch.float16 else 1.0
        self.optimizers = {
            agent: torch.optim.AdamW(
                policy.adapter_parameters(agent).values(),
                lr=settings.learning_rate,
                weight_decay=settings.weight_decay,
            )
            for agent in AGENTS
        }

    def learn(
        self, groups: Sequence[Sequence[Episode]], agents: Sequence[str], meter: Meter
    ) -> Learned:
        """Train the adapters of `agents` on their own turns, whose `advantage` is set."""
        learned = Learned()
        old_logprobs: dict[str, dict[int, Tensor]] = {}
        for _ in range(self.settings.epochs_per_batch):
            for agent in agents:
                turns = [
                    turn
                    for group in groups
                    for episode in group
                    for turn in episode.turns
                    if turn.agent == agent
                ]
                before = self._step(agent, turns, old_logprobs.get(agent), learned, meter)
                old_logprobs.setdefault(agent, before)
        return learned

    def _step(
        self,
        agent: str,
        turns: Sequence[Turn],
        old_logprobs: dict[int, Tensor] | None,
        learned: Learned,
        meter: Meter,
    ) -> dict[int, Tensor]:
        """One optimizer step of one adapter; returns the log-probabilities before the first."""
        settings, policy = self.settings, self.policy
        # A turn of a silent group counts in the mean, but has no gradient: it is not run at all.
        speaking = [turn for turn in turns if turn.advantage]
        tokens = sum(len(turn.sample.completion_ids) for turn in turns)
        all_turns, all_tokens, all_speaking = self._sum(len(turns), tokens, len(speaking))
        if not all_speaking:
            learned.skipped_steps += 1
            return {}
        policy.train_only(agent)
        samples = [turn.sample for turn in speaking]
        missing = self._missing(samples)
        while True:
            self.optimizers[agent].zero_grad(set_to_none=True)
            report = backward(
                policy,
                samples,
                [turn.advantage or 0.0 for turn in speaking],
                agent,
                settings,
                turns=int(all_turns),
                tokens=int(all_tokens),
                old_logprobs=old_logprobs,
                scale=self.scale,
                share_prompts=not self.in_step,
                meter=meter,
            )
            for _ in range(missing):
                backward(policy, [turns[0].sample], [0.0], agent, settings, turns=1, tokens=1)
            with meter.stage("update"):
                norm = self._apply(agent)
            if math.isfinite(norm) or self.scale == 1.0:
                break
            self.scale = max(1.0, self.scale / 8)  # the scaled gradient overflowed: once more
        learned.skipped_steps += not math.isfinite(norm)
        loss, entropy_sum, scored = self._sum(report.loss, report.entropy_sum, report.tokens)
        learned.loss += loss / settings.epochs_per_batch
        learned.entropy = entropy_sum / max(scored, 1)
        learned.grad_norm = max(learned.grad_norm, norm)
        return report.old_logprobs

    def _missing(self, samples: Sequence[Sample]) -> int:
        """How many micro-batches fewer than the busiest process this one has, if that matters."""
        if not self.in_step:
            return 0
        own = len(micro_batches(samples, self.settings.token_budget))
        counts = self.accelerator.gather(torch.tensor([own], device=self.policy.device))
        return int(counts.max()) - own

    def _apply(self, agent: str) -> float:
        """Sum the gradients over processes, clip them, step if they are finite; their norm."""
        optimizer = self.optimizers[agent]
        parameters = list(self.policy.adapter_parameters(agent).values())
        for parameter in parameters:
            # A process whose groups were all silent has no gradient, but takes part in the sum.
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self.accelerator.reduce(own, reduction="sum") / self.scale
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.settings.max_grad_norm).item()
        if math.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def _sum(self, *values: float) -> list[float]:
        """Each value summed over processes."""
        tensor = torch.tensor(values, dtype=torch.float64, device=self.policy.device)
        return self.accelerator.reduce(tensor, reduction="sum").tolist()
