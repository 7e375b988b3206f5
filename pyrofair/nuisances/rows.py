"""Rows with their groups and weights, the propensities of A given prefixes of an order, and the weights they make."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from pyrofair._random import seed_for
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import RegimeEstimand
from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.nuisances.folds import FOLDS, Folds, split_folds
from pyrofair.nuisances.learners import LearnerName
from pyrofair.tables.labels import read_sensitive, repeat_label
from pyrofair.tables.reading import as_pandas, feature_columns, read_groups, read_table, read_weight
from pyrofair.tables.recorded import Missing, as_recorded, with_flags
from pyrofair.tables.row_identity import hash_groups, match_rows

__all__ = ["Nuisances", "Prefix", "Rows", "judge_unseen"]

MOST_OFF, SURE = 0.2, 4.0
"""A mean probability whose logarithm is off by more, and by so many standard errors, is the model's, not chance."""
MOST_KEPT = 100_000
"""Worlds of so many rows are kept for replicates; more would take memory, and little of the time."""
Prefix = tuple[str, ...]


@dataclass
class Rows:
    """A table of n rows with A in 0 and 1, sample weights, and whether each is kept or trimmed, all (n,).

    ``position`` is that of each row among the fitted rows, shape (n,), -1 for others; None: they are the fitted rows.
    ``stream`` seeds what is drawn for them, beside the source's own seed: of a part of a table its number.
    ``shown`` are the rows as classifiers read them, where that is not as nuisance models do: with missing values.
    Fitted rows of one of the ``groups`` (n,), such as a household, share a fold, and diagnostics count groups; they are
    numbers of the labels, the same in every table. None: each row is one by itself.
    """

    table: pd.DataFrame
    a: NDArray[np.int8]
    weight: NDArray[np.float64]
    kept: NDArray[np.bool_]
    probability: dict[Prefix, NDArray[np.float64]] = field(default_factory=dict)
    position: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    views: dict[tuple[int | None, int | None], tuple[pd.DataFrame, NDArray[np.int64]]] = field(default_factory=dict)
    stream: tuple[int, ...] = ()
    shown: pd.DataFrame | None = None

    @classmethod
    def read(
        cls,
        df: object,
        sample_weight: object,
        graph: CausalGraph,
        groups: npt.ArrayLike | str | None = None,
        missing: Missing | None = None,
    ) -> Rows:
        """Return the rows of a table to fit on, which need not hold the outcome."""
        table = read_table(df, feature_columns(graph), missing=missing)
        weight = read_weight(sample_weight, table)
        a = read_sensitive(table, graph, weight=weight)
        own = hash_groups(read_groups(groups, as_pandas(df), graph))
        return cls.of(table, a, weight, table, groups=own)

    @classmethod
    def of(
        cls, table: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64], like: pd.DataFrame, **more: Any
    ) -> Rows:
        """Return rows that have been read, missing values as in those to fit on, ``like``."""
        recorded = as_recorded(table, like)
        shown = None if recorded is table else table
        return cls(recorded, a, weight, np.ones(len(a), dtype=bool), shown=shown, **more)

    @property
    def given(self) -> pd.DataFrame:
        """The rows as they were given, which classifiers read."""
        return self.table if self.shown is None else self.shown

    def member(self, group: int | None) -> NDArray[np.bool_]:
        """Return which rows are kept and of a group (None: of either), shape (n,)."""
        return self.kept if group is None else self.kept & (self.a == group)

    def near(self, at: NDArray[Any]) -> NDArray[np.int64] | None:
        """Return the groups of some rows; None without groups."""
        return None if self.groups is None else self.groups[at]

    def weighted(
        self, group: int | None, arm: int | None, graph: CausalGraph, like: Rows
    ) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """Return the kept rows of a group as read (:meth:`as_read`); for replicates those of small tables are kept."""
        if len(self.a) > MOST_KEPT or not self.kept.all():
            return self.as_read(np.flatnonzero(self.member(group)), arm, graph, like)
        if (group, arm) not in self.views:
            self.views[group, arm] = self.as_read(np.flatnonzero(self.member(group)), arm, graph, like)
        features, origin = self.views[group, arm]
        return features.copy(), origin.copy()

    def as_read(
        self, index: NDArray[np.int64], arm: int | None, graph: CausalGraph, like: Rows
    ) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """Return some rows as the classifier reads them in a world where the outcome reads an arm, if it reads one.

        Beside them is the position of each, or -1 where its sensitive attribute was changed, to the label that it has
        among these rows or else those of ``like``.
        """
        features = self.given[graph.input_columns].iloc[index]
        changed = self.a[index] != arm if arm is not None else np.zeros(len(index), bool)
        if changed.any():
            name = graph.sensitive_column
            source = self if (self.a == arm).any() else like
            label = repeat_label(source.table[name], graph.label(int(arm == 1)), features.index)
            features = features.assign(**{name: label.astype(self.table[name].dtype)})
        return features, np.where(changed, -1, index).astype(np.int64)

    def others(self, at: NDArray[np.int64], stream: tuple[int, ...]) -> Rows:
        """Return some of the rows, as rows that were not fitted on."""
        shown = None if self.shown is None else self.shown.iloc[at]
        parts = self.table.iloc[at], self.a[at], self.weight[at], self.kept[at]
        return Rows(*parts, position=np.full(len(at), -1), stream=stream, shown=shown)

    def part(self, at: NDArray[np.int64]) -> Rows:
        """Return some of the rows, if they were fitted on, as such."""
        return replace(self.others(at, self.stream), position=at, groups=self.near(at))


@dataclass
class Nuisances:
    """The propensities P(A = 1 | prefix), fitted on the kept rows; weights are made of those in [clip, 1 - clip].

    Nodes of its ``graph`` have the flags of missing values among their columns.
    If the group of some units is not known, they are fitted on ``law``: ``rows``, and each such unit once a group.
    """

    graph: CausalGraph
    propensity: LearnerName | ClassifierMixin
    rows: Rows
    seed: int
    clip: float | None
    folds: int = FOLDS
    missing: Missing = "refuse"
    models: dict[Prefix, CrossFit] = field(default_factory=dict)
    matches: list[tuple[weakref.ref[pd.DataFrame], Rows]] = field(default_factory=list)
    law: Rows | None = None
    splits: dict[int, Nuisances] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = with_flags(self.graph, self.rows.table)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"matches": [], "splits": {}}

    @property
    def propensity_name(self) -> str:
        """The model of the propensity in messages."""
        return repr(self.propensity) if isinstance(self.propensity, str) else type(self.propensity).__name__

    def model(self, prefix: Prefix) -> CrossFit:
        """Return the propensity of a prefix, fitting it at the first call."""
        if prefix not in self.models:
            table, a, weight, groups = self._data(self.law or self.rows, prefix)
            model = CrossFit(self.propensity, self.seed, self.folds).fit(table, a, weight, groups)
            if not isinstance(self.propensity, str):
                self._require_calibrated(model.fitted, a, weight)
            model.fitted = model.fitted[: int(self.rows.kept.sum())]
            self.models[prefix] = model
        return self.models[prefix]

    def _require_calibrated(self, p: NDArray[np.float64], a: NDArray[np.int8], weight: NDArray[np.float64]) -> None:
        """Refuse probabilities of a user's model whose mean is not the share of the group, though none is extreme."""
        mean, share = (float(np.average(each, weights=weight)) for each in (p, a))
        error = float(np.sqrt(weight**2 @ (p * (1.0 - p))) / weight.sum())
        ratios = np.array([mean / share, (1.0 - mean) / (1.0 - share)])
        extreme = p.min() == 0.0 or p.max() == 1.0
        if extreme or (abs(np.log(ratios)) <= MOST_OFF).all() or abs(mean - share) <= SURE * error:
            return
        name = f"{self.graph.sensitive_column}={self.graph.label(1)!r}"
        raise DataError(
            f"The propensity {self.propensity_name} is not calibrated: its mean probability of {name} is {mean:.3g}, "
            f"and the share of these rows is {share:.3g}. Weights made of it would look like poor overlap. "
            "class_weight='balanced' does that, and so does a model that ignores sample weights: leave classes as "
            "they are, or use propensity='logistic'."
        )

    @property
    def saturated(self) -> bool:
        """Whether propensities are cell frequencies."""
        return isinstance(self.propensity, str) and self.propensity == "saturated"

    def split(self, folds: int | None = None) -> Folds:
        """Return the folds of the fitted rows, by default as many as the propensities have."""
        rows = self.rows
        return split_folds(rows.a, rows.weight, self.folds if folds is None else folds, self.seed, rows.groups)

    def by_split(self, number: int) -> Nuisances:
        """Return the propensities by another split into folds, made once; 0 is this one."""
        if number and number not in self.splits:
            other = replace(self, seed=seed_for(self.seed, number), matches=[], splits={})
            if judge_unseen(self.propensity):
                other = replace(other, rows=replace(self.rows, probability={}), models={})
            self.splits[number] = other
        return self.splits[number] if number else self

    def refit(self, weight: NDArray[np.float64]) -> Nuisances:
        """Return the same propensities on the same rows with other weights (n,)."""
        rows = replace(self.rows, weight=weight, probability={})
        models = {prefix: model.refit(*self._data(rows, prefix)) for prefix, model in self.models.items()}
        return replace(self, rows=rows, models=models, splits={})

    def positions(self, df: object) -> NDArray[np.int64]:
        """Return the position of each row among the fitted rows (m,), by content and index; -1 for others."""
        own = self.rows.given
        return match_rows(read_table(df, [*own.columns], missing=self.missing), own)

    def _read(self, df: object) -> Rows:
        """Return the rows of a table; replicates ask for one again and again, and it is read once."""
        own = self.rows.given
        columns = [*own.columns]
        for given, known in self.matches:
            if df is not given() or not isinstance(df, pd.DataFrame) or not {*columns} <= {*df.columns}:
                continue
            if df[columns].equals(known.given):  # it may have been changed since
                return known
        table = read_table(df, columns, missing=self.missing)
        a = read_sensitive(table, self.graph, both=False)
        rows = Rows.of(table, a, np.ones(len(a)), own, position=match_rows(table, own))
        if isinstance(df, pd.DataFrame):
            self.matches[:] = [(weakref.ref(df), rows)]
        return rows

    def rows_of(
        self, df: pd.DataFrame | None, sample_weight: npt.ArrayLike | None, groups: NDArray[Any] | None = None
    ) -> Rows:
        """Return a table (None: the fitted one) with weights and groups as rows, each fitted row with its position."""
        own = self.rows
        if df is None and sample_weight is None:
            return own
        read = self._read(own.given if df is None else df)
        weight = read_weight(sample_weight, read.table)
        assert read.position is not None
        if np.array_equal(read.position, np.arange(len(own.a))) and read.given.equals(own.given):
            return own if (weight == own.weight).all() else replace(own, weight=weight)
        return replace(read, weight=weight, probability={}, groups=hash_groups(groups))

    def probability(self, rows: Rows, prefix: Prefix, *, clip: bool = True) -> NDArray[np.float64]:
        """Return P(A = 1 | prefix) of each row, shape (n,): of fitted rows as fitted, of trimmed rows 0.5."""
        if prefix not in rows.probability:
            model = self.model(prefix)
            p = np.full(len(rows.a), 0.5)
            if rows.position is None:
                p[rows.kept] = model.fitted
            else:
                known = rows.position >= 0
                p[known] = self.probability(self.rows, prefix, clip=False)[rows.position[known]]
                if (new := rows.kept & ~known).any():
                    p[new] = model.predict(rows.table.loc[new, self.graph.columns_of(prefix)])
            rows.probability[prefix] = p
        p = rows.probability[prefix]
        return np.clip(p, self.clip, 1.0 - self.clip) if clip and self.clip is not None else p

    def raw_weights(
        self, rows: Rows, part: RegimeEstimand, group: int | None, upto: int | None = None
    ) -> NDArray[np.float64]:
        """Return the formula's weight of every row (n,), of the group or not; NaN where it is undefined."""
        w = part.weight(group, upto).evaluate(lambda prefix: self.probability(rows, prefix))
        return np.broadcast_to(w, rows.a.shape)

    def weights(self, rows: Rows, part: RegimeEstimand, group: int | None) -> NDArray[np.float64]:
        """Return the weight of each row in a world, shape (n,), 0 outside the weighted group."""
        w = np.where(rows.member(group), self.raw_weights(rows, part, group), 0.0)
        # NaN is zero times infinity, where the distribution of a later node is undefined: overlap reports it.
        # Infinity without sample weight is a row of a cell whose group lost all its weight, as in a bootstrap.
        return np.where(np.isnan(w) | (np.isinf(w) & (rows.weight == 0.0)), 0.0, w)

    def inside(self, rows: Rows, prefixes: Sequence[Prefix], trim: float) -> NDArray[np.bool_]:
        """Return which rows have all propensities of some prefixes within [trim, 1 - trim], shape (n,)."""
        p = np.array([self.probability(rows, prefix, clip=False) for prefix in prefixes]).reshape(-1, len(rows.a))
        return np.asarray(((trim <= p) & (p <= 1.0 - trim)).all(axis=0))

    def _data(self, rows: Rows, prefix: Prefix) -> tuple[pd.DataFrame, NDArray[np.int8], NDArray[np.float64], Any]:
        """Return what a propensity is fitted on: the columns, values of A, weights and groups of the kept rows."""
        table, kept = rows.table[self.graph.columns_of(prefix)], rows.kept
        if kept.all():
            return table, rows.a, rows.weight, rows.groups
        return table[kept], rows.a[kept], rows.weight[kept], rows.near(kept)


def judge_unseen(*models: object) -> bool:
    """Return whether some models must judge rows that they did not see, so that the split into folds matters."""
    return not {each if isinstance(each, str) else "" for each in models} <= {"logistic", "saturated"}
