from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from pyrofair.audits.bootstrap import measure, measure_views
from pyrofair.effects.potential_outcomes import CounterfactualSample


def sample(p: float, **more: Any) -> tuple[CounterfactualSample, NDArray[np.float64]]:
    """A world of one row with a score."""
    return CounterfactualSample(pd.DataFrame({"A": [0]}), np.array([1.0]), **more), np.array([p])


def measured(p0: float, p1: float) -> tuple[dict[str, float], dict[str, str]]:
    (one, a), (other, b) = sample(p0), sample(p1)
    return measure((a, b), (one, other))


# --- quantities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.5, 0.5 - 1e-13])
def test_a_fair_coin_is_vacuous_up_to_rounding(p: float) -> None:
    values, notes = measured(p, p)
    assert values["piu_paper_bound"] == pytest.approx(1.0)
    assert notes["piu_paper_bound"].startswith("vacuous")


@pytest.mark.parametrize(("total0", "total1"), [(1.5, 0.8), (0.8, 1.5)])
def test_an_estimate_that_left_0_1_has_no_bounds(total0: float, total1: float) -> None:
    """Horvitz-Thompson weights; the formula of the paper's penalty would give -.1."""
    rows = pd.DataFrame({"A": [0]})
    worlds = CounterfactualSample(rows, np.array([total0])), CounterfactualSample(rows, np.array([total1]))
    values, notes = measure((np.ones(1), np.ones(1)), worlds)
    assert (values["p_y0"], values["p_ypi"]) == (total0, total1)  # neither clipped nor lost
    bounds = ["piu_paper_bound", "piu_lower", "piu_upper"]
    assert np.isnan([values[name] for name in bounds]).all()
    assert set(notes) == set(values)
    for name in bounds:
        assert notes[name].startswith("cannot be made: the estimate left [0, 1]: P(")
        assert "= 1.500" in notes[name]
        assert "0.800" not in notes[name]


def test_an_end_given_units_keeps_its_sign() -> None:
    """One unit, whose two views put it on either side of the kink: the lower bound is negative."""
    unit = np.array([0])
    views, scores = [], []
    for p0, p1 in [(0.5, 0.6), (0.6, 0.5)]:
        (one, a), (other, b) = sample(p0, unit=unit), sample(p1, unit=unit)
        views.append((one, other))
        scores.append((a, b))
    values, _ = measure_views(scores, views)
    assert values["piu_lower"] == pytest.approx(-0.1)


def test_rounding_does_not_leave_0_1() -> None:
    rows = pd.DataFrame({"A": [0]})
    world = CounterfactualSample(rows, np.array([1.0 + 1e-12]))
    values, notes = measure((np.ones(1), np.ones(1)), (world, world))
    assert values["piu_upper"] == pytest.approx(0.0, abs=1e-11)
    assert notes == {}
