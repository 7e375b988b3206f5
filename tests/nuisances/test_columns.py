"""Columns as learners read them: codes, bins made once, and different rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyrofair.nuisances.columns import Bins, Cells, number_cells, take, text_levels

RNG = np.random.default_rng(0)


def test_few_numbers_are_ranked_and_many_are_put_into_bins_of_like_size() -> None:
    few, many = RNG.integers(0, 7, 4000) * 1000, RNG.lognormal(size=4000)
    cells = Bins.of(pd.DataFrame({"few": few, "many": many}))
    rows = cells(pd.DataFrame({"few": few, "many": many})).rows
    assert (rows[:, 0] == few / 1000).all()
    counts = np.bincount(rows[:, 1].astype(int))
    assert len(counts) == 255
    assert counts.max() - counts.min() <= 3
    assert (np.diff(rows[np.argsort(many), 1]) >= 0).all()
    # An order that keeps the numbers' order makes the same bins, and new numbers fall between those known.
    new = Bins.of(pd.DataFrame({"many": np.log(many)}))(pd.DataFrame({"many": np.log(many)})).rows[:, 0]
    assert np.abs(new - rows[:, 1]).max() <= 1.0
    assert cells(pd.DataFrame({"few": [-1, 2600, 99_999], "many": [0.0, 1.0, 1e9]})).rows[:, 0].tolist() == [0, 3, 6]


def test_categories_are_codes_and_those_of_very_many_levels_are_numbers_by_their_rows() -> None:
    name = np.char.add("town ", RNG.integers(0, 400, 5000).astype(str))
    table = pd.DataFrame({"c": RNG.choice(["b", "a"], 5000), "town": name})
    bins = Bins.of(table)
    assert bins.categorical == (True, False)
    rows = bins(table).rows
    assert ((rows[:, 0] == 1) == (table["c"] == "b")).all()
    assert rows[:, 1].max() <= 254
    counted = pd.Series(name).value_counts()
    assert list(text_levels(table)["town"][:1]) == [counted.index[0]] or counted.iloc[0] == counted.iloc[1]


def test_different_rows_are_few_and_stand_for_all() -> None:
    rows = RNG.integers(0, 3, (1000, 2)).astype(np.float64)
    cells = Cells.of(rows)
    assert len(cells.different) == 9
    assert (cells.rows == rows).all()
    for at in (np.arange(500), np.array([3, 1, 3])):
        part = take(cells, at)
        assert (part.rows == rows[at]).all()
        assert part.shape == (len(at), 2)


@pytest.mark.parametrize("columns", [0, 2, 70])
def test_cells_are_numbered_alike_where_rows_are(columns: int) -> None:
    table = pd.DataFrame({f"x{i}": RNG.choice(["u", "v"], 50) for i in range(columns)}, index=range(50))
    number = number_cells(table, text_levels(table))
    same = (number[:, None] == number[None, :]).astype(bool)
    text = table.astype(str).agg("".join, axis=1).to_numpy() if columns else np.full(50, "")
    assert (same == (text[:, None] == text[None, :])).all()
