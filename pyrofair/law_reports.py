"""What is there to see of fitted laws? Their history, how good they are, and their draws, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.law_fitting import Fit, Rows, log_likelihood

__all__ = ["held_out_lines", "held_out_table", "history_table", "inference_groups"]


def history_table(fits: Mapping[str, Fit]) -> pd.DataFrame:
    """Return a row for each look at the held-out rows: column, step, loss, held_out."""
    parts = [pd.DataFrame(fit.history).assign(column=name) for name, fit in fits.items()]
    table = pd.concat(parts, ignore_index=True)[["column", "step", "loss", "held_out"]]
    return table.astype({"step": int})


def held_out_table(fits: Mapping[str, Fit], rows: Rows, marginal: Mapping[str, float]) -> pd.DataFrame:
    """Return a row for each column: what it reads, and its log-likelihood beside that of its marginal law."""
    found = []
    for name, fit in fits.items():
        value = log_likelihood(fit.law, fit.centre, rows, rows.held)
        found.append(
            {
                "column": name,
                "reads": ", ".join(fit.law.reads),
                "family": type(fit.law.family).__name__,
                "rows": len(rows.held),
                "log_likelihood": value,
                "marginal": marginal[name],
                "gain": value - marginal[name],
            }
        )
    return pd.DataFrame(found)


def held_out_lines(table: pd.DataFrame) -> list[str]:
    """Return what :func:`held_out_table` says as text, a line for each column."""
    lines = ["log-likelihood of held-out rows in nats per row, and gain over the marginal law:"]
    for row in table.to_dict("records"):
        given = f" | {row['reads']}" if row["reads"] else ""
        lines.append(f"  {row['column']}{given}: {row['family']}, {row['log_likelihood']:.3f} ({row['gain']:+.3f})")
    return lines


def inference_groups(fits: Mapping[str, Fit], rows: Rows, draws: int) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the groups of ArviZ data, one chain each; predictive draws are drawn from torch's global generator.

    Parameters
    ----------
    fits, rows
        The laws, and the table.
    draws
        The predictive draws of each row: one for each of the first draws of the posterior, or all from a point.
    """
    predicted: dict[str, NDArray[Any]] = {}
    for name, fit in fits.items():
        known = min((len(values) for values in fit.draws.values()), default=1)
        each = []
        for i in range(draws if known == 1 else min(draws, known)):
            law = fit.law.at({site: values[min(i, known - 1)] for site, values in fit.draws.items()})
            each.append(law(rows.columns).expand(rows.weight.shape).sample().numpy())
        predicted[name] = np.stack(each)[None]
    table = history_table(fits).pivot_table("loss", "step", "column", dropna=False).reindex(columns=[*fits])
    groups = {
        "posterior": {site: values.numpy()[None] for fit in fits.values() for site, values in fit.draws.items()},
        "posterior_predictive": predicted,
        "observed_data": {name: rows.columns[name].numpy() for name in fits},
        "sample_stats": {"loss": table.to_numpy()[None]},
    }
    return {group: variables for group, variables in groups.items() if variables}
