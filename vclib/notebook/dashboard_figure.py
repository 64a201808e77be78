"""The picture of a training run: eight curves, a sentence below each, and pages below them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vclib.notebook.diagnosis import diagnose, keys, values
from vclib.rl import figures
from vclib.rl.figures import Phase, Row

Shown = tuple[str, np.ndarray | None]
"""A title and a picture, uint8 RGB [H, W, 3]."""

SIZE = (9.6, 6.6)
PICTURES = 6
AXIS_STEP = 24
LEGEND: dict[str, Any] = {"fontsize": 6, "handlelength": 1.8, "columnspacing": 1}
LEGEND |= {"frameon": True, "framealpha": 0.7, "edgecolor": "none", "borderpad": 0.2}
LINES = ("-", "--", ":", "-.")
MOST_POINTS = 400
"""Points of one curve; of a longer run neighbours are averaged."""
PANELS = {
    "reward": ("mean_terminal_reward", "reward of the last draft"),
    "spread": ("group_std", "spread of returns in a group"),
    "silent": ("silent_share", "groups without spread, share"),
    "gradient": ("grad_norm", "gradient norm"),
    "entropy": ("entropy", "entropy, nats a token"),
    "lengths": ("lengths", "tokens in a turn"),
    "truncated": ("truncated_share", "turns cut off, share"),
    "seconds": ("seconds", "seconds in an update"),
}
"""Of each panel the column of diagnostics.jsonl and the title with its unit."""


def dashboard_figure(rows: Sequence[Row], shown: Sequence[Shown], total: int | None) -> Figure:
    """All panels, phases shaded, and up to six pages below; `total` updates are the whole run."""
    sentences, phases = diagnose(rows), phases_of(rows)
    steps = np.array([row["iter"] for row in rows], dtype=float)
    end = axis_end(int(steps[-1]) if len(steps) else 1, total)
    with figures.styled(**{"font.size": 8.0, "axes.titlesize": 8.0}):
        figure = Figure(figsize=SIZE)
        cells = figure.add_gridspec(
            2, 4, left=0.045, right=0.99, top=0.93, bottom=0.33, wspace=0.28, hspace=0.7
        )
        for place, (name, (column, title)) in enumerate(PANELS.items()):
            axes = figure.add_subplot(cells[place])
            figures.shade(axes, phases, label=name == "reward")
            _curves(axes, steps, rows, column)
            axes.set(xlabel="update", xlim=(0.5, end + 0.5))
            axes.tick_params(labelsize=7, length=2, pad=1)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
            axes.xaxis.labelpad = 1.5
            axes.set_title(title, loc="left")
            said = textwrap.fill(sentences[name], 44)
            axes.text(0, -0.27, said, transform=axes.transAxes, va="top", size=6.8)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        shades = [(h, s) for h, s in zip(handles, labels, strict=True) if s.endswith("trains")]
        if shades:
            figure.legend(*zip(*shades, strict=True), loc="upper right", ncols=3, fontsize=7)
        _pictures(figure, shown)
    return figure


def axis_end(update: int, total: int | None) -> int:
    """The last update on the axis: room for as many again as are done, within the run's total."""
    room = AXIS_STEP
    while room < update:
        room *= 2
    return max(update, min(room, total or room))


def phases_of(rows: Sequence[Row]) -> list[Phase]:
    """(phase, first, last update) of each block of equal phases, where they are known."""
    named = [(row["iter"], row["phase"]) for row in rows if isinstance(row.get("phase"), str)]
    blocks = [list(block) for _, block in groupby(named, key=lambda pair: pair[1])]
    return [(block[0][1], block[0][0], block[-1][0]) for block in blocks]


def thin(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` points of a curve without its gaps: means of as many neighbours each."""
    seen = np.isfinite(y)
    x, y = x[seen], y[seen]
    if len(x) <= most:
        return x, y
    starts = np.linspace(0, len(x), most, endpoint=False).astype(int)
    counts = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / counts, np.add.reduceat(y, starts) / counts


def _curves(axes: Axes, steps: np.ndarray, rows: Sequence[Row], column: str) -> None:
    """One column, or all keys of a column of mappings; the reward also by difficulty."""
    if column == "mean_terminal_reward":
        seen = keys(rows, "by_difficulty")
        difficulties: list[str] = [n for n in ("easy", "medium", "hard") if n in seen]
        for line, name in zip(LINES[1:], difficulties, strict=False):
            ends = thin(steps, values(rows, "by_difficulty", name))
            axes.plot(*ends, line, lw=1, color=figures.PALETTE[name], label=name)
    named = keys(rows, column)
    for place, name in enumerate(named):
        colour = (
            figures.PALETTE.get(name) or list(figures.PALETTE.values())[(2, 3, 5, 7)[place % 4]]
        )
        ends = thin(steps, values(rows, column, name))
        axes.plot(*ends, LINES[place % 4], lw=1.3, color=colour, label=name, **_dots(ends[0]))
    if not named:
        ends = thin(steps, values(rows, column))
        label = "mean" if column == "mean_terminal_reward" else None
        axes.plot(*ends, lw=1.3, color=figures.INK, label=label, **_dots(ends[0]))
    if not any(np.isfinite(line.get_ydata()).any() for line in axes.lines):
        axes.text(0.5, 0.5, "not logged", ha="center", va="center", transform=axes.transAxes)
        axes.set_yticks([])
        return
    if column.endswith("share"):
        axes.set_ylim(-0.04, 1.04)
    elif column in ("lengths", "seconds"):
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])  # the legend stands above the curves
    handles, labels = axes.get_legend_handles_labels()
    kept = [(h, s) for h, s in zip(handles, labels, strict=True) if not s.endswith("trains")]
    if kept:
        above = column in ("lengths", "seconds")
        axes.legend(
            *zip(*kept, strict=True),
            loc="upper center" if above else "best",
            ncols=1 + above,
            **LEGEND,
        )


def _dots(x: np.ndarray) -> dict[str, Any]:
    return {"marker": "o", "markersize": 2.4} if len(x) <= 60 else {}


def _pictures(figure: Figure, shown: Sequence[Shown]) -> None:
    cells = figure.add_gridspec(1, PICTURES, left=0.01, right=0.99, top=0.18, bottom=0.005)
    if not shown:
        figure.text(0.5, 0.09, "no drafts to show", ha="center")
    for place, (title, pixels) in enumerate(shown[:PICTURES]):
        axes = figure.add_subplot(cells[place])
        axes.set(title=title, xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=figures.GRID)
        axes.grid(visible=False)
        if pixels is None:
            axes.text(0.5, 0.5, "no picture", ha="center", transform=axes.transAxes)
        else:
            axes.imshow(pixels, interpolation="antialiased")
