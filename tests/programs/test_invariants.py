"""Sources made of a program beyond the laws of all sources (test_laws): the units of both worlds, an audit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from tests.programs.models import Scores

EDGES = "Q -> A; {Q A} -> D; {Q A D} -> M; W -> M; {Q A D M W} -> Y"
UNFAIR = pf.CausalGraph(EDGES, sensitive="A", outcome="Y").unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
N, DRAWS = 400, 50


def program(n: int) -> None:
    """Discrete nodes drawn without explicit noise, and one with explicit noise."""
    with pyro.plate("units", n):
        Q = pyro.sample("Q", dist.Categorical(torch.tensor([0.3, 0.4, 0.3])))
        W = pyro.sample("W", dist.Bernoulli(0.5))
        U = pyro.sample("U_A", dist.Uniform(0.0, 1.0))
        A = pyro.deterministic("A", (torch.sigmoid(0.5 * Q - 0.6) > U).float())
        D = pyro.sample("D", dist.Bernoulli(torch.sigmoid(A + 0.5 * Q - 1.0)))
        M = pyro.sample("M", dist.Normal(0.5 * A + D - 0.3 * Q + W, 1.0))
        pyro.sample("Y", dist.Bernoulli(torch.sigmoid(A + D + M)))


SOURCES: dict[str, pf.SEM] = {
    **{name: pf.SEM(program, UNFAIR, coupling=name) for name in ("monotone", "independent", "antithetic")},
    "shared": pf.SEM(program, UNFAIR, unit="shared", draws=DRAWS),
}


def score(rows: pd.DataFrame) -> NDArray[np.float64]:
    linear = rows["A"] + 0.4 * rows["Q"] - 0.7 * rows["D"] + rows["M"] * rows["W"] - rows["A"] * rows["D"]
    return expit(linear.to_numpy(float) - 1)


@pytest.mark.parametrize("name", SOURCES)
def test_both_worlds_have_the_same_units(name: str) -> None:
    one, other = SOURCES[name].worlds(N, 0)
    assert one.units == N
    assert len(one.rows) == N * (DRAWS if name == "shared" else 1)
    assert one.unit is not None
    assert np.array_equal(one.unit, np.asarray(other.unit))
    for column in ("Q", "W"):
        assert np.array_equal(one.rows[column], other.rows[column])


@pytest.mark.filterwarnings("ignore:SEM is taken as it is")
def test_an_audit_reports_its_assumptions() -> None:
    with pyro.poutine.block():
        sites = pyro.poutine.trace(program).get_trace(300).nodes
    df = pd.DataFrame({site: sites[site]["value"].numpy() for site in "QWADMY"})
    settings: dict[str, Any] = {"n_boot": 40, "n_jobs": 1, "progress": False, "random_state": 0}
    text = pf.audit({"m": Scores(score)}, SOURCES["antithetic"], df, **settings).details()
    assert "The program is right" in text
    assert "D, M is coupled across worlds by the antithetic coupling" in text
    report = pf.audit({"m": Scores(score)}, SOURCES["shared"], df, **settings)
    assert "share Q, W" in report.details()
    rows = report.table.set_index(["decisions", "quantity"])
    low, high, double = (
        rows.loc[("threshold", name)] for name in ("piu_lower", "piu_upper", "piu_double_disagreement")
    )
    assert low["lower"] <= low["estimate"] <= high["estimate"] <= high["upper"]
    assert high["estimate"] <= double["estimate"]
    noisy = SOURCES["monotone"].truth(Scores(score), n=50_000, random_state=0).piu.value
    assert low["lower"] <= noisy <= high["upper"]
