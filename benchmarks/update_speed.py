"""The gradient of an update in micro-batches, against one graph over all rollouts.

    python benchmarks/update_speed.py [--k 8] [--rounds 5] [--skip-memory | --skip-speed]

Episodes are played first, in a real browser. For the speed they are those of an update: an easy, a
medium and a hard page, two drafts with a critique between; for the rest the Developer plays alone.
Then the gradient of the Developer's turns is taken

- by the library: micro-batches of like length within a token budget, equal prompts run once, logits
  of generated positions only, each picture through the vision tower once, one micro-batch's graph
  alive at a time;
- in one graph, as is often written: the model's own forward with its pictures and logits at every
  position, rollout by rollout or all rollouts in one padded batch, and one backward at the end.

All give the same gradient; the largest difference is printed. Before: peak memory in a process for
each setting, as K, turns and pages grow. After: how the time grows with pages x turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from measure import flags, in_fork, machine, note, ratio, take_turns
from torch import Tensor

from vclib.env.environment import WebPageEnv
from vclib.policy.model import Policy
from vclib.policy.sampling import Sample, log_softmax
from vclib.rl.episodes import Episode, EpisodeSettings, episode_settings, play
from vclib.rl.loss import backward, token_weights
from vclib.rl.profiles import PROFILES, TrainSettings

LINE, MEMORY_LINE = 1.5, 0.1
TURNS, PAGES, MOST_K = 4, 4, 32
MEMORY_BUDGET = 512
"""Tokens of a micro-batch where memory is measured: fewer than the least work has, so that all work
fills its micro-batches. Else what would be compared is how full they are."""


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, rounds=5)
    budget = PROFILES["laptop"].token_budget
    parser.add_argument("--token-budget", type=int, default=budget, help=f"default {budget}")
    parser.add_argument("--skip-memory", action="store_true", help="speed and exponent alone")
    parser.add_argument("--skip-speed", action="store_true", help="memory alone")
    options = parser.parse_args()
    # Processes are forked for the memory, and OpenMP's threads do not survive that.
    torch.set_num_threads(1)
    settings = PROFILES["laptop"].but(token_budget=options.token_budget)
    policy = Policy.load(options.model, device="cpu")
    policy.train_only("developer")
    rules = episode_settings(
        settings.but(phase="developer", max_steps=TURNS, use_critic=False), "developer"
    )
    with WebPageEnv("blocks") as env:
        groups = _play(policy, env, rules, options.k, PAGES)
        usual = episode_settings(settings.but(phase="developer"), "developer")
        update = _play(policy, env, usual, options.k, 3)
        wide = []
        if not options.skip_memory:
            wide = _play(policy, env, replace(rules, max_steps=2), MOST_K, 1)
    print(machine())
    if not options.skip_memory:
        memory(policy, settings.but(token_budget=MEMORY_BUDGET), groups, wide)
    if options.skip_speed:
        return
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, micro-batches of {options.token_budget} tokens")
    speed(Work(policy, settings, _samples(update, options.k, 3, usual.max_steps)), options.rounds)
    exponent(policy, settings, groups, options.k, options.rounds)


@dataclass
class Work:
    """Turns to learn from, with advantages drawn at random: their values cost nothing."""

    policy: Policy
    settings: TrainSettings
    samples: list[Sample]

    @property
    def advantages(self) -> list[float]:
        return np.random.default_rng(0).normal(size=len(self.samples)).tolist()

    @property
    def tokens(self) -> int:
        return sum(len(s.prompt) + len(s.completion_ids) for s in self.samples)

    def gradients(self) -> list[Tensor]:
        found = [p.grad for p in self.policy.adapter_parameters("developer").values()]
        return [grad.clone() for grad in found if grad is not None]


def in_micro_batches(work: Work) -> None:
    """The library's way."""
    _forget_gradients(work)
    backward(
        work.policy,
        work.samples,
        work.advantages,
        "developer",
        work.settings,
        turns=len(work.samples),
        tokens=sum(len(s.completion_ids) for s in work.samples),
    )


def one_graph(work: Work, rows: int | None = None) -> None:
    """All rollouts in one graph, `rows` of them in a forward; None: all in one padded batch."""
    _forget_gradients(work)
    count = len(work.samples)
    rows = rows or count
    loss = torch.zeros(())
    advantages = torch.tensor(work.advantages)
    with work.policy.acting("developer"):
        for start in range(0, count, rows):
            logprobs, mask = _plain_logprobs(
                work.policy, work.samples[start : start + rows], work.settings.temperature
            )
            weights = token_weights(mask, "turn", turns=count, tokens=1)
            loss = loss - (weights * logprobs * advantages[start : start + rows, None]).sum()
        loss.backward()


WAYS: dict[str, Callable[[Work], None]] = {
    "micro-batches": in_micro_batches,
    "one graph, rollout by rollout": lambda work: one_graph(work, rows=1),
    "one graph, one padded batch": one_graph,
}


def _plain_logprobs(
    policy: Policy, samples: Sequence[Sample], temperature: float
) -> tuple[Tensor, Tensor]:
    """log pi [batch, T - 1] by the model's own forward, and the mask of sampled ids."""
    rows = [torch.cat([s.prompt.input_ids, s.completion_ids]) for s in samples]
    shape = (len(rows), max(map(len, rows)))
    input_ids = torch.full(shape, policy.pad_id)
    attention_mask, types = torch.zeros(shape, dtype=torch.long), torch.zeros(shape).long()
    sampled = torch.zeros(shape, dtype=torch.bool)
    for i, (row, item) in enumerate(zip(rows, samples, strict=True)):
        start, end = len(item.prompt), len(row)
        input_ids[i, :end], attention_mask[i, :end] = row, 1
        types[i, :start] = item.prompt.mm_token_type_ids
        sampled[i, start:end] = True
    images = [image for s in samples for image in s.prompt.images]
    pictures = {}
    if images:
        pictures["pixel_values"] = torch.cat([image.pixel_values for image in images])
        pictures["image_grid_thw"] = torch.stack([image.grid_thw for image in images])
    output = policy.base(
        input_ids=input_ids,
        attention_mask=attention_mask,
        mm_token_type_ids=types,
        use_cache=False,
        **pictures,
    )
    suppressed = policy.suppressed
    scores = log_softmax(output.logits[:, :-1], temperature, suppressed)
    targets = torch.where(sampled, input_ids, 0)[:, 1:, None]
    mask = sampled[:, 1:]
    return scores.gather(-1, targets)[..., 0].masked_fill(~mask, 0.0), mask


def speed(work: Work, rounds: int) -> None:
    """Tokens a second of each way, side by side, and that their gradients agree."""
    expected: list[Tensor] = []
    for name, way in WAYS.items():
        note(f"warming up: {name}")
        way(work)
        found = work.gradients()
        expected = expected or found
        error = max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))
        largest = max(grad.abs().max().item() for grad in expected)
        print(f"{name:30} gradient differs by {error:.1e}, of at most {largest:.1e}")
    seconds = take_turns({name: lambda w=way: w(work) for name, way in WAYS.items()}, rounds)
    different = len({sample.prompt.key for sample in work.samples})
    print(
        f"{len(work.samples)} turns with {different} different prompts, {work.tokens} tokens with "
        "their prompts"
    )
    for name, spent in seconds.items():
        print(f"{name:30} {rounds * work.tokens / sum(spent):7.0f} tokens/s")
    for name in list(WAYS)[1:]:
        times = ratio(seconds[name], seconds["micro-batches"])
        print(f"Ratio to {name}: {times}; the line is {LINE:g}x")


def exponent(
    policy: Policy,
    settings: TrainSettings,
    groups: list[list[Episode]],
    k: int,
    rounds: int,
) -> None:
    """The power with which the time of an update grows, over pages x turns and over tokens."""
    cells = [(pages, turns) for pages in (1, 2, 4) for turns in (1, 2, 4)]
    work = {cell: Work(policy, settings, _samples(groups, k, *cell)) for cell in cells}
    ways = {str(cell): lambda w=w: in_micro_batches(w) for cell, w in work.items()}
    spent = [float(np.median(s)) for s in take_turns(ways, min(rounds, 3)).values()]
    for (pages, turns), seconds in zip(cells, spent, strict=True):
        tokens = work[pages, turns].tokens
        print(f"K = {k}, {pages} pages x {turns} turns: {tokens:6} tokens {seconds:6.2f} s")
    for name, sizes in (
        ("pages x turns", [pages * turns for pages, turns in cells]),
        ("tokens", [w.tokens for w in work.values()]),
    ):
        power = np.polyfit(np.log(sizes), np.log(spent), 1)[0]
        print(f"Time grows as ({name}) to the power {power:.2f}")


def memory(
    policy: Policy, settings: TrainSettings, groups: list[list[Episode]], wide: list[list[Episode]]
) -> None:
    """Peak memory, in a process for each setting, as K, turns and pages grow."""
    print(f"memory, with micro-batches of {settings.token_budget} tokens")
    grown = {
        "K = 4": _samples(groups, 4, 1, 2),
        f"K = {MOST_K}": _samples(wide, MOST_K, 1, 2),
        f"K = 4, {TURNS} turns": _samples(groups, 4, 1, TURNS),
        f"K = 4, {PAGES} pages": _samples(groups, 4, PAGES, 2),
    }
    first = "K = 4"
    cells_of = {"micro-batches": list(grown), "one graph, one padded batch": list(grown)[:2]}
    for way, cells in cells_of.items():
        peaks: dict[str, int] = {}
        for cell in cells:
            work = Work(policy, settings, grown[cell])
            peaks[cell], before = in_fork(lambda work=work, way=way: WAYS[way](work))
            change = peaks[cell] / peaks[first] - 1
            print(
                f"{way:30} {cell:16} {work.tokens:6} tokens: peak {peaks[cell]:5} MiB "
                f"({change:+.0%} to {first}), {before} before the update"
            )
    print(f"The line for micro-batches is +-{MEMORY_LINE:.0%}")


def _play(
    policy: Policy, env: WebPageEnv, rules: EpisodeSettings, k: int, pages: int
) -> list[list[Episode]]:
    note(f"playing {pages} x {k} episodes of {rules.max_steps} turns")
    ids = [f"blocks/train/{('easy', 'medium', 'hard')[i % 3]}/{i}" for i in range(pages)]
    return play(policy, env, ids, k=k, settings=rules, generator=torch.Generator().manual_seed(0))


def _samples(groups: list[list[Episode]], k: int, pages: int, turns: int) -> list[Sample]:
    """The Developer's last `turns` turns in the first k episodes on the first pages."""
    return [
        turn.sample
        for group in groups[:pages]
        for episode in group[:k]
        for turn in episode.developer_turns[-turns:]
    ]


def _forget_gradients(work: Work) -> None:
    for parameter in work.policy.adapter_parameters("developer").values():
        parameter.grad = None


if __name__ == "__main__":
    main()
