"""Sample weights enter in one way everywhere: relative, on the index of their rows, a row of weight 0 as if absent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import pyrofair as pf
from pyrofair import PSCF, DataError, disagreement, learn_mechanisms
from pyrofair.mechanisms import families
from pyrofair.sources import gcomputation
from pyrofair.tables.encoder import TableEncoder

pytestmark = pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")

GRAPH = pf.CausalGraph("Q -> A; {Q A} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
N = 240


def make_table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 3, N)
    a = (rng.random(N) < expit(0.6 * q - 0.6)).astype(int)
    m = (rng.random(N) < expit(a + 0.5 * q - 1)).astype(int)
    y = (rng.random(N) < expit(2.0 * m + a - 1)).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "M": m, "Y": y}, index=[f"unit {i}" for i in range(N)])


def score(rows: pd.DataFrame) -> NDArray[np.float64]:
    return expit(rows["A"].to_numpy(float) + rows["M"].to_numpy(float) - rows["Q"].to_numpy(float) * rows["A"] - 0.5)


def worlds(source: Any) -> NDArray[np.float64]:
    return np.array([world.weight @ score(world.rows) for world in source.worlds(random_state=0)])


def fit_source(source: Any, weight: Any, df: pd.DataFrame) -> NDArray[np.float64]:
    return worlds(source.fit(df, sample_weight=weight))


def learned(df: pd.DataFrame, weight: Any, nodes: Any = ("A", "M")) -> Any:
    settings = {"parameters": "linear", "steps": 10, "progress": False, "random_state": 0}
    return learn_mechanisms(df, GRAPH, nodes=nodes, sample_weight=weight, **settings)


def centres_of(mechanisms: Any) -> NDArray[np.float64]:
    return np.concatenate([each.numpy().ravel() for fit in mechanisms.fits.values() for each in fit.centre.values()])


def audited(df: pd.DataFrame, weight: Any) -> NDArray[np.float64]:
    source = pf.IPW(UNFAIR, arm="paper", propensity="saturated")
    report = pf.audit({"m": score(df)}, source, df, n_boot=0, sample_weight=weight, scores="prediction")
    return report.table["estimate"].to_numpy()


def trained(df: pd.DataFrame, weight: Any, **settings: Any) -> NDArray[np.float64]:
    settings = {"epochs": 2, "progress": False, "random_state": 0, **settings}
    fitted = pf.PenalizedClassifier("logistic", **settings).fit(df.drop(columns="Y"), df["Y"], sample_weight=weight)
    return fitted.predict_proba(df.drop(columns="Y"))[:, 1]


def pscf(df: pd.DataFrame, weight: Any) -> NDArray[np.float64]:
    fitted = PSCF(UNFAIR, epochs=3, hidden=4, progress=False, random_state=0)
    return fitted.fit(df.drop(columns="Y"), df["Y"], sample_weight=weight).predict_proba(df.drop(columns="Y"))[:, 1]


def other_rows(make: Callable[[], Any], df: pd.DataFrame, weight: Any) -> NDArray[np.float64]:
    """The weights of ``worlds``, those of ``fit`` left out."""
    made = make().fit(df).worlds(random_state=0, df=df, sample_weight=weight)
    return np.array([world.weight @ score(world.rows) for world in made])


def by_hand(model: Any) -> pf.IPW:
    return pf.IPW(UNFAIR, arm="pooled", propensity=model, random_state=0)


def family(df: pd.DataFrame, weight: Any) -> NDArray[np.float64]:
    return np.array(families.choose_family(df["Q"], weight=weight).frequencies)


def encoder(df: pd.DataFrame, weight: Any) -> NDArray[np.float64]:
    return TableEncoder().fit(df, sample_weight=weight).transform(df)


ways = {
    "IPW, logistic": lambda df, w: fit_source(pf.IPW(UNFAIR), w, df),
    "IPW, saturated": lambda df, w: fit_source(pf.IPW(UNFAIR, arm="paper", propensity="saturated"), w, df),
    "IPW, boosted": lambda df, w: fit_source(pf.IPW(UNFAIR, propensity="boosted", random_state=0), w, df),
    "IPW, penalised": lambda df, w: fit_source(by_hand(LogisticRegression(C=0.01)), w, df),
    "IPW, repeats": lambda df, w: fit_source(by_hand(KNeighborsClassifier(60)), w, df),
    "IPW.worlds": partial(other_rows, lambda: pf.IPW(UNFAIR)),
    "IPW.refit": lambda df, w: worlds(pf.IPW(UNFAIR).fit(df).refit(w)),
    "GComputation": lambda df, w: fit_source(
        pf.GComputation(UNFAIR, parameters="linear", progress=False, random_state=0), w, df
    ),
    "GComputation.worlds": partial(
        other_rows, lambda: pf.GComputation(UNFAIR, parameters="linear", progress=False, random_state=0)
    ),
    "learn_mechanisms": lambda df, w: centres_of(learned(df, w)),
    "LearnedMechanisms.refit": lambda df, w: centres_of(learned(df, None).refit(w, random_state=0, steps=3)),
    "choose_family": family,
    "TableEncoder": encoder,
    "audit": audited,
    "PenalizedClassifier": trained,
    "PenalizedClassifier with a source": lambda df, w: trained(df, w, source=pf.IPW(UNFAIR), penalty=disagreement),
    "PSCF": pscf,
}
SLOW = ("learn_mechanisms", "LearnedMechanisms.refit", "GComputation", "GComputation.worlds")
every_way = pytest.mark.parametrize("name", ways)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcomputation, "learn_mechanisms", partial(learn_mechanisms, steps=10))


@every_way
@pytest.mark.some(5)
def test_a_common_factor_changes_nothing(name: str) -> None:
    df = make_table()
    plain = ways[name](df, None)
    for factor in (1e-6, 1.0 / N) if name in SLOW else (1e-6, 1.0 / N, 1e6):
        np.testing.assert_array_equal(ways[name](df, np.full(N, factor)), plain)
    if name in SLOW:
        return
    uneven = np.random.default_rng(1).integers(1, 4, N).astype(float)
    np.testing.assert_allclose(ways[name](df, 1e-6 * uneven), ways[name](df, uneven), rtol=1e-5, atol=1e-6)


@every_way
@pytest.mark.some(6)
def test_a_series_is_taken_on_its_own_rows_or_not_at_all(name: str) -> None:
    df = make_table()
    weight = pd.Series(np.where(df["M"] == 1, 5.0, 1.0), index=df.index)
    np.testing.assert_array_equal(ways[name](df, weight), ways[name](df, weight.to_numpy()))
    for other, cure in ((weight.iloc[::-1], r"\.loc\[.*\.index\]"), (weight.reset_index(drop=True), "one index")):
        with pytest.raises(DataError, match=rf"index of sample_weight is not that of .*{cure}.*to_numpy"):
            ways[name](df, other)


@every_way
def test_a_masked_array_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="sample_weight is a masked array that hides 1 of its 240 values"):
        ways[name](make_table(), np.ma.masked_equal(np.r_[9.0, np.ones(N - 1)], 9.0))


exact = ("IPW, logistic", "IPW, saturated", "audit", "TableEncoder")


@pytest.mark.parametrize("name", exact)
def test_integer_weights_are_repeated_rows(name: str) -> None:
    df = make_table()
    counts = np.random.default_rng(2).integers(0, 4, N)
    rows = np.repeat(np.arange(N), counts)
    weighted, repeated = ways[name](df, counts), ways[name](df.iloc[rows], None)
    if name == "TableEncoder":
        weighted = weighted[rows]
    np.testing.assert_allclose(weighted, repeated, atol=1e-8)


@pytest.mark.parametrize("name", ["IPW, logistic", "IPW, saturated", "choose_family", "audit"])
def test_a_row_without_weight_is_as_if_absent(name: str) -> None:
    df = make_table()
    weight = np.r_[np.zeros(40), np.full(N - 40, 3.0)]
    np.testing.assert_allclose(ways[name](df, weight), ways[name](df.iloc[40:], None), atol=1e-8)


def test_a_program_takes_no_weights_but_refuses_what_are_none() -> None:
    source = pf.SEM.from_mechanisms(learned(make_table(), None, nodes=None), UNFAIR)
    wrong = pd.Series(np.ones(N), index=make_table().index[::-1])
    for call in (partial(source.fit, make_table()), partial(source.worlds, df=make_table())):
        with pytest.raises(DataError, match="index of sample_weight"):
            call(sample_weight=wrong)
