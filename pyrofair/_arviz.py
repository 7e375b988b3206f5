"""Draws as ArviZ data, under ArviZ 0.x and 1.x alike."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_real

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


def summarise(data: Any, *, level: float = 0.95) -> pd.DataFrame:
    """Return mean, standard deviation and equal-tailed interval of each number, and how well its chains tell it.

    All is computed here or asked of ArviZ by name, so that neither its version nor its settings change a number.

    Parameters
    ----------
    data
        What :func:`to_arviz` returns, with a group ``posterior``.
    level
        Of the interval, which has a share ``(1 - level) / 2`` of the draws below it and above it each.

    Returns
    -------
    DataFrame with a row for each number, named ``NAME`` or ``NAME[LABEL, ...]``
        ``mean``, ``sd``, and the ends ``eti_2.5%`` and ``eti_97.5%`` (at level 0.95); of several chains ``mcse_mean``
        and ``mcse_sd`` (Monte-Carlo standard errors), ``ess_bulk`` and ``ess_tail`` (effective sample sizes, the second
        the lesser of those of the 5 % and 95 % quantiles) and ``r_hat`` (rank-normalised split R-hat), all of Vehtari
        et al. (2021). Of one draw the mean alone.

    Raises
    ------
    DataError
        If the level is not between 0 and 1.

    Examples
    --------
    >>> draws = np.arange(101.0)[None]
    >>> summarise(to_arviz({"posterior": {"b": draws}}), level=0.9).round(2).to_dict("index")
    {'b': {'mean': 50.0, 'sd': 29.3, 'eti_5%': 5.0, 'eti_95%': 95.0}}
    >>> summarise(to_arviz({"posterior": {"b": draws[:, :1]}})).to_dict("index")
    {'b': {'mean': 0.0}}
    """
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    group = data["posterior"]
    group = group.to_dataset() if hasattr(group, "to_dataset") else group
    chains, draws = (int(group.sizes[name]) for name in ("chain", "draw"))
    tail = (1.0 - level) / 2.0
    columns: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {"mean": lambda x: x.mean(axis=0)}
    if chains * draws > 1:
        columns["sd"] = lambda x: x.std(axis=0, ddof=1)
        columns |= {f"eti_{100 * at:g}%": partial(np.quantile, q=at, axis=0) for at in (tail, 1.0 - tail)}
    rows = [label for name, each in group.data_vars.items() for label in _labels(str(name), each)]
    flat = [each.to_numpy().reshape(chains * draws, -1) for each in group.data_vars.values()]
    found = pd.DataFrame({name: np.concatenate([of(x) for x in flat]) for name, of in columns.items()}, index=rows)
    return found.assign(**_diagnose(group)) if chains > 1 else found


def _labels(name: str, values: Any) -> list[str]:
    """Return the name of each number of a variable, as ArviZ names them."""
    inner = [dim for dim in values.dims if dim not in ("chain", "draw")]
    known = [values.coords[dim].to_numpy() if dim in values.coords else np.arange(values.sizes[dim]) for dim in inner]
    return [f"{name}[{', '.join(map(str, labels))}]" if labels else name for labels in product(*known)]


def _diagnose(group: Any) -> dict[str, NDArray[np.float64]]:
    """Return what several chains tell of each number."""
    _maker()  # imports ArviZ quietly
    import arviz

    tools: Any = arviz
    asked = {
        "mcse_mean": tools.mcse(group, method="mean"),
        "mcse_sd": tools.mcse(group, method="sd"),
        "ess_bulk": tools.ess(group, method="bulk"),
        "ess_tail": tools.ess(group, method="tail", prob=(0.05, 0.95)),
        "r_hat": tools.rhat(group, method="rank"),
    }
    return {
        name: np.concatenate([np.ravel(table[variable].to_numpy()) for variable in group.data_vars])
        for name, table in asked.items()
    }


def _maker() -> Any:
    """Import ArviZ when it is asked for: that takes seconds, and most users of the package never ask for it."""
    with warnings.catch_warnings():
        # ArviZ 0.23 announces ArviZ 1 once a day; this module serves both.
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
        from arviz import from_dict

    return from_dict
