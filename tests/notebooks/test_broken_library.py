"""A library that is wrong in a way that raises nothing makes a notebook fail.

Each fault is planted before anything is imported, and the notebook that explains the broken thing
is run against its stored outputs until a cell differs.
"""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from vclib.paths import ROOT

SANITIZE = ROOT / "tests" / "notebooks" / "sanitize.cfg"
MISMATCH = 1  # pytest's status when a test, here a cell, has failed


@dataclass(frozen=True)
class Fault:
    """What is planted, as Python that runs when an interpreter starts, and who must notice."""

    notebook: str
    planted: str


FAULTS = {
    "a sign in the advantage": Fault(
        "07_group_advantages",
        """
from dataclasses import replace
from vclib.rl import returns
honest = returns.grpo_advantages
def grpo_advantages(*args, **named):
    found = honest(*args, **named)
    return replace(found, values=[[-value for value in row] for row in found.values])
returns.grpo_advantages = grpo_advantages
""",
    ),
    "lambda left out": Fault(
        "06_shaped_returns",
        """
from vclib.rl import returns
returns.compute_step_returns = lambda rewards, lambda_shaped=0.2: [rewards[-1]] * len(rewards)
""",
    ),
}
SLOW_FAULTS = {
    "a shifted mask": Fault(
        "08_policy_gradient",
        """
from torch.nn.functional import pad
from vclib.policy import scoring
honest = scoring.sequence_logprobs
def sequence_logprobs(*args, **named):
    logprobs, mask, *entropy = honest(*args, **named)
    return logprobs, pad(mask, (1, 0))[:, :-1], *entropy
scoring.sequence_logprobs = sequence_logprobs
""",
    ),
    "scores at another temperature": Fault(
        "08_policy_gradient",
        """
from vclib.policy import scoring
honest = scoring.sequence_logprobs
def sequence_logprobs(*args, **named):
    return honest(*args, **named | {"temperature": 1.0})
scoring.sequence_logprobs = sequence_logprobs
""",
    ),
    "a reward without its gate": Fault(
        "02_the_reward",
        """
from vclib.env import reward
reward._gate = lambda *args, **named: 1.0
""",
    ),
    "a cache that counts half": Fault(
        "11_a_real_model",
        """
from vclib.rl import memory
honest = memory.cache_bytes
memory.cache_bytes = lambda *args: honest(*args) // 2
""",
    ),
    "a revision that ignores the critique": Fault(
        "A1_making_vc_tiny",
        """
from vclib.rl import demonstrations
demonstrations.apply = lambda draft, text: draft
""",
    ),
}


def run_with(fault, folder):
    """Compare the notebook with its stored outputs, the fault planted; stops where they differ."""
    (folder / "sitecustomize.py").write_text(fault.planted)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    compare = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--nbval"]
    compare += ["--nbval-sanitize-with", str(SANITIZE), "--nbval-cell-timeout", "900"]
    compare += ["--timeout", "0", f"notebooks/{fault.notebook}.ipynb"]
    return subprocess.run(
        compare, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )


def assert_noticed(fault, folder):
    done = run_with(fault, folder)
    assert done.returncode == MISMATCH, done.stdout[-3000:] + done.stderr[-1000:]
    assert f"{fault.notebook}.ipynb::Cell" in done.stdout
    assert "sitecustomize" not in done.stderr, done.stderr[-1000:]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_credit_makes_its_notebook_fail(name, tmp_path):
    assert_noticed(FAULTS[name], tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SLOW_FAULTS)
def test_a_fault_anywhere_makes_its_notebook_fail(name, tmp_path):
    assert_noticed(SLOW_FAULTS[name], tmp_path)
