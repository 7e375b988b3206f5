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
from numpy.typing import NDArray
from pyro import poutine

from pyrofair._random import isolated
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.inference import importance
from pyrofair.inference.abduction import METHODS, abduct
from pyrofair.programs.couplings import COUPLINGS, CouplingError, Noise, noise_given, noise_of, quantile
from pyrofair.programs.interventions import do
from pyrofair.programs.worlds import factual, sequential_worlds
from pyrofair.simulate import hiring
from pyrofair.sources.sem import SEM

undeclared = pytest.mark.filterwarnings("ignore:The nodes .* in common, which the graph does not hold")
"""What is tested holds for noise that nodes share, whether the graph declares it or not."""

HIRING = CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = HIRING.unfair("A -> Y", "A -> D -> Y")


def normal(name: str, loc: float = 0.0, scale: float = 1.0) -> Any:
    return pyro.sample(name, dist.Normal(loc, scale))


def paper(n: int) -> None:
    """The paper's introductory example: D has multiplicative noise, M additive noise."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        Q = pyro.sample("Q", dist.Normal(2.0, 1.0))
        U_D, U_M = normal("U_D"), normal("U_M")
        pyro.deterministic("D", A + U_D * Q)
        pyro.deterministic("M", 3 * A + 0.5 * Q + U_M)


def pearl(n: int) -> None:
    with pyro.plate("units", n):
        U_x, U_h, U_y = normal("U_x"), normal("U_h"), normal("U_y")
        X = pyro.deterministic("X", U_x)
        H = pyro.deterministic("H", 0.5 * X + U_h)
        pyro.deterministic("Y", 0.7 * X + 0.4 * H + U_y)


def floored(n: int) -> None:
    """A stands inside the floor, so that what D would be is not determined."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        U_Q, U_D, U_M = normal("U_Q", 2.0, 1.0), normal("U_D", 2.0), normal("U_M")
        Q = pyro.deterministic("Q", torch.floor(U_Q))
        D = pyro.deterministic("D", torch.floor((1.0 + 0.7 * A) * U_D + 0.3 * Q))
        pyro.deterministic("M", 3 * A + 0.5 * D + U_M)


FLOORED = CausalGraph("{A Q} -> D; {A D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")


def draw(program: Callable[[int], Any], n: int, seed: int = 0) -> dict[str, torch.Tensor]:
    with isolated(seed):
        nodes = poutine.trace(program).get_trace(n).nodes
    return {name: site["value"] for name, site in nodes.items() if site["type"] == "sample"}


def table(units: dict[str, torch.Tensor], columns: str) -> pd.DataFrame:
    return pd.DataFrame({name: units[name].double().numpy() for name in columns.split()})


WOMAN_AND_MAN = pd.DataFrame({"A": [0, 1], "Q": [2.0, 2.0], "D": [3.0, 4.0], "M": [1.7, 4.7]}, index=["woman", "man"])


class Logistic:
    """A classifier that reads all columns."""

    classes_ = (0, 1)

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        p = 1.0 / (1.0 + np.exp(-(X.sum(axis=1).to_numpy() - 8.0)))
        return np.stack([1.0 - p, p], 1)


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
    scores = found.scores(Logistic())
    np.testing.assert_allclose(scores["baseline"], 1 / (1 + math.exp(8.0 - 6.7)))
    np.testing.assert_allclose(scores["effect"], 1 / (1 + math.exp(8.0 - 8.7)) - 1 / (1 + math.exp(8.0 - 6.7)))
    assert scores["decisions_differ"].tolist() == [1.0, 1.0]


def test_the_papers_man_had_all_paths_been_switched_back() -> None:
    found = SEM(paper, HIRING.unfair(predicate=lambda path: True)).counterfactual(WOMAN_AND_MAN)
    assert found.baseline.loc["woman"].tolist() == WOMAN_AND_MAN.loc["woman"].tolist()
    assert found.switched.loc["man"].tolist() == WOMAN_AND_MAN.loc["man"].tolist()
    np.testing.assert_allclose(found.switched.loc["woman"], [1, 2, 4, 4.7])


def test_pearls_unit_had_h_been_two() -> None:
    unit = abduct(pearl, pd.DataFrame({"X": [0.5], "H": [1.0], "Y": [1.5]}))
    np.testing.assert_allclose(unit.noise.xs("mean", axis=1, level="of"), [[0.5, 0.75, 0.75]], atol=1e-12)
    world = unit.do({"H": 2.0})
    assert world.exact
    np.testing.assert_allclose(world.rows, [[0.5, 2.0, 1.9]], atol=1e-12)
    at_mean = poutine.condition(pearl, data={name: torch.zeros(1) for name in ("U_x", "U_h", "U_y")})
    population = poutine.trace(do(at_mean, {"H": 2})).get_trace(1)
    assert population.nodes["Y"]["value"].item() == pytest.approx(0.80)


def test_a_further_intervention_holds_in_both_worlds() -> None:
    found = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN, do={"M": [5.0, 6.0]})
    assert found.baseline["M"].tolist() == found.switched["M"].tolist() == [5.0, 6.0]
    np.testing.assert_allclose(found.switched["D"], 4.0)


def test_values_for_each_unit_keep_to_their_index() -> None:
    sem, unit = SEM(paper, UNFAIR), abduct(paper, WOMAN_AND_MAN)
    values = pd.Series({"woman": 5.0, "man": 6.0})
    assert sem.counterfactual(WOMAN_AND_MAN, do={"M": values}).baseline["M"].tolist() == [5.0, 6.0]
    assert unit.do({"M": values}).rows["M"].tolist() == [5.0, 6.0]
    assert unit.do({"M": np.array([6.0, 5.0])[::-1]}).rows["M"].tolist() == [5.0, 6.0]
    for other in (values[::-1], values.reset_index(drop=True)):
        with pytest.raises(DataError, match=r"index of do\['M'\] is not that of the table.*values.loc\[df.index\]"):
            sem.counterfactual(WOMAN_AND_MAN, do={"M": other})
        with pytest.raises(DataError, match=r"index of do\['M'\] is not that of the table"):
            unit.do({"M": other})


def test_a_node_is_named_by_its_site_or_its_column() -> None:
    graph = CausalGraph(
        "{A Q} -> D; {A Q} -> M; {A Q D M} -> Y",
        sensitive="A",
        outcome="Y",
        columns={"M": ["strength"], "A": ["sex"]},
    )
    sem = SEM(paper, graph.unfair("A -> Y", "A -> D -> Y"))
    rows = WOMAN_AND_MAN.rename(columns={"M": "strength", "A": "sex"})
    for name in ("M", "strength"):
        assert sem.counterfactual(rows, do={name: 5.0}).switched["strength"].tolist() == [5.0, 5.0]
        assert abduct(sem.equations(), rows).do({name: 5.0}).rows["strength"].tolist() == [5.0, 5.0]
    with pytest.raises(DataError, match="do names the node 'M' twice, by its site and by its column"):
        sem.counterfactual(rows, do={"M": 5.0, "strength": 5.0})
    with pytest.raises(DataError, match="do names 'sex', the sensitive attribute"):
        sem.counterfactual(rows, do={"sex": 1})
    with pytest.raises(DataError, match=r"do names 'strenght', which is no observed node.*Did you mean 'strength'"):
        sem.counterfactual(rows, do={"strenght": 1})


def test_recanting_witness_kite() -> None:
    def kite(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            M1 = pyro.deterministic("M1", A + normal("u1"))
            M2 = pyro.deterministic("M2", 2 * M1 + normal("u2"))
            pyro.deterministic("Y", A + M1 + 5 * M2)

    graph = CausalGraph("A -> M1 -> M2 -> Y; {A M1} -> Y", sensitive="A", outcome="Y")
    units = table(draw(kite, 20), "A M1 M2 Y")
    for paths, effect in [(["A -> M1 -> M2 -> Y"], 10.0), (["A -> M1 -> Y"], 1.0), (["A -> Y"], 1.0)]:
        found = SEM(kite, graph.unfair(*paths)).counterfactual(units)
        assert found.exact
        np.testing.assert_allclose(found.switched["Y"] - found.baseline["Y"], effect, atol=1e-5)


# -- distributions
# --------------------------------------------------------------------------------------------------------------


def implicit(n: int) -> None:
    """Nodes without explicit noise, continuous, discrete and categorical, one reading another."""
    with pyro.plate("units", n):
        Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
        A = pyro.sample("A", dist.Bernoulli(torch.sigmoid(Q)))
        D = pyro.sample("D", dist.Poisson(torch.exp(0.3 * Q + 0.5 * A)))
        logits = torch.stack([torch.zeros_like(Q), A + 0.1 * D, Q - A], -1)
        C = pyro.sample("C", dist.Categorical(logits=logits))
        pyro.sample("M", dist.Normal(A + D + 0.5 * C, 1.0 + A))


IMPLICIT = CausalGraph("Q -> A; {Q A} -> D; {Q A D} -> C; {A D C} -> M; {A Q D C M} -> Y", sensitive="A", outcome="Y")


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


@pytest.mark.parametrize("method", ["auto", "importance"])
def test_floored_rows_come_back(method: Any) -> None:
    units = table(draw(floored, 40), "A Q D M")
    settings = {"tolerance": 0.5} if method == "importance" else {}
    found = SEM(floored, FLOORED.unfair(predicate=lambda path: True)).counterfactual(
        units, method=method, draws=200, random_state=0, **settings
    )
    assert found.draws is not None
    for world, group in ((0, 0), (1, 1)):
        own = units["A"] == group
        for column in "QDM":
            assert (found.draws[world][column][own] == units.loc[own, [column]].to_numpy()).all()


@undeclared
@pytest.mark.parametrize("paths", [("A -> Y", "A -> D -> Y"), ("A -> M -> Y",), (), ("A -> D -> M -> Y",)])
def test_units_drawn_with_known_noise_are_recovered(paths: tuple[str, ...]) -> None:
    """The worlds of units are those of the noise that they were made with, by the definition."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.sample("Q", dist.Gamma(2.0, 1.0))
            U_D = pyro.sample("U_D", dist.Uniform(-1.0, 1.0))
            D = pyro.deterministic("D", A * Q + (1.0 + A) * U_D)
            U_M = pyro.sample("U_M", dist.Laplace(0.0, 1.0))
            pyro.deterministic("M", D.square() + 0.3 * U_D - Q * U_M)  # it shares U_D, which D determines

    graph = CausalGraph("{A Q} -> D; {A Q D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    sem = SEM(program, graph.unfair(*paths))
    equations = sem.equations()
    with isolated(0):
        noise = Noise(200, "monotone")
        units = table(factual(equations, noise), "A Q D M")
        worlds = sequential_worlds(equations, noise)
    found = sem.counterfactual(units)
    assert found.exact
    for mine, theirs in zip((found.baseline, found.switched), worlds, strict=True):
        for column in "QDM":
            np.testing.assert_allclose(mine[column], theirs[column].numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("coupling", ["monotone", "antithetic"])
def test_units_with_implicit_noise_are_recovered(coupling: Any) -> None:
    """For random path sets, recanting witnesses included; A = 0 takes Z out of D's distribution, whatever Z is."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            A = pyro.sample("A", dist.Bernoulli(torch.sigmoid(Q)))
            Z = pyro.sample("Z", dist.Normal(A + Q, 1.0))
            D = pyro.sample("D", dist.Normal(A * Z + Q, 1.0 + A))
            pyro.sample("M", dist.LogNormal(0.2 * D - 0.3 * A, 0.5))
            pyro.deterministic("W", Z * D + (1 + A) * normal("H"))

    graph = CausalGraph(
        "Q -> A; {Q A} -> Z; {A Z Q} -> D; {D A} -> M; {Z D A} -> W; {A Z D M W Q} -> Y", sensitive="A", outcome="Y"
    )
    choose = random.Random(0)
    for seed in range(8):
        unfair = graph.unfair(*[path for path in graph.directed_paths("A", "Y") if choose.random() < 0.5])
        sem = SEM(program, unfair if seed % 2 else unfair.reversed(), coupling=coupling)
        equations = sem.equations()
        with isolated(seed):
            noise = Noise(200, coupling)
            units = table(factual(equations, noise), "A Q Z D M W")
            worlds = sequential_worlds(equations, noise)
        found = sem.counterfactual(units)
        assert found.exact
        for mine, theirs in zip((found.baseline, found.switched), worlds, strict=True):
            for column in "QZDMW":
                np.testing.assert_allclose(mine[column], theirs[column].numpy(), rtol=1e-4, atol=1e-4)


def test_rounding_does_not_make_another_distribution() -> None:
    """A woman's D does not depend on Z, so what follows D is hers, though its noise would be another at another D."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Z = pyro.sample("Z", dist.Normal(A + Q, 1.0))
            D = pyro.sample("D", dist.Normal(A * Z + Q, 1.0 + A))
            E = pyro.deterministic("E", A * Z + D / 3.0 + normal("U_E"))
            pyro.sample("M", dist.Normal(D + E, 1.0))

    graph = CausalGraph("Q -> Z; A -> Z -> D; {A Q} -> D; {A Z D} -> E; {D E} -> M -> Y", sensitive="A", outcome="Y")
    sem = SEM(program, graph.unfair("A -> Z -> D -> M -> Y", "A -> Z -> E -> M -> Y"), coupling="antithetic")
    units = table(draw(program, 2000), "Q A Z D E M")
    women = units["A"] == 0
    found = sem.counterfactual(units)
    assert (found.switched["Z"] != units["Z"])[women].all()
    assert (found.switched["M"] == units["M"])[women].all()


@pytest.mark.parametrize(("coupling", "piu"), [("monotone", 0.35), ("independent", 0.55), ("antithetic", 0.85)])
def test_given_units_average_to_the_population(coupling: Any, piu: float) -> None:
    """B4 by the tower distribution: the expected probability, given the row, that the worlds differ is the
    population's."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.4))
            pyro.sample("D", dist.Bernoulli(0.25 + 0.35 * A))

    sem = SEM(program, CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y"), coupling=coupling)
    rows = pd.DataFrame({"A": [0, 0, 1, 1], "D": [0, 1, 0, 1]})
    share = np.array([0.6 * 0.75, 0.6 * 0.25, 0.4 * 0.40, 0.4 * 0.60])
    found = sem.counterfactual(rows, draws=4000, random_state=0)
    assert found.draws is not None
    differ = (found.draws[0]["D"] != found.draws[1]["D"]).mean(1)
    assert share @ differ == pytest.approx(piu, abs=0.02)
    assert share @ found.baseline["D"] == pytest.approx(0.25, abs=0.02)
    assert share @ found.switched["D"] == pytest.approx(0.60, abs=0.02)


def test_three_distributions_under_an_independent_coupling_average_to_the_population() -> None:
    """The switched distribution of D is neither the baseline's nor a man's own: two noises must serve three
    distributions."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Z = pyro.sample("Z", dist.Bernoulli(0.2 + 0.6 * A))
            pyro.sample("D", dist.Bernoulli(0.1 + 0.3 * A + 0.5 * Z))

    graph = CausalGraph("A -> Z -> D -> Y; A -> D", sensitive="A", outcome="Y")
    for coupling in ("independent", "antithetic"):
        sem = SEM(program, graph.unfair("A -> Z -> D -> Y"), coupling=coupling)
        equations = sem.equations()
        with isolated(0):
            noise = Noise(40_000, coupling)
            units = factual(equations, noise)
            first, second = sequential_worlds(equations, noise)
        truth = (first["D"] != second["D"]).double().mean().item()
        rows = table(units, "A Z D").value_counts(normalize=True).reset_index()
        found = sem.counterfactual(rows[["A", "Z", "D"]], draws=4000, random_state=1)
        assert found.draws is not None
        differ = (found.draws[0]["D"] != found.draws[1]["D"]).mean(1)
        assert rows["proportion"] @ differ == pytest.approx(truth, abs=0.02)


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


def test_floored_noise_is_that_of_rejecting_whole_units() -> None:
    crowd = draw(floored, 2_000_000, seed=5)
    rows = pd.DataFrame({"A": [0.0, 1.0, 1.0], "Q": [1.0, 2.0, 3.0], "D": [2.0, 4.0, 3.0], "M": [1.2, 5.1, 4.4]})
    sem = SEM(floored, FLOORED.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y"))
    found = sem.counterfactual(rows, draws=4000, random_state=0)
    assert found.draws is not None
    reported = found.diagnostics.set_index(["unit", "node"])
    assert reported.loc[(0, "M"), "method"] == "exact"
    assert reported.loc[(0, "D"), "method"] == reported.loc[(0, "Q"), "method"] == "importance"
    pairs = np.stack([found.noise_values[key].draws for key in ("U_Q", "U_D")], -1)
    for i, row in rows.iterrows():
        assert len(np.unique(pairs[i], axis=0)) > 0.9 * 4000
        alike = (crowd["A"] == row.A) & (crowd["Q"] == row.Q) & (crowd["D"] == row.D)
        u_d, u_q = crowd["U_D"][alike], crowd["U_Q"][alike]
        assert len(u_d) > 1000
        for name, brute in (("U_D", u_d), ("U_Q", u_q)):
            assert found.noise.loc[i, (name, "mean")] == pytest.approx(brute.mean().item(), abs=0.02)
            assert found.noise.loc[i, (name, "sd")] == pytest.approx(brute.std().item(), abs=0.02)
        for world, a in ((0, 0.0), (1, 1.0)):
            would = torch.floor((1.0 + 0.7 * a) * u_d + 0.3 * row.Q)
            u_m = row.M - 3 * row.A - 0.5 * row.D
            ours = found.draws[world]
            for value in would.unique():
                share = (would == value).double().mean().item()
                assert (ours["D"][i] == value.item()).mean() == pytest.approx(share, abs=0.06)
            np.testing.assert_allclose(ours["M"][i], 0.5 * ours["D"][i] + u_m, atol=1e-9)
    differ = found.scores(Logistic())["decisions_differ"]
    assert ((differ >= 0) & (differ <= 1)).all()


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
    assert "does not depend on its noise" in reported.loc[flat.idxmax(), "note"]
    for name, values in (("U_Q", units["U_Q"]), ("U_D", units["U_D"])):
        z = (values.numpy() - found.noise[name, "mean"]) / found.noise[name, "sd"]
        assert abs(z.mean()) < 4 / math.sqrt(len(z))
        assert z.std() == pytest.approx(1.0, abs=0.15)


def latent(n: int) -> None:
    """H feeds two nodes, each with noise of its own."""
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        H, U_D, U_M = normal("H"), normal("U_D", 0.0, 0.5), normal("U_M", 0.0, 2.0)
        pyro.deterministic("D", A + (1 + A) * H + U_D)
        pyro.deterministic("M", 2 * A + 3 * H + U_M)


LATENT = CausalGraph("A -> D -> Y; A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
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


@undeclared
def test_solving_at_drawn_slopes_takes_their_size_into_account() -> None:
    """D = A + H U has the density p_U(d / h) / h at a drawn h; Q is drawn from a distribution that reads H too."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            H = pyro.sample("H", dist.Uniform(0.5, 3.0))
            pyro.sample("Q", dist.Normal(H, 1.0))
            pyro.deterministic("D", A + H * normal("U"))

    graph = CausalGraph("A -> D -> Y; Q -> Y", sensitive="A", outcome="Y")
    rows = pd.DataFrame({"A": [0, 1], "Q": [1.0, 2.0], "D": [0.3, 4.0]})
    found = SEM(program, graph.unfair("A -> D -> Y")).counterfactual(rows, draws=8000, random_state=0)
    h = np.linspace(0.5, 3.0, 20_001)
    for i, row in rows.iterrows():
        u = (row.D - row.A) / h
        weight = np.exp(-(u**2) / 2 - (row.Q - h) ** 2 / 2) / h
        mean = (weight * h).sum() / weight.sum()
        assert found.noise.loc[i, ("H", "mean")] == pytest.approx(mean, abs=0.02)
        assert found.noise.loc[i, ("U", "mean")] == pytest.approx((weight * u).sum() / weight.sum(), abs=0.02)
    # The sum of the noise is determined, and with it the other world.
    np.testing.assert_allclose(found.switched["D"], [1.3, 4.0])


@pytest.mark.slow
def test_svi_with_independent_noise_and_its_effective_size() -> None:
    rows = WOMAN_AND_MAN
    found = SEM(paper, UNFAIR).counterfactual(rows, method="svi", tolerance=0.1, draws=300, random_state=0)
    assert not found.exact
    np.testing.assert_allclose(found.noise["U_D", "mean"], 1.5, atol=0.05)
    np.testing.assert_allclose(found.noise["U_M", "mean"], 0.7, atol=0.05)
    np.testing.assert_allclose(found.switched["D"], 4.0, atol=0.2)
    reported = found.diagnostics[found.diagnostics["method"] == "svi (normal)"]
    assert (reported["ess"] > 200).all()
    assert reported["r_hat"].isna().all()


def test_a_kernel_approaches_the_declared_inverse() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("D", torch.exp(0.5 * A + normal("U_D", 0.0, 0.5)))

    sem = SEM(program, CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y"))
    rows = pd.DataFrame({"A": [0, 1], "D": [1.0, 3.0]})
    exact = sem.counterfactual(rows, inverses={"D": lambda v: torch.log(v["D"]) - 0.5 * v["A"]})
    assert exact.exact
    np.testing.assert_allclose(exact.noise["U_D", "mean"], [0.0, math.log(3.0) - 0.5], atol=1e-12)
    assert (exact.diagnostics.query("node == 'D'")["method"] == "declared inverse").all()
    near = sem.counterfactual(rows, tolerance=0.02, random_state=0)
    np.testing.assert_allclose(near.switched["D"], exact.switched["D"], atol=0.02)
    assert (near.diagnostics.query("node == 'D'")["ess"] > 100).all()
    with pytest.raises(DataError, match=r"Row 0: D = 1 given A=0: the node 'D' is continuous.*pass tolerance="):
        sem.counterfactual(rows)


def test_values_cut_off_at_zero_are_matched_exactly() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("D", torch.relu(A + normal("U_D")))

    sem = SEM(program, CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y"))
    found = sem.counterfactual(pd.DataFrame({"A": [0, 0], "D": [0.0, 0.0]}), random_state=0)
    # U_D given U_D < 0 is half normal; D(1) = relu(1 + U_D).
    np.testing.assert_allclose(found.noise["U_D", "mean"], -math.sqrt(2 / math.pi), atol=0.08)
    with pytest.raises(DataError, match="continuous"):
        sem.counterfactual(pd.DataFrame({"A": [0, 0], "D": [0.0, 0.7]}), random_state=0)


def test_latent_step_without_explicit_noise() -> None:
    """An unobserved random mediator is weighed by the nodes that read it, and answers in the other world."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            L = pyro.sample("L", dist.Normal(2 * A, 1.0))
            pyro.deterministic("D", L + normal("U_D", 0.0, 0.5))

    graph = CausalGraph("A -> L -> D -> Y", sensitive="A", outcome="Y", latent=["L"])
    found = SEM(program, graph.unfair("A -> L -> D -> Y")).counterfactual(
        pd.DataFrame({"A": [0, 1], "D": [0.4, 1.0]}), draws=4000, random_state=0
    )
    # D = 2A + (shift of L) + U_D: only the sum of the noises matters, and it is determined.
    np.testing.assert_allclose(found.switched["D"], [2.4, 1.0], atol=1e-3)
    np.testing.assert_allclose(found.baseline["D"], [0.4, -1.0], atol=1e-3)
    np.testing.assert_allclose(found.noise["U_D", "mean"], np.array([0.4, -1.0]) * 0.25 / 1.25, atol=0.03)


@undeclared
def test_each_unit_is_solved_for_the_noise_that_bears_on_it() -> None:
    """Noise of its own for each group, one of it switched off at random, and noise in common."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            H = pyro.sample("H", dist.Normal(torch.zeros(1), 1.0).to_event(1)).squeeze(-1)
            U_0, U_1 = normal("U_0"), normal("U_1", 0.0, 2.0)
            B = pyro.sample("B", dist.Bernoulli(0.5))
            pyro.deterministic("D", H + torch.where(A > 0, U_1, B * U_0))
            pyro.deterministic("M", B * normal("U_M"))

    graph = CausalGraph("A -> D -> Y; M -> Y", sensitive="A", outcome="Y")
    rows = pd.DataFrame({"A": [0, 1, 0], "D": [1.0, 1.0, 1.0], "M": [0.5, -0.5, 0.0]})
    with pytest.raises(DataError, match="'M' is continuous"):
        SEM(program, graph.unfair()).counterfactual(rows, method="importance")
    found = SEM(program, graph.unfair("A -> D -> Y")).counterfactual(rows[:2], draws=4000, random_state=0)
    reported = found.noise.xs("mean", axis=1, level="of")
    np.testing.assert_allclose(reported["B"], 1.0)
    np.testing.assert_allclose(reported["H[0]"], [1 / 2, 1 / 5], atol=0.04)
    np.testing.assert_allclose(reported["U_0"], [1 / 2, 0.0], atol=0.06)
    np.testing.assert_allclose(reported["U_1"], [0.0, 4 / 5], atol=0.08)
    np.testing.assert_allclose(reported["U_M"], [0.5, -0.5])
    np.testing.assert_allclose(found.switched["D"], [0.5, 1.0], atol=0.2)
    # M = 0 has a probability if B = 0, and only a density if B = 1.
    graph = CausalGraph("A -> D -> Y; M -> Y", sensitive="A", outcome="Y", latent=["D"])
    zero = abduct(SEM(program, graph.unfair()).equations(), rows[["A", "M"]][2:], random_state=0)
    assert zero.noise["B", "mean"].item() == 0.0


def test_noise_behind_a_latent_step_matters_in_the_other_world() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            L = pyro.sample("L", dist.Normal(A * normal("S"), 1.0))
            pyro.deterministic("D", L + normal("U_D", 0.0, 0.5))

    graph = CausalGraph("A -> L -> D -> Y", sensitive="A", outcome="Y", latent=["L"])
    found = SEM(program, graph.unfair("A -> L -> D -> Y")).counterfactual(
        pd.DataFrame({"A": [0, 1], "D": [0.4, 1.0]}), draws=4000, random_state=0
    )
    # A woman's row does not bear on S; a man's D is the sum of S and noise of variance 1.25.
    np.testing.assert_allclose(found.switched["D"], [0.4, 1.0], atol=0.08)
    np.testing.assert_allclose(found.worlds[1].sd["D"], [1.0, 0.0], atol=0.06)
    np.testing.assert_allclose(found.baseline["D"], [0.4, 1.0 - 1.0 / 2.25], atol=0.05)
    np.testing.assert_allclose(found.worlds[0].sd["D"], [0.0, math.sqrt(1.25 / 2.25)], atol=0.05)


def test_noise_of_noise_is_left_alone_once_it_does_not_matter() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U_D = pyro.sample("U_D", dist.Normal(normal("scale").exp(), 1.0))
            pyro.deterministic("D", A + U_D)

    unfair = CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y")
    found = SEM(program, unfair).counterfactual(pd.DataFrame({"A": [0], "D": [0.5]}))
    assert found.exact
    assert found.switched["D"].tolist() == [1.5]
    assert list(found.noise.columns.get_level_values("noise").unique()) == ["U_D"]


def test_a_latent_mediator_that_is_computed() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            L = pyro.deterministic("L", 2 * A + normal("U_L"))
            pyro.deterministic("D", L + A)
            pyro.deterministic("M", 3 * L + normal("U_M"))

    graph = CausalGraph("A -> L; {A L} -> D; L -> M; {A D M} -> Y", sensitive="A", outcome="Y", latent=["L"])
    rows = pd.DataFrame({"A": [0, 1], "D": [0.5, 3.5], "M": [1.0, 8.0]})
    found = SEM(program, graph.unfair("A -> L -> M -> Y")).counterfactual(rows)
    assert found.exact
    np.testing.assert_allclose(found.noise["U_L", "mean"], 0.5)
    np.testing.assert_allclose(found.baseline[["D", "M"]], [[0.5, 1.0], [0.5, 2.0]], atol=1e-9)
    np.testing.assert_allclose(found.switched[["D", "M"]], [[0.5, 7.0], [0.5, 8.0]], atol=1e-9)


def test_noise_that_is_a_vector() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Normal(torch.zeros(2), 1.0).to_event(1))
            pyro.deterministic("D", torch.floor(U.sum(-1) + A))

    unfair = CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y")
    found = SEM(program, unfair).counterfactual(pd.DataFrame({"A": [0, 1], "D": [0.0, 2.0]}), random_state=0)
    assert found.switched["D"].tolist() == [1.0, 2.0]
    crowd = draw(program, 500_000)
    for i, (a, d) in enumerate([(0, 0.0), (1, 2.0)]):
        brute = crowd["U"][(crowd["A"] == a) & (crowd["D"] == d)]
        for k in (0, 1):
            assert found.noise.loc[i, (f"U[{k}]", "mean")] == pytest.approx(brute[:, k].mean().item(), abs=0.1)
    inverse = {"D": lambda v: torch.stack([v["D"] - v["A"], torch.zeros_like(v["D"])], -1)}
    declared = SEM(program, unfair).counterfactual(pd.DataFrame({"A": [0, 1], "D": [0.0, 2.0]}), inverses=inverse)
    assert declared.exact
    assert declared.noise["U[0]", "mean"].tolist() == [0.0, 1.0]


def test_nodes_that_react_to_an_intervention_above_the_sensitive_attribute() -> None:
    """Had Q been otherwise, A would be what its own noise makes it: that noise is inferred too."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            A = pyro.deterministic("A", (Q + normal("U_A") > 0).to(Q.dtype))
            pyro.deterministic("D", 2 * A + normal("U_D"))

    sem = SEM(program, CausalGraph("Q -> A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y"))
    unit = pd.DataFrame({"Q": [0.0], "A": [1], "D": [2.5]})
    both = sem.counterfactual(unit)
    assert both.exact
    assert list(both.noise.columns.get_level_values("noise").unique()) == ["U_D"]
    world = abduct(sem.equations(), unit, draws=4000, random_state=0).do({"Q": -1.0})
    # U_A given U_A > 0 exceeds 1 with probability 2 * (1 - Phi(1)).
    still = math.erfc(1.0 / math.sqrt(2.0))
    assert world.rows["A"].item() == pytest.approx(still, abs=0.03)
    assert world.rows["D"].item() == pytest.approx(0.5 + 2 * still, abs=0.06)
    assert world.sd["D"].item() == pytest.approx(2 * math.sqrt(still * (1 - still)), abs=0.06)


def test_a_program_with_parameters_in_the_store() -> None:
    def program(n: int) -> None:
        shift = pyro.param("shift", torch.tensor(1.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("D", shift * A + normal("U_D"))

    pyro.clear_param_store()
    pyro.param("shift", torch.tensor(2.0))
    pyro.param("AutoNormal.locs.U_D", torch.ones(3))
    unfair = CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y")
    rows = pd.DataFrame({"A": [0, 1], "D": [0.5, 2.5]})
    assert SEM(program, unfair).counterfactual(rows).switched["D"].tolist() == [2.5, 2.5]
    found = SEM(program, unfair).counterfactual(rows, method="svi", tolerance=0.3, draws=200, random_state=0)
    np.testing.assert_allclose(found.noise["U_D", "mean"], 0.5 / 1.09, atol=0.1)
    assert pyro.param("shift").item() == 2.0
    assert sorted(pyro.get_param_store()) == ["AutoNormal.locs.U_D", "shift"]
    pyro.clear_param_store()


def test_the_outcome_is_evidence_if_it_is_given() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            H = normal("H")
            pyro.deterministic("D", torch.floor(H + A))
            pyro.sample("Y", dist.Bernoulli(logits=3.0 * H))

    graph = CausalGraph("A -> D -> Y; A -> Y", sensitive="A", outcome="Y", positive="yes")
    sem = SEM(program, graph.unfair("A -> D -> Y"))
    rows = pd.DataFrame({"A": [0, 0], "D": [0.0, 0.0]})
    without = sem.counterfactual(rows, random_state=0)
    given = sem.counterfactual(rows.assign(Y=["no", "yes"]), draws=5000, random_state=0)
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


@pytest.mark.usefixtures("hurried")
def test_same_seed_same_draws_and_nothing_is_left_behind() -> None:
    units = table(draw(floored, 20), "A Q D M")
    sem = SEM(floored, FLOORED.unfair("A -> D -> Y"))
    sem.equations()
    pyro.clear_param_store()
    pyro.param("kept", torch.ones(2))
    torch.manual_seed(3)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    one = sem.counterfactual(units, draws=50, random_state=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        for method in METHODS[3:]:
            SEM(latent, LATENT.unfair("A -> Y")).counterfactual(
                LATENT_ROWS, method=method, tolerance=1.0, draws=10, random_state=0
            )
    two = sem.counterfactual(units, draws=50, random_state=4)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()  # noqa: NPY002
    assert torch.get_default_dtype() == torch.float32
    assert list(pyro.get_param_store()) == ["kept"]
    pyro.clear_param_store()
    pd.testing.assert_frame_equal(one.switched, two.switched)
    pd.testing.assert_frame_equal(one.noise, two.noise)


def test_row_and_column_order_do_not_matter() -> None:
    sem = SEM(paper, UNFAIR)
    units = table(draw(paper, 30), "A Q D M")
    shuffled = units[["M", "D", "Q", "A"]].iloc[::-1]
    one, two = sem.counterfactual(units).switched, sem.counterfactual(shuffled).switched
    pd.testing.assert_frame_equal(one, two.loc[one.index, one.columns])


def test_parameters_share_the_draws() -> None:
    def program(n: int) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("D", slope * A + normal("U_D"))

    unfair = CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y")
    slopes = np.array([1.0, 2.0, 3.0, 4.0])
    found = SEM(program, unfair, posterior={"slope": slopes}).counterfactual(
        pd.DataFrame({"A": [0, 1], "D": [0.5, 1.5]}), draws=4
    )
    assert not found.exact
    assert found.draws is not None
    np.testing.assert_allclose(np.sort(found.draws[1]["D"][0]), 0.5 + slopes)
    np.testing.assert_allclose(found.draws[1]["D"][1], 1.5)
    np.testing.assert_allclose(found.baseline["D"], [0.5, 1.5 - 2.5])
    np.testing.assert_allclose(found.noise["U_D", "sd"], [0.0, slopes.std()], atol=1e-12)


def test_labels_of_the_sensitive_attribute() -> None:
    graph = CausalGraph(
        "{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y", baseline="Female", contrast="Male"
    )
    rows = WOMAN_AND_MAN.assign(A=["Female", "Male"])
    found = SEM(paper, graph.unfair("A -> Y", "A -> D -> Y")).counterfactual(rows)
    assert found.baseline["A"].tolist() == ["Female"] * 2
    assert found.switched["A"].tolist() == ["Male"] * 2
    np.testing.assert_allclose(found.switched["D"], 4.0)


def test_a_float32_program_keeps_its_floats() -> None:
    layer = torch.nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(0.0)

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("D", layer(A.unsqueeze(-1)).squeeze(-1) + normal("U_D"))

    sem = SEM(program, CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y"))
    found = sem.counterfactual(pd.DataFrame({"A": [0, 1], "D": [0.1, 2.3]}))
    assert found.exact
    np.testing.assert_allclose(found.switched["D"], [2.1, 2.3], atol=1e-6)


@pytest.mark.parametrize("posterior", [None, {"slope": [1.0, 2.0]}])
def test_the_coupling_is_told_where_it_plays_a_part(posterior: Any) -> None:
    def program(n: int) -> None:
        slope = 1.0 if posterior is None else pyro.sample("slope", dist.Normal(0.0, 1.0))
        implicit(n)
        with pyro.plate("more", n):
            pyro.deterministic("W", slope * torch.ones(n))

    rows = table(draw(implicit, 5), "Q A D C M")
    sem = SEM(program, IMPLICIT.unfair("A -> D -> Y"), coupling="antithetic", posterior=posterior)
    found = sem.counterfactual(rows, draws=20, random_state=0)
    assert (found.coupling, found.coupled) == ("antithetic", ("D", "C", "M"))
    assert "across the worlds: antithetic noise of D, C, M" in str(found)
    plain = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN)
    assert plain.coupled == ()
    assert "across the worlds" not in str(plain)


def test_an_abduction_is_readable() -> None:
    text = str(abduct(paper, WOMAN_AND_MAN))
    assert text.startswith("noise of 2 units (methods: exact)\ndetermined by their rows for all units")
    assert "U_D" in text
    rows = table(draw(floored, 9), "A Q D M")
    text = repr(abduct(floored, rows, draws=30, random_state=0))
    assert "drawn for 9 of 9 units (100%), 30 draws each\nleast effective sample size " in text
    assert "... (9 rows)" in text
    assert ".do({'A': ...})" in text
    assert "no explicit noise that bears" in str(abduct(implicit, table(draw(implicit, 2), "Q A D C M")))


@pytest.mark.usefixtures("hurried")
def test_units_of_an_index_of_several_levels() -> None:
    index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])
    found = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN.set_index(index))
    assert found.switched.index.equals(index)
    assert found.to_inference_data()["posterior"]["U_D"]["unit"].to_numpy().tolist() == ["x, 1", "y, 2"]


def test_rows_in_reverse_order() -> None:
    found = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN.iloc[::-1])
    assert list(found.switched.index) == ["man", "woman"]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "settings", "match"),
    [
        (WOMAN_AND_MAN.drop(columns="D"), {}, "lacks the column 'D'"),
        (WOMAN_AND_MAN.assign(D=[3.0, np.nan]), {}, "missing value"),
        (WOMAN_AND_MAN.assign(A=[0, 2]), {}, "'A' holds 2 besides"),
        (WOMAN_AND_MAN.assign(D=["a", "b"]), {}, "'D' holds categories"),
        (WOMAN_AND_MAN, {"method": "magic"}, "method='magic' is not known; it is 'auto', 'exact'"),
        (WOMAN_AND_MAN, {"method": "nuts"}, "method='nuts' needs tolerance="),
        (WOMAN_AND_MAN, {"method": "svi"}, "method='svi' needs tolerance="),
        (WOMAN_AND_MAN, {"method": "nuts", "tolerance": {"D": 0.1}}, "no width for the node 'M'"),
        (WOMAN_AND_MAN, {"method": "svi", "tolerance": 0.1, "guide": "X"}, "guide='X' is not known"),
        (WOMAN_AND_MAN, {"tolerance": -1.0}, r"tolerance=-1\.0 must be a number above 0\."),
        (WOMAN_AND_MAN, {"tolerance": "a"}, r"tolerance='a' must be a number above 0\."),
        (WOMAN_AND_MAN, {"tolerance": {"X": 0.1}}, "tolerance names 'X', which is no observed node. They are: A, Q, D"),
        (WOMAN_AND_MAN, {"draws": 0}, "draws=0 must be an integer of at least 1"),
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
        (WOMAN_AND_MAN, {"do": ["Q"]}, r"do=\['Q'\] must be a dictionary"),
        (WOMAN_AND_MAN, {"do": {"M": [1.0, 2.0, 3.0]}}, "must be a number, or 2 of them"),
    ],
)
def test_refused(rows: pd.DataFrame, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(DataError, match=match):
        SEM(paper, UNFAIR).counterfactual(rows, **settings)


def _bounded(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        Q = pyro.sample("Q", dist.Poisson(3.0))
        U_D = pyro.sample("U_D", dist.Uniform(0.0, 1.0))
        D = pyro.deterministic("D", A + U_D * Q)
        pyro.deterministic("M", D + 2 * Q)


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
    graph = CausalGraph("{A Q} -> D; {Q D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    with pytest.raises(DataError, match=match):
        SEM(_bounded, graph.unfair("A -> Y")).counterfactual(rows)


def test_rounding_does_not_make_a_row_impossible() -> None:
    rows = pd.DataFrame({"A": [0, 0], "Q": [2.0, 2.0], "D": [np.float32(2.0000002), 0.0], "M": [6.0, 4.0]})
    graph = CausalGraph("{A Q} -> D; {Q D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    found = SEM(_bounded, graph.unfair("A -> Y")).counterfactual(rows)
    np.testing.assert_allclose(found.noise["U_D", "mean"], [1.0, 0.0], atol=1e-6)

    def tenths(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("D", A + 0.1 * pyro.sample("U_D", dist.Poisson(3.0)))

    counts = SEM(tenths, CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y"))
    given = pd.DataFrame({"A": [0, 1, 1], "D": [0.3, 1.3, 1.7]})
    assert counts.counterfactual(given).noise["U_D", "mean"].tolist() == [3.0, 3.0, 7.0]


def test_floored_rows_that_no_noise_gives() -> None:
    rows = pd.DataFrame({"A": [0, 0], "Q": [1.0, 1.0], "D": [2.0, 2.5], "M": [1.0, 1.0]})
    with pytest.raises(DataError, match=r"Row 1: D = 2.5 given .* is impossible.*none of 1,0.* draws of the noise U_D"):
        SEM(floored, FLOORED.unfair("A -> Y")).counterfactual(rows, draws=100)


def test_exact_refuses_a_floor() -> None:
    rows = pd.DataFrame({"A": [0], "Q": [1.0], "D": [2.0], "M": [1.0]})
    with pytest.raises(DataError, match=r"method='exact' cannot solve the equation of 'Q' for its noise \(U_Q\)"):
        SEM(floored, FLOORED.unfair("A -> Y")).counterfactual(rows, method="exact")


def test_gradients_refuse_discrete_noise() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("D", A + pyro.sample("U_D", dist.Poisson(1.0)))

    sem = SEM(program, CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y"))
    rows = pd.DataFrame({"A": [0, 1], "D": [2.0, 1.0]})
    with pytest.raises(DataError, match="The noise 'U_D' is discrete"):
        sem.counterfactual(rows, method="nuts", tolerance=0.1)
    assert sem.counterfactual(rows, method="exact").switched["D"].tolist() == [3.0, 1.0]
    with pytest.raises(DataError, match=r"U_D would be 0.5, outside its support"):
        sem.counterfactual(rows.assign(D=[0.5, 1.0]))


def test_a_family_without_a_distribution_function_is_refused() -> None:
    with pytest.raises(CouplingError, match="no usable distribution function"):
        noise_of("V", dist.VonMises(torch.zeros(1), 1.0), torch.zeros(1))


def test_columns_that_are_no_sites_are_named() -> None:
    with pytest.raises(DataError, match="No column of the data is a site of the program"):
        abduct(pearl, pd.DataFrame({"Z": [1.0]}))
    with pytest.warns(PyrofairWarning, match="no sites are ignored: Z"):
        abduct(pearl, pd.DataFrame({"X": [0.5], "H": [1.0], "Y": [1.5], "Z": [1.0]}))


def test_scores_refuse_a_wrong_threshold() -> None:
    found = SEM(paper, UNFAIR).counterfactual(WOMAN_AND_MAN)
    with pytest.raises(DataError, match=r"threshold=1.5 must be (a number of )?at least 0 and below 1"):
        found.scores(Logistic(), threshold=1.5)
