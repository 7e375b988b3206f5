"""Which rows are given? A table of people read as the values of a program's sites."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.covariates import ROW, covariate_names, covariates_of_rows
from pyrofair.equations import Equations, sensitive_levels
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.programs import Program, ProgramSites
from pyrofair.tables import is_categorical, read_sensitive, read_table, warn_unused
from pyrofair.vectors import read_scalar_sites

__all__ = ["GivenRows", "read_people", "read_rows"]


@dataclass(frozen=True, eq=False)
class GivenRows:
    """The values of observed sites, shape (n,) each, and what they are observations of.

    Parameters
    ----------
    program, info
        The program, with the covariates of these rows if it has any, and what was read off it.
    nodes
        The node sites, observed or not, in causal order.
    values
        For each observed site its values, and whose covariates are whose.
    columns
        For each observed site its column, in the order of the table.
    index
        The people's labels.
    """

    program: Program
    info: ProgramSites
    nodes: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]
    columns: dict[str, str]
    index: pd.Index[Any]


def read_people(equations: Equations, df: pd.DataFrame) -> GivenRows:
    """Read rows of a program with a graph: all observed nodes, the outcome if it is there.

    Raises
    ------
    DataError
        For a missing column, a missing value, a third value of the sensitive attribute, or categories where the program
        has numbers.
    """
    graph = equations.unfair.graph
    columns: dict[str, str] = {}
    for site, node in equations.node_of.items():
        own = graph.columns.get(node, [])
        if node not in graph.latent and not (node == graph.outcome and own[0] not in getattr(df, "columns", ())):
            columns[site] = site if site in own else own[0]
    table = read_table(df, list(columns.values()))
    program, covariates = covariates_of_rows(equations.program, equations.info.sites, df)
    warn_unused(df, graph, covariate_names(equations.program))
    place = {column: i for i, column in enumerate(df.columns)}
    columns = dict(sorted(columns.items(), key=lambda pair: place[pair[1]]))
    values = {}
    for site, column in columns.items():
        if site == equations.sensitive:
            values[site] = np.asarray(sensitive_levels(graph))[read_sensitive(table, graph, both=False)]
        elif equations.node_of[site] == graph.outcome and is_categorical(table[column]):
            values[site] = np.asarray(table[column] == graph.positive, dtype=np.float64)
        else:
            values[site] = _numbers(table[column])
    values |= covariates
    nodes = tuple(site for site in equations.node_of if site != ROW)
    return GivenRows(program, equations.info, nodes, values, columns, table.index)


def read_rows(
    program: Program, df: pd.DataFrame, nodes: Sequence[str] | None, probe: Program | None = None
) -> GivenRows:
    """Read rows of a program without a graph: the columns named like its sites, or their components, are its nodes.

    Parameters
    ----------
    program, df, nodes
        The program, the rows, and which nodes are observed.
    probe
        The program to run on a few people, by default itself: with its parameters set, say.

    Raises
    ------
    DataError
        If no column is a site, or a column is missing or holds no numbers.
    GraphError
        If a named node is no site, or is given data in the program; or if evidence bears on people.
    """
    read_table(df, [])  # a table at all
    have = list(map(str, df.columns))
    named = [name for each in (have if nodes is None else nodes) for name in (each, each.partition("[")[0])]
    read = read_scalar_sites(program, dict.fromkeys(named, ()), probe)
    info = read.info
    if nodes is None:
        nodes = [name for name in have if name in info.sites and name != ROW]
        if not nodes:
            raise DataError(
                f"No column of the data is a site of the program. Its sites: {', '.join(info.sites)}; the columns: "
                f"{', '.join(have) or 'none'}."
            )
        if others := [name for name in have if name not in info.sites]:
            warnings.warn(f"Columns that are no sites are ignored: {', '.join(others)}.", PyrofairWarning, stacklevel=3)
    if not nodes:
        raise DataError(f"nodes=[] names no site. Name one at least, of {', '.join(info.sites)}.")
    nodes = [name for node in nodes for name in read.columns.get(node, (node,))]
    info.require(nodes)
    info.require_drawn(nodes)
    info.refuse_evidence(tuple(nodes))
    table = read_table(df, nodes)
    ordered = tuple(site for site in info.sites if site in nodes)
    bound, covariates = covariates_of_rows(read.program, info.sites, df)
    values = {site: _numbers(table[site]) for site in nodes} | covariates
    return GivenRows(bound, info, ordered, values, {n: n for n in nodes}, table.index)


def _numbers(values: pd.Series[Any]) -> NDArray[np.float64]:
    if is_categorical(values):
        raise DataError(
            f"The column {values.name!r} holds categories, but the program's values are numbers. Code them as "
            "the program does."
        )
    return values.to_numpy(dtype=np.float64)
