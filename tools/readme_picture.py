"""Draw the README's pictures from a stored run: episodes before and after training, each widget.

The pages are the first held-out one of each difficulty, and the draws the first of each, so that
nothing is picked. The widgets show the run's own logs and episodes; the reward inspector renders
in a browser.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image

from vclib.env.pages import load_pages
from vclib.notebook.dashboard import kept_drafts
from vclib.notebook.runs import read_run
from vclib.notebook.widgets import (
    CreditExplorer,
    Dashboard,
    EpisodeReplayer,
    RewardExplorer,
    RewardInspector,
    captioned_strip,
    wrapped,
)
from vclib.paths import DATA, ROOT
from vclib.rl import figures, kept
from vclib.rl.results import DIFFICULTIES, POLICIES, Draft, Evaluation
from vclib.rl.results_file import load

NAMES = {"base": "before training", "trained": "after training"}


def main() -> None:
    """Write every picture to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=DATA / "runs" / "laptop")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "figures")
    flags = parser.parse_args()
    evaluation = load(flags.run / "eval")
    pictures = {"episodes": _episodes(evaluation), **_widgets(flags.run, evaluation)}
    flags.output.mkdir(parents=True, exist_ok=True)
    for name, png in pictures.items():
        (flags.output / f"{name}.png").write_bytes(png)
        print(flags.output / f"{name}.png")


def _widgets(run: Path, evaluation: Evaluation) -> dict[str, bytes]:
    """A picture of each widget, by name, with the state in which it shows most."""
    pair = kept.evaluated(evaluation)[f"blocks/heldout/{DIFFICULTIES[-1]}/0"]
    draft = next(turn.text for turn in pair["base"].turns if turn.agent == "developer")
    board = Dashboard()
    board.take(read_run(run))
    if not board.shown:
        board.shown = kept_drafts(pair["trained"])
    inspector = RewardInspector(load_pages("blocks").page(pair["base"].page_id), draft)
    with_critic = next(arm for arm in evaluation.arms if arm.label == "trained with Critic")
    rewards = [page.rewards[0] for page in evaluation.arms[with_critic][:4]]
    drawn = {
        "reward-explorer": RewardExplorer({run.name: run}).fallback(),
        "credit-explorer": CreditExplorer(rewards).fallback(),
        "episode-replayer": EpisodeReplayer(pair).fallback(),
        "training-dashboard": figures.png(board.figure()),
        "reward-inspector": inspector.fallback(),
    }
    inspector.close()
    return drawn


def _episodes(evaluation: Evaluation) -> bytes:
    """A row a page: the reference, then each policy's drafts over their critiques."""
    rows = [_row(evaluation, f"blocks/heldout/{name}/0") for name in DIFFICULTIES]
    picture = Image.new("RGB", (max(r.width for r in rows), sum(r.height for r in rows)), "white")
    top = 0
    for row in rows:
        picture.paste(row, (0, top))
        top += row.height
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _row(evaluation: Evaluation, page_id: str) -> Image.Image:
    pictures: list[np.ndarray | None] = [evaluation.references[page_id]]
    titles, below = ["reference"], [""]
    for policy in POLICIES:
        drafts = _drafts(evaluation, policy, page_id)
        for turn in range(evaluation.settings.max_steps):
            draft = drafts[turn] if turn < len(drafts) else None
            pictures.append(draft.pixels if draft else None)
            last = f"{NAMES[policy]}\ndraft {turn + 1}: {draft.reward:.2f}" if draft else ""
            titles.append(last)
            below.append(wrapped(draft.critique) if draft else "")
    figure = captioned_strip(pictures, titles, below)
    for axes, pixels in zip(figure.axes, pictures, strict=True):
        if pixels is None:  # fewer drafts than allowed: that is the Critic's doing
            axes.text(0.03, 0.88, "DONE, says the Critic", transform=axes.transAxes)
    return Image.open(io.BytesIO(figures.png(figure))).convert("RGB")


def _drafts(evaluation: Evaluation, policy: str, page_id: str) -> list[Draft]:
    for arm, results in evaluation.arms.items():
        for result in results:
            if arm.policy == policy and result.page_id == page_id and result.drafts:
                return result.drafts
    raise SystemExit(f"The evaluation shows no drafts of {page_id} by the {policy} policy.")


if __name__ == "__main__":
    main()
