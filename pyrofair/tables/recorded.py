"""Missing values as recorded values: "not recorded" is a level of a category, and of a number a flag beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.changes import with_columns
from pyrofair.tables.labels import is_categorical

__all__ = ["NOT_RECORDED", "Missing", "as_recorded", "fills_of", "flag_of", "with_flags"]

Missing = Literal["refuse", "recorded"]
"""What becomes of missing values in the columns of a graph: they are refused, or "not recorded" counts as a value."""
NOT_RECORDED = "(not recorded)"


def flag_of(name: str) -> str:
    """Return the name of the column that tells in which rows a column of numbers is recorded."""
    return f"{name} recorded"


def fills_of(table: pd.DataFrame) -> dict[str, float | None]:
    """Return for each column that lacks values what is filled in: the mean of numbers, None for categories."""
    incomplete = [name for name in table.columns if table[name].isna().any()]
    known = {str(name): table[name].dropna() for name in incomplete}
    return {
        name: None if is_categorical(values) else float(values.to_numpy(dtype=np.float64).mean())
        for name, values in known.items()
    }


def as_recorded(table: pd.DataFrame, like: pd.DataFrame | Mapping[str, float | None]) -> pd.DataFrame:
    """Return a table without gaps: a category has the level "(not recorded)", a number its mean and a flag beside it.

    The columns that may lack values are those that do in ``like``, the rows that models are fitted on, whose means are
    filled in, or those in their :func:`fills_of`; the flag is a category, "yes" or "no", right of its column. A table
    without gaps in ``like`` is returned as it is. A DataError for a missing value elsewhere, or for a column or a level that has such a name already.

    >>> table = pd.DataFrame({"D": [1.0, None, 3.0], "M": ["a", "b", None]})
    >>> as_recorded(table, table)
         D D recorded               M
    0  1.0        yes               a
    1  2.0         no               b
    2  3.0        yes  (not recorded)
    """
    fills = fills_of(like[[*table.columns]]) if isinstance(like, pd.DataFrame) else like
    for name in table.columns:
        if name not in fills and (gaps := int(table[name].isna().sum())):
            raise DataError(
                f"{gaps:,} row(s) have no {name!r}, which all rows of the fit have, so that nothing is known of such "
                "rows. Fit on rows of both kinds, or drop these."
            )
    if not fills:
        return table
    parts: dict[str, pd.Series[Any]] = {}
    for name in map(str, table.columns):
        values = table[name]
        if name not in fills:
            parts[name] = values
        elif (fill := fills[name]) is None:
            parts[name] = _as_level(values)
        else:
            if flag_of(name) in table:
                raise DataError(f"{flag_of(name)!r} is the name of a flag beside {name!r}; rename this column.")
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
            gaps = np.isnan(numbers)
            parts[name] = pd.Series(np.where(gaps, fill, numbers), values.index)
            flags = pd.Categorical.from_codes(gaps.astype(np.int8), ["yes", "no"])
            parts[flag_of(name)] = pd.Series(flags, values.index)
    return pd.DataFrame(parts, index=table.index)


def _as_level(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of categories with missing values as a level of their own, which none of them may have."""
    if (values == NOT_RECORDED).any():
        raise DataError(f"The column {values.name!r} has missing values and the level {NOT_RECORDED!r}; rename it.")
    if not isinstance(values.dtype, pd.CategoricalDtype):
        return values.astype(object).where(values.notna(), NOT_RECORDED)
    if NOT_RECORDED not in values.cat.categories:
        values = values.cat.add_categories([NOT_RECORDED])
    return values.fillna(NOT_RECORDED)


def with_flags(graph: CausalGraph, table: pd.DataFrame) -> CausalGraph:
    """Return a graph whose nodes have the flags of a table of :func:`as_recorded` among their columns."""
    found = {
        node: [each for name in columns for each in (name, flag_of(name)) if each == name or each in table]
        for node, columns in graph.columns.items()
    }
    return graph if found == graph.columns else with_columns(graph, found)
