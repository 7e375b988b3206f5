"""G-computation of rows with missing values: worlds, effect and bound against a program that loses values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair.exceptions import DataError

GRAPH = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
pytestmark = pytest.mark.filterwarnings("ignore:The true D acts on M by its record alone")
LABELS = np.array([None, "low", "high"], dtype=object)
READS = ["A", "C", "D", "M"]


def draw(n: int, seed: int, arm: int | None = None) -> pd.DataFrame:
    """Return rows as recorded: D is lost by its true value and by A, M by its value; in a world D has A at an arm."""
    rng = np.random.default_rng(seed)
    C = rng.integers(0, 2, n)
    A = (rng.random(n) < np.where(C == 1, 0.6, 0.4)).astype(int)
    known, read = (A, A) if arm is None else (np.full(n, arm), np.zeros(n, int))
    true = 0.8 * known + 0.7 * C + rng.standard_normal(n)
    D = np.where(rng.random(n) < expit(-1.0 + 1.2 * known - 0.8 * true), np.nan, true)
    high = rng.random(n) < expit(0.9 * np.nan_to_num(D, nan=-1.0) + 0.6 * read - 0.4)
    M = np.where(rng.random(n) < np.where(high, 0.1, 0.3), 0, 1 + high)
    return pd.DataFrame({"A": known, "C": C, "D": D, "M": pd.Series(LABELS[M], dtype="str")})


class Reader:
    """A known classifier that reads missing values: of D as a low one, of M as a level of its own."""

    classes_ = np.array([0, 1])
    feature_names_in_ = np.array(READS)

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        level = rows["M"].map({"low": -0.6, "high": 0.8}).fillna(-0.3).to_numpy(float)
        p = expit(1.8 * rows["C"] - 1.9 + 0.8 * rows["A"] + 0.7 * rows["D"].fillna(-1.0) + level).to_numpy(float)
        return np.column_stack([1.0 - p, p])


@cache
def truth() -> dict[str, float]:
    """Return the effect and the upper bound of PIU given C, the only feature that both worlds share."""
    worlds = [draw(1_000_000, 0, arm) for arm in (0, 1)]
    p = [pd.Series(Reader().predict_proba(rows)[:, 1]).groupby(rows["C"]).mean() for rows in worlds]
    share = worlds[0]["C"].value_counts(normalize=True)
    bound = np.minimum(p[0] + p[1], 2.0 - p[0] - p[1])
    return {"mean_unfair_effect": float(share @ (p[1] - p[0])), "piu_upper": float(share @ bound)}


def learn(n: int, seed: int) -> pf.GComputation:
    source = pf.GComputation(UNFAIR, missing="recorded", hidden=(16,), progress=False, random_state=seed)
    return source.fit(draw(n, seed))


def estimates(source: pf.GComputation, n: int, seed: int) -> dict[str, float]:
    report = pf.audit({"m": Reader()}, source, draw(n, seed), n_boot=0, n_jobs=1, progress=False, random_state=seed)
    table = report.table[report.table["decisions"] == "score"].set_index("quantity")["estimate"]
    return {name: float(table[name]) for name in truth()}


def test_effect_bound_and_what_is_recorded_are_those_of_the_program() -> None:
    source = learn(6000, 2)
    assert estimates(source, 6000, 2) == pytest.approx(truth(), abs=0.02)
    for world, arm in zip(source.worlds(), (0, 1), strict=True):
        true = draw(200_000, 0, arm)
        gaps = world.rows.isna().mul(world.weight, axis=0).sum()
        assert gaps.to_dict() == pytest.approx(true[[*gaps.index]].isna().mean().to_dict(), abs=0.02)
        assert world.rows.dtypes.to_dict() == true.dtypes[[*world.rows]].to_dict()
    assert (source.overlap()["outside"] < 0.01).all()
    assert any("D, M may be missing" in text for text in source.assumptions)


@pytest.mark.slow
def test_estimates_are_off_by_half_a_point_at_most() -> None:
    found = pd.DataFrame([estimates(learn(1500, seed), 1500, seed) for seed in range(10_000, 10_200)])
    error = found.mean() - pd.Series(truth())
    assert (error.abs() < 0.005 + 2.0 * found.std() / np.sqrt(len(found))).all()


@pytest.mark.parametrize(
    "convert",
    [
        lambda df: df.convert_dtypes(),
        lambda df: df.convert_dtypes(dtype_backend="pyarrow"),
        lambda df: df.astype({"M": "category"}),
        lambda df: df.assign(M=df["M"].astype(object).where(df["M"].notna(), None), D=df["D"].round()),
    ],
)
def test_gaps_are_written_as_the_column_has_them(convert: Any) -> None:
    df = convert(draw(400, 0))
    source = pf.GComputation(UNFAIR, missing="recorded", parameters="linear", draws=20, progress=False, random_state=0)
    for world in source.fit(df).worlds(n=20):
        assert world.rows.dtypes.to_dict() == df.dtypes[[*world.rows]].to_dict()
        for name in ("D", "M"):
            gaps, own = (rows[name][rows[name].isna()] for rows in (world.rows, df))
            assert len(gaps)
            assert {*map(repr, gaps)} == {*map(repr, own)}


def test_shared_features_may_be_missing() -> None:
    df = draw(600, 0).assign(C=lambda rows: rows["C"].where(rows.index % 7 > 0))
    source = pf.GComputation(UNFAIR, missing="recorded", parameters="linear", draws=20, progress=False, random_state=0)
    with pytest.warns(pf.PyrofairWarning, match="The true C"):
        source.fit(df)
    one, other = source.worlds()
    assert one.rows["C"].isna().mul(one.weight).sum() == pytest.approx(df["C"].isna().mean(), abs=1e-6)
    assert one.units == other.units == df["C"].nunique(dropna=False)


def test_rows_without_a_value_that_all_fitted_rows_have_are_refused() -> None:
    df = draw(400, 0)
    source = pf.GComputation(UNFAIR, missing="recorded", parameters="linear", progress=False, random_state=0).fit(df)
    with pytest.raises(DataError, match="no 'C'"):
        source.worlds(df=df.assign(C=df["C"].where(df.index > 3)))
    with pytest.raises(DataError, match=r"missing value.*'D'.*missing=.recorded"):
        pf.GComputation(UNFAIR, progress=False).fit(df)
