"""How alike two renders are: which of their parts answer each other, and how well.

Rectangles are float arrays [n, 4] of x, y, width, height in CSS pixels. Colours are sRGB, 0 to 255.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from rapidfuzz import fuzz, process
from scipy.optimize import linear_sum_assignment
from skimage.color import deltaE_ciede2000, rgb2lab

from vclib.env.browser import Box, TextBlock

Moments = tuple[np.ndarray, np.ndarray]
SSIM_SIZE = (128, 96)
SSIM_WINDOW = 7
COLOR_RANGE = 40.0
"""The CIEDE2000 difference from which on two colours have nothing in common."""
TOLERANCE = 12
"""Two channel values this close are the same paint: blending and rounding move colours a little."""


def same_paint(pixels: np.ndarray, color: Sequence[int]) -> np.ndarray:
    """Where uint8 pixels [H, W, 3] have a colour, but for rounding: bool [H, W]."""
    return _within(pixels, np.subtract(color, TOLERANCE), np.add(color, TOLERANCE))


def _within(pixels: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    if not pixels.size:
        return np.zeros(pixels.shape[:2], bool)
    return cv2.inRange(pixels, low.astype(np.float64), high.astype(np.float64)) != 0


def rectangles(items: Sequence[TextBlock | Box]) -> np.ndarray:
    """Rectangles of items as an array [n, 4]."""
    return np.array([(i.x, i.y, i.width, i.height) for i in items], np.float64).reshape(-1, 4)


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of every pair of rectangles: [n, m]."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum((a[:, :2] + a[:, 2:])[:, None], (b[:, :2] + b[:, 2:])[None])
    shared = np.clip(high - low, 0, None).prod(axis=-1)
    union = (a[:, 2] * a[:, 3])[:, None] + (b[:, 2] * b[:, 3])[None] - shared
    return shared / np.maximum(union, 1e-9)


def nearness(a: np.ndarray, b: np.ndarray, reach: float) -> np.ndarray:
    """1 where the centres of two rectangles [..., 4] meet, 0 from `reach` pixels on: [...]."""
    apart = (a[..., :2] + a[..., 2:] / 2) - (b[..., :2] + b[..., 2:] / 2)
    return np.clip(1 - np.hypot(apart[..., 0], apart[..., 1]) / reach, 0, 1)


def text_similarity(a: Sequence[str], b: Sequence[str]) -> np.ndarray:
    """Likeness of every pair of texts: [n, m], 0 where no more is shared than by chance."""
    if not a or not b:
        return np.zeros((len(a), len(b)))
    ratio = process.cdist(a, b, scorer=fuzz.ratio, dtype=np.float32) / 100
    return np.clip((ratio.astype(np.float64) - 0.4) / 0.6, 0, 1)


def match(worth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair rows with columns one to one for the greatest total worth (Hungarian method)."""
    rows, columns = linear_sum_assignment(worth, maximize=True)
    kept = worth[rows, columns] > 0
    return rows[kept], columns[kept]


def to_lab(colors: Sequence[Sequence[int]]) -> np.ndarray:
    """CIELAB of sRGB colours: [n, 3]."""
    return rgb2lab(np.asarray(colors, np.float64).reshape(-1, 3) / 255)


def color_similarity(lab_a: np.ndarray, lab_b: np.ndarray) -> np.ndarray:
    """1 for the same colour, 0 from a CIEDE2000 difference of 40 on: [n]."""
    return np.clip(1 - deltaE_ciede2000(lab_a, lab_b) / COLOR_RANGE, 0, 1)


def shrink(pixels: np.ndarray) -> np.ndarray:
    """Pixels at the fixed size at which structure is compared: uint8 [96, 128, 3]."""
    return cv2.resize(pixels, SSIM_SIZE, interpolation=cv2.INTER_AREA)


def moments(image: np.ndarray) -> Moments:
    """Local mean and variance over the SSIM window: [H, W, 3] each."""
    mean = _blur(image)
    return mean, _unbiased(_blur(image * image) - mean * mean)


def ssim_map(
    a: np.ndarray, b: np.ndarray, moments_a: Moments | None = None, moments_b: Moments | None = None
) -> np.ndarray:
    """Structural similarity at each pixel of two images [H, W, 3] in 0..255: [H, W].

    The same map as scikit-image's `structural_similarity(..., channel_axis=2, full=True)`, averaged
    over channels; box filters of OpenCV make it several times faster. Wang et al. 2004, eq. 13.
    """
    mean_a, var_a = moments_a or moments(a)
    mean_b, var_b = moments_b or moments(b)
    covariance = _unbiased(_blur(a * b) - mean_a * mean_b)
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    top = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    bottom = (mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)
    ratio = top / bottom
    return (ratio[..., 0] + ratio[..., 1] + ratio[..., 2]) / 3


def _blur(image: np.ndarray) -> np.ndarray:
    return cv2.blur(image, (SSIM_WINDOW, SSIM_WINDOW), borderType=cv2.BORDER_REFLECT)


def _unbiased(variance: np.ndarray) -> np.ndarray:
    return variance * (SSIM_WINDOW**2 / (SSIM_WINDOW**2 - 1))


def grown(mask: np.ndarray, window: int = 3) -> np.ndarray:
    """A mask with all that lies within a window around its points: bool [H, W]."""
    return cv2.dilate(mask.view(np.uint8), np.ones((window, window), np.uint8)).view(bool)
