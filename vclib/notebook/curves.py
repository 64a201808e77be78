"""Reward curves that answer the hand: which runs, which pages, how smooth, and then why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets
from matplotlib.figure import Figure

from vclib.errors import VclibError
from vclib.notebook.base import LABELS, Explorer, card
from vclib.notebook.curves_figure import EDGES, curves_figure, smooth
from vclib.notebook.replayer import EpisodeReplayer
from vclib.notebook.runs import AXES, Run, checked, read_run
from vclib.rl import figures, kept

DIFFICULTIES = ("mean", "easy", "medium", "hard")
Source = Path | str | Sequence[figures.Row]
WIDTH = 800
TRACK = (EDGES[0] * WIDTH - 8, (EDGES[1] - EDGES[0]) * WIDTH + 16)
"""Pixels left of the slider of updates, and of its own, so that its track is as long as the axis;
a slider stands half a handle, 8 pixels, beyond its track."""


class RewardExplorer(Explorer):
    """Reward curves of one or more runs: choose runs, pages, smoothing and axis, pick an update.

        RewardExplorer(folder)
        RewardExplorer({"seed 0": folder, "seed 1": other})

    `runs` is a run's folder, live or finished (`reload` reads it again), or maps names to such
    folders or to the lines of a train.jsonl (`iter`, `easy`, `medium`, `hard`, `mean`); `phases`
    maps the names of the latter to (phase, first update, last update). `band` shows the mean of
    the chosen runs between the lowest and the highest. What a run lacks is said below its curve.

    The slider below the curve is as wide as its axis of updates: a click on it, the arrow keys or
    the buttons beside it pick an update, and the kept episodes nearest to it are opened.

    Raises `VclibError` where there is no run.
    """

    title = "reward explorer"

    def __init__(
        self,
        runs: Path | str | Mapping[str, Source],
        phases: Mapping[str, Sequence[figures.Phase]] | None = None,
    ):
        if runs and isinstance(runs, str | Path):
            runs = {Path(runs).resolve().name: runs}
        if not runs or not isinstance(runs, Mapping):
            raise VclibError("There is no run to explore: give a folder, or names and folders.")
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
        self.update = ipywidgets.IntSlider(1, min=1, max=1, continuous_update=False, readout=False)
        self.update.layout = ipywidgets.Layout(width=f"{TRACK[1]}px", margin=f"0 0 0 {TRACK[0]}px")
        self.back = ipywidgets.Button(icon="step-backward", tooltip="the kept episode before")
        self.forward = ipywidgets.Button(icon="step-forward", tooltip="the next kept episode")
        self.back.layout.width = self.forward.layout.width = "40px"
        self.opener = ipywidgets.Button(icon="film", layout=ipywidgets.Layout(width="auto"))
        self.image = ipywidgets.Image(format="png", width=WIDTH)
        self.said = ipywidgets.HTML()
        self.below = ipywidgets.VBox()
        self._replayer: EpisodeReplayer | None = None
        self._figure: Figure
        self._read()
        longest = max(len(run.rows) for run in self.runs.values())
        self.smoothing.value = max(2, longest // 8)
        for control in (self.band, self.difficulty, self.axis, self.smoothing):
            control.observe(self._draw, names="value")
        self.run.observe(self._choose, names="value")
        self.update.observe(self._open, names="value")
        self.reload.on_click(self._reload)
        self.opener.on_click(self._open)
        self.back.on_click(lambda _: self._step(-1))
        self.forward.on_click(lambda _: self._step(1))
        self._choose()
        choosing = ipywidgets.HBox([self.run, ipywidgets.VBox([self.band, self.reload])])
        opening = ipywidgets.HBox([self.back, self.forward, self.opener])
        rows = [choosing, self.difficulty, self.axis, self.smoothing, self.image, self.update]
        super().__init__([*rows, opening, self.said, self.below])

    @property
    def chosen(self) -> dict[str, Run]:
        """The runs that are shown."""
        return {name: self.runs[name] for name in self.run.value}

    def _read(self) -> None:
        for name, source in self.sources.items():
            if isinstance(source, Path | str):
                self.runs[name] = read_run(Path(source))
            else:
                self.runs[name] = Run(checked(source), self.phases.get(name, ()))
        longest = max(len(run.rows) for run in self.runs.values())
        self.smoothing.max = max(2, longest)

    def _reload(self, button: Any = None) -> None:
        self._read()
        self._choose()

    def _choose(self, change: Any = None) -> None:
        """Other runs are chosen, or there is more of them: their updates can be picked."""
        last = [row["iter"] for run in self.chosen.values() for row in run.rows[-1:]]
        self.update.unobserve(self._open, names="value")  # a shorter run pulls it back: no pick
        self.update.max = max([1, *last])
        self.update.observe(self._open, names="value")
        self.back.disabled = self.forward.disabled = not self._kept()
        self._draw()

    def _kept(self) -> list[int]:
        """The updates of the chosen runs that have a kept episode."""
        return sorted({update for run in self.chosen.values() for update in run.episodes})

    def _step(self, by: int) -> None:
        beyond = [update for update in self._kept()[::by] if by * (update - self.update.value) > 0]
        if beyond:
            self.update.value = beyond[0]

    def _draw(self, change: Any = None) -> None:
        view: dict[str, Any] = {"axis": self.axis.value, "window": self.smoothing.value}
        if change and change["owner"] is self.smoothing and not self.band.value:
            smooth(self._figure, self.chosen, self.difficulty.value, **view)
        else:
            picked = self.update.value if self.below.children else None
            self._figure = curves_figure(
                self.chosen, self.difficulty.value, **view, band=self.band.value, picked=picked
            )
        self.image.value = figures.png(self._figure, dpi=int(WIDTH / figures.WIDE[0]))
        self.opener.description = f"open an episode of update {self.update.value}"
        self.said.value = "".join(
            card(f"<b>{escape(name)}</b> Not there: {escape('; '.join(run.notes))}.")
            for name, run in self.chosen.items()
            if run.notes
        )

    def _open(self, change: Any = None) -> None:
        self.below.children = self._episode()
        self._draw()

    def _episode(self) -> list[ipywidgets.Widget]:
        """A replayer of the kept episodes nearest to the update, and a sentence on what lacks."""
        episodes, lacking = {}, []
        for name, run in self.chosen.items():
            if not run.episodes:
                lacking.append(f"{name} keeps no episodes.")
                continue
            nearest = min(run.episodes, key=lambda update: abs(update - self.update.value))
            try:
                episodes[f"{name}, update {nearest}"] = kept.load(run.episodes[nearest])
            except VclibError as error:
                lacking.append(str(error))
        parts: list[ipywidgets.Widget] = []
        try:
            if episodes:
                parts.append(self._replay(episodes))
        except VclibError as error:
            lacking.append(str(error))
        said = escape(" ".join(lacking) or "No run is chosen.")
        return [ipywidgets.HTML(card(said)), *parts] if lacking or not parts else parts

    def _replay(self, episodes: Mapping[str, kept.KeptEpisode]) -> EpisodeReplayer:
        if self._replayer is None:
            self._replayer = EpisodeReplayer(episodes)
        else:
            self._replayer.show(episodes)
        return self._replayer
