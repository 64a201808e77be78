"""The environment as OpenEnv knows one: a websocket is a session, and an agent may use MCP."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastmcp import FastMCP
from openenv.core.env_server.http_server import HTTPEnvServer
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_types import JsonRpcErrorCode, JsonRpcResponse
from openenv.core.env_server.types import (
    Action,
    ConcurrencyConfig,
    EnvironmentMetadata,
    Observation,
    State,
)
from pydantic_core import PydanticSerializationError

import vclib
from vclib.env import observation
from vclib.env.environment import WebPageEnv
from vclib.env.errors import BadArguments

NAME = "visioncoder"
DESCRIPTION = (
    "Reproduce a web page from its screenshot: write HTML, see it rendered in a real browser, and "
    "get a reward from 0 to 1 in eight parts, a few times over."
)


class HtmlAction(Action):
    """One attempt: a whole HTML document."""

    html: str


class PageObservation(Observation):
    """The page to reproduce and what came of the last HTML; pictures are PNGs in base64."""

    session_id: str
    page_id: str
    difficulty: str
    prompt: str
    screenshot_b64: str
    step: int
    max_steps: int
    html: str | None = None
    render_low_b64: str | None = None
    render_full_b64: str | None = None


class PageState(State):
    """Where the episode stands."""

    session_id: str | None = None
    page_id: str | None = None
    difficulty: str | None = None
    max_steps: int | None = None
    reward: float | None = None
    done: bool = False


class OpenEnvPage(Environment):
    """One session at a time of a shared WebPageEnv; made anew for each connection."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: WebPageEnv):
        super().__init__()
        self.env = env
        self._state = PageState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        difficulty: str = "mixed",
        page_id: str | None = None,
        max_steps: int | None = None,
        **unknown: Any,
    ) -> PageObservation:
        """Begin an episode, giving up the one before; see `WebPageEnv.reset`."""
        if unknown:
            raise BadArguments(
                f"reset takes no {', '.join(unknown)}; it takes difficulty, page_id, seed, "
                "max_steps, episode_id"
            )
        self.close()
        self._state = PageState(episode_id=episode_id)
        return self._observed(self.env.reset(difficulty, page_id, seed, max_steps))

    def step(
        self, action: HtmlAction, timeout_s: float | None = None, **unknown: Any
    ) -> PageObservation:
        """Render and score one attempt; see `WebPageEnv.step`."""
        if self._state.session_id is None:
            raise BadArguments("no episode has begun; reset first")
        return self._observed(self.env.step(action.html, self._state.session_id))

    @cached_property
    def mcp_server(self) -> FastMCP:
        """The tools that OpenEnv's `/mcp` offers."""
        return _tools(self)

    @property
    def state(self) -> PageState:
        """Where the episode stands; empty before the first reset."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, description and version."""
        return EnvironmentMetadata(
            name=NAME, description=DESCRIPTION, version=vclib.__version__, author="VisionCoder"
        )

    def close(self) -> None:
        """Give the session up; the environment behind it goes on."""
        if self._state.session_id is not None:
            self.env.close_session(self._state.session_id)
        self._state = PageState()

    def _observed(self, seen: observation.Observation) -> PageObservation:
        self._state = PageState(
            episode_id=self._state.episode_id or seen.session_id,
            step_count=seen.step,
            session_id=seen.session_id,
            page_id=seen.page_id,
            difficulty=seen.difficulty,
            max_steps=seen.max_steps,
            reward=seen.reward,
            done=seen.done,
        )
        return PageObservation(**seen.to_json())


def _tools(page: OpenEnvPage) -> FastMCP:
    """The episode as MCP tools; they need a session, by websocket or `openenv/session/create`."""
    server: FastMCP = FastMCP(NAME)

    async def new_page(difficulty: str = "mixed", page_id: str | None = None) -> dict[str, Any]:
        """Begin an episode: the screenshot of a page to reproduce (a PNG in base64)."""
        seen = await asyncio.to_thread(page.reset, difficulty=difficulty, page_id=page_id)
        return seen.model_dump()

    async def submit_html(html: str) -> dict[str, Any]:
        """Render a whole HTML document, and score it against the page."""
        return (await asyncio.to_thread(page.step, HtmlAction(html=html))).model_dump()

    async def render_html(html: str) -> dict[str, Any]:
        """Render a whole HTML document without scoring it."""
        return (await asyncio.to_thread(page.env.render, html)).to_json()

    for tool in (new_page, submit_html, render_html):
        server.tool(tool)
    return server


def add_openenv_routes(app: FastAPI, env: WebPageEnv) -> None:
    """Add `/ws`, `/schema`, `/metadata`, `/mcp` to an application that has reset, step and state.

    OpenEnv's own reset and step make a new environment for each request, which forgets the
    session; in its production mode it leaves those routes to others. Its routes for lists of
    tasks would only answer 501: a page set need not end.
    """
    HTTPEnvServer(
        lambda: OpenEnvPage(env),
        HtmlAction,
        PageObservation,
        concurrency_config=ConcurrencyConfig(
            max_concurrent_envs=env.sessions.limit, session_timeout=env.sessions.idle_seconds
        ),
        env_name=NAME,
        state_cls=PageState,
    ).register_routes(app, mode="production")
    app.router.routes[:] = [
        route for route in app.router.routes if "Task API" not in getattr(route, "tags", ())
    ]
    for kind in (TypeError, PydanticSerializationError):
        app.add_exception_handler(kind, _answer_bad_params)


def _answer_bad_params(request: Request, error: Exception) -> JSONResponse:
    """OpenEnv takes a session id or a tool's name for a string, whatever JSON it is."""
    if request.url.path != "/mcp":
        raise error
    answer = JsonRpcResponse.error_response(
        JsonRpcErrorCode.INVALID_PARAMS, "session_id and name must be strings of whole characters"
    )
    return JSONResponse(answer.model_dump())
