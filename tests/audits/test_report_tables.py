from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from pyrofair.audits.bootstrap import Estimator, Units
from pyrofair.audits.display.page import spans_table
from pyrofair.audits.inputs import AuditedRows, JudgedModels
from pyrofair.audits.report import Measured, group_table
from pyrofair.effects.estimates import (
    AUDITED,
    GIVEN_UNITS,
    QUANTITIES,
    QUANTITIES_OF,
    Key,
    absolute_interval,
    percentiles,
)
from pyrofair.effects.group_agreement import join_seeds, judge_jointly
from pyrofair.effects.potential_outcomes import CounterfactualSample, Views
from pyrofair.graph.causal_graph import CausalGraph

GRAPH = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
LOWER = Key(AUDITED, "m", "score", "piu_lower")
ONE = Key("group 0", "m", "score", "p_y0")
OTHER = Key("group 1", "m", "score", "p_y0")


def frame(**columns: object) -> pd.DataFrame:
    keys = {"lower": LOWER, "one": ONE, "other": OTHER}
    return pd.DataFrame({keys[name]: values for name, values in columns.items()}).set_axis(
        pd.MultiIndex.from_tuples([keys[name] for name in columns]), axis=1
    )


def estimator(n: int = 10) -> Estimator:
    table = pd.DataFrame({"A": [0, 1] * (n // 2), "M": 0})
    rows = AuditedRows.of(table, GRAPH, sample_weight=None, groups=None, missing=None, both=True)
    judged = JudgedModels.of({"m": np.zeros(n)}, rows, GRAPH, "prediction", 0.5)
    return Estimator(judged, rows, 0.5, (), {}, {}, Units.of_rows(np.full(n, -1), 0))


def tabled(
    found: Estimator, point: dict[Key, float], draws: pd.DataFrame, level: float, failure: str = "", **more: Any
) -> pd.DataFrame:
    return Measured.of_replicates(found, point, {}, draws, level, failure=failure, **more).table({})


def lone(heavy: float = 1.0) -> dict[str, Views]:
    """The worlds of both groups, 100 rows each; in group 1 a row of the second world is heavier."""
    even = CounterfactualSample(pd.DataFrame({"A": [0] * 100}), np.ones(100))
    odd = CounterfactualSample(even.rows, np.r_[heavy, np.ones(99)])
    return {"group 0": ((even, even),), "group 1": ((even, odd),)}


def row(draws: pd.DataFrame, level: float = 0.9) -> pd.Series:
    table = tabled(estimator(), {LOWER: 0.5}, draws, level, "the source is out")
    return table.set_index(["decisions", "quantity"]).loc[("score", "piu_lower")]


@pytest.mark.parametrize("replicates", [39, 100, 200])
def test_percentiles_of_few_replicates_hold_as_much_as_those_of_many(replicates: int) -> None:
    """One more replicate lies between the ends with the probability of the level."""
    rng = np.random.default_rng(0)
    held = [
        norm.cdf(high) - norm.cdf(low)
        for low, high in (percentiles(rng.normal(size=replicates), 0.95) for _ in range(2_000))
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.003)


@pytest.mark.parametrize(
    ("values", "ends", "note"),
    [
        (np.arange(1.0, 100.0) / 100.0, (0.05, 0.95), ""),
        ([np.nan] * 20 + [0.5] * 80, (0.5, 0.5), "the interval leaves out 20 of 100 replicates, which left [0, 1]"),
        *(
            ([np.nan] * lost + [0.5] * (100 - lost), (np.nan, np.nan), f"no interval: .* {lost} of 100 replicates")
            for lost in (21, 100)
        ),
        ([0.5], (np.nan, np.nan), "no interval: 1 replicate has no spread"),
    ],
)
def test_percentiles_of_replicates_that_left_0_1(values: Any, ends: tuple[float, float], note: str) -> None:
    found = row(frame(lower=values))
    assert (found["lower"], found["upper"]) == pytest.approx(ends, nan_ok=True)
    assert found["estimate"] == 0.5
    assert re.fullmatch(note.replace("[0, 1]", r"\[0, 1\]"), found["note"])


def test_every_quantity_of_the_engine_is_in_the_table() -> None:
    assert {*QUANTITIES_OF} == {*QUANTITIES, GIVEN_UNITS}


def test_every_quantity_has_a_row_and_a_reason() -> None:
    table = tabled(estimator(), {LOWER: 0.5}, frame(lower=[]), 0.95, "the source is out")
    without = [each for each in QUANTITIES if each not in ("accuracy", "majority_rate")]
    assert list(table["quantity"]) == [*QUANTITIES, *without]
    missing = table[table["estimate"].isna()]
    assert len(missing) == len(table) - 1
    reasons = dict(zip(missing["quantity"], missing["note"], strict=True))
    assert reasons["accuracy"] == reasons["majority_rate"] == "cannot be made: df has no outcome column 'Y'"
    assert reasons["p_ypi"] == "cannot be made: the source is out"
    assert missing[["lower", "upper"]].isna().all(axis=None)


@pytest.mark.parametrize(("upper", "crosses"), [(0.4, True), (0.499, True), (0.4997, False), (0.6, False)])
def test_ends_that_cross_are_noted(upper: float, crosses: bool) -> None:
    point = {LOWER: 0.5, LOWER._replace(quantity="piu_upper"): upper}
    table = tabled(estimator(), point, pd.DataFrame(), 0.9)
    note = table.set_index(["decisions", "quantity"]).loc[("score", "piu_upper"), "note"]
    assert ("below the lower bound by chance" in note) == crosses
    shown = spans_table("t", "several", table.query("decisions == 'score'").assign(member="black"), "member")
    assert ("black: the upper bound on PIU is below the lower" in shown.note) == crosses


@pytest.mark.parametrize(
    ("gaps", "agree"),
    [
        (np.linspace(-0.1, 0.2, 101), True),
        (np.linspace(0.05, 0.2, 101), False),
        (np.linspace(-0.2, -0.05, 101), False),
        (np.full(101, 1e-15), True),  # rounding
    ],
)
def test_groups_agree_if_a_lone_difference_is_small_beside_its_spread(gaps: np.ndarray, agree: bool) -> None:
    draws = frame(one=np.full(101, 0.3), other=0.3 + gaps)
    table = group_table({ONE: 0.3, OTHER: 0.3 + gaps.mean(), LOWER: 0.1}, draws, 0.95, lone())
    assert len(table) == 1
    found = table.iloc[0]
    assert (found["group_0"], found["group_1"]) == (0.3, 0.3 + gaps.mean())
    assert found["difference"] == pytest.approx(gaps.mean())
    assert found["lower"] == pytest.approx(np.quantile(gaps, 0.025, method="weibull"))
    assert found["agree"] == agree


def normal_gaps(k: int, n: int = 2_000, shared: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    return shared**0.5 * rng.normal(size=(n, 1)) + (1.0 - shared) ** 0.5 * rng.normal(size=(n, k))


def compared(gap: np.ndarray, gaps: np.ndarray, note: str = "") -> pd.DataFrame:
    """The joint test of differences whose standard errors are 1."""
    groups = pd.DataFrame({"difference": gap, "lower": -1.0, "note": note, "model": range(len(gap))})
    return judge_jointly(groups, np.ones(len(gap)), 0.95, gaps)


def test_all_comparisons_are_one_test() -> None:
    """Of 10 independent ones the critical value is that of Sidak, 2.80; of one repeated ten times, 1.96."""
    gap = np.r_[2.7, np.zeros(9)]
    assert compared(gap, normal_gaps(10))["agree"].all()
    assert compared(gap + 0.25 * (gap > 0), normal_gaps(10))["agree"].tolist() == [False] + [True] * 9
    assert compared(gap, normal_gaps(10, shared=1.0))["agree"].tolist() == [False] + [True] * 9
    alone = compared(gap[:1], normal_gaps(1))
    assert alone["p_value"].item() == pytest.approx(2.0 * norm.sf(2.7), rel=0.1)
    assert compared(gap, normal_gaps(10))["p_value"][0] == pytest.approx(10 * 2.0 * norm.sf(2.7), rel=0.15)


def test_what_has_too_little_overlap_is_no_part_of_the_test() -> None:
    gap = np.r_[2.1, np.full(9, 50.0)]
    groups = pd.DataFrame({"difference": gap, "lower": -1.0, "note": [""] + ["few"] * 9})
    found = judge_jointly(groups, np.ones(10), 0.95, normal_gaps(10))
    assert found["agree"].tolist() == [False] + [pd.NA] * 9
    assert found["p_value"].isna().tolist() == [False] + [True] * 9


def test_one_test_in_twenty_finds_a_difference_that_is_none() -> None:
    rng = np.random.default_rng(1)
    gaps = normal_gaps(12, 200, shared=0.5)
    alarms = 0
    for _ in range(400):
        gap = 0.5**0.5 * rng.normal() + 0.5**0.5 * rng.normal(size=12)
        alarms += not compared(gap, gaps)["agree"].all()
    assert 0.02 < alarms / 400 < 0.09


def test_seeds_of_a_path_are_one_test() -> None:
    groups = pd.DataFrame({"seed": range(5), "p_value": [0.02, 0.005, 1.0, 0.5, np.nan]})
    assert join_seeds(groups)["agree"].tolist() == [True, False, True, True, pd.NA]
    assert join_seeds(groups[:1])["agree"].tolist() == [False]
    pd.testing.assert_frame_equal(join_seeds(join_seeds(groups)), join_seeds(groups))
    assert join_seeds(pd.DataFrame()).empty


def test_groups_without_replicates_or_without_the_other_one() -> None:
    table = group_table({ONE: 0.3, OTHER: 0.4}, pd.DataFrame(), 0.95, lone())
    assert table["agree"].isna().all()
    assert table[["lower", "upper"]].isna().all(axis=None)
    assert group_table({ONE: 0.3}, pd.DataFrame(), 0.95, lone()).empty


def test_groups_of_a_single_replicate_are_not_judged() -> None:
    draws = frame(one=[0.3], other=[0.4])
    assert group_table({ONE: 0.3, OTHER: 0.4}, draws, 0.95, lone())["agree"].isna().all()


@pytest.mark.parametrize(("quantity", "size"), [("p_y0", 100.0), ("p_ypi", 1.2), ("mean_unfair_effect", 1.2)])
def test_a_group_that_rests_on_a_row_is_not_compared(quantity: str, size: float) -> None:
    one, other = (each._replace(quantity=quantity) for each in (ONE, OTHER))
    draws = frame(one=np.full(9, 0.3), other=np.zeros(9)).set_axis(pd.MultiIndex.from_tuples([one, other]), axis=1)
    found = group_table({one: 0.3, other: 0.0}, draws, 0.95, lone(1000.0)).iloc[0]
    assert found["ess_0"] == 100.0
    assert found["ess_1"] == pytest.approx(size, abs=0.01)
    if size < 10:
        assert found["note"] == "too little overlap to compare"
        assert found["agree"] is pd.NA
    else:
        assert found["note"] == ""
        assert not found["agree"]


# --- kinks -----------------------------------------------------------------------------------------------------------


def with_worlds(unit: bool, views: int) -> Estimator:
    n = 10_000
    world = CounterfactualSample(pd.DataFrame({"A": [0] * n}), np.full(n, 1.0 / n), np.arange(n) if unit else None)
    return replace(estimator(), sources={AUDITED: None}, worlds={AUDITED: ((world, world),) * views})


def ends(found: Estimator, draws: dict[str, np.ndarray]) -> pd.DataFrame:
    keys = {Key(AUDITED, "m", "score", name): values for name, values in draws.items()}
    frame = pd.DataFrame(np.column_stack(list(keys.values())), columns=pd.MultiIndex.from_tuples(keys))
    table = tabled(found, {key: float(np.median(values)) for key, values in keys.items()}, frame, 0.9)
    return table.set_index(["decisions", "quantity"]).loc["score", ["lower", "upper"]]


SPANS = [(-0.02, 0.06), (-0.06, 0.02), (0.01, 0.05), (-0.05, -0.01), (0.0, 0.05)]


@pytest.mark.parametrize("span", SPANS)
def test_ends_of_piu_hold_0_where_the_signed_effect_does(span: tuple[float, float]) -> None:
    """Percentiles of absolute values never would: all replicates are above 0."""
    effect = np.linspace(*span, 101)
    a = 0.5 - effect / 2.0 + 0.2 * np.linspace(-1.0, 1.0, 101) ** 3
    b = a + effect
    found = ends(
        with_worlds(False, 1),
        {"p_y0": a, "p_ypi": b, "piu_lower": np.abs(b - a), "piu_upper": 1.0 - np.abs(1.0 - a - b)},
    )
    low, high = np.quantile(b - a, [0.05, 0.95], method="weibull")
    assert tuple(found.loc["piu_lower"]) == pytest.approx(absolute_interval(low, high))
    rest = absolute_interval(*np.quantile(1.0 - a - b, [0.05, 0.95], method="weibull"))
    assert tuple(found.loc["piu_upper"]) == pytest.approx((1.0 - rest[1], 1.0 - rest[0]))
    assert found.loc[("piu_upper", "upper")] == 1.0


@pytest.mark.parametrize("span", SPANS)
def test_ends_given_units_with_signs_held_cross_0_as_the_effect_does(span: tuple[float, float]) -> None:
    held = np.linspace(*span, 101)
    found = ends(
        with_worlds(True, 2), {"p_y0": 0.0 * held, "p_ypi": 0.0 * held, "piu_lower": held, "piu_upper": 1.0 - held}
    )
    low, high = absolute_interval(*np.quantile(held, [0.05, 0.95], method="weibull"))
    careful = absolute_interval(*np.quantile(held, [0.005, 0.995], method="weibull"))[0]
    assert tuple(found.loc["piu_lower"]) == pytest.approx((careful, high))
    assert tuple(found.loc["piu_upper"]) == pytest.approx((1.0 - high, 1.0 - low))


def test_the_lower_bound_and_its_interval_are_never_below_those_of_the_mean_effect() -> None:
    effect, held = 0.3 + np.linspace(-0.1, 0.1, 99), np.linspace(0.0, 0.4, 99)
    found = ends(
        with_worlds(True, 2), {"p_y0": 0.0 * held, "p_ypi": effect, "piu_lower": held, "piu_upper": 0.0 * held + 0.5}
    )
    low, high = np.quantile(effect, [0.05, 0.95], method="weibull")
    assert tuple(found.loc["piu_lower"]) == pytest.approx((low, max(high, 0.38)))


def test_ends_of_units_whose_means_are_exact_have_no_kink() -> None:
    values = np.linspace(0.101, 0.199, 99)
    found = ends(with_worlds(True, 1), dict.fromkeys(("p_y0", "p_ypi", "piu_lower", "piu_upper"), values))
    for name in ("piu_lower", "piu_upper"):
        assert tuple(found.loc[name]) == pytest.approx((0.105, 0.195))


def test_a_small_group_leaves_no_interval_to_what_rests_on_it() -> None:
    keys = {Key(AUDITED, "m", "score", name): np.linspace(0.1, 0.2, 101) for name in ("positive_rate", *QUANTITIES[3:])}
    frame = pd.DataFrame(np.column_stack(list(keys.values())), columns=pd.MultiIndex.from_tuples(keys))
    for small, without in [(("few", ""), {"p_y0"}), (("", "few"), {"p_ypi"})]:
        table = tabled(estimator(), dict.fromkeys(keys, 0.5), frame, 0.95, small={"m": small})
        found = table[table["decisions"] == "score"].set_index("quantity")
        bare = set(found.index[found["lower"].isna()])
        assert bare == without | {*QUANTITIES[5:]}
        assert (found.loc[list(bare), "note"] == "no interval: few").all()
        assert (found["estimate"] == 0.5).all()
