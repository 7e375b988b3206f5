"""The g-formula: rows of both worlds drawn from learned mechanisms.

A Pyro program evaluates a path-specific world for one noise per unit (:mod:`pyrofair.programs.worlds`). Here a world is
a product of identified factors instead: a distribution may read nodes that are no parents (where latent causes join
them), rows keep the labels and types of the table, draws are stratified within units, and few values are summed over
exactly. So nodes are drawn by quantiles from tables, in the order and with the arms of the estimand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_integer_dtype
from scipy.sparse import csr_array, vstack
from torch import Tensor

from pyrofair.mechanisms.conditional import Network
from pyrofair.mechanisms.densities import Density
from pyrofair.mechanisms.families import Binary, Categorical, Family, decode, features, support
from pyrofair.mechanisms.newton import has_last_layer, last_layer
from pyrofair.nuisances.rows import Rows
from pyrofair.programs.couplings import quantile
from pyrofair.sources.mechanism_graph import MechanismGraph
from pyrofair.tables.labels import as_column, repeat_label, span_of

if TYPE_CHECKING:
    from pyrofair.mechanisms.fitting import Fit
    from pyrofair.mechanisms.learn import LearnedMechanisms

__all__ = ["Draws", "GFormula", "Units", "collect_units", "sample_units", "weight_units"]

MOST_ENTRIES = 50_000_000
"""So many numbers of distributions are held at once: 200 MB in single precision."""
MOST_CELLS = 0.7
"""Rows of which more than this share differ are taken for all different."""
LEAST = 1e-9
"""Values that are less probable than this are left out of exact sums, and the others' probabilities divided by their
sum."""
BLOCKS = 20
"""The draws of a unit are so many blocks, each spread evenly over the probabilities: they tell how draws vary."""
MOST_KEPT = 100_000_000
"""Replicates weight rows anew by so many numbers at most: 400 MB in single precision. Beyond that they draw rows."""
FEWEST_DRAWS = 50
"""Weights within a unit of n draws move its mean by 1 / n too little; replicates of units with fewer draw rows."""
LARGEST_LOG_RATIO = 30.0
"""A row's probability may change by this factor, as a logarithm."""


@dataclass(frozen=True)
class Units:
    """Different values of the shared columns, k rows, with weights (k,) that sum to 1.

    ``member`` is the unit of each row of the table that they are from, if all of them are units.
    """

    rows: pd.DataFrame
    weight: NDArray[np.float64]
    member: NDArray[np.int64] | None = None


def collect_units(table: pd.DataFrame, weight: NDArray[np.float64]) -> Units:
    """Gather the rows of the shared columns (perhaps none), weighted by (n,), with the same values into one unit.

    Rows without weight have theirs too, so that other weights give the same units in the same order.
    """
    first, cell = _cells(table)
    return Units(table.iloc[first].reset_index(drop=True), weight_units(cell, weight), cell)


def weight_units(member: NDArray[np.int64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of units (k,), sum 1, of rows with weights (n,) that are each of one of them."""
    total = np.bincount(member, weight)
    return np.asarray(total / total.sum(), dtype=np.float64)


def sample_units(units: Units, n: int, seed: int) -> Units:
    """Sample n units in proportion to their weights, at even steps from a random start; repeats add their weights."""
    start = np.random.default_rng(seed).random()
    chosen = np.searchsorted(np.cumsum(units.weight), (np.arange(n) + start) / n).clip(max=len(units.weight) - 1)
    drawn, counts = np.unique(chosen, return_counts=True)
    return Units(units.rows.iloc[drawn].reset_index(drop=True), counts / float(n))


@dataclass(frozen=True)
class GFormula:
    """Both worlds of units, drawn from learned mechanisms (None if nothing is drawn) in the types of a table."""

    mechanisms: LearnedMechanisms | None
    graph: MechanismGraph
    like: pd.DataFrame

    def worlds(self, units: Units, *, draws: int, exact: int, seed: int) -> tuple[Draws, Draws]:
        """Draw both worlds of k units independently, each so often; or sum over at most so many exact values."""
        few = self._combinations(self.graph.drawn) <= exact
        known = self._encoded(units.rows, self.graph.drawn)
        one, other = (Draws(self, which, units.rows, known) for which in (0, 1))
        for world, random in zip((one, other), np.random.default_rng(seed).spawn(2), strict=True):
            for column in self.graph.graph.columns_of(self.graph.drawn) if few else ():
                world.take_all(column)
            if not few:
                self._draw(self.graph.drawn, world, random, draws)
        return one, other

    def caused(self, roots: Units, most: int, seed: int) -> Units:
        """Return about so many units: the roots with the shared nodes that A causes drawn too, at its baseline."""
        times = max(1, most // len(roots.weight))
        known = self._encoded(roots.rows, self.graph.caused)
        random = np.random.default_rng([seed, 1])
        drawn = self._draw(self.graph.caused, Draws(self, 0, roots.rows, known), random, times)
        return Units(drawn.table(), drawn.weight(roots.weight))

    def outside_support(self, units: Units, rows: Rows, *, draws: int, seed: int) -> pd.DataFrame:
        """Return per world and drawn column the share where its distribution reads values absent from its group."""
        found = []
        worlds = self.worlds(units, draws=draws, exact=0, seed=seed)
        for which, (drawn, regime) in enumerate(zip(worlds, ("baseline", "switched"), strict=True)):
            table, weight, arms = drawn.table(), drawn.weight(units.weight), self.graph.arms[which]
            for node in self.graph.drawn:
                arm = arms.get(node)
                group = rows.given[(rows.weight > 0) & ((rows.a == arm) if arm is not None else True)]
                for column in self.graph.graph.columns_of([node]):
                    reads = drawn.reads(column)
                    share = float(weight @ self._outside(table[reads], group[reads])) if reads else 0.0
                    found.append((regime, column, arm, ", ".join(reads), share))
        return pd.DataFrame(found, columns=["regime", "column", "arm", "reads", "outside"])

    # -- nodes ---------------------------------------------------------------------------------------------------------

    @property
    def learned(self) -> LearnedMechanisms:
        """The mechanisms, where something is drawn."""
        assert self.mechanisms is not None, "nothing is drawn"
        return self.mechanisms

    def _combinations(self, nodes: Sequence[str]) -> float:
        """Return how many values nodes can have together; infinity if a distribution has no finite support."""
        values = [support(self.learned.families[column]) for column in self.graph.graph.columns_of(nodes)]
        return prod(inf if each is None else len(each) for each in values)

    def _encoded(self, units: pd.DataFrame, nodes: Sequence[str]) -> dict[str, Tensor]:
        """Return the columns of units that the distributions of nodes read, as a program's values, (k,) each."""
        if not nodes:
            return {}
        columns = self.graph.graph.columns_of(nodes)
        read = {name for column in columns for name in self.learned.fits[column].mechanism.reads}
        return self.learned.encoded(units, [name for name in map(str, units) if name in read])

    def _draw(self, nodes: Sequence[str], drawn: Draws, random: np.random.Generator, strata: int) -> Draws:
        """Draw nodes, each after those that it reads: so many rows for each unit.

        In a block of a unit's rows, each column's uniform numbers fall into as many equal parts of [0, 1], one in each,
        so that the mean over a unit varies less, and is as unbiased as with free draws.
        """
        block = drawn.repeat(strata)
        size = np.bincount(block)
        first = np.cumsum(size) - size
        for column in self.graph.graph.columns_of(nodes):
            order = (random.random((len(drawn.units), strata)) + block).argsort(axis=1) - first[block]
            u = ((order + random.random(order.shape)) / size[block]).ravel()
            values = drawn.draw(column, u)
            if support(self.learned.families[column]) is None:  # those of its type may be rounded
                typed = self.typed(column, decode(self.learned.families[column], values))
                values = self.learned.encoded(typed.to_frame(column), [column])[column]
            drawn.columns[column] = values.to(torch.float32)
        return drawn

    def typed(self, column: str, values: NDArray[Any]) -> pd.Series[Any]:
        """Return drawn values in the type of their column, missing ones (NaN) as it has them.

        Fractions that stand for integers are rounded.
        """
        like, gaps = self.like[column], pd.isna(values)
        if gaps.any():
            both = pd.concat([self.typed(column, values[~gaps]), like[like.isna()].iloc[:1]])
            at = np.where(gaps, len(both) - 1, np.cumsum(~gaps) - 1)
            found: pd.Series[Any] = both.iloc[at].reset_index(drop=True)
            return found
        if values.dtype.kind == "f" and is_integer_dtype(like.dtype):
            values = np.rint(values).clip(*span_of(like.dtype))
        return as_column(column, values, like.dtype)

    def _outside(self, asked: pd.DataFrame, observed: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which rows hold a combination of categories, or a number, beyond those observed, shape (m,)."""
        coded = [name for name in map(str, asked) if not hasattr(self.learned.families[name], "mean")]
        outside = np.zeros(len(asked), dtype=bool)
        if coded:
            outside |= ~pd.MultiIndex.from_frame(asked[coded]).isin(pd.MultiIndex.from_frame(observed[coded]))
        for name in [name for name in map(str, asked) if name not in coded]:
            inside = asked[name].between(observed[name].min(), observed[name].max()).to_numpy(bool, na_value=False)
            outside |= ~(inside | (asked[name].isna().to_numpy() & observed[name].isna().any()))
        return outside


class Draws:
    """The rows of one world, some for each of k units, as a program's values, while and after they are drawn.

    ``unit``, ``share`` and ``block`` are, for each of n rows, its unit, its share of that unit's weight, and the block
    of draws that it belongs to (if rows are drawn); ``columns`` the drawn columns, (n,) each. A distribution is
    evaluated once for all rows that are alike in what it reads.
    """

    def __init__(self, formula: GFormula, which: int, units: pd.DataFrame, known: Mapping[str, Tensor]) -> None:
        self.formula, self.which, self.units, self.known = formula, which, units, known
        self.unit = np.arange(len(units))
        self.share = np.ones(len(units))
        self.block: NDArray[np.int64] | None = None
        self.columns: dict[str, Tensor] = {}
        self.alike: dict[tuple[str, ...], NDArray[np.int64] | None] = {}
        self.changes: list[_Change] | None = None

    def fit(self, column: str) -> Fit:
        """Return the fit of a column's distribution."""
        return self.formula.learned.fits[column]

    def reads(self, column: str) -> list[str]:
        """Return the columns that a column's distribution reads, but for the sensitive attribute."""
        own = self.formula.graph.graph.sensitive_column
        return [name for name in self.fit(column).mechanism.reads if name != own]

    def table(self) -> pd.DataFrame:
        """Return the rows in the types of the table, without the sensitive attribute."""
        typed = {
            name: self.formula.typed(name, decode(self.fit(name).mechanism.family, each))
            for name, each in self.columns.items()
        }
        return self.units.iloc[self.unit].reset_index(drop=True).assign(**typed)

    def as_the_outcome_reads(self) -> pd.DataFrame:
        """Return the rows with the sensitive attribute that the outcome reads in their world."""
        graph, table = self.formula.graph, self.table()
        name, label = graph.graph.sensitive_column, graph.graph.label(graph.outcome_arms[self.which])
        return table.assign(**{name: repeat_label(self.formula.like[name], label, table.index)})

    def repeat(self, draws: int) -> NDArray[np.int64]:
        """Take each unit so often; return the block of each of its rows, (draws,), whose sizes differ by 1 at most."""
        self.unit = np.repeat(self.unit, draws)
        self.share = np.full(len(self.unit), 1.0 / draws)
        block = np.arange(draws) * min(draws, BLOCKS) // draws
        self.block = np.tile(block, len(self.units))
        return block

    def draw(self, column: str, u: NDArray[np.float64]) -> Tensor:
        """Return the values of a column at probabilities u, shape (n,)."""
        cell, first = self._differ(column)
        family, out = self.fit(column).mechanism.family, self._numbers(column, first)
        at = torch.as_tensor(u.clip(1e-7, 1.0 - 1e-7), dtype=torch.float32)
        with torch.no_grad():
            return torch.cat(
                [
                    quantile(column, family.distribution(out[rows] if cell is None else out[cell[rows]]), at[rows])
                    for rows in _parts(len(u), family.size)
                ]
            )

    def take_all(self, column: str) -> None:
        """Make a row for each value of a column of finite support, but for those below `LEAST`."""
        cell, first = self._differ(column)
        family = self.fit(column).mechanism.family
        values = _values(family)
        with torch.no_grad():
            known: Any = family.distribution(self._numbers(column, first))
            p = known.log_prob(values[:, None]).double().exp().numpy().T
        p = p if cell is None else p[cell]
        row, level = np.nonzero(p >= LEAST)
        share = p[row, level] / np.where(p >= LEAST, p, 0.0).sum(axis=1)[row]
        self.unit, self.share = self.unit[row], self.share[row] * share
        self.columns = {name: each[row] for name, each in self.columns.items()} | {column: values[level]}
        self.alike = {read: None if each is None else each[row] for read, each in self.alike.items()}

    def weight(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights of the rows (n,), given those of the units (k,)."""
        return units[self.unit] * self.share

    # -- other mechanisms ---------------------------------------------------------------------------------------------

    def reweighted(
        self, units: NDArray[np.float64], mechanisms: LearnedMechanisms | None, random: np.random.Generator
    ) -> NDArray[np.float64] | None:
        """Return the weights of the same rows under a replicate's mechanisms; None if they must be drawn again.

        A row's weight changes by the ratio of its probabilities, and blocks of a unit's draws weigh as in a Bayesian
        bootstrap, because draws are a sample too. The ratio is exact for categories; that of other columns is right but
        for the square of the change in their numbers.
        """
        if self.block is not None and len(self.block) < FEWEST_DRAWS * len(self.units):
            return None
        if self.changes is None:
            self.changes = self._all_changes()
        moved = np.zeros(len(self.unit))
        for change in self.changes:
            assert mechanisms is not None, "something is drawn"
            moved += change.log_ratio(mechanisms.fits[change.column])
        if len(self.changes) < len(self.columns):
            return None
        share = self.share * np.exp(moved.clip(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
        if self.block is not None:
            blocks = int(self.block.max()) + 1
            share *= random.standard_exponential(len(self.units) * blocks)[self.unit * blocks + self.block]
        return np.asarray(share * (units / np.bincount(self.unit, share))[self.unit])

    def _all_changes(self) -> list[_Change]:
        """Return what changes the probabilities of each drawn column; of none if that would take too much memory."""
        cells, kept = {column: self._differ(column) for column in self.columns}, 0
        for column, (_, first) in cells.items():
            mechanism = self.fit(column).mechanism
            if self.formula.learned.settings.posterior != "point" or not has_last_layer(mechanism):
                return []
            network: Any = mechanism.numbers
            kept += len(first) * (sum(network.hidden[-1:]) + 2 * len(mechanism.reads))
            kept += len(self.unit) * (1 if _has_levels(mechanism.family) else mechanism.family.size)
        return [] if kept > MOST_KEPT else [self._change(column, *each) for column, each in cells.items()]

    @torch.no_grad()
    def _change(self, column: str, cell: NDArray[np.int64] | None, first: NDArray[np.int64]) -> _Change:
        fit, values = self.fit(column), self.columns[column]
        family, network = fit.mechanism.family, fit.mechanism.numbers
        assert isinstance(network, Network)
        hidden, read = [], []
        for rows in _parts(len(first), sum(network.widths) + sum(network.hidden)):
            known = self._read(column, first[rows])
            inputs = network.before_last(
                [*fit.centre.values()],
                [features(each, known[name]) for name, each in fit.mechanism.reads.items()],
                len(first[rows]),
            )
            width = network.hidden[-1] if len(network.shapes) > 1 else 0
            hidden.append(inputs[:, :width].clone())
            read.append(csr_array(inputs[:, width:].numpy()))
        out, code = self._numbers(column, first), None
        if _has_levels(family):
            code, of_rows = (values - _values(family)[0]).long().numpy(), _log_levels(out, family)
        else:
            slopes = [
                Density.of(family, values[rows].double())((out[rows] if cell is None else out[cell[rows]]).double())[1]
                for rows in _parts(len(values), 10 * family.size)
            ]
            of_rows = torch.cat([each.float() for each in slopes])
        return _Change(column, fit, cell, torch.cat(hidden), vstack(read), of_rows, code)

    # -- rows that are alike ------------------------------------------------------------------------------------------

    def _differ(self, column: str) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
        """Return which of the rows that differ in what a column reads each row is, (n,), and a position of each."""
        reads = self.reads(column)
        drawn = [name for name in self.columns if name in reads and name != column]
        cell = self._cells(tuple(name for name in reads if name not in drawn), tuple(drawn))
        return cell, np.arange(len(self.unit)) if cell is None else _first_of(cell)

    def _read(self, column: str, rows: NDArray[np.int64]) -> dict[str, Tensor]:
        """Return what a column's distribution reads in some rows."""
        found = {
            name: self.columns[name][rows] if name in self.columns else self.known[name][self.unit[rows]]
            for name in self.reads(column)
        }
        graph, mechanism = self.formula.graph, self.fit(column).mechanism
        if (own := graph.graph.sensitive_column) in mechanism.reads:
            found[own] = torch.full((len(rows),), float(graph.arms[self.which].get(graph.graph.node_of[column]) == 1))
        return found

    def _numbers(self, column: str, rows: NDArray[np.int64]) -> Tensor:
        """Return the numbers of a column's distribution in some rows, shape (m, size)."""
        fit = self.fit(column)
        numbers = fit.mechanism.numbers_at(fit.centre)
        width = sum(features(each, torch.zeros(1)).shape[-1] for each in fit.mechanism.reads.values())
        with torch.no_grad():
            parts = [rows[part] for part in _parts(len(rows), width + fit.mechanism.family.size)]
            return torch.cat([numbers(self._read(column, part)).expand(len(part), -1) for part in parts])

    def _cells(self, shared: tuple[str, ...], drawn: tuple[str, ...]) -> NDArray[np.int64] | None:
        """Return which rows are alike in some columns of units and some drawn ones, (n,); None if hardly any are."""
        if (key := (*shared, *drawn)) not in self.alike:
            if not drawn:
                self.alike[key] = _cells(self.units[[*shared]])[1][self.unit]
            else:
                before = self._cells(shared, drawn[:-1])
                values = support(self.fit(drawn[-1]).mechanism.family)
                cell = None
                if before is not None and values is not None:
                    codes = self.columns[drawn[-1]].numpy().astype(np.int64) - int(values[0])
                    cell = pd.factorize(before * len(values) + codes)[0].astype(np.int64)
                    cell = None if cell.max() + 1 > MOST_CELLS * len(cell) else cell
                self.alike[key] = cell
        return self.alike[key]


@dataclass(frozen=True, eq=False)
class _Change:
    """How other numbers of a last layer change the log-probabilities of n drawn values of a column.

    Rows differ in c ways, which ``cell`` (n,) numbers: ``hidden`` (c, h) and ``read`` are what the last layer reads.
    Of categories ``known`` (c, levels) are the log-probabilities, and ``code`` (n,) is the level of each row; of other
    families ``known`` (n, size) are the slopes of each row's log-density in the family's numbers.
    """

    column: str
    fit: Fit
    cell: NDArray[np.int64] | None
    hidden: Tensor
    read: Any
    known: Tensor
    code: NDArray[np.int64] | None

    def log_ratio(self, other: Fit) -> NDArray[np.float32]:
        """Return the logarithm of the probability of each row by another fit over that by this one, shape (n,)."""
        change = last_layer(other.mechanism, other.centre) - last_layer(self.fit.mechanism, self.fit.centre)
        h = self.hidden.shape[1]
        moved = self.hidden @ change[:h] + torch.from_numpy(self.read @ change[h:-1].numpy()) + change[-1]
        if self.code is None:
            moved = moved if self.cell is None else moved[self.cell]
            return torch.einsum("ij,ij->i", self.known, moved).numpy()
        moved = torch.nn.functional.pad(moved, (self.known.shape[1] - moved.shape[1], 0))
        ratio = ((self.known + moved).log_softmax(-1) - self.known).numpy()
        return ratio[np.arange(len(self.code)) if self.cell is None else self.cell, self.code]


def _has_levels(family: Family) -> bool:
    return isinstance(family, Binary | Categorical)


def _log_levels(out: Tensor, family: Family) -> Tensor:
    """Return the log-probabilities of the levels of a family, (..., levels), for its numbers (..., size)."""
    odds = torch.nn.functional.pad(out, (1, 0)) if isinstance(family, Binary) else out
    return odds.log_softmax(-1)


def _values(family: Family) -> Tensor:
    """Return all values of a family that has few."""
    found = support(family)
    assert found is not None, "it has few values"
    return found


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
