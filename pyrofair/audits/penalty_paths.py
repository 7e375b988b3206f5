"""One classifier fitted and audited along a path of penalty strengths."""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from torch import nn

from pyrofair._progress import progress_bar
from pyrofair._random import PYRO_LOCK, neutral_torch
from pyrofair._validation import (
    listed,
    optional,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_jobs,
    require_real,
    shown,
)
from pyrofair._workers import delayed
from pyrofair.audits.audit import audit, default_source, fit_source, with_missing
from pyrofair.audits.bootstrap import make_views
from pyrofair.audits.clusters import ROWS, Clusters, describe_units
from pyrofair.audits.display import table_fragment
from pyrofair.audits.display.words import describe_comparison
from pyrofair.audits.plots import mean_by_strength, plot_frontier, plot_trade_off
from pyrofair.audits.report import IN_DOUBT
from pyrofair.audits.wald import is_influence_based, require_estimates
from pyrofair.classifiers.batches import Problem, hold_out, share_rows
from pyrofair.classifiers.penalized import PenalizedClassifier
from pyrofair.classifiers.training import choose_starts, evaluate, train_many
from pyrofair.effects.estimates import FROM_OUTCOMES, absolute_interval
from pyrofair.effects.group_agreement import DISAGREE, disagreeing, join_seeds
from pyrofair.effects.influence import InfluenceBased
from pyrofair.effects.potential_outcomes import Bounding, PotentialOutcomes, SeveralContrasts
from pyrofair.effects.scoring import DECISIONS, Decisions
from pyrofair.exceptions import DataError, NotIdentifiedError, PositivityError, PositivityWarning, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.graph.paths import require_unfair
from pyrofair.tables.labels import read_outcome, read_sensitive
from pyrofair.tables.reading import as_pandas, feature_columns, read_table, read_weight, require_aligned, warn_unused
from pyrofair.tables.row_identity import hash_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PenaltyPath", "penalty_path"]

SUMMARISED = ("objective", "accuracy", "positive_rate", "mean_unfair_effect", "piu_lower", "piu_upper", "bimodal")
BIMODAL = {"objective": 0.05, "positive_rate": 0.5}
"""Seeds whose columns lie farther apart are two groups of solutions; within one, objectives differ by some .01 nats."""

TOGETHER = 10
"""The number of seeds that are taken along the path together; an interrupt leaves the intervals of earlier ones."""


@dataclass(frozen=True, eq=False, repr=False)
class PenaltyPath:
    """The result of :func:`penalty_path`; print it for a summary.

    Attributes
    ----------
    table : DataFrame
        For each strength, seed and decisions: the objective on all training rows (nats), accuracy, majority_rate,
        positive_rate, p_y0, p_ypi, mean_unfair_effect, piu_paper_bound, piu_lower, piu_upper (and
        piu_double_disagreement given units). A bound is NaN where an estimate left [0, 1].
    models : dict
        The fitted classifier of each (strength, seed).
    intervals : DataFrame
        The table of :func:`pyrofair.audit` of each of them on the rows measured on. Empty without replicates, where the
        judge needs them.
    groups : DataFrame
        Where the judge weights rows, the marginals from either observed group alone, as in an audit. ``p_value`` is
        joint over the classifiers of a seed; ``agree`` is by one test, at 95 %, of the whole path.
    unfinished : dict
        After an interrupt: for its seed, the module fitted last, from which ``resume`` goes on.
    fingerprint : dict
        Hashes of what the path was made of: ``resume`` goes on only with the same.
    units : str
        What is taken as independent, in a sentence.
    """

    table: pd.DataFrame
    models: Mapping[tuple[float, int], PenalizedClassifier] = field(default_factory=dict)
    intervals: pd.DataFrame = field(default_factory=pd.DataFrame)
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)
    unfinished: Mapping[int, nn.Module] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    units: str = ROWS

    def _told(self) -> list[str]:
        """Return what is to be said of the means."""
        apart = "bimodal: the seeds fall into two groups of solutions there; look at .table, not at the mean."
        found = [
            f"Means over {self.table['seed'].nunique()} seed(s) by strength, thresholded decisions.",
            apart if self.summary()["bimodal"].any() else "",
            _describe_apart(self.groups),
            self.units,
            "Unfinished: pass it as resume=... to go on." if self.unfinished else "",
        ]
        return [each for each in found if each]

    def __str__(self) -> str:
        if self.table.empty:
            return "Penalty path: no strength was finished."
        means, *more = self._told()
        shown = self.summary().filter(items=SUMMARISED).round(3).to_string()
        return "\n".join([f"Penalty path: {means[:1].lower()}{means[1:]}", shown, *more])

    def __repr__(self) -> str:
        if self.table.empty:
            return "<PenaltyPath with no strength finished>"
        strengths, seeds = self.table["strength"].nunique(), self.table["seed"].nunique()
        return f"<PenaltyPath of {strengths} strength(s) and {seeds} seed(s); print it for a summary>"

    def _repr_html_(self) -> str:
        if self.table.empty:
            return table_fragment("Penalty path: no strength was finished", pd.DataFrame())
        means = self.summary().filter(items=SUMMARISED).reset_index()
        return table_fragment("Penalty path", means, " ".join(self._told()))

    def plot(
        self, decisions: Decisions = "threshold", *, at_most: float | None = None, details: bool = False
    ) -> Figure:
        """Draw accuracy against the upper bound on PIU, one labelled point for each strength.

        Parameters
        ----------
        decisions
            ``"threshold"`` or ``"score"``.
        at_most
            Draw this limit, and ring the classifier that ``select(at_most=...)`` returns, if there is one.
        details
            Draw accuracy, mean unfair effect and PIU by strength in place of this (the paper's figure 3).
        """
        require_flag("details", details)
        if details:
            return plot_trade_off(self.table, decisions, self.intervals, title=self._title())
        chosen = None
        if at_most is not None:
            require_real("at_most", at_most)
            far = self._far_ends("piu_upper", decisions)
            if (far <= at_most).any():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PyrofairWarning)  # `select` warns whoever takes the classifier
                    chosen = self.select(at_most=at_most, decisions=decisions).strength
        return plot_frontier(self.table, decisions, self.intervals, at_most, chosen, title=self._title())

    def _title(self) -> str:
        """Return the comparison, the rows and the seeds, as figures are headed."""
        sources = (getattr(each, "source_", None) for each in self.models.values())
        known = (getattr(each, "unfair", None) for each in sources)
        unfair = next((each for each in known if isinstance(each, UnfairPaths)), None)
        seeds = self.table["seed"].nunique()
        told = ["" if unfair is None else describe_comparison(unfair), f"{seeds} seed{'s' * (seeds != 1)}"]
        if {"quantity", "ess"} <= {*self.intervals}:
            rows = self.intervals.loc[self.intervals["quantity"] == "positive_rate", "ess"].mean()
            told.append("" if np.isnan(rows) else f"{rows:,.0f} rows")
        return "; ".join(filter(None, told))

    def summary(self, decisions: Decisions = "threshold") -> pd.DataFrame:
        """Return means over seeds by strength (NaN where one seed's value is), and whether seeds fall into two groups.

        They do (``bimodal``) where their objectives lie more than 0.05 nats apart, or their positive rates more than a
        half: a mean then describes none.
        """
        require_choice("decisions", decisions, DECISIONS)
        rows = self.table[self.table["decisions"] == decisions]
        by_strength = rows.groupby("strength")
        apart = pd.Series(False, index=pd.Index(sorted(rows["strength"].unique()), name="strength"))
        for column, most in BIMODAL.items():
            if column in rows:
                apart |= by_strength[column].max() - by_strength[column].min() > most
        return mean_by_strength(rows.drop(columns=["decisions", "seed"])).assign(bimodal=apart)

    def select(
        self,
        quantity: str = "piu_upper",
        *,
        at_most: float | None = None,
        accuracy_loss: float | None = None,
        decisions: Decisions = "threshold",
    ) -> PenalizedClassifier:
        """Return the most accurate classifier that is fair enough, or the fairest that is accurate enough.

        How fair is judged by the end of the quantity's 95 % interval that is farther from 0, on rows that were not
        trained on. The chosen one of many looks a little better on these rows than it is: report its numbers on further
        rows.

        Parameters
        ----------
        quantity
            A quantity of ``intervals`` but accuracy and the majority rate; its absolute value counts.
        at_most
            The largest far end allowed; of these, the most accurate is returned.
        accuracy_loss
            In place of ``at_most``: the accuracy that may be lost against the most accurate classifier of the path,
            such as 0.01; of these, the one of the smallest far end is returned.
        decisions
            ``"threshold"`` or ``"score"``.

        Raises
        ------
        DataError
            If there are no intervals, or none lies low enough, or not exactly one limit is given.

        Warns
        -----
        PyrofairWarning
            If the classifier is no more accurate than a constant, was judged on the rows trained on, its numbers are in
            doubt by diagnostics, or the two observed groups disagree about it.
        """
        require_choice("decisions", decisions, DECISIONS)
        if (at_most is None) == (accuracy_loss is None):
            raise DataError(
                f"at_most={at_most!r} and accuracy_loss={accuracy_loss!r}: give one of them, at_most=0.1 for the most "
                "accurate classifier up to that quantity, or accuracy_loss=0.01 for the least quantity at that price."
            )
        if at_most is not None:
            require_real("at_most", at_most)
        else:
            require_real("accuracy_loss", accuracy_loss, least=0.0, below=1.0)
        far_end = self._far_ends(quantity, decisions)
        decided = self.table[self.table["decisions"] == "threshold"].set_index(["strength", "seed"])
        accuracy = decided["accuracy"].reindex(far_end.index)
        least = -math.inf if accuracy_loss is None else decided["accuracy"].max() - accuracy_loss
        allowed = far_end[(accuracy >= least) & (far_end <= (math.inf if at_most is None else at_most))]
        if allowed.empty:
            nearest: Any = far_end.idxmin()
            if at_most is None:
                asked = f"an accuracy of at least {least:.3g} and {quantity}"
            else:
                asked = f"{quantity} below {at_most:g} (at_most)"
            raise DataError(
                f"No classifier of the path has {asked} up to the end of its interval; the smallest end is "
                f"{far_end.min():.3g}, at strength {nearest[0]:g}, seed {nearest[1]}. Fit stronger penalties, or "
                "measure on more rows."
            )
        ranked = pd.DataFrame({"far_end": allowed, "loss": -accuracy[allowed.index]})
        first = ["loss", "far_end"] if accuracy_loss is None else ["far_end", "loss"]  # equals by the other one
        best: Any = ranked.sort_values(first, kind="stable").index[0]
        for text in self._check(best, decided.loc[best]):
            warnings.warn(text, PyrofairWarning, stacklevel=2)
        return self.models[best]

    def _far_ends(self, quantity: str, decisions: Decisions) -> pd.Series[float]:
        """Return the end of the interval of a quantity that is farther from 0, by strength and seed where there is one.

        It is a DataError if there is none at all.
        """
        if self.intervals.empty:
            raise DataError(
                "This path has no intervals to judge by: its judge needs replicates and it was made with n_boot=0, or "
                "it was interrupted before the first seed was done. Make it with n_boot=100, for example, or resume it."
            )
        own = self.intervals[self.intervals["decisions"] == decisions]
        require_choice("quantity", quantity, [each for each in own["quantity"].unique() if each not in FROM_OUTCOMES])
        own = own[own["quantity"] == quantity].set_index(["strength", "seed"]).sort_index()
        ends = zip(own["lower"], own["upper"], strict=True)
        size = pd.Series([absolute_interval(*each)[1] for each in ends], own.index, dtype=np.float64).dropna()
        if size.empty:
            raise DataError(
                f"No classifier of the path has an interval of {quantity}. Fit other penalties, or measure on more "
                "rows."
            )
        return size

    def _check(self, key: tuple[float, int], row: pd.Series[Any]) -> Iterator[str]:
        """Yield what speaks against the classifier of a strength and seed."""
        name = f"The classifier of strength {key[0]:g}, seed {key[1]},"
        if row["positive_rate"] in (0.0, 1.0):
            yield f"{name} is a constant: it predicts {'yes' if row['positive_rate'] else 'no'} for all units."
        elif row["accuracy"] <= row["majority_rate"]:
            yield (
                f"{name} has the accuracy {row['accuracy']:.3f}, no more than the {row['majority_rate']:.3f} of a "
                "constant prediction."
            )
        if self.fingerprint and self.fingerprint["training data"] == self.fingerprint["test set"]:
            yield f"{name} was judged on the rows that it was trained on, where it looks better than elsewhere."
        own = self.intervals
        own = own[(own["strength"] == key[0]) & (own["seed"] == key[1])]
        if "note" in own and own["note"].astype(str).str.contains(IN_DOUBT, regex=False).any():
            yield f"{name} has numbers {IN_DOUBT}: audit it, and read its verdict."
        apart = disagreeing(self.groups)
        if len(apart) and ((apart["strength"] == key[0]) & (apart["seed"] == key[1])).any():
            yield f"{name} is one of which the two observed groups, weighted alone, disagree: see .groups."


def penalty_path(
    classifier: PenalizedClassifier,
    X: pd.DataFrame,
    y: Any,
    *,
    strengths: float | Sequence[float] = tuple(np.linspace(0.0, 2.0, 9)),
    seeds: int | Sequence[int] = 1,
    test: tuple[pd.DataFrame, Any] | None = None,
    held_out: float = 0.25,
    sample_weight: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    judge: PotentialOutcomes | InfluenceBased | None = None,
    n_boot: int = 100,
    threshold: float = 0.5,
    least_gain: float | None = None,
    n_jobs: int | None = None,
    max_stack: int | None = None,
    progress: bool = True,
    resume: PenaltyPath | None = None,
) -> PenaltyPath:
    """Fit a classifier at each strength, from the strongest down, each start from the one before.

    The paper's objective has two basins at middling strengths, and a cold start there ends in the worse one; at the
    strongest strength the best of several short starts is taken (``starts`` of the classifier). Strength 0 starts
    cold. Source and encoder are fitted once a seed, and all classifiers of a seed are audited together. The modules of
    several seeds are trained as one stack, as by :func:`pyrofair.classifiers.fit_many`.

    Parameters
    ----------
    classifier
        The classifier, with its source and penalty; it is cloned, and its ``strength`` is not used.
    X, y
        Rows (n) and their outcomes.
    strengths
        The strengths, none negative, or a single one.
    seeds
        The seeds, or their number: 0, 1, ...
    test
        Other rows and outcomes to measure on; all of ``X`` is then trained on.
    held_out
        Without ``test``: the share of the rows that is measured on and not trained on, the same for all seeds.
    sample_weight
        The weights of the rows ``X`` (n,), in training and in measuring held-out rows. Rows of ``test`` weigh the same.
    groups
        The column, outside the graph, of groups of rows such as households, in ``X`` and in ``test``; or labels of the
        rows of ``X`` (n,), without ``test``. Whole groups are held out, and are the units of the figures' intervals.
    judge
        The source of the figures of the path and of its intervals, by which ``select`` judges. None: one-step
        estimates, ``OneStep(unfair, random_state=0)``, whose propensities and folds serve all strengths and seeds. Or
        another source of the same unfair paths, used as it is if fitted, otherwise fitted on the rows measured on. The
        classifier's own, ``judge=classifier.source``, judges as it was fitted for training: the paper's figure.
    n_boot
        The bootstrap replicates of each seed's audit, of a judge that needs them; 0 gives points only then.
    threshold, progress
        A decision is positive where the score exceeds the threshold; whether a bar is shown.
    least_gain
        Fits that start from a stronger strength end early, once the training objective (nats) gains less than this over
        20 epochs. None: never. The strongest fit and that of strength 0 start cold, and take all epochs. What is saved
        costs objective, which adds up along the path: with 0.0005 a third of the time and .016 nats, for a network on
        1,000 rows and 41 strengths.
    n_jobs
        The number of processes among which the seeds are divided, as for :class:`joblib.Parallel`, whose backend and
        ``n_jobs`` the caller may set. Each seed owns its numbers, whatever the division.
    max_stack
        The largest number of modules that are trained as one, which bounds the memory.
    resume
        The result of an interrupted call with the same classifier, data and strengths, which is completed: the numbers
        are those of a call that was not interrupted.

    Returns
    -------
    PenaltyPath
        After an interrupt, that of the strengths and seeds that were finished, with a warning.

    Warns
    -----
    PositivityWarning
        If the two observed groups, weighted alone, disagree: one test, at 95 %, of all classifiers of the path.
    PyrofairWarning
        What the audits warn of; if the path was interrupted.

    Raises
    ------
    DataError
        If the classifier has no source, a setting or the data are unfit, or ``resume`` was made of others; nothing has
        been trained then.
    NotIdentifiedError, PositivityError
        If the judge refuses the rows measured on, or their graph.

    References
    ----------
    Chikahara et al. (2021), section 5, figure 3.

    Examples
    --------
    >>> from pyrofair import IPW, CausalGraph
    >>> unfair = CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    >>> rng = np.random.default_rng(0)
    >>> a, m = rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    >>> df = pd.DataFrame({"A": a, "M": m, "Y": (rng.random(600) < 0.1 + 0.4 * m + 0.4 * a).astype(int)})
    >>> model = PenalizedClassifier("logistic", source=IPW(unfair), penalty="effect_gap", epochs=20)
    >>> path = penalty_path(model, df[["A", "M"]], df["Y"], strengths=[0.0, 1.0], seeds=1, progress=False)
    >>> path.select(at_most=0.15, quantity="mean_unfair_effect").strength
    1.0
    """
    source = classifier.source if isinstance(classifier, PenalizedClassifier) else None
    if isinstance(source, SeveralContrasts):
        raise DataError(
            f"source={shown(source)} holds several sources, and a path judges by one. Fit the strengths with "
            "pf.classifiers.fit_many, and judge them with pf.audit_contrasts (contrasts) or pf.audit_graphs (graphs); "
            "or take the path of one of them."
        )
    if isinstance(source, Bounding):
        raise DataError(
            f"source={shown(source)} bounds the marginals, and a path judges by estimates of them. Fit the strengths "
            "with pf.classifiers.fit_many, and compare source.bounds(model) of each."
        )
    if not isinstance(source, PotentialOutcomes):
        raise DataError(
            f"classifier={shown(classifier)} must be a classifier with a source: "
            "PenalizedClassifier(source=IPW(unfair))."
        )
    graph = require_unfair("source.unfair", source.unfair).graph
    if test is not None and not (isinstance(test, tuple | list) and len(test) == 2):
        raise DataError(f"test={shown(test)} must be a pair (X, y), rows and their outcomes, or None.")
    require_real("threshold", threshold, least=0.0, below=1.0)
    require_flag("progress", progress)
    if resume is not None:
        require_instance("resume", resume, PenaltyPath, "what an interrupted penalty_path returned, or None")
    order, wanted = _order(strengths), _seeds(seeds)
    require_real("held_out", held_out, above=0.0, below=1.0, such_as=0.25)
    require_integer("n_boot", n_boot, least=0)
    optional(partial(require_real, above=0.0))("least_gain", least_gain)
    optional(require_jobs)("n_jobs", n_jobs)
    optional(require_integer)("max_stack", max_stack)
    found = {} if resume is None else _resumed(resume, order)
    # Measuring on unfit rows would fail only once the first strength is fitted.
    training = _Rows.read(classifier, X, y, sample_weight, groups)
    warn_unused(X, graph, groups=groups)
    if test is None:
        training, measured = training.split(held_out)
    elif groups is not None and not isinstance(groups, str):
        raise DataError("groups are labels of the rows X, and test has rows of its own: name a column of both tables.")
    else:
        measured = _Rows.read(classifier, *test, None, groups, "the table to measure on")
    own = judge is source
    if judge is not None and not own:
        require_estimates("judge", judge)
        if _states(judge.unfair) != _states(source.unfair):
            raise DataError("judge= has other unfair paths than the source of the classifier; make it of the same.")
    fingerprint = _fingerprint(classifier, judge) | {
        "training data": training.digest(),
        "test set": measured.digest(),
        "threshold": repr(float(threshold)),
        "n_boot": repr(int(n_boot)),
        "least_gain": repr(least_gain),
    }
    then = fingerprint if resume is None else resume.fingerprint
    if other := [name for name, value in fingerprint.items() if then.get(name) != value]:
        raise DataError(
            f"resume was made with another {', another '.join(other)}; go on with that of the call that was "
            "interrupted, or start anew without resume."
        )
    if own and groups is not None:
        raise DataError("judge=classifier.source was fitted for training, by rows. With groups leave judge out.")
    keep = n_boot > 0 or judge is None or (not own and is_influence_based(judge))
    found |= {number: _Seed(number) for number in wanted if number not in found}

    def is_open(seed: _Seed) -> bool:
        return len(seed.fitted) < len(order) or not seed.is_audited(keep=keep)

    to_do = [found[number] for number in wanted if is_open(found[number])]
    judging, warned = (None, {}) if own or not to_do else _fit_judge(judge, classifier, measured)
    trace = _Trace(
        classifier, training, measured, order, judging, threshold, n_boot, least_gain, max_stack, keep, warned
    )
    parts = _divide(to_do, joblib.effective_n_jobs(n_jobs), max_stack or TOGETHER)
    total = sum(len(order) - len(seed.fitted) for seed in to_do)
    with progress_bar("penalty path", total=total, shown=progress) as bar:
        try:
            if len(parts) == 1 or joblib.effective_n_jobs(n_jobs) == 1:
                for part in parts:
                    trace.run(part, bar.update)
            else:
                parallel = joblib.Parallel(n_jobs, return_as="generator_unordered")
                with closing(parallel([delayed(_run_apart)(trace, part) for part in parts])) as work:
                    for done, texts in work:
                        bar.update(sum(len(seed.fitted) - len(found[seed.number].fitted) for seed in done))
                        found |= {seed.number: seed for seed in done}
                        warned |= texts
        except KeyboardInterrupt:
            begun: Any = next((part for part in parts if any(is_open(found[seed.number]) for seed in part)), [])
            for number in wanted:
                if not found[number].is_audited(keep=keep):
                    trace.audit(found[number], keep=False)
            warnings.warn(
                f"Interrupted in seed {', '.join(str(seed.number) for seed in begun)}; what was finished is returned. "
                "Pass it as resume=... to go on.",
                PyrofairWarning,
                stacklevel=2,
            )
    for text, category in warned.items():
        warnings.warn(text, category, stacklevel=2)
    every = [seed for seed in found.values() if seed.fitted]
    compared = join_seeds(_join([seed.groups for seed in every]))
    if apart := _describe_apart(compared):
        warnings.warn(apart, PositivityWarning, stacklevel=2)
    return PenaltyPath(
        pd.DataFrame([row for seed in every for row in seed.rows]),
        {(strength, seed.number): model for seed in every for strength, (model, _) in seed.fitted.items()},
        _join([seed.intervals for seed in every]),
        compared,
        {seed.number: seed.module for seed in every if is_open(seed)},
        fingerprint,
        describe_units(None if measured.clusters is None else measured.clusters.code, measured.weight),
    )


def _join(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the tables that have rows, one after another."""
    return pd.concat([pd.DataFrame(), *(each for each in tables if len(each))], ignore_index=True)


def _states(unfair: UnfairPaths) -> tuple[Any, ...]:
    return str(unfair.graph), unfair.paths.states, unfair.swapped


def _fit_judge(judge: Any, classifier: Any, measured: _Rows) -> tuple[Any, dict[str, type[Warning]]]:
    """Return the judge, fitted on the rows measured on unless it is fitted, and what that warned of."""
    source = with_missing(default_source(classifier.source.unfair, 0) if judge is None else judge, classifier.missing)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted, _ = fit_source(source, measured.table, measured.weight, measured.clusters)
    except (DataError, NotIdentifiedError, PositivityError) as error:
        raise type(error)(
            f"{type(source).__name__} cannot judge the rows measured on: {error} Name another judge=..., such as "
            "classifier.source, or measure on more rows."
        ) from error
    return fitted, {str(each.message): each.category for each in caught}


def _describe_apart(groups: pd.DataFrame) -> str:
    """Return at which strengths of a path the two observed groups disagree, or an empty string."""
    apart = disagreeing(groups)
    if apart.empty:
        return ""
    strengths = ", ".join(f"{strength:g}" for strength in sorted(apart["strength"].unique()))
    return (
        "The two observed groups, weighted alone, disagree significantly at strength(s) "
        f"{strengths}: a propensity is misspecified or overlap is poor, and what was penalised and measured may not be "
        "the unfair effect. See .groups, and compare propensity='boosted'."
    )


def _order(strengths: float | Sequence[float]) -> list[float]:
    """Return the strengths, strongest first."""
    several = listed(strengths) if isinstance(strengths, Sequence | np.ndarray) else None
    values: list[Any] = [strengths] if several is None or isinstance(strengths, str) else list(several)
    real = all(isinstance(value, Real) and not isinstance(value, bool) for value in values)
    if not real or not all(0.0 <= value < math.inf for value in values) or not any(values):
        raise DataError(
            f"strengths={shown(strengths)} must hold a positive one and none that is negative or not finite."
        )
    return sorted({float(value) for value in values}, reverse=True)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    several = listed(seeds) if isinstance(seeds, Sequence | np.ndarray) and not isinstance(seeds, str) else None
    if several is not None:
        found = [require_integer("seeds", seed, least=0) for seed in several]
    else:
        found = list(range(require_integer("seeds", seeds)))
    if not found or len(set(found)) < len(found):
        raise DataError(f"seeds={shown(seeds)} must be a positive number of seeds, or seeds that differ.")
    return found


def _fingerprint(classifier: PenalizedClassifier, judge: Any) -> dict[str, str]:
    """Return hashes of the settings of classifier, source, penalty and judge, without those that a path sets itself.

    Settings enter as text, functions by name: objects cannot be hashed themselves, for they keep caches and tensors.
    """
    source: Any = classifier.source
    found: dict[str, list[Any]] = {"classifier": [], "source": [str(source.unfair.graph)], "penalty": []}
    for name, value in sorted(classifier.get_params().items()):
        if name not in ("strength", "random_state", "progress"):
            part = name.split("__")[0]
            found[part if part in found else "classifier"].append((name, _printed(value)))
    if judge is None or judge is source:
        found["judge"] = ["one-step" if judge is None else "own"]
    else:  # a fitted judge differs from one that is yet to be fitted
        settings = judge.get_params() if hasattr(judge, "get_params") else vars(judge)
        rows = getattr(judge, "n_fitted_", 0) if getattr(judge, "estimand_", None) is not None else 0
        found["judge"] = [
            type(judge).__qualname__,
            rows,
            *((each, _printed(settings[each])) for each in sorted(settings)),
        ]
    return {name: str(joblib.hash(settings)) for name, settings in found.items()}


def _printed(value: object) -> str:
    """Return a setting as another process would print it; the repr of unfair paths names the first ones only."""
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(_states(value) if isinstance(value, UnfairPaths) else value))


@dataclass
class _Seed:
    """What is finished of a seed: by strength, strongest first, a classifier and its objective, and their audit."""

    number: int
    fitted: dict[float, tuple[PenalizedClassifier, float]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    intervals: pd.DataFrame = field(default_factory=pd.DataFrame)
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def module(self) -> nn.Module:
        """The module fitted last, from which the next strength starts."""
        return [*self.fitted.values()][-1][0].module_

    def is_audited(self, *, keep: bool) -> bool:
        """Return whether the figures of all that is fitted are written or, to ``keep`` intervals, these are made."""
        return len(self.intervals) > 0 if keep else len(self.rows) == len(DECISIONS) * len(self.fitted)


def _resumed(path: PenaltyPath, order: list[float]) -> dict[int, _Seed]:
    """Return what an earlier call has finished of each seed."""
    found = {}
    seeds: Any = path.table.groupby("seed", sort=False) if len(path.table) else ()
    for number, own in seeds:
        done = own["strength"].unique().tolist()
        if done != order[: len(done)] or not all((strength, number) in path.models for strength in done):
            raise DataError(
                f"resume holds the strengths {done} for seed {number}, which are no beginning of {order}; go on with "
                "the strengths of the call that was interrupted."
            )
        objectives = own.drop_duplicates("strength")["objective"]
        fitted = {each: (path.models[each, number], value) for each, value in zip(done, objectives, strict=True)}
        audited = (each[each["seed"] == number] if len(each) else each for each in (path.intervals, path.groups))
        found[int(number)] = _Seed(int(number), fitted, own.to_dict("records"), *audited)
    return found


@dataclass(frozen=True)
class _Rows:
    """Rows of a table that a classifier reads, their outcomes as given and in 0 and 1, and their weights."""

    table: pd.DataFrame
    y: pd.Series[Any]
    outcome: NDArray[np.int8]
    weight: NDArray[np.float64]
    clusters: Clusters | None

    @classmethod
    def read(cls, reader: Any, table: pd.DataFrame, outcome: Any, weight: Any, groups: Any, what: str = "X") -> _Rows:
        """Return the rows that a classifier with a source reads."""
        table, graph = as_pandas(table), reader.source.unfair.graph
        found = read_table(table, feature_columns(graph), what=what, missing=reader.missing)
        found = found[[name for name in table.columns if name in found]]  # the order of a classifier's inputs
        require_aligned(found, outcome)
        y = pd.Series(np.ravel(outcome) if not isinstance(outcome, pd.Series) else outcome.array, index=found.index)
        own, units = read_weight(weight, found, table=what), None
        if groups is not None:
            units = Clusters.read(groups, table, graph, read_sensitive(found, graph, both=False), own)
        return cls(found, y, read_outcome(outcome, graph.positive)[0], own, units)

    def split(self, fraction: float) -> tuple[_Rows, _Rows]:
        """Return the rows to train on and those held out, at random but always the same ones."""
        units = self.clusters
        key = None if units is None else units.key
        training, held_out = (
            _Rows(
                self.table.iloc[at], self.y.iloc[at], self.outcome[at], self.weight[at],
                None if units is None else units.at(at),
            )
            for at in hold_out(self.outcome, fraction, np.random.RandomState(0), "held_out", key)
        )  # fmt: skip
        return training, held_out

    def digest(self) -> str:
        """Return a hash of the rows, their outcomes and weights."""
        columns = sorted(self.table, key=str)
        units = () if self.clusters is None else (self.clusters.key,)
        rows = hash_rows(self.table[columns])
        return str(joblib.hash((columns, rows, self.outcome, self.weight / self.weight.mean(), *units)))


@dataclass(frozen=True)
class _Trace:
    """What the fits of a path have in common; ``keep``: their audits have intervals; ``warned``: what these warn of."""

    classifier: PenalizedClassifier
    training: _Rows
    measured: _Rows
    order: Sequence[float]
    judging: Any
    threshold: float
    n_boot: int
    least_gain: float | None
    max_stack: int | None
    keep: bool
    warned: dict[str, type[Warning]]

    def run(self, seeds: Sequence[_Seed], tell: Callable[[int], Any]) -> None:
        """Fit and audit seeds, of which as many strengths are finished; enter what each strength came to at once."""
        with neutral_torch():
            for strength, fitted in self._fits(seeds):
                for seed, own in zip(seeds, fitted, strict=True):
                    seed.fitted[strength] = own
                tell(len(seeds))
        for seed in seeds:
            self.audit(seed, keep=self.keep)

    def audit(self, seed: _Seed, *, keep: bool) -> None:
        """Audit all classifiers of a seed together, by the judge or else by their own source.

        ``keep`` keeps the intervals, and what the audit warned of.
        """
        models = {f"strength {strength!r}": model for strength, (model, _) in seed.fitted.items()}
        if not models:
            return
        source: Any = next(iter(models.values())).source_ if self.judging is None else self.judging
        rows, graph = self.measured, source.unfair.graph
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report = audit(
                models,
                source,
                rows.table.assign(**{graph.outcome_column: rows.y.to_numpy()}),
                n_boot=self.n_boot if keep else 0,
                threshold=self.threshold,
                sample_weight=rows.weight,
                groups=None if rows.clusters is None else rows.clusters.labels,
                progress=False,
                random_state=seed.number,
            )
        of = {(row.model, row.decisions, row.quantity): row.estimate for row in report.table.itertuples()}
        quantities = dict.fromkeys((*FROM_OUTCOMES, *report.table["quantity"]))
        seed.rows = [
            {"strength": strength, "seed": seed.number, "decisions": decisions, "objective": objective}
            | {each: of[name, "threshold" if each in FROM_OUTCOMES else decisions, each] for each in quantities}
            for name, (strength, (_, objective)) in zip(models, seed.fitted.items(), strict=True)
            for decisions in DECISIONS
        ]
        if not keep:
            return
        for each in caught:
            if "groups, weighted alone, disagree" not in str(each.message):  # one warning serves all seeds
                self.warned.setdefault(str(each.message), each.category)
        # Whether the groups disagree is tested over the whole path; its groups hold the result.
        note = report.table["note"].str.removesuffix(DISAGREE).str.removesuffix("; ")
        # Influence values do not depend on weights alone, so that a path judged by them is not tested for that.
        groups = report.groups.iloc[:0] if report.context.wald else report.groups
        strengths = dict(zip(models, seed.fitted, strict=True))

        def labelled(own: pd.DataFrame) -> pd.DataFrame:
            made = own.assign(strength=own["model"].map(strengths), seed=seed.number).drop(columns="model")
            return made[["strength", "seed", *made.columns[:-2]]]

        seed.intervals = labelled(report.table.assign(note=note))
        seed.groups = labelled(groups) if len(groups) else groups

    def _prepare(self, seeds: Sequence[_Seed], strength: float) -> tuple[list[PenalizedClassifier], list[Problem]]:
        """Return for each seed a classifier whose source and encoder are fitted, and what it is trained on."""
        weight = None if (self.training.weight == 1.0).all() else self.training.weight
        models: list[PenalizedClassifier] = []
        problems: list[Problem] = []
        for seed in seeds:
            model = clone(self.classifier).set_params(random_state=seed.number, strength=strength, progress=False)
            problems.append(share_rows(model.prepare(self.training.table, self.training.y, weight), problems))
            models.append(model)
            if self.judging is None or not is_influence_based(self.judging):
                # a judge that refuses the rows measured on does so before training
                source: Any = model.source_ if self.judging is None else self.judging
                make_views(source, self.measured.table, self.measured.weight, seed.number)
        return models, problems

    def _fits(self, seeds: Sequence[_Seed]) -> Iterator[tuple[float, list[tuple[PenalizedClassifier, float]]]]:
        """Fit strength after strength, all seeds together, from the modules of unfinished ones if there are some.

        Yields the strength, and each classifier with its objective on all training rows.
        """
        strengths = self.order[len(seeds[0].fitted) :]
        if not strengths:
            return
        # strength 0 alone may be left, but the source is wanted all the same
        models, problems = self._prepare(seeds, strengths[0] or 1.0)
        modules = [seed.module for seed in seeds if seed.fitted]
        if not modules:
            starts = [
                [model.fit_of(module, problem) for module in model.first_modules(problem)]
                for model, problem in zip(models, problems, strict=True)
            ]
            for chosen in choose_starts(starts, self.max_stack):
                if isinstance(chosen, Exception):
                    raise chosen
                modules.append(chosen)
        for strength in strengths:
            models = [copy.copy(model) for model in models]
            fits = []
            for model, problem, module in zip(models, problems, modules, strict=True):
                model.strength = strength
                start = copy.deepcopy(module) if strength > 0.0 else model.new_module(problem)
                fit = model.fit_of(start, problem)
                if 0.0 < strength < self.order[0]:  # it starts from a stronger one
                    fit = replace(fit, schedule=replace(fit.schedule, least_gain=self.least_gain))
                fits.append(fit)
            for error in filter(None, train_many(fits, self.max_stack)):
                raise error
            modules = [fit.module for fit in fits]
            for model, fit in zip(models, fits, strict=True):
                model.module_, model.history_ = fit.module, pd.DataFrame(fit.schedule.history)
            objectives = [evaluate(fit.module, fit.problem, fit.penalty, strength) for fit in fits]
            yield strength, [*zip(models, objectives, strict=True)]


def _run_apart(trace: _Trace, seeds: Sequence[_Seed]) -> tuple[list[_Seed], dict[str, type[Warning]]]:
    """Fit and audit seeds in a process or thread of their own; return them, and what was warned of."""
    found = [replace(seed, fitted={**seed.fitted}) for seed in seeds]
    # Recording warnings is global, so that threads of one process wait for each other.
    with PYRO_LOCK, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace.run(found, lambda _: None)
    return found, trace.warned | {str(each.message): each.category for each in caught}


def _divide(seeds: Sequence[_Seed], n_jobs: int, most: int) -> list[list[_Seed]]:
    """Divide seeds evenly into parts, at most ``most`` in one, of which as many strengths are finished."""
    alike: dict[int, list[_Seed]] = {}
    for seed in seeds:
        alike.setdefault(len(seed.fitted), []).append(seed)
    return [
        [members[at] for at in part]
        for members in alike.values()
        for part in np.array_split(np.arange(len(members)), max(min(len(members), n_jobs), -(-len(members) // most)))
    ]
