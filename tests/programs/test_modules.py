"""A Pyro module is a program like a function with the same sites, at every entry that takes a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroParam, PyroSample
from torch import Tensor, nn

import pyrofair as pf
from pyrofair.exceptions import PyrofairWarning
from pyrofair.inference import abduct, predictive

GRAPH = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> M -> Y")
N = 60


def units(b: Tensor, c: Tensor, size: Tensor, n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        U = pyro.sample("U", dist.Normal(0.0, 1.0))
        M = pyro.deterministic("M", b * A + size * U)
        pyro.sample("Y", dist.Bernoulli(logits=c * M))


class Scores(PyroModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.c = PyroSample(dist.Normal(1.0, 0.1))


class Priors(PyroModule):  # type: ignore[misc]
    """Parameters that are drawn, its own and those of a part."""

    def __init__(self) -> None:
        super().__init__()
        self.b = PyroSample(dist.Normal(0.0, 5.0))
        self.scores = Scores()

    def forward(self, n: int) -> None:
        units(self.b, self.scores.c, torch.tensor(1.0), n)


def priors(n: int) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 5.0))
    units(b, pyro.sample("scores.c", dist.Normal(1.0, 0.1)), torch.tensor(1.0), n)


class Numbers(PyroModule):  # type: ignore[misc]
    """Parameters that are numbers: a constrained one, and those of a part that is a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.size = PyroParam(torch.tensor(2.0), constraint=dist.constraints.positive)
        self.line = PyroModule[nn.Linear](1, 1, bias=False)
        with torch.no_grad():
            self.line.weight.fill_(1.5)

    def forward(self, n: int) -> None:
        units(self.line.weight[0, 0], torch.tensor(1.0), self.size, n)


def numbers(n: int) -> None:
    units(torch.tensor(1.5), torch.tensor(1.0), torch.tensor(2.0), n)


TWINS: dict[str, tuple[Callable[[], Any], Callable[[int], None]]] = {
    "priors": (Priors, priors),
    "numbers": (Numbers, numbers),
}
DRAWN = {"b": np.linspace(1.9, 2.1, 2, dtype=np.float32), "scores.c": np.ones(2, dtype=np.float32)}


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    A = rng.integers(0, 2, N)
    M = 2.0 * A + rng.normal(size=N)
    return pd.DataFrame({"A": A, "M": M, "Y": (rng.random(N) < 1.0 / (1.0 + np.exp(-M))).astype(int)})


class Rule:
    classes_ = np.array([0, 1])

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        yes = 1.0 / (1.0 + np.exp(-X["M"].to_numpy() + 0.5 * X["A"].to_numpy()))
        return np.stack([1.0 - yes, yes], 1)


def sem(program: Any, twin: str) -> pf.SEM:
    return pf.SEM(program, UNFAIR, posterior=DRAWN if twin == "priors" else None, random_state=0)


def fitted(program: Any, method: Any) -> Any:
    settings: dict[str, Any] = {"draws": 10, "warmup": 10, "chains": 1, "steps": 20, "progress": False}
    return pf.fit_posterior(program, table(), GRAPH, method=method, random_state=0, **settings).flat


def worlds(program: Any, twin: str, method: Any) -> Any:
    width = 0.5 if method in ("nuts", "svi") else None
    settings: dict[str, Any] = {"method": method, "tolerance": width, "draws": 20, "random_state": 0}
    one = {name: values[:1] for name, values in DRAWN.items()} if twin == "priors" else None
    found = pf.SEM(program, UNFAIR, posterior=one).counterfactual(
        table()[["A", "M"]].head(3), **settings, predict=["Y"]
    )
    return found.baseline, found.switched


def effects(program: Any) -> Any:
    settings: dict[str, Any] = {"n": 200, "progress": False, "random_state": 0}
    return pf.effect_posterior(program, UNFAIR, Rule(), DRAWN, **settings).table


ENTRIES: dict[str, Callable[[Any, str], Any]] = {
    "SEM.worlds": lambda program, twin: sem(program, twin).nodes(50, random_state=1),
    "SEM.truth": lambda program, twin: sem(program, twin).truth(Rule(), n=500, random_state=1).table,
    "SEM.counterfactual": lambda program, twin: worlds(program, twin, "auto"),
    "audit": lambda program, twin: (
        pf.audit({"rule": Rule()}, sem(program, twin), table().drop(columns="Y"), random_state=0).table
    ),
    "from_pyro": lambda program, _: (
        pf.CausalGraph.from_pyro(program, sensitive="A", outcome="Y", nodes=["A", "M", "Y"]).edges
    ),
    "predictive": lambda program, twin: predictive(
        program, DRAWN if twin == "priors" else {"M": np.zeros((3, 5), dtype=np.float32)}, n=5, random_state=0
    ),
    "do": lambda program, _: seeded(pf.do(program, {"M": 1.0})),
}
WITH_PRIORS: dict[str, Callable[[Any, str], Any]] = {
    "fit_posterior, svi": lambda program, _: fitted(program, "svi"),
    "fit_posterior, nuts": lambda program, _: fitted(program, "nuts"),
    "effect_posterior": lambda program, _: effects(program),
    "SEM.counterfactual, svi": lambda program, twin: worlds(program, twin, "svi"),
    "SEM.counterfactual, nuts": lambda program, twin: worlds(program, twin, "nuts"),
    "abduct": lambda program, _: (
        abduct(program, table()[["A", "M"]].head(3), parameters={"b": 2.0, "scores.c": 1.0}, random_state=0).noise
    ),
}


def seeded(program: Callable[[int], Any]) -> Any:
    with pyro.poutine.trace() as tracer:
        pyro.set_rng_seed(0)
        program(5)
    sites: Any = tracer.trace.nodes
    return {name: site["value"].detach().numpy() for name, site in sites.items() if name in ("A", "M", "Y")}


def equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, each in one.items():
            np.testing.assert_array_equal(each, other[name], err_msg=name)
    elif isinstance(one, tuple) and isinstance(one[0], pd.DataFrame):
        for first, second in zip(one, other, strict=True):
            pd.testing.assert_frame_equal(first, second)
    elif isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize(
    ("entry", "twin"),
    [(entry, twin) for entry in ENTRIES for twin in TWINS] + [(entry, "priors") for entry in WITH_PRIORS],
)
def test_a_module_is_a_program_like_a_function(entry: str, twin: str) -> None:
    make, function = TWINS[twin]
    call, module = {**ENTRIES, **WITH_PRIORS}[entry], make()
    pyro.clear_param_store()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        equal(call(module, twin), call(function, twin))
    assert not list(pyro.get_param_store().keys()) or entry == "do"
