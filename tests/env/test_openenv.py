"""The environment as an OpenEnv server, seen by OpenEnv's own tools and clients."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from vclib.env.client import HttpEnv
from vclib.env.pages import load_pages
from vclib.env.server import background_server

pytest.importorskip("openenv")

PAGE = "blocks/train/medium/5"
DRAFT = '<!doctype html><body style="background:#dc2626"><p>Help</p></body>'


@pytest.fixture(scope="module")
def openenv_url(env):
    with background_server(env, openenv=True) as url:
        yield url


@pytest.fixture(scope="module")
def served():
    """The address of a server that the command line started, in a process of its own."""
    command = [sys.executable, "-m", "vclib", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split(" at ")[1].split()[0]
        finally:
            server.terminate()


@pytest.fixture
def tool(tmp_path):
    """Runs a command that a package brought along; returns (status, output)."""

    def run(name, *words):
        command = [Path(sys.executable).with_name(name), *words]
        done = subprocess.run(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return done.returncode, done.stdout

    return run


def html_of(page_id):
    return load_pages("blocks").page(page_id).html


def test_openenv_validate_is_green_against_a_running_server(served, tool):
    status, output = tool("openenv", "validate", "--url", served, "--timeout", "60")
    assert status == 0 and "Verdict: PASS" in output and "FAIL" not in output, output


def test_serve_listens_on_this_machine_alone(served):
    address = urlsplit(served)
    assert address.hostname == "127.0.0.1"
    # On every address of the machine it would be found here too.
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", address.port), timeout=5):
        pass


def test_no_request_that_its_openapi_document_allows_breaks_the_server(served, tool):
    pytest.importorskip("schemathesis")
    status, output = tool(
        "schemathesis",
        "run",
        f"{served}/openapi.json",
        *("--checks", "not_a_server_error", "--seed", "0", "--max-examples", "20"),
    )
    assert status == 0, output
    assert httpx.get(f"{served}/health", trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("dance", {}),
        ("tools/call", []),
        ("tools/call", {"name": {"a": 1}}),
        ("tools/call", {"name": "half \ud83d a smile"}),
        ("tools/call", {"name": "new_page", "arguments": 1}),
        ("tools/call", {"name": "new_page", "session_id": ["a"]}),
        ("openenv/session/close", {"session_id": {"a": 1}}),
    ],
)
def test_hostile_mcp_requests_get_an_error_and_no_server_error(openenv_url, method, params):
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params})
    answer = httpx.post(openenv_url + "/mcp", content=body, trust_env=False, timeout=60)
    assert answer.status_code == 200 and answer.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"[", b"[" * 100_000, b"[]", b"\xff", b'{"id": NaN}'])
def test_what_is_no_mcp_request_gets_an_error_and_no_server_error(openenv_url, body):
    answer = httpx.post(openenv_url + "/mcp", content=body, trust_env=False, timeout=60)
    assert answer.status_code == 200 and answer.json()["error"]["message"]


def test_an_openenv_client_plays_a_whole_episode(env, openenv_url):
    from openenv.core import GenericEnvClient

    before = len(env.sessions)
    with GenericEnvClient(base_url=openenv_url).sync() as client:
        seen = client.reset(page_id=PAGE, max_steps=3)
        assert seen.observation["prompt"] and seen.observation["screenshot_b64"]
        assert len(env.sessions) == before + 1
        rewards = []
        for html in (DRAFT, "", html_of(PAGE)):
            assert not seen.done
            seen = client.step({"html": html})
            rewards.append(seen.reward)
        assert seen.done
        state = client.state()
        assert (state["step_count"], state["page_id"], state["done"]) == (3, PAGE, True)
        with pytest.raises(RuntimeError, match="reset begins a new episode"):
            client.step({"html": DRAFT})
        client.reset(seed=1, difficulty="hard")
    session = env.reset(page_id=PAGE).session_id
    assert rewards == [env.step(html, session).reward for html in (DRAFT, "", html_of(PAGE))]


def test_hostile_websocket_messages_get_an_error_and_harm_nobody(env, openenv_url):
    from websockets.sync.client import connect

    address = openenv_url.replace("http", "ws") + "/ws"
    before = len(env.sessions)
    for message in (
        "{",
        "[]",
        '{"type": "dance"}',
        '{"type": "step", "data": {"html": "<p>before reset"}}',
        '{"type": "step", "data": {"html": 5}}',
        '{"type": "reset", "data": {"seed": "x"}}',
        '{"type": "reset", "data": {"seed": -1}}',
        '{"type": "reset", "data": {"episode_id": {"a": 1}}}',
        '{"type": "reset", "data": {"page_id": ["../../x"]}}',
        '{"type": "reset", "data": {"difficulty": {}, "bogus": 1}}',
    ):
        with connect(address) as websocket:
            websocket.send(message)
            answer = json.loads(websocket.recv(timeout=60))
            assert answer["type"] == "error" and answer["data"]["message"], message
    assert httpx.get(openenv_url + "/health", trust_env=False).status_code == 200
    assert len(env.sessions) == before


def test_plain_http_keeps_the_session_beside_openenv(openenv_url):
    with HttpEnv(openenv_url) as remote:
        session = remote.reset(page_id=PAGE).session_id
        assert [remote.step(DRAFT, session).step for _ in range(2)] == [1, 2]


def test_an_agent_plays_over_mcp(openenv_url):
    def call(method, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(openenv_url + "/mcp", json=message, trust_env=False, timeout=60)
        assert answer.status_code == 200
        return answer.json()

    tools = call("tools/list")["result"]["tools"]
    assert {tool["name"] for tool in tools} == {"new_page", "submit_html", "render_html"}
    session = call("openenv/session/create")["result"]["session_id"]

    def use(tool, **arguments):
        return call("tools/call", session_id=session, name=tool, arguments=arguments)

    assert "reset first" in use("submit_html", html=DRAFT)["error"]["message"]
    assert use("new_page", page_id=PAGE)["result"]["screenshot_b64"]
    assert use("submit_html", html=html_of(PAGE))["result"]["reward"] == 1
    assert call("openenv/session/close", session_id=session)["result"]["closed"]
