"""Propensities fitted on rows in batches, in bounded memory: each pass adds up Newton's terms of all prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.special import expit

from pyrofair._random import EXPONENTIALS, KeyedWeights
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import RegimeEstimand
from pyrofair.sources.designs import CodedDesign, LogisticTerms, fixed_columns, newton_step
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
from pyrofair.tables.batches import Batches, Moments, add_sums, batch_weight
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import encode_levels, read_sensitive
from pyrofair.tables.reading import feature_columns, read_table, warn_unused

__all__ = ["BatchNuisances", "ReplicateWeights", "RowReader", "fit_in_batches", "fit_replicates"]

MOST_COLUMNS = 4_000
"""Newton's curvature of so many encoded columns takes 128 MB."""
TOLERANCE, MOST_PASSES = 1e-12, 60
BLOCK = EXPONENTIALS
"""The rows of which the weights of all replicates are held at once."""
DENSE = 128
"""Blocks of so many encoded columns are dense matrices, wider ones sparse."""
CONVERGED, NEWTON_CONVERGED, MOST_REPLICATE_PASSES = 1e-10, 1e-6, 30
"""Replicates end where a step changes the log-odds by less; by their own curvature the error left is its square."""
SLOW = 0.3
"""Replicates whose steps shrink by less get a curvature of their own."""
FLAT = 1e-10
"""Directions of less curvature, relative to each column's own, are left out."""


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
            sums = [np.bincount(codes, w, len(dtype.categories)) for w in by_group]
            seen[name] = np.column_stack(sums).astype(np.float64)
        return cls(
            len(rows.a),
            np.array([w.sum() for w in by_group]),
            {
                value: [rows.table.iloc[[int(np.argmax(rows.a == value))]]]
                for value in (0, 1)
                if (rows.a == value).any()
            },
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
        self.fit_prefixes(
            part.weight(None, i).prefixes[j]
            for part, _ in wanted
            for i in range(1, len(part.order) + 1)
            for j in range(len(part.weight(None, i).prefixes))
        )
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
        self.step = newton_step(terms.curvature / scale, terms.gradient / scale)


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
                CodedDesign.of(encoder, rows.table[self.graph.columns_of(prefix)]),
                rows.a,
                rows.weight,
                self.coef[prefix],
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
            f"propensity={name} needs all rows in memory. On batches it is 'logistic' or 'saturated', whose terms "
            "add up over batches."
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
    return BatchNuisances(graph, propensity, rows, 0, clip, batches=own, reader=reader, summary=summary, cells=cells)


# -- replicates -------------------------------------------------------------------------------------------------------


World = tuple[str, RegimeEstimand, int | None]
"""A label, the estimand of a world, and the group that is weighted (None: both)."""


@dataclass(frozen=True)
class ReplicateWeights:
    """The weight of each row in worlds, by the fit and by its refits on replicates' weights: a function of rows.

    ``worlds`` gives for each label the estimands and groups of both worlds. ``coef`` are the coefficients of logistic
    propensities (k, 1 + B), and ``shares`` the group shares of cells (cells, 1 + B), the fit's own first; ``failed``
    (1 + B,) marks replicates that did not converge, and a mean is over weights if ``normalized``, or else over rows.
    """

    nuisances: BatchNuisances
    worlds: Mapping[str, tuple[tuple[RegimeEstimand, int | None], tuple[RegimeEstimand, int | None]]]
    coef: Mapping[Prefix, NDArray[np.float64]]
    shares: Mapping[Prefix, NDArray[np.float64]]
    failed: NDArray[np.bool_]
    normalized: bool

    def arm(self, label: str, world: int) -> int | None:
        """Return the value of the sensitive attribute that a classifier reads in a world; None: the observed one."""
        return self.worlds[label][world][0].outcome_arm

    def weights(self, frame: pd.DataFrame) -> dict[tuple[str, int], NDArray[np.float64]]:
        """Return for each label and world the weights of n rows, (n, 1 + B), 0 outside the weighted group."""
        rows = self.nuisances.rows_of(frame, None)
        probability: dict[Prefix, NDArray[np.float64]] = {}
        clip = self.nuisances.clip

        def of(prefix: Prefix) -> NDArray[np.float64]:
            if prefix not in probability:
                p = self._probability(rows, prefix)
                probability[prefix] = p if clip is None else np.clip(p, clip, 1.0 - clip)
            return probability[prefix]

        made: dict[tuple[str, int | None], NDArray[np.float64]] = {}
        found = {}
        for label, pair in self.worlds.items():
            for world, (part, group) in enumerate(pair):
                key = part.regime.name, group
                if key not in made:
                    w = np.broadcast_to(part.weight(group).evaluate(of), (len(rows.a), len(self.failed)))
                    made[key] = np.where(rows.member(group)[:, None] & ~np.isnan(w), w, 0.0)
                found[label, world] = made[key]
        return found

    def read_in(self, frame: pd.DataFrame, arm: int | None) -> pd.DataFrame:
        """Return rows as a classifier reads them in a world where the outcome reads an arm."""
        rows = self.nuisances.rows_of(frame, None)
        return rows.as_read(np.arange(len(rows.a)), arm, self.nuisances.graph, self.nuisances.rows)[0]

    def _probability(self, rows: Rows, prefix: Prefix) -> NDArray[np.float64]:
        model: Any = self.nuisances.model(prefix)
        columns = rows.table[self.nuisances.graph.columns_of(prefix)]
        if prefix in self.shares:
            return np.asarray(self.shares[prefix][model.positions(columns)])
        return np.asarray(expit(_block_matrix(model.encoder_, columns) @ self.coef[prefix]))


def _block_matrix(encoder: TableEncoder, X: pd.DataFrame) -> Any:
    """Return the design of a block of rows, dense or sparse."""
    if encoder.width_ > DENSE:
        return sparse.hstack([sparse.csr_array(np.ones((len(X), 1))), encoder.transform_sparse(X)], format="csr")
    return CodedDesign.of(encoder, X).dense()


def fit_replicates(
    nuisances: BatchNuisances,
    worlds: Mapping[str, tuple[tuple[RegimeEstimand, int | None], tuple[RegimeEstimand, int | None]]],
    keys: KeyedWeights,
    *,
    normalized: bool,
) -> ReplicateWeights:
    """Return the weights of worlds by the fit and by refits on the weights of replicates, which share each pass."""
    prefixes = list(
        dict.fromkeys(p for pair in worlds.values() for part, group in pair for p in part.weight(group).prefixes)
    )
    nuisances.fit_prefixes(prefixes)
    logistic = [prefix for prefix in prefixes if isinstance(nuisances.models[prefix], Logistic)]
    shares = _replicate_shares(nuisances, [prefix for prefix in prefixes if prefix not in logistic], keys)
    coef, failed = _replicate_coefficients(nuisances, logistic, keys)
    return ReplicateWeights(nuisances, worlds, coef, shares, failed, normalized)


def _replicate_shares(
    nuisances: BatchNuisances, prefixes: list[Prefix], keys: KeyedWeights
) -> dict[Prefix, NDArray[np.float64]]:
    """Return the group shares of each prefix's cells (cells, 1 + B), from one pass."""
    if not prefixes:
        return {}
    batches, reader = nuisances._data
    cells = nuisances.cells
    if cells is None:
        sums = np.asarray(batches.total(_CellPass(reader, None, keys)))
        a = np.array([0, 1])
        table = pd.DataFrame(index=range(2))
    else:
        finest = Saturated().fit(cells.table, cells.a, cells.weight)
        sums = np.asarray(batches.total(_CellPass(reader, finest, keys)))
        order = finest.positions(cells.table)
        sums, a, table = sums[order], cells.a, cells.table
    found = {}
    for prefix in prefixes:
        model: Any = nuisances.models[prefix]
        at = model.positions(table[nuisances.graph.columns_of(prefix)])
        total, one = np.zeros((2, len(model.cells_), sums.shape[1]))
        np.add.at(total, at, sums)
        np.add.at(one, at[a == 1], sums[a == 1])
        found[prefix] = one / total
    return found


@dataclass(frozen=True)
class _CellPass:
    """The weight of each cell in the fit and in all replicates, (cells, 1 + B); without cells that of either group."""

    reader: RowReader
    finest: Saturated | None
    keys: KeyedWeights

    def __call__(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        rows = self.reader(frame)
        cell = rows.a.astype(np.int64) if self.finest is None else self.finest.positions(rows.table)
        size = 2 if self.finest is None else len(self.finest.cells_)
        found = np.zeros((size, 1 + self.keys.replicates))
        for at, number in blocks(frame):
            drawn = self.keys.of(number, number + at.stop - at.start) * rows.weight[at, None]
            one_hot: Any = sparse.csr_array(
                (np.ones(len(drawn)), (cell[at], np.arange(len(drawn)))), (size, len(drawn))
            )
            found += one_hot @ drawn
        return found


def blocks(frame: pd.DataFrame) -> Iterator[tuple[slice, int]]:
    """Yield the rows of a frame in blocks, and the number of the first row of each."""
    first = int(frame.index[0])
    start = 0
    while start < len(frame):
        stop = min(start + BLOCK - (first + start) % BLOCK, len(frame))
        yield slice(start, stop), first + start
        start = stop


def _replicate_coefficients(
    nuisances: BatchNuisances, prefixes: list[Prefix], keys: KeyedWeights
) -> tuple[dict[Prefix, NDArray[np.float64]], NDArray[np.bool_]]:
    """Return the coefficients of each prefix in the fit and in all replicates (k, 1 + B), and which did not converge.

    Each pass makes the gradients of all replicates. A step takes the curvature of the fit, scaled to the diagonal of
    the replicate's own: the difference is of the order of one over the square root of the rows, by which errors shrink
    in each pass, and levels of few rows are exact by themselves.
    """
    size = 1 + keys.replicates
    failed = np.zeros(size, dtype=bool)
    if not prefixes:
        return {}, failed
    models: dict[Prefix, Any] = {prefix: nuisances.models[prefix] for prefix in prefixes}
    coef = {prefix: np.repeat(model.coef_[:, None], size, axis=1) for prefix, model in models.items()}
    if not keys.replicates:
        return coef, failed
    batches, reader = nuisances._data
    encoders = {prefix: model.encoder_ for prefix, model in models.items()}
    base = batches.total(_NewtonPass(reader, nuisances.graph, encoders, {p: m.coef_ for p, m in models.items()}))
    weights = {name: by_group.sum(axis=1) for name, by_group in nuisances._summary.seen.items()}
    steps = {p: _ReplicateSteps.of(terms.curvature, encoders[p], weights, size) for p, terms in base.items()}
    for _ in range(MOST_REPLICATE_PASSES):
        active = {prefix: step for prefix, step in steps.items() if not step.done}
        if not active:
            break
        free = {prefix: step.free for prefix, step in active.items()}
        own = {prefix: step.slow for prefix, step in active.items()}
        current = {prefix: coef[prefix] for prefix in active}
        found = batches.total(_ReplicatePass(reader, nuisances.graph, encoders, current, free, own, keys))
        for prefix, step in active.items():
            coef[prefix] = coef[prefix].copy()
            coef[prefix][step.free] += step.step(*found[prefix])
            coef[prefix][:, step.restarted] = models[prefix].coef_[:, None]
    for step in steps.values():
        failed |= step.open
    return coef, failed


@dataclass
class _ReplicateSteps:
    """The steps of all replicates of one propensity; ``free`` are the columns but one reference of each category."""

    free: NDArray[np.int64]
    inverse: NDArray[np.float64]
    change: NDArray[np.float64]
    open: NDArray[np.bool_]
    loss: NDArray[np.float64]
    last: NDArray[np.float64]
    slow: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    restarted: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def done(self) -> bool:
        """Whether all replicates have converged."""
        return not self.open.any()

    @classmethod
    def of(
        cls,
        curvature: NDArray[np.float64],
        encoder: TableEncoder,
        weights: Mapping[str, NDArray[np.float64]],
        size: int,
    ) -> _ReplicateSteps:
        """Return the steps by the curvature (k, k) of the fit, and the weights of the levels of each category."""
        diagonal = np.diag(curvature)
        first = 1 + len(encoder.numeric_)
        held = np.concatenate([np.zeros(first), *(weights[name] for name in encoder.categories_)])
        levels = [len(own) for own in encoder.categories_.values()]
        free = np.flatnonzero(~fixed_columns(diagonal, held, first, levels) & (diagonal > 0.0))
        root = np.sqrt(diagonal[free])
        inverse = linalg.pinvh(curvature[np.ix_(free, free)] / np.outer(root, root), rtol=FLAT)
        unknown = np.full(size, np.inf)
        return cls(free, inverse, unknown, np.arange(size) > 0, unknown.copy(), np.zeros((len(free), size)))

    def step(
        self, total: NDArray[np.float64], gradient: NDArray[np.float64], diagonal: NDArray[np.float64], own: Any
    ) -> NDArray[np.float64]:
        """Return the steps (free, 1 + B), from the weights (1 + B,), gradients and diagonals of all replicates."""
        root = np.sqrt(np.maximum(diagonal, np.finfo(np.float64).tiny))
        step = (self.inverse @ (gradient / root)) / root
        halved = []
        for i, terms in zip(self.slow, own, strict=True):
            if terms.loss > self.loss[i] * (1.0 + 1e-13):
                step[:, i] = -self.last[:, i] / 2.0  # back to the middle of a step that was too long
                halved.append(i)
            else:
                self.loss[i] = terms.loss
                step[:, i] = newton_step(terms.curvature[np.ix_(self.free, self.free)], gradient[:, i])
        step[:, 0] = 0.0  # the fit itself
        before = self.change.copy()
        self.change = np.sqrt(np.maximum(np.einsum("kb,kb->b", step, gradient), 0.0) / total)
        self.change[halved] = np.inf
        step[:, ~self.open] = 0.0
        near = np.full(len(self.change), CONVERGED)
        near[self.slow] = NEWTON_CONVERGED
        self.open &= ~(self.change <= near)
        slow = self.open & (self.change > SLOW * before)
        self.restarted = np.setdiff1d(np.flatnonzero(slow), self.slow)  # from the fit, where no probability is extreme
        self.slow = np.union1d(self.slow[self.open[self.slow]], self.restarted)
        self.last = step.copy()
        self.last[:, halved] *= -1.0  # half of the step that was too long is left
        return step


@dataclass(frozen=True)
class _ReplicatePass:
    """The gradients of all replicates' likelihoods, the diagonals of their curvatures, and whole ones where asked."""

    reader: RowReader
    graph: CausalGraph
    encoders: Mapping[Prefix, TableEncoder]
    coef: Mapping[Prefix, NDArray[np.float64]]
    free: Mapping[Prefix, NDArray[np.int64]]
    own: Mapping[Prefix, NDArray[np.int64]]
    keys: KeyedWeights

    def __call__(self, frame: pd.DataFrame) -> dict[Prefix, tuple[Any, ...]]:
        rows = self.reader(frame)
        found: Any = None
        for at, number in blocks(frame):
            drawn = self.keys.of(number, number + at.stop - at.start) * rows.weight[at, None]
            total = drawn.sum(axis=0)
            a = rows.a[at, None]
            of_block: dict[Prefix, tuple[Any, ...]] = {}
            for prefix, coef in self.coef.items():
                X = rows.table[self.graph.columns_of(prefix)].iloc[at]
                matrix = _block_matrix(self.encoders[prefix], X)
                p = expit(matrix @ coef)
                curved = drawn * p * (1.0 - p)
                own: tuple[Any, ...] = ()
                if len(self.own[prefix]):
                    own = tuple(
                        LogisticTerms.of(CodedDesign.of(self.encoders[prefix], X), a[:, 0], drawn[:, i], coef[:, i])
                        for i in self.own[prefix]
                    )
                part: Any = matrix[:, self.free[prefix]]
                squares: Any = part.power(2) if hasattr(part, "power") else part**2
                of_block[prefix] = total, part.T @ (drawn * (a - p)), squares.T @ curved, own
            found = add_sums(found, of_block)
        return found  # type: ignore[no-any-return]
