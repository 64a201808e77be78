"""Why a draft scores what it scores: what was found of the reference, and every part's share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import ipywidgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from vclib.env.browser import Render, Renderer
from vclib.env.look import Embed, Look
from vclib.env.reward import WEIGHTS, Breakdown, Pairs, Reference, match_boxes, match_texts, score
from vclib.notebook.base import Explorer, card
from vclib.notebook.replay_figures import part_bars
from vclib.rl import figures

PAUSE = 0.4
"""Seconds without a key after which an edited page is rendered."""
SIZE = (9.6, 3.3)
Fate = Literal["matched", "missed", "added"]
LINES: dict[Fate, dict[str, Any]] = {
    "matched": {"color": figures.PALETTE["developer"], "linestyle": "-"},
    "missed": {"color": figures.PALETTE["critic"], "linestyle": "--"},
    "added": {"color": figures.PALETTE["combined"], "linestyle": ":"},
}
LABEL = {"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.85}


@dataclass(frozen=True)
class Mark:
    """A text or box of one of the two pages, and what became of it.

    rectangle: x, y, width, height in CSS pixels; quality: of its pair, in [0, 1]; number: the same
    on both pages for a pair, from 1.
    """

    kind: Literal["text", "box"]
    fate: Fate
    rectangle: tuple[float, ...]
    words: str = ""
    quality: float = 0.0
    number: int = 0


def marks_of(reference: Look, candidate: Look) -> tuple[list[Mark], list[Mark]]:
    """What of the reference was found, and what of the candidate answers it, as `score` pairs it.

    Texts without any counterpart, and boxes that nothing overlaps, are missed in the reference and
    added in the candidate.
    """
    texts, boxes = match_texts(reference, candidate), match_boxes(reference, candidate)
    ours = _fates(texts, reference.text_rectangles, reference.words, "text", 0)
    ours += _fates(boxes, reference.box_rectangles, (), "box", 0)
    theirs = _fates(texts, candidate.text_rectangles, candidate.words, "text", 1)
    theirs += _fates(boxes, candidate.box_rectangles, (), "box", 1)
    return ours, theirs


def _fates(
    pairs: Pairs,
    rectangles: np.ndarray,
    words: Sequence[str],
    kind: Literal["text", "box"],
    side: int,
) -> list[Mark]:
    indices = (pairs.rows, pairs.columns)[side].tolist()
    found = {index: place for place, index in enumerate(indices)}
    unpaired: Fate = ("missed", "added")[side]
    marks = []
    for index, rectangle in enumerate(rectangles.tolist()):
        place, text = found.get(index), words[index] if words else ""
        if place is None:
            marks.append(Mark(kind, unpaired, tuple(rectangle), text))
        else:
            quality = float(pairs.quality[place])
            marks.append(Mark(kind, "matched", tuple(rectangle), text, quality, place + 1))
    return marks


def inspection_figure(reference: Reference, render: Render, breakdown: Breakdown) -> Figure:
    """Both pages with their texts and boxes outlined by what became of them; the parts as bars."""
    ours, theirs = marks_of(reference.look, Look(render)) if render.error is None else ([], [])
    with figures.styled(**{"axes.grid": False}):
        figure = Figure(figsize=SIZE)
        cells = figure.add_gridspec(
            1,
            3,
            left=0.005,
            right=0.985,
            top=0.92,
            bottom=0.12,
            wspace=0.05,
            width_ratios=(3, 3, 2),
        )
        panels = [figure.add_subplot(cells[place]) for place in range(3)]
        _page(panels[0], reference.render.pixels, ours, "reference")
        _page(panels[1], render.pixels, theirs, "candidate")
        if render.error is not None:
            panels[1].text(0.5, 0.5, "not rendered", ha="center", transform=panels[1].transAxes)
        part_bars(panels[2], breakdown.as_dict(), WEIGHTS, room=0.11)
        keys = [Line2D([], [], lw=1.6, **line) for line in LINES.values()]
        labels = ["matched: number of the text, and how well if below 1", "missed", "added"]
        figure.legend(keys, labels, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=3)
    return figure


def _page(axes: Axes, pixels: np.ndarray, marks: Sequence[Mark], title: str) -> None:
    axes.set(xticks=[], yticks=[], title=title)
    axes.spines[:].set(visible=True, color=figures.GRID)
    axes.imshow(pixels, interpolation="antialiased")
    height, width = pixels.shape[:2]
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    for mark in marks:
        x, y, w, h = mark.rectangle
        thick = 1.6 if mark.kind == "text" else 1.0
        # On a ground of its own colour an outline would not be seen but for its white edge.
        x, y = x - 0.5, y - 0.5  # a pixel's middle is a whole number here
        round_ = ([x, x + w, x + w, x, x], [y, y, y + h, y + h, y])
        axes.plot(*round_, color="white", lw=thick + 1.6, zorder=0.5)
        outline = Rectangle((x, y), w, h, fill=False, lw=thick, **LINES[mark.fate])
        axes.add_patch(outline)
        if mark.kind == "text" and mark.number:
            named = (
                f"{mark.number}" if mark.quality > 0.995 else f"{mark.number}: {mark.quality:.2f}"
            )
            # Below the text where there is no room above it.
            at, side = (y, "bottom") if y > 0.06 * height else (y + h, "top")
            axes.text(x, at, named, size=6.5, va=side, bbox=LABEL, clip_on=True)


def explanation(breakdown: Breakdown, marks: Sequence[Mark], blocked: Sequence[str] = ()) -> str:
    """How a score came about, in sentences of HTML: the product, the costliest part, the misses."""
    present = {name: part for name, part in breakdown.parts.items() if part is not None}
    weight = sum(WEIGHTS[name] for name in present)
    mean = sum(WEIGHTS[name] * part for name, part in present.items()) / weight
    said = [
        f"<b>reward {breakdown.total:.3f}</b> = gate {breakdown.gate:.2f} · weighted mean "
        f"{mean:.3f} of {len(present)} parts."
    ]
    losses = {name: WEIGHTS[name] * (1 - part) / weight for name, part in present.items()}
    worst = max(losses, key=losses.__getitem__)
    if losses[worst] >= 0.0005:
        said.append(f"The costliest part is {worst}: it alone takes {losses[worst]:.3f}.")
    if breakdown.reason:
        said.append(f"{escape(breakdown.reason[0].upper() + breakdown.reason[1:])}.")
    for fate in ("missed", "added"):
        texts = [mark.words for mark in marks if mark.fate == fate and mark.kind == "text"]
        boxes = sum(mark.fate == fate and mark.kind == "box" for mark in marks)
        named = [f"“{escape(text[:40])}”" for text in texts[:6]] + ["…"] * (len(texts) > 6)
        named += [f"{boxes} box{'es' * (boxes > 1)}"] * bool(boxes)
        said += [f"{fate.capitalize()}: {', '.join(named)}."] if named else []
    absent = [name for name, part in breakdown.parts.items() if part is None]
    said += [f"Not counted here: {', '.join(absent)}."] if absent else []
    said += [f"Taken out or refused: {escape(', '.join(blocked[:6]))}."] if blocked else []
    return " ".join(said)


class RewardInspector(Explorer):
    """A reference and a draft of it, side by side and scored; edit the HTML and the score follows.

        RewardInspector(page.html, draft)

    `reference` is HTML, a `Page` or a `Reference`; `renderer` one to share, of the page's size:
    without one the widget starts a browser of 256 x 192 pixels, which `close()` ends. `breakdown`
    is the score of what is shown. Raises `VclibError` if the reference does not render.
    """

    title = "reward inspector"

    def __init__(
        self,
        reference: Any,
        html: str | None = None,
        renderer: Renderer | None = None,
        clip: Embed | None = None,
    ):
        self._own = None if renderer else Renderer()
        self.renderer, self.clip = renderer or self._own, clip
        source = getattr(reference, "html", reference)
        if not isinstance(reference, Reference):
            reference = Reference(self.renderer.render(source))  # type: ignore[union-attr]
        self.reference: Reference = reference
        self.html = ipywidgets.Textarea(
            self.reference.render.html if html is None else html,
            rows=12,
            placeholder="HTML of the draft",
            layout=ipywidgets.Layout(width="960px"),
        )
        self.image = ipywidgets.Image(format="png", width=960)
        self.said = ipywidgets.HTML()
        self._due: asyncio.TimerHandle | None = None
        self.follow()
        self.html.observe(self._edited, names="value")
        super().__init__([self.image, self.said, self.html])

    def show(self, html: str) -> Breakdown:
        """Put another draft in, and score it at once."""
        self.html.value = html
        self.follow()
        return self.breakdown

    def follow(self) -> None:
        """Render, score and show what the text area holds."""
        if self._due:
            self._due.cancel()
            self._due = None
        render = self.renderer.render(self.html.value)  # type: ignore[union-attr]
        self.breakdown = score(self.reference, render, clip=self.clip)
        self.image.value = figures.png(inspection_figure(self.reference, render, self.breakdown))
        ours, theirs = marks_of(self.reference.look, Look(render)) if not render.error else ([], [])
        self.said.value = card(explanation(self.breakdown, [*ours, *theirs], render.blocked))

    def close(self) -> None:
        """End the browser if it is the widget's own, and take the widget away."""
        if self._own:
            self._own.close()
        super().close()

    def _edited(self, change: Any = None) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.follow()
            return
        # While somebody types, only the last of the edits is worth a render.
        if self._due:
            self._due.cancel()
        self._due = loop.call_later(PAUSE, self.follow)
