"""A one-turn GRPO step of this trainer, against one of TRL's GRPOTrainer.

    python benchmarks/trl_step.py [--k 8] [--pages 1] [--tokens 64] [--rounds 8]

Both train the same small model with the same adapter on the same pages, prompts, K and limit of
new tokens, with the same browser and reward, in one process; a step of one, then a step of the
other. The limit is below the length of a page, so that nearly every completion has that length.
A step is all of it: prompts, generation, rendering and scoring, loss, gradient, optimizer.
Needs `trl` and `datasets`: pip install -e '.[dev]'.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import torch
from measure import flags, machine, note, ratio
from PIL import Image

from vclib.env.environment import WebPageEnv
from vclib.policy import prompts
from vclib.policy.model import Policy
from vclib.rl.profiles import PROFILES, TrainSettings
from vclib.rl.trainer import Trainer
from vclib.rl.update import Update

try:
    from datasets import Dataset
    from huggingface_hub import constants
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed; run: pip install -e '.[dev]'")

LINE = 1.2
PLAIN: dict[str, Any] = {
    "beta": 0.0,
    "gradient_checkpointing": False,
    "disable_dropout": True,
    "bf16": False,
    "use_cpu": True,
    "chat_template_kwargs": {"enable_thinking": False},
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
}
"""What TRL is told so that it does as this trainer does, on a CPU, and writes nothing."""


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, rounds=8)
    parser.add_argument("--pages", type=int, default=1, help="pages in a step, default 1")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens at most, default 64")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    constants.HF_HUB_DISABLE_TELEMETRY = True
    print(machine())
    with tempfile.TemporaryDirectory() as folder, WebPageEnv("blocks") as env:
        settings = PROFILES["laptop"].but(
            model=options.model,
            phase="developer",
            episodes=options.rounds + 2,
            max_steps=1,
            k_rollouts=options.k,
            pages_per_update=options.pages,
            developer_tokens=options.tokens,
            checkpoint_every=10_000,
            trackers=(),
            output=folder,
            device="cpu",
        )
        theirs = trl_trainer(settings, env, options.rounds + 1)
        with Trainer(settings, env) as ours:
            race = Race(ours.run())
            theirs.remove_callback(PrinterCallback)  # it prints a dictionary a step
            theirs.add_callback(race)
            theirs.train()
    report(race, options)


def report(race: Race, options: argparse.Namespace) -> None:
    """Print medians over the rounds after the first, and their ratio."""
    lengths = {"this trainer": race.lengths[1:], "TRL": race.their_lengths[1:]}
    seconds = {"this trainer": race.ours[1:], "TRL": race.theirs[1:]}
    print(
        f"{options.pages} pages x K = {options.k}, at most {options.tokens} new tokens, "
        f"{options.rounds} rounds"
    )
    for name, spent in seconds.items():
        print(
            f"{name:13} {median(spent):6.3f} s a step (median), "
            f"{mean(lengths[name]):5.1f} tokens a completion"
        )
    # A silent group is not scored, so its step lacks that stage.
    names = dict.fromkeys(name for row in race.stages for name in row)
    stages = {name: median(row.get(name, 0.0) for row in race.stages[1:]) for name in names}
    print("this trainer, by stage:", ", ".join(f"{n} {s:.3f} s" for n, s in stages.items()))
    print(f"Ratio of steps/s: {ratio(seconds['TRL'], seconds['this trainer'])}", end="")
    print(f"; the line is {LINE:g}x")


class Race(TrainerCallback):
    """Takes a step of ours before each of TRL's, and the time of both."""

    def __init__(self, run: Iterator[Update]) -> None:
        self.run = run
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self.lengths: list[float] = []
        self.their_lengths: list[float] = []
        self.stages: list[dict[str, float]] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """One update of this trainer; then TRL's time begins."""
        began = time.perf_counter()
        update = next(self.run)
        self.start = time.perf_counter()
        self.ours.append(self.start - began)
        self.lengths.append(update.lengths["developer"])
        self.stages.append(update.seconds)

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """TRL's time ends."""
        self.theirs.append(time.perf_counter() - self.start)
        note(f"step {len(self.ours)}: ours {self.ours[-1]:.2f} s, TRL {self.theirs[-1]:.2f} s")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Keep the mean length of TRL's completions."""
        if logs and "completions/mean_length" in logs:
            self.their_lengths.append(float(logs["completions/mean_length"]))


def trl_trainer(settings: TrainSettings, env: WebPageEnv, steps: int) -> GRPOTrainer:
    """TRL's trainer on the same pages, a row of its data set for each, with the same reward."""
    policy = Policy.load(settings.model, device="cpu")
    policy.train_only("developer")
    rows = []
    for cursor in range(steps * settings.pages_per_update):
        seen = env.reset(difficulty=settings.difficulty, seed=cursor, max_steps=1)
        env.close_session(seen.session_id)
        question = [{"role": "user", "content": prompts.WRITE}]
        picture = Image.fromarray(seen.screenshot)
        rows.append({"prompt": question, "image": picture, "page": seen.page_id})

    def reward(completions: Any, page: list[str], **_: Any) -> list[float]:
        sessions = [env.reset(page_id=name, max_steps=1).session_id for name in page]
        texts = [completion[0]["content"] for completion in completions]
        return [
            float(seen.reward) for seen in env.step_many(list(zip(texts, sessions, strict=True)))
        ]

    config = GRPOConfig(
        output_dir=settings.output,
        per_device_train_batch_size=settings.k_rollouts * settings.pages_per_update,
        num_generations=settings.k_rollouts,
        max_steps=steps,
        max_completion_length=settings.developer_tokens,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        loss_type="grpo",
        shuffle_dataset=False,
        **PLAIN,
    )
    return GRPOTrainer(
        model=policy.model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.processor,
    )


if __name__ == "__main__":
    main()
