"""Graphs, formulas and figures in a notebook."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd

import pyrofair as pf
from pyrofair._figures import ShownFigure

PNG = b"\x89PNG\r\n\x1a\n"
GRAPH = pf.CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")
FOUND = pf.identify(UNFAIR)


def test_pictures_show_without_pyplot() -> None:
    program = (
        "import sys, pyrofair as pf\n"
        "graph = pf.CausalGraph('A -> M -> Y; A -> Y', sensitive='A', outcome='Y')\n"
        "shown = [pf.audits.plot_feasible_region(), graph, graph.unfair('A -> Y')]\n"
        "assert all(each._repr_png_().startswith(b'\\x89PNG') for each in shown)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_nothing_is_said_of_missing_widgets() -> None:
    """Pyro imports tqdm in a way that warns in a notebook without ipywidgets, unless it is there already."""
    program = (
        "import sys, types, IPython, warnings\n"
        "for name in ('ipywidgets', 'IPython.html.widgets'):\n"
        "    sys.modules[name] = None\n"
        "sys.modules['ipykernel.zmqshell'] = types.ModuleType('zmqshell')\n"
        "IPython.get_ipython = lambda: types.SimpleNamespace(config={'IPKernelApp': {}})\n"  # asked before tqdm 4.67.1
        "import pyrofair as pf\n"
        "pf.SEM\n"
        "assert 'tqdm.notebook' in sys.modules and 'pyro' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_reports_and_paths_return_figures_that_show() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(2, size=(200, 5)), columns=list("AQDMY"))
    model = pf.PenalizedClassifier("logistic", epochs=2, progress=False, random_state=0)
    source = pf.IPW(UNFAIR, arm="pooled")
    features = table[["A", "Q", "D", "M"]]
    report = pf.audit({"m": model.fit(features, table["Y"])}, source.fit(features), table, n_boot=0)
    penalised = model.set_params(source=source, strength=1.0)
    path = pf.penalty_path(penalised, features, table["Y"], strengths=[0.0, 1.0], progress=False, judge=source)
    for figure in (report.plot(), path.plot()):
        assert isinstance(figure, ShownFigure)
        assert figure._repr_png_().startswith(PNG)


def test_graphs_and_formulas_have_short_texts() -> None:
    assert repr(GRAPH) == "<CausalGraph A -> Y: 5 nodes (A, Q, D, M, Y), 8 edges; print it for all>"
    assert repr(FOUND) == (
        "<Estimand of the prediction, unfair paths: 2; print it for formulas, weights and assumptions>"
    )
    assert repr(FOUND.switched) == "<RegimeEstimand of Y(A<=1||pi): 3 factors; print it for the formula>"
    assert repr(FOUND.switched.weight(1)) == "<Weight on group 1: 5 propensities; print it for the formula>"
    assert repr(FOUND.switched.weight("pooled")).startswith("<Weight on both groups: ")
    many = pf.CausalGraph([(f"V{i}", "Y") for i in range(100)] + [("A", "Y")], sensitive="A", outcome="Y")
    for each in (many, many.unfair("A -> Y"), pf.identify(many.unfair("A -> Y"))):
        assert len(repr(each)) < 150


def test_graphs_and_formulas_are_drawn_and_set() -> None:
    for shown in (GRAPH, UNFAIR):
        picture = shown._repr_png_()
        assert picture is not None
        assert picture.startswith(PNG)
    assert UNFAIR._repr_png_() != GRAPH._repr_png_()  # red
    assert FOUND._repr_latex_() == f"$$\n{FOUND.latex}\n$$"
    assert FOUND.switched._repr_latex_() == f"$$\n{FOUND.switched.latex}\n$$"
    weight = FOUND.switched.weight(1)
    assert weight._repr_latex_() == f"$$\n{weight.latex}\n$$"


def test_what_would_be_unreadable_is_shown_as_text() -> None:
    names = [f"V{i}" for i in range(100)]
    graph = pf.CausalGraph([(name, "Y") for name in names] + [("A", "Y")], sensitive="A", outcome="Y")
    assert graph._repr_png_() is None
    assert graph.unfair("A -> Y")._repr_png_() is None
    chained = pf.CausalGraph([("A", "V0"), *pairwise(names), (names[-1], "Y"), ("A", "Y")], sensitive="A", outcome="Y")
    assert pf.identify(chained.unfair("A -> Y"))._repr_latex_() is None
