import http.client
import os
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from vclib.env import errors
from vclib.env.client import HttpEnv
from vclib.env.environment import WebPageEnv
from vclib.env.pages import load_pages
from vclib.env.server import background_server, serve
from vclib.errors import VclibError

PAGE = "blocks/train/medium/5"
DRAFT = '<!doctype html><body style="background:#dc2626"><p>Help</p></body>'


@pytest.fixture(scope="module")
def url(env):
    with background_server(env) as url:
        yield url


@pytest.fixture
def remote(url):
    with HttpEnv(url) as remote:
        yield remote


@pytest.fixture
def ask(url):
    """Sends one request, by default JSON, and returns (status, parsed answer)."""

    def send(method, path, **request):
        response = httpx.request(method, url + path, trust_env=False, timeout=60, **request)
        return response.status_code, response.json()

    return send


def html_of(page_id):
    return load_pages("blocks").page(page_id).html


def same(a, b):
    """Equal in everything but the session."""
    for name, value in vars(a).items():
        other = getattr(b, name)
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, other), name
        elif name != "session_id":
            assert value == other, name
    return True


def test_an_episode_over_http_is_the_same_as_in_process(env, remote):
    here, there = (side.reset(page_id=PAGE, max_steps=3) for side in (env, remote))
    assert same(here, there)
    for html in (DRAFT, "no html", html_of(PAGE)):
        here, there = env.step(html, here.session_id), remote.step(html, there.session_id)
        assert same(here, there)
    assert there.done and there.reward == 1
    assert same(env.render(DRAFT), remote.render(DRAFT))


def test_step_many_over_http_is_the_same_as_in_process(env, remote):
    drafts = [DRAFT, html_of(PAGE), "", DRAFT]
    seen = []
    for side in (env, remote):
        sessions = [side.reset("hard", seed=n).session_id for n in range(3)]
        actions = list(zip(drafts, [*sessions, sessions[0]], strict=True))
        seen.append(side.step_many(actions))
    assert [observation.step for observation in seen[1]] == [1, 1, 1, 2]
    assert all(same(a, b) for a, b in zip(*seen, strict=True))
    assert remote.step_many([]) == []


def test_plain_http_keeps_the_session_between_calls(ask):
    status, seen = ask("POST", "/reset?difficulty=easy&seed=4&max_steps=2")
    assert (status, seen["page_id"]) == (200, "blocks/train/easy/4")
    session = seen["session_id"]
    status, seen = ask("POST", "/step", json={"html": DRAFT, "session_id": session})
    assert status == 200 and seen["step"] == 1 and 0 <= seen["reward"] < 1
    assert set(seen["metadata"]["rewards"]) >= {"total", "gate", "text_block", "ssim"}
    assert seen["render_full_b64"] and seen["render_low_b64"] and seen["screenshot_b64"]
    assert ask("GET", f"/state?session_id={session}")[1]["step_count"] == 1
    status, seen = ask("POST", "/step", json={"html": DRAFT, "session_id": session})
    assert status == 200 and seen["done"]


def test_reset_takes_its_arguments_from_the_body_too(ask):
    status, seen = ask("POST", "/reset", json={"page_id": PAGE, "max_steps": 7})
    assert (status, seen["page_id"], seen["max_steps"]) == (200, PAGE, 7)
    status, seen = ask("POST", "/reset?difficulty=easy&seed=2", json={"difficulty": "hard"})
    assert (status, seen["page_id"]) == (200, "blocks/train/hard/2")


def test_health_says_what_is_served(ask, env):
    env.close_session(env.reset(page_id=PAGE).session_id)
    status, health = ask("GET", "/health")
    assert (status, health["status"]) == (200, "healthy")
    assert (health["pages"], health["split"], health["viewport"]) == ("blocks", "train", [256, 192])
    assert health["browser"] == env.renderer.browser
    assert health["sessions"] < health["sessions_begun"] == env.sessions.begun


def test_errors_over_http_are_those_in_process(env, remote):
    done = remote.reset(page_id=PAGE, max_steps=1).session_id
    remote.step(DRAFT, done)
    for call in (
        lambda side: side.step(DRAFT, done),
        lambda side: side.step(DRAFT, "nobody"),
        lambda side: side.close_session("no/bo dy"),
        lambda side: side.reset("brutal"),
        lambda side: side.reset(seed=-1),
        lambda side: side.render("x" * 2_000_000),
    ):
        with pytest.raises(errors.EnvError) as here:
            call(env)
        with pytest.raises(type(here.value)) as there:
            call(remote)
        assert str(there.value) == str(here.value)


def test_a_session_can_be_closed_over_http(remote, ask):
    session = remote.reset(page_id=PAGE).session_id
    remote.close_session(session)
    status, answer = ask("POST", "/step", json={"html": DRAFT, "session_id": session})
    assert (status, answer["error"]) == (404, "UnknownSession")


def test_unknown_finished_and_expired_sessions_have_each_a_status_and_a_sentence(renderer):
    with WebPageEnv(renderer=renderer, max_steps=1) as env, background_server(env) as url:

        def ask(method, path, **request):
            return httpx.request(method, url + path, trust_env=False, timeout=60, **request)

        def step(session):
            return ask("POST", "/step", json={"html": DRAFT, "session_id": session})

        finished, expired = (env.reset(page_id=PAGE).session_id for _ in range(2))
        assert step(finished).json()["done"]
        env.sessions.idle_seconds = 0
        for session, status, kind, says in (
            ("nobody", 404, "UnknownSession", "no session 'nobody'; reset begins one"),
            (finished, 409, "EpisodeDone", f"session {finished} has taken its 1 steps; reset"),
            (expired, 410, "SessionExpired", f"session {expired} was not used for 0 s; reset"),
        ):
            for answer in (step(session), ask("GET", f"/state?session_id={session}")):
                assert (answer.status_code, answer.json()["error"]) == (status, kind)
                assert says in answer.json()["detail"]


def test_an_expired_session_and_one_too_many_are_refused_over_http(renderer):
    with (
        WebPageEnv(renderer=renderer, max_sessions=1, idle_seconds=0.5) as env,
        background_server(env) as url,
        HttpEnv(url) as remote,
    ):
        session = remote.reset(page_id=PAGE).session_id
        with pytest.raises(errors.TooManySessions):
            remote.reset(page_id=PAGE)
        env.sessions.idle_seconds = 0
        with pytest.raises(errors.SessionExpired):
            remote.step(DRAFT, session)


@pytest.mark.parametrize("path", ["/reset", "/step", "/step_many", "/render"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"seed": NaN, "html": NaN}',
        b'{"seed": 1e999, "html": 1e999}',
        b'{"seed": ' + b"9" * 5000 + b', "html": 9}',
        b'{"html": "half \\ud83d", "session_id": "half \\ud83d", "page_id": "\\ud83d"}',
        b'{"html": ["<p>"], "session_id": {"a": 1}, "difficulty": 3}',
        b'{"html": "<p>", "session_id": null, "difficulty": "brutal"}',
        b'{"html": "<p>", "session_id": "nobody", "page_id": "../../x"}',
        b'{"__proto__": 1}',
        b'{"actions": [{"html": "<p>", "session_id": "nobody"}], "max_steps": 0}',
        b'{"actions": [1, "two", null], "max_steps": -1}',
    ],
)
def test_hostile_bodies_get_a_clear_refusal(ask, path, body):
    status, answer = ask("POST", path, content=body, headers={"content-type": "application/json"})
    if path == "/reset" and body in (b"", b"null"):
        assert status == 200
    else:
        assert 400 <= status < 500, answer
        assert answer["detail"]


def test_hostile_addresses_get_a_clear_refusal(ask):
    for method, path in (
        ("POST", "/reset?seed=NaN"),
        ("POST", f"/reset?seed={'9' * 4000}"),
        ("POST", "/reset?difficulty=%00"),
        ("POST", "/reset?max_steps=-1"),
        ("DELETE", "/sessions/%F0%9F"),
        ("GET", "/state?session_id=nobody"),
        ("GET", "/step"),
        ("GET", "/nowhere"),
    ):
        status, answer = ask(method, path)
        assert 400 <= status < 500, path
        assert set(answer) == {"error", "detail"} and answer["error"] in errors.ERRORS, path


def test_a_body_that_is_not_sent_as_json_is_refused_with_the_header_that_is_missing(ask):
    for headers in ({}, {"content-type": "application/x-www-form-urlencoded"}):
        status, answer = ask("POST", "/reset", content=b'{"seed": 1}', headers=headers)
        assert (status, answer["error"]) == (422, "BadArguments")
        assert "Content-Type: application/json" in answer["detail"]
    status, answer = ask("POST", "/reset", json={"seed": "one"})
    assert status == 422 and "Content-Type" not in answer["detail"]


@pytest.mark.parametrize("value", [True, "1", 1.0])
def test_what_only_looks_like_a_whole_number_is_refused(ask, value):
    for name in ("seed", "max_steps"):
        status, answer = ask("POST", "/reset", json={name: value})
        assert (status, answer["error"]) == (422, "BadArguments"), name
        assert name in answer["detail"]


def test_html_may_hold_any_character(remote):
    for html in ("\0", "<p>\0\x01\x7f\u2028😀</p>", "\r\n", "</body>" * 100, "<" * 10_000):
        assert remote.render(html).metadata["error"] is None


def test_an_oversized_body_is_refused_however_it_is_sent(renderer):
    with WebPageEnv(renderer=renderer) as env, background_server(env) as url:

        def chunks(count):
            yield b'{"html": "'
            for _ in range(count):
                yield b"x" * 1_000_000

        headers = {"content-type": "application/json"}
        for body in (b"".join(chunks(17)), chunks(17), chunks(50)):
            answer = httpx.post(url + "/render", content=body, headers=headers, trust_env=False)
            assert answer.status_code == 413
            assert answer.json()["error"] == "TooLarge"
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        connection.request("POST", "/render", b"{}", {"content-length": "-5"})
        assert connection.getresponse().status == 400
        connection.close()


def test_a_client_that_goes_away_in_mid_sentence_harms_nobody(url, ask):
    host, port = urlsplit(url).hostname, urlsplit(url).port
    with socket.create_connection((host, port)) as connection:
        connection.sendall(b"POST /step HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
    assert ask("GET", "/health")[0] == 200


def test_a_body_that_is_never_sent_whole_is_given_up(url, monkeypatch):
    monkeypatch.setattr("vclib.env.refusals.BODY_SECONDS", 0.2)
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("POST", "/step", b"{", {"content-length": "1000"})
    assert connection.getresponse().status == 408
    connection.close()


def test_a_server_that_is_away_is_a_clear_error(renderer):
    with pytest.raises(errors.EnvironmentFault, match="python -m vclib serve"):
        HttpEnv("http://127.0.0.1:9")
    with pytest.raises(errors.BadArguments, match="expected http://HOST:PORT"):
        HttpEnv("127.0.0.1:8000")
    with pytest.raises(errors.BadArguments, match="no server was named"):
        HttpEnv([])
    with WebPageEnv(renderer=renderer) as env:
        with background_server(env) as url:
            remote = HttpEnv(url)
            session = remote.reset(page_id=PAGE).session_id
        with remote, pytest.raises(errors.EnvironmentFault, match="server"):
            remote.step(DRAFT, session)


def test_something_else_at_the_address_is_a_clear_error(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as other:
        try:
            address = other.stdout.readline().split("(")[1].split(")")[0].rstrip("/")
            with pytest.raises(errors.EnvironmentFault, match="status 404"):
                HttpEnv(address)
        finally:
            other.terminate()


def test_several_servers_share_the_sessions_and_each_keeps_its_own(renderer):
    with (
        WebPageEnv(renderer=renderer) as first,
        WebPageEnv(renderer=renderer) as second,
        background_server(first) as one,
        background_server(second) as two,
        HttpEnv([one, two]) as remote,
    ):
        seen = [remote.reset(page_id=PAGE) for _ in range(4)]
        assert len(first.sessions) == len(second.sessions) == 2
        drafts = [DRAFT, html_of(PAGE), "", DRAFT]
        played = remote.step_many([(h, s.session_id) for h, s in zip(drafts, seen, strict=True)])
        assert [s.session_id for s in played] == [s.session_id for s in seen]
        assert played[1].reward == 1 and played[2].reward == 0
        assert same(played[0], played[3])
        for observation in seen:
            remote.close_session(observation.session_id)
        assert len(first.sessions) == len(second.sessions) == 0
        walked = {remote.reset("easy").page_id for _ in range(4)}
        assert walked == {f"blocks/train/easy/{n}" for n in range(4)}


def test_servers_that_differ_are_refused_together(url, renderer):
    with (
        WebPageEnv(renderer=renderer, split="heldout") as other,
        background_server(other) as address,
        pytest.raises(errors.BadArguments, match="differ in split"),
    ):
        HttpEnv([url, address])


def test_a_port_that_is_taken_is_a_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(VclibError, match=f"cannot listen at 127.0.0.1:{port}"):
            serve(port=port)


def test_serve_ends_with_its_browser_and_no_traceback_when_told_to(tmp_path):
    program = "from vclib.env.server import serve; serve(port=0, openenv=False)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as server:
        waiting = []
        try:
            line = server.stdout.readline()
            url = line.split(" at ")[1].split()[0]
            with HttpEnv(url) as remote:
                assert remote.browser in line
                assert remote.reset(page_id=PAGE).page_id == PAGE
            for _ in range(60):
                waiting.append(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60))
                waiting[-1].request("POST", "/step", b"{", {"content-length": "1000"})
            httpx.get(url + "/health", trust_env=False)
        finally:
            server.terminate()
        assert {connection.getresponse().status for connection in waiting} == {408}
        assert server.wait(60) == 0
        said = server.stderr.read().splitlines()
        assert len(said) == 1 and "graceful shutdown" in said[0], said
    assert not list(tmp_path.glob("vclib-browser-*"))
