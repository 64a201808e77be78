"""The reward inspector without Jupyter, in a real browser: HTML in, boxes and a score out."""

import pytest

from vclib.env.browser import Renderer
from vclib.env.look import Look
from vclib.env.reward import Reference, score
from vclib.errors import VclibError
from vclib.notebook.inspector import RewardInspector, inspection_figure, marks_of

PAGE = (
    "<!doctype html><html><body style='margin:0;font:20px sans-serif'>"
    "<div style='background:#16a34a;height:40px'>News About</div>"
    "<div style='background:#7c3aed;height:40px;color:white'>Save</div></body></html>"
)
HALF = PAGE.replace("News About", "").replace("</body>", "<p>Extra words</p></body>")


@pytest.fixture(scope="module")
def renderer():
    with Renderer(timeout=15) as shared:
        yield shared


@pytest.fixture
def inspector(renderer):
    return RewardInspector(PAGE, renderer=renderer)


def test_the_reference_against_itself_is_all_matched_and_scores_one(inspector):
    assert inspector.breakdown.total == 1.0
    marks = marks_of(inspector.reference.look, inspector.reference.look)
    for side in marks:
        assert {mark.fate for mark in side} == {"matched"}
        assert sorted(mark.number for mark in side if mark.kind == "text") == [1, 2]


def test_the_score_follows_the_html(inspector, renderer):
    before = inspector.image.value
    inspector.html.value = HALF
    real = score(Reference(renderer.render(PAGE)), renderer.render(HALF))
    assert inspector.breakdown == real and real.total < 1
    assert inspector.image.value != before
    assert f"reward {real.total:.3f}" in inspector.said.value
    assert "Missed: “News About”" in inspector.said.value
    assert "Added: “Extra words”" in inspector.said.value


def test_pairs_have_one_number_on_both_pages_and_the_rest_none(renderer):
    reference, candidate = (Look(renderer.render(html)) for html in (PAGE, HALF))
    ours, theirs = marks_of(reference, candidate)
    texts = {mark.words: mark for mark in ours + theirs if mark.kind == "text"}
    assert texts["News About"].fate == "missed" and texts["Extra words"].fate == "added"
    for fate in ("missed", "added"):
        assert {mark.number for mark in ours + theirs if mark.fate == fate} <= {0}
    pair = [mark for mark in ours + theirs if mark.words == "Save"]
    assert len(pair) == 2 and pair[0].number == pair[1].number > 0
    boxes = [mark for mark in ours if mark.kind == "box" and mark.fate == "matched"]
    assert len(boxes) == 2


def test_outlines_stand_where_the_blocks_are_and_every_part_has_its_weight(inspector, renderer):
    render = renderer.render(HALF)
    figure = inspection_figure(inspector.reference, render, inspector.show(HALF))
    ours, theirs = marks_of(inspector.reference.look, Look(render))
    for axes, marks in zip(figure.axes, (ours, theirs), strict=False):
        corners = [(p.get_x() + 0.5, p.get_y() + 0.5) for p in axes.patches]
        assert corners == [mark.rectangle[:2] for mark in marks]
        over = min((patch.zorder for patch in axes.patches), default=1)
        assert all(edge.zorder < over for edge in axes.lines)  # white, to tell it from its ground
    names = " ".join(label.get_text() for label in figure.axes[2].get_yticklabels())
    assert "text_block (weight 3)" in names and "clip (weight 2.5)" in names
    assert "absent" in [text.get_text() for text in figure.axes[2].texts]


@pytest.mark.parametrize("html", ["", "<", "plain words", "<p>" * 500, "\x00", "<!doctype html>"])
def test_any_text_is_scored_and_explained(html, inspector):
    breakdown = inspector.show(html)
    assert 0 <= breakdown.total <= 1
    assert inspector.said.value and inspector.fallback().startswith(b"\x89PNG")


def test_a_page_that_cannot_be_rendered_scores_zero_with_its_reason(inspector):
    assert inspector.show("<p>x</p>" * 20_000).total == 0
    assert "Render:" in inspector.said.value


def test_a_reference_that_does_not_render_is_an_error_that_says_so(renderer):
    with pytest.raises(VclibError, match="reference page did not render"):
        RewardInspector("<p>x</p>" * 20_000, renderer=renderer)


def test_a_hostile_draft_is_shown_as_text(inspector):
    inspector.show(f"<p>{'&lt;img src=x onerror=alert(1)&gt;'}</p>")
    assert "<img" not in inspector.said.value
