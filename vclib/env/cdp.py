"""The Chrome DevTools Protocol over the browser's own pipe: no port is open, nothing in between.

This stands below Playwright because of what that costs: its driver reads and writes every
snapshot and picture once more (measured by `benchmarks/env_speed.py`).
Source: Chrome DevTools Protocol, and `--remote-debugging-pipe` (JSON texts ended by a NUL byte).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_MESSAGE_BYTES = 1 << 26
# The browser reads from descriptor 3 and writes to 4; a shell can open these, Python cannot.
WITH_PIPE = ("/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh")
Handler = Callable[[str, dict[str, Any]], None]


class Failure(Exception):
    """A call that the browser did not carry out."""


class BrowserDied(Failure):
    """The browser's process has ended."""


class PageCrashed(Failure):
    """The process that draws one page has ended; the browser goes on."""


class Connection:
    """A browser's process and the calls to it that wait for an answer."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process
        self.handlers: dict[str, Handler] = {}
        self.dead = False
        self._reaped = False
        self._number = 0
        self._waiting: dict[int, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._reader = asyncio.ensure_future(self._read())
        self._watcher = asyncio.ensure_future(self._watch())

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> Connection:
        """Starts a browser in a process group of its own; what it complains of goes to `log`."""
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *WITH_PIPE, *command, "--remote-debugging-pipe",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
                env=environment, limit=MAX_MESSAGE_BYTES, start_new_session=True,
            )  # fmt: skip
        return cls(process)

    def send(
        self, method: str, params: dict[str, Any] | None = None, session: str = ""
    ) -> asyncio.Future[dict[str, Any]]:
        """Makes one call at once; the answer to come, or a Failure if there is none."""
        number, answer = self.expect(session)
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        return answer

    def expect(self, session: str) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """A future, with its number, that fails when the page crashes or the browser dies."""
        if self.dead:
            raise BrowserDied("the browser died")
        self._number += 1
        number = self._number
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = session, future

        def forget(done: asyncio.Future[dict[str, Any]]) -> None:
            del self._waiting[number]
            # Asked for here, so that asyncio does not complain where nobody waits any more.
            if not done.cancelled():
                done.exception()

        future.add_done_callback(forget)
        return number, future

    async def _read(self) -> None:
        assert self.process.stdout
        try:
            while True:
                text = await self.process.stdout.readuntil(b"\0")
                self._take(json.loads(text[:-1]))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            self.kill()
        finally:
            self.dead = True
            self._fail(BrowserDied("the browser died"), None)

    async def _watch(self) -> None:
        # When the browser dies alone, its children hold the pipe open, and nothing would be read.
        while self.process.returncode is None:
            await asyncio.sleep(0.05)
        self.kill()

    def _take(self, message: dict[str, Any]) -> None:
        session = message.get("sessionId", "")
        if "id" in message:
            _, future = self._waiting.get(message["id"], ("", None))
            if future is None or future.done():
                return
            if "error" in message:
                future.set_exception(Failure(message["error"]["message"]))
            else:
                future.set_result(message["result"])
        elif message["method"] == "Inspector.targetCrashed":
            self._fail(PageCrashed("the page crashed"), session)
        elif handler := self.handlers.get(session):
            handler(message["method"], message["params"])

    def _fail(self, error: Failure, session: str | None) -> None:
        for owner, future in list(self._waiting.values()):
            if session in (None, owner) and not future.done():
                future.set_exception(error)

    def kill(self) -> None:
        """Ends every process of the browser at once."""
        # The number of a group that is gone may be given to another.
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Ends the browser and reaps what it left to this process."""
        self.kill()
        await asyncio.wait([self._reader])
        await self.process.wait()
        self._watcher.cancel()
        self._reaped = True
        with contextlib.suppress(OSError):
            while os.waitpid(-self.process.pid, os.WNOHANG)[0]:
                pass
