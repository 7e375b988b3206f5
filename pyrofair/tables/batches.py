"""Rows of one population in frames of bounded size: from Parquet files, frames or Dask, and sums over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import did_you_mean, require_integer, shown
from pyrofair.exceptions import DataError
from pyrofair.tables.labels import as_levels, is_categorical
from pyrofair.tables.reading import as_arrow, read_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_ROWS", "Batches", "Largest", "Moments", "add_sums", "as_batches", "batch_weight"]

BATCH_ROWS = 131_072
"""The rows of a batch: some tens of megabytes in most tables."""
MOST_LEVELS = 100_000
"""A column of text with more levels is an identifier."""
PARQUET = (".parquet", ".parq", ".pq")
Sums = TypeVar("Sums")


class Batches(ABC):
    """Rows of one population as DataFrames of bounded size, in a fixed order, which can be read again and again.

    :func:`as_batches` makes them. Iteration gives frames whose index is the number of each row among all rows, and
    whose columns of text or categories have one categorical type throughout, with the levels of the whole data.

    Attributes
    ----------
    columns : tuple of str
        The columns that are read.
    sizes : tuple of int
        The rows of each part, such as a group of rows of a Parquet file, that can be read for itself.
    """

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    batch_rows: int

    def __len__(self) -> int:
        return sum(self.sizes)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return (frame for part in range(len(self.sizes)) for frame in self.read(part))

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {len(self.columns)} columns in {len(self.sizes):,} parts>"

    def read(self, part: int) -> Iterator[pd.DataFrame]:
        """Yield the frames of one part, each of at most ``batch_rows`` rows."""
        first = sum(self.sizes[:part])
        for frame in self._frames(part):
            for start in range(0, len(frame), self.batch_rows):
                piece = frame.iloc[start : start + self.batch_rows]
                yield self.typed(piece, first)
                first += len(piece)

    def typed(self, frame: pd.DataFrame, first: int) -> pd.DataFrame:
        """Return a frame as read with the levels of the whole data, and its rows numbered from the first."""
        index = pd.RangeIndex(first, first + len(frame))
        columns = {name: frame[name] for name in self.columns}
        return pd.DataFrame(
            {
                name: values.astype(self.levels[name]).array if name in self.levels else values.array
                for name, values in columns.items()
            },
            index=index,
            copy=False,
        )

    def select(self, columns: Sequence[str]) -> Batches:
        """Return the same rows with some columns, the others not even read."""
        absent = [name for name in columns if name not in self.columns]
        if absent:
            raise DataError(
                f"The batches lack the column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}. They have: "
                f"{', '.join(self.columns)}.{did_you_mean(absent[0], self.columns)}"
            )
        other = copy(self)
        other.columns = tuple(dict.fromkeys(columns))
        known: Mapping[str, Any] | None = self.__dict__.get("levels")
        other.__dict__.pop("levels", None)
        if known is not None:
            other.__dict__["levels"] = {name: each for name, each in known.items() if name in other.columns}
        return other

    @cached_property
    def levels(self) -> dict[str, pd.CategoricalDtype]:
        """The type of each column of text or categories: the levels of all rows, found in one pass over them."""
        found: dict[str, pd.CategoricalDtype] = {}
        for name, (declared, values) in self._distinct().items():
            text = pd.Series(sorted(values, key=lambda value: (str(type(value)), value)), name=name, dtype=object)
            if len(text) > MOST_LEVELS:
                raise DataError(
                    f"The column {name!r} holds {len(text):,} different categories, as an identifier does. Leave it "
                    "out of the graph, or join categories."
                )
            if declared is None and len(text):
                read_table(text.to_frame(), [name], what="The table in batches")  # numbers and dates held as text
            known = declared if declared is not None and set(declared) >= values else as_levels(text)
            found[name] = pd.CategoricalDtype(pd.Index(known))
        return found

    def total(self, function: Callable[[pd.DataFrame], Sums]) -> Sums:
        """Return the sum of what a function makes of each frame, added in the order of the rows.

        The function returns numbers or arrays, or tuples, lists (joined) or dictionaries of them.
        """
        found: Any = None
        for frame in self:
            found = add_sums(found, function(frame))
        if found is None:
            raise DataError("The batches hold no rows: found 0 sample(s), while a minimum of 1 is required.")
        return found  # type: ignore[no-any-return]

    def is_same(self, other: object) -> bool:
        """Whether others hold the same rows in the same order, as far as can be seen without reading them."""
        return type(other) is type(self) and self._identity() == other._identity()

    @abstractmethod
    def _identity(self) -> object:
        """Return what two readers of the same rows have in common."""

    @abstractmethod
    def _frames(self, part: int) -> Iterator[pd.DataFrame]:
        """Yield the frames of a part as they are stored."""

    @abstractmethod
    def _distinct(self) -> dict[str, tuple[list[Any] | None, set[Any]]]:
        """Return for each column of text or categories the declared levels, if any, and the distinct values."""


def as_batches(data: Any, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS) -> Batches:
    """Return the rows of a large table in batches, for ``IPW.fit``, ``audit`` and ``PenalizedClassifier.fit_batches``.

    Parameters
    ----------
    data
        A Parquet file, a folder of files ``*.parquet`` (in the order of their names; without folders in it), or a list
        of files; a Dask DataFrame; a table of polars or pyarrow, of which a batch at a time becomes a DataFrame; or
        pandas DataFrames of the same columns and types: one, a list, or any iterable of them that can be iterated
        again.
    columns
        The columns to read, by default all.
    batch_rows
        The most rows of a batch.

    Returns
    -------
    Batches
        Nothing but counts of rows and types has been read yet.

    Raises
    ------
    DataError
        If nothing is there, if columns or types differ between files, frames or partitions, or if an iterator is given,
        which could be read once only.

    Examples
    --------
    >>> frames = [pd.DataFrame({"A": [0, 1], "job": ["cook", "nurse"]}), pd.DataFrame({"A": [1], "job": ["baker"]})]
    >>> batches = as_batches(frames)
    >>> len(batches), [frame["job"].cat.codes.tolist() for frame in batches]
    (3, [[1, 2], [0]])
    """
    require_integer("batch_rows", batch_rows)
    made = _make(data, batch_rows)
    if not len(made):
        raise DataError("The batches hold no rows: found 0 sample(s), while a minimum of 1 is required.")
    return made if columns is None else made.select(columns)


def _make(data: Any, batch_rows: int) -> Batches:
    if isinstance(data, Batches):
        made = copy(data)
        made.batch_rows = batch_rows
        return made
    if isinstance(data, str | Path):
        return _ParquetBatches(_parquet_files(Path(data)), batch_rows)
    if isinstance(data, pd.DataFrame):
        return _FrameBatches([data], batch_rows)
    if (arrow := as_arrow(data)) is not None:
        return _ArrowBatches(arrow, data, batch_rows)
    if hasattr(data, "map_partitions") and hasattr(data, "npartitions"):
        return _DaskBatches(data, batch_rows)
    if isinstance(data, Sequence) and data and all(isinstance(each, str | Path) for each in data):
        return _ParquetBatches([file for each in data for file in _parquet_files(Path(each))], batch_rows)
    if isinstance(data, Iterator):
        raise DataError(
            f"{shown(data)} is an iterator, which can be read once, and several passes are needed. Give a list of "
            "frames, or an object whose __iter__ starts anew each time."
        )
    if isinstance(data, Iterable) and not isinstance(data, Mapping | bytes):
        return _FrameBatches(data, batch_rows)
    raise DataError(
        f"{shown(data)} is no table in batches; give a Parquet file or folder, a Dask DataFrame, or DataFrames."
    )


def _parquet_files(path: Path) -> list[Path]:
    """Return a file, or those of a folder, where names that begin with . or _ are no data, as for other readers."""
    if not path.is_dir():
        if not path.is_file():
            raise DataError(f"{str(path)!r} is no file or folder.")
        return [path]
    held = sorted(file for file in path.rglob("*") if file.suffix.lower() in PARQUET and file.is_file())
    listed = [file for file in held if not any(name.startswith((".", "_")) for name in file.relative_to(path).parts)]
    files = [file for file in listed if file.parent == path and file.suffix == ".parquet"]
    if len(files) < len(listed):
        other = next(file for file in listed if file not in files)
        raise DataError(
            f"The folder {str(path)!r} also holds {str(other.relative_to(path))!r}, which would be left out: of a "
            "folder its own files *.parquet are read. Give a list of files; what is in names of folders alone "
            "(partitions) must be a column of the files."
        )
    if not files:
        raise DataError(f"{str(path)!r} holds no file *.parquet.")
    return files


class _ParquetBatches(Batches):
    """Parquet files, read some groups of rows at a time."""

    def __init__(self, files: Sequence[Path], batch_rows: int) -> None:
        import pyarrow.parquet as pq

        self.files, self.batch_rows = [file.resolve() for file in files], batch_rows
        twice = [file for file, times in Counter(self.files).items() if times > 1]
        if twice:
            raise DataError(f"The file {str(twice[0])!r} is given more than once; its rows would count as often.")
        self.stamps = [(file.stat().st_size, file.stat().st_mtime_ns) for file in self.files]
        first = pq.read_schema(self.files[0])
        self.types = {field.name: _value_type(field.type) for field in first if not field.name.startswith("__index")}
        self.declared = [field.name for field in first if str(field.type).startswith("dictionary")]
        self.columns = tuple(self.types)
        self.parts: list[tuple[Path, list[int]]] = []
        sizes: list[int] = []
        for file in self.files:
            own = pq.ParquetFile(file)
            types = {f.name: _value_type(f.type) for f in own.schema_arrow if not f.name.startswith("__index")}
            if types != self.types:
                name = next(each for each in {**self.types, **types} if types.get(each) != self.types.get(each))
                raise DataError(
                    f"The files differ: {name!r} has the type {types.get(name, '(absent)')} in {file.name}, and "
                    f"{self.types.get(name, '(absent)')} in {self.files[0].name}. Write all files with one schema."
                )
            held = 0
            for group in range(own.metadata.num_row_groups):
                rows = own.metadata.row_group(group).num_rows
                if group and held + rows <= batch_rows:
                    self.parts[-1][1].append(group)
                    sizes[-1] += rows
                    held += rows
                else:
                    self.parts.append((file, [group]))
                    sizes.append(rows)
                    held = rows
        self.sizes = tuple(sizes)

    def _identity(self) -> object:
        return self.files, self.stamps

    def _text(self) -> list[str]:
        """Return the columns of text, which are read as categories."""
        return [name for name in self.columns if self.types[name] in ("string", "large_string", "string_view")]

    def _frames(self, part: int) -> Iterator[pd.DataFrame]:
        import pyarrow.parquet as pq

        file, groups = self.parts[part]
        with pq.ParquetFile(file, read_dictionary=self._text()) as opened:
            read = opened.iter_batches(
                batch_size=self.batch_rows, row_groups=groups, columns=list(self.columns), use_threads=False
            )
            for each in read:
                yield each.to_pandas(split_blocks=True, ignore_metadata=True)

    def _distinct(self) -> dict[str, tuple[list[Any] | None, set[Any]]]:
        names = self._text()
        if not names:
            return {}
        found: dict[str, tuple[list[Any] | None, set[Any]]] = {name: (None, set()) for name in names}
        narrow = copy(self)
        narrow.columns = tuple(names)
        for part in range(len(self.parts)):
            for frame in narrow._frames(part):
                for name in names:
                    _join_levels(found, name, frame[name], declared=name in self.declared)
        return found


def _value_type(arrow: Any) -> str:
    """Return the name of an Arrow type, of a dictionary that of its values: how they are coded is of no account."""
    return str(getattr(arrow, "value_type", arrow) if str(arrow).startswith("dictionary") else arrow)


def _join_levels(
    found: dict[str, tuple[list[Any] | None, set[Any]]], name: str, values: pd.Series[Any], *, declared: bool
) -> None:
    """Add the levels of a column of one frame to those found so far."""
    known, distinct = found.get(name, (None, set()))
    if isinstance(values.dtype, pd.CategoricalDtype):
        listed = values.cat.categories.tolist()
        known = listed if declared and not distinct else known
        distinct |= set(listed)
    else:
        distinct |= set(values.dropna().unique().tolist())
    found[name] = known, distinct


class _FrameBatches(Batches):
    """DataFrames: a sequence, each of which can be read for itself, or an iterable, which is read from its start."""

    def __init__(self, frames: Iterable[pd.DataFrame], batch_rows: int) -> None:
        self.frames, self.batch_rows = frames, batch_rows
        sizes: list[int] = []
        types: dict[str, str] = {}
        for i, frame in enumerate(frames):
            if not isinstance(frame, pd.DataFrame):
                raise DataError(f"Batch {i} is a {type(frame).__name__}, expected a pandas DataFrame.")
            read_table(frame, [], what=f"Batch {i}")  # one level of columns, and rows
            own = {str(name): _type_name(dtype) for name, dtype in frame.dtypes.items()}
            types = types or own
            if own != types:
                name = next(each for each in {**types, **own} if own.get(each) != types.get(each))
                raise DataError(
                    f"The frames differ: {name!r} has the type {own.get(name, '(absent)')} in frame {i}, and "
                    f"{types.get(name, '(absent)')} in the first. Give all frames the same columns and types."
                )
            sizes.append(len(frame))
        self.columns = tuple(types)
        self.sizes = tuple(sizes) if isinstance(frames, Sequence) else (sum(sizes),)

    def _identity(self) -> object:
        return id(self.frames) if not isinstance(self.frames, Sequence) else [id(frame) for frame in self.frames]

    def _frames(self, part: int) -> Iterator[pd.DataFrame]:
        frames = [self.frames[part]] if isinstance(self.frames, Sequence) else self.frames
        return (frame[list(self.columns)] for frame in frames)

    def _distinct(self) -> dict[str, tuple[list[Any] | None, set[Any]]]:
        found: dict[str, tuple[list[Any] | None, set[Any]]] = {}
        for frame in self.frames:
            for name in self.columns:
                if is_categorical(frame[name]):
                    _join_levels(found, name, frame[name], declared=True)
        return found


class _ArrowBatches(Batches):
    """A table of Arrow, or of a library that hands its columns over as such: converted some rows at a time."""

    def __init__(self, table: pa.Table, given: object, batch_rows: int) -> None:
        self.table, self.given, self.batch_rows = table, given, batch_rows
        self.columns = tuple(map(str, table.slice(0, 0).to_pandas().columns))  # without the index of a pandas table
        self.sizes = (table.num_rows,)

    def _identity(self) -> object:
        return id(self.given)

    def _frames(self, part: int) -> Iterator[pd.DataFrame]:
        read = self.table.select(list(self.columns))
        for start in range(0, self.table.num_rows, self.batch_rows):
            yield read.slice(start, self.batch_rows).to_pandas()

    def _distinct(self) -> dict[str, tuple[list[Any] | None, set[Any]]]:
        found: dict[str, tuple[list[Any] | None, set[Any]]] = {}
        narrow = copy(self)
        narrow.columns = tuple(name for name in self.columns if not _is_number(self.table.schema.field(name).type))
        if not narrow.columns:
            return found
        for frame in narrow._frames(0):
            for name in narrow.columns:
                if is_categorical(frame[name]):
                    _join_levels(found, name, frame[name], declared=True)
        for name, (declared, values) in found.items():
            if declared is not None:  # parts of a table may have dictionaries of their own
                chunks = self.table[name].chunks
                listed = dict.fromkeys(value for chunk in chunks for value in chunk.dictionary.to_pylist())
                found[name] = [value for value in listed if value is not None], values
        return found


def _is_number(arrow: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow))


def _type_name(dtype: Any) -> str:
    return "category" if isinstance(dtype, pd.CategoricalDtype) else str(dtype)


class _DaskBatches(Batches):
    """A Dask DataFrame: sums are made where its partitions are, and added in their order."""

    def __init__(self, frame: Any, batch_rows: int) -> None:
        self.frame, self.batch_rows = frame, batch_rows
        self.columns = tuple(map(str, frame.columns))
        self.sizes = tuple(int(size) for size in self._map(len))

    def _map(self, function: Callable[[pd.DataFrame], Any]) -> list[Any]:
        """Return what a function makes of each partition, in their order."""
        read = self.frame[list(self.columns)] if self.columns else self.frame
        return list(read.map_partitions(_boxed, function, meta=(None, object)).compute(optimize_graph=True))

    def _identity(self) -> object:
        return self.frame._name, self.sizes

    def _frames(self, part: int) -> Iterator[pd.DataFrame]:
        yield self.frame[list(self.columns)].get_partition(part).compute()

    def _distinct(self) -> dict[str, tuple[list[Any] | None, set[Any]]]:
        found: dict[str, tuple[list[Any] | None, set[Any]]] = {}
        for each in self._map(_distinct_values):
            for name, (declared, values) in each.items():
                known, distinct = found.get(name, (declared, set()))
                found[name] = known, distinct | values
        return found

    def total(self, function: Callable[[pd.DataFrame], Sums]) -> Sums:
        """Return the sum of what a function makes of each frame, made by ``map_partitions``."""
        import dask.dataframe as dd

        firsts = np.cumsum([0, *self.sizes])[:-1].tolist()
        work = _PartTotal(function, self.levels, self.columns, self.batch_rows)
        numbers = dd.from_map(_first_row, firsts, meta=pd.DataFrame({"first": pd.Series(dtype=np.int64)}))  # type: ignore[no-untyped-call]
        read = self.frame[list(self.columns)]
        parts = read.map_partitions(work, numbers, meta=(None, object), align_dataframes=False).compute()
        found: Any = None
        for each in parts:
            found = add_sums(found, each)
        return found  # type: ignore[no-any-return]


def _boxed(frame: pd.DataFrame, function: Callable[[pd.DataFrame], Any]) -> pd.Series[Any]:
    return pd.Series([function(frame)], dtype=object)


def _first_row(first: int) -> pd.DataFrame:
    return pd.DataFrame({"first": [first]})


def _distinct_values(frame: pd.DataFrame) -> dict[str, tuple[list[Any] | None, set[Any]]]:
    found: dict[str, tuple[list[Any] | None, set[Any]]] = {}
    for name in frame.columns:
        if is_categorical(frame[name]):
            _join_levels(found, str(name), frame[name], declared=True)
    return found


@dataclass(frozen=True)
class _PartTotal:
    """The sum over the frames of one partition, as a worker makes it."""

    function: Callable[[pd.DataFrame], Any]
    levels: Mapping[str, pd.CategoricalDtype]
    columns: tuple[str, ...]
    batch_rows: int

    def __call__(self, frame: pd.DataFrame, number: pd.DataFrame) -> pd.Series[Any]:
        own = _FrameBatches([frame], self.batch_rows) if len(frame) else None
        found: Any = None
        if own is not None:
            own.columns = self.columns
            own.__dict__["levels"] = dict(self.levels)
            for start in range(0, len(frame), self.batch_rows):
                piece = frame.iloc[start : start + self.batch_rows]
                found = add_sums(found, self.function(own.typed(piece, int(number["first"].iloc[0]) + start)))
        return pd.Series([found], dtype=object)


# -- sums -------------------------------------------------------------------------------------------------------------


def add_sums(one: Any, other: Any) -> Any:
    """Return the sum of two results of one function: of numbers or arrays, item by item in tuples and dictionaries."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, tuple):
        return tuple(add_sums(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return {key: add_sums(one.get(key), other.get(key)) for key in {**one, **other}}
    return one + other


@dataclass(frozen=True)
class Largest:
    """A number of which the sum is the largest."""

    value: float

    def __add__(self, other: Largest) -> Largest:
        return Largest(max(self.value, other.value))


@dataclass(frozen=True)
class Moments:
    """The weight, mean and squared deviations of columns of numbers (p,), which add up over rows.

    >>> one, other = (Moments.of(np.array(rows), np.ones(2)) for rows in ([[1.0], [3.0]], [[5.0], [7.0]]))
    >>> (one + other).mean, (one + other).variance
    (array([4.]), array([5.]))
    """

    weight: float
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, numbers: NDArray[np.float64], weight: NDArray[np.float64]) -> Moments:
        """Return the moments of rows (n, p) with weights (n,)."""
        total = float(weight.sum())
        if not total > 0.0:
            return cls(0.0, np.zeros(numbers.shape[1]), np.zeros(numbers.shape[1]))
        mean = weight @ numbers / total
        return cls(total, mean, weight @ (numbers - mean) ** 2)

    def __add__(self, other: Moments) -> Moments:
        total = self.weight + other.weight
        if not total > 0.0:
            return self
        gap, share = other.mean - self.mean, other.weight / total
        return Moments(total, self.mean + share * gap, self.squares + other.squares + self.weight * share * gap**2)

    @property
    def variance(self) -> NDArray[np.float64]:
        """The variances (p,)."""
        return self.squares / self.weight


def batch_weight(frame: pd.DataFrame, name: str | None) -> NDArray[np.float64]:
    """Return the weights of the rows of a frame (n,): a column of it, or ones."""
    if name is None:
        return np.ones(len(frame))
    weight = frame[name].to_numpy(dtype=np.float64)
    wrong = ~(np.isfinite(weight) & (weight >= 0.0))
    if wrong.any():
        raise DataError(
            f"The weights {name!r} must be finite and not negative; row {frame.index[int(np.argmax(wrong))]} has "
            f"{weight[wrong][0]}."
        )
    return np.asarray(weight)
