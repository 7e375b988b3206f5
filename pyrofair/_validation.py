"""One reader of settings: each is checked for its type and its range before any work is done."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TypeGuard

import numpy as np

from pyrofair.exceptions import DataError

__all__ = [
    "did_you_mean",
    "require_choice",
    "require_flag",
    "require_integer",
    "require_real",
    "require_seed",
    "require_unmasked",
]


def require_integer(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Return an integer setting, or refuse what is no integer within its range.

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
    raise DataError(f"{name}={value!r} must be an integer {span}.")


def require_real(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    such_as: object = None,
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
    such_as
        A value that would do, for the message.

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
        f"{name}={value!r} must be a {'finite ' if not span else ''}number{' ' * bool(span)}{span}{example}."
    )


def require_choice(name: str, value: object, choices: Sequence[object]) -> None:
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
    shown = [repr(each) for each in choices]
    listed = f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else shown[0]
    near = did_you_mean(value, filter(_is_text, choices)) if _is_text(value) else ""
    raise DataError(f"{name}={value!r} is not known; it is {listed}.{near}")


def require_flag(name: str, value: object) -> bool:
    """Return a setting that is True or False, or refuse it: ``"no"`` would count as true.

    Raises
    ------
    DataError
        With the setting and its value.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise DataError(f"{name}={value!r} must be True or False.")


def require_seed(value: object, name: str = "random_state") -> None:
    """Refuse what is no seed: an integer that is not negative, a NumPy generator or None.

    Raises
    ------
    DataError
        With what would do.
    """
    if not (_is_integer(value) and int(value) >= 0) and not isinstance(
        value, np.random.Generator | np.random.RandomState | None
    ):
        raise DataError(
            f"{name}={value!r} must be a non-negative integer, a NumPy generator, or None for a fresh seed."
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


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a sentence that suggests the known name nearest to a wrong one, whatever its case; empty if none is near.

    >>> did_you_mean("m", ["A", "M"])
    " Did you mean 'M'?"
    """
    spelled = {str(each).casefold(): each for each in known}
    close = difflib.get_close_matches(str(name).casefold(), spelled, n=1)
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)
