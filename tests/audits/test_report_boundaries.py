"""Intervals where no row, few rows or nearly all rows differ between the worlds: they come from counts of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import pyrofair as pf
from pyrofair.audits.penalty_paths import PenaltyPath
from pyrofair.commands.gate import judge
from pyrofair.commands.options import LIMIT_EXCEEDED

pytestmark = pytest.mark.filterwarnings("ignore::pyrofair.PyrofairWarning")

GRAPH = pf.CausalGraph("A -> M; Q -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")


class Flips:
    """A classifier that decides by A for a share of the rows, and by M for the others, half of which get a yes."""

    def __init__(self, share: float) -> None:
        self.share = share

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        by_group = X["Q"].to_numpy() < stats.norm.ppf(self.share)
        yes = np.where(by_group, X["A"] == 1, X["M"] == 1).astype(float)
        return np.column_stack([1.0 - yes, yes])

    def truth(self) -> dict[str, float]:
        y0 = 0.5 * (1.0 - self.share)
        bounds = dict.fromkeys(("mean_unfair_effect", "piu_lower", "piu_upper"), self.share)
        return {"p_y0": y0, "p_ypi": y0 + self.share} | bounds


def draw(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {"A": rng.integers(0, 2, n), "M": (rng.random(n) < 0.5).astype(int), "Q": rng.standard_normal(n)}
    return pd.DataFrame(columns).assign(Y=rng.integers(0, 2, n))


def one_step(unfair: pf.UnfairPaths = UNFAIR) -> pf.OneStep:
    return pf.OneStep(unfair, propensity="logistic", regression="logistic", random_state=0)


def weighted() -> pf.IPW:
    return pf.IPW(UNFAIR, propensity="logistic")


def drawn() -> pf.GComputation:
    return pf.GComputation(UNFAIR, draws=10, random_state=0)


def audited(share: float, df: pd.DataFrame, source: Any, **settings: Any) -> pf.Audit:
    return pf.audit({"m": Flips(share)}, source, df, random_state=0, progress=False, **settings)


def held(
    share: float, n: int, samples: int, make: Callable[[], Any], *, weights: bool = False, **settings: Any
) -> dict[str, int]:
    """Return in how many samples the interval of each quantity holds the truth; a bound's, from its own side."""
    found = dict.fromkeys(truth := Flips(share).truth(), 0)
    for seed in range(samples):
        weight = np.random.default_rng(seed).uniform(0.5, 2.0, n) if weights else None
        report = audited(share, draw(n, seed), make(), sample_weight=weight, **settings)
        rows = report.table.query("decisions == 'threshold'").set_index("quantity")
        for name, value in truth.items():
            low, high = rows.loc[name, ["lower", "upper"]] + [-1e-9, 1e-9]
            found[name] += (name == "piu_upper" or low <= value) and (name == "piu_lower" or value <= high)
    return found


W2 = [(0.003, 400), (0.01, 100), (0.02, 60)]


@pytest.mark.parametrize(("share", "n"), [W2[0], W2[2], (0.98, 200)])
def test_intervals_of_few_rows_that_differ_or_agree_hold_the_truth(share: float, n: int) -> None:
    assert min(held(share, n, 8, one_step).values()) >= 7


@pytest.mark.slow
@pytest.mark.parametrize(("share", "n"), [*W2, (0.002, 1_000), (0.05, 200), (0.98, 200), (0.997, 1_000)])
@pytest.mark.parametrize("weights", [False, True])
def test_intervals_at_a_boundary_hold_the_truth_in_36_of_40_samples(share: float, n: int, weights: bool) -> None:
    found = held(share, n, 40, one_step, weights=weights)
    means = [found.pop(name) for name in ("p_y0", "p_ypi")]
    assert min(found.values()) >= 36
    inner = 0.1 < Flips(share).truth()["p_y0"] < 0.9  # an ordinary mean: fewer than 33 of 40 are one case in a thousand
    assert min(means) >= (33 if inner else 36)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "samples", "boot"), [(weighted, 40, 60), (drawn, 20, 20)])
def test_replicates_at_a_boundary_hold_the_truth(make: Callable[[], Any], samples: int, boot: int) -> None:
    assert min(held(0.003, 400, samples, make, n_boot=boot).values()) >= 0.9 * samples


# --- everywhere an interval is made ----------------------------------------------------------------------------------

NOBODY = 1e-12
"""A share of rows so small that the answer of none flips."""
SAMPLE = draw(400, 1)


def reach(size: float) -> float:
    """The upper end of Wilson's interval for none of so many rows."""
    return float(stats.norm.ppf(0.975) ** 2 / (size + stats.norm.ppf(0.975) ** 2))


@pytest.mark.parametrize("make", [one_step, weighted, drawn])
def test_no_row_that_differs_leaves_an_interval(make: Callable[[], Any]) -> None:
    report = audited(NOBODY, SAMPLE, make(), n_boot=10)
    rows = report.table.query("decisions == 'threshold'").set_index("quantity")
    assert (rows["estimate"][["mean_unfair_effect", "piu_lower"]].abs() < 1e-9).all()
    end = reach(rows.loc["piu_lower", "ess"])
    assert 0.005 < end < 0.05
    assert tuple(rows.loc["piu_lower", ["lower", "upper"]]) == pytest.approx((0.0, end))
    low, high = rows.loc["mean_unfair_effect", ["lower", "upper"]]
    assert (low, high) == pytest.approx((-end, end))


def test_thresholds_subgroups_and_a_gate_count_rows() -> None:
    report = audited(NOBODY, SAMPLE, one_step(), thresholds=[0.3], subgroups={"half": lambda table: table["Q"] < 0.0})
    assert judge(report, 0.01, "piu_upper")[0] == LIMIT_EXCEEDED
    at = report.thresholds.set_index("quantity").loc["piu_upper"]
    assert at["upper"] == pytest.approx(reach(at["ess"]))
    levels = report.subgroups.query("quantity == 'piu_upper'")
    assert len(levels) == 2
    assert (levels["upper"] > [reach(each) for each in levels["ess"]]).all()  # together they reach farther


def test_contrasts_and_partitions_count_rows() -> None:
    three = SAMPLE.assign(A=np.arange(400) % 3)
    found = pf.audit_contrasts({"m": Flips(NOBODY)}, one_step(), three, progress=False, random_state=0).table
    for row in found.query("quantity == 'piu_upper' and decisions == 'threshold'").itertuples():
        assert row.upper > reach(row.ess)
    parts = [draw(1_000, seed) for seed in range(2)]
    row = audited(NOBODY, parts, one_step()).table.query("quantity == 'piu_upper'").iloc[0]
    assert row["upper"] >= reach(row["ess"])
    assert row["ess"] > 500


def test_what_chooses_by_far_ends_counts_rows() -> None:
    scorer = pf.audits.AuditScorer(one_step(), at_most=0.005)
    figures = scorer(Flips(NOBODY), SAMPLE, SAMPLE["Y"])
    assert figures["piu_upper"] == pytest.approx(0.0, abs=1e-9)
    assert figures["piu_upper_far_end"] > 0.005
    report = audited(NOBODY, SAMPLE, one_step())
    chosen = report.table.assign(strength=1.0, seed=0)
    path = PenaltyPath(
        pd.DataFrame({"strength": [1.0], "seed": 0, "decisions": "threshold", "accuracy": 0.5}), {}, chosen
    )
    with pytest.raises(pf.DataError, match=r"piu_upper below 0\.005"):
        path.select(at_most=0.005)
