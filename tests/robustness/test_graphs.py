"""Audits over candidate graphs: each as by itself, the range over all, and graphs without an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair.audits import audit
from pyrofair.effects.adapters import DecisionsOf
from pyrofair.exceptions import DataError, NotIdentifiedError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.robustness import GraphsAudit, MilesBounds, audit_graphs
from pyrofair.robustness.partial_identification import sharp_bounds
from tests.models import Known
from tests.robustness.models import EDGES, graphs, table

MODEL = Known(lambda X: 0.1 + 0.2 * X["A"] + 0.3 * X["M"] + 0.3 * X["L"])


def test_each_graph_is_audited_as_by_itself_and_the_union_is_over_all() -> None:
    paths = {name: graph.unfair("A -> M -> Y", "A -> L -> Y", through=["M"]) for name, graph in graphs().items()}
    paths["all"] = graphs()["M -> L"].unfair(direct=True, through=["M", "L"])
    paths = {name: paths[name] for name in ("M -> L", "all")}
    df = table()
    alone = {"L -> M": graphs()["L -> M"].unfair(through=["M"])}
    with pytest.raises(NotIdentifiedError, match="'L' is a recanting witness"):
        audit_graphs({"m": MODEL}, alone, df, bounds=False, random_state=0)
    found = audit_graphs({"m": MODEL}, paths, df, random_state=0)
    assert isinstance(found, GraphsAudit)
    assert found.failures == {}
    for name, unfair in paths.items():
        alone = audit({"m": MODEL}, unfair, df, random_state=0).table
        own = found.table[found.table["graph"] == name].drop(columns="graph").reset_index(drop=True)
        assert (own["by"] == "estimate").all()
        for end in ("low", "high"):
            pd.testing.assert_series_equal(own.pop(end), own["estimate"], check_names=False)
        own = own.drop(columns="by")
        kept = alone[alone["quantity"].isin(own["quantity"])].reset_index(drop=True)
        pd.testing.assert_frame_equal(own, kept[own.columns])
    union = found.union.set_index(["decisions", "quantity"]).loc[("score", "mean_unfair_effect")]
    rows = found.table.query("decisions == 'score' and quantity == 'mean_unfair_effect'")
    assert union["smallest"] == rows["estimate"].min()
    assert union["largest"] == rows["estimate"].max()
    assert (union["lower"], union["upper"]) == (rows["lower"].min(), rows["upper"].max())
    assert union["largest_in"] == rows["graph"].iloc[int(rows["estimate"].to_numpy().argmax())]
    assert "2 candidate graphs, 0 without an answer." in str(found)
    pd.testing.assert_frame_equal(found.rates, audit({"m": MODEL}, paths["all"], df, random_state=0).rates)
    assert found.details().count("difference") == 1  # no graph changes the rates of groups
    piu = found.union.query("decisions == 'threshold'").set_index("quantity")
    ends = f"{piu.loc['piu_lower', 'smallest']:.1%} to {piu.loc['piu_upper', 'largest']:.1%}"
    assert f"m, over all graphs: PIU {ends}" in str(found)
    assert len(str(found).splitlines()) < 20 < len(found.details().splitlines())


def test_a_graph_without_an_answer_leaves_no_range() -> None:
    paths = {name: graph.unfair(through=["M"]) for name, graph in graphs().items()}
    found = audit_graphs({"m": MODEL}, paths, table(), bounds=False, random_state=0)
    assert list(found.failures) == ["L -> M"]
    assert found.bounds == {}
    assert isinstance(found.failures["L -> M"], NotIdentifiedError)
    assert found.failures["L -> M"].way_out.relabellings
    own = found.table[found.table["graph"] == "L -> M"]
    assert own["estimate"].isna().all()
    assert own["note"].str.startswith("Not identified: 'L' is a recanting witness").all()
    assert found.union["smallest"].isna().all()
    assert found.union["lower"].isna().all()
    assert (found.union["without"] == 1).all()
    assert "  L -> M: Not identified" in str(found)


@pytest.mark.filterwarnings("ignore:.* replicates are too few")
def test_a_graph_that_is_not_identified_has_sharp_bounds() -> None:
    df = table()
    paths = {name: graph.unfair(through=["M"]) for name, graph in graphs().items()}
    found = audit_graphs({"m": MODEL}, paths, df, n_boot=3, random_state=0)
    assert list(found.failures) == ["L -> M"]
    assert "L -> M: Not identified" in str(found)
    assert "Bounds are given." in str(found)
    assert "2 candidate graphs, 0 without an answer." in str(found)
    assert {*found.bounds["L -> M"]} == {("m", "threshold"), ("m", "score")}
    for decisions in ("threshold", "score"):
        alone = found.bounds["L -> M"]["m", decisions]
        own: Any = found.table.query("graph == 'L -> M' and decisions == @decisions").set_index("quantity")
        assert (own["by"].drop("piu_paper_bound") == ("sharp bounds" if alone.sharp else "valid bounds")).all()
        for quantity, name in (("p_y0", "y0"), ("p_ypi", "ypi"), ("mean_unfair_effect", "effect")):
            assert (own.loc[quantity, "low"], own.loc[quantity, "high"]) == getattr(alone, name)
            assert own.loc[quantity, "lower"] == alone.table.loc[name, "low_from"]
            assert own.loc[quantity, "upper"] == alone.table.loc[name, "high_to"]
        assert (own.loc["piu_lower", "estimate"], own.loc["piu_upper", "estimate"]) == alone.piu
        assert own.loc["p_y0", "estimate"] == pytest.approx(alone.y0[0])
        assert own.loc["p_y0", "note"] == ""
        assert own.loc["piu_upper", "note"].startswith("not identified")
        union: Any = found.union.query("decisions == @decisions").set_index("quantity")
        rows = found.table.query("decisions == @decisions and quantity == 'piu_upper'")
        assert union.loc["piu_upper", "largest"] == rows["high"].max()
        assert union.loc["piu_upper", "upper"] == rows["upper"].max()
        assert union.loc["piu_upper", "without"] == 0
        assert union.loc["piu_paper_bound", "without"] == 1
        assert np.isnan(union.loc["piu_paper_bound", "largest"])
    read = found.verdicts.set_index(["graph", "decisions"])
    for decisions in ("threshold", "score"):  # the bounds speak as an audit's ends do
        own = found.table.query("graph == 'L -> M' and decisions == @decisions").set_index("quantity")
        effect = own.loc["mean_unfair_effect"]
        least = max(effect["lower"], -effect["upper"], own.loc["piu_lower", "lower"], 0.0)
        given = read.loc[("L -> M", decisions)]
        assert given["most"] == pytest.approx(min(own.loc["piu_upper", "upper"], 1.0))
        assert given["least"] == pytest.approx(least if least > 0.05 else given["least"])
        assert (given["least"] > 0.0) == (given["status"] == "unfair")
    again = sharp_bounds(paths["L -> M"], df, MODEL, n_boot=3, random_state=0)
    pd.testing.assert_frame_equal(again.table, found.bounds["L -> M"]["m", "threshold"].table)


def test_decisions_alone_have_the_same_rows_in_graphs_that_are_bounded() -> None:
    rng = np.random.default_rng(0)
    A, L = rng.integers(2, size=200), rng.integers(2, size=200)
    df = pd.DataFrame({"A": A, "L": L, "M": (rng.random(200) < 0.2 + 0.3 * A + 0.3 * L).astype(int)})
    graphs = CausalGraph.expand("A -> {M L}; M - L; {M L} -> Y", sensitive="A", outcome="Y")
    paths = {name: graph.unfair(through="M") for name, graph in graphs.items()}
    rule = DecisionsOf(lambda X: X["M"] * X["L"])
    found = audit_graphs({"rule": rule}, paths, df, n_boot=0, random_state=0)
    assert found.table["decisions"].unique().tolist() == ["threshold"]
    assert found.table.groupby("graph")["low"].count().min() >= 5
    assert [*found.bounds["L -> M"]] == [("rule", "threshold")]


def test_a_continuous_witness_has_the_closed_form() -> None:
    rng = np.random.default_rng(1)
    df = table().assign(L=lambda t: t["L"] + 0.3 * rng.normal(size=len(t)))
    cut = Known(lambda X: 0.1 + 0.2 * X["A"] + 0.3 * X["M"] + 0.3 * (X["L"] > 0.5))
    paths = {"L -> M": graphs()["L -> M"].unfair("A -> L -> Y", "A -> Y")}
    found = audit_graphs({"m": cut}, paths, df, random_state=0)
    assert found.audits == {}
    source = MilesBounds(paths["L -> M"]).fit(df)
    for decisions in ("threshold", "score"):
        ends = source.bounds(cut, decisions=decisions)  # type: ignore[arg-type]
        wide = source.bounds(cut, decisions=decisions, level=0.95, random_state=0)  # type: ignore[arg-type]
        own: Any = found.table.query("decisions == @decisions").set_index("quantity")
        assert (own["by"].drop("piu_paper_bound") == "closed-form bounds").all()
        for quantity in ("p_ypi", "mean_unfair_effect"):
            assert own.loc[quantity, ["low", "high"]].tolist() == ends.loc[quantity].tolist()
            assert own.loc[quantity, ["lower", "upper"]].tolist() == wide.loc[quantity].tolist()
        assert own.loc["piu_upper", "estimate"] == ends.loc["piu", "upper"]
        assert own.loc["piu_upper", "upper"] == wide.loc["piu", "upper"]
        assert np.isnan(own.loc["piu_upper", "lower"])


def test_a_graph_without_bounds_has_the_reason() -> None:
    rng = np.random.default_rng(1)
    df = table().assign(L=rng.normal(size=400), N=rng.normal(size=400))
    of_m = Known(lambda X: 0.1 + 0.2 * X["A"] + 0.3 * X["M"])
    more = CausalGraph("A -> {M L N}; L -> M; {A M L} -> Y; N -> M", sensitive="A", outcome="Y")
    paths = {"M -> L": graphs()["M -> L"].unfair(direct=True), "more": more.unfair("A -> L -> Y")}
    with pytest.warns(PyrofairWarning, match="outside the graph"):
        found = audit_graphs({"m": of_m}, paths, df, random_state=0)
    assert list(found.failures) == ["more"]
    own = found.table[found.table["graph"] == "more"]
    assert own["low"].isna().all()
    assert own["note"].str.contains("no bounds: The column 'L' holds 400 different numbers").all()


def test_graphs_that_answer_other_questions_have_no_range() -> None:
    def paths(edges: str = EDGES, **roles: Any) -> Any:
        roles = {"sensitive": "A", "outcome": "Y"} | roles
        return next(iter(CausalGraph.expand(edges, **roles).values())).unfair(direct=True)

    def refuses(other: Any, what: str) -> None:
        with pytest.raises(DataError, match=f"The {what} of 'other' and of 'first' differ: .* apart"):
            audit_graphs({"m": MODEL}, {"first": paths(), "other": other}, table(100))

    refuses(paths("L -> {A M}; M - A; {A M L} -> Y", sensitive="L"), "sensitive attribute")
    refuses(paths(baseline=1, contrast=0), "baseline and contrast")
    refuses(paths().reversed(), "baseline and contrast")
    refuses(paths(positive=0), "positive outcome")
    refuses(paths("A -> {M L}; M - L; {A M L} -> Z", outcome="Z"), "outcome")
    for wrong in ({}, [], {"g": graphs()["M -> L"]}):
        with pytest.raises(DataError, match="candidates"):
            audit_graphs({"m": MODEL}, wrong, table(100))  # type: ignore[arg-type]
    same = {"first": paths(), "other": paths(baseline=1, contrast=0).reversed()}
    found = audit_graphs({"m": MODEL}, same, table(), n_boot=0, random_state=0)
    assert found.union["smallest"].equals(found.union["largest"])
