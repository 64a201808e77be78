"""Pages that are hostile, by kind, and how long each keeps the renderer.

    python benchmarks/hostile_pages.py

The tests prove that each ends with a score and disturbs no other; here it is timed. A quiet machine
shows every one in under 5 seconds: the renderer's own limit is 4, in two attempts.
"""

from __future__ import annotations

import time
from base64 import b64encode

from vclib.env.browser import Renderer


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


def main() -> None:
    """Render each page once, and print the slowest kinds."""
    pages = SHOWN | HEAVY | {kind: html for kind, (html, _) in REFUSED.items()}
    seconds: dict[str, float] = {}
    with Renderer() as renderer:
        renderer.render("<!doctype html><p>here")
        for kind, html in pages.items():
            start = time.perf_counter()
            error = renderer.render(f"<!doctype html>{html}").error
            seconds[kind] = time.perf_counter() - start
            print(f"{seconds[kind]:6.2f} s  {kind}: {error or 'shown'}", flush=True)
    slowest = max(seconds, key=seconds.__getitem__)
    print(f"slowest of {len(seconds)}: {slowest}, {seconds[slowest]:.2f} s (limit 5 s)")


if __name__ == "__main__":
    main()
