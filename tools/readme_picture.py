"""Draw the README's picture from the stored evaluation: episodes before and after training.

The pages are the first held-out one of each difficulty, and the draws the first of each, so that
nothing is picked.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image

from vclib.notebook.widgets import captioned_strip, wrapped
from vclib.paths import DATA, ROOT
from vclib.rl import figures
from vclib.rl.results import DIFFICULTIES, POLICIES, Draft, Evaluation
from vclib.rl.results_file import load

NAMES = {"base": "before training", "trained": "after training"}


def main() -> None:
    """Stack one row a page: the reference, then each policy's drafts over their critiques."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=DATA / "runs" / "laptop")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "figures" / "episodes.png")
    flags = parser.parse_args()
    evaluation = load(flags.run / "eval")
    rows = [_row(evaluation, f"blocks/heldout/{name}/0") for name in DIFFICULTIES]
    picture = Image.new("RGB", (max(r.width for r in rows), sum(r.height for r in rows)), "white")
    top = 0
    for row in rows:
        picture.paste(row, (0, top))
        top += row.height
    flags.output.parent.mkdir(parents=True, exist_ok=True)
    picture.save(flags.output)
    print(flags.output)


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
