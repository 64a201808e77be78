"""Execute notebooks from top to bottom and store their outputs, the same bytes but for pictures.

Run by `make notebooks`. A notebook whose cell raises is left as it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

# What would differ between machines, or is noise in a diff.
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python"}
LIMIT_BYTES = 500_000


def main() -> int:
    """Execute each notebook that is named; 1 if a cell raised or a file came out too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    failed = False
    for path in parser.parse_args().notebooks:
        started = time.perf_counter()
        try:
            size = execute(path)
        except CellExecutionError as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{path}: {time.perf_counter() - started:.0f} s, {size / 1000:.0f} kB")
        if size > LIMIT_BYTES:
            print(f"{path}: larger than {LIMIT_BYTES / 1000:.0f} kB", file=sys.stderr)
            failed = True
    return int(failed)


def execute(path: Path) -> int:
    """Execute one notebook in its own folder, store it, and return its size in bytes."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=1200,
        kernel_name=KERNEL["name"],
        resources={"metadata": {"path": str(path.parent)}},
        # GitHub calls a notebook with half a widget state invalid; the pictures are in the outputs.
        store_widget_state=False,
        record_timing=False,
    )
    client.execute()
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE})
    text = nbformat.writes(notebook) + "\n"
    path.write_text(text)
    return len(text.encode())


if __name__ == "__main__":
    sys.exit(main())
