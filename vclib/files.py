"""Files that are written whole or not at all."""

import os
from pathlib import Path
from uuid import uuid4


def replace_text(path: Path, text: str) -> None:
    """Write a text file, in UTF-8, whole or not at all."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file under a name of its own, flush it to the disk, and rename it.

    Whoever reads it meanwhile finds a whole one, and so it stays if this process is killed or
    another one writes the same file.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # half a file would keep the room that others need
        raise
