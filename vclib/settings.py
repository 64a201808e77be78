"""From the flags of the command line to the settings of training and evaluation."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from vclib.errors import VclibError
from vclib.flags import EVAL_PAGES, server_url
from vclib.paths import ROOT, TINY
from vclib.rl.profiles import PROFILES, TrainSettings
from vclib.rl.results import LOOPS, EvalSettings, count_of
from vclib.rl.run_folder import next_free

SMALL_GPU = 24e9
"""Bytes of GPU memory below which a card gets the profile t4."""
ADAPTER_CONFIG = "adapter_config.json"


def train_settings(flags: argparse.Namespace) -> TrainSettings:
    """The profile's settings, or the resumed run's, under the flags that were given."""
    given = vars(flags).copy()
    names = {field.name for field in fields(TrainSettings)}
    changes = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if name in names
    }
    if "resume_from" in given and "profile" not in given:
        from vclib.rl.checkpoint import find

        base = _resumed_settings(find(Path(given["resume_from"])))
        name = given.get("run_name", base.run)
    else:
        profile = given.get("profile") or default_profile(given.get("model"))
        base = PROFILES[profile]
        output = Path(given.get("output", base.output))
        name = given.get("run_name") or next_free(output, profile).name
    if changes.get("env", base.env) == "http" and not changes.get("env_url", base.env_url):
        changes["env_url"] = server_url()
    settings = base.but(**changes, run=name)
    if settings.phase == "alternate" and "episodes" in given:
        raise VclibError(
            "Phase alternate has --episodes-per-phase and --num-phases, no --episodes."
        )
    if settings.phase != "alternate" and given.keys() & {"episodes_per_phase", "num_phases"}:
        raise VclibError(
            f"Phase {settings.phase} has --episodes, no --episodes-per-phase or --num-phases."
        )
    return settings


def default_profile(model: str | None) -> str:
    """laptop for the small model; for another gpu, or t4 where the card is small or old."""
    if model is None or Path(model).resolve() == TINY:
        return "laptop"
    import torch

    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory
        if memory < SMALL_GPU or not torch.cuda.is_bf16_supported(including_emulation=False):
            return "t4"
    return "gpu"


def announcement(settings: TrainSettings) -> str:
    """What a run is going to do, in a few lines."""
    model, phases = Path(settings.model).name, [name for name, _ in settings.schedule]
    plan = f"{count_of('update', settings.total_updates)}, phase{'s' if len(phases) > 1 else ''}"
    said = (
        f"{model} on {settings.pages} pages: {plan} {', '.join(phases)}; "
        f"{settings.pages_per_update} x {settings.k_rollouts} episodes of up to "
        f"{count_of('draft', settings.max_steps)} each\nRun folder: {settings.run_folder}"
    )
    if model == TINY.name and settings.pages != "blocks":
        said += f"\n{model} was made on generated block pages and reads no others."
    return said


def evaluation_of(settings: TrainSettings, count: int) -> EvalSettings:
    """The evaluation that fits a run: its pages, turns, temperature and limits, held-out pages.

    As many episodes go in step as in the run, which is known to fit in memory.
    """
    alone = settings.max_steps == 1 or not settings.use_critic
    return EvalSettings(
        pages=settings.pages,
        difficulty=settings.difficulty,
        count=count,
        max_steps=settings.max_steps,
        temperature=settings.temperature,
        developer_tokens=settings.developer_tokens,
        critic_tokens=settings.critic_tokens,
        revision_screenshot=settings.revision_screenshot,
        loops=LOOPS[:1] if alone else LOOPS,
        episodes_per_batch=settings.pages_per_update * settings.k_rollouts,
        seed=settings.seed,
    )


def eval_pages(flags: argparse.Namespace) -> int:
    """Held-out pages that `train` evaluates on."""
    few = getattr(flags, "profile", None) == "ci"
    return getattr(flags, "eval_pages", 6 if few else EVAL_PAGES)


@dataclass(frozen=True)
class Adapters:
    """Trained adapters: their folder, the model that they fit, and the run that made them."""

    folder: Path
    model: str
    r: int
    alpha: int
    settings: TrainSettings | None


def find_adapters(path: Path) -> Adapters:
    """The adapters in a run's folder, a checkpoint, or a folder of adapters.

    Raises VclibError if there are none.
    """
    settings = None
    if (path / "developer" / ADAPTER_CONFIG).is_file():
        folder = path
    else:
        from vclib.rl.checkpoint import find

        if not path.is_dir():
            raise VclibError(
                f"There is no folder {path}; --adapters takes a run (outputs/laptop-1), a "
                "checkpoint (…/update-000018), or a folder with developer/ and critic/ in it."
            )
        checkpoint = find(path)
        folder, settings = checkpoint / "adapters", _resumed_settings(checkpoint)
    file = folder / "developer" / ADAPTER_CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        model = settings.model if settings else config["base_model_name_or_path"]
        r, alpha = int(config["r"]), int(config["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VclibError(
            f"{file} does not describe an adapter ({error!r}); expected peft's, with r, "
            "lora_alpha and base_model_name_or_path: take another checkpoint."
        ) from error
    if not Path(model).is_dir() and (ROOT / model).is_dir():
        model = str(ROOT / model)
    return Adapters(folder, model, r, alpha, settings)


def card_facts(adapters: Adapters) -> dict[str, object]:
    """How adapters were trained, for a model card; only their rank where the run is not known."""
    facts: dict[str, object] = {"LoRA rank": adapters.r, "LoRA alpha": adapters.alpha}
    if adapters.settings:
        names = (
            "pages difficulty phase k_rollouts pages_per_update max_steps temperature "
            "learning_rate advantage loss_aggregation kl_beta seed"
        )
        facts["checkpoint"] = adapters.folder.parent.name
        facts |= {name: getattr(adapters.settings, name) for name in names.split()}
    return facts


def eval_settings(flags: argparse.Namespace, adapters: Adapters | None) -> EvalSettings:
    """The settings of the adapters' run, where it is known, under the flags that were given."""
    base = EvalSettings()
    if adapters and adapters.settings:
        base = evaluation_of(adapters.settings, base.count)
    names = {field.name for field in fields(EvalSettings)}
    given = {k: v for k, v in vars(flags).items() if k in names and v is not None}
    if given.get("max_steps", base.max_steps) == 1:
        given["loops"] = LOOPS[:1]
    settings = replace(base, **given)
    return settings if adapters else replace(settings, policies=("base",))


def environment_of(flags: argparse.Namespace, settings: EvalSettings) -> TrainSettings:
    """Where an evaluation renders, in the form that `open_env` takes."""
    return TrainSettings(
        pages=settings.pages,
        split=settings.split,
        max_steps=settings.max_steps,
        phase="developer",
        env=flags.env,
        env_url=tuple(flags.env_url or [server_url()]),
    )


def _resumed_settings(checkpoint: Path) -> TrainSettings:
    from vclib.rl.checkpoint import read_state

    saved: Mapping[str, Any] = read_state(checkpoint)["settings"]
    names = {field.name for field in fields(TrainSettings)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in saved.items()
        if name in names
    }
    # The small model comes with the project, wherever that lies now.
    if not Path(values["model"]).is_dir() and Path(values["model"]).name == TINY.name:
        values["model"] = str(TINY)
    # A run that was moved or copied goes on where it lies now.
    kept = checkpoint.parent
    if kept.parent.name in ("", ".."):
        kept = kept.resolve()
    if values["checkpoint_dir"]:
        values["checkpoint_dir"] = str(kept)
    elif kept.name == "checkpoints":
        values |= {"output": str(kept.parent.parent), "run": kept.parent.name}
    return TrainSettings(**values).but(overwrite=False, resume_from=None)
