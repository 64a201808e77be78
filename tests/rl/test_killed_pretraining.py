"""A pre-training that is killed leaves nothing behind that runs."""

import subprocess
import sys

import pytest

BEGIN = """
import multiprocessing, sys, time
from vclib.rl.pretrain import PretrainSettings, pretrain
small = {"hidden": 64, "layers": ("linear", "full"), "vision_hidden": 48, "vision_depth": 1}
run = pretrain(PretrainSettings(output=sys.argv[1], steps=1000, batch_size=8, **small))
next(run)
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
time.sleep(600)
"""


@pytest.mark.timeout(300)
def test_the_process_that_draws_pages_ends_with_a_pretraining_that_was_killed(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline().split(), "it draws pages in a process of its own"
        process.kill()
        # The pipe ends when the last process that could write to it has gone, browser and all.
        assert process.communicate(timeout=120) == ("", None)
