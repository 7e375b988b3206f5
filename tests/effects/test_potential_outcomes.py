"""Weighted samples of rows, and the protocol of their sources: lengths, types, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyrofair.effects.potential_outcomes import CounterfactualSample, MarginalBounds, Scored
from pyrofair.exceptions import DataError


def rows(m: int) -> pd.DataFrame:
    return pd.DataFrame({"A": np.zeros(m, dtype=int), "M": np.arange(m)})


def test_effective_size() -> None:
    assert CounterfactualSample(rows(4), np.full(4, 0.25)).effective_size == pytest.approx(4)
    assert CounterfactualSample(rows(3), np.array([2.0, 0, 0])).effective_size == pytest.approx(1)
    assert CounterfactualSample(rows(3), np.array([3.0, 1, 0])).effective_size == pytest.approx(1.6)
    assert CounterfactualSample(rows(2), np.zeros(2)).effective_size == 0


def test_scored_takes_tensors_and_read_only_arrays() -> None:
    weight = np.array([0.25, 0.75])
    weight.flags.writeable = False
    sample = CounterfactualSample(rows(2), weight, unit=np.array([7, 3]), origin=np.array([0, -1]))
    scores = torch.tensor([0.5, 1.0], requires_grad=True)
    single = sample.scored(scores)
    assert single.score is scores
    assert single.weight.dtype == torch.float32
    assert single.unit is not None
    assert single.unit.tolist() == [7, 3]
    single.mean.backward()
    assert scores.grad is not None
    torch.testing.assert_close(scores.grad, torch.tensor([0.25, 0.75]))

    array = np.array([0.5, 1.0])
    array.flags.writeable = False
    assert sample.scored(array).mean.item() == 0.875
    decisions = sample.scored(np.array([False, True]))
    assert decisions.score.dtype == decisions.weight.dtype == torch.float64
    assert decisions.mean.item() == 0.75
    assert sample.scored(torch.tensor([0, 1])).mean.item() == 0.75


def test_sample_keeps_weights_as_float64_and_ids_as_int64() -> None:
    sample = CounterfactualSample(rows(2), np.array([1, 2], dtype=np.float32), np.array([1, 2], dtype=np.int32))
    assert sample.weight.dtype == np.float64
    assert sample.unit is not None
    assert sample.unit.dtype == np.int64
    empty = CounterfactualSample(rows(0), np.zeros(0), np.array([]), np.array([]))
    assert empty.scored([]).mean.item() == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight": np.ones(3)}, r"weight has shape \(3,\), but there are 2 rows"),
        ({"weight": np.ones((2, 1))}, r"weight has shape \(2, 1\)"),
        ({"unit": np.array([0])}, r"unit has shape \(1,\)"),
        ({"origin": np.array([0, 1, 2])}, r"origin has shape \(3,\)"),
        ({"weight": np.array([1, -0.5])}, r"1 of 2 weights are negative or not finite; the first is -0\.5 at row 1"),
        (
            {"weight": np.array([np.nan, np.inf])},
            "2 of 2 weights are negative or not finite; the first is nan at row 0",
        ),
        ({"unit": np.array([0.5, 1.0])}, "unit must hold integers; got float64"),
        ({"origin": np.array(["a", "b"])}, "origin must hold integers"),
        ({"origin": np.array([-2, 0])}, "origin holds -2; a position is 0 or more"),
    ],
)
def test_sample_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        CounterfactualSample(**{"rows": rows(2), "weight": np.ones(2), **fields})


@pytest.mark.parametrize("scores", [[0.5], [[0.5], [0.5]], torch.zeros(2, 2), 0.5])
def test_scored_refuses_a_wrong_number_of_scores(scores: Any) -> None:
    with pytest.raises(DataError, match=r"This world has 2 rows.*pass the column of the positive class"):
        CounterfactualSample(rows(2), np.ones(2)).scored(scores)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scored(torch.zeros(2), torch.zeros(3)), r"score \(2,\), weight \(3,\)"),
        (lambda: Scored(torch.zeros(2, 1), torch.zeros(2, 1)), r"score \(2, 1\), weight \(2, 1\).*predict_proba"),
        (lambda: Scored(torch.zeros(2), torch.zeros(2), torch.zeros(1, dtype=torch.int64)), r"unit \(1,\)"),
        (lambda: MarginalBounds(torch.zeros(2), torch.tensor(0.5)), r"are scalars; got shapes \(2,\), \(\)"),
        (lambda: MarginalBounds(torch.tensor(0.75), torch.tensor(0.5)), r"0\.75 exceeds the upper bound 0\.5"),
        (lambda: MarginalBounds(torch.tensor(torch.nan), torch.tensor(0.5)), "lower bound nan"),
    ],
)
def test_values_check_their_shapes(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()
