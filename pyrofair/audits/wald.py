"""Estimates and Wald intervals of an audit's quantities, from the influence values of a source."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import shown
from pyrofair.audits.inputs import AuditedRows
from pyrofair.audits.models import AuditedModel
from pyrofair.audits.report import GROUPS, Measured, judged, rows_alike, sizes_of, tell_groups
from pyrofair.effects.estimates import (
    AUDITED,
    CAUSAL,
    Estimates,
    Key,
    draw_normal,
    joint_covariance,
    kish_size,
)
from pyrofair.effects.group_agreement import GROUP_COLUMNS, GROUP_QUANTITIES
from pyrofair.effects.influence import InfluenceBased, InfluenceValues
from pyrofair.effects.potential_outcomes import (
    FEWEST_ROWS,
    Bounding,
    CounterfactualSample,
    PotentialOutcomes,
    SeveralContrasts,
)
from pyrofair.effects.scoring import DECISIONS, Rule, decide
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.graph.paths import require_unfair

__all__ = [
    "Scores",
    "WaldEstimates",
    "compare_by_influence",
    "describe_doubts",
    "estimate_by_influence",
    "is_influence_based",
    "label_stages",
    "largest_z",
    "not_compared",
    "require_estimates",
    "stack_values",
]

Array = NDArray[np.float64]

LARGEST_Z = 3.0
"""A stage whose balance or correction is more standard errors away from 0 withholds the verdict (rows fitted on)."""
ROUNDING = 1e-9

WIDEST = 2.0
"""The limit of the diagnostics of new rows is at most so many times that of fitted ones."""
DOUBTS = {
    "mean_weight": "its weights leave out a part of that world, or count it twice: overlap fails or a propensity is "
    "wrong; coarsen its features",
    "balance": "its weights do not carry the rows to that world, so a propensity is wrong or overlap fails; try "
    "another model of it (propensity=)",
    "correction": "its regression is wrong, so the numbers depend on the weights alone; try another (regression=)",
}
"""What a stage's diagnostic beyond the limit means, and what to do."""


def is_influence_based(source: Any) -> bool:
    """Return whether a source, fitted or not, satisfies :class:`~pyrofair.effects.influence.InfluenceBased`."""
    names = [name for name in dir(InfluenceBased) if not name.startswith("_")]  # a property may ask for the fit
    return all(hasattr(type(source), name) or hasattr(source, name) for name in names)


def require_estimates(name: str, source: Any, *, each: bool = False) -> None:
    """Refuse what is no source of estimates of both marginals: bounds, several sources in one, and all else."""
    if isinstance(source, SeveralContrasts):
        raise DataError(
            f"{name}={shown(source)} holds several sources, and an audit has one. pf.audit_contrasts compares each "
            "level of the sensitive attribute with the baseline, and pf.audit_graphs audits in each of several graphs; "
            "or pass one of the sources."
        )
    if isinstance(source, Bounding):
        raise DataError(
            f"{name}={shown(source)} bounds the marginals, for the data do not identify them, and an audit reports "
            "estimates. Use source.fit(df).bounds(model): the ends of both marginals, of the mean unfair effect and of "
            "PIU, with level=0.95 moved outward by their sampling error; source.assumptions is what they depend on."
        )
    known = isinstance(source, PotentialOutcomes) or is_influence_based(source)
    if not known or not isinstance(source.unfair, UnfairPaths):
        raise DataError(
            f"{name}={shown(source)} is no source of potential outcomes; OneStep(unfair) is one, of the unfair paths "
            "that graph.unfair(...) makes."
        )
    require_unfair(f"{name}.unfair", source.unfair, each=each)


@dataclass(eq=False)
class Scores:
    """The decisions and scores of models for the rows of a sample, a column each, as a source asks for them.

    ``observed`` are the scores of the n audited rows by model, to which ``origin`` refers; a ``fresh`` source was
    fitted on these rows. ``rules`` are the decisions made of a score: DECISIONS, or thresholds. ``probe`` adds a last
    column of 0 and 1 by turns. ``error`` is the exception of a model that could not score.
    """

    models: Sequence[AuditedModel]
    observed: Mapping[str, NDArray[np.floating[Any]]]
    threshold: float
    fresh: bool = False
    probe: bool = False
    rules: tuple[Rule, ...] = DECISIONS
    error: BaseException | None = field(default=None, init=False)

    @property
    def columns(self) -> list[tuple[str, Rule]]:
        """The model and decisions of each column."""
        return [(model.name, rule) for model in self.models for rule in model.rules_of(self.rules)]

    def __call__(self, sample: CounterfactualSample) -> Array:
        """Return the scores of a sample's m rows, (m, Q)."""
        found: list[NDArray[Any]] = []
        try:
            for model in self.models:
                score = self._score(model, sample)
                found += [decide(score, rule, self.threshold) for rule in model.rules_of(self.rules)]
        except BaseException as error:
            self.error = error
            raise
        return np.column_stack([*found, np.arange(len(sample.rows)) % 2] if self.probe else found)

    def _score(self, model: AuditedModel, sample: CounterfactualSample) -> NDArray[np.floating[Any]]:
        foreign = not self.fresh and (sample.origin is None or not (sample.origin >= 0).any())
        if foreign and model.is_scores and len(sample.rows):
            raise DataError(
                f"{model.name!r} is given as scores of the rows of df, but the source asks for scores of rows that are "
                "none of these: those that it was fitted on, or rows in another world. Leave the source unfitted, so "
                "that it is fitted on these rows, or pass the model itself."
            )
        return model.world(sample, self.observed[model.name])


def stack_values(
    scores: Scores, outcome: NDArray[np.int8] | None, weight: Array, values: InfluenceValues | None, index: pd.Index
) -> pd.DataFrame:
    """Return one uncentred value per row and functional: columns (model, decisions, functional).

    ``outcome`` and ``weight`` are those of the n audited rows; without ``values`` there are no worlds. The values of a
    row whose outcome is missing (-1) are such that means are those of the others.
    """
    lost = np.zeros(len(weight), dtype=bool) if outcome is None else outcome < 0

    def among_known(each: Array) -> Array:
        if not lost.any():
            return each
        mean = np.average(each[~lost], weights=weight[~lost])
        return np.where(lost, mean, mean + (each - mean) * weight.sum() / weight[~lost].sum())

    columns: dict[tuple[str, Rule, str], Array] = {}
    for at, (name, decisions) in enumerate(scores.columns):
        decided = decide(scores.observed[name], decisions, scores.threshold)
        if values is not None:
            columns |= {(name, decisions, each): getattr(values, each)[:, at] for each in CAUSAL}
            decided = decided if values.decided is None else values.decided[:, at]
        columns[name, decisions, "positive"] = decided
        if outcome is not None and decisions != "score":
            columns[name, decisions, "correct"] = among_known(np.where(outcome == 1, decided, 1.0 - decided))
            columns[name, decisions, "outcome"] = among_known(outcome.astype(np.float64))
    labels = pd.MultiIndex.from_tuples(columns, names=["model", "decisions", "functional"])
    return pd.DataFrame(np.column_stack(list(columns.values())), index=index, columns=labels)


@dataclass(frozen=True, eq=False)
class WaldEstimates:
    """What an audit has of a source that hands over influence values.

    ``normal`` has the estimates, ``stages`` their diagnostics by model, decisions, world and stage, ``weights`` those
    that no classifier enters; ``failure`` is the reason why there are no worlds, ``few`` why there are too few groups,
    and ``alike`` the number of rows that accuracy is of, if they are independent and have one weight, else 0.
    """

    normal: Estimates
    stages: pd.DataFrame
    weights: pd.DataFrame
    failure: str
    regimes: tuple[str, ...]
    alike: int
    splits: int = 1
    few: str = ""

    def of_rules(self, rules: Sequence[Rule]) -> WaldEstimates:
        """Return those of some decisions."""
        of, stages = self.normal, self.stages
        columns = of.influence.columns.isin(rules, level="decisions")
        apart = None if of.apart is None else of.apart[:, :, columns]
        stages = stages[stages["decisions"].isin(rules)].reset_index(drop=True) if len(stages) else stages
        return replace(self, normal=replace(of, influence=of.influence.loc[:, columns], apart=apart), stages=stages)

    def describe_models(self) -> str:
        """Return what the estimates owe to the models that were learned: the split into folds, and their rows."""
        of = self.normal
        if self.failure or of.apart is None:
            return ""
        model = of.influence.columns[0][0]
        effect = of.of(Key(AUDITED, model, "threshold", "mean_unfair_effect"))
        labels: list[Any] = of.influence.columns.tolist()
        y0, ypi = (labels.index((model, "threshold", name)) for name in ("y0", "ypi"))
        moves = (of.weight / of.weight.sum()) @ (of.apart[:, :, ypi] - of.apart[:, :, y0]).T
        texts, s = [], self.splits if self.splits > 1 else 0
        if s:
            single = np.sqrt(moves[:s] @ moves[:s] * s / (s - 1.0))
            texts.append(
                f"The numbers are means of {s} splits into folds; a single split moves the unfair effect of "
                f"{model!r} by {single:.2g} (sd)."
            )
        if len(moves) > s:
            share = moves[s:] @ moves[s:] / effect.spread**2
            texts.append(
                f"Of the variance of the unfair effect of {model!r}, {share:.0%} is that of the models, which were "
                "learned from other rows (estimated from halves of these)."
            )
        return " ".join(texts)

    def measured(self, models: Sequence[AuditedModel], level: float) -> Measured:
        """Return what the tables of an audit are made of."""
        more = {"sizes": self.normal.sizes, "failure": self.failure, "small": self.small(), "few": self.few}
        return Measured.of(self.normal, level, models=models, alike=self.alike, **more)

    def small(self) -> dict[str, list[str]]:
        """Return for each model and world why it depends on too few effective rows for an interval, or empty texts."""
        units = "rows" if self.normal.groups is None else "groups"
        few = f"a stage of the world {{!r}} has the effective size {{:.1f}}, fewer than {FEWEST_ROWS} {units}"
        of = _smallest(self.normal.influence, self.normal.weight, self.stages, self.regimes, "units")
        return {
            model: [
                self.few or (few.format(regime, each) if each < FEWEST_ROWS else "")
                for regime, each in zip(self.regimes, size, strict=True)
            ]
            for model, size in of.items()
        }


def _smallest(
    influence: pd.DataFrame, weight: Array, stages: pd.DataFrame, regimes: Sequence[str], of: str = "ess"
) -> dict[str, tuple[float, float]]:
    """Return for each model the smallest effective size of the stages of either world, in rows (ess) or in units."""
    rows, found, of = kish_size(weight), {}, of if of in stages else "ess"
    least: Any = stages.groupby(["model", "regime"])[of].min().dropna() if len(stages) else {}
    for model in influence.columns.unique("model"):
        first, second = (float(least.get((model, regime), rows)) for regime in regimes)
        found[model] = (first, second)
    return found


def estimate_by_influence(
    asked: Sequence[tuple[Any, Scores]], rows: AuditedRows, *, fresh: bool, failure: str = ""
) -> WaldEstimates:
    """Return the estimates of all quantities of all models, by one call of each fitted source for its models.

    A ``fresh`` source was fitted on these n rows, and an error of it is raised; where it was fitted on others, what it
    refuses about these is the ``failure`` of the result, unless that is given. An error of a model is raised.
    """
    table, outcome, weight, clusters = rows.table, rows.outcome, rows.weight, rows.clusters
    given = (None, None) if fresh else (table, weight)
    more: dict[str, Any] = {} if fresh or clusters is None else {"groups": clusters.labels}
    weights, found = pd.DataFrame(), []
    for source, scores in asked if not failure else ():
        try:
            weights = source.stages(*given, **more) if weights.empty else weights
            found.append(source.influence(scores, *given, **more))
        except DataError as error:
            if fresh or error is scores.error:
                raise
            failure, found = str(error), []
            break
        _check_values(type(source).__name__, found[-1], (len(table), len(scores.columns)))
    pairs = [(scores, own) for (_, scores), own in zip(asked, found or [None] * len(asked), strict=True)]
    stacked = [stack_values(scores, outcome, weight, own, table.index) for scores, own in pairs]
    influence = pd.concat(stacked, axis="columns")
    labelled = [label_stages(own.stages, scores, weight) for scores, own in pairs if own is not None]
    stages = pd.concat(labelled, ignore_index=True) if labelled else pd.DataFrame()
    unfair, known = asked[0][0].unfair, judged(weight, outcome)
    names = tuple(regime.name for regime in unfair.regimes)
    of = _smallest(influence, weight, stages, names)
    sizes = {name: sizes_of(kish_size(weight), own, kish_size(known)) for name, own in of.items()}
    apart = _stack_moves(asked, found, influence.columns, len(table))
    code, arm = (None, None) if clusters is None else (clusters.code, clusters.arm)
    normal = Estimates(influence, weight, bool(unfair.shared), groups=code, arm=arm, sizes=sizes, apart=apart)
    splits = max((each.splits for each in found), default=1)
    few = "" if clusters is None else clusters.fewer()
    estimated = any(each.decided is not None for each in found)  # then what is right is no count of rows
    alike = rows_alike(known) if clusters is None and not estimated else 0
    return WaldEstimates(normal, stages, weights, failure, names, alike, splits, few)


def _stack_moves(
    asked: Sequence[tuple[Any, Scores]], found: Sequence[InfluenceValues], labels: pd.Index[Any], n: int
) -> Array | None:
    """Return by how much other models would move the values of each row and functional, (k, n, F)."""
    moves = [{} if own.apart is None else own.apart for own in found]
    k = max((len(each) for own in moves for each in own.values()), default=0)
    if not k:
        return None
    stacked, place = np.zeros((k, n, len(labels))), {label: at for at, label in enumerate(labels)}
    for (_, scores), own in zip(asked, moves, strict=True):
        for (at, columns), (name, values) in product(enumerate(scores.columns), own.items()):
            stacked[: len(values), :, place[(*columns, name)]] = values[:, :, at]
    return stacked


def _check_values(name: str, values: InfluenceValues, shape: tuple[int, int]) -> None:
    for each in CAUSAL:
        own = np.asarray(getattr(values, each))
        if own.shape != shape:
            raise DataError(
                f"{name} gave influence values {each} of shape {own.shape}; expected {shape}: a row for each audited "
                "row, and a column for each column of scores."
            )
        if lost := int((~np.isfinite(own)).sum()):
            raise DataError(f"{name} gave {lost} influence value(s) {each} that are not finite.")


def label_stages(stages: pd.DataFrame, scores: Scores, weight: Array) -> pd.DataFrame:
    """Return the diagnostics of the stages with the model and the decisions of each column of scores.

    Those of decisions that all but a few rows share do not count (``counts``): their residuals are skewed, and z is not
    normal.
    """
    if stages.empty:
        return pd.DataFrame()
    names = pd.DataFrame(scores.columns, columns=["model", "decisions"])
    names["counts"] = [_varies(scores, weight, *each) for each in scores.columns]
    labels = names.iloc[stages["column"].to_numpy(np.int64)].set_axis(stages.index)
    labelled = pd.concat([labels, stages.drop(columns="column")], axis="columns").reset_index(drop=True)
    return labelled[[*(name for name in labelled if name != "counts"), "counts"]]


def _varies(scores: Scores, weight: Array, model: str, decisions: Rule) -> bool:
    """Return whether the rarer of two decisions has enough effective rows."""
    if decisions == "score":
        return True
    decided = decide(scores.observed[model], decisions, scores.threshold)
    share = float(weight @ decided / weight.sum())
    return min(share, 1.0 - share) * kish_size(weight) >= FEWEST_ROWS


def largest_z(source: Any, table: pd.DataFrame, *, fresh: bool) -> float:
    """Return the limit of the diagnostics of stages: ``LARGEST_Z``, wider for rows that the source was not fitted on.

    Of such rows the error of the nuisance models, made of other rows, adds to that of the diagnostics, whose z does not
    count it: by the share of new rows among the fitted ones, if both errors are of one size. More than twice as wide it
    is never, so that many new rows cannot switch the diagnostics off.
    """
    if fresh or not hasattr(source, "fitted_rows"):
        return LARGEST_Z
    new = int((source.fitted_rows(table) < 0).sum())
    return float(LARGEST_Z * min(np.sqrt(1.0 + new / source.n_fitted_), WIDEST))


def describe_doubts(stages: pd.DataFrame, weights: pd.DataFrame, limit: float = LARGEST_Z) -> dict[str, str]:
    """Return for each model why its numbers are in doubt by the diagnostics of its worst stage, if they are."""
    found: dict[str, str] = {}
    if stages.empty:
        return found
    unusable = weights[weights["problem"] != ""].head(1) if "problem" in weights else weights.iloc[:0]
    shared = [
        f"at the stage {each['nodes']} of the {each['regime']} world {each['problem']}: the two groups overlap too "
        "little there; coarsen its features, or leave the choice of the form to form='auto'"
        for each in unusable.to_dict("records")
    ]
    for model, own in stages.groupby("model", sort=False):
        counted, texts = own[own["counts"]].to_dict("records"), []
        for diagnostic, meaning in DOUBTS.items() if counted else ():
            worst = max(counted, key=lambda each: abs(each[f"{diagnostic}_z"]))
            if abs(z := worst[f"{diagnostic}_z"]) > limit:
                texts.append(
                    f"at the stage {worst['nodes']} of the {worst['regime']} world its {diagnostic.replace('_', ' ')} "
                    f"is {z:+.1f} standard errors from {int(diagnostic == 'mean_weight')} (beyond {limit:.2g}): "
                    f"{meaning}"
                )
        if texts or shared:
            found[str(model)] = "; ".join([*texts, *shared])
    return found


def not_compared(group: str, error: Exception) -> str:
    """Return the warning that a group is not compared with the other one."""
    return (
        f"The audited rows of {group} cannot be weighted alone, so the groups are not compared: {error} Audit more "
        "rows of it, or read the estimates without the comparison."
    )


def compare_by_influence(
    source: InfluenceBased, scores: Scores, rows: AuditedRows, *, fresh: bool, level: float, random_state: int | None
) -> pd.DataFrame:
    """Return an audit's table of groups: one test by draws from a joint normal distribution; empty if there is none."""
    table, weight, clusters = rows.table, rows.weight, rows.clusters
    asked = replace(scores, models=[model for model in scores.models if not model.is_scores], probe=True)
    try:
        values = source.by_group(asked, *((None, None) if fresh else (table, weight))) if asked.models else {}
    except DataError as error:
        if error is asked.error:
            raise
        warnings.warn(not_compared("a group", error), PyrofairWarning, stacklevel=2)
        values = {}
    if len(values) < len(GROUPS):
        return pd.DataFrame(columns=["model", "decisions", *GROUP_COLUMNS])
    share = weight / weight.sum()
    worlds = [tuple(_probed(each[:, -1], share, table) for each in values[group]) for group in GROUPS]
    own: dict[str, Any] = {} if clusters is None else {"groups": clusters.code, "arm": clusters.arm}
    zero, one = (Estimates(_by_world(values[group], asked, table.index), weight, **own) for group in GROUPS)
    apart = Estimates(one.influence - zero.influence, weight, **own)
    keys = [Key(AUDITED, *pair, quantity) for pair in asked.columns for quantity in GROUP_QUANTITIES]
    gaps = [apart.of(key) for key in keys]
    compared = [(key, zero.of(key).value, one.of(key).value, gap) for key, gap in zip(keys, gaps, strict=True)]
    drawn = draw_normal(np.zeros(len(gaps)), joint_covariance(gaps), random_state)
    return tell_groups(compared, worlds, level, [*drawn.T])


def _by_world(values: Sequence[Array], scores: Scores, index: pd.Index) -> pd.DataFrame:
    """Return the influence values of both worlds, (n, Q) each and of a probe, as columns of functionals."""
    named = {
        (*pair, name): each[:, i]
        for name, each in zip(("y0", "ypi"), values, strict=True)
        for i, pair in enumerate(scores.columns)
    }
    labels = pd.MultiIndex.from_tuples(named, names=["model", "decisions", "functional"])
    return pd.DataFrame(np.column_stack(list(named.values())), index=index, columns=labels)


def _probed(values: Array, share: Array, table: pd.DataFrame) -> CounterfactualSample:
    """Return the rows of a group with their weights, from the influence values of scores of 0 and 1.

    Of a row with score s and weight w the value is m + n w (s - m), with m the mean, so that its sign has s.
    """
    mean = float(share @ values)
    off = values - mean
    weight = np.zeros(len(values))
    np.divide(off, 1.0 - mean, out=weight, where=off > ROUNDING)
    np.divide(-off, mean, out=weight, where=off < -ROUNDING)
    weight *= share
    kept = np.flatnonzero(weight > ROUNDING * weight.max(initial=0.0))
    return CounterfactualSample(table.iloc[kept], weight[kept])
