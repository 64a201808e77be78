"""Copies of a page that are worse in known degrees.

A reward can be trusted as far as it puts such copies in order. Each rung of a ladder contains the
damage of the rung above it. Damage is made in two ways: in the source, or by one late style sheet
that leaves the source as it is, so that comparing sources cannot pass for comparing looks.
"""

from __future__ import annotations

import colorsys
import re

from markupever.dom import Element, Node, Text, TreeDom

from vclib.env.restyle import (
    Change,
    Declaration,
    before_end,
    changed_page,
    recolored,
    tree_of,
    with_css,
)

PAINT = re.compile(r"--|color$|background|fill|stroke|.*-color$|font|letter-spacing|direction")
FRAME = re.compile(
    r"display|position|flex|grid|(min-|max-)?(width|height)|inset|top|right|bottom|left|float|clear"
    r"|overflow|box-sizing|white-space|justify|align|order$|z-index|translate|transform|column|table"
    r"|border-collapse|text-align|vertical-align|content"
)
"""Properties that colour and letter a page, and those that lay it out. The others, of spacing and
ornament, are what a page can best do without."""
GROUND = re.compile(r"(html|body|:root|[,\s])+$")
BLANK = "<!doctype html><html><head></head><body></body></html>"


def ladder(html: str, *, late: bool = False) -> dict[str, str]:
    """Worse and worse copies of a page, the page itself first; late: by one late style sheet.

    A wrong colour of the ground stays to the end: without it the bare page would be better again.
    """
    blank = with_css(html, "body{display:none!important}*{background:none!important}")
    return {
        "perfect": html,
        "near-perfect": changed_page(html, _colors_off, late=late),
        "colours wrong": changed_page(html, _colors_wrong, late=late),
        "half the styles": changed_page(html, _only(PAINT, FRAME), late=late),
        "no layout": changed_page(html, _only(PAINT), late=late),
        "no styles": changed_page(html, _only(), late=late),
        "blank": blank if late else BLANK,
    }


def faults(html: str) -> dict[str, list[str]]:
    """Chains of one kind of fault in growing degree; each begins with the page itself."""
    shift = "body{{translate:{0}vw {0}vw}}"
    font = "*{font-family:DejaVu Sans!important;font-style:italic!important}"
    wide = "*{letter-spacing:.12em!important}"
    sections, texts = len(_sections(tree_of(html))), len(_texts(tree_of(html)))
    missing = sorted({1, sections // 2, sections - 1}) if sections > 2 else [1]
    shuffled = sorted({texts // 3, 2 * texts // 3, texts} - {0, 1})
    chains = {
        "section missing": [_without_sections(html, n) for n in missing],
        "section hidden": [_without_sections(html, n, late=True) for n in missing],
        "text shuffled": [_shuffled(html, n) for n in shuffled],
        "everything shifted": [with_css(html, shift.format(n)) for n in (1, 4, 12)],
        "wrong fonts": [with_css(html, css) for css in (font, font + wide)],
        "extra junk": [_with_junk(html, n) for n in (1, 4, 12)],
    }
    return {name: [html, *chain] for name, chain in chains.items() if chain}


def halves(html: str) -> tuple[str, str]:
    """Two honest unfinished pages, with all styles and half of the page or a little more.

    One breaks off after the middle; in the other all is laid out, but the rest is not shown.
    """
    body = re.search(r"<body[^>]*>", html, re.I)
    start = body.end() if body else 0
    middle = start + (len(html) - start) // 2
    cut = max(middle, html.find("<", middle))
    tree = tree_of(html)
    leaves = [e for e in _body(tree).descendants() if isinstance(e, Element) and not _elements(e)]
    for leaf in leaves[-(-len(leaves) // 2) :]:
        leaf.attrs["style"] = f"{leaf.attrs.get('style') or ''};visibility:hidden"
    return tree_of(html[:cut]).serialize(), tree.serialize()


def _colors_off(declaration: Declaration) -> str:
    def nudged(*channels: int) -> tuple[int, ...]:
        return tuple(channel - 9 if channel > 127 else channel + 9 for channel in channels)

    return recolored(declaration.value, nudged)


def _colors_wrong(declaration: Declaration) -> str:
    return recolored(declaration.value, _turned)


def _only(*kinds: re.Pattern[str]) -> Change:
    """Keeps declarations of some kinds, and colours of the ground, all with their colours wrong."""

    def change(declaration: Declaration) -> str | None:
        selector, name, _ = declaration
        ground = GROUND.match(selector) and re.match("color|background", name)
        kept = ground or any(kind.match(name) for kind in kinds)
        return _colors_wrong(declaration) if kept else None

    return change


def _turned(r: int, g: int, b: int) -> tuple[int, ...]:
    """Another hue, about as light, so that what could be read can still be read."""
    hue, lightness, saturation = colorsys.rgb_to_hls(r / 255, g / 255, b / 255)
    turned = (hue + 1 / 3) % 1, 0.12 + 0.76 * lightness, max(0.5, saturation)
    return tuple(round(255 * channel) for channel in colorsys.hls_to_rgb(*turned))


def _elements(parent: Node) -> list[Element]:
    return [child for child in parent.children() if isinstance(child, Element)]


def _tag(node: Node | None) -> str:
    return str(node.name.local) if isinstance(node, Element) else ""


def _sections(tree: TreeDom) -> list[tuple[Element, str]]:
    """The parts of a page, each with its path as a selector.

    The order begins in the middle and takes every second one before the rest.
    """
    parent, path = _body(tree), "body"
    while True:
        inner = _elements(parent)
        shown = [n for n, child in enumerate(inner) if _tag(child) not in ("style", "script")]
        if len(shown) != 1 or not _elements(inner[shown[0]]):
            break
        parent, path = inner[shown[0]], f"{path}>:nth-child({shown[0] + 1})"
    found = [(inner[n], f"{path}>:nth-child({n + 1})") for n in shown]
    middle = len(found) // 2
    ordered = found[middle:] + found[:middle]
    return ordered[::2] + ordered[1::2]


def _without_sections(html: str, count: int, *, late: bool = False) -> str:
    tree = tree_of(html)
    chosen = _sections(tree)[:count]
    if late:
        return with_css(html, f"{','.join(path for _, path in chosen)}{{display:none!important}}")
    for section, _ in chosen:
        section.detach()
    return tree.serialize()


def _body(tree: TreeDom) -> Element:
    (html,) = _elements(tree.root())
    return next(child for child in _elements(html) if _tag(child) == "body")


def _texts(tree: TreeDom) -> list[Text]:
    """The pieces of text that a page may show."""
    nodes = _body(tree).descendants()
    texts = [node for node in nodes if isinstance(node, Text) and node.content.strip()]
    return [text for text in texts if _tag(text.parent) not in ("style", "script")]


def _shuffled(html: str, count: int) -> str:
    """The first `count` texts each in the place of another of them."""
    tree = tree_of(html)
    texts = _texts(tree)[:count]
    words = [text.content for text in texts]
    for text, other in zip(texts, words[count // 2 :] + words[: count // 2], strict=True):
        text.content = other
    return tree.serialize()


def _with_junk(html: str, count: int) -> str:
    junk = "".join(
        f'<div style="position:fixed;left:{37 * n % 80}%;top:{53 * n % 85}%;width:18%;height:14%;'
        f'overflow:hidden;background:#be123c;color:#fff;font:12px sans-serif">Advert {n}</div>'
        for n in range(1, count + 1)
    )
    return before_end(html, junk)
