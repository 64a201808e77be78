"""The report of a run: what it says, and that it needs nothing but itself."""

import json
import re

import html5lib
import numpy as np
import pytest

from vclib.errors import VclibError
from vclib.rl import figures
from vclib.rl.evaluate import table
from vclib.rl.headline import idle_updates
from vclib.rl.redraw import draw_figures, is_run, runs_in
from vclib.rl.report import headline, phases_of, write_report
from vclib.rl.results import Arm, Draft, EvalSettings, Evaluation, PageResult, shown_pages
from vclib.rl.results_file import load, save
from vclib.rl.runlog import RunLog

HOSTILE = "<script>alert(1)</script><img src='http://elsewhere.example/x.png'>"
PAGES = [f"blocks/heldout/{d}/{n}" for n in range(4) for d in ("easy", "medium", "hard")]


def evaluation_with_gain(gain, spread=0.0):
    """Base at 0.5, trained at 0.5 + gain, give or take `spread` from page to page."""
    settings = EvalSettings(max_steps=2, count=len(PAGES))
    picture = np.full((24, 32, 3), 200, dtype=np.uint8)
    arms = {}
    for arm in settings.arms():
        arms[arm] = []
        for number, page in enumerate(PAGES):
            last = 0.5
            if arm.policy == "trained":
                last += gain + (spread if number % 2 else -spread)
            shown = arm.loop == "critic" and arm.decoding == "sampled"
            parts = {"format": 0.5, "text_block": 1.0, "ssim": 0.9, "clip": None}
            drafts = [
                Draft(HOSTILE, picture, 0.4, None, parts),
                Draft("<p>2", picture, last, HOSTILE),
            ]
            arms[arm].append(
                PageResult(page, page.split("/")[2], [[0.4, last]], 0, drafts if shown else [])
            )
    about = {"browser": "chromium 1.2.3", "packages": {"torch": "2.14.1"}, "seconds": 9.0}
    return Evaluation(settings, arms, dict.fromkeys(PAGES, picture), about)


@pytest.fixture
def run(tmp_path):
    """The folder of a run of six updates in two phases, evaluated."""
    folder = tmp_path / "laptop-1"
    log = RunLog(folder)
    log.write_config({"model": "vc-tiny", "k_rollouts": 12}, browser="chromium 1.2.3")
    for update in range(1, 7):
        log.write(
            phase="developer" if update < 4 else "critic",
            iteration=update,
            by_difficulty={"easy": 0.5 + update / 50, "hard": 0.4},
            mean=0.45,
            mean_steps=2.0,
            loss=0.1,
            diagnostics={},
        )
    (folder / "commands.txt").write_text("python -m vclib train --profile laptop\n")
    evaluation = evaluation_with_gain(0.08, spread=0.01)
    save(evaluation, folder / "eval", list(shown_pages(evaluation)))
    return folder


def test_the_report_holds_headline_curves_pictures_table_and_origin(run):
    text = write_report(run).read_text(encoding="utf-8")
    assert "Training raised the reward on 12 held-out pages by 0.080" in text
    assert "developer trains" in text and "critic trains" in text
    assert text.count("data:image/png;base64,") == 5 * len(shown_pages(load(run / "eval")))
    for words in (
        "trained - base, with Critic",
        "best so far",
        "python -m vclib train --profile laptop",
        "k_rollouts",
        "chromium 1.2.3",
        "torch 2.14.1",
        "blocks/heldout/easy/0",
    ):
        assert words in text


def test_the_report_explains_its_rows_its_levels_and_what_revising_gains(run):
    text = write_report(run).read_text(encoding="utf-8")
    for words in (
        "without the Critic (the Developer revises its own draft)",
        "last - first, trained alone",
        "compare levels within a phase",
        "seconds of the evaluation",
        "one update",
        "format 0.50, ssim 0.90",
    ):
        assert words in text


def test_a_difference_that_rounds_to_nothing_is_not_negative(tmp_path):
    evaluation = evaluation_with_gain(-0.0002, spread=0.0001)
    save(evaluation, tmp_path / "eval", list(shown_pages(evaluation)))
    text = write_report(tmp_path).read_text(encoding="utf-8") + table(evaluation)
    assert "+0.000" in text and "-0.000" not in text


def test_a_loss_by_revising_is_said(run):
    evaluation = evaluation_with_gain(-0.2, spread=0.01)
    said = " ".join(headline(evaluation).sentences)
    assert "Revising makes drafts worse, trained with Critic: last - first -0.100" in said
    assert "Revising makes drafts worse, base" not in said
    assert "Revising" not in " ".join(headline(evaluation_with_gain(0.2)).sentences)


@pytest.mark.parametrize(
    ("norms", "silent", "says"),
    [
        ([0.0], 1.0, "0 of 1 update moved a weight: all groups were silent"),
        ([0.3, 0.0], 1.0, "1 of 2 updates moved a weight: in the others all groups were silent"),
        ([float("inf"), 0.2], 0.0, "1 of 2 updates moved a weight: in the others there was no"),
        ([0.1, 0.2], 0.0, None),
    ],
)
def test_updates_that_moved_nothing_are_counted(tmp_path, norms, silent, says):
    rows = [{"grad_norm": norm, "silent_share": silent} for norm in norms]
    (tmp_path / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = idle_updates(tmp_path)
    assert said is None if says is None else said.startswith(says)


@pytest.mark.parametrize("rewards", [[0.0], [1.0, 1.0], [0.83, 0.84]])
def test_curves_of_a_short_run_have_whole_updates_and_the_scale_of_rewards(rewards):
    rows = [{"iter": n, "mean": reward} for n, reward in enumerate(rewards, 1)]
    [axes] = figures.reward_curve(rows).axes
    low, high = axes.get_ylim()
    assert 0 <= low < high <= 1 and high - low > 0.099
    left, right = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if left <= tick <= right]
    assert ticks == list(range(1, len(rows) + 1))
    assert len(axes.lines) == (1 if len(rows) == 1 else 2)


def test_the_report_needs_nothing_but_itself_and_runs_no_page_that_it_shows(run):
    text = write_report(run).read_text(encoding="utf-8")
    tree = html5lib.parse(text, namespaceHTMLElements=False)
    for element in tree.iter():
        if not isinstance(element.tag, str):
            continue
        assert element.tag.rpartition("}")[2] not in ("script", "link", "iframe", "base", "object")
        for name, value in element.attrib.items():
            name = str(name).rpartition("}")[2]
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action"):
                assert value.startswith(("data:image/png;base64,", "#"))
    styles = " ".join(element.text or "" for element in tree.iter("style"))
    assert "@import" not in styles and "url(" not in styles
    assert not re.search(r"url\((?!#)", text)


@pytest.mark.parametrize(
    ("gain", "spread", "says"),
    [
        (0.08, 0.01, "raised the reward on 12 held-out pages by 0.080"),
        (0.004, 0.001, "by 0.004: a small gain"),
        (0.001, 0.2, "made no clear difference on 12 held-out pages"),
        (-0.05, 0.01, "lowered the reward on 12 held-out pages by 0.050"),
    ],
)
def test_the_headline_says_what_the_interval_says(gain, spread, says):
    found = headline(evaluation_with_gain(gain, spread))
    assert says in found.title
    unclear = any("do not show whether training helped" in s for s in found.sentences)
    assert unclear == (found.gain.verdict == "unclear")


def test_a_base_model_alone_has_no_headline_and_a_report_all_the_same(tmp_path):
    whole = evaluation_with_gain(0.0)
    settings = EvalSettings(max_steps=2, policies=("base",))
    arms = {arm: rows for arm, rows in whole.arms.items() if arm.policy == "base"}
    evaluation = Evaluation(settings, arms, whole.references, whole.about)
    assert headline(evaluation) is None
    save(evaluation, tmp_path / "eval", list(shown_pages(evaluation)))
    assert "were not compared" in write_report(tmp_path).read_text(encoding="utf-8")


def test_an_evaluation_comes_back_from_its_file_as_it_was(tmp_path):
    before = evaluation_with_gain(0.03, 0.02)
    save(before, tmp_path, list(shown_pages(before)))
    after = load(tmp_path)
    arm, base = Arm("trained", "critic", "sampled"), Arm("base", "critic", "sampled")
    assert after.settings == before.settings and after.about == before.about
    assert after.gain(arm, base) == before.gain(arm, base)
    assert shown_pages(after) == shown_pages(before)
    assert after.arms[arm][0].drafts[1].critique == HOSTILE
    assert after.arms[arm][0].drafts[0].lacks() == "format 0.50, ssim 0.90"
    content = json.loads((tmp_path / "eval.json").read_text())
    assert {row["measure"] for row in content["means"]} == {"first", "last", "best"}


def test_pages_with_long_and_like_names_have_each_a_picture(tmp_path):
    ids = ["folder/train/easy/a/b.html", "folder/train/easy/a-b.html", f"folder/{'ü' * 4000}"]
    pictures = {page: np.full((4, 4, 3), n, np.uint8) for n, page in enumerate(ids)}
    whole = evaluation_with_gain(0.0)
    save(Evaluation(whole.settings, whole.arms, pictures), tmp_path, ids)
    references = load(tmp_path).references
    assert all(np.array_equal(references[page], pictures[page]) for page in ids)


def test_a_setting_that_is_no_longer_known_does_not_keep_a_file_from_being_read(tmp_path):
    path = save(evaluation_with_gain(0.03), tmp_path)
    content = json.loads(path.read_text())
    content["settings"]["of_long_ago"] = 3
    path.write_text(json.dumps(content))
    assert load(tmp_path).settings.count == len(PAGES)


def test_pictures_are_the_first_of_each_difficulty_and_the_two_extremes():
    evaluation = evaluation_with_gain(0.0, 0.1)
    trained = next(
        arm for arm in evaluation.arms if arm.policy == "trained" and arm.loop == "critic"
    )
    evaluation.arms[trained][-1].rewards = [[0.4, 0.9]]
    shown = shown_pages(evaluation, per_difficulty=1)
    assert list(shown)[:3] == PAGES[:3]
    assert "gained most" in shown[PAGES[-1]]


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(VclibError, match="no run"):
        write_report(tmp_path)


def test_phases_are_runs_of_the_same_name():
    rows = [{"phase": p, "episode": n} for n, p in enumerate("aabba", 1)]
    assert phases_of(rows) == [("a", 1, 2), ("b", 3, 4), ("a", 5, 5)]


def test_a_moving_mean_skips_what_was_not_seen():
    nan = float("nan")
    assert figures.moving_mean([1, nan, 3, 5], 2).tolist() == [1, 1, 3, 4]
    assert np.isnan(figures.moving_mean([nan, 2], 3)[0])


def test_figures_of_stored_runs_are_drawn_again(run, tmp_path):
    assert is_run(run) and runs_in(run.parent) == [run]
    paths = draw_figures(run, tmp_path / "figures")
    names = {"reward", "reward-by-difficulty", "heldout", "heldout-by-turn"}
    assert {path.stem for path in paths} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_an_absent_part_of_the_reward_is_drawn_as_absent():
    breakdown = {"total": 0.5, "gate": 1.0, "reason": None, "ssim": 0.5, "clip": None}
    svg = figures.inline_svg(figures.breakdown_bars({"draft": breakdown}, {"ssim": 1.5}), "parts")
    assert "absent" in svg and "ssim (weight 1.5)" in svg
