"""What can really be seen of a page.

The snapshot says what should be there; only the pixels say whether it shows. A piece of text
counts when both agree, so that text which is covered, washed out, masked or drawn in the colour
of its ground counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from typing import Any

import numpy as np

from vclib.env.boxes import (
    MIN_OPACITY,
    PICTURES,
    Box,
    Painted,
    page_background,
    painted_elements,
    read_boxes,
)
from vclib.env.dom import Element, Fragment, Snapshot, read_elements, read_fragments
from vclib.env.raster import (
    Color,
    Palette,
    Rect,
    area,
    cut,
    intersect,
    overlaps,
    packed,
    parse_color,
    rounded,
)
from vclib.env.sanitize import MAX_NODES

MAX_TEXTS = 1_000
AT_ONCE = 200  # texts that are looked at together
CANVAS = ("HTML", "BODY")  # their grounds are painted behind all else
MIN_FONT_SIZE = 4.0  # px; below this nothing can be read
MIN_CONTRAST = 24.0  # largest channel difference between text and its ground
MIN_INK = 0.3  # how far from its ground towards its colour a pixel of text must be


Paint = tuple[Color, float]  # with alpha


@dataclass(frozen=True)
class Claim:
    """A text with the paint that it should have; least: pixels of ink without which it is none."""

    fragment: Fragment
    paint: Paint | None
    least: float

    @classmethod
    def of(cls, fragment: Fragment, paint: Paint | None) -> Claim:
        size = min(fragment.element.font_size, fragment.rect[3] - fragment.rect[1])
        return cls(fragment, paint, max(2.0, 0.012 * size * size * _letters(fragment.text)))


@dataclass(frozen=True)
class TextBlock:
    """Text that can be read in the picture; rectangle and font size in pixels of the viewport.

    color is the text's as it shows, background the commonest colour behind it, both 0 to 255.
    """

    text: str
    x: float
    y: float
    width: float
    height: float
    color: Color
    background: Color
    font_size: float


@dataclass(frozen=True)
class Contents:
    """The visible contents of a page; page_height in pixels."""

    text_blocks: tuple[TextBlock, ...]
    boxes: tuple[Box, ...]
    background: Color
    page_height: int


@dataclass
class Seen:
    """A fragment of text that shows, with the part and the colours that do."""

    text: str
    rect: Rect
    element: Element
    color: Color
    background: Color


class Layout:
    """What a page should show: all that can be said before its picture is there.

    answer: of DOMSnapshot.captureSnapshot with SNAPSHOT_REQUEST; width, height: of the viewport;
    height: of the whole page, in pixels; excess: why the page is too large to be read, or None.
    """

    def __init__(self, answer: dict[str, Any], width: int, height: int):
        snapshot = Snapshot(answer)
        nodes = len(snapshot.parents)
        self.url, self.height = snapshot.url, snapshot.height
        self.elements: dict[int, Element] = {}
        self.claims: list[Claim] = []
        self.painted: list[Painted] = []
        self.excess: str | None = None
        if nodes > MAX_NODES:
            self.excess = f"the page has {nodes} nodes; at most {MAX_NODES} are rendered"
            return
        self.elements = read_elements(snapshot, width, height)
        self.painted = painted_elements(self.elements)
        covers, fragments = Covers(self.elements), read_fragments(snapshot, self.elements)
        parts = (part for fragment in fragments if (part := _unclipped(fragment)))
        while some := list(islice(parts, AT_ONCE)):
            self.claims += covers.left(some)


def visible_contents(layout: Layout, pixels: np.ndarray) -> Contents:
    """Visible text, boxes and ground of a page; pixels: uint8 RGB [H, W, 3] of the viewport."""
    background = page_background(layout.elements, pixels)
    claims, seen, names = iter(layout.claims), list[Seen](), packed(pixels)
    while len(seen) < MAX_TEXTS and (some := list(islice(claims, AT_ONCE))):
        seen += _prove(some, names)
    return Contents(
        tuple(_join(_without_stacked(seen[:MAX_TEXTS]))),
        tuple(read_boxes(layout.painted, background, pixels)),
        background,
        layout.height,
    )


def _letters(text: str) -> int:
    """How many there are, white space left out."""
    return len("".join(text.split()))


def _unclipped(fragment: Fragment) -> Fragment | None:
    """The part of the text that is in the viewport and not cut off by an ancestor."""
    element, text, rect = fragment.element, fragment.text, fragment.rect
    width, height = rect[2] - rect[0], rect[3] - rect[1]
    letters = _letters(text)
    if (
        not letters
        or element.style["visibility"] != "visible"
        or element.opacity <= MIN_OPACITY
        or element.font_size < MIN_FONT_SIZE
        or element.in_drawing
        or _blur(element) > 0.25 * element.font_size
        or height < MIN_FONT_SIZE
        # Letters heaped on one another by negative spacing cannot be read.
        or width < 0.1 * height * letters
    ):
        return None
    shown = intersect(rect, element.inner_clip)
    if area(shown) <= 0 or shown[3] - shown[1] < 0.5 * height:
        return None
    if shown[2] - shown[0] < 0.98 * width:
        start = round(len(text) * (shown[0] - rect[0]) / width)
        text = text[start : start + round(len(text) * (shown[2] - shown[0]) / width)]
    return Fragment(text, shown, element, fragment.loose) if text.strip() else None


def _blur(element: Element | None) -> float:
    """Pixels by which filters of an element and its ancestors blur it."""
    radius = 0.0
    while element and element.altered:
        radius += sum(map(float, re.findall(r"blur\(([\d.]+)px", element.style["filter"])))
        element = element.parent
    return radius


class Covers:
    """What hides text: opaque elements painted over it, and pictures that may show in its place."""

    def __init__(self, elements: dict[int, Element]):
        opaque = [element for element in elements.values() if self._is_opaque(element)]
        self.rects = _stacked([intersect(element.rect, element.clip) for element in opaque])
        self.paint = np.array([element.paint for element in opaque])
        pictures = [element for element in elements.values() if _is_picture(element)]
        self.pictures = _stacked([
            element.clip if element.name in CANVAS else intersect(element.rect, element.clip)
            for element in pictures
        ])  # fmt: skip

    @staticmethod
    def _is_opaque(element: Element) -> bool:
        ground = parse_color(element.style["background-color"])
        return (
            (_is_picture(element) or (ground is not None and ground[1] > 0.95))
            and element.opacity > 0.95
            and element.style["visibility"] == "visible"
            and not element.altered
            and "text" not in element.style["background-clip"]
            and element.name not in CANVAS
        )

    def left(self, fragments: Sequence[Fragment]) -> list[Claim]:
        """The fragments that nothing hides, with the colours that they should have."""
        claims = [Claim.of(fragment, _text_color(fragment.element)) for fragment in fragments]
        rects = _stacked([fragment.rect for fragment in fragments])
        paint = np.array([fragment.element.paint for fragment in fragments])
        # The ink of a text without a colour of its own cannot be told from a picture's.
        unclear = np.array([claim.paint is None or claim.paint[1] < 0.5 for claim in claims])
        covered = overlaps(rects, self.rects) * (self.paint > paint[:, None])
        mistaken = overlaps(rects, self.pictures) * unclear[:, None]
        most = np.hstack([covered, mistaken]).max(1, initial=0.0)
        return [
            claim
            for claim, cover in zip(claims, most.tolist(), strict=True)
            if cover <= 0.5 * area(claim.fragment.rect)
        ]


def _is_picture(element: Element) -> bool:
    return element.name in PICTURES or "url(" in element.style["background-image"]


def _stacked(rects: list[Rect]) -> np.ndarray:
    return np.array(rects, np.float32).reshape(-1, 4)


def _text_color(element: Element) -> Paint | None:
    """Colour and alpha that the text should have, or None where only the pixels can tell."""
    parsed = parse_color(element.style["-webkit-text-fill-color"])
    if parsed is None or element.altered:
        return None
    at: Element | None = element
    while parsed[1] < 0.5 and at:
        if "text" in at.style["background-clip"]:
            return None
        at = at.parent
    return parsed[0], parsed[1] * element.opacity


def _prove(claims: Sequence[Claim], pixels: np.ndarray) -> list[Seen]:
    """The texts of which there is ink in packed pixels, with the colours that are really there."""
    crops = [cut(pixels, claim.fragment.rect) for claim in claims]
    claims = [claim for claim, crop in zip(claims, crops, strict=True) if crop.size]
    crops = [crop for crop in crops if crop.size]
    if not claims:
        return []
    # Whether a pixel is ink depends on its colour alone; some 96 columns tell enough of a line.
    steps = [
        1 if claim.fragment.loose else max(1, crop.shape[1] // 96)
        for claim, crop in zip(claims, crops, strict=True)
    ]
    palette = Palette([crop[:, ::step] for crop, step in zip(crops, steps, strict=True)])
    ink, shows = _ink(palette, [claim.paint for claim in claims])
    amounts = np.array(steps) * np.add.reduceat(np.where(ink, palette.counts, 0), palette.starts)
    seen = []
    colors, grounds = rounded(shows), rounded(palette.grounds)
    for i, (claim, amount) in enumerate(zip(claims, amounts.tolist(), strict=True)):
        if amount < claim.least:
            continue
        fragment, rect = claim.fragment, claim.fragment.rect
        if fragment.loose:
            own = palette.of(i)
            rect = _around(np.isin(crops[i], palette.names[own][ink[own]]), fragment)
        seen.append(Seen(fragment.text, rect, fragment.element, colors[i], grounds[i]))
    return seen


def _ink(palette: Palette, claims: Sequence[Paint | None]) -> tuple[np.ndarray, np.ndarray]:
    """Which colours of the palette are ink, bool [m], and the colour that each text shows [n, 3].

    Antialiased text lies on the line between the colours of ground and text.
    """
    claimed = np.array([claim[0] if claim else (0, 0, 0) for claim in claims], np.float32)
    alpha = np.array([claim[1] if claim else 0.0 for claim in claims], np.float32)[:, None]
    shows = palette.grounds + (claimed - palette.grounds) * alpha
    towards = shows - palette.grounds
    length = (towards**2).sum(-1)
    clear = np.abs(towards).max(-1) >= MIN_CONTRAST
    owner, difference = palette.owner, palette.colors - palette.grounds[palette.owner]
    along = (difference * towards[owner]).sum(-1) / np.maximum(length, 1)[owner]
    off = difference - along[:, None] * towards[owner]
    ink = (along > MIN_INK) & ((off**2).sum(-1) < 0.16 * length[owner]) & clear[owner]
    for i, claim in enumerate(claims):
        if claim is None:
            own = palette.of(i)
            contrast = np.abs(difference[own]).max(-1)
            ink[own] = contrast > max(MIN_CONTRAST, 0.5 * float(contrast.max()))
            if ink[own].any():
                there = np.repeat(
                    palette.colors[own], np.where(ink[own], palette.counts[own], 0), 0
                )
                shows[i] = np.median(there, 0)
    return ink, shows


def _around(ink: np.ndarray, fragment: Fragment) -> Rect:
    """The rectangle of the ink, at least one line high."""
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    left, top = int(max(0, fragment.rect[0])), int(max(0, fragment.rect[1]))
    middle = top + (rows[0] + rows[-1] + 1) / 2
    half = max(rows[-1] + 1 - rows[0], 1.15 * fragment.element.font_size) / 2
    line = (left + columns[0], middle - half, left + columns[-1] + 1.0, middle + half)
    return intersect(line, fragment.rect)


def _without_stacked(seen: list[Seen]) -> list[Seen]:
    """Of texts that stand on one another only one can own the ink: the plain one painted last."""
    if len(seen) < 2:
        return seen
    rects = np.array([text.rect for text in seen], np.float32)
    areas = np.array([area(text.rect) for text in seen])
    stacked = np.triu(overlaps(rects, rects) > 0.5 * np.minimum(areas[:, None], areas), 1)
    if not stacked.any():
        return seen
    rank = [(not text.element.altered, text.element.paint, i) for i, text in enumerate(seen)]
    dropped: set[int] = set()
    for i, j in np.argwhere(stacked):
        if i not in dropped and j not in dropped:
            dropped.add(int(i if rank[i] < rank[j] else j))
    return [text for i, text in enumerate(seen) if i not in dropped]


def _join(seen: list[Seen]) -> list[TextBlock]:
    """Consecutive fragments of one block element make one block of text."""
    runs = [list(run) for _, run in groupby(seen, lambda text: id(text.element.block))]
    blocks = []
    for run in runs:
        words = run[0].text
        for before, after in pairwise(run):
            same_line = after.rect[1] < before.rect[3] and before.rect[1] < after.rect[3]
            close = after.rect[0] - before.rect[2] < 0.2 * after.element.font_size
            words += ("" if same_line and close else " ") + after.text
        main = max(run, key=lambda text: len(text.text))
        left, top = (min(text.rect[i] for text in run) for i in (0, 1))
        right, bottom = (max(text.rect[i] for text in run) for i in (2, 3))
        look = main.color, main.background, main.element.font_size
        blocks.append(
            TextBlock(" ".join(words.split()), left, top, right - left, bottom - top, *look)
        )
    return blocks
