"""Page sets: HTML sources, each under an id that names the same page for ever."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

from vclib.env import synth
from vclib.env.errors import BadArguments
from vclib.env.synth import DIFFICULTIES, SPLITS
from vclib.paths import DATA

MIXED = "mixed"
KNOWN = ("blocks", "web", "websight", "folder:PATH")
WEB_VIEWPORT = (640, 480)
MAX_INDEX = 10**18


@dataclass(frozen=True)
class Page:
    """The source of one page; `id` is `set/split/difficulty/name`."""

    id: str
    html: str
    split: str
    difficulty: str


class PageSet:
    """Pages by id, and by split, difficulty and index."""

    name: str
    viewport: tuple[int, int]
    """Width and height in CSS pixels."""

    def page(self, page_id: str) -> Page:
        """The page with this id. Raises BadArguments if there is none."""
        raise NotImplementedError

    def at(self, split: str, difficulty: str, index: int) -> Page:
        """The page at `index`, which wraps where the set is finite.

        `mixed` takes easy, medium, hard in turn. Raises BadArguments, naming what is allowed.
        """
        one_of("split", split, SPLITS)
        one_of("difficulty", difficulty, (*DIFFICULTIES, MIXED))
        if not isinstance(index, Integral) or not 0 <= index < MAX_INDEX:
            raise BadArguments(
                f"index {index!r:.80} is not a whole number from 0 to {MAX_INDEX - 1}"
            )
        if difficulty != MIXED:
            return self._at(split, difficulty, int(index))
        difficulties = self.difficulties(split)
        turn, which = divmod(int(index), len(difficulties))
        return self._at(split, difficulties[which], turn)

    def difficulties(self, split: str) -> tuple[str, ...]:
        """The difficulties that have pages in this split."""
        return DIFFICULTIES

    def _at(self, split: str, difficulty: str, index: int) -> Page:
        raise NotImplementedError


class BlockPages(PageSet):
    """Pages drawn from a seed, without end; see `synth`."""

    name = "blocks"
    viewport = synth.VIEWPORT

    def page(self, page_id: str) -> Page:
        split, difficulty, index = _numbered(page_id, self.name, MAX_INDEX)
        return self._at(split, difficulty, index)

    def _at(self, split: str, difficulty: str, index: int) -> Page:
        html = synth.block_page(split, difficulty, index)
        return Page(f"{self.name}/{split}/{difficulty}/{index}", html, split, difficulty)


class FilePages(PageSet):
    """HTML files in a fixed order; ids end in the file's name."""

    def __init__(self, name: str, files: Mapping[tuple[str, str], Mapping[str, Path]]):
        """`files` holds paths by (split, difficulty) and then by name."""
        self.name = name
        self.viewport = WEB_VIEWPORT
        prefix = name.partition(":")[0]
        self._paths: dict[str, tuple[str, str, Path]] = {}
        self._ids: dict[tuple[str, str], list[str]] = {}
        for (split, difficulty), named in files.items():
            ids = {f"{prefix}/{split}/{difficulty}/{file}": path for file, path in named.items()}
            self._ids[split, difficulty] = list(ids)
            self._paths |= {page_id: (split, difficulty, path) for page_id, path in ids.items()}

    def page(self, page_id: str) -> Page:
        if not isinstance(page_id, str) or page_id not in self._paths:
            known = next(iter(self._paths))
            raise BadArguments(f"no page {page_id!r:.80} in {self.name}; ids look like {known!r}")
        split, difficulty, path = self._paths[page_id]
        try:
            html = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise BadArguments(f"page {page_id!r} cannot be read: {error}") from error
        return Page(page_id, html, split, difficulty)

    def difficulties(self, split: str) -> tuple[str, ...]:
        found = tuple(d for d in DIFFICULTIES if self._ids.get((split, d)))
        if not found:
            raise BadArguments(
                f"{self.name} has no {split} pages; a folder needs two HTML files or more to hold "
                "one out: add files"
            )
        return found

    def _at(self, split: str, difficulty: str, index: int) -> Page:
        ids = self._ids.get((split, difficulty))
        if not ids:
            known = ", ".join((*self.difficulties(split), MIXED))
            raise BadArguments(f"{self.name} has no {difficulty} {split} pages; it has {known}")
        return self.page(ids[index % len(ids)])


class WebSightPages(PageSet):
    """Pages of a long stream, found in order as far as somebody asks.

    WebSight: Laurençon et al., 2024, arXiv:2403.09029.
    """

    name = "websight"
    viewport = WEB_VIEWPORT
    size = 10_000
    """Pages per split and difficulty; a bound on how far one index may read on."""

    def __init__(self, rows: Iterable[str]):
        """`rows` is HTML, always in the same order."""
        self._rows = enumerate(rows)
        self._found: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._lock = threading.Lock()

    def page(self, page_id: str) -> Page:
        split, difficulty, index = _numbered(page_id, self.name, self.size)
        return self._at(split, difficulty, index)

    def _at(self, split: str, difficulty: str, index: int) -> Page:
        index %= self.size
        found = self._found[split, difficulty]
        with self._lock:
            while len(found) <= index:
                self._read_on()
        return Page(f"{self.name}/{split}/{difficulty}/{index}", found[index], split, difficulty)

    def _read_on(self) -> None:
        try:
            row, html = next(self._rows)
        # The hub's client raises many kinds of error; to the reader they are one.
        except Exception as error:
            raise BadArguments(
                f"the stream of websight pages broke off ({type(error).__name__}: {error}); check "
                "the connection to the hub, or use the pages named 'web'"
            ) from error
        split = "heldout" if row % 5 == 4 else "train"
        difficulty = DIFFICULTIES[(len(html) > 1000) + (len(html) > 1500)]
        self._found[split, difficulty].append(html)


def load_pages(name: str) -> PageSet:
    """The page set `blocks`, `web`, `websight` or `folder:PATH`.

    Raises BadArguments if the name is none of these or the set cannot be had.
    """
    if name == "blocks":
        return BlockPages()
    if name == "web":
        return _web_pages(DATA / "pages" / "web")
    if name == "websight":
        return WebSightPages(_websight_rows())
    if name.startswith("folder:"):
        return _folder_pages(name)
    raise BadArguments(f"no page set {name!r:.80}; expected one of {', '.join(KNOWN)}")


def _web_pages(root: Path) -> FilePages:
    files = {
        (split, difficulty): {
            path.stem: path for path in sorted((root / split / difficulty).glob("*.html"))
        }
        for split in SPLITS
        for difficulty in DIFFICULTIES
    }
    if not all(files.values()):
        raise BadArguments(f"the web pages are missing from {root}; restore data/pages/web")
    return FilePages("web", files)


def _folder_pages(name: str) -> FilePages:
    """The HTML files below a folder: thirds by size are the difficulties, a fifth is held out.

    Where no third has two files to part, one file of the whole folder is held out, if it has two.
    """
    folder = Path(os.path.expanduser(name.removeprefix("folder:")))
    if name == "folder:" or not folder.is_dir():
        raise BadArguments(f"no folder {str(folder)!r}; expected folder:PATH with HTML files in it")
    paths = [path for path in folder.rglob("*") if path.suffix.lower() in (".html", ".htm")]
    paths = sorted(path for path in paths if path.is_file())
    if not paths:
        raise BadArguments(f"no HTML files in {str(folder)!r}; put .html or .htm files there")
    for path in paths:
        # Ids go through JSON and logs, which take nothing but Unicode.
        if path.as_posix().encode(errors="replace") != os.fsencode(path.as_posix()):
            raise BadArguments(f"the file name {str(path)!r} is not UTF-8; rename the file")
    by_size = sorted(paths, key=lambda path: (path.stat().st_size, path))
    thirds: dict[str, list[Path]] = {difficulty: [] for difficulty in DIFFICULTIES}
    for n, path in enumerate(by_size):
        thirds[DIFFICULTIES[n * 3 // len(by_size)]].append(path)
    held = {path for members in thirds.values() for path in _held_out(members, folder)}
    held = held or _held_out(paths, folder)
    files: dict[tuple[str, str], dict[str, Path]] = defaultdict(dict)
    for difficulty, members in thirds.items():
        for path in sorted(members):
            split = "heldout" if path in held else "train"
            files[split, difficulty][path.relative_to(folder).as_posix()] = path
    return FilePages(name, files)


def _held_out(paths: list[Path], folder: Path) -> set[Path]:
    """A fifth of the files, chosen by their names, and at least one of two or more."""

    def digest(path: Path) -> bytes:
        return hashlib.sha256(path.relative_to(folder).as_posix().encode()).digest()

    fifth = max(1, round(len(paths) / 5)) if len(paths) > 1 else 0
    return set(sorted(paths, key=digest)[:fifth])


def _websight_rows() -> Iterable[str]:
    """HTML of WebSight v0.1; v0.2 is styled by a script from the network, which never runs."""
    if importlib.util.find_spec("datasets") is None:
        raise BadArguments(
            "the websight pages need the package datasets: run `pip install datasets`, or use the "
            "pages named 'web'"
        )
    try:
        load = importlib.import_module("datasets").load_dataset
        rows = load("HuggingFaceM4/WebSight", "v0.1", split="train", streaming=True)
    except Exception as error:
        raise BadArguments(
            f"the websight pages cannot be had from the hub ({type(error).__name__}: {error}); "
            "check the connection, or use the pages named 'web'"
        ) from error
    return (row["text"] for row in rows.select_columns(["text"]))


def _numbered(page_id: str, name: str, size: int) -> tuple[str, str, int]:
    """Split, difficulty and index of an id like `blocks/train/easy/17`."""
    parts = page_id.split("/") if isinstance(page_id, str) else []
    if len(parts) == 4 and parts[0] == name and parts[1] in SPLITS and parts[2] in DIFFICULTIES:
        digits = parts[3]
        # Each page has one id: no leading zeros, no signs, no digits of other scripts.
        if digits.isascii() and digits.isdecimal() and len(digits) < 20:
            index = int(digits)
            if str(index) == digits and index < size:
                return parts[1], parts[2], index
    raise BadArguments(
        f"no page {page_id!r:.80} in {name}; ids look like {name}/<{'|'.join(SPLITS)}>/"
        f"<{'|'.join(DIFFICULTIES)}>/<0 to {size - 1}>"
    )


def one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise BadArguments, naming what is allowed, if `value` is not."""
    if value not in allowed:
        raise BadArguments(f"no {what} {value!r:.80}; expected one of {', '.join(allowed)}")
