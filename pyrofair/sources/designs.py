"""Design matrices of numbers beside categories, held as codes: products and curvatures without a dense matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import expit

from pyrofair.tables.encoder import TableEncoder

__all__ = ["CodedDesign", "LogisticTerms", "fixed_columns", "newton_step"]

CHUNK = 65_536
"""The rows of which a sum is made at once, so that what it needs stays in the processor's cache."""
COLLINEAR = 1e-12
"""Directions whose curvature is below this share of the largest are collinear."""

ONE_GROUP = 1e-7
"""A level whose mean p (1 - p) is less occurs in one group only."""


@dataclass(frozen=True, eq=False)
class CodedDesign:
    """A matrix (n, k) of ones, numbers (n, p) and indicators of categories, which are held as codes (n, c).

    ``levels`` are the numbers of levels of the categories. A row takes 8 bytes a number and 1 or 2 a category, where
    the dense matrix takes 8 a level.

    >>> design = CodedDesign(np.array([[0.5], [2.0]]), np.array([[1], [0]]), (2,))
    >>> design @ np.array([1.0, 2.0, 0.0, 10.0])
    array([12.,  5.])
    """

    numbers: NDArray[np.float64]
    codes: NDArray[np.integer[Any]]
    levels: tuple[int, ...]

    @classmethod
    def of(cls, encoder: TableEncoder, X: pd.DataFrame) -> CodedDesign:
        """Return the design of a table by a fitted encoder: the columns of its matrix, after one of ones."""
        return cls(*encoder.transform_coded(X), tuple(map(len, encoder.categories_.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the dense matrix."""
        return len(self.numbers), 1 + self.numbers.shape[1] + sum(self.levels)

    @property
    def _starts(self) -> list[int]:
        """The column of the matrix at which each category starts."""
        return list(accumulate(self.levels, initial=1 + self.numbers.shape[1]))[:-1]

    def __matmul__(self, coef: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product with coefficients (k,) or (k, q), shape (n,) or (n, q)."""
        p = self.numbers.shape[1]
        result: NDArray[np.float64] = np.asarray(self.numbers @ coef[1 : 1 + p] + coef[0])
        for j, (start, size) in enumerate(zip(self._starts, self.levels, strict=True)):
            result += coef[start : start + size][self.codes[:, j]]
        return result

    def dense(self) -> NDArray[np.float64]:
        """Return the matrix (n, k) itself."""
        n, p = self.numbers.shape
        found = np.zeros(self.shape)
        found[:, 0] = 1.0
        found[:, 1 : 1 + p] = self.numbers
        for j, start in enumerate(self._starts):
            found[np.arange(n), start + self.codes[:, j].astype(np.int64)] = 1.0
        return found

    def __getitem__(self, rows: Any) -> CodedDesign:
        """Return the design of some rows."""
        return CodedDesign(self.numbers[rows], self.codes[rows], self.levels)

    def transposed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of the transposed matrix with values (n,), shape (k,)."""
        parts: list[Any] = [[values.sum()], values @ self.numbers]
        parts += [np.bincount(self.codes[:, j], values, size) for j, size in enumerate(self.levels)]
        return np.concatenate(parts)

    def fixed(self, p: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the columns that refits leave as they are at fitted probabilities (n,), shape (k,)."""
        return fixed_columns(
            self.transposed(p * (1.0 - p)), self.transposed(np.ones(len(p))), 1 + self.numbers.shape[1], self.levels
        )

    def curvature(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return X' diag(values) X, shape (k, k)."""
        k = self.shape[1]
        found = np.zeros((k, k))
        for part, own in self._chunks(values):
            part._add_curvature(own, found)
        upper: NDArray[np.float64] = np.triu(found)
        return upper + np.triu(found, 1).T

    def _chunks(self, values: NDArray[np.float64]) -> Iterator[tuple[CodedDesign, NDArray[np.float64]]]:
        for start in range(0, len(values), CHUNK):
            rows = slice(start, start + CHUNK)
            yield self[rows], values[rows]

    def _add_curvature(self, values: NDArray[np.float64], found: NDArray[np.float64]) -> None:
        """Add the upper triangle of some rows; a pair of categories has a table of sums."""
        p, starts = self.numbers.shape[1], self._starts
        weighted = values[:, None] * self.numbers
        found[0, 0] += values.sum()
        found[0, 1 : 1 + p] += weighted.sum(axis=0)
        found[1 : 1 + p, 1 : 1 + p] += weighted.T @ self.numbers
        for j, (start, size) in enumerate(zip(starts, self.levels, strict=True)):
            code = self.codes[:, j].astype(np.int64)
            own = np.bincount(code, values, size)
            found[0, start : start + size] += own
            found[range(start, start + size), range(start, start + size)] += own
            for i in range(p):
                found[1 + i, start : start + size] += np.bincount(code, weighted[:, i], size)
            for other in range(j + 1, len(starts)):
                first, width = starts[other], self.levels[other]
                pairs = np.bincount(code * width + self.codes[:, other], values, size * width)
                found[start : start + size, first : first + width] += pairs.reshape(size, width)


@dataclass(frozen=True)
class LogisticTerms:
    """The weighted logistic loss of some rows, with its gradient (k,) and curvature (k, k): they add up over rows."""

    loss: float
    gradient: NDArray[np.float64]
    curvature: NDArray[np.float64]

    @classmethod
    def of(
        cls, X: CodedDesign, a: NDArray[Any], weight: NDArray[np.float64], coef: NDArray[np.float64]
    ) -> LogisticTerms:
        """Return the terms of rows with responses in [0, 1] (n,) and weights (n,) at some coefficients."""
        eta = X @ coef
        p = expit(eta)
        loss = float(weight @ (np.logaddexp(0.0, eta) - a * eta))
        return cls(loss, X.transposed(weight * (a - p)), X.curvature(weight * p * (1.0 - p)))

    def __add__(self, other: LogisticTerms) -> LogisticTerms:
        return LogisticTerms(self.loss + other.loss, self.gradient + other.gradient, self.curvature + other.curvature)


def newton_step(curvature: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Newton's step (k,), of least norm in the scale of each column's curvature where the design is collinear.

    A column without curvature keeps its coefficient. The curvature of a level in one group only, which shrinks with
    each step, is not taken for collinearity, so that steps end by the likelihood alone.
    """
    diagonal = np.diag(curvature)
    root = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    held = diagonal > 0.0
    scaled = curvature / np.outer(root, root)
    found = linalg.lstsq(scaled, np.where(held, gradient / root, 0.0), cond=COLLINEAR, lapack_driver="gelsy")[0]
    return np.asarray(found / root)


def fixed_columns(
    diagonal: NDArray[np.float64], weight: NDArray[np.float64], first: int, levels: Sequence[int]
) -> NDArray[np.bool_]:
    """Return which columns of a design refits leave as they are: one level of each category, and levels in one group.

    ``diagonal`` is the curvature and ``weight`` the weight of each level, (k,); categories start at the ``first``
    column. The level kept is that of most curvature, to which others are relative. Of a level that occurs in
    one group only the likelihood has no maximum, so that any end is as good as the fit's.
    """
    fixed = np.zeros(len(diagonal), dtype=bool)
    for size in levels:
        own = slice(first, first + size)
        fixed[own] |= diagonal[own] <= ONE_GROUP * weight[own]
        if size:
            fixed[first + int(np.argmax(diagonal[own]))] = True
        first += size
    return fixed
