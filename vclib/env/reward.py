"""The reward: how close a render comes to its reference, in eight parts and a gate."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import ArrayLike

from vclib.env import similarity as sim
from vclib.env.browser import Render
from vclib.env.look import Embed, Look, Reference
from vclib.env.markup import tree_similarity
from vclib.errors import VclibError

__all__ = ["WEIGHTS", "Breakdown", "Pairs", "Reference", "match_boxes", "match_texts", "score"]

WEIGHTS = {
    "format": 0.5,
    "validity": 0.5,
    "structural": 0.5,
    "text_block": 3.0,
    "position": 1.0,
    "color": 1.5,
    "ssim": 1.5,
    "clip": 2.5,
}
FULL_SHARE = 0.2
"""The share of the reference's content from which on the gate is fully open."""


@dataclass(frozen=True)
class Breakdown:
    """A score and how it came about, every number in [0, 1].

    `parts` holds the sub-rewards by name; None is one that does not apply: `clip` without weights,
    `text_block` where neither page has text. Its weight is then shared out among the others.
    `reason` says why a score, or a part of it, is 0.
    """

    total: float
    gate: float
    parts: dict[str, float | None]
    reason: str | None = None

    def as_dict(self) -> dict[str, float | str | None]:
        """Total, gate, reason and every part in one flat dictionary, fit for JSON."""
        return {"total": self.total, "gate": self.gate, "reason": self.reason, **self.parts}


def score(
    reference: Reference | Render, candidate: Render, *, clip: Embed | None = None
) -> Breakdown:
    """Score a candidate's render against a reference, in [0, 1].

    Identical pages score exactly 1; a render with an error scores 0. `clip` maps pixels
    (uint8 [H, W, 3]) to an image embedding; without it that part is absent.

    Raises:
        VclibError: if the two renders differ in size.
    """
    if not isinstance(reference, Reference):
        reference = Reference(reference)
    if candidate.error is not None:
        parts: dict[str, float | None] = dict.fromkeys(WEIGHTS, 0.0)
        if clip is None:
            parts["clip"] = None
        return Breakdown(0.0, 0.0, parts, f"render: {candidate.error}")
    if candidate.pixels.shape != reference.render.pixels.shape:
        raise VclibError(
            f"The candidate's render is {candidate.pixels.shape}, the reference's "
            f"{reference.render.pixels.shape}. Render both with the same viewport."
        )
    ref, cand = reference.look, Look(candidate)
    texts, boxes = match_texts(ref, cand), match_boxes(ref, cand)
    tall = _tallness(ref, cand)
    parts = {
        "format": _relative(cand.markup.format, ref.markup.format),
        "validity": _relative(cand.markup.validity, ref.markup.validity),
        "structural": tree_similarity(ref.markup, cand.markup),
        "text_block": texts.f1(ref.text_weights, cand.text_weights),
        "position": _position(ref, cand, texts, boxes, tall),
        "color": _color(ref, cand, texts, boxes),
        "ssim": _ssim(reference, cand),
        "clip": None if clip is None else _clip(reference, cand, clip),
    }
    gate = _gate(reference, cand, texts, boxes) * min(1.0, 1.5 * tall)
    parts = {
        name: None if part is None else round(min(1.0, max(0.0, float(part))), 6)
        for name, part in parts.items()
    }
    present = {name: part for name, part in parts.items() if part is not None}
    mean = sum(WEIGHTS[name] * part for name, part in present.items()) / sum(
        WEIGHTS[name] for name in present
    )
    reason = None
    if gate == 0:
        reason = "gate: the render shows nothing of the reference's content"
    elif cand.markup.failure:
        reason = f"validity, structural: the HTML cannot be parsed ({cand.markup.failure})"
    return Breakdown(round(mean * gate, 6), round(gate, 6), parts, reason)


@dataclass(frozen=True)
class Pairs:
    """Matched items: their indices on both sides, and how well each pair agrees, in [0, 1]."""

    rows: np.ndarray
    columns: np.ndarray
    quality: np.ndarray

    def f1(
        self, weights_ref: np.ndarray, weights_cand: np.ndarray, agreement: ArrayLike = 1.0
    ) -> float | None:
        """Soft F1 with a weight for each item; None where there is nothing on either side."""
        total = weights_ref.sum() + weights_cand.sum()
        if total == 0:
            return None
        paired = weights_ref[self.rows] + weights_cand[self.columns]
        return float((self.quality * np.asarray(agreement) * paired).sum() / total)


def match_texts(ref: Look, cand: Look) -> Pairs:
    """Texts of the reference with those of the candidate, one to one, for what they share."""
    likeness = sim.text_similarity(ref.words, cand.words)
    reach = 0.5 * float(np.hypot(*ref.viewport))
    near = sim.nearness(ref.text_rectangles[:, None], cand.text_rectangles, reach)
    return _pairs(likeness * (0.5 + 0.5 * near))


def match_boxes(ref: Look, cand: Look) -> Pairs:
    """Boxes of the reference with those of the candidate, one to one; quality is their overlap."""
    shared = sim.overlap(ref.box_rectangles, cand.box_rectangles)
    # Boxes nested in one another can share a rectangle; their colours then tell which is which.
    distance = np.linalg.norm(ref.box_lab[:, None] - cand.box_lab[None], axis=-1)
    pairs = _pairs(shared * (1 - 0.2 * np.clip(distance / 100, 0, 1)))
    return Pairs(pairs.rows, pairs.columns, shared[pairs.rows, pairs.columns])


def _pairs(worth: np.ndarray) -> Pairs:
    rows, columns = sim.match(worth)
    return Pairs(rows, columns, worth[rows, columns])


def _relative(grade: float, standard: float) -> float:
    """A grade of the candidate's text; it need not be cleaner than the reference's own."""
    return min(1.0, grade / standard) if standard > 0 else 1.0


def _tallness(ref: Look, cand: Look) -> float:
    """1 for a page no taller than the reference (or the viewport), less for one to scroll."""
    allowed = max(ref.render.page_height, ref.viewport[1])
    return min(1.0, allowed / max(1, cand.render.page_height))


def _position(ref: Look, cand: Look, texts: Pairs, boxes: Pairs, tall: float) -> float | None:
    """Where matched texts and boxes stand, averaged over all of the reference's items."""
    n = len(ref.texts) + len(ref.boxes)
    if n == 0:
        return None
    a, b = ref.text_rectangles[texts.rows], cand.text_rectangles[texts.columns]
    reach = 0.25 * float(np.hypot(*ref.viewport))
    near = sim.nearness(a, b, reach)
    sizes = (np.minimum(a, b)[:, 2:] / np.maximum(np.maximum(a, b)[:, 2:], 1e-9)).prod(axis=1)
    stands = texts.quality * (0.7 * near + 0.3 * sizes)
    return float(tall * (stands.sum() + boxes.quality.sum()) / n)


def _color(ref: Look, cand: Look, texts: Pairs, boxes: Pairs) -> float:
    """Agreement of the ground's colour, and of text and box colours weighted by their size."""
    pairs = Pairs(
        np.concatenate([texts.rows, boxes.rows + len(ref.texts)]),
        np.concatenate([texts.columns, boxes.columns + len(cand.texts)]),
        np.concatenate([texts.quality, boxes.quality]),
    )
    ground, *agreement = sim.color_similarity(
        ref.lab[np.append(0, 1 + pairs.rows)], cand.lab[np.append(0, 1 + pairs.columns)]
    )
    items = pairs.f1(_sizes(ref), _sizes(cand), agreement)
    ground_weight = min(0.5, 1 - float(ref.content.mean()))
    if items is None:
        return float(ground)
    return ground_weight * float(ground) + (1 - ground_weight) * items


def _sizes(look: Look) -> np.ndarray:
    rectangles = np.concatenate([look.text_rectangles, look.box_rectangles])
    return np.sqrt(rectangles[:, 2] * rectangles[:, 3])


def _ssim(reference: Reference, cand: Look) -> float:
    """Structural similarity where either page shows something, above that of a blank page.

    Pictures, drawings and gradients that the reference has not count as unlike.
    """
    ref = reference.look
    similarity = sim.ssim_map(ref.image, cand.image, ref.moments, cand.moments)
    painted = (cand.foreign & ~sim.grown(ref.foreign)).view(np.uint8)
    if painted.any():
        painted = cv2.resize(painted, sim.SSIM_SIZE, interpolation=cv2.INTER_NEAREST)
        similarity = similarity * (1 - painted)
    mask = ref.structure_mask | cand.structure_mask
    if not mask.any():
        return float(similarity.mean())
    blank = reference.blank_ssim
    return (float(similarity[mask].mean()) - blank) / max(1 - blank, 1e-6)


def _clip(reference: Reference, cand: Look, clip: Embed) -> float:
    """Cosine of the image embeddings, above that of a blank page."""
    page, blank = reference.embeddings(clip)
    base = min(_cosine(page, blank), 0.99)
    return (_cosine(page, clip(cand.render.pixels)) - base) / (1 - base)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-9))


def _gate(reference: Reference, cand: Look, texts: Pairs, boxes: Pairs) -> float:
    """0 for a render that shows nothing of a reference that shows something, rising to 1.

    Both must hold: pixels differ from the ground over a fair share of the area that the
    reference covers, and a fair share of its texts and boxes has a counterpart.
    """
    ref = reference.look
    if reference.is_empty:
        return 1 - float(cand.content.mean())
    honest = cand.content & (~cand.foreign | sim.grown(ref.foreign))
    shown = int(honest.sum()) / max(1, int(ref.content.sum()))
    n = len(ref.texts) + len(ref.boxes)
    found = (texts.quality.sum() + boxes.quality.sum()) / n if n else 1.0
    return min(1.0, shown / FULL_SHARE) * min(1.0, float(found) / FULL_SHARE)
