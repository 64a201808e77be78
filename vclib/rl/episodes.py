"""Episodes: the two agents at work on pages, many of them in step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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

FAULTS = (EnvironmentFault, SessionExpired, UnknownSession)
"""A browser or server that failed, or came back without its sessions."""


@dataclass(frozen=True)
class EpisodeSettings:
    """How the agents play; an adapter of None is the base model."""

    developer: SamplingSettings
    critic: SamplingSettings
    max_steps: int = 5
    use_critic: bool = True
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
    return EpisodeSettings(
        developer=SamplingSettings(
            temperature=settings.temperature,
            greedy=greedy["developer"],
            max_new_tokens=settings.developer_tokens,
            stop=settings.stop,
        ),
        critic=SamplingSettings(
            temperature=settings.temperature,
            greedy=greedy["critic"],
            max_new_tokens=settings.critic_tokens,
        ),
        max_steps=settings.max_steps,
        use_critic=settings.use_critic,
        developer_adapter=adapters["developer"],
        critic_adapter=adapters["critic"],
    )


@dataclass
class Turn:
    """One generation by one agent; a Developer turn also has its reward and render.

    `text` is the answer that was acted on: the HTML that was rendered, or the critique. The
    sampled ids stay in `sample`: tokenizing the text again may give others. `return_` and
    `advantage` are set by the trainer, for the agent that it trains.
    """

    agent: str
    sample: Sample
    text: str
    reward: float | None = None
    rewards: dict[str, Any] | None = None
    render: np.ndarray | None = None
    return_: float | None = None
    advantage: float | None = None


@dataclass
class Episode:
    """The turns on one page; `group` numbers the page among those played together."""

    page_id: str
    difficulty: str
    group: int
    reference: np.ndarray
    turns: list[Turn] = field(default_factory=list)

    @property
    def developer_turns(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.agent == "developer"]

    @property
    def critic_turns(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.agent == "critic"]

    @property
    def rewards(self) -> list[float]:
        return [turn.reward for turn in self.turns if turn.reward is not None]

    @property
    def terminal_reward(self) -> float:
        return self.rewards[-1]

    @property
    def html_drafts(self) -> list[str]:
        return [turn.text for turn in self.developer_turns]

    @property
    def ended_by_critic(self) -> bool:
        return self.turns[-1].agent == "critic"

    def forget_pictures(self) -> None:
        """Let go of the patches that the prompts show; scoring the turns again is then an error."""
        for turn in self.turns:
            blind = replace(turn.sample.prompt, images=())
            turn.sample = replace(turn.sample, prompt=blind)


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
) -> list[list[Episode]]:
    """Play K episodes on each page and return them by group, [pages][K].

    All episodes go in step: one batched sample per agent and turn, one `env.step_many` per turn.
    An episode ends at `max_steps` Developer turns, or when the Critic says DONE. `env` is a
    `WebPageEnv` or an `HttpEnv`. A page that does not render is a reward of 0; a fault of the
    environment itself is tried once more and then raised: no episode is dropped in silence.

    `generator`: one for all, or one for each episode in the order of the result. Each episode's
    draws then depend on its own generator alone, not on what else is played beside it.
    """
    meter = meter or Meter()
    generators = _generators(generator, len(page_ids) * k)
    seats = _open(env, page_ids, k, settings.max_steps, generators, meter)
    for step in range(settings.max_steps):
        live = [seat for seat in seats if not seat.done]
        _developer_turn(policy, env, live, settings, meter, step)
        live = [seat for seat in live if not seat.done]
        if settings.use_critic:
            _critic_turn(policy, live, settings, meter)
    for seat in seats:
        if seat.episode.ended_by_critic:
            env.close_session(seat.session_id)
    episodes = [seat.episode for seat in seats]
    return [episodes[start : start + k] for start in range(0, len(episodes), k)]


def _generators(luck: Luck, count: int) -> list[torch.Generator]:
    if luck is None or isinstance(luck, torch.Generator):
        seeds = torch.randint(2**62, (count,), generator=luck).tolist()
        return [torch.Generator().manual_seed(seed) for seed in seeds]
    return list(luck)


def _open(
    env: Any,
    page_ids: Sequence[str],
    k: int,
    max_steps: int,
    generators: Sequence[torch.Generator],
    meter: Meter,
) -> list[_Seat]:
    seats: list[_Seat] = []
    for group, page_id in enumerate(page_ids):
        with meter.stage("render"):
            first = [reset(env, meter, page_id=page_id, max_steps=max_steps) for _ in range(k)]
        reference = first[0].screenshot
        for observation in first:
            same_page = observation.page_id == page_id
            if not (same_page and np.array_equal(observation.screenshot, reference)):
                raise VclibError(
                    f"The episodes of a group must share one page: {page_id} was asked for, "
                    f"{observation.page_id} came, or its screenshot differs between resets. "
                    "Check that the environment renders the same page to the same pixels."
                )
            episode = Episode(page_id, observation.difficulty, group, reference)
            seats.append(_Seat(episode, observation.session_id, generators[len(seats)]))
    return seats


def _developer_turn(
    policy: Policy,
    env: Any,
    live: list[_Seat],
    settings: EpisodeSettings,
    meter: Meter,
    step: int,
) -> None:
    messages = [_developer_prompt(seat.episode) for seat in live]
    samples = _draw(policy, live, messages, settings.developer_adapter, settings.developer, meter)
    drafts = [prompts.answer_of(s.text) for s in samples]
    with meter.stage("render"):
        observations = _step(env, live, drafts, settings.max_steps - step, meter)
    for seat, drawn, draft, observation in zip(live, samples, drafts, observations, strict=True):
        seat.done = observation.done
        seat.episode.turns.append(
            Turn(
                "developer",
                drawn,
                draft,
                reward=float(observation.reward),
                rewards=observation.metadata["rewards"],
                render=observation.render_full,
            )
        )


def _critic_turn(
    policy: Policy,
    live: list[_Seat],
    settings: EpisodeSettings,
    meter: Meter,
) -> None:
    messages = [_critic_prompt(seat.episode) for seat in live]
    samples = _draw(policy, live, messages, settings.critic_adapter, settings.critic, meter)
    for seat, drawn in zip(live, samples, strict=True):
        seat.episode.turns.append(Turn("critic", drawn, prompts.answer_of(drawn.text)))
        seat.done = prompts.is_done(drawn.text)


def _draw(
    policy: Policy,
    live: list[_Seat],
    messages: list[prompts.Messages],
    adapter: str | None,
    settings: SamplingSettings,
    meter: Meter,
) -> list[Sample]:
    """One generation for each seat, in one batch, each with its own luck."""
    with meter.stage("sample"):
        encoded = [policy.encode(message) for message in messages]
        luck = [seat.generator for seat in live]
        samples = sample(policy, encoded, adapter, settings, luck)
        meter.tokens += sum(len(s.completion_ids) for s in samples)
    return samples


def _developer_prompt(episode: Episode) -> prompts.Messages:
    if not episode.turns:
        return prompts.developer_first(episode.reference)
    critiques = episode.critic_turns
    return prompts.developer_revision(
        episode.reference, episode.html_drafts[-1], critiques[-1].text if critiques else None
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


def _step(env: Any, live: list[_Seat], drafts: list[str], steps_left: int, meter: Meter) -> list:
    try:
        return env.step_many(list(zip(drafts, (s.session_id for s in live), strict=True)))
    except FAULTS:
        meter.faults += 1
    # Some sessions may have taken the step before the fault. Fresh ones cannot step twice, and
    # a reward depends on the page and the draft alone.
    for seat in live:
        seat.session_id = env.reset(page_id=seat.episode.page_id, max_steps=steps_left).session_id
    return env.step_many(list(zip(drafts, (s.session_id for s in live), strict=True)))
