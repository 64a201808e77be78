"""A real JupyterLab on this machine, and a hand for it: what a person would click and see."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from vclib.env.browser import find_chromium
from vclib.paths import ROOT

ARTEFACTS = ROOT / "outputs" / "browser"
"""Where screenshots are kept."""
NUMBERED = re.compile(r"\[\d+\]")
RAISED = '[data-mime-type="application/vnd.jupyter.error"]'
STARTS = 400
"""Seconds in which a server or a notebook must be there, on a busy machine too."""


class Lab:
    """One JupyterLab with one notebook open in it."""

    def __init__(self, page: Page, url: str, token: str, folder: Path):
        self.page, self.url, self.token, self.folder = page, url, token, folder

    def open(self, name: str) -> None:
        """Open a notebook of the server's folder, and wait until its kernel can be used."""
        self.page.goto(f"{self.url}/lab/tree/{name}?reset&token={self.token}")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=STARTS * 1000)
        self.wait_connected(name, STARTS)
        self.wait_idle(STARTS)

    def menu(self, *commands: str) -> None:
        """Click through the menus: the name of a menu, then the commands below it."""
        first, *rest = commands
        self.page.locator(".lm-MenuBar-itemLabel", has_text=first).first.click()
        for command in rest:
            self.page.locator(f'.lm-Menu-item[data-command="{command}"]').first.click()

    def run_all(self, seconds: float) -> None:
        """Run all cells of a notebook without outputs, until the last has ended or one raised."""
        last = self.page.locator(".jp-CodeCell .jp-InputPrompt").last
        expect(last).not_to_have_text(NUMBERED)  # else it would not be seen to end
        self.menu("Run", "runmenu:run-all")
        ended = last.filter(has_text=NUMBERED).or_(self.page.locator(RAISED))
        expect(ended.first).to_be_attached(timeout=seconds * 1000)
        self.wait_idle(seconds)

    def kernels(self, name: str | None = None) -> list[dict[str, Any]]:
        """The kernels that the server runs, or those of one notebook, as it lists them."""
        sessions = self.page.request.get(
            f"{self.url}/api/sessions", params={"token": self.token}
        ).json()
        return [s["kernel"] for s in sessions if name in (None, s["path"])]

    def end_kernels(self) -> None:
        """End the kernel of every notebook that was opened, and give its memory back."""
        for kernel in self.kernels():
            address = f"{self.url}/api/kernels/{kernel['id']}"
            self.page.request.delete(address, params={"token": self.token})

    def wait_connected(self, name: str, seconds: float) -> None:
        """Until a notebook's kernel hears the page: what is run before is lost without a word."""
        deadline = time.monotonic() + seconds
        while not any(
            kernel["connections"] and kernel["execution_state"] == "idle"
            for kernel in self.kernels(name)
        ):
            assert time.monotonic() < deadline, f"{name} had no kernel within {seconds} s"
            self.page.wait_for_timeout(200)

    def wait_idle(self, seconds: float) -> None:
        """Until the kernel's sign in the toolbar says that it is idle."""
        sign = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
        self.page.wait_for_selector(sign, timeout=seconds * 1000)

    def cell(self, words: str) -> Locator:
        """The code cell whose source has these words."""
        return self.page.locator(".jp-CodeCell").filter(
            has=self.page.locator(".jp-Editor", has_text=words)
        )

    def errors(self) -> list[str]:
        """What cells have raised, as it stands in their outputs."""
        return self.page.locator(RAISED).all_inner_texts()

    def shot(self, name: str) -> Path:
        """Keep a picture of what is on the screen."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTEFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


def picture(place: Locator) -> str:
    """Where the first picture in a place comes from: another string for another picture."""
    source = place.locator("img.widget-image, .jp-RenderedImage img").first
    source.wait_for(timeout=STARTS * 1000)
    return source.get_attribute("src") or ""


def changes(place: Locator, before: str) -> None:
    """Fails unless the first picture in a place becomes another one."""
    source = place.locator("img.widget-image, .jp-RenderedImage img").first
    expect(source).not_to_have_attribute("src", before, timeout=STARTS * 1000)


def move(slider: Locator, key: str = "ArrowRight") -> None:
    """Move a slider by the keyboard."""
    handle = slider.locator(".noUi-handle").first
    handle.scroll_into_view_if_needed()
    handle.focus()
    handle.press(key)


# Not of the session: until it ends Playwright keeps a loop running in this thread, which tests of
# other folders must not meet.
@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The server's own folders are its test's, so that nobody's JupyterLab is touched."""
    home = tmp_path_factory.mktemp("lab")
    folder = home / "notebooks"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token, url = secrets.token_hex(16), f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    command += [f"--notebook-dir={folder}", "--allow-root"]
    names = ("CONFIG_DIR", "RUNTIME_DIR", "DATA_DIR")
    own = {f"JUPYTER_{name}": str(home / name.lower()) for name in names}
    own |= {f"JUPYTERLAB_{name}_DIR": str(home / name) for name in ("SETTINGS", "WORKSPACES")}
    news = home / "SETTINGS/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text('{"fetchNews": "false"}')  # else a question stands over the notebook
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
    try:
        _wait_for(f"{url}/api?token={token}", server, home / "log")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=find_chromium(), chromium_sandbox=False
            )
            page = browser.new_page(viewport={"width": 1400, "height": 1100})
            page.set_default_timeout(STARTS * 1000)
            yield Lab(page, url, token, folder)
            browser.close()
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()  # its kernels see that it is gone, and end
            server.wait()


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + STARTS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")
