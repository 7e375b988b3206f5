"""Rows in batches: the same rows, levels and sums whatever they are read from, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair.exceptions import DataError
from pyrofair.tables import Batches, TableEncoder, as_batches
from pyrofair.tables.batches import Moments, batch_weight


def table(n: int = 1000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    job = np.sort(rng.choice(["nurse", "cook", "baker", "smith"], n))  # most parts lack a level
    grade = pd.Categorical(rng.choice(["low", "high"], n), categories=["low", "middle", "high"])
    return pd.DataFrame({"A": rng.integers(0, 2, n), "x": rng.normal(size=n), "job": job, "grade": grade})


DF = table()


class Frames:
    """An iterable that starts anew each time."""

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return (DF.iloc[start : start + 300] for start in range(0, 1000, 300))


def made(kind: str, folder: Path) -> Any:
    if kind == "file":
        DF.to_parquet(folder / "rows.parquet", row_group_size=170)
        return folder / "rows.parquet"
    if kind in ("folder", "files"):
        DF.iloc[:400].to_parquet(folder / "a.parquet", row_group_size=150)
        DF.iloc[400:].to_parquet(folder / "b.parquet")
        return str(folder) if kind == "folder" else [folder / "a.parquet", folder / "b.parquet"]
    if kind == "dask":
        return pytest.importorskip("dask.dataframe").from_pandas(DF, npartitions=4)
    return {"frame": DF, "frames": [DF.iloc[:500], DF.iloc[500:]], "iterable": Frames()}[kind]


KINDS = ["file", "folder", "files", "frame", "frames", "iterable", "dask"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_levels_and_sums_are_those_of_the_table(kind: str, tmp_path: Path) -> None:
    batches = as_batches(made(kind, tmp_path), batch_rows=250)
    frames = list(batches)
    assert len(batches) == 1000 == sum(batches.sizes)
    assert max(map(len, frames)) <= 250
    back = pd.concat(frames)
    assert back.index.equals(pd.RangeIndex(1000))
    assert back["job"].dtype == pd.CategoricalDtype(["baker", "cook", "nurse", "smith"])
    assert back["grade"].dtype == DF["grade"].dtype, "declared levels stay, and in their order"
    for name in DF:
        assert (back[name].astype(str) == DF[name].astype(str)).all()
    assert next(batches.read(len(batches.sizes) - 1)).index[0] == sum(batches.sizes[:-1])
    assert batches.select(["x"]).total(lambda frame: frame["x"].sum()) == pytest.approx(DF["x"].sum(), rel=1e-12)
    assert batches.select(["x"]).columns == ("x",)


def test_sums_are_added_item_by_item_in_the_order_of_rows() -> None:
    batches = as_batches(DF, batch_rows=300)
    found = batches.total(lambda frame: ({"n": len(frame), str(frame.index[0]): 1}, [int(frame.index[0])]))
    assert found == ({"n": 1000, "0": 1, "300": 1, "600": 1, "900": 1}, [0, 300, 600, 900])


def test_the_encoder_learns_in_batches_what_it_learns_of_the_table() -> None:
    weighted = DF.assign(w=np.random.default_rng(1).uniform(0.5, 2.0, 1000))
    one = TableEncoder().fit(DF, sample_weight=weighted["w"])
    two = TableEncoder().fit_batches(as_batches(weighted, batch_rows=90), "w")
    np.testing.assert_allclose(one.transform(DF), two.transform(DF), atol=1e-13)
    constant = DF.assign(x=0.1)
    assert (TableEncoder().fit_batches(as_batches(constant, batch_rows=90)).transform(constant)[:, 1] == 0.0).all()


def test_codes_of_a_table_stand_for_its_matrix() -> None:
    encoder = TableEncoder().fit(DF)
    numbers, codes = encoder.transform_coded(DF)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(
        np.hstack([numbers, np.eye(4)[codes[:, 0]], np.eye(3)[codes[:, 1]]]), encoder.transform(DF)
    )


def test_moments_of_parts_far_from_zero_add_up() -> None:
    numbers = 1e8 + np.random.default_rng(2).normal(size=(900, 2))
    weight = np.r_[np.zeros(300), np.random.default_rng(3).uniform(size=600)]
    parts = [Moments.of(numbers[at], weight[at]) for at in (slice(0, 300), slice(300, 500), slice(500, 900))]
    total = parts[0] + parts[1] + parts[2]
    np.testing.assert_allclose(total.variance, np.cov(numbers.T, aweights=weight, ddof=0).diagonal(), rtol=1e-6)


def test_same_rows_are_known_without_reading_them(tmp_path: Path) -> None:
    file = made("file", tmp_path)
    assert as_batches(file).is_same(as_batches(file, batch_rows=7).select(["A"]))
    assert as_batches(DF).is_same(as_batches([DF]))
    assert not as_batches(DF).is_same(as_batches(DF.copy()))
    assert not as_batches(file).is_same(as_batches(DF))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (iter([DF]), "is an iterator, which can be read once"),
        ([DF, DF.astype({"A": float})], "The frames differ: 'A' has the type float64 in frame 1, and int64"),
        ([DF, DF[["A"]]], r"'x' has the type \(absent\) in frame 1"),
        ([DF, "b.parquet"], "Batch 1 is a str, expected a pandas DataFrame"),
        ([DF, DF.iloc[:0]], "Batch 1 has no rows"),
        ([], "hold no rows"),
        ("nowhere.parquet", "'nowhere.parquet' is no file or folder"),
        (3, "3 is no table in batches"),
    ],
)
def test_what_is_no_table_in_batches_is_refused(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_batches(data)


def test_files_of_two_schemas_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape("holds no file *.parquet")):
        as_batches(tmp_path)
    DF.to_parquet(tmp_path / "a.parquet")
    DF.astype({"A": float}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(
        DataError, match=r"The files differ: 'A' has the type double in b\.parquet, and int64 in a\.parquet"
    ):
        as_batches(tmp_path)


@pytest.mark.parametrize("other", ["sex=1/b.parquet", "b.PARQUET", "b.pq"])
def test_rows_of_a_folder_are_neither_left_out_nor_counted_twice(other: str, tmp_path: Path) -> None:
    for name in ("a.parquet", ".a.parquet", "_metadata.parquet", "_temporary/a.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        DF.to_parquet(tmp_path / name)
    assert len(as_batches(tmp_path)) == len(DF)
    with pytest.raises(DataError, match=r"a\.parquet' is given more than once"):
        as_batches([tmp_path, tmp_path / "a.parquet"])
    (tmp_path / other).parent.mkdir(exist_ok=True)
    DF.to_parquet(tmp_path / other)
    with pytest.raises(DataError, match=re.escape(f"also holds {other!r}, which would be left out")):
        as_batches(tmp_path)


def test_a_file_that_is_written_anew_holds_other_rows(tmp_path: Path) -> None:
    DF.to_parquet(tmp_path / "a.parquet")
    before = as_batches(tmp_path)
    DF.assign(A=1 - DF["A"]).to_parquet(tmp_path / "a.parquet")
    assert not as_batches(tmp_path).is_same(before)


def test_columns_and_their_values_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = as_batches(DF)
    with pytest.raises(DataError, match=r"The batches lack the column 'jobs'.*Did you mean 'job'"):
        batches.select(["jobs"])
    with pytest.raises(DataError, match="batch_rows=0"):
        as_batches(DF, batch_rows=0)
    numbers = as_batches(DF.assign(job=[f"{i}.5" for i in range(1000)]))
    with pytest.raises(DataError, match="'job' of The table in batches holds 1000 different numbers as text"):
        list(numbers)
    monkeypatch.setattr("pyrofair.tables.batches.MOST_LEVELS", 3)
    with pytest.raises(DataError, match="'job' holds 4 different categories, as an identifier does"):
        list(as_batches(DF))
    with pytest.raises(DataError, match="The weights 'x' must be finite and not negative; row 0 has"):
        batch_weight(DF.assign(x=-1.0), "x")


def test_batches_are_shown_by_their_size() -> None:
    assert repr(as_batches(DF, ["x"])) == "<1,000 rows of 1 columns in 1 parts>"
    assert isinstance(as_batches(as_batches(DF), batch_rows=10), Batches)
