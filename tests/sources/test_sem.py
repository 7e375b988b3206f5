"""An SEM as a source of potential outcomes: what it accepts, returns and refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch

from pyrofair.effects.functionals import disagreement, effect_gap, piu_upper
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.programs.couplings import CouplingError
from pyrofair.programs.interventions import do
from pyrofair.sources.sem import SEM

GRAPH = CausalGraph("Q -> A; {A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")


def hiring(n: int) -> None:
    """The discrete SEM of case C1."""
    with pyro.plate("units", n):
        Q = pyro.sample("Q", dist.Bernoulli(0.5))
        A = pyro.sample("A", dist.Bernoulli(0.4 + 0.2 * Q))
        D = pyro.sample("D", dist.Bernoulli(0.2 + 0.4 * A + 0.2 * Q))
        M = pyro.sample("M", dist.Bernoulli(0.3 + 0.4 * A + 0.1 * Q))
        pyro.sample("Y", dist.Bernoulli(score(A, Q, D, M)))


def score(A: Any, Q: Any, D: Any, M: Any) -> Any:
    return 0.1 + 0.2 * A + 0.1 * Q + 0.25 * D + 0.3 * M


def scores(rows: pd.DataFrame) -> torch.Tensor:
    return torch.tensor(score(*(rows[column].to_numpy(dtype=float) for column in ("A", "Q", "D", "M"))))


def additive(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
        D = pyro.deterministic("D", A + Q + pyro.sample("U_D", dist.Normal(0.0, 1.0)))
        M = pyro.deterministic("M", 2 * A - Q + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
        pyro.sample("Y", dist.Bernoulli(logits=A + D + M))


# -- what it returns --------------------------------------------------------------------------------------------------


def test_worlds_are_what_the_classifier_reads() -> None:
    first, second = SEM(additive, UNFAIR).worlds(500, random_state=0)
    for world, a in ((first, 0), (second, 1)):
        assert list(world.rows) == GRAPH.input_columns == ["Q", "A", "D", "M"]
        assert (world.rows["A"] == a).all()
        assert world.weight.sum() == pytest.approx(1.0)
        np.testing.assert_array_equal(world.unit, np.arange(500))
        assert world.origin is None
    np.testing.assert_allclose(second.rows["D"] - first.rows["D"], 1.0, atol=1e-5)
    pd.testing.assert_frame_equal(first.rows[["Q", "M"]], second.rows[["Q", "M"]])


def test_tables_do_not_write_into_each_other() -> None:
    first, second = SEM(additive, UNFAIR).worlds(5, random_state=0)
    with pytest.raises(ValueError, match="read-only"):
        first.rows.loc[0, "Q"] = 99.0
    assert second.rows.loc[0, "Q"] != 99.0
    first_nodes, second_nodes = SEM(additive, UNFAIR).nodes(5, random_state=0)
    first_nodes.loc[0, ["Q", "A"]] = 99.0
    assert first_nodes.loc[0, "Q"] == 99.0
    assert second_nodes.loc[0, "Q"] != 99.0


def test_a_classifier_that_reads_the_sensitive_attribute_alone() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.sample("V", dist.Normal(torch.zeros(3), 1.0).to_event(1))
            pyro.sample("Y", dist.Bernoulli(A))

    graph = CausalGraph("A -> Y; V -> W", sensitive="A", outcome="Y", latent=["V"])
    first, second = SEM(program, graph.unfair("A -> Y")).worlds(7, random_state=0)
    assert first.rows["A"].tolist() == [0] * 7
    assert second.rows["A"].tolist() == [1] * 7
    assert list(SEM(program, graph.unfair("A -> Y")).nodes(7, random_state=0)[0]) == ["A", "Y"]


def test_nodes_are_the_same_units_as_worlds() -> None:
    sem = SEM(additive, UNFAIR)
    nodes, worlds = sem.nodes(50, random_state=3), sem.worlds(50, random_state=3)
    for table, world in zip(nodes, worlds, strict=True):
        assert list(table) == ["A", "Q", "D", "M", "Y"]
        pd.testing.assert_frame_equal(table[list(world.rows)], world.rows)


def test_seeds_and_sizes() -> None:
    sem = SEM(additive, UNFAIR, random_state=5)
    one = sem.worlds(30)[1].rows
    pd.testing.assert_frame_equal(one, sem.worlds(30)[1].rows)
    pd.testing.assert_frame_equal(one, SEM(additive, UNFAIR).worlds(30, random_state=5)[1].rows)
    assert not one.equals(sem.worlds(30, random_state=6)[1].rows)
    assert not SEM(additive, UNFAIR).worlds(30)[1].rows.equals(SEM(additive, UNFAIR).worlds(30)[1].rows)
    assert len(sem.worlds(df=one, sample_weight=np.ones(30))[0].rows) == 30
    assert len(sem.worlds()[0].rows) == 10_000


def test_labels_of_any_kind_and_a_fair_direct_path() -> None:
    graph = CausalGraph(
        "{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y", baseline="woman", contrast="man"
    )
    first, second = SEM(additive, graph.unfair("A -> Y")).worlds(5, random_state=0)
    assert first.rows["A"].tolist() == ["woman"] * 5
    assert second.rows["A"].tolist() == ["man"] * 5
    first, second = SEM(additive, graph.unfair("A -> M -> Y")).nodes(5, random_state=0)
    assert second["A"].tolist() == ["woman"] * 5
    blind = CausalGraph("{A Q} -> D; {A Q} -> M; {Q D M} -> Y", sensitive="A", outcome="Y")
    first, _ = SEM(do(additive, {"Y": 1}), blind.unfair("A -> D -> Y")).worlds(5, random_state=0)
    assert list(first.rows) == ["Q", "D", "M"]


@pytest.mark.parametrize("levels", [(0, 1), (1, 0), (1, 2), (-0.5, 0.5), (True, False)])
def test_labels_that_are_numbers_are_what_the_site_holds(levels: tuple[Any, Any]) -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5)) * (levels[1] - levels[0]) + levels[0]
            A = pyro.deterministic("A2", A)
            D = pyro.deterministic("D", 10 * A + pyro.sample("U", dist.Normal(0.0, 1.0)))
            pyro.deterministic("Y", A + D)

    graph = CausalGraph(
        "A -> D; {A D} -> Y", sensitive="A", outcome="Y", columns={"A": "A2"}, baseline=levels[0], contrast=levels[1]
    )
    first, second = SEM(program, graph.unfair("A -> D -> Y", "A -> Y")).nodes(5, random_state=0)
    assert first["A2"].tolist() == [levels[0]] * 5
    assert second["A2"].tolist() == [levels[1]] * 5
    np.testing.assert_allclose(second["D"] - first["D"], 10 * (levels[1] - levels[0]), rtol=1e-5)
    turned = CausalGraph(
        "A -> D; {A D} -> Y", sensitive="A", outcome="Y", columns={"A": "A2"}, baseline=levels[1], contrast=levels[0]
    )
    other, _ = SEM(program, turned.unfair("A -> D -> Y", "A -> Y")).nodes(5, random_state=0)
    np.testing.assert_allclose(other["D"], second["D"], rtol=1e-5)


def test_columns_with_names_of_their_own_and_constants() -> None:
    graph = CausalGraph(
        "{A C} -> S; {A C S} -> Y", sensitive="A", outcome="Y", columns={"S": ["s1", "s2"], "C": "city", "A": "sex"}
    )

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            city = pyro.deterministic("city", torch.tensor(3.0))
            s1 = pyro.deterministic("s1", A + city + pyro.sample("u", dist.Normal(0.0, 1.0)))
            pyro.deterministic("s2", 2 * s1)

    first, second = SEM(program, graph.unfair("A -> S -> Y")).worlds(4, random_state=0)
    assert list(first.rows) == ["sex", "city", "s1", "s2"]
    assert first.rows["city"].tolist() == [3.0] * 4
    np.testing.assert_allclose(second.rows["s2"] - first.rows["s2"], 2.0, atol=1e-5)


def test_parameters_are_drawn_once_or_picked_from_a_posterior() -> None:
    def program(n: int) -> None:
        slope = pyro.sample("slope", dist.Normal(100.0, 1.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            M = pyro.deterministic("M", slope * A + pyro.sample("U", dist.Normal(0.0, 1.0)))
            pyro.deterministic("Y", M)

    unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")

    def slope(sem: SEM, seed: int) -> float:
        first, second = sem.nodes(5, random_state=seed)
        gap = (second["M"] - first["M"]).to_numpy()
        assert np.ptp(gap) < 1e-3
        return round(float(gap[0]), 2)

    with pytest.warns(PyrofairWarning, match="parameters slope: one draw of their prior is used"):
        assert slope(SEM(program, unfair), 0) == pytest.approx(100, abs=5)
    fitted = SEM(program, unfair, posterior={"slope": [1.0, 2.0, 3.0]})
    assert {slope(fitted, seed) for seed in range(20)} == {1.0, 2.0, 3.0}


# -- programs of every form -------------------------------------------------------------------------------------------


def test_a_program_in_numpy_gives_the_same_numbers() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            u = pyro.sample("U_D", dist.Normal(0.0, 1.0))
            D = pyro.deterministic("D", torch.stack([A.reshape(n), Q, u], -1).sum(-1))
            M = pyro.deterministic(
                "M", torch.as_tensor([2 * a for a in A.tolist()]) - Q + pyro.sample("U_M", dist.Normal(0.0, 1.0))
            )
            pyro.sample("Y", dist.Bernoulli(logits=A + D + M))

    for settings in ({}, {"unit": "shared", "draws": 3}):
        with pytest.warns(PyrofairWarning, match="'M' reads 'A' in a way that torch does not show"):
            odd = SEM(program, UNFAIR, **settings).worlds(40, random_state=1)
        for ours, plain in zip(odd, SEM(additive, UNFAIR, **settings).worlds(40, random_state=1), strict=True):
            pd.testing.assert_frame_equal(ours.rows, plain.rows, rtol=1e-5)


def test_an_intervened_program_is_a_program() -> None:
    first, second = SEM(do(additive, {"Q": 2}), UNFAIR).nodes(20, random_state=0)
    assert (first["Q"] == 2).all()
    np.testing.assert_allclose(second["D"] - first["D"], 1.0, atol=1e-5)
    held, _ = SEM(do(additive, {"D": 7}), UNFAIR).nodes(20, random_state=0)
    assert (held["D"] == 7).all()


def test_a_family_without_a_quantile_function_is_refused_by_name_if_it_is_asked_for() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            M = pyro.sample("M", dist.Poisson(1 + A))
            pyro.sample("Y", dist.VonMises(M, 1.0))

    unfair = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    assert len(SEM(program, unfair).worlds(10, random_state=0)[0].rows) == 10
    with pytest.raises(CouplingError, match="'Y' is drawn from VonMises"):
        SEM(program, unfair).nodes(10, random_state=0)
    mediator = CausalGraph("A -> M -> Y -> Z", sensitive="A", outcome="Z").unfair("A -> M -> Y -> Z")
    with pytest.raises(CouplingError, match="'Y' is drawn from VonMises, which has no usable quantile function"):
        SEM(program, mediator).worlds(10)


# -- programs against graphs ------------------------------------------------------------------------------------------


def test_a_parent_that_the_graph_lacks_is_refused_with_its_edge() -> None:
    graph = CausalGraph("A -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    with pytest.raises(
        GraphError, match=r"'D' reads 'Q', but the graph has no edge Q -> D.*The program's edges: .*A -> D"
    ):
        SEM(additive, graph.unfair("A -> Y")).nodes(5)


def test_a_parent_that_is_read_outside_torch_is_refused_too() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            D = pyro.deterministic("D", A + torch.as_tensor(Q.numpy()))
            pyro.deterministic("Y", A + D)

    graph = CausalGraph("A -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
    with pytest.warns(PyrofairWarning), pytest.raises(GraphError, match="no edge Q -> D"):
        SEM(program, graph.unfair("A -> Y")).nodes(5)


def test_a_declared_edge_that_the_program_does_not_use_is_fine() -> None:
    graph = CausalGraph("Q -> A; {A Q} -> D; {A Q D} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    unused = SEM(additive, graph.unfair("A -> D -> Y", "A -> D -> M -> Y")).nodes(20, random_state=0)
    plain = SEM(additive, GRAPH.unfair("A -> D -> Y")).nodes(20, random_state=0)
    for one, other in zip(unused, plain, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_sites_that_a_graph_needs_and_those_it_does_not() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("M", A + 1)

    free = CausalGraph("A -> M -> Y; H -> M; H -> Y; A -> W", sensitive="A", outcome="Y", latent=["H"])
    assert list(SEM(program, free.unfair("A -> M -> Y")).nodes(3)[0]) == ["A", "M"]
    with pytest.raises(GraphError, match=r"no per-unit site 'D'\. It has: A, M"):
        SEM(program, CausalGraph("A -> D -> Y", sensitive="A", outcome="Y").unfair("A -> D -> Y")).nodes(3)
    with pytest.raises(GraphError, match="no per-unit site 'sex'"):
        SEM(program, CausalGraph("sex -> M -> Y", sensitive="sex", outcome="Y").unfair("sex -> M -> Y")).nodes(3)


def test_given_data_and_vectors_are_refused_as_nodes() -> None:
    def given(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.sample("M", dist.Normal(A, 1.0), obs=torch.zeros(n))

    def vector(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.sample("M", dist.Normal(A.unsqueeze(-1).expand(-1, 3), 1.0).to_event(1))

    unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    with pytest.raises(GraphError, match=r"'M' is given data \(obs=...\)"):
        SEM(given, unfair).nodes(3)
    with pytest.raises(GraphError, match=r"'M' of the node 'M' has the shape \(n, 3\).*columns={'M': \['M\[0\]', 'M"):
        SEM(vector, unfair).nodes(3)


# -- unit="shared" ----------------------------------------------------------------------------------------------------


def share_of_d(a: float, q: float) -> float:
    return 0.2 + 0.4 * a + 0.2 * q


def test_given_the_shared_nodes_mean_scores_are_those_of_enumeration() -> None:
    sem = SEM(hiring, UNFAIR, unit="shared", draws=30)
    n = 4000
    worlds = sem.worlds(n, random_state=0)
    assert UNFAIR.shared == ("Q", "M")
    for a, world in enumerate(worlds):
        np.testing.assert_array_equal(world.unit, np.repeat(np.arange(n), 30))
        assert world.weight.sum() == pytest.approx(1.0)
        by_unit = world.rows[["Q", "M"]].groupby(world.unit)
        assert (by_unit.min() == by_unit.max()).all(axis=None)
        found = scores(world.rows).numpy()
        for (q, _), rows in world.rows.assign(score=found).groupby(["Q", "M"]):
            exact = 0.1 + 0.2 * a + 0.1 * q + 0.25 * share_of_d(a, q) + 0.3 * rows["M"].iloc[0]
            assert rows["score"].mean() == pytest.approx(exact, abs=5 * 0.125 / len(rows) ** 0.5)
    pd.testing.assert_frame_equal(worlds[0].rows[["Q", "M"]], worlds[1].rows[["Q", "M"]])
    # Within a unit the two worlds' draws are independent, or the disagreement would be biased.
    centred = [world.rows["D"] - world.rows["D"].groupby(world.rows["Q"]).transform("mean") for world in worlds]
    assert np.corrcoef(*centred)[0, 1] == pytest.approx(0.0, abs=5 / (30 * n) ** 0.5)
    scored = [world.scored(scores(world.rows)) for world in worlds]
    assert disagreement(*scored).item() == pytest.approx(0.4875, abs=0.006)
    many = SEM(hiring, UNFAIR, unit="shared", draws=400).worlds(1_000, random_state=1)
    scored = [world.scored(scores(world.rows)) for world in many]
    assert effect_gap(*scored).item() == pytest.approx(0.30, abs=0.01)
    assert piu_upper(*scored).item() == pytest.approx(0.70, abs=0.02)
    units = worlds[0].rows.iloc[::30]
    assert units["Q"].mean() == pytest.approx(0.5, abs=0.04)
    assert units["M"][units["Q"] == 1].mean() == pytest.approx(0.4, abs=0.05)


def test_noise_that_nobody_needs_may_not_break_a_program() -> None:
    """Given Q, U_Q is not needed, but at 0 it would have no distribution for D."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            scale = pyro.sample("scale", dist.Uniform(1.0, 2.0))
            if not bool((scale > 0).all()):
                raise ArithmeticError("a scale is positive")
            Q = pyro.deterministic("Q", scale * 2)
            D = pyro.sample("D", dist.Normal(A, 1.0))
            M = pyro.deterministic("M", A + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
            pyro.sample("Y", dist.Bernoulli(logits=A + Q + D + M))

    first, _ = SEM(program, UNFAIR, unit="shared", draws=2).worlds(10, random_state=0)
    assert first.rows["Q"].between(2, 4).all()


def test_all_shared_and_nothing_shared() -> None:
    graph = CausalGraph("A -> D -> Y; A -> Y", sensitive="A", outcome="Y")

    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            D = pyro.sample("D", dist.Bernoulli(0.25 + 0.35 * A))
            pyro.deterministic("Y", A + D)

    first, second = SEM(program, graph.unfair("A -> Y"), unit="shared", draws=2).worlds(3000, random_state=0)
    pd.testing.assert_series_equal(first.rows["D"], second.rows["D"])
    first, second = SEM(program, graph.unfair("A -> D -> Y"), unit="shared", draws=2).worlds(3000, random_state=0)
    assert (first.rows["D"] != second.rows["D"]).mean() == pytest.approx(0.55, abs=0.03)


@pytest.mark.filterwarnings("ignore:The nodes .* in common, which the graph does not hold")
@pytest.mark.parametrize("declared", [False, True])
def test_common_noise_of_a_shared_node_and_another_is_refused(declared: bool) -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            H = pyro.sample("H", dist.Normal(0.0, 1.0))
            A = pyro.sample("A", dist.Bernoulli(0.5))
            Q = pyro.deterministic("Q", H + pyro.sample("U_Q", dist.Normal(0.0, 1.0)))
            D = pyro.deterministic("D", A + Q + H)
            pyro.sample("Y", dist.Bernoulli(logits=A + Q + D))

    edges = "A -> D; Q -> D; {A Q D} -> Y" + ("; H -> Q; H -> D" if declared else "")
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=["H"] if declared else [])
    sem = SEM(program, graph.unfair("A -> D -> Y"), unit="shared")
    with pytest.raises(NotIdentifiedError, match=r"share 'Q', and 'D' .* the noise H in common.*unit='noise'"):
        sem.worlds(10)
    assert len(sem.set_params(unit="noise").worlds(10)[0].rows) == 10
    # Noise that the sensitive attribute has in common with others does no harm: it is set.
    assert len(SEM(program, graph.unfair("A -> Y"), unit="shared", draws=2).worlds(10)[0].rows) == 20


def test_a_shared_node_that_reads_one_drawn_anew_is_refused() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            M = pyro.sample("M", dist.Bernoulli(0.2 + 0.5 * A))
            D = pyro.sample("D", dist.Bernoulli(0.2 + 0.5 * M))
            pyro.deterministic("Y", M + D)

    unfair = CausalGraph("A -> M; M -> D; {M D} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    with pytest.raises(NotIdentifiedError, match=r"share 'D', and 'M' would be drawn anew .* 'D' reads 'M'"):
        SEM(program, unfair, unit="shared").worlds(10)


# -- a scikit-learn estimator and a source ----------------------------------------------------------------------------


def test_changed_settings_are_heeded() -> None:
    sem = SEM(hiring, UNFAIR)
    before = sem.nodes(200, random_state=0)[1]
    sem.set_params(unfair=UNFAIR.complement())
    assert not before.equals(sem.nodes(200, random_state=0)[1])
    sem.set_params(unfair=UNFAIR, coupling="antithetic")
    assert not before.equals(sem.nodes(200, random_state=0)[1])
    sem.set_params(coupling="monotone")
    pd.testing.assert_frame_equal(before, sem.nodes(200, random_state=0)[1])


def test_threads_take_turns() -> None:
    sem = SEM(hiring, UNFAIR, coupling="independent")
    alone = [sem.nodes(50, random_state=seed)[1] for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: sem.nodes(50, random_state=seed)[1], range(12)))
    for one, other in zip(alone, together, strict=True):
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize(
    ("program", "unfair", "settings", "match"),
    [
        (hiring, GRAPH, {}, "unfair=.* must be unfair paths, made by graph.unfair"),
        (None, UNFAIR, {}, "program=None must be a Pyro program of the number of units"),
        (hiring, UNFAIR, {"random_state": "x"}, "random_state='x' must be a non-negative integer"),
        (hiring, UNFAIR, {"unit": "shared", "draws": 1}, "draws=1 must be an integer of at least 2"),
    ],
)
def test_what_a_model_is_not_made_of(program: Any, unfair: Any, settings: dict[str, Any], match: str) -> None:
    sem = SEM(program, unfair, **settings)
    for ask in (sem.equations, sem.worlds, lambda: sem.nodes(5), lambda: sem.truth(None), lambda: sem.fit(None)):
        with pytest.raises((DataError, GraphError), match=match):
            ask()


@pytest.mark.parametrize(
    ("couplings", "match"),
    [
        ([], r"couplings=\[\] must be a list of couplings, one at least. They are: monotone, independent"),
        ("monotone", "couplings='monotone' must be a list of couplings"),
        (3, "couplings=3 must be a list of couplings"),
        (["monotone", "same"], "coupling='same' is not known; it is 'monotone'"),
    ],
)
def test_couplings_to_compare_are_a_list(couplings: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        SEM(additive, UNFAIR).truths(None, couplings=couplings)
