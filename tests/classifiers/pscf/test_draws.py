"""Whose draw decides: a unit's own, that of equal rows, and what is said where few rows differ."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.distributions import constraints

import pyrofair as pf
from pyrofair import PyrofairWarning
from pyrofair._random import labelled_keys, row_keys
from pyrofair.classifiers.pscf.diagnostics import describe_latents, latent_table
from pyrofair.inference.amortised import mean_discrepancy

GRAPH = pf.CausalGraph("A -> D; {A D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")
pytestmark = pytest.mark.filterwarnings("ignore:The loss may not have settled", "ignore:The latent variables")


def coarse(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        D = pyro.sample("D", dist.Bernoulli(0.3 + 0.4 * A))
        pyro.sample("Y", dist.Bernoulli(0.25 + 0.5 * D))


def draw(n: int) -> tuple[pd.DataFrame, pd.Series[Any]]:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    d = rng.binomial(1, 0.3 + 0.4 * a)
    return pd.DataFrame({"A": a, "D": d}), pd.Series(rng.binomial(1, 0.25 + 0.5 * d), name="Y")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_decisions_of_units_have_no_unfair_effect_where_few_rows_differ(seed: int) -> None:
    """Half of the contrast's rows with D = 1 would have D = 0; each unit has a draw of its own."""
    X, y = draw(8_000)
    model = pf.PSCF(UNFAIR, model=coarse, random_state=seed, progress=False).fit(X, y)
    told = model.predict(X)
    rates = [told[X["A"] == group].mean() for group in (0, 1)]
    assert rates[0] == pytest.approx(0.3, abs=0.02)
    assert rates[1] == pytest.approx(0.3, abs=0.02)
    np.testing.assert_array_equal(model.predict(X.iloc[::-1])[::-1], told)
    np.testing.assert_array_equal(model.predict(X.iloc[100:140]), told[100:140])
    mean = model.set_params(decisions="mean").predict(X)
    assert mean[X["A"] == 1].mean() < 0.01 or mean[X["A"] == 1].mean() > 0.5  # one decision for equal rows


def test_a_draw_that_equal_rows_share_is_named_where_few_differ() -> None:
    X, y = draw(1_000)
    model = pf.PSCF(UNFAIR, model=coarse, random_state=0, progress=False).fit(X, y)
    one = model.one_draw()
    with pytest.warns(
        PyrofairWarning, match=r"Equal rows share one draw, and the \d+ rows .* are worth 2 different ones"
    ):
        found = one.predict_proba(X)[:, 1]
    assert len(np.unique(found[(X["A"] == 1) & (X["D"] == 1)])) == 1
    model.predict_proba(X)  # a mean depends on no single draw


def test_keys_of_labels() -> None:
    keys = row_keys([torch.zeros(6)], 6)
    labels = pd.Index([3, 1, 3, "a", "b", 1.5])
    found = labelled_keys(keys, labels)
    assert found[0] == found[2]
    assert len(np.unique(found)) == 5
    assert len(np.unique(labelled_keys(row_keys([torch.arange(6.0)], 6), pd.Index([7] * 6)))) == 6


def test_rows_that_differ_along_unfair_paths_have_noise_of_their_own() -> None:
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"A": 1, "D": rng.normal(size=400)})
    own = pd.DataFrame({"A": rng.integers(0, 2, 400), "D": rng.normal(size=400)})
    y = (own["D"] + rng.normal(size=400) > 0).astype(int)
    model = pf.PSCF(UNFAIR, own_noise=0.5, epochs=5, random_state=0, progress=False).fit(own, y)
    latent = model._replayed(X, model.plan_, 1).latents["H_D"][0, :, 0].numpy()
    with torch.no_grad():
        loc, scale = model.guide_.posterior("H_D", model._encode(X))
    noise = (latent - loc[:, 0].numpy()) / scale[:, 0].numpy()
    assert noise.std() == pytest.approx(1.0, abs=0.15)


def test_inference_data_has_the_posterior_of_rows_with_the_baseline() -> None:
    rng = np.random.default_rng(2)
    X = pd.DataFrame({"A": rng.integers(0, 2, 300), "D": rng.normal(size=300)})
    y = (X["D"] + rng.normal(size=300) > 0).astype(int)
    model = pf.PSCF(UNFAIR, own_noise=0.5, epochs=20, random_state=0, progress=False).fit(X, y)
    for latents in ("abducted", "posterior", "prior"):
        data = model.set_params(latents=latents).to_inference_data(X.iloc[:40], draws=60)["posterior"]
        spread = np.asarray(data["H_D"])[0, :, :, 0].std(0)
        assert spread.min() > 0.5 * spread.max()
        if latents == "abducted":
            fair = np.asarray(data["fair_D"])[0]
            baseline = (X["A"].iloc[:40] == 0).to_numpy()
            np.testing.assert_allclose(fair[:, baseline], np.tile(X["D"].iloc[:40][baseline], (60, 1)), rtol=1e-6)


def stored(n: int) -> None:
    b = pyro.param("b", torch.tensor(0.0))
    s = pyro.param("s", torch.tensor(2.0), constraint=constraints.positive)
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        D = pyro.sample("D", dist.Normal(b * A, s))
        pyro.sample("Y", dist.Bernoulli(logits=D))


def test_fitted_numbers_are_shown_and_pickled_after_predictions() -> None:
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"A": rng.integers(0, 2, 2_000)})
    X["D"] = 1.5 * X["A"] + 0.7 * rng.normal(size=2_000)
    y = pd.Series(rng.binomial(1, 1 / (1 + np.exp(-X["D"]))))
    model = pf.PSCF(UNFAIR, model=stored, epochs=100, random_state=0, progress=False).fit(X, y)
    assert float(model.parameters_["b"]) == pytest.approx(1.5, abs=0.1)
    assert float(model.parameters_["s"]) == pytest.approx(0.7, abs=0.05)
    before = model.predict_proba(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), before)


def test_values_that_recur_are_redrawn_as_often_as_under_the_baseline() -> None:
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"A": rng.integers(0, 2, 1500)})
    pay = np.exp(rng.normal(3.0, 1.0, 1500))
    X["D"] = np.minimum(np.where(rng.random(1500) < np.where(X["A"] == 1, 0.2, 0.6), 0.0, pay), 49.99)
    y = pd.Series(rng.integers(0, 2, 1500))
    model = pf.PSCF(UNFAIR, epochs=60, hidden=16, random_state=0, progress=False).fit(X, y)
    fair, switched = model.fair_values(X)["D"], X["A"] == 1
    np.testing.assert_allclose(fair[:, ~switched], np.tile(X["D"][~switched], (len(fair), 1)), rtol=1e-6)
    for atom in (0.0, float(np.float32(49.99))):
        share = (np.float32(X["D"][~switched]) == np.float32(atom)).mean()
        assert (fair[:, switched] == atom).mean() == pytest.approx(share, abs=0.05)
    assert fair.min() == 0.0
    assert fair.max() == pytest.approx(49.99)


def read_twice(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        H = pyro.sample("H", dist.Normal(0.0, 1.0))
        D = pyro.sample("D", dist.Normal(A + 2.0 * H, 1.0))
        pyro.sample("Y", dist.Bernoulli(logits=0.1 * D + 0.1 * H))


def test_the_share_explained_is_that_of_columns_not_of_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []

    def recorded(program: Any, problem: Any, seed: int) -> pd.DataFrame:
        seen.append((program, problem))
        return latent_table(program, problem, seed)

    monkeypatch.setattr("pyrofair.classifiers.pscf.classifier.latent_table", recorded)
    rng = np.random.default_rng(5)
    X = pd.DataFrame({"A": rng.integers(0, 2, 1_000)})
    X["D"] = X["A"] + np.sqrt(5) * rng.normal(size=1_000)
    y = pd.Series(rng.integers(0, 2, 1_000))
    graph = pf.CausalGraph("A -> D; {A D H} -> Y; H -> D", sensitive="A", outcome="Y", latent=["H"])
    model = pf.PSCF(graph.unfair("A -> D -> Y"), model=read_twice, epochs=100, random_state=0, progress=False).fit(X, y)
    row = model.latents_.iloc[0]
    assert row["explained"] == pytest.approx(0.8, abs=0.03)
    assert row["kl"] == pytest.approx(0.5 * np.log(5.0), abs=0.08)
    assert row["auc"] == pytest.approx(0.5, abs=0.06)
    ((program, problem),) = seen
    few = latent_table(program, replace(problem, weight=(problem.group == 0).float() + 0.01), 0)
    assert few["kl"].item() != row["kl"]  # a mean by weights


def test_small_groups_are_not_told_apart_by_chance() -> None:
    table = pd.DataFrame({"latent": ["H"], "reads": ["D"], "kl": [1.0], "auc": [0.65], "explained": [0.5]})
    assert describe_latents(table, np.repeat([0, 1], [2_990, 10])) == ""
    assert "tell the two groups apart" in describe_latents(table, np.repeat([0, 1], [1_500, 1_500]))


def test_the_discrepancy_in_the_objective_goes_by_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    X = pd.DataFrame({"A": rng.integers(0, 2, 200)})
    X["D"] = X["A"] + rng.normal(size=200)
    y, weight = pd.Series(rng.integers(0, 2, 200)), rng.uniform(0.1, 2, 200)
    model = pf.PSCF(UNFAIR, own_noise=0.5, epochs=2, random_state=0, progress=False)
    found: list[torch.Tensor] = []

    def recorded(points: torch.Tensor, group: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
        assert len(points) == len(group) == len(mass)
        found.append(mass.detach())
        return mean_discrepancy(points, group, mass)

    monkeypatch.setattr("pyrofair.inference.amortised.mean_discrepancy", recorded)
    model.set_params(mmd=1.0, batch_size=200).fit(X, y, weight)
    whole = next(mass for mass in found if len(mass) == 200)  # the model is first tried on a few rows
    seen, given = whole.sort()[0].double().numpy(), np.sort(weight)
    np.testing.assert_allclose(seen / seen.sum(), given / given.sum(), rtol=1e-5)
