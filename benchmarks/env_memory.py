"""Whether the memory of the environment and its browser stays flat over many steps.

    python benchmarks/env_memory.py [--steps 10000] [--recycle 2000]

Each step renders, reads and scores another `web` page with a line of its own. Printed every so
often: memory that this process and the browser have to themselves (USS), in MB; at the end the
growth for a thousand steps, from a straight line through all but the first fifth.
"""

from __future__ import annotations

import argparse

import numpy as np
import psutil
from env_speed import candidate, choose
from tqdm import tqdm

from vclib.env.browser import Renderer
from vclib.env.pages import WEB_VIEWPORT
from vclib.env.reward import Reference, score

MEASUREMENTS = 50


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--recycle", type=int, default=2_000, help="steps until a fresh browser")
    options = parser.parse_args()
    pages = choose(60)
    every = max(1, options.steps // MEASUREMENTS)
    rows: list[tuple[int, float, float]] = []
    with Renderer(*WEB_VIEWPORT, recycle_after=options.recycle) as renderer:
        print(f"{renderer.browser}; MB of this process and of the browser")
        references = [Reference(render) for render in renderer.render_many([p.html for p in pages])]
        for step in tqdm(range(1, options.steps + 1)):
            place = step % len(pages)
            html = candidate(pages[place], step)
            score(references[place], renderer.render(html))
            if step % every == 0:
                rows.append((step, *megabytes(renderer)))
                tqdm.write("{:7}  {:7.1f}  {:7.1f}".format(*rows[-1]))
    steps, own, browser = np.array(rows[len(rows) // 5 :]).T
    for name, taken in (("this process", own), ("the browser", browser)):
        growth = np.polyfit(steps / 1000, taken, 1)[0]
        print(
            f"{name}: {taken.min():.0f} to {taken.max():.0f} MB, {growth:+.2f} MB per 1,000 steps"
        )


def megabytes(renderer: Renderer) -> tuple[float, float]:
    """MB that this process, and that the browser's processes, have to themselves."""
    chromium = renderer._engine.chromium
    assert chromium, "a render came before"
    own, browser = psutil.Process(), psutil.Process(chromium.group)
    inside = [browser, *browser.children(recursive=True)]
    mb = [process.memory_full_info().uss / 2**20 for process in (own, *inside)]
    return mb[0], sum(mb[1:])


if __name__ == "__main__":
    main()
