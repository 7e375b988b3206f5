"""Implied independences against enumeration, their tests on tables with and without them, and what is said of both."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from pyrofair import CausalGraph, DataError
from pyrofair.datasets.uci import load_adult, load_german
from pyrofair.robustness.independences import (
    GraphCheck,
    Independence,
    Smooth,
    _holm,
    _implied,
    _normal_scores,
    _scores,
    check_graph,
    implied_independences,
)

HIRING = "Q -> D; Q -> M; A -> D; A -> M; {A Q D M} -> Y"


def graph_of(edges: str = HIRING, **settings: Any) -> CausalGraph:
    return CausalGraph(edges, sensitive="A", outcome="Y", **settings)


def hiring(n: int, seed: int, dependent: float = 0.0) -> pd.DataFrame:
    """Draw a table of the hiring graph with columns of several types; D and M depend on each other on request."""
    rng = np.random.default_rng(seed)
    A, Q = rng.integers(2, size=n), rng.normal(size=n)
    D = rng.poisson(np.exp(0.5 * Q + 0.3 * A))
    lean = 1.5 * Q - A + dependent * (D - np.exp(0.5 * Q + 0.3 * A)) + rng.logistic(size=n)
    M = np.select([lean < -1.0, lean < 1.0], ["low", "middle"], "high")
    return pd.DataFrame({"A": A, "Q": Q, "D": D, "M": M, "Y": rng.integers(2, size=n)})


# --- what a graph implies --------------------------------------------------------------------------------------------


def test_without_latent_nodes_the_parents_of_the_later_node_separate() -> None:
    assert implied_independences(graph_of()) == (Independence("Q", "A", ()), Independence("D", "M", ("Q", "A")))
    assert implied_independences(graph_of("A -> M -> Y")) == (Independence("A", "Y", ("M",)),)
    assert implied_independences(graph_of("A -> M -> Y"), outcome=False) == ()
    assert [str(each) for each in implied_independences(load_adult().graph)] == ["C independent of A"]
    assert [str(each) for each in implied_independences(load_german().graph)] == [
        "C independent of A",
        "S independent of R given A, C",
    ]


def test_with_latent_nodes() -> None:
    front_door = graph_of("A -> M -> Y; U -> {A Y}", latent=["U"])
    assert implied_independences(front_door) == ()
    # A -> M <-> Y and a latent cause of A and Y: A and Y have no edge, and nothing separates them.
    verma = graph_of("A -> M -> L -> Y; U -> {M Y}", latent=["U"])
    assert implied_independences(verma) == (Independence("A", "L", ("M",)),)
    assert _implied(verma, True)[1] == (("A", "Y"),)
    collider = graph_of("A -> Y; C -> D; {U A} -> D; U -> C; C -> Y", latent=["U"])
    assert implied_independences(collider)[0] == Independence("C", "A", ())


@pytest.mark.parametrize("seed", range(25))
def test_pairs_are_those_that_some_set_separates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = ["A", *(f"V{i}" for i in range(4)), "Y"]
    edges = [("A", "Y"), *((a, b) for a, b in combinations(nodes, 2) if rng.random() < 0.4)]
    latent = [f"U{i}" for i in range(int(rng.integers(0, 3)))]
    for node in latent:
        edges += [(node, str(each)) for each in rng.choice(nodes, size=2, replace=False)]
    named = {node for edge in edges for node in edge}
    hidden = [*latent, *(node for node in nodes[1:-1] if node in named and rng.random() < 0.2)]
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=hidden)
    found, without = _implied(graph, True)
    listed = {frozenset((each.left, each.right)): each for each in found}
    for one, other in combinations(graph.observed, 2):
        rest = [node for node in graph.observed if node not in (one, other)]
        sets = chain.from_iterable(combinations(rest, size) for size in range(len(rest) + 1))
        separable = any(nx.is_d_separator(graph.dag, one, other, {*each}) for each in sets)
        assert (frozenset((one, other)) in listed) is separable
        if separable:
            claim = listed[frozenset((one, other))]
            assert nx.is_d_separator(graph.dag, one, other, {*claim.given})
            if graph.latent:
                assert nx.is_minimal_d_separator(graph.dag, one, other, {*claim.given})
        else:
            joined = one in graph.parents(other) or other in graph.parents(one)
            assert not (joined and ((one, other) in without or (other, one) in without))


# --- tests -----------------------------------------------------------------------------------------------------------


def test_a_missing_edge_is_found_and_named() -> None:
    df = hiring(800, 0, dependent=0.5)
    check = graph_of().check(df, regression="smooth", random_state=0)
    assert isinstance(check, GraphCheck)
    assert list(check.table.columns) == [
        "left", "right", "given", "effect", "largest", "statistic", "p_value", "p_adjusted", "fails", "note"
    ]  # fmt: skip
    assert check.failures[["left", "right"]].to_numpy().tolist() == [["D", "M"]]
    row = check.failures.iloc[0]
    assert row["largest"].startswith("D; M=")
    assert 0.1 < abs(row["effect"]) < 1.0
    assert row["p_adjusted"] < 1e-4
    assert "FAILS: D independent of M given" in str(check)
    assert "FAILS" not in str(graph_of(f"{HIRING}; D -> M").check(df, regression="smooth", random_state=0))
    assert "Implied independences" in check._repr_html_()
    same = check_graph(graph_of(), df, regression="smooth", random_state=0).table
    pd.testing.assert_frame_equal(check.table, same)


def test_size_and_power() -> None:
    """Of 15 draws without a dependence 4 or more are below .05 with probability .005; with one most are found."""

    def p(seed: int, dependent: float) -> float:
        check = graph_of().check(hiring(300, seed, dependent), regression="smooth", random_state=seed)
        return float(check.table["p_value"].iloc[1])

    assert sum(p(seed, 0.0) < 0.05 for seed in range(15)) <= 3
    assert sum(p(seed, 0.6) < 0.05 for seed in range(6)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("regression", ["flexible", "smooth"])
def test_size_of_many_draws(regression: Any) -> None:
    p = [
        graph_of().check(hiring(1_000, seed), regression=regression, random_state=seed).table["p_value"].to_numpy()
        for seed in range(200)
    ]
    rejected = (np.array(p) < 0.05).mean(axis=0)
    assert (rejected < 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / 200)).all()


def test_other_regressions_are_taken() -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline

    from pyrofair.tables.encoder import TableEncoder

    df = hiring(300, 1, dependent=0.6)
    for regression in ("boosted", make_pipeline(TableEncoder(), LinearRegression())):
        check = graph_of().check(df, regression=regression, random_state=0)
        assert check.failures[["left", "right"]].to_numpy().tolist() == [["D", "M"]]


def test_groups_of_columns_and_rare_levels() -> None:
    rng = np.random.default_rng(0)
    n = 600
    A = rng.integers(2, size=n)
    df = pd.DataFrame(
        {
            "A": np.where(A == 1, "man", "woman"),
            "age": rng.normal(size=n),
            "town": rng.choice(["a", "b", "c", "d"], n, p=[0.6, 0.36, 0.02, 0.02]),
            "Y": rng.integers(2, size=n),
        }
    )
    df["age"] += 0.4 * A
    graph = CausalGraph(
        "C -> Y; A -> Y", sensitive="A", outcome="Y", baseline="woman", contrast="man", columns={"C": ["age", "town"]}
    )
    check = graph.check(df, regression="smooth", random_state=0)
    assert check.failures["largest"].item() == "age; A=woman"
    names, values = _scores(df[["age", "town", "A"]])
    assert names == ["age", "town=a", "town=b", "town in 2 rare levels", "A=woman"]
    assert np.abs(values.mean(axis=0)).max() < 1e-9
    assert values.std(axis=0) == pytest.approx(np.ones(5))


def test_what_cannot_be_tested_is_said() -> None:
    df = hiring(200, 0)
    constant = graph_of().check(df.assign(D=1), regression="smooth", random_state=0)
    row = constant.table.iloc[1]
    assert row["note"] == "D is constant, or determined by the nodes given"
    assert np.isnan(row["p_value"])
    assert not row["fails"]
    assert "not tested: D independent of M" in str(constant)
    rare = hiring(200, 0).assign(M=[f"town {i % 40}" for i in range(200)])
    row = graph_of().check(rare, regression="smooth", random_state=0).table.iloc[1]
    assert row["note"] == "no two levels of M have 20 rows"
    assert np.isnan(row["p_value"])
    assert np.isnan(row["p_adjusted"])
    short, table = graph_of("A -> M -> Y"), hiring(200, 0)[["A", "M", "Y"]]
    assert len(short.check(table, regression="smooth", random_state=0).table) == 1
    assert short.check(table.drop(columns="Y"), regression="smooth", random_state=0).table.empty
    full = graph_of("A -> M; {A M} -> Y")
    check = full.check(hiring(200, 0)[["A", "M", "Y"]], regression="smooth", random_state=0)
    assert check.table.empty
    assert check.failures.empty
    assert str(check).endswith("no table can contradict it.")
    verma = graph_of("A -> M -> L -> Y; U -> {M Y}", latent=["U"])
    found = verma.check(
        hiring(200, 0).rename(columns={"D": "L"}).drop(columns="Q"), regression="smooth", random_state=0
    )
    assert found.untested == (("A", "Y"),)
    assert "no observed nodes separate A and Y, though there is no edge" in str(found)


def jumps(n: int, seed: int, noise: float = 1.0) -> pd.DataFrame:
    """Draw D and M, independent given Q and A, whose means are one function with jumps in Q."""
    rng = np.random.default_rng(seed)
    A, Q = rng.integers(2, size=n), rng.normal(size=n)
    mean = 3.0 * (Q > 0.3 - 0.6 * A)
    D, M = (mean + each * rng.normal(size=n) for each in (noise, 1.0))
    return pd.DataFrame({"A": A, "Q": Q, "D": D, "M": M, "Y": rng.integers(2, size=n)})


def test_jumps_that_both_nodes_share_are_no_dependence() -> None:
    """A smooth regression errs on both sides of each jump, for both nodes alike."""
    df = jumps(600, 5)
    smooth = graph_of().check(df, regression="smooth", random_state=0).table.iloc[1]
    assert smooth["p_value"] < 0.01
    check = graph_of().check(df, random_state=0)
    row = check.table.iloc[1]
    assert row["p_value"] > 0.05
    assert abs(row["effect"]) < 0.5 * abs(smooth["effect"])
    assert row["note"].startswith("both columns jump with the nodes given")
    same = graph_of().check(df, random_state=0).table
    pd.testing.assert_frame_equal(check.table, same)
    dependent = graph_of().check(df.assign(M=df["M"] + 0.3 * df["D"]), random_state=0)
    assert dependent.table["fails"].iloc[1]
    assert "Note: both columns jump with the nodes given" in str(dependent)


@pytest.mark.slow
def test_jumps_are_rejected_about_as_often_as_stated() -> None:
    p = np.array([graph_of().check(jumps(1_000, seed), random_state=seed).table["p_value"][1] for seed in range(100)])
    assert (p < 0.05).mean() < 0.15


def test_a_column_that_is_nearly_determined_is_not_tested() -> None:
    """A jump without noise leaves residuals in the few rows beside it, where both nodes err alike."""
    row = graph_of().check(jumps(600, 0, noise=0.0), random_state=0).table.iloc[1]
    assert row["note"] == "given the other nodes, fewer than 20 rows have residuals of both"
    assert not row["fails"]


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (lambda df: df.iloc[:50], {}, "df has 50 rows, fewer than 100"),
        (lambda df: df.drop(columns="M"), {}, "lacks the column 'M'"),
        (lambda df: df.assign(Q=np.nan), {}, "missing value"),
        (lambda df: df, {"level": 1.0}, "level"),
        (lambda df: df, {"regression": "splines"}, "regression='splines' is not known"),
        (lambda df: df, {"folds": 1}, "folds=1 must be an integer from 2 to 100"),
        (lambda df: df, {"folds": 101}, "folds=101 must be an integer from 2 to 100"),
        (lambda df: df, {"graph": graph_of().unfair("A -> Y")}, "graph"),
    ],
)
def test_what_is_refused(change: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_graph(**{"graph": graph_of(), "df": change(hiring(200, 0)), **settings})


def test_holm() -> None:
    assert _holm(np.array([0.01, np.nan, 0.04, 0.03])) == pytest.approx([0.03, np.nan, 0.06, 0.06], nan_ok=True)
    assert _holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]


def test_the_smooth_regression_finds_a_function() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=600), "z": rng.choice(["a", "b"], 600)})
    truth = np.sin(2 * X["x"]) * np.where(X["z"] == "a", 1.0, -1.0)
    y = np.column_stack([truth + 0.3 * rng.normal(size=600), rng.normal(size=600)])
    smooth = Smooth(X, 0)
    design = smooth.design(X)
    fitted = smooth.fit(design[:400], y[:400], np.ones(400))(design[400:])
    assert np.mean((fitted[:, 0] - truth[400:]) ** 2) < 0.1 * truth.var()
    assert np.mean(fitted[:, 1] ** 2) < 0.1
    assert _normal_scores(np.array([3.0, 1.0, 2.0, 2.0]))[0] > 0.5


def test_missing_values_are_values_of_their_node() -> None:
    rng = np.random.default_rng(0)
    df = hiring(2000, 0)
    df["D"] = df["D"].astype(float).where(rng.random(len(df)) > 0.1 + 0.3 * df["A"])
    graph = graph_of()
    with pytest.raises(DataError, match='missing="recorded"'):
        graph.check(df, regression="smooth")
    found = graph.check(df, regression="smooth", missing="recorded", random_state=0)
    assert found.failures.empty
    text = str(found)
    assert found.missing["column"].tolist() == ["D"]
    assert "D may be missing" in text
    assert "Missing values, share of rows" in text
    assert "Missing values, share of rows" in found._repr_html_()
    lost = df.assign(M=df["M"].astype(object).where(df["D"].notna() | (rng.random(len(df)) < 0.5)))
    assert found.failures.empty != graph.check(lost, regression="smooth", missing="recorded").failures.empty
    for name in ("A", "Y"):
        with pytest.raises(DataError, match=f"'{name}'"):
            graph.check(df.assign(**{name: df[name].astype(object).where(df.index > 0)}), missing="recorded")
