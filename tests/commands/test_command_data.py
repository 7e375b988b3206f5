"""Tables of the user are read as they stand; what could be read in two ways is refused with the option that says."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair.commands.data import Reading, Table, list_values, match_value, read_data, require_columns
from pyrofair.commands.options import UsageError


def read(tmp_path: Path, content: str | bytes, *wanted: str, **how: Any) -> Table:
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_data(str(path), dict.fromkeys(wanted, "--score"), Reading(**how))


def test_types_are_those_that_the_text_has_without_loss(tmp_path: Path) -> None:
    text = 'n,x,word,truth,quoted\n1,0.1,a,True,"1,5"\n-2,1e3,b,False,"x ""y"""\n'
    frame = read(tmp_path, text, "n", "x", "word", "truth", "quoted", text=("quoted",)).frame
    assert frame["n"].tolist() == [1, -2]
    assert frame["n"].dtype == np.int64
    assert frame["x"].tolist() == [0.1, 1000.0]
    assert frame["word"].tolist() == ["a", "b"]
    assert frame["truth"].tolist() == [True, False]
    assert frame["truth"].dtype == bool
    assert frame["quoted"].dtype == "category"
    assert frame["quoted"].tolist() == ["1,5", 'x "y"']


def test_numbers_are_those_of_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = [repr(float(each)) for each in np.exp(30 * rng.normal(size=200))]
    frame = read(tmp_path, "x,y\n" + "".join(f"{each},1\n" for each in numbers), "x").frame
    assert [repr(each) for each in frame["x"].tolist()] == numbers


def test_only_wanted_columns_are_typed_and_the_others_are_named(tmp_path: Path) -> None:
    table = read(tmp_path, "a,id,b\n1,NA,2\n3,01,4\n", "b", "a")
    assert list(table.frame.columns) == ["b", "a"]
    assert table.unused == ("id",)


@pytest.mark.parametrize(
    ("text", "how", "values"),
    [
        ("x;y\n1,5;1\n2;1\n", {"separator": ";", "decimal": ","}, [1.5, 2]),
        ("x\ty\n1\t1\n2\t1\n", {"separator": "\t"}, [1, 2]),
        (b"\xef\xbb\xbfx,y\n1,1\n2,1\n", {}, [1, 2]),
        ("x,y\nä,1\nö,1\n".encode("latin-1"), {"encoding": "latin-1"}, ["ä", "ö"]),
        ("x,y\n01,1\n2,1\n", {"number": ("x",)}, [1, 2]),
        ("x,y\n01,1\n1,1\n", {"text": ("x",)}, ["01", "1"]),
        ("x,y\nNA,1\nb,1\n", {"text": ("x",)}, ["NA", "b"]),
        ("x,y\n a,1\na ,1\n", {"strip": True}, ["a", "a"]),
        ("x, y\n a,1\na,2\n", {"text": ("x",)}, [" a", "a"]),
        ("x,y\n 1,1\n2 ,1\n", {}, [1, 2]),
        ("x,note;other\na,1\n", {}, ["a"]),
        ("x,y\nNA,1\n1,1\n,2\n3,2\n", {"missing_values": ("NA",), "drop_missing": True}, [1, 3]),
    ],
)  # fmt: skip
def test_what_options_say(tmp_path: Path, text: str | bytes, how: dict[str, Any], values: list[Any]) -> None:
    assert read(tmp_path, text, "x", **how).frame["x"].tolist() == values


def test_identical_columns_of_one_name_are_read_once(tmp_path: Path) -> None:
    table = read(tmp_path, "x,y,x,x,z,z\n1,a,1,1,1,2\n2,b,2,2,1,2\n", "x", "y")
    assert table.frame["x"].tolist() == [1, 2]
    assert len(table.notes) == 1
    assert "3 columns called 'x', identical" in table.notes[0]


def test_an_integer_column_with_dropped_rows_stays_one(tmp_path: Path) -> None:
    table = read(tmp_path, "x,y\n1,a\n,b\n3.5,\n4,c\n", "x", "y", drop_missing=True)
    assert table.frame["x"].dtype == np.int64
    assert table.frame["x"].tolist() == [1, 4]
    assert table.frame.index.tolist() == [1, 4]  # rows keep the numbers that they have in the file
    assert table.left_out == (
        f"2 of 4 rows of {tmp_path / 't.csv'} have a missing value, in 'x' (1), 'y' (1), and are left out",
    )


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        ("x,y\nNA,1\n1,1\n", {}, r"numbers, such as '1', in 1 rows and 'NA' in 1\. .*--missing-values NA .*--text x"),
        ("x,y\n3+,1\n1,1\n2,2\n", {}, r"'1', in 2 rows and '3\+' in 1\..*--missing-values 3\+ .*--text x reads all"),
        ("x,y\nNone,1\nb,1\n", {}, r"'None' in 1 row\(s\).*--missing-values None .*--text x"),
        ("x,y\n?,1\nb,1\n", {}, r"--missing-values '\?' reads it as missing"),
        ("x,y\n01,1\n2,1\n", {}, "'01': .*--text x .*--number x"),
        ('x,y\n"1,5",1\n"2,5",1\n', {}, "--decimal ','"),
        ("x;y\n1.5;1\n2;1\n", {"separator": ";", "decimal": ","}, r"--decimal '\.'"),
        ("x,y\n a,1\nb,1\n", {}, r"blanks around it, such as ' a'\. --strip strips them; --text x keeps"),
        ("x,y\n,1\n2,1\n", {}, r"1 of the 2 rows of .* have a missing value.*'x' \(1\); the first is row 1.*--drop"),
        ("x,y\n  ,1\n2,1\n", {}, "1 of the 2 rows"),
        ("x,y\n,1\n,1\n", {"drop_missing": True}, "every row of .* has a missing value"),
        ("x,x\n1,2\n2,3\n", {}, "2 columns called 'x', which differ; rename one"),
        ("x,y\n1\n2,3\n", {}, r"line 2 of .*t\.csv has 1 field.* 2: '1'"),
        ("x,y\n1,2,3\n", {}, r"line 2 of .*t\.csv has 3 field.* 2: '1,2,3'"),
        ("x;y\n1;2\n", {}, "'x;y'.*one column.*--separator ';'"),
        (b'y,"a;\nb"\n1,2\n', {}, "has no column 'x'"),
        (f"y,{'a' * 200_000}\n1,2\n", {}, "cannot be read: field larger than field limit"),
        ("x\ty\n1\t2\n", {}, r"--separator 'tab'"),
        (" x,y\n1,2\n", {}, r"blanks around the name of the column ' x'; --strip"),
        ("", {}, "is empty"),
        ("x,y\n", {}, "has a header and no rows"),
        ("x,y\nä,1\n".encode("latin-1"), {}, "is not utf-8 .*--encoding latin-1"),
        (f"x,y\n{'9' * 5000},1\n2,1\n", {}, r"the integer 9{40}\.\.\., larger than 2\*\*63"),
        ("x,y\n1,1\n", {"encoding": "klingon"}, "--encoding .klingon. .*unknown encoding"),
        ("X,y\n1,1\n", {}, r"no column 'x' \(--score\)\. It has: X, y\. Did you mean 'X'\?"),
        ("x,y\n1,1\n", {"text": ("yy",)}, "no column 'yy'.*--text.*Did you mean 'y'"),
        ("x,y\n1,1\nb,1\n", {"number": ("x",)}, "'x' of .* holds 'b', .*--number x"),
        ("x,y\nfalse,1\n", {"number": ("x",)}, "'false'.*--number x"),
        ("x,y\n99999999999999999999,1\n1,1\n", {}, r"larger than 2\*\*63\. --text x"),
        ('x,y\n"1,000",1\n"2,500",1\n', {}, r"',' separates thousands here, take it out .*--decimal ','"),
        ("x,y\n1,1\na\0b,1\n", {}, r"a NUL character in 1 row\(s\), such as 'a\\x00b'.*damaged"),
        (b"PK\x03\x04x,y\n1,1\n", {}, "is a zip archive or an Excel workbook, not CSV"),
        ("x;debts, other;y\na;1,5;1\n", {}, r"'x;debts, other;y'.* --separator ';'\."),
        ("x;y\n1,250.5;1\n12;1\nnan;1\n", {"separator": ";"}, "If ',' separates thousands here, take it out of the"),
        ("x;y\n1.250,5;1\n12;1\n", {"separator": ";", "decimal": ","}, "If '.' separates thousands here, take it out"),
        ("x;y\n12.5%;1\n40 %;1\n", {"separator": ";"}, "If these are percentages, take the sign % out of the file"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str | bytes, how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, text, "x", **how)


@pytest.mark.parametrize(
    ("values", "doubt"),
    [
        (
            [18, 40, 90, -999],
            "holds -999 in 1 row(s), far from its other values (18 to 90). It is taken for that number",
        ),
        ([18.5, 40, 90, 9999, 9999], "holds 9999 in 2 row(s), far from its other values (18.5 to 90)"),
        (["m", "f", "M", "m"], "holds 'm' and 'M', which are taken for different categories."),
        ([18, 40, 90, 99], ""),
        ([0, 1, 99], "holds 99 in 1 row(s), far from its other values (0 to 1)"),
        ([0, 99, 99], ""),
        ([18, 40, 90, -1000], ""),
        ([18, 40, 90, 7e8], "holds 700000000 in 1 row(s), far from its other values (18 to 90)"),
    ],
)
def test_what_is_taken_as_it_stands_but_may_mean_something_else_is_told(
    tmp_path: Path, values: list[Any], doubt: str
) -> None:
    frame = pd.DataFrame({"x": values})
    frame.to_parquet(tmp_path / "t.parquet")
    doubts = read_data(str(tmp_path / "t.parquet"), {"x": ""}, Reading()).doubts
    frame.assign(y=1).to_csv(tmp_path / "t.csv", index=False)
    as_text = read_data(str(tmp_path / "t.csv"), {"x": ""}, Reading()).doubts
    assert [each.replace("t.csv", "t.parquet") for each in as_text] == [*doubts]
    assert len(doubts) == bool(doubt)
    assert all(doubt in each for each in doubts)


def test_all_columns_are_told_of_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--text x .*\n  and: the column 'y' .*--missing-values NA"):
        read(tmp_path, "x,y\n01,NA\n02,a\n", "x", "y")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "court.csv").write_text("x\n1\n")
    for name, message in [
        ("cuort.csv", "there is no file .*Did you mean 'court.csv'"),
        (".", "is a folder"),
        ("court.xlsx", "is neither CSV"),
        ("broken.parquet", "cannot be read as Parquet"),
    ]:
        if name in ("court.xlsx", "broken.parquet"):
            (tmp_path / name).write_text("x")
        with pytest.raises(UsageError, match=message):
            read_data(str(tmp_path / name), {"x": ""}, Reading())


def test_parquet_has_types_of_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "NA"], "c": [0.5, 1.0, 2.0], "zip": ["01", "02", "03"]}).to_parquet(
        path
    )
    table = read_data(path, {"c": "", "zip": ""}, Reading(text=("zip",)))
    assert table.frame["c"].tolist() == [0.5, 1.0, 2.0]
    assert table.frame["zip"].dtype == "category"
    assert table.unused == ("a", "b")
    kept = read_data(path, {"b": "", "a": ""}, Reading(drop_missing=True)).frame
    assert kept["b"].tolist() == ["x", "NA"]
    with pytest.raises(UsageError, match=r"1 of the 3 rows of .*'b' \(1\); the first is row 2"):
        read_data(path, {"b": ""}, Reading())
    with pytest.raises(UsageError, match="--separator is of CSV files"):
        read_data(path, {"a": ""}, Reading(separator=";"))
    pd.DataFrame({"a": [[1], [2]], "b": ["1", "x"]}).to_parquet(path)
    for how in ({}, {"number": ("a",)}, {"text": ("a",)}):
        with pytest.raises(UsageError, match=r"'a' of .* holds several values a row \(list"):
            read_data(path, {"a": ""}, Reading(**how))
    with pytest.raises(UsageError, match=r"'b' of .* holds values that are no number, and is named by --number"):
        read_data(path, {"b": ""}, Reading(number=("b",)))
    pd.DataFrame({"a": [1, 2]}).to_csv(tmp_path / "t.csv.gz", index=False)
    zipped = read_data(str(tmp_path / "t.csv.gz"), {"a": "", "y": ""}, Reading(), optional=["y"])
    assert zipped.frame["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "text", "found"),
    [
        (["<=50K", ">50K"], ">50K", ">50K"),
        ([0, 1], "1", 1),
        ([0, 1], "1.0", 1),
        ([0.0, 0.5], ".5", 0.5),
        ([True, False], "true", True),
        ([True, False], "0", False),
        (["0", "1"], "1", "1"),
        (["01", "1"], "1", "1"),
    ],
)
def test_values_by_type(values: list[Any], text: str, found: Any) -> None:
    value = match_value("--positive", text, pd.Series(values, name="y"), "t.csv")
    assert value == found
    assert type(value) is type(found)


def test_values_that_are_not_there_are_listed() -> None:
    column = pd.Series(["male"] * 3 + ["female"] * 2, name="sex")
    with pytest.raises(
        UsageError,
        match=r"--baseline 'Male' is no value of the column 'sex' of t\.csv, which holds 'male' \(3 rows\), 'female' "
        r"\(2 rows\)\. Did you mean --baseline male\?",
    ):
        match_value("--baseline", "Male", column, "t.csv")
    with pytest.raises(UsageError, match="is no value"):
        match_value("--baseline", "yes", pd.Series([0, 1], name="a"), "t.csv")
    assert list_values(pd.Series(range(20))).endswith("and 8 more")


def test_the_column_that_a_node_may_stand_for_is_offered_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("monthly income;debts, other\n1;2\n")
    for node, option in (
        ("income", "'income=monthly income';"),
        ("debts", """'debts="debts, other"', a name with a"""),
    ):
        with pytest.raises(UsageError) as caught:
            read_data(str(path), {node: f"--graph: the node {node!r}"}, Reading(separator=";"))
        assert f"--columns {option}" in str(caught.value)


def test_a_cure_with_a_quote_in_it_can_be_pasted_into_a_shell() -> None:
    with pytest.raises(UsageError) as found:
        require_columns("t.csv", ["Applicant's sex", "y"], {"Applicants sex": "--graph: the node 'sex'"})
    quoted = str(found.value).split("--columns ")[1].split("; one never")[0]
    assert shlex.split(f"--columns {quoted}") == ["--columns", "sex=Applicant's sex"]
