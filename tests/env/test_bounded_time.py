"""No text that a model may write keeps those busy who read it before the browser does."""

from __future__ import annotations

import subprocess
import sys

from vclib.env.sanitize import STILL, SafePage, sanitize

UNITS = (
    *("<!-- a -->\n", "<!--", "-->", " ", "<!doctype", "<!doctype ", "<html ", "</html "),
    *("<body", "<body ", "<body background:#", "<div style=", '<div style="', "\"'"),
    *('"data:image/', "'data:image/\"", "http-equiv = ", "<animate", "<iframe ", "< ", "&"),
)
# A pattern that backtracks without end would hold up this process too, so another reads, which
# has so many seconds of CPU time for everything. It says what it is about to read.
READ = """
import resource, sys
from vclib.env.markup import read_markup
from vclib.env.sanitize import MAX_HTML_BYTES, MAX_NODES, sanitize
from vclib.env.synth import parse_html
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
for unit in sys.argv[1:]:
    print(repr(unit), flush=True)
    text = unit * min(MAX_HTML_BYTES // len(unit), MAX_NODES if unit[1:2].isalpha() else 200_000)
    sanitize(text + "<p>"), read_markup(text), parse_html(text)
print("read")
"""


def test_every_repeated_piece_of_markup_is_read_in_bounded_time() -> None:
    done = subprocess.run([sys.executable, "-c", READ, *UNITS], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "read", (done.stdout.splitlines()[-1], done.stderr)


def test_a_page_stays_in_standards_mode_after_any_number_of_comments() -> None:
    for before in ("", " \n", "<!-- a -->\n" * 5_000, "<!-- <!-- a --><!---->"):
        page = sanitize(f"{before}<!doctype html><p>")
        assert isinstance(page, SafePage)
        assert page.html == f"{before}<!doctype html>{STILL}<p>"
    unfinished = sanitize("<!-- a <!doctype html><p>")
    assert isinstance(unfinished, SafePage)
    assert unfinished.html.startswith(STILL)
