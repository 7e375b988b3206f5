"""What is read off a program: its sites, what each reads, and the causal graph; and which programs are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

from pyrofair import SEM, CausalGraph, DataError, GraphError, PyrofairWarning, do
from pyrofair.inference.abduction import abduct
from pyrofair.inference.posterior import predictive
from pyrofair.programs.provenance import Program
from pyrofair.programs.sites import read_sites, require_finite
from tests.programs.models import coin, graph, normal, through, units

# -- graphs -----------------------------------------------------------------------------------------------------------


def linear(graph: CausalGraph) -> Program:
    """Write a graph as a program: a node of two columns has a site for each, a latent node is noise."""

    def program(n: int) -> None:
        value: dict[str, Tensor] = {}
        with pyro.plate("units", n):
            for node in graph.order:
                if node in graph.latent:
                    value[node] = pyro.sample(node, dist.Normal(0.0, 1.0))
                    continue
                for column in graph.columns[node]:
                    u = pyro.sample(f"U_{column}", dist.Normal(0.0, 1.0))
                    total = sum((value[parent] for parent in graph.parents(node)), start=u)
                    value[node] = pyro.deterministic(column, total + value.get(node, 0.0))

    return program


HIRING = graph("Q -> A; {A Q} -> D; {A Q} -> M; {A Q D M} -> Y")
ADULT = graph(
    "{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y",
    columns={"R": ["workclass", "hours"], "C": ["age", "country"]},
)
LATENT = graph("A -> R; H -> R; {A R} -> M; {A R M H} -> Y", latent=["H"])


@pytest.mark.parametrize("graph", [HIRING, ADULT, LATENT])
def test_a_graph_written_as_a_program_is_read_back(graph: CausalGraph) -> None:
    names = {"sensitive": graph.sensitive, "outcome": graph.outcome}
    columns = {node: own for node, own in graph.columns.items() if own != [node]}
    found = CausalGraph.from_pyro(linear(graph), nodes=graph.observed, columns=columns, **names)
    assert set(found.edges) == set(graph.edges)
    assert found.latent == graph.latent
    assert found.nodes == (*graph.observed, *graph.latent)
    assert found.columns == graph.columns


def test_labels_and_columns_are_kept() -> None:
    labels = {"baseline": "woman", "contrast": "man", "positive": "yes"}
    found = CausalGraph.from_pyro(
        units(sex=coin(), Y=lambda v: dist.Bernoulli(logits=v.sex)),
        nodes=["A", "Y"],
        sensitive="A",
        outcome="Y",
        columns={"A": "sex"},
        **labels,
    )
    assert (found.baseline, found.contrast, found.positive) == tuple(labels.values())
    assert found.columns == {"A": ["sex"], "Y": ["Y"]}
    assert found.edges == (("A", "Y"),)


def test_noise_becomes_latent_only_where_it_feeds_two_nodes() -> None:
    program = units(
        far=normal(),
        near=lambda v: dist.Normal(v.far, 1.0),
        own=normal(),
        A=lambda v: (v.own > 0).float(),
        between=lambda v: dist.Normal(v.A, 1.0),
        single=lambda v: dist.Normal(v.A, 1.0),
        step=lambda v: v.near + 1,
        D=lambda v: v.step + v.between + v.single,
        M=lambda v: v.step * v.between,
        Y=lambda v: dist.Bernoulli(logits=v.D + v.M),
    )
    found = CausalGraph.from_pyro(program, nodes=["A", "D", "M", "Y"], sensitive="A", outcome="Y")
    assert found.latent == ("near", "between")
    assert {*found.edges} == {*graph("A -> D; A -> between -> {D M}; near -> {D M}; {D M} -> Y").edges}


# -- reading ----------------------------------------------------------------------------------------------------------


def test_sites_parameters_shapes_and_types() -> None:
    def program(n: int) -> str:
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        twice = pyro.deterministic("twice", 2 * loc)
        pyro.param("weight", torch.ones(2))
        with pyro.plate("features", 3):
            table = pyro.sample("table", dist.Normal(0.0, 1.0))
        with pyro.plate("units", n, dim=-1):
            A = pyro.sample("A", dist.Categorical(torch.ones(3)))
            V = pyro.sample("V", dist.Normal(torch.zeros(2), 1.0).to_event(1))
            one = pyro.deterministic("one", torch.tensor(1.0))
            pyro.deterministic("eye", torch.eye(2))
            with pyro.plate("repeats", 4, dim=-2):
                R = pyro.sample("R", dist.Normal(twice, 1.0))
            M = pyro.sample("M", dist.Normal(table[A] + V.sum(-1) + one, 1.0))
        with pyro.plate("two", 2):
            both = pyro.deterministic("both", torch.stack([M, 2 * M])[:, :1].mean() * 0 + torch.zeros(2))
        pyro.deterministic("Y", R.sum(0) + M + both[0])
        return "whatever"

    found = read_sites(program)
    assert found.sites == ("A", "V", "one", "R", "M", "Y")
    assert found.parameters == ("loc", "table")
    assert found.random == {"A", "V", "R", "M"}
    assert found.observed == frozenset()
    assert found.shapes == {"A": (-1,), "V": (-1, 2), "one": (), "R": (4, -1), "M": (-1,), "Y": (-1,)}
    assert len(found.shapes["V"]) == 2
    assert found.shape("R", 7) == (4, 7)
    assert found.dtypes["A"] == torch.int64
    # What is computed outside the plate is no site of theirs, and passes on what it reads.
    assert found.reads == {"A": (), "V": (), "one": (), "R": (), "M": ("A", "V", "one"), "Y": ("R", "M")}


def reads_of(distribution: Callable[[Tensor, Tensor], Any]) -> tuple[str, ...]:
    """Return what a site D reads, whose distribution or value is made of A, which is 0, 1 or 2, and Q."""
    program = units(
        A=lambda v: dist.Categorical(torch.ones(3)), Q=normal(1.0), E=normal(), D=lambda v: distribution(v.A, v.Q)
    )
    return read_sites(program).reads["D"]


TABLE = torch.arange(6.0).reshape(3, 2)


class Improper(dist.Normal):  # type: ignore[misc]
    """A distribution without a density."""

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError


@pytest.mark.parametrize(
    "distribution",
    [
        lambda A, Q: torch.where(A == 1, Q, -Q),
        lambda A, Q: TABLE[A, 0] * Q,
        lambda A, Q: torch.nn.functional.embedding(A, TABLE)[..., 0] + Q,
        lambda A, Q: A + Q > 1,
        lambda A, Q: torch.nn.Linear(2, 1).requires_grad_(False)(torch.stack([A, Q], -1)).squeeze(-1) * 0 + A + Q,
        lambda A, Q: dist.Normal(A.float(), Q.exp()),
        lambda A, Q: dist.Categorical(logits=torch.stack([A, Q], -1)),
        lambda A, Q: dist.Delta(A + Q),
        lambda A, Q: Improper(A.float(), Q.exp()),
        lambda A, Q: dist.LogNormal(A + Q, 1.0).mask(False),
        lambda A, Q: dist.TransformedDistribution(
            dist.Normal(torch.zeros(len(A)), 1.0), [dist.transforms.AffineTransform(A, Q.exp())]
        ),
        lambda A, Q: dist.MixtureSameFamily(
            dist.Categorical(logits=torch.stack([Q, -Q], -1)), dist.Normal(torch.stack([A, 0 * A], -1).float(), 1.0)
        ),
        lambda A, Q: dist.Normal(torch.stack([A, Q], -1), 1.0).to_event(1),
        lambda A, Q: dist.ZeroInflatedPoisson(A + 1.0, gate=torch.sigmoid(Q)),
        lambda A, Q: torch.log(A + Q),  # with NaN
    ],
)
def test_dependencies_through_torch_need_no_warning(distribution: Callable[[Tensor, Tensor], Any]) -> None:
    assert reads_of(distribution) == ("A", "Q")


def assigned(A: Tensor, Q: Tensor) -> Tensor:
    made = torch.zeros(len(Q))
    made[A > 0] = 1.0
    made[:] += Q
    return made


@pytest.mark.parametrize(
    "distribution",
    [
        lambda A, Q: torch.stack([torch.as_tensor(q.item() + a.item()) for a, q in zip(A, Q, strict=True)]),
        lambda A, Q: torch.as_tensor(A.numpy() + Q.numpy()),
        lambda A, Q: torch.tensor([a + q for a, q in zip(A.tolist(), Q.tolist(), strict=True)]),
        lambda A, Q: dist.Normal(torch.tensor(Q.tolist()), 1.0 + torch.tensor(A.tolist())),
        lambda A, Q: torch.tensor([1.0 if a > 1 or q < 0 else 0.0 for a, q in zip(A, Q, strict=True)]),
        lambda A, Q: dist.Normal(torch.vmap(lambda a, q: a * q)(A, Q), 1.0),
        assigned,
    ],
)
@pytest.mark.some(4)
def test_what_torch_does_not_show_is_found_with_a_warning(distribution: Callable[[Tensor, Tensor], Any]) -> None:
    with pytest.warns(PyrofairWarning, match=r"site 'D' reads 'A', 'Q' in a way that torch does not show"):
        assert reads_of(distribution) == ("A", "Q")


@pytest.mark.parametrize(
    "distribution",
    [
        # needs both, and a value that no unit has
        lambda A, Q: torch.as_tensor(np.where((A.numpy() > 1) & (Q.numpy() > 9), 1.0, 0.0)),
        # one in a hundred
        lambda A, Q: torch.as_tensor(np.where((Q.numpy() > 3.0) & (Q.numpy() < 3.1), A.numpy(), 0.0)),
        # through a tensor without marks
        lambda A, Q: torch.vmap(lambda a, q: torch.where((q > 3.0) & (q < 3.1), a, q))(A.float(), Q),
    ],
)
def test_a_rare_dependence_is_looked_for_where_values_leave_torch(distribution: Callable[[Any, Any], Any]) -> None:
    with pytest.warns(PyrofairWarning, match=r"site 'D' reads 'A', 'Q' in a way"):
        assert reads_of(distribution) == ("A", "Q")


def test_what_leaves_torch_and_is_not_found_again_is_warned_of() -> None:
    def hidden(v: Any) -> Tensor:
        hit = np.sin(1e3 * v.Q.numpy().astype(float)) > 1 - 1e-12
        return torch.as_tensor(np.where(hit, v.A.tolist(), 0.0))

    with pytest.warns(PyrofairWarning, match=r"takes 'Q' \(by numpy\), 'A' \(by tolist\) out of torch.*1009 units"):
        assert read_sites(units(Q=normal(), D=hidden)).reads["D"] == ()


def test_a_value_that_changes_for_no_cause_found_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrofair.programs.sites.perturbed", lambda *_: {})
    with pytest.warns(
        PyrofairWarning, match="The parents of 'D' cannot be followed: the value or distribution changes"
    ):
        reads_of(lambda A, Q: torch.vmap(lambda a, q: a * q)(A, Q))


def test_a_check_of_all_units_needs_no_warning() -> None:
    def distribution(A: Tensor, Q: Tensor) -> Tensor:
        if not bool((A >= 0).all()) or Q.isnan().any().item():
            raise ArithmeticError("never")
        return A * Q

    assert reads_of(distribution) == ("A", "Q")


def test_what_a_program_knows_of_the_number_of_units_is_no_dependence() -> None:
    assert reads_of(lambda A, Q: torch.ones(len(A))) == ()


# -- other units -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "read"),
    [
        (lambda A, Q: Q - Q.mean(), "Q"),
        (lambda A, Q: Q.cumsum(0), "Q"),
        (lambda A, Q: Q.roll(1), "Q"),
        (lambda A, Q: Q.argsort().argsort(), "Q"),
        (lambda A, Q: torch.where(Q.quantile(0.95) < Q, 1.0, 0.0), "Q"),
        (lambda A, Q: torch.softmax(Q, 0), "Q"),
        (lambda A, Q: torch.where(torch.arange(len(Q)) == 5, Q[6], Q), "Q"),
        (lambda A, Q: Q if Q.mean() > 1.0 else -Q, "Q"),
        (lambda A, Q: torch.as_tensor(Q.numpy() - Q.numpy().mean()), "Q"),
        (lambda A, Q: Q.mean(), "Q"),
        (lambda A, Q: dist.Normal(Q.mean().item(), 1.0), "Q"),
        (lambda A, Q: dist.Categorical(logits=torch.stack([Q, Q.mean().expand(len(Q))], -1)), "Q"),
        (lambda A, Q: Improper(Q - Q.mean(), 1.0), "Q"),
        (lambda A, Q: TABLE[:, 0][A] * 0 + Q - Q.mean(), "Q"),  # no value of A but its own may be tried
        (lambda A, Q: Q * A.float().mean(), "A"),
        (lambda A, Q: Q * A.max(), "A"),
        (lambda A, Q: Q + A.median(), "A"),
        (lambda A, Q: Q + (A.sum() > 105), "A"),
        (lambda A, Q: Q + torch.bincount(A, minlength=3)[A], "A"),
        (lambda A, Q: (A * Q).sum() / A.sum() + torch.zeros(len(Q)), "A', 'Q"),  # shown by both together
    ],
)
def test_equations_that_mix_units_are_refused(distribution: Callable[[Tensor, Tensor], Any], read: str) -> None:
    with pytest.raises(GraphError, match=f"'D' mixes units: it reads '{read}' of others. .*a number or a parameter"):
        reads_of(distribution)


def test_units_are_mixed_by_steps_outside_their_plate() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            M = pyro.sample("M", dist.Normal(0.0, 1.0))
        mean = pyro.deterministic("mean", M.mean())
        pyro.deterministic("Y", mean + torch.zeros(n))

    with pytest.raises(GraphError, match="'Y' mixes units: it reads 'M' of others"):
        read_sites(program)


def test_units_in_another_dimension_are_mixed_and_are_not() -> None:
    def program(n: int, shift: int = 0) -> None:
        with pyro.plate("units", n, dim=-2), pyro.plate("features", 3):
            V = pyro.sample("V", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("units again", n, dim=-1):
            total = pyro.deterministic("total", V.sum((-1, -2)))
            weighed = torch.nn.Linear(6, 1).requires_grad_(False)
            weighed.weight.fill_(1 / 3)
            pyro.sample("Y", dist.Normal(weighed(V.flatten(-2))[:, 0] * 0 + total.roll(shift), 1.0))

    assert read_sites(program).reads["Y"] == ("V", "total")
    with pytest.raises(GraphError, match="'Y' mixes units: it reads 'total' of others"):
        read_sites(lambda n: program(n, shift=1))


def test_rounding_that_depends_on_others_is_no_mixing() -> None:
    assert reads_of(lambda A, Q: Q + 1e-7 * A.float().mean()) == ("A", "Q")


def test_a_parameter_that_reads_units_outside_torch_is_refused() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
        pyro.sample("theta", dist.Normal(A.numpy().mean().item(), 1.0))

    with pytest.raises(GraphError, match=r"'theta' is drawn once, outside the plate of units, and yet reads.*: A"):
        read_sites(program)


@pytest.mark.parametrize("distribution", [dist.Bernoulli(0.5), dist.Categorical(torch.ones(3)), dist.Geometric(0.3)])
def test_a_distribution_made_outside_the_program_is_read_again_and_again(distribution: Any) -> None:
    def program(n: int) -> None:
        pyro.sample("theta", distribution)
        with pyro.plate("units", n):
            pyro.sample("D", dist.Normal(pyro.sample("A", distribution).float(), 1.0))

    assert [read_sites(program).reads["D"] for _ in range(3)] == [("A",)] * 3


def test_noise_read_outside_torch_is_shared_all_the_same() -> None:
    program = units(U=normal(), A=coin(), D=lambda v: v.A + torch.as_tensor(v.U.numpy()), Y=lambda v: v.D + v.U)
    with pytest.warns(PyrofairWarning, match="'D' reads 'U'"):
        found = CausalGraph.from_pyro(program, nodes=["A", "D", "Y"], sensitive="A", outcome="Y")
    assert found.latent == ("U",)


def test_what_is_not_read_is_not_found() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5, validate_args=False).mask(torch.tensor(True)))
            G = pyro.sample("G", dist.Gamma(A + 0.1, 1.0))  # takes a number of random numbers that depends on A
            with poutine.mask(mask=A > 0):
                Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
            pyro.deterministic("D", torch.log(-Q.abs()))  # NaN for all units
            pyro.sample("P", dist.Poisson(Q.exp()), infer={"enumerate": "sequential"})
            pyro.deterministic("Y", G)

    assert read_sites(program).reads == {"A": (), "G": ("A",), "Q": (), "D": ("Q",), "P": ("Q",), "Y": ("G",)}


def test_an_intervened_program_reads_nothing_there() -> None:
    program = do(linear(HIRING), {"A": 1, "D": 2})
    found = read_sites(program)
    assert found.reads["D"] == ()
    assert found.causes("Y", ["A", "Q", "D", "M"])[0] == ("A", "Q", "D", "M")


def test_reading_ignores_the_handlers_around_it() -> None:
    with pyro.plate("copies", 3, dim=-3), poutine.trace() as outer:
        assert read_sites(linear(HIRING)).reads["M"] == ("Q", "A", "U_M")
    assert not [name for name in outer.trace.nodes if name not in ("_INPUT", "_RETURN")]


# -- refusals ---------------------------------------------------------------------------------------------------------


def without_plate(n: int) -> None:
    pyro.sample("A", dist.Bernoulli(0.5))


def fixed(n: int) -> None:
    with pyro.plate("units", 100):
        pyro.sample("A", dist.Bernoulli(0.5))


def outside(n: int) -> None:
    pyro.sample("A", dist.Bernoulli(torch.full((n,), 0.5)).to_event(1))


def one_by_one(n: int) -> None:
    for i in pyro.plate("units", n):
        pyro.sample(f"A_{i}", dist.Bernoulli(0.5))


def subsampled(size: int | None = None, **plate: Any) -> Callable[[int], None]:
    def program(n: int) -> None:
        with pyro.plate("units", size or n, **(plate or {"subsample_size": n})):
            pyro.sample("A", dist.Bernoulli(0.5))

    return program


def group_level(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
    pyro.sample("theta", dist.Normal(A.mean(), 1.0))


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (without_plate, "no per-unit sites.*Write it as program"),
        (fixed, "no per-unit sites.*size that it was called with"),
        (lambda n: None, "no per-unit sites"),
        (outside, r"'A' has a value for each of n units, but stands outside the plate"),
        (one_by_one, r"other sites for 61 units than for 53: A_53.*do not loop over units"),
        (subsampled(subsample_size=5), r"'A' stands in the plate 'units', which takes a subsample of 5 of 61 \(subsam"),
        (subsampled(subsample=torch.arange(5)), "which takes a subsample of 5 of 61"),
        (subsampled(10_000), "which takes a subsample of 61 of 10000"),
        (
            units(D=lambda v: v.A + torch.zeros(100)),
            r"failed when it was called with n=61 units: RuntimeError.*It must run for any number",
        ),
        (lambda: None, "failed when it was called with n=61 units: TypeError.*Write it as program"),
        (units(D=lambda v: v.A + 1 / 0), r"failed when it was called with n=61 units: ZeroDivisionError: [a-z ]+\.$"),
        (3, "A program is a function of the number of units, not 3"),
        (units(D=lambda v: v.A + torch.randn(v.n)), r"'D' differs from run to run.*name it, U = pyro.sample"),
        (group_level, "'theta' is drawn once, outside the plate of units, and yet reads.*: A"),
        (
            poutine.do(linear(HIRING), {"Q": torch.tensor(2.0)}),
            r"pyro\.poutine\.do sets 'Q' inside the program.*Use pyrofair\.do",
        ),
        (
            units(distance=lambda v: (v.A[:, None] - v.A).abs()),
            r"'distance' has the shapes \(61, 61\) for 61 units and \(53, 53\) for 53",
        ),
    ],
)
def test_programs_that_are_no_model_of_units_are_refused(program: Any, match: str) -> None:
    with pytest.raises(GraphError, match=match):
        read_sites(program)


def test_nodes_that_are_no_sites_are_refused() -> None:
    def program(n: int) -> None:
        pyro.sample("theta", dist.Normal(0.0, 1.0))
        linear(HIRING)(n)

    for nodes, match in [
        (["A", "Y", "theta"], "'theta' is drawn once, outside the plate of units, so it is a parameter and no node"),
        (["A", "Y", "m"], "no per-unit site 'm'. It has: U_Q, Q, .*Did you mean 'M'"),
        (["Y", "M"], "'A', named as the sensitive attribute, is not in the graph"),
    ]:
        with pytest.raises(GraphError, match=match):
            CausalGraph.from_pyro(program, nodes=nodes, sensitive="A", outcome="Y")


def test_the_warning_points_at_the_caller() -> None:
    with pytest.warns(PyrofairWarning) as caught:
        read_sites(units(Y=lambda v: torch.as_tensor(v.A.numpy())))
    assert [each.filename for each in caught] == [__file__]


# -- a step that fails is a refusal -----------------------------------------------------------------------------------

T = dist.transforms
DISTRIBUTIONS: dict[str, Callable[[], Any]] = {
    "Gumbel": lambda: dist.Gumbel(0.0, 1.0),
    "sigmoid inverted": lambda: dist.TransformedDistribution(dist.Uniform(0.0, 1.0), [T.SigmoidTransform().inv]),
    "tanh inverted": lambda: dist.TransformedDistribution(dist.Uniform(-1.0, 1.0), [T.TanhTransform().inv]),
    "two inverses": lambda: dist.TransformedDistribution(
        dist.Normal(0.0, 1.0), [T.ExpTransform(), T.AffineTransform(0.0, 2.0).inv, T.ExpTransform().inv.inv.inv]
    ),
}


def shifted(distribution: Callable[[], Any], prior: Callable[[], Any] | None = None) -> Program:
    """M is A plus noise from a distribution; a parameter from a prior moves all units alike."""
    return units(
        {} if prior is None else {"b": lambda _: prior()},
        U=lambda v: distribution(),
        M=lambda v: v.A + v.U + (0.0 if prior is None else v.b),
        Y=lambda v: dist.Bernoulli(logits=v.M),
    )


UNFAIR = through("M")


def both_readings(program: Program) -> list[Callable[[], Any]]:
    """The graph of a program, and its nodes in both worlds."""
    return [
        lambda: CausalGraph.from_pyro(program, nodes=["A", "M", "Y"], sensitive="A", outcome="Y").edges,
        lambda: SEM(program, UNFAIR).nodes(200, random_state=0),
    ]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("as_prior", [False, True])
def test_distributions_that_hold_their_own_inverse_are_read(name: str, as_prior: bool) -> None:
    normal = lambda: dist.Normal(0.0, 1.0)  # noqa: E731
    program = shifted(normal, DISTRIBUTIONS[name]) if as_prior else shifted(DISTRIBUTIONS[name])
    graph, nodes = both_readings(program)
    assert graph() == (("A", "M"), ("M", "Y"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)  # of a parameter without a posterior
        baseline, switched = nodes()
    assert (switched["M"] - baseline["M"]).round(5).unique().tolist() == [1.0]


@pytest.mark.parametrize("made", [T.SigmoidTransform, T.TanhTransform, lambda: T.AffineTransform(0.0, 2.0)])
def test_parents_are_found_behind_an_inverse(made: Callable[[], Any]) -> None:
    def distribution(A: Tensor, Q: Tensor) -> Any:
        class Hidden(dist.TransformedDistribution):  # type: ignore[misc]
            def log_prob(self, value: Tensor) -> Tensor:
                raise NotImplementedError

        return Hidden(dist.Uniform(0.0 * A, 1.0 + Q.abs()), [made().inv, T.AffineTransform(A, 1.0).inv])

    assert reads_of(distribution) == ("A", "Q")


READING = [
    "provenance.numbers_in",
    "provenance.get_provenance",
    "provenance.run_program",
    "provenance.signature",
    "checks.run_program",
    "checks.signature",
    "checks._near",
    "sites.run_program",
    "sites._shapes",
    "sites.follow",
    "sites.check_units",
    "sites.perturbed",
    "sites._unclear",
]


@pytest.mark.parametrize("error", [RecursionError, ValueError])
@pytest.mark.parametrize("step", READING)
def test_a_step_of_the_reading_that_fails_is_a_refusal(
    step: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error("no more")

    monkeypatch.setattr(f"pyrofair.programs.{step}", fail)
    for read in both_readings(shifted(lambda: dist.Normal(0.0, 1.0))):
        with pytest.raises(GraphError, match=f"{error.__name__}: no more"):
            read()


def test_a_distribution_that_cannot_be_read_is_named() -> None:
    class Broken(dist.Normal):  # type: ignore[misc]
        def log_prob(self, value: Tensor) -> Tensor:
            raise RecursionError("no density here")

    for read in both_readings(units(M=lambda v: Broken(v.A, 1.0), Y=lambda v: dist.Bernoulli(logits=v.M))):
        with pytest.raises(GraphError, match=r"distribution of the site 'M', Broken, .*: RecursionError: no den"):
            read()


def test_a_distribution_without_density_and_numbers_is_refused() -> None:
    class Closed(dist.Normal):  # type: ignore[misc]
        def __init__(self, A: Tensor) -> None:
            super().__init__(0.0, 1.0)
            self._batch_shape = A.shape
            self.hidden = SimpleNamespace(A=A)
            del self.loc, self.scale

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            return self

        def rsample(self, sample_shape: Any = ()) -> Tensor:
            return self.hidden.A + torch.randn(self._batch_shape)

        def log_prob(self, value: Tensor) -> Tensor:
            raise NotImplementedError("closed")

    with pytest.raises(
        GraphError, match="distribution of the site 'D', Closed, cannot be read: NotImplementedError: closed"
    ):
        reads_of(lambda A, Q: Closed(A.float()))


def refusing(condition: Callable[[Any], Any], text: str, value: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
    """Return a value, or an error where a condition on the values before it holds."""

    def made(v: Any) -> Tensor:
        if bool(condition(v)):
            raise ValueError(text)
        return value(v)

    return made


def test_values_that_never_go_together_are_passed_over() -> None:
    last = refusing(lambda v: (v.D < v.A).any(), "D is at least A", lambda v: torch.as_tensor(v.A.numpy()) + v.D)
    program = units(Q=normal(), D=lambda v: v.A + v.Q.exp(), Y=last)
    with pytest.warns(PyrofairWarning, match="'Y' reads 'A' in a way that torch does not show"):
        assert read_sites(program).reads == {"A": (), "Q": (), "D": ("A", "Q"), "Y": ("A", "D")}


def test_a_site_that_can_never_be_changed_alone_is_named() -> None:
    last = refusing(lambda v: not torch.equal(v.D, 2 * v.A), "D is twice A", lambda v: 1.0 * v.D)
    match = r"The sites that read the site 'A' cannot be seen.*after its site 'D': ValueError: D is"
    with pytest.raises(GraphError, match=match):
        read_sites(units(D=lambda v: 2 * v.A, Y=last))


def test_a_program_that_fails_with_other_units_is_refused() -> None:
    runs: list[Tensor] = []
    last = refusing(lambda v: runs.append(v.A) or len(runs) > 2, "too late", lambda v: 1.0 * v.A)  # type: ignore[func-returns-value]
    with pytest.raises(GraphError, match=r"Whether the program mixes units cannot be seen.*ValueError: too late"):
        read_sites(units(A=normal(), Y=last))


# -- the index of a unit -----------------------------------------------------------------------------------------------

KNOWN = torch.linspace(-1.0, 1.0, 3000)


@pytest.mark.parametrize(
    "distribution",
    [
        lambda A, Q: A * KNOWN[: len(A)] + Q,
        lambda A, Q: Q + (torch.arange(len(A)) == 17),
        lambda A, Q: A * torch.cat([torch.zeros(500), KNOWN])[: len(A)] + Q,
        lambda A, Q: dist.Normal(Q, 1.0 + torch.arange(len(A))),
        lambda A, Q: dist.Bernoulli(torch.linspace(0.1, 0.9, len(A))),
        lambda A, Q: torch.where(torch.arange(len(A)) < len(A) // 2, Q, A),
        lambda A, Q: torch.stack([Q, Q + torch.arange(len(A))], -1),
    ],
)
@pytest.mark.some(4)
def test_equations_that_depend_on_the_index_are_refused(distribution: Callable[[Tensor, Tensor], Any]) -> None:
    match = r"'D' depends on a unit's index among the n units.*with_covariates\(program, table\).*in place of x\[:n\]"
    with pytest.raises(GraphError, match=match):
        reads_of(distribution)


def test_indices_of_the_plate_are_indices() -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n) as place:
            A = pyro.sample("A", dist.Bernoulli(0.5))
            M = pyro.sample("M", dist.Normal(A * KNOWN[place], 1.0))
            pyro.sample("Y", dist.Bernoulli(logits=M))

    for read in both_readings(program):
        with pytest.raises(GraphError, match="'M' depends on a unit's index"):
            read()


@pytest.mark.parametrize("size", [1009, 997, 53, 61])
@pytest.mark.some(1)
def test_a_table_of_as_many_rows_as_units_is_no_index(size: int) -> None:
    weight = torch.arange(1.0, size + 1)
    program = units(K=lambda v: dist.Categorical(weight), Y=lambda v: v.A + weight[v.K])
    assert read_sites(program).reads["Y"] == ("A", "K")


SORTED = torch.cat([torch.zeros(2000), torch.ones(3000)])
LONG = torch.cat([torch.zeros(110_000), torch.ones(40_000)])
PLACE = "'M' depends on a unit's index among the n units, or on n"
LENGTH = r"A tensor of fixed length that it closes over.*with_covariates\(program, table\)"
ROWS = pd.DataFrame({"A": [0, 1], "M": [0.5, 2.5]})


def one_child(equation: Callable[[Tensor, int], Any]) -> Program:
    return units(U=normal(), M=lambda v: equation(v.A, v.n) + v.U)


@pytest.mark.parametrize(
    ("equation", "match"),
    [
        (lambda A, n: A * SORTED[:n], LENGTH),
        (lambda A, n: A * SORTED[torch.arange(n) % 5000], PLACE),
        (lambda A, n: A * SORTED.repeat(30)[:n], PLACE),
        (lambda A, n: A * (torch.arange(n) > 2000), PLACE),
        (lambda A, n: (1 - A) * (torch.arange(n) == 4321), PLACE),
        (lambda A, n: A * n / 100, PLACE),
        (lambda A, n: A * torch.ones(500)[:n], LENGTH),
        (lambda A, n: A * torch.ones(1000), LENGTH),
    ],
)
@pytest.mark.some(3)
def test_what_shows_beyond_the_first_thousand_units_is_refused(
    equation: Callable[[Tensor, int], Any], match: str
) -> None:
    sem = SEM(one_child(equation), UNFAIR)
    asked: list[Callable[[], Any]] = [
        lambda: sem.nodes(3),
        lambda: sem.counterfactual(ROWS),
        lambda: abduct(sem.program, ROWS),
        lambda: CausalGraph.from_pyro(sem.program, nodes=["A", "M"], sensitive="A", outcome="M"),
    ]
    for ask in asked:
        with pytest.raises(GraphError, match=f"(?s){match}"):
            ask()


@pytest.mark.parametrize("unit", ["noise", "shared"])
def test_equations_are_compared_at_the_number_of_units_that_a_result_takes(unit: Any) -> None:
    program = one_child(lambda A, n: A * LONG[:n])
    sem = SEM(program, UNFAIR, unit=unit, draws=2)
    baseline, _ = sem.worlds(1000, random_state=0)
    assert len(baseline.rows) == (1000 if unit == "noise" else 2000)
    with pytest.raises(GraphError, match=f"{PLACE}: for n=120000"):
        sem.worlds(120_000 if unit == "noise" else 60_000, random_state=0)
    odd = one_child(lambda A, n: A * (2 if n == 7 else 1))
    posterior = {"U": np.zeros((2, 7))}
    rows = pd.DataFrame({"A": [0.0, 1.0] * 4, "M": np.arange(8.0)})
    other = SEM(odd, UNFAIR, unit="noise")
    assert len(other.nodes(8, random_state=0)[0]) == len(abduct(odd, rows).do({"A": 1}).rows) == 8
    asked: list[Callable[[], Any]] = [
        lambda: other.nodes(7),
        lambda: other.counterfactual(rows[:7]),
        lambda: abduct(odd, rows[:7]),
        lambda: predictive(odd, posterior, n=7),
    ]
    for ask in asked:
        with pytest.raises(GraphError, match=f"{PLACE}: for n=7"):
            ask()


def test_comparing_equations_changes_no_number() -> None:
    program = one_child(lambda A, n: 2 * A)
    sem = SEM(program, UNFAIR)
    first, second = (sem.nodes(5, random_state=0)[0] for _ in range(2))  # compared in the first call alone
    pd.testing.assert_frame_equal(first, second)
    before = torch.random.get_rng_state()
    read_sites(program).confirm(12)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_values_that_never_go_together_do_not_hide_an_index() -> None:
    last = refusing(
        lambda v: ((v.D - 1) * 100 < v.A).any() | (v.D > 3).any() | (v.D < 1).any(),
        "D is 1 or 3",
        lambda v: v.A + v.D * (torch.arange(v.n) == 40),
    )
    with pytest.raises(GraphError, match=PLACE):
        read_sites(units(A=coin(0.02), D=lambda v: 2 * v.A + 1, M=last))


def test_data_of_another_number_of_units_are_named_as_such() -> None:
    program = poutine.condition(one_child(lambda A, n: A), data={"U": torch.zeros(1000)})
    with pytest.raises(GraphError, match=LENGTH) as caught:
        read_sites(program)
    assert "Rows of data are handed over as a table" in str(caught.value)


# -- how often the program runs ---------------------------------------------------------------------------------------


def counted(sites: int, vector: bool = False, parameter: bool = False) -> tuple[Program, list[int]]:
    """Return a chain of so many sites, drawn and computed in turn, and the list of the runs of its program."""
    runs: list[int] = []

    def program(n: int) -> None:
        runs.append(n)
        b = pyro.sample("b", dist.Normal(0.0, 1.0)) if parameter else 1.0
        with pyro.plate("units", n):
            value = pyro.sample("X0", dist.Bernoulli(0.5))
            if vector:
                pyro.sample("V", dist.Normal(value[..., None] * torch.ones(3), 1.0).to_event(1))
            for i in range(1, sites):
                drawn = pyro.sample(f"X{i}", dist.Normal(b * value, 1.0)) if i % 2 else None
                value = pyro.deterministic(f"X{i}", value + 1.0) if drawn is None else drawn

    return program, runs


@pytest.mark.parametrize("sites", [3, 12, 40])
@pytest.mark.parametrize("vector", [False, True])
def test_a_graph_takes_few_runs_of_any_program(sites: int, vector: bool) -> None:
    program, runs = counted(sites, vector)
    nodes = [f"X{i}" for i in range(sites)] + ["V"] * vector
    graph = CausalGraph.from_pyro(program, nodes=nodes, sensitive="X0", outcome=f"X{sites - 1}")
    assert len(graph.edges) == sites - 1 + vector
    assert len(runs) <= 9


def test_another_number_of_units_takes_one_run_once() -> None:
    program, runs = counted(12)
    found = read_sites(program)
    runs.clear()
    found.confirm(5)
    found.confirm(5)
    assert runs == [5]


@pytest.mark.parametrize("sites", [3, 12, 40])
@pytest.mark.parametrize("posterior", [False, True])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.some(5)
def test_units_in_both_worlds_take_few_runs_of_any_program(sites: int, vector: bool, posterior: bool) -> None:
    program, runs = counted(sites, vector, posterior)
    chain = " -> ".join(f"X{i}" for i in range(sites))
    columns = {"V": ["V0", "V1", "V2"]} if vector else None
    graph = CausalGraph(chain + "; X0 -> V" * vector, sensitive="X0", outcome=f"X{sites - 1}", columns=columns)
    sem = SEM(program, graph.unfair(chain), posterior={"b": torch.randn(40)} if posterior else None)
    assert len(sem.nodes(5, random_state=0)[0]) == 5
    assert runs[-1] == 5
    assert len(runs) <= 19  # eight of which try both worlds with a few units
    runs.clear()
    sem.nodes(5, random_state=1)
    assert len(runs) == 1


def test_large_values_are_finite_though_their_sum_is_not() -> None:
    require_finite("M", torch.full((4,), 3e38))
    for values in ([1.0, np.nan], [np.inf, 0.0], [np.inf, -np.inf]):
        with pytest.raises(DataError, match="'M'"):
            require_finite("M", torch.tensor(values))
