"""Many `blocks` pages in one screenshot, for pre-training; the same pixels as one by one."""

from __future__ import annotations

import base64
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from playwright.sync_api import ViewportSize, sync_playwright

from vclib.env.browser import find_chromium
from vclib.env.chromium import FLAGS, UNPACED
from vclib.env.fonts import fonts_conf
from vclib.env.synth import VIEWPORT

COLUMNS = 8
_BODY = re.compile(r'<body style="([^"]*)">(.*)</body>', re.DOTALL)


class Sheet:
    """A browser that draws `blocks` pages side by side, each in a box of one viewport.

    Only for pages written by `synth.to_html`: a body with a style and no style sheet.
    """

    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self._folder = tempfile.TemporaryDirectory()
        sandbox = () if os.geteuid() else ("--no-sandbox",)
        self._browser = self._playwright.chromium.launch(
            executable_path=find_chromium(),
            args=[*FLAGS, *UNPACED, *sandbox],
            env={**os.environ, "FONTCONFIG_FILE": str(fonts_conf(Path(self._folder.name)))},
        )
        self._page: Any = None
        self._rows = 0

    def draw(self, htmls: Sequence[str]) -> np.ndarray:
        """Pixels of each page: uint8 RGB, shape [pages, 192, 256, 3]."""
        width, height = VIEWPORT
        rows = -(-len(htmls) // COLUMNS)
        if self._rows != rows:
            if self._page is not None:
                self._page.context.close()
            viewport = ViewportSize(width=width * COLUMNS, height=height * rows)
            context = self._browser.new_context(viewport=viewport, java_script_enabled=False)
            self._page, self._rows = context.new_page(), rows
            self._cdp = context.new_cdp_session(self._page)
        boxes = "".join(self._box(html) for html in htmls)
        self._page.set_content(f'<!doctype html><body style="margin:0">{boxes}')
        shot = self._cdp.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        encoded = np.frombuffer(base64.b64decode(shot["data"]), np.uint8)
        pixels = cv2.cvtColor(cv2.imdecode(encoded, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        tiles = pixels.reshape(rows, height, COLUMNS, width, 3).swapaxes(1, 2)
        return tiles.reshape(-1, height, width, 3)[: len(htmls)]

    def close(self) -> None:
        """End the browser."""
        self._browser.close()
        self._playwright.stop()
        self._folder.cleanup()

    @staticmethod
    def _box(html: str) -> str:
        match = _BODY.search(html)
        if not match:
            raise ValueError("a sheet draws only pages with a styled body, as to_html writes them")
        width, height = VIEWPORT
        place = f"contain:strict;float:left;width:{width}px;height:{height}px"
        return f'<div style="{place};{match[1]}">{match[2]}</div>'
