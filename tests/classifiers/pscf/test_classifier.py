from __future__ import annotations

import functools
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor

import pyrofair as pf
from pyrofair import CausalGraph, DataError, GraphError, NotIdentifiedError, PyrofairWarning
from pyrofair._random import keyed_strata, keyed_uniform, row_keys
from pyrofair.classifiers.pscf.classifier import PSCF
from pyrofair.classifiers.pscf.model import (
    LatentSEM,
    Steps,
    Units,
    evidence,
    fit_elbo,
    mean_discrepancy,
    read_replay,
    unsettled,
)
from pyrofair.graph.causal_graph import unused_name
from pyrofair.mechanisms.families import Categorical, choose_family

short = pytest.mark.filterwarnings("ignore:The loss may not have settled")
pytestmark = short

HIRING = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = HIRING.unfair("A -> Y", "A -> D -> Y")
CHAIN = CausalGraph("A -> D -> E -> Y; A -> M -> E; A -> M -> Y; A -> Y; Q -> E; Q -> Y", sensitive="A", outcome="Y")


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
    usual = {"epochs": 4, "batch_size": 100, "hidden": 20, "encoder_hidden": (8,), "random_state": 0, "progress": False}
    return PSCF(unfair, **{**usual, **settings})


@functools.cache
def fitted(**settings: Any) -> PSCF:
    return make(**settings).fit(*make_data())


def laws_of(graph: CausalGraph, noisy: dict[str, int], **columns: Any) -> LatentSEM:
    table = pd.DataFrame(columns)
    families = {
        name: choose_family(table[name], most_levels=2) for node in graph.order for name in graph.columns.get(node, [])
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LatentSEM(graph, families, noisy, hidden=10, encoder_hidden=(5,))


# -- defects that must not recur --------------------------------------------------------------------------------------


def test_nodes_share_nothing() -> None:
    sem = fitted().sem_
    parameters = [{id(p) for p in part.parameters()} for part in (*sem.networks, *sem.encoders)]
    assert all(len(each) > 0 for each in parameters)
    assert sum(map(len, parameters)) == len(set().union(*parameters)) == len(list(sem.parameters()))


@pytest.mark.parametrize("column", ["d", "e"])
def test_latents_reach_each_column_of_their_node_and_no_other(column: str) -> None:
    graph = CausalGraph("A -> D; A -> M; {A D M} -> Y", sensitive="A", outcome="Y", columns={"D": ["d", "e"]})
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=50) for name in ("d", "e", "M")} | {name: rng.integers(0, 2, 50) for name in "AY"}
    sem = laws_of(graph, {"D": 2}, **table)
    values = {name: torch.tensor(each, dtype=torch.float32) for name, each in table.items()}
    latent = torch.zeros(50, 2, requires_grad=True)
    found = sem.distribution(column, values, latent)
    (gradient,) = torch.autograd.grad(found.log_prob(values[column]).sum(), latent)
    assert (gradient.abs() > 0).all()
    assert not torch.allclose(found.mean, sem.distribution(column, values, latent + 1).mean)
    for other in "AMY":
        assert sem.distribution(other, values, latent).log_prob(values[other]).shape in ((50,), (1,))
    assert sem.reads("e") == ["A", "d"]


def test_training_moves_latents_laws_and_guide() -> None:
    X, y = make_data()
    one, two = make(epochs=1).fit(X, y), make(epochs=3).fit(X, y)
    for (name, before), (_, after) in zip(one.sem_.named_parameters(), two.sem_.named_parameters(), strict=True):
        assert not torch.equal(before, after), name


def test_noise_has_a_key_for_each_seed_name_and_number() -> None:
    keys = row_keys([torch.randn(5000, generator=torch.Generator().manual_seed(0))], 5000)
    streams = torch.cat([keyed_uniform(keys, seed, name, (3,)) for seed in (0, 1) for name in ("H_D", "D")])
    correlation = torch.corrcoef(streams) - torch.eye(len(streams), dtype=torch.float64)
    assert correlation.abs().max() < 0.06
    assert (streams.mean(1) - 0.5).abs().max() < 0.02
    assert (streams.var(1) - 1 / 12).abs().max() < 0.004
    assert len(streams.unique()) == streams.numel()


def test_strata_are_uniform_and_one_in_each_part() -> None:
    keys = row_keys([torch.arange(5000.0)], 5000)
    u = keyed_strata(keys, 0, "H", (5, 2))
    assert torch.equal((5 * u).floor().sort(0).values, torch.arange(5.0).double()[:, None, None].expand(5, 2, 5000))
    flat = u.reshape(10, 5000)
    assert (flat.mean(1) - 0.5).abs().max() < 0.02
    assert (flat.var(1) - 1 / 12).abs().max() < 0.004
    between = torch.corrcoef(flat)[0]  # of one number, the strata of the others are elsewhere; other numbers are free
    assert between[[2, 4, 6, 8]].tolist() == pytest.approx([-0.24] * 4, abs=0.06)
    assert between[[1, 3, 5, 7, 9]].abs().max() < 0.06


def test_noise_goes_with_the_row() -> None:
    values = torch.tensor([3.0, -0.0, 3.0, 0.0])
    keys = row_keys([values, torch.ones(4)], 4)
    u = keyed_uniform(keys, 0, "D", (2, 3))
    assert u.shape == (2, 3, 4)
    assert torch.equal(u[..., 0], u[..., 2])
    assert torch.equal(u[..., 1], u[..., 3])
    assert not (u[..., 0] == u[..., 1]).any()
    assert torch.equal(keyed_uniform(keys[2:], 0, "D", (2, 3)), u[..., 2:])


def test_latents_of_two_nodes_and_of_two_people_differ() -> None:
    graph = CausalGraph("A -> D -> Y; A -> E -> Y; Q -> Y", sensitive="A", outcome="Y")
    X, y = make_data()
    model = make(graph.unfair(through=["D", "E"]), latents="prior").fit(X.rename(columns={"M": "E"}), y)
    data = model.to_inference_data(X.rename(columns={"M": "E"}), draws=200)["posterior"]
    h, k = (np.asarray(data[name])[0, :, :, 0].ravel() for name in ("H_D", "H_E"))
    assert abs(np.corrcoef(h, k)[0, 1]) < 0.02
    assert len(np.unique(h)) > 0.99 * len(h)  # 32 bits
    assert (h.mean(), h.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))


def by_hand(points: list[list[float]], group: list[int], weight: list[float]) -> float:
    """Sum over pairs, each group's mean by its own weight."""
    means = {}
    for g, h in [(0, 0), (1, 1), (0, 1)]:
        total = mass = 0.0
        for i, x in enumerate(points):
            for j, z in enumerate(points):
                if group[i] == g and group[j] == h:
                    distance = sum((a - b) ** 2 for a, b in zip(x, z, strict=True))
                    total += weight[i] * weight[j] * np.exp(-distance / (2 * len(x)))
                    mass += weight[i] * weight[j]
        means[g, h] = total / mass
    return means[0, 0] + means[1, 1] - 2 * means[0, 1]


@pytest.mark.parametrize(
    "group", [[0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]], ids=["one of seven", "three of seven"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_discrepancy_by_hand(group: list[int], weighted: bool) -> None:
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=(7, 2)), rng.uniform(0.5, 2, 7) if weighted else np.ones(7)
    found = mean_discrepancy(torch.tensor(points), torch.tensor(group), torch.tensor(weight) if weighted else None)
    assert float(found) == pytest.approx(by_hand(points.tolist(), group, weight.tolist()))


def test_discrepancy_does_not_shrink_with_the_group() -> None:
    points = torch.cat([torch.zeros(2, 1), torch.full((98, 1), 2.0)])
    few = mean_discrepancy(points, (torch.arange(100) > 1).long())
    assert float(few) == pytest.approx(2 - 2 * np.exp(-2))
    assert float(mean_discrepancy(points, torch.zeros(100))) == 0.0


def test_discrepancy_enters_the_loss_once_per_person() -> None:
    X, y = make_data()
    rows, ones = torch.arange(len(X)), np.ones(len(X))
    model, sem = make().fit(X, y), fitted().sem_
    values = model._encode(X) | {"Y": torch.tensor(y.to_numpy()).float()}
    those = Units(values, torch.tensor(X["A"].to_numpy()), torch.tensor(ones).float())
    plain = evidence(sem, those, draws=1)
    sem.distance = 0.7
    with_penalty = evidence(sem, those, draws=1)
    sem.distance = 0.0
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        loc, scale = sem.posterior("D", values)
        apart = mean_discrepancy(loc + scale * torch.randn(loc.shape), those.group)
    assert plain - with_penalty == pytest.approx(0.7 * float(apart), rel=1e-3)
    assert len(rows) == 300


def test_discrepancy_pulls_the_groups_together() -> None:
    X, y = make_data()
    apart = []
    for mmd in (0.0, 20.0):
        model = make(mmd=mmd, epochs=30).fit(X, y)
        with torch.no_grad():
            loc, _ = model.sem_.posterior("D", model._encode(X))
        apart.append(float(mean_discrepancy(loc, torch.tensor(X["A"].to_numpy()))))
    assert apart[1] < apart[0]


# -- replay -----------------------------------------------------------------------------------------------------------


def chain() -> tuple[LatentSEM, dict[str, Tensor]]:
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=40) for name in "DEMQ"} | {name: rng.integers(0, 2, 40) for name in "AY"}
    return laws_of(CHAIN, {"D": 1, "E": 1}, **table), {k: torch.tensor(v).float() for k, v in table.items()}


@pytest.mark.parametrize("latents", ["posterior", "prior"])
def test_replay_is_the_recursion_by_hand(latents: Any) -> None:
    """A -> D -> E -> Y is unfair: E reads the fair D, and M with the unit's own A, which is left as it is."""
    sem, own = chain()
    unfair = CHAIN.unfair("A -> D -> E -> Y")
    replay = read_replay(unfair)
    assert (replay.redrawn, replay.switched) == (("D", "E"), {"D"})
    keys = replay.keys(own, 40)
    with torch.no_grad():
        fair = replay.fair_values(sem, own, keys, latents=latents, draws=3, seed=5)
        score = sem.distribution("Y", replay.as_read("Y", sem, own, fair)).probs
        for j in range(3):
            now = own | {"A": torch.zeros(40)}
            for node in ("D", "E"):
                h = torch.special.ndtri(keyed_strata(keys, 5, f"H_{node}", (3, 1)))[j].T.float()
                if latents == "posterior":
                    loc, scale = sem.posterior(node, own)
                    h = loc + scale * h
                torch.testing.assert_close(fair[f"H_{node}"][j], h)
                distribution = sem.distribution(node, now, h)
                u = keyed_strata(keys, 5, node, (3,))[j].float()
                torch.testing.assert_close(distribution.cdf(fair[node][j]), u, atol=1e-4, rtol=0)
                now[node] = fair[node][j]
            torch.testing.assert_close(score[j], sem.distribution("Y", now | {"A": own["A"]}).probs)


def test_edges_not_nodes() -> None:
    """A -> Z -> D -> Y is unfair, A -> D is fair: D reads the fair Z and the unit's own A."""
    graph = CausalGraph("A -> Z -> D -> Y; A -> D; A -> Y", sensitive="A", outcome="Y")
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=20) for name in "ZD"} | {name: rng.integers(0, 2, 20) for name in "AY"}
    sem = laws_of(graph, {"Z": 1, "D": 1}, **table)
    own = {name: torch.tensor(each).float() for name, each in table.items()}
    replay = read_replay(graph.unfair("A -> Z -> D -> Y"))
    fair = {"Z": torch.full((2, 20), 7.0), "D": torch.full((2, 20), 8.0)}
    read = replay.as_read("D", sem, own, fair)
    assert torch.equal(read["A"], own["A"])
    assert torch.equal(read["Z"], fair["Z"])
    assert torch.equal(replay.as_read("Z", sem, own, fair)["A"], torch.zeros(1))
    assert torch.equal(replay.as_read("Y", sem, own, fair)["A"], own["A"])


def test_swapped_roles_carry_the_contrast() -> None:
    sem, own = chain()
    replay = read_replay(CHAIN.unfair("A -> Y").reversed())
    assert (replay.baseline, replay.redrawn, replay.switched) == (1.0, (), {"Y"})
    assert torch.equal(replay.as_read("Y", sem, own, {})["A"], torch.ones(1))


def test_without_unfair_paths_it_is_the_law_of_the_outcome() -> None:
    X, y = make_data()
    for latents in ("posterior", "prior"):
        model = make(HIRING.unfair(), latents=latents).fit(X, y)
        plain = model.sem_.distribution("Y", model._encode(X)).probs.detach().numpy()
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], plain, rtol=1e-6)
        assert model.fair_values(X) == {}


def test_direct_path_alone_reads_the_baseline() -> None:
    X, y = make_data()
    model = make(HIRING.unfair("A -> Y")).fit(X, y)
    low = model.sem_.distribution("Y", model._encode(X.assign(A=0))).probs.detach().numpy()
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], low, rtol=1e-6)


def test_fair_paths_keep_her_own_value() -> None:
    X, y = make_data()
    model = fitted(latents="prior")
    assert model.reads_ == ["Q", "M"]
    other = model.predict_proba(X.assign(A=1 - X["A"], D=0.0))
    np.testing.assert_array_equal(model.predict_proba(X), other)
    assert not np.array_equal(model.predict_proba(X), model.predict_proba(X.assign(M=X["M"] + 1)))
    through = make(HIRING.unfair("A -> D -> Y"), latents="prior").fit(X, y)  # A -> Y is fair
    assert not np.array_equal(through.predict_proba(X), through.predict_proba(X.assign(A=1 - X["A"])))


def test_the_posterior_reads_the_person_the_prior_nobody() -> None:
    X, _ = make_data()
    posterior = fitted(epochs=40)
    assert posterior.reads_ == ["Q", "A", "D", "M"]
    moved = X.assign(D=X["D"] + 2.0)
    before, after = (posterior.fair_values(table)["D"].mean(0) for table in (X, moved))
    assert np.corrcoef(before, X["D"])[0, 1] > 0.8
    assert (after > before).mean() > 0.9


# -- predictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latents", ["posterior", "prior"])
@pytest.mark.parametrize("average", ["probability", "decision"])
def test_a_seed_is_a_result(latents: str, average: str) -> None:
    X, y = make_data()

    def proba(seed: Any) -> Any:
        return make(latents=latents, average=average, random_state=seed, epochs=2).fit(X, y).predict_proba(X)

    first = proba(0)
    np.testing.assert_array_equal(first, proba(0))
    np.testing.assert_array_equal(proba(np.random.RandomState(5)), proba(np.random.RandomState(5)))
    assert not np.array_equal(first, proba(1))


@pytest.mark.parametrize("latents", ["posterior", "prior"])
def test_a_row_has_one_prediction_wherever_it_stands(latents: str) -> None:
    X, _ = make_data()
    model = clone_of(fitted(), latents=latents)
    whole = model.predict_proba(X)
    np.testing.assert_array_equal(whole, model.predict_proba(X))
    np.testing.assert_allclose(model.predict_proba(X.iloc[::-1]), whole[::-1], rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X.iloc[[7]]), whole[[7]], rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X[["M", "D", "Q", "A"]].assign(extra="x")), whole, rtol=1e-5)


def clone_of(model: PSCF, **settings: Any) -> PSCF:
    copied: PSCF = pickle.loads(pickle.dumps(model))
    return copied.set_params(**settings)


def test_averages_agree_with_many_samples() -> None:
    X, _ = make_data()
    soft, hard = (
        clone_of(fitted(), average=average, samples=2000).predict_proba(X) for average in ("probability", "decision")
    )
    assert np.abs(soft - hard).max() < 0.06
    few = clone_of(fitted(), average="decision").predict_proba(X)[:, 1]
    assert set(np.round(few * 5, 6)) <= set(range(6))


def test_predict_is_a_threshold() -> None:
    X, _ = make_data()
    proba = fitted().predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    np.testing.assert_array_equal(fitted().predict(X), (proba[:, 1] > 0.5).astype(int))


@pytest.mark.parametrize(("positive", "other"), [("hired", "rejected"), ("rejected", "hired"), (0, 1)])
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
    model.predict(X.assign(age=1000))  # numbers beyond those seen are numbers


def test_a_law_of_ones_own() -> None:
    X, y = make_data()
    X["D"] = X["D"].round().astype(int)
    family = choose_family(X["D"])
    model = make(families={"D": family}).fit(X, y)
    assert isinstance(model.families_["D"], Categorical)
    assert type(fitted().families_["Q"]).__name__ == "Continuous"
    with pytest.raises(
        DataError, match=r"families names 'd'; a distribution can be chosen for Q, D, M\. Did you mean 'D'"
    ):
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


def test_weights_are_repeated_rows() -> None:
    X, y = make_data()
    values = fitted()._encode(X) | {"Y": torch.tensor(y.to_numpy()).float()}
    sem, group, twice = fitted().sem_, torch.tensor(X["A"].to_numpy()), torch.ones(300)
    twice[:50] = 2.0
    rows = torch.cat([torch.arange(300), torch.arange(50)])
    repeated = Units({name: each[rows] for name, each in values.items()}, group[rows], torch.ones(350))
    weighted = evidence(sem, Units(values, group, twice), draws=200)
    assert weighted == pytest.approx(evidence(sem, repeated, draws=200), rel=0.01)
    weight = np.ones(300)
    weight[:100] = 0.0
    part = make().fit(X, y, sample_weight=weight).predict_proba(X)
    np.testing.assert_array_equal(part, make().fit(X.iloc[100:], y.iloc[100:]).predict_proba(X))


# -- global state, scikit-learn ---------------------------------------------------------------------------------------


def test_global_state_is_left_alone() -> None:
    X, y = make_data()
    pyro.clear_param_store()
    pyro.param("mine", torch.tensor(3.0))
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model = make(random_state=None, mmd=0.5).fit(X, y)
    model.predict(X)
    model.to_inference_data(X, y, draws=3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert list(pyro.get_param_store().keys()) == ["mine"]
    pyro.clear_param_store()


def test_global_settings_change_nothing() -> None:
    X, y = make_data()
    expected = fitted().predict_proba(X)
    torch.manual_seed(99)
    torch.set_default_dtype(torch.float64)
    try:
        np.testing.assert_array_equal(make().fit(X, y).predict_proba(X), expected)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_clone_params_and_pickle() -> None:
    X, _ = make_data()
    model = fitted()
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert not hasattr(copied, "sem_")
    with pytest.raises(NotFittedError):
        copied.predict(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    assert (model.n_features_in_, model.classes_.tolist()) == (4, [0, 1])


def test_it_is_an_ordinary_classifier_to_audits() -> None:
    X, y = make_data()
    source = pf.IPW(UNFAIR).fit(X)
    report = pf.audit({"pscf": fitted()}, source, X.assign(Y=y), n_boot=0)
    assert set(report.table["model"]) == {"pscf"}


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latents": "guess"}, "latents='guess' is not known; it is 'posterior' or 'prior'"),
        ({"average": "median"}, "average='median' is not known"),
        ({"samples": 0}, "samples=0 must be an integer"),
        ({"samples": None}, "samples=None must be an integer"),
        ({"batch_size": True}, "batch_size=True must be an integer"),
        ({"latent_size": 1.5}, "latent_size=1.5 must be"),
        ({"mmd": -1.0}, "mmd=-1.0 must be a number of at least 0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be a number above 0"),
        ({"own_noise": np.inf}, "own_noise=inf must be"),
        ({"encoder_hidden": 20}, r"encoder_hidden=20 must list the units of each hidden layer, such as \(32, 32\)"),
        ({"families": {"D": "w"}}, r"families\['D'\] is the text"),
        ({"families": {"D": Categorical}}, r"families\['D'\] is the class Categorical; a family is an instance"),
        ({"families": ["D"]}, r"families=\['D'\] must be a dictionary from columns to families"),
        ({"unfair": HIRING}, "must be unfair paths, made by graph.unfair"),
    ],
)
def test_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(**settings).fit(*make_data())


def test_tables() -> None:
    X, y = make_data()
    gap = X.copy()
    gap.loc[3, "D"] = np.nan
    for table, target, message in [
        (gap, y, r"X has 1 missing value\(s\) \(NaN\) in the column 'D', the first in row 3"),
        (X.drop(columns="M"), y, "X lacks the column 'M'"),
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
    with pytest.raises(DataError, match="X lacks the column 'M'"):
        fitted().predict(X.drop(columns="M"))
    with pytest.warns(PyrofairWarning, match="outside the graph are ignored: extra"):
        make().fit(X.assign(extra=1), y)


def test_recanting_witness() -> None:
    graph = CausalGraph("A -> M -> D -> Y; A -> D; A -> Y; M -> Y", sensitive="A", outcome="Y")
    X, y = make_data()
    with pytest.raises(NotIdentifiedError, match=r"'M' is a recanting witness\. The unfair path A -> M -> Y"):
        make(graph.unfair("A -> M -> Y")).fit(X, y)


def test_latent_nodes() -> None:
    graph = CausalGraph("A -> L -> Y; {A H} -> D; {A H D} -> Y", sensitive="A", outcome="Y", latent=["L", "H"])
    X, y = make_data()
    with pytest.raises(GraphError, match="A -> L -> Y runs through the latent node 'L'"):
        make(graph.unfair("A -> L -> Y")).fit(X, y)
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
    assert unused_name("x", ["y"]) == "x"


# -- convergence ------------------------------------------------------------------------------------------------------


def test_the_loss_is_traced_and_falls() -> None:
    history = fitted(epochs=40).history_
    assert list(history) == ["epoch", "loss"]
    assert len(history) == 40
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]
    assert fitted(epochs=40).elbo_ == pytest.approx(-history["loss"].iloc[-1], abs=0.3)


def test_a_loss_that_still_falls_is_said_so() -> None:
    falling = [10.0 / (1 + 0.05 * t) for t in range(60)]
    assert unsettled(falling) > 0.05
    assert unsettled([5.0] * 60) == 0.0
    assert unsettled([5.0]) == 0.0
    noisy = (3 + 0.1 * np.random.default_rng(0).normal(size=60)).tolist()
    assert unsettled(noisy) == 0.0
    X, y = make_data()
    with pytest.warns(PyrofairWarning, match=r"The loss may not have settled: it fell by .* Take more epochs than 12"):
        make(epochs=12).fit(X, y)


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


def test_steps_shrink_and_batches_hold_both_groups() -> None:
    from pyrofair.classifiers.pscf.model import FINAL, STEADY, _batches
    from pyrofair.inference.samplers import Schedule

    schedule = Schedule(31, 0.1, STEADY, FINAL)
    rates = [schedule.size(step) for step in range(31)]
    assert rates[:11] == [1.0] * 11
    assert all(a > b for a, b in pairwise(rates[11:]))
    assert rates[-1] == pytest.approx(0.01)
    group = torch.tensor([0] * 90 + [1] * 10)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        batches = _batches(group, 5)
    assert sorted(torch.cat(batches).tolist()) == list(range(100))
    assert all(int(group[rows].sum()) == 2 for rows in batches)


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


def test_direct_fit_of_a_program() -> None:
    sem, own = chain()
    those = Units(own, own["A"], torch.ones(40))
    before = evidence(sem, those)
    losses = fit_elbo(sem, those, Steps(20, 20, 0.01), seed=0)
    assert len(losses) == 20
    assert evidence(sem, those) > before


# -- the truth --------------------------------------------------------------------------------------------------------


def test_truth_on_a_scenario() -> None:
    hiring = pf.simulate.scenario("hiring")
    table = hiring.draw(1000, random_state=0)
    X, y = table.drop(columns="Y"), table["Y"]
    model = PSCF(hiring.unfair, epochs=30, batch_size=100, random_state=0, progress=False).fit(X, y)
    for latents in ("posterior", "prior"):
        model.set_params(latents=latents)
        found = model.truth(hiring, n=20_000, random_state=0)
        assert found == model.truth(hiring.program, n=20_000, random_state=0)
        assert found.true_accuracy.value == pytest.approx(0.869, abs=0.01)
        assert 0.0 < found.piu.value < 0.1
        assert abs(found.mean_difference.value) <= found.piu.value
        assert found.piu.error == pytest.approx(np.sqrt(found.piu.value * (1 - found.piu.value) / 20_000), rel=1e-6)
        assert found.paper_condmean > 0
        assert "groups of identical A, Q, D, M" in found.grouping
        assert f"latents: {latents}; 5 samples, mean probability" in str(found)
    assert pf.SEM(hiring.program, hiring.unfair).truth(model, n=2_000, random_state=0).piu.value == 0.0  # the prior
    with pytest.raises(DataError, match="n=0 must be an integer"):
        model.truth(hiring, n=0)


def test_true_fair_scores_by_hand() -> None:
    """In the chain E reads the fair D and the unit's own M; the noise is known, so that scores are arithmetic."""
    from pyrofair._random import isolated
    from pyrofair.classifiers.pscf.truth import _simulate, _TrueModel

    dist: Any = pyro.distributions

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            D = pyro.deterministic("D", 3.0 * A + pyro.sample("U_D", dist.Normal(0.0, 1.0)))
            M = pyro.deterministic("M", 5.0 * A + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
            E = pyro.deterministic("E", D + 7.0 * M + Q + pyro.sample("U_E", dist.Normal(0.0, 1.0)))
            pyro.sample("Y", dist.Bernoulli(logits=0.1 * (E + A + M + Q)))

    for unfair, low in [(CHAIN.unfair("A -> D -> E -> Y"), 0.0), (CHAIN.unfair("A -> D -> E -> Y").reversed(), 1.0)]:
        replay = read_replay(unfair)
        with isolated(0):
            _, rows, scores = _simulate(_TrueModel.read(program, unfair), replay, 500, "posterior", 2)
        with isolated(0):
            _, _, fresh = _simulate(_TrueModel.read(program, unfair), replay, 500, "prior", 400)
        a, q, d, m, e = (rows[name].to_numpy(float) for name in "AQDME")
        fair_e = e + 3.0 * (low - a)
        expected = 1 / (1 + np.exp(-0.1 * (fair_e + a + m + q)))
        np.testing.assert_allclose(scores[0], expected, rtol=1e-4)
        np.testing.assert_allclose(scores[1], expected, rtol=1e-4)
        logit = torch.logit(fresh.double()).numpy() * 10
        mean = 3.0 * low + 7.0 * m + q + a + m + q
        assert np.abs(logit.mean(0) - mean).max() < 0.4
        assert logit.std(0) == pytest.approx(np.sqrt(2.0), rel=0.2)
        assert (d - 3.0 * a).std() == pytest.approx(1.0, abs=0.1)


def test_truth_needs_a_distribution_of_the_outcome() -> None:
    dist: Any = pyro.distributions

    def computed(n: int) -> None:
        with pyro.plate("units", n):
            A, Q = pyro.sample("A", dist.Bernoulli(0.5)), pyro.sample("Q", dist.Normal(0.0, 1.0))
            D = pyro.deterministic("D", A + Q + pyro.sample("U_D", dist.Normal(0.0, 1.0)))
            M = pyro.deterministic("M", A + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
            pyro.deterministic("Y", (A + Q + D + M > 1.0).float())

    with pytest.raises(GraphError, match="outcome 'Y' must be drawn in the program from a Bernoulli distribution"):
        fitted().truth(computed, n=100)


# -- ArviZ ------------------------------------------------------------------------------------------------------------


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
    women = (X["A"].iloc[:9] == 0).to_numpy()
    np.testing.assert_allclose(predicted["D"][0][:, women], posterior["fair_D"][0][:, women], rtol=1e-5)
    assert not np.allclose(predicted["D"][0][:, ~women], posterior["fair_D"][0][:, ~women])
    from arviz import summary

    assert "fair_score[0]" in summary(data, var_names=["fair_score"]).index


# -- the scenarios, slowly --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "latents", "accuracy", "piu"),
    [
        ("hiring", "prior", 0.874, 0.04),
        ("hiring", "posterior", 0.873, 0.025),
        ("additive", "prior", 0.79, 0.03),
        ("additive", "posterior", 0.79, 0.03),
    ],
)
def test_accuracy_and_truth(name: str, latents: Any, accuracy: float, piu: float) -> None:
    scenario = pf.simulate.scenario(name)
    train, test = scenario.draw(5000, random_state=0), scenario.draw(20_000, random_state=1)
    model = PSCF(scenario.unfair, latents=latents, random_state=0).fit(train.drop(columns="Y"), train["Y"])
    assert model.score(test.drop(columns="Y"), test["Y"]) > accuracy - 0.02
    assert model.truth(scenario, n=20_000, random_state=0).piu.value < piu


@pytest.mark.slow
def test_evidence_is_near_its_plateau() -> None:
    scenario = pf.simulate.scenario("hiring")
    train = scenario.draw(5000, random_state=0)
    short, long = (
        PSCF(scenario.unfair, epochs=epochs, random_state=0).fit(train.drop(columns="Y"), train["Y"]).elbo_
        for epochs in (None, 600)
    )
    assert long - short < 0.01 * abs(long)
