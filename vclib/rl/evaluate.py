"""Base against trained on the same held-out pages: alone or with the Critic, sampled and greedy."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from vclib.env.pages import Page, PageSet
from vclib.env.reward import WEIGHTS
from vclib.errors import VclibError
from vclib.policy.model import Policy
from vclib.policy.sampling import SamplingSettings
from vclib.rl.episodes import Episode, EpisodeSettings, play
from vclib.rl.intervals import Interval
from vclib.rl.results import Arm, Draft, EvalSettings, Evaluation, PageResult, comparisons

Progress = Callable[[Arm, int], None]


def choose_pages(page_set: PageSet, settings: EvalSettings) -> list[Page]:
    """The first `count` pages of the split, each once: a finite set may hold fewer."""
    if settings.count < 1:
        raise VclibError(f"--count is {settings.count}; an evaluation needs 1 page or more.")
    pages: dict[str, Page] = {}
    for index in range(settings.count):
        page = page_set.at(settings.split, settings.difficulty, index)
        pages.setdefault(page.id, page)
    return list(pages.values())


def evaluate(
    policy: Policy,
    env: Any,
    pages: Sequence[Page],
    settings: EvalSettings,
    progress: Progress = lambda arm, pages: None,
) -> Evaluation:
    """Play every arm on every page; `progress` hears of each batch of pages that an arm ends.

    `env` is a `WebPageEnv` or an `HttpEnv`. Drafts are kept for the arms that a report shows: the
    last loop (with the Critic, if it plays at all) in the first decoding.
    """
    start = time.monotonic()
    result = Evaluation(settings, {})
    for arm in settings.arms():
        keep = arm.loop == settings.loops[-1] and arm.decoding == settings.decodings[0]
        result.arms[arm] = []
        k = 1 if arm.decoding == "greedy" else settings.samples_per_page
        size = max(1, settings.episodes_per_batch // k)
        for first in range(0, len(pages), size):
            batch = pages[first : first + size]
            groups = play(
                policy,
                env,
                [page.id for page in batch],
                k=k,
                settings=episode_settings(arm, settings),
                generator=[_luck(settings.seed, page, n) for page in batch for n in range(k)],
            )
            for group in groups:
                result.arms[arm].append(_page_result(group, keep))
                result.references.setdefault(group[0].page_id, group[0].reference)
            progress(arm, len(batch))
    result.about["browser"] = env.browser if hasattr(env, "browser") else env.renderer.browser
    result.about["seconds"] = round(time.monotonic() - start, 1)
    return result


def episode_settings(arm: Arm, settings: EvalSettings) -> EpisodeSettings:
    """How the episodes of one arm are played."""
    greedy, trained = arm.decoding == "greedy", arm.policy == "trained"
    return EpisodeSettings(
        max_steps=settings.max_steps,
        use_critic=arm.loop == "critic",
        revision_screenshot=settings.revision_screenshot,
        developer=SamplingSettings(
            temperature=settings.temperature,
            greedy=greedy,
            max_new_tokens=settings.developer_tokens,
            stop=("</html>",),
        ),
        critic=SamplingSettings(
            temperature=settings.temperature, greedy=greedy, max_new_tokens=settings.critic_tokens
        ),
        developer_adapter="developer" if trained else None,
        critic_adapter="critic" if trained else None,
    )


def table(evaluation: Evaluation) -> str:
    """Means and differences, each over its 95 % interval, to be printed; 96 columns wide."""
    lines = []
    difficulties = evaluation.difficulties()
    for decoding in evaluation.settings.decodings:
        lines += ["", _row(f"{decoding}: reward of the last draft", difficulties)]
        for arm in evaluation.arms:
            if arm.decoding == decoding:
                means = [evaluation.mean(arm, "last", name) for name in difficulties]
                lines += _two_rows(arm.label, _more(evaluation, arm), means, "z.3f")
        for name, of, after, before in comparisons(evaluation):
            if of == decoding:
                gains = [evaluation.gain(after, before, "last", d) for d in difficulties]
                lines += _two_rows(name, "", gains, "+z.3f")
    pages = f"{evaluation.pages()} {evaluation.settings.split} pages"
    lines += ["", f"low..high: 95 % bootstrap interval over {pages}, paired for differences"]
    if "alone" in evaluation.settings.loops:
        lines.append("alone: without the Critic, the Developer revises its own draft")
    return "\n".join(lines[1:])


def _more(evaluation: Evaluation, arm: Arm) -> str:
    first, best = evaluation.mean(arm, "first"), evaluation.mean(arm, "best")
    return f"first {first.mean:.3f}, best {best.mean:.3f}, {evaluation.mean_turns(arm):.1f} turns"


def _two_rows(name: str, more: str, intervals: Sequence[Interval], form: str) -> list[str]:
    ranges = [f"{i.low:{form}}..{i.high:{form}}" if i.pages > 1 else "" for i in intervals]
    return [_row(f"  {name}", [f"{i.mean:{form}}" for i in intervals]), _row(f"    {more}", ranges)]


def _row(name: str, cells: Sequence[str]) -> str:
    return (f"{name:36}" + "".join(f"{cell:>15}" for cell in cells)).rstrip()


def _luck(seed: int, page: Page, sample: int) -> torch.Generator:
    """The same draws for the same page in every arm, so that differences pair luck too."""
    bits = random.Random(f"{seed}/{page.id}/{sample}").getrandbits(63)
    return torch.Generator().manual_seed(bits)


def _page_result(group: Sequence[Episode], keep: bool) -> PageResult:
    return PageResult(
        page_id=group[0].page_id,
        difficulty=group[0].difficulty,
        rewards=[[float(reward) for reward in episode.rewards] for episode in group],
        truncated=sum(
            turn.sample.truncated for episode in group for turn in episode.developer_turns
        ),
        drafts=_drafts(group[0]) if keep else [],
    )


def _drafts(episode: Episode) -> list[Draft]:
    drafts, critique = [], None
    for turn in episode.turns:
        if turn.agent == "critic":
            critique = turn.text
        elif turn.render is not None:
            parts = {name: part for name, part in (turn.rewards or {}).items() if name in WEIGHTS}
            reward = float(turn.reward or 0.0)
            drafts.append(Draft(turn.text, turn.render, reward, critique, parts))
            critique = None
    return drafts
