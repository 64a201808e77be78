"""What the notebooks say of the project's address, its version and their own time, in one place.

    python tools/notebook_head.py notebooks/*.ipynb

writes the badge, the set-up cell and the row of time and memory of each notebook, and the last
column of notebooks/README.md, from pyproject.toml, vclib and notebooks/times.json. No cell is run.
`make notebooks` does so too.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat

from vclib import __version__
from vclib.paths import project

SETUP = """\
import importlib.util
import subprocess
import sys
from pathlib import Path

PROJECT, TAG = "{address}", "v{version}"
if "google.colab" in sys.modules and importlib.util.find_spec("vclib") is None:
    # On Colab: fetch the project, then what it needs. If it cannot be fetched, upload its folder
    # as `visioncoder` by the file pane on the left, and run this cell again.
    if not Path("visioncoder").is_dir():
        fetch = ["git", "clone", "--quiet", "--depth", "1", "--branch", TAG, PROJECT]
        subprocess.run([*fetch, "visioncoder"], check=True)
    subprocess.run([sys.executable, "visioncoder/tools/colab.py"], check=True)
    sys.path.insert(0, "visioncoder")"""
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{place}/blob/v{version}/notebooks/{name}.ipynb)"
)
FIRST_LINE = re.compile(r"\[!\[Open in Colab\].*")
TIME = re.compile(r"(?<=\| time and memory \| )\S.*?(?= on two CPU cores)")
ROW = re.compile(r"^(\| \w\w \| \[[^]]+\]\((\w+)\.ipynb\) \|[^|]*\|)[^|]*\|$", re.MULTILINE)


def setup() -> str:
    """The source of the first code cell of every notebook."""
    return SETUP.format(address=address(), version=__version__)


def badge(name: str) -> str:
    """The first line of a notebook: a link that opens it on Colab."""
    place = address().removeprefix("https://github.com/")
    return BADGE.format(place=place, version=__version__, name=name)


def address() -> str:
    """Where the project is published, without a slash at its end."""
    return str(project()["urls"]["Homepage"]).rstrip("/")


def spoken(figures: dict[str, float]) -> str:
    """For instance "about 40 seconds and 1.2 GB of memory"."""
    seconds, memory = figures["seconds"], figures["memory_gb"]
    if seconds < 100:
        time = f"{max(10, round(seconds, -1))} seconds"
    else:
        time = f"{round(seconds / 60)} minutes"
    return f"about {time} and {memory:.1f} GB of memory"


def write_head(notebook: Any, name: str, figures: dict[str, float] | None) -> None:
    """Write badge, set-up cell and, where they are known, time and memory, in place."""
    head = notebook.cells[0]
    head.source = FIRST_LINE.sub(badge(name), head.source, count=1)
    if figures:
        head.source = TIME.sub(spoken(figures), head.source)
    next(cell for cell in notebook.cells if cell.cell_type == "code").source = setup()


def write_map(folder: Path, times: dict[str, dict[str, float]]) -> None:
    """Write the last column of the map, in place: what is not in `times` stays empty."""

    def row(match: re.Match[str]) -> str:
        figures = times.get(match[2])
        return f"{match[1]} {spoken(figures).removesuffix(' of memory') if figures else ''} |"

    path = folder / "README.md"
    if path.is_file():
        path.write_text(ROW.sub(row, path.read_text(encoding="utf-8")), encoding="utf-8")


def read_times(folder: Path) -> dict[str, dict[str, float]]:
    """Seconds and memory of each notebook at its last execution."""
    file = folder / "times.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def main(paths: list[str]) -> None:
    """Write the heads of these notebooks, and the map beside them."""
    for path in map(Path, paths):
        times = read_times(path.parent)
        notebook = nbformat.read(path, as_version=4)
        write_head(notebook, path.stem, times.get(path.stem))
        path.write_text(nbformat.writes(notebook) + "\n")
        write_map(path.parent, times)


if __name__ == "__main__":
    main(sys.argv[1:])
