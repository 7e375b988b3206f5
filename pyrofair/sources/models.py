"""Fitting of nuisance models: folds, weights, logistic regression, stacks, and tables as models read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import nnls
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from pyrofair.exceptions import DataError
from pyrofair.sources.designs import CodedDesign, newton_step
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.labels import as_levels, encode_levels, is_categorical

__all__ = [
    "MOST_LEVELS",
    "Design",
    "Folds",
    "Stack",
    "fit_weighted",
    "linear_design",
    "newton_logistic",
    "recode",
    "split_folds",
    "text_levels",
]

STACK_FOLDS = 3
"""The folds in which the members of a stack are compared."""
MOST_LEVELS = 255
"""Boosted trees split so many levels of a category as a set, and more by their order."""
WIDE = 256
"""Encoded tables of more columns are held in compressed rows."""
MOST_PRODUCTS, CG_TOLERANCE, FLAT = 2000, 1e-9, 1e-11
"""Conjugate gradients end after so many products, at this relative residual, or at so little curvature."""
MOST_COPIES = 1000
"""The most often that a row is repeated for a classifier that takes no weights."""
Design: TypeAlias = Any
"""A matrix (n, k): a :class:`CodedDesign`, or one of SciPy in compressed rows."""
Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""For each fold the rows that it is fitted on, and those that it judges."""


def split_folds(a: NDArray[np.int8], weight: NDArray[np.float64], folds: int, seed: int) -> Folds:
    """Split the rows of positive weight (n,) into folds with rows of both groups a (n,); one fold is all of them."""
    kept = np.flatnonzero(weight > 0.0)
    smallest = int(np.bincount(a[kept], minlength=2).min())
    if smallest < folds:
        raise DataError(
            f"A group has {smallest} rows with a weight, too few for {folds}-fold cross-fitting; use "
            "propensity='logistic', or fewer folds (folds=1 fits on all rows)."
        )
    if folds == 1:
        return [(kept, kept)]
    split = StratifiedKFold(folds, shuffle=True, random_state=seed).split(kept, a[kept])
    return [(kept[train], kept[test]) for train, test in split]


def text_levels(X: pd.DataFrame) -> dict[str, pd.Index[Any]]:
    """Return the levels of the columns of a table that hold categories, text or objects.

    More than 255, which boosted trees cannot split as sets, come in the order of their number of rows.
    """
    found = {name: as_levels(X[name]) for name in X.columns if is_categorical(X[name])}
    for name, levels in found.items():
        if len(levels) > MOST_LEVELS:
            rows = np.bincount(encode_levels(X[name], levels), minlength=len(levels))
            found[name] = levels[np.argsort(-rows, kind="stable")]
    return found


def recode(X: pd.DataFrame, levels: Mapping[str, pd.Index[Any]]) -> pd.DataFrame:
    """Return a table with some columns as pandas categories of these levels; an unknown value is a DataError.

    Of more than 255 levels the code is given, as a number.
    """
    codes = {name: encode_levels(X[name], own) for name, own in levels.items()}
    return X.assign(
        **{
            name: code.astype(np.float64)
            if len(levels[name]) > MOST_LEVELS
            else pd.Categorical.from_codes(code, categories=levels[name])
            for name, code in codes.items()
        }
    )


def linear_design(encoder: TableEncoder, X: pd.DataFrame) -> Design:
    """Return a column of ones beside the encoded columns of a table, (n, k), sparse where they are many.

    Categories are held as codes: no matrix of indicators is made.
    """
    if encoder.width_ > WIDE:
        ones = np.ones((len(X), 1))
        return sparse.csr_array(sparse.hstack([sparse.csr_array(ones), encoder.transform_sparse(X)]))
    return CodedDesign.of(encoder, X)


def newton_logistic(
    X: Design,
    a: NDArray[Any],
    weight: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    tolerance: float = 1e-12,
    max_steps: int = 60,
    fixed: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return coefficients that maximise the weighted logistic likelihood of responses in [0, 1] (n,), shape (k,).

    Steps are damped by halving and, where the design is collinear or a level has lost all its weight, of least norm, so
    that every refit of a bootstrap converges. Under separation it stops once the likelihood gains no more. With a
    sparse design conjugate gradients solve for a step, and never leave the design's row space. Some coefficients of
    another design may be ``fixed``, shape (k,).
    """
    scale = float(weight.sum())
    coef = start

    def loss(eta: NDArray[np.float64]) -> float:
        return float(weight @ (np.logaddexp(0.0, eta) - a * eta)) / scale

    eta = X @ coef
    current = loss(eta)
    for _ in range(max_steps):
        p = expit(eta)
        curvature = weight * p * (1.0 - p) / scale
        if isinstance(X, CodedDesign):
            curved = X.curvature(curvature)
            if fixed is not None:
                curved[fixed] = curved[:, fixed] = 0.0
            step = newton_step(curved, X.transposed(weight * (a - p)) / scale)
        else:
            step = _conjugate_gradients(X, curvature, X.T @ (weight * (a - p)) / scale)
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


def fit_weighted(
    model: Any, X: Any, y: NDArray[Any], weight: NDArray[np.float64], *, what: str = "The propensity model"
) -> Any:
    """Fit a model with weights; one that takes none gets each row as often as its weight, in integer ratios."""
    if (weight == weight[0]).all():
        return _fit(what, model, X, y)
    last = model.steps[-1] if isinstance(model, Pipeline) else None
    if has_fit_parameter(last[1] if last else model, "sample_weight"):
        return _fit(what, model, X, y, **{f"{last[0]}__sample_weight" if last else "sample_weight": weight})
    counts = _as_counts(weight)
    if counts is None:
        raise DataError(
            f"{what} {type(last[1] if last else model).__name__} takes no sample_weight, and the weights are not in "
            "the ratio of integers by which rows could be repeated. Use a model that takes weights, or in an audit "
            "bootstrap='multinomial'."
        )
    rows = np.repeat(np.arange(len(y)), counts)
    return _fit(what, model, X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows], y[rows])


def _fit(what: str, model: Any, X: Any, y: NDArray[Any], **weights: NDArray[np.float64]) -> Any:
    try:
        return model.fit(X, y, **weights)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"{what} {type(model).__name__} cannot be fitted: {error}") from error


def _as_counts(weight: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return the smallest integers in the ratio of some weights, shape (n,); None if they would be large."""
    ratio = weight / weight[weight > 0.0].min()
    known: NDArray[np.float64] = np.unique(ratio)
    for factor in range(1, MOST_COPIES + 1):
        rounded = np.rint(factor * known)
        if rounded[-1] > MOST_COPIES:
            break
        if np.allclose(factor * known, rounded, rtol=1e-9, atol=0.0):
            return np.asarray(np.rint(factor * ratio), dtype=np.int64)
    return None


class Stack(BaseEstimator):  # type: ignore[misc]
    """A weighted average of models, the weights those that predict best out of fold, none of them below 0.

    The members are classifiers of 0 and 1 (``chances``) or regressors. Unlike scikit-learn's stacks it takes sample
    weights whatever its members are.
    """

    def __init__(self, members: list[Any], chances: bool = False, seed: int = 0) -> None:
        self.members, self.chances, self.seed = members, chances, seed

    def fit(self, X: pd.DataFrame, y: NDArray[Any], sample_weight: NDArray[np.float64] | None = None) -> Self:
        """Fit n rows with responses and weights (n,)."""
        weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        split: Any = StratifiedKFold if self.chances else KFold
        found = np.empty((len(y), len(self.members)))
        for train, test in split(STACK_FOLDS, shuffle=True, random_state=self.seed).split(X, y):
            for j, member in enumerate(self.members):
                model = fit_weighted(clone(member), X.iloc[train], y[train], weight[train])
                found[test, j] = self._predicted(model, X.iloc[test])
        root = np.sqrt(weight)
        share = nnls(root[:, None] * found, root * y)[0]
        self.share_ = share / share.sum() if share.any() else np.full(len(share), 1.0 / len(share))
        self.models_ = [fit_weighted(clone(member), X, y, weight) for member in self.members]
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the averages of the members' predictions (m,)."""
        members = np.column_stack([self._predicted(model, X) for model in self.models_])
        return np.asarray(members @ self.share_, dtype=np.float64)

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probabilities of 0 and 1, (m, 2)."""
        one = self.predict(X)
        return np.column_stack([1.0 - one, one])

    def _predicted(self, model: Any, X: pd.DataFrame) -> NDArray[np.float64]:
        return np.asarray(model.predict_proba(X)[:, 1] if self.chances else model.predict(X), dtype=np.float64)
