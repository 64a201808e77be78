"""The files in data/ are those that their list says."""

import subprocess
import sys

from vclib.paths import ROOT


def test_every_file_in_data_has_the_hash_that_its_list_says():
    command = [sys.executable, str(ROOT / "tools" / "data_hashes.py")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"run `make hashes`; these differ:\n{result.stdout}"
