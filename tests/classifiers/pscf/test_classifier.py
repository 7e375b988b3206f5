"""PSCF, the classifier: fitting, predicting, and what is refused."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import pyrofair as pf
from pyrofair import PSCF, CausalGraph, DataError, PyrofairWarning
from pyrofair.inference.amortised import mean_discrepancy
from pyrofair.mechanisms.families import Categorical, choose_family
from tests.classifiers.pscf.models import QUIET, clone_of, outcome_distribution

pytestmark = QUIET

HIRING = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = HIRING.unfair("A -> Y", "A -> D -> Y")
MODES = ("abducted", "posterior", "prior")


@functools.cache
def draw(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series[int]]:
    rng = np.random.default_rng(seed)
    a, q = rng.integers(0, 2, n), rng.normal(size=n)
    d, m = a + q + rng.normal(size=n), a - 0.5 * q + rng.normal(size=n)
    y = rng.binomial(1, 1 / (1 + np.exp(-2 * (a + q + d + m - 1.5))))
    return pd.DataFrame({"A": a, "Q": q, "D": d, "M": m}), pd.Series(y, name="Y")


def make_data(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[int]]:
    X, y = draw(n, seed)
    return X.copy(), y.copy()


def make(unfair: Any = UNFAIR, **settings: Any) -> PSCF:
    usual = {"epochs": 4, "batch_size": 100, "hidden": 20, "random_state": 0, "progress": False}
    return PSCF(unfair, **{**usual, **settings})


@functools.cache
def fitted(**settings: Any) -> PSCF:
    return make(**settings).fit(*make_data())


# -- fitting ----------------------------------------------------------------------------------------------------------


def test_discrepancy_pulls_the_groups_together() -> None:
    X, y = make_data()
    apart = []
    for mmd in (0.0, 20.0):
        model = make(mmd=mmd, epochs=30, own_noise=0.3).fit(X, y)
        with torch.no_grad():
            loc, _ = model.guide_.posterior("H_D", model._encode(X))
        apart.append(float(mean_discrepancy(loc, torch.tensor(X["A"].to_numpy()))))
    assert apart[1] < apart[0]


@pytest.mark.parametrize("latents", MODES)
def test_where_nothing_is_redrawn_it_is_the_distribution_of_the_outcome(latents: Any) -> None:
    X, y = make_data()
    model = make(HIRING.unfair("A -> Y"), latents=latents).fit(X, y)
    expected = outcome_distribution(model, X.assign(A=0))
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), expected > 0.5)
    assert model.fair_values(X) == {}


def test_fair_paths_keep_a_units_own_value() -> None:
    X, y = make_data()
    model = fitted(latents="prior")
    assert model.reads_ == ["Q", "M"]
    other = model.predict_proba(X.assign(A=1 - X["A"], D=0.0))
    np.testing.assert_array_equal(model.predict_proba(X), other)
    assert not np.array_equal(model.predict_proba(X), model.predict_proba(X.assign(M=X["M"] + 1)))
    through = make(HIRING.unfair("A -> D -> Y"), latents="prior").fit(X, y)  # A -> Y is fair
    assert not np.array_equal(through.predict_proba(X), through.predict_proba(X.assign(A=1 - X["A"])))


@pytest.mark.parametrize("latents", ["abducted", "posterior"])
def test_the_posterior_reads_the_row_the_prior_does_not(latents: Any) -> None:
    X, _ = make_data()
    model = clone_of(fitted(epochs=40, own_noise=0.3), latents=latents)
    assert model.reads_ == ["Q", "A", "D", "M"]
    moved = X.assign(D=X["D"] + 2.0)
    before, after = (model.fair_values(table)["D"].mean(0) for table in (X, moved))
    assert np.corrcoef(before, X["D"])[0, 1] > 0.8
    assert (after > before).mean() > 0.9


def test_latents_of_two_nodes_and_of_two_units_differ() -> None:
    graph = CausalGraph("A -> D -> Y; A -> E -> Y; Q -> Y", sensitive="A", outcome="Y")
    X, y = make_data()
    model = make(graph.unfair(through=["D", "E"]), latents="posterior").fit(X.rename(columns={"M": "E"}), y)
    with torch.no_grad():  # a guide that says nothing of a row
        for network in model.guide_.networks:
            network[-1].weight.zero_()
            network[-1].bias.copy_(torch.tensor([0.0, np.log(np.e - 1.0)]))
    data = model.to_inference_data(X.rename(columns={"M": "E"}), draws=200)["posterior"]
    h, k = (np.asarray(data[name])[0, :, :, 0].ravel() for name in ("H_D", "H_E"))
    assert abs(np.corrcoef(h, k)[0, 1]) < 0.02
    assert len(np.unique(h)) > 0.99 * len(h)
    assert (h.mean(), h.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))


# -- predictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("positive", "other"), [("hired", "rejected"), ("rejected", "hired"), (0, 1)])
@pytest.mark.some(1)
def test_strings_and_categories(positive: Any, other: Any) -> None:
    graph = CausalGraph(
        "{A Q} -> D; D -> M; {A Q D M} -> Y",
        sensitive="A",
        outcome="Y",
        baseline="woman",
        contrast="man",
        positive=positive,
        columns={"D": ["job", "flag", "age"]},
    )
    X, y = make_data()
    X = pd.DataFrame(
        {
            "A": np.where(X["A"] == 1, "man", "woman"),
            "Q": pd.Categorical(np.where(X["Q"] > 0, "high", "low"), ["low", "middle", "high"]),
            "job": np.select([X["D"] < 0, X["D"] < 1], ["cook", "nurse"], "pilot"),
            "flag": X["D"] > 0.5,
            "age": np.round(10 * X["D"]).astype(int),
            "M": np.exp(X["M"]),
        }
    )
    labels = y.map({1: positive, 0: other})
    model = make(graph.unfair("A -> D -> Y", "A -> D -> M -> Y"), epochs=20).fit(X, labels)
    assert model.classes_.tolist() == sorted([positive, other])
    assert set(model.predict(X)) <= {positive, other}
    assert model.score(X, labels) > 0.6
    fair = model.fair_values(X)
    assert set(fair) == {"job", "flag", "age", "M"}
    assert set(np.unique(fair["job"])) <= {0.0, 1.0, 2.0}
    assert set(np.unique(fair["flag"])) <= {0.0, 1.0}
    assert (fair["age"] == fair["age"].round()).all()
    assert (fair["M"] > 0).all()
    with pytest.raises(DataError, match=r"'job' holds 'judge', not seen in fit"):
        model.predict(X.assign(job="judge"))
    model.predict(X.assign(age=X["age"].max() + 10))  # numbers beyond those seen are numbers
    with pytest.raises(DataError, match=r"'age' holds 1000, far outside the training rows"):  # whose noise is sought
        model.predict(X.assign(age=1000))
    model.set_params(latents="prior").predict(X.assign(age=1000))


def test_a_law_of_ones_own() -> None:
    X, y = make_data()
    X["D"] = X["D"].round().astype(int)
    family = choose_family(X["D"])
    model = make(families={"D": family}).fit(X, y)
    assert isinstance(model.families_["D"], Categorical)
    assert type(fitted().families_["Q"]).__name__ == "Continuous"
    with pytest.raises(DataError, match=r"families names 'd', .* They are: Q, D, M\. Did you mean 'D'"):
        make(families={"d": family}).fit(X, y)


def test_columns_that_the_outcome_does_not_read() -> None:
    graph = CausalGraph("K -> A; {A Q} -> D; D -> Y; D -> Z", sensitive="A", outcome="Y")
    X, y = make_data()
    X = X.rename(columns={"M": "K"}).assign(Z=X["D"] ** 2)
    model = make(graph.unfair("A -> D -> Y")).fit(X, y)
    assert model.feature_names_in_.tolist() == ["A", "Q", "D"]
    assert model.reads_ == ["Q", "A", "D"]
    model.predict(X[["A", "Q", "D"]])
    with pytest.raises(DataError, match="X lacks the column 'Z'"):
        make(graph.unfair("A -> D -> Y")).fit(X.drop(columns="Z"), y)


# -- global state, scikit-learn ---------------------------------------------------------------------------------------


def test_it_is_an_ordinary_classifier_to_audits() -> None:
    X, y = make_data()
    source = pf.IPW(UNFAIR).fit(X)
    with pytest.warns(pf.PyrofairWarning, match=r"its own predict decides .* makes, pass model\.one_draw\(\)\."):
        report = pf.audit({"pscf": fitted()}, source, X.assign(Y=y), n_boot=0)
    assert set(report.table["model"]) == {"pscf"}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_tables() -> None:
    X, y = make_data()
    gap = X.copy()
    gap.loc[3, "D"] = np.nan
    for table, target, message in [
        (gap, y, r"X has 1 missing value\(s\) \(NaN\) in the column 'D', the first in row 3"),
        (X.to_numpy(), y, "X must be a pandas DataFrame whose columns carry the graph's names"),
        (X, np.ones(300), "y has one class only"),
        (X, None, "requires y to be passed"),
        (X, y.iloc[:-1], "X has 300 rows and y has 299"),
        (X.assign(A=0), y, "never takes the value 1"),
        (X.assign(A=X["A"] * 3), y, "holds 3 besides baseline=0"),
    ]:
        with pytest.raises(DataError, match=message):
            make().fit(table, target)
    with pytest.raises(DataError, match="hold one class only"):
        make().fit(X, y, sample_weight=y.to_numpy().astype(float))
    with pytest.raises(DataError, match=r"missing value\(s\) \(NaN\) in the column 'D'"):
        fitted().predict(gap)
    with pytest.raises(DataError, match=r"X lacks the column 'M'.*Pass all columns of the fit"):
        fitted().predict(X.drop(columns="M"))
    with pytest.warns(PyrofairWarning, match="outside the graph are ignored: extra"):
        make().fit(X.assign(extra=1), y)


def test_latent_nodes() -> None:
    graph = CausalGraph("A -> L -> Y; {A H} -> D; {A H D} -> Y", sensitive="A", outcome="Y", latent=["L", "H"])
    X, y = make_data()
    model = make(graph.unfair("A -> Y")).fit(X[["A", "D"]], y)
    assert model.reads_ == ["D"]


def test_divergence_is_named_and_leaves_the_estimator_as_it_was() -> None:
    X, y = make_data()
    model = make(learning_rate=1e30)
    with pytest.raises(DataError, match=r"Training diverged: .* Lower learning_rate=1e\+30"):
        model.fit(X, y)
    assert not hasattr(model, "sem_")


def test_names_of_sites() -> None:
    graph = CausalGraph("A -> D -> Y; units -> Y; H_D -> Y; Q -> Y", sensitive="A", outcome="Y")
    X, y = make_data()
    X = X[["A", "D"]].assign(units=X["Q"], H_D=X["M"], Q=X["M"] + X["Q"])
    model = make(graph.unfair("A -> D -> Y"), mmd=0.1).fit(X, y)
    assert model.sem_.site == {"D": "H_D_"}


# -- convergence ------------------------------------------------------------------------------------------------------


def test_the_loss_is_traced_and_falls() -> None:
    history = fitted(epochs=40).history_
    assert list(history) == ["epoch", "loss"]
    assert len(history) == 40
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]
    assert fitted(epochs=40).elbo_ == pytest.approx(-history["loss"].iloc[-1], abs=0.3)


def test_an_interruption_keeps_whole_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    step, left = torch.optim.Adam.step, [10**9]

    def interrupted(*args: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return step(*args)

    X, y = make_data()
    monkeypatch.setattr(torch.optim.Adam, "step", interrupted)
    settings = {"epochs": 20, "batch_size": 100}
    left[0] = 3 * 4 + 1
    with pytest.warns(PyrofairWarning, match="Interrupted after 4 of 20 epochs; the networks of the last of these"):
        found = make(**settings).fit(X, y)
    assert found.history_["epoch"].tolist() == [0, 1, 2, 3]
    left[0] = 3 * 4
    with pytest.warns(PyrofairWarning, match="Interrupted after 4 of 20 epochs"):
        again = make(**settings).fit(X, y)
    np.testing.assert_array_equal(found.predict_proba(X), again.predict_proba(X))  # half an epoch leaves no trace
    left[0] = 2
    model = make(**settings)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not hasattr(model, "sem_")


@pytest.mark.slow
def test_a_linear_model_is_found() -> None:
    """The evidence reaches the marginal likelihood, and the latent is the noise, where both are normal."""
    rng = np.random.default_rng(1)
    n = 1000
    a = rng.integers(0, 2, n)
    d = 2.0 * a + rng.normal(size=n)
    y = rng.binomial(1, 1 / (1 + np.exp(-d)))
    graph = CausalGraph("A -> D -> Y", sensitive="A", outcome="Y")
    model = PSCF(graph.unfair("A -> D -> Y"), epochs=80, batch_size=100, random_state=0, progress=False)
    model.fit(X := pd.DataFrame({"A": a, "D": d}), y)
    best = np.log(0.5) - 0.5 * np.log(2 * np.pi * np.e)
    best += np.mean(np.where(y == 1, -np.log1p(np.exp(-d)), -np.log1p(np.exp(d))))
    assert model.elbo_ == pytest.approx(best, abs=0.08)
    fair = model.set_params(samples=50).fair_values(X)["D"].mean(0)
    assert np.sqrt(np.mean((fair - (d - 2.0 * a)) ** 2)) < 0.3


# -- averages, weights and draws as data ------------------------------------------------------------------------------


@pytest.mark.parametrize(("latents", "samples"), [("abducted", 100), ("posterior", 100), ("prior", 5)])
@pytest.mark.some(1)
def test_samples_by_default(latents: Any, samples: int) -> None:
    X, _ = make_data()
    model = clone_of(fitted(), latents=latents)
    assert model.draws_ == samples
    assert model.fair_values(X.iloc[:9])["D"].shape == (samples, 9)
    assert clone_of(model, samples=3).fair_values(X.iloc[:9])["D"].shape == (3, 9)
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(clone_of(model, samples=samples).predict_proba(X), expected)


def test_inference_data() -> None:
    X, y = make_data()
    data = fitted().to_inference_data(X.iloc[:9], y.iloc[:9], draws=6)
    posterior, predicted = data["posterior"], data["posterior_predictive"]
    assert posterior["H_D"].shape == (1, 6, 9, 1)
    assert posterior["fair_D"].dims == ("chain", "draw", "unit")
    assert posterior["fair_score"].shape == predicted["D"].shape == predicted["Y"].shape == (1, 6, 9)
    np.testing.assert_allclose(data["observed_data"]["D"], X["D"].iloc[:9], rtol=1e-6)
    np.testing.assert_array_equal(data["observed_data"]["Y"], y.iloc[:9])
    np.testing.assert_allclose(data["sample_stats"]["loss"][0], fitted().history_["loss"])
    baseline = (X["A"].iloc[:9] == 0).to_numpy()
    own = np.broadcast_to(X["D"].iloc[:9], (6, 9))
    np.testing.assert_allclose(posterior["fair_D"][0][:, baseline], own[:, baseline], rtol=1e-6)
    assert not np.allclose(posterior["fair_D"][0][:, ~baseline], own[:, ~baseline])
    assert (np.asarray(predicted["D"][0]).std(0) > 0.1).all()  # drawn anew given the latent variables
    redrawn = clone_of(fitted(), latents="posterior").to_inference_data(X.iloc[:9], draws=6)
    again, fair = redrawn["posterior_predictive"]["D"][0], redrawn["posterior"]["fair_D"][0]
    np.testing.assert_allclose(again[:, baseline], fair[:, baseline], rtol=1e-6)
    assert not np.allclose(again[:, ~baseline], fair[:, ~baseline])
    assert "observed_data" in redrawn
    from arviz import summary

    assert "fair_score[0]" in summary(redrawn, var_names=["fair_score"]).index


def test_latents_are_described() -> None:
    X, y = make_data()
    table = fitted(epochs=40, own_noise=0.3).latents_
    assert table["latent"].tolist() == ["H_D"]
    assert table["reads"].tolist() == ["D"]
    assert table["kl"].iloc[0] > 0.5
    assert 0.5 < table["explained"].iloc[0] <= 1.0
    with pytest.warns(PyrofairWarning, match=r"The latent variables H_D \(0\.\d+\) say nothing of a row"):
        make(epochs=60).fit(X, y)
    assert make(HIRING.unfair("A -> Y")).fit(X, y).latents_.empty
