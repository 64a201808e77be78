"""Episodes: the two agents at work on pages, many of them in step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vclib.env.errors import EnvironmentFault, SessionExpired, UnknownSession
from vclib.errors import VclibError
from vclib.policy import prompts
from vclib.policy.model import Policy
from vclib.policy.sampling import Luck, Sample, SamplingSettings, sample
from vclib.rl.profiles import AGENTS, Phase, TrainSettings, trained_agents
from vclib.rl.runlog import Meter
from vclib.rl.turns import Episode, Turn

FAULTS = (EnvironmentFault, SessionExpired, UnknownSession)
"""A browser or server that failed, or came back without its sessions."""
RENDERS_AT_ONCE = 4
"""Drafts that are rendered and scored beside a GPU that still generates the others."""


@dataclass(frozen=True)
class EpisodeSettings:
    """How the agents play; an adapter of None is the base model."""

    developer: SamplingSettings
    critic: SamplingSettings
    max_steps: int = 5
    use_critic: bool = True
    revision_screenshot: bool = False
    developer_adapter: str | None = "developer"
    critic_adapter: str | None = "critic"


def episode_settings(settings: TrainSettings, phase: Phase) -> EpisodeSettings:
    """How the agents play in a phase.

    The trained agent samples with its adapter: a greedy one would make K equal episodes and learn
    nothing. The frozen partner plays its latest adapter or the base, by `partner`. A frozen Critic
    is greedy unless `frozen_critic_greedy` is off, so that only the Developer's own choices tell
    the episodes of a group apart. A frozen Developer samples, for the Critic must learn to judge
    drafts of all kinds; with `frozen_developer_greedy` the K episodes share their first draft and
    revise it greedily, so that only the critiques tell them apart.
    """
    trained = trained_agents(phase)
    adapters = {a: a if a in trained or settings.partner == "latest" else None for a in AGENTS}
    greedy = {
        "developer": settings.frozen_developer_greedy and "developer" not in trained,
        "critic": settings.frozen_critic_greedy and "critic" not in trained,
    }
    heat = settings.temperature
    return EpisodeSettings(
        SamplingSettings(settings.developer_tokens, heat, greedy["developer"], settings.stop),
        SamplingSettings(settings.critic_tokens, heat, greedy["critic"]),
        max_steps=settings.max_steps,
        use_critic=settings.use_critic,
        revision_screenshot=settings.revision_screenshot,
        developer_adapter=adapters["developer"],
        critic_adapter=adapters["critic"],
    )


@dataclass
class _Seat:
    """An episode in play: its session with the environment, and the source of its luck."""

    episode: Episode
    session_id: str
    generator: torch.Generator
    done: bool = False


def play(
    policy: Policy,
    env: Any,
    page_ids: Sequence[str],
    *,
    k: int,
    settings: EpisodeSettings,
    generator: Luck = None,
    meter: Meter | None = None,
    overlap: bool | None = None,
) -> list[list[Episode]]:
    """Play K episodes on each page and return them by group, [pages][K].

    All episodes go in step: one batched sample per agent and turn, one `env.step_many` per turn.
    An episode ends at `max_steps` Developer turns, or when the Critic says DONE. `env` is a
    `WebPageEnv` or an `HttpEnv`. A page that does not render is a reward of 0; a fault of the
    environment itself is tried once more and then raised: no episode is dropped in silence.

    `generator`: one for all, or one for each episode in the order of the result. Each episode's
    draws then depend on its own generator alone, not on what else is played beside it.
    `overlap`: render and score a draft as soon as it is finished, while others are still being
    written; None does so where a GPU generates, for on a CPU the browser would take its cores.
    """
    if overlap is None:
        overlap = policy.device.type != "cpu"
    game = _Game(policy, env, settings, meter or Meter(), overlap)
    seats = game.open(page_ids, k, _generators(generator, len(page_ids) * k))
    try:
        for step in range(settings.max_steps):
            live = [seat for seat in seats if not seat.done]
            game.developer_turn(live, settings.max_steps - step)
            if settings.use_critic:
                game.critic_turn([seat for seat in live if not seat.done])
    finally:
        for seat in seats:
            # The others ended by themselves, at their last step.
            if not seat.done or seat.episode.ended_by_critic:
                game.give_up(seat)
    episodes = [seat.episode for seat in seats]
    return [episodes[start : start + k] for start in range(0, len(episodes), k)]


def _generators(luck: Luck, count: int) -> list[torch.Generator]:
    if luck is None or isinstance(luck, torch.Generator):
        seeds = torch.randint(2**62, (count,), generator=luck).tolist()
        return [torch.Generator().manual_seed(seed) for seed in seeds]
    return list(luck)


@dataclass
class _Game:
    """Who plays, where, how, and what is measured: all that a turn needs."""

    policy: Policy
    env: Any
    settings: EpisodeSettings
    meter: Meter
    overlap: bool

    def open(
        self, page_ids: Sequence[str], k: int, generators: Sequence[torch.Generator]
    ) -> list[_Seat]:
        seats: list[_Seat] = []
        for group, page_id in enumerate(page_ids):
            asked = {"page_id": page_id, "max_steps": self.settings.max_steps}
            with self.meter.stage("render"):
                first = [reset(self.env, self.meter, **asked) for _ in range(k)]
            reference = first[0].screenshot
            for seen in first:
                if seen.page_id != page_id or not np.array_equal(seen.screenshot, reference):
                    raise VclibError(
                        f"The episodes of a group must share one page: {page_id} was asked for, "
                        f"{seen.page_id} came, or its screenshot differs between resets. "
                        "Check that the environment renders the same page to the same pixels."
                    )
                episode = Episode(page_id, seen.difficulty, group, reference)
                seats.append(_Seat(episode, seen.session_id, generators[len(seats)]))
        return seats

    def developer_turn(self, live: list[_Seat], steps_left: int) -> None:
        how, adapter = self.settings.developer, self.settings.developer_adapter
        shown = self.settings.revision_screenshot
        messages = [_developer_prompt(seat.episode, shown) for seat in live]
        with ThreadPoolExecutor(RENDERS_AT_ONCE) as pool:
            early: dict[int, Future] = {}

            def render(row: int, text: str) -> None:
                draft, session_id = prompts.answer_of(text), live[row].session_id
                early[row] = pool.submit(self.env.step, draft, session_id)

            samples = self.draw(live, messages, adapter, how, render if self.overlap else None)
            drafts = [prompts.answer_of(s.text) for s in samples]
            with self.meter.stage("render"):
                observations = self.step(live, drafts, steps_left, early)
        for seat, drawn, draft, seen in zip(live, samples, drafts, observations, strict=True):
            seat.done = seen.done
            turn = Turn("developer", drawn, draft, float(seen.reward), seen.metadata["rewards"])
            turn.render = seen.render_full
            seat.episode.turns.append(turn)

    def critic_turn(self, live: list[_Seat]) -> None:
        messages = [_critic_prompt(seat.episode) for seat in live]
        samples = self.draw(live, messages, self.settings.critic_adapter, self.settings.critic)
        for seat, drawn in zip(live, samples, strict=True):
            seat.episode.turns.append(Turn("critic", drawn, prompts.answer_of(drawn.text)))
            seat.done = prompts.is_done(drawn.text)

    def draw(
        self,
        live: list[_Seat],
        messages: list[prompts.Messages],
        adapter: str | None,
        settings: SamplingSettings,
        on_end: Callable[[int, str], None] | None = None,
    ) -> list[Sample]:
        """One generation for each seat, in one batch, each with its own luck."""
        with self.meter.stage("sample"):
            encoded = [self.policy.encode(message) for message in messages]
            luck = [seat.generator for seat in live]
            samples = sample(self.policy, encoded, adapter, settings, luck, on_end)
            self.meter.tokens += sum(len(s.completion_ids) for s in samples)
        return samples

    def step(
        self, live: list[_Seat], drafts: list[str], steps_left: int, early: dict[int, Future]
    ) -> list[Any]:
        """An observation for each seat; those of `early` are on their way."""
        late = [row for row in range(len(live)) if row not in early]
        try:
            rest = self.env.step_many([(drafts[row], live[row].session_id) for row in late])
            seen = dict(zip(late, rest, strict=True))
            return [seen[row] if row in seen else early[row].result() for row in range(len(live))]
        except FAULTS:
            self.meter.faults += 1
        # Some sessions may have taken the step before the fault. Fresh ones cannot step twice, and
        # a reward depends on the page and the draft alone.
        for seat in live:
            self.give_up(seat)
            fresh = self.env.reset(page_id=seat.episode.page_id, max_steps=steps_left)
            seat.session_id = fresh.session_id
        return self.env.step_many(list(zip(drafts, (s.session_id for s in live), strict=True)))

    def give_up(self, seat: _Seat) -> None:
        with suppress(*FAULTS):
            self.env.close_session(seat.session_id)


def _developer_prompt(episode: Episode, revision_screenshot: bool) -> prompts.Messages:
    if not episode.turns:
        return prompts.developer_first(episode.reference)
    critiques = episode.critic_turns
    return prompts.developer_revision(
        episode.html_drafts[-1],
        critiques[-1].text if critiques else None,
        episode.reference if revision_screenshot else None,
    )


def _critic_prompt(episode: Episode) -> prompts.Messages:
    renders = [turn.render for turn in episode.turns if turn.render is not None]
    if len(renders) == 1:
        return prompts.critic_first(episode.reference, renders[0])
    return prompts.critic_again(
        episode.reference, renders[-2], renders[-1], episode.critic_turns[-1].text
    )


def reset(env: Any, meter: Meter, **arguments: Any) -> Any:
    """`env.reset(**arguments)`, tried once more after a fault of the environment."""
    try:
        return env.reset(**arguments)
    except FAULTS:
        meter.faults += 1
        return env.reset(**arguments)
