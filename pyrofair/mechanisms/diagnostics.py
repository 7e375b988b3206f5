"""Diagnostics of learned mechanisms: calibration and fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from scipy.stats import kstwobign
from torch import Tensor

from pyrofair._figures import ShownFigure
from pyrofair.mechanisms.conditional import ConditionalDistribution
from pyrofair.mechanisms.families import Family, decode, support
from pyrofair.mechanisms.fitting import Fit, Rows, log_likelihood
from pyrofair.programs.couplings import CouplingError
from pyrofair.programs.noise import noise_of

__all__ = [
    "Checked",
    "calibrate",
    "check_fits",
    "held_out_lines",
    "held_out_table",
    "history_table",
    "inference_groups",
    "plot_calibration",
]

BLUE, RED, GREY = "#0072B2", "#D55E00", "#666666"
POINTS = 60
"""So many values of a column are compared one by one; more are compared in bins."""
LABELS = 7
DRAWS = 200
"""Draws of a distribution without a distribution function."""
BAND = 0.95
PAIRS = 3
"""So many columns stand one above the other; more, in two rows of pictures."""


@dataclass(frozen=True, eq=False)
class Checked:
    """The predicted distributions of a column beside what was observed.

    Parameters
    ----------
    column, family
        The column.
    law
        Its distribution for each of n rows.
    observed, weight
        What was observed, and the weight of each row, shape (n,); weights sum to 1.
    place
        Where in its distribution each value lies, shape (n,): the probability of a smaller value plus a random share of
        that of the value itself (the probability integral transform). Uniform if the distributions are right.
    """

    column: str
    family: Family
    law: Any = field(repr=False)
    observed: Tensor = field(repr=False)
    weight: NDArray[np.float64] = field(repr=False)
    place: NDArray[np.float64] = field(repr=False)

    @property
    def size(self) -> float:
        """The effective number of rows."""
        return float(1.0 / np.square(self.weight).sum())

    def inside(self, share: float) -> float:
        """Return how many of the rows lie in the middle part of their distributions that should hold a share of
        them.
        """
        return float(self.weight[np.abs(self.place - 0.5) <= share / 2.0].sum())

    def distance(self) -> float:
        """Return the Kolmogorov distance of the places from the uniform distribution."""
        place, share = self.steps()
        before = np.concatenate([[0.0], share[:-1]])
        return float(max(np.abs(share - place).max(), np.abs(before - place).max()))

    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the places in order, and the share of rows at or below each."""
        order = np.argsort(self.place)
        return self.place[order], self.weight[order].cumsum()

    def below(self, ends: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the predicted and the observed probability of being at most each of some values."""
        predicted = [
            float(self.weight @ _below(self.column, self.law, end.expand(self.observed.shape))) for end in ends
        ]
        observed = [float(self.weight[(self.observed <= end).numpy()].sum()) for end in ends]
        return np.array(predicted), np.array(observed)


def check_fits(fits: Mapping[str, Fit], rows: Rows) -> list[Checked]:
    """Put distributions beside the held-out rows (all, if none were held out), with random shares from torch's
    generator.
    """
    places = rows.held if len(rows.held) else rows.train
    values, weight = rows.at(places), rows.weight[places]
    return [
        _check(fit.mechanism, fit.mechanism.at(fit.centre)(values), values[name], weight) for name, fit in fits.items()
    ]


def _check(conditional: ConditionalDistribution, law: Any, values: Tensor, weight: Tensor) -> Checked:
    column, law = conditional.column, law.expand(values.shape)
    try:
        low, high = noise_of(column, law, values)
    except CouplingError:
        drawn = law.sample((DRAWS,))
        low, high = (drawn < values).float().mean(0), (drawn <= values).float().mean(0)
    place = (low + (high - low) * torch.rand(values.shape)).clamp(0.0, 1.0)
    share = weight.double().numpy()
    return Checked(column, conditional.family, law, values, share / share.sum(), place.double().numpy())


def _below(column: str, law: Any, values: Tensor) -> NDArray[np.float64]:
    try:
        high = noise_of(column, law, values)[1]
    except CouplingError:
        high = (law.sample((DRAWS,)) <= values).float().mean(0)
    return np.asarray(high.double().numpy())


def calibrate(checked: Sequence[Checked]) -> pd.DataFrame:
    """Return a row for each column.

    Returns
    -------
    DataFrame
        column, family, rows; pit_distance: the Kolmogorov distance of the places of the values in their distributions
        from uniform, and pit_p, its p-value; inside_50 and inside_90: the share of rows in the middle half and nine
        tenths of their distributions; gap: the largest difference between the predicted and the observed probability of
        being at most some value, over all rows. A spike in a column of real numbers, of which a density knows nothing,
        shows as a step at its place, and as a gap.
    """
    rows = []
    for one in checked:
        distance = one.distance()
        predicted, observed = one.below(_points(one))
        rows.append(
            {
                "column": one.column,
                "family": type(one.family).__name__,
                "rows": len(one.observed),
                "pit_distance": distance,
                "pit_p": float(kstwobign.sf(distance * np.sqrt(one.size))),
                "inside_50": one.inside(0.5),
                "inside_90": one.inside(0.9),
                "gap": float(np.abs(predicted - observed).max()),
            }
        )
    return pd.DataFrame(rows)


def _points(one: Checked) -> Tensor:
    """Return the values of a column or, if they are many, so many of its quantiles."""
    known: Tensor = torch.unique(one.observed)
    if len(known) <= POINTS:
        return known
    return torch.quantile(one.observed, torch.linspace(0.0, 1.0, POINTS), interpolation="nearest")


# -- the picture ------------------------------------------------------------------------------------------------------


def plot_calibration(checked: Sequence[Checked]) -> Figure:
    """Draw for each column the predicted distribution beside what was observed, and where values lie in their
    distributions.

    Returns
    -------
    matplotlib.figure.Figure
        A figure of its own: save it, or let a notebook show it.
    """
    pairs = 1 if len(checked) <= PAIRS else 2
    count = -(-len(checked) // pairs)
    figure = ShownFigure(figsize=(1.0 + 5.5 * pairs, 0.8 + 1.75 * count), layout="constrained")
    panels = figure.subplots(count, 2 * pairs, squeeze=False, width_ratios=[3, 2] * pairs)
    for axes in panels.flat:
        axes.set_visible(False)
    for i, one in enumerate(checked):
        left, right = panels[i // pairs, 2 * (i % pairs) : 2 * (i % pairs) + 2]
        _draw_law(left, one)
        _draw_places(right, one)
        for axes in (left, right):
            axes.set_visible(True)
            axes.tick_params(labelsize=7)
            axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=[
            Patch(color=GREY, alpha=0.4, label="observed"),
            Line2D([], [], color=RED, marker="o", markersize=4, label="predicted, averaged over rows"),
            Line2D([], [], color=BLUE, label="share of rows below their distribution's quantile, minus its level"),
            Patch(color=BLUE, alpha=0.15, label=f"{BAND:.0%} of right distributions stay inside"),
        ],
        loc="outside lower center",
        ncols=2 * pairs,
        frameon=False,
        fontsize=8,
    )
    return figure


def _draw_law(axes: Axes, one: Checked) -> None:
    known = support(one.family)
    axes.set_title(one.column, fontsize=9, loc="left")
    if known is not None and len(known) <= POINTS:
        predicted, observed = (np.diff(each, prepend=0.0) for each in one.below(known))
        labels = decode(one.family, known)
        place = labels if np.issubdtype(labels.dtype, np.number) else known.numpy()
        axes.bar(place, observed, width=0.8 * np.diff(place).min(initial=1.0), color=GREY, alpha=0.4, linewidth=0)
        axes.plot(place, predicted, "o", color=RED, markersize=3)
        if len(labels) > LABELS and place is not labels:
            axes.set_xlabel("place of the level", fontsize=7)
        elif len(labels) <= LABELS:
            texts = [str(each) for each in labels]
            axes.set_xticks(place, [each if len(each) < 12 else each[:11] + "…" for each in texts])
            axes.tick_params(axis="x", rotation=20 if sum(map(len, texts)) > 40 else 0)
        axes.set_ylabel("probability", fontsize=7)
    else:
        edges = np.linspace(float(one.observed.min()), float(one.observed.max()), 41)
        if known is not None:
            edges = np.unique(edges.round()) + 0.5
        predicted, observed = (np.diff(each) for each in one.below(torch.as_tensor(edges, dtype=one.observed.dtype)))
        width, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2.0
        axes.bar(middle, observed / width, width=width, color=GREY, alpha=0.4, linewidth=0)
        axes.plot(middle, predicted / width, "-", color=RED, linewidth=1.2)
        axes.set_ylabel("density", fontsize=7)


def _draw_places(axes: Axes, one: Checked) -> None:
    place, share = one.steps()
    band = kstwobign.ppf(BAND) / np.sqrt(one.size)
    axes.axhspan(-band, band, color=BLUE, alpha=0.15, linewidth=0)
    axes.axhline(0.0, color=GREY, linewidth=0.6)
    axes.plot(
        np.concatenate([[0.0], place, [1.0]]), np.concatenate([[0.0], share - place, [0.0]]), color=BLUE, linewidth=1
    )
    most = 1.6 * max(band, one.distance())
    axes.set(xlim=(0.0, 1.0), ylim=(-most, most), xticks=(0.0, 0.5, 1.0))


def history_table(fits: Mapping[str, Fit]) -> pd.DataFrame:
    """Return a row for each look at the held-out rows: column, step, loss, held_out."""
    parts = [pd.DataFrame(fit.history).assign(column=name) for name, fit in fits.items()]
    table = pd.concat(parts, ignore_index=True)[["column", "step", "loss", "held_out"]]
    return table.astype({"step": int})


def held_out_table(fits: Mapping[str, Fit], rows: Rows, marginal: Mapping[str, float]) -> pd.DataFrame:
    """Return a row for each column: what it reads, and its log-likelihood beside that of its marginal distribution."""
    found = []
    for name, fit in fits.items():
        value = log_likelihood(fit.mechanism, fit.centre, rows, rows.held)
        found.append(
            {
                "column": name,
                "reads": ", ".join(fit.mechanism.reads),
                "family": type(fit.mechanism.family).__name__,
                "rows": len(rows.held),
                "log_likelihood": value,
                "marginal": marginal[name],
                "gain": value - marginal[name],
            }
        )
    return pd.DataFrame(found)


def held_out_lines(table: pd.DataFrame) -> list[str]:
    """Return what :func:`held_out_table` says as text, a line for each column."""
    lines = ["log-likelihood of held-out rows in nats per row, and gain over the marginal distribution:"]
    for row in table.to_dict("records"):
        given = f" | {row['reads']}" if row["reads"] else ""
        lines.append(f"  {row['column']}{given}: {row['family']}, {row['log_likelihood']:.3f} ({row['gain']:+.3f})")
    return lines


def inference_groups(fits: Mapping[str, Fit], rows: Rows, draws: int) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the groups of ArviZ data, one chain each; predictive draws are drawn from torch's global generator.

    Parameters
    ----------
    fits, rows
        The distributions, and the table.
    draws
        The predictive draws of each row: one for each of the first draws of the posterior, or all from a point.
    """
    predicted: dict[str, NDArray[Any]] = {}
    for name, fit in fits.items():
        known = min((len(values) for values in fit.draws.values()), default=1)
        each = []
        for i in range(draws if known == 1 else min(draws, known)):
            law = fit.mechanism.at({site: values[min(i, known - 1)] for site, values in fit.draws.items()})
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
