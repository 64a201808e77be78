"""Demonstrations: the true critique names what differs, and carrying it out mends the page."""

import random

import pytest

from vclib.env.synth import DIFFICULTIES, draw_page
from vclib.policy.prompts import is_done
from vclib.rl import demonstrations as demos
from vclib.rl.examples import _seen, plan_example


def cases(count=200):
    rng = random.Random(0)
    for index in range(count):
        page = draw_page("train", DIFFICULTIES[index % 3], index)
        yield page, demos.write(page, demos.choose(demos.WRITERS, rng), rng), rng


def test_carrying_out_every_difference_gives_the_reference():
    for page, draft, _ in cases():
        mended = demos.apply(draft, "\n".join(demos.differences(page, draft)))
        assert demos.differences(page, mended) == []


@pytest.mark.parametrize("writer", demos.WRITERS)
def test_no_first_draft_holds_words_below_its_first_row(writer):
    for page, _, rng in cases(60):
        draft = demos.write(page, writer, rng)
        assert not any(cell.words for row in draft.rows[1:] for cell in row.cells)


def test_a_careful_first_draft_lacks_nothing_but_those_words():
    for page, _, rng in cases(60):
        lines = demos.differences(page, demos.write(page, "careful", rng))
        assert all(": words " in line for line in lines)
        assert len(lines) == sum(bool(cell.words) for row in page.rows[1:] for cell in row.cells)


def test_a_page_has_no_difference_from_itself_and_the_critique_is_done():
    for page, _, _ in cases(20):
        assert is_done(demos.critique(demos.differences(page, page)))


def test_each_round_of_a_careful_critic_leaves_fewer_differences():
    for page, draft, rng in cases(60):
        before = demos.differences(page, draft)
        after = demos.differences(
            page, demos.apply(draft, demos.criticise(page, draft, "careful", rng))
        )
        assert len(after) < len(before) or not before


def test_a_partial_critique_names_some_of_the_differences_and_no_others():
    shares = []
    for page, draft, rng in cases():
        lines = demos.differences(page, draft)
        named = demos.criticise(page, draft, "partial", rng).splitlines()
        assert named == ["DONE"] or named == [line for line in lines if line in named]
        shares.append(len(named) < len(lines))
    assert sum(shares) > 50


def test_a_careful_revision_changes_what_is_named_and_nothing_else():
    for page, _, rng in cases():
        draft = demos.write(page, "careful", rng)
        said = demos.criticise(page, draft, "partial", rng)
        left = demos.differences(page, demos.revise(draft, said, "careful", rng))
        assert set(left) == set(demos.differences(page, draft)) - set(said.splitlines())


def test_a_revision_is_demonstrated_without_a_screenshot_and_does_as_it_is_told():
    rng, unasked = random.Random(0), 0
    for _ in range(300):
        plan = plan_example("revise", rng, own_drafts=[], share=0)
        assert not _seen(plan)
        unasked += plan.critique is None
        if plan.critique is None:
            assert plan.answer == plan.draft_html
    assert unasked > 20


def test_lines_that_make_no_sense_are_passed_over():
    page, *_ = next(iter(cases(1)))
    nonsense = "row 99: remove\nrow 1 cell 9: words Hi\nrow x: height\nheight 3\n\nrow 1: colour"
    assert demos.apply(page, nonsense) == page


def test_an_unknown_writer_or_critic_is_an_error_that_names_the_known():
    page, draft, rng = next(iter(cases(1)))
    with pytest.raises(ValueError, match="careful"):
        demos.write(page, "hurried", rng)
    with pytest.raises(ValueError, match="brief"):
        demos.criticise(page, draft, "kind", rng)
