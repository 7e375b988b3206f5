"""Tables of the user: CSV and Parquet read as they stand, where nothing is recoded and what is ambiguous is asked."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyrofair.commands.options import Data, Option, Settings, UsageError, near

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

__all__ = [
    "DATA_OPTIONS",
    "Reading",
    "Table",
    "distinct_values",
    "list_values",
    "match_value",
    "read_data",
    "read_number",
    "require_columns",
]

GROUP = "the table"
DATA_OPTIONS = (
    Data("the table: a CSV file (.csv, .tsv, also compressed) or a Parquet file (.parquet)"),
    Option("separator", "what separates the fields of a CSV file, such as ';' or tab (default a comma; a tab in .tsv)",
           metavar="CHARACTER", group=GROUP),
    Option("decimal", "the decimal mark of numbers in a CSV file", default=".", choices=(".", ","), metavar="MARK",
           group=GROUP),
    Option("encoding", "the encoding of a CSV file", default="utf-8", metavar="NAME", group=GROUP),
    Option("text", "columns to read as text categories, exactly as written: codes such as 01, or NA as a category",
           many=True, metavar="COLUMN", group=GROUP),
    Option("number", "columns to read as numbers although they hold codes such as 01", many=True, metavar="COLUMN",
           group=GROUP),
    Option("missing-values", "what stands for a missing value besides an empty field, such as NA or '?'", many=True,
           metavar="TEXT", group=GROUP),
    Option("drop-missing", "leave out rows with a missing value in a column that is used; the report counts them",
           type=bool, group=GROUP),
    Option("drop-other-groups", "leave out rows whose sensitive attribute is neither the baseline nor the contrast",
           type=bool, group=GROUP),
    Option("strip", "strip blanks around the text of a CSV file", type=bool, group=GROUP),
    Option("weight", "the column of sample weights", metavar="COLUMN", group=GROUP),
)  # fmt: skip

UNCERTAIN = frozenset(
    {"NA", "N/A", "n/a", "na", "NaN", "nan", "-nan", "NULL", "Null", "null", "None", "none", "<NA>", "#N/A", "#NA", "?"}
    | {".", "-", "--", "missing", "Missing"}
)
"""What may stand for a missing value, or for a category of that name."""
TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
CODE = re.compile(r"[+-]?0\d")
INTEGER = re.compile(r"[+-]?\d+")
LARGEST = 2**63 - 1
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:[.,]\d{3})+")
GROUPED = {
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+\.\d+"),
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+,\d+"),
}
"""Numbers with separated thousands and a decimal mark, by this mark."""
PERCENTAGE = re.compile(r"[+-]?\d+(?:[.,]\d*)?\s*%")
SENTINEL = re.compile(r"-9|-?99+")
MOST_SHOWN = 12


@dataclass(frozen=True)
class Reading:
    """How tables are read; one for all tables of a command."""

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    text: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    missing_values: tuple[str, ...] = ()
    drop_missing: bool = False
    strip: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Reading:
        """Return the reading that the options of a command describe."""
        text, number = tuple(settings["text"]), tuple(settings["number"])
        if both := sorted({*text} & {*number}):
            raise UsageError(f"the column {both[0]!r} is named by --text and by --number; choose one.")
        separator = settings["separator"]
        if separator is not None:
            separator = {"tab": "\t", r"\t": "\t"}.get(separator, separator)
            if len(separator) != 1:
                raise UsageError(f"--separator {separator!r} must be one character, such as ';', or the word tab.")
        return cls(
            separator,
            settings["decimal"],
            settings["encoding"],
            text,
            number,
            tuple(settings["missing-values"]),
            settings["drop-missing"],
            settings["strip"],
        )


@dataclass(frozen=True, eq=False)
class Table:
    """A table as it was read: its file, the columns asked for, and what is to be told about the reading.

    ``unused`` are the other columns of the file; ``left_out`` says in words which rows were left out, and ``doubts``
    which values were taken as they stand although they may mean something else.
    """

    path: str
    frame: pd.DataFrame
    unused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(eq=False)
class _Column:
    """A column of a CSV file: its distinct values, the code of each row (-1 where a field is missing)."""

    name: str
    codes: NDArray[np.int64]
    found: list[str]
    counts: NDArray[np.int64]
    values: list[Any] = field(default_factory=list)
    categories: bool = False

    def rows_with(self, texts: Sequence[str]) -> int:
        """Return how many rows hold one of some texts."""
        return int(sum(self.counts[self.found.index(each)] for each in texts))

    def to_series(self, keep: NDArray[np.bool_]) -> pd.Series[Any]:
        """Return the values of the rows kept, none of which is missing."""
        import numpy as np
        import pandas as pd

        codes = self.codes[keep]
        used = np.unique(codes)
        known = [self.values[code] for code in used]
        if known and all(isinstance(each, bool) for each in known):
            levels: Any = np.array(known, dtype=bool)
        elif known and all(isinstance(each, int) and not isinstance(each, bool) for each in known):
            levels = np.array(known, dtype=np.int64)
        elif known and all(isinstance(each, int | float) for each in known):
            levels = np.array(known, dtype=np.float64)
        else:
            levels = np.array(known, dtype=object)
        series: pd.Series[Any] = pd.Series(levels[np.searchsorted(used, codes)], name=self.name).infer_objects()
        return series.astype("category") if self.categories else series


def require_columns(path: str, known: Sequence[str], wanted: Mapping[str, str]) -> None:
    """Refuse names that a file has no column of, or two; ``wanted`` maps each name to what asks for it."""
    absent = [name for name in wanted if name not in known]
    if absent:
        from pyrofair._validation import nearest  # it loads NumPy

        several = len(absent) > 1
        of_nodes = [name for name in absent if "the node" in wanted[name]]
        node = _node_of(wanted[of_nodes[0]]) if of_nodes else absent[0]
        like = str(nearest(of_nodes[0], known) or "") if of_nodes else ""
        example = (f'"{like}"' if "," in like else like) or "first,second"
        made = f"{node}={example}"
        made = shlex.quote(made) if "'" in made else f"'{made}'"
        cure = (
            f" A node that stands for other columns is given them, --columns {made}"
            f"{', a name with a comma in double quotes' * (',' in like)}; one never measured is declared, "
            f"--latent {shlex.quote(node)}."
        )
        raise UsageError(
            f"{path} has no column{'s' * several} {', '.join(map(repr, absent))} "
            f"({'; '.join(dict.fromkeys(wanted[name] for name in absent))}). It has: "
            f"{', '.join(repr(name) if ',' in name else name for name in known)}.{near(absent[0], known)}"
            f"{cure * bool(of_nodes)}"
        )
    twice = [name for name in wanted if list(known).count(name) > 1]
    if twice:
        raise UsageError(f"{path} has {list(known).count(twice[0])} columns called {twice[0]!r}; rename one of them.")


def _node_of(why: str) -> str:
    """Return the node that asks for a column, from what asks for it."""
    return why.split("the node ", 1)[1].strip("'\"")


def read_data(path: str, wanted: Mapping[str, str], how: Reading, optional: Sequence[str] = ()) -> Table:
    """Return the columns of a file that are wanted, typed and without missing values, or raise a UsageError.

    Parameters
    ----------
    path
        A CSV or Parquet file.
    wanted
        The columns, each with what asks for it, for messages.
    how
        How the file is read.
    optional
        Wanted columns that the file may lack.
    """
    file = Path(path)
    if not file.exists():
        beside = [each.name for each in file.parent.iterdir()] if file.parent.is_dir() else []
        raise UsageError(f"there is no file {path!r} in {Path.cwd()}.{near(file.name, beside)}")
    if file.is_dir():
        raise UsageError(f"{path!r} is a folder; name a file of it.")
    name = file.name.lower()
    if name.endswith((".parquet", ".pq")):
        return _read_parquet(path, wanted, how, optional)
    if re.search(r"\.(csv|tsv|txt|data)(\.(gz|bz2|zst))?$", name):
        return _read_csv(path, wanted, how, optional)
    raise UsageError(f"{path!r} is neither CSV (.csv, .tsv, .txt, .data, also .gz) nor Parquet (.parquet, .pq).")


def _asked(
    path: str, known: Sequence[str], wanted: Mapping[str, str], how: Reading, optional: Sequence[str]
) -> dict[str, str]:
    """Return the wanted columns that are there, once all that must be are."""
    there = {name: why for name, why in wanted.items() if name in known or name not in optional}
    declared = {name: f"--{flag}" for flag in ("text", "number") for name in getattr(how, flag)}
    if absent := [name for name in declared if name not in known]:
        raise UsageError(
            f"{path} has no column {absent[0]!r}, named by {declared[absent[0]]}. It has: "
            f"{', '.join(map(str, known))}.{near(absent[0], known)}"
        )
    require_columns(path, known, there)
    return there


# --- CSV -------------------------------------------------------------------------------------------------------------


def _read_csv(path: str, wanted: Mapping[str, str], how: Reading, optional: Sequence[str]) -> Table:
    import pandas as pd

    separator = how.separator or ("\t" if re.search(r"\.tsv(\.|$)", path.lower()) else ",")
    header = _read_header(path, separator, how)
    if len(header) == 1 and (mark := next((each for each in (";", "\t", "|", ",") if each in header[0]), None)):
        written = {"\t": "tab"}.get(mark, mark)
        raise UsageError(f"{path} has one column, {header[0]!r}: separate its fields by --separator '{written}'.")
    _check_separator(path, header, separator, wanted)
    if how.strip:
        header = [each.strip() for each in header]
    elif blank := [each for each in header if each != each.strip() and each.strip() in wanted and each not in wanted]:
        raise UsageError(
            f"{path} has blanks around the name of the column {blank[0]!r}; --strip strips them, and those around text."
        )
    there = _asked(path, header, wanted, how, optional)
    texts = _read_texts(path, separator, how, len(header), [header.index(name) for name in there])
    columns, wrong = [], []
    for text, name in zip(texts, there, strict=True):
        try:
            columns.append(_parse(*text, name, path, how))
        except UsageError as error:
            wrong.append(str(error))
    if wrong:  # all columns at once, so that one more call is enough
        raise UsageError("\n  and: ".join(wrong))
    if not len(columns[0].codes):
        raise UsageError(f"{path} has a header and no rows.")
    keep, left_out = _without_missing(path, {each.name: each.codes < 0 for each in columns}, how)
    frame = pd.DataFrame({each.name: each.to_series(keep) for each in columns})
    frame.index = _rows_of(keep)
    unused = tuple(name for name in header if name not in there)
    return Table(path, frame, unused, left_out, _doubts(path, frame))


def _check_separator(path: str, header: Sequence[str], separator: str, wanted: Mapping[str, str]) -> None:
    """Refuse a header of which another separator makes more of the wanted columns."""
    found = {
        mark: [name.strip() for name in next(csv.reader([separator.join(header)], delimiter=mark))]
        for mark in (";", "\t", "|", ",")
        if mark != separator and any(mark in name for name in header)
    }
    known = {mark: len({*names} & {*wanted}) for mark, names in found.items()}
    best = max(known, key=lambda mark: known[mark], default=None)
    if best is not None and known[best] > len({name.strip() for name in header} & {*wanted}):
        written = {"\t": "tab"}.get(best, best)
        raise UsageError(
            f"the fields of {path} seem to be separated by {written!r}, for its header is {separator.join(header)!r}: "
            f"use --separator '{written}'."
        )


def _read_header(path: str, separator: str, how: Reading) -> list[str]:
    """Return the names in the first line of a CSV file, those that occur twice as they are."""
    import io

    import pyarrow as pa

    with Path(path).open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise UsageError(f"{path} is a zip archive or an Excel workbook, not CSV: save its table as CSV.")
    try:
        with pa.input_stream(path) as stream, io.TextIOWrapper(stream, _encoding(how), newline="") as text:
            return next(csv.reader(text, delimiter=separator), None) or _empty(path)
    except (UnicodeError, LookupError, OSError, pa.ArrowException) as error:
        raise UsageError(_undecoded(path, how, error)) from error


def _empty(path: str) -> NoReturn:
    raise UsageError(f"{path} is empty.")


def _encoding(how: Reading) -> str:
    """Return the encoding, with which a mark at the start of a file of UTF-8 is none of its text."""
    return "utf-8-sig" if how.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else how.encoding


def _undecoded(path: str, how: Reading, error: Exception) -> str:
    if isinstance(error, LookupError):
        return f"--encoding {how.encoding}: {error}."
    if isinstance(error, UnicodeError) or "UTF8" in str(error):
        return (
            f"{path} is not {how.encoding} ({error}). Name its encoding, for example --encoding latin-1 or --encoding "
            "utf-16."
        )
    return f"{path} cannot be read: {error}."


def _read_texts(
    path: str, separator: str, how: Reading, number: int, positions: Sequence[int]
) -> list[tuple[NDArray[np.int64], list[str]]]:
    """Return the fields of some columns of a CSV file as they are: the code of each row, and the distinct texts."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = [f"f{i}" for i in range(number)]
    encoding = _encoding(how).replace("utf-8-sig", "utf8")  # Arrow reads it without Python, and knows the mark
    try:
        table = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, encoding=encoding),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()),
                include_columns=[names[i] for i in positions],
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )
    except (UnicodeError, LookupError, OSError, pa.ArrowException) as error:
        raise UsageError(_describe_ragged(str(error)) or _undecoded(path, how, error)) from error
    found = []
    for i in positions:
        encoded = table[names[i]].slice(1).combine_chunks().dictionary_encode()  # without the header
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        found.append((codes, encoded.dictionary.to_pylist()))
    return found


def _describe_ragged(message: str) -> str:
    """Return what is wrong with a row of more or fewer fields than the header, or an empty string."""
    found = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)(.*)", message, re.DOTALL)
    if not found:
        return ""
    row = f"line {found[1]}" if found[1] else "a line"
    return (
        f"{row} of the file has {found[3]} field(s), and the header has {found[2]}: {found[4].strip(': ')[:80]!r}. "
        "Check --separator, quotes around fields that hold a separator, and whether the header names all columns."
    )


def _parse(codes: NDArray[np.int64], found: list[str], name: str, path: str, how: Reading) -> _Column:
    """Return a column with typed values; what could be read in two ways is a UsageError with the option that says."""
    import numpy as np

    column = _Column(name, codes, found, np.bincount(codes, minlength=len(found)))
    as_text, as_number = name in how.text, name in how.number
    empty = [each for each in found if not each.strip() or each in how.missing_values or (
        (how.strip or not as_text) and each.strip() in how.missing_values)]  # fmt: skip
    rest = [each for each in found if each not in {*empty}]
    own = f"the column {name!r} of {path}"
    if broken := [each for each in found if "\0" in each]:
        raise UsageError(
            f"{own} holds a NUL character in {column.rows_with(broken):,} row(s), such as {_quoted(broken[:1])}: the "
            "file is damaged, or in another encoding, for example --encoding utf-16."
        )
    if as_text:
        values: dict[str, Any] = {each: each.strip() if how.strip else each for each in rest}
        column.categories = True
    else:
        plain = {each: read_number(each, how.decimal) for each in rest}
        numbers = [each for each, value in plain.items() if value is not None]
        others = [each for each, value in plain.items() if value is None]
        if as_number and others:
            raise UsageError(f"--number {name}: {own} holds {_quoted(others)}, no number.{_comma(others, how)}")
        if others and numbers:
            raise UsageError(_mixed(column, numbers, others, own, name, how))
        if numbers:
            _check_numbers(numbers, own, name, as_number=as_number)
            values = {each: plain[each] for each in numbers}
        elif others and all(each.strip() in TRUTH for each in others):
            values = {each: TRUTH[each.strip()] for each in others}
        else:
            _check_text(column, others, own, name, how)
            values = {each: each.strip() if how.strip else each for each in others}
    # Values that become equal, such as ' a' and 'a' by --strip, get one code.
    levels = list(dict.fromkeys((type(each), each) for each in values.values()))
    at = {level: i for i, level in enumerate(levels)}
    code = np.array(
        [at[(type(values[each]), values[each])] if each in values else -1 for each in found], dtype=np.int64
    )
    column.codes = code[codes]
    column.values = [level for _, level in levels]
    return column


def read_number(text: str, decimal: str) -> int | float | None:
    """Return the number that a text is, with the decimal mark ``.`` or ``,``, or None."""
    plain = text.strip()
    if decimal == ",":
        if "." in plain:
            return None
        plain = plain.replace(",", ".")
    if not NUMBER.fullmatch(plain):
        return None
    return int(plain) if INTEGER.fullmatch(plain) else float(plain)


def _mixed(
    column: _Column, numbers: Sequence[str], others: Sequence[str], own: str, name: str, how: Reading
) -> str:  # fmt: skip
    """Return what is wrong with a column that holds numbers and text."""
    cures = [f"--text {name} reads all of it as categories"]
    if uncertain := [each for each in others if each.strip() in UNCERTAIN] or (others if len(others) == 1 else []):
        cures.insert(0, f"--missing-values {_shell(uncertain)} reads it as missing")
    return (
        f"{own} holds numbers, such as {_quoted(numbers[:1])}, in {column.rows_with(numbers):,} rows and "
        f"{_quoted(others)} in {column.rows_with(others):,}."
        f"{_comma(others, how)} It is not guessed which is meant: {', '.join(cures)}."
    )


def _comma(texts: Sequence[str], how: Reading) -> str:
    """Return a hint where numbers seem to have the other decimal mark."""
    other = "," if how.decimal == "." else "."
    texts = [each.strip() for each in texts if each.strip() not in UNCERTAIN]
    if texts and all(GROUPED[how.decimal].fullmatch(each) for each in texts):
        return f" If {other!r} separates thousands here, take it out of the file."
    if texts and all(PERCENTAGE.fullmatch(each) for each in texts):
        return " If these are percentages, take the sign % out of the file."
    if texts and all(read_number(each, other) is not None for each in texts):
        if all(THOUSANDS.fullmatch(each.strip()) for each in texts):
            return (
                f" If {other!r} separates thousands here, take it out of the file; if it is the decimal mark, use "
                f"--decimal '{other}'."
            )
        return f" If these are numbers with a decimal {'comma' if other == ',' else 'point'}, use --decimal '{other}'."
    return ""


def _check_numbers(numbers: Sequence[str], own: str, name: str, *, as_number: bool) -> None:
    """Refuse codes with leading zeros, which numbers would lose, and integers beyond what a column can hold."""
    coded = [each for each in numbers if CODE.match(each.strip())]
    if coded and not as_number:
        raise UsageError(
            f"{own} holds {_quoted(coded)}: as a number it would lose its leading zero. --text {name} reads the column "
            f"as categories, --number {name} as numbers."
        )
    large = [each for each in numbers if INTEGER.fullmatch(each.strip()) and abs(int(each)) > LARGEST]
    if large:
        raise UsageError(f"{own} holds the integer {large[0]}, larger than 2**63. --text {name} reads it as text.")


def _check_text(column: _Column, texts: Sequence[str], own: str, name: str, how: Reading) -> None:
    """Refuse text that may be a missing value, a number with the other decimal mark, or has blanks around it."""
    if texts and (hint := _comma(texts, how)):
        raise UsageError(f"{own} holds text such as {_quoted(texts)}.{hint} --text {name} reads it as categories.")
    if uncertain := [each for each in texts if each.strip() in UNCERTAIN]:
        raise UsageError(
            f"{own} holds {_quoted(uncertain)} in {column.rows_with(uncertain):,} row(s), a missing value or a "
            f"category of that name. It is not guessed which: --missing-values {_shell(uncertain)} reads it as "
            f"missing, --text {name} as a category."
        )
    if not how.strip and (blank := [each for each in texts if each != each.strip()]):
        raise UsageError(
            f"{own} holds text with blanks around it, such as {blank[0]!r}. --strip strips them; --text {name} keeps "
            "them."
        )


def _quoted(texts: Sequence[str]) -> str:
    """Return the first texts, quoted."""
    return ", ".join(map(repr, texts[:3])) + ", ..." * (len(texts) > 3)


def _shell(texts: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, texts[:3]))


# --- Parquet ---------------------------------------------------------------------------------------------------------


def _read_parquet(path: str, wanted: Mapping[str, str], how: Reading, optional: Sequence[str]) -> Table:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    of_csv = [("separator", None), ("decimal", "."), ("encoding", "utf-8"), ("strip", False), ("missing_values", ())]
    if wrong := [name for name, default in of_csv if getattr(how, name) != default]:
        raise UsageError(
            f"--{wrong[0].replace('_', '-')} is of CSV files; a Parquet file such as {path} has types and missing "
            "values of its own."
        )
    try:
        known = [str(name) for name in pq.read_schema(path).names]
        there = _asked(path, known, wanted, how, optional)
        frame = pd.read_parquet(path, columns=list(there)).reset_index(drop=True)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {error}") from error
    frame = frame.loc[:, list(there)]
    if not len(frame):
        raise UsageError(f"{path} has no rows.")
    keep, left_out = _without_missing(path, {name: frame[name].isna().to_numpy() for name in there}, how)
    frame = frame[keep].copy()
    frame.index = _rows_of(keep)
    for name in there:
        if name in how.text:
            frame[name] = frame[name].astype(str).astype("category")
        elif name in how.number:
            frame[name] = pd.to_numeric(frame[name])
    return Table(path, frame, tuple(name for name in known if name not in there), left_out, _doubts(path, frame))


def _rows_of(keep: NDArray[np.bool_]) -> pd.Index[int]:
    """Return the index of the rows that are kept: their numbers in the file after its header, from 1."""
    import numpy as np
    import pandas as pd

    return pd.Index(np.flatnonzero(keep) + 1)


# --- missing values, and values by their text ------------------------------------------------------------------------


def _without_missing(
    path: str, missing: Mapping[str, NDArray[np.bool_]], how: Reading
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return which rows have no missing value, and in words how many have; these are refused unless to be dropped."""
    import numpy as np

    counts = {name: int(each.sum()) for name, each in missing.items() if each.any()}
    rows = len(next(iter(missing.values())))
    if not counts:
        return np.ones(rows, dtype=bool), ()
    lost = np.any(list(missing.values()), axis=0)
    by_column = ", ".join(f"{name!r} ({number:,})" for name, number in counts.items())
    if not how.drop_missing:
        first = int(np.argmax(lost))
        raise UsageError(
            f"{int(lost.sum()):,} of the {rows:,} rows of {path} have a missing value, in the columns {by_column}; the "
            f"first is row {first + 1:,} after the header. Nothing is dropped unasked: impute them before, or "
            "leave these rows out with --drop-missing, which makes the results those of the other rows."
        )
    if lost.all():
        raise UsageError(f"every row of {path} has a missing value, in the columns {by_column}.")
    text = f"{int(lost.sum()):,} of {rows:,} rows of {path} have a missing value, in {by_column}, and are left out"
    return ~lost, (text,)


def _doubts(path: str, frame: pd.DataFrame) -> tuple[str, ...]:
    """Return in words which values may not be what they are taken for: numbers such as -999, and text in two cases."""
    import numpy as np
    import pandas as pd

    found = []
    for name, column in frame.items():
        own = f"The column {str(name)!r} of {path}"
        values = pd.Series(column.unique())
        if pd.api.types.is_bool_dtype(values):
            continue
        if pd.api.types.is_numeric_dtype(values):
            ordered = np.sort(values.to_numpy(np.float64))
            for each, nearest, rest in ((ordered[0], 1, ordered[1:]), (ordered[-1], -2, ordered[:-1])):
                if len(rest) < 2 or not SENTINEL.fullmatch(f"{each:.15g}"):
                    continue
                if abs(each - ordered[nearest]) >= rest[-1] - rest[0]:
                    found.append(
                        f"{own} holds {each:.15g} in {int((column == each).sum()):,} row(s), far from its other values "
                        f"({rest[0]:.6g} to {rest[-1]:.6g}). It is taken for that number; if it stands for a missing "
                        f"value, use --missing-values {each:.15g}."
                    )
            continue
        twins: dict[str, list[str]] = {}
        for text in values.dropna().astype(str):
            twins.setdefault(" ".join(text.split()).casefold(), []).append(text)
        found += [
            f"{own} holds {' and '.join(map(repr, each))}, which are taken for different categories."
            for each in twins.values()
            if len(each) > 1
        ]
    return tuple(found)


def _plain(value: Any) -> Any:
    """Return a value as Python has it, not NumPy."""
    return value.item() if hasattr(value, "item") else value


def distinct_values(series: pd.Series[Any]) -> list[Any]:
    """Return the values of a column, each once, in the order of their first rows, as Python has them."""
    return [_plain(each) for each in series.unique()]


def _text_of(value: Any) -> str:
    return str(_plain(value))


def list_values(series: pd.Series[Any]) -> str:
    """Return the values of a column with their numbers of rows, the most frequent first."""
    counts = series.value_counts()
    shown = ", ".join(f"{_shown(value)} ({count:,} rows)" for value, count in counts.iloc[:MOST_SHOWN].items())
    return shown + f", and {len(counts) - MOST_SHOWN:,} more" * (len(counts) > MOST_SHOWN)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else _text_of(value)


def match_value(flag: str, text: str, series: pd.Series[Any], path: str) -> Any:
    """Return the value of a column that a text means, in the type of the column, or raise a UsageError.

    Text is compared exactly; numbers as numbers, so that ``1`` is ``1.0``; ``true`` and ``false`` in any case.
    """
    values = distinct_values(series)
    found = [value for value in values if _means(text, value)]
    if len(found) == 1:
        return found[0]
    hint = near(text, [_text_of(each) for each in values])
    raise UsageError(f"{flag} {text!r} is no value of the column {series.name!r} of {path}, which holds "
                     f"{list_values(series)}.{hint}")  # fmt: skip


def _means(text: str, value: Any) -> bool:
    """Return whether a text means a value of a column."""
    if isinstance(value, str):
        return text == value
    number = read_number(text, ".")
    if isinstance(value, bool):
        return TRUTH.get(text.strip().capitalize()) is value if number is None else number == int(value)
    if isinstance(value, int | float):
        return number is not None and number == value
    return text == str(value)
