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
    LatentSEM,
    encoders_of,
    latents_of,
    likelihood_of,
    spread_besides,
)
from pyrofair.graph.causal_graph import unused_name
from pyrofair.inference.likelihood import read_likelihood
from pyrofair.mechanisms.encoders import Encoders
from pyrofair.mechanisms.families import Binary, Categorical, Continuous, Integer, Positive, choose_family
from pyrofair.programs.structural_equations import read_equations

GRAPH = CausalGraph("A -> D; A -> M; {A D M} -> Y", sensitive="A", outcome="Y", columns={"D": ["d", "e"]})


def make_table(n: int = 50) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    numbers = {name: rng.normal(size=n) for name in ("d", "e", "M")}
    return numbers | {name: rng.integers(0, 2, n) for name in "AY"}


def make_sem(graph: CausalGraph = GRAPH) -> LatentSEM:
    table = pd.DataFrame(make_table())
    families = {name: choose_family(table[name]) for node in graph.order for name in graph.columns[node]}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LatentSEM(graph, families, latents_of(graph, ["D"], [*families]), hidden=10)


def as_tensors(table: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(each, dtype=torch.float32) for name, each in table.items()}


def test_columns_share_no_weights() -> None:
    sem = make_sem()
    guide = encoders_of(sem)
    parameters = [{id(p) for p in part.parameters()} for part in (*sem.networks, *guide.networks)]
    assert all(len(each) > 0 for each in parameters)
    assert sum(map(len, parameters)) == len(set().union(*parameters))
    assert sum(map(len, parameters)) == len([*sem.parameters(), *guide.parameters()])


@pytest.mark.parametrize("column", ["d", "e"])
def test_a_latent_variable_reaches_its_column_and_no_other(column: str) -> None:
    sem, values = make_sem(), as_tensors(make_table())
    latent = torch.zeros(50, 1, requires_grad=True)
    found = sem.distribution(column, values, latent)
    (gradient,) = torch.autograd.grad(found.log_prob(values[column]).sum(), latent)
    assert (gradient.abs() > 0).all()
    assert not torch.allclose(found.mean, sem.distribution(column, values, latent + 1).mean)
    for other in "AMY":
        low, high = (sem.distribution(other, values, latent + shift).log_prob(values[other]) for shift in (0, 1))
        assert torch.equal(low, high)
    assert sem.reads("e") == ["A", "d"]


def test_each_column_has_a_latent_variable_of_its_own() -> None:
    assert latents_of(GRAPH, ["D", "M"], []) == {"H_d": "d", "H_e": "e", "H_M": "M"}
    assert latents_of(GRAPH, ["M"], ["H_M", "H_M_"]) == {"H_M__": "M"}
    assert unused_name("x", ["y"]) == "x"


def test_the_guide_reads_a_column_and_its_causes() -> None:
    guide = encoders_of(make_sem())
    assert guide.reads == {"H_d": ("A", "d"), "H_e": ("A", "d", "e")}
    rows = as_tensors(make_table())
    loc, scale = guide.posterior("H_e", rows)
    assert loc.shape == scale.shape == (50, 1)
    assert (scale > 0).all()
    unread = rows | {"M": rows["M"] + 1.0, "Y": 1 - rows["Y"]}
    assert torch.equal(loc, guide.posterior("H_e", unread)[0])


def test_program_and_guide_have_the_same_latent_sites() -> None:
    sem = make_sem()
    with pyro.validation_enabled(True):
        program = poutine.trace(sem).get_trace(7)
        guide = poutine.trace(encoders_of(sem)).get_trace(as_tensors(make_table(7)))
    for site in sem.latents:
        for trace in (program, guide):
            assert trace.nodes[site]["value"].shape == (7, 1)
            trace.compute_log_prob()
            assert trace.nodes[site]["log_prob"].shape == (7,)
    assert {name for name, site in program.nodes.items() if site["type"] == "sample"} == {
        *sem.order,
        *sem.latents,
        sem.plate,
    }


def test_what_the_program_reads_is_what_running_it_shows() -> None:
    sem = make_sem()
    unfair = GRAPH.unfair("A -> Y", "A -> D -> Y")
    known, found = sem.equations(unfair), read_equations(sem, unfair)
    assert known.node_of == found.node_of
    assert {site: {*read} for site, read in known.info.reads.items()} == {
        site: {*read} for site, read in found.info.reads.items()
    }
    for name in ("sites", "random", "observed", "parameters", "shapes", "dtypes", "nominal"):
        assert {*getattr(known.info, name)} == {*getattr(found.info, name)}
    assert (known.info.shapes, known.info.dtypes) == (found.info.shapes, found.info.dtypes)
    rows = as_tensors(make_table())
    made, read = (
        likelihood_of(sem, known, rows),
        read_likelihood(sem, pd.DataFrame(make_table()), GRAPH, units=True, numbers=True),
    )
    assert made.latent == read.latent
    assert made.rows.keys() == read.rows.keys()
    assert made.axes == read.axes
    for name in ("inverted", "idle", "parameters", "derived", "evidence", "curved"):
        assert not getattr(made, name)
        assert not getattr(read, name)


def test_a_fixed_spread_leaves_the_rest_to_the_latent_variable() -> None:
    continuous, positive = Continuous(3.0, 2.0), Positive(1.0, 0.5)
    integer = Integer(0, 50, 20.0, 8.0)
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
