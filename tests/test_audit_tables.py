from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyrofair.audit_tables import QUANTITIES, group_table, main_table
from pyrofair.graph import CausalGraph
from pyrofair.measures import AuditedModel
from pyrofair.potential_outcomes import CounterfactualSample
from pyrofair.replicates import Estimator, Key, Views

GRAPH = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
LOWER: Key = ("", "m", "score", "piu_lower")
ONE: Key = ("group 0", "m", "score", "p_y0")
OTHER: Key = ("group 1", "m", "score", "p_y0")


def frame(**columns: object) -> pd.DataFrame:
    keys = {"lower": LOWER, "one": ONE, "other": OTHER}
    return pd.DataFrame({keys[name]: values for name, values in columns.items()}).set_axis(
        pd.MultiIndex.from_tuples([keys[name] for name in columns]), axis=1
    )


def estimator(n: int = 10) -> Estimator:
    table = pd.DataFrame({"A": [0, 1] * (n // 2), "M": 0})
    model = AuditedModel("m", np.zeros(n), GRAPH, ("A", "M"))
    return Estimator((model,), table, None, np.ones(n), {"m": np.zeros(n)}, {}, {}, {}, np.full(n, -1), 0.5)


def lone(heavy: float = 1.0) -> dict[str, Views]:
    """The worlds of both groups, 100 rows each; in group 1 a row of the second world is heavier."""
    even = CounterfactualSample(pd.DataFrame({"A": [0] * 100}), np.ones(100))
    odd = CounterfactualSample(even.rows, np.r_[heavy, np.ones(99)])
    return {"group 0": ((even, even),), "group 1": ((even, odd),)}


def row(draws: pd.DataFrame, level: float = 0.9) -> pd.Series:
    table = main_table(estimator(), {LOWER: 0.5}, {}, draws, level, "the source is out")
    return table.set_index(["decisions", "quantity"]).loc[("score", "piu_lower")]


def test_percentiles() -> None:
    found = row(frame(lower=np.arange(101.0)))
    assert (found["lower"], found["upper"]) == pytest.approx((5.0, 95.0))
    assert found["note"] == ""


def test_a_few_replicates_that_left_0_1_are_told() -> None:
    found = row(frame(lower=[np.nan] * 20 + [0.5] * 80))
    assert (found["lower"], found["upper"]) == (0.5, 0.5)
    assert found["note"] == "the interval leaves out 20 of 100 replicates, which left [0, 1]"


@pytest.mark.parametrize("lost", [21, 100])
def test_many_replicates_that_left_0_1_leave_no_interval(lost: int) -> None:
    found = row(frame(lower=[np.nan] * lost + [0.5] * (100 - lost)))
    assert np.isnan([found["lower"], found["upper"]]).all()
    assert found["estimate"] == 0.5
    assert found["note"] == f"no interval: the estimate left [0, 1] in {lost} of 100 replicates"


def test_every_quantity_has_a_row_and_a_reason() -> None:
    table = main_table(estimator(), {LOWER: 0.5}, {}, frame(lower=[]), 0.95, "the source is out")
    without = [each for each in QUANTITIES if each not in ("accuracy", "majority_rate")]
    assert list(table["quantity"]) == [*QUANTITIES, *without]
    missing = table[table["estimate"].isna()]
    assert len(missing) == len(table) - 1
    reasons = dict(zip(missing["quantity"], missing["note"], strict=True))
    assert reasons["accuracy"] == reasons["majority_rate"] == "cannot be made: df has no outcome column 'Y'"
    assert reasons["p_ypi"] == "cannot be made: the source is out"
    assert missing[["lower", "upper"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("gaps", "agree"),
    [
        (np.linspace(-0.1, 0.2, 101), True),
        (np.linspace(0.01, 0.2, 101), False),
        (np.linspace(-0.2, -0.01, 101), False),
        (np.full(101, 1e-15), True),  # rounding
    ],
)
def test_groups_agree_if_the_interval_of_their_difference_holds_0(gaps: np.ndarray, agree: bool) -> None:
    draws = frame(one=np.full(101, 0.3), other=0.3 + gaps)
    table = group_table({ONE: 0.3, OTHER: 0.4, LOWER: 0.1}, draws, 0.95, lone())
    assert len(table) == 1
    found = table.iloc[0]
    assert (found["group_0"], found["group_1"]) == (0.3, 0.4)
    assert found["difference"] == pytest.approx(0.1)
    assert found["lower"] == pytest.approx(np.quantile(gaps, 0.025))
    assert found["agree"] == agree


def test_groups_without_replicates_or_without_the_other_one() -> None:
    table = group_table({ONE: 0.3, OTHER: 0.4}, pd.DataFrame(), 0.95, lone())
    assert table["agree"].isna().all()
    assert table[["lower", "upper"]].isna().all(axis=None)
    assert group_table({ONE: 0.3}, pd.DataFrame(), 0.95, lone()).empty


def test_a_single_replicate_has_no_interval() -> None:
    found = row(frame(lower=[0.5]))
    assert np.isnan([found["lower"], found["upper"]]).all()
    assert found["note"] == "no interval: 1 replicate has no spread"
    draws = frame(one=[0.3], other=[0.4])
    assert group_table({ONE: 0.3, OTHER: 0.4}, draws, 0.95, lone())["agree"].isna().all()


@pytest.mark.parametrize(("quantity", "size"), [("p_y0", 100.0), ("p_ypi", 1.2), ("mean_unfair_effect", 1.2)])
def test_a_group_that_rests_on_a_row_is_not_compared(quantity: str, size: float) -> None:
    one, other = (("group 0", "m", "score", quantity), ("group 1", "m", "score", quantity))
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
