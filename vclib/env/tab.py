"""One tab of the browser, in which page after page is shown."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Browser, CDPSession, Route
from playwright.async_api import Error as PlaywrightError

from vclib.env.dom import SNAPSHOT_REQUEST
from vclib.env.sanitize import HOST, IMAGES, MAX_NODES, SafePage

# Every document is installed in a window that was opened with this header and keeps its policy.
# `sandbox` also turns meta refresh, forms, popups and autofocus off.
POLICY = (
    f"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src {IMAGES}; "
    "base-uri 'none'; form-action 'none'"
)
Shown = tuple[dict[str, Any], bytes, list[str]]


class Tab:
    """One page of the browser, used for one render after another."""

    def __init__(self, session: CDPSession, width: int, height: int):
        self.session = session
        self.clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        self.frame = ""
        self.close: Callable[[], Awaitable[None]]
        self.images: dict[str, tuple[str, bytes]] = {}
        self.loaded = asyncio.Event()
        self.urls: dict[str, str] = {}
        self.refused: list[str] = []

    @classmethod
    async def open(cls, browser: Browser, width: int, height: int) -> Tab:
        context = await browser.new_context(
            viewport={"width": width, "height": height}, device_scale_factor=1,
            java_script_enabled=False, offline=True, accept_downloads=False,
            service_workers="block", locale="en-US", timezone_id="UTC", color_scheme="light",
            reduced_motion="reduce", forced_colors="none",
        )  # fmt: skip
        page = await context.new_page()
        session = await context.new_cdp_session(page)
        self = cls(session, width, height)
        self.close = context.close
        await context.route("**/*", self._answer)
        await page.goto(HOST)
        session.on("Page.lifecycleEvent", self._on_lifecycle)
        session.on("Network.requestWillBeSent", self._on_request)
        session.on("Network.loadingFailed", self._on_failure)
        await session.send("Page.enable")
        await session.send("Page.setLifecycleEventsEnabled", {"enabled": True})
        await session.send("Network.enable")
        self.frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        return self

    async def _answer(self, route: Route) -> None:
        url = route.request.url
        if url == HOST:
            headers = {"content-type": "text/html", "content-security-policy": POLICY}
            await route.fulfill(body="<!doctype html>", headers=headers)
        elif url in self.images:
            kind, data = self.images[url]
            await route.fulfill(body=data, content_type=kind)
        else:
            await route.abort()

    def _on_lifecycle(self, event: dict[str, Any]) -> None:
        if event["name"] == "load" and event["frameId"] == self.frame:
            self.loaded.set()

    def _on_request(self, event: dict[str, Any]) -> None:
        self.urls[event["requestId"]] = event["request"]["url"]

    def _on_failure(self, event: dict[str, Any]) -> None:
        url = self.urls.get(event["requestId"], "")
        if url and url not in (HOST, "data:,"):
            self.refused.append(url.removeprefix(HOST)[:200])

    async def show(self, page: SafePage) -> Shown | str:
        """(DOM snapshot, PNG, addresses that were refused), or why there is nothing to see."""
        self.images, self.urls, self.refused = page.images, {}, []
        self.loaded.clear()
        send = self.session.send
        await send("Page.setDocumentContent", {"frameId": self.frame, "html": page.html})
        await self.loaded.wait()
        # The counter of the process also counts what earlier pages left behind.
        if (await send("Memory.getDOMCounters"))["nodes"] > 4 * MAX_NODES:
            await send("DOM.enable")
            nodes = (await send("DOM.performSearch", {"query": "//node()"}))["resultCount"]
            await send("DOM.disable")
            if nodes > MAX_NODES:
                return f"the page has {nodes} nodes; at most {MAX_NODES} are rendered"
        snapshot = await send("DOMSnapshot.captureSnapshot", SNAPSHOT_REQUEST)
        if snapshot["strings"][snapshot["documents"][0]["documentURL"]] != HOST:
            raise PlaywrightError("the page navigated away, which its policy forbids")
        request = {"format": "png", "optimizeForSpeed": True, "clip": self.clip}
        shot = await send("Page.captureScreenshot", request)
        return snapshot, base64.b64decode(shot["data"]), self.refused
