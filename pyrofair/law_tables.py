"""Which columns get a law, what does each read, and what numbers does a table give them?"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyro
import torch
from torch import Tensor

from pyrofair._validation import did_you_mean, require_names, shown
from pyrofair.exceptions import DataError, GraphError
from pyrofair.families import Family, choose_family, encode
from pyrofair.graph import CausalGraph
from pyrofair.paths import UnfairPaths
from pyrofair.tables import read_outcome, read_sensitive, read_table

__all__ = [
    "choose_families",
    "code_columns",
    "code_labels",
    "graph_of",
    "plan_reads",
    "require_families",
    "require_fitting",
    "require_graph",
]


def graph_of(graph_or_unfair: object) -> CausalGraph:
    """Return a graph, or that of unfair paths.

    Raises
    ------
    DataError
        If it is something else.
    """
    graph = graph_or_unfair.graph if isinstance(graph_or_unfair, UnfairPaths) else graph_or_unfair
    if not isinstance(graph, CausalGraph):
        raise DataError(
            f"graph_or_unfair={graph!r:.60} is a {type(graph).__name__}; pass a CausalGraph, or unfair paths in one: "
            "CausalGraph('A -> Y; ...', sensitive=..., outcome=...)."
        )
    return graph


def require_graph(unfair: object, graph: CausalGraph) -> None:
    """Refuse what are no unfair paths, and those in a graph that says anything else than the one of the laws.

    Raises
    ------
    DataError
        If they are no unfair paths.
    GraphError
        With what differs.
    """
    if not isinstance(unfair, UnfairPaths):
        raise DataError(f"unfair={unfair!r:.60} must be unfair paths, made by graph.unfair(...).")
    for name in (field.name for field in fields(CausalGraph)):
        own, other = getattr(graph, name), getattr(unfair.graph, name)
        if name in ("nodes", "edges", "latent", "column_map"):
            own, other = (sorted({*each} - {*less}) for each, less in ((own, other), (other, own)))
        if own != other:
            raise GraphError(
                f"The laws were learned along another graph than that of the unfair paths. They differ in {name}: "
                f"{own!r} there, {other!r} here. Use paths of laws.graph, or learn the laws again."
            )


def plan_reads(
    df: pd.DataFrame,
    graph: CausalGraph,
    nodes: str | Iterable[str] | None = None,
    given: Mapping[str, str | Iterable[str]] | None = None,
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
    DataError
        If a law would read a column that the table lacks.
    """
    chosen = [*(graph.observed if nodes is None else [nodes] if isinstance(nodes, str) else nodes)]
    if nodes is None and isinstance(df, pd.DataFrame):
        chosen = [node for node in chosen if {*graph.columns_of([node])} <= {*df.columns}]
    if not isinstance(given, Mapping | None):
        raise DataError(f"given={given!r:.60} must be a dictionary: for a node the nodes that its law reads.")
    above = {
        node: require_names(f"given[{node!r}]", read, "node names", one=True) for node, read in (given or {}).items()
    }
    place = {node: i for i, node in enumerate(graph.order)}
    asked = [("nodes", node) for node in chosen]
    asked += [("given", node) for lawful, read in above.items() for node in (lawful, *read)]
    for setting, node in asked:
        if node not in graph.observed:
            latent = " It is latent, and has no column." if node in graph.latent else did_you_mean(node, graph.observed)
            raise GraphError(
                f"{node!r} is no observed node of the graph. It has: {', '.join(graph.observed)}.{latent} "
                f"It is named in {setting}=."
            )
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
            _require_read(df, column, reads[column])
    if not reads:
        raise GraphError(f"There is no node to learn. The graph has: {', '.join(graph.observed)}.")
    return reads


def _require_read(df: object, column: str, read: Iterable[str]) -> None:
    if not isinstance(df, pd.DataFrame) or column not in df.columns:
        return  # which is told where the table is read
    if absent := [name for name in read if name not in df.columns]:
        raise DataError(
            f"The law of {column!r} reads {absent[0]!r}, and the data lacks the column {absent[0]!r}. It has: "
            f"{', '.join(map(str, df.columns))}.{did_you_mean(absent[0], df.columns)} Learn other nodes (nodes=...), "
            "say what the law reads instead (given={node: [...]}), or declare the node latent: graph.with_latent(...)."
        )


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
    require_families(own, [*coded.columns])
    found: dict[str, Family] = {}
    for name in coded.columns:
        if name in own:
            require_fitting(own[name], coded[name])
            found[name] = own[name]
        else:
            found[name] = choose_family(coded[name], components=components, weight=weight)
    return found


def require_families(own: object, columns: Sequence[str]) -> None:
    """Refuse what is no dictionary of families by column.

    Raises
    ------
    DataError
        If it is something else, or names no column.
    """
    if not isinstance(own, Mapping):
        raise DataError(
            f"families={shown(own)} must be a dictionary from columns to families, such as "
            f"{{{columns[0]!r}: families.choose_family(df[{columns[0]!r}])}}."
        )
    for name in own:
        if name not in columns:
            raise DataError(
                f"families names {name!r}; a law can be chosen for {', '.join(columns)}.{did_you_mean(name, columns)}"
            )


def require_fitting(family: Family, values: pd.Series[Any]) -> None:
    """Refuse a family whose laws do not have the right shapes, or cannot take a value of the column.

    Raises
    ------
    DataError
        With what it lacks, or the value.
    """
    name, kind = values.name, type(family).__name__
    if isinstance(family, type):
        raise DataError(
            f"families[{name!r}] is the class {family.__name__}; a family is an instance, with the numbers of its "
            f"column, such as Binary(p=0.5). Start from what would be chosen: families.choose_family(df[{name!r}])."
        )
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
    with torch.no_grad(), pyro.validation_enabled(False):
        marginal: Any = family.law(offset.expand(len(numbers), size))
        wrong = ~(marginal.support.check(numbers) & marginal.log_prob(numbers).isfinite())
    if bool(wrong.any()):
        raise DataError(
            f"The family {kind} of {name!r} gives the value {numbers[wrong][0].item():g} no probability, and "
            f"{int(wrong.sum())} row(s) hold such values. Choose another family, or leave it to the column's type."
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
