"""What tests of sensitivity share: a graph, scores by its cells, its population and samples of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import pyrofair as pf
from tests.models import Known

GRAPH = pf.CausalGraph("Q -> A; {Q A} -> D; {Q A D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
SATURATED: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "form": "prefix", "random_state": 0}
CELLS = list(product(range(2), range(2), range(3), range(2)))
"""Of Q, A, D and M."""


class Table(Known):
    """A table of scores by (a, q, d, m)."""

    def __init__(self, scores: np.ndarray) -> None:
        super().__init__(lambda X: scores[tuple(X[name].to_numpy() for name in ("A", "Q", "D", "M"))])


def repeated(p: np.ndarray, copies: int = 25) -> tuple[pd.DataFrame, np.ndarray]:
    """The cells with probabilities (2, 2, 3, 2) as weighted rows, each so often that no stage has few of them."""
    return pd.DataFrame(CELLS * copies, columns=["Q", "A", "D", "M"]), np.tile(p.ravel() * 5000.0, copies)


def sample(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.35 + 0.3 * q).astype(int)
    d = rng.binomial(2, 0.2 + 0.3 * a + 0.2 * q)
    m = (rng.random(n) < 0.15 + 0.25 * a + 0.1 * d + 0.1 * q).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "D": d, "M": m})


def exact() -> np.ndarray:
    """The distribution (2, 2, 3, 2) of what :func:`sample` draws from, by (Q, A, D, M)."""
    q, a, d, m = np.indices((2, 2, 3, 2))
    p_a, p_d, p_m = 0.35 + 0.3 * q, 0.2 + 0.3 * a + 0.2 * q, 0.15 + 0.25 * a + 0.1 * d + 0.1 * q
    of_d = np.choose(d, [(1 - p_d) ** 2, 2 * p_d * (1 - p_d), p_d**2])
    return np.asarray(0.5 * np.where(a == 1, p_a, 1 - p_a) * of_d * np.where(m == 1, p_m, 1 - p_m))
