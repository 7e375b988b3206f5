"""What the weights are made of: one propensity for each prefix of the order, fitted when first asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from pyrofair.estimands import RegimeEstimand
from pyrofair.graph import CausalGraph
from pyrofair.propensity import FOLDS, Propensity, PropensityKind, make_propensity
from pyrofair.row_identity import match_rows

__all__ = ["Nuisances", "Prefix", "Rows"]

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
        # Zero times infinity: the law of a later node is undefined there, which the overlap reports as unsupported.
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
