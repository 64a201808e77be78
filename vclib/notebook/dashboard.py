"""A training run as it goes: its curves, a sentence on each, its last drafts, and a stop button."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import torch
from IPython.display import display
from matplotlib.figure import Figure

from vclib.errors import VclibError
from vclib.notebook.base import Picture
from vclib.notebook.dashboard_figure import Shown, dashboard_figure
from vclib.notebook.diagnosis import diagnose
from vclib.notebook.runs import Run, read_run
from vclib.rl import figures, kept
from vclib.rl.episodes import Episode
from vclib.rl.figures import Row
from vclib.rl.update import Update

if TYPE_CHECKING:  # the trainer's imports take seconds
    from vclib.rl.trainer import Trainer

MOST_DRAFTS = 5


class Dashboard:
    """One picture of a run, of fixed size, replaced after every update.

        dashboard = Dashboard(settings.total_updates)
        for update in trainer.run():            # the cell is busy until the run ends
            dashboard.add(update)

        dashboard = Dashboard().train(trainer)  # the cell ends at once; a button stops the run
        dashboard.wait()                        # in another cell: until it has ended

        Dashboard().watch(folder)               # a run that another process is writing

    `total` is the number of updates of the whole run, beyond which no axis goes.
    """

    def __init__(self, total: int | None = None):
        self.total = total
        # The numbers of every update, but the pictures of the last one alone: they are large.
        self.rows: list[Row] = []
        self.shown: Sequence[Shown] = ()
        self.status = ipywidgets.HTML()
        self.button = ipywidgets.Button(icon="stop", layout=ipywidgets.Layout(width="auto"))
        self._handle: Any = None
        self._drawn = self._cost = 0.0  # when the picture was last drawn, and how long that took
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._end: Callable[[], None] = self._over.set
        self.button.on_click(self._pressed)

    @property
    def readings(self) -> dict[str, str]:
        """A sentence on each panel, as the picture says them."""
        return diagnose(self.rows)

    def add(self, update: Update) -> None:
        """Take an update in, and show the run so far."""
        self._take_update(update)
        self._draw()

    def _take_update(self, update: Update) -> None:
        self.total = update.total if self.total is None else self.total
        # A run that is begun again takes the place of what was seen of it.
        while self.rows and self.rows[-1]["iter"] >= update.index:
            self.rows.pop()
        self.rows.append({"iter": update.index, **update.diagnostics})
        self.shown = last_drafts(update.episodes[0])

    def take(self, run: Run) -> str:
        """Take a run in, as `read_run` read it; returns what is not there, as sentences."""
        known = {row["iter"] for row in run.diagnostics}
        # Of an update without diagnostics there is at least the reward.
        plain = [
            {"iter": row["iter"], "mean_terminal_reward": row.get("mean"), "by_difficulty": row}
            for row in run.rows
            if row["iter"] not in known
        ]
        self.rows = sorted([*run.diagnostics, *plain], key=lambda row: row["iter"])
        totals = [row["total"] for row in self.rows if isinstance(row.get("total"), int)]
        self.total = totals[-1] if totals else self.total
        said = [f"{len(self.rows)} updates" + (f" of {self.total}." if self.total else ".")]
        if run.notes:
            said.append(f"Not there: {escape('; '.join(run.notes))}.")
        try:
            self.shown = kept_drafts(kept.load(run.episodes[max(run.episodes)]))
        except ValueError:
            said.append("This run keeps no episodes, so no drafts are shown.")
        except VclibError as error:
            said.append(escape(str(error)))
        return " ".join(said)

    def figure(self) -> Figure:
        """The picture: every curve with its reading, and the last drafts below."""
        return dashboard_figure(self.rows, self.shown, self.total)

    def train(
        self, trainer: Trainer, on_update: Callable[[Update], None] = lambda update: None
    ) -> Dashboard:
        """Run the trainer on a thread of its own, and close it at the end.

        `on_update` is called on that thread after each update. The button, and `trainer.stop()`,
        end the run after the update in hand, saved.
        """
        threads = torch.get_num_threads()

        def work() -> None:
            torch.set_num_threads(threads)  # a new thread has the machine's number
            with trainer:
                for update in trainer.run():
                    self._take_update(update)
                    on_update(update)
                    self._say(f"Update {update.index} of {update.total} is done.")
                    # Drawing takes time from training: at most a fifth of it, however fast it is.
                    if time.monotonic() - self._drawn >= 4 * self._cost:
                        self._draw()
            self._draw()
            self._say(escape(trainer.how_to_go_on))

        self._require_free()
        self.total = trainer.settings.total_updates
        self._end = trainer.stop
        self._begin(work, "stop after this update", f"Training, {self.total} updates in all.")
        return self

    def watch(self, folder: Path | str, seconds: float = 2.0) -> Dashboard:
        """Follow a run's folder, which another process may be writing, until told to stop."""
        folder = Path(folder)

        def work() -> None:
            before: Any = None
            while True:
                run = read_run(folder)
                if (now := (len(run.rows), len(run.diagnostics), list(run.notes))) != before:
                    before = now
                    self._say(f"{escape(folder.name)}: {self.take(run)}")
                    self._draw()
                if self._over.wait(seconds):
                    self._say(f"{escape(folder.name)} is no longer watched.")
                    return

        self._require_free()
        self._end = self._over.set
        self._begin(work, "stop watching", f"Watching {escape(folder.name)}.")
        return self

    def wait(self) -> None:
        """Until what was begun has ended; raises what it raised. Interrupting ends it cleanly."""
        if self._thread is None:
            return
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._end()
            self._thread.join()
        if self._error:
            raise self._error

    @property
    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _require_free(self) -> None:
        if self._busy:
            raise VclibError("This dashboard is busy: make another, or stop it first.")

    def _begin(self, work: Callable[[], None], label: str, status: str) -> None:
        self._over.clear()
        self._error = None
        self._handle = None  # the cell that shows the last picture may be gone
        self.button.description, self.button.disabled = label, False
        self._say(status)
        display(_Controls([self.button, self.status]))
        self._draw()

        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # raised again by `wait`
                self._error = error
                self._say(f"Ended by an error: {escape(f'{type(error).__name__}: {error}')}")
            finally:
                self.button.disabled = True

        self._thread = threading.Thread(target=guarded, name="vclib-dashboard", daemon=True)
        self._thread.start()

    def _pressed(self, button: Any = None) -> None:
        self.button.disabled = True
        if self._busy:
            self._say("Stopping as soon as the work in hand is done.")
            self._end()

    def _say(self, text: str) -> None:
        self.status.value = text

    def _draw(self) -> None:
        start = time.monotonic()
        picture = Picture(figures.png(self.figure()), "training dashboard")
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)
        self._drawn = time.monotonic()
        self._cost = self._drawn - start


class _Controls(ipywidgets.HBox):
    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        text = "<stop button: where a kernel runs>"
        return {**super()._repr_mimebundle_(**kwargs), "text/plain": text}


def last_drafts(group: Sequence[Episode]) -> list[Shown]:
    """The reference and the last drafts of the first few episodes of a group, titled."""
    drafts = [episode.developer_turns[-1] for episode in group[:MOST_DRAFTS] if episode.rewards]
    shown = [("reference", group[0].reference)]
    return shown + [(f"{draft.reward:.2f}", draft.render) for draft in drafts]


def kept_drafts(episode: kept.KeptEpisode) -> list[Shown]:
    """The reference and the drafts of one episode, titled."""
    drafts = [turn for turn in episode.turns if turn.agent == "developer"][:MOST_DRAFTS]
    when = f", update {episode.update}" if episode.update else ""
    shown: list[Shown] = [(f"reference{when}", episode.reference)]
    for number, turn in enumerate(drafts, 1):
        reward = "" if turn.reward is None else f": {turn.reward:.2f}"
        shown.append((textwrap.shorten(f"draft {number}{reward}", 24), turn.render))
    return shown
