"""Overlap diagnostics of weighted groups: weights, effective sizes, and cells without a counterpart."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.potential_outcomes import FEWEST_ROWS, MEAN_WEIGHT, SMALLEST_SHARE, GroupSize, kish_size
from pyrofair.exceptions import PositivityError, PositivityWarning
from pyrofair.graph.identification import RegimeEstimand
from pyrofair.sources.propensity import Nuisances
from pyrofair.tables.labels import as_levels, encode_levels, is_categorical

__all__ = ["Cell", "GroupOverlap", "group_overlap", "group_sizes"]

AT_BOUND = 1e-6
SEPARATED = 1e-3
"""A propensity below this share of the group's frequency in every row leaves no overlap, however smooth the model."""
NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Cell:
    """A level of a column, or a cell of several if saturated, that the target has and a needed group lacks."""

    name: str
    value: int
    mass: float

    def __str__(self) -> str:
        return f"{self.name} ({self.mass:.2g} of the target, no row of group {self.value})"


@dataclass(frozen=True)
class GroupOverlap:
    """How well a group (0, 1, or None for both pooled) supports a world among the fitted rows.

    ``n`` rows carry weight. ``mean_weight`` is over all rows, 1 in expectation; ``max_weight`` leaves sample weights
    out; ``effective_size`` is Kish's, in rows. Rows ``at_bounds`` have a propensity at 0 or 1, and ``infinite`` ones
    no finite weight. ``cells`` lack support, with the mass ``unsupported``. ``estimated`` propensities given features
    make up the weights. ``needed`` are the groups weighted, and the arms of the world's conditional distributions;
    ``sizes`` those of both groups. ``separated`` is the reason why no row has a counterpart, if so. ``propensity``
    names the model in messages.
    """

    regime: str
    group: int | None
    n: int
    mean_weight: float
    max_weight: float
    effective_size: float
    at_bounds: int
    clipped: int
    cells: tuple[Cell, ...]
    unsupported: float
    estimated: int = 0
    sizes: tuple[GroupSize, ...] = ()
    needed: tuple[int, ...] = ()
    separated: str = ""
    infinite: int = 0
    propensity: str = "fitted"

    @property
    def group_name(self) -> str:
        """The group as text: ``"0"``, ``"1"`` or ``"pooled"``."""
        return "pooled" if self.group is None else str(self.group)

    def rank(self, max_unsupported: float) -> tuple[bool, bool, int, float]:
        """Return the key of the automatic choice, the least first; the mean weight has no part in it.

        The score equation of a fitted propensity can make the mean weight 1, however wrong the fit.
        """
        lacking = self.unsupported > max_unsupported
        return bool(self.separated or self.infinite), lacking, self.estimated, -self.effective_size

    def problems(self) -> list[str]:
        """Return what is wrong, one phrase each."""
        found = []
        low, high = MEAN_WEIGHT
        if not low <= self.mean_weight <= high:
            found.append(f"the mean weight is {self.mean_weight:.3g}, outside [{low}, {high}]")
        if self.effective_size < SMALLEST_SHARE * self.n:
            found.append(f"the effective size {self.effective_size:.1f} is below {SMALLEST_SHARE:.0%} of {self.n} rows")
        elif self.effective_size < FEWEST_ROWS:
            found.append(f"the effective size {self.effective_size:.1f} is below {FEWEST_ROWS} rows")
        found += [
            f"{size}, fewer than {FEWEST_ROWS}" for size in self.sizes if size.group in self.needed and size.is_small
        ]
        if self.at_bounds:
            found.append(f"{self.at_bounds} row(s) have a propensity at 0 or 1")
        if self.cells:
            found.append(
                f"unsupported: {'; '.join(map(str, self.cells[:5]))}" + (" ..." if len(self.cells) > 5 else "")
            )
        return found

    def check(self, max_unsupported: float, *, stacklevel: int) -> None:
        """Warn of what is wrong, or raise PositivityError where support is lacking or weights are infinite."""
        where = f"world {self.regime!r}, group {self.group_name}"
        if self.separated:
            raise PositivityError(
                f"There is no overlap in {where}: {self.separated} Weight the group whose rows need no such ratio "
                "(arm='auto' looks for it), or draw the features instead of weighting rows: GComputation(unfair)."
            )
        if self.unsupported > max_unsupported:
            raise PositivityError(
                f"{self.unsupported:.3g} of the target population has no counterpart in {where}, more than "
                f"max_unsupported={max_unsupported:g}: {'; '.join(map(str, self.cells[:5]))}. Merge these levels, "
                "weight another group (arm=0, 1 or 'pooled'), trim (the estimand then changes), or raise "
                "max_unsupported and read the result with care."
            )
        if self.infinite:
            raise PositivityError(
                f"In {where}, {self.infinite} of {self.n} row(s) have no finite weight, for the propensity "
                f"{self.propensity} is exactly 0 or 1 there. clip=0.01 bounds propensities, for a small bias; "
                "trim=0.01 drops rows, and changes the estimand; or take a propensity that is never certain, such as "
                "'logistic'."
            )
        problems = self.problems()
        if problems:
            cure = " clip=0.01 bounds propensities, for a small bias; trim=0.01 drops rows, and changes the estimand."
            extreme = self.at_bounds or self.effective_size < SMALLEST_SHARE * self.n
            warnings.warn(
                f"Poor overlap in {where}: {'; '.join(problems)}.{cure if extreme and not self.clipped else ''}",
                PositivityWarning,
                stacklevel=stacklevel,
            )

    def as_row(self, trimmed: int, used: bool) -> dict[str, object]:
        """Return a row of the overlap table."""
        return {
            "regime": self.regime,
            "group": self.group_name,
            "used": used,
            "n": self.n,
            "mean_weight": self.mean_weight,
            "max_weight": self.max_weight,
            "ess": self.effective_size,
            "at_bounds": self.at_bounds,
            "clipped": self.clipped,
            "trimmed": trimmed,
            "unsupported_cells": "; ".join(cell.name for cell in self.cells),
            "unsupported_mass": self.unsupported,
            **{f"rows_{size.group}": size.rows for size in self.sizes},
            **{f"ess_{size.group}": size.effective_size for size in self.sizes},
        }


def group_overlap(part: RegimeEstimand, group: int | None, nuisances: Nuisances) -> GroupOverlap:
    """Return how well a group, or both pooled (None), supports a world among the fitted rows."""
    rows = nuisances.rows
    w = nuisances.weights(rows, part, group)
    kind = nuisances.kind
    # Saturated weights that are zero times infinity lie in unsupported cells, and are counted there.
    endless = np.isinf(w) if kind == "saturated" else ~np.isfinite(nuisances.raw_weights(rows, part, group))
    s = rows.weight * rows.kept
    member = rows.member(group) & (s > 0)
    prefixes = [prefix for prefix in part.weight(group).prefixes if prefix]
    raw = np.array([nuisances.probability(rows, prefix, clip=False) for prefix in prefixes])

    def beyond(limit: float) -> int:
        return int((((raw < limit) | (raw > 1.0 - limit)).any(axis=0) & member).sum()) if len(raw) else 0

    cells, mass = _unsupported_cells(part, group, nuisances)
    with np.errstate(over="ignore"):
        carried = s * w
        mean = float(carried.sum() / s.sum())
    return GroupOverlap(
        regime=part.regime.name,
        group=group,
        n=int(member.sum()),
        mean_weight=mean,
        max_weight=float(w[member].max(initial=0.0)),
        effective_size=kish_size(carried),
        at_bounds=beyond(AT_BOUND),
        clipped=beyond(nuisances.clip) if nuisances.clip is not None else 0,
        cells=cells,
        unsupported=mass,
        estimated=len(prefixes),
        sizes=group_sizes(part, nuisances),
        needed=part.needed_groups(group),
        separated=_separated(part, group, nuisances),
        infinite=int((endless & member).sum()),
        propensity=repr(kind) if isinstance(kind, str) else type(kind).__name__,
    )


def group_sizes(part: RegimeEstimand, nuisances: Nuisances) -> tuple[GroupSize, GroupSize]:
    """Return the fitted rows of both groups, with their effective sizes in the population of the roots."""
    rows = nuisances.rows
    roots = part.order[: part.roots]
    one = nuisances.probability(rows, roots)
    found = []
    for group, p in ((0, 1.0 - one), (1, one)):
        s = rows.weight * (rows.member(group) & (p > 0.0))
        with np.errstate(over="ignore"):
            w = np.divide(s, p, out=np.zeros(len(p)), where=s > 0.0)
        found.append(GroupSize(group, int((rows.member(group) & (rows.weight > 0.0)).sum()), kish_size(w)))
    return found[0], found[1]


def _separated(part: RegimeEstimand, group: int | None, nuisances: Nuisances) -> str:
    """Return a sentence on the columns that separate the groups, if no row to be weighted has a counterpart."""
    rows = nuisances.rows
    member = rows.member(group) & (rows.weight > 0.0)
    if not member.any():
        return ""
    one = float(np.average(rows.a[rows.kept], weights=rows.weight[rows.kept]))
    chance, absent = {}, {}
    for (value, prefix), _ in part.weight(group).powers:
        p = nuisances.probability(rows, prefix, clip=False)[member]
        chance[value, prefix] = p if value else 1.0 - p
        absent[value, prefix] = chance[value, prefix] < SEPARATED * (one if value else 1.0 - one)
    # A row has no weight where a numerator is 0, and its ratio is undefined where a denominator is.
    if not absent or not np.any([*absent.values()], axis=0).all():
        return ""
    value, prefix = max(absent, key=lambda key: int(absent[key].sum()))
    graph = part.regime.unfair.graph
    columns = ", ".join(graph.columns_of(prefix)) or "nothing"
    whose = "all" if group is None else f"group {group}'s"
    return (
        f"given {columns}, the probability of {graph.sensitive_column}={graph.label(value)!r} is at most "
        f"{chance[value, prefix].max():.1g} in {whose} {int(member.sum())} rows, so the two groups have no such "
        "features in common."
    )


def _unsupported_cells(part: RegimeEstimand, group: int | None, nuisances: Nuisances) -> tuple[tuple[Cell, ...], float]:
    """Return the cells with target mass and no row of a group that is needed there, and their mass together.

    A node must occur with the weighted group (None: both) and with the arm of every distribution that is conditioned on
    it. A cell is one level of one categorical column; under saturated propensities every column is categorical, and
    cells of several columns count too.
    """
    rows, saturated, graph = nuisances.rows, nuisances.kind == "saturated", part.regime.unfair.graph
    table, a, weight = rows.table[rows.kept], rows.a[rows.kept], rows.weight[rows.kept]
    cells: list[Cell] = []
    total = 0.0
    lost = np.zeros(len(a), dtype=bool)
    for index, node in enumerate(part.order):
        coded: list[tuple[NDArray[np.int64], list[str]]] = []
        for column in graph.columns_of([node]):
            if saturated or is_categorical(table[column]):
                levels = as_levels(table[column])
                coded.append((encode_levels(table[column], levels), [f"{column}={level}" for level in levels]))
        columns = graph.columns_of(part.order[: index + 1])
        if saturated and len(columns) > 1:
            joint = table[columns].drop_duplicates()
            cell = pd.MultiIndex.from_frame(joint).get_indexer(pd.MultiIndex.from_frame(table[columns]))
            values = joint.itertuples(index=False)
            names = [", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=True)) for row in values]
            coded.append((cell.astype(np.int64), names))
        fresh = np.zeros(len(a), dtype=bool)
        mass: NDArray[np.float64] | None = None
        for codes, names in coded:
            for value in sorted(part.needed_values(index, group)):
                present = np.bincount(codes, weights=weight * (a == value), minlength=len(names)) > 0
                occurs = np.bincount(codes, weights=weight, minlength=len(names)) > 0
                absent = occurs & ~present
                if not absent.any():
                    continue
                if mass is None:
                    with np.errstate(invalid="ignore"):
                        target = nuisances.raw_weights(rows, part, None, index + 1)[rows.kept]
                        mass = np.nan_to_num(weight * target, posinf=0.0) / weight.sum()
                left = absent[codes] & ~lost & ~fresh
                share = np.bincount(codes[left], weights=mass[left], minlength=len(names))
                found = share > NEGLIGIBLE
                cells += [Cell(names[level], value, float(share[level])) for level in np.flatnonzero(found)]
                fresh |= left & found[codes]
                total += float(share[found].sum())
        lost |= fresh
    return tuple(cells), total
