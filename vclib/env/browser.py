"""HTML to pixels, in a real Chromium.

The page is taken for hostile. Its scripts are off, a Content-Security-Policy keeps it from
loading anything, and if that failed nothing resolves, the proxy is dead, the context is offline
and every request is aborted. Time, HTML bytes, nodes and height are capped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import threading
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from kornia_rs.io import decode_image_png_u8

from vclib.env.boxes import Box
from vclib.env.chromium import ATTEMPTS, LAUNCH_SECONDS, Engine
from vclib.env.sanitize import sanitize
from vclib.env.visible import TextBlock, visible_contents
from vclib.errors import VclibError

__all__ = ["Box", "BrowserMissing", "Render", "Renderer", "TextBlock", "find_chromium"]

# Pictures this small are done before a second thread has woken up.
cv2.setNumThreads(1)
MAX_PAGE_HEIGHT = 8_000
CLOSED = "This Renderer was closed; make a new one."
T = TypeVar("T")


class BrowserMissing(VclibError):
    """No Chromium was found."""


def decoded(png: bytes) -> np.ndarray:
    """uint8 RGB [H, W, 3] of a screenshot; alpha, if it has any, is dropped."""
    # A PNG's header stands first: width, height, bit depth, colour type.
    width, height, depth, colour_type = struct.unpack(">IIBB", png[16:26])
    if (depth, colour_type) == (8, 2):
        # RGB as it is, in a third of the time that OpenCV's own zlib takes.
        return decode_image_png_u8(png, (height, width), "rgb")
    pixels = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert pixels is not None, "the browser's own PNG"
    return pixels


@dataclass(frozen=True)
class Render:
    """One page as the browser showed it.

    pixels: uint8 RGB [H, W, 3]; rectangles in CSS pixels of the viewport; colours 0 to 255;
    page_height: of the whole document, in pixels; blocked: what was taken out or refused;
    error: why there is no picture (then the pixels are white and the lists empty), or None.
    """

    html: str
    pixels: np.ndarray
    text_blocks: tuple[TextBlock, ...]
    boxes: tuple[Box, ...]
    background: tuple[int, int, int]
    page_height: int
    blocked: tuple[str, ...]
    error: str | None


def find_chromium() -> str:
    """Path of the browser: VCLIB_CHROMIUM, else a headless shell, else a full Chromium.

    Raises BrowserMissing with the command that installs one.
    """
    if asked := os.environ.get("VCLIB_CHROMIUM"):
        if found := shutil.which(asked):
            return found
        raise BrowserMissing(
            f"VCLIB_CHROMIUM is {asked!r}, which is no executable file; set it to the path of a "
            "Chromium, or unset it and run `make browser`."
        )
    home = Path(os.path.expanduser("~"))  # Path.home() fails where there is none.
    roots = [
        Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or home / ".cache/ms-playwright"),
        home / "Library/Caches/ms-playwright",
        home / "AppData/Local/ms-playwright",
    ]
    shells = [
        "chromium_headless_shell-*/*/headless_shell",
        "chromium_headless_shell-*/*/chrome-headless-shell",
        "chromium_headless_shell-*/*/chrome-headless-shell.exe",
    ]
    full = ["chromium-*/*/chrome", "chromium-*/*/chrome.exe", "chromium-*/*/*.app/Contents/MacOS/*"]
    for patterns, names in (
        (shells, ["chromium-headless-shell", "chrome-headless-shell"]),
        (full, ["chromium", "chromium-browser", "google-chrome"]),
    ):
        own = [path for root in roots for pattern in patterns for path in root.glob(pattern)]
        for candidate in [*sorted(map(str, own), reverse=True), *names]:
            if found := shutil.which(candidate):
                return found
    raise BrowserMissing(
        "No Chromium was found, and no page can be rendered without one; run `make browser`, "
        "or set VCLIB_CHROMIUM to the path of one."
    )


def _shut_down(
    owner: int, loop: asyncio.AbstractEventLoop, thread: threading.Thread, engine: Engine
) -> None:
    # A forked child has the objects of its parent, but neither the thread nor the browser.
    if os.getpid() != owner or not thread.is_alive():
        return
    try:
        asyncio.run_coroutine_threadsafe(engine.close(), loop).result(15)
    except FutureTimeout:
        if engine.chromium:
            engine.chromium.kill()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    if not thread.is_alive():
        loop.close()


class Renderer:
    """Renders HTML in a real Chromium; callable from any thread and inside a running loop.

    width, height: viewport in CSS pixels (one device pixel each); concurrency: pages in flight;
    timeout: seconds that a page may take, in two attempts, more where the machine is busy;
    recycle_after: renders per browser.
    Raises BrowserMissing when there is no Chromium, VclibError when it does not start.
    """

    def __init__(
        self,
        width: int = 256,
        height: int = 192,
        *,
        concurrency: int = 2,
        timeout: float = 4.0,
        recycle_after: int = 2000,
        executable: str | None = None,
    ):
        self.width, self.height, self.concurrency = width, height, concurrency
        self.timeout = timeout
        self.executable = executable or find_chromium()
        self._loop = asyncio.new_event_loop()
        # The browser lives on a thread of its own, because a notebook's loop is already running.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="vclib-browser", daemon=True
        )
        self._thread.start()
        self._engine = Engine(self.executable, width, height, concurrency, timeout, recycle_after)
        self._finalizer = weakref.finalize(
            self, _shut_down, os.getpid(), self._loop, self._thread, self._engine
        )
        try:
            chromium = self._call(self._engine.browser(), 2 * LAUNCH_SECONDS)
        except BaseException:
            self.close()
            raise
        self._browser = f"{Path(self.executable).name} {chromium.version}"

    @property
    def browser(self) -> str:
        """Name and version of the binary that renders, for logs."""
        return self._browser

    def render(self, html: str) -> Render:
        """The page as a browser of this viewport shows it; a bad page sets `error`."""
        return self.render_many([html])[0]

    def render_many(self, htmls: Sequence[str]) -> list[Render]:
        """Renders of all the pages, in their order, `concurrency` of them in flight."""
        rounds = -(-len(htmls) // self.concurrency)
        bound = LAUNCH_SECONDS + rounds * (ATTEMPTS + 1) * (self.timeout + LAUNCH_SECONDS)
        return self._call(self._render_many(htmls), bound)

    async def _render_many(self, htmls: Sequence[str]) -> list[Render]:
        return list(await asyncio.gather(*(self._render(html) for html in htmls)))

    async def _render(self, html: str) -> Render:
        page = sanitize(html)
        if isinstance(page, str):
            return self._failed(html, page)
        shown = await self._engine.show(page)
        if isinstance(shown, str):
            return self._failed(html, shown, page.blocked)
        layout, png, refused = shown
        blocked = [*page.blocked, *refused]
        pixels = decoded(png)
        if layout.excess:
            return self._failed(html, layout.excess, blocked)
        contents = visible_contents(layout, pixels)
        if contents.page_height > MAX_PAGE_HEIGHT:
            reason = f"the page is {contents.page_height} px tall; at most {MAX_PAGE_HEIGHT} are"
            return self._failed(html, reason + " rendered", blocked, contents.page_height)
        return Render(
            html,
            pixels,
            contents.text_blocks,
            contents.boxes,
            contents.background,
            contents.page_height,
            tuple(dict.fromkeys(blocked)),
            None,
        )

    def _failed(
        self, html: str, error: str, blocked: Sequence[str] = (), page_height: int = 0
    ) -> Render:
        white = np.full((self.height, self.width, 3), 255, np.uint8)
        listed = tuple(dict.fromkeys(blocked))
        return Render(html, white, (), (), (255, 255, 255), page_height, listed, error)

    def _call(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        """Runs it on the browser's thread, bounded from outside the browser."""
        if not self._finalizer.alive or not self._thread.is_alive():
            coroutine.close()
            raise VclibError(CLOSED)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(seconds)
        except CancelledError:
            raise VclibError(CLOSED) from None
        except FutureTimeout:
            future.cancel()
            if self._engine.chromium:
                self._engine.chromium.kill()
            raise VclibError(
                f"The browser gave no answer within {seconds:.0f} s and was killed; try again."
            ) from None

    def close(self) -> None:
        """Ends the browser; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
