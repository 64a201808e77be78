"""Figures of rewards and pages, in plain matplotlib: one palette, fixed sizes, no pyplot state.

Every function takes an optional empty `figure` to draw on and returns it, so that a report, a
script and a notebook draw the same picture.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

PALETTE = {
    "base": "#8b929c",
    "trained": "#2f86d6",
    "developer": "#2f86d6",
    "critic": "#d9772b",
    "combined": "#8a63c9",
    "easy": "#2a9d74",
    "medium": "#c9962b",
    "hard": "#c9506b",
    "mean": "#2f86d6",
}
CYCLE = list(dict.fromkeys(PALETTE.values()))[1:]
"""The colours of what has no name in the palette, by its place in a figure."""
SEQUENTIAL, DIVERGING = "Blues", "PuOr"
"""Colour maps: of amounts, and of what may be above or below 0; both told apart without hue."""
INK = "#30363d"
GRID = "#8b929c55"
MOST_PHASES = 100
WIDE = (8.0, 3.2)
PANELS = (8.0, 2.6)
PICTURE = 1.9
"""Sizes are in inches; `PICTURE` is the width of one page in a strip."""

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **{f"axes.{part}color": INK for part in ("edge", "label", "title")},
    **{f"{part}.color": INK for part in ("xtick", "ytick", "text")},
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.dpi": 100.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "vclib",
}

Row = Mapping[str, Any]
Phase = tuple[str, float, float]
Span = tuple[float, float, float]


_DRAWING = threading.RLock()


@contextmanager
def styled(**more: Any) -> Iterator[None]:
    """The project's style, for one thread at a time: matplotlib's settings are the process's.

    A dollar is a dollar: a critique, a page's id or a run's name is no formula.
    """
    with _DRAWING, rc_context(STYLE | {"text.parse_math": False} | more):
        yield


def moving_mean(values: Sequence[float], window: int) -> np.ndarray:
    """Mean of each value and the up to `window - 1` before it; NaN where all of them are NaN."""
    data = np.asarray(values, dtype=float)
    seen = ~np.isnan(data)
    total, count = np.cumsum(np.where(seen, data, 0.0)), np.cumsum(seen)
    total[window:] -= total[:-window].copy()
    count[window:] -= count[:-window].copy()
    return np.divide(total, count, out=np.full(len(data), np.nan), where=count > 0)


def reward_curve(
    rows: Sequence[Row],
    phases: Sequence[Phase] = (),
    *,
    window: int | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Reward by update with its moving mean, phases shaded.

    `rows` are lines of train.jsonl (`iter`, `mean`); a phase is (name, first, last update).
    """
    with styled():
        figure = _canvas(figure, WIDE)
        axes = figure.subplots()
        _draw_curve(axes, rows, "mean", window)
        within_scale(axes)
        shade(axes, phases)
        axes.set(xlabel="update", ylabel="reward of the last draft")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    return figure


def difficulty_curves(
    rows: Sequence[Row],
    phases: Sequence[Phase] = (),
    *,
    window: int | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Reward by update, one panel per difficulty, on one scale."""
    with styled():
        figure = _canvas(figure, PANELS)
        panels = figure.subplots(1, 3, sharex=True, sharey=True)
        for axes, name in zip(panels, ("easy", "medium", "hard"), strict=True):
            _draw_curve(axes, rows, name, window)
            shade(axes, phases, label=False)
            axes.set(title=name, xlabel="update")
        within_scale(panels[0])
        panels[0].set_ylabel("reward")
    return figure


def turn_curves(curves: Mapping[str, Sequence[Span]], *, figure: Figure | None = None) -> Figure:
    """Reward after each Developer turn with 95 % intervals: {label: [(mean, low, high), ...]}.

    A label that begins with "base" or "trained" takes that colour; "alone" in it makes it dashed.
    """
    with styled():
        figure = _canvas(figure, WIDE)
        axes = figure.subplots()
        for place, (label, spans) in enumerate(curves.items()):
            x = np.arange(1, len(spans) + 1) + 0.04 * (place - (len(curves) - 1) / 2)
            _error_line(axes, x, spans, label, "--" if "alone" in label else "-")
        longest = max((len(spans) for spans in curves.values()), default=1)
        axes.set_xticks(range(1, longest + 1))
        axes.set(xlabel="Developer turn", ylabel="reward")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def interval_plot(
    groups: Sequence[str], series: Mapping[str, Sequence[Span]], *, figure: Figure | None = None
) -> Figure:
    """Means with 95 % intervals: one row a group (a difficulty), one mark a series."""
    with styled():
        figure = _canvas(figure, WIDE)
        axes = figure.subplots()
        places = np.arange(len(groups))
        for order, (label, spans) in enumerate(series.items()):
            y = places + 0.22 * (order - (len(series) - 1) / 2)
            mean, low, high = np.asarray(spans, dtype=float).T
            error = np.nan_to_num(np.stack([mean - low, high - mean]))
            axes.errorbar(mean, y, xerr=error, fmt="o", label=label, color=_color(label), capsize=3)
        axes.set_yticks(places, groups)
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("reward of the last draft, 95 % interval over pages")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def picture_strip(
    pictures: Sequence[np.ndarray | None],
    titles: Sequence[str],
    *,
    figure: Figure | None = None,
) -> Figure:
    """Pages side by side under titles: uint8 RGB, shape [H, W, 3] each; None leaves a gap."""
    ratio = next((p.shape[0] / p.shape[1] for p in pictures if p is not None), 0.75)
    size = (PICTURE * len(pictures), PICTURE * ratio + 0.45)
    with styled():
        figure = _canvas(figure, size)
        for axes, picture, title in zip(
            figure.subplots(1, len(pictures), squeeze=False)[0], pictures, titles, strict=True
        ):
            axes.set(xticks=[], yticks=[], title=title)
            axes.grid(visible=False)
            axes.spines[:].set(visible=picture is not None, color=GRID)
            if picture is not None:
                axes.imshow(picture, interpolation="antialiased")
    return figure


def breakdown_bars(
    breakdowns: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, float] | None = None,
    *,
    figure: Figure | None = None,
) -> Figure:
    """The parts of one or more rewards as bars: {label: Breakdown.as_dict()}.

    An absent part (None) is written as such; `weights` are shown beside the names.
    """
    names = [n for n in next(iter(breakdowns.values())) if n not in ("total", "gate", "reason")]
    places = np.arange(len(names) + 2)
    height, font = 0.8 / len(breakdowns), min(8, 18 / len(breakdowns))
    with styled():
        figure = _canvas(figure, (6.0, 0.38 * len(places) + 0.8))
        axes = figure.subplots()
        for order, (label, breakdown) in enumerate(breakdowns.items()):
            values = [breakdown[name] for name in (*names, "gate", "total")]
            y = places + height * (order - (len(breakdowns) - 1) / 2)
            color = _color(label, order)
            axes.barh(y, [value or 0.0 for value in values], height * 0.9, color=color, label=label)
            for at, value in zip(y, values, strict=True):
                text = "absent" if value is None else f"{value:.2f}"
                axes.text((value or 0.0) + 0.01, at, text, va="center", fontsize=font)
        shown = [f"{n} (weight {weights[n]:g})" if weights and n in weights else n for n in names]
        axes.set_yticks(places, [*shown, "gate", "reward"])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlim=(0, 1.12), xlabel="score, 0 to 1")
        if len(breakdowns) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def inline_svg(figure: Figure, label: str) -> str:
    """The figure as an <svg> element for an HTML page, its ink the colour of the page's text."""
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    # Two figures in one page would otherwise share ids such as "axes_1".
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def png(figure: Figure, dpi: int = 110) -> bytes:
    """The figure as a PNG file on a white ground."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white")
    return buffer.getvalue()


def _canvas(figure: Figure | None, size: tuple[float, float]) -> Figure:
    figure = figure or Figure()
    figure.set_size_inches(size)
    figure.set_layout_engine("constrained")
    return figure


def _draw_curve(axes: Axes, rows: Sequence[Row], name: str, window: int | None) -> None:
    """One column of train.jsonl: every update as a dot, the moving mean as a line."""
    points = [(row["iter"], row[name]) for row in rows if row.get(name) is not None]
    if not points:
        axes.text(0.5, 0.5, "no such page in this run", ha="center", transform=axes.transAxes)
        return
    x, y = np.asarray(points, dtype=float).T
    window = window or max(2, len(points) // 8)
    axes.plot(x, y, "o", color=_color(name), ms=3, alpha=0.45, clip_on=False, label="one update")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlim(rows[0]["iter"] - 0.5, rows[-1]["iter"] + 0.5)
    if len(points) > 1:
        label = f"mean of {min(window, len(points))} updates"
        axes.plot(x, moving_mean(y, window), color=_color(name), linewidth=1.8, label=label)


def within_scale(axes: Axes) -> None:
    """Limits of at least a tenth of the scale of rewards, and inside it."""
    low, high = axes.get_ylim()
    middle, half = (low + high) / 2, max(high - low, 0.1) / 2
    middle = min(max(middle, half), 1 - half)
    axes.set_ylim(max(0.0, middle - half), min(1.0, middle + half))


def shade(axes: Axes, phases: Sequence[Phase], *, label: bool = True) -> None:
    """Colour the ground by phase, (name, first, last place on the axis), unless they are many."""
    named: set[str] = set()
    for name, first, last in phases if len(phases) <= MOST_PHASES else ():  # more are slow
        legend = f"{name} trains" if label and name not in named else None
        axes.axvspan(first - 0.5, last + 0.5, color=_color(name), alpha=0.16, lw=0, label=legend)
        named.add(name)


def _error_line(axes: Axes, x: np.ndarray, spans: Sequence[Span], label: str, line: str) -> None:
    mean, low, high = np.asarray(spans, dtype=float).T
    error = np.nan_to_num(np.stack([mean - low, high - mean]))
    axes.errorbar(
        x, mean, yerr=error, fmt=f"o{line}", color=_color(label), label=label, capsize=3, ms=4
    )


def _color(label: str, order: int = 0) -> str:
    """The palette's colour of the label's first word, else one by its place in the figure."""
    first = (label.split() or [""])[0].rstrip(",")
    return PALETTE.get(first, CYCLE[order % len(CYCLE)])
