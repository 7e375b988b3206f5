"""How unfair is each model along the unfair paths, how sure is that, and what does it cost in accuracy?"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from pyrofair.bounds import test_set_bound
from pyrofair.exceptions import DataError, PyrofairError, PyrofairWarning
from pyrofair.inference_data import to_arviz
from pyrofair.measures import DECISIONS, Decisions, ScoredModel, Worlds, decide, measure, score_model
from pyrofair.plots import plot_audit
from pyrofair.potential_outcomes import PotentialOutcomes
from pyrofair.readings import read_audit
from pyrofair.tables import read_outcome, read_table, read_weight

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Audit", "audit"]

MOST_FAILURES = 0.2
GROUPED = ("p_y0", "p_ypi", "mean_unfair_effect")

Bootstrap = Literal["bayesian", "multinomial"]
Key = tuple[str, str, Decisions, str]
"""Source (the audited one, or one of its single groups), model, decisions, quantity."""


@dataclass(frozen=True)
class Audit:
    """The result of :func:`audit`; print it for a reading in plain text.

    Attributes
    ----------
    table : DataFrame
        A row for each model, kind of decisions and quantity: estimate, lower, upper, ess (effective sample size of the
        weighted rows), note.
    groups : DataFrame
        Where the source allows it: the same marginals from either observed group alone, their difference with its
        interval, and whether they agree.
    draws : DataFrame
        The bootstrap replicates, a row each, with columns (model, decisions, quantity).
    context : dict
        Rows, replicates, level, assumptions, the groups weighted, warnings.
    """

    table: pd.DataFrame
    groups: pd.DataFrame
    draws: pd.DataFrame
    context: dict[str, Any]

    def plot(self) -> Figure:
        """Draw accuracy and the interval of PIU of every model."""
        return plot_audit(self.table)

    def to_inference_data(self) -> Any:
        """Return the bootstrap replicates as ArviZ data, one variable a quantity, by model and decisions.

        Raises
        ------
        DataError
            If there are no replicates.
        """
        if self.draws.empty:
            raise DataError("There are no bootstrap replicates to hand over; audit with n_boot=200, say.")
        models, kinds, names = (list(dict.fromkeys(self.draws.columns.get_level_values(i))) for i in range(3))
        columns = pd.MultiIndex.from_product([models, kinds, names])
        cube = self.draws.reindex(columns=columns).to_numpy().reshape(len(self.draws), len(models), len(kinds), -1)
        posterior = {name: cube[None, :, :, :, i] for i, name in enumerate(names)}
        dims = {name: ["model", "decisions"] for name in names}
        return to_arviz({"posterior": posterior}, coords={"model": models, "decisions": kinds}, dims=dims)

    def __str__(self) -> str:
        return read_audit(self.table, self.groups, self.context)


def audit(
    models: Mapping[str, Any],
    source: PotentialOutcomes,
    df: pd.DataFrame,
    *,
    n_boot: int = 200,
    level: float = 0.95,
    threshold: float = 0.5,
    bootstrap: Bootstrap = "bayesian",
    sample_weight: npt.ArrayLike | None = None,
    n_jobs: int = -1,
    progress: bool = True,
    random_state: int | None = None,
) -> Audit:
    """Audit fitted models: accuracy, rates, unfair effect and the bounds on PIU, each with its uncertainty.

    Parameters
    ----------
    models
        Fitted models by name: anything with ``predict_proba``, or scores of the rows of ``df``, shape (n,), where the
        source weights unchanged rows only.
    source
        A source of potential outcomes. A fitted one is used as it is (fit it on training rows); otherwise a clone is
        fitted on ``df``.
    df
        n rows with the graph's columns; accuracy needs the outcome too.
    n_boot
        Bootstrap replicates: the rows that the nuisances were fitted on are resampled and the nuisances fitted again,
        and the rows of ``df`` are resampled as well. 0 gives points only.
    level
        The level of percentile intervals. Accuracy has the exact test-set bound instead, 5 % on each side.
    threshold
        A decision is positive where the score exceeds it.
    bootstrap
        How rows are resampled: ``"bayesian"`` gives them Dirichlet weights, so that no level of a category is lost from
        a replicate; ``"multinomial"`` draws them with replacement, as propensity models need that take no weights.
    sample_weight
        Weights of the rows of ``df``, shape (n,).
    n_jobs
        Threads, as joblib counts them.
    progress
        Whether a bar is shown.
    random_state
        Seeds the bootstrap; the result does not depend on ``n_jobs``.

    Returns
    -------
    Audit

    Raises
    ------
    DataError
        If a model or the table is unfit; nothing has been computed then.

    References
    ----------
    Chikahara et al. (2021), section 5, statistics (i) and (iii), and appendix H.2 (the test-set bound).
    """
    if not isinstance(models, Mapping) or not models:
        raise DataError("Pass models by name: audit({'plain': model}, source, df).")
    if bootstrap not in ("bayesian", "multinomial"):
        raise DataError(f"bootstrap={bootstrap!r} is not known; it is 'bayesian' or 'multinomial'.")
    if n_boot < 0 or not 0.0 < level < 1.0 or not 0.0 <= threshold < 1.0:
        raise DataError(f"n_boot={n_boot}, level={level} or threshold={threshold} is out of range.")
    graph = source.unfair.graph
    table = read_table(df, graph.columns_of(n for n in graph.observed if n != graph.outcome), what="df")
    outcome = _outcome(df, source)
    weight = read_weight(sample_weight, len(table))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted, shared_rows = _fitted(source, table, weight)
        worlds, failure = _worlds(fitted, table, weight, shared_rows)
    for each in caught:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    sources = {"": fitted} | (fitted.by_group() if hasattr(fitted, "by_group") and worlds is not None else {})
    scored = {
        (label, name): score_model(name, model, table, world, graph)
        for label, each in sources.items()
        for world in [worlds if not label else each.worlds(df=table, sample_weight=weight)]
        for name, model in models.items()
        if not label or hasattr(model, "predict_proba")
    }
    task = _Task(sources, table, outcome, weight, scored, threshold, shared_rows, bootstrap)
    point, notes = task.point(worlds)
    draws, done = _bootstrap(task, point, n_boot if worlds is not None else 0, n_jobs, progress, random_state)
    context = {
        "rows": len(table),
        "level": level,
        "threshold": threshold,
        "replicates": done,
        "failed": done - len(draws),
        "unfair": str(source.unfair),
        "graph": graph,
        "arms": getattr(fitted, "arm_", {}),
        "assumptions": getattr(getattr(fitted, "estimand_", None), "assumptions", ()),
        "warnings": [str(each.message) for each in caught if issubclass(each.category, PyrofairWarning)],
        "failure": failure,
    }
    if done and context["failed"] > MOST_FAILURES * done:
        draws = draws.iloc[:0]
        context["warnings"].append(
            f"{context['failed']} of {done} bootstrap replicates failed, so there are no intervals: "
            "resamples lose whole cells of the propensity."
        )
    sizes = _sizes(worlds, len(table))
    main = _table(point, notes, draws, sizes, level, task, failure)
    groups = _groups(point, draws, level)
    own = draws[""] if len(draws) else pd.DataFrame()
    return Audit(main, groups, pd.DataFrame(own), context)


@dataclass(frozen=True)
class _Task:
    """All that one replicate needs."""

    sources: dict[str, Any]
    table: pd.DataFrame
    outcome: NDArray[np.int8] | None
    weight: NDArray[np.float64]
    scored: dict[tuple[str, str], ScoredModel]
    threshold: float
    shared_rows: bool
    bootstrap: Bootstrap

    @property
    def names(self) -> list[str]:
        """The models."""
        return [name for label, name in self.scored if not label]

    def point(self, worlds: Worlds | None) -> tuple[dict[Key, float], dict[Key, str]]:
        """Return the estimates, and notes on them."""
        values = self._observed(self.weight)
        notes: dict[Key, str] = {}
        if worlds is None:
            return values, notes
        for label, source in self.sources.items():
            made = source.worlds(df=self.table, sample_weight=self.weight) if label else worlds
            found, said = self._causal(label, made)
            values |= found
            notes |= said
        return values, notes

    def replicate(self, seed: np.random.SeedSequence) -> dict[Key, float] | None:
        """Return the estimates on resampled rows, or None where they cannot be had."""
        random = np.random.default_rng(seed)
        counts = _resample(random, len(self.table), self.bootstrap)
        weight = self.weight * counts
        values = self._observed(weight)
        base = self.sources[""]
        try:
            if self.shared_rows:
                base = base.refit(counts)
            elif hasattr(base, "refit"):
                base = base.refit(_resample(random, base.n_fitted_, self.bootstrap))
            alternatives = base.by_group(list(self.sources)[1:]) if len(self.sources) > 1 else {}
            for label, source in {"": base, **alternatives}.items():
                values |= self._causal(label, source.worlds(df=self.table, sample_weight=weight))[0]
        except PyrofairError:
            return None
        return values

    def _observed(self, weight: NDArray[np.float64]) -> dict[Key, float]:
        values: dict[Key, float] = {}
        for name in self.names:
            scores = self.scored["", name].observed
            for kind in DECISIONS:
                positive = decide(scores, kind, self.threshold)
                values["", name, kind, "positive_rate"] = float(weight @ positive / weight.sum())
            if self.outcome is not None:
                right = decide(scores, "threshold", self.threshold) == self.outcome
                base_rate = float(weight @ self.outcome / weight.sum())
                values["", name, "threshold", "accuracy"] = float(weight @ right / weight.sum())
                values["", name, "threshold", "majority_rate"] = max(base_rate, 1.0 - base_rate)
        return values

    def _causal(self, label: str, worlds: Worlds) -> tuple[dict[Key, float], dict[Key, str]]:
        values: dict[Key, float] = {}
        notes: dict[Key, str] = {}
        for (of, name), scored in self.scored.items():
            if of != label:
                continue
            for kind in DECISIONS:
                decided = tuple(decide(s, kind, self.threshold) for s in scored.worlds)
                found, said = measure((decided[0], decided[1]), worlds)
                kept = found if not label else {quantity: found[quantity] for quantity in GROUPED}
                values |= {(label, name, kind, quantity): value for quantity, value in kept.items()}
                notes |= {(label, name, kind, quantity): text for quantity, text in said.items() if quantity in kept}
        return values, notes


def _resample(random: np.random.Generator, n: int, bootstrap: Bootstrap) -> NDArray[np.float64]:
    """Return how often each row counts in a replicate, shape (n,), with sum n."""
    if bootstrap == "multinomial":
        return random.multinomial(n, np.full(n, 1.0 / n)).astype(np.float64)
    return n * random.dirichlet(np.ones(n))


def _outcome(df: pd.DataFrame, source: PotentialOutcomes) -> NDArray[np.int8] | None:
    graph = source.unfair.graph
    if graph.outcome_column not in df.columns:
        return None
    column = read_table(df, [graph.outcome_column], what="df")[graph.outcome_column]
    return read_outcome(column, graph.positive, what=f"The outcome {graph.outcome_column!r}")[0]


def _fitted(source: PotentialOutcomes, table: pd.DataFrame, weight: NDArray[np.float64]) -> tuple[Any, bool]:
    """Return a fitted source, and whether the audited rows are those that it was fitted on."""
    try:
        check_is_fitted(source)
    except NotFittedError:
        return clone(source).fit(table, sample_weight=weight), hasattr(source, "refit")
    return source, bool(getattr(source, "is_fitted_on", lambda _: False)(table))


def _worlds(
    source: Any, table: pd.DataFrame, weight: NDArray[np.float64], shared_rows: bool
) -> tuple[Worlds | None, str]:
    try:
        return source.worlds(df=table, sample_weight=weight), ""
    except DataError as error:
        if shared_rows:
            raise
        return None, str(error)


def _bootstrap(
    task: _Task, point: dict[Key, float], n_boot: int, n_jobs: int, progress: bool, random_state: int | None
) -> tuple[pd.DataFrame, int]:
    """Return the replicates that could be had, and how many were tried; an interrupt keeps those that are done."""
    found: list[dict[Key, float] | None] = []
    if n_boot:
        seeds = np.random.SeedSequence(random_state).spawn(n_boot)
        with threadpool_limits(1):
            work = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
                delayed(task.replicate)(seed) for seed in seeds
            )
            found = _collect(tqdm(work, desc="bootstrap", total=n_boot, disable=not progress, leave=False))
    rows = [[values[key] for key in point] for values in found if values is not None]
    columns = pd.MultiIndex.from_tuples(point) if point else None
    return pd.DataFrame(np.array(rows).reshape(len(rows), len(point)), columns=columns), len(found)


def _collect(work: Iterable[dict[Key, float] | None]) -> list[dict[Key, float] | None]:
    found = []
    try:
        for values in work:
            found.append(values)
    except KeyboardInterrupt:
        warnings.warn(
            f"Interrupted: intervals rest on the {len(found)} replicates that were done.", PyrofairWarning, stacklevel=4
        )
    return found


def _sizes(worlds: Worlds | None, n: int) -> dict[str, float]:
    """Return the effective sample size that each quantity rests on."""
    if worlds is None:
        return {}
    first, second = (world.effective_size for world in worlds)
    both = dict.fromkeys(("mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper"), min(first, second))
    return both | {"p_y0": first, "p_ypi": second}


QUANTITIES = (
    "accuracy",
    "positive_rate",
    "majority_rate",
    "p_y0",
    "p_ypi",
    "mean_unfair_effect",
    "piu_paper_bound",
    "piu_lower",
    "piu_upper",
)


def _table(
    point: dict[Key, float],
    notes: dict[Key, str],
    draws: pd.DataFrame,
    sizes: dict[str, float],
    level: float,
    task: _Task,
    failure: str,
) -> pd.DataFrame:
    rows = []
    plain = (task.weight == task.weight[0]).all()
    for name in task.names:
        for kind in DECISIONS:
            for quantity in QUANTITIES:
                key: Key = ("", name, kind, quantity)
                if kind == "score" and quantity in ("accuracy", "majority_rate"):
                    continue
                estimate = point.get(key, np.nan)
                note = notes.get(key, "")
                if np.isnan(estimate) and not note:
                    missing = f"df has no outcome column {task.sources[''].unfair.graph.outcome_column!r}"
                    note = f"cannot be made: {missing if quantity in ('accuracy', 'majority_rate') else failure}"
                low, high = _interval(draws, key, level)
                if quantity == "accuracy" and plain and task.outcome is not None:
                    n = len(task.outcome)
                    low, high = (1.0 - end for end in reversed(test_set_bound(round((1.0 - estimate) * n), n)))
                    note = "exact test-set bound, 5 % on each side"
                ess = sizes.get(quantity, float(len(task.table)))
                rows.append((name, kind, quantity, estimate, low, high, ess, note))
    columns = ["model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note"]
    return pd.DataFrame(rows, columns=columns)


def _interval(draws: pd.DataFrame, key: Key, level: float) -> tuple[float, float]:
    if draws.empty or key not in draws.columns or draws[key].isna().all():
        return np.nan, np.nan
    tail = (1.0 - level) / 2.0
    low, high = np.nanquantile(draws[key].to_numpy(), [tail, 1.0 - tail])
    return float(low), float(high)


def _groups(point: dict[Key, float], draws: pd.DataFrame, level: float) -> pd.DataFrame:
    """Compare the two groups' estimates of the same quantity."""
    columns = ["model", "decisions", "quantity", "group_0", "group_1", "difference", "lower", "upper", "agree"]
    rows = []
    for label, name, kind, quantity in point:
        other = ("group 1", name, kind, quantity)
        if label != "group 0" or other not in point:
            continue
        one = (label, name, kind, quantity)
        low = high = np.nan
        if not draws.empty:
            gaps = draws[other].to_numpy() - draws[one].to_numpy()
            low, high = np.nanquantile(gaps, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        agree = pd.NA if np.isnan(low) else bool(low <= 0.0 <= high)
        rows.append((name, kind, quantity, point[one], point[other], point[other] - point[one], low, high, agree))
    return pd.DataFrame(rows, columns=columns)
