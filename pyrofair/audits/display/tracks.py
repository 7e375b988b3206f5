"""Intervals drawn as lines of a page, a line for each number, under a scale: of a model, a forest, scores of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pyrofair.audits.display.words import between, percent, span

__all__ = ["SHARES", "Panel", "Scale", "forest", "of_model", "of_parts", "of_rows", "scale_of"]

THINNEST = 0.004
"""A range that is narrower, as a share of its scale, is drawn as a point."""
MOST_STRIPS = 12


@dataclass(frozen=True)
class Scale:
    """The marks of an axis, from its lowest to its highest number, which are shares or, ``signed``, differences."""

    marks: Sequence[float]
    signed: bool = False

    def at(self, value: float) -> str | None:
        """Return where a number is, the nearest end if it is outside, in percent of the width; None without one."""
        low, high = self.marks[0], self.marks[-1]
        share = (float(np.clip(value, low, high)) - low) / (high - low)
        return None if np.isnan(value) else f"{100.0 * share:.2f}%"

    @property
    def ticks(self) -> list[tuple[str | None, str, bool]]:
        """The place of each mark, its text, and whether it is the 0 of differences."""
        sign, unit = ("+", "") if self.signed else ("", "%")
        return [
            (self.at(mark), f"{100.0 * mark:{sign if mark else ''}.3g}{unit}", self.signed and mark == 0.0)
            for mark in self.marks
        ]


SHARES = Scale((0.0, 0.25, 0.5, 0.75, 1.0))


def scale_of(effects: Iterable[Any]) -> Scale:
    """Return the scale of effects with their intervals, 0 on it."""
    from matplotlib.ticker import MaxNLocator

    found = np.array([[each.lower, each.estimate, each.upper] for each in effects], dtype=np.float64)
    known = [*found[np.isfinite(found)].tolist(), 0.0]
    low, high = (min(known), max(known)) if np.ptp(known) > 1e-6 else (-0.01, 0.01)
    marks = np.round(MaxNLocator(3, steps=[1, 2, 5, 10]).tick_values(low, high), 10) + 0.0
    return Scale(tuple(float(each) for each in marks), signed=True)


@dataclass(frozen=True)
class Track:
    """A number on a scale: a ``mark`` or a ``span``, thin lines to the ``ends`` of its interval, and a ``tick``."""

    kind: str
    label: str
    text: str
    ends: tuple[str | None, str | None] = (None, None)
    span: tuple[str | None, str | None] | None = None
    mark: str | None = None
    tick: str | None = None
    ring: str | None = None


@dataclass(frozen=True)
class Panel:
    """Tracks on one scale, under a title if they begin a group."""

    tracks: Sequence[Track]
    scale: Scale
    title: str = ""


def _piu(of: Mapping[str, Any], label: str) -> Track:
    lower, upper = of["piu_lower"], of["piu_upper"]
    places = [float(np.clip(each.estimate, 0.0, 1.0)) for each in (lower, upper)]
    text = "not available" if np.isnan(lower.estimate) else between(*places)
    ends = SHARES.at(lower.lower), SHARES.at(upper.upper)
    at = SHARES.at(places[0]), SHARES.at(places[1])
    if upper.estimate - lower.estimate < THINNEST:
        return Track("piu", label, text, ends, mark=at[0])
    return Track("piu", label, text, ends, span=at)


def _number(kind: str, label: str, row: Any, scale: Scale, tick: float = np.nan, said: str = "") -> Track:
    ends = scale.at(row.lower), scale.at(row.upper)
    text = span(row, points=scale.signed) + said
    return Track(kind, label, text, ends, mark=scale.at(row.estimate), tick=scale.at(tick))


def of_model(name: str, of: Mapping[str, Any], rates: Mapping[str, Any], cut: str, effects: Scale) -> list[Panel]:
    """Return the tracks of a model: shares, and its effect on a scale of effects; ``cut`` is said of accuracy."""
    majority = rates["majority_rate"].estimate
    said = "" if np.isnan(majority) else f"; majority class {percent(majority)}"
    shares = [
        _piu(of, "PIU"),
        _number("rate", "positive rate", of["positive_rate"], SHARES),
        _number("accuracy", f"accuracy{cut}", rates["accuracy"], SHARES, majority, said),
    ]
    effect = _number("effect", "mean unfair effect", of["mean_unfair_effect"], effects)
    return [Panel(shares, SHARES, name), Panel([effect], effects)]


def forest(title: str, members: Mapping[str, Mapping[str, Any]]) -> list[Panel]:
    """Return the tracks of PIU, and those of the mean unfair effect, of members by their labels."""
    effects = scale_of(of["mean_unfair_effect"] for of in members.values())
    return [
        Panel([_piu(of, name) for name, of in members.items()], SHARES, f"{title}: PIU"),
        Panel(
            [_number("effect", name, of["mean_unfair_effect"], effects) for name, of in members.items()],
            effects,
            f"{title}: mean unfair effect",
        ),
    ]


def of_parts(title: str, parts: Mapping[str, Any], scale: Scale) -> Panel:
    """Return the tracks of parts of a difference by their labels."""
    return Panel([_number("effect", name, row, scale) for name, row in parts.items()], scale, title)


def of_rows(flips: pd.DataFrame, threshold: float) -> list[Panel]:
    """Return the scores of rows before and after the unfair paths are switched, on strips with the threshold."""
    rows: Any = flips.dropna(subset=["baseline", "switched"]).head(MOST_STRIPS).itertuples()
    strips = []
    for row in rows:
        ends = SHARES.at(row.baseline), SHARES.at(row.switched)
        low, high = sorted((row.baseline, row.switched))
        text = f"{percent(row.baseline)} to {percent(row.switched)}, {row.path}"
        strips.append(
            Track("strip", f"row {row.row}, {row.model}", text, span=(SHARES.at(low), SHARES.at(high)), mark=ends[1],
                  ring=ends[0], tick=SHARES.at(threshold))
        )  # fmt: skip
    title = "Scores before (ring) and after (dot) these paths are switched; the upright mark is the threshold"
    return [Panel(strips, SHARES, title)] if strips else []
