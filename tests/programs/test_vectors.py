"""Vector-valued sites: the same numbers as the same program written with a scalar site for each component."""

import pickle
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyrofair import SEM, CausalGraph, DataError, GraphError, fit_posterior
from pyrofair._random import isolated
from pyrofair.inference.abduction import abduct
from pyrofair.inference.likelihood import PosteriorError, read_likelihood
from pyrofair.inference.posterior import predictive
from pyrofair.programs.couplings import COUPLINGS, CouplingError, Noise
from pyrofair.programs.structural_equations import read_equations
from pyrofair.programs.vectors import component_names, component_of, read_scalar_sites
from pyrofair.programs.worlds import sequential_worlds, vectorised_worlds
from tests.programs.models import Scores, graph, units

K = 3
B = torch.tensor([1.0, -0.5, 2.0])
C = torch.tensor([0.5, 0.25, -0.125])
SIGMA = torch.tensor([[1.0, 0.5, 0.2], [0.5, 2.0, 0.3], [0.2, 0.3, 1.0]])
NAMES = [f"M[{i}]" for i in range(K)]


def score(parts):
    """The same order of operations in every version, so that equal programs give equal bits."""
    return parts[0] * C[0] + parts[1] * C[1] + parts[2] * C[2]


@cache
def scalars(family):
    return units(
        **{NAMES[i]: lambda v, i=i: family(v.A * B[i]) for i in range(K)},
        Y=lambda v: dist.Normal(score([getattr(v, name) for name in NAMES]), 1.0),
    )


def outcome(v):
    return dist.Normal(score(v.M.unbind(-1)), 1.0)


@cache
def event(family):
    return units(M=lambda v: family(v.A[..., None] * B).to_event(1), Y=outcome)


@cache
def items_left(family):
    def program(n):
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            with pyro.plate("items", K, dim=-2):
                M = pyro.sample("M", family(A * B[:, None]))
            pyro.sample("Y", dist.Normal(score(M.unbind(-2)), 1.0))

    return program


@cache
def items_right(family):
    def program(n):
        with pyro.plate("units", n, dim=-2):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            with pyro.plate("items", K, dim=-1):
                M = pyro.sample("M", family(A * B))
            pyro.sample("Y", dist.Normal(score(M.split(1, -1)), 1.0))

    return program


def of_normals(loc):
    return dist.Normal(loc, 1.5)


def poisson(loc):
    return dist.Poisson(torch.exp(0.5 * loc))


def moved(v):
    return v.A[..., None] * B


jointly = units(M=lambda v: dist.MultivariateNormal(moved(v), SIGMA), Y=outcome)


by_hand = units(
    U=lambda v: dist.Normal(torch.zeros(K), 1.0).to_event(1),
    M=lambda v: moved(v) + (torch.linalg.cholesky(SIGMA).to(v.U) @ v.U[..., None])[..., 0],
    Y=outcome,
)
"""The same with the noise of the Cholesky factor as a site."""


one_hot = units(M=lambda v: dist.OneHotCategorical(logits=moved(v)), Y=outcome)


category = units(
    M=lambda v: dist.Categorical(probs=torch.softmax(moved(v), -1)),
    Y=lambda v: dist.Normal(score([(i == v.M).float() for i in range(K)]), 1.0),
)


@cache
def graph_of(program, nodes=("A", "M", "Y")):
    return graph_with(program, nodes)


def graph_with(program, nodes=("A", "M", "Y"), **settings):
    return CausalGraph.from_pyro(program, nodes=nodes, sensitive="A", outcome="Y", **settings)


def worlds_of(program, *, n=400, **settings):
    unfair = graph_of(program).unfair(through=["M"])
    return SEM(program, unfair, **settings).nodes(n, random_state=3)


def equal(one, other):
    return all(a.drop(columns="A").equals(b[a.columns].drop(columns="A")) for a, b in zip(one, other, strict=True))


PROBIT = Scores(lambda X: X[NAMES].to_numpy(dtype=float) @ C.double().numpy() > 0.0)
"""Accepts by the sign of a weighted sum."""


# -- the graph ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program", [event(of_normals), items_left(of_normals), items_right(of_normals), jointly, one_hot]
)
def test_a_vector_gets_a_column_for_each_component(program):
    graph = graph_of(program)
    assert graph.columns == {"A": ["A"], "M": NAMES, "Y": ["Y"]}
    assert graph.edges == (("A", "M"), ("M", "Y"))
    assert graph.latent == ()
    assert graph.unfair("A -> M -> Y").graph.columns_of(["M"]) == NAMES


def test_its_columns_may_be_named():
    graph = graph_with(jointly, columns={"M": ["m1", "m2", "m3"]})
    assert graph.columns["M"] == ["m1", "m2", "m3"]
    first, second = SEM(jointly, graph.unfair(through=["M"])).nodes(5, random_state=0)
    assert list(first) == ["A", "m1", "m2", "m3", "Y"]
    assert np.allclose(second[["m1", "m2", "m3"]] - first[["m1", "m2", "m3"]], B.numpy(), atol=1e-5)


def test_a_graph_by_hand_serves_with_columns_and_is_refused_without():
    right = graph("A -> M -> Y", columns={"M": NAMES})
    assert list(SEM(jointly, right.unfair(through=["M"])).nodes(3, random_state=0)[0]) == ["A", *NAMES, "Y"]
    message = r"'M' has the shape \(n, 3\), 3 numbers .* 1 column: M\..*columns={'M': \['M\[0\]', 'M\[1\]', 'M\[2\]'\]}"
    with pytest.raises(GraphError, match=message):
        SEM(jointly, graph("A -> M -> Y").unfair("A -> M -> Y")).nodes(3)
    with pytest.raises(GraphError, match=r"'M' .* has 2 columns: a, b"):
        graph_with(jointly, columns={"M": ["a", "b"]})


def test_a_component_must_not_have_the_name_of_another_site():
    sites = {"M[1]": lambda v: dist.Normal(v.A, 1.0)}
    program = units(**sites, M=lambda v: dist.Normal(moved(v), 1.0).to_event(1), Y=outcome)
    with pytest.raises(GraphError, match=r"component 'M\[1\]' of the site 'M' has the name of another site"):
        graph_of(program)


@pytest.mark.parametrize(("role", "other"), [("A", "Y"), ("Y", "A")])
def test_the_sensitive_attribute_and_the_outcome_are_one_number(role, other):
    def program(n):
        with pyro.plate("units", n):
            a = pyro.sample("A", dist.Bernoulli(torch.full((K if role == "A" else 1,), 0.5)).to_event(1))
            pyro.sample("Y", dist.Normal(a + torch.zeros(K if role == "Y" else 1), 1.0).to_event(1))

    with pytest.raises(GraphError, match=rf"{role!r} must stand for one column"):
        graph_of(program, nodes=("A", "Y"))


def test_a_trailing_dimension_of_one_is_no_vector():
    assert component_names("D", (-1, 1)) == ("D",)
    assert component_names("D", (2, -1, 2))[1] == "D[0,1]"
    assert graph_of(items_right(of_normals)).columns["A"] == ["A"]


def worlds_of_scalars(family, **settings):
    program = scalars(family)
    unfair = graph_with(program, columns={"M": NAMES}).unfair(through=["M"])
    return SEM(program, unfair, **settings).nodes(400, random_state=3)


# -- both worlds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "family", "coupling"),
    [
        (event, of_normals, "independent"),
        (event, poisson, "monotone"),
        (items_left, of_normals, "monotone"),
        (items_left, poisson, "independent"),
        (items_right, poisson, "antithetic"),
    ],
)
def test_independent_elements_are_scalar_sites(form, family, coupling):
    assert equal(worlds_of(form(family), coupling=coupling), worlds_of_scalars(family, coupling=coupling))


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_one_hot_is_a_category(coupling):
    found = worlds_of(one_hot, coupling=coupling)
    for table, other in zip(found, worlds_of(category, coupling=coupling), strict=True):
        assert (table[NAMES].sum(axis=1) == 1.0).all()
        assert table["Y"].equals(other["Y"])
        assert (table[NAMES].to_numpy().argmax(1) == other["M"]).all()


@pytest.mark.parametrize("program", [event(of_normals), items_right(poisson), jointly, by_hand, one_hot])
def test_one_run_equals_the_definition(program):
    equations = read_equations(program, graph_of(program).unfair(through=["M"]))
    for n, coupling in product((2, K, 50), COUPLINGS):
        with isolated(0):
            noise = Noise(n, coupling)
            slow = sequential_worlds(equations, noise)
            for broadcast in (True, False):
                for one, other in zip(slow, vectorised_worlds(equations, noise, broadcast=broadcast), strict=True):
                    assert all(torch.allclose(one[site], other[site], atol=1e-5) for site in one)


def test_items_to_the_left_of_individuals_never_mix_with_worlds():
    sem = SEM(items_left(of_normals), graph_of(items_left(of_normals)).unfair(through=["M"]))
    for n in (2, K, 50):  # K worlds or individuals look like K items
        first, second = sem.nodes(n, random_state=0)
        assert np.allclose(second[NAMES] - first[NAMES], B.numpy(), atol=1e-5)


def test_the_noise_of_a_multivariate_normal_is_that_of_its_cholesky_factor():
    factors = torch.linalg.cholesky(torch.stack([SIGMA, 4 * torch.eye(K)]))
    program = units(M=lambda v: dist.MultivariateNormal(moved(v), scale_tril=factors[v.A.long()]), Y=outcome)
    first, second = worlds_of(program, n=4000)
    noise = [
        np.linalg.solve(factors[arm].double().numpy(), (table[NAMES].to_numpy(float) - arm * B.numpy()).T)
        for arm, table in enumerate((first, second))
    ]
    assert np.allclose(*noise, atol=1e-4)
    assert np.abs(np.cov(noise[0]) - np.eye(K)).max() < 0.1


def test_a_recanting_witness_may_be_a_vector():
    program = units(
        M=lambda v: dist.MultivariateNormal(moved(v), SIGMA),
        D=lambda v: dist.Normal(v.M.sum(-1), 1.0),
        Y=lambda v: dist.Normal(v.D + v.M.sum(-1), 1.0),
    )
    unfair = graph_of(program, nodes=("A", "M", "D", "Y")).unfair("A -> M -> D -> Y")
    first, second = SEM(program, unfair).nodes(200, random_state=0)
    assert np.allclose(second["D"] - first["D"], float(B.sum()), atol=1e-5)
    assert second[NAMES].equals(first[NAMES])
    assert np.allclose(second["Y"] - first["Y"], float(B.sum()), atol=1e-5)


def test_a_random_vector_that_is_no_node_is_coupled_too():
    program = units(
        H=lambda v: dist.MultivariateNormal(moved(v), SIGMA),
        D=lambda v: score(v.H.unbind(-1)),
        Y=lambda v: dist.Normal(v.D, 1.0),
    )
    of_nodes = graph_of(program, nodes=("A", "D", "Y"))
    assert of_nodes.edges == (("A", "D"), ("D", "Y"))
    assert of_nodes.latent == ()
    sem = SEM(program, of_nodes.unfair("A -> D -> Y"))
    first, second = sem.nodes(100, random_state=0)
    assert np.allclose(second["D"] - first["D"], float(C @ B), atol=1e-5)
    assert sem.coupled == ("H[0]", "H[1]", "H[2]")


def test_a_random_vector_behind_two_nodes_is_one_latent_node():
    program = units(
        H=lambda v: dist.MultivariateNormal(moved(v), SIGMA),
        D=lambda v: dist.Normal(v.H.sum(-1), 1.0),
        M=lambda v: dist.Normal(v.H[..., 0], 1.0),
        Y=lambda v: dist.Normal(v.D + v.M, 1.0),
    )
    of_nodes = graph_of(program, nodes=("A", "D", "M", "Y"))
    assert of_nodes.latent == ("H",)
    first, second = SEM(program, of_nodes.unfair("A -> H -> D -> Y")).nodes(100, random_state=0)
    assert np.allclose(second["D"] - first["D"], float(B.sum()), atol=1e-5)
    assert first["M"].equals(second["M"])


def test_vector_noise_of_several_nodes_is_one_latent_node():
    of_nodes = graph_of(common_noise, nodes=("A", "D", "M", "Y"))
    assert of_nodes.latent == ("U",)
    assert {("U", "D"), ("U", "M")} <= {*of_nodes.edges}
    first, second = SEM(common_noise, of_nodes.unfair(through=["M"])).nodes(100, random_state=0)
    assert first["D"].equals(second["D"])
    assert np.allclose(second["M"] - first["M"], 2.0, atol=1e-5)


common_noise = units(
    U=lambda v: dist.MultivariateNormal(torch.zeros(2), torch.eye(2) + 0.5),
    D=lambda v: v.A + v.U[..., 0],
    M=lambda v: v.A + v.D + v.U[..., 1],
    Y=lambda v: dist.Normal(v.M + v.D, 1.0),
)


@cache
def dirichlet(depends):
    return units(
        M=lambda v: dist.Dirichlet(torch.ones(K) + (v.A[..., None] if depends else 0.0)),
        Y=lambda v: dist.Normal(v.A + score(v.M.unbind(-1)), 1.0),
    )


def test_a_vector_without_a_coupling_serves_as_noise_and_is_refused_elsewhere():
    program = dirichlet(False)
    first, second = SEM(program, graph_of(program).unfair("A -> Y")).nodes(200, random_state=0)
    assert np.allclose(first[NAMES].sum(axis=1), 1.0, atol=1e-5)
    assert first[NAMES].equals(second[NAMES])
    program = dirichlet(True)
    sem = SEM(program, graph_of(program).unfair(through=["M"]))
    with pytest.raises(CouplingError, match=r"The site 'M' is drawn from Dirichlet.*noise as a site of its own"):
        sem.nodes(3, random_state=0)
    first, second = SEM(program, graph_of(program).unfair(through=["M"]), coupling="independent").nodes(4000, 0)
    for table, weight in ((first, 1.0), (second, 2.0)):  # which needs no quantile function
        assert np.allclose(table[NAMES].var(), 2 / 9 / (3 * weight + 1), atol=0.01)
    assert np.abs(np.corrcoef(first["M[0]"], second["M[0]"])[0, 1]) < 0.06


@pytest.mark.parametrize(
    "distribution", [dist.OneHotCategorical(torch.ones(K)), dist.Normal(torch.zeros(K), 1.0).to_event(1)]
)
def test_a_vector_that_is_given_data_is_refused(distribution):
    def given(n):
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            M = pyro.sample("M", distribution, obs=torch.eye(K)[torch.arange(n) % K])
            pyro.sample("Y", dist.Normal(A + M.sum(-1), 1.0))

    with pytest.raises(GraphError, match=r"'M' is given data"):
        graph_of(given)


def jointly_by_name(n):
    """A program that pickle finds by its name."""
    jointly(n)


def test_equations_with_vectors_can_be_pickled():
    program = jointly_by_name
    equations = read_equations(program, graph_of(program).unfair(through=["M"]))
    copy = pickle.loads(pickle.dumps(equations))
    with isolated(0):
        noise = Noise(5, "monotone")
        one, other = sequential_worlds(equations, noise)[1], sequential_worlds(copy, noise)[1]
    assert all(torch.equal(one[site], other[site]) for site in one)


# -- given units ------------------------------------------------------------------------------------------------------


@cache
def drawn(program, nodes):
    return SEM(program, graph_of(program, nodes).unfair(through=["M"])).nodes(300, random_state=1)[0]


def rows_of(program, n=60, nodes=("A", "M", "Y")):
    return drawn(program, nodes)[:n].assign(A=0), graph_of(program, nodes)


@pytest.mark.parametrize(
    "program", [event(of_normals), items_left(of_normals), items_right(of_normals), jointly, by_hand]
)
def test_a_given_vector_moves_by_its_effect(program):
    rows, graph = rows_of(program)
    found = SEM(program, graph.unfair(through=["M"])).counterfactual(rows, random_state=0)
    assert found.exact
    assert found.baseline.equals(rows.astype(found.baseline.dtypes))
    assert np.allclose(found.switched[NAMES] - rows[NAMES], B.numpy(), atol=1e-4)
    assert np.allclose(found.switched["Y"] - rows["Y"], float(C @ B), atol=1e-4)


@cache
def plates(dim):
    """Noise in a plate of items; one for each individual besides, read by two nodes."""

    def program(n):
        with pyro.plate("units", n, dim=dim):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            V = pyro.sample("V", dist.Normal(0.0, 1.0))
            D = pyro.deterministic("D", A + V)
            with pyro.plate("items", K, dim=-3 - dim):
                U = pyro.sample("U", dist.Normal(0.0, 1.0))
                M = pyro.deterministic("M", A * (B if dim == -2 else B[:, None]) + D + U)
                H = pyro.deterministic("H", 2 * U + M)
            items = (M + H).movedim(-3 - dim, -1)
            pyro.sample("Y", dist.Normal(score(items.split(1, -1) if dim == -2 else items.unbind(-1)), 1.0))

    return program


@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("method", ["auto", pytest.param("svi", marks=pytest.mark.slow)])
def test_given_noise_in_a_plate_of_items(dim, method):
    program, nodes = plates(dim), ("A", "D", "M", "H", "Y")
    rows, graph = rows_of(program, nodes=nodes, n=4)
    assert graph.latent == ("U",)
    near = {} if method == "auto" else {"tolerance": 0.02}
    sem = SEM(program, graph.unfair("A -> D -> M -> Y"))
    found = sem.counterfactual(rows, method=method, random_state=0, draws=200, **near)
    assert found.exact == (method == "auto")
    shift = found.switched - rows
    atol = 1e-4 if found.exact else 0.1
    assert np.allclose(shift[["D", *NAMES]], 1.0, atol=atol)
    assert np.allclose(shift[["H[0]", "H[1]", "H[2]"]], 0.0, atol=atol)  # which reads M as in the baseline
    assert np.allclose(shift["Y"], float(C.sum()), atol=atol)
    noise = np.stack([found.noise[f"U[{i}]", "mean"] for i in range(K)], 1)
    assert np.allclose(noise, (rows[["H[0]", "H[1]", "H[2]"]].to_numpy() - rows[NAMES].to_numpy()) / 2, atol=atol)
    if method == "svi":
        assert found.diagnostics["ess"].min() > 10.0


def test_given_noise_vectors_of_two_nodes_are_solved_for():
    rows, graph = rows_of(common_noise, nodes=("A", "D", "M", "Y"))
    found = SEM(common_noise, graph.unfair(through=["M"])).counterfactual(rows)
    assert found.exact
    assert np.allclose(found.noise["U[0]", "mean"], rows["D"], atol=1e-5)
    assert np.allclose(found.noise["U[1]", "mean"], rows["M"] - rows["D"], atol=1e-5)
    assert np.allclose(found.switched["Y"] - rows["Y"], 2.0, atol=1e-4)  # A itself, and D in what M reads


def test_noise_vectors_have_a_support():
    program = units(
        U=lambda v: dist.Exponential(torch.ones(2)).to_event(1),
        M=lambda v: v.A[..., None] + v.U,
        Y=lambda v: dist.Normal(v.M.sum(-1), 1.0),
    )
    sem = SEM(program, graph_of(program).unfair(through=["M"]))
    rows = pd.DataFrame({"A": [0, 0], "M[0]": [1.0, 1.0], "M[1]": [2.0, -1.0], "Y": [3.0, 0.0]})
    with pytest.raises(DataError, match=r"Row 1: .*impossible.*noise U would be \[ 1. -1.\], outside its support"):
        sem.counterfactual(rows)
    assert sem.counterfactual(rows[:1]).exact


def test_a_given_category_keeps_its_conditional_distribution():
    rows = pd.DataFrame({"A": [0], "M[0]": [1.0], "M[1]": [0.0], "M[2]": [0.0], "Y": [0.0]})
    sem = SEM(one_hot, graph_of(one_hot).unfair(through=["M"]), coupling="gumbel")
    switched = sem.counterfactual(rows, random_state=0, draws=20_000).switched
    # Category 0 wins in both worlds if it leads each other one at the larger of both odds.
    most = torch.maximum(torch.ones(K, dtype=torch.float64), torch.exp(B - B[0]).double())
    assert switched["M[0]"][0] == pytest.approx(3.0 / (1.0 + float(most[1:].sum())), abs=0.02)
    assert switched[NAMES].sum(axis=1)[0] == pytest.approx(1.0)


def test_what_is_no_category_is_refused():
    sem = SEM(one_hot, graph_of(one_hot).unfair(through=["M"]))
    for row, value in (([1.0, 1.0, 0.0], "1"), ([0.3, 0.7, 0.0], "0.3")):
        rows = pd.DataFrame([[0, *row, 0.0]], columns=["A", *NAMES, "Y"])
        with pytest.raises(DataError, match=rf"Row 0: M\[0\] = {value} .*is impossible"):
            sem.counterfactual(rows, random_state=0)


def test_rows_without_a_graph_name_components():
    rows, _ = rows_of(jointly, n=4)
    units = abduct(jointly, rows)
    assert np.allclose(units.do({"A": 1}).rows[NAMES] - rows[NAMES], B.numpy(), atol=1e-4)
    whole = units.do({"M[0]": 1.0, "M[1]": 2.0, "M[2]": 3.0}).rows
    assert np.allclose(whole["Y"] - rows["Y"], C.numpy() @ [1, 2, 3] - rows[NAMES].to_numpy() @ C.numpy(), atol=1e-4)
    some = abduct(jointly, rows, nodes=["A", "M"]).do({"A": 1}).rows
    assert list(some) == ["A", *NAMES]
    assert np.allclose(some[NAMES] - rows[NAMES], B.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("program", "values", "message"),
    [
        (jointly, {"M[0]": 1.0}, r"sets M\[0\], but not M\[1\], M\[2\]: they are one vector"),
        (jointly, {"M[1]": 1.0}, r"sets M\[1\], but not M\[0\], M\[2\]"),
        (
            one_hot,
            {"M[0]": 1, "M[1]": 1, "M[2]": 0},
            r"sets M\[0\] = 1, M\[1\] = 1, M\[2\] = 0, values that the vector",
        ),
    ],
)
def test_components_of_one_vector_are_set_together(program, values, message):
    rows, of_nodes = rows_of(program, n=4)
    with pytest.raises(DataError, match=message):
        abduct(program, rows, random_state=0).do(values)
    with pytest.raises(DataError, match=message):
        SEM(program, of_nodes.unfair(through=["M"])).counterfactual(rows, do=values, random_state=0)


def test_components_drawn_independently_have_equations_of_their_own():
    rows, _ = rows_of(event(of_normals), n=4)
    alone = abduct(event(of_normals), rows).do({"M[0]": 1.0}).rows
    assert np.allclose(alone[NAMES[1:]], rows[NAMES[1:]], atol=1e-6)


# -- the posterior -----------------------------------------------------------------------------------------------------


@cache
def learned(form):
    """A program whose effects on the vector are parameters."""

    def program(n):
        b = pyro.sample("b", dist.Normal(torch.zeros(K), 3.0).to_event(1))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            loc = A[..., None] * b
            if form == "scalars":
                M = torch.stack([pyro.sample(NAMES[i], dist.Normal(loc[..., i], 1.5)) for i in range(K)], -1)
            elif form == "event":
                M = pyro.sample("M", dist.Normal(loc, 1.5).to_event(1))
            elif form == "items":
                with pyro.plate("items", K, dim=-2):
                    M = pyro.sample("M", dist.Normal(loc.movedim(-1, -2), 1.5)).movedim(-2, -1)
            elif form == "noise":
                U = pyro.sample("U", dist.Normal(torch.zeros(K), 1.0).to_event(1))
                M = pyro.deterministic("M", loc + 1.5 * U)
            elif form == "mixed":
                U = pyro.sample("U", dist.Normal(torch.zeros(K), 1.0).to_event(1))
                M = pyro.deterministic("M", loc + U.cumsum(-1))
            elif form == "jointly":
                M = pyro.sample("M", dist.MultivariateNormal(loc, SIGMA))
            elif form == "noise jointly":
                U = pyro.sample("U", dist.MultivariateNormal(torch.zeros(K), SIGMA / 4))
                M = pyro.deterministic("M", loc + 2 * U)
            elif form == "one hot":
                M = pyro.sample("M", dist.OneHotCategorical(logits=loc))
            pyro.sample("Y", dist.Normal(score(M.unbind(-1)), 1.0))

    return program


def log_density(form, rows):
    program = learned(form)
    likelihood = read_likelihood(program, rows, graph_with(program, columns={"M": NAMES}))
    data = {"b": torch.tensor([0.3, -0.2, 1.0])}
    return poutine.trace(poutine.condition(likelihood, data=data)).get_trace().log_prob_sum().item()


def test_a_vector_counts_as_its_scalars_do():
    rows, _ = rows_of(event(of_normals), n=40)
    right = log_density("scalars", rows)
    for form in ("event", "items", "noise"):
        assert log_density(form, rows) == pytest.approx(right, rel=1e-6)
    assert log_density("noise jointly", rows) == pytest.approx(log_density("jointly", rows), rel=1e-6)


def test_vectors_whose_density_cannot_be_told_are_refused():
    rows, _ = rows_of(event(of_normals), n=10)
    with pytest.raises(PosteriorError, match=r"node 'M' is not affine as a function of its noise 'U'"):
        log_density("mixed", rows)
    with pytest.raises(DataError, match=r"node 'M', such as \[.*\], cannot be drawn.*OneHot"):
        log_density("one hot", rows)


def test_a_posterior_of_vectors():
    program = learned("items")
    graph = graph_of(program)
    rows, _ = rows_of(event(of_normals), n=300)
    rows["A"] = np.arange(300) % 2
    found = fit_posterior(program, rows, graph, method="svi", steps=200, draws=100, progress=False, random_state=0)
    ones = rows["A"] == 1
    assert np.allclose(found.flat["b"].mean(0), rows.loc[ones, NAMES].mean(), atol=0.15)
    assert found.observed["M"].shape == (300, K)
    assert np.allclose(found.observed["M"], rows[NAMES])
    drawn = predictive(program, found, do={"A": 1}, n=20, random_state=0)
    assert drawn["M"].shape == (100, 20, K)
    assert found.to_inference_data(drawn)["posterior_predictive"]["M"].dims[2] == "unit"
    unfair = graph.unfair(through=["M"])
    first, second = SEM(program, unfair, posterior=found).nodes(2000, random_state=0)
    assert np.allclose((second - first)[NAMES].mean(), found.flat["b"].mean(0), atol=0.05)


def test_draws_kept_of_individuals_come_first():
    program = learned("items")
    kept = {"M": np.arange(2.0 * 4 * K).reshape(2, 4, K), "b": np.zeros((2, K))}
    found = predictive(program, kept, n=4, random_state=0)
    assert np.array_equal(found["M"], kept["M"])


# -- distributions taken apart -----------------------------------------------------------------------------------------

SHAPE = (5, K)


def positive(seed):
    return 0.1 + torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed))


def test_a_component_has_its_own_distribution():
    for family in (  # made here: transformed ones load SymPy
        dist.Normal(positive(0), positive(1)),
        dist.Normal(0.0, 1.0),
        dist.Bernoulli(logits=positive(0)),
        dist.Binomial(torch.tensor(4.0), positive(0) / 2),
        dist.Categorical(torch.rand(K, 4, generator=torch.Generator().manual_seed(0))),
        dist.Gamma(positive(0), positive(1)),
        dist.LogNormal(positive(0), positive(1)),
        dist.MixtureSameFamily(
            dist.Categorical(torch.rand(K, 2, generator=torch.Generator().manual_seed(0))),
            dist.Normal(torch.tensor([0.0, 3.0]), positive(0)[..., None]),
        ),
        dist.OrderedLogistic(positive(0), torch.tensor([-1.0, 0.0, 1.0])),
        dist.Poisson(positive(0)),
        dist.StudentT(positive(0), positive(1), positive(2)),
        dist.TransformedDistribution(
            dist.Normal(positive(0), 1.0),
            [dist.transforms.AffineTransform(positive(1), 2.0), dist.transforms.ExpTransform()],
        ),
        dist.Uniform(-positive(0), positive(1)),
        dist.Weibull(positive(0), positive(1)),
        dist.ZeroInflatedPoisson(positive(0), gate=positive(1) / 2),
    ):
        with isolated(0):
            distribution = family.expand(SHAPE)
            values = distribution.sample()
            for i in range(K):
                one = component_of(distribution, (..., i))
                assert one.batch_shape == (5,)
                assert one.sample().shape == (5,)
                assert torch.allclose(one.log_prob(values[..., i]), distribution.log_prob(values)[..., i])


def test_what_cannot_be_taken_apart_is_refused():
    for distribution in (
        dist.RelaxedBernoulli(torch.tensor(0.5), positive(0)),
        dist.FoldedDistribution(dist.Normal(positive(0), 1.0)),
        dist.Normal(positive(0), 1.0).mask(positive(1) > 0.5),
    ):
        with pytest.raises(NotImplementedError):
            component_of(distribution.expand(SHAPE), (..., 0))


def test_a_distribution_that_cannot_be_taken_apart_stays_a_site():
    program = units(
        M=lambda v: dist.FoldedDistribution(dist.Normal(torch.zeros(K), 1.0)).to_event(1),
        Y=lambda v: dist.Normal(v.A + v.M.sum(-1), 1.0),
    )
    found = read_scalar_sites(program, {"A": [], "M": [], "Y": []})
    assert found.info.sites == ("A", "M", *NAMES, "Y")
    assert found.info.random == {"A", "M", "Y"}
    assert found.info.reads["M[1]"] == ("M",)
