"""Does a program say what its graph says? Common causes that the graph does not declare."""

from __future__ import annotations

import warnings
from typing import Any

import pyro
import pyro.distributions as dist
import pytest

from pyrofair.equations import read_equations
from pyrofair.exceptions import PyrofairWarning
from pyrofair.graph import CausalGraph
from pyrofair.simulate import scenario


def confounded(n: int) -> None:
    """H feeds D and M, and U feeds M and the outcome."""
    with pyro.plate("people", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        H, U = (pyro.sample(name, dist.Normal(0.0, 1.0)) for name in "HU")
        D = pyro.sample("D", dist.Normal(A + H, 1.0))
        M = pyro.deterministic("M", A + H + U)
        pyro.deterministic("Y", D + M + U + pyro.sample("U_Y", dist.Normal(0.0, 1.0)))


EDGES = "A -> D; A -> M; {D M} -> Y"


def read(program: Any, edges: str, **settings: Any) -> None:
    read_equations(program, CausalGraph(edges, sensitive="A", outcome="Y", **settings).unfair("A -> D -> Y"))


def test_a_common_cause_that_the_graph_does_not_declare() -> None:
    with pytest.warns(PyrofairWarning, match="nodes 'D', 'M' have the site 'H' of the program in common") as w:
        read(confounded, EDGES)
    assert [each.filename for each in w] == [__file__]
    assert "CausalGraph('H -> {D M}; ...', latent=['H'])" in str(w[0].message)
    assert "'U'" not in str(w[0].message)


def test_noise_of_the_sensitive_attribute_counts() -> None:
    def program(n: int) -> None:
        with pyro.plate("people", n):
            U = pyro.sample("U", dist.Normal(0.0, 1.0))
            A = pyro.sample("A", dist.Bernoulli(logits=U))
            step = pyro.sample("step", dist.Normal(U, 1.0))
            D = pyro.deterministic("D", A + step)
            pyro.deterministic("M", A + step + D)

    with pytest.warns(PyrofairWarning) as w:
        read(program, "A -> D; {A D} -> M; {D M} -> Y")
    assert [str(each.message).split(" of the program")[0] for each in w] == [
        "The nodes 'A', 'D', 'M' have the site 'U'",
        "The nodes 'D', 'M' have the site 'step'",
    ]


@pytest.mark.parametrize("name", ["H", "talent"])
def test_declared_common_causes_are_fine_by_any_name(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(confounded, f"{EDGES}; {name} -> {{D M}}", latent=[name])
        graph = CausalGraph.from_pyro(confounded, nodes=["A", "D", "M", "Y"], sensitive="A", outcome="Y")
        read_equations(confounded, graph.unfair("A -> D -> Y"))


def test_another_latent_node_does_not_make_up_for_it() -> None:
    with pytest.warns(PyrofairWarning, match="nodes 'D', 'M' have the site 'H'"):
        read(confounded, f"{EDGES}; L -> {{D Y}}", latent=["L"])


@pytest.mark.parametrize("name", ["hiring", "additive", "latent"])
def test_the_papers_scenarios_are_fine(name: str) -> None:
    paper = scenario(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_equations(paper.program, paper.unfair)
