"""The worst ratios of densities within [1/gamma, gamma] and of mean 1: tails beyond a conditional quantile.

Of all ratios with these limits, the mean of D times the ratio is greatest where the ratio is gamma above the quantile
of D of level gamma / (1 + gamma), and 1 / gamma below it; least where it is so for -D. For any other cut the value

    E[D] + E[(ratio - 1) (D - cut)]

is beyond that end, and never inside (Dorn, Guo and Kallus, 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cuts", "Target", "find_cuts", "make_grid", "weighted_quantiles"]

Array = NDArray[np.float64]
MOST_VALUES = 16
"""A variable with no more values has all of them tried as cuts."""
LEVELS = np.array([0.005, 0.05, 0.1, 0.17, 0.25, 0.33, 0.42, 0.5, 0.58, 0.67, 0.75, 0.83, 0.9, 0.95, 0.995])
"""Otherwise quantiles of these levels are."""
ROUNDING = 1e-12
"""Values that differ by no more are one value."""


@dataclass(frozen=True)
class Target:
    """An end that is looked for: the greatest (``sign`` 1) or the least (-1) for ratios within [1/gamma, gamma]."""

    gamma: float
    sign: int


@dataclass(frozen=True)
class Cuts:
    """The best cuts of T targets given some features, with which the worst ratios have the mean 1, (k, T) each.

    ``moved`` is the mean of (ratio - 1) (value - cut), and ``even`` the ratio less 1 of a value that is the cut itself.
    They are the best of all cuts if these are ``exact``: if all values were tried.
    """

    cut: Array
    moved: Array
    even: Array
    exact: bool

    def excess(self, values: Array, targets: tuple[Target, ...]) -> Array:
        """Return the worst ratio less 1, (k, T), for values (k, T); 0 where there is none."""
        gamma, sign = (np.array([getattr(each, name) for each in targets]) for name in ("gamma", "sign"))
        with np.errstate(invalid="ignore"):
            found = np.where(sign * (values - self.cut) > 0.0, gamma - 1.0, 1.0 / gamma - 1.0)
        at_cut = np.abs(values - self.cut) <= ROUNDING
        return np.where(np.isnan(values), 0.0, np.where(at_cut, self.even, found))


def _distinct(values: Array) -> Array:
    """Return the different values, sorted."""
    found = np.unique(values)
    return found[np.diff(found, prepend=-np.inf) > ROUNDING]


def make_grid(values: Array, weight: Array) -> tuple[Array, bool]:
    """Return the cuts to try for values (m,) of weights (m,), and whether these are all values, or quantiles."""
    every = _distinct(values)
    exact = len(every) <= MOST_VALUES
    return every if exact else _distinct(weighted_quantiles(values, weight, LEVELS)), exact


def weighted_quantiles(values: Array, weight: Array, levels: Array) -> Array:
    """Return the least values (m,) that hold shares of the weights, the levels."""
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / weight.sum()
    return np.asarray(values[order][np.searchsorted(share, levels).clip(max=len(order) - 1)])


def find_cuts(
    values: Array,
    of: tuple[int, ...],
    weight: Array,
    targets: tuple[Target, ...],
    learn: Callable[[Array], list[Array]],
) -> list[Cuts]:
    """Return the best cuts of a grid for each set of k rows.

    ``values`` (m, V) are the variables whose tails are looked for, of rows learned from with weights (m,); ``of`` is
    the column that each of the T targets is about; ``learn`` returns the conditional means (k, c) of columns (m, c), of
    each set of rows.
    """
    grids, exact = zip(*(make_grid(column, weight) for column in values.T), strict=True)
    parts = [np.maximum(column[:, None] - grid, 0.0) for column, grid in zip(values.T, grids, strict=True)]
    found = learn(np.column_stack([values, *parts]))
    starts = np.cumsum([values.shape[1], *map(len, grids)])
    cuts = []
    for means in found:
        own, moved, even = (np.empty((len(means), len(targets))) for _ in range(3))
        for i, (target, column) in enumerate(zip(targets, of, strict=True)):
            grid, over = grids[column], means[:, starts[column] : starts[column + 1]]
            mean = means[:, column : column + 1]
            beyond = over if target.sign > 0 else over - mean + grid
            best = np.argmin(target.sign * grid + (1.0 + target.gamma) * beyond, axis=1)
            own[:, i] = grid[best]
            low = 1.0 / target.gamma
            tail = np.take_along_axis(beyond, best[:, None], axis=1)[:, 0]
            moved[:, i] = (low - 1.0) * (mean[:, 0] - own[:, i]) + target.sign * (target.gamma - low) * tail
            even[:, i] = _even_ratio(grid, over, best, target) if exact[column] else low - 1.0
        cuts.append(Cuts(own, moved, even, all(exact)))
    return cuts


def _even_ratio(grid: Array, over: Array, best: NDArray[np.int64], target: Target) -> Array:
    """Return the ratio less 1, (k,), of the value at the cut, with which the ratios of all values have the mean 1.

    ``over`` (k, G) are means of what values exceed those of the grid by, which are all values.
    """
    above = np.zeros((len(over), len(grid) + 1))
    above[:, 0] = 1.0
    above[:, 1:-1] = ((over[:, :-1] - over[:, 1:]) / np.diff(grid)).clip(0.0, 1.0)
    reached, beyond = (np.take_along_axis(above, best[:, None] + i, axis=1)[:, 0] for i in (0, 1))
    if target.sign < 0:
        reached, beyond = 1.0 - beyond, 1.0 - reached
    high, low = target.gamma - 1.0, 1.0 / target.gamma - 1.0
    here = (reached - beyond).clip(np.finfo(float).tiny)
    return np.asarray(-((high * beyond + low * (1.0 - reached)) / here).clip(-high, -low))
