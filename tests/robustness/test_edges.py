"""What edges cost: enumeration on a discrete SEM, sides of paths, intervals of gains, graphs without an answer."""

from __future__ import annotations

import itertools
import warnings
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair.graph.changes import into_from_below, split_column, without_edges
from pyrofair.robustness.edges import NOTHING
from tests.models import Known

GRAPH = pf.CausalGraph(
    "C -> A; {A C} -> M; {A C M} -> L; {A M L C} -> Y", sensitive="A", outcome="Y", baseline="a", contrast="b"
)
UNFAIR = GRAPH.unfair(direct=True, through="M")
SATURATED: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "random_state": 0}


def p_a(c: int) -> float:
    return 0.5 - 0.25 * c


def p_m(a: int, c: int) -> float:
    return 0.5 - 0.25 * c + 0.25 * a


def p_l(a: int, c: int) -> float:
    """Without M, so that the edge M -> L is absent indeed."""
    return 0.25 + 0.25 * a + 0.25 * c


def score(a: Any, c: Any, m: Any, ell: Any) -> Any:
    return 0.1 + 0.15 * a + 0.05 * c + 0.3 * m + 0.35 * ell


MODEL = Known(lambda X: score((X["A"] == "b").to_numpy(), *(X[each].to_numpy() for each in "CML")))


def chance(p: float, value: int) -> float:
    return p if value else 1.0 - p


def exact_table(reads: bool = True) -> pd.DataFrame:
    """A table whose shares are the probabilities of the SEM, in which L reads A or the baseline."""
    rows = []
    for c, a, m, ell in itertools.product((0, 1), repeat=4):
        share = 0.5 * chance(p_a(c), a) * chance(p_m(a, c), m) * chance(p_l(a if reads else 0, c), ell)
        rows += [("ab"[a], c, m, ell)] * round(128 * share)
    table = pd.DataFrame(rows * 8, columns=["A", "C", "M", "L"])
    return table.assign(Y=np.arange(len(table)) % 2)


def drawn(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    C = rng.integers(2, size=n)
    A = (rng.random(n) < 0.5 - 0.25 * C).astype(int)
    M = (rng.random(n) < 0.5 - 0.25 * C + 0.25 * A).astype(int)
    L = (rng.random(n) < 0.25 + 0.25 * A + 0.25 * C).astype(int)
    return pd.DataFrame({"A": np.array(["a", "b"])[A], "C": C, "M": M, "L": L, "Y": M})


def truth(*, l_shared: bool) -> tuple[float, float]:
    """The interval of PIU of drawn decisions given C, or given C and L, by enumeration of the SEM."""
    low, away = 0.0, 0.0
    for c in (0, 1):
        parts: dict[int, Any] = {}
        for ell in (0, 1):
            worlds = [
                sum(chance(p_m(a, c), m) * score(a, c, m, ell) for m in (0, 1)) for a in (0, 1)
            ]  # L is fair: it reads the baseline
            parts[ell] = np.array(worlds)
        shares = {ell: 0.5 * chance(p_l(0, c), ell) for ell in (0, 1)}
        if not l_shared:
            mean = sum(shares[ell] * parts[ell] for ell in (0, 1)) / 0.5
            shares, parts = {0: 0.5}, {0: mean}
        for ell, share in shares.items():
            y0, ypi = parts[ell]
            low += share * abs(ypi - y0)
            away += share * abs(1.0 - y0 - ypi)
    return low, 1.0 - away


def costs_of(*args: Any, **settings: Any) -> Any:
    source = pf.OneStep(UNFAIR, **SATURATED)
    table = pf.edge_costs({"m": MODEL}, source, *args, random_state=0, **settings).table
    return table[table["decisions"] == "score"].set_index("absent")


def test_intervals_are_those_of_the_enumeration() -> None:
    found = costs_of(exact_table(), ["M -> L"])
    for name, shared in ((NOTHING, False), ("M -> L", True)):
        assert found.loc[name, ["low", "high"]].tolist() == pytest.approx(truth(l_shared=shared), abs=1e-9)
    gain = truth(l_shared=False)[1] - truth(l_shared=True)[1]
    assert gain > 0.05
    assert found.loc["M -> L", "gain"] == pytest.approx(gain, abs=1e-9)
    assert found.loc["M -> L", "becomes_shared"] == "L"
    assert found.loc["M -> L", "unfair_paths"] == "A -> M -> Y; A -> Y"


def test_each_row_is_an_audit_of_its_graph() -> None:
    df = drawn(600, 1)
    costs = pf.edge_costs({"m": MODEL}, pf.OneStep(UNFAIR, **SATURATED), df, ["A -> L", ("A", "M")], random_state=0)
    gains = next(each for each in costs.view.blocks if each.name == "gains").tables[0]
    assert all("points" in row[2] for row in gains.rows[1:]), "a gain is a difference of shares"
    for name in (NOTHING, "A -> L"):
        altered = costs.unfair[name]
        assert altered is not None
        alone = pf.audit({"m": MODEL}, pf.OneStep(altered, **SATURATED), df, random_state=0).table
        own: Any = costs.table[costs.table["absent"] == name].set_index("decisions")
        for decisions in ("threshold", "score"):
            rows = alone[alone["decisions"] == decisions].set_index("quantity")
            assert own.loc[decisions, "low"] == rows.loc["piu_lower", "estimate"]
            assert own.loc[decisions, "high"] == rows.loc["piu_upper", "estimate"]
            assert own.loc[decisions, "lower"] == rows.loc["piu_lower", "lower"]
            assert own.loc[decisions, "upper"] == rows.loc["piu_upper", "upper"]
        assert (("A", "L") in altered.graph.edges) == (name == NOTHING)


def test_by_default_each_edge_out_of_the_sensitive_attribute_but_to_the_outcome() -> None:
    source = pf.OneStep(GRAPH.unfair(through="M"), **SATURATED)
    costs = pf.edge_costs({"m": MODEL}, source, drawn(600, 1), random_state=0)
    assert [*costs.unfair] == [NOTHING, "A -> M", "A -> L"]
    assert costs.unfair["A -> M"] is None
    own: Any = costs.table.query("decisions == 'score'")
    assert own["absent"].tolist()[0] == NOTHING
    gains = own["gain"].to_numpy()[1:]
    assert (np.diff(gains) <= 0.0).all()
    gone = own.set_index("absent").loc["A -> M"]
    full = own.iloc[0]
    assert gone["status"] == "no unfair path left"
    assert gone[["low", "high", "lower", "upper"]].tolist() == [0.0] * 4
    assert gone["note"] == "the effect is 0 by assumption, whatever the data"
    half = full["upper"] - full["high"]
    assert (gone["gain_lower"], gone["gain_upper"]) == pytest.approx((full["high"] - half, full["high"] + half))
    assert "no unfair path left" in str(costs)
    zero = costs.quantities.query("absent == 'A -> M' and quantity in ('piu_upper', 'mean_unfair_effect')")
    assert (zero[["estimate", "lower", "upper"]] == 0.0).all(axis=None)
    read = costs.verdicts.query("decisions == 'score'").set_index("absent")
    assert read.loc["A -> M", ["status", "most"]].tolist() == ["small", 0.0]
    assert (
        read.loc[NOTHING, "verdict"] == costs.audits[NOTHING].verdicts.query("decisions == 'score'")["verdict"].item()
    )


def columns_graph() -> pf.UnfairPaths:
    graph = pf.CausalGraph(
        "C -> {A M R}; A -> M -> R -> Y; A -> R; {A M C} -> Y",
        sensitive="A",
        outcome="Y",
        columns={"R": ["r1", "R", "r3"]},
    )
    return graph.unfair("A -> M -> R -> Y", "A -> M -> Y", "A -> Y")


@pytest.mark.parametrize("column", ["r1", "R", "r3"])
def test_a_column_on_its_own_keeps_the_sides_of_all_paths(column: str) -> None:
    unfair = columns_graph()
    split, own = split_column(unfair, column)
    assert own == ("R_" if column == "R" else column)
    assert split.graph.columns_of([own]) == [column]
    assert {*split.graph.columns_of(["R", own])} == {"r1", "R", "r3"}
    assert (own, "R") in split.graph.edges
    every = split.graph.directed_paths("A", "Y")
    assert len(every) == 2 + 3 + 3  # without R; to R or the column from A, and from M: either, or one by the other
    for path in every:
        before = tuple(node for node, _ in itertools.groupby("R" if each == own else each for each in path))
        assert (path in split.paths) == (before in unfair.paths)
    assert {*into_from_below(split.graph, own)} == {("A", own), ("M", own)}
    absent = without_edges(split, into_from_below(split.graph, own))
    assert absent is not None
    assert own in absent.shared
    assert own not in split.shared


def test_a_column_may_be_absent_from_what_the_sensitive_attribute_causes() -> None:
    """Of the node (M, L) the column L is as good as a covariate in the SEM if its distribution does not depend on A."""
    graph = pf.CausalGraph(
        "C -> {A N}; A -> N; {A N C} -> Y",
        sensitive="A",
        outcome="Y",
        baseline="a",
        contrast="b",
        columns={"N": ["M", "L"]},
    )
    df = exact_table(reads=False)
    source = pf.OneStep(graph.unfair(direct=True, through="N"), **SATURATED)
    costs = pf.edge_costs({"m": MODEL}, source, df, random_state=0)
    assert [*costs.unfair] == [NOTHING, "A -> N", "A -> M", "A -> L"]
    own: Any = costs.table.query("decisions == 'score'").set_index("absent")
    assert own.loc["A -> L", ["low", "high"]].tolist() == pytest.approx(truth(l_shared=True), abs=1e-9)
    assert own.loc[NOTHING, ["low", "high"]].tolist() == pytest.approx(truth(l_shared=False), abs=1e-9)
    assert own.loc["A -> L", "becomes_shared"] == "L"
    assert own.loc["A -> N", "becomes_shared"] == "N"
    within = pf.edge_costs({"m": MODEL}, source, df, [("M", "L"), ("L", "M")], random_state=0)
    assert [*within.audits] == [NOTHING, "M -> L", "L -> M"]  # M and L are independent given A and C
    ends = within.table.query("decisions == 'score'")[["low", "high"]].to_numpy()
    np.testing.assert_allclose(ends, np.tile(truth(l_shared=False), (3, 1)), atol=1e-9)
    assert own.index[1] == own["gain"].idxmax()


def test_an_edge_whose_absence_identifies_the_effect_and_the_other_way_round() -> None:
    graph = pf.CausalGraph("A -> {M L}; M -> L; {A M L} -> Y", sensitive="A", outcome="Y", baseline="a", contrast="b")
    unfair = graph.unfair("A -> M -> Y")
    source = pf.OneStep(unfair, **SATURATED)
    df = drawn(600, 2).drop(columns="C")

    model = Known(lambda X: MODEL.predict_proba(X.assign(C=0))[:, 1])
    costs = pf.edge_costs({"m": model}, source, df, ["M -> L", "A -> L"], random_state=0)
    own: Any = costs.table.query("decisions == 'score'").set_index("absent")
    assert own["status"].to_dict() == {NOTHING: "not identified", "M -> L": "identified", "A -> L": "not identified"}
    assert own["gain"].isna().all()
    assert np.isfinite(own.loc["M -> L", "high"])
    assert [*own.index] == [NOTHING, "M -> L", "A -> L"]
    assert own.loc["A -> L", "note"].startswith("Not identified: 'M' is a recanting witness")
    assert costs.failures["A -> L"].way_out.relabellings  # type: ignore[attr-defined]
    assert "Without A -> L:" in costs.details()
    assert "What can be done:" in costs.details()
    for decisions in ("threshold", "score"):
        costs.plot(decisions=decisions)
    with pytest.raises(pf.NotIdentifiedError, match="recanting witness"):
        pf.edge_costs({"m": model}, source, df, ["A -> L"], random_state=0)


def test_edges_into_the_outcome_are_disputed_for_human_decisions_only() -> None:
    df = drawn(600, 3)
    source = pf.OneStep(UNFAIR, **SATURATED)
    with pytest.warns(pf.PyrofairWarning, match="without A -> Y could not be audited: what a classifier"):
        costs = pf.edge_costs({"m": MODEL}, source, df, ["A -> Y"], random_state=0)
    assert costs.table["status"].tolist() == ["identified", "refused"] * 2
    humans = (np.random.default_rng(0).random(600) < MODEL.predict_proba(df)[:, 1]).astype(float)
    costs = pf.edge_costs({"humans": humans}, source, df, scores="outcome", random_state=0)
    assert [*costs.unfair] == [NOTHING, "A -> M", "A -> L", "A -> Y"]
    assert set(costs.table["status"]) == {"identified"}
    assert costs.unfair["A -> Y"] is not None
    assert ("A", "Y") not in costs.unfair["A -> Y"].graph.edges


def test_a_source_without_influence_values_has_points() -> None:
    source = pf.IPW(UNFAIR, propensity="saturated")
    costs = pf.edge_costs({"m": MODEL}, source, drawn(400, 3), ["M -> L"], n_boot=0, random_state=0, progress=False)
    own: Any = costs.table.query("decisions == 'score'").set_index("absent").loc["M -> L"]
    assert np.isfinite(own["gain"])
    assert np.isnan(own["gain_lower"])
    assert "no influence values" in own["note"]


def test_an_end_at_its_kink_has_no_interval_of_its_change() -> None:
    even = Known(lambda X: 0.5 + 0.001 * (X["L"] - 0.5))
    source = pf.OneStep(UNFAIR, **SATURATED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        costs = pf.edge_costs({"m": even}, source, drawn(1_500, 3), ["M -> L"], random_state=0)
    own: Any = costs.table.query("decisions == 'score'").set_index("absent").loc["M -> L"]
    assert np.isnan(own["narrower_lower"])
    assert "within its sampling error of where the worlds change order" in own["note"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"disputed": "A -> M"}, "must list edges and columns"),
        ({"disputed": []}, "disputed is empty"),
        ({"disputed": ["A -> M -> Y"]}, "is a path; name one edge"),
        ({"disputed": ["M -> A"]}, "is no edge of the graph. Its edges: C -> A"),
        ({"disputed": ["A -> Z"]}, "no node or column of the graph"),
        ({"disputed": ["Z"]}, "no node or column of the graph. These are: C, A, M"),
        ({"disputed": ["C"]}, "is not caused by 'A'"),
        ({"disputed": ["Y"]}, "is the outcome"),
        ({"disputed": ["A -> M", ("A", "M")]}, "disputed names 'A -> M' more than once"),
        ({"disputed": [3]}, "is not a path"),
        ({"source": pf.OneStep(UNFAIR, **SATURATED).fit(drawn(200, 0))}, "it belongs to one graph"),
        ({"treshold": 0.4}, r"edge_costs\(\) got .* 'treshold'\. Did you mean 'threshold'\?"),
        ({"thresholds": [0.4]}, "thresholds is for one audit"),
        ({"df": drawn(200, 0).drop(columns="M")}, "lacks the column"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    usual = {"models": {"m": MODEL}, "source": pf.OneStep(UNFAIR, **SATURATED), "df": drawn(200, 0)}
    with pytest.raises((pf.DataError, TypeError), match=message):
        pf.edge_costs(**{**usual, **given}, random_state=0)


def covered(samples: int, n: int) -> Any:
    """The share of samples whose intervals of the gain, and of how much narrower it is, hold the true ones."""
    before, after = truth(l_shared=False), truth(l_shared=True)
    true = {"gain": before[1] - after[1], "narrower": (before[1] - before[0]) - (after[1] - after[0])}
    held = []
    for seed in range(samples):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = costs_of(drawn(n, 1_000 + seed), ["M -> L"]).loc["M -> L"]
        held.append([own[f"{name}_lower"] <= value <= own[f"{name}_upper"] for name, value in true.items()])
    return np.mean(held, axis=0)


def test_intervals_of_gains_hold_most_often() -> None:
    assert (covered(4, 800) >= 0.5).all()


@pytest.mark.slow
def test_intervals_of_gains_cover() -> None:
    found = covered(400, 1_500)
    slack = NormalDist().inv_cdf(0.999) * np.sqrt(0.95 * 0.05 / 400)
    assert (found >= 0.95 - slack).all(), found
