"""The verbs at work: a real browser, a random small model, real files."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from PIL import Image

from vclib.cli import main
from vclib.env.pages import load_pages
from vclib.paths import ROOT, TINY
from vclib.policy.model import LoraSettings, Policy
from vclib.settings import find_adapters

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

    assert main(["export", str(run), "--output", "exported"]) == 0
    card = (here / "exported" / "README.md").read_text(encoding="utf-8")
    assert "| phase | developer |" in card and "2 heldout pages" in card
    capsys.readouterr()
    assert main(["export", str(run), "--output", "exported"]) == 2
    assert "exported is not empty" in capsys.readouterr().err
    assert main(["export", "exported", "--merge", "developer"]) == 0
    assert (here / "outputs" / "export-1" / "model.safetensors").is_file()
    capsys.readouterr()

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
    command = re.search(r"-m vclib (train --resume-from \S+)", out)[1].split()
    assert f"update-{done:06d}" in command[-1]

    assert main([*command, "--episodes", str(done + 1), "--no-eval"]) == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["iter"] for row in rows] == list(range(1, done + 2))
    assert len((here / "outputs/ci-1/commands.txt").read_text().splitlines()) == 2


@pytest.mark.timeout(700)
def test_a_second_interrupt_ends_at_once_and_says_how_to_go_on(here, model, capsys):
    before = signal.getsignal(signal.SIGINT)
    log = here / "outputs" / "ci-1" / "train.jsonl"

    def interrupt_twice():
        while not log.exists() or len(log.read_text().splitlines()) < 2:
            time.sleep(0.01)
        while signal.getsignal(signal.SIGINT) is before:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        while "Finishing this update" not in sys.stderr.getvalue():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_twice, daemon=True)
    thread.start()
    words = ["train", *SHORT, "--model", model, "--no-eval", "--phase", "developer"]
    words += ["--episodes", "100000", "--developer-tokens", "12", "--checkpoint-every", "1"]
    assert main(words) == 130
    thread.join()
    said = capsys.readouterr()
    assert "Stopped after" not in said.out
    assert re.search(r"Stopped after update \d+ of 100000.* --resume-from \S*update-", said.err)


def test_a_program_that_is_told_to_end_says_so(here):
    os.mkfifo(here / "page.html")  # reading it waits until something is written
    words = [sys.executable, "-m", "vclib", "render", "page.html"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    with (here / "page.html").open("w"):
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "vclib: interrupted; what was written before is whole.\n"


def test_a_stop_in_the_last_update_leaves_the_evaluation_to_a_command(here, model, capsys):
    before = signal.getsignal(signal.SIGINT)

    def interrupt_an_update():
        while signal.getsignal(signal.SIGINT) is before:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    words = ["train", *SHORT, "--model", model, "--phase", "developer", "--episodes", "1"]
    thread = threading.Thread(target=interrupt_an_update, daemon=True)
    thread.start()
    # So cold that all drafts of a group are the same.
    words += ["--temperature", "1e-6", "--developer-tokens", "4"]
    assert main([*words, "--eval-pages", "2"]) == 130
    thread.join()
    said = capsys.readouterr()
    assert "Trained adapters" in said.out and "evaluating" not in said.err
    assert "0 of 1 update moved a weight: all groups were silent" in said.out
    command = re.search(r"-m vclib (eval .*)", said.err)[1].split()
    assert main([*command, "--decodings", "greedy"]) == 0
    assert "0 of 1 update" in (here / "outputs/ci-1/report.html").read_text(encoding="utf-8")
    capsys.readouterr()


def test_an_evaluation_that_fails_leaves_a_report_and_the_command_to_repeat_it(here, model, capsys):
    (here / "pages").mkdir()
    for n in range(2):
        (here / "pages" / f"{n}.html").write_text(PAGE)
    pages = f"folder:{here / 'pages'}"
    heldout = here / "pages" / Path(load_pages(pages).at("heldout", "mixed", 0).id).name

    def remove_it_during_the_training():
        while not (here / "outputs/ci-1/commands.txt").exists():
            time.sleep(0.01)
        heldout.unlink()

    thread = threading.Thread(target=remove_it_during_the_training, daemon=True)
    thread.start()
    words = ["train", *SHORT, "--model", model, "--phase", "developer", "--episodes", "1"]
    assert main([*words, "--pages", pages, "--developer-tokens", "4"]) == 2
    thread.join()
    said = capsys.readouterr()
    assert "The evaluation failed" in said.err and f"{heldout.name}' cannot be read" in said.err
    assert "Report: outputs/ci-1/report.html" in said.out
    assert "<svg" in (here / "outputs/ci-1/report.html").read_text(encoding="utf-8")
    heldout.write_text(PAGE)
    command = re.search(r"-m vclib (eval .*)", said.err)[1].split()
    assert main([*command, "--decodings", "greedy"]) == 0
    capsys.readouterr()


def test_a_set_without_held_out_pages_is_refused_before_any_training(fails, model, page):
    said = fails("train", *SHORT, "--model", model, "--pages", f"folder:{page.parent}")
    assert "no heldout pages" in said and "--no-eval" in said
    assert not list(page.parent.glob("outputs/*/*.jsonl"))


def test_a_model_that_cannot_be_had_fails_in_one_sentence(here):
    words = [
        sys.executable,
        "-m",
        "vclib",
        "train",
        "--model",
        "Qwen/Qwen3.5-9B",
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
        (["render", "x" * 5000], "File name too long"),
        (["serve", "--pages", f"folder:{'x' * 5000}"], "File name too long"),
        (["serve", "--pages", "folder:~no-such-user/x"], "no folder '~no-such-user/x'"),
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


def test_a_server_answers_the_requests_that_its_help_shows(here, capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    reset = re.search(r'8001(/reset\S+)"', shown)[1]
    step = re.search(r"-d '(.*)'", shown)[1]
    words = [sys.executable, "-m", "vclib", "serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().split(" at ")[1].split()[0]
        with httpx.Client(base_url=url, trust_env=False) as client:
            begun = client.post(reset).json()["session_id"]
            body = json.loads(re.sub('SESSION_ID[^"]*', begun, step))
            assert 0 <= client.post("/step", json=body).json()["reward"] <= 1
            assert client.get("/").headers["location"] == "/docs"
            described = client.get("/openapi.json").json()["info"]["version"]
            assert described == client.get("/health").json()["version"]
        server.terminate()


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


def test_render_says_what_of_a_tall_page_was_not_seen(here, capsys):
    (here / "tall.html").write_text(PAGE.replace("<h1", "<div style='height:500px'></div><h1"))
    assert main(["render", "tall.html", "--reference", "tall.html"]) == 0
    said = re.search(
        r"scored: the top 192 of (\d+) px; (--height \1) for all", capsys.readouterr().out
    )
    assert main(["render", "tall.html", *said[2].split()]) == 0
    assert "for all" not in capsys.readouterr().out


def test_saved_adapters_have_no_empty_card_and_name_the_projects_model_by_its_place(here):
    Policy.load(TINY, lora=LoraSettings(r=2), device="cpu").save_adapters(here / "adapters")
    assert not list(here.rglob("README.md"))
    assert all(str(ROOT) not in path.read_text() for path in here.rglob("*.json"))
    assert find_adapters(here / "adapters").model == str(TINY)


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
    assert re.search(r"^FAIL +model .*no-model\n +give --model", out, re.MULTILINE)
    assert "Missing: browser, model." in out
