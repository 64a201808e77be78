"""What a turn is credited with, and how that compares with its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Variant = Literal["flat", "per_turn", "dr_grpo", "rloo"]
VARIANTS: tuple[Variant, ...] = ("flat", "per_turn", "dr_grpo", "rloo")
EPSILON = 1e-8
SILENT_BELOW = 1e-6


def compute_step_returns(rewards: Sequence[float], lambda_shaped: float = 0.2) -> list[float]:
    """Return of each Developer turn of one episode, from the rewards of its turns.

    R(t) = r_n + λ · Σ_{s=t+1..n} (r_s - r_{s-1}): the last reward, plus λ times what was still
    gained after turn t. The sum telescopes to r_n - r_t. λ = 0 credits every turn with the last
    reward alone.
    """
    if not rewards:
        return []
    terminal = rewards[-1]
    return [terminal + lambda_shaped * (terminal - reward) for reward in rewards]


def credit_turns(
    agents: Sequence[str], rewards: Sequence[float | None], lambda_shaped: float = 0.2
) -> list[float]:
    """Return of every turn of one episode, the Critic's among them.

    `agents` names who played each turn ("developer" or "critic"); `rewards` holds the score after
    a Developer turn and None after a Critic turn. A Critic turn has no reward of its own: its
    critique is worth what the Developer makes of it, so it is credited with the return of the
    Developer turn that follows. A Critic that ends the episode by DONE has no such turn and is
    credited with the last reward: it vouched for that draft as it stood.
    """
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) != sum(agent == "developer" for agent in agents):
        raise ValueError("each Developer turn needs a reward, and no Critic turn may have one")
    returns = compute_step_returns(scored, lambda_shaped)
    credits: list[float] = []
    next_developer = 0
    for agent in agents:
        followed = next_developer < len(returns)
        credits.append(returns[next_developer] if followed else scored[-1])
        next_developer += agent == "developer"
    return credits


@dataclass(frozen=True)
class Advantages:
    """Advantages of one group: a list per episode, and whether the group says anything at all."""

    values: list[list[float]]
    silent: bool
    std: float


def grpo_advantages(returns: Sequence[Sequence[float]], variant: Variant = "flat") -> Advantages:
    """Advantage of each turn, relative to the other episodes of its group.

    `returns` holds a list per episode, one return a turn; the lengths may differ and may be 0.

    - `flat`: (R - mean) / (std + 1e-8), both over all turns of the group
      (DeepSeekMath, arXiv:2402.03300, section 4.1).
    - `per_turn`: the same over the turns of equal number only: first against first, and so on.
    - `dr_grpo`: R - mean, without the division (arXiv:2503.20783).
    - `rloo`: R minus the mean over the turns of the *other* episodes (arXiv:2402.14740).

    `std` is the population's, over all turns. A group whose advantages are all zero is `silent`:
    it teaches nothing. Spreads below 1e-6 count as none, for they are rounding.
    """
    if variant not in VARIANTS:
        raise ValueError(f"unknown advantage variant {variant!r}; known: {', '.join(VARIANTS)}")
    pooled = np.array([value for episode in returns for value in episode], dtype=np.float64)
    if not np.isfinite(pooled).all():
        raise ValueError("returns must be finite")
    std = float(pooled.std()) if pooled.size else 0.0
    if std < SILENT_BELOW:
        return Advantages([[0.0] * len(episode) for episode in returns], True, std)
    if variant == "per_turn":
        values = _per_turn(returns)
    elif variant == "rloo":
        values = _leave_one_out(returns)
    else:
        scale = std + EPSILON if variant == "flat" else 1.0
        values = [[float((r - pooled.mean()) / scale) for r in episode] for episode in returns]
    silent = all(abs(value) < SILENT_BELOW for episode in values for value in episode)
    return Advantages(values, silent, std)


def _per_turn(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    values = [[0.0] * len(episode) for episode in returns]
    for turn in range(max(map(len, returns))):
        rows = [row for row, episode in enumerate(returns) if len(episode) > turn]
        column = np.array([returns[row][turn] for row in rows])
        if column.std() < SILENT_BELOW:
            continue
        for row, advantage in zip(rows, column - column.mean(), strict=True):
            values[row][turn] = float(advantage / (column.std() + EPSILON))
    return values


def _leave_one_out(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    values = []
    for row, episode in enumerate(returns):
        others = [r for other, rs in enumerate(returns) if other != row for r in rs]
        values.append([float(r - np.mean(others)) if others else 0.0 for r in episode])
    return values
