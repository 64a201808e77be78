"""Episodes in progress: isolated, counted, and given up when nobody uses them."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass, field

from vclib.env.errors import EnvError, EpisodeDone, SessionExpired, TooManySessions, UnknownSession
from vclib.env.pages import Page

KEPT_ENDS = 16_384


@dataclass
class Session:
    """One episode in progress; `lock` is held while it takes a step."""

    page: Page
    max_steps: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    step: int = 0
    reward: float | None = None
    used: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Sessions:
    """The sessions of one environment, and why the last of them ended; for many threads.

    limit: sessions at once; idle_seconds: after which an unused one is given up; begun: sessions
    so far.
    """

    def __init__(self, limit: int, idle_seconds: float):
        self.limit, self.idle_seconds, self.begun = limit, idle_seconds, 0
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}
        self._ends: OrderedDict[str, tuple[type[EnvError], str]] = OrderedDict()

    def open(self, page: Page, max_steps: int) -> Session:
        """A new session. Raises TooManySessions."""
        session = Session(page, max_steps)
        with self._lock:
            self._expire()
            if len(self._open) >= self.limit:
                raise TooManySessions(
                    f"all {self.limit} sessions are in use; close some (close_session), or raise "
                    "max_sessions"
                )
            self._open[session.id] = session
            self.begun += 1
        return session

    def find(self, session_id: str) -> Session:
        """The session with this id. Raises UnknownSession, SessionExpired or EpisodeDone."""
        with self._lock:
            return self._find(session_id)

    def hold(self, steps: Counter[str], stack: ExitStack) -> dict[str, Session]:
        """Sessions by id, locked until `stack` closes; each must have its `steps` left."""
        with self._lock:
            sessions = {session_id: self._find(session_id) for session_id in steps}
        # In one order everywhere, or two calls could wait for each other.
        for session_id in sorted(sessions):
            stack.enter_context(sessions[session_id].lock)
        with self._lock:
            for session_id, count in steps.items():
                session = self._find(session_id)
                if session.step + count > session.max_steps:
                    raise EpisodeDone(
                        f"session {session_id} has {session.max_steps - session.step} steps left, "
                        f"not {count}; reset begins a new episode"
                    )
        return sessions

    def advance(self, session: Session, reward: float) -> bool:
        """Count a step of a held session; True if it was the last, which ends the session."""
        with self._lock:
            session.step += 1
            session.reward, session.used = reward, time.monotonic()
            done = session.step == session.max_steps
            if done:
                self._end(session, EpisodeDone, f"has taken its {session.max_steps} steps")
        return done

    def close(self, session_id: str) -> None:
        """Give a session up; one that ended by itself is closed already. Raises UnknownSession."""
        with self._lock:
            if self._open.pop(session_id, None) is None and session_id not in self._ends:
                raise _unknown(session_id)

    def clear(self) -> None:
        """Give all sessions up."""
        with self._lock:
            self._open.clear()

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._open)

    def _find(self, session_id: str) -> Session:
        self._expire()
        if session := self._open.get(session_id):
            return session
        if session_id in self._ends:
            kind, message = self._ends[session_id]
            raise kind(message)
        raise _unknown(session_id)

    def _expire(self) -> None:
        oldest = time.monotonic() - self.idle_seconds
        for session in [s for s in self._open.values() if s.used < oldest]:
            if not session.lock.locked():
                self._end(session, SessionExpired, f"was not used for {self.idle_seconds:g} s")

    def _end(self, session: Session, kind: type[EnvError], why: str) -> None:
        if self._open.pop(session.id, None):
            self._ends[session.id] = kind, f"session {session.id} {why}; reset begins a new episode"
            if len(self._ends) > KEPT_ENDS:
                self._ends.popitem(last=False)


def _unknown(session_id: str) -> UnknownSession:
    return UnknownSession(f"no session {session_id!r:.80}; reset begins one and gives its id")
