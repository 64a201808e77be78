"""The reward falls as copies get worse, and stands where only the source is another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import reward_order
from rewrites import rewrites

from vclib.env import synth
from vclib.env.browser import Renderer
from vclib.env.ladder import faults, ladder
from vclib.env.pages import load_pages
from vclib.env.restyle import declarations
from vclib.env.reward import score
from vclib.paths import DATA

WEB = sorted((DATA / "pages" / "web").rglob("*.html"))
SOME = {
    "web": ("web/train/easy/log-in", "web/heldout/medium/product", "web/train/hard/dashboard"),
    "blocks": ("blocks/train/easy/1", "blocks/heldout/medium/2", "blocks/train/hard/3"),
}


def measured(name: str, ids: tuple[str, ...], renderer: Renderer) -> list[reward_order.Copies]:
    pages = load_pages(name)
    return [reward_order.measure(pages.page(page_id), renderer) for page_id in ids]


@pytest.fixture(scope="module")
def some(renderer: Renderer, web_renderer: Renderer) -> list[reward_order.Copies]:
    return measured("web", SOME["web"], web_renderer) + measured("blocks", SOME["blocks"], renderer)


def test_worse_copies_score_lower(some: list[reward_order.Copies]) -> None:
    figures = reward_order.summary(some)
    assert figures["pairs"] >= reward_order.BOUNDS["pairs"]
    assert figures["pooled"] >= reward_order.BOUNDS["pooled"]
    assert figures["worst"] >= reward_order.BOUNDS["worst"]


def test_other_sources_of_the_same_looks_score_as_the_page_does(
    some: list[reward_order.Copies],
) -> None:
    assert reward_order.summary(some)["kept"] >= reward_order.BOUNDS["kept"]


def test_comparing_styles_without_rendering_does_not_pass(some: list[reward_order.Copies]) -> None:
    alone = reward_order.summary(some, styles=True)
    assert alone["pairs"] < 0.8
    assert alone["above"] < 0.8
    assert reward_order.summary(some)["above"] == 1


@pytest.mark.long
@pytest.mark.parametrize("split", synth.SPLITS)
@pytest.mark.parametrize("name", ["web", "blocks"])
def test_all_pages_keep_the_order(name: str, split: str) -> None:
    pages = load_pages(name)
    ids = tuple(page.id for page in reward_order.pages_of(pages, split, 10))
    with Renderer(*pages.viewport, timeout=15) as renderer:
        figures = reward_order.summary(measured(name, ids, renderer))
    for key, least in reward_order.BOUNDS.items():
        assert figures[key] >= least, key


def test_every_web_page_scored_against_itself_is_exactly_one(web_renderer: Renderer) -> None:
    htmls = [file.read_text("utf-8") for file in WEB]
    assert len(htmls) >= 12
    first, second = web_renderer.render_many(htmls), web_renderer.render_many(htmls)
    breakdowns = [score(*pair) for pair in zip(first, second, strict=True)]
    assert {b.total for b in breakdowns} == {b.gate for b in breakdowns} == {1.0}
    assert all(set(b.parts.values()) <= {1.0, None} for b in breakdowns)


def as_tables(page: synth.BlockPage) -> str:
    rows = "".join(
        f'<table style="width:100%;height:{row.height}px;border-spacing:0;table-layout:fixed"><tr>'
        + "".join(
            f'<td style="padding:0;text-indent:8px;vertical-align:top;background:{cell.background};'
            f'color:{cell.with_ink()}">{cell.words}</td>'
            for cell in row.cells
        )
        + "</tr></table>"
        for row in page.rows
    )
    return blocks_document(page, rows)


def as_grids(page: synth.BlockPage) -> str:
    rows = "".join(
        f'<section style="display:grid;grid-auto-flow:column;grid-auto-columns:1fr;'
        f'height:{row.height}px">'
        + "".join(
            f'<p style="margin:0;background:{cell.background};color:{cell.with_ink()}">'
            f"<span>{cell.words}</span></p>"
            for cell in row.cells
        )
        + "</section>"
        for row in page.rows
    )
    return blocks_document(page, rows)


def as_placed(page: synth.BlockPage) -> str:
    cells, top = [], 0
    for row in page.rows:
        width = synth.VIEWPORT[0] / len(row.cells)
        cells += [
            f'<b style="position:absolute;top:{top}px;left:{n * width}px;width:{width}px;'
            f"height:{row.height}px;background:{cell.background};color:{cell.with_ink()}"
            f'">{cell.words}</b>'
            for n, cell in enumerate(row.cells)
        ]
        top += row.height
    return blocks_document(page, "".join(reversed(cells)))


def blocks_document(page: synth.BlockPage, body: str) -> str:
    style = "body{margin:0;font:bold 20px/32px sans-serif;text-indent:8px}"
    return (
        f"<!doctype html><html><head><style>{style}html{{background:{page.ground}}}</style></head>"
        f"<body>{body}</body></html>"
    )


@pytest.mark.parametrize("write", [as_tables, as_grids, as_placed])
@pytest.mark.parametrize("difficulty", synth.DIFFICULTIES)
def test_tables_grids_and_placed_blocks_score_as_the_flexible_rows_that_they_look_like(
    renderer: Renderer, write: Callable[[synth.BlockPage], str], difficulty: str
) -> None:
    page = synth.draw_page("train", difficulty, 7)
    flexible, other = renderer.render_many([synth.to_html(page), write(page)])
    for reference, candidate in ((flexible, other), (other, flexible)):
        parts = score(reference, candidate).parts
        kept = {name: part for name, part in parts.items() if name != "structural"}
        assert min(part for part in kept.values() if part is not None) >= 0.98, kept


SMALL = {
    "a nudge": "body{translate:1px 1px}",
    "a shade": "body{filter:brightness(.97)}",
    "a little more room": "*{letter-spacing:.1px}",
    "a little larger": "body{zoom:1.01}",
}


@pytest.mark.parametrize("change", SMALL)
def test_small_changes_cost_little_whichever_page_is_the_reference(
    web_renderer: Renderer, change: str
) -> None:
    html = (DATA / "pages/web/train/medium/pricing.html").read_text()
    changed = html.replace("</head>", f"<style>{SMALL[change]}</style></head>")
    page, near = web_renderer.render_many([html, changed])
    there, back = score(page, near).total, score(near, page).total
    assert 0.9 < there < 1
    assert 0.9 < back < 1
    assert abs(there - back) < 0.02


@pytest.mark.parametrize("html", [WEB[0].read_text("utf-8"), synth.block_page("train", "hard", 0)])
def test_a_late_sheet_leaves_the_source_as_it_is(html: str) -> None:
    for copy in list(ladder(html, late=True).values())[1:]:
        before, _, rest = copy.rpartition("<style>")
        assert before + rest.partition("</style>")[2] == html


def test_a_change_by_a_late_sheet_looks_like_the_same_change_in_the_source(
    web_renderer: Renderer,
) -> None:
    html = (DATA / "pages/web/train/easy/log-in.html").read_text()
    for name, copy in ladder(html).items():
        late = ladder(html, late=True)[name]
        a, b = web_renderer.render_many([copy, late])
        kept = {part: grade for part, grade in score(a, b).parts.items() if part != "structural"}
        assert min(grade for grade in kept.values() if grade is not None) > 0.95, (name, kept)


def test_each_rung_keeps_fewer_declarations_than_the_one_above() -> None:
    html = synth.block_page("train", "hard", 0)
    counts = [len(list(declarations(copy))) for copy in ladder(html).values()]
    assert counts[:3] == [counts[0]] * 3
    assert counts[2] > counts[3] > counts[4] > counts[5] > counts[6] == 0


def test_faults_and_rewrites_are_of_the_page_and_differ_from_it() -> None:
    for html in (WEB[0].read_text("utf-8"), synth.block_page("train", "hard", 0)):
        for chain in faults(html).values():
            assert chain[0] == html
            assert len(set(chain)) == len(chain)
        assert html not in rewrites(html).values()
