"""Demonstrations that vc-tiny is pre-trained on: pages, drafts, critiques and revisions.

The true critique of a draft, and the true revision, are known because pages are data: a draft is
a page that was edited in known ways, or one that the model itself wrote, read back.

As on the real web, the demonstrations are uneven and unmarked: some writers are careful, others
work in grey, leave words out, stop early, or guess. `WRITERS`, `REVISERS` and `CRITICS` hold the
shares. Pre-training learns the mixture; reinforcement can then find the careful ones in it.

No writer of a first draft fills in the words below the first row: a draft is a layout, and its
words come when somebody asks for them. So a Developer alone has a blind spot, and a Critic is of
use.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

from vclib.env.synth import (
    GROUNDS,
    HEIGHTS,
    INK,
    WORDS,
    BlockPage,
    Cell,
    Row,
    random_cell,
)

WRITERS = {"careful": 0.3, "grey": 0.25, "wordless": 0.15, "short": 0.1, "guessing": 0.2}
REVISERS = {"careful": 0.6, "idle": 0.4}
CRITICS = {"careful": 0.6, "brief": 0.3, "content": 0.03, "guessing": 0.07}
REQUESTS = {"careful": 0.4, "partial": 0.3, "guessing": 0.3}
"""Shares of the critiques that revisions answer: wrong ones too, for a revision does as it is told.
"""
CARELESS_DOCTYPE = 0.35
"""Share of careless pages that begin with a doctype; careful ones nearly always do."""
MOST_LINES = 6
DONE = "DONE"


def choose(shares: dict[str, float], rng: random.Random) -> str:
    """Draw a name by its share."""
    return rng.choices(list(shares), list(shares.values()))[0]


def write(page: BlockPage, writer: str, rng: random.Random) -> BlockPage:
    """The first draft that a writer of this kind makes of a page."""
    doctype = rng.random() < (0.95 if writer == "careful" else CARELESS_DOCTYPE)
    page = replace(page, doctype=doctype)
    if writer == "grey":
        grey = rng.choice(("#64748b", "#cbd5e1"))
        page = _map_cells(page, lambda cell: Cell(grey, cell.words))
    elif writer == "short":
        page = replace(page, rows=page.rows[: max(1, len(page.rows) // 2)])
    elif writer == "guessing":
        page = edit(page, rng, 0.3)
    elif writer not in WRITERS:
        raise ValueError(f"unknown writer {writer!r}; known: {', '.join(WRITERS)}")
    worded = 0 if writer == "wordless" else 1
    rows = page.rows[:worded] + tuple(_without_words(row) for row in page.rows[worded:])
    return replace(page, rows=rows)


def edit(page: BlockPage, rng: random.Random, rate: float) -> BlockPage:
    """Change each value of a page with probability `rate`."""

    def change(cell: Cell, columns: int) -> Cell:
        other = random_cell(columns, rng)
        background = other.background if rng.random() < rate else cell.background
        return Cell(background, other.words if rng.random() < rate else cell.words)

    rows = []
    for row in page.rows:
        if rng.random() < rate / 4:
            continue
        height = rng.choice(HEIGHTS) if rng.random() < rate else row.height
        rows.append(Row(height, tuple(change(cell, len(row.cells)) for cell in row.cells)))
    if not rows:
        rows = list(page.rows)
    ground = rng.choice(GROUNDS) if rng.random() < rate else page.ground
    return replace(page, ground=ground, rows=tuple(rows))


def differences(reference: BlockPage, draft: BlockPage) -> list[str]:
    """The true critique: one line for each difference that can be seen, from top to bottom.

    A row that has the right number of cells is corrected value by value, another as a whole.
    """
    lines = []
    if draft.ground != reference.ground:
        lines.append(f"page: background {reference.ground}")
    for number, row in enumerate(reference.rows, 1):
        if number > len(draft.rows) or len(draft.rows[number - 1].cells) != len(row.cells):
            lines.append(f"row {number}: {_describe(row)}")
            continue
        old = draft.rows[number - 1]
        if old.height != row.height:
            lines.append(f"row {number}: height {row.height}px")
        for column, (cell, seen) in enumerate(zip(row.cells, old.cells, strict=True), 1):
            place = f"row {number}" if len(row.cells) == 1 else f"row {number} cell {column}"
            if seen.background != cell.background:
                lines.append(f"{place}: background {cell.background}")
            if seen.words != cell.words:
                lines.append(f"{place}: words {cell.words or 'none'}")
    for number in range(len(draft.rows), len(reference.rows), -1):
        lines.append(f"row {number}: remove")
    return lines


def critique(lines: list[str]) -> str:
    """The words of a critique: its first lines, or DONE."""
    return "\n".join(lines[:MOST_LINES]) or DONE


def criticise(reference: BlockPage, draft: BlockPage, critic: str, rng: random.Random) -> str:
    """What a Critic of this kind says of a draft."""
    lines = differences(reference, draft)
    if critic == "careful":
        return critique(lines)
    if critic == "brief":
        return critique(rng.sample(lines, 1) if lines else [])
    if critic == "partial":
        return critique([line for line in lines if rng.random() < 0.6])
    if critic == "content":
        return DONE
    if critic == "guessing":
        return critique(differences(edit(reference, rng, 0.3), draft))
    raise ValueError(f"unknown critic {critic!r}; known: partial, {', '.join(CRITICS)}")


_ROW = re.compile(r"row (\d+)(?: cell (\d+))?: (.*)")
_CELL = re.compile(r"(#\w+) ?(.*)")


def apply(draft: BlockPage, text: str) -> BlockPage:
    """The true revision: a draft with the lines of a critique that can be read carried out."""
    ground, rows = draft.ground, list(draft.rows)
    for line in text.splitlines():
        if line.startswith("page: background "):
            ground = line.rpartition(" ")[2]
            continue
        match = _ROW.fullmatch(line)
        if not match or int(match[1]) > len(rows) + 1:
            continue
        index, what = int(match[1]) - 1, match[3]
        if index == len(rows) or re.match(r"\d+px:", what):
            rows[index : index + 1] = [_parse_row(what)]
        elif what == "remove":
            del rows[index]
        elif what.startswith("height "):
            rows[index] = replace(rows[index], height=int(re.sub(r"\D", "", what) or 32))
        else:
            column = int(match[2] or 1) - 1
            cells = list(rows[index].cells)
            if column < len(cells):
                kind, _, value = what.partition(" ")
                if kind == "background":
                    cells[column] = Cell(value, cells[column].words)
                elif kind == "words":
                    words = "" if value == "none" else value
                    cells[column] = Cell(cells[column].background, words)
                rows[index] = replace(rows[index], cells=tuple(cells))
    return BlockPage(ground, tuple(row for row in rows if row.cells), draft.doctype)


def revise(draft: BlockPage, text: str, reviser: str, rng: random.Random) -> BlockPage:
    """What a reviser of this kind makes of a draft and a critique."""
    if reviser == "idle":
        return draft
    return replace(apply(draft, text), doctype=draft.doctype or rng.random() < 0.7)


def corpus(pages: list[BlockPage], rng: random.Random) -> list[str]:
    """Critiques and descriptions of rows, for training the tokenizer."""
    texts = []
    for page in pages:
        draft = write(page, choose(WRITERS, rng), rng)
        texts.append(critique(differences(page, draft)))
    every = [f"row {n}: remove\nrow {n} cell {n}: words none" for n in range(1, 7)]
    values = [f"#{colour[1:]}" for colour in INK] + [f" {word}" for word in WORDS]
    return texts + every + values


def _describe(row: Row) -> str:
    cells = " | ".join(f"{cell.background} {cell.words or 'none'}" for cell in row.cells)
    return f"{row.height}px: {cells}"


def _parse_row(text: str) -> Row:
    height, _, rest = text.partition(":")
    cells = []
    for part in rest.split("|"):
        match = _CELL.fullmatch(part.strip())
        if match:
            cells.append(Cell(match[1], "" if match[2].strip() == "none" else match[2].strip()))
    return Row(int(re.sub(r"\D", "", height) or 32), tuple(cells))


def _without_words(row: Row) -> Row:
    return replace(row, cells=tuple(Cell(cell.background, "") for cell in row.cells))


def _map_cells(page: BlockPage, change: Callable[[Cell], Cell]) -> BlockPage:
    rows = tuple(replace(row, cells=tuple(change(cell) for cell in row.cells)) for row in page.rows)
    return replace(page, rows=rows)
