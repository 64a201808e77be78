"""A running Chromium: started, used for one render after another, replaced when it fails.

Everything here runs on one event loop, which `browser.Renderer` keeps on a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from asyncio import FIRST_COMPLETED
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from vclib.env.fonts import fonts_conf
from vclib.env.sanitize import SafePage
from vclib.env.tab import Shown, Tab
from vclib.errors import VclibError

LAUNCH_SECONDS = 60.0
ATTEMPTS = 3
FLAGS = (
    "--blink-settings=imageAnimationPolicy=2,lazyLoadEnabled=false",
    "--disable-background-networking",
    "--disable-checker-imaging",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-frame-rate-limit",
    "--disable-gpu",
    "--disable-gpu-vsync",
    "--disable-lcd-text",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--mute-audio",
    "--no-first-run",
    "--no-pings",
    "--proxy-bypass-list=<-loopback>",
    "--proxy-server=http://127.0.0.1:9",
)
T = TypeVar("T")


class Chromium:
    """A running browser, known by its process group."""

    def __init__(self, playwright: Playwright, browser: Browser, group: int):
        self.playwright, self.browser, self.group = playwright, browser, group
        self.started = 0
        self.in_use = 0
        self.retired = False
        self.died = asyncio.Event()
        browser.on("disconnected", lambda _: self.died.set())

    @classmethod
    async def launch(cls, executable: str, folder: Path) -> Chromium:
        """Raises VclibError if the browser does not start."""
        environment: dict[str, str | float | bool] = {
            **os.environ,
            "FONTCONFIG_FILE": str(fonts_conf(folder)),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }
        # Where the kernel forbids the sandbox (to root, in some containers), do without.
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        playwright = await async_playwright().start()
        try:
            for sandbox in (False,) if root else (True, False):
                try:
                    browser = await playwright.chromium.launch(
                        executable_path=executable, args=list(FLAGS), env=environment,
                        chromium_sandbox=sandbox, timeout=LAUNCH_SECONDS * 1000,
                        handle_sigint=False, handle_sigterm=False, handle_sighup=False,
                    )  # fmt: skip
                    break
                except PlaywrightError:
                    if not sandbox:
                        raise
            session = await browser.new_browser_cdp_session()
            processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
            pid = next(int(p["id"]) for p in processes if p["type"] == "browser")
            await session.detach()
            return cls(playwright, browser, os.getpgid(pid) if hasattr(os, "getpgid") else 0)
        except BaseException as error:
            await playwright.stop()
            if isinstance(error, PlaywrightError):
                raise VclibError(
                    f"{executable} did not start ({str(error).splitlines()[0]}); run "
                    "`make browser`, or set VCLIB_CHROMIUM to a Chromium that works."
                ) from error
            raise

    async def bounded(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Its result; TimeoutError after so long, PlaywrightError at once if the browser dies."""
        # Some calls of Playwright never return when the browser dies under them.
        task, death = asyncio.ensure_future(work), asyncio.ensure_future(self.died.wait())
        try:
            await asyncio.wait({task, death}, timeout=seconds, return_when=FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise PlaywrightError("the browser died") if death.done() else TimeoutError
        finally:
            death.cancel()
            task.cancel()

    def kill(self) -> None:
        """Ends every process of the browser at once."""
        if self.group and self.group != os.getpgid(0):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)

    async def close(self) -> None:
        """Ends the browser politely, then by force, and reaps what was left to this process."""
        with contextlib.suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for(self.browser.close(), 5)
        self.kill()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.playwright.stop(), 5)
        with contextlib.suppress(OSError):
            while self.group and os.waitpid(-self.group, os.WNOHANG)[0]:
                pass


class Engine:
    """The browser, its pages, and their replacement when they hang, die or grow old."""

    def __init__(
        self, executable: str, width: int, height: int, concurrency: int, timeout: float, uses: int
    ):
        self.executable, self.width, self.height = executable, width, height
        self.timeout, self.uses = timeout, uses
        self.folder = Path(tempfile.mkdtemp(prefix="vclib-browser-"))
        self.chromium: Chromium | None = None
        self.starting = asyncio.Lock()
        self.free: asyncio.Queue[tuple[Chromium, Tab] | None] = asyncio.Queue()
        for _ in range(concurrency):
            self.free.put_nowait(None)

    async def browser(self) -> Chromium:
        """The browser that the next render uses."""
        async with self.starting:
            old = self.chromium
            if old and (old.started >= self.uses or old.died.is_set()):
                await self.retire(old)
            if self.chromium is None:
                self.chromium = await Chromium.launch(self.executable, self.folder)
            return self.chromium

    async def retire(self, chromium: Chromium) -> None:
        """The browser takes no new render, and ends with the last that it has."""
        if self.chromium is chromium:
            self.chromium = None
        if not chromium.retired:
            chromium.retired = True
            if chromium.in_use == 0:
                await chromium.close()

    async def show(self, page: SafePage) -> Shown | str:
        """What the page shows, or why it cannot be shown.

        A page that is not ready in time is tried twice; one whose browser dies, which may be
        another page's doing, ATTEMPTS times.
        """
        held = await self.free.get()
        slow, reason = 0, ""
        try:
            for _ in range(ATTEMPTS):
                chromium = await self.browser()
                chromium.started += 1
                chromium.in_use += 1
                try:
                    if held is None or held[0] is not chromium:
                        opening = Tab.open(chromium.browser, self.width, self.height)
                        held = chromium, await chromium.bounded(opening, LAUNCH_SECONDS)
                    return await chromium.bounded(held[1].show(page), self.timeout)
                except TimeoutError:
                    await self.drop(chromium, held)
                    held, slow = None, slow + 1
                    if slow == 2:
                        return f"the page was not ready after {self.timeout:g} s, twice"
                except PlaywrightError as error:
                    held, reason = None, str(error).splitlines()[0]
                    await self.retire(chromium)
                finally:
                    chromium.in_use -= 1
                    if chromium.retired and chromium.in_use == 0:
                        await chromium.close()
            return f"the browser failed {ATTEMPTS} times ({reason or 'it gave no answer'})"
        except BaseException:
            held = None
            raise
        finally:
            self.free.put_nowait(held)

    async def drop(self, chromium: Chromium, held: tuple[Chromium, Tab] | None) -> None:
        """Closes a page that hangs; where that does not work, ends its browser."""
        try:
            if held is None or held[0] is not chromium:
                raise TimeoutError
            await asyncio.wait_for(held[1].close(), 2)
        except (PlaywrightError, TimeoutError):
            chromium.kill()
            await self.retire(chromium)

    async def close(self) -> None:
        """Ends the browser at once; renders under way are cancelled."""
        if chromium := self.chromium:
            self.chromium, chromium.retired = None, True
            await chromium.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)
