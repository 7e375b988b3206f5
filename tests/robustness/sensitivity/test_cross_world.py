"""Couplings across worlds: against linear programs over joint distributions, known values, and on samples."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import pyrofair as pf
from pyrofair.exceptions import DataError, PositivityWarning
from pyrofair.robustness.sensitivity import CrossWorld, cross_world
from tests.models import Known
from tests.robustness.sensitivity.models import GRAPH, SATURATED, Table, exact, repeated, sample

UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
SCORES = np.fromfunction(lambda a, q, d, m: 0.1 + 0.15 * a + 0.05 * q + 0.15 * d + 0.3 * m, (2, 2, 3, 2))


def by_program(p: np.ndarray, scores: np.ndarray, sign: int) -> float:
    """The greatest (1) or least (-1) P(Ypi = 1) over all joint distributions of D(1) and M(0, d), d = 0, 1, 2."""
    total = 0.0
    for q in range(2):
        of_d = p[q, 1].sum(axis=1) / p[q, 1].sum()
        of_m = p[q, 0, :, 1] / p[q, 0].sum(axis=1)
        cells = list(product(range(3), *(range(2) for _ in range(3))))
        value = [scores[1, q, d, m[d]] for d, *m in cells]
        rows = [[float(cell[0] == d) for cell in cells] for d in range(3)]
        rows += [[float(cell[1 + d]) for cell in cells] for d in range(3)]
        done = linprog(-sign * np.array(value), A_eq=rows, b_eq=[*of_d, *of_m])
        total += p[q].sum() * -sign * done.fun
    return total


def examine(p: np.ndarray, scores: np.ndarray, **settings: object) -> CrossWorld:
    df, weight = repeated(p)
    source = pf.OneStep(UNFAIR, **SATURATED, folds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PositivityWarning)
        return cross_world(Table(scores), source, df, sample_weight=weight, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("decisions", ["score", "threshold"])
def test_any_coupling_is_the_linear_program_over_joint_distributions(decisions: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(2):
        p = rng.dirichlet(np.full(24, 4.0)).reshape(2, 2, 3, 2)
        scores = rng.random((2, 2, 3, 2))
        found = examine(p, scores, deltas=[0.4, 1.0], decisions=decisions)
        used = scores if decisions == "score" else (scores > 0.5).astype(float)
        own = found.table[found.table["quantity"] == "p_ypi"].set_index("delta")
        ends = by_program(p, used, -1), by_program(p, used, 1)
        assert own.loc[1.0, ["low", "high"]].tolist() == pytest.approx(ends, abs=1e-8)
        independent = own.loc[0.0, "low"]
        share = [0.6 * independent + 0.4 * end for end in ends]
        assert own.loc[0.4, ["low", "high"]].tolist() == pytest.approx(share, abs=1e-8)
        assert own["sharp"].all()


def test_no_cross_world_independence_of_a_mediator_and_an_outcome() -> None:
    """Known values: M has the chance .364 with A = 0, and Y, by M, the chances .63 and .689 with A = 1."""
    graph = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    r = np.array([0.33, 0.67])
    m0 = 0.59 * 0.2 + 0.41 * 0.6
    y = [r @ [0.4879454545, 0.6998567164], r @ [0.5577454545, 0.7535776119]]
    cells, weight = [], []
    for a, m, outcome in product((0, 1), repeat=3):
        of_m = m0 if a == 0 else 0.5
        of_y = y[m] if a == 1 else 0.4
        cells.append((a, m, outcome))
        weight.append(5000 * 0.5 * (of_m if m else 1 - of_m) * (of_y if outcome else 1 - of_y))
    df = pd.DataFrame(cells * 100, columns=["A", "M", "Y"])
    source = pf.OneStep(graph.unfair("A -> Y"), **SATURATED, folds=1)
    found = cross_world(df["Y"], source, df, scores="outcome", deltas=[1.0], sample_weight=np.tile(weight, 100))
    own = found.table[(found.table["quantity"] == "p_ypi") & (found.table["delta"] == 1.0)].iloc[0]
    assert (own["low"], own["high"]) == pytest.approx((0.318879, 0.993926), abs=1e-6)


def covered(n: int, seeds: range) -> pd.DataFrame:
    """By seed and end, the standard error and the error of P(Ypi) at delta = 1, and whether both ends are held."""
    ends = by_program(exact(), SCORES, -1), by_program(exact(), SCORES, 1)
    lines = []
    for seed in seeds:
        source = pf.OneStep(UNFAIR, **SATURATED)
        found = cross_world(Table(SCORES), source, sample(n, seed), deltas=[1.0], decisions="score").table
        own = found[(found["quantity"] == "p_ypi") & (found["delta"] == 1.0)].iloc[0]
        lines.append(
            {
                "held": own["lower"] <= ends[0] and own["upper"] >= ends[1],
                "low": own["low"] - ends[0],
                "high": own["high"] - ends[1],
                "error_low": (own["low"] - own["lower"]) / 1.96,
                "error_high": (own["upper"] - own["high"]) / 1.96,
            }
        )
    return pd.DataFrame(lines)


def test_intervals_hold_both_ends() -> None:
    found = covered(800, range(6))
    assert found["held"].mean() >= 0.6
    assert found[["low", "high"]].abs().mean().max() < 0.04


@pytest.mark.slow
def test_intervals_hold_both_ends_at_the_nominal_level() -> None:
    """Errors of ends do not count that the best coupling changes from sample to sample; the ends lie outward."""
    found = covered(1500, range(300))
    assert found["held"].mean() >= 0.95
    for end, sign in (("low", -1), ("high", 1)):
        assert (sign * found[end] + 1.96 * found[f"error_{end}"] >= 0.0).mean() >= 0.96
        assert 0.1 < sign * found[end].mean() / found[end].std() < 0.5
    assert found["error_low"].mean() == pytest.approx(0.74 * found["low"].std(), rel=0.1)
    assert found["error_high"].mean() == pytest.approx(0.87 * found["high"].std(), rel=0.1)


def test_independent_errors_are_the_number_of_the_audit() -> None:
    df = sample(1500, 0)
    source = pf.OneStep(UNFAIR, **SATURATED)
    found = cross_world(Table(SCORES), source, df, deltas=[0.5], at_most=0.9)
    report = pf.audit({"m": Table(SCORES)}, source, df, random_state=0)
    table = report.table[report.table["decisions"] == "threshold"].set_index("quantity")
    own = found.table[found.table["delta"] == 0.0].set_index("quantity")
    for quantity in ("p_y0", "p_ypi", "mean_unfair_effect"):
        assert own.loc[quantity, "low"] == pytest.approx(table.loc[quantity, "estimate"], abs=1e-12)
        assert own.loc[quantity, "lower"] == pytest.approx(table.loc[quantity, "lower"], abs=1e-9)
    wide = found.table.set_index(["quantity", "delta"])
    assert wide.loc[("p_y0", 0.5), "low"] == wide.loc[("p_y0", 0.5), "high"]
    assert len(found.flips_at) == 2
    assert "share of units" in str(found)
    assert "<table" in found._repr_html_()
    assert found.plot("piu").axes[0].get_xlabel().startswith("delta")
    bench = found.benchmark()
    assert bench["column"].tolist() == ["Q"]
    assert 0.0 < bench.loc[0, "delta"] < 1.0
    with pytest.raises(DataError, match="a benchmark takes columns that the sensitive attribute does not cause"):
        found.benchmark(["D"])


def test_flips_are_where_the_share_takes_the_effect_to_its_limit() -> None:
    df = sample(1500, 0)
    source = pf.OneStep(UNFAIR, **SATURATED)
    found = cross_world(Table(SCORES), source, df, decisions="score", above=0.25)
    own = found.table[found.table["quantity"] == "mean_unfair_effect"].set_index("delta")["low"]
    at = (own[0.0] - 0.25) / (own[0.0] - own[1.0])
    assert found.flips_at.loc[0, "point"] == pytest.approx(at, abs=1e-6)


def test_ends_are_not_called_sharp_where_an_edge_is_missing() -> None:
    graph = pf.CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> Y", "A -> D -> Y"), **SATURATED)
    found = cross_world(Table(SCORES), source, sample(1500, 0), deltas=[1.0]).table.set_index(["quantity", "delta"])
    assert not found.loc[("p_ypi", 1.0), "sharp"]
    assert found.loc[("p_y0", 1.0), "sharp"]


def test_bounds_are_not_called_sharp_where_only_some_cuts_were_tried_or_a_column_tells_more() -> None:
    rng = np.random.default_rng(0)
    df = sample(600, 0)[["A", "D"]].assign(M=rng.normal(size=600), W=0)
    smooth = Known(lambda X: 1.0 / (1.0 + np.exp(-0.5 * X["A"] - X["D"] - X["M"])))
    for hidden, decisions, sharp in (
        ("", "score", False),
        ("", "threshold", True),
        ("; H -> {W M}", "threshold", False),
    ):
        graph = pf.CausalGraph(
            "A -> D; {A D} -> M; {A D M} -> Y" + hidden, sensitive="A", outcome="Y", latent=["H"] * bool(hidden)
        )
        source = pf.OneStep(
            graph.unfair("A -> D -> Y", "A -> D -> M -> Y"), form="prefix", propensity="logistic",
            regression="logistic", random_state=0,
        )  # fmt: skip
        table = df if hidden else df.drop(columns="W")
        found = cross_world(smooth, source, table, deltas=[1.0], decisions=decisions)  # type: ignore[arg-type]
        own = found.table.set_index(["quantity", "delta"])["sharp"]
        assert own[("p_ypi", 1.0)] == sharp
        assert own[("p_y0", 1.0)]
        assert ("W shares a declared latent cause" in found.details()) == bool(hidden)


def test_what_rests_on_no_assumption_across_worlds_is_refused() -> None:
    df = sample(1500, 0)
    with pytest.raises(DataError, match="no assumption across worlds"):
        cross_world(Table(SCORES), pf.OneStep(GRAPH.unfair("A -> Y"), **SATURATED), df)


def test_three_runs_and_many_values_are_refused() -> None:
    graph = pf.CausalGraph("A -> D; {A D} -> M; {A D M} -> Z; {A D M Z} -> Y", sensitive="A", outcome="Y")
    rng = np.random.default_rng(0)
    df = pd.DataFrame({name: rng.integers(0, 2, 400) for name in ("A", "D", "M", "Z")})

    through_m = graph.unfair("A -> M -> Y", "A -> M -> Z -> Y")
    with pytest.raises(DataError, match="joins 3 runs of nodes"):
        cross_world(Known(lambda X: X.mean(axis=1)), pf.OneStep(through_m, **SATURATED), df)
    df["D"] = rng.normal(size=400)
    simple = pf.CausalGraph("A -> D; {A D} -> M; {A D M} -> Y", sensitive="A", outcome="Y")

    source = pf.OneStep(
        simple.unfair("A -> M -> Y"), propensity="logistic", regression="logistic", form="prefix", random_state=0
    )
    with pytest.raises(DataError, match="400 different values together"):
        cross_world(Known(lambda X: 0.2 + 0.4 * X["M"]), source, df[["A", "D", "M"]])
