"""The styles of a page, declaration by declaration, wherever they stand in its source."""

from __future__ import annotations

import html as entities
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from markupever import HtmlOptions, parse
from markupever.dom import TreeDom
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
HINTS = {
    "bgcolor": "background-color", "bordercolor": "border-color", "color": "color",
    "face": "font-family", "size": "font-size", "align": "text-align", "valign": "vertical-align",
    "width": "width", "height": "height", "border": "border", "cellspacing": "border-spacing",
    "cellpadding": "padding",
}  # fmt: skip
"""Attributes that style a page as CSS does. Source: HTML Standard, 15.3, presentational hints."""
HINTED = {"table", "tr", "td", "th", "font", "body"}
HINT = re.compile(rf"\s({'|'.join(HINTS)})=(?:\"([^\"]*)\"|([^\s>\"]+))", re.I)

Change = Callable[["Declaration"], str | None]
"""The new value of a declaration, or None to drop it."""


class Declaration(NamedTuple):
    """One line of CSS; `selector` is that of its rule, or one that finds its element."""

    selector: str
    name: str
    value: str


def declarations(html: str) -> Iterator[Declaration]:
    """Every declaration of a page, of its style sheets and its elements, in order."""
    found: list[Declaration] = []

    def note(declaration: Declaration) -> str:
        found.append(declaration)
        return declaration.value

    changed_page(html, note)
    return iter(found)


def changed_page(html: str, change: Change, *, late: bool = False) -> str:
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


def before_end(html: str, extra: str) -> str:
    """A page with something more at the end of its body."""
    at = html.lower().rfind("</body")
    return f"{html[:at]}{extra}{html[at:]}" if at >= 0 else html + extra


def recolored(value: str, new: Callable[[int, int, int], tuple[int, ...]]) -> str:
    """A value of CSS with each of its colours, red, green, blue from 0 to 255, made another."""

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
