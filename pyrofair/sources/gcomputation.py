"""G-computation: mechanisms learned from a table, worlds drawn given the shared nodes."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pyrofair._devices import require_wide_device
from pyrofair._random import PYRO_LOCK, neutral_torch, seed_from
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_layers,
    require_seed,
    require_units,
)
from pyrofair.effects.potential_outcomes import (
    FEWEST_ROWS,
    MEAN_WEIGHT,
    CounterfactualSample,
    GroupSize,
    Views,
    Worlds,
)
from pyrofair.exceptions import DataError, PositivityError, PositivityWarning
from pyrofair.graph.identification import Estimand
from pyrofair.graph.identify import identify
from pyrofair.graph.paths import UnfairPaths
from pyrofair.mechanisms.families import Family
from pyrofair.mechanisms.fitting import FEWEST
from pyrofair.mechanisms.learn import LearnedMechanisms, learn_mechanisms
from pyrofair.nuisances.diagnostics import group_sizes
from pyrofair.nuisances.folds import FOLDS, split_folds
from pyrofair.nuisances.learners import LearnerName, require_learner
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.sources.gformula import Draws, GFormula, Units, collect_units, sample_units, weight_units
from pyrofair.sources.mechanism_graph import MechanismGraph
from pyrofair.tables.reading import read_weight, warn_unused
from pyrofair.tables.recorded import Missing, assumed_of_records, warn_of_truths

__all__ = ["HALVES", "GComputation", "SplitMechanisms"]

HALVES = ("half 0", "half 1")
PARTS = ("all", *HALVES)
HALF_AS_MANY = 1500
"""The most steps of a half's mechanisms: half as many as those of all rows, so that each row is seen as often."""


def _require_parameters(name: str, value: object) -> None:
    if not (isinstance(value, Mapping) or callable(value)):
        require_choice(name, value, ("network", "linear"))


CONSTRAINTS: dict[str, Constraint] = {
    "unfair": partial(require_instance, types=UnfairPaths, expected="unfair paths, made by graph.unfair(...)"),
    "draws": require_integer,
    "shared": partial(require_choice, choices=("observed", "learned")),
    "most_units": require_integer,
    "families": optional(
        partial(require_instance, types=Mapping, expected="a dictionary from columns to families, or None")
    ),
    "parameters": _require_parameters,
    "hidden": require_layers,
    "components": require_integer,
    "propensity": partial(require_learner, target="propensity"),
    "folds": require_integer,
    "missing": partial(require_choice, choices=get_args(Missing)),
    "device": require_wide_device,
    "progress": require_flag,
    "random_state": lambda name, value: require_seed(value, name),
}


@dataclass(frozen=True)
class SplitMechanisms:
    """Mechanisms learned from all rows or from a random half of them, when first asked for.

    The mechanisms of a half are refitted once, as those of a bootstrap replicate are, so that replicates lie around
    them. ``learn`` is :func:`pyrofair.learn_mechanisms` with all given but the table, the families, the weights and the
    seed (None if there is nothing to learn); ``origin`` holds, in a replicate, the mechanisms of the same rows with
    their own weights, from which its fits start.
    """

    rows: Rows
    learn: Callable[..., LearnedMechanisms] | None
    families: Mapping[str, Family] | None
    seed: int
    origin: SplitMechanisms | None = None
    learned: dict[str, LearnedMechanisms | None] = field(default_factory=dict)
    starts: dict[str, LearnedMechanisms] = field(default_factory=dict)

    def of(self, which: str) -> LearnedMechanisms | None:
        """Return the mechanisms learned from ``"all"`` rows, ``"half 0"`` or ``"half 1"``; Ctrl-C leaves none."""
        with PYRO_LOCK:
            if which not in self.learned:
                self.learned[which] = self._learn(which) if self.learn else None
            return self.learned[which]

    def reweighted(self, rows: Rows) -> SplitMechanisms:
        """Return the mechanisms of the same rows with other weights: a bootstrap replicate, fitted in one step."""
        return replace(self, rows=rows, origin=self, learned={}, starts={})

    def refit_halves(self, replicates: Sequence[SplitMechanisms]) -> None:
        """Fit the halves' mechanisms of several replicates at once; one that has none fits, and fails, by itself."""
        with PYRO_LOCK:
            for which in HALVES if self.learn else ():
                self.of(which)
                part = self._part(which)
                weights = [each.rows.weight[part] for each in replicates]
                found = self.starts[which].refits(weights, random_state=self.seed, converge=False)
                for each, mechanisms in zip(replicates, found, strict=True):
                    if isinstance(mechanisms, LearnedMechanisms):
                        each.learned[which] = mechanisms

    def before(self) -> SplitMechanisms:
        """Return a replicate's mechanisms of all rows, with the halves' mechanisms of its origin."""
        if self.origin is None:
            return self
        return replace(self, learned={"all": self.of("all"), **{which: self.origin.of(which) for which in HALVES}})

    def _learn(self, which: str) -> LearnedMechanisms:
        weight = self.rows.weight[self._part(which)]
        if self.origin is not None:
            self.origin.of(which)
            return self.origin.starts[which].refit(weight, random_state=self.seed, converge=False)
        self.starts[which] = first = self._first(which, weight)
        return first.refit(weight, random_state=self.seed) if which in HALVES else first

    def _first(self, which: str, weight: NDArray[np.float64]) -> LearnedMechanisms:
        if which in HALVES and (found := int((weight > 0.0).sum())) < FEWEST:
            raise DataError(
                "The bounds on PIU take mechanisms learned from either half of the "
                f"{int((self.rows.weight > 0.0).sum())} rows that have a weight, and a half has only {found}; fit on "
                f"at least {2 * FEWEST} rows, or train and take worlds() without an audit."
            )
        whole = self.starts.get("all")
        assert self.learn is not None, "there is something to learn"
        mechanisms = self.learn(
            self.rows.given.iloc[self._part(which)],
            families=self.families if whole is None else {**whole.families, **(self.families or {})},
            sample_weight=weight,
            random_state=self.seed + PARTS.index(which),
            **({"steps": HALF_AS_MANY} if which in HALVES else {}),
        )
        if any(fit.interrupted for fit in mechanisms.fits.values()):
            raise KeyboardInterrupt  # the caller would report half learned mechanisms as learned
        return mechanisms

    def _part(self, which: str) -> NDArray[np.int64]:
        """Return the rows of a part; either half has rows of both groups if each group has two with a weight."""
        if self.origin is not None:
            return self.origin._part(which)
        n = len(self.rows.a)
        if which not in HALVES:
            return np.arange(n)
        if self.rows.groups is not None:
            halves = split_folds(self.rows.a, self.rows.weight, 2, self.seed, self.rows.groups)
            return np.sort(halves[HALVES.index(which)][1])
        order = np.random.default_rng(self.seed).permutation(n)
        group = np.where(self.rows.weight > 0.0, self.rows.a, 2)[order]
        if any(np.isin((0, 1), group[half::2]).sum() < 2 for half in range(len(HALVES))):
            order = order[np.argsort(group, kind="stable")]  # a group's rows are dealt out in turn
        return np.sort(order[HALVES.index(which) :: 2])


@dataclass(frozen=True, eq=False)
class DrawnSample(CounterfactualSample):
    """A world whose rows replicates weight anew.

    ``draws`` are its rows as a program's values; ``member`` is the unit of each row of the ``table`` that shows some.
    """

    draws: Draws | None = field(default=None, repr=False)
    member: NDArray[np.int64] | None = field(default=None, repr=False)
    table: pd.DataFrame | None = field(default=None, repr=False)


class GComputation(BaseEstimator):  # type: ignore[misc]
    """Potential outcomes given the features that both worlds share, the others drawn from learned mechanisms.

    A unit is a value of the shared features S, which no unfair path touches: its observed value, in rows of the
    baseline group weighted by 1 / P(A = baseline | what A does not cause), or in all rows if A causes no part of S. In
    each world the other features are drawn from P(V | parents, A = arm of V), learned by
    :func:`pyrofair.learn_mechanisms`; where these distributions have few values, all of them are taken with their
    probabilities instead. Unlike weights, this needs no overlap of the mediators, only mechanisms that extrapolate to
    where they are used. It is :class:`~pyrofair.effects.Refittable`, :class:`~pyrofair.effects.Diagnosed` and
    :class:`~pyrofair.effects.SampleSplit`.

    Parameters
    ----------
    unfair
        The unfair paths; they must be identified.
    draws
        Draws of each unit in each world, and the largest number of values that are summed over instead of drawn.
    shared
        Where S comes from: ``"observed"`` rows, or ``"learned"``: what A does not cause is observed, and the rest of S
        is drawn from its learned distribution with A = baseline, so that no propensity is needed.
    most_units
        The most units; more different values of S are thinned out at random, in proportion to their weights.
    families, parameters, hidden, components, device
        How mechanisms are learned, as in :func:`pyrofair.learn_mechanisms`.
    propensity, folds
        The model of P(A | what A does not cause), and the folds of cross-fitting it, as in :class:`pyrofair.IPW`.
    missing
        What becomes of missing values: ``"refuse"``, or ``"recorded"``: "not recorded" is a value, with a probability
        of its own; both worlds have rows with missing values, as the classifier reads them.
    progress
        Whether bars are shown.
    random_state
        Seeds the fit, and calls that name no seed of their own.

    Attributes
    ----------
    estimand_ : Estimand
        The formulas.
    mechanisms_ : LearnedMechanisms
        The learned mechanisms.

    See Also
    --------
    IPW : Weights on observed rows, without mechanisms.
    OneStep : For audits: regressions and weights, each repairing the other.
    SEM : A program of your own instead of learned mechanisms.

    References
    ----------
    Robins (1986), the g-formula; Chikahara et al. (2021), eq. (9) for the same distribution by weights.

    Examples
    --------
    >>> from pyrofair import simulate
    >>> hiring = simulate.scenario("hiring")
    >>> source = GComputation(hiring.unfair, progress=False, random_state=0).fit(hiring.draw(300, random_state=0))
    >>> baseline, switched = source.worlds()
    >>> sorted(baseline.rows.columns), baseline.units == switched.units
    (['A', 'D', 'M', 'Q'], True)
    """

    estimand_: Estimand
    graph_: MechanismGraph
    seed_: int
    nuisances_: Nuisances
    split_: SplitMechanisms

    def __init__(
        self,
        unfair: UnfairPaths,
        *,
        draws: int = 200,
        shared: Literal["observed", "learned"] = "observed",
        most_units: int = 5000,
        families: Mapping[str, Family] | None = None,
        parameters: Any = "network",
        hidden: tuple[int, ...] = (32, 32),
        components: int = 5,
        propensity: LearnerName | ClassifierMixin = "logistic",
        folds: int = FOLDS,
        missing: Missing = "refuse",
        device: str | torch.device = "cpu",
        progress: bool = True,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.unfair = unfair
        self.draws = draws
        self.shared = shared
        self.most_units = most_units
        self.families = families
        self.parameters = parameters
        self.hidden = hidden
        self.components = components
        self.propensity = propensity
        self.folds = folds
        self.missing = missing
        self.device = device
        self.progress = progress
        self.random_state = random_state

    # -- fitting ------------------------------------------------------------------------------------------------------

    def fit(
        self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | str | None = None
    ) -> Self:
        """Learn the distributions of the features that unfair paths touch; the table need not hold the outcome.

        Parameters
        ----------
        df, sample_weight
            n rows with the columns of all observed nodes but the outcome, and their weights (n,) in every estimate.
        groups
            The column of ``df`` of groups of rows, such as households, or their labels (n,): folds, halves and
            replicates hold whole groups. It is outside the graph. None: each row is one by itself.

        Raises
        ------
        NotIdentifiedError, DataError
            If the data do not identify the effect; if the table or a setting is unfit.
        KeyboardInterrupt
            At Ctrl-C; the object is then unchanged.
        """
        check_settings(self, CONSTRAINTS)
        fitted = copy.copy(self)  # an error below leaves self as it was
        fitted.estimand_ = estimand = identify(self.unfair)
        rows = Rows.read(df, sample_weight, self.unfair.graph, groups, self.missing)
        self._check_groups(rows.a, rows.weight, least=2)
        warn_unused(df, self.unfair.graph, groups=groups)
        fitted.graph_ = MechanismGraph.of(estimand)
        fitted.seed_ = seed = seed_from(self.random_state)
        fitted.nuisances_ = Nuisances(self.unfair.graph, self.propensity, rows, seed, None, self.folds, self.missing)
        fitted.split_ = SplitMechanisms(rows, fitted.learner(), self.families, seed)
        fitted._check_units()
        fitted.split_.of("all")
        warn_of_truths(self.unfair, rows.given, "parents")
        self.__dict__ = fitted.__dict__
        return self

    def learner(self) -> Callable[..., LearnedMechanisms] | None:
        """Return what learns the mechanisms from a table, by the settings; None if there is nothing to learn."""
        graph = self.graph_
        nodes = (*graph.drawn, *(graph.caused if self.shared == "learned" else ()))
        how = {name: getattr(self, name) for name in ("parameters", "hidden", "components", "missing", "progress")}
        how["device"] = str(self.device)
        learn = partial(learn_mechanisms, graph_or_unfair=graph.graph, nodes=nodes, given=graph.given, **how)
        return learn if nodes else None

    @property
    def mechanisms_(self) -> LearnedMechanisms | None:
        """The learned mechanisms; None if nothing is drawn."""
        check_is_fitted(self, "split_")
        return self.split_.of("all")

    @property
    def rows_(self) -> Rows:
        """The rows it was fitted on."""
        return self.nuisances_.rows

    @property
    def n_fitted_(self) -> int:
        """The number of rows it was fitted on."""
        return len(self.rows_.a)

    def fitted_rows(self, df: pd.DataFrame) -> NDArray[np.int64]:
        """Return the position of each row of a table among the fitted rows, shape (m,), -1 for others.

        Rows are matched by content and index, in any order; see :func:`pyrofair.tables.row_identity.match_rows`.
        """
        check_is_fitted(self, "split_")
        return self.nuisances_.positions(df)

    def refit(self, sample_weight: NDArray[np.float64]) -> GComputation:
        """Return a copy fitted on the same rows, their weights multiplied by others (n,): a bootstrap replicate.

        Its mechanisms start from those found, and take one step of Newton's method.
        """
        weight = self.rows_.weight * read_weight(sample_weight, self.rows_.table)
        self._check_groups(self.rows_.a, weight)
        other = copy.copy(self)
        other.nuisances_ = self.nuisances_.refit(weight)
        other.split_ = self.split_.reweighted(other.rows_)
        return other

    def refits(self, sample_weights: Sequence[NDArray[np.float64]]) -> list[GComputation | DataError | PositivityError]:
        """Return :meth:`refit` for each of several weights (n,), or why it fails; their mechanisms move at once."""
        found: list[GComputation | DataError | PositivityError] = []
        for weight in sample_weights:
            try:
                found.append(self.refit(weight))
            except (DataError, PositivityError) as error:
                found.append(error)
        self.split_.refit_halves([each.split_ for each in found if isinstance(each, GComputation)])
        return found

    def redraws_units(self, df: pd.DataFrame) -> bool:
        """Return whether other weights of these rows give other units: drawn ones, or a sample of too many."""
        rows = self.nuisances_.rows_of(df, None)
        shown, columns = self._shown(rows), self.graph_.graph.columns_of(self.graph_.units)
        different = len(collect_units(rows.given.loc[shown, columns], rows.weight[shown]).weight)
        return self._draws_units or different > self.most_units

    def with_first_mechanisms(self) -> GComputation:
        """Return a replicate's units with the mechanisms of its origin, which determine the signs of its ends."""
        other = copy.copy(self)
        other.split_ = self.split_.before()
        return other

    def group_sizes(self) -> dict[str, tuple[GroupSize, ...]]:
        """Return for each world the observed groups whose fitted rows it depends on.

        Mechanisms are learned from them; the baseline group shows the shared features, if A causes a part of it.
        """
        check_is_fitted(self, "split_")
        shown = {self.unfair.regimes[0].on_fair} if self.graph_.caused else set()
        found = {}
        for part, arms in zip((self.estimand_.baseline, self.estimand_.switched), self.graph_.arms, strict=True):
            needed = shown | {arms.get(node) for node in self.graph_.drawn}
            sizes = group_sizes(part, self.nuisances_)
            found[part.regime.name] = tuple(size for size in sizes if size.group in needed)
        return found

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its numbers depend on, a sentence each."""
        check_is_fitted(self, "estimand_")
        support = self.estimand_.support  # mechanisms need less than weights
        known = (text for text in self.estimand_.assumptions if text != support)
        records = assumed_of_records(self.unfair, self.rows_.given, self.estimand_.target, "parents")
        return (*known, *self.graph_.assumptions, *records)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why its numbers are in doubt, a clause each: mechanisms that rows which were held out refute."""
        learned = self.mechanisms_
        return tuple(learned.doubts() if learned else ())

    # -- units --------------------------------------------------------------------------------------------------------

    def _units(self, rows: Rows, seed: int, n: int | None) -> Units:
        """Return different values of the shared features, with their weights, n of them or at most `most_units`."""
        weight = self._weight(rows)
        if not weight.any():
            raise DataError(
                f"No row has {self.unfair.graph.sensitive_column}={self._baseline!r}, the baseline, and a weight above "
                "0; such rows show the shared features. Pass rows of both groups, or shared='learned'."
            )
        columns = self.graph_.graph.columns_of(self.graph_.roots if self._draws_units else self.graph_.units)
        shown = self._shown(rows)
        units = collect_units(rows.given.loc[shown, columns], weight[shown])
        if self._draws_units:
            with PYRO_LOCK, neutral_torch():
                units = self._formula("all").caused(units, self.most_units, seed)
        if n is None and len(units.weight) <= self.most_units:
            return units
        return sample_units(units, self.most_units if n is None else n, seed)

    def _formula(self, which: str) -> GFormula:
        """Return the g-formula with the mechanisms learned from a part of the rows."""
        return GFormula(self.split_.of(which), self.graph_, self.rows_.given)

    @property
    def _draws_units(self) -> bool:
        return bool(self.graph_.caused) and self.shared == "learned"

    def _shown(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows show the shared features, shape (n,)."""
        if not self.graph_.caused or self._draws_units:
            return np.full(len(rows.a), True)
        return np.asarray(rows.a == self.unfair.regimes[0].on_fair)

    def _weight(self, rows: Rows) -> NDArray[np.float64]:
        """Return how much each row counts for the shared features, shape (n,)."""
        if not self.graph_.caused or self._draws_units:
            return rows.weight.copy()
        one = self.nuisances_.probability(rows, self.graph_.roots)
        p = one if self.unfair.regimes[0].on_fair else 1.0 - one
        with np.errstate(over="ignore"):
            return np.divide(rows.weight, p, out=np.zeros(len(p)), where=self._shown(rows) & (p > 0.0))

    @property
    def _baseline(self) -> Any:
        return self.unfair.graph.label(self.unfair.regimes[0].on_fair)

    def _check_groups(self, a: NDArray[np.int8], weight: NDArray[np.float64], least: int = 1) -> None:
        """Refuse a group with fewer rows of positive weight than mechanisms, or either half of them, are learned of."""
        graph = self.unfair.graph
        for value in (0, 1):
            found = int((weight[a == value] > 0.0).sum())
            if not found:
                raise DataError(
                    f"All rows with {graph.sensitive_column}={graph.label(value)!r} have the weight 0; mechanisms are "
                    "learned from rows of both groups."
                )
            if found < least:
                raise DataError(
                    f"The sensitive attribute {graph.sensitive_column!r} takes the value {graph.label(value)!r} in 1 "
                    f"row only of the {int((weight > 0.0).sum())} that have a weight. Mechanisms are learned from "
                    f"either half of the rows too: take at least 2 rows a group, and {FEWEST_ROWS} for an interval."
                )

    def _check_units(self) -> None:
        small = {str(size) for sizes in self.group_sizes().values() for size in sizes if size.is_small}
        if small:
            warnings.warn(
                f"{' and '.join(sorted(small))}, fewer than {FEWEST_ROWS}: how well their mechanisms are "
                "learned is not known, and an audit gives no interval.",
                PositivityWarning,
                stacklevel=3,
            )
        weight, shown = self._weight(self.rows_), self._shown(self.rows_)
        lost = shown & (self.rows_.weight > 0.0) & ~((weight > 0.0) & np.isfinite(weight))
        if lost.any():
            raise PositivityError(
                f"{int(lost.sum())} of the {int(shown.sum())} rows of the baseline {self._baseline!r}, which show what "
                "both worlds share, have an infinite weight: their group has the probability 0 by the propensity "
                f"{self.nuisances_.propensity_name}. Choose one that is never certain, such as 'logistic', or "
                "shared='learned'."
            )
        mean = weight.sum() / self.rows_.weight.sum()
        low, high = MEAN_WEIGHT
        if not low <= mean <= high:
            warnings.warn(
                f"The rows of the baseline {self._baseline!r}, which show the shared features, have the mean weight "
                f"{mean:.3g}, outside [{low}, {high}]: the propensity given {', '.join(self.graph_.roots)} is "
                "misspecified, or near 0. Choose another one, or shared='learned'.",
                PositivityWarning,
                stacklevel=3,
            )

    # -- worlds -------------------------------------------------------------------------------------------------------

    def worlds(
        self,
        n: int | None = None,
        random_state: int | None = None,
        *,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Worlds:
        """Return both worlds as the classifier reads them.

        Parameters
        ----------
        n, random_state
            The number of units, drawn at random (by default all different values of the shared features), and a seed.
        df, sample_weight
            Other rows than the fitted ones, for their shared features, and their weights, shape (m,).

        Returns
        -------
        baseline, switched
            Rows with weights and units; within a unit the draws of the two worlds are independent.
        """
        return self._worlds("all", n, random_state, df, sample_weight)

    def views(
        self,
        *,
        random_state: int | None = None,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
        like: Views | None = None,
    ) -> Views:
        """Return both worlds twice for the same units, by mechanisms learned from either half of the fitted rows.

        Their errors are independent given the units, as the bounds on PIU given units require. Parameters as for
        :meth:`worlds`. A replicate that is given views (``like``) of the same table by the source that it was made of
        keeps their rows, unless its units are others, and weights them anew.
        """
        found = []
        for i, which in enumerate(HALVES):
            again = None if like is None else self._weighted_anew(which, like[i], df, sample_weight, random_state)
            found.append(again or self._worlds(which, None, random_state, df, sample_weight))
        return tuple(found)

    def _worlds(
        self,
        which: str,
        n: int | None,
        random_state: int | None,
        df: pd.DataFrame | None,
        sample_weight: npt.ArrayLike | None,
    ) -> Worlds:
        check_is_fitted(self, "split_")
        if n is not None:
            require_units("n", n)
        rows = self.nuisances_.rows_of(df, sample_weight)
        seed = seed_from(self.seed_ if random_state is None else random_state)
        units = self._units(rows, seed, n)
        draws = max(self.draws, math.ceil(self.most_units / len(units.weight)))
        with PYRO_LOCK, neutral_torch():
            formula = self._formula(which)
            drawn = formula.worlds(units, draws=draws, exact=self.draws, seed=seed + PARTS.index(which))
            tables = [each.as_the_outcome_reads() for each in drawn]
        reads = list(self.unfair.graph.input_columns)
        one, other = (
            DrawnSample(
                table[reads], each.weight(units.weight), each.unit, draws=each, member=units.member, table=rows.given
            )
            for table, each in zip(tables, drawn, strict=True)
        )
        return one, other

    def _weighted_anew(
        self,
        which: str,
        worlds: Worlds,
        df: pd.DataFrame | None,
        sample_weight: npt.ArrayLike | None,
        random_state: int | None,
    ) -> Worlds | None:
        """Return worlds of the same rows with a replicate's weights, or None if they must be drawn again."""
        rows = self.nuisances_.rows_of(df, sample_weight)
        random = np.random.default_rng(
            [seed_from(self.seed_ if random_state is None else random_state), which == HALVES[1]]
        )
        found, units = [], None
        for world in worlds:
            if not isinstance(world, DrawnSample) or world.member is None or world.table is not rows.given:
                return None
            assert world.draws is not None, "its rows were drawn"
            if units is None:  # both worlds have the same
                units = weight_units(world.member, self._weight(rows)[self._shown(rows)])
            with PYRO_LOCK, neutral_torch():
                weight = world.draws.reweighted(units, self.split_.of(which), random)
            if weight is None:
                return None
            found.append(CounterfactualSample(world.rows, weight, world.unit))
        return found[0], found[1]

    def effective_size(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return Kish's effective size of the rows that show the shared features, in rows."""
        weight = self._weight(self.nuisances_.rows_of(df, sample_weight))
        return float(weight.sum() ** 2 / (weight @ weight))

    def overlap(self) -> pd.DataFrame:
        """Return how far mechanisms are used beyond the rows that they were learned from, per world and column.

        Columns: regime, column, arm (the value of A that it reads), reads, and outside: the share of that world where
        the distribution reads a combination of categories, or a number beyond the least or greatest, that its group
        never had.
        """
        check_is_fitted(self, "split_")
        units = self._units(self.rows_, self.seed_, None)
        few = max(min(self.draws, 50), math.ceil(self.most_units / len(units.weight)))
        with PYRO_LOCK, neutral_torch():
            return self._formula("all").outside_support(units, self.rows_, draws=few, seed=self.seed_)
