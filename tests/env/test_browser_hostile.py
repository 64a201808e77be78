"""A hostile page ends soon, with a score and a reason, reaches nothing and disturbs no other."""

from __future__ import annotations

import os
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from vclib.env.browser import Render, Renderer
from vclib.env.reward import Reference, score

SECONDS = 5.0
STARTS = 25
"""Where the browser takes over 0.2 s to start the machine is busy; so many starts are allowed."""
REFERENCE = (
    "<!doctype html><html><head><title>Ferries</title></head><body style='background:#eef'>"
    "<h1>Harbour News</h1><p>Ferries run late today</p></body></html>"
)


def doubling(levels: int) -> str:
    """SVG whose `use` elements stand for 2 to the power of `levels` rectangles."""
    groups = "".join(
        f"<g id=a{i + 1}><use href=#a{i} /><use href=#a{i} /></g>" for i in range(levels)
    )
    defs = f"<defs><g id=a0><rect width=1 height=1 /></g>{groups}</defs>"
    return f"<svg>{defs}<use href=#a{levels} /></svg>"


def nested(opening: str, depth: int, inside: str = "words") -> str:
    return opening * depth + inside


def style(css: str) -> str:
    return f"<style>{css}</style>"


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


ENTITY_BOMB = (
    '<!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefg", "bcdefgh", strict=True))
    + ']><svg xmlns="http://www.w3.org/2000/svg"><text>&h;</text></svg>'
).encode()
UNCLOSED = "".join(f"<b id=x{i}>" for i in range(2_400))
VARIABLES = ";".join(f"--v{i + 1}:var(--v{i}) var(--v{i})" for i in range(40))
SCRIPTS = (
    "English Ελληνικά Русский 中文 日本語 한국어 العربية עברית हिन्दी ไทย தமிழ் 👩‍👩‍👧‍👦 e"
    + "\u0301" * 300
)

SHOWN = {
    "an endless script": "<script>while (true) {}</script>here",
    "endless timers": "<script>setInterval(() => document.body.append('x'), 0)</script>here",
    "a script that asks": '<body onload="alert(1); confirm(2); prompt(3)">here',
    "a script that leaves": "<body onbeforeunload='return 1' onload='location=\"data:,x\"'>here",
    "a meta refresh": "<meta http-equiv=refresh content='0'>here",
    "a meta refresh to a script": "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>x",
    "a javascript address": "<iframe src='javascript:while(true){}'></iframe>here",
    "a modal dialog": "<dialog open>here</dialog><dialog popover=auto>and</dialog>",
    "a popup": "<body onload=\"open('about:blank')\"><a href=/ target=_blank autofocus>here",
    "a form that sends itself": "<form action=/ target=_blank><input autofocus></form>here",
    "a download": f"<a href='{data_url('text/plain', b'x')}' download>here</a>",
    "a download in a frame": f"<iframe src='{data_url('application/zip', b'x')}'></iframe>here",
    "a page in a frame in a page": "<iframe srcdoc='<iframe srcdoc=x></iframe>'></iframe>here",
    "endless animations": style("@keyframes k{to{rotate:9turn}}*{animation:k 1ms infinite}") + "x",
    "an endless drawing": "<svg><rect width=9 height=9><animate attributeName=x dur=1ms to=9 "
    "repeatCount=indefinite /></rect></svg>here",
    "an endless marquee": "<marquee scrollamount=99 truespeed scrolldelay=1>here</marquee>",
    "remote pictures": "<img src=http://192.0.2.1/x.png srcset='//192.0.2.1/y 2x'>here",
    "a web socket address": "<img src=ws://192.0.2.1/><link rel=stylesheet href=wss://192.0.2.1/>x",
    "a file": "<img src=file:///etc/passwd><iframe src=file:///etc/passwd></iframe>here",
    "a browser's own page": "<iframe src=chrome://crash></iframe><img src=chrome://kill>here",
    "a huge data URL": f"<img src='{data_url('image/png', bytes(100_000))}'>here",
    "a drawing with an entity bomb": f"<img src='{data_url('image/svg+xml', ENTITY_BOMB)}'>here",
    "a sound and a film": "<audio src=x autoplay loop></audio><video src=x autoplay></video>here",
    "lone surrogates": "<p>lone \ud800 and \udfff</p>",
    "NUL bytes": "\0<p>a\0b</p>\0" * 100,
    "control characters": "".join(map(chr, range(32))) * 20 + "\x7f\x80\ufffe\uffff here",
    "a wrong encoding": "<meta charset=utf-16><p>" + "Grüße".encode().decode("latin-1"),
    "an encoding of old": "<meta charset=utf-7>+ADw-script+AD4-here",
    "a byte order mark": "\ufeff<!doctype html><p>here",
    "an XML declaration": "<?xml version='1.0' encoding='utf-16'?><html><p>here",
    "nothing": "",
    "white space": " \n\t" * 1_000,
    "no tags": "Ferries run late today " * 500,
    "a comment that never ends": "<!-- " + "x" * 5_000,
    "a tag that never ends": "<p title='" + "x" * 5_000,
    "text in many scripts": f"<p>{SCRIPTS}</p><p dir=rtl>{SCRIPTS}</p>",
    "direction marks": "<p>\u202e" + "\u2066abc\u202e" * 2_000,
    "fonts that do not exist": '<p style="font:16px \'No Such Font\',""">here'
    + style("@font-face{font-family:F;src:url(data:font/woff2;base64,AAAA)}p{font-family:F}"),
    "a font of the machine": style("@font-face{font-family:F;src:local('Arial')}p{font-family:F}")
    + "<p>here",
    "doubled variables": style(f":root{{--v0:aaaaaaaa;{VARIABLES};content:var(--v40)}}") + "here",
    "a calculation beyond all bounds": f"<p style='width:calc({'(' * 500}1px{')' * 500})'>here",
    "a rule for everything": style("*{all:revert!important}:not(x):not(y){zoom:1.1}") + "here",
    "a page of its own styles": style("@layer vclib{*{animation:k 1s infinite!important}}") + "x",
}
HEAVY = {
    "deep nesting": nested("<div>", 4_900),
    "deep tables": nested("<table><tr><td>", 700),
    "deep lists": nested("<ul><li>", 2_400),
    "deep quotes": nested("<q>", 2_400),
    "deep fieldsets": nested("<fieldset><legend>", 700),
    "marks heaped on a letter": "<p>Z" + "\u0300\u0330\u0488" * 5_000,
    "many shadows": f"<p style='text-shadow:{','.join(['0 0 99px red'] * 400)}'>here",
    "many gradients": "<p style='height:400px;background:"
    + ",".join(["repeating-conic-gradient(red 0 .1deg,#0000 0 .2deg)"] * 200)
    + "'>here",
    "much blur": nested("<div style='filter:blur(90px);backdrop-filter:blur(90px)'>", 60),
    "deep flex boxes": nested("<div style='display:flex;flex-wrap:wrap'>", 300),
    "deep grids": nested("<div style='display:grid;grid:auto/auto auto'>", 300),
    "deep columns": nested("<div style='columns:2'>", 40),
    "a wide table": "<table>" + "<tr>" + "<td colspan=1000 rowspan=65534>" * 400,
    "a grid of a million cells": "<div style='display:grid;grid:repeat(1000,1px)/repeat(1000,1px)'>"
    + "<i style='grid-area:1/1/1000/1000'>x</i>" * 200,
    "selectors within selectors": style(":is(" * 200 + "*" + ")" * 200 + "{color:red}") + "here",
    "selectors that look back": style(
        "".join(f"div div div div div ~ div > div.c{i}{{color:red}}" for i in range(500))
    )
    + "<div>" * 2_000,
    "selectors that look ahead": style(
        "".join(f":has(div ~ div:has(:nth-child({i}n+1))){{color:red}}" for i in range(1, 60))
    )
    + "<div><p></p></div>" * 800,
    "a huge border": "<p style='border:9999px solid;border-radius:9999px'>here",
    "counters without end": style("p{counter-increment:c 2147483647}p::after{content:counter(c)}")
    + "<p>" * 500,
}
REFUSED = {
    "50 MB": ("x" * 50_000_000, "bytes"),
    "a million nodes": ("<i>" * 1_000_000, "bytes"),
    "60,000 nodes": ("<p>" * 60_000, "tags"),
    "nodes out of unclosed tags": ("<p>" + UNCLOSED[:4_000] + "<p>x" * 400, "ready|nodes"),
    "millions of nodes out of unclosed tags": ("<p>" + UNCLOSED + "<p>x" * 2_400, "ready|nodes"),
    "100,000 px": ("<div style='height:100000px'>x", "px tall"),
    "a number beyond all bounds": (
        "<p style='margin:1e99px;width:9e99px;z-index:9e99'>here",
        "px tall",
    ),
    "millions of px": ("<div style='height:1e9px'>x", "px tall"),
    "a drawing that doubles": (doubling(30), "ready"),
    "a drawing that doubles less": (doubling(17), "ready|nodes|crash"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Renderer]:
    with Renderer() as renderer:
        yield renderer


@pytest.fixture(scope="module")
def honest(browser: Renderer) -> Reference:
    return Reference(browser.render(REFERENCE))


def ends_well(browser: Renderer, honest: Reference, html: str) -> Render:
    """Its render, which came in time, with a score, while an honest page was shown as ever."""
    with ThreadPoolExecutor(1) as beside:
        start = time.monotonic()
        others = beside.submit(lambda: [browser.render(REFERENCE)])
        render = browser.render(html)
        breakdown = score(honest, render)
        chromium = browser._engine.chromium
        assert chromium
        assert time.monotonic() - start < max(SECONDS, STARTS * chromium.start_seconds)
        shown = [*others.result(), browser.render(REFERENCE)]
    assert 0 <= breakdown.total < 1
    if render.error:
        assert breakdown.total == 0
        assert breakdown.reason and render.error in breakdown.reason
    for other in shown:
        assert other.error is None and np.array_equal(other.pixels, honest.render.pixels)
    return render


@pytest.mark.parametrize("kind", SHOWN)
def test_a_hostile_page_that_can_be_shown_is_shown(
    browser: Renderer, honest: Reference, kind: str
) -> None:
    render = ends_well(browser, honest, f"<!doctype html>{SHOWN[kind]}")
    assert render.error is None


@pytest.mark.parametrize("kind", HEAVY)
def test_a_page_that_is_much_work_is_shown_or_ends_with_a_reason(
    browser: Renderer, honest: Reference, kind: str
) -> None:
    ends_well(browser, honest, f"<!doctype html>{HEAVY[kind]}")


@pytest.mark.parametrize("kind", REFUSED)
def test_a_hostile_page_that_cannot_be_shown_ends_with_a_reason(
    browser: Renderer, honest: Reference, kind: str
) -> None:
    html, reason = REFUSED[kind]
    render = ends_well(browser, honest, f"<!doctype html>{html}")
    assert render.error and any(word in render.error for word in reason.split("|"))


def test_a_page_cut_off_anywhere_has_a_score(browser: Renderer, honest: Reference) -> None:
    cuts = [REFERENCE[:end] for end in range(len(REFERENCE))]
    renders = browser.render_many(cuts)
    totals = [score(honest, render).total for render in renders]
    assert all(render.error is None for render in renders)
    assert totals[0] == 0 and all(0 <= total < 1 for total in totals)
    assert totals[-1] > 0.9


# Nothing is reached

BARE = "#ff00fe"  # a colour that nothing else has
CALLS = (
    "<base href=http://{at}/><meta http-equiv=refresh content='0;url=http://{at}/'>",
    "<meta http-equiv='&#114;efresh' content='0;url=http://{at}/'>",
    '<meta http-equiv=Content-Security-Policy content="default-src *; report-uri http://{at}/">',
    "<link rel=stylesheet href=http://{at}/><link rel=icon href=http://{at}/>",
    "<link rel=preconnect href=http://{at}><link rel=preconnect href=http://{at} crossorigin>",
    "<link rel=dns-prefetch href=//{at}><link rel=prefetch href=http://{at}/>",
    "<link rel=preload as=image href=http://{at}/><link rel=preload as=font href=http://{at}/>",
    "<link rel=prerender href=http://{at}/><link rel=modulepreload href=http://{at}/>",
    "<link rel=manifest href=http://{at}/><link rel=expect href=http://{at}/>",
    "<script type=speculationrules>{{'prefetch':[{{'urls':['http://{at}/']}}]}}</script>",
    "<style>@import 'http://{at}/';@import url(//{at}/);body{{background:url(http://{at}/)}}</style>",
    "<style>@font-face{{font-family:f;src:url(http://{at}/)}}*{{font-family:f}}</style>x",
    "<style>p{{cursor:url(http://{at}/),auto;list-style:url(http://{at}/);filter:url(http://{at}/#f)"
    ";mask:url(http://{at}/#m);clip-path:url(http://{at}/#c);shape-outside:url(http://{at}/)"
    ";border-image:url(http://{at}/)}}p::before{{content:url(http://{at}/)}}</style><p>x",
    "<p style='background:image-set(url(http://{at}/) 1x);content:url(http://{at}/)'>x",
    "<script src=http://{at}/></script><script>new WebSocket('ws://{at}/');fetch('http://{at}/')"
    ";navigator.sendBeacon('http://{at}/');new RTCPeerConnection()</script>",
    "<body background=http://{at}/ onload=\"new Image().src='http://{at}/'\">",
    "<img src=http://{at}/ srcset='http://{at}/a 1x, //{at}/b 2x' sizes=1px>",
    "<img src=//{at}/><img src=https://{at}/><img src=ws://{at}/><img src=ftp://{at}/>",
    "<picture><source srcset=http://{at}/><img src=x></picture><input type=image src=http://{at}/>",
    "<video src=http://{at}/ poster=http://{at}/ autoplay preload=auto><track src=http://{at}/>",
    "<audio src=http://{at}/ autoplay></audio><video><source src=http://{at}/></video>",
    "<iframe src=http://{at}/></iframe><iframe srcdoc='<img src=http://{at}/>'></iframe>",
    "<frameset><frame src=http://{at}/></frameset>",
    "<object data=http://{at}/></object><embed src=http://{at}/><applet code=http://{at}/>",
    "<portal src=http://{at}/></portal><fencedframe src=http://{at}/></fencedframe>",
    "<svg><image href=http://{at}/ /><use href=http://{at}/#a /><feImage href=http://{at}/ />"
    "<script href=http://{at}/ /><a href=http://{at}/><text>x</text></a></svg>",
    "<svg><style>@import 'http://{at}/';</style><image xlink:href=http://{at}/ /></svg>",
    "<a href=http://{at}/ ping=http://{at}/ autofocus>x</a>",
    "<form action=http://{at}/><button formaction=http://{at}/ autofocus></form>",
    "<html manifest=http://{at}/><table background=http://{at}/><td background=http://{at}/>x",
    "<math href=http://{at}/><mglyph src=http://{at}/ /></math>",
    '<img src=\'data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg"><image '
    'href="http://{at}/"/><style>@import "http://{at}/";</style></svg>\'>',
    "<?xml-stylesheet href='http://{at}/'?><blockquote cite=http://{at}/ >x",
)


def test_no_request_leaves_the_browser(browser: Renderer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"127.0.0.1:{server.getsockname()[1]}"
        server.settimeout(0.5)
        with socket.create_connection(server.getsockname()):
            server.accept()[0].close()  # it would be heard
        for host in (at, at.replace("127.0.0.1", "localhost")):
            pages = [f"<!doctype html>{call.format(at=host)}" for call in CALLS]
            for page, render in zip(pages, browser.render_many(pages), strict=True):
                assert render.error is None, page
        with pytest.raises(TimeoutError):
            server.accept()


def test_no_file_is_read(browser: Renderer, tmp_path: Path) -> None:
    canary, other = tmp_path / "canary", tmp_path / "other"
    for file in (canary, other):
        drawing = "<svg xmlns='http://www.w3.org/2000/svg' width='99' height='99'>"
        file.write_text(f"{drawing}<rect id='a' width='99' height='99' fill='{BARE}'/></svg>")
        os.utime(file, (0, 0))
    other.read_text()
    tells = other.stat().st_atime > 0  # not where the file system keeps no times of access
    sources = [
        call.replace("http://{at}/", "{at}").format(at=f"file://{canary}")
        for call in CALLS
        if "http://{at}/" in call
    ]
    sources += [f"<style>@import '{canary}'</style>", f"<img src={canary}><img src=../../{canary}>"]
    pages = [f"<!doctype html><body>{source}" for source in sources]
    for page, render in zip(pages, browser.render_many(pages), strict=True):
        assert render.error is None
        assert not (render.pixels == (255, 0, 254)).all(-1).any(), page
    if tells:
        assert canary.stat().st_atime == 0


def test_a_page_that_hangs_holds_nobody_up(browser: Renderer) -> None:
    before = browser.render(REFERENCE)
    ended = threading.Event()

    def hang() -> Render:
        render = browser.render(doubling(30))
        ended.set()
        return render

    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(hang)
        shown = 0
        while not ended.is_set():
            assert np.array_equal(browser.render(REFERENCE).pixels, before.pixels)
            shown += 1
    assert "not ready" in str(hanging.result().error)
    assert shown > 2
