"""The paper's structural equation models: the equations, the best accuracies, overlap, and what is refused."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from scenario_facts import facts
from scipy import stats

from pyrofair import SEM, DataError
from pyrofair.simulate import scenario

NAMES = ("hiring", "additive", "latent")


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def cut_normal(rng: np.random.Generator, n: int, loc: float, scale: float) -> np.ndarray:
    """Draw a normal variable and draw again what falls outside [.1, 3], which is the definition of truncation."""
    x = rng.normal(loc, scale, n)
    while (outside := (x < 0.1) | (x > 3.0)).any():
        x[outside] = rng.normal(loc, scale, outside.sum())
    return x


def by_hand(name: str, n: int, seed: int) -> pd.DataFrame:
    """Write the paper's equations in NumPy."""
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.6).astype(float)
    if name == "latent":
        h = rng.normal(1, 0.5, n)
        r = 3 * a + np.floor(10 * h) + np.floor(rng.normal(1, 0.5, n))
        m = a + r + np.floor(rng.normal(1, 0.5, n))
        p = sigmoid(-10 + 5 * a + r + m + 10 * h)
        return pd.DataFrame({"A": a, "R": r, "M": m, "p": p})
    q = np.floor(rng.normal(2 if name == "hiring" else 2.5, 5, n))
    if name == "hiring":
        d = a + np.floor(0.5 * q * cut_normal(rng, n, 2, 1))
        m = 3 * a + 0.4 * q * cut_normal(rng, n, 3, 2)
    else:
        d = a + np.floor(0.1 * q) + np.floor(rng.normal(1, 0.5, n))
        m = 3 * a + np.floor(0.4 * q) + np.floor(rng.normal(1, 0.5, n))
    return pd.DataFrame({"A": a, "Q": q, "D": d, "M": m, "p": sigmoid(-10 + 5 * a + q + d + m)})


@pytest.mark.parametrize("name", NAMES)
def test_draws_follow_the_papers_equations(name: str) -> None:
    ours, theirs = scenario(name).draw(40_000, random_state=3), by_hand(name, 40_000, 4)
    assert list(ours) == [*theirs.columns[:-1], "Y"]
    for a in (0, 1):
        one, other = ours[ours["A"] == a], theirs[theirs["A"] == a]
        for column in theirs.columns[1:-1]:
            assert stats.ks_2samp(one[column], other[column]).pvalue > 1e-3, (a, column)
        assert one["Y"].mean() == pytest.approx(other["p"].mean(), abs=0.012)
        inputs = list(theirs.columns[1:-1])
        np.testing.assert_allclose(one[inputs].corr(), other[inputs].corr(), atol=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_a_draw_is_a_table_of_units_that_a_seed_decides_and_global_state_stays(name: str) -> None:
    found = scenario(name)
    df = found.draw(500, random_state=1)
    assert tuple(df) == found.graph.observed
    assert (len(df), df["A"].dtype, df["Y"].dtype) == (500, np.int64, np.int64)
    assert set(df["A"]) == set(df["Y"]) == {0, 1}
    assert "H" not in df
    other = scenario(name, p_a=0.5, truncation="truncate")
    again = pickle.loads(pickle.dumps(other))
    pd.testing.assert_frame_equal(again.draw(50, random_state=0), other.draw(50, random_state=0))
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    names = sorted(pyro.get_param_store())
    one, again, other = (found.draw(100, random_state=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(other)
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])
    assert sorted(pyro.get_param_store()) == names


@pytest.mark.parametrize("name", NAMES)
def test_graph_and_program_agree(name: str) -> None:
    found = scenario(name)
    equations = SEM(found.program, found.unfair).equations()
    edges = {(cause, site) for site, causes in equations.causes.items() for cause in causes}
    assert edges == set(found.graph.edges)


def test_the_graphs_are_the_papers() -> None:
    assert scenario("hiring").unfair.paths == (("A", "D", "Y"), ("A", "Y"))
    assert scenario("hiring").unfair.fair_paths == (("A", "M", "Y"),)
    assert scenario("additive").graph.edges == scenario("hiring").graph.edges
    found = scenario("latent")
    assert found.graph.latent == ("H",)
    assert found.graph.children("H") == ("R", "Y")
    assert found.unfair.paths == (("A", "Y"),)


# -- parameters -------------------------------------------------------------------------------------------------------


def test_parameters_are_arguments() -> None:
    df = scenario("hiring", p_a=0.9, m_a=30.0, u_q=(0.5, 0.01)).draw(2000, random_state=0)
    assert df["A"].mean() == pytest.approx(0.9, abs=0.03)
    assert (df["Q"] == 0).all()
    assert (df["M"] == 30.0 * df["A"]).all()


def test_floor_and_truncation_differ_below_zero() -> None:
    floor, cut = (scenario("hiring", truncation=name).draw(2000, random_state=0) for name in ("floor", "truncate"))
    assert (cut["Q"] - floor["Q"]).isin([0, 1]).all()
    up = floor["Q"] >= 0
    assert (cut["Q"] == floor["Q"])[up].all()
    assert (cut["Q"] == floor["Q"] + 1)[~up].all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: scenario("hirings"),
            r"name='hirings' is not known; it is 'hiring', 'additive' or 'latent'. Did you mean 'hiring'",
        ),
        (lambda: scenario("latent", u_q=(0, 1)), r"'latent' has no parameter 'u_q'; it has p_a, h, u_r"),
        (lambda: scenario("hiring", n=3), r"'hiring' has no parameter 'n'"),
        (
            lambda: scenario("hiring", truncation="round"),
            r"truncation='round' is not known; it is 'floor' or 'truncate'",
        ),
        (lambda: scenario("hiring").draw(0), r"n=0 must be an integer from 1"),
        (lambda: scenario("hiring").draw(2.5), r"n=2.5 must be an integer from 1"),  # type: ignore[arg-type]
    ],
)
def test_what_is_unknown_is_refused(call: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        call()


# -- best accuracies and overlap --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "majority", "bayes"), [("hiring", 0.533, 0.958), ("additive", 0.555, 0.937), ("latent", 0.954, 0.991)]
)
def test_the_best_accuracies(name: str, majority: float, bayes: float) -> None:
    most, best, _ = facts(scenario(name), n=100_000)
    assert most.value == pytest.approx(majority, abs=0.004)
    assert best.value == pytest.approx(bayes, abs=0.002)
    p = by_hand(name, 100_000, 5)["p"]
    assert most.value == pytest.approx(max(p.mean(), 1 - p.mean()), abs=0.008)
    if name != "latent":  # there p depends on H, which no classifier reads
        assert best.value == pytest.approx(np.maximum(p, 1 - p).mean(), abs=0.002)
    else:
        assert best.value < np.maximum(p, 1 - p).mean()


def test_overlap_in_the_hiring_scenario() -> None:
    """For |Q| <= 2 the groups share no value of M; D(1) exceeds the largest D(0) in a quarter of units."""
    units = scenario("hiring").draw(200_000, random_state=0)
    near = units[units["Q"].abs() <= 2]
    for _, same in near.groupby("Q"):
        assert same.loc[same["A"] == 0, "M"].max() < same.loc[same["A"] == 1, "M"].min()
    _, _, overlap = facts(scenario("hiring"))
    share = stats.norm.cdf(3, 2, 5) - stats.norm.cdf(-2, 2, 5)
    assert overlap["disjoint"]["M", 0].value == pytest.approx(share, abs=0.004)
    largest = units[units["A"] == 0].groupby("Q")["D"].max()
    switched = units["D"] - units["A"] + 1
    beyond = (switched > units["Q"].map(largest))[units["Q"].between(-10, 14)]
    assert overlap["unsupported"]["D", 1].value == pytest.approx(beyond.mean(), abs=0.005)
