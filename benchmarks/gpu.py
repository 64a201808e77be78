"""What a GPU makes of models of the real shapes, with random weights.

    python benchmarks/gpu.py [--sizes 2B 9B] [--batches 1 8 32 64] [--new-tokens 512]

Measured for each size, on 640x480 screenshots: tokens a second of decoding, against the floor that
reading weights and cache once a token sets; tokens a second of the update, and its share of the
matrix products that this GPU does; peak memory with K = 4 and 8 and five turns, beside what
`vclib.rl.memory` plans; and one update of each agent, browser and reward included.
Weights are random and need no download; nothing measured depends on their values.
Without a GPU it says so, and runs a small shape on the CPU to show that the program works; its
memory there is the process's resident memory, which holds what the allocator has not given back
beside the tensors that are planned, so that it is no check of the plan.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from measure import forget_peak, machine, note, peak
from peft import LoraConfig, get_peft_model
from transformers import AutoProcessor, GenerationConfig, Qwen3_5ForConditionalGeneration

from vclib.env.environment import WebPageEnv
from vclib.env.pages import Page, PageSet
from vclib.paths import TINY
from vclib.policy import prompts
from vclib.policy.model import AGENTS, DEFAULT_LORA, LORA_TARGETS, Policy
from vclib.policy.sampling import Sample, SamplingSettings, sample
from vclib.rl.loss import backward
from vclib.rl.memory import cache_bytes, plan_memory, qwen_config
from vclib.rl.profiles import PROFILES, TrainSettings
from vclib.rl.trainer import Trainer

GIB = 2**30
TURNS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["2B", "9B"], help="default 2B 9B")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32, 64])
    parser.add_argument("--new-tokens", type=int, default=512, help="a turn, default 512")
    options = parser.parse_args()
    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    if gpu:
        print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}")
        really = torch.cuda.is_bf16_supported(including_emulation=False)
        dtype = torch.bfloat16 if really else torch.float16
    else:
        print("No GPU here. A small shape on the CPU instead: it says nothing of a GPU's speed.")
        print(machine())
        options.sizes, options.batches, options.new_tokens = ["small"], [1, 8], 24
        dtype = torch.float32
    bench = Bench(torch.device("cuda" if gpu else "cpu"), dtype, options.new_tokens)
    print(f"bandwidth {bench.bandwidth / 1e9:.0f} GB/s (a copy), {dtype} products "
          f"{bench.flops / 1e12:.2f} TFLOP/s (4096 x 4096)")  # fmt: skip
    for size in options.sizes:
        bench.run(size, options.batches)


class Bench:
    """One device, and what was measured of it."""

    def __init__(self, device: torch.device, dtype: torch.dtype, new_tokens: int) -> None:
        self.device, self.dtype, self.new = device, dtype, new_tokens
        gpu = device.type == "cuda"
        source = torch.ones(GIB if gpu else GIB // 16, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        self.bandwidth = 2 * source.numel() / self.seconds(lambda: target.copy_(source), 5)
        side = 4096 if gpu else 512
        square = torch.ones(side, side, dtype=dtype, device=device)
        self.flops = 2 * side**3 / self.seconds(lambda: square @ square, 5)

    def seconds(self, run: Callable[[], Any], times: int = 1) -> float:
        """Seconds of one run, after one of warming up."""
        run()
        self.wait()
        began = time.perf_counter()
        for _ in range(times):
            run()
        self.wait()
        return (time.perf_counter() - began) / times

    def wait(self) -> None:
        """Until the device has done what it was asked."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def run(self, size: str, batches: list[int]) -> None:
        """All measurements of one size."""
        note(f"{size}: making a model with random weights")
        policy = self.policy(size)
        print(f"\n{size}: {sum(p.numel() for p in policy.base.parameters()) / 1e9:.2f} billion")
        self.decoding(policy, batches)
        self.update(policy, k=8)
        for k in (4, 8):
            self.memory(policy, k)
        self.alternating(policy)

    def policy(self, size: str) -> Policy:
        """A policy of that shape; the small model's tokenizer spells its tokens."""
        processor = AutoProcessor.from_pretrained(TINY)
        tokens = Qwen3_5ForConditionalGeneration.config_class.from_pretrained(TINY)
        config = tokens if size == "small" else qwen_config(size)
        for name in ("image", "video", "vision_start", "vision_end"):
            setattr(config, f"{name}_token_id", getattr(tokens, f"{name}_token_id"))
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        with self.device:
            base = Qwen3_5ForConditionalGeneration(config)
        torch.set_default_dtype(before)
        base.generation_config = GenerationConfig(eos_token_id=tokens.text_config.eos_token_id)
        how = LoraConfig(
            r=DEFAULT_LORA.r, lora_alpha=DEFAULT_LORA.alpha, target_modules=LORA_TARGETS
        )
        model = get_peft_model(base, how, adapter_name=AGENTS[0])
        model.add_adapter(AGENTS[1], how)
        policy = Policy(model.to(self.device), processor)
        policy.eos_ids = []  # so that no turn ends early
        return policy

    def draw(self, policy: Policy, rows: int, new: int) -> list[Sample]:
        """`rows` turns of `new` tokens on one screenshot."""
        prompt = policy.encode(prompts.developer_first(screenshot()))
        return sample(policy, [prompt] * rows, "developer", SamplingSettings(new))

    def decoding(self, policy: Policy, batches: list[int]) -> None:
        """Tokens a second against the floor of reading weights and cache once a token."""
        text = policy.base.model.language_model
        read = sum(p.numel() * p.element_size() for p in text.layers.parameters())
        read += policy.base.lm_head.weight.numel() * policy.base.lm_head.weight.element_size()
        start = len(policy.encode(prompts.developer_first(screenshot())))
        for rows in batches:
            first = self.seconds(lambda rows=rows: self.draw(policy, rows, 1))
            whole = self.seconds(lambda rows=rows: self.draw(policy, rows, self.new))
            speed = rows * (self.new - 1) / (whole - first)
            cache = rows * cache_bytes(policy.base.config, start + self.new // 2, self.dtype)
            floor = rows * self.bandwidth / (read + cache)
            print(f"decode, batch {rows:2}: {speed:8.0f} tokens/s, the floor {floor:8.0f}, "
                  f"{speed / floor:.0%} of it")  # fmt: skip

    def update(self, policy: Policy, k: int) -> None:
        """Tokens a second of the gradient, and its share of the products the device can do."""
        samples = self.draw(policy, k, self.new)
        tokens = sum(len(s.prompt) + len(s.completion_ids) for s in samples)
        spent = self.seconds(lambda: self.gradient(policy, samples))
        layers = sum(p.numel() for p in policy.base.model.language_model.layers.parameters())
        head = policy.base.lm_head.weight.numel()
        # Two operations a weight forward and two for the gradient of its input; weights are frozen.
        work = 4 * (layers * tokens + head * k * self.new)
        mfu = work / spent / self.flops
        print(f"update, K = {k}: {tokens / spent:8.0f} tokens/s, MFU {mfu:.0%}"
              " (recomputed activations not counted as work)")  # fmt: skip

    def gradient(self, policy: Policy, samples: list[Sample]) -> None:
        """Take the gradient of the Developer's turns."""
        policy.train_only("developer")
        advantages = np.random.default_rng(0).normal(size=len(samples)).tolist()
        counts = {"turns": len(samples), "tokens": len(samples) * self.new}
        backward(policy, samples, advantages, "developer", self.settings(), **counts)

    def settings(self) -> TrainSettings:
        """Those of the profile gpu, with this benchmark's limits."""
        return PROFILES["gpu"].but(developer_tokens=self.new, critic_tokens=self.new // 4)

    def memory(self, policy: Policy, k: int) -> None:
        """Peak memory of K episodes of five turns, drawn and learnt from, beside the plan."""
        forget_peak()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        before = peak() * 2**20
        samples = self.draw(policy, k, self.new)
        self.gradient(policy, [replace(s) for s in samples for _ in range(TURNS)])
        found = peak() * 2**20 - before
        if self.device.type == "cuda":
            found = torch.cuda.max_memory_allocated()
        plan = plan_memory(
            policy.base.config,
            rows=k,
            turns=k * TURNS,
            prompt=len(samples[0].prompt),
            new=self.new,
            token_budget=self.settings().token_budget,
            dtype=self.dtype,
        )
        planned = plan.total
        if self.device.type == "cpu":  # where the weights were counted before
            planned -= plan.parameters + plan.adapters
        print(f"memory, K = {k}, {TURNS} turns: {found / GIB:.2f} GiB, planned {planned / GIB:.2f}"
              f" ({plan})")  # fmt: skip

    def alternating(self, policy: Policy) -> None:
        """One update of the Developer and one of the Critic, with browser and reward."""
        with tempfile.TemporaryDirectory() as folder, WebPageEnv(BlankPages()) as env:
            settings = self.settings().but(
                phase="alternate", num_phases=2, episodes_per_phase=1, output=folder, trackers=(),
                max_steps=TURNS, device=self.device.type, pages="blocks",
            )  # fmt: skip
            with Trainer(settings, env, policy) as trainer:
                for update in trainer.run():
                    stages = ", ".join(f"{n} {s:.2f} s" for n, s in update.seconds.items())
                    print(f"whole update of the {update.phase}, K = {settings.k_rollouts}: "
                          f"{stages}; steps left out {update.skipped_steps}")  # fmt: skip


def screenshot() -> np.ndarray:
    """640x480 pixels."""
    return np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)


class BlankPages(PageSet):
    """Empty pages: on these even random text has rewards that differ."""

    name = "blank"
    viewport = (640, 480)

    def page(self, page_id: str) -> Page:
        """The page with this id."""
        _, split, difficulty, index = page_id.split("/")
        return self._at(split, difficulty, int(index))

    def _at(self, split: str, difficulty: str, index: int) -> Page:
        html = f"<!doctype html><html><body><!-- {index} --></body></html>"
        return Page(f"blank/{split}/{difficulty}/{index}", html, split, difficulty)


if __name__ == "__main__":
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    main()
