"""Exercises on shaped returns."""

from __future__ import annotations

import itertools

from vclib.notebook.exercises.exercise import Exercise


def shaped_sum(rewards, turn, lambda_shaped):
    gains = 0.0
    for s in range(turn + 1, len(rewards)):
        gains += rewards[s] - rewards[s - 1]
    return rewards[-1] + lambda_shaped * gains


def step_returns(rewards, lambda_shaped):
    last = rewards[-1]
    return [last + lambda_shaped * (last - reward) for reward in rewards]


def least_slope(pairs, lambda_shaped):
    first = sum(a for a, _ in pairs) / len(pairs)
    last = sum(b for _, b in pairs) / len(pairs)
    spread = sum((a - first) ** 2 for a, _ in pairs)
    if spread == 0:
        return True
    slope = sum((a - first) * (b - last) for a, b in pairs) / spread
    return slope > lambda_shaped / (1 + lambda_shaped)


def potential_returns(rewards, lambda_shaped):
    before = [0.0, *rewards[:-1]]
    return [rewards[-1] + lambda_shaped * (rewards[-1] - r) for r in before]


def critic_returns(agents, rewards, lambda_shaped):
    scores = [reward for reward in rewards if reward is not None]
    credits, drafts = [], 0
    for agent in agents:
        if agent == "developer":
            drafts += 1
        elif drafts < len(scores):
            credits.append(scores[-1] + lambda_shaped * (scores[-1] - scores[drafts]))
        else:
            credits.append(scores[-1])
    return credits


def _own_gain_too(rewards: list[float], turn: int, lambda_shaped: float) -> float:
    before = rewards[turn - 1] if turn else 0.0
    return rewards[-1] + lambda_shaped * (rewards[-1] - before)


def _sum_of_rewards(rewards: list[float], turn: int, lambda_shaped: float) -> float:
    return rewards[-1] + lambda_shaped * sum(rewards[turn + 1 :])


def _slope_above_zero(pairs: list[tuple[float, float]], lambda_shaped: float) -> bool:
    return least_slope(pairs, 0.0)


def _slope_above_lambda(pairs: list[tuple[float, float]], lambda_shaped: float) -> bool:
    return least_slope(pairs, lambda_shaped / (1 - lambda_shaped)) if lambda_shaped < 1 else False


def _without_terminal(rewards: list[float], lambda_shaped: float) -> list[float]:
    return [lambda_shaped * (rewards[-1] - reward) for reward in rewards]


def _next_gain_only(rewards: list[float], lambda_shaped: float) -> list[float]:
    gains = [after - before for before, after in itertools.pairwise(rewards)]
    return [rewards[-1] + lambda_shaped * gain for gain in [*gains, 0.0]]


def _past_gains(rewards: list[float], lambda_shaped: float) -> list[float]:
    return [rewards[-1] + lambda_shaped * (reward - rewards[0]) for reward in rewards]


def _draft_before(agents: list[str], rewards: list, lambda_shaped: float) -> list[float]:
    scores = [reward for reward in rewards if reward is not None]
    drafts = [agents[:i].count("developer") for i, a in enumerate(agents) if a == "critic"]
    return [scores[-1] + lambda_shaped * (scores[-1] - scores[n - 1]) for n in drafts]


def _all_terminal(agents: list[str], rewards: list, lambda_shaped: float) -> list[float]:
    return [next(r for r in reversed(rewards) if r is not None) for a in agents if a == "critic"]


EXERCISES = {
    "shaped_sum": Exercise(
        shaped_sum,
        cases=[
            ([0.3, 0.5, 0.9], 0, 0.2),
            ([0.3, 0.5, 0.9], 1, 0.2),
            ([0.3, 0.5, 0.9], 2, 0.2),
            ([0.6, 0.2], 0, 1.0),
            ([0.5], 0, 0.2),
        ],
        slips=[
            (
                lambda rewards, turn, lambda_shaped: shaped_sum(rewards, turn, 1.0),
                "λ is missing: the sum of gains is multiplied by it",
            ),
            (_own_gain_too, "the sum starts one step early: it begins at s = t + 1"),
            (_sum_of_rewards, "it adds up the rewards themselves; add up their differences"),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "step_returns": Exercise(
        step_returns,
        cases=[([0.2, 0.5, 0.9], 0.2), ([0.6, 0.3], 1.0), ([0.4, 0.7], 0.0), ([0.5], 0.2)],
        slips=[
            (_without_terminal, "the last reward itself is missing from each turn's return"),
            (_next_gain_only, "only the next gain is counted; the sum runs to the episode's end"),
            (_past_gains, "it credits a turn with what was gained before it; the sum looks ahead"),
        ],
        difficulty="easy",
        minutes=5,
    ),
    "least_slope": Exercise(
        least_slope,
        cases=[
            ([(0.2, 0.5), (0.4, 0.52)], 0.2),
            ([(0.2, 0.5), (0.4, 0.536)], 0.2),
            ([(0.2, 0.5), (0.4, 0.55)], 0.2),
            ([(0.3, 0.9), (0.5, 0.8), (0.7, 0.95)], 0.2),
            ([(0.2, 0.2), (0.4, 0.29)], 1.0),
            ([(0.5, 0.5), (0.5, 0.9)], 0.2),
        ],
        slips=[
            (_slope_above_zero, "a slope above 0 is not enough: compare it with λ / (1 + λ)"),
            (_slope_above_lambda, "the slope is compared with λ; compare it with λ / (1 + λ)"),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "potential_returns": Exercise(
        potential_returns,
        cases=[([0.3, 0.5, 0.9], 0.2), ([0.6, 0.3], 1.0), ([0.4, 0.7], 0.0), ([0.5], 0.2)],
        slips=[
            (step_returns, "it takes away each draft's own reward; take the one before it"),
            (
                lambda rewards, lambda_shaped: potential_returns([*rewards], 1.0),
                "λ is missing: it multiplies what was gained",
            ),
        ],
        difficulty="medium",
        minutes=10,
    ),
    "critic_returns": Exercise(
        critic_returns,
        cases=[
            (["developer", "critic", "developer"], [0.4, None, 0.7], 0.2),
            (
                ["developer", "critic", "developer", "critic", "developer"],
                [0.3, None, 0.5, None, 0.9],
                0.2,
            ),
            (["developer", "critic", "developer", "critic"], [0.3, None, 0.5, None], 0.2),
            (["developer", "critic"], [0.6, None], 1.0),
            (["developer"], [0.6], 0.2),
        ],
        slips=[
            (_draft_before, "it takes the draft before the critique; take the one that follows"),
            (_all_terminal, "every critique gets the last reward; the shaped part is missing"),
        ],
        difficulty="medium",
        minutes=15,
    ),
}
