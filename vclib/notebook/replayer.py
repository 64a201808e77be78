"""An episode that plays like a film: draft, critique, draft, with all that is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import ipywidgets

from vclib.errors import VclibError
from vclib.notebook import marked_text
from vclib.notebook.base import LABELS, Explorer, card
from vclib.notebook.replay_figures import episode_figure, turn_figure
from vclib.rl import figures
from vclib.rl.kept import KeptEpisode, KeptTurn, keep
from vclib.rl.turns import Episode

AnyEpisode = Episode | KeptEpisode
AGENTS = {"developer": "The Developer writes", "critic": "The Critic says"}


class EpisodeReplayer(Explorer):
    """Plays one episode, or several on the same page side by side, turn by turn.

        EpisodeReplayer(episode, policy.tokenizer)
        EpisodeReplayer({"base": one, "trained": other}, policy.tokenizer)

    Each turn shows the reference, the draft on the table, their difference, the parts of its
    reward, and the turn's text: what changed in it, or every token on the colour of its
    log-probability, its advantage, or the update's pull at it. The tokens of an `Episode` need the
    policy's tokenizer; an episode from `vclib.rl.kept` brings its own. `turn` is from 1.

    Raises `VclibError` where there is no turn to show.
    """

    title = "episode replayer"

    def __init__(
        self,
        episodes: AnyEpisode | Mapping[str, AnyEpisode],
        tokenizer: Any = None,
        interval_ms: int = 1500,
    ):
        self.image = ipywidgets.Image(format="png", width=960)
        self.text = ipywidgets.HTML()
        self.turn = ipywidgets.IntSlider(min=1, max=1, description="turn", **LABELS)
        self.play = ipywidgets.Play(min=1, max=1, interval=interval_ms, show_repeat=False)
        self.back = ipywidgets.Button(icon="step-backward", tooltip="one turn back")
        self.forward = ipywidgets.Button(icon="step-forward", tooltip="one turn on")
        for button, step in ((self.back, -1), (self.forward, 1)):
            button.layout.width = "40px"
            button.on_click(lambda _, step=step: self._step(step))
        self.view = ipywidgets.ToggleButtons(
            options=marked_text.VIEWS, description="text shows", **LABELS
        )
        self.turn.observe(self._draw, names="value")
        self.view.observe(self._draw, names="value")
        ipywidgets.link((self.play, "value"), (self.turn, "value"))
        self.show(episodes, tokenizer)
        moving = ipywidgets.HBox([self.play, self.back, self.forward, self.turn])
        super().__init__([moving, self.image, self.view, self.text])

    def show(self, episodes: AnyEpisode | Mapping[str, AnyEpisode], tokenizer: Any = None) -> None:
        """Begin anew with other episodes."""
        if not isinstance(episodes, Mapping):
            episodes = {"": episodes}
        self.episodes: dict[str, KeptEpisode] = {
            name: keep(episode, tokenizer) if isinstance(episode, Episode) else episode
            for name, episode in episodes.items()
        }
        last = max((len(episode.turns) for episode in self.episodes.values()), default=0)
        if last == 0:
            raise VclibError("There is nothing to replay: no episode here has a turn.")
        self._pictures: dict[int, bytes] = {}
        self.turn.max = self.play.max = last
        self.turn.value = 1
        self._draw()

    def fallback(self) -> bytes:
        """All drafts of every episode at once."""
        return figures.png(episode_figure(self.episodes))

    def _step(self, by: int) -> None:
        self.turn.value = min(max(self.turn.value + by, 1), self.turn.max)

    def _draw(self, change: Any = None) -> None:
        turn = self.turn.value - 1
        if turn not in self._pictures:
            self._pictures[turn] = figures.png(turn_figure(self.episodes, turn))
        self.image.value = self._pictures[turn]
        self.text.value = "".join(self._card(name, turn) for name in self.episodes)

    def _card(self, name: str, number: int) -> str:
        """The text of a turn on a card, under a line that says whose it is and what it earned."""
        turns = self.episodes[name].turns
        if not turns:
            return card(f"<b>{escape(name)}</b> This episode has no turns.")
        turn = turns[min(number, len(turns) - 1)]
        head = [f"<b>{escape(name)}</b>"] if name else []
        head.append(AGENTS.get(turn.agent, escape(turn.agent)))
        if number >= len(turns):
            head.append(f"this episode ended at turn {len(turns)}, which is still shown")
        if turn.agent == "developer" and not any(t.agent == "critic" for t in turns):
            head.append("no critique was given in this episode")
        if turn.reward is not None:
            reason = (turn.rewards or {}).get("reason")
            head.append(f"reward {turn.reward:.3f}" + (f", {escape(reason)}" if reason else ""))
        if turn.advantage is not None:
            head.append(f"advantage {turn.advantage:+.2f}")
        view = self.view.value
        if view == "changes":
            body = marked_text.changes(_before(turns, turn), turn.text)
        else:
            body = marked_text.tokens(turn, view)
        return card(f'<div style="margin-bottom:4px">{" · ".join(head)}</div>{body}')


def _before(turns: tuple[KeptTurn, ...], turn: KeptTurn) -> str | None:
    """What the same agent wrote the turn before, or None."""
    earlier = turns[: next(i for i, other in enumerate(turns) if other is turn)]
    texts = [other.text for other in earlier if other.agent == turn.agent]
    return texts[-1] if texts else None
