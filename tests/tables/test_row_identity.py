"""Rows are the same by their content and index, whatever their order and types; audits resample shared rows once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair.tables.row_identity import describe_copies, hash_rows, match_rows

RNG = np.random.default_rng
GRAPH = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")


def continuous(n: int, seed: int = 0) -> pd.DataFrame:
    rng = RNG(seed)
    q = rng.normal(size=n)
    a = (rng.random(n) < expit(0.5 * q)).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "M": 0.5 * a + 0.5 * q + rng.normal(size=n)})


def discrete(n: int, seed: int = 0) -> pd.DataFrame:
    rng = RNG(seed)
    return pd.DataFrame({"A": rng.integers(0, 2, n), "Q": rng.integers(0, 3, n), "M": rng.choice(["x", "y"], n)})


def as_text(df: pd.DataFrame) -> pd.DataFrame:
    return df.assign(A=df["A"].astype(str))


COPIES: dict[str, Any] = {
    "float32": lambda df: df.astype(np.float32),
    "float32 but A": lambda df: df.astype({"Q": np.float32, "M": np.float32}),
    "Int64, Float64": lambda df: df.convert_dtypes(),
    "Float32": lambda df: df.astype("Float32"),
    "arrow": lambda df: df.convert_dtypes(dtype_backend="pyarrow"),
    "arrow float": lambda df: df.astype("float[pyarrow]"),
    "A as bool": lambda df: df.assign(A=df["A"].astype(bool)),
    "A as text": as_text,
    "rounded": lambda df: df.assign(Q=df["Q"] * (1.0 + 3e-8), M=df["M"].round(9)),
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES.keys())
@pytest.mark.parametrize("kept", [slice(None), slice(300, None)])
def test_a_copy_of_other_precision_or_type_holds_the_same_rows(copy: Any, kept: Any) -> None:
    df = continuous(800)
    part = copy(df.iloc[kept])
    assert (match_rows(part, df) == np.arange(800)[kept]).all()
    assert (match_rows(df, part)[kept] == np.arange(len(part))).all()
    if copy is not COPIES["rounded"]:
        shuffled = part.sample(frac=1.0, random_state=0).reset_index(drop=True)
        assert (match_rows(shuffled, df) == part.sample(frac=1.0, random_state=0).index).all()
    assert (match_rows(copy(continuous(800, 1)), df) == -1).all()


def test_half_precision_holds_the_same_rows_where_it_is_exact() -> None:
    df = continuous(400).round({"Q": 1, "M": 1}).assign(Q=lambda df: df["Q"].round(0) / 8, M=lambda df: df.index / 8)
    assert (match_rows(df.astype(np.float16), df) == np.arange(400)).all()


def test_numbers_that_single_precision_cannot_tell_apart_keep_their_own_rows() -> None:
    df = pd.DataFrame({"M": 2**40 + np.arange(200), "Q": 0})
    order = RNG(0).permutation(200)
    assert (match_rows(df.iloc[order].reset_index(drop=True), df) == order).all()
    assert len(np.unique(hash_rows(df))) == 200


@pytest.mark.parametrize(
    "change",
    [
        lambda df: df.assign(A=df["A"].astype(float)),
        lambda df: df.assign(A=df["A"].astype(bool)),
        lambda df: df.assign(A=df["A"].astype(object)),
        lambda df: df.assign(A=df["A"].astype("Int8")),
        lambda df: df.assign(A=df["A"].astype("category")),
        lambda df: df.assign(M=df["M"].astype("category")),
        lambda df: df.assign(M=df["M"].astype("string")),
        lambda df: df[["M", "Q", "A"]],
        lambda df: df.set_axis([f"row {i}" for i in range(len(df))], axis=0),
        lambda df: df.assign(Q=df["Q"] * -1.0 * -1.0),
    ],
)
def test_a_row_is_its_content(change: Any) -> None:
    df = discrete(50)
    changed = change(df)
    assert (hash_rows(changed) == hash_rows(df)).all()
    assert (match_rows(changed, df) == np.arange(50)).all()


def test_other_contents_have_other_hashes() -> None:
    df = pd.DataFrame({"A": [0, 1, 0, 1], "M": ["0", "1", 0, 1]})
    assert len(np.unique(hash_rows(df))) == 4  # text is no number
    assert (hash_rows(df[["A"]]) != hash_rows(df[["A"]].rename(columns={"A": "B"})[["B"]] + 1)).all()


@pytest.mark.parametrize("make", [continuous, discrete])
@pytest.mark.parametrize("keep_index", [True, False])
def test_shuffled_rows_are_the_same(make: Any, keep_index: bool) -> None:
    df = make(200)
    order = RNG(1).permutation(200)
    shuffled = df.iloc[order] if keep_index else df.iloc[order].reset_index(drop=True)
    found = match_rows(shuffled, df)
    assert sorted(found) == list(range(200))
    assert (hash_rows(df)[found] == hash_rows(shuffled)).all()
    if keep_index or make is continuous:
        assert (found == order).all()


@pytest.mark.parametrize("keep_index", [True, False])
def test_rows_that_overlap_in_part_are_found(keep_index: bool) -> None:
    df = pd.concat([continuous(100), continuous(60, 1)], ignore_index=True)
    part = df.iloc[50:] if keep_index else df.iloc[50:].reset_index(drop=True)
    assert match_rows(part, df.iloc[:100]).tolist() == [*range(50, 100), *[-1] * 60]


def test_equal_contents_of_independent_samples_are_no_identity() -> None:
    """12 cells: each row has its like in the other sample, and more so in its own; labels decide, or nothing does."""
    df = discrete(300)
    assert (match_rows(df.iloc[200:], df.iloc[:200]) == -1).all()
    assert (match_rows(df.iloc[200:].reset_index(drop=True), df.iloc[:200]) == -1).all()
    assert (match_rows(discrete(100, 1), discrete(200, 2)) == -1).all()
    # Equal labels with equal contents throughout are no chance.
    assert match_rows(df.iloc[150:], df.iloc[:200]).tolist() == [*range(150, 200), *[-1] * 100]


def test_many_repeated_contents_do_not_hide_rows_in_common() -> None:
    rng = RNG(0)
    df = pd.DataFrame({"M": rng.integers(0, 3_000, 4_000)})
    fitted, other = df.iloc[:2_000].reset_index(drop=True), df.iloc[2_000:].reset_index(drop=True)
    assert (match_rows(other, fitted) == -1).all()
    mixed = pd.concat([fitted.iloc[:1_000], other.iloc[:1_000]], ignore_index=True)
    found = match_rows(mixed, fitted.iloc[::-1].reset_index(drop=True))
    known = found >= 0
    assert known.sum() > 400
    assert (1_999 - found[known] == np.flatnonzero(known))[np.flatnonzero(known) < 1_000].mean() > 0.9
    assert len(np.unique(found[known])) == known.sum()


# --- in an audit -----------------------------------------------------------------------------------------------------


def widths(df: pd.DataFrame, source: Any, model: Any, **settings: Any) -> pd.DataFrame:
    settings = {"n_boot": 60, "n_jobs": 1, "progress": False, "random_state": 0} | settings
    report = pf.audit({"m": model}, source, df, **settings)
    table = report.table.set_index(["decisions", "quantity"])
    return table.loc["score", ["estimate", "lower", "upper"]].assign(told=report.context["resampling"])


@pytest.mark.parametrize("bootstrap", ["bayesian", "multinomial"])
@pytest.mark.some(1)
def test_intervals_do_not_depend_on_order_index_or_type(bootstrap: Any) -> None:
    df = continuous(600)
    model = LogisticRegression().fit(df, df["M"] + df["A"] > 0)
    source = pf.IPW(UNFAIR, arm="paper").fit(df)
    settings = {"bootstrap": bootstrap, "n_boot": 40}
    expected = widths(df, source, model, **settings)
    assert (expected["told"] == "The source was fitted on these rows: a replicate resamples them once, for both.").all()
    shuffled = df.sample(frac=1.0, random_state=1)
    for same in (
        df.set_axis(df.index + 7, axis=0),
        df.assign(A=df["A"].astype(float)),
        df.astype(np.float32),
        df.convert_dtypes(dtype_backend="pyarrow"),
        shuffled.reset_index(drop=True)[["M", "A", "Q"]],
    ):
        own = LogisticRegression().fit(same[["A", "Q", "M"]], same["M"] + same["A"] > 0)
        found = widths(same, source, own, **settings)
        assert found["told"].str.startswith("The source was fitted on these rows").all()
        numbers = ["estimate", "lower", "upper"]
        np.testing.assert_allclose(found[numbers], expected[numbers], atol=2e-3)


def test_rows_fitted_on_keep_their_out_of_fold_propensities_in_any_order() -> None:
    df = continuous(300)
    source = pf.IPW(UNFAIR, arm="pooled", propensity="boosted", random_state=0).fit(df)
    own = source.weights(UNFAIR.regimes[1])
    shuffled = df.sample(frac=1.0, random_state=1)
    np.testing.assert_allclose(source.weights(UNFAIR.regimes[1], shuffled), own[shuffled.index])
    more = pd.concat([continuous(50, 1), df.iloc[:100]], ignore_index=True)
    mixed = source.weights(UNFAIR.regimes[1], more)
    np.testing.assert_allclose(mixed.iloc[50:], own.iloc[:100])
    np.testing.assert_allclose(mixed.iloc[:50], source.weights(UNFAIR.regimes[1], more.iloc[:50]))
    assert source.fitted_rows(more).tolist() == [*[-1] * 50, *range(100)]
    assert source.fitted_rows(shuffled).tolist() == shuffled.index.tolist()


@pytest.mark.filterwarnings("ignore:Poor overlap among the audited rows")
def test_rows_in_common_have_one_weight_in_a_replicate(monkeypatch: pytest.MonkeyPatch) -> None:
    df = continuous(300)
    audited = pd.concat([df.iloc[200:], continuous(50, 1)], ignore_index=True)
    fits, audits = [], []
    refit, worlds = pf.IPW.refit, pf.IPW.worlds

    def keep_refit(self: pf.IPW, weight: Any) -> pf.IPW:
        fits.append(weight)
        return refit(self, weight)

    def keep_worlds(self: pf.IPW, *args: Any, **settings: Any) -> Any:
        audits.append(settings["sample_weight"])
        return worlds(self, *args, **settings)

    source = pf.IPW(UNFAIR, arm="paper").fit(df)
    monkeypatch.setattr(pf.IPW, "refit", keep_refit)
    monkeypatch.setattr(pf.IPW, "worlds", keep_worlds)
    model = LogisticRegression().fit(df, df["M"] > 0)
    found = widths(audited, source, model)
    assert found["told"].iloc[0].startswith("100 of these rows are among the 300 that the source was fitted on")
    assert len(fits) == 60
    resampled = audits[3::3]  # the pooled source, then each group
    for fit, audit in zip(fits, resampled, strict=True):
        assert fit.sum() == pytest.approx(300.0)
        assert audit.sum() == pytest.approx(150.0)
        assert np.ptp(audit[:100] / fit[200:]) == pytest.approx(0.0, abs=1e-9)
        assert abs(np.corrcoef(audit[100:], fit[:50])[0, 1]) < 0.6


# --- copies ----------------------------------------------------------------------------------------------------------


def test_copies_are_rows_that_agree_in_all_columns() -> None:
    df = pd.DataFrame({"A": np.arange(300) % 2, "M": np.arange(300) + 0.5})
    twice = df.loc[df.index.repeat(2)].assign(id=range(600))
    (text,) = describe_copies(twice, ["A", "M"])
    assert text.startswith("600 of 600 rows repeat another one in all 2 columns (A, M), though 'M' has 300 different")
    site = np.tile(["north", "south"], 300)
    assert describe_copies(twice.assign(site=site), ["A", "M"]) == describe_copies(df, ["A", "M"]) == []
    assert describe_copies(twice.assign(each=[[1]] * 600), ["A", "M"]) == [text]
    assert describe_copies(twice.drop_duplicates(["A", "M"]), ["A", "M"], np.full(300, 2)) == []


def test_rows_that_agree_by_chance_are_no_copies() -> None:
    rng = RNG(0)
    A = rng.integers(0, 2, 2000)
    income = np.where(rng.random(2000) < 0.6 - 0.4 * A, 0.0, np.exp(rng.normal(3, 1, 2000))).round(2)
    hours = np.clip(rng.normal(36 + 3 * A, 3), 20, 37.5).round(2)
    Y = (rng.random(2000) < 0.3 + 0.3 * (income > 0)).astype(int)
    for M in (income, hours):
        df = pd.DataFrame({"A": A, "M": M, "Y": Y})
        assert df.duplicated(keep=False).mean() > 0.4
        assert describe_copies(df, ["A", "M", "Y"]) == []
        for copied in (df.loc[df.index.repeat(2)], pd.concat([df] * 2), df.sample(4000, replace=True, random_state=0)):
            assert len(describe_copies(copied, ["A", "M", "Y"])) == 1


def test_a_table_of_counts_is_written_out() -> None:
    rng = np.random.default_rng(0)
    A = rng.integers(0, 2, 900)
    df = pd.DataFrame({"A": A, "M": 10 * (rng.integers(0, 3, 900) + A), "Y": rng.integers(0, 2, 900)})
    unfair = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    counts = df.value_counts(sort=False).rename("n").reset_index()
    table, weight = counts[["A", "M", "Y"]], counts["n"]
    model = LogisticRegression().fit(df[["A", "M"]], df["Y"])
    cure = r"12 rows with weights.*df\.loc\[df\.index\.repeat\(sample_weight\)\]"
    with pytest.warns(pf.PyrofairWarning, match=cure), pytest.raises(pf.PositivityError):
        pf.audit({"m": model}, unfair, table, sample_weight=weight)
    written, right = (
        pf.audit({"m": model}, unfair, each.sort_values(["A", "M", "Y"]), random_state=0).table["estimate"]
        for each in (table.loc[table.index.repeat(weight)], df)
    )
    np.testing.assert_allclose(written, right)
