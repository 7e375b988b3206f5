"""Classifiers of several penalties and strengths, whose source is fitted once, each trained from a cold start."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

import pyrofair as pf
from pyrofair.classifiers.training import train


def fit_each(
    model: Any, X: pd.DataFrame, y: Any, penalties: Sequence[str], strengths: Sequence[float]
) -> Iterator[tuple[str, float, Any, float]]:
    """Yield penalty, strength, the model as ``fit`` would leave it, and the seconds that would have taken."""
    begin = time.perf_counter()
    if model.source is None:
        yield "", 0.0, model.fit(X, y), time.perf_counter() - begin
        return
    problem = model.prepare(X, y)
    spent = time.perf_counter() - begin
    for penalty in penalties:
        for strength in strengths:
            begin = time.perf_counter()
            schedule, function = model.schedule(), getattr(pf, penalty)
            model.module_ = train(model.new_module(problem), problem, function, strength, schedule)
            yield penalty, strength, model, spent + time.perf_counter() - begin
