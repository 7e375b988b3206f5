"""The two worlds of a program as tables, with labels in place of codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyrofair.programs.sites import require_finite
from pyrofair.programs.structural_equations import Equations
from pyrofair.programs.worlds import World
from pyrofair.tables.labels import Levels, as_column, columns_of_sites, labels_of

__all__ = ["site_of", "world_tables"]


def site_of(equations: Equations, column: str) -> str:
    """Return the site of a column, or the site that has this name itself."""
    columns = columns_of_sites(equations.node_of, equations.unfair.graph)
    return column if column in columns else next(site for site, own in columns.items() if own == column)


def world_tables(
    equations: Equations,
    worlds: Sequence[World],
    columns: Sequence[str],
    size: int,
    levels: Levels,
    dtypes: Mapping[Any, Any] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``columns``, or sites, of both worlds as tables of ``size`` rows, A as the outcome reads it.

    ``levels`` label sites that hold codes; ``dtypes`` are the pandas types of some columns. The two tables share memory
    where the worlds are the same, so their columns are read-only.
    """
    types = dict(dtypes or {})
    graph = equations.unfair.graph
    path = (graph.sensitive, graph.outcome)
    made: dict[tuple[Any, ...], Any] = {}
    tables = []
    for world, regime in zip(worlds, equations.unfair.regimes, strict=True):
        data: dict[str, Any] = {}
        for column in columns:
            if column == graph.sensitive_column:
                label = graph.label(regime.value(path) if path in graph.edges else regime.on_fair)
                data[column] = np.broadcast_to(np.asarray(label), size)
                if column in types:
                    one = as_column(column, np.asarray([label]), types[column])
                    data[column] = one.iloc[np.zeros(size, dtype=np.int64)].set_axis(range(size))
                continue
            site = site_of(equations, column)
            values = world[site]
            key = (site, values.data_ptr(), values.shape, values.stride())
            if key not in made:
                require_finite(site, values)
                made[key] = values.expand(size).numpy()
                if site in levels:
                    made[key] = labels_of(site, levels[site], made[key])
                if column in types:
                    typed = as_column(column, made[key], types[column])
                    plain = isinstance(typed.dtype, np.dtype) and typed.dtype != object
                    made[key] = typed.to_numpy() if plain else typed
                if isinstance(made[key], np.ndarray):
                    made[key].flags.writeable = False
            data[column] = made[key]
        tables.append(pd.DataFrame(data, copy=False))
    return tables[0], tables[1]
