import pytest

from vclib.cli import main


@pytest.fixture(scope="session")
def model(model_folder):
    """The folder of a small model with random weights, as a word of the command line."""
    return str(model_folder)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder, and none of the environment variables that set flags."""
    for name in ("TRAIN_MODEL", "CHECKPOINT_DIR", "TRAIN_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fails(here, capsys):
    """Run the command line; it must end with status 2 and one line, which is returned."""

    def run(*words):
        try:
            status = main([str(word) for word in words])
        except SystemExit as stop:
            status = stop.code
        lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
        assert status == 2
        assert len(lines) == 1, lines
        return lines[0]

    return run
