"""Case C2: on random discrete models with independent errors, by enumeration, intervals nest and hold the truth."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from pyrofair.audits.bootstrap import measure, measure_views, view_signs
from pyrofair.effects.bounds import choose_potentials, consistent_ends
from pyrofair.effects.potential_outcomes import CounterfactualSample

Vector = NDArray[np.float64]
LEVELS = 3
ENDS = ("piu_lower", "piu_upper")


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


def paired(model: Model, draws: int = 4000) -> Any:
    """The same worlds with cells: R in as many rows as by its probability, up to rounding."""
    k = len(model.s)
    rows: list[tuple[int, int, int]] = []
    for u, w in itertools.product(range(k), range(LEVELS)):
        ones = round(draws * model.r[u, w, 1])
        rows += [(u, w, int(i < ones)) for i in range(draws)]
    u, w, r = np.array(rows).T
    scores = model.c[0][u, w, r], model.c[1][u, w, r]
    frame = pd.DataFrame(rows, columns=["S", "W", "R"])
    one, other = (
        CounterfactualSample(frame, model.s[u] * distribution[u, w] / draws, u, cell=w)
        for distribution in (model.p, model.q)
    )
    return scores, (one, other)


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


@pytest.mark.parametrize("hard", [True, False])
def test_consistent_ends_are_those_of_the_linear_program(hard: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(15):
        model = Model.draw(rng, hard=hard)
        _, least, most = model.piu(rng)
        scores, worlds = paired(model)
        twice = [scores, scores], [worlds, worlds]
        assert consistent_ends(*twice, choose_potentials(*twice)) == pytest.approx((least, most), abs=2e-3)
        found, _ = measure_views([scores, scores], [worlds, worlds])
        assert (found["piu_lower"], found["piu_upper"]) == pytest.approx((least, most), abs=2e-3)


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


def estimated(p: Vector, q: Vector, rows: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Worlds of equal units whose margins are estimated from so many rows of each unit and arm; 0: known."""
    units, levels = p.shape
    unit, cell = np.repeat(np.arange(units), levels), np.tile(np.arange(levels), units)
    frame = pd.DataFrame({"W": cell})
    shares = [rng.multinomial(rows, distribution) / rows if rows else distribution for distribution in (p, q)]
    one, other = (CounterfactualSample(frame, share.ravel() / units, unit, cell=cell) for share in shares)
    return one, other


@pytest.mark.parametrize("rows", [50, 400, 3000])
@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.some(3)
def test_estimated_margins_err_outward(rows: int, effect: bool) -> None:
    """No effect has the lower end 0; the least cost of margins estimated from 50 rows is .083 on average."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 20)
    q = rng.dirichlet(np.ones(5), 20) if effect else p
    scores = (c := rng.random(100), c)
    exact = [estimated(p, q, 0, rng)] * 2
    least, most = consistent_ends([scores] * 2, exact, choose_potentials([scores] * 2, exact))
    found = []
    for _ in range(15):
        views = [estimated(p, q, rows // 2, rng) for _ in range(2)]
        found.append(measure_views([scores] * 2, views)[0])
    ends = np.array([(each["piu_lower"], each["piu_upper"]) for each in found])
    error = ends.std(axis=0) / np.sqrt(len(ends))
    assert error.max() < 0.006
    assert least == pytest.approx(0.0, abs=1e-9) if not effect else least > 0.1
    assert ends[:, 0].mean() < least + 3.0 * error[0]
    assert ends[:, 1].mean() > most - 3.0 * error[1]
    assert tuple(ends.mean(axis=0)) == pytest.approx((least, most), abs=0.002 + 1.0 / rows + 3.0 * error.max())


def test_replicates_keep_their_potentials() -> None:
    """Held potentials make the ends linear in the margins: the mean over moved margins is that at their mean."""
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(4), 3)
    scores = (rng.random(12), rng.random(12))
    start = [estimated(p, q, 100, rng) for _ in range(2)]
    signs = view_signs([scores] * 2, start)
    moved = [[estimated(p, q, 100, rng) for _ in range(2)] for _ in range(4)]
    each = np.array([[measure_views([scores] * 2, m, signs)[0][name] for name in ENDS] for m in moved])
    middle = []
    for i in range(2):
        weights = [np.mean([m[i][which].weight for m in moved], axis=0) for which in (0, 1)]
        one, other = (replace(start[i][which], weight=weights[which]) for which in (0, 1))
        middle.append((one, other))
    ends = [measure_views([scores] * 2, middle, signs)[0][name] for name in ENDS]
    np.testing.assert_allclose(each.mean(axis=0), ends)
