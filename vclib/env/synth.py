"""The `blocks` pages: small pages without end, each drawn from a seed.

A page is a stack of coloured rows, each of one to three cells with a word or two in them. Every
value that a page can hold comes from a short list, so that a small model can learn to see it.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from html import unescape

VIEWPORT = (256, 192)
DIFFICULTIES = ("easy", "medium", "hard")
SPLITS = ("train", "heldout")
GROUNDS = ("#ffffff", "#f1f5f9", "#fef3c7")
DARK_INK, LIGHT_INK = "#111827", "#ffffff"
INK = {
    "#dc2626": LIGHT_INK,
    "#f97316": DARK_INK,
    "#facc15": DARK_INK,
    "#16a34a": LIGHT_INK,
    "#22d3ee": DARK_INK,
    "#2563eb": LIGHT_INK,
    "#7c3aed": LIGHT_INK,
    "#f472b6": DARK_INK,
    "#92400e": LIGHT_INK,
    "#64748b": LIGHT_INK,
    "#111827": LIGHT_INK,
    "#cbd5e1": DARK_INK,
}
"""Colours of cells, each with the ink that is read on it."""
SHORT: tuple[str, ...] = (
    "Buy",
    "Cart",
    "Chat",
    "Docs",
    "Edit",
    "Help",
    "Home",
    "Mail",
    "Map",
    "News",
    "Open",
    "Save",
)
LONG: tuple[str, ...] = (
    "About",
    "Account",
    "Billing",
    "Contact",
    "Gallery",
    "Orders",
    "Photos",
    "Pricing",
)
LONG += ("Profile", "Reports", "Search", "Settings", "Sign in", "Support", "Team", "Upload")
WORDS = SHORT + LONG
HEIGHTS = (32, 48, 64)


@dataclass(frozen=True)
class Cell:
    """One coloured box; `words` may be empty."""

    background: str
    words: str
    ink: str = ""

    def with_ink(self) -> str:
        """The colour of its text: the given one, or the one that is read on its background."""
        return self.ink or INK.get(self.background, DARK_INK)


@dataclass(frozen=True)
class Row:
    """Cells side by side, `height` in CSS pixels."""

    height: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class BlockPage:
    """Rows from top to bottom on a ground colour."""

    ground: str
    rows: tuple[Row, ...]
    doctype: bool = True


def block_page(split: str, difficulty: str, index: int) -> str:
    """HTML of the page with this id; the same on every machine.

    Splits share no page: each holds the pages whose content hashes to its share, so that a page
    drawn under one split's seed is drawn again if it belongs to the other.
    """
    return to_html(draw_page(split, difficulty, index))


def draw_page(split: str, difficulty: str, index: int) -> BlockPage:
    """The page with this id, as data."""
    rng = random.Random(f"blocks/{split}/{difficulty}/{index}")
    while True:
        page = random_page(difficulty, rng)
        if split_of(page) == split:
            return page


def split_of(page: BlockPage) -> str:
    """The split that a page belongs to, by what it holds: a fifth is held out."""
    digest = hashlib.sha256(to_html(page).encode()).digest()
    return "heldout" if digest[0] % 5 == 0 else "train"


def random_page(difficulty: str, rng: random.Random, words: tuple[str, ...] = WORDS) -> BlockPage:
    """Draw a page: easy has 2 or 3 plain rows, medium one more that is split, hard two more.

    `words` are those that may stand on it; some must be among SHORT and some among LONG.
    """
    if difficulty == "easy":
        columns = [1] * rng.choice((2, 3))
    elif difficulty == "medium":
        columns = [1] * rng.choice((2, 3)) + [2]
    else:
        columns = [1] * rng.choice((2, 3)) + [rng.choice((2, 3)), 3]
    rng.shuffle(columns)
    rows: list[Row] = []
    for n, height in zip(columns, _heights(len(columns), rng), strict=True):
        above = {cell.background for cell in rows[-1].cells} if rows else set()
        rows.append(Row(height, _random_cells(n, above, rng, words)))
    return BlockPage(rng.choice(GROUNDS), tuple(rows))


def _random_cells(
    n: int, above: set[str], rng: random.Random, words: tuple[str, ...]
) -> tuple[Cell, ...]:
    # Neighbours differ in colour: between two alike no one could see where a row ends.
    cells: list[Cell] = []
    while len(cells) < n:
        cell = random_cell(n, rng, words)
        if cell.background not in above | {other.background for other in cells}:
            cells.append(cell)
    return tuple(cells)


def random_cell(columns: int, rng: random.Random, words: tuple[str, ...] = WORDS) -> Cell:
    """Draw one of `columns` cells; one in ten holds no words, a narrow one holds a short word."""
    background = rng.choice(tuple(INK))
    if rng.random() < 0.1:
        return Cell(background, "")
    short = [word for word in words if word in SHORT]
    if columns == 1 and rng.random() < 0.4:
        long = [word for word in words if word in LONG]
        return Cell(background, f"{rng.choice(short)} {rng.choice(long)}")
    return Cell(background, rng.choice(short if columns == 3 else words))


def _heights(n: int, rng: random.Random) -> list[int]:
    while True:
        heights = [rng.choice(HEIGHTS) for _ in range(n)]
        if sum(heights) <= VIEWPORT[1]:
            return heights


def to_html(page: BlockPage) -> str:
    """Write a page down, as all `blocks` pages are written."""
    rows = "".join(_row_html(row) for row in page.rows)
    return (
        f"{'<!doctype html>' if page.doctype else ''}<html>"
        '<body style="margin:0;font:bold 20px/32px sans-serif;text-indent:8px;'
        f'background:{page.ground}">\n{rows}</body></html>'
    )


def _row_html(row: Row) -> str:
    if len(row.cells) == 1:
        cell = row.cells[0]
        style = f"background:{cell.background};color:{cell.with_ink()};height:{row.height}px"
        return f'<div style="{style}">{cell.words}</div>\n'
    cells = "".join(
        f'<div style="flex:1;background:{cell.background};color:{cell.with_ink()}">'
        f"{cell.words}</div>\n"
        for cell in row.cells
    )
    return f'<div style="display:flex;height:{row.height}px">\n{cells}</div>\n'


_BODY = re.compile(r"<body[^<>]*background:(#\w+)")
_DIV = re.compile(r"<div style=\"([^\">]*)\">([^<]*)|(</div>)")


def parse_html(html: str) -> BlockPage | None:
    """Read a page written by `to_html`, or nearly so; None if it holds no ground colour or row."""
    ground = _BODY.search(html)
    if not ground:
        return None
    rows: list[Row] = []
    flex: tuple[int, list[Cell]] | None = None
    depth = 0
    for style_text, words, closing in _DIV.findall(html, ground.end()):
        if closing:
            depth -= 1
            if depth <= 0 and flex is not None:
                rows.append(Row(flex[0], tuple(flex[1])))
                flex = None
            continue
        depth += 1
        style = dict(part.split(":", 1) for part in style_text.split(";") if ":" in part)
        height = int(re.sub(r"\D", "", style.get("height", "")) or 32)
        if style.get("display") == "flex":
            flex, depth = (height, []), 1
            continue
        background = str(style.get("background", ground[1]))
        cell = Cell(background, unescape(words.strip()), style.get("color", ""))
        if flex is not None:
            flex[1].append(cell)
        else:
            rows.append(Row(height, (cell,)))
            depth = 1
    if flex is not None and flex[1]:
        rows.append(Row(flex[0], tuple(flex[1])))
    doctype = html.lstrip().lower().startswith("<!doctype")
    rows = [row for row in rows if row.cells]
    return BlockPage(ground[1], tuple(rows), doctype) if rows else None
