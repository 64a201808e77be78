"""The `blocks` pages: drawn from a seed, written down, read back."""

import itertools

import numpy as np

from vclib.env import synth
from vclib.env.sheet import Sheet


def test_the_same_id_gives_the_same_page_for_ever():
    known = synth.block_page("train", "easy", 0)
    assert known == synth.block_page("train", "easy", 0)
    assert known.startswith('<!doctype html><html><body style="margin:0;')
    assert synth.block_page("train", "easy", 1) != known


def test_splits_share_no_page():
    pages = {
        split: {
            synth.block_page(split, difficulty, index)
            for difficulty in synth.DIFFICULTIES
            for index in range(200)
        }
        for split in synth.SPLITS
    }
    assert not pages["train"] & pages["heldout"]


def test_a_page_is_read_back_as_it_was_written():
    for index in range(150):
        page = synth.draw_page("train", synth.DIFFICULTIES[index % 3], index)
        again = synth.parse_html(synth.to_html(page))
        assert again is not None
        assert synth.to_html(again) == synth.to_html(page)


def test_what_is_no_page_is_read_as_none():
    for html in ("", "no page", "<html><body></body></html>", '<body style="background:#fff">'):
        assert synth.parse_html(html) is None


def test_difficulties_differ_in_what_they_hold():
    cells = [
        np.mean(
            [
                sum(len(row.cells) for row in synth.draw_page("train", difficulty, i).rows)
                for i in range(100)
            ]
        )
        for difficulty in synth.DIFFICULTIES
    ]
    assert cells[0] * 1.5 < cells[1] and cells[1] * 1.5 < cells[2]


def test_neighbouring_cells_differ_in_colour():
    for index in range(100):
        rows = synth.draw_page("train", "hard", index).rows
        for above, below in itertools.pairwise(rows):
            colours = {cell.background for cell in above.cells}
            assert not colours & {cell.background for cell in below.cells}


def test_a_sheet_holds_the_same_pixels_as_pages_drawn_one_by_one(renderer):
    htmls = [synth.block_page("train", synth.DIFFICULTIES[i % 3], i) for i in range(11)]
    sheet = Sheet()
    try:
        shots = sheet.draw(htmls)
    finally:
        sheet.close()
    for html, shot in zip(htmls, shots, strict=True):
        assert np.array_equal(renderer.render(html).pixels, shot)
