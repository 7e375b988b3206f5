"""Draws of the guide that leave a row's own value no probability."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import pyrofair as pf

GRAPH = pf.CausalGraph("{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y")


@pytest.fixture(scope="module")
def model() -> pf.PSCF:
    """A model of integers with little noise besides their latent variable."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"A": rng.integers(0, 2, 600), "Q": rng.normal(size=600)})
    X["D"] = np.floor(10 * (X["A"] + X["Q"] + rng.normal(size=600))).astype(int)
    y = (X["D"] + 10 * rng.normal(size=600) > 5).astype(int)
    found = pf.PSCF(
        GRAPH.unfair("A -> D -> Y"), own_noise=0.1, epochs=60, batch_size=50, random_state=0, progress=False
    )
    found.fit(X, y)
    found.rows = X
    return found


def moved(model: pf.PSCF, *, loc: float = 0.0, scale: float = 0.0) -> pf.PSCF:
    """The model with a guide whose means, and standard deviations before softplus, are moved."""
    found = copy.copy(model)
    found.guide_ = copy.deepcopy(model.guide_)
    with torch.no_grad():
        for network in found.guide_.networks:
            network[-1].bias += torch.tensor([loc, scale])
    found._read = None
    return found


@pytest.mark.parametrize("draws", [1, 50])
@pytest.mark.some(1)
def test_the_median_takes_the_place_of_draws_too_far_out(model: pf.PSCF, draws: int) -> None:
    rows: Any = model.rows
    wide = moved(model, scale=4.0).set_params(samples=draws)
    found = wide.predict_proba(rows)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(wide.predict_proba(rows.iloc[40:80]), found[40:80], atol=1e-7)
    fair = wide.fair_values(rows)["D"]
    mine = rows["A"].to_numpy() == 1
    np.testing.assert_array_equal(fair[:, ~mine], np.broadcast_to(rows["D"].to_numpy()[~mine], fair[:, ~mine].shape))
    # The row is met either way: its fair value is as far below as the effect of A, whatever was drawn.
    near = model.fair_values(rows)["D"].mean(0)[mine]
    assert np.abs(fair.mean(0)[mine] - near).mean() < 0.25 * np.abs(near - rows["D"].to_numpy()[mine]).mean()


def test_a_row_that_hardly_any_noise_explains_is_named(model: pf.PSCF) -> None:
    rows: Any = model.rows
    with pytest.warns(pf.PyrofairWarning, match=r"Row \d+: D = .* lies so far in a tail of its distribution"):
        moved(model, loc=30.0).predict_proba(rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The loss may not have settled")
def test_far_draws_of_two_nodes_do_not_depend_on_other_rows() -> None:
    """A row whose second node is far out gives way to the median, also beside a row whose first node is."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"A": rng.integers(0, 2, 600), "Q": rng.normal(size=600)})
    for name in "DE":
        X[name] = np.floor(10 * (X["A"] + X["Q"] + rng.normal(size=600))).astype(int)
    y = (X["D"] + X["E"] + 10 * rng.normal(size=600) > 10).astype(int)
    graph = pf.CausalGraph("{A Q} -> {D E}; {A Q D E} -> Y", sensitive="A", outcome="Y")
    unfair = graph.unfair("A -> D -> Y", "A -> E -> Y")
    usual: dict[str, Any] = {"own_noise": 0.1, "epochs": 60, "batch_size": 50, "random_state": 0, "progress": False}
    wide = moved(pf.PSCF(unfair, **usual).fit(X, y), scale=1.0)
    rows = X[X["A"] == 1].iloc[:150]
    whole = wide.predict_proba(rows)
    for i in range(0, 150, 10):
        np.testing.assert_allclose(wide.predict_proba(rows.iloc[i : i + 10]), whole[i : i + 10], rtol=0, atol=1e-9)
