"""Latent variables, fair copies and predictions of given people as ArviZ data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pyrofair.inference_data import to_arviz

__all__ = ["people_to_arviz"]


def people_to_arviz(
    posterior: Mapping[str, npt.ArrayLike],
    predicted: Mapping[str, npt.ArrayLike],
    observed: Mapping[str, npt.ArrayLike],
    losses: npt.ArrayLike,
    vectors: Collection[str],
) -> Any:
    """Return draws of given people as ArviZ data, in one chain.

    Parameters
    ----------
    posterior, predicted
        For each site its draws, shape (draws, people, ...).
    observed
        For each site what was observed, shape (people,).
    losses
        The loss of each epoch.
    vectors
        The sites that hold several numbers a person.

    Returns
    -------
    arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
    """
    groups: dict[str, dict[str, Any]] = {
        "posterior": {name: _chain(values) for name, values in posterior.items()},
        "posterior_predictive": {name: _chain(values) for name, values in predicted.items()},
        "sample_stats": {"loss": _chain(losses)},
    }
    if observed:
        groups["observed_data"] = {name: np.asarray(values) for name, values in observed.items()}
    dims = {name: ["person"] for name in (*posterior, *predicted)}
    return to_arviz(groups, dims=dims | {name: ["person", f"{name}_dim"] for name in vectors})


def _chain(values: npt.ArrayLike) -> npt.NDArray[Any]:
    return np.asarray(values)[None]
