"""The figures of stored runs, from their logs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from vclib.rl import figures
from vclib.rl.report import EVALUATION, arm_figures, curve_figures
from vclib.rl.results_file import FILE, load
from vclib.rl.runlog import TRAIN_LOG


def is_run(folder: Path) -> bool:
    """True if the folder holds training logs or an evaluation."""
    return (folder / TRAIN_LOG).is_file() or (folder / EVALUATION / FILE).is_file()


def runs_in(folder: Path) -> list[Path]:
    """The runs directly below a folder, by name."""
    return sorted(path for path in folder.glob("*") if is_run(path))


def draw_figures(run: Path, folder: Path) -> list[Path]:
    """Write every figure that the run's files allow as a PNG; returns the paths."""
    drawn: dict[str, Figure] = {}
    if (run / TRAIN_LOG).is_file():
        drawn |= curve_figures(run)
    if (run / EVALUATION / FILE).is_file():
        drawn |= arm_figures(load(run / EVALUATION))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in drawn.items():
        path = folder / f"{name}.png"
        path.write_bytes(figures.png(figure))
        paths.append(path)
    return paths
