"""The training loop: episodes, credit, gradient, phase after phase."""

from __future__ import annotations

import hashlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from vclib.env.environment import WebPageEnv
from vclib.errors import VclibError
from vclib.policy.model import LoraSettings, Policy
from vclib.policy.sampling import SamplingSettings
from vclib.rl import checkpoint
from vclib.rl.episodes import Episode, EpisodeSettings, Turn, play
from vclib.rl.loss import backward
from vclib.rl.profiles import AGENTS, TrainSettings, trained_agents
from vclib.rl.runlog import Meter, RunLog
from vclib.rl.update import Learned, Update, assign_credit, records, summarise

HALF_PRECISION_SCALE = 1024.0


class Trainer:
    """Trains the adapters of a policy on an environment, by `settings`.

        with Trainer(PROFILES["laptop"]) as trainer:
            for update in trainer.run():
                print(update.index, update.mean_terminal_reward)

    All randomness of update i comes from (seed, i), so that a run that was killed and resumed
    gives the same numbers as one that was not. Ctrl-C and `stop()` finish the update in hand,
    save, and end the loop. `env` and `policy` may be handed in; then they are left open.

    Raises `VclibError` for settings that do not fit a checkpoint, a run folder in use, a full
    disk, and an environment that fails twice in a row.
    """

    def __init__(
        self, settings: TrainSettings, env: Any = None, policy: Policy | None = None
    ) -> None:
        self.settings = settings
        state, resumed = self._look_up_resume()
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.accelerator = Accelerator(
            log_with=list(settings.trackers) or None, project_dir=str(settings.run_folder)
        )
        ranks = self.accelerator.num_processes
        if settings.pages_per_update < ranks:
            raise VclibError(
                f"pages_per_update is {settings.pages_per_update}, fewer than the {ranks} "
                f"processes that share the pages; set it to at least {ranks}."
            )
        self.done = state["update"] if state else 0
        self.log: RunLog | None = None
        if self.accelerator.is_main_process:
            self._claim_folders()
        self.policy = policy or self._load_policy()
        self._owns_env = env is None
        self.env = env if env is not None else open_env(settings)
        self.optimizers = {
            agent: torch.optim.AdamW(
                self.policy.adapter_parameters(agent).values(),
                lr=settings.learning_rate,
                weight_decay=settings.weight_decay,
            )
            for agent in AGENTS
        }
        if resumed:
            checkpoint.restore(resumed, self.policy, self.optimizers)
        self.checkpoint_path = resumed
        self._saved = self.done
        self._stop = False
        self._browser: str | None = None
        self._tracking = False

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the trackers, and the environment if this trainer opened it."""
        if self._tracking:
            self.accelerator.end_training()
            self._tracking = False
        if self._owns_env:
            self.env.close()

    def stop(self) -> None:
        """End `run()` after the update in hand; safe from another thread."""
        self._stop = True

    @property
    def finished(self) -> bool:
        return self.done >= self.settings.total_updates

    @property
    def how_to_go_on(self) -> str:
        """One sentence: how far the run is, and what continues it."""
        total = self.settings.total_updates
        if self.finished:
            return f"All {total} updates are done; the adapters are in {self.checkpoint_path}."
        return (
            f"Stopped after update {self.done} of {total}; "
            f"go on with --resume-from {self.checkpoint_path or self.settings.run_folder}."
        )

    def run(self) -> Iterator[Update]:
        """Do the updates that are left and yield each, after it is logged and saved."""
        self._stop = False
        try:
            while not self.finished and not self._stop:
                with self._interrupts_wait():
                    update = self._update(self.done)
                    self._write(update)
                    last_of_phase = self.settings.phase_at(self.done - 1)[2]
                    due = self.done % self.settings.checkpoint_every == 0
                    if last_of_phase or due or self._stop:
                        self.save()
                yield update
        except GeneratorExit:
            self.save()
            raise
        self.save()

    def save(self) -> Path | None:
        """Write a checkpoint unless this update has one; returns the newest one's folder."""
        if self.done > self._saved:
            number, phase, phase_end = self.settings.phase_at(self.done - 1)
            if self.accelerator.is_main_process:
                self.checkpoint_path = checkpoint.save(
                    self.settings.checkpoint_folder,
                    self.policy,
                    self.optimizers,
                    {
                        "update": self.done,
                        "phase": phase,
                        "phase_number": number,
                        "phase_end": phase_end,
                        "page_cursor": self.done * self.settings.pages_per_update,
                        "settings": self.settings.as_dict(),
                    },
                )
            self._saved = self.done
        return self.checkpoint_path

    def _update(self, index: int) -> Update:
        settings, rank = self.settings, self.accelerator.process_index
        number, phase, _ = settings.phase_at(index)
        meter = Meter()
        generator = torch.Generator().manual_seed(derive_seed(settings.seed, index, rank))
        try:
            groups = play(
                self.policy,
                self.env,
                self._pages(index),
                k=settings.k_rollouts,
                settings=episode_settings(settings, phase),
                generator=generator,
                meter=meter,
            )
        except Exception:
            self.save()
            raise
        agents = trained_agents(phase)
        credits = assign_credit(groups, agents, settings.advantage, settings.lambda_shaped)
        learned = self._learn(groups, agents, meter)
        self.done = index + 1
        gathered = gather_object([records(groups, credits) | {"stop": self._stop}])
        self._stop = any(part["stop"] for part in gathered)
        return Update(
            phase=phase,
            phase_number=number,
            index=index + 1,
            total=settings.total_updates,
            **summarise(gathered),
            loss=learned.loss,
            grad_norm=learned.grad_norm,
            entropy=learned.entropy,
            skipped_steps=learned.skipped_steps,
            faults=meter.faults,
            tokens_per_second=meter.tokens / max(meter.seconds["sample"], 1e-9),
            seconds=dict(meter.seconds),
            episodes=groups,
        )

    def _pages(self, index: int) -> list[str]:
        """Ids of this process's pages: the cursor walks the split, the processes take turns."""
        per_update, ranks = self.settings.pages_per_update, self.accelerator.num_processes
        ids = []
        for place in range(self.accelerator.process_index, per_update, ranks):
            observation = self.env.reset(
                difficulty=self.settings.difficulty, seed=index * per_update + place, max_steps=1
            )
            self.env.close_session(observation.session_id)
            self._browser = observation.metadata.get("browser", self._browser)
            ids.append(observation.page_id)
        return ids

    def _learn(self, groups: list[list[Episode]], agents: tuple[str, ...], meter: Meter) -> Learned:
        """Take the optimizer steps of one update; only the adapters of `agents` move."""
        learned = Learned()
        old: dict[str, Any] = dict.fromkeys(agents)
        for epoch in range(self.settings.epochs_per_batch):
            for agent in agents:
                turns = [
                    turn
                    for group in groups
                    for episode in group
                    for turn in episode.turns
                    if turn.agent == agent
                ]
                before = self._step(agent, turns, old[agent], learned, meter)
                if epoch == 0:
                    old[agent] = before
        return learned

    def _step(
        self,
        agent: str,
        turns: list[Turn],
        old_logprobs: dict[int, torch.Tensor] | None,
        learned: Learned,
        meter: Meter,
    ) -> dict[int, torch.Tensor]:
        """One optimizer step of one adapter; returns the log-probabilities before it."""
        settings, policy, reduce = self.settings, self.policy, self.accelerator.reduce
        speaking = [turn for turn in turns if turn.advantage]
        lengths = [len(turn.sample.completion_ids) for turn in turns]
        counts = torch.tensor([len(turns), sum(lengths), len(speaking)], device=policy.device)
        all_turns, all_tokens, all_speaking = reduce(counts, reduction="sum").tolist()
        if not all_speaking:
            learned.skipped_steps += 1
            return {}
        policy.train_only(agent)
        parameters = list(policy.adapter_parameters(agent).values())
        optimizer = self.optimizers[agent]
        optimizer.zero_grad(set_to_none=True)
        scale = HALF_PRECISION_SCALE if policy.model.dtype == torch.float16 else 1.0
        report = backward(
            policy,
            [turn.sample for turn in speaking],
            [turn.advantage or 0.0 for turn in speaking],
            agent,
            settings,
            turns=all_turns,
            tokens=all_tokens,
            old_logprobs=old_logprobs,
            scale=scale,
            meter=meter,
        )
        with meter.stage("update"):
            for parameter in parameters:
                gradient = parameter.grad
                if gradient is None:
                    gradient = torch.zeros_like(parameter)
                parameter.grad = reduce(gradient, reduction="sum") / scale
            norm = torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm).item()
            if norm < float("inf"):
                optimizer.step()
            else:
                learned.skipped_steps += 1
            optimizer.zero_grad(set_to_none=True)
        sums = torch.tensor(
            [report.loss, report.entropy_sum, report.tokens],
            device=policy.device,
            dtype=torch.float32,
        )
        loss, entropy_sum, tokens = reduce(sums, reduction="sum").tolist()
        learned.loss += loss / settings.epochs_per_batch
        learned.entropy = entropy_sum / max(tokens, 1)
        learned.grad_norm = max(learned.grad_norm, norm)
        return report.old_logprobs

    def _write(self, update: Update) -> None:
        if self.log is None:
            return
        if not self._tracking:
            self.log.write_config(
                self.settings.as_dict(),
                browser=self._browser,
                processes=self.accelerator.num_processes,
                device=str(self.policy.device),
            )
            if self.settings.trackers:
                self.accelerator.init_trackers(self.settings.run)
            self._tracking = True
        self.log.write(
            phase=update.phase,
            iteration=update.index,
            by_difficulty=update.by_difficulty,
            mean=update.mean_terminal_reward,
            mean_steps=update.mean_steps,
            loss=update.loss,
            diagnostics=update.diagnostics,
        )
        if self.settings.trackers:
            flat = {k: v for k, v in update.diagnostics.items() if isinstance(v, int | float)}
            self.accelerator.log(flat, step=update.index)

    def _load_policy(self) -> Policy:
        settings = self.settings
        several = self.accelerator.num_processes > 1
        return Policy.load(
            settings.model,
            lora=LoraSettings(settings.lora_r, settings.lora_alpha, settings.lora_dropout),
            seed=settings.seed,
            device=str(self.accelerator.device) if several else settings.device,
            dtype=settings.dtype,
        )

    def _look_up_resume(self) -> tuple[dict[str, Any] | None, Path | None]:
        if not self.settings.resume_from:
            return None, None
        path = checkpoint.find(Path(self.settings.resume_from))
        state = checkpoint.read_state(path)
        checkpoint.check_settings(state, self.settings)
        return state, path

    def _claim_folders(self) -> None:
        settings = self.settings
        self.log = RunLog(settings.run_folder, after=self.done, overwrite=settings.overwrite)
        checkpoint.claim(settings.checkpoint_folder, after=self.done, overwrite=settings.overwrite)

    @contextmanager
    def _interrupts_wait(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the run after the update in hand; a second one ends it now."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Only the main thread may take signals; stop() works from any.
            return

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True
            print("\nFinishing this update, then saving; once more to quit now.", file=sys.stderr)

        before = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def open_env(settings: TrainSettings) -> Any:
    """The environment that the settings name: in this process, or a server's."""
    if settings.env == "http":
        from vclib.env.client import HttpEnv  # needs the server extra; the default env does not

        return HttpEnv(settings.env_url)
    return WebPageEnv(settings.pages, split=settings.split, max_steps=settings.max_steps)


def episode_settings(settings: TrainSettings, phase: str) -> EpisodeSettings:
    """How the agents play in a phase.

    The trained agent samples with its adapter: a greedy one would make K equal episodes and learn
    nothing. The frozen partner plays its latest adapter or the base, by `partner`. A frozen
    Developer samples too, for its drafts are what the Critic must learn to judge; a frozen Critic
    is greedy unless `frozen_critic_greedy` is off, so that only the Developer's own choices tell
    the episodes of a group apart.
    """
    trained = trained_agents(phase)  # type: ignore[arg-type]
    adapters = {a: a if a in trained or settings.partner == "latest" else None for a in AGENTS}
    greedy = settings.frozen_critic_greedy and "critic" not in trained
    return EpisodeSettings(
        developer=SamplingSettings(
            temperature=settings.temperature,
            max_new_tokens=settings.developer_tokens,
            stop=settings.stop,
        ),
        critic=SamplingSettings(
            temperature=settings.temperature,
            greedy=greedy,
            max_new_tokens=settings.critic_tokens,
        ),
        max_steps=settings.max_steps,
        use_critic=settings.use_critic,
        developer_adapter=adapters["developer"],
        critic_adapter=adapters["critic"],
    )


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from (seed, update, purpose): independent streams, the same everywhere."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
