"""One reader of settings: each is checked for its type and its range before any work is done."""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import TypeGuard

import numpy as np

from pyrofair.exceptions import DataError

__all__ = [
    "did_you_mean",
    "listed",
    "require_callable",
    "require_choice",
    "require_flag",
    "require_instance",
    "require_integer",
    "require_label",
    "require_layers",
    "require_names",
    "require_rate",
    "require_real",
    "require_seed",
    "require_units",
    "require_unmasked",
    "shown",
]

MOST_UNITS = 2**31 - 1
MOST_SEED = 2**63 - 1
MOST_RATE = 1e30


def require_integer(name: str, value: object, *, least: int = 1, most: int | None = None, hint: str = "") -> int:
    """Return an integer setting, or refuse what is no integer within its range; a hint ends the message.

    Raises
    ------
    DataError
        With the setting and its value. True and False are no integers here.

    Examples
    --------
    >>> require_integer("n_boot", 200, least=0)
    200
    >>> require_integer("epochs", 2.5)
    Traceback (most recent call last):
    pyrofair.exceptions.DataError: epochs=2.5 must be an integer of at least 1.
    """
    if _is_integer(value):
        number = int(value)
        if least <= number and (most is None or number <= most):
            return number
    span = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise DataError(f"{name}={shown(value)} must be an integer {span}.{hint and f' {hint}'}")


def require_units(name: str, value: object) -> int:
    """Return a number of units to draw, or refuse what is none, or more than a table can hold.

    Raises
    ------
    DataError
        With the setting and its value.
    """
    return require_integer(name, value, most=MOST_UNITS)


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
    """Return a real setting, or refuse what is no finite number within its range.

    Parameters
    ----------
    name, value
        The setting.
    least, most
        Closed ends of its range.
    above, below
        Open ends of its range.
    such_as, hint
        A value that would do, and a last sentence, for the message.

    Raises
    ------
    DataError
        With the setting, its value and the range.

    Examples
    --------
    >>> require_real("level", 0.95, above=0.0, below=1.0)
    0.95
    >>> require_real("level", "high", above=0.0, below=1.0, such_as=0.95)
    Traceback (most recent call last):
    pyrofair.exceptions.DataError: level='high' must be a number above 0 and below 1, such as 0.95.
    """
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        number = float(value)
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
    """Return a learning rate, or refuse what is none, or is so large that single precision cannot take the step.

    Raises
    ------
    DataError
        With the setting and its value.
    """
    return require_real(name, value, above=0.0, most=MOST_RATE)


def require_choice(name: str, value: object, choices: Sequence[object], *, error: type[Exception] = DataError) -> None:
    """Refuse a setting that is none of the given values, with the nearest of them.

    Raises
    ------
    DataError
        With the setting, its value and the choices.

    Examples
    --------
    >>> require_choice("arm", "pool", ["paper", "pooled"])
    Traceback (most recent call last):
    pyrofair.exceptions.DataError: arm='pool' is not known; it is 'paper' or 'pooled'. Did you mean 'pooled'?
    """
    integer = _is_integer(value)
    if any(value == each for each in choices if type(each) is type(value) or (integer and _is_integer(each))):
        return
    known = [repr(each) for each in choices]
    listed = f"{', '.join(known[:-1])} or {known[-1]}" if len(known) > 1 else known[0]
    near = did_you_mean(value, filter(_is_text, choices)) if _is_text(value) else ""
    raise error(f"{name}={shown(value)} is not known; it is {listed}.{near}")


def require_flag(name: str, value: object) -> bool:
    """Return a setting that is True or False, or refuse it: ``"no"`` would count as true.

    Raises
    ------
    DataError
        With the setting and its value.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise DataError(f"{name}={shown(value)} must be True or False.")


def require_instance(
    name: str, value: object, kinds: type | tuple[type, ...], expected: str, *, error: type[Exception] = DataError
) -> None:
    """Refuse a setting of another type.

    Raises
    ------
    DataError
        With the setting, its value, and what is expected; ``error`` may name another class of error.

    Examples
    --------
    >>> require_instance("families", 3, dict, "a dictionary from columns to families")
    Traceback (most recent call last):
    pyrofair.exceptions.DataError: families=3 must be a dictionary from columns to families.
    """
    if not isinstance(value, kinds):
        raise error(f"{name}={shown(value)} must be {expected}.")


def require_names(
    name: str, value: object, what: str = "names", *, one: bool = False, error: type[Exception] = DataError
) -> tuple[str, ...]:
    """Return a list of names as a tuple, or refuse what is none: a string would be read letter by letter.

    Parameters
    ----------
    name, value
        The setting.
    what
        What the names are of.
    one
        Whether a single name may stand for the list of it.
    error
        The class of the error.

    Raises
    ------
    DataError
        With the setting, its value, and how to write it.

    Examples
    --------
    >>> require_names("through", "M", "node names", one=True)
    ('M',)
    >>> require_names("columns", "A", "column names")
    Traceback (most recent call last):
    pyrofair.exceptions.DataError: columns='A' must be a list of column names, such as ['A'].
    """
    if isinstance(value, str) and one:
        return (value,)
    found = None if isinstance(value, str | bytes | Mapping) else listed(value)
    if found is not None and len(names := tuple(filter(_is_text, found))) == len(found):
        return names
    example = f", such as {[value]!r}" if isinstance(value, str) else ""
    raise error(f"{name}={shown(value)} must be a {'name, or a ' if one else ''}list of {what}{example}.")


def listed(value: object) -> tuple[object, ...] | None:
    """Return what a value lists, or None of what lists nothing: an array or tensor without an axis only looks like it.

    >>> listed([1, 2]), listed(np.array(1.0)), listed(None)
    ((1, 2), None, None)
    """
    try:
        return tuple(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def require_layers(name: str, value: object) -> tuple[int, ...]:
    """Return the numbers of units of a network's hidden layers, or refuse what is no list of them.

    Raises
    ------
    DataError
        With the setting, its value and an example.
    """
    layers = listed(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes) else None
    if layers is None:
        raise DataError(f"{name}={shown(value)} must list the units of each hidden layer, such as (32, 32) or (32,).")
    return tuple(require_integer(f"{name}[{place}]", units) for place, units in enumerate(layers))


def require_label(name: str, value: object, *, error: type[Exception] = DataError) -> None:
    """Refuse what is no label of a value in a column: a list, a dictionary, NaN, None.

    Raises
    ------
    DataError
        With the setting and its value.
    """
    plain = isinstance(value, Hashable) and not isinstance(value, Iterable) and not callable(value)
    if not isinstance(value, str | bytes) and (not plain or _is_missing(value)):
        raise error(
            f"{name}={shown(value)} must be one value of the column, such as 1 or 'yes'; values are compared by "
            "equality, and a missing one equals nothing."
        )


def require_callable(name: str, value: object, what: str, *, error: type[Exception] = DataError) -> None:
    """Refuse what cannot be called.

    Raises
    ------
    DataError
        With the setting and its value.
    """
    if not callable(value):
        raise error(f"{name}={shown(value)} must be {what}.")


def require_seed(value: object, name: str = "random_state") -> None:
    """Refuse what is no seed: an integer that is not negative, a NumPy generator or None.

    Raises
    ------
    DataError
        With what would do.
    """
    if not (_is_integer(value) and 0 <= int(value) <= MOST_SEED) and not isinstance(
        value, np.random.Generator | np.random.RandomState | None
    ):
        raise DataError(
            f"{name}={shown(value)} must be a non-negative integer below 2^63, a NumPy generator, or None for a fresh "
            "seed."
        )


def require_unmasked(name: str, values: object) -> None:
    """Refuse a masked array that hides values: NumPy drops the mask wherever plain numbers are made of it.

    Raises
    ------
    DataError
        With how many are hidden, and what to do.

    Examples
    --------
    >>> require_unmasked("y", np.ma.masked_equal([0, 9, 1], 9))
    Traceback (most recent call last):
    pyrofair.exceptions.DataError: y is a masked array that hides 1 of its 3 values. Drop these rows or fill them, \
y.filled(...), before.
    """
    if isinstance(values, np.ma.MaskedArray) and (hidden := int(np.ma.getmaskarray(values).sum())):
        raise DataError(
            f"{name} is a masked array that hides {hidden} of its {values.size} values. Drop these rows or fill them, "
            f"{name}.filled(...), before."
        )


def shown(value: object) -> str:
    """Return a value as a message shows it: its repr, or the type of what has a long one.

    >>> shown("abc"), shown(list(range(1000)))
    ("'abc'", '<list>')
    """
    try:
        text = repr(value)
    except Exception:  # a broken repr must not hide the message that shows it
        text = "\n"
    return text if len(text) <= 100 and "\n" not in text else f"<{type(value).__name__}>"


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a sentence that suggests the known name nearest to a wrong one, whatever its case; empty if none is near.

    >>> did_you_mean("m", ["A", "M"])
    " Did you mean 'M'?"
    """
    spelled = {str(each).casefold(): each for each in known}
    wrong = str(name).casefold()
    close = difflib.get_close_matches(wrong, spelled, n=1)
    if not close and len(wrong) > 2:
        close = [each for each in spelled if wrong in each or (len(each) > 2 and each in wrong)]
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA
        return True


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)
