"""Copies of a page that are worse in known degrees.

A reward can be trusted as far as it puts such copies in order. Each rung of a ladder contains the
damage of the rung above it. Damage is made in two ways: in the source, or by one late style sheet
that leaves the source as it is, so that comparing sources cannot pass for comparing looks.
"""

from __future__ import annotations

import colorsys
import html as entities
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from markupever import HtmlOptions, parse
from markupever.dom import Element, Node, Text, TreeDom
from PIL import ImageColor

STYLE = re.compile(r"(<style[^>]*>)(.*?)(</style>)", re.S | re.I)
TAG = re.compile(r"<([a-z][\w-]*)(\s[^<>]*)>", re.I)
INLINE = re.compile(r"\sstyle=([\"'])(.*?)\1", re.S | re.I)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
RULE = re.compile(r"([^{};]+)\{([^{}]*)\}")
DECLARATION = re.compile(r";(?![^(]*\))")
COLOR = re.compile(
    rf"#(?:[0-9a-f]{{8}}|[0-9a-f]{{6}}|[0-9a-f]{{3,4}})\b|rgba?\([^)]*\)|(?<![\w-])(?:{'|'.join(ImageColor.colormap)})(?![\w-])",
    re.I,
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
HINTS = {
    "bgcolor": "background-color", "bordercolor": "border-color", "color": "color",
    "face": "font-family", "size": "font-size", "align": "text-align", "valign": "vertical-align",
    "width": "width", "height": "height", "border": "border", "cellspacing": "border-spacing",
    "cellpadding": "padding",
}  # fmt: skip
"""Attributes that style a page as CSS does. Source: HTML Standard, 15.3, presentational hints."""
HINTED = {"table", "tr", "td", "th", "font", "body"}
HINT = re.compile(rf"\s({'|'.join(HINTS)})=(?:\"([^\"]*)\"|([^\s>\"]+))", re.I)
BLANK = "<!doctype html><html><head></head><body></body></html>"

Change = Callable[["Declaration"], str | None]
"""The new value of a declaration, or None to drop it."""


class Declaration(NamedTuple):
    """One line of CSS; `selector` is that of its rule, or one that finds its element."""

    selector: str
    name: str
    value: str


def ladder(html: str, *, late: bool = False) -> dict[str, str]:
    """Worse and worse copies of a page, the page itself first; late: by one late style sheet.

    A wrong colour of the ground stays to the end: without it the bare page would be better again.
    """
    blank = with_css(html, "body{display:none!important}*{background:none!important}")
    return {
        "perfect": html,
        "near-perfect": _changed(html, _colors_off, late=late),
        "colours wrong": _changed(html, _colors_wrong, late=late),
        "half the styles": _changed(html, _only(PAINT, FRAME), late=late),
        "no layout": _changed(html, _only(PAINT), late=late),
        "no styles": _changed(html, _only(), late=late),
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
    """Two honest unfinished pages, with all styles.

    One breaks off in the middle; in the other all is laid out, but the second half is not shown.
    """
    body = re.search(r"<body[^>]*>", html, re.I)
    start = body.end() if body else 0
    cut = html.rfind("<", start, start + (len(html) - start) // 2)
    tree = tree_of(html)
    leaves = [e for e in _body(tree).descendants() if isinstance(e, Element) and not _elements(e)]
    for leaf in leaves[len(leaves) // 2 :]:
        leaf.attrs["style"] = f"{leaf.attrs.get('style') or ''};visibility:hidden"
    return tree_of(html[:cut]).serialize(), tree.serialize()


def declarations(html: str) -> Iterator[Declaration]:
    """Every declaration of a page, of its style sheets and its elements, in order."""
    found: list[Declaration] = []

    def note(declaration: Declaration) -> str:
        found.append(declaration)
        return declaration.value

    _changed(html, note)
    return iter(found)


def _changed(html: str, change: Change, *, late: bool = False) -> str:
    """A page with its declarations changed, in place or by a late style sheet."""
    overrides: list[str] = []

    def changed(selector: str, name: str, value: str) -> str | None:
        new = change(Declaration(selector, name, value))
        if new != value:
            plain = re.sub(r"\s*!important", "", new or "revert")
            overrides.append(f"{selector}{{{name}:{plain}!important}}")
        return new

    def block(selector: str, text: str) -> str:
        kept = []
        for line in DECLARATION.split(text):
            name, colon, value = (piece.strip() for piece in line.partition(":"))
            new = changed(selector, name.lower(), value) if colon else None
            kept += [] if new is None else [f"{name}: {new}"]
        return "; ".join(kept)

    def rule(match: re.Match[str]) -> str:
        if re.match(r"\s*(@|(from|to)\b|\d)", match[1]):
            return match[0]
        return f"{match[1]}{{ {block(match[1].strip(), match[2])} }}"

    def sheet(match: re.Match[str]) -> str:
        return match[1] + RULE.sub(rule, COMMENT.sub("", match[2])) + match[3]

    def tag(match: re.Match[str]) -> str:
        element = match[1].lower()

        def inline(style: re.Match[str]) -> str:
            text = entities.unescape(style[2])
            quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\a ")
            selector = "body" if element == "body" else f'[style="{quoted}"]'
            return f' style="{entities.escape(block(selector, text))}"'

        def hint(attribute: re.Match[str]) -> str:
            name, value = attribute[1].lower(), attribute[2] or attribute[3] or ""
            selector = "body" if element == "body" else f'[{name}="{value}"]'
            new = changed(selector, HINTS[name], value)
            return "" if new is None else f' {name}="{new}"'

        attributes = HINT.sub(hint, match[2]) if element in HINTED else match[2]
        return f"<{match[1]}{INLINE.sub(inline, attributes)}>"

    edited = TAG.sub(tag, STYLE.sub(sheet, html))
    return with_css(html, "".join(overrides)) if late else edited


def with_css(html: str, css: str) -> str:
    """A page with one more style sheet, which comes last in its head."""
    place = re.search(r"</head>|<body", html, re.I)
    at = place.start() if place else 0
    return f"{html[:at]}<style>{css}</style>{html[at:]}"


def _colors_off(declaration: Declaration) -> str:
    def nudged(*channels: int) -> tuple[int, ...]:
        return tuple(channel - 9 if channel > 127 else channel + 9 for channel in channels)

    return _recolored(declaration.value, nudged)


def _colors_wrong(declaration: Declaration) -> str:
    return _recolored(declaration.value, _turned)


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


def _recolored(value: str, new: Callable[[int, int, int], tuple[int, ...]]) -> str:
    def replace(match: re.Match[str]) -> str:
        *color, alpha = _rgba(match[0])
        red, green, blue = new(*color)
        if alpha < 1:
            return f"rgba({red},{green},{blue},{alpha:g})"
        return f"#{red:02x}{green:02x}{blue:02x}"

    return value if "url(" in value else COLOR.sub(replace, value)


def channels(value: str) -> list[int]:
    """Red, green and blue, 0 to 255, of all colours in a value of CSS, one after the other."""
    return [channel for match in COLOR.finditer(value) for channel in _rgba(match[0])[:3]]


def _rgba(color: str) -> tuple[int, int, int, float]:
    if color.lower().startswith("rgb"):
        numbers = re.findall(r"([\d.]+)(%?)", color)
        scales = (2.55, 2.55, 2.55, 0.01)
        values = [float(n) * (s if p else 1) for (n, p), s in zip(numbers, scales, strict=False)]
        red, green, blue, alpha = [*values, 1.0][:4]
        return round(red), round(green), round(blue), alpha
    red, green, blue, *rest = ImageColor.getrgb(color)
    return red, green, blue, round(rest[0] / 255, 3) if rest else 1.0


def tree_of(html: str) -> TreeDom:
    """The tree of a page, as a browser would build it; `serialize` writes it down again."""
    return parse(html, HtmlOptions())


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


def before_end(html: str, extra: str) -> str:
    """A page with something more at the end of its body."""
    at = html.lower().rfind("</body")
    return f"{html[:at]}{extra}{html[at:]}" if at >= 0 else html + extra
