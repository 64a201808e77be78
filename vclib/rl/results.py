"""What an evaluation measured: rewards page by page, their means and gains, and their file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vclib.errors import VclibError
from vclib.rl.intervals import Interval, bootstrap, paired_difference
from vclib.rl.runlog import replace_text

POLICIES = ("base", "trained")
LOOPS = ("alone", "critic")
DECODINGS = ("sampled", "greedy")
DIFFICULTIES = ("easy", "medium", "hard")
FILE = "eval.json"


@dataclass(frozen=True)
class EvalSettings:
    """What is measured; every arm sees the same pages and starts from the same seed."""

    pages: str = "blocks"
    split: str = "heldout"
    difficulty: str = "mixed"
    count: int = 60
    max_steps: int = 5
    samples_per_page: int = 1
    temperature: float = 0.7
    developer_tokens: int = 2048
    critic_tokens: int = 512
    policies: tuple[str, ...] = POLICIES
    loops: tuple[str, ...] = LOOPS
    decodings: tuple[str, ...] = DECODINGS
    pages_per_batch: int = 20
    seed: int = 0

    def arms(self) -> list[Arm]:
        """Every combination of policy, loop and decoding asked for."""
        return [Arm(*n) for n in itertools.product(self.policies, self.loops, self.decodings)]


@dataclass(frozen=True)
class Arm:
    """One way of playing: whose adapters, with or without the Critic, sampled or greedy."""

    policy: str
    loop: str
    decoding: str

    @property
    def label(self) -> str:
        """For instance "trained with Critic"."""
        return f"{self.policy} {'with Critic' if self.loop == 'critic' else 'alone'}"


@dataclass(frozen=True)
class Draft:
    """One Developer turn kept to be shown; `critique` is what the Critic had said before it."""

    html: str
    pixels: np.ndarray
    reward: float
    critique: str | None


@dataclass
class PageResult:
    """How one arm did on one page: the reward of every turn of every sample."""

    page_id: str
    difficulty: str
    rewards: list[list[float]]
    truncated: int = 0
    drafts: list[Draft] = field(default_factory=list)

    def value(self, measure: str) -> float:
        """Mean over samples of the "first", "last" or "best" reward, or that after turn "1", "2", …

        An episode that the Critic ended keeps its last reward for the turns that it did not use.
        """
        return float(np.mean([_measure(rewards, measure) for rewards in self.rewards]))


@dataclass
class Evaluation:
    """All results, in the same order of pages for every arm.

    `about` holds what made them: model, adapters, command, versions, browser, seconds.
    """

    settings: EvalSettings
    arms: dict[Arm, list[PageResult]]
    references: dict[str, np.ndarray] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def mean(self, arm: Arm, measure: str = "last", difficulty: str = "all") -> Interval:
        """Mean reward of an arm with its interval over pages."""
        return bootstrap(self._values(arm, measure, difficulty), seed=self.settings.seed)

    def gain(
        self, after: Arm, before: Arm, measure: str = "last", difficulty: str = "all"
    ) -> Interval:
        """Mean difference between two arms, paired by page."""
        pair = (self._values(arm, measure, difficulty) for arm in (after, before))
        return paired_difference(*pair, seed=self.settings.seed)

    def revision_gain(self, arm: Arm, difficulty: str = "all") -> Interval:
        """Mean difference between an arm's last drafts and its first, paired by page."""
        pair = (self._values(arm, measure, difficulty) for measure in ("last", "first"))
        return paired_difference(*pair, seed=self.settings.seed)

    def curve(self, arm: Arm) -> list[Interval]:
        """Mean reward after each turn."""
        return [self.mean(arm, str(turn)) for turn in range(1, self.settings.max_steps + 1)]

    def page_gains(self, after: Arm, before: Arm) -> dict[str, float]:
        """The difference in the last reward on each page."""
        return {
            result.page_id: result.value("last") - other.value("last")
            for result, other in zip(self.arms[after], self.arms[before], strict=True)
        }

    def difficulties(self) -> list[str]:
        """The difficulties met, after "all"; only "all" if there is one."""
        met = {result.difficulty for result in next(iter(self.arms.values()))}
        return ["all", *(name for name in DIFFICULTIES if name in met and len(met) > 1)]

    def pages(self) -> int:
        """How many pages every arm has played."""
        return len(next(iter(self.arms.values())))

    def truncated(self, arm: Arm) -> float:
        """Share of the arm's Developer turns that hit the limit of new tokens."""
        turns = sum(len(rewards) for result in self.arms[arm] for rewards in result.rewards)
        return sum(result.truncated for result in self.arms[arm]) / max(1, turns)

    def mean_turns(self, arm: Arm) -> float:
        """Mean number of Developer turns; fewer than the most if the Critic ended episodes."""
        return float(np.mean([len(r) for result in self.arms[arm] for r in result.rewards]))

    def _values(self, arm: Arm, measure: str, difficulty: str) -> list[float]:
        return [
            result.value(measure)
            for result in self.arms[arm]
            if difficulty in ("all", result.difficulty)
        ]


def comparisons(evaluation: Evaluation) -> list[tuple[str, str, Arm, Arm]]:
    """The differences worth reading: (name, decoding, after, before)."""
    settings = evaluation.settings
    found = []
    for decoding in settings.decodings:
        arms = {(a.policy, a.loop): a for a in evaluation.arms if a.decoding == decoding}
        for loop in settings.loops:
            if ("trained", loop) in arms and ("base", loop) in arms:
                name = f"trained - base, {'with Critic' if loop == 'critic' else 'alone'}"
                found.append((name, decoding, arms["trained", loop], arms["base", loop]))
        for policy in settings.policies:
            if (policy, "critic") in arms and (policy, "alone") in arms:
                name = f"with Critic - alone, {policy}"
                found.append((name, decoding, arms[policy, "critic"], arms[policy, "alone"]))
    return found


def summary(evaluation: Evaluation) -> dict[str, list[dict[str, Any]]]:
    """Every mean and difference with its interval, as rows for a file."""
    means, differences = [], []
    for difficulty in evaluation.difficulties():
        for arm in evaluation.arms:
            for measure in ("first", "last", "best"):
                interval = evaluation.mean(arm, measure, difficulty)
                row = {**asdict(arm), "difficulty": difficulty, "measure": measure}
                means.append(row | interval.as_dict())
            row = {"difference": "last - first", **asdict(arm), "difficulty": difficulty}
            differences.append(row | evaluation.revision_gain(arm, difficulty).as_dict())
        for name, decoding, after, before in comparisons(evaluation):
            row = {"difference": name, "decoding": decoding, "difficulty": difficulty}
            interval = evaluation.gain(after, before, "last", difficulty)
            differences.append(row | interval.as_dict())
    curves = [
        {**asdict(arm), "turn": turn} | interval.as_dict()
        for arm in evaluation.arms
        for turn, interval in enumerate(evaluation.curve(arm), 1)
    ]
    return {"means": means, "differences": differences, "turns": curves}


def save(evaluation: Evaluation, folder: Path, show: Sequence[str] = ()) -> Path:
    """Write eval.json, and the pictures of the pages in `show`, to a folder; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "about": evaluation.about,
        "settings": asdict(evaluation.settings),
        **summary(evaluation),
        "arms": [
            {
                **asdict(arm),
                "mean_turns": evaluation.mean_turns(arm),
                "truncated": evaluation.truncated(arm),
                "pages": [_page_row(result, folder, arm, show) for result in results],
            }
            for arm, results in evaluation.arms.items()
        ],
        "references": {
            page_id: _save_picture(evaluation.references[page_id], folder, page_id, "reference")
            for page_id in show
            if page_id in evaluation.references
        },
    }
    path = folder / FILE
    replace_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def load(folder: Path) -> Evaluation:
    """Read what `save` wrote; only the pages that were shown have drafts."""
    path = folder / FILE
    if not path.is_file():
        raise VclibError(f"{path} does not exist; `python -m vclib eval` writes it.")
    content = json.loads(path.read_text(encoding="utf-8"))
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in content["settings"].items()}
    arms = {
        Arm(row["policy"], row["loop"], row["decoding"]): [
            _page_result(page, folder) for page in row["pages"]
        ]
        for row in content["arms"]
    }
    references = {page: _picture(folder / name) for page, name in content["references"].items()}
    return Evaluation(EvalSettings(**settings), arms, references, content["about"])


def _measure(rewards: Sequence[float], measure: str) -> float:
    if measure == "best":
        return max(rewards)
    turn = {"first": 1, "last": len(rewards)}.get(measure) or int(measure)
    return rewards[min(turn, len(rewards)) - 1]


def _page_row(result: PageResult, folder: Path, arm: Arm, show: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "page_id": result.page_id,
        "difficulty": result.difficulty,
        "rewards": result.rewards,
        "truncated": result.truncated,
    }
    if result.drafts and result.page_id in show:
        row["drafts"] = [
            {
                "html": draft.html,
                "reward": draft.reward,
                "critique": draft.critique,
                "picture": _save_picture(draft.pixels, folder, result.page_id, arm.policy, turn),
            }
            for turn, draft in enumerate(result.drafts, 1)
        ]
    return row


def _page_result(row: Mapping[str, Any], folder: Path) -> PageResult:
    drafts = [
        Draft(d["html"], _picture(folder / d["picture"]), d["reward"], d["critique"])
        for d in row.get("drafts", ())
    ]
    fields = (row[name] for name in ("page_id", "difficulty", "rewards", "truncated"))
    return PageResult(*fields, drafts)


def _save_picture(pixels: np.ndarray, folder: Path, page_id: str, *names: object) -> str:
    name = "-".join([*page_id.split("/"), *map(str, names)])
    path = folder / "pictures" / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(path)
    return str(path.relative_to(folder))


def _picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))
