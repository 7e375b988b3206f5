"""Worlds with limited switching: the worst coupling against linear programs, gradients, bounds, and training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linprog

import pyrofair as pf
from pyrofair.effects import Scored
from pyrofair.exceptions import DataError
from pyrofair.robustness.sensitivity.switching.training import worst_disagreement

UNITS, ROWS = 4, 6


def worlds(seed: int, *, hard: bool) -> tuple[np.ndarray, ...]:
    """Weights of both worlds, scores of both, and units, of rows in random order."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.ones(UNITS))
    p, q = (np.concatenate([each * rng.dirichlet(np.ones(ROWS)) for each in share]) for _ in (0, 1))
    scores = rng.random((2, UNITS * ROWS))
    c0, c1 = (scores > 0.5).astype(float) if hard else scores
    order = rng.permutation(UNITS * ROWS)
    return tuple(each[order] for each in (p, q, c0, c1, np.repeat([3, 5, 9, 11], ROWS)))


def by_program(found: tuple[np.ndarray, ...], gamma: float) -> tuple[float, float]:
    """Both ends, by a program over the mass of each unit's rows that stays."""
    ends = np.zeros(2)
    p, q, c0, c1, unit = found
    for at in (unit == each for each in np.unique(unit)):
        least, whole = np.minimum(p, q)[at], p[at].sum()
        means = p[at] @ c0[at], q[at] @ c1[at]
        for i, (difference, effect) in enumerate(
            [(c1[at] - c0[at], means[1] - means[0]), (1 - c0[at] - c1[at], whole - means[0] - means[1])]
        ):
            rows = [
                np.r_[2 * np.maximum(-difference, 0), -1],
                np.r_[2 * np.maximum(difference, 0), -1],
                np.r_[-np.ones(ROWS), 0],
            ]
            right = [-effect, effect, gamma * whole - least.sum()]
            limits = [*((0, each) for each in least), (None, None)]
            ends[i] += linprog(np.r_[np.zeros(ROWS), 1], rows, right, bounds=limits, method="highs").fun
    return float(ends[0]), float(1.0 - ends[1])


def scored(found: tuple[np.ndarray, ...]) -> tuple[Scored, Scored]:
    p, q, c0, c1, unit = map(torch.tensor, found)
    return Scored(c0, p, unit), Scored(c1, q, unit)


def bound(*given: Any, upper: bool) -> torch.Tensor:
    return torch.dot(*worst_disagreement(*given, upper=upper))


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_are_those_of_the_worst_coupling(seed: int, gamma: float, hard: bool) -> None:
    found = worlds(int(100 * gamma) + 1000 * seed, hard=hard)
    low, high = (float(bound(*scored(found), gamma, upper=upper)) for upper in (False, True))
    assert (low, high) == pytest.approx(by_program(found, gamma), abs=1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.4, 1.0])
def test_gradients_are_those_of_the_bound(gamma: float) -> None:
    p, q, c0, c1, unit = map(torch.tensor, worlds(1, hard=False))
    one, other = c0.requires_grad_(), c1.requires_grad_()

    def end(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return bound(Scored(first, p, unit), Scored(second, q, unit), gamma, upper=True)

    slopes = torch.autograd.grad(end(one, other), (one, other))
    for which in (0, 1):
        for at in range(0, UNITS * ROWS, 5):
            step = torch.zeros_like(one)
            step[at] = 1e-5
            moved, back = ([each.detach().clone() for each in (one, other)] for _ in (0, 1))
            moved[which] += step
            back[which] -= step
            assert float(end(*moved) - end(*back)) / 2e-5 == pytest.approx(float(slopes[which][at]), abs=1e-4)


GRAPH = pf.CausalGraph("Q -> A; {Q A} -> M; {Q A M} -> D; {A Q M D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y", "A -> M -> D -> Y")


def table(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.4 + 0.2 * q).astype(int)
    m = (rng.random(n) < 0.2 + 0.4 * a + 0.2 * q).astype(int)
    d = (rng.random(n) < 0.2 + 0.4 * m + 0.1 * a).astype(int)
    y = (rng.random(n) < 0.1 + 0.2 * a + 0.3 * m + 0.3 * d).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "M": m, "D": d, "Y": y})


def rule(X: pd.DataFrame) -> pd.Series:
    """Differs in half of what moves, and by A alone where D is 1."""
    return ((X["M"] + X["D"] + X["A"] * X["D"]) >= 2).astype(float)


def inner(**settings: Any) -> pf.GComputation:
    given = {"parameters": "linear", "progress": False, "draws": 40, "random_state": 0} | settings
    return pf.GComputation(UNFAIR, **given)  # type: ignore[arg-type]


def test_bounds_of_a_known_classifier_and_training_lower_them(tmp_path: Path) -> None:
    df = table(500)
    X = df.drop(columns="Y")
    source = pf.SwitchingBounds(inner()).fit(X)
    ends = []
    for gamma in (0.0, 0.1, 1.0):
        source.gamma = gamma
        ends.append(source.bounds(rule).loc["piu"].tolist())
    lows, highs = zip(*ends, strict=True)
    assert lows[0] >= lows[1] >= lows[2]
    assert highs[0] < highs[1] <= highs[2]
    assert 0.0 <= lows[0] <= highs[0] <= highs[2] <= 1.0
    given = source.source_.worlds()
    means = [each.scored(rule(each.rows).to_numpy()) for each in given]
    assert lows[2] == pytest.approx(float(pf.effect_gap(*means)), abs=0.02)
    assert highs[2] == pytest.approx(float(pf.piu_upper(*means)), abs=0.02)
    assert source.bounds(rule).loc["p_y0", "lower"] == pytest.approx(float(means[0].mean), abs=0.02)
    assert "total variation" in source.assumptions[-1]
    pf.save(source, tmp_path / "source.pyrofair")
    pd.testing.assert_frame_equal(pf.load(tmp_path / "source.pyrofair").bounds(rule), source.bounds(rule))
    source.gamma = 0.05
    fits = {}
    for strength in (0.0, 2.0):
        fits[strength] = pf.PenalizedClassifier(
            "logistic", source=pf.SwitchingBounds(inner(draws=20), gamma=0.05), penalty=pf.piu_upper,
            strength=strength, starts=1, epochs=15, batch_size=500, random_state=0, progress=False,
        ).fit(X, df["Y"])  # fmt: skip
    weak, strong = (source.bounds(each).loc["piu", "upper"] for each in fits.values())
    assert strong < weak - 0.05
    last = fits[2.0]
    assert last.history_["penalty"].iloc[-1] == pytest.approx(last.source_.bounds(last).loc["piu", "upper"], abs=0.02)


def test_other_penalties_sources_and_values_are_refused() -> None:
    df = table(300)
    X = df.drop(columns="Y")
    with pytest.raises(DataError, match="use penalty=piu_upper"):
        pf.PenalizedClassifier("logistic", source=pf.SwitchingBounds(inner()), penalty=pf.effect_gap).fit(X, df["Y"])
    with pytest.raises(DataError, match="a GComputation of the unfair paths"):
        pf.SwitchingBounds(pf.IPW(UNFAIR)).fit(X)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="runs through a mediator, so that nothing can switch"):
        pf.SwitchingBounds(inner().set_params(unfair=GRAPH.unfair("A -> Y"))).fit(X)
    numbers = X.assign(M=np.random.default_rng(0).normal(size=300))
    with pytest.raises(DataError, match="SwitchingBounds takes each value of M by itself"):
        pf.SwitchingBounds(inner()).fit(numbers)
    with pytest.raises(DataError, match=r"pyrofair.sensitivity.switching"):
        pf.audit({"m": pf.ScoresOf(rule)}, pf.SwitchingBounds(inner()), df)
