"""A hostile page ends soon, with a score and a reason, reaches nothing and disturbs no other."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hostile_pages import HEAVY, REFUSED, SHOWN, doubling

from vclib.env.browser import Render, Renderer
from vclib.env.reward import Reference, score

HANG = 120.0
"""Seconds after which a page is said to hang; `benchmarks/hostile_pages.py` times them."""
REFERENCE = (
    "<!doctype html><html><head><title>Ferries</title></head><body style='background:#eef'>"
    "<h1>Harbour News</h1><p>Ferries run late today</p></body></html>"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Renderer]:
    with Renderer(timeout=15) as renderer:  # so that honest pages are shown on a busy machine
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
        assert time.monotonic() - start < HANG
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
