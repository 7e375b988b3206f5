"""The critical value of intervals that hold together: a quantile of the largest |t| of jointly normal estimates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, qmc

__all__ = ["quantile_of_largest"]

Array = NDArray[np.float64]

POINTS = 15
"""Two to this power quasi-random points find the quantile up to 0.01."""
BLOCK = 1 << 12
"""The points that are made at once where there are many directions."""
FEW_DIRECTIONS = 64
"""So many directions have points that are kept for the next call."""
MOST_DIRECTIONS = 2_000
"""In more directions no points are made, and the quantile is that of independent estimates, never too small."""
NONE = 1e-12
"""The standard error, relative to the largest, and the share of variance, below which there is rounding alone."""


def quantile_of_largest(covariance: Array, level: float) -> float:
    """Return the quantile of the largest absolute value of normal variables over their standard errors.

    An estimate without error does not count. The value is never below that of one variable, nor above that of
    independent ones, which bounds it for any correlations (Sidak, 1967). Equal calls give equal numbers.

    Parameters
    ----------
    covariance
        Of k estimates, (k, k).
    level
        The probability that all k lie within it.

    References
    ----------
    Hothorn, Bretz and Westfall (2008); Sidak (1967), for the bound.
    """
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    kept = spread > NONE * max(float(spread.max(initial=0.0)), 1e-300)
    k = int(kept.sum())
    alone = NormalDist().inv_cdf((1.0 + level) / 2.0)
    if k < 2:
        return alone
    independent = float(norm.isf(-np.expm1(np.log(level) / k) / 2.0))
    scale, vectors = np.linalg.eigh(covariance[np.ix_(kept, kept)] / np.outer(spread[kept], spread[kept]))
    directions = np.flatnonzero(scale > NONE * scale.max())[::-1]
    if len(directions) > MOST_DIRECTIONS:
        return independent
    to_estimates = (vectors[:, directions] * np.sqrt(scale[directions])).T
    largest = np.concatenate([np.abs(points @ to_estimates).max(axis=1) for points in _blocks(len(directions))])
    return min(max(float(np.quantile(largest, level)), alone), independent)


def _blocks(k: int) -> Iterator[Array]:
    """Yield the points of k independent standard normal variables, blocks of (n, k)."""
    if k <= FEW_DIRECTIONS:
        points = _held(k)
        yield from (points[start : start + BLOCK] for start in range(0, len(points), BLOCK))
    else:
        yield from _make(k)


@lru_cache(maxsize=2)
def _held(k: int) -> Array:
    return np.concatenate(list(_make(k)))


def _make(k: int) -> Iterator[Array]:
    engine = qmc.Sobol(k, rng=np.random.default_rng(0))
    for _ in range((1 << POINTS) // BLOCK):
        yield np.asarray(norm.ppf(np.clip(engine.random(BLOCK), 1e-12, 1.0 - 1e-12)), dtype=np.float64)
