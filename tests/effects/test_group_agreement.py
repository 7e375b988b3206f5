"""Comparisons of the two observed groups, each weighted alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from pyrofair import IPW, SEM, CausalGraph
from pyrofair.effects.group_agreement import compare_groups, disagreeing


def right_model(n: int, seed: int) -> pd.DataFrame:
    """Q -> A -> M, with a logistic propensity."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    a = (rng.random(n) < expit(0.5 * q)).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "M": a + rng.normal(size=n)})


def alarms(draws: int, n: int) -> float:
    """The share of tables in which the two groups disagree though both are weighted rightly."""
    unfair = CausalGraph("Q -> A -> M; {A Q M} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")

    def score(rows: pd.DataFrame) -> NDArray[np.float64]:
        return np.asarray(expit(rows["M"] + rows["Q"] - 0.5), dtype=np.float64)

    found = (compare_groups(IPW(unfair).fit(right_model(n, seed)), score) for seed in range(draws))
    return float(np.mean([not disagreeing(each).empty for each in found]))


def test_groups_of_a_right_model_seldom_disagree() -> None:
    assert alarms(60, 600) <= 0.12


@pytest.mark.slow
def test_groups_of_a_right_model_disagree_in_a_twentieth_at_most() -> None:
    assert alarms(400, 600) <= 0.07


def test_a_source_that_weights_no_group_alone_gives_an_empty_table() -> None:
    unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    found = compare_groups(SEM(lambda n: None, unfair), lambda rows: np.zeros(len(rows)))
    assert found.empty
    assert disagreeing(found).empty
