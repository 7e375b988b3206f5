"""Bounds on PIU from two marginals or given the shared nodes, and on the error rate from a count of test errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from pyrofair._validation import require_integer, require_real, require_unmasked, shown
from pyrofair.effects.potential_outcomes import CounterfactualSample, Worlds
from pyrofair.exceptions import DataError

__all__ = [
    "PIUBounds",
    "Signs",
    "UnitMeans",
    "bounds_of_marginals",
    "choose_signs",
    "feasible_interval",
    "piu_bounds",
    "split_draws",
    "table_of_bounds",
    "test_set_bound",
    "unit_disagreement",
    "unit_ends",
    "unit_means",
]

Vector = NDArray[np.float64]

ROUNDING = 1e-9
MOST_ROWS = 10**15
"""The most test rows of :func:`test_set_bound`, beyond which exact tails lose their digits."""


@dataclass(frozen=True, eq=False)
class PIUBounds:
    """Bounds on PIU, the probability P(Y_{A<=0} != Y_{A<=1||pi}), from the two marginals; made by `piu_bounds`.

    ``lower`` and ``upper`` are the ends of the sharp interval (Chikahara et al. 2021, eq. (A19)), each attained by a
    joint distribution; ``independent`` is P^I (eq. (8)), the value if the outcomes were independent, and no bound.
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
    """Bound the probability of individual unfairness (PIU) by the two marginals alone, whatever their joint.

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
    a, b = _probabilities(p0=p0, p1=p1)
    found = np.abs(a - b), np.minimum(b, 1 - a) + np.minimum(a, 1 - b), b * (1 - a) + (1 - b) * a
    return PIUBounds(*(each if each.ndim else float(each) for each in found))


def bounds_of_marginals(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Return the ends of the mean difference and of PIU for any two marginals between the ends given."""
    (l0, u0), (l1, u1) = first, second
    apart = np.maximum(np.maximum(l1 - u0, l0 - u1), 0.0)
    nearest = np.minimum(np.maximum(1.0, l0 + l1), u0 + u1)  # of the sum of the marginals to 1
    return (l1 - u0, u1 - l0), (apart, 1.0 - np.abs(1.0 - nearest))


def table_of_bounds(first: tuple[float, float], second: tuple[float, float], piu: tuple[float, float]) -> pd.DataFrame:
    """Return the ends of both marginals, and what follows from them for the mean difference, with those of PIU."""
    effect, _ = bounds_of_marginals(first, second)
    table = {"p_y0": first, "p_ypi": second, "mean_unfair_effect": effect, "piu": piu}
    found: pd.DataFrame = pd.DataFrame.from_dict(table, orient="index", columns=["lower", "upper"])
    return found.rename_axis("quantity")


def feasible_interval(
    p0: npt.ArrayLike, level: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """For each baseline marginal, the other marginals that keep the paper's penalty at or below a level.

    The penalty is :func:`disagreement`; :func:`pyrofair.audits.plot_feasible_region` draws the region.

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
    a, delta = _probabilities(p0=p0, level=level)
    # The penalty a + p1 (1 - 2a) is linear in p1: it rises for a < 1/2, falls for a > 1/2, and is 1/2 at a = 1/2.
    slope = 1 - 2 * a
    edge = np.divide(delta - a, slope, out=np.zeros_like(slope), where=slope != 0)
    low = np.where(slope < 0, np.clip(edge, 0, 1), 0.0)
    high = np.where(slope > 0, np.clip(edge, 0, 1), 1.0)
    empty = np.minimum(a, 1 - a) > delta
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def test_set_bound(errors: int, n: int, delta: float = 0.05) -> tuple[float, float]:  # noqa: PT028
    """Confidence interval for the error rate of a classifier on fresh rows, by inverting exact binomial tails.

    Assumes independent test rows that took no part in training or selection, as :func:`pyrofair.audit` does.

    Parameters
    ----------
    errors, n : int
        Numbers of wrong predictions and of test rows.
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
    errors = require_integer("errors", _count(errors), least=0, most=n, hint="It is their number, not the error rate.")
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
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= MOST_ROWS else value


def _probabilities(**given: npt.ArrayLike) -> list[npt.NDArray[np.float64]]:
    """Return two named arrays of probabilities, broadcast together."""
    arrays = []
    for name, values in given.items():
        require_unmasked(name, values)
        try:
            array = np.asarray(values)
        except (TypeError, ValueError):  # rows of different lengths
            array = np.array(None)
        if array.dtype.kind not in "iuf" and array.size:
            raise DataError(f"{name}={shown(values)} must be a number in [0, 1], or an array of them.")
        array = array.astype(np.float64)
        if (wrong := ~((array >= 0) & (array <= 1))).any():
            raise DataError(
                f"{name} holds {array[wrong][0]}, which is not in [0, 1]. A Horvitz-Thompson estimate can leave it: "
                "normalise its weights, or report that it did."
            )
        arrays.append(array)
    try:
        return [*np.broadcast_arrays(*arrays)]
    except ValueError as error:
        shapes = " and ".join(str(each.shape) for each in arrays)
        raise DataError(f"Shapes {shapes} do not broadcast; pass scalars or arrays of one shape.") from error


@dataclass(frozen=True)
class UnitMeans:
    """Weights of k units (sum 1), mean scores in both worlds (k,), and the ``noise`` of drawing in their difference."""

    weight: Vector
    first: Vector
    second: Vector
    noise: Vector | float = 0.0

    @property
    def effect(self) -> Vector:
        """``b_u - a_u``, shape (k,)."""
        return self.second - self.first

    @property
    def rest(self) -> Vector:
        """``1 - a_u - b_u``, shape (k,)."""
        return 1.0 - self.first - self.second


Signs = tuple[tuple[Vector, Vector], ...]
"""For each view, of effect and rest, the side of 0 on which its k units are, by other views: from -1 to 1."""


def unit_means(scores: tuple[Vector, Vector], worlds: Worlds) -> UnitMeans:
    """Return the means of the scores, (m0,) and (m1,), within the same units of both worlds."""
    if any(world.unit is None for world in worlds):
        raise DataError("These worlds name no units, so nothing is known to be shared by them.")
    weight = [np.bincount(world.unit_index, world.weight) for world in worlds]
    if not np.array_equal(weight[0] > 0, weight[1] > 0):
        raise DataError("Some units have weight in one world only, so that their two means cannot be compared.")
    means = [
        np.bincount(world.unit_index, world.weight * score) / np.where(total > 0, total, 1.0)
        for world, score, total in zip(worlds, scores, weight, strict=True)
    ]
    noise = [_noise(*each) for each in zip(scores, worlds, means, strict=True)]
    return UnitMeans(weight[0] / weight[0].sum(), means[0], means[1], noise[0] + noise[1])


def _noise(score: Vector, world: CounterfactualSample, mean: Vector) -> Vector:
    """Return the variance of each unit's mean: of draws, which weigh the same, by their spread; otherwise 0."""
    index, count = world.unit_index, np.bincount(world.unit_index)
    total, squares = np.bincount(index, world.weight), np.bincount(index, world.weight**2)
    drawn = (count > 1) & (count * squares <= total**2 * (1.0 + ROUNDING))
    spread = np.bincount(index, (score - mean[index]) ** 2)
    return np.asarray(np.divide(spread, count * (count - 1.0), out=np.zeros(len(count)), where=drawn))


def choose_signs(views: Sequence[UnitMeans]) -> Signs:
    """Return the signs for each view: those of the means of the other views, whose errors are independent of its own.

    Where units are drawn, their means are first shrunk towards the mean of all, by the noise of drawing: one sign for
    all is the best if units differ by noise alone. Nothing is chosen by what the view itself shows, such as the signs
    that give the tighter end: the greater of two estimates errs inward on average even if neither of them does.
    """
    others = [[view for j, view in enumerate(views) if j != i] for i in range(len(views))]
    return tuple((_sides([v.effect for v in each], each), _sides([v.rest for v in each], each)) for each in others)


def _sides(parts: Sequence[Vector], views: Sequence[UnitMeans]) -> Vector:
    """Return the side of 0, (k,), on which the mean over views of one of their parts is."""
    found, weight = np.mean(parts, axis=0), np.mean([view.weight for view in views], axis=0)
    noise = np.zeros(len(found)) + sum(view.noise for view in views) / len(views) ** 2
    centre = weight @ found
    true = max(float(weight @ ((found - centre) ** 2 - noise)), 0.0)
    kept = np.divide(true, true + noise, out=np.ones(len(found)), where=noise > 0.0)
    return np.asarray(np.sign(centre + kept * (found - centre)))


def unit_ends(views: Sequence[UnitMeans], signs: Signs) -> tuple[float, float]:
    """Return the lower and the upper bound on PIU given the units, from two or more views and :func:`choose_signs`."""
    lower = np.mean([v.weight @ (s * v.effect) for v, (s, _) in zip(views, signs, strict=True)])
    upper = 1.0 - np.mean([v.weight @ (t * v.rest) for v, (_, t) in zip(views, signs, strict=True)])
    return float(lower), float(upper)


def unit_disagreement(views: Sequence[UnitMeans]) -> float:
    """Return sum w (a + b - 2 a b), the products taken across views, whose errors are independent: no bias."""
    found = [
        one.weight @ (one.first + one.second - one.first * other.second - other.first * one.second)
        for one, other in permutations(views, 2)
    ]
    return float(np.mean(found))


def split_draws(worlds: Worlds) -> tuple[Worlds, ...]:
    """Return two views with alternate draws of each unit; worlds without several draws per unit are one view."""
    if any(world.unit is None or np.bincount(world.unit_index).min() < 2 for world in worlds):
        return (worlds,)
    return tuple((_half(worlds[0], which), _half(worlds[1], which)) for which in (0, 1))


def _half(world: CounterfactualSample, which: int) -> CounterfactualSample:
    """Return every other draw of each unit, from the first (0) or the second (1) on; a unit keeps its weight."""
    index = world.unit_index
    chosen = np.flatnonzero(pd.Series(index).groupby(index).cumcount().to_numpy() % 2 == which)
    own = index[chosen]
    whole = np.bincount(index, world.weight)
    part = np.bincount(own, world.weight[chosen], len(whole))
    share = np.divide(whole, part, out=np.ones(len(whole)), where=part > 0)
    return CounterfactualSample(
        world.rows.iloc[chosen], world.weight[chosen] * share[own], np.asarray(world.unit)[chosen]
    )
