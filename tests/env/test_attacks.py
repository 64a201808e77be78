"""The hacking gallery: no attack is worth as much as an honest half of the page."""

from __future__ import annotations

import pytest

from vclib.env.attacks import load_attacks
from vclib.env.browser import Render, Renderer
from vclib.env.ladder import halves
from vclib.env.pages import load_pages
from vclib.env.reward import Breakdown, Reference, score
from vclib.env.synth import DIFFICULTIES, SPLITS

ATTACKS = load_attacks()
SOME = (
    "web/train/easy/log-in",
    "web/heldout/medium/product",
    "web/train/hard/kanban",
    "blocks/heldout/easy/1",
    "blocks/train/medium/2",
    "blocks/heldout/hard/3",
)


def unbeaten(page_id: str, renderer: Renderer) -> dict[str, Breakdown]:
    """Attacks on a page that score as much as half of it, or do not show why they score less."""
    reference = renderer.render(load_pages(page_id.partition("/")[0]).page(page_id).html)
    return failures(reference, renderer)


def failures(reference: Render, renderer: Renderer) -> dict[str, Breakdown]:
    side = Reference(reference)
    honest = max(score(side, h).total for h in renderer.render_many(halves(reference.html)))
    assert honest > 0.3
    renders = renderer.render_many([attack.against(reference) for attack in ATTACKS])
    scores = {a.id: score(side, render) for a, render in zip(ATTACKS, renders, strict=True)}
    return {name: seen for name, seen in scores.items() if seen.total >= honest or not shows(seen)}


def shows(seen: Breakdown) -> bool:
    """Whether a breakdown says why: a reason, a gate not open, or a part of weight missing."""
    parts = [seen.parts[name] for name in ("text_block", "position", "color", "ssim")]
    return bool(seen.reason) or seen.gate < 1 or min(p for p in parts if p is not None) < 0.7


def test_the_gallery_holds_many_attacks_each_with_its_own_name() -> None:
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS) >= 30
    assert all(attack.tries for attack in ATTACKS)


@pytest.mark.parametrize("page_id", SOME)
def test_every_attack_scores_below_an_honest_half(
    renderer: Renderer, web_renderer: Renderer, page_id: str
) -> None:
    assert unbeaten(page_id, web_renderer if page_id.startswith("web") else renderer) == {}


@pytest.mark.long
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("name", ["web", "blocks"])
def test_every_attack_on_every_page_scores_below_an_honest_half(
    name: str, difficulty: str, split: str
) -> None:
    pages = load_pages(name)
    with Renderer(*pages.viewport, timeout=15) as renderer:
        for index in range(10):
            page = pages.at(split, difficulty, index)
            assert unbeaten(page.id, renderer) == {}, page.id
