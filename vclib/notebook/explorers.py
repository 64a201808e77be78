"""Numbers that answer the mouse: change a reward or a rule, and see what every turn is credited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vclib.errors import VclibError
from vclib.notebook.base import Explorer, card
from vclib.rl import figures
from vclib.rl.returns import VARIANTS, compute_step_returns, grpo_advantages
from vclib.rl.turns import Episode

Table = list[list[float]]
COLUMN = 0.62
ROW = 0.36
"""Inches of one number in a table of credit."""
REACH = 0.44
"""Columns that the longest bar of a panel takes, to either side."""


def credit_of(rewards: Table, lambda_shaped: float, variant: str) -> dict[str, Table]:
    """Rewards, returns and advantages of a group, each a list per episode, one number a draft."""
    returns = [compute_step_returns(row, lambda_shaped) for row in rewards]
    compared = grpo_advantages(returns, variant)  # type: ignore[arg-type]  # raises if unknown
    return {"reward": rewards, "return": returns, "advantage": compared.values}


def credit_tables(
    tables: dict[str, Table],
    *,
    marked: tuple[int, int] | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Panels side by side, a row an episode and a column a draft; `marked` is (row, column).

    Rewards and returns are shades of one colour from 0 to 1. What is named an advantage is a bar,
    to the right of its column's zero if positive; the longest of a panel stands for 1 or more.
    """
    rows = max(len(table) for table in tables.values())
    columns = max(len(row) for table in tables.values() for row in table)
    size = (1.2 + len(tables) * (0.4 + columns * COLUMN), 0.9 + rows * ROW)
    with figures.styled(**{"axes.grid": False}):
        figure = figure or Figure()
        figure.set_size_inches(size)
        figure.set_layout_engine("constrained")
        panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
        for axes, (name, table) in zip(panels, tables.items(), strict=True):
            draw = _draw_bars if "advantage" in name else _draw_table
            draw(axes, table, columns)
            axes.set(title=name, xlabel="draft")
            if marked:
                corner = (marked[1] - 0.5, marked[0] - 0.5)
                axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=figures.INK, lw=2))
        panels[0].set_ylabel("episode")
    return figure


def _draw_table(axes: Axes, table: Table, columns: int) -> None:
    filled = _filled(table, columns)
    # Pale enough that dark ink is read on every cell.
    axes.imshow(filled, cmap=figures.SEQUENTIAL, vmin=0, vmax=1, aspect="auto", alpha=0.45)
    for (row, column), value in np.ndenumerate(filled):
        if not np.isnan(value):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", size=8)
    _grid(axes, *filled.shape)


def _draw_bars(axes: Axes, table: Table, columns: int) -> None:
    filled = _filled(table, columns)
    scale = REACH / max(1.0, float(np.nanmax(np.abs(filled), initial=0)))
    ground = {"fc": "white", "ec": "none", "pad": 0.5}  # over the line of zeros
    over: dict[str, Any] = {"ha": "center", "va": "center", "size": 8, "bbox": ground}
    for column in range(columns):
        axes.axvline(column, color=figures.GRID, lw=1, zorder=0)
    for (row, column), value in np.ndenumerate(filled):
        if not np.isnan(value):
            colour = figures.PALETTE["developer" if value >= 0 else "critic"]
            axes.barh(row + 0.22, value * scale, 0.34, left=column, color=colour)
            axes.text(column, row - 0.18, f"{value:+.2f}", **over)
    axes.grid(visible=False)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(len(table) - 0.5, -0.5))
    _grid(axes, *filled.shape)


def _filled(table: Table, columns: int) -> np.ndarray:
    """The numbers as [episode, draft], NaN where there is no draft."""
    filled = np.full((len(table), columns), np.nan)
    for row, values in enumerate(table):
        filled[row, : len(values)] = values
    return filled


def _grid(axes: Axes, rows: int, columns: int) -> None:
    axes.set_xticks(range(columns), [str(draft + 1) for draft in range(columns)])
    axes.set_yticks(range(rows), [str(episode + 1) for episode in range(rows)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def change_words(before: dict[str, Table], after: dict[str, Table]) -> str:
    """What became other in a group's credit, in sentences; empty where nothing did."""
    said = []
    for name in ("return", "advantage"):
        pairs = zip(before[name], after[name], strict=False)
        moved = {
            (row, column): new - old
            for row, (olds, news) in enumerate(pairs, 1)
            for column, (old, new) in enumerate(zip(olds, news, strict=True), 1)
            if abs(new - old) >= 0.005
        }
        if moved:
            row, column = max(moved, key=lambda place: abs(moved[place]))
            said.append(
                f"{len(moved)} {name}{'s' * (len(moved) > 1)} changed, most that of episode {row}, "
                f"draft {column}, by {moved[row, column]:+.2f}."
            )
    return " ".join(said)


def _checked(rewards: Sequence[Sequence[float] | Episode]) -> Table:
    try:
        rows = [row.rewards if isinstance(row, Episode) else row for row in rewards]
        table = [[float(value) for value in row] for row in rows]
    except (TypeError, ValueError) as error:
        raise VclibError(
            f"Rewards are a list for every episode, a number for each draft of it: {error}."
        ) from error
    if not table:
        raise VclibError("There is no episode to explore: give the rewards of one at least.")
    for number, row in enumerate(table, 1):
        if not row or not all(0 <= value <= 1 for value in row):
            raise VclibError(
                f"Episode {number} has the rewards {row}: expected those of one draft or more, "
                "each between 0 and 1."
            )
    return table


class CreditExplorer(Explorer):
    """A group of episodes whose rewards, K, λ and rule can be changed: what is each turn credited?

    `rewards` holds a list per episode, the reward of each draft in [0, 1], or the episode itself;
    the lengths may differ. Pick an episode and a draft, and move its reward. K takes the first
    episodes of the group alone. Below stands what has changed since the beginning.

    Raises `VclibError` where an episode has no draft, or a reward is not between 0 and 1.
    """

    title = "credit explorer"

    def __init__(self, rewards: Sequence[Sequence[float] | Episode], lambda_shaped: float = 0.2):
        self.rewards = _checked(rewards)
        wide = {"style": {"description_width": "70px"}}
        self.lambda_shaped = ipywidgets.FloatSlider(
            lambda_shaped, min=0, max=2, step=0.05, description="λ", **wide
        )
        self.variant = ipywidgets.ToggleButtons(options=VARIANTS, description="rule", **wide)
        count = len(self.rewards)
        self.k = ipywidgets.BoundedIntText(count, min=1, max=count, description="K", **wide)
        self.said = ipywidgets.HTML()
        self.episode = ipywidgets.BoundedIntText(
            1, min=1, max=len(self.rewards), description="episode", **wide
        )
        self.draft = ipywidgets.BoundedIntText(1, min=1, max=1, description="draft", **wide)
        self.reward = ipywidgets.FloatSlider(
            0, min=0, max=1, step=0.01, description="its reward", **wide
        )
        self.image = ipywidgets.Image(format="png")
        self.image.layout.align_self = "flex-start"  # as large as it is, not as the page is wide
        for control in (self.episode, self.draft):
            control.observe(self._pick, names="value")
        for control in (self.lambda_shaped, self.variant):
            control.observe(self._draw, names="value")
        self.k.observe(self._set_k, names="value")
        self._start = self.credit
        self.reward.observe(self._set_reward, names="value")
        self._pick()
        picking = ipywidgets.HBox([self.episode, self.draft, self.reward])
        rule = ipywidgets.HBox([self.lambda_shaped, self.k])
        super().__init__([rule, self.variant, picking, self.image, self.said])

    @property
    def credit(self) -> dict[str, Table]:
        """The numbers that are shown: reward, return and advantage of every turn."""
        group = self.rewards[: self.k.value]
        return credit_of(group, self.lambda_shaped.value, self.variant.value)

    def _set_k(self, change: Any = None) -> None:
        self.episode.max = self.k.value  # pulls the choice of episode back, if it must
        self._draw()

    def _pick(self, change: Any = None) -> None:
        self.draft.max = len(self.rewards[self.episode.value - 1])
        reward = self.rewards[self.episode.value - 1][self.draft.value - 1]
        if self.reward.value == reward:
            self._draw()
        self.reward.value = reward  # draws, if it is another one

    def _set_reward(self, change: Any = None) -> None:
        self.rewards[self.episode.value - 1][self.draft.value - 1] = self.reward.value
        self._draw()

    def _draw(self, change: Any = None) -> None:
        marked = (self.episode.value - 1, self.draft.value - 1)
        self.image.value = figures.png(credit_tables(self.credit, marked=marked))
        words = "A critique is credited with the return of the draft that follows it."
        self.said.value = card(f"{change_words(self._start, self.credit)} {words}")
