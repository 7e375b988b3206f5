"""Worlds as tables of labels, and tables of labels as a program's numeric codes."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import did_you_mean, shown
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.programs.sites import require_finite
from pyrofair.programs.structural_equations import Equations
from pyrofair.programs.worlds import World
from pyrofair.tables.tables import as_column, is_categorical

__all__ = [
    "Levels",
    "by_column",
    "codes_of",
    "codes_of_do",
    "codes_of_rows",
    "column_of",
    "labels_of",
    "levels_of_sites",
    "outcome_levels",
    "read_levels",
    "require_do",
    "site_of",
    "world_tables",
]

Levels = Mapping[str, NDArray[Any]]
"""For some node sites, whose values are codes 0, 1, ..., the label of each code, shape (k,)."""
SHOWN = 10


def site_of(equations: Equations, column: str) -> str:
    """Return the site of a column: its own name, or that of its node."""
    columns = equations.unfair.graph.columns
    return column if column in equations.node_of else next(n for n, own in columns.items() if own == [column])


def column_of(equations: Equations, site: str) -> str:
    """Return the column of a site: its own name, or that of its node."""
    own = equations.unfair.graph.columns.get(equations.node_of[site], [])
    return site if site in own or not own else own[0]


def world_tables(
    equations: Equations,
    worlds: Sequence[World],
    columns: Sequence[str],
    size: int,
    levels: Levels,
    dtypes: Mapping[Any, Any] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``columns``, or sites, of both worlds as tables of ``size`` rows, A as the outcome reads it.

    ``levels`` label sites that hold codes; ``dtypes`` are the pandas types of some columns. The two tables share memory
    where the worlds are the same, so their columns are read-only.
    """
    types = dict(dtypes or {})
    graph = equations.unfair.graph
    path = (graph.sensitive, graph.outcome)
    made: dict[tuple[Any, ...], Any] = {}
    tables = []
    for world, regime in zip(worlds, equations.unfair.regimes, strict=True):
        data: dict[str, Any] = {}
        for column in columns:
            if column == graph.sensitive_column:
                label = graph.label(regime.value(path) if path in graph.edges else regime.on_fair)
                data[column] = np.broadcast_to(np.asarray(label), size)
                if column in types:
                    one = as_column(column, np.asarray([label]), types[column])
                    data[column] = one.iloc[np.zeros(size, dtype=np.int64)].set_axis(range(size))
                continue
            site = site_of(equations, column)
            values = world[site]
            key = (site, values.data_ptr(), values.shape, values.stride())
            if key not in made:
                require_finite(site, values)
                made[key] = values.expand(size).numpy()
                if site in levels:
                    made[key] = labels_of(site, levels[site], made[key])
                if column in types:
                    typed = as_column(column, made[key], types[column])
                    plain = isinstance(typed.dtype, np.dtype) and typed.dtype != object
                    made[key] = typed.to_numpy() if plain else typed
                if isinstance(made[key], np.ndarray):
                    made[key].flags.writeable = False
            data[column] = made[key]
        tables.append(pd.DataFrame(data, copy=False))
    return tables[0], tables[1]


# -- labels ------------------------------------------------------------------------------------------------------------


def read_levels(levels: Mapping[str, Sequence[Any]] | None, equations: Equations) -> dict[str, NDArray[Any]]:
    """Return the labels of each site that has some, shape (k,); see :func:`levels_of_sites`."""
    return levels_of_sites(levels, equations.node_of, equations.unfair.graph)


def levels_of_sites(
    levels: Mapping[str, Sequence[Any]] | None, node_of: Mapping[str, str], graph: CausalGraph
) -> dict[str, NDArray[Any]]:
    """Return the labels of each site that has some, shape (k,), as a user gives them.

    A DataError names a site that is no node or the sensitive one, no labels, a label given twice, and labels of the
    outcome of which that of code 1 is not the graph's positive one.
    """
    found: dict[str, NDArray[Any]] = {}
    if levels is not None and not isinstance(levels, Mapping):
        raise DataError(
            f"levels={levels!r} must be a dictionary: for each node site its labels, {{'D': ['low', ...]}}."
        )
    sites = [site for site, node in node_of.items() if node != graph.sensitive]
    for site, labels in (levels or {}).items():
        if node_of.get(site) == graph.sensitive:
            raise DataError(
                f"levels names {site!r}, the sensitive attribute, whose labels are the graph's baseline and contrast. "
                "Leave it out."
            )
        if site not in node_of:
            raise DataError(
                f"levels names {site!r}, which is no node site. They are: {', '.join(sites)}."
                f"{did_you_mean(site, sites)}"
            )
        listed = isinstance(labels, Sequence | np.ndarray | pd.Index) and not isinstance(labels, str)
        every = list(labels) if listed else []
        plain = bool(every) and all(isinstance(label, Hashable) for label in every)
        if not plain or len(set(every)) < len(every):
            raise DataError(f"levels[{site!r}]={labels!r} must be a list of labels, each once: that of code 0 first.")
        if node_of[site] == graph.outcome:
            _require_positive(graph, site, every)
        same = len({type(label) for label in every}) == 1
        found[site] = np.asarray(every) if same else np.asarray(every, dtype=object)
    return found


def _require_positive(graph: CausalGraph, site: str, labels: Sequence[Any]) -> None:
    if len(labels) < 2 or labels[1] != graph.positive:
        raise DataError(
            f"levels[{site!r}]={list(labels)!r} gives the outcome's code 1 another label than the graph's "
            f"positive={graph.positive!r}. List the positive label second, or name it when making the graph."
        )


def outcome_levels(equations: Equations, df: pd.DataFrame, levels: Levels) -> Levels:
    """Return the levels with those of the outcome added, where a table holds its labels and they have none yet.

    A third label is a DataError. Where the table does not hold the negative label, a PyrofairWarning is given and the
    outcome stays in codes.
    """
    graph = equations.unfair.graph
    site = next((site for site, node in equations.node_of.items() if node == graph.outcome), None)
    values = df.get(graph.outcome_column) if isinstance(df, pd.DataFrame) else None
    if site is None or site in levels or not isinstance(values, pd.Series) or not is_categorical(values):
        return levels
    found = values.cat.categories if isinstance(values.dtype, pd.CategoricalDtype) else values.dropna().unique()
    others = [label for label in found if label != graph.positive]
    if len(others) > 1:
        raise DataError(
            f"The outcome {values.name!r} holds {', '.join(map(repr, others[:SHOWN]))} besides "
            f"positive={graph.positive!r}, but it must be binary. Recode it, or name its labels: levels={{{site!r}: "
            f"[..., {graph.positive!r}]}}."
        )
    if not others:
        warnings.warn(
            f"The outcome {values.name!r} is always {graph.positive!r} here, so its other label is not known and both "
            f"worlds hold 0 and 1. Name it: levels={{{site!r}: [..., {graph.positive!r}]}}.",
            PyrofairWarning,
            stacklevel=3,
        )
        return levels
    return {**levels, site: np.asarray([others[0], graph.positive], dtype=object)}


def labels_of(site: str, labels: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of codes, in the shape of the codes; a code without a label is a DataError."""
    integer = codes.astype(np.int64)
    wrong = (integer != codes) | (integer < 0) | (integer >= len(labels))
    if wrong.any():
        raise DataError(
            f"The site {site!r} takes the value {codes[wrong].flat[0]:g}, but its {len(labels)} levels have the codes "
            f"0 to {len(labels) - 1}. Correct levels[{site!r}], or the program."
        )
    return np.asarray(labels[integer])


def codes_of(site: str, labels: NDArray[Any], values: Any) -> NDArray[np.float64]:
    """Return the codes of labels, shape (n,), NaN for a missing value; a label that is no level is a DataError."""
    given = pd.Series(np.atleast_1d(np.asarray(values, dtype=object)))
    index = pd.Index(labels, dtype=object).get_indexer(pd.Index(given, dtype=object))
    missing = given.isna().to_numpy()
    unseen = (index < 0) & ~missing
    if unseen.any():
        label = given[unseen].iloc[0]
        unknown = label.item() if isinstance(label, np.generic) else label
        known = ", ".join(map(repr, labels[:SHOWN].tolist())) + (", ..." if len(labels) > SHOWN else "")
        raise DataError(
            f"{site!r} holds {unknown!r}, which is none of its {len(labels)} levels: {known}. Correct the value, or "
            f"fit the model with this level.{did_you_mean(unknown, labels.tolist())}"
        )
    return np.where(missing, np.nan, index.astype(np.float64))


def by_column(equations: Equations, levels: Levels) -> dict[str, NDArray[Any]]:
    """Return the labels under the names of columns, those of a latent node under that of its site."""
    return {column_of(equations, site): labels for site, labels in levels.items()}


def codes_of_rows(equations: Equations, df: pd.DataFrame, levels: Levels) -> pd.DataFrame:
    """Return a table of units with codes in index of the labels of some sites, as :func:`codes_of` does."""
    labelled = by_column(equations, levels)
    have = {name: labels for name, labels in labelled.items() if name in getattr(df, "columns", ())}
    return df.assign(**{name: codes_of(name, labels, df[name]) for name, labels in have.items()}) if have else df


def require_do(values: object, name: str = "do") -> None:
    """Raise a DataError for what is no dictionary of nodes and values to set them to; ``name`` is the setting's."""
    if values is not None and not isinstance(values, Mapping):
        raise DataError(
            f"{name}={shown(values)} must be a dictionary: for each node the value it is set to, {{'D': 1.0}}."
        )


def codes_of_do(equations: Equations, values: Mapping[str, Any] | None, levels: Levels) -> Mapping[str, Any] | None:
    """Return values to set sites, or their columns, to with codes in index of labels, as :func:`codes_of` does."""
    require_do(values)
    labelled = {**by_column(equations, levels), **levels}
    found = {}
    for name, each in (values or {}).items():
        codes = codes_of(name, labelled[name], each) if name in labelled else each
        found[name] = pd.Series(codes, each.index) if isinstance(each, pd.Series) and name in labelled else codes
    return found
