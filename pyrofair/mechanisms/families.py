"""Families of distributions of one column, and their values as numbers.

:func:`pyrofair.learn_mechanisms` chooses one for each column, or takes yours.

Examples
--------
>>> choose_family(pd.Series(["no", "yes", "yes"]))
Categorical(levels=('no', 'yes'), ordered=False)
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyro.distributions as dist
import torch
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions.transforms import AffineTransform, ExpTransform, SigmoidTransform

from pyrofair._validation import require_integer
from pyrofair.exceptions import DataError
from pyrofair.mechanisms.atoms import AtomMixture, at_atoms
from pyrofair.programs.distributions import DiscretizedMixture, OrderedCategorical
from pyrofair.tables.labels import (
    LEAST_RATIO,
    MAX_INTEGER,
    as_levels,
    column_type,
    encode_levels,
    is_categorical,
    moments,
)
from pyrofair.tables.reading import read_table, read_weight
from pyrofair.tables.recorded import Missing, require_missing

__all__ = [
    "GAP",
    "Atoms",
    "Binary",
    "Bounded",
    "Categorical",
    "Continuous",
    "Family",
    "Integer",
    "Positive",
    "choose_family",
    "decode",
    "encode",
    "features",
    "gap_of",
    "levels",
    "support",
]

GAP = -1e30
"""The atom of numbers that are not recorded: a program holds no NaN, and no column that is learned so low a number."""

LEAST_SCALE = 0.01
"""No component is narrower than so many standard deviations of its column: it would collapse onto repeated values."""
LEAST_INTEGER_SCALE = 0.05
"""The same for integers, in steps of 1: all its mass is on one of them long before."""
LARGEST_LOG_SCALE = 20.0
"""The logarithm of a component's scale, in standard deviations of its column, is cut at so much on both sides."""
SPREAD = 1.2
"""The components start evenly over so many standard deviations on both sides."""
FEWEST_EACH, LEAST_SHARE, TIMES_TYPICAL = 20, 0.02, 5
"""A value is an atom if so many rows hold it, such a share of all, and so many times as many as the median value."""
RECURRING = 5
"""Fractions of few values are categories, and those of more a grid, if so many rows hold each on average."""
UNEVEN, MOST_HOLES = 0.01, 2
"""The values of a grid are even to this part of a step, and so many places have one value at least."""


class Family(Protocol):
    """A family of distributions of one number; any object with these members is one.

    It may have ``mean`` and ``sd`` besides, by which a network that reads the column standardises it.
    """

    @property
    def size(self) -> int:
        """The number of real numbers that determine a distribution."""

    @property
    def offset(self) -> Tensor:
        """Added to a network's output, shape (size,), so that output 0 is roughly the marginal distribution."""

    def distribution(self, out: Tensor) -> TorchDistributionMixin:
        """Return the distributions of scalars that numbers of shape (..., size) determine, batch shape (...)."""


@dataclass(frozen=True)
class Binary:
    """Zero or one: a Bernoulli distribution; ``p`` is the probability of 1 among all."""

    p: float

    @property
    def size(self) -> int:
        """One: the log-odds."""
        return 1

    @property
    def offset(self) -> Tensor:
        """The log-odds among all."""
        return torch.tensor([math.log(self.p) - math.log1p(-self.p)])

    def distribution(self, out: Tensor) -> TorchDistributionMixin:
        """Return the Bernoulli distribution of these log-odds."""
        made: TorchDistributionMixin = dist.Bernoulli(logits=out[..., 0])
        return made


@dataclass(frozen=True)
class Categorical:
    """One of k levels, coded 0 to k - 1: a categorical distribution.

    ``levels`` are the labels, in the order of their codes, and ``frequencies`` those among all, none of them 0. If the
    levels are ``ordered``, as numbers are, a unit keeps its rank across worlds; that changes no distribution.
    """

    levels: tuple[Hashable, ...]
    frequencies: tuple[float, ...] = field(repr=False)
    ordered: bool = False

    @property
    def size(self) -> int:
        """The number of levels."""
        return len(self.levels)

    @property
    def offset(self) -> Tensor:
        """The logarithms of the frequencies."""
        return torch.tensor(self.frequencies).log()

    def distribution(self, out: Tensor) -> TorchDistributionMixin:
        """Return the categorical distribution of these logits."""
        family: Any = OrderedCategorical if self.ordered else dist.Categorical
        made: TorchDistributionMixin = family(logits=out)
        return made


class _Mixture:
    """A mixture of normal distributions: three numbers for each component."""

    components: int

    @property
    def size(self) -> int:
        """Weight, mean and scale of each component."""
        return 3 * self.components

    @property
    def offset(self) -> Tensor:
        """Components that cover the standardised column evenly, over two standard deviations."""
        if self.components == 1:
            return torch.zeros(3)
        centres = torch.linspace(-SPREAD, SPREAD, self.components)
        width = math.log(2.0 * SPREAD / self.components)
        weights = torch.log_softmax(-0.5 * centres.square(), 0)
        return torch.cat([weights, centres, torch.full((self.components,), width)])

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the values, neither of which is one."""
        return -math.inf, math.inf


@dataclass(frozen=True)
class Integer(_Mixture):
    """Integers from ``low`` to ``high``: a mixture of normal distributions, rounded.

    ``mean`` and ``sd`` are those among all, and ``components`` is the number of normal distributions. Of a grid of
    other numbers, such as grades of 0.0 to 4.0, ``levels`` are the numbers, and the integers from 0 their codes.
    """

    low: int
    high: int
    mean: float
    sd: float
    components: int = 5
    levels: tuple[float, ...] | None = field(default=None, repr=False)

    def distribution(self, out: Tensor) -> TorchDistributionMixin:
        """Return the rounded mixture."""
        weights, loc, scale = _split(out, self.mean, self.sd, LEAST_INTEGER_SCALE / self.sd)
        return DiscretizedMixture(weights, loc, scale, self.low, self.high)


@dataclass(frozen=True)
class Continuous(_Mixture):
    """Any real number: a mixture of so many normal distributions; ``mean`` and ``sd`` are those among all."""

    mean: float
    sd: float
    components: int = 5

    def distribution(self, out: Tensor) -> TorchDistributionMixin:
        """Return the mixture, in the column's units."""
        weights, loc, scale = _split(out, self.mean, self.sd, LEAST_SCALE)
        parts = dist.Categorical(logits=weights), dist.Normal(loc, scale)
        mixture: TorchDistributionMixin = dist.MixtureSameFamily(*parts)
        bends = self.bends
        return dist.TransformedDistribution(mixture, bends) if bends else mixture

    @property
    def bends(self) -> list[Any]:
        """The transforms that make values of real numbers, in turn."""
        low, high = self.ends
        if low == -math.inf:
            away = [AffineTransform(0.0, -1.0), ExpTransform(), AffineTransform(high, -1.0)]
            return away if high < math.inf else []
        if high < math.inf:
            return [SigmoidTransform(), AffineTransform(low, high - low)]
        return [ExpTransform(), *([AffineTransform(low, 1.0)] if low else [])]

    def straight(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return values as real numbers, by the logarithms of their distances from the ends, and log-slopes there.

        Draws may overflow, and logarithms must stay finite.
        """
        low, high = self.ends
        known = torch.finfo(values.dtype)
        if low == -math.inf and high == math.inf:
            return values, torch.zeros_like(values)
        above, below = ((each.clamp(known.tiny, known.max).log()) for each in (values - low, high - values))
        if high == math.inf:
            return above, -above
        if low == -math.inf:
            return -below, -below
        return above - below, math.log(high - low) - above - below


@dataclass(frozen=True)
class Positive(Continuous):
    """Positive real numbers: a mixture of log-normal distributions; ``mean`` and ``sd`` are those of the logarithms."""

    @property
    def ends(self) -> tuple[float, float]:
        """Zero and infinity."""
        return 0.0, math.inf


@dataclass(frozen=True)
class Bounded(Continuous):
    """Real numbers between two ends, one of which may be infinite: a mixture of normal distributions, transformed.

    ``mean`` and ``sd`` are those of log(x - low), of -log(high - x), or between two ends of the difference of both
    logarithms.
    """

    low: float = 0.0
    high: float = 1.0

    @property
    def ends(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high


@dataclass(frozen=True)
class Atoms:
    """Numbers of which some have a probability of their own: zeros, values clipped at an end, those not recorded.

    ``atoms`` are these values, in increasing order, ``frequencies`` (k + 1) theirs and that of all other numbers,
    which have the family ``rest``; the atom ``GAP`` stands for a missing value. Across worlds a unit keeps its rank,
    of which an atom shows an interval.
    """

    atoms: tuple[float, ...]
    frequencies: tuple[float, ...] = field(repr=False)
    rest: Continuous | Integer

    @property
    def mean(self) -> float:
        """The mean of the other numbers, as :attr:`rest` has it."""
        return self.rest.mean

    @property
    def size(self) -> int:
        """A number for each atom and for the rest, and the rest's own."""
        return len(self.atoms) + 1 + self.rest.size

    @property
    def offset(self) -> Tensor:
        """The logarithms of the frequencies, and the rest's offset."""
        return torch.cat([torch.tensor(self.frequencies).log(), self.rest.offset])

    def distribution(self, out: Tensor) -> TorchDistributionMixin:
        """Return the mixture of the atoms and the rest."""
        k = len(self.atoms) + 1
        atoms, rest = torch.tensor(self.atoms, dtype=out.dtype), self.rest.distribution(out[..., k:])
        return AtomMixture(out[..., :k], atoms, rest, self.rest.ends, self.spare)

    @property
    def spare(self) -> float:
        """A number that the rest can be, in place of an atom, which it may not."""
        if isinstance(self.rest, Integer):
            return float(self.rest.high)
        middle = torch.tensor(self.rest.mean, dtype=torch.float64)
        for bend in self.rest.bends:
            middle = bend(middle)
        return middle.item()


def _split(out: Tensor, mean: float, sd: float, least: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-weights, means and scales, each of shape (..., components), from standardised numbers."""
    k = out.shape[-1] // 3
    scale = out[..., 2 * k :].clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE).exp() + least
    return out[..., :k], mean + sd * out[..., k : 2 * k], sd * scale


# -- choosing one -----------------------------------------------------------------------------------------------------


def choose_family(
    values: pd.Series[Any],
    *,
    most_levels: int = 20,
    components: int = 5,
    weight: npt.ArrayLike | None = None,
    missing: Missing = "refuse",
) -> Family:
    """Choose the family of a column by its type and its values.

    Truth values and zeros and ones: :class:`Binary`. Categories, text, two values of any type, integers of few values,
    and fractions of few values, each in five rows on average: :class:`Categorical`, with all declared categories, and
    numbers in order. Other integers up to a million in size, and fractions at even steps, each in five rows on average:
    :class:`Integer`. Other numbers of which some occur far more often than is typical, and on a grid than beside them
    (in a fiftieth of the rows at least), or that are 0 beside positive ones: :class:`Atoms`; an atom at an end of the
    column is an end of all other numbers. Positive numbers whose standard deviation is at least a tenth of their mean:
    :class:`Positive`. All others: :class:`Continuous`. A constant column has :class:`Categorical` of one level; any
    other value is refused by name where it occurs.

    Parameters
    ----------
    values
        The column, n values.
    most_levels
        So many different integers are categories; more are numbers.
    components
        The components of a mixture.
    weight
        A weight for each row.
    missing
        What becomes of missing values: ``"refuse"``, or ``"recorded"``: "not recorded" is a level of categories (NaN,
        the first), and else an atom.

    Raises
    ------
    DataError
        If a value is infinite, neither a number nor a category, or missing and refused; if most rows have a category of
        their own, or numbers are too close together or too far out for a program's precision; or if a setting is
        below 1.

    Examples
    --------
    >>> choose_family(pd.Series(["cook", "nurse", "cook"]))
    Categorical(levels=('cook', 'nurse'), ordered=False)
    >>> choose_family(pd.Series(range(100)))  # doctest: +ELLIPSIS
    Integer(low=0, high=99, mean=..., sd=..., components=5)
    >>> choose_family(pd.Series([-1.5, 0.5, 1.0]))  # doctest: +ELLIPSIS
    Continuous(mean=..., sd=..., components=5)
    """
    require_integer("most_levels", most_levels)
    require_integer("components", components)
    require_missing(missing)
    name = "values" if values.name is None else str(values.name)
    values = read_table(values.to_frame(name), [name], missing=missing)[name]
    shares = read_weight(weight, values)
    if (gaps := values.isna().to_numpy()).any():
        recorded = choose_family(values[~gaps], most_levels=most_levels, components=components, weight=shares[~gaps])
        if isinstance(recorded, Integer) and recorded.levels is not None:
            recorded = _categories(values[~gaps], shares[~gaps])  # numbers of a grid are codes, which a gap is not
        return _with_gaps(recorded, float(shares[gaps].sum() + 0.5) / float(shares.sum() + 1.0))
    shares = shares / shares.sum()
    found = column_type(values, shares, most_levels)
    if found == "categorical":
        return _categories(values, shares)
    numbers = values.to_numpy(dtype=np.float64)
    if found == "binary":
        n = int((shares > 0.0).sum())
        return Binary((float(shares @ numbers) * n + 0.5) / (n + 1.0))
    if found == "integer":
        return Integer(int(numbers.min()), int(numbers.max()), *moments(numbers, shares), components)
    _, first, level = np.unique(numbers.astype(np.float32), return_index=True, return_inverse=True)
    count = np.bincount(level[shares > 0.0], minlength=len(first))
    if len(first) <= most_levels and count.sum() >= RECURRING * len(first):
        return _categories(values, shares)
    atom = (count >= max(LEAST_SHARE * count.sum(), FEWEST_EACH)) & (count > TIMES_TYPICAL * np.median(count))
    grid, counts = _grid(numbers[first], count), np.append(count, 0)
    beside = np.maximum(counts[1:], np.roll(counts, 1)[:-1])
    if grid is not None and not (atom & (count > TIMES_TYPICAL * beside)).any():
        centre = moments(_places(numbers, grid).astype(np.float64), shares)
        return Integer(0, len(grid) - 1, *centre, components, tuple(grid.tolist()))
    atom |= (numbers[first] == 0.0) & (numbers.min() == 0.0)  # which no logarithm takes
    rest = ~atom[level]
    if not atom.any():
        return _continuous(numbers, shares, (-math.inf, math.inf), components)
    ends = (float(numbers[first[0]]) if atom[0] else -math.inf, float(numbers[first[-1]]) if atom[-1] else math.inf)
    n = int((shares > 0.0).sum())
    counts = n * np.append(np.bincount(level, weights=shares)[atom], shares[rest].sum()) + 0.5
    held = shares[rest] if shares[rest].any() else np.ones(rest.sum())
    others = _continuous(numbers[rest], held / held.sum(), ends, components)
    return Atoms(tuple(numbers[first[atom]].tolist()), tuple((counts / counts.sum()).tolist()), others)


def _grid(known: npt.NDArray[np.float64], count: npt.NDArray[np.int64]) -> npt.NDArray[np.float64] | None:
    """Return the numbers at even steps that different values (k,), held by so many rows each, are among, if any."""
    if count.sum() < RECURRING * len(known) or len(known) < 2:
        return None
    place = (known - known[0]) / np.diff(known).min()
    place *= np.round(place[-1]) / place[-1]
    whole = np.round(place).astype(np.int64)
    if np.abs(place - whole).max() > UNEVEN or whole[-1] >= MOST_HOLES * len(known):
        return None
    grid = np.linspace(known[0], known[-1], int(whole[-1]) + 1, dtype=np.float64).round(9)
    grid[whole] = known
    return grid


def _places(numbers: npt.NDArray[np.float64], grid: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the place of each number on a grid, (n,), in single precision, and -1 of others."""
    return pd.Index(np.asarray(grid, dtype=np.float32)).get_indexer(pd.Index(numbers.astype(np.float32)))


def _continuous(
    numbers: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], ends: tuple[float, float], components: int
) -> Continuous:
    """Return the family of numbers between two ends; positive ones that vary that much have an end at 0."""
    low, high = ends
    mean, sd = moments(numbers, shares)
    if low == -math.inf and numbers.min() > 0.0 and sd >= LEAST_RATIO * mean:
        low = 0.0
    if low == -math.inf and high == math.inf:
        return Continuous(mean, sd, components)
    made = Positive(0.0, 1.0) if (low, high) == (0.0, math.inf) else Bounded(0.0, 1.0, low=low, high=high)
    mean, sd = moments(made.straight(torch.tensor(numbers))[0].numpy(), shares)
    return replace(made, mean=mean, sd=sd, components=components)


def _with_gaps(family: Any, share: float) -> Atoms | Categorical:
    """Return a family of recorded values with those that are not recorded, such a share of all, before them."""
    if isinstance(family, Continuous | Integer):
        return Atoms((GAP,), (share, 1.0 - share), family)
    if isinstance(family, Binary):
        family = Categorical((0, 1), (1.0 - family.p, family.p), ordered=True)
    frequencies = (share, *((1.0 - share) * each for each in family.frequencies))
    if isinstance(family, Atoms):
        return Atoms((GAP, *family.atoms), frequencies, family.rest)
    return Categorical((math.nan, *family.levels), frequencies, family.ordered)


def _categories(values: pd.Series[Any], shares: npt.NDArray[np.float64]) -> Categorical:
    """Return the categories with half a row added to each, so that a declared one that is absent stays possible."""
    known = as_levels(values)
    numbers = known.to_numpy()
    if is_numeric_dtype(known.dtype) and bool(((numbers == np.round(numbers)) & (np.abs(numbers) < 2.0**53)).all()):
        known = pd.Index(numbers.astype(np.int64))
    n = int((shares > 0.0).sum())
    counts = n * np.bincount(encode_levels(values, known), weights=shares, minlength=len(known)) + 0.5
    ordered = values.cat.ordered if isinstance(values.dtype, pd.CategoricalDtype) else not is_categorical(values)
    return Categorical(tuple(known.tolist()), tuple((counts / counts.sum()).tolist()), bool(ordered))


# -- values as numbers ------------------------------------------------------------------------------------------------


def gap_of(family: Family) -> float | None:
    """Return the program's value that stands for a missing one; None if the column that it was chosen for had none.

    >>> gap_of(choose_family(pd.Series(["a", None, "b"]), missing="recorded"))
    0.0
    """
    if isinstance(family, Atoms):
        return GAP if GAP in family.atoms else None
    first = (getattr(family, "levels", None) or (None,))[0]
    return 0.0 if isinstance(first, float) and math.isnan(first) else None


def encode(family: Family, values: pd.Series[Any]) -> Tensor:
    """Return a column as a program's values, shape (n,): codes of categories, numbers as they are.

    A category that the family lacks, or a value that its distributions cannot take, is a DataError, and so is a missing
    value of a family without them.
    """
    if (gaps := values.isna().to_numpy()).any():
        if (code := gap_of(family)) is None:
            raise DataError(
                f"The column {values.name!r} has {int(gaps.sum())} missing value(s), and its family {family!r} has "
                "none: the rows that it was chosen for had none there. Drop these rows, or learn from rows of both "
                f"kinds; a family of both is choose_family(df[{values.name!r}], missing='recorded')."
            )
        found = torch.full((len(values),), code)
        if not gaps.all():
            found[torch.from_numpy(~gaps)] = encode(family, values[~gaps])
        return found
    known = getattr(family, "levels", None)
    if known is not None and not isinstance(family, Integer):
        index = pd.Index(known)
        values = values.astype(np.int64) if is_bool_dtype(values.dtype) and index.dtype != bool else values
        return torch.as_tensor(encode_levels(values, index)).to(torch.get_default_dtype())
    if is_categorical(values):
        raise DataError(
            f"The column {values.name!r} holds {values.iloc[0]!r}, and {family!r} has distributions of numbers. Give "
            "it a family of categories, or recode the column."
        )
    numbers = values.to_numpy(dtype=np.float64, copy=True)
    fit, expected, given = np.full(len(numbers), True), "", numbers
    rest = family.rest if isinstance(family, Atoms) else family
    if isinstance(rest, Binary):
        fit, expected = (numbers == 0.0) | (numbers == 1.0), "0 and 1"
    elif isinstance(family, Integer) and family.levels is not None:
        expected = f"{len(family.levels)} numbers from {family.levels[0]:g} to {family.levels[-1]:g}"
        codes = _places(numbers, family.levels)
        fit, numbers = codes >= 0, codes.astype(np.float64)
    elif isinstance(rest, Integer):
        fit, expected = numbers == np.round(numbers), "integers"
    elif isinstance(rest, Continuous):
        low, high = rest.ends
        fit, expected = (numbers > low) & (numbers < high), f"numbers above {low:g} and below {high:g}"
    if isinstance(family, Atoms):
        fit |= at_atoms(torch.tensor(numbers), torch.tensor(family.atoms)).any(-1).numpy()
        expected += f", or {', '.join(f'{each:g}' for each in family.atoms)}"
    if not fit.all():
        raise DataError(
            f"The column {values.name!r} holds {given[~fit][0]:g}, and {int((~fit).sum())} row(s) do not fit "
            f"{type(family).__name__}, which has distributions of {expected}. Choose another family, or correct the "
            "column."
        )
    return torch.as_tensor(numbers).to(torch.get_default_dtype())


def decode(family: Family, values: Tensor) -> npt.NDArray[Any]:
    """Return a program's values as the column holds them: labels of codes, integers as such, NaN for missing ones."""
    plain = values.detach().numpy()
    known = getattr(family, "levels", None)
    if known is not None:
        return np.asarray(pd.Index(known).to_numpy()[plain.astype(np.int64)])
    if isinstance(family, Atoms):  # the values of the column, not the nearest ones in a program's precision
        at = at_atoms(values.detach(), torch.tensor(family.atoms)).numpy()
        found = np.where(at.any(-1), at @ np.array(family.atoms), plain)
        return np.where(found == GAP, math.nan, found)
    return plain.astype(np.int64) if isinstance(family, Binary | Integer) else plain


def levels(family: Family) -> tuple[Hashable, ...] | None:
    """Return the labels that a program's values are codes of; None where the values are the column's own."""
    known: tuple[Hashable, ...] | None = getattr(family, "levels", None)
    return None if known is None or known == tuple(range(len(known))) else tuple(known)


def support(family: Family) -> Tensor | None:
    """Return all the values that a program's site can take, shape (k,), if they are few enough to list, or None."""
    known = getattr(family, "levels", None)
    if isinstance(family, Binary) or known is not None:
        return torch.arange(2.0 if known is None else float(len(known)))
    if not isinstance(family, Integer) or family.high - family.low > 2 * MAX_INTEGER:
        return None
    return torch.arange(float(family.low), family.high + 1.0)


def features(family: Family, values: Tensor) -> Tensor:
    """Return the inputs that networks read of a column: shape (..., k) for values of shape (...).

    A column for each category (one if there are two, none if there is one), or atom, and standardised numbers;
    logarithms of positive ones, and of distances from ends.

    >>> features(Categorical(("a", "b", "c"), (0.2, 0.3, 0.5)), torch.tensor([2.0, 0.0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    >>> features(Continuous(10.0, 2.0), torch.tensor([12.0]))
    tensor([[1.]])
    """
    known = getattr(family, "levels", None)
    one = values.unsqueeze(-1)
    if known is not None and not isinstance(family, Integer):
        codes = torch.arange(len(known), dtype=values.dtype)
        return (one == (codes if len(codes) > 2 else codes[1:])).to(torch.get_default_dtype())
    if isinstance(family, Atoms):
        at = at_atoms(values, torch.tensor(family.atoms))
        rest = features(family.rest, torch.where(at.any(-1), family.spare, values))
        return torch.cat([at.to(rest.dtype), rest * ~at.any(-1, keepdim=True)], -1)
    if isinstance(family, Continuous):
        one = family.straight(one)[0]
    return (one - getattr(family, "mean", 0.0)) / getattr(family, "sd", 1.0)
