"""Episodes as they are looked at later: from memory, from a file of a run, from an evaluation."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vclib.env.observation import pixels_of, png_base64
from vclib.errors import VclibError
from vclib.files import replace_text
from vclib.rl.results import Draft, Evaluation
from vclib.rl.runlog import is_number
from vclib.rl.turns import Episode, Turn
from vclib.rl.update import Update

FOLDER = "episodes"
MOST = 100
"""Files of episodes in a run's folder, or one more; a longer run keeps one every few updates."""


@dataclass(frozen=True)
class KeptTurn:
    """One turn; what is not known of it is None or empty.

    rewards: the parts by name, each in [0, 1]; render: uint8 RGB [H, W, 3]; tokens: the text of
    each sampled token; logprobs: natural logarithms, one a token; advantage: the turn's.
    """

    agent: str
    text: str
    reward: float | None = None
    rewards: Mapping[str, Any] | None = None
    render: np.ndarray | None = None
    advantage: float | None = None
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class KeptEpisode:
    """The turns on one page, without the prompts that a model needs; `update` is from 1."""

    page_id: str
    difficulty: str
    reference: np.ndarray | None
    turns: tuple[KeptTurn, ...]
    update: int | None = None


def keep(episode: Episode, tokenizer: Any = None, update: int | None = None) -> KeptEpisode:
    """What is to be seen of an episode; without the policy's tokenizer, no tokens."""
    turns = tuple(_kept_turn(turn, tokenizer) for turn in episode.turns)
    return KeptEpisode(episode.page_id, episode.difficulty, episode.reference, turns, update)


def _kept_turn(turn: Turn, tokenizer: Any) -> KeptTurn:
    pieces = _pieces(turn.sample.completion_ids.tolist(), tokenizer) if tokenizer else []
    scores = turn.sample.logprobs.tolist()
    return KeptTurn(
        turn.agent,
        turn.text,
        turn.reward,
        turn.rewards,
        turn.render,
        turn.advantage,
        tuple(text for text, _ in pieces),
        tuple(math.fsum(scores[span]) for _, span in pieces),
    )


def _pieces(ids: Sequence[int], tokenizer: Any) -> list[tuple[str, slice]]:
    """The text of each token; tokens that hold a letter only together are one piece."""
    pieces, start = [], 0
    for end in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[start:end], clean_up_tokenization_spaces=False)
        if "\ufffd" not in text or end == len(ids) or end - start == 4:  # UTF-8 ends by 4 bytes
            pieces.append((text, slice(start, end)))
            start = end
    return pieces


def of_drafts(
    page_id: str, difficulty: str, reference: np.ndarray | None, drafts: Sequence[Draft]
) -> KeptEpisode:
    """An episode from what an evaluation stores of it: no tokens, and no word of a last DONE."""
    turns = []
    for draft in drafts:
        if draft.critique is not None:
            turns.append(KeptTurn("critic", draft.critique))
        turns.append(KeptTurn("developer", draft.html, draft.reward, draft.parts, draft.pixels))
    return KeptEpisode(page_id, difficulty, reference, tuple(turns))


def evaluated(evaluation: Evaluation) -> dict[str, dict[str, KeptEpisode]]:
    """The episodes that an evaluation shows: {page id: {policy, "base" or "trained": episode}}."""
    found: dict[str, dict[str, KeptEpisode]] = {}
    for arm, results in evaluation.arms.items():
        for page in results:
            if page.drafts:
                reference = evaluation.references.get(page.page_id)
                episode = of_drafts(page.page_id, page.difficulty, reference, page.drafts)
                found.setdefault(page.page_id, {})[arm.policy] = episode
    return found


def keep_of(update: Update, run_folder: Path, tokenizer: Any = None) -> Path | None:
    """Keep the first episode of an update in the run's folder, if its turn has come.

    The first, so that nothing is picked. A run of more than `MOST` updates keeps one every few.
    Files of later updates, from before the run was resumed or begun again, are removed. A disk
    that is full is warned of: nothing that is learnt depends on these files.
    """
    if update.index != 1 and update.index % -(-update.total // MOST):
        return None
    kept = keep(update.episodes[0][0], tokenizer, update.index)
    try:
        for later, path in stored(run_folder).items():
            if later > update.index:
                path.unlink()
        return save(kept, path_of(run_folder, update.index))
    except OSError as error:
        warnings.warn(f"An episode of update {update.index} was not kept: {error}.", stacklevel=2)
        return None


def path_of(run_folder: Path, update: int) -> Path:
    """The file of an update's episode in a run's folder."""
    return run_folder / FOLDER / f"update-{update:06d}.json"


def stored(run_folder: Path) -> dict[int, Path]:
    """The files of episodes in a run's folder, by update."""
    paths = sorted((run_folder / FOLDER).glob("update-*.json"))
    return {int(p.stem.removeprefix("update-")): p for p in paths if p.stem[7:].isdecimal()}


def save(kept: KeptEpisode, path: Path) -> Path:
    """Write an episode to a file, its pictures in it, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(_plain(kept), ensure_ascii=False) + "\n")
    return path


def _plain(kept: KeptEpisode) -> dict[str, Any]:
    turns = [turn.__dict__ | {"render": _text(turn.render)} for turn in kept.turns]
    return kept.__dict__ | {"reference": _text(kept.reference), "turns": turns}


def load(path: Path) -> KeptEpisode:
    """Read what `save` wrote; what a file lacks is None or empty. Raises `VclibError`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        turns = tuple(_read_turn(turn) for turn in content["turns"])
        return KeptEpisode(
            str(content.get("page_id", "")),
            str(content.get("difficulty", "")),
            _pixels(content.get("reference")),
            turns,
            content.get("update"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise VclibError(f"{path} holds no episode ({error!r}).") from error


def _read_turn(row: Mapping[str, Any]) -> KeptTurn:
    parts = row.get("rewards")
    tokens, scores = row.get("tokens") or (), [_number(n) for n in row.get("logprobs") or ()]
    whole = len(tokens) == len(scores) and None not in scores
    return KeptTurn(
        str(row["agent"]),
        str(row.get("text") or ""),
        _number(row.get("reward")),
        {name: _part(name, value) for name, value in parts.items()} if parts else None,
        _pixels(row.get("render")),
        _number(row.get("advantage")),
        tuple(map(str, tokens)) if whole else (),
        tuple(min(score or 0.0, 0.0) for score in scores) if whole else (),
    )


def _part(name: str, value: Any) -> Any:
    return _number(value) if name != "reason" or value is None else str(value)


def _number(value: Any) -> float | None:
    return value if is_number(value) else None


def _text(pixels: np.ndarray | None) -> str | None:
    return None if pixels is None else png_base64(pixels)


def _pixels(text: str | None) -> np.ndarray | None:
    return None if text is None else pixels_of(text)
