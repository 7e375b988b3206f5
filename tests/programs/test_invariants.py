"""Sources made of a program beyond the laws of all sources (test_laws): exact noise, simulation error, an audit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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
from pyrofair.graph.paths import UnfairPaths
from tests.programs.models import Scores

EDGES = "Q -> A; {Q A} -> D; {Q A D} -> M; W -> M; {Q A D M W} -> Y"
GRAPH = pf.CausalGraph(EDGES, sensitive="A", outcome="Y")
PATHS = ("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
UNFAIR = GRAPH.unfair(*PATHS)
NONE = GRAPH.unfair()
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


def noise(unfair: UnfairPaths = UNFAIR, **settings: Any) -> pf.SEM:
    return pf.SEM(program, unfair, **settings)


def shared(unfair: UnfairPaths = UNFAIR, **settings: Any) -> pf.SEM:
    return pf.SEM(program, unfair, unit="shared", draws=DRAWS, **settings)


SOURCES: dict[str, Callable[..., pf.SEM]] = {
    "noise, monotone": noise,
    "noise, independent": lambda unfair=UNFAIR: noise(unfair, coupling="independent"),
    "noise, antithetic": lambda unfair=UNFAIR: noise(unfair, coupling="antithetic"),
    "shared": shared,
}
sources = pytest.mark.parametrize("name", SOURCES)


def score(rows: pd.DataFrame) -> NDArray[np.float64]:
    linear = rows["A"] + 0.4 * rows["Q"] - 0.7 * rows["D"] + rows["M"] * rows["W"] - rows["A"] * rows["D"]
    return expit(linear.to_numpy(float) - 1)


def means(worlds: Any, scored: Callable[[pd.DataFrame], NDArray[np.float64]] = score) -> tuple[float, float]:
    first, second = (float(world.weight @ scored(world.rows)) for world in worlds)
    return first, second


@cache
def estimate(name: str, unfair: UnfairPaths = UNFAIR, seed: int = 0, n: int = N) -> tuple[float, float]:
    return means(SOURCES[name](unfair).worlds(n, seed))


@sources
def test_no_unfair_path_no_difference(name: str) -> None:
    """Unit by unit, not only on average."""
    one, other = SOURCES[name](NONE).worlds(N, 0)
    pd.testing.assert_frame_equal(one.rows, other.rows)


def test_reversed_roles_switch_the_complement_by_the_same_noise() -> None:
    found, expected = (
        estimate("noise, monotone", each, n=3000)[1] for each in (UNFAIR.reversed(), UNFAIR.complement())
    )
    assert found == pytest.approx(expected, abs=1e-6)


@sources
def test_both_worlds_have_the_same_units(name: str) -> None:
    one, other = SOURCES[name]().worlds(N, 0)
    assert one.units == N
    assert len(one.rows) == N * (DRAWS if name == "shared" else 1)
    assert one.unit is not None
    assert np.array_equal(one.unit, np.asarray(other.unit))
    for column in ("Q", "W"):
        assert np.array_equal(one.rows[column], other.rows[column])


@sources
@pytest.mark.some(2)
def test_another_seed_changes_monte_carlo_error_only(name: str) -> None:
    found = np.array([estimate(name, seed=seed, n=1000) for seed in range(8)])
    assert (found.std(axis=0) > 0).all()
    worlds = SOURCES[name]().worlds(1000, 0)
    spread = [pd.Series(score(world.rows)).groupby(world.unit).mean().std() / np.sqrt(1000) for world in worlds]
    assert (found.std(axis=0) < 2.5 * np.array(spread)).all()
    assert (np.abs(found - found.mean(axis=0)) < 4.5 * np.array(spread)).all()


@pytest.mark.filterwarnings("ignore:SEM is taken as it is")
def test_an_audit_reports_its_assumptions() -> None:
    with pyro.poutine.block():
        sites = pyro.poutine.trace(program).get_trace(300).nodes
    df = pd.DataFrame({site: sites[site]["value"].numpy() for site in "QWADMY"})
    settings: dict[str, Any] = {"n_boot": 40, "n_jobs": 1, "progress": False, "random_state": 0}
    text = str(pf.audit({"m": Scores(score)}, noise(coupling="antithetic"), df, **settings))
    assert "The program is right" in text
    assert "D, M is coupled across worlds by the antithetic coupling" in text
    report = pf.audit({"m": Scores(score)}, shared(), df, **settings)
    assert "share Q, W" in str(report)
    rows = report.table.set_index(["decisions", "quantity"])
    low, high, double = (
        rows.loc[("threshold", name)] for name in ("piu_lower", "piu_upper", "piu_double_disagreement")
    )
    assert low["lower"] <= low["estimate"] <= high["estimate"] <= high["upper"]
    assert high["estimate"] <= double["estimate"]
    noisy = pf.SEM(program, UNFAIR, coupling="monotone").truth(Scores(score), n=50_000, random_state=0).piu.value
    assert low["lower"] <= noisy <= high["upper"]
