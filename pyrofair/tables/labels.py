"""Column types, and labels of a table as the codes of a program or a classifier and back.

The type of a column is its measurement scale. A *level* is a value that a column of categories can take, a *label* the
level as a table writes it, and a *code* its index 0, 1, ... among the levels of the column.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_object_dtype

from pyrofair._validation import did_you_mean, listed, nearest, plain_value, require_unmasked, shown, text_fault
from pyrofair.exceptions import DataError, PyrofairWarning

if TYPE_CHECKING:
    from pyrofair.graph.causal_graph import CausalGraph

__all__ = [
    "MAX_INTEGER",
    "ColumnType",
    "Levels",
    "as_column",
    "as_levels",
    "code_labels",
    "codes_of",
    "codes_of_do",
    "codes_of_rows",
    "column_type",
    "columns_of_sites",
    "encode_levels",
    "is_categorical",
    "labels_of",
    "levels_by_column",
    "moments",
    "observed_levels",
    "outcome_levels",
    "plain_values",
    "quantile_bands",
    "read_contrasts",
    "read_levels",
    "read_outcome",
    "read_sensitive",
    "repeat_label",
    "require_do",
    "require_few_levels",
    "show_counts",
    "show_labels",
    "sort_labels",
    "span_of",
]

ColumnType = Literal["binary", "categorical", "integer", "positive", "continuous"]

MAX_INTEGER = 1_000_000
"""Integers up to this size count; in single precision the halves between them are exact."""
LEAST_RATIO = 0.1
"""Positive numbers vary on a logarithmic scale if their standard deviation is at least this share of their mean."""
FEW_LEVELS = 20
"""Up to so many categories may have few rows each."""
STEPS = 8
"""The least standard deviation, in steps of the precision at the largest value."""
LARGEST, FARTHEST = 1e37, 1e15
"""Beyond these sizes of a value and of a standard deviation, or of one over it, densities overflow."""


def is_categorical(values: pd.Series[Any]) -> bool:
    """Whether a column holds categories (categorical, text or object) rather than numbers."""
    dtype = values.dtype
    return isinstance(dtype, pd.CategoricalDtype) or is_object_dtype(dtype) or is_text(dtype)


def is_text(dtype: object) -> bool:
    """Whether a pandas type is one of text: ``str``, ``string`` in any storage, or a string type of Arrow."""
    return isinstance(dtype, pd.StringDtype) or (isinstance(dtype, pd.ArrowDtype) and dtype.type is str)


def column_type(values: pd.Series[Any], shares: NDArray[np.float64], most_levels: int) -> ColumnType:
    """Return the type of a column (n,) with the weight of each value (n,), sum 1.

    Up to ``most_levels`` different integers are categories. A DataError if most rows have a category of their own, or a
    program's precision is too low for the numbers.
    """
    if is_categorical(values):
        name, count = values.name, values.nunique()
        if count > FEW_LEVELS and 2 * count > len(values):
            raise DataError(
                f"The column {name!r} holds {count} different categories in {len(values)} rows, such as "
                f"{show_labels(values.unique(), 3)}: most occur in one row, which carries no information on others. "
                "Join categories, leave an identifier out of the graph, or make numbers of text that holds them: "
                f"pd.to_numeric(df[{name!r}])."
            )
        return "categorical"
    numbers = values.to_numpy(dtype=np.float64)
    known = np.unique(numbers)
    if is_bool_dtype(values.dtype) or set(known) == {0.0, 1.0}:
        return "binary"
    integer, largest = bool((known == np.round(known)).all()), float(np.abs(known).max())
    if len(known) <= 2 or (integer and len(known) <= most_levels):
        return "categorical"
    if integer and largest <= MAX_INTEGER:
        return "integer"
    mean, sd = moments(numbers / largest, shares)
    positive = bool((known > 0.0).all()) and sd >= LEAST_RATIO * mean
    _require_resolved(values, largest, positive=positive)
    return "positive" if positive else "continuous"


def moments(numbers: NDArray[np.float64], shares: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is 1 where it would be 0."""
    mean = float(shares @ numbers)
    return mean, float(np.sqrt(shares @ (numbers - mean) ** 2)) or 1.0


def _require_resolved(values: pd.Series[Any], largest: float, *, positive: bool) -> None:
    """Refuse numbers that overflow, or differ by little more than the precision of a program."""
    import torch  # which other readers of columns do without

    name, numbers = values.name, values.to_numpy(dtype=np.float64)
    spread = float(numbers.std()) if largest < LARGEST else np.inf
    if largest >= LARGEST or not (positive or 1.0 / FARTHEST < spread < FARTHEST):
        raise DataError(
            f"The column {name!r} holds numbers up to {largest:g} in size, whose densities a program cannot compute. "
            f"Give it in another unit: df[{name!r}] / {10.0 ** np.round(np.log10(largest)):g}."
        )
    step = torch.finfo(torch.get_default_dtype()).eps * largest
    if spread < STEPS * step:
        raise DataError(
            f"The column {name!r} holds numbers around {numbers.mean():g} with a standard deviation of {spread:g}, and "
            f"a program's numbers lie up to {step:g} apart there. Subtract an offset: df[{name!r}] - "
            f"df[{name!r}].mean()."
        )


Levels = Mapping[str, NDArray[Any]]
"""For some node sites, whose values are codes 0, 1, ..., the label of each code, shape (k,)."""
SHOWN = 10
MOST_COUNTED = 12
MOST_CONTRASTS = 20
"""The most levels of a sensitive attribute that are compared with a baseline."""


def show_labels(values: Iterable[Any], most: int = 5) -> str:
    """Write values as text, those of NumPy as Python's."""
    return ", ".join(map(repr, plain_values([*values][:most])))


def plain_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return values with NumPy's numbers and texts as Python's."""
    return tuple(map(plain_value, values))


def read_sensitive(
    df: pd.DataFrame, graph: CausalGraph, *, both: bool = True, weight: NDArray[np.float64] | None = None
) -> NDArray[np.int8]:
    """Return the sensitive attribute as 0 (baseline) and 1 (contrast), (n,); ``both`` must have rows of a weight."""
    name = graph.require_contrast().sensitive_column
    values = df[name]
    _require_known(values)
    coded = _code(values, [graph.baseline, graph.contrast])
    if (coded < 0).any():
        require_few_levels(values)
        labels = {"baseline": graph.baseline, "contrast": graph.contrast}
        never = [role for value, role in enumerate(labels) if not (coded == value).any()]
        counted = plain_values(values.value_counts().index)
        base = counted[0] if "baseline" in never else graph.baseline
        rest = [each for each in counted if each != base]
        both_named = f"baseline={base!r}, contrast={(graph.contrast if graph.contrast in rest else [*rest, None][0])!r}"
        cure = f"Name both when making the graph: CausalGraph(..., {both_named})."
        if len(rest) > 1:
            cure = (
                "To compare each with one of them, name that one alone when making the graph: CausalGraph(..., "
                f"baseline={base!r}{', contrast=None' * (base == 0)}); pf.audit then reports all, and "
                f"pf.Contrasts(source) trains with all. To compare two, name both, {both_named}, and keep their rows."
            )
        raise DataError(
            f"The sensitive attribute {name!r} holds {show_labels(values[coded < 0].unique())} besides "
            f"baseline={graph.baseline!r} and contrast={graph.contrast!r}"
            f"{', and never the ' + ' or the '.join(never) if never else ''}. Its levels: {show_counts(values)}. {cure}"
            f"{did_you_mean(labels[never[0]], values[coded < 0].unique()) if never else ''}"
        )
    for label, own in ((graph.label(value), coded == value) for value in (0, 1) if both):
        fact = f"The sensitive attribute {name!r} never takes the value {label!r} in these {len(coded)} rows"
        if own.any():
            fact = f"sample_weight is 0 in all rows with {name}={label!r}"
        if not (own.any() if weight is None else weight[own].any()):
            raise DataError(f"{fact}; both groups are needed to compare them.")
    return coded


def show_counts(values: pd.Series[Any]) -> str:
    """Write the values of a column with their numbers of rows, the most frequent first."""
    counts = values.value_counts().loc[lambda each: each > 0]
    shown = ", ".join(f"{value!r} ({count:,} rows)" for value, count in counts.iloc[:MOST_COUNTED].items())
    return shown + f", and {len(counts) - MOST_COUNTED:,} more" * (len(counts) > MOST_COUNTED)


def _require_known(values: pd.Series[Any]) -> None:
    """Refuse a sensitive attribute that is missing in some rows."""
    if gaps := int(values.isna().sum()):
        raise DataError(
            f"The sensitive attribute {values.name!r} is missing in {gaps:,} of {len(values):,} rows. Which group they "
            "belong to is not known, so drop them before."
        )


def observed_levels(values: pd.Series[Any]) -> list[Any]:
    """Return the levels of a column (n,) that occur, in the order of its categories, as Python's values."""
    return [each for each in plain_values(as_levels(values)) if bool(np.asarray(values == each, dtype=bool).any())]


def require_few_levels(values: pd.Series[Any]) -> None:
    """Refuse a sensitive attribute (n,) that is continuous or has more than 20 levels."""
    name, found = values.name, values.unique()
    fractions = values.dtype.kind == "f" and bool((found != np.round(found)).any())
    if fractions or len(found) > MOST_CONTRASTS:
        span, cure = "categories", f"Join levels: df[{name!r}].replace({{...}})"
        if not is_categorical(values):
            span = f"numbers, from {min(found)} to {max(found)}"
            cure = f"Bin it, at limits that mean something: df[{name!r}] = pd.cut(df[{name!r}], [...], labels=[...])"
        raise DataError(
            f"The sensitive attribute {name!r} holds {len(found):,} different {span}, and at most {MOST_CONTRASTS} "
            f"levels are compared with a baseline. {cure}, and make the graph with baseline= one of the labels."
        )


def read_contrasts(
    values: pd.Series[Any], graph: CausalGraph, contrasts: Iterable[Hashable] | None = None
) -> list[Hashable]:
    """Return the levels that are compared with the baseline, as given or all others; unfit ones are a DataError."""
    _require_known(values)
    name = values.name
    require_few_levels(values)
    levels = observed_levels(values)
    if graph.baseline not in levels:
        raise DataError(
            f"The sensitive attribute {name!r} never takes the baseline {graph.baseline!r}; it holds "
            f"{show_counts(values)}. Name one of these when making the graph: CausalGraph(..., "
            f"baseline={(nearest(graph.baseline, levels) or values.mode()[0])!r})."
        )
    others = [each for each in levels if each != graph.baseline]
    if not others:
        raise DataError(f"The sensitive attribute {name!r} is always {graph.baseline!r}; there is nothing to compare.")
    if contrasts is None:
        return others
    asked = None if isinstance(contrasts, str | bytes | Mapping) else listed(contrasts)
    if asked is None:
        raise DataError(f"contrasts={shown(contrasts)} must list levels of {name!r}, as {others[:1]!r}, or be None.")
    for each in asked:
        if not isinstance(each, Hashable) or each not in others:
            same = "is the baseline" if isinstance(each, Hashable) and each == graph.baseline else "is not observed"
            raise DataError(
                f"contrasts names {shown(each)}, which {same}. Besides the baseline {graph.baseline!r}, {name!r} holds "
                f"{show_labels(others, MOST_CONTRASTS)}.{did_you_mean(each, others) if isinstance(each, str) else ''}"
            )
    if not asked or len(set(asked)) < len(asked):
        raise DataError(f"contrasts={shown(contrasts)} must name at least one level, and each once.")
    return [*asked]


def read_outcome(y: object, positive: Hashable, *, what: str = "the outcome") -> tuple[NDArray[np.int8], list[Any]]:
    """Return the outcome as 0 and 1 (n,), and its two labels, negative first; other outcomes are a DataError."""
    require_unmasked(what, y)
    values = pd.Series(np.asarray(y) if not isinstance(y, pd.Series) else y)
    if values.isna().any():
        raise DataError(f"{what} has missing values (NaN); drop these rows before.")
    labels = list(values.unique())
    if fault := text_fault(labels):
        raise DataError(f"{what} has classes that cannot be told apart: {fault}. Make one of them.")
    if len(labels) > 2:
        raise DataError(f"{what} must be binary, but holds {len(labels)} classes: {show_labels(labels)}.")
    if positive not in labels:
        raise DataError(
            f"{what} never takes the positive value {positive!r}; it holds {show_labels(labels)}. Name it when making "
            f"the graph: {' or '.join(f'CausalGraph(..., positive={each!r})' for each in labels)}."
            f"{did_you_mean(positive, labels)}"
        )
    if len(labels) < 2:
        raise DataError(f"{what} has one class only, {show_labels(labels)}; a classifier needs both.")
    negative = next(label for label in labels if label != positive)
    return _code(values, [negative, positive]), [negative, positive]


def _code(values: pd.Series[Any], labels: Sequence[Any]) -> NDArray[np.int8]:
    """Return the index of each value among labels, compared by equality, shape (n,); -1 for any other value."""
    coded = np.full(len(values), -1, dtype=np.int8)
    for i, label in enumerate(labels):
        own = np.asarray(values == label, dtype=bool)
        if (coded[own] >= 0).any():
            raise DataError(
                f"The labels {show_labels(labels)} are the same number in the type {values.dtype} of {values.name!r}, "
                "so that their rows cannot be distinguished. Use short labels, such as 0 and 1."
            )
        coded[own] = i
    return coded


def code_labels(
    table: pd.DataFrame, graph: CausalGraph, *, both: bool = True
) -> tuple[pd.DataFrame, tuple[Hashable, ...] | None]:
    """Return a table with the sensitive attribute and the outcome as 0 and 1, and the outcome's labels if others."""
    coded, labels = table.copy(), None
    if graph.sensitive_column in table:
        coded[graph.sensitive_column] = read_sensitive(table, graph, both=both)
    if graph.outcome_column in table:
        numbers, found = read_outcome(table[graph.outcome_column], graph.positive, what="The outcome")
        coded[graph.outcome_column] = numbers
        labels = None if (plain := plain_values(found)) == (0, 1) else plain
    return coded, labels


def sort_labels(values: NDArray[Any], labels: Sequence[Any]) -> NDArray[Any]:
    """Return the two labels of an outcome (n,) in order and in its type, as scikit-learn's ``classes_``."""
    try:
        return np.asarray(np.unique(values))
    except TypeError as error:
        raise DataError(f"y mixes labels of two types, {labels[0]!r} and {labels[1]!r}; use one type.") from error


def repeat_label(values: pd.Series[Any], label: Hashable, index: pd.Index[Any]) -> pd.Series[Any]:
    """Return a label on an index, in the type that it has in a column which holds it."""
    first = int(np.argmax(np.asarray(values == label, dtype=bool)))
    return values.iloc[np.full(len(index), first)].set_axis(index)


def quantile_bands(values: pd.Series[Any], bands: int) -> pd.Series[Any]:
    """Return numbers as categories, bands of about equally many rows; fewer where many rows have one number."""
    cut = pd.qcut(values, bands, duplicates="drop").cat.remove_unused_categories()
    ends = values.groupby(cut, observed=True).agg(["min", "max"])
    return cut.cat.rename_categories([f"{low:.15g} to {high:.15g}" for low, high in ends.to_numpy()])


def as_levels(values: pd.Series[Any]) -> pd.Index[Any]:
    """Return the declared categories of a column, or its distinct values in order, as :func:`encode_levels` reads."""
    found: Any
    if isinstance(values.dtype, pd.CategoricalDtype):
        found = values.cat.categories
    elif is_categorical(values):
        found = sorted(values.unique(), key=lambda value: (str(type(value)), value))
    else:
        found = np.unique(values.to_numpy())
    levels: pd.Index[Any] = pd.Index(found)
    return levels


def encode_levels(values: pd.Series[Any], levels: pd.Index[Any]) -> NDArray[np.int64]:
    """Return the code of each value, shape (n,): its index among the levels; an unknown value is a DataError."""
    if isinstance(values.dtype, pd.CategoricalDtype):  # as many look-ups as there are categories
        own = np.append(levels.get_indexer(values.cat.categories), -1)
        codes = own[values.cat.codes.to_numpy()].astype(np.int64)
    else:
        codes = levels.get_indexer(pd.Index(values)).astype(np.int64)
    if (codes < 0).any():
        raise DataError(
            f"The column {values.name!r} holds {show_labels(values[codes < 0].unique())}, not seen in fit. Known: "
            f"{show_labels(levels, 20)}. Leave out or recode these rows, fit on rows with this level, or declare it "
            f"before fitting: df[{values.name!r}].astype(pd.CategoricalDtype([...]))."
            f"{did_you_mean(values[codes < 0].iloc[0], levels)}"
        )
    return codes


def as_column(name: str, values: NDArray[Any], dtype: Any) -> pd.Series[Any]:
    """Return numbers or labels (n,) in the pandas type of a column; numbers that it cannot hold stay as they are.

    The index is 0 to n - 1, and memory is shared with the values where their type is that of the column. Values that
    are no level of a type of categories, and numbers for a type of text, are a DataError.
    """
    numbers, advice = values.dtype.kind in "fiub", f"If it is a code, name the labels: levels={{{name!r}: [...]}}."
    if isinstance(dtype, pd.CategoricalDtype):
        codes = dtype.categories.get_indexer(pd.Index(values))
        if (codes < 0).any():
            raise DataError(
                f"The column {name!r} has the categories {show_labels(dtype.categories, 20)}, and a world takes the "
                f"value {show_labels(values[codes < 0], 1)}. {advice}"
            )
        return pd.Series(pd.Categorical.from_codes(codes, dtype=dtype))
    if is_text(dtype) or is_object_dtype(dtype):
        if numbers:
            raise DataError(f"The column {name!r} holds text, and a world takes the value {values[0]}. {advice}")
        text: pd.Series[Any] = pd.Series(values.astype(object), dtype=object).astype(dtype)
        return text
    if not numbers or not _holds(dtype, values):
        return pd.Series(values, copy=False)
    if isinstance(dtype, np.dtype):
        return pd.Series(values.astype(dtype, copy=False), copy=False)
    return pd.Series(values.astype(getattr(dtype, "numpy_dtype", None) or np.float64)).astype(dtype)


def span_of(dtype: Any) -> tuple[int, int]:
    """Return the least and the greatest number of a pandas type of integers."""
    span = np.iinfo(np.dtype(f"{dtype.kind}{dtype.itemsize}"))
    return int(span.min), int(span.max)


def _holds(dtype: Any, numbers: NDArray[Any]) -> bool:
    """Whether a type of numbers holds these exactly, but for the precision of fractions."""
    if is_bool_dtype(dtype):
        return bool(((numbers == 0) | (numbers == 1)).all())
    if not is_integer_dtype(dtype):
        return True
    low, high = span_of(dtype)
    return bool(((numbers == np.rint(numbers)) & (numbers >= low) & (numbers <= high)).all())


def columns_of_sites(node_of: Mapping[str, str], graph: CausalGraph) -> dict[str, str]:
    """Return the column of each site of ``node_of``: of its own name, else of its node, else (latent) the site."""
    columns = {site: graph.columns.get(node, []) for site, node in node_of.items()}
    return {site: site if site in own or not own else own[0] for site, own in columns.items()}


def read_levels(
    levels: Mapping[str, Sequence[Any]] | None, node_of: Mapping[str, str], graph: CausalGraph
) -> dict[str, NDArray[Any]]:
    """Return the labels of each site that has some, shape (k,), from those that a user gives.

    A site that is no node or the sensitive one, no labels, a label twice, or another label for the outcome's code 1
    than the graph's positive one is a DataError.
    """
    found: dict[str, NDArray[Any]] = {}
    if levels is not None and not isinstance(levels, Mapping):
        raise DataError(f"levels={levels!r} must be a dictionary from node sites to labels, {{'D': ['low', ...]}}.")
    sites = [site for site, node in node_of.items() if node != graph.sensitive]
    for site, labels in (levels or {}).items():
        if node_of.get(site) == graph.sensitive:
            raise DataError(
                f"levels names {site!r}, the sensitive attribute, whose labels the graph has. Leave it out."
            )
        if site not in node_of:
            raise DataError(
                f"levels names {site!r}, which is no node site. They are: {', '.join(sites)}."
                f"{did_you_mean(site, sites)}"
            )
        named = isinstance(labels, Sequence | np.ndarray | pd.Index) and not isinstance(labels, str)
        every = list(labels) if named else []
        plain = bool(every) and all(isinstance(label, Hashable) for label in every) and not text_fault(every)
        if not plain or len(set(every)) < len(every):
            raise DataError(f"levels[{site!r}]={labels!r} must be a list of labels, each once: that of code 0 first.")
        if node_of[site] == graph.outcome and (len(every) < 2 or every[1] != graph.positive):
            raise DataError(
                f"levels[{site!r}]={every!r} gives the outcome's code 1 another label than the graph's "
                f"positive={graph.positive!r}. List the positive label second, or name it when making the graph."
            )
        same = len({type(label) for label in every}) == 1
        found[site] = np.asarray(every) if same else np.asarray(every, dtype=object)
    return found


def outcome_levels(levels: Levels, node_of: Mapping[str, str], graph: CausalGraph, df: pd.DataFrame) -> Levels:
    """Return the levels with the outcome's of a table added; a third is a DataError, and one alone stays in codes."""
    site = next((site for site, node in node_of.items() if node == graph.outcome), None)
    values = df.get(graph.outcome_column) if isinstance(df, pd.DataFrame) else None
    if site is None or site in levels or not isinstance(values, pd.Series) or not is_categorical(values):
        return levels
    found = values.cat.categories if isinstance(values.dtype, pd.CategoricalDtype) else values.dropna().unique()
    others = [label for label in found if label != graph.positive]
    name_them = f"levels={{{site!r}: [..., {graph.positive!r}]}}."
    if len(others) > 1:
        raise DataError(
            f"The outcome {values.name!r} holds {show_labels(others, SHOWN)} besides positive={graph.positive!r}, but "
            f"it must be binary. Recode it, or name its labels: {name_them}"
        )
    if not others:
        text = (
            f"The outcome {values.name!r} is always {graph.positive!r} here, so its other label is not known and both "
            f"worlds hold 0 and 1. Name it: {name_them}"
        )
        warnings.warn(text, PyrofairWarning, stacklevel=3)
        return levels
    return {**levels, site: np.asarray([others[0], graph.positive], dtype=object)}


def levels_by_column(levels: Levels, node_of: Mapping[str, str], graph: CausalGraph) -> dict[str, NDArray[Any]]:
    """Return the labels under the names of columns, those of a latent node under that of its site."""
    column_of = columns_of_sites(node_of, graph)
    return {column_of[site]: labels for site, labels in levels.items()}


def labels_of(site: str, labels: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of codes, in the shape of the codes; a code without a label is a DataError."""
    integers = codes.astype(np.int64)
    if (wrong := (integers != codes) | (integers < 0) | (integers >= len(labels))).any():
        raise DataError(
            f"The site {site!r} takes the value {codes[wrong].flat[0]:g}, but its {len(labels)} levels have the codes "
            f"0 to {len(labels) - 1}. Correct levels[{site!r}], or the program."
        )
    return np.asarray(labels[integers])


def codes_of(site: str, labels: NDArray[Any], values: Any) -> NDArray[np.float64]:
    """Return the codes of labels, shape (n,), NaN for a missing value; a label without a code is a DataError."""
    given = pd.Series(np.atleast_1d(np.asarray(values, dtype=object)))
    codes = pd.Index(labels, dtype=object).get_indexer(pd.Index(given, dtype=object))
    missing = given.isna().to_numpy()
    if (unseen := (codes < 0) & ~missing).any():
        label = given[unseen].iloc[0]
        known = show_labels(labels, SHOWN) + (", ..." if len(labels) > SHOWN else "")
        raise DataError(
            f"{site!r} holds {show_labels([label])}, which is none of its {len(labels)} levels: {known}. Correct the "
            f"value, or fit the model with this level.{did_you_mean(label, labels.tolist())}"
        )
    return np.where(missing, np.nan, codes.astype(np.float64))


def codes_of_rows(df: pd.DataFrame, labels: Levels) -> pd.DataFrame:
    """Return a table of units with the labels of some columns as codes, as :func:`codes_of` does."""
    have = {name: own for name, own in labels.items() if name in getattr(df, "columns", ())}
    return df.assign(**{name: codes_of(name, own, df[name]) for name, own in have.items()}) if have else df


def require_do(values: object) -> None:
    """Refuse what is no dictionary of nodes and the values they are set to."""
    if values is not None and not isinstance(values, Mapping):
        raise DataError(f"do={shown(values)} must be a dictionary: for each node the value it is set to, {{'D': 1.0}}.")


def codes_of_do(values: Mapping[str, Any] | None, labels: Levels) -> dict[str, Any]:
    """Return values to set sites or columns to, with some labels as codes, as :func:`codes_of` does."""
    require_do(values)
    found = {}
    for name, each in (values or {}).items():
        codes = codes_of(name, labels[name], each) if name in labels else each
        found[name] = pd.Series(codes, each.index) if isinstance(each, pd.Series) and name in labels else codes
    return found
