"""One browser of each viewport for all tests of the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vclib.env.browser import Renderer
from vclib.env.pages import WEB_VIEWPORT


@pytest.fixture(scope="session")
def renderer() -> Iterator[Renderer]:
    with Renderer(timeout=15) as shared:
        yield shared


@pytest.fixture(scope="session")
def web_renderer() -> Iterator[Renderer]:
    with Renderer(*WEB_VIEWPORT, timeout=15) as shared:
        yield shared
