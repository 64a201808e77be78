"""Each planted fault does what it says for as long as it is planted, and nothing afterwards."""

from dataclasses import replace

import pytest
import torch
from planted import FAULTS, planted

from vclib.policy import prompts
from vclib.policy.sampling import SamplingSettings, sample
from vclib.rl import loss
from vclib.rl.trainer import Trainer

PHASE = {"wrong-adapter": "critic", "greedy-critic": "critic"}


def trained(settings, env, name=None):
    with planted(name), Trainer(settings.but(overwrite=True), env) as trainer:
        before = [p.detach().clone() for p in trainer.policy.adapter_parameters("critic").values()]
        updates = list(trainer.run())
    after = {agent: trainer.policy.adapter_parameters(agent) for agent in ("developer", "critic")}
    weights = torch.cat([p.detach().flatten() for group in after.values() for p in group.values()])
    moved = not all(map(torch.equal, before, after["critic"].values()))
    return weights, updates, moved


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"end-masked"}))
def test_a_fault_changes_what_is_learned_and_is_gone_after_the_with(settings, env, name):
    settings = settings.but(phase=PHASE.get(name, "developer"), episodes=1, pages_per_update=2)
    honest, _, _ = trained(settings, env)
    faulty, _, _ = trained(settings, env, name)
    again, _, _ = trained(settings, env)
    assert torch.equal(honest, again)
    assert not torch.equal(honest, faulty)


def test_with_the_wrong_adapter_the_critic_does_not_move(settings, env):
    settings = settings.but(phase="critic", episodes=1)
    assert trained(settings, env)[2]
    assert not trained(settings, env, "wrong-adapter")[2]


def test_a_greedy_critic_says_the_same_in_every_episode_that_shows_it_the_same(settings, env):
    settings = settings.but(phase="critic", episodes=1, frozen_developer_greedy=True)
    _, (update,), _ = trained(settings, env, "greedy-critic")
    (group,) = update.episodes
    assert len({episode.critic_turns[0].text for episode in group}) == 1


def scored(policy, samples, name):
    with planted(name), torch.no_grad():
        return loss.sequence_logprobs(policy, samples, "developer", temperature=0.7)


@pytest.fixture
def samples(policy, noise):
    prompt = policy.encode(prompts.developer_first(noise(64, 64)))
    settings = SamplingSettings(max_new_tokens=6)
    return sample(policy, [prompt] * 2, "developer", settings, torch.Generator().manual_seed(0))


def test_an_end_that_is_masked_is_left_out_and_only_where_there_is_one(policy, samples):
    end = torch.tensor([policy.eos_ids[0]])
    ended = replace(samples[0], completion_ids=torch.cat([samples[0].completion_ids[:3], end]))
    samples = [ended, samples[1]]
    assert scored(policy, samples, None)[1].sum(1).tolist() == [4, 6]
    assert scored(policy, samples, "end-masked")[1].sum(1).tolist() == [3, 6]


def test_unmasked_prompts_are_scored_after_their_pictures(policy, samples):
    honest, mask = scored(policy, samples, None)
    faulty, longer = scored(policy, samples, "prompt-unmasked")
    text = int((samples[0].prompt.mm_token_type_ids == 0).sum())
    added = int(longer[0].sum() - mask[0].sum())
    assert 0 < added < text
    assert torch.allclose(faulty[0, added:], honest[0], atol=1e-4)


def test_shifted_scores_are_those_of_the_id_before(policy, samples):
    honest, _ = scored(policy, samples, None)
    faulty, _ = scored(policy, samples, "shifted")
    assert not torch.allclose(honest, faulty)
    ids = samples[0].completion_ids
    moved = replace(samples[0], completion_ids=torch.cat([ids[:2], ids[1:2], ids[3:]]))
    # The id at place 2 scored as the one at place 1, after the same two ids.
    assert torch.allclose(scored(policy, [moved], None)[0][0, 2], faulty[0, 2], atol=1e-4)
