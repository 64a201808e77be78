"""The measures of likeness agree with the libraries that define them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab
from skimage.metrics import structural_similarity

from vclib.env import similarity


def test_structural_similarity_is_the_map_of_scikit_image() -> None:
    rng = np.random.default_rng(0)
    a = cv2.blur(rng.integers(0, 256, (96, 128, 3), dtype=np.uint8), (5, 5))
    b = cv2.addWeighted(a, 0.7, rng.integers(0, 256, a.shape, dtype=np.uint8), 0.3, 0)
    ours = similarity.ssim_map(a.astype(np.float32), b.astype(np.float32))
    _, theirs = structural_similarity(a, b, channel_axis=2, full=True)
    assert np.abs(ours - theirs.mean(axis=-1)).max() < 1e-3


def test_colour_similarity_is_linear_in_ciede2000() -> None:
    a, b = ((37, 99, 235),), ((60, 110, 220),)
    lab_a, lab_b = (rgb2lab(np.array(c) / 255) for c in (a, b))
    expected = 1 - deltaE_ciede2000(lab_a, lab_b) / similarity.COLOR_RANGE
    ours = similarity.color_similarity(similarity.to_lab(a), similarity.to_lab(b))
    assert 0 < expected[0] < 1
    assert ours == pytest.approx(expected)


def test_texts_that_share_no_more_than_chance_have_nothing_in_common() -> None:
    likeness = similarity.text_similarity(["Home", "Gallery"], ["Home", "Docs", "Galery"])
    assert likeness[0, 0] == 1
    assert likeness[0, 1] == 0
    assert 0.8 < likeness[1, 2] < 1
    assert similarity.text_similarity([], ["Home"]).shape == (0, 1)


def test_overlap_is_intersection_over_union() -> None:
    a, b = (
        np.array([[0.0, 0, 10, 10]]),
        np.array([[5.0, 0, 10, 10], [20, 20, 5, 5], [0, 0, 10, 10]]),
    )
    assert similarity.overlap(a, b)[0] == pytest.approx([1 / 3, 0, 1])


def test_pairs_are_the_best_in_sum_and_worthless_pairs_are_dropped() -> None:
    rows, columns = similarity.match(np.array([[0.9, 0.8, 0], [0.8, 0, 0], [0, 0, 0]]))
    assert list(zip(rows, columns, strict=True)) == [(0, 1), (1, 0)]
