"""The diagnostics of weights: overlap of a group in a world, cells without support, and the stages of an estimate."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.effects.estimates import kish_size, mean_and_spread
from pyrofair.effects.potential_outcomes import FEWEST_ROWS, MEAN_WEIGHT, SMALLEST_SHARE, GroupSize
from pyrofair.exceptions import PositivityError, PositivityWarning
from pyrofair.graph.identification import RegimeEstimand
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.tables.labels import as_levels, encode_levels, is_categorical

__all__ = [
    "COLUMNS",
    "MOST_UNSUPPORTED",
    "Cell",
    "GroupOverlap",
    "Stage",
    "StageValues",
    "add_problems",
    "choose_by_overlap",
    "describe_lacking",
    "describe_scores",
    "describe_stages",
    "describe_unsupported",
    "group_overlap",
    "group_sizes",
    "join_stages",
    "mean_and_z",
    "problems_of",
    "stage_table",
    "unsupported_cells",
    "warn_of_overlap",
    "worst_stages",
]

Array = NDArray[np.float64]
T = TypeVar("T")
AT_BOUND = 1e-6
SEPARATED = 1e-3
"""A propensity below this share of the group's frequency in every row leaves no overlap, however smooth the model."""
NEGLIGIBLE = 1e-9
SHOWN = 5
"""So many cells are named."""
FEWEST_IN_CELL = 2
"""A saturated model needs so many rows of an arm in a cell: one shows a mean, but not how far it may be off."""
COLUMNS = ("regime", "nodes", "arm", "given", "mean_weight", "mean_weight_z", "ess", "units", "max_weight", "problem")
OFF, SURE = 0.1, 3.0
"""A mean weight farther from 1 than this, by more than so many standard errors, shows that overlap fails."""
FEW = 100.0
"""The smallest effective size of a stage, in rows, unless most of its arm's rows are left."""
MOST_KEPT = 0.3
"""A stage whose effective size is this share of its arm's rows lacks rows, not overlap."""
HARDLY = 0.03
"""Rows whose group has a probability below this, times its share of all rows, hardly have a counterpart in it."""
NO_SIZE = 0.1
"""Errors of diagnostics below this share of an estimate's own are of no size."""
MOST_LACKING = 0.01
"""The most of a world that may hardly have a counterpart."""
MOST_UNSUPPORTED = 0.01
"""The most of a world that may have no counterpart at all."""


@dataclass(frozen=True)
class Cell:
    """A level or cell that the target has and a needed group lacks, or has in one row if models are saturated."""

    name: str
    value: int
    mass: float
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({100.0 * self.mass:.3g}% of the target, {self.rows or 'no'} row of group {self.value})"


def show_cells(cells: Sequence[Cell]) -> str:
    """Write the first of some cells."""
    return "; ".join(map(str, cells[:SHOWN]))


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
        """Return the key of the automatic choice, the least first; a fit can make the mean weight 1, however wrong."""
        lacking = self.unsupported > max_unsupported
        return bool(self.separated or self.infinite), lacking, self.estimated, -self.effective_size

    def problems(self) -> list[str]:
        """Return what is wrong, one phrase each."""
        size, (low, high) = f"the effective size {self.effective_size:.1f} is below", MEAN_WEIGHT
        few = self.effective_size < SMALLEST_SHARE * self.n
        found = {
            f"the mean weight is {self.mean_weight:.3g}, outside [{low}, {high}]": not low <= self.mean_weight <= high,
            f"{size} {SMALLEST_SHARE:.0%} of {self.n} rows": few,
            f"{size} {FEWEST_ROWS} rows": self.effective_size < FEWEST_ROWS and not few,
            **{f"{each}, fewer than {FEWEST_ROWS}": each.is_small for each in self.sizes if each.group in self.needed},
            f"{self.at_bounds} row(s) have a propensity at 0 or 1": self.at_bounds,
            f"unsupported: {show_cells(self.cells)}{' ...' * (len(self.cells) > SHOWN)}": self.cells,
        }
        return [text for text, wrong in found.items() if wrong]

    def check(self, max_unsupported: float) -> str:
        """Return what is wrong, or raise PositivityError where support is lacking or weights are infinite."""
        where = f"world {self.regime!r}, group {self.group_name}"
        if self.separated:
            raise PositivityError(
                f"There is no overlap in {where}: {self.separated} Weight the group whose rows need no such ratio "
                "(arm='auto' looks for it), or draw the features instead of weighting rows: GComputation(unfair)."
            )
        if self.unsupported > max_unsupported:
            whose = "no counterpart" if not any(cell.rows for cell in self.cells) else "at most one counterpart"
            raise PositivityError(
                f"{100.0 * self.unsupported:.3g}% of the target population has {whose} in {where}, more than "
                f"max_unsupported={max_unsupported:g}: {show_cells(self.cells)}. Merge these levels, weight another "
                "group (arm=0, 1 or 'pooled'), trim (the estimand then changes), or raise max_unsupported and read "
                "the result with care."
            )
        bounds = "clip=0.01 bounds propensities, for a small bias; trim=0.01 drops rows, and changes the estimand"
        if self.infinite:
            raise PositivityError(
                f"In {where}, {self.infinite} of {self.n} row(s) have no finite weight, for the propensity "
                f"{self.propensity} is exactly 0 or 1 there. {bounds}; or take a propensity that is never certain, "
                "such as 'logistic'."
            )
        extreme = self.at_bounds or self.effective_size < SMALLEST_SHARE * self.n
        advice = f" {bounds}." if extreme and not self.clipped else ""
        problems = "; ".join(self.problems())
        return f"Poor overlap in {where}: {problems}.{advice}" if problems else ""

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
    # Saturated weights that are zero times infinity lie in unsupported cells, and are counted there.
    endless = np.isinf(w) if nuisances.saturated else ~np.isfinite(nuisances.raw_weights(rows, part, group))
    s = rows.weight * rows.kept
    member = rows.member(group) & (s > 0)
    prefixes = [prefix for prefix in part.weight(group).prefixes if prefix]

    def beyond(limit: float | None) -> int:
        return 0 if limit is None else int((member & ~nuisances.inside(rows, prefixes, limit)).sum())

    with np.errstate(over="ignore"):
        carried = s * w
        mean = carried.sum() / s.sum()
    cells, mass = unsupported_cells(part, group, nuisances, saturated=nuisances.saturated)
    return GroupOverlap(
        regime=part.regime.name,
        group=group,
        n=int(member.sum()),
        mean_weight=float(mean),
        max_weight=float(w[member].max(initial=0.0)),
        effective_size=kish_size(carried),
        at_bounds=beyond(AT_BOUND),
        clipped=beyond(nuisances.clip),
        cells=cells,
        unsupported=mass,
        estimated=len(prefixes),
        sizes=group_sizes(part, nuisances),
        needed=part.needed_groups(group),
        separated=_separated(part, group, nuisances, member),
        infinite=int((endless & member).sum()),
        propensity=nuisances.propensity_name,
    )


def _separated(part: RegimeEstimand, group: int | None, nuisances: Nuisances, member: NDArray[np.bool_]) -> str:
    """Return a sentence on the columns that separate the groups, if no row to be weighted has a counterpart."""
    rows, powers = nuisances.rows, part.weight(group).powers
    share = float(np.average(rows.a[rows.kept], weights=rows.weight[rows.kept]))
    chances = {}
    for (value, prefix), _ in powers:
        p = nuisances.probability(rows, prefix, clip=False)[member]
        chances[value, prefix] = (p, SEPARATED * share) if value else (1.0 - p, SEPARATED * (1.0 - share))
    # A row has no weight where a numerator is 0, and its ratio is undefined where a denominator is.
    without = np.any([chance < least for chance, least in chances.values()], axis=0) if chances else np.zeros(1, bool)
    if not member.any() or not without.all():
        return ""
    value, prefix = max(chances, key=lambda key: (chances[key][0] < chances[key][1]).sum())
    graph = part.regime.unfair.graph
    whose = "all" if group is None else f"group {group}'s"
    return (
        f"given {', '.join(graph.columns_of(prefix)) or 'nothing'}, the probability of "
        f"{graph.sensitive_column}={graph.named(graph.label(value))!r} is at most "
        f"{chances[value, prefix][0].max():.1g} in {whose} {int(member.sum())} rows, so the two groups have no such "
        "features in common."
    )


def group_sizes(part: RegimeEstimand, nuisances: Nuisances) -> tuple[GroupSize, GroupSize]:
    """Return the fitted rows of both groups, with their effective sizes in the population of the roots."""
    rows, one = nuisances.rows, nuisances.probability(nuisances.rows, part.order[: part.roots])
    found = []
    for group, p in ((0, 1.0 - one), (1, one)):
        s = rows.weight * (rows.member(group) & (p > 0.0))
        with np.errstate(over="ignore"):
            w = np.divide(s, p, out=np.zeros(len(p)), where=s > 0.0)
        found.append(GroupSize(group, int((rows.member(group) & (rows.weight > 0.0)).sum()), kish_size(w)))
    return found[0], found[1]


def unsupported_cells(
    part: RegimeEstimand, group: int | None, nuisances: Nuisances, *, saturated: bool
) -> tuple[tuple[Cell, ...], float]:
    """Return the cells with target mass and too few rows of a group that is needed there, and their mass together.

    A node must occur with the weighted group (None: both) and with the arm of every distribution that is conditioned on
    it. A cell is one level of one categorical column. If a model is ``saturated`` every column is categorical, cells of
    several columns count too, and one row is too few to learn a distribution from; to be weighted, one is enough.
    """
    rows, graph = nuisances.rows, nuisances.graph
    table, weight = rows.table[rows.kept], rows.weight[rows.kept]
    counted = [(rows.a[rows.kept] == value) & (weight > 0.0) for value in (0, 1)]
    cells: list[Cell] = []
    total = 0.0
    lost = np.zeros(len(table), dtype=bool)
    for index, node in enumerate(part.order):
        own = [name for name in graph.columns_of([node]) if saturated or is_categorical(table[name])]
        columns = graph.columns_of(part.order[: index + 1])
        coded = [_levels_of(table[name]) for name in own]
        coded += [_cells_of(table[columns])] if saturated and len(columns) > 1 else []
        conditioned = part.needed_values(index, None) if saturated else set()
        fresh = np.zeros(len(table), dtype=bool)
        mass: Array | None = None
        for codes, names in coded:
            held = np.column_stack([np.bincount(codes[each], minlength=len(names)) for each in counted])
            for value in sorted(part.needed_values(index, group)):
                least = FEWEST_IN_CELL if value in conditioned else 1
                absent = (held.sum(axis=1) > 0) & (held[:, value] < least)
                if not absent.any():
                    continue
                if mass is None:
                    with np.errstate(invalid="ignore"):
                        target = nuisances.raw_weights(rows, part, None, index + 1)[rows.kept]
                        mass = np.nan_to_num(weight * target, posinf=0.0) / weight.sum()
                left = absent[codes] & ~lost & ~fresh
                share = np.bincount(codes[left], weights=mass[left], minlength=len(names))
                found = share > NEGLIGIBLE
                at = np.flatnonzero(found)
                cells += [Cell(names[i], value, float(share[i]), int(held[i, value])) for i in at]
                fresh |= left & found[codes]
                total += float(share[found].sum())
        lost |= fresh
    return tuple(cells), total


def describe_unsupported(part: RegimeEstimand, name: str, nuisances: Nuisances, *, saturated: bool) -> tuple[str, str]:
    """Return what in a world has no counterpart in the groups that its stages need: too much of it, or a rest of it."""
    cells, mass = unsupported_cells(part, None, nuisances, saturated=saturated)
    if mass > MOST_UNSUPPORTED or not cells:
        return f"too few rows hold {show_cells(cells)}" if cells else "", ""
    n = len(nuisances.rows.a)
    return "", (
        f"Poor overlap in the {name} world: {show_cells(cells)}. Scores there are extrapolated, or depend on one row; "
        f"this affects {100.0 * mass:.2g}% of that world, as {mass * n:.2g} of {n:,} rows are."
    )


def _levels_of(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the level of each row of a column, (n,), and the names of the levels."""
    levels = as_levels(column)
    return encode_levels(column, levels), [f"{column.name}={level}" for level in levels]


def _cells_of(table: pd.DataFrame) -> tuple[NDArray[np.int64], list[str]]:
    """Return the cell of each row of some columns, (n,), and the names of the cells."""
    joint = table.drop_duplicates()
    codes = pd.MultiIndex.from_frame(joint).get_indexer(pd.MultiIndex.from_frame(table)).astype(np.int64)
    rows = joint.itertuples(index=False)
    return codes, [", ".join(f"{c}={v}" for c, v in zip(table.columns, row, strict=True)) for row in rows]


def warn_of_overlap(texts: Sequence[str]) -> None:
    """Warn once of all that is wrong with overlap, at the line outside this package that asked for it."""
    found = list(dict.fromkeys(filter(None, texts)))
    if not found:
        return
    frame, depth = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "pyrofair":
        frame, depth = frame.f_back, depth + 1
    warnings.warn(" ".join(found), PositivityWarning, stacklevel=depth + 1)


# -- stages of an estimate ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A run of nodes that read one ``arm`` of the sensitive attribute (or None), after ``start`` nodes, ``given``."""

    regime: str
    nodes: tuple[str, ...]
    arm: int | None
    given: tuple[str, ...]
    start: int


@dataclass(frozen=True)
class StageValues:
    """The weight of each row at a stage (n,), its regression given what comes before, and its correction (n, Q)."""

    stage: Stage
    weight: Array
    start: Array
    correction: Array

    @classmethod
    def empty(cls, stage: Stage, weight: Array, columns: int) -> StageValues:
        """Return values to be added to."""
        return cls(stage, weight, np.zeros((len(weight), columns)), np.zeros((len(weight), columns)))


def stage_table(stages: Sequence[tuple[Stage, Array]], rows: Rows) -> pd.DataFrame:
    """Return the diagnostics of the weights (n,) of stages, a row each: see ``InfluenceBased.stages``."""
    return pd.DataFrame([_describe(stage, weight, rows) for stage, weight in stages], columns=list(COLUMNS))


def _describe(stage: Stage, weight: Array, rows: Rows) -> dict[str, Any]:
    counted = np.isfinite(weight)
    mean, z = mean_and_z(np.where(counted, weight, 0.0)[:, None] - 1.0, rows.weight, rows.groups)
    carried = rows.weight * weight
    size = kish_size(carried)
    average, largest = float(mean[0] + 1.0) if counted.all() else np.inf, float(carried.max(initial=0.0))
    owned, what = rows.weight * rows.member(stage.arm), []
    group, count = kish_size(owned), int((owned > 0.0).sum())
    if not np.isfinite(largest):
        what.append("a propensity of exactly 0 or 1 leaves rows without a finite weight")
    elif abs(average - 1.0) > OFF and abs(z[0]) > SURE:
        what.append(f"the mean weight is {average:.2f}, not 1 (z {z[0]:.1f})")
    if group < FEWEST_ROWS < count:
        what.append(
            f"the weights of {count:,} rows make them {group:.0f}, fewer than {FEWEST_ROWS}; if they are counts of "
            "units, write the rows out: df.loc[df.index.repeat(sample_weight)]"
        )
    elif size < FEWEST_ROWS or (size < FEW and size < MOST_KEPT * group):
        what.append(f"the effective size is {size:.0f} of {group:.0f} rows")
    nodes, given = ", ".join(stage.nodes), ", ".join(stage.given)
    weights = average, float(z[0]), size, kish_size(carried, rows.groups), largest
    return dict(zip(COLUMNS, (stage.regime, nodes, stage.arm, given, *weights, "; ".join(what)), strict=True))


def describe_lacking(nuisances: Nuisances, rows: Rows, arm: int | None, given: tuple[str, ...], weight: Array) -> str:
    """Return how much of a world hardly occurs in a group with what is given, if that is too much.

    ``weight`` (n,) carries the rows of both groups to what is given in that world. A mean weight near 1 does not show
    this, where the group is nearly certain to be the other one for a small part of the world only.
    """
    if arm is None or not given:
        return ""
    one = nuisances.probability(rows, given, clip=False)  # a bound does not make counterparts
    least = HARDLY * float(np.average(rows.member(arm), weights=rows.weight))
    carried = rows.weight * np.where(np.isfinite(weight), weight, 0.0)
    mass = float(carried[(one if arm else 1.0 - one) < least].sum() / carried.sum())
    if mass <= MOST_LACKING:
        return ""
    columns = ", ".join(nuisances.graph.columns_of(given))
    return f"{mass:.1%} of that world hardly occurs in the group: its chance given {columns} is below {least:.2g}"


def choose_by_overlap(
    tried: Iterable[tuple[T, list[Any]]], cost: Callable[[dict[str, str]], Any]
) -> tuple[T, list[Any], dict[str, str]]:
    """Return the first tried, with forms by split, without a problem, or the least in ``cost``, and its problems."""
    best: tuple[Any, T, list[Any], dict[str, str]] | None = None
    for each, forms in tried:
        stages: list[pd.DataFrame] = []
        for form in forms:
            stages.append(form.stages(form.nuisances.rows))
            found = problems_of(worst_stages(stages))
            if best is not None and cost(found) >= best[0]:
                break
        else:
            best = cost(found), each, forms, found
            if not found:
                break
    assert best is not None
    return best[1:]


def problems_of(stages: pd.DataFrame) -> dict[str, str]:
    """Return what is wrong with the overlap of stages, by world."""
    bad = stages[stages["problem"] != ""]
    texts = (bad["nodes"] + ": " + bad["problem"]).groupby(bad["regime"], sort=False)
    return {str(name): "; ".join(own) for name, own in texts}


def worst_stages(splits: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the diagnostics of stages in the first split into folds, or in the first in which one has a problem."""
    found, *rest = splits
    for number, each in enumerate(rest, 2):
        if (worse := (each["problem"] != "") & (found["problem"] == "")).any():
            told = each[worse].assign(problem=each["problem"] + f" (by split {number} into folds)")
            found = pd.concat([found[~worse], told]).sort_index()
    return found


def describe_stages(values: Sequence[StageValues], rows: Rows) -> pd.DataFrame:
    """Return the diagnostics of stages for each column of scores: see ``InfluenceValues.stages``.

    ``balance`` is the weighted mean of a stage's regression less the estimate of its target by the stages before: not 0
    where the weights are wrong. ``correction`` is the weighted mean of its residuals: not 0 where the regression is.
    """
    tables = []
    for regime in dict.fromkeys(each.stage.regime for each in values):
        own = sorted((each for each in values if each.stage.regime == regime), key=lambda each: each.stage.start)
        base = own[0].start.copy()
        whole = base + sum(each.correction for each in own)
        for each in own:
            balance = each.weight[:, None] * each.start - base
            base += each.correction
            described = pd.DataFrame([_describe(each.stage, each.weight, rows)])
            tables.append(describe_scores(described, balance, each.correction, whole, rows))
    return join_stages(tables)


def describe_scores(
    described: pd.DataFrame, balance: Array, correction: Array, whole: Array, rows: Rows
) -> pd.DataFrame:
    """Return a stage's row of diagnostics once for each column of scores, with its balance and correction (n, Q).

    Their errors count as a tenth of that of the world's influence values, the ``whole`` (n, Q), at least: scores that
    are nearly a function of the features leave residuals of no size, whose mean is far from 0 by their own error alone.
    """
    table = pd.concat([described] * balance.shape[1], ignore_index=True)
    table.insert(0, "column", np.arange(len(table)))
    least = NO_SIZE * mean_and_spread(whole, rows.weight, groups=rows.groups)[1]
    for name, part in (("balance", balance), ("correction", correction)):
        table[name], table[f"{name}_z"] = mean_and_z(part, rows.weight, rows.groups, least)
    return table


def join_stages(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of stages as one; without any, one without rows."""
    names = ["column", *COLUMNS, "balance", "balance_z", "correction", "correction_z"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=names)


def add_problems(table: pd.DataFrame, problems: Sequence[str]) -> pd.DataFrame:
    """Return diagnostics of stages with further problems, one text a row, empty where there is none."""
    both = zip(table["problem"], problems, strict=True)
    return table.assign(problem=["; ".join(filter(None, texts)) for texts in both])


def mean_and_z(
    values: Array, weight: Array, groups: NDArray[np.int64] | None = None, least: Array | float = 0.0
) -> tuple[Array, Array]:
    """Return the weighted means of columns (n, Q), and each over its standard error of a least size (0 if both are)."""
    mean, error = mean_and_spread(values, weight, groups=groups)
    error = np.maximum(error, least)
    return mean, np.divide(mean, error, out=np.zeros_like(mean), where=error > 1e-15)
