from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair.exceptions import PositivityWarning, PyrofairWarning
from tests.robustness.models import P_M, P_R, P_Y

Vector = NDArray[np.float64]
HIRING = Path(__file__).parents[2] / "cases" / "hiring_discrete.csv"


# -- the case with a recanting witness ---------------------------------------------------------------------------------

WITNESS = pf.CausalGraph("A -> R; {A R} -> M; {A R M H} -> Y; H -> R", sensitive="A", outcome="Y", latent=["H"])


def witness_table() -> tuple[pd.DataFrame, Vector]:
    rows = [*itertools.product((0, 1), repeat=4)]

    def chance(p: float, value: int) -> float:
        return p if value else 1.0 - p

    weight = [0.5 * chance(P_R[a], r) * chance(P_M[a, r], m) * chance(P_Y[a, r, m], y) for a, r, m, y in rows]
    return pd.DataFrame(rows, columns=list("ARMY")), np.array(weight)


def test_a_recanting_witness() -> None:
    df, weight = witness_table()
    found = pf.sharp_bounds(WITNESS.unfair("A -> Y", "A -> R -> Y"), df, sample_weight=weight)
    assert found.sharp
    assert found.y0 == pytest.approx((0.4663322, 0.4663322), abs=1e-7)
    assert found.ypi == pytest.approx((0.5173126, 0.7897610), abs=1e-7)
    assert found.piu == pytest.approx((0.1264296, 0.9327736), abs=1e-7)
    assert found.effect == pytest.approx((0.5173126 - 0.4663322, 0.7897610 - 0.4663322), abs=1e-7)
    assert found.types == 1024
    direct = pf.sharp_bounds(WITNESS.unfair("A -> Y"), df, sample_weight=weight)
    assert direct.sharp
    assert direct.ypi == pytest.approx((0.0, 1.0), abs=1e-7)


@pytest.mark.slow
def test_without_independent_errors_the_witness_has_the_closed_form() -> None:
    """P(Y(1, R(1), m) = 1, M(0) = m) lies between the Frechet bounds, which are attained."""
    df, weight = witness_table()
    unfair = WITNESS.unfair("A -> Y", "A -> R -> Y")
    found = pf.sharp_bounds(unfair, df, sample_weight=weight, independent_errors=False)
    assert found.ypi == pytest.approx((0.318879, 0.993926), abs=1e-6)
    assert found.y0 == pytest.approx((0.4663322, 0.4663322), abs=1e-7)
    assert found.sharp
    assert any("single world" in each for each in found.assumptions)
    low = high = 0.0
    for m in (0, 1):
        y = sum((P_R[1] if r else 1.0 - P_R[1]) * P_Y[1, r, m] for r in (0, 1))
        one = sum((P_R[0] if r else 1.0 - P_R[0]) * P_M[0, r] for r in (0, 1))
        p = one if m else 1.0 - one
        low, high = low + max(0.0, y + p - 1.0), high + min(y, p)
    assert found.ypi == pytest.approx((low, high), abs=1e-7)


def test_without_independent_errors_the_bounds_are_those_of_marginals() -> None:
    df, weight = witness_table()
    unfair = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    found = pf.sharp_bounds(unfair, df[["A", "M", "Y"]], sample_weight=weight, independent_errors=False)
    joint = pd.Series(weight).groupby([df["A"], df["M"], df["Y"]]).sum()
    y = [joint[1, m, 1] / joint[1, m].sum() for m in (0, 1)]
    p = [joint[0, m].sum() / joint[0].sum() for m in (0, 1)]
    expected = sum(max(0.0, a + b - 1.0) for a, b in zip(y, p, strict=True)), sum(map(min, y, p))
    assert found.sharp
    assert found.ypi == pytest.approx(expected, abs=1e-7)
    independent = pf.sharp_bounds(unfair, df[["A", "M", "Y"]], sample_weight=weight)
    assert independent.ypi == pytest.approx([y[0] * p[0] + y[1] * p[1]] * 2, abs=1e-7)
    assert found.piu[0] <= independent.piu[0] + 1e-9
    assert independent.piu[1] <= found.piu[1] + 1e-9


# -- full response types by the definition, path by path ---------------------------------------------------------------


class Brute:
    """Binary nodes with all their response types, nothing reduced, and each path followed by itself."""

    def __init__(self, order: Sequence[str], arrows: str, joined: Sequence[str], unfair: Sequence[str]) -> None:
        self.order = [*order]
        self.parents = {v: [u for u in order if f"{u}{v}" in arrows.split()] for v in order}
        self.unfair = {tuple(path) for path in unfair}
        self.districts = [*map(list, joined), *([v] for v in order if not any(v in part for part in joined))]
        self.types = [
            [*itertools.product(*(itertools.product((0, 1), repeat=2 ** len(self.parents[v])) for v in part))]
            for part in self.districts
        ]
        hidden = "".join(f"; H{i} -> {{{' '.join(part)}}}" for i, part in enumerate(joined))
        edges = "; ".join(f"{u} -> {v}" for v in order for u in self.parents[v])
        self.graph = pf.CausalGraph(
            edges + hidden, sensitive="A", outcome="Y", latent=[f"H{i}" for i in range(len(joined))]
        )
        self.matrices = [self._constraints(k) for k in range(len(self.districts))]

    def respond(self, v: str, own: Sequence[int], values: Mapping[str, int]) -> int:
        return own[int("".join(str(values[u]) for u in self.parents[v]) or "0", 2)]

    def _constraints(self, k: int) -> tuple[list[dict[str, int]], Vector]:
        part = self.districts[k]
        outside = [u for u in self.order if u not in part and any(u in self.parents[v] for v in part)]
        events = [
            dict(zip([*outside, *part], values, strict=True))
            for values in itertools.product((0, 1), repeat=len(outside) + len(part))
        ]
        rows = [
            [
                float(all(self.respond(v, own, event) == event[v] for v, own in zip(part, each, strict=True)))
                for each in self.types[k]
            ]
            for event in events
        ]
        return events, np.array(rows)

    def observe(self, laws: Sequence[Vector]) -> tuple[pd.DataFrame, Vector]:
        """Return the observed distribution: the product of the districts' factors."""
        self.sides = [matrix @ law for (_, matrix), law in zip(self.matrices, laws, strict=True)]
        rows = [*itertools.product((0, 1), repeat=len(self.order))]
        weight = np.ones(len(rows))
        for (events, _), sides in zip(self.matrices, self.sides, strict=True):
            known = {tuple(event.values()): side for event, side in zip(events, sides, strict=True)}
            at = [self.order.index(v) for v in events[0]]
            weight *= [known[tuple(row[i] for i in at)] for row in rows]
        return pd.DataFrame(rows, columns=self.order), weight

    def value(self, types: Mapping[str, Sequence[int]], v: str, rest: tuple[str, ...], world: int) -> int:
        values = {
            u: world * ((u, *rest) in self.unfair) if u == "A" else self.value(types, u, (u, *rest), world)
            for u in self.parents[v]
        }
        return self.respond(v, types[v], values)

    def targets(self) -> dict[str, Vector]:
        found = np.empty((2, *map(len, self.types)))
        for index in np.ndindex(*map(len, self.types)):
            types = {
                v: own
                for part, each, i in zip(self.districts, self.types, index, strict=True)
                for v, own in zip(part, each[i], strict=True)
            }
            found[(slice(None), *index)] = [self.value(types, "Y", ("Y",), world) for world in (0, 1)]
        return {"y0": found[0], "ypi": found[1], "effect": found[1] - found[0], "piu": np.abs(found[1] - found[0])}

    def mean(self, table: Vector, laws: Sequence[Vector], kept: int | None = None) -> Any:
        for i in reversed(range(table.ndim)):
            if i != kept:
                table = np.tensordot(table, laws[i], axes=(i, 0))
        return table

    def least(self, k: int, cost: Vector) -> tuple[float, Vector]:
        matrix = np.vstack([self.matrices[k][1], np.ones(len(cost))])
        found = linprog(cost, A_eq=matrix, b_eq=np.append(self.sides[k], 1.0), method="highs")
        return found.fun, np.maximum(found.x, 0.0)

    def search(self, table: Vector, laws: Sequence[Vector], random: np.random.Generator) -> float:
        """Return the least value found by optimising one district after another, from some starts."""
        best = np.inf
        for start in range(8):
            now = [*laws] if not start else [self.least(k, random.normal(size=len(t)))[1] for k, t in enumerate(laws)]
            value = np.inf
            for _ in range(10):
                before = value
                for k in range(len(now)):
                    value, now[k] = self.least(k, self.mean(table, now, k))
                if value > before - 1e-9:
                    break
            best = min(best, value)
        return best


CASES: dict[str, tuple[str, str, list[str], list[str]]] = {
    "A and M joined": ("AMY", "AM AY MY", ["AM"], ["AY"]),
    "front door": ("AMY", "AM MY", ["AY"], ["AMY"]),
    "instrument": ("ZAY", "ZA AY", ["AY"], ["AY"]),
    "covariate joined to the outcome": ("QAMY", "QA AM MY AY", ["QY"], ["AMY", "AY"]),
    "mediators joined": ("AMRY", "AM MR RY AY", ["MR"], ["AMRY"]),
    "two mediators": ("AMRY", "AM AR MR MY RY", [], ["AMRY"]),
    "outcome of pairs that do not fit": ("AMRY", "AM AR MR RY", [], ["AMRY"]),
    "mediators joined that read different covariates": ("QAMRY", "AM AR QM MY RY", ["MR"], ["ARY"]),
    "outcome joined to a column that it does not read": ("AMRY", "AR RY", ["MY"], ["ARY"]),
    "mediator joined to a column that the outcome does not read": ("AWRMY", "AR RM RY MY", ["WR"], ["ARY"]),
}


def is_sharp(order: str, arrows: str, latents: Sequence[str], unfair: Sequence[str], random: Any) -> bool:
    """Return whether bounds are called sharp, after a look that they hold the truth, and are attained if they are.

    Latent nodes are given by what each is a cause of.
    """
    joined = nx.Graph([pair for each in latents for pair in itertools.pairwise(each)])
    parts = ["".join(sorted(part, key=order.index)) for part in nx.connected_components(joined)]
    brute = Brute(order, arrows, parts, unfair)
    hidden = {f"H{i}": each for i, each in enumerate(latents)}
    edges = [tuple(each) for each in arrows.split()] + [(name, v) for name, each in hidden.items() for v in each]
    graph = pf.CausalGraph(edges, sensitive="A", outcome="Y", latent=[*hidden])
    df, weight = brute.observe(laws := joined_by(brute, latents, random))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Columns outside the graph")
        found = pf.sharp_bounds(graph.unfair(*map(" -> ".join, unfair)), df, sample_weight=weight)
    for quantity, table in brute.targets().items():
        low, high = getattr(found, quantity)
        assert low - 1e-7 <= brute.mean(table, laws) <= high + 1e-7, quantity
        if found.sharp and all(any({*part} <= {*each} for each in latents) for part in parts):
            assert brute.search(table, laws, random) == pytest.approx(low, abs=1e-6), quantity
            assert -brute.search(-table, laws, random) == pytest.approx(high, abs=1e-6), quantity
    return found.sharp


@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(4)
def test_brute_force_finds_the_same_ends(name: str) -> None:
    assert is_sharp(*CASES[name], np.random.default_rng(3))


def test_the_truth_lies_inside_where_no_one_latent_node_joins_a_district() -> None:
    """Two latent nodes join R, Y and M; the bounds use the district and are valid, not sharp."""
    assert not is_sharp("ARMY", "AR AM AY RY MY", ["RY", "MY"], ["AY"], np.random.default_rng(0))


def joined_by(brute: Brute, latents: Sequence[str], random: np.random.Generator) -> list[Vector]:
    """Return distributions of the types of each district, in which only fair coins, the latent nodes, join nodes."""
    laws = []
    for part, types in zip(brute.districts, brute.types, strict=True):
        known: dict[Any, dict[Any, float]] = {}
        law = np.zeros(len(types))
        for coins in itertools.product((0, 1), repeat=len(latents)):
            of_coins = np.ones(len(types))
            for i, node in enumerate(part):
                key = node, tuple(coin for coin, each in zip(coins, latents, strict=True) if node in each)
                own = sorted({each[i] for each in types})
                drawn = 0.9 * random.dirichlet(np.full(len(own), 0.4)) + 0.1 / len(own)
                chance = known.setdefault(key, dict(zip(own, drawn, strict=True)))
                of_coins *= [chance[each[i]] for each in types]
            law += of_coins / 2 ** len(latents)
        laws.append(law)
    return laws


def random_case(random: np.random.Generator) -> tuple[str, str, list[str], list[str]] | None:
    """Return an order of nodes, arrows, latent nodes by what they cause, and unfair paths; None if there is none."""
    order = "".join([*random.permutation([*"ARMW"]), "Y"])
    arrows = [u + v for i, v in enumerate(order) for u in random.permutation([*order[:i]])[:2] if random.random() < 0.6]
    latents = ["".join(random.choice([*order], random.integers(2, 4), False)) for _ in range(random.integers(1, 3))]
    paths = ["A"]
    for _ in range(4):
        paths += {path + v for path in paths for v in order if path[-1] + v in arrows} - {*paths}
    unfair = [path for path in sorted(paths) if path[-1] == "Y" and random.random() < 0.6]
    return (order, " ".join(arrows), latents, unfair) if unfair else None


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.slow)])
def test_random_graphs_with_latent_nodes_hold_the_truth_and_are_sharp_where_they_say_so(seeds: range) -> None:
    """Nodes that no path to the outcome runs through are among them, and joined to others."""
    found = set()
    for seed in seeds:
        random = np.random.default_rng(seed)
        case = random_case(random)
        # at most 4,096 combinations of types
        if case and sum(2 ** sum(u + v in case[1].split() for u in case[0]) for v in case[0]) <= 12:
            found.add(is_sharp(*case, random))
    assert True in found


def test_columns_that_tell_of_latent_causes_are_used_or_named() -> None:
    """Y = M in all rows, so that R has no effect, and H joins both; R = W xor A, so that W tells R in both worlds."""
    cells = [*itertools.product((0, 1), repeat=3)]
    df = pd.DataFrame([(a, r, m, m) for a, r, m in cells], columns=list("ARMY"))
    weight = np.where(df["R"] == df["A"], 0.8, 0.2)
    unfair = pf.CausalGraph("A -> R -> Y; H -> {M Y}", sensitive="A", outcome="Y", latent=["H"]).unfair("A -> R -> Y")
    found = pf.sharp_bounds(unfair, df, sample_weight=weight)
    assert (found.sharp, found.piu) == (True, pytest.approx((0.0, 0.0), abs=1e-9))
    for table in (df.drop(columns="M"), df.assign(M=[*range(8)]).loc[np.repeat(range(8), 5)].assign(M=range(40))):
        less = pf.sharp_bounds(unfair, table, sample_weight=np.repeat(weight, len(table) // 8))
        assert (less.sharp, less.piu) == (False, pytest.approx((0.0, 1.0), abs=1e-9))
        assert "M cannot be used" in " ".join(less.why_not_sharp)

    df = pd.DataFrame([*itertools.product((0, 1), repeat=4)], columns=list("AWMY")).assign(
        R=lambda df: df["W"] ^ df["A"]
    )
    weight = np.where(df["M"] == df["R"], 0.9, 0.1) * np.where((df["M"] == df["R"]) == df["Y"], 0.9, 0.1)
    graph = pf.CausalGraph("A -> R; R -> M; {R M} -> Y; H -> {W R}", sensitive="A", outcome="Y", latent=["H"])
    found = pf.sharp_bounds(graph.unfair("A -> R -> Y"), df, sample_weight=weight)
    assert (found.sharp, found.ypi) == (True, pytest.approx((0.18, 0.18), abs=1e-9))
    assert found.piu == pytest.approx((0.8, 1.0), abs=1e-9)
    for edges, most, why in (
        ("A -> {W R}; H -> {W R}", 8, "W would narrow the bounds, .* max_types=8"),
        ("A -> R; H -> {W R}; K -> {W Y}", 2_000, "W cannot be used, .* independent errors would be joined"),
    ):
        latent = [name for name in "HK" if name in edges]
        graph = pf.CausalGraph(edges + "; R -> M; {R M} -> Y", sensitive="A", outcome="Y", latent=latent)
        less = pf.sharp_bounds(graph.unfair("A -> R -> Y"), df, sample_weight=weight, max_types=most)
        assert not less.sharp
        assert re.search(why, " ".join(less.why_not_sharp))
        assert less.ypi[0] <= 0.18 + 1e-9 <= less.ypi[1]


# -- identified graphs -------------------------------------------------------------------------------------------------


def hiring() -> tuple[pf.CausalGraph, pd.DataFrame]:
    graph = pf.CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y")
    return graph, pd.read_csv(HIRING)


def saturated(df: pd.DataFrame, arms: tuple[int, int, int]) -> Vector:
    """Return P(Y = 1 | q, m) and the weight of each (q, m) in a world where D, M and Y read these values of A."""
    d_arm, m_arm, y_arm = arms
    found = []
    for q, share in df["Q"].value_counts(normalize=True).items():
        d = df[(q == df.Q) & (d_arm == df.A)]["D"].value_counts(normalize=True)
        m = df[(q == df.Q) & (m_arm == df.A)]["M"].value_counts(normalize=True)
        for j, p in m.items():
            cells = [
                pd_ * df[(q == df.Q) & (y_arm == df.A) & (i == df.D) & (j == df.M)]["Y"].mean() for i, pd_ in d.items()
            ]
            found.append((share * p, sum(cells)))
    return np.array(found)


def test_without_latent_nodes_the_points_are_those_of_the_g_formula() -> None:
    graph, df = hiring()
    found = pf.sharp_bounds(graph.unfair("A -> Y", "A -> D -> Y"), df)
    base, switched = saturated(df, (0, 0, 0)), saturated(df, (1, 0, 1))
    weight, a, b = base[:, 0], base[:, 1], switched[:, 1]
    assert found.sharp
    assert found.y0 == pytest.approx([weight @ a] * 2, abs=1e-9)
    assert found.ypi == pytest.approx([weight @ b] * 2, abs=1e-9)
    assert found.y0[0] == pytest.approx(0.40790191, abs=1e-3)  # given all before, not parents alone
    given_shared = weight @ np.abs(a - b), 1.0 - weight @ np.abs(1.0 - a - b)
    assert given_shared[0] - 1e-9 <= found.piu[0] <= found.piu[1] <= given_shared[1] + 1e-9
    truth = 0.213319  # with the noise shared monotonely
    assert found.piu[0] - 0.02 <= truth <= found.piu[1]


def test_several_levels_and_columns_and_labels() -> None:
    graph, df = hiring()
    unfair = graph.unfair("A -> Y", "A -> D -> Y")
    plain = pf.sharp_bounds(unfair, df)
    named = pf.CausalGraph(
        "Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y",
        sensitive="A",
        outcome="Y",
        baseline="man",
        contrast="woman",
        positive="yes",
        columns={"Q": ["q1", "q2"]},
    )
    table = pd.DataFrame(
        {
            "Y": df["Y"].map({0: "no", 1: "yes"}),
            "q2": (df["Q"] == 1).astype(int),
            "A": df["A"].map({0: "man", 1: "woman"}),
            "q1": pd.Categorical(np.where(df["Q"] == 2, "high", "low")),
            "D": df["D"].astype(bool),
            "M": df["M"],
        }
    ).sample(frac=1.0, random_state=0)
    found = pf.sharp_bounds(named.unfair("A -> Y", "A -> D -> Y"), table)
    pd.testing.assert_frame_equal(found.table, plain.table, rtol=0.0, atol=1e-9)
    swapped = pf.sharp_bounds(unfair.reversed(), df)
    relabelled = pf.sharp_bounds(unfair, df.assign(A=1 - df["A"]))
    pd.testing.assert_frame_equal(swapped.table, relabelled.table, rtol=0.0, atol=1e-9)


def test_weights_are_counts() -> None:
    graph, df = hiring()
    unfair = graph.unfair("A -> Y", "A -> D -> Y")
    counts = df.value_counts().rename("count").reset_index()
    found = pf.sharp_bounds(unfair, counts.drop(columns="count"), sample_weight=counts["count"] * 7.0)
    pd.testing.assert_frame_equal(found.table, pf.sharp_bounds(unfair, df).table, rtol=0.0, atol=1e-9)


def test_all_paths_are_unfair() -> None:
    graph, df = hiring()
    every = pf.sharp_bounds(graph.unfair(*graph.directed_paths("A", "Y")), df)
    total = saturated(df, (1, 1, 1))
    assert every.ypi == pytest.approx([total[:, 0] @ total[:, 1]] * 2, abs=1e-9)


# -- known classifiers -------------------------------------------------------------------------------------------------


def test_a_latent_cause_of_the_outcome_plays_no_part_for_a_classifier() -> None:
    """With Y a prediction, A -> Y alone is identified: what R and Y have in common does not count."""
    df, weight = witness_table()
    model = LogisticRegression().fit(df[["A", "R", "M"]], df["Y"], sample_weight=weight)
    unfair = WITNESS.unfair("A -> Y")
    found = pf.sharp_bounds(unfair, df, model, sample_weight=weight, decisions="score")
    assert found.ypi[0] == pytest.approx(found.ypi[1], abs=1e-9)
    score = model.predict_proba(df[["A", "R", "M"]])[:, 1]
    chances = dict(zip(df[["A", "R", "M"]].itertuples(index=False, name=None), score, strict=True))
    expected = sum(
        (P_R[0] if r else 1.0 - P_R[0]) * (P_M[0, r] if m else 1.0 - P_M[0, r]) * chances[1, r, m]
        for r, m in itertools.product((0, 1), repeat=2)
    )
    assert found.ypi[0] == pytest.approx(expected, abs=1e-9)
    given = pf.sharp_bounds(unfair, df, score, sample_weight=weight, decisions="score")
    pd.testing.assert_frame_equal(given.table, found.table, rtol=0.0, atol=1e-9)
    decided = pf.sharp_bounds(unfair, df, model, sample_weight=weight)
    assert decided.piu[0] == pytest.approx(decided.piu[1], abs=1e-9)  # a known function of the shared features
    assert "known function of A, R, M" in str(decided)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ([0.5] * 3, r"shape \(3,\)"),
        ([2.0] * 16, "outside"),
        (["a"] * 16, "no numbers"),
        (witness_table()[0]["Y"], r"no function of A, R, M: the rows 0, 1 agree.*pass score=None"),
        (object(), "without predict_proba"),
        (pd.Series([0.5] * 16, index=range(1, 17)), "index of the scores 'score'"),
    ],
)
def test_scores_that_cannot_be_read(score: Any, message: str) -> None:
    with pytest.raises(pf.DataError, match=message):
        pf.sharp_bounds(WITNESS.unfair("A -> Y"), witness_table()[0], score)


def test_cells_without_a_score_are_left_free() -> None:
    df, weight = witness_table()
    seen = ~((df["A"] == 1) & (df["M"] == 1))  # the unfair edge switches A where M is 1, too
    score = (df["R"] + df["M"]) / 4.0
    full = pf.sharp_bounds(WITNESS.unfair("A -> Y"), df, score, sample_weight=weight, decisions="score")
    with pytest.warns(PositivityWarning, match="undetermined"):
        part = pf.sharp_bounds(
            WITNESS.unfair("A -> Y"), df[seen], score[seen], sample_weight=weight[seen], decisions="score"
        )
    mass = (0.59 * 0.2 + 0.41 * 0.6) * 1.0  # P(M(0) = 1)
    assert part.ypi[1] - part.ypi[0] == pytest.approx(mass, abs=1e-9)
    assert part.ypi[0] <= full.ypi[0] <= part.ypi[1]


# -- what the table lacks or contradicts -------------------------------------------------------------------------------


def test_missing_cells_are_left_free_with_a_warning() -> None:
    """Without a row A=0, M=1 the outcome there is anything: P(M = 1 | A = 1) widens P(Y(0, M(1)) = 1)."""
    graph = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    df = pd.DataFrame(
        [(0, 0, 0)] * 30 + [(0, 0, 1)] * 10 + [(1, 0, 0)] * 10 + [(1, 0, 1)] * 10 + [(1, 1, 1)] * 20,
        columns=list("AMY"),
    )
    with pytest.warns(PositivityWarning, match=r"undetermined and left free"):
        found = pf.sharp_bounds(graph.unfair("A -> M -> Y"), df)
    assert found.ypi == pytest.approx((0.125, 0.625))
    assert found.y0 == pytest.approx((0.25, 0.25))
    assert found.undetermined > 0.0
    assert any("Join levels" in note for note in found.notes)


def test_a_missing_group_of_a_covariate_is_left_free() -> None:
    """Nothing is known of M(0) where Q = 1, half of the table; the truth of any completion lies inside."""
    graph = pf.CausalGraph("Q -> A; {A Q} -> M; {A M} -> Y", sensitive="A", outcome="Y")
    random = np.random.default_rng(1)
    df = pd.DataFrame({"Q": np.repeat([0, 1], 400), "A": random.integers(0, 2, 800)})
    df["M"] = (random.random(800) < 0.3 + 0.3 * df["A"]).astype(int)
    df["Y"] = (random.random(800) < 0.2 + 0.3 * df["M"] + 0.2 * df["A"]).astype(int)
    full = pf.sharp_bounds(graph.unfair("A -> M -> Y"), df)
    with pytest.warns(PositivityWarning, match="undetermined"):
        part = pf.sharp_bounds(graph.unfair("A -> M -> Y"), df[(df["Q"] == 0) | (df["A"] == 1)])
    assert part.y0[1] - part.y0[0] > 0.1
    assert full.piu[1] - full.piu[0] < part.piu[1] - part.piu[0]


def instrument(slack: float) -> tuple[pf.CausalGraph, pd.DataFrame, Vector]:
    """An instrument Z: P(A=0, Y=0 | Z=0) + P(A=0, Y=1 | Z=1) = 1 + slack, and no model allows a positive slack."""
    graph = pf.CausalGraph("Z -> A; {A H} -> Y; H -> A", sensitive="A", outcome="Y", latent=["H"])
    cells, weight = [*itertools.product((0, 1), repeat=3)], []
    for z, a, y in cells:
        at = (0.5 + slack / 2.0) if a == 0 and y == z else 0.0
        weight.append(at if a == 0 else (0.5 - slack / 2.0) / 2.0)
    return graph, pd.DataFrame(cells, columns=list("ZAY")), np.array(weight)


def test_data_that_no_model_allows_are_moved_with_a_warning_or_refused() -> None:
    graph, df, weight = instrument(-0.1)
    assert not pf.sharp_bounds(graph.unfair("A -> Y"), df, sample_weight=weight).slack
    graph, df, weight = instrument(0.04)
    with pytest.warns(PyrofairWarning, match="violate inequalities that the graph implies"):
        found = pf.sharp_bounds(graph.unfair("A -> Y"), df, sample_weight=weight)
    assert found.slack == pytest.approx(0.04, abs=0.05)
    assert found.slack >= 0.04 - 1e-9
    assert not found.sharp
    graph, df, weight = instrument(0.6)
    with pytest.raises(pf.DataError, match=r"No model with this graph.*lacks an edge or a latent common cause"):
        pf.sharp_bounds(graph.unfair("A -> Y"), df, sample_weight=weight)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("M", r"'M' holds 4,000 different numbers.*pd\.qcut\(df\['M'\], 4"),
        ("Y", r"'Y' holds 4,000 different numbers, more than 2.*as score="),
    ],
)
def test_columns_of_many_numbers_are_refused(column: str, message: str) -> None:
    graph, df = hiring()
    with pytest.raises(pf.DataError, match=message):
        pf.sharp_bounds(graph.unfair("A -> Y"), df.assign(**{column: np.linspace(0.0, 1.0, len(df))}))


def test_too_many_types_are_refused_with_their_count() -> None:
    df, weight = witness_table()
    unfair = WITNESS.unfair("A -> Y", "A -> R -> Y")
    with pytest.raises(
        pf.DataError, match=r"1,024 combinations of response types \(\{R, Y\}: 1,024\).*max_types=1,000"
    ):
        pf.sharp_bounds(unfair, df, sample_weight=weight, max_types=1_000)
    random = np.random.default_rng(0)
    large = pd.DataFrame(random.integers(0, 12, (500, 4)), columns=list("ARMY"))
    large[["A", "Y"]] %= 2
    with pytest.raises(pf.DataError, match=r"about 10\^"):
        pf.sharp_bounds(unfair, large)


def test_a_latent_mediator_with_an_unfair_and_a_fair_way() -> None:
    graph = pf.CausalGraph("A -> L -> Y; A -> Y", sensitive="A", outcome="Y", latent=["L"])
    df = pd.DataFrame({"A": [0, 0, 1, 1] * 5, "Y": [0, 1, 1, 1] * 5})
    with pytest.raises(pf.NotIdentifiedError, match="With L latent, the edge A -> Y stands for an unfair path and"):
        pf.sharp_bounds(graph.unfair("A -> Y"), df)
    both = pf.sharp_bounds(graph.unfair("A -> Y", "A -> L -> Y"), df)
    assert both.ypi == pytest.approx((1.0, 1.0))


# -- sampling error ----------------------------------------------------------------------------------------------------


def sample(n: int, random: np.random.Generator) -> pd.DataFrame:
    df, weight = witness_table()
    counts = random.multinomial(n, weight / weight.sum())
    return df.loc[np.repeat(df.index, counts)].reset_index(drop=True)


def test_replicates() -> None:
    unfair = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    df = sample(400, np.random.default_rng(0))
    found = pf.sharp_bounds(unfair, df[["A", "M", "Y"]], n_boot=40, level=0.9, random_state=1)
    again = pf.sharp_bounds(unfair, df[["A", "M", "Y"]], n_boot=40, level=0.9, random_state=1)
    pd.testing.assert_frame_equal(found.table, again.table)
    for name in ("y0", "ypi", "effect", "piu"):
        start, end = found.interval(name)
        low, high = getattr(found, name)
        assert start <= low <= high <= end
        assert end - start < high - low + 0.3
    assert "90 % interval by 40 replicates" in str(found)
    assert "-&gt;" in found._repr_html_()
    weighted = pf.sharp_bounds(
        unfair, df[["A", "M", "Y"]], sample_weight=np.linspace(1.0, 2.0, 400), n_boot=40, random_state=1
    )
    assert weighted.interval("y0")[0] < weighted.y0[0]
    with pytest.raises(pf.DataError, match=r"no replicates.*n_boot=200"):
        pf.sharp_bounds(unfair, df[["A", "M", "Y"]]).interval("piu")


def test_replicates_of_zeros_have_an_interval() -> None:
    graph = pf.CausalGraph("A -> R; {A R} -> Y", sensitive="A", outcome="Y")
    df = pd.DataFrame({"A": [0, 1] * 60, "R": [0, 0, 1, 1] * 30})
    found = pf.sharp_bounds(graph.unfair("A -> Y"), df, df["R"].astype(float), n_boot=40, random_state=0)
    assert found.piu == (0.0, 0.0)
    assert found.interval("piu") == pytest.approx((0.0, 3.84 / 123.84), abs=1e-3)
    assert found.interval("effect")[0] <= -3 / 120


def test_replicates_that_no_model_allows_are_counted() -> None:
    graph, df, weight = instrument(0.0)
    rows = df.loc[np.repeat(df.index, np.round(200 * weight).astype(int))]
    found = pf.sharp_bounds(graph.unfair("A -> Y"), rows, n_boot=40, random_state=0)
    assert any("of 40 replicates the data violate" in note for note in found.notes)


@pytest.mark.slow
def test_intervals_cover_the_bounds() -> None:
    df, weight = witness_table()
    unfair = WITNESS.unfair("A -> Y", "A -> R -> Y")
    truth = pf.sharp_bounds(unfair, df, sample_weight=weight)
    random = np.random.default_rng(0)
    hits = np.zeros(2)
    for _ in range(40):
        found = pf.sharp_bounds(unfair, sample(1_000, random), n_boot=40, random_state=random)
        for i, name in enumerate(("ypi", "piu")):
            start, end = found.interval(name)
            low, high = getattr(truth, name)
            hits[i] += start <= low and high <= end
    assert (hits >= 33).all()


def test_few_replicates_and_groups_without_weight_are_told() -> None:
    unfair = pf.CausalGraph("A -> M -> Y; A -> Y; H -> {A M}", sensitive="A", outcome="Y", latent=["H"]).unfair(
        through="M"
    )
    df = pd.DataFrame({"A": [0, 1] * 40, "M": [0, 0, 1, 1] * 20, "Y": [0, 1, 1, 1, 0] * 16})
    with pytest.warns(pf.PyrofairWarning, match="3 bootstrap replicates are too few for 95% intervals.* n_boot=40"):
        found = pf.sharp_bounds(unfair, df, n_boot=3, random_state=0)
    assert "3 bootstrap replicates are too few" in str(found)
    with pytest.raises(pf.DataError, match="sample_weight is 0 in all rows with A=1"):
        pf.sharp_bounds(unfair, df, sample_weight=1.0 - df["A"])


def test_what_is_not_recorded_is_a_level() -> None:
    rng = np.random.default_rng(0)
    A, R = rng.integers(0, 2, 400), rng.integers(0, 2, 400).astype(float)
    R[rng.random(400) < 0.1 + 0.2 * A] = np.nan
    df = pd.DataFrame({"A": A, "R": R, "M": rng.integers(0, 2, 400), "Y": rng.integers(0, 2, 400)})
    graph = pf.CausalGraph("A -> R; {A R} -> M; {A R M} -> Y", sensitive="A", outcome="Y")
    unfair = graph.unfair("A -> Y", "A -> R -> Y")
    with pytest.raises(pf.DataError, match='missing="recorded"'):
        pf.sharp_bounds(unfair, df)
    found = pf.sharp_bounds(unfair, df, missing="recorded")
    same = pf.sharp_bounds(unfair, df.assign(R=df["R"].fillna(2.0)))
    assert [found.y0, found.ypi, found.piu] == [same.y0, same.ypi, same.piu]
    assert found.missing["column"].tolist() == ["R"]
    assert "The true R acts on M, Y by its record alone" in str(found)
    assert "Missing values, share of rows" in str(found)
