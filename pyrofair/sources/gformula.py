"""The g-formula: rows of both worlds drawn from learned mechanisms."""

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

from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.estimand import Estimand, RegimeEstimand
from pyrofair.mechanisms.families import decode, features, support
from pyrofair.programs.couplings import quantile
from pyrofair.sources.propensity import Rows
from pyrofair.tables.tables import as_column, repeat_label, span_of

if TYPE_CHECKING:
    from pyrofair.mechanisms.learn import LearnedMechanisms

__all__ = [
    "DrawnWorld",
    "MechanismGraph",
    "Units",
    "collect_units",
    "draw_caused",
    "draw_nodes",
    "draw_worlds",
    "outside_support",
    "pair_worlds",
    "sample_units",
    "thin_units",
]


@dataclass(frozen=True)
class Units:
    """The k units: a row of the shared columns for each, and their weights (k,), which sum to 1."""

    rows: pd.DataFrame
    weight: NDArray[np.float64]


def collect_units(table: pd.DataFrame, weight: NDArray[np.float64]) -> Units:
    """Gather the rows with the same values into one unit.

    Rows without weight have theirs too, so that other weights give the same units in the same order.

    Parameters
    ----------
    table
        The shared columns of n rows, perhaps none.
    weight
        How much each row counts, shape (n,).

    Examples
    --------
    >>> collect_units(pd.DataFrame({"Q": [1, 0, 1]}), np.ones(3)).weight.round(2).tolist()
    [0.67, 0.33]
    """
    if len(table.columns):
        cell = table.groupby(list(table.columns), sort=False, observed=True).ngroup().to_numpy()
    else:
        cell = np.zeros(len(table), dtype=np.int64)
    first = np.unique(cell, return_index=True)[1]
    total = np.asarray(np.bincount(cell, weight), dtype=np.float64)
    return Units(table.iloc[first].reset_index(drop=True), total / total.sum())


def thin_units(units: Units, most: int, seed: int) -> Units:
    """Return the units, or a sample of at most so many."""
    return units if len(units.weight) <= most else sample_units(units, most, seed)


def sample_units(units: Units, n: int, seed: int) -> Units:
    """Sample n units in proportion to their weights, at even steps from a random start; one met twice counts twice."""
    start = np.random.default_rng(seed).random()
    chosen = np.searchsorted(np.cumsum(units.weight), (np.arange(n) + start) / n).clip(max=len(units.weight) - 1)
    place, counts = np.unique(chosen, return_counts=True)
    return Units(units.rows.iloc[place].reset_index(drop=True), counts / float(n))


@dataclass(frozen=True)
class MechanismGraph:
    """The nodes of an identified pair of worlds, the shared ones before those that are drawn anew in each.

    Parameters
    ----------
    graph
        A graph whose order has the shared nodes first, and whose edges are what distributions read.
    roots
        The nodes that the sensitive attribute does not cause.
    caused
        The shared nodes that it causes.
    units
        The shared nodes that a drawn distribution or the classifier reads.
    drawn
        The nodes that unfair paths touch, each after those that it reads.
    given
        For each caused and drawn node the nodes that its distribution reads, the sensitive attribute among them if so.
    arms
        For both worlds the value of the sensitive attribute that each node's distribution reads, or None.
    outcome_arms
        For both worlds the value that the outcome reads, or that of the fair paths if it reads none.
    """

    graph: CausalGraph
    roots: tuple[str, ...]
    caused: tuple[str, ...]
    units: tuple[str, ...]
    drawn: tuple[str, ...]
    given: dict[str, tuple[str, ...]]
    arms: tuple[dict[str, int | None], dict[str, int | None]]
    outcome_arms: tuple[int, int]

    @property
    def switched(self) -> tuple[str, ...]:
        """The drawn nodes that read different values of the sensitive attribute in the two worlds."""
        return tuple(node for node in self.drawn if self.arms[0].get(node) != self.arms[1].get(node))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What numbers made of learned mechanisms rest on besides, a sentence each."""
        shared, drawn = (", ".join(nodes) or "nothing" for nodes in (self.units, self.drawn))
        return (
            f"A unit is a value of what both worlds share: {shared}. In each world {drawn} is drawn anew by learned "
            "distributions; intervals rest on distributions fitted again, not on whether their form is right (see "
            "mechanisms_.calibration()).",
            f"Distributions are asked only where {self.graph.sensitive} and its companions were met (see overlap()).",
        )

    @classmethod
    def of(cls, estimand: Estimand) -> MechanismGraph:
        """Read the distributions off an estimand.

        Shared nodes never read drawn ones: a path through a drawn node goes on along the same first edge, and would be
        unfair. So they may come first. A node that a latent one joins to others is given all nodes before it.
        """
        unfair, part = estimand.unfair, estimand.switched
        shared = set(unfair.shared)
        roots = part.order[: part.roots]
        caused = tuple(node for node in part.order[part.roots :] if node in shared)
        drawn = tuple(node for node in part.order if node not in shared and node not in roots)
        order = (*roots, *caused, *drawn)
        given = {}
        for factor in part.factors:
            if factor.node in (*caused, *drawn):
                joined = bool(unfair.graph.latent) and factor.given == factor.before
                before = order[: order.index(factor.node)]
                reads = before if joined else tuple(node for node in before if node in factor.given)
                given[factor.node] = ((unfair.graph.sensitive,) if factor.arm is not None else ()) + reads
        inputs = set(unfair.graph.inputs)
        read = inputs.union(*(given[node] for node in drawn))
        units = tuple(node for node in (*roots, *caused) if node in read)
        return cls(
            _ordered(unfair.graph, order, given, len(roots)),
            roots,
            caused,
            units,
            drawn,
            given,
            (_arms(estimand.baseline), _arms(part)),
            (estimand.baseline.paper_group, part.paper_group),
        )


def _arms(part: RegimeEstimand) -> dict[str, int | None]:
    return {factor.node: factor.arm for factor in part.factors}


def _ordered(graph: CausalGraph, order: tuple[str, ...], given: dict[str, tuple[str, ...]], roots: int) -> CausalGraph:
    """Return a graph with these nodes in this order whose edges are what distributions read."""
    nodes = [*order[:roots], graph.sensitive, *order[roots:], graph.outcome]
    edges = [(parent, node) for node in nodes for parent in given.get(node, ())]
    edges += [(node, graph.sensitive) for node in order[:roots]]
    edges += [(node, graph.outcome) for node in nodes[:-1] if node in graph.inputs]
    place = {node: i for i, node in enumerate(nodes)}
    edges.sort(key=lambda edge: (place[edge[1]], place[edge[0]]))
    return CausalGraph(
        edges,
        sensitive=graph.sensitive,
        outcome=graph.outcome,
        baseline=graph.baseline,
        contrast=graph.contrast,
        positive=graph.positive,
        columns={node: columns for node, columns in graph.columns.items() if node in place},
    )


FEWEST = 20
"""The fewest draws of all else in a cell."""
MOST_ENTRIES = 50_000_000
"""So many numbers of distributions are held at once: 200 MB in single precision."""
LEAST = 1e-9
"""Values that are less probable than this are left out of exact sums, and the others' probabilities divided by their
sum."""


@dataclass(frozen=True)
class DrawnWorld:
    """A world as rows of all columns, with their weights (m,) and units (m,)."""

    rows: pd.DataFrame
    weight: NDArray[np.float64]
    unit: NDArray[np.int64]
    cell: NDArray[np.int64] | None = None


def draw_worlds(
    laws: LearnedMechanisms | None,
    graph: MechanismGraph,
    units: Units,
    *,
    draws: int,
    exact: int,
    seed: int,
    like: pd.DataFrame,
) -> tuple[DrawnWorld, DrawnWorld]:
    """Draw both worlds of each unit, independently; or take all values with their probabilities.

    Parameters
    ----------
    laws, graph
        The learned mechanisms (None if nothing is drawn), and which of them each world takes.
    units
        The k units.
    draws
        How often each unit is drawn in each world.
    exact
        The most combinations of values that are summed over instead.
    seed
        Seeds the draws.
    like
        A table whose types the drawn columns take.

    Returns
    -------
    baseline, switched
        The sensitive attribute is that which the outcome reads.
    """
    few = laws is not None and _combinations(laws, graph.graph.columns_of(graph.drawn)) <= exact
    worlds = []
    for which, random in enumerate(np.random.default_rng(seed).spawn(2)):
        start = DrawnWorld(units.rows, units.weight, np.arange(len(units.weight)))
        if laws is None:
            found = start
        elif few:
            found = _all_values(laws, graph, graph.drawn, which, start, like)
        else:
            unit = np.repeat(np.arange(len(units.weight)), draws)
            rows = units.rows.iloc[unit].reset_index(drop=True)
            rows = draw_nodes(laws, graph, graph.drawn, which, rows, random, draws, like)
            found = DrawnWorld(rows, units.weight[unit] / draws, unit)
        worlds.append(_as_the_outcome_reads(found, graph, which, like))
    return worlds[0], worlds[1]


def _combinations(laws: LearnedMechanisms, columns: Sequence[str]) -> float:
    """Return how many values some columns can have together; infinity if a distribution has no finite support."""
    values = [support(laws.families[column]) for column in columns]
    return prod(inf if each is None else len(each) for each in values)


def _as_the_outcome_reads(world: DrawnWorld, graph: MechanismGraph, which: int, like: pd.DataFrame) -> DrawnWorld:
    """Return a world with the sensitive attribute that the outcome reads there."""
    name = graph.graph.sensitive_column
    label = repeat_label(like[name], graph.graph.label(graph.outcome_arms[which]), world.rows.index)
    return replace(world, rows=world.rows.assign(**{name: label}))


def pair_worlds(
    laws: LearnedMechanisms,
    graph: MechanismGraph,
    units: Units,
    *,
    draws: int,
    exact: int,
    seed: int,
    like: pd.DataFrame,
) -> tuple[DrawnWorld, DrawnWorld]:
    """Return both worlds with a cell for each value of what unfair edges switch, and one draw of all else for both.

    Parameters
    ----------
    laws, graph, units, seed, like
        As for :func:`draw_worlds`.
    draws
        The draws of all else for each unit, over all cells.
    exact
        The most values that unfair edges may switch.

    Raises
    ------
    DataError
        If what they switch has more values, or reads what is not switched.
    """
    switched = graph.switched
    columns = graph.graph.columns_of(switched)
    if _combinations(laws, columns) > exact:
        raise DataError(
            f"joint='consistent' takes each value of {', '.join(columns)} by itself, and they have more than {exact} "
            "together, or are no categories or integers. Use joint=None."
        )
    if late := [node for node in switched if {*graph.given[node]} & {*graph.drawn} - {*switched}]:
        raise DataError(
            f"joint='consistent' does not serve here: {late[0]!r}, which unfair edges switch, reads a drawn node that "
            "they do not. Use joint=None."
        )
    start = DrawnWorld(units.rows, units.weight, np.arange(len(units.weight)))
    one, other = (_all_values(laws, graph, switched, which, start, like, least=0.0) for which in (0, 1))
    rest = [node for node in graph.drawn if node not in switched]
    repeats = max(FEWEST, draws // (len(one.rows) // len(units.weight))) if rest else 1
    at = np.repeat(np.arange(len(one.rows)), repeats)
    rows = one.rows.iloc[at].reset_index(drop=True)
    rows = draw_nodes(laws, graph, rest, 0, rows, np.random.default_rng(seed), repeats, like)
    cell = np.arange(len(one.rows)) % (len(one.rows) // len(units.weight))
    found = [DrawnWorld(rows, world.weight[at] / repeats, one.unit[at], cell[at]) for world in (one, other)]
    return _as_the_outcome_reads(found[0], graph, 0, like), _as_the_outcome_reads(found[1], graph, 1, like)


def draw_caused(
    laws: LearnedMechanisms, graph: MechanismGraph, roots: Units, most: int, seed: int, like: pd.DataFrame
) -> Units:
    """Return units with the shared nodes that the sensitive attribute causes drawn too, at its baseline.

    Parameters
    ----------
    laws, graph, like
        As for :func:`draw_worlds`.
    roots
        The units as far as the sensitive attribute does not cause them.
    most
        About how many units to return.
    seed
        Seeds the draw.
    """
    times = max(1, most // len(roots.weight))
    rows = roots.rows.iloc[np.repeat(np.arange(len(roots.weight)), times)].reset_index(drop=True)
    rows = draw_nodes(laws, graph, graph.caused, 0, rows, np.random.default_rng([seed, 1]), times, like)
    return Units(rows, np.repeat(roots.weight / times, times))


def draw_nodes(
    laws: LearnedMechanisms,
    graph: MechanismGraph,
    nodes: Sequence[str],
    which: int,
    rows: pd.DataFrame,
    random: np.random.Generator,
    strata: int,
    like: pd.DataFrame,
) -> pd.DataFrame:
    """Return rows with nodes drawn in one world, each after those that it reads.

    Every ``strata`` rows in a row are one unit: each column's uniform numbers fall into as many equal parts of [0, 1],
    one in each, so that the mean over a unit varies less, and is as unbiased as with free draws.

    Parameters
    ----------
    laws, graph, nodes, which
        The distributions, the nodes to draw, and the world.
    rows
        The rows so far.
    random
        The source of numbers.
    strata
        The draws of each unit.
    like
        A table whose types the drawn columns take.
    """
    for node in nodes:
        for column in graph.graph.columns_of([node]):
            read = _as_read(rows, graph, node, which)
            order = random.random((len(rows) // strata, strata)).argsort(axis=1).ravel()
            u = (order + random.random(len(rows))) / strata
            at = torch.as_tensor(u.clip(1e-7, 1.0 - 1e-7), dtype=torch.float32)
            size = max(1, MOST_ENTRIES // _width(laws, column))
            value = torch.cat(
                [
                    quantile(
                        column, laws.distribution(column, read.iloc[first : first + size]), at[first : first + size]
                    )
                    for first in range(0, len(rows), size)
                ]
            )
            rows = rows.assign(**{column: _typed(decode(laws.families[column], value), like[column])})
    return rows


def _width(laws: LearnedMechanisms, column: str) -> int:
    """Return how many numbers a row of a column's distribution takes: what it reads, and its own."""
    fit = laws.fits[column]
    read = sum(features(laws.families[name], torch.zeros(1)).shape[-1] for name in fit.law.reads)
    return read + fit.law.family.size


def _all_values(
    laws: LearnedMechanisms,
    graph: MechanismGraph,
    nodes: Sequence[str],
    which: int,
    world: DrawnWorld,
    like: pd.DataFrame,
    least: float = LEAST,
) -> DrawnWorld:
    """Return a row for each value of some nodes with its probability; those below ``least`` are left out."""
    for node in nodes:
        for column in graph.graph.columns_of([node]):
            family = laws.families[column]
            values = support(family)
            assert values is not None  # told by the caller
            law = laws.distribution(column, _as_read(world.rows, graph, node, which))
            p = law.log_prob(values[:, None]).double().exp().numpy().T
            place, level = np.nonzero(p >= least)
            share = p[place, level] / np.where(p >= least, p, 0.0).sum(axis=1)[place]
            rows = world.rows.iloc[place].reset_index(drop=True)
            rows = rows.assign(**{column: _typed(decode(family, values)[level], like[column])})
            world = DrawnWorld(rows, world.weight[place] * share, world.unit[place])
    return world


def _as_read(rows: pd.DataFrame, graph: MechanismGraph, node: str, which: int) -> pd.DataFrame:
    """Return rows with the sensitive attribute as a node reads it."""
    arm = graph.arms[which].get(node)
    if arm is None:
        return rows
    label: Any = graph.graph.label(arm)
    return rows.assign(**{graph.graph.sensitive_column: label})


def _typed(values: NDArray[Any], like: pd.Series[Any]) -> pd.Series[Any]:
    """Return drawn values in the type of a column; fractions that stand for integers are rounded."""
    if values.dtype.kind == "f" and is_integer_dtype(like.dtype):
        values = np.rint(values).clip(*span_of(like.dtype))
    return as_column(str(like.name), values, like.dtype)


def outside_support(
    laws: LearnedMechanisms | None,
    graph: MechanismGraph,
    units: Units,
    rows: Rows,
    *,
    draws: int,
    seed: int,
) -> pd.DataFrame:
    """Return for each world and drawn column the share of the world where its distribution reads what its rows never
    showed.

    Parameters
    ----------
    laws, graph, units, draws, seed
        As for :func:`draw_worlds`, which is asked for draws.
    rows
        The rows that the mechanisms were learned from.
    """
    found = []
    names = ["regime", "column", "arm", "reads", "outside"]
    if laws is None:
        return pd.DataFrame(columns=names)
    worlds = draw_worlds(laws, graph, units, draws=draws, exact=0, seed=seed, like=rows.table)
    for which, (world, regime) in enumerate(zip(worlds, ("baseline", "switched"), strict=True)):
        for node in graph.drawn:
            arm = graph.arms[which].get(node)
            group = rows.table[(rows.weight > 0) & ((rows.a == arm) if arm is not None else True)]
            for column in graph.graph.columns_of([node]):
                reads = [name for name in laws.fits[column].law.reads if name != graph.graph.sensitive_column]
                outside = _outside(laws, world.rows[reads], group[reads]) if reads else np.zeros(len(world.rows), bool)
                found.append(
                    {
                        "regime": regime,
                        "column": column,
                        "arm": arm,
                        "reads": ", ".join(reads),
                        "outside": float(world.weight @ outside),
                    }
                )
    return pd.DataFrame(found, columns=names)


def _outside(laws: LearnedMechanisms, asked: pd.DataFrame, met: pd.DataFrame) -> NDArray[np.bool_]:
    """Tell which rows hold a combination of categories, or a number, beyond those that were met."""
    coded = [name for name in map(str, asked) if not hasattr(laws.families[name], "mean")]
    outside = np.zeros(len(asked), dtype=bool)
    if coded:
        outside |= ~pd.MultiIndex.from_frame(asked[coded]).isin(pd.MultiIndex.from_frame(met[coded]))
    for name in [name for name in map(str, asked) if name not in coded]:
        outside |= ~asked[name].between(met[name].min(), met[name].max()).to_numpy()
    return outside
