"""The first cells of a notebook: address, version and time from one place; what Colab gets."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import metadata

import nbformat
import pytest
from notebook_head import ROW, TIME, badge, read_times, setup, spoken, write_head, write_map
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import vclib
from vclib.env.browser import find_chromium
from vclib.paths import ROOT, project

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ADDRESS = project()["urls"]["Homepage"]
TIMES = read_times(ROOT / "notebooks")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# Colab's Python, with this machine's packages and without this project.
COLAB = """
import sys, types
sys.modules["google.colab"] = types.ModuleType("google.colab")
sys.meta_path = [finder for finder in sys.meta_path if "vclib" not in str(finder).lower()]
sys.path = [place for place in sys.path if place != {root!r}]
exec({setup!r})
import vclib
print(vclib.__file__)
"""


@each_notebook
def test_badge_and_set_up_cell_are_made_from_the_address_and_the_version(path):
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[0].source.startswith(badge(path.stem) + "\n")
    assert next(c for c in notebook.cells if c.cell_type == "code").source == setup()


def test_the_address_stands_in_one_place():
    place = ADDRESS.removeprefix("https://github.com/")
    assert f'"{ADDRESS}", "v{vclib.__version__}"' in setup() and place in badge("00_start_here")
    lists = ["git", "ls-files", "-z", "--", ":!notebooks/*.ipynb", ":!pyproject.toml"]
    files = subprocess.run(lists, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in files.stdout.split("\0"):
        path = ROOT / name
        if path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", "") and path.is_file():
            assert place not in path.read_text(errors="ignore"), name


@each_notebook
def test_a_head_says_the_time_and_memory_that_were_measured(path):
    head = nbformat.read(path, as_version=4).cells[0].source
    if (said := TIME.search(head)) and path.stem in TIMES:
        assert said[0] == spoken(TIMES[path.stem])


def test_the_map_holds_every_notebook_and_what_was_measured(tmp_path):
    text = (ROOT / "notebooks" / "README.md").read_text()
    assert {path.stem for path in NOTEBOOKS} <= {match[2] for match in ROW.finditer(text)}
    (tmp_path / "README.md").write_text(text)
    write_map(tmp_path, TIMES)
    assert (tmp_path / "README.md").read_text() == text


def test_a_map_and_a_head_that_are_stale_are_written_again(tmp_path):
    row = "| 06 | [Shaped returns](06_shaped.ipynb) | learn | {} |\n"
    (tmp_path / "README.md").write_text(row.format("about 3 weeks"))
    times = {"06_shaped": {"seconds": 41, "memory_gb": 1.24}}
    write_map(tmp_path, times)
    assert (tmp_path / "README.md").read_text() == row.format("about 40 seconds and 1.2 GB")
    head = "[![Open in Colab](old)](older)\n\n| time and memory | once on two CPU cores; no GPU |"
    cells = [nbformat.v4.new_markdown_cell(head), nbformat.v4.new_code_cell("old")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    write_head(notebook, "06_shaped", {"seconds": 150, "memory_gb": 2})
    assert "about 2 minutes and 2.0 GB of memory on two" in notebook.cells[0].source
    assert cells[1].source == setup() and badge("06_shaped") in cells[0].source


def test_the_set_up_cell_does_nothing_where_there_is_no_colab(tmp_path):
    alone = [sys.executable, "-I", "-S", "-c", setup()]
    done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("", "", [])


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A copy of this project as a git repository with the tag, and git told to find it there."""
    folder = tmp_path_factory.mktemp("published")
    for name in ("vclib", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    identity = ["-c", "user.name=course", "-c", "user.email=course@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    tag = ["git", *identity, "tag", f"v{vclib.__version__}"]
    subprocess.run(tag, cwd=folder, check=True)
    instead = {"GIT_CONFIG_KEY_0": f"url.file://{folder}.insteadOf", "GIT_CONFIG_VALUE_0": ADDRESS}
    browser = {"VCLIB_CHROMIUM": str(find_chromium())}
    return {**os.environ, **browser, "GIT_CONFIG_COUNT": "1", **instead}


def colab(folder, environment):
    script = COLAB.format(root=str(ROOT), setup=setup())
    run = [sys.executable, "-P", "-c", script]
    return subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True)


def test_on_colab_the_set_up_cell_fetches_the_project_at_its_tag(published, tmp_path):
    done = colab(tmp_path, published)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "visioncoder" / "vclib" / "__init__.py")
    nowhere = {"GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/nothing.insteadOf"}
    again = colab(tmp_path, published | nowhere)  # nothing is fetched a second time
    assert again.returncode == 0, again.stderr
    shutil.rmtree(tmp_path / "visioncoder")
    assert colab(tmp_path, published | nowhere).returncode != 0


def test_colabs_own_torch_is_left_alone():
    import colab as tool

    needed = project()["dependencies"]
    torch = next(requirement for requirement in needed if re.match(r"torch\b", requirement))
    other = torch.replace("==", "==1")  # a version that no machine has
    assert not tool.wanted(torch) and not tool.wanted(other)
    assert tool.wanted("peft==0.0.1") and not tool.wanted("peft")


def test_no_package_replaces_what_colab_brings():
    import colab as tool

    pins = dict(pin.split("==") for pin in tool.constraints())
    assert set(pins) == tool.KEEP
    assert pins["torch"] == metadata.version("torch")


# Packages that Colab's own Python has, as every Jupyter does.
JUPYTER = {"ipykernel", "ipython", "ipywidgets", "psutil"}


def imported(source):
    """The top names of the packages that some code imports."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def with_what_they_need(names):
    """Installed packages, and all that they require in turn."""
    reached, left = set(), list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name not in reached:
            reached.add(name)
            with suppress(metadata.PackageNotFoundError):
                needs = [Requirement(one) for one in metadata.requires(name) or []]
                left += [one.name for one in needs if not one.marker or one.marker.evaluate()]
    return reached


def test_colab_gets_every_package_that_a_notebook_imports():
    import colab as tool

    there = with_what_they_need(JUPYTER | {Requirement(one).name for one in tool.requirements()})
    cells = [c for path in NOTEBOOKS for c in nbformat.read(path, as_version=4).cells]
    sources = [c.source for c in cells if c.cell_type == "code"]
    sources += [path.read_text() for path in (ROOT / "vclib").rglob("*.py")]
    ours = {"vclib", *(path.stem for path in (ROOT / "benchmarks").glob("*.py"))}
    owners = metadata.packages_distributions()
    for module in set().union(*map(imported, sources)) - sys.stdlib_module_names - ours:
        assert {canonicalize_name(name) for name in owners.get(module, [])} & there, module


def test_times_are_those_of_notebooks_that_exist():
    assert set(TIMES) <= {path.stem for path in NOTEBOOKS}
    assert all(set(row) == {"seconds", "memory_gb"} for row in TIMES.values()), json.dumps(TIMES)
