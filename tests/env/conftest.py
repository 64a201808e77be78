"""One browser for all tests of the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vclib.env.browser import Renderer


@pytest.fixture(scope="session")
def renderer() -> Iterator[Renderer]:
    with Renderer(timeout=15) as shared:
        yield shared
