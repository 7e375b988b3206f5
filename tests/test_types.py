"""Buffers beside a program, networks in it and integers: values take the types that the program takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from pyrofair import SEM, CausalGraph, DataError, fit_posterior
from pyrofair.inference import abduct, predictive

P = torch.tensor([0.2, 0.7])
ASSIGNED = pytest.mark.filterwarnings("ignore:The program.*torch")  # what is assigned into a buffer is not followed
SHORT = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
LONG = CausalGraph("A -> M -> D -> Y", sensitive="A", outcome="Y")


def network(kind: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return 2 x + 1/2 as a network of one layer."""
    layer = torch.nn.Linear(1, 1).to(kind)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(0.5)
    return lambda x: cast(Tensor, layer(x[..., None])[..., 0])


SINGLE, DOUBLE = network(torch.float32), network(torch.float64)


class Module(pyro.nn.PyroModule[torch.nn.Module]):  # type: ignore[misc]
    """A program with a layer and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyro.nn.PyroModule[torch.nn.Linear](1, 1)
        with torch.no_grad():
            self.layer.weight.fill_(2.0)
            self.layer.bias.fill_(0.5)
        self.register_buffer("start", torch.tensor([0.0, 0.25]))

    def forward(self, n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Normal(0.0, 1.0))
            pyro.deterministic("M", self.layer(A[..., None])[..., 0] + self.start[A.long()] + U)


def assigned(A: Tensor, U: Tensor) -> Tensor:
    out = torch.zeros(A.shape, dtype=torch.float32)
    out[A > 0] = P[1]
    return out + U


# What is added to M where A turns from 0 to 1.
COMPUTED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {
    "indexed buffer": (lambda A, U: P[A.long()] + U, 0.5),
    "half": (lambda A, U: P.half()[A.long()] + U, 0.5),
    "double": (lambda A, U: P.double()[A.long()] + U, 0.5),
    "whole": (lambda A, U: torch.tensor([2, 7])[A.long()] + U, 5.0),
    "truth values": (lambda A, U: torch.tensor([False, True])[A.long()] + U, 1.0),
    "where": (lambda A, U: torch.where(A > 0, P[1], P[0]) + U, 0.5),
    "assignment": (assigned, 0.7),
    "matmul": (lambda A, U: (A[..., None] @ torch.tensor([[2.0]]))[..., 0] + U, 2.0),
    "network": (lambda A, U: SINGLE(A) + U, 2.0),
    "network of the noise": (lambda A, U: A + 0.5 * SINGLE(U), 1.0),
    "double network": (lambda A, U: DOUBLE(A.double()) + U, 2.0),
    "cast": (lambda A, U: SINGLE(A.float()) + U.float(), 2.0),
    "lerp": (lambda A, U: torch.lerp(P[0].expand(A.shape), P[1].expand(A.shape), A) + U, 0.5),
}


def computed(equation: Callable[[Tensor, Tensor], Tensor]) -> Callable[[int], None]:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Normal(0.0, 1.0))
            pyro.deterministic("M", equation(A, U))

    return program


@ASSIGNED
@pytest.mark.parametrize("kind", [*COMPUTED, "module"])
def test_a_computed_node_takes_any_buffer(kind: str) -> None:
    program, effect = (Module(), 2.25) if kind == "module" else (computed(COMPUTED[kind][0]), COMPUTED[kind][1])
    sem = SEM(program, SHORT.unfair("A -> M -> Y"))
    baseline, switched = sem.nodes(20, random_state=0)
    np.testing.assert_allclose(switched["M"] - baseline["M"], effect, atol=2e-3)
    rows = pd.DataFrame({"A": [0, 1, 1], "M": [0.3, 1.5, 0.1]})
    found = sem.counterfactual(rows, random_state=0)
    assert found.exact
    np.testing.assert_allclose(found.switched["M"], [0.3 + effect, 1.5, 0.1], atol=2e-3)
    np.testing.assert_allclose(found.baseline["M"], [0.3, 1.5 - effect, 0.1 - effect], atol=2e-3)


DRAWN: dict[str, Callable[[Tensor], Any]] = {
    "Bernoulli": lambda A: dist.Bernoulli(P[A.long()]),
    "Bernoulli of halves": lambda A: dist.Bernoulli(P.half()[A.long()]),
    "Bernoulli of doubles": lambda A: dist.Bernoulli(P.double()[A.long()]),
    "Bernoulli of a network": lambda A: dist.Bernoulli(logits=SINGLE(A)),
    "Categorical": lambda A: dist.Categorical(torch.stack([1.0 - P[A.long()], P[A.long()]], -1)),
    "Normal": lambda A: dist.Normal(P[A.long()], 1.0),
    "Poisson": lambda A: dist.Poisson(10.0 * P[A.long()]),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_a_drawn_node_takes_any_buffer(kind: str) -> None:
    """And so does what reads it, through a network that takes no other type than its own."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            M = pyro.sample("M", DRAWN[kind](A))
            pyro.sample("D", dist.Normal(SINGLE(M.float() if "N" not in kind else M), 1.0))

    rows = pd.DataFrame({"A": [0, 1], "M": [0.0, 1.0], "D": [0.1, 2.3]})
    found = SEM(program, LONG.unfair("A -> M -> D -> Y")).counterfactual(rows, draws=4000, random_state=0)
    np.testing.assert_allclose(found.switched[["M", "D"]].iloc[1], rows[["M", "D"]].iloc[1], atol=1e-6)
    if kind in ("Bernoulli", "Bernoulli of halves", "Bernoulli of doubles", "Categorical"):
        # u lies below .8 for the first, and above .3 for the second
        assert found.switched["M"][0] == pytest.approx(0.5 / 0.8, abs=0.04)
        assert found.baseline["M"][1] == pytest.approx(1.0 - 0.5 / 0.7, abs=0.04)
        assert found.switched["D"][0] == pytest.approx(0.1 + 2.0 * found.switched["M"][0], abs=1e-4)
    if kind == "Normal":
        np.testing.assert_allclose(found.switched["M"][0], 0.5, atol=1e-6)
        np.testing.assert_allclose(found.baseline["M"][1], 0.5, atol=1e-6)


@ASSIGNED
def test_what_is_assigned_to_few_units_counts() -> None:
    """A buffer of one type, filled with the values of units, some of which have none."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Normal(0.0, 1.0))
            M = pyro.deterministic("M", A + U)
            out = torch.zeros(M.shape, dtype=torch.float32)
            out[M > 0] = M[M > 0]
            pyro.sample("D", dist.Normal(out, 1.0))

    rows = pd.DataFrame({"A": [0, 1], "M": [-0.5, 1.5], "D": [0.0, 1.0]})
    sem = SEM(program, LONG.unfair("A -> M -> D -> Y"))
    found = sem.counterfactual(rows, random_state=0)
    np.testing.assert_allclose(found.switched[["M", "D"]].iloc[0], [0.5, 0.5], atol=1e-5)
    np.testing.assert_allclose(found.baseline[["M", "D"]].iloc[1], [0.5, 0.0], atol=1e-5)


def test_truth_values_are_a_node_of_their_own_type() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Uniform(0.0, 1.0))
            pyro.deterministic("M", P[A.long()] > U)

    rows = pd.DataFrame({"A": [0, 1], "M": [1.0, 0.0]})
    found = abduct(program, rows, draws=2000, random_state=0)
    assert found.noise["U", "mean"][0] == pytest.approx(0.1, abs=0.01)
    assert found.noise["U", "mean"][1] == pytest.approx(0.85, abs=0.01)
    assert found.do({"A": 1}).rows["M"].tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match=r"Row 0: M = 2, but in the program it is True or False \(bool\)"):
        abduct(program, rows.assign(M=[2.0, 0.0]))
    with pytest.raises(DataError, match="'M' is computed as bool, and gradients cannot be followed through it"):
        abduct(program, rows, method="svi", tolerance=0.1)


def by_level(n: int) -> None:
    """Have a parameter that is a place in a buffer."""
    k = pyro.sample("k", dist.Categorical(torch.tensor([0.5, 0.5])))
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        pyro.sample("M", dist.Normal(10.0 * P[k] + A, 1.0))


@pytest.mark.parametrize("draws", [[1], [1.0], np.array([1], dtype=np.int32), torch.tensor([1.0])])
def test_a_parameter_takes_the_type_of_its_prior(draws: Any) -> None:
    rows = pd.DataFrame({"A": [0, 1], "M": [7.5, 8.5]})
    sem = SEM(by_level, SHORT.unfair("A -> M -> Y"), posterior={"k": draws})
    assert sem.counterfactual(rows).switched["M"].tolist() == [8.5, 8.5]
    assert abduct(by_level, rows, parameters={"k": draws[0]}).do({"A": 1}).rows["M"].tolist() == [8.5, 8.5]
    assert predictive(by_level, {"k": draws}, n=2000, random_state=0)["M"].mean() == pytest.approx(7.5, abs=0.1)


def test_draws_in_float64_serve_a_network_in_float32() -> None:
    def program(n: int) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("M", SINGLE(b * A))

    found = predictive(program, {"b": np.array([0.25, 0.5]), "A": np.ones((2, 3))}, n=3)
    np.testing.assert_allclose(found["M"], np.array([[1.0] * 3, [1.5] * 3]))


def test_noise_in_float64_is_solved_for_in_a_posterior() -> None:
    """The density of M given b is that by hand, the noise passing through a network that takes float64 alone."""

    def program(n: int) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
            pyro.deterministic("M", b * A + DOUBLE(U))

    rows = pd.DataFrame({"A": [0.0, 1.0] * 20, "M": [0.5, 1.5] * 20})
    found = fit_posterior(program, rows, SHORT, method="svi", steps=800, draws=500, progress=False, random_state=0)
    precision = 1.0 + 20 / 4.0  # M - 1/2 ~ N(b A, 4), each row of A = 1 with 1
    assert found.flat["b"].mean() == pytest.approx((20 / 4.0) / precision, abs=0.1)
    assert found.flat["b"].std() == pytest.approx(precision**-0.5, rel=0.2)
