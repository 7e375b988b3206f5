"""Inverse probability weighting: both worlds as weighted observed rows, by the identified formula."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pyrofair._random import fresh_state
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_names,
    require_real,
    require_seed,
    shown,
)
from pyrofair.effects.potential_outcomes import CounterfactualSample, GroupSize
from pyrofair.exceptions import DataError, PositivityWarning
from pyrofair.graph.identification import Estimand, RegimeEstimand
from pyrofair.graph.identify import identify
from pyrofair.graph.paths import Regime, UnfairPaths
from pyrofair.nuisances.diagnostics import GroupOverlap, group_overlap, warn_of_overlap
from pyrofair.nuisances.folds import FOLDS
from pyrofair.nuisances.learners import LearnerName, require_learner
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.tables.reading import read_weight, warn_unused
from pyrofair.tables.recorded import Missing, assumed_of_records, warn_of_truths

__all__ = ["IPW"]

Arm = Literal["auto", "paper", "pooled"] | int
POOLED = None

_below_half = optional(partial(require_real, above=0.0, below=0.5))
CONSTRAINTS: dict[str, Constraint] = {
    "unfair": partial(require_instance, types=UnfairPaths, expected="unfair paths, made by graph.unfair(...)"),
    "arm": partial(require_choice, choices=("auto", "paper", 0, 1, "pooled")),
    "propensity": partial(require_learner, target="propensity"),
    "folds": require_integer,
    "normalize": require_flag,
    "clip": _below_half,
    "trim": _below_half,
    "max_unsupported": partial(require_real, least=0.0, most=1.0),
    "missing": partial(require_choice, choices=get_args(Missing)),
    "random_state": lambda name, value: require_seed(value, name),
}


class IPW(BaseEstimator):  # type: ignore[misc]
    """Potential outcomes as weighted observed rows.

    It is :class:`~pyrofair.effects.Refittable`, :class:`~pyrofair.effects.Diagnosed` and
    :class:`~pyrofair.effects.Stratified`.

    Parameters
    ----------
    unfair
        The unfair paths; they must be identified.
    arm
        Which rows carry the weights: ``"paper"`` (the group that the outcome's arm names), ``0``, ``1``, ``"pooled"``
        (both groups, each weighted by the probability of its group given the features), or ``"auto"``: for each world,
        of those that have support, the one whose weights need the fewest propensities given features, and then the one
        with the largest effective size; see ``arm_`` and :meth:`overlap`.
    propensity
        ``"logistic"`` (unpenalised, the paper's), ``"boosted"`` (cross-fitted trees, or a stack of them and a logistic
        model if a group has fewer than 300 rows), ``"saturated"`` (cell frequencies; a cell counts as unsupported if an
        arm whose distribution is taken from there has one row in it), or a scikit-learn classifier, cloned, given the
        columns of each prefix as they are, and cross-fitted too, whatever it is.
    folds
        The folds of cross-fitting: each row is judged by models that did not see it. 1 fits ``"boosted"`` or a
        classifier on all rows, which serves those of few parameters, such as ``LogisticRegression``.
    normalize
        Whether weights are divided by their sum (Hajek); if False, by the number of rows (Horvitz-Thompson, the
        paper's).
    clip
        Bounds propensities to [clip, 1 - clip]; by default they are left as they are.
    trim
        Drops rows with a propensity outside [trim, 1 - trim] and fits again on the others. The estimand is then the
        effect in the population that is left.
    max_unsupported
        The largest mass of the target population that may lack a counterpart.
    missing
        ``"refuse"`` takes no missing values. With ``"recorded"`` a feature may lack values, and "not recorded" counts
        as a value of it: a level of a category, a flag beside a number. The classifier reads the rows as they are.
    random_state
        Seeds cross-fitting.

    Attributes
    ----------
    estimand_ : Estimand
        The formulas.
    arm_ : dict
        For each world, the weighted group: 0, 1 or ``"pooled"``.
    trimmed_ : int
        How many rows were trimmed.

    See Also
    --------
    GComputation : Learned mechanisms; they give units, and train with less loss of accuracy.
    OneStep : For audits: regressions and weights, each repairing the other.

    References
    ----------
    Chikahara et al. (2021), eq. (9) and appendix D; Huber (2014).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> source = IPW(graph.unfair("A -> Y"), arm="paper", propensity="saturated").fit(df)
    >>> baseline, switched = source.worlds()
    >>> score = 0.2 + 0.3 * switched.rows["A"] + 0.4 * switched.rows["M"]
    >>> round(float((switched.weight * score).sum()), 10)
    0.6
    """

    estimand_: Estimand
    nuisances_: Nuisances
    candidates_: list[GroupOverlap]
    groups_: dict[str, int | None]
    trimmer_: Nuisances | None
    trimming_prefixes_: list[tuple[str, ...]]

    def __init__(
        self,
        unfair: UnfairPaths,
        *,
        arm: Arm = "auto",
        propensity: LearnerName | ClassifierMixin = "logistic",
        folds: int = FOLDS,
        normalize: bool = True,
        clip: float | None = None,
        trim: float | None = None,
        max_unsupported: float = 0.01,
        missing: Missing = "refuse",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.unfair = unfair
        self.arm = arm
        self.propensity = propensity
        self.folds = folds
        self.normalize = normalize
        self.clip = clip
        self.trim = trim
        self.max_unsupported = max_unsupported
        self.missing = missing
        self.random_state = random_state

    # -- fitting ------------------------------------------------------------------------------------------------------

    def fit(
        self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | str | None = None
    ) -> Self:
        """Fit the propensities on a table, which need not hold the outcome.

        Parameters
        ----------
        df, sample_weight
            n rows with the columns of all observed nodes but the outcome, and their weights (n,) in propensities and
            in every estimate.
        groups
            The column of ``df`` of groups of rows, such as households, or their labels (n,): Folds and replicates
            hold whole groups. It is outside the graph. None: each row is one by itself.

        Raises
        ------
        NotIdentifiedError, DataError
            If the data do not identify the effect; if the table or a setting is unfit.
        PositivityError
            If too much of the target population has no counterpart, or the features separate the two groups.
        """
        check_settings(self, CONSTRAINTS)
        fitted = copy.copy(self)  # an error below leaves self as it was
        fitted.estimand_ = identify(self.unfair)
        rows = Rows.read(df, sample_weight, self.unfair.graph, groups, self.missing)
        warn_unused(df, self.unfair.graph, groups=groups)
        seed = int(fresh_state(self.random_state).randint(2**31 - 1))
        settings = self.clip, self.folds, self.missing
        fitted.nuisances_ = Nuisances(self.unfair.graph, self.propensity, rows, seed, *settings)
        fitted.trimmer_ = None
        if self.trim is not None:
            fitted._trim(rows, self.trim)
        fitted._choose_groups()
        warn_of_truths(self.unfair, rows.given)
        self.__dict__ = fitted.__dict__
        return self

    def _choose_groups(self) -> None:
        """Choose the weighted group of each world by the overlap of those considered, and warn of poor overlap."""
        self.candidates_, self.groups_ = [], {}
        problems = []
        for part in self._parts():
            groups = self._considered(part)
            if self.estimand_.target == "outcome":  # a row shows the outcome under its own value alone
                groups = tuple(group for group in groups if part.outcome_arm in (None, group))
            if not groups:
                raise DataError(
                    f"arm={self.arm!r} weights rows whose outcome in the world {part.regime.symbol} is not observed: "
                    f"they have another {self.unfair.graph.sensitive_column!r}. Use arm='paper' or 'auto'."
                )
            found = [group_overlap(part, group, self.nuisances_) for group in groups]
            chosen = min(found, key=lambda each: each.rank(self.max_unsupported))
            problems.append(chosen.check(self.max_unsupported))
            self.candidates_ += found
            self.groups_[part.regime.name] = chosen.group
        warn_of_overlap(problems)

    @property
    def arm_(self) -> dict[str, int | str]:
        """For each world, the weighted group: 0, 1 or ``"pooled"``."""
        return {name: "pooled" if group is POOLED else group for name, group in self.groups_.items()}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind its numbers, one sentence each."""
        check_is_fitted(self, "estimand_")
        known = assumed_of_records(self.unfair, self.nuisances_.rows.given, self.estimand_.target)
        if self.propensity == "saturated":
            return (*self.estimand_.assumptions, *known)
        name = self.propensity if isinstance(self.propensity, str) else type(self.propensity).__name__
        right = (
            f"The propensities ({name}) are right; intervals account for sampling error, by fitting them again, and "
            "not for a wrong form."
        )
        return (*self.estimand_.assumptions, right, *known)

    @property
    def n_fitted_(self) -> int:
        """The number of rows it was fitted on."""
        return len(self.nuisances_.rows.a)

    def fitted_rows(self, df: pd.DataFrame) -> NDArray[np.int64]:
        """Return the position of each row of a table among the fitted rows, shape (m,), -1 for others.

        Rows are matched by content and index, in any order; see :func:`pyrofair.tables.row_identity.match_rows`.
        """
        check_is_fitted(self, "groups_")
        return self.nuisances_.positions(df)

    def refit(self, sample_weight: NDArray[np.float64]) -> IPW:
        """Return a copy fitted on the same rows, their weights multiplied by others (n,): a bootstrap replicate.

        The choice of groups and the trimmed rows are kept.
        """
        other = copy.copy(self)
        rows = self.nuisances_.rows
        other.nuisances_ = self.nuisances_.refit(rows.weight * read_weight(sample_weight, rows.table))
        return other

    def group_sizes(self) -> dict[str, tuple[GroupSize, ...]]:
        """Return for each world the observed groups that it depends on, with their fitted rows."""
        check_is_fitted(self, "groups_")
        used = [c for c in self.candidates_ if c.group == self.groups_[c.regime]]
        return {c.regime: tuple(size for size in c.sizes if size.group in c.needed) for c in used}

    def for_outcome(self) -> IPW:
        """Return the source for an observed outcome, or for scores that are no function of the features.

        The formula is that of ``identify(unfair, "outcome")``. Only rows whose own value of the sensitive attribute is
        the outcome's arm carry weights, for no other row shows that outcome.

        Raises
        ------
        NotIdentifiedError, DataError, PositivityError
            If the data do not identify that effect; if ``arm`` names another group; as for :meth:`fit`.
        """
        check_is_fitted(self, "groups_")
        other = copy.copy(self)
        other.estimand_ = identify(self.unfair, "outcome")
        other._choose_groups()
        return other

    def by_group(self, names: Sequence[str] | None = None) -> dict[str, IPW]:
        """Return the source with each single group weighted in both worlds.

        Under the assumptions both estimate the same; if they disagree, a propensity is misspecified or overlap fails,
        never a latent cause alone. ``names`` are among ``"group 0"`` and ``"group 1"``; by default those that have
        support in both worlds.
        """
        found: dict[str, IPW] = {}
        if names is not None:
            names = require_names("names", names, "groups")
        if self.estimand_.target == "outcome":  # a row shows the outcome under its own value alone
            return found
        for group in (0, 1):
            name = f"group {group}"
            overlaps = (group_overlap(part, group, self.nuisances_) for part in self._parts() if names is None)
            if name in names if names is not None else all(o.unsupported <= self.max_unsupported for o in overlaps):
                found[name] = other = copy.copy(self)
                other.groups_ = {part.regime.name: group for part in self._parts()}
        return found

    def _trim(self, rows: Rows, trim: float) -> None:
        """Drop rows with an extreme propensity, and fit anew on the others."""
        self.trimmer_ = self.nuisances_
        weights = (part.weight(group) for part in self._parts() for group in self._considered(part))
        self.trimming_prefixes_ = list(dict.fromkeys(prefix for weight in weights for prefix in weight.prefixes))
        kept = self.trimmer_.inside(rows, self.trimming_prefixes_, trim)
        if len(np.unique(rows.a[kept])) < 2:
            raise DataError(f"trim={trim} leaves one group only ({int(kept.sum())} rows); choose a smaller value.")
        if not kept.all():
            text = f"trim={trim} drops {int((~kept).sum())} of {len(kept)} rows; the effect is now that of the others."
            warnings.warn(text, PositivityWarning, stacklevel=3)
        self.nuisances_ = replace(self.trimmer_, rows=replace(rows, kept=kept, probability={}), models={})

    # -- groups and overlap -------------------------------------------------------------------------------------------

    def _parts(self) -> tuple[RegimeEstimand, RegimeEstimand]:
        return self.estimand_.baseline, self.estimand_.switched

    def _considered(self, part: RegimeEstimand) -> tuple[int | None, ...]:
        """Return the groups that may carry the weights."""
        if self.arm == "auto":
            return POOLED, 0, 1
        if self.arm == "pooled":
            return (POOLED,)
        return (part.paper_group if self.arm == "paper" else int(self.arm),)

    @property
    def trimmed_(self) -> int:
        """How many of the fitted rows were trimmed."""
        return int((~self.nuisances_.rows.kept).sum())

    def overlap(self) -> pd.DataFrame:
        """Return the overlap of the fitted rows: a row for each world and group that was considered.

        Columns: regime, group, used, n (rows that carry weight), mean_weight (1 in expectation), max_weight, ess
        (effective sample size in rows), at_bounds (rows with a propensity at 0 or 1), clipped, trimmed,
        unsupported_cells and their unsupported_mass in the target population; rows_0 and rows_1, the rows of either
        observed group, and ess_0 and ess_1, their effective sizes in the population of what the sensitive attribute
        does not cause. An audit gives no interval to a world that depends on a group of fewer than 10 effective rows.
        A mean weight far from 1 is a bad sign, but one near 1 is no good sign: compare :meth:`by_group`.
        """
        check_is_fitted(self, "groups_")
        return pd.DataFrame([c.as_row(self.trimmed_, c.group == self.groups_[c.regime]) for c in self.candidates_])

    # -- weights and worlds -------------------------------------------------------------------------------------------

    def _rows(self, df: pd.DataFrame | None, sample_weight: npt.ArrayLike | None) -> Rows:
        check_is_fitted(self, "groups_")
        rows = self.nuisances_.rows_of(df, sample_weight)
        if rows.position is not None and self.trimmer_ is not None and self.trim is not None:
            rows.kept = self.trimmer_.inside(rows, self.trimming_prefixes_, self.trim)
            rows.probability = {}
        return rows

    def kept(self, df: pd.DataFrame | None = None) -> NDArray[np.bool_]:
        """Return which rows (by default the fitted ones) are not trimmed, shape (n,)."""
        return self._rows(df, None).kept

    def weights(self, regime: Regime, df: pd.DataFrame | None = None) -> pd.Series[float]:
        """Return the unnormalised weight of each row in a world, 0 outside the weighted group, as a Series.

        Its mean is 1 in expectation; the mean of ``weights * score`` is the paper's estimate. ``regime`` is one of
        ``unfair.regimes``, and ``df`` holds other rows than the fitted ones, weighted with the fitted propensities.
        """
        rows = self._rows(df, None)
        part = self.estimand_.of(regime)
        values = self.nuisances_.weights(rows, part, self.groups_[part.regime.name])
        return pd.Series(values, index=rows.table.index, name=regime.symbol)

    def worlds(
        self,
        n: int | None = None,
        random_state: int | None = None,
        *,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        """Return both worlds as weighted rows; nothing is drawn.

        Parameters
        ----------
        n, random_state
            Not used here: the rows are the observed ones.
        df, sample_weight
            Other rows than the fitted ones, weighted with the fitted propensities, and their weights, shape (m,). A
            ``DataError`` if they lack the weighted group.

        Returns
        -------
        baseline, switched
            The rows of the weighted group as the classifier reads them, with the sensitive attribute set to the value
            that the outcome reads in that world. ``(weight * score).sum()`` is the estimate of P(Y = 1).
        """
        if n is not None:
            raise DataError(f"n={shown(n)} cannot be chosen: IPW draws no rows, it weights those observed. Omit n.")
        require_seed(random_state)
        rows = self._rows(df, sample_weight)
        first, second = self._parts()
        return self._world(rows, first), self._world(rows, second)

    def _world(self, rows: Rows, part: RegimeEstimand) -> CounterfactualSample:
        graph, arm = self.unfair.graph, part.outcome_arm
        group = self.groups_[part.regime.name]
        member = rows.member(group)
        w = rows.weight * self.nuisances_.weights(rows, part, group)
        total = w.sum() if self.normalize else (rows.weight * rows.kept).sum()
        if not w.sum() > 0:
            whose = "either group" if group is POOLED else f"group {group}"
            carrying = int((rows.weight[member] > 0.0).sum())
            why = f"these {len(rows.a)} rows hold none of {whose} with positive weight"
            if carrying:
                why = f"by the fitted propensities all {carrying} rows of {whose} have the weight 0 there"
            raise DataError(f"The world {part.regime.symbol} has no row to weight: {why}.")
        features, origin = rows.weighted(group, arm, graph, self.nuisances_.rows)
        return CounterfactualSample(features, w[member] / total, None, origin)
