"""Calibration of learned mechanisms: predicted against observed distributions, as a table and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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

from pyrofair._figures import BLUE, GREY, LEGEND, RED, TEXT, finish, make_figure
from pyrofair.mechanisms.families import GAP, Family, decode, support
from pyrofair.mechanisms.fitting import Fit, Rows
from pyrofair.programs.couplings import CouplingError, noise_of

__all__ = ["check_fits", "describe_misfit", "plot_calibration"]

POINTS = 60
"""So many values of a column are compared one by one; more are compared in bins."""
LABELS = 7
DRAWS = 200
"""Draws of a distribution without a distribution function."""
BAND = 0.95
LEAST_P, LEAST_DISTANCE, FEWEST = 1e-4, 0.05, 20
"""Rows refute distributions by a p-value below the first over all tests, so far from uniform, in groups of so many."""
PAIRS = 3
"""So many columns stand one above the other; more, in two rows of pictures."""


@dataclass(frozen=True, eq=False)
class Checked:
    """The predicted distributions of a column for n rows beside the values observed, (n,), with weights (n,), sum 1.

    ``pit`` (n,) is the probability integral transform of each value: the probability of a smaller value plus a random
    share of that of the value itself. It is uniform if the distributions are right.
    """

    column: str
    family: Family
    predicted: Any = field(repr=False)
    observed: Tensor = field(repr=False)
    weight: NDArray[np.float64] = field(repr=False)
    pit: NDArray[np.float64] = field(repr=False)

    @property
    def size(self) -> float:
        """The effective number of rows."""
        return float(1.0 / np.square(self.weight).sum())

    def inside(self, share: float) -> float:
        """Return the share of rows in the middle part of their distributions, which should hold a given share."""
        return float(self.weight[np.abs(self.pit - 0.5) <= share / 2.0].sum())

    def distance(self) -> float:
        """Return the Kolmogorov distance of the transforms from the uniform distribution."""
        pit, share = self.steps()
        return float(np.abs([share - pit, np.append(0.0, share[:-1]) - pit]).max())

    def p_value(self) -> float:
        """Return the probability of so large a distance if the distributions are right."""
        return float(kstwobign.sf(self.distance() * np.sqrt(self.size)))

    def among(self, chosen: NDArray[np.bool_]) -> Checked:
        """Return the comparison of some rows (n,) alone, without their distributions."""
        at, weight = torch.from_numpy(chosen), self.weight[chosen]
        return replace(
            self, predicted=None, observed=self.observed[at], weight=weight / weight.sum(), pit=self.pit[chosen]
        )

    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the transforms in order, and the share of rows at or below each, shapes (n,)."""
        order = np.argsort(self.pit)
        return self.pit[order], self.weight[order].cumsum()

    def below(self, ends: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the predicted and the observed probability of being at most each of some values, shapes (k,)."""
        most = [_spans(self.column, self.predicted, end.expand(self.observed.shape))[1] for end in ends]
        predicted = [float(self.weight @ each.double().numpy()) for each in most]
        observed = [float(self.weight[(self.observed <= end).numpy()].sum()) for end in ends]
        return np.array(predicted), np.array(observed)

    def points(self) -> Tensor:
        """Return the values of the column or, if they are many, so many of its quantiles, shape (k,)."""
        values: Tensor = torch.unique(self.observed)
        if len(values) <= POINTS:
            return values
        return torch.quantile(self.observed, torch.linspace(0.0, 1.0, POINTS), interpolation="nearest")

    def as_row(self) -> dict[str, object]:
        """Return a row of :meth:`pyrofair.LearnedMechanisms.calibration`."""
        predicted, observed = self.below(self.points())
        return {
            "column": self.column,
            "family": type(self.family).__name__,
            "rows": len(self.observed),
            "pit_distance": self.distance(),
            "pit_p": self.p_value(),
            "inside_50": self.inside(0.5),
            "inside_90": self.inside(0.9),
            "gap": float(np.abs(predicted - observed).max()),
        }


def _spans(column: str, predicted: Any, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probabilities of less than each value and of at most it, shapes (n,), by draws if need be."""
    try:
        return noise_of(column, predicted, values)
    except CouplingError:
        drawn = predicted.sample((DRAWS,))
        return (drawn < values).float().mean(0), (drawn <= values).float().mean(0)


def check_fits(fits: Mapping[str, Fit], rows: Rows) -> list[Checked]:
    """Compare mechanisms with the held-out rows (all, if none were held out), random shares from torch's generator."""
    chosen = rows.held if len(rows.held) else rows.train
    values, weight = rows.at(chosen), rows.weight[chosen].double().numpy()
    found = []
    for name, fit in fits.items():
        predicted, observed = fit.mechanism.at(fit.centre)(values).expand(weight.shape), values[name]
        low, high = _spans(name, predicted, observed)
        pit = (low + (high - low) * torch.rand(observed.shape)).clamp(0.0, 1.0).double().numpy()
        found.append(Checked(name, fit.mechanism.family, predicted, observed, weight / weight.sum(), pit))
    return found


def describe_misfit(checked: Sequence[Checked], groups: Mapping[str, NDArray[np.bool_]]) -> list[str]:
    """Return the columns whose distributions the rows refute in a group, by its name and its rows (n,), a clause each.

    Errors of opposite sign in two groups, as those of an effect are, cancel among all rows.
    """
    parts = [(one, name, one.among(at)) for one in checked for name, at in groups.items() if at.sum() >= FEWEST]
    found: dict[str, str] = {}
    for one, name, part in parts:
        if part.distance() >= LEAST_DISTANCE and part.p_value() * len(parts) < LEAST_P:
            found[one.column] = (
                f"the learned distribution of {one.column!r} ({type(one.family).__name__}) is up to "
                f"{part.distance():.2f} off in probability in {len(part.pit)} rows of {name}, p = {part.p_value():.1g}"
            )
    return [*found.values()]


# -- the picture ------------------------------------------------------------------------------------------------------


def plot_calibration(checked: Sequence[Checked]) -> Figure:
    """Draw for each column the predicted beside the observed distribution, and the transforms of its values."""
    pairs = 1 if len(checked) <= PAIRS else 2
    count = -(-len(checked) // pairs)
    rows = f"{len(checked[0].pit):,} rows" if checked else "no rows"
    title = f"Calibration of learned mechanisms: predicted beside observed distributions; {rows}"
    figure = make_figure(1.5 + 6.5 * pairs, 1.5 + 2.3 * count, title)
    panels = figure.subplots(count, 2 * pairs, squeeze=False, width_ratios=[3, 2] * pairs)
    for axes in panels.flat:
        axes.set_visible(False)
    for i, one in enumerate(checked):
        left, right = panels[i // pairs, 2 * (i % pairs) : 2 * (i % pairs) + 2]
        _draw_distribution(left, one)
        _draw_transforms(right, one)
        for axes in (left, right):
            axes.set_visible(True)
            finish(axes, "y")
    figure.legend(
        handles=[
            Patch(color=GREY, alpha=0.4, label="observed"),
            Line2D([], [], color=RED, marker="o", markersize=4, label="predicted, averaged over rows"),
            Line2D([], [], color=BLUE, label="share of rows below each level, minus the level"),
            Patch(color=BLUE, alpha=0.15, label=f"{BAND:.0%} of right distributions stay inside"),
        ],
        ncols=2 * pairs,
        **LEGEND,
    )
    return figure


def _draw_distribution(axes: Axes, one: Checked) -> None:
    known, gaps = support(one.family), one.observed == GAP
    axes.set_title(one.column, fontsize=TEXT, loc="left")
    if gaps.any():
        predicted, observed = one.below(torch.tensor([GAP]))
        axes.set_title(f"missing: {observed[0]:.2f}, predicted: {predicted[0]:.2f}", fontsize=TEXT, loc="right")
    if known is not None and len(known) <= POINTS:
        predicted, observed = (np.diff(each, prepend=0.0) for each in one.below(known))
        labels = decode(one.family, known)
        lacking = pd.isna(labels)
        at = labels if np.issubdtype(labels.dtype, np.number) and not lacking.any() else known.numpy()
        axes.bar(at, observed, width=0.8 * np.diff(at).min(initial=1.0), color=GREY, alpha=0.4, linewidth=0)
        axes.plot(at, predicted, "o", color=RED, markersize=3)
        if len(labels) > LABELS and at is not labels:
            axes.set_xlabel("index of the level")
        elif len(labels) <= LABELS:
            texts = ["missing" if none else str(each) for each, none in zip(labels, lacking, strict=True)]
            axes.set_xticks(at, [each if len(each) < 12 else each[:11] + "…" for each in texts])
            axes.tick_params(axis="x", rotation=20 if sum(map(len, texts)) > 40 else 0)
        axes.set_ylabel("probability")
    else:
        recorded = one.observed[~gaps]
        edges = np.linspace(float(recorded.min()), float(recorded.max()), 41)
        if known is not None:
            edges = np.unique(edges.round()) + 0.5
        predicted, observed = (np.diff(each) for each in one.below(torch.as_tensor(edges, dtype=one.observed.dtype)))
        width, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2.0
        axes.bar(middle, observed / width, width=width, color=GREY, alpha=0.4, linewidth=0)
        axes.plot(middle, predicted / width, "-", color=RED, linewidth=1.2)
        axes.set_ylabel("density")


def _draw_transforms(axes: Axes, one: Checked) -> None:
    pit, share = one.steps()
    band = kstwobign.ppf(BAND) / np.sqrt(one.size)
    axes.axhspan(-band, band, color=BLUE, alpha=0.15, linewidth=0)
    axes.axhline(0.0, color=GREY, linewidth=0.6)
    axes.plot(np.concatenate([[0.0], pit, [1.0]]), np.concatenate([[0.0], share - pit, [0.0]]), color=BLUE, linewidth=1)
    most = 1.6 * max(band, one.distance())
    axes.set(xlim=(0.0, 1.0), ylim=(-most, most), xticks=(0.0, 0.5, 1.0))
    axes.set(xlabel="level of the predicted distribution", ylabel="difference in share")
