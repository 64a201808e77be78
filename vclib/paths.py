"""Where the files that come with the project lie."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
TINY = DATA / "models" / "vc-tiny"
FONTS = DATA / "fonts"


def in_project(path: object) -> str:
    """A path as kept files name it: what lies in the project by its place there, on any machine."""
    return str(path).removeprefix(f"{ROOT}{os.sep}")
