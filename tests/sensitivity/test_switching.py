"""Switching of mediators: against linear programs over joint distributions of both worlds, and on samples."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import pyrofair as pf
from pyrofair.exceptions import DataError, PositivityWarning
from pyrofair.sensitivity import Switching, switching

GRAPH = pf.CausalGraph("Q -> A; {Q A} -> D; {Q A D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
SATURATED = {"propensity": "saturated", "regression": "saturated", "form": "prefix"}
PATHS = {
    "D": (("A -> Y", "A -> D -> Y", "A -> D -> M -> Y"), (1, 0, 1)),
    "M": (("A -> M -> Y",), (0, 1, 0)),
    "both": (("A -> Y", "A -> M -> Y", "A -> D -> Y", "A -> D -> M -> Y"), (1, 1, 1)),
}
"""Unfair paths, with the values of A that D, M and the outcome read in the switched world."""
UNFAIR = GRAPH.unfair(*PATHS["D"][0])


class Table:
    """A known classifier: a table of scores by (a, q, d, m)."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        p = self.scores[tuple(X[name].to_numpy() for name in ("A", "Q", "D", "M"))]
        return np.column_stack([1 - p, p])


def population(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Weighted rows of all cells of (Q, A, D, M), and the distribution (2, 2, 3, 2) itself."""
    p = rng.dirichlet(np.full(24, 2.0)).reshape(2, 2, 3, 2)
    cells = list(product(range(2), range(2), range(3), range(2)))
    df = pd.DataFrame(cells * 25, columns=["Q", "A", "D", "M"])
    return df, np.tile(np.array([p[cell] for cell in cells]) * 5000.0, 25), p


def units(p: np.ndarray, scores: np.ndarray, paths: str) -> list[tuple[float, list[np.ndarray]]]:
    """For each value of what both worlds share its weight, and p, q, c0, c1 of the mediators' values."""
    d1, m1, y1 = PATHS[paths][1]
    found = []
    for q in range(2):
        of_d = p[q].sum(axis=2) / p[q].sum(axis=(1, 2))[:, None]
        of_m = p[q] / p[q].sum(axis=2, keepdims=True)
        one, other = of_d[0][:, None] * of_m[0], of_d[d1][:, None] * of_m[m1]
        tables = [one, other, scores[0, q], scores[y1, q]]
        if paths == "M":  # D is shared
            for d in range(3):
                found.append((p[q].sum() * of_d[0][d], [of_m[0][d], of_m[1][d], scores[0, q, d], scores[y1, q, d]]))
        else:
            found.append((p[q].sum(), [each.ravel() for each in tables]))
    return found


def by_program(p: np.ndarray, scores: np.ndarray, paths: str, gamma: float) -> tuple[float, float]:
    """Both ends of PIU over all joint distributions of the mediators and the decisions of both worlds."""
    ends = np.zeros(2)
    for weight, (one, other, c0, c1) in units(p, scores, paths):
        k = len(one)
        cells = np.array(list(product(range(k), (0, 1), range(k), (0, 1))))
        x0, y0, x1, y1 = cells.T
        rows, right = [], []
        for x, y in product(range(k), (0, 1)):
            rows += [(x0 == x) & (y0 == y), (x1 == x) & (y1 == y)]
            right += [one[x] * (c0[x] if y else 1 - c0[x]), other[x] * (c1[x] if y else 1 - c1[x])]
        for x in range(k):  # whether a mediator stays tells nothing of the decision given it
            stays = (x0 == x) & (x1 == x)
            rows += [stays * (y0 - c0[x]), stays * (y1 - c1[x])]
            right += [0.0, 0.0]
        limit = 0.5 * np.abs(one - other).sum() + gamma + 1e-12
        for i, sign in enumerate((1, -1)):
            done = linprog(
                sign * (y0 != y1), A_ub=[x0 != x1], b_ub=[limit], A_eq=np.array(rows, float), b_eq=right, method="highs"
            )
            ends[i] += weight * sign * done.fun
    return float(ends[0]), float(ends[1])


def examine(df: pd.DataFrame, weight: np.ndarray, scores: np.ndarray, paths: str, **settings: object) -> Switching:
    source = pf.OneStep(GRAPH.unfair(*PATHS[paths][0]), **SATURATED, folds=1)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PositivityWarning)
        return switching(Table(scores), source, df, sample_weight=weight, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("paths", PATHS)
def test_decisions_have_the_ends_of_the_program_over_joint_distributions(paths: str) -> None:
    df, weight, p = population(np.random.default_rng(len(paths)))
    scores = np.random.default_rng(3).random((2, 2, 3, 2))
    found = examine(df, weight, scores, paths, gammas=[0.03, 0.1, 0.4, 1.0])
    for row in found.table.itertuples():
        ends = by_program(p, (scores > 0.5).astype(float), paths, row.gamma)
        assert (row.low, row.high) == pytest.approx(ends, abs=1e-7)
    assert found.table["sharp"].all()
    least = sum(weight * 0.5 * np.abs(one - other).sum() for weight, (one, other, *_) in units(p, scores, paths))
    assert found.least[0] == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("paths", PATHS)
def test_scores_have_a_valid_interval_that_is_sharp_without_and_with_all_switching(paths: str) -> None:
    df, weight, p = population(np.random.default_rng(10 + len(paths)))
    scores = np.random.default_rng(4).random((2, 2, 3, 2))
    found = examine(df, weight, scores, paths, gammas=[0.1, 1.0], decisions="score")
    for row in found.table.itertuples():
        low, high = by_program(p, scores, paths, row.gamma)
        assert row.low <= low + 1e-7
        assert row.high >= high - 1e-7
        assert (row.low, row.high) == pytest.approx((low, high), abs=1e-7 if row.sharp else 0.02)
    assert found.table["sharp"].tolist() == [True, False, True]


def sample(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.35 + 0.3 * q).astype(int)
    d = rng.binomial(2, 0.2 + 0.3 * a + 0.2 * q)
    m = (rng.random(n) < 0.15 + 0.25 * a + 0.1 * d + 0.1 * q).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "D": d, "M": m})


SCORES = np.fromfunction(lambda a, q, d, m: 0.1 + 0.25 * a + 0.05 * q + 0.2 * d * (1 - 0.9 * a) + 0.25 * m, (2, 2, 3, 2))


def exact() -> np.ndarray:
    """The distribution (2, 2, 3, 2) of what :func:`sample` draws from, by (Q, A, D, M)."""
    q, a, d, m = np.indices((2, 2, 3, 2))
    p_a, p_d, p_m = 0.35 + 0.3 * q, 0.2 + 0.3 * a + 0.2 * q, 0.15 + 0.25 * a + 0.1 * d + 0.1 * q
    of_d = np.choose(d, [(1 - p_d) ** 2, 2 * p_d * (1 - p_d), p_d**2])
    return 0.5 * np.where(a == 1, p_a, 1 - p_a).transpose(0, 1, 2, 3) * of_d * np.where(m == 1, p_m, 1 - p_m)


def covered(n: int, seeds: range, gammas: tuple[float, ...] = (0.0, 0.05, 1.0), **settings: object) -> pd.DataFrame:
    """By seed and gamma, whether both ends are held, the errors of both, and their standard errors."""
    truth = {gamma: by_program(exact(), (SCORES > 0.5).astype(float), "D", gamma) for gamma in gammas}
    lines = []
    for seed in seeds:
        source = pf.OneStep(UNFAIR, **(SATURATED | settings))  # type: ignore[arg-type]
        found = switching(Table(SCORES), source, sample(n, seed), gammas=gammas)
        for own in found.table.itertuples():
            low, high = truth[own.gamma]
            lines.append(
                {
                    "gamma": own.gamma,
                    "held": own.lower <= low and own.upper >= high,
                    "low": own.low - low,
                    "high": own.high - high,
                    "error_low": (own.low - own.lower) / 1.96,
                    "error_high": (own.upper - own.high) / 1.96,
                }
            )
    return pd.DataFrame(lines)
