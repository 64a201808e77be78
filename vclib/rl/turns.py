"""What an episode is made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vclib.policy.sampling import Sample


@dataclass
class Turn:
    """One generation by one agent; a Developer turn also has its reward and render.

    `text` is the answer that was acted on: the HTML that was rendered, or the critique. The
    sampled ids stay in `sample`: tokenizing the text again may give others. `return_` and
    `advantage` are set by the trainer, for the agent that it trains.
    """

    agent: str
    sample: Sample
    text: str
    reward: float | None = None
    rewards: dict[str, Any] | None = None
    render: np.ndarray | None = None
    return_: float | None = None
    advantage: float | None = None


@dataclass
class Episode:
    """The turns on one page; `group` numbers the page among those played together."""

    page_id: str
    difficulty: str
    group: int
    reference: np.ndarray
    turns: list[Turn] = field(default_factory=list)

    @property
    def developer_turns(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.agent == "developer"]

    @property
    def critic_turns(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.agent == "critic"]

    @property
    def rewards(self) -> list[float]:
        return [turn.reward for turn in self.turns if turn.reward is not None]

    @property
    def terminal_reward(self) -> float:
        return self.rewards[-1]

    @property
    def html_drafts(self) -> list[str]:
        return [turn.text for turn in self.developer_turns]

    @property
    def ended_by_critic(self) -> bool:
        return self.turns[-1].agent == "critic"

    def forget_pictures(self) -> None:
        """Let go of the patches that the prompts show; scoring the turns again is then an error."""
        for turn in self.turns:
            blind = replace(turn.sample.prompt, images=())
            turn.sample = replace(turn.sample, prompt=blind)
