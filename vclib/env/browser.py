"""HTML to pixels: one long-lived Chromium, driven from a thread of its own.

The page is taken for hostile. Its scripts are off, a response header (Content-Security-Policy)
keeps it from loading anything, and if that failed nothing resolves, the proxy is dead, the context
is offline and every request is aborted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from playwright.async_api import Browser, CDPSession, Playwright, Route, async_playwright
from playwright.async_api import Error as PlaywrightError

from vclib.env.dom import SNAPSHOT_REQUEST, Box, TextBlock, read_snapshot
from vclib.errors import VclibError
from vclib.paths import FONTS

__all__ = ["BrowserMissing", "Box", "Render", "Renderer", "TextBlock", "find_chromium"]

MAX_HTML_BYTES = 200_000
MAX_NODES = 5_000
MAX_PAGE_HEIGHT = 8_000
MAX_DATA_URL = 64_000
LAUNCH_SECONDS = 30.0
ATTEMPTS = 3
HOST = "http://page.invalid/"
# The document of every render is installed in a window that was opened with this header and
# keeps its policy. `sandbox` also turns meta refresh, forms, popups and autofocus off.
POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-frame-rate-limit",
    "--disable-gpu-vsync",
    "--disable-lcd-text",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--blink-settings=imageAnimationPolicy=2",
)
# In a cascade layer, because an important rule in a layer beats the page's own important rules.
STILL = (
    "<style>@layer vclib{*,*::before,*::after{animation:none!important;"
    "transition:none!important;caret-color:transparent!important;"
    "scroll-behavior:auto!important}progress:indeterminate{appearance:none!important}}</style>"
)
T = TypeVar("T")


class BrowserMissing(VclibError):
    """No Chromium was found."""


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
    asked = os.environ.get("VCLIB_CHROMIUM")
    if asked:
        if found := shutil.which(asked):
            return found
        raise BrowserMissing(
            f"VCLIB_CHROMIUM is {asked!r}, which is not an executable file; "
            "point it at a Chromium, or unset it and run `make browser`."
        )
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or _playwright_cache())
    for patterns, names in (
        (
            ("chromium_headless_shell-*/*/headless_shell*", "chromium_headless_shell-*/*/chrome-headless-shell*"),
            ("chromium-headless-shell", "chrome-headless-shell"),
        ),
        (
            ("chromium-*/*/chrome", "chromium-*/*/chrome.exe", "chromium-*/*/*.app/Contents/MacOS/*"),
            ("chromium", "chromium-browser", "google-chrome"),
        ),
    ):
        own = [str(path) for pattern in patterns for path in sorted(cache.glob(pattern), reverse=True)]
        for candidate in [*own, *names]:
            if found := shutil.which(candidate):
                return found
    raise BrowserMissing(
        "No Chromium was found, and pages cannot be rendered without one; run `make browser` "
        "(or set VCLIB_CHROMIUM to the path of one)."
    )


def _playwright_cache() -> Path:
    home = Path.home()
    for folder in (home / "Library/Caches", home / "AppData/Local"):
        if folder.is_dir():
            return folder / "ms-playwright"
    return home / ".cache/ms-playwright"


def sanitize(html: str) -> tuple[str, list[str], str | None]:
    """HTML that is fit to be shown: (html, what was blocked, why it cannot be shown or None).

    Only frames, plugins, refreshes and oversized data URLs are renamed away; scripts stay where
    they are, because the browser does not run them and selectors count them.
    """
    # Lone surrogates cannot be sent to the browser; pairs are joined, the rest become U+FFFD.
    html = html.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    size = len(html.encode())
    if size > MAX_HTML_BYTES:
        return html, [], f"the HTML has {size} bytes; at most {MAX_HTML_BYTES} are rendered"
    tags = len(re.findall(r"<[a-zA-Z]", html))
    if tags > MAX_NODES:
        return html, [], f"the HTML has {tags} tags; at most {MAX_NODES} nodes are rendered"
    blocked: list[str] = []

    def rename(match: re.Match[str]) -> str:
        name = match[2].lower()
        if not match[1]:
            blocked.append(name)
        return f"<{match[1]}{'wbr' if name in ('embed', 'frame') else 'span'}"

    html = re.sub(
        r"<(/?)(iframe|frameset|frame|object|embed|applet|portal|fencedframe|marquee)(?=[\s/>])",
        rename, html, flags=re.I,
    )
    html, count = re.subn(r"<(/?)(animate\w*|set)(?=[\s/>])", r"<\1x-still", html, flags=re.I)
    blocked += ["animation"] * bool(count)
    html, count = re.subn(r"http-equiv(\s*=\s*[\"']?\s*refresh)", r"x-blocked\1", html, flags=re.I)
    blocked += ["refresh"] * bool(count)
    blocked += ["script"] * bool(re.search(r"<script[\s/>]", html, flags=re.I))

    def shorten(match: re.Match[str]) -> str:
        blocked.append(f"data URL of {len(match[0])} characters")
        return "data:,"

    html = re.sub(rf"data:[^\s\"'()<>]{{{MAX_DATA_URL},}}", shorten, html, flags=re.I)
    return html, blocked, None


def _with_stylesheet(html: str) -> str:
    """The stylesheet that keeps the page still goes behind the doctype, which decides the mode."""
    prefix = re.match(r"(\s|<!--.*?-->)*<!doctype[^>]*>", html, flags=re.I | re.S)
    at = prefix.end() if prefix else 0
    return html[:at] + STILL + html[at:]


def _fonts_conf(folder: Path) -> Path:
    """A fontconfig file with the project's fonts alone, so that every machine draws the same."""
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
    path.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
        f"<dir>{FONTS}</dir><cachedir>{folder}/cache</cachedir>{aliases}"
        '<match target="font"><edit name="antialias"><bool>true</bool></edit>'
        '<edit name="hinting"><bool>false</bool></edit><edit name="rgba"><const>none</const></edit>'
        "</match></fontconfig>"
    )
    return path


class _Page:
    """One page of the browser, used for one render after another."""

    def __init__(self, session: CDPSession, frame: str, close: Any, width: int, height: int):
        self.session, self.frame, self.close = session, frame, close
        self.clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        self.loaded = asyncio.Event()
        self.refused: dict[str, str] = {}
        self.urls: dict[str, str] = {}
        session.on("Page.lifecycleEvent", self._on_lifecycle)
        session.on("Network.requestWillBeSent", self._on_request)
        session.on("Network.loadingFailed", self._on_failure)

    def _on_lifecycle(self, event: dict[str, Any]) -> None:
        if event["name"] == "load" and event["frameId"] == self.frame:
            self.loaded.set()

    def _on_request(self, event: dict[str, Any]) -> None:
        self.urls[event["requestId"]] = event["request"]["url"]

    def _on_failure(self, event: dict[str, Any]) -> None:
        url = self.urls.get(event["requestId"], "")
        if url and url != HOST:
            self.refused[event["requestId"]] = url[:200]

    async def render(self, html: str) -> tuple[dict[str, Any], bytes, list[str]]:
        """(DOM snapshot, PNG, addresses that were refused)."""
        self.loaded.clear()
        self.refused.clear()
        self.urls.clear()
        send = self.session.send
        await send("Page.setDocumentContent", {"frameId": self.frame, "html": html})
        await self.loaded.wait()
        snapshot = await send("DOMSnapshot.captureSnapshot", SNAPSHOT_REQUEST)
        shot = await send(
            "Page.captureScreenshot",
            {"format": "png", "optimizeForSpeed": True, "clip": self.clip},
        )
        return snapshot, base64.b64decode(shot["data"]), list(self.refused.values())


class _Chromium:
    """A running browser: its process group, and how many renders it has begun."""

    def __init__(self, playwright: Playwright, browser: Browser, group: int):
        self.playwright, self.browser, self.group = playwright, browser, group
        self.started = 0
        self.in_use = 0
        self.retired = False

    @classmethod
    async def launch(cls, executable: str, folder: Path) -> _Chromium:
        environment = {
            **os.environ, "FONTCONFIG_FILE": str(_fonts_conf(folder)), "TZ": "UTC", "LANG": "C.UTF-8",
        }
        playwright = await async_playwright().start()
        try:
            # Where the kernel forbids the sandbox (root, some containers), do without.
            sandboxes = [False] if getattr(os, "geteuid", lambda: 1)() == 0 else [True, False]
            for sandbox in sandboxes:
                try:
                    browser = await playwright.chromium.launch(
                        executable_path=executable, args=list(FLAGS), env=environment,
                        chromium_sandbox=sandbox, timeout=LAUNCH_SECONDS * 1000,
                        handle_sigint=False, handle_sigterm=False, handle_sighup=False,
                    )
                    break
                except PlaywrightError:
                    if sandbox is sandboxes[-1]:
                        raise
            session = await browser.new_browser_cdp_session()
            processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
            pid = next(int(p["id"]) for p in processes if p["type"] == "browser")
            await session.detach()
            return cls(playwright, browser, pid)
        except BaseException:
            await playwright.stop()
            raise

    async def new_page(self, width: int, height: int) -> _Page:
        context = await self.browser.new_context(
            viewport={"width": width, "height": height}, device_scale_factor=1,
            java_script_enabled=False, offline=True, accept_downloads=False,
            service_workers="block", locale="en-US", timezone_id="UTC", color_scheme="light",
            reduced_motion="reduce", forced_colors="none",
        )
        page = await context.new_page()

        async def answer(route: Route) -> None:
            if route.request.url == HOST and route.request.is_navigation_request():
                headers = {"content-type": "text/html", "content-security-policy": POLICY}
                await route.fulfill(body="<!doctype html>", headers=headers)
            else:
                await route.abort()

        await context.route("**/*", answer)
        await page.goto(HOST)
        session = await context.new_cdp_session(page)
        await session.send("Page.enable")
        await session.send("Page.setLifecycleEventsEnabled", {"enabled": True})
        await session.send("Network.enable")
        frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        return _Page(session, frame, context.close, width, height)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(self.group)
            if group != os.getpgid(0):
                os.killpg(group, signal.SIGKILL)

    async def close(self) -> None:
        """Ends the browser politely, then by force."""
        try:
            await asyncio.wait_for(self.browser.close(), 5)
        except (PlaywrightError, TimeoutError):
            pass
        finally:
            self.kill()
            with contextlib.suppress(PlaywrightError, TimeoutError):
                await asyncio.wait_for(self.playwright.stop(), 5)


class _Engine:
    """What lives on the event loop: the browser, its pages, and their replacement."""

    def __init__(self, executable: str, width: int, height: int, concurrency: int, timeout: float,
                 recycle_after: int):
        self.executable, self.width, self.height = executable, width, height
        self.timeout, self.recycle_after = timeout, recycle_after
        self.folder = Path(tempfile.mkdtemp(prefix="vclib-browser-"))
        self.chromium: _Chromium | None = None
        self.starting = asyncio.Lock()
        self.free: asyncio.Queue[tuple[_Chromium, _Page] | None] = asyncio.Queue()
        for _ in range(concurrency):
            self.free.put_nowait(None)

    async def browser(self) -> _Chromium:
        async with self.starting:
            if self.chromium and not self.chromium.browser.is_connected():
                await self.retire(self.chromium)
            if self.chromium and self.chromium.started >= self.recycle_after:
                await self.retire(self.chromium)
            if self.chromium is None:
                self.chromium = await _Chromium.launch(self.executable, self.folder)
            return self.chromium

    async def retire(self, chromium: _Chromium) -> None:
        """The browser takes no new render and ends with its last one."""
        if self.chromium is chromium:
            self.chromium = None
        if not chromium.retired:
            chromium.retired = True
            if chromium.in_use == 0:
                await chromium.close()

    async def show(self, html: str) -> tuple[dict[str, Any], bytes, list[str]] | str:
        """What the page shows, or why it cannot be shown."""
        held = await self.free.get()
        slow = 0
        try:
            for _ in range(ATTEMPTS):
                chromium = await self.browser()
                chromium.started += 1
                chromium.in_use += 1
                try:
                    async with asyncio.timeout(self.timeout):
                        if held is None or held[0] is not chromium:
                            held = (chromium, await chromium.new_page(self.width, self.height))
                        return await held[1].render(html)
                except TimeoutError:
                    slow += 1
                    await self.drop(held)
                    held = None
                    if slow == 2:
                        return f"the page was not ready after {self.timeout:g} s, twice"
                except PlaywrightError as error:
                    reason = str(error).splitlines()[0]
                    if chromium.browser.is_connected():
                        await self.drop(held)
                    held = None
                finally:
                    chromium.in_use -= 1
                    if chromium.retired and chromium.in_use == 0:
                        await chromium.close()
            return f"the browser failed {ATTEMPTS} times ({reason})"
        finally:
            self.free.put_nowait(held)

    async def drop(self, held: tuple[_Chromium, _Page] | None) -> None:
        """Closes a page that hangs, and the whole browser if that does not work."""
        if held is None:
            return
        chromium, page = held
        try:
            await asyncio.wait_for(page.close(), 2)
        except (PlaywrightError, TimeoutError):
            chromium.kill()

    async def close(self) -> None:
        if self.chromium:
            await self.retire(self.chromium)
        shutil.rmtree(self.folder, ignore_errors=True)


def _shut_down(owner: int, loop: asyncio.AbstractEventLoop, thread: threading.Thread,
               engine: _Engine) -> None:
    if os.getpid() != owner or not thread.is_alive():
        return
    try:
        asyncio.run_coroutine_threadsafe(engine.close(), loop).result(15)
    except FutureTimeout:
        if engine.chromium:
            engine.chromium.kill()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


class Renderer:
    """Renders HTML in a real Chromium; safe to call from any thread and inside a running loop.

    width, height: viewport in CSS pixels (one device pixel each); concurrency: pages in flight;
    timeout: seconds that one attempt at a page may take; recycle_after: renders per browser.
    Raises BrowserMissing when there is no Chromium, VclibError when it does not start.
    """

    def __init__(self, width: int = 256, height: int = 192, *, concurrency: int = 2,
                 timeout: float = 5.0, recycle_after: int = 2000, executable: str | None = None):
        self.width, self.height, self.timeout, self.concurrency = width, height, timeout, concurrency
        self.executable = executable or find_chromium()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="vclib-browser", daemon=True
        )
        self._thread.start()
        self._engine = self._call(
            self._make(width, height, concurrency, timeout, recycle_after), LAUNCH_SECONDS
        )
        self._finalizer = weakref.finalize(
            self, _shut_down, os.getpid(), self._loop, self._thread, self._engine
        )
        try:
            version = self._call(self._version(), 2 * LAUNCH_SECONDS)
        except PlaywrightError as error:
            self.close()
            reason = str(error).splitlines()[0]
            raise VclibError(
                f"{self.executable} did not start ({reason}); run `make browser`, or set "
                "VCLIB_CHROMIUM to a Chromium that works."
            ) from error
        self._browser = f"{Path(self.executable).name} {version}"

    async def _make(self, *settings: Any) -> _Engine:
        return _Engine(self.executable, *settings)

    async def _version(self) -> str:
        return (await self._engine.browser()).browser.version

    @property
    def browser(self) -> str:
        """Name and version of the binary that renders, for logs."""
        return self._browser

    def render(self, html: str) -> Render:
        """The page as a browser of this viewport shows it; never raises for a bad page."""
        return self.render_many([html])[0]

    def render_many(self, htmls: Sequence[str]) -> list[Render]:
        """Renders of all the pages, in their order, `concurrency` of them in flight."""
        rounds = -(-len(htmls) // self.concurrency)
        bound = ATTEMPTS * (self.timeout + 2 * LAUNCH_SECONDS) * max(1, rounds)
        return self._call(self._render_many(htmls), bound)

    async def _render_many(self, htmls: Sequence[str]) -> list[Render]:
        return list(await asyncio.gather(*(self._render(html) for html in htmls)))

    async def _render(self, html: str) -> Render:
        safe, blocked, error = sanitize(html)
        if error:
            return self._failed(html, error, blocked)
        shown = await self._engine.show(_with_stylesheet(safe))
        if isinstance(shown, str):
            return self._failed(html, shown, blocked)
        snapshot, png, refused = shown
        blocked += refused
        pixels = cv2.cvtColor(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        nodes = len(snapshot["documents"][0]["nodes"]["nodeType"])
        if nodes > MAX_NODES:
            return self._failed(html, f"the page has {nodes} nodes; at most {MAX_NODES}", blocked)
        contents = read_snapshot(snapshot, pixels)
        if contents.page_height > MAX_PAGE_HEIGHT:
            return self._failed(
                html, f"the page is {contents.page_height} px tall; at most {MAX_PAGE_HEIGHT}",
                blocked, contents.page_height,
            )
        return Render(
            html, pixels, contents.text_blocks, contents.boxes, contents.background,
            contents.page_height, tuple(dict.fromkeys(blocked)), None,
        )

    def _failed(self, html: str, error: str, blocked: Sequence[str], page_height: int = 0) -> Render:
        pixels = np.full((self.height, self.width, 3), 255, np.uint8)
        listed = tuple(dict.fromkeys(blocked))
        return Render(html, pixels, (), (), (255, 255, 255), page_height, listed, error)

    def _call(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        if not self._thread.is_alive():
            coroutine.close()
            raise VclibError("This Renderer was closed; make a new one.")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(seconds)
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
