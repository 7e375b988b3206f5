"""Audits of tables of any size: nuisances from random samples, rows judged part by part, all else from sums.

A row belongs to one of K disjoint samples, or to none, and is judged by J of the K sources fitted on them, never by that
of its own sample. All of this follows from the seed, the number of its partition and its place there, so that partitions
are judged in any order, on any worker, and again where one is lost. With phi the mean of a row's influence values over
its judges, an estimate is off by the mean of phi over N rows and by the mean of the products of errors of K fits, which
are independent: its variance is V / N + s^2 / K, s^2 from the differences of judges on the same rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from pyrofair._random import seed_from
from pyrofair._validation import require_integer, shown
from pyrofair.audits.context import texts_of
from pyrofair.audits.models import AuditedModel
from pyrofair.audits.report import main_table
from pyrofair.audits.subgroups import QUANTITIES, Level, estimate_level, tell_subgroups
from pyrofair.audits.thresholds import name_thresholds
from pyrofair.audits.wald import Scores
from pyrofair.effects.estimates import AUDITED, CAUSAL, Estimates, Key, Samples
from pyrofair.effects.influence import InfluenceValues
from pyrofair.effects.potential_outcomes import CounterfactualSample, kish_size
from pyrofair.effects.scoring import DECISIONS, decide
from pyrofair.exceptions import DataError, PositivityWarning
from pyrofair.graph import CausalGraph
from pyrofair.nuisances.rows import Rows
from pyrofair.tables.labels import is_categorical, read_sensitive
from pyrofair.tables.partitions import Partitions
from pyrofair.tables.reading import feature_columns, read_table

if TYPE_CHECKING:
    from pyrofair.audits.audit import Audit

__all__ = ["SAMPLE", "audit_partitions"]

Array = NDArray[np.float64]
Judge = Callable[[Any, Rows], InfluenceValues]

SAMPLE, FITS, JUDGES = 200_000, 5, 2
"""The rows of all samples together, the sources fitted on them, and how many of these judge a row."""
MOST_ROWS, MOST_SCORES = 1 << 17, 1 << 19
"""Rows judged at once, and scores of these rows."""
FEWEST_OF_LEVEL, OTHER = 20, "(other)"
"""Levels of fewer rows in a sample are joined for the nuisances; models read them as they are."""
MOST_CROSSING = 200_000
"""Clusters whose rows are in several partitions are gathered in memory up to so many."""
ASK = "pf.sample_rows(data, columns, n) draws rows for an audit in memory."


@dataclass(frozen=True)
class Plan:
    """Which sample a row is in, and which fits judge it: functions of the seed, its partition and its place alone."""

    seed: int
    share: float
    cluster: str | None = None

    def of(self, number: int, frame: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sample of each row (n,), -1 for none, and the fits that judge it, ascending (n, J)."""
        u, v = np.random.default_rng([self.seed, number]).random((2, len(frame)))
        if self.cluster is not None:  # rows of a cluster are in one sample, wherever they are
            salts = np.random.default_rng(self.seed).integers(2**63, size=2, dtype=np.uint64)
            keys = hash_clusters(frame[self.cluster])
            u, v = (pd.util.hash_array(keys ^ salt) / 2.0**64 for salt in salts)
        sample = np.where(u < self.share, np.floor(FITS * u / self.share), -1.0).astype(np.int64)
        others = FITS - (sample >= 0)
        judges = (np.floor(v * others)[:, None].astype(np.int64) + np.arange(JUDGES)) % others[:, None]
        return sample, np.sort(judges + ((judges >= sample[:, None]) & (sample >= 0)[:, None]), axis=1)

    def draw(self, number: int, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a partition that are in samples, with the number of their sample."""
        sample = self.of(number, frame)[0]
        return frame[sample >= 0].assign(**{OTHER: sample[sample >= 0]})


def hash_clusters(values: pd.Series[Any]) -> NDArray[np.uint64]:
    """Return a number for each row that its cluster alone decides, (n,)."""
    if values.isna().any():
        raise DataError(f"cluster={values.name!r} has {int(values.isna().sum())} missing value(s); name each cluster.")
    return np.asarray(pd.util.hash_pandas_object(values, index=False), dtype=np.uint64)


def _own_clusters(number: int, frame: pd.DataFrame) -> NDArray[np.uint64]:
    return np.unique(hash_clusters(frame.iloc[:, 0]))


def _crossing(parts: Partitions, cluster: str) -> NDArray[np.uint64]:
    """Return the clusters with rows in several partitions, ascending."""
    keys, times = np.unique(
        np.concatenate([*replace(parts, columns=(cluster,)).map(_own_clusters)]), return_counts=True
    )
    if (found := int((times > 1).sum())) > MOST_CROSSING:
        raise DataError(
            f"{found:,} clusters of {cluster!r} have rows in several partitions, more than {MOST_CROSSING:,}. Sort the "
            f"rows by {cluster!r} first, so that nearly every cluster is in one."
        )
    return keys[times > 1]


@dataclass(frozen=True)
class Sums:
    """Of units z = (w phi, w): rows, units, sum of squared weights, sum and cross-products.

    ``between`` has for each set of judges the weight, and the weighted deviations of each from their mean. ``open`` are
    the clusters whose rows may not all have been added, with their z; they are no units yet.
    """

    rows: int
    units: int
    squares: float
    total: Array
    cross: Array
    between: Mapping[tuple[int, ...], tuple[float, Array]]
    open: pd.DataFrame | None = None

    def __add__(self, other: Sums) -> Sums:
        pairs = {k: [e.between[k] for e in (self, other) if k in e.between] for k in {**self.between, **other.between}}
        between = {key: (sum(w for w, _ in found), sum(d for _, d in found)) for key, found in pairs.items()}
        names = ("rows", "units", "squares", "total", "cross")
        waiting = [each.open for each in (self, other) if each.open is not None]
        both = pd.concat(waiting).groupby(level=0).sum() if waiting else None
        return Sums(*(getattr(self, name) + getattr(other, name) for name in names), between, both)

    def closed(self, going_on: NDArray[np.uint64] | tuple[()] = ()) -> Sums:
        """Return the sums with the open clusters as units, but those that go on in another partition."""
        if self.open is None:
            return self
        waits = np.isin(self.open.index, going_on)
        z = self.open[~waits].to_numpy()
        return replace(self, units=self.units + len(z), cross=self.cross + z.T @ z, open=self.open[waits])

    def estimates(self, labels: pd.MultiIndex, shared: bool) -> Estimates:
        """Return the estimates of the F means; one sign for all rows where that is clearly tighter, as in OneStep."""
        mean = self.total[:-1] / self.total[-1]
        centre = np.column_stack([np.eye(len(mean)), -mean]) / self.total[-1]
        rows = centre @ self.cross @ centre.T * self.units / max(self.units - 1, 1)
        spread, share = np.zeros_like(rows), sum(weight for weight, _ in self.between.values())
        for ks, (weight, sums) in self.between.items():
            spread += weight / share * (sums.T @ sums) / weight**2 / (len(ks) - 1)
        turn, constant = np.eye(len(mean)), np.zeros(len(mean))
        place = {label: at for at, label in enumerate(labels)}
        for pair in dict.fromkeys(label[:2] for label in labels):
            for name, first, plus in (("lower", 1.0, 0.0), ("rest", -1.0, 1.0)):
                at, plain = place[(*pair, name)], np.zeros(len(mean))
                plain[[place[(*pair, "ypi")], place[(*pair, "y0")]]] = first, -1.0
                value = plus + plain @ mean
                gap = np.sign(value) * plain - turn[at]
                if abs(value) - mean[at] > 2.0 * np.sqrt(max(gap @ rows @ gap, 0.0)):
                    turn[at], constant[at] = np.sign(value) * plain, np.sign(value) * plus
        degrees = np.inf if self.open is None else self.total[-1] ** 2 / self.cross[-1, -1] - 1.0
        samples = Samples(turn @ spread @ turn.T / FITS, FITS - 1.0, degrees)
        return Estimates.of_moments(labels, turn @ mean + constant, turn @ rows @ turn.T, samples, given_shared=shared)

    @property
    def effective(self) -> float:
        """The effective number of rows (Kish)."""
        return float(self.total[-1] ** 2 / self.squares)


@dataclass(eq=False)
class AsTheyAre:
    """Scores of rows as they are, where the nuisances read them with rare levels joined: ``text`` are these columns."""

    scores: Scores
    text: pd.DataFrame

    def __call__(self, sample: CounterfactualSample) -> Array:
        """Return the scores of a sample's rows, which the index finds in the text."""
        names = [name for name in self.text if name in sample.rows]
        if names:
            own = self.text.loc[sample.rows.index, names]
            sample = replace(sample, rows=sample.rows.assign(**{name: own[name] for name in names}))
        return self.scores(sample)

    def take(self, at: NDArray[np.int64]) -> AsTheyAre:
        """Return the scores of some of the rows."""
        observed = {name: each[at] for name, each in self.scores.observed.items()}
        return replace(self, scores=replace(self.scores, observed=observed))


@dataclass(frozen=True)
class Work:
    """Judges the rows of a partition, and returns sums: of all rows (None), and of each level of the subgroups."""

    plan: Plan
    scores: Scores
    kept: Mapping[str, tuple[frozenset[Any], Any]]
    weight: str | None
    subgroups: tuple[str, ...]
    crossing: NDArray[np.uint64]
    labelled: frozenset[Any]
    judges: list[Judge] = field(default_factory=list)

    @property
    def labels(self) -> pd.MultiIndex:
        """The model, decisions and functional of each of F means."""
        found = []
        for model, rule in self.scores.columns:
            known = () if rule == "score" or not self.labelled else ("correct", "outcome")
            found += [(model, rule, each) for each in (*CAUSAL, "positive", *known)]
        return pd.MultiIndex.from_tuples(found, names=["model", "decisions", "functional"])

    def __call__(self, number: int, frame: pd.DataFrame) -> dict[Any, Sums]:
        judged, found = self.plan.of(number, frame)[1], dict[Any, Sums]()
        size = max(1, min(MOST_ROWS, MOST_SCORES // len(self.scores.columns)))
        for start in range(0, len(frame), size):
            at = slice(start, start + size)
            add_sums(found, self.sums(frame[at].reset_index(drop=True), judged[at], (number, start)))
        return {key: sums.closed(self.crossing) for key, sums in found.items()}

    def read(self, frame: pd.DataFrame, what: str) -> tuple[Rows, AsTheyAre]:
        """Return rows as the nuisances read them, and their scores by models, which read them as they are."""
        graph = self.scores.models[0].graph
        table = read_table(frame, feature_columns(graph), what=what)
        a, weight = read_sensitive(table, graph, both=False), np.ones(len(table))
        if self.weight is not None:
            weight = frame[self.weight].to_numpy(np.float64)
            if (wrong := ~(np.isfinite(weight) & (weight >= 0.0))).any():
                raise DataError(
                    f"The weights {self.weight!r} must be finite and not negative; {what} has {weight[wrong][0]}."
                )
        joined = {name: join_levels(table[name], *known) for name, known in self.kept.items()}
        scores = replace(self.scores, observed={model.name: model.observed(table) for model in self.scores.models})
        rows = Rows(table.assign(**joined), a, weight, np.ones(len(a), bool), position=np.full(len(a), -1))
        return rows, AsTheyAre(scores, table[[*joined]])

    def outcome(self, frame: pd.DataFrame, what: str) -> NDArray[np.int8] | None:
        """Return the outcomes (n,) in 0 and 1, None without any."""
        graph = self.scores.models[0].graph
        if not self.labelled:
            return None
        values = frame[graph.outcome_column]
        if unknown := [each for each in values.unique() if each not in self.labelled]:
            raise DataError(
                f"{what} has the outcome {unknown[0]!r} in the column {graph.outcome_column!r}, and the first sample "
                f"has {', '.join(map(repr, sorted(self.labelled, key=str)))} alone."
            )
        return (values == graph.positive).to_numpy(np.int8)

    def sums(self, frame: pd.DataFrame, judged: NDArray[np.int64], stream: tuple[int, int]) -> dict[Any, Sums]:
        """Return the sums of some rows, given the fits that judge each, (n, J)."""
        what = f"Partition {stream[0]}"
        rows, scores = self.read(frame, what)
        values = np.zeros((JUDGES, len(frame), len(CAUSAL), len(self.scores.columns)))
        for k, judge in enumerate(self.judges):
            own, slot = np.nonzero(judged == k)
            if len(own):
                found = judge(scores.take(own), take_rows(rows, own, (*stream, k)))
                values[slot, own] = np.stack([getattr(found, name) for name in CAUSAL], axis=1)
        mean, outcome = values.mean(axis=0), self.outcome(frame, what)
        parts = []
        for at, (model, rule) in enumerate(self.scores.columns):
            decided = decide(scores.scores.observed[model], rule, self.scores.threshold)
            known = () if rule == "score" or outcome is None else (decided == outcome, outcome)
            parts += [*mean[:, :, at].T, decided, *known]
        z = rows.weight[:, None] * np.column_stack([*parts, np.ones(len(frame))])
        labels = self.labels
        causal, within = labels.get_level_values(2).isin(CAUSAL), labels.get_level_values(1) == "threshold"
        values = (values - mean).transpose(0, 1, 3, 2).reshape(JUDGES, len(frame), -1) * rows.weight[:, None]
        clusters = None if self.plan.cluster is None else hash_clusters(frame[self.plan.cluster])

        def of(inside: NDArray[np.int64], kept: NDArray[np.bool_]) -> Sums:
            own = z[inside][:, [*kept, True]]
            weight, zero = rows.weight[inside], np.zeros((own.shape[1],) * 2)
            between = {}
            sets, code = np.unique(judged[inside], axis=0, return_inverse=True)
            for i, ks in enumerate(sets):
                at = inside[code.ravel() == i]
                apart = np.zeros((JUDGES, len(labels)))
                apart[:, causal] = values[:, at].sum(axis=1)
                between[tuple(map(int, ks))] = float(rows.weight[at].sum()), apart[:, kept]
            plain = len(inside), float(weight @ weight), own.sum(axis=0)
            if clusters is None:
                return Sums(plain[0], len(inside), *plain[1:], own.T @ own, between)
            return Sums(plain[0], 0, *plain[1:], zero, between, pd.DataFrame(own).groupby(clusters[inside]).sum())

        found = {None: of(np.arange(len(frame)), np.ones(len(labels), bool))}
        for name in self.subgroups:
            for level, at in frame.groupby(name, observed=True).indices.items():
                found[name, level] = of(np.asarray(at), np.asarray(within))
        return found


def take_rows(rows: Rows, at: NDArray[np.int64], stream: tuple[int, ...]) -> Rows:
    """Return some rows, none of which were fitted on."""
    kept = (rows.table.iloc[at], rows.a[at], rows.weight[at], rows.kept[at])
    return Rows(*kept, position=np.full(len(at), -1), stream=stream)


def add_sums(found: dict[Any, Sums], other: Mapping[Any, Sums]) -> None:
    """Add sums by key."""
    for key, sums in other.items():
        found[key] = found[key] + sums if key in found else sums


def join_levels(values: pd.Series[Any], known: frozenset[Any], other: Any) -> pd.Series[Any]:
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
    level: float,
    threshold: float,
    thresholds: tuple[float, ...],
    subgroups: str | Sequence[str] | None,
    weight: str | None,
    cluster: str | None,
    sample: int | None,
    seed: int | None,
) -> Audit:
    """Return the audit of a table in partitions; ``audit_sample(source, df, sample_weight=...)`` is that of a sample.

    ``sample`` rows make the samples of all sources; ``weight``, ``cluster`` and ``subgroups`` are names of columns.
    """
    graph, seed = source.unfair.graph, seed_from(seed)
    names = () if subgroups is None else (subgroups,) if isinstance(subgroups, str) else tuple(subgroups)
    _refuse(models, source, names, weight, cluster, graph)
    named = [each for each in (weight, cluster, *names) if each is not None]
    parts = Partitions.of(data, [*feature_columns(graph), *named], [graph.outcome_column])
    crossing = np.empty(0, np.uint64) if cluster is None else _crossing(parts, cluster)
    sample = require_integer("sample", SAMPLE if sample is None else sample, least=FITS)
    plan = Plan(seed, min(1.0, sample / sum(parts.sizes)), cluster)
    drawn = pd.concat([*parts.map(plan.draw)], ignore_index=True)
    own = drawn.pop(OTHER).to_numpy()
    samples = [drawn[own == k].reset_index(drop=True) for k in range(FITS)]
    first = samples[0]
    pilot = audit_sample(source, first.drop(columns=[each for each in named if each not in graph.node_of]),
                         sample_weight=None if weight is None else first[weight])  # fmt: skip
    for name in pilot.context.outcomes:
        raise DataError(
            f"{name!r} is an outcome, no function of the features, and partitions are judged for predictions. {ASK}"
        )
    if pilot.context.failure:
        raise DataError(f"The first of {FITS} samples, of {len(first):,} rows: {pilot.context.failure}.")
    order = tuple(name for name in parts.columns if name in graph.input_columns)
    outcome = graph.outcome_column
    labelled = frozenset(first[outcome].unique() if outcome in first else ())
    audited = tuple(AuditedModel(name, model, graph, order, tuple(labelled) or None) for name, model in models.items())
    scores = Scores(audited, {}, threshold, rules=(*DECISIONS, *thresholds))
    kept = keep_levels(drawn, own, graph) if pilot.context.form == "prefix" else {}
    work = Work(plan, scores, kept, weight, names, crossing, labelled)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k, each in enumerate(samples):
            rows, asked = work.read(each, f"Sample {k}")
            one = clone(source).set_params(folds=1, form=pilot.context.form, random_state=(seed + 1 + k) % 2**31)
            work.judges.append(one.fit(rows.table, rows.weight).learn(asked))
    poor = [text for text in dict.fromkeys(texts_of(caught)) if text.startswith("Poor overlap. ")][:1]
    for text in poor:  # worse than in the first sample, which has passed
        warnings.warn(text, PositivityWarning, stacklevel=3)
    sums: dict[Any, Sums] = {}
    for part in parts.map(work):
        add_sums(sums, part)
    return _tell(pilot, {key: each.closed() for key, each in sums.items()}, work, parts, len(first), poor)


def _refuse(models: Any, source: Any, names: Any, weight: Any, cluster: Any, graph: CausalGraph) -> None:
    """Refuse what does not go with partitions."""
    kind = type(source).__name__
    if not hasattr(source, "learn"):
        raise DataError(
            f"{kind} needs all rows in memory; OneStep(unfair), or the unfair paths themselves, judge partitions. {ASK}"
        )
    if hasattr(source, "estimand_"):
        raise DataError(
            f"{kind} is fitted, and partitions are judged by sources that are fitted on samples of them: pass "
            f"sklearn.base.clone(source). {ASK}"
        )
    for name, model in models.items():
        if AuditedModel(name, model, graph, ()).is_scores:
            raise DataError(f"{name!r} is given as scores of rows, and partitions need the model itself. {ASK}")
    for name, value in (("sample_weight", weight), ("cluster", cluster)):
        if not isinstance(value, str | None):
            raise DataError(f"{name}={shown(value)} must be the name of a column where df is in partitions. {ASK}")
    if wrong := [each for each in names if not isinstance(each, str)]:
        raise DataError(f"subgroups of a table in partitions are names of columns, not {shown(wrong[0])}. {ASK}")
    if cluster in feature_columns(graph):
        raise DataError(f"cluster={cluster!r} is a column of the graph, which estimates are conditioned on.")


def _tell(pilot: Audit, sums: dict[Any, Sums], work: Work, parts: Partitions, fitted: int, poor: list[str]) -> Audit:
    """Return the audit of all rows: that of the first sample with the numbers of all, and the sample's diagnostics."""
    whole, context, labels, models = sums[None], pilot.context, work.labels, work.scores.models
    made, shared = whole.estimates(labels, bool(context.paths.shared)), bool(context.paths.shared)
    larger = whole.effective / kish_size(context.weight)
    ess = pilot.table[pilot.table["decisions"] == "threshold"].set_index(["model", "quantity"])["ess"] * larger
    sizes = {model.name: ess[model.name].to_dict() for model in models}
    alike, intervals = (
        whole.rows * (work.weight is None and work.plan.cluster is None),
        partial(made.interval, level=context.level),
    )

    def tabled(doubts: Mapping[Any, str], rules: Sequence[Any]) -> pd.DataFrame:
        found = (models, alike, *made.point(), intervals, sizes, "", context.small)
        return main_table(*found, doubts=doubts, decisions_of=rules)

    at = work.scores.rules[len(DECISIONS) :]
    drawn = pd.DataFrame(made.draws(context.settings["random_state"])[AUDITED])
    effect = made.of(Key(AUDITED, models[0].name, "threshold", "mean_unfair_effect"))
    text = (
        f"{FITS} sources were fitted on {fitted:,} rows each, drawn at random, and {JUDGES} that did not see it judged "
        f"each row. Diagnostics of stages, and the comparison of groups, are those of the first sample. Of the standard "
        f"error of the first model's unfair effect, {effect.spread:.2g}, {np.sqrt(effect.more):.2g} comes from the samples."
    )
    return replace(
        pilot,
        table=tabled(context.doubts, DECISIONS),
        draws=drawn[[each for each in drawn if each[1] in DECISIONS]],
        influence=pilot.influence.iloc[:0],
        thresholds=name_thresholds(tabled(context.threshold_doubts, at)) if at else pilot.thresholds,
        subgroups=_subgroups(pilot, sums, work, parts, shared, larger),
        context=replace(
            context, rows=whole.rows, weight=None, inflation=1.0, resampling=text, warnings=[*context.warnings, *poor]
        ),  # fmt: skip
    )


def _subgroups(
    pilot: Audit, sums: Mapping[Any, Sums], work: Work, parts: Partitions, shared: bool, larger: float
) -> pd.DataFrame:
    """Return the table of subgroups; whether a level is in doubt, or has too few rows, shows in the first sample."""
    labels = work.labels[work.labels.get_level_values(1) == "threshold"]
    known = pilot.subgroups.set_index(["subgroup", "level", "quantity"])
    rows = []
    for name in work.subgroups:
        own = pd.Series([key[1] for key in sums if key is not None and key[0] == name], dtype=parts.levels.get(name))
        for value in own.sort_values():
            of, place = sums[name, value], (name, str(value), "mean_unfair_effect")
            ess, reason, doubt = np.nan, "no row in the first sample", ""
            if place in known.index:
                first = known.loc[[place]].iloc[0]
                ess, note = float(first["ess"]) * larger, str(first["note"])
                reason = note.partition("no estimate: ")[2]
                doubt = note.partition("in doubt: ")[2] if pd.notna(first["estimate"]) else ""
            level = Level(name, str(value), of.rows, of.effective, ess, reason, doubt)
            made = of.estimates(labels, shared)
            rows += [estimate_level(level, made, each.name, q) for each in work.scores.models for q in QUANTITIES]
    return tell_subgroups(rows, pilot.context.level) if rows else pilot.subgroups
