"""Faults that do not crash, each planted in a running trainer for as long as a `with` lasts.

    with planted("temperature"):
        for update in Trainer(settings).run(): ...

Every one of them was met in real training scripts. They are kept out of the library, which has no
switch for being wrong; `ablations.py` runs them and notebook 12 asks which curve is whose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vclib.policy import scoring
from vclib.policy.encoding import Prompt
from vclib.policy.sampling import Sample
from vclib.rl import loss, trainer
from vclib.rl.learner import Learner

TEXT_ONLY = 512
"""Tokens that are left of a prompt which is scored without its images."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, in one sentence, and the names that are swapped to make it so."""

    what: str
    swaps: Callable[[], list[tuple[Any, str, Any]]]


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant the fault of this name in this process; None plants nothing."""
    with ExitStack() as stack:
        for owner, attribute, value in FAULTS[name].swaps() if name else []:
            stack.callback(setattr, owner, attribute, getattr(owner, attribute))
            setattr(owner, attribute, value)
        yield


def _scored_otherwise(change: Callable[[Sample], Sample], **fixed: Any) -> list:
    """Score changed samples, or with other arguments, than those that were drawn."""
    honest = loss.sequence_logprobs

    def sequence_logprobs(policy: Any, samples: Sequence[Sample], *args: Any, **named: Any) -> Any:
        return honest(policy, [change(sample) for sample in samples], *args, **named | fixed)

    return [(loss, "sequence_logprobs", sequence_logprobs)]


def _with_prompt(sample: Sample) -> Sample:
    """The text of the prompt counted among what the policy has said."""
    prompt = sample.prompt
    # After the last image and the token that closes it, which cannot be sampled.
    places = prompt.mm_token_type_ids.nonzero()
    start = int(places.max()) + 2 if len(places) else 1
    shorter = Prompt(
        prompt.input_ids[:start],
        prompt.mm_token_type_ids[:start],
        prompt.position_ids[:, :start],
        prompt.images,
    )
    ids = torch.cat([prompt.input_ids[start:], sample.completion_ids])
    return replace(sample, prompt=shorter, completion_ids=ids)


def _prompt_unmasked() -> list:
    def whole(sample: Sample, eos_ids: list[int]) -> int:
        return len(sample.completion_ids)  # the prompt holds ends of turns of its own

    return [*_scored_otherwise(_with_prompt), (scoring, "_scored_length", whole)]


def _text_only(sample: Sample) -> Sample:
    """The prompt without its images, and at most its last TEXT_ONLY tokens."""
    prompt = sample.prompt
    ids = prompt.input_ids[prompt.mm_token_type_ids == 0][-TEXT_ONLY:]
    positions = torch.arange(len(ids)).expand(3, -1)
    return replace(sample, prompt=Prompt(ids, torch.zeros_like(ids), positions))


def _shifted() -> list:
    honest = scoring._Scorer.__call__

    def score(self: Any, hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return honest(self, hidden, targets.roll(1))

    return [(scoring._Scorer, "__call__", score)]


def _end_masked() -> list:
    honest = loss.sequence_logprobs

    def sequence_logprobs(policy: Any, samples: Sequence[Sample], *args: Any, **named: Any) -> Any:
        logprobs, mask, *entropy = honest(policy, samples, *args, **named)
        mask = mask.clone()
        for row, sample in enumerate(samples):
            last = int(mask[row].sum()) - 1
            if last > 0 and int(sample.completion_ids[last]) in policy.eos_ids:
                mask[row, last] = False
        return logprobs, mask, *entropy

    return [(loss, "sequence_logprobs", sequence_logprobs)]


def _across_pages() -> list:
    honest = trainer.assign_credit

    def assign_credit(groups: Any, *args: Any) -> Any:
        return honest([list(itertools.chain(*groups))], *args)

    return [(trainer, "assign_credit", assign_credit)]


def _wrong_adapter() -> list:
    honest = Learner.__init__

    def make(self: Any, *args: Any, **named: Any) -> None:
        honest(self, *args, **named)
        self.optimizers["critic"] = self.optimizers["developer"]

    return [(Learner, "__init__", make)]


def _greedy_critic() -> list:
    honest = trainer.episode_settings

    def episode_settings(*args: Any) -> Any:
        settings = honest(*args)
        return replace(settings, critic=replace(settings.critic, greedy=True))

    return [(trainer, "episode_settings", episode_settings)]


FAULTS = {
    "shifted": Fault("the log-probability of each token is read one place too late", _shifted),
    "prompt-unmasked": Fault("the prompt's text is trained on with the turn", _prompt_unmasked),
    "across-pages": Fault("a turn is compared with turns on other pages", _across_pages),
    "temperature": Fault(
        "turns are sampled at 0.7 and scored at 1",
        lambda: _scored_otherwise(lambda sample: sample, temperature=1.0),
    ),
    "text-only": Fault(
        f"turns are scored without the images, after {TEXT_ONLY} tokens of prompt at most",
        lambda: _scored_otherwise(_text_only),
    ),
    "wrong-adapter": Fault("the Critic's optimizer holds the Developer's weights", _wrong_adapter),
    "greedy-critic": Fault("the Critic is greedy in its own phase", _greedy_critic),
    "end-masked": Fault("the end of a turn is left out of the loss", _end_masked),
}
