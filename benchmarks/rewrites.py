"""A page written otherwise, with the same looks: only the reward's `structural` part may fall."""

from __future__ import annotations

import html as entities
import re

from markupever.dom import Element

from vclib.env.restyle import COMMENT, INLINE, RULE, STYLE, tree_of, with_css

ATTRIBUTE = re.compile(r"\s+([\w-]+(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>]+))?)")
TAG = re.compile(r"<([a-z][\w-]*)((?:\s+[\w-]+(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>]+))?)+)\s*>", re.I)


def rewrites(html: str) -> dict[str, str]:
    """Other sources of the same looks, by name."""
    return {
        "re-indented": indented(html),
        "other classes": other_classes(html),
        "other tags": other_tags(html),
    }


def _one_a_line(match: re.Match[str]) -> str:
    attributes = ATTRIBUTE.sub(r"\n        \1", match[2])
    return f"<{match[1]}{attributes}\n    >"


def indented(html: str) -> str:
    """Every attribute and declaration on a line of its own, and every line further in."""
    html = TAG.sub(_one_a_line, html)
    html = STYLE.sub(lambda m: m[1] + re.sub(r"([{};])\s*", r"\1\n\t\t", m[2]) + m[3], html)
    return html if re.search(r"\bpre\b|<textarea", html) else re.sub(r"\n", "\n\n      ", html)


def renamed(html: str, pattern: str, new: str) -> str:
    """A page with what matches replaced in the selectors of its style sheets."""

    def rule(match: re.Match[str]) -> str:
        return f"{re.sub(pattern, new, match[1], flags=re.I)}{{{match[2]}}}"

    return STYLE.sub(lambda m: m[1] + RULE.sub(rule, COMMENT.sub("", m[2])) + m[3], html)


def other_classes(html: str) -> str:
    """Classes in place of inline styles, and other attributes in place of classes."""
    rules: dict[str, str] = {}

    def tag(match: re.Match[str]) -> str:
        text = re.sub(r"(\s)class=", r"\1data-k=", match[0], flags=re.I)
        inline = INLINE.search(text)
        if inline is None:
            return text
        name = rules.setdefault(entities.unescape(inline[2]), f"s{len(rules) + 1}")
        return text.replace(inline[0], f' class="{name}"')

    html = TAG.sub(tag, renamed(html, r"\.(-?[a-z_][\w-]*)", r'[data-k~="\1"]'))
    # An inline style is stronger than any class; the absent id gives the class that strength.
    return with_css(html, "".join(f".{name}:not(#_#_){{{text}}}" for text, name in rules.items()))


USER_AGENT = {
    **dict.fromkeys(("div", "section", "article", "header", "footer", "nav", "main", "aside",
                     "figcaption", "dt"), "display:block"),
    **dict.fromkeys(("span", "small", "label"), "display:inline"),
    **dict.fromkeys(("b", "strong"), "font-weight:bolder"),
    **dict.fromkeys(("i", "em"), "font-style:italic"),
    **{f"h{n}": f"display:block;font-weight:bold;font-size:{size}em;margin-block:{margin}em"
       for n, size, margin in ((1, 2, 0.67), (2, 1.5, 0.83), (3, 1.17, 1), (4, 1, 1.33))},
    "small": "font-size:smaller",
    "p": "display:block;margin-block:1em",
    "form": "display:block",
    "figure": "display:block;margin:1em 40px",
    "blockquote": "display:block;margin:1em 40px",
    "dl": "display:block;margin-block:1em",
    "dd": "display:block;margin-inline-start:40px",
    "ul": "display:block;margin-block:1em;padding-inline-start:40px;list-style-type:disc",
    "ol": "display:block;margin-block:1em;padding-inline-start:40px;list-style-type:decimal;"
          "counter-reset:list-item",
    "li": "display:list-item",
    "table": "display:table;border-spacing:2px;box-sizing:border-box;text-indent:initial",
    "thead": "display:table-header-group;vertical-align:middle",
    "tbody": "display:table-row-group;vertical-align:middle",
    "tfoot": "display:table-footer-group;vertical-align:middle",
    "tr": "display:table-row;vertical-align:inherit",
    "td": "display:table-cell;padding:1px;vertical-align:inherit",
    "th": "display:table-cell;padding:1px;vertical-align:inherit;font-weight:bold;"
          "text-align:center",
}  # fmt: skip
"""How a browser shows elements that have no style. Source: HTML Standard, section 15, Rendering."""
ONLY_IN_TABLES = (
    "[colspan]",
    "[rowspan]",
    "col",
    "caption",
    "[cellpadding]",
    "[bgcolor]",
    "td[align]",
)
TABLE = {"table", "thead", "tbody", "tfoot", "tr", "td", "th"}


def other_tags(html: str) -> str:
    """Elements of unknown names, styled as those are that they stand for; no tables, no lists."""
    tree = tree_of(html)
    names = USER_AGENT.keys()
    # CSS has no cells over several columns, and a caption, a column or a hint needs a table.
    if any(tree.select_one(kind) for kind in ONLY_IN_TABLES):
        names = names - TABLE
    for node in tree.root().descendants():
        if isinstance(node, Element) and node.name.local in names:
            node.name = f"x-{node.name.local}"
    type_selector = rf"(?<![\w.#:\[=\"'-])({'|'.join(names)})(?![\w-])"
    html = renamed(tree.serialize(), type_selector, r"x-\1")
    own = "".join(f":where(x-{name}){{{USER_AGENT[name]}}}" for name in sorted(names))
    return html.replace("<head>", f"<head><style>{own}</style>", 1)
