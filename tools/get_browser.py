"""Get a Chromium that renders here: the one that is there, Playwright's own, or the system's.

Run by `make browser`. Each way has a time limit; the last line says which browser it is, or what
to do by hand. A browser that has rendered a page once is not tried again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vclib.env.browser import Renderer, find_chromium
from vclib.errors import VclibError

PROVEN = Path(sys.prefix) / "browser"
PAGE = "<!doctype html><html><head></head><body style='background:#102030'>ok</body></html>"
BY_HAND = (
    "No browser could be installed. Install one of these, then run the command again: "
    "on Debian `apt-get install chromium-headless-shell`, on Ubuntu "
    "`{python} -m playwright install --with-deps chromium`, on Fedora `dnf install "
    "chromium-headless`, on macOS `brew install --cask chromium`. "
    "Or set VCLIB_CHROMIUM to the path of a Chromium that you have."
)


def main() -> int:
    """Try each way in turn until a page has been rendered; 1 if none works."""
    path = chromium_path()
    if path and PROVEN.is_file() and PROVEN.read_text() == path:
        return 0
    for get in (lambda: None, from_playwright, from_apt, from_dnf):
        get()
        path = chromium_path()
        if path and renders():
            PROVEN.write_text(path)
            print(f"Browser: {path}")
            return 0
    print(BY_HAND.format(python=sys.executable), file=sys.stderr)
    return 1


def chromium_path() -> str | None:
    """The Chromium that the library takes, or None."""
    try:
        return find_chromium()
    except VclibError:
        return None


def renders() -> bool:
    """True if that Chromium starts and paints a page; says why it does not."""
    try:
        with Renderer(timeout=30) as renderer:
            render = renderer.render(PAGE)
    except Exception as error:  # whatever it is, the next way may work
        print(f"The browser does not start: {error}", file=sys.stderr)
        return False
    if render.error or tuple(int(v) for v in render.pixels[-1, -1]) != (16, 32, 48):
        print(f"The browser does not paint: {render.error}", file=sys.stderr)
        return False
    return True


def from_playwright() -> None:
    """Playwright's own download; it hangs where its host cannot be reached, hence the limit."""
    install = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    if run(install, seconds=180):
        run(as_root([sys.executable, "-m", "playwright", "install-deps", "chromium"]), seconds=300)


def from_apt() -> None:
    """Debian's packages. (Ubuntu's chromium is a snap, which cannot be driven from outside.)"""
    if not shutil.which("apt-get"):
        return
    run(as_root(["apt-get", "update", "-q"]), seconds=180)
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
    for package in ("chromium-headless-shell", "chromium"):
        if run(as_root([*install, package]), seconds=600):
            return


def from_dnf() -> None:
    """Fedora's packages."""
    if shutil.which("dnf"):
        run(as_root(["dnf", "install", "-y", "chromium-headless"]), seconds=600)


def as_root(command: Sequence[str]) -> list[str]:
    """The command, by way of sudo (which must not ask) unless this is root already."""
    root = os.geteuid() == 0
    return list(command) if root else ["sudo", "-n", *command]


def run(command: Sequence[str], seconds: int) -> bool:
    """Run a command and show it; True if it ended well within its time."""
    print("+", " ".join(command), flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        # A session of its own, so that the limit ends the download's helpers too.
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                return process.wait(timeout=seconds) == 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 15)
                print(f"stopped after {seconds} s", file=sys.stderr)
                return False
    except OSError as error:
        print(error, file=sys.stderr)
        return False


if __name__ == "__main__":
    sys.exit(main())
