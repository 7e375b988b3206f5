"""Covariates handed over with a program: each unit has its own, at any index."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.base import clone
from torch import Tensor

from pyrofair import SEM, CausalGraph, DataError, do
from pyrofair.inference.abduction import abduct
from pyrofair.inference.posterior import fit_posterior, predictive
from pyrofair.programs.covariates import ROW, ProgramWithCovariates, RowOfTable, with_covariates
from pyrofair.programs.sites import read_sites
from tests.programs.models import Scores, graph, through

ROOT = Path(__file__).resolve().parents[2]
GRAPH = graph("covariates -> {age M}; {A age} -> M; {age M} -> Y", latent=["covariates"])
UNFAIR = GRAPH.unfair("A -> M -> Y")
EFFECT = torch.linspace(-2.0, 2.0, 41)


def program(n: int, covariates: dict[str, Tensor]) -> None:
    """M(1) - M(0) is need plus the effect of the region; age is a node of the graph."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        U = pyro.sample("U", dist.Normal(0.0, 1.0))
        gap = covariates["need"] + EFFECT[covariates["region"]]
        M = pyro.deterministic("M", A * gap + covariates["age"] / 10 + U)
        pyro.sample("Y", dist.Bernoulli(logits=M))


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    region = random.integers(0, 41, rows)
    return pd.DataFrame({"need": region + random.random(rows), "region": region, "age": random.normal(40, 9, rows)})


def gaps(rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = rows["need"].to_numpy() + EFFECT.double().numpy()[rows["region"].to_numpy()]
    return found


def given(rows: int, seed: int = 1) -> pd.DataFrame:
    """Individuals as the program makes them, with labels in random order."""
    random = np.random.default_rng(seed)
    df = table(rows, seed)
    df["A"] = random.integers(0, 2, rows)
    df["M"] = df["A"] * gaps(df) + df["age"] / 10 + random.normal(size=rows)
    df.index = pd.Index(random.permutation(rows))
    return df


def test_drawn_individuals_have_whole_rows_in_both_worlds() -> None:
    known = table(50)
    sem = SEM(with_covariates(program, known), UNFAIR)
    baseline, switched = sem.nodes(4000, random_state=0)
    assert list(baseline) == ["A", "age", "M", "Y"]
    np.testing.assert_array_equal(baseline["age"], switched["age"])
    row = known["age"].astype(np.float32).tolist()
    row_index = np.array([row.index(age) for age in baseline["age"].astype(np.float32)])
    np.testing.assert_allclose(switched["M"] - baseline["M"], gaps(known.iloc[row_index]), atol=1e-4)
    counts = np.bincount(row_index, minlength=50)
    assert counts.min() > 40
    assert counts.max() < 130
    again = clone(sem).nodes(4000, random_state=0)[0]
    pd.testing.assert_frame_equal(again, baseline)


@pytest.mark.parametrize("rows", [1, 7])
def test_given_individuals_have_their_own_covariates(rows: int) -> None:
    df = given(rows)
    sem = SEM(with_covariates(program, table(50)), UNFAIR)
    found = sem.counterfactual(df)
    assert found.exact
    gap = (found.switched["M"] - found.baseline["M"]).to_numpy()
    np.testing.assert_allclose(gap, gaps(df), rtol=1e-6)
    assert list(found.switched) == [name for name in df if name in ("age", "A", "M")]
    assert set(found.diagnostics["node"]) == {"age", "A", "M"}
    backwards = sem.counterfactual(df.iloc[::-1])
    pd.testing.assert_frame_equal(backwards.switched.loc[df.index], found.switched)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")  # of few draws
@pytest.mark.parametrize(
    "method", ["exact", "importance", *(pytest.param(each, marks=pytest.mark.slow) for each in ("nuts", "svi"))]
)
def test_every_method_of_abduction_reads_them(method: Any) -> None:
    df = given(3)
    settings: dict[str, Any] = {"draws": 200, "tolerance": None if method == "exact" else 0.02, "random_state": 0}
    found = abduct(with_covariates(program, table(50)), df, nodes=["A", "age", "M"], method=method, **settings)
    other = found.do({"A": 1 - df["A"]}).rows
    expected = df["M"] + (1 - 2 * df["A"]) * gaps(df)
    np.testing.assert_allclose(other["M"], expected, rtol=1e-6 if method == "exact" else 0.02)
    if method == "exact":
        moved = found.do({"age": df["age"] + 10}).rows
        np.testing.assert_allclose(moved["M"] - df["M"], 1.0, rtol=1e-6)


def test_the_graph_holds_them_as_nodes_or_as_a_common_cause() -> None:
    run = with_covariates(program, table(50))
    found = CausalGraph.from_pyro(run, nodes=["A", "age", "need", "region", "M", "Y"], sensitive="A", outcome="Y")
    assert set(found.edges) == {
        *((ROW, name) for name in ("age", "need", "region")),
        *((name, "M") for name in ("A", "age", "need", "region")),
        ("M", "Y"),
    }
    assert CausalGraph.from_pyro(run, nodes=["A", "M", "Y"], sensitive="A", outcome="Y").latent == ()
    assert read_sites(run).dtypes["region"] == torch.int64


def effect(n: int, covariates: dict[str, Tensor]) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 5.0))
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        pyro.sample("M", dist.Normal(w * A * covariates["need"], 1.0))


CHAIN = through("M").graph


def test_a_posterior_is_learned_from_the_rows_own_covariates() -> None:
    random = np.random.default_rng(0)
    df = pd.DataFrame({"A": random.integers(0, 2, 200), "need": random.normal(size=200)})
    df["M"] = 1.5 * df["A"] * df["need"] + random.normal(size=200)
    x = (df["A"] * df["need"]).to_numpy()
    exact = x @ df["M"].to_numpy() / (x @ x + 1 / 25)
    run = with_covariates(effect, df[["need"]])
    others = df.sample(frac=1.0, random_state=0)  # not in the order of the table
    found = fit_posterior(run, others, CHAIN, method="svi", steps=400, progress=False, random_state=0)
    assert abs(found.flat["w"].mean() - exact) < 0.03
    assert set(found.observed) == {"A", "M"}
    drawn = predictive(run, found, do={"A": 1}, draws=20, random_state=0)
    assert drawn["M"].shape == (20, 200)
    left = drawn["M"] - found.flat["w"][:: 500 // 20][:20, None] * drawn["need"]
    assert abs(left.std() - 1.0) < 0.03
    rows = SEM(run, CHAIN.unfair("A -> M -> Y"), posterior=found).counterfactual(df.head(5), draws=100, random_state=0)
    gap = (rows.switched["M"] - rows.baseline["M"]).to_numpy()
    np.testing.assert_allclose(gap, found.flat["w"].mean() * df["need"].head(5), atol=0.05)


def test_units_and_truth() -> None:
    run = with_covariates(program, table(50))
    sem = SEM(run, UNFAIR)

    truth = sem.truth(Scores(lambda X: X["M"] > X["age"] / 10 + 10), n=20_000, random_state=0)
    # Without the switch no unit passes (ten standard deviations); with it those with a gap above 10 - U do.
    gap = gaps(table(50))
    expected = torch.distributions.Normal(0.0, 1.0).cdf(torch.as_tensor(gap) - 10).mean().item()
    assert abs(truth.piu.value - expected) < 4 * (expected * (1 - expected) / 20_000) ** 0.5
    assert any("The covariates need, region, age are distributed as in the table" in each for each in sem.assumptions)
    shared = SEM(run, UNFAIR, unit="shared", draws=3)
    with pytest.raises(ValueError, match="the noise covariates in common"):
        shared.worlds(10, random_state=0)


def test_the_distribution_of_rows() -> None:
    distribution = RowOfTable(4).expand([2, 3])
    assert distribution.sample((5,)).shape == (5, 2, 3)
    assert distribution.log_prob(torch.tensor([0, 3, 4])).exp().tolist() == [[0.25, 0.25, 0.0]] * 2
    assert distribution.support.check(torch.tensor([-1, 0, 3, 4])).tolist() == [False, True, True, False]
    run = with_covariates(program, table(4))
    assert copy.deepcopy(run) is run


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("covariates", "match"),
    [
        ({}, "the covariates must have one column and one row at least, all of one length: none"),
        ({"x": []}, r"one row at least, all of one length: \{'x': 0\}"),
        ({"x": [1.0, 2.0], "z": [1.0]}, r"all of one length: \{'x': 2, 'z': 1\}"),
        ({"x": [1.0, np.nan]}, "'x' must hold finite numbers"),
        ({"x": ["a", "b"]}, "'x' must hold finite numbers"),
        ({"x": 1.0}, "'x' must hold finite numbers"),
        ({3: [1.0]}, "A covariate is called 3; its name must be text"),
        ({ROW: [1.0]}, "A covariate is called 'covariates'; its name must be text, and another than 'covariates'"),
        (pd.DataFrame({"x": ["a", "b"]}), "The covariate 'x' holds categories. Code them as the program does"),
        ([1.0, 2.0], "the covariates are a list; expected a DataFrame, or a dictionary"),
    ],
)
def test_tables_that_are_no_covariates_are_refused(covariates: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        with_covariates(program, covariates)


def test_what_cannot_have_covariates_is_refused() -> None:
    for run, match in ((3, "program=3 must be a function"), (with_covariates(program, table(3)), "covariates already")):
        with pytest.raises(DataError, match=match):
            with_covariates(run, table(3))  # type: ignore[arg-type]


def test_rows_without_their_covariates_are_refused() -> None:
    df = given(5)
    run = with_covariates(program, table(50))
    sem = SEM(run, UNFAIR)
    wide = with_covariates(
        lambda n, covariates: effect(n, {"need": covariates["x"][:, 0]}), {"x": torch.arange(6.0).reshape(3, 2)}
    )
    lacks = "The table lacks the covariate 'need', which the program takes"
    for ask, match in (
        (lambda: sem.counterfactual(df.drop(columns="need")), lacks),
        (lambda: abduct(run, df.drop(columns="need"), nodes=["A", "M"]), lacks),
        (lambda: fit_posterior(with_covariates(effect, df[["need"]]), df[["A", "M"]], CHAIN), lacks),
        (
            lambda: sem.counterfactual(df.assign(region=df["region"] + 0.5)),
            "'region' holds numbers here, and was handed over with the program as integers",
        ),
        (
            lambda: abduct(wide, df, nodes=["A", "M"], parameters={"w": 1.0}),
            r"The covariate 'x' has the shape \(3, 2\), and a column of a table holds one",
        ),
    ):
        with pytest.raises(DataError, match=match):
            ask()
    assert sem.counterfactual(df.assign(region=df["region"] * 1.0)).exact


def test_handlers_go_inside() -> None:
    df = given(3)
    inside = with_covariates(do(program, {"U": 0.0}), table(50))
    assert isinstance(inside, ProgramWithCovariates)
    baseline, _ = SEM(inside, UNFAIR).nodes(10, random_state=0)
    np.testing.assert_allclose(baseline["M"], baseline["age"] / 10, rtol=1e-5)
    outside = do(with_covariates(program, table(50)), {"U": 0.0})
    with pytest.raises(DataError, match=r"Handlers go inside: with_covariates\(do\(program, values\), table\)"):
        SEM(outside, UNFAIR).counterfactual(df)


def test_the_example_of_the_page_on_programs_runs() -> None:
    text = (ROOT / "docs" / "programs.md").read_text(encoding="utf-8")
    blocks = [each for each in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "with_covariates" in each]
    assert len(blocks) == 1
    names: dict[str, Any] = {}
    exec(compile(blocks[0], "programs.md", "exec"), names)
    gap = names["switched"]["income"] - names["baseline"]["income"]
    assert sorted(gap.round(4).unique().tolist()) == [1.0, 2.0, 3.0]
    assert (names["found"].switched["income"] - names["found"].baseline["income"]).round(4).tolist() == [3.0, 1.0]
