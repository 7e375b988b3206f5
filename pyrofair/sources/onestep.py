"""One-step estimates of both potential outcomes of a known classifier, by influence functions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from pyrofair._random import seed_for, seed_from
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_choice,
    require_instance,
    require_integer,
    require_real,
    require_seed,
)
from pyrofair.effects.estimates import CAUSAL, mean_and_spread
from pyrofair.effects.influence import InfluenceValues, Scorer
from pyrofair.effects.potential_outcomes import CounterfactualSample, GroupSize
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.graph.identification import Estimand, RegimeEstimand
from pyrofair.graph.identify import identify
from pyrofair.graph.paths import UnfairPaths
from pyrofair.nuisances.diagnostics import (
    MOST_UNSUPPORTED,
    choose_by_overlap,
    group_overlap,
    group_sizes,
    warn_of_overlap,
    worst_stages,
)
from pyrofair.nuisances.folds import FOLDS, split_folds, warn_of_one_fold
from pyrofair.nuisances.learners import LearnerName, require_learner
from pyrofair.nuisances.rows import Nuisances, Rows, judge_unseen
from pyrofair.sources.graph_form import GraphForm
from pyrofair.sources.prefix_form import PrefixForm, arrange, orders_of
from pyrofair.tables.reading import warn_unused
from pyrofair.tables.recorded import Missing, Needs, assumed_of_records, warn_of_truths

__all__ = ["OneStep"]

Form = PrefixForm | GraphForm
Order = tuple[str, ...] | None
"""Nodes that the sensitive attribute causes, in an order of their own; None is the declared one."""

NEGLIGIBLE = 1e-12
SPLITS, HALVES = 3, 3
"""The splits into folds by default, and how often the fitted rows are halved."""

CONSTRAINTS: dict[str, Constraint] = {
    "unfair": partial(require_instance, types=UnfairPaths, expected="unfair paths, made by graph.unfair(...)"),
    "propensity": partial(require_learner, target="propensity"),
    "regression": partial(require_learner, target="regression"),
    "form": partial(require_choice, choices=("auto", "prefix", "graph")),
    "folds": require_integer,
    "splits": require_integer,
    "clip": optional(partial(require_real, above=0.0, below=0.5)),
    "missing": partial(require_choice, choices=get_args(Missing)),
    "random_state": lambda name, value: require_seed(value, name),
}


class OneStep(BaseEstimator):  # type: ignore[misc]
    """The potential outcomes of known classifiers by one-step estimates, with an influence value for each row.

    The estimate averages the score over the features by regressions, and corrects their error by the weighted residuals
    of observed rows. In the prefix form it is consistent if at each stage the weights or the regression are; its error
    is a product of theirs, and its uncertainty follows from the spread of the influence values, without replicates. To
    that adds what the models leave: of fitted rows the spread between splits into folds, of others a share of the
    difference of models from either half of the fitted rows. It audits; it makes no weighted rows, and so trains
    nothing. It is :class:`~pyrofair.effects.InfluenceBased`.

    Parameters
    ----------
    unfair
        The unfair paths; they must be identified.
    propensity
        The model of P(A | features before a stage): ``"boosted"`` trees, ``"logistic"``, ``"saturated"``,
        ``"stacked"`` (boosted and logistic), or a scikit-learn classifier, cloned. If a group has fewer than 300 rows,
        ``"boosted"`` is ``"stacked"``: trees alone find hardly a split there, and would adjust for nothing.
    regression
        The model of the mean score given the features before a stage: the same names, or a scikit-learn regressor.
    form
        ``"prefix"`` conditions each stage on all features before it: right if at each stage either model is, and in
        need of overlap given these features. ``"graph"`` conditions it on its parents only: efficient, and in need of
        overlap of parents alone, but it depends on the missing edges and on mechanisms drawn from the leaves of
        forests, whatever ``regression`` is but ``"saturated"``. ``"auto"`` takes the prefix form where its weights are
        usable, else the graph form where its are and edges are missing, and refuses otherwise.
    folds
        The folds of cross-fitting: each row is judged by models that did not see it, but for logistic and saturated
        ones, which have few parameters. 1 fits on all rows, with a warning if models are then asked for what they saw.
    splits
        Fitted rows are judged by as many splits into folds, and the influence values averaged: no number depends on one
        split, and each takes the time of a fit. Without cross-fitted models there is one.
    clip
        Bounds propensities to [clip, 1 - clip]; by default they are left as they are.
    missing
        ``"refuse"`` takes no missing values. With ``"recorded"`` a feature may lack values, and "not recorded" counts
        as a value of it: a level of a category, a flag beside a number. The classifier reads the rows as they are.
    random_state
        Seeds folds and models.

    Attributes
    ----------
    estimand_ : Estimand
        The formulas.
    nuisances_ : Nuisances
        The fitted rows, and the propensities.

    See Also
    --------
    IPW, GComputation : Samples of both worlds, to train on.

    References
    ----------
    Robins, Rotnitzky and Zhao (1994); Tchetgen Tchetgen and Shpitser (2012); Miles et al. (2020), for paths through one
    mediator; Chernozhukov et al. (2018) for cross-fitting. The estimand is Chikahara et al. (2021), eq. (9).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> source = OneStep(graph.unfair("A -> Y"), propensity="saturated", regression="saturated").fit(df)
    >>> values = source.influence(lambda world: (0.2 + 0.3 * world.rows["A"] + 0.4 * world.rows["M"]).to_numpy())
    >>> float(values.ypi.mean().round(10))
    0.6
    """

    estimand_: Estimand
    nuisances_: Nuisances
    _form: Form
    _order: Order = None

    def __init__(
        self,
        unfair: UnfairPaths,
        *,
        propensity: LearnerName | ClassifierMixin = "boosted",
        regression: LearnerName | RegressorMixin = "boosted",
        form: Literal["auto", "prefix", "graph"] = "auto",
        folds: int = FOLDS,
        splits: int = SPLITS,
        clip: float | None = None,
        missing: Missing = "refuse",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.unfair = unfair
        self.propensity = propensity
        self.regression = regression
        self.form = form
        self.folds = folds
        self.splits = splits
        self.clip = clip
        self.missing = missing
        self.random_state = random_state

    # -- fitting ------------------------------------------------------------------------------------------------------

    def fit(
        self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | str | None = None
    ) -> Self:
        """Fit the propensities on a table, which need not hold the outcome, and choose the form.

        Parameters
        ----------
        df, sample_weight
            n rows with the columns of all observed nodes but the outcome, and their weights (n,).
        groups
            The column of ``df`` of groups of rows, such as households, or their labels (n,): Folds
            hold whole groups. It is outside the graph. None: each row is one by itself.

        Raises
        ------
        NotIdentifiedError, DataError
            If the data do not identify the effect; if the table or a setting is unfit.
        PositivityError
            If ``form="auto"`` finds no form whose weights are usable.
        """
        check_settings(self, CONSTRAINTS)
        identify(self.unfair)
        rows = Rows.read(df, sample_weight, self.unfair.graph, groups, self.missing)
        warn_unused(df, self.unfair.graph, groups=groups)
        return self.fit_rows(rows)

    def fit_rows(self, rows: Rows, law: Rows | None = None) -> Self:
        """Fit on rows that were read; the propensities on ``law``, if given, among which these rows come first."""
        check_settings(self, CONSTRAINTS)
        fitted = copy.copy(self)  # an error below leaves self as it was
        fitted.estimand_ = identify(self.unfair)
        seed = seed_from(self.random_state)
        settings = self.clip, self.folds, self.missing
        fitted.nuisances_ = Nuisances(self.unfair.graph, self.propensity, rows, seed, *settings, law=law)
        fitted._choose_form()
        warn_of_truths(self.unfair, rows.given, fitted._needs)
        self.__dict__ = fitted.__dict__
        return self

    def _choose_form(self) -> None:
        """Take the first form whose weights are usable in every split, or warn of those of the form asked for."""
        found: dict[str, str] = {}
        names = ("prefix", "graph") if self.form == "auto" else (self.form,)
        for name in ("prefix",) if self.estimand_.target == "outcome" else names:  # no outcome is drawn
            self._order, forms, problems = choose_by_overlap(self._tried(name), len)
            self._form, self._kept = forms[0], {(number, None): form for number, form in enumerate(forms)}
            if not problems:
                warn_of_overlap([rest for _, rest in getattr(self._form, "unsupported", {}).values()])
                return
            found[name] = "; ".join(f"{world} world, stage {text}" for world, text in problems.items())
            if isinstance(self._form, PrefixForm) and self._form.complete:
                break  # the graph form needs the same overlap
        listed = " ".join(f"The {name} form: {text}." for name, text in found.items())
        if self.form == "auto":
            raise PositivityError(
                f"The two groups do not overlap enough for an estimate. {listed} Coarsen the features of these stages "
                "(join rare levels), or choose other unfair paths; form='prefix' or 'graph' gives doubtful numbers."
            )
        warn_of_overlap([f"Poor overlap. {listed} The estimates are not to be trusted."])

    def _tried(self, name: str) -> Iterator[tuple[Order, list[Form]]]:
        """Yield a form, by each split, in several orders of the nodes that the sensitive attribute causes."""
        for order in orders_of(self._parts()) if name == "prefix" else (None,):
            own = (self.nuisances_.by_split(number) for number in range(self._count(name)))
            yield order, [self._make_form(name, each, order) for each in own]

    def _count(self, name: str) -> int:
        """Return by how many splits into folds a form judges the rows that it was fitted on."""
        return self.splits if self.folds > 1 and self._crossed(name) else 1

    def _make_form(self, name: str, nuisances: Nuisances | None = None, order: Order = None) -> Form:
        own, of = nuisances or self.nuisances_, self.estimand_
        if name == "graph":
            return GraphForm(of, own, seed=own.seed, regression=self.regression)
        worlds = [arrange(part, of, order or self._order) for part in self._parts()]
        return PrefixForm(of, own, self.regression, own.seed, worlds)

    def _made_again(self, number: int, weight: NDArray[np.float64] | None = None) -> Form:
        """Return the form of another split, or of one fold with other weights (n,), as it was made before."""
        kept: dict[Any, Form] = self.__dict__.setdefault("_kept", {})
        key = number, None if weight is None else weight.tobytes()
        if key not in kept:
            other = self.nuisances_.by_split(number)
            if weight is not None:
                rows = replace(other.rows, probability={}, weight=weight)
                seed = seed_for(self.nuisances_.seed, number)
                other = replace(other, rows=rows, seed=seed, folds=1, models={}, matches=[], splits={})
            kept[key] = self._make_form(self.form_, other)
        return kept[key]

    def _by_split(self, rows: Rows) -> Iterator[tuple[Form, Rows]]:
        """Yield the form of each split that judges some of the rows, and the rows as it judges them."""
        yield self._form, rows
        new = rows.position is not None and bool((rows.position < 0).all())
        for number in range(1, 1 if new else self._count(self.form_)):
            form = self._made_again(number)
            own = form.nuisances.rows
            yield form, replace(own, weight=rows.weight) if rows.position is None else replace(rows, probability={})

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the forms that seeds make again."""
        return {name: value for name, value in super().__getstate__().items() if name != "_kept"}

    def _crossed(self, form: str) -> bool:
        """Return whether a form has models that judge rows that they did not see."""
        cells = isinstance(self.regression, str) and self.regression == "saturated"
        return (form == "graph" and not cells) or judge_unseen(self.propensity, self.regression)

    @property
    def _needs(self) -> Needs:
        return "parents" if self.form_ == "graph" else "prefixes"

    @property
    def form_(self) -> str:
        """The form in use, ``"prefix"`` or ``"graph"``."""
        check_is_fitted(self, "estimand_")
        return self._form.name

    @property
    def conditioned_on(self) -> tuple[str, ...]:
        """The nodes that the sensitive attribute does not cause and on which every stage conditions.

        Of rows chosen by these alone, the mean of the influence values is the effect in the subpopulation.
        """
        check_is_fitted(self, "estimand_")
        part = self.estimand_.baseline
        return self._form.conditioned_on(part.order[: part.roots])

    def for_outcome(self) -> OneStep:
        """Return the source for an observed outcome, or for scores that are no function of the features.

        The outcome is averaged like a feature, over the rows that have the arm of the outcome. A NotIdentifiedError if
        the data do not identify that effect.
        """
        check_is_fitted(self, "estimand_")
        other = copy.copy(self)
        other.estimand_ = identify(self.unfair, "outcome")
        other._choose_form()
        return other

    # -- what it depends on --------------------------------------------------------------------------------------------

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind its numbers, one sentence each."""
        check_is_fitted(self, "estimand_")
        support, rows = self.estimand_.support, self.nuisances_.rows
        known = assumed_of_records(self.unfair, rows.given, self.estimand_.target, self._needs)
        return (*(text for text in self.estimand_.assumptions if text != support), *self._form.assumptions, *known)

    @property
    def n_fitted_(self) -> int:
        """The number of rows it was fitted on."""
        return len(self.nuisances_.rows.a)

    def fitted_rows(self, df: pd.DataFrame) -> NDArray[np.int64]:
        """Return the position of each row of a table among the fitted rows, shape (m,), -1 for others."""
        check_is_fitted(self, "estimand_")
        return self.nuisances_.positions(df)

    def group_sizes(self) -> dict[str, tuple[GroupSize, ...]]:
        """Return for each world the observed groups that it depends on, with their fitted rows."""
        check_is_fitted(self, "estimand_")
        found = {}
        for part in self._parts():
            arms = {factor.arm for factor in part.factors}
            found[part.regime.name] = tuple(size for size in group_sizes(part, self.nuisances_) if size.group in arms)
        return found

    def stages(
        self,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
        groups: NDArray[Any] | None = None,
    ) -> pd.DataFrame:
        """Return the diagnostics of the weights of each stage on rows, by default the fitted ones.

        Columns: regime, nodes, arm, given, mean_weight (1 in expectation) with mean_weight_z, its distance from 1 over
        its standard error, ess (effective size in rows), max_weight, and problem, empty where there is none.
        ``groups`` are the labels of the groups of ``df``, (n,).
        """
        check_is_fitted(self, "estimand_")
        rows = self.nuisances_.rows_of(df, sample_weight, groups)
        return worst_stages([form.stages(own) for form, own in self._by_split(rows)])

    def stages_by_fold(self) -> pd.DataFrame:
        """Return the diagnostics of the weights of each stage in each fold of the fitted rows.

        Columns: fold, and those of :meth:`stages` but problem. A fold that stands apart shows a model that failed on
        the rows of the others.
        """
        check_is_fitted(self, "estimand_")
        own, folds = self.nuisances_.rows, self.nuisances_.split()
        parts = [
            replace(self.nuisances_.rows_of(own.given.iloc[at], own.weight[at]), groups=own.near(at)) for _, at in folds
        ]
        found = [self._form.stages(part).assign(fold=i) for i, part in enumerate(parts)]
        joined = pd.concat(found, ignore_index=True)
        return joined[["fold", *(name for name in joined if name not in ("fold", "problem"))]]

    # -- estimates ----------------------------------------------------------------------------------------------------

    def influence(
        self,
        score: Scorer,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
        groups: NDArray[Any] | None = None,
    ) -> InfluenceValues:
        """Return the influence values of rows for columns of scores.

        Parameters
        ----------
        score
            Returns the scores in [0, 1] of the m rows of a sample (``sample.rows``), shape (m,) or (m, Q) for Q
            classifiers at once. The sensitive attribute of the rows has the value that the outcome reads.
        df, sample_weight
            n rows to audit, by default the fitted ones, and their weights, shape (n,). Fitted rows are judged by models
            that did not see them, others by the average of the models of all folds.
        groups
            The labels of the groups of ``df``, (n,), by which its diagnostics count; those fitted have theirs.

        Raises
        ------
        DataError
            If the table, the weights or the scores are unfit.
        """
        check_is_fitted(self, "estimand_")
        rows, folds = self.nuisances_.rows_of(df, sample_weight, groups), self.nuisances_.folds
        new = np.zeros(len(rows.a), dtype=bool) if rows.position is None else rows.position < 0
        if folds == 1 and self._crossed(self.form_) and not new.all():
            warn_of_one_fold()
        asked: Any = self._form.scores(score, rows) if isinstance(self._form, PrefixForm) else score
        values = _average([form.influence(asked, own) for form, own in self._by_split(rows)], new)
        values = replace(values, weight=rows.weight / rows.weight.mean())
        if new.any():
            values = _add_moves(values, self._halves(asked, rows, new, values), self.n_fitted_ * max(folds - 1, 1))
        return values

    def _halves(
        self, asked: Any, rows: Rows, new: NDArray[np.bool_], values: InfluenceValues
    ) -> dict[str, NDArray[np.float64]]:
        """Return by how much models from either half of the fitted rows move new rows' values, (HALVES + 1, n, Q).

        Half their differences show the variance of models from all rows: the halves are independent. The way from the
        ``values`` of all to the mean of halves, the last, shows their bias, of which fewer rows leave more. Models of
        few parameters take both halves, one with three times the weight of the other, so that no cell is lost: they
        differ half as much, and their mean moves by a quarter. So do others if half of the rows is too few.
        """
        own, found, means = self.nuisances_.rows, [], []
        for number in range(HALVES):
            first, _ = split_folds(own.a, own.weight, 2, seed_for(self.nuisances_.seed, 0, number), own.groups)[0]
            side = np.full(len(own.a), -1.0)
            side[first] = 1.0
            for part in (1.0, 0.5) if self._crossed(self.form_) else (0.5,):
                forms = (self._made_again(0, own.weight * (1.0 + sign * part * side)) for sign in (1.0, -1.0))
                other = replace(rows, position=np.full(len(rows.a), -1))
                try:
                    one, two = (form.influence(asked, replace(other, probability={})) for form in forms)
                    break
                except (DataError, PositivityError):
                    if part < 1.0:
                        raise
            pairs = {name: (getattr(one, name), getattr(two, name), getattr(values, name)) for name in CAUSAL}
            kept = new[:, None] / (2.0 * part * np.sqrt(HALVES))
            found.append({name: kept * (a - b) for name, (a, b, _) in pairs.items()})
            kept = new[:, None] / (part**2 * HALVES)
            means.append({name: kept * ((a + b) / 2.0 - c) for name, (a, b, c) in pairs.items()})
        return {name: np.stack([*(e[name] for e in found), sum(e[name] for e in means)]) for name in CAUSAL}

    def learn(self, score: Scorer) -> Callable[[Scorer, Rows], InfluenceValues]:
        """Learn the regressions of columns of scores from all fitted rows; return what judges any number of others."""
        check_is_fitted(self, "estimand_")
        form: Any = self._form
        return partial(form.influence, learned=form.learn(score))

    def judge(self, score: Scorer) -> Callable[[Scorer, Rows], InfluenceValues]:
        """Return what judges any rows by the first split alone, the fitted ones by models that did not see them.

        ``score`` returns the scores of the fitted rows.
        """
        form: Any = self._form
        return self.learn(score) if isinstance(form, PrefixForm) else form.influence

    def by_group(
        self, score: Scorer, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> dict[str, tuple[NDArray[np.float64], ...]]:
        """Return values of both worlds, (n, Q) each, by weights on the rows of each observed group alone.

        The weighted mean of the values is the weighted (Hajek) mean of the scores, and their spread its uncertainty.
        Under the assumptions both groups estimate the same; they differ where a propensity is wrong, or overlap fails.
        Empty unless both groups have support in both worlds, and in the graph form, which does not use such weights.
        """
        check_is_fitted(self, "estimand_")
        rows, own = self.nuisances_.rows_of(df, sample_weight), self.nuisances_
        if self.estimand_.target == "outcome" or self.form_ == "graph":
            return {}
        overlaps = [group_overlap(part, group, own) for part in self._parts() for group in (0, 1)]
        if any(each.unsupported > MOST_UNSUPPORTED or each.separated or each.infinite for each in overlaps):
            return {}
        return {
            f"group {group}": tuple(self._weighted(score, rows, part, group) for part in self._parts())
            for group in (0, 1)
        }

    def compare_forms(
        self, score: Scorer, df: pd.DataFrame | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> pd.DataFrame:
        """Return the estimates of both forms, and a test of the graph's missing edges by their difference.

        Both estimate the same if the graph is right and both have overlap, so that a z beyond 3 or so shows an edge
        that is missing, or a model that is wrong. Parameters as for :meth:`influence`.

        Returns
        -------
        DataFrame
            A row for each column of scores and each of p_y0, p_ypi and mean_unfair_effect: both estimates with their
            standard errors, the difference (graph less prefix), and z, the difference over its standard error.
        """
        check_is_fitted(self, "estimand_")
        rows = self.nuisances_.rows_of(df, sample_weight)
        found = {name: self._make_form(name).influence(score, rows) for name in ("prefix", "graph")}
        tables = []
        for quantity, factors in {"p_y0": (1, 0), "p_ypi": (0, 1), "mean_unfair_effect": (-1, 1)}.items():
            one, other = (factors[0] * each.y0 + factors[1] * each.ypi for each in found.values())
            table: dict[str, object] = {"column": np.arange(one.shape[1]), "quantity": quantity}
            for name, values in (("prefix", one), ("graph", other), ("difference", other - one)):
                table[name], table[f"{name}_error"] = mean_and_spread(values, rows.weight, groups=rows.groups)
            tables.append(pd.DataFrame(table))
        joined = pd.concat(tables, ignore_index=True)
        size = joined["difference_error"].where(joined["difference_error"] > NEGLIGIBLE)
        return joined.assign(z=(joined["difference"] / size).fillna(0.0))

    def _weighted(self, score: Scorer, rows: Rows, part: RegimeEstimand, group: int) -> NDArray[np.float64]:
        weight = self.nuisances_.weights(rows, part, group)
        index = np.flatnonzero(weight > 0.0)
        read, origin = rows.as_read(index, part.outcome_arm, self.unfair.graph, self.nuisances_.rows)
        scored = np.asarray(score(CounterfactualSample(read, np.ones(len(index)), origin=origin)), dtype=np.float64)
        scored = scored.reshape(len(index), -1)
        share = rows.weight[index] * weight[index]
        mean = share @ scored / share.sum()
        values = np.tile(mean, (len(weight), 1))
        values[index] += weight[index, None] * (scored - mean) * (rows.weight.sum() / share.sum())
        return values

    def _parts(self) -> tuple[RegimeEstimand, RegimeEstimand]:
        return self.estimand_.baseline, self.estimand_.switched


def _average(found: Sequence[InfluenceValues], new: NDArray[np.bool_]) -> InfluenceValues:
    """Return the mean of the values by several splits; the values of new rows are those of the first.

    To the variance adds the mean square of the splits' differences from their mean.
    """
    first, *rest = found
    if not rest:
        return first
    own = {name: np.stack([getattr(each, name) for each in found]) for name in CAUSAL}
    for values in own.values():
        values[:, new] = values[0, new]
    mean = {name: each.mean(axis=0) for name, each in own.items()}
    moves = {name: (each - mean[name]) / np.sqrt(len(found)) for name, each in own.items()}
    return replace(first, **mean, stages=worst_stages([each.stages for each in found]), apart=moves, splits=len(found))


def _add_moves(values: InfluenceValues, moves: Mapping[str, NDArray[np.float64]], n: int) -> InfluenceValues:
    """Return values that further models move besides, by functional, (k, n, Q).

    The variance of the effect that they add is at most that of a mean of ``n`` rows: a half of few rows may have models
    that are far worse than those of all.
    """
    known, share = values.apart or {}, values.weight / values.weight.sum()
    effect = values.ypi - values.y0
    most = share @ (effect - share @ effect) ** 2 / n
    added = ((share @ (moves["ypi"] - moves["y0"])) ** 2).sum(axis=0)
    scale = np.sqrt(np.divide(most, added, out=np.ones_like(added), where=added > most))
    parts = {k: scale * each for k, each in moves.items()}
    return replace(values, apart={k: np.concatenate([known[k], each]) if known else each for k, each in parts.items()})
