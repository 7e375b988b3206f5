"""Logistic regression by Newton's method on a sparse design of numbers and indicators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.special import expit

from pyrofair.tables.encoder import TableEncoder

__all__ = ["COLLINEAR", "WIDE", "fixed_columns", "information", "linear_design", "newton_logistic"]

WIDE = 256
"""Steps on more columns are found by conjugate gradients."""
COLLINEAR = 1e-12
"""Directions whose curvature is below this share of the largest are collinear."""
MOST_PRODUCTS, CG_TOLERANCE, FLAT = 2000, 1e-9, 1e-11
"""Conjugate gradients end after so many products, at this relative residual, or at so little curvature."""
ONE_GROUP = 1e-7
"""A level whose mean p (1 - p) is less occurs in one group only."""


def linear_design(encoder: TableEncoder, X: pd.DataFrame) -> Any:
    """Return a column of ones beside the encoded columns of a table, (n, k), in compressed rows."""
    return sparse.csr_array(sparse.hstack([sparse.csr_array(np.ones((len(X), 1))), encoder.transform_sparse(X)]))


def newton_logistic(
    X: Any,
    a: NDArray[Any],
    weight: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    tolerance: float = 1e-12,
    max_steps: int = 60,
    fixed: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return coefficients that maximise the weighted logistic likelihood of responses in [0, 1] (n,), shape (k,).

    Steps are damped by halving and of least norm where the design is collinear, so that every refit of a bootstrap
    converges; under separation it stops once the likelihood gains no more. Those that are ``fixed`` (k,) stay.
    """
    scale, coef = float(weight.sum()), start

    def loss(eta: NDArray[np.float64]) -> float:
        return float(weight @ (np.logaddexp(0.0, eta) - a * eta)) / scale

    eta = X @ coef
    current = loss(eta)
    for _ in range(max_steps):
        p = expit(eta)
        step = _step(X, weight * p * (1.0 - p) / scale, X.T @ (weight * (a - p)) / scale, fixed)
        eta_step, size = X @ step, 1.0
        # Near the maximum the loss is flat to its last digit, which must not shorten the last steps.
        while size > 1e-6 and loss(eta + size * eta_step) > current * (1.0 + 1e-13):
            size /= 2.0
        coef, eta = coef + size * step, eta + size * eta_step
        previous, current = current, loss(eta)
        if previous - current <= tolerance * (abs(current) + tolerance):
            break
    return coef


def information(X: Any, curvature: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return X' diag(curvature) X, shape (k, k)."""
    scaled = sparse.csr_array((X.data * np.repeat(curvature, np.diff(X.indptr)), X.indices, X.indptr), X.shape)
    return np.asarray((X.T @ scaled).toarray())


def _step(
    X: Any, curvature: NDArray[np.float64], gradient: NDArray[np.float64], fixed: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Solve X' diag(curvature) X step = gradient (k,), scaled by the diagonal; what has no curvature stays."""
    if X.shape[1] > WIDE:
        return _conjugate_gradients(X, curvature, gradient)
    curved = information(X, curvature)
    diagonal = np.diag(curved)
    held = diagonal > 0.0 if fixed is None else (diagonal > 0.0) & ~fixed
    root = np.sqrt(np.where(held, diagonal, 1.0))
    curved = curved / np.outer(root, root)
    curved[~held] = curved[:, ~held] = 0.0
    right = np.where(held, gradient / root, 0.0)
    return np.asarray(linalg.lstsq(curved, right, cond=COLLINEAR, lapack_driver="gelsy")[0] / root)


def _conjugate_gradients(X: Any, curvature: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve as :func:`_step` does, without the matrix; SciPy's method goes on into collinear directions."""
    diagonal = np.asarray(X.multiply(X).T @ curvature)
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)
    step, residual = np.zeros_like(gradient), gradient.copy()
    direction = inverse * residual
    first = size = float(residual @ direction)
    for _ in range(MOST_PRODUCTS):
        curved = X.T @ (curvature * (X @ direction))
        along = float(direction @ curved)
        if not (size > CG_TOLERANCE**2 * first and along > FLAT * float(direction @ (diagonal * direction))):
            break  # the second: nothing but rounding, a collinear direction
        step += (size / along) * direction
        residual -= (size / along) * curved
        before, size = size, float(residual @ (inverse * residual))
        direction = inverse * residual + (size / before) * direction
    return step


def fixed_columns(X: Any, p: NDArray[np.float64], encoder: TableEncoder) -> NDArray[np.bool_] | None:
    """Return the columns (k,) that refits keep: a level of each category, and levels in one group (no maximum)."""
    if X.shape[1] > WIDE:
        return None
    curvature, weight = X.T @ (p * (1.0 - p)), X.T @ np.ones(len(p))
    fixed, first = np.zeros(len(curvature), dtype=bool), 1 + len(encoder.numeric_)
    for levels in map(len, encoder.categories_.values()):
        own = slice(first, first + levels)
        fixed[own] |= curvature[own] <= ONE_GROUP * weight[own]
        if levels:
            fixed[first + int(np.argmax(curvature[own]))] = True
        first += levels
    return fixed
