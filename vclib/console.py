"""Progress bars and tables in a terminal."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

if TYPE_CHECKING:  # They import torch, which `render` does without.
    from vclib.rl.results import Arm, EvalSettings
    from vclib.rl.update import Update

WINDOW = 8
"""Updates in the moving mean beside the bar."""
FORMAT = "{desc} {bar} {n_fmt}/{total_fmt}{postfix} · {remaining} left"


def show_updates(updates: Iterable[Update], done: int, total: int) -> None:
    """Run through the updates; shows phase, update, reward, its moving mean and the time left."""
    recent: deque[float] = deque(maxlen=WINDOW)
    with _bar(total, initial=done, desc="training") as bar:
        for update in updates:
            recent.append(update.mean_terminal_reward)
            mean = sum(recent) / len(recent)
            bar.set_description_str(f"{update.phase:9}", refresh=False)
            reward = f"reward {update.mean_terminal_reward:.3f}, mean of {len(recent)} {mean:.3f}"
            bar.set_postfix_str(reward, refresh=False)
            bar.update(update.index - bar.n)


@contextmanager
def evaluation_bar(settings: EvalSettings, pages: int) -> Iterator[Any]:
    """A progress callback for `evaluate`."""
    with _bar(pages * len(settings.arms()), desc="evaluating") as bar:

        def progress(arm: Arm, pages: int) -> None:
            bar.set_description_str(f"{arm.label}, {arm.decoding}", refresh=False)
            bar.update(pages)

        yield progress


def show_pretraining(records: Iterable[dict[str, Any]], total: int) -> None:
    """Run through the steps of pre-training; shows the job, its loss and its accuracy."""
    with _bar(total, desc="pre-training") as bar:
        for record in records:
            words = f"loss {record['loss']:.3f}, {record['accuracy']:.0%} of tokens right"
            bar.set_description_str(f"{record['job']:9}", refresh=False)
            bar.set_postfix_str(words, refresh=False)
            bar.update(record["step"] + 1 - bar.n)


def quieten(model: str | None = None) -> None:
    """Keep warnings of transformers that a user can do nothing about from tearing the bars.

    A model from the hub keeps its bars for download and loading: they may take minutes.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    if model is None or Path(model).is_dir():
        transformers.logging.disable_progress_bar()


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in aligned columns, the first to the left and the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _bar(total: int, *, initial: int = 0, desc: str) -> Any:
    # Where no one watches, as in a log file, a line a minute is enough.
    quiet = not sys.stderr.isatty()
    return tqdm(
        total=total,
        initial=initial,
        desc=desc,
        bar_format=FORMAT,
        mininterval=60.0 if quiet else 0.1,
        dynamic_ncols=not quiet,
        ncols=100 if quiet else None,
    )
