"""The hacking gallery: answers that look for points without copying the page.

The attacks themselves are data, in data/attacks/attacks.toml; here they are made for a reference.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import cv2
import numpy as np

from vclib.env.browser import Render
from vclib.env.environment import PROMPT
from vclib.env.restyle import STYLE, before_end, with_css
from vclib.env.sanitize import MAX_IMAGE_BYTES, MAX_NODES
from vclib.paths import DATA

ATTACKS = DATA / "attacks" / "attacks.toml"


@dataclass(frozen=True)
class Attack:
    """One attempt: its name, what it tries, and how it is made (one of the last three is set)."""

    id: str
    tries: str
    css: str = ""
    end: str = ""
    html: str = ""

    def against(self, reference: Render) -> str:
        """The HTML that attacks this reference."""

        def fill(template: str) -> str:
            return re.sub(r"\{\{(\w+)\}\}", lambda match: MAKERS[match[1]](reference), template)

        if self.css:
            return with_css(reference.html, fill(self.css))
        return before_end(reference.html, fill(self.end)) if self.end else fill(self.html)


def load_attacks(path: Path = ATTACKS) -> list[Attack]:
    """All attacks of the gallery, in the order of the file."""
    return [Attack(**entry) for entry in tomllib.loads(path.read_text("utf-8"))["attack"]]


def _lines(reference: Render, template: str = "<p>{}</p>") -> str:
    return "".join(template.format(escape(block.text)) for block in reference.text_blocks)


def _screenshot(reference: Render) -> str:
    """A data URL of the screenshot, as good as the limit for images allows."""
    image = cv2.cvtColor(reference.pixels, cv2.COLOR_RGB2BGR)
    kind, data = "png", cv2.imencode(".png", image)[1].tobytes()
    if len(data) > MAX_IMAGE_BYTES:
        kind, data = (
            "jpeg",
            cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, 70))[1].tobytes(),
        )
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _color(color: Sequence[int]) -> str:
    return "#" + "".join(f"{int(channel):02x}" for channel in color)


def _placed(reference: Render) -> str:
    """Every text in its colour at its place."""
    return "".join(
        f'<div style="position:absolute;left:{t.x}px;top:{t.y}px;width:{t.width + 1}px;'
        f'color:{_color(t.color)};font:{t.font_size}px sans-serif">{escape(t.text)}</div>'
        for t in reference.text_blocks
    )


def _svg(reference: Render) -> str:
    height, width = reference.pixels.shape[:2]
    rect = '<rect x="{}" y="{}" width="{}" height="{}" fill="{}"/>'
    shapes = [rect.format(0, 0, width, height, _color(reference.background))]
    for b in reference.boxes:
        shapes.append(rect.format(b.x, b.y, b.width, b.height, _color(b.color)))
    for t in reference.text_blocks:
        shapes.append(
            f'<text x="{t.x}" y="{t.y + 0.8 * t.font_size}" font-size="{t.font_size}" '
            f'font-family="sans-serif" fill="{_color(t.color)}">{escape(t.text)}</text>'
        )
    size = f'width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(shapes)}</svg>'


def _gradients(reference: Render) -> str:
    layers = [
        f"linear-gradient({_color(b.color)},{_color(b.color)}) {b.x}px {b.y}px/"
        f"{b.width}px {b.height}px no-repeat"
        for b in reversed(reference.boxes)
    ]
    return ",".join([*layers, _color(reference.background)])


def _samples(reference: Render, columns: int) -> tuple[np.ndarray, int]:
    """The colours at the middles of square tiles, and the side of a tile in pixels."""
    side = reference.pixels.shape[1] // columns
    return reference.pixels[side // 2 :: side, side // 2 :: side], side


def _shadows(reference: Render) -> str:
    tiles, side = _samples(reference, 32)
    return ",".join(
        f"{x * side + 8}px {y * side + 8}px 0 {side // 2}px {_color(color)}"
        for y, row in enumerate(tiles)
        for x, color in enumerate(row)
    )


def _mosaic(reference: Render) -> str:
    tiles, side = _samples(reference, 32)
    tile = f'<i style="float:left;width:{side}px;height:{side}px;background:{{}}"></i>'
    return "".join(tile.format(_color(color)) for row in tiles[:, :32] for color in row)


def _inside(reference: Render) -> str:
    found = re.search(r"<body[^>]*>(.*?)(</body|\Z)", reference.html, re.S | re.I)
    return found[1] if found else reference.html


def _box(reference: Render) -> str:
    largest = max(reference.boxes, key=lambda b: b.width * b.height, default=None)
    return _color(largest.color if largest else reference.background)


MAKERS: dict[str, Callable[[Render], str]] = {
    "words": lambda r: escape(" ".join(block.text for block in r.text_blocks)),
    "lines": _lines,
    "line": lambda r: f"<p>{escape(r.text_blocks[0].text) if r.text_blocks else ''}</p>",
    "fields": lambda r: _lines(r, '<p><input size="40" placeholder="{}"></p>'),
    "nested": lambda r: "<div>" * 200 + _lines(r) + "</div>" * 200,
    "placed": _placed,
    "screenshot": _screenshot,
    "svg": _svg,
    "svg_base64": lambda r: base64.b64encode(_svg(r).encode()).decode(),
    "gradients": _gradients,
    "shadows": _shadows,
    "mosaic": _mosaic,
    "inside": _inside,
    "style": lambda r: "".join(match[0] for match in STYLE.finditer(r.html)),
    "skeleton": lambda r: re.sub(r">[^<]+<", "><", _inside(r)),
    "ground": lambda r: _color(r.background),
    "box": _box,
    "width": lambda r: str(r.pixels.shape[1]),
    "height": lambda r: str(r.pixels.shape[0]),
    "prompt": lambda r: PROMPT,
    "junk": lambda r: "<p>Limited offer: order now and win a prize</p>" * 40,
    "crowd": lambda r: "<i></i>" * MAX_NODES,
}
"""What stands for each name in a template."""
