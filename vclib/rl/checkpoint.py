"""Checkpoints: whole or absent, few, and enough to go on as if nothing had happened.

A checkpoint is a folder `update-000050` with

- `adapters/developer`, `adapters/critic`: standard peft folders,
- `optimizers.pt`, `rng.pt`: optimizer states, and those of Python's, NumPy's and torch's RNGs,
- `state.json`: update, phase, page cursor, settings,
- `MANIFEST.json`: size and SHA-256 of each file, written last.

It is written under another name, flushed to the disk, and renamed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vclib.errors import VclibError
from vclib.files import replace_bytes, replace_text
from vclib.policy.model import Policy
from vclib.rl.profiles import TrainSettings

MANIFEST = "MANIFEST.json"
STATE = "state.json"
KEEP = 2
MAY_CHANGE = {
    "episodes",
    "num_phases",
    "env",
    "env_url",
    "device",
    "threads",
    "token_budget",
    "gradient_checkpointing",
    "run",
    "output",
    "checkpoint_dir",
    "checkpoint_every",
    "resume_from",
    "overwrite",
    "trackers",
}
"""Settings that a resumed run may change; the others decide what is learnt."""


def save(
    folder: Path,
    policy: Policy,
    optimizers: Mapping[str, torch.optim.Optimizer],
    state: Mapping[str, Any],
) -> Path:
    """Write `folder/update-N`, N = state["update"], and drop the old ones; returns its path.

    The two newest stay, and those with state["phase_end"]. A disk that is full, or any other
    failure to write, is a `VclibError`; the checkpoints that were there stay as they were.
    """
    target = folder / f"update-{state['update']:06d}"
    temporary = folder / f".{target.name}.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".update-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir()
        policy.save_adapters(temporary / "adapters")
        states = {agent: optimizer.state_dict() for agent, optimizer in optimizers.items()}
        replace_tensors(temporary / "optimizers.pt", states)
        replace_tensors(temporary / "rng.pt", rng_states())
        replace_text(temporary / STATE, json.dumps(state, indent=2) + "\n")
        replace_text(temporary / MANIFEST, json.dumps(_manifest(temporary), indent=2) + "\n")
        _flush(temporary)
        if target.exists():
            os.replace(target, folder / f".{target.name}.old")
        os.replace(temporary, target)
        _flush_entry(folder)
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)
        last = newest(folder)
        advice = f"go on with --resume-from {last}" if last else "start again"
        raise VclibError(
            f"The checkpoint {target} could not be written ({error}). "
            f"If that disk is full, make room on it; then {advice}."
        ) from error
    _drop_old(folder)
    return target


def drop_after(folder: Path, update: int) -> None:
    """Remove the checkpoints past `update`, which would pass for the newest of a run set back."""
    for path in _numbered(folder):
        if path.name > f"update-{update:06d}":
            shutil.rmtree(path)


def _numbered(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; a copy with a name of its own is its owner's."""
    return sorted(path for path in folder.glob("update-*") if path.name[7:].isdigit())


def newest(folder: Path) -> Path | None:
    """The newest whole checkpoint in a folder of checkpoints, or None."""
    candidates = reversed(_numbered(folder))
    return next((path for path in candidates if damage(path) is None), None)


def find(path: Path) -> Path:
    """The checkpoint that `--resume-from path` means: itself, or the newest whole one of a run."""
    if (path / STATE).exists():
        fault = damage(path)
        if fault:
            raise VclibError(
                f"The checkpoint {path} is damaged: {fault}. Resume from another one, or from "
                "the run's folder, which takes the newest whole one."
            )
        return path
    found = newest(path / "checkpoints") or newest(path)
    if found is None:
        raise VclibError(
            f"No whole checkpoint in {path}; expected a checkpoint (…/update-000050) or the "
            "folder of a run. One that ended before its first checkpoint can only be begun again."
        )
    return found


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None if each is as the manifest says."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        files = [(name, int(size), digest) for name, (size, digest) in manifest.items()]
        manifest[STATE]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} is missing or unreadable"
    try:
        state = read_state(path)
        int(state["update"]), dict(state["settings"])["model"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{STATE} is missing or unreadable"
    for name, size, digest in files:
        file = path / name
        if not file.is_file() or file.stat().st_size != size or _sha256(file) != digest:
            return f"{name} is missing or not as it was written"
    return None


def read_state(path: Path) -> dict[str, Any]:
    """`state.json` of a checkpoint."""
    return json.loads((path / STATE).read_text())


def look_up(settings: TrainSettings) -> tuple[dict[str, Any] | None, Path | None]:
    """State and path of the checkpoint that the settings resume from, if they do."""
    if settings.resume_from is None:
        return None, None
    path = find(Path(settings.resume_from))
    state = read_state(path)
    check_settings(state, settings)
    return state, path


def restore(
    path: Path, policy: Policy, optimizers: Mapping[str, torch.optim.Optimizer]
) -> dict[str, Any]:
    """Load adapters, optimizers and RNGs from a checkpoint; returns its state."""
    policy.load_adapters(path / "adapters")
    states = torch.load(path / "optimizers.pt", map_location="cpu", weights_only=True)
    for agent, optimizer in optimizers.items():
        optimizer.load_state_dict(states[agent])
    set_rng_states(torch.load(path / "rng.pt", map_location="cpu", weights_only=True))
    return read_state(path)


def check_settings(state: Mapping[str, Any], settings: TrainSettings) -> None:
    """Raise `VclibError` naming the settings that differ from the checkpoint's and matter."""
    now = json.loads(json.dumps(settings.as_dict()))
    then = state["settings"]
    for config in (now, then):
        config["model"] = Path(config["model"]).name
    changed = [
        f"{name} was {then[name]!r}, is {now[name]!r}"
        for name in now
        if name in then and name not in MAY_CHANGE and then[name] != now[name]
    ]
    if changed:
        raise VclibError(
            f"The checkpoint was made with other settings: {'; '.join(changed)}. "
            "Resume with the same, or start a new run."
        )
    if state["update"] > settings.total_updates:
        raise VclibError(
            f"The checkpoint has {state['update']} updates, more than the "
            f"{settings.total_updates} asked for. Ask for more, or start a new run."
        )


def replace_tensors(path: Path, value: Any) -> None:
    """Write tensors and plain values to a file, whole or not at all."""
    # Through memory: torch.save hides a full disk behind an error of its own.
    buffer = io.BytesIO()
    torch.save(value, buffer)
    replace_bytes(path, buffer.getvalue())


def rng_states() -> dict[str, Any]:
    """States of Python's, NumPy's and torch's generators, as tensors and plain values."""
    name, keys, *rest = np.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def set_rng_states(states: Mapping[str, Any]) -> None:
    """Put back what `rng_states` took; GPU states only where the number of GPUs is the same."""
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


def _manifest(folder: Path) -> dict[str, tuple[int, str]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder).as_posix()): (path.stat().st_size, _sha256(path))
        for path in files
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        _flush_entry(path)
    _flush_entry(folder)


def _flush_entry(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder to flush it.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _drop_old(folder: Path) -> None:
    for replaced in folder.glob(".update-*.old"):
        shutil.rmtree(replaced, ignore_errors=True)
    for path in _numbered(folder)[:-KEEP]:
        try:
            if read_state(path)["phase_end"]:
                continue
        except (OSError, ValueError, KeyError, TypeError):
            pass  # An unreadable checkpoint is of no use: drop it too.
        shutil.rmtree(path, ignore_errors=True)
