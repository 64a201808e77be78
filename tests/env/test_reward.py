"""The laws of the reward, on pages that a real browser renders."""

from __future__ import annotations

import base64
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vclib.env import synth
from vclib.env.browser import Render, Renderer
from vclib.env.clip import load_clip
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


def data_url(pixels: np.ndarray) -> str:
    png = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1]
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"


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
FOREIGN = PAGE[PAGE.index("<div") : PAGE.index("</body>")]
GRADIENT = (
    "linear-gradient(#2563eb 48px,#dc2626 48px 80px,transparent 80px),"
    "linear-gradient(90deg,#16a34a 50%,#facc15 50%) 0 80px/256px 64px no-repeat,#fef3c7"
)


def gallery(reference: Render) -> dict[str, str]:
    """Pages that look for points without copying the page as a page."""
    mosaic = "".join(
        f'<i style="float:left;width:16px;height:16px;background:rgb{tuple(map(int, color))}"></i>'
        for color in reference.pixels[8::16, 8::16].reshape(-1, 3)
    )
    shadows = ",".join(
        f"{x + 1}px {y + 1}px 0 4px rgb{tuple(map(int, reference.pixels[y, x]))}"
        for y in range(4, 192, 8)
        for x in range(4, 256, 8)
    )
    svg_url = base64.b64encode(SVG.encode()).decode()
    overlay = "position:fixed;left:0;top:0;width:256px;height:192px"
    image = f'<img style="{overlay}" src="{data_url(reference.pixels)}">'
    return {
        "blank": BLANK,
        "empty": "",
        "ground only": document("", "background:#fef3c7"),
        "one flat colour": document("", "background:#2563eb"),
        "white-washed": in_page(f'<div style="{overlay};background:#fff"></div>'),
        "white-washed, unclickable": in_page(
            f'<div style="{overlay};background:#fff;pointer-events:none"></div>'
        ),
        "washed out": in_page(f'<div style="{overlay};background:rgba(255,255,255,.97)"></div>'),
        "faded": PAGE.replace("margin:0", "margin:0;opacity:.02"),
        "one image": document(f'<img src="{data_url(reference.pixels)}">'),
        "one image as background": document(
            "", f"margin:0;background:url({data_url(reference.pixels)})"
        ),
        "one image with hidden words": document(
            f'<p style="opacity:0">Gallery Orders Home Cart</p>{image}'
        ),
        "svg copy": document(SVG),
        "svg image": document(f'<img src="data:image/svg+xml;base64,{svg_url}">'),
        "page inside svg": document(
            '<svg width="256" height="192"><foreignObject width="256" height="192">'
            f"{FOREIGN}</foreignObject></svg>",
            "margin:0;font:bold 20px/32px sans-serif;background:#fef3c7",
        ),
        "gradient copy": document("", f"margin:0;background:{GRADIENT}"),
        "shadow copy": document(
            f'<div style="position:absolute;left:-1px;top:-1px;width:1px;height:1px;'
            f'box-shadow:{shadows}"></div>'
        ),
        "mosaic of boxes": document(mosaic),
        "giant page": in_page('<div style="height:6000px">x</div>'),
        "too giant page": in_page('<div style="height:60000px">x</div>'),
        "prompt echo": document(WRITE),
        "prompt echo as text": WRITE,
        "all the words of the set": document(" ".join(synth.WORDS) * 3),
        "the words in one line": document("Gallery Orders Home Cart", "color:#000"),
    }


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


def test_a_hacked_page_scores_below_an_honest_half(
    judge: Judge, renderer: Renderer, reference: Reference
) -> None:
    half = judge(HALF)
    assert half.gate == 1
    pages = gallery(reference.render)
    renders = renderer.render_many(list(pages.values()))
    totals = {name: score(reference, r).total for name, r in zip(pages, renders, strict=True)}
    assert {name: total for name, total in totals.items() if total >= 0.75 * half.total} == {}


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


def test_clip_is_absent_unless_asked_for_and_its_weight_is_shared_out(
    renderer: Renderer, reference: Reference
) -> None:
    def coarse_colors(pixels: np.ndarray) -> np.ndarray:
        return cv2.resize(pixels, (8, 6), interpolation=cv2.INTER_AREA).ravel() - 128.0

    half = renderer.render(HALF)
    without, having = score(reference, half), score(reference, half, clip=coarse_colors)
    assert without.parts["clip"] is None
    parts = {name: value for name, value in without.parts.items() if value is not None}
    weights = sum(WEIGHTS[name] for name in parts)
    mean = sum(WEIGHTS[name] * value for name, value in parts.items()) / weights
    assert without.total == pytest.approx(mean * without.gate, abs=1e-5)
    assert 0 < part(having, "clip") < 1
    assert score(reference, reference.render, clip=coarse_colors).total == 1
    blank = renderer.render(document("", "background:#fef3c7"))
    assert score(reference, blank, clip=coarse_colors).parts["clip"] == 0


def test_clip_weights_are_taken_from_this_machine_or_not_at_all(
    renderer: Renderer, reference: Reference, tmp_path: Path
) -> None:
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModelWithProjection

    assert load_clip(str(tmp_path)) is None
    config = CLIPVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    CLIPVisionModelWithProjection(config).save_pretrained(tmp_path)
    CLIPImageProcessor().save_pretrained(tmp_path)
    clip = load_clip(str(tmp_path))
    assert clip is not None
    assert score(reference, reference.render, clip=clip).parts["clip"] == 1
    assert part(score(reference, renderer.render(HALF), clip=clip), "clip") < 1


def test_the_environment_side_runs_without_torch() -> None:
    code = "import sys, vclib.env.reward, vclib.env.clip; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
