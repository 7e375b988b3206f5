"""The options of a command, each declared once: for the parser, for a file of settings, and for the record of a run."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pyrofair._validation import did_you_mean, path_fault, shown
from pyrofair.exceptions import PyrofairError

__all__ = [
    "CANNOT_BE_JUDGED",
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "LIMIT_EXCEEDED",
    "USAGE",
    "Command",
    "Data",
    "Option",
    "Settings",
    "UsageError",
    "command",
    "config_option",
    "grouped",
    "is_file",
    "no_file",
    "write_settings",
]

DONE, FAILED, USAGE, LIMIT_EXCEEDED, CANNOT_BE_JUDGED, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""The exit codes."""

COMMAND = "command"
"""The key of a file of settings that names its command."""
NEVER_READ, NEVER_WRITTEN = ("config", "traceback"), ("config", "overwrite", "traceback")
"""Options that belong to a call: those that a file of settings may not hold, and those that none is written with."""


class UsageError(PyrofairError):
    """An option, a file, a column or a value does not fit; the command ends with exit code 2."""


def is_file(text: str) -> bool:
    """Return whether a file has this name; the file system is asked only if one can be called so."""
    return not path_fault(text) and Path(text).is_file()


def no_file(text: str) -> str:
    """Return a sentence on a file that is not there, with the nearest name that is; empty if there is one."""
    if fault := path_fault(text):
        return f"{shown(text)} is no file: {fault}."
    path = Path(text)
    if path.exists():
        return f"{text!r} is a folder; name a file of it." if path.is_dir() else ""
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    return f"there is no file {text!r} in {Path.cwd()}.{did_you_mean(path.name, beside)}"


class Integer(click.IntRange):
    """An integer in a range."""

    name = "integer"


class Number(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or end with a message."""
        if not math.isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Data(click.Argument):
    """The argument of a command, which a file of settings may name too."""

    group = "options"

    def __init__(self, description: str, choices: Sequence[str] = ()) -> None:
        self.description = f"{description}: {' or '.join(choices)}" if choices else description
        kind = click.Choice(choices) if choices else click.STRING
        super().__init__(["data"], type=kind, required=False, metavar="DATA")

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return its lines in the help."""
        return "DATA", self.description


class Option(click.Option):
    """An option ``--name``.

    ``type`` is str, int, float or bool (a flag). ``many`` takes one or more values; ``default`` None leaves the choice
    to the package. Numbers are at ``least`` and at ``most`` some number, or ``above`` and ``below``.
    """

    group = "options"

    def __init__(
        self, name: str, help: str, type: type = str, default: Any = None, *, many: bool = False,
        choices: Sequence[str] = (), metavar: str | None = None, least: float | None = None, most: float | None = None,
        above: float | None = None, below: float | None = None, required: bool = False, short: str = "",
        **settings: Any,
    ) -> None:  # fmt: skip
        self.needed, self.usual = required, default
        metavar = metavar or ("NUMBER" if type in (int, float) else None)
        kinds: dict[Any, Any] = {
            int: Integer(least, most),  # type: ignore[arg-type]
            float: Number(
                least if above is None else above, most if below is None else below, above is not None,
                below is not None,
            ),
        }  # fmt: skip
        super().__init__(
            [f"--{name}/--no-{name}" if type is bool else f"--{name}", *([short] if short else [])],
            type=click.Choice(choices) if choices else kinds.get(type, type),
            default=False if type is bool else default, multiple=many, help=help,
            metavar=f"{metavar}..." if many else metavar,
            show_default=default is not None and type is not bool, **settings,
        )  # fmt: skip

    @property
    def flag(self) -> str:
        """The option as it is written on the command line."""
        return self.opts[0]


def grouped(title: str, *options: Option) -> tuple[Option, ...]:
    """Return options that the help shows under a title."""
    for each in options:
        each.group = title
    return options


@dataclass(frozen=True)
class Settings:
    """The values of all options of a command by name, and the names of those that the user gave."""

    command: str
    values: Mapping[str, Any]
    given: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """Return the value of an option, or None if the command has no such option."""
        return self.values.get(name)

    def arguments(self, known: Iterable[str]) -> list[str]:
        """Return the options of some names that the user gave, as they are written on the command line."""
        found = []
        for name in (each for each in self.values if each in self.given & {*known}):
            value = self.values[name]
            texts = value if isinstance(value, list) else [] if isinstance(value, bool) else [value]
            found += [f"--no-{name}" if value is False else f"--{name}", *map(str, texts)]
        return found

    def recorded(self) -> dict[str, Any]:
        """Return what a file of settings holds: all values that are not left to the package."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in NEVER_WRITTEN and value is not None and value != []
        }


class Command(click.Command):
    """A command: a line of help, a description, an example, its options and the function that runs it.

    The function takes the settings and an object with a method ``write``, and returns the exit code.
    """

    def __init__(
        self, name: str, summary: str, example: str, options: Sequence[click.Parameter],
        run: Callable[[Settings, Any], int],
    ) -> None:  # fmt: skip
        as_it_is = "\n\n".join(f"\b\n{part}" for part in example.rstrip().split("\n\n"))
        wide = {"max_content_width": 110}
        super().__init__(
            name, wide, params=[*options], help=cleandoc(str(run.__doc__)), epilog=as_it_is, short_help=summary
        )
        self.run = run

    def invoke(self, ctx: click.Context) -> int:
        """Run with the settings of the line, and return the exit code."""
        return self.run(self.settle(ctx), ctx.obj)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; click takes one value after a flag, so each further one has the flag repeated."""
        many = {each.flag for each in self.params if isinstance(each, Option) and each.multiple}
        valued = {each.flag for each in self.params if isinstance(each, Option) and not each.is_flag}
        short = {each for option in self.params for each in option.opts if each.startswith("-") and each[:2] != "--"}
        found: list[str] = []
        flag = ""
        for each in args:
            if each.startswith("--") or each in short:
                if found and found[-1] in valued:
                    raise click.BadOptionUsage(found[-1], f"Option {found[-1]!r} requires an argument.", ctx)
                flag = each
            elif flag in many and found[-1] != flag:
                found.append(flag)
            found.append(each)
        return super().parse_args(ctx, found)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(each, "group", "options"), []).append(record)
        for name, records in groups.items():
            with formatter.section(name.capitalize()):
                formatter.write_dl(records)

    def settle(self, ctx: click.Context) -> Settings:
        """Return the settings of a call: defaults, then a file of settings, then what was given on the command line."""
        values, given, absent = {}, set(), []
        for option in self.params:
            name, value = str(option.name).replace("_", "-"), ctx.params[str(option.name)]
            values[name] = [*value] if isinstance(value, tuple) else value
            source, usual = ctx.get_parameter_source(str(option.name)), getattr(option, "usual", None)
            # A file that a run wrote holds all values, defaults of options that do not apply included.
            if source is ParameterSource.COMMANDLINE or (source is ParameterSource.DEFAULT_MAP and value != usual):
                given.add(name)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and (fault := _fault(text)):
                    raise click.UsageError(f"{option.opts[0].replace('data', 'DATA')} {text!r} {fault}", ctx)
            if getattr(option, "needed", True) and value is None:
                absent.append(option.flag if isinstance(option, Option) else "DATA")
        if absent:
            first = " DATA comes before the options." if absent[0] == "DATA" else ""
            raise click.UsageError(f"Missing: {', '.join(absent)}.{first}", ctx)
        return Settings(str(self.name), values, frozenset(given))


def command(
    name: str, summary: str, example: str, options: Sequence[click.Parameter]
) -> Callable[[Callable[[Settings, Any], int]], Command]:
    """Make a command of a function, whose docstring describes it; the summary is its line among all commands."""
    return partial(Command, name, summary, example, options)


def _fault(text: str) -> str:
    """Return why no file of settings, and no terminal, can show a text; empty if they can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"holds {text[error.start]!r}, a byte or half of a character that is no UTF-8. Write it as UTF-8."
    return ""


def read_settings(ctx: click.Context, _: click.Parameter, path: str | None) -> str | None:
    """Take the values of a TOML file for the defaults of a command, as if written on the line, and return its path."""
    if path is None:
        return None
    where = f"The file of settings {path!r}"
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise click.UsageError(f"{where} cannot be read: {error.strerror or error}.", ctx) from error
    except ValueError as error:  # of TOML, of its encoding, or of a number of thousands of digits
        example = "A line is, for example: fail-above = 0.1"
        raise click.UsageError(f"{where} is not TOML: {error}. {example}", ctx) from error
    if (other := content.pop(COMMAND, ctx.command.name)) != ctx.command.name:
        raise click.UsageError(f"{where} is for pyrofair {other}, and this is pyrofair {ctx.command.name}.", ctx)
    known = {str(each.name).replace("_", "-"): each for each in ctx.command.params if each.name not in NEVER_READ}
    found: dict[str, Any] = {}
    for name, value in content.items():
        if name not in known:
            text = f"{where} has the key {name!r}, and pyrofair {ctx.command.name} has no option of that name."
            raise click.UsageError(f"{text}{did_you_mean(name, known)} Keys are the options without '--'.", ctx)
        texts, many = [str(each) for each in (value if isinstance(value, list) else [value])], known[name].multiple
        if isinstance(value, dict) or (isinstance(value, list) and not many):
            raise click.UsageError(f"{where}: {name} = {value} must be one value{' or a list' * many}.", ctx)
        found[str(known[name].name)] = texts if many else texts[0]
    ctx.default_map = found
    return path


def config_option() -> Option:
    """Return the option ``--config``, which is read before all others."""
    text = "a TOML file of settings: keys are the options without '--', which override it"
    return Option("config", text, metavar="FILE", is_eager=True, callback=read_settings)


def write_settings(settings: Settings, comments: Sequence[str]) -> str:
    """Return settings as a TOML file, from which the same are read."""
    recorded = {COMMAND: settings.command, **settings.recorded()}
    plain = ("".join(each if each.isprintable() else " " for each in text) for text in comments)
    lines = [*(f"# {text}" for text in plain), *(f"{name} = {_toml(value)}" for name, value in recorded.items())]
    text = "\n".join(lines) + "\n"
    if (read := tomllib.loads(text)) != recorded:
        raise AssertionError(f"settings do not survive being written: {read}")
    return text


def _toml(value: Any) -> str:
    """Return a value as TOML, whose strings are those of JSON but for one character and for surrogates."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
