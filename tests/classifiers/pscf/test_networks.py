"""The default model of PSCF and its guide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from pyro import poutine
from torch import Tensor

from pyrofair import CausalGraph
from pyrofair.classifiers.pscf.networks import (
    FixedSpread,
    Latent,
    LatentSEM,
    encoders_of,
    latents_of,
    spread_besides,
)
from pyrofair.graph.causal_graph import unused_name
from pyrofair.mechanisms.encoders import Encoders
from pyrofair.mechanisms.families import Binary, Categorical, Continuous, Integer, Positive, choose_family

GRAPH = CausalGraph("A -> D; A -> M; {A D M} -> Y", sensitive="A", outcome="Y", columns={"D": ["d", "e"]})


def make_table(n: int = 50) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    numbers = {name: rng.normal(size=n) for name in ("d", "e", "M")}
    return numbers | {name: rng.integers(0, 2, n) for name in "AY"}


def make_sem(size: int | None = 2, graph: CausalGraph = GRAPH, **settings: Any) -> LatentSEM:
    table = pd.DataFrame(make_table())
    families = {name: choose_family(table[name]) for node in graph.order for name in graph.columns[node]}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LatentSEM(graph, families, latents_of(graph, ["D"], size, [*families]), hidden=10, **settings)


def as_tensors(table: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(each, dtype=torch.float32) for name, each in table.items()}


def test_columns_share_no_weights() -> None:
    sem = make_sem()
    guide = encoders_of(sem, (5,))
    parameters = [{id(p) for p in part.parameters()} for part in (*sem.networks, *guide.networks)]
    assert all(len(each) > 0 for each in parameters)
    assert sum(map(len, parameters)) == len(set().union(*parameters))
    assert sum(map(len, parameters)) == len([*sem.parameters(), *guide.parameters()])


@pytest.mark.parametrize("column", ["d", "e"])
def test_a_latent_variable_of_a_node_reaches_each_of_its_columns_and_no_other(column: str) -> None:
    sem, values = make_sem(), as_tensors(make_table())
    latent = torch.zeros(50, 2, requires_grad=True)
    found = sem.distribution(column, values, latent)
    (gradient,) = torch.autograd.grad(found.log_prob(values[column]).sum(), latent)
    assert (gradient.abs() > 0).all()
    assert not torch.allclose(found.mean, sem.distribution(column, values, latent + 1).mean)
    for other in "AMY":
        low, high = (sem.distribution(other, values, latent + shift).log_prob(values[other]) for shift in (0, 1))
        assert torch.equal(low, high)
    assert sem.reads("e") == ["A", "d"]


def test_each_column_has_a_latent_variable_of_its_own_by_default() -> None:
    assert latents_of(GRAPH, ["D", "M"], None, []) == {
        "H_d": Latent(1, ("d",)),
        "H_e": Latent(1, ("e",)),
        "H_M": Latent(1, ("M",)),
    }
    assert latents_of(GRAPH, ["D"], 3, []) == {"H_D": Latent(3, ("d", "e"))}
    assert latents_of(GRAPH, ["M"], None, ["H_M", "H_M_"]) == {"H_M__": Latent(1, ("M",))}
    assert unused_name("x", ["y"]) == "x"


def test_the_guide_reads_a_column_and_its_causes() -> None:
    alone, together = (encoders_of(make_sem(size), (5,)) for size in (None, 2))
    assert alone.reads == {"H_d": ("A", "d"), "H_e": ("A", "d", "e")}
    assert together.reads == {"H_D": ("A", "d", "e")}
    rows = as_tensors(make_table())
    loc, scale = together.posterior("H_D", rows)
    assert loc.shape == scale.shape == (50, 2)
    assert (scale > 0).all()
    unread = rows | {"M": rows["M"] + 1.0, "Y": 1 - rows["Y"]}
    assert torch.equal(loc, together.posterior("H_D", unread)[0])


@pytest.mark.parametrize("prior", ["normal", "learned", "mixture"])
@pytest.mark.parametrize("size", [None, 2])
def test_program_and_guide_have_the_same_latent_sites(prior: Any, size: int | None) -> None:
    sem = make_sem(size, prior=prior)
    with pyro.validation_enabled(True):
        program = poutine.trace(sem).get_trace(7)
        guide = poutine.trace(encoders_of(sem, (5,))).get_trace(as_tensors(make_table(7)))
    for site, latent in sem.latents.items():
        for trace in (program, guide):
            assert trace.nodes[site]["value"].shape == (7, latent.size)
            trace.compute_log_prob()
            assert trace.nodes[site]["log_prob"].shape == (7,)
    assert {name for name, site in program.nodes.items() if site["type"] == "sample"} == {
        *sem.order,
        *sem.latents,
        sem.plate,
    }


@pytest.mark.parametrize("prior", ["normal", "learned", "mixture"])
def test_a_prior_is_a_density_and_what_can_be_learned_of_it_moves(prior: Any) -> None:
    sem = make_sem(1, prior=prior)
    h = torch.linspace(-12, 12, 4001).unsqueeze(1)
    density = sem.priors[0]().log_prob(h).exp()
    assert float(torch.trapezoid(density, h[:, 0]).detach()) == pytest.approx(1.0, abs=1e-4)
    numbers = [*sem.priors.parameters()]
    assert len(numbers) == {"normal": 0, "learned": 2, "mixture": 3}[prior]
    if numbers:
        density.log().sum().backward()
        assert all(bool((each.grad != 0).any()) for each in numbers)


def test_a_fixed_spread_leaves_the_rest_to_the_latent_variable() -> None:
    continuous, positive = Continuous(3.0, 2.0), Positive(1.0, 0.5)
    integer = Integer(0, 50, 20.0, 8.0)
    assert spread_besides(continuous, 0.5, None) is continuous
    for kept in (Binary(0.4), Categorical(("a", "b", "c"), (0.2, 0.3, 0.5))):
        assert spread_besides(kept, 0.5, 0.1) is kept
    narrow = spread_besides(continuous, 0.5, 0.1)
    assert isinstance(narrow, FixedSpread)
    assert narrow.own == pytest.approx(0.05)
    made = narrow.distribution(torch.tensor([[0.0], [1.0]]))
    assert made.mean.tolist() == pytest.approx([3.0, 5.0])
    assert made.stddev.tolist() == pytest.approx([0.1, 0.1])
    log = spread_besides(positive, 1.0, 0.2).distribution(torch.tensor([[1.0]]))
    assert (float(log.base_dist.mean), float(log.base_dist.stddev)) == (pytest.approx(1.5), pytest.approx(0.1))
    rounded = spread_besides(integer, 1e-3, 0.1)
    assert isinstance(rounded, FixedSpread)
    assert rounded.own * integer.sd == pytest.approx(0.25)  # a quarter of a unit at least
    support = torch.arange(51.0)
    p = rounded.distribution(torch.zeros(1, 1)).log_prob(support).exp()
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(p @ support) == pytest.approx(20.0, abs=1e-3)


def test_a_guide_of_a_positive_latent_variable_is_a_transformed_normal_one() -> None:
    from torch.distributions import constraints

    guide = Encoders({"x": Continuous(0.0, 1.0)}, {"H": ("x",)}, {"H": ((), constraints.positive)}, hidden=(4,))
    rows = {"x": torch.linspace(-2, 2, 9)}
    trace = poutine.trace(guide).get_trace(rows)
    value = trace.nodes["H"]["value"]
    assert value.shape == (9,)
    assert (value > 0).all()
    loc, scale = (each.squeeze(1) for each in guide.posterior("H", rows))
    log = value.log()
    by_hand = -0.5 * ((log - loc) / scale) ** 2 - scale.log() - 0.5 * math.log(2 * math.pi) - log
    trace.compute_log_prob()
    torch.testing.assert_close(trace.nodes["H"]["log_prob"], by_hand, rtol=1e-4, atol=1e-4)
