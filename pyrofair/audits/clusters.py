"""What the units of an audit are: rows, or groups of rows such as households, independent of each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.estimates import kish_size
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.tables.reading import read_groups
from pyrofair.tables.row_identity import hash_groups

__all__ = ["GROUPS", "ROWS", "Clusters", "describe_units", "note_on_few"]

ROWS = "Rows are independent. If several belong to one household or person, name their column: groups=."
GROUPS = "{:,} groups ({}; effective number {:,.0f}) are independent of each other; rows of one group need not be."
ENOUGH = 20
"""Of fewer groups in an arm an interval may be short."""


def describe_units(groups: NDArray[np.int64] | None, weight: NDArray[np.float64] | None = None) -> str:
    """Return what is taken as independent: rows, or groups, by their numbers (n,) and weights."""
    if groups is None:
        return ROWS
    count = np.unique(groups, return_counts=True)[1]
    size = kish_size(np.ones(len(groups)) if weight is None else weight, groups)
    return GROUPS.format(len(count), f"largest {count.max():,} rows", size)


def note_on_few(groups: float) -> str:
    """Return that so many effective groups are too few for an interval, or an empty string."""
    return f"no interval: {groups:.1f} effective groups, fewer than {FEWEST_ROWS}" if groups < FEWEST_ROWS else ""


@dataclass(frozen=True, eq=False)
class Clusters:
    """The groups of n rows, by their labels, with the weight of each row and its value of the sensitive attribute."""

    labels: NDArray[Any]
    arm: NDArray[np.int8]
    weight: NDArray[np.float64]
    graph: CausalGraph

    @classmethod
    def read(
        cls, groups: object, df: pd.DataFrame, graph: CausalGraph, arm: NDArray[np.int8], weight: NDArray[np.float64]
    ) -> Clusters | None:
        """Return the groups of rows, None without any; an arm with rows in a single group is a DataError."""
        labels = read_groups(groups, df, graph)
        if labels is None:
            return None
        found = cls(labels, arm, weight, graph)
        for value in (0, 1):
            rows = (arm == value) & (weight > 0.0)
            if rows.any() and len(np.unique(found.code[rows])) < 2:
                raise DataError(f"All rows with {found._named(value)} are of one group, so their error is not known.")
        return found

    def at(self, rows: NDArray[np.int64]) -> Clusters:
        """Return the groups of some of the rows."""
        return replace(self, labels=self.labels[rows], arm=self.arm[rows], weight=self.weight[rows])

    @cached_property
    def key(self) -> NDArray[np.int64]:
        """A number for the label of each row's group, the same in every table, (n,)."""
        return np.asarray(hash_groups(self.labels))

    @cached_property
    def code(self) -> NDArray[np.int64]:
        """The group of each row, numbered from 0 on, (n,)."""
        return np.asarray(np.unique(self.key, return_inverse=True)[1], dtype=np.int64)

    def fewer(self, least: int = FEWEST_ROWS) -> str:
        """Return that an arm has rows of fewer groups than some number, effectively, or an empty string."""
        sizes = [kish_size(self.weight * (self.arm == value), self.code) for value in (0, 1)]
        few = int(np.argmin(sizes))
        text = f"rows with {self._named(few)} are of {sizes[few]:.1f} effective group(s), fewer than {least}"
        return text if 0.0 < sizes[few] < least else ""

    @property
    def warnings(self) -> list[str]:
        """A warning of few groups in an arm, of which an interval may be short."""
        text = "" if self.fewer() else self.fewer(ENOUGH)
        return [f"Intervals may be short, for {text}; Student's t makes up for most of it."] if text else []

    def _named(self, value: int) -> str:
        return f"{self.graph.sensitive_column}={self.graph.named(self.graph.label(value))!r}"
