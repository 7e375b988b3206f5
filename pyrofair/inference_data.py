"""Draws as ArviZ data, under ArviZ 0.x and 1.x alike."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["summarise", "to_arviz"]


def to_arviz(
    groups: Mapping[str, Mapping[str, NDArray[Any]]],
    *,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """Return named groups of variables as ArviZ data.

    Parameters
    ----------
    groups
        For each group (``"posterior"``, ``"observed_data"``, ...) its variables. Sampled groups hold arrays of shape
        (chain, draw, ...); observed data have no such axes.
    coords
        The labels along each dimension.
    dims
        For each variable the names of its dimensions after chain and draw.

    Returns
    -------
    arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
        Both hold each group under its name: ``data["posterior"]``.

    Examples
    --------
    >>> data = to_arviz({"posterior": {"effect": np.zeros((1, 100))}})
    >>> data["posterior"]["effect"].shape
    (1, 100)
    """
    make = _maker()
    named = {group: {name: np.asarray(values) for name, values in of.items()} for group, of in groups.items()}
    labels = {name: list(values) for name, values in (coords or {}).items()}
    axes = {name: list(names) for name, names in (dims or {}).items()}
    if "posterior" in inspect.signature(make).parameters:  # ArviZ 0.x: a keyword for each group
        return make(**named, coords=labels, dims=axes)
    return make(named, coords=labels, dims=axes)  # ArviZ 1.x: one nested dictionary


def summarise(data: Any, *, level: float | None = None, **settings: Any) -> pd.DataFrame:
    """Return ``arviz.summary`` of ArviZ data, with those statistics that can be computed.

    R-hat compares chains: of one chain only the ``"stats"`` are shown (mean, standard deviation, interval), unless
    ``kind`` says otherwise. Of one draw only the mean is.

    Parameters
    ----------
    data
        What :func:`to_arviz` returns, with a group ``posterior``.
    level
        If given, the interval is the equal-tailed one at this level, in place of ArviZ's own.
    settings
        Passed on.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1, 100))
    >>> list(summarise(to_arviz({"posterior": {"b": draws}})))[:2]
    ['mean', 'sd']
    >>> summarise(to_arviz({"posterior": {"b": draws[:, :1]}})).round(2).to_dict("index")
    {'b': {'mean': 0.13}}
    """
    _maker()  # imports ArviZ quietly
    from arviz import summary

    group = data["posterior"]
    sizes = {name: int(group.sizes[name]) for name in ("chain", "draw")}
    one_draw = sizes["chain"] * sizes["draw"] == 1
    if one_draw:  # ArviZ would take the spread of one number, which is none
        group = group.to_dataset() if hasattr(group, "to_dataset") else group
        values = {name: np.repeat(each.to_numpy(), 4, axis=1) for name, each in group.data_vars.items()}
        dims = {name: list(each.dims[2:]) for name, each in group.data_vars.items()}
        coords = {name: each.to_numpy() for name, each in group.coords.items() if name not in sizes}
        data = to_arviz({"posterior": values}, coords=coords, dims=dims)
    if one_draw or sizes["chain"] == 1:
        settings = {"kind": "stats"} | settings
    if level is not None and "ci_kind" in inspect.signature(summary).parameters:  # ArviZ 1.x
        settings = {"ci_kind": "eti", "ci_prob": level} | settings
    elif level is not None and not {"hdi_prob", "stat_funcs", "stat_focus"} & settings.keys():
        return _equal_tailed(data, summary, level, settings)[["mean"] if one_draw else slice(None)]
    found: Any = summary(data, **settings)
    table = pd.DataFrame(found)
    return table[["mean"]] if one_draw else table


def _equal_tailed(data: Any, summary: Any, level: float, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Return the summary of ArviZ 0.x with the equal-tailed interval where its highest-density one stands."""
    tail = (1.0 - level) / 2.0
    ends = {f"eti_{100 * at:g}%": partial(np.quantile, q=at) for at in (tail, 1.0 - tail)}
    found = pd.DataFrame(summary(data, stat_funcs=ends, **settings))
    densest = [name for name in found if str(name).startswith("hdi_")]
    place = [name for name in found if name not in ends and name not in densest]
    return found[[*place[:2], *ends, *place[2:]]] if densest else found


def _maker() -> Any:
    """Import ArviZ when it is asked for: that takes seconds, and most users of the package never ask for it."""
    with warnings.catch_warnings():
        # ArviZ 0.23 announces ArviZ 1 once a day; this module serves both.
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
        from arviz import from_dict

    return from_dict
