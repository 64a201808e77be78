"""Every setting of a training run, and the four profiles that set them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from vclib.errors import VclibError
from vclib.paths import TINY
from vclib.rl.returns import VARIANTS, Variant

Phase = Literal["developer", "critic", "combined"]
AGENTS = ("developer", "critic")


@dataclass(frozen=True)
class TrainSettings:
    """One training run; `Trainer(settings)` needs nothing else."""

    # What acts, and on what.
    model: str = str(TINY)  # folder or hub name of a Qwen3.5-VL
    pages: str = "blocks"  # page set: blocks, web, websight or folder:PATH
    split: str = "train"  # the split that the pages come from
    difficulty: str = "mixed"  # easy, medium, hard, or mixed: all three in turn
    env: Literal["inprocess", "http"] = "inprocess"  # where pages are rendered and scored
    env_url: str | tuple[str, ...] | None = None  # the server or servers when env is http
    max_steps: int = 5  # Developer turns in an episode, at most
    use_critic: bool = True  # False: the Developer revises without critique
    revision_screenshot: bool = False  # a revision sees the page again, not the critique alone

    # How long, and whom.
    phase: Literal["developer", "critic", "alternate", "combined"] = "alternate"  # who is trained
    episodes: int = 200  # updates, when there is one phase
    episodes_per_phase: int = 200  # updates in each phase of alternate
    num_phases: int = 4  # phases of alternate; the Developer's come first
    k_rollouts: int = 4  # episodes in a group: K on the same page
    pages_per_update: int = 1  # groups in an update
    partner: Literal["latest", "base"] = "latest"  # the frozen agent plays its adapter, or the base
    frozen_critic_greedy: bool = True  # a frozen Critic takes its likeliest words; else it samples
    frozen_developer_greedy: bool = False  # the same of a frozen Developer: one draft for all K

    # Sampling.
    temperature: float = 0.7  # of both agents; scoring divides by it too
    developer_tokens: int = 2048  # new tokens in a Developer turn, at most
    critic_tokens: int = 512  # new tokens in a Critic turn, at most
    stop: tuple[str, ...] = ("</html>",)  # texts that end a Developer turn

    # Learning.
    advantage: Variant = "flat"  # flat, per_turn, dr_grpo or rloo
    lambda_shaped: float = 0.2  # weight of the gain after a turn in its return
    loss_aggregation: Literal["turn", "token", "limit"] = "turn"  # see `loss.token_weights`
    epochs_per_batch: int = 1  # optimizer steps on the same episodes; several need clip_ratio
    clip_ratio: float | None = None  # bound of the probability ratio, PPO's epsilon
    kl_beta: float = 0.0  # weight of the divergence from the base model
    learning_rate: float = 2e-5  # AdamW's, constant
    weight_decay: float = 0.01  # AdamW's, on the adapters
    max_grad_norm: float = 1.0  # the gradient is scaled down to this norm
    lora_r: int = 16  # rank of the adapters
    lora_alpha: int = 32  # adapters are scaled by alpha / r
    lora_dropout: float = 0.05  # kept in the adapters' configuration; scoring is without dropout

    # The machine.
    token_budget: int = 16_384  # tokens in a micro-batch, padding included
    gradient_checkpointing: bool = False  # recompute activations: less memory, more time
    device: str = "auto"  # cpu, cuda, or auto
    dtype: str = "auto"  # float32, bfloat16, float16, or auto
    threads: int | None = None  # torch threads; None leaves torch's own choice
    seed: int = 0  # adapters, pages and sampling all derive from it

    # What is written.
    run: str = "run"  # name of the run, and of its folder
    output: str = "outputs"  # folder of the run folders
    checkpoint_dir: str | None = None  # None: checkpoints/ in the run folder
    checkpoint_every: int = 50  # updates between checkpoints; each phase's end has one too
    resume_from: str | None = None  # a checkpoint or a run folder to go on from
    overwrite: bool = False  # start afresh in a run folder that holds a run
    trackers: tuple[str, ...] = ("tensorboard",)  # accelerate's trackers, where installed

    def __post_init__(self) -> None:
        _check(self)

    @property
    def run_folder(self) -> Path:
        return Path(self.output) / self.run

    @property
    def checkpoint_folder(self) -> Path:
        return Path(self.checkpoint_dir) if self.checkpoint_dir else self.run_folder / "checkpoints"

    @property
    def schedule(self) -> tuple[tuple[Phase, int], ...]:
        """The phases in order, each with its number of updates."""
        if self.phase == "alternate":
            names: tuple[Phase, Phase] = ("developer", "critic")
            return tuple((names[i % 2], self.episodes_per_phase) for i in range(self.num_phases))
        return ((self.phase, self.episodes),)

    @property
    def total_updates(self) -> int:
        return sum(updates for _, updates in self.schedule)

    def phase_at(self, update: int) -> tuple[int, Phase, bool]:
        """Phase number, phase, and whether update number `update` (from 0) is the phase's last."""
        end = 0
        for number, (phase, updates) in enumerate(self.schedule):
            end += updates
            if update < end:
                return number, phase, update == end - 1
        raise IndexError(f"update {update} of a run of {self.total_updates}")

    def token_limit(self, agent: str) -> int:
        """New tokens in a turn of the agent, at most."""
        return self.developer_tokens if agent == "developer" else self.critic_tokens

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def but(self, **changes: Any) -> TrainSettings:
        """These settings with some replaced; an unknown name is an error that lists the known."""
        known = {field.name for field in fields(self)}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise VclibError(
                f"Unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}."
            )
        return replace(self, **changes)


def trained_agents(phase: Phase) -> tuple[str, ...]:
    """Whose turns a phase trains on."""
    return AGENTS if phase == "combined" else (phase,)


def _check(s: TrainSettings) -> None:
    positive = (
        "episodes episodes_per_phase num_phases k_rollouts pages_per_update max_steps "
        "developer_tokens critic_tokens epochs_per_batch token_budget checkpoint_every lora_r"
    )
    for name in positive.split():
        if getattr(s, name) < 1:
            raise VclibError(f"{name} is {getattr(s, name)}; it must be at least 1.")
    choices = {
        "phase": ("developer", "critic", "alternate", "combined"),
        "partner": ("latest", "base"),
        "env": ("inprocess", "http"),
        "difficulty": ("easy", "medium", "hard", "mixed"),
        "advantage": VARIANTS,
        "loss_aggregation": ("turn", "token", "limit"),
    }
    for name, known in choices.items():
        if getattr(s, name) not in known:
            raise VclibError(f"{name} is {getattr(s, name)!r}; it must be one of {known}.")
    if s.temperature <= 0:
        raise VclibError(
            f"temperature is {s.temperature}; training samples, so it must be above 0."
        )
    if s.env == "http" and not s.env_url:
        raise VclibError("env is http, so env_url must name the server, as http://127.0.0.1:8000.")
    if s.epochs_per_batch > 1 and s.clip_ratio is None:
        raise VclibError(
            "epochs_per_batch above 1 trains on episodes of an older policy: set clip_ratio, "
            "for instance 0.2."
        )
    needs_critic = s.phase in ("critic", "combined") or (
        s.phase == "alternate" and s.num_phases > 1
    )
    if needs_critic and (s.max_steps < 2 or not s.use_critic):
        raise VclibError(
            f"phase {s.phase} trains the Critic, who speaks between two Developer turns: "
            "max_steps must be at least 2 and use_critic on."
        )


LAPTOP = TrainSettings(
    episodes=18,
    episodes_per_phase=6,
    num_phases=3,
    k_rollouts=12,
    pages_per_update=12,
    max_steps=2,
    learning_rate=1e-3,
    developer_tokens=160,
    critic_tokens=96,
)
GPU = TrainSettings(
    model="Qwen/Qwen3.5-9B",
    pages="web",
    revision_screenshot=True,
    gradient_checkpointing=True,
    token_budget=32_768,
)
PROFILES: dict[str, TrainSettings] = {
    "ci": LAPTOP.but(
        episodes=2,
        episodes_per_phase=1,
        num_phases=2,
        k_rollouts=2,
        pages_per_update=1,
        developer_tokens=24,
        critic_tokens=8,
        trackers=(),
    ),
    "laptop": LAPTOP,
    "t4": GPU.but(model="Qwen/Qwen3.5-0.8B", token_budget=8_192),
    "gpu": GPU,
}
