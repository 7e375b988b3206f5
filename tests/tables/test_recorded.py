"""Missing values as recorded values."""

import numpy as np
import pandas as pd
import pytest

from pyrofair import CausalGraph, DataError
from pyrofair.tables.reading import read_table
from pyrofair.tables.recorded import NOT_RECORDED, as_recorded, flag_of, join_truths, truths_assumed, with_flags
from pyrofair.tables.row_identity import hash_rows, match_rows

TABLE = pd.DataFrame({"A": [0, 1, 0, 1], "D": [1.0, None, 4.0, None], "M": ["a", None, "b", "a"]})
TYPES = {
    "nullable": lambda df: df.convert_dtypes(),
    "arrow": lambda df: df.convert_dtypes(dtype_backend="pyarrow"),
    "category": lambda df: df.astype({"M": "category"}),
    "object": lambda df: df.astype({"M": object}),
}


@pytest.mark.parametrize("convert", TYPES.values(), ids=TYPES)
def test_types_of_a_column_change_neither_what_is_recorded_nor_the_hash(convert) -> None:
    table = convert(TABLE)
    read = read_table(table, [*TABLE], missing="recorded")
    found = as_recorded(read, read)
    assert found["D"].tolist() == [1.0, 2.5, 4.0, 2.5]
    assert found[flag_of("D")].tolist() == [1, 0, 1, 0]
    assert found["M"].tolist() == ["a", NOT_RECORDED, "b", "a"]
    assert not found.isna().any(axis=None)
    assert (hash_rows(table) == hash_rows(TABLE)).all()
    assert match_rows(table.iloc[::-1], TABLE).tolist() == [3, 2, 1, 0]


def test_a_gap_is_neither_the_last_level_nor_its_text() -> None:
    texts = pd.DataFrame({"M": [None, "None", "nan", "b", NOT_RECORDED]})
    assert len(set(hash_rows(texts))) == 5
    assert match_rows(pd.DataFrame({"M": ["b", None]}), pd.DataFrame({"M": ["b", "b"]})).tolist() == [-1, -1]
    same = pd.DataFrame({"D": [0.1, np.nan, 1 / 3]}, index=[7, 8, 9])
    assert match_rows(same.astype(np.float32).sample(frac=1.0, random_state=0), same).tolist() == [2, 1, 0]


def test_a_table_without_gaps_is_returned_as_it_is() -> None:
    whole = TABLE.dropna()
    assert as_recorded(whole, whole) is whole


def test_new_rows_have_the_columns_and_means_of_the_fitted_ones() -> None:
    new = pd.DataFrame({"A": [1], "D": [9.0], "M": ["c"]})
    assert as_recorded(new, TABLE).to_dict("list") == {"A": [1], "D": [9.0], "D recorded": [1], "M": ["c"]}
    with pytest.raises(DataError, match="'A'"):
        as_recorded(TABLE.assign(A=[None, 1, 0, 1]), TABLE)


@pytest.mark.parametrize("name", ["D recorded", NOT_RECORDED])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    taken = TABLE.assign(**{"D recorded": 1}) if name in "D recorded" else TABLE.assign(M=[name, None, "b", "a"])
    with pytest.raises(DataError, match=name.strip("()")):
        as_recorded(taken, taken)


def test_a_node_has_the_flags_of_its_columns() -> None:
    graph = CausalGraph("A -> S -> Y", sensitive="A", outcome="Y", columns={"S": ["D", "M"]})
    found = with_flags(graph, as_recorded(TABLE, TABLE))
    assert found.columns == {"A": ["A"], "S": ["D", "D recorded", "M"], "Y": ["Y"]}
    assert found.edges == graph.edges
    assert with_flags(graph, TABLE) is graph


@pytest.mark.parametrize(("missing", "named"), [(None, False), ("refuse", True)])
def test_readers_with_the_option_name_it(missing, named: bool) -> None:
    with pytest.raises(DataError, match=r"'D'") as error:
        read_table(TABLE, [*TABLE], missing=missing)
    assert ('missing="recorded"' in str(error.value)) is named


def test_a_column_that_is_never_recorded_is_refused() -> None:
    with pytest.raises(DataError, match="4 missing"):
        read_table(TABLE.assign(D=np.nan), ["D"], missing="recorded")


# -- the truth behind a record -----------------------------------------------------------------------------------------

EDGES = "{A C} -> D; {A C D} -> M; {A C D M} -> Y"
ALL = ["A -> Y", "A -> D -> Y", "A -> D -> M -> Y", "A -> M -> Y"]


@pytest.mark.parametrize(
    ("edges", "unfair", "incomplete", "assumed"),
    [
        (EDGES, ["A -> Y"], "D M", []),
        (EDGES, ALL, "D M", []),
        (EDGES, ["A -> Y", "A -> M -> Y"], "M", []),
        (EDGES, ["A -> Y", "A -> M -> Y"], "D", [("D", "M")]),
        (EDGES, ["A -> Y", "A -> D -> Y", "A -> D -> M -> Y"], "D M", [("D", "M")]),
        (EDGES, ["A -> Y"], "C", []),
        (EDGES, ["A -> Y", "A -> M -> Y"], "C", [("C", "M")]),
        (f"C -> A; {EDGES}", ["A -> Y"], "C", [("C", "A")]),
        (f"C -> A; {EDGES}", ["A -> Y", "A -> M -> Y"], "C", [("C", "A, M")]),
        ("{A C} -> D; D -> M; {A C D M} -> Y", ["A -> Y"], "D", [("D", "M")]),
    ],
)
def test_the_truth_must_act_by_its_record_where_paths_split_it(edges: str, unfair, incomplete: str, assumed) -> None:
    graph = CausalGraph(edges, sensitive="A", outcome="Y")
    table = pd.DataFrame({name: [None if name in incomplete.split() else 1.0, 1.0] for name in graph.nodes})
    found = truths_assumed(graph.unfair(*unfair), table)
    assert [text.split(" by its record")[0] for text in found] == [f"The true {a} acts on {b}" for a, b in assumed]


def test_an_observed_outcome_may_follow_the_truth() -> None:
    unfair = CausalGraph(EDGES, sensitive="A", outcome="Y").unfair("A -> Y")
    table = pd.DataFrame({"C": [1.0], "A": [1], "D": [None], "M": [1.0]})
    assert truths_assumed(unfair, table) == []
    (own,) = truths_assumed(unfair, table, "outcome")
    assert "acts on Y by" in own
    more = own.replace("on Y by", "on Y, M by")
    assert join_truths([own, "else", own.replace("on Y by", "on M, Y by"), own]) == [more, "else"]


def test_methods_that_condition_on_parents_need_more() -> None:
    graph = CausalGraph("{A C} -> D; {A D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y")
    table = pd.DataFrame({"C": [1.0], "A": [1], "D": [None], "M": [1.0]})
    assert truths_assumed(graph.unfair("A -> Y"), table) == []
    for needs in ("parents", "errors"):
        assert "acts on M by" in truths_assumed(graph.unfair("A -> Y"), table, needs=needs)[0]
