"""Labels in place of codes: in all tables that are handed out, and in those that are taken in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch

from pyrofair import SEM, DataError, PyrofairWarning, effect_posterior
from pyrofair.programs.couplings import Coupling
from tests.programs.models import Scores, coin, graph, normal, through, units

UNFAIR = graph("{A J} -> S; {A J S M} -> Y; A -> M", columns={"J": "job"}).unfair("A -> S -> Y")
LEVELS: Any = {"J": ["nurse", "cook"], "S": [10, 20, 40]}


SITES: dict[str, Any] = {
    "J": coin(0.3),
    "U_S": coin(0.4),
    "S": lambda v: v.A + v.U_S,
    "M": lambda v: dist.Normal(v.A, 1.0),
    "Y": lambda v: dist.Bernoulli(logits=v.A + v.S + v.M + v.J),
}
program, learned = units(**SITES), units({"b": normal()}, **SITES)


RULE = Scores(lambda X: np.where(X["job"] == "cook", 0.2, 0.0) + X["S"].to_numpy() / 100)
"""Reads labels."""


def test_tables_hold_labels() -> None:
    plain, labelled = SEM(program, UNFAIR), SEM(program, UNFAIR, levels=LEVELS)
    for codes, named in zip(plain.nodes(200, 0), labelled.nodes(200, 0), strict=True):
        np.testing.assert_array_equal(named["J"], np.array(LEVELS["J"])[codes["J"].astype(int)])
        np.testing.assert_array_equal(named["S"], np.array(LEVELS["S"])[codes["S"].astype(int)])
        assert named["S"].dtype.kind == "i"
        pd.testing.assert_frame_equal(codes[["A", "M"]], named[["A", "M"]])
    first, second = labelled.worlds(200, 0)
    assert set(first.rows["job"]) == {"nurse", "cook"}
    assert set(second.rows["S"]) == {20, 40}
    shared = SEM(program, UNFAIR, levels=LEVELS, unit="shared", draws=3).worlds(50, 0)[0].rows
    assert set(shared["job"]) == {"nurse", "cook"}


def test_a_model_of_labels_has_a_truth() -> None:
    sem = SEM(program, UNFAIR, levels=LEVELS)
    truth = sem.truth(RULE, n=20_000, random_state=0, decisions="score")
    assert truth.mean_unfair_effect.value == pytest.approx(0.6 * 0.1 + 0.4 * 0.2, abs=0.002)
    of_draws, settings = SEM(learned, UNFAIR, levels=LEVELS), {"decisions": "score", "progress": False}
    found = effect_posterior(of_draws, None, RULE, {"b": [0.0, 1.0]}, n=2000, random_state=0, **settings)
    assert found.samples["mean_unfair_effect"].mean() == pytest.approx(0.14, abs=0.02)
    assert found.coupled == sem.coupled == ("M",)


def test_draws_of_parameters_keep_the_types_of_a_model() -> None:
    seen: list[Any] = []
    model = Scores(lambda X: seen.append(X.dtypes["job"]) or RULE.score(X))  # type: ignore[func-returns-value]
    jobs = pd.CategoricalDtype(["cook", "nurse"])
    sem = SEM(learned, UNFAIR, levels=LEVELS, dtypes={"job": jobs})
    effect_posterior(sem, None, model, {"b": [0.0]}, n=50, progress=False, random_state=0)
    assert set(seen) == {jobs}


def test_given_units_come_and_go_with_labels() -> None:
    sem = SEM(program, UNFAIR, levels=LEVELS)
    units = pd.DataFrame({"A": [0, 1], "job": ["cook", "nurse"], "S": [20, 40], "M": [0.0, 1.5]}, index=["x", "y"])
    found = sem.counterfactual(units.astype({"job": "category"}), random_state=0)
    assert found.exact
    assert found.baseline["job"].tolist() == ["cook", "nurse"]
    assert found.baseline["S"].tolist() == [20, 20]
    assert found.switched["S"].tolist() == [40, 40]
    np.testing.assert_allclose(found.scores(RULE)["effect"], 0.2)
    assert (found.worlds[0].sd == 0.0).all(axis=None)
    for name in ("J", "job"):
        kept = sem.counterfactual(units, do={name: "nurse"})
        assert kept.switched["job"].tolist() == ["nurse"] * 2
    jobs = pd.Series(["cook", "nurse"], ["x", "y"])
    assert sem.counterfactual(units, do={"J": jobs}).switched["job"].tolist() == ["cook", "nurse"]
    with pytest.raises(DataError, match=r"index of do\['J'\] is not that of the table"):
        sem.counterfactual(units, do={"J": jobs[::-1]})


@pytest.mark.parametrize(
    ("coupling", "high"),
    [
        # Of the noise below .6 that gives "low", what exceeds .3 gives "high" where A = 1.
        ("monotone", 0.5),
        # Exponential times E / p race: P(low, then high) = .2 + .7 / 3, over P(low) = .6.
        ("gumbel", 13 / 18),
    ],
)
def test_labels_that_are_not_determined(coupling: Coupling, high: float) -> None:
    drawn = units(
        S=lambda v: dist.Categorical(torch.stack([0.6 - 0.5 * v.A, torch.full_like(v.A, 0.2), 0.2 + 0.5 * v.A], -1))
    )
    sem = SEM(drawn, through("S"), coupling=coupling, levels={"S": ["low", "mid", "high"]})
    rows = pd.DataFrame({"A": [0, 0, 1], "S": ["low", "high", "high"]})
    found = sem.counterfactual(rows, draws=400, random_state=0)
    assert not found.exact
    assert found.baseline["S"].tolist()[:2] == ["low", "high"]
    assert found.switched["S"].tolist()[1:] == ["high", "high"]
    assert found.draws is not None
    assert set(found.draws[1]["S"][0]) == {"low", "mid", "high"}
    assert found.worlds[1].sd["S"].isna().tolist() == [True, False, False]

    assert found.scores(Scores(lambda X: X["S"] == "high")).loc[0, "switched"] == pytest.approx(high, abs=0.1)
    assert "2 of 3 units (67%), 400 draws each" in str(found)


@pytest.mark.parametrize(
    ("levels", "match"),
    [
        ({"A": ["f", "m"]}, "levels names 'A', the sensitive attribute"),
        ({"SS": [1]}, "levels names 'SS', which is no node site. They are: .*S.*Did you mean 'S'"),
        ({"S": "abc"}, r"levels\['S'\]='abc' must be a list of labels, each once"),
        ({"S": [1, 1]}, "must be a list of labels, each once"),
        ({"S": []}, "must be a list of labels"),
        ({"S": 2}, r"levels\['S'\]=2 must be a list of labels"),
        ({"S": None}, r"levels\['S'\]=None must be a list of labels"),
        ({"S": [["low"], ["high"]]}, "must be a list of labels"),
        ({"Y": ["no", "yes"]}, "outcome's code 1 another label than the graph's positive=1. List the positive label"),
        ({"Y": [1, 0]}, r"levels\['Y'\]=\[1, 0\] gives the outcome's code 1 another label"),
        ([1], r"levels=\[1\] must be a dictionary"),
        ({"S": ["low"]}, "site 'S' takes the value 1, but its 1 levels have the codes 0 to 0. Correct levels"),
        ({"M": ["low", "high"]}, "site 'M' takes the value .*, but its 2 levels have the codes 0 to 1"),
    ],
)
def test_levels_that_do_not_fit(levels: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        SEM(program, UNFAIR, levels=levels).nodes(100, 0)


@pytest.mark.parametrize(
    ("changed", "do", "match"),
    [
        ({}, None, r"'job' holds 'cok', which is none of its 2 levels: 'nurse', 'cook'.*Did you mean"),
        ({"job": "cook", "S": 30}, None, "'S' holds 30, which is none of its 3 levels: 10, 20, 40"),
        ({"job": "cook"}, {"J": "pilot"}, "'J' holds 'pilot', which is none of its 2 levels"),
        ({"job": None}, None, "missing value"),
    ],
)
def test_unseen_labels_and_missing_values(changed: Any, do: Any, match: str) -> None:
    rows = pd.DataFrame({"A": [0], "job": ["cok"], "S": [20], "M": [0.0]}).assign(**changed)
    with pytest.raises(DataError, match=match):
        SEM(program, UNFAIR, levels=LEVELS).counterfactual(rows, do=do)


def test_labels_of_several_types() -> None:
    named = SEM(program, UNFAIR, levels={"J": [True, "x"]}).nodes(50, 0)[0]
    assert set(named["J"]) == {True, "x"}


def test_the_outcome_comes_back_with_the_labels_of_the_table() -> None:
    named = graph("A -> S; {A S M J} -> Y; A -> M", positive="yes", columns={"Y": "hired"})
    sem = SEM(program, named.unfair("A -> S -> Y"))
    rows = pd.DataFrame({"A": [0, 0], "S": 1.0, "M": 0.0, "J": 0.0, "hired": ["no", "yes"]})
    found = sem.counterfactual(rows, draws=50, random_state=0)
    assert found.baseline["hired"].tolist() == ["no", "yes"]
    assert found.draws is not None
    assert set(found.draws[1]["hired"][0]) == {"no", "yes"}
    categories = pd.CategoricalDtype(["no", "yes"])
    assert sem.counterfactual(rows[1:].astype({"hired": categories}), draws=5).baseline["hired"].tolist() == ["yes"]
    with pytest.warns(PyrofairWarning, match=r"'hired' is always 'yes' here.*levels={'Y': \[..., 'yes'\]}") as w:
        assert sem.counterfactual(rows[1:], draws=5).baseline["hired"].tolist() == [1.0]
    assert [each.filename for each in w] == [__file__]
    with pytest.raises(DataError, match="'hired' holds 'no', 'maybe' besides positive='yes', but it must be binary"):
        sem.counterfactual(pd.concat([rows, rows[:1].assign(hired="maybe")], ignore_index=True))
