"""Estimates with their uncertainty: the one place where intervals are made, of one quantity and of several together.

An :class:`Estimate` is a value with either what each independent unit adds to its error or replicates of it.
:class:`Estimates` make one for every quantity of an audit, from the influence values of a source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.simultaneous import quantile_of_largest, reach_of

__all__ = [
    "AUDITED",
    "CAUSAL",
    "GIVEN_UNITS",
    "OUTSIDE",
    "PLAIN",
    "QUANTITIES_OF",
    "REST",
    "SIZE",
    "VACUOUS",
    "Estimate",
    "Estimates",
    "Image",
    "Key",
    "Samples",
    "absolute_interval",
    "draw_normal",
    "joint_covariance",
    "mean_and_spread",
    "percentiles",
    "reach_of",
    "reach_of_all",
]  # fmt: skip

Array = NDArray[np.float64]

AUDITED = "audited"
"""The label of the source that is audited with; those of its single groups are ``"group 0"`` and ``"group 1"``."""
CAUSAL = ("y0", "ypi", "lower", "rest", "disagreement")
"""The functionals of potential outcomes, which a source gives influence values of."""
GIVEN_UNITS = "piu_double_disagreement"
"""The additional quantity of worlds that are compared unit by unit, where a unit's scores are means."""
PAPER = "piu_paper_bound"
VACUOUS = "vacuous: a bound of 1 or more proves nothing, fair or unfair"
OUTSIDE = "outside [0, 1] by sampling error; cut there it would err inward on average"

DRAWS = 2000
"""The number of draws from the joint normal distribution of the estimates."""
CHUNK = 1 << 16
"""The number of rows of which covariances are summed at once."""
MOST_HELD = 1 << 24
"""The numbers that are held at once."""
ROUNDING = 1e-9
FEW = 10.0
"""Where the decisions of fewer effective rows differ, a Wald interval of their share is too short."""


class Key(NamedTuple):
    """What an estimate is of; the names of the column levels of replicates."""

    source: str
    model: str
    decisions: Any
    quantity: str


class Image(NamedTuple):
    """How a signed value x becomes what is reported: x (sign 0), centre + abs(x) (sign 1), or 1 - abs(x) (sign -1)."""

    centre: float = 0.0
    sign: int = 0

    def of(self, value: Any) -> Any:
        """Return what is reported of signed values."""
        return value if not self.sign else self.centre + np.abs(value) if self.sign > 0 else 1.0 - np.abs(value)

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Return the image of an interval, which holds the value at the kink where the signed interval holds 0."""
        if not self.sign:
            return low, high
        low, high = absolute_interval(low, high)
        return (self.centre + low, self.centre + high) if self.sign > 0 else (1.0 - high, 1.0 - low)


PLAIN, SIZE, REST = Image(), Image(sign=1), Image(sign=-1)
QUANTITIES_OF: dict[str, tuple[dict[str, float], Image]] = {
    "positive_rate": ({"positive": 1.0}, PLAIN),
    "accuracy": ({"correct": 1.0}, PLAIN),
    "p_y0": ({"y0": 1.0}, PLAIN),
    "p_ypi": ({"ypi": 1.0}, PLAIN),
    "mean_unfair_effect": ({"ypi": 1.0, "y0": -1.0}, PLAIN),
    GIVEN_UNITS: ({"disagreement": 2.0}, PLAIN),
    "majority_rate": ({"outcome": 1.0}, Image(0.5, 1)),
    "piu_lower": ({"lower": 1.0}, SIZE),
    "piu_upper": ({"rest": 1.0}, REST),
    PAPER: ({"y0": np.nan, "ypi": np.nan}, PLAIN),
}
"""For each quantity its functionals with their factors, and the image of their sum; the paper's bound is quadratic."""


def percentiles(draws: Array, level: float) -> tuple[Any, Any]:
    """Return the percentile interval of B replicates (B, ...).

    The k-th smallest is taken for the quantile k / (B + 1), which is the share expected below it: with k / B an
    interval of 200 replicates at 95 % would hold 94 %.
    """
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0, method="weibull")
    return low, high


def absolute_interval(low: float, high: float) -> tuple[float, float]:
    """Return the interval of an absolute value: the image of that of the signed one, so that both hold 0 or neither.

    Percentiles of absolute values never hold 0, however small the value.
    """
    return float(max(low, -high, 0.0)), float(max(high, -low))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A signed value x with its uncertainty, and what is reported of it: x itself, its size, or one minus its size.

    The errors e of independent units give the standard error s = sqrt(sum of e^2 + more) and the interval x - c s to
    x + c s, where c is the quantile of the normal distribution, or of Student's t. Replicates give the percentile
    interval. What is reported has the image of the interval. An estimate without errors and replicates has none.
    Results of simulation, with a Monte-Carlo error alone, are :class:`pyrofair.effects.Estimate`.

    Parameters
    ----------
    value
        The value x inside its ``image``.
    errors
        What each independent unit, a row or a cluster, adds to the error of x, (k,).
    at
        The positions of these units among all of a longer table, ascending, (k,); None for all, one after the other.
    draws
        Replicates of x, (B,).
    image
        How x becomes what is reported.
    more
        Variance that the errors do not hold: of second order, or between splits.
    degrees
        Degrees of freedom of the standard error; finite where the units are few clusters.
    size
        The effective number of rows of which x is a share. If it is given and fewer than 10 rows lie on one side, the
        interval reaches at least as far as Wilson's.
    """

    value: float
    errors: Array | None = None
    at: NDArray[np.int64] | None = None
    draws: Array | None = None
    image: Image = PLAIN
    more: float = 0.0
    degrees: float = np.inf
    size: float = np.nan

    @property
    def estimate(self) -> float:
        """What is reported of the value."""
        return float(self.image.of(self.value))

    def __float__(self) -> float:
        return self.estimate

    def __round__(self, digits: int = 0) -> float:
        return round(self.estimate, digits)

    @cached_property
    def spread(self) -> float:
        """The standard error of the value, NaN where it has none."""
        if self.errors is not None:
            return float(np.sqrt(max(float(self.errors @ self.errors) + self.more, 0.0)))
        return float(np.std(self.draws, ddof=1)) if self.draws is not None else np.nan

    def interval(self, level: float, reach: float | None = None) -> tuple[float, float]:
        """Return the interval, NaN where there is none.

        It reaches ``reach`` standard errors to either side, by default those of its level for this estimate alone.
        """
        if self.draws is not None:
            return self.image.ends(*map(float, percentiles(self.draws, level)))
        reach = reach_of(level, self.degrees) if reach is None else reach
        low, high = self.image.ends(self.value - reach * self.spread, self.value + reach * self.spread)
        if np.isnan(self.size):
            return low, high
        first, last = _wilson(min(max(self.estimate, 0.0), 1.0), self.size, reach)
        return min(low, first), max(high, last)

    def near_kink(self, level: float) -> bool:
        """Return whether the value is within its sampling error of where its image folds."""
        return bool(self.image.sign) and abs(self.value) <= reach_of(level, self.degrees) * self.spread

    def unfolded(self) -> Estimate:
        """Return what is reported as an estimate without an image, which is right where it is not near the kink."""
        if not self.image.sign:
            return self
        slope = self.image.sign * np.sign(self.value)
        errors = None if self.errors is None else slope * self.errors
        draws = None if self.draws is None else self.image.of(self.draws)
        return replace(self, value=self.estimate, errors=errors, draws=draws, image=PLAIN, size=np.nan)

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference of what is reported of two estimates, by the errors of their units.

        Errors of the same unit are subtracted, those of others are independent. It has no interval where one of them
        has no errors.
        """
        one, two = self.unfolded(), other.unfolded()
        value = one.value - two.value
        if one.errors is None or two.errors is None:
            return Estimate(value)
        at, errors = one.at, one.errors
        if np.array_equal(one._units, two._units):
            errors = errors - two.errors
        else:
            at = np.union1d(one._units, two._units)
            errors = np.zeros(len(at))
            errors[np.searchsorted(at, one._units)] += one.errors
            errors[np.searchsorted(at, two._units)] -= two.errors
        return Estimate(value, errors, at, more=one.more + two.more, degrees=min(one.degrees, two.degrees))

    @property
    def _units(self) -> NDArray[np.int64]:
        assert self.errors is not None, "units have errors"
        return np.arange(len(self.errors)) if self.at is None else self.at


def _wilson(share: float, size: float, reach: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of so many rows, or the share itself where enough lie on either side."""
    if min(share, 1.0 - share) * size >= FEW:
        return share, share
    across = reach * reach / size
    half = reach * np.sqrt(share * (1.0 - share) / size + (reach / (2.0 * size)) ** 2)
    return float((share + across / 2.0 - half) / (1.0 + across)), float((share + across / 2.0 + half) / (1.0 + across))


def reach_of_all(estimates: Sequence[Estimate], level: float) -> float:
    """Return by how many standard errors the intervals of several estimates reach, to hold together.

    Estimates over the same units of a longer table are correlated by them.
    """
    degrees = min((each.degrees for each in estimates), default=np.inf)
    return quantile_of_largest(joint_covariance(estimates), level, degrees)


def joint_covariance(estimates: Sequence[Estimate]) -> Array:
    """Return the covariance of K estimates by the errors that the same units add to them, (K, K)."""
    found = np.diag([each.more for each in estimates]) if len(estimates) else np.zeros((0, 0))
    units = [each._units for each in estimates]
    n = max((int(at[-1]) + 1 for at in units if len(at)), default=0)
    size = max(1, MOST_HELD // max(1, len(estimates)))
    for start in range(0, n, size):
        part = np.zeros((min(size, n - start), len(estimates)))
        for i, (each, at) in enumerate(zip(estimates, units, strict=True)):
            own = slice(*np.searchsorted(at, [start, start + size]))
            part[at[own] - start, i] = each.errors[own]  # type: ignore[index]
        found += part.T @ part
    return found


def mean_and_spread(values: Array, weight: Array, more: float = 0.0) -> tuple[Array, Array]:
    """Return the weighted means of influence values (n, G), and their standard errors, with ``more`` variance, (G,)."""
    share = weight / weight.sum()
    mean = share @ values
    return mean, np.sqrt(share**2 @ (values - mean) ** 2 + more)


def draw_normal(mean: Array, covariance: Array, random_state: int | None) -> Array:
    """Return draws of normal variables, (DRAWS, F)."""
    scale, vectors = np.linalg.eigh(covariance)
    noise = np.random.default_rng(random_state).standard_normal((DRAWS, len(scale)))
    return np.asarray(mean + noise @ (vectors * np.sqrt(np.maximum(scale, 0.0))).T)


class _Clusters(NamedTuple):
    """The G clusters that have a weight: their positions among all, the one of each row, and their effective number.

    ``factor`` is G / (G - 1), for the errors of G clusters sum to 0.
    """

    at: NDArray[np.int64]
    code: NDArray[np.int64]
    size: float

    @property
    def factor(self) -> float:
        return len(self.at) / (len(self.at) - 1.0) if len(self.at) > 1 else np.nan

    def sums(self, errors: Array) -> Array:
        """Return the sums of the errors of rows (n, F) by cluster, (G, F)."""
        found = [np.bincount(self.code, each, len(self.at)) for each in errors.T]
        return np.asarray(np.sqrt(self.factor) * np.column_stack(found))


@dataclass(frozen=True, eq=False)
class Samples:
    """The covariance (F, F) of means that models fitted on several samples add, with the degrees of freedom of it.

    ``rows`` are those of the covariance of the rows: finite where these are few clusters.
    """

    covariance: Array
    degrees: float
    rows: float = np.inf

    def degrees_of(self, own: float, between: float) -> float:
        """Return those of the sum of both variances (Satterthwaite)."""
        lost = own**2 / self.rows + between**2 / self.degrees
        return (own + between) ** 2 / lost if lost > 0.0 else np.inf


@dataclass(frozen=True, eq=False)
class Estimates:
    """The estimates that the weighted means of F functionals of n rows make, jointly normal.

    With the shares w of the rows, of sum 1, row i adds w_i (x_i - mean) to the error of a mean. Rows of a cluster may
    depend on each other: a cluster adds the sum of its rows, times sqrt(G / (G - 1)) for G clusters, and intervals
    reach the quantile of Student's t with the effective number of clusters, less one, as its degrees of freedom.

    Parameters
    ----------
    influence
        Uncentred values, a row each; columns (model, decisions, functional).
    weight
        Weights of the rows, (n,).
    given_shared
        Whether the two worlds share anything, so that there are quantities given it.
    at
        The positions of the rows in a longer table, of which they are a part, ascending, (n,).
    groups
        Codes of clusters, whole numbers from 0 on, (n,), in the longer table if there is one.
    sizes
        Effective rows by model: with these, ends of PIU reach at least as far as Wilson's where few decisions differ.
    apart
        Moves of the values by models learned otherwise, (k, n, F): the products of their means add to the covariance.
    samples
        Where models are fitted on samples of the rows: what that adds to the uncertainty.
    """

    influence: pd.DataFrame
    weight: Array
    given_shared: bool = True
    at: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    sizes: Mapping[str, float] | None = None
    apart: Array | None = field(default=None, repr=False)
    samples: Samples | None = None

    @classmethod
    def of_moments(
        cls,
        labels: pd.Index[Any],
        mean: Array,
        covariance: Array,
        samples: Samples,
        *,
        given_shared: bool = True,
        part: int = 0,
    ) -> Estimates:
        """Return the estimates of means (F,) with a covariance (F, F), in place of whose rows 2 F rows of them stand.

        These have the mean and, in pairs of opposite errors along the directions of the covariance, that covariance.
        Estimates of another ``part`` are of other rows: they are independent of these.
        """
        scale, vectors = np.linalg.eigh(covariance)
        errors = vectors * np.sqrt(2.0 * np.maximum(scale, 0.0)) * len(mean)
        rows = pd.DataFrame(np.vstack([mean + errors.T, mean - errors.T]), columns=labels)
        at = np.arange(part * len(rows), (part + 1) * len(rows))
        return cls(rows, np.ones(len(rows)), given_shared, at=at, samples=samples)

    def within(self, rows: NDArray[np.int64]) -> Estimates:
        """Return the estimates of a part of the rows, by their positions, ascending."""
        at, groups = (None if each is None else each[rows] for each in (self.at, self.groups))
        apart = None if self.apart is None else self.apart[:, rows]
        return Estimates(
            self.influence.iloc[rows], self.weight[rows], self.given_shared,
            rows if at is None else at, groups, apart=apart,
        )  # fmt: skip

    @cached_property
    def mean(self) -> Array:
        """The weighted means, (F,)."""
        return np.asarray(self._share @ self._values, dtype=np.float64)

    @cached_property
    def between(self) -> Array:
        """What the models that were learned add to the covariance of the means, (F, F)."""
        if self.samples is not None:
            return self.samples.covariance
        if self.apart is None:
            return np.zeros((len(self._place),) * 2)
        moves = np.einsum("n,knf->kf", self._share, self.apart)
        return np.asarray(moves.T @ moves)

    @cached_property
    def covariance(self) -> Array:
        """The covariance of the weighted means, (F, F): the products of errors of all units, and those of models."""
        found = np.zeros((len(self._place),) * 2)
        for start in range(0, len(self._values), len(self._values) if self._clusters else CHUNK):
            rows = slice(start, None) if self._clusters else slice(start, start + CHUNK)
            part = self._share[rows, None] * (self._values[rows] - self.mean)
            part = self._clusters.sums(part) if self._clusters else part
            found += part.T @ part
        return np.asarray(found + self.between)

    @cached_property
    def keys(self) -> list[Key]:
        """The quantities that the functionals make."""
        pairs: dict[Any, None] = dict.fromkeys((model, decisions) for model, decisions, _ in self._place)
        return [
            Key(AUDITED, model, decisions, quantity)
            for model, decisions in pairs
            for quantity, (parts, _) in QUANTITIES_OF.items()
            if (self.given_shared or quantity != GIVEN_UNITS)
            and all((model, decisions, each) in self._place for each in parts)
        ]

    def of(self, key: Key) -> Estimate:
        """Return the estimate of a quantity.

        The paper's bound 2 (a + b - 2 a b) is quadratic in the two marginals: its variance is that of the quadratic
        form of normal variables, whose second order keeps it positive where the gradient vanishes, at 1/2 and 1/2.
        """
        parts, image = QUANTITIES_OF[key.quantity]
        at = [self._place[key.model, key.decisions, each] for each in parts]
        factors, more = np.array(list(parts.values())), 0.0
        if key.quantity == PAPER:
            a, b = self.mean[at]
            factors, v = np.array([2.0 - 4.0 * b, 2.0 - 4.0 * a]), self.covariance[np.ix_(at, at)]
            more = float(16.0 * (v[0, 0] * v[1, 1] + v[0, 1] ** 2))
            value = float(2.0 * (a + b - 2.0 * a * b))
        else:
            value = float(self.mean[at] @ factors) - image.centre
        between = float(factors @ self.between[np.ix_(at, at)] @ factors)
        more += between
        errors = self._share * ((self._values[:, at] - self.mean[at]) @ factors)
        where, degrees = self.at, np.inf
        if self._clusters is not None:
            errors, where = self._clusters.sums(errors[:, None])[:, 0], self._clusters.at
            degrees = self._clusters.size - 1.0
        if self.samples is not None:
            degrees = self.samples.degrees_of(float(errors @ errors), between)
        size = (self.sizes or {}).get(key.model, np.nan) if image in (SIZE, REST) else np.nan
        return Estimate(value, errors, where, image=image, more=more, degrees=degrees, size=size)

    def interval(self, key: Key, level: float) -> tuple[float, float, list[str]]:
        """Return the Wald interval of a quantity, NaN where there is none, and notes on it."""
        low, high = self.of(key).interval(level) if key in self.keys else (np.nan, np.nan)
        return low, high, []

    def point(self) -> tuple[dict[Key, float], dict[Key, str]]:
        """Return the estimates, none of them clipped, and notes on them."""
        point = {key: float(self._value(key, self.mean[None])[0]) for key in self.keys}
        notes = {}
        for key, value in point.items():
            if key.quantity in (PAPER, GIVEN_UNITS) and value >= 1.0 - ROUNDING:
                notes[key] = VACUOUS
            elif not -ROUNDING <= value <= 1.0 + ROUNDING and key.quantity != "mean_unfair_effect":
                notes[key] = OUTSIDE
        return point, notes

    def draws(self, random_state: int | None) -> pd.DataFrame:
        """Return draws of the quantities, a row each: those of the functionals, mapped."""
        drawn = draw_normal(self.mean, self.covariance, random_state)
        columns = pd.MultiIndex.from_tuples(self.keys, names=Key._fields)
        return pd.DataFrame(np.column_stack([self._value(key, drawn) for key in self.keys]), columns=columns)

    def _value(self, key: Key, means: Array) -> Array:
        """Return a quantity at each of k vectors of functionals, (k, F)."""
        parts, image = QUANTITIES_OF[key.quantity]
        own = [means[:, self._place[key.model, key.decisions, each]] for each in parts]
        if key.quantity == PAPER:
            return np.asarray(2.0 * (own[0] + own[1] - 2.0 * own[0] * own[1]))
        total = sum((factor * each for factor, each in zip(parts.values(), own, strict=True)), np.zeros(len(means)))
        return np.asarray(image.of(total - image.centre))

    @cached_property
    def _values(self) -> Array:
        return np.asarray(self.influence.to_numpy(), dtype=np.float64)

    @cached_property
    def _share(self) -> Array:
        return np.asarray(self.weight / self.weight.sum())

    @cached_property
    def _place(self) -> dict[Any, int]:
        return {label: at for at, label in enumerate(self.influence.columns)}

    @cached_property
    def _clusters(self) -> _Clusters | None:
        if self.groups is None:
            return None
        at, code = np.unique(self.groups, return_inverse=True)
        share = np.bincount(code, self._share)
        kept = share > 0.0
        place = np.where(kept, np.cumsum(kept) - 1, 0)  # rows without a weight add nothing, wherever they are
        return _Clusters(at[kept], place[code], float(1.0 / (share @ share)))
