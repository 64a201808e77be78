"""What the environment shows an agent, in memory and as JSON."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from PIL import Image

from vclib.env.errors import EnvironmentFault

LOW_SIDE = 512
PICTURES = ("screenshot", "render_low", "render_full")


@dataclass(eq=False)
class Observation:
    """The page to reproduce, and what came of the last HTML.

    Pictures are uint8 RGB, [H, W, 3]. `screenshot` shows the reference, `render_full` the last
    HTML, and `render_low` the same with its longest side at most 512 pixels. `step` counts the
    steps taken; `reward` is in [0, 1], None before the first. `metadata` has `rewards` (every
    part of the reward), `browser`, `error` and `blocked` (what kept the HTML from rendering).
    """

    session_id: str
    page_id: str
    difficulty: str
    prompt: str
    screenshot: np.ndarray
    step: int = 0
    max_steps: int = 0
    reward: float | None = None
    done: bool = False
    html: str | None = None
    render_low: np.ndarray | None = None
    render_full: np.ndarray | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The same, fit for `json.dumps`: pictures become PNGs in base64, named `*_b64`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        encoded: dict[int, str] = {}
        for name in PICTURES:
            pixels = values.pop(name)
            if pixels is not None and id(pixels) not in encoded:
                encoded[id(pixels)] = png_base64(pixels)
            values[f"{name}_b64"] = None if pixels is None else encoded[id(pixels)]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Observation:
        """The observation that `to_json` wrote down, to the pixel.

        Raises EnvironmentFault if `values` is something else.
        """
        try:
            named = {f.name: values[f.name] for f in fields(cls) if f.name not in PICTURES}
            decoded: dict[str, np.ndarray] = {}
            for name in PICTURES:
                text = values[f"{name}_b64"]
                if text is not None and text not in decoded:
                    decoded[text] = pixels_of(text)
                named[name] = None if text is None else decoded[text]
            return cls(**named)
        except (KeyError, TypeError, ValueError, OSError, binascii.Error) as error:
            raise EnvironmentFault(
                f"that is no observation of the environment ({type(error).__name__}: {error}); is "
                "this the address of `python -m vclib serve`, of the same version?"
            ) from error


def png_base64(pixels: np.ndarray) -> str:
    """A lossless picture as text; `pixels` is uint8 RGB, [H, W, 3]."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=3)
    return base64.b64encode(file.getvalue()).decode()


def pixels_of(text: str) -> np.ndarray:
    """Pixels of a picture from `png_base64`: uint8 RGB, [H, W, 3]."""
    file = io.BytesIO(base64.b64decode(text, validate=True))
    return np.array(Image.open(file).convert("RGB"))


def shrink(pixels: np.ndarray) -> np.ndarray:
    """The picture with its longest side at most 512 pixels; a smaller one as it is."""
    height, width = pixels.shape[:2]
    scale = LOW_SIDE / max(height, width)
    if scale >= 1:
        return pixels
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))
