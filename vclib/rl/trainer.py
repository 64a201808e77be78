"""The training loop: episodes, credit, gradient, phase after phase."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, parse_flag_from_env

from vclib.env.environment import WebPageEnv
from vclib.errors import VclibError
from vclib.paths import in_project
from vclib.policy import sharding
from vclib.policy.model import LoraSettings, Policy
from vclib.rl import checkpoint
from vclib.rl.episodes import episode_settings, play, reset
from vclib.rl.interrupts import interrupts_deferred
from vclib.rl.kept import keep_of
from vclib.rl.learner import Learner
from vclib.rl.profiles import TrainSettings, trained_agents
from vclib.rl.run_folder import claim
from vclib.rl.runlog import Meter, RunLog
from vclib.rl.trackers import Trackers
from vclib.rl.update import Update, assign_credit, records, summarise


class Trainer:
    """Trains the adapters of a policy on an environment, by `settings`.

        with Trainer(PROFILES["laptop"]) as trainer:
            for update in trainer.run():
                print(update.index, update.mean_terminal_reward)

    All randomness of update i comes from (seed, i), so that a run that was killed and resumed
    gives the same numbers as one that was not. Ctrl-C and `stop()` finish the update in hand,
    save, and end the loop. `env` and `policy` may be handed in; then they are left open.
    `shard`: share the model's weights out over the processes during updates; None does so where
    accelerate was told to use FSDP.

    Raises `VclibError` for settings that do not fit a checkpoint, a run folder in use, a full
    disk, and an environment that fails twice in a row.
    """

    def __init__(
        self,
        settings: TrainSettings,
        env: Any = None,
        policy: Policy | None = None,
        shard: bool | None = None,
    ) -> None:
        self.settings = settings
        state, resumed = checkpoint.look_up(settings)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.accelerator = Accelerator(
            # Without it, processes on a machine with no GPU would not know of each other.
            cpu=not torch.cuda.is_available(),
            log_with=list(settings.trackers) or None,
            project_dir=settings.output,
        )
        ranks = self.accelerator.num_processes
        if settings.pages_per_update < ranks:
            raise VclibError(
                f"pages_per_update is {settings.pages_per_update}, fewer than the {ranks} "
                f"processes that share the pages; set it to at least {ranks}."
            )
        main = self.accelerator.is_main_process
        with ExitStack() as locks:
            for lock in claim(settings, resumed) if main else ():
                locks.enter_context(lock)
            self.policy = policy or self._load_policy()
            self._owns_env = env is None
            self.env = env if env is not None else open_env(settings)
            # The accelerator's own `distributed_type` is FSDP on GPUs alone.
            told = ranks > 1 and parse_flag_from_env("ACCELERATE_USE_FSDP")
            self._shard = told if shard is None else shard
            self.shared: Callable[[], AbstractContextManager[None]]
            self.shared = sharding.prepare(self.policy) if self._shard else nullcontext
            self.learner = Learner(self.policy, settings, self.accelerator, in_step=self._shard)
            if resumed:
                checkpoint.restore(resumed, self.policy, self.learner.optimizers)
            self.checkpoint_path = resumed
            self.done = self._saved = state["update"] if state else 0
            self.log: RunLog | None = None
            if main:
                self.log = RunLog(settings.run_folder, after=self.done)
                checkpoint.drop_after(settings.checkpoint_folder, self.done)
            self._stop = self.told_to_stop = False
            self._whole = True  # False between an update's first step and its log: not to be saved
            self._browser: str | None = None
            self._trackers = Trackers(self.accelerator, settings)
            self._locks = locks.pop_all()  # only a trainer that was made keeps them

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Save what is not saved, end the trackers, and the environment if opened here."""
        try:
            self.save()
        finally:
            self._trackers.end()
            if self._owns_env:
                self.env.close()
            self._locks.close()

    def stop(self) -> None:
        """End `run()` after the update in hand, and set `told_to_stop`; safe from any thread."""
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
        if not self.checkpoint_path:
            return "Stopped before the first checkpoint; this run can only be begun again."
        unsaved = f", saved up to update {self._saved}" if self._saved < self.done else ""
        go_on = f"go on with --resume-from {shlex.quote(str(self.checkpoint_path))}"
        return f"Stopped after update {self.done} of {total}{unsaved}; {go_on}."

    def run(self) -> Iterator[Update]:
        """Do the updates that are left and yield each, after it is logged and saved."""
        try:
            while not self.finished and not self._stop_agreed():
                with interrupts_deferred(self._interrupt):
                    update = self._update(self.done)
                    self._write(update)
                    self.done, self._whole = update.index, True
                    phase_end = self.settings.phase_at(self.done - 1)[2]
                    due = self.done % self.settings.checkpoint_every == 0
                    if phase_end or due:
                        self.save()
                yield update
        finally:
            # Also when the run is stopped, the caller breaks off, or the environment fails.
            self.save()
            self.told_to_stop, self._stop = self._stop, False

    def _stop_agreed(self) -> bool:
        """Whether any process was told to stop; one that stopped alone would hang the others."""
        return any(gather_object([self._stop]))

    def _interrupt(self) -> None:
        self._stop = True
        print(
            "\nFinishing this update, then saving (again to quit at once and lose what was learnt "
            f"since update {self._saved}). To go on afterwards: "
            f"--resume-from {shlex.quote(str(self.settings.checkpoint_folder))}",
            file=sys.stderr,
        )

    def save(self) -> Path | None:
        """Write a checkpoint unless this update has one; returns the newest one's folder."""
        if self.done > self._saved and self._whole:
            number, phase, phase_end = self.settings.phase_at(self.done - 1)
            state = {
                "update": self.done,
                "phase": phase,
                "phase_number": number,
                "phase_end": phase_end,
                "page_cursor": self.done * self.settings.pages_per_update,
                "settings": self.settings.as_dict(),
            }
            folder, optimizers = self.settings.checkpoint_folder, self.learner.optimizers
            with self.shared():
                if self.accelerator.is_main_process:
                    self.checkpoint_path = checkpoint.save(folder, self.policy, optimizers, state)
            self._saved = self.done
        return self.checkpoint_path

    def _update(self, index: int) -> Update:
        settings = self.settings
        number, phase, _ = settings.phase_at(index)
        meter = Meter()
        places = self._places()
        groups = play(
            self.policy,
            self.env,
            [self._page(index, place, meter) for place in places],
            k=settings.k_rollouts,
            settings=episode_settings(settings, phase),
            generator=[
                torch.Generator().manual_seed(derive_seed(settings.seed, index, place, episode))
                for place in places
                for episode in range(settings.k_rollouts)
            ],
            meter=meter,
        )
        agents = trained_agents(phase)
        credits = assign_credit(groups, agents, settings.advantage, settings.lambda_shaped)
        self._whole = False
        with self.shared():
            learned = self.learner.learn(groups, agents, meter)
        for group in groups:
            for episode in group:
                episode.forget_pictures()
        return Update(
            phase=phase,
            phase_number=number,
            index=index + 1,
            total=settings.total_updates,
            **summarise(gather_object([records(groups, credits)])),
            loss=learned.loss,
            grad_norm=learned.grad_norm,
            entropy=learned.entropy,
            skipped_steps=learned.skipped_steps,
            faults=meter.faults,
            tokens_per_second=meter.tokens / max(meter.seconds["sample"], 1e-9),
            seconds=dict(meter.seconds),
            episodes=groups,
        )

    def _places(self) -> range:
        """Which of the update's pages this process plays: the processes take turns."""
        ranks = self.accelerator.num_processes
        return range(self.accelerator.process_index, self.settings.pages_per_update, ranks)

    def _page(self, index: int, place: int, meter: Meter) -> str:
        """Id of a page of an update: the cursor walks through the split, update after update."""
        cursor = index * self.settings.pages_per_update + place
        seen = reset(self.env, meter, difficulty=self.settings.difficulty, seed=cursor, max_steps=1)
        self.env.close_session(seen.session_id)
        self._browser = seen.metadata.get("browser", self._browser)
        return seen.page_id

    def _write(self, update: Update) -> None:
        if self.log is None:
            return
        if not self._trackers.begun:
            self.log.write_config(
                self.settings.as_dict() | {"model": in_project(self.settings.model)},
                browser=self._browser,
                processes=self.accelerator.num_processes,
                weights_shared_out=self._shard,
                device=str(self.policy.device),
            )
        self.log.write(
            phase=update.phase,
            iteration=update.index,
            by_difficulty=update.by_difficulty,
            mean=update.mean_terminal_reward,
            mean_steps=update.mean_steps,
            loss=update.loss,
            diagnostics=update.diagnostics,
        )
        self._trackers.log(update)
        keep_of(update, self.settings.run_folder, self.policy.tokenizer)

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


def open_env(settings: TrainSettings, *, any_split: bool = False) -> Any:
    """The environment that the settings name: in this process, or that of a server or several.

    any_split: pages will be asked for by id, so that the servers' own split does not matter.
    Raises VclibError if a server offers other pages.
    """
    if settings.env == "http":
        from vclib.env.client import HttpEnv  # needs the server extra; the default env does not

        env = HttpEnv(settings.env_url or ())
        served = env.page_set, env.split
        asked = settings.pages, env.split if any_split else settings.split
        if served != asked:
            env.close()
            raise VclibError(
                f"{', '.join(env.urls)} serves {' '.join(served)} pages, the run asks for "
                f"{' '.join(asked)}; start the server with those, or ask for what it serves."
            )
        return env
    return WebPageEnv(settings.pages, split=settings.split, max_steps=settings.max_steps)


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from (seed, update, purpose): independent streams, the same everywhere."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
