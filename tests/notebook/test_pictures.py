"""The widgets' pictures, as a reader sees them: no text cut off, none over another or a curve."""

import itertools

import matplotlib.text
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vclib.env.browser import Renderer
from vclib.env.reward import WEIGHTS, Reference, score
from vclib.notebook.curves_figure import curves_figure
from vclib.notebook.dashboard import Dashboard
from vclib.notebook.explorers import credit_of, credit_tables
from vclib.notebook.inspector import inspection_figure
from vclib.notebook.replay_figures import episode_figure, turn_figure
from vclib.notebook.runs import read_run
from vclib.paths import DATA
from vclib.rl import figures, kept
from vclib.rl.results_file import load

RUN = DATA / "runs" / "laptop"
PAGE = "<!doctype html><body style='margin:0;font:20px sans-serif'><p>News</p><p>About us</p>"


@pytest.fixture(scope="module")
def pair():
    return kept.evaluated(load(RUN / "eval"))["blocks/heldout/hard/0"]


def dashboard(pair):
    board = Dashboard()
    board.take(read_run(RUN))
    return board.figure()


def inspector(pair):
    with Renderer(timeout=15) as renderer:
        reference, draft = renderer.render_many([PAGE, PAGE.replace("About", "Over")])
        goal = Reference(reference)
        return inspection_figure(goal, draft, score(goal, draft))


def breakdown(pair):
    parts = {"total": 0.5, "gate": 1.0, "reason": None, **dict.fromkeys(WEIGHTS, 1.0)}
    return figures.breakdown_bars({name: parts | {"clip": None} for name in "abc"}, WEIGHTS)


DRAWN = {
    "dashboard": dashboard,
    "one turn of two episodes": lambda pair: turn_figure(pair, 2),
    "all turns of two episodes": lambda pair: episode_figure(pair),
    "curve by update": lambda pair: curves_figure({"laptop": read_run(RUN)}, window=3),
    "curve by minutes": lambda pair: curves_figure({"laptop": read_run(RUN)}, axis="minutes"),
    "credit": lambda pair: credit_tables(credit_of([[0, 0.5, 1], [1, 1]], 2, "flat")),
    "inspector": inspector,
    "parts of three rewards": breakdown,
}


@pytest.mark.parametrize("name", DRAWN)
def test_texts_of_a_picture_are_whole_and_apart(name, pair):
    figure = DRAWN[name](pair)
    boxes = text_boxes(figure)
    assert len(boxes) > 3
    width, height = figure.bbox.size
    for text, (left, low, right, top) in boxes:
        assert min(left, low, width - right, height - top) > -1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert max(*(a[:2] - b[2:]), *(b[:2] - a[2:])) > 1, (one, other)


def test_the_dashboard_s_legends_leave_its_seconds_and_lengths_free(pair):
    figure = dashboard(pair)
    text_boxes(figure)
    for axes in figure.axes:
        if axes.get_title(loc="left").startswith(("seconds", "tokens")):
            legend = axes.get_legend().get_window_extent()
            for line in axes.lines:
                points = axes.transData.transform(line.get_xydata())
                assert (points[:, 1] < legend.y0).all()


def test_what_is_measured_in_a_picture_is_named_at_its_axis(pair):
    assert breakdown(pair).axes[0].get_xlabel() == "score, 0 to 1"


def text_boxes(figure):
    """Every text that is drawn, with left, low, right and top in pixels."""
    FigureCanvasAgg(figure).draw()
    hidden = {id(text) for axes in figure.findobj(Axes) for text in outside(axes)}
    return [
        (text.get_text(), np.array(text.get_window_extent().extents))
        for text in figure.findobj(matplotlib.text.Text)
        if text.get_text().strip() and text.get_visible() and id(text) not in hidden
    ]


def outside(axes):
    """The labels of ticks beyond the limits, which matplotlib keeps and does not draw."""
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        for tick in axis.get_major_ticks():
            if not (axes.axison and min(limits) <= tick.get_loc() <= max(limits)):
                yield from (tick.label1, tick.label2)
