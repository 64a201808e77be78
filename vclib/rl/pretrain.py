"""Pre-training of vc-tiny on pages that are drawn as it goes.

Three jobs: write (screenshot → HTML), revise (last HTML, critique → HTML) and
criticise (reference, render or two → critique or DONE). The first part of the run trains the eyes
on careful pages alone, the second the hands: revisions, which see no screenshot, so that a word
can only be looked up in the critique. Then come all three jobs with uneven demonstrations, and
drafts that the model itself wrote, so that it learns from its own mistakes too.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import queue
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from vclib.env.sheet import Sheet
from vclib.env.synth import BlockPage, parse_html, to_html
from vclib.errors import VclibError
from vclib.policy import prompts, tiny
from vclib.rl import demonstrations as demos
from vclib.rl import examples as ex
from vclib.rl.checkpoint import replace_tensors
from vclib.rl.runlog import keep_lines


@dataclass(frozen=True)
class PretrainSettings:
    """What makes a checkpoint; with the code, it makes it again."""

    output: str
    steps: int = 3500
    batch_size: int = 16
    eyes: float = 0.3  # share of the steps on careful pages alone
    hands: float = 0.1  # and of the next on revisions alone
    job_shares: tuple[float, ...] = (0.25, 0.2, 0.55)  # write, revise, criticise, from then on
    own_draft_share: float = 0.4  # of drafts, once the model has written some
    own_drafts_every: int = 250  # steps
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.02
    warmup: int = 100
    decay: float = 0.2  # share of the steps over which the rate falls to nothing
    hidden: int = 192
    layers: tuple[str, ...] = ("full", "linear", "full", "full")
    vision_hidden: int = 128
    vision_depth: int = 3
    vocab_size: int = 768
    seed: int = 0
    threads: int = 1
    checkpoint_every: int = 100


def answer_loss(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
    """Mean cross-entropy over the answers' tokens, and the share of tokens predicted right."""
    labels = batch["labels"]
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    hidden = model.model(**inputs, use_cache=False).last_hidden_state[:, :-1]
    wanted = labels[:, 1:] != -100
    logits = model.lm_head(hidden[wanted])
    targets = labels[:, 1:][wanted]
    accuracy = (logits.argmax(-1) == targets).float().mean().item()
    return F.cross_entropy(logits, targets), accuracy


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by a Newton-Schulz iteration in fp32, for matrices.

    `torch.optim.Muon` iterates in bf16, which is many times slower on a CPU without bf16
    units. Jordan et al. (2024), with the step size of Liu et al. (2025), section 2.2.
    """

    def __init__(self, parameters: Any, lr: float, weight_decay: float, momentum: float = 0.95):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                buffer = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = _orthogonalise(parameter.grad.lerp(buffer, group["momentum"]))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-0.2 * group["lr"] * max(parameter.shape) ** 0.5)


def _orthogonalise(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def make_optimizers(model: Any, settings: PretrainSettings) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the rest."""
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        inside = "layers." in name or "blocks." in name or "merger." in name
        (matrices if inside and parameter.ndim == 2 else rest).append(parameter)
    rate, decay = settings.learning_rate, settings.weight_decay
    return [
        Muon(matrices, lr=rate, weight_decay=decay),
        torch.optim.AdamW(rest, lr=rate, weight_decay=decay, betas=(0.9, 0.98)),
    ]


def rate_at(step: int, settings: PretrainSettings) -> float:
    """Warm up, hold, then fall to a twentieth: a factor on the learning rate."""
    start = settings.steps * (1 - settings.decay)
    falling = max(0.0, (step - start) / (settings.steps - start))
    return min(1.0, (step + 1) / settings.warmup) * (1 - 0.95 * falling)


def train_tokenizer(seed: int, vocab_size: int) -> Any:
    """Train the tokenizer on pages, critiques and prompts."""
    rng = random.Random(f"tokenizer/{seed}")
    pages = [ex.draw(rng) for _ in range(4000)]
    texts = [to_html(page) for page in pages] + demos.corpus(pages, rng)
    words = [prompts.WRITE, prompts.REVISE, prompts.CRITICISE, prompts.CRITICISE_AGAIN]
    turns = ["user\n", "assistant\n", "\n\n"]
    return tiny.build_tokenizer(texts + words * 50 + turns * 200, vocab_size)


def pretrain(
    settings: PretrainSettings, *, resume: bool = False, overwrite: bool = False
) -> Iterator[dict[str, Any]]:
    """Pre-train and save a model to `settings.output`; yields one record of figures a step."""
    if not resume and not overwrite and Path(settings.output, "config.json").exists():
        raise VclibError(
            f"{settings.output} already holds a model: give another --output, --resume or "
            "--overwrite."
        )
    torch.set_num_threads(settings.threads)
    folder = Path(settings.output)
    state_file = folder / "training-state.pt"
    first = 0
    if resume:
        if not state_file.exists():
            raise VclibError(f"no {state_file} to resume from; leave --resume out to start anew")
        state = torch.load(state_file, weights_only=True)
        first = state["step"]
        processor, model = _load(folder)
        model.load_state_dict(state["model"])
        optimizers = make_optimizers(model, settings)
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = train_tokenizer(settings.seed, settings.vocab_size)
        processor = tiny.build_processor(tokenizer)
        config = tiny.tiny_config(
            tokenizer,
            hidden=settings.hidden,
            layers=settings.layers,
            vision_hidden=settings.vision_hidden,
            vision_depth=settings.vision_depth,
        )
        model = tiny.build_model(config, settings.seed)
        optimizers = make_optimizers(model, settings)
        processor.save_pretrained(folder)
    (folder / "pretrain.json").write_text(json.dumps(asdict(settings), indent=2) + "\n")
    log_file = folder / "pretrain.jsonl"
    keep_lines(log_file, lambda line: json.loads(line)["step"] < first)

    context = multiprocessing.get_context("spawn")
    batches, drafts = context.Queue(maxsize=32), context.Queue()
    all_jobs_from = int((settings.eyes + settings.hands) * settings.steps)
    wanted = {
        "eyes_until": int(settings.eyes * settings.steps),
        "hands_until": all_jobs_from,
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "job_shares": settings.job_shares,
        "own_draft_share": settings.own_draft_share,
        "out": batches,
        "drafts_in": drafts,
    }
    producer = context.Process(
        target=ex.produce, args=(first, settings.steps), kwargs=wanted, daemon=True
    )
    producer.start()
    began, step = time.perf_counter(), first
    try:
        with log_file.open("a") as log:
            while (examples := _next(batches, producer)) is not None and step < settings.steps:
                record = _one_step(model, optimizers, processor, examples, step, settings)
                record["seconds"] = round(time.perf_counter() - began, 1)
                log.write(json.dumps(record) + "\n")
                log.flush()
                step += 1
                yield record
                all_jobs = all_jobs_from <= step < settings.steps
                if all_jobs and (step % settings.own_drafts_every == 0 or step == first + 1):
                    drafts.put(own_drafts(model, processor, step))
                if step % settings.checkpoint_every == 0 or step == settings.steps:
                    _save(folder, state_file, model, optimizers, step)
    finally:
        producer.terminate()
        producer.join()


def _next(batches: Any, producer: Any) -> list[ex.Example] | None:
    while True:
        try:
            return batches.get(timeout=5)
        except queue.Empty:
            if not producer.is_alive():
                raise VclibError(
                    "the process that draws the pages has ended (killed, or out of memory); go on "
                    "with --resume"
                ) from None


def _one_step(
    model: Any,
    optimizers: list[torch.optim.Optimizer],
    processor: Any,
    examples: list[ex.Example],
    step: int,
    settings: PretrainSettings,
) -> dict[str, Any]:
    model.train()
    factor = rate_at(step, settings)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * factor
    loss, accuracy = answer_loss(model, ex.collate(examples, processor))
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    if not math.isfinite(norm):
        raise VclibError(f"the gradient is not finite at step {step}; lower --learning-rate")
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return {
        "step": step,
        "job": examples[0].job,
        "loss": round(loss.item(), 4),
        "accuracy": round(accuracy, 4),
        "grad_norm": round(norm, 3),
    }


@torch.no_grad()
def own_drafts(
    model: Any, processor: Any, seed: int, count: int = 128
) -> list[tuple[BlockPage, str]]:
    """Pages with drafts that the model writes for them now, where they can be read as pages."""
    rng = random.Random(f"own/{seed}")
    model.eval()
    sheet = Sheet()
    try:
        plans = [ex.Plan("write", ex.draw(rng), "") for _ in range(count)]
        batch = ex.collate(ex.draw_examples(plans, sheet), processor)
    finally:
        sheet.close()
    keep = batch["input_ids"].shape[1] - 1
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    for key in ("input_ids", "attention_mask", "mm_token_type_ids"):
        inputs[key] = inputs[key][:, :keep]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        ids = model.generate(**inputs, max_new_tokens=140, do_sample=True, temperature=0.9)
    texts = processor.tokenizer.batch_decode(ids[:, keep:], skip_special_tokens=True)
    pairs = [(plan.reference, text) for plan, text in zip(plans, texts, strict=True)]
    return [(page, text) for page, text in pairs if parse_html(text)]


def _save(folder: Path, state_file: Path, model: Any, optimizers: Any, step: int) -> None:
    """The model for its users, and one file that a resumed run takes all of its state from."""
    aside = folder / ".saving"
    model.save_pretrained(aside)
    for path in aside.iterdir():
        os.replace(path, folder / path.name)
    aside.rmdir()
    states = [optimizer.state_dict() for optimizer in optimizers]
    replace_tensors(state_file, {"step": step, "model": model.state_dict(), "optimizers": states})


def _load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoProcessor, Qwen3_5ForConditionalGeneration

    model = Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return AutoProcessor.from_pretrained(folder), model
