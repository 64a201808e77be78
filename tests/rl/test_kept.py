"""Episodes that are kept: what a file gives back, and which files a run leaves."""

import json

import numpy as np
import pytest

from vclib.errors import VclibError
from vclib.paths import DATA
from vclib.rl import kept
from vclib.rl.episodes import play
from vclib.rl.results_file import load
from vclib.rl.trainer import Trainer


@pytest.fixture
def episode(policy, env, short_episodes, seeded):
    [group] = play(
        policy, env, ["blank/train/easy/0"], k=1, settings=short_episodes, generator=seeded(0)
    )
    return group[0]


def test_a_file_gives_back_the_episode_to_the_pixel(episode, policy, tmp_path):
    one = kept.keep(episode, policy.tokenizer, update=7)
    two = kept.load(kept.save(one, tmp_path / "a" / "episode.json"))
    assert (two.page_id, two.difficulty, two.update) == (episode.page_id, "easy", 7)
    assert np.array_equal(two.reference, episode.reference)
    for turn, back in zip(one.turns, two.turns, strict=True):
        assert (back.agent, back.text, back.reward) == (turn.agent, turn.text, turn.reward)
        assert (back.tokens, back.logprobs) == (turn.tokens, turn.logprobs)
        assert (back.render is None) == (turn.agent == "critic")


def test_tokens_spell_what_was_sampled_and_their_logprobs_add_up(episode, policy):
    for turn, live in zip(kept.keep(episode, policy.tokenizer).turns, episode.turns, strict=True):
        ids = live.sample.completion_ids
        whole = policy.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        assert "".join(turn.tokens).replace("\ufffd", "") == whole.replace("\ufffd", "")
        assert np.isclose(sum(turn.logprobs), live.sample.logprobs.sum().item(), atol=1e-4)


def test_a_letter_of_several_tokens_is_one_piece(policy):
    ids = policy.tokenizer("aé漢b")["input_ids"]
    pieces = kept._pieces(ids, policy.tokenizer)
    assert [text for text, _ in pieces] == ["a", "é", "漢", "b"]
    assert [ids[i] for _, span in pieces for i in range(*span.indices(len(ids)))] == ids


def test_a_run_keeps_the_first_episode_of_some_updates_and_none_of_a_past_that_is_gone(
    settings, env, policy, monkeypatch
):
    monkeypatch.setattr(kept, "MOST", 2)
    with Trainer(settings.but(episodes=4), env, policy) as trainer:
        folder = trainer.settings.run_folder
        stale = kept.path_of(folder, 9)
        stale.parent.mkdir()
        stale.write_text("{}")
        list(trainer.run())
    assert sorted(kept.stored(folder)) == [1, 2, 4]
    last = kept.load(kept.stored(folder)[4])
    assert last.update == 4 and last.turns[0].agent == "developer"
    assert last.turns[0].advantage is not None


def test_an_evaluation_gives_the_episodes_of_base_and_trained_on_the_same_page():
    pages = kept.evaluated(load(DATA / "runs" / "laptop" / "eval"))
    assert pages
    for page_id, pair in pages.items():
        assert set(pair) == {"base", "trained"}
        assert {episode.page_id for episode in pair.values()} == {page_id}
        assert all(e.turns[-1].render.shape == e.reference.shape for e in pair.values())


def test_a_file_that_lacks_things_gives_the_rest(tmp_path):
    path = tmp_path / "episode.json"
    path.write_text(json.dumps({"turns": [{"agent": "developer", "text": "<p>"}]}))
    episode = kept.load(path)
    assert episode.reference is None and episode.turns[0].render is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"turns": [1]}', '{"turns": [{}]}'])
def test_a_damaged_file_ends_in_one_sentence(text, tmp_path):
    path = tmp_path / "episode.json"
    path.write_text(text)
    with pytest.raises(VclibError, match="holds no episode"):
        kept.load(path)
