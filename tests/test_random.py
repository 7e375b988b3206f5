"""Calls leave the global generators and the parameter store as they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pyrofair._random import isolated, seed_from, set_seed
from pyrofair.exceptions import DataError, GraphError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.programs.sites import read_sites
from pyrofair.sources.sem import SEM


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
    after = state()
    assert after[:-1] == before[:-1]
    assert list(after[-1]) == list(before[-1])
    for name, (identity, value, link) in before[-1].items():
        assert after[-1][name][0] == identity
        assert torch.equal(after[-1][name][1], value)
        assert after[-1][name][2] is link
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
    for wrong in ("a", 1.5, [-1]):
        with pytest.raises(
            DataError, match=r"random_state=.* must be a non-negative integer below 2\^63, a NumPy generator, or None"
        ):
            seed_from(wrong)  # type: ignore[arg-type]
