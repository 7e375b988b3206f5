"""What the units of an audit are: rows, or groups of rows such as households, independent of each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.estimates import kish_size
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.nuisances.rows import Nuisances
from pyrofair.tables.reading import read_groups
from pyrofair.tables.row_identity import hash_groups

__all__ = ["ROWS", "Clusters", "describe_units"]

ROWS = "Rows are taken as independent units; if several are of one household, site or person, name these by groups=."
GROUPS = "{:,} groups ({}; effective number {:,.0f}) are independent of each other; rows of one group need not be."
ENOUGH = 20
"""Of fewer groups in an arm an interval may be short."""


def describe_units(groups: Clusters | NDArray[np.int64] | None, weight: NDArray[np.float64] | None = None) -> str:
    """Return what is taken as independent: rows, or groups, by their numbers (n,) and weights."""
    if groups is None:
        return ROWS
    if isinstance(groups, Clusters):
        return describe_units(groups.code, groups.weight)
    count = np.unique(groups, return_counts=True)[1]
    size = kish_size(np.ones(len(groups)) if weight is None else weight, groups)
    return GROUPS.format(len(count), f"largest {count.max():,} rows", size)


@dataclass(frozen=True, eq=False)
class Clusters:
    """The groups of n rows, by their labels, with the weight of each row and its value of the sensitive attribute."""

    labels: NDArray[Any]
    arm: NDArray[np.int8]
    weight: NDArray[np.float64]
    graph: CausalGraph

    @classmethod
    def read(
        cls,
        groups: object,
        df: pd.DataFrame,
        graph: CausalGraph,
        arm: NDArray[np.int8],
        weight: NDArray[np.float64],
    ) -> Clusters | None:
        """Return the groups of rows, None without any; an arm with rows in a single group is a DataError."""
        labels = read_groups(groups, df, graph)
        if labels is None:
            return None
        found = cls(labels, arm, weight, graph)
        for value in (0, 1):
            rows = (arm == value) & (weight > 0.0)
            if rows.any() and len(np.unique(found.code[rows])) < 2:
                raise DataError(
                    f"All {int(rows.sum()):,} rows with {found._named(value)} are of one group, which tells nothing of "
                    "their error. Audit more groups."
                )
        return found

    @cached_property
    def key(self) -> NDArray[np.int64]:
        """A number for the label of each row's group, the same in every table, (n,)."""
        return np.asarray(hash_groups(self.labels))

    @cached_property
    def code(self) -> NDArray[np.int64]:
        """The group of each row, numbered from 0 on, (n,)."""
        return np.asarray(np.unique(self.key, return_inverse=True)[1], dtype=np.int64)

    @property
    def few(self) -> str:
        """Why there are too few groups in an arm for an interval, or an empty string."""
        return self._fewer(FEWEST_ROWS)

    @property
    def short(self) -> str:
        """A warning of few groups in an arm, of which an interval may be short, or an empty string."""
        text = "" if self.few else self._fewer(ENOUGH)
        return text and f"Intervals may be short: {text}. Student's t makes up for most of it. Audit more groups."

    def _fewer(self, least: int) -> str:
        sizes = [kish_size(self.weight * (self.arm == value), self.code) for value in (0, 1)]
        few = int(np.argmin(sizes))
        rows = f"the rows with {self._named(few)} are of {sizes[few]:.1f} effective group(s)"
        return f"{rows}, fewer than {least}" if 0.0 < sizes[few] < least else ""

    def _named(self, value: int) -> str:
        return f"{self.graph.sensitive_column}={self.graph.label(value)!r}"

    @staticmethod
    def require_known(clusters: Clusters | None, fitted: Any, position: NDArray[np.int64]) -> None:
        """Refuse a fitted source that takes rows for units where groups are, or knows other groups of the same rows.

        ``position`` (n,) is that of each row among the fitted ones, -1 for others: of these no group may be a fitted
        one, for the models that judge them have seen it.
        """
        nuisances = getattr(fitted, "nuisances_", None)
        own = nuisances.rows.groups if isinstance(nuisances, Nuisances) else None
        if clusters is None:
            if own is not None:
                raise DataError(
                    "The source was fitted with groups, which are the units of its errors: pass those of df, groups=."
                )
            return
        if own is None:
            if hasattr(fitted, "influence") or nuisances is not None:
                raise DataError(
                    "The source was fitted without groups=, so its folds and replicates divide them: "
                    "source.fit(df, groups=...), or leave it unfitted."
                )
            return
        known = position >= 0
        if (own[position[known]] != clusters.key[known]).any():
            raise DataError("Rows of df have other groups than those that the source was fitted with; pass the same.")
        if (seen := int(np.isin(clusters.key[~known], own).sum())) > 0:
            raise DataError(
                f"{seen:,} rows that the source was not fitted on are of groups that it was: models that judge them "
                "have seen their group. Leave the source unfitted, or divide the table by whole groups."
            )
