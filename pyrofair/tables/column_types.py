"""The measurement scale of a column: binary, categorical, integer, positive or continuous; some columns are refused."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_object_dtype

from pyrofair.exceptions import DataError

__all__ = ["MAX_INTEGER", "ColumnType", "column_type", "is_categorical", "is_text", "moments"]

ColumnType = Literal["binary", "categorical", "integer", "positive", "continuous"]

MAX_INTEGER = 1_000_000
"""Integers up to this size count; in single precision the halves between them are exact."""
LEAST_RATIO = 0.1
"""Positive numbers vary on a logarithmic scale if their standard deviation is at least this share of their mean."""
FEW_LEVELS = 20
"""Up to so many categories may have few rows each."""
STEPS = 8
"""The least standard deviation, in steps of the precision at the largest value."""
LARGEST, FARTHEST = 1e37, 1e15
"""Beyond these sizes of a value and of a standard deviation, or of one over it, densities overflow."""


def is_categorical(values: pd.Series[Any]) -> bool:
    """Whether a column holds categories (categorical, text or object) rather than numbers."""
    dtype = values.dtype
    return isinstance(dtype, pd.CategoricalDtype) or is_object_dtype(dtype) or is_text(dtype)


def is_text(dtype: object) -> bool:
    """Whether a pandas type is one of text: ``str``, ``string`` in any storage, or a string type of Arrow."""
    return isinstance(dtype, pd.StringDtype) or (isinstance(dtype, pd.ArrowDtype) and dtype.type is str)


def column_type(values: pd.Series[Any], shares: NDArray[np.float64], most_levels: int) -> ColumnType:
    """Return the type of a column (n,) with the weight of each value (n,), sum 1.

    Up to ``most_levels`` different integers are categories. A DataError if most rows have a category of their own, or a
    program's precision is too low for the numbers.

    Examples
    --------
    >>> column_type(pd.Series([1e6 + 0.25, 1e6 + 10.0, 1e6 + 20.0]), np.full(3, 1 / 3), 20)
    'continuous'
    >>> column_type(pd.Series([0.25, 1.0, 2.0]), np.full(3, 1 / 3), 20)
    'positive'
    """
    if is_categorical(values):
        _require_levels(values)
        return "categorical"
    numbers = values.to_numpy(dtype=np.float64)
    known = np.unique(numbers)
    if is_bool_dtype(values.dtype) or set(known) == {0.0, 1.0}:
        return "binary"
    integer, largest = bool((known == np.round(known)).all()), float(np.abs(known).max())
    if len(known) <= 2 or (integer and len(known) <= most_levels):
        return "categorical"
    if integer and largest <= MAX_INTEGER:
        return "integer"
    mean, sd = moments(numbers / largest, shares)
    positive = bool((known > 0.0).all()) and sd >= LEAST_RATIO * mean
    _require_resolved(values, largest, positive=positive)
    return "positive" if positive else "continuous"


def moments(numbers: NDArray[np.float64], shares: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is 1 where it would be 0."""
    mean = float(shares @ numbers)
    return mean, float(np.sqrt(shares @ (numbers - mean) ** 2)) or 1.0


def _require_levels(values: pd.Series[Any]) -> None:
    name, count = values.name, values.nunique()
    if count > FEW_LEVELS and 2 * count > len(values):
        raise DataError(
            f"The column {name!r} holds {count} different categories in {len(values)} rows, such as "
            f"{', '.join(map(repr, values.unique()[:3]))}: most occur in one row, which carries no information on "
            "others. Join categories, leave an identifier out of the graph, or make numbers of text that holds them: "
            f"pd.to_numeric(df[{name!r}])."
        )


def _require_resolved(values: pd.Series[Any], largest: float, *, positive: bool) -> None:
    name, numbers = values.name, values.to_numpy(dtype=np.float64)
    spread = float(numbers.std()) if largest < LARGEST else np.inf
    if largest >= LARGEST or not (positive or 1.0 / FARTHEST < spread < FARTHEST):
        raise DataError(
            f"The column {name!r} holds numbers up to {largest:g} in size, whose densities a program cannot compute. "
            f"Give it in another unit: df[{name!r}] / {10.0 ** np.round(np.log10(largest)):g}."
        )
    step = torch.finfo(torch.get_default_dtype()).eps * largest
    if spread < STEPS * step:
        raise DataError(
            f"The column {name!r} holds numbers around {numbers.mean():g} with a standard deviation of {spread:g}, and "
            f"a program's numbers lie up to {step:g} apart there. Subtract an offset: df[{name!r}] - "
            f"df[{name!r}].mean()."
        )
