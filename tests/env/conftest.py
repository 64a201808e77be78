"""One browser of each viewport for all tests of the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vclib.env.browser import Renderer
from vclib.env.environment import WebPageEnv
from vclib.env.pages import WEB_VIEWPORT


@pytest.fixture(scope="session")
def renderer() -> Iterator[Renderer]:
    with Renderer(timeout=15) as shared:
        yield shared


@pytest.fixture(scope="session")
def web_renderer() -> Iterator[Renderer]:
    with Renderer(*WEB_VIEWPORT, timeout=15) as shared:
        yield shared


@pytest.fixture(scope="module")
def env(renderer: Renderer) -> Iterator[WebPageEnv]:
    """One of a module's own, of `blocks` pages, for the servers that are tested."""
    with WebPageEnv("blocks", renderer=renderer) as shared:
        yield shared
