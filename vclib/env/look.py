"""What a render shows, in the form that scoring needs; for a reference it is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import cv2
import numpy as np

from vclib.env import similarity as sim
from vclib.env.browser import Box, Render
from vclib.env.markup import Markup, read_markup
from vclib.errors import VclibError

GRID = (80, 60)
"""Columns and rows of the sample points at which paint is looked for."""

Embed = Callable[[np.ndarray], np.ndarray]


class Look:
    """What a render shows, worked out once: visible texts and boxes, paint, structure."""

    def __init__(self, render: Render):
        self.render = render
        self.viewport = (render.pixels.shape[1], render.pixels.shape[0])
        self.texts = render.text_blocks
        self.boxes = [box for box in render.boxes if not self._is_ground(box)]
        self.words = [" ".join(block.text.split()) for block in self.texts]
        self.text_rectangles = sim.rectangles(self.texts)
        self.box_rectangles = sim.rectangles(self.boxes)
        self.text_weights = np.sqrt([len(words) for words in self.words])
        self.lab = sim.to_lab(
            [render.background, *(t.color for t in self.texts), *(b.color for b in self.boxes)]
        )
        self.small = sim.shrink(render.pixels)
        self.image = self.small.astype(np.float32)
        self.moments = sim.moments(self.image)

    def _is_ground(self, box: Box) -> bool:
        covers = box.width >= self.viewport[0] and box.height >= self.viewport[1]
        return covers and tuple(box.color) == tuple(self.render.background)

    @property
    def text_lab(self) -> np.ndarray:
        return self.lab[1 : 1 + len(self.texts)]

    @property
    def box_lab(self) -> np.ndarray:
        return self.lab[1 + len(self.texts) :]

    @cached_property
    def markup(self) -> Markup:
        return read_markup(self.render.html)

    @cached_property
    def samples(self) -> np.ndarray:
        """The pixels at the sample points: uint8 [60, 80, 3]."""
        return cv2.resize(self.render.pixels, GRID, interpolation=cv2.INTER_NEAREST)

    @cached_property
    def content(self) -> np.ndarray:
        """Sample points that show something else than the ground: bool [60, 80]."""
        return ~sim.same_paint(self.samples, self.render.background)

    @cached_property
    def foreign(self) -> np.ndarray:
        """Sample points whose colour no ground, box or text accounts for: bool [60, 80].

        These are pictures, drawings, gradients and shadows.
        """
        foreign, samples = self.content.copy(), self.samples
        colors = [(box.color, box.color) for box in self.boxes]
        colors += [(text.color, text.background) for text in self.texts]
        bounds = np.array(colors, np.float64).reshape(-1, 2, 3)
        low, high = bounds.min(1) - sim.TOLERANCE, bounds.max(1) + sim.TOLERANCE
        for area, darkest, lightest in zip(self._sampled, low, high, strict=True):
            own = samples[area]
            if own.size:
                foreign[area] &= cv2.inRange(own, darkest, lightest) == 0
        return foreign

    @property
    def _sampled(self) -> list[tuple[slice, slice]]:
        """The sample points that each box and text covers, and those that its edge may colour."""
        scale = np.divide(GRID, self.viewport)
        items = np.concatenate([self.box_rectangles, self.text_rectangles])
        begins = np.maximum(0, (items[:, :2] * scale).astype(int)).tolist()
        ends = ((items[:, :2] + items[:, 2:]) * scale).astype(int) + 1
        return [
            (slice(top, bottom), slice(left, right))
            for (left, top), (right, bottom) in zip(
                begins, np.maximum(0, ends).tolist(), strict=True
            )
        ]

    @cached_property
    def structure_mask(self) -> np.ndarray:
        """Pixels of `small` in whose SSIM window there is something to see: bool [96, 128]."""
        marked = ~sim.same_paint(self.small, self.render.background)
        return sim.grown(marked, sim.SSIM_WINDOW)


class Reference:
    """A page to reproduce: its render, with everything that does not depend on the candidate.

    Raises:
        VclibError: if the page did not render.
    """

    def __init__(self, render: Render):
        if render.error is not None:
            raise VclibError(
                f"The reference page did not render: {render.error}. "
                "A reference must be a page that renders; choose or repair the page."
            )
        self.render = render
        self.look = Look(render)
        self.is_empty = not (self.look.texts or self.look.boxes or self.look.content.any())
        self._embeddings: dict[Embed, tuple[np.ndarray, np.ndarray]] = {}

    @cached_property
    def blank_ssim(self) -> float:
        """The structural similarity of an empty page, where the reference shows something."""
        look = self.look
        if not look.structure_mask.any():
            return 0.0
        blank = np.empty_like(look.image)
        blank[:] = look.render.background
        return float(sim.ssim_map(look.image, blank, look.moments)[look.structure_mask].mean())

    def embeddings(self, clip: Embed) -> tuple[np.ndarray, np.ndarray]:
        """Embedding of the reference and of a blank page of its ground colour."""
        if clip not in self._embeddings:
            pixels = self.render.pixels
            blank = np.empty_like(pixels)
            blank[:] = self.render.background
            self._embeddings[clip] = (clip(pixels), clip(blank))
        return self._embeddings[clip]
