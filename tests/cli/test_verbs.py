"""The verbs at work: a real browser, a random small model, real files."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from vclib.cli import main

PAGE = (
    "<!doctype html><html><head></head><body style='background:#224466'>"
    "<h1 style='color:#ffffff'>Sales</h1></body></html>"
)
SHORT = ["--profile", "ci", "--max-steps", "2", "--threads", "1"]


@pytest.fixture
def page(here):
    path = here / "page.html"
    path.write_text(PAGE)
    return path


def test_train_evaluates_and_reports_and_eval_and_figures_read_what_it_left(here, model, capsys):
    words = ["train", *SHORT, "--model", model, "--phase", "developer", "--episodes", "1"]
    assert main([*words, "--eval-pages", "2", "--developer-tokens", "8"]) == 0
    run = here / "outputs" / "ci-1"
    said = capsys.readouterr()
    assert "Report: outputs/ci-1/report.html" in said.out
    assert "held-out pages" in said.out and "trained with Critic" in said.out
    assert "developer" in said.err and "reward" in said.err and "left" in said.err
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "python -m vclib train --profile ci" in text and "vclib eval" not in text
    assert len((run / "train.jsonl").read_text().splitlines()) == 1
    before = (run / "eval" / "eval.json").read_bytes()

    assert main(["eval", "--adapters", str(run), "--count", "2", "--decodings", "greedy"]) == 0
    fresh = json.loads((here / "outputs" / "eval-1" / "eval" / "eval.json").read_text())
    kept = json.loads(before)
    assert fresh["settings"]["developer_tokens"] == kept["settings"]["developer_tokens"] == 8
    greedy = {a["policy"] + a["loop"]: a for a in kept["arms"] if a["decoding"] == "greedy"}
    for arm in fresh["arms"]:
        other = greedy[arm["policy"] + arm["loop"]]["pages"]
        assert [p["page_id"] for p in arm["pages"]] == [p["page_id"] for p in other]
        assert [p["rewards"] for p in arm["pages"]] == [p["rewards"] for p in other]
    capsys.readouterr()

    assert main(["eval", "--adapters", str(run), "--output", str(run)]) == 2
    assert "already holds an evaluation" in capsys.readouterr().err
    assert (run / "eval" / "eval.json").read_bytes() == before

    assert main(["figures", str(run), "--output", "drawn"]) == 0
    assert (here / "drawn" / "ci-1" / "reward.png").is_file()

    assert main([*words, "--run-name", "ci-1"]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert (run / "eval" / "eval.json").read_bytes() == before


@pytest.mark.timeout(700)
def test_an_interrupt_finishes_the_update_saves_and_says_how_to_go_on(here, model):
    words = [sys.executable, "-m", "vclib", "train", *SHORT, "--model", model, "--no-eval"]
    words += ["--phase", "developer", "--episodes", "100000", "--developer-tokens", "4"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # A terminal sends Ctrl-C to the whole group, the browser included.
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    log = here / "outputs" / "ci-1" / "train.jsonl"
    deadline = time.monotonic() + 400
    while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
        assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, err
    done = len(log.read_text().splitlines())
    assert f"Stopped after update {done} of 100000" in out
    command = re.search(r"python -m vclib (train --resume-from \S+)", out)[1].split()
    assert f"update-{done:06d}" in command[-1]

    assert main([*command, "--episodes", str(done + 1), "--no-eval"]) == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["iter"] for row in rows] == list(range(1, done + 2))
    assert len((here / "outputs/ci-1/commands.txt").read_text().splitlines()) == 2


def test_a_model_that_cannot_be_had_fails_in_one_sentence(here):
    words = [
        sys.executable,
        "-m",
        "vclib",
        "train",
        "--model",
        "Qwen/Qwen3.5-9B",
        "--episodes",
        "1",
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(here / "hub")}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and "Qwen/Qwen3.5-9B" in lines[0], done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "--resume-from", "nowhere"], "No whole checkpoint in nowhere"),
        (["eval", "--adapters", "nowhere"], "no folder nowhere"),
        (["figures", "nowhere"], "nowhere holds no run"),
        (["render", "nowhere.html"], "nowhere.html: No such file"),
        (["serve", "--pages", "sites"], "blocks, web, websight, folder:PATH"),
        (["eval", "--model", "nowhere"], "nowhere"),
    ],
)
def test_what_is_not_there_is_named_in_one_sentence(words, says, fails):
    assert says in fails(*words)


def test_an_unknown_page_set_is_named_with_the_known_ones(fails, model):
    said = fails("train", *SHORT, "--model", model, "--pages", "sites")
    assert "'sites'" in said and "blocks, web, websight, folder:PATH" in said


def test_a_port_in_use_is_one_sentence(fails):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in fails("serve", "--port", port)


def test_render_writes_the_picture_and_scores_a_page_against_itself(page, here, capsys):
    assert main(["render", str(page), "--out", "page.png", "--reference", str(page)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"reward +1\.000", out) and re.search(r"ssim +1\.000 +1\.5", out)
    picture = Image.open(here / "page.png")
    assert picture.size == (256, 192)
    assert picture.convert("RGB").getpixel((250, 180)) == (0x22, 0x44, 0x66)


def test_render_without_a_reference_tells_what_is_seen(page, capsys):
    assert main(["render", str(page)]) == 0
    assert re.search(r"text blocks +1\n", capsys.readouterr().out)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_sentence(page, fails):
    assert "the disk is full" in fails("render", page, "--out", "/dev/full")


def test_doctor_finds_what_is_needed(here, model, capsys):
    assert main(["doctor", "--model", model]) == 0
    out = capsys.readouterr().out
    for name in ("python", "torch", "browser", "model", "memory", "disk", "cores", "gpu"):
        assert re.search(rf"^(ok|note) +{name} ", out, re.MULTILINE), out
    assert "renders a page in" in out


def test_doctor_says_what_to_do_where_something_is_missing(here, monkeypatch, capsys):
    monkeypatch.setenv("VCLIB_CHROMIUM", str(here / "no-browser"))
    assert main(["doctor", "--model", str(here / "no-model")]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^FAIL +browser .*make browser", out, re.MULTILINE)
    assert re.search(r"^FAIL +model .*no-model\n +restore it", out, re.MULTILINE)
    assert "Missing: browser, model." in out
