"""Critical values: by how many standard errors intervals reach, of one estimate and of several that hold together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, ndtri, stdtrit
from scipy.stats import qmc

__all__ = ["quantile_of_largest", "reach_of"]

Array = NDArray[np.float64]

POINTS = 15
"""Two to this power quasi-random points find the quantile up to 0.01."""
BLOCK = 1 << 12
"""The points that are made at once where there are many estimates."""
FEW_ESTIMATES = 64
"""So many estimates have points that are kept for the next call."""
MOST_ESTIMATES = 2_000
"""Of more estimates no points are made, and the quantile is that of independent ones, never too small."""
NONE = 1e-12
"""The standard error, relative to the largest, below which there is rounding alone."""
SMOOTH = 1e-6
"""Eigenvalues of this size and below have less than their root, whose slope at 0 would make much of rounding."""
ALIKE = 1e-9
"""What correlations tell of two estimates is the same if it differs by less."""


def reach_of(level: float, degrees: float = np.inf) -> float:
    """Return the quantile of the normal distribution or, with finite ``degrees``, of Student's t; NaN without any."""
    if np.isinf(degrees):
        return NormalDist().inv_cdf((1.0 + level) / 2.0)
    return float(stdtrit(degrees, (1.0 + level) / 2.0)) if degrees > 0.0 else np.nan


def quantile_of_largest(covariance: Array, level: float, degrees: float = np.inf) -> float:
    """Return the quantile of the largest absolute value of k normal variables (covariance (k, k)) over their errors.

    All k lie within it with the probability ``level``; with finite ``degrees`` of freedom of the standard errors, one
    scale of all, the variables are Student's t (Hothorn, Bretz and Westfall, 2008). An estimate without error does not
    count. The value is never below that of one variable, nor above that of independent ones, which bounds it for any
    correlations (Sidak, 1967). Equal calls give equal numbers, and so do another order of the estimates, other signs,
    and rounding: quasi-random points are turned by the symmetric root of the correlations, in an order and with signs
    that the correlations themselves decide.
    """
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    kept = spread > NONE * max(float(spread.max(initial=0.0)), 1e-300)
    k = int(kept.sum())
    alone = reach_of(level, degrees)
    if k < 2 or np.isnan(alone):
        return alone
    independent = reach_of(float(np.exp(np.log(level) / k)), degrees)
    if k > MOST_ESTIMATES:
        return independent
    root = _root(covariance[np.ix_(kept, kept)] / np.outer(spread[kept], spread[kept]))
    largest = np.concatenate([_largest(points, root, degrees) for points in _blocks(k + int(np.isfinite(degrees)))])
    return min(max(float(np.quantile(largest, level)), alone), independent)


def _root(correlation: Array) -> Array:
    """Return the symmetric root of correlations (k, k), smooth in them, in an order that is not the estimates'."""
    squares, k = correlation**2, len(correlation)
    near = squares / squares.sum(axis=1).max()  # of no slope above 1, so that rounding stays small
    own = 0.1 * near.sum(axis=1) + ((correlation @ correlation) * correlation).sum(axis=1) / k**2
    key, signed, order, signs = own, np.zeros(k), np.empty(k, dtype=np.int64), np.ones(k)
    left, linked = np.ones(k, dtype=bool), np.zeros(k, dtype=bool)
    for place, factor in enumerate(np.random.default_rng(0).uniform(0.5, 1.0, k)):
        for _ in range(2):
            key = own + near @ np.cos(3.0 * key) / 3.0
        # A sign is free only of what has no link to those before: what has one comes first.
        known = np.where(left, key + np.abs(signed) + 1e4 * linked, -np.inf)
        order[place] = i = int(np.argmax(known >= known.max() - ALIKE))
        signs[place], left[i] = -1.0 if signed[i] < -ALIKE else 1.0, False
        own[i], linked, signed = factor, linked | (squares[i] > ALIKE), signed + factor * signs[place] * correlation[i]
    scale, vectors = np.linalg.eigh(correlation[np.ix_(order, order)] * np.outer(signs, signs))
    scale = np.maximum(scale, 0.0)
    return np.asarray((vectors * (scale / np.sqrt(scale + SMOOTH))) @ vectors.T)


def _largest(points: Array, root: Array, degrees: float) -> Array:
    """Return the largest absolute variable at each of m points (m, k), or (m, k + 1) where the scale varies too."""
    k = len(root)
    largest = np.abs(points[:, :k] @ root).max(axis=1)
    if np.isinf(degrees):
        return np.asarray(largest)
    return np.asarray(largest / np.sqrt(chdtri(degrees, ndtr(-points[:, k])) / degrees))


def _blocks(k: int) -> Iterator[Array]:
    """Yield the points of k independent standard normal variables, blocks of (n, k)."""
    if k <= FEW_ESTIMATES:
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
        yield np.asarray(ndtri(np.clip(engine.random(BLOCK), 1e-12, 1.0 - 1e-12)), dtype=np.float64)
