"""Unfair effects within subgroups that the sensitive attribute does not change, with simultaneous intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import did_you_mean, shown
from pyrofair.audits.clusters import Clusters, note_on_few
from pyrofair.audits.wald import LARGEST_Z, is_influence_based
from pyrofair.effects.estimates import (
    AUDITED,
    JUDGED,
    PAPER,
    Estimate,
    Estimates,
    Key,
    kish_size,
    reach_of,
    reach_of_all,
)
from pyrofair.effects.potential_outcomes import FEWEST_ROWS
from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph, UnfairPaths, identify
from pyrofair.tables.reading import require_aligned
from pyrofair.tables.recorded import as_level
from pyrofair.tables.row_identity import hash_rows

__all__ = [
    "QUANTITIES",
    "SUBGROUP_COLUMNS",
    "Level",
    "Subgroup",
    "Within",
    "estimate_level",
    "estimate_levels",
    "estimate_subgroups",
    "read_subgroups",
    "tell_subgroups",
]

Array = NDArray[np.float64]

MOST_LEVELS = 20
"""A subgroup of more levels has too few rows in each to be read."""
ENOUGH = 300
"""Labels count as a function of columns where so many rows repeat another one's columns, and its label."""
ROUNDING = 1e-12
SUBGROUP_COLUMNS = (
    "subgroup", "level", "model", "decisions", "quantity", "estimate", "lower", "upper", "rows", "ess", "note",
)  # fmt: skip
QUANTITIES = tuple(each for each in JUDGED if each != PAPER)


@dataclass(frozen=True, eq=False)
class Subgroup:
    """Levels of the n audited rows: ``codes`` (n,) are positions in ``levels``; it is a function of ``columns``."""

    name: str
    codes: NDArray[np.int64]
    levels: tuple[str, ...]
    columns: tuple[str, ...]


def read_subgroups(subgroups: object, source: Any, table: pd.DataFrame) -> tuple[Subgroup, ...]:
    """Return the subgroups of the n rows of a table, each a function of what every stage of the source conditions on.

    Nothing is fitted: what the graph rules out is refused here.
    """
    if subgroups is None:
        return ()
    asked = _asked(subgroups)
    unfair: UnfairPaths = source.unfair
    if not (is_influence_based(source) and hasattr(type(source), "conditioned_on")):
        raise DataError(
            f"subgroups need a source with a value for each row that is right given the features of the subgroup, and "
            f"{type(source).__name__} has none. Pass the unfair paths, or OneStep(unfair)."
        )
    part = identify(unfair).baseline
    allowed = unfair.graph.columns_of(part.order[: part.roots])
    return tuple(_read(name, each, unfair.graph, table, allowed) for name, each in asked.items())


def _asked(subgroups: object) -> dict[str, Any]:
    if isinstance(subgroups, str):
        return {subgroups: subgroups}
    found: dict[str, Any] | None = None
    if isinstance(subgroups, Mapping):
        found = dict(subgroups)
    elif isinstance(subgroups, Sequence):
        found = {each: each for each in subgroups if isinstance(each, str)}
        found = found if len(found) == len(subgroups) else None
    if not found or not all(isinstance(name, str) for name in found):
        raise DataError(
            f"subgroups={shown(subgroups)} must be names of columns, each once, such as ['age_band'], or a dictionary "
            "from names to columns, to functions of the table, or to Series of labels."
        )
    return found


def _read(name: str, given: Any, graph: CausalGraph, table: pd.DataFrame, allowed: Sequence[str]) -> Subgroup:
    columns: tuple[str, ...]
    if isinstance(given, str):
        _check_column(name, given, graph, allowed)
        labels, columns = table[given], (given,)
        labels = as_level(labels) if labels.isna().any() else labels
    elif isinstance(given, pd.Series) or callable(given):
        labels, columns = _labels(name, given, table[list(allowed)]), tuple(allowed)
    else:
        raise DataError(
            f"The subgroup {name!r} is {shown(given)}; give a column, a function of the table's columns "
            f"{_these(allowed)}, or a Series of labels."
        )
    if unknown := int(labels.isna().sum()):
        raise DataError(f"The subgroup {name!r} has no label for {unknown} row(s); give these one, such as 'unknown'.")
    known = pd.Categorical(labels).remove_unused_categories()
    levels: Any = known.categories
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"The subgroup {name!r} has {len(levels):,} levels, more than {MOST_LEVELS}, such as {levels[0]}. Gather "
            f"them: subgroups={{{name!r}: lambda table: pd.cut(table[{columns[0]!r}], 4)}}."
        )
    return Subgroup(name, np.asarray(known.codes, dtype=np.int64), tuple(map(str, levels)), columns)


def _these(allowed: Iterable[Any]) -> str:
    return ", ".join(map(repr, allowed)) or "(none: the sensitive attribute causes all that a classifier reads)"


def _check_column(name: str, column: str, graph: CausalGraph, allowed: Sequence[str]) -> None:
    """Refuse a column within whose levels the mean of influence values estimates no effect."""
    if column in allowed:
        return
    node = graph.node_of.get(column)
    arrow = f"'{column} -> {graph.outcome}'"
    if column == graph.sensitive_column:
        why = (
            "the sensitive attribute: within one of its values the regressions of the other world are not corrected. "
            "For the effect in one group, audit with a sample_weight that moves the population there."
        )
    elif node is None:
        why = "which is no column of the graph." + (
            did_you_mean(column, allowed)
            or " Weights and regressions do not condition on it. Add it to the graph, with its arrows "
            f"({arrow}), if the sensitive attribute does not cause it."
        )
    elif node in graph.descendants(graph.sensitive):
        why = (
            f"which {graph.sensitive!r} causes: a level of it has other units in either world, so its mean "
            "estimates no effect on its units."
        )
    else:
        why = f"which is no cause of what a classifier reads: nothing conditions on it. Add its arrow, {arrow}."
    raise DataError(f"The subgroup {name!r} is made of {column!r}, {why} Choose among {_these(allowed)}.")


def _labels(name: str, given: Any, roots: pd.DataFrame) -> pd.Series[Any]:
    """Return labels that are a function of the columns that may make subgroups; refuse those that are not."""
    these = _these(roots.columns)
    if roots.columns.empty:
        raise DataError(f"The labels {name!r} can be no function of columns: there are {these}.")
    remedy = f"Give a function of {these} instead, which reads nothing else: subgroups={{{name!r}: lambda table: ...}}."
    if isinstance(given, pd.Series):
        require_aligned(roots, given, f"the subgroup {name!r}", table="df")
        labels = given
    else:
        labels, remedy = _called(name, given, roots), "The function may read what it is given alone, no other table."
    cell = np.unique(hash_rows(roots), return_inverse=True)[1].ravel()
    cells, codes = int(cell.max()) + 1, pd.factorize(labels.reset_index(drop=True))[0]
    if len(pd.DataFrame({"cell": cell, "code": codes}).drop_duplicates()) > cells:
        raise DataError(
            f"The labels {name!r} differ between rows that agree in {these}, so they are no function of what the "
            f"sensitive attribute does not cause. {remedy}"
        )
    if labels is not given:
        _check_same(name, given, labels, roots)
    elif (repeats := len(labels) - cells) < ENOUGH:
        raise DataError(
            f"Only {repeats:,} row(s) repeat another one in {these}, fewer than {ENOUGH}, so that the labels {name!r} "
            f"cannot be checked to follow from these columns. {remedy}"
        )
    return labels


def _called(name: str, function: Callable[[pd.DataFrame], Any], roots: pd.DataFrame) -> pd.Series[Any]:
    """Return the labels that a function gives to the rows, which holds no other columns."""
    try:
        labels = function(roots.copy())
    except KeyError as error:
        raise DataError(
            f"The function of the subgroup {name!r} asks for {error}, and is given {_these(roots.columns)}: what the "
            "sensitive attribute does not cause."
        ) from error
    if isinstance(labels, pd.Series):
        if not labels.index.equals(roots.index):
            raise DataError(f"The function of the subgroup {name!r} must keep the index of the table that it is given.")
        return labels
    values = labels if isinstance(labels, pd.Categorical) else np.asarray(labels)
    if values.shape != (len(roots),):
        raise DataError(
            f"The function of the subgroup {name!r} returned the shape {values.shape} for {len(roots):,} rows; return "
            "a label for each row."
        )
    return pd.Series(values, index=roots.index)


def _check_same(
    name: str, function: Callable[[pd.DataFrame], Any], labels: pd.Series[Any], roots: pd.DataFrame
) -> None:
    """Refuse a function that labels the same rows otherwise in another order and with another index.

    It reads more than its argument then, such as a column of another table by the index. What finds rows of another
    table by their content alone cannot be told from a function of the content.
    """
    why = (
        f"so it is no function of the columns that it is given, {_these(roots.columns)}: it may read another table "
        "by the index or the order of rows, or draw. Make it of these columns alone: "
        f"subgroups={{{name!r}: lambda table: pd.cut(table[{roots.columns[0]!r}], 4)}}."
    )
    order = np.random.default_rng(0).permutation(len(roots))
    try:
        again = _called(name, function, roots.iloc[order].reset_index(drop=True))
    except Exception as error:
        raise DataError(
            f"The function of the subgroup {name!r} labels the rows, and fails on the same rows in another order with "
            f"the index 0, 1, ... ({type(error).__name__}: {shown(str(error))}), {why}"
        ) from error
    one, other = (pd.Series(each.to_numpy(dtype=object)) for each in (labels.iloc[order], again))
    changed = int((~((one == other) | (one.isna() & other.isna()))).sum())
    if changed:
        raise DataError(
            f"The function of the subgroup {name!r} gives {changed:,} of {len(roots):,} rows another label when the "
            f"same rows come in another order with the index 0, 1, ..., {why}"
        )


@dataclass(frozen=True, eq=False)
class Level:
    """One level of a subgroup: rows, their effective number, that of its stages, and why it is refused or in doubt."""

    subgroup: str
    name: str
    rows: int
    size: float
    ess: float
    reason: str
    doubt: str

    def sizes(self, models: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return the effective rows of each quantity by model."""
        return dict.fromkeys(models, dict.fromkeys(QUANTITIES, self.ess) | {"positive_rate": self.size})


Within = Sequence[tuple[Level, Estimates, Sequence[str]]]
"""Levels of subgroups, with the estimates in each and the names of their models."""


def estimate_subgroups(
    subgroups: Sequence[Subgroup],
    asked: Sequence[tuple[Any, Any]],
    estimates: Estimates,
    table: pd.DataFrame,
    a: NDArray[np.int8],
    groups: Clusters | None = None,
) -> Within:
    """Return the estimates in each level, for :func:`estimate_levels`."""
    found = []
    tests, weight = max(1, sum(len(each.levels) for each in subgroups)), estimates.weight
    for source, scores in asked:
        _check_conditioned(source, subgroups)
        models = [model.name for model in scores.models]
        for subgroup in subgroups:
            for code, name in enumerate(subgroup.levels):
                at = np.flatnonzero((subgroup.codes == code) & (weight > 0.0))
                own = None if groups is None else groups.at(at)
                size = float(kish_size(weight[at])) if len(at) else np.nan
                reasons = _size(source, table.iloc[at], a[at], weight[at], tests, own)
                level = Level(subgroup.name, name, len(at), size, *reasons)
                found.append((level, estimates.within(at, level.sizes(models)), models))
    return found


def estimate_levels(within: Within) -> list[tuple[dict[str, Any], Estimate | None]]:
    """Return the row of each level, model and quantity of thresholded decisions, and its estimate."""
    return [
        estimate_level(level, own, model, name)
        for level, own, models in within
        for model in models
        for name in QUANTITIES
    ]


def tell_subgroups(rows: Sequence[tuple[dict[str, Any], Estimate | None]], level: float) -> pd.DataFrame:
    """Return the table of some levels and quantities.

    All intervals of the table hold together with the probability ``level``, asymptotically: their half-widths are the
    standard errors times the quantile of the largest deviation of all, in those units, of a joint normal distribution.
    ``groups`` are those of the rows, if these are units.
    """
    reach = reach_of_all([each for _, each in rows if each is not None], level)
    for row, estimate in rows:
        if estimate is not None:
            row["lower"], row["upper"] = estimate.interval(level, reach)
    return pd.DataFrame([row for row, _ in rows], columns=list(SUBGROUP_COLUMNS))


def _check_conditioned(source: Any, subgroups: Sequence[Subgroup]) -> None:
    """Refuse subgroups of columns that some stage of a fitted source does not condition on."""
    known = set(source.unfair.graph.columns_of(source.conditioned_on))
    for each in subgroups:
        missing = [column for column in each.columns if column not in known]
        if missing:
            raise DataError(
                f"The subgroup {each.name!r} is made of {', '.join(map(repr, missing))}, on which not every stage of "
                f"{type(source).__name__} (form {getattr(source, 'form_', '')!r}) conditions: within its levels the "
                "corrections are weighted wrongly. Use form='prefix', which conditions on all, or a subgroup of "
                f"{_these(sorted(known))}."
            )


def _size(
    source: Any, table: pd.DataFrame, a: NDArray[np.int8], weight: Array, tests: int, groups: Clusters | None
) -> tuple[float, str, str]:
    """Return the effective size of the rows of a level, why they are too few, and what casts doubt on their weights."""
    graph, more = source.unfair.graph, {} if groups is None else {"groups": groups.labels}
    sizes = [kish_size(weight * (a == value)) for value in (0, 1)]
    few = min((0, 1), key=lambda value: sizes[value])
    if sizes[few] < FEWEST_ROWS:
        whose = f"{graph.sensitive_column}={graph.named(graph.label(few))!r}"
        return np.nan, f"{sizes[few]:.0f} row(s) with {whose}, fewer than {FEWEST_ROWS}", ""
    if groups is not None and (text := groups.fewer()):
        return np.nan, text, ""
    try:
        stages = source.stages(table, weight, **more)
    except DataError as error:
        return np.nan, str(error), ""
    if not len(stages):
        return float(kish_size(weight)), "", ""
    ess = float(stages["ess"].min())
    if ess < FEWEST_ROWS:
        return ess, f"a stage has the effective size {ess:.1f}, fewer than {FEWEST_ROWS} rows", ""
    problems = [f"stage {each['nodes']}: {each['problem']}" for each in stages.to_dict("records") if each["problem"]]
    if problems:
        return ess, "; ".join(problems), ""
    largest = float(stages["mean_weight_z"].abs().max())
    rare = 2.0 * (1.0 - NormalDist().cdf(LARGEST_Z)) / (tests * len(stages))
    off = largest > reach_of(1.0 - rare)
    return ess, "", f"the mean weight of a stage is {largest:.1f} standard errors from 1" if off else ""


def estimate_level(
    level: Level, of: Estimates | None, model: str, quantity: str
) -> tuple[dict[str, Any], Estimate | None]:
    """Return the row of a quantity of a level, and its estimate if it has an interval; without ``of`` none."""
    n, causal = level.rows, quantity != "positive_rate"
    ess = level.size if n and not causal else level.ess
    values = (level.subgroup, level.name, model, "threshold", quantity, np.nan, np.nan, np.nan, n, ess, "")
    row: dict[str, Any] = dict(zip(SUBGROUP_COLUMNS, values, strict=True))
    if of is None or not n or (causal and level.reason):
        return row | {"note": f"no estimate: {level.reason or 'no rows'}"}, None

    estimate, effect = (of.of(Key(AUDITED, model, "threshold", name)) for name in (quantity, "mean_unfair_effect"))
    if causal and abs(effect.value) > 1.0 + ROUNDING:
        text = f"the mean unfair effect is estimated at {effect.value:.2f}, and none lies outside -1 to 1"
        return row | {"note": f"in doubt: {text}"}, None
    few = note_on_few(of.clusters)
    note = few or (f"in doubt: {level.doubt}" if causal and level.doubt else "")
    return row | {"estimate": estimate.estimate, "note": note}, None if few else estimate
