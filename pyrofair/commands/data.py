"""Tables of the user: CSV and Parquet read as they stand, where nothing is recoded and what is ambiguous is asked."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrofair._validation import did_you_mean, nearest, plain_value
from pyrofair.commands.options import Data, Option, Settings, UsageError, grouped, no_file

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from pyrofair.tables.recorded import Missing

__all__ = [
    "DATA",
    "DATA_OPTIONS",
    "GROUPS",
    "Reading",
    "Table",
    "distinct_values",
    "list_values",
    "match_value",
    "missing_of",
    "read_columns",
    "read_data",
    "read_number",
    "require_columns",
]

DATA = Data("the table: a CSV file (.csv, .tsv, also compressed) or a Parquet file (.parquet)")
DATA_OPTIONS = grouped(
    "the table",
    Option("separator", "what separates the fields of a CSV file, such as ';' or tab (default a comma; a tab in .tsv)",
           metavar="CHARACTER"),
    Option("decimal", "the decimal mark of numbers in a CSV file", default=".", choices=(".", ","), metavar="MARK"),
    Option("encoding", "the encoding of a CSV file", default="utf-8", metavar="NAME"),
    Option("text", "columns to read as text categories, exactly as written: codes such as 01, or NA as a category",
           many=True, metavar="COLUMN"),
    Option("number", "columns to read as numbers although they hold codes such as 01", many=True, metavar="COLUMN"),
    Option("missing-values", "what stands for a missing value besides an empty field, such as NA or '?'", many=True,
           metavar="TEXT"),
    Option("missing-as-value", "count a missing value of a feature as a value, 'not recorded', which classifiers read",
           bool),
    Option("drop-missing", "leave out rows with a missing value in a column that is used (with --missing-as-value: in "
           "one that is no feature); the report counts them", bool),
    Option("drop-other-groups", "leave out rows whose sensitive attribute is neither the baseline nor the contrast",
           bool),
    Option("strip", "strip blanks around the text of a CSV file", bool),
    Option("weight", "the column of sample weights", metavar="COLUMN"),
)  # fmt: skip

(GROUPS,) = grouped(
    "the table",
    Option("groups", "the column of groups of rows that may depend on each other, such as households or sites: "
           "intervals, folds and replicates are of whole groups (default: each row is independent of the others)",
           metavar="COLUMN"),
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
MOST_DIGITS = 600
"""Python turns texts of as many digits into integers, whatever its limit; longer ones are too large in any case."""
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:[.,]\d{3})+")
GROUPED = {
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+\.\d+"),
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+,\d+"),
}
"""Numbers with separated thousands and a decimal mark, by this mark."""
PERCENTAGE = re.compile(r"[+-]?\d+(?:[.,]\d*)?\s*%")
SENTINEL = re.compile(r"-9|-?99+")
FAR = 100.0
"""A number so many ranges of the others away from them is doubted; one that may mark missing values, one range."""
OF_NODE = "the node "
"""What stands before the node in the reason for which a column is wanted."""
OWN = ("features", "sensitive", "gaps")
"""What a command knows of its tables beyond the options that say how they are read."""


@dataclass(frozen=True)
class Reading:
    """How tables are read; one for all tables of a command.

    Missing values of ``features`` count as values; with ``gaps`` the ``sensitive`` column may have some.
    """

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    text: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    missing_values: tuple[str, ...] = ()
    drop_missing: bool = False
    missing_as_value: bool = False
    strip: bool = False
    features: tuple[str, ...] = ()
    sensitive: str = ""
    gaps: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Reading:
        """Return the reading that the options of a command describe."""
        if both := sorted({*settings["text"]} & {*settings["number"]}):
            raise UsageError(f"the column {both[0]!r} is named by --text and by --number; choose one.")
        given = {each.name: settings[each.name.replace("_", "-")] for each in fields(cls) if each.name not in OWN}
        separator = {"tab": "\t", r"\t": "\t"}.get(given["separator"], given["separator"])
        lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        return cls(**{**given, **lists, "separator": separator})

    def __post_init__(self) -> None:
        mark = self.separator
        if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0'):
            raise UsageError(
                f"--separator {mark!r} must be one character of ASCII, such as ';', or the word tab. In a file with "
                "another one, replace it."
            )
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            raise UsageError(f"--encoding {self.encoding!r} is no encoding of text: {error}.") from error

    def mark(self, path: str) -> str:
        """Return what separates the fields of a CSV file."""
        return self.separator or ("\t" if re.search(r"\.tsv(\.|$)", path.lower()) else ",")

    @property
    def codec(self) -> str:
        """The encoding, with which a mark at the start of a file of UTF-8 is none of its text."""
        return "utf-8-sig" if self.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else self.encoding


@dataclass(frozen=True, eq=False)
class Table:
    """A table as it was read: its file, the columns asked for, and what is to be told about the reading.

    ``unused`` are the other columns of the file; ``left_out`` says in words which rows were left out, ``doubts``
    which values were taken as they stand although they may mean something else, and ``notes`` all else.
    """

    path: str
    frame: pd.DataFrame
    unused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def missing_of(settings: Settings) -> Missing:
    """Return what becomes of missing values of features."""
    return "recorded" if settings["missing-as-value"] else "refuse"


def require_columns(path: str, known: Sequence[str], wanted: Mapping[str, str]) -> None:
    """Refuse names that a file has no column of, or two; ``wanted`` maps each name to what asks for it."""
    if absent := [name for name in wanted if name not in known]:
        cure = next((_cure(name, wanted[name], known) for name in absent if OF_NODE in wanted[name]), "")
        raise UsageError(
            f"{path} has no column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))} "
            f"({'; '.join(dict.fromkeys(wanted[name] for name in absent))}). It has: "
            f"{', '.join(repr(name) if ',' in name else name for name in known)}.{did_you_mean(absent[0], known)}{cure}"
        )
    if twice := [name for name in wanted if list(known).count(name) > 1]:
        raise UsageError(
            f"{path} has {list(known).count(twice[0])} columns called {twice[0]!r}, which differ; rename one of them."
        )


def _cure(name: str, why: str, known: Sequence[str]) -> str:
    """Return what to type for a node without a column of its name, from what asks for it."""
    node, like = why.split(OF_NODE)[1].strip("'\""), str(nearest(name, known) or "first,second")
    quoted = "," in like and like in known
    made = f'{node}="{like}"' if quoted else f"{node}={like}"
    made = shlex.quote(made) if "'" in made else f"'{made}'"
    return (
        f" A node that stands for other columns is given them, --columns {made}"
        f"{', a name with a comma in double quotes' * quoted}; one never measured is declared, --latent "
        f"{shlex.quote(node)}."
    )


def read_data(path: str, wanted: Mapping[str, str], how: Reading, optional: Sequence[str] = ()) -> Table:
    """Return the columns of a CSV or Parquet file that are wanted, typed and without missing values.

    ``wanted`` has what asks for each column, for messages; the file may lack ``optional`` ones. What does not fit, or
    could be read in two ways, is a UsageError.
    """
    if missing := no_file(path):
        raise UsageError(missing)
    name = Path(path).name.lower()
    if name.endswith((".parquet", ".pq")):
        return _read_parquet(path, wanted, how, optional)
    if re.search(r"\.(csv|tsv|txt|data)(\.(gz|bz2|zst))?$", name):
        return _read_csv(path, wanted, how, optional)
    raise UsageError(f"{path!r} is neither CSV (.csv, .tsv, .txt, .data, also .gz) nor Parquet (.parquet, .pq).")


def read_columns(path: str, how: Reading) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file."""
    if missing := no_file(path):
        raise UsageError(missing)
    if not path.lower().endswith((".parquet", ".pq")):
        return _read_header(path, how)
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pyrofair.tables.reading import INDEX

    try:
        return [name for name in pq.read_schema(path).names if not name.startswith(INDEX)]
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {error}") from error


def _asked(
    path: str, known: Sequence[str], wanted: Mapping[str, str], how: Reading, optional: Sequence[str]
) -> dict[str, str]:
    """Return the wanted columns that are there, once all that must be are."""
    there = {name: why for name, why in wanted.items() if name in known or name not in optional}
    declared = {name: f"--{flag}" for flag in ("text", "number") for name in getattr(how, flag) if name not in known}
    require_columns(path, known, declared or there)
    return there


# --- CSV -------------------------------------------------------------------------------------------------------------


def _read_csv(path: str, wanted: Mapping[str, str], how: Reading, optional: Sequence[str]) -> Table:
    import pandas as pd

    header = _read_header(path, how)
    _check_separator(path, header, how.mark(path), wanted)
    if how.strip:
        header = [each.strip() for each in header]
    elif blank := [each for each in header if each != each.strip() and each.strip() in wanted and each not in wanted]:
        raise UsageError(
            f"{path} has blanks around the name of the column {blank[0]!r}; --strip strips them, and those around text."
        )
    header, notes = _without_copies(path, how, header, wanted)
    there = _asked(path, header, wanted, how, optional)
    texts = _read_texts(path, how, header, there)
    if texts.empty:
        raise UsageError(f"{path} has a header and no rows.")
    values, wrong = {}, []
    for name in there:
        try:
            values[name] = _values_of(texts[name], name, f"the column {name!r} of {path}", how)
        except UsageError as error:
            wrong.append(str(error))
    if wrong:  # all columns at once, so that one more call is enough
        raise UsageError("\n  and: ".join(wrong))
    keep, left_out = _without_missing(path, {name: ~texts[name].isin(values[name]).to_numpy() for name in there}, how)
    texts = texts[keep]  # a number that was left out leaves the type of the others as it is
    used = {name: {each: values[name][each] for each in texts[name].unique() if each in values[name]} for name in there}
    typed = {name: texts[name].map(used[name]) for name in there}
    frame = pd.DataFrame(typed).astype({name: "category" for name in there if name in how.text})
    unused = tuple(dict.fromkeys(name for name in header if name not in there))
    return Table(path, frame, unused, left_out, _doubts(path, frame), notes)


def _without_copies(
    path: str, how: Reading, header: list[str], wanted: Mapping[str, str]
) -> tuple[list[str], tuple[str, ...]]:
    """Return the header with a name to spare for each copy of a wanted column that equals the first, and a note of it.

    Columns of one name that differ keep it, and are refused.
    """
    taken, notes = list(header), []
    for name in dict.fromkeys(each for each in header if each in wanted and header.count(each) > 1):
        at = [i for i, each in enumerate(header) if each == name]
        texts = _read_texts(path, how, [str(i) for i in range(len(header))], map(str, at))
        if all(texts[str(i)].equals(texts[str(at[0])]) for i in at[1:]):
            for i in at[1:]:
                taken[i] = f"{name} (a copy)"
            notes.append(f"{path} has {len(at)} columns called {name!r}, identical in every row: it is read once.")
    return taken, tuple(notes)


def _read_header(path: str, how: Reading) -> list[str]:
    """Return the names in the first line of a CSV file, those that occur twice as they are."""
    import io

    import pyarrow as pa

    with Path(path).open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise UsageError(f"{path} is a zip archive or an Excel workbook, not CSV: save its table as CSV.")
    try:
        with pa.input_stream(path) as stream, io.TextIOWrapper(stream, how.codec, newline="") as text:
            header = next(csv.reader(text, delimiter=how.mark(path)), None)
    except (UnicodeError, OSError, csv.Error, pa.ArrowException) as error:
        raise UsageError(_undecoded(path, how, error)) from error
    if not header:
        raise UsageError(f"{path} is empty.")
    return header


def _check_separator(path: str, header: Sequence[str], separator: str, wanted: Mapping[str, str]) -> None:
    """Refuse a header of which another separator makes more of the wanted columns, or more than one column."""
    line, single = separator.join(header), len(header) == 1
    known = {
        mark: len({name.strip().strip('"') for name in line.split(mark)} & {*wanted})
        for mark in (";", "\t", "|", ",")
        if mark != separator and mark in line
    }
    best = max(known, key=known.__getitem__, default="")
    if best and (single or known[best] > len({name.strip() for name in header} & {*wanted})):
        written, one = best.replace("\t", "tab"), "it has one column, " * single
        raise UsageError(f"the header of {path} is {line!r}: {one}separate its fields by --separator '{written}'.")


def _undecoded(path: str, how: Reading, error: Exception) -> str:
    """Return why a file cannot be read; a row of more or fewer fields than the header is named by its line."""
    if ragged := re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)(.*)", str(error), re.DOTALL):
        row, expected, got, text = ragged.groups()
        return (
            f"line {row or '?'} of {path} has {got} field(s), and the header has {expected}: "
            f"{text.strip(': ')[:80]!r}. Check --separator, quotes around fields that hold a separator, and the names "
            "in the header."
        )
    if isinstance(error, UnicodeError) or "UTF8" in str(error):
        return f"{path} is not {how.encoding} ({error}). Name its encoding, such as --encoding latin-1 or utf-16."
    return f"{path} cannot be read: {error}."


def _read_texts(path: str, how: Reading, header: Sequence[str], wanted: Iterable[str]) -> pd.DataFrame:
    """Return the fields of some columns of a CSV file as they are, by the numbers of their rows after the header."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = [f"f{i}" for i in range(len(header))]
    own = {name: names[header.index(name)] for name in wanted}
    encoding = how.codec.replace("utf-8-sig", "utf8")  # Arrow reads it without Python, and knows the mark
    try:
        table = arrow_csv.read_csv(
            path,
            arrow_csv.ReadOptions(use_threads=False, column_names=names, encoding=encoding),
            arrow_csv.ParseOptions(delimiter=how.mark(path), newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()), include_columns=[*own.values()]
            ),
        )
    except (UnicodeError, OSError, pa.ArrowException) as error:
        raise UsageError(_undecoded(path, how, error)) from error
    table, rows = table.slice(1), pd.RangeIndex(1, table.num_rows)  # without the header
    return pd.DataFrame({name: pd.Series(table[each].to_numpy(), rows, object) for name, each in own.items()})


def _values_of(texts: pd.Series[Any], name: str, own: str, how: Reading) -> dict[str, Any]:
    """Return the values of the texts of a column, those of missing values left out.

    What could be read in two ways is a UsageError with the option that says.
    """
    counts: Any = texts.value_counts(sort=False)
    bare = str.strip if how.strip or name not in how.text else str
    found = [each for each in counts.index if each.strip() and not {each, bare(each)} & {*how.missing_values}]
    if broken := [each for each in counts.index if "\0" in each]:
        raise UsageError(
            f"{own} holds a NUL character in {counts[broken].sum():,} row(s), such as {broken[0]!r}: the file is "
            "damaged, or in another encoding, for example --encoding utf-16."
        )
    words = {each: each.strip() if how.strip else each for each in found}
    if name in how.text:
        return words
    numbers = {each: value for each in found if (value := read_number(each, how.decimal)) is not None}
    if found and name not in how.number and all(each.strip() in TRUTH for each in found):
        return {each: TRUTH[each.strip()] for each in found}
    if fault := _fault(counts, [*numbers], [each for each in found if each not in numbers], name, how):
        raise UsageError(f"{own} holds {fault}")
    return numbers or words


def _fault(counts: Any, numbers: list[str], others: list[str], name: str, how: Reading) -> str:
    """Return what is wrong with the numbers and other texts of a column, and the options that cure it, if it is."""
    hint, as_text = _comma(others, how), f"--text {name} reads all of it as categories."
    uncertain = [each for each in others if each.strip() in UNCERTAIN]
    if others and name in how.number:
        return f"{_quoted(others)}, no number, and is named by --number {name}.{hint}"
    if others and numbers:
        uncertain = uncertain or others * (len(others) == 1)
        cure = f"--missing-values {_shell(uncertain)} reads it as missing, " if uncertain else ""
        return (
            f"numbers, such as {numbers[0]!r}, in {counts[numbers].sum():,} rows and {_quoted(others)} in "
            f"{counts[others].sum():,}.{hint} It is not guessed which is meant: {cure}{as_text}"
        )
    if hint:
        return f"text such as {_quoted(others)}.{hint} {as_text}"
    if uncertain:
        return (
            f"{_quoted(uncertain)} in {counts[uncertain].sum():,} row(s), a missing value or a category of that name. "
            f"It is not guessed which: --missing-values {_shell(uncertain)} reads it as missing, {as_text}"
        )
    if not how.strip and (blank := [each for each in others if each != each.strip()]):
        return f"text with blanks around it, such as {blank[0]!r}. --strip strips them; --text {name} keeps them."
    if name not in how.number and (coded := [each for each in numbers if CODE.match(each.strip())]):
        return f"{_quoted(coded)}: a number would lose the zero. {as_text} --number {name} reads numbers."
    integers = [each for each in numbers if INTEGER.fullmatch(each.strip())]
    if large := [each for each in integers if abs(read_number(each, ".") or 0) > LARGEST]:
        return f"the integer {large[0][:40]}{'...' * (len(large[0]) > 40)}, larger than 2**63. {as_text}"
    return ""


def read_number(text: str, decimal: str) -> int | float | None:
    """Return the number that a text is, with the decimal mark ``.`` or ``,``, or None."""
    plain = text.strip()
    if decimal == ",":
        plain = plain.replace(".", "?").replace(",", ".")
    if not NUMBER.fullmatch(plain):
        return None
    return int(plain) if INTEGER.fullmatch(plain) and len(plain) <= MOST_DIGITS else float(plain)


def _comma(texts: Sequence[str], how: Reading) -> str:
    """Return a hint where numbers seem to be percentages, or to have separated thousands or the other decimal mark."""
    other = "," if how.decimal == "." else "."
    texts = [each.strip() for each in texts if each.strip() not in UNCERTAIN]

    def all_are(pattern: re.Pattern[str]) -> bool:
        return bool(texts) and all(pattern.fullmatch(each) for each in texts)

    if all_are(PERCENTAGE):
        return " If these are percentages, take the sign % out of the file."
    if all_are(GROUPED[how.decimal]):
        return f" If {other!r} separates thousands here, take it out of the file."
    if not texts or any(read_number(each, other) is None for each in texts):
        return ""
    thousands = f"{other!r} separates thousands here, take it out of the file; if " if all_are(THOUSANDS) else ""
    return f" If {thousands}{other!r} is the decimal mark, use --decimal '{other}'."


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

    from pyrofair.tables.reading import from_arrow

    plain, of_csv = Reading(), ("separator", "decimal", "encoding", "strip", "missing_values")
    if wrong := [name for name in of_csv if getattr(how, name) != getattr(plain, name)]:
        raise UsageError(
            f"--{wrong[0].replace('_', '-')} is of CSV files; a Parquet file such as {path} has types and missing "
            "values of its own."
        )
    known = read_columns(path, how)
    there = _asked(path, known, wanted, how, optional)
    try:
        table = pq.read_table(path, columns=list(there))
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {error}") from error
    if nested := [each for each in table.schema if pa.types.is_nested(each.type)]:
        raise UsageError(
            f"the column {nested[0].name!r} of {path} holds several values a row ({nested[0].type}). Spread them over "
            "columns, one value each."
        )
    frame = from_arrow(table).loc[:, list(there)]
    if not len(frame):
        raise UsageError(f"{path} has no rows.")
    keep, left_out = _without_missing(path, {name: frame[name].isna().to_numpy() for name in there}, how)
    frame = frame[keep].copy()
    frame.index = pd.RangeIndex(1, len(keep) + 1)[keep]  # the numbers of rows in the file after its header
    for name in there:
        if name in how.text:
            frame[name] = frame[name].astype(str).astype("category")
        elif name in how.number:
            try:
                frame[name] = pd.to_numeric(frame[name])
            except (ValueError, TypeError) as error:
                own = f"the column {name!r} of {path}"
                raise UsageError(f"{own} holds values that are no number, and is named by --number: {error}") from error
    return Table(path, frame, tuple(name for name in known if name not in there), left_out, _doubts(path, frame))


# --- missing values, and values by their text ------------------------------------------------------------------------


def _without_missing(
    path: str, missing: Mapping[str, NDArray[np.bool_]], how: Reading
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return which rows have no missing value, and in words how many have; these are refused unless to be dropped."""
    import numpy as np

    missing = {name: each & ((name != how.sensitive) | (not how.gaps)) for name, each in missing.items()}
    rows = len(next(iter(missing.values())))
    missing = {name: each for name, each in missing.items() if each.any() and (each.all() or name not in how.features)}
    counts = {name: int(each.sum()) for name, each in missing.items()}
    if not counts:
        return np.ones(rows, dtype=bool), ()
    lost = np.any(list(missing.values()), axis=0)
    by_column = ", ".join(f"{name!r} ({number:,})" for name, number in counts.items())
    if not how.drop_missing:
        first = int(np.argmax(lost))
        counted = "" if how.missing_as_value else "; --missing-as-value counts those of features as a value"
        raise UsageError(
            f"{int(lost.sum()):,} of the {rows:,} rows of {path} have a missing value, in the columns {by_column}; the "
            f"first is row {first + 1:,} after the header. Nothing is dropped unasked: impute them before, or "
            "leave these rows out with --drop-missing, which makes the results those of the other rows"
            f"{counted}."
            + f" An audit may lack {how.sensitive!r}, with columns that hint at it: --proxy COLUMN."
            * (how.sensitive in counts)
        )
    if lost.all():
        raise UsageError(f"every row of {path} has a missing value, in the columns {by_column}.")
    text = f"{int(lost.sum()):,} of {rows:,} rows of {path} have a missing value, in {by_column}, and are left out"
    return ~lost, (text,)


def _doubts(path: str, frame: pd.DataFrame) -> tuple[str, ...]:
    """Return in words which values may not be what they are taken for: numbers far from others, text in two cases."""
    import numpy as np
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    found = []
    for name, column in frame.items():
        own, values = f"The column {str(name)!r} of {path}", column.dropna().unique()
        if is_bool_dtype(column):
            continue
        if is_numeric_dtype(column):
            numbers = np.sort(np.asarray(values, dtype=np.float64))
            for each in numbers[[0, -1]] if len(numbers) > 2 else ():
                rest = numbers[numbers != each]
                ranges = 1.0 if SENTINEL.fullmatch(f"{each:.15g}") else FAR
                if np.abs(rest - each).min() >= ranges * np.ptp(rest):
                    found.append(
                        f"{own} holds {each:.15g} in {int((column == each).sum()):,} row(s), far from its other values "
                        f"({rest[0]:.6g} to {rest[-1]:.6g}). It is taken for that number: correct it if it is an "
                        f"error; if it stands for a missing value, use --missing-values {each:.15g}."
                    )
            continue
        twins: dict[str, list[str]] = {}
        for text in map(str, values):
            twins.setdefault(" ".join(text.split()).casefold(), []).append(text)
        found += [
            f"{own} holds {' and '.join(map(repr, each))}, which are taken for different categories."
            for each in twins.values()
            if len(each) > 1
        ]
    return tuple(found)


def distinct_values(series: pd.Series[Any]) -> list[Any]:
    """Return the values of a column, each once, in the order of their first rows, as Python has them."""
    return [plain_value(each) for each in series.dropna().unique()]


def list_values(series: pd.Series[Any]) -> str:
    """Return the values of a column with their numbers of rows, the most frequent first."""
    from pyrofair.tables.labels import show_counts  # it loads scikit-learn

    return show_counts(series)


def match_value(flag: str, text: str, series: pd.Series[Any], path: str) -> Any:
    """Return the value of a column that a text means, in the type of the column, or raise a UsageError.

    Text is compared exactly; numbers as numbers, so that ``1`` is ``1.0``; ``true`` and ``false`` in any case.
    """
    values = distinct_values(series)
    found = [value for value in values if _means(text, value)]
    if len(found) == 1:
        return found[0]
    close = nearest(text, map(str, values))
    hint = "" if close is None else f" Did you mean {flag} {shlex.quote(str(close))}?"
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
