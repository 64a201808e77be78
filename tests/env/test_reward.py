"""The laws of the reward, on pages that a real browser renders."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vclib.env import synth
from vclib.env.browser import Renderer
from vclib.env.reward import WEIGHTS, Breakdown, Reference, score
from vclib.errors import VclibError
from vclib.paths import DATA
from vclib.policy.prompts import WRITE

Judge = Callable[[str], Breakdown]

PAGE = (
    '<!doctype html><html><body style="margin:0;font:bold 20px/32px sans-serif;'
    'background:#fef3c7">\n'
    '<div style="background:#2563eb;color:#fff;height:48px">Gallery</div>\n'
    '<div style="background:#dc2626;color:#fff;height:32px">Orders</div>\n'
    '<div style="display:flex;height:64px">\n'
    '<div style="flex:1;background:#16a34a;color:#fff">Home</div>\n'
    '<div style="flex:1;background:#facc15;color:#111827">Cart</div>\n</div>\n</body></html>'
)
HALF = PAGE[: PAGE.index('<div style="display:flex')] + "</body></html>"
BLANK = "<!doctype html><html><body></body></html>"
WORDLESS = PAGE
for word in ("Gallery", "Orders", "Home", "Cart"):
    WORDLESS = WORDLESS.replace(word, "")


@pytest.fixture(scope="module")
def reference(renderer: Renderer) -> Reference:
    return Reference(renderer.render(PAGE))


@pytest.fixture(scope="module")
def judge(renderer: Renderer, reference: Reference) -> Judge:
    return lambda html: score(reference, renderer.render(html))


def part(breakdown: Breakdown, name: str) -> float:
    value = breakdown.parts[name]
    assert value is not None
    return value


def in_page(extra: str) -> str:
    return PAGE.replace("</body>", f"{extra}</body>")


def document(body: str, style: str = "margin:0") -> str:
    return f'<!doctype html><html><body style="{style}">{body}</body></html>'


SVG = (
    '<svg width="256" height="192" font-family="sans-serif" font-weight="bold" font-size="20" '
    'xmlns="http://www.w3.org/2000/svg">'
    '<rect width="256" height="192" fill="#fef3c7"/><rect width="256" height="48" fill="#2563eb"/>'
    '<rect y="48" width="256" height="32" fill="#dc2626"/>'
    '<rect y="80" width="128" height="64" fill="#16a34a"/>'
    '<rect x="128" y="80" width="128" height="64" fill="#facc15"/>'
    '<text y="23" fill="#fff">Gallery</text><text y="71" fill="#fff">Orders</text>'
    '<text y="103" fill="#fff">Home</text><text x="128" y="103" fill="#111827">Cart</text></svg>'
)
GRADIENT = (
    "linear-gradient(#2563eb 48px,#dc2626 48px 80px,transparent 80px),"
    "linear-gradient(90deg,#16a34a 50%,#facc15 50%) 0 80px/256px 64px no-repeat,#fef3c7"
)


@pytest.mark.parametrize("difficulty", synth.DIFFICULTIES)
def test_a_page_scored_against_itself_is_exactly_one(renderer: Renderer, difficulty: str) -> None:
    for index in range(6):
        html = synth.block_page("train", difficulty, index)
        first, second = renderer.render_many([html, html])
        breakdown = score(first, second)
        assert breakdown.total == 1.0
        assert set(breakdown.parts.values()) <= {1.0, None}


@pytest.mark.parametrize(
    "html",
    [
        BLANK,
        "",
        "no markup at all",
        WORDLESS,
        document(SVG),
        document("<p>Text</p>", f"background:{GRADIENT}"),
        in_page('<div style="height:3000px">tall</div>'),
        "<table><p>never <b>closed",
        document('<input placeholder="Name"><button>Send</button><progress></progress>'),
    ],
)
def test_an_odd_page_scored_against_itself_is_exactly_one(renderer: Renderer, html: str) -> None:
    render = renderer.render(html)
    assert score(render, render).total == 1.0


def test_the_web_pages_score_one_against_themselves_and_little_against_others() -> None:
    files = sorted((DATA / "pages" / "web").rglob("*.html"))[::3]
    with Renderer(640, 480) as renderer:
        renders = renderer.render_many([file.read_text() for file in files])
    references = [Reference(render) for render in renders]
    for i, reference in enumerate(references):
        totals = [score(reference, render).total for render in renders]
        assert totals[i] == 1.0
        assert max(totals[:i] + totals[i + 1 :]) < 0.35


PIECES = [
    PAGE, HALF, SVG, WRITE, "<div style='height:5000px'>", "<p>Gallery", "<", "&#0;", "\x00\ud800",
    "```html\n", "</body></html>", "<!doctype html>", "<div style='transform:scale(1e30)'>x</div>",
    "<b><table><tr><i>", "<style>*{position:fixed;width:1e9px}</style>", "\u202eabc", "😀",
    "<div style='background:#000;width:0.01px;height:0.01px'></div>", "<h1>" * 600, "word " * 500,
]  # fmt: skip


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=5), as_reference=st.booleans())
def test_every_score_is_finite_and_between_zero_and_one(
    renderer: Renderer, reference: Reference, pieces: list[str], as_reference: bool
) -> None:
    render = renderer.render("".join(pieces))
    if as_reference and render.error is None:
        breakdown = score(render, reference.render)
    else:
        breakdown = score(reference, render)
    numbers = [breakdown.total, breakdown.gate, *breakdown.parts.values()]
    for number in numbers:
        assert number is None or (math.isfinite(number) and 0 <= number <= 1)
    assert breakdown.parts.keys() == WEIGHTS.keys()
    json.dumps(breakdown.as_dict())


def test_a_render_error_is_zero_with_a_reason(renderer: Renderer, reference: Reference) -> None:
    render = renderer.render(PAGE + "<p>x" * 100_000)
    assert render.error
    breakdown = score(reference, render)
    assert breakdown.total == 0
    assert all(value == 0 for name, value in breakdown.parts.items() if name != "clip")
    assert render.error in str(breakdown.reason)


def test_a_reference_that_does_not_render_is_refused(renderer: Renderer) -> None:
    with pytest.raises(VclibError, match="did not render"):
        Reference(renderer.render("<p>x" * 100_000))


def test_renders_of_different_size_are_refused(reference: Reference) -> None:
    narrow = replace(reference.render, pixels=reference.render.pixels[:, :128])
    with pytest.raises(VclibError, match="same viewport"):
        score(reference, narrow)


HIDING = {
    "the colour of its ground": ("Orders", "Orders", "#dc2626;color:#fff", "#dc2626;color:#dc2626"),
    "nearly the colour of its ground": (
        "Orders", "Orders", "#dc2626;color:#fff", "#dc2626;color:#dd2828",
    ),
    "transparent": ("Orders", "Orders", "#dc2626;color:#fff", "#dc2626;color:transparent"),
}  # fmt: skip
WRAPPING = {
    "opacity": '<span style="opacity:0">Orders</span>',
    "visibility": '<span style="visibility:hidden">Orders</span>',
    "display": '<span style="display:none">Orders</span>',
    "tiny": '<span style="font-size:1px">Orders</span>',
    "clipped": '<div style="height:0;overflow:hidden">Orders</div>',
    "clip path": '<div style="clip-path:inset(50%)">Orders</div>',
    "off the page": '<div style="position:absolute;left:-999px">Orders</div>',
    "indented away": '<div style="text-indent:-999px">Orders</div>',
    "below the fold": '<div style="position:absolute;top:400px">Orders</div>',
    "scaled away": '<div style="transform:scale(0)">Orders</div>',
    "covered": 'Orders<div style="position:absolute;left:0;top:48px;width:256px;height:32px;'
    'background:#dc2626"></div>',
    "covered, unclickable": 'Orders<div style="position:absolute;left:0;top:48px;width:256px;'
    'height:32px;background:#dc2626;pointer-events:none"></div>',
    "in a drawing": '<svg width="99" height="32"><text y="23" fill="#fff">Orders</text></svg>',
    "in a comment": "<!-- Orders -->",
    "in an attribute": '<i title="Orders"></i>',
}


@pytest.mark.parametrize("way", [*HIDING, *WRAPPING])
def test_invisible_text_counts_as_absent(judge: Judge, way: str) -> None:
    if way in HIDING:
        word, new, style, hidden = HIDING[way]
        html = PAGE.replace(word, new).replace(style, hidden)
    else:
        html = PAGE.replace("Orders", WRAPPING[way])
    hidden_away, absent = judge(html), judge(PAGE.replace("Orders", ""))
    assert hidden_away.parts["text_block"] == pytest.approx(absent.parts["text_block"])
    assert hidden_away.total < absent.total + 0.02


JUNK = {
    "a word": '<div style="color:#111">Extra</div>',
    "a box": '<div style="background:#7c3aed;height:32px"></div>',
    "a small box": '<div style="background:#7c3aed;height:8px;width:40px"></div>',
    "a hidden element": '<div style="display:none"></div>',
    "hidden text": '<div style="display:none">Gallery Orders</div>',
    "text below the fold": '<div style="position:absolute;top:300px">Extra</div>',
    "height": '<div style="height:200px"></div>',
    "a repeated row": '<div style="background:#2563eb;color:#fff;height:48px">Gallery</div>',
    "a picture": '<svg width="40" height="40"><circle r="40" fill="red"/></svg>',
    "a broken tag": "<div <p>",
}


@pytest.mark.parametrize("junk", JUNK)
def test_added_junk_lowers_the_score(judge: Judge, junk: str) -> None:
    assert judge(in_page(JUNK[junk])).total < 1


def test_more_junk_lowers_it_more(judge: Judge) -> None:
    totals = [judge(in_page('<p style="margin:0">Extra words</p>' * n)).total for n in range(4)]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == 4


def test_talk_and_fences_around_the_document_lower_the_score(judge: Judge) -> None:
    for answer in (f"```html\n{PAGE}\n```", f"Here is the page:\n{PAGE}", f"{PAGE}\nDone."):
        breakdown = judge(answer)
        assert part(breakdown, "format") <= 0.5
        assert breakdown.total < 0.95


@pytest.mark.parametrize("html", ["", BLANK, document("", "background:#fef3c7")])
def test_an_empty_render_of_a_page_is_zero_and_says_why(judge: Judge, html: str) -> None:
    breakdown = judge(html)
    assert breakdown.total == breakdown.gate == 0
    assert "gate" in str(breakdown.reason)
    assert part(breakdown, "ssim") < 0.15


def test_an_empty_page_is_copied_by_an_empty_page_alone(renderer: Renderer) -> None:
    empty, other, full = renderer.render_many([BLANK, BLANK.replace("></b", "> </b"), PAGE])
    assert score(empty, other).total == 1
    assert score(empty, full).total < 0.2


def test_a_sub_reward_that_cannot_be_computed_is_zero_with_a_reason(
    renderer: Renderer, reference: Reference
) -> None:
    stuffed = PAGE.replace("<div ", "<div " + " ".join(f"x{i}" for i in range(3_000)) + " ", 1)
    breakdown = score(reference, renderer.render(stuffed))
    assert breakdown.parts["validity"] == breakdown.parts["structural"] == 0
    assert "attributes" in str(breakdown.reason)


def test_each_fault_of_a_page_costs_a_clear_amount(judge: Judge) -> None:
    faults = {
        "a colour": PAGE.replace("#16a34a", "#f472b6"),
        "a word": PAGE.replace("Home", "Docs"),
        "a height": PAGE.replace("height:64px", "height:48px"),
        "a block": PAGE.replace(
            '<div style="background:#dc2626;color:#fff;height:32px">Orders</div>\n', ""
        ),
        "the ground": PAGE.replace("#fef3c7", "#ffffff"),
        "the doctype": PAGE.replace("<!doctype html>", ""),
    }
    cost = {fault: 1 - judge(html).total for fault, html in faults.items()}
    assert 0.03 < cost["a colour"] < 0.15
    assert 0.05 < cost["a word"] < 0.2
    assert 0.02 < cost["a height"] < 0.2
    assert 0.15 < cost["a block"] < 0.45
    assert 0.005 < cost["the ground"] < 0.1
    assert 0.01 < cost["the doctype"] < 0.05


def test_better_copies_score_higher(judge: Judge) -> None:
    grey = WORDLESS
    for color in ("#2563eb", "#dc2626", "#16a34a", "#facc15"):
        grey = grey.replace(color, "#888888")
    copies = [BLANK, grey, WORDLESS, HALF, PAGE.replace("Home", "Docs"), PAGE]
    totals = [judge(html).total for html in copies]
    assert totals == sorted(totals)
    assert all(b - a > 0.02 for a, b in pairwise(totals))


def test_the_ladder_of_blocks_pages(renderer: Renderer) -> None:
    rng = random.Random(0)
    pages = [synth.draw_page("train", "medium", i) for i in range(12)]
    others = [synth.draw_page("train", "medium", 100 + i) for i in range(12)]
    halves = []
    for page in pages:
        spoilt = set(rng.sample(range(len(page.rows)), len(page.rows) // 2))
        halves.append(replace(page, rows=tuple(
            replace(row, cells=tuple(synth.random_cell(len(row.cells), rng) for _ in row.cells))
            if i in spoilt else row
            for i, row in enumerate(page.rows)
        )))  # fmt: skip
    renders = renderer.render_many([synth.to_html(p) for p in pages + others + halves])
    references = [Reference(render) for render in renders[:12]]
    other, half = (
        float(np.mean([
            score(r, c).total for r, c in zip(references, renders[at : at + 12], strict=True)
        ]))
        for at in (12, 24)
    )  # fmt: skip
    assert 0.15 < other < 0.35
    assert 0.5 < half < 0.8


def test_moving_a_block_further_costs_more(renderer: Renderer) -> None:
    def page(x: int) -> str:
        style = f"position:absolute;top:40px;left:{x}px;width:80px;height:40px;background:#2563eb"
        return document(f'<div style="{style};color:#fff">Home</div>')

    reference, *moved = renderer.render_many([page(x) for x in (0, 0, 10, 30, 60, 120)])
    totals = [score(reference, render).total for render in moved]
    assert totals[0] == 1
    assert totals == sorted(totals, reverse=True)


def test_a_colour_further_off_costs_more(judge: Judge) -> None:
    colors = ("#16a34a", "#1aa84e", "#30c060", "#80d080", "#2563eb")
    parts = [part(judge(PAGE.replace("#16a34a", color)), "color") for color in colors]
    assert parts[0] == 1
    assert parts == sorted(parts, reverse=True)
