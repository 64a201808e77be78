"""report.html: one run in one self-contained file, made from what the run's folder holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vclib.errors import VclibError
from vclib.files import replace_text
from vclib.rl import figures
from vclib.rl import report_page as html
from vclib.rl.headline import headline, idle_updates, range_of, split_of
from vclib.rl.intervals import Interval
from vclib.rl.results import Arm, Draft, Evaluation, comparisons, shown_pages
from vclib.rl.results_file import FILE, load
from vclib.rl.runlog import CONFIG, TRAIN_LOG, read_jsonl, read_rewards

REPORT = "report.html"
EVALUATION = "eval"
COMMANDS = "commands.txt"


def write_report(folder: Path) -> Path:
    """Write report.html from the logs, the evaluation (if there is one) and the pictures."""
    if not (folder / TRAIN_LOG).is_file() and not (folder / EVALUATION / FILE).is_file():
        raise VclibError(f"{folder} holds neither {TRAIN_LOG} nor {EVALUATION}/{FILE}: no run.")
    evaluation = _evaluation(folder)
    path = folder / REPORT
    body = [*_head(folder, evaluation), *_curves(folder)]
    if evaluation:
        body += [*_results(evaluation), *_strips(evaluation)]
    body += _origins(folder, evaluation)
    replace_text(path, html.page(f"{folder.name}: report", body))
    return path


def _evaluation(folder: Path) -> Evaluation | None:
    """The evaluation in a run's folder, unless the run was at another update then."""
    if not (folder / EVALUATION / FILE).is_file():
        return None
    evaluation = load(folder / EVALUATION)
    update = re.search(r"update-(\d+)", str(evaluation.about.get("adapters")))
    rows = read_jsonl(folder / TRAIN_LOG) if (folder / TRAIN_LOG).is_file() else []
    return None if update and rows and rows[-1]["iter"] != int(update[1]) else evaluation


def _head(folder: Path, evaluation: Evaluation | None) -> Iterator[str]:
    found = headline(evaluation) if evaluation else None
    idle = idle_updates(folder)
    yield f'<div class="soft">VisionCoder · {escape(folder.name)}</div>'
    if not found:
        yield f"<h1>{escape(folder.name)}</h1>"
        yield html.paragraph("Base and trained were not compared on held-out pages in this run.")
        yield html.paragraph(idle) if idle else ""
        return
    yield f"<h1>{escape(found.title)}</h1>"
    kind = "" if found.gain.verdict == "unclear" else found.gain.verdict
    yield '<div class="tiles">'
    yield html.tile("base model", f"{found.base.mean:.3f}", range_of(found.base))
    yield html.tile("trained", f"{found.trained.mean:.3f}", range_of(found.trained))
    yield html.tile(
        "difference, paired by page", f"{found.gain.mean:+z.3f}", range_of(found.gain), kind
    )
    yield "</div>"
    sentences = [idle, *found.sentences] if idle else found.sentences
    yield from map(html.paragraph, sentences)


def curve_figures(folder: Path) -> dict[str, Figure]:
    """The figures of a run's training logs, by name."""
    rows, phases = read_jsonl(folder / TRAIN_LOG), phases_of(read_rewards(folder))
    return {
        "reward": figures.reward_curve(rows, phases),
        "reward-by-difficulty": figures.difficulty_curves(rows, phases),
    }


def arm_figures(evaluation: Evaluation) -> dict[str, Figure]:
    """The figures of an evaluation, by name: its first decoding, by difficulty and by turn."""
    settings, difficulties = evaluation.settings, evaluation.difficulties()
    arms = [arm for arm in evaluation.arms if arm.decoding == settings.decodings[0]]
    ends = {
        arm.label: [_span(evaluation.mean(arm, "last", name)) for name in difficulties]
        for arm in arms
        if arm.loop == settings.loops[-1]
    }
    drawn = {"heldout": figures.interval_plot(difficulties, ends)}
    if settings.max_steps > 1:
        turns = {arm.label: [_span(i) for i in evaluation.curve(arm)] for arm in arms}
        drawn["heldout-by-turn"] = figures.turn_curves(turns)
    return drawn


def _curves(folder: Path) -> Iterator[str]:
    if not (folder / TRAIN_LOG).is_file():
        return
    yield "<h2>Reward during training</h2>"
    for name, figure in curve_figures(folder).items():
        yield html.card(figures.inline_svg(figure, name))
    yield html.paragraph(
        "Each dot is the mean over the episodes of one update, on training pages that differ from "
        "update to update, sampled. So the curve is noisy; the held-out numbers decide."
        + _levels(folder),
        "note",
    )


def _levels(folder: Path) -> str:
    """Why phases do not compare, for a run in which the Critic was greedy in some of them alone."""
    phases = {row["phase"] for row in read_rewards(folder)}
    greedy = _config(folder).get("settings", {}).get("frozen_critic_greedy", True)
    if phases != {"developer", "critic"} or not greedy:
        return ""
    return (
        " While the Developer trains, the Critic takes its likeliest words; while the Critic "
        "trains, it samples. So compare levels within a phase, not between phases."
    )


def _results(evaluation: Evaluation) -> Iterator[str]:
    settings, difficulties = evaluation.settings, evaluation.difficulties()
    yield f"<h2>On {split_of(evaluation)} pages</h2>"
    for name, figure in arm_figures(evaluation).items():
        yield html.card(figures.inline_svg(figure, name))
    for decoding in settings.decodings:
        yield html.card(_table(evaluation, decoding, difficulties))
    yield html.paragraph(
        "Rewards of the last draft unless a column says otherwise, mean over pages with the "
        f"95\u00a0% bootstrap interval. {evaluation.pages()} pages, at most {settings.max_steps} "
        f"drafts, temperature {settings.temperature:g} where sampled, seed {settings.seed}. All "
        "arms play the same pages. Differences are paired by page; “last - first” is what revising "
        "gained. “Best so far” is the best draft of the episode, which nobody knows "
        "without the reference's score.",
        "note",
    )


def _table(evaluation: Evaluation, decoding: str, difficulties: Sequence[str]) -> str:
    rows = []
    for arm in evaluation.arms:
        if arm.decoding == decoding:
            cells = [evaluation.mean(arm, "last", name) for name in difficulties]
            cells += [evaluation.mean(arm, "first"), evaluation.mean(arm, "best")]
            turns = f"{evaluation.mean_turns(arm):.1f}"
            rows.append([_label(arm), *map(_cell, cells), turns])
    for name, of, after, before in comparisons(evaluation):
        if of == decoding:
            cells = [evaluation.gain(after, before, "last", d) for d in difficulties]
            cells += [evaluation.gain(after, before, measure) for measure in ("first", "best")]
            rows.append([f"<b>{escape(name)}</b>", *(_cell(c, "+z.3f") for c in cells), ""])
    for arm in evaluation.arms:
        if arm.decoding == decoding and evaluation.settings.max_steps > 1:
            gains = [_cell(evaluation.revision_gain(arm, d), "+z.3f") for d in difficulties]
            rows.append([f"<b>last - first, {escape(arm.label)}</b>", *gains, "", "", ""])
    return html.table([decoding, *difficulties, "first draft", "best so far", "turns"], rows)


def _label(arm: Arm) -> str:
    meant = "without the Critic (the Developer revises its own draft)"
    return escape(arm.label) + (f"<br><small>{meant}</small>" if arm.loop == "alone" else "")


def _strips(evaluation: Evaluation) -> Iterator[str]:
    arms = [arm for arm, results in evaluation.arms.items() if any(r.drafts for r in results)]
    drafts = {arm.policy: {r.page_id: r.drafts for r in evaluation.arms[arm]} for arm in arms}
    if not drafts:
        return
    yield "<h2>Before and after</h2>"
    yield html.paragraph(
        "The first pages of each difficulty, not chosen by result; then the two extremes. One "
        f"episode each, {arms[0].decoding}. Numbers are rewards, and the parts of them below 1. "
        "Some parts judge the HTML alone, so a picture that looks equal may score less.",
        "note",
    )
    for page_id, why in shown_pages(evaluation).items():
        if page_id in evaluation.references:
            shown = {policy: pages[page_id] for policy, pages in drafts.items()}
            yield html.card(_strip(page_id, why, evaluation, shown))


def _strip(
    page_id: str, why: str, evaluation: Evaluation, drafts: Mapping[str, Sequence[Draft]]
) -> str:
    pictures = [html.picture(evaluation.references[page_id], "reference")]
    words, sources = [], []
    for policy, turns in drafts.items():
        ends = [("first draft", turns[0])]
        if len(turns) > 1:
            ends.append((f"draft {len(turns)}", turns[-1]))
        for name, draft in ends:
            title, reward = f"{policy}, {name}", f"{draft.reward:.3f}"
            pictures.append(html.picture(draft.pixels, title, reward, draft.lacks()))
            sources.append(html.paragraph(title, "note") + html.code(draft.html))
        if len(turns) == 1 and evaluation.settings.max_steps > 1:
            pictures.append(html.no_picture("The Critic said DONE: no second draft."))
        if turns[-1].critique:
            said = f"{policy} Critic, before the last draft:\n{turns[-1].critique}"
            words.append(f"<blockquote>{escape(said)}</blockquote>")
    source = html.folded("HTML of the drafts", "".join(sources))
    title = f'<div class="note">{escape(page_id)} · {escape(why)}</div>'
    return title + f'<div class="strip">{"".join(pictures)}</div>' + "".join(words) + source


def _origins(folder: Path, evaluation: Evaluation | None) -> Iterator[str]:
    about = dict(evaluation.about) if evaluation else {}
    config = _config(folder)
    yield "<h2>How this was made</h2>"
    if (folder / COMMANDS).is_file():
        yield html.card(html.code((folder / COMMANDS).read_text(encoding="utf-8").strip()))
    packages = config.pop("packages", {}) | about.pop("packages", {})
    settings = config.pop("settings", {})
    if "seconds" in about:
        about["seconds of the evaluation"] = about.pop("seconds")
    facts = {k: v for k, v in (config | about).items() if not isinstance(v, dict)}
    yield html.card(
        html.facts(facts | {"packages": [f"{k} {v}" for k, v in packages.items() if v]})
    )
    if settings:
        yield html.card(html.folded("every setting of the run", html.facts(settings)))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (ValueError, TypeError) as error:
        raise VclibError(f"{path} is damaged ({error}): restore it, or remove it.") from error


def phases_of(rows: Sequence[Mapping[str, Any]]) -> list[figures.Phase]:
    """Runs of the same phase in reward_log.csv: (name, first update, last update)."""
    runs = [(name, list(run)) for name, run in groupby(rows, key=lambda row: row["phase"])]
    return [(name, run[0]["episode"], run[-1]["episode"]) for name, run in runs]


def _span(interval: Interval) -> figures.Span:
    return interval.mean, interval.low, interval.high


def _cell(interval: Interval, form: str = "z.3f") -> str:
    if interval.pages < 2:
        return f"{interval.mean:{form}}"
    return (
        f"{interval.mean:{form}}<br><small>{interval.low:{form}} … {interval.high:{form}}</small>"
    )
