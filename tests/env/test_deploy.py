"""The container's recipe and the manifest, as far as they can be followed without a container."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

import vclib
from vclib.cli import parse

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NEEDS = "/tmp/needs.txt"


@pytest.fixture(scope="module")
def recipe():
    """The Dockerfile's instructions in order, as (name, rest of the line)."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#")).replace("\\\n", "")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def command_of(recipe):
    """What the container runs: its ENTRYPOINT and CMD."""
    words = dict(recipe)
    return json.loads(words["ENTRYPOINT"]) + json.loads(words["CMD"])


@pytest.fixture(scope="module")
def image(recipe, tmp_path_factory):
    """A folder with what the container has in its own: the files that are copied into it."""
    folder = tmp_path_factory.mktemp("image") / "app"
    for name, rest in recipe:
        if name == "COPY":
            *sources, target = rest.split()
            for source in map(Path, sources):
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, folder / target)
                else:
                    (folder / target).mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, folder / target)
    return folder


@pytest.fixture(scope="module")
def needs(recipe, image):
    """The requirements that the container installs, as its own step picks them."""
    [step] = [rest for name, rest in recipe if name == "RUN" and NEEDS in rest]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    pick, _, rest = step.partition(f"> {NEEDS}")
    assert f"pip install --no-cache-dir -r {NEEDS}" in rest
    done = subprocess.run(
        ["sh", "-c", pick], cwd=image, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def names(requirements):
    return {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}


def test_the_container_installs_what_the_environment_needs_in_the_projects_versions(needs):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    server = project["optional-dependencies"]["server"]
    assert set(needs) <= {*project["dependencies"], *server}
    assert names(needs) >= names(server) | {"playwright", "scipy", "scikit-image"}
    assert not names(needs) & {"torch", "torchvision", "transformers", "peft", "accelerate"}


def test_the_container_serves_with_no_more_than_it_is_given(recipe, image, needs, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # What a package of the container brings along is there too.
    absent = names(project["dependencies"]) - names(needs) - {"tqdm"}
    modules = [name.replace("-", "_") for name in absent]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({modules}))\n"
    )
    _, *words = command_of(recipe)
    with subprocess.Popen(
        [sys.executable, *words, "--host", "127.0.0.1", "--port", "0"],
        cwd=image,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            url = server.stdout.readline().split(" at ")[1].split()[0]
            seen = httpx.post(f"{url}/reset", trust_env=False, timeout=60).json()
            assert seen["page_id"].startswith("web/train/") and seen["screenshot_b64"]
            metadata = httpx.get(f"{url}/metadata", trust_env=False, timeout=60).json()
            assert metadata["name"] == "visioncoder"
        finally:
            server.terminate()


def test_the_container_listens_where_it_says_it_does(recipe):
    words = dict(recipe)
    flags = parse(command_of(recipe)[3:])
    assert (flags.host, str(flags.port)) == ("0.0.0.0", words["EXPOSE"])
    assert f"http://127.0.0.1:{flags.port}/health" in words["HEALTHCHECK"]


def test_the_manifest_for_openenv_is_valid_and_tells_of_this_server(recipe):
    pytest.importorskip("openenv")
    import yaml
    from openenv.cli.__main__ import app
    from typer.testing import CliRunner

    from vclib.env.openenv_server import NAME

    done = CliRunner().invoke(app, ["validate", str(DEPLOY), "--level", "static", "--skip-build"])
    assert done.exit_code == 0, done.output
    manifest = yaml.safe_load((DEPLOY / "openenv.yaml").read_text())
    assert (manifest["name"], manifest["version"]) == (NAME, vclib.__version__)
    assert str(manifest["port"]) == dict(recipe)["EXPOSE"]
