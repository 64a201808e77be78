"""The fonts are found wherever the project lies."""

from __future__ import annotations

import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vclib.env import fonts


def test_folders_with_any_sign_in_their_names_stand_in_the_file_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, cache = tmp_path / 'R&D <"new">' / "fonts", tmp_path / "<a> & 'b'"
    cache.mkdir()
    monkeypatch.setattr(fonts, "FONTS", project)
    tree = ElementTree.parse(fonts.fonts_conf(cache))
    assert tree.findtext("dir") == str(project)
    assert tree.findtext("cachedir") == str(cache / "cache")


def test_a_browser_that_starts_while_another_does_reads_the_whole_file(tmp_path: Path) -> None:
    path = fonts.fonts_conf(tmp_path)
    whole, ended = path.read_text(), threading.Event()

    def start_others() -> None:
        while not ended.is_set():
            fonts.fonts_conf(tmp_path)

    others = threading.Thread(target=start_others)
    others.start()
    try:
        assert {path.read_text() for _ in range(500)} == {whole}
    finally:
        ended.set()
        others.join()
    assert list(tmp_path.iterdir()) == [path]
