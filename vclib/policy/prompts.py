"""The four messages that the two agents are sent, built in one place.

Messages are in the chat format of Qwen's processors: a list of turns, each with a list of image
and text parts. Images may be arrays (uint8 RGB, shape [H, W, 3]) or PIL images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

Messages = list[dict[str, Any]]
Picture = np.ndarray | Image.Image

WRITE = (
    "Write one HTML document that looks like this screenshot. "
    "Answer with the raw HTML only, from the doctype to the closing tag."
)
REVISE = (
    "Your last HTML:\n{html}\nCritique:\n{critique}\n"
    "Write the whole HTML document again, corrected. Answer with the raw HTML only."
)
NO_CRITIQUE = "none"
CRITICISE = (
    "The first picture is the reference, the second its copy. "
    "Name each difference on a line of its own, and what it should be. "
    "If the copy needs no change, answer DONE."
)
CRITICISE_AGAIN = (
    "The first picture is the reference, the second its last copy, the third the new copy. "
    "Your last critique:\n{critique}\n"
    "Name each difference left on a line of its own, and what it should be. "
    "If the copy needs no change, answer DONE."
)
TASK = WRITE
"""What `reset` tells a client to do; the same words as the Developer's first message."""


def developer_first(reference: Picture) -> Messages:
    """Ask the Developer for a first draft of the page in `reference`."""
    return _user([reference], WRITE)


def developer_revision(
    previous_html: str, critique: str | None, reference: Picture | None = None
) -> Messages:
    """Ask the Developer for a new draft; without a Critic, `critique` is None.

    Without `reference` the Developer revises by the critique alone: the Critic is its eyes. With
    it, the screenshot is shown again.
    """
    text = REVISE.format(html=previous_html, critique=(critique or NO_CRITIQUE).strip())
    return _user([] if reference is None else [reference], text)


def critic_first(reference: Picture, render: Picture) -> Messages:
    """Ask the Critic what sets the first draft's render apart from the reference."""
    return _user([reference, render], CRITICISE)


def critic_again(
    reference: Picture, previous_render: Picture, render: Picture, previous_critique: str
) -> Messages:
    """Ask the Critic about a later draft; it also sees the last render and what it said of it."""
    return _user(
        [reference, previous_render, render],
        CRITICISE_AGAIN.format(critique=previous_critique.strip()),
    )


def is_done(critique: str) -> bool:
    """True if the Critic ends the episode: DONE alone on a line, not inside a sentence."""
    return any(line.strip().rstrip(".") == "DONE" for line in answer_of(critique).splitlines())


def answer_of(text: str) -> str:
    """The answer in a generated text: what follows `</think>`, if the model thought first."""
    return text.rpartition("</think>")[2].lstrip("\n")


def _user(pictures: list[Picture], text: str) -> Messages:
    images = [{"type": "image", "image": _as_image(picture)} for picture in pictures]
    return [{"role": "user", "content": [*images, {"type": "text", "text": text}]}]


def _as_image(picture: Picture) -> Image.Image:
    return picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
