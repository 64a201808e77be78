"""The renderer draws the same pixels every time, says what can be seen, and outlives bad pages."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vclib.env.browser import BrowserMissing, Render, Renderer, decoded, find_chromium
from vclib.env.sanitize import SafePage
from vclib.errors import VclibError

HONEST = """<!doctype html><html><head><style>
body { margin: 0; font-family: sans-serif; background: #eef }
header { background: #246; color: #fff; padding: 8px }
p { margin: 8px } .card { border: 2px solid #c00; margin: 8px; padding: 4px }
</style></head><body><header>Harbour News</header>
<p>Ferries run <b>late</b> today because of fog over the sound</p>
<div class="card">Tickets</div><button>Buy</button> <input value="Name">
</body></html>"""
# The use elements of an SVG double thirty times: no browser can lay this out.
ENDLESS = (
    "<svg><defs><g id=a0><rect width=1 height=1 /></g>"
    + "".join(f"<g id=a{i + 1}><use href=#a{i} /><use href=#a{i} /></g>" for i in range(30))
    + "</defs><use href=#a30 /></svg>"
)


def texts(render: Render) -> list[str]:
    assert render.error is None
    return [block.text for block in render.text_blocks]


def group_of(renderer: Renderer) -> int:
    chromium = renderer._engine.chromium
    assert chromium
    return chromium.group


def living(group: int) -> list[str]:
    """Command lines of the processes of a group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state not in "ZX":
                found.append(stat.with_name("cmdline").read_text())
        except (OSError, ValueError):
            pass
    return found


def wait_until_gone(group: int) -> None:
    deadline = time.monotonic() + 60
    while living(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not living(group)


# What an honest page shows


def test_text_boxes_and_ground_of_an_honest_page_are_read(renderer: Renderer) -> None:
    render = renderer.render(HONEST)
    assert texts(render) == [
        "Harbour News",
        "Ferries run late today because of fog over the sound",
        "Tickets",
        "Buy",
        "Name",
    ]
    title = render.text_blocks[0]
    assert (title.x, title.y, title.font_size) == (8, 8, 16)
    assert (title.color, title.background) == ((255, 255, 255), (34, 68, 102))
    assert render.background == (238, 238, 255)
    assert [box.color for box in render.boxes[:2]] == [(34, 68, 102), (204, 0, 0)]
    assert (render.boxes[0].width, render.boxes[0].height) == (256, 34)
    assert render.pixels.shape == (192, 256, 3) and render.pixels.dtype == np.uint8
    assert tuple(render.pixels[2, 2]) == (34, 68, 102)
    assert render.page_height == 192 and render.blocked == ()


VISIBLE = {
    "a heading in a gradient": "<h1 style='background:linear-gradient(90deg,#a00,#00a);"
    "-webkit-background-clip:text;color:transparent'>Seen words</h1>",
    "text on a gradient": "<p style='background:linear-gradient(#024,#046);color:#fff'>Seen words",
    "half transparent text": "<p style='opacity:.5'>Seen words",
    "grey text on white": "<p style='color:#999'>Seen words",
    "small print": "<p style='font-size:9px'>Seen words",
    "text moved by a transform": "<p style='transform:translate(30px,20px) scale(1.2)'>Seen words",
    "text above a positioned ground": "<div style='position:absolute;inset:0;background:#eee'>"
    "</div><p style='position:relative'>Seen words",
    "text under a light shade": "<p>Seen words</p>"
    "<div style='position:absolute;inset:0;background:rgba(0,0,0,.3)'></div>",
    "text that a fixed bar does not reach": "<p>Seen words</p>"
    "<div style='position:fixed;bottom:0;left:0;right:0;height:20px;background:#000'></div>",
    "text placed out of a box that clips": "<div style='overflow:hidden;height:1px'>"
    "<p style='position:absolute;top:9px'>Seen words</p></div>",
    "text in a table": "<table border=1><tr><td>Seen words</table>",
    "text from a style sheet": "<style>p::before{content:'Seen words'}</style><p></p>",
    "the value of a field": "<input value='Seen words'>",
    "the hint of a field": "<input placeholder='Seen words'>",
    "the label of a button": "<input type=submit value='Seen words'>",
    "the chosen option": "<select><option>Other<option selected>Seen words</select>",
    "text of an area": "<textarea>Seen words</textarea>",
    "text without script": "<noscript>Seen words</noscript>",
    "text after an unclosed comment's end": "<!-- a -->Seen words",
    "text in a fixed box that scrolls": "<div style='height:60px;overflow:auto'>Seen words</div>",
    "right to left order": "<p dir=rtl>Seen words</p>",
    "bold and links in one line": "<p>Se<b>en</b> <a href=#>words</a></p>",
    "words on two lines": "<p>Seen<br>words</p>",
}


def test_honest_text_of_every_kind_is_found(renderer: Renderer) -> None:
    renders = renderer.render_many([f"<!doctype html><body>{html}" for html in VISIBLE.values()])
    found = {name: texts(render) for name, render in zip(VISIBLE, renders, strict=True)}
    assert found == {name: ["Seen words"] for name in VISIBLE}


INVISIBLE = {
    "not displayed": "<p style='display:none'>Hidden",
    "hidden attribute": "<p hidden>Hidden",
    "visibility hidden": "<p style='visibility:hidden'>Hidden",
    "opacity 0 of an ancestor": "<div style='opacity:0'><section><p>Hidden</section></div>",
    "transparent colour": "<p style='color:transparent'>Hidden",
    "nearly transparent colour": "<p style='color:rgba(0,0,0,.03)'>Hidden",
    "transparent fill": "<p style='-webkit-text-fill-color:transparent'>Hidden",
    "colour of the page": "<p style='color:#fff'>Hidden",
    "nearly the colour of the page": "<p style='color:#f4f4f4'>Hidden",
    "colour of its box": "<p style='background:#123;color:#124'>Hidden",
    "colour of a field": "<input style='color:#fff' value=Hidden>",
    "ground clipped to the text": "<p style='color:transparent;background:#fff;"
    "-webkit-background-clip:text'>Hidden",
    "font size 0": "<p style='font-size:0'>Hidden",
    "font size 2": "<p style='font-size:2px'>Hidden",
    "scaled down": "<p style='transform:scale(.1)'>Hidden",
    "zoomed away": "<p style='zoom:.1'>Hidden",
    "turned away": "<p style='transform:rotateY(90deg)'>Hidden",
    "letters heaped up": "<p style='letter-spacing:-1em'>Hidden",
    "no height": "<div style='height:0;overflow:hidden'><p>Hidden</div>",
    "no width": "<p style='width:0;overflow:hidden'>Hidden",
    "pushed out of its box": "<div style='height:20px;overflow:hidden'>"
    "<div style='margin-top:30px'>Hidden</div></div>",
    "for screen readers": "<p style='position:absolute;width:1px;height:1px;overflow:hidden;"
    "clip:rect(0,0,0,0)'>Hidden",
    "clip": "<p style='position:absolute;clip:rect(0,0,0,0)'>Hidden",
    "clip path": "<p style='clip-path:inset(100%)'>Hidden",
    "clip path over other text": "<p style='margin:0'>Shown</p>"
    "<p style='margin:-18px 0 0;clip-path:inset(100%)'>Hidden",
    "mask": "<p style='mask-image:linear-gradient(transparent,transparent)'>Hidden",
    "filter": "<p style='filter:opacity(0)'>Hidden",
    "blending": "<div style='position:relative'><p>Hidden</p><div style='position:absolute;"
    "inset:0;background:#fff;mix-blend-mode:lighten'></div></div>",
    "covered": "<p>Hidden</p><div style='position:absolute;inset:0;background:#fff'></div>",
    "covered by other text": "<p style='position:absolute;top:9px'>Hidden</p>"
    "<p style='position:absolute;top:9px;background:#fff'>Shown",
    "covered by a gradient": "<p>Hidden</p><div style='position:absolute;inset:0;"
    "background:linear-gradient(#fff,#eee)'></div>",
    "covered by its own pseudo-element": "<style>p{position:relative}"
    "p::after{content:'';position:absolute;inset:0;background:#fff}</style><p>Hidden",
    "covered by tiles": "<p style='margin:0'>Hidden</p><div style='position:absolute;top:0;left:0'>"
    + "<i style='float:left;width:20px;height:30px;background:#fff'></i>" * 10,
    "covered by a shadow": "<p>Hidden</p><div style='position:absolute;top:0;width:1px;"
    "height:1px;box-shadow:0 0 0 300px #fff'></div>",
    "covered by a border": "<p>Hidden</p><div style='position:absolute;top:0;left:0;"
    "border:100px solid #fff'></div>",
    "behind the page": "<p style='position:relative;z-index:-1'>Hidden</p>"
    "<div style='background:#fff;margin-top:-40px;height:60px'></div>",
    "washed out": "<p>Hidden</p><div style='position:absolute;inset:0;"
    "background:rgba(255,255,255,.93)'></div>",
    "indented off the page": "<p style='text-indent:-9999px'>Hidden",
    "left of the page": "<p style='position:absolute;left:-900px'>Hidden",
    "below the page": "<div style='height:500px'></div><p>Hidden",
    "closed details": "<details><summary>Shown</summary><p>Hidden</details>",
    "option not chosen": "<select><option>Shown<option>Hidden</select>",
    "title, template and comment": "<title>Hidden</title><template>Hidden</template><!--Hidden-->",
    "hidden field": "<input type=hidden value=Hidden>",
    "text of an svg": "<svg><text y=20 fill=navy>Hidden</text></svg>",
    "page in an svg": "<svg><foreignObject width=99 height=40><p>Hidden</foreignObject></svg>",
    "svg definition": "<svg><defs><text y=20>Hidden</text></defs></svg>",
    "alternative text": "<img alt=Hidden style='display:none'>",
    "contents skipped": "<p style='content-visibility:hidden'>Hidden",
    "animated away": "<style>@keyframes k{from{opacity:0}}</style><p style='opacity:0;"
    "animation:k 1s infinite'>Hidden",
}


def test_invisible_text_of_every_kind_is_absent(renderer: Renderer) -> None:
    renders = renderer.render_many([f"<!doctype html><body>{html}" for html in INVISIBLE.values()])
    found = {name: texts(render) for name, render in zip(INVISIBLE, renders, strict=True)}
    expected = {name: ["Shown"] * ("Shown" in html) for name, html in INVISIBLE.items()}
    assert found == expected


def test_only_the_part_of_a_line_that_shows_is_read(renderer: Renderer) -> None:
    line = "one two three four five six seven eight nine ten eleven twelve"
    (block,) = renderer.render(f"<!doctype html><p style='white-space:nowrap'>{line}").text_blocks
    assert line.startswith(block.text) and 20 < len(block.text) < 45
    assert block.x + block.width == 256


def test_a_box_that_looks_like_its_ground_is_no_box(renderer: Renderer) -> None:
    html = (
        "<!doctype html><body style='background:#fff'><div style='background:#fff'>a</div>"
        "<div style='background:#0a0;height:9px'></div><div style='border:1px solid #fff'>b</div>"
        "<div style='background:#00a;height:9px;opacity:0'></div>"
        "<div style='border-bottom:2px solid #a00'>c</div>"
    )
    assert [box.color for box in renderer.render(html).boxes] == [(0, 170, 0), (170, 0, 0)]


def test_the_doctype_decides_the_mode_as_in_any_browser(renderer: Renderer) -> None:
    page = "<body style='font-size:30px'><table><td>cell</table>"
    sizes = [renderer.render(d + page).text_blocks[0].font_size for d in ("", "<!DOCTYPE html>")]
    assert sizes == [16, 30]


# The same pixels every time


def test_pixels_are_the_same_again_and_in_a_fresh_browser_and_side_by_side(
    renderer: Renderer,
) -> None:
    other = "<!doctype html><body style='background:#a40'><h1>Other</h1>"
    moving = (
        "<!doctype html><style>@keyframes k{to{transform:translateX(90px)}}"
        "i{animation:k .1s infinite;transition:all 1s}</style><i>moves</i><marquee>runs</marquee>"
        "<progress></progress><input autofocus><svg><rect width=9 height=9>"
        "<animate attributeName=x to=90 dur=.1s repeatCount=indefinite /></rect></svg>"
    )
    first = renderer.render(HONEST)
    still = renderer.render(moving)
    with Renderer(concurrency=4, timeout=15) as fresh:
        mixed = fresh.render_many([HONEST, other, moving] * 5)
    for again in [renderer.render(HONEST), *mixed[0::3]]:
        assert np.array_equal(again.pixels, first.pixels)
        assert again.text_blocks == first.text_blocks and again.boxes == first.boxes
    for again in [renderer.render(moving), *mixed[2::3]]:
        assert np.array_equal(again.pixels, still.pixels)
    assert not np.array_equal(mixed[1].pixels, first.pixels)
    assert [render.html for render in mixed] == [HONEST, other, moving] * 5


WIDE = "<div style='width:500px;height:40px;background:{}'></div>"


def a_browser(folder: Path, name: str, without: str = "") -> str:
    """The same browser under another name, and deaf to one of its flags."""
    program = folder / name
    program.write_text(
        f'#!/bin/bash\nfor a; do [ "$a" = "{without}" ] || b+=("$a"); done\n'
        f'exec {find_chromium()} "${{b[@]}}"\n'
    )
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("name", "without"),
    [("chromium", ""), ("chromium-headless-shell", "--run-all-compositor-stages-before-draw")],
)
def test_a_browser_that_draws_as_it_likes_shows_the_same(
    renderer: Renderer, tmp_path: Path, name: str, without: str
) -> None:
    pages = [HONEST, f"<!doctype html><body dir=rtl>{WIDE.format('#08f')}", "<p>a", "<p>a", ""]
    with Renderer(executable=a_browser(tmp_path, name, without)) as free:
        chromium = free._engine.chromium
        assert chromium and chromium.pace is None
        for page, other in zip(pages, free.render_many(pages), strict=True):
            ours = renderer.render(page)
            assert ours.error is None and other.error is None
            assert np.array_equal(ours.pixels, other.pixels)
            assert ours.text_blocks == other.text_blocks and ours.boxes == other.boxes


def test_a_page_like_the_one_before_it_is_seen_whole(renderer: Renderer) -> None:
    alike = ["<!doctype html><p>same look", "<!doctype html><p class=x>same look"]
    first, *others = [renderer.render(page) for page in [*alike, alike[0], alike[0]]]
    assert texts(first) == ["same look"]
    for other in others:
        assert np.array_equal(other.pixels, first.pixels) and texts(other) == ["same look"]


def test_a_page_from_right_to_left_is_seen_from_its_right(renderer: Renderer) -> None:
    left, right = "<span style='float:left'>far</span>", "<span style='float:right'>near</span>"
    row = f"<div style='width:500px'>{left}{right}</div>"
    render = renderer.render(f"<!doctype html><body dir=rtl>{row}")
    assert texts(render) == ["near"]
    (block,) = render.text_blocks
    assert block.x + block.width == renderer.width - 8


def test_a_frame_that_is_given_up_spoils_none_of_those_beside_it() -> None:
    with Renderer(timeout=15, concurrency=3) as renderer:
        before = renderer.render(HONEST)
        engine = renderer._engine
        renderer.render_many([HONEST] * 6)

        async def give_up(seconds: float) -> None:
            held = await engine.free.get()
            assert held
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await held[1].show(SafePage(HONEST))
            engine.free.put_nowait(None)

        for milliseconds in range(2, 42, 4):
            renderer._call(give_up(milliseconds / 1000), 20)
            for render in renderer.render_many([HONEST] * 6):
                assert np.array_equal(render.pixels, before.pixels)


def test_a_new_tab_has_something_to_draw_on_when_its_first_page_comes() -> None:
    with Renderer(timeout=15, concurrency=2) as renderer:
        before = renderer.render(HONEST)
        engine = renderer._engine

        async def first_page() -> np.ndarray:
            assert engine.chromium
            tab = await engine.open(engine.chromium)
            shown = await tab.show(SafePage(HONEST))
            await tab.close()
            assert isinstance(shown, tuple)
            return np.asarray(Image.open(BytesIO(shown[1])).convert("RGB"))

        async def many() -> list[np.ndarray]:
            return await asyncio.gather(*(first_page() for _ in range(6)))

        for _ in range(5):
            assert all(np.array_equal(seen, before.pixels) for seen in renderer._call(many(), 120))


def test_what_is_asked_for_with_a_frame_only_does_not_keep_a_page_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def second_attempt(page: SafePage) -> None:
        pytest.fail("the first attempt took too long")

    with Renderer(timeout=15, concurrency=1) as renderer:
        renderer.render(HONEST)
        monkeypatch.setattr(renderer._engine, "show_alone", second_attempt)
        page = "<!doctype html><svg><use href='http://127.0.0.1:9/a.svg#a'/></svg><p>Here"
        render = renderer.render(page)
        assert render.error is None
        assert texts(render) == ["Here"]
        assert render.blocked == ("http://127.0.0.1:9/a.svg",)


def test_pages_that_look_alike_one_after_the_other_have_one_picture() -> None:
    with Renderer(concurrency=1) as renderer:
        pages = [HONEST, HONEST, HONEST.replace("</body>", "<!-- more --></body>"), "<p>", HONEST]
        first, *others, other, last = [renderer.render(page).pixels for page in pages]
        assert all(np.array_equal(first, seen) for seen in (*others, last))
        assert not np.array_equal(first, other)


def test_fonts_are_the_projects_own(renderer: Renderer) -> None:
    def drawn(family: str) -> bytes:
        page = f'<!doctype html><p style="font:16px {family}">Quick brown fox'
        return renderer.render(page).pixels.tobytes()

    assert drawn("sans-serif") == drawn("Arial") == drawn("'Liberation Sans'") == drawn("system-ui")
    assert drawn("serif") == drawn("'Liberation Serif'") == drawn("'No Such Font'")
    assert drawn("monospace") == drawn("'Courier New'") == drawn("'Liberation Mono'")
    assert len({drawn(family) for family in ("sans-serif", "serif", "monospace")}) == 3


# Hostile pages


def test_nothing_is_fetched_and_what_was_asked_for_is_listed(renderer: Renderer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"127.0.0.1:{server.getsockname()[1]}"
        render = renderer.render(
            f"<!doctype html><html><head><base href=http://{at}/>"
            f"<meta http-equiv=refresh content='0;url=http://{at}/refresh'>"
            f"<meta http-equiv='&#114;efresh' content='0;url=http://{at}/refresh'>"
            f"<link rel=stylesheet href=http://{at}/a.css><link rel=preconnect href=http://{at}>"
            f"<link rel=prefetch href=http://{at}/p><link rel=icon href=http://{at}/i>"
            f"<style>@import 'http://{at}/b.css';@font-face{{font-family:f;src:url(//{at}/f)}}"
            f"body{{background:url(http://{at}/bg)}}p{{font-family:f}}</style>"
            f"<script src=http://{at}/s.js></script></head><body onload=\"fetch('http://{at}/')\">"
            f"<p>here</p><img src=http://{at}/x.png><img src=relative.png><img src=ws://{at}/>"
            f"<img src=file:///etc/hostname><iframe src=http://{at}/f></iframe>"
            f"<iframe srcdoc='<img src=http://{at}/g>'></iframe><object data=http://{at}/o></object>"
            f"<embed src=http://{at}/e><video src=http://{at}/v autoplay></video>"
            f"<audio src=http://{at}/w autoplay></audio><svg><image href=http://{at}/j /></svg>"
        )
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.accept()
    assert texts(render)[0] == "here"
    assert {"script", "refresh", "iframe", "object", "embed"} <= set(render.blocked)
    assert {"relative.png", f"http://{at}/x.png", f"ws://{at}/", "file:///etc/hostname"} <= set(
        render.blocked
    )


def test_scripts_never_run(renderer: Renderer) -> None:
    honest = renderer.render("<!doctype html><body><p id=p>as written</p>")
    for script in (
        "<script>document.getElementById('p').textContent = 'changed'</script>",
        "<script>while (true) {}</script>",
        "<script>alert(1); confirm(2); open('about:blank'); location = 'data:text/html,x'</script>",
        "<img src='data:,' style='display:none' onerror='document.body.innerHTML = 0'>",
        "<svg onload='while (true) {}' style='display:none'></svg>",
        "<iframe src='javascript:alert(1)' hidden></iframe>",
        "<a href='javascript:alert(1)' autofocus></a><style onload='alert(1)'></style>",
    ):
        render = renderer.render(f"<!doctype html><body><p id=p>as written</p>{script}")
        assert np.array_equal(render.pixels, honest.pixels), script


def test_scripts_that_do_nothing_do_not_change_the_layout(renderer: Renderer) -> None:
    page = "<!doctype html><style>p:nth-child(3){{color:red}}</style><body><i></i>{}<p>third</p>"
    with_script, with_style = page.format("<script></script>"), page.format("<style></style>")
    assert np.array_equal(renderer.render(with_script).pixels, renderer.render(with_style).pixels)


def picture(width: int, height: int) -> str:
    file = BytesIO()
    Image.new("1", (width, height), 0).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()


def test_small_pictures_in_the_page_are_shown_and_bombs_are_not(renderer: Renderer) -> None:
    small = renderer.render(f'<!doctype html><body style="margin:0"><img src="{picture(20, 10)}">')
    assert small.blocked == () and tuple(small.pixels[5, 10]) == (0, 0, 0)
    drawn = renderer.render(
        '<!doctype html><style>body{margin:0;height:90px;background:url("data:image/svg+xml,'
        "<svg xmlns='http://www.w3.org/2000/svg'><rect width='99' height='99' fill='red'/></svg>"
        '")}</style>'
    )
    assert tuple(drawn.pixels[5, 5]) == (255, 0, 0)
    for bomb in (
        picture(20_000, 20_000),
        "data:image/png;base64," + "A" * 150_000,
        "data:image/svg+xml,<svg><image href='" + picture(9, 9) + "'/></svg>",
        "&#100;ata:image/png;base64," + picture(20, 10).partition(",")[2],
    ):
        render = renderer.render(f'<!doctype html>still here<img src="{bomb}">')
        assert texts(render) == ["still here"] and render.blocked, bomb[:60]


def test_pages_beyond_a_limit_end_with_a_reason_and_white_pixels(renderer: Renderer) -> None:
    formatting = "".join(f"<b id=x{i}>" for i in range(160))
    for html, reason in (
        ("x" * 200_001, "200001 bytes"),
        ("<p>" * 65_000, "65000 tags"),
        ("<!doctype html><p>" + formatting + "<p>x" * 160, "nodes"),
        ("<!doctype html><div style='height:100000px'>x", "px tall"),
    ):
        render = renderer.render(html)
        assert render.error and reason in render.error
        assert render.pixels.min() == 255 and render.text_blocks == () and render.boxes == ()


def test_odd_and_broken_html_ends_with_a_picture(renderer: Renderer) -> None:
    expected = {
        "": [],
        "\0": [],
        "<p>a\0b": ["ab"],
        "<p>lone \ud800 and pair \ud83d\ude00": ["lone \ufffd and pair \U0001f600"],
        "<!doctype html><html><body><p>cut of": ["cut of"],
        "<!doctype html><body><p style='color:": [],
        "<!-- never closed": [],
        "<" * 500: ["<" * 24],
        "<div>" * 2000 + "deep": ["deep"],
        "<table>" * 50 + "words": ["words"],
        "</body></html><p>after the end": ["after the end"],
        "<!doctype html><plaintext><b>plain": ["<b>plain"],
        "<frameset><frame src=x></frameset><p>framed": ["framed"],
        "<svg><script><![CDATA[x]]></script><p>out</svg>": ["out"],
    }
    for (html, wanted), render in zip(
        expected.items(), renderer.render_many(list(expected)), strict=True
    ):
        found = texts(render)
        assert [text[: len(w)] for text, w in zip(found, wanted, strict=True)] == wanted, html[:40]


def test_a_page_that_hangs_ends_in_bounded_time_and_disturbs_no_other() -> None:
    with Renderer(timeout=3) as renderer:
        before = renderer.render(HONEST)
        start = time.monotonic()
        renders = renderer.render_many([ENDLESS, *[HONEST] * 6])
        assert time.monotonic() - start < 120
        assert renders[0].error == "the page was not ready after 3 s"
        for render in [*renders[1:], renderer.render(HONEST)]:
            assert np.array_equal(render.pixels, before.pixels)


# A browser that dies, and threads and loops


def test_killing_the_browser_under_way_loses_no_render_and_leaves_no_process() -> None:
    with Renderer(timeout=15) as renderer:
        before = renderer.render(HONEST)
        group = group_of(renderer)
        chromium = renderer._engine.chromium
        assert chromium

        def kill_under_way() -> None:
            while chromium.started < 5:
                time.sleep(0.001)
            os.killpg(group, signal.SIGKILL)

        killer = threading.Thread(target=kill_under_way, daemon=True)
        killer.start()
        renders = renderer.render_many([HONEST] * 100)
        killer.join()
        renders.append(renderer.render(HONEST))
        assert all(np.array_equal(render.pixels, before.pixels) for render in renders)
        replaced = group_of(renderer)
        assert replaced != group
    wait_until_gone(group)
    wait_until_gone(replaced)


def test_closing_under_way_ends_the_renders_and_the_browser() -> None:
    renderer = Renderer(timeout=15)
    group = group_of(renderer)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(renderer.render_many, [HONEST] * 500)
        time.sleep(0.5)
        renderer.close()
        with pytest.raises(VclibError, match="closed; make a new one"):
            future.result(20)
    with pytest.raises(VclibError, match="closed; make a new one"):
        renderer.render("<p>x")
    renderer.close()
    wait_until_gone(group)


def test_the_browser_is_recycled_while_renders_go_on() -> None:
    with Renderer(timeout=15, recycle_after=6) as renderer:
        first = group_of(renderer)
        renders = renderer.render_many([HONEST] * 8)
        assert all(np.array_equal(render.pixels, renders[0].pixels) for render in renders)
        last = group_of(renderer)
        assert first != last
        wait_until_gone(first)
    wait_until_gone(last)


def test_renders_from_many_threads_and_inside_a_running_loop(renderer: Renderer) -> None:
    pages = [f"<!doctype html><p>page {i}" for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(renderer.render, pages))
    assert [texts(render) for render in found] == [[f"page {i}"] for i in range(24)]

    async def in_a_loop() -> list[str]:
        return texts(renderer.render(pages[3]))

    assert asyncio.run(in_a_loop()) == ["page 3"]


def test_a_program_that_forgets_to_close_or_is_killed_leaves_no_browser() -> None:
    program = (
        "import sys, time; from vclib.env.browser import Renderer; r = Renderer(timeout=15);"
        "assert r.render('<p>x').text_blocks; print(r._engine.chromium.group, flush=True);"
        "time.sleep(float(sys.argv[1]))"
    )
    for seconds in ("0", "60"):
        with subprocess.Popen(
            [sys.executable, "-c", program, seconds], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            group = int(process.stdout.readline())
            if seconds == "60":
                process.kill()
        assert process.returncode == (0 if seconds == "0" else -signal.SIGKILL)
        wait_until_gone(group)


# Which browser


def test_the_renderer_says_which_browser_and_version_draws(renderer: Renderer) -> None:
    name, _, version = renderer.browser.rpartition(" ")
    assert name == Path(find_chromium()).name and version.count(".") == 3


def test_a_missing_browser_is_an_error_that_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VCLIB_CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(BrowserMissing, match=r"VCLIB_CHROMIUM .* `make browser`"):
        Renderer()
    monkeypatch.delenv("VCLIB_CHROMIUM")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrowserMissing, match="run `make browser`"):
        find_chromium()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without an entry")
def test_a_user_without_a_home_is_told_that_no_browser_was_found() -> None:
    program = (
        "import os; from vclib.env.browser import find_chromium; os.setuid(54_321); "
        "os.environ.pop('HOME'); find_chromium()"
    )
    away = {"PATH": "/nowhere", "PLAYWRIGHT_BROWSERS_PATH": "/nowhere", "HOME": "/"}
    told = subprocess.run([sys.executable, "-c", program], env=away, capture_output=True, text=True)
    assert "BrowserMissing: No Chromium was found" in told.stderr


def test_a_headless_shell_of_playwrights_own_is_preferred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (
        "chromium-1/chrome-linux/chrome",
        "chromium_headless_shell-1/linux/headless_shell",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.delenv("VCLIB_CHROMIUM", raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    assert find_chromium() == str(path)
    monkeypatch.setenv("VCLIB_CHROMIUM", "/bin/sh")
    assert find_chromium() == "/bin/sh"


def test_a_program_that_is_no_browser_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(VclibError, match=r"/bin/true did not start .* `make browser`"):
        Renderer(executable="/bin/true")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
@pytest.mark.parametrize("size", [(640, 480), (37, 211), (1, 1)])
def test_a_screenshot_is_decoded_whatever_its_kind_of_png(mode: str, size: tuple[int, int]) -> None:
    """The headless shell writes RGB; the full Chromium may write alpha."""
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    image = Image.fromarray(noise).convert(mode)
    file = BytesIO()
    image.save(file, "PNG")
    pixels = decoded(file.getvalue())
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, np.asarray(image.convert("RGB")))
