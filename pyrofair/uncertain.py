"""Numbers of people of whom some are known and others drawn: one value each, or a sample of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Uncertain"]


@dataclass(frozen=True, eq=False)
class Uncertain:
    """A number, or an array of numbers, for each of n people.

    Parameters
    ----------
    point : array of shape (n, ...)
        What is known, and the mean of the draws where it is not.
    rows : array of shape (r,)
        The people for whom it is drawn.
    draws : array of shape (r, draws, ...)
        Their draws.

    Examples
    --------
    >>> x = Uncertain.of(np.array([1.0, np.nan]), np.array([1]), np.array([[2.0, 4.0]]))
    >>> x.point, x.sd, x.dense(2)
    (array([1., 3.]), array([0., 1.]), array([[1., 1.],
           [2., 4.]]))
    """

    point: NDArray[np.float64]
    rows: NDArray[np.int64]
    draws: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        point: NDArray[np.float64],
        rows: NDArray[np.int64] | None = None,
        draws: NDArray[np.float64] | None = None,
        *,
        collapse: bool = True,
    ) -> Uncertain:
        """Put known values and draws together.

        Parameters
        ----------
        point, rows, draws
            As above; the points of those who are drawn are filled in.
        collapse
            Whether people whose draws are all the same count as known.
        """
        if rows is None or draws is None or not len(rows):
            return cls(point, np.empty(0, dtype=np.int64), np.empty((0, 0, *point.shape[1:])))
        same = (draws == draws[:, :1]).reshape(len(rows), -1).all(1)
        filled = point.copy()
        filled[rows] = draws.mean(1)
        filled[rows[same]] = draws[same, 0]
        if not collapse or not same.any():
            return cls(filled, rows, draws)
        return cls(filled, rows[~same], draws[~same])

    @cached_property
    def sd(self) -> NDArray[np.float64]:
        """The standard deviation of the draws, 0 for what is known, shape (n, ...)."""
        found = np.zeros(self.point.shape)
        if len(self.rows):
            found[self.rows] = self.draws.std(1)
        return found

    @property
    def mode(self) -> NDArray[np.float64]:
        """What is known, and of whole numbers that are drawn the most frequent one, shape (n,)."""
        found = self.point.copy()
        if len(self.rows):
            values = np.unique(self.draws)
            counts = [(self.draws == value).sum(1) for value in values]
            found[self.rows] = values[np.argmax(counts, 0)]
        return found

    def dense(self, count: int) -> NDArray[np.float64]:
        """Return ``count`` draws for everyone, shape (n, count, ...); a view that takes no memory if all is known."""
        return self.take(np.arange(len(self.point)), count)

    def take(self, people: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Return ``count`` draws for some people, named by their places, shape (m, count, ...)."""
        wide = np.broadcast_to(self.point[people, None], (len(people), count, *self.point.shape[1:]))
        place = np.full(len(self.point), -1)
        place[self.rows] = np.arange(len(self.rows))
        drawn = place[people]
        if (drawn >= 0).any():
            wide = wide.copy()
            wide[drawn >= 0] = self.draws[drawn[drawn >= 0], :count]
        return wide

    @classmethod
    def pooled(cls, parts: Sequence[Uncertain], count: int) -> Uncertain:
        """Put ``count`` draws from each of several parts side by side."""
        dense = np.concatenate([part.dense(count) for part in parts], 1)
        return cls.of(parts[0].point, np.arange(len(dense)), dense)
