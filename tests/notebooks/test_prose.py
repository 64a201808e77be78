"""What is written about the code is true of it: links, names, paths and commands resolve."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import nbformat
import pytest

from vclib.cli import parse
from vclib.paths import ROOT

TEXTS = [
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "notebooks/README.md")),
    *(ROOT / name for name in ("data/README.md", "deploy/README.md")),
    ROOT / "data" / "models" / "vc-tiny" / "README.md",
]
FOLDERS = "vclib|tests|benchmarks|tools|data|deploy|docs|notebooks"
each_text = pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))


def prose(path):
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def fenced(text, *languages):
    return re.findall(rf"```(?:{'|'.join(languages)})\n(.*?)```", text, re.DOTALL)


def commands(text):
    """Every command in the blocks of a shell, as words, without its comment."""
    for block in fenced(text, "bash", "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


@cache
def names_in(module):
    """Names at the top of a module, and of the members of its classes, as Class.member."""
    found = set()
    for node in module_ast(module).body:
        for name in bound_by(node):
            found.add(name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in bound_by(inner)}
    return found


def module_ast(path):
    return ast.parse(path.read_text())


def bound_by(node):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        targets = [t for target in node.targets for t in getattr(target, "elts", [target])]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def resolves(dotted):
    """True if a dotted name of the library names a package, a module, or something in one."""
    here, *rest = dotted.split(".")
    folder = ROOT / here
    while rest and (folder / rest[0]).is_dir():
        folder = folder / rest.pop(0)
    if not rest:
        return True
    module = folder / f"{rest[0]}.py"
    if module.is_file():
        return len(rest) == 1 or ".".join(rest[1:3]) in names_in(module)
    return ".".join(rest[:2]) in names_in(folder / "__init__.py")


def test_a_name_that_is_gone_would_be_noticed():
    for there in (
        "vclib.rl",
        "vclib.rl.returns",
        "vclib.rl.trainer.Trainer.run",
        "vclib.cli.parse",
    ):
        assert resolves(there), there
    for gone in ("vclib.rl.retruns", "vclib.rl.returns.nothing", "vclib.rl.trainer.Trainer.jog"):
        assert not resolves(gone), gone


@each_text
def test_every_relative_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:|#", target):
            continue
        where = (path.parent / target.partition("#")[0]).resolve()
        assert where.exists(), target
        assert where.is_relative_to(ROOT), f"{target} leads out of the project"


@each_text
def test_every_name_of_the_library_in_prose_exists(path):
    for name in re.findall(r"(?<![\w/])vclib(?:\.[A-Za-z_]\w*)+", prose(path)):
        assert resolves(name.removesuffix(".py")), name
    for block in fenced(prose(path), "python"):
        imports = re.findall(r"^\s*from (vclib[.\w]*) import ([\w, ]+)", block, re.MULTILINE)
        for module, names in imports:
            for name in names.split(","):
                assert resolves(f"{module}.{name.strip()}"), f"{module}.{name.strip()}"


@each_text
def test_every_file_that_prose_names_is_there(path):
    for name in re.findall(rf"`((?:{FOLDERS})/[^`\s{{}}]*)`", prose(path)):
        assert list(ROOT.glob(name.rstrip("/"))), name


@each_text
def test_every_command_is_one_that_the_command_line_takes(path):
    for words in commands(prose(path)):
        if "vclib" not in words or words[words.index("vclib") - 1] != "-m":
            continue
        words = words[words.index("vclib") + 1 :]
        for ends in ("&&", "|", ">", "&"):
            words = words[: words.index(ends)] if ends in words else words
        parse(words)


@each_text
def test_every_program_and_make_target_exists(path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = prose(path)
    named = {words[1] for words in commands(text) if words[0] == "make" and len(words) > 1}
    named |= set(re.findall(r"`make ([a-z]+)[` ]", text))
    assert named <= targets, named - targets
    for program in re.findall(r"python ((?:benchmarks|tools)/\w+\.py)", text):
        assert Path(ROOT, program).is_file(), program
