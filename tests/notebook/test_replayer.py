"""The replayer without a browser: a turn in, pictures and marked text out."""

from dataclasses import replace

import numpy as np
import pytest

from vclib.errors import VclibError
from vclib.notebook.marked_text import changes, colouring
from vclib.notebook.replay_figures import difference, shown_turns, turn_figure
from vclib.notebook.replayer import EpisodeReplayer
from vclib.rl.kept import KeptEpisode, KeptTurn, keep

TURN = KeptTurn(
    "developer", "<p>Hi", 0.5, None, None, 1.5, ("<p>", "Hi"), (np.log(0.5), np.log(0.9))
)


def titles(figure):
    named = (axes.get_title() or axes.get_title(loc="right") for axes in figure.axes)
    return [title for title in named if title]


def test_it_steps_through_draft_critique_draft_and_stops_at_the_end(episode):
    replayer = EpisodeReplayer(episode(0.2, 0.5))
    seen = []
    for _ in range(4):
        seen.append((replayer.turn.value, replayer.image.value, replayer.text.value))
        replayer.forward.click()
    numbers, pictures, texts = zip(*seen, strict=True)
    assert numbers == (1, 2, 3, 3)
    assert pictures[0] == pictures[1] != pictures[2] == pictures[3]
    assert "The Developer writes" in texts[0] and "The Critic says" in texts[1]
    replayer.back.click()
    assert replayer.turn.value == 2


def test_playing_moves_the_slider_and_the_slider_moves_the_player(episode):
    replayer = EpisodeReplayer(episode(0.2, 0.5))
    replayer.play.value = 3
    assert replayer.turn.value == 3
    replayer.turn.value = 1
    assert replayer.play.value == 1


def test_a_turn_shows_its_draft_with_its_reward_and_its_difference_from_the_reference(episode):
    kept = keep(episode(0.2, 0.5))
    figure = turn_figure({"": kept}, 2)
    assert titles(figure) == [
        "reference",
        "draft 2: reward 0.50",
        "difference, 0 to 255",
        "parts of the reward, 0 to 1",
    ]
    drawn = figure.axes[2].images[0].get_array()
    assert np.array_equal(drawn, difference(kept.reference, kept.turns[2].render))
    assert (drawn == 215).all()  # 255 of the reference, 40 of the draft


def test_the_bars_hold_every_part_and_an_absent_one_is_named(episode):
    bars = turn_figure({"": keep(episode(0.2))}, 0).axes[3]
    assert [bar.get_width() for bar in bars.patches] == [1.0, 0.4, 0.0, 1.0, 0.2]
    assert [text.get_text() for text in bars.texts] == ["1.00", "0.40", "absent", "1.00", "0.20"]
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert names == ["format", "text_block", "clip", "gate", "reward"]


def test_two_episodes_stand_one_above_the_other_and_the_shorter_one_waits(episode):
    pair = {"base": episode(0.2), "trained": episode(0.4, 0.9)}
    replayer = EpisodeReplayer(pair)
    assert replayer.turn.max == 3
    replayer.turn.value = 3
    assert "this episode ended at turn 1" in replayer.text.value
    kept = {name: keep(one) for name, one in pair.items()}
    assert [shown_turns(one, 2)[0] for one in kept.values()] == [1, 2]
    figure = turn_figure(kept, 2)
    assert "base: reference" in titles(figure) and "trained: reference" in titles(figure)


def test_pictures_of_different_sizes_have_no_difference(episode):
    kept = keep(episode(0.2))
    small = replace(kept, reference=kept.reference[:10])
    assert difference(small.reference, small.turns[0].render) is None
    assert "not known" in [t.get_text() for t in turn_figure({"": small}, 0).axes[2].texts]


def test_changes_mark_what_is_new_and_what_has_gone_and_nothing_else():
    html = changes("<p>old words</p>", "<p>new words</p>")
    assert html.count("<ins") == html.count("<del") == 1
    assert "old</del>" in html and "new</ins> words&lt;/p&gt;" in html
    assert "<ins" not in changes("<p>same</p>", "<p>same</p>")


def test_a_hostile_draft_is_shown_as_text(episode):
    bad = KeptTurn("developer", "<script>alert(1)</script>", tokens=("<script>",), logprobs=(0.0,))
    replayer = EpisodeReplayer({"<b>": KeptEpisode("x", "easy", None, (bad,))})
    for view in replayer.view.options:
        replayer.view.value = view
        assert "<script>" not in replayer.text.value and "<b></b>" not in replayer.text.value


def test_tokens_are_coloured_by_their_numbers():
    sure, colour = colouring(TURN, "log-probability")
    assert np.allclose(np.exp(sure), [0.5, 0.9])
    assert colour(0.0) != colour(sure[1]) != colour(sure[0])
    assert colouring(TURN, "advantage")[0] == [1.5, 1.5]
    assert np.allclose(colouring(TURN, "pull")[0], [1.5 * 0.5, 1.5 * 0.1])


@pytest.mark.parametrize("view", ["log-probability", "advantage", "pull"])
def test_a_view_that_lacks_its_numbers_says_so(view, episode):
    replayer = EpisodeReplayer(episode(0.2))
    replayer.view.value = view
    assert "cannot be shown" in replayer.text.value


def test_an_episode_without_critique_parts_reference_or_pictures_shows_the_rest(episode):
    bare = KeptEpisode("x", "easy", None, (KeptTurn("developer", "<p>"), KeptTurn("developer", "")))
    replayer = EpisodeReplayer(bare)
    replayer.turn.value = 2
    assert "no critique was given" in replayer.text.value
    written = [t.get_text() for axes in turn_figure({"": bare}, 1).axes for t in axes.texts]
    assert "no reference kept" in written and "parts of the reward: not kept" in written
    assert replayer.fallback().startswith(b"\x89PNG")
    replayer = EpisodeReplayer(episode(0.2, 0.5, critic=False))
    assert "no critique was given" in replayer.text.value


def test_an_episode_without_turns_is_an_error_that_says_so():
    with pytest.raises(VclibError, match="no episode here has a turn"):
        EpisodeReplayer(KeptEpisode("x", "easy", None, ()))


def test_the_stored_picture_shows_all_drafts(episode, size):
    one, two = (size(EpisodeReplayer(episode(*rs)).fallback()) for rs in ((0.1,) * 4, (0.1,) * 8))
    assert two[0] > one[0]
