"""Tables larger than memory: partitions that are read one by one, or where Dask has them, and samples of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._random import seed_from
from pyrofair._validation import did_you_mean, require_integer, require_seed, shown
from pyrofair.exceptions import DataError
from pyrofair.tables.labels import as_levels
from pyrofair.tables.reading import as_arrow, as_pandas

__all__ = ["Partitions", "is_partitions", "sample_rows"]

Types = dict[str, Any]


@dataclass(frozen=True)
class Partitions:
    """The rows of one population in frames, or functions that load them, of a fixed order, read in several passes.

    ``columns`` are those that are read, and ``sizes`` the rows of each partition. ``levels`` is the type of each column
    of categories, with the levels of all partitions.
    """

    loads: Iterable[Any]
    columns: tuple[str, ...]
    dask: bool = False
    sizes: tuple[int, ...] = ()
    levels: Mapping[str, pd.CategoricalDtype] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Any, columns: Iterable[str] | None, optional: Iterable[str] = ()) -> Partitions:
        """Open data, and count its rows in one pass; ``columns`` are those to be read (None: all), each required.

        A DataError if the data cannot be read several times, a column lacks or has another type in some partition, or
        there is no row.
        """
        found = _open(data)
        if columns is not None:
            wanted = dict.fromkeys([*columns, *(name for name in optional if name in found.columns)])
            if absent := [name for name in wanted if name not in found.columns]:
                raise DataError(
                    f"The data lack the column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}. They have: "
                    f"{', '.join(map(str, found.columns))}.{did_you_mean(absent[0], found.columns)}"
                )
            found = replace(found, columns=tuple(name for name in found.columns if name in wanted))
        if found.dask:
            found = replace(found, loads=data[list(found.columns)].to_delayed())
        sizes, types = zip(*found.map(_describe), strict=True)
        if not any(sizes):
            raise DataError("The data have no rows: found 0 sample(s), while a minimum of 1 is required.")
        return replace(found, sizes=sizes, levels=_join_types(types))

    def map(self, function: Callable[[int, pd.DataFrame], Any]) -> Iterable[Any]:
        """Apply a function to the number and frame of each partition; it may be applied again, as to lost work."""
        work, read = enumerate(self.loads), partial(_apply, function, self.columns, self.levels)
        if not self.dask:
            return (read(number, load) for number, load in work)
        import dask

        shared = dask.delayed(read, pure=False)
        return list(dask.compute(*(dask.delayed(_call)(shared, number, load) for number, load in work)))


def is_partitions(data: object) -> bool:
    """Whether data are no table: a path, a dataset of pyarrow, a Dask DataFrame, or something that gives frames."""
    if isinstance(data, pd.DataFrame) or as_arrow(data) is not None:
        return False
    if isinstance(data, str | Path) or hasattr(data, "to_delayed") or hasattr(data, "get_fragments"):
        return True
    return isinstance(data, Iterable) and not (isinstance(data, Mapping | bytes) or hasattr(data, "dtype"))


def sample_rows(
    data: Any, columns: Sequence[str] | None, n: int, random_state: int | np.random.Generator | None = None
) -> pd.DataFrame:
    """Return rows of a large table, drawn at random without replacement, in their order.

    Training, ``graph.check``, ``GComputation`` and all else that needs rows in memory take the result.

    Parameters
    ----------
    data
        A path of Parquet files, a pyarrow dataset, a Dask DataFrame, or frames that can be iterated again and again;
        it is read twice. A table in memory serves too.
    columns
        The columns to read; None for all.
    n
        The number of rows.
    random_state
        Seeds the draw.

    Returns
    -------
    DataFrame
        n rows; the index is the number of each among all rows.

    Raises
    ------
    DataError
        If the data have fewer rows, cannot be read twice, or differ in columns or types between partitions.

    Examples
    --------
    >>> frames = [pd.DataFrame({"A": [0, 1], "x": [1.0, 2.0]}), pd.DataFrame({"A": [1], "x": [3.0]})]
    >>> sample_rows(frames, ["x"], 2, random_state=0)["x"].tolist()
    [2.0, 3.0]
    """
    require_integer("n", n)
    require_seed(random_state)
    parts = Partitions.of(data if is_partitions(data) else [data], columns)
    total = sum(parts.sizes)
    if n > total:
        raise DataError(f"n={n:,} rows were asked for, and the data have {total:,}.")
    chosen = np.random.default_rng(seed_from(random_state)).choice(total, n, replace=False, shuffle=False)
    firsts = np.cumsum([0, *parts.sizes])
    return pd.concat([*parts.map(partial(_take, np.sort(chosen), firsts))])


def _take(chosen: NDArray[np.int64], firsts: NDArray[np.int64], number: int, frame: pd.DataFrame) -> pd.DataFrame:
    own = chosen[slice(*np.searchsorted(chosen, firsts[number : number + 2]))]
    return frame.iloc[own - firsts[number]].set_axis(pd.Index(own))


def _open(data: Any) -> Partitions:
    if hasattr(data, "to_delayed"):
        return Partitions(data.to_delayed(), tuple(map(str, data.columns)), dask=True)
    if isinstance(data, str | Path):
        data = _dataset(Path(data))
    if hasattr(data, "get_fragments"):
        groups = [group for fragment in data.get_fragments() for group in fragment.split_by_row_group()]
        names = tuple(name for name in data.schema.names if not name.startswith("__index_level"))
        return Partitions([_Group(group, data.schema) for group in groups], names)
    if isinstance(data, Iterator):
        raise DataError(
            f"{shown(data)} is an iterator, which can be read once, and several passes are needed. Give a list of "
            "frames, or an object whose __iter__ starts anew each time."
        )
    first = next(iter(data), None)
    if first is None:
        raise DataError("The data hold no frame: found 0 sample(s), while a minimum of 1 is required.")
    return Partitions(data, tuple(map(str, _frame(0, first).columns)))


def _dataset(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.dataset

    try:
        return pyarrow.dataset.dataset(path, partitioning="hive")
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{str(path)!r} is no Parquet file, nor a folder of such files: {error}") from error


@dataclass(frozen=True)
class _Group:
    """A group of rows of a Parquet file, which loads some columns."""

    group: Any
    schema: Any

    def load(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return the columns; those that are names of folders belong to the schema of the whole."""
        found = self.group.to_table(columns=list(columns), schema=self.schema).to_pandas()
        return pd.DataFrame(found)


def _frame(number: int, given: Any) -> pd.DataFrame:
    frame = as_pandas(given)
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"Partition {number} is {shown(given)}; expected a DataFrame.")
    return frame


def _apply(
    function: Callable[[int, pd.DataFrame], Any], columns: Sequence[str], levels: Types, number: int, load: Any
) -> Any:
    frame = load.load(columns) if isinstance(load, _Group) else _frame(number, load)
    if absent := [name for name in columns if name not in frame.columns]:
        raise DataError(
            f"Partition {number} lacks the column {absent[0]!r}, which other partitions have. It has: "
            f"{', '.join(map(str, frame.columns))}. Give all the same columns."
        )
    return function(number, frame[list(columns)].reset_index(drop=True).astype(dict(levels)))


def _call(function: Callable[[int, Any], Any], number: int, load: Any) -> Any:
    return function(number, load)


def _describe(number: int, frame: pd.DataFrame) -> tuple[int, Types]:
    """Return the number of rows, and the type of each column if there are any."""
    return len(frame), {str(name): dtype for name, dtype in frame.dtypes.items()} if len(frame) else {}


def _join_types(found: Sequence[Types]) -> dict[str, pd.CategoricalDtype]:
    """Return the type of each column of categories, with the levels of all; a DataError where other types differ."""
    joined: dict[str, pd.CategoricalDtype] = {}
    for name in next(types for types in found if types):
        own = [(number, types[name]) for number, types in enumerate(found) if types]
        (first, known), *rest = own
        if other := next(((i, each) for i, each in rest if not _alike(each, known)), None):
            raise DataError(
                f"The column {name!r} has the type {other[1]} in partition {other[0]}, and {known} in partition "
                f"{first}. Give all partitions the same types."
            )
        if isinstance(known, pd.CategoricalDtype):
            same = all(each == known for _, each in own)
            values = pd.Series([value for _, each in own for value in each.categories]).drop_duplicates()
            joined[name] = known if same else pd.CategoricalDtype(as_levels(values))
    return joined


def _alike(one: Any, other: Any) -> bool:
    """Whether two types are one, or both of unordered categories, whose levels may differ."""
    both = isinstance(one, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype)
    return bool(one == other or (both and not (one.ordered or other.ordered)))
