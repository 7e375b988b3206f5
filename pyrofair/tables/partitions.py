"""Tables larger than memory: partitions that are read one by one, or where Dask has them, and samples of their rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._progress import progress_bar
from pyrofair._random import seed_from, stream_of
from pyrofair._validation import require_integer, require_names, require_path, require_seed, shown
from pyrofair.exceptions import DataError
from pyrofair.tables.labels import as_levels
from pyrofair.tables.reading import INDEX, as_arrow, as_pandas, from_arrow, read_table

__all__ = ["Partitions", "is_partitions", "require_table", "sample_rows"]

CHANGED = "All passes must give the same rows in the same order."


@dataclass(frozen=True)
class Partitions:
    """Rows in several frames of a fixed order, loaded anew in each pass: their columns, sizes, and levels of all."""

    loads: Iterable[Any]
    columns: tuple[str, ...]
    dask: bool = False
    sizes: tuple[int, ...] = ()
    levels: Mapping[str, pd.CategoricalDtype] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Any, columns: Iterable[str] | None, optional: Iterable[str] = ()) -> Partitions:
        """Open data and count their rows, in one pass; each of ``columns`` is required (None: all there are)."""
        found = _open(data)
        if columns is not None:
            wanted = {*columns, *(name for name in optional if name in found.columns)}
            read_table(pd.DataFrame([[0] * len(found.columns)], columns=found.columns), [*wanted], what="The data")
            found = replace(found, columns=tuple(name for name in found.columns if name in wanted))
        if found.dask:
            found = replace(found, loads=data[[*found.columns]].to_delayed())
        sizes, types = zip(*found.map(_describe), strict=True)
        if not any(sizes):
            raise DataError("The data have no rows: found 0 sample(s), while a minimum of 1 is required.")
        return replace(found, sizes=sizes, levels=_join_types(types))

    def map(self, function: Callable[[int, pd.DataFrame], Any]) -> Iterable[Any]:
        """Apply a function to the number and frame of each partition; it may be applied again, as to lost work."""
        work, apply = enumerate(self.loads), partial(_apply, function, self.columns, self.levels, self.sizes)
        if not self.dask:
            return _each(progress_bar("partitions", work, total=len(self.sizes) or None), apply, len(self.sizes))
        dask: Any = import_module("dask")
        shared, call = dask.delayed(apply, pure=False), dask.delayed(operator.call)
        return list(dask.compute(*(call(shared, number, load) for number, load in work)))


def is_partitions(data: object) -> bool:
    """Whether data are no table: a path, a dataset of pyarrow, a Dask DataFrame, or something that gives frames."""
    if isinstance(data, pd.DataFrame) or as_arrow(data) is not None:
        return False
    if isinstance(data, str | Path) or hasattr(data, "to_delayed") or hasattr(data, "get_fragments"):
        return True
    return isinstance(data, Iterable) and not (isinstance(data, Mapping | bytes) or hasattr(data, "dtype"))


def require_table(df: object, what: str) -> None:
    """Refuse a table in partitions where rows in memory are needed."""
    if is_partitions(df):
        raise DataError(
            f"{what} needs a table in memory, and df={shown(df)} is read in parts. Draw rows first: "
            "pf.sample_rows(data, columns, n)."
        )


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
    if columns is not None and not require_names("columns", columns, "column names"):
        raise DataError("columns=[] names no column; None reads all of them.")
    parts = Partitions.of(data if is_partitions(data) else [data], columns)
    firsts = np.cumsum([0, *parts.sizes])
    if n > firsts[-1]:
        raise DataError(f"n={n:,} rows were asked for, and the data have {firsts[-1]:,}.")
    chosen = stream_of(seed_from(random_state)).choice(firsts[-1], n, replace=False, shuffle=False)
    frames: list[pd.DataFrame] = [*parts.map(partial(_take, np.sort(chosen), firsts))]
    return pd.concat(frames)


def _take(chosen: NDArray[np.int64], firsts: NDArray[np.int64], number: int, frame: pd.DataFrame) -> pd.DataFrame:
    own = chosen[slice(*np.searchsorted(chosen, firsts[number : number + 2]))]
    found: pd.DataFrame = frame.iloc[own - firsts[number]].set_axis(pd.Index(own))
    return found


def _open(data: Any) -> Partitions:
    if hasattr(data, "to_delayed"):
        return Partitions((), tuple(data.columns), dask=True)
    if isinstance(data, str | Path):
        import pyarrow as pa
        import pyarrow.dataset

        require_path("data", data, "the path of a Parquet file, or of a folder of such files")
        try:
            data = pyarrow.dataset.dataset(data, partitioning="hive")
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{str(data)!r} is no Parquet file, nor a folder of such files: {error}") from error
    if hasattr(data, "get_fragments"):
        groups = [group for fragment in data.get_fragments() for group in fragment.split_by_row_group()]
        names = tuple(name for name in data.schema.names if not name.startswith(INDEX))
        return Partitions([partial(_load, group, data.schema) for group in groups], names)
    if isinstance(data, Iterator):
        raise DataError(
            f"{shown(data)} is an iterator, which can be read once, and several passes are needed. Give a list of "
            "frames, or an object whose __iter__ starts anew each time."
        )
    return Partitions(data, tuple(_frame(0, next(iter(data), None)).columns))


def _load(group: Any, schema: Any, columns: Sequence[str]) -> pd.DataFrame:
    """Return columns of a group of rows; those that are names of folders belong to the schema of all."""
    import pyarrow as pa

    try:
        return from_arrow(group.to_table(columns=[*columns], schema=schema))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{getattr(group, 'path', 'A part of the data')!r} cannot be read: {error}") from error


def _frame(number: int, given: Any) -> pd.DataFrame:
    frame = as_pandas(given)
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"Partition {number} is {shown(given)}; expected a DataFrame.")
    return frame


def _apply(
    function: Callable[[int, pd.DataFrame], Any],
    columns: Sequence[str],
    levels: Mapping[str, pd.CategoricalDtype],
    sizes: Sequence[int],
    number: int,
    load: Any,
) -> Any:
    frame = load(columns) if callable(load) else _frame(number, load)
    if absent := [name for name in columns if name not in frame.columns]:
        have = ", ".join(map(str, frame))
        raise DataError(f"Partition {number} lacks the column {absent[0]!r} of others; it has: {have}.")
    if sizes and (number >= len(sizes) or len(frame) != sizes[number]):
        raise DataError(f"Partition {number} has {len(frame)} row(s) in this pass and had others before. {CHANGED}")
    known = {name: of for name, of in levels.items() if name in columns}
    return function(number, frame[[*columns]].reset_index(drop=True).astype(known))


def _each(work: Iterable[tuple[int, Any]], apply: Callable[[int, Any], Any], known: int) -> Iterator[Any]:
    """Yield what each partition gives; a DataError where a later pass has fewer of them."""
    count = 0
    for number, load in work:
        yield apply(number, load)
        count += 1
    if count < known:
        raise DataError(f"The data have {count} partition(s) in this pass, and had {known} before. {CHANGED}")


def _describe(number: int, frame: pd.DataFrame) -> tuple[int, dict[str, Any]]:
    """Return the number of rows, and the type of each column if there are any."""
    return len(frame), {str(name): dtype for name, dtype in frame.dtypes.items()} if len(frame) else {}


def _join_types(found: Sequence[dict[str, Any]]) -> dict[str, pd.CategoricalDtype]:
    """Return the type of each column of categories, with the levels of all; a DataError where other types differ."""
    joined, own = {}, {number: types for number, types in enumerate(found) if types}
    first, known = next(iter(own.items()))
    for name, of in known.items():
        types = {number: each[name] for number, each in own.items()}
        plain = all(isinstance(each, pd.CategoricalDtype) and not each.ordered for each in types.values())
        if other := next((i for i, each in types.items() if each != of and not plain), None):
            raise DataError(
                f"The column {name!r} has the type {types[other]} in partition {other}, and {of} in partition {first}. "
                "Give all partitions the same types."
            )
        if plain and any(each != of for each in types.values()):
            values = pd.Series([value for each in types.values() for value in each.categories]).drop_duplicates()
            joined[name] = pd.CategoricalDtype(as_levels(values))
        elif isinstance(of, pd.CategoricalDtype):
            joined[name] = of
    return joined
