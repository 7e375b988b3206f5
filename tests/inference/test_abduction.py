"""Abduction against the paper's and Pearl's units, closed forms, and rejection of whole units."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy.special import expit

from pyrofair import SEM, DataError, PyrofairWarning, do
from pyrofair._random import isolated
from pyrofair.inference import importance
from pyrofair.inference.abduction import abduct
from pyrofair.programs.couplings import COUPLINGS, CouplingError, Noise, noise_given, noise_of, quantile
from pyrofair.programs.worlds import factual, sequential_worlds
from pyrofair.simulate import hiring
from tests.programs.models import Scores, coin, graph, normal, sem, through, units

undeclared = pytest.mark.filterwarnings("ignore:The nodes .* in common, which the graph does not hold")
"""What is tested holds for noise that nodes share, whether the graph declares it or not."""

HIRING = graph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y")
UNFAIR = HIRING.unfair("A -> Y", "A -> D -> Y")


paper = units(
    Q=normal(2.0), U_D=normal(), U_M=normal(), D=lambda v: v.A + v.U_D * v.Q, M=lambda v: 3 * v.A + 0.5 * v.Q + v.U_M
)
"""The paper's introductory example: D has multiplicative noise, M additive noise."""
pearl = units(
    A=normal(),
    U_h=normal(),
    U_y=normal(),
    X=lambda v: 1.0 * v.A,
    H=lambda v: 0.5 * v.X + v.U_h,
    Y=lambda v: 0.7 * v.X + 0.4 * v.H + v.U_y,
)
floored = units(
    U_Q=normal(2.0),
    U_D=normal(2.0),
    U_M=normal(),
    Q=lambda v: torch.floor(v.U_Q),
    D=lambda v: torch.floor((1.0 + 0.7 * v.A) * v.U_D + 0.3 * v.Q),
    M=lambda v: 3 * v.A + 0.5 * v.D + v.U_M,
)
"""A stands inside the floor, so that what D would be is not determined."""
FLOORED = graph("{A Q} -> D; {A D} -> M; {A Q D M} -> Y")


def draw(program: Callable[[int], Any], n: int, seed: int = 0) -> dict[str, torch.Tensor]:
    with isolated(seed):
        nodes = poutine.trace(program).get_trace(n).nodes
    return {name: site["value"] for name, site in nodes.items() if site["type"] == "sample"}


def table(units: dict[str, torch.Tensor], columns: str) -> pd.DataFrame:
    return pd.DataFrame({name: units[name].double().numpy() for name in columns.split()})


WOMAN_AND_MAN = pd.DataFrame({"A": [0, 1], "Q": [2.0, 2.0], "D": [3.0, 4.0], "M": [1.7, 4.7]}, index=["woman", "man"])


LOGISTIC = Scores(lambda X: expit(X.sum(axis=1) - 8.0))
"""A classifier that reads all columns."""


# -- cases with known answers ------------------------------------------------------------------------------------------


def test_the_papers_woman_and_man() -> None:
    found = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN)
    assert found.exact
    assert found.draws is None
    assert list(found.baseline.index) == ["woman", "man"]
    np.testing.assert_allclose(found.noise.xs("mean", axis=1, level="of"), [[1.5, 0.7]] * 2, atol=1e-12)
    assert (found.noise.xs("sd", axis=1, level="of") == 0.0).all(axis=None)
    np.testing.assert_allclose(found.baseline, [[0, 2, 3, 1.7]] * 2, atol=1e-12)
    np.testing.assert_allclose(found.switched, [[1, 2, 4, 1.7]] * 2, atol=1e-12)
    scores = found.scores(LOGISTIC)
    np.testing.assert_allclose(scores["baseline"], 1 / (1 + math.exp(8.0 - 6.7)))
    np.testing.assert_allclose(scores["effect"], 1 / (1 + math.exp(8.0 - 8.7)) - 1 / (1 + math.exp(8.0 - 6.7)))
    assert scores["decisions_differ"].tolist() == [1.0, 1.0]


def test_pearls_unit_had_h_been_two() -> None:
    """A is the noise of X here."""
    unit = abduct(pearl, pd.DataFrame({"X": [0.5], "H": [1.0], "Y": [1.5]}))
    np.testing.assert_allclose(unit.noise.xs("mean", axis=1, level="of"), [[0.5, 0.75, 0.75]], atol=1e-12)
    world = unit.do({"H": 2.0})
    assert world.exact
    np.testing.assert_allclose(world.rows, [[0.5, 2.0, 1.9]], atol=1e-12)
    at_mean = poutine.condition(pearl, data={name: torch.zeros(1) for name in ("A", "U_h", "U_y")})
    population = poutine.trace(do(at_mean, {"H": 2})).get_trace(1)
    assert population.nodes["Y"]["value"].item() == pytest.approx(0.80)


def test_a_further_intervention_holds_in_both_worlds_and_values_keep_to_their_index() -> None:
    sem, unit = SEM(paper, UNFAIR), abduct(paper, WOMAN_AND_MAN)
    values = pd.Series({"woman": 5.0, "man": 6.0})
    for given in ([5.0, 6.0], values, np.array([6.0, 5.0])[::-1]):
        found = sem.counterfactual(WOMAN_AND_MAN, do={"M": given})
        assert found.baseline["M"].tolist() == found.switched["M"].tolist() == [5.0, 6.0]
        np.testing.assert_allclose(found.switched["D"], 4.0)
        assert unit.do({"M": given}).rows["M"].tolist() == [5.0, 6.0]
    for other in (values[::-1], values.reset_index(drop=True)):
        for ask in (lambda m: sem.counterfactual(WOMAN_AND_MAN, do={"M": m}), lambda m: unit.do({"M": m})):
            with pytest.raises(DataError, match=r"do\['M'\] is not that of the table.*values.loc\[df.index\]"):
                ask(other)


def test_a_node_is_named_by_its_site_or_its_column() -> None:
    named = graph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", columns={"M": ["strength"], "A": ["sex"]})
    sem = SEM(paper, named.unfair("A -> Y", "A -> D -> Y"))
    rows = WOMAN_AND_MAN.rename(columns={"M": "strength", "A": "sex"})
    for name in ("M", "strength"):
        assert sem.counterfactual(rows, do={name: 5.0}).switched["strength"].tolist() == [5.0, 5.0]
        assert abduct(sem.equations(), rows).do({name: 5.0}).rows["strength"].tolist() == [5.0, 5.0]
    for values, match in (
        ({"M": 5.0, "strength": 5.0}, "do names the node 'M' twice, by its site and by its column"),
        ({"sex": 1}, "do names 'sex', the sensitive attribute"),
        ({"strenght": 1}, r"do names 'strenght', which is no observed node.*Did you mean 'strength'"),
    ):
        with pytest.raises(DataError, match=match):
            sem.counterfactual(rows, do=values)


# -- distributions ----------------------------------------------------------------------------------------------------

implicit = units(
    Q=normal(),
    A=lambda v: dist.Bernoulli(torch.sigmoid(v.Q)),
    D=lambda v: dist.Poisson(torch.exp(0.3 * v.Q + 0.5 * v.A)),
    C=lambda v: dist.Categorical(logits=torch.stack([torch.zeros_like(v.Q), v.A + 0.1 * v.D, v.Q - v.A], -1)),
    M=lambda v: dist.Normal(v.A + v.D + 0.5 * v.C, 1.0 + v.A),
)
"""Nodes without explicit noise, continuous, discrete and categorical, one reading another."""
IMPLICIT = graph("Q -> A; {Q A} -> D; {Q A D} -> C; {A D C} -> M; {A Q D C M} -> Y")


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_world_with_ones_own_value_gives_the_row_back(coupling: Any) -> None:
    units = table(draw(implicit, 60), "Q A D C M")
    for unfair, reverse in [(IMPLICIT.unfair(predicate=lambda path: True), False), (IMPLICIT.unfair("A -> Y"), True)]:
        paths = unfair.reversed() if reverse else unfair
        found = SEM(implicit, paths, coupling=coupling).counterfactual(units, draws=20, random_state=1)
        assert found.draws is not None
        low = paths.regimes[0].on_fair
        same = units["A"] == low
        for column in "QDCM":
            draws = found.draws[0][column][same]
            assert (draws == units.loc[same, [column]].to_numpy()).all()
        if not reverse:
            for column in "QDCM":
                assert (found.draws[1][column][~same] == units.loc[~same, [column]].to_numpy()).all()


def recovers(source: SEM, nodes: str, coupling: Any, seed: int, tolerance: float) -> None:
    equations = source.equations()
    with isolated(seed):
        noise = Noise(200, coupling)
        rows = table(factual(equations, noise), " ".join(["A", *nodes]))
        worlds = sequential_worlds(equations, noise)
    found = source.counterfactual(rows)
    assert found.exact
    for mine, theirs in zip((found.baseline, found.switched), worlds, strict=True):
        for column in nodes:
            np.testing.assert_allclose(mine[column], theirs[column].numpy(), rtol=tolerance, atol=tolerance)


@undeclared
@pytest.mark.parametrize("paths", [("A -> Y", "A -> D -> Y"), ("A -> M -> Y",), (), ("A -> D -> M -> Y",)])
def test_units_drawn_with_known_noise_are_recovered(paths: tuple[str, ...]) -> None:
    """The worlds of units are those of the noise that they were made with, by the definition."""
    program = units(
        Q=lambda v: dist.Gamma(2.0, 1.0),
        U_D=lambda v: dist.Uniform(-1.0, 1.0),
        D=lambda v: v.A * v.Q + (1.0 + v.A) * v.U_D,
        U_M=lambda v: dist.Laplace(0.0, 1.0),
        M=lambda v: v.D.square() + 0.3 * v.U_D - v.Q * v.U_M,  # it shares U_D, which D determines
    )
    source = SEM(program, graph("{A Q} -> D; {A Q D} -> M; {A Q D M} -> Y").unfair(*paths))
    recovers(source, "QDM", "monotone", seed=0, tolerance=2e-4)


@pytest.mark.parametrize("coupling", ["monotone", "antithetic"])
def test_units_with_implicit_noise_are_recovered(coupling: Any) -> None:
    """For random path sets, recanting witnesses included; A = 0 takes Z out of D's distribution, whatever Z is."""
    program = units(
        Q=normal(),
        A=lambda v: dist.Bernoulli(torch.sigmoid(v.Q)),
        Z=lambda v: dist.Normal(v.A + v.Q, 1.0),
        D=lambda v: dist.Normal(v.A * v.Z + v.Q, 1.0 + v.A),
        M=lambda v: dist.LogNormal(0.2 * v.D - 0.3 * v.A, 0.5),
        H=normal(),
        W=lambda v: v.Z * v.D + (1 + v.A) * v.H,
    )
    of_all = graph("Q -> A; {Q A} -> Z; {A Z Q} -> D; {D A} -> M; {Z D A} -> W; {A Z D M W Q} -> Y")
    choose = random.Random(0)
    for seed in range(8):
        unfair = of_all.unfair(*[path for path in of_all.directed_paths("A", "Y") if choose.random() < 0.5])
        source = SEM(program, unfair if seed % 2 else unfair.reversed(), coupling=coupling)
        recovers(source, "QZDMW", coupling, seed, tolerance=1e-4)


def test_rounding_does_not_make_another_distribution() -> None:
    """A woman's D does not depend on Z, so what follows D is hers, though its noise would be another at another D."""
    program = units(
        Q=normal(),
        Z=lambda v: dist.Normal(v.A + v.Q, 1.0),
        D=lambda v: dist.Normal(v.A * v.Z + v.Q, 1.0 + v.A),
        U_E=normal(),
        E=lambda v: v.A * v.Z + v.D / 3.0 + v.U_E,
        M=lambda v: dist.Normal(v.D + v.E, 1.0),
    )
    edges = "Q -> Z; A -> Z -> D; {A Q} -> D; {A Z D} -> E; {D E} -> M -> Y"
    rows = table(draw(program, 2000), "Q A Z D E M")
    women = rows["A"] == 0
    paths = "A -> Z -> D -> M -> Y", "A -> Z -> E -> M -> Y"
    found = sem(program, edges, *paths, coupling="antithetic").counterfactual(rows)
    assert (found.switched["Z"] != rows["Z"])[women].all()
    assert (found.switched["M"] == rows["M"])[women].all()


@pytest.mark.parametrize(("coupling", "piu"), [("monotone", 0.35), ("independent", 0.55), ("antithetic", 0.85)])
def test_given_units_average_to_the_population(coupling: Any, piu: float) -> None:
    """B4: the expected probability, given the row, that the worlds differ is the population's."""
    program = units(A=coin(0.4), D=lambda v: dist.Bernoulli(0.25 + 0.35 * v.A))
    rows = pd.DataFrame({"A": [0, 0, 1, 1], "D": [0, 1, 0, 1]})
    share = np.array([0.6 * 0.75, 0.6 * 0.25, 0.4 * 0.40, 0.4 * 0.60])
    found = SEM(program, through("D"), coupling=coupling).counterfactual(rows, draws=4000, random_state=0)
    assert found.draws is not None
    differ = (found.draws[0]["D"] != found.draws[1]["D"]).mean(1)
    assert share @ differ == pytest.approx(piu, abs=0.02)
    assert share @ found.baseline["D"] == pytest.approx(0.25, abs=0.02)
    assert share @ found.switched["D"] == pytest.approx(0.60, abs=0.02)


@pytest.mark.parametrize("coupling", ["independent", "antithetic"])
def test_three_distributions_average_to_the_population(coupling: Any) -> None:
    """D's switched distribution is neither the baseline's nor a man's own: two noises serve three distributions."""
    program = units(
        Z=lambda v: dist.Bernoulli(0.2 + 0.6 * v.A), D=lambda v: dist.Bernoulli(0.1 + 0.3 * v.A + 0.5 * v.Z)
    )
    source = sem(program, "A -> Z -> D -> Y; A -> D", "A -> Z -> D -> Y", coupling=coupling)
    equations = source.equations()
    with isolated(0):
        noise = Noise(40_000, coupling)
        crowd = factual(equations, noise)
        first, second = sequential_worlds(equations, noise)
    truth = (first["D"] != second["D"]).double().mean().item()
    rows = table(crowd, "A Z D").value_counts(normalize=True).reset_index()
    found = source.counterfactual(rows[["A", "Z", "D"]], draws=4000, random_state=1)
    assert found.draws is not None
    differ = (found.draws[0]["D"] != found.draws[1]["D"]).mean(1)
    assert rows["proportion"] @ differ == pytest.approx(truth, abs=0.02)


def test_units_in_blocks_have_the_posterior_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, model = table(draw(floored, 13), "A Q D M"), SEM(floored, FLOORED.unfair("A -> Y", "A -> D -> M -> Y"))
    whole = model.counterfactual(rows, draws=500, random_state=0)
    scores = whole.scores(LOGISTIC)
    monkeypatch.setattr(importance, "TOGETHER", 4)
    for module in ("abduction", "counterfactuals", "importance"):
        monkeypatch.setattr(f"pyrofair.inference.{module}.BATCH", 1500)  # three units at a time
    pd.testing.assert_frame_equal(whole.scores(LOGISTIC), scores, rtol=1e-12)
    parts = model.counterfactual(rows, draws=500, random_state=0)
    u = parts.noise_values["U_D"].dense(500)
    a, q, d = (rows[name].to_numpy()[:, None] for name in "AQD")
    assert (np.floor((1.0 + 0.7 * a) * u + 0.3 * q) == d).all()
    for one, other in zip(whole.worlds, parts.worlds, strict=True):  # by 100 effective draws at least
        assert (abs(one.rows - other.rows) <= 5.0 * np.hypot(one.sd, other.sd) / math.sqrt(100)).all(axis=None)
    np.testing.assert_allclose(parts.scores(LOGISTIC)["effect"], scores["effect"], atol=0.05)


def test_gumbel_noise_given_the_winner_is_that_of_rejection() -> None:
    distribution = dist.Categorical(logits=torch.tensor([0.0, 1.0, -0.5]))
    with isolated(0):
        noise = -torch.log(-torch.log(torch.rand(400_000, 3)))
        brute = noise[(distribution.logits + noise).argmax(-1) == 2]
        wide = distribution.expand((100_000,))
        ours, _, _ = noise_given("C", wide, torch.full((100_000,), 2), "gumbel")
    assert ((distribution.logits + ours).argmax(-1) == 2).all()
    torch.testing.assert_close(ours.mean(0), brute.mean(0), atol=0.02, rtol=0)
    torch.testing.assert_close(ours.T.cov(), brute.T.cov(), atol=0.04, rtol=0)


@pytest.mark.parametrize(
    "distribution",
    [
        dist.Poisson(torch.tensor([0.5, 2.0, 7.0])),
        dist.Bernoulli(torch.tensor([0.1, 0.5, 0.9])),
        dist.Categorical(torch.tensor([[0.2, 0.3, 0.5]]).expand(3, 3)),
        dist.Binomial(5, torch.tensor([0.1, 0.5, 0.9])),
        dist.Normal(torch.tensor([0.0, 1.0, 2.0]), 1.5),
        dist.Gamma(torch.tensor([0.7, 1.0, 2.0]), 1.5),
        dist.LogNormal(torch.tensor([0.0, 0.5, 1.0]), 0.5),
        dist.Laplace(torch.tensor([0.0, 0.5, 1.0]), 0.5),
    ],
    ids=lambda distribution: type(distribution).__name__,
)
def test_the_noise_of_a_value_gives_the_value(distribution: Any) -> None:
    with isolated(0):
        values = distribution.sample((50,)).reshape(-1)
        wide = distribution.expand((50, 3))
        wide = type(wide)(**{n: getattr(wide, n).reshape(150, *getattr(wide, n).shape[2:]) for n in _names(wide)})
        noise, mean, variance = noise_given("V", wide, values, "monotone")
        torch.testing.assert_close(quantile("V", wide, noise).to(values.dtype), values, rtol=1e-3, atol=1e-3)
        low, high = noise_of("V", wide, values)
    assert ((low <= mean) & (mean <= high)).all()
    assert bool((variance > 0).all()) == bool(distribution.support.is_discrete)


def _names(distribution: Any) -> list[str]:
    return [n for n in distribution.arg_constraints if n not in ("logits",)]


# -- importance --------------------------------------------------------------------------------------------------------


def test_the_papers_floored_hiring_scenario() -> None:
    units = draw(hiring, 300, seed=1)
    rows = table(units, "A Q D M")
    found = SEM(hiring, UNFAIR).counterfactual(rows, draws=300, random_state=0)
    # D and M differ between the worlds by what the equations give, whatever the noise is.
    np.testing.assert_allclose(found.switched["D"] - found.baseline["D"], 1.0, atol=1e-9)
    np.testing.assert_allclose(found.switched["M"], found.baseline["M"])
    women = rows["A"] == 0
    assert (found.baseline.loc[women, ["Q", "D", "M"]] == rows.loc[women, ["Q", "D", "M"]]).all(axis=None)
    flat = rows["Q"] == 0
    assert flat.any()
    reported = found.diagnostics[found.diagnostics["node"] == "M"].set_index("unit")
    assert (reported.loc[flat[flat].index, "method"] == "prior").all()
    assert (reported.loc[flat[~flat].index, "method"] == "exact").all()
    assert (found.diagnostics.query("node == 'Q'")["method"] == "importance").all()
    assert "does not depend on its noise" in reported.loc[flat.idxmax(), "note"]
    for name, values in (("U_Q", units["U_Q"]), ("U_D", units["U_D"])):
        z = (values.numpy() - found.noise[name, "mean"]) / found.noise[name, "sd"]
        assert abs(z.mean()) < 4 / math.sqrt(len(z))
        assert z.std() == pytest.approx(1.0, abs=0.15)


latent = units(
    H=normal(),
    U_D=normal(0.0, 0.5),
    U_M=normal(0.0, 2.0),
    D=lambda v: v.A + (1 + v.A) * v.H + v.U_D,
    M=lambda v: 2 * v.A + 3 * v.H + v.U_M,
)
"""H feeds two nodes, each with noise of its own."""
LATENT = graph("A -> D -> Y; A -> M -> Y; A -> Y")
LATENT_ROWS = pd.DataFrame({"A": [0, 1, 1], "D": [0.3, 2.0, -1.0], "M": [1.0, 4.0, 0.0]})


def latent_posterior(row: Any, error: float = 0.0) -> tuple[float, float]:
    """Mean and standard deviation of H by the rule for normal variables, nodes being observed with some error."""
    slopes = np.array([1 + row.A, 3.0])
    precision = slopes / (np.array([0.25, 4.0]) + error**2)
    total = 1.0 + precision @ slopes
    return precision @ np.array([row.D - row.A, row.M - 2 * row.A]) / total, 1.0 / math.sqrt(total)


@undeclared
@pytest.mark.parametrize(
    ("method", "settings", "error"),
    [
        ("auto", {"draws": 4000}, 0.0),
        ("importance", {"tolerance": 0.5, "draws": 4000}, math.sqrt(0.05)),  # the kernel's standard deviation
        pytest.param("nuts", {"tolerance": 0.6, "draws": 200}, 0.6, marks=pytest.mark.slow),
        pytest.param("svi", {"tolerance": 0.4, "draws": 500, "guide": "multivariate"}, 0.4, marks=pytest.mark.slow),
    ],
)
def test_shared_noise_is_inferred_from_all_nodes_that_read_it(method: Any, settings: Any, error: float) -> None:
    slack = 0.03 if method in ("auto", "importance") else 0.1
    sem = SEM(latent, LATENT.unfair("A -> D -> Y"))
    rows = LATENT_ROWS[:2]
    found = sem.counterfactual(rows, method=method, random_state=0, **settings)
    for i, row in rows.iterrows():
        mean, sd = latent_posterior(row, error)
        assert found.noise.loc[i, ("H", "mean")] == pytest.approx(mean, abs=slack)
        assert found.noise.loc[i, ("H", "sd")] == pytest.approx(sd, abs=slack)
        if error == 0.0:
            other = found.switched if row.A == 0 else found.baseline
            assert other.loc[i, "D"] == pytest.approx(row.D + (1 + mean) * (1 - 2 * row.A), abs=slack)
    reported = found.diagnostics[found.diagnostics["node"].isin(["D", "M"])]
    if method == "nuts":
        assert (reported["r_hat"] < 1.05).all()
        assert (reported["ess"] > 100).all()
    if method == "auto":
        assert reported["note"].str.contains("jointly with").all()
        assert (reported["ess"] > 100).all()


def test_a_kernel_and_bisection_approach_the_declared_inverse() -> None:
    source = SEM(units(U_D=normal(0.0, 0.5), D=lambda v: torch.exp(0.5 * v.A + v.U_D)), through("D"))
    rows = pd.DataFrame({"A": [0, 1], "D": [1.0, 3.0]})
    exact = source.counterfactual(rows, inverses={"D": lambda v: torch.log(v["D"]) - 0.5 * v["A"]})
    assert exact.exact
    np.testing.assert_allclose(exact.noise["U_D", "mean"], [0.0, math.log(3.0) - 0.5], atol=1e-12)
    assert (exact.diagnostics.query("node == 'D'")["method"] == "declared inverse").all()
    near = source.counterfactual(rows, method="importance", tolerance=0.02, random_state=0)
    np.testing.assert_allclose(near.switched["D"], exact.switched["D"], atol=0.02)
    assert (near.diagnostics.query("node == 'D'")["ess"] > 100).all()
    with pytest.raises(DataError, match=r"Row 0: D = 1 given A=0: the node 'D' is continuous.*pass tolerance="):
        source.counterfactual(rows, method="importance")
    solved = source.counterfactual(rows)
    assert solved.exact
    np.testing.assert_allclose(solved.switched, exact.switched, rtol=1e-12)


def latent_step(L: Any, draws: int = 4000, **noise: Any) -> Any:
    """Return the worlds of a woman and a man given D, which is L and noise; L is a latent mediator."""
    program = units(**noise, L=L, U_D=normal(0.0, 0.5), D=lambda v: v.L + v.U_D)
    source = SEM(program, graph("A -> L -> D -> Y", latent=["L"]).unfair("A -> L -> D -> Y"))
    return source.counterfactual(pd.DataFrame({"A": [0, 1], "D": [0.4, 1.0]}), draws=draws, random_state=0)


def test_latent_step_without_explicit_noise() -> None:
    """An unobserved random mediator is weighed by the nodes that read it, and answers in the other world."""
    found = latent_step(lambda v: dist.Normal(2 * v.A, 1.0))
    # D = 2A + (shift of L) + U_D: only the sum of the noises matters, and it is determined.
    np.testing.assert_allclose(found.switched["D"], [2.4, 1.0], atol=1e-3)
    np.testing.assert_allclose(found.baseline["D"], [0.4, -1.0], atol=1e-3)
    np.testing.assert_allclose(found.noise["U_D", "mean"], np.array([0.4, -1.0]) * 0.25 / 1.25, atol=0.03)


def test_noise_behind_a_latent_step_matters_in_the_other_world() -> None:
    found = latent_step(lambda v: dist.Normal(v.A * v.S, 1.0), S=normal())
    # A woman's row does not bear on S; a man's D is the sum of S and noise of variance 1.25.
    np.testing.assert_allclose(found.switched["D"], [0.4, 1.0], atol=0.08)
    np.testing.assert_allclose(found.worlds[1].sd["D"], [1.0, 0.0], atol=0.06)
    np.testing.assert_allclose(found.baseline["D"], [0.4, 1.0 - 1.0 / 2.25], atol=0.05)
    np.testing.assert_allclose(found.worlds[0].sd["D"], [0.0, math.sqrt(1.25 / 2.25)], atol=0.05)


@undeclared
def test_each_unit_is_solved_for_the_noise_that_bears_on_it() -> None:
    """Noise of its own for each group, one of it switched off at random, and noise in common."""
    program = units(
        H=lambda v: dist.Normal(torch.zeros(1), 1.0).to_event(1),
        U_0=normal(),
        U_1=normal(0.0, 2.0),
        B=coin(),
        D=lambda v: v.H.squeeze(-1) + torch.where(v.A > 0, v.U_1, v.B * v.U_0),
        U_M=normal(),
        M=lambda v: v.B * v.U_M,
    )
    edges = "A -> D -> Y; M -> Y"
    rows = pd.DataFrame({"A": [0, 1, 0], "D": [1.0, 1.0, 1.0], "M": [0.5, -0.5, 0.0]})
    with pytest.raises(DataError, match="'M' is continuous"):
        SEM(program, graph(edges).unfair()).counterfactual(rows, method="importance")
    found = sem(program, edges, "A -> D -> Y").counterfactual(rows[:2], draws=4000, random_state=0)
    reported = found.noise.xs("mean", axis=1, level="of")
    np.testing.assert_allclose(reported["B"], 1.0)
    np.testing.assert_allclose(reported["H[0]"], [1 / 2, 1 / 5], atol=0.04)
    np.testing.assert_allclose(reported["U_0"], [1 / 2, 0.0], atol=0.06)
    np.testing.assert_allclose(reported["U_1"], [0.0, 4 / 5], atol=0.08)
    np.testing.assert_allclose(reported["U_M"], [0.5, -0.5])
    np.testing.assert_allclose(found.switched["D"], [0.5, 1.0], atol=0.2)
    # M = 0 has a probability if B = 0, and only a density if B = 1.
    equations = SEM(program, graph(edges, latent=["D"]).unfair()).equations()
    zero = abduct(equations, rows[["A", "M"]][2:], random_state=0)
    assert zero.noise["B", "mean"].item() == 0.0


def test_rounding_is_judged_by_the_size_of_each_row() -> None:
    """One row that is 1e9 times the others left all noise of these open: their M was matched to within 1e4."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            S = pyro.sample("S", dist.Normal(0.0, 1.0))
            A = pyro.sample("A", dist.Bernoulli(0.5))
            K, L = pyro.sample("K", dist.Binomial(4, 0.5)), pyro.sample("L", dist.Bernoulli(0.5))
            M = pyro.deterministic("M", S * (1.0 + 0.1 * A * (1.0 + L) + 0.1 * K))
            pyro.sample("Y", dist.Bernoulli(logits=M))

    rows = pd.DataFrame({"S": [1.0, 1.0, 1e9], "A": 0, "M": [1.0, 1.1, 1.2e9], "Y": 1})
    found = sem(program, "S -> M; A -> M; {S A M} -> Y", "A -> M -> Y").counterfactual(rows, random_state=0, draws=500)
    assert found.noise["K", "mean"].tolist() == [0.0, 1.0, 2.0]
    assert found.noise["K", "sd"].tolist() == [0.0, 0.0, 0.0]


def test_noise_of_noise_is_left_alone_once_it_does_not_matter() -> None:
    program = units(scale=normal(), U_D=lambda v: dist.Normal(v.scale.exp(), 1.0), D=lambda v: v.A + v.U_D)
    found = SEM(program, through("D")).counterfactual(pd.DataFrame({"A": [0], "D": [0.5]}))
    assert found.exact
    assert found.switched["D"].tolist() == [1.5]
    assert list(found.noise.columns.get_level_values("noise").unique()) == ["U_D"]


def test_a_latent_mediator_that_is_computed() -> None:
    program = units(
        U_L=normal(), L=lambda v: 2 * v.A + v.U_L, D=lambda v: v.L + v.A, U_M=normal(), M=lambda v: 3 * v.L + v.U_M
    )
    unfair = graph("A -> L; {A L} -> D; L -> M; {A D M} -> Y", latent=["L"]).unfair("A -> L -> M -> Y")
    rows = pd.DataFrame({"A": [0, 1], "D": [0.5, 3.5], "M": [1.0, 8.0]})
    found = SEM(program, unfair).counterfactual(rows)
    assert found.exact
    np.testing.assert_allclose(found.noise["U_L", "mean"], 0.5)
    np.testing.assert_allclose(found.baseline[["D", "M"]], [[0.5, 1.0], [0.5, 2.0]], atol=1e-9)
    np.testing.assert_allclose(found.switched[["D", "M"]], [[0.5, 7.0], [0.5, 8.0]], atol=1e-9)


def test_noise_that_is_a_vector() -> None:
    program = units(
        U=lambda v: dist.Normal(torch.zeros(2), 1.0).to_event(1), D=lambda v: torch.floor(v.U.sum(-1) + v.A)
    )
    source, rows = SEM(program, through("D")), pd.DataFrame({"A": [0, 1], "D": [0.0, 2.0]})
    found = source.counterfactual(rows, random_state=0)
    assert found.switched["D"].tolist() == [1.0, 2.0]
    crowd = draw(program, 500_000)
    for i, (a, d) in enumerate([(0, 0.0), (1, 2.0)]):
        brute = crowd["U"][(crowd["A"] == a) & (crowd["D"] == d)]
        for k in (0, 1):
            assert found.noise.loc[i, (f"U[{k}]", "mean")] == pytest.approx(brute[:, k].mean().item(), abs=0.1)
    inverse = {"D": lambda v: torch.stack([v["D"] - v["A"], torch.zeros_like(v["D"])], -1)}
    declared = source.counterfactual(rows, inverses=inverse)
    assert declared.exact
    assert declared.noise["U[0]", "mean"].tolist() == [0.0, 1.0]


def test_nodes_that_react_to_an_intervention_above_the_sensitive_attribute() -> None:
    """Had Q been otherwise, A would be what its own noise makes it: that noise is inferred too."""
    program = units(
        Q=normal(), U_A=normal(), A=lambda v: (v.Q + v.U_A > 0).to(v.Q.dtype), U_D=normal(), D=lambda v: 2 * v.A + v.U_D
    )
    source = sem(program, "Q -> A -> D -> Y", "A -> D -> Y")
    unit = pd.DataFrame({"Q": [0.0], "A": [1], "D": [2.5]})
    both = source.counterfactual(unit)
    assert both.exact
    assert list(both.noise.columns.get_level_values("noise").unique()) == ["U_D"]
    world = abduct(source.equations(), unit, draws=4000, random_state=0).do({"Q": -1.0})
    # U_A given U_A > 0 exceeds 1 with probability 2 * (1 - Phi(1)).
    still = math.erfc(1.0 / math.sqrt(2.0))
    assert world.rows["A"].item() == pytest.approx(still, abs=0.03)
    assert world.rows["D"].item() == pytest.approx(0.5 + 2 * still, abs=0.06)
    assert world.sd["D"].item() == pytest.approx(2 * math.sqrt(still * (1 - still)), abs=0.06)


def test_a_program_with_parameters_in_the_store() -> None:
    program = units(U_D=normal(), D=lambda v: pyro.param("shift", torch.tensor(1.0)) * v.A + v.U_D)
    pyro.clear_param_store()
    pyro.param("shift", torch.tensor(2.0))
    pyro.param("AutoNormal.locs.U_D", torch.ones(3))
    source, rows = SEM(program, through("D")), pd.DataFrame({"A": [0, 1], "D": [0.5, 2.5]})
    assert source.counterfactual(rows).switched["D"].tolist() == [2.5, 2.5]
    found = source.counterfactual(rows, method="svi", tolerance=0.3, draws=200, random_state=0)
    np.testing.assert_allclose(found.noise["U_D", "mean"], 0.5 / 1.09, atol=0.1)
    reported = found.diagnostics.query("node == 'D'")
    assert (reported["method"] == "svi (normal)").all()
    assert (reported["ess"] > 100).all()
    assert reported["r_hat"].isna().all()
    assert pyro.param("shift").item() == 2.0
    assert sorted(pyro.get_param_store()) == ["AutoNormal.locs.U_D", "shift"]
    pyro.clear_param_store()


def test_the_outcome_is_evidence_if_it_is_given() -> None:
    program = units(H=normal(), D=lambda v: torch.floor(v.H + v.A), Y=lambda v: dist.Bernoulli(logits=3.0 * v.H))
    source = SEM(program, graph("A -> D -> Y; A -> Y", positive="yes").unfair("A -> D -> Y"))
    rows = pd.DataFrame({"A": [0, 0], "D": [0.0, 0.0]})
    without = source.counterfactual(rows, random_state=0)
    given = source.counterfactual(rows.assign(Y=["no", "yes"]), draws=5000, random_state=0)
    crowd = draw(program, 1_000_000)
    for i in (0, 1):
        alike = (crowd["A"] == 0) & (crowd["D"] == 0) & (crowd["Y"] == i)
        assert given.noise.loc[i, ("H", "mean")] == pytest.approx(crowd["H"][alike].mean().item(), abs=0.03)
    assert without.noise["H", "mean"].std() < 0.03
    assert "Y" not in without.baseline
    assert given.baseline["Y"].tolist() == ["no", "yes"]


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "WARMUP", 30)
    monkeypatch.setattr(importance, "STEPS", 30)


@pytest.mark.usefixtures("hurried")
def test_arviz_data() -> None:
    sem = SEM(floored, FLOORED.unfair("A -> D -> Y"))
    rows = pd.DataFrame({"A": [0, 1], "Q": [1.0, 2.0], "D": [2.0, 4.0], "M": [1.0, 5.0]}, index=["i", "j"])
    data = sem.counterfactual(rows, draws=50, random_state=0).to_inference_data()
    posterior = data["posterior"]
    assert posterior["U_D"].shape == posterior["switched_D"].shape == (1, 50, 2)
    assert list(posterior["unit"].values) == ["i", "j"]
    exact = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN).to_inference_data()
    np.testing.assert_allclose(exact["posterior"]["switched_D"].values, [[[4.0, 4.0]]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        with_chains = SEM(paper, UNFAIR).counterfactual(
            WOMAN_AND_MAN, method="nuts", tolerance=0.5, draws=40, random_state=0
        )
    assert with_chains.to_inference_data()["posterior"]["U_M"].shape == (2, 20, 2)


def test_parameters_share_the_draws() -> None:
    program = units({"slope": normal()}, U_D=normal(), D=lambda v: v.slope * v.A + v.U_D)
    slopes = np.array([1.0, 2.0, 3.0, 4.0])
    found = SEM(program, through("D"), posterior={"slope": slopes}).counterfactual(
        pd.DataFrame({"A": [0, 1], "D": [0.5, 1.5]}), draws=4
    )
    assert not found.exact
    assert found.draws is not None
    np.testing.assert_allclose(np.sort(found.draws[1]["D"][0]), 0.5 + slopes)
    np.testing.assert_allclose(found.draws[1]["D"][1], 1.5)
    np.testing.assert_allclose(found.baseline["D"], [0.5, 1.5 - 2.5])
    np.testing.assert_allclose(found.noise["U_D", "sd"], [0.0, slopes.std()], atol=1e-12)


def test_an_abduction_shows_its_noise_and_its_methods() -> None:
    text = str(abduct(paper, WOMAN_AND_MAN))
    assert "exact" in text
    assert "U_D" in text
    text = repr(abduct(floored, table(draw(floored, 9), "A Q D M"), draws=30, random_state=0))
    assert "9 of 9 units (100%), 30 draws each" in text
    assert "no explicit noise that bears" in str(abduct(implicit, table(draw(implicit, 2), "Q A D C M")))


@pytest.mark.usefixtures("hurried")
def test_units_of_an_index_of_several_levels_and_in_any_order() -> None:
    index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])
    found = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN.set_index(index))
    assert found.switched.index.equals(index)
    assert found.to_inference_data()["posterior"]["U_D"]["unit"].to_numpy().tolist() == ["x, 1", "y, 2"]
    source, rows = SEM(paper, UNFAIR), table(draw(paper, 30), "A Q D M")
    shuffled = rows[["M", "D", "Q", "A"]].iloc[::-1]
    one, two = source.counterfactual(rows).switched, source.counterfactual(shuffled).switched
    assert two.index.equals(shuffled.index)
    pd.testing.assert_frame_equal(one, two.loc[one.index, one.columns])


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "settings", "match"),
    [
        (WOMAN_AND_MAN.assign(D=["a", "b"]), {}, "'D' holds categories"),
        (WOMAN_AND_MAN, {"method": "nuts"}, "method='nuts' needs tolerance="),
        (WOMAN_AND_MAN, {"method": "nuts", "tolerance": {"D": 0.1}}, "no width for the node 'M'"),
        (WOMAN_AND_MAN, {"tolerance": "a"}, r"tolerance='a' must be a number above 0\."),
        (WOMAN_AND_MAN, {"tolerance": {"X": 0.1}}, "tolerance names 'X', which is no observed node. They are: A, Q, D"),
        (WOMAN_AND_MAN, {"method": "importance"}, "is continuous.*pass tolerance="),
        (
            WOMAN_AND_MAN,
            {"inverses": {"Q": lambda v: v["Q"]}},
            "inverses names 'Q', which is no observed node computed",
        ),
        (WOMAN_AND_MAN, {"inverses": {"D": lambda v: v["D"]}}, "Row 'woman'.*the declared inverse returns"),
        (WOMAN_AND_MAN, {"inverses": {"D": lambda v: v["X"]}}, "asks for 'X'"),
        (WOMAN_AND_MAN, {"inverses": {"D": lambda v: torch.ones(3)}}, r"returns the shape \(3,\)"),
        (WOMAN_AND_MAN, {"do": {"A": 1}}, "the sensitive attribute, which the two worlds set"),
        (WOMAN_AND_MAN, {"do": {"X": 1}}, "'X', which is no observed node"),
        (WOMAN_AND_MAN, {"do": {"M": [1.0, 2.0, 3.0]}}, "must be a number, or 2 of them"),
    ],
)
def test_refused(rows: pd.DataFrame, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(DataError, match=match):
        SEM(paper, UNFAIR).counterfactual(rows, **settings)


BOUNDED = units(
    Q=lambda v: dist.Poisson(3.0),
    U_D=lambda v: dist.Uniform(0.0, 1.0),
    D=lambda v: v.A + v.U_D * v.Q,
    M=lambda v: v.D + 2 * v.Q,
)
IN_BOUNDS = graph("{A Q} -> D; {Q D} -> M; {A Q D M} -> Y").unfair("A -> Y")


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ([0, 2.5, 1.0, 6.0], r"Row 7: Q = 2.5 is impossible.*Poisson"),
        ([0, -1.0, 1.0, 6.0], r"Row 7: Q = -1 is impossible"),
        ([0, 2.0, 5.0, 9.0], r"Row 7: D = 5 given Q=2, A=0 is impossible.*U_D would be 2.5, outside its support"),
        ([1, 0.0, 1.5, 1.5], r"Row 7: D = 1.5 given Q=0, A=1 is impossible.*there it is 1 whatever the noise U_D"),
        ([0, 2.0, 1.0, 6.0], r"Row 7: M = 6 given Q=2, D=1 is impossible.*its equation gives 5"),
    ],
)
def test_impossible_rows(row: list[float], match: str) -> None:
    rows = pd.DataFrame([[0, 2.0, 1.0, 5.0], row], columns=list("AQDM"), index=[3, 7])
    with pytest.raises(DataError, match=match):
        SEM(BOUNDED, IN_BOUNDS).counterfactual(rows)


def test_rounding_does_not_make_a_row_impossible() -> None:
    rows = pd.DataFrame({"A": [0, 0], "Q": [2.0, 2.0], "D": [np.float32(2.0000002), 0.0], "M": [6.0, 4.0]})
    found = SEM(BOUNDED, IN_BOUNDS).counterfactual(rows)
    np.testing.assert_allclose(found.noise["U_D", "mean"], [1.0, 0.0], atol=1e-6)
    counts = SEM(units(U_D=lambda v: dist.Poisson(3.0), D=lambda v: v.A + 0.1 * v.U_D), through("D"))
    given = pd.DataFrame({"A": [0, 1, 1], "D": [0.3, 1.3, 1.7]})
    assert counts.counterfactual(given).noise["U_D", "mean"].tolist() == [3.0, 3.0, 7.0]


@pytest.mark.parametrize(
    ("d", "settings", "match"),
    [
        (2.5, {"draws": 100}, "Row 1: D = 2.5 given .* is impossible.*no value of its noise U_D"),
        (2.0, {"method": "exact"}, r"method='exact' cannot solve the equation of 'Q' for its noise \(U_Q\)"),
    ],
)
def test_floored_rows_that_no_noise_or_no_solution_gives(d: float, settings: dict[str, Any], match: str) -> None:
    rows = pd.DataFrame({"A": [0, 0], "Q": [1.0, 1.0], "D": [2.0, d], "M": [1.0, 1.0]})
    with pytest.raises(DataError, match=match):
        SEM(floored, FLOORED.unfair("A -> Y")).counterfactual(rows, **settings)


def test_gradients_refuse_discrete_noise() -> None:
    source = SEM(units(U_D=lambda v: dist.Poisson(1.0), D=lambda v: v.A + v.U_D), through("D"))
    rows = pd.DataFrame({"A": [0, 1], "D": [2.0, 1.0]})
    with pytest.raises(DataError, match="The noise 'U_D' is discrete"):
        source.counterfactual(rows, method="nuts", tolerance=0.1)
    assert source.counterfactual(rows, method="exact").switched["D"].tolist() == [3.0, 1.0]
    with pytest.raises(DataError, match=r"U_D would be 0.5, outside its support"):
        source.counterfactual(rows.assign(D=[0.5, 1.0]))


def test_a_family_without_a_distribution_function_is_refused() -> None:
    with pytest.raises(CouplingError, match="no usable distribution function"):
        noise_of("V", dist.VonMises(torch.zeros(1), 1.0), torch.zeros(1))


def test_columns_that_are_no_sites_are_named() -> None:
    with pytest.raises(DataError, match="No column of the data is a site of the program"):
        abduct(pearl, pd.DataFrame({"Z": [1.0]}))
    with pytest.warns(PyrofairWarning, match="no sites are ignored: Z"):
        abduct(pearl, pd.DataFrame({"X": [0.5], "H": [1.0], "Y": [1.5], "Z": [1.0]}))


# --- nodes without a column ------------------------------------------------------------------------------------------

unseen = units(
    F=normal(),
    W=lambda v: dist.Normal(v.F + v.A, 1.0),
    M=lambda v: dist.Normal(v.A + v.F, 1.0),
    Y=lambda v: dist.Bernoulli(logits=v.M + v.W),
)
"""F is told by M, W is not; the outcome reads W."""
UNSEEN = graph("A -> M -> Y; A -> W -> Y; F -> M; F -> W", latent=["F", "W"]).unfair("A -> M -> Y")


def test_nodes_without_a_column_are_predicted_in_both_worlds() -> None:
    rows = pd.DataFrame({"A": [0, 1], "M": [0.6, 2.6]})
    source = SEM(unseen, UNSEEN)
    plain = source.counterfactual(rows, random_state=0)
    assert list(plain.switched) == ["A", "M"]
    found = source.counterfactual(rows, predict=["W", "Y", "F"], draws=4000, random_state=0)
    assert found.draws is not None
    base, other = found.draws
    told = (rows["M"] - rows["A"]) / 2  # F given M has this mean, and the variance 1/2
    sd = math.sqrt(0.5)
    np.testing.assert_allclose(base["F"].mean(1), told, atol=0.05)
    np.testing.assert_allclose(base["F"].std(1), sd, atol=0.03)
    np.testing.assert_array_equal(base["W"], other["W"])  # A = 0 in both
    np.testing.assert_allclose(base["W"].mean(1), told, atol=0.08)
    np.testing.assert_allclose(base["W"].std(1), math.sqrt(1.5), atol=0.05)
    np.testing.assert_allclose(other["M"] - base["M"], 1.0, atol=1e-5)
    z = told.to_numpy() + math.sqrt(1.5) * np.random.default_rng(0).normal(size=(200_000, 2))
    for world, drawn in ((found.baseline, base), (found.switched, other)):
        np.testing.assert_allclose(world["Y"], expit(world["M"].to_numpy() + z).mean(0), atol=0.03)
        assert set(np.unique(drawn["Y"])) == {0.0, 1.0}
    assert "Y" in found.coupled


@pytest.mark.parametrize("name", ["M", "A", "Z"])
def test_only_nodes_without_a_column_are_predicted(name: str) -> None:
    with pytest.raises(DataError, match=rf"(?s)predict.*'{name}'.*F, W, Y"):
        SEM(unseen, UNSEEN).counterfactual(pd.DataFrame({"A": [0], "M": [0.6]}), predict=[name])


def test_noise_of_the_outcome_alone_does_not_matter_to_other_nodes() -> None:
    program = units(F=normal(), U=normal(), M=lambda v: v.A + v.U, Y=lambda v: v.M + v.F)
    source = SEM(program, graph("A -> M -> Y; F -> Y", latent=["F"]).unfair("A -> M -> Y"))
    found = source.counterfactual(pd.DataFrame({"A": [0], "M": [0.5]}))
    assert found.exact
    assert found.switched.loc[0, "M"] == 1.5
