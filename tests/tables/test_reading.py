"""Tables and weights as they come in: what is read, and what is refused in which words."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair import IPW, CausalGraph, DataError, PyrofairWarning
from pyrofair.tables.reading import read_table, read_weight, require_aligned, warn_unused

GRAPH = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")


def units() -> pd.DataFrame:
    """Counts n(A, M): 30, 10, 15, 45."""
    return pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})


def changed(column: str, row: int, value: Any, dtype: Any = object) -> pd.DataFrame:
    table = units().astype({column: dtype})
    table.loc[row, column] = value
    return table


def with_column(name: str, values: Any) -> pd.DataFrame:
    table = units()
    table[name] = values
    return table


# --- refused ---------------------------------------------------------------------------------------------------------

BAD_TABLES: dict[str, tuple[Any, str]] = {
    "array": (units().to_numpy(), r"must be a pandas DataFrame whose columns carry .* \(A, M\); got ndarray"),
    "dict": ({"A": [0, 1]}, "got dict"),
    "no rows": (units()[:0], "has no rows: found 0 sample"),
    "missing column": (units()[["A"]], r"lacks the column 'M'\. It has: A\. .*declared latent: graph\.with_latent"),
    "near name": (units().rename(columns={"M": "m"}), r"lacks the column 'M'\. It has: A, m\. Did you mean 'm'\?"),
    "both missing": (units().rename(columns={"A": "x", "M": "y"}), "lacks the columns 'A', 'M'"),
    "number as name": (units().rename(columns={"M": 3}), "lacks the column 'M'. It has: A, 3"),
    "twice": (pd.concat([units(), units()[["M"]]], axis=1), "has the column 'M' more than once; keep one"),
    "NaN": (changed("M", 7, np.nan, float), r"1 missing value\(s\) \(NaN\) in the column 'M', the first in row 7\."),
    "None": (changed("M", 7, None), r"missing value.* 'M', the first in row 7\. Drop or impute them before"),
    "NA": (changed("M", 7, pd.NA, "Int64"), "missing value.* 'M', the first in row 7"),
    "no group": (changed("A", 7, np.nan, float), "missing value.* in the column 'A'"),
    "no category": (changed("M", 7, None, "category"), "missing value.* 'M'"),
    "infinite": (changed("M", 9, -np.inf, float), r"infinite value \(inf\) in the column 'M', the first in row 9\."),
    "complex": (with_column("M", 1j), "Complex data not supported: the column 'M'"),
    "dates": (
        with_column("M", pd.Timestamp("2021-02-02")),
        r"'M' .* has the type datetime64.*neither a number nor a category.*days since a date.*astype\('category'\)",
    ),
    "durations": (with_column("M", pd.Timedelta(days=1)), "has the type timedelta64"),
    "periods": (with_column("M", pd.Period("2021-02")), "has the type period"),
    "lists": (with_column("M", [[1]] * 100), "'M' .* holds lists or other containers.*Spread them"),
    "third value": (
        units().assign(A=[2, *units()["A"][1:]]),
        r"'A' holds 2 besides baseline=0 and contrast=1\. .*1 \(60 rows\), 0 \(39 rows\), 2 \(1 rows\).*contrast=None",
    ),
    "text": (changed("A", 7, "1"), "'A' holds '1' besides baseline=0 and contrast=1"),
    "only 1": (units()[40:], "'A' never takes the value 0 in these 60 rows; both groups are needed"),
    "only 0": (units()[:40], "'A' never takes the value 1 in these 40 rows"),
}


@pytest.mark.parametrize(("table", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_tables_refused(table: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        IPW(UNFAIR).fit(table)
    assert "np." not in str(caught.value)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(99), r"sample_weight\.shape == \(99,\), expected \(100,\): one weight for each row"),
        (np.ones((100, 1)), r"sample_weight\.shape == \(100, 1\)"),
        (np.r_[-1.0, np.ones(99)], "must be finite, not negative, and not zero for every row"),
        (np.r_[np.nan, np.ones(99)], "must be finite"),
        (np.r_[np.inf, np.ones(99)], "must be finite"),
        (np.zeros(100), "not zero for every row"),
        ("a", "sample_weight='a' holds no numbers; give one for each of 100 rows"),
        (["a"] * 100, r"sample_weight=\['a', 'a', .* holds no numbers"),
    ],
)
def test_weights_refused(weight: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        IPW(UNFAIR).fit(units(), sample_weight=weight)
    source = IPW(UNFAIR).fit(units())
    with pytest.raises(DataError, match=message):
        source.worlds(sample_weight=weight)


def test_weights_read() -> None:
    assert read_weight(None, 3).tolist() == [1.0, 1.0, 1.0]
    assert read_weight(2, 3).tolist() == [1.0, 1.0, 1.0]
    assert read_weight([0, 1e-6, 0, 3e-6], 4).tolist() == [0.0, 0.5, 0.0, 1.5]
    index = pd.Index([5, 5, 5])
    assert read_weight(pd.Series([1, 0, 3], index=index), index).tolist() == [0.5, 0.0, 1.5]
    assert read_weight(np.array([5e-324, 0.0]), 2).tolist() == [1.0, 0.0]
    assert read_weight(np.array([1.0, 3.0]) * 5e307, 2).tolist() == [0.5, 1.5]
    once = read_weight(np.random.default_rng(0).exponential(size=99), 99)
    assert np.array_equal(read_weight(once, 99), once)


def test_rows_that_would_be_matched_by_accident() -> None:
    table = units()
    require_aligned(table, table["M"])
    require_aligned(table, np.zeros(100))
    with pytest.raises(DataError, match="X has 100 rows and y has 99; they must be the same rows"):
        require_aligned(table, np.zeros(99))
    with pytest.raises(DataError, match="X has 100 rows and y has -1"):
        require_aligned(table, 3)
    with pytest.raises(DataError, match=r"index of y is not that of X.*y = y\.loc\[X\.index\].*y\.to_numpy\(\)"):
        require_aligned(table, table["M"].iloc[::-1])


# --- read ------------------------------------------------------------------------------------------------------------


def test_columns_outside_the_graph_are_ignored_with_a_warning() -> None:
    with pytest.warns(PyrofairWarning, match=r"Columns outside the graph are ignored: z, 4\.") as caught:
        source = IPW(UNFAIR).fit(units().assign(z=np.nan).rename(columns=str).assign(**{"4": "text"}))
    assert caught[0].filename == __file__
    assert source.weights(UNFAIR.regimes[1]).equals(IPW(UNFAIR).fit(units()).weights(UNFAIR.regimes[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unused(units().assign(Y=1), GRAPH)


def test_a_table_is_read_column_by_column_and_copied() -> None:
    table = units().assign(Y=0)[["Y", "M", "A"]]
    read = read_table(table, ["A", "M"])
    assert list(read.columns) == ["A", "M"]
    table.loc[0, "M"] = 9
    assert read.loc[0, "M"] == 0


FORMS: dict[str, Any] = {
    "bool": lambda t: t.astype(bool),
    "float": lambda t: t.astype(float),
    "nullable integers": lambda t: t.astype("Int64"),
    "nullable booleans": lambda t: t.astype("boolean"),
    "gappy index": lambda t: t.set_index(pd.Index(np.arange(100) * 3 + 5)),
    "text index": lambda t: t.set_index(pd.Index([f"unit {i}" for i in range(100)])),
    "index that is not unique": lambda t: t.set_index(pd.Index(np.arange(100) % 7)),
    "hierarchical index": lambda t: t.set_index(pd.MultiIndex.from_arrays([np.arange(100) % 7, np.arange(100)])),
}


@cache
def fitted(propensity: Any) -> IPW:
    return IPW(UNFAIR, arm="pooled", propensity=propensity, random_state=0).fit(units())


@pytest.mark.parametrize("propensity", ["logistic", "saturated", "boosted"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_of_the_same_table(form: Any, propensity: Any) -> None:
    table, plain = form(units()), fitted(propensity)
    source = IPW(UNFAIR, arm="pooled", propensity=propensity, random_state=0).fit(table)
    for regime, world, same in zip(UNFAIR.regimes, source.worlds(), plain.worlds(), strict=True):
        weights = source.weights(regime)
        assert weights.index.equals(table.index)
        assert weights.to_numpy() == pytest.approx(plain.weights(regime).to_numpy(), abs=1e-12)
        assert world.weight == pytest.approx(same.weight, abs=1e-12)
        assert world.rows.dtypes.equals(table.dtypes)
        assert (world.rows.astype(int).to_numpy() == same.rows.to_numpy()).all()


@pytest.mark.parametrize("dtype", ["object", "string", "str", "category", pd.CategoricalDtype(["y", "z", "x"])])
def test_forms_of_text(dtype: Any) -> None:
    table = units()
    table["M"] = table["M"].map({0: "x", 1: "y"}).astype(dtype)
    table["A"] = table["A"].map({0: "m", 1: "f"}).astype(dtype if isinstance(dtype, str) else "category")
    unfair = CausalGraph(GRAPH.edges, sensitive="A", outcome="Y", baseline="m", contrast="f").unfair("A -> Y")
    for propensity in ("logistic", "saturated", "boosted"):
        source = IPW(unfair, arm="pooled", propensity=propensity, random_state=0).fit(table)  # type: ignore[arg-type]
        for regime, same in zip(unfair.regimes, UNFAIR.regimes, strict=True):
            expected = fitted("boosted" if propensity == "boosted" else "saturated").weights(same).to_numpy()
            assert source.weights(regime).to_numpy() == pytest.approx(expected, rel=1e-9)
        assert [set(world.rows["A"]) for world in source.worlds()] == [{"m"}, {"f"}]
        assert source.worlds()[1].rows.dtypes.equals(table.dtypes)
