"""Audits over candidate graphs: each as by itself, the range over all, and graphs without an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair.audits import GraphsAudit, audit, audit_graphs
from pyrofair.exceptions import DataError, NotIdentifiedError
from pyrofair.graph.causal_graph import CausalGraph

EDGES = "A -> {M L}; M - L; {A M L} -> Y"


class Model:
    def predict_proba(self, X: pd.DataFrame) -> Any:
        p = 0.1 + 0.2 * X["A"] + 0.3 * X["M"] + 0.3 * X["L"]
        return np.column_stack([1 - p, p])


def table(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    A = rng.integers(2, size=n)
    M = (rng.random(n) < 0.3 + 0.4 * A).astype(int)
    L = (rng.random(n) < 0.2 + 0.3 * A + 0.3 * M).astype(int)
    return pd.DataFrame({"A": A, "M": M, "L": L, "Y": rng.integers(2, size=n)})


def graphs() -> dict[str, CausalGraph]:
    return CausalGraph.expand(EDGES, sensitive="A", outcome="Y")


def test_each_graph_is_audited_as_by_itself_and_the_union_is_over_all() -> None:
    paths = {name: graph.unfair("A -> M -> Y", "A -> L -> Y", through=["M"]) for name, graph in graphs().items()}
    paths["all"] = graphs()["M -> L"].unfair(direct=True, through=["M", "L"])
    paths = {name: paths[name] for name in ("M -> L", "all")}
    df = table()
    with pytest.raises(NotIdentifiedError, match="'L' is a recanting witness"):
        audit_graphs({"m": Model()}, {"L -> M": graphs()["L -> M"].unfair(through=["M"])}, df, random_state=0)
    found = audit_graphs({"m": Model()}, paths, df, random_state=0)
    assert isinstance(found, GraphsAudit)
    assert found.failures == {}
    for name, unfair in paths.items():
        alone = audit({"m": Model()}, unfair, df, random_state=0).table
        own = found.table[found.table["graph"] == name].drop(columns="graph").reset_index(drop=True)
        kept = alone[alone["quantity"].isin(own["quantity"])].reset_index(drop=True)
        pd.testing.assert_frame_equal(own, kept[own.columns])
    union = found.union.set_index(["decisions", "quantity"]).loc[("score", "mean_unfair_effect")]
    rows = found.table.query("decisions == 'score' and quantity == 'mean_unfair_effect'")
    assert union["smallest"] == rows["estimate"].min()
    assert union["largest"] == rows["estimate"].max()
    assert (union["lower"], union["upper"]) == (rows["lower"].min(), rows["upper"].max())
    assert union["largest_in"] == rows["graph"].iloc[int(rows["estimate"].to_numpy().argmax())]
    assert "2 candidate graphs, 0 without an answer." in str(found)
    assert repr(found) == "<Audit in 2 graphs; print it for a reading>"
    assert "Over all candidate graphs" in found._repr_html_()


def test_a_graph_without_an_answer_leaves_no_range() -> None:
    paths = {name: graph.unfair(through=["M"]) for name, graph in graphs().items()}
    found = audit_graphs({"m": Model()}, paths, table(), random_state=0)
    assert list(found.failures) == ["L -> M"]
    assert isinstance(found.failures["L -> M"], NotIdentifiedError)
    assert found.failures["L -> M"].way_out.relabellings
    own = found.table[found.table["graph"] == "L -> M"]
    assert own["estimate"].isna().all()
    assert own["note"].str.startswith("Not identified: 'L' is a recanting witness").all()
    assert found.union["smallest"].isna().all()
    assert found.union["lower"].isna().all()
    assert (found.union["without"] == 1).all()
    assert "  L -> M: Not identified" in str(found)


def test_what_is_refused() -> None:
    df = table(100)
    for wrong in ({}, [], {"g": graphs()["M -> L"]}):
        with pytest.raises(DataError, match="candidates"):
            audit_graphs({"m": Model()}, wrong, df)  # type: ignore[arg-type]
