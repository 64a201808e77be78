"""What a notebook shows that moves: curves to explore, a dashboard that grows, episodes in a row.

Everything carries a PNG and a text that never changes, so that it is seen where no kernel runs
and two runs of a notebook can be compared.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
from IPython.display import display
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from vclib.rl import figures
from vclib.rl.episodes import Episode
from vclib.rl.results import Draft
from vclib.rl.update import Update

DIFFICULTIES = ("mean", "easy", "medium", "hard")
DASHBOARD = (9.0, 5.0)
WATCHED = {
    "mean_terminal_reward": "reward of the last draft",
    "group_std": "spread within groups",
    "grad_norm": "gradient norm",
}


class Picture:
    """A PNG under a name that is the same on every run."""

    def __init__(self, png: bytes, name: str):
        self.png, self.name = png, name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _repr_png_(self) -> bytes:
        return self.png


class Explorer(ipywidgets.VBox):
    """Controls and one picture, which is what a notebook shows where no kernel runs."""

    image: ipywidgets.Image
    title: str

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        fallback = base64.b64encode(self.image.value).decode()
        return {**bundle, "text/plain": f"<{self.title}>", "image/png": fallback}


class RewardExplorer(Explorer):
    """Reward curves of one or more runs: choose the run, the difficulty and the smoothing.

    `runs` maps a name to the lines of its train.jsonl (`iter`, `easy`, `medium`, `hard`, `mean`);
    `phases` maps the same names to (phase, first update, last update).
    """

    title = "reward explorer"

    def __init__(
        self,
        runs: Mapping[str, Sequence[figures.Row]],
        phases: Mapping[str, Sequence[figures.Phase]] | None = None,
    ):
        self.runs, self.phases = runs, phases or {}
        longest = max(len(rows) for rows in runs.values())
        self.run = ipywidgets.Dropdown(options=list(runs), description="run")
        self.difficulty = ipywidgets.ToggleButtons(options=DIFFICULTIES, description="pages")
        self.smoothing = ipywidgets.IntSlider(
            value=max(2, longest // 8), min=1, max=max(2, longest), description="smoothing"
        )
        self.image = ipywidgets.Image(format="png", width=800)
        for control in (self.run, self.difficulty, self.smoothing):
            control.observe(self._draw, names="value")
        self._draw()
        controls = ipywidgets.HBox([self.run, self.smoothing])
        super().__init__([controls, self.difficulty, self.image])

    def _draw(self, change: Any = None) -> None:
        column = self.difficulty.value
        rows = [{"iter": row["iter"], "mean": row.get(column)} for row in self.runs[self.run.value]]
        phases = self.phases.get(self.run.value, ())
        self.image.value = figures.png(
            figures.reward_curve(rows, phases, window=self.smoothing.value)
        )


class Dashboard:
    """A training run as it goes: one picture of fixed size, replaced after every update.

    `total` is the number of updates of the whole run, which fixes the horizontal axis.
    """

    def __init__(self, total: int):
        self.total = total
        # The numbers of every update, but the pictures of the last one alone: they are large.
        self.rows: list[dict[str, Any]] = []
        self._handle: Any = None

    def add(self, update: Update) -> None:
        """Take an update in, and show the run so far."""
        self.rows.append(update.diagnostics)
        picture = Picture(figures.png(self.figure(update.episodes[0])), "training dashboard")
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)

    def figure(self, group: Sequence[Episode]) -> Figure:
        """The watched numbers by update, coloured by phase; below, the last drafts of a group."""
        with rc_context(figures.STYLE):
            figure = Figure(figsize=DASHBOARD, layout="constrained")
            above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(3, 2))[:, 0]
            for axes, (name, title) in zip(above.subplots(1, 3), WATCHED.items(), strict=True):
                self._curve(axes, name)
                axes.set(title=title, xlabel="update", xlim=(0.5, self.total + 0.5))
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            phases = dict.fromkeys(row["phase"] for row in self.rows)
            marks = [Line2D([], [], marker="o", lw=0, color=figures.PALETTE[p]) for p in phases]
            labels = [f"{phase} trains" for phase in phases]
            above.legend(marks, labels, loc="outside upper right", ncols=3)
            _draw_group(below, group)
        return figure

    def _curve(self, axes: Axes, name: str) -> None:
        steps = [row["index"] for row in self.rows]
        values = [row[name] for row in self.rows]
        axes.plot(steps, values, color=figures.PALETTE["base"], lw=1)
        axes.scatter(steps, values, c=[figures.PALETTE[row["phase"]] for row in self.rows], s=16)


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


def _draw_group(figure: SubFigure, group: Sequence[Episode], most: int = 5) -> None:
    """The reference and the last drafts of the first few episodes of a group."""
    drafts = [episode.developer_turns[-1] for episode in group[:most]]
    pictures = [group[0].reference, *(draft.render for draft in drafts)]
    titles = ["reference", *(f"{draft.reward:.2f}" for draft in drafts)]
    panels = figure.subplots(1, most + 1)
    for axes in panels[len(pictures) :]:
        axes.set_axis_off()
    for axes, picture, title in zip(panels, pictures, titles, strict=False):
        axes.set(title=title, xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=figures.GRID)
        axes.imshow(picture)
