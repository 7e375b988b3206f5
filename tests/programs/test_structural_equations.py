"""Structural equations of a program whose common causes its graph does not declare."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.reparam import LocScaleReparam, TransformReparam

from pyrofair import SEM, CausalGraph, GraphError, PyrofairWarning, fit_posterior
from pyrofair.inference.abduction import abduct
from pyrofair.inference.likelihood import PosteriorError
from pyrofair.programs.provenance import Program
from pyrofair.programs.structural_equations import read_equations
from tests.programs.models import coin, graph, normal, through, units

confounded = units(
    H=normal(),
    U=normal(),
    D=lambda v: dist.Normal(v.A + v.H, 1.0),
    M=lambda v: v.A + v.H + v.U,
    U_Y=normal(),
    Y=lambda v: v.D + v.M + v.U + v.U_Y,
)
"""H feeds D and M, and U feeds M and the outcome."""


EDGES = "A -> D; A -> M; {D M} -> Y"


def read(program: Any, edges: str, **settings: Any) -> None:
    read_equations(program, graph(edges, **settings).unfair("A -> D -> Y"))


def test_a_common_cause_that_the_graph_does_not_declare() -> None:
    with pytest.warns(PyrofairWarning, match="nodes 'D', 'M' have the site 'H' of the program in common") as w:
        read(confounded, EDGES)
    assert [each.filename for each in w] == [__file__]
    assert "CausalGraph('H -> {D M}; ...', latent=['H'])" in str(w[0].message)
    assert "'U'" not in str(w[0].message)


def test_noise_of_the_sensitive_attribute_counts() -> None:
    program = units(
        U=normal(),
        A=lambda v: dist.Bernoulli(logits=v.U),
        step=lambda v: dist.Normal(v.U, 1.0),
        D=lambda v: v.A + v.step,
        M=lambda v: v.A + v.step + v.D,
    )
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


# -- plates and handlers ----------------------------------------------------------------------------------------------

UNFAIR = through("M")
CHAIN = UNFAIR.graph


def drawn(distribution: Any, **plate: Any) -> Program:
    """M is drawn from a distribution that reads A."""

    def program(n: int) -> None:
        with pyro.plate("units", n, **plate):
            A = pyro.sample("A", dist.Bernoulli(0.4))
            M = pyro.sample("M", distribution(A))
            pyro.sample("Y", dist.Bernoulli(logits=M))

    return program


@pytest.mark.parametrize("centered", [0.0, 0.5, 1.0, None])
def test_a_reparametrised_node_is_what_it_was(centered: float | None) -> None:
    program = poutine.reparam(drawn(lambda A: dist.Normal(3 * A, 2.0)), {"M": LocScaleReparam(centered)})
    found = CausalGraph.from_pyro(program, nodes=["A", "M", "Y"], sensitive="A", outcome="Y")
    assert [edge for edge in found.edges if not {*edge} & {*found.latent}] == [("A", "M"), ("M", "Y")]
    baseline, switched = SEM(program, UNFAIR).nodes(2000, random_state=0)
    np.testing.assert_allclose(switched["M"] - baseline["M"], 3.0, atol=1e-5)
    assert abs(baseline["M"].mean()) < 4 * 2 / 2000**0.5
    assert abs(baseline["M"].std() - 2.0) < 4 * 2 / 4000**0.5


def test_a_transformed_node_is_what_it_was() -> None:
    program = poutine.reparam(drawn(lambda A: dist.LogNormal(A, 1.0)), {"M": TransformReparam()})
    baseline, switched = SEM(program, UNFAIR).nodes(500, random_state=0)
    np.testing.assert_allclose(np.log(switched["M"] / baseline["M"]), 1.0, atol=1e-4)


def test_noise_of_a_reparametrised_node_is_inferred() -> None:
    program = units(A=coin(0.4), E=normal(1.0, 2.0), M=lambda v: 3 * v.A + v.E)
    reparametrised = poutine.reparam(program, {"E": LocScaleReparam(0.0)})
    given = pd.DataFrame({"A": [0, 1], "M": [0.5, 4.0]})
    assert abduct(reparametrised, given).do({"A": 1}).rows["M"].round(4).tolist() == [3.5, 4.0]


def test_a_reparametrised_node_has_no_density_to_fit() -> None:
    program = units({"w": normal(0.0, 3.0)}, M=lambda v: dist.Normal(v.w * v.A, 2.0))
    df = pd.DataFrame({"A": [0, 1], "M": [0.0, 1.0]})
    with pytest.raises(PosteriorError, match=r"The node 'M' is reparametrised \(poutine.reparam\).*Leave it out"):
        fit_posterior(poutine.reparam(program, {"M": LocScaleReparam(0.0)}), df, CHAIN)


def test_a_plate_may_have_another_dimension() -> None:
    one, other = (SEM(drawn(lambda A: dist.Normal(A, 1.0), **dim), UNFAIR) for dim in ({"dim": -2}, {}))
    for left, right in zip(one.nodes(3, random_state=0), other.nodes(3, random_state=0), strict=True):
        pd.testing.assert_frame_equal(left, right)


def test_a_plate_in_another_dimension_than_what_it_holds_is_named() -> None:
    program = drawn(lambda A: dist.Normal(torch.zeros(A.shape[0]), 1.0), dim=-2)
    with pytest.raises(GraphError, match=r"'M' has the shapes .*Their plate has another dimension"):
        SEM(program, UNFAIR).nodes(3, random_state=0)
