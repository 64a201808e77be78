"""Base against trained on held-out pages, with a random small model and a real browser."""

import json
import math

import pytest

from vclib.env.pages import load_pages
from vclib.errors import VclibError
from vclib.policy.model import LoraSettings, Policy
from vclib.rl.evaluate import choose_pages, evaluate, table
from vclib.rl.results import Arm, EvalSettings, PageResult, shown_pages
from vclib.rl.results_file import save

SHORT = EvalSettings(
    count=4,
    max_steps=2,
    developer_tokens=8,
    critic_tokens=3,
    samples_per_page=2,
    episodes_per_batch=6,
)


@pytest.fixture(scope="module")
def played(model_folder, env):
    """Adapters that were never trained change nothing: base and trained must agree."""
    policy = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu")
    seen = []
    pages = choose_pages(env.pages, SHORT)
    return evaluate(policy, env, pages, SHORT, lambda arm, n: seen.append((arm, n))), seen


def test_all_arms_play_the_same_held_out_pages(played):
    evaluation, _ = played
    orders = {tuple(r.page_id for r in results) for results in evaluation.arms.values()}
    assert len(evaluation.arms) == 8 and len(orders) == 1
    assert all("/heldout/" in page for page in orders.pop())


def test_numbers_are_finite_and_have_intervals(played, tmp_path):
    evaluation, _ = played
    content = json.loads(save(evaluation, tmp_path, list(shown_pages(evaluation))).read_text())
    for row in content["means"]:
        if row["pages"] == 1:
            assert row["low"] is row["high"] is None and math.isfinite(row["mean"])
        else:
            assert 0 <= row["low"] <= row["mean"] <= row["high"] <= 1
    for row in content["differences"]:
        assert math.isfinite(row["mean"]) and abs(row["mean"]) <= 1
    assert len(content["turns"]) == 8 * SHORT.max_steps
    assert content["about"]["browser"]
    assert (
        tmp_path / content["references"][evaluation.arms[Arm("base", "alone", "greedy")][0].page_id]
    ).is_file()


def test_untrained_adapters_make_no_difference_at_all(played):
    evaluation, _ = played
    for loop in ("alone", "critic"):
        for decoding in ("sampled", "greedy"):
            gain = evaluation.gain(Arm("trained", loop, decoding), Arm("base", loop, decoding))
            assert (gain.mean, gain.low, gain.high) == (0, 0, 0)
            assert gain.verdict == "unclear"


def test_the_first_draft_is_the_same_alone_and_with_the_critic(played):
    evaluation, _ = played
    alone = evaluation.arms[Arm("base", "alone", "sampled")]
    critic = evaluation.arms[Arm("base", "critic", "sampled")]
    for one, other in zip(alone, critic, strict=True):
        assert [r[0] for r in one.rewards] == [r[0] for r in other.rewards]


def test_sampled_arms_play_each_page_several_times_and_greedy_ones_once(played):
    evaluation, _ = played
    assert len(evaluation.arms[Arm("base", "alone", "sampled")][0].rewards) == 2
    assert len(evaluation.arms[Arm("base", "alone", "greedy")][0].rewards) == 1


def test_alone_takes_every_turn(played):
    evaluation, _ = played
    assert evaluation.mean_turns(Arm("trained", "alone", "sampled")) == SHORT.max_steps


def test_progress_counts_every_page_of_every_arm(played):
    evaluation, seen = played
    assert sum(pages for _, pages in seen) == 8 * evaluation.pages()


def test_the_table_names_every_arm_and_comparison_within_96_columns(played):
    text = table(played[0])
    for words in (
        "base alone",
        "trained with Critic",
        "trained - base",
        "with Critic - alone",
        "greedy",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 96


def test_an_episode_that_the_critic_ended_keeps_its_last_reward():
    result = PageResult("p", "easy", [[0.2, 0.6], [0.4]])
    assert result.value("first") == pytest.approx(0.3)
    assert result.value("last") == pytest.approx(0.5)
    assert result.value("2") == result.value("3") == pytest.approx(0.5)


def test_best_so_far_is_the_best_draft_of_each_episode():
    assert PageResult("p", "easy", [[0.7, 0.5], [0.1, 0.3]]).value("best") == pytest.approx(0.5)


def test_a_finite_set_gives_each_page_once(tmp_path):
    for number in range(10):
        (tmp_path / f"{number}.html").write_text(f"<!doctype html><p>{'word ' * number}</p>")
    pages = choose_pages(load_pages(f"folder:{tmp_path}"), EvalSettings(count=60))
    assert len({page.id for page in pages}) == len(pages) < 10
    assert {page.split for page in pages} == {"heldout"}


def test_a_mixed_evaluation_takes_as_many_pages_of_each_difficulty():
    pages = choose_pages(load_pages("blocks"), EvalSettings(count=9))
    assert sorted(page.difficulty for page in pages) == ["easy"] * 3 + ["hard"] * 3 + ["medium"] * 3


def test_no_pages_at_all_is_refused():
    with pytest.raises(VclibError, match="1 page or more"):
        choose_pages(load_pages("blocks"), EvalSettings(count=0))
