"""Audits of rows in batches: tables, intervals and groups of the same rows in memory, from files and on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import pyrofair as pf
from pyrofair.audits import Audit
from pyrofair.exceptions import DataError, PositivityWarning, PyrofairWarning
from pyrofair.tables import TableEncoder, as_batches


def draw(n: int, seed: int = 0, *, discrete: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 2, n).astype(float) if discrete else rng.normal(size=n)
    r = rng.integers(0, 3, n)
    a = (rng.random(n) < expit(0.5 * q + 0.2 * r - 0.3)).astype(int)
    d = (rng.random(n) < 0.3 + 0.3 * a).astype(int)
    m = rng.integers(0, 3, n) + d
    y = np.where(rng.random(n) < 0.2 + 0.1 * m + 0.2 * a, "yes", "no")
    text = np.array(["north", "east", "south"])[r]
    return pd.DataFrame(
        {"A": a, "Q": q, "R": text, "D": d, "M": m, "Y": y, "w": rng.uniform(0.5, 2.0, n)}, index=rng.permutation(n)
    )


class Scores:
    """A model that reads the sensitive attribute."""

    classes_ = ("no", "yes")

    def __init__(self, slope: float = 0.4) -> None:
        self.slope = slope

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        p = expit(-1.2 + 0.6 * X["A"] + 0.3 * X["Q"] + 0.5 * X["D"] + self.slope * X["M"]).to_numpy()
        return np.column_stack([1.0 - p, p])


MODELS = {"one": Scores(), "other": Scores(0.1)}


def paths() -> pf.UnfairPaths:
    """A graph of its own for each call: warnings of columns are given once for a graph."""
    graph = pf.CausalGraph(
        "{Q R} -> A; {A Q R} -> D; {A Q R D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y", positive="yes"
    )
    return graph.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")


def same(one: Audit, other: Audit, *, rtol: float = 1e-8) -> None:
    for mine, theirs in ((one.table, other.table), (one.groups, other.groups), (one.draws, other.draws)):
        numbers = mine.select_dtypes("number").columns
        assert mine.drop(columns=numbers).equals(theirs.drop(columns=numbers))
        np.testing.assert_allclose(mine[numbers], theirs[numbers], rtol=0, atol=rtol)
    for name, value in one.context.items():
        if name not in ("graph", "overlap", "score_types"):
            assert value == other.context[name], name
    assert str(one) == str(other)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"propensity": "saturated"},
        {"arm": "pooled", "normalize": False},
        {"arm": "paper", "clip": 0.3},
    ],
)
@pytest.mark.some(1)
def test_batches_give_the_audit_of_the_table(settings: Any) -> None:
    df = draw(1500, discrete=settings.get("propensity") == "saturated").drop(columns="w").reset_index(drop=True)
    unfair = paths()
    asked: dict[str, Any] = {"n_boot": 12, "level": 0.6, "random_state": 5, "progress": False, "n_jobs": 1}
    same(
        pf.audit(MODELS, pf.IPW(unfair, **settings), df, **asked),
        pf.audit(MODELS, pf.IPW(unfair, **settings), as_batches([df[:700], df[700:]], batch_rows=333), **asked),
    )


@pytest.mark.filterwarnings("ignore:Columns outside the graph")
def test_weights_files_and_sizes_of_batches(tmp_path: Path) -> None:
    df = draw(700).reset_index(drop=True)
    df.to_parquet(tmp_path / "rows.parquet", row_group_size=250)
    asked: dict[str, Any] = {"n_boot": 12, "level": 0.6, "random_state": 2, "progress": False}
    memory = pf.audit(MODELS, pf.IPW(paths()), df, sample_weight=df["w"], **asked)
    for rows in (200, 10_000):
        found = pf.audit(
            MODELS, pf.IPW(paths()), as_batches(tmp_path / "rows.parquet", batch_rows=rows), sample_weight="w", **asked
        )
        same(memory, found)


def test_a_source_fitted_on_other_rows() -> None:
    train, test = draw(900, 1).drop(columns="w"), draw(800, 2).drop(columns="w").reset_index(drop=True)
    train.index += 5000
    unfair = paths()
    asked: dict[str, Any] = {"n_boot": 12, "level": 0.6, "random_state": 2, "progress": False}
    fitted = pf.IPW(unfair).fit(train.drop(columns="Y"))
    memory = pf.audit(MODELS, fitted, test, **asked)
    same(memory, pf.audit(MODELS, fitted, as_batches(test, batch_rows=300), **asked))
    batched = pf.IPW(unfair).fit(as_batches(train.drop(columns="Y"), batch_rows=300))
    found = pf.audit(MODELS, batched, as_batches(test), **asked)
    same(memory, found)
    assert "fitted on 900 other rows" in str(found)


def test_points_alone_and_rows_without_an_outcome() -> None:
    df = draw(600).drop(columns=["w", "Y"]).reset_index(drop=True)
    asked: dict[str, Any] = {"n_boot": 0, "progress": False}
    unfair = paths()
    found = pf.audit(MODELS, pf.IPW(unfair), as_batches(df), **asked)
    same(pf.audit(MODELS, pf.IPW(unfair), df, **asked), found)
    assert found.table["estimate"].isna().sum() == 4
    assert found.draws.empty


def test_one_group_only_leaves_the_rates() -> None:
    df = draw(600).drop(columns="w").reset_index(drop=True)
    fitted = pf.IPW(paths()).fit(as_batches(df.drop(columns="Y")))
    found = pf.audit(MODELS, fitted, as_batches(df[df["A"] == 1]), n_boot=0)
    table = found.table.set_index(["model", "decisions", "quantity"])
    assert "have no row with A=0" in table.loc[("one", "score", "p_ypi"), "note"]
    assert table.loc[("one", "threshold", "accuracy"), "estimate"] > 0.4


class Random(Scores):
    """A model that draws its scores."""

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        p = np.random.default_rng().uniform(size=len(X))
        return np.column_stack([1.0 - p, p])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "paths"}, r"got unfair paths alone. Pass IPW\(unfair\)"),
        ({"source": pf.GComputation}, "got GComputation"),
        ({"bootstrap": "multinomial"}, "bootstrap='multinomial' needs all rows at once"),
        ({"sample_weight": np.ones(600)}, "must name the column of weights"),
        ({"scores": "outcome"}, "needs the scores of all rows in memory"),
        ({"models": {"given": np.ones(600)}}, "'given' is given as"),
        ({"models": {"random": Random()}}, "'random' is no function of the features"),
        ({"outcome": "maybe"}, "must be binary, but holds 3 classes"),
    ],
)
def test_what_needs_all_rows_is_refused(change: dict[str, Any], message: str) -> None:
    df = draw(600).drop(columns="w")
    unfair = paths()
    source: Any = change.pop("source", pf.IPW)
    if "outcome" in change:
        df.iloc[0, df.columns.get_loc("Y")] = change.pop("outcome")
    with pytest.raises(DataError, match=message):
        pf.audit(
            change.pop("models", MODELS),
            unfair if source == "paths" else source(unfair),
            as_batches(df),
            n_boot=2,
            **change,
        )


def test_an_outcome_of_one_class_and_poor_overlap_are_warned_of() -> None:
    df = draw(600).drop(columns="w").assign(Y="yes")
    fitted = pf.IPW(paths()).fit(as_batches(df.drop(columns="Y")))
    few = pd.concat([df[df["A"] == 0][:3], df[df["A"] == 1]])
    with (
        pytest.warns(PyrofairWarning, match="is always 'yes': accuracy is that of one class"),
        pytest.warns(PositivityWarning, match="Poor overlap among the audited rows, world"),
    ):
        found = pf.audit(MODELS, fitted, as_batches(few), n_boot=0)
    assert any("Poor overlap among" in text for text in found.context["warnings"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed", "ignore::ResourceWarning")
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_dask_workers_make_the_same_sums(processes: bool, tmp_path: Path) -> None:
    """Sums are made by `map_partitions` where the rows are."""
    dd, distributed = pytest.importorskip("dask.dataframe"), pytest.importorskip("distributed")
    df = draw(1000).drop(columns="w").reset_index(drop=True)
    unfair = paths()
    model = make_pipeline(TableEncoder(), LogisticRegression()).fit(df[["A", "Q", "D", "M"]], df["Y"])
    asked: dict[str, Any] = {"n_boot": 12, "level": 0.6, "random_state": 3, "progress": False}
    memory = pf.audit({"model": model}, pf.IPW(unfair), df, **asked)
    place: dict[str, Any] = {"dashboard_address": ":0", "local_directory": str(tmp_path), "processes": processes}
    place["silence_logs"] = 60
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **place) as cluster, distributed.Client(cluster):
        batches = as_batches(dd.from_pandas(df, npartitions=4), batch_rows=200)
        found = pf.audit({"model": model}, pf.IPW(unfair), batches, **asked)
    same(memory, found)
