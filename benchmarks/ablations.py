"""The same short run with one thing changed, three seeds each; runs whatever is missing.

    python benchmarks/ablations.py               # train what data/runs/ablations lacks
    python benchmarks/ablations.py --list        # what there is and what is missing
    python benchmarks/ablations.py --table       # the table of what there is
    python benchmarks/ablations.py --figure docs/figures/ablations.png
    python benchmarks/ablations.py --only flat rloo --seeds 0 --minutes 60

Every run has the same number of episodes, the same pages and the same luck; it is evaluated on
the same held-out pages. Each is committed as it comes, so that the set can be completed later.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from planted import FAULTS, planted

from vclib.paths import DATA, ROOT, in_project
from vclib.rl import figures
from vclib.rl.intervals import Interval, bootstrap, paired_difference
from vclib.rl.results_file import load
from vclib.rl.runlog import TRAIN_LOG, read_jsonl

FOLDER = DATA / "runs" / "ablations"
BUDGET = {"pages_per_update": 8, "k_rollouts": 8, "episodes_per_phase": 3, "num_phases": 3}
UPDATES = BUDGET["episodes_per_phase"] * BUDGET["num_phases"]
PAGES = 120
REFERENCE = "flat"
VARIANTS: dict[str, dict[str, Any]] = {
    "flat": {},
    "per_turn": {"advantage": "per_turn"},
    "dr_grpo": {"advantage": "dr_grpo"},
    "rloo": {"advantage": "rloo"},
    "lambda-0": {"lambda_shaped": 0.0},
    "lambda-1": {"lambda_shaped": 1.0},
    "partner-base": {"partner": "base"},
    "combined": {"phase": "combined", "episodes": UPDATES},
    "k-4": {"k_rollouts": 4, "pages_per_update": 16},
    "k-16": {"k_rollouts": 16, "pages_per_update": 4},
    **{name: {"fault": name} for name in FAULTS},
}
"""What is changed in each; `fault` plants one of `planted.FAULTS`."""
SEEDS = (0, 1, 2)
COLUMNS = 4
"""Of panels in the figure."""
CURVES_ONLY = set(FAULTS) - {"text-only", "temperature"}
"""Faults that nobody commits on purpose: they are not evaluated, for notebook 12 shows curves."""


def main() -> None:
    """Run, list, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--minutes", type=float, help="start no run after this many minutes")
    parser.add_argument("--list", action="store_true", help="what there is and what is missing")
    parser.add_argument("--table", action="store_true", help="print the table of what there is")
    parser.add_argument("--figure", type=Path, help="draw the curves of what there is, as PNG")
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.chdir(ROOT)  # a run's config names its folder by its place in the project
    if options.one:
        run(options.one[0], int(options.one[1]))
        return
    wanted = [(name, seed) for seed in options.seeds for name in options.only]
    missing = [pair for pair in wanted if not _finished(*pair)]
    if options.table:
        print(table(options.only))
        return
    if options.figure:
        options.figure.write_bytes(figures.png(drawing(options.only)))
        return
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {FOLDER}")
    if options.list:
        print("missing:", *[f"{name}/{seed}" for name, seed in missing] or ["none"])
        return
    began = time.monotonic()
    for number, (name, seed) in enumerate([("base", 0), *missing]):
        if _finished(name, seed):
            continue
        if options.minutes and time.monotonic() - began > options.minutes * 60:
            print(f"Out of time; {len(missing) - number + 1} runs are left.")
            return
        print(f"{number}/{len(missing)} {name} seed {seed}", flush=True)
        # A process of its own: a planted fault, or a leak, must not reach the next run.
        subprocess.run([sys.executable, __file__, "--one", name, str(seed)], check=True)
        spent = f"{(time.monotonic() - began) / 60:.0f} min"
        print(f"  {_line(name, seed)}, {spent}", flush=True)


def run(name: str, seed: int) -> None:
    """Train one variant with one seed, evaluate it, and leave the logs in its folder."""
    from vclib.policy.model import Policy
    from vclib.rl.profiles import PROFILES
    from vclib.rl.trainer import Trainer

    folder = FOLDER / name / str(seed)
    changes = dict(VARIANTS.get(name, {}))
    fault = changes.pop("fault", None)
    laptop = PROFILES["laptop"].but(
        seed=seed,
        output=in_project(folder.parent),
        run=folder.name,
        checkpoint_dir=f"outputs/ablations/{name}-{seed}",
        overwrite=True,
        trackers=(),
        **BUDGET | changes,
    )
    if name == "base":
        policy = Policy.load(laptop.model)
    else:
        with planted(fault), Trainer(laptop) as trainer:
            for update in trainer.run():
                print(f"  {update.index}/{update.total} {update.mean_terminal_reward:.3f}")
            policy = trainer.policy
    if name not in CURVES_ONLY:
        judge(policy, laptop, name, folder)
    command = f"python benchmarks/ablations.py --only {name} --seeds {seed}\n"
    (folder / "commands.txt").write_text(command)


def judge(policy: Any, laptop: Any, name: str, folder: Path) -> None:
    """Evaluate on held-out pages and store it."""
    from vclib.env.environment import WebPageEnv
    from vclib.rl.evaluate import choose_pages, evaluate
    from vclib.rl.results_file import save
    from vclib.settings import evaluation_of

    settings = replace(
        evaluation_of(laptop, PAGES),
        policies=("base" if name == "base" else "trained",),
        decodings=("sampled",),
        episodes_per_batch=48,
        seed=0,
    )
    with WebPageEnv(laptop.pages, split="heldout", max_steps=laptop.max_steps) as env:
        save(evaluate(policy, env, choose_pages(env.pages, settings), settings), folder / "eval")


def table(names: list[str]) -> str:
    """A Markdown table: gain over the base, and difference from the reference variant.

    Intervals are bootstrap over pages, each page the mean of its seeds, paired by page.
    """
    rows = [
        "| variant | seeds | reward | gain over base | against `flat` | Critic against alone |",
        "|---|---|---|---|---|---|",
    ]
    base = _rewards("base", [0])
    flat_seeds = _seeds(REFERENCE)
    for name in names:
        if not (seeds := _seeds(name)) or name in CURVES_ONLY:
            continue
        loop, alone = (_rewards(name, seeds, way) for way in ("critic", "alone"))
        shared = [seed for seed in seeds if seed in flat_seeds]
        against = (
            ""
            if name == REFERENCE or not shared
            else _difference(_rewards(name, shared), _rewards(REFERENCE, shared))
        )
        gain, critic = _difference(loop, base), _difference(loop, alone)
        rows.append(
            f"| `{name}` | {len(seeds)} | {loop.mean():.3f} | {gain} | {against} | {critic} |"
        )
    return "\n".join(rows)


def drawing(names: list[str]) -> Figure:
    """A panel for each variant: its reward while it trains beside that of the reference.

    Lines are means over seeds, bands reach from the lowest to the highest seed; the title has
    the difference on held-out pages, as in the table.
    """
    names = [n for n in names if n not in CURVES_ONLY | {REFERENCE} and _seeds(n)]
    rows = -(-len(names) // COLUMNS)
    with figures.styled():
        figure = Figure(figsize=(8.0, 0.5 + 1.65 * rows), layout="constrained")
        panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
        for name, axes in zip(names, panels, strict=False):
            for shown, color in (REFERENCE, "base"), (name, "trained"):
                curves = _curves(shown)
                updates = np.arange(1, curves.shape[1] + 1)
                ink = figures.PALETTE[color]
                axes.fill_between(updates, curves.min(0), curves.max(0), color=ink, alpha=0.2, lw=0)
                axes.plot(updates, curves.mean(0), color=ink, label=shown, lw=1.6)
            seeds = [seed for seed in _seeds(name) if seed in _seeds(REFERENCE)]
            against = _difference(_rewards(name, seeds), _rewards(REFERENCE, seeds))
            axes.set_title(f"{name}\n{against}", fontsize=8)
            for end in range(BUDGET["episodes_per_phase"], UPDATES, BUDGET["episodes_per_phase"]):
                axes.axvline(end + 0.5, color=figures.GRID, lw=1)
            axes.set_xticks(range(1, UPDATES + 1, 2))
        for place, axes in enumerate(panels):
            axes.set_visible(place < len(names))
            axes.tick_params(labelbottom=place + COLUMNS >= len(names))
        figure.supxlabel("update (grey: flat; between the lines the Critic's phase)", fontsize=9)
        figure.supylabel("reward of the last draft", fontsize=9)
    return figure


def _curves(name: str) -> np.ndarray:
    """Mean reward of the last drafts by seed and update, [seeds, updates]."""
    logs = [read_jsonl(FOLDER / name / str(seed) / TRAIN_LOG) for seed in _seeds(name)]
    return np.array([[row["mean"] for row in log] for log in logs])


def _difference(after: np.ndarray, before: np.ndarray) -> str:
    found = paired_difference(after.tolist(), before.tolist())
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _rewards(name: str, seeds: list[int], loop: str = "critic") -> np.ndarray:
    """Last reward on each page, mean over seeds, [pages]."""
    found = [load(FOLDER / name / str(seed) / "eval").arms for seed in seeds]
    arms = [next(arm for arm in arms if arm.loop == loop) for arms in found]
    rows = [
        [page.value("last") for page in arms[arm]] for arms, arm in zip(found, arms, strict=True)
    ]
    return np.mean(rows, axis=0)


def _line(name: str, seed: int) -> str:
    if name in CURVES_ONLY:
        return f"{name} seed {seed}: its curves are stored"
    found: Interval = bootstrap(_rewards(name, [seed]).tolist())
    return f"{name} seed {seed}: held-out reward {found}"


def _seeds(name: str) -> list[int]:
    return [seed for seed in SEEDS if _finished(name, seed)]


def _finished(name: str, seed: int) -> bool:
    # Written last of all.
    return (FOLDER / name / str(seed) / "commands.txt").is_file()


if __name__ == "__main__":
    main()
