"""The pictures of a replayed episode: one turn of it, and all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vclib.notebook.strips import wrapped
from vclib.rl import figures
from vclib.rl.kept import KeptEpisode, KeptTurn

WIDTH = 9.6
ROW = 2.3
"""Inches: of the whole figure, and of each episode in it."""
ALL = (1.75, 1.55)
"""Inches of one picture with its title in the figure of a whole episode."""


def difference(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    """How far two pictures are apart at each pixel, 0 to 255, the farthest channel: [H, W].

    None where one is missing or their sizes differ.
    """
    if a is None or b is None or a.shape != b.shape:
        return None
    return np.abs(a.astype(np.int16) - b).max(axis=-1)


def shown_turns(episode: KeptEpisode, turn: int) -> tuple[int, KeptTurn | None]:
    """The draft on the table at a turn (from 0; past the end, the last): (its number, draft)."""
    drafts = [t for t in episode.turns[: turn + 1] if t.agent == "developer"]
    return len(drafts), drafts[-1] if drafts else None


def turn_figure(episodes: Mapping[str, KeptEpisode], turn: int) -> Figure:
    """A row an episode: reference, the draft on the table, their difference, its reward's parts."""
    with figures.styled(**{"axes.grid": False}):
        figure = Figure(figsize=(WIDTH, ROW * len(episodes)))
        cells = figure.add_gridspec(
            len(episodes),
            4,
            width_ratios=(1, 1, 1, 0.95),
            **_margins(len(episodes)),
        )
        for row, (name, episode) in enumerate(episodes.items()):
            number, draft = shown_turns(episode, turn)
            panels = [figure.add_subplot(cells[row, column]) for column in range(4)]
            render = draft.render if draft else None
            _picture(panels[0], episode.reference, _named(name, "reference"), "no reference kept")
            _picture(panels[1], render, _draft_title(number, draft), "no draft yet")
            _heat(panels[2], difference(episode.reference, render))
            part_bars(panels[3], draft.rewards if draft else None)
    return figure


def episode_figure(episodes: Mapping[str, KeptEpisode]) -> Figure:
    """All drafts of one or more episodes, each above its difference from the reference."""
    columns = 1 + max(len(_drafts(episode)) for episode in episodes.values())
    below = [_critiques(episode) for episode in episodes.values()]
    lines = [max((text.count("\n") + 1 for text in texts if text), default=0) for texts in below]
    heights = [2 * ALL[1] + 0.13 * most for most in lines]
    with figures.styled(**{"axes.grid": False}):
        figure = Figure(figsize=(max(4, columns) * ALL[0], sum(heights)), layout="constrained")
        parts = figure.subfigures(len(episodes), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, (name, episode), texts in zip(parts, episodes.items(), below, strict=True):
            panels = part.subplots(2, columns, squeeze=False)
            for axes in panels.flat:
                axes.set_axis_off()
            for axes in (panels[0, 0], *panels[:, 1 : 1 + len(_drafts(episode))].flat):
                axes.set_axis_on()
            reference = episode.reference
            _picture(panels[0, 0], reference, _named(name, "reference"), "no reference kept")
            for number, draft in enumerate(_drafts(episode), 1):
                title = _draft_title(number, draft)
                _picture(panels[0, number], draft.render, title, "no picture kept")
                _heat(panels[1, number], difference(reference, draft.render), bar=False)
                panels[1, number].set_xlabel(
                    texts[number - 1], fontsize=6.5, family="monospace", loc="left"
                )
    return figure


def _margins(rows: int) -> dict[str, float]:
    top, bottom = 0.26 / (ROW * rows), 0.2 / (ROW * rows)
    return {
        "left": 0.005,
        "right": 0.975,
        "top": 1 - top,
        "bottom": bottom,
        "wspace": 0.12,
        "hspace": 0.3,
    }


def _drafts(episode: KeptEpisode) -> list[KeptTurn]:
    return [turn for turn in episode.turns if turn.agent == "developer"]


def _critiques(episode: KeptEpisode) -> list[str]:
    """For each draft, the critique that it answers; empty where there was none."""
    texts, critique = [], ""
    for turn in episode.turns:
        if turn.agent == "developer":
            texts.append(wrapped(critique, width=28))
        critique = turn.text if turn.agent == "critic" else ""
    return texts


def _named(name: str, what: str) -> str:
    return f"{name}: {what}" if name else what


def _draft_title(number: int, draft: KeptTurn | None) -> str:
    if draft is None:
        return ""
    reward = "no reward" if draft.reward is None else f"reward {draft.reward:.2f}"
    return f"draft {number}: {reward}"


def _picture(axes: Axes, pixels: np.ndarray | None, title: str, missing: str) -> None:
    axes.set(xticks=[], yticks=[], title=title)
    axes.spines[:].set(visible=True, color=figures.GRID)
    if pixels is None:
        axes.text(0.5, 0.5, missing, ha="center", va="center", transform=axes.transAxes)
    else:
        axes.imshow(pixels, interpolation="antialiased")


def _heat(axes: Axes, apart: np.ndarray | None, bar: bool = True) -> None:
    _picture(
        axes, None, "difference, 0 to 255" if bar else "", "" if apart is not None else "not known"
    )
    if apart is None:
        return
    drawn = axes.imshow(apart, cmap=figures.SEQUENTIAL, vmin=0, vmax=255)
    if bar:
        inside = axes.inset_axes((1.02, 0, 0.035, 1))
        axes.figure.colorbar(drawn, cax=inside, ticks=[0, 128, 255])
        inside.tick_params(labelsize=6, length=2, pad=1)


def part_bars(
    axes: Axes,
    rewards: Mapping[str, Any] | None,
    weights: Mapping[str, float] | None = None,
    room: float = 0.07,
) -> None:
    """The parts of a reward as bars with their weights, the reward itself last.

    `room` is the share of the figure's width kept for the names.
    """
    if not rewards:
        axes.set_axis_off()
        axes.text(0.6, 0.5, "parts of the reward: not kept", ha="center", va="center")
        return
    names = [name for name in rewards if name not in ("total", "gate", "reason")]
    names += [name for name in ("gate", "total") if name in rewards]
    values = [rewards[name] for name in names]
    places = np.arange(len(names))
    colours = [
        figures.INK if n in ("gate", "total") else figures.PALETTE["developer"] for n in names
    ]
    axes.barh(places, [value or 0.0 for value in values], 0.75, color=colours)
    for at, value in enumerate(values):
        text = "absent" if value is None else f"{value:.2f}"
        axes.text((value or 0.0) + 0.02, at, text, va="center", fontsize=6.5)
    shown = {name: f"{name} (weight {weight:g})" for name, weight in (weights or {}).items()}
    shown |= {"total": "reward"}
    axes.set_yticks(places, [shown.get(name, name) for name in names], fontsize=7)
    axes.tick_params(axis="y", length=0, pad=1)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.25), xticks=[0, 0.5, 1])
    axes.set_title("parts of the reward, 0 to 1", loc="right")
    axes.tick_params(axis="x", labelsize=6, length=2, pad=1)
    box = axes.get_position()
    axes.set_position((box.x0 + room, box.y0, box.width - room, box.height))
