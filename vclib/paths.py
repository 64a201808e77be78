"""Where the files that come with the project lie."""

import os
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
TINY = DATA / "models" / "vc-tiny"
FONTS = DATA / "fonts"
VENV_PYTHON = ROOT / ".venv" / "bin" / "python"
IN_VENV = Path(sys.prefix).resolve() == (ROOT / ".venv").resolve()


def project() -> dict[str, Any]:
    """What pyproject.toml says of the project: its name, versions, requirements, addresses."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def in_project(path: object) -> str:
    """A path as kept files name it: what lies in the project by its place there, on any machine."""
    return str(path).removeprefix(f"{ROOT}{os.sep}")


def program() -> str:
    """What runs vclib in a shell as it runs now: by the path of .venv's Python if that runs it."""
    return f"{_venv_python() if IN_VENV else 'python'} -m vclib"


def remedy(*words: str) -> str:
    """What to do where this Python lacks a package: the command with that of .venv, or set up."""
    if IN_VENV or not VENV_PYTHON.exists():
        return "run `make setup`"
    return f"run `{_venv_python()} -m vclib {shlex.join(words)}`"


def _venv_python() -> str:
    """A word of a shell, short where .venv is below this folder."""
    return shlex.quote(str(VENV_PYTHON).removeprefix(f"{Path.cwd()}{os.sep}"))
