"""Audits of fitted classifiers against path-specific unfair effects."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from pyrofair._arviz import to_arviz
from pyrofair._defaults import default_of
from pyrofair._progress import without_bars
from pyrofair._random import seed_from
from pyrofair._validation import (
    did_you_mean,
    require_choice,
    require_flag,
    require_integer,
    require_names,
    require_real,
    require_seed,
    shown,
    text_fault,
)
from pyrofair.audits.audit_view import view_of
from pyrofair.audits.bootstrap import OUTCOME, Bootstrap, Estimator, Replicates, Units, make_views, replicate
from pyrofair.audits.clusters import Clusters, describe_units
from pyrofair.audits.context import Context, collected, texts_of
from pyrofair.audits.display.export import known_versions
from pyrofair.audits.display.words import describe_comparison, describe_propensity, of_decisions
from pyrofair.audits.individuals import known_flips, likely_flips
from pyrofair.audits.inputs import AuditedRows, JudgedModels
from pyrofair.audits.models import AuditedModel, ScoresAre
from pyrofair.audits.partitions import audit_partitions
from pyrofair.audits.plots import plot_audit, plot_members, plot_stages, plot_thresholds
from pyrofair.audits.rates import estimate_rates
from pyrofair.audits.report import (
    Measured,
    group_table,
    short_lines,
    stage_lines,
)
from pyrofair.audits.subgroups import (
    SUBGROUP_COLUMNS,
    Subgroup,
    Within,
    estimate_levels,
    estimate_subgroups,
    read_subgroups,
    tell_subgroups,
)
from pyrofair.audits.thresholds import doubts_by_threshold, read_thresholds
from pyrofair.audits.verdicts import Verdict, quantities_of, read_audit, summed_up
from pyrofair.audits.wald import (
    Scores,
    compare_by_influence,
    describe_doubts,
    estimate_by_influence,
    is_influence_based,
    largest_z,
    not_compared,
    require_estimates,
)
from pyrofair.effects.estimates import AUDITED
from pyrofair.effects.group_agreement import disagreeing
from pyrofair.effects.influence import InfluenceBased
from pyrofair.effects.potential_outcomes import (
    FEWEST_ROWS,
    MEAN_WEIGHT,
    SMALLEST_SHARE,
    CounterfactualSample,
    Diagnosed,
    PotentialOutcomes,
    Refittable,
    SampleSplit,
    Stratified,
    Views,
)
from pyrofair.effects.scoring import DECISIONS, Decisions, as_adapter, is_model
from pyrofair.exceptions import DataError, NotIdentifiedError, PositivityWarning, PyrofairWarning
from pyrofair.graph import CausalGraph, UnfairPaths, identify
from pyrofair.nuisances.learners import require_learner
from pyrofair.nuisances.rows import Nuisances
from pyrofair.tables.partitions import is_partitions
from pyrofair.tables.reading import as_pandas, read_again
from pyrofair.tables.recorded import Missing, missing_shares, require_missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Audit",
    "audit",
    "default_source",
    "fit_source",
    "refuse_gaps",
    "require_audit_settings",
    "require_models",
    "with_missing",
]


MOST_JOBS = 10_000
COARSEN = "Coarsen the features that separate the groups, or limit the question to rows where both groups occur."


class UnknownAnswersError(DataError, AttributeError):
    """A report has no ``flips``: the answers of single rows are not known."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The result of :func:`audit`; print it for a verdict in plain text.

    Attributes
    ----------
    table : DataFrame
        For each model, decisions and quantity: estimate, lower, upper, ess (effective sample size in rows), note.
    groups : DataFrame
        Where the source allows it, the marginals from either observed group alone: their difference with its interval,
        whether they agree (``p_value`` and ``agree`` are by one test of all differences), effective sizes, note.
    draws : DataFrame
        The bootstrap replicates, a row each; the levels of the columns are model, decisions and quantity. Of a source
        with influence values: 2,000 draws from the joint normal distribution of the estimates.
    context : Context
        Rows, replicates, level, assumptions, the groups weighted and their overlap, warnings (``context["rows"]`` or
        ``context.rows``).
    influence : DataFrame
        Of a source with influence values, one uncentred value for each row of ``df``; the levels of the columns are
        model, decisions and functional: y0, ypi, lower, rest and disagreement as in
        :class:`~pyrofair.effects.influence.InfluenceValues`, positive (the decision or score), correct and outcome.
        The mean, weighted by the rows, is the estimate, so that any smooth function of these has an interval by the
        delta method.
    stages : DataFrame
        Of such a source, the diagnostics of each stage by model and decisions; those of decisions that all but a few
        rows share do not count (``counts``).
    thresholds : DataFrame
        With ``thresholds``: for each model, threshold and quantity what ``table`` has for the threshold of the audit.
    subgroups : DataFrame
        With ``subgroups``: for each subgroup, level, model and quantity of thresholded decisions (``decisions`` is
        "threshold") the estimate, lower and upper, rows (of the level), ess and note. All intervals hold together with
        the level of the audit, asymptotically.
    rates : DataFrame
        For each model and group (level of the sensitive attribute, and ``difference``: contrast less baseline) the
        selection rate and, with outcomes, the true and the false positive rate of decisions: estimate, lower and upper,
        rows (of which it is a share), note. These compare groups as they are; no graph enters them.

    Examples
    --------
    Any smooth function of the estimates has an interval by the delta method, here the ratio of both marginals:

    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 400)
    >>> df = pd.DataFrame({"A": a, "M": (rng.random(400) < 0.3 + 0.4 * a).astype(int)})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.2 + 0.2 * X["A"] + 0.4 * X["M"]
    ...         return np.column_stack([1 - p, p])
    >>> report = audit({"model": Model()}, graph.unfair("A -> Y"), df, random_state=0)
    >>> values = report.influence["model"]["score"]
    >>> mean = values.mean()
    >>> ratio = mean["ypi"] / mean["y0"]
    >>> error = (values["ypi"] - ratio * values["y0"]) / mean["y0"]
    >>> half = 1.96 * error.std() / np.sqrt(len(df))
    >>> print(f"{ratio:.1f} [{ratio - half:.1f}, {ratio + half:.1f}]")
    1.6 [1.6, 1.7]
    """

    table: pd.DataFrame
    groups: pd.DataFrame
    draws: pd.DataFrame
    context: Context
    influence: pd.DataFrame = field(default_factory=pd.DataFrame)
    stages: pd.DataFrame = field(default_factory=pd.DataFrame)
    thresholds: pd.DataFrame = field(default_factory=pd.DataFrame)
    subgroups: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(SUBGROUP_COLUMNS)))
    rates: pd.DataFrame = field(default_factory=pd.DataFrame)
    answers: Mapping[str, str | Callable[[], pd.DataFrame | str]] = field(default_factory=dict)

    @property
    def flips(self) -> pd.DataFrame:
        """The rows whose decision flips when the unfair paths are switched, where both answers of a row are known.

        They are for models whose features no unfair path touches, as with the direct path alone: row (its label in the
        index of ``df``), the value of the sensitive attribute, features, model, the scores in the baseline world and
        with the unfair paths switched, and both decisions, 0 or 1. ``features`` is "of both worlds" if the row is in
        the audit's two worlds with these features, and "as observed" if fair paths would change them in the baseline
        world: the answers are then those with the features of the row as they are.

        Of a source that is an SEM there are, for other models, the rows that may flip, with the probability ``flips``,
        the largest first, as :func:`pyrofair.audits.flips` has it for all unfair paths. With any other source there is
        a DataError (a warning, if another model has rows), with the source that estimates them.
        """
        made = [each if isinstance(each, str) else each() for each in self.answers.values()]
        known = [each for each in made if isinstance(each, pd.DataFrame)]
        unknown = [each for each in made if isinstance(each, str)]
        if not known:
            parts = "The answers of single rows are not kept of a table in partitions: audit a part of it."
            raise UnknownAnswersError(next(iter(unknown), parts))
        for text in unknown:
            warnings.warn(text, PyrofairWarning, stacklevel=2)
        return pd.DataFrame(pd.concat(known, ignore_index=True))

    @property
    def verdicts(self) -> pd.DataFrame:
        """What the numbers show of each model: model, decisions, status, least, most, verdict, as the report states it.

        ``least`` and ``most`` bound the share of units decided on unfairly, NaN where no verdict depends on them.
        """
        rows = [(*of, each.status, each.least, each.most, each.text) for of, each in self.read().items()]
        return pd.DataFrame(rows, columns=["model", "decisions", "status", "least", "most", "verdict"])

    def read(self) -> dict[tuple[str, Any], Verdict]:
        """Return the verdict of each model and decisions."""
        return read_audit(self.table, self.groups, self.context)

    def plot(self, decisions: Decisions = "threshold", *, paper_bound: bool = False) -> Figure:
        """Draw accuracy, the mean unfair effect and the bounds on PIU of every model, with its verdict.

        ``paper_bound`` adds the paper's upper bound on PIU, which is never below ours.
        """
        require_flag("paper_bound", paper_bound)
        require_choice("decisions", decisions, DECISIONS)
        heads = {model: each.head for (model, of), each in self.read().items() if of == decisions}
        how: dict[str, Any] = {"level": self.context.level, "paper_bound": paper_bound}
        return plot_audit(self.table, decisions, title=self._title(), verdicts=heads, **how)

    def _title(self) -> str:
        """Return the comparison and the rows, as figures are headed."""
        return f"{describe_comparison(self.context.paths)}; {self.context.rows:,} rows"

    def plot_thresholds(self) -> Figure:
        """Draw the mean unfair effect and the bounds on PIU of every model against the threshold of its decisions.

        Without ``thresholds`` a DataError is raised.
        """
        if self.thresholds.empty:
            raise DataError("There are no thresholds to draw: audit with thresholds=np.arange(0.1, 0.95, 0.1).")
        return plot_thresholds(self.thresholds, self.context.threshold, self.context.level, self._title())

    def plot_subgroups(self, model: str | None = None) -> Figure:
        """Draw the mean unfair effect and the bounds on PIU in each level of each subgroup, of one model or of all.

        Without ``subgroups`` a DataError is raised.
        """
        if self.subgroups.empty:
            raise DataError("There are no subgroups to draw: audit with subgroups='region', for example.")
        models = list(dict.fromkeys(self.subgroups["model"]))
        if model is not None:
            require_choice("model", model, models)
            models = [model]
        several, own = len(models) > 1, self.subgroups[self.subgroups["model"].isin(models)]
        names = (own["model"] + ", " if several else "") + own["subgroup"] + ": " + own["level"]
        sizes = {name: f"{rows:,} rows" for name, rows in zip(names, own["rows"], strict=True)}
        what = of_decisions("threshold") + ("" if several else f" of {models[0]}")
        rows, title = own.assign(member=names), f"{self._title()}. Intervals hold together"
        return plot_members(rows.set_index(["member", "quantity"]), sizes, what, self.context.level, title)

    def plot_stages(self, model: str | None = None) -> Figure:
        """Draw the diagnostics of each stage, of one model or the largest of all, beside their limits.

        Without influence values there are none, and a DataError is raised.
        """
        if self.stages.empty:
            raise DataError(
                "There are no stages to draw: nothing that an unfair path touches is averaged over, or the source has "
                "no influence values (OneStep has)."
            )
        models = self.stages["model"].nunique()
        whose = model or (f"the largest of {models} models" if models > 1 else self.stages["model"].iloc[0])
        graph = self.context.graph
        return plot_stages(
            self.stages,
            model,
            self.context.largest_z,
            title=f"Diagnostics of each step, {whose}; {self._title()}",
            weighted=lambda given: describe_propensity(graph, given),
        )

    def to_inference_data(self) -> Any:
        """Return the draws as ArviZ data: one variable a quantity, by model and, where both, decisions.

        These are bootstrap replicates or, of a source with influence values, draws from the joint normal distribution
        of the estimates; those of scores are NaN for a model that gives decisions alone. Without draws it raises a
        DataError.
        """
        if self.draws.empty:
            raise DataError("There are no bootstrap replicates to hand over; audit with n_boot=200, for example.")
        models = list(self.draws.columns.unique("model"))
        posterior, dims = {}, {}
        for quantity in self.draws.columns.unique("quantity"):
            own: Any = self.draws.xs(quantity, axis="columns", level="quantity")
            present = [each for each in DECISIONS if each in own.columns.unique("decisions")]
            cube = own.reindex(columns=pd.MultiIndex.from_product([models, present])).to_numpy()
            cube = cube.reshape(1, len(own), len(models), len(present))
            both = len(present) == len(DECISIONS)
            posterior[quantity] = cube if both else cube[..., 0]
            dims[quantity] = ["model", "decisions"] if both else ["model"]
        return to_arviz({"posterior": posterior}, coords={"model": models, "decisions": DECISIONS}, dims=dims)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        decisions: Decisions = "threshold",
        individuals: pd.DataFrame | None = None,
    ) -> str:
        """Return the audit as one HTML page, for those who decide and, below, for those who check.

        The page is self-contained: it loads nothing, runs no script, follows the reader's light or dark scheme, and can
        be printed. Names of models, columns and labels are escaped.

        Parameters
        ----------
        path
            A file to write, in UTF-8; one that exists is replaced.
        title
            The title of the page.
        decisions
            The decisions that the answers are about: thresholded, or drawn with their scores.
        individuals
            What :func:`pyrofair.audits.flips` returns, to be shown.

        Raises
        ------
        DataError
            If a setting is unfit; nothing has been written then.

        Examples
        --------
        >>> from pyrofair import CausalGraph
        >>> unfair = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
        >>> df = pd.DataFrame({"A": [0, 1] * 60, "M": [0, 0, 1, 1] * 30})
        >>> class Model:
        ...     def predict_proba(self, X):
        ...         p = 0.2 + 0.5 * X["A"].to_numpy()
        ...         return np.column_stack([1 - p, p])
        >>> report = audit({"model": Model()}, unfair, df, random_state=0)
        >>> "for how many individuals" in report.to_html()
        True
        """
        return view_of(self, decisions, individuals).html(path, title)

    def to_json(self, *, rows: bool = False, indent: int | None = None) -> str:
        """Return the audit as JSON: tables, verdicts, settings, versions, assumptions and warnings; NaN is null.

        Parameters
        ----------
        rows
            Whether to add the draws and the influence values, which are as long as the data.
        indent
            Spaces of indentation; None for one line.

        Returns
        -------
        str
            An object with the keys schema ("pyrofair-audit"), schema_version, versions, settings, source, question,
            verdicts, tables, assumptions, outcome_assumptions, warnings and context, of one order always.
        """
        return view_of(self).json(rows=rows, indent=indent)

    def _repr_html_(self) -> str:
        return view_of(self).fragment()

    def summary(self) -> pd.DataFrame:
        """Return one row for each model: its verdict and the numbers behind it.

        ``piu_least`` is the lower confidence limit of PIU's lower bound, ``piu_most`` the upper limit of its upper
        bound. The decisions are those at the threshold.

        Returns
        -------
        DataFrame
            Indexed by model: verdict, mean_unfair_effect, effect_lower, effect_upper, piu_least, piu_most, accuracy,
            majority_rate, positive_rate.

        See Also
        --------
        details : everything in words.
        """
        found: dict[str, dict[str, Any]] = {}
        for (key, of), each in zip(quantities_of(self.table).items(), self.read().values(), strict=True):
            found.setdefault(key[0], summed_up(each.status, of))
        return pd.DataFrame([*found.values()], index=pd.Index([*found], name="model"))

    def details(self) -> str:
        """Return the whole report in plain text: settings, worlds, every quantity, checks and assumptions."""
        return view_of(self).text()

    def __str__(self) -> str:
        return "\n".join(short_lines(self, self.read()))

    def __repr__(self) -> str:
        models = ", ".join(map(str, self.table["model"].unique()))
        return f"<Audit of {models} on {self.context.rows:,} rows; print it for a verdict>"


def audit(
    models: Mapping[str, Any],
    source: PotentialOutcomes | InfluenceBased | UnfairPaths,
    df: Any,
    *,
    n_boot: int = 200,
    level: float = 0.95,
    threshold: float = 0.5,
    bootstrap: Bootstrap = "bayesian",
    sample_weight: npt.ArrayLike | str | None = None,
    scores: ScoresAre = "auto",
    thresholds: npt.ArrayLike | None = None,
    subgroups: str | Sequence[str] | Mapping[str, Any] | None = None,
    groups: npt.ArrayLike | str | None = None,
    sample: int | None = None,
    missing: Missing = "refuse",
    proxies: str | Sequence[str] | None = None,
    disclosure: Any = "logistic",
    n_jobs: int = -1,
    progress: bool = True,
    random_state: int | np.random.Generator | None = None,
) -> Audit | Any:
    """Audit fitted models: accuracy, rates, unfair effect and the bounds on PIU, each with its uncertainty.

    If the graph names a baseline and no contrast, each other level of the sensitive attribute is compared with it, as
    :func:`audit_contrasts` does, in one report with intervals that hold at once.

    Parameters
    ----------
    models
        Fitted models by name, with ``predict_proba``; or scores of the rows of ``df``, shape (n,), where the source
        weights unchanged rows only. A model fitted without column names receives its columns in the order of ``df``.
        A model with ``predict`` alone, or a rule, is passed as :class:`DecisionsOf`, which has no rows of scores; a
        torch module, a function of rows, or a model that decides at random as :class:`ScoresOf`.
    source
        The unfair paths, for one-step estimates with boosted nuisance models cross-fitted on ``df``,
        ``OneStep(unfair, random_state=random_state)``; or a source, of potential outcomes or of influence values: used
        as it is if fitted (on training rows), otherwise a clone is fitted on ``df``.
    df
        n rows with the graph's columns, a pandas, polars or Arrow table; accuracy needs the outcome too.
        Or a table larger than memory: a path of
        Parquet files, a pyarrow dataset, a Dask DataFrame, or frames that can be iterated again and again. Sources are
        then fitted on random samples, and judge the rows partition by partition; they are :class:`OneStep`, or the
        unfair paths, and models have ``predict_proba``.
    n_boot
        Bootstrap replicates, each of which resamples the rows that the nuisance models were fitted on, fits these
        again, and resamples the rows of ``df``. 0 gives points only. A source with influence values has Wald intervals
        instead, and does not use it.
    level
        The level of intervals and of the test of whether the two observed groups agree. Accuracy has the exact test-set
        bound.
    threshold
        A decision is positive where the score exceeds it.
    bootstrap
        ``"bayesian"`` resamples by Dirichlet weights, which lose no level of a category; ``"multinomial"`` draws rows
        with replacement, as propensity models need that take no weights.
    sample_weight
        Weights of the rows of ``df``, shape (n,); of a table in partitions the name of their column.
    scores
        What given scores are: ``"prediction"``, a function of the columns that the graph lets a classifier read;
        ``"outcome"``, anything else, such as human decisions; ``"auto"``: an outcome if equal rows have unequal scores,
        a prediction otherwise, with a warning where fewer than 300 rows repeat another one (of k that do, all with
        equal scores, at most a share of 3 / k differs, at 95 %). A model whose second call gives other scores is an
        outcome too. The effect on an outcome must be identified by ``identify(unfair, "outcome")``, and needs a source
        that weights observed rows.
    thresholds
        Thresholds in [0, 1) at which all quantities of thresholded decisions are estimated too, such as
        ``np.arange(0.1, 0.95, 0.1)``: an effect may be small at one and large at another. One set of replicates serves
        all of them; a source with influence values estimates all at once, of 5,000 rows or more by trees of the scores.
    subgroups
        Columns of ``df`` within whose levels the effect is estimated: names, or a dictionary from names to columns, to
        functions of the table of admissible columns, or to Series of labels on the index of ``df``. Admissible are
        columns that the sensitive attribute does not cause and on which every stage conditions. A function is called
        twice, the second time on the rows in another order with another index, and must label each row alike, and
        equal rows alike. The source must have influence values. In partitions, names of columns.
    groups
        The column of ``df``, outside the graph, of groups of rows such as households, sites or persons; or labels (n,).
        Rows of a group may depend on each other, and groups are taken as independent: errors are summed by group, folds
        and replicates hold whole groups, intervals are of Student's t, and effective sizes count groups. With fewer
        than 10 in an arm there is no interval. A fitted source must have been fitted with groups.
    sample
        Of a table in partitions: the rows that sources are fitted on, by default 200,000, a fifth of them each.
    missing
        ``"refuse"``, or ``"recorded"``: features may lack values, models read the rows as they are, and "not recorded"
        counts as a value; the report shows what that assumes. A row without an outcome is left out of accuracy. It is
        that of an unfitted source, if it has this setting; not for partitions.
    proxies, disclosure
        Columns outside the graph, such as a probability by name and address: the sensitive attribute may then be
        missing in some rows, at random given features and proxies, and the numbers are of all rows (Robins, Rotnitzky
        and Zhao, 1994). ``disclosure`` is the model of whether it is known, and of the attribute itself, given these:
        a learner of :class:`OneStep`, which the source must be, or a scikit-learn classifier. Scores that are an
        outcome count among the proxies. There are no rates by group then.
    n_jobs, progress
        Threads, as joblib counts them; whether a bar is shown. Partitions use neither.
    random_state
        Seeds the bootstrap or the draws, and sources that draw; the result does not depend on ``n_jobs``.

    Returns
    -------
    Audit
        What cannot be estimated is NaN in it, with the reason, never 0. If the graph names no contrast, it is a
        :class:`ContrastAudit`.

    Raises
    ------
    DataError
        If a setting, a model or the table is unfit; nothing has been fitted then.
    NotIdentifiedError
        If scores are an outcome, and the effect on it is not identified.

    See Also
    --------
    decompose : Where the gap between two groups comes from.
    audit_contrasts, audit_graphs, edge_costs : Several groups, several graphs, disputed edges.
    pyrofair.sensitivity.confounding : Hidden common causes of limited strength.

    References
    ----------
    Chikahara et al. (2021), section 5, statistics (i) and (iii), and appendix H.2 (the test-set bound).

    Examples
    --------
    >>> from pyrofair import IPW, CausalGraph
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    >>> scores = 0.2 + 0.3 * df["A"] + 0.2 * df["M"] + 0.2 * df["A"] * df["M"]
    >>> source = IPW(graph.unfair("A -> Y"), arm="paper", propensity="saturated")
    >>> report = audit({"model": scores}, source, df, n_boot=0, scores="prediction")
    >>> table = report.table[report.table["decisions"] == "score"].set_index("quantity")
    >>> table["estimate"][["p_y0", "p_ypi", "piu_lower", "piu_upper"]].round(2).tolist()
    [0.25, 0.6, 0.35, 0.85]
    """
    every = {**locals()}  # all that was asked, while there is nothing else
    unfair = source if isinstance(source, UnfairPaths) else getattr(source, "unfair", None)
    if isinstance(unfair, UnfairPaths) and unfair.graph.contrast is None:
        return default_of("audit of each contrast")(**every)
    require_seed(random_state)
    random_state = None if random_state is None else seed_from(random_state)
    chosen: Any = default_source(source, random_state) if isinstance(source, UnfairPaths) else source
    require_models(models)
    require_estimates("source", chosen)
    require_choice("bootstrap", bootstrap, ("bayesian", "multinomial"))
    require_integer("n_boot", n_boot, least=0)
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    require_real("threshold", threshold, least=0.0, below=1.0)  # for scores to exceed it
    require_choice("scores", scores, ("auto", "prediction", "outcome"))
    if require_integer("n_jobs", n_jobs, least=-MOST_JOBS, most=MOST_JOBS) == 0:
        raise DataError("n_jobs=0 leaves no thread to work in; -1 takes one for each processor.")
    require_flag("progress", progress)
    require_learner("disclosure", disclosure, "propensity")
    at = read_thresholds(thresholds)
    chosen = with_missing(chosen, missing)
    if is_partitions(df):
        if missing == "recorded":
            raise DataError(
                'missing="recorded" is for one table, and df is one in partitions. Impute its values before.'
            )
        if proxies is not None:
            raise DataError("proxies= is for one table, and df is in partitions: pass rows of it, pf.sample_rows(...).")
        both: dict[str, Any] = {"threshold": threshold, "subgroups": subgroups}
        alone: dict[str, Any] = {"level": level, "scores": scores, "thresholds": thresholds}
        own: dict[str, Any] = {"thresholds": at, "weight": sample_weight, "groups": groups, "sample": sample}
        pilot = partial(audit, models, random_state=random_state, **alone, **both)
        return audit_partitions(pilot, models, chosen, df, seed=random_state, **own, **both)
    if sample is not None:
        raise DataError("sample= is for tables in partitions, and df is one table. To audit it by samples, pass [df].")
    graph = chosen.unfair.graph
    df = as_pandas(df)
    taken = getattr(chosen, "missing", None)
    beside, known = () if proxies is None else require_names("proxies", proxies, one=True), None
    if proxies is None:
        refuse_gaps(df, graph)
    else:
        _refuse_readers(models, beside)
        chosen = default_of("source with proxies")(chosen, df, beside, disclosure)
        df, known = chosen.filled, chosen.known
    how: dict[str, Any] = {"sample_weight": sample_weight, "groups": groups, "missing": taken}
    rows = AuditedRows.of(df, graph, both=False, beside=beside, known=known, **how)
    table, a, weight, clusters = rows.table, rows.a, rows.weight, rows.clusters
    levels = read_subgroups(subgroups, chosen, table)
    warned = _warn([*rows.of_outcome, *rows.texts])
    found = JudgedModels.of(models, rows, graph, scores, threshold)
    audited, observed, outcomes, types = found.models, found.observed, found.outcomes, found.types
    warned += _warn(found.texts)
    _check_outcomes(chosen, {name: types[name].why for name in outcomes})
    if beside and outcomes:
        chosen.proxies = chosen.proxies.assign(**{f"the scores {name!r}": observed[name] for name in outcomes})
    shared, by_influence = set(graph.columns_of(chosen.unfair.shared)), is_influence_based(chosen)
    settings: dict[str, tuple[Any, Any]] = {  # each with whether it was used
        "n_boot": (n_boot, not by_influence),
        "level": (level, True),
        "threshold": (threshold, True),
        "bootstrap": (bootstrap, n_boot and not by_influence),
        "scores": (scores, any(model.is_scores for model in audited)),
        "thresholds": (at, at),
        "random_state": (random_state, True),
        "subgroups": ({each.name: each.columns for each in levels}, levels),
        "groups": (groups if isinstance(groups, str) else getattr(groups, "name", None) or "given labels", clusters),
        "missing": (taken, taken == "recorded"),
        "proxies": (", ".join(beside), beside),
        "disclosure": (disclosure, beside),
    }
    context = Context(
        paths=chosen.unfair,
        rows=len(table),
        level=level,
        threshold=threshold,
        settings={name: value for name, (value, used) in settings.items() if used},
        clusters=clusters,
        units=describe_units(None if clusters is None else clusters.code, weight),
        source=" ".join(str(chosen).split()),
        versions=known_versions(),
        order=rows.order,
        unnamed=[model.name for model in audited if model.is_unnamed],
        untouched={each.name: each.reads for each in audited if each.reads and shared.issuperset(each.reads)},
        score_types={
            name: [f"  {'an outcome, no' if each.is_outcome else 'taken for a'} function of the features: {each.why}"]
            for name, each in types.items()
            if each.why
        },
        outcomes=outcomes,
        missing=missing_shares(df, rows.read, graph, weight, rows.known),
        warnings=warned,
    )
    answers: dict[str, Any] = {
        each.name: known_flips(each, table, a, observed[each.name], chosen.unfair, threshold) for each in audited
    }
    for each in audited if hasattr(chosen, "counterfactual") else ():
        if isinstance(answers[each.name], str) and not each.is_scores:
            seed = seed_from(random_state)
            answers[each.name] = partial(likely_flips, each.name, each.model, chosen, table, threshold, seed)
    rates = pd.DataFrame()
    if not beside:  # the group of some rows is not known
        rates = estimate_rates(observed, rows, threshold, graph, level)
    with without_bars(not progress):
        if by_influence:
            asked = Scores(audited, observed, threshold)
            report = _audit_by_influence(chosen, asked, rows, context, levels)
        else:
            how = {"n_boot": n_boot, "bootstrap": bootstrap, "n_jobs": n_jobs, "progress": progress}
            report = _audit_by_replicates(chosen, found, rows, context, **how)
    return replace(report, rates=rates, answers=answers)


def _audit_by_replicates(
    source: Any, found: JudgedModels, rows: AuditedRows, context: Context, *, n_boot: int, **how: Any
) -> Audit:
    """Return the audit of a source of potential outcomes, whose uncertainty is that of replicates."""
    at, random_state = context.settings.get("thresholds", ()), context.settings["random_state"]
    table, weight, clusters = rows.table, rows.weight, rows.clusters
    audited, outcomes, level, warned = found.models, found.outcomes, context.level, [*context.warnings]
    with collected() as caught:
        fitted, index = fit_source(source, table, weight, clusters)
        used: Any = fitted.for_outcome() if outcomes else None
        predicted = fitted if len(outcomes) < len(audited) else used
        sources, worlds, failure = _worlds(predicted, rows, bool((index >= 0).all()), random_state)
        if outcomes and used is not predicted and not failure:
            sources[OUTCOME], worlds[OUTCOME] = used, make_views(used, table, weight, random_state)
    known = (index, fitted.n_fitted_) if worlds and isinstance(fitted, Refittable) else (np.full(len(table), -1), 0)
    units = Units.of_rows(*known)
    if clusters is not None:
        key = clusters.key if fitted is not source or not known[1] else fitted.nuisances_.rows.groups
        units = Units.of_groups(clusters.key, key[: known[1]])
    estimator = Estimator(found, rows, context.threshold, at, sources, worlds, units)
    point, notes = estimator.point()
    replicates = replicate(estimator, point, n_boot, random_state=random_state, **how)
    fresh = fitted is not source
    warned += texts_of(caught)
    poor = _poor_overlap(predicted, table, weight, worlds, fresh=fresh)
    warned += poor if fresh else _warn(poor, PositivityWarning, stacklevel=4)  # a fresh source has warned already
    warned += _warn(_doubtful_intervals(replicates, n_boot, predicted, worlds, level), stacklevel=4)
    draws = replicates.draws.iloc[:0] if replicates.most_failed else replicates.draws
    compared = group_table(point, draws, level, worlds)
    labels = {model.name: estimator.label_of(model.name) for model in audited}
    fewer = "" if clusters is None else clusters.fewer()
    small = {
        name: (fewer, fewer) if fewer else _find_small_groups(sources.get(label), table, weight, worlds.get(label))
        for name, label in labels.items()
    }
    told: dict[str, Any] = {"failure": failure, "small": small, "few": fewer}
    measured = Measured.of_replicates(estimator, point, notes, draws, level, **told)
    drawn = pd.DataFrame(draws[AUDITED])
    text = "; ".join(getattr(predicted, "doubts", ())) if AUDITED in worlds else ""
    doubts = {model.name: text for model in audited if text}
    more = doubts_by_threshold(at, disagreeing(compared)) | {(name, each): text for name in doubts for each in at}
    return Audit(
        measured.table(doubts, compared),
        compared,
        drawn.loc[:, drawn.columns.get_level_values("decisions").isin(DECISIONS)] if len(draws) else pd.DataFrame(),
        replace(
            context,
            doubts=doubts,
            threshold_doubts=more,
            replicates=replicates.tried,
            failed=len(replicates.failures),
            paired=AUDITED in worlds and _are_paired(*worlds[AUDITED][0]),
            overlap=predicted.overlap() if isinstance(predicted, Diagnosed) else pd.DataFrame(),
            assumptions=predicted.assumptions if isinstance(predicted, Diagnosed) else (),
            outcome_assumptions=used.assumptions if OUTCOME in worlds else (),
            small=small,
            resampling=_resampling(fitted, index, fresh=fresh, grouped=clusters is not None),
            warnings=warned,
            failure=failure,
        ),
        thresholds=measured.thresholds(at, more),
    )


def _audit_by_influence(
    source: Any, scores: Scores, rows: AuditedRows, context: Context, levels: Sequence[Subgroup]
) -> Audit:
    """Return the audit of a source with influence values, of which everything is made without replicates."""
    at, random_state = context.settings.get("thresholds", ()), context.settings["random_state"]
    table, a, weight, clusters = rows.table, rows.a, rows.weight, rows.clusters
    with collected() as caught:
        fitted, index = fit_source(source, table, weight, clusters)
        fresh, level, outcomes = fitted is not source, context.level, context.outcomes
        # Scores that are an outcome have a formula of their own.
        parts: list[tuple[Any, list[AuditedModel]]] = [
            (fitted, [each for each in scores.models if each.name not in outcomes]),
            (fitted.for_outcome() if outcomes else None, [each for each in scores.models if each.name in outcomes]),
        ]
        asked = [(each, replace(scores, models=models, fresh=fresh)) for each, models in parts if models]
        absent = _absent_group(context.graph, a, weight)
        new = int((index < 0).sum())
        if hasattr(fitted, "fitted_rows") and new > fitted.n_fitted_:
            warnings.warn(
                f"The source was fitted on {fitted.n_fitted_:,} rows, fewer than the {new:,} others that are audited: "
                "what these few rows leave wrong with its models does not shrink with the rows audited, and intervals "
                "are widened for it. Leave the source unfitted, so that it is cross-fitted on the audited rows.",
                PyrofairWarning,
                stacklevel=1,
            )
        every = [(each, replace(own, rules=(*DECISIONS, *at))) for each, own in asked]
        made = estimate_by_influence(every, rows, fresh=fresh, failure=absent)
        found, cut = (made.of_rules(rules) for rules in (DECISIONS, at or DECISIONS))
        groups = pd.DataFrame()
        within: Within = ()
        if not found.failure:
            groups = compare_by_influence(*asked[0], rows, fresh=fresh, level=level, random_state=random_state)
            within = estimate_subgroups(levels, asked, found.normal, table, a, clusters) if levels else ()
    warned = [*context.warnings, *texts_of(caught)]
    assumptions = asked[0][0].assumptions
    of_outcomes = asked[-1][0].assumptions if outcomes else ()
    limit = largest_z(fitted, table, fresh=fresh)
    small, doubts = found.small(), describe_doubts(found.stages, found.weights, limit)
    more = {
        (model, each): text
        for each, own in (cut.stages.groupby("decisions") if at and len(cut.stages) else ())
        for model, text in describe_doubts(own, cut.weights, limit).items()
    }
    poor = [
        f"Poor overlap among the audited rows, {each['regime']} world, stage {each['nodes']}: {each['problem']}. "
        f"{COARSEN}"
        for each in ([] if fresh else found.weights.to_dict("records"))  # a fresh source has warned
        if each["problem"]
    ]
    warned += _warn(poor, PositivityWarning, stacklevel=4)
    return Audit(
        found.measured(scores.models, level).table(doubts),
        groups,
        pd.DataFrame(found.normal.draws(random_state)[AUDITED]),
        replace(
            context,
            wald=True,
            estimates=found.normal,
            cut=cut.normal if at else None,
            within=within,
            resampling=found.describe_models(),
            stage_lines=[
                *(fitted.describe() if hasattr(fitted, "describe") else ()),
                *stage_lines(found.weights, found.stages, context.graph),
            ],
            disclosure=getattr(fitted, "shares", pd.DataFrame()),
            form=getattr(fitted, "form_", ""),
            doubts=doubts,
            threshold_doubts=more,
            largest_z=limit,
            assumptions=assumptions,
            outcome_assumptions=() if of_outcomes == assumptions else of_outcomes,
            small=small,
            warnings=warned,
            failure=found.failure,
        ),
        found.normal.influence,
        found.stages,
        cut.measured(scores.models, level).thresholds(at, more),
        tell_subgroups(estimate_levels(within), level),
    )


def refuse_gaps(df: Any, graph: CausalGraph) -> None:
    """Refuse a sensitive attribute with gaps, and name the way to audit all rows."""
    name = graph.sensitive_column
    gaps = df[name].isna() if isinstance(df, pd.DataFrame) and list(df.columns).count(name) == 1 else np.zeros(0)
    if gaps.any():
        raise DataError(
            f"The sensitive attribute {name!r} of df is missing in {int(gaps.sum()):,} of {len(df):,} rows. If columns "
            "outside the graph hint at it, such as a probability by name and address, name them: "
            "audit(..., proxies=['name_score']). Rows where it is known, alone, stand for all rows only if it is "
            "missing for no reason; nothing is dropped for you."
        )


def _refuse_readers(models: Mapping[str, Any], proxies: Sequence[str]) -> None:
    """Refuse models that read a proxy."""
    for name, model in models.items():
        if read := [each for each in proxies if is_model(model) and each in as_adapter(model).reads(())]:
            raise DataError(
                f"{name!r} reads {read[0]!r}, so that it is a feature and no proxy: add it to the graph, with its "
                "arrows, and leave it out of proxies=."
            )


def require_audit_settings(settings: Mapping[str, Any], of: str) -> None:
    """Refuse a keyword that :func:`audit` does not take, named by the function ``of`` that hands it on."""
    known = [each.name for each in signature(audit).parameters.values() if each.kind is Parameter.KEYWORD_ONLY]
    for name in settings:
        if name not in known:
            raise TypeError(f"{of}() got an unexpected keyword argument {name!r}.{did_you_mean(name, known)}")


def default_source(unfair: UnfairPaths, random_state: int | None) -> Any:
    """Return the source that audits unfair paths unless told otherwise."""
    return default_of("source of audits")(unfair, random_state=random_state)


def with_missing(source: Any, missing: Missing) -> Any:
    """Return a source that takes missing values as asked; one without this setting cannot take them as recorded."""
    require_missing(missing)
    if missing == "refuse" or getattr(source, "missing", "") == "recorded":
        return source
    if not hasattr(source, "missing"):
        raise DataError(
            f'missing="recorded" is for sources that can count "not recorded" as a value, such as OneStep and IPW, and '
            f"{type(source).__name__} reads numbers and categories alone. Pass the unfair paths, or impute before."
        )
    try:
        check_is_fitted(source)
    except NotFittedError:
        return clone(source).set_params(missing=missing)
    raise DataError(
        f'The source was fitted with missing="refuse". Fit {type(source).__name__}(..., missing="recorded").'
    )


def require_models(models: object) -> None:
    """Refuse what are no models by name."""
    if not isinstance(models, Mapping) or not models:
        raise DataError(f"models={shown(models)} must give models by name: audit({{'plain': model}}, source, df).")
    if unnamed := [shown(name) for name in models if not isinstance(name, str) or not name.strip()]:
        raise DataError(f"models has the name {unnamed[0]}; name each model by a text: audit({{'plain': model}}, ...).")
    if fault := text_fault(models):
        raise DataError(f"Models cannot be told apart by their names, or these not be written: {fault}. Rename one.")


def _warn(texts: Iterable[str], category: type[Warning] = PyrofairWarning, stacklevel: int = 3) -> list[str]:
    """Warn the caller of :func:`audit`, and return the texts."""
    found = list(texts)
    for text in found:
        warnings.warn(text, category, stacklevel=stacklevel)
    return found


def _check_outcomes(source: Any, reasons: Mapping[str, str]) -> None:
    """Refuse outcomes where the effect on them is not identified, or the source cannot weight them."""
    for name, reason in reasons.items():
        known = f"{name!r} is an outcome, no function of the features: {reason}."
        try:
            identify(source.unfair, "outcome")
        except NotIdentifiedError as error:
            text = f"{known} The effect on an outcome must be identified by itself. {error.cause}"
            raise type(error)(text, error.way_out) from error
        if not isinstance(source, Stratified) and not (is_influence_based(source) and hasattr(source, "for_outcome")):
            does = "asks for the scores of changed rows" if is_influence_based(source) else "draws rows or changes them"
            raise DataError(
                f"{known} {type(source).__name__} {does}, and what their outcome would be is not "
                "observed; IPW(unfair) weights observed rows."
            )


def fit_source(
    source: Any, table: pd.DataFrame, weight: NDArray[np.float64], clusters: Clusters | None = None
) -> tuple[Any, NDArray[np.int64]]:
    """Return a fitted source, and the position of each audited row (n,) among the fitted ones, -1 for others.

    Of the table, which has been read, nothing is warned of again. One that knows other units than ``clusters``, or
    none, is refused.
    """
    how: dict[str, Any] = {} if clusters is None else {"groups": clusters.labels}
    if how and hasattr(source, "fit") and "groups" not in signature(source.fit).parameters:
        raise DataError(
            f"{type(source).__name__}.fit takes no groups: OneStep, IPW and GComputation do, so that folds and "
            "replicates hold whole groups."
        )
    if isinstance(source, BaseEstimator):  # others cannot be cloned, and are used as they are
        try:
            check_is_fitted(source)
        except NotFittedError:
            with read_again(table, source.unfair.graph):
                return clone(source).fit(table, sample_weight=weight, **how), np.arange(len(table))
    index = source.fitted_rows(table) if hasattr(source, "fitted_rows") else np.full(len(table), -1)
    _require_known(clusters, source, index)
    return source, index


def _require_known(clusters: Clusters | None, fitted: Any, position: NDArray[np.int64]) -> None:
    """Refuse a fitted source that takes rows for units where groups are, or knows other groups of the same rows.

    ``position`` (n,) is that of each row among the fitted ones, -1 for others: none of these may be of a fitted group,
    which the models that judge it have seen.
    """
    nuisances = getattr(fitted, "nuisances_", None)
    own = nuisances.rows.groups if isinstance(nuisances, Nuisances) else None
    rows_are_units = own is None and (isinstance(fitted, Refittable) or is_influence_based(fitted))
    if (clusters is None and own is not None) or (clusters is not None and rows_are_units):
        how = "without groups, so that its folds divide them" if own is None else "with groups, its units"
        raise DataError(f"The source was fitted {how}. Give the same groups= to it and here, or leave it unfitted.")
    if clusters is None or own is None:
        return
    known = position >= 0
    if (own[position[known]] != clusters.key[known]).any():
        raise DataError("Rows of df have other groups than those that the source was fitted with. Give the same.")
    if seen := int(np.isin(clusters.key[~known], own).sum()):
        raise DataError(
            f"{seen:,} new rows are of groups that the source was fitted on, which the models that judge them have "
            "seen. Leave the source unfitted, or divide the table by whole groups."
        )


def _resampling(fitted: Any, index: NDArray[np.int64], *, fresh: bool, grouped: bool) -> str:
    """Return which audited rows the source was fitted on, and hence what a replicate resamples."""
    if not isinstance(fitted, Refittable):
        return ""
    n, known = fitted.n_fitted_, int((index >= 0).sum())
    if grouped:
        return "A replicate resamples whole groups, each once for the fit and the audit."
    if fresh or known == len(index) == n:
        order = "" if fresh or (index == np.arange(len(index))).all() else ", in another order"
        return f"The source was fitted on these rows{order}: a replicate resamples them once, for both."
    if not known:
        return f"The source was fitted on {n:,} other rows: a replicate resamples either."
    return (
        f"{known:,} of these rows are among the {n:,} that the source was fitted on: in a replicate they have one "
        "weight in both."
    )


def _worlds(
    fitted: Any, rows: AuditedRows, shared_rows: bool, seed: int | None
) -> tuple[dict[str, Any], dict[str, Views], str]:
    """Return the source and those of its single groups, their worlds, and why there are none."""
    table, weight, absent = rows.table, rows.weight, _absent_group(fitted.unfair.graph, rows.a, rows.weight)
    if absent and isinstance(fitted, Stratified):
        return {}, {}, absent
    try:
        worlds = {AUDITED: make_views(fitted, table, weight, seed)}
    except DataError as error:
        if shared_rows:
            raise
        return {}, {}, str(error)
    sources = {AUDITED: fitted}
    for label, each in (fitted.by_group() if isinstance(fitted, Stratified) else {}).items():
        try:
            worlds[label] = make_views(each, table, weight, seed)
        except DataError as error:
            warnings.warn(not_compared(label, error), PyrofairWarning, stacklevel=2)
        else:
            sources[label] = each
    return sources, worlds, ""


def _absent_group(graph: CausalGraph, a: NDArray[np.int8], weight: NDArray[np.float64]) -> str:
    """Return which observed group has no audited row of a weight, or an empty string."""
    for value in (0, 1):
        if not (weight * (a == value)).any():
            return f"df has no row with {graph.sensitive_column}={graph.label(value)!r}; both groups are needed"
    return ""


def _are_paired(one: CounterfactualSample, other: CounterfactualSample) -> bool:
    """Return whether each row of a world is the same unit as one of the other world, and as no other row."""
    if one.unit is None or other.unit is None:
        return False
    return len(np.unique(one.unit)) == len(one.unit) and np.array_equal(np.sort(one.unit), np.sort(other.unit))


def _find_small_groups(
    fitted: Any, table: pd.DataFrame, weight: NDArray[np.float64], views: Views | None
) -> tuple[str, str]:
    """Return for each world why an observed group has too few effective rows for an interval; empty where none has."""
    if views is None or not isinstance(fitted, Diagnosed):
        return "", ""
    sizes, found = fitted.group_sizes(), []
    for regime, world in zip(fitted.unfair.regimes, views[0], strict=True):
        few = [f"{size}, fewer than {FEWEST_ROWS}" for size in sizes[regime.name] if size.is_small]
        if isinstance(fitted, SampleSplit):
            size = fitted.effective_size(table, weight)
        else:
            size = world.effective_size if world.unit is None else np.inf
        if size < FEWEST_ROWS and not few:
            few = [f"the effective size of the world {regime.name!r} is {size:.1f} row(s), fewer than {FEWEST_ROWS}"]
        found.append("; ".join(few))
    return found[0], found[1]


def _poor_overlap(
    fitted: Any, table: pd.DataFrame, weight: NDArray[np.float64], worlds: Mapping[str, Views], *, fresh: bool
) -> list[str]:
    """Return which audited rows (n, of the given weight) are trimmed, and which worlds they support badly."""
    if AUDITED not in worlds:
        return []
    found, kept = [], np.ones(len(table), dtype=bool)
    if getattr(fitted, "trim", None) is not None and hasattr(fitted, "kept"):
        kept = np.asarray(fitted.kept(table))
    if not kept.all():
        found.append(
            f"trim={fitted.trim:g} leaves {int((~kept).sum()):,} of {len(kept):,} audited rows without weight: the "
            "unfair effect and PIU are those among the others, while accuracy and the positive prediction rate are "
            "over all rows. Report the effect as that of the rows kept."
        )
    counted, (low, high) = kept & (weight > 0.0), MEAN_WEIGHT
    for regime, world in zip(fitted.unfair.regimes, worlds[AUDITED][0], strict=True) if not fresh else ():
        size, problems = world.effective_size, []
        if isinstance(fitted, Stratified) and counted.any():
            mean = float(np.average(fitted.weights(regime, table)[counted], weights=weight[counted]))
            if not low <= mean <= high:
                problems.append(f"the mean weight is {mean:.3g}, outside [{low}, {high}]")
        if size < SMALLEST_SHARE * world.units:
            problems.append(f"the effective size {size:.1f} is below {SMALLEST_SHARE:.0%} of {world.units} rows")
        elif isinstance(fitted, Stratified) and size < FEWEST_ROWS:
            problems.append(f"the effective size {size:.1f} is below {FEWEST_ROWS} rows")
        if problems:
            where = f"Poor overlap among the audited rows, world {regime.name!r}"
            found.append(f"{where}: {'; '.join(problems)}. {COARSEN}")
    return found


def _doubtful_intervals(
    replicates: Replicates, n_boot: int, fitted: Any, worlds: Mapping[str, Views], level: float
) -> list[str]:
    """Return what makes intervals doubtful."""
    found, tried, failures = [], replicates.tried, replicates.failures
    if tried < n_boot:
        found.append(f"Interrupted: intervals are made of the {tried} replicates that were done. Audit again for all.")
    if replicates.most_failed:
        found.append(
            f"{len(failures)} of {tried} bootstrap replicates failed, so there are no intervals. The first failure: "
            f"{failures[0]} Mend its cause, or audit more rows."
        )
    elif 0 < tried * (1.0 - level) < 2.0 - 1e-9:
        found.append(
            f"{tried} bootstrap replicates are too few for {level:.0%} intervals, whose ends are then the smallest and "
            f"the largest replicate; use n_boot={int(np.ceil(2.0 / (1.0 - level) - 1e-9))} or more."
        )
    if tried and worlds and not isinstance(fitted, Refittable):
        first = worlds[AUDITED][0][0]
        text = (
            "cannot be refitted, so the intervals leave out the uncertainty of its nuisance models"
            + ("." if first.origin is not None else "; they cover the drawing of units and of audited rows.")
            + " Use a source that can be, such as IPW(unfair)"
        )
        if first.unit is not None:
            text = (
                f"is taken as it is: the intervals cover the drawing of {first.units:,} units and of audited rows, not "
                "what may be wrong with it or its parameters. Fit these to data and pass the posterior"
            )
        found.append(f"{type(fitted).__name__} {text}, or report the intervals as conditional on it.")
    return found
