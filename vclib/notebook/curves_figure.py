"""Reward curves of one or several runs, on one pair of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vclib.notebook.dashboard_figure import LINES, thin
from vclib.notebook.runs import Run
from vclib.rl import figures

LABELS = {
    "update": "update",
    "episodes": "episodes played",
    "minutes": "minutes of sampling, rendering, scoring and updating",
}
EDGES = (0.075, 0.98)
"""Where the axes begin and end, of the figure's width."""
COLOURS = ("developer", "critic", "easy", "hard", "combined", "medium")
Curve = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Place on the axis, reward, and its moving mean, of every update that has one."""


def curve_of(run: Run, column: str, axis: str, window: int) -> Curve | None:
    """One column of a run with its moving mean; None where the run lacks it or the axis."""
    places = run.x(axis)
    rewards = np.array([_number(row.get(column)) for row in run.rows], dtype=float)
    seen = np.isfinite(rewards)
    if places is None or not seen.any():
        return None
    return places[seen], rewards[seen], figures.moving_mean(rewards[seen], window)


def band_of(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Place, mean, lowest and highest of the moving means, at the updates that all runs have."""
    length = min(len(curve[0]) for curve in curves)
    places = np.stack([curve[0][:length] for curve in curves]).mean(axis=0)
    means = np.stack([curve[2][:length] for curve in curves])
    return places, means.mean(axis=0), means.min(axis=0), means.max(axis=0)


def curves_figure(
    runs: Mapping[str, Run],
    column: str = "mean",
    *,
    axis: str = "update",
    window: int = 1,
    band: bool = False,
    picked: int | None = None,
) -> Figure:
    """Moving means of the runs, or their mean in the band between their lowest and highest.

    A single run shows its updates as dots too. The phases shaded are those of the first run;
    `picked` is an update of it that is marked.
    """
    found = {name: curve_of(run, column, axis, window) for name, run in runs.items()}
    curves = {name: curve for name, curve in found.items() if curve is not None}
    with figures.styled():
        figure = Figure(figsize=figures.WIDE)
        # Fixed margins: to work them out anew would take longer than the rest of the drawing.
        axes = figure.add_axes((EDGES[0], 0.145, EDGES[1] - EDGES[0], 0.82))
        if not curves:
            _nothing(axes, column, axis)
        elif band and len(curves) > 1:
            _draw_band(axes, list(curves.values()), window)
        else:
            _draw_curves(axes, curves, window)
        first = next(iter(runs.values()), Run())
        if curves:
            figures.within_scale(axes)
            if axis == "update":  # from edge to edge, as the slider of updates below goes
                axes.set_xlim(1, max(2, *(curve[0][-1] for curve in curves.values())))
            figures.shade(axes, _on_axis(first, axis))
            _mark(axes, first, axis, picked)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=axis != "minutes"))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6))  # ticks are slow to draw
        axes.set(xlabel=LABELS[axis], ylabel=f"reward of the last draft, {_words(column)}")
        _legend(axes)
    return figure


def smooth(
    figure: Figure, runs: Mapping[str, Run], column: str = "mean", *, axis: str, window: int
) -> None:
    """Change the window of a `curves_figure` without band: faster than to draw it anew."""
    axes = figure.axes[0]
    legend = axes.get_legend()
    for line in axes.lines:
        name = line.get_gid()  # dots and marks have none
        curve = None if name is None else curve_of(runs[name], column, axis, window)
        if curve is None:
            continue
        line.set_data(*thin(curve[0], curve[2]))
        if len(runs) == 1:
            said = _window_words(curve, window)
            for text in legend.get_texts() if legend else ():
                if text.get_text() == line.get_label():
                    text.set_text(said)
            line.set_label(said)
    axes.relim()
    axes.autoscale(axis="y")
    figures.within_scale(axes)


def _window_words(curve: Curve, window: int) -> str:
    return f"mean of the last {min(window, len(curve[0]))} updates"


def _words(column: str) -> str:
    return "all pages" if column == "mean" else f"{column} pages"


def _nothing(axes: Axes, column: str, axis: str) -> None:
    said = f"No run that is chosen has rewards of {_words(column)} by {LABELS[axis]}."
    axes.text(0.5, 0.5, said, ha="center", va="center", transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])


def _draw_band(axes: Axes, curves: Sequence[Curve], window: int) -> None:
    places, mean, low, high = band_of(curves)
    label = f"mean of {len(curves)} runs, each over {window} updates"
    axes.fill_between(
        places, low, high, color=figures.PALETTE["base"], alpha=0.3, lw=0, label="lowest to highest"
    )
    axes.plot(*thin(places, mean), color=figures.INK, lw=1.8, label=label)


def _draw_curves(axes: Axes, curves: Mapping[str, Curve], window: int) -> None:
    for order, (name, curve) in enumerate(curves.items()):
        places, rewards, means = curve
        label = name
        colour = figures.PALETTE[COLOURS[order % len(COLOURS)]]
        if len(curves) == 1:
            some = thin(places, rewards)
            each = -(-len(rewards) // len(some[0]))
            dots = "one update" if each == 1 else f"mean of {each} neighbours"
            axes.plot(*some, "o", color=colour, ms=3, alpha=0.45, clip_on=False, label=dots)
            label = _window_words(curve, window)
        style = LINES[order % len(LINES)]
        axes.plot(*thin(places, means), style, color=colour, lw=1.8, label=label, gid=name)


def _on_axis(run: Run, axis: str) -> list[figures.Phase]:
    """The phases of a run, their ends where the axis has them."""
    places = run.x(axis)
    if places is None or not run.rows:
        return []
    at = {row["iter"]: place for row, place in zip(run.rows, places.tolist(), strict=True)}
    if axis == "update":
        return list(run.phases)
    # Between two updates lies what the second of them took.
    ends = [(name, at.get(first - 1, 0.0), at.get(last)) for name, first, last in run.phases]
    return [(name, low + 0.5, high - 0.5) for name, low, high in ends if high is not None]


def _legend(axes: Axes) -> None:
    """Above the axes, in as many rows as it takes, for which the axes make room."""
    labels = axes.get_legend_handles_labels()[1]
    if not labels:
        return
    columns = 5 if sum(map(len, labels[:5])) < 90 else 3
    rows = -(-len(labels) // columns)
    box = axes.get_position()
    axes.set_position((box.x0, box.y0, box.width, max(0.3, 0.965 - box.y0 - 0.062 * rows)))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=8)


def _mark(axes: Axes, run: Run, axis: str, picked: int | None) -> None:
    places = run.x(axis) if picked is not None else None
    if places is None:
        return
    for row, place in zip(run.rows, places.tolist(), strict=True):
        if row["iter"] == picked:
            axes.axvline(place, color=figures.INK, lw=1, ls=":", label=f"update {picked}")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else np.nan
