"""Weighted samples of feature rows, one per world, and the protocols of the sources that make them.

World 0 is the baseline, ``Y_{A<=0}``; world 1 switches the unfair paths, ``Y_{A<=1||pi}``. Sources build the two
samples, classifiers score their rows, functionals compare the scores; none of them imports the others. What a source
can do beyond :class:`PotentialOutcomes` is declared by four optional protocols, each checked by ``isinstance`` on a
fitted source: :class:`Refittable`, :class:`Diagnosed`, :class:`Stratified` and :class:`SampleSplit`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from pyrofair._validation import require_instance, require_unmasked, shown
from pyrofair.effects.estimates import kish_size
from pyrofair.exceptions import DataError

if TYPE_CHECKING:
    import torch

__all__ = [
    "FEWEST_ROWS",
    "MEAN_WEIGHT",
    "SMALLEST_SHARE",
    "Bounding",
    "CounterfactualSample",
    "Diagnosed",
    "Estimate",
    "Fittable",
    "GroupSize",
    "MarginalBounds",
    "PotentialOutcomes",
    "Refittable",
    "SampleSplit",
    "Scored",
    "SeveralContrasts",
    "Stratified",
    "Views",
    "Worlds",
    "few_rows",
    "refuse_fitted",
    "rows_of_levels",
]

MEAN_WEIGHT = (0.9, 1.1)
"""Mean weights outside this interval are reported."""
SMALLEST_SHARE = 0.05
"""The smallest effective size that is not reported, as a share of the rows."""
FEWEST_ROWS = 10
"""The smallest effective size, in rows, that is not reported; fewer rows of a group give no interval."""


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores a classifier gives to the rows of one world, with the weights and units of those rows.

    Parameters
    ----------
    score : torch.Tensor, shape (m,)
        Probability of the positive prediction (or the decision, 0 or 1) of each row. It may carry a gradient.
    weight : torch.Tensor, shape (m,)
        Nonnegative weights, which carry the normalisation: they sum to 1 for an SEM or a Hajek estimate, but not for a
        Horvitz-Thompson one.
    unit : torch.Tensor of int64, shape (m,), optional
        What the row shares with rows of the other world; None: nothing is shared for certain.
    by_unit : bool
        Whether row i is the mean of unit i, for i = 0, 1, ..., so that nobody has to collect the rows of a unit.

    Examples
    --------
    >>> import torch
    >>> Scored(torch.tensor([0.2, 0.6]), torch.tensor([0.75, 0.25])).mean
    tensor(0.3000)
    """

    score: torch.Tensor
    weight: torch.Tensor
    unit: torch.Tensor | None = None
    by_unit: bool = False

    def __post_init__(self) -> None:
        import torch

        for name in ("score", "weight"):
            require_instance(name, getattr(self, name), torch.Tensor, "a tensor, one number a row")
        shapes = {"score": self.score.shape, "weight": self.weight.shape}
        if self.unit is not None:
            require_instance("unit", self.unit, torch.Tensor, "a tensor, or None")
            shapes["unit"] = self.unit.shape
        if self.score.ndim != 1 or len(set(shapes.values())) > 1:
            got = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
            raise DataError(
                f"Scores, weights and units must be vectors of one length; got shapes {got}. "
                "Pass one number per row: for predict_proba, the column of the positive class."
            )

    @property
    def mean(self) -> torch.Tensor:
        """The estimated P(Y = 1) in this world: ``(weight * score).sum()``, not renormalised (a scalar)."""
        return (self.weight * self.score).sum()


@dataclass(frozen=True, eq=False)
class CounterfactualSample:
    """A potential outcome as a weighted sample of the feature rows that the classifier would read in that world.

    A :class:`PotentialOutcomes` makes two of them.

    Parameters
    ----------
    rows : pandas.DataFrame, m rows
        The features as the classifier reads them, sensitive attribute included.
    weight : numpy.ndarray, shape (m,)
        Nonnegative; ``(weight * score).sum()`` estimates P(Y = 1) in this world.
    unit : numpy.ndarray of int64, shape (m,), optional
        What the two worlds share: rows with one id, in either world, belong to one unit (a unit's noise, or a value of
        the features that no unfair path touches). None: the population is the only unit.
    origin : numpy.ndarray of int64, shape (m,), optional
        Position in the observed rows of the row that this one is, unchanged; -1 where it was changed or drawn.
        Training reuses the forward pass of unchanged rows.

    Raises
    ------
    DataError
        If a length differs from the number of rows, a weight is negative or not finite, an id is not an integer, or an
        origin is below -1.

    Examples
    --------
    >>> world = CounterfactualSample(pd.DataFrame({"A": [0, 0], "M": [0, 1]}), np.array([0.75, 0.25]))
    >>> round(world.effective_size, 2)
    1.6
    >>> world.scored([0.2, 0.6]).mean
    tensor(0.3000, dtype=torch.float64)
    """

    rows: pd.DataFrame
    weight: npt.NDArray[np.float64]
    unit: npt.NDArray[np.int64] | None = None
    origin: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        require_instance("rows", self.rows, pd.DataFrame, "a DataFrame of the rows of a world")
        m = len(self.rows)
        require_unmasked("weight", self.weight)
        try:
            weight = np.asarray(self.weight, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"weight={shown(self.weight)} must hold a number for each of {m} rows.") from error
        _check_length("weight", weight, m)
        if (wrong := ~(np.isfinite(weight) & (weight >= 0))).any():
            at = int(np.argmax(wrong))
            raise DataError(
                f"{int(wrong.sum())} of {m} weights are negative or not finite; the first is {weight[at]} at row {at}. "
                "A weight is a ratio of probabilities: check the propensities it was made of."
            )
        object.__setattr__(self, "weight", weight)
        for name in ("unit", "origin"):
            if (given := getattr(self, name)) is not None:
                ids = np.asarray(given)
                _check_length(name, ids, m)
                if ids.dtype.kind not in "iu" and m:  # an empty list has another type
                    raise DataError(f"{name} must hold integers; got {ids.dtype}. Number its values: np.unique.")
                object.__setattr__(self, name, ids.astype(np.int64, copy=False))
        if self.origin is not None and m and self.origin.min() < -1:
            raise DataError(f"origin holds {self.origin.min()}; a position is 0 or more, and -1 marks a changed row.")

    @cached_property
    def unit_index(self) -> npt.NDArray[np.int64]:
        """The index of each row's unit among the sorted ids, shape (m,); without units each row is one."""
        if self.unit is None:
            return np.arange(len(self.rows))
        return np.unique(self.unit, return_inverse=True)[1].astype(np.int64, copy=False)

    @property
    def units(self) -> int:
        """The number of units, or else of rows."""
        return int(self.unit_index.max()) + 1 if len(self.rows) else 0

    @property
    def effective_size(self) -> float:
        """Kish's effective sample size ``(sum w)^2 / sum w^2``, in units or else in rows; 0 when every weight is 0."""
        return kish_size(np.bincount(self.unit_index, self.weight))

    def reweighted(self, factor: npt.NDArray[np.float64]) -> Self:
        """Return the sample with its k units, or else rows, reweighted by a factor (k,); the sum of weights is kept."""
        weight = self.weight * factor[self.unit_index]
        return type(self)(self.rows, weight * (self.weight.sum() / weight.sum()), self.unit, self.origin)

    def scored(self, scores: torch.Tensor | npt.ArrayLike) -> Scored:
        """Return scores (m,) of the rows with their weights, in the precision and on the device of the scores.

        Decisions (bool, int) become float64, and a tensor keeps its gradient. Another shape is a DataError.
        """
        import torch

        # torch.tensor copies: tables own their arrays and hand out read-only views, which torch must not alias.
        score = scores if isinstance(scores, torch.Tensor) else torch.tensor(np.asarray(scores))
        if not score.is_floating_point():
            score = score.to(torch.float64)
        if score.shape != (len(self.rows),):
            raise DataError(
                f"This world has {len(self.rows)} rows, but the scores have shape {tuple(score.shape)}. "
                "Score every row of sample.rows once: for predict_proba, pass the column of the positive class."
            )
        weight = torch.tensor(self.weight, dtype=score.dtype, device=score.device)
        unit = None if self.unit is None else torch.tensor(self.unit, device=score.device)
        return Scored(score, weight, unit)


Worlds = tuple[CounterfactualSample, CounterfactualSample]
"""The baseline world, and that in which the unfair paths are switched."""

Views = tuple[Worlds, ...]
"""The two worlds of a source, once, or several times over with independent errors given the units."""


@dataclass(frozen=True, eq=False)
class MarginalBounds:
    """Bounds on P(Y = 1) in one world, for a marginal that the data identify only partially.

    The ends are tensors of shape (), which may carry a gradient; no scalars, or a lower end above the upper one by more
    than rounding, are a DataError. Chikahara et al. 2021, "Extension for dealing with latent confounders", the display
    before eq. (13).

    Examples
    --------
    >>> import torch
    >>> MarginalBounds(torch.tensor(0.25), torch.tensor(0.5)).upper
    tensor(0.5000)
    """

    lower: torch.Tensor
    upper: torch.Tensor

    def __post_init__(self) -> None:
        import torch

        for name in ("lower", "upper"):
            require_instance(name, getattr(self, name), torch.Tensor, "a tensor of one number")
        if self.lower.ndim or self.upper.ndim:
            got = f"{tuple(self.lower.shape)}, {tuple(self.upper.shape)}"
            raise DataError(f"Bounds on a marginal are scalars; got shapes {got}. Average over the rows first.")
        lower, upper = self.lower.item(), self.upper.item()
        if not lower <= upper + 1e-6:
            raise DataError(f"The lower bound {lower:g} exceeds the upper bound {upper:g}. Pass (lower, upper).")


@dataclass(frozen=True)
class GroupSize:
    """The rows of one observed group (0 or 1) that the conditional distributions of a world depend on.

    A :class:`Diagnosed` source returns them. ``rows`` have a sample weight above 0; ``effective_size`` is Kish's number
    of these, weighted to the distribution of what the sensitive attribute does not cause.
    """

    group: int
    rows: int
    effective_size: float

    @property
    def is_small(self) -> bool:
        """Whether the group is too small for an interval."""
        return self.effective_size < FEWEST_ROWS

    def __str__(self) -> str:
        return f"group {self.group} has {self.rows} row(s), effective size {self.effective_size:.1f}"


@dataclass(frozen=True)
class Estimate:
    """A number found by simulation, and its Monte-Carlo standard error, NaN for a single simulated unit.

    ``posterior_sd`` is, of a mean over posterior draws of an SEM's parameters, the standard deviation between draws,
    which does not shrink with more units, and 0 otherwise.

    Examples
    --------
    >>> print(Estimate(0.25, 0.004))
    0.2500 ± 0.0040
    """

    value: float
    error: float
    posterior_sd: float = 0.0

    @classmethod
    def of(cls, values: Any) -> Estimate:
        """Return the mean of independent values, shape (n,), and its standard error, NaN of one value."""
        x = np.asarray(values, dtype=np.float64)
        return cls(float(x.mean()), float(x.std() / np.sqrt(len(x))) if len(x) > 1 else np.nan)

    @classmethod
    def pooled(cls, parts: Sequence[Estimate]) -> Estimate:
        """Return the mean over posterior draws, each evaluated with units of its own.

        Its error covers the units and the draws used; the standard deviation between draws is freed of the former.
        """
        if len(parts) == 1:
            return parts[0]
        values, errors = (np.array([getattr(part, name) for part in parts]) for name in ("value", "error"))
        variance = values.var(ddof=1)
        between = float(np.sqrt(max(variance - np.mean(errors**2), 0.0)))
        return cls(float(values.mean()), float(np.sqrt(variance / len(parts))), between)

    def __float__(self) -> float:
        return self.value

    def __round__(self, digits: int = 0) -> float:
        return round(self.value, digits)

    def __str__(self) -> str:
        between = f" (sd between draws {self.posterior_sd:.4f})" if self.posterior_sd else ""
        return f"{self.value:.4f} ± {self.error:.4f}{between}"


class Fittable(Protocol):
    """What every source has, of whichever protocol."""

    @property
    def unfair(self) -> Any:
        """The unfair paths (``pyrofair.UnfairPaths``) whose effect the two worlds contrast."""

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn from observed rows what does not depend on a classifier, and return self."""


@runtime_checkable
class PotentialOutcomes(Fittable, Protocol):
    """A source of potential outcomes: weights on observed rows, a structural equation model, or drawn mediators.

    A source makes two weighted samples of feature rows: world 0, the baseline, and world 1, where the unfair paths
    alone carry the other value of the sensitive attribute. Sources never read the outcome column.
    """

    def worlds(
        self,
        n: int | None = None,
        random_state: int | None = None,
        *,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        """Return world 0 and world 1.

        Parameters
        ----------
        n
            Number of units to draw, for sources that can draw units.
        random_state
            Seed of a generator of this call; the global generators are left as they were.
        df, sample_weight
            Rows to make the worlds of, with the nuisance models as fitted (by default the fitted rows), and their
            weights in the target population, shape (len(df),).
        """


@runtime_checkable
class Bounding(Fittable, Protocol):
    """A source that bounds the marginals of both worlds, which the data do not identify, by scores of rows of its own.

    It has no ``worlds``, for its rows are samples of neither. A classifier is trained with
    :func:`pyrofair.interval_disagreement` as penalty, or with the function that its attribute ``penalty`` is.
    """

    def samples(
        self, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        """Return the rows that have to be scored for the bounds on each marginal, weighted, with units."""

    def ends(self, scored0: Scored, scored1: Scored) -> tuple[Scored | MarginalBounds, Scored | MarginalBounds]:
        """Return what bounds each marginal, differentiable in the scores of the rows of :meth:`samples` with weight."""

    def bounds(self, score: Any) -> pd.DataFrame:
        """Return the ends of both marginals, of the mean unfair effect and of PIU for a known classifier."""

    def flatness(self, score: Any) -> str:
        """Return a warning if the ends hardly move with the scores of a classifier, or an empty string."""


@runtime_checkable
class SeveralContrasts(Fittable, Protocol):
    """Several pairs of worlds of one set of unfair paths: a level of the sensitive attribute against the baseline each.

    What trains on pairs penalises one number made of all of them, :meth:`combine`. ``fit`` fits a source for each, on
    the rows of its two levels.
    """

    def levels(self, df: pd.DataFrame) -> list[Any]:
        """Return the levels that are compared with the baseline; a DataError if the table does not allow that."""

    def strata(self, df: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the code of each row's level, shape (n,): 0 for the baseline, then the contrasts, then any other."""

    def pairs(
        self, *, df: pd.DataFrame, sample_weight: npt.NDArray[np.float64] | None = None, random_state: int | None = None
    ) -> Mapping[Any, Worlds]:
        """Return for each contrast both worlds of the rows of its two levels; ``origin`` is a position in ``df``."""

    def by_contrast(self) -> Mapping[Any, Any]:
        """Return the fitted source of each contrast."""

    def combine(self, values: torch.Tensor) -> torch.Tensor:
        """Return the scalar that training minimises, made of a penalty's values (k,), in the order of the contrasts."""


@runtime_checkable
class Refittable(PotentialOutcomes, Protocol):
    """A fitted source that can be fitted again on its rows with other weights: a bootstrap replicate.

    With it, the intervals of an audit cover the estimation of the nuisance models. Without it, they cover only the
    audited rows or the drawn units, and the audit warns of that. A source with a method ``refits`` besides, which takes
    a list of weights and returns for each a copy or the error that it raises, is asked for several replicates at once.
    """

    @property
    def n_fitted_(self) -> int:
        """The number of rows it was fitted on, n."""

    def fitted_rows(self, df: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return for each of m rows its position among the fitted rows, or -1 if it is none of them, shape (m,).

        A row that was fitted on and is audited has one weight in a replicate. A source that returns -1 for every row
        treats the audited rows as independent of the fitted ones; :func:`pyrofair.tables.row_identity.match_rows`
        matches rows by content and index.
        """

    def refit(self, sample_weight: npt.NDArray[np.float64]) -> Any:
        """Return a copy fitted on the same rows, their weights multiplied by ``sample_weight``, shape (n,)."""


@runtime_checkable
class Diagnosed(PotentialOutcomes, Protocol):
    """A fitted source that states its assumptions and reports how well the observed groups support both worlds.

    An audit lists the assumptions, prints the overlap, and gives no interval to a world that depends on a small group.
    A source may have ``doubts`` besides, clauses on what its own diagnostics refute: an audit withholds its verdict
    then.
    """

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind its numbers, one sentence each."""

    def overlap(self) -> pd.DataFrame:
        """Return diagnostics of overlap, with a column ``regime`` ("baseline" or "unfair"); empty if none apply."""

    def group_sizes(self) -> dict[str, tuple[GroupSize, ...]]:
        """Return for each world, "baseline" and "unfair", the observed groups that it depends on, if any."""


@runtime_checkable
class Stratified(PotentialOutcomes, Protocol):
    """A fitted source that weights observed rows, and so can weight each observed group alone.

    Under the assumptions both groups estimate the same numbers: :func:`pyrofair.audit` and
    :func:`pyrofair.effects.group_agreement.compare_groups` test that. Outcomes that are no function of the features
    can be audited with such a source only.
    """

    trim: float | None
    """Rows with a propensity outside [trim, 1 - trim] have no weight; None: all rows may have one."""

    def weights(self, regime: Any, df: pd.DataFrame | None = None) -> pd.Series[float]:
        """Return the unnormalised weight of each row in a world (a regime of ``unfair.regimes``), shape (n,).

        The mean is 1 in expectation. The default rows are the fitted ones.
        """

    def by_group(self, names: Sequence[str] | None = None) -> Mapping[str, Any]:
        """Return the source with each of ``"group 0"`` and ``"group 1"`` weighted alone, where it has support."""

    def for_outcome(self) -> Any:
        """Return the source for an observed outcome: rows carry weight only under their own sensitive attribute."""


@runtime_checkable
class SampleSplit(PotentialOutcomes, Protocol):
    """A fitted source whose units are values of the shared features, with worlds made from halves of its rows.

    The bounds on PIU given units take several views with independent errors; a single view would bias them inward.
    """

    def views(
        self,
        *,
        random_state: int | None = None,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
        like: Views | None = None,
    ) -> Views:
        """Return both worlds several times over for the same units, their errors independent given the units.

        Parameters are those of :meth:`PotentialOutcomes.worlds`. ``like`` are views of the same table by the source
        that this one is a replicate of, whose rows it may keep.
        """

    def effective_size(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return Kish's effective size, in rows, of the rows that show the shared features."""

    def redraws_units(self, df: pd.DataFrame) -> bool:
        """Return whether other weights of these rows give other units."""

    def with_first_mechanisms(self) -> Any:
        """Return a replicate's units with the mechanisms of the fit that the replicate was made of."""


def _check_length(name: str, values: npt.NDArray[Any], m: int) -> None:
    if values.shape != (m,):
        raise DataError(f"{name} has shape {values.shape}, but there are {m} rows. Give one value per row of `rows`.")


def rows_of_levels(values: pd.Series[Any], *levels: Hashable) -> npt.NDArray[np.int64]:
    """Return the positions of the rows (n,) of some levels."""
    return np.flatnonzero(np.any([np.asarray(values == each, dtype=bool) for each in levels], axis=0))


def few_rows(weight: npt.NDArray[np.float64], values: pd.Series[Any], *levels: Hashable) -> str:
    """Return which of some levels has too few rows of a weight, or an empty string."""
    for each in levels:
        if (own := int((weight[rows_of_levels(values, each)] > 0.0).sum())) < FEWEST_ROWS:
            return f"{own} row(s) have {values.name}={each!r}, fewer than {FEWEST_ROWS}"
    return ""


def refuse_fitted(name: str, source: object, of: str, instead: str) -> None:
    """Refuse a source that is not to be cloned and fitted, as it belongs to one of several; ``of`` says what of."""
    try:
        check_is_fitted(source)
    except NotFittedError:
        return
    except TypeError:  # it is no estimator, which could be cloned
        pass
    raise DataError(
        f"{name}={shown(source)} is fitted or needs no fit, so that it belongs to one {of}. Pass an unfitted one, "
        f"which is cloned for each {of}, {instead}."
    )
