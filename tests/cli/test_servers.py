"""Training and evaluation with the environment in other processes."""

import contextlib
import json
import subprocess
import sys

import httpx
import pytest

from vclib.cli import main, parse
from vclib.rl.checkpoint import MAY_CHANGE
from vclib.settings import environment_of, eval_settings, train_settings

TRAIN = ["train", "--profile", "ci", "--phase", "developer", "--episodes", "2", "--threads", "1"]
TRAIN += ["--developer-tokens", "8", "--max-steps", "2", "--no-eval"]
EVAL = ["eval", "--count", "3", "--decodings", "greedy", "--loops", "critic", "--threads", "1"]


@pytest.fixture
def servers(here):
    """The addresses of two servers, each a process."""
    command = [sys.executable, "-m", "vclib", "serve", "--port", "0"]
    with contextlib.ExitStack() as stack:
        started = []
        for _ in range(2):
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.enter_context(server)
            stack.callback(server.terminate)
            started.append(server)
        yield [server.stdout.readline().split(" at ")[1].split()[0] for server in started]


def test_several_servers_serve_one_training_and_its_evaluation(here, model, servers):
    remote = ["--env", "http", "--env-url", servers[0], "--env-url", servers[1]]
    for name, where in (("alone", []), ("shared", remote)):
        run = here / "outputs" / name
        assert main([*TRAIN, "--model", model, *where, "--run-name", name]) == 0
        assert main([*EVAL, *where, "--adapters", str(run), "--output", str(run)]) == 0
    alone, shared = (here / "outputs" / name for name in ("alone", "shared"))
    assert (shared / "train.jsonl").read_text() == (alone / "train.jsonl").read_text()
    arms = [json.loads((run / "eval" / "eval.json").read_text())["arms"] for run in (alone, shared)]
    assert arms[0] == arms[1]

    about = [httpx.get(f"{url}/health", trust_env=False).json() for url in servers]
    begun = [health["sessions_begun"] for health in about]
    assert min(begun) > 0 and abs(begun[0] - begun[1]) <= 2
    assert [health["sessions"] for health in about] == [0, 0]

    # The run remembers its servers, and goes on with them.
    again = ["train", "--resume-from", str(shared), "--episodes", "3", "--no-eval"]
    assert main(again) == 0
    rows = (shared / "train.jsonl").read_text().splitlines()
    assert [json.loads(row)["iter"] for row in rows] == [1, 2, 3]
    about = [httpx.get(f"{url}/health", trust_env=False).json() for url in servers]
    assert sum(health["sessions_begun"] for health in about) > sum(begun)


def test_each_env_url_is_one_more_server(here):
    two = ["--env", "http", "--env-url", "http://a:1", "--env-url", "http://b:2"]
    assert train_settings(parse(["train", *two])).env_url == ("http://a:1", "http://b:2")
    flags = parse(["eval", *two])
    assert environment_of(flags, eval_settings(flags, None)).env_url == ("http://a:1", "http://b:2")
    flags = parse(["eval", "--env", "http"])
    own = environment_of(flags, eval_settings(flags, None)).env_url
    assert own == ("http://127.0.0.1:8000",)


def test_a_run_may_go_on_with_other_servers_than_it_began_with():
    assert {"env", "env_url"} <= MAY_CHANGE
