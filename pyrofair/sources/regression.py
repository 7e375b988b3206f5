"""Regressions of scores on columns of a table, by name or as a scikit-learn regressor, for all scores at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import RegressorMixin, clone, is_regressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from pyrofair.exceptions import DataError, PositivityError
from pyrofair.sources.models import (
    MOST_LEVELS,
    Stack,
    fit_weighted,
    linear_design,
    newton_logistic,
    recode,
    text_levels,
)
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import as_levels, encode_levels

__all__ = ["Design", "Predict", "Regression", "RegressionName", "make_regression", "require_regression", "take"]

FEWEST_TREES, MOST_TREES = 30, 200
"""Boosted regressions have at least and at most so many trees."""

SMOOTHED = 10_000
"""From so many rows on, boosted trees vary little enough themselves."""
SMOOTH_TREES, LEAST_IN_LEAF = 30, 5.0
"""A smooth fit has so many trees, with at least so many rows in a leaf."""

RegressionName = Literal["boosted", "logistic", "saturated", "stacked"]
Design: TypeAlias = Any
"""Rows of columns as a regression reads them: an array, a sparse one, or a table."""
Predict: TypeAlias = Callable[[Design], NDArray[np.float64]]
"""Returns the predictions (m, Q) for m rows of a design."""


class Regression(ABC):
    """A regression of Q scores on some columns, learned from any rows of a table.

    ``crossed`` is whether a row must be predicted by a fit that did not see it; fits of few parameters need not.
    ``smooths`` is whether there is another fit that errs more, and varies less between rows that are alike.
    """

    crossed = True
    smooths = False

    @abstractmethod
    def design(self, X: pd.DataFrame) -> Design:
        """Return the rows of a table as :meth:`fit` reads them."""

    @abstractmethod
    def fit(self, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
        """Fit m rows of a design with scores (m, Q) and weights (m,), and return the prediction."""

    def smooth(self, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
        """Fit what :meth:`fit` does, by the fit that varies less."""
        return self.fit(design, y, weight)


class Saturated(Regression):
    """The weighted mean of every cell of the columns; with no column, that of all rows."""

    crossed = False

    def __init__(self, X: pd.DataFrame) -> None:
        self.levels = {name: as_levels(X[name]) for name in X.columns}
        self.names: list[str] = list(map(str, X.columns))

    def design(self, X: pd.DataFrame) -> NDArray[np.int64]:
        """Return the number of each row's cell."""
        cell = np.zeros(len(X), dtype=np.int64)
        for name, levels in self.levels.items():
            cell = cell * len(levels) + encode_levels(X[name], levels)
        return cell

    def fit(self, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
        """Average the scores of each cell."""
        cells, index = np.unique(design[weight > 0.0], return_inverse=True)
        kept, w = y[weight > 0.0], weight[weight > 0.0]
        total = np.bincount(index, w)
        means = np.column_stack([np.bincount(index, w * column) / total for column in kept.T])

        def predict(rows: NDArray[np.int64]) -> NDArray[np.float64]:
            at = np.searchsorted(cells, rows).clip(max=len(cells) - 1)
            if (absent := cells[at] != rows).any():
                raise PositivityError(
                    f"A saturated regression has no row of the group in {int(absent.sum())} of the cells of "
                    f"{', '.join(self.names)} where it is needed. Use regression='boosted' or 'logistic', or merge "
                    "levels."
                )
            return np.asarray(means[at])

        return predict


class Logistic(Regression):
    """Logistic regression of scores in [0, 1], or in [-1, 1], on main effects, by quasi-likelihood."""

    crossed = False

    def __init__(self, X: pd.DataFrame) -> None:
        self.encoder = TableEncoder().fit(X)

    def design(self, X: pd.DataFrame) -> Design:
        """Return a column of ones beside the encoded columns."""
        return linear_design(self.encoder, X)

    def fit(self, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
        """Maximise the weighted likelihood of each score."""
        low = np.where(y.min(axis=0) < 0.0, -1.0, 0.0)
        start = np.zeros(design.shape[1])
        scaled = (y - low) / (1.0 - low)
        coefficients = np.column_stack([newton_logistic(design, each, weight, start) for each in scaled.T])
        return lambda rows: np.asarray(low + (1.0 - low) * expit(rows @ coefficients))


class FromRegressor(Regression):
    """Clones of a scikit-learn regressor, one for each score, given the columns as they are."""

    def __init__(self, X: pd.DataFrame, regressor: Any, *, recodes: bool = False) -> None:
        self.regressor = regressor
        self.levels = text_levels(X) if recodes else {}

    def design(self, X: pd.DataFrame) -> Design:
        """Return the table, with text as categories where the regressor needs that."""
        return recode(X, self.levels)

    def fit(self, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
        """Fit a clone for each score."""
        return _each(y, lambda column: _fitted(clone(self.regressor), design, column, weight))


@dataclass(frozen=True)
class Cells:
    """Rows of numbers as their different ones, (k, p), and which of these each row is, (m,): few are predicted."""

    different: NDArray[np.float64]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[np.float64]) -> Cells:
        """Gather equal rows."""
        index = np.asarray(pd.DataFrame(rows).groupby(list(range(rows.shape[1])), sort=False).ngroup(), dtype=np.int64)
        first = np.unique(index, return_index=True)[1]
        return cls(rows[first], index)

    def __getitem__(self, at: NDArray[np.int64]) -> Cells:
        if len(at) < len(self.different):
            return Cells(self.different[self.index[at]], np.arange(len(at), dtype=np.int64))
        return Cells(self.different, self.index[at])


class Boosted(Regression):
    """Gradient-boosted trees, one ensemble for each score; categories are split as sets."""

    def __init__(self, X: pd.DataFrame, seed: int) -> None:
        self.levels = text_levels(X)
        self.values = {name: np.unique(X[name].to_numpy(np.float64)) for name in X.columns if name not in self.levels}
        self.columns, self.seed, self.smooths = list(X.columns), seed, len(X) < SMOOTHED
        self.trees = _trees([0 < len(self.levels.get(name, ())) <= MOST_LEVELS for name in self.columns], len(X), seed)

    def design(self, X: pd.DataFrame) -> Cells:
        """Return categories by their codes and numbers by their ranks, so that no outlier takes up all splits."""
        parts = [
            encode_levels(X[name], self.levels[name]) if name in self.levels else self._ranks(name, X[name])
            for name in self.columns
        ]
        return Cells.of(np.column_stack(parts).astype(np.float64))

    def _ranks(self, name: str, column: pd.Series[Any]) -> NDArray[np.float64]:
        known, values = self.values[name], column.to_numpy(np.float64)
        return np.asarray(np.searchsorted(known, values) + np.searchsorted(known, values, side="right")) / 2.0

    def fit(self, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
        """Fit an ensemble for each score."""
        rows = design.different[design.index]
        predict = _each(y, lambda column: _fitted(clone(self.trees), rows, column, weight))
        return lambda asked: predict(asked.different)[asked.index]

    def smooth(self, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
        """Fit a forest of trees split at random for each score, on the mean score of each different row."""
        total = np.bincount(design.index, weight, len(design.different)).astype(np.float64)
        kept = total > 0.0
        means = [np.bincount(design.index, weight * column, len(total))[kept] / total[kept] for column in y.T]
        least = min(0.5, LEAST_IN_LEAF / len(y))
        trees = ExtraTreesRegressor(SMOOTH_TREES, min_weight_fraction_leaf=least, random_state=self.seed)
        rows = design.different[kept]
        predict = _each(np.column_stack(means), lambda column: _fitted(clone(trees), rows, column, total[kept]))
        return lambda asked: predict(asked.different)[asked.index]


def _trees(categorical: Any, n: int, seed: int) -> HistGradientBoostingRegressor:
    """Return boosted trees that are few and small, and more of them for more rows.

    Scores are nearly functions of the features, and a stage is fitted for each classifier, fold and kind of decisions:
    on Adult 30 trees of 8 leaves predict as well as 100 of 15 leaves, in a quarter of the time.
    """
    return HistGradientBoostingRegressor(
        learning_rate=0.2,
        max_iter=int(np.clip(FEWEST_TREES * np.sqrt(n / 30_000), FEWEST_TREES, MOST_TREES)),
        max_leaf_nodes=8,
        early_stopping=False,
        categorical_features=categorical,
        random_state=seed,
    )


def _fitted(model: Any, design: Design, y: NDArray[np.float64], weight: NDArray[np.float64]) -> Predict:
    fitted = fit_weighted(model, design, y, weight, what="The regression")

    def predict(rows: Design) -> NDArray[np.float64]:
        found = np.asarray(fitted.predict(rows), dtype=np.float64)
        if found.shape != (rows.shape[0],) or not np.isfinite(found).all():
            raise DataError(
                f"The regression {type(model).__name__} returned the shape {found.shape} for {rows.shape[0]} rows, or "
                "numbers that are not finite."
            )
        return found

    return predict


def _each(y: NDArray[np.float64], fit: Callable[[NDArray[np.float64]], Predict]) -> Predict:
    """Fit each column of scores, equal ones once and constant ones not at all; predictions keep to the scores' range.

    Without that, a regression beyond [0, 1] would only add variance.
    """
    keys = [column.tobytes() for column in y.T]
    columns = dict(zip(keys, y.T, strict=True))
    fits = {key: None if np.ptp(column) == 0.0 else fit(column) for key, column in columns.items()}

    def predict(rows: Design) -> NDArray[np.float64]:
        found = {
            key: np.full(rows.shape[0], columns[key][0])
            if each is None
            else each(rows).clip(columns[key].min(), columns[key].max())
            for key, each in fits.items()
        }
        return np.column_stack([found[key] for key in keys])

    return predict


def _stack(n: int, seed: int) -> Stack:
    """Return a stack of linear regression on main effects and boosted trees."""
    return Stack([make_pipeline(TableEncoder(), LinearRegression()), _trees("from_dtype", n, seed)], seed=seed)


def make_regression(regression: RegressionName | RegressorMixin, X: pd.DataFrame, seed: int) -> Regression:
    """Return a regression on the columns of a table, unfitted; without columns it is the mean."""
    if not len(X.columns) or (isinstance(regression, str) and regression == "saturated"):
        return Saturated(X)
    if not isinstance(regression, str):
        return FromRegressor(X, regression)
    if regression == "logistic":
        return Logistic(X)
    return Boosted(X, seed) if regression == "boosted" else FromRegressor(X, _stack(len(X), seed), recodes=True)


def require_regression(name: str, value: object) -> None:
    """Refuse what is neither the name of a regression nor a regressor."""
    if isinstance(value, str) and value in get_args(RegressionName):
        return
    if isinstance(value, str | type) or not (
        hasattr(value, "fit") and hasattr(value, "predict") and is_regressor(value)
    ):
        raise DataError(
            f"{name}={value!r} is not known. Use 'boosted', 'logistic', 'saturated', 'stacked', or a scikit-learn "
            "regressor; a classifier has no place here, for it regresses scores."
        )


def take(design: Design, index: NDArray[np.int64]) -> Design:
    """Return some rows of a design."""
    return design.iloc[index] if isinstance(design, pd.DataFrame) else design[index]
