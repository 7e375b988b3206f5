"""The g-formula: rows of both worlds drawn from learned mechanisms.

A Pyro program evaluates a path-specific world for one noise per unit (:mod:`pyrofair.programs.worlds`). Here a world is
a product of identified factors instead: a distribution may read nodes that are no parents (where latent causes join
them), rows keep the labels and types of the table, draws are stratified within units, and few values are summed over
exactly. So nodes are drawn by quantiles from tables, in the order and with the arms of the estimand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_integer_dtype
from torch import Tensor

from pyrofair.mechanisms.families import decode, features, support
from pyrofair.nuisances.rows import Rows
from pyrofair.programs.couplings import quantile
from pyrofair.sources.mechanism_graph import MechanismGraph
from pyrofair.tables.labels import as_column, repeat_label, span_of

if TYPE_CHECKING:
    from pyrofair.mechanisms.learn import LearnedMechanisms

__all__ = ["GFormula", "World", "collect_units", "sample_units"]

MOST_ENTRIES = 50_000_000
"""So many numbers of distributions are held at once: 200 MB in single precision."""
MOST_CELLS = 0.7
"""Rows of which more than this share differ are taken for all different."""
LEAST = 1e-9
"""Values that are less probable than this are left out of exact sums, and the others' probabilities divided by their
sum."""


@dataclass(frozen=True)
class World:
    """Rows with weights (m,), and the unit of each (m,)."""

    rows: pd.DataFrame
    weight: NDArray[np.float64]
    unit: NDArray[np.int64]

    @classmethod
    def of_units(cls, rows: pd.DataFrame, weight: NDArray[np.float64]) -> World:
        """Return k units by their shared columns, one row each; their weights sum to 1."""
        return cls(rows.reset_index(drop=True), weight, np.arange(len(weight)))


def collect_units(table: pd.DataFrame, weight: NDArray[np.float64]) -> World:
    """Gather the rows of the shared columns (perhaps none), weighted by (n,), with the same values into one unit.

    Rows without weight have theirs too, so that other weights give the same units in the same order.
    """
    first, cell = _cells(table)
    total = np.asarray(np.bincount(cell, weight), dtype=np.float64)
    return World.of_units(table.iloc[first], total / total.sum())


def sample_units(units: World, n: int, seed: int) -> World:
    """Sample n units in proportion to their weights, at even steps from a random start; repeats add their weights."""
    start = np.random.default_rng(seed).random()
    chosen = np.searchsorted(np.cumsum(units.weight), (np.arange(n) + start) / n).clip(max=len(units.weight) - 1)
    drawn, counts = np.unique(chosen, return_counts=True)
    return World.of_units(units.rows.iloc[drawn], counts / float(n))


@dataclass(frozen=True)
class GFormula:
    """Both worlds of units, drawn from learned mechanisms (None if nothing is drawn) in the types of a table."""

    mechanisms: LearnedMechanisms | None
    graph: MechanismGraph
    like: pd.DataFrame

    def worlds(self, units: World, *, draws: int, exact: int, seed: int) -> tuple[World, World]:
        """Draw both worlds of k units independently, each so often; or sum over at most so many exact values."""
        drawn = self.graph.drawn
        few = self._combinations(drawn) <= exact
        worlds = []
        for which, random in enumerate(np.random.default_rng(seed).spawn(2)):
            if few:
                worlds.append(self._all_values(drawn, which, units))
            else:
                unit = np.repeat(units.unit, draws)
                rows = self._draw(drawn, which, units.rows, random, draws)
                worlds.append(World(rows, units.weight[unit] / draws, unit))
        return self._as_the_outcome_reads(*worlds)

    def caused(self, roots: World, most: int, seed: int) -> World:
        """Return about so many units: the roots with the shared nodes that A causes drawn too, at its baseline."""
        times = max(1, most // len(roots.weight))
        rows = self._draw(self.graph.caused, 0, roots.rows, np.random.default_rng([seed, 1]), times)
        return World.of_units(rows, np.repeat(roots.weight / times, times))

    def outside_support(self, units: World, rows: Rows, *, draws: int, seed: int) -> pd.DataFrame:
        """Return per world and drawn column the share where its distribution reads values absent from its group."""
        found = []
        worlds = self.worlds(units, draws=draws, exact=0, seed=seed)
        for world, arms, regime in zip(worlds, self.graph.arms, ("baseline", "switched"), strict=True):
            for node in self.graph.drawn:
                arm = arms.get(node)
                group = rows.given[(rows.weight > 0) & ((rows.a == arm) if arm is not None else True)]
                for column in self.graph.graph.columns_of([node]):
                    reads = [each for each in self._reads(column) if each != self.graph.graph.sensitive_column]
                    share = float(world.weight @ self._outside(world.rows[reads], group[reads])) if reads else 0.0
                    found.append((regime, column, arm, ", ".join(reads), share))
        return pd.DataFrame(found, columns=["regime", "column", "arm", "reads", "outside"])

    # -- nodes ---------------------------------------------------------------------------------------------------------

    @property
    def _learned(self) -> LearnedMechanisms:
        """The mechanisms, where something is drawn."""
        assert self.mechanisms is not None, "nothing is drawn"
        return self.mechanisms

    def _reads(self, column: str) -> list[str]:
        """Return the columns that a column's distribution reads."""
        return [*self._learned.fits[column].mechanism.reads]

    def _combinations(self, nodes: Sequence[str]) -> float:
        """Return how many values nodes can have together; infinity if a distribution has no finite support."""
        values = [support(self._learned.families[column]) for column in self.graph.graph.columns_of(nodes)]
        return prod(inf if each is None else len(each) for each in values)

    def _draw(
        self, nodes: Sequence[str], which: int, units: pd.DataFrame, random: np.random.Generator, strata: int
    ) -> pd.DataFrame:
        """Return rows with nodes drawn in one world, each after those that it reads: so many for each unit.

        In a unit, each column's uniform numbers fall into as many equal parts of [0, 1], one in each, so that the mean
        over a unit varies less, and is as unbiased as with free draws.
        """
        rows = _Drawn(self._learned, units, strata) if nodes else None
        typed: dict[str, pd.Series[Any]] = {}
        for node in nodes:
            for column in self.graph.graph.columns_of([node]):
                order = random.random((len(units), strata)).argsort(axis=1).ravel()
                u = (order + random.random(len(order))) / strata
                assert rows is not None
                drawn = rows.draw(column, self.graph.arms[which].get(node), u)
                typed[column] = self._typed(column, decode(self._learned.families[column], drawn))
                rows.add(column, drawn, typed[column])
        return units.iloc[np.repeat(np.arange(len(units)), strata)].reset_index(drop=True).assign(**typed)

    def _all_values(self, nodes: Sequence[str], which: int, world: World) -> World:
        """Return a row for each value of nodes of finite support with its probability, but for those below `LEAST`."""
        for node in nodes:
            for column in self.graph.graph.columns_of([node]):
                family = self._learned.families[column]
                values = support(family)
                assert values is not None, f"{column} has few values"
                read = self._as_read(world.rows, node, which)
                first, cell = _cells(read[self._reads(column)])
                mechanism = self._learned.distribution(column, read.iloc[first])
                p = mechanism.log_prob(values[:, None]).double().exp().numpy().T[cell]
                row, level = np.nonzero(p >= LEAST)
                share = p[row, level] / np.where(p >= LEAST, p, 0.0).sum(axis=1)[row]
                rows = world.rows.iloc[row].reset_index(drop=True)
                rows = rows.assign(**{column: self._typed(column, decode(family, values)[level])})
                world = World(rows, world.weight[row] * share, world.unit[row])
        return world

    def _as_read(self, rows: pd.DataFrame, node: str, which: int) -> pd.DataFrame:
        """Return rows with the sensitive attribute as a node reads it in a world."""
        arm = self.graph.arms[which].get(node)
        if arm is None:
            return rows
        label: Any = self.graph.graph.label(arm)
        return rows.assign(**{self.graph.graph.sensitive_column: label})

    def _as_the_outcome_reads(self, *worlds: World) -> tuple[World, World]:
        """Return both worlds with the sensitive attribute that the outcome reads there."""
        name = self.graph.graph.sensitive_column
        labels = [self.graph.graph.label(arm) for arm in self.graph.outcome_arms]
        one, other = (
            replace(world, rows=world.rows.assign(**{name: repeat_label(self.like[name], label, world.rows.index)}))
            for world, label in zip(worlds, labels, strict=True)
        )
        return one, other

    def _typed(self, column: str, values: NDArray[Any]) -> pd.Series[Any]:
        """Return drawn values in the type of their column, missing ones (NaN) as it has them.

        Fractions that stand for integers are rounded.
        """
        like, gaps = self.like[column], pd.isna(values)
        if gaps.any():
            both = pd.concat([self._typed(column, values[~gaps]), like[like.isna()].iloc[:1]])
            at = np.where(gaps, len(both) - 1, np.cumsum(~gaps) - 1)
            found: pd.Series[Any] = both.iloc[at].reset_index(drop=True)
            return found
        if values.dtype.kind == "f" and is_integer_dtype(like.dtype):
            values = np.rint(values).clip(*span_of(like.dtype))
        return as_column(column, values, like.dtype)

    def _outside(self, asked: pd.DataFrame, observed: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which rows hold a combination of categories, or a number, beyond those observed, shape (m,)."""
        coded = [name for name in map(str, asked) if not hasattr(self._learned.families[name], "mean")]
        outside = np.zeros(len(asked), dtype=bool)
        if coded:
            outside |= ~pd.MultiIndex.from_frame(asked[coded]).isin(pd.MultiIndex.from_frame(observed[coded]))
        for name in [name for name in map(str, asked) if name not in coded]:
            inside = asked[name].between(observed[name].min(), observed[name].max()).to_numpy(bool, na_value=False)
            outside |= ~(inside | (asked[name].isna().to_numpy() & observed[name].isna().any()))
        return outside


class _Drawn:
    """Rows that are being drawn, so many for each unit, as a program's values.

    A distribution is evaluated once for all rows that are alike in what it reads.
    """

    def __init__(self, learned: LearnedMechanisms, units: pd.DataFrame, strata: int) -> None:
        self.learned, self.units = learned, units
        self.unit = np.repeat(np.arange(len(units)), strata)
        self.drawn: dict[str, Tensor] = {}
        self.alike: dict[tuple[str, ...], NDArray[np.int64] | None] = {}

    def draw(self, column: str, arm: int | None, u: NDArray[np.float64]) -> Tensor:
        """Return the values of a column at probabilities u, shape (n,), its distribution with A at an arm."""
        fit, sensitive = self.learned.fits[column], self.learned.graph.sensitive_column
        reads, family = [name for name in fit.mechanism.reads if name != sensitive], fit.mechanism.family
        shared = [name for name in reads if name not in self.drawn]
        cell = self._cells(tuple(shared), tuple(name for name in reads if name in self.drawn))
        first = np.arange(len(u)) if cell is None else _first_of(cell)
        at = torch.as_tensor(u.clip(1e-7, 1.0 - 1e-7), dtype=torch.float32)
        known = self.learned.encoded(self.units, shared)
        numbers = fit.mechanism.numbers_at(fit.centre)
        width = sum(features(each, torch.zeros(1)).shape[-1] for each in fit.mechanism.reads.values())
        with torch.no_grad():
            outs = []
            for rows in _parts(len(first), width + family.size):
                values = {name: each[self.unit[first[rows]]] for name, each in known.items()}
                values |= {name: self.drawn[name][first[rows]] for name in reads if name in self.drawn}
                if sensitive in fit.mechanism.reads:
                    values[sensitive] = torch.full((len(first[rows]),), float(arm == 1))
                outs.append(numbers(values).expand(len(first[rows]), -1))
            out = torch.cat(outs)
            return torch.cat(
                [
                    quantile(column, family.distribution(out[rows] if cell is None else out[cell[rows]]), at[rows])
                    for rows in _parts(len(u), family.size)
                ]
            )

    def add(self, column: str, drawn: Tensor, typed: pd.Series[Any]) -> None:
        """Take a drawn column among those that others read: numbers as they are in its type, which may be rounded."""
        if support(self.learned.families[column]) is None:
            drawn = self.learned.encoded(typed.to_frame(column), [column])[column]
        self.drawn[column] = drawn.to(torch.float32)

    def _cells(self, shared: tuple[str, ...], drawn: tuple[str, ...]) -> NDArray[np.int64] | None:
        """Return which rows are alike in some columns of units and some drawn ones, (n,); None if hardly any are."""
        if (key := (*shared, *drawn)) not in self.alike:
            if not drawn:
                self.alike[key] = _cells(self.units[[*shared]])[1][self.unit]
            else:
                before, values = self._cells(shared, drawn[:-1]), support(self.learned.families[drawn[-1]])
                cell = None
                if before is not None and values is not None:
                    codes = self.drawn[drawn[-1]].numpy().astype(np.int64) - int(values[0])
                    cell = pd.factorize(before * len(values) + codes)[0].astype(np.int64)
                    cell = None if cell.max() + 1 > MOST_CELLS * len(cell) else cell
                self.alike[key] = cell
        return self.alike[key]


def _cells(table: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a position of each different row of a table, and which of them each row is, (n,)."""
    if not len(table.columns):
        return np.zeros(1, dtype=np.int64), np.zeros(len(table), dtype=np.int64)
    groups = table.groupby(list(table.columns), sort=False, observed=True, dropna=False)
    cell: NDArray[Any] = groups.ngroup().to_numpy(np.int64)
    return _first_of(cell), cell


def _first_of(cell: NDArray[Any]) -> NDArray[np.int64]:
    """Return a position of each of the cells 0 to k - 1, shape (k,)."""
    first = np.empty(cell.max() + 1, dtype=np.int64)
    first[cell[::-1]] = np.arange(len(cell))[::-1]
    return first


def _parts(n: int, width: int) -> list[slice]:
    """Return slices of n rows that hold few numbers at once."""
    size = max(1, MOST_ENTRIES // width)
    return [slice(first, first + size) for first in range(0, n, size)]
