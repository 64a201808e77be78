"""Runs that are killed, or that fill the disk, and then go on."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vclib.errors import VclibError
from vclib.rl import checkpoint, kept
from vclib.rl.runlog import DIAGNOSTICS, REWARD_LOG, TRAIN_LOG
from vclib.rl.trainer import Trainer

WORKER = Path(__file__).with_name("run_training.py")


class Starter:
    """Starts runs in processes of their own, one at a time, and reads what they say."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def start(self, settings):
        """The run from its beginning, or from what was saved."""
        if checkpoint.newest(settings.checkpoint_folder):
            settings = settings.but(resume_from=str(settings.run_folder))
        else:
            settings = settings.but(overwrite=True)
        self.process.stdin.write(json.dumps(settings.as_dict()) + "\n")
        self.process.stdin.flush()
        return self.until("pid")

    def until(self, word, least=-math.inf):
        """The number after this word, as soon as it is said of a number that large."""
        for line in self.process.stdout:
            said, number = line.split()
            assert said in (word, "done"), f"{line} came before {word} {least}"
            if said == word and int(number) >= least:
                return int(number)
        raise AssertionError(f"the worker has gone, before {word} {least}")


@pytest.fixture
def starter():
    starter = Starter()
    yield starter
    starter.process.stdin.close()
    assert starter.process.wait() == 0


def run_whole(settings, env):
    with Trainer(settings, env) as trainer:
        list(trainer.run())


def written(settings):
    """What must be equal: logs and kept episodes byte by byte, tensors of the last checkpoint."""
    newest = checkpoint.find(settings.run_folder)
    adapters = {path.relative_to(newest): load_file(path) for path in newest.rglob("*.safetensors")}
    optimizers = torch.load(newest / "optimizers.pt", weights_only=True)
    tensors = {(str(file), name): t for file, ts in adapters.items() for name, t in ts.items()}
    for agent, state in optimizers.items():
        for number, values in state["state"].items():
            tensors |= {(agent, number, name): value for name, value in values.items()}
    files = [settings.run_folder / name for name in (REWARD_LOG, TRAIN_LOG)]
    files += kept.stored(settings.run_folder).values()
    return newest.name, [(file.name, file.read_bytes()) for file in files], tensors


def assert_same_run(settings, other):
    (name, files, tensors), (other_name, other_files, others) = map(written, (settings, other))
    assert (name, files) == (other_name, other_files) and len(files) > 2
    assert tensors.keys() == others.keys() and len(tensors) > 100
    for key, tensor in tensors.items():
        assert torch.equal(tensor, others[key]), key


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_a_run_killed_at_random_moments_equals_one_that_was_not(settings, env, starter, kills):
    rng = random.Random(kills)
    whole = settings.but(
        phase="alternate", num_phases=3, episodes_per_phase=2 if kills < 10 else 8, run="whole"
    )
    killed = whole.but(run="killed")
    began = time.monotonic()
    run_whole(whole, env)
    one_update = (time.monotonic() - began) / whole.total_updates
    cut_short = 0
    for update in sorted(rng.randrange(whole.total_updates - 1) for _ in range(kills)):
        # How often it saves may change from start to start; what it learns may not.
        pid = starter.start(killed.but(checkpoint_every=rng.randint(1, 3)))
        starter.until("done", update)
        time.sleep(rng.uniform(0, one_update))
        os.kill(pid, signal.SIGKILL)
        assert starter.until("ended") == -signal.SIGKILL
        cut_short += bool(list(killed.checkpoint_folder.glob(".update-*")))
    starter.start(killed)
    assert starter.until("ended") == 0
    print(f"{kills} kills, {cut_short} of them amid writing a checkpoint")
    assert_same_run(killed, whole)


@pytest.fixture
def signals_as_on_the_command_line():
    """SIGTERM outside an update does as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


def tell(trainer, done, signals, learning=False):
    """Send this process signals in the update after `done`, each after the one before was heard."""
    idle = signal.getsignal(signal.SIGINT)

    def due():
        busy = signal.getsignal(signal.SIGINT) is not idle
        return busy and trainer.done == done and trainer._whole != learning

    def send():
        while not due():
            time.sleep(0.001)
        os.kill(os.getpid(), signals[0])
        for number in signals[1:]:
            while not trainer._stop:
                time.sleep(0.001)
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "second", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_run_told_to_stop_and_told_again_equals_one_that_was_not(
    settings, env, signals_as_on_the_command_line, second
):
    whole = settings.but(episodes=4, developer_tokens=12, checkpoint_every=2, run="whole")
    told = whole.but(run="told")
    resumed = told.but(resume_from=str(told.run_folder))
    run_whole(whole, env)
    with pytest.raises(KeyboardInterrupt), Trainer(told, env) as trainer:
        tell(trainer, 3, [signal.SIGINT, second], learning=True)
        list(trainer.run())
    assert "after update 3 of 4, saved up to update 2; go on with" in trainer.how_to_go_on
    with pytest.raises(KeyboardInterrupt), Trainer(resumed, env) as trainer:
        tell(trainer, 3, [signal.SIGTERM, second])
        list(trainer.run())
    assert "after update 3 of 4; go on with" in trainer.how_to_go_on
    with Trainer(resumed, env) as trainer:
        tell(trainer, 3, [signal.SIGTERM])
        assert [update.index for update in trainer.run()] == [4] and trainer.told_to_stop
    assert_same_run(told, whole)


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of 2 MB that really fills up."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.name != "posix" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount; test_checkpoint has a full disk by a limit on files")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder, leaving):
    """Write a file that leaves so many bytes free; deleting it makes room again."""
    room = os.statvfs(folder)
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * max(0, room.f_bavail * room.f_frsize - leaving))
    return ballast


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_run_on_a_disk_that_fills_up_goes_on_when_there_is_room(settings, env, small_disk, share):
    settings = settings.but(episodes=3, checkpoint_every=1)
    here = settings.but(output=str(small_disk))
    with pytest.raises(VclibError, match="could not be written"), Trainer(here, env) as run:
        for update in run.run():
            if update.index == 1:
                good = checkpoint.find(here.run_folder)
                size = sum(path.stat().st_size for path in good.rglob("*"))
                ballast = fill(small_disk, leaving=int(share * size))
    assert checkpoint.find(here.run_folder) == good and good.name == "update-000001"
    ballast.unlink()
    run_whole(here.but(resume_from=str(here.run_folder)), env)
    run_whole(settings, env)
    assert_same_run(here, settings)


def test_a_disk_too_full_for_an_episode_does_not_end_training(settings, env, small_disk):
    settings.run_folder.mkdir(parents=True)
    (settings.run_folder / kept.FOLDER).symlink_to(small_disk)
    ballast = fill(small_disk, leaving=0)
    with pytest.warns(UserWarning, match="update 1 was not kept: .*No space"):
        run_whole(settings, env)
    assert checkpoint.find(settings.run_folder).name == "update-000002"
    assert list(small_disk.iterdir()) == [ballast]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_disk_too_full_for_the_trackers_does_not_end_training(settings, env, small_disk):
    pytest.importorskip("tensorboard")
    whole = settings.but(episodes=6, run="whole")
    other = whole.but(run="other")
    here = other.but(
        output=str(small_disk),
        trackers=("tensorboard",),
        checkpoint_dir=str(other.checkpoint_folder),
    )
    here.run_folder.mkdir()
    (other.run_folder / kept.FOLDER).mkdir(parents=True)
    for name in (REWARD_LOG, TRAIN_LOG, DIAGNOSTICS, kept.FOLDER):
        (here.run_folder / name).symlink_to(other.run_folder / name)
    with (
        pytest.warns(UserWarning, match="trackers are given up.*No space"),
        Trainer(here, env) as t,
    ):
        for update in t.run():
            if update.index == 1:
                fill(small_disk, leaving=0)
    run_whole(whole, env)
    assert_same_run(whole, other)
