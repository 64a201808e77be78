"""The folder of a run: a free name, proof that it can be written to, one process at a time."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from vclib.errors import VclibError
from vclib.rl.profiles import TrainSettings
from vclib.rl.runlog import CONFIG, TRAIN_LOG

LOCK = ".lock"


def next_free(folder: Path, name: str) -> Path:
    """folder/name-1, or the first number that is not taken; made at once, so that it is now.

    It goes at exit if it stayed empty.
    """
    if os.environ.get("RANK", "0") != "0":
        return folder / name  # Of several processes the first alone writes.
    number = 1
    while True:
        path = folder / f"{name}-{number}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        atexit.register(_remove_empty, path)
        return path


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not {path.name for path in folder.iterdir()} - {LOCK}:
        shutil.rmtree(folder, ignore_errors=True)


def make_ready(folder: Path) -> None:
    """Make a folder and write to it: what cannot be done is known before the work."""
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()


def claim(settings: TrainSettings, resumed: Path | None) -> list[IO[str]]:
    """Make a run's folders, for this process alone until the files returned are closed.

    Raises `VclibError` where another process is at work in them, where nothing can be written,
    and, unless it is to be overwritten, where another run than that of `resumed` lies in them.
    """
    run = settings.run_folder
    # Two spellings of one folder are one: the second lock would be refused for the first.
    folders = {folder.resolve(): folder for folder in (run, Path(settings.checkpoint_dir or run))}
    with ExitStack() as undo:
        locks = [undo.enter_context(_lock(folder)) for folder in folders.values()]
        _refuse_another(settings, resumed)
        undo.pop_all()
    return locks


def _refuse_another(settings: TrainSettings, resumed: Path | None) -> None:
    run, kept = settings.run_folder, settings.checkpoint_folder
    own = resumed.resolve().parent if resumed else None
    in_run = own in (run.resolve(), (run / "checkpoints").resolve(), _checkpoints_of(run))
    others = {
        run: (run / TRAIN_LOG).exists() and not (own and in_run),
        kept: any(kept.glob("update-*")) and own != kept.resolve(),
    }
    for folder, used in others.items():
        if used and not settings.overwrite:
            raise VclibError(
                f"{folder} already holds {'another' if own else 'a'} run. Give this one another "
                "name (--run-name) or another checkpoint folder, go on with that one "
                f"(--resume-from {folder}), or overwrite it."
            )


def _checkpoints_of(run: Path) -> Path | None:
    try:
        config = json.loads((run / CONFIG).read_text(encoding="utf-8"))
        return Path(config["settings"]["checkpoint_dir"]).resolve()
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lock(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise VclibError(
            f"Nothing can be written to {folder} ({error.strerror}); give another path."
        ) from error
    if os.name == "nt":
        return file
    import fcntl

    try:
        # Not `lockf`: that one lets a second run in where the first is of the same process.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        owner = file.read()
        file.close()
        if owner == str(os.getpid()):
            raise VclibError(
                f"This process already trains in {folder}: end that run first (the dashboard's "
                "button, or its trainer's close()), or give this one another name (run=...)."
            ) from error
        raise VclibError(
            f"Another process is at work in {folder}: wait for it, or give this run another "
            "name (--run-name)."
        ) from error
    except OSError:
        pass  # Some network file systems have no locks.
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
