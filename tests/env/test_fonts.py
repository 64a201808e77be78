"""The fonts are found wherever the project lies."""

from __future__ import annotations

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
