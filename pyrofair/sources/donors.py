"""Conditional distributions of nodes whose draws are rows of the fitted table: leaves of forests, or exact cells.

A drawn world holds no values. It holds, for each node, the position of a row that shows the node's value, so that
values keep the labels and types of the table, and a node is encoded once however often it is drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from pyrofair.exceptions import DataError, PositivityError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.nuisances.columns import number_cells
from pyrofair.nuisances.learners import Saturated
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import as_levels

__all__ = ["Block", "CellMechanisms", "Drawn", "LeafMechanisms", "Mechanisms", "Pool", "Regression"]

TREES, LEAF = 50, 15
"""The trees of a mechanism's forest, and the fewest rows of a leaf."""
MOST_SPLIT_ROWS = 20_000
"""The most rows that the splits of one tree of a mechanism are learned from."""
MOST_DONORS = 100_000
"""The most rows that are drawn from."""
MOST_OUTPUTS = 24
"""More columns than this are projected at random before the splits of a forest are learned."""
REGRESSION_TREES, REGRESSION_LEAF, REGRESSION_ROWS = 30, 5, 6_000
"""The trees of a regression, and the rows of a leaf and of all leaves while splits are learned."""
WIDE = 12
"""Splits among more columns than this are chosen among a third of them."""
MOST_ROWS = 20_000_000
"""The most rows of a world of cells."""

Nodes = tuple[str, ...]
Positions = dict[str, NDArray[np.int64]]
Regression = Callable[["Pool", Positions], NDArray[np.float64]]
"""Returns the regression of several targets at m drawn rows, (m, k)."""


@dataclass(frozen=True)
class Block:
    """Nodes of one joint distribution given others, with A at an arm (None: A does not enter).

    It is of one ``world``, 0 or 1; one that is ``shared`` is the same in both.
    """

    nodes: Nodes
    given: Nodes
    arm: int | None
    shared: bool
    world: int = 0

    @property
    def reads(self) -> Nodes:
        """The nodes given, then its own."""
        return (*self.given, *self.nodes)


@dataclass
class Pool:
    """Rows that show values: those of the fitted table, then those of another one, perhaps none.

    ``given`` are both as classifiers read them, where these are not the tables themselves.
    """

    graph: CausalGraph
    fitted: pd.DataFrame
    other: pd.DataFrame | None = None
    given: tuple[pd.DataFrame, ...] = ()
    encoders: dict[str, TableEncoder] = field(default_factory=dict)
    levels: dict[str, dict[str, pd.Index[Any]]] = field(default_factory=dict)
    encoded: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    codes: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def beside(self, other: pd.DataFrame, given: pd.DataFrame) -> Pool:
        """Return the pool of the fitted rows and those of another table."""
        return replace(self, other=other, given=(*self.given[:1], given), encoded={}, codes={})

    @property
    def first_other(self) -> int:
        """The position of the first row of the other table."""
        return len(self.fitted)

    def matrix(self, nodes: Nodes, at: Positions) -> NDArray[np.float32]:
        """Return the nodes of m drawn rows as a matrix, (m, k), by name, in whatever order they come."""
        return np.ascontiguousarray(np.hstack([self._encode(node)[at[node]] for node in sorted(nodes)]))

    def cells(self, nodes: Nodes, at: Positions, m: int) -> NDArray[np.int64]:
        """Return one number for each combination of values of the nodes, shape (m,)."""
        found, count = np.zeros(m, dtype=np.int64), 1
        for node in nodes:
            levels = self._levels(node)
            if node not in self.codes:
                self.codes[node] = np.concatenate([number_cells(each, levels) for each in self._tables(node)])
            size = prod(map(len, levels.values()))
            found, count = found * size + self.codes[node][at[node]], count * size
        if count > 2**62:
            raise DataError(f"The nodes {', '.join(nodes)} have too many values for regression='saturated'.")
        return found

    def columns(self, nodes: Sequence[str], at: Positions) -> dict[str, Any]:
        """Return the columns of nodes of m drawn rows; all rows of a node are of the same table."""
        found = {}
        for node in nodes:
            table, first = (self.given or (self.fitted,))[0], 0
            if self.other is not None and len(at[node]) and at[node][0] >= self.first_other:
                table, first = self.given[1], self.first_other
            for column in self.graph.columns_of([node]):
                if column in table:  # others are flags
                    found[column] = table[column].array.take(at[node] - first)
        return found

    def _tables(self, node: str) -> list[pd.DataFrame]:
        columns = self.graph.columns_of([node])
        return [table[columns] for table in (self.fitted, self.other) if table is not None]

    def _encode(self, node: str) -> NDArray[np.float32]:
        if node not in self.encoded:
            tables = self._tables(node)
            if node not in self.encoders:
                self.encoders[node] = TableEncoder().fit(tables[0])
            self.encoded[node] = np.vstack([self.encoders[node].transform(each) for each in tables]).astype(np.float32)
        return self.encoded[node]

    def _levels(self, node: str) -> dict[str, pd.Index[Any]]:
        """Return the levels of a node's columns among the fitted rows."""
        if node not in self.levels:
            self.levels[node] = {column: as_levels(self.fitted[column]) for column in self.graph.columns_of([node])}
        return self.levels[node]


@dataclass(frozen=True)
class Drawn:
    """m rows of a world: for each node the positions of the rows that show it, the unit of each row, and its weight.

    The weights of a unit sum to 1. ``member`` is the unit of each row that was asked for, shape (n,).
    """

    at: Positions
    unit: NDArray[np.int64]
    weight: NDArray[np.float64]
    member: NDArray[np.int64]

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the means of values (m, k) over the rows of each unit, for the rows asked for, (n, k)."""
        units = int(self.unit[-1]) + 1 if len(self.unit) else 0
        if units and len(self.unit) % units == 0 and (self.weight == self.weight[0]).all():
            return np.asarray(values.reshape(units, -1, values.shape[1]).mean(axis=1)[self.member])
        first = np.searchsorted(self.unit, np.arange(units))
        return np.asarray(np.add.reduceat(self.weight[:, None] * values, first, axis=0)[self.member])


@dataclass
class Mechanisms(ABC):
    """The conditional distributions of blocks, learned from training rows, of all rows with their A and weights."""

    train: NDArray[np.int64]
    a: NDArray[np.int8]
    weight: NDArray[np.float64]
    seed: int

    def of_arm(self, arm: int | None) -> NDArray[np.int64]:
        """Return the training rows of a group, or all."""
        return self.train if arm is None else self.train[self.a[self.train] == arm]

    @abstractmethod
    def start(self, pool: Pool, nodes: Nodes, rows: NDArray[np.int64], draws: int) -> Drawn:
        """Return a world of these rows of the pool and nodes alone, each row so often where draws are random."""

    @abstractmethod
    def expand(self, pool: Pool, world: Drawn, block: Block, random: np.random.Generator) -> Drawn:
        """Return a world with the nodes of a block drawn given those that it reads."""

    @abstractmethod
    def regress(
        self, pool: Pool, nodes: Nodes, at: Positions, targets: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> Regression:
        """Return the regression of targets (m, k) on nodes of m weighted rows."""


# -- leaves of forests -------------------------------------------------------------------------------------------------


@dataclass
class LeafMechanisms(Mechanisms):
    """A draw is a random training row of the leaf that a query falls into, in a tree of a forest."""

    forests: dict[tuple[Nodes, int | None], _Donors] = field(default_factory=dict)

    def start(self, pool: Pool, nodes: Nodes, rows: NDArray[np.int64], draws: int) -> Drawn:
        """Return each row so often."""
        each = np.arange(len(rows))
        at, unit = np.repeat(rows, draws), np.repeat(each, draws)
        return Drawn(dict.fromkeys(nodes, at), unit, np.full(len(at), 1.0 / draws), each)

    def expand(self, pool: Pool, world: Drawn, block: Block, random: np.random.Generator) -> Drawn:
        """Draw a donor for each row."""
        m = len(world.unit)
        donor = self._donors(pool, block).draw(pool.matrix(block.given, world.at) if block.given else None, m, random)
        return replace(world, at={**world.at, **dict.fromkeys(block.nodes, donor)})

    def regress(
        self, pool: Pool, nodes: Nodes, at: Positions, targets: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> Regression:
        """Average targets over the leaves of a forest."""
        forest = _LeafMeans(pool.matrix(nodes, at), targets, weight, self.seed)
        return lambda where, rows: forest.predict(where.matrix(nodes, rows))

    def _donors(self, pool: Pool, block: Block) -> _Donors:
        key = (block.nodes, block.arm)
        if key not in self.forests:
            if not len(rows := self.of_arm(block.arm)):
                raise PositivityError(
                    f"No training row has {pool.graph.sensitive_column}={pool.graph.label(block.arm or 0)!r} and a "
                    f"weight, so the distribution of {', '.join(block.nodes)} in that group is unknown."
                )
            if len(rows) > MOST_DONORS:
                rows = np.sort(np.random.default_rng(self.seed).permutation(rows)[:MOST_DONORS])
            at = dict.fromkeys(block.reads, rows)
            given = pool.matrix(block.given, at) if block.given else None
            self.forests[key] = _Donors(given, pool.matrix(block.nodes, at), rows, self.weight[rows], self.seed)
        return self.forests[key]


class _Donors:
    """Training rows by the leaves of trees that were grown on what is given, to tell drawn values apart."""

    def __init__(
        self,
        given: NDArray[np.float32] | None,
        drawn: NDArray[np.float32],
        rows: NDArray[np.int64],
        weight: NDArray[np.float64],
        seed: int,
    ) -> None:
        self.rows, self.trees = rows, []
        if given is None:
            self.total = np.cumsum(weight)
            return
        most = min(len(rows), MOST_SPLIT_ROWS)
        forest = RandomForestRegressor(TREES, min_samples_leaf=LEAF, max_samples=most, random_state=seed)
        for each in _grow(forest, given, _spread(drawn, seed), weight):
            leaf = each.tree_.apply(given)
            order = np.argsort(leaf, kind="stable")
            total = np.cumsum(weight[order])
            last = np.searchsorted(leaf[order], np.arange(each.tree_.node_count), side="right")
            upto = np.concatenate([[0.0], total])[last]
            own = np.bincount(leaf, weight, minlength=each.tree_.node_count)
            self.trees.append((each.tree_, order, total, upto - own, own))

    def draw(self, given: NDArray[np.float32] | None, m: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Return the positions of m donors, rows in turn by the trees in turn."""
        if given is None:
            at = np.searchsorted(self.total, random.random(m) * self.total[-1], side="right")
            return np.asarray(self.rows[at.clip(max=len(self.rows) - 1)])
        found = np.empty(m, dtype=np.int64)
        shift, step = int(random.integers(len(self.trees))), len(self.trees)
        for i in range(min(step, m)):
            tree, order, total, before, own = self.trees[(i + shift) % step]
            leaf = tree.apply(np.ascontiguousarray(given[i::step]))
            at = np.searchsorted(total, before[leaf] + random.random(len(leaf)) * own[leaf], side="right")
            found[i::step] = order[at.clip(max=len(order) - 1)]
        return np.asarray(self.rows[found])


def _grow(forest: Any, X: NDArray[np.float32], y: NDArray[np.float64], weight: NDArray[np.float64]) -> list[Any]:
    """Return the trees of a forest of m weighted rows."""
    forest.set_params(max_features=1.0 if X.shape[1] <= WIDE else 1 / 3)
    forest.fit(X, y, sample_weight=None if (weight == weight[0]).all() else weight)
    return list(forest.estimators_)


def _spread(drawn: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Return what the leaves of a mechanism should tell apart: values and, for numbers, their squares too."""
    values = np.asarray(drawn, dtype=np.float64)
    numbers = ~np.isin(values, (0.0, 1.0)).all(axis=0)
    squares = np.clip(values[:, numbers], -4.0, 4.0) ** 2
    values = np.hstack([values, squares])
    if values.shape[1] > MOST_OUTPUTS:
        values = values @ np.random.default_rng(seed).normal(size=(values.shape[1], MOST_OUTPUTS))
    return values


class _LeafMeans:
    """Means of many targets over the leaves of randomised trees, whose splits are learned from some of the rows."""

    def __init__(
        self, X: NDArray[np.float32], targets: NDArray[np.float64], weight: NDArray[np.float64], seed: int
    ) -> None:
        random = np.random.default_rng(seed)
        some = random.permutation(len(X))[:REGRESSION_ROWS] if len(X) > REGRESSION_ROWS else slice(None)
        forest = ExtraTreesRegressor(REGRESSION_TREES, min_samples_leaf=REGRESSION_LEAF, random_state=seed)
        many = targets.shape[1] > MOST_OUTPUTS
        spread = targets @ random.normal(size=(targets.shape[1], MOST_OUTPUTS)) if many else targets
        self.parts = []
        for each in _grow(forest, X[some], spread[some], weight[some]):
            leaf = each.tree_.apply(X)
            count = each.tree_.node_count
            total = np.bincount(leaf, weight, minlength=count)
            sums = np.column_stack([np.bincount(leaf, weight * t, minlength=count) for t in targets.T])
            with np.errstate(invalid="ignore"):
                self.parts.append((each.tree_, np.nan_to_num(sums / total[:, None]).astype(np.float32)))

    def predict(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the means of the leaves of m rows, averaged over trees, (m, k)."""
        found = np.zeros((len(X), self.parts[0][1].shape[1]))
        for tree, value in self.parts:
            found += np.take(value, tree.apply(X), axis=0)
        return found / len(self.parts)


# -- exact cells -------------------------------------------------------------------------------------------------------


@dataclass
class CellMechanisms(Mechanisms):
    """Each combination of values that occurs, with its share among the training rows of the arm."""

    def start(self, pool: Pool, nodes: Nodes, rows: NDArray[np.int64], draws: int) -> Drawn:
        """Return one row for each combination of values."""
        at = dict.fromkeys(nodes, rows)
        cell = pool.cells(nodes, at, len(rows))
        _, first, member = np.unique(cell, return_index=True, return_inverse=True)
        return Drawn(dict.fromkeys(nodes, rows[first]), np.arange(len(first)), np.ones(len(first)), member.ravel())

    def expand(self, pool: Pool, world: Drawn, block: Block, random: np.random.Generator) -> Drawn:
        """Take every value that occurs given what is given, with its share."""
        rows = self.of_arm(block.arm)
        at = dict.fromkeys(block.reads, rows)
        given, own = (pool.cells(nodes, at, len(rows)) for nodes in (block.given, block.nodes))
        order = np.lexsort((own, given))
        fresh = np.ones(len(order), dtype=bool)
        fresh[1:] = (np.diff(given[order]) != 0) | (np.diff(own[order]) != 0)
        mass = np.add.reduceat(self.weight[rows][order], np.flatnonzero(fresh))
        shown, key = rows[order][fresh], given[order][fresh]
        cells, first, count = np.unique(key, return_index=True, return_counts=True)
        share = mass / np.repeat(np.add.reduceat(mass, first), count)
        asked = pool.cells(block.given, world.at, len(world.unit))
        where = np.searchsorted(cells, asked).clip(max=len(cells) - 1)
        if (lost := cells[where] != asked).any():
            raise PositivityError(_absent(pool, block, world, int(np.argmax(lost))))
        times = count[where]
        if times.sum() > MOST_ROWS:
            raise DataError(
                f"regression='saturated' takes {int(times.sum()):,} combinations of values, more than {MOST_ROWS:,}. "
                "Coarsen columns, or use regression='boosted'."
            )
        index = np.repeat(np.arange(len(asked)), times)
        inside = np.arange(len(index)) - np.repeat(np.cumsum(times) - times, times)
        pick = first[where][index] + inside
        kept = {node: rows_of[index] for node, rows_of in world.at.items()} | dict.fromkeys(block.nodes, shown[pick])
        return Drawn(kept, world.unit[index], world.weight[index] * share[pick], world.member)

    def regress(
        self, pool: Pool, nodes: Nodes, at: Positions, targets: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> Regression:
        """Average targets over cells; a cell outside of the world has the value 0."""
        fit = Saturated({}, "regression").fit(pool.cells(nodes, at, len(weight)), targets, weight)
        return lambda where, rows: np.nan_to_num(fit.own(where.cells(nodes, rows, len(rows[nodes[0]]))))


def _absent(pool: Pool, block: Block, world: Drawn, row: int) -> str:
    """Say which combination of values a group never has."""
    at = world.at
    values = pool.columns(block.given, {node: at[node][row : row + 1] for node in block.given})
    cell = ", ".join(f"{name}={value[0]!r}" for name, value in values.items())
    group = "" if block.arm is None else f" with {pool.graph.sensitive_column}={pool.graph.label(block.arm)!r}"
    return (
        f"A world holds {cell}, which no row{group} of the training rows shows, so that the distribution of "
        f"{', '.join(block.nodes)} there is unknown. Coarsen these columns, or use regression='boosted'."
    )
