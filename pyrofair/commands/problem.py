"""What is asked: a graph, its unfair paths, and a table with their columns, from the options of a command."""

from __future__ import annotations

import csv
import re
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyrofair.commands.data import (
    DATA,
    Reading,
    Table,
    distinct_values,
    list_values,
    match_value,
    read_data,
    read_number,
)
from pyrofair.commands.options import Option, Settings, UsageError, grouped, is_file, no_file
from pyrofair.exceptions import PyrofairWarning

if TYPE_CHECKING:
    import pandas as pd

    from pyrofair.effects import Crossed
    from pyrofair.graph import CausalGraph, UnfairPaths

__all__ = [
    "GRAPH_OPTIONS",
    "QUESTION",
    "VALUE_OPTIONS",
    "Problem",
    "files_read",
    "make_graph",
    "make_unfair",
    "names_several",
    "read_problem",
    "read_text",
    "stated_values",
]
ALL, OTHER, ROLES = "all", "other=", ("baseline", "contrast")

GRAPH_OPTIONS = grouped(
    "the question",
    Option("graph", "the causal graph: a .dot file, a text file with arrows (lines that begin with # are comments) or "
           "of dagitty, or the arrows themselves, 'A -> M; {A M} -> Y'", metavar="FILE|TEXT", required=True),
    Option("sensitive", "the node of the sensitive attribute (default the exposure of a graph of dagitty)",
           metavar="NODE"),
    Option("outcome", "the node of the outcome (default the outcome of a graph of dagitty)", metavar="NODE"),
    Option("unfair", "unfair paths, separated by semicolons: 'A -> Y; A -> M -> Y'", many=True, metavar="PATHS"),
    Option("direct", "the edge from the sensitive attribute to the outcome is unfair", bool),
    Option("through", "nodes: every path through one of them is unfair", many=True, metavar="NODE"),
    Option("latent", "nodes without a column, never measured", many=True, metavar="NODE"),
    Option("columns", "the columns of a node that is not one column of its own name: 'S=savings,checking'", many=True,
           metavar="NODE=COLUMNS"),
)  # fmt: skip
VALUE_OPTIONS = grouped(
    "the question",
    Option("baseline", "the value of the sensitive attribute in the baseline world (default 0)", metavar="VALUE"),
    Option("contrast", "its other value (default 1); of audit and train also several values, each compared with the "
           "baseline, or all", many=True, metavar="VALUE"),
    Option("labels", "how reports write values of the sensitive attribute, which stay as they are: '0=white 1=black'",
           many=True, metavar="VALUE=LABEL"),
    Option("one-hot", "columns of 0 and 1 that hold the sensitive attribute, one for each level; their names are its "
           "values: 'race=race_black,race_white'. With other=VALUE among them rows without a 1 have that value",
           metavar="NODE=COLUMNS"),
    Option("positive", "the value of the outcome that counts as yes (default 1)", metavar="VALUE"),
    Option("rest-is-no", "all values of the outcome, or of columns of decisions, but the one that counts as yes count "
           "as no", bool),
)  # fmt: skip
QUESTION = (DATA, *GRAPH_OPTIONS, *VALUE_OPTIONS)


class Rows(NamedTuple):
    """The columns of observed nodes of a further table, with its weights and groups, or None."""

    frame: pd.DataFrame
    weight: pd.Series[Any] | None
    groups: pd.Series[Any] | None


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph with labels of the table's types, its unfair paths, and tables with their columns.

    ``frame`` is the table of the command and ``others`` further ones by option, all with the columns of observed nodes,
    and each with ``weight``, the sample weights, and ``groups``, the groups of rows, or None; ``extra`` holds the
    columns asked for besides the graph's. ``notes`` is what a report must tell of the reading. ``contrasts`` are the
    values that are compared with the baseline one by one, if the graph names none; ``crossed`` is the sensitive
    attribute in the place of its columns, where it was one-hot.
    """

    graph: CausalGraph
    unfair: UnfairPaths
    """Empty for a question that is not about paths, if none are named."""
    frame: pd.DataFrame
    extra: pd.DataFrame
    weight: pd.Series[Any] | None
    groups: pd.Series[Any] | None
    others: Mapping[str, Rows] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    contrasts: tuple[Any, ...] = ()
    crossed: Crossed | None = None


def names_several(settings: Settings) -> bool:
    """Return whether several values of the sensitive attribute are to be compared with the baseline."""
    return settings["contrast"] == [ALL] or len(settings["contrast"]) > 1


def files_read(settings: Settings, *tables: str) -> list[str]:
    """Return the files that a command reads: its table, those of further options, and that of its graph."""
    found = [settings["data"], *(settings[name] for name in tables if settings[name])]
    return [*found, settings["graph"]] if is_file(settings["graph"]) else found


def make_graph(settings: Settings, values: Mapping[str, Any]) -> CausalGraph:
    """Return the graph that the options describe, with values of the sensitive attribute and the outcome."""
    from pyrofair.graph import CausalGraph

    return CausalGraph(
        _edges(settings["graph"]),
        sensitive=settings["sensitive"],
        outcome=settings["outcome"],
        columns=dict(_columns_of(each) for each in settings["columns"]),
        latent=settings["latent"],
        **values,
    )


def _edges(source: str) -> Any:
    """Return the text of a graph, or the path of a DOT file."""
    path = Path(source)
    if not is_file(source):
        if any(mark in source for mark in ("->", "→", "\n")):
            return source
        raise UsageError(
            f"--graph {source!r}: {no_file(source)} A graph that is written out has arrows: 'A -> M; {{A M}} -> Y'."
        )
    if path.suffix.lower() in (".dot", ".gv"):
        return path
    text = read_text("--graph", source)
    if not re.sub(r"(?m)^\s*#.*$", "", text).strip():
        raise UsageError(f"--graph {source!r} is empty. It holds arrows, such as A -> M; {{A M}} -> Y.")
    return f"{text}\n"  # a line break keeps a text of one word from being read as the name of a file


def read_text(option: str, file: str) -> str:
    """Return the text of a file that an option names."""
    if missing := no_file(file):
        raise UsageError(f"{option}: {missing}")
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {file!r} cannot be read: {error}.") from error


def _columns_of(text: str, flag: str = "--columns") -> tuple[str, list[str]]:
    """Return a node and its columns, from ``'S=savings,checking'``; a name with a comma stands in double quotes."""
    node, equals, names = text.partition("=")
    columns = [name.strip() for name in next(csv.reader([names], skipinitialspace=True), [])]
    if not equals or not node.strip() or not all(columns) or not columns:
        raise UsageError(f"{flag} {text!r} must name a node and its columns: 'S=savings,checking'.")
    return node.strip(), columns


def make_unfair(graph: CausalGraph, settings: Settings, *, required: bool = True) -> UnfairPaths:
    """Return the paths that the options call unfair; none is a UsageError that lists the paths of the graph."""
    from pyrofair.graph.paths import show_paths

    paths = [path.strip() for text in settings["unfair"] for path in text.replace("\n", ";").split(";") if path.strip()]
    if required and not paths and not settings["direct"] and not settings["through"]:
        there = show_paths(graph.directed_paths(graph.sensitive, graph.outcome))
        raise UsageError(
            f"no path is called unfair. From {graph.sensitive!r} to {graph.outcome!r} there are: {there}. Name those "
            f"that are unfair, --unfair 'PATH; PATH'; or --direct for the edge, --through NODE for all through a node."
        )
    return graph.unfair(*paths, direct=settings["direct"], through=settings["through"])


def read_problem(
    settings: Settings,
    *,
    extra: Mapping[str, str] | None = None,
    others: Sequence[str] = (),
    outcome_required: bool = True,
    about_paths: bool = True,
    about_groups: bool = True,
    several: bool = False,
    gaps: bool = False,
) -> Problem:
    """Read the tables of a command and make its graph, with values in the types of the columns.

    ``extra`` are columns besides the graph's, each with the option that asks for it; ``others`` options that name
    further tables, where given. The table may lack the outcome if that is not required. A question that is not about
    paths needs no unfair ones, and one that is about no groups either needs no two of them. ``several`` is whether the
    command compares several values with the baseline. With ``gaps`` the sensitive attribute may be missing in rows.
    """
    if names_several(settings) and about_groups and not several:
        raise UsageError(
            f"--contrast {' '.join(settings['contrast'])}: pyrofair {settings.command} compares two values; name one. "
            "pyrofair train takes several, and so does pyrofair audit."
        )
    from pyrofair.effects import from_one_hot

    extra = dict(extra or {})
    plain = make_graph(settings, {})
    how = replace(Reading.of(settings), sensitive=plain.sensitive_column, gaps=gaps)
    make_unfair(plain, settings, required=about_paths)  # a wrong path is refused before the table is read
    hot, other = _one_hot(settings, plain)
    outcome, weight, groups = plain.outcome_column, settings["weight"], settings.get("groups")
    wanted = _wanted(settings, plain, hot)
    if how.missing_as_value:  # a missing outcome is left out of accuracy, which is all that it serves in an audit
        hints = {name for name, why in extra.items() if why == "--proxy"}
        needed = {plain.sensitive_column, *extra, *({outcome} if outcome_required else ())} - hints
        how = replace(how, features=tuple({*plain.node_of, *hints} - needed))
    tables = {
        DATA.name: read_data(settings["data"], wanted | extra | wanted, how, () if outcome_required else (outcome,))
    }
    unweighted = {name: why for name, why in wanted.items() if name in plain.node_of or name != weight}
    for name in filter(settings.__getitem__, others):
        fits = name == "train"
        tables[name] = read_data(settings[name], wanted if fits else unweighted, how, (outcome,) if fits else ())
    raw = tables[DATA.name].frame
    if hot:
        read = partial(from_one_hot, graph=plain, columns=hot, other=other)
        tables = {name: replace(each, frame=read(each.frame).frame) for name, each in tables.items()}
    every = tables[DATA.name].frame[plain.sensitive_column] if settings["labels"] else None
    tables = {name: _keep_groups(each, plain, settings) for name, each in tables.items()}
    table = tables[DATA.name]
    values = _values(settings, plain, table) if about_groups else {}
    if every is not None:
        named, kept = _labels_of(settings, lambda text: match_value("--labels", text, every, table.path)), table.frame
        named = {level: label for level, label in named.items() if kept[plain.sensitive_column].eq(level).any()}
        values |= {"labels": named} | ({} if about_groups else {"baseline": next(iter(named)), "contrast": None})
    if settings["rest-is-no"] and "positive" in values and outcome in table.frame:
        column, yes = table.frame[outcome], values["positive"]
        for no in column[column != yes].value_counts().index[:1]:  # none if all say yes
            tables = {name: _join(each, outcome, [yes, no]) for name, each in tables.items()}
    graph, table = make_graph(settings, values), tables.pop(DATA.name)
    for name, each in tables.items():
        _require_alike(table, each, [column for column in wanted if column in each.frame], name)
    nodes = [column for column in plain.node_of if column in table.frame]
    notes = list(table.notes)
    if table.unused:
        notes.append(f"Columns of {table.path} that are not used: {', '.join(map(str, table.unused))}.")
    if outcome not in table.frame:
        notes.append(f"{table.path} has no column {outcome!r}, the outcome: accuracy is not available.")
    left_out = [text for each in (table, *tables.values()) for text in each.left_out]
    doubts = [f"{text[0].upper()}{text[1:]}. The numbers are those of the other rows." for text in left_out]
    for each in (table, *tables.values()):
        doubts += [*each.doubts, *_constant(each, plain)]
    for text in doubts:
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    return Problem(
        graph,
        make_unfair(graph, settings, required=about_paths),
        table.frame[nodes],
        table.frame[list(extra)],
        table.frame.get(weight),
        table.frame.get(groups),
        {
            name: Rows(each.frame.filter(nodes), each.frame.get(weight), each.frame.get(groups))
            for name, each in tables.items()
        },
        tuple(notes),
        _levels(settings, graph, table) if about_groups and graph.contrast is None else (),
        from_one_hot(raw, graph, hot, other=other) if hot else None,
    )


def _wanted(settings: Settings, graph: CausalGraph, hot: Sequence[str]) -> dict[str, str]:
    """Return the columns of the nodes, or those ``hot`` in place of the sensitive one, of weights and of groups."""
    origin = f"--tiers {settings['tiers']}" if "tiers" in settings.given else "--graph"
    found = {column: f"{origin}: the node {node!r}" for column, node in graph.node_of.items()}
    if hot:
        del found[graph.sensitive_column]
        found |= dict.fromkeys(hot, "--one-hot")
    if (groups := settings.get("groups")) in graph.node_of:
        raise UsageError(f"--groups {groups!r} is a column of the graph, given which estimates are made: name another.")
    for flag in ("weight", "groups"):
        if name := settings.get(flag):
            found.setdefault(name, f"--{flag}")
    return found


def _levels(settings: Settings, graph: CausalGraph, table: Table) -> tuple[Any, ...]:
    """Return the values that are compared with the baseline: those named, or all others."""
    from pyrofair.tables.labels import read_contrasts

    values, named = table.frame[graph.sensitive_column], settings["contrast"]
    given = [match_value("--contrast", each, values, table.path) for each in named] if named != [ALL] else None
    return tuple(read_contrasts(values, graph, given))


def _one_hot(settings: Settings, graph: CausalGraph) -> tuple[list[str], str | None]:
    """Return the columns that hold the sensitive attribute, if it is one-hot, and the value of rows without a 1."""
    if settings["one-hot"] is None:
        return [], None
    node, columns = _columns_of(settings["one-hot"], "--one-hot")
    if node != graph.sensitive:
        raise UsageError(f"--one-hot names the node {node!r}; it is for the sensitive attribute, {graph.sensitive!r}.")
    other = next((each for each in columns if each.startswith(OTHER)), None)
    return [each for each in columns if each != other], other and other.removeprefix(OTHER)


def _join(table: Table, outcome: str, kept: Sequence[Any]) -> Table:
    """Return a table whose outcome has no value but two, the second for all others, and a note of these."""
    column: Any = table.frame.get(outcome)
    if column is None or (known := column.isin(kept) | column.isna()).all():
        return table
    others = list_values(column[~known])
    values = column.astype(object).where(known, kept[-1]).astype(column.dtype)
    if str(values.dtype) == "category":
        values = values.cat.remove_unused_categories()
    note = f"{outcome!r} of {table.path}: {others} count as {kept[-1]!r} (--rest-is-no)."
    return replace(table, frame=table.frame.assign(**{outcome: values}), notes=(*table.notes, note))


def _constant(table: Table, graph: CausalGraph) -> list[str]:
    """Return in words which features have one value in all rows."""
    features = [column for column in graph.input_columns if column != graph.sensitive_column and column in table.frame]
    return [
        f"The column {str(name)!r} of {table.path} holds {list_values(table.frame[name])} and no other value. If its "
        "true values were lost, it holds nothing fixed, and effects that run through it show as others."
        for name in features
        if len(table.frame) > 1 and len(table.frame[name].unique()) == 1
    ]


def _keep_groups(table: Table, graph: CausalGraph, settings: Settings) -> Table:
    """Return a table without the rows of other groups, where these are to be dropped."""
    if not settings["drop-other-groups"]:
        return table
    if settings["baseline"] is None or settings["contrast"] in ([], [ALL]):
        raise UsageError("--drop-other-groups needs --baseline and --contrast, the groups to keep.")
    column = table.frame[graph.sensitive_column]
    named = [("--baseline", settings["baseline"]), *(("--contrast", each) for each in settings["contrast"])]
    keep = column.isin([match_value(flag, each, column, table.path) for flag, each in named])
    if keep.all():
        return table
    counts = list_values(column[~keep])
    text = f"{int((~keep).sum()):,} rows of {table.path} of other groups are left out: {counts}"
    frame = table.frame[keep].copy()  # its index is that of the rows of the file
    for name in frame.select_dtypes("category"):
        frame[name] = frame[name].cat.remove_unused_categories()
    return replace(table, frame=frame, left_out=(*table.left_out, text))


def _values(settings: Settings, graph: CausalGraph, table: Table) -> dict[str, Any]:
    """Return the values of the sensitive attribute and of the outcome, in the types of their columns."""
    sensitive = table.frame[graph.sensitive_column]
    several = names_several(settings)
    found = {role: match_value(f"--{role}", text, sensitive, table.path) for role, text in _named(settings).items()}
    if len(found) == 2 and found["baseline"] == found["contrast"]:
        raise UsageError(
            f"--baseline and --contrast are both {found['baseline']!r}; name two values of {sensitive.name!r}, which "
            f"holds {list_values(sensitive)}."
        )
    if several and "baseline" not in found:
        raise UsageError(
            f"--contrast {' '.join(settings['contrast'])} needs --baseline VALUE, with which they are compared. The "
            f"sensitive attribute {sensitive.name!r} holds {list_values(sensitive)}."
        )
    found |= {"contrast": None} if several else _two_groups(found, sensitive, table.path)
    if graph.outcome_column in table.frame:
        outcome = table.frame[graph.outcome_column]
        found["positive"] = _positive(settings, outcome, table.path)
    elif settings["positive"] is not None:  # the classes of a model
        found["positive"] = stated_values(settings)["positive"]
    return found


def stated_values(settings: Settings) -> dict[str, Any]:
    """Return the values of the sensitive attribute and of the outcome as they are written, where there is no table."""

    def read(text: str) -> Any:
        return text if (number := read_number(text, ".")) is None else number

    texts = _named(settings) | ({} if settings["positive"] is None else {"positive": settings["positive"]})
    return {role: read(text) for role, text in texts.items()} | {"labels": _labels_of(settings, read)}


def _named(settings: Settings) -> dict[str, str]:
    """Return the two values of the sensitive attribute that are named, as they are written."""
    one = None if names_several(settings) else next(iter(settings["contrast"]), None)
    return {role: text for role, text in zip(ROLES, (settings["baseline"], one), strict=True) if text is not None}


def _labels_of(settings: Settings, read: Callable[[str], Any]) -> dict[Any, str]:
    """Return the labels of values of the sensitive attribute, by the values that a function reads."""
    found: dict[Any, str] = {}
    for text in settings["labels"]:
        value, equals, label = text.partition("=")
        if not equals or not label.strip():
            raise UsageError(f"--labels {text!r} must be VALUE=LABEL, such as 0=white.")
        if re.search(r",\s*[^,=]+=", label):
            raise UsageError(f"--labels {text!r} holds several: separate them by blanks, such as 0=white 1=black.")
        if (level := read(value)) in found:
            raise UsageError(f"--labels gives the value {value!r} two labels, {found[level]!r} and {label!r}.")
        found[level] = label
    return found


def _two_groups(found: Mapping[str, Any], column: pd.Series[Any], path: str) -> dict[str, Any]:
    """Return the roles of the values of the sensitive attribute that are not named: 0 and 1, or the other of two."""
    values, (one, other) = distinct_values(column), ROLES
    if not found and {*values} == {0, 1}:
        return {one: 0, other: 1}
    if len(found) == 1 and len(values) == 2:
        ((role, value),) = found.items()
        return {other if role == one else one: next(each for each in values if each != value)}
    if len(found) < 2:
        raise UsageError(
            f"the sensitive attribute {column.name!r} of {path} holds {list_values(column)}. Name the two values to "
            f"compare, such as {_two(found, column)}{_others(found, column)}."
        )
    if others := [each for each in values if each not in found.values()]:
        raise UsageError(
            f"the sensitive attribute {column.name!r} of {path} holds {list_values(column)}, and two values are "
            f"compared at a time: {others[0]!r} is neither --baseline nor --contrast{_others(found, column)}."
        )
    return {}


def _two(found: Mapping[str, Any], column: pd.Series[Any]) -> str:
    """Return options that name two values of a column: those named, and the most frequent of the others."""
    left = iter(each for each in column.value_counts().index if each not in found.values())
    pairs = ((role, found[role] if role in found else next(left, None)) for role in ROLES)
    return " ".join(f"--{role} {shlex.quote(str(value))}" for role, value in pairs if value is not None)


def _others(found: Mapping[str, Any], column: pd.Series[Any]) -> str:
    """Return what can be done with more than two groups."""
    base = shlex.quote(str(found.get("baseline", column.mode().iloc[0])))
    each = f"compare each of them with one, --baseline {base} --contrast {ALL}"
    return f"; --drop-other-groups leaves out the rows of the others; or {each}" if column.nunique() > 2 else ""


def _positive(settings: Settings, column: pd.Series[Any], path: str) -> Any:
    values, text = distinct_values(column), settings["positive"]
    if text is not None:
        value = match_value("--positive", text, column, path)
    elif {*values} <= {0, 1}:
        value = 1
    else:
        raise UsageError(
            f"the outcome {column.name!r} of {path} holds {list_values(column)}. Name the value that counts as yes: "
            f"{' or '.join(f'--positive {shlex.quote(str(each))}' for each in values[:3])}."
        )
    if len(values) > 2 and not settings["rest-is-no"]:
        raise UsageError(
            f"the outcome {column.name!r} of {path} holds {list_values(column)}; it must have two values, and no other "
            "is joined to them unasked. --rest-is-no counts all others as no."
        )
    return value


def _require_alike(one: Table, other: Table, columns: Sequence[str], option: str) -> None:
    """Refuse a column that one table holds as numbers and the other as text."""
    from pyrofair.tables.labels import is_categorical

    for name in one.frame.columns.intersection([*columns]):
        if is_categorical(one.frame[name]) != (is_text := is_categorical(other.frame[name])):
            text, numbers = (other.path, one.path) if is_text else (one.path, other.path)
            raise UsageError(
                f"the column {name!r} is text in {text} and numbers in {numbers} (--{option}); --text {name} "
                "reads both as text."
            )
