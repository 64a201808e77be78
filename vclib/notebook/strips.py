"""Episodes in a row: the reference, each draft, and below it the critique that it answers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from vclib.notebook.base import Picture
from vclib.rl import figures
from vclib.rl.episodes import Episode
from vclib.rl.results import Draft


def episode_strip(episode: Episode) -> Picture:
    """One episode in a row: the reference, then each draft with its reward and its critique."""
    drafts, critique = [], None
    for turn in episode.turns:
        if turn.render is not None:
            drafts.append(Draft(turn.text, turn.render, turn.reward or 0.0, critique))
        critique = turn.text if turn.agent == "critic" else None
    return draft_strip(episode.reference, drafts)


def draft_strip(reference: Any, drafts: Sequence[Draft]) -> Picture:
    """The reference, uint8 RGB [H, W, 3], then each draft above the critique that it answers."""
    titles = [f"draft {turn}: {draft.reward:.2f}" for turn, draft in enumerate(drafts, 1)]
    pictures = [reference, *(draft.pixels for draft in drafts)]
    captions = ["", *(wrapped(draft.critique) for draft in drafts)]
    figure = captioned_strip(pictures, ["reference", *titles], captions)
    return Picture(figures.png(figure), "episode strip")


def captioned_strip(
    pictures: Sequence[Any], titles: Sequence[str], captions: Sequence[str]
) -> Figure:
    """Pages side by side, uint8 RGB [H, W, 3] or None for a gap, with a text below each."""
    figure = figures.picture_strip(pictures, titles)
    for axes, text in zip(figure.axes, captions, strict=True):
        axes.set_xlabel(text, fontsize=6.5, family="monospace", loc="left")
        axes.set_anchor("N")
    lines = max((text.count("\n") + 1 for text in captions if text), default=0)
    width, height = figure.get_size_inches()
    more = 0.15 * max(title.count("\n") for title in titles)
    figure.set_size_inches(width, height + more + 0.115 * lines)
    return figure


def wrapped(critique: str | None, width: int = 31, most: int = 9) -> str:
    """A critique in lines of `width` characters, cut off after `most`, to stand below a picture."""
    lines = [part for line in (critique or "").splitlines() for part in textwrap.wrap(line, width)]
    return "\n".join(lines if len(lines) <= most else [*lines[: most - 1], "…"])
