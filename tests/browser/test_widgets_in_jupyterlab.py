"""Every widget in a real JupyterLab, used as a person would use it."""

import re
import runpy
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

HAND = runpy.run_path(str(Path(__file__).with_name("conftest.py")))
picture, changes, move = HAND["picture"], HAND["changes"], HAND["move"]
SLOW = 400_000
"""Milliseconds in which something must have changed, on a very busy machine too."""
pytestmark = pytest.mark.timeout(1200)

CELLS = [
    """
import shutil, tempfile
from pathlib import Path
from vclib.console import quieten
from vclib.env.pages import load_pages
from vclib.notebook.widgets import *
from vclib.paths import DATA, TINY
from vclib.rl import kept
from vclib.rl.profiles import PROFILES
from vclib.rl.results_file import load
from vclib.rl.trainer import Trainer
quieten(str(TINY))
runs = DATA / "runs" / "laptop"
pair = kept.evaluated(load(runs / "eval"))["blocks/heldout/hard/0"]
run = shutil.copytree(runs, Path(tempfile.mkdtemp()) / "run")
last = len((run / "train.jsonl").read_text().splitlines())
for update, episode in zip((1, last), pair.values()):
    kept.save(episode, kept.path_of(run, update))
""",
    "RewardExplorer({'laptop': run})",
    "CreditExplorer([[0.3, 0.5, 0.9], [0.9, 0.9]])",
    "EpisodeReplayer(pair, interval_ms=300)",
    "RewardInspector(load_pages('blocks').at('heldout', 'easy', 0).html)",
    """
settings = PROFILES["ci"].but(
    phase="developer", episodes=500, device="cpu", output=tempfile.mkdtemp()
)
dashboard = Dashboard().train(Trainer(settings))
""",
    "print('the kernel is', 'free')",
    "dashboard.wait()",
]


@pytest.fixture(scope="module")
def open_lab(lab):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source.strip()) for source in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, lab.folder / "widgets.ipynb")
    lab.open("widgets.ipynb")
    for words in ("import shutil", "RewardExplorer(", "CreditExplorer(", "EpisodeReplayer("):
        run(lab, words)
    return lab


def run(lab, words):
    """Run one cell, and give its output once it has ended."""
    cell = lab.cell(words)
    cell.locator(".jp-InputPrompt").click()
    lab.menu("Run", "runmenu:run")
    expect(cell.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]"), timeout=SLOW)
    assert lab.errors() == []
    return cell.locator(".jp-OutputArea")


def output(lab, words):
    return lab.cell(words).locator(".jp-OutputArea")


def test_a_slider_moved_by_the_keyboard_redraws_the_reward_curve(open_lab):
    place = output(open_lab, "RewardExplorer(")
    before = picture(place)
    move(place.locator(".widget-slider").first)
    changes(place, before)
    open_lab.shot("reward-explorer")


def test_the_axis_is_chosen_by_a_click(open_lab):
    place = output(open_lab, "RewardExplorer(")
    before = picture(place)
    place.get_by_role("button", name="minutes").click()
    changes(place, before)


def test_a_click_below_the_curve_opens_an_episode_of_that_update(open_lab):
    place = output(open_lab, "RewardExplorer(")
    track = place.locator(".noUi-target").nth(1)
    track.scroll_into_view_if_needed()
    size = track.bounding_box()
    track.click(position={"x": 0.9 * size["width"], "y": size["height"] / 2})
    opened = place.locator(".widget-html-content", has_text="The Developer writes")
    expect(opened).to_contain_text(re.compile(r"laptop, update ([2-9]|\d\d)"), timeout=SLOW)
    marked = picture(place)
    open_lab.shot("reward-explorer-episode")
    place.get_by_title("the kept episode before").click()
    expect(opened).to_contain_text("laptop, update 1", timeout=SLOW)
    changes(place, marked)


def test_a_reward_that_is_moved_changes_the_credit(open_lab):
    place = output(open_lab, "CreditExplorer(")
    before = picture(place)
    move(place.locator(".widget-slider").last)
    changes(place, before)
    open_lab.shot("credit-explorer")


def test_the_replayer_plays_to_the_end_and_marks_what_changed(open_lab):
    place = output(open_lab, "EpisodeReplayer(")
    before = picture(place)
    place.locator(".jupyter-widget-play button, .widget-play button").first.click()
    expect(place.locator(".widget-readout").first).to_have_text("3", timeout=SLOW)
    changes(place, before)
    expect(place.locator("ins").first).to_be_visible(timeout=SLOW)
    open_lab.shot("episode-replayer")


def test_every_control_of_the_replayer_is_reached_by_the_tab_key(open_lab):
    place = output(open_lab, "EpisodeReplayer(")
    controls = place.locator("button, .noUi-handle")
    assert controls.count() >= 8
    assert not [n for n in controls.evaluate_all("all => all.map(n => n.tabIndex)") if n < 0]


def test_text_is_read_in_the_light_and_in_the_dark_theme(open_lab):
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        open_lab.page.evaluate("document.activeElement.blur()")
        open_lab.page.locator(".lm-MenuBar-itemLabel", has_text="Settings").first.click()
        open_lab.page.locator(".lm-Menu-itemLabel", has_text="Theme").first.click()
        open_lab.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{theme}$")).click()
        expect(open_lab.page.locator(f'body[data-jp-theme-name="{theme}"]')).to_be_attached()
        # JupyterLab draws its sign over everything while it changes.
        expect(open_lab.page.locator("#jupyterlab-splash")).to_have_count(0, timeout=SLOW)
        card = output(open_lab, "EpisodeReplayer(").locator(".widget-html-content div").first
        colours = "n => [getComputedStyle(n).color, getComputedStyle(n).backgroundColor]"
        assert contrast(*card.evaluate(colours)) > 7
        card.scroll_into_view_if_needed()
        open_lab.shot(theme.lower().replace(" ", "-"))


def test_the_score_follows_the_html_that_is_typed(open_lab):
    place = run(open_lab, "RewardInspector(")
    said = place.locator(".widget-html-content").first
    expect(said).to_contain_text("reward 1.000", timeout=SLOW)
    before = picture(place)
    place.locator("textarea").fill(
        "<!doctype html><html><body><p>nothing like it</p></body></html>"
    )
    expect(said).not_to_contain_text("reward 1.000", timeout=SLOW)
    changes(place, before)
    open_lab.shot("reward-inspector")


def test_training_leaves_the_kernel_free_and_ends_within_one_update_of_the_button(open_lab):
    place = run(open_lab, "Dashboard()")
    status = place.locator(".widget-html-content").last
    expect(status).to_contain_text(re.compile(r"Update [1-9]\d* of 500"), timeout=SLOW)
    before = picture(place)
    expect(run(open_lab, "'free'")).to_contain_text("the kernel is free")
    changes(place, before)
    open_lab.shot("training-dashboard")
    done = int(re.search(r"Update (\d+)", status.inner_text())[1])
    place.get_by_role("button", name="stop after this update").click()
    expect(status).to_contain_text("Stopped after update", timeout=SLOW)
    ended = int(re.search(r"Stopped after update (\d+) of 500", status.inner_text())[1])
    assert done <= ended <= done + 2  # one may have ended between the look and the click
    run(open_lab, "dashboard.wait()")
    open_lab.shot("training-stopped")


def contrast(*colours):
    """Of two CSS colours, 1 to 21 (WCAG 2.2)."""
    lights = []
    for colour in colours:
        channels = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        lights.append(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))
    return (max(lights) + 0.05) / (min(lights) + 0.05)
