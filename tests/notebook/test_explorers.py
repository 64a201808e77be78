"""The credit explorer without a browser: state in, the library's numbers and a picture out."""

import base64

import pytest

from vclib.errors import VclibError
from vclib.notebook.explorers import REACH, CreditExplorer, credit_of, credit_tables
from vclib.rl.returns import VARIANTS, compute_step_returns, grpo_advantages

REWARDS = [[0.2, 0.5, 0.9], [0.6], [0.4, 0.3]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_shows_the_numbers_of_the_library(variant):
    explorer = CreditExplorer(REWARDS, lambda_shaped=0.5)
    explorer.variant.value = variant
    returns = [compute_step_returns(row, 0.5) for row in REWARDS]
    assert explorer.credit["return"] == returns
    assert explorer.credit["advantage"] == grpo_advantages(returns, variant).values


def test_moving_a_reward_changes_that_draft_alone_and_the_picture():
    explorer = CreditExplorer(REWARDS)
    before = explorer.image.value
    explorer.episode.value, explorer.draft.value = 3, 2
    assert explorer.reward.value == 0.3
    explorer.reward.value = 0.8
    assert explorer.rewards == [[0.2, 0.5, 0.9], [0.6], [0.4, 0.8]]
    assert explorer.image.value != before
    assert REWARDS[2] == [0.4, 0.3]


def test_an_episode_with_fewer_drafts_pulls_the_choice_of_draft_back():
    explorer = CreditExplorer(REWARDS)
    explorer.draft.value = 3
    explorer.episode.value = 2
    assert (explorer.draft.value, explorer.reward.value) == (1, 0.6)
    assert explorer.rewards == REWARDS


def test_a_smaller_group_is_compared_within_itself_alone():
    explorer = CreditExplorer(REWARDS)
    explorer.episode.value = 3
    explorer.k.value = 2
    returns = [compute_step_returns(row) for row in REWARDS[:2]]
    assert explorer.credit["advantage"] == grpo_advantages(returns).values
    assert explorer.episode.value == 2


def test_it_takes_real_episodes(episode):
    assert CreditExplorer([episode(0.2, 0.5), episode(0.4)]).rewards == [[0.2, 0.5], [0.4]]


def test_it_says_what_a_change_did():
    explorer = CreditExplorer(REWARDS)
    assert "changed" not in explorer.said.value
    explorer.reward.value = 0.1
    change = 0.2 * (0.2 - 0.1)
    assert f"1 return changed, most that of episode 1, draft 1, by {change:+.2f}" in (
        explorer.said.value
    )
    assert "advantages changed, most that of episode 1, draft 1" in explorer.said.value
    explorer.reward.value = 0.2
    assert "changed" not in explorer.said.value


def test_a_stored_notebook_holds_its_picture():
    bundle = CreditExplorer(REWARDS)._repr_mimebundle_()
    assert bundle["text/plain"] == "<credit explorer>"
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")


def test_the_tables_hold_a_number_for_every_draft_and_nothing_where_there_is_none():
    figure = credit_tables(credit_of(REWARDS, 0.2, "flat"), marked=(0, 1))
    for axes in figure.axes:
        assert len(axes.texts) == sum(map(len, REWARDS))


def test_advantages_are_bars_as_long_as_they_are_to_the_side_of_their_sign():
    credit = credit_of(REWARDS, 0.2, "flat")
    bars = [bar for drawn in credit_tables(credit).axes[2].containers for bar in drawn]
    advantages = [value for row in credit["advantage"] for value in row]
    longest = max(map(abs, advantages))
    assert longest > 1
    assert [bar.get_width() for bar in bars] == [
        pytest.approx(value * REACH / longest) for value in advantages
    ]
    columns = [column for row in REWARDS for column in range(len(row))]
    assert [bar.get_x() for bar in bars] == columns


def test_small_advantages_are_not_drawn_as_long_as_large_ones():
    (bar,) = credit_tables({"advantage": [[0.25]]}).axes[0].containers[0]
    assert bar.get_width() == 0.25 * REACH


def test_a_group_in_which_nothing_differs_has_bars_of_no_length():
    figure = credit_tables(credit_of([[0.5], [0.5]], 0.2, "flat"))
    assert [bar.get_width() for drawn in figure.axes[2].containers for bar in drawn] == [0, 0]


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        ([], "no episode"),
        ([[0.5], []], "Episode 2 has the rewards"),
        ([[float("nan")]], "Episode 1 has the rewards"),
        ([[0.2, 1.5]], "between 0 and 1"),
        ([["good"]], "could not convert"),
        ([0.2, 0.5], "a list for every episode"),
        ([[None]], "a number for each draft"),
    ],
)
def test_rewards_that_cannot_be_compared_are_an_error_that_names_them(rewards, said):
    with pytest.raises(VclibError, match=said):
        CreditExplorer(rewards)
