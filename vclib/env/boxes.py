"""The painted rectangles of a page: those that stand out from what lies behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vclib.env.dom import SIDES, Element
from vclib.env.raster import (
    MIN_BOX_CONTRAST,
    Color,
    Rect,
    blend,
    cut,
    differs,
    intersect,
    median,
    parse_color,
    share_near,
)

MAX_BOXES = 400
MIN_OPACITY = 0.05
CONTROLS = {"INPUT", "BUTTON", "SELECT", "TEXTAREA", "PROGRESS", "METER"}
PICTURES = {"IMG", "svg", "CANVAS", "VIDEO"}


@dataclass(frozen=True)
class Box:
    """A painted rectangle (ground, picture or border) that stands out, in viewport pixels."""

    x: float
    y: float
    width: float
    height: float
    color: Color


def page_background(elements: dict[int, Element], pixels: np.ndarray) -> Color:
    """Colour of the canvas: the root's ground, or else the body's, over white."""
    for name in ("HTML", "BODY"):
        for element in elements.values():
            if element.name != name:
                continue
            if _has_image(element):
                return median(pixels)
            ground = parse_color(element.style["background-color"])
            if ground and ground[1] > 0:
                return blend(ground[0], ground[1], (255, 255, 255))
    return 255, 255, 255


@dataclass(frozen=True)
class Painted:
    """What an element should paint, known before its picture is.

    behind: the place in the list of the one it stands on, or -1 for the canvas; picture: whether
    only the pixels can tell what fills it; fill: if they need not, colour and alpha of its ground,
    or None; borders: where each should be, with its colour; opacity: over its ancestors.
    """

    rect: Rect
    behind: int
    picture: bool
    fill: tuple[Color, float] | None
    borders: tuple[tuple[Rect, Color], ...]
    opacity: float


def painted_elements(elements: dict[int, Element]) -> list[Painted]:
    """The elements that may stand out from what lies behind them, parents first."""
    found: list[Painted] = []
    places: dict[int, int] = {}
    canvas_given = False
    for element in elements.values():
        places[id(element)] = behind = places[id(element.parent)] if element.parent else -1
        own, image = parse_color(element.style["background-color"]), _has_image(element)
        if element.name in ("HTML", "BODY") and not canvas_given:
            canvas_given = bool(own and own[1] > 0) or image
            continue
        rect = intersect(element.rect, element.clip)
        if (
            element.style["visibility"] != "visible"
            or element.opacity <= MIN_OPACITY
            or element.in_drawing
            or min(rect[2] - rect[0], rect[3] - rect[1]) < 1
        ):
            continue
        alpha = own[1] * element.opacity if own else 0.0
        picture = image or element.name in PICTURES or (element.name in CONTROLS and alpha == 0)
        fill = (own[0], alpha) if own and alpha > 0 and not picture else None
        if "text" in element.style["background-clip"]:
            picture, fill = False, None
        borders = tuple(_borders(element, rect))
        if picture or fill or borders:
            places[id(element)] = len(found)
            found.append(Painted(rect, behind, picture, fill, borders, element.opacity))
    return found


def _has_image(element: Element) -> bool:
    return element.style["background-image"] != "none"


def _borders(element: Element, rect: Rect) -> Iterator[tuple[Rect, Color]]:
    left, top, right, bottom = rect
    for side in SIDES:
        if border := element.border(side):
            width = max(1.0, border[0])
            strip = {
                "top": (left, top, right, top + width),
                "right": (right - width, top, right, bottom),
                "bottom": (left, bottom - width, right, bottom),
                "left": (left, top, left + width, bottom),
            }[side]
            yield strip, border[1]


def read_boxes(painted: Sequence[Painted], background: Color, pixels: np.ndarray) -> list[Box]:
    """Painted elements that stand out from what lies behind them."""
    boxes: list[Box] = []
    grounds: list[Color] = []
    for element in painted:
        ground = grounds[element.behind] if element.behind >= 0 else background
        fill = _fill(element, ground, pixels)
        grounds.append(ground if fill is None else fill)
        shown = fill if fill is not None and differs(fill, ground) else None
        shown = shown or _border(element, ground, pixels)
        if shown is not None:
            left, top, right, bottom = element.rect
            boxes.append(Box(left, top, right - left, bottom - top, shown))
            if len(boxes) == MAX_BOXES:
                break
    return boxes


def _fill(element: Painted, ground: Color, pixels: np.ndarray) -> Color | None:
    """The colour with which an element fills its rectangle, if the pixels show it."""
    if not (element.picture or element.fill):
        return None
    crop = cut(pixels, element.rect, sparse=True)
    if crop.size == 0:
        return None
    if element.fill:
        mixed = blend(*element.fill, ground)
        return mixed if share_near(crop, mixed, 12) > 0.02 else None
    varied = int(np.ptp(crop.reshape(-1, 3), axis=0).max()) > MIN_BOX_CONTRAST
    middle = median(crop)
    return middle if varied or differs(middle, ground) else None


def _border(element: Painted, ground: Color, pixels: np.ndarray) -> Color | None:
    """The colour of the first border that the pixels show."""
    for strip, color in element.borders:
        crop = cut(pixels, strip, sparse=True)
        seen = blend(color, element.opacity, ground)
        if crop.size and differs(seen, ground) and share_near(crop, seen, 40) > 0.25:
            return seen
    return None
