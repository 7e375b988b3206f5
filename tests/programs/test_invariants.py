"""Invariants of a source made of a program, whatever its worlds share; those of fitted sources are in test_laws."""

from __future__ import annotations

import pickle
import random
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
from sklearn.base import clone
from torch import Tensor

import pyrofair as pf
from pyrofair.effects.functionals import disagreement, effect_gap, piu_upper
from pyrofair.graph.paths import UnfairPaths

EDGES = "Q -> A; {Q A} -> D; {Q A D} -> M; W -> M; {Q A D M W} -> Y"
GRAPH = pf.CausalGraph(EDGES, sensitive="A", outcome="Y")
PATHS = ("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
UNFAIR = GRAPH.unfair(*PATHS)
ALL, NONE = GRAPH.unfair(lambda path: True), GRAPH.unfair()
N, DRAWS = 400, 50


def program(n: int, names: dict[str, str] | None = None, low: float = 0.0, high: float = 1.0) -> None:
    """Discrete nodes drawn without explicit noise, and one with explicit noise."""
    name = names or {}

    def draw(site: str, distribution: Any) -> Tensor:
        value: Tensor = pyro.sample(name.get(site, site), distribution)
        return value

    with pyro.plate("units", n):
        Q = draw("Q", dist.Categorical(torch.tensor([0.3, 0.4, 0.3])))
        W = draw("W", dist.Bernoulli(0.5))
        U = draw("U_A", dist.Uniform(0.0, 1.0))
        code = (torch.sigmoid(0.5 * Q - 0.6) > U).float()
        A = pyro.deterministic(name.get("A", "A"), low + (high - low) * code)
        a = (A - low) / (high - low)
        D = draw("D", dist.Bernoulli(torch.sigmoid(a + 0.5 * Q - 1.0)))
        M = draw("M", dist.Normal(0.5 * a + D - 0.3 * Q + W, 1.0))
        draw("Y", dist.Bernoulli(torch.sigmoid(a + D + M)))


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
def test_the_case_is_worth_its_name(name: str) -> None:
    baseline, switched = estimate(name)
    assert abs(switched - baseline) > 0.02


@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith("noise")])
def test_no_unfair_path_no_difference(name: str) -> None:
    """Unit by unit, not only on average."""
    one, other = SOURCES[name](NONE).worlds(N, 0)
    pd.testing.assert_frame_equal(one.rows, other.rows)


def test_no_unfair_path_shares_everything() -> None:
    one, other = shared(NONE).worlds(N, 0)
    pd.testing.assert_frame_equal(one.rows, other.rows)


@pytest.mark.parametrize("name", ["noise, monotone", "shared"])
def test_all_paths_give_the_total_effect(name: str) -> None:
    """That of do(A): the program run with A set, in code of its own."""
    total = []
    for value in (0.0, 1.0):
        pyro.set_rng_seed(1)
        nodes = pyro.poutine.trace(pyro.poutine.do(program, {"A": torch.tensor(value)})).get_trace(200_000).nodes
        rows = pd.DataFrame({site: nodes[site]["value"].numpy() for site in "QWDM"}).assign(A=value)
        total.append(score(rows).mean())
    assert estimate(name, ALL, n=200_000 if name != "shared" else 20_000) == pytest.approx(total, abs=0.006)


@sources
def test_reversed_roles_switch_the_complement(name: str) -> None:
    found, expected = (estimate(name, unfair, n=3000)[1] for unfair in (UNFAIR.reversed(), UNFAIR.complement()))
    assert found == pytest.approx(expected, abs=1e-6 if name == "noise, monotone" else 0.02)


@sources
def test_names_of_nodes(name: str) -> None:
    new = {"Q": "a qualification", "A": "gender", "D": "children", "M": "strength", "W": "w", "Y": "hired"}
    edges = [(new[cause], new[effect]) for cause, effect in GRAPH.edges]
    graph = pf.CausalGraph(edges, sensitive="gender", outcome="hired")
    renamed = SOURCES[name](graph.unfair(*(tuple(new[node] for node in path) for path in UNFAIR.paths)))
    renamed.set_params(program=lambda n: program(n, new))
    old = {after: before for before, after in new.items()}
    # A site's noise has a seed that its name is part of, so that other names mean other units from the same program.
    found = means(renamed.worlds(4000, 0), lambda rows: score(rows.rename(columns=old)))
    assert found == pytest.approx(estimate(name, n=4000), abs=0.02)


@sources
def test_labels_of_the_groups(name: str) -> None:
    graph = pf.CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=1, contrast=2)
    source = SOURCES[name](graph.unfair(*PATHS)).set_params(program=lambda n: program(n, low=1.0, high=2.0))
    worlds = source.worlds(N, 0)
    assert [set(world.rows["A"]) for world in worlds] == [{1}, {2}]
    found = means(worlds, lambda rows: score(rows.assign(A=rows["A"] - 1)))
    assert found == pytest.approx(estimate(name), abs=1e-6)


@sources
@pytest.mark.some(2)
def test_another_seed_changes_monte_carlo_error_only(name: str) -> None:
    found = np.array([estimate(name, seed=seed, n=1000) for seed in range(8)])
    assert (found.std(axis=0) > 0).all()
    worlds = SOURCES[name]().worlds(1000, 0)
    spread = [pd.Series(score(world.rows)).groupby(world.unit).mean().std() / np.sqrt(1000) for world in worlds]
    assert (found.std(axis=0) < 2.5 * np.array(spread)).all()
    assert (np.abs(found - found.mean(axis=0)) < 4.5 * np.array(spread)).all()


@sources
def test_same_seed_same_numbers_and_no_global_state_is_touched(name: str) -> None:
    pyro.get_param_store().clear()
    pyro.param("mine", torch.tensor(1.0))
    before = np.random.get_state(), torch.get_rng_state(), random.getstate()  # noqa: NPY002
    again = means(SOURCES[name]().worlds(N, 0))
    after = np.random.get_state(), torch.get_rng_state(), random.getstate()  # noqa: NPY002
    assert again == estimate(name)
    assert np.array_equal(before[0][1], after[0][1])
    assert torch.equal(before[1], after[1])
    assert before[2] == after[2]
    assert list(pyro.get_param_store().keys()) == ["mine"]
    pyro.get_param_store().clear()


@sources
def test_the_samples(name: str) -> None:
    source = SOURCES[name]()
    assert isinstance(source, pf.effects.PotentialOutcomes)
    worlds = source.worlds(N, 0)
    for world, value in zip(worlds, (0, 1), strict=True):
        assert list(world.rows.columns) == GRAPH.input_columns
        assert set(world.rows["A"]) == {value}
        assert world.weight.sum() == pytest.approx(1.0)
        assert world.units == N
        assert len(world.rows) == N * (DRAWS if name == "shared" else 1)
    one, other = worlds
    assert one.unit is not None
    assert np.array_equal(one.unit, np.asarray(other.unit))
    for column in ("Q", "W"):
        assert np.array_equal(one.rows[column], other.rows[column])


@sources
def test_gradients_flow(name: str) -> None:
    worlds = SOURCES[name]().worlds(N, 0)
    for functional in (disagreement, effect_gap, piu_upper):
        scores = [torch.tensor(score(world.rows), requires_grad=True) for world in worlds]
        functional(*(world.scored(leaf) for world, leaf in zip(worlds, scores, strict=True))).backward()
        assert all(leaf.grad is not None and bool((leaf.grad != 0).any()) for leaf in scores)


@sources
def test_copies(name: str) -> None:
    source = SOURCES[name]()
    assert means(clone(source).worlds(N, 0)) == estimate(name)
    assert means(pickle.loads(pickle.dumps(source)).worlds(N, 0)) == estimate(name)
    assert means(source.fit(pd.DataFrame({"A": [0, 1]})).worlds(N, 0)) == estimate(name)


class Scores:
    """A classifier that takes the sensitive attribute as 0 and 1."""

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        p = score(rows)
        return np.column_stack([1.0 - p, p])


@pytest.mark.filterwarnings("ignore:SEM is taken as it is")
def test_an_audit_reports_its_assumptions() -> None:
    with pyro.poutine.block():
        sites = pyro.poutine.trace(program).get_trace(300).nodes
    df = pd.DataFrame({site: sites[site]["value"].numpy() for site in "QWADMY"})
    settings: dict[str, Any] = {"n_boot": 40, "n_jobs": 1, "progress": False, "random_state": 0}
    text = str(pf.audit({"m": Scores()}, noise(coupling="antithetic"), df, **settings))
    assert "a point under what is listed below" in text
    assert "1. The program is right" in text
    assert "The noise of D, M is coupled across worlds by the antithetic coupling" in text
    report = pf.audit({"m": Scores()}, shared(), df, **settings)
    assert "Both worlds of a unit share Q, W, and all else is drawn anew in each" in str(report)
    rows = report.table.set_index(["decisions", "quantity"])
    low, high, double = (
        rows.loc[("threshold", name)] for name in ("piu_lower", "piu_upper", "piu_double_disagreement")
    )
    assert low["lower"] <= low["estimate"] <= high["estimate"] <= high["upper"]
    assert high["estimate"] <= double["estimate"]
    noisy = pf.SEM(program, UNFAIR, coupling="monotone").truth(Scores(), n=50_000, random_state=0).piu.value
    assert low["lower"] <= noisy <= high["upper"]
