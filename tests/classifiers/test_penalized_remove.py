"""The columns that the *Remove* baselines keep, of the paper's graphs and of others."""

from __future__ import annotations

from typing import Any

import pytest

from pyrofair.classifiers.penalized import remove
from pyrofair.datasets.uci import load_adult, load_german
from pyrofair.exceptions import GraphError
from pyrofair.graph.causal_graph import CausalGraph

HIRING = CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y")


def test_hiring() -> None:
    unfair = HIRING.unfair("A -> Y", "A -> D -> Y")
    assert remove(unfair, "touched") == ["Q", "M"]
    assert remove(HIRING.unfair(), "touched") == ["Q", "A", "D", "M"]
    assert remove(unfair, "descendants") == remove(HIRING, "descendants") == ["Q"]


def test_adult_and_german() -> None:
    adult, german = load_adult(), load_german()
    assert remove(adult.unfair, "touched") == remove(adult.graph, "descendants") == ["age", "native-country"]
    assert remove(german.unfair, "touched") == ["age", "purpose", "credit-amount", "duration"]
    assert remove(german.unfair, "descendants") == ["age", "purpose"]


def test_only_what_a_classifier_may_read_is_kept() -> None:
    graph = CausalGraph("{A Z H} -> M; {A M W} -> Y; A -> K; H -> Y", sensitive="A", outcome="Y", latent=["H"])
    assert remove(graph.unfair("A -> Y"), "touched") == ["M", "W"]
    assert remove(graph, "descendants") == ["W"]


def test_neither_depends_on_which_value_is_the_baseline() -> None:
    unfair = HIRING.unfair("A -> Y", "A -> D -> Y")
    assert remove(unfair.reversed(), "touched") == remove(unfair, "touched")


@pytest.mark.parametrize(
    ("graph", "nodes", "message"),
    [
        (HIRING, "touched", r"remove\(\.\.\., 'touched'\) needs the unfair paths: remove\(graph\.unfair\("),
        (HIRING, "all", "nodes='all' is not known; it is 'touched' or 'descendants'"),
        (
            CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y"),
            "descendants",
            "Nothing is left to predict from: A, M are all removed",
        ),
        (
            CausalGraph("A -> Y", sensitive="A", outcome="Y").unfair("A -> Y"),
            "touched",
            "Nothing is left .*: A are all",
        ),
    ],
)
def test_refused(graph: Any, nodes: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        remove(graph, nodes)
