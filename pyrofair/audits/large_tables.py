"""Audits of rows in batches: every quantity, and all bootstrap replicates at once, from sums over batches."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._random import EXPONENTIALS, KeyedWeights, seed_from
from pyrofair._validation import shown
from pyrofair.audits.bootstrap import AUDITED, GROUPED, Estimator, Key, Replicates, measure
from pyrofair.audits.models import AuditedModel, ScoresAre, judge_scores
from pyrofair.effects.potential_outcomes import CounterfactualSample, KishSums
from pyrofair.effects.scoring import DECISIONS, decide
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import CausalGraph
from pyrofair.tables.batches import Batches, add_sums, batch_weight
from pyrofair.tables.labels import read_outcome, read_sensitive, show_labels
from pyrofair.tables.reading import feature_columns, read_table

__all__ = ["BatchAudit", "audit_batches"]

Label = tuple[str, int]
"""The label of a source and one of its two worlds."""


@dataclass(frozen=True)
class WorldSize:
    """What comparisons read of a world whose rows are not held: how many carry its weights, and how well."""

    rows: range
    effective_size: float
    mean_weight: float
    unit: None = None

    @property
    def units(self) -> int:
        """The number of rows."""
        return len(self.rows)


@dataclass(frozen=True)
class BatchAudit:
    """The estimates of an audit and its replicates, with what its tables need in place of rows."""

    estimator: Estimator
    point: dict[Key, float]
    notes: dict[Key, str]
    replicates: Replicates
    worlds: Mapping[str, Any]
    sizes: dict[str, float]
    rows: int
    failure: str
    fresh_rows: bool


@dataclass(frozen=True)
class _Sums:
    """The sums of some rows in the fit and in B replicates, first axis 1 + B.

    ``observed`` (1 + B, 3 M + 2) holds the weights, those of the positive outcome, and for M models those of right
    decisions, decisions and scores; ``worlds`` (1 + B, 1 + 2 M) for each world the weights, decisions and scores.
    """

    rows: int
    both: NDArray[np.float64]
    observed: NDArray[np.float64]
    kish: KishSums
    outcomes: dict[Any, float]
    worlds: dict[Label, NDArray[np.float64]]
    world_sizes: dict[Label, tuple[int, KishSums]]

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(*(add_sums(getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class _AuditPass:
    """The sums of one frame; models are called once for its rows, and once for those that a world changes."""

    models: tuple[AuditedModel, ...]
    graph: CausalGraph
    weighting: Any
    keys: KeyedWeights
    weight: str | None
    has_outcome: bool
    threshold: float

    def __call__(self, frame: pd.DataFrame) -> _Sums:
        table = read_table(frame, feature_columns(self.graph), what="The batches")
        a = read_sensitive(table, self.graph, both=False)
        s = batch_weight(frame, self.weight)
        outcome, outcomes = self._outcome(frame, s)
        observed = [model.observed(table) for model in self.models]
        right = [decide(each, "threshold", self.threshold) == outcome for each in observed]
        seen = np.column_stack([np.ones(len(s)), outcome, *right, *self._decided(observed)])
        size = 1 + self.keys.replicates
        sums = np.zeros((size, seen.shape[1]))
        worlds: dict[Label, NDArray[np.float64]] = {}
        sizes: dict[Label, tuple[int, KishSums]] = {}
        changed: dict[int, list[NDArray[np.float64]]] = {}
        first = int(frame.index[0])
        start = 0
        while start < len(frame):
            stop = min(start + EXPONENTIALS - (first + start) % EXPONENTIALS, len(frame))
            at = slice(start, stop)
            drawn = self.keys.of(first + start, first + stop) * s[at, None]
            sums += drawn.T @ seen[at]
            for label, w in self.weighting.weights(table.iloc[at]).items():
                arm = self.weighting.arm(*label)
                if arm is not None and (w.any(axis=1) & (a[at] != arm)).any() and arm not in changed:
                    changed[arm] = self._changed(table, a, arm, observed)
                scores = observed if arm is None or arm not in changed else changed[arm]
                decided = np.column_stack([np.ones(stop - start), *self._decided([each[at] for each in scores])])
                worlds[label] = add_sums(worlds.get(label), (drawn * w).T @ decided)
                carried = (int((w[:, 0] > 0.0).sum()), KishSums.of(s[at] * w[:, 0]))
                sizes[label] = add_sums(sizes.get(label), carried)
            start = stop
        both = np.array([(s * (a == value)).sum() for value in (0, 1)])
        return _Sums(len(s), both, sums, KishSums.of(s), outcomes, worlds, sizes)

    def _outcome(self, frame: pd.DataFrame, s: NDArray[np.float64]) -> tuple[NDArray[np.float64], dict[Any, float]]:
        """Return whether each row has the positive outcome, and the weight of each label."""
        if not self.has_outcome:
            return np.full(len(frame), np.nan), {}
        values = read_table(frame, [self.graph.outcome_column], what="The batches")[self.graph.outcome_column]
        weights = pd.Series(s, index=values.index).groupby(values, observed=True).sum()
        positive = np.asarray(values == self.graph.positive, dtype=np.float64)
        return positive, {label: float(each) for label, each in weights.items()}

    def _decided(self, scores: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        return [decide(each, decisions, self.threshold) for decisions in DECISIONS for each in scores]

    def _changed(
        self, table: pd.DataFrame, a: NDArray[np.int8], arm: int, observed: list[NDArray[np.float64]]
    ) -> list[NDArray[np.float64]]:
        """Return the scores of all rows with the sensitive attribute at an arm; unchanged rows keep theirs."""
        other = np.flatnonzero(a != arm)
        rows = self.weighting.read_in(table.iloc[other], arm)
        sample = CounterfactualSample(rows, np.ones(len(other)))
        found = []
        for model, own in zip(self.models, observed, strict=True):
            scores = own.copy()
            scores[other] = model.world(sample, own)
            found.append(scores)
        return found


def audit_batches(
    models: Mapping[str, Any],
    source: Any,
    batches: Batches,
    *,
    n_boot: int,
    threshold: float,
    weight: str | None,
    scores: ScoresAre,
    random_state: int | None,
) -> BatchAudit:
    """Estimate every quantity of every model on rows in batches, with replicates, by a fitted source.

    One pass over the audited rows makes all sums; replicates of the propensities take some passes over the rows that
    the source was fitted on.
    """
    graph: CausalGraph = source.unfair.graph
    wanted = [*feature_columns(graph), *([weight] if weight else [])]
    has_outcome = graph.outcome_column in batches.columns
    own = batches.select([*wanted, *([graph.outcome_column] if has_outcome else [])])
    order = tuple(column for column in batches.columns if column in graph.input_columns)
    audited = tuple(AuditedModel(name, model, graph, order) for name, model in models.items())
    _check_models(audited, own, scores)
    same = source.is_fitted_on(batches)
    keys = KeyedWeights(seed_from(random_state), n_boot)
    weighting = source.replicate_weights(keys)
    theirs = keys if same else KeyedWeights(keys.seed, n_boot, source.n_fitted_)
    work = _AuditPass(audited, graph, weighting, theirs, weight, has_outcome, threshold)
    sums = own.total(work)
    labels = _outcome_labels(sums.outcomes, graph)
    if labels:
        warnings.warn(labels, PyrofairWarning, stacklevel=2)
    return _estimates(audited, source, sums, weighting, has_outcome, threshold, n_boot, same)


def _check_models(models: Sequence[AuditedModel], batches: Batches, scores: ScoresAre) -> None:
    """Refuse what is no function of the features, as far as the first rows show."""
    if scores == "outcome":
        raise DataError("scores='outcome' needs the scores of all rows in memory; audit a DataFrame.")
    given = [model.name for model in models if model.is_scores]
    if given:
        raise DataError(
            f"{', '.join(map(repr, given))} is given as {shown(models[0].model)}; on batches give fitted models with "
            "predict_proba, which score batch by batch."
        )
    first = next(iter(batches))
    table = read_table(first, feature_columns(models[0].graph), what="The batches")
    for model in models:
        judged = judge_scores(model, table, model.observed(table), scores)
        if judged.is_outcome:
            raise DataError(
                f"{model.name!r} is no function of the features: {judged.why}. Audits of batches take models that are; "
                "audit a DataFrame."
            )


def _outcome_labels(weights: Mapping[Any, float], graph: CausalGraph) -> str:
    """Refuse a third label, and return a warning if there is but one."""
    held = [label for label, weight in weights.items()]
    if len(held) > 2 or (len(held) == 2 and graph.positive not in held):
        read_outcome(pd.Series(held), graph.positive, what=f"The outcome {graph.outcome_column!r}")
    if len(held) == 1:
        return (
            f"The outcome {graph.outcome_column!r} of the batches is always {show_labels(held)}: accuracy is that of "
            "one class."
        )
    return ""


def _estimates(
    audited: tuple[AuditedModel, ...],
    source: Any,
    sums: _Sums,
    weighting: Any,
    has_outcome: bool,
    threshold: float,
    n_boot: int,
    same: bool,
) -> BatchAudit:
    """Return the estimates and replicates that the sums of all rows make."""
    graph: CausalGraph = source.unfair.graph
    absent = [value for value in (0, 1) if not sums.both[value] > 0.0]
    failure = ""
    if absent:
        failure = (
            f"The batches have no row with {graph.sensitive_column}={graph.label(absent[0])!r}; both groups are needed"
        )
    labels = () if absent else tuple(dict.fromkeys(label for label, _ in sums.worlds))
    worlds = {label: ((_world_size(sums, label, 0), _world_size(sums, label, 1)),) for label in labels}
    estimator = Estimator(
        models=audited,
        observed={},
        table=pd.DataFrame(),
        outcome=np.empty(0, dtype=np.int8) if has_outcome else None,
        # Only whether all weights are equal, and their number, is asked for.
        weight=np.broadcast_to(1.0, (sums.rows,)) if _are_equal(sums) else np.array([1.0, 2.0]),
        threshold=threshold,
        sources=dict.fromkeys(labels, source),
        worlds=worlds,  # type: ignore[arg-type]
        index=np.empty(0, dtype=np.int64),
    )
    made = [_values(audited, sums, labels, weighting.normalized, has_outcome, i) for i in range(1 + n_boot)]
    point, notes = made[0]
    draws, failures = [], []
    for i, (values, _) in enumerate(made[1:], 1):
        wrong = [key for key, value in values.items() if not np.isfinite(value) and np.isfinite(point[key])]
        if weighting.failed[i]:
            failures.append("a propensity's likelihood has no maximum that Newton's method finds in these weights")
        elif wrong and all(key.quantity in GROUPED for key in wrong):
            failures.append(f"no finite weights of the source {wrong[0].source!r}")
        else:
            draws.append([values[key] for key in point])
    columns = pd.MultiIndex.from_tuples(point, names=Key._fields)
    table = pd.DataFrame(np.array(draws).reshape(len(draws), len(columns)), columns=columns)
    sizes = dict.fromkeys(
        ("accuracy", "positive_rate", "majority_rate") if has_outcome else ("positive_rate",), sums.kish.size
    )
    if labels:
        first, second = worlds[AUDITED][0]
        sizes |= {"p_y0": first.effective_size, "p_ypi": second.effective_size}
        both = ("mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper")
        sizes |= dict.fromkeys(both, min(first.effective_size, second.effective_size))
    replicates = Replicates(table, failures)
    return BatchAudit(estimator, point, notes, replicates, worlds, sizes, sums.rows, failure, same)


def _are_equal(sums: _Sums) -> bool:
    """Whether all rows have one weight: Kish's size is then the number of rows."""
    return abs(sums.kish.size - sums.rows) <= 1e-9 * sums.rows


def _world_size(sums: _Sums, label: str, world: int) -> WorldSize:
    rows, kish = sums.world_sizes[label, world]
    mean = float(sums.worlds[label, world][0, 0] / sums.observed[0, 0])
    return WorldSize(range(rows), kish.size, mean)


def _values(
    audited: tuple[AuditedModel, ...],
    sums: _Sums,
    labels: Sequence[str],
    normalized: bool,
    has_outcome: bool,
    replicate: int,
) -> tuple[dict[Key, float], dict[Key, str]]:
    """Return the quantities of one replicate (0: the fit), and notes on them."""
    m = len(audited)
    row = sums.observed[replicate] / sums.observed[replicate, 0]
    values: dict[Key, float] = {}
    notes: dict[Key, str] = {}
    for i, model in enumerate(audited):
        for j, decisions in enumerate(model.decisions):
            values[Key(AUDITED, model.name, decisions, "positive_rate")] = float(row[2 + m + j * m + i])
        if has_outcome:
            values[Key(AUDITED, model.name, "threshold", "accuracy")] = float(row[2 + i])
            values[Key(AUDITED, model.name, "threshold", "majority_rate")] = float(max(row[1], 1.0 - row[1]))
    for label in labels:
        means = []
        for world in (0, 1):
            own = sums.worlds[label, world][replicate]
            with np.errstate(divide="ignore", invalid="ignore"):
                means.append(own[1:] / (own[0] if normalized else sums.observed[replicate, 0]))
        for i, model in enumerate(audited):
            for j, decisions in enumerate(model.decisions):
                p0, p1 = (float(each[j * m + i]) for each in means)
                found, noted = measure(([p0], [p1]), (ONE_ROW, ONE_ROW))  # type: ignore[arg-type]
                for quantity in found if label == AUDITED else GROUPED:
                    key = Key(label, model.name, decisions, quantity)
                    values[key] = found[quantity]
                    if quantity in noted:
                        notes[key] = noted[quantity]
    return values, notes


ONE_ROW = CounterfactualSample(pd.DataFrame(index=range(1)), np.ones(1))
"""A world of which the mean score is known."""
