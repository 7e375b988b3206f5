"""Tables as they come in: what is read, how it is encoded, and what is refused in which words."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair._validation import did_you_mean
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.sources.ipw import IPW
from pyrofair.tables.tables import (
    TableEncoder,
    read_outcome,
    read_sensitive,
    read_table,
    read_weight,
    require_aligned,
    warn_unused,
)

GRAPH = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")


def people() -> pd.DataFrame:
    """Counts n(A, M): 30, 10, 15, 45."""
    return pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})


def changed(column: str, row: int, value: Any, dtype: Any = object) -> pd.DataFrame:
    table = people().astype({column: dtype})
    table.loc[row, column] = value
    return table


def with_column(name: str, values: Any) -> pd.DataFrame:
    table = people()
    table[name] = values
    return table


# --- refused ---------------------------------------------------------------------------------------------------------

BAD_TABLES: dict[str, tuple[Any, str]] = {
    "array": (people().to_numpy(), r"must be a pandas DataFrame whose columns carry .* \(A, M\); got ndarray"),
    "dict": ({"A": [0, 1]}, "got dict"),
    "no rows": (people()[:0], "has no rows: found 0 sample"),
    "missing column": (people()[["A"]], r"lacks the column 'M'\. It has: A\. .*declared latent: graph\.with_latent"),
    "near name": (people().rename(columns={"M": "m"}), r"lacks the column 'M'\. It has: A, m\. Did you mean 'm'\?"),
    "both missing": (people().rename(columns={"A": "x", "M": "y"}), "lacks the columns 'A', 'M'"),
    "number as name": (people().rename(columns={"M": 3}), "lacks the column 'M'. It has: A, 3"),
    "twice": (pd.concat([people(), people()[["M"]]], axis=1), "has the column 'M' more than once; keep one"),
    "NaN": (changed("M", 7, np.nan, float), r"1 missing value\(s\) \(NaN\) in the column 'M', the first in row 7\."),
    "None": (changed("M", 7, None), r"missing value.* 'M', the first in row 7\. Drop or impute them before"),
    "NA": (changed("M", 7, pd.NA, "Int64"), "missing value.* 'M', the first in row 7"),
    "no group": (changed("A", 7, np.nan, float), "missing value.* in the column 'A'"),
    "no category": (changed("M", 7, None, "category"), "missing value.* 'M'"),
    "infinite": (changed("M", 9, -np.inf, float), r"infinite value \(inf\) in the column 'M', the first in row 9\."),
    "complex": (with_column("M", 1j), "Complex data not supported: the column 'M'"),
    "dates": (
        with_column("M", pd.Timestamp("2021-02-02")),
        r"'M' .* has the type datetime64.*Make a number of it",
    ),
    "durations": (with_column("M", pd.Timedelta(days=1)), "has the type timedelta64"),
    "periods": (with_column("M", pd.Period("2021-02")), "has the type period"),
    "lists": (with_column("M", [[1]] * 100), "'M' .* holds lists or other containers.*Spread them"),
    "third value": (
        people().assign(A=[2, *people()["A"][1:]]),
        r"'A' holds 2 besides baseline=0 and contrast=1\. It must be binary",
    ),
    "text": (changed("A", 7, "1"), "'A' holds '1' besides baseline=0 and contrast=1"),
    "only 1": (people()[40:], "'A' never takes the value 0 in these 60 rows; both groups are needed"),
    "only 0": (people()[:40], "'A' never takes the value 1 in these 40 rows"),
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
        IPW(UNFAIR).fit(people(), sample_weight=weight)
    source = IPW(UNFAIR).fit(people())
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


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, 2], "the outcome must be binary, but holds 3 classes: 0, 1, 2"),
        (["no", "no"], r"the outcome never takes the positive value 1; it holds 'no'\. Name it .*positive="),
        ([0, 0], "never takes the positive value 1; it holds 0"),
        ([1, 1], "has one class only, 1; a classifier needs both"),
        ([0, 1, np.nan], r"the outcome has missing values \(NaN\); drop these rows before"),
        (pd.Series(["a", None]), "missing values"),
    ],
)
def test_outcomes_refused(y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_outcome(y if isinstance(y, pd.Series) else np.array(y), 1)


def test_outcomes_read() -> None:
    for y, positive, labels, coded in [
        (["yes", "no", "yes"], "yes", ["no", "yes"], [1, 0, 1]),
        (["yes", "no", "yes"], "no", ["yes", "no"], [0, 1, 0]),
        ([2, 1, 2], 1, [2, 1], [0, 1, 0]),
        (pd.Series([True, False], index=[4, 4]), True, [False, True], [1, 0]),
        (pd.Series(["a", "b"], dtype="category"), "a", ["b", "a"], [1, 0]),
    ]:
        found, names = read_outcome(y, positive)
        assert names == labels
        assert found.tolist() == coded


def test_rows_that_would_be_matched_by_accident() -> None:
    table = people()
    require_aligned(table, table["M"])
    require_aligned(table, np.zeros(100))
    with pytest.raises(DataError, match="X has 100 rows and y has 99; they must be the same rows"):
        require_aligned(table, np.zeros(99))
    with pytest.raises(DataError, match="X has 100 rows and y has -1"):
        require_aligned(table, 3)
    with pytest.raises(DataError, match=r"index of y is not that of X.*y = y\.loc\[X\.index\].*y\.to_numpy\(\)"):
        require_aligned(table, table["M"].iloc[::-1])


def test_the_sensitive_attribute_is_matched_by_equality() -> None:
    graph = CausalGraph("A -> Y", sensitive="A", outcome="Y", baseline="m", contrast="f")
    assert read_sensitive(pd.DataFrame({"A": ["f", "m", "f"]}), graph).tolist() == [1, 0, 1]
    swapped = CausalGraph("A -> Y", sensitive="A", outcome="Y", baseline=1, contrast=0)
    assert read_sensitive(pd.DataFrame({"A": [1.0, 0.0]}), swapped).tolist() == [0, 1]
    assert read_sensitive(pd.DataFrame({"A": ["f"]}), graph, both=False).tolist() == [1]
    with pytest.raises(DataError, match=r"holds 'x' besides baseline='m' and contrast='f'"):
        read_sensitive(pd.DataFrame({"A": ["f", "x"]}), graph, both=False)


# --- read ------------------------------------------------------------------------------------------------------------


def test_columns_outside_the_graph_are_ignored_with_a_warning() -> None:
    with pytest.warns(PyrofairWarning, match=r"Columns outside the graph are ignored: z, 4\.") as caught:
        source = IPW(UNFAIR).fit(people().assign(z=np.nan).rename(columns=str).assign(**{"4": "text"}))
    assert caught[0].filename == __file__
    assert source.weights(UNFAIR.regimes[1]).equals(IPW(UNFAIR).fit(people()).weights(UNFAIR.regimes[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unused(people().assign(Y=1), GRAPH)


def test_a_table_is_read_column_by_column_and_copied() -> None:
    table = people().assign(Y=0)[["Y", "M", "A"]]
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
    "text index": lambda t: t.set_index(pd.Index([f"person {i}" for i in range(100)])),
    "index that is not unique": lambda t: t.set_index(pd.Index(np.arange(100) % 7)),
    "hierarchical index": lambda t: t.set_index(pd.MultiIndex.from_arrays([np.arange(100) % 7, np.arange(100)])),
}


@cache
def fitted(propensity: Any) -> IPW:
    return IPW(UNFAIR, arm="pooled", propensity=propensity, random_state=0).fit(people())


@pytest.mark.parametrize("propensity", ["logistic", "saturated", "boosted"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_of_the_same_table(form: Any, propensity: Any) -> None:
    table, plain = form(people()), fitted(propensity)
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
    table = people()
    table["M"] = table["M"].map({0: "x", 1: "y"}).astype(dtype)
    table["A"] = table["A"].map({0: "m", 1: "f"}).astype(dtype if isinstance(dtype, str) else "category")
    unfair = CausalGraph(GRAPH.edges, sensitive="A", outcome="Y", baseline="m", contrast="f").unfair("A -> Y")
    for propensity in ("logistic", "saturated"):
        source = IPW(unfair, arm="pooled", propensity=propensity).fit(table)  # type: ignore[arg-type]
        for regime, same in zip(unfair.regimes, UNFAIR.regimes, strict=True):
            expected = fitted("saturated").weights(same).to_numpy()
            assert source.weights(regime).to_numpy() == pytest.approx(expected, rel=1e-9)
        assert [set(world.rows["A"]) for world in source.worlds()] == [{"m"}, {"f"}]
        assert source.worlds()[1].rows.dtypes.equals(table.dtypes)


def test_trees_take_any_form_of_text() -> None:
    weights = []
    for dtype in ("object", "string", "category", pd.CategoricalDtype(["x", "y", "z"])):
        table = people()
        table["M"] = table["M"].map({0: "x", 1: "y"}).astype(dtype)  # type: ignore[call-overload]
        source = IPW(UNFAIR, arm="pooled", propensity="boosted", random_state=0).fit(table)
        weights.append(source.weights(UNFAIR.regimes[1]).to_numpy())
    for other in weights[1:]:
        assert other == pytest.approx(weights[0], rel=1e-12)


def test_unseen_categories_are_refused_unless_they_were_declared() -> None:
    table = people()
    table["M"] = table["M"].map({0: "x", 1: "y"})
    new = table.copy()
    new.loc[3, "M"] = "z"
    regime = UNFAIR.regimes[1]
    for propensity in ("logistic", "boosted", "saturated"):
        source = IPW(UNFAIR, arm="pooled", propensity=propensity, random_state=0).fit(table)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"'M' holds 'z', not seen in fit\. Known: 'x', 'y'\. .*CategoricalDtype"):
            source.weights(regime, new)
    declared = pd.CategoricalDtype(["x", "y", "z"])
    for propensity in ("logistic", "boosted"):
        source = IPW(UNFAIR, arm="pooled", propensity=propensity, random_state=0).fit(table.astype({"M": declared}))  # type: ignore[arg-type]
        assert np.isfinite(source.weights(regime, new.astype({"M": declared}))).all()
    source = IPW(UNFAIR, arm="pooled", propensity="saturated").fit(table.astype({"M": declared}))
    with pytest.raises(DataError, match=r"The cell \{'M': 'z'\} was not among the rows"):
        source.weights(regime, new.astype({"M": declared}))


# --- the encoder -----------------------------------------------------------------------------------------------------


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


def test_did_you_mean() -> None:
    assert did_you_mean("hours-per-wek", ["age", "hours-per-week"]) == " Did you mean 'hours-per-week'?"
    assert did_you_mean("SEX", ["age", "Sex"]) == " Did you mean 'Sex'?"
    assert did_you_mean("sex", ["age", 3]) == ""
