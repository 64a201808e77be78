"""What each verb of the command line does."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from vclib.errors import VclibError
from vclib.paths import DATA, TINY, in_project, program


def run_train(flags: argparse.Namespace, command: str) -> int:
    """Train; then evaluate and report, unless the run was stopped."""
    from vclib import settings as choose

    settings = choose.train_settings(flags)
    # One of several processes speaks; torchrun and accelerate number them so.
    if os.environ.get("RANK", "0") == "0":
        print(choose.announcement(settings), flush=True)
    from vclib.console import quieten, show_updates
    from vclib.rl.evaluate import choose_pages
    from vclib.rl.report import EVALUATION, REPORT, idle_updates, write_report
    from vclib.rl.trainer import Trainer

    quieten(settings.model)

    folder = settings.run_folder
    with Trainer(settings) as trainer:
        evaluation = choose.evaluation_of(settings, choose.eval_pages(flags))
        if not flags.no_eval:
            try:
                choose_pages(trainer.env.pages, evaluation)
            except VclibError as error:
                raise VclibError(f"{error}; --no-eval trains without an evaluation.") from error
        if not trainer.accelerator.is_main_process:
            for _ in trainer.run():
                pass
            return 0 if trainer.finished else 130
        if trainer.done:
            print(f"It goes on after {trainer.checkpoint_path}.", flush=True)
        if settings.overwrite and not settings.resume_from:
            shutil.rmtree(folder / EVALUATION, ignore_errors=True)
            (folder / REPORT).unlink(missing_ok=True)
        _note(command, folder, fresh=settings.overwrite)
        try:
            show_updates(trainer.run(), trainer.done, settings.total_updates)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"interrupted. {trainer.how_to_go_on}") from error
        if not trainer.finished:
            print(f"Stopped after update {trainer.done} of {settings.total_updates}.")
            if trainer.checkpoint_path:
                resume = f"{program()} train --resume-from {_word(trainer.checkpoint_path)}"
                print(f"It is saved. Go on with:\n  {resume}")
            return 130
        print(f"Trained adapters: {trainer.checkpoint_path}", flush=True)
        if idle := idle_updates(folder):
            print(idle, flush=True)
        if not flags.no_eval:
            about = {"model": settings.model, "adapters": trainer.checkpoint_path}
            try:
                if trainer.told_to_stop:
                    raise KeyboardInterrupt
                _evaluate(trainer.policy, trainer.env, evaluation, folder, about)
            except (Exception, KeyboardInterrupt) as error:
                stopped = isinstance(error, KeyboardInterrupt)
                ended = "Interrupted" if stopped else "The evaluation failed"
                print(f"{ended}. The training is saved; to evaluate it:", file=sys.stderr)
                run = _word(folder)
                again = f"eval --adapters {run} --output {run} --count {evaluation.count}"
                print(f"  {program()} {again}", file=sys.stderr)
                print(f"Report: {write_report(folder)}")
                if stopped:
                    return 130
                raise
    print(f"Report: {write_report(folder)}")
    return 0


def run_eval(flags: argparse.Namespace, command: str) -> int:
    """Play held-out pages with the base model and the adapters; print a table, write a report."""
    from vclib import settings as choose
    from vclib.rl.report import EVALUATION, write_report
    from vclib.rl.results_file import FILE
    from vclib.rl.run_folder import make_ready, next_free

    adapters = choose.find_adapters(flags.adapters) if flags.adapters else None
    settings = choose.eval_settings(flags, adapters)
    folder = flags.output or next_free(Path("outputs"), "eval")
    if (folder / EVALUATION / FILE).exists() and not flags.overwrite:
        raise VclibError(
            f"{folder} already holds an evaluation: give another --output, or --overwrite."
        )
    make_ready(folder)
    model = flags.model or (adapters.model if adapters else str(TINY))
    import torch

    from vclib.console import quieten
    from vclib.policy.model import LoraSettings, Policy
    from vclib.rl.trainer import open_env

    quieten(model)
    if flags.threads:
        torch.set_num_threads(flags.threads)
    policy = Policy.load(
        model,
        lora=LoraSettings(adapters.r, adapters.alpha) if adapters else LoraSettings(),
        device=flags.device,
        adapters=adapters.folder if adapters else None,
    )
    about = {"model": model, "adapters": adapters.folder if adapters else "none"}
    with open_env(choose.environment_of(flags, settings), any_split=True) as env:
        _evaluate(policy, env, settings, folder, about)
    _note(command, folder)
    print(f"Report: {write_report(folder)}")
    return 0


def run_render(flags: argparse.Namespace, command: str) -> int:
    """Render a file; print what is seen of it, or its score against a reference."""
    from PIL import Image

    from vclib.console import columns
    from vclib.env.browser import Renderer
    from vclib.env.reward import WEIGHTS, score

    pages = [path for path in (flags.file, flags.reference) if path]
    htmls = [path.read_text(encoding="utf-8", errors="replace") for path in pages]
    with Renderer(flags.width, flags.height) as renderer:
        print(renderer.browser)
        renders = renderer.render_many(htmls)
    for path, render in zip(pages, renders, strict=True):
        if render.error:
            raise VclibError(f"{path} was not rendered: {render.error}.")
    shown = renders[0]
    if flags.out:
        Image.fromarray(shown.pixels).save(flags.out, format="PNG")
        print(f"Picture: {flags.out}")
    rows = [
        ["page height", f"{shown.page_height} px"],
        ["text blocks", str(len(shown.text_blocks))],
        ["boxes", str(len(shown.boxes))],
        ["blocked", ", ".join(shown.blocked) or "nothing"],
    ]
    if flags.reference:
        breakdown = score(renders[1], shown)
        rows = [["part", "score", "weight"]]
        for name, value in breakdown.parts.items():
            rows.append([name, "absent" if value is None else f"{value:.3f}", f"{WEIGHTS[name]:g}"])
        rows += [["gate", f"{breakdown.gate:.3f}", ""], ["reward", f"{breakdown.total:.3f}", ""]]
        if breakdown.reason:
            rows.append(["because", breakdown.reason, ""])
    print(columns(rows))
    if (tallest := max(render.page_height for render in renders)) > flags.height:
        seen = "seen and scored" if flags.reference else "seen"
        print(f"{seen}: the top {flags.height} of {tallest} px; --height {tallest} for all")
    return 0


def run_serve(flags: argparse.Namespace, command: str) -> int:
    """Serve the environment until told to stop."""
    from vclib.env.server import serve

    serve(flags.host, flags.port, flags.pages, flags.split, flags.max_steps)
    return 0


def run_pretrain(flags: argparse.Namespace, command: str) -> int:
    """Make the small model; its folder also gets the log and the settings."""
    from vclib.console import quieten, show_pretraining
    from vclib.rl.pretrain import PretrainSettings, pretrain

    quieten()
    settings = PretrainSettings(
        output=str(flags.output),
        steps=flags.steps,
        batch_size=flags.batch_size,
        seed=flags.seed,
        threads=flags.threads,
    )
    steps = pretrain(settings, resume=flags.resume, overwrite=flags.overwrite)
    show_pretraining(steps, settings.steps)
    print(f"Model: {flags.output}")
    return 0


def run_figures(flags: argparse.Namespace, command: str) -> int:
    """Draw the figures of stored runs into a folder."""
    from vclib.rl.redraw import draw_figures, is_run, runs_in

    stored = DATA / "runs"
    runs = flags.runs or runs_in(stored)
    for run in runs:
        if not is_run(run):
            raise VclibError(f"{run} holds no run: neither a train.jsonl nor eval/eval.json.")
    if not runs:
        raise VclibError(
            f"No stored runs in {stored}; name a run's folder: "
            "`python -m vclib figures outputs/laptop-1`."
        )
    for run in runs:
        for path in draw_figures(run, flags.output / run.name):
            print(path)
    return 0


def run_export(flags: argparse.Namespace, command: str) -> int:
    """Write trained adapters for others to a new folder; push it, if asked to."""
    from vclib import settings as choose
    from vclib.console import quieten
    from vclib.policy.export import export, push
    from vclib.policy.model import LoraSettings, Policy
    from vclib.rl.run_folder import make_ready, next_free

    adapters = choose.find_adapters(flags.adapters)
    folder = flags.output or next_free(Path("outputs"), "export")
    if folder.exists() and any(folder.iterdir()):
        raise VclibError(f"{folder} is not empty: give another --output.")
    make_ready(folder)
    quieten(adapters.model)
    policy = Policy.load(
        adapters.model,
        lora=LoraSettings(adapters.r, adapters.alpha),
        device=flags.device,
        adapters=adapters.folder,
    )
    export(
        policy,
        folder,
        base=in_project(adapters.model),
        name=flags.push,
        merge=flags.merge,
        facts=choose.card_facts(adapters),
        results=_results_of(flags.adapters, adapters.folder),
    )
    print(f"Export: {folder}")
    if flags.push:
        print(f"Pushed: {push(folder, flags.push, private=flags.private)}")
    return 0


def run_doctor(flags: argparse.Namespace, command: str) -> int:
    """Check this machine; 1 if something that is needed is missing."""
    from vclib.doctor import examine, line

    missing = []
    for check in examine(flags.model):
        print(line(check), flush=True)
        if check.needed and not check.fine:
            missing.append(check.name)
    print(f"Missing: {', '.join(missing)}." if missing else "Everything that is needed is here.")
    return int(bool(missing))


def _evaluate(policy: Any, env: Any, settings: Any, folder: Path, about: dict[str, Any]) -> None:
    from vclib.console import evaluation_bar
    from vclib.rl.evaluate import choose_pages, evaluate, table
    from vclib.rl.report import EVALUATION, headline
    from vclib.rl.results import shown_pages
    from vclib.rl.results_file import save
    from vclib.rl.runlog import package_versions

    pages = choose_pages(env.pages, settings)
    with evaluation_bar(settings, len(pages)) as progress:
        evaluation = evaluate(policy, env, pages, settings, progress)
    named = {key: in_project(value) for key, value in about.items()}
    evaluation.about |= named | {"packages": package_versions()}
    save(evaluation, folder / EVALUATION, list(shown_pages(evaluation)))
    print(table(evaluation))
    if found := headline(evaluation):
        print(f"\n{found.title}.\n{found.sentences[0]}")


def _results_of(run: Path, adapters: Path) -> str:
    """The table of a run's evaluation, if it has one and it is of these adapters; else nothing."""
    from vclib.rl.evaluate import table
    from vclib.rl.report import EVALUATION
    from vclib.rl.results_file import FILE, load

    if not (run / EVALUATION / FILE).is_file():
        return ""
    evaluation = load(run / EVALUATION)
    same = adapters.parent.name in Path(str(evaluation.about.get("adapters", ""))).parts
    return table(evaluation) if same else ""


def _word(path: Path) -> str:
    return shlex.quote(str(path))


def _note(command: str, folder: Path, *, fresh: bool = False) -> None:
    """Add the command to the run's commands.txt, for the report."""
    from vclib.rl.report import COMMANDS

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / COMMANDS).open("w" if fresh else "a", encoding="utf-8") as file:
        file.write(command + "\n")
