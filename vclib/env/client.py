"""The environment at the other end of HTTP: the same calls and observations as `WebPageEnv`."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any
from urllib.parse import quote

import httpx

from vclib.env.errors import ERRORS, BadArguments, EnvironmentFault
from vclib.env.observation import Observation
from vclib.env.pages import PageSet, load_pages

CONNECT_SECONDS = 5.0
BATCH = 64
BATCH_BYTES = 4_000_000
KEPT_HOMES = 100_000


class HttpEnv:
    """One or several environment servers, used as if they were a `WebPageEnv`.

    urls: addresses of servers with the same pages, split and browser, listed or with commas
    between; sessions are dealt out to them in turn and stay where they began. timeout: seconds for
    one answer. Raises what the server raised (see `errors`), and EnvironmentFault when there is
    none. Safe to call from many threads.
    """

    def __init__(self, urls: str | Sequence[str], *, timeout: float = 600.0):
        listed = urls.split(",") if isinstance(urls, str) else urls
        self.urls = [url.strip().rstrip("/") for url in listed]
        if not self.urls:
            raise BadArguments("no server was named; expected one address, like http://HOST:PORT")
        self.timeout = timeout
        # The server keeps an idle connection for longer than this, so none is used as it closes.
        limits = httpx.Limits(max_connections=None, keepalive_expiry=30)
        self._http = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS), limits=limits, trust_env=False
        )
        self._lock = threading.Lock()
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._next = itertools.cycle(self.urls)
        self._turns: dict[str, Iterator[int]] = {}
        about = [self._call(url, "GET", "/health") for url in self.urls]
        try:
            for what in ("pages", "split", "browser", "max_steps", "clip"):
                found = {health[what] for health in about}
                if len(found) > 1:
                    raise BadArguments(
                        f"the servers differ in {what}: {', '.join(map(str, found))}; rewards of "
                        "one group would not compare. Start them alike"
                    )
            self.page_set: str = about[0]["pages"]
            self.split: str = about[0]["split"]
            self.browser: str = about[0]["browser"]
            self.max_steps: int = about[0]["max_steps"]
        except KeyError as error:
            raise EnvironmentFault(
                f"{', '.join(self.urls)} answers, but not as an environment of this project does; "
                "start one with `python -m vclib serve`"
            ) from error

    @cached_property
    def pages(self) -> PageSet:
        """The servers' page set, as far as it can be had on this machine too."""
        return load_pages(self.page_set)

    def reset(
        self,
        difficulty: str = "mixed",
        page_id: str | None = None,
        seed: int | None = None,
        max_steps: int | None = None,
    ) -> Observation:
        """See `WebPageEnv.reset`."""
        if page_id is None and seed is None and len(self.urls) > 1:
            # Each server counts its own pages; several would give each page out several times.
            with self._lock:
                seed = next(self._turns.setdefault(difficulty, itertools.count()))
        asked = {
            "difficulty": difficulty,
            "page_id": page_id,
            "seed": seed,
            "max_steps": max_steps,
        }
        with self._lock:
            url = next(self._next)
        seen = Observation.from_json(self._call(url, "POST", "/reset", asked))
        with self._lock:
            self._homes[seen.session_id] = url
            if len(self._homes) > KEPT_HOMES:
                self._homes.popitem(last=False)
        return seen

    def step(self, html: str, session_id: str) -> Observation:
        """See `WebPageEnv.step`."""
        action = {"html": html, "session_id": session_id}
        return Observation.from_json(self._call(self._home(session_id), "POST", "/step", action))

    def step_many(self, actions: Sequence[tuple[str, str]]) -> list[Observation]:
        """See `WebPageEnv.step_many`; what is refused is refused for its server and batch."""
        by_url: dict[str, list[int]] = {}
        for index, (_, session_id) in enumerate(actions):
            by_url.setdefault(self._home(session_id), []).append(index)
        if not by_url:
            return []

        def play(url: str) -> list[Observation]:
            mine = [actions[index] for index in by_url[url]]
            return [seen for batch in _batches(mine) for seen in self._step_batch(url, batch)]

        seen: dict[int, Observation] = {}
        with ThreadPoolExecutor(len(by_url)) as pool:
            for url, observations in zip(by_url, pool.map(play, by_url), strict=True):
                seen |= zip(by_url[url], observations, strict=True)
        return [seen[index] for index in range(len(actions))]

    def render(self, html: str) -> Observation:
        """See `WebPageEnv.render`."""
        return Observation.from_json(self._call(self.urls[0], "POST", "/render", {"html": html}))

    def close_session(self, session_id: str) -> None:
        """See `WebPageEnv.close_session`."""
        self._call(self._home(session_id), "DELETE", f"/sessions/{quote(session_id, safe='')}")

    def close(self) -> None:
        """Close the connections; the servers go on."""
        self._http.close()

    def __enter__(self) -> HttpEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step_batch(self, url: str, batch: list[tuple[str, str]]) -> list[Observation]:
        actions = [{"html": html, "session_id": session_id} for html, session_id in batch]
        answer = self._call(url, "POST", "/step_many", {"actions": actions})
        return [Observation.from_json(values) for values in answer["observations"]]

    def _home(self, session_id: str) -> str:
        """The server of a session; one that this client does not know goes to the first."""
        return self._homes.get(session_id, self.urls[0])

    def _call(self, url: str, method: str, path: str, body: Any = None) -> Any:
        try:
            response = self._http.request(method, url + path, json=body)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise BadArguments(f"{url!r} is no address; expected http://HOST:PORT") from error
        except httpx.ConnectError as error:
            raise EnvironmentFault(
                f"no server at {url} ({error}); start one with `python -m vclib serve`"
            ) from error
        except httpx.TimeoutException as error:
            raise EnvironmentFault(
                f"the server at {url} gave no answer within {self.timeout:g} s; look whether it "
                "still works, or raise the timeout"
            ) from error
        except httpx.TransportError as error:
            raise EnvironmentFault(
                f"the connection to {url} broke ({type(error).__name__}: {error}); look whether "
                "the server still runs"
            ) from error
        except UnicodeEncodeError as error:
            raise BadArguments("html holds half a surrogate pair, which is no character") from error
        return _answer(url, response)


def _answer(url: str, response: httpx.Response) -> Any:
    """The JSON of a good answer; of a bad one, the error that the server raised."""
    try:
        values = response.json()
    except ValueError:
        values = None
    if response.is_success and isinstance(values, dict):
        return values
    if isinstance(values, dict) and "error" in values:
        raise ERRORS.get(str(values["error"]), EnvironmentFault)(str(values.get("detail")))
    raise EnvironmentFault(
        f"{url} answered with status {response.status_code} and no observation; is this the "
        "address of `python -m vclib serve`?"
    )


def _batches(actions: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Actions in order, in requests that a server takes."""
    batch: list[tuple[str, str]] = []
    size = 0
    for html, session_id in actions:
        if batch and (len(batch) == BATCH or size + len(html) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((html, session_id))
        size += len(html)
    if batch:
        yield batch
