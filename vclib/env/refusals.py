"""What the server answers to a request that it refuses: JSON of one form, whatever the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vclib.env.errors import BadArguments, EnvError, TooLarge
from vclib.errors import VclibError

BODY_SECONDS = 60
"""From the start of a request's body to its last byte."""


class Refusal(BaseModel):
    """What every refusal says: the kind of error, and a sentence on what to do."""

    error: str
    detail: str


def add_refusals(app: FastAPI) -> None:
    """Let every error of `app` be answered as a `Refusal`, with the status of its kind."""
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(VclibError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http)


class BodyLimit:
    """ASGI middleware that answers 413 to a body over `limit` bytes, whatever its header says."""

    def __init__(self, app: ASGIApp, limit: int):
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, size, more = bytearray(), 0, True
        try:
            # A body over the limit is read to its end, up to a bound, and thrown away: a client
            # that is still sending would not see the answer.
            async with asyncio.timeout(BODY_SECONDS):
                while more and size <= 4 * self.limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    size += len(chunk)
                    if size <= self.limit:
                        body += chunk
        # Cancelled when the server ends: its log has nothing to learn from a client that waits.
        except (TimeoutError, asyncio.CancelledError):
            late = _refuse(408, f"no whole body within {BODY_SECONDS} s, or the server is ending")
            await late(scope, receive, send)
            return
        if size > self.limit:
            error = TooLarge(f"the body has over {self.limit} bytes; send less at a time")
            await _error_response(error)(scope, receive, send)
            return
        left: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return left.pop() if left else await receive()

        await self.app(scope, replay, send)


def _error_response(error: VclibError) -> JSONResponse:
    status = error.status if isinstance(error, EnvError) else 503
    return JSONResponse({"error": type(error).__name__, "detail": str(error)}, status)


def _refuse(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A refusal that is no error of the environment: it never came so far."""
    return JSONResponse({"error": EnvError.__name__, "detail": sentence}, status, headers)


def _answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    said = f"{request.method} {request.url.path:.200}: {error.detail}; /docs lists what is served"
    return _refuse(error.status_code, said, error.headers)


def _answer_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, VclibError)
    return _error_response(error)


def _answer_invalid(request: Request, error: Exception) -> JSONResponse:
    # FastAPI's own answer repeats the input, which need not be valid JSON or Unicode.
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3]]
    message = "; ".join(found).encode(errors="replace").decode()[:1000]
    if error.body is not None and "json" not in request.headers.get("content-type", ""):
        message += "; send JSON with the header Content-Type: application/json"
    return _error_response(BadArguments(message))
