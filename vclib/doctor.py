"""What this machine has of what the course and the trainer need, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vclib.errors import VclibError
from vclib.paths import TINY, project, remedy

PYTHON = ((3, 11), (3, 13))
MEMORY = 4e9
DISK = 2e9
"""Bytes that the small model's training needs at hand, with some room."""
POINTER = 1000
"""Bytes below which a weights file is the pointer that Git LFS leaves."""
COLOR = (47, 134, 214)
PAGE = "<!doctype html><html><head></head><body style='background:#2f86d6'>vclib</body></html>"


@dataclass(frozen=True)
class Check:
    """One line of the doctor: what was looked at, what was found, and what to do if it is amiss."""

    name: str
    fine: bool
    found: str
    remedy: str = ""
    needed: bool = True


def examine(model: str = str(TINY)) -> Iterator[Check]:
    """Check one thing after the other; a check that breaks is one that failed."""
    for name, look in {
        "python": _python,
        "packages": _packages,
        "torch": _torch,
        "browser": _browser,
        "model": lambda: _model(model),
        "memory": _memory,
        "disk": _disk,
        "cores": _cores,
        "gpu": _gpu,
    }.items():
        yield _safely(name, look)


def line(check: Check) -> str:
    """For instance "ok    browser   chromium-headless-shell 140.0"."""
    mark = "ok" if check.fine else "FAIL" if check.needed else "note"
    text = f"{mark:5} {check.name:9} {check.found}"
    return text if not check.remedy else f"{text}\n{'':16}{check.remedy}"


def _safely(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except VclibError as error:
        return Check(name, False, " ".join(str(error).split()))
    except ModuleNotFoundError as error:
        found = f"this Python lacks the package {error.name}"
        return Check(name, False, found, remedy("doctor"), needed=name != "gpu")
    except Exception as error:
        found = f"{type(error).__name__}: {error}".splitlines()[0]
        return Check(name, False, found, remedy("doctor"))


def _python() -> Check:
    low, high = PYTHON
    fine = low <= sys.version_info[:2] <= high
    span = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
    advice = "" if fine else f"install Python {span}, then `make setup PYTHON=/path/to/it`"
    return Check("python", fine, f"{platform.python_version()} at {sys.executable}", advice)


def _packages() -> Check:
    """What pyproject.toml asks for; another version is worth a note, for it may do."""
    from packaging.requirements import Requirement

    requirements = project()["dependencies"]
    missing, other = [], []
    for wanted in map(Requirement, requirements):
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            missing.append(wanted.name)
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            other.append(f"{wanted.name} {found}, not {wanted.specifier}")
    if missing:
        return Check("packages", False, f"missing: {', '.join(missing)}", remedy("doctor"))
    if other:
        found = f"other versions: {'; '.join(other)}"
        return Check("packages", False, found, remedy("doctor"), needed=False)
    count = len(requirements)
    return Check("packages", True, f"{count} as pinned, transformers {version('transformers')}")


def _torch() -> Check:
    import torch
    import torchvision

    ones = torch.ones(8, 8)
    assert (ones @ ones)[0, 0] == 8
    found = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    return Check("torch", True, f"{found}, {torch.get_num_threads()} threads")


def _browser() -> Check:
    from vclib.env.browser import Renderer

    with Renderer() as renderer:
        start = time.perf_counter()
        render = renderer.render(PAGE)
        seconds = time.perf_counter() - start
    if render.error or tuple(render.pixels[-1, -1]) != COLOR:
        why = render.error or "the page has the wrong colour"
        return Check("browser", False, f"{renderer.browser}: {why}", "run `make browser`")
    return Check("browser", True, f"{renderer.browser} renders a page in {1000 * seconds:.0f} ms")


def _model(name: str) -> Check:
    """Whether the model's files are here; loading it all would take too long for a large one."""
    folder = Path(name)
    advice = "give --model the folder of a Qwen3.5 with vision, or its name on the hub"
    if folder.resolve() == TINY:
        advice = "restore it from the repository"
    if not folder.is_dir():
        if name.count("/") == 1 and not name.startswith((".", "/", "~")):
            from huggingface_hub import try_to_load_from_cache

            if isinstance(try_to_load_from_cache(name, "config.json"), str):
                return Check("model", True, f"{name} from the hub, in the cache")
            advice = "it will be downloaded at first use: that needs the network, and disk"
            return Check("model", False, f"{name} is not in the cache", advice, needed=False)
        return Check("model", False, f"there is no folder {name}", advice)
    wanted = ("config.json", "tokenizer.json", "chat_template.jinja")
    missing = [file for file in wanted if not (folder / file).is_file()]
    weights = list(folder.glob("*.safetensors"))
    if missing or not weights:
        lacks = ", ".join([*missing, *([] if weights else ["*.safetensors"])])
        return Check("model", False, f"{folder} lacks {lacks}", advice)
    size = sum(path.stat().st_size for path in weights)
    if size < POINTER:
        found = f"the weights in {folder} are {size} bytes: a pointer, not the file"
        return Check("model", False, found, "run `git lfs pull`")
    return Check("model", True, f"{folder.name}, {size / 1e6:.0f} MB of weights")


def _memory() -> Check:
    free = _free_memory()
    if free is None:
        return Check("memory", True, "unknown on this system")
    advice = "" if free >= MEMORY else "close other programs, or lower --token-budget"
    return Check("memory", free >= MEMORY, f"{free / 1e9:.1f} GB free", advice)


def _free_memory() -> float | None:
    """Bytes that this process may still take: the machine's, or its container's if that is less."""
    try:
        rows = Path("/proc/meminfo").read_text().splitlines()
        free = {row.split(":")[0]: float(row.split()[1]) * 1024 for row in rows}["MemAvailable"]
    except (OSError, KeyError, ValueError):
        try:
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            return None
    try:
        group = Path("/sys/fs/cgroup")
        limit = float((group / "memory.max").read_text())
        used = float((group / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, limit - used)


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    advice = "" if free >= DISK else "make room, or write elsewhere with --output"
    return Check("disk", free >= DISK, f"{free / 1e9:.1f} GB free here", advice)


def _cores() -> Check:
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    advice = "" if count >= 2 else "training works, at about half the speed"
    return Check("cores", count >= 2, f"{count}", advice, needed=False)


def _gpu() -> Check:
    import torch

    if not torch.cuda.is_available():
        advice = "the small model needs none; Qwen3.5 does"
        return Check("gpu", False, "none that torch can use", advice, needed=False)
    card = torch.cuda.get_device_properties(0)
    real = torch.cuda.is_bf16_supported(including_emulation=False)
    kind = "bf16" if real else "fp16 (bf16 is only emulated)"
    return Check(
        "gpu", True, f"{card.name}, {card.total_memory / 1e9:.0f} GB, {kind}", needed=False
    )
