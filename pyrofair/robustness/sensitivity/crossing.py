"""Where a conclusion flips: the first zero of its margin, interpolated between the values of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

__all__ = ["crossing", "last_crossing"]


def crossing(at: NDArray[np.float64], margin: NDArray[np.float64]) -> float:
    """Return where a margin (k,) at increasing values (k,) is 0 first: NaN if not positive at the first, else inf.

    Between values the margin is a monotone cubic.

    >>> crossing(np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.5, -0.5])).__round__(1)
    1.6
    """
    lost = np.flatnonzero(margin <= 0.0)
    if not len(lost):
        return np.inf
    if lost[0] == 0:
        return np.nan
    curve = PchipInterpolator(at, margin)
    roots = curve.solve(0.0, extrapolate=False)
    inside = roots[(roots > at[lost[0] - 1]) & (roots <= at[lost[0]])]
    return float(inside[0]) if len(inside) else float(at[lost[0]])


def last_crossing(at: NDArray[np.float64], margins: Sequence[NDArray[np.float64]]) -> float:
    """Return where the last of several margins that are positive at the first value is 0 first; NaN without any."""
    held = [crossing(at, margin) for margin in margins if margin[0] > 0.0]
    return max(held, default=np.nan)
