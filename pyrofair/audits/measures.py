"""The quantities of an audit, made of the scores or decisions of the rows of two worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pyrofair._random import neutral_torch
from pyrofair.effects.bounds import (
    Signs,
    choose_potentials,
    choose_signs,
    consistent_ends,
    unit_disagreement,
    unit_ends,
    unit_means,
)
from pyrofair.effects.functionals import disagreement, effect_gap, piu_upper
from pyrofair.effects.potential_outcomes import Worlds
from pyrofair.effects.scoring import DECISIONS, Decisions, decide

__all__ = ["DECISIONS", "Decisions", "WorldScores", "decide", "measure", "measure_views", "view_signs"]

WorldScores = tuple[NDArray[np.float64], NDArray[np.float64]]
ROUNDING = 1e-9


def measure(scores: WorldScores, worlds: Worlds) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quantities of two worlds whose rows are scored, and notes on those that are NaN or vacuous.

    The paper's bound is made of the two marginals, whatever units the worlds share; the ends of PIU use the units
    (Chikahara et al. 2021, eq. 6, 7, 8 and A19).
    """
    with neutral_torch():
        scored = [world.scored(each) for world, each in zip(worlds, scores, strict=True)]
        p0, p1 = (each.mean.item() for each in scored)
    values = {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    left = [f"{name} = {p:.3f}" for name, p in [("P(Y0=1)", p0), ("P(Ypi=1)", p1)] if _is_outside(p)]
    if left:
        bounds = dict.fromkeys(("piu_paper_bound", "piu_lower", "piu_upper"), np.nan)
        note = f"the estimate left [0, 1]: {' and '.join(left)}"
        return values | bounds, dict.fromkeys(values, note) | dict.fromkeys(bounds, f"cannot be made: {note}")
    with neutral_torch():
        values["piu_paper_bound"] = 2.0 * disagreement(*(replace(each, unit=None) for each in scored)).item()
        values["piu_lower"] = effect_gap(*scored).item()
        values["piu_upper"] = piu_upper(*scored).item()
    return values, _vacuous(values)


def measure_views(
    scores: Sequence[WorldScores], views: Sequence[Worlds], signs: Signs | None = None
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the quantities of several views of the same two worlds, whose errors are independent given the units.

    The ends of PIU are those of :mod:`pyrofair.effects.bounds`, free of inward bias: a lower end around a
    true one of 0 is negative as often as not, and is shown so. ``piu_double_disagreement``, twice the disagreement
    given the units, is an upper bound on PIU too. ``signs`` are those of the original views in a bootstrap replicate.
    """
    means = [unit_means(one, worlds) for one, worlds in zip(scores, views, strict=True)]
    p0, p1 = (
        float(np.mean([worlds[i].weight @ one[i] for one, worlds in zip(scores, views, strict=True)])) for i in (0, 1)
    )
    values = {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    values["piu_paper_bound"] = 2.0 * (p0 + p1 - 2.0 * p0 * p1)
    signs = signs or view_signs(scores, views)
    if signs.potentials is None:
        values["piu_lower"], values["piu_upper"] = unit_ends(means, signs)
    else:
        values["piu_lower"], values["piu_upper"] = consistent_ends(scores, views, signs.potentials)
    values["piu_double_disagreement"] = 2.0 * unit_disagreement(means)
    outside = [end for end in ("piu_lower", "piu_upper") if _is_outside(values[end])]
    noise = "outside [0, 1] by sampling error; cut there it would err inward on average"
    return values, _vacuous(values) | dict.fromkeys(outside, noise)


def view_signs(scores: Sequence[WorldScores], views: Sequence[Worlds]) -> Signs:
    """Return the sides of the kinks on which the units of several scored views are."""
    signs = choose_signs([unit_means(one, worlds) for one, worlds in zip(scores, views, strict=True)])
    return signs if views[0][0].cell is None else replace(signs, potentials=choose_potentials(scores, views))


def _is_outside(p: float) -> bool:
    return not -ROUNDING <= p <= 1.0 + ROUNDING


def _vacuous(values: dict[str, float]) -> dict[str, str]:
    """Return a note on each bound of 1 or more."""
    return {
        name: "vacuous: a bound of 1 or more proves nothing, fair or unfair"
        for name in ("piu_paper_bound", "piu_double_disagreement")
        if values.get(name, 0.0) >= 1.0 - ROUNDING
    }
