"""Where the files that come with the project lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
TINY = DATA / "models" / "vc-tiny"
FONTS = DATA / "fonts"
