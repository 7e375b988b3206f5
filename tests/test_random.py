"""Calls leave the global generators and the parameter store as they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

import pyrofair as pf
from pyrofair import SEM, CausalGraph, DataError, GraphError
from pyrofair._random import isolated, seed_from, set_seed
from pyrofair.inference import importance
from pyrofair.programs.sites import read_sites
from tests.models import Known
from tests.programs.models import normal, units


def state() -> tuple[Any, ...]:
    store = pyro.get_param_store()
    named = {
        name: (id(raw), raw.detach().clone(), vars(raw).get("unconstrained")) for name, raw in store.named_parameters()
    }
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002
    assert isinstance(numpy, dict)
    return (
        random.getstate(),
        numpy["state"]["key"].tolist(),
        numpy["state"]["pos"],
        torch.get_rng_state().tolist(),
        named,
    )


def program(n: int) -> None:
    weight = pyro.param("weight", torch.tensor(2.0))
    fresh = pyro.param("fresh", lambda: torch.rand(()), constraint=dist.constraints.positive)
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        M = pyro.sample("M", dist.Normal(weight * A, fresh))
        pyro.deterministic("Y", M)


def failing_for(numbers: range) -> Callable[[int], None]:
    def failing(n: int) -> None:
        torch.rand(3)
        pyro.param("lost", torch.tensor(2.0))
        if n in numbers:
            raise ArithmeticError("too many")
        program(n)

    return failing


GRAPH = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> M -> Y")


def disorder() -> None:
    with isolated(3):
        random.random()
        np.random.normal()  # noqa: NPY002
        torch.rand(2)
        store = pyro.get_param_store()
        pyro.param("new", torch.ones(2))
        store["weight"] = torch.tensor(9.0)
        store.clear()


def fail_to_be_read() -> None:
    with pytest.raises(GraphError, match=r"n=\d+ \w+: ArithmeticError: too many") as caught:
        SEM(failing_for(range(201, 10**9)), UNFAIR).nodes(300, random_state=0)
    assert isinstance(caught.value.__cause__, ArithmeticError)


def fail_to_draw() -> None:
    sem = SEM(failing_for(range(2001, 2002)), UNFAIR)
    assert len(sem.nodes(2000, random_state=0)[0]) == 2000
    with pytest.raises(GraphError, match=r"n=2001 \w+: ArithmeticError: too many") as caught:
        sem.nodes(2001, random_state=0)
    assert isinstance(caught.value.__cause__, ArithmeticError)


@pytest.mark.parametrize(
    "call",
    [
        disorder,
        fail_to_be_read,
        fail_to_draw,
        lambda: read_sites(program),
        lambda: CausalGraph.from_pyro(program, nodes=["A", "M", "Y"], sensitive="A", outcome="Y"),
        lambda: SEM(program, UNFAIR, coupling="independent").nodes(50),
        lambda: SEM(program, UNFAIR, unit="shared", draws=3).worlds(20, random_state=1),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_call_leaves_no_trace(call: Callable[[], Any], stored: bool) -> None:
    pyro.clear_param_store()
    if stored:
        pyro.param("weight", torch.tensor(5.0))
        pyro.param("scale", torch.tensor(1.0), constraint=dist.constraints.positive)
    before = state()
    call()
    unchanged_since(before)
    pyro.clear_param_store()


def unchanged_since(before: tuple[Any, ...]) -> None:
    after = state()
    assert after[:-1] == before[:-1]
    assert list(after[-1]) == list(before[-1])
    for name, (identity, value, link) in before[-1].items():
        assert after[-1][name][0] == identity
        assert torch.equal(after[-1][name][1], value)
        assert after[-1][name][2] is link


def learnable(n: int) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        M = pyro.deterministic("M", torch.floor(slope * A + 2.0 * pyro.sample("U", dist.Normal(0.0, 1.0))))
        pyro.sample("Y", dist.Bernoulli(logits=M))


ROWS = pd.DataFrame({"A": [0, 1] * 40, "M": np.arange(80) % 7 - 3.0, "Y": np.arange(80) % 3 % 2})
X, Y = ROWS[["A", "M"]], ROWS["Y"]
HIRING = pf.simulate.scenario("hiring")
MODEL = Known(lambda rows: 1 / (1 + np.exp(-rows["M"])))
QUIET: dict[str, Any] = {"progress": False}


def given_units(seed: Any, **method: Any) -> Any:
    program = learnable if not method else units({"slope": normal()}, U=normal(), M=lambda v: v.slope * v.A + v.U)
    sem = SEM(program, UNFAIR, posterior={"slope": [0.5]})
    return sem.counterfactual(X[:1], draws=20, random_state=seed, **method).noise["U", "mean"]


def posterior(seed: Any, **method: Any) -> Any:
    smooth = units({"b": normal()}, M=lambda v: dist.Normal(v.b * v.A, 2.0))
    return pf.fit_posterior(smooth, X, GRAPH, draws=5, random_state=seed, **QUIET, **method).flat["b"]


def classifier(seed: Any) -> Any:
    dropout = lambda width: nn.Sequential(nn.Linear(width, 4), nn.Dropout(0.3), nn.Linear(4, 1))  # noqa: E731
    source = pf.IPW(UNFAIR, propensity="boosted", max_unsupported=1.0)
    model = pf.PenalizedClassifier(dropout, source=source, epochs=2, random_state=seed, **QUIET)
    return model.fit(X, Y).predict_proba(X)


def fair(seed: Any) -> Any:
    model = pf.PSCF(UNFAIR, epochs=1, samples=3, hidden=4, mmd=0.5, random_state=seed, **QUIET).fit(X, Y)
    model.to_inference_data(X, Y, draws=3)
    return np.r_[model.predict_proba(X)[:, 1], model.one_draw().predict_proba(X)[:, 1]]


def learned(seed: Any) -> Any:
    found = pf.learn_mechanisms(X, GRAPH, nodes=["M"], steps=20, random_state=seed, **QUIET)
    found.refit(), found.calibration(), found.to_inference_data(draws=2)
    return np.concatenate([each.numpy().ravel() for fit in found.fits.values() for each in fit.centre.values()])


def path(seed: Any) -> Any:
    model = pf.PenalizedClassifier("logistic", source=pf.IPW(UNFAIR, max_unsupported=1.0), epochs=1)
    settings: dict[str, Any] = {"strengths": [1.0], "seeds": [seed or 0], "n_boot": 2, "judge": model.source}
    return pf.penalty_path(model, X, Y, **settings, **QUIET).table["p_y0"]


def audited(seed: Any) -> Any:
    source = pf.IPW(UNFAIR, propensity="saturated", max_unsupported=1.0)
    return pf.audit({"m": MODEL}, source, ROWS, n_boot=3, random_state=seed, **QUIET).draws


def judged(seed: Any) -> Any:
    unfair = CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    q, noise = np.random.default_rng(0).normal(size=(2, 300))
    a = (q + noise[::-1] > 0).astype(int)
    boosted: dict[str, Any] = {"propensity": "boosted", "regression": "boosted", "random_state": seed}
    source = pf.OneStep(unfair, **boosted, form="prefix", folds=2, splits=1).fit(
        pd.DataFrame({"Q": q, "A": a, "M": a + q + noise})
    )
    return source.influence(lambda world: MODEL.score(world.rows)).ypi


SEEDED: dict[str, Callable[[Any], Any]] = {
    "SEM.truth": lambda seed: SEM(learnable, UNFAIR, posterior={"slope": [0.5]})
    .truth(MODEL, n=50, random_state=seed, decisions="score").mean_unfair_effect.value,
    "SEM of a seed": lambda seed: SEM(learnable, UNFAIR, posterior={"slope": [0.5]}, random_state=seed).nodes(30)[1],
    "counterfactual": given_units,
    "counterfactual by svi": lambda seed: given_units(seed, method="svi", tolerance=1.0),
    "counterfactual by nuts": lambda seed: given_units(seed, method="nuts", tolerance=1.0),
    "fit_posterior by svi": lambda seed: posterior(seed, method="svi", steps=20),
    "fit_posterior by nuts": lambda seed: posterior(seed, warmup=5, chains=1),
    "learn_mechanisms": learned,
    "PenalizedClassifier": classifier,
    "PSCF": fair,
    "OneStep": judged,
    "audit": audited,
    "penalty_path": path,
    "Dataset.split": lambda seed: pf.datasets.load_german().split(seed)[0].index,
    "Scenario.draw": lambda seed: HIRING.draw(40, random_state=seed),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_decides_and_global_state_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in ("WARMUP", "STEPS"):
        monkeypatch.setattr(importance, steps, 10)
    pyro.clear_param_store()
    pyro.param("AutoNormal.locs.b", torch.tensor(3.0))
    before = state()
    first, other = np.asarray(SEEDED[name](0)), np.asarray(SEEDED[name](1))
    SEEDED[name](None)
    unchanged_since(before)
    torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002
    np.testing.assert_array_equal(SEEDED[name](0), first)
    assert not np.array_equal(other, first)
    pyro.clear_param_store()


def test_parameters_that_the_store_holds_are_read() -> None:
    for value in (5.0, -1.0):
        pyro.clear_param_store()
        pyro.param("weight", torch.tensor(value))
        first, second = SEM(program, UNFAIR).nodes(4, random_state=0)
        np.testing.assert_allclose(second["M"] - first["M"], value, rtol=1e-5)
    pyro.clear_param_store()


def test_an_optimiser_still_finds_its_parameters() -> None:
    pyro.clear_param_store()
    held = pyro.param("held", torch.tensor(1.0))
    with isolated(0):
        pass
    assert held.unconstrained() is pyro.param("held").unconstrained()  # type: ignore[attr-defined]
    pyro.clear_param_store()


def test_seeds() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.normal()), torch.rand(()).item()  # noqa: NPY002

    with isolated(5):
        one = drawn()
    with isolated(5):
        assert drawn() == one
        set_seed(5)
        assert drawn() == one
    with isolated(-1):
        assert drawn() != one
    assert seed_from(7) == 7
    assert seed_from(np.int64(7)) == 7
    assert seed_from(np.random.default_rng(0)) == seed_from(np.random.default_rng(0))
    assert 0 <= seed_from(None) < 2**31
    assert seed_from(None) != seed_from(None)
    for wrong in ("a", 1.5, [-1]):
        with pytest.raises(
            DataError, match=r"random_state=.* must be a non-negative integer below 2\^63, a NumPy generator, or None"
        ):
            seed_from(wrong)  # type: ignore[arg-type]
