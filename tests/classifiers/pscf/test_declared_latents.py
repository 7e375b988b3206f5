"""PSCF with a program whose latent variable is a latent node of the graph."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

import pyrofair as pf

GRAPH = pf.CausalGraph("R -> {G L Y}; K -> {G L}; {G L} -> Y", sensitive="R", outcome="Y", latent=["K"])
PLAIN = pf.CausalGraph("R -> {G L Y}; G -> L; {G L} -> Y", sensitive="R", outcome="Y")
PATHS = ("R -> Y", "R -> L -> Y")


def program(n: int) -> None:
    with pyro.plate("students", n):
        R = pyro.sample("R", dist.Bernoulli(0.5))
        K = pyro.sample("K", dist.Normal(0.0, 1.0))
        G = pyro.sample("G", dist.Normal(0.8 * K - 0.5 * R, 0.5))
        L = pyro.sample("L", dist.Poisson(torch.exp(2.0 + 0.4 * K - 0.3 * R)))
        pyro.sample("Y", dist.Bernoulli(logits=G + 0.2 * (L - 8.0) - 0.5 * R))


def unfitted(graph: pf.CausalGraph) -> pf.PSCF:
    return pf.PSCF(graph.unfair(*PATHS), model=program, epochs=60, batch_size=200, progress=False, random_state=0)


def test_a_declared_latent_node_is_inferred_as_one_that_the_graph_does_not_hold() -> None:
    pyro.set_rng_seed(0)
    sites = poutine.trace(program).get_trace(400).nodes
    table = pd.DataFrame({name: sites[name]["value"].double().numpy() for name in "RGLY"})
    X, y = table[["R", "G", "L"]], table["Y"]
    declared = unfitted(GRAPH).fit(X, y)
    with pytest.warns(pf.exceptions.PyrofairWarning, match="which the graph does not hold"):
        other = unfitted(PLAIN).fit(X, y)
    pd.testing.assert_frame_equal(declared.latents_, other.latents_)
    assert declared.latents_["reads"].tolist() == ["G, L"]
    assert declared.latents_["explained"].between(0.4, 0.9).all()
    np.testing.assert_array_equal(declared.predict_proba(X), other.predict_proba(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = declared.to_inference_data(X, draws=20)["posterior"]["K"].to_numpy()[0]
    assert np.corrcoef(drawn.mean(0), sites["K"]["value"])[0, 1] > 0.8
