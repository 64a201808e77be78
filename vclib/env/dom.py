"""What a page shows, read from one DOM snapshot and proved by the pixels.

The snapshot says what should be there; only the pixels say whether it can be seen. A piece of
text counts when both agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

Color = tuple[int, int, int]
Rect = tuple[float, float, float, float]  # left, top, right, bottom

STYLES = (
    "display", "visibility", "opacity", "color", "-webkit-text-fill-color", "fill", "font-size",
    "background-color", "background-image", "background-clip", "overflow-x", "overflow-y",
    "position", "transform", "border-top-width", "border-right-width", "border-bottom-width",
    "border-left-width", "border-top-color", "border-right-color", "border-bottom-color",
    "border-left-color", "clip-path", "mask-image", "filter", "mix-blend-mode",
)  # fmt: skip
SNAPSHOT_REQUEST: dict[str, Any] = {"computedStyles": list(STYLES), "includePaintOrder": True}

MIN_FONT_SIZE = 4.0  # px; below this nothing can be read
MIN_CONTRAST = 24.0  # largest channel difference between text and its ground
MIN_INK = 0.3  # how far from ground to text colour a pixel must be to count as ink
FORM_CONTROLS = {"INPUT", "BUTTON", "SELECT", "TEXTAREA", "PROGRESS", "METER"}
REPLACED = {"IMG", "svg", "CANVAS", "VIDEO", *FORM_CONTROLS}
MAX_BOXES = 400


@dataclass(frozen=True)
class TextBlock:
    """Text that can be read in the picture, with its rectangle in viewport pixels."""

    text: str
    x: float
    y: float
    width: float
    height: float
    color: Color
    background: Color
    font_size: float


@dataclass(frozen=True)
class Box:
    """A painted rectangle (ground, picture or border), in viewport pixels."""

    x: float
    y: float
    width: float
    height: float
    color: Color


@dataclass(frozen=True)
class Contents:
    """The visible contents of a page; page_height in pixels."""

    text_blocks: tuple[TextBlock, ...]
    boxes: tuple[Box, ...]
    background: Color
    page_height: int


@dataclass
class Element:
    """One laid-out element, with what it inherits from its ancestors."""

    name: str
    style: dict[str, str]
    rect: Rect
    paint: int
    node: int
    parent: Element | None
    opacity: float  # product over the ancestors
    altered: bool  # a filter, blend, mask or clip path may change what is painted
    clip: Rect  # of the element itself
    inner_clip: Rect  # of its contents
    absolute_clip: Rect  # of absolutely placed descendants
    fixed_clip: Rect

    @property
    def is_block(self) -> bool:
        return self.style["display"] not in ("inline", "contents") and "ruby" not in self.style["display"]


@dataclass
class Fragment:
    """The part of a text that stands on one line."""

    text: str
    rect: Rect
    element: Element
    color: Color
    background: Color


def read_snapshot(snapshot: dict[str, Any], pixels: np.ndarray) -> Contents:
    """Visible text, boxes and ground of a page.

    snapshot: answer to DOMSnapshot.captureSnapshot with SNAPSHOT_REQUEST (Chrome DevTools
    Protocol, domain DOMSnapshot); pixels: uint8 RGB [H, W, 3] of the viewport.
    """
    document = snapshot["documents"][0]
    strings = snapshot["strings"]
    elements = _elements(document, strings, pixels.shape[1], pixels.shape[0])
    background = _page_background(elements, pixels)
    fragments = _fragments(document, strings, elements)
    covers = _Covers(elements)
    seen = [
        proved
        for fragment in fragments
        if not covers.hide(fragment) and (proved := _prove(fragment, pixels))
    ]
    return Contents(
        tuple(_blocks(_without_stacked(seen))),
        tuple(_boxes(elements, background, pixels)),
        background,
        int(document["contentHeight"]),
    )


def _elements(document: dict, strings: list[str], width: int, height: int) -> dict[int, Element]:
    """Elements by node index; a node that has no layout is missing."""
    nodes, layout = document["nodes"], document["layout"]
    parents, names, types = nodes["parentIndex"], nodes["nodeName"], nodes["nodeType"]
    dx, dy = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
    viewport = (0.0, 0.0, float(width), float(height))
    elements: dict[int, Element] = {}
    html_scrolls = False
    for node, styles, (x, y, w, h), paint, text in zip(
        layout["nodeIndex"], layout["styles"], layout["bounds"], layout["paintOrders"],
        layout["text"], strict=True,
    ):  # fmt: skip
        if types[node] != 1 or text >= 0 or node in elements:
            continue
        style = dict(zip(STYLES, (strings[s] if s >= 0 else "" for s in styles), strict=False))
        if len(style) < len(STYLES):
            continue
        at, parent = parents[node], None
        while at >= 0 and (parent := elements.get(at)) is None:
            at = parents[at]
        rect = (x - dx, y - dy, x - dx + w, y - dy + h)
        if parent is None:
            inherited, absolute, fixed = viewport, viewport, viewport
        else:
            inherited, absolute, fixed = parent.inner_clip, parent.absolute_clip, parent.fixed_clip
        position = style["position"]
        clip = {"absolute": absolute, "fixed": fixed}.get(position, inherited)
        inner = clip
        name = strings[names[node]]
        if name == "HTML":
            html_scrolls = style["overflow-x"] != "visible"
        # The overflow of the root, or else of the body, applies to the viewport instead.
        if style["display"] != "inline" and name != "HTML" and (name != "BODY" or html_scrolls):
            padding = (
                rect[0] + _px(style["border-left-width"]), rect[1] + _px(style["border-top-width"]),
                rect[2] - _px(style["border-right-width"]), rect[3] - _px(style["border-bottom-width"]),
            )  # fmt: skip
            left, top, right, bottom = clip
            if style["overflow-x"] != "visible":
                left, right = max(left, padding[0]), min(right, padding[2])
            if style["overflow-y"] != "visible":
                top, bottom = max(top, padding[1]), min(bottom, padding[3])
            inner = (left, top, right, bottom)
        changed = style["transform"] != "none" or style["filter"] != "none"
        own_altered = (
            style["filter"] != "none" or style["clip-path"] != "none"
            or style["mask-image"] != "none" or style["mix-blend-mode"] != "normal"
        )  # fmt: skip
        elements[node] = Element(
            name, style, rect, paint, node, parent,
            float(style["opacity"] or 1) * (parent.opacity if parent else 1.0),
            own_altered or (parent is not None and parent.altered),
            clip, inner,
            inner if position != "static" or changed else absolute,
            inner if changed else fixed,
        )  # fmt: skip
    return elements


def _fragments(document: dict, strings: list[str], elements: dict[int, Element]) -> list[Fragment]:
    """Pieces of text that the layout places in the viewport, in document order."""
    nodes, layout, boxes = document["nodes"], document["layout"], document["textBoxes"]
    dx, dy = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
    pseudo = dict(zip(*(nodes["pseudoType"][key] for key in ("index", "value")), strict=True))
    found: list[tuple[int, Fragment]] = []

    def add(node: int, text: str, rect: Rect, element: Element | None) -> None:
        if element is None or not text.strip() or not _may_show(element):
            return
        clipped = _intersect(rect, element.inner_clip)
        area, whole = _area(clipped), _area(rect)
        if area <= 0 or whole <= 0 or rect[3] - rect[1] < MIN_FONT_SIZE:
            return
        if clipped[3] - clipped[1] < 0.5 * (rect[3] - rect[1]):
            return
        share = (clipped[2] - clipped[0]) / (rect[2] - rect[0])
        if share < 0.98:
            hidden_left = (clipped[0] - rect[0]) / (rect[2] - rect[0])
            start = round(len(text) * hidden_left)
            text = text[start : start + round(len(text) * share)]
        if text.strip():
            found.append((node, Fragment(text, clipped, element, (0, 0, 0), (0, 0, 0))))

    for index, (x, y, w, h), start, length in zip(
        boxes["layoutIndex"], boxes["bounds"], boxes["start"], boxes["length"], strict=True
    ):
        node = layout["nodeIndex"][index]
        if node in pseudo and strings[pseudo[node]] == "marker":
            continue
        text = strings[layout["text"][index]]
        if not text.isascii():  # offsets count UTF-16 code units
            units = text.encode("utf-16-le", "surrogatepass")[2 * start : 2 * (start + length)]
            text = units.decode("utf-16-le", "replace")
        else:
            text = text[start : start + length]
        at = node
        while at >= 0 and at not in elements:
            at = nodes["parentIndex"][at]
        add(node, text, (x - dx, y - dy, x - dx + w, y - dy + h), elements.get(at))
    for node, text in _control_texts(document, strings, elements):
        add(node, text, elements[node].rect, elements[node])
    found.sort(key=lambda item: item[0])
    return [fragment for _, fragment in found]


def _control_texts(
    document: dict, strings: list[str], elements: dict[int, Element]
) -> list[tuple[int, str]]:
    """Values and placeholders of form controls, whose inner text the snapshot leaves out."""
    nodes = document["nodes"]
    values = {
        index: strings[value]
        for key in ("inputValue", "textValue")
        for index, value in zip(nodes[key]["index"], nodes[key]["value"], strict=True)
    }
    laid_out = {document["layout"]["nodeIndex"][i] for i in document["textBoxes"]["layoutIndex"]}
    spoken_for = {nodes["parentIndex"][node] for node in laid_out}
    texts = []
    for node, element in elements.items():
        if element.name not in ("INPUT", "TEXTAREA") or node in spoken_for:
            continue
        pairs = [strings[i] for i in nodes["attributes"][node]]
        attributes = dict(zip(pairs[::2], pairs[1::2], strict=True))
        kind = attributes.get("type", "text").lower()
        if kind in ("checkbox", "radio", "range", "color", "image", "hidden", "file"):
            continue
        text = values.get(node) or attributes.get("placeholder", "")
        if kind == "password" and values.get(node):
            text = "•" * len(text)
        texts.append((node, text))
    options = [n for n in nodes["optionSelected"]["index"]]
    for option in options:
        select = option
        while select >= 0 and strings[nodes["nodeName"][select]] != "SELECT":
            select = nodes["parentIndex"][select]
        if select in elements:
            words = [
                strings[nodes["nodeValue"][n]]
                for n, parent in enumerate(nodes["parentIndex"])
                if parent == option and nodes["nodeType"][n] == 3
            ]
            texts.append((select, " ".join(words)))
    return texts


def _may_show(element: Element) -> bool:
    return (
        element.style["visibility"] == "visible"
        and element.opacity > 0.05
        and _px(element.style["font-size"]) >= MIN_FONT_SIZE
    )


def _text_color(element: Element) -> tuple[Color, float] | None:
    """Colour and alpha of the text, or None where only the pixels can tell."""
    style = element.style
    in_svg = element.name in ("text", "tspan", "textPath")
    parsed = _color(style["fill"] if in_svg else style["-webkit-text-fill-color"])
    if parsed is None or element.altered:
        return None
    color, alpha = parsed
    ancestor: Element | None = element
    while alpha < 0.5 and ancestor is not None:
        if "text" in ancestor.style["background-clip"]:
            return None
        ancestor = ancestor.parent
    return color, alpha * element.opacity


def _prove(fragment: Fragment, pixels: np.ndarray) -> Fragment | None:
    """The fragment with the colours that are really there, or None if there is no ink."""
    crop = _crop(pixels, fragment.rect)
    if crop.size == 0:
        return None
    ground = np.array(_mode(crop), np.float32)
    difference = crop.astype(np.float32) - ground
    claimed = _text_color(fragment.element)
    if claimed is None:
        contrast = np.abs(difference).max(-1)
        ink = contrast > max(MIN_CONTRAST, 0.5 * float(contrast.max()))
        seen = np.median(crop[ink], 0) if ink.any() else ground
    else:
        seen = ground + (np.array(claimed[0], np.float32) - ground) * claimed[1]
        direction = seen - ground
        if np.abs(direction).max() < MIN_CONTRAST:
            return None
        length2 = float(direction @ direction)
        along = difference @ direction / length2
        off = np.linalg.norm(difference - along[..., None] * direction, axis=-1)
        ink = (along > MIN_INK) & (off < 0.4 * length2**0.5)
    letters = len(re.sub(r"\s", "", fragment.text))
    size = min(_px(fragment.element.style["font-size"]), fragment.rect[3] - fragment.rect[1])
    if ink.sum() < max(2.0, 0.012 * size * size * letters):
        return None
    return Fragment(
        fragment.text, fragment.rect, fragment.element, _rounded(seen), _rounded(ground)
    )


class _Covers:
    """Opaque elements that may be painted over text."""

    def __init__(self, elements: dict[int, Element]):
        opaque = [e for e in elements.values() if _is_opaque(e)]
        clipped = [_intersect(e.rect, e.clip) for e in opaque]
        self.rects = np.array(clipped, np.float32).reshape(-1, 4)
        self.paint = np.array([e.paint for e in opaque])

    def hide(self, fragment: Fragment) -> bool:
        later = self.rects[self.paint > fragment.element.paint]
        if not len(later):
            return False
        left, top, right, bottom = fragment.rect
        width = np.minimum(later[:, 2], right) - np.maximum(later[:, 0], left)
        height = np.minimum(later[:, 3], bottom) - np.maximum(later[:, 1], top)
        shared = np.clip(width, 0, None) * np.clip(height, 0, None)
        return bool(shared.max() > 0.5 * _area(fragment.rect))


def _is_opaque(element: Element) -> bool:
    ground = _color(element.style["background-color"])
    return (
        ground is not None
        and ground[1] * element.opacity > 0.95
        and element.style["visibility"] == "visible"
        and not element.altered
        and "text" not in element.style["background-clip"]
        and element.name not in ("HTML", "BODY")
    )


def _without_stacked(fragments: list[Fragment]) -> list[Fragment]:
    """Of texts that stand on one another only one can own the ink: the plain one painted last."""
    if len(fragments) < 2:
        return fragments
    rects = np.array([f.rect for f in fragments], np.float32)
    width = np.minimum(rects[:, None, 2], rects[:, 2]) - np.maximum(rects[:, None, 0], rects[:, 0])
    height = np.minimum(rects[:, None, 3], rects[:, 3]) - np.maximum(rects[:, None, 1], rects[:, 1])
    shared = np.clip(width, 0, None) * np.clip(height, 0, None)
    areas = np.array([_area(f.rect) for f in fragments])
    rank = [(not f.element.altered, f.element.paint, i) for i, f in enumerate(fragments)]
    dropped: set[int] = set()
    for i, j in np.argwhere(np.triu(shared > 0.5 * np.minimum(areas[:, None], areas), 1)):
        if i not in dropped and j not in dropped:
            dropped.add(int(i if rank[i] < rank[j] else j))
    return [f for i, f in enumerate(fragments) if i not in dropped]


def _blocks(fragments: list[Fragment]) -> list[TextBlock]:
    """Consecutive fragments of one block element, joined."""
    runs: list[list[Fragment]] = []
    last: Element | None = None
    for fragment in fragments:
        block = fragment.element
        while not block.is_block and block.parent is not None:
            block = block.parent
        if block is not last:
            runs.append([])
        last = block
        runs[-1].append(fragment)
    blocks = []
    for run in runs:
        text = run[0].text
        for before, after in zip(run, run[1:], strict=False):
            same_line = after.rect[1] < before.rect[3] and before.rect[1] < after.rect[3]
            gap = after.rect[0] - before.rect[2]
            size = _px(after.element.style["font-size"])
            text += ("" if same_line and gap < 0.2 * size else " ") + after.text
        main = max(run, key=lambda f: len(f.text))
        left, top = min(f.rect[0] for f in run), min(f.rect[1] for f in run)
        right, bottom = max(f.rect[2] for f in run), max(f.rect[3] for f in run)
        blocks.append(
            TextBlock(
                " ".join(text.split()), left, top, right - left, bottom - top,
                main.color, main.background, _px(main.element.style["font-size"]),
            )
        )  # fmt: skip
    return blocks


def _page_background(elements: dict[int, Element], pixels: np.ndarray) -> Color:
    """Colour of the canvas: the root's ground or else the body's, over white."""
    for name in ("HTML", "BODY"):
        for element in elements.values():
            if element.name == name:
                parsed = _color(element.style["background-color"])
                if element.style["background-image"] != "none":
                    return _mode(pixels)
                if parsed and parsed[1] > 0:
                    color, alpha = parsed
                    return _rounded(np.array(color) * alpha + 255 * (1 - alpha))
    return (255, 255, 255)


def _boxes(elements: dict[int, Element], background: Color, pixels: np.ndarray) -> list[Box]:
    """Painted elements that stand out from what lies behind them."""
    boxes: list[Box] = []
    behind: dict[int, Color] = {}
    canvas_taken = False
    for node, element in elements.items():
        ground = behind[element.parent.node] if element.parent else background
        behind[node] = ground
        style = element.style
        if element.name in ("HTML", "BODY") and not canvas_taken:
            parsed = _color(style["background-color"])
            canvas_taken = bool(parsed and parsed[1] > 0) or style["background-image"] != "none"
            continue
        if style["visibility"] != "visible" or element.opacity <= 0.05:
            continue
        rect = _intersect(element.rect, element.clip)
        if rect[2] - rect[0] < 1 or rect[3] - rect[1] < 1 or len(boxes) >= MAX_BOXES:
            continue
        color = _box_color(element, rect, ground, pixels)
        if color is not None:
            if not _has_border(element) or _color(style["background-color"])[1] > 0:  # type: ignore[index]
                behind[node] = color
            left, top, right, bottom = rect
            boxes.append(Box(left, top, right - left, bottom - top, color))
    return boxes


def _box_color(element: Element, rect: Rect, ground: Color, pixels: np.ndarray) -> Color | None:
    """The colour of a painted element that can be seen, or None."""
    style = element.style
    parsed = _color(style["background-color"])
    alpha = parsed[1] if parsed else 0.0
    crop = _crop(pixels, rect)
    if crop.size == 0 or "text" in style["background-clip"]:
        return None
    if style["background-image"] != "none" or (element.name in REPLACED and alpha == 0):
        color = _mode(crop)
        varied = int(np.ptp(crop.reshape(-1, 3), axis=0).max()) > 8
        return color if varied or _far(color, ground, 8) else None
    bordered = _has_border(element)
    if alpha > 0 and parsed:
        mixed = alpha * element.opacity
        if mixed > 0.99 and not element.altered:
            color = parsed[0]
        else:
            color = _rounded(np.array(parsed[0]) * mixed + np.array(ground) * (1 - mixed))
        near = np.abs(crop.astype(np.int16) - color).max(-1) <= 12
        if near.mean() > 0.02 and (_far(color, ground, 6) or bordered):
            return color
    if bordered:
        sides = ("top", "right", "bottom", "left")
        side = next(s for s in sides if _px(style[f"border-{s}-width"]) > 0 and _border(style, s))
        border = _border(style, side)
        assert border is not None
        near = np.abs(crop.astype(np.int16) - border).max(-1) <= 40
        if near.any() and _far(border, ground, 6):
            return border
    return None


def _border(style: dict[str, str], side: str) -> Color | None:
    parsed = _color(style[f"border-{side}-color"])
    return parsed[0] if parsed and parsed[1] > 0.05 else None


def _has_border(element: Element) -> bool:
    style = element.style
    return any(
        _px(style[f"border-{side}-width"]) > 0 and _border(style, side)
        for side in ("top", "right", "bottom", "left")
    )


def _color(css: str) -> tuple[Color, float] | None:
    """Computed `rgb(…)`, `rgba(…)` or `color(srgb …)` as colour and alpha."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+(?:e-?\d+)?", css)]
    if css.startswith("rgb") and len(numbers) >= 3:
        color = tuple(int(round(min(255, max(0, n)))) for n in numbers[:3])
    elif css.startswith("color(srgb ") and len(numbers) >= 3:
        color = tuple(int(round(255 * min(1, max(0, n)))) for n in numbers[:3])
    else:
        return None
    return color, numbers[3] if len(numbers) > 3 else 1.0  # type: ignore[return-value]


def _px(css: str) -> float:
    return float(css[:-2]) if css.endswith("px") else 0.0


def _intersect(a: Rect, b: Rect) -> Rect:
    return max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])


def _area(rect: Rect) -> float:
    return max(0.0, rect[2] - rect[0]) * max(0.0, rect[3] - rect[1])


def _crop(pixels: np.ndarray, rect: Rect) -> np.ndarray:
    left, top = max(0, int(rect[0])), max(0, int(rect[1]))
    return pixels[top : int(np.ceil(rect[3])), left : int(np.ceil(rect[2]))]


def _mode(crop: np.ndarray) -> Color:
    """The most frequent colour."""
    flat = crop.reshape(-1, 3).astype(np.int32)
    values, counts = np.unique(flat @ np.array([65536, 256, 1]), return_counts=True)
    value = int(values[counts.argmax()])
    return value >> 16, value >> 8 & 255, value & 255


def _rounded(color: np.ndarray) -> Color:
    r, g, b = (int(round(float(c))) for c in np.clip(color, 0, 255))
    return r, g, b


def _far(a: Color, b: Color, distance: int) -> bool:
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) > distance
