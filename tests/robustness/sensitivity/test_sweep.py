"""Sweeps: bounds that never narrow, conclusions and where they flip, values that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from pyrofair.exceptions import DataError
from pyrofair.robustness.sensitivity.sweep import Parameter, crossing, nested

SHARE = Parameter("share", neutral=0.0, most=1.0, what="shares", axis="share", hint="Of all units.")


@pytest.mark.parametrize("seed", range(20))
def test_sets_never_narrow_hold_their_bounds_and_are_the_smallest_that_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = rng.normal(0.0, 0.3, 6), rng.normal(0.1, 0.3, 6)  # they cross now and then
    ends = np.column_stack([low, high, low - rng.random(6), high + rng.random(6)])
    found = nested(ends)
    assert (np.diff(found[:, [0, 2]], axis=0) <= 0.0).all()
    assert (np.diff(found[:, [1, 3]], axis=0) >= 0.0).all()
    assert (found[:, 2] <= found[:, 0]).all()
    assert (found[:, 0] <= found[:, 1]).all()
    assert (found[:, 1] <= found[:, 3]).all()
    for i in range(6):
        assert found[i, 0] == ends[: i + 1, :2].min()
        assert found[i, 1] == ends[: i + 1, :2].max()
    # the interval of either bound is held, on both sides of it where both bounds cross
    crossed = low > high
    assert (found[:, 2] <= np.where(crossed, 2.0 * high - ends[:, 3], ends[:, 2])).all()
    assert (found[:, 3] >= np.where(crossed, 2.0 * low - ends[:, 2], ends[:, 3])).all()


def test_sets_that_are_nested_stay_as_they_are() -> None:
    ends = np.array([[0.2, 0.2, 0.1, 0.3], [0.1, 0.4, 0.0, 0.5], [0.1, 0.5, -0.1, 0.6]])
    np.testing.assert_array_equal(nested(ends), ends)


def test_a_conclusion_that_is_never_lost_and_one_that_never_held() -> None:
    at = np.array([0.0, 1.0, 2.0])
    assert crossing(at, [np.array([1.0, 0.5, 0.1])]) == np.inf
    assert np.isnan(crossing(at, [np.array([0.0, 0.5, 0.1])]))
    assert crossing(at, [np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, -1.0])]) == pytest.approx(1.5, abs=0.1)


def test_values_are_sorted_with_the_neutral_one_and_others_refused() -> None:
    assert SHARE.read([0.5, 0.1, 0.5]) == (0.0, 0.1, 0.5)
    for given, match in (([1.5], r"shares\[0\]=1.5 .* Of all units"), ([], "list of shares"), (0.5, "list of shares")):
        with pytest.raises(DataError, match=match):
            SHARE.read(given)
