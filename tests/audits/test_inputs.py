"""Every analysis of models reads rows and models alike, and warns of the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair.robustness.sensitivity import confounding

GRAPH = pf.CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")


class Risk:
    """The probability of the other label."""

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        p = 0.3 + 0.4 * X["M"].to_numpy(float)
        return np.column_stack([p, 1.0 - p])


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    Q, A = rng.integers(0, 2, (2, 400))
    M = (rng.random(400) < 0.2 + 0.3 * A + 0.2 * Q).astype(int)
    return pd.DataFrame({"Q": Q, "A": A, "M": M, "Y": (rng.random(400) < 0.1 + 0.7 * M).astype(int)})


SATURATED: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "random_state": 0}


@pytest.mark.parametrize(
    "run",
    [
        lambda model, df, **more: pf.audit({"model": model}, pf.OneStep(UNFAIR, **SATURATED), df, **more),
        lambda model, df, **more: pf.decompose({"model": model}, GRAPH, df, **SATURATED, **more),
        lambda model, df, **more: confounding(model, pf.OneStep(UNFAIR, **SATURATED), df, **more),
    ],
    ids=["audit", "decompose", "confounding"],
)
def test_rows_and_models_are_read_alike(run: Any) -> None:
    df = table()
    with pytest.warns(pf.PyrofairWarning) as caught:
        run(Risk(), df.assign(unused=0))
    told = [str(each.message) for each in caught if each.filename == __file__]
    for part in ("'model' run against the outcome", "Columns outside the graph are ignored: unused"):
        assert sum(part in each for each in told) == 1
    with pytest.raises(pf.DataError, match=r"scores='outcome'.*'model' has predict_proba"):
        run(Risk(), df, scores="outcome")
