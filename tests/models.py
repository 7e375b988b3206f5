"""A known classifier, for the tests of all parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd


class Known:
    """A classifier whose score is a known function of the rows; it has neither names nor classes."""

    def __init__(self, score: Callable[[pd.DataFrame], Any]) -> None:
        self.score = score

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        p = np.asarray(self.score(X), dtype=float)
        return np.column_stack([1 - p, p])
