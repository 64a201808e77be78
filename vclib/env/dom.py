"""The elements and texts of a page, read from one DOM snapshot of the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vclib.env.raster import Color, Rect, parse_color, parse_px

STYLES = (
    "display", "visibility", "opacity", "color", "-webkit-text-fill-color", "font-size",
    "background-color", "background-image", "background-clip", "overflow-x", "overflow-y",
    "position", "transform", "border-top-width", "border-right-width", "border-bottom-width",
    "border-left-width", "border-top-color", "border-right-color", "border-bottom-color",
    "border-left-color", "clip-path", "mask-image", "filter", "mix-blend-mode", "text-overflow",
)  # fmt: skip
SNAPSHOT_REQUEST: dict[str, Any] = {"computedStyles": list(STYLES), "includePaintOrder": True}
SIDES = ("top", "right", "bottom", "left")
# Characters that have no width, with which a text could be stuffed unseen.
WIDTHLESS = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@dataclass
class Element:
    """One laid-out element, with what it inherits; rectangles in viewport pixels."""

    name: str
    style: dict[str, str]
    attributes: dict[str, str]
    rect: Rect
    paint: int  # elements painted later have a higher number
    parent: Element | None
    opacity: float  # product over the ancestors
    altered: bool  # a filter, blend, mask or clip path of it or an ancestor changes the paint
    in_drawing: bool  # inside an SVG, all of which counts as one picture
    clip: Rect  # of the element itself
    inner_clip: Rect  # of its contents
    absolute_clip: Rect  # of absolutely placed descendants
    fixed_clip: Rect

    @property
    def font_size(self) -> float:
        return parse_px(self.style["font-size"])

    @property
    def block(self) -> Element:
        """The nearest ancestor, or the element itself, that makes a block of its text."""
        at = self
        while at.parent and at.style["display"] in ("inline", "contents", "ruby", "ruby-text"):
            at = at.parent
        return at

    def border(self, side: str) -> tuple[float, Color] | None:
        """Width and colour of a painted border."""
        width, parsed = (
            parse_px(self.style[f"border-{side}-width"]),
            parse_color(self.style[f"border-{side}-color"]),
        )
        return (width, parsed[0]) if width > 0 and parsed and parsed[1] > 0.05 else None


@dataclass
class Fragment:
    """The part of a text that stands on one line; rect as laid out, in viewport pixels.

    Of the text in a form control only the control's rectangle is known: then `loose` is set.
    """

    text: str
    rect: Rect
    element: Element
    loose: bool = False


class Snapshot:
    """An answer to DOMSnapshot.captureSnapshot with SNAPSHOT_REQUEST, with names for its parts.

    Source: Chrome DevTools Protocol, domain DOMSnapshot.
    """

    def __init__(self, snapshot: dict[str, Any]):
        self.strings: list[str] = snapshot["strings"]
        document = snapshot["documents"][0]
        self.nodes, self.layout = document["nodes"], document["layout"]
        self.text_boxes = document["textBoxes"]
        self.parents: list[int] = self.nodes["parentIndex"]
        self.scroll = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
        self.height = int(document["contentHeight"])
        self.url = self.strings[document["documentURL"]]

    def string(self, index: int) -> str:
        return self.strings[index] if index >= 0 else ""

    def sparse(self, key: str) -> dict[int, str]:
        """A column that only some nodes have."""
        column = self.nodes[key]
        return {
            node: self.string(value)
            for node, value in zip(column["index"], column["value"], strict=True)
        }

    def rect(self, bounds: list[float]) -> Rect:
        x, y, width, height = bounds
        left, top = x - self.scroll[0], y - self.scroll[1]
        return left, top, left + width, top + height

    def nearest(self, node: int, elements: dict[int, Element]) -> int:
        """The node itself or its nearest ancestor that is laid out, or -1."""
        while node >= 0 and node not in elements:
            node = self.parents[node]
        return node


def read_elements(snapshot: Snapshot, width: int, height: int) -> dict[int, Element]:
    """The laid-out elements by node, parents first; width and height are the viewport's."""
    elements: dict[int, Element] = {}
    layout = snapshot.layout
    looks: dict[tuple[int, ...], dict[str, str]] = {}  # many elements share one
    for node, styles, bounds, paint, text in zip(
        layout["nodeIndex"], layout["styles"], layout["bounds"], layout["paintOrders"],
        layout["text"], strict=True,
    ):  # fmt: skip
        is_element = snapshot.nodes["nodeType"][node] == 1
        if not is_element or text >= 0 or node in elements or len(styles) < len(STYLES):
            continue
        if (style := looks.get(key := tuple(styles))) is None:
            style = looks[key] = dict(zip(STYLES, map(snapshot.string, styles), strict=True))
        name = snapshot.string(snapshot.nodes["nodeName"][node])
        words = [snapshot.string(word) for word in snapshot.nodes["attributes"][node]]
        attributes = dict(zip(words[::2], words[1::2], strict=True))
        parent = elements.get(snapshot.nearest(snapshot.parents[node], elements))
        rect = snapshot.rect(bounds)
        clips = _clips(name, style, rect, parent, (0.0, 0.0, float(width), float(height)))
        altered = (
            style["filter"] != "none" or style["clip-path"] != "none"
            or style["mask-image"] != "none" or style["mix-blend-mode"] != "normal"
        )  # fmt: skip
        elements[node] = Element(
            name, style, attributes, rect, paint, parent,
            float(style["opacity"] or 1) * (parent.opacity if parent else 1.0),
            altered or (parent is not None and parent.altered),
            parent is not None and (parent.in_drawing or parent.name == "svg"),
            *clips,
        )  # fmt: skip
    return elements


def _clips(
    name: str, style: dict[str, str], rect: Rect, parent: Element | None, viewport: Rect
) -> tuple[Rect, Rect, Rect, Rect]:
    """Where an element, its contents, and what is placed inside it may be painted.

    Source: CSS Overflow 3 (section 3) and CSS Positioned Layout 3 (containing blocks).
    """
    if parent is None:
        return viewport, viewport, viewport, viewport
    position = style["position"]
    clip = {"absolute": parent.absolute_clip, "fixed": parent.fixed_clip}.get(
        position, parent.inner_clip
    )
    left, top, right, bottom = clip
    # The overflow of the root, or else of the body, is the viewport's.
    to_viewport = name == "BODY" and parent.style["overflow-x"] == "visible"
    if style["display"] != "inline" and not to_viewport:
        if style["overflow-x"] != "visible":
            left = max(left, rect[0] + parse_px(style["border-left-width"]))
            right = min(right, rect[2] - parse_px(style["border-right-width"]))
        if style["overflow-y"] != "visible":
            top = max(top, rect[1] + parse_px(style["border-top-width"]))
            bottom = min(bottom, rect[3] - parse_px(style["border-bottom-width"]))
    inner = (left, top, right, bottom)
    contains_fixed = style["transform"] != "none" or style["filter"] != "none"
    contains_absolute = position != "static" or contains_fixed
    return (
        clip,
        inner,
        inner if contains_absolute else parent.absolute_clip,
        inner if contains_fixed else parent.fixed_clip,
    )


def read_fragments(snapshot: Snapshot, elements: dict[int, Element]) -> list[Fragment]:
    """Every piece of text that the layout knows, in document order."""
    found = list(_line_boxes(snapshot, elements))
    spoken_for = {node for node, _ in found}
    for node, text in _control_texts(snapshot, elements):
        if node not in spoken_for:
            found.append((node, Fragment(text, elements[node].rect, elements[node], loose=True)))
    return [fragment for _, fragment in sorted(found, key=lambda item: item[0])]


def _line_boxes(snapshot: Snapshot, elements: dict[int, Element]) -> Iterator[tuple[int, Fragment]]:
    boxes, pseudo = snapshot.text_boxes, snapshot.sparse("pseudoType")
    for index, bounds, start, length in zip(
        boxes["layoutIndex"], boxes["bounds"], boxes["start"], boxes["length"], strict=True
    ):
        node = snapshot.layout["nodeIndex"][index]
        at = snapshot.nearest(node, elements)
        if at < 0 or pseudo.get(node) == "marker":
            continue
        text = snapshot.string(snapshot.layout["text"][index])
        if text.isascii():
            text = text[start : start + length]
        else:  # the offsets count UTF-16 code units
            units = text.encode("utf-16-le", "surrogatepass")[2 * start : 2 * (start + length)]
            text = WIDTHLESS.sub("", units.decode("utf-16-le", "replace"))
        yield node, Fragment(text, snapshot.rect(bounds), elements[at])


def _control_texts(snapshot: Snapshot, elements: dict[int, Element]) -> Iterator[tuple[int, str]]:
    """Values, labels and placeholders of form controls: the snapshot has no layout of them."""
    values = snapshot.sparse("inputValue") | snapshot.sparse("textValue")
    for node, element in elements.items():
        if element.name not in ("INPUT", "TEXTAREA"):
            continue
        value, kind = values.get(node, ""), element.attributes.get("type", "text").lower()
        if kind == "password":
            value = "•" * len(value)
        if kind in ("submit", "reset"):
            value = value or kind.capitalize()
        if kind not in ("checkbox", "radio", "range", "color", "image", "file"):
            yield node, value or element.attributes.get("placeholder", "")
    for option in snapshot.nodes["optionSelected"]["index"]:
        select = snapshot.nearest(option, elements)
        if select >= 0 and elements[select].name == "SELECT":
            texts = (n for n, parent in enumerate(snapshot.parents) if parent == option)
            yield select, " ".join(snapshot.string(snapshot.nodes["nodeValue"][n]) for n in texts)
