from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import pyrofair as pf
from pyrofair.classifiers import fit_many

GRAPH = pf.CausalGraph("{R Q} -> M; {R Q M} -> Y", sensitive="R", outcome="Y", baseline="w", contrast="b")
UNFAIR = GRAPH.unfair("R -> Y", "R -> M -> Y")


def table(n: int = 1200, levels: tuple[str, ...] = ("w", "b", "a"), seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    race, q = rng.choice(levels, n), rng.integers(0, 2, n)
    push = np.select([race == "b", race == "a"], [-1.0, 0.4], 0.0)
    m = push + q + rng.normal(size=n)
    y = (rng.random(n) < 1 / (1 + np.exp(-(m + push)))).astype(int)
    return pd.DataFrame({"R": pd.Categorical(race), "Q": q, "M": m, "Y": y})


def classifier(source: Any, strength: float = 3.0, **settings: Any) -> pf.PenalizedClassifier:
    given: dict[str, Any] = {"epochs": 30, "batch_size": 300, "progress": False, "random_state": 0} | settings
    return pf.PenalizedClassifier("logistic", source=source, penalty=pf.effect_gap, strength=strength, **given)


def gaps(model: Any, df: pd.DataFrame) -> dict[str, float]:
    """The mean unfair effect of each contrast by weights."""
    found = {}
    for level, (one, other) in pf.Contrasts(pf.IPW(UNFAIR)).fit(df).pairs(df=df).items():
        means = [np.average(model.predict_proba(world.rows)[:, 1], weights=world.weight) for world in (one, other)]
        found[level] = abs(means[1] - means[0])
    return found


@pytest.mark.parametrize("over", ["worst", "smooth", {"a": 1.0, "b": 1.0}])
@pytest.mark.some(1)
def test_the_worst_contrast_is_lowered(over: Any) -> None:
    df = table()
    X, y = df.drop(columns="Y"), df["Y"]
    plain = classifier(None, 0.0, columns=["R", "Q", "M"]).fit(X, y)
    penalised = classifier(pf.Contrasts(pf.IPW(UNFAIR), over=over)).fit(X, y)
    before, after = gaps(plain, df), gaps(penalised, df)
    assert before["b"] > 0.25
    assert max(after.values()) < before["b"] / 4
    assert penalised.score(X, y) > 0.5


def test_a_binary_attribute_is_trained_on_as_by_its_source() -> None:
    df = table(200, ("w", "b"))
    X, y = df.drop(columns="Y"), df["Y"]
    for source in (pf.IPW(UNFAIR), pf.GComputation(UNFAIR, draws=2, random_state=0)):
        one = classifier(source, epochs=5).fit(X, y).predict_proba(X)
        other = classifier(pf.Contrasts(source), epochs=5).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_units_of_contrasts_are_different_ones() -> None:
    df = table(200)
    model = classifier(pf.Contrasts(pf.GComputation(UNFAIR, draws=2, random_state=0)), epochs=3)
    problem = model.prepare(df.drop(columns="Y"), df["Y"])
    assert problem.worlds is not None
    assert len(problem.worlds) == 4
    first, second = (set(world.unit.tolist()) for world in problem.worlds[::2] if world.unit is not None)
    assert not first & second
    model.fit(df.drop(columns="Y"), df["Y"])
    assert model.history_["penalty"].notna().all()


def test_the_slope_is_finite_at_ties() -> None:
    source = pf.Contrasts(pf.IPW(UNFAIR)).fit(table())
    for over in ("worst", "smooth"):
        values = torch.zeros(2, requires_grad=True)
        source.set_params(over=over).combine(values).backward()
        assert values.grad is not None
        torch.testing.assert_close(values.grad, torch.full((2,), 0.5))
    values = torch.tensor([0.1, 0.3], dtype=torch.float64)
    assert (
        0.3 - 0.02 * np.log(2) < source.combine(values) < 0.3
    )  # the smooth maximum is between the mean and the largest
    assert source.set_params(over={"b": 2.0}).combine(values) == pytest.approx(0.6)


def test_other_levels_are_trained_on_and_not_compared() -> None:
    df = table()
    source = pf.Contrasts(pf.IPW(UNFAIR), contrasts=["a"])
    model = classifier(source, epochs=3).fit(df.drop(columns="Y"), df["Y"])
    assert list(model.source_.by_contrast()) == ["a"]
    assert sorted(np.unique(model.source_.strata(df))) == [0, 1, 2]
    assert model.predict_proba(df.drop(columns="Y")).shape == (len(df), 2)


def test_held_out_rows_are_judged_by_all_contrasts() -> None:
    df = table()
    settings = {"validation_fraction": 0.3, "patience": 2, "epochs": 6}
    model = classifier(pf.Contrasts(pf.IPW(UNFAIR)), **settings).fit(df.drop(columns="Y"), df["Y"])
    assert model.history_["validation"].notna().all()


def test_origins_are_positions_in_the_table() -> None:
    df = table(300)
    source = pf.Contrasts(pf.IPW(UNFAIR, arm="paper")).fit(df)
    for level, worlds in source.pairs(df=df).items():
        for world in worlds:
            assert world.origin is not None
            same = world.rows[["R", "Q", "M"]].reset_index(drop=True)
            pd.testing.assert_frame_equal(same, df.iloc[world.origin][["R", "Q", "M"]].reset_index(drop=True))
            assert set(world.rows["R"]) <= {"w", level}


def test_many_at_once_are_those_of_single_fits() -> None:
    df = table(500)
    X, y = df.drop(columns="Y"), df["Y"]
    models = [classifier(pf.Contrasts(pf.IPW(UNFAIR)), strength, epochs=4) for strength in (0.0, 1.0, 3.0)]
    for alone, many in zip(models, fit_many(models, X, y), strict=True):
        np.testing.assert_allclose(clone(alone).fit(X, y).predict_proba(X), many.predict_proba(X), atol=1e-6)


def test_a_level_of_few_rows_is_left_out_by_name() -> None:
    df = table(600)
    race = df["R"].astype(str)
    race.iloc[:5] = "rare"
    df = df.assign(R=race)
    with pytest.warns(pf.PyrofairWarning, match=r"R='rare' is left out of the penalty: 5 row\(s\) have R='rare'"):
        source = pf.Contrasts(pf.IPW(UNFAIR)).fit(df)
    assert list(source.sources_) == ["a", "b"]
    assert list(source.left_out_) == ["rare"]
    with pytest.raises(pf.DataError, match=r"5 row.s. have R='rare', fewer than 10"):
        pf.Contrasts(pf.IPW(UNFAIR), contrasts=["rare"]).fit(df)
    with pytest.raises(pf.DataError, match=r"over gives 'rare' a weight above 0.*baseline: 5 row\(s\) have"):
        pf.Contrasts(pf.IPW(UNFAIR), over={"a": 1.0, "rare": 1.0}).fit(df)
    with pytest.warns(pf.PyrofairWarning, match="R='rare' is left out of the penalty"):
        pf.Contrasts(pf.IPW(UNFAIR), over={"a": 1.0, "rare": 0.0}).fit(df)
    few = df[df["R"].isin(["w", "rare"])]
    with pytest.raises(pf.DataError, match=r"No level of 'R' can be compared with the baseline. 'rare': 5 row"):
        pf.Contrasts(pf.IPW(UNFAIR)).fit(few)


def test_what_cannot_be_trained_with() -> None:
    df = table(200)
    X, y = df.drop(columns="Y"), df["Y"]
    with pytest.raises(pf.DataError, match="It judges classifiers, in audits"):
        pf.Contrasts(pf.OneStep(UNFAIR)).fit(X)
    fitted = pf.IPW(UNFAIR).fit(X[X["R"] != "a"])
    with pytest.raises(pf.DataError, match="is fitted or needs no fit, so that it belongs to one contrast"):
        pf.Contrasts(fitted).fit(X)
    with pytest.raises(pf.DataError, match="over names 'c', which is no contrast; they are 'a', 'b'"):
        pf.Contrasts(pf.IPW(UNFAIR), over={"c": 1.0}).fit(X)
    with pytest.raises(pf.DataError, match="gives no contrast a weight above 0"):
        pf.Contrasts(pf.IPW(UNFAIR), over={"a": 0.0}).fit(X)
    with pytest.raises(pf.DataError, match=r"Bin it.*: df"):
        classifier(pf.Contrasts(pf.IPW(UNFAIR))).fit(X.assign(R=np.linspace(0, 1, 200)), y)
    with pytest.raises(pf.DataError, match=r"holds several sources, and a path judges by one.*audit_contrasts"):
        pf.penalty_path(classifier(pf.Contrasts(pf.IPW(UNFAIR))), X, y)
    with pytest.raises(pf.DataError, match=r"baseline='w'.*Contrasts"):
        classifier(pf.IPW(UNFAIR)).fit(X, y)
