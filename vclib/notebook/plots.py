"""The figures of `vclib.rl.figures`, drawn so that `plt.show()` shows them in a notebook.

The palette and the sizes live in `vclib.rl.figures`; they are re-exported here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from vclib.rl import figures
from vclib.rl.figures import INK, PALETTE, PANELS, PICTURE, STYLE, WIDE, moving_mean, png

__all__ = [
    "INK",
    "PALETTE",
    "PANELS",
    "PICTURE",
    "STYLE",
    "WIDE",
    "breakdown_bars",
    "difficulty_curves",
    "interval_plot",
    "moving_mean",
    "picture_strip",
    "png",
    "reward_curve",
    "turn_curves",
]

P = ParamSpec("P")


def _for_pyplot(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """The same function, drawing on pyplot's new figure unless it is given one."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        if kwargs.get("figure") is None:
            kwargs["figure"] = plt.figure()
        return draw(*args, **kwargs)

    return drawn


reward_curve = _for_pyplot(figures.reward_curve)
difficulty_curves = _for_pyplot(figures.difficulty_curves)
turn_curves = _for_pyplot(figures.turn_curves)
interval_plot = _for_pyplot(figures.interval_plot)
picture_strip = _for_pyplot(figures.picture_strip)
breakdown_bars = _for_pyplot(figures.breakdown_bars)
