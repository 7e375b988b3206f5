"""The line itself: finds the command, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click

from pyrofair._version import __version__
from pyrofair.commands.audit import run as audit
from pyrofair.commands.check import run as check
from pyrofair.commands.compare import run as compare
from pyrofair.commands.explain import run as explain
from pyrofair.commands.graph import run as graph
from pyrofair.commands.identify import run as identify
from pyrofair.commands.options import CANNOT_BE_JUDGED, DONE, FAILED, INTERRUPTED, USAGE, Command, Option
from pyrofair.commands.path import run as path
from pyrofair.commands.running import as_options
from pyrofair.commands.sensitivity import run as sensitivity
from pyrofair.commands.train import run as train
from pyrofair.exceptions import NotIdentifiedError, PositivityError, PyrofairError, shortened

__all__ = ["COMMANDS", "Lines", "main"]

COMMANDS: tuple[Command, ...] = (graph, check, identify, audit, explain, sensitivity, train, path, compare)
DESCRIPTION = """\
Assess and mitigate unfair effects of a sensitive attribute along paths of a causal graph.

You say which table, which graph and which of its paths are unfair; pyrofair graph starts a graph:

\b
  pyrofair graph applicants.csv --sensitive sex --outcome hired
  pyrofair identify --graph 'sex -> job -> hired; sex -> hired' --sensitive sex --outcome hired --direct
  pyrofair audit applicants.csv --graph graph.txt --sensitive sex --outcome hired --direct --score p

Each command has its own help: pyrofair audit --help
"""
CODES = """\
\b
exit codes:
  0  done; with --fail-above: within the limit
  1  failure: a file could not be written, or an unexpected error
  2  usage: an option, a file, a column or a value does not fit
  3  the limit is exceeded (audit --fail-above), or met by no classifier (path --at-most), or
     an independence fails (check --strict)
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

    @staticmethod
    def complain(text: str) -> None:
        """Write to standard error, which may be closed."""
        try:
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError):
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open for what Python writes at its end


@click.group("pyrofair", commands=COMMANDS, help=DESCRIPTION, epilog=CODES, no_args_is_help=False,
             context_settings={"max_content_width": 110})  # fmt: skip
@click.version_option(__version__, prog_name="pyrofair", message="%(prog)s %(version)s")
def _line() -> None:
    """Hold the commands."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; see ``pyrofair --help``. Any exit code but 0 is raised as a SystemExit."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    lines = Lines()
    with _ended_as_by_ctrl_c():
        code = _run(given, lines)
    if lines.failure is not None and code in (DONE, FAILED):
        where = f"; the results are in {lines.folder}" if lines.folder else ""
        lines.complain(f"Standard output cannot be written to ({lines.failure}){where}.")
        code = FAILED
    if code != DONE:
        sys.exit(code)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Clear away what is half done if the process is asked to end."""
    before = None
    with suppress(ValueError):  # outside the main thread
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _run(given: list[str], lines: Lines) -> int:
    """Run the line, and return its exit code."""
    name, found, code = "pyrofair", PyrofairError(), USAGE
    try:
        with _line.make_context(name, [*given], obj=lines) as ctx:
            name = f"pyrofair {next((each for each in given if not each.startswith('-')), '')}"
            return int(_line.invoke(ctx))
    except click.exceptions.Exit as end:  # of help and the version
        return end.exit_code
    except click.UsageError as error:
        lines.complain(f"{error.ctx.command_path if error.ctx else name}: error: {shortened(error.format_message())}")
        return USAGE
    except (NotIdentifiedError, PositivityError) as error:
        found, code = error, CANNOT_BE_JUDGED
    except PyrofairError as error:
        found = error
    except KeyboardInterrupt:
        kept = f"What was finished is in {lines.folder}." if lines.folder else "Nothing was written."
        lines.complain(f"Interrupted. {kept}")
        return INTERRUPTED
    except Exception as error:  # a fault of the package, of a model, or of the machine: no traceback unless asked for
        if "--traceback" in given:
            raise
        cause = "" if isinstance(error, OSError) else " --traceback shows where."
        lines.complain(f"{name}: failed: {type(error).__name__}: {error}{cause}")
        return FAILED
    if "--traceback" in given:
        traceback.print_exception(found)
    what = "cannot be judged" if code == CANNOT_BE_JUDGED else "error"
    text, more = as_options(str(found)), ""
    if isinstance(found, NotIdentifiedError) and found.way_out is not None:
        text, more = as_options(found.cause), f"\n{found.way_out.describe(options=True)}"
    notes = "".join(f"\n{note}" for note in getattr(found, "__notes__", ()))
    lines.complain(f"{name}: {what}: {text}{_flags_of(text, name)}{more}{notes}")
    return code


def _flags_of(message: str, name: str) -> str:
    """Return how the settings that a message of the package names are written on the command line, if they are."""
    options = next(each.params for each in COMMANDS if name == f"pyrofair {each.name}")
    flags = {str(each.name): each for each in options if isinstance(each, Option)}
    flags |= {name: flags[own] for name, own in (("random_state", "seed"), ("n_boot", "replicates")) if own in flags}
    found: dict[str, None] = {}
    if "source" in flags and "IPW(" in message:
        found["--source ipw"] = None
    for name, value in re.findall(r"\b([a-z_]+)=('[^']*'|[\w.]+)", message):
        option = flags.get(name)
        if option is not None and not option.is_flag and "..." not in value and option.flag not in message:
            found[f"{option.flag} {value.strip(chr(39))}"] = None
    return f" On the command line: {', '.join(found)}." if found else ""
