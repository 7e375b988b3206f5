"""Propensities of the sensitive attribute given prefixes of an order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.special import expit
from sklearn.base import ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from pyrofair._validation import require_integer
from pyrofair.effects.scoring import read_classes, read_probabilities
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.estimand import RegimeEstimand
from pyrofair.tables.column_types import is_categorical
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import as_levels, encode_levels
from pyrofair.tables.reading import read_weight
from pyrofair.tables.row_identity import match_rows

__all__ = ["FOLDS", "Nuisances", "Prefix", "Propensity", "PropensityKind", "Rows", "make_propensity"]

PropensityKind = Literal["logistic", "boosted", "saturated"]
FOLDS = 5
"""The folds of cross-fitting, unless told otherwise."""
WIDE = 256
"""Encoded tables of more columns are held in compressed rows."""
MOST_PRODUCTS, CG_TOLERANCE, FLAT = 2000, 1e-9, 1e-11
"""The end of conjugate gradients: so many products, a residual that has shrunk so far, or so little curvature."""
MOST_COPIES = 1000
"""The most often that a row is repeated for a classifier that takes no weights."""

Design: TypeAlias = Any
"""A matrix (n, k): a NumPy array, or one of SciPy in compressed rows."""


class Propensity(ABC):
    """An estimate of P(A = 1 | some columns).

    ``fitted`` holds the probabilities of the rows it was fitted on, shape (n,): out of fold where it is cross-fitted.
    """

    fitted: NDArray[np.float64]

    @abstractmethod
    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Fit on a table of n rows, their groups (n,) in 0 and 1, and their weights (n,)."""

    @abstractmethod
    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return P(A = 1) of the rows of a table with the same columns, shape (m,)."""

    def refit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Propensity:
        """Return a new estimate on the same rows with other weights, warm where that is possible."""
        return clone_propensity(self).fit(X, a, weight)


def clone_propensity(model: Propensity) -> Propensity:
    """Return an unfitted estimate with the same settings."""
    return type(model)(**getattr(model, "settings", {}))


class Saturated(Propensity):
    """The share of each group in every cell of the columns; with no column, the group frequency."""

    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Count the cells."""
        self.levels_ = {name: as_levels(X[name]) for name in X.columns}
        codes = self._codes(X)
        self.cells_, place = np.unique(codes, axis=0, return_inverse=True)
        place = place.ravel()
        size = len(self.cells_)
        total = np.bincount(place, weights=weight, minlength=size)
        with np.errstate(invalid="ignore"):
            self.share_ = np.bincount(place, weights=weight * (a == 1), minlength=size) / total
        self.fitted = self.share_[place]
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Look the cells up; a cell never seen has no estimate and is refused."""
        table = {tuple(cell): share for cell, share in zip(self.cells_, self.share_, strict=True)}
        codes = self._codes(X)
        found = np.array([table.get(tuple(cell), np.nan) for cell in codes])
        if np.isnan(found).any():
            row = X.iloc[int(np.argmax(np.isnan(found)))].to_dict()
            raise DataError(
                f"The cell {row} was not among the rows that the saturated propensity was fitted on, so its group "
                "shares are unknown. Use propensity='logistic' or 'boosted', or coarsen the columns."
            )
        return found

    def _codes(self, X: pd.DataFrame) -> NDArray[np.int64]:
        columns = [encode_levels(X[name], levels) for name, levels in self.levels_.items()]
        return np.column_stack(columns) if columns else np.zeros((len(X), 1), dtype=np.int64)


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
        """Start from the present coefficients, on the design matrix made once for all refits of this fit."""
        if not hasattr(self, "cached_"):
            self.cached_ = self._design(X)
        other = Logistic()
        other.encoder_ = self.encoder_
        other.coef_ = newton_logistic(self.cached_, a, weight, self.coef_, tolerance=1e-8)
        other.fitted = expit(self.cached_ @ other.coef_)
        return other

    def _design(self, X: pd.DataFrame) -> Design:
        ones = np.ones((len(X), 1))
        if self.encoder_.width_ > WIDE:
            return sparse.csr_array(sparse.hstack([sparse.csr_array(ones), self.encoder_.transform_sparse(X)]))
        return np.hstack([ones, self.encoder_.transform(X)])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "cached_"}


def newton_logistic(
    X: Design,
    a: NDArray[np.int8],
    weight: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    tolerance: float = 1e-12,
    max_steps: int = 60,
) -> NDArray[np.float64]:
    """Return coefficients that maximise the weighted logistic likelihood, shape (k,).

    Steps are damped by halving and, where the design is collinear or a level has lost all its weight, of least norm, so
    that every refit of a bootstrap goes through. Under separation it stops once the likelihood gains no more. With a
    sparse design the equations of a step are solved by conjugate gradients, which never leave the design's row space.
    """
    scale = float(weight.sum())
    coef = start

    def loss(eta: NDArray[np.float64]) -> float:
        return float(weight @ (np.logaddexp(0.0, eta) - a * eta)) / scale

    eta = X @ coef
    current = loss(eta)
    for _ in range(max_steps):
        p = expit(eta)
        gradient = X.T @ (weight * (a - p)) / scale
        curvature = weight * p * (1.0 - p) / scale
        if isinstance(X, np.ndarray):
            curved = np.sqrt(curvature)[:, None] * X
            step = linalg.lstsq(curved.T @ curved, gradient, cond=1e-12, lapack_driver="gelsy")[0]
        else:
            step = _conjugate_gradients(X, curvature, gradient)
        eta_step = X @ step
        size = 1.0
        # Near the maximum the loss is flat to its last digit, which must not shorten the last steps.
        while size > 1e-6 and loss(eta + size * eta_step) > current * (1.0 + 1e-13):
            size /= 2.0
        coef, eta = coef + size * step, eta + size * eta_step
        previous, current = current, loss(eta)
        if previous - current <= tolerance * (abs(current) + tolerance):
            break
    return coef


def _conjugate_gradients(
    X: Design, curvature: NDArray[np.float64], gradient: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve X' diag(curvature) X step = gradient, shape (k,), scaled by the diagonal; a column without any stays 0."""
    diagonal = np.asarray(X.multiply(X).T @ curvature)
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)
    step, residual = np.zeros_like(gradient), gradient.copy()
    scaled = inverse * residual
    direction, size = scaled.copy(), float(residual @ scaled)
    first = size
    for _ in range(MOST_PRODUCTS):
        if not size > CG_TOLERANCE**2 * first:
            break
        curved = X.T @ (curvature * (X @ direction))
        along = float(direction @ curved)
        if not along > FLAT * float(direction @ (diagonal * direction)):  # nothing but rounding: a collinear direction
            break
        step += (size / along) * direction
        residual -= (size / along) * curved
        scaled = inverse * residual
        before, size = size, float(residual @ scaled)
        direction = scaled + (size / before) * direction
    return step


class FromClassifier(Propensity):
    """Any scikit-learn classifier or pipeline, given the columns as they are, cross-fitted.

    A clone is fitted for each fold; a fitted row is judged by the clone of the fold without it, and a new one by the
    average of them. A classifier that sees the row it judges takes chance for overlap, the more so the more flexible it
    is, and which ones are flexible cannot be told from outside.

    Parameters
    ----------
    classifier
        The classifier.
    folds
        The number of folds, stratified by group; 1 fits one clone on all rows, which serves models of few parameters.
    seed
        Seeds the folds.
    """

    def __init__(self, classifier: Any, folds: int = FOLDS, seed: int = 0) -> None:
        self.classifier, self.folds, self.seed = classifier, folds, seed
        self.settings = {"classifier": classifier, "folds": folds, "seed": seed}

    def fit(self, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Self:
        """Fit a clone for each fold, on the rows that have a weight."""
        weight = read_weight(weight, len(X))
        places = np.flatnonzero(weight > 0.0)
        smallest = int(np.bincount(a[places], minlength=2).min())
        if smallest < self.folds:
            raise DataError(
                f"A group has {smallest} rows with a weight, too few for {self.folds}-fold cross-fitting; use "
                "propensity='logistic', or fewer folds (folds=1 fits on all rows)."
            )
        self._learn_types(X)
        data = self._typed(X)
        self.models_: list[Any] = []
        self.fitted = np.empty(len(X))
        for train, test in self._split(a, places):
            model = clone(self.classifier)
            self.models_.append(fit_weighted(model, data.iloc[train], a[train], weight[train]))
            self.fitted[test] = _chance(model, data.iloc[test])
        if len(places) < len(X):
            absent = np.flatnonzero(weight <= 0.0)
            self.fitted[absent] = self.predict(X.iloc[absent])
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Average the folds' probabilities."""
        data = self._typed(X)
        return np.asarray(np.mean([_chance(model, data) for model in self.models_], axis=0))

    def _split(
        self, a: NDArray[np.int8], places: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the rows to fit on and those to judge, fold by fold."""
        if self.folds == 1:
            yield places, places
            return
        folds = StratifiedKFold(self.folds, shuffle=True, random_state=self.seed)
        for train, test in folds.split(places, a[places]):
            yield places[train], places[test]

    def _learn_types(self, X: pd.DataFrame) -> None:
        """Learn from the fitted table how tables are handed to the classifier: as they are."""

    def _typed(self, X: pd.DataFrame) -> pd.DataFrame:
        return X


class Boosted(FromClassifier):
    """Gradient-boosted trees, cross-fitted; text and objects are handed to them as categories."""

    def __init__(self, seed: int, folds: int = FOLDS) -> None:
        trees = HistGradientBoostingClassifier(
            learning_rate=0.1,
            max_iter=400,
            max_leaf_nodes=15,
            early_stopping=True,
            n_iter_no_change=20,
            categorical_features="from_dtype",
            random_state=seed,
        )
        super().__init__(trees, folds, seed)
        self.settings = {"seed": seed, "folds": folds}

    def _learn_types(self, X: pd.DataFrame) -> None:
        self.levels_ = {name: as_levels(X[name]) for name in X.columns if is_categorical(X[name])}

    def _typed(self, X: pd.DataFrame) -> pd.DataFrame:
        typed = {
            name: pd.Categorical.from_codes(encode_levels(X[name], levels), categories=levels)
            for name, levels in self.levels_.items()
        }
        return X.assign(**typed)


def _chance(model: Any, X: pd.DataFrame) -> NDArray[np.float64]:
    """Return the probability of group 1 that a fitted classifier gives to each row, shape (m,)."""
    name = f"the propensity model {type(model).__name__}"
    classes = read_classes(name, model, default=(0, 1))
    if set(classes) != {0, 1}:
        raise DataError(f"{name} knows the classes {classes}, but was fitted on 0 and 1; leave its labels as they are.")
    return read_probabilities(name, model.predict_proba(X), len(X))[:, classes.index(1)]


def fit_weighted(classifier: Any, X: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Any:
    """Fit a classifier with weights; one that takes none gets each row as often as its whole-number weight says.

    Raises
    ------
    DataError
        If it takes no ``sample_weight`` and the weights are not integers, or its own ``fit`` raises a ValueError.
    """
    if (weight == weight[0]).all():
        return _fit(classifier, X, a)
    last = classifier.steps[-1] if isinstance(classifier, Pipeline) else None
    if has_fit_parameter(last[1] if last else classifier, "sample_weight"):
        return _fit(classifier, X, a, **{f"{last[0]}__sample_weight" if last else "sample_weight": weight})
    counts = _as_counts(weight)
    if counts is None:
        raise DataError(
            f"The propensity model {type(last[1] if last else classifier).__name__} takes no sample_weight, and the "
            "weights are not in the ratio of integers by which rows could be repeated. Use a model that takes "
            "weights, or in an audit bootstrap='multinomial'."
        )
    rows = np.repeat(np.arange(len(a)), counts)
    return _fit(classifier, X.iloc[rows], a[rows])


def _fit(classifier: Any, X: pd.DataFrame, a: NDArray[np.int8], **weights: NDArray[np.float64]) -> Any:
    try:
        return classifier.fit(X, a, **weights)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"The propensity model {type(classifier).__name__} cannot be fitted: {error}") from error


def _as_counts(weight: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return the smallest integers in the ratio of some weights, shape (n,); None if they would be large."""
    ratio = weight / weight[weight > 0.0].min()
    known: NDArray[np.float64] = np.unique(ratio)
    for factor in range(1, MOST_COPIES + 1):
        whole = np.rint(factor * known)
        if whole[-1] > MOST_COPIES:
            break
        if np.allclose(factor * known, whole, rtol=1e-9, atol=0.0):
            return np.asarray(np.rint(factor * ratio), dtype=np.int64)
    return None


def make_propensity(
    kind: PropensityKind | ClassifierMixin, *, empty: bool, seed: int, folds: int = FOLDS
) -> Propensity:
    """Return an unfitted estimate of one kind; with no column to condition on it is always the group frequency.

    Parameters
    ----------
    kind
        ``"logistic"``, ``"boosted"``, ``"saturated"``, or a scikit-learn classifier.
    empty
        Whether there is no column.
    seed
        Seeds the folds and the trees.
    folds
        The folds of ``"boosted"`` and of a classifier; 1 fits on all rows.

    Raises
    ------
    DataError
        For anything else.
    """
    require_integer("folds", folds)
    named = kind if isinstance(kind, str) else None
    if empty or named == "saturated":
        return Saturated()
    if named == "logistic":
        return Logistic()
    if named == "boosted":
        return Boosted(seed, folds)
    if isinstance(kind, str | type) or not hasattr(kind, "predict_proba") or not hasattr(kind, "fit"):
        raise DataError(
            f"propensity={kind!r} is not known. Use 'logistic', 'boosted', 'saturated', or a scikit-learn classifier "
            "with predict_proba."
        )
    return FromClassifier(kind, folds, seed)


Prefix = tuple[str, ...]


@dataclass
class Rows:
    """A table of n rows with their groups (n,), sample weights (n,), and whether each is kept (n,) or trimmed.

    ``place`` tells which of the fitted rows each is, shape (n,), -1 for others; None: they are the fitted rows.
    """

    table: pd.DataFrame
    a: NDArray[np.int8]
    weight: NDArray[np.float64]
    kept: NDArray[np.bool_]
    probability: dict[Prefix, NDArray[np.float64]] = field(default_factory=dict)
    place: NDArray[np.int64] | None = None

    def member(self, group: int | None) -> NDArray[np.bool_]:
        """Tell which rows are kept and of a group (None: of either), shape (n,)."""
        return self.kept if group is None else self.kept & (self.a == group)


@dataclass
class Nuisances:
    """The propensities P(A = 1 | prefix), fitted on the kept rows.

    Parameters
    ----------
    graph
        The graph, which knows the columns of a prefix.
    kind
        The kind of propensity model.
    rows
        The rows they are fitted on.
    seed
        Seeds cross-fitting.
    clip
        Bounds the propensities that weights are made of.
    folds
        The folds of cross-fitting, for the kinds that are cross-fitted.
    """

    graph: CausalGraph
    kind: PropensityKind | ClassifierMixin
    rows: Rows
    seed: int
    clip: float | None
    folds: int = FOLDS
    models: dict[Prefix, Propensity] = field(default_factory=dict)
    matches: list[tuple[pd.DataFrame, NDArray[np.int64]]] = field(default_factory=list)

    def model(self, prefix: Prefix) -> Propensity:
        """Return the propensity of a prefix, fitting it at the first call."""
        if prefix not in self.models:
            model = make_propensity(self.kind, empty=not prefix, seed=self.seed, folds=self.folds)
            table, a, weight = self._data(self.rows, prefix)
            self.models[prefix] = model.fit(table, a, weight)
        return self.models[prefix]

    def refit(self, weight: NDArray[np.float64]) -> Nuisances:
        """Return the same propensities on the same rows with other weights (n,)."""
        rows = Rows(self.rows.table, self.rows.a, weight, self.rows.kept)
        other = Nuisances(self.graph, self.kind, rows, self.seed, self.clip, self.folds, matches=self.matches)
        other.models = {prefix: model.refit(*self._data(rows, prefix)) for prefix, model in self.models.items()}
        return other

    def place(self, table: pd.DataFrame) -> NDArray[np.int64]:
        """Return which of the fitted rows each row of a table is, shape (n,), -1 for others; see :func:`match_rows`."""
        for known, place in self.matches:  # the last one asked for: replicates ask again and again
            if table.equals(known):
                return place
        place = match_rows(table, self.rows.table)
        self.matches[:] = [(table, place)]
        return place

    def rows_of(self, table: pd.DataFrame, a: NDArray[np.int8], weight: NDArray[np.float64]) -> Rows:
        """Return a table of n rows with groups and weights (n,); those that were fitted on are known as such."""
        own, place = self.rows, self.place(table)
        if len(place) == len(own.a) and (place == np.arange(len(place))).all() and table.equals(own.table):
            return own if (weight == own.weight).all() else Rows(own.table, own.a, weight, own.kept, own.probability)
        return Rows(table, a, weight, np.ones(len(a), dtype=bool), place=place)

    def probability(self, rows: Rows, prefix: Prefix, *, clip: bool = True) -> NDArray[np.float64]:
        """Return P(A = 1 | prefix) of each row, shape (n,); trimmed rows hold 0.5 and get no weight.

        A row that was fitted on has the probability that the fit gave it, out of fold where it is cross-fitted.
        """
        if prefix not in rows.probability:
            model = self.model(prefix)
            p = np.full(len(rows.a), 0.5)
            if rows.place is None:
                p[rows.kept] = model.fitted
            else:
                known = rows.place >= 0
                p[known] = self.probability(self.rows, prefix, clip=False)[rows.place[known]]
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
        # Zero times infinity: the distribution of a later node is undefined there, which the overlap reports as
        # unsupported.
        # Infinity without sample weight: a row of a cell whose group has lost all its weight, say in a bootstrap.
        return np.where(np.isnan(w) | (np.isinf(w) & (rows.weight == 0.0)), 0.0, w)

    def inside(self, rows: Rows, prefixes: list[Prefix], trim: float) -> NDArray[np.bool_]:
        """Tell which rows have all the propensities of some prefixes within [trim, 1 - trim], shape (n,)."""
        p = [self.probability(rows, prefix, clip=False) for prefix in prefixes]
        return np.asarray(np.all([(trim <= q) & (q <= 1.0 - trim) for q in p], axis=0))

    def _data(self, rows: Rows, prefix: Prefix) -> tuple[pd.DataFrame, NDArray[np.int8], NDArray[np.float64]]:
        table = rows.table[self.graph.columns_of(prefix)]
        if rows.kept.all():
            return table, rows.a, rows.weight
        return table[rows.kept], rows.a[rows.kept], rows.weight[rows.kept]
