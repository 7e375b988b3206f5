"""What are people like in both worlds, given what these share? Draws from learned laws, or all their values if few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pyrofair.couplings import quantile
from pyrofair.families import decode, support
from pyrofair.law_graph import LawGraph
from pyrofair.mechanisms import LearnedLaws
from pyrofair.nuisances import Rows

__all__ = ["DrawnWorld", "draw_nodes", "draw_worlds", "outside_support"]

LEAST = 1e-9
"""Values that are less probable than this are left out of exact sums, and the others' probabilities divided by their
sum."""


@dataclass(frozen=True)
class DrawnWorld:
    """A world as rows of all columns, with their weights (m,) and units (m,)."""

    rows: pd.DataFrame
    weight: NDArray[np.float64]
    unit: NDArray[np.int64]


def draw_worlds(
    laws: LearnedLaws | None,
    graph: LawGraph,
    units: pd.DataFrame,
    weight: NDArray[np.float64],
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
        The learned laws (None if nothing is drawn), and which of them each world takes.
    units, weight
        The k units as rows of the shared columns, and their weights (k,).
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
    columns = graph.graph.columns_of(graph.drawn)
    sizes = [support(laws.families[column]) for column in columns] if laws else []
    few = all(values is not None for values in sizes) and prod(len(v) for v in sizes if v is not None) <= exact
    worlds = []
    for which, random in enumerate(np.random.default_rng(seed).spawn(2)):
        start = DrawnWorld(units, weight, np.arange(len(units)))
        if laws is None:
            found = start
        elif few:
            found = _all_values(laws, graph, which, start, like)
        else:
            unit = np.repeat(np.arange(len(units)), draws)
            rows = units.iloc[unit].reset_index(drop=True)
            rows = draw_nodes(laws, graph, graph.drawn, which, rows, random, draws, like)
            found = DrawnWorld(rows, weight[unit] / draws, unit)
        label = graph.graph.label(graph.outcome_arms[which])
        sensitive = pd.Series([label], dtype=like[graph.graph.sensitive_column].dtype)
        rows = found.rows.assign(**{graph.graph.sensitive_column: sensitive.repeat(len(found.rows)).to_numpy()})
        worlds.append(DrawnWorld(rows, found.weight, found.unit))
    return worlds[0], worlds[1]


def draw_nodes(
    laws: LearnedLaws,
    graph: LawGraph,
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
        The laws, the nodes to draw, and the world.
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
            law = laws.law(column, _as_read(rows, graph, node, which))
            order = random.random((len(rows) // strata, strata)).argsort(axis=1).ravel()
            u = (order + random.random(len(rows))) / strata
            value = quantile(column, law, torch.as_tensor(u.clip(1e-7, 1.0 - 1e-7), dtype=torch.float32))
            rows = rows.assign(**{column: _typed(decode(laws.families[column], value), like[column])})
    return rows


def _all_values(laws: LearnedLaws, graph: LawGraph, which: int, world: DrawnWorld, like: pd.DataFrame) -> DrawnWorld:
    for node in graph.drawn:
        for column in graph.graph.columns_of([node]):
            family = laws.families[column]
            values = support(family)
            assert values is not None  # told by the caller
            law = laws.law(column, _as_read(world.rows, graph, node, which))
            p = law.log_prob(values[:, None]).double().exp().numpy().T
            p = np.where(p >= LEAST, p, 0.0)
            place, level = np.nonzero(p)
            share = (p / p.sum(axis=1, keepdims=True))[place, level]
            rows = world.rows.iloc[place].reset_index(drop=True)
            rows = rows.assign(**{column: _typed(decode(family, values)[level], like[column])})
            world = DrawnWorld(rows, world.weight[place] * share, world.unit[place])
    return world


def _as_read(rows: pd.DataFrame, graph: LawGraph, node: str, which: int) -> pd.DataFrame:
    """Return rows with the sensitive attribute as a node reads it."""
    arm = graph.arms[which].get(node)
    if arm is None:
        return rows
    label: Any = graph.graph.label(arm)
    return rows.assign(**{graph.graph.sensitive_column: label})


def _typed(values: NDArray[Any], like: pd.Series[Any]) -> pd.Series[Any]:
    return pd.Series(values).astype(like.dtype)


def outside_support(
    laws: LearnedLaws | None,
    graph: LawGraph,
    units: pd.DataFrame,
    weight: NDArray[np.float64],
    rows: Rows,
    *,
    draws: int,
    seed: int,
) -> pd.DataFrame:
    """Return for each world and drawn column the share of the world where its law reads what its rows never showed.

    Parameters
    ----------
    laws, graph, units, weight, draws, seed
        As for :func:`draw_worlds`, which is asked for draws.
    rows
        The rows that the laws were learned from.
    """
    found = []
    names = ["regime", "column", "arm", "reads", "outside"]
    if laws is None:
        return pd.DataFrame(columns=names)
    worlds = draw_worlds(laws, graph, units, weight, draws=draws, exact=0, seed=seed, like=rows.table)
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


def _outside(laws: LearnedLaws, asked: pd.DataFrame, met: pd.DataFrame) -> NDArray[np.bool_]:
    """Tell which rows hold a combination of categories, or a number, beyond those that were met."""
    coded = [name for name in map(str, asked) if not hasattr(laws.families[name], "mean")]
    outside = np.zeros(len(asked), dtype=bool)
    if coded:
        outside |= ~pd.MultiIndex.from_frame(asked[coded]).isin(pd.MultiIndex.from_frame(met[coded]))
    for name in [name for name in map(str, asked) if name not in coded]:
        outside |= ~asked[name].between(met[name].min(), met[name].max()).to_numpy()
    return outside
