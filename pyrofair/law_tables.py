"""Which columns get a law, what does each read, and what numbers does a table give them?"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from pyrofair.exceptions import DataError, GraphError, did_you_mean
from pyrofair.families import Family, choose_family, encode
from pyrofair.graph import CausalGraph
from pyrofair.tables import read_outcome, read_sensitive, read_table

__all__ = ["choose_families", "code_columns", "code_labels", "plan_reads"]


def plan_reads(
    df: pd.DataFrame,
    graph: CausalGraph,
    nodes: Iterable[str] | None = None,
    given: Mapping[str, Iterable[str]] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Return for each column to learn the columns that its law reads, in topological order.

    A node of several columns is learned by the chain rule: each column reads those before it, too.

    Parameters
    ----------
    df
        The table.
    graph
        The causal graph.
    nodes
        The nodes to learn; by default the observed ones whose columns the table has.
    given
        For a node the nodes that its law reads; by default its observed parents.

    Raises
    ------
    GraphError
        If a node is unknown or latent, or a law would read a node that does not come before it.
    """
    present = {*df.columns} if isinstance(df, pd.DataFrame) else set()
    chosen = [n for n in graph.observed if {*graph.columns_of([n])} <= present] if nodes is None else [*nodes]
    above = {node: tuple(read) for node, read in (given or {}).items()}
    place = {node: i for i, node in enumerate(graph.order)}
    for node in (*chosen, *above, *(each for read in above.values() for each in read)):
        if node not in graph.observed:
            latent = " It is latent, and has no column." if node in graph.latent else did_you_mean(node, graph.observed)
            raise GraphError(f"{node!r} is no observed node of the graph. It has: {', '.join(graph.observed)}.{latent}")
    for node, read in above.items():
        for each in read:
            if place[each] >= place[node] or each == graph.outcome:
                raise GraphError(
                    f"The law of {node!r} cannot read {each!r}, which does not come before it in the order "
                    f"{', '.join(graph.order)}."
                )
    reads: dict[str, tuple[str, ...]] = {}
    for node in sorted(dict.fromkeys(chosen), key=place.__getitem__):
        parents = above.get(node, tuple(each for each in graph.parents(node) if each in graph.observed))
        columns = graph.columns_of([node])
        for i, column in enumerate(columns):
            reads[column] = (*graph.columns_of(parents), *columns[:i])
    if not reads:
        raise GraphError(f"There is no node to learn. The graph has: {', '.join(graph.observed)}.")
    return reads


def code_labels(
    table: pd.DataFrame, graph: CausalGraph, *, both: bool = True
) -> tuple[pd.DataFrame, tuple[Hashable, ...] | None]:
    """Return a table with the sensitive attribute and the outcome as 0 and 1, where it has them.

    Parameters
    ----------
    table
        The table.
    graph
        Names the two values of the sensitive attribute, and the positive one of the outcome.
    both
        Whether both groups must occur.

    Returns
    -------
    table : DataFrame
        The same columns.
    labels : tuple, or None
        Those of the outcome, negative first; None if they are 0 and 1, or there is no outcome.
    """
    coded, labels = table.copy(), None
    if graph.sensitive_column in table:
        coded[graph.sensitive_column] = read_sensitive(table, graph, both=both)
    if graph.outcome_column in table:
        numbers, found = read_outcome(table[graph.outcome_column], graph.positive, what="The outcome")
        coded[graph.outcome_column] = numbers
        plain = tuple(each.item() if isinstance(each, np.generic) else each for each in found)
        labels = None if plain == (0, 1) else plain
    return coded, labels


def choose_families(
    coded: pd.DataFrame, own: Mapping[str, Family], components: int, weight: npt.NDArray[np.float64]
) -> dict[str, Family]:
    """Return the family of each column: one's own, or one chosen by its type and values.

    Raises
    ------
    DataError
        If a name is no column, or a family of one's own does not fit its column.
    """
    if unknown := [name for name in own if name not in coded.columns]:
        raise DataError(
            f"families names {unknown[0]!r}, which is no column that is learned or read. There are: "
            f"{', '.join(coded.columns)}.{did_you_mean(unknown[0], coded.columns)}"
        )
    found: dict[str, Family] = {}
    for name in coded.columns:
        if name in own:
            _require_fitting(own[name], coded[name])
            found[name] = own[name]
        else:
            found[name] = choose_family(coded[name], components=components, weight=weight)
    return found


def _require_fitting(family: Family, values: pd.Series[Any]) -> None:
    """Refuse a family whose laws do not have the right shapes, or cannot take a value of the column."""
    name, kind = values.name, type(family).__name__
    try:
        size, offset = int(family.size), family.offset
        law = family.law(offset.expand(3, size))
        shapes = tuple(offset.shape), tuple(law.batch_shape), tuple(law.event_shape)
    except Exception as error:
        raise DataError(
            f"The family {kind} of {name!r} fails: {type(error).__name__}: {error}. A family has a whole number size, "
            "a tensor offset of shape (size,), and law(out), which makes distributions of numbers of shape (..., size)."
        ) from error
    if shapes != ((size,), (3,), ()):
        raise DataError(
            f"The family {kind} of {name!r} makes laws of batch shape {shapes[1]} and event shape {shapes[2]} from "
            f"numbers of shape (3, {size}), and has an offset of shape {shapes[0]}; expected (3,), () and ({size},)."
        )
    numbers = encode(family, values)
    with torch.no_grad():
        likely: Tensor = family.law(offset.expand(len(numbers), size)).log_prob(numbers)  # type: ignore[no-untyped-call]
    if not bool(likely.isfinite().all()):
        wrong = int((~likely.isfinite()).nonzero()[0])
        raise DataError(
            f"The family {kind} of {name!r} gives the value {values.iloc[wrong]!r} no probability, and "
            f"{int((~likely.isfinite()).sum())} row(s) hold such values. Choose another family, or leave it to the "
            "column's type."
        )


def code_columns(
    df: pd.DataFrame, graph: CausalGraph, families: Mapping[str, Family], columns: Sequence[str]
) -> dict[str, Tensor]:
    """Return columns of a table as the values of a program, the sensitive attribute as 0 and 1.

    Raises
    ------
    DataError
        If a column is absent, or holds a value that is missing, not seen before, or not what its family takes.
    """
    coded, _ = code_labels(read_table(df, columns, what="the table"), graph, both=False)
    return {name: encode(families[name], coded[name]) for name in columns}
