"""IPW on rows in batches: the propensities, groups, overlap and weights of the same rows in one table."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyrofair.sources.designs import CodedDesign
from pyrofair.sources.models import newton_logistic
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair._random import EXPONENTIALS, KeyedWeights, keyed_exponentials
from pyrofair.exceptions import DataError, PositivityError, PositivityWarning
from pyrofair.tables import TableEncoder, as_batches

GRAPH = pf.CausalGraph("{Q R} -> A; {A Q R} -> D; {A Q R D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")


def draw(n: int = 3000, seed: int = 0, *, discrete: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 2, n).astype(float) if discrete else rng.normal(size=n)
    r = rng.integers(0, 4, n)
    a = (rng.random(n) < 1.0 / (1.0 + np.exp(0.3 - 0.5 * q - 0.2 * r))).astype(int)
    d = (rng.random(n) < 0.3 + 0.3 * a).astype(int)
    m = rng.integers(0, 3, n) + d
    w = rng.uniform(0.5, 2.0, n)
    y = (rng.random(n) < 0.2 + 0.1 * m + 0.2 * a).astype(int)
    text = np.array(["north", "east", "south", "west"])[r]
    return pd.DataFrame(
        {"A": a, "Q": q, "R": text, "D": d, "M": pd.Categorical.from_codes(m, list("abcd")), "Y": y, "w": w}
    )


DF = draw().drop(columns="w")


@pytest.mark.parametrize("arm", ["auto", "paper", "pooled"])
@pytest.mark.parametrize("propensity", ["logistic", "saturated"])
@pytest.mark.some(3)
def test_batches_give_what_the_table_gives(propensity: Any, arm: Any) -> None:
    df = draw(discrete=propensity == "saturated")
    named = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
    features = df.drop(columns=["Y"])
    one = pf.IPW(named, propensity=propensity, arm=arm).fit(features.drop(columns="w"), sample_weight=df["w"])
    two = pf.IPW(named, propensity=propensity, arm=arm).fit(as_batches(features, batch_rows=700), sample_weight="w")
    assert one.arm_ == two.arm_
    mine, theirs = one.overlap(), two.overlap()
    numbers = mine.select_dtypes("number").columns
    assert mine.drop(columns=numbers).equals(theirs.drop(columns=numbers))
    np.testing.assert_allclose(mine[numbers], theirs[numbers], rtol=1e-9)
    for regime in named.regimes:
        np.testing.assert_allclose(one.weights(regime), two.weights(regime, df), atol=1e-9)
    assert one.group_sizes()["unfair"][0].rows == two.group_sizes()["unfair"][0].rows
    assert two.n_fitted_ == 3000
    for a, b in zip(one.worlds(), two.worlds(df=features, sample_weight=df["w"]), strict=True):
        np.testing.assert_allclose(a.weight, b.weight, atol=1e-12)
        pd.testing.assert_frame_equal(a.rows.astype(str), b.rows.astype(str))
    assert set(one.by_group()) == set(two.by_group())


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
def test_levels_without_support_are_found_in_batches() -> None:
    df = DF.drop(columns="Y")
    df.loc[df.index[:2], "A"] = 1
    df.loc[df.index[:2], "R"] = "far"  # a level of one group only, with little mass
    one, two = (pf.IPW(UNFAIR).fit(table).overlap() for table in (df, as_batches(df, batch_rows=1_500)))
    assert one["unsupported_cells"].tolist() == two["unsupported_cells"].tolist()
    assert (one["unsupported_cells"] == "R=far").any()
    np.testing.assert_allclose(one["unsupported_mass"], two["unsupported_mass"], rtol=1e-9)
    df.loc[df.index[:90], "A"] = 1
    df.loc[df.index[:90], "R"] = "far"
    with pytest.raises(PositivityError, match=r"0.03 of the target population has no counterpart .* R=far"):
        pf.IPW(UNFAIR, arm=0).fit(as_batches(df, batch_rows=1_500))


@pytest.mark.parametrize(
    ("settings", "weight", "message"),
    [
        ({"propensity": "boosted"}, None, "propensity='boosted' needs all rows in memory"),
        ({"propensity": LogisticRegression()}, None, "propensity=LogisticRegression needs all rows in memory"),
        ({"trim": 0.01}, None, "trim=0.01 drops rows before the fit"),
        ({}, np.ones(3000), "must name the column of weights"),
        ({}, "weight", "lack the column 'weight'"),
    ],
)
def test_what_needs_all_rows_is_refused(settings: Any, weight: Any, message: str) -> None:
    source = pf.IPW(UNFAIR, **settings)
    with pytest.raises(DataError, match=message):
        source.fit(as_batches(DF.drop(columns="Y")), sample_weight=weight)
    assert not hasattr(source, "nuisances_")


def test_one_group_missing_values_and_unknown_rows_are_refused() -> None:
    features = DF.drop(columns="Y")
    with pytest.raises(DataError, match="never takes the value 1"):
        pf.IPW(UNFAIR).fit(as_batches(features[features["A"] == 0]))
    holes = features.assign(Q=features["Q"].where(features.index != 1234))
    with pytest.raises(DataError, match=r"1 missing value\(s\) \(NaN\) in the column 'Q', the first in row 1234"):
        pf.IPW(UNFAIR).fit(as_batches(holes, batch_rows=500))
    source = pf.IPW(UNFAIR).fit(as_batches(features))
    with pytest.raises(DataError, match="was fitted on batches, and does not hold their rows"):
        source.worlds()
    with pytest.raises(DataError, match="a replicate needs these"):
        source.refit(np.ones(3000))
    assert (source.fitted_rows(features) == -1).all()


def test_workers_get_the_models_without_the_rows() -> None:
    features = DF.drop(columns="Y")
    source = pf.IPW(UNFAIR).fit(as_batches(features))
    sent = pickle.dumps(source.nuisances_)
    assert len(sent) < 40_000
    again = pickle.loads(sent)
    with pytest.raises(DataError, match="have lost the batches"):
        again.fit_prefixes([("Q", "D")])


@pytest.mark.parametrize("propensity", ["logistic", "saturated"])
@pytest.mark.some(1)
def test_replicates_share_passes_and_are_those_of_refits(propensity: Any) -> None:
    df = draw(discrete=propensity == "saturated").drop(columns=["Y", "w"])
    df.loc[df.index[:2], ["A", "R"]] = [0, "far"]  # its likelihood has no maximum
    df.loc[df.index[2:6], "R"] = "near"  # four rows, whose replicates differ much
    df.loc[df.index[2], "A"] = 1 - df.loc[df.index[3], "A"]
    unfair = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
    source = pf.IPW(unfair, arm=0, propensity=propensity, max_unsupported=0.5)
    keys = KeyedWeights(11, 12)
    with pytest.warns(PositivityWarning):
        memory = pf.IPW(**source.get_params()).fit(df)
    with pytest.warns(PositivityWarning):
        source.fit(as_batches(df, batch_rows=900))
    made = source.replicate_weights(keys)
    assert not made.failed.any()
    found = made.weights(df)
    drawn = keys.of(0, len(df))
    for i in range(13):
        refitted = memory if i == 0 else memory.refit(drawn[:, i])
        for world, regime in enumerate(unfair.regimes):
            np.testing.assert_allclose(found["audited", world][:, i], refitted.weights(regime), rtol=2e-5, atol=1e-7)
            assert abs(found["audited", world][:, i] - refitted.weights(regime)).mean() < 1e-8


def test_wide_designs_are_sparse_in_replicates() -> None:
    df = DF.drop(columns="Y")
    df["R"] = np.array([f"district {i}" for i in range(140)])[np.random.default_rng(5).integers(0, 140, 3000)]
    keys = KeyedWeights(1, 2)
    memory = pf.IPW(UNFAIR, arm=0).fit(df)
    found = pf.IPW(UNFAIR, arm=0).fit(as_batches(df, batch_rows=1100)).replicate_weights(keys).weights(df)
    for i in range(3):
        refitted = memory.refit(keys.of(0, 3000)[:, i])
        for world, regime in enumerate(UNFAIR.regimes):
            np.testing.assert_allclose(found["audited", world][:, i], refitted.weights(regime), atol=1e-6)


def test_keyed_weights_belong_to_rows() -> None:
    drawn = keyed_exponentials(3, 5, 0, 3 * EXPONENTIALS)
    np.testing.assert_array_equal(drawn[100:20_000], keyed_exponentials(3, 5, 100, 20_000))
    np.testing.assert_array_equal(KeyedWeights(3, 6, first=9000).of(1, 500)[:, 6], drawn[9001:9500])
    others = keyed_exponentials(3, 6, 0, 3 * EXPONENTIALS), keyed_exponentials(4, 5, 0, 3 * EXPONENTIALS)
    assert all(abs(np.corrcoef(drawn, each)[0, 1]) < 0.03 for each in others)
    assert abs(np.corrcoef(drawn[:EXPONENTIALS], drawn[EXPONENTIALS : 2 * EXPONENTIALS])[0, 1]) < 0.05
    assert drawn.mean() == pytest.approx(1.0, abs=0.03)
    assert drawn.var() == pytest.approx(1.0, abs=0.1)


# -- designs ----------------------------------------------------------------------------------------------------------


def test_a_coded_design_stands_for_its_dense_matrix() -> None:
    encoder = TableEncoder().fit(DF[["Q", "R", "M"]])
    design = CodedDesign.of(encoder, DF[["Q", "R", "M"]])
    matrix = np.hstack([np.ones((3000, 1)), encoder.transform(DF[["Q", "R", "M"]])])
    rng = np.random.default_rng(1)
    coef, values = rng.normal(size=matrix.shape[1]), rng.uniform(size=3000)
    assert design.shape == matrix.shape
    np.testing.assert_array_equal(design.dense(), matrix)
    np.testing.assert_allclose(design @ coef, matrix @ coef, atol=1e-12)
    np.testing.assert_allclose(design @ np.outer(coef, [1.0, 2.0]), np.outer(matrix @ coef, [1.0, 2.0]), atol=1e-12)
    np.testing.assert_allclose(design.transposed(values), matrix.T @ values, atol=1e-9)
    np.testing.assert_allclose(design.curvature(values), matrix.T @ (values[:, None] * matrix), atol=1e-9)
    np.testing.assert_array_equal(design[5:9].dense(), matrix[5:9])


def test_newton_on_codes_and_on_compressed_rows_agree() -> None:
    encoder = TableEncoder().fit(DF[["Q", "R", "M"]])
    coded = CodedDesign.of(encoder, DF[["Q", "R", "M"]])
    weight = np.random.default_rng(2).exponential(size=3000)
    start = np.zeros(coded.shape[1])
    one = newton_logistic(coded, DF["A"].to_numpy(), weight, start)
    two = newton_logistic(sparse.csr_array(coded.dense()), DF["A"].to_numpy(), weight, start)
    np.testing.assert_allclose(coded @ one, coded @ two, atol=1e-7)
