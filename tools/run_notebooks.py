"""Execute notebooks from top to bottom and store their outputs, the same bytes but for pictures.

Run by `make notebooks`. A notebook whose cell raises is left as it was. Seconds and memory of each
go to notebooks/times.json, and from there to its head and to the map in notebooks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook_head import main as write_heads

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
            with watched() as peak:
                size = execute(path)
        except CellExecutionError as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed = True
            continue
        seconds = round(time.perf_counter() - started)
        print(f"{path}: {seconds} s, {peak[0]:.1f} GB of memory, {size / 1000:.0f} kB")
        note(path, {"seconds": seconds, "memory_gb": round(peak[0], 1)})
        write_heads([str(path)])
        if size > LIMIT_BYTES:
            print(f"{path}: larger than {LIMIT_BYTES / 1000:.0f} kB", file=sys.stderr)
            failed = True
    return int(failed)


@contextmanager
def watched() -> Iterator[list[float]]:
    """The most memory that the kernel and its browser have to themselves at one time, in GB."""
    peak, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(2):
            taken = 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    taken += process.memory_full_info().uss
            peak[0] = max(peak[0], taken / 1e9)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def note(path: Path, figures: dict[str, float]) -> None:
    """Put the figures of one notebook in the file of all of them."""
    file = path.parent / "times.json"
    times = json.loads(file.read_text()) if file.is_file() else {}
    times[path.stem] = figures
    file.write_text(json.dumps(dict(sorted(times.items())), indent=1) + "\n")


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What was printed in one go as one output: it comes in pieces, other ones each time.

    The client's own `coalesce_streams` would move it over the pictures in between.
    """
    kept: list[nbformat.NotebookNode] = []
    for output in outputs:
        # Printed outputs alone have a name: stdout or stderr.
        if kept and "name" in output and output.name == kept[-1].get("name"):
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


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
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE})
    text = nbformat.writes(notebook) + "\n"
    path.write_text(text)
    return len(text.encode())


if __name__ == "__main__":
    sys.exit(main())
