"""Audits of tables of any size: nuisance models from random samples, rows judged part by part, all else from sums.

A row is in one of K disjoint samples, or in none, and is judged by two of the K sources that were fitted on them, never
by that of its own sample. All this follows from the seed, the number of its partition and its place there, so that
partitions are judged in any order, on any worker, and again where one is lost. With phi the mean of a row's influence
values by its judges, an estimate is off by the mean of phi over N rows, and by the mean of K products of errors of
models. These are independent, so that its variance is V / N + s^2 / K, with s^2 from differences of judges of a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from pyrofair._random import seed_from, stream_of
from pyrofair._validation import require_integer, shown
from pyrofair.audits.clusters import GROUPS, ROWS
from pyrofair.audits.context import Context, texts_of
from pyrofair.audits.models import AuditedModel
from pyrofair.audits.rates import RATES, sizes_of_rate, tell_rates
from pyrofair.audits.report import Measured
from pyrofair.audits.subgroups import QUANTITIES, Level, estimate_level, tell_subgroups
from pyrofair.audits.wald import Scores, stack_values
from pyrofair.effects.estimates import AUDITED, CAUSAL, Estimates, Key, Samples, kish_size
from pyrofair.effects.influence import InfluenceValues
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.effects.scoring import DECISIONS
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.nuisances.rows import Rows
from pyrofair.tables.labels import is_categorical, read_sensitive
from pyrofair.tables.partitions import Partitions
from pyrofair.tables.reading import feature_columns, read_table

if TYPE_CHECKING:
    from pyrofair.audits.audit import Audit
    from pyrofair.graph import CausalGraph

__all__ = ["audit_partitions"]

Array = NDArray[np.float64]

SAMPLE, FITS = 200_000, 5
"""The rows of all samples together, by default, and the sources that are fitted on them."""
MOST_ROWS, MOST_SCORES = 1 << 17, 1 << 19
"""Rows judged at once, and scores of these rows."""
FEWEST_OF_LEVEL, OTHER = 20, "(other)"
"""Levels of fewer rows in a sample are joined for the nuisance models; models read them as they are."""
MOST_CROSSING = 200_000
"""Clusters with rows in several partitions are gathered in memory up to so many."""
RATE = "rate"
"""The sums of a rate by group have it in their key, before the group and the outcome."""
PREDICTIONS = "and partitions are judged for predictions"
ASK = "pf.sample_rows(data, columns, n) draws rows for an audit in memory."


@dataclass(frozen=True)
class Plan:
    """Which sample a row is in, and which fits judge it: functions of the seed, its partition and its place alone."""

    seed: int
    share: float
    cluster: str | None

    def of(self, number: int, frame: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sample of each row (n,), -1 for none, and the two fits that judge it, ascending (n, 2)."""
        u, v = stream_of(self.seed, number).random((2, len(frame)))
        if self.cluster is not None:  # rows of a cluster are in one sample, wherever they are
            salts = stream_of(self.seed).integers(2**63, size=2, dtype=np.uint64)
            u, v = (pd.util.hash_array(_clusters(frame, self.cluster) ^ salt) / 2.0**64 for salt in salts)
        sample = np.where(u < self.share, np.floor(FITS * u / self.share), -1.0).astype(np.int64)
        judges = np.empty((len(frame), 2), dtype=np.int64)
        for own in range(-1, FITS):  # each pair of the fits that may judge is as likely
            at, pairs = sample == own, np.array([*combinations([k for k in range(FITS) if k != own], 2)])
            judges[at] = pairs[np.floor(v[at] * len(pairs)).astype(np.int64)]
        return sample, judges

    def draw(self, number: int, frame: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """Return the rows of a partition that are in samples, and the number of the sample of each."""
        sample = self.of(number, frame)[0]
        return frame[sample >= 0], sample[sample >= 0]


def _clusters(frame: pd.DataFrame, cluster: str) -> NDArray[np.uint64]:
    """Return a number for each row that its cluster alone decides, (n,)."""
    if missing := int(frame[cluster].isna().sum()):
        raise DataError(f"The clusters {cluster!r} have {missing} missing value(s); give each row a cluster.")
    return np.asarray(pd.util.hash_pandas_object(frame[cluster], index=False), dtype=np.uint64)


def _crossing(parts: Partitions, cluster: str) -> NDArray[np.uint64]:
    """Return the clusters with rows in several partitions, ascending; a DataError where there are few in all."""
    own = replace(parts, columns=(cluster,)).map(lambda _, frame: np.unique(_clusters(frame, cluster)))
    keys, times = np.unique(np.concatenate([*own]), return_counts=True)
    if len(keys) < FITS * FEWEST_ROWS:
        raise DataError(
            f"{cluster!r} has {len(keys)} group(s), fewer than {FITS * FEWEST_ROWS}, for {FITS} samples of groups. "
            f"{ASK}"
        )
    if (found := int((times > 1).sum())) > MOST_CROSSING:
        raise DataError(
            f"{found:,} clusters of {cluster!r} have rows in several partitions, more than {MOST_CROSSING:,}. Sort the "
            f"rows by {cluster!r} first, so that nearly every cluster is in one."
        )
    return keys[times > 1]


@dataclass(frozen=True)
class Sums:
    """Of units z = (w phi, w): the sum and the cross-products, with the numbers of rows and units and the sum of w^2.

    ``apart`` (K^2, F + 1) is the sum, for each pair of judges, of w times the difference of their values, and of w.
    ``open`` are clusters whose rows may not all have been added, with their z; they are no units yet.
    """

    labels: pd.Index[Any]
    rows: int
    units: int
    squares: float
    total: Array
    cross: Array
    apart: Array
    open: pd.DataFrame | None = None

    def __add__(self, other: Sums) -> Sums:
        names = ("rows", "units", "squares", "total", "cross", "apart")
        waiting = [each.open for each in (self, other) if each.open is not None]
        both = pd.concat(waiting).groupby(level=0).sum() if waiting else None
        added: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, open=both, **added)

    def closed(self, going_on: NDArray[np.uint64] | Sequence[int] = ()) -> Sums:
        """Return the sums with the open clusters as units, but for those that go on in another partition."""
        if self.open is None:
            return self
        waits = np.isin(self.open.index, going_on)
        z = self.open[~waits].to_numpy()
        units = self.units + int((z[:, -1] > 0.0).sum())
        return replace(self, units=units, cross=self.cross + z.T @ z, open=self.open[waits])

    @property
    def effective(self) -> float:
        """The effective number of rows (Kish)."""
        return float(self.total[-1] ** 2 / self.squares)

    @property
    def clusters(self) -> float:
        """The effective number of clusters, infinite where rows are units."""
        return np.inf if self.open is None else float(self.total[-1] ** 2 / self.cross[-1, -1])

    def estimates(self, sizes: Mapping[str, Mapping[str, float]], *, shared: bool, part: int = 0) -> Estimates:
        """Return the estimates of the F means; those of other ``part`` numbers are of other rows, so independent.

        ``sizes`` are the effective rows of each quantity by model, of which no more count than there are clusters.
        """
        sizes = {name: {key: min(each, self.clusters) for key, each in own.items()} for name, own in sizes.items()}
        mean = self.total[:-1] / self.total[-1]
        centre = np.column_stack([np.eye(len(mean)), -mean]) / self.total[-1]
        rows = centre @ self.cross @ centre.T * self.units / max(self.units - 1, 1)
        pairs = self.apart[self.apart[:, -1] > 0.0]
        gaps = pairs[:, :-1] / pairs[:, -1:]
        spread = (gaps * pairs[:, -1:] / pairs[:, -1].sum()).T @ gaps / 2.0
        samples = Samples(spread / FITS, FITS - 1.0, self.clusters - 1.0)
        return Estimates.of_moments(self.labels, mean, rows, samples, given_shared=shared, sizes=sizes, part=part)


@dataclass(frozen=True)
class Work:
    """Judges the rows of a partition, and returns sums: of all rows (None), and of each level of the subgroups."""

    plan: Plan
    scores: Scores
    kept: Mapping[str, tuple[frozenset[Any], Any]]
    weight: str | None
    subgroups: tuple[str, ...]
    crossing: NDArray[np.uint64]
    outcomes: tuple[Any, ...]
    judges: list[Callable[[Any, Rows], InfluenceValues]] = field(default_factory=list)

    def __call__(self, number: int, frame: pd.DataFrame) -> dict[Any, Sums]:
        judged, size = self.plan.of(number, frame)[1], max(1, min(MOST_ROWS, MOST_SCORES // len(self.scores.columns)))
        parts = (slice(start, start + size) for start in range(0, len(frame), size))
        found = add_sums(self.sums(frame[at].reset_index(drop=True), judged[at], (number, at.start)) for at in parts)
        return {key: sums.closed(self.crossing) for key, sums in found.items()}

    def read(self, frame: pd.DataFrame, what: str) -> tuple[Rows, Scores]:
        """Return rows, which the nuisance models read with rare levels joined, and the scores of the models."""
        graph = self.scores.models[0].graph
        table = read_table(frame, feature_columns(graph), what=what)
        a, weight = read_sensitive(table, graph, both=False), np.ones(len(table))
        if self.weight is not None:
            weight = frame[self.weight].to_numpy(np.float64)
            if (wrong := ~(np.isfinite(weight) & (weight >= 0.0))).any():
                raise DataError(f"{what} has the weight {weight[wrong][0]} in {self.weight!r}; none may be below 0.")
        joined = {name: _join(table[name], *known) for name, known in self.kept.items()}
        scores = replace(self.scores, observed={model.name: model.observed(table) for model in self.scores.models})
        return Rows(table.assign(**joined), a, weight, np.ones(len(a), bool), shown=table), scores

    def outcome(self, frame: pd.DataFrame, what: str) -> NDArray[np.int8] | None:
        """Return the outcomes (n,) in 0 and 1, None without any."""
        if not self.outcomes:
            return None
        graph = self.scores.models[0].graph
        values = frame[graph.outcome_column]
        if unknown := [each for each in values.unique().tolist() if each not in self.outcomes]:
            raise DataError(
                f"{what} has {graph.outcome_column}={unknown[0]!r}; the first sample has {shown(self.outcomes)} alone."
            )
        return np.asarray(values == graph.positive, dtype=np.int8)

    def sums(self, frame: pd.DataFrame, judged: NDArray[np.int64], stream: tuple[int, int]) -> dict[Any, Sums]:
        """Return the sums of some rows, given the two fits that judge each, (n, 2)."""
        what, n = f"Partition {stream[0]}", len(frame)
        rows, scores = self.read(frame, what)
        values = np.zeros((2, len(CAUSAL), n, len(scores.columns)))
        for k, judge in enumerate(self.judges):
            own, slot = np.nonzero(judged == k)
            if len(own):
                some = replace(scores, observed={name: each[own] for name, each in scores.observed.items()})
                found = judge(some, rows.others(own, (*stream, k + 1)))
                values[slot, :, own] = np.stack([getattr(found, name) for name in CAUSAL], axis=1)
        y0, ypi, lower, rest, disagreement = values.mean(axis=0)
        mean = InfluenceValues(y0, ypi, lower, rest, disagreement, rows.weight, pd.DataFrame())
        outcome = self.outcome(frame, what)
        stacked = stack_values(scores, outcome, rows.weight, mean, frame.index)
        labels, z = stacked.columns, np.column_stack([stacked, np.ones(n)])
        gaps = np.zeros_like(z)
        gaps[:, [*labels.get_level_values(2).isin(CAUSAL), False]] = (
            (values[0] - values[1]).transpose(1, 2, 0).reshape(n, -1)
        )
        gaps[:, -1] = 1.0
        z, gaps, pair = (rows.weight[:, None] * z, rows.weight[:, None] * gaps, judged @ [FITS, 1])
        clusters = None if self.plan.cluster is None else _clusters(frame, self.plan.cluster)

        def of(at: NDArray[np.int64], kept: NDArray[np.bool_]) -> Sums:
            columns, w = [*kept, True], rows.weight[at]
            own, n = z[at][:, columns], len(at)
            pairs: Any = sparse.csr_array((np.ones(n), (pair[at], np.arange(n))), shape=(FITS**2, n))
            apart = pairs @ gaps[at][:, columns]
            made = Sums(labels[kept], n, int((w > 0.0).sum()), float(w @ w), own.sum(axis=0), own.T @ own, apart)
            if clusters is None:
                return made
            return replace(made, units=0, cross=0.0 * made.cross, open=pd.DataFrame(own).groupby(clusters[at]).sum())

        sums: dict[Any, Sums] = {None: of(np.arange(n), np.ones(len(labels), bool))}
        decided = (labels.get_level_values(1) == "threshold") & (labels.get_level_values(2) == "positive")
        for value, label in product((0, 1), RATES.values()):
            member = (rows.a == value) & (rows.weight > 0.0)
            if label is not None and outcome is not None:
                member &= outcome == label
            if member.any() and (label is None or outcome is not None):
                sums[RATE, value, label] = of(np.flatnonzero(member), decided)
        for name in self.subgroups:
            for level, at in frame.groupby(name, observed=True).indices.items():
                sums[name, level] = of(np.asarray(at), labels.get_level_values(1) == "threshold")
        return sums


def add_sums(parts: Iterable[Mapping[Any, Sums]]) -> dict[Any, Sums]:
    """Return the sums of several parts, by key."""
    found: dict[Any, Sums] = {}
    for part in parts:
        for key, sums in part.items():
            found[key] = found[key] + sums if key in found else sums
    return found


def _join(values: pd.Series[Any], known: frozenset[Any], other: Any) -> pd.Series[Any]:
    """Return a column with one level in place of all those that are not known."""
    plain = values.astype(object) if isinstance(values.dtype, pd.CategoricalDtype) else values
    return plain.where(plain.isin(known), other)


def keep_levels(drawn: pd.DataFrame, sample: NDArray[np.int64], graph: CausalGraph) -> dict[str, Any]:
    """Return for each column of text the levels that all samples have often, and the level in place of all others."""
    kept = {}
    for name in feature_columns(graph):
        if name != graph.sensitive_column and is_categorical(drawn[name]):
            counts = pd.crosstab(drawn[name].astype(object), sample).reindex(columns=range(FITS), fill_value=0)
            counts = counts.loc[counts.min(axis=1).sort_values().index]
            rare = int((counts.min(axis=1) < FEWEST_OF_LEVEL).sum())
            while 0 < rare < len(counts) and counts[:rare].sum().min() < FEWEST_OF_LEVEL:
                rare += 1  # too few to be learned from even together
            known = counts.index[rare:]
            kept[name] = frozenset(known), OTHER if rare else known[0]
    return kept


def audit_partitions(
    audit_sample: Callable[..., Audit],
    models: Mapping[str, Any],
    source: Any,
    data: Any,
    *,
    threshold: float,
    thresholds: tuple[float, ...],
    subgroups: str | Sequence[str] | None,
    weight: str | None,
    groups: str | None,
    sample: int | None,
    seed: int | None,
) -> Audit:
    """Return the audit of a table in partitions; ``audit_sample(source, df, sample_weight=...)`` is that of a sample.

    ``sample`` rows make the samples of all sources; ``weight``, ``groups`` and ``subgroups`` are names of columns.
    """
    graph, seed = source.unfair.graph, seed_from(seed)
    levels = tuple(subgroups or ()) if isinstance(subgroups, list | tuple | None) else (subgroups,)
    _refuse(models, source, levels, weight, groups)
    sample = require_integer("sample", SAMPLE if sample is None else sample, least=FITS)
    named = [each for each in (weight, groups, *levels) if each is not None]
    parts = Partitions.of(data, [*feature_columns(graph), *named], [graph.outcome_column])
    plan = Plan(seed, min(1.0, sample / sum(parts.sizes)), groups)
    crossing = np.empty(0, np.uint64) if groups is None else _crossing(parts, groups)
    frames, numbers = zip(*parts.map(plan.draw), strict=True)
    drawn, own = pd.concat(frames, ignore_index=True), np.concatenate(numbers)
    samples = [drawn[own == k].reset_index(drop=True) for k in range(FITS)]
    clusters = [None if groups is None else _clusters(each, groups) for each in samples]
    known = [name for name in parts.columns if name in graph.columns_of(graph.observed)]
    first, w = samples[0][known], None if weight is None else samples[0][weight]
    if groups is not None:
        source = clone(source).fit(first, w, groups=clusters[0])
    pilot = audit_sample(source, first, sample_weight=w, groups=clusters[0])
    context, order = pilot.context, tuple(name for name in known if name in graph.input_columns)
    if context.failure or context.outcomes:
        why = context.failure or f"{context.outcomes[0]!r} is an outcome, no function of the features, {PREDICTIONS}"
        raise DataError(f"{why}. {ASK}")
    outcomes = tuple(samples[0][graph.outcome_column].unique().tolist()) if graph.outcome_column in known else ()
    audited = tuple(AuditedModel(name, model, graph, order, outcomes or None) for name, model in models.items())
    scores = Scores(audited, {}, threshold, rules=(*DECISIONS, *thresholds))
    kept = keep_levels(drawn, own, graph) if context.form == "prefix" else {}
    work = Work(plan, scores, kept, weight, levels, crossing, outcomes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k, each in enumerate(samples):
            rows, asked = work.read(each, f"Sample {k}")
            one = clone(source).set_params(folds=1, form=context.form, random_state=(seed + 1 + k) % 2**31)
            one.fit(rows.table, rows.weight, groups=clusters[k]).nuisances_.rows.shown = rows.shown
            work.judges.append(one.learn(asked))
    for text in texts_of(caught):
        if text.startswith("Poor overlap. "):  # worse than in the first sample, which has passed
            raise PositivityError(
                f"{text} So it is in one of the {FITS} samples of rows that sources were fitted on: join rare levels "
                f"of these features, or take larger samples, such as sample={2 * sample:_}."
            )
    sums = add_sums(parts.map(work))
    return _tell(pilot, {key: each.closed() for key, each in sums.items()}, work, parts)


def _refuse(models: Any, source: Any, levels: Any, weight: Any, groups: Any) -> None:
    """Refuse what does not go with partitions."""
    kind, graph = type(source).__name__, source.unfair.graph
    given = [name for name, model in models.items() if AuditedModel(name, model, graph, ()).is_scores]
    columns = {"sample_weight": weight, "groups": groups} | {f"subgroups[{i}]": each for i, each in enumerate(levels)}
    wrong = [f"{name}={shown(value)}" for name, value in columns.items() if not isinstance(value, str | None)]
    if not hasattr(source, "learn"):
        why = f"{kind} needs all rows in memory; of a table in partitions OneStep(unfair), or the paths, make an audit"
    elif hasattr(source, "estimand_"):
        why = f"{kind} is fitted, and sources of a table in partitions are fitted on samples: sklearn.base.clone(it)"
    elif given:
        why = f"{given[0]!r} is given as scores of rows, and partitions need the model itself"
    elif wrong:
        why = f"{wrong[0]} must be the name of a column of a table in partitions"
    elif groups in feature_columns(graph):
        why = f"groups={groups!r} is a column of the graph, which estimates are conditioned on"
    else:
        return
    raise DataError(f"{why}. {ASK}")


def _tell(pilot: Audit, sums: dict[Any, Sums], work: Work, parts: Partitions) -> Audit:
    """Return the audit of all rows: their numbers, and the diagnostics of the audit of the first sample."""
    whole, context, models = sums[None], pilot.context, work.scores.models
    larger = whole.effective / kish_size(np.asarray(context.estimates.weight))  # type: ignore[union-attr]
    ess = pilot.table[pilot.table["decisions"] == "threshold"].set_index(["model", "quantity"])["ess"] * larger
    sizes = {model.name: ess[model.name].to_dict() for model in models}
    made, at = whole.estimates(sizes, shared=bool(context.paths.shared)), work.scores.rules[len(DECISIONS) :]
    alike = whole.rows if work.weight is None and work.plan.cluster is None else 0
    measured = Measured.of(made, context.level, models=models, alike=alike, sizes=sizes, small=context.small)
    drawn = pd.DataFrame(made.draws(context.settings["random_state"])[AUDITED])
    effect = made.of(Key(AUDITED, models[0].name, "threshold", "mean_unfair_effect"))
    text = (
        f"{FITS} sources were fitted on about {context.rows:,} rows each, drawn at random, and two that had not seen a "
        "row judged it. Diagnostics of stages and the comparison of groups are those of the first sample. Of the "
        f"standard error of the unfair effect of {models[0].name!r}, {effect.spread:.2g}, {np.sqrt(effect.more):.2g} "
        "comes from the samples."
    )
    units = ROWS
    if work.plan.cluster is not None:
        units = GROUPS.format(whole.units, f"of {work.plan.cluster!r}", whole.clusters)
    return replace(
        pilot,
        table=measured.table(context.doubts),
        draws=drawn.loc[:, drawn.columns.get_level_values("decisions").isin(DECISIONS)],
        influence=pilot.influence.iloc[:0],
        answers={},
        thresholds=measured.thresholds(at, context.threshold_doubts),
        subgroups=_subgroups(pilot, sums, work, parts, larger),
        rates=_rates(sums, work, context),
        context=replace(context, rows=whole.rows, units=units, estimates=None, resampling=text),
    )


def _rates(sums: Mapping[Any, Sums], work: Work, context: Context) -> pd.DataFrame:
    """Return the rates of each group, whose errors are independent where rows are."""
    names = [model.name for model in work.scores.models]

    def of(value: int, label: int | None) -> tuple[int, Estimates | None]:
        own = sums.get((RATE, value, label))
        if own is None:
            return 0, None
        return own.rows, own.estimates(sizes_of_rate(names, own.effective), shared=False, part=value)

    joint = work.plan.cluster is None
    return tell_rates(names, of, context.graph, context.level, known=bool(work.outcomes), joint=joint)


def _subgroups(pilot: Audit, sums: Mapping[Any, Sums], work: Work, parts: Partitions, larger: float) -> pd.DataFrame:
    """Return the table of subgroups; that a level is in doubt, or has too few rows, shows in the first sample."""
    known, rows = pilot.subgroups.set_index(["subgroup", "level", "quantity"]).sort_index(), []
    part = 0
    for name in work.subgroups:
        values = pd.Series([key[1] for key in sums if key is not None and key[0] == name], dtype=parts.levels.get(name))
        for value in values.sort_values():
            of, place = sums[name, value], (name, str(value), "mean_unfair_effect")
            ess, reason, doubt = np.nan, "no row", ""
            if place in known.index:
                first = known.loc[[place]].iloc[0]
                ess, (before, _, text) = float(first["ess"]) * larger, str(first["note"]).partition(": ")
                reason, doubt = (text if before == each else "" for each in ("no estimate", "in doubt"))
            reason, doubt = (each and f"in the first sample, {each}" for each in (reason, doubt))
            weight, part, made = of.total[-1], part + 1, None
            if weight <= 0.0:
                reason = "no row has a weight"
            elif of.clusters < FEWEST_ROWS:
                reason = f"{of.clusters:.1f} effective group(s), fewer than {FEWEST_ROWS}"
            level = Level(name, str(value), of.rows, of.effective if weight > 0.0 else np.nan, ess, reason, doubt)
            if weight > 0.0 and of.clusters >= FEWEST_ROWS:
                sizes = level.sizes([model.name for model in work.scores.models])
                made = of.estimates(sizes, shared=bool(pilot.context.paths.shared), part=part)
            rows += [estimate_level(level, made, each.name, q) for each in work.scores.models for q in QUANTITIES]
    return tell_subgroups(rows, pilot.context.level) if rows else pilot.subgroups
