"""One tab of the browser, in which page after page is shown."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import Any

from vclib.env.cdp import Connection, Failure
from vclib.env.dom import SNAPSHOT_REQUEST
from vclib.env.markup import read_markup
from vclib.env.sanitize import HOST, IMAGES, MAX_NODES, SafePage
from vclib.env.visible import Layout

# Every document is installed in a window that was opened with this header and keeps its policy.
# `sandbox` also turns meta refresh, forms, popups and autofocus off.
POLICY = (
    f"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src {IMAGES}; "
    "base-uri 'none'; form-action 'none'"
)
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Inspector.enable", {}),
    ("Emulation.setScriptExecutionDisabled", {"value": True}),
    ("Emulation.setLocaleOverride", {"locale": "en-US"}),
    ("Emulation.setTimezoneOverride", {"timezoneId": "UTC"}),
    ("Emulation.setFocusEmulationEnabled", {"enabled": True}),
    (
        "Emulation.setEmulatedMedia",
        {
            "media": "",
            "features": [
                {"name": "prefers-color-scheme", "value": "light"},
                {"name": "prefers-reduced-motion", "value": "reduce"},
                {"name": "forced-colors", "value": "none"},
            ],
        },
    ),
    ("Network.enable", {}),
    ("Network.setBypassServiceWorker", {"bypass": True}),
    (
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
    ),
    ("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}),
    ("Page.enable", {}),
    ("Page.setLifecycleEventsEnabled", {"enabled": True}),
)
FRAMES = 2
FRAME_AFTER = 0.1  # seconds in which a page that waits for no frame has loaded
SHOT = {"format": "png", "optimizeForSpeed": True}
Shown = tuple[Layout, bytes, list[str]]


class Tab:
    """One page of the browser, used for one render after another."""

    def __init__(
        self,
        connection: Connection,
        context: str,
        session: str,
        frame: str,
        pace: asyncio.Lock | None,
    ):
        self.connection, self.context, self.session = connection, context, session
        self.frame, self.pace = frame, pace
        self.size = 0, 0
        self.last = self.shown = ""
        self.images: dict[str, tuple[str, bytes]] = {}
        self.loaded: asyncio.Future[dict[str, Any]] | None = None
        self.urls: dict[str, str] = {}
        self.refused: list[str] = []
        self._answers: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, connection: Connection, width: int, height: int, pace: asyncio.Lock | None = None
    ) -> Tab:
        """A tab that shares nothing with others; width and height in CSS pixels.

        pace: held while a frame is drawn, where the browser draws one only when told to.
        """
        made = await connection.send("Target.createBrowserContext", {"disposeOnDetach": True})
        context = {"browserContextId": made["browserContextId"]}
        await connection.send("Browser.setDownloadBehavior", {"behavior": "deny", **context})
        asked = {"url": "about:blank", "width": width, "height": height, **context}
        if pace:
            asked["enableBeginFrameControl"] = True
        target = await connection.send("Target.createTarget", asked)
        attached = await connection.send(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        # The main frame of a page has the name of its target.
        self = cls(
            connection, made["browserContextId"], attached["sessionId"], target["targetId"], pace
        )
        connection.handlers[self.session] = self._on_event
        self.size = width, height
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", screen)
        for method, params in SETTINGS:
            await self.send(method, params)
        _, self.loaded = connection.expect(self.session)
        await self.send("Page.navigate", {"url": HOST})
        await self.loaded
        # A tab that is new may have nothing to draw on for some frames.
        while pace and not self.last:
            await self.picture()
        return self

    def send(
        self, method: str, params: dict[str, Any] | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        """Makes one call of the protocol at once; the answer to come."""
        return self.connection.send(method, params, self.session)

    async def close(self) -> None:
        """Ends the tab and the process that draws it."""
        self.connection.handlers.pop(self.session, None)
        await self.connection.send(
            "Target.disposeBrowserContext", {"browserContextId": self.context}
        )

    def _on_event(self, method: str, event: dict[str, Any]) -> None:
        if method == "Page.lifecycleEvent":
            ours = event["name"] == "load" and event["frameId"] == self.frame
            if ours and self.loaded and not self.loaded.done():
                self.loaded.set_result(event)
        elif method == "Network.requestWillBeSent":
            self.urls[event["requestId"]] = event["request"]["url"]
        elif method == "Network.loadingFailed":
            url = self.urls.get(event["requestId"], "")
            if url and url not in (HOST, "data:,"):
                self.refused.append(url.removeprefix(HOST)[:200])
        elif method == "Fetch.requestPaused":
            answer = asyncio.ensure_future(
                self._answer(event["requestId"], event["request"]["url"])
            )
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)

    async def _answer(self, request: str, url: str) -> None:
        """Gives the browser what the page brings along, and nothing else."""
        if url == HOST:
            kind, data = "text/html", b"<!doctype html>"
        elif url in self.images:
            kind, data = self.images[url]
        else:
            reason = {"requestId": request, "errorReason": "BlockedByClient"}
            with contextlib.suppress(Failure):
                await self.send("Fetch.failRequest", reason)
            return
        headers = {"content-type": kind, "content-security-policy": POLICY}
        answer = {
            "requestId": request,
            "responseCode": 200,
            "responseHeaders": [{"name": n, "value": v} for n, v in headers.items()],
            "body": base64.b64encode(data).decode(),
        }
        with contextlib.suppress(Failure):
            await self.send("Fetch.fulfillRequest", answer)

    async def _count(self) -> int:
        """Nodes of the page."""
        await self.send("DOM.enable")
        found = await self.send("DOM.performSearch", {"query": "//node()"})
        await self.send("DOM.disable")
        return found["resultCount"]

    async def show(self, page: SafePage) -> Shown | str:
        """(layout, PNG, addresses that were refused), or why there is nothing to see."""
        self.images, self.urls, self.refused = page.images, {}, []
        counters = await self._load(page.html)
        # The counter of the process also counts what earlier pages left behind.
        if counters["nodes"] > 4 * MAX_NODES and (nodes := await self._count()) > MAX_NODES:
            return f"the page has {nodes} nodes; at most {MAX_NODES} are rendered"
        frames = 1 if page.html == self.shown else FRAMES
        layout, picture = await asyncio.gather(self._layout(page), self.picture(frames))
        self.shown = page.html
        if layout.url != HOST:
            raise Failure("the page navigated away, which its policy forbids")
        return layout, base64.b64decode(picture), self.refused

    async def _layout(self, page: SafePage) -> Layout:
        answer = await self.send("DOMSnapshot.captureSnapshot", SNAPSHOT_REQUEST)
        layout = Layout(answer, *self.size)
        read_markup(page.source)  # kept for the score, while the picture is still being drawn
        return layout

    async def _load(self, html: str) -> dict[str, Any]:
        """Counters of the page, once it has what it loads; for some of that it needs a frame."""
        _, loaded = self.connection.expect(self.session)
        self.loaded = loaded
        try:
            written = self.send("Page.setDocumentContent", {"frameId": self.frame, "html": html})
            counted = self.send("Memory.getDOMCounters")
            await written
            while self.pace and not loaded.done():
                if not (await asyncio.wait([loaded], timeout=FRAME_AFTER))[0]:
                    await self._frame()
            await loaded
            return await counted
        finally:
            loaded.cancel()

    async def picture(self, frames: int = FRAMES) -> str:
        """What the page looks like: a PNG in base64.

        frames: that must show nothing new before the last picture is taken for this page's too.
        """
        if self.pace is None:
            answer = await self.send("Page.captureScreenshot", SHOT)
            return str(answer["data"])
        for _ in range(frames):
            if await self._frame():
                break
            await asyncio.sleep(0.01)
        return self.last

    async def _frame(self) -> bool:
        """Draws a frame; whether it shows anything new, which is then the last picture."""
        assert self.pace
        async with self.pace:
            try:
                answer = await self.send("HeadlessExperimental.beginFrame", {"screenshot": SHOT})
            except BaseException:
                # The frame may still be under way, and must not meet the next one.
                self.connection.kill()
                raise
        self.last = answer.get("screenshotData", self.last)
        return "screenshotData" in answer
