"""Propensities of the sensitive attribute given prefixes of an order, the weights made of them, and their overlap."""

from __future__ import annotations

import copy
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from pyrofair.effects.potential_outcomes import (
    FEWEST_ROWS,
    MEAN_WEIGHT,
    SMALLEST_SHARE,
    GroupSize,
    KishSums,
)
from pyrofair.effects.scoring import read_classes, read_probabilities
from pyrofair.exceptions import DataError, PositivityError, PositivityWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import RegimeEstimand
from pyrofair.sources.designs import CodedDesign
from pyrofair.sources.leaves import LeafValues, Leaves, is_grown
from pyrofair.sources.models import (
    Design,
    Stack,
    fit_weighted,
    linear_design,
    newton_logistic,
    recode,
    split_folds,
    text_levels,
)
from pyrofair.tables.batches import Largest, add_sums
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import as_levels, encode_levels, is_categorical, read_sensitive, repeat_label
from pyrofair.tables.reading import feature_columns, read_table, read_weight
from pyrofair.tables.row_identity import match_rows

__all__ = [
    "FOLDS",
    "Cell",
    "GroupOverlap",
    "Nuisances",
    "OverlapTerms",
    "Propensity",
    "PropensityName",
    "Rows",
    "group_overlap",
    "group_sizes",
    "make_propensity",
    "require_propensity",
    "unsupported_cells",
]

PropensityName = Literal["logistic", "boosted", "saturated", "stacked"]
FOLDS = 5
"""The folds of cross-fitting, by default."""
MOST_LEAVES = 500_000_000
"""Replicates of more rows and trees are fitted from scratch: a refit remembers the leaf of each row in each tree."""
MANY, VERY_MANY = 5_000, 20_000
"""Boosted propensities of so many rows have larger trees, and still larger ones."""

AT_BOUND = 1e-6
SEPARATED = 1e-3
"""A propensity below this share of the group's frequency in every row leaves no overlap, however smooth the model."""
NEGLIGIBLE = 1e-9
MOST_CELLS = 2.0**62
MOST_KEPT = 100_000
"""Worlds of so many rows are kept for replicates; more would take memory, and little of the time."""


class Propensity(ABC):
    """An estimate of P(A = 1 | some columns); ``fitted`` is that of the fitted rows, out of fold if cross-fitted."""

    fitted: NDArray[np.float64]

    @abstractmethod
    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Fit on a table of n rows, their groups (n,) in 0 and 1, and their weights (n,)."""

    @abstractmethod
    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return P(A = 1) of the rows of a table with the same columns, shape (m,)."""

    def refit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Propensity:
        """Return a new estimate on the same rows with other weights, warm where that is possible."""
        return copy.copy(self).fit(X, a, weight)


class Saturated(Propensity):
    """The share of each group in every cell of the columns; with no column, the group frequency."""

    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Count the cells."""
        self.levels_ = {name: as_levels(X[name]) for name in X.columns}
        cells, index = np.unique(self._codes(X), return_inverse=True)
        total, one = (np.bincount(index.ravel(), weights=w) for w in (weight, weight * (a == 1)))
        with np.errstate(invalid="ignore"):
            share = one / total
        self.cells_, self.share_ = cells, share
        self.fitted = share[index.ravel()]
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the share of each row's cell; a cell that was not fitted on is refused."""
        return np.asarray(self.share_[self.positions(X)])

    def positions(self, X: pd.DataFrame) -> NDArray[np.int64]:
        """Return the position of each row's cell among those fitted on, shape (m,)."""
        codes = self._codes(X)
        at = np.minimum(np.searchsorted(self.cells_, codes), len(self.cells_) - 1)
        unknown = (self.cells_[at] != codes) | np.isnan(self.share_[at])
        if unknown.any():
            row = X.iloc[int(np.argmax(unknown))].to_dict()
            raise DataError(
                f"The cell {row} was not among the rows that the saturated propensity was fitted on, so its group "
                "shares are unknown. Use propensity='logistic' or 'boosted', or coarsen the columns."
            )
        return np.asarray(at, dtype=np.int64)

    def _codes(self, X: pd.DataFrame) -> NDArray[Any]:
        """Return a number for each combination of levels, in their order: an object where 64 bits are too few."""
        number: NDArray[Any] = np.zeros(len(X), dtype=np.int64)
        if np.prod([float(len(levels)) for levels in self.levels_.values()]) >= MOST_CELLS:
            number = number.astype(object)
        for name, levels in self.levels_.items():
            number = number * len(levels) + encode_levels(X[name], levels)
        return number


class Logistic(Propensity):
    """Unpenalised logistic regression on main effects: standardised numbers and one-hot categories (the paper's)."""

    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Maximise the weighted likelihood by Newton's method."""
        self.encoder_ = TableEncoder().fit(X, sample_weight=weight)
        design = self._design(X)
        self.coef_ = newton_logistic(design, a, weight, np.zeros(design.shape[1]))
        self.fitted = expit(design @ self.coef_)
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the fitted probabilities."""
        return np.asarray(expit(self._design(X) @ self.coef_))

    def refit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Logistic:
        """Start from the present coefficients, on the design matrix made once for all refits of this fit.

        Those of levels in one group only, which have no best value, are kept.
        """
        if not hasattr(self, "cached_"):
            self.cached_ = self._design(X)
        other = Logistic()
        other.encoder_ = self.encoder_
        fixed = self.cached_.fixed(self.fitted) if isinstance(self.cached_, CodedDesign) else None
        other.coef_ = newton_logistic(self.cached_, a, weight, self.coef_, tolerance=1e-11, fixed=fixed)
        other.fitted = expit(self.cached_ @ other.coef_)
        return other

    def _design(self, X: pd.DataFrame) -> Design:
        return linear_design(self.encoder_, X)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "cached_"}


class FromClassifier(Propensity):
    """Any scikit-learn classifier or pipeline, given the columns as they are, cross-fitted in folds with both groups.

    A fitted row is judged by the clone of the fold without it, and a new one by the average of the clones. A classifier
    that sees the row it judges takes chance for overlap, the more so the more flexible it is, which cannot be seen from
    outside. ``folds=1`` fits one clone on all rows, which serves models of few parameters.
    """

    def __init__(self, classifier: Any, folds: int = FOLDS, seed: int = 0, *, recodes: bool = False) -> None:
        self.classifier, self.folds, self.seed, self.recodes = classifier, folds, seed, recodes

    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Fit a clone for each fold, on the rows that have a weight."""
        weight = read_weight(weight, len(X))
        kept = np.flatnonzero(weight > 0.0)
        self.levels_ = text_levels(X) if self.recodes else {}
        data = self._typed(X)
        self.models_: list[Any] = []
        self.fitted = np.empty(len(X))
        for train, test in split_folds(a, weight, self.folds, self.seed):
            model = clone(self.classifier)
            self.models_.append(fit_weighted(model, data.iloc[train], a[train], weight[train]))
            self.fitted[test] = _chance(model, data.iloc[test])
        if len(kept) < len(X):
            absent = np.flatnonzero(weight <= 0.0)
            self.fitted[absent] = self.predict(X.iloc[absent])
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Average the folds' probabilities."""
        data = self._typed(X)
        return np.asarray(np.mean([_chance(model, data) for model in self.models_], axis=0))

    def _typed(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the table as it is or, if the classifier ``recodes``, with text and objects as categories."""
        return recode(X, self.levels_)


class Boosted(FromClassifier):
    """Gradient-boosted trees, cross-fitted; text and objects are handed to them as categories.

    A refit keeps the trees of each fold, and fits the values of their leaves again (:mod:`pyrofair.sources.leaves`).
    """

    moved_: list[LeafValues] | None = None

    def __init__(self, n: int, seed: int, folds: int = FOLDS) -> None:
        super().__init__(_trees(n, seed), folds, seed, recodes=True)

    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Fit a clone for each fold, on the rows that have a weight."""
        self.__dict__.pop("leaves_", None)
        self.moved_ = None
        super().fit(X, a, weight)
        self.weight_ = np.asarray(weight, dtype=np.float64)
        return self

    def refit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Propensity:
        """Keep the trees, and fit the values of their leaves again; a fold that has lost a group is a DataError."""
        if not all(is_grown(model) for model in self.models_) or len(X) * self._trees > MOST_LEAVES:
            return super().refit(X, a, weight)
        folds = split_folds(a, self.weight_, self.folds, self.seed)
        if not hasattr(self, "leaves_"):
            data = self._typed(X)
            self.leaves_ = [
                Leaves.of(model, data, a, self.weight_, train)
                for model, (train, _) in zip(self.models_, folds, strict=True)
            ]
        other = copy.copy(self)
        other.moved_ = [leaves.refit(a, weight) for leaves in self.leaves_]
        both = zip(self.leaves_, other.moved_, strict=True)
        each = np.array([expit(leaves.raw + moved.at(leaves.codes)) for leaves, moved in both])
        other.fitted = each.mean(axis=0)
        for chance, (_, test) in zip(each, folds, strict=True):
            other.fitted[test] = chance[test]
        return other

    @property
    def _trees(self) -> int:
        return sum(int(model.n_iter_) for model in self.models_)

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Average the folds' probabilities."""
        if self.moved_ is None:
            return super().predict(X)
        data = self._typed(X)
        each = [leaves.predict(data, moved) for leaves, moved in zip(self.leaves_, self.moved_, strict=True)]
        return np.asarray(np.mean(each, axis=0))


class Stacked(FromClassifier):
    """A stack of logistic regression on main effects and boosted trees, cross-fitted."""

    def __init__(self, n: int, seed: int, folds: int = FOLDS) -> None:
        logistic = make_pipeline(TableEncoder(), LogisticRegression(C=np.inf, max_iter=1000))
        super().__init__(Stack([logistic, _trees(n, seed)], chances=True, seed=seed), folds, seed, recodes=True)


def _trees(n: int, seed: int) -> HistGradientBoostingClassifier:
    """Return boosted trees for n rows, that are smaller and stop earlier where rows are few.

    Weights are made of 1 / P, and a propensity that follows chance explodes there: with 15 leaves and a patience of 20
    rounds, errors of estimates from 1,000 rows were five times as large as with 8 leaves and 5 rounds; on the 34,000
    rows of Adult the former fit better.
    """
    return HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_iter=400,
        max_leaf_nodes=8 if n < MANY else 15 if n < VERY_MANY else 31,
        min_samples_leaf=30 if n < VERY_MANY else 20,
        early_stopping=True,
        n_iter_no_change=20 if n >= VERY_MANY else int(np.clip(5.0 * np.sqrt(n / 3000.0), 5, 20)),
        categorical_features="from_dtype",
        random_state=seed,
    )


def _chance(model: Any, X: pd.DataFrame) -> NDArray[np.float64]:
    """Return the probability of group 1 that a fitted classifier gives to each row, shape (m,)."""
    name = f"the propensity model {type(model).__name__}"
    classes = read_classes(name, model, default=(0, 1))
    if set(classes) != {0, 1}:
        raise DataError(f"{name} has the classes {classes}, but was fitted on 0 and 1; leave its labels as they are.")
    return read_probabilities(name, model.predict_proba(X), len(X))[:, classes.index(1)]


def make_propensity(
    propensity: PropensityName | ClassifierMixin, *, empty: bool, n: int, seed: int, folds: int = FOLDS
) -> Propensity:
    """Return an unfitted estimate for n rows; without columns to condition on (``empty``) the group frequency."""
    if empty or (isinstance(propensity, str) and propensity == "saturated"):
        return Saturated()
    if not isinstance(propensity, str):
        return FromClassifier(propensity, folds, seed)
    if propensity == "logistic":
        return Logistic()
    return Stacked(n, seed, folds) if propensity == "stacked" else Boosted(n, seed, folds)


def require_propensity(name: str, value: object) -> None:
    """Refuse what is neither the name of a propensity nor a classifier."""
    if isinstance(value, str) and value in get_args(PropensityName):
        return
    if isinstance(value, str | type) or not hasattr(value, "predict_proba") or not hasattr(value, "fit"):
        raise DataError(
            f"{name}={value!r} is not known. Use 'logistic', 'boosted', 'saturated', 'stacked', or a scikit-learn "
            "classifier with predict_proba."
        )


# -- rows and their weights -------------------------------------------------------------------------------------------


Prefix = tuple[str, ...]


@dataclass
class Rows:
    """A table of n rows with groups, sample weights, and whether each is kept or trimmed, all (n,).

    ``position`` is that of each row among the fitted rows, shape (n,), -1 for others; None: they are the fitted rows.
    """

    table: pd.DataFrame
    a: NDArray[np.int8]
    weight: NDArray[np.float64]
    kept: NDArray[np.bool_]
    probability: dict[Prefix, NDArray[np.float64]] = field(default_factory=dict)
    position: NDArray[np.int64] | None = None
    views: dict[tuple[int | None, int | None], tuple[pd.DataFrame, NDArray[np.int64]]] = field(default_factory=dict)

    @classmethod
    def read(cls, df: object, sample_weight: object, graph: CausalGraph) -> Rows:
        """Return the rows of a table to fit on, which need not hold the outcome."""
        table = read_table(df, feature_columns(graph))
        weight = read_weight(sample_weight, table)
        a = read_sensitive(table, graph, weight=weight)
        return cls(table, a, weight, np.ones(len(a), dtype=bool))

    def member(self, group: int | None) -> NDArray[np.bool_]:
        """Return which rows are kept and of a group (None: of either), shape (n,)."""
        return self.kept if group is None else self.kept & (self.a == group)

    def weighted(
        self, group: int | None, arm: int | None, graph: CausalGraph, like: Rows
    ) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """Return the kept rows of a group as read (:meth:`as_read`).

        Replicates ask for the same rows again and again: those of small tables are kept, and handed out as copies.
        """
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
        features = self.table[graph.input_columns].iloc[index]
        changed = self.a[index] != arm if arm is not None else np.zeros(len(index), bool)
        if changed.any():
            name = graph.sensitive_column
            source = self if (self.a == arm).any() else like
            label = repeat_label(source.table[name], graph.label(int(arm == 1)), features.index)
            features = features.assign(**{name: label.astype(self.table[name].dtype)})
        return features, np.where(changed, -1, index).astype(np.int64)


@dataclass
class Nuisances:
    """The propensities P(A = 1 | prefix), fitted on the kept rows; weights are made of those in [clip, 1 - clip]."""

    graph: CausalGraph
    propensity: PropensityName | ClassifierMixin
    rows: Rows
    seed: int
    clip: float | None
    folds: int = FOLDS
    models: dict[Prefix, Propensity] = field(default_factory=dict)
    matches: list[tuple[weakref.ref[pd.DataFrame], Rows]] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"matches": []}

    @property
    def propensity_name(self) -> str:
        """The model of the propensity in messages."""
        return repr(self.propensity) if isinstance(self.propensity, str) else type(self.propensity).__name__

    def model(self, prefix: Prefix) -> Propensity:
        """Return the propensity of a prefix, fitting it at the first call."""
        if prefix not in self.models:
            n = int(self.rows.kept.sum())
            model = make_propensity(self.propensity, empty=not prefix, n=n, seed=self.seed, folds=self.folds)
            self.models[prefix] = model.fit(*self._data(self.rows, prefix))
        return self.models[prefix]

    def refit(self, weight: NDArray[np.float64]) -> Nuisances:
        """Return the same propensities on the same rows with other weights (n,)."""
        rows = replace(self.rows, weight=weight, probability={})
        models = {prefix: model.refit(*self._data(rows, prefix)) for prefix, model in self.models.items()}
        return replace(self, rows=rows, models=models)

    def positions(self, df: object) -> NDArray[np.int64]:
        """Return the position of each row of a table among the fitted rows, shape (m,), -1 for others.

        Rows are matched by content and index, in any order; see :func:`pyrofair.tables.row_identity.match_rows`.
        """
        return match_rows(read_table(df, feature_columns(self.graph)), self.rows.table)

    def _read(self, df: object) -> Rows:
        """Return the rows of a table; replicates ask for one again and again, and it is read once."""
        columns = feature_columns(self.graph)
        for given, known in self.matches:
            if df is not given() or not isinstance(df, pd.DataFrame) or not {*columns} <= {*df.columns}:
                continue
            if df[columns].equals(known.table):  # it may have been changed since
                return known
        table = read_table(df, columns)
        a = read_sensitive(table, self.graph, both=False)
        rows = Rows(table, a, np.ones(len(a)), np.ones(len(a), dtype=bool), position=match_rows(table, self.rows.table))
        if isinstance(df, pd.DataFrame):
            self.matches[:] = [(weakref.ref(df), rows)]
        return rows

    def rows_of(self, df: pd.DataFrame | None, sample_weight: npt.ArrayLike | None) -> Rows:
        """Return a table (None: the fitted one) with weights as rows, each fitted row with its position."""
        own = self.rows
        if df is None and sample_weight is None:
            return own
        read = self._read(own.table if df is None else df)
        weight = read_weight(sample_weight, read.table)
        assert read.position is not None
        if np.array_equal(read.position, np.arange(len(own.a))) and read.table.equals(own.table):
            return own if (weight == own.weight).all() else replace(own, weight=weight)
        return replace(read, weight=weight, probability={})

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

    @property
    def n_rows(self) -> int:
        """The number of fitted rows."""
        return len(self.rows.a)

    def find_overlaps(self, wanted: Iterable[tuple[RegimeEstimand, int | None]]) -> None:
        """Prepare the overlap of groups in worlds, which here needs no preparation."""

    def overlap(self, part: RegimeEstimand, group: int | None) -> GroupOverlap:
        """Return how well a group supports a world among the fitted rows."""
        return group_overlap(part, group, self)

    def inside(self, rows: Rows, prefixes: Sequence[Prefix], trim: float) -> NDArray[np.bool_]:
        """Return which rows have all propensities of some prefixes within [trim, 1 - trim], shape (n,)."""
        p = np.array([self.probability(rows, prefix, clip=False) for prefix in prefixes]).reshape(-1, len(rows.a))
        return np.asarray(((trim <= p) & (p <= 1.0 - trim)).all(axis=0))

    def _data(self, rows: Rows, prefix: Prefix) -> tuple[pd.DataFrame, NDArray[np.int8], NDArray[np.float64]]:
        """Return what a propensity is fitted on: the columns, groups and weights of the kept rows."""
        table = rows.table[self.graph.columns_of(prefix)]
        if rows.kept.all():
            return table, rows.a, rows.weight
        return table[rows.kept], rows.a[rows.kept], rows.weight[rows.kept]


# -- overlap ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A level of a column, or a cell of several if saturated, that the target has and a needed group lacks."""

    name: str
    value: int
    mass: float

    def __str__(self) -> str:
        return f"{self.name} ({self.mass:.2g} of the target, no row of group {self.value})"


@dataclass(frozen=True)
class GroupOverlap:
    """How well a group (0, 1, or None for both pooled) supports a world among the fitted rows.

    ``n`` rows carry weight. ``mean_weight`` is over all rows, 1 in expectation; ``max_weight`` leaves sample weights
    out; ``effective_size`` is Kish's, in rows. Rows ``at_bounds`` have a propensity at 0 or 1, and ``infinite`` ones
    no finite weight. ``cells`` lack support, with the mass ``unsupported``. ``estimated`` propensities given features
    make up the weights. ``needed`` are the groups weighted, and the arms of the world's conditional distributions;
    ``sizes`` those of both groups. ``separated`` is the reason why no row has a counterpart, if so. ``propensity``
    names the model in messages.
    """

    regime: str
    group: int | None
    n: int
    mean_weight: float
    max_weight: float
    effective_size: float
    at_bounds: int
    clipped: int
    cells: tuple[Cell, ...]
    unsupported: float
    estimated: int = 0
    sizes: tuple[GroupSize, ...] = ()
    needed: tuple[int, ...] = ()
    separated: str = ""
    infinite: int = 0
    propensity: str = "fitted"

    @property
    def group_name(self) -> str:
        """The group as text: ``"0"``, ``"1"`` or ``"pooled"``."""
        return "pooled" if self.group is None else str(self.group)

    def rank(self, max_unsupported: float) -> tuple[bool, bool, int, float]:
        """Return the key of the automatic choice, the least first; the mean weight has no part in it.

        The score equation of a fitted propensity can make the mean weight 1, however wrong the fit.
        """
        lacking = self.unsupported > max_unsupported
        return bool(self.separated or self.infinite), lacking, self.estimated, -self.effective_size

    def problems(self) -> list[str]:
        """Return what is wrong, one phrase each."""
        found = []
        low, high = MEAN_WEIGHT
        if not low <= self.mean_weight <= high:
            found.append(f"the mean weight is {self.mean_weight:.3g}, outside [{low}, {high}]")
        if self.effective_size < SMALLEST_SHARE * self.n:
            found.append(f"the effective size {self.effective_size:.1f} is below {SMALLEST_SHARE:.0%} of {self.n} rows")
        elif self.effective_size < FEWEST_ROWS:
            found.append(f"the effective size {self.effective_size:.1f} is below {FEWEST_ROWS} rows")
        small = [size for size in self.sizes if size.group in self.needed and size.is_small]
        found += [f"{size}, fewer than {FEWEST_ROWS}" for size in small]
        if self.at_bounds:
            found.append(f"{self.at_bounds} row(s) have a propensity at 0 or 1")
        if self.cells:
            found.append(f"unsupported: {self._first_cells()}" + (" ..." if len(self.cells) > 5 else ""))
        return found

    def _first_cells(self) -> str:
        return "; ".join(map(str, self.cells[:5]))

    def check(self, max_unsupported: float, *, stacklevel: int) -> None:
        """Warn of what is wrong, or raise PositivityError where support is lacking or weights are infinite."""
        where = f"world {self.regime!r}, group {self.group_name}"
        if self.separated:
            raise PositivityError(
                f"There is no overlap in {where}: {self.separated} Weight the group whose rows need no such ratio "
                "(arm='auto' looks for it), or draw the features instead of weighting rows: GComputation(unfair)."
            )
        if self.unsupported > max_unsupported:
            raise PositivityError(
                f"{self.unsupported:.3g} of the target population has no counterpart in {where}, more than "
                f"max_unsupported={max_unsupported:g}: {self._first_cells()}. Merge these levels, weight another group "
                "(arm=0, 1 or 'pooled'), trim (the estimand then changes), or raise max_unsupported and read the "
                "result with care."
            )
        bounds = "clip=0.01 bounds propensities, for a small bias; trim=0.01 drops rows, and changes the estimand"
        if self.infinite:
            raise PositivityError(
                f"In {where}, {self.infinite} of {self.n} row(s) have no finite weight, for the propensity "
                f"{self.propensity} is exactly 0 or 1 there. {bounds}; or take a propensity that is never certain, "
                "such as 'logistic'."
            )
        if problems := self.problems():
            extreme = self.at_bounds or self.effective_size < SMALLEST_SHARE * self.n
            warnings.warn(
                f"Poor overlap in {where}: {'; '.join(problems)}."
                + (f" {bounds}." if extreme and not self.clipped else ""),
                PositivityWarning,
                stacklevel=stacklevel,
            )

    def as_row(self, trimmed: int, used: bool) -> dict[str, object]:
        """Return a row of the overlap table."""
        return {
            "regime": self.regime,
            "group": self.group_name,
            "used": used,
            "n": self.n,
            "mean_weight": self.mean_weight,
            "max_weight": self.max_weight,
            "ess": self.effective_size,
            "at_bounds": self.at_bounds,
            "clipped": self.clipped,
            "trimmed": trimmed,
            "unsupported_cells": "; ".join(cell.name for cell in self.cells),
            "unsupported_mass": self.unsupported,
            **{f"rows_{size.group}": size.rows for size in self.sizes},
            **{f"ess_{size.group}": size.effective_size for size in self.sizes},
        }


def group_overlap(part: RegimeEstimand, group: int | None, nuisances: Nuisances) -> GroupOverlap:
    """Return how well a group, or both pooled (None), supports a world among the fitted rows."""
    terms = OverlapTerms.of(part, group, nuisances, nuisances.rows)
    return terms.overlap(part, group, nuisances, *unsupported_cells(part, group, nuisances))


@dataclass(frozen=True)
class OverlapTerms:
    """What is known of the overlap of a group in a world from some rows; it adds up over rows.

    ``target`` is the sum of sample weights and ``carried`` that of weights, n rows of which are of the group;
    ``absent`` counts rows whose propensity of a power is next to 0, and ``without`` those of which any is.
    """

    n: int
    target: float
    carried: KishSums
    largest: Largest
    at_bounds: int
    clipped: int
    infinite: int
    ones: float
    absent: dict[tuple[int, Prefix], tuple[int, Largest]]
    without: int
    sizes: tuple[tuple[int, KishSums], ...]
    share: float

    @classmethod
    def of(
        cls, part: RegimeEstimand, group: int | None, nuisances: Nuisances, rows: Rows, share: float | None = None
    ) -> OverlapTerms:
        """Return the terms of some rows; ``share`` is the weight of group 1 among all rows, by default of these."""
        w = nuisances.weights(rows, part, group)
        # Saturated weights that are zero times infinity lie in unsupported cells, and are counted there.
        saturated = nuisances.propensity == "saturated"
        endless = np.isinf(w) if saturated else ~np.isfinite(nuisances.raw_weights(rows, part, group))
        s = rows.weight * rows.kept
        member = rows.member(group) & (s > 0)
        weight = part.weight(group)
        prefixes = [prefix for prefix in weight.prefixes if prefix]
        if share is None:
            share = float(np.average(rows.a[rows.kept], weights=rows.weight[rows.kept]))

        def beyond(limit: float | None) -> int:
            return 0 if limit is None else int((member & ~nuisances.inside(rows, prefixes, limit)).sum())

        absent, without = {}, np.zeros(int(member.sum()), dtype=bool)
        for (value, prefix), _ in weight.powers:
            p = nuisances.probability(rows, prefix, clip=False)[member]
            chance = p if value else 1.0 - p
            low = chance < SEPARATED * (share if value else 1.0 - share)
            without |= low
            absent[value, prefix] = int(low.sum()), Largest(float(chance.max(initial=0.0)))
        with np.errstate(over="ignore"):
            carried = KishSums.of(s * w)
        return cls(
            n=int(member.sum()),
            target=float(s.sum()),
            carried=carried,
            largest=Largest(float(w[member].max(initial=0.0))),
            at_bounds=beyond(AT_BOUND),
            clipped=beyond(nuisances.clip),
            infinite=int((endless & member).sum()),
            ones=float((s * rows.a).sum()),
            absent=absent,
            without=int(without.sum()),
            sizes=_size_terms(part, nuisances, rows),
            share=share,
        )

    def __add__(self, other: OverlapTerms) -> OverlapTerms:
        mine, theirs = ({each.name: getattr(one, each.name) for each in fields(self)} for one in (self, other))
        return OverlapTerms(**add_sums(mine, theirs) | {"share": self.share})

    def overlap(
        self, part: RegimeEstimand, group: int | None, nuisances: Nuisances, cells: tuple[Cell, ...], mass: float
    ) -> GroupOverlap:
        """Return the overlap of all rows, given the cells without support and their mass."""
        with np.errstate(over="ignore"):
            mean = self.carried.total / self.target
        return GroupOverlap(
            regime=part.regime.name,
            group=group,
            n=self.n,
            mean_weight=mean,
            max_weight=self.largest.value,
            effective_size=self.carried.size,
            at_bounds=self.at_bounds,
            clipped=self.clipped,
            cells=cells,
            unsupported=mass,
            estimated=sum(1 for prefix in part.weight(group).prefixes if prefix),
            sizes=_group_sizes(self.sizes),
            needed=part.needed_groups(group),
            separated=self._separated(part, group),
            infinite=self.infinite,
            propensity=nuisances.propensity_name,
        )

    def _separated(self, part: RegimeEstimand, group: int | None) -> str:
        """Return a sentence on the columns that separate the groups, if no row to be weighted has a counterpart."""
        # A row has no weight where a numerator is 0, and its ratio is undefined where a denominator is.
        if not self.n or not self.absent or self.without < self.n:
            return ""
        value, prefix = max(self.absent, key=lambda key: self.absent[key][0])
        graph = part.regime.unfair.graph
        whose = "all" if group is None else f"group {group}'s"
        return (
            f"given {', '.join(graph.columns_of(prefix)) or 'nothing'}, the probability of "
            f"{graph.sensitive_column}={graph.label(value)!r} is at most {self.absent[value, prefix][1].value:.1g} in "
            f"{whose} {self.n} rows, so the two groups have no such features in common."
        )


def group_sizes(part: RegimeEstimand, nuisances: Nuisances) -> tuple[GroupSize, GroupSize]:
    """Return the fitted rows of both groups, with their effective sizes in the population of the roots."""
    return _group_sizes(_size_terms(part, nuisances, nuisances.rows))


def _size_terms(part: RegimeEstimand, nuisances: Nuisances, rows: Rows) -> tuple[tuple[int, KishSums], ...]:
    one = nuisances.probability(rows, part.order[: part.roots])
    found = []
    for group, p in ((0, 1.0 - one), (1, one)):
        s = rows.weight * (rows.member(group) & (p > 0.0))
        with np.errstate(over="ignore"):
            w = np.divide(s, p, out=np.zeros(len(p)), where=s > 0.0)
        found.append((int((rows.member(group) & (rows.weight > 0.0)).sum()), KishSums.of(w)))
    return tuple(found)


def _group_sizes(terms: tuple[tuple[int, KishSums], ...]) -> tuple[GroupSize, GroupSize]:
    zero, one = (GroupSize(group, rows, sums.size) for group, (rows, sums) in enumerate(terms))
    return zero, one


def unsupported_cells(
    part: RegimeEstimand,
    group: int | None,
    nuisances: Nuisances,
    rows: Rows | None = None,
    seen: Mapping[str, NDArray[np.float64]] | None = None,
) -> tuple[tuple[Cell, ...], float]:
    """Return the cells with target mass and no row of a group that is needed there, and their mass together.

    A node must occur with the weighted group (None: both) and with the arm of every distribution that is conditioned on
    it. A cell is one level of one categorical column; under saturated propensities every column is categorical, and
    cells of several columns count too. Where ``rows`` are but those that may lack support, ``seen`` holds the weight of
    both groups among all rows for each level of each categorical column, (levels, 2).
    """
    rows = nuisances.rows if rows is None else rows
    saturated, graph = nuisances.propensity == "saturated", part.regime.unfair.graph
    table, a, weight = rows.table[rows.kept], rows.a[rows.kept], rows.weight[rows.kept]
    all_weight = weight.sum() if seen is None else next(iter(seen.values())).sum()
    cells: list[Cell] = []
    total = 0.0
    lost = np.zeros(len(a), dtype=bool)
    for index, node in enumerate(part.order):
        coded: list[tuple[NDArray[np.int64], list[str], NDArray[np.float64]]] = []
        for column in graph.columns_of([node]):
            if saturated or is_categorical(table[column]):
                levels = as_levels(table[column])
                codes = encode_levels(table[column], levels)
                held = seen[column] if seen is not None else _by_group(codes, a, weight, len(levels))
                coded.append((codes, [f"{column}={level}" for level in levels], held))
        columns = graph.columns_of(part.order[: index + 1])
        if saturated and len(columns) > 1:
            joint = table[columns].drop_duplicates()
            cell = pd.MultiIndex.from_frame(joint).get_indexer(pd.MultiIndex.from_frame(table[columns]))
            values = joint.itertuples(index=False)
            names = [", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=True)) for row in values]
            coded.append((cell.astype(np.int64), names, _by_group(cell.astype(np.int64), a, weight, len(names))))
        fresh = np.zeros(len(a), dtype=bool)
        mass: NDArray[np.float64] | None = None
        for codes, names, held in coded:
            for value in sorted(part.needed_values(index, group)):
                absent = (held.sum(axis=1) > 0) & ~(held[:, value] > 0)
                if not absent.any():
                    continue
                if mass is None:
                    with np.errstate(invalid="ignore"):
                        target = nuisances.raw_weights(rows, part, None, index + 1)[rows.kept]
                        mass = np.nan_to_num(weight * target, posinf=0.0) / all_weight
                left = absent[codes] & ~lost & ~fresh
                share = np.bincount(codes[left], weights=mass[left], minlength=len(names))
                found = share > NEGLIGIBLE
                cells += [Cell(names[level], value, float(share[level])) for level in np.flatnonzero(found)]
                fresh |= left & found[codes]
                total += float(share[found].sum())
        lost |= fresh
    return tuple(cells), total


def _by_group(
    codes: NDArray[np.int64], a: NDArray[np.int8], weight: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    """Return the weight of either group in each of some cells, shape (size, 2)."""
    sums = [np.bincount(codes, weights=weight * (a == value), minlength=size) for value in (0, 1)]
    return np.column_stack(sums)
