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

__all__ = ["Nuisances", "Prefix", "Rows"]

Prefix = tuple[str, ...]


@dataclass
class Rows:
    """A table of n rows with their groups (n,), sample weights (n,), and whether each is kept (n,) or trimmed."""

    table: pd.DataFrame
    a: NDArray[np.int8]
    weight: NDArray[np.float64]
    kept: NDArray[np.bool_]
    probability: dict[Prefix, NDArray[np.float64]] = field(default_factory=dict)

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
        other = Nuisances(self.graph, self.kind, rows, self.seed, self.clip, self.folds)
        other.models = {prefix: model.refit(*self._data(rows, prefix)) for prefix, model in self.models.items()}
        return other

    def own_rows(self, table: pd.DataFrame, weight: NDArray[np.float64]) -> Rows | None:
        """Return the fitted rows with other weights (n,), if that is their table; else None."""
        own = self.rows
        if table is not own.table and not table.equals(own.table):
            return None
        return own if (weight == own.weight).all() else Rows(own.table, own.a, weight, own.kept, own.probability)

    def probability(self, rows: Rows, prefix: Prefix, *, clip: bool = True) -> NDArray[np.float64]:
        """Return P(A = 1 | prefix) of each row, shape (n,); trimmed rows hold 0.5 and get no weight."""
        if prefix not in rows.probability:
            model = self.model(prefix)
            p = np.full(len(rows.a), 0.5)
            p[rows.kept] = model.fitted if rows.table is self.rows.table else model.predict(self._data(rows, prefix)[0])
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
