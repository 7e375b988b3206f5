"""Bounds from two marginal probabilities, or from a count of test errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from pyrofair._validation import require_integer, require_real, require_unmasked, shown
from pyrofair.exceptions import DataError

__all__ = ["PIUBounds", "feasible_interval", "piu_bounds", "test_set_bound"]

MOST_ROWS = 10**15
"""The most test rows of :func:`test_set_bound`, beyond which exact tails lose their digits."""


@dataclass(frozen=True, eq=False)
class PIUBounds:
    """Bounds on PIU, the probability P(Y_{A<=0} != Y_{A<=1||pi}), from the two marginals; made by `piu_bounds`.

    Parameters
    ----------
    lower, upper : float or numpy.ndarray
        The ends of the sharp interval: each is attained by a joint distribution with these marginals.
    independent : float or numpy.ndarray
        P^I, the value of PIU if the two outcomes were independent. Not a bound.

    References
    ----------
    Chikahara et al. 2021, eq. (A19), the sharp interval; eq. (8), P^I.
    """

    lower: float | npt.NDArray[np.float64]
    upper: float | npt.NDArray[np.float64]
    independent: float | npt.NDArray[np.float64]

    @property
    def paper(self) -> float | npt.NDArray[np.float64]:
        """The paper's upper bound 2 P^I, at most 2 (Theorem 1, eq. (7)); never below `upper`."""
        return 2 * self.independent

    @property
    def rubinstein(self) -> float | npt.NDArray[np.float64]:
        """The bound 200 P^I of Rubinstein and Singla 2017, which the paper compares its own with."""
        return 200 * self.independent

    @property
    def vacuous(self) -> bool | npt.NDArray[np.bool_]:
        """Whether the paper's bound is 1 or more: it then proves nothing. That is inconclusive, not unfair."""
        return self.paper >= 1


def piu_bounds(p0: npt.ArrayLike, p1: npt.ArrayLike) -> PIUBounds:
    """Bound the probability of individual unfairness (PIU) by the two marginals alone.

    Assumes nothing about the joint distribution of the two potential outcomes.

    Parameters
    ----------
    p0, p1 : array_like, broadcast together
        P(Y_{A<=0} = 1) and P(Y_{A<=1||pi} = 1), in [0, 1].

    Returns
    -------
    PIUBounds
        Floats for two scalars, otherwise arrays of the broadcast shape.

    Raises
    ------
    DataError
        If a marginal is NaN or outside [0, 1], or the shapes do not broadcast.

    References
    ----------
    Chikahara et al. 2021, Theorem 1, eq. (7) and (8); eq. (A19).

    Examples
    --------
    >>> bounds = piu_bounds(0.25, 0.625)
    >>> bounds.lower, bounds.upper, bounds.paper, bounds.vacuous
    (0.375, 0.875, 1.125, True)
    """
    a, b = _broadcast(_probability(p0, "p0"), _probability(p1, "p1"))
    return PIUBounds(
        lower=_plain(np.abs(a - b)),
        upper=_plain(np.minimum(b, 1 - a) + np.minimum(a, 1 - b)),
        independent=_plain(b * (1 - a) + (1 - b) * a),
    )


def feasible_interval(
    p0: npt.ArrayLike, level: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """For each baseline marginal, the other marginals that keep the paper's penalty at or below a level.

    Parameters
    ----------
    p0 : array_like
        P(Y_{A<=0} = 1), in [0, 1].
    level : array_like, broadcast with p0
        The paper's delta, in [0, 1].

    Returns
    -------
    low, high : numpy.ndarray
        All p1 with ``p1 (1 - p0) + (1 - p1) p0 <= level`` are those in [low, high]; both are NaN where there is none.

    Raises
    ------
    DataError
        If an input is NaN or outside [0, 1], or the shapes do not broadcast.

    References
    ----------
    Chikahara et al. 2021, eq. (11) and the red regions of Figure 2.

    Examples
    --------
    >>> low, high = feasible_interval([0.0, 0.5, 0.875], 0.25)
    >>> low
    array([0.        ,        nan, 0.83333333])
    >>> high
    array([0.25,  nan, 1.  ])
    """
    a, delta = _broadcast(_probability(p0, "p0"), _probability(level, "level"))
    # The penalty a + p1 (1 - 2a) is linear in p1: it rises for a < 1/2, falls for a > 1/2, and is 1/2 at a = 1/2.
    slope = 1 - 2 * a
    edge = np.divide(delta - a, slope, out=np.zeros_like(slope), where=slope != 0)
    low = np.where(slope < 0, np.clip(edge, 0, 1), 0.0)
    high = np.where(slope > 0, np.clip(edge, 0, 1), 1.0)
    empty = np.minimum(a, 1 - a) > delta
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def test_set_bound(errors: int, n: int, delta: float = 0.05) -> tuple[float, float]:  # noqa: PT028
    """Confidence interval for the error rate of a classifier on fresh rows, by inverting exact binomial tails.

    Assumes that the test rows are independent and took no part in training or selection.

    Parameters
    ----------
    errors : int
        Number of wrong predictions among the test rows.
    n : int
        Number of test rows.
    delta : float, default 0.05
        Probability of missing the error rate on *each* side: the default is a 90 % two-sided interval.

    Returns
    -------
    low, high : float
        The error rates at which so many errors or more, respectively so few or fewer, have probability delta.

    Raises
    ------
    DataError
        If the counts are not integers with 0 <= errors <= n and n >= 1, or delta is not in (0, 1/2).

    References
    ----------
    Chikahara et al. 2021, table "Test error and test set bound"; Langford 2005, "Tutorial on practical prediction
    theory for classification".

    Examples
    --------
    >>> low, high = test_set_bound(24, 100)
    >>> round(low, 5), round(high, 5)
    (0.17135, 0.3206)
    """
    n = require_integer("n", _count(n), most=MOST_ROWS, hint="It is the number of test rows.")
    errors = require_integer(
        "errors", _count(errors), least=0, most=n, hint="Pass the number of errors, not the error rate."
    )
    delta = require_real(
        "delta", delta, above=0.0, below=0.5, such_as=0.05, hint="It is the miss probability of one side."
    )
    low = 0.0 if errors == 0 else float(stats.beta.ppf(delta, errors, n - errors + 1))
    high = 1.0 if errors == n else float(stats.beta.isf(delta, errors + 1, n - errors))
    return low, high


# The name is the field's; it looks like a test's to pytest and to ruff.
test_set_bound.__dict__["__test__"] = False


def _count(value: object) -> object:
    """Return an integer in floating point as an integer, and anything else as it is."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= MOST_ROWS:
        return int(value)
    return value


def _probability(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    require_unmasked(name, values)
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        given = np.array(None)
    if given.dtype.kind not in "iuf" and given.size:
        raise DataError(f"{name}={shown(values)} must be a number in [0, 1], or an array of them.")
    array = given.astype(np.float64)
    wrong = ~((array >= 0) & (array <= 1))
    if wrong.any():
        raise DataError(
            f"{name} holds {array[wrong][0]}, which is not in [0, 1]. A Horvitz-Thompson estimate can leave [0, 1]: "
            "normalise its weights, or report that it did."
        )
    return array


def _broadcast(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError as error:
        raise DataError(
            f"Shapes {a.shape} and {b.shape} do not broadcast; pass scalars or arrays of one shape."
        ) from error
    return a, b


def _plain(values: npt.NDArray[np.float64]) -> float | npt.NDArray[np.float64]:
    return float(values) if values.ndim == 0 else values
