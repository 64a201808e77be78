"""Reward curves that answer the hand: which runs, which pages, how smooth, and then why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets

from vclib.errors import VclibError
from vclib.notebook.base import LABELS, Explorer, card
from vclib.notebook.curves_figure import curves_figure
from vclib.notebook.replayer import EpisodeReplayer
from vclib.notebook.runs import AXES, Run, read_run
from vclib.rl import figures, kept

DIFFICULTIES = ("mean", "easy", "medium", "hard")
Source = Path | str | Sequence[figures.Row]


class RewardExplorer(Explorer):
    """Reward curves of one or more runs: choose runs, pages, smoothing, axis, an update to open.

        RewardExplorer({"seed 0": folder, "seed 1": other})

    `runs` maps a name to a run's folder, live or finished (`reload` reads it again), or to the
    lines of its train.jsonl (`iter`, `easy`, `medium`, `hard`, `mean`); `phases` maps the names of
    the latter to (phase, first update, last update). `band` shows the mean of the chosen runs
    between the lowest and the highest. What a run lacks is said below its curve.
    """

    title = "reward explorer"

    def __init__(
        self,
        runs: Mapping[str, Source],
        phases: Mapping[str, Sequence[figures.Phase]] | None = None,
    ):
        if not runs:
            raise VclibError("There is no run to explore: give a name and a folder at least.")
        self.sources, self.phases = dict(runs), phases or {}
        self.runs: dict[str, Run] = {}
        self.run = ipywidgets.SelectMultiple(
            options=list(runs), value=[next(iter(runs))], rows=min(5, len(runs)), **LABELS
        )
        self.run.description = "runs"
        self.band = ipywidgets.Checkbox(False, description="mean and band of the runs")
        self.difficulty = ipywidgets.ToggleButtons(
            options=DIFFICULTIES, description="pages", **LABELS
        )
        self.axis = ipywidgets.ToggleButtons(options=AXES, description="axis", **LABELS)
        self.smoothing = ipywidgets.IntSlider(1, min=1, max=2, description="smoothing", **LABELS)
        self.reload = ipywidgets.Button(description="reload", icon="refresh")
        self.update = ipywidgets.BoundedIntText(1, min=1, max=1, description="update", **LABELS)
        self.opener = ipywidgets.Button(description="open an episode of it", icon="film")
        self.opener.layout.width = "auto"
        self.image = ipywidgets.Image(format="png", width=800)
        self.said = ipywidgets.HTML()
        self.below = ipywidgets.VBox()
        self._read()
        longest = max(len(run.rows) for run in self.runs.values())
        self.smoothing.value = max(2, longest // 8)
        for control in (self.run, self.band, self.difficulty, self.axis, self.smoothing):
            control.observe(self._draw, names="value")
        self.update.observe(self._draw, names="value")
        self.reload.on_click(self._reload)
        self.opener.on_click(self._open)
        self._draw()
        choosing = ipywidgets.HBox([self.run, ipywidgets.VBox([self.band, self.reload])])
        opening = ipywidgets.HBox([self.update, self.opener])
        rows = [choosing, self.difficulty, self.axis, self.smoothing, self.image, self.said]
        super().__init__([*rows, opening, self.below])

    @property
    def chosen(self) -> dict[str, Run]:
        """The runs that are shown."""
        return {name: self.runs[name] for name in self.run.value}

    def _read(self) -> None:
        for name, source in self.sources.items():
            if isinstance(source, Path | str):
                self.runs[name] = read_run(Path(source))
            else:
                self.runs[name] = Run(source, self.phases.get(name, ()))
        longest = max(len(run.rows) for run in self.runs.values())
        self.smoothing.max = max(2, longest)
        last = [row["iter"] for run in self.runs.values() for row in run.rows[-1:]]
        self.update.max = max([1, *last])

    def _reload(self, button: Any = None) -> None:
        self._read()
        self._draw()

    def _draw(self, change: Any = None) -> None:
        drawn = curves_figure(
            self.chosen,
            self.difficulty.value,
            axis=self.axis.value,
            window=self.smoothing.value,
            band=self.band.value,
            picked=self.update.value if self.below.children else None,
        )
        self.image.value = figures.png(drawn)
        self.said.value = "".join(
            card(f"<b>{escape(name)}</b> Not there: {escape('; '.join(run.notes))}.")
            for name, run in self.chosen.items()
            if run.notes
        )

    def _open(self, button: Any = None) -> None:
        self.below.children = [self._episode()]
        self._draw()

    def _episode(self) -> ipywidgets.Widget:
        """A replayer of the kept episodes nearest to the update, or a sentence on why not."""
        episodes, lacking = {}, []
        for name, run in self.chosen.items():
            if not run.episodes:
                lacking.append(f"{escape(name)} keeps no episodes.")
                continue
            nearest = min(run.episodes, key=lambda update: abs(update - self.update.value))
            try:
                episodes[f"{name}, update {nearest}"] = kept.load(run.episodes[nearest])
            except VclibError as error:
                lacking.append(escape(str(error)))
        parts: list[ipywidgets.Widget] = [ipywidgets.HTML(card(" ".join(lacking)))] * bool(lacking)
        try:
            if episodes:
                parts.append(EpisodeReplayer(episodes))
        except VclibError as error:
            parts.append(ipywidgets.HTML(card(escape(str(error)))))
        return ipywidgets.VBox(parts)
