"""Compare the files in data/ with data/SHA256SUMS, or write that list (`make hashes`)."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
LIST = DATA / "SHA256SUMS"


def tracked_sums() -> str:
    """One line for each file of data/ that git knows or would take: its hash and its path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."]
    names = subprocess.run(command, cwd=DATA, check=True, capture_output=True).stdout
    files = sorted({n.decode() for n in names.split(b"\0") if n} - {LIST.name})
    return "".join(
        f"{hashlib.sha256((DATA / name).read_bytes()).hexdigest()}  {name}\n"
        for name in files
        if (DATA / name).is_file()
    )


def main() -> int:
    """Write the list, or print the lines that differ; 1 if any do."""
    now = tracked_sums()
    if "--write" in sys.argv[1:]:
        LIST.write_text(now)
        return 0
    before = set(LIST.read_text().splitlines())
    changed = sorted(before ^ set(now.splitlines()))
    print("\n".join(changed))
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
