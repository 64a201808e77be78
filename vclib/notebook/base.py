"""What all widgets are made of: a picture with a name, controls above a picture, HTML on a card."""

from __future__ import annotations

import base64
from typing import Any

import ipywidgets

from vclib.rl.figures import GRID, INK

CARD = (
    f"background:#ffffff;color:{INK};border:1px solid {GRID};border-radius:4px;"
    "padding:6px 10px;margin:4px 0;line-height:1.5;max-width:960px"
)
"""Dark ink on white, in a dark notebook too: the colours that mark a text stay what they mean."""
LABELS = {"style": {"description_width": "80px"}}


class Picture:
    """A PNG under a name that is the same on every run."""

    def __init__(self, png: bytes, name: str):
        self.png, self.name = png, name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _repr_png_(self) -> bytes:
        return self.png


class Explorer(ipywidgets.VBox):
    """Controls and one picture, which is what a notebook shows where no kernel runs."""

    image: ipywidgets.Image
    title: str

    def fallback(self) -> bytes:
        """The PNG that stands for the widget where no kernel runs."""
        return bytes(self.image.value)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        fallback = base64.b64encode(self.fallback()).decode()
        return {**bundle, "text/plain": f"<{self.title}>", "image/png": fallback}


def card(content: str, style: str = "") -> str:
    """HTML on a white card, the same in light and dark themes."""
    return f'<div style="{CARD};{style}">{content}</div>'
