"""The pieces of HTML that a report is put together from; nothing in it loads from elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from PIL import Image

CSS = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #fff; --ink: #1f242b;
  --soft: #626b77; --line: #e1e4e9; --accent: #2f86d6; --gain: #1f8a5f; --loss: #c23b55; }
@media (prefers-color-scheme: dark) { :root { --ground: #111418; --card: #1a1e24; --ink: #e6e9ee;
  --soft: #9aa4b1; --line: #2c323b; --accent: #5aa7ee; --gain: #45c08e; --loss: #ee7389; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 1020px; margin: 0 auto; padding: 36px 20px 60px; }
h1 { font-size: 27px; line-height: 1.25; margin: 4px 0 10px; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 38px 0 10px; }
p { margin: 6px 0 10px; max-width: 78ch; }
.soft, figcaption, .note { color: var(--soft); }
.note { font-size: 13.5px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 16px 18px; margin: 12px 0; overflow-x: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 12px;
  margin: 16px 0; }
.tiles .card { margin: 0; }
.tile-name { color: var(--soft); font-size: 13px; }
.tile-value { font-size: 30px; font-weight: 650; letter-spacing: -.02em; line-height: 1.25; }
.gain { color: var(--gain); } .loss { color: var(--loss); }
svg { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 600; color: var(--soft); font-size: 13px; }
tr:last-child td { border-bottom: 0; }
td small { color: var(--soft); white-space: nowrap; }
td:first-child small { white-space: normal; }
.strip { display: grid; grid-template-columns: repeat(auto-fill, minmax(168px, 1fr)); gap: 12px; }
.nothing { border: 1px dashed var(--line); border-radius: 6px; color: var(--soft);
  font-size: 13px; display: flex; align-items: center; justify-content: center; padding: 12px;
  text-align: center; min-height: 90px; }
.strip figure { margin: 0; }
.strip img { width: 100%; display: block; border: 1px solid var(--line); border-radius: 6px; }
figcaption { font-size: 13px; padding-top: 4px; }
figcaption b { color: var(--ink); font-variant-numeric: tabular-nums; }
blockquote { margin: 12px 0 0; padding: 2px 0 2px 12px; border-left: 3px solid var(--accent);
  color: var(--soft); white-space: pre-wrap; font-size: 13.5px; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); font-size: 13.5px; margin-top: 10px; }
pre { background: var(--ground); border: 1px solid var(--line); border-radius: 8px; padding: 10px;
  overflow-x: auto; font: 12.5px/1.5 ui-monospace, "Liberation Mono", Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.card > pre { margin: 0; }
.card > details:only-child > summary { margin-top: 0; }
"""


def page(title: str, body: Iterable[str]) -> str:
    """A whole HTML document."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def card(content: str) -> str:
    return f'<div class="card">{content}</div>'


def tile(name: str, value: str, note: str, kind: str = "") -> str:
    """One number that should be seen first; `kind` is "gain", "loss" or nothing."""
    return card(
        f'<div class="tile-name">{escape(name)}</div>'
        f'<div class="tile-value {kind}">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of HTML cells, under heads of plain text."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def facts(values: Mapping[str, Any]) -> str:
    """Names and values, two columns."""
    rows = [(f"<code>{escape(str(k))}</code>", escape(_text(v))) for k, v in values.items()]
    return table(("", ""), rows).replace("<thead><tr><th></th><th></th></tr></thead>", "")


def picture(pixels: np.ndarray, name: str, note: str = "", more: str = "") -> str:
    """One page (uint8 RGB, shape [H, W, 3]) with its name, a note in bold, and more below it."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    below = f"<br>{escape(more)}" if more else ""
    return (
        f'<figure><img alt="{escape(name)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(name)} <b>{escape(note)}</b>{below}</figcaption></figure>"
    )


def no_picture(why: str) -> str:
    """What stands in a strip where a page would."""
    return f'<div class="nothing">{escape(why)}</div>'


def folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
