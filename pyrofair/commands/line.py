"""The line itself: finds the command, settles its options, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence

from pyrofair._version import __version__
from pyrofair.commands.audit import COMMAND as AUDIT
from pyrofair.commands.compare import COMMAND as COMPARE
from pyrofair.commands.identify import COMMAND as IDENTIFY
from pyrofair.commands.options import (
    CANNOT_BE_JUDGED,
    DONE,
    FAILED,
    INTERRUPTED,
    USAGE,
    Command,
    Parser,
    near,
)
from pyrofair.commands.path import COMMAND as PATH
from pyrofair.commands.train import COMMAND as TRAIN
from pyrofair.exceptions import NotIdentifiedError, PositivityError, PyrofairError

__all__ = ["COMMANDS", "Lines", "main"]

COMMANDS: tuple[Command, ...] = (AUDIT, TRAIN, PATH, IDENTIFY, COMPARE)

DESCRIPTION = """\
Assess and mitigate unfair effects of a sensitive attribute along paths of a causal graph.

You say which table, which graph and which of its paths are unfair:

  pyrofair identify --graph 'sex -> job -> hired; sex -> hired' --sensitive sex --outcome hired --direct
  pyrofair audit applicants.csv --graph graph.txt --sensitive sex --outcome hired --direct --score p

Each command has its own help: pyrofair audit --help
"""
CODES = """\
exit codes:
  0  done; with --fail-above: within the limit
  1  failure: a file could not be written, or an unexpected error
  2  usage: an option, a file, a column or a value does not fit
  3  the limit is exceeded (audit --fail-above), or met by no classifier (path --at-most)
  4  cannot be judged: the effect is not identified, the groups do not overlap, there is no
     interval, or the verdict is withheld
  130  interrupted
"""


class Lines:
    """Print lines until standard output fails (a closed pipe, a full disk), which must not end the work."""

    def __init__(self) -> None:
        self.failure: OSError | ValueError | None = None
        self.folder: str = ""
        """Where the results are, once they are."""

    def write(self, text: str) -> None:
        """Print a text with a line break."""
        if self.failure is None:
            try:
                print(text, flush=True)
            except (OSError, ValueError) as error:  # a closed file raises a ValueError, a code page a UnicodeError
                self.failure = error
                # What is left in the buffer would fail again when Python ends.
                sys.stdout = io.StringIO()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; see ``pyrofair --help``. Any exit code but 0 is raised as a SystemExit."""
    parser = Parser(
        prog="pyrofair",
        description=DESCRIPTION,
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pyrofair {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for each in COMMANDS:
        each.add_to(commands)
    options, unknown = parser.parse_known_args(arguments)
    command = next(each for each in COMMANDS if each.name == options.command)
    if unknown:
        parser.exit(USAGE, f"pyrofair {command.name}: error: {_describe_unknown(unknown, command)}\n")
    given = {name: value for name, value in vars(options).items() if name != "command"}
    lines = Lines()
    code = _run(command, given, lines)
    if lines.failure is not None and code in (DONE, FAILED):
        where = f"; the results are in {lines.folder}" if lines.folder else ""
        parser.exit(FAILED, f"Standard output cannot be written to ({lines.failure}){where}.\n")
    if code != DONE:
        sys.exit(code)


def _run(command: Command, given: dict[str, object], lines: Lines) -> int:
    """Run a command, and return its exit code."""
    found: PyrofairError
    try:
        return command.run(command.settle(given), lines)
    except (NotIdentifiedError, PositivityError) as error:
        found, code = error, CANNOT_BE_JUDGED
    except PyrofairError as error:
        found, code = error, USAGE
    except KeyboardInterrupt:
        kept = f"What was finished is in {lines.folder}." if lines.folder else "Nothing was written."
        _complain(f"Interrupted. {kept}")
        return INTERRUPTED
    except Exception as error:  # a fault of the package, of a model, or of the machine: no traceback unless asked for
        if given.get("traceback"):
            raise
        cause = "" if isinstance(error, OSError) else " --traceback shows where."
        _complain(f"pyrofair {command.name}: failed: {type(error).__name__}: {error}{cause}")
        return FAILED
    if given.get("traceback"):
        traceback.print_exception(found)
    what = "cannot be judged" if code == CANNOT_BE_JUDGED else "error"
    text, more = str(found), ""
    if isinstance(found, NotIdentifiedError) and found.way_out is not None:
        text, more = found.cause, f"\n{found.way_out.describe(options=True)}"
    notes = "".join(f"\n{note}" for note in getattr(found, "__notes__", ()))
    _complain(f"pyrofair {command.name}: {what}: {text}{_flags_of(text, command)}{more}{notes}")
    return code


def _complain(text: str) -> None:
    """Write to standard error, which may be closed."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open for what Python writes at its end


def _describe_unknown(unknown: Sequence[str], command: Command) -> str:
    """Return what is wrong with arguments that no option takes."""
    flags = [each for each in unknown if each.startswith("-")]
    if not flags:
        return f"too many arguments: {' '.join(unknown)}. See pyrofair {command.name} --help."
    name = flags[0].partition("=")[0]
    known = [option.flag for option in command.options if not option.positional]
    return f"there is no option {name}.{near(name, known)} See pyrofair {command.name} --help."


def _flags_of(message: str, command: Command) -> str:
    """Return how the settings that a message of the package names are written on the command line, if they are."""
    flags = {option.name.replace("-", "_"): option for option in command.options if not option.positional}
    flags |= {name: flags[own] for name, own in (("random_state", "seed"), ("n_boot", "replicates")) if own in flags}
    found: dict[str, None] = {}
    if "source" in flags and "IPW(" in message:
        found["--source ipw"] = None
    for name, value in re.findall(r"\b([a-z_]+)=('[^']*'|[\w.]+)", message):
        option = flags.get(name)
        if option is not None and option.type is not bool and "..." not in value and option.flag not in message:
            found[f"{option.flag} {value.strip(chr(39))}"] = None
    return f" On the command line: {', '.join(found)}." if found else ""
