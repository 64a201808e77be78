"""Exercises on rendering pages."""

from __future__ import annotations

import re

from vclib.notebook.exercises.exercise import Exercise


def intersection_over_union(a, b):
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    shared = max(0, width) * max(0, height)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def can_be_read(color, ground, opacity, font_size):
    contrast = max(opacity * abs(c - g) for c, g in zip(color, ground, strict=True))
    return contrast >= 24 and font_size >= 4


def is_page_id(page_id):
    parts = page_id.split("/")
    if len(parts) != 4 or parts[0] != "blocks":
        return False
    if parts[1] not in ("train", "heldout") or parts[2] not in ("easy", "medium", "hard"):
        return False
    return re.fullmatch("0|[1-9][0-9]*", parts[3]) is not None


def too_large(html, max_bytes, max_tags):
    return len(html.encode()) > max_bytes or len(re.findall("<[a-zA-Z]", html)) > max_tags


def _unclipped(a: tuple, b: tuple) -> float:
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return width * height / (a[2] * a[3] + b[2] * b[3] - width * height)


def _over_the_sum(a: tuple, b: tuple) -> float:
    iou = intersection_over_union(a, b)
    return iou / (1 + iou)


def _over_the_smaller(a: tuple, b: tuple) -> float:
    iou, both = intersection_over_union(a, b), a[2] * a[3] + b[2] * b[3]
    return iou / (1 + iou) * both / min(a[2] * a[3], b[2] * b[3])


def _digits_of_any_kind(page_id: str) -> bool:
    *parts, number = page_id.split("/")
    return number.isdigit() and is_page_id("/".join([*parts, "1"]))


def _any_set(page_id: str) -> bool:
    return is_page_id("/".join(["blocks", *page_id.split("/")[1:]]))


def _letters_for_bytes(html: str, max_bytes: int, max_tags: int) -> bool:
    return too_large(html.encode("ascii", "replace").decode(), max_bytes, max_tags)


def _closing_tags_too(html: str, max_bytes: int, max_tags: int) -> bool:
    return len(html.encode()) > max_bytes or html.count("<") > max_tags


EXERCISES = {
    "intersection_over_union": Exercise(
        intersection_over_union,
        cases=[
            ((0, 0, 4, 4), (2, 2, 4, 4)),
            ((0, 0, 4, 4), (0, 0, 4, 4)),
            ((0, 0, 8, 8), (2, 2, 4, 4)),
            ((0, 0, 4, 4), (4, 0, 4, 4)),
            ((0, 0, 4, 4), (10, 0, 4, 4)),
            ((0, 0, 4, 4), (10, 10, 4, 4)),
        ],
        slips=[
            (_over_the_sum, "the shared part is counted twice below the line: take it away once"),
            (_over_the_smaller, "it divides by the smaller rectangle; divide by the union"),
            (_unclipped, "rectangles that do not touch: a width or height below 0 must become 0"),
        ],
        difficulty="easy",
        minutes=10,
    ),
    "can_be_read": Exercise(
        can_be_read,
        cases=[
            ((17, 24, 39), (255, 255, 255), 1.0, 16),
            ((255, 255, 255), (255, 255, 255), 1.0, 16),
            ((245, 245, 245), (255, 255, 255), 1.0, 16),
            ((255, 255, 225), (255, 255, 255), 1.0, 16),
            ((0, 0, 0), (255, 255, 255), 0.05, 16),
            ((0, 0, 0), (255, 255, 255), 0.2, 16),
            ((0, 0, 0), (255, 255, 255), 1.0, 1),
        ],
        slips=[
            (
                lambda color, ground, opacity, size: can_be_read(color, ground, 1.0, size),
                "the opacity is left out: it scales the contrast",
            ),
            (
                lambda color, ground, opacity, size: can_be_read(color, ground, opacity, 16),
                "the size is left out: below 4 pixels nothing can be read",
            ),
            (
                lambda color, ground, opacity, size: (
                    opacity * sum(abs(c - g) for c, g in zip(color, ground, strict=True)) >= 24
                    and size >= 4
                ),
                "it adds the channels up; take the one that differs most",
            ),
            (
                lambda color, ground, opacity, size: (
                    opacity * sum(abs(c - g) for c, g in zip(color, ground, strict=True)) / 3 >= 24
                    and size >= 4
                ),
                "it takes the mean of the channels; take the one that differs most",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "is_page_id": Exercise(
        is_page_id,
        cases=[
            ("blocks/train/easy/0",),
            ("blocks/heldout/hard/1234",),
            ("blocks/train/easy/007",),
            ("blocks/train/easy/-1",),
            ("blocks/train/easy/1.0",),
            ("blocks/train/easy/²",),
            ("blocks/train/mixed/3",),
            ("blocks/test/easy/3",),
            ("blocks/train/easy",),
            ("blocks/train/easy/",),
            ("blocks/train/easy/3/4",),
            ("web/train/easy/3",),
        ],
        slips=[
            (
                _digits_of_any_kind,
                "a number has more than one spelling there: 007, or digits of other scripts",
            ),
            (_any_set, "the name of the set is not looked at: this is about blocks"),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "too_large": Exercise(
        too_large,
        cases=[
            ("<p>one</p>", 100, 5),
            ("<p>one</p>", 5, 5),
            ("<p>one<p>two<p>three", 100, 2),
            ("<p>one</p><p>two</p>", 100, 3),
            ("<p>1 < 2 < 3 < 4", 100, 1),
            ("<p>日本語</p>", 12, 5),
        ],
        slips=[
            (_letters_for_bytes, "it counts characters; the limit is on bytes, as they are sent"),
            (_closing_tags_too, "not every < opens an element: count those before a letter"),
        ],
        difficulty="easy",
        minutes=10,
    ),
}
