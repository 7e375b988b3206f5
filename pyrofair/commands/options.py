"""The options of a command, each declared once: for the parser, for a file of settings, and for the record of a run."""

from __future__ import annotations

import argparse
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pyrofair.exceptions import PyrofairError

__all__ = [
    "CANNOT_BE_JUDGED",
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "LIMIT_EXCEEDED",
    "USAGE",
    "Command",
    "Option",
    "Parser",
    "Settings",
    "UsageError",
    "near",
    "read_settings",
    "write_settings",
]

DONE, FAILED, USAGE, LIMIT_EXCEEDED, CANNOT_BE_JUDGED, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""The exit codes."""

COMMAND = "command"
"""The key of a file of settings that names its command."""
NEVER_WRITTEN = ("config", "overwrite", "traceback")
"""Options that belong to a call and not to its results."""


class UsageError(PyrofairError):
    """An option, a file, a column or a value does not fit; the command ends with exit code 2."""


def near(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the known name nearest to a wrong one, or an empty string."""
    from pyrofair._validation import did_you_mean  # it loads NumPy

    return did_you_mean(name, known)


@dataclass(frozen=True)
class Option:
    """An option ``--name``, or the positional argument of a command.

    ``type`` is str, int, float or bool (a flag); a ``label`` is a value of a column, as text, which a file of settings
    may hold as a number. ``many`` takes one or more values; ``default`` None leaves the choice to the package.
    """

    name: str
    help: str
    type: type = str
    default: Any = None
    many: bool = False
    choices: tuple[str, ...] = ()
    metavar: str = ""
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    group: str = "options"
    positional: bool = False
    required: bool = False
    label: bool = False

    @property
    def flag(self) -> str:
        """The option as it is written on the command line."""
        return self.name if self.positional else f"--{self.name}"

    def add_to(self, parser: Any) -> None:
        """Add the option to a parser, which leaves it out of its result where it is not given."""
        settings: dict[str, Any] = {"default": argparse.SUPPRESS, "help": self._help()}
        if self.metavar:
            settings["metavar"] = self.metavar
        if self.positional:
            settings.setdefault("metavar", f"{{{','.join(self.choices)}}}" if self.choices else self.name)
            parser.add_argument(self.name, nargs="?", **settings)  # its choices would be compared with no value, too
            return
        if self.type is bool:
            settings.pop("metavar", None)
            parser.add_argument(self.flag, dest=self.name, action=argparse.BooleanOptionalAction, **settings)
            return
        if self.choices:
            settings["choices"] = self.choices
        if self.many:
            settings |= {"nargs": "+", "action": "extend"}
        parser.add_argument(self.flag, dest=self.name, type=self.type, **settings)

    def _help(self) -> str:
        """Return the help, in which a value of a list or a flag needs no default."""
        shown = self.default is not None and self.type is not bool and not self.many
        return (self.help + (f" (default {self.default:g})" if shown and not isinstance(self.default, str) else
                             f" (default {self.default})" if shown else "")).replace("%", "%%")  # fmt: skip

    def read(self, value: Any, where: str) -> Any:
        """Return a value of a file of settings in the type of the option, or raise a UsageError."""
        if self.many:
            values = value if isinstance(value, list) else [value]
            if not values:
                raise UsageError(f"{where}: {self.name} is an empty list; leave it out, or name a value.")
            return [self._read_one(each, where) for each in values]
        return self._read_one(value, where)

    def _read_one(self, value: Any, where: str) -> Any:
        wanted = {str: "a text in quotes", int: "an integer", float: "a number", bool: "true or false"}[self.type]
        fits = isinstance(value, self.type) and (self.type is bool or not isinstance(value, bool))
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value, fits = float(value), True
        if self.label and isinstance(value, bool | int | float):
            value, fits = str(value), True
        if not fits:
            shown = json.dumps(value, default=str)
            raise UsageError(f"{where}: {self.name} = {shown} must be {wanted}{', or a list of these' * self.many}.")
        if self.choices and value not in self.choices:
            raise UsageError(
                f"{where}: {self.name} = {json.dumps(value)} is not known; it is {' or '.join(self.choices)}."
                f"{near(value, self.choices)}"
            )
        return value

    def check(self, value: Any) -> None:
        """Refuse a number outside the range of the option."""
        for each in value if self.many else [value]:
            if self.type not in (int, float):
                continue
            inside = self.least <= each <= self.most and self.above < each < self.below
            if not (inside and math.isfinite(each)):
                ends = [("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below)]
                span = " and ".join(f"{word} {end:g}" for word, end in ends if math.isfinite(end))
                what = "an integer" if self.type is int else "a finite number"
                raise UsageError(f"{self.flag} must be {what}{' ' * bool(span)}{span}, and is {each:g}.")


@dataclass(frozen=True)
class Settings:
    """The values of all options of a command by name, and the names of those that the user gave."""

    command: str
    values: dict[str, Any]
    given: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def recorded(self) -> dict[str, Any]:
        """Return what a file of settings holds: all values that are not left to the package."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in NEVER_WRITTEN and value is not None and value != []
        }


@dataclass(frozen=True)
class Command:
    """A command: a line of help, a description, an example, its options and the function that runs it.

    The function takes the settings and an object with a method ``write``, and returns the exit code.
    """

    name: str
    help: str
    description: str
    example: str
    options: tuple[Option, ...]
    run: Callable[[Settings, Any], int]

    def add_to(self, commands: Any) -> None:
        """Add the parser of the command."""
        positional = " ".join(each.metavar or f"{{{','.join(each.choices)}}}" for each in self._positional())
        parser = commands.add_parser(
            self.name,
            help=self.help,
            description=self.description,
            epilog=self.example,
            usage=f"pyrofair {self.name}{' ' * bool(positional)}{positional} [options]",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        groups = {"options": parser}
        for option in self.options:
            if option.group not in groups:
                groups[option.group] = parser.add_argument_group(option.group)
            option.add_to(groups[option.group])

    def _positional(self) -> list[Option]:
        return [each for each in self.options if each.positional]

    def settle(self, given: dict[str, Any]) -> Settings:
        """Return the settings of a call: defaults, then a file of settings, then what was given on the command line."""
        values = {option.name: [] if option.many else option.default for option in self.options}
        values |= {option.name: False for option in self.options if option.type is bool and option.default is None}
        config = read_settings(given["config"], self) if given.get("config") else {}
        values |= config | given
        absent = [each for each in self.options if each.required and values[each.name] in (None, [])]
        if absent:
            names = ", ".join(each.flag if not each.positional else each.metavar or each.name for each in absent)
            first = " DATA comes before the options." if absent[0].positional and absent[0].metavar == "DATA" else ""
            raise UsageError(
                f"the following arguments are required: {names}.{first} See pyrofair {self.name} --help for an example."
            )
        for option in self.options:
            if option.positional and option.choices and values[option.name] not in option.choices:
                raise UsageError(
                    f"argument {option.name}: invalid choice: {values[option.name]!r} (choose from "
                    f"{', '.join(option.choices)}).{near(values[option.name], option.choices)}"
                )
            if values[option.name] is not None:
                option.check(values[option.name])
        # A file that a run wrote holds all values, defaults of options that do not apply included.
        chosen = {option.name for option in self.options if config.get(option.name) not in (None, option.default)}
        return Settings(self.name, values, frozenset({*chosen, *given}))


def read_settings(path: str, command: Command) -> dict[str, Any]:
    """Return the values of a TOML file for the options of a command, each checked."""
    where = f"The file of settings {path!r}"
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} is no TOML: {error}. A line is, for example: fail-above = 0.1") from error
    other = content.pop(COMMAND, command.name)
    if other != command.name:
        raise UsageError(f"{where} is one of pyrofair {other}, and this is pyrofair {command.name}.")
    known = {option.name: option for option in command.options if option.name not in ("config", "traceback")}
    found = {}
    for name, value in content.items():
        if name not in known:
            raise UsageError(
                f"{where} has the key {name!r}, and pyrofair {command.name} has no option of that "
                f"name.{near(name, known)} Keys are the options without '--'."
            )
        found[name] = known[name].read(value, where)
    return found


def write_settings(settings: Settings, comments: Sequence[str]) -> str:
    """Return settings as a TOML file, from which :func:`read_settings` reads the same."""
    lines = [*(f"# {text}" for text in comments), f"{COMMAND} = {_toml(settings.command)}"]
    recorded = settings.recorded()
    lines += [f"{name} = {_toml(value)}" for name, value in recorded.items()]
    text = "\n".join(lines) + "\n"
    read = tomllib.loads(text)
    if read != {COMMAND: settings.command, **recorded}:
        raise AssertionError(f"settings do not survive being written: {read}")
    return text


def _toml(value: Any) -> str:
    """Return a value as TOML, whose strings are those of JSON but for one character and for surrogates."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


@dataclass(eq=False)
class _Choice:
    """An invalid choice in a message of argparse, whose wording differs between versions of Python."""

    pattern: re.Pattern[str] = field(default=re.compile(r"invalid choice: '(.*?)' \(choose from (.*?)\)"))

    def hint(self, message: str) -> str:
        found = self.pattern.search(message)
        return near(found[1], [each.strip(" '") for each in found[2].split(",")]) if found else ""


class Parser(argparse.ArgumentParser):
    """A parser whose errors name what is near, and do not print all options."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and end with exit code 2."""
        hint = _Choice().hint(message)
        self.exit(USAGE, f"{self.prog}: error: {message}{'.' * bool(hint)}{hint}\n")
