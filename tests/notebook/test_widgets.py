"""What all widgets share: strips of pages, and what is left in a stored notebook."""

import base64
import threading

import matplotlib
import pytest

from vclib.notebook.widgets import (
    CreditExplorer,
    EpisodeReplayer,
    RewardExplorer,
    draft_strip,
    episode_strip,
)
from vclib.rl import figures
from vclib.rl.results import Draft

ROWS = [{"iter": i, "mean": 0.5 + i / 100} for i in range(1, 9)]


@pytest.mark.parametrize("rewards", [(0.5,), (0.2, 0.5), (0.2, 0.5, 0.4)])
def test_an_episode_is_a_picture_as_wide_as_it_has_drafts(rewards, episode, size):
    one = size(episode_strip(episode(0.5)).png)
    strip = episode_strip(episode(*rewards))
    assert size(strip.png)[0] == round(one[0] * (len(rewards) + 1) / 2)
    assert repr(strip) == "<episode strip>"


def test_a_strip_is_taller_for_a_long_critique_and_takes_a_draft_without_one(episode, size):
    pixels = episode(0.5).reference
    drafts = [Draft("", pixels, 0.5, None), Draft("", pixels, 0.6, "one line")]
    short = size(draft_strip(pixels, drafts).png)
    drafts[1] = Draft("", pixels, 0.6, "word " * 60)
    assert size(draft_strip(pixels, drafts).png)[1] > short[1]


def test_every_explorer_stores_a_picture_and_a_text_that_never_changes(episode):
    explorers = [
        RewardExplorer({"a": ROWS}),
        CreditExplorer([[0.2, 0.5], [0.4]]),
        EpisodeReplayer(episode(0.2, 0.5)),
    ]
    for explorer in explorers:
        bundle = explorer._repr_mimebundle_()
        assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
        assert "application/vnd.jupyter.widget-view+json" in bundle
        assert bundle["text/plain"] == f"<{explorer.title}>"


def test_threads_that_draw_at_once_leave_the_settings_of_matplotlib_as_they_were():
    before = dict(matplotlib.rcParams)

    def draw():
        for _ in range(3):
            figures.png(figures.reward_curve(ROWS))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dict(matplotlib.rcParams) == before
