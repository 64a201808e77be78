"""Flags, their help, and what is said of bad ones."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vclib.cli import main, parse
from vclib.flags import VERBS, pretrain_defaults
from vclib.paths import ROOT, TINY
from vclib.rl.pretrain import PretrainSettings
from vclib.rl.profiles import PROFILES
from vclib.settings import (
    announcement,
    default_profile,
    eval_settings,
    evaluation_of,
    next_free,
    train_settings,
)


def settings_of(*words):
    return train_settings(parse(["train", *words]))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb, here, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"usage: python -m vclib {verb}" in text
    assert f"  python -m vclib {verb}" in text.partition("example")[2]
    assert max(map(len, text.splitlines())) <= 100


def test_help_lists_the_verbs(here, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert all(f"  {verb} " in text for verb in VERBS)


def test_help_of_train_shows_the_defaults_of_every_profile(here, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    laptop, ci = PROFILES["laptop"], PROFILES["ci"]
    assert f"ci {ci.episodes_per_phase}, laptop {laptop.episodes_per_phase}" in text
    for flag in ("--partner", "--advantage", "--resume-from", "--checkpoint-dir", "--env-url"):
        assert flag in text


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom vclib.cli import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'scipy', 'cv2'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["train", "--phase", "both"],
            "'both' is not one of developer, critic, alternate, combined",
        ),
        (["train", "--profile", "big"], "'big' is not one of ci, laptop, t4, gpu"),
        (["train", "--partner", "old"], "'old' is not one of latest, base"),
        (["train", "--advantage", "x"], "'x' is not one of flat, per_turn, dr_grpo, rloo"),
        (["train", "--env", "remote"], "'remote' is not one of inprocess, http"),
        (["train", "--episodes", "0"], "'0' is not a whole number of 1 or more"),
        (["train", "--k-rollouts", "four"], "'four' is not a whole number of 2 or more"),
        (["train", "--k-rollouts", "1"], "'1' is not a whole number of 2 or more"),
        (["train", "--episodes", "3"], "--episodes-per-phase and --num-phases"),
        (["train", "--phase", "critic", "--num-phases", "3"], "Phase critic has --episodes,"),
        (["train", "--learning-rate", "nan"], "'nan' is not a number"),
        (["train", "--episode", "3"], "unknown argument --episode, did you mean --episodes?"),
        (["train", "--max-steps", "1"], "max_steps must be at least 2"),
        (["eval", "--decodings", "sampled,beam"], "'beam' is not one of sampled, greedy"),
        (["eval", "--split", "test"], "'test' is not one of heldout, train"),
        (["trian"], "did you mean train?"),
        (["dance"], "expected one of train, eval, render"),
        (["--phase", "developer"], "unknown argument --phase"),
        (["render"], "FILE.html"),
    ],
)
def test_a_bad_word_gets_one_sentence_that_names_what_is_allowed(words, says, fails):
    assert says in fails(*words)


def test_no_words_at_all_print_the_help(here, capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "verbs:" in capsys.readouterr().out


def test_a_flag_wins_over_the_profile_and_the_rest_is_the_profiles(here):
    got = settings_of("--phase", "developer", "--episodes", "3", "--k-rollouts", "4")
    assert got == PROFILES["laptop"].but(
        phase="developer", episodes=3, k_rollouts=4, run="laptop-1"
    )


def test_environment_variables_are_defaults_that_a_flag_wins_over(here, monkeypatch):
    monkeypatch.setenv("TRAIN_MODEL", "some/model")
    monkeypatch.setenv("CHECKPOINT_DIR", "elsewhere")
    monkeypatch.setenv("TRAIN_SERVER_PORT", "8123")
    got = settings_of("--profile", "laptop", "--env", "http")
    assert (got.model, got.checkpoint_dir) == ("some/model", "elsewhere")
    assert got.env_url == "http://127.0.0.1:8123"
    assert parse(["serve"]).port == 8123
    got = settings_of("--profile", "laptop", "--model", "other", "--checkpoint-dir", "here")
    assert (got.model, got.checkpoint_dir) == ("other", "here")
    assert parse(["serve", "--port", "9000"]).port == 9000


def test_a_run_without_a_name_takes_the_next_free_number(here):
    for taken in ("ci-1", "ci-2"):
        (here / "outputs" / taken).mkdir(parents=True)
    assert settings_of("--profile", "ci").run == "ci-3"
    assert settings_of("--profile", "ci", "--run-name", "mine").run_folder == Path("outputs/mine")
    assert next_free(Path("outputs"), "eval") == Path("outputs/eval-1")


def test_a_run_is_announced_with_what_to_expect_of_the_small_model(here):
    said = announcement(settings_of("--phase", "developer", "--episodes", "1", "--max-steps", "1"))
    assert "1 update, phase developer" in said and "up to 1 draft each" in said
    assert "reads no others" not in said
    assert "reads no others" in announcement(settings_of("--pages", "web"))


def test_the_checkpoint_in_the_help_of_eval_is_one_that_the_profile_writes(here, capsys):
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    update = int(re.search(r"update-(\d+)", capsys.readouterr().out)[1])
    assert PROFILES["laptop"].phase_at(update - 1)[2]


@pytest.mark.parametrize(
    "words", [["train"], ["eval"], ["render", "x.html"], ["serve"], ["figures"], ["doctor"]]
)
def test_a_python_without_the_packages_is_told_which_command_has_them(words):
    bare = [sys.executable, "-S", "-m", "vclib", *words]
    done = subprocess.run(bare, capture_output=True, text=True, cwd=ROOT)
    there = (ROOT / ".venv" / "bin" / "python").exists()
    helps = f"run `.venv/bin/python -m vclib {' '.join(words)}`" if there else "run `make setup`"
    if words == ["doctor"]:
        assert done.returncode == 1 and done.stdout.count(helps) >= 3
        assert "Missing: packages, torch, browser." in done.stdout
    else:
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert "this Python lacks the package" in line and helps in line


def test_the_profile_follows_the_model():
    assert default_profile(None) == default_profile(str(TINY)) == "laptop"
    assert default_profile("Qwen/Qwen3.5-9B") in ("gpu", "t4")


def test_the_evaluation_after_a_run_plays_as_the_run_did():
    got = evaluation_of(PROFILES["laptop"], 12)
    assert got.split == "heldout" and got.count == 12
    assert (got.max_steps, got.temperature) == (2, PROFILES["laptop"].temperature)
    assert got.loops == ("alone", "critic")
    one_draft = PROFILES["laptop"].but(phase="developer", max_steps=1)
    assert evaluation_of(one_draft, 12).loops == ("alone",)


def test_without_adapters_only_the_base_model_is_evaluated():
    got = eval_settings(parse(["eval", "--count", "5", "--loops", "critic,alone"]), None)
    assert (got.policies, got.loops, got.count) == (("base",), ("alone", "critic"), 5)


def test_flags_of_pretrain_default_to_its_settings(here):
    settings = PretrainSettings(output="here")
    assert {"output": "here", **pretrain_defaults()} == dataclasses.asdict(settings)
    flags = parse(["pretrain"])
    assert (flags.steps, flags.batch_size) == (settings.steps, settings.batch_size)
