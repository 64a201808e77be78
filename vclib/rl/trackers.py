"""The curves that TensorBoard and its like draw, beside the run's own log."""

from __future__ import annotations

import warnings

from accelerate import Accelerator

from vclib.rl.profiles import TrainSettings
from vclib.rl.update import Update


class Trackers:
    """Accelerate's trackers, if the settings name any.

    Where one cannot write, all are given up with a warning: nothing that is learnt depends on
    them, and the run's own log has the same numbers.
    """

    def __init__(self, accelerator: Accelerator, settings: TrainSettings) -> None:
        self.accelerator, self.run = accelerator, settings.run
        self.wanted = bool(settings.trackers)
        self.begun = False

    def log(self, update: Update) -> None:
        """Draw one update."""
        begun, self.begun = self.begun, True
        if not self.wanted:
            return
        flat = {k: v for k, v in update.diagnostics.items() if isinstance(v, int | float)}
        try:
            if not begun:
                # A resumed run's curves replace what was drawn past its checkpoint.
                purge = {"tensorboard": {"purge_step": update.index}}
                self.accelerator.init_trackers(self.run, init_kwargs=purge)
            self.accelerator.log(flat, step=update.index)
        except OSError as error:
            self._give_up(error)

    def end(self) -> None:
        """End the trackers, and what accelerate holds between processes."""
        try:
            self.accelerator.end_training()
        except OSError as error:
            self._give_up(error)
            self.accelerator.end_training()

    def _give_up(self, error: OSError) -> None:
        self.wanted, self.accelerator.trackers = False, []
        warnings.warn(f"The trackers are given up, training goes on: {error}.", stacklevel=4)
