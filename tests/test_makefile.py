"""`make` repairs what it installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("python", "repaired"), [(sys.executable, False), ("/nowhere/python", True), (None, True)]
)
def test_an_environment_whose_python_does_not_run_is_set_up_again(tmp_path, python, repaired):
    project = tmp_path / "a project"
    (project / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(MAKEFILE, project)
    (project / "pyproject.toml").touch()
    (project / ".venv" / "installed").touch()
    if python:
        (project / ".venv" / "bin" / "python").symlink_to(python)
    told = subprocess.run(
        ["make", "--dry-run", "setup"], cwd=project, capture_output=True, text=True, check=True
    )
    assert ("make_venv.sh" in told.stdout) == repaired, told.stdout
