"""Samples of the rows of large tables: uniform, without replacement, and the same by every way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import pyrofair as pf
from pyrofair.commands.data import Reading, read_data
from pyrofair.tables.partitions import Partitions, is_partitions
from pyrofair.tables.reading import as_pandas, read_table

DF = pd.DataFrame(
    {"x": np.arange(1_000.0), "job": np.repeat(["cook", "baker", "nurse", "clerk"], 250), "n": np.arange(1_000)}
)
JOBS = ["cook", "baker", "nurse", "clerk"]
FRAMES = [DF[:300], DF[300:300], DF[300:]]


def test_rows_are_drawn_without_replacement_in_their_order() -> None:
    found = pf.sample_rows(FRAMES, ["x", "job"], 200, random_state=1)
    assert list(found.columns) == ["x", "job"]
    assert found.index.is_monotonic_increasing
    assert found.index.is_unique
    pd.testing.assert_frame_equal(found, DF.loc[found.index, ["x", "job"]])
    pd.testing.assert_frame_equal(found, pf.sample_rows([DF], ["x", "job"], 200, random_state=1))
    pd.testing.assert_frame_equal(found, pf.sample_rows(DF, ["x", "job"], 200, random_state=1))
    pd.testing.assert_frame_equal(pf.sample_rows(FRAMES, None, 1_000, random_state=0), DF)
    assert not found.index.equals(pf.sample_rows(FRAMES, ["x"], 200, random_state=2).index)


def test_each_row_is_as_likely() -> None:
    frames = [pd.DataFrame({"x": range(start, start + 400)}) for start in (0, 400, 800)]
    times = np.zeros(1200)
    for seed in range(60):
        times[pf.sample_rows(frames, None, 300, random_state=seed)["x"]] += 1.0
    assert times.min() > 0.0
    assert times.max() < 60.0
    of_blocks = times.reshape(60, 20).mean(axis=1) / 60.0
    assert np.abs(of_blocks - 0.25).max() < 5.0 * np.sqrt(0.25 * 0.75 / (60 * 20))


NOTED = {
    "an index": lambda table: pa.Table.from_pandas(table.set_index("x")),
    "two levels": lambda table: pa.Table.from_pandas(table.set_index(["x", "job"])),
    "an index without a name": lambda table: pa.Table.from_pandas(table.set_axis([*range(9, 1_009)])),
    "no JSON": lambda table: pa.Table.from_pandas(table).replace_schema_metadata({b"pandas": b"{\xff"}),
    "an absent index": lambda table: pa.Table.from_pandas(table).replace_schema_metadata(
        {b"pandas": b'{"index_columns": ["z"], "columns": [], "column_indexes": []}'}
    ),
    "numbers as names": lambda table: pa.Table.from_pandas(table.set_axis([0, 1, 2], axis=1)).rename_columns([*table]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTED)
def test_columns_are_those_of_the_file_whatever_pandas_noted_of_them(tmp_path: Path, name: str) -> None:
    table = NOTED[name](DF)
    pq.write_table(table, tmp_path / "rows.parquet")
    for found in (
        read_table(table, ["x", "job", "n"]),
        pf.sample_rows(tmp_path / "rows.parquet", None, 1_000)[["x", "job", "n"]],
        read_data(str(tmp_path / "rows.parquet"), dict.fromkeys(["x", "job", "n"], ""), Reading()).frame,
    ):
        pd.testing.assert_frame_equal(found.reset_index(drop=True), DF)
    indexed = DF.set_index(["x", "job"])
    with pytest.raises(pf.DataError, match=r"lacks the columns 'x', 'job'.*'x' is the index.*reset_index"):
        read_table(indexed, ["x", "job"])
    with pytest.raises(pf.DataError, match=r"lacks the column '0'.*rename\(columns=str\)"):
        read_table(DF.set_axis([0, 1, 2], axis=1), ["0"])


def test_integers_keep_their_last_digit_or_are_refused(tmp_path: Path) -> None:
    ids = pa.table({"x": pa.array([2**53, None, 2**53 + 1]), "n": pa.array([1, None, 3])})
    found = as_pandas(ids)
    assert found["x"].dropna().tolist() == [2**53, 2**53 + 1]
    assert found["n"].dtype == np.float64
    file = str(tmp_path / "rows.parquet")
    pq.write_table(ids, file)
    dropped = read_data(file, {"x": ""}, Reading(drop_missing=True)).frame
    for table in (dropped, found[["x"]].dropna(), pd.DataFrame({"x": [2**53, 2**53 + 1]})):
        with pytest.raises(pf.DataError, match=r"'x' of the data holds integers up to .* from 2\*\*53"):
            read_table(table, ["x"])


def test_every_way_in(tmp_path: Path) -> None:
    expected = pf.sample_rows(FRAMES, None, 100, random_state=0)
    file = tmp_path / "rows.parquet"
    DF.to_parquet(file, row_group_size=100)
    dd = pytest.importorskip("dask.dataframe")
    dask = dd.from_pandas(DF, npartitions=4, sort=False)
    ways = [file, str(file), str(tmp_path), pyarrow.dataset.dataset(file), dask, [pl.from_pandas(DF)]]
    for data in ways:
        assert is_partitions(data)
        found = pf.sample_rows(data, None, 100, random_state=0)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_index_type=False)


def test_columns_in_names_of_folders(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(DF, preserve_index=False)
    pq.write_to_dataset(table, tmp_path, partition_cols=["job"])
    found = pf.sample_rows(tmp_path, ["n", "job"], 500, random_state=0)
    assert (DF.set_index("n")["job"][found["n"]].to_numpy() == found["job"].astype(str).to_numpy()).all()


def test_only_named_columns_are_loaded(tmp_path: Path) -> None:
    DF.to_parquet(tmp_path / "rows.parquet")
    parts = Partitions.of(tmp_path / "rows.parquet", ["x"], ["absent", "n"])
    assert parts.columns == ("x", "n")
    assert [*parts.map(lambda number, frame: (number, *frame.columns))] == [(0, "x", "n")]
    assert parts.sizes == (1_000,)


def test_what_is_a_table_in_partitions() -> None:
    for data in (DF, pl.from_pandas(DF), pa.Table.from_pandas(DF), {"x": [1]}, np.zeros(3), DF["x"], None, 3, b"x"):
        assert not is_partitions(data)


@pytest.mark.parametrize(
    ("data", "columns", "n", "message"),
    [
        (FRAMES, None, 1_001, "n=1,001 rows were asked for, and the data have 1,000"),
        (FRAMES, None, 0, "n=0"),
        (FRAMES, ["y", "x"], 10, "lacks the column 'y'.*x, job, n"),
        (FRAMES, ["jobs"], 10, "Did you mean 'job'"),
        (iter(FRAMES), None, 10, "read once.*__iter__ starts anew"),
        ([], None, 10, "Partition 0 is None"),
        ([DF[:0]], None, 10, "no rows"),
        ([DF, 3], None, 10, "Partition 1 is 3; expected a DataFrame"),
        ([DF, DF.assign(x="a")], None, 10, "'x' has the type str in partition 1, and float64 in partition 0"),
        (
            [DF.astype({"job": pd.CategoricalDtype(each, ordered=True)}) for each in (JOBS, JOBS[::-1])],
            None,
            10,
            "'job' has the type category in partition 1",
        ),
        ("no such file", None, 10, "'no such file' is no Parquet file"),
    ],
)
def test_what_is_refused(data: Any, columns: Any, n: int, message: str) -> None:
    with pytest.raises(pf.DataError, match=message):
        pf.sample_rows(data, columns, n, random_state=0)


def test_a_file_that_is_no_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x\n1\n")
    with pytest.raises(pf.DataError, match=r"rows.csv' is no Parquet file"):
        pf.sample_rows(tmp_path / "rows.csv", None, 1)


def test_levels_are_those_of_all_partitions() -> None:
    frames = [DF[:250].astype({"job": "category"}), DF[250:].astype({"job": "category"})]
    found = pf.sample_rows(frames, ["job"], 1_000, random_state=0)["job"]
    assert found.cat.categories.tolist() == ["baker", "clerk", "cook", "nurse"]
    declared = DF.astype({"job": pd.CategoricalDtype(["nurse", "cook", "clerk", "baker", "none"])})
    kept = pf.sample_rows([declared[:250], declared[250:]], ["job"], 1_000, random_state=0)["job"]
    assert kept.cat.categories.tolist() == ["nurse", "cook", "clerk", "baker", "none"]
