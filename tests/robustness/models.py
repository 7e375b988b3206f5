"""What tests of robustness share: two mediators that may be turned, a recanting witness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import pyrofair as pf

EDGES = "A -> {M L}; M - L; {A M L} -> Y"
P_R = {0: 0.41, 1: 0.67}
P_M = {(0, 0): 0.2, (0, 1): 0.6, (1, 0): 0.45, (1, 1): 0.8}
P_Y = {
    (0, 0, 0): 0.3128661017, (0, 0, 1): 0.4614050847, (0, 1, 0): 0.5589512195, (0, 1, 1): 0.7014048780,
    (1, 0, 0): 0.4879454545, (1, 0, 1): 0.5577454545, (1, 1, 0): 0.6998567164, (1, 1, 1): 0.7535776119,
}  # fmt: skip
"""P(R = 1) by A, P(M = 1) by A and R, and P(Y = 1) by A, R and M, of the case with a recanting witness R."""


def graphs(edges: str = EDGES, **settings: Any) -> dict[str, pf.CausalGraph]:
    """Return the graphs in which M and L are turned either way."""
    return pf.CausalGraph.expand(edges, sensitive="A", outcome="Y", **settings)


def table(n: int = 400) -> pd.DataFrame:
    """Draw n rows of A, M, L and Y, in which A causes M, both cause L, and all cause Y."""
    rng = np.random.default_rng(0)
    A = rng.integers(2, size=n)
    M = (rng.random(n) < 0.3 + 0.4 * A).astype(int)
    L = (rng.random(n) < 0.2 + 0.3 * A + 0.3 * M).astype(int)
    Y = (rng.random(n) < 0.1 + 0.2 * A + 0.3 * M + 0.3 * L).astype(int)
    return pd.DataFrame({"A": A, "M": M, "L": L, "Y": Y})
