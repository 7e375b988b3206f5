"""Which settings of PSCF make sense? Errors for those that do not, before anything is computed."""

from __future__ import annotations

import math
from typing import Any

from pyrofair._validation import (
    require_choice,
    require_flag,
    require_integer,
    require_layers,
    require_rate,
    require_real,
    require_seed,
)
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
    require_choice("latents", pscf.latents, ("posterior", "prior"))
    require_choice("average", pscf.average, ("probability", "decision"))
    for name in ("samples", "latent_size", "hidden", "components", "epochs", "batch_size"):
        if getattr(pscf, name) is not None or name not in OPTIONAL:
            require_integer(name, getattr(pscf, name))
    require_rate(pscf.learning_rate)
    for name in ("mmd", "weight_decay", "own_noise"):
        if getattr(pscf, name) is not None or name not in OPTIONAL:
            least, above = (0.0, -math.inf) if name in ZERO else (-math.inf, 0.0)
            require_real(name, getattr(pscf, name), least=least, above=above)
    require_layers("encoder_hidden", pscf.encoder_hidden)
    require_flag("progress", pscf.progress)
    require_seed(pscf.random_state)
    graph = pscf.unfair.graph
    known = [column for column in feature_columns(graph) if column != graph.sensitive_column]
    require_families({} if pscf.families is None else pscf.families, known)
