"""One-step estimates of the ends of PIU over couplings of what unfair edges switch.

Where the switched nodes agree in both worlds, so does all that follows from them. Given what both worlds share, each
end is then a linear program over couplings of the values of the switched nodes, the cells (``docs/methods.md``). Its
potentials and its coupling are the derivatives of its value, and so make its influence values of those of the cells'
probabilities and of the mean scores in the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_integer_dtype

from pyrofair.effects.bounds import BLOCK, solve_couplings
from pyrofair.exceptions import DataError
from pyrofair.graph.identification import Estimand
from pyrofair.sources.propensity import Rows
from pyrofair.sources.regression import Design, Predict, Regression, take
from pyrofair.sources.stages import Stage
from pyrofair.tables.labels import is_categorical

__all__ = [
    "ASKED",
    "MOST_CELLS",
    "CoupledEnds",
    "Switch",
    "require_switched_first",
    "switched_nodes",
    "too_many_values",
]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Learn = Callable[[Stage, Index], tuple[Index, Regression, Design, Design]]
"""Returns which of some fitted rows a stage is learned from, its regression, and its designs of the rows and the fitted
ones."""

MOST_CELLS = 200
"""The most values that the switched nodes may have together."""


ASKED = "joint='consistent'", "Use joint=None."
"""What asks for cells, and what to do without."""


def too_many_values(columns: Sequence[str], most: int, asked: tuple[str, str] = ASKED) -> DataError:
    """Return the error for switched nodes with more than so many values together."""
    return DataError(
        f"{asked[0]} takes each value of {', '.join(columns)} by itself, and they have more than {most} "
        f"together, or are no categories or integers. {asked[1]}"
    )


def require_switched_first(
    switched: Sequence[str],
    given: Mapping[str, Sequence[str]],
    drawn: Sequence[str],
    asked: tuple[str, str] = ASKED,
) -> None:
    """Refuse a switched node that reads a drawn one which is not switched."""
    if late := [node for node in switched if {*given[node]} & {*drawn} - {*switched}]:
        raise DataError(
            f"{asked[0]} does not serve here: {late[0]!r}, which unfair edges switch, reads a drawn node that they do "
            f"not. {asked[1]}"
        )


def switched_nodes(estimand: Estimand) -> tuple[str, ...]:
    """Return the nodes that read another value of the sensitive attribute in each world, in order.

    A DataError where the ends over their couplings are not those of a program given what both worlds share.
    """
    one, other = estimand.baseline, estimand.switched
    arms = {factor.node: factor.arm for factor in one.factors}
    switched = tuple(factor.node for factor in other.factors if factor.arm != arms[factor.node])
    later, shared = other.order[other.roots :], set(estimand.unfair.shared)
    if switched and (caused := [node for node in later if node in shared]):
        raise DataError(
            "joint='consistent' needs what is shared by both worlds to be no effect of "
            f"{estimand.unfair.graph.sensitive}, and {', '.join(caused)} is one. Use joint=None."
        )
    given = {factor.node: factor.given for factor in other.factors}
    require_switched_first(switched, given, later)
    return switched


@dataclass(frozen=True)
class Switch:
    """The stages of what unfair edges switch, one in each world, and those of what follows, alike in both.

    ``shared`` are the columns of what both worlds share, and ``switched`` those of the switched nodes.
    """

    shared: list[str]
    switched: list[str]
    stages: tuple[Stage, Stage]
    rest: tuple[Stage, ...]

    def check(self, table: pd.DataFrame) -> None:
        """Refuse switched columns that have more than a few values together."""
        own = table[self.switched]
        counted = all(is_categorical(each) or is_integer_dtype(each) or is_bool_dtype(each) for _, each in own.items())
        if not counted or len(own.drop_duplicates()) > MOST_CELLS:
            raise too_many_values(self.switched, MOST_CELLS)


class CoupledEnds:
    """Influence values of the ends of PIU of n rows, fold by fold.

    A unit is a value of what both worlds share, and a cell one of what unfair edges switch.

    Parameters
    ----------
    switch, rows, fitted
        The stages, the rows to judge, and those to learn from.
    scores
        The scores (n, Q) of the rows and of the fitted rows, in both worlds, from which the last stage starts.
    weigh
        Returns the weight (n,) of the rows at a stage of a world (0 or 1).
    learn
        See ``Learn``.
    score
        Returns the scores (m, Q) of the rows of a table in a world.
    """

    def __init__(
        self,
        switch: Switch,
        rows: Rows,
        fitted: Rows,
        scores: Sequence[tuple[Array, Array]],
        *,
        weigh: Callable[[int, Stage], Array],
        learn: Learn,
        score: Callable[[int, pd.DataFrame], Array],
    ) -> None:
        self.switch, self.fitted, self.learn = switch, fitted, learn
        (own0, known0), (own1, known1) = scores
        self.own, self.known = _targets(own0, own1), _targets(known0, known1)
        self.weights = {(w, at): weigh(w, at) for w in (0, 1) for at in (switch.stages[w], *switch.rest)}
        cells = pd.concat([each.table[switch.switched] for each in (fitted, rows)], ignore_index=True)
        cell, first_cell = _number(cells)
        self.cell_known, self.cell = np.split(cell, [len(fitted.a)])
        self.cells = len(first_cell)
        self.unit, self.first = _number(rows.table[switch.shared])
        at = np.repeat(self.first, self.cells), np.tile(first_cell, len(self.first))
        cells = cells.astype(fitted.table[switch.switched].dtypes).iloc[at[1]].reset_index(drop=True)
        table = rows.table[switch.shared].iloc[at[0]].reset_index(drop=True).join(cells)
        self.known_means: Array | None = None
        if switch.rest:
            regression = learn(switch.rest[0], np.arange(len(fitted.a)))[1]
            self.design = regression.design(table)
        else:  # the classifier itself gives the means
            self.known_means = self._by_unit(_targets(score(0, table), score(1, table)))

    def fold(self, train: Index, judged: Index) -> tuple[Array, Array]:
        """Return the values of the lower end and of 1 minus the upper end, (m, Q), of rows judged by others."""
        units, unit = np.unique(self.unit[judged], return_inverse=True)
        cell = self.cell[judged]
        (p, residual0), (q, residual1) = (self._margin(which, train, judged, units, unit) for which in (0, 1))
        means, corrections = self._means(train, judged, units)
        columns = self.own.shape[1] // 4
        found = np.zeros((2, len(judged), columns))
        for column in range(columns):
            a, b, *diagonals = means[:, :, column::columns].transpose(2, 0, 1)
            c0, _, *alike0 = corrections[0][:, column::columns].T
            c1 = corrections[1][:, columns + column]
            for end, diagonal in enumerate(diagonals):
                program = _Program.solve(end, a, b, diagonal, p, q)
                found[end, :, column] = (
                    program.value[unit]
                    + (program.first[unit] * residual0 + program.second[unit] * residual1).sum(axis=1)
                    + program.on_first[unit, cell] * c0
                    + program.on_second[unit, cell] * c1
                    + program.alike[unit, cell] * alike0[end]
                )
        return found[0], found[1]

    def _by_unit(self, values: Array) -> Array:
        return values.reshape(-1, self.cells, values.shape[1])

    def _margin(self, which: int, train: Index, judged: Index, units: Index, unit: Index) -> tuple[Array, Array]:
        """Return the probabilities of the cells of units, (u, K), and the weighted residuals of rows, (m, K)."""
        stage = self.switch.stages[which]
        at, regression, design, learned = self.learn(stage, train)
        at = train[at]
        each = np.eye(self.cells)
        predict = regression.fit(take(learned, at), each[self.cell_known[at]], self.fitted.weight[at])
        p = predict(take(design, self.first[units])).clip(min=0.0)
        p[p.sum(axis=1) == 0.0] = 1.0
        p /= p.sum(axis=1, keepdims=True)
        return p, self.weights[which, stage][judged, None] * (each[self.cell[judged]] - p[unit])

    def _means(self, train: Index, judged: Index, units: Index) -> tuple[Array, list[Array]]:
        """Return the mean targets in units' cells, (u, K, 4 Q), and rows' corrections in both worlds, (m, 4 Q)."""
        corrections = [np.zeros((len(judged), self.own.shape[1])) for _ in (0, 1)]
        if self.known_means is not None:
            return self.known_means[units], corrections
        own = self.own[judged]
        target: Callable[[Index], Array] = self.known.__getitem__
        for stage in reversed(self.switch.rest):
            at, regression, design, learned = self.learn(stage, train)
            predict = regression.fit(take(learned, train[at]), target(train[at]), self.fitted.weight[train[at]])
            start = predict(take(design, judged))
            for which, found in enumerate(corrections):
                weight = self.weights[which, stage][judged, None]
                found += np.where(weight > 0.0, weight * (own - start), 0.0)
            own, target = start, partial(_predicted, predict, learned)
        cells = (units[:, None] * self.cells + np.arange(self.cells)).ravel()
        return self._by_unit(predict(take(self.design, cells))), corrections


@dataclass(frozen=True)
class _Program:
    """The solutions of an end's program for u units: its value (u,), and its derivatives, (u, K) each.

    ``first`` and ``second`` are those by the probabilities of the cells in both worlds, the potentials. By the mean
    scores of both worlds in a cell, and by the mean distance of the scores in a cell that agrees, they are
    ``on_first``, ``on_second`` and ``alike``, over the cell's probability.
    """

    value: Array
    first: Array
    second: Array
    on_first: Array
    on_second: Array
    alike: Array

    @classmethod
    def solve(cls, end: int, a: Array, b: Array, diagonal: Array, p: Array, q: Array) -> _Program:
        """Solve the programs of the lower end (0) or of 1 minus the upper end (1), block by block."""
        size = max(1, BLOCK // p.shape[1] ** 2)
        blocks = [slice(i, i + size) for i in range(0, len(p), size)]
        parts = [cls._block(end, *(each[block] for each in (a, b, diagonal, p, q))) for block in blocks]
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    @staticmethod
    def _block(end: int, a: Array, b: Array, diagonal: Array, p: Array, q: Array) -> tuple[Array, ...]:
        sign = 1.0 if end else -1.0  # the distance is b - a, or b + a - 1
        distance = b[:, None, :] + sign * a[:, :, None] - end
        cost, side, same = np.abs(distance), np.sign(distance), np.arange(p.shape[1])
        cost[:, same, same], side[:, same, same] = diagonal, 0.0
        first, second, coupling = solve_couplings(cost, p, q)
        moved = coupling * side
        return (
            (first * p).sum(axis=1) + (second * q).sum(axis=1),
            first,
            second,
            _share(sign * moved.sum(axis=2), p),
            _share(moved.sum(axis=1), q),
            _share(coupling[:, same, same], p),
        )


def _targets(one: Array, other: Array) -> Array:
    """Return the scores of both worlds beside abs(c1 - c0) and abs(1 - c0 - c1), (n, 4 Q)."""
    return np.hstack([one, other, np.abs(other - one), np.abs(1.0 - one - other)])


def _number(table: pd.DataFrame) -> tuple[Index, Index]:
    """Return the number of each row's value, and the first row with each."""
    number: Index = np.zeros(len(table), dtype=np.int64)
    if len(table.columns):
        number = np.asarray(table.groupby(list(table.columns), observed=True).ngroup(), dtype=np.int64)
    return number, np.unique(number, return_index=True)[1]


def _predicted(predict: Predict, design: Design, at: Index) -> Array:
    return predict(take(design, at))


def _share(part: Array, whole: Array) -> Array:
    """Return a part of the mass of cells, (u, K), over the mass, from -1 to 1 although programs have a tolerance."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0.0).clip(-1.0, 1.0)
