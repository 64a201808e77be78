import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vclib.rl.returns import VARIANTS, compute_step_returns, credit_turns, grpo_advantages

rewards_of_an_episode = st.lists(st.floats(0, 1), min_size=1, max_size=8)
returns_of_a_group = st.lists(
    st.lists(st.floats(-1, 2), min_size=1, max_size=5), min_size=2, max_size=8
)


def test_returns_computed_by_hand():
    # R(t) = 0.8 + 0.5 * ((0.5 - r_t) + (0.8 - 0.5))
    assert compute_step_returns([0.2, 0.5, 0.8], 0.5) == pytest.approx([1.1, 0.95, 0.8])


def test_default_lambda_is_a_fifth():
    assert compute_step_returns([0.0, 1.0]) == pytest.approx([1.2, 1.0])


def test_a_drop_is_a_loss_for_the_turns_before_it():
    assert compute_step_returns([0.9, 0.4], 0.2) == pytest.approx([0.3, 0.4])


def test_an_episode_without_rewards_has_no_returns():
    assert compute_step_returns([]) == []


@given(rewards_of_an_episode, st.floats(0, 2))
def test_shaped_sum_telescopes(rewards, lambda_shaped):
    last = len(rewards) - 1
    summed = [
        rewards[-1]
        + lambda_shaped * sum(rewards[s] - rewards[s - 1] for s in range(t + 1, last + 1))
        for t in range(last + 1)
    ]
    assert compute_step_returns(rewards, lambda_shaped) == pytest.approx(summed, abs=1e-9)


@given(rewards_of_an_episode)
def test_lambda_zero_credits_every_turn_with_the_last_reward(rewards):
    assert compute_step_returns(rewards, 0.0) == [rewards[-1]] * len(rewards)


def test_critic_turn_is_credited_with_the_developer_turn_after_it():
    agents = ["developer", "critic", "developer", "critic", "developer"]
    credits = credit_turns(agents, [0.2, None, 0.5, None, 0.8], 0.5)
    first, second, third = 1.1, 0.95, 0.8
    assert credits == pytest.approx([first, second, second, third, third])


def test_critic_that_ends_the_episode_is_credited_with_the_last_reward():
    credits = credit_turns(["developer", "critic"], [0.6, None], 0.5)
    assert credits == pytest.approx([0.6, 0.6])


def test_critic_that_ends_a_longer_episode_is_credited_with_the_last_reward():
    agents = ["developer", "critic", "developer", "critic"]
    credits = credit_turns(agents, [0.2, None, 0.6, None], 0.5)
    assert credits == pytest.approx([0.8, 0.6, 0.6, 0.6])


def test_credit_needs_a_reward_for_each_developer_turn():
    with pytest.raises(ValueError, match="reward"):
        credit_turns(["developer", "developer"], [0.5, None])


def test_flat_advantages_computed_by_hand():
    # Pooled: 1, 2, 3; mean 2, standard deviation sqrt(2/3).
    advantages = grpo_advantages([[1.0, 2.0], [3.0]], "flat")
    assert advantages.values[0] == pytest.approx([-1.2247449, 0.0])
    assert advantages.values[1] == pytest.approx([1.2247449])
    assert advantages.std == pytest.approx(0.8164966)
    assert not advantages.silent


def test_per_turn_advantages_compare_turns_of_equal_number():
    advantages = grpo_advantages([[0.0, 10.0], [1.0, 12.0], [2.0]], "per_turn")
    first = 1.2247449
    assert advantages.values[0] == pytest.approx([-first, -1.0])
    assert advantages.values[1] == pytest.approx([0.0, 1.0])
    assert advantages.values[2] == pytest.approx([first])


def test_per_turn_gives_nothing_to_a_turn_without_a_rival():
    advantages = grpo_advantages([[0.0], [1.0, 5.0]], "per_turn")
    assert advantages.values[1][1] == 0.0


def test_dr_grpo_leaves_the_division_out():
    assert grpo_advantages([[1.0, 2.0], [3.0]], "dr_grpo").values == [[-1.0, 0.0], [1.0]]


def test_rloo_compares_with_the_other_episodes():
    values = grpo_advantages([[1.0, 2.0], [3.0], [5.0]], "rloo").values
    assert values[0] == pytest.approx([1 - 4, 2 - 4])
    assert values[1] == pytest.approx([3 - 8 / 3])
    assert values[2] == pytest.approx([5 - 2])


def test_rloo_of_single_turn_episodes_is_the_centred_return_times_k_over_k_minus_1():
    returns = [[0.1], [0.4], [0.7], [0.2]]
    rloo = np.array(grpo_advantages(returns, "rloo").values)
    centred = np.array(grpo_advantages(returns, "dr_grpo").values)
    assert rloo == pytest.approx(centred * 4 / 3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_group_without_spread_is_silent(variant):
    third = 1 / 3
    advantages = grpo_advantages([[third, third], [third], [1 - 2 * third]], variant)
    assert advantages.silent
    assert advantages.values == [[0.0, 0.0], [0.0], [0.0]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_group_of_one_turn_is_silent(variant):
    assert grpo_advantages([[0.7]], variant).silent


def test_an_episode_without_turns_of_the_agent_keeps_its_place():
    advantages = grpo_advantages([[], [1.0], [2.0]], "flat")
    assert [len(row) for row in advantages.values] == [0, 1, 1]


@given(returns_of_a_group, st.sampled_from(VARIANTS))
def test_advantages_keep_the_shape_and_are_finite(returns, variant):
    advantages = grpo_advantages(returns, variant)
    assert [len(row) for row in advantages.values] == [len(row) for row in returns]
    assert all(np.isfinite(value) for row in advantages.values for value in row)


@given(returns_of_a_group, st.sampled_from(["flat", "dr_grpo", "per_turn"]))
def test_advantages_of_a_group_sum_to_zero(returns, variant):
    advantages = grpo_advantages(returns, variant)
    assert sum(map(sum, advantages.values)) == pytest.approx(0, abs=1e-5)


@given(returns_of_a_group, st.floats(0.5, 2), st.floats(-3, 3))
def test_flat_advantages_do_not_see_scale_and_shift(returns, scale, shift):
    moved = [[scale * value + shift for value in row] for row in returns]
    before, after = grpo_advantages(returns), grpo_advantages(moved)
    if min(before.std, after.std) > 1e-3:
        for left, right in zip(before.values, after.values, strict=True):
            assert left == pytest.approx(right, abs=1e-4)


def test_unknown_variant_is_named():
    with pytest.raises(ValueError, match="gae"):
        grpo_advantages([[1.0]], "gae")


def test_returns_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="finite"):
        grpo_advantages([[1.0], [float("nan")]])
