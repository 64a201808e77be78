"""The command line: flags in, one function of `vclib.verbs` called, errors as one line.

Nothing heavy is imported before a verb runs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from vclib import __version__
from vclib.arguments import Help, Parser, paragraph
from vclib.errors import VclibError
from vclib.flags import FLAGS, VERBS
from vclib.paths import remedy

DESCRIPTION = (
    "Two agents in one vision-language model learn to write web pages: the Developer writes HTML "
    "for a screenshot, the Critic says what is wrong with it, a browser and a reward judge."
)
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
BAD_PATH = (
    PermissionError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
)
BAD_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns 0, 1 (doctor found a fault), 2 (an error) or 130 (interrupted)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(words)
        run = getattr(import_module("vclib.verbs"), f"run_{arguments.verb}")
        return run(arguments, command="python -m vclib " + shlex.join(words)) or 0
    except VclibError as error:
        return _fail(str(error), 2)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package == "vclib":
            raise
        return _fail(f"this Python lacks the package {package}; {remedy(*words)}.", 2)
    except KeyboardInterrupt as error:
        return _fail(str(error) or "interrupted; what was written before is whole.", 130)
    except BrokenPipeError:
        # The reader went away, as in `| head`. Python would complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _fail(_os_error(error), 2)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Verb and flags; a bad one ends the program with one sentence and status 2."""
    verb = words[0] if words else ""
    if verb in VERBS:
        parser = _verb_parser(verb)
        arguments = parser.parse_args(words[1:])
        arguments.verb = verb
        return arguments
    top = _top_parser()
    if not verb:
        top.print_help()
        raise SystemExit(2)
    if verb.startswith("-"):
        top.parse_args(words)
    near = difflib.get_close_matches(verb, VERBS, 1)
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(VERBS)}"
    top.error(f"no verb {verb!r}; {hint}")


def _top_parser() -> Parser:
    parser = Parser(
        prog="python -m vclib",
        usage="python -m vclib VERB [FLAGS]",
        description=paragraph(DESCRIPTION)
        + "\n\nverbs:\n"
        + "\n".join(f"  {v:10} {VERBS[v]}" for v in VERBS),
        epilog="`python -m vclib VERB --help` explains a verb and its flags.",
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"vclib {__version__}")
    return parser


def _verb_parser(verb: str) -> Parser:
    describe: Callable[[Parser], Any] = FLAGS[verb]
    parser = Parser(prog=f"python -m vclib {verb}", formatter_class=Help, allow_abbrev=False)
    describe(parser)
    return parser


def _os_error(error: OSError) -> str:
    """One sentence for what a user can mend; anything else is a fault of ours and is raised."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in FULL_DISK:
        return (
            f"the disk is full{where}: nothing that was written before is lost; make room, then "
            "run the command again."
        )
    if (isinstance(error, BAD_PATH) or error.errno in BAD_NAME) and error.filename:
        return f"{error.filename!s:.300}: {error.strerror}; give another path."
    raise error


def _fail(sentence: str, status: int) -> int:
    print("vclib: " + " ".join(sentence.split()), file=sys.stderr)
    return status
