"""Draws as ArviZ data under ArviZ 0.x and 1.x, their summaries, and equal-tailed intervals."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_real

__all__ = ["diagnose", "equal_tailed", "summarise", "to_arviz"]


def to_arviz(
    groups: Mapping[str, Mapping[str, Any]],
    *,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """Return groups of variables as arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (1.x): ``data["posterior"]``.

    Variables of sampled groups have shape (chain, draw, ...), those of ``"observed_data"`` no such axes; ``coords`` are
    the labels along each dimension, and ``dims`` name the dimensions of a variable after chain and draw.
    """
    make = _arviz().from_dict
    named = {group: {name: np.asarray(values) for name, values in of.items()} for group, of in groups.items()}
    labels = {name: list(values) for name, values in (coords or {}).items()}
    axes = {name: list(names) for name, names in (dims or {}).items()}
    if "posterior" in inspect.signature(make).parameters:  # ArviZ 0.x: a keyword for each group
        return make(**named, coords=labels, dims=axes)
    return make(named, coords=labels, dims=axes)  # ArviZ 1.x: one nested dictionary


def equal_tailed(draws: NDArray[Any], level: float) -> tuple[Any, Any]:
    """Return the ends of the interval that leaves out a share ``(1 - level) / 2`` of the draws on either side."""
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    return low, high


def summarise(data: Any, *, level: float = 0.95) -> pd.DataFrame:
    """Return mean, standard deviation, equal-tailed interval and, of several chains, diagnostics of each number.

    Rows are named ``NAME`` or ``NAME[LABEL, ...]``; columns are ``mean``, ``sd``, ``eti_2.5%`` and ``eti_97.5%`` (at
    level 0.95) and, of several chains, ``mcse_mean``, ``mcse_sd``, ``ess_bulk``, ``ess_tail`` (the lesser of those of
    the 5 % and 95 % quantiles) and ``r_hat`` (rank-normalised, split; Vehtari et al., 2021). Of one draw there is the
    mean alone. ArviZ is asked for each number by name, so that its version and settings change none.
    """
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    group = _variables(data)
    chains, draws = (int(group.sizes[name]) for name in ("chain", "draw"))
    flat = [each.to_numpy().reshape(chains * draws, -1) for each in group.data_vars.values()]
    values = np.concatenate(flat, axis=1)
    columns = {"mean": values.mean(axis=0)}
    if chains * draws > 1:
        low, high = equal_tailed(values, level)
        tail = 50.0 * (1.0 - level)
        columns |= {"sd": values.std(axis=0, ddof=1), f"eti_{tail:g}%": low, f"eti_{100.0 - tail:g}%": high}
    if chains > 1:
        columns |= _diagnose(group)
    rows = [label for name, each in group.data_vars.items() for label in _labels(str(name), each)]
    return pd.DataFrame(columns, index=rows)


def diagnose(samples: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[np.float64]], ...]:
    """Return bulk effective sample sizes and split R-hat of samples (chain, draw, ...); of one chain, of its halves."""
    halves = {}
    for name, values in samples.items():
        half = values.shape[1] // 2
        halves[name] = np.stack([values[0, :half], values[0, -half:]]) if len(values) == 1 else values
    sampled, compared = (_variables(to_arviz({"posterior": each})) for each in (samples, halves))
    with np.errstate(divide="ignore", invalid="ignore"):  # of chains that never moved
        tables = _arviz().ess(sampled, method="bulk"), _arviz().rhat(compared, method="split")
    return tuple({name: table[name].to_numpy().astype(np.float64) for name in samples} for table in tables)


def _variables(data: Any) -> Any:
    """Return the posterior of ArviZ data as an xarray.Dataset."""
    group = data["posterior"]
    return group.to_dataset() if hasattr(group, "to_dataset") else group


def _labels(name: str, values: Any) -> list[str]:
    """Return the name of each number of a variable, as ArviZ names them."""
    inner = [dim for dim in values.dims if dim not in ("chain", "draw")]
    known = [values.coords[dim].to_numpy() if dim in values.coords else np.arange(values.sizes[dim]) for dim in inner]
    return [f"{name}[{', '.join(map(str, labels))}]" if labels else name for labels in product(*known)]


def _diagnose(group: Any) -> dict[str, NDArray[np.float64]]:
    """Return the standard errors, effective sample sizes and R-hat of each number in several chains."""
    tools = _arviz()
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


def _arviz() -> Any:
    """Import ArviZ, which takes seconds, only where it is needed, and without its announcement."""
    with warnings.catch_warnings():
        # ArviZ 0.23 announces ArviZ 1 once a day; this module serves both.
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
        import arviz

    return arviz
