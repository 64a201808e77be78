"""Numbers beyond reason, paths with spaces, what is written where, and what is left of a run."""

import re
import shlex
import subprocess
import sys

import pytest

from vclib.cli import main

SHORT = ["--profile", "ci", "--max-steps", "1", "--threads", "1", "--phase", "developer"]


@pytest.mark.parametrize(
    ("verb", "flag", "value"),
    [
        ("train", "--seed", 10**20),
        ("train", "--threads", 10**11),
        ("train", "--num-phases", 10**9),
        ("train", "--k-rollouts", 10**9),
        ("eval", "--count", 10**12),
        ("eval", "--seed", 10**20),
        ("serve", "--port", 65536),
        ("pretrain", "--threads", 10**11),
        ("pretrain", "--steps", "9" * 5000),
    ],
)
def test_a_number_beyond_reason_is_refused_at_once(fails, verb, flag, value):
    assert flag in fails(verb, flag, value)


def test_a_path_that_takes_no_files_is_refused_before_the_work(fails, here):
    (here / "file").write_text("")
    for output in ("file", "file/below"):
        said = fails("eval", "--model", "no model", "--output", output)
        assert "file" in said and "give another path" in said


def test_render_needs_no_torch(here):
    (here / "page.html").write_text("<!doctype html><h1>Sales</h1>")
    code = (
        "import sys; from vclib.cli import main; assert main(['render', 'page.html']) == 0; "
        "print({'torch', 'accelerate', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("set()\n"), done.stdout + done.stderr


def test_an_evaluation_goes_with_its_run_and_commands_are_words_of_a_shell(here, model, capsys):
    words = [
        "train",
        *SHORT,
        "--developer-tokens",
        "4",
        "--model",
        model,
        "--run-name",
        "my run",
        "--episodes",
    ]
    assert main([*words, "1", "--eval-pages", "2"]) == 0
    run = here / "outputs" / "my run"

    def compared():
        return "not compared on held-out pages" not in (run / "report.html").read_text()

    assert compared() and (run / "eval" / "eval.json").is_file()
    go_on = ["train", "--resume-from", str(run), "--episodes", "2", "--no-eval"]
    assert main(go_on) == 0
    assert not compared() and (run / "eval" / "eval.json").is_file()

    assert main([*words, "1", "--overwrite", "--no-eval"]) == 0
    assert not compared() and not (run / "eval").exists()
    capsys.readouterr()
    (run / "eval").write_text("in the way of an evaluation")
    main([*go_on[:-1], "--eval-pages", "2"])
    command = re.search(r"-m vclib (eval .*)", capsys.readouterr().err)[1]
    assert shlex.split(command)[1:5] == ["--adapters", str(run), "--output", str(run)]
