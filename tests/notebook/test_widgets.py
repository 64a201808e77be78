"""Widgets without a browser: what they draw, and what they leave in a stored notebook."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from vclib.notebook import widgets
from vclib.notebook.widgets import Dashboard, RewardExplorer, draft_strip, episode_strip
from vclib.policy.encoding import Prompt
from vclib.policy.sampling import Sample
from vclib.rl.episodes import Episode, Turn
from vclib.rl.learner import Learned
from vclib.rl.results import Draft
from vclib.rl.update import Update, assign_credit, records, summarise

ROWS = [
    {"iter": i, "easy": 0.5 + i / 100, "medium": None, "hard": 0.2, "mean": 0.4 + i / 100}
    for i in range(1, 21)
]
PHASES = [("developer", 1, 10), ("critic", 11, 20)]


def size(png):
    return Image.open(io.BytesIO(png)).size


def page(shade):
    return np.full((192, 256, 3), shade, np.uint8)


def turn(agent, text, reward=None, shade=0):
    nothing = torch.zeros(1, dtype=torch.long)
    prompt = Prompt(nothing, nothing, nothing.expand(3, 1))
    sample = Sample(agent, prompt, nothing, text, False, torch.zeros(1), 0.7)
    render = page(shade) if agent == "developer" else None
    rewards = {"validity": 1.0} if agent == "developer" else None
    return Turn(agent, sample, text, reward, rewards, render)


def episode(*rewards):
    turns = []
    for number, reward in enumerate(rewards):
        if number:
            turns.append(turn("critic", "bar 2 should be #16a34a\n" * number))
        turns.append(turn("developer", "<!doctype html>", reward, shade=40 * number))
    return Episode("blocks/train/easy/0", "easy", 0, page(255), turns)


def update(index, phase="developer"):
    groups = [[episode(0.2, 0.5), episode(0.4, 0.3), episode(0.9)]]
    agents = (phase,)
    gathered = [records(groups, assign_credit(groups, agents, "flat", 0.2))]
    learned = Learned(loss=0.1, grad_norm=1.0, entropy=0.5)
    return Update(
        phase=phase,
        phase_number=0,
        index=index,
        total=4,
        **summarise(gathered),
        loss=learned.loss,
        grad_norm=learned.grad_norm,
        entropy=learned.entropy,
        skipped_steps=0,
        faults=0,
        tokens_per_second=1.0,
        seconds={},
        episodes=groups,
    )


def test_the_explorer_redraws_when_the_run_the_pages_or_the_smoothing_change():
    explorer = RewardExplorer({"a": ROWS, "b": ROWS[:5]}, {"a": PHASES})
    seen = {explorer.image.value}
    for control, value in ((explorer.run, "b"), (explorer.difficulty, "easy")):
        control.value = value
        seen.add(explorer.image.value)
    explorer.smoothing.value = 1
    seen.add(explorer.image.value)
    assert len(seen) == 4


def test_the_explorer_draws_the_column_that_is_chosen(monkeypatch):
    drawn = []
    real = widgets.figures.reward_curve
    monkeypatch.setattr(
        widgets.figures,
        "reward_curve",
        lambda rows, phases, window: drawn.append((rows, phases, window)) or real(rows, phases),
    )
    explorer = RewardExplorer({"a": ROWS}, {"a": PHASES})
    explorer.difficulty.value = "hard"
    rows, phases, window = drawn[-1]
    assert {row["mean"] for row in rows} == {0.2} and phases == PHASES
    assert window == explorer.smoothing.value


def test_a_difficulty_that_a_run_never_saw_is_drawn_without_an_error():
    explorer = RewardExplorer({"a": ROWS})
    explorer.difficulty.value = "medium"
    assert size(explorer.image.value)[0] > 0


def test_the_explorer_stores_a_picture_beside_the_widget():
    explorer = RewardExplorer({"a": ROWS})
    bundle = explorer._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == explorer.image.value
    assert "application/vnd.jupyter.widget-view+json" in bundle
    before = bundle["text/plain"]
    explorer.difficulty.value = "easy"
    assert explorer._repr_mimebundle_()["text/plain"] == before


def test_the_dashboard_replaces_one_picture_of_fixed_size(monkeypatch):
    shown = []

    class Handle:
        def update(self, picture):
            shown.append(picture)

    def display(picture, display_id):
        shown.append(picture)
        return Handle()

    monkeypatch.setattr(widgets, "display", display)
    dashboard = Dashboard(total=4)
    for index, phase in ((1, "developer"), (2, "developer"), (3, "critic")):
        dashboard.add(update(index, phase))
    assert len({size(picture.png) for picture in shown}) == 1
    assert len({picture.png for picture in shown}) == 3
    assert {repr(picture) for picture in shown} == {"<training dashboard>"}


def test_the_dashboard_keeps_numbers_but_no_pictures():
    dashboard = Dashboard(total=4)
    dashboard.add(update(1))
    assert not any(isinstance(value, list) for value in dashboard.rows[0].values())


@pytest.mark.parametrize("rewards", [(0.5,), (0.2, 0.5), (0.2, 0.5, 0.4)])
def test_an_episode_is_a_picture_as_wide_as_it_has_drafts(rewards):
    one = size(episode_strip(episode(0.5)).png)
    strip = episode_strip(episode(*rewards))
    assert size(strip.png)[0] == round(one[0] * (len(rewards) + 1) / 2)
    assert repr(strip) == "<episode strip>"


def test_a_strip_is_taller_for_a_long_critique_and_takes_a_draft_without_one():
    drafts = [Draft("", page(0), 0.5, None), Draft("", page(9), 0.6, "one line")]
    short = size(draft_strip(page(255), drafts).png)
    drafts[1] = Draft("", page(9), 0.6, "word " * 60)
    assert size(draft_strip(page(255), drafts).png)[1] > short[1]
