"""The fonts that pages are drawn with: those of data/fonts and no others (on Linux)."""

from __future__ import annotations

from html import escape
from pathlib import Path

from vclib.files import replace_text
from vclib.paths import FONTS


def fonts_conf(folder: Path) -> Path:
    """Writes a fontconfig file with the project's fonts alone: every machine draws the same.

    It is replaced whole: a browser that starts meanwhile and read a part of it would draw its pages
    with other fonts, and nothing would tell.
    """
    families = {
        "Liberation Sans": ("sans-serif", "system-ui", "ui-sans-serif", "Arial", "Helvetica"),
        "Liberation Serif": ("serif", "ui-serif", "Times", "Times New Roman"),
        "Liberation Mono": ("monospace", "ui-monospace", "Courier", "Courier New"),
    }
    aliases = "".join(
        f'<alias binding="same"><family>{name}</family><prefer><family>{target}</family>'
        "<family>DejaVu Sans</family></prefer></alias>"
        for target, names in families.items()
        for name in names
    )
    path = folder / "fonts.conf"
    replace_text(
        path,
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
        f"<dir>{escape(str(FONTS))}</dir><cachedir>{escape(str(folder))}/cache</cachedir>{aliases}"
        '<match target="font"><edit name="antialias"><bool>true</bool></edit>'
        '<edit name="hinting"><bool>false</bool></edit>'
        '<edit name="rgba"><const>none</const></edit></match>'
        # What nobody names, as system-ui in a headless browser, is sans-serif too.
        '<match target="pattern"><edit name="family" mode="append_last">'
        "<string>Liberation Sans</string></edit></match></fontconfig>",
    )
    return path
