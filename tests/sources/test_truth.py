"""The truth about a model: against enumeration, against the definition in NumPy, and its standard errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pyrofair import SEM, CausalGraph, DataError, PenalizedClassifier, disagreement
from pyrofair.effects.potential_outcomes import Estimate
from pyrofair.simulate import scenario
from pyrofair.sources.truth import DecisionRule, Truth, measure_truth
from tests.models import Known

COUPLINGS = ("monotone", "independent", "antithetic")


def near(found: Estimate, right: float, errors: float = 4.5) -> bool:
    return abs(found.value - right) <= errors * found.error + 1e-9


# -- B4: one node without explicit noise ------------------------------------------------------------------------------


def coin(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        pyro.sample("D", dist.Bernoulli(0.25 + 0.35 * A))


COIN = CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y")


@pytest.mark.parametrize("seed", [0, 1])
def test_piu_depends_on_the_named_coupling_and_not_on_the_seed(seed: int) -> None:
    table = SEM(coin, COIN).truths(Known(lambda X: X["D"]), n=50_000, random_state=seed)
    assert list(table) == ["decisions", "score_noise", "coupling", "quantity", "estimate", "error", "posterior_sd", "n"]
    assert len(table) == 12
    piu = table[table["quantity"] == "piu"].set_index("coupling")
    for coupling, right in zip(COUPLINGS, (0.35, 0.55, 0.85), strict=True):
        assert near(Estimate(*piu.loc[coupling, ["estimate", "error"]]), right)
    effect = table[table["quantity"] == "mean_unfair_effect"]
    assert (abs(effect["estimate"] - 0.35) <= 4.5 * effect["error"]).all()


def test_what_is_coupled_is_what_a_classifier_depends_on() -> None:
    assert SEM(coin, COIN).coupled == ("D",)
    truth = SEM(coin, COIN, coupling="antithetic").truth(Known(lambda X: X["D"]), n=1000, random_state=0)
    assert (truth.coupling, truth.coupled) == ("antithetic", ("D",))
    assert "antithetic noise of D" in str(truth)
    explicit = SEM(scenario("hiring").program, scenario("hiring").unfair)
    assert explicit.coupled == ()
    assert explicit.truth(Known(lambda X: X["A"] * 0.9), n=100, random_state=0).coupled == ()


def test_a_mean_of_one_value_has_no_error() -> None:
    assert np.isnan(Estimate.of([0.3]).error)
    assert Estimate.of([0.0, 1.0, 1.0, 0.0]) == Estimate(0.5, 0.25)
    pooled = Estimate.pooled([Estimate(0.2, 0.01), Estimate(0.4, 0.01)])
    assert (pooled.value, pooled.error, pooled.posterior_sd) == pytest.approx((0.3, 0.1, 0.0199**0.5))
    truth = SEM(coin, COIN).truth(Known(lambda X: X["D"]), n=1, random_state=0)
    assert np.isnan(truth.piu.error)
    assert "± nan" in str(truth)


# -- C1: a discrete model, by enumeration -----------------------------------------------------------------------------

SCORE = {k: (10 + 20 * k[0] + 10 * k[1] + 25 * k[2] + 30 * k[3]) / 100 for k in itertools.product((0, 1), repeat=4)}


def discrete(n: int) -> None:
    with pyro.plate("units", n):
        Q = pyro.sample("Q", dist.Bernoulli(0.5))
        A = pyro.sample("A", dist.Bernoulli(0.4 + 0.2 * Q))
        pyro.sample("D", dist.Bernoulli(0.2 + 0.4 * A + 0.2 * Q))
        pyro.sample("M", dist.Bernoulli(0.3 + 0.4 * A + 0.1 * Q))


DISCRETE = CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y").unfair(
    "A -> Y", "A -> D -> Y"
)


def scored(X: pd.DataFrame) -> list[float]:
    return [SCORE[tuple(row)] for row in X[["A", "Q", "D", "M"]].to_numpy(dtype=int).tolist()]


def joint(p0: float, p1: float, coupling: str) -> dict[tuple[int, int], float]:
    """Return P(V(0), V(1)) of a coin under a coupling."""
    both = {"monotone": min(p0, p1), "independent": p0 * p1, "antithetic": max(0.0, p0 + p1 - 1)}[coupling]
    return {(1, 1): both, (1, 0): p0 - both, (0, 1): p1 - both, (0, 0): 1 - p0 - p1 + both}


def rule(decisions: str) -> dict[str, Any]:
    """Return the settings of thresholded decisions, or of drawn ones by their noise."""
    how = ("threshold", "shared") if decisions == "threshold" else ("score", decisions)
    return dict(zip(("decisions", "score_noise"), how, strict=True))


def enumerated(coupling: str, decisions: str) -> dict[str, float]:
    """Sum over all units: their Q, A, and both potential values of D and of M."""
    cells: dict[tuple[int, ...], list[tuple[float, float, float]]] = {}
    for q, a in itertools.product((0, 1), repeat=2):
        p_qa = 0.5 * (0.4 + 0.2 * q if a else 0.6 - 0.2 * q)
        for (d, p_d), (m, p_m) in itertools.product(
            joint(0.2 + 0.2 * q, 0.6 + 0.2 * q, coupling).items(), joint(0.3 + 0.1 * q, 0.7 + 0.1 * q, coupling).items()
        ):
            c0, c1 = SCORE[0, q, d[0], m[0]], SCORE[1, q, d[1], m[0]]
            if decisions == "threshold":
                c0, c1 = float(c0 > 0.5), float(c1 > 0.5)
            differs = c0 + c1 - 2 * c0 * c1 if decisions == "own" else abs(c1 - c0)
            if p_qa * p_d * p_m > 0:
                cells.setdefault((a, q, d[a], m[a]), []).append((p_qa * p_d * p_m, c1 - c0, differs))
    units = [unit for cell in cells.values() for unit in cell]
    effect = sum(p * t for p, t, _ in units)
    weight = np.array([sum(p for p, _, _ in cell) for cell in cells.values()])
    mu = np.array([sum(p * t for p, t, _ in cell) for cell in cells.values()]) / weight
    share = np.array([sum(p * d for p, _, d in cell) for cell in cells.values()]) / weight
    return {
        "mean_unfair_effect": effect,
        "piu": sum(p * d for p, _, d in units),
        "conditional_sd": float(np.sqrt(weight @ (mu - effect) ** 2)),
        "paper_condmean": float(np.sqrt((share.sum() - share.mean()) / len(share))),
    }


PIU = {
    ("own", "monotone"): 0.4775,
    ("own", "independent"): 0.4875,
    ("own", "antithetic"): 0.5025,
    ("threshold", "monotone"): 0.69,
    ("threshold", "independent"): 0.69,
    ("threshold", "antithetic"): 0.69,
}


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("decisions", ["threshold", "shared", "own"])
def test_a_discrete_model_by_enumeration(decisions: Any, coupling: Any) -> None:
    right = enumerated(coupling, decisions)
    assert right["piu"] == pytest.approx(PIU.get((decisions, coupling), right["piu"]), abs=1e-12)
    assert right["mean_unfair_effect"] == pytest.approx(0.69 if decisions == "threshold" else 0.3)
    truth = SEM(discrete, DISCRETE, coupling=coupling).truth(Known(scored), n=40_000, random_state=1, **rule(decisions))
    assert near(truth.mean_unfair_effect, right["mean_unfair_effect"])
    assert near(truth.piu, right["piu"])
    assert near(truth.conditional_sd, right["conditional_sd"])
    assert truth.paper_condmean == pytest.approx(right["paper_condmean"], abs=0.01)
    assert truth.definition1_sd == truth.conditional_sd
    assert (truth.decisions, truth.score_noise) == tuple(rule(decisions).values())
    assert truth.n == 40_000


def test_a_score_of_exactly_one_half_is_no_decision_in_either_precision() -> None:
    """The draws are in single precision, where .1 + .1 + .3 exceeds 1/2."""
    plain = Known(lambda X: 0.1 + 0.2 * X["A"] + 0.1 * X["Q"] + 0.25 * X["D"] + 0.3 * X["M"])
    assert near(SEM(discrete, DISCRETE).truth(plain, n=20_000, random_state=0).piu, 0.69)


# -- definition 1 -----------------------------------------------------------------------------------------------------


def hidden(n: int) -> None:
    """Noise that the features determine for those with A = 0 only: D = max(A, U)."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        U = pyro.sample("U", dist.Bernoulli(0.4))
        pyro.sample("Q", dist.Normal(0.0, 1.0))
        pyro.deterministic("D", torch.maximum(A, U))


def test_the_spread_is_over_units_and_over_individuals_when_a_feature_is_continuous() -> None:
    model = Known(lambda X: 0.1 + 0.6 * X["D"])
    fair = "A -> D -> Y"
    truth = SEM(hidden, CausalGraph("A -> D -> Y; A -> Y", sensitive="A", outcome="Y").unfair(fair)).truth(
        model, n=50_000, random_state=0, decisions="score"
    )
    # The effect is .6 (1 - U). Cells: (A=0, D=0) with .3 and effect .6; (0, 1) with .2 and 0; (1, 1) with .5 and .36.
    mean = 0.3 * 0.6 + 0.5 * 0.36
    right = np.sqrt(0.3 * (0.6 - mean) ** 2 + 0.2 * mean**2 + 0.5 * (0.36 - mean) ** 2)
    assert near(truth.mean_unfair_effect, mean)
    assert near(truth.conditional_sd, right)
    assert truth.paper_condmean == pytest.approx(np.sqrt((0.6 + 0.0 + 0.36) * (1 - 1 / 3) / 3), abs=0.005)
    assert truth.grouping == "3 groups of identical A, D"

    graph = CausalGraph("A -> D; {A D Q} -> Y", sensitive="A", outcome="Y")
    alone = SEM(hidden, graph.unfair(fair)).truth(model, n=20_000, random_state=0, decisions="score")
    assert near(alone.conditional_sd, 0.6 * np.sqrt(0.4 * 0.6))
    assert alone.conditional_sd.value > right
    assert alone.paper_condmean == pytest.approx(np.sqrt(alone.piu.value), rel=1e-3)
    assert "no two of" in alone.grouping or "of one unit" in alone.grouping
    assert "spread over individuals" in alone.grouping or "of all" in alone.grouping


def test_where_the_features_tell_the_noise_individuals_are_groups() -> None:
    """On eq-synth the features give U_D and U_M, so the spread over individuals is definition 1's."""
    h = scenario("hiring")
    truth = SEM(h.program, h.unfair).truth(
        Known(lambda X: 1 / (1 + np.exp(10 - X.sum(axis=1)))), 20_000, random_state=0
    )
    p = truth.piu.value  # effects are 0 or 1 here
    assert truth.mean_unfair_effect == truth.piu
    assert truth.conditional_sd.value == pytest.approx(np.sqrt(p * (1 - p)), abs=1e-3)


def given(c0: Any, c1: Any, group: Any, decisions: Any = "shared") -> Truth:
    """Measure the truth of a model whose only feature is its score."""
    graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    worlds = (pd.DataFrame({"M": c0}), pd.DataFrame({"M": c1}))
    units = pd.DataFrame({"M": group})
    return measure_truth(
        Known(lambda X: X["M"]),
        worlds,
        units,
        graph,
        DecisionRule(threshold=0.5, **rule(decisions)),
        coupling="monotone",
    )


def test_the_noise_within_small_groups_is_not_taken_for_spread() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(5_000), 4)
    flip = rng.random(20_000) < 0.5
    truth = given(np.where(flip, 1.0, 0.0), np.where(flip, 0.0, 1.0), group)
    naive = pd.Series(np.where(flip, -1.0, 1.0)).groupby(group).mean().std()
    assert naive == pytest.approx(0.5, abs=0.02)
    assert truth.conditional_sd.value <= 3 * truth.conditional_sd.error < 0.3
    assert truth.piu.value == 1.0
    level = rng.choice([0.2, 0.6], 5_000)[group]
    spread = given(np.zeros(20_000), (rng.random(20_000) < level).astype(float), group)
    assert near(spread.conditional_sd, 0.2)


def test_the_formulas_on_five_units() -> None:
    c0, c1, group = [0.2, 0.6, 0.5, 0.9, 0.1], [0.6, 0.4, 0.5, 0.7, 0.8], [1, 1, 1, 2, 2]
    soft, own, hard = (given(c0, c1, group, decisions) for decisions in ("shared", "own", "threshold"))
    assert soft.mean_unfair_effect.value == pytest.approx(np.mean([0.4, -0.2, 0.0, -0.2, 0.7]))
    assert soft.piu.value == pytest.approx(np.mean([0.4, 0.2, 0.0, 0.2, 0.7]))
    assert soft.piu.error == pytest.approx(np.std([0.4, 0.2, 0.0, 0.2, 0.7]) / np.sqrt(5))
    assert own.piu.value == pytest.approx(np.mean([0.56, 0.52, 0.5, 0.34, 0.74]))
    assert own.mean_unfair_effect == soft.mean_unfair_effect
    assert hard.piu.value == pytest.approx(3 / 5)
    assert hard.mean_unfair_effect.value == pytest.approx(1 / 5)
    assert soft.paper_condmean == pytest.approx(np.sqrt((0.2 + 0.45 - 0.325) / 2))


def test_standard_errors_are_the_spread_of_the_estimates() -> None:
    sem = SEM(discrete, DISCRETE, coupling="independent")
    truths = [
        sem.truth(Known(scored), n=400, random_state=seed, decisions="score", score_noise="own") for seed in range(150)
    ]
    for name in ("mean_unfair_effect", "piu", "conditional_sd"):
        found = [getattr(truth, name) for truth in truths]
        assert np.std([f.value for f in found]) == pytest.approx(np.mean([f.error for f in found]), rel=0.2), name


# -- distributions, and what is refused ----------------------------------------------------------------------------


def test_the_hiring_truth_is_that_of_its_equations() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    q = np.floor(rng.normal(2, 5, n))
    u_d, u_m = (np.clip(rng.normal(loc, scale, (30, n)), 0, 9) for loc, scale in ((2, 1), (3, 2)))
    first = [u[np.argmax((u > 0.1) & (u < 3), axis=0), np.arange(n)] for u in (u_d, u_m)]
    d, m = np.floor(0.5 * q * first[0]), 0.4 * q * first[1]
    right = ((q + d + m <= 10) & (5 + q + 1 + d + m > 10)).mean()
    h = scenario("hiring")
    model = Known(lambda X: 1 / (1 + np.exp(10 - 5 * X["A"] - X["Q"] - X["D"] - X["M"])))
    truth = SEM(h.program, h.unfair).truth(model, random_state=0)
    assert truth.n == 100_000
    assert near(truth.piu, right, errors=6)  # the right value has a Monte-Carlo error of its own
    assert truth.piu.error == pytest.approx(np.sqrt(right * (1 - right) / 100_000), rel=0.05)


def test_a_model_of_labelled_groups_reads_the_labels() -> None:
    graph = CausalGraph("{A} -> D; {A D} -> Y", sensitive="A", outcome="Y", baseline="woman", contrast="man")
    model = Known(lambda X: np.where(X["A"] == "man", 0.9, 0.2 + 0.5 * X["D"]))
    truth = SEM(coin, graph.unfair("A -> Y")).truth(model, n=20_000, random_state=0)
    assert near(truth.piu, 0.75)
    assert near(truth.mean_unfair_effect, 0.75)
    assert truth.grouping == "4 groups of identical A, D"


@pytest.mark.slow
def test_the_oracle_keeps_its_accuracy_at_hardly_any_unfairness() -> None:
    h = scenario("hiring")
    features = ["A", "Q", "D", "M"]
    sem = SEM(h.program, h.unfair)
    fresh = h.draw(50_000, random_state=99)
    found = []
    for seed in range(3):
        units = h.draw(5_000, random_state=seed)
        oracle = PenalizedClassifier(source=sem, penalty=disagreement, strength=2.0, progress=False, random_state=seed)
        oracle.fit(units[features], units["Y"])
        found.append((oracle.score(fresh[features], fresh["Y"]), sem.truth(oracle, random_state=seed).piu.value))
    accuracy, piu = np.mean(found, axis=0)
    assert accuracy >= 0.948
    assert piu <= 0.010


def test_a_model_that_reads_more_than_the_graph_allows_is_refused() -> None:
    rows = pd.DataFrame({"A": [0, 1, 0, 1], "Z": [0, 0, 1, 1]})
    model = LogisticRegression().fit(rows, [0, 0, 1, 1])
    with pytest.raises(DataError, match=r"'LogisticRegression' reads 'A', 'Z', but the graph has no edge A -> Y"):
        SEM(coin, COIN).truth(model, n=10)
