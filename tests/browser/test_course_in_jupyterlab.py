"""The notebooks with widgets, run from top to bottom in a real JupyterLab, and then played with."""

import re
import runpy
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from vclib.paths import ROOT

HAND = runpy.run_path(str(Path(__file__).with_name("conftest.py")))
picture, changes, move = HAND["picture"], HAND["changes"], HAND["move"]
MINUTES = 60
pytestmark = [pytest.mark.long, pytest.mark.timeout(MINUTES * 60 * 2)]

WIDGETS = {
    "02_the_reward": ("RewardInspector(",),
    "05_episodes": ("EpisodeReplayer(",),
    "06_shaped_returns": ("CreditExplorer(",),
    "07_group_advantages": ("CreditExplorer(",),
    "09_the_training_loop": ("RewardExplorer(",),
}


@pytest.mark.parametrize("name", WIDGETS)
def test_a_notebook_runs_to_its_end_and_its_widgets_answer(name, lab):
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    nbformat.write(notebook, lab.folder / f"{name}.ipynb")
    lab.open(f"{name}.ipynb")
    lab.run_all(MINUTES * 60)
    assert lab.errors() == []
    for words in WIDGETS[name]:
        place = lab.cell(words).locator(".jp-OutputArea").last
        place.scroll_into_view_if_needed()
        PLAY[words](place)
        lab.shot(name)
    lab.end_kernels()


def slide(place):
    before = picture(place)
    move(place.locator(".widget-slider").first)
    changes(place, before)


def edit(place):
    before = picture(place)
    place.locator("textarea").fill("<!doctype html><html><body><p>Something else</p></body></html>")
    changes(place, before)


def play(place):
    before = picture(place)
    turns = place.locator(".widget-readout").first
    place.locator(".jupyter-widget-play button, .widget-play button").first.click()
    expect(turns).not_to_have_text("1", timeout=400_000)
    place.get_by_role("button", name=re.compile("log-probability")).click()
    place.locator(".noUi-handle").first.press("End")
    changes(place, before)


PLAY = {
    "RewardInspector(": edit,
    "EpisodeReplayer(": play,
    "CreditExplorer(": slide,
    "RewardExplorer(": slide,
}
