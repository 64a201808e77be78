"""What one update produced, in numbers and in episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from vclib.rl.episodes import Episode
from vclib.rl.returns import Advantages, Variant, credit_turns, grpo_advantages


@dataclass
class Update:
    """One update, as dashboards and progress bars want it.

    Rewards and shares are in [0, 1]. `lengths` and `truncated_share` are per agent, over all of
    its turns, trained or not. Every share is over all processes; `episodes` are this one's alone.
    They carry renders (some 100 KB a turn on small pages), so keep what you need of them; their
    prompts have let go of the pictures, of which the episodes have their own.
    """

    phase: str  # developer, critic or combined
    phase_number: int  # from 0
    index: int  # of the update in the run, from 1
    total: int  # updates in the run
    mean_terminal_reward: float  # last reward of an episode, mean
    mean_first_reward: float  # reward of the first draft, mean
    by_difficulty: dict[str, float]  # mean terminal reward of each difficulty seen
    mean_steps: float  # Developer turns in an episode, mean
    reward_parts: dict[str, float]  # each part of the reward over the last drafts, mean
    loss: float  # of the trained turns, summed over agents
    grad_norm: float  # before clipping; the largest of the update's steps
    entropy: float  # of the next-token distribution, nats, mean over trained tokens
    group_std: float  # spread of the returns within a group, mean over groups
    silent_share: float  # groups without spread, which teach nothing
    truncated_share: dict[str, float]  # turns cut off by the length limit
    failed_share: float  # Developer turns whose page scored 0
    parse_failure_share: float  # Developer turns whose HTML is broken: validity below 0.5
    done_share: float  # episodes that the Critic ended
    lengths: dict[str, float]  # tokens in a turn, mean
    faults: int  # faults of the environment that were met and retried
    skipped_steps: int  # optimizer steps left out: nothing to learn, or a gradient not finite
    tokens_per_second: float  # tokens drawn per second of sampling, of this process
    seconds: dict[str, float]  # per stage: sample, render (and reward), score, update
    episodes: list[list[Episode]] = field(repr=False, default_factory=list)

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Everything but the episodes, as one row for a log."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "episodes"}


def assign_credit(
    groups: Sequence[Sequence[Episode]],
    agents: Sequence[str],
    variant: Variant,
    lambda_shaped: float,
) -> list[Advantages]:
    """Set `return_` of every turn and `advantage` of the turns of `agents`.

    Turns are compared within their group with turns of the same agent. The result has an entry
    per group and agent.
    """
    results = []
    for group in groups:
        for episode in group:
            names = [turn.agent for turn in episode.turns]
            rewards = [turn.reward for turn in episode.turns]
            for turn, value in zip(
                episode.turns, credit_turns(names, rewards, lambda_shaped), strict=True
            ):
                turn.return_ = value
        for agent in agents:
            turns = [[turn for turn in episode.turns if turn.agent == agent] for episode in group]
            compared = grpo_advantages(
                [[turn.return_ for turn in row if turn.return_ is not None] for row in turns],
                variant,
            )
            for row, values in zip(turns, compared.values, strict=True):
                for turn, value in zip(row, values, strict=True):
                    turn.advantage = value
            results.append(compared)
    return results


def records(groups: Sequence[Sequence[Episode]], credits: Sequence[Advantages]) -> dict[str, Any]:
    """The numbers of one process's episodes, light enough to be gathered over processes."""
    episodes = [
        {
            "difficulty": episode.difficulty,
            "terminal": episode.terminal_reward,
            "first": episode.rewards[0],
            "steps": len(episode.rewards),
            "done": episode.ended_by_critic,
            "parts": episode.developer_turns[-1].rewards,
        }
        for group in groups
        for episode in group
    ]
    turns = [
        {
            "agent": turn.agent,
            "length": len(turn.sample.completion_ids),
            "truncated": turn.sample.truncated,
            "reward": turn.reward,
            "validity": (turn.rewards or {}).get("validity"),
        }
        for group in groups
        for episode in group
        for turn in episode.turns
    ]
    return {
        "episodes": episodes,
        "turns": turns,
        "std": [credit.std for credit in credits],
        "silent": [credit.silent for credit in credits],
    }


def summarise(gathered: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of `Update` that are means over episodes, turns and groups of all processes."""
    episodes = [row for part in gathered for row in part["episodes"]]
    turns = [row for part in gathered for row in part["turns"]]
    drafts = [turn for turn in turns if turn["agent"] == "developer"]
    by_difficulty = defaultdict(list)
    parts = defaultdict(list)
    for episode in episodes:
        by_difficulty[episode["difficulty"]].append(episode["terminal"])
        for name, value in episode["parts"].items():
            if isinstance(value, float | int):
                parts[name].append(value)
    by_agent = {
        agent: [turn for turn in turns if turn["agent"] == agent]
        for agent in dict.fromkeys(turn["agent"] for turn in turns)
    }
    return {
        "mean_terminal_reward": _mean(e["terminal"] for e in episodes),
        "mean_first_reward": _mean(e["first"] for e in episodes),
        "by_difficulty": {name: _mean(rows) for name, rows in sorted(by_difficulty.items())},
        "mean_steps": _mean(e["steps"] for e in episodes),
        "reward_parts": {name: _mean(rows) for name, rows in parts.items()},
        "group_std": _mean(std for part in gathered for std in part["std"]),
        "silent_share": _mean(silent for part in gathered for silent in part["silent"]),
        "truncated_share": {a: _mean(t["truncated"] for t in ts) for a, ts in by_agent.items()},
        "failed_share": _mean(turn["reward"] == 0 for turn in drafts),
        "parse_failure_share": _mean((turn["validity"] or 0) < 0.5 for turn in drafts),
        "done_share": _mean(e["done"] for e in episodes),
        "lengths": {a: _mean(t["length"] for t in ts) for a, ts in by_agent.items()},
    }


def _mean(values: Any) -> float:
    values = [float(value) for value in values]
    return float(np.mean(values)) if values else 0.0
