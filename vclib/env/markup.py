"""What can be said of an answer from its text alone: its format, its validity, its tree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from markupever import HtmlOptions, Parser
from markupever._rustlib import Element
from markupever._rustlib.iter import Traverse
from markupever.dom import Document
from rapidfuzz.distance import Indel

DOCTYPE = re.compile(r"\s*<!doctype\s+html\b[^>]*>", re.IGNORECASE)
OPENING = re.compile(r"\s*<html[\s>]", re.IGNORECASE)
CLOSING = re.compile(r"</html\s*>\s*\Z", re.IGNORECASE)
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
TAG = re.compile(r"<[a-zA-Z][^>]*")
MAX_ATTRIBUTES = 2_000
"""In one tag; a parser compares each with all before it."""
UNSEEN_TAGS = {"head", "title", "meta", "link", "style", "script", "base", "noscript", "template"}


@dataclass(frozen=True)
class Markup:
    """The facts about one HTML text: two grades in [0, 1], and the tree of its visible elements.

    `tags` are the visible elements' tags in the order in which they open (`p`) and close (`/p`),
    `edges` counts the pairs of a parent's and a child's tag. `failure` says why the text
    could not be parsed; the grades and the tree are then 0 and empty.
    """

    format: float
    validity: float
    tags: tuple[str, ...]
    edges: Counter[tuple[str, str]]
    failure: str | None = None


@lru_cache(maxsize=64)
def read_markup(html: str) -> Markup:
    """Grade a text and read its tree, by the HTML5 parsing algorithm; the last 64 are kept."""
    form = format_grade(html)
    if any(len(tag.split()) > MAX_ATTRIBUTES for tag in TAG.findall(QUOTED.sub("", html))):
        return Markup(form, 0.0, (), Counter(), f"a tag has over {MAX_ATTRIBUTES} attributes")
    parser = Parser(HtmlOptions(exact_errors=True))
    parser.process(html.encode("utf-8", "replace")).finish()
    errors = len(parser.errors())
    steps = list(_walk(parser.into_dom().root()))
    tags = tuple(tag for tag, _ in steps)
    edges = Counter((parent, tag) for tag, parent in steps if parent)
    return Markup(form, validity_grade(html, errors), tags, edges)


def format_grade(html: str) -> float:
    """How far a text is a raw HTML document: half for its beginning, half for its end.

    A document that begins with `<html>` but has no doctype gets half of the first half. Fences
    and talk before or after it take away that side's half.
    """
    start = 0.5 if DOCTYPE.match(html) else 0.25 if OPENING.match(html) else 0.0
    return start + (0.5 if CLOSING.search(html) else 0.0)


def validity_grade(html: str, errors: int) -> float:
    """How clean a document is: half for few parse errors, a quarter each for body and ending."""
    if not html.strip():
        return 0.0
    lower = html.lower()
    has_body = "<html" in lower and "<body" in lower
    is_whole = "</body" in lower and "</html" in lower
    return 0.5 / (1 + errors / 4) + 0.25 * has_body + 0.25 * is_whole


def tree_similarity(a: Markup, b: Markup) -> float:
    """Likeness of two trees in [0, 1]: Dice of parent-child pairs, and order of the tags."""
    if not a.tags and not b.tags:
        return 1.0
    common = (a.edges & b.edges).total()
    dice = 2 * common / max(1, a.edges.total() + b.edges.total())
    return (dice + Indel.normalized_similarity(a.tags, b.tags)) / 2


def _walk(root: Document) -> Iterator[tuple[str, str]]:
    """Tag and parent's tag of each element that can be seen, and its closing tag and nothing."""
    parents, unseen = [""], 0
    # The library's own iterator wraps each node once more, which takes longer than to parse.
    for node, closed in Traverse(root._raw):
        if not isinstance(node, Element):
            continue
        tag = node.name.local
        if tag in UNSEEN_TAGS:
            unseen += -1 if closed else 1
        elif not unseen and closed:
            yield f"/{parents.pop()}", ""
        elif not unseen:
            yield tag, parents[-1]
            parents.append(tag)
