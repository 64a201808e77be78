"""The environment over HTTP: its own plain routes, and those of OpenEnv where it is installed."""

from __future__ import annotations

import importlib.util
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, StrictInt

import vclib
from vclib.env.environment import WebPageEnv
from vclib.env.pages import MIXED
from vclib.env.refusals import BodyLimit, Refusal, add_refusals
from vclib.errors import VclibError

MAX_BODY_BYTES = 16_000_000
MAX_ACTIONS = 1024
START_SECONDS = 20


class Body(BaseModel):
    """A request that says nothing but what it may."""

    model_config = ConfigDict(extra="forbid")


class ResetBody(Body):
    """Arguments of `reset`; each may stand in the address instead."""

    difficulty: str | None = None
    page_id: str | None = None
    seed: StrictInt | None = None
    max_steps: StrictInt | None = None


class StepBody(Body):
    """One attempt in one session."""

    html: str
    session_id: str


class StepManyBody(Body):
    """Attempts in many sessions, rendered side by side."""

    actions: list[StepBody] = Field(max_length=MAX_ACTIONS)


class RenderBody(Body):
    """HTML to look at."""

    html: str


def create_app(
    env: WebPageEnv, *, openenv: bool = True, max_body_bytes: int = MAX_BODY_BYTES
) -> FastAPI:
    """An ASGI application that serves `env`; the caller closes `env`.

    Errors are JSON, `{"error": kind, "detail": sentence}`, with the status of their kind. With
    `openenv`, and where that package is installed, it is an OpenEnv server too; the package takes
    seconds to import.
    """
    refusals: dict[int | str, dict[str, Any]] = {
        "4XX": {"model": Refusal, "description": "Refused; nothing was done."}
    }
    app = FastAPI(title="VisionCoder environment", version=vclib.__version__, responses=refusals)
    app.add_middleware(BodyLimit, limit=max_body_bytes)
    add_refusals(app)

    @app.get("/", include_in_schema=False)
    def root() -> RedirectResponse:
        return RedirectResponse("/docs")

    # Plain functions run in a pool of threads, so that a render blocks nobody else.
    @app.post("/reset")
    def reset(
        body: ResetBody | None = None,
        difficulty: str | None = None,
        page_id: str | None = None,
        seed: int | None = None,
        max_steps: int | None = None,
    ) -> JSONResponse:
        asked = body or ResetBody()
        seen = env.reset(
            asked.difficulty or difficulty or MIXED,
            page_id if asked.page_id is None else asked.page_id,
            seed if asked.seed is None else asked.seed,
            max_steps if asked.max_steps is None else asked.max_steps,
        )
        return JSONResponse(seen.to_json())

    @app.post("/step")
    def step(body: StepBody) -> JSONResponse:
        return JSONResponse(env.step(body.html, body.session_id).to_json())

    @app.post("/step_many")
    def step_many(body: StepManyBody) -> JSONResponse:
        seen = env.step_many([(action.html, action.session_id) for action in body.actions])
        return JSONResponse({"observations": [observation.to_json() for observation in seen]})

    @app.post("/render")
    def render(body: RenderBody) -> JSONResponse:
        return JSONResponse(env.render(body.html).to_json())

    @app.delete("/sessions/{session_id:path}")
    def close_session(session_id: str) -> dict[str, bool]:
        env.close_session(session_id)
        return {"closed": True}

    @app.get("/state")
    def state(session_id: str | None = None) -> dict[str, Any]:
        found = env.state(session_id) if session_id else {"session_id": None, "step": 0}
        return {"episode_id": found["session_id"], "step_count": found["step"], **found}

    @app.get("/health")
    def health() -> dict[str, Any]:
        return {
            "status": "healthy",
            "version": vclib.__version__,
            "pages": env.pages.name,
            "split": env.split,
            "viewport": list(env.pages.viewport),
            "max_steps": env.max_steps,
            "sessions": len(env.sessions),
            "max_sessions": env.sessions.limit,
            "sessions_begun": env.sessions.begun,
            "browser": env.renderer.browser,
            "clip": env.clip is not None,
        }

    if openenv and importlib.util.find_spec("openenv"):
        # Both are optional to those who import them, and take four fifths of the time.
        with _hidden("gradio", "rfc3987_syntax"):
            from vclib.env.openenv_server import add_openenv_routes

        add_openenv_routes(app, env)
    return app


@contextmanager
def _hidden(*packages: str) -> Iterator[None]:
    """Let packages that are not imported yet count as not installed."""
    modules: dict[str, Any] = sys.modules
    hidden = [package for package in packages if package not in modules]
    modules |= dict.fromkeys(hidden)
    try:
        yield
    finally:
        for package in hidden:
            del modules[package]


def serve(
    host: str = "127.0.0.1",
    port: int = 8000,
    pages: str = "blocks",
    split: str = "train",
    max_steps: int = 5,
    max_sessions: int = 4096,
    *,
    openenv: bool = True,
) -> None:
    """Serve an environment until the process is told to stop (SIGINT or SIGTERM).

    Call it from the main thread. Raises VclibError if the address is taken.
    """
    # uvicorn ends on either signal and then repeats it; as an exception it lets the browser end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        _bind(host, port) as listener,
        WebPageEnv(pages, split=split, max_steps=max_steps, max_sessions=max_sessions) as env,
    ):
        server = _uvicorn(create_app(env, openenv=openenv))
        where = f"{env.pages.name} pages ({split}) at {_url(listener)}"
        print(f"{where} with {env.renderer.browser}; Ctrl-C ends it", flush=True)
        server.run(sockets=[listener])


@contextmanager
def background_server(
    env: WebPageEnv, host: str = "127.0.0.1", port: int = 0, *, openenv: bool = False
) -> Iterator[str]:
    """Serve `env` from a thread of this process; yields the address. Port 0 takes a free one."""
    with _bind(host, port) as listener:
        server = _uvicorn(create_app(env, openenv=openenv))
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="vclib-server", daemon=True
        )
        thread.start()
        try:
            deadline = time.monotonic() + START_SECONDS
            while not server.started:
                if not thread.is_alive() or time.monotonic() > deadline:
                    raise VclibError(f"the server did not start within {START_SECONDS} s")
                time.sleep(0.01)
            yield _url(listener)
        finally:
            server.should_exit = True
            thread.join()


def _uvicorn(app: FastAPI) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            ws_max_size=MAX_BODY_BYTES,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
        )
    )


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise VclibError(
            f"cannot listen at {host}:{port} ({error}); give another port, such as --port 8001"
        ) from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
