"""Several columns as one sensitive attribute with labelled levels: the table, the graph, and models of the columns."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from pyrofair._validation import listed, plain_value, require_flag, require_instance, require_names, shown
from pyrofair.effects.adapters import DecisionsOf, ScoresOf
from pyrofair.effects.scoring import is_model, no_probabilities, positive_scores
from pyrofair.exceptions import DataError, GraphError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.changes import join_nodes, split_node
from pyrofair.tables.labels import MOST_CONTRASTS, observed_levels, plain_values, require_few_levels, show_counts
from pyrofair.tables.reading import as_pandas, read_table

__all__ = ["Crossed", "cross", "from_one_hot"]

SEPARATOR = " × "


@dataclass(frozen=True, eq=False, repr=False)
class Crossed:
    """The result of :func:`cross` and :func:`from_one_hot`: one attribute in the place of several columns.

    Attributes
    ----------
    name : str
        Its node and column.
    frame : DataFrame
        The rows, with the column ``name`` of labels in the place of the attributes.
    graph : CausalGraph
        The graph with the one node.
    attributes : tuple of str
        The columns that it stands for.
    counts : DataFrame
        For each level the values of the columns, its label and its rows.
    """

    name: str
    frame: pd.DataFrame
    graph: CausalGraph
    attributes: tuple[str, ...]
    counts: pd.DataFrame
    _before: CausalGraph = field(repr=False)
    _order: tuple[str, ...] = field(repr=False)
    _levels: pd.DataFrame = field(repr=False)

    def apply(self, df: pd.DataFrame) -> pd.DataFrame:
        """Return other rows with the one column in the place of the attributes.

        Raises
        ------
        DataError
            If an attribute lacks, or rows have a combination that the first table had not.
        """
        df = as_pandas(df)
        keys = _rows(read_table(df, self.attributes, what="df"))
        known = dict(zip(_rows(self._levels), self._levels.index, strict=True))
        unknown = next((key for key in keys if key not in known), None)
        if unknown is not None:
            written = ", ".join(f"{name}={each!r}" for name, each in zip(self.attributes, unknown, strict=True))
            raise DataError(
                f"df has rows with {written}, which the table that was crossed had not. Its levels: "
                f"{', '.join(map(repr, self._levels.index))}."
            )
        return _put([known[key] for key in keys], df, self.name, self.attributes, self._levels.index)

    def restore(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the attributes in the place of the one column, in the types that they had."""
        labels = read_table(rows, [self.name], what="rows")[self.name]
        at = self._levels.index.get_indexer(pd.Index(labels.astype(object)))
        if (at < 0).any():
            raise DataError(
                f"The column {self.name!r} holds {labels[at < 0].iloc[0]!r}, which is none of its levels: "
                f"{', '.join(map(repr, self._levels.index))}."
            )
        place: Any = rows.columns.get_loc(self.name)
        own: pd.DataFrame = self._levels.iloc[at].set_axis(rows.index)
        return pd.concat([rows.iloc[:, :place], own, rows.iloc[:, place + 1 :]], axis=1)

    def model(self, model: Any) -> Any:
        """Return a model of the attributes as a model of the one column, as audits take it.

        Parameters
        ----------
        model
            A fitted model that reads the attributes, with ``predict_proba``, :class:`DecisionsOf` or
            :class:`ScoresOf`. Given scores are returned as they are, for they belong to rows, and so is a model of the
            one column.
        """
        own = [str(each) for each in getattr(model, "feature_names_in_", ())]
        if isinstance(model, np.ndarray | pd.Series | list | tuple) or self.name in own:
            return model
        if isinstance(model, DecisionsOf):
            labels = model._labels("model", None)
            return DecisionsOf(
                lambda rows: model.ask("model", self._read(rows), self._before, self._order),
                labels=None if labels is None else (labels[0], labels[1]),
            )
        if not is_model(model):
            raise DataError(no_probabilities("model", model))
        return ScoresOf(lambda rows: positive_scores("model", model, self._read(rows), self._before, self._order))

    def _read(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows as the model reads them, its columns in the order of the first table."""
        restored = self.restore(rows) if self.name in rows else rows
        return restored[[name for name in self._order if name in restored]]

    def __str__(self) -> str:
        head = f"{self.name!r}, in the place of {', '.join(self.attributes)}; baseline {self.graph.baseline!r}"
        return f"{head}\n{self.counts.to_string(index=False)}"

    def __repr__(self) -> str:
        return f"<Crossed {self.name!r}: {len(self._levels)} levels, {len(self.frame):,} rows; print it for counts>"


def cross(
    df: pd.DataFrame,
    graph: CausalGraph,
    attributes: Sequence[str],
    *,
    baseline: Sequence[Hashable] | Mapping[str, Hashable],
    name: str | None = None,
    separator: str = SEPARATOR,
    allow_empty: bool = False,
) -> Crossed:
    """Make one sensitive attribute of several, with a labelled level for each combination: ``"female × Black"``.

    Each combination is then compared with a stated baseline by :func:`pyrofair.audit_contrasts`, with intervals that
    hold at once, and :class:`pyrofair.Contrasts` trains against the worst of them. *Assumes* that the effect of
    changing all attributes together is what is asked for; the node has the causes and the effects of all of them.

    Parameters
    ----------
    df
        n rows with the attributes.
    graph
        The graph with the attributes as nodes of one column each, one of them its sensitive attribute.
    attributes
        At least two nodes, in the order of the labels.
    baseline
        The level of each attribute in the combination that others are compared with: ``("male", "White")``, or by
        name.
    name
        The node and column of the one attribute, by default the names joined by ``_``.
    separator
        Between the levels in a label. A level that is no text is written with its attribute: ``"age=1"``.
    allow_empty
        Whether combinations without a row are left out; they are refused otherwise.

    Returns
    -------
    Crossed
        ``.frame``, ``.graph``, ``.counts``; ``.model(model)`` takes a model of the attributes.

    Raises
    ------
    DataError
        If an attribute is no node of one observed column, or continuous; if a combination of observed levels has no
        row, or the baseline has none; if there are more than 20 combinations; if two have one label.
    GraphError
        If a path runs from one attribute by another node to another attribute.

    References
    ----------
    Crenshaw (1989), on intersections of attributes.

    Examples
    --------
    >>> from pyrofair import audit_contrasts
    >>> rng = np.random.default_rng(0)
    >>> sex, race = rng.choice(["female", "male"], 900), rng.choice(["Black", "White"], 900)
    >>> df = pd.DataFrame({"sex": sex, "race": race, "M": rng.integers(2, size=900)})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.6 - 0.2 * ((X["sex"] == "female") & (X["race"] == "Black")) + 0.1 * X["M"]
    ...         return np.column_stack([1 - p, p])
    >>> graph = CausalGraph("{sex race} -> M; {sex race M} -> Y", sensitive="sex", outcome="Y")
    >>> crossed = cross(df, graph, ["sex", "race"], baseline=("male", "White"))
    >>> report = audit_contrasts(
    ...     {"model": crossed.model(Model())}, crossed.graph.unfair(direct=True), crossed.frame, random_state=0
    ... )
    >>> rows = report.table.query("decisions == 'score' and quantity == 'mean_unfair_effect'").set_index("contrast")
    >>> rows["estimate"].round(2).to_dict()
    {'female × Black': -0.2, 'female × White': 0.0, 'male × Black': 0.0}
    """
    require_instance("graph", graph, CausalGraph, "a causal graph")
    require_flag("allow_empty", allow_empty)
    require_instance("separator", separator, str, "a string")
    nodes = tuple(require_names("attributes", attributes, "node names"))
    columns = _columns(graph, nodes)
    own = "_".join(nodes) if name is None else name
    require_instance("name", own, str, "the name of a node")
    df = as_pandas(df)
    table = read_table(df, columns, what="df")
    if own in graph.nodes or own in graph.node_of or (own in df.columns and own not in columns):
        raise DataError(f"name={own!r} is a node or column already; pass another name=.")
    for column in columns:
        require_few_levels(table[column])
    levels = [observed_levels(table[column]) for column in columns]
    chosen = _read_baseline(baseline, nodes, columns, levels)
    every = list(itertools.product(*levels))
    if len(every) > MOST_CONTRASTS:
        raise DataError(
            f"{', '.join(columns)} have {' × '.join(str(len(each)) for each in levels)} = {len(every)} combinations, "
            f"and at most {MOST_CONTRASTS} are compared. Join levels: df[{columns[-1]!r}].replace({{...}})."
        )
    keys = _rows(table)
    number, first = Counter(keys), {key: at for at, key in reversed(list(enumerate(keys)))}
    labels = [_label(each, columns, separator) for each in every]
    counts = pd.DataFrame(every, columns=columns).assign(label=labels, rows=[number[each] for each in every])
    _refuse_counts(counts, columns, every.index(chosen), allow_empty=allow_empty)
    label_of = {each: label for each, label in zip(every, labels, strict=True) if each in first}
    own_levels = table.iloc[[first[each] for each in label_of]].set_axis(pd.Index(label_of.values(), dtype=object))
    base, *others = label_of[chosen], *(label for each, label in label_of.items() if each != chosen)
    if not others:
        raise DataError(f"All rows are {base!r}; there is nothing to compare.")
    joined = join_nodes(graph, nodes, own, base, others[0])
    order = tuple(column for column in df.columns if column in graph.input_columns)
    frame = _put([label_of[key] for key in keys], df, own, columns, own_levels.index)
    return Crossed(own, frame, joined, tuple(columns), counts, graph, order, own_levels)


def from_one_hot(df: pd.DataFrame, graph: CausalGraph, columns: Sequence[str], *, other: str | None = None) -> Crossed:
    """Read the sensitive attribute from columns of 0 and 1, one for each level, whose names become its labels.

    A model that reads these columns is audited by ``.model(model)``, which sets all of them to a level together.

    Parameters
    ----------
    df
        n rows with the columns, which lack that of the sensitive attribute.
    graph
        The graph, whose sensitive attribute is one node, its baseline one of the labels.
    columns
        The columns. Each row has a 1 in exactly one of them.
    other
        The label of rows without a 1, if that is a level: the one that an encoder dropped.

    Returns
    -------
    Crossed

    Raises
    ------
    DataError
        If a column holds anything but 0 and 1, or stands in the graph; if rows have no 1 or several, with their number
        and the first of them.

    Examples
    --------
    >>> graph = CausalGraph("race -> M; {race M} -> Y", sensitive="race", outcome="Y", baseline="race_w")
    >>> df = pd.DataFrame({"race_b": [1, 0, 0], "race_w": [0, 1, 1], "M": [0, 1, 0]})
    >>> from_one_hot(df, graph, ["race_b", "race_w"]).frame["race"].tolist()
    ['race_b', 'race_w', 'race_w']
    """
    require_instance("graph", graph, CausalGraph, "a causal graph")
    names = tuple(require_names("columns", columns, "column names"))
    df, own = as_pandas(df), graph.sensitive_column
    table = read_table(df, names, what="df")
    if taken := [name for name in (own, *names) if name in (df.columns if name == own else graph.node_of)]:
        raise DataError(f"{taken[0]!r} is a column already: {own!r} is read from {', '.join(names)}, in its place.")
    if strange := [name for name in names if not table[name].isin([0, 1]).all()]:
        raise DataError(f"The column {strange[0]!r} holds {show_counts(table[strange[0]])}; it must hold 0 and 1.")
    held = table.to_numpy(dtype=np.int64)
    wrong = np.flatnonzero((held.sum(axis=1) > 1) | (~held.any(axis=1) & (other is None)))
    if len(wrong):
        first, none = wrong[0], int((~held.any(axis=1)).sum())
        dropped = f" {none:,} have no 1: if that is a level, one that an encoder dropped, name it, other='its label'."
        raise DataError(
            f"{len(wrong):,} of {len(df):,} rows have no 1 or several in {', '.join(names)}, such as the row "
            f"{plain_value(df.index[first])!r} with {', '.join(map(str, held[first]))}.{dropped * bool(none)}"
        )
    labels = [*names, *([] if other is None else [other])]
    levels = pd.DataFrame(np.eye(len(labels), len(names), dtype=np.int64), pd.Index(labels, dtype=object), names)
    at = np.where(held.any(axis=1), held.argmax(axis=1), len(names))
    frame = _put([labels[each] for each in at], df, own, names, levels.index)
    counts = levels.reset_index(drop=True).assign(label=labels, rows=np.bincount(at, minlength=len(labels)))
    before = split_node(graph, graph.sensitive, names)
    order = tuple(column for column in df.columns if column in before.input_columns)
    return Crossed(own, frame, graph, names, counts, before, order, levels.astype(table.dtypes.to_dict()))


def _put(
    labels: Sequence[str], df: pd.DataFrame, name: str, attributes: Sequence[str], levels: pd.Index[Any]
) -> pd.DataFrame:
    """Return rows with a column of labels in the place of the first of the attributes."""
    first = next(i for i, column in enumerate(df.columns) if column in attributes)
    rest: pd.DataFrame = df.drop(columns=list(attributes))
    rest.insert(first, name, pd.Series([*labels], df.index, pd.CategoricalDtype([*levels])))
    return rest


def _columns(graph: CausalGraph, nodes: Sequence[str]) -> list[str]:
    """Return the column of each attribute, or refuse what cannot be one."""
    if twice := next((node for node in nodes if nodes.count(node) > 1), None):
        raise DataError(f"attributes={shown(list(nodes))} names {twice!r} more than once.")
    if len(nodes) < 2:
        raise DataError(f"attributes={shown(nodes)} must name at least two nodes; one attribute needs no combination.")
    for node in nodes:
        if node not in graph.nodes:
            raise DataError(f"attributes names {node!r}, which is no node of the graph: {', '.join(graph.nodes)}.")
        if node == graph.outcome or node in graph.latent or len(graph.columns[node]) != 1:
            what = "the outcome" if node == graph.outcome else "latent" if node in graph.latent else "several columns"
            raise DataError(f"attributes names {node!r}, which is {what}; an attribute is one observed column.")
    if graph.sensitive not in nodes:
        raise DataError(
            f"attributes={shown(list(nodes))} leaves out the graph's sensitive attribute {graph.sensitive!r}."
        )
    between = {*itertools.chain(*map(graph.descendants, nodes))} & {*itertools.chain(*map(graph.ancestors, nodes))}
    if amid := next((node for node in graph.nodes if node in between and node not in nodes), None):
        raise GraphError(
            f"{amid!r} is an effect of one attribute and a cause of another one, so joining these would make a cycle. "
            f"Leave one of them out of attributes, or name {amid!r} too."
        )
    return [graph.columns[node][0] for node in nodes]


def _read_baseline(
    baseline: object, nodes: Sequence[str], columns: Sequence[str], levels: Sequence[Sequence[Any]]
) -> tuple[Any, ...]:
    given = None if isinstance(baseline, str) else listed(baseline)
    if isinstance(baseline, Mapping):
        given = tuple(baseline[node] for node in nodes) if {*baseline} == {*nodes} else None
    if given is None or len(given) != len(nodes):
        raise DataError(
            f"baseline={shown(baseline)} must have a level of each of {', '.join(nodes)}, in this order or by name."
        )
    for column, own, level in zip(columns, levels, given, strict=True):
        if not isinstance(level, Hashable) or level not in own:
            raise DataError(f"baseline: {column!r} never takes {shown(level)}; it holds {', '.join(map(repr, own))}.")
    return tuple(own[own.index(level)] for own, level in zip(levels, given, strict=True))


def _refuse_counts(counts: pd.DataFrame, columns: Sequence[str], baseline: int, *, allow_empty: bool) -> None:
    """Refuse combinations that cannot be told from each other, or that have no row, the baseline's above all."""
    rows = dict(zip(counts["label"], counts["rows"], strict=True))
    if len(rows) < len(counts):
        twice = counts["label"][counts["label"].duplicated()].iloc[0]
        raise DataError(f"Two combinations have the label {twice!r}. Pass another separator=, or rename levels.")
    every = ", ".join(f"{label} {number:,}" for label, number in rows.items())
    empty = [label for label, number in rows.items() if not number]
    if (base := counts["label"].iloc[baseline]) in empty:
        raise DataError(f"The baseline {base!r} has no row. Rows: {every}.")
    if empty and not allow_empty:
        raise DataError(
            f"{len(empty)} of {len(rows)} combinations have no row, such as {empty[0]!r}. Rows: {every}. Join levels, "
            f"df[{columns[-1]!r}].replace({{...}}), or leave these out: allow_empty=True."
        )


def _label(combination: Sequence[Any], columns: Sequence[str], separator: str) -> str:
    parts = zip(columns, combination, strict=True)
    return separator.join(each if isinstance(each, str) else f"{column}={each}" for column, each in parts)


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(zip(*(plain_values(table[column]) for column in table), strict=True))
