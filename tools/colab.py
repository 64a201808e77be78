"""Get a Colab machine ready: what pyproject.toml names and the machine lacks, and a browser.

Colab's own torch, torchvision and numpy are left alone: to replace them under a running kernel
breaks it, and Colab's torch is the one that fits its GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
KEEP = {"torch", "torchvision", "numpy", "pillow", "scipy", "matplotlib"}


def wanted(requirement: str) -> bool:
    """True if pip has to be asked for this requirement."""
    needed = Requirement(requirement)
    try:
        installed = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return True
    return needed.name not in KEEP and not needed.specifier.contains(installed)


def requirements() -> list[str]:
    """What the notebooks need: the library's own packages, and those of its server."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["server"]]


def constraints() -> list[str]:
    """What is left alone, pinned to what is there, so that no other package replaces it."""
    here = {found.name.lower(): found.version for found in metadata.distributions()}
    return [f"{name}=={here[name]}" for name in sorted(KEEP & here.keys())]


def main() -> int:
    """Install what is missing, then get a browser; pip's or the browser's exit status."""
    missing = [requirement for requirement in requirements() if wanted(requirement)]
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            pins = Path(folder, "constraints.txt")
            pins.write_text("\n".join(constraints()) + "\n")
            install = [sys.executable, "-m", "pip", "install", "--quiet", "-c", str(pins)]
            subprocess.run([*install, *missing], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    browser = [sys.executable, str(ROOT / "tools" / "get_browser.py")]
    return subprocess.run(browser, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
