"""How fast one step of the environment is, beside the naive way and the browser's own floor.

    python benchmarks/env_speed.py [--pages 30] [--naive 3] [--rounds 5]

All are measured in turn in one run, with the same browser binary, on `web` pages at 640x480:

naive    what such environments do: each of a render and four readings of text blocks (reference
         and candidate, twice) starts Playwright and a new Chromium and waits for `networkidle`;
         nothing is scored
step     ours: the candidate is rendered, read and scored; the reference side was kept
floor    the browser's own time for the same candidate in the same tab: set the content, read the
         DOM once, take one screenshot, each when the one before is done; nothing is decoded
piped    the same three, sent together, as `step` sends them: no caller can be faster

A candidate is its reference with one line added, another one each time. Milliseconds are medians
over the pages, each of them the median of its rounds; CPU time is that of this process and of all
that it started, browser included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Page as Tab
from playwright.sync_api import sync_playwright
from tqdm import tqdm

from vclib.env.browser import Renderer
from vclib.env.dom import SNAPSHOT_REQUEST
from vclib.env.pages import Page, load_pages
from vclib.env.reward import Reference, score
from vclib.env.synth import DIFFICULTIES, SPLITS

SIZE = (640, 480)
IN_FLIGHT = 4
TARGETS = {"naive / step": 150, "step / floor": 1.6, "steps/s": 40, "CPU ms": 45}
READ_BLOCKS = """() => {
  const blocks = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    if (!text) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const { x, y, width, height } = range.getBoundingClientRect();
    const style = getComputedStyle(walker.currentNode.parentElement);
    blocks.push({ text, x, y, width, height, color: style.color });
  }
  return blocks;
}"""


@dataclass(frozen=True)
class Times:
    """Milliseconds on one page; naive: None where it was not measured."""

    difficulty: str
    step: float
    floor: float
    piped: float
    naive: float | None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=30, help="web pages, default 30")
    parser.add_argument("--naive", type=int, default=3, help="of them, steps the naive way")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement, default 5")
    options = parser.parse_args()
    pages = choose(options.pages)
    with Renderer(*SIZE) as renderer:
        references = [Reference(render) for render in renderer.render_many([p.html for p in pages])]
        print(f"{renderer.browser}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        measured = times(pages, references, renderer, options.naive, options.rounds)
        cpu = cpu_per_step(pages, references, renderer, options.rounds)
    with Renderer(*SIZE, concurrency=IN_FLIGHT) as renderer:
        rate = steps_per_second(pages, references, renderer, options.rounds)
    report(measured, cpu, rate)


def choose(count: int) -> list[Page]:
    """Pages of both splits and all difficulties in turn."""
    kinds = [(split, difficulty) for split in SPLITS for difficulty in DIFFICULTIES]
    web = load_pages("web")
    return [web.at(*kinds[i % len(kinds)], i // len(kinds)) for i in range(count)]


def candidate(page: Page, number: int) -> str:
    """The page with a line of its own, so that nothing is kept from the last time."""
    return page.html.replace("</body>", f"<p>Line {number}</p></body>")


def timed(call: Callable[..., object], *arguments: object) -> float:
    """Milliseconds that a call takes."""
    start = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - start) * 1000


def naive_step(page: Page, html: str, executable: str) -> None:
    """One render and four readings, each in a browser of its own."""
    in_new_browser(executable, html, lambda tab: tab.screenshot())
    for _ in range(2):
        for source in (page.html, html):
            in_new_browser(executable, source, lambda tab: tab.evaluate(READ_BLOCKS))


def in_new_browser(executable: str, html: str, use: Callable[[Tab], object]) -> None:
    """Start Playwright and a browser, load the page, use it, end both."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable)
        tab = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        tab.set_content(html, wait_until="networkidle")
        use(tab)
        browser.close()


def step(renderer: Renderer, reference: Reference, html: str) -> None:
    """Render, read and score a candidate."""
    score(reference, renderer.render(html))


def times(
    pages: Sequence[Page],
    references: Sequence[Reference],
    renderer: Renderer,
    naive: int,
    rounds: int,
) -> list[Times]:
    """Page by page, a step, the two floors and, for some, a naive step."""
    measured: list[Times] = []
    luck = np.random.default_rng(0)
    for page, reference in tqdm(list(zip(pages, references, strict=True)), desc="one at a time"):
        taken: dict[str, list[float]] = {"step": [], "floor": [], "piped": []}
        numbers = iter(range(1, 1 + 3 * rounds))
        for _ in range(rounds):
            # In another order each time: what comes after a step finds the caches cold.
            for what in luck.permutation(list(taken)).tolist():
                html = candidate(page, next(numbers))
                if what == "step":
                    taken[what].append(timed(step, renderer, reference, html))
                else:
                    taken[what].append(floor_time(renderer, html, piped=what == "piped"))
        # So many, spread evenly over the pages.
        slow = None
        if len(measured) * naive % len(pages) < naive:
            slow = timed(naive_step, page, candidate(page, 0), renderer.executable)
        measured.append(
            Times(page.difficulty, **{w: median(t) for w, t in taken.items()}, naive=slow)
        )
    return measured


def floor_time(renderer: Renderer, html: str, *, piped: bool) -> float:
    """Milliseconds of the three calls in the tab that the next render would use."""
    return renderer._call(_floor(renderer, html, piped), 60)


async def _floor(renderer: Renderer, html: str, piped: bool) -> float:
    held = await renderer._engine.free.get()
    assert held, "the tab is open: a render came before"
    _, tab = held
    start = time.perf_counter()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: tab.send("Page.setDocumentContent", {"frameId": tab.frame, "html": html}),
        lambda: tab.send("DOMSnapshot.captureSnapshot", SNAPSHOT_REQUEST),
        tab.picture,
    ]
    if piped:
        await asyncio.gather(*(call() for call in calls))
    else:
        for call in calls:
            await call()
    taken = (time.perf_counter() - start) * 1000
    renderer._engine.free.put_nowait(held)
    return taken


def cpu_per_step(
    pages: Sequence[Page], references: Sequence[Reference], renderer: Renderer, rounds: int
) -> float:
    """CPU milliseconds of a step, one at a time."""
    before = cpu_seconds()
    for number in tqdm(range(rounds), desc="CPU"):
        for page, reference in zip(pages, references, strict=True):
            step(renderer, reference, candidate(page, number))
    return (cpu_seconds() - before) * 1000 / (rounds * len(pages))


def cpu_seconds() -> float:
    """User and system time of this process and of all that it has running."""
    own = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in [own, *own.children(recursive=True)])


def steps_per_second(
    pages: Sequence[Page], references: Sequence[Reference], renderer: Renderer, rounds: int
) -> float:
    """Steps a second with IN_FLIGHT of them at once; the best of three goes."""
    work = [(p, r, n) for n in range(rounds) for p, r in zip(pages, references, strict=True)]

    def take(item: tuple[Page, Reference, int]) -> None:
        page, reference, number = item
        step(renderer, reference, candidate(page, number))

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(take, work[: 2 * IN_FLIGHT]))
        rates = []
        for _ in tqdm(range(3), desc=f"{IN_FLIGHT} in flight"):
            taken = timed(lambda: list(pool.map(take, work)))
            rates.append(len(work) * 1000 / taken)
    return max(rates)


def report(measured: Sequence[Times], cpu: float, rate: float) -> None:
    """Print the figures, each beside what it should be."""
    for difficulty in DIFFICULTIES:
        mine = [times for times in measured if times.difficulty == difficulty]
        ours, floor, piped = (
            median(getattr(times, name) for times in mine) for name in ("step", "floor", "piped")
        )
        print(f"{difficulty:7} step {ours:5.1f} ms   floor {floor:5.1f} ms   piped {piped:5.1f} ms")
    naive = [(times.naive, times.naive / times.step) for times in measured if times.naive]
    to_naive = median(ratio for _, ratio in naive)
    to_floor = median(times.step / times.floor for times in measured)
    to_piped = median(times.step / times.piped for times in measured)
    print(f"a naive step   {median(slow for slow, _ in naive):7.0f} ms")
    print(f"naive / step   {to_naive:7.0f}   at least {TARGETS['naive / step']}")
    print(f"step / floor   {to_floor:7.2f}   at most {TARGETS['step / floor']}")
    print(f"step / piped   {to_piped:7.2f}")
    print(f"steps/s        {rate:7.1f}   at least {TARGETS['steps/s']}, {IN_FLIGHT} in flight")
    print(f"CPU ms a step  {cpu:7.1f}   at most {TARGETS['CPU ms']}")


if __name__ == "__main__":
    main()
