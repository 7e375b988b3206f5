"""Tables of few levels as codes of nodes, and a known classifier as a table of what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.row_functions import SAME, Scores
from pyrofair.effects.scoring import Decisions, checked_scores, decide, is_model, read_given
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.robustness.partial_identification.evaluations import ObservedGraph
from pyrofair.robustness.partial_identification.response_types import flat_index
from pyrofair.tables.labels import read_outcome, read_sensitive, show_labels
from pyrofair.tables.reading import read_table, read_weight
from pyrofair.tables.recorded import Missing

__all__ = ["CodedTable", "few_levels", "read_cells", "read_score"]

Codes = NDArray[np.int64]
Vector = NDArray[np.float64]

MOST_LEVELS = 20
"""The most different numbers that a column may hold."""
BIN = "Bin it: {column} = pd.qcut({column}, 4, labels=False, duplicates='drop')"
DECIDE = "Pass scores of a classifier as score=, or make a decision of the outcome: {column} = ({column} > limit)"
MOST_SCORED = 200_000
"""The most cells of what a classifier reads."""


@dataclass(frozen=True, eq=False)
class CodedTable:
    """The rows of a table as codes (n, k) of the nodes of an observed graph, with their weights (n,).

    ``first`` holds for each node the first row of each of its levels.
    """

    table: pd.DataFrame
    codes: Codes
    first: Mapping[str, Codes]
    weight: Vector

    @property
    def sizes(self) -> dict[str, int]:
        """The number of levels of each node."""
        return {node: len(rows) for node, rows in self.first.items()}


def read_cells(df: Any, sample_weight: Any, observed: ObservedGraph, missing: Missing) -> CodedTable:
    """Return a table as codes; a DataError if a column is unfit, or holds more than 20 different numbers.

    Missing values, if they are recorded ones, are a level of their own.
    """
    graph, nodes = observed.graph, observed.nodes
    read = (*nodes, *(node for node in graph.inputs if node not in nodes))
    table = read_table(df, graph.columns_of(read), missing=missing)
    weight = read_weight(sample_weight, table)
    codes, first = np.empty((len(table), len(nodes)), dtype=np.int64), {}
    for i, node in enumerate(nodes):
        columns = graph.columns_of([node])
        for column in columns if node != graph.outcome else ():
            _refuse_numbers(table[column], MOST_LEVELS, BIN)
        if node == graph.sensitive:
            own = read_sensitive(table, graph, weight=weight).astype(np.int64)
        elif node == graph.outcome:
            _refuse_numbers(table[columns[0]], 2, DECIDE)
            own = read_outcome(table[columns[0]], graph.positive)[0].astype(np.int64)
        else:
            parts = [pd.factorize(table[column], use_na_sentinel=False)[0] for column in columns]
            own = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)[1].ravel().astype(np.int64)
        codes[:, i] = own
        first[node] = np.unique(own, return_index=True)[1].astype(np.int64)
    return CodedTable(table, codes, first, weight)


def few_levels(df: Any, graph: CausalGraph, node: str, missing: Missing) -> bool:
    """Whether a table has the columns of a node, of few levels together, and can be read."""
    try:
        table = read_table(df, graph.columns_of([node]), missing=missing)
    except DataError:
        return False
    return len(table.drop_duplicates()) <= MOST_LEVELS


def _refuse_numbers(values: pd.Series[Any], most: int, instead: str) -> None:
    """Refuse a column of more different numbers than that."""
    if values.dtype.kind in "iuf" and (count := values.nunique()) > most:
        column = f"df[{values.name!r}]"
        told = f"The column {values.name!r} holds {count:,} different numbers, more than {most}"
        raise DataError(f"{told}. {instead.format(column=column)}.")


def read_score(
    score: Any, coded: CodedTable, observed: ObservedGraph, decisions: Decisions, threshold: float
) -> Vector:
    """Return the probability of a positive decision for each value of what a classifier reads, flat.

    The order is that of the graph's inputs, the last one fastest. NaN stands for cells of which no score is given. A
    DataError if the scores are no function of these inputs.
    """
    graph = observed.graph
    inputs, sizes = graph.inputs, coded.sizes
    shape = [sizes[node] for node in inputs]
    if prod(shape) > MOST_SCORED:
        raise DataError(
            f"The classifier reads {', '.join(inputs)} with {prod(shape):,} combinations of levels, more than "
            f"{MOST_SCORED:,}. Join levels."
        )
    own = flat_index([coded.codes[:, observed.nodes.index(node)] for node in inputs], shape)
    own = np.broadcast_to(own, (len(coded.table),))
    if is_model(score):
        scores = _of_model(score, coded, observed, shape, own)
    else:
        scores = _of_rows(score, coded.table, prod(shape), own, graph.columns_of(inputs))
    return np.where(np.isnan(scores), np.nan, decide(scores, decisions, threshold))


NO_FUNCTION = (
    "Scores that follow more than the graph's parents of the outcome, or chance, are an outcome: put the decisions in "
    "the outcome column and pass score=None, or complete the graph."
)


def _of_model(model: Any, coded: CodedTable, observed: ObservedGraph, shape: Sequence[int], own: Codes) -> Scores:
    """Return the scores of a model for all cells, which it is asked for with the observed ones."""
    graph, table = observed.graph, coded.table
    if not shape:
        raise DataError(f"{graph.outcome!r} has no observed parents: a classifier would read nothing. Add the edges.")
    parts = [
        table[graph.columns_of([node])].iloc[coded.first[node][index]].reset_index(drop=True)
        for node, index in zip(graph.inputs, np.unravel_index(np.arange(prod(shape)), shape), strict=True)
    ]
    order = [column for column in table.columns if column in graph.input_columns]
    cells = pd.concat(parts, axis=1)[order]

    first = np.unique(own, return_index=True)[1]
    return checked_scores("score", model, [cells, table[order].iloc[first]], graph, order)[0]


def _of_rows(given: Any, table: pd.DataFrame, cells: int, own: Codes, columns: Sequence[str]) -> Scores:
    """Return the scores of observed rows by cell; NaN where no row is in a cell."""
    scores = read_given("score", given, table)
    order = np.lexsort((scores, own))
    lowest, highest = np.full((2, cells), np.nan, dtype=scores.dtype)
    lowest[own[order[::-1]]] = scores[order[::-1]]
    highest[own[order]] = scores[order]
    spread = np.nan_to_num(highest - lowest)
    if (spread > SAME).any():
        worst = int(np.argmax(spread))
        rows = np.flatnonzero(own == worst)
        one, other = rows[np.argmin(scores[rows])], rows[np.argmax(scores[rows])]
        raise DataError(
            f"score is no function of {', '.join(columns)}: the rows {show_labels(table.index[[one, other]])} agree in "
            f"these and have {scores[one]:g} and {scores[other]:g}. {NO_FUNCTION}"
        )
    return np.where(np.isnan(lowest), np.nan, (lowest + highest) / 2.0)
