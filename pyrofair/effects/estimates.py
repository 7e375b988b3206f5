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
    "FROM_OUTCOMES",
    "GIVEN_UNITS",
    "JUDGED",
    "OF_WORLDS",
    "ONE_SIGN",
    "PAPER",
    "PLAIN",
    "QUANTITIES",
    "QUANTITIES_OF",
    "REST",
    "SIZE",
    "Estimate",
    "Estimates",
    "Image",
    "Key",
    "Quantity",
    "Samples",
    "Share",
    "absolute_interval",
    "by_unit",
    "draw_normal",
    "greater_of",
    "joint_covariance",
    "kish_size",
    "mean_and_spread",
    "note_on",
    "percentiles",
    "reach_of",
    "reach_of_all",
    "reach_of_shares",
    "shares_of",
    "size_of_share",
]  # fmt: skip

Array = NDArray[np.float64]
Form = tuple[list[int], Array, float]
"""A sum of means: their places, their factors, and a constant."""

AUDITED = "audited"
"""The label of the source that is audited with; those of its single groups are ``"group 0"`` and ``"group 1"``."""
CAUSAL = ("y0", "ypi", "lower", "rest", "disagreement")
"""The functionals of potential outcomes, which a source gives influence values of."""
GIVEN_UNITS = "piu_double_disagreement"
"""The additional quantity of worlds that are compared unit by unit, where a unit's scores are means."""
PAPER = "piu_paper_bound"
VACUOUS = "vacuous: a bound of 1 or more proves nothing, fair or unfair"
OUTSIDE = "outside [0, 1] by sampling error; cut there it would err inward on average"
FROM_OUTCOMES = ("accuracy", "majority_rate")
OF_WORLDS = ("p_y0", "p_ypi", "mean_unfair_effect", PAPER, "piu_lower", "piu_upper")
"""The quantities of the two worlds."""
JUDGED = ("positive_rate", *OF_WORLDS)
"""The quantities that need no outcomes."""
QUANTITIES = ("accuracy", "positive_rate", "majority_rate", *OF_WORLDS)

DRAWS = 2000
"""The number of draws from the joint normal distribution of the estimates."""
CHUNK = 1 << 16
"""The number of rows of which covariances are summed at once."""
MOST_HELD = 1 << 24
"""The numbers that are held at once."""
ROUNDING = 1e-9
FEW = 10.0
"""Of a share with fewer effective rows on one side, a Wald interval or that of replicates is too short."""
CARE = 0.1
"""The part of the probability to miss that signs given what is shared have, beside that of the mean effect."""
MARGIN = 2.0
"""The standard errors by which one sign for all rows must give the tighter upper bound."""


class Key(NamedTuple):
    """What an estimate is of; the names of the column levels of replicates."""

    source: str
    model: str
    decisions: Any
    quantity: str


class Image(NamedTuple):
    """How a signed value x is reported, in [least, most]: x (sign 0, not cut), centre + abs(x) (1), 1 - abs(x) (-1)."""

    centre: float = 0.0
    sign: int = 0
    least: float = -np.inf
    most: float = np.inf

    def of(self, value: Any) -> Any:
        """Return what is reported of signed values."""
        if not self.sign:
            return value
        size = self.centre + np.abs(value) if self.sign > 0 else 1.0 - np.abs(value)
        return np.clip(size, self.least, self.most)

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Return the image of an interval, which holds the value at the kink where the signed interval holds 0."""
        if not self.sign:
            return low, high
        low, high = absolute_interval(low, high)
        return (self.centre + low, self.centre + high) if self.sign > 0 else (1.0 - high, 1.0 - low)


class Quantity(NamedTuple):
    """A quantity: its functionals with their factors, the factor of the product of two of them, and the image."""

    parts: dict[str, float]
    image: Image
    product: float = 0.0


PLAIN, RATE, TWICE = Image(), Image(least=0.0, most=1.0), Image(least=0.0, most=2.0)
SIZE, REST = Image(0.0, 1, 0.0, 1.0), Image(0.0, -1, 0.0, 1.0)
QUANTITIES_OF = {
    "positive_rate": Quantity({"positive": 1.0}, RATE),
    "accuracy": Quantity({"correct": 1.0}, RATE),
    "p_y0": Quantity({"y0": 1.0}, RATE),
    "p_ypi": Quantity({"ypi": 1.0}, RATE),
    "mean_unfair_effect": Quantity({"ypi": 1.0, "y0": -1.0}, Image(least=-1.0, most=1.0)),
    GIVEN_UNITS: Quantity({"disagreement": 2.0}, TWICE),
    "majority_rate": Quantity({"outcome": 1.0}, Image(0.5, 1, 0.5, 1.0)),
    "piu_lower": Quantity({"lower": 1.0}, SIZE),
    "piu_upper": Quantity({"rest": 1.0}, REST),
    PAPER: Quantity({"y0": 2.0, "ypi": 2.0}, TWICE, product=-4.0),
}
"""Every quantity, by name."""
ONE_SIGN = {"piu_lower": ({"y0": -1.0, "ypi": 1.0}, 0.0), "piu_upper": ({"y0": -1.0, "ypi": -1.0}, 1.0)}
"""The bounds on PIU from the two marginals: the factors and the constant inside the same image."""


def percentiles(draws: Array, level: float) -> tuple[Any, Any]:
    """Return the percentile interval of B replicates (B, ...), whose k-th smallest is the quantile k / (B + 1)."""
    tail = (1.0 - level) / 2.0  # with k / B an interval of 200 replicates at 95 % would hold 94 %
    low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0, method="weibull")
    return low, high


def absolute_interval(low: float, high: float) -> tuple[float, float]:
    """Return the interval of an absolute value, the image of the signed one's: percentiles of sizes never hold 0."""
    return float(max(low, -high, 0.0)), float(max(high, -low))


class Share(NamedTuple):
    """A share of so many effective rows, and the factor by which it adds to an estimate."""

    share: float
    size: float
    factor: float = 1.0

    def moves(self, reach: float) -> tuple[float, float]:
        """Return how far below and above its Wilson interval reaches: 0 with 10 rows on either side, or no size."""
        share, size = min(max(self.share, 0.0), 1.0), self.size
        if not min(share, 1.0 - share) * size < FEW:
            return 0.0, 0.0
        across = reach * reach / size
        half = reach * np.sqrt(share * (1.0 - share) / size + (reach / (2.0 * size)) ** 2)
        shift = (0.5 - share) * across
        ends = abs(self.factor) * (half - shift) / (1.0 + across), abs(self.factor) * (half + shift) / (1.0 + across)
        return ends if self.factor > 0.0 else ends[::-1]


def shares_of(quantity: str, values: Mapping[str, float], size: float) -> tuple[Share, ...]:
    """Return the shares of rows that a quantity is made of, given the values of the others.

    The mean effect is the share of those whose answer the unfair paths turn to yes, less that of those whom they turn
    to no; together these are at least PIU's lower bound, and count where few rows differ, or few do not.
    """
    value = values[quantity]
    if quantity == "mean_unfair_effect":
        differ = max(values.get("piu_lower", 0.0), abs(value))
        if min(differ, 1.0 - differ) * size >= FEW:
            return ()
        return Share((differ + value) / 2.0, size), Share((differ - value) / 2.0, size, -1.0)
    if quantity == PAPER:
        a, b = values["p_y0"], values["p_ypi"]
        return Share(a, size, 2.0 - 4.0 * b), Share(b, size, 2.0 - 4.0 * a)
    return (Share(value / 2.0, size, 2.0) if quantity == GIVEN_UNITS else Share(value, size),)


def size_of_share(size: float, apart: float, rows: float, between: float) -> float:
    """Return of how many independent rows a share is, by its design effect (Korn and Graubard, 1998), of at least 1.

    It is the variance ``between`` clusters over that of ``rows``. Where rows have none, those of a cluster may all be
    alike: the size is then ``size`` times ``apart``, the clusters for each row, and never less.
    """
    least = size * min(1.0, apart)
    return max(least, size / max(1.0, between / rows)) if rows > ROUNDING**2 else least


def reach_of_shares(shares: Sequence[Share], reach: float) -> tuple[float, float]:
    """Return how far below and above a sum of shares its interval reaches at least, their distances squared."""
    down, up = np.linalg.norm([(0.0, 0.0), *(each.moves(reach) for each in shares)], axis=0).tolist()
    return down, up


@dataclass(frozen=True, eq=False)
class Estimate:
    """A signed value x with its uncertainty, and what is reported of it: x itself, its size, or one minus its size.

    The errors e of independent units give the standard error s = sqrt(sum of e^2 + more) and the interval x - c s to
    x + c s, where c is the quantile of the normal distribution, or of Student's t. Replicates give the percentile
    interval. What is reported has the image of the interval. An estimate without errors and replicates has none.
    The interval reaches at least as far as the Wilson intervals of the ``shares`` that the estimate is a sum of, their
    distances squared and added (Donner and Zou, 2012): rows of which none, or all, are counted have no spread.
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
    shares
        The shares of rows that it is made of.
    least
        Another estimate of what this one bounds from below: the interval is the greater of both at either end.
    care
        The part of the probability to miss that is left to the lower bound.
    """

    value: float
    errors: Array | None = None
    at: NDArray[np.int64] | None = None
    draws: Array | None = None
    image: Image = PLAIN
    more: float = 0.0
    degrees: float = np.inf
    shares: tuple[Share, ...] = ()
    least: Estimate | None = None
    care: float = 1.0

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
        reach = reach_of(level, self.degrees) if reach is None else reach
        low, high = self._ends(level, reach)
        if self.care < 1.0:
            strict = 1.0 - (1.0 - level) * self.care
            low = self._ends(strict, reach * reach_of(strict, self.degrees) / reach_of(level, self.degrees))[0]
        down, up = reach_of_shares(self.shares, reach)
        found, least, most = self.estimate, self.image.least, self.image.most
        low, high = min(low, found - down) if down else low, max(high, found + up) if up else high
        if least <= found <= most:
            low, high = np.clip((low, high), least, most).tolist()
        if self.least is not None:
            low, high = map(max, (low, high), self.least.interval(level, reach))
        return low, high

    def _ends(self, level: float, reach: float) -> tuple[float, float]:
        """Return the image of the interval of replicates, or of one that reaches so many standard errors."""
        if self.draws is not None:
            return self.image.ends(*map(float, percentiles(self.draws, level)))
        return self.image.ends(self.value - reach * self.spread, self.value + reach * self.spread)

    def near_kink(self, level: float) -> bool:
        """Return whether the value is within its sampling error of where its image folds."""
        return bool(self.image.sign) and abs(self.value) <= reach_of(level, self.degrees) * self.spread + ROUNDING

    def unfolded(self) -> Estimate:
        """Return what is reported as an estimate without an image, which is right where it is not near the kink."""
        if not self.image.sign:
            return self
        slope = self.image.sign * np.sign(self.value)
        errors = None if self.errors is None else slope * self.errors
        return replace(self, value=self.estimate, errors=errors, image=PLAIN, least=None, care=1.0)

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference of what is reported of two estimates, by the errors of their units.

        Errors of the same unit are subtracted, those of others are independent. It has no interval where one of them
        has no errors.
        """
        one, two = self.unfolded(), other.unfolded()
        value = one.value - two.value
        shares = (*one.shares, *(each._replace(factor=-each.factor) for each in two.shares))
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
        degrees = min(one.degrees, two.degrees)
        return Estimate(value, errors, at, more=one.more + two.more, degrees=degrees, shares=shares)

    @property
    def _units(self) -> NDArray[np.int64]:
        assert self.errors is not None, "units have errors"
        return np.arange(len(self.errors)) if self.at is None else self.at


def note_on(quantity: str, value: float) -> str:
    """Return what is to be known of a value that proves nothing, or of a rate outside [0, 1]; or an empty text."""
    if quantity in (PAPER, GIVEN_UNITS) and value >= 1.0 - ROUNDING:
        return VACUOUS
    outside = QUANTITIES_OF[quantity].image == RATE and not -ROUNDING <= value <= 1.0 + ROUNDING
    return OUTSIDE if outside else ""


def greater_of(given: Estimate, plain: Estimate) -> Estimate:
    """Return the greater of two estimates of PIU's lower bound, signed given what is shared and by one sign for all.

    Either may be too large by chance. What both may miss together is hardly more than what one may: the mean effect
    keeps its own lower end, below which that of the bound never falls, and the signs have to be clearer than by chance.
    """
    given = replace(given, care=CARE)
    one, other = (given, plain) if given.estimate > plain.estimate else (plain, given)
    return replace(one, least=other)


def reach_of_all(estimates: Sequence[Estimate], level: float) -> float:
    """Return by how many standard errors the intervals of several estimates, correlated by units, reach together."""
    estimates = [*estimates, *(each.least for each in estimates if each.least is not None)]
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


def kish_size(weight: NDArray[Any], groups: NDArray[np.int64] | None = None) -> float:
    """Return Kish's effective number of rows, or of groups of rows; 0 if no weight is above 0 or one is infinite."""
    if groups is not None:
        weight = np.bincount(np.unique(groups, return_inverse=True)[1], weight)
    largest = float(weight.max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return 0.0
    share = weight / largest  # their squares stay within double precision, however large the weights
    return float(share.sum()) ** 2 / float(share @ share)


def by_unit(errors: Array, groups: NDArray[np.int64] | None) -> Array:
    """Return what each independent unit adds to errors of sum 0: what rows add (n, F), or sums by group."""
    return errors if groups is None else _Clusters.of(groups, np.ones(len(groups))).sums(errors)


def mean_and_spread(
    values: Array, weight: Array, more: float = 0.0, groups: NDArray[np.int64] | None = None
) -> tuple[Array, Array]:
    """Return the weighted means of influence values (n, K), and their standard errors, with ``more`` variance, (K,)."""
    share = weight / weight.sum()
    mean = share @ values
    return mean, np.sqrt((by_unit(share[:, None] * (values - mean), groups) ** 2).sum(axis=0) + more)


def draw_normal(mean: Array, covariance: Array, random_state: int | None) -> Array:
    """Return draws of normal variables, (DRAWS, F)."""
    scale, vectors = np.linalg.eigh(covariance)
    noise = np.random.default_rng(random_state).standard_normal((DRAWS, len(scale)))
    return np.asarray(mean + noise @ (vectors * np.sqrt(np.maximum(scale, 0.0))).T)


class _Clusters(NamedTuple):
    """The G clusters that have a weight: their positions among all, and the one of each row."""

    at: NDArray[np.int64]
    code: NDArray[np.int64]

    @classmethod
    def of(cls, groups: NDArray[np.int64], weight: Array) -> _Clusters:
        at, code = np.unique(groups, return_inverse=True)
        kept = np.bincount(code, weight) > 0.0
        place = np.where(kept, np.cumsum(kept) - 1, 0)  # rows without a weight add nothing, wherever they are
        return cls(at[kept], place[code])

    def sums(self, errors: Array) -> Array:
        """Return the sums of the errors of rows (n, F) by cluster, (G, F), times sqrt(G / (G - 1)): they sum to 0."""
        number = len(self.at)
        found = [np.bincount(self.code, each, number) for each in errors.T]
        return np.asarray(np.sqrt(number / (number - 1.0) if number > 1 else np.nan) * np.column_stack(found))


@dataclass(frozen=True, eq=False)
class Samples:
    """The covariance (F, F) of means by models of several samples, with its degrees of freedom and those of rows."""

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
    reach the quantile of Student's t, whose degrees of freedom are the effective number of clusters with rows of an
    arm, less one, of the arm that has fewer.

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
    arm
        The arm of each row, (n,), of which the clusters are counted; None: all rows are of one.
    sizes
        The effective rows of each quantity by model, of which it is a share.
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
    arm: NDArray[np.int8] | None = None
    sizes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
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
        sizes: Mapping[str, Mapping[str, float]] | None = None,
        part: int = 0,
    ) -> Estimates:
        """Return the estimates of means (F,) with a covariance (F, F): those of 2 F rows with this mean and covariance.

        The rows are pairs of opposite errors along its directions. Those of another ``part`` are other rows.
        """
        scale, vectors = np.linalg.eigh(covariance)
        errors = vectors * np.sqrt(2.0 * np.maximum(scale, 0.0)) * len(mean)
        rows = pd.DataFrame(np.vstack([mean + errors.T, mean - errors.T]), columns=labels)
        at = np.arange(part * len(rows), (part + 1) * len(rows))
        return cls(rows, np.ones(len(rows)), given_shared, at=at, sizes=sizes or {}, samples=samples)

    def within(self, rows: NDArray[np.int64], sizes: Mapping[str, Mapping[str, float]] | None = None) -> Estimates:
        """Return the estimates of a part of the rows, by their positions, ascending."""
        at, groups = rows if self.at is None else self.at[rows], None if self.groups is None else self.groups[rows]
        arm, apart = None if self.arm is None else self.arm[rows], None if self.apart is None else self.apart[:, rows]
        of = self.influence.iloc[rows], self.weight[rows], self.given_shared
        return Estimates(*of, at, groups, arm, sizes or {}, apart)

    def placed(self, rows: NDArray[np.int64], groups: NDArray[np.int64] | None) -> Estimates:
        """Return the estimates, of rows at these positions in a longer table, ascending, with its codes of clusters."""
        return replace(self, at=rows, groups=None if groups is None else groups[rows])

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
            for quantity, of in QUANTITIES_OF.items()
            if (self.given_shared or quantity != GIVEN_UNITS)
            and all((model, decisions, each) in self._place for each in of.parts)
        ]

    def of(self, key: Key) -> Estimate:
        """Return the estimate of a quantity; that of PIU's lower bound is never below the size of the mean effect.

        The variance of a product is that of normal variables, whose second order keeps the variance of the paper's
        bound 2 (a + b - 2 a b) positive where its gradient vanishes, at 1/2 and 1/2.
        """
        found = [self._estimate(key, *form) for form in self._forms[key]]
        return greater_of(*found) if len(found) > 1 else found[0]

    def _estimate(self, key: Key, at: list[int], factors: Array, constant: float) -> Estimate:
        """Return the estimate of a quantity by means at some places, their factors, and a constant."""
        _, image, product = QUANTITIES_OF[key.quantity]
        mean, more = self.mean[at], 0.0
        if product:
            v = self.covariance[np.ix_(at, at)]
            more = float(product**2 * (v[0, 0] * v[1, 1] + v[0, 1] ** 2))
        slope = factors + product * mean[::-1]
        found, scale = self._sum(at, slope)
        value = float(factors @ mean + product * mean[0] * mean[-1] + constant)
        size = scale * self.sizes.get(key.model, {}).get(key.quantity, np.nan)
        shares = shares_of(key.quantity, self._reported[key.model, key.decisions], size)
        return replace(found, value=value, image=image, more=found.more + more, shares=shares)

    def sum_of(self, factors: Mapping[Any, float], shares: Sequence[Share] = ()) -> Estimate:
        """Return the estimate of a sum of means, from the factors of their labels and the shares that it is made of."""
        found, scale = self._sum([self._place[label] for label in factors], np.array([*factors.values()]))
        return replace(found, shares=tuple(each._replace(size=scale * each.size) for each in shares))

    def _sum(self, at: list[int], slope: Array) -> tuple[Estimate, float]:
        """Return the estimate of a sum of means at some places by their factors, and of how many units a row counts."""
        own = float(slope @ self.between[np.ix_(at, at)] @ slope)
        errors = np.asarray(self._share * ((self._values[:, at] - self.mean[at]) @ slope))
        where, degrees, scale = self.at, np.inf, 1.0
        if self._clusters is not None:
            plain, errors = errors, self._clusters.sums(errors[:, None])[:, 0]
            where, degrees = self._clusters.at, self.clusters - 1.0
            scale = size_of_share(1.0, self._units_of_row, float(plain @ plain), float(errors @ errors))
        if self.samples is not None:
            degrees = self.samples.degrees_of(float(errors @ errors), own)
        return Estimate(float(slope @ self.mean[at]), errors, where, more=own, degrees=degrees), scale

    @cached_property
    def _units_of_row(self) -> float:
        """The effective number of clusters for each effective row."""
        return kish_size(self.weight, self.groups) / kish_size(self.weight)

    @property
    def notes(self) -> dict[Key, str]:
        """What is to be known of some of the values: no value of a rate is clipped."""
        values = {key: self._reported[key.model, key.decisions][key.quantity] for key in self.keys}
        return {key: note for key, value in values.items() if (note := note_on(key.quantity, value))}

    def draws(self, random_state: int | None) -> pd.DataFrame:
        """Return draws of the quantities, a row each: those of the functionals, mapped."""
        drawn = draw_normal(self.mean, self.covariance, random_state)
        columns = pd.MultiIndex.from_tuples(self.keys, names=Key._fields)
        return pd.DataFrame(np.column_stack([self._value(key, drawn) for key in self.keys]), columns=columns)

    def _value(self, key: Key, means: Array) -> Array:
        """Return a quantity at each of k vectors of functionals, (k, F)."""
        _, image, product = QUANTITIES_OF[key.quantity]
        signed = [
            means[:, at] @ factors + product * means[:, at[0]] * means[:, at[-1]] + constant
            for at, factors, constant in self._forms[key]
        ]
        return np.asarray(image.of(signed[0] if len(signed) == 1 else np.abs(signed).max(axis=0)))

    @cached_property
    def _reported(self) -> dict[tuple[str, Any], dict[str, float]]:
        """What is reported of each quantity, by model and decisions."""
        found: dict[tuple[str, Any], dict[str, float]] = {}
        for key in self.keys:
            found.setdefault((key.model, key.decisions), {})[key.quantity] = float(self._value(key, self.mean[None])[0])
        return found

    @cached_property
    def _forms(self) -> dict[Key, list[Form]]:
        """The sums that each quantity is the image of: places of means, their factors, and a constant.

        A bound on PIU has two, signed given the shared features, and with one sign for all rows. Either is valid, so
        that the tighter counts. Of the lower bound that is the greater one. An upper bound that is the smaller of two
        errs inward by chance; by a margin of two standard errors of their difference that is a twentieth of one.
        """
        found = {}
        for key in self.keys:
            parts, image, _ = QUANTITIES_OF[key.quantity]
            own = [self._form(key, parts, -image.centre)]
            own += [self._form(key, *ONE_SIGN[key.quantity])] if key.quantity in ONE_SIGN else []
            found[key] = [self._clearly_greater(*own)] if key.quantity == "piu_upper" else own
        return found

    def _form(self, key: Key, parts: Mapping[str, float], constant: float) -> Form:
        at = [self._place[key.model, key.decisions, each] for each in parts]
        return at, np.array(list(parts.values())), constant

    def _clearly_greater(self, own: Form, other: Form) -> Form:
        """Return the second of two forms where its size is clearly greater by errors of units, and else the first."""
        (at, factors, constant), (at_other, of_other, plus) = own, other
        value = float(self.mean[at_other] @ of_other) + plus
        gain = abs(value) - float(self.mean[at] @ factors) - constant
        turn = np.zeros(len(self.mean))
        np.add.at(turn, at_other, np.sign(value) * of_other)
        np.subtract.at(turn, at, factors)
        error = np.sqrt(max(float(turn @ (self.covariance - self.between) @ turn), 0.0))
        return other if gain > MARGIN * error else own

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
        return None if self.groups is None else _Clusters.of(self.groups, self.weight)

    @cached_property
    def clusters(self) -> float:
        """The effective number of clusters with rows of an arm, of that with fewer; infinite where rows are units."""
        if self.groups is None:
            return np.inf
        arm = np.zeros(len(self.weight)) if self.arm is None else self.arm
        return min(kish_size(self.weight * (arm == each), self.groups) for each in np.unique(arm[self.weight > 0.0]))
