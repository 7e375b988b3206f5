"""Audits of a sensitive attribute of several levels: each against the baseline, with simultaneous intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from pyrofair._random import seed_from
from pyrofair._validation import require_integer, require_real, require_seed, shown
from pyrofair.audits.audit import Audit, audit
from pyrofair.audits.models import ScoresAre
from pyrofair.audits.wald import is_influence_based, require_estimates
from pyrofair.effects.bounds import test_set_bound
from pyrofair.effects.estimates import AUDITED, Estimates, Key, absolute_interval, reach_of_all
from pyrofair.effects.influence import InfluenceBased
from pyrofair.effects.potential_outcomes import FEWEST_ROWS, PotentialOutcomes, SeveralContrasts
from pyrofair.effects.scoring import DECISIONS
from pyrofair.exceptions import DataError, PositivityError, PyrofairWarning
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.tables.labels import read_contrasts
from pyrofair.tables.reading import as_pandas, feature_columns, read_table, read_weight, warn_unused

__all__ = ["ContrastAudit", "audit_contrasts", "require_unfitted"]

WORST_OF = ("mean_unfair_effect", "piu_lower", "piu_upper", "piu_paper_bound")
COLUMNS = ["contrast", "model", "decisions", "quantity", "estimate", "lower", "upper", "n", "ess", "note"]
REPLICATES_BEYOND = 5
"""The replicates beyond each end of an interval that 200 have at 95 %; with fewer, ends are unstable."""
TEST_SET = 0.05
"""The probability on each side that the exact test-set bound of accuracy fails."""
MAX_T, BONFERRONI = "max |t|", "Bonferroni"


@dataclass(frozen=True, eq=False, repr=False)
class ContrastAudit:
    """The result of :func:`audit_contrasts`; print it for a reading in plain text.

    Attributes
    ----------
    table : DataFrame
        For each contrast, model, decisions and quantity: estimate; lower and upper, which hold at once for all
        contrasts of one model and quantity; n, the rows of the two levels, the population that the contrast refers to;
        ess and note. A contrast that could not be audited is NaN in it, with the reason.
    worst : DataFrame
        For each model, decisions and effect or bound: the contrast of the largest absolute value, this (``size``),
        and the interval of the largest absolute value of all contrasts.
    audits : dict
        The audit of each contrast by itself, whose intervals hold for one contrast alone where ``intervals`` is
        ``"max |t|"``, and are Bonferroni's otherwise.
    intervals : str
        ``"max |t|"``, of the joint normal distribution of the estimates, or ``"Bonferroni"``.
    failures : dict
        Why a contrast could not be audited.
    context : dict
        Rows, level, graph, the rows of each level, warnings.
    """

    table: pd.DataFrame
    worst: pd.DataFrame
    audits: Mapping[Any, Audit]
    intervals: str
    failures: Mapping[Any, str] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return _describe(self)

    def __repr__(self) -> str:
        listed = ", ".join(map(repr, (*self.audits, *self.failures)))
        return f"<Audit of the contrasts {listed} on {self.context['rows']:,} rows; print it for a reading>"


def audit_contrasts(
    models: Mapping[str, Any],
    source: UnfairPaths | PotentialOutcomes | InfluenceBased,
    df: pd.DataFrame,
    *,
    contrasts: Sequence[Hashable] | None = None,
    n_boot: int = 200,
    level: float = 0.95,
    threshold: float = 0.5,
    sample_weight: npt.ArrayLike | None = None,
    scores: ScoresAre = "auto",
    n_jobs: int = -1,
    progress: bool = True,
    random_state: int | np.random.Generator | None = None,
) -> ContrastAudit:
    """Audit models for each level of the sensitive attribute against the baseline, with simultaneous intervals.

    A contrast is :func:`pyrofair.audit` on the rows of its two levels, which are the population that its numbers refer
    to; rows of other levels are left out of it. For each model and quantity the intervals hold at once for all
    contrasts. With influence values these come from the joint normal distribution of the estimates, correlated by the
    rows of the baseline, which all contrasts share (the quantile of the largest abs(t)); with another source each has
    the level that Bonferroni's inequality asks for. With one contrast the numbers are those of :func:`pyrofair.audit`.

    Parameters
    ----------
    models
        As for :func:`pyrofair.audit`; given scores are those of all rows of ``df``.
    source
        The unfair paths, whose graph has the baseline (its ``contrast`` is not used), for one-step estimates; or an
        unfitted source, which is cloned and fitted for each contrast.
    df
        n rows with the graph's columns.
    contrasts
        The levels that are compared with the baseline; by default all that are observed.
    level
        The level at which the intervals of all contrasts hold at once. Accuracy has exact test-set bounds, 5 % on each
        side over the number of contrasts asked for, those that cannot be made included, as Bonferroni's intervals are.
    n_boot
        As for :func:`pyrofair.audit`. Of a source without influence values and k > 1 contrasts, (1 - level) / (2 k) of
        the replicates lie beyond each end: at 95 % and k = 4, 800 are needed for 5. Fewer are warned of, and refused
        below 1.
    threshold, sample_weight, scores, n_jobs, progress, random_state
        As for :func:`pyrofair.audit`.

    Returns
    -------
    ContrastAudit
        A level that cannot be compared, because it has fewer than 10 rows or does not overlap with the baseline, is
        noted with its reason, and the others go on.

    Raises
    ------
    DataError
        If a setting, a model or the table is unfit; if the sensitive attribute is continuous or has more than 20
        levels; if no contrast can be audited.
    NotIdentifiedError
        If the effect is not identified.

    Warns
    -----
    PyrofairWarning
        Of each contrast that could not be audited, of few replicates, and what the audits warn of, with the contrast.

    References
    ----------
    Hothorn, Bretz and Westfall (2008), for simultaneous intervals by the largest abs(t).

    Examples
    --------
    >>> graph = CausalGraph(
    ...     "race -> M -> Y; race -> Y", sensitive="race", outcome="Y", baseline="white", contrast="black"
    ... )
    >>> rng = np.random.default_rng(0)
    >>> race = rng.choice(["white", "black", "asian"], 900, p=[0.5, 0.3, 0.2])
    >>> df = pd.DataFrame({"race": race, "M": (rng.random(900) < 0.3 + 0.4 * (race == "black")).astype(int)})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.3 + 0.2 * X["M"] - 0.1 * (X["race"] == "asian")
    ...         return np.column_stack([1 - p, p])
    >>> report = audit_contrasts({"model": Model()}, graph.unfair("race -> M -> Y"), df, random_state=0)
    >>> report.worst.query("decisions == 'score' and quantity == 'mean_unfair_effect'")["contrast"].item()
    'black'
    """
    require_seed(random_state)
    seed = None if random_state is None else seed_from(random_state)
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    require_unfitted(source, "contrast")
    unfair: UnfairPaths = source if isinstance(source, UnfairPaths) else source.unfair
    graph = unfair.graph
    df = as_pandas(df)
    table = read_table(df, feature_columns(graph), what="df")
    warn_unused(df, graph)
    values = table[graph.sensitive_column]
    levels = read_contrasts(values, graph, contrasts)
    weight = read_weight(sample_weight, table)
    joint = isinstance(source, UnfairPaths) or is_influence_based(source)
    require_integer("n_boot", n_boot, least=0)
    few_replicates = "" if joint else _few_replicates(n_boot, level, len(levels))
    settings: dict[str, Any] = {
        "n_boot": n_boot,
        "level": level if joint else 1.0 - (1.0 - level) / len(levels),
        "threshold": threshold,
        "scores": scores,
        "n_jobs": n_jobs,
        "progress": progress,
        "random_state": seed,
    }
    known = [name for name in df.columns if name in (*table.columns, graph.outcome_column)]
    if few_replicates:
        warnings.warn(few_replicates, PyrofairWarning, stacklevel=2)
    found: dict[Any, Audit] = {}
    failures: dict[Any, str] = {}
    errors: list[Exception] = []
    said: dict[str, tuple[type[Warning], list[Any]]] = {}
    rows = {each: np.flatnonzero(np.asarray((values == each) | (values == graph.baseline))) for each in levels}
    sizes = {each: int(np.asarray(values == each).sum()) for each in (graph.baseline, *levels)}
    for each in levels:
        if few := _few_rows(weight, values, (each, graph.baseline), graph):
            failures[each] = few
            continue
        at = rows[each]
        own = _on_rows(models, at, len(table))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                one = _with_contrast(source, each)
                found[each] = audit(own, one, df[known].iloc[at], sample_weight=weight[at], **settings)
            except (DataError, PositivityError) as error:
                failures[each] = str(error)
                errors.append(error)
        for warning in caught:
            said.setdefault(str(warning.message), (warning.category, []))[1].append(each)
    if not found:
        if errors:
            raise errors[0]
        raise DataError(f"No level can be compared with the baseline. {'; '.join(failures.values())}.")
    warned = [*filter(None, [few_replicates]), *_rewarn(said, found, failures, graph)]
    context = {
        "rows": len(table),
        "level": level,
        "threshold": threshold,
        "graph": graph,
        "unfair": unfair,
        "sizes": sizes,
        "warnings": warned,
    }
    joined = _join(found, failures, rows, level, joint=joint)
    return ContrastAudit(joined, _worst(joined), found, MAX_T if joint else BONFERRONI, failures, context)


def _on_rows(models: Any, at: NDArray[np.int64], n: int) -> Any:
    """Return models, with given scores (n,) those of some rows; the audit refuses what is no dictionary."""
    return (
        {name: _scores_of(name, each, at, n) for name, each in models.items()}
        if isinstance(models, Mapping)
        else models
    )


def require_unfitted(source: Any, each: str) -> None:
    """Refuse what cannot be cloned for each contrast, or graph: no paths, and no unfitted source of estimates."""
    if isinstance(source, UnfairPaths):
        return
    if isinstance(source, SeveralContrasts):
        raise DataError(
            f"source={shown(source)} is for training. Audit with its paths, audit_{each}s(models, unfair, df), or "
            "with an unfitted source, IPW(unfair)."
        )
    require_estimates("source", source)
    known = isinstance(source, PotentialOutcomes) or is_influence_based(source)
    if not known or not isinstance(source, BaseEstimator) or not isinstance(source.unfair, UnfairPaths):
        raise DataError(
            f"source={shown(source)} must be unfair paths, made by graph.unfair(...), or an unfitted source of these, "
            "such as OneStep(unfair)."
        )
    try:
        check_is_fitted(source)
    except NotFittedError:
        return
    raise DataError(
        f"source={shown(source)} is fitted or needs no fit, so that it belongs to one {each}. Pass an unfitted one, "
        f"which is cloned for each {each}, or the unfair paths."
    )


def _few_replicates(n_boot: int, level: float, k: int) -> str:
    """Return a warning where few of the replicates lie beyond each end of intervals of Bonferroni's level.

    With one or fewer in expectation the ends are the extreme replicates, whatever the level, which is refused.
    """
    tail = (1.0 - level) / (2.0 * k)
    if k == 1 or n_boot < 2 or n_boot * tail >= REPLICATES_BEYOND * (1.0 - 1e-9):
        return ""
    needed = math.ceil(REPLICATES_BEYOND / tail * (1.0 - 1e-9))
    text = (
        f"Bonferroni's intervals of {k} contrasts at {level:.0%} leave {tail:.2%} beyond each end, where "
        f"{n_boot * tail:.1f} of {n_boot:,} replicates lie"
    )
    remedy = f"Use n_boot={needed}, of which {REPLICATES_BEYOND} do, or fewer contrasts, or OneStep, which needs none."
    if n_boot * tail < 1.0 - 1e-9:
        raise DataError(f"{text}: no replicate is as far out as the ends should be. {remedy}")
    return f"{text}: the ends are unstable, and tend to be too near. {remedy}"


def _with_contrast(source: Any, contrast: Any) -> Any:
    if isinstance(source, UnfairPaths):
        return source.with_contrast(contrast)
    return clone(source).set_params(unfair=source.unfair.with_contrast(contrast))


def _few_rows(
    weight: NDArray[np.float64],
    values: pd.Series[Any],
    levels: Sequence[Any],
    graph: CausalGraph,
) -> str:
    """Return which of two levels has too few rows of a weight, or an empty string."""
    for each in levels:
        own = int((np.asarray(values == each) & (weight > 0.0)).sum())
        if own < FEWEST_ROWS:
            return f"{own} row(s) have {graph.sensitive_column}={each!r}, fewer than {FEWEST_ROWS}"
    return ""


def _scores_of(name: str, model: Any, at: NDArray[np.int64], n: int) -> Any:
    """Return a model, or given scores (n,) of some rows; refuse scores that are not of all rows, one for each."""
    if not isinstance(model, pd.Series | np.ndarray | list | tuple):
        return model
    scores = model if isinstance(model, pd.Series | np.ndarray) else np.asarray(model)
    if scores.shape != (n,):
        raise DataError(
            f"{name!r} is given as scores of shape {scores.shape}; expected {(n,)}, one for each row, those of levels "
            "without a contrast included: of predict_proba, pass the column of the positive class."
        )
    return scores.iloc[at] if isinstance(scores, pd.Series) else scores[at]


def _rewarn(
    said: Mapping[str, tuple[type[Warning], list[Any]]],
    found: Mapping[Any, Audit],
    failures: Mapping[Any, str],
    graph: CausalGraph,
) -> list[str]:
    """Warn of what the audits warned of, and name the contrasts unless it was all of them; return the texts."""
    texts = []
    for text, (category, contrasts) in said.items():
        whose = list(dict.fromkeys(contrasts))
        every = len(whose) == len(found) and not failures
        shown_text = text if every else f"{', '.join(map(repr, whose))} against {graph.baseline!r}: {text}"
        warnings.warn(shown_text, category, stacklevel=3)
        if issubclass(category, PyrofairWarning):
            texts.append(shown_text)
    for contrast, reason in failures.items():
        text = f"The contrast {contrast!r} could not be audited: {reason}"
        warnings.warn(text, PyrofairWarning, stacklevel=3)
        texts.append(text)
    return texts


def _join(
    found: Mapping[Any, Audit],
    failures: Mapping[Any, str],
    rows: Mapping[Any, NDArray[np.int64]],
    level: float,
    *,
    joint: bool,
) -> pd.DataFrame:
    """Return the tables of all contrasts, with intervals that hold at once."""
    estimates: dict[Any, Estimates] = {}
    for contrast, each in found.items():
        if own := each.context.estimates(each.influence, rows[contrast]):
            estimates[contrast] = own
    parts = []
    for contrast, at in rows.items():
        if contrast in failures:
            first = next(iter(found.values())).table
            part = first[["model", "decisions", "quantity"]].assign(
                estimate=np.nan, lower=np.nan, upper=np.nan, ess=np.nan, note=f"cannot be made: {failures[contrast]}"
            )
        else:
            part = found[contrast].table.copy()
        parts.append(part.assign(contrast=contrast, n=len(at)))
    table = pd.concat(parts, ignore_index=True)[COLUMNS]
    # The contrasts of a model and quantity side by side, whatever the order of the audits.
    reach: dict[Key, float] = {}
    for i, row in enumerate(table.to_dict("records")):
        contrast = row["contrast"]
        if contrast in failures:
            continue
        if "test-set" in row["note"]:
            k = len(rows)
            size = len(rows[contrast])
            wrong = test_set_bound(round((1.0 - row["estimate"]) * size), size, TEST_SET / k)
            low, high = 1.0 - wrong[1], 1.0 - wrong[0]
            table.loc[i, ["lower", "upper"]] = low, high
            if k > 1:
                table.loc[i, "note"] = row["note"].replace("5 % on each side", f"5 % / {k} on each side")
        elif joint and np.isfinite(row["lower"]):
            key = Key(AUDITED, row["model"], row["decisions"], row["quantity"])
            if key not in reach:
                reach[key] = reach_of_all([each.of(key) for each in estimates.values() if key in each.keys], level)
            table.loc[i, ["lower", "upper"]] = estimates[contrast].of(key).interval(level, reach[key])
    return table


def _worst(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each model, decisions and effect or bound the contrast of the largest absolute value."""
    rows = []
    for (model, decisions, quantity), own in table.groupby(["model", "decisions", "quantity"], sort=False):
        if quantity not in WORST_OF or own["estimate"].isna().all():
            continue
        ends = [
            absolute_interval(low, high)
            for low, high in zip(own["lower"], own["upper"], strict=True)
            if np.isfinite([low, high]).all()
        ]
        known = len(ends) == int(own["estimate"].notna().sum())
        low, high = (max(each) for each in zip(*ends, strict=True)) if known and ends else (np.nan, np.nan)
        size = own["estimate"].abs().to_numpy()
        at = int(np.nanargmax(size))
        rows.append((model, decisions, quantity, own["contrast"].iloc[at], float(size[at]), low, high))
    return pd.DataFrame(rows, columns=["model", "decisions", "quantity", "contrast", "size", "lower", "upper"])


def _describe(report: ContrastAudit) -> str:
    """Return an audit of contrasts as text."""
    context, table = report.context, report.table
    graph, sizes = context["graph"], context["sizes"]
    column, baseline = graph.sensitive_column, graph.baseline
    how = (
        "the largest |t| of their joint normal distribution" if report.intervals == MAX_T else "Bonferroni's inequality"
    )
    lines = [
        f"Audit of {table['model'].nunique()} model(s) on {context['rows']:,} rows: {table['contrast'].nunique()} "
        f"contrast(s) of {column!r} with the baseline {baseline!r} ({sizes[baseline]:,} rows).",
        f"{context['level']:.0%} intervals that hold at once for all contrasts of a model and quantity, by {how}.",
        "A contrast refers to the population of its two levels together; rows of other levels are left out of it.",
        f"Yes is {graph.outcome_column!r} = {graph.positive!r}; a decision is yes where the score exceeds "
        f"{context['threshold']:g}.",
        *str(context["unfair"]).splitlines(),
    ]
    for model, of_model in table.groupby("model", sort=False):
        lines += ["", str(model)]
        for decisions in DECISIONS:
            own = of_model[of_model["decisions"] == decisions]
            if own.empty:
                continue
            lines.append(f"  {'decisions' if decisions == 'threshold' else 'scores'}:")
            for contrast, each in own.groupby("contrast", sort=False):
                lines.append(f"    {contrast!r} ({sizes[contrast]:,} rows): {_row(each.set_index('quantity'))}")
            worst = report.worst
            named = worst[(worst["model"] == model) & (worst["decisions"] == decisions)]
            for row in named[named["quantity"].isin(("mean_unfair_effect", "piu_upper"))].itertuples():
                what = "mean unfair effect" if row.quantity == "mean_unfair_effect" else "upper end of PIU"
                every = "all audited contrasts" if report.failures else "all contrasts"
                ends = f"; the largest of {every} is in [{row.lower:.3f}, {row.upper:.3f}]"
                named_ends = ends if np.isfinite(float(str(row.lower))) else ""
                lines.append(f"    worst {what}: {row.contrast!r}, {row.size:.3f} in size{named_ends}")
    assumptions = dict.fromkeys(text for each in report.audits.values() for text in each.context.assumptions)
    lines += ["", "These numbers rest on, for the two levels of each contrast:"]
    lines += [f"  {i}. {text}" for i, text in enumerate(assumptions, 1)] or ["  (the source states none)"]
    for contrast, single in report.audits.items():
        doubts = single.context.doubts
        lines += [f"In doubt, {contrast!r}, {model}: {text}." for model, text in doubts.items()]
    return "\n".join([*lines, *(f"Warning: {text}" for text in context["warnings"])])


def _digits(value: float) -> str:
    """Return a number to three digits, never as -0.000."""
    return f"{round(value, 3) + 0.0:.3f}"


def _row(rows: pd.DataFrame) -> str:
    """Return the effect and the interval of PIU of one contrast, or why they are not available."""
    effect, low, high = (rows.loc[[each]].iloc[0] for each in ("mean_unfair_effect", "piu_lower", "piu_upper"))
    if np.isnan(effect["estimate"]):
        return str(effect["note"] or "cannot be made")

    def span(row: pd.Series[Any]) -> str:
        ends = "" if np.isnan(row["lower"]) else f" [{_digits(row['lower'])}, {_digits(row['upper'])}]"
        return f"{_digits(row['estimate'])}{ends}"

    note = f" ({effect['note']})" if effect["note"] else ""
    return f"mean unfair effect {span(effect)}, PIU at least {span(low)}, at most {span(high)}{note}"
