"""The encoded table, and columns of very many categories in all that reads encoded tables."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair import DataError, learn_mechanisms
from pyrofair.nuisances import newton
from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.sources import gcomputation, gformula
from pyrofair.tables import encoder
from pyrofair.tables.encoder import TableEncoder


def units(n: int, levels: int) -> tuple[pd.DataFrame, NDArray[np.int8]]:
    rng = np.random.default_rng(0)
    code, q = rng.integers(0, levels, n), rng.normal(size=n)
    a = (rng.random(n) < expit(q + 0.5 * np.sin(code))).astype(np.int8)
    return pd.DataFrame({"Q": q, "C": np.char.add("level ", code.astype(str)), "twice": 2.0 * q}), a


@pytest.mark.parametrize("levels", [10, 150])
def test_compressed_rows_give_the_same_fit(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with collinear numbers, with levels of one group only, and with a level that has lost its weight."""
    table, a = units(600, levels)
    weight = np.random.default_rng(1).exponential(size=600) * (table["C"] != "level 3").to_numpy()
    dense = CrossFit("logistic").fit(table, a, weight)
    monkeypatch.setattr(newton, "WIDE", 1)
    compressed = CrossFit("logistic").fit(table, a, weight)
    used = weight > 0
    assert compressed.fitted[used] == pytest.approx(dense.fitted[used], abs=1e-6)
    assert compressed.predict(table[:50])[used[:50]] == pytest.approx(dense.predict(table[:50])[used[:50]], abs=1e-6)
    refit = compressed.refit(table, a, weight[::-1].copy())
    assert refit.fitted == pytest.approx(compressed.refit(table, a, weight[::-1].copy()).fitted)
    assert np.isfinite(refit.fitted).all()


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_five_thousand_levels() -> None:
    table, a = units(20_000, 5_000)
    df = table.drop(columns="twice").assign(A=a, M=a + table["Q"])
    graph = pf.CausalGraph("Q -> A; C -> A; {A Q C} -> M; {A Q C M} -> Y", sensitive="A", outcome="Y")
    unfair = graph.unfair("A -> Y")
    with pytest.raises(pf.PositivityError, match=r"of the target population has no counterpart .*C=level"):
        pf.IPW(unfair, arm=0).fit(df)
    source = pf.IPW(unfair, arm=0, max_unsupported=0.3).fit(df)
    p = source.nuisances_.model(("Q", "C")).fitted
    assert p.mean() == pytest.approx(a.mean(), abs=1e-4)  # the score equation of the intercept
    shares = pd.Series(p).groupby(df["C"]).mean() - pd.Series(a).groupby(df["C"]).mean()
    assert shares.abs().max() < 1e-3  # and of each level, those of one group included


def test_a_matrix_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table, a = units(300, 100)
    monkeypatch.setattr(encoder, "MOST_ENTRIES", 10_000)
    fitted = TableEncoder().fit(table)
    with pytest.raises(DataError, match=r"300 rows and \d+ encoded columns would take .* GB\. The column 'C' has \d+"):
        fitted.transform(table)
    assert fitted.transform_sparse(table).shape == (300, fitted.width_)
    with pytest.raises(DataError, match="join rare ones, or pass another encoder"):
        pf.PenalizedClassifier("logistic").fit(table, a)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_draws_in_parts_are_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"A": rng.integers(0, 2, 60), "M": rng.choice(list("uvwxyz"), 60)})
    unfair = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    settings: dict[str, Any] = {"draws": 5, "parameters": "linear", "progress": False, "random_state": 0}
    monkeypatch.setattr(gcomputation, "learn_mechanisms", partial(learn_mechanisms, steps=2))
    source = pf.GComputation(unfair, **settings).fit(df)
    together = source.worlds()
    monkeypatch.setattr(gformula, "MOST_ENTRIES", 100)
    for one, other in zip(source.worlds(), together, strict=True):
        pd.testing.assert_frame_equal(one.rows, other.rows)


def test_encoder_standardises_numbers_and_spreads_categories() -> None:
    table = pd.DataFrame({"n": [1.0, 2.0, 6.0], "c": ["b", "a", "b"], "constant": 5, "flag": [True, False, True]})
    encoded = TableEncoder().fit_transform(table)
    n = table["n"].to_numpy()
    assert encoded[:, 0] == pytest.approx((n - n.mean()) / n.std())
    assert encoded[:, 1].tolist() == [0.0, 0.0, 0.0]
    assert encoded[:, 3:].tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    shuffled = TableEncoder().fit(table).transform(table[["flag", "c", "constant", "n"]])
    assert (shuffled == encoded).all()


def test_encoder_keeps_declared_categories_and_their_order() -> None:
    declared = pd.Series(["b", "a"], dtype=pd.CategoricalDtype(["c", "b", "a"]))
    assert TableEncoder().fit_transform(declared.to_frame("c")).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_encoder_weights_the_scale() -> None:
    table = pd.DataFrame({"n": [0.0, 1.0, 5.0]})
    weighted = TableEncoder().fit(table, sample_weight=np.array([2.0, 1.0, 1.0]))
    repeated = TableEncoder().fit(table.iloc[[0, 0, 1, 2]])
    assert weighted.transform(table) == pytest.approx(repeated.transform(table))


def test_encoder_sorts_mixed_objects_by_type() -> None:
    table = pd.DataFrame({"c": pd.Series([2, "a", 1, "b"], dtype=object)})
    assert TableEncoder().fit(table).categories_["c"].tolist() == [1, 2, "a", "b"]


def test_encoder_of_no_columns() -> None:
    assert TableEncoder().fit_transform(pd.DataFrame(index=range(3))).shape == (3, 0)


def test_missing_values_are_a_level_or_the_mean_beside_a_flag() -> None:
    df = pd.DataFrame({"D": [1.0, None, 3.0], "k": [1, 2, 4], "M": ["a", None, "b"]})
    fitted = TableEncoder(missing="recorded").fit(df)
    found = fitted.transform(df)
    np.testing.assert_array_equal(found, fitted.transform_sparse(df).toarray())
    assert found.shape == (3, fitted.width_) == (3, 7)
    np.testing.assert_allclose(found[:, 0], [-np.sqrt(1.5), 0.0, np.sqrt(1.5)])
    np.testing.assert_array_equal(np.unique(found[:, 2:], axis=0)[:, 2:].sum(1), [1.0, 1.0, 1.0])
    alone = pd.DataFrame([{"D": None, "k": 2, "M": None}])  # columns of objects without a value
    np.testing.assert_array_equal(fitted.transform(alone), found[1:2])
    with pytest.raises(DataError, match=r"no 'k'"):
        fitted.transform(alone.assign(k=None))
    with pytest.raises(DataError, match=r"'D' held numbers"):
        fitted.transform(alone.assign(D="x"))
    for refusing in (TableEncoder(), TableEncoder(missing="x")):
        with pytest.raises(DataError, match="missing"):
            refusing.fit(df)
