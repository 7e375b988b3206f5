"""How far any coupling of two runs of nodes that read different values of A moves a mean in the unfair-path world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.nuisances.columns import take
from pyrofair.nuisances.diagnostics import Stage
from pyrofair.nuisances.rows import Rows
from pyrofair.robustness.sensitivity.hidden_causes import whole_runs
from pyrofair.robustness.sensitivity.tilting import make_grid
from pyrofair.sources.prefix_form import PrefixForm, Walk

__all__ = ["Couplings", "Runs", "couple_worlds", "read_runs"]

Array = NDArray[np.float64]
MOST_VALUES, BOTH = 50, 2
RAREST = 1e-3
"""Values of the first run with a smaller chance are judged by the regressions alone."""


@dataclass(frozen=True, eq=False)
class Runs:
    """The two runs of nodes of the unfair-path world, and the levels (L, columns) of the first among the fitted rows.

    ``sharp`` is whether each node of the second reads all of the first, so that what follows from one value is free of
    what follows from another.
    """

    first: Stage
    second: Stage
    columns: list[str]
    levels: pd.DataFrame
    sharp: bool


@dataclass(frozen=True, eq=False)
class Couplings:
    """Influence values (n,) of the greatest moves up and down, and the functions that they are made of.

    ``exact`` is whether all values of the score were tried as cuts: otherwise the moves are valid, and may be too wide.
    ``widest_up`` and ``widest_down`` (n,) are the moves given what A does not cause; ``chance`` and ``mean`` (n, L) the
    probability of each value of the first run, and the mean score that follows it.
    """

    up: Array
    down: Array
    widest_up: Array
    widest_down: Array
    chance: Array
    mean: Array
    exact: bool


def read_runs(form: PrefixForm) -> Runs:
    """Return the two runs of the unfair-path world, or refuse."""
    world, estimand, graph = form.worlds[1], form.estimand, form.nuisances.graph
    stages = [block.stage for block in whole_runs(world, estimand)]
    sensitive = graph.sensitive
    if len(stages) < BOTH:
        raise DataError(
            f"All that {sensitive} causes reads one value of it in the unfair-path world, so the numbers depend on no "
            "assumption across worlds: a classifier is a known function. Nothing is to be examined."
        )
    listing = "; ".join(f"{', '.join(stage.nodes)} with {sensitive}={stage.arm}" for stage in stages)
    if len(stages) > BOTH:
        raise DataError(
            f"The unfair-path world joins {len(stages)} runs of nodes ({listing}), and couplings are bounded for two. "
            "Call paths unfair so that one run of mediators reads each value."
        )
    first, second = stages
    columns = graph.columns_of(first.nodes)
    values = form.nuisances.rows.table[columns].drop_duplicates()
    if len(values) > MOST_VALUES:
        raise DataError(
            f"{', '.join(columns)} have {len(values)} different values together, and couplings are bounded for at most "
            f"{MOST_VALUES}. Bin them in the table before the model is fitted."
        )
    factors = {factor.node: factor.given for factor in world.part.factors}
    given = [factors.get(node, world.part.outcome_given) for node in second.nodes]
    return Runs(first, second, columns, values, all({*first.nodes} <= {*each} for each in given))


def couple_worlds(form: PrefixForm, rows: Rows, scores: Sequence[tuple[Array, Array]], runs: Runs) -> Couplings:
    """Return the greatest moves of P(Ypi = 1) by any coupling of both runs with the margins of single worlds.

    Given what A does not cause, let p be the chance of a value of the first run, and X the score that follows it. A
    coupling moves the mean of X where the first run has that value by at most the least, over cuts q, of
    E[(1 - p) (X - q)+ + p (q - X)+], and by at most that with 1 - p in place of p downwards. The moves of all values
    add up.
    """
    walk = Walk(form, rows, scores)
    n, size = len(rows.a), len(runs.levels)
    found = {name: np.zeros(n) for name in ("up", "down", "widest_up", "widest_down")}
    chances, means = np.zeros((n, size)), np.zeros((n, size))
    first_weight, second_weight = (form.weights(rows, form.worlds[1], each) for each in (runs.first, runs.second))
    exact = True
    own, known = (_which(table, runs) for table in (rows.table, walk.fitted.table))
    # A cut chosen by the rows that it is judged on would err inward.
    for train, judged, share in walk.folds(crossed=True):
        weight = share[:, 0]
        at, regression, design, learned = walk.learn(runs.first, train)
        indicators = (known[train[at], None] == np.arange(size)).astype(np.float64)
        weights = walk.fitted.weight[train[at]], walk.fitted.near(train[at])
        chance = regression.fit(take(learned, train[at]), indicators, *weights)(take(design, judged))
        score, score_known = scores[1][0][judged, 0], scores[1][1][train, 0]
        at, regression, _, learned = walk.learn(runs.second, train)
        values = score_known[at]
        grid, whole = make_grid(values, walk.fitted.weight[train[at]])
        exact &= whole
        columns = np.column_stack([values, np.maximum(values[:, None] - grid, 0.0)])
        weights = walk.fitted.weight[train[at]], walk.fitted.near(train[at])
        predict = regression.fit(take(learned, train[at]), columns, *weights)
        names = form.nuisances.graph.columns_of(runs.second.given)
        here = rows.table[names].iloc[judged]
        for value in range(size):
            p = chance[:, value].clip(0.0, 1.0)
            needed = np.flatnonzero(p > 0.0)
            mean, over = np.zeros(len(judged)), np.zeros((len(judged), len(grid)))
            if len(needed):
                replaced = _replace(here.iloc[needed], runs, value)
                predicted = predict(regression.design(replaced))
                mean[needed], over[needed] = predicted[:, 0], predicted[:, 1:]
            chances[judged, value] += weight * p
            means[judged, value] += weight * mean
            is_own = own[judged] == value
            for name, part, sign in (("up", p, 1.0), ("down", 1.0 - p, -1.0)):
                loss = over + part[:, None] * (grid - mean[:, None])
                best = np.argmin(loss, axis=1)
                least, cut = loss[np.arange(len(p)), best], grid[best]
                least = np.where(p > 0.0, np.maximum(least, 0.0), 0.0)
                found[f"widest_{name}"][judged] += sign * weight * least
                # of the chance of the value, by the rows that show the first run
                residual = first_weight[judged] * (is_own - p) * np.where(p > 0.0, cut - mean, 0.0)
                # of what follows it, by the rows that have it and show the second run
                mass = np.where(is_own & (p > RAREST), second_weight[judged] / np.maximum(p, RAREST), 0.0)
                seen = np.maximum(score - cut, 0.0) + part * (cut - score)
                with np.errstate(invalid="ignore"):
                    follows = np.where(mass > 0.0, mass * (seen - least), 0.0)
                found[name][judged] += weight * (sign * (least + follows) + residual)
    return Couplings(**found, chance=chances, mean=means, exact=exact)


def _which(table: pd.DataFrame, runs: Runs) -> NDArray[np.int64]:
    """Return which of the values of the first run each row has, -1 for none of them."""
    values = pd.MultiIndex.from_frame(runs.levels)
    return np.asarray(values.get_indexer(pd.MultiIndex.from_frame(table[runs.columns])), dtype=np.int64)


def _replace(table: pd.DataFrame, runs: Runs, value: int) -> pd.DataFrame:
    """Return rows with the columns of the first run set to one of its values, of the same types."""
    row = runs.levels.iloc[[value]]
    repeated = row.loc[row.index.repeat(len(table))].set_index(table.index)
    return table.assign(**{name: repeated[name].astype(table[name].dtype) for name in runs.columns})
