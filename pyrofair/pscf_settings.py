"""Which settings of PSCF make sense? Errors for those that do not, before anything is computed."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyrofair.exceptions import DataError
from pyrofair.law_tables import require_families
from pyrofair.paths import UnfairPaths
from pyrofair.tables import feature_columns

__all__ = ["require_settings"]

ZERO = ("mmd", "weight_decay")
OPTIONAL = ("latent_size", "epochs", "own_noise")


def require_settings(pscf: Any) -> None:
    """Refuse settings that make no sense.

    Parameters
    ----------
    pscf
        A :class:`pyrofair.PSCF`.

    Raises
    ------
    DataError
        With the setting, its value, and what it may be.
    """
    if not isinstance(pscf.unfair, UnfairPaths):
        raise DataError(f"unfair={pscf.unfair!r} must be unfair paths, made by graph.unfair(...).")
    if pscf.latents not in ("posterior", "prior"):
        raise DataError(f"latents={pscf.latents!r} is not known; it is 'posterior' or 'prior'.")
    if pscf.average not in ("probability", "decision"):
        raise DataError(f"average={pscf.average!r} is not known; it is 'probability' or 'decision'.")
    for name in ("samples", "latent_size", "hidden", "components", "epochs", "batch_size"):
        value = getattr(pscf, name)
        if not _is_count(value) and not (value is None and name in OPTIONAL):
            raise DataError(f"{name}={value!r} must be a positive whole number.")
    for name in ("mmd", "weight_decay", "learning_rate", "own_noise"):
        value = getattr(pscf, name)
        if not _is_size(value, zero=name in ZERO) and not (value is None and name in OPTIONAL):
            least = "not negative" if name in ZERO else "above 0"
            raise DataError(f"{name}={value!r} must be a finite number, {least}.")
    layers = pscf.encoder_hidden
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not all(map(_is_count, layers)):
        raise DataError(f"encoder_hidden={layers!r} must be a tuple of positive whole numbers, such as (20, 20).")
    graph = pscf.unfair.graph
    known = [column for column in feature_columns(graph) if column != graph.sensitive_column]
    require_families(pscf.families or {}, known)


def _is_count(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) > 0


def _is_size(value: object, *, zero: bool) -> bool:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    number = float(value)
    return 0.0 <= number < np.inf and (zero or number > 0.0)
