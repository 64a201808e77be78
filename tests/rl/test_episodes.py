from dataclasses import replace

import numpy as np
import pytest
import torch

from vclib.env.browser import Renderer
from vclib.env.environment import WebPageEnv
from vclib.env.errors import EnvironmentFault
from vclib.errors import VclibError
from vclib.policy import prompts
from vclib.policy.model import Policy
from vclib.policy.sampling import Sample, SamplingSettings, sample
from vclib.policy.scoring import sequence_logprobs
from vclib.rl.episodes import EpisodeSettings, episode_settings, play
from vclib.rl.loss import backward
from vclib.rl.runlog import Meter

EASY, HARD = "blank/train/easy/0", "blank/train/hard/7"


@pytest.fixture(scope="module")
def groups(model_folder, env):
    policy = Policy.load(model_folder, device="cpu")
    settings = EpisodeSettings(
        developer=SamplingSettings(10), critic=SamplingSettings(4), max_steps=3
    )
    generator = torch.Generator().manual_seed(0)
    return policy, play(policy, env, [EASY, HARD], k=3, settings=settings, generator=generator)


def test_a_group_is_k_episodes_on_one_page(groups):
    _, played = groups
    assert [len(group) for group in played] == [3, 3]
    for group, page_id in zip(played, [EASY, HARD], strict=True):
        assert {episode.page_id for episode in group} == {page_id}
        for episode in group:
            assert np.array_equal(episode.reference, group[0].reference)


def test_episodes_of_a_group_start_from_the_same_prompt(groups):
    _, played = groups
    for group in played:
        first = [episode.turns[0].sample.prompt for episode in group]
        assert all(torch.equal(p.input_ids, first[0].input_ids) for p in first)
        assert all(torch.equal(p.pixel_values, first[0].pixel_values) for p in first)


def test_agents_alternate_and_the_developer_has_the_last_word(groups):
    _, played = groups
    for episode in played[0] + played[1]:
        if not episode.ended_by_critic:
            agents = [turn.agent for turn in episode.turns]
            assert agents == ["developer", "critic", "developer", "critic", "developer"]


def test_every_draft_has_its_reward_parts_and_render(groups):
    _, played = groups
    for episode in played[0] + played[1]:
        assert len(episode.rewards) == len(episode.html_drafts) == len(episode.developer_turns)
        for turn in episode.developer_turns:
            assert turn.reward == turn.rewards["total"]
            assert turn.render.shape == episode.reference.shape
        assert all(turn.reward is None for turn in episode.critic_turns)


def test_prompts_show_reference_and_renders_and_a_revision_nothing(groups):
    _, played = groups
    images = [len(turn.sample.prompt.images) for turn in played[0][0].turns]
    assert images == [1, 2, 0, 3, 0]


def test_a_revision_sees_the_reference_again_where_that_is_asked_for(groups, env):
    policy, _ = groups
    settings = EpisodeSettings(
        developer=SamplingSettings(10),
        critic=SamplingSettings(4),
        max_steps=2,
        revision_screenshot=True,
    )
    [[episode]] = play(policy, env, [EASY], k=1, settings=settings)
    last = episode.developer_turns[-1].sample.prompt
    messages = prompts.developer_revision(
        episode.html_drafts[0], episode.critic_turns[0].text, episode.reference
    )
    assert len(last.images) == 1
    assert torch.equal(last.input_ids, policy.encode(messages).input_ids)


def test_first_critique_differs_from_later_ones_in_its_prompt(groups):
    policy, played = groups
    episode = played[0][0]
    drafts = episode.developer_turns
    critiques = episode.critic_turns
    expected = [
        prompts.critic_first(episode.reference, drafts[0].render),
        prompts.critic_again(
            episode.reference, drafts[0].render, drafts[1].render, critiques[0].text
        ),
    ]
    for turn, messages in zip(critiques, expected, strict=True):
        assert torch.equal(turn.sample.prompt.input_ids, policy.encode(messages).input_ids)


def test_revision_holds_the_last_draft_and_critique(groups):
    policy, played = groups
    episode = played[0][0]
    messages = prompts.developer_revision(episode.html_drafts[0], episode.critic_turns[0].text)
    prompt = episode.developer_turns[1].sample.prompt
    assert torch.equal(prompt.input_ids, policy.encode(messages).input_ids)


def test_sampled_ids_are_kept_where_tokenizing_the_text_again_gives_others(groups):
    policy, played = groups
    turns = [turn for group in played for episode in group for turn in episode.turns]
    again = [
        policy.tokenizer(turn.sample.text, add_special_tokens=False)["input_ids"] for turn in turns
    ]
    kept = [turn.sample.completion_ids.tolist() for turn in turns]
    assert any(ids[: len(a)] != a for ids, a in zip(kept, again, strict=True))


def test_scoring_with_the_images_gives_back_the_sampled_logprobs(groups):
    policy, played = groups
    for agent in ("developer", "critic"):
        samples = [t.sample for e in played[0] for t in e.turns if t.agent == agent]
        logprobs, mask = sequence_logprobs(policy, samples, agent, temperature=0.7)
        for row, kept, drawn in zip(logprobs.detach(), mask, samples, strict=True):
            assert torch.allclose(row[kept], drawn.logprobs, atol=1e-4)


def test_scoring_at_another_temperature_or_with_other_images_does_not(groups):
    policy, played = groups
    drawn = played[0][0].critic_turns[0].sample
    hot, mask = sequence_logprobs(policy, [drawn], "critic", temperature=1.0)
    assert not torch.allclose(hot[0][mask[0]], drawn.logprobs, atol=1e-3)
    episode = played[0][0]
    black = np.zeros_like(episode.reference)
    blind = replace(drawn, prompt=policy.encode(prompts.critic_first(black, black)))
    unseen, mask = sequence_logprobs(policy, [blind], "critic", temperature=0.7)
    assert not torch.allclose(unseen[0][mask[0]], drawn.logprobs, atol=1e-3)


def test_an_episode_depends_on_its_own_generator_alone(policy, env, short_episodes, seeded):
    alone = play(policy, env, [HARD], k=1, settings=short_episodes, generator=[seeded(5)])
    crowd = [seeded(seed) for seed in (1, 2, 5, 3)]
    among = play(policy, env, [EASY, HARD], k=2, settings=short_episodes, generator=crowd)
    assert alone[0][0].html_drafts == among[1][0].html_drafts
    assert among[1][0].html_drafts != among[1][1].html_drafts


def test_without_a_critic_the_developer_revises_alone(policy, env, short_episodes, seeded):
    settings = replace(short_episodes, use_critic=False)
    [[episode]] = play(policy, env, [EASY], k=1, settings=settings, generator=seeded(0))
    assert [turn.agent for turn in episode.turns] == ["developer", "developer"]


def test_a_greedy_critic_says_the_same_of_the_same_draft(policy, env, short_episodes, seeded):
    settings = replace(
        short_episodes,
        developer=replace(short_episodes.developer, greedy=True),
        critic=replace(short_episodes.critic, greedy=True),
    )
    [group] = play(policy, env, [EASY], k=2, settings=settings, generator=seeded(0))
    assert group[0].critic_turns[0].text == group[1].critic_turns[0].text


def test_a_critic_that_learnt_to_say_done_ends_the_episode(policy, env, settings, seeded):
    rules = episode_settings(settings.but(max_steps=3), "developer")
    rules = replace(rules, critic=replace(rules.critic, max_new_tokens=12))
    [[episode]] = play(policy, env, [EASY], k=1, settings=rules, generator=seeded(0))
    assert len(episode.turns) == 5
    prompt = episode.critic_turns[0].sample.prompt
    ids = policy.tokenizer("DONE", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([*ids, policy.tokenizer.eos_token_id])
    policy.train_only("critic")
    optimizer = torch.optim.Adam(policy.adapter_parameters("critic").values(), lr=0.02)
    say_done = replace(episode.critic_turns[0].sample, completion_ids=ids)
    for step in range(100):
        if step % 5 == 0:
            [drawn] = sample(policy, [prompt], "critic", rules.critic)
            if prompts.is_done(drawn.text):
                break
        backward(policy, [say_done], [1.0], "critic", settings, turns=1, tokens=len(ids))
        optimizer.step()
        optimizer.zero_grad()
    sessions = len(env.sessions)
    [[episode]] = play(policy, env, [EASY], k=1, settings=rules, generator=seeded(0))
    assert [turn.agent for turn in episode.turns] == ["developer", "critic"]
    assert episode.ended_by_critic and episode.terminal_reward == episode.rewards[0]
    assert len(env.sessions) == sessions


def test_drafts_rendered_while_others_are_written_give_the_same_episodes(
    policy, env, short_episodes, seeded
):
    # Some rows end early, at a closing tag that even a random model writes now and then.
    rules = replace(short_episodes, developer=replace(short_episodes.developer, stop=("<", ">")))
    started = []

    class Watched(WebPageEnv):
        def step(self, html, session_id):
            started.append(html)
            return super().step(html, session_id)

    watched = Watched(env.pages, renderer=env.renderer)
    pages = [EASY, HARD]
    play_on = {"k": 4, "settings": rules}
    apart = play(policy, env, pages, generator=seeded(1), overlap=False, **play_on)
    beside = play(policy, watched, pages, generator=seeded(1), overlap=True, **play_on)
    ended = [t for g in beside for e in g for t in e.developer_turns if not t.sample.truncated]
    assert sorted(started) == sorted(turn.text for turn in ended) and 0 < len(started) < 16
    for group, others in zip(apart, beside, strict=True):
        assert [e.html_drafts for e in group] == [e.html_drafts for e in others]
        assert [e.rewards for e in group] == [e.rewards for e in others]


def test_sessions_are_given_up_when_play_breaks_off(policy, broken_env, short_episodes, seeded):
    broken_env.broken_calls = 2
    with pytest.raises(EnvironmentFault):
        play(policy, broken_env, [EASY], k=2, settings=short_episodes, generator=seeded(3))
    assert len(broken_env.sessions) == 0


class BrokenBrowserEnv(WebPageEnv):
    """Its browser is gone for some of the calls."""

    broken_calls = 0

    def step_many(self, actions):
        if self.broken_calls == 0:
            return super().step_many(actions)
        self.broken_calls -= 1
        working, self.renderer = self.renderer, self.gone
        try:
            return super().step_many(actions)
        finally:
            self.renderer = working


@pytest.fixture(scope="module")
def broken_env(blank_pages, env):
    gone = Renderer(*blank_pages.viewport)
    gone.close()
    environment = BrokenBrowserEnv(blank_pages, renderer=env.renderer)
    environment.gone = gone
    return environment


def test_a_fault_of_the_environment_is_tried_once_more(
    policy, env, broken_env, short_episodes, seeded
):
    meter = Meter()
    broken_env.broken_calls = 1
    played = play(
        policy, broken_env, [EASY], k=2, settings=short_episodes, generator=seeded(3), meter=meter
    )
    smooth = play(policy, env, [EASY], k=2, settings=short_episodes, generator=seeded(3))
    assert meter.faults == 1
    assert [e.rewards for e in played[0]] == [e.rewards for e in smooth[0]]


def test_a_fault_that_stays_is_raised(policy, broken_env, short_episodes, seeded):
    broken_env.broken_calls = 2
    with pytest.raises(EnvironmentFault):
        play(policy, broken_env, [EASY], k=2, settings=short_episodes, generator=seeded(3))
    broken_env.broken_calls = 0


def test_a_group_on_different_pages_is_refused(policy, env, blank_pages, short_episodes):
    class NextPageEnv(WebPageEnv):
        def reset(self, page_id=None, max_steps=None):
            return super().reset(max_steps=max_steps)

    another_page_each_time = NextPageEnv(blank_pages, renderer=env.renderer)
    with pytest.raises(VclibError, match="share"):
        play(policy, another_page_each_time, [EASY], k=2, settings=short_episodes)


@pytest.mark.parametrize("phase", ["developer", "critic", "combined"])
def test_the_trained_agent_samples_with_its_own_adapter(settings, phase):
    rules = episode_settings(settings.but(partner="base"), phase)
    if phase != "critic":
        assert not rules.developer.greedy and rules.developer_adapter == "developer"
    if phase != "developer":
        assert not rules.critic.greedy and rules.critic_adapter == "critic"


def test_the_frozen_partner_is_its_latest_adapter_unless_the_base_is_asked_for(settings):
    assert episode_settings(settings, "developer").critic_adapter == "critic"
    assert episode_settings(settings, "critic").developer_adapter == "developer"
    base = settings.but(partner="base")
    assert episode_settings(base, "developer").critic_adapter is None
    assert episode_settings(base, "critic").developer_adapter is None


def test_a_frozen_critic_is_greedy_unless_told_to_sample(settings):
    assert episode_settings(settings, "developer").critic.greedy
    sampling = settings.but(frozen_critic_greedy=False)
    assert not episode_settings(sampling, "developer").critic.greedy


def test_a_frozen_developer_samples_unless_told_to_share_one_draft(settings):
    assert not episode_settings(settings, "critic").developer.greedy
    shared = settings.but(frozen_developer_greedy=True)
    assert episode_settings(shared, "critic").developer.greedy
    assert not episode_settings(shared, "developer").developer.greedy


def test_a_sample_remembers_who_drew_it(groups):
    _, played = groups
    for turn in played[0][0].turns:
        assert isinstance(turn.sample, Sample) and turn.sample.agent == turn.agent
