"""PSCF predicts for rows whose values are possible and far in a tail of what it learned."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
from pyro import poutine

import pyrofair as pf


def program(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        D = pyro.sample("D", dist.Poisson(1.0 + A))
        pyro.sample("Y", dist.Bernoulli(logits=0.1 * D - A))


UNFAIR = pf.CausalGraph("A -> D; {A D} -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y")
ROWS = pd.DataFrame({"A": [0, 1, 1], "D": [60, 60, 3]})


def test_a_value_whose_step_of_the_distribution_function_rounds_to_nothing_is_replayed() -> None:
    pyro.set_rng_seed(0)
    sites = poutine.trace(program).get_trace(200).nodes
    table = pd.DataFrame({name: sites[name]["value"].double().numpy() for name in "ADY"})
    model = pf.PSCF(UNFAIR, model=program, progress=False, random_state=0).fit(table[["A", "D"]], table["Y"])
    fair = model.fair_values(ROWS)["D"]
    np.testing.assert_array_equal(fair[:, 0], 60.0)
    assert (fair[:, 1] > 10.0).all()  # the last rank that a number can hold
    assert (fair[:, 2] <= 3.0).all()
    assert np.isfinite(model.predict_proba(ROWS)).all()
    with pytest.raises(pf.exceptions.DataError, match="D = 60 given A=0 has no probability"):
        pf.SEM(program, UNFAIR).counterfactual(ROWS, random_state=0)  # no exact counterfactual
