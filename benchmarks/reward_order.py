"""Whether the reward puts copies of a page in the order in which they were made worse.

    python benchmarks/reward_order.py [--pages web blocks] [--splits train heldout] [--count 10]

pairs: share of pairs of copies, one with all the damage of the other and more, that it orders.
pooled, worst: Spearman's correlation with the rungs of the ladder, over all pages and on the worst.
kept: the lowest part of the reward, `structural` aside, of a page written otherwise with the same
looks; and the share of pairs in which such a page stands above one with wrong colours.
Beside the reward stands one that compares declarations of style and renders nothing.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rewrites import rewrites
from scipy.stats import spearmanr
from tqdm import tqdm

from vclib.env.browser import Renderer
from vclib.env.ladder import faults, ladder
from vclib.env.pages import Page, PageSet, load_pages
from vclib.env.restyle import channels, declarations
from vclib.env.reward import Breakdown, Reference, score
from vclib.env.synth import DIFFICULTIES, SPLITS

LADDERS = ("ladder", "late ladder")
BOUNDS = {"pairs": 0.97, "pooled": 0.97, "worst": 0.90, "kept": 0.98}


@dataclass
class Copies:
    """One page and its copies: chains of scores, best first, and those with the looks kept."""

    page_id: str
    chains: dict[str, list[float]] = field(default_factory=dict)
    kept: dict[str, Breakdown] = field(default_factory=dict)
    style_chains: dict[str, list[float]] = field(default_factory=dict)
    style_kept: dict[str, float] = field(default_factory=dict)


def chains_of(html: str) -> dict[str, list[str]]:
    """All chains of worse and worse copies of a page, which begin with the page itself."""
    makings = {name: list(ladder(html, late=name == "late ladder").values()) for name in LADDERS}
    return makings | faults(html)


def measure(page: Page, renderer: Renderer) -> Copies:
    """Scores of all copies of a page, by the reward and by its styles alone."""
    reference, copies = Reference(renderer.render(page.html)), Copies(page.id)
    for name, htmls in chains_of(page.html).items():
        renders = renderer.render_many(htmls)
        copies.chains[name] = [score(reference, render).total for render in renders]
        copies.style_chains[name] = [style_likeness(page.html, html) for html in htmls]
    for name, html in rewrites(page.html).items():
        copies.kept[name] = score(reference, renderer.render(html))
        copies.style_kept[name] = style_likeness(page.html, html)
    return copies


def style_likeness(reference: str, candidate: str) -> float:
    """Dice coefficient of two pages' declarations; colours agree as far as they are close."""
    ours, theirs = _by_name(reference), _by_name(candidate)
    total = sum(map(len, ours.values())) + sum(map(len, theirs.values()))
    shared = sum(
        _agreement(a, b)
        for name in ours.keys() & theirs.keys()
        for a, b in zip(ours[name], theirs[name], strict=False)
    )
    return 2 * shared / total if total else 1.0


def _by_name(html: str) -> dict[str, list[str]]:
    found = defaultdict(list)
    for declaration in declarations(html):
        found[declaration.name].append(declaration.value)
    return found


def _agreement(a: str, b: str) -> float:
    first, second = channels(a), channels(b)
    if a == b or not first or len(first) != len(second):
        return float(a == b)
    return 1 - float(np.abs(np.subtract(first, second)).mean()) / 255


def ordered(chain: list[float]) -> Iterator[bool]:
    """For each pair of a chain, whether the copy with less damage scores higher."""
    for worse in range(len(chain)):
        yield from (chain[better] > chain[worse] for better in range(worse))


def summary(all_copies: list[Copies], *, styles: bool = False) -> dict[str, float]:
    """The figures of the heading, of the reward or of the comparison of styles."""
    pairs, above, rungs, scores, worst = [], [], [], [], 1.0
    for copies in all_copies:
        chains = copies.style_chains if styles else copies.chains
        kept = {name: seen.total for name, seen in copies.kept.items()}
        kept = copies.style_kept if styles else kept
        for name, chain in chains.items():
            pairs += ordered(chain)
            if name in LADDERS:
                steps = range(len(chain))
                rungs += steps
                scores += chain
                worst = min(worst, float(spearmanr(steps, np.negative(chain)).statistic))
                above += [value > chain[2] for value in kept.values()]
    figures = {
        "pairs": float(np.mean(pairs)),
        "pooled": float(spearmanr(rungs, np.negative(scores)).statistic),
        "worst": worst,
        "above": float(np.mean(above)),
    }
    if not styles:
        figures["kept"] = min(
            part
            for copies in all_copies
            for seen in copies.kept.values()
            for name, part in seen.parts.items()
            if part is not None and name != "structural"
        )
    return figures


def faulty(all_copies: list[Copies]) -> Counter[str]:
    """Kinds of chains, with the number of pairs that the reward puts in the wrong order."""
    wrong = Counter()
    for copies in all_copies:
        for name, chain in copies.chains.items():
            wrong[name] += sum(not right for right in ordered(chain))
    return +wrong


def pages_of(pages: PageSet, split: str, count: int) -> list[Page]:
    """`count` pages of each difficulty, or all if there are fewer."""
    found = {
        page.id: page
        for difficulty in DIFFICULTIES
        for page in (pages.at(split, difficulty, i) for i in range(count))
    }
    return list(found.values())


def main() -> None:
    """Measure, print, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", nargs="+", default=["web", "blocks"])
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=SPLITS)
    parser.add_argument("--count", type=int, default=10, help="pages per difficulty, default 10")
    parser.add_argument("--output", help="write all scores to this JSON file")
    options = parser.parse_args()
    written: dict[str, list[dict[str, object]]] = {}
    print(f"{'':24}{'pairs':>8}{'pooled':>8}{'worst':>8}{'above':>8}{'kept':>8}")
    for name in options.pages:
        pages = load_pages(name)
        with Renderer(*pages.viewport) as renderer:
            for split in options.splits:
                chosen = pages_of(pages, split, options.count)
                progress = tqdm(chosen, desc=f"{name} {split}", leave=False)
                measured = [measure(page, renderer) for page in progress]
                report(f"{name} {split} ({len(chosen)})", measured)
                written[f"{name}/{split}"] = [_plain(copies) for copies in measured]
    bounds = "".join(f"{BOUNDS.get(key, 0) or '':>8}" for key in ("pairs", "pooled", "worst"))
    print(f"{'at least':24}{bounds}{'':8}{BOUNDS['kept']:8}")
    if options.output:
        Path(options.output).write_text(json.dumps(written, indent=1) + "\n")


def report(title: str, measured: list[Copies]) -> None:
    """One line for the reward, one for styles alone, one for what went wrong."""
    for label, figures in (
        (title, summary(measured)),
        ("  styles alone", summary(measured, styles=True)),
    ):
        print(f"{label:24}" + "".join(f"{value:8.3f}" for value in figures.values()))
    wrong = ", ".join(f"{name} {count}" for name, count in faulty(measured).most_common())
    print(f"  wrong pairs: {wrong or 'none'}")


def _plain(copies: Copies) -> dict[str, object]:
    kept = {name: seen.as_dict() for name, seen in copies.kept.items()}
    return {"page": copies.page_id, "chains": copies.chains, "kept": kept}


if __name__ == "__main__":
    main()
