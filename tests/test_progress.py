"""Bars appear where somebody sees them, and late."""

from __future__ import annotations

import io
import sys
import time
import warnings

import pandas as pd
import pytest

import pyrofair as pf
from pyrofair import PyrofairWarning, _progress
from pyrofair._progress import progress_bar


class Screen(io.StringIO):
    """A standard error that may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class InNotebook(Screen):
    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize(
    ("screen", "shown", "after", "seen"),
    [
        (Screen(terminal=True), True, 0.0, True),
        (InNotebook(terminal=False), True, 0.0, True),
        (Screen(terminal=False), True, 0.0, False),
        (Screen(terminal=True), False, 0.0, False),
        (Screen(terminal=True), True, 60.0, False),
    ],
    ids=["terminal", "notebook", "file", "not asked for", "short work"],
)
def test_bars_where_somebody_sees_them(
    screen: Screen, shown: bool, after: float, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "AFTER", after)
    for _ in progress_bar("replicates", range(3), shown=shown, mininterval=0.0):
        time.sleep(0.01)
    assert ("replicates" in screen.getvalue()) == seen


def test_a_closed_standard_error_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for screen in (closed, None):
        monkeypatch.setattr(sys, "stderr", screen)
        assert [*progress_bar("x", range(3))] == [0, 1, 2]


def test_long_loops_have_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pf.CausalGraph("A -> M; {A M} -> Y", sensitive="A", outcome="Y")
    table = pd.DataFrame({"A": [0, 0, 1, 1, 1, 1] * 40, "M": [0, 1, 0, 1, 1, 1] * 40, "Y": [0, 1, 0, 1, 0, 0] * 40})
    learners = {"propensity": "saturated", "regression": "saturated"}
    unfair, X, screen = graph.unfair("A -> Y"), table[["A", "M"]], Screen(terminal=True)
    classifier = pf.PenalizedClassifier("logistic", source=pf.IPW(unfair), epochs=1, random_state=0)

    def optional(*, progress: bool) -> None:
        pf.audit({"m": table["M"]}, pf.IPW(unfair), table, scores="outcome", n_boot=2, progress=progress)
        source = pf.OneStep(unfair, **learners, random_state=0)
        pf.audit({"m": table["M"]}, source, table, scores="outcome", progress=progress)
        pf.learn_mechanisms(table, graph, nodes=["M"], steps=1, progress=progress)
        pf.penalty_path(
            classifier, X, table["Y"], strengths=[1.0], seeds=1, test=(X, table["Y"]), n_boot=0, progress=progress
        )

    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "AFTER", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        bars = ("bootstrap", "regressions", "mechanisms", "penalty path")
        optional(progress=False)
        assert [name for name in bars if name in screen.getvalue()] == []
        optional(progress=True)
        assert [name for name in bars if name not in screen.getvalue()] == []
        pf.sharp_bounds(unfair, table, n_boot=2, random_state=0)
        source = pf.OneStep(unfair, **learners, random_state=0)
        pf.sensitivity.confounding(table["Y"], source, table, gammas=[1.0, 2.0], scores="outcome")
    assert [name for name in ("hidden causes", "regressions") if name not in screen.getvalue()] == []
