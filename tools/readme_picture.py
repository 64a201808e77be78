"""Draw the README's picture: episodes on the first held-out page of each difficulty.

The pages are fixed beforehand and the first sample is shown, so that nothing is picked.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import torch
from PIL import Image

from vclib.env.environment import WebPageEnv
from vclib.env.pages import load_pages
from vclib.notebook.widgets import episode_strip
from vclib.paths import ROOT, TINY
from vclib.policy.model import Policy
from vclib.rl.episodes import play
from vclib.rl.profiles import PROFILES
from vclib.rl.trainer import episode_settings
from vclib.settings import find_adapters

DIFFICULTIES = ("easy", "medium", "hard")


def main() -> None:
    """Play one sampled episode a page and stack their strips."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapters", type=Path, help="a run or a checkpoint; else the base model")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "figures" / "episodes.png")
    flags = parser.parse_args()
    adapters = find_adapters(flags.adapters).folder if flags.adapters else None
    policy = Policy.load(TINY, adapters=adapters)
    pages = load_pages("blocks")
    page_ids = [pages.at("heldout", difficulty, 0).id for difficulty in DIFFICULTIES]
    with WebPageEnv(pages, split="heldout") as env:
        groups = play(
            policy,
            env,
            page_ids,
            k=1,
            settings=episode_settings(PROFILES["laptop"], "combined"),
            generator=torch.Generator().manual_seed(0),
        )
    strips = [Image.open(io.BytesIO(episode_strip(group[0]).png)) for group in groups]
    width, height = max(s.width for s in strips), sum(s.height for s in strips)
    picture = Image.new("RGB", (width, height), "white")
    top = 0
    for strip in strips:
        picture.paste(strip, (0, top))
        top += strip.height
    flags.output.parent.mkdir(parents=True, exist_ok=True)
    picture.save(flags.output)
    print(flags.output)


if __name__ == "__main__":
    main()
