"""Flips of given units along unfair paths, against values known by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest

import pyrofair as pf

GRAPH = pf.CausalGraph("A -> {M D}; {A M D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")


def program(n: int) -> None:
    with pyro.plate("units", n):
        a = pyro.sample("A", dist.Bernoulli(0.5))
        pyro.deterministic("M", 2.0 * a + pyro.sample("U", dist.Normal(0.0, 1.0)))
        pyro.deterministic("D", a + pyro.sample("V", dist.Normal(0.0, 1.0)))


class Model:
    """A score above 1/2 where 0.5 A + M + D is above 0."""

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        z = (0.5 * X["A"] + X["M"] + X["D"]).to_numpy(dtype=float)
        p = 1.0 / (1.0 + np.exp(-z))
        return np.column_stack([1.0 - p, p])


# Worlds of A=0 noise: baseline M = u, D = v; unfair M = u + 2 and A = 1 for the direct path; D stays v.
ROWS = pd.DataFrame({"A": [0, 0, 1, 1], "M": [-1.1, -0.3, 0.5, 3.0], "D": [0.0, 0.0, 1.0, 1.0]}, index=list("abcd"))


def found(unfair: pf.UnfairPaths = UNFAIR, **settings: Any) -> pd.DataFrame:
    table = pf.audits.flips({"one": Model(), "two": Model()}, pf.SEM(program, unfair), ROWS, **settings)
    assert table["model"].tolist() == sorted(table["model"])
    return table[table["model"] == "one"].pivot_table(index="row", columns="path", values="flips")


def test_flips_along_each_path() -> None:
    table = found()
    # sums at the baseline: a -1.1, b -0.3, c -1.5, d 1; the direct path adds 0.5, the path through M adds 2
    assert table["A -> Y"].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert table["A -> M -> Y"].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert table["all unfair paths"].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_swapped_roles_and_thresholds() -> None:
    table = found(UNFAIR.reversed())
    # sums with A=1 everywhere: a 2.4, b 3.2, c 2, d 4.5 (D one higher); all unfair paths take 2.5 away
    assert table["all unfair paths"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert found(threshold=0.99)["all unfair paths"].tolist() == [0.0] * 4


def test_one_path_is_not_repeated() -> None:
    assert found(GRAPH.unfair("A -> Y")).columns.tolist() == ["all unfair paths"]


def test_they_are_shown_on_the_page() -> None:
    table = pf.audits.flips({"one": Model()}, pf.SEM(program, UNFAIR), ROWS)
    df = pd.DataFrame({"A": [0, 1] * 100, "M": [0.0, 1.0, 1.0, 2.0] * 50, "D": [0.0] * 200})
    source = pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0)
    page = pf.audit({"one": Model()}, source, df, random_state=0).to_html(individuals=table)
    assert "Which decisions flip, and along which path" in page
    assert 'download="individuals.csv"' in page


def test_what_has_no_flips() -> None:
    with pytest.raises(pf.DataError, match="has no counterfactuals of given units"):
        pf.audits.flips({"one": Model()}, pf.IPW(UNFAIR), ROWS)  # type: ignore[arg-type]
    with pytest.raises(pf.DataError, match=r"models=.* must give models by name"):
        pf.audits.flips(Model(), pf.SEM(program, UNFAIR), ROWS)  # type: ignore[arg-type]
    nodes = [f"M{i}" for i in range(21)]
    many = pf.CausalGraph([*(("A", n) for n in nodes), *((n, "Y") for n in nodes)], sensitive="A", outcome="Y")
    with pytest.raises(pf.DataError, match="There are 21 unfair paths, more than 20"):
        pf.audits.flips({"one": Model()}, pf.SEM(program, many.unfair(through=nodes)), ROWS)
