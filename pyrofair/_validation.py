"""Checks of settings: the type and the range of each value, before any work is done."""

from __future__ import annotations

import difflib
import math
import os
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from pyrofair.exceptions import DataError

__all__ = [
    "Constraint",
    "check_settings",
    "did_you_mean",
    "in_order",
    "listed",
    "look",
    "optional",
    "path_fault",
    "plain_value",
    "require_callable",
    "require_choice",
    "require_flag",
    "require_instance",
    "require_integer",
    "require_jobs",
    "require_known",
    "require_label",
    "require_layers",
    "require_names",
    "require_path",
    "require_rate",
    "require_real",
    "require_seed",
    "require_units",
    "require_unmasked",
    "shown",
    "text_fault",
]

MOST_RATE = 1e30
"""Single precision cannot take larger steps."""
LONGEST_NAME, LONGEST_PATH = 255, 4095
"""The most bytes of a name in a folder, and of a path, that the usual file systems take."""
MOST_SHOWN = 100
"""The most characters of a value in a message."""

Constraint = Callable[[str, Any], object]
"""A check of a setting's name and value that raises a DataError with both."""


def check_settings(estimator: object, constraints: Mapping[str, Constraint]) -> None:
    """Check the settings of an estimator by a table that maps the name of each to its constraint."""
    for name, constraint in constraints.items():
        constraint(name, getattr(estimator, name))


def optional(constraint: Constraint) -> Constraint:
    """Return a constraint that accepts None besides what the given one accepts."""
    return lambda name, value: None if value is None else constraint(name, value)


def require_integer(name: str, value: object, *, least: int = 1, most: int | None = None, hint: str = "") -> int:
    """Return an integer (not a bool) within a closed range; the hint ends the message of the error."""
    if _is_integer(value):
        number = int(value)
        if least <= number and (most is None or number <= most):
            return number
    span = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise DataError(f"{name}={shown(value)} must be an integer {span}.{hint and f' {hint}'}")


require_units = partial(require_integer, most=2**31 - 1)
"""Returns a number of units to draw: an integer of at least 1, and no more than a table can hold."""


def require_real(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    such_as: object = None,
    hint: str = "",
) -> float:
    """Return a finite number within closed (least, most) and open (above, below) ends; ``such_as`` is an example."""
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        try:
            number = float(value)
        except OverflowError:  # an integer of more digits than a float has
            number = math.inf
        if math.isfinite(number) and least <= number <= most and above < number < below:
            return number
    ends = [("of at least", least), ("above", above), ("of at most", most), ("below", below)]
    span = " and ".join(f"{word} {end:g}" for word, end in ends if math.isfinite(end))
    example = "" if such_as is None else f", such as {such_as!r}"
    raise DataError(
        f"{name}={shown(value)} must be a {'finite ' if not span else ''}number{' ' * bool(span)}{span}{example}."
        f"{hint and f' {hint}'}"
    )


def require_rate(value: object, name: str = "learning_rate") -> float:
    """Return a learning rate: a positive number, of a size that single precision can take."""
    return require_real(name, value, above=0.0, most=MOST_RATE)


def require_choice(
    name: str, value: object, choices: Sequence[object], *, callables: str = "", error: type[Exception] = DataError
) -> None:
    """Refuse a value that is none of the choices; with a description of ``callables`` these are accepted, too."""
    integer = _is_integer(value)
    if any(value == each for each in choices if type(each) is type(value) or (integer and _is_integer(each))):
        return
    if callables and callable(value):
        return
    *first, last = map(repr, choices)
    text = f"{', '.join(first)} or {last}" if first else last
    if callables:
        text = f"{', '.join([*first, last])}, or {callables}"
    near = did_you_mean(value, filter(_is_text, choices)) if _is_text(value) else ""
    raise error(f"{name}={shown(value)} is not known; it is {text}.{near}")


def require_flag(name: str, value: object) -> bool:
    """Return True or False as they are, and refuse all else: ``"no"`` would count as true."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise DataError(f"{name}={shown(value)} must be True or False.")


def require_instance(
    name: str, value: object, types: type | tuple[type, ...], expected: str, *, error: type[Exception] = DataError
) -> None:
    """Refuse a value of another type; the message ends in what is expected."""
    if not isinstance(value, types):
        raise error(f"{name}={shown(value)} must be {expected}.")


def require_names(
    name: str, value: object, what: str = "names", *, one: bool = False, error: type[Exception] = DataError
) -> tuple[str, ...]:
    """Return a list of names as a tuple; a string would be read letter by letter, unless ``one`` name may be given."""
    if isinstance(value, str) and one:
        return (value,)
    found = None if isinstance(value, str | bytes | Mapping) else listed(value)
    if found is not None and len(names := tuple(filter(_is_text, found))) == len(found):
        return names
    example = f", such as {[value]!r}" if isinstance(value, str) else ""
    raise error(f"{name}={shown(value)} must be a {'name, or a ' if one else ''}list of {what}{example}.")


def require_known(setting: str, names: Iterable[object], known: Iterable[object], what: str) -> None:
    """Refuse a name in a setting that is none of the known ones, each of which is ``what``."""
    every = [*known]
    for name in names:
        if name not in every:
            has, near = ", ".join(map(str, every)) or "none", did_you_mean(name, every)
            raise DataError(f"{setting} names {name!r}, which is no {what}. They are: {has}.{near}")


def listed(value: object) -> tuple[object, ...] | None:
    """Return the elements of an iterable, or None: an array without an axis has ``__iter__`` and no elements."""
    try:
        return tuple(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def path_fault(text: str) -> str:
    """Return why no file can have a path; nothing if the file system can be asked of it.

    >>> path_fault("table.csv"), path_fault(300 * "a")
    ('', 'it has a name of 300 bytes; a name has at most 255, and a path 4,095')
    """
    if not text or "\0" in text:
        return "it holds the character NUL" if text else "it is empty"
    try:
        size, longest = len(text.encode()), max(len(part.encode()) for part in Path(text).parts or ("",))
    except UnicodeEncodeError as error:
        return f"its character {error.start + 1} is half of a pair (a lone surrogate), which UTF-8 cannot write"
    if size > LONGEST_PATH or longest > LONGEST_NAME:
        found = f"a name of {longest:,}" if longest > LONGEST_NAME else f"{size:,}"
        return f"it has {found} bytes; a name has at most {LONGEST_NAME}, and a path {LONGEST_PATH:,}"
    return ""


def require_path(
    name: str, value: object, what: str = "the path of a file", *, error: type[Exception] = DataError
) -> Path:
    """Return a path of which the file system can be asked; a text that no file can be called is refused."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise error(f"{name}={shown(value)} must be {what}.")
    if fault := path_fault(text):
        raise error(f"{name}={shown(text)} cannot be {what}: {fault}.")
    return Path(text)


def require_jobs(name: str, value: object) -> None:
    """Refuse what is no number of processes: an integer other than 0, negative ones counted from all processors."""
    if require_integer(name, value, least=-1_000, most=1_000) == 0:
        raise DataError(f"{name}=0 leaves no process to work in; -1 takes one for each processor.")


def require_layers(name: str, value: object) -> tuple[int, ...]:
    """Return the sizes of a network's hidden layers as a tuple of positive integers."""
    layers = listed(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes) else None
    if layers is None:
        raise DataError(f"{name}={shown(value)} must list the units of each hidden layer, such as (32, 32) or (32,).")
    return tuple(require_integer(f"{name}[{index}]", units) for index, units in enumerate(layers))


def require_label(name: str, value: object, *, error: type[Exception] = DataError) -> None:
    """Refuse what cannot be a value of a column: a container, a callable, a missing value."""
    plain = isinstance(value, Hashable) and not isinstance(value, Iterable) and not callable(value)
    if not isinstance(value, str | bytes) and (not plain or _is_missing(value)):
        raise error(
            f"{name}={shown(value)} must be one value of the column, such as 1 or 'yes'; values are compared by "
            "equality, and a missing one equals nothing."
        )


def require_callable(name: str, value: object, what: str, *, error: type[Exception] = DataError) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise error(f"{name}={shown(value)} must be {what}.")


def require_seed(value: object, name: str = "random_state") -> None:
    """Refuse what is neither a non-negative integer, nor a NumPy generator, nor None."""
    whole = _is_integer(value) and 0 <= int(value) < 2**63
    if not whole and not isinstance(value, np.random.Generator | np.random.RandomState | None):
        raise DataError(
            f"{name}={shown(value)} must be a non-negative integer below 2^63, a NumPy generator, or None for a fresh "
            "seed."
        )


def require_unmasked(name: str, values: object) -> None:
    """Refuse a masked array with hidden values: NumPy drops the mask wherever plain numbers are made of it."""
    if isinstance(values, np.ma.MaskedArray) and (hidden := int(np.ma.getmaskarray(values).sum())):
        raise DataError(
            f"{name} is a masked array that hides {hidden} of its {values.size} values. Drop these rows or fill them, "
            f"{name}.filled(...), before."
        )


def shown(value: object) -> str:
    """Return the repr of a value for a message: the beginning of a long text, and the type of what has no short repr.

    >>> shown(0.5), shown("ab" * 99)[-20:]
    ('0.5', '... (198 characters)')
    """
    if isinstance(value, str) and len(value) > MOST_SHOWN:
        return f"{value[: MOST_SHOWN // 2]!r}... ({len(value):,} characters)"
    try:
        text = repr(value)
    except Exception:  # a broken repr must not hide the message that shows it
        text = "\n"
    short = isinstance(value, str) or (len(text) <= MOST_SHOWN and "\n" not in text)
    return text if short else f"<{type(value).__name__}>"


def plain_value(value: Any) -> Any:
    """Return a number, truth value or text of NumPy as Python's, and anything else as it is."""
    return value.item() if isinstance(value, np.number | np.bool_ | np.str_) else value


def text_fault(values: Iterable[object]) -> str:
    """Return why names or categories cannot be told apart by their text, or not be written; nothing if they can.

    >>> text_fault(["yes", "no"]), text_fault(["yes", "yes "])[:27]
    ('', "'yes' and 'yes ' look alike")
    """
    seen: dict[str, str] = {}
    for text in filter(_is_text, values):
        try:
            text.encode()
        except UnicodeEncodeError:
            return f"{text!a} holds half of a pair of characters (a lone surrogate), which no file can hold"
        if (other := seen.setdefault(look(text), text)) != text:
            return (
                f"{other!a} and {text!a} look alike: they differ in blanks, in invisible characters, or in how accents "
                "are composed"
            )
    return ""


def look(text: str) -> str:
    """Return a text as it is seen: accents composed, nothing invisible, and single blanks between words."""
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFC", text) if unicodedata.category(each) != "Cf")
    return " ".join(text.split())


TURNS = {code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def in_order(text: Any) -> Any:
    """Return a text for a page with escapes for marks that turn the order of what follows; or what else is given."""
    return text.translate(TURNS) if isinstance(text, str) else text


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a sentence with the known name nearest to a wrong one, whatever its case; empty if none is near."""
    found = nearest(name, known)
    if found is None or found == name:
        return ""
    fault = text_fault([found, name]) if isinstance(name, str) and isinstance(found, str) else ""
    return f" {fault}." if fault else f" Did you mean {found!r}?"


def nearest(name: object, known: Iterable[object]) -> object:
    """Return the known name nearest to a wrong one, whatever its case; None if none is near."""

    def spelling(each: object) -> str:
        return look(str(each)[: 2 * MOST_SHOWN]).casefold()

    wrong, spelled = spelling(name), {spelling(each): each for each in known}
    close = difflib.get_close_matches(wrong, spelled, n=1)
    if not close and len(wrong) > 2:
        close = [each for each in spelled if wrong in each or (len(each) > 2 and each in wrong)]
    return spelled[close[0]] if close else None


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA
        return True


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)
