"""The file of an evaluation: eval.json, with the pictures of some pages beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vclib.errors import VclibError
from vclib.files import replace_text
from vclib.rl.results import Arm, Draft, EvalSettings, Evaluation, PageResult, comparisons

FILE = "eval.json"


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
    try:
        return _read(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise VclibError(
            f"{path} or a picture beside it is damaged ({error!r}): restore it, or write it again "
            "with `python -m vclib eval`."
        ) from error


def _read(path: Path) -> Evaluation:
    folder = path.parent
    content = json.loads(path.read_text(encoding="utf-8"))
    # A stored file may be older than the settings' names: one that is gone now is left out.
    known = {field.name for field in fields(EvalSettings)}
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in content["settings"].items()
        if name in known
    }
    arms = {
        Arm(row["policy"], row["loop"], row["decoding"]): [
            _page_result(page, folder) for page in row["pages"]
        ]
        for row in content["arms"]
    }
    references = {page: _picture(folder / name) for page, name in content["references"].items()}
    return Evaluation(EvalSettings(**settings), arms, references, content["about"])


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
                "parts": draft.parts,
                "picture": _save_picture(draft.pixels, folder, result.page_id, arm.policy, turn),
            }
            for turn, draft in enumerate(result.drafts, 1)
        ]
    return row


def _page_result(row: Mapping[str, Any], folder: Path) -> PageResult:
    drafts = [
        Draft(
            d["html"], _picture(folder / d["picture"]), d["reward"], d["critique"], d.get("parts")
        )
        for d in row.get("drafts", ())
    ]
    return PageResult(row["page_id"], row["difficulty"], row["rewards"], row["truncated"], drafts)


def _save_picture(pixels: np.ndarray, folder: Path, page_id: str, *names: object) -> str:
    # A page's id may be longer than a file's name, and ids may differ in their slashes alone.
    digest = hashlib.sha256(page_id.encode()).hexdigest()[:8]
    name = "-".join([page_id.replace("/", "-")[:40], digest, *map(str, names)])
    path = folder / "pictures" / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(path)
    return str(path.relative_to(folder))


def _picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))
