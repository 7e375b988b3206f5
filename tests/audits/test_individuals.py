"""Flips of given units along unfair paths, against values known by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.special import expit

import pyrofair as pf
from pyrofair.audits.audit_view import view_of
from tests.models import Known

GRAPH = pf.CausalGraph("A -> {M D}; {A M D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")


def program(n: int) -> None:
    with pyro.plate("units", n):
        a = pyro.sample("A", dist.Bernoulli(0.5))
        pyro.deterministic("M", 2.0 * a + pyro.sample("U", dist.Normal(0.0, 1.0)))
        pyro.deterministic("D", a + pyro.sample("V", dist.Normal(0.0, 1.0)))


MODEL = Known(lambda X: expit(0.5 * X["A"] + X["M"] + X["D"]))
"""A score above 1/2 where 0.5 A + M + D is above 0."""


# Worlds of A=0 noise: baseline M = u, D = v; unfair M = u + 2 and A = 1 for the direct path; D stays v.
ROWS = pd.DataFrame({"A": [0, 0, 1, 1], "M": [-1.1, -0.3, 0.5, 3.0], "D": [0.0, 0.0, 1.0, 1.0]}, index=list("abcd"))


def found(unfair: pf.UnfairPaths = UNFAIR, **settings: Any) -> pd.DataFrame:
    table = pf.audits.flips({"one": MODEL, "two": MODEL}, pf.SEM(program, unfair), ROWS, **settings)
    assert table["model"].tolist() == sorted(table["model"])
    return table[table["model"] == "one"].pivot_table(index="row", columns="path", values="flips")


def test_flips_along_each_path() -> None:
    table = found()
    # sums at the baseline: a -1.1, b -0.3, c -1.5, d 1; the direct path adds 0.5, the path through M adds 2
    assert table["A -> Y"].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert table["A -> M -> Y"].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert table["all unfair paths"].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_swapped_roles_and_thresholds() -> None:
    table = found(UNFAIR.reversed())
    # sums with A=1 everywhere: a 2.4, b 3.2, c 2, d 4.5 (D one higher); all unfair paths take 2.5 away
    assert table["all unfair paths"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert found(threshold=0.99)["all unfair paths"].tolist() == [0.0] * 4


def test_one_path_is_not_repeated() -> None:
    assert found(GRAPH.unfair("A -> Y")).columns.tolist() == ["all unfair paths"]


def test_they_are_shown_on_the_page() -> None:
    table = pf.audits.flips({"one": MODEL}, pf.SEM(program, UNFAIR), ROWS)
    df = pd.DataFrame({"A": [0, 1] * 100, "M": [0.0, 1.0, 1.0, 2.0] * 50, "D": [0.0] * 200})
    source = pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0)
    report = pf.audit({"one": MODEL}, source, df, random_state=0)
    page = report.to_html(individuals=table)
    shown = next(each for each in view_of(report, individuals=table).blocks if each.name == "individuals")
    assert shown.pictures[0].source["flips"].dropna().is_monotonic_decreasing
    assert page.count('class="track strip"') == min(12, len(table))
    assert "Which decisions flip, and along which path" in page
    assert 'download="individuals.csv"' in page


def test_what_has_no_flips() -> None:
    with pytest.raises(pf.DataError, match="has no counterfactuals of given units"):
        pf.audits.flips({"one": MODEL}, pf.IPW(UNFAIR), ROWS)  # type: ignore[arg-type]
    with pytest.raises(pf.DataError, match=r"models=.* must give models by name"):
        pf.audits.flips(MODEL, pf.SEM(program, UNFAIR), ROWS)  # type: ignore[arg-type]
    nodes = [f"M{i}" for i in range(21)]
    many = pf.CausalGraph([*(("A", n) for n in nodes), *((n, "Y") for n in nodes)], sensitive="A", outcome="Y")
    with pytest.raises(pf.DataError, match="There are 21 unfair paths, more than 20"):
        pf.audits.flips({"one": MODEL}, pf.SEM(program, many.unfair(through=nodes)), ROWS)


DISCRETE = pf.CausalGraph("Q -> M; A -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
DIRECT = DISCRETE.unfair("A -> Y")


def discrete(n: int) -> None:
    with pyro.plate("units", n):
        a = pyro.sample("A", dist.Bernoulli(0.5))
        q = pyro.sample("Q", dist.Bernoulli(0.4))
        pyro.deterministic("M", a + q * pyro.sample("U", dist.Categorical(torch.tensor([0.2, 0.3, 0.5]))))


class Linear:
    """A score that rises with A and M and falls with Q, or of Q alone."""

    def __init__(self, *names: str) -> None:
        self.feature_names_in_ = np.array(names)

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        of = {"A": 0.3, "Q": -0.2, "M": 0.14}
        p = 0.25 + sum((of[name] * X[name].to_numpy(float) for name in self.feature_names_in_), np.zeros(len(X)))
        return np.column_stack([1.0 - p, p])


def every_unit() -> pd.DataFrame:
    """Return each value of A and of the noise once, forty times, with the answers of Linear in both worlds."""
    units = pd.DataFrame(itertools.product((0, 1), (0, 1), (0, 1, 2)), columns=["A", "Q", "U"])
    units["M"] = units["A"] + units["Q"] * units["U"]
    for world, a in (("baseline", 0), ("switched", 1)):
        units[world] = 0.25 + 0.3 * a - 0.2 * units["Q"] + 0.14 * units["Q"] * units["U"]  # M reads A = 0 in both
    return pd.concat([units] * 40, ignore_index=True)


def answers(model: Any, unfair: pf.UnfairPaths = DIRECT, df: pd.DataFrame | None = None, **more: Any) -> pd.DataFrame:
    table = every_unit()[["A", "Q", "M"]] if df is None else df
    return pf.audit(
        {"m": model}, pf.OneStep(unfair, propensity="saturated", regression="saturated"), table, **more
    ).flips


def test_flips_along_the_direct_path_are_those_of_enumeration() -> None:
    units = every_unit()
    found = answers(Linear("A", "Q", "M")).set_index("row")
    flip = (units["baseline"] > 0.5) != (units["switched"] > 0.5)
    own = found[found["features"] == "of both worlds"]
    assert own.index.tolist() == units.index[flip & (units["A"] == 0)].tolist()
    assert set(own["A"]) == {0}
    for world in ("baseline", "switched"):
        np.testing.assert_allclose(own[world], units.loc[own.index, world])
        assert own[f"{world}_decision"].tolist() == (units.loc[own.index, world] > 0.5).astype(int).tolist()
    as_observed = found[found["features"] == "as observed"]
    assert set(as_observed["A"]) == {1}
    np.testing.assert_allclose(as_observed["switched"] - as_observed["baseline"], 0.3)
    both = pf.audits.flips(
        {"m": Linear("A", "Q", "M")}, pf.SEM(discrete, DIRECT), units.loc[own.index[:5], ["A", "Q", "M"]]
    )
    assert both["flips"].tolist() == [1.0] * 5


def test_rows_of_either_group_are_in_both_worlds_where_nothing_read_follows_the_attribute() -> None:
    units = every_unit()
    found = answers(Linear("A", "Q"))
    assert set(found["features"]) == {"of both worlds"}
    assert sorted(found["row"]) == units.index[units["Q"] == 0].tolist()  # .25 and .55; with Q .05 and .35
    swapped = answers(Linear("A", "Q"), DIRECT.reversed())
    np.testing.assert_allclose(swapped["baseline"] - swapped["switched"], 0.3)
    known = np.random.default_rng(0).random(len(units)) < 0.6
    gaps = units[["A", "Q", "M"]].assign(A=units["A"].where(known), W=units["A"])
    hidden = answers(Linear("A", "Q"), df=gaps, proxies=["W"])
    assert hidden["row"].tolist() == found["row"].tolist()
    assert hidden["A"].isna().tolist() == (~known)[found["row"]].tolist()


def test_a_model_that_is_fitted_again_has_no_flips_of_the_audited_one() -> None:
    class Refitted(Linear):
        more = 0.0

        def predict_proba(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
            return np.clip(super().predict_proba(X) + np.array([-self.more, self.more]), 0.0, 1.0)

    model = Refitted("A", "Q")
    settings: dict[str, Any] = {"propensity": "saturated", "regression": "saturated"}
    report = pf.audit({"m": model}, pf.OneStep(DIRECT, **settings), every_unit()[["A", "Q", "M"]])
    before = report.flips
    model.more = 0.3
    with pytest.raises(pf.DataError, match="'m' no longer gives the scores that were audited"):
        _ = report.flips
    model.more = 0.0
    pd.testing.assert_frame_equal(report.flips, before)


def test_models_that_no_unfair_path_reaches_have_no_flips() -> None:
    assert answers(Linear("Q", "M")).empty
    assert answers(Linear("A", "Q"), DISCRETE.unfair("A -> M -> Y")).empty


def test_where_answers_are_not_known_a_source_is_named() -> None:
    through = DISCRETE.unfair("A -> Y", "A -> M -> Y")
    with pytest.raises(pf.DataError, match=r"'m' reads 'M'.*pf.audits.flips.*learn_mechanisms"):
        answers(Linear("A", "M"), through)
    with pytest.raises(pf.DataError, match=r"'m'.*pass a model"):
        answers(np.tile([0.2, 0.6], 240), through, scores="outcome")
    table, source = every_unit()[["A", "Q", "M"]], pf.OneStep(through, propensity="saturated", regression="saturated")
    report = pf.audit({"one": Linear("A", "M"), "two": Linear("A", "Q")}, source, table)
    with pytest.warns(pf.PyrofairWarning, match="'one' reads 'M'"):
        assert set(report.flips["model"]) == {"two"}
    with pytest.raises(pf.DataError, match="partitions"):
        pf.audit({"m": Linear("A", "Q")}, source, [table], random_state=0).flips  # noqa: B018


def test_an_audit_by_an_sem_has_the_probability_of_each_flip() -> None:
    table = every_unit().loc[:11, ["A", "Q", "M"]]
    source = pf.SEM(discrete, DISCRETE.unfair("A -> Y", "A -> M -> Y"))
    found = pf.audit({"m": Linear("A", "M")}, source, table, n_boot=0, random_state=0).flips
    assert found["flips"].is_monotonic_decreasing
    expected = pf.audits.flips({"m": Linear("A", "M")}, source, table, random_state=0)
    expected = expected[(expected["path"] == "all unfair paths") & (expected["flips"] > 0.0)]
    pd.testing.assert_series_equal(found.set_index("row")["flips"].sort_index(), expected.set_index("row")["flips"])
