"""Many clients at once, each on a page of its own with drafts of its own: none gets another's."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from vclib.env.client import HttpEnv
from vclib.env.environment import Observation, WebPageEnv
from vclib.env.pages import load_pages
from vclib.env.server import background_server
from vclib.env.synth import DIFFICULTIES

CLIENTS = 64
PAGES = [f"blocks/train/{DIFFICULTIES[n % len(DIFFICULTIES)]}/{n}" for n in range(CLIENTS)]
HTMLS = [load_pages("blocks").page(page_id).html for page_id in PAGES]


@pytest.fixture(scope="module")
def env(renderer):
    with WebPageEnv("blocks", renderer=renderer) as env:
        yield env


class OpenEnvSide:
    """OpenEnv's own client, with the calls of the environment; a websocket is a session."""

    def __init__(self, url):
        from openenv.core import GenericEnvClient

        # A busy machine may take longer for 64 answers at once than the client would wait.
        patience = {"message_timeout_s": 600, "websocket_ping_timeout_s": None}
        self.client = GenericEnvClient(url, connect_timeout_s=120, **patience).sync()

    def reset(self, **arguments):
        return self._observed(self.client.reset(**arguments))

    def step(self, html, session_id):
        return self._observed(self.client.step({"html": html}))

    @staticmethod
    def _observed(seen):
        more = {"reward": seen.reward, "done": seen.done, "metadata": {}}
        return Observation.from_json(seen.observation | more)


@contextmanager
def in_process(env):
    yield [env] * CLIENTS


@contextmanager
def over_http(env):
    with background_server(env) as url, HttpEnv(url) as remote:
        yield [remote] * CLIENTS


@contextmanager
def over_websockets(env):
    pytest.importorskip("openenv")
    with background_server(env, openenv=True) as url:
        sides = [OpenEnvSide(url) for _ in range(CLIENTS)]
        try:
            yield sides
        finally:
            for side in sides:
                side.client.close()


@pytest.mark.parametrize("clients", [in_process, over_http, over_websockets])
def test_sessions_at_once_are_never_crossed(env, clients):
    assert len(set(HTMLS)) == CLIENTS and len(env.sessions) == 0
    open_at_once = []
    all_open = threading.Barrier(CLIENTS, lambda: open_at_once.append(len(env.sessions)))

    def play(number, side):
        colour = (4 * number, 255 - 4 * number, 128)
        draft = f"<!doctype html><body style='background:rgb{colour}'><p>{number}</p></body>"
        start = side.reset(page_id=PAGES[number], max_steps=2)
        all_open.wait(250)
        first = side.step(draft, start.session_id)
        last = side.step(HTMLS[number], start.session_id)
        for seen, html in ((start, None), (first, draft), (last, HTMLS[number])):
            assert (seen.page_id, seen.html) == (PAGES[number], html)
            assert seen.session_id == start.session_id
            assert np.array_equal(seen.screenshot, start.screenshot)
        assert tuple(first.render_full[-1, -1]) == colour
        assert np.array_equal(last.render_full, start.screenshot)
        assert first.reward < last.reward == 1 and last.done
        return start.session_id

    with clients(env) as sides, ThreadPoolExecutor(CLIENTS) as pool:
        session_ids = list(pool.map(play, range(CLIENTS), sides))
    assert open_at_once == [CLIENTS] and len(set(session_ids)) == CLIENTS
    assert len(env.sessions) == 0
