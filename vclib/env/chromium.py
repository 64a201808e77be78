"""A running Chromium: started, used for one render after another, replaced when it fails.

Everything here runs on one event loop, which `browser.Renderer` keeps on a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from vclib.env.cdp import BrowserDied, Connection, Failure
from vclib.env.fonts import fonts_conf
from vclib.env.sanitize import SafePage
from vclib.env.tab import Shown, Tab
from vclib.errors import VclibError

LAUNCH_SECONDS = 60.0
FRAME_SECONDS = 20.0
ATTEMPTS = 5
# Of the time that a page has, the part for the first attempt.
FIRST_SHARE = 0.4
# A page may always take as long as so many starts of the browser: it takes long to start where
# the machine is busy, and there an honest page takes long as well.
STARTS = 5
FEATURES_OFF = "HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding"
FLAGS = (
    "--headless",
    "--no-startup-window",
    "--blink-settings=imageAnimationPolicy=2,lazyLoadEnabled=false",
    "--disable-back-forward-cache",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-checker-imaging",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    f"--disable-features={FEATURES_OFF}",
    "--disable-field-trial-config",
    "--disable-gpu",
    "--disable-hang-monitor",
    "--disable-lcd-text",
    "--disable-renderer-backgrounding",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--password-store=basic",
    "--proxy-bypass-list=<-loopback>",
    "--proxy-server=http://127.0.0.1:9",
    "--use-mock-keychain",
)


# A headless shell can be told when to draw a frame (`HeadlessExperimental.beginFrame`): then it
# draws one for each page, where others draw frame after frame until the picture is taken.
PACED = ("--enable-begin-frame-control", "--run-all-compositor-stages-before-draw")
UNPACED = ("--disable-frame-rate-limit", "--disable-gpu-vsync")
# Whether an executable does so: some versions lack the call. Found out once in a process.
_obedient: dict[str, bool] = {}


def _may_be_paced(executable: str) -> bool:
    shell = "headless" in Path(executable).name and sys.platform != "darwin"
    return _obedient.get(executable, shell)


class Chromium:
    """A running browser, and how much it has been used.

    pace: held while a frame is drawn, for two at once would end the browser; None where the
    browser draws as it likes.
    """

    def __init__(self, connection: Connection, folder: Path, paced: bool):
        self.connection, self.folder = connection, folder
        self.pace = asyncio.Lock() if paced else None
        self.version = ""
        self.start_seconds = 0.0
        self.started = 0
        self.in_use = 0
        self.retired = False

    @property
    def group(self) -> int:
        """The process group of the browser."""
        return self.connection.process.pid

    @classmethod
    async def launch(cls, executable: str, folder: Path) -> Chromium:
        """Raises VclibError if the browser does not start.

        One that ends while it starts, as when somebody kills it, is started again.
        """
        # Where the kernel forbids the sandbox (to root, in some containers), do without.
        sandbox = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
        for _ in range(ATTEMPTS):
            own = Path(tempfile.mkdtemp(dir=folder))
            environment = {
                **os.environ,
                "FONTCONFIG_FILE": str(fonts_conf(folder)),
                "LANG": "C.UTF-8",
                "TMPDIR": str(own),
                "TZ": "UTC",
            }
            paced = _may_be_paced(executable)
            flags = (*FLAGS, *(PACED if paced else UNPACED), *sandbox)
            start = time.monotonic()
            connection = await Connection.start(
                (executable, *flags, f"--user-data-dir={own / 'profile'}"), environment, own / "log"
            )
            self = cls(connection, own, paced)
            try:
                async with asyncio.timeout(LAUNCH_SECONDS):
                    version = await connection.send("Browser.getVersion")
                self.version = version["product"].rpartition("/")[2]
                self.start_seconds = time.monotonic() - start
                if not paced or await self.obeys(executable):
                    return self
            except BaseException as error:
                await connection.close()
                log = (own / "log").read_text(errors="replace").strip()
                shutil.rmtree(own, ignore_errors=True)
                if "sandbox" in log.lower():
                    sandbox = ("--no-sandbox",)
                if not isinstance(error, (Failure, TimeoutError)):
                    raise
            else:
                await self.close()
        raise VclibError(
            f"{executable} did not start ({log[:200] or 'it gave no reason'}); run "
            "`make browser`, or set VCLIB_CHROMIUM to a Chromium that works."
        )

    async def obeys(self, executable: str) -> bool:
        """Whether it draws a frame when told to."""
        if executable not in _obedient:
            try:
                async with asyncio.timeout(FRAME_SECONDS):
                    tab = await Tab.open(self.connection, 64, 64, self.pace)
                    await tab.close()
                _obedient[executable] = True
            except BrowserDied:
                raise
            except (Failure, TimeoutError):
                _obedient[executable] = False
        return _obedient[executable]

    def kill(self) -> None:
        """Ends every process of the browser at once."""
        self.connection.kill()

    async def close(self) -> None:
        """Ends the browser, which has nothing to lose, and removes its files."""
        await self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)


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
        self.dropping: set[asyncio.Task[None]] = set()
        self.free: asyncio.Queue[tuple[Chromium, Tab] | None] = asyncio.Queue()
        for _ in range(concurrency):
            self.free.put_nowait(None)

    async def browser(self) -> Chromium:
        """The browser that the next render uses."""
        async with self.starting:
            old = self.chromium
            if old and (old.started >= self.uses or old.connection.dead):
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

        One that fails beside others, for which they may be to blame, is shown again alone.
        """
        held = await self.free.get()
        try:
            chromium = await self.browser()
            chromium.started += 1
            chromium.in_use += 1
            try:
                if held is None or held[0] is not chromium:
                    held = None
                    held = chromium, await self.open(chromium)
                async with asyncio.timeout(self.patience(chromium, FIRST_SHARE)):
                    return await held[1].show(page)
            except (Failure, TimeoutError):
                if held:
                    self.drop(*held)
                held = None
            finally:
                chromium.in_use -= 1
                if chromium.retired and chromium.in_use == 0:
                    await chromium.close()
            return await self.show_alone(page)
        except BaseException:
            held = None
            raise
        finally:
            self.free.put_nowait(held)

    async def show_alone(self, page: SafePage) -> Shown | str:
        """The same in a browser of its own, which may be killed for reasons of its own."""
        for _ in range(ATTEMPTS):
            chromium = await Chromium.launch(self.executable, self.folder)
            try:
                tab = await self.open(chromium)
                async with asyncio.timeout(self.patience(chromium, 1 - FIRST_SHARE)):
                    return await tab.show(page)
            except TimeoutError:
                return f"the page was not ready after {self.timeout:g} s"
            except BrowserDied:
                continue
            except Failure as error:
                return f"{error}, twice"
            finally:
                await chromium.close()
        return f"the browser died {ATTEMPTS + 1} times under the page"

    def patience(self, chromium: Chromium, share: float) -> float:
        """Seconds that an attempt may take."""
        return max(self.timeout * share, STARTS * chromium.start_seconds)

    async def open(self, chromium: Chromium) -> Tab:
        async with asyncio.timeout(LAUNCH_SECONDS):
            return await Tab.open(chromium.connection, self.width, self.height, chromium.pace)

    def drop(self, chromium: Chromium, tab: Tab) -> None:
        """Closes a tab that failed, without waiting; where that does not work, its browser."""

        async def close() -> None:
            try:
                async with asyncio.timeout(2):
                    await tab.close()
            except (Failure, TimeoutError):
                chromium.kill()

        task = asyncio.ensure_future(close())
        self.dropping.add(task)
        task.add_done_callback(self.dropping.discard)

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
