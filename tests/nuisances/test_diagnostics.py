"""Overlap of weighted groups: cells without a counterpart, mean weights, warnings and refusals."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair import IPW, CausalGraph, OneStep, PositivityError, PositivityWarning, UnfairPaths
from pyrofair.nuisances.diagnostics import Cell, GroupOverlap

ONE = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
HIRING = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
GROUPS: tuple[Any, ...] = (0, 1, "pooled")


def unsupported() -> pd.DataFrame:
    """Counts n(A, M): 30, 10, 15, 45, and five units of group 0 with M = 2, which no unit of group 1 has."""
    return pd.DataFrame({"A": [0] * 40 + [1] * 60 + [0] * 5, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45 + [2] * 5})


def score(rows: pd.DataFrame) -> Any:
    return np.array([[0.2, 0.4, 0.6], [0.5, 0.9, 1.0]])[rows["A"], rows["M"].astype(int)]


# --- a level without a counterpart -----------------------------------------------------------------------------------


def test_a_level_without_counterpart_is_refused_by_default() -> None:
    with pytest.raises(
        PositivityError,
        match=r"^11\.1% of the target population has no counterpart in world 'unfair', group 1, more than "
        r"max_unsupported=0\.01: M=2 \(11\.1% of the target, no row of group 1\)\. Merge these levels, weight another",
    ):
        IPW(ONE, arm="paper", propensity="saturated").fit(unsupported())


@pytest.mark.parametrize(("normalize", "expected"), [(False, 56 / 105), (True, 0.60)])
def test_a_level_without_counterpart_that_is_let_pass(normalize: bool, expected: float) -> None:
    source = IPW(ONE, arm="paper", propensity="saturated", normalize=normalize, max_unsupported=1)
    with pytest.warns(PositivityWarning) as caught:
        source.fit(unsupported())
    assert [str(warning.message) for warning in caught] == [
        "Poor overlap in world 'unfair', group 1: the mean weight is 0.889, outside [0.9, 1.1]; unsupported: M=2 "
        "(11.1% of the target, no row of group 1)."
    ]
    assert caught[0].filename == __file__
    world = source.worlds()[1]
    assert world.weight @ score(world.rows) == pytest.approx(expected, abs=1e-12)
    overlap = source.overlap().set_index("regime").loc["unfair"]
    assert overlap["mean_weight"] == pytest.approx(8 / 9, abs=1e-12)
    assert overlap["unsupported_mass"] == pytest.approx(1 / 9, abs=1e-12)
    assert overlap["unsupported_cells"] == "M=2"


def test_the_limit_is_on_the_mass() -> None:
    with pytest.warns(PositivityWarning, match="M=2"):
        IPW(ONE, arm="paper", propensity="saturated", max_unsupported=0.112).fit(unsupported())
    with pytest.raises(PositivityError, match=r"max_unsupported=0\.11:"):
        IPW(ONE, arm="paper", propensity="saturated", max_unsupported=0.11).fit(unsupported())
    with pytest.raises(PositivityError, match="max_unsupported=0:"):
        IPW(ONE, arm="paper", propensity="saturated", max_unsupported=0).fit(unsupported())


@pytest.mark.parametrize("propensity", ["logistic", "boosted"])
def test_a_categorical_level_is_seen_whatever_the_propensity(propensity: Any) -> None:
    table = unsupported().astype({"M": str}).astype({"M": "category"})
    with pytest.raises(
        PositivityError, match=r"group 1, more than .*: M=2 \([\d.]+% of the target, no row of group 1\)"
    ):
        IPW(ONE, arm="paper", propensity=propensity, random_state=0).fit(table)


def with_levels(table: pd.DataFrame, *levels: str) -> pd.DataFrame:
    return table.astype({"M": str}).astype({"M": pd.CategoricalDtype(list(levels))})


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (unsupported(), {"arm": 0, "propensity": "saturated"}),  # group 0 has all of the target
        (unsupported(), {"arm": "paper"}),  # as a number 2 is a value to extrapolate to; the mean weight shows it
        (with_levels(unsupported()[:100], "0", "1", "2", "3"), {"arm": "paper"}),  # declared, and nobody's
        # The score is a function of the features: one row of group 1 with M=2 shows it.
        (
            pd.concat([unsupported(), pd.DataFrame({"A": [1], "M": [2]})], ignore_index=True),
            {"arm": "paper", "propensity": "saturated"},
        ),
    ],
    ids=["another group", "a number", "declared levels", "one row"],
)
def test_what_is_supported(table: pd.DataFrame, settings: dict[str, Any]) -> None:
    overlap = IPW(ONE, **settings).fit(table).overlap()
    assert overlap["unsupported_mass"].tolist() == [0.0, 0.0]
    assert overlap["unsupported_cells"].tolist() == ["", ""]


def test_rows_without_weight_are_no_support() -> None:
    table = unsupported()
    table.loc[104, "A"] = 1
    IPW(ONE, arm="paper", propensity="saturated", max_unsupported=0.2).fit(table)
    weight = np.r_[np.ones(104), 0.0]
    with pytest.raises(PositivityError, match="M=2"):
        IPW(ONE, arm="paper", propensity="saturated").fit(table, sample_weight=weight)
    # Nor do they need any.
    IPW(ONE, arm="paper", propensity="saturated").fit(unsupported(), sample_weight=np.r_[np.ones(100), np.zeros(5)])


def test_the_mass_is_of_the_weighted_population() -> None:
    with pytest.warns(PositivityWarning, match="M=2"):
        source = IPW(ONE, arm="paper", propensity="saturated", max_unsupported=1).fit(
            unsupported(), sample_weight=np.r_[np.ones(100), np.full(5, 8.0)]
        )
    assert source.overlap()["unsupported_mass"].tolist() == pytest.approx([0.0, 0.5])


# --- cells of several columns ----------------------------------------------------------------------------------------


def full_cells(**columns: int) -> pd.DataFrame:
    names = list(columns)
    return pd.DataFrame(list(product(*(range(size) for size in columns.values()))), columns=names)


def test_a_cell_of_two_nodes() -> None:
    """Each value of Q and of D occurs in group 1, but not Q=1 with D=1."""
    table = pd.concat([full_cells(A=2, Q=2, D=2, M=2)] * 3)
    table = table[~((table["A"] == 1) & (table["Q"] == 1) & (table["D"] == 1))]
    with pytest.raises(
        PositivityError, match=r"21\.4% .*: Q=1, D=1 \(21\.4% of the target, no row of group 1\)\. Merge"
    ):
        IPW(HIRING.unfair("A -> Y"), arm=1, propensity="saturated").fit(table)
    source = IPW(HIRING.unfair("A -> Y"), arm=0, propensity="saturated").fit(table)
    assert source.overlap()["mean_weight"].tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
@pytest.mark.parametrize("arm", GROUPS)
def test_the_arm_of_a_later_law_needs_the_cell_too(arm: Any) -> None:
    """M reads 1, so its distribution is taken from group 1 at every (Q, D) of the target, whichever group carries
    it."""
    table = full_cells(A=2, Q=2, D=2, M=2)
    table = table[~((table["A"] == 1) & (table["Q"] == 1) & (table["D"] == 1))]
    with pytest.raises(PositivityError, match=r"Q=1, D=1 .*no row of group 1"):
        IPW(HIRING.unfair("A -> M -> Y"), arm=arm, propensity="saturated").fit(table)


@pytest.mark.parametrize(("rows", "refused"), [(0, True), (1, True), (2, False)])
def test_a_distribution_is_not_learned_from_one_row_of_a_cell(rows: int, refused: bool) -> None:
    """M reads 1: its distribution given Q=1, D=1 is that of these rows of group 1."""
    table = pd.concat([full_cells(A=2, Q=2, D=2, M=2)] * 3)
    cell = ((table["A"] == 1) & (table["Q"] == 1) & (table["D"] == 1)).to_numpy()
    table = pd.concat([table[~cell], table[cell][:rows]])
    unfair, number = HIRING.unfair("A -> M -> Y"), "1" if rows else "no"
    match = rf"Q=1, D=1 \([\d.]+% of the target, {number} row of group 1\)"
    one_step = OneStep(unfair, propensity="logistic", regression="saturated", form="prefix")
    if not refused:
        IPW(unfair, arm=0, propensity="saturated").fit(table)
        one_step.fit(table)
        return
    with pytest.raises(PositivityError, match=match):
        IPW(unfair, arm=0, propensity="saturated").fit(table)
    with pytest.warns(PositivityWarning, match=match):
        one_step.fit(table)


def test_a_cell_of_the_columns_of_the_first_node() -> None:
    """Both columns of Q are full in group 0, and their combination (1, 1) is not."""
    graph = CausalGraph("Q -> A; {A Q} -> Y", sensitive="A", outcome="Y", columns={"Q": ["q", "r"]})
    table = full_cells(A=2, q=2, r=2)
    table = table[~((table["A"] == 0) & (table["q"] == 1) & (table["r"] == 1))]
    with pytest.raises(
        PositivityError, match=r"world 'baseline', group 0, .*: q=1, r=1 \(14\.3% of the target, no row of"
    ):
        IPW(graph.unfair("A -> Y"), arm="paper", propensity="saturated").fit(table)


def test_mass_is_counted_once() -> None:
    """M=2 is missing, and with it every cell (M=2, D)."""
    graph = CausalGraph("A -> M; {A M} -> D; {A M D} -> Y", sensitive="A", outcome="Y")
    table = full_cells(A=2, M=3, D=3)
    table = table[~((table["A"] == 1) & (table["M"] == 2))]
    with pytest.warns(PositivityWarning, match="M=2"):
        source = IPW(graph.unfair("A -> Y"), arm=1, propensity="saturated", max_unsupported=1).fit(table)
    overlap = source.overlap()
    assert overlap["unsupported_cells"].tolist() == ["M=2", "M=2"]
    assert overlap["unsupported_mass"].tolist() == pytest.approx([1 / 3, 1 / 3])


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("arm", GROUPS)
@pytest.mark.some(5)
def test_what_is_missing_from_the_mean_weight_is_the_unsupported_mass(seed: int, arm: Any) -> None:
    """Exactly so for saturated propensities, where every node is a child of A."""
    rng = np.random.default_rng(seed)
    table = full_cells(A=2, Q=3, D=2, M=2, R=2)
    table = pd.concat([table[rng.random(len(table)) < 0.6]] * 2)  # a row alone in its cell is no support either
    graph = CausalGraph("{A Q} -> {D M}; {A Q D M} -> R; {A D M R} -> Y", sensitive="A", outcome="Y")
    paths: list[UnfairPaths] = [
        graph.unfair("A -> Y"),
        graph.unfair(through="D", direct=True, predicate=lambda path: path[1] == "R"),
    ]
    for unfair in (*paths, *(each.reversed() for each in paths)):
        source = IPW(unfair, arm=arm, propensity="saturated", max_unsupported=1)
        overlap = source.fit(table, sample_weight=rng.exponential(size=len(table))).overlap()
        assert (overlap["mean_weight"] + overlap["unsupported_mass"]).to_numpy() == pytest.approx([1.0, 1.0])
        assert (overlap["unsupported_cells"] != "").equals(overlap["unsupported_mass"] > 0)


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_table() -> None:
    source = IPW(ONE, propensity="saturated").fit(unsupported()[:100])
    overlap = source.overlap()
    columns = "regime group used n mean_weight max_weight ess at_bounds clipped trimmed unsupported_cells"
    columns += " unsupported_mass rows_0 rows_1 ess_0 ess_1"
    assert " ".join(overlap.columns) == columns
    assert list(zip(overlap["regime"], overlap["group"], strict=True)) == [
        (regime, group) for regime in ("baseline", "unfair") for group in ("pooled", "0", "1")
    ]
    assert overlap["n"].tolist() == [100, 40, 60] * 2
    assert overlap["mean_weight"].tolist() == pytest.approx([1.0] * 6)
    # Weights of M = 0 and 1: pooled (2/3)/.4 and (2/11)/.4, in group 0 1/.4, in group 1 5 and 5/9.
    assert overlap["max_weight"].tolist() == pytest.approx([5 / 3, 2.5, 5.0] * 2)
    pooled, one = 100**2 / (45 * (5 / 3) ** 2 + 55 * (5 / 11) ** 2), 100**2 / (15 * 25 + 45 * 25 / 81)
    assert overlap["ess"].tolist() == pytest.approx([pooled, 40.0, one] * 2)
    assert (overlap[["at_bounds", "clipped", "trimmed", "unsupported_mass"]] == 0).all(axis=None)
    counted = overlap[["rows_0", "rows_1", "ess_0", "ess_1"]].to_numpy()
    assert counted == pytest.approx(np.tile([40, 60, 40, 60], (6, 1)))
    weight = np.r_[np.full(10, 9.0), np.full(30, 3.0), np.ones(60)]
    source = IPW(ONE, arm="paper", propensity="saturated").fit(unsupported()[:100], sample_weight=weight)
    ess = source.overlap().set_index("regime").loc["baseline", "ess"]
    assert ess == pytest.approx(weight[:40].sum() ** 2 / (weight[:40] ** 2).sum())


def test_propensities_at_their_bounds_are_counted() -> None:
    table = pd.concat([unsupported()[:100], pd.DataFrame({"A": [1, 1], "M": [3, 3]})], ignore_index=True)
    with pytest.warns(PositivityWarning, match=r"world 'unfair', group 1: 2 row\(s\) have a propensity at 0 or 1"):
        source = IPW(ONE, arm="paper", propensity="saturated").fit(table)
    assert source.overlap()["at_bounds"].tolist() == [0, 2]


def test_few_effective_rows_are_warned_of() -> None:
    """One row of group 1 stands for nearly all of the target."""
    table = pd.DataFrame({"A": [0] * 100 + [1] * 100, "M": [0] * 99 + [1] + [0] + [1] * 99})
    with pytest.warns(PositivityWarning, match=r"the effective size 1\.0 is below 5% of 100 rows"):
        IPW(ONE, arm="paper", propensity="saturated").fit(table)


# --- the parts -------------------------------------------------------------------------------------------------------


def overlap(**changes: Any) -> GroupOverlap:
    settings: dict[str, Any] = {"regime": "unfair", "group": 1, "n": 100, "mean_weight": 1.0, "max_weight": 2.0}
    settings |= {"effective_size": 50.0, "at_bounds": 0, "clipped": 0, "cells": (), "unsupported": 0.0}
    return GroupOverlap(**{**settings, **changes})


@pytest.mark.parametrize(
    ("pooled", "zero", "one", "chosen"),
    [
        ({"effective_size": 90.0}, {"effective_size": 40.0}, {"effective_size": 50.0}, None),
        ({"unsupported": 0.3, "effective_size": 90.0}, {"effective_size": 50.0}, {"effective_size": 40.0}, 0),
        # Support comes before the propensities to be estimated, and these before the effective size.
        ({"estimated": 2, "effective_size": 90.0}, {"estimated": 1, "effective_size": 20.0}, {"estimated": 2}, 0),
        ({"unsupported": 0.3}, {"estimated": 3}, {"estimated": 2}, 1),
        ({"separated": "M separates them."}, {"unsupported": 0.3}, {"unsupported": 0.3, "estimated": 1}, 0),
        # The mean weight has no part in the choice.
        ({"mean_weight": 1.4, "effective_size": 60.0}, {"mean_weight": 1.0}, {"mean_weight": 1.0}, None),
    ],
)
def test_the_choice_among_groups(pooled: Any, zero: Any, one: Any, chosen: int | None) -> None:
    candidates = [overlap(group=None, **pooled), overlap(group=0, **zero), overlap(group=1, **one)]
    for each in (candidates, candidates[::-1]):
        assert min(each, key=lambda found: found.rank(max_unsupported=0.01)).group == chosen


def small_group(rows: int) -> tuple[pd.DataFrame, CausalGraph]:
    """400 rows, few of them of group 0: M = 2 A + Q + noise."""
    rng = np.random.default_rng(0)
    a = np.r_[np.zeros(rows, dtype=int), np.ones(400 - rows, dtype=int)]
    q = rng.normal(size=400)
    graph = CausalGraph("Q -> M; A -> M; M -> Y", sensitive="A", outcome="Y")
    return pd.DataFrame({"A": a, "Q": q, "M": 2.0 * a + q + rng.normal(size=400)}), graph


@pytest.mark.parametrize("arm", ["auto", "pooled"])
def test_rows_of_a_group_are_counted_and_few_are_warned_of(arm: Any) -> None:
    table, graph = small_group(1)
    with pytest.warns(PositivityWarning, match=r"'baseline', .*group 0 has 1 row\(s\), effective size 1\.0, fewer"):
        source = IPW(graph.unfair("A -> M -> Y"), arm=arm).fit(table)
    used = source.overlap().query("used").set_index("regime")
    assert used[["rows_0", "rows_1"]].to_numpy().tolist() == [[1, 399], [1, 399]]
    assert used["ess_0"].tolist() == pytest.approx([1.0, 1.0])
    assert (used["ess_1"] > 390).all()
    sizes = source.group_sizes()
    assert [size.group for size in sizes["baseline"]] == [0]
    assert [size.group for size in sizes["unfair"]] == [1]


def test_the_effective_size_of_a_group_is_that_in_the_population_of_the_roots() -> None:
    table = pd.DataFrame({"A": [0] * 4 + [1] * 4, "Q": [0, 0, 0, 1, 0, 1, 1, 1], "M": [0, 1] * 4})
    table = pd.concat([table] * 2)
    graph = CausalGraph("Q -> {A M}; A -> M; M -> Y", sensitive="A", outcome="Y")
    with pytest.warns(PositivityWarning, match="fewer than 10"):
        source = IPW(graph.unfair("A -> M -> Y"), propensity="saturated").fit(table)
    weight = np.tile([4 / 3, 4 / 3, 4 / 3, 4.0], 2)  # 1 / P(A=0 | Q)
    assert source.overlap()["ess_0"].tolist() == pytest.approx([weight.sum() ** 2 / (weight @ weight)] * 6)


def test_no_group_is_needed_where_the_sensitive_attribute_causes_no_feature() -> None:
    table, _ = small_group(1)
    graph = CausalGraph("Q -> Y; A -> Y", sensitive="A", outcome="Y")
    source = IPW(graph.unfair("A -> Y"), arm="auto").fit(table[["A", "Q"]])
    assert source.arm_ == {"baseline": "pooled", "unfair": "pooled"}
    assert source.group_sizes() == {"baseline": (), "unfair": ()}


def test_problems_are_listed_together() -> None:
    cells = tuple(Cell(f"M={level}", 0, 0.001) for level in range(7))
    found = overlap(mean_weight=1.3, effective_size=4.9, at_bounds=3, cells=cells, unsupported=0.007, group=None)
    assert found.problems() == [
        "the mean weight is 1.3, outside [0.9, 1.1]",
        "the effective size 4.9 is below 5% of 100 rows",
        "3 row(s) have a propensity at 0 or 1",
        "unsupported: " + "; ".join(f"M={i} (0.1% of the target, no row of group 0)" for i in range(5)) + " ...",
    ]
    assert found.group_name == "pooled"
    assert overlap().problems() == []
    assert found.check(0.01).startswith("Poor overlap in world 'unfair', group pooled: the mean weight is 1.3")
    with pytest.raises(
        PositivityError, match=r"0\.7\d*% of the target population has no counterpart in world 'unfair', gr"
    ):
        found.check(0.005)


def test_a_source_warns_of_overlap_once_at_the_line_that_asked() -> None:
    model = {"model": pf.ScoresOf(lambda X: 0.2 + 0.2 * X["M"])}
    rows = unsupported().assign(Y=lambda d: d["M"] % 2)
    source = IPW(ONE, arm="paper", propensity="saturated", max_unsupported=1)
    with pytest.warns(PositivityWarning, match="Poor overlap") as caught:
        pf.audit(model, source, rows, n_boot=40, progress=False, random_state=0)
    assert [each.filename for each in caught if "Poor overlap in world" in str(each.message)] == [__file__]
