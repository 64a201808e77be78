"""The flags of every verb, with their help."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vclib.arguments import Flags, number, one_of, pretrain_defaults, several_of
from vclib.paths import TINY

VERBS = {
    "train": "train the agents, evaluate them on held-out pages, write a report",
    "eval": "compare base and trained on held-out pages",
    "render": "render an HTML file and score it against a reference",
    "serve": "offer the environment as a server",
    "pretrain": "make the small model again",
    "figures": "draw the figures of stored runs again",
    "export": "write trained adapters for others, or push them to the hub",
    "doctor": "check this machine",
}
PORT = 8000
EVAL_PAGES = 60
PAGE_SETS = (
    "blocks, web, websight or folder:PATH: the HTML files below it, by size in thirds easy, medium "
    "and hard, a fifth of each held out"
)

PHASES = one_of("developer", "critic", "alternate", "combined")
DIFFICULTY = one_of("easy", "medium", "hard", "mixed")
ENV = one_of("inprocess", "http")
COUNT, SEED = number(int, 1, high=10**6), number(int, 0, high=2**63 - 1)
GROUP, THREADS, REAL = number(int, 2, high=10**6), number(int, 1, high=4096), number(float, 0, "X")
ABOVE_ZERO = number(float, 1e-12, "X")
PATH: dict[str, Any] = {"type": Path, "metavar": "PATH"}
NAME: dict[str, Any] = {"metavar": "NAME"}
ON: dict[str, Any] = {"action": "store_true"}
SWITCH: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
SEES = "a revision sees the page's screenshot again, not the critique alone"
URLS: dict[str, Any] = {"action": "append", "metavar": "URL"}
SERVERS = "the server, for --env http; several, each with a flag of its own, share the work"


def train_flags(parser: argparse.ArgumentParser) -> None:
    from vclib.rl.profiles import PROFILES
    from vclib.rl.returns import VARIANTS

    add = Flags(parser, PROFILES)
    add.about(
        "Train the two agents' adapters by GRPO on rendered pages, then compare base and trained "
        "on held-out pages and write OUTPUT/RUN/report.html. Ctrl-C finishes the update, saves, "
        "and prints the command that goes on.",
        """examples:
  python -m vclib train
      the small model through alternating phases, on this machine
  python -m vclib train --phase developer --episodes 3 --k-rollouts 4
  python -m vclib train --profile gpu --model Qwen/Qwen3.5-9B --pages web
  python -m vclib train --resume-from outputs/laptop-1
      goes on with that run's settings; flags given beside it override them

Values in brackets are defaults, by profile where they differ.

environment variables: TRAIN_MODEL (--model), CHECKPOINT_DIR (--checkpoint-dir),
TRAIN_SERVER_PORT (--env-url http://127.0.0.1:PORT), VCLIB_CHROMIUM (the browser). A flag wins.""",
    )
    add.group("what is trained")
    add(
        "--profile",
        "the table of defaults",
        shown="laptop for the small model; for another --model gpu, or t4 on a card with less "
        "than 24 GB or without bf16",
        **one_of(*PROFILES),
    )
    add("--phase", "who is trained; alternate takes turns", **PHASES)
    add("--episodes", "updates, where there is one phase", **COUNT)
    add("--episodes-per-phase", "updates in each phase of alternate", **COUNT)
    add("--num-phases", "phases of alternate, the Developer's first", **COUNT)
    add("--k-rollouts", "episodes on the same page, compared with each other", **GROUP)
    add("--pages-per-update", "pages (groups of K episodes) in one update", **COUNT)
    add("--max-steps", "Developer turns in an episode, at most", **COUNT)
    add("--revision-screenshot", SEES, **SWITCH)
    add("--partner", "adapter of the agent that is not trained", **one_of("latest", "base"))

    add.group("model and pages")
    add("--model", "folder or hub name of a Qwen3.5 with vision", **NAME, **_from("TRAIN_MODEL"))
    add("--pages", PAGE_SETS, **NAME)
    add("--difficulty", "of the pages", **DIFFICULTY)
    add("--env", "where pages are rendered and scored", **ENV)
    add("--env-url", SERVERS, shown=server_url(), **URLS)

    add.group("learning")
    add("--advantage", "how the returns of a group are compared", **one_of(*VARIANTS))
    add("--lambda-shaped", "weight of what a turn still gains, in its return", **REAL)
    add("--learning-rate", "of AdamW", **ABOVE_ZERO)
    add("--temperature", "of sampling and scoring", **ABOVE_ZERO)
    add("--loss-aggregation", "the loss is a mean over these", **one_of("turn", "token", "limit"))
    add("--epochs-per-batch", "optimizer steps on the same episodes", **COUNT)
    add("--clip-ratio", "bound of the probability ratio, for several epochs", **ABOVE_ZERO)
    add("--kl-beta", "weight of the divergence from the base model", **REAL)
    add("--developer-tokens", "new tokens in a Developer turn, at most", **COUNT)
    add("--critic-tokens", "new tokens in a Critic turn, at most", **COUNT)

    add.group("machine")
    add("--seed", "adapters, pages, sampling and dropout derive from it", **SEED)
    add("--device", "cpu, cuda, or auto", **NAME)
    add("--dtype", "of the weights", **one_of("auto", "float32", "bfloat16", "float16"))
    add("--threads", "threads of torch", shown="torch's own choice", **THREADS)
    add("--token-budget", "tokens in a micro-batch; less needs less memory", **COUNT)

    add.group("files")
    add("--output", "folder of the run folders", metavar="PATH")
    add("--run-name", "folder of this run in it", shown="PROFILE-1, PROFILE-2, ...", **NAME)
    add("--checkpoint-dir", "", shown="RUN/checkpoints", metavar="PATH", **_from("CHECKPOINT_DIR"))
    add("--checkpoint-every", "updates between checkpoints; a phase's end has one too", **COUNT)
    add("--resume-from", "a checkpoint, or a run's folder: its newest one", metavar="PATH")
    add("--overwrite", "start afresh in a folder that holds a run", **ON)

    add.group("afterwards")
    add("--no-eval", "do not evaluate; the report has the curves alone", default=False, **ON)
    add("--eval-pages", "held-out pages to evaluate on", shown=f"{EVAL_PAGES}, ci 6", **COUNT)


def eval_flags(parser: argparse.ArgumentParser) -> None:
    from vclib.rl.profiles import PROFILES
    from vclib.rl.results import DECODINGS, LOOPS, EvalSettings

    default, own = EvalSettings(), "the adapters' run's own, else {}"
    phase_end = f"outputs/laptop-1/checkpoints/update-{PROFILES['laptop'].episodes_per_phase:06d}"
    add = Flags(parser)
    add.about(
        "Play the same held-out pages with the base model and with trained adapters: the Developer "
        "alone (as many turns, no critique) and with the Critic, sampled and greedy. Prints "
        "rewards with 95 % bootstrap intervals over pages, paired for differences; writes "
        "OUTPUT/eval/eval.json and OUTPUT/report.html.",
        f"""examples:
  python -m vclib eval --adapters outputs/laptop-1
  python -m vclib eval --adapters {phase_end} --count 30
  python -m vclib eval --model Qwen/Qwen3.5-9B --pages web
      the base model alone

environment variables: TRAIN_MODEL (--model), TRAIN_SERVER_PORT (--env-url), VCLIB_CHROMIUM.""",
    )
    add.group("who plays")
    shown = own.format("vc-tiny")
    add("--model", "folder or hub name", shown=shown, **NAME, **_from("TRAIN_MODEL"))
    add("--adapters", "a run, a checkpoint, or a folder of adapters", **PATH)
    add("--loops", "alone: revise without critique", default=LOOPS, **several_of(*LOOPS))
    add("--decodings", "", default=DECODINGS, **several_of(*DECODINGS))
    add("--max-steps", "drafts in an episode", shown=own.format(default.max_steps), **COUNT)
    add("--revision-screenshot", SEES, shown=own.format("no"), **SWITCH)
    add("--temperature", "", shown=own.format(default.temperature), **ABOVE_ZERO)
    for name in ("developer_tokens", "critic_tokens"):
        flag, shown = "--" + name.replace("_", "-"), own.format(getattr(default, name))
        add(flag, "in a turn, at most", shown=shown, **COUNT)
    add("--samples-per-page", "where sampled", default=default.samples_per_page, **COUNT)
    add("--seed", "of sampling and of the bootstrap", default=default.seed, **SEED)

    add.group("pages")
    add("--pages", "page set", shown=own.format(default.pages), **NAME)
    split = one_of("heldout", "train")
    add("--split", "train shows memory rather than skill", default=default.split, **split)
    add("--difficulty", "", default=default.difficulty, **DIFFICULTY)
    add("--count", "pages", default=default.count, **COUNT)

    add.group("machine")
    add("--env", "where pages are rendered and scored", default="inprocess", **ENV)
    add("--env-url", SERVERS, shown=server_url(), **URLS)
    shown = own.format(default.episodes_per_batch)
    add("--episodes-per-batch", "in step; fewer need less memory", shown=shown, **COUNT)
    add("--device", "cpu, cuda, or auto", default="auto", **NAME)
    add("--threads", "threads of torch", shown="torch's own choice", **THREADS)

    add.group("files")
    add("--output", "", shown="outputs/eval-1, outputs/eval-2, ...", **PATH)
    add("--overwrite", "replace an evaluation that OUTPUT holds", **ON)


def render_flags(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.about(
        "Render an HTML file as the environment does, and print what the reward sees of it; with "
        "a reference, score it part by part. Only the viewport, a page's top, is seen and scored.",
        """examples:
  python -m vclib render page.html --out page.png
  python -m vclib render draft.html --reference page.html""",
    )
    parser.usage = f"{parser.prog} FILE.html [FLAGS]"
    parser.add_argument("file", type=Path, metavar="FILE.html")
    parser.add_argument("--out", type=Path, metavar="FILE.png", help="where the picture goes")
    parser.add_argument("--reference", type=Path, metavar="REF.html", help="score against it")
    add("--width", "of the viewport, in pixels", default=256, **COUNT)
    add("--height", "of the viewport, in pixels", default=192, **COUNT)


def serve_flags(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.about(
        "Offer the environment over HTTP: an OpenEnv server, and POST /reset, /step, /render.",
        """examples:
  python -m vclib serve --pages web --port 8001
  curl -X POST "http://127.0.0.1:8001/reset?difficulty=easy"
  curl -X POST http://127.0.0.1:8001/step -H "Content-Type: application/json" \\
      -d '{"session_id": "SESSION_ID, from the answer to /reset", "html": "<h1>Sales</h1>"}'
  python -m vclib train --env http --env-url http://127.0.0.1:8001
      several servers share the work if --env-url is given for each

environment variables: TRAIN_SERVER_PORT (--port), VCLIB_CHROMIUM (the browser). A flag wins.""",
    )
    add("--pages", PAGE_SETS, default="blocks", **NAME)
    add("--split", "", default="train", **one_of("train", "heldout"))
    add("--max-steps", "steps in an episode, at most", default=5, **COUNT)
    host, port = "127.0.0.1", os.environ.get("TRAIN_SERVER_PORT") or str(PORT)
    add("--host", "address to listen on; any other lets others in", default=host, metavar="ADDRESS")
    add("--port", "", default=port, **number(int, 0, high=65535))


def pretrain_flags(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.about(
        "Make the small model: train a Qwen3.5 with vision of a few million parameters on pages "
        "that are generated as it goes.",
        """examples:
  python -m vclib pretrain --steps 20 --batch-size 4 --output outputs/pretrain-trial
  python -m vclib pretrain --output outputs/pretrain --resume""",
    )
    default = pretrain_defaults()
    add("--steps", "optimizer steps", default=default["steps"], **COUNT)
    add("--batch-size", "demonstrations in a step", default=default["batch_size"], **COUNT)
    add("--seed", "of weights and pages", default=default["seed"], **SEED)
    add("--threads", "threads of torch", default=default["threads"], **THREADS)
    add("--output", "folder of the model", default=Path("outputs/pretrain"), **PATH)
    add("--resume", "go on with what OUTPUT holds", **ON)
    add("--overwrite", "replace a model that OUTPUT holds", **ON)


def figures_flags(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.about(
        "Draw the figures of stored runs again from their logs, a folder each.",
        """examples:
  python -m vclib figures
  python -m vclib figures outputs/laptop-1 --output my-figures""",
    )
    parser.usage = f"{parser.prog} [RUN ...] [FLAGS]"
    runs = "folders with a train.jsonl or an evaluation"
    add("runs", runs, shown="all in data/runs", nargs="*", type=Path, metavar="RUN")
    add("--output", "", default=Path("docs/figures"), **PATH)


def export_flags(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.about(
        "Write trained adapters in peft's layout, or merged into a plain model, with a model card.",
        """examples:
  python -m vclib export outputs/laptop-1 --merge developer --output outputs/merged
  python -m vclib export outputs/laptop-1 --push owner/name""",
    )
    parser.usage = f"{parser.prog} ADAPTERS [FLAGS]"
    parser.add_argument("adapters", type=Path, metavar="ADAPTERS", help="a run or a checkpoint")
    add("--merge", "the agent whose adapter goes into the weights", **one_of("developer", "critic"))
    add("--output", "a new folder", shown="outputs/export-1, outputs/export-2, ...", **PATH)
    add("--push", "name on the hub, OWNER/MODEL", **NAME)
    add("--private", "on the hub, seen by its owner alone", **ON)
    add("--device", "cpu, cuda, or auto", default="auto", **NAME)


def doctor_flags(parser: argparse.ArgumentParser) -> None:
    add = Flags(parser)
    add.about(
        "Check what the course and the trainer need: packages, a browser that renders, the model, "
        "memory, disk, cores, a GPU. Says what to do where something is missing; the status is 1 "
        "if something needed is.",
        "example:\n  python -m vclib doctor --model Qwen/Qwen3.5-9B",
    )
    model = os.environ.get("TRAIN_MODEL") or str(TINY)
    add("--model", "folder or hub name", default=model, **NAME)


FLAGS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "train": train_flags,
    "eval": eval_flags,
    "render": render_flags,
    "serve": serve_flags,
    "pretrain": pretrain_flags,
    "figures": figures_flags,
    "export": export_flags,
    "doctor": doctor_flags,
}


def _from(variable: str) -> dict[str, Any]:
    """The default of a flag from the environment, if it is set there."""
    value = os.environ.get(variable)
    return {"default": value} if value else {}


def server_url() -> str:
    """Where `serve` listens, unless told otherwise."""
    return f"http://127.0.0.1:{os.environ.get('TRAIN_SERVER_PORT') or PORT}"
