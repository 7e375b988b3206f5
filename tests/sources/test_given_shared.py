"""Case C2: on random discrete models with independent errors, by enumeration, intervals nest and hold the truth."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from pyrofair.audits.bootstrap import measure, measure_views
from pyrofair.effects.potential_outcomes import CounterfactualSample

Vector = NDArray[np.float64]
LEVELS = 3


@dataclass(frozen=True)
class Model:
    """S shared; A -> W (switched), W -> R, A -> R (fair, at the baseline), and decisions of (A, S, W, R).

    ``s`` (k,); ``p, q`` (k, LEVELS): P(W | S, A=0), P(W | S, A=1); ``r`` (k, LEVELS, 2): P(R | S, W, A=0); ``c`` the
    scores, (2, k, LEVELS, 2).
    """

    s: Vector
    p: Vector
    q: Vector
    r: Vector
    c: Vector

    @classmethod
    def draw(cls, rng: np.random.Generator, *, hard: bool) -> Model:
        k = int(rng.integers(1, 4))
        sharp = rng.choice([0.3, 1.0, 3.0])
        learned = [rng.dirichlet(np.full(size, sharp), shape) for size, shape in ((LEVELS, k), (LEVELS, k))]
        c = rng.random((2, k, LEVELS, 2))
        r = rng.dirichlet(np.full(2, sharp), (k, LEVELS))
        return cls(rng.dirichlet(np.ones(k)), *learned, r, (c > 0.5).astype(float) if hard else c)

    def worlds(self) -> tuple[tuple[Vector, Vector], tuple[CounterfactualSample, CounterfactualSample]]:
        """Rows (s, w, r), exact, each as often as by R's distribution: cells share their rows, so R is drawn by
        weight."""
        k = len(self.s)
        grid = np.array(list(itertools.product(range(k), range(LEVELS), range(2))))
        u, w, r = grid.T
        scores = self.c[0][u, w, r], self.c[1][u, w, r]
        weights = [self.s[u] * distribution[u, w] * self.r[u, w, r] for distribution in (self.p, self.q)]
        one, other = (CounterfactualSample(pd.DataFrame(grid, columns=["S", "W", "R"]), x, u) for x in weights)
        return scores, (one, other)

    def piu(self, rng: np.random.Generator) -> tuple[float, float, float]:
        """PIU under a random coupling of W, and its least and greatest over W's couplings and those of R and Y's noise.

        R has one noise in both worlds where W agrees; elsewhere R and the decisions may hang together in any way.
        """
        k = len(self.s)
        least = most = some = 0.0
        for u in range(k):
            low, high = np.empty((LEVELS, LEVELS)), np.empty((LEVELS, LEVELS))
            for w, v in itertools.product(range(LEVELS), repeat=2):
                if w == v:
                    c0, c1 = self.c[0, u, w], self.c[1, u, w]
                    low[w, v] = self.r[u, w] @ np.abs(c1 - c0)
                    high[w, v] = self.r[u, w] @ (1.0 - np.abs(1.0 - c0 - c1))
                else:
                    a, b = self.r[u, w] @ self.c[0, u, w], self.r[u, v] @ self.c[1, u, v]
                    low[w, v], high[w, v] = abs(b - a), 1.0 - abs(1.0 - a - b)
            margins = np.vstack([np.kron(np.eye(LEVELS), np.ones(LEVELS)), np.kron(np.ones(LEVELS), np.eye(LEVELS))])
            right = np.r_[self.p[u], self.q[u]]
            ends = [linprog(cost.ravel(), A_eq=margins, b_eq=right) for cost in (low, -high, rng.normal(size=9))]
            least += self.s[u] * ends[0].fun
            most -= self.s[u] * ends[1].fun
            mix = rng.random()
            some += self.s[u] * float(ends[2].x @ (mix * low + (1.0 - mix) * high).ravel())
        return some, least, most


@pytest.mark.parametrize("hard", [True, False])
def test_intervals_nest_and_hold_the_truth(hard: bool) -> None:
    rng = np.random.default_rng(0)
    narrower = 0
    for _ in range(40):
        model = Model.draw(rng, hard=hard)
        scores, worlds = model.worlds()
        given, _ = measure(scores, worlds)
        p0, p1 = given["p_y0"], given["p_ypi"]
        marginal = abs(p1 - p0), 1.0 - abs(1.0 - p0 - p1)
        piu, least, most = model.piu(rng)
        assert marginal[0] - 1e-9 <= given["piu_lower"] <= least + 1e-9
        assert least - 1e-9 <= piu <= most + 1e-9
        assert most - 1e-9 <= given["piu_upper"] <= marginal[1] + 1e-9
        narrower += most - least < given["piu_upper"] - given["piu_lower"] - 0.01
    assert narrower > 5  # where W agrees the two worlds are known to agree in R, which narrows the interval


def test_the_width_is_twice_the_mean_of_the_least() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        model = Model.draw(rng, hard=False)
        scores, worlds = model.worlds()
        found, _ = measure(scores, worlds)
        a = [(model.p[u][:, None] * model.r[u] * model.c[0, u]).sum() for u in range(len(model.s))]
        b = [(model.q[u][:, None] * model.r[u] * model.c[1, u]).sum() for u in range(len(model.s))]
        least = np.min([a, 1.0 - np.array(a), b, 1.0 - np.array(b)], axis=0)
        assert found["piu_upper"] - found["piu_lower"] == pytest.approx(2.0 * model.s @ least)


def test_disagreement_given_units_can_exceed_that_of_the_margins() -> None:
    """a = 1{S}, b = 1 - a: 2 against 1."""
    unit = np.arange(2)
    world = CounterfactualSample(pd.DataFrame({"S": unit}), np.full(2, 0.5), unit)
    scores = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    found, _ = measure_views([scores, scores], [(world, world), (world, world)])
    assert found["piu_double_disagreement"] == pytest.approx(2.0)
    assert found["piu_paper_bound"] == pytest.approx(1.0)
    assert found["piu_upper"] == pytest.approx(1.0)
