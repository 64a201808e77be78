"""Episodes a second with K episodes in step, against one `generate` call per turn and rollout.

    python benchmarks/rollout_speed.py [--k 8] [--pages 1] [--rounds 5]

Both ways play the same pages with the same model, adapters, temperature, limits, browser and
reward, each with luck of its own. The plain way gives every prompt to the model's processor and
to `generate` alone, until an EOS; the library plays all episodes in step. They take turns, and
the ratio is the median over rounds. Peak memory is that of a process that plays in one way only.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch
from measure import flags, in_fork, machine, note, ratio, take_turns

from vclib.env.environment import WebPageEnv
from vclib.policy import prompts
from vclib.policy.decoding import prefill
from vclib.policy.encoding import Prompt
from vclib.policy.model import Policy
from vclib.policy.sampling import SamplingSettings
from vclib.rl.episodes import EpisodeSettings, episode_settings, play
from vclib.rl.profiles import PROFILES

LINE = 4.0


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, rounds=5)
    parser.add_argument("--pages", type=int, default=1, help="pages in step, default 1")
    parser.add_argument("--skip-memory", action="store_true", help="speed alone")
    options = parser.parse_args()
    # Processes are forked for the memory, and OpenMP's threads do not survive that.
    torch.set_num_threads(1)
    policy = Policy.load(options.model, device="cpu")
    rules = episode_settings(PROFILES["laptop"], "developer")
    if not options.skip_memory:
        memory(policy, rules, options)
    torch.set_num_threads(options.threads)
    with WebPageEnv("blocks", split="heldout") as env:
        report(options, Race(policy, env, rules, options.k, options.pages))


def memory(policy: Policy, rules: EpisodeSettings, options: argparse.Namespace) -> None:
    """Print the peak memory of a process that plays in one way only, without the browser's."""
    for way in ("one by one", "in step"):

        def run(way: str = way) -> None:
            with WebPageEnv("blocks", split="heldout") as env:
                Race(policy, env, rules, options.k, options.pages).ways[way]()

        highest, before = in_fork(run)
        print(f"{way:11} peak memory {highest} MiB, {before} before it plays")


def report(options: argparse.Namespace, race: Race) -> None:
    """Time the two ways, measure their memory, print."""
    print(machine())
    note("warming up")
    Race(race.policy, race.env, race.rules, 1, 1).one_by_one()
    race.in_step()
    race.tokens = dict.fromkeys(race.ways, 0)
    race.rewards = {name: [] for name in race.ways}
    seconds = take_turns(race.ways, options.rounds)
    episodes = options.k * options.pages * options.rounds
    print(f"K = {options.k}, {options.pages} pages, {options.rounds} rounds")
    for name, spent in seconds.items():
        rewards = race.rewards[name]
        print(
            f"{name:11} {episodes / sum(spent):6.2f} episodes/s  "
            f"{race.tokens[name] / sum(spent):6.0f} tokens/s  "
            f"{race.tokens[name] / episodes:5.0f} tokens an episode  "
            f"mean reward {sum(rewards) / len(rewards):.3f}"
        )
    times = ratio(seconds["one by one"], seconds["in step"])
    print(f"Ratio of episodes/s: {times}; the line is {LINE:g}x")
    shared_prefill(race)


def shared_prefill(race: Race, rounds: int = 9) -> None:
    """Time the prompts of a group run once for all, and once for each episode."""
    screenshot = race.env.reset(page_id=race.pages[0], max_steps=1).screenshot
    prompt = race.policy.encode(prompts.developer_first(screenshot))
    # Prompts are shared where their pictures are the same object: copies are not.
    apart = [replace(prompt, images=tuple(map(replace, prompt.images))) for _ in range(race.k)]
    ways = {
        "once for each": lambda: _prefill(race.policy, apart),
        "once for all": lambda: _prefill(race.policy, [prompt] * race.k),
    }
    for run in ways.values():
        run()
    seconds = take_turns(ways, rounds)
    for name, spent in seconds.items():
        print(f"{race.k} equal prompts run {name}: {1000 * sum(spent) / rounds:.1f} ms")
    print(f"Ratio of prefills: {ratio(seconds['once for each'], seconds['once for all'])}")


@torch.no_grad()
def _prefill(policy: Policy, group: list[Prompt]) -> None:
    prefill(policy, group, room=160)


class Race:
    """The two ways to play, and what they drew."""

    def __init__(
        self, policy: Policy, env: WebPageEnv, rules: EpisodeSettings, k: int, pages: int
    ) -> None:
        self.policy, self.env, self.rules, self.k = policy, env, rules, k
        self.pages = [
            f"blocks/heldout/{('easy', 'medium', 'hard')[i % 3]}/{i}" for i in range(pages)
        ]
        self.ways = {"one by one": self.one_by_one, "in step": self.in_step}
        self.tokens = dict.fromkeys(self.ways, 0)
        self.rewards: dict[str, list[float]] = {name: [] for name in self.ways}

    def in_step(self) -> None:
        """The library's way."""
        groups = play(self.policy, self.env, self.pages, k=self.k, settings=self.rules)
        for episode in (episode for group in groups for episode in group):
            self.tokens["in step"] += sum(len(t.sample.completion_ids) for t in episode.turns)
            self.rewards["in step"].append(episode.terminal_reward)

    def one_by_one(self) -> None:
        """Every episode by itself, every turn a call of `generate`."""
        for page in self.pages:
            for _ in range(self.k):
                self.rewards["one by one"].append(self._episode(page))

    def _episode(self, page: str) -> float:
        env, rules = self.env, self.rules
        seen = env.reset(page_id=page, max_steps=rules.max_steps)
        reference, reward, messages = seen.screenshot, 0.0, prompts.developer_first(seen.screenshot)
        renders: list[Any] = []
        critique = ""
        for step in range(rules.max_steps):
            html = self._generate(messages, rules.developer_adapter, rules.developer)
            seen = env.step(html, seen.session_id)
            reward = float(seen.reward)
            if step + 1 == rules.max_steps:
                break
            renders.append(seen.render_full)
            look = prompts.critic_first(reference, renders[0])
            if step:
                look = prompts.critic_again(reference, renders[-2], renders[-1], critique)
            critique = self._generate(look, rules.critic_adapter, rules.critic)
            if prompts.is_done(critique):
                env.close_session(seen.session_id)
                break
            messages = prompts.developer_revision(html, critique)
        return reward

    @torch.no_grad()
    def _generate(
        self, messages: prompts.Messages, adapter: str | None, settings: SamplingSettings
    ) -> str:
        policy = self.policy
        inputs = policy.processor.apply_chat_template(
            messages,
            tokenize=True,
            add_generation_prompt=True,
            enable_thinking=False,
            return_dict=True,
            return_tensors="pt",
        )
        how: dict[str, Any] = {"do_sample": False} if settings.greedy else {
            "do_sample": True, "temperature": settings.temperature, "top_k": 0, "top_p": 1.0
        }  # fmt: skip
        with policy.acting(adapter):
            ids = policy.base.generate(**inputs, **how, max_new_tokens=settings.max_new_tokens)
        ids = ids[0, inputs["input_ids"].shape[1] :]
        self.tokens["one by one"] += len(ids)
        return policy.tokenizer.decode(ids, skip_special_tokens=True)


if __name__ == "__main__":
    main()
