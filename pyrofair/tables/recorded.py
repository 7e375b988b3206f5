"""Missing values as recorded values: "not recorded" is a level of a category, and of a number a flag beside it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from pyrofair._validation import require_choice
from pyrofair.exceptions import DataError, NotIdentifiedError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.changes import with_hidden_truth
from pyrofair.graph.identification import Target, derive
from pyrofair.graph.paths import UnfairPaths
from pyrofair.tables.labels import is_categorical, observed_levels

__all__ = [
    "NOT_RECORDED",
    "Missing",
    "Needs",
    "as_level",
    "as_recorded",
    "assumed_of_records",
    "fills_of",
    "flag_of",
    "join_truths",
    "missing_shares",
    "require_missing",
    "truths_assumed",
    "warn_of_truths",
    "with_flags",
]

Missing = Literal["refuse", "recorded"]
"""What becomes of missing values in the columns of a graph: they are refused, or "not recorded" counts as a value."""
Needs = Literal["prefixes", "parents", "errors"]
"""The distributions that a method depends on: of each node given all before it, or given its parents; or all errors."""
NOT_RECORDED = "(not recorded)"
require_missing = partial(require_choice, "missing", choices=get_args(Missing))
"""Refuses what is no :data:`Missing`."""


def flag_of(name: str) -> str:
    """Return the name of the column that tells in which rows a column of numbers is recorded."""
    return f"{name} recorded"


def fills_of(table: pd.DataFrame) -> dict[str, float | None]:
    """Return for each column that lacks values what is filled in: the mean of numbers, None for categories."""
    known = {str(name): table[name].dropna() for name in table.columns if table[name].isna().any()}
    means = {name: each.to_numpy(dtype=np.float64).mean() for name, each in known.items() if not is_categorical(each)}
    return {name: float(means[name]) if name in means else None for name in known}


def as_recorded(table: pd.DataFrame, like: pd.DataFrame | Mapping[str, float | None]) -> pd.DataFrame:
    """Return a table without gaps: a category has the level "(not recorded)", a number its mean and a flag beside it.

    The columns that may lack values are those that do in ``like``, the rows that models are fitted on, whose means are
    filled in, or those in their :func:`fills_of`; the flag is a category, 1 or 0, right of its column. Where
    these have no gaps, the table is returned as it is. A DataError for a missing value elsewhere, or for a column or a
    level that has such a name already.

    >>> table = pd.DataFrame({"D": [1.0, None, 3.0], "M": ["a", "b", None]})
    >>> as_recorded(table, table)
         D D recorded               M
    0  1.0          1               a
    1  2.0          0               b
    2  3.0          1  (not recorded)
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
            parts[name] = as_level(values)
        else:
            if flag_of(name) in table:
                raise DataError(f"{flag_of(name)!r} is the name of a flag beside {name!r}; rename this column.")
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
            gaps = np.isnan(numbers)
            parts[name] = pd.Series(np.where(gaps, fill, numbers), values.index)
            flags = pd.Categorical.from_codes(gaps.astype(np.int8), pd.Index([1, 0]))
            parts[flag_of(name)] = pd.Series(flags, values.index)
    return pd.DataFrame(parts, index=table.index)


def as_level(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of labels with missing values as a level of their own, which none of them may have."""
    if (values == NOT_RECORDED).any():
        raise DataError(f"The column {values.name!r} has missing values and the level {NOT_RECORDED!r}; rename it.")
    if not isinstance(values.dtype, pd.CategoricalDtype):
        return values.astype(object).where(values.notna(), NOT_RECORDED)
    if NOT_RECORDED not in values.cat.categories:
        values = values.cat.add_categories([NOT_RECORDED])
    return values.fillna(NOT_RECORDED)


def with_flags(graph: CausalGraph, table: pd.DataFrame) -> CausalGraph:
    """Return a graph whose nodes have the flags of a table of :func:`as_recorded` among their columns."""
    flags = {flag_of(name) for name in graph.node_of} & {*table.columns} - {*graph.node_of}
    if not flags:
        return graph
    columns = {
        node: [each for name in names for each in (name, flag_of(name)) if each in names or each in flags]
        for node, names in graph.columns.items()
    }
    return graph.remade(columns=columns)


# -- what is assumed ---------------------------------------------------------------------------------------------------


def missing_shares(
    df: pd.DataFrame, columns: Collection[str], graph: CausalGraph, weight: Any, known: Any = True
) -> pd.DataFrame:
    """Return the share of missing values of each column that has some: in all rows, and by group where ``known``."""
    own = [name for name in columns if df[name].isna().any()]
    gaps, groups = df[own].isna().to_numpy(dtype=np.float64), df[graph.sensitive_column]
    found: dict[str, Any] = {"column": own} | ({"all rows": np.average(gaps, axis=0, weights=weight)} if own else {})
    for level in observed_levels(groups[weight > 0.0]) if own else ():
        share = weight * (known & np.asarray(groups == level, dtype=bool))
        found[f"{groups.name}={graph.named(level)}"] = share @ gaps / share.sum()
    return pd.DataFrame(found)


def assumed_of_records(
    unfair: UnfairPaths, table: pd.DataFrame, target: Target = "prediction", needs: Needs = "prefixes", *,
    chosen: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """Return what numbers depend on because values are missing, a sentence each; ``chosen`` paths may be others."""
    graph = unfair.graph
    if not (nodes := _incomplete(graph, table)):
        return ()
    text = f"{', '.join(nodes)} may be missing, and 'not recorded' counts as a value, as classifiers read it"
    if caused := [node for node in nodes if node in graph.descendants(graph.sensitive)]:
        text += (
            f": the effect through {', '.join(caused)} includes that {graph.sensitive} changes what is recorded. It is "
            "not the effect that there would be with complete records"
        )
    return (f"{text}.", *truths_assumed(unfair, table, target, needs, chosen=chosen))


def truths_assumed(
    unfair: UnfairPaths, table: pd.DataFrame, target: Target = "prediction", needs: Needs = "prefixes", *,
    chosen: bool = True,
) -> list[str]:  # fmt: skip
    """Return of which nodes the true value is assumed to act on some effects by its record alone, a sentence each.

    The truth behind a record is a latent cause of all that reads it. Nothing is assumed where the effect has the same
    formula then, of the distributions that a method ``needs``. A known classifier reads records; an observed outcome
    may follow the truth.
    """
    graph = unfair.graph
    if not (nodes := _incomplete(graph, table)):
        return []

    def hold(edges: list[tuple[str, str]]) -> bool:
        try:
            hidden = _formula(with_hidden_truth(unfair, nodes, edges), target, needs)
            return needs != "errors" and hidden == _formula(unfair, target, needs)
        except NotIdentifiedError:
            return False

    edges = [(a, b) for a, b in graph.edges if a in nodes and (b != graph.outcome or target == "outcome")]
    free: list[tuple[str, str]] = edges if hold(edges) else []
    for edge in sorted(edges, key=lambda each: each[1] == graph.sensitive) if not free else ():  # as many as may be
        free += [edge] if hold([*free, edge]) else []
    found = []
    for node in nodes:
        effects = [child for parent, child in edges if parent == node and (node, child) not in free]
        cures = [f"complete the records of {node}"]
        if absent := [child for child in effects if not {*graph.parents(node)} <= {*graph.parents(child)}]:
            cures.append(f"draw the edges from the causes of {node} to {', '.join(absent)}")
        elif chosen and graph.sensitive not in effects:
            cures.append(f"call all or none of the paths through {node} unfair")
        if effects:
            found.append(_truth(node, effects, cures))
    return found


def _truth(node: str, effects: Iterable[str], cures: Iterable[str]) -> str:
    return (
        f"The true {node} acts on {', '.join(effects)} by its record alone, as where people or systems saw no "
        f"more than the record. If it does not, the numbers are not the effect: {', or '.join(cures)}."
    )


TRUTH = re.compile(re.escape(_truth("@", "@", "@")).replace("@", "(.+?)"))


def join_truths(texts: Iterable[str]) -> list[str]:
    """Return texts, each once, in which one tells all that :func:`truths_assumed` found of a node for many effects."""
    found: dict[str, Any] = {}
    for text in texts:
        if (match := TRUTH.fullmatch(text)) is None:
            found[text] = None
            continue
        node, effects, cures = match.groups()
        _, known, before = found.get(node) or (node, {}, {})
        found[node] = node, known | dict.fromkeys(effects.split(", ")), before | dict.fromkeys(cures.split(", or "))
    return [text if parts is None else _truth(*parts) for text, parts in found.items()]


def warn_of_truths(unfair: UnfairPaths, table: pd.DataFrame, needs: Needs = "prefixes") -> None:
    """Warn of what :func:`truths_assumed` returns, at the line that calls the caller."""
    for text in truths_assumed(unfair, table, needs=needs):
        warnings.warn(text, PyrofairWarning, stacklevel=3)


def _incomplete(graph: CausalGraph, table: pd.DataFrame) -> list[str]:
    """Return the nodes of which a column has missing values."""
    lacking = {name for name in table.columns if table[name].isna().any()}
    return [node for node, names in graph.columns.items() if lacking & {*names} and node != graph.outcome]


def _formula(unfair: UnfairPaths, target: Target, needs: Needs) -> list[Any]:
    """Return what the numbers are computed by in both worlds, to be compared."""
    found, given = derive(unfair, target), needs == "parents"
    return [
        (part.outcome_arm, {each.node: (each.arm, given and {*each.given}) for each in part.factors})
        for part in (found.baseline, found.switched)
    ]
