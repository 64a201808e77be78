"""report.html: one run in one self-contained file, made from what the run's folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vclib.errors import VclibError
from vclib.rl import figures
from vclib.rl import report_page as html
from vclib.rl.intervals import Interval
from vclib.rl.results import Arm, Draft, Evaluation, comparisons, shown_pages
from vclib.rl.results_file import FILE, load
from vclib.rl.runlog import CONFIG, TRAIN_LOG, read_jsonl, read_rewards, replace_text

REPORT = "report.html"
EVALUATION = "eval"
COMMANDS = "commands.txt"
LITTLE = 0.01
"""A clear gain below this is called small: one hundredth of the way from nothing to a copy."""


@dataclass(frozen=True)
class Headline:
    """The result in plain words, and the numbers behind it."""

    title: str
    sentences: tuple[str, ...]
    base: Interval
    trained: Interval
    gain: Interval


def write_report(folder: Path) -> Path:
    """Write report.html from the logs, the evaluation (if there is one) and the pictures."""
    if not (folder / TRAIN_LOG).is_file() and not (folder / EVALUATION / FILE).is_file():
        raise VclibError(f"{folder} holds neither {TRAIN_LOG} nor {EVALUATION}/{FILE}: no run.")
    evaluation = load(folder / EVALUATION) if (folder / EVALUATION / FILE).is_file() else None
    path = folder / REPORT
    body = [*_head(folder.name, evaluation), *_curves(folder)]
    if evaluation:
        body += [*_results(evaluation), *_strips(evaluation)]
    body += _origins(folder, evaluation)
    replace_text(path, html.page(f"{folder.name}: report", body))
    return path


def headline(evaluation: Evaluation) -> Headline | None:
    """What training changed on held-out pages; None unless base and trained were both played.

    The comparison is fixed beforehand: with the Critic and sampled, as in training, where the
    evaluation has them.
    """
    found = [c for c in comparisons(evaluation) if c[0].startswith("trained - base")]
    if not found:
        return None
    loop, decoding = evaluation.settings.loops[-1], evaluation.settings.decodings[0]
    trained, base = next((c[2], c[3]) for c in found if (c[2].loop, c[1]) == (loop, decoding))
    gain = evaluation.gain(trained, base)
    pages = f"{evaluation.pages()} {_split(evaluation)} pages"
    titles = {
        "gain": f"Training raised the reward on {pages} by {gain.mean:.3f}",
        "loss": f"Training lowered the reward on {pages} by {-gain.mean:.3f}",
        "unclear": f"Training made no clear difference on {pages}",
    }
    small = gain.verdict == "gain" and gain.mean < LITTLE
    title = titles[gain.verdict] + (": a small gain" if small else "")
    return Headline(
        title,
        tuple(_sentences(evaluation, trained, base, gain)),
        evaluation.mean(base),
        evaluation.mean(trained),
        gain,
    )


def _sentences(evaluation: Evaluation, trained: Arm, base: Arm, gain: Interval) -> Iterator[str]:
    before, after = evaluation.mean(base), evaluation.mean(trained)
    how = f"{'with the Critic' if base.loop == 'critic' else 'alone'}, {base.decoding}"
    yield (
        f"The last draft of an episode ({how}) scores {after.mean:.3f} on average after training "
        f"and {before.mean:.3f} before, where 1 is a perfect copy. The difference is "
        f"{_signed(gain)}."
    )
    if gain.verdict == "unclear":
        yield "The interval holds zero: these pages do not show whether training helped."
    for name, decoding, this, other in comparisons(evaluation):
        if name.startswith("trained - base") and this != trained:
            ways = f"{this.label.removeprefix('trained ')}, {decoding}"
            yield f"The same difference {ways}: {_signed(evaluation.gain(this, other))}."
    for name, decoding, this, other in comparisons(evaluation):
        if name.startswith("with Critic") and decoding == base.decoding:
            yield _on_the_critic(evaluation.gain(this, other), this)
    for arm in (base, trained):
        if evaluation.truncated(arm) > 0.01:
            share = f"{100 * evaluation.truncated(arm):.0f} %"
            yield f"{share} of the {arm.policy} model's drafts were cut at the limit of tokens."


def _on_the_critic(gain: Interval, arm: Arm) -> str:
    says = {"gain": "helps", "loss": "hurts", "unclear": "makes no clear difference to"}
    return (
        f"The Critic {says[gain.verdict]} the {arm.policy} Developer, compared with as many turns "
        f"without critique: {_signed(gain)}."
    )


def _head(name: str, evaluation: Evaluation | None) -> Iterator[str]:
    found = headline(evaluation) if evaluation else None
    yield f'<div class="soft">VisionCoder · {escape(name)}</div>'
    if not found:
        yield f"<h1>{escape(name)}</h1>"
        yield html.paragraph("Base and trained were not compared on held-out pages in this run.")
        return
    yield f"<h1>{escape(found.title)}</h1>"
    kind = "" if found.gain.verdict == "unclear" else found.gain.verdict
    yield '<div class="tiles">'
    yield html.tile("base model", f"{found.base.mean:.3f}", _range(found.base))
    yield html.tile("trained", f"{found.trained.mean:.3f}", _range(found.trained))
    yield html.tile(
        "difference, paired by page", f"{found.gain.mean:+.3f}", _range(found.gain), kind
    )
    yield "</div>"
    yield from (html.paragraph(sentence) for sentence in found.sentences)


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
        "update to update, sampled. So the curve is noisy; the held-out numbers decide.",
        "note",
    )


def _results(evaluation: Evaluation) -> Iterator[str]:
    settings, difficulties = evaluation.settings, evaluation.difficulties()
    yield f"<h2>On {_split(evaluation)} pages</h2>"
    for name, figure in arm_figures(evaluation).items():
        yield html.card(figures.inline_svg(figure, name))
    for decoding in settings.decodings:
        yield html.card(_table(evaluation, decoding, difficulties))
    yield html.paragraph(
        "Rewards of the last draft unless a column says otherwise, mean over pages with the "
        f"95\u00a0% bootstrap interval. {evaluation.pages()} pages, at most {settings.max_steps} "
        f"drafts, temperature {settings.temperature:g} where sampled, seed {settings.seed}. All "
        "arms play the same pages. Differences are paired by page. “Alone” revises as often, "
        "without critique. “Best so far” is the best draft of the episode, which nobody knows "
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
            rows.append([escape(arm.label), *map(_cell, cells), turns])
    for name, of, after, before in comparisons(evaluation):
        if of == decoding:
            cells = [evaluation.gain(after, before, "last", d) for d in difficulties]
            cells += [evaluation.gain(after, before, measure) for measure in ("first", "best")]
            rows.append([f"<b>{escape(name)}</b>", *(_cell(c, "+.3f") for c in cells), ""])
    return html.table([decoding, *difficulties, "first draft", "best so far", "turns"], rows)


def _strips(evaluation: Evaluation) -> Iterator[str]:
    arms = [arm for arm, results in evaluation.arms.items() if any(r.drafts for r in results)]
    drafts = {arm.policy: {r.page_id: r.drafts for r in evaluation.arms[arm]} for arm in arms}
    if not drafts:
        return
    yield "<h2>Before and after</h2>"
    yield html.paragraph(
        "The first pages of each difficulty, not chosen by result; then the two extremes. One "
        f"episode each, {arms[0].decoding}. Numbers are rewards.",
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
            pictures.append(html.picture(draft.pixels, f"{policy}, {name}", f"{draft.reward:.3f}"))
            sources.append(html.paragraph(f"{policy}, {name}", "note") + html.code(draft.html))
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
    path = folder / CONFIG
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    yield "<h2>How this was made</h2>"
    if (folder / COMMANDS).is_file():
        yield html.card(html.code((folder / COMMANDS).read_text(encoding="utf-8").strip()))
    packages = config.pop("packages", {}) | about.pop("packages", {})
    settings = config.pop("settings", {})
    facts = {k: v for k, v in (config | about).items() if not isinstance(v, dict)}
    yield html.card(
        html.facts(facts | {"packages": [f"{k} {v}" for k, v in packages.items() if v]})
    )
    if settings:
        yield html.card(html.folded("every setting of the run", html.facts(settings)))


def phases_of(rows: Sequence[Mapping[str, Any]]) -> list[figures.Phase]:
    """Runs of the same phase in reward_log.csv: (name, first update, last update)."""
    runs = [(name, list(run)) for name, run in groupby(rows, key=lambda row: row["phase"])]
    return [(name, run[0]["episode"], run[-1]["episode"]) for name, run in runs]


def _span(interval: Interval) -> figures.Span:
    return interval.mean, interval.low, interval.high


def _split(evaluation: Evaluation) -> str:
    split = evaluation.settings.split
    return "held-out" if split == "heldout" else split


def _range(interval: Interval) -> str:
    if interval.pages < 2:
        return "one page: no interval"
    return f"95\u00a0% interval {interval.low:.3f} to {interval.high:.3f}"


def _signed(interval: Interval) -> str:
    return f"{interval.mean:+.3f} ({_range(interval)})"


def _cell(interval: Interval, form: str = ".3f") -> str:
    if interval.pages < 2:
        return f"{interval.mean:{form}}"
    return (
        f"{interval.mean:{form}}<br><small>{interval.low:{form}} … {interval.high:{form}}</small>"
    )
