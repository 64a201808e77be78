"""What is read from an answer's text alone."""

from __future__ import annotations

from vclib.env.markup import MAX_ATTRIBUTES, read_markup, tree_similarity


def document(body: str) -> str:
    return f"<!doctype html><html><body>{body}</body></html>"


PAGE = document("<div>Gallery</div><div>Orders</div>")


def test_format_and_validity_grade_the_text() -> None:
    whole = read_markup(PAGE)
    assert whole.format == whole.validity == 1
    assert read_markup(PAGE.replace("<!doctype html>", "")).format == 0.75
    assert read_markup(f"```html\n{PAGE}\n```").format == 0
    assert read_markup("").format == read_markup("").validity == 0
    truncated = read_markup(PAGE[: len(PAGE) // 2])
    assert truncated.format == 0.5
    assert truncated.validity < 0.75
    broken = read_markup(PAGE.replace("</div>", "</span>"))
    assert broken.validity < truncated.validity + 0.25


def test_tree_similarity_falls_with_each_change_of_the_tree() -> None:
    flat = read_markup(document("<p>a</p><p>b</p><p>c</p>"))
    nested = read_markup(document("<div><p>a</p><p>b</p><p>c</p></div>"))
    shorter = read_markup(document("<p>a</p><p>b</p>"))
    other = read_markup(document("<ul><li><a>a</a></li></ul>"))
    assert tree_similarity(flat, flat) == 1
    assert 1 > tree_similarity(flat, shorter) > tree_similarity(flat, other)
    assert 1 > tree_similarity(flat, nested) > tree_similarity(flat, other)


def test_a_tag_stuffed_with_attributes_is_not_parsed_but_a_long_value_is() -> None:
    names = " ".join(f"x{i}" for i in range(MAX_ATTRIBUTES + 1))
    assert "attributes" in str(read_markup(document(f"<p {names}>")).failure)
    assert read_markup(document(f"<p title='{names}'></p>")).failure is None


def test_hostile_markup_is_graded_in_bounded_time() -> None:
    for text in (
        "<b>" * 1000,
        "<table><td>" * 500,
        "&" * 10_000,
        "<!--" * 2_000,
        "\ud800\x00<" * 500,
    ):
        markup = read_markup(text)
        assert 0 <= markup.validity <= 0.5
