"""Propensities fitted on rows in batches, in bounded memory: each pass adds up Newton's terms of all prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import RegimeEstimand
from pyrofair.sources.designs import CodedDesign, LogisticTerms, least_norm_step
from pyrofair.sources.propensity import (
    GroupOverlap,
    Logistic,
    Nuisances,
    OverlapTerms,
    Prefix,
    Propensity,
    Rows,
    Saturated,
    unsupported_cells,
)
from pyrofair.tables.batches import Batches, Moments, batch_weight
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import encode_levels, read_sensitive
from pyrofair.tables.reading import feature_columns, read_table, warn_unused

__all__ = ["BatchNuisances", "RowReader", "fit_in_batches"]

MOST_COLUMNS = 4_000
"""Newton's curvature of so many encoded columns takes 128 MB."""
TOLERANCE, MOST_PASSES = 1e-12, 60


@dataclass(frozen=True)
class RowReader:
    """Reads a frame of batches as rows, with their weights from a column if one is named."""

    graph: CausalGraph
    weight: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return [*feature_columns(self.graph), *([self.weight] if self.weight else [])]

    def __call__(self, frame: pd.DataFrame) -> Rows:
        """Return checked rows, none of which is known by a position."""
        table = read_table(frame, feature_columns(self.graph), what="The batches")
        a = read_sensitive(table, self.graph, both=False)
        return Rows(table, a, batch_weight(frame, self.weight), np.ones(len(a), dtype=bool))


@dataclass(frozen=True)
class Summary:
    """What one pass finds: rows, weights and one row of either group; moments of numbers, weights of levels."""

    rows: int
    groups: NDArray[np.float64]
    first: dict[int, list[pd.DataFrame]]
    moments: Moments
    seen: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, rows: Rows, levels: Mapping[str, pd.CategoricalDtype]) -> Summary:
        """Return the summary of some rows whose columns of categories have these levels."""
        by_group = [rows.weight * (rows.a == value) for value in (0, 1)]
        numbers = rows.table[[name for name in rows.table.columns if name not in levels]]
        seen = {}
        for name, dtype in levels.items():
            codes = encode_levels(rows.table[name], dtype.categories)
            seen[name] = np.column_stack([np.bincount(codes, w, len(dtype.categories)) for w in by_group])
        return cls(
            len(rows.a),
            np.array([w.sum() for w in by_group]),
            {value: [rows.table.iloc[[int(np.argmax(rows.a == value))]]] for value in (0, 1) if (rows.a == value).any()},
            Moments.of(numbers.to_numpy(dtype=np.float64), rows.weight),
            seen,
        )

    def __add__(self, other: Summary) -> Summary:
        first = {value: [*self.first.get(value, ()), *other.first.get(value, ())][:1] for value in (0, 1)}
        return Summary(
            self.rows + other.rows,
            self.groups + other.groups,
            {value: frames for value, frames in first.items() if frames},
            self.moments + other.moments,
            {name: each + other.seen[name] for name, each in self.seen.items()},
        )


@dataclass
class BatchNuisances(Nuisances):
    """Propensities fitted on rows that are not held: ``rows`` is one of either group, which shows the types.

    Any row is judged by the fitted models, and ``batches`` are read again when a further prefix is asked for.
    """

    batches: Batches | None = None
    reader: RowReader | None = None
    summary: Summary | None = None
    cells: Rows | None = None
    overlaps: dict[tuple[str, int | None], GroupOverlap] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """The number of fitted rows."""
        return self._summary.rows

    @property
    def _summary(self) -> Summary:
        assert self.summary is not None
        return self.summary

    @property
    def _data(self) -> tuple[Batches, RowReader]:  # type: ignore[override]
        if self.batches is None or self.reader is None:
            raise DataError("These propensities have lost the batches that they were fitted on; fit the source anew.")
        return self.batches, self.reader

    def __getstate__(self) -> dict[str, Any]:
        """Return what judges rows, without the batches: workers need no more."""
        return self.__dict__ | {"batches": None, "matches": []}

    # -- rows ---------------------------------------------------------------------------------------------------------

    def positions(self, df: object) -> NDArray[np.int64]:
        """Return -1 for each row: which rows it was fitted on is not kept."""
        return np.full(len(read_table(df, feature_columns(self.graph))), -1)

    def rows_of(self, df: pd.DataFrame | None, sample_weight: npt.ArrayLike | None) -> Rows:
        """Return a table with weights as rows to be judged by the fitted models."""
        if df is None:
            raise DataError(
                "The source was fitted on batches, and does not hold their rows. Give rows, df=..., or take each "
                "batch: for frame in batches: source.weights(regime, frame)."
            )
        table = read_table(df, feature_columns(self.graph))
        a = read_sensitive(table, self.graph, both=False)
        weight = np.ones(len(a)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return Rows(table, a, weight, np.ones(len(a), dtype=bool))

    def probability(self, rows: Rows, prefix: Prefix, *, clip: bool = True) -> NDArray[np.float64]:
        """Return P(A = 1 | prefix) of each row, shape (n,), by the fitted model."""
        if prefix not in rows.probability:
            rows.probability[prefix] = self.model(prefix).predict(rows.table[self.graph.columns_of(prefix)])
        p = rows.probability[prefix]
        return np.clip(p, self.clip, 1.0 - self.clip) if clip and self.clip is not None else p

    # -- fitting ------------------------------------------------------------------------------------------------------

    def model(self, prefix: Prefix) -> Propensity:
        """Return the propensity of a prefix, fitting it if it was not yet."""
        if prefix not in self.models:
            self.fit_prefixes([prefix])
        return self.models[prefix]

    def refit(self, weight: NDArray[np.float64]) -> Nuisances:
        """Refuse: the rows are not held."""
        raise DataError(
            "The source was fitted on batches, so that a replicate needs these: audit(models, source, batches)."
        )

    def fit_prefixes(self, prefixes: Iterable[Prefix]) -> None:
        """Fit the propensities of several prefixes, in passes that serve all of them."""
        new = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self.models]
        if self.propensity == "saturated" or () in new:
            cells = self.cells
            for prefix in new:
                if prefix and self.propensity != "saturated":
                    continue
                if cells is None or not prefix:  # the groups alone
                    a = np.array([0, 1], dtype=np.int8)
                    table, weight = pd.DataFrame(index=range(2)), self._summary.groups
                else:
                    a, table, weight = cells.a, cells.table[self.graph.columns_of(prefix)], cells.weight
                self.models[prefix] = Saturated().fit(table, a, weight)
        self._fit_logistic([prefix for prefix in new if prefix not in self.models])

    def _fit_logistic(self, prefixes: list[Prefix]) -> None:
        """Maximise the likelihoods by Newton's method with halved steps, as :func:`newton_logistic` does."""
        if not prefixes:
            return
        batches, reader = self._data
        encoders = {prefix: self._encoder(prefix, batches) for prefix in prefixes}
        scale = float(self._summary.groups.sum())
        searches = {prefix: _Search(np.zeros(1 + each.width_)) for prefix, each in encoders.items()}
        for _ in range(MOST_PASSES):
            trial = {prefix: search.trial for prefix, search in searches.items() if not search.done}
            if not trial:
                break
            work = _NewtonPass(reader, self.graph, {prefix: encoders[prefix] for prefix in trial}, trial)
            for prefix, terms in batches.total(work).items():
                searches[prefix].judge(terms, scale)
        for prefix, search in searches.items():
            model = Logistic()
            model.encoder_, model.coef_ = encoders[prefix], search.coef
            self.models[prefix] = model

    def _encoder(self, prefix: Prefix, batches: Batches) -> TableEncoder:
        columns, summary = self.graph.columns_of(prefix), self._summary
        numeric = [name for name in feature_columns(self.graph) if name not in batches.levels]
        moments = {
            name: (summary.moments.mean[i], summary.moments.variance[i])
            for i, name in enumerate(numeric)
            if name in columns
        }
        levels = {name: batches.levels[name].categories for name in columns if name in batches.levels}
        encoder = TableEncoder().set_levels(levels, moments)
        if encoder.width_ > MOST_COLUMNS:
            widest = max(levels, key=lambda name: len(levels[name]))
            raise DataError(
                f"The propensity given {', '.join(columns)} has {encoder.width_:,} encoded columns, more than "
                f"{MOST_COLUMNS:,} in batches. The column {widest!r} has {len(levels[widest]):,} categories: join rare "
                "ones."
            )
        return encoder

    # -- overlap ------------------------------------------------------------------------------------------------------

    def find_overlaps(self, wanted: Iterable[tuple[RegimeEstimand, int | None]]) -> None:
        """Find the overlap of groups in worlds, in passes that serve all of them."""
        new = [(part, group) for part, group in wanted if (part.regime.name, group) not in self.overlaps]
        if not new:
            return
        batches, reader = self._data
        prefixes = [prefix for part, group in new for prefix in part.weight(group).prefixes]
        self.fit_prefixes([*prefixes, *(part.order[: part.roots] for part, _ in new)])
        terms = batches.total(_OverlapPass(self, reader, new))
        rows, seen = self._lacking_rows(new)
        for (part, group), each in zip(new, terms, strict=True):
            lacking = unsupported_cells(part, group, self, rows, seen)
            self.overlaps[part.regime.name, group] = each.overlap(part, group, self, *lacking)

    def overlap(self, part: RegimeEstimand, group: int | None) -> GroupOverlap:
        """Return how well a group supports a world among the fitted rows."""
        self.find_overlaps([(part, group)])
        return self.overlaps[part.regime.name, group]

    def _lacking_rows(
        self, wanted: list[tuple[RegimeEstimand, int | None]]
    ) -> tuple[Rows, Mapping[str, NDArray[np.float64]] | None]:
        """Return the rows with a level that one group lacks, equal ones joined, and the weights of all levels."""
        if self.cells is not None:
            return self.cells, None
        batches, reader = self._data
        seen = self._summary.seen
        absent = {name: np.flatnonzero((by.sum(axis=1) > 0) & (by == 0).any(axis=1)) for name, by in seen.items()}
        if not any(map(len, absent.values())):
            empty = self.rows.table.iloc[:0]
            return Rows(empty, self.rows.a[:0], self.rows.weight[:0], self.rows.kept[:0]), seen or {
                "": self._summary.groups[None, :]
            }
        self.fit_prefixes(part.weight(None, i).prefixes[j] for part, _ in wanted for i in range(1, len(part.order) + 1)
                          for j in range(len(part.weight(None, i).prefixes)))
        work = _GroupPass(reader, {name: codes for name, codes in absent.items() if len(codes)})
        return _joined(batches.total(work), self.graph), seen


@dataclass
class _Search:
    """Newton's method with halved steps on one likelihood, of which each pass evaluates a trial."""

    coef: NDArray[np.float64]
    step: NDArray[np.float64] | None = None
    size: float = 1.0
    loss: float = np.inf
    done: bool = False

    @property
    def trial(self) -> NDArray[np.float64]:
        return self.coef if self.step is None else self.coef + self.size * self.step

    def judge(self, terms: LogisticTerms, scale: float) -> None:
        """Take the trial or halve the step, and find the next one."""
        loss = terms.loss / scale
        # Near the maximum the loss is flat to its last digit, which must not shorten the last steps.
        if self.step is not None and loss > self.loss * (1.0 + 1e-13) and self.size > 1e-6:
            self.size /= 2.0
            return
        self.coef = self.trial
        self.done = self.step is not None and self.loss - loss <= TOLERANCE * (abs(loss) + TOLERANCE)
        self.loss, self.size = loss, 1.0
        self.step = least_norm_step(terms.curvature / scale, terms.gradient / scale)


@dataclass(frozen=True)
class _NewtonPass:
    """The Newton terms of several propensities on one frame."""

    reader: RowReader
    graph: CausalGraph
    encoders: Mapping[Prefix, TableEncoder]
    coef: Mapping[Prefix, NDArray[np.float64]]

    def __call__(self, frame: pd.DataFrame) -> dict[Prefix, LogisticTerms]:
        rows = self.reader(frame)
        return {
            prefix: LogisticTerms.of(
                CodedDesign.of(encoder, rows.table[self.graph.columns_of(prefix)]), rows.a, rows.weight, self.coef[prefix]
            )
            for prefix, encoder in self.encoders.items()
        }


@dataclass(frozen=True)
class _SummaryPass:
    reader: RowReader
    levels: Mapping[str, pd.CategoricalDtype]

    def __call__(self, frame: pd.DataFrame) -> Summary:
        return Summary.of(self.reader(frame), self.levels)


@dataclass(frozen=True)
class _OverlapPass:
    nuisances: BatchNuisances
    reader: RowReader
    wanted: list[tuple[RegimeEstimand, int | None]]

    def __call__(self, frame: pd.DataFrame) -> tuple[OverlapTerms, ...]:
        rows = self.reader(frame)
        groups = self.nuisances._summary.groups
        share = float(groups[1] / groups.sum())
        return tuple(OverlapTerms.of(part, group, self.nuisances, rows, share) for part, group in self.wanted)


@dataclass(frozen=True)
class _GroupPass:
    """Equal rows of one frame joined, with their weight: all, or those with some levels."""

    reader: RowReader
    levels: Mapping[str, NDArray[np.int64]] | None = None

    def __call__(self, frame: pd.DataFrame) -> list[pd.DataFrame]:
        rows = self.reader(frame)
        table, weight = rows.table, rows.weight
        if self.levels is not None:
            kept = np.zeros(len(table), dtype=bool)
            for name, codes in self.levels.items():
                kept |= np.isin(table[name].cat.codes.to_numpy(), codes)
            table, weight = table[kept], weight[kept]
        return [_join_equal(table, weight)] if len(table) else []


WEIGHT = "weight of equal rows"


def _join_equal(table: pd.DataFrame, weight: NDArray[np.float64] | pd.Series[Any]) -> pd.DataFrame:
    columns = list(table.columns)
    joined = table.assign(**{WEIGHT: np.asarray(weight)}).groupby(columns, observed=True, sort=True)[WEIGHT].sum()
    return joined.reset_index()


def _joined(frames: list[pd.DataFrame], graph: CausalGraph) -> Rows:
    """Return frames of joined rows as one table of different rows."""
    every = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    joined = _join_equal(every.drop(columns=WEIGHT), every[WEIGHT])
    table = joined.drop(columns=WEIGHT)
    a = read_sensitive(table, graph, both=False)
    return Rows(table, a, joined[WEIGHT].to_numpy(), np.ones(len(a), dtype=bool))


def fit_in_batches(
    graph: CausalGraph, propensity: Any, batches: Batches, weight: str | None, clip: float | None
) -> BatchNuisances:
    """Return unfitted propensities on batches, with their rows read and checked once.

    A DataError if the propensity needs all rows at once, or if the sensitive attribute has one value only.
    """
    if not isinstance(propensity, str) or propensity not in ("logistic", "saturated"):
        name = repr(propensity) if isinstance(propensity, str) else type(propensity).__name__
        raise DataError(
            f"propensity={name} needs all rows in memory. On batches the propensity is 'logistic' or 'saturated', whose "
            "terms add up over batches."
        )
    reader = RowReader(graph, weight)
    warn_unused(pd.DataFrame(columns=list(batches.columns)), graph, () if weight is None else (weight,))
    own = batches.select(reader.columns)
    levels = {name: dtype for name, dtype in own.levels.items() if name != weight}
    summary = own.total(_SummaryPass(reader, levels))
    first = pd.concat([frames[0] for frames in summary.first.values()])
    a = read_sensitive(first, graph)
    rows = Rows(first, a, np.ones(len(a)), np.ones(len(a), dtype=bool))
    if not (summary.groups > 0.0).all():
        raise DataError("A group has no row with a weight above 0; both are needed to compare them.")
    cells = _joined(own.total(_GroupPass(reader)), graph) if propensity == "saturated" else None
    return BatchNuisances(
        graph, propensity, rows, 0, clip, batches=own, reader=reader, summary=summary, cells=cells
    )
