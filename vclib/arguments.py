"""How flags are read: parsers with errors of one sentence, and the kinds of value."""

from __future__ import annotations

import argparse
import ast
import difflib
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from vclib.paths import TINY

WIDTH = 100


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence, and that guesses what was meant."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments:"):
            word = message.split()[2].partition("=")[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(word, known, 1)
            message = f"unknown argument {word}" + (f", did you mean {near[0]}?" if near else "")
        message = message.removeprefix("argument ").rstrip(".")
        self.exit(2, f"{self.prog}: {message} (see `{self.prog} --help`)\n")


class Help(argparse.RawDescriptionHelpFormatter):
    """Help of one width, with room for long flags."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=WIDTH)


def one_of(*names: str) -> dict[str, Any]:
    """A flag with fixed values; another value is named together with these."""

    def choice(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}")
        return text

    return {"type": choice, "metavar": "{" + ",".join(names) + "}"}


def several_of(*names: str) -> dict[str, Any]:
    """The same for a list with commas between; the result is in the order of `names`."""

    def choices(text: str) -> tuple[str, ...]:
        given = [one_of(*names)["type"](word.strip()) for word in text.split(",")]
        return tuple(name for name in names if name in given)

    return {"type": choices, "metavar": ",".join(names)}


def number(
    kind: type, low: float, metavar: str = "N", high: float = float("inf")
) -> dict[str, Any]:
    """A flag that takes a finite int or float from `low` to `high`."""
    words = "a whole number" if kind is int else "a number"

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        # Written so that NaN fails too.
        if value is None or not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not {words} of {low:g} or more")
        if value > high:
            raise argparse.ArgumentTypeError(f"{text!r} is more than {high:g}")
        return value

    return {"type": parse, "metavar": metavar}


class Flags:
    """Adds flags to a parser, in groups; the help of each ends in its default, in brackets.

    With `profiles`, a default is what the profiles say, and a flag that is not given is absent
    from the result, so that the profile decides.
    """

    def __init__(self, parser: argparse.ArgumentParser, profiles: Mapping[str, Any] | None = None):
        self.parser, self.profiles = parser, profiles or {}
        self.section: argparse._ActionsContainer = parser

    def about(self, description: str, epilog: str) -> None:
        self.parser.usage = f"{self.parser.prog} [FLAGS]"
        self.parser.description, self.parser.epilog = paragraph(description), epilog

    def group(self, title: str) -> None:
        self.section = self.parser.add_argument_group(title)

    def __call__(self, flag: str, help: str, *, shown: str = "", **how: Any) -> None:
        field = flag.removeprefix("--").replace("-", "_")
        values = {n: getattr(p, field) for n, p in self.profiles.items() if hasattr(p, field)}
        if how.get("action") != "store_true":
            shown = shown or (_by_profile(values) if values else _text(how.get("default")))
            help = f"{help} [{shown}]".strip()
        if self.profiles:
            how.setdefault("default", argparse.SUPPRESS)
        self.section.add_argument(flag, help=help.replace("%", "%%"), **how)


def pretrain_defaults() -> dict[str, Any]:
    """Defaults of `PretrainSettings`, read from its source: importing it would import torch."""
    source = Path(__file__).parent / "rl" / "pretrain.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    [settings] = [n for n in tree.body if getattr(n, "name", None) == "PretrainSettings"]
    assert isinstance(settings, ast.ClassDef)
    return {
        field.target.id: ast.literal_eval(field.value)
        for field in settings.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value
    }


def paragraph(text: str) -> str:
    """Text broken into lines that fit the help."""
    return textwrap.fill(" ".join(text.split()), WIDTH)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return TINY.name if value == str(TINY) else str(value)


def _by_profile(values: Mapping[str, Any]) -> str:
    """One text if all agree, else for instance "ci 2, laptop 32, t4/gpu 200"."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(_text(value), []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{'/'.join(who)} {text}" for text, who in names.items())
