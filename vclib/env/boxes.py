"""The painted rectangles of a page: those that stand out from what lies behind them."""

from __future__ import annotations

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
            if element.style["background-image"] != "none":
                return median(pixels)
            ground = parse_color(element.style["background-color"])
            if ground and ground[1] > 0:
                return blend(ground[0], ground[1], (255, 255, 255))
    return 255, 255, 255


def read_boxes(elements: dict[int, Element], background: Color, pixels: np.ndarray) -> list[Box]:
    """Painted elements that stand out from what lies behind them."""
    boxes: list[Box] = []
    behind: dict[int, Color] = {}
    canvas_given = False
    for element in elements.values():
        ground = behind[id(element.parent)] if element.parent else background
        behind[id(element)] = ground
        own = parse_color(element.style["background-color"])
        if element.name in ("HTML", "BODY") and not canvas_given:
            canvas_given = bool(own and own[1] > 0) or element.style["background-image"] != "none"
            continue
        rect = intersect(element.rect, element.clip)
        if (
            element.style["visibility"] != "visible"
            or element.opacity <= MIN_OPACITY
            or element.in_drawing
            or min(rect[2] - rect[0], rect[3] - rect[1]) < 1
            or len(boxes) >= MAX_BOXES
        ):
            continue
        fill = _fill(element, rect, ground, pixels)
        if fill is not None:
            behind[id(element)] = fill
        shown = fill if fill is not None and differs(fill, ground) else None
        shown = shown or _border(element, rect, ground, pixels) or None
        if shown is not None:
            boxes.append(Box(rect[0], rect[1], rect[2] - rect[0], rect[3] - rect[1], shown))
    return boxes


def _fill(element: Element, rect: Rect, ground: Color, pixels: np.ndarray) -> Color | None:
    """The colour with which an element fills its rectangle, if the pixels show it."""
    parsed = parse_color(element.style["background-color"])
    alpha = parsed[1] * element.opacity if parsed else 0.0
    painted = element.style["background-image"] != "none" or element.name in PICTURES
    painted = painted or (element.name in CONTROLS and alpha == 0)
    if not painted and alpha <= 0:
        return None
    crop = cut(pixels, rect, sparse=True)
    if crop.size == 0 or "text" in element.style["background-clip"]:
        return None
    if painted:
        varied = int(np.ptp(crop.reshape(-1, 3), axis=0).max()) > MIN_BOX_CONTRAST
        middle = median(crop)
        return middle if varied or differs(middle, ground) else None
    assert parsed
    mixed = blend(parsed[0], alpha, ground)
    return mixed if share_near(crop, mixed, 12) > 0.02 else None


def _border(element: Element, rect: Rect, ground: Color, pixels: np.ndarray) -> Color | None:
    """The colour of the first border that the pixels show."""
    left, top, right, bottom = rect
    for side in SIDES:
        border = element.border(side)
        if border is None:
            continue
        width = max(1.0, border[0])
        strip = {
            "top": (left, top, right, top + width),
            "right": (right - width, top, right, bottom),
            "bottom": (left, bottom - width, right, bottom),
            "left": (left, top, left + width, bottom),
        }[side]
        crop = cut(pixels, strip, sparse=True)
        seen = blend(border[1], element.opacity, ground)
        if crop.size and differs(seen, ground) and share_near(crop, seen, 40) > 0.25:
            return seen
    return None
