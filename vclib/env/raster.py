"""Rectangles, colours and crops of pixels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import ceil

import cv2
import numpy as np

Color = tuple[int, int, int]
Rect = tuple[float, float, float, float]  # left, top, right, bottom
MIN_BOX_CONTRAST = 6  # largest channel difference


@cache
def parse_color(css: str) -> tuple[Color, float] | None:
    """A computed `rgb(…)`, `rgba(…)` or `color(srgb …)` as colour and alpha, else None."""
    if css.startswith("rgb"):
        scale = 1.0
    elif css.startswith("color(srgb "):
        scale = 255.0
    else:
        return None
    numbers = [float(n) for n in re.findall(r"-?\d*\.?\d+(?:e-?\d+)?", css)]
    r, g, b = (round(min(255.0, max(0.0, n * scale))) for n in numbers[:3])
    return (r, g, b), numbers[3] if len(numbers) > 3 else 1.0


@cache
def parse_px(css: str) -> float:
    """A computed length in pixels; 0 for what is none."""
    return float(css[:-2]) if css.endswith("px") else 0.0


def intersect(a: Rect, b: Rect) -> Rect:
    """The common part; of negative width or height where there is none."""
    return max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])


def area(rect: Rect) -> float:
    """0 for an empty rectangle."""
    return max(0.0, rect[2] - rect[0]) * max(0.0, rect[3] - rect[1])


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Areas that rectangles [n, 4] and [m, 4] have in common: [n, m]."""
    low, high = np.maximum(a[:, None, :2], b[:, :2]), np.minimum(a[:, None, 2:], b[:, 2:])
    return np.clip(high - low, 0, None).prod(-1)


def cut(pixels: np.ndarray, rect: Rect, *, sparse: bool = False) -> np.ndarray:
    """The pixels of a rectangle, packed or not; a grid of at most about 4,000 of them if sparse."""
    left, top = max(0, int(rect[0])), max(0, int(rect[1]))
    crop = pixels[top : ceil(rect[3]), left : ceil(rect[2])]
    if not sparse:
        return crop
    return crop[:: max(1, crop.shape[0] // 64), :: max(1, crop.shape[1] // 64)]


def packed(pixels: np.ndarray) -> np.ndarray:
    """Pixels [H, W, 3] as one number each, which sort by red, green, blue: uint32 [H, W]."""
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2BGRA).view(np.uint32)[..., 0]


class Palette:
    """The colours of several crops of packed pixels, one crop after the other, m in all.

    names: packed colours, uint32 [m], in order within a crop; counts: how often each is there [m];
    colors: float RGB [m, 3]; owner: the crop of each [m]; starts: where each crop begins [n];
    grounds: the commonest colour of each crop, float RGB [n, 3].
    """

    def __init__(self, crops: Sequence[np.ndarray]):
        pixels = np.concatenate([crop.ravel() for crop in crops])
        ends = np.cumsum([crop.size for crop in crops])
        begins = np.append(0, ends[:-1])
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            pixels[begin:end].sort()
        new = np.empty(len(pixels), bool)
        np.not_equal(pixels[1:], pixels[:-1], out=new[1:])
        new[begins] = True
        at = np.flatnonzero(new)
        self.names = pixels[at]
        self.counts = np.diff(at, append=len(pixels))
        self.colors = self.names.view(np.uint8).reshape(-1, 4)[:, 2::-1].astype(np.float32)
        self.starts = np.searchsorted(at, begins)
        self.ends = np.append(self.starts[1:], len(at))
        self.owner = np.repeat(np.arange(len(crops)), self.ends - self.starts)
        commonest = [start + self.counts[start:end].argmax() for start, end in self.spans()]
        self.grounds = self.colors[commonest]

    def spans(self) -> list[tuple[int, int]]:
        """Where the colours of each crop begin and end."""
        return list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))

    def of(self, crop: int) -> slice:
        """The colours of one crop."""
        return slice(int(self.starts[crop]), int(self.ends[crop]))


def share_near(crop: np.ndarray, color: Color, distance: int) -> float:
    """The share of the pixels whose channels are all within a distance of a colour."""
    r, g, b = color
    low, high = (
        (r - distance, g - distance, b - distance),
        (r + distance, g + distance, b + distance),
    )
    return cv2.countNonZero(cv2.inRange(crop, low, high)) / (crop.shape[0] * crop.shape[1])


def median(crop: np.ndarray) -> Color:
    """The middle of each channel."""
    return rounded(np.median(crop[::2, ::2] if crop.size > 12_000 else crop, (0, 1))[None])[0]


def blend(over: Color, alpha: float, under: Color) -> Color:
    """What shows where one colour is painted over another."""
    left = 1 - alpha
    return (
        round(over[0] * alpha + under[0] * left),
        round(over[1] * alpha + under[1] * left),
        round(over[2] * alpha + under[2] * left),
    )


def rounded(values: np.ndarray) -> list[Color]:
    """Colours [n, 3], 0 to 255, in whole numbers."""
    return [(r, g, b) for r, g, b in np.rint(values).astype(int).tolist()]


def differs(a: Color, b: Color) -> bool:
    """Whether an eye could tell a box of one colour on the other."""
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]), abs(a[2] - b[2])) > MIN_BOX_CONTRAST
