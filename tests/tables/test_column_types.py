"""What types a table may have, and that both worlds have them too, from every source."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
from pandas.api.types import is_numeric_dtype
from scipy.special import expit

import pyrofair as pf
from pyrofair import DataError, learn_mechanisms
from pyrofair.sources import gcomputation
from pyrofair.tables.labels import as_column, read_outcome
from pyrofair.tables.reading import read_table

pytestmark = pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")

EDGES = "{A Q} -> D; {A Q D} -> Y"
LABELS = np.array(["a", "b", "c"])
N = 160


def types() -> dict[str, Any]:
    found: dict[str, Any] = {
        "int64": "int64",
        "int8": "int8",
        "uint16": "uint16",
        "Int64": "Int64",
        "float64": "float64",
        "float32": "float32",
        "float16": "float16",
        "Float32": "Float32",
        "bool": "bool",
        "boolean": "boolean",
        "category": "category",
        "ordered": pd.CategoricalDtype(["c", "b", "a", "never"], ordered=True),
        "category of numbers": pd.CategoricalDtype([2, 0, 1]),
        "str": "str",
        "string[python]": "string[python]",
        "object": "object",
    }
    try:
        import pyarrow as pa
    except ImportError:
        return found
    arrow = {"string": pa.string(), "bool": pa.bool_(), "int8": pa.int8(), "double": pa.float64()}
    return found | {"string[pyarrow]": "string[pyarrow]"} | {f"Arrow {k}": pd.ArrowDtype(t) for k, t in arrow.items()}


TYPES = types()
each_type = pytest.mark.parametrize("name", TYPES)


def graph(name: str) -> pf.CausalGraph:
    low, high = ("a", "b") if is_text_like(name) else (0, 1)
    return pf.CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=low, contrast=high)


def is_text_like(name: str) -> bool:
    return any(word in name for word in ("str", "object", "ordered")) or name == "category"


def units(name: str) -> pd.DataFrame:
    """Rows whose columns A, Q and D have one type; M is left out, since it could have two values only."""
    rng = np.random.default_rng(0)
    a, q = rng.integers(0, 2, N), rng.integers(0, 2 if "bool" in name else 3, N)
    d = (rng.random(N) < expit(a + q - 1)).astype(int)
    y = rng.integers(0, 2, N)

    def typed(codes: Any) -> Any:
        return pd.Series(LABELS[codes] if is_text_like(name) else codes).astype(TYPES[name])

    return pd.DataFrame({"A": typed(a), "Q": typed(q), "D": typed(d), "Y": y})


def program(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        Q = pyro.sample("Q", dist.Bernoulli(0.5))
        U = pyro.sample("U", dist.Uniform(0.0, 1.0))
        pyro.deterministic("D", (0.3 + 0.3 * A + 0.2 * Q > U).to(A.dtype))


def by_program(df: pd.DataFrame, unfair: Any) -> pf.SEM:
    levels = {site: list(LABELS[:2]) for site in "QD"} if df["Q"].iloc[0] in list(LABELS) else None
    return pf.SEM(program, unfair, levels=levels, random_state=0)


def by_laws(df: pd.DataFrame, unfair: Any) -> pf.SEM:
    made = learn_mechanisms(df, unfair.graph, parameters="linear", steps=2, progress=False, random_state=0)
    return pf.SEM.from_mechanisms(made, unfair, random_state=0)


def by_draws(df: pd.DataFrame, unfair: Any, **settings: Any) -> pf.GComputation:
    return pf.GComputation(unfair, parameters="linear", progress=False, random_state=0, **settings)


SOURCES: dict[str, Callable[[pd.DataFrame, Any], Any]] = {
    "IPW": lambda df, unfair: pf.IPW(unfair),
    "IPW, pooled": lambda df, unfair: pf.IPW(unfair, arm="pooled", propensity="saturated"),
    "GComputation, sums": by_draws,
    "GComputation, draws": partial(by_draws, draws=1),
    "GComputation, learned units": partial(by_draws, shared="learned"),
    "SEM": by_program,
    "learned SEM": by_laws,
}


@each_type
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.some(35)
def test_worlds_have_the_types_of_their_table(source: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcomputation, "learn_mechanisms", partial(learn_mechanisms, steps=2))
    df, unfair = units(name), graph(name).unfair("A -> Y", "A -> D -> Y")
    made = SOURCES[source](df, unfair).fit(df)
    for table in (None, df.iloc[: N // 2]):
        for world in made.worlds(random_state=0, df=table):
            for column in "AQD":
                half = df[column].dtype == np.float16  # weights and regressions read such numbers as single ones
                assert world.rows[column].dtype in ((np.float16, np.float32) if half else (df[column].dtype,))
                assert not world.rows[column].isna().any()
                declared = isinstance(df[column].dtype, pd.CategoricalDtype)
                known = df[column].cat.categories if declared else df[column].unique()
                assert set(world.rows[column].unique()) <= set(known)


@each_type
def test_every_type_codes_the_same_groups_and_outcomes(name: str) -> None:
    df = units(name)
    positive = "b" if is_text_like(name) else 1
    coded, labels = read_outcome(df["A"], positive)
    assert coded.tolist() == read_outcome(units("int64")["A"], 1)[0].tolist()
    assert labels[1] == positive


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 2], r"type object and holds numbers, such as 0, .*\.astype\(float\).*infer_objects.*'category'"),
        ([0.5, 1.5, Decimal("2.5")], "type object and holds numbers, such as 0.5"),
        ([Decimal("0.1"), Decimal("0.2"), Decimal("0.3")], r"holds numbers, such as Decimal\('0.1'\)"),
        ([10**30, 1, 2], "type object and holds numbers"),
        ([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1), None], "missing value"),
        ([datetime.date(2020, 1, 1)] * 3, r"holds dates or times, such as .*days since a date: \(pd\.to_datetime"),
        ([[1], [2], [3]], "lists or other containers"),
    ],
)
def test_objects_that_are_no_categories(values: list[Any], message: str) -> None:
    df = units("int64").iloc[:3].assign(Q=pd.Series(values, dtype=object))
    unfair = graph("int64").unfair("A -> Y")
    calls: list[Callable[[], Any]] = [
        lambda: pf.IPW(unfair).fit(df),
        lambda: pf.GComputation(unfair).fit(df),
        lambda: learn_mechanisms(df, unfair.graph),
        lambda: pf.PSCF(unfair).fit(df, df["Y"]),
        lambda: pf.PenalizedClassifier(source=pf.IPW(unfair)).fit(df, df["Y"]),
        lambda: pf.PenalizedClassifier().fit(df[["Q"]], df["Y"]),
        lambda: pf.audit({"m": np.zeros(3)}, pf.IPW(unfair), df),
    ]
    for call in calls:
        with pytest.raises(DataError, match=message):
            call()


def test_mixed_objects_and_truth_values_stay_categories() -> None:
    for values in (["x", 1, 2.5], [True, False, True], ["a", "b", "c"]):
        column = pd.Series(values, dtype=object)
        assert read_table(column.to_frame("M"), ["M"])["M"].equals(column)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1e160, 2e160, 3e160], r"holds numbers up to 3e\+160 in size, whose squares .*df\['Q'\] / 3e\+160"),
        ([1e-160, 2e-160, 0.0], r"holds numbers up to 2e-160 in size"),
        ([5e-324, 0.0, 0.0], "holds numbers up to 4.94066e-324 in size"),
        ([2**53 + 2, 2**53 + 4, 0], r"integers up to 9\.0072e\+15 in size; from 2\*\*53 .*Subtract an offset"),
    ],
)
def test_numbers_beyond_double_precision(values: list[Any], message: str) -> None:
    df = units("int64").iloc[:3].assign(Q=values)
    unfair = graph("int64").unfair("A -> Y")
    for call in (pf.IPW(unfair).fit, pf.GComputation(unfair).fit, partial(learn_mechanisms, graph_or_unfair=unfair)):
        with pytest.raises(DataError, match=message):
            call(df)
    assert read_table(df.assign(Q=[0.0, 1e149, -1e149]), ["Q"])["Q"].max() == 1e149


def test_labels_that_are_one_number_in_the_column() -> None:
    big = 2**53
    coded, _ = read_outcome(np.array([big, big + 1]), big + 1)
    assert coded.tolist() == [0, 1]
    huge = 10**30
    assert read_outcome([huge, huge + 1, huge], huge)[0].tolist() == [1, 0, 1]
    near = pf.CausalGraph("A -> M -> Y", sensitive="A", outcome="Y", baseline=big, contrast=big + 1)
    df = pd.DataFrame({"A": [float(big)] * 4, "M": [0, 1, 0, 1]})
    with pytest.raises(DataError, match=r"9007199254740993 are the same number in the type float64 of 'A'"):
        pf.IPW(near.unfair("A -> M -> Y")).fit(df)


@pytest.mark.parametrize(
    ("df", "message"),
    [
        (units("category"), r"'Q' has the categories 'a', 'b', 'c', and a world takes .*levels=\{'Q'"),
        (units("str"), r"'Q' holds text, and a world takes .*levels=\{'Q'"),
        (units("str").astype({"Q": object}), r"'Q' holds text, and a world takes .*levels=\{'Q'"),  # as pandas 2 has it
    ],
)
def test_codes_without_labels_are_refused_where_the_table_has_some(df: pd.DataFrame, message: str) -> None:
    source = pf.SEM(program, graph("category").unfair("A -> D -> Y"), random_state=0)
    with pytest.raises(DataError, match=message):
        source.worlds(20, df=df)


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [(3, r"dtypes=3 must be types by column"), ({"D": "numbers"}, "dtypes holds what is no type")],
)
def test_what_is_no_type_is_refused(dtypes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        pf.SEM(program, graph("int64").unfair("A -> D -> Y"), dtypes=dtypes).worlds(20, random_state=0)


def test_counterfactuals_of_categories_are_categories() -> None:
    df = units("category").iloc[:6].set_axis(list("uvwxyz"))
    df = df[df["Q"] != "c"].drop(columns="Y")
    unfair = graph("category").unfair("A -> D -> Y")
    found = pf.SEM(program, unfair, levels={"Q": ["a", "b"], "D": ["a", "b"]}).counterfactual(df, random_state=0)
    for world in (found.baseline, found.switched):
        assert world["D"].dtype == df["D"].dtype
        assert world.index.equals(df.index)
        assert not world.isna().any().any()

    class Typed:
        classes_ = (0, 1)

        def predict_proba(self, X: pd.DataFrame) -> Any:
            assert X["D"].dtype == df["D"].dtype
            p = (X["D"] == "b").to_numpy(float)
            return np.column_stack([1 - p, p])

    assert found.scores(Typed()).notna().all().all()


def test_fractions_in_a_column_of_integers_stay_fractions() -> None:
    for dtype in ("int8", "Int64", "bool", "boolean"):
        kept = as_column("M", np.array([0.5, 1.0]), pd.api.types.pandas_dtype(dtype))
        assert kept.tolist() == [0.5, 1.0]
    assert as_column("M", np.array([300.0]), np.dtype("int8")).tolist() == [300.0]
    assert is_numeric_dtype(as_column("M", np.array([1.0, 0.0]), pd.Int8Dtype()).dtype)
