"""Text with marks, as HTML: what changed between two drafts, and a colour on every token."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from html import escape

from matplotlib import colormaps
from matplotlib.colors import to_hex

from vclib.rl.figures import DIVERGING, PALETTE, SEQUENTIAL
from vclib.rl.kept import KeptTurn

PIECES = re.compile(r"<[^<>]*>|[^<\s]+|\s+|<")
MOST_PIECES = 4000
"""Longer texts are compared line by line, for the time grows with the square."""
SURE = math.log(1 / 20)
"""Log-probability from which on a token is as dark as any: a chance of one in twenty."""
VIEWS = ("changes", "log-probability", "advantage", "pull")
PRE = "white-space:pre-wrap;overflow-wrap:anywhere;font:12px/1.6 monospace;margin:0"


def changes(before: str | None, after: str) -> str:
    """A text with what is new underlined and what has gone struck out; None: all of it is new."""
    if before is None:
        return f'<pre style="{PRE}">{escape(after)}</pre>'
    old, new = _cut(before), _cut(after)
    if max(len(old), len(new)) > MOST_PIECES:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    marked = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            marked.append(escape("".join(new[c:d])))
            continue
        marked += [_mark("del", old[a:b], PALETTE["critic"], "line-through")] if b > a else []
        marked += [_mark("ins", new[c:d], PALETTE["developer"], "underline")] if d > c else []
    return f'<pre style="{PRE}">{"".join(marked)}</pre>'


def _cut(text: str) -> list[str]:
    return PIECES.findall(text)


def _mark(tag: str, pieces: Sequence[str], colour: str, line: str) -> str:
    style = f"background:{colour}33;text-decoration:{line} {colour} 2px;color:inherit"
    return f'<{tag} style="{style}">{escape("".join(pieces))}</{tag}>'


def tokens(turn: KeptTurn, view: str) -> str:
    """The tokens of a turn, each on a ground whose colour is its value in this view.

    Where a token, its log-probability or the turn's advantage is not known, a sentence says so.
    """
    if not turn.tokens:
        return escape(
            f"The tokens of this turn are not known, so its {view} cannot be shown: give the "
            "replayer the policy's tokenizer, or an episode that was kept with it."
        )
    if view != "log-probability" and turn.advantage is None:
        return escape(
            "This turn has no advantage: its agent was not trained here, or credit was not "
            "assigned yet."
        )
    values, colour = colouring(turn, view)
    spans = [
        f'<span title="{escape(repr(text))}: {value:+.3f}" style="background:{colour(value)}">'
        f"{escape(text)}</span>"
        for text, value in zip(turn.tokens, values, strict=True)
    ]
    return f'{_legend(turn, view)}<pre style="{PRE}">{"".join(spans)}</pre>'


def colouring(turn: KeptTurn, view: str) -> tuple[list[float], Callable[[float], str]]:
    """The value of every token in a view, and what turns a value into a colour.

    `advantage` is the turn's, the same for all of its tokens. `pull` is A (1 - p), the gradient of
    the objective with respect to the token's own logit: a token that was certain is not moved.
    """
    if view == "log-probability":
        return list(turn.logprobs), lambda value: _tint(SEQUENTIAL, min(1.0, value / SURE))
    advantage = turn.advantage or 0.0
    values = [advantage] * len(turn.tokens)
    if view == "pull":
        values = [advantage * (1 - math.exp(score)) for score in turn.logprobs]
    return values, lambda value: _tint(DIVERGING, 0.5 + max(-1.0, min(1.0, value / 2)) / 2)


def _tint(colours: str, place: float) -> str:
    """A colour of a map, mixed with white so that dark ink is read on it."""
    red, green, blue, _ = (1 - 0.55 * (1 - channel) for channel in colormaps[colours](place))
    return to_hex((red, green, blue))


def _legend(turn: KeptTurn, view: str) -> str:
    shades = {
        "log-probability": (SEQUENTIAL, (0.0, 0.5, 1.0), ("p = 1", "", "p ≤ 1/20")),
        "advantage": (DIVERGING, (0.0, 0.5, 1.0), ("-2 or less", "0", "+2 or more")),
        "pull": (DIVERGING, (0.0, 0.5, 1.0), ("-2 or less", "0", "+2 or more")),
    }[view]
    boxes = "".join(
        f'<span style="background:{_tint(shades[0], at)};padding:0 8px">{label or "&nbsp;"}</span>'
        for at, label in zip(*shades[1:], strict=True)
    )
    total = f"{math.fsum(turn.logprobs):.2f} nats over {len(turn.tokens)} tokens"
    words = {
        "log-probability": f"How surprising each token was. The whole turn: log π = {total}.",
        "advantage": f"Every token of a turn shares its advantage, {turn.advantage or 0:+.2f}.",
        "pull": "Advantage times (1 - p): how hard the update pulls at the token's own logit.",
    }[view]
    return f'<div style="margin-bottom:4px">{boxes} {words}</div>'
