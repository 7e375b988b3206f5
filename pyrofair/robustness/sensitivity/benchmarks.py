"""What observed columns add to the odds of the sensitive attribute, to compare hidden causes with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_names, shown
from pyrofair.exceptions import DataError
from pyrofair.graph.identification import Estimand
from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.robustness.sensitivity.hidden_causes import HiddenCause
from pyrofair.robustness.sensitivity.tilting import weighted_quantiles
from pyrofair.sources.prefix_form import PrefixForm
from pyrofair.tables.recorded import flag_of

__all__ = ["read_shared_columns", "strengths_of_columns"]

QUANTILES = {"q50": 0.5, "q90": 0.9, "q99": 0.99, "max": 1.0}
LEVELS = np.array([*QUANTILES.values()]) - 1e-12
NONE = "(none)"


def read_shared_columns(form: PrefixForm, columns: object) -> dict[str, list[str]]:
    """Return for each column asked for, all unless any are named, those without it that the attribute does not cause.

    Without a column is without the flag of its missing values as well.
    """
    part, rows = form.worlds[1].part, form.nuisances.rows
    known = list(form.nuisances.graph.columns_of(part.order[: part.roots]))
    if not known:
        raise DataError("A benchmark takes columns that the sensitive attribute does not cause, and there are none.")
    asked = _asked(columns, _recorded(known, rows), "columns that the sensitive attribute does not cause")
    return {name: _without(name, known, rows) for name in asked}


def _recorded(columns: Sequence[str], rows: Rows) -> list[str]:
    """Return which columns are those of the user, and no flags of missing values."""
    return [name for name in columns if name in rows.given]


def _without(name: str, columns: Sequence[str], rows: Rows) -> list[str]:
    """Return columns but one, and the flag of its missing values."""
    return [each for each in columns if each != name and (each != flag_of(name) or each in rows.given)]


def _asked(columns: object, known: list[str], what: str) -> list[str]:
    """Return the columns that were asked for, all unless any are named."""
    asked = known if columns is None else list(dict.fromkeys(require_names("columns", columns, "columns", one=True)))
    if not {*asked} <= {*known}:
        raise DataError(f"columns={shown(columns)}: a benchmark takes {what}, which are {', '.join(known) or 'none'}.")
    return asked


def strengths_of_columns(
    nuisances: Nuisances, causes: Sequence[HiddenCause], estimand: Estimand, columns: object = None
) -> pd.DataFrame:
    """Return quantiles of the odds ratios of A without and with each column: see ``Confounding.benchmark``."""
    graph, roots = nuisances.graph, estimand.baseline.order[: estimand.baseline.roots]
    named: dict[tuple[str, ...], dict[str, None]] = {}
    for cause in causes:
        for blocks in cause.blocks:
            for block in blocks:
                if block.kind:
                    given = roots if block.kind == "group" else block.stage.given
                    named.setdefault(given, {})[cause.name] = None
    known = list(dict.fromkeys(column for given in named for column in graph.columns_of(given)))
    rows = nuisances.rows
    asked = _asked(columns, _recorded(known, rows), "columns that a propensity is given which a hidden cause moves")
    lines = []
    for given, names in named.items():
        own = graph.columns_of(given)
        for name in [*(each for each in asked if each in own), *([NONE] if own else [])]:
            ratio = _ratios(nuisances, given, _without(name, own, rows), other_folds=name == NONE)
            of = ", ".join(_recorded(own, rows))
            lines.append((", ".join(names), of, name, *weighted_quantiles(ratio, rows.weight[rows.kept], LEVELS)))
    return pd.DataFrame(lines, columns=["hidden_causes", "of", "column", *QUANTILES])


def _ratios(
    nuisances: Nuisances, given: tuple[str, ...], columns: list[str], *, other_folds: bool
) -> NDArray[np.float64]:
    """Return by what factor the odds of each fitted row change with a propensity of other columns."""
    rows = nuisances.rows
    kept = rows.kept
    model = CrossFit(nuisances.propensity, nuisances.seed + int(other_folds), nuisances.folds)
    model.fit(rows.table.loc[kept, columns], rows.a[kept], rows.weight[kept], rows.near(kept))
    with np.errstate(divide="ignore", invalid="ignore"):
        with_all, without = (np.log(p) - np.log1p(-p) for p in (nuisances.probability(rows, given)[kept], model.fitted))
        return np.asarray(np.exp(np.abs(np.where(with_all == without, 0.0, with_all - without))))
