"""Both worlds of random programs and sets of paths against arithmetic without Pyro, and exact cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pyrofair import CausalGraph, NotIdentifiedError, UnfairPaths
from pyrofair._random import isolated
from pyrofair.graph.parse import EdgeList
from pyrofair.programs.couplings import COUPLINGS, Coupling, Noise, Observed
from pyrofair.programs.provenance import Program
from pyrofair.programs.structural_equations import Equations, State, read_equations
from pyrofair.programs.worlds import (
    Evaluation,
    World,
    WorldAxisError,
    both_worlds,
    choose_strategy,
    factual,
    sequential_worlds,
    vectorised_worlds,
)
from tests.programs.models import graph, kite, normal, units

EXPLICIT = ("linear", "threshold", "product", "floor")
SEEDS = 30
IMPLICIT = ("bernoulli", "poisson", "normal", "step")


# -- programs at random, and the same arithmetic without Pyro ---------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A random DAG with an equation for each node; a latent H may feed two nodes."""

    parents: dict[str, tuple[str, ...]]
    form: dict[str, str]
    weight: dict[tuple[str, str], float]
    shift: dict[str, float]
    fed: tuple[str, ...]
    declared: bool

    @classmethod
    def draw(cls, seed: int, forms: tuple[str, ...] = EXPLICIT + IMPLICIT) -> Model:
        random = np.random.default_rng(seed)
        k = int(random.integers(4, 7))
        order = [f"V{i}" for i in range(k)]
        order[-1], order[int(random.integers(0, 2))] = "Y", "A"
        parents = {v: tuple(p for p in order[:i] if random.random() < 0.75) for i, v in enumerate(order)}
        if "A" not in parents["Y"]:
            parents["Y"] += ("A",)
        binary = [each for each in forms if each in ("bernoulli", "threshold")]
        form = {v: str(random.choice(binary if v == "A" else forms)) for v in order}
        weight = {(p, v): float(random.choice([-1.5, -0.5, 0.5, 1.0, 2.0])) for v, own in parents.items() for p in own}
        shift = {v: float(random.normal()) for v in order}
        fed = tuple(str(v) for v in random.choice(order, 2, replace=False)) if random.random() < 0.4 else ()
        return cls(parents, form, weight, shift, fed, bool(random.random() < 0.5))

    @cached_property
    def graph(self) -> CausalGraph:
        edges = [(p, v) for v, own in self.parents.items() for p in own]
        hidden = ("H",) if self.fed and self.declared else ()
        edges = [(h, v) for h in hidden for v in self.fed] + edges
        return CausalGraph(EdgeList((*hidden, *self.parents), tuple(edges), hidden), sensitive="A", outcome="Y")

    def unfair(self, seed: int) -> UnfairPaths:
        every = self.graph.directed_paths("A", "Y")
        keep = np.random.default_rng(seed).random(len(every)) < 0.5
        return self.graph.unfair(*itertools.compress(every, keep))

    def drive(self, node: str, value: Mapping[str, Tensor], h: Tensor | None) -> Tensor:
        total = torch.tensor(self.shift[node])
        for parent in self.parents[node]:
            total = total + self.weight[parent, node] * value[parent]
        return total + h if h is not None and node in self.fed else total

    def program(self, n: int) -> None:
        value: dict[str, Tensor] = {}
        with pyro.plate("units", n):
            h = pyro.sample("H", dist.Normal(0.0, 1.0)) if self.fed else None
            for node in self.parents:
                x = self.drive(node, value, h)
                form = self.form[node]
                if form in EXPLICIT:
                    u = pyro.sample(f"U_{node}", dist.Normal(0.0, 1.0))
                    value[node] = pyro.deterministic(node, explicit(form, x, u))
                elif form == "bernoulli":
                    value[node] = pyro.sample(node, dist.Bernoulli(logits=x))
                elif form == "poisson":
                    value[node] = pyro.sample(node, dist.Poisson(x.clamp(-2, 2).exp()))
                elif form == "normal":
                    value[node] = pyro.sample(node, dist.Normal(x, 1.0))
                else:
                    value[node] = pyro.deterministic(node, 2 * pyro.sample(f"E_{node}", dist.Normal(x, 1.0)))


def explicit(form: str, x: Tensor, u: Tensor) -> Tensor:
    if form == "linear":
        return x + u
    if form == "threshold":
        return (x + u > 0).float()
    return x * u if form == "product" else torch.floor(x * u)


def parameter_of(form: str, x: Tensor) -> Tensor:
    if form == "bernoulli":
        return torch.sigmoid(x)
    return x.clamp(-2, 2).exp() if form == "poisson" else x


def implicit(form: str, x: Tensor, u: Tensor) -> Tensor:
    if form == "bernoulli":
        return (u > 1 - parameter_of(form, x)).float()
    if form == "poisson":
        return torch.tensor(stats.poisson(parameter_of(form, x).double()).ppf(u.double())).float()
    value = torch.distributions.Normal(x, 1.0).icdf(u)
    return value if form == "normal" else 2 * value


def by_hand(model: Model, unfair: UnfairPaths, noise: Noise) -> tuple[World, World]:
    """Evaluate the outcome's every ancestor along every path, by the definition, without Pyro."""
    h = noise.values.get("H")
    low = unfair.regimes[0].on_fair
    memo: dict[Any, Tensor] = {}

    def driven(node: str, way: tuple[str, ...], world: int) -> Tensor:
        regime = unfair.regimes[world]
        value = {
            p: torch.full((noise.n,), float(regime.value(("A", node, *way)) if world else low))
            if p == "A"
            else at(p, (node, *way), world)
            for p in model.parents[node]
        }
        return model.drive(node, value, h)

    def at(node: str, way: tuple[str, ...], world: int) -> Tensor:
        if (node, way, world) not in memo:
            memo[node, way, world] = evaluate(node, way, world)
        return memo[node, way, world]

    def evaluate(node: str, way: tuple[str, ...], world: int) -> Tensor:
        x, form = driven(node, way, world), model.form[node]
        if form in EXPLICIT:
            return explicit(form, x, noise.values[f"U_{node}"]).expand(noise.n)
        first, second = noise.pairs.get(f"E_{node}" if form == "step" else node, (None, None))
        if first is None:  # its distribution depends on no node, so that it is noise itself
            value = noise.values[f"E_{node}" if form == "step" else node]
            return 2 * value if form == "step" else value
        as_base = parameter_of(form, x) == parameter_of(form, driven(node, way, 0))
        u = first if world == 0 else torch.where(as_base, first, second)
        return implicit(form, x, u)

    found: tuple[World, World] = ({}, {})
    for node in model.parents:
        ways = model.graph.directed_paths(node, "Y")
        if node != "A" and ways:
            way = min(ways, key=len)[1:]
            for world in (0, 1):
                found[world][node] = at(node, way, world)
    return found


def assert_same(one: tuple[World, World], other: tuple[World, World]) -> None:
    for left, right in zip(one, other, strict=True):
        for site in set(left) & set(right):
            torch.testing.assert_close(left[site], right[site], rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:The nodes .* in common, which the graph does not hold")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.some(10)
def test_random_programs(seed: int) -> None:
    model = Model.draw(seed)
    equations = read_equations(model.program, model.unfair(seed))
    unfair = equations.unfair
    for node, parents in model.parents.items():
        assert set(equations.causes[node]) - {"H"} == set(parents)
    n = (30, 2, 3)[seed % 3]
    for coupling in ("monotone", COUPLINGS[seed % 3]):
        for chosen in (unfair, unfair.reversed()):
            chosen_equations = replace(equations, unfair=chosen)
            with isolated(seed):
                noise = Noise(n, coupling)
                slow = sequential_worlds(chosen_equations, noise)
                assert set(slow[0]) == set(chosen_equations.sites)
                assert_same(slow, by_hand(model, chosen, noise))
                if unfair.recanting_witnesses():
                    with pytest.raises(NotIdentifiedError, match="recanting witness"):
                        vectorised_worlds(chosen_equations, noise)
                    continue
                for broadcast in (False, True):
                    fast = vectorised_worlds(chosen_equations, noise, broadcast=broadcast)
                    assert set(fast[0]) == set(slow[0])
                    assert_same(slow, fast)
                wanted = [site for site in equations.sites if equations.node_of[site] in unfair.graph.inputs]
                alone = vectorised_worlds(chosen_equations, Noise(n, coupling, seed=noise.seed), wanted, broadcast=True)
                assert set(alone[0]) == set(wanted)
                assert_same(slow, alone)


def test_random_programs_cover_what_they_should() -> None:
    models = [Model.draw(seed) for seed in range(SEEDS)]
    forms = {form for model in models for node, form in model.form.items() if node not in "AY"}
    assert forms == {*EXPLICIT, *IMPLICIT}
    witnesses = [bool(model.unfair(seed).recanting_witnesses()) for seed, model in enumerate(models)]
    assert 8 <= sum(witnesses) <= SEEDS - 8
    assert any(model.parents["A"] for model in models)
    assert any(model.fed and model.declared for model in models)
    assert any(model.fed and not model.declared for model in models)


# -- distributions ----------------------------------------------------------------------------------------------------


DIAMOND = graph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y")


def evaluate(
    program: Program, unfair: UnfairPaths, n: int = 200, coupling: Coupling = "monotone"
) -> tuple[World, World]:
    equations = read_equations(program, unfair)
    with isolated(0):
        noise = Noise(n, coupling)
        slow = sequential_worlds(equations, noise)
        if choose_strategy(equations, coupling) != "sequential":
            assert_same(slow, vectorised_worlds(equations, noise))
    return slow


# -- exact cases ------------------------------------------------------------------------------------------------------


linear = units(
    u_a=normal(),
    u_m=normal(),
    u_y=normal(),
    A=lambda v: (v.u_a > 0).float(),
    M=lambda v: 2 * v.A + v.u_m,
    Y=lambda v: v.A + 3 * v.M + v.u_y,
)
LINEAR, KITE = graph("A -> M -> Y; A -> Y"), graph("A -> M1; M1 -> M2; {A M1 M2} -> Y")


@pytest.mark.parametrize(
    ("program", "of", "paths", "effect"),
    [
        (linear, LINEAR, ["A -> Y", "A -> M -> Y"], 7),
        (linear, LINEAR, ["A -> Y"], 1),
        (linear, LINEAR, ["A -> M -> Y"], 6),
        (kite, KITE, ["A -> M1 -> M2 -> Y"], 10),
        (kite, KITE, ["A -> M1 -> Y"], 1),
        (kite, KITE, ["A -> Y"], 1),
        (kite, KITE, ["A -> Y", "A -> M1 -> Y", "A -> M1 -> M2 -> Y"], 12),
    ],
)
def test_b1_linear_and_b5_kite(program: Program, of: CausalGraph, paths: list[str], effect: float) -> None:
    for unfair, sign in ((of.unfair(*paths), 1.0), (of.unfair(*paths).reversed(), -1.0)):
        first, second = evaluate(program, unfair)
        allowed = 1e-5 if of is LINEAR else 1e-4  # a longer chain of single-precision sums
        torch.testing.assert_close(second["Y"] - first["Y"], torch.full((200,), sign * effect), rtol=0, atol=allowed)


# -- what programs may look like --------------------------------------------------------------------------------------

SOME = DIAMOND.unfair("A -> Y", "A -> D -> Y")


def diamond(step: Callable[[Tensor, Tensor], Tensor]) -> Program:
    return units(
        Q=normal(),
        U_D=normal(),
        U_M=normal(),
        D=lambda v: step(v.A, v.Q) + v.U_D,
        M=lambda v: step(v.A, v.Q) * 2 + v.U_M,
        Y=lambda v: v.A + v.Q + v.D + v.M,
    )


def with_numpy(A: Tensor, Q: Tensor) -> Tensor:
    return torch.as_tensor(np.where(A.numpy() > 0, Q.numpy(), 0.0))


def turned(A: Tensor, Q: Tensor) -> Tensor:
    """Mix up units and worlds if there are as many."""
    found = A * Q
    return found.mT if found.ndim > 1 and found.shape[-1] == found.shape[-2] else found


def in_rows(A: Tensor, Q: Tensor) -> Tensor:
    return torch.as_tensor([a * q for a, q in zip(A.tolist(), Q.tolist(), strict=True)])


@pytest.mark.parametrize(
    ("step", "way"),
    [
        (lambda A, Q: A * Q, "broadcast"),
        (lambda A, Q: torch.where(A > 0, Q, 0 * Q), "broadcast"),
        (lambda A, Q: torch.tensor([0.5, 2.0])[A.long()] * Q, "broadcast"),
        (lambda A, Q: torch.nn.functional.one_hot(A.long(), 2)[..., 1] * Q, "broadcast"),
        (lambda A, Q: torch.tensor([0.5, 2.0])[A.long()], "broadcast"),
        (lambda A, Q: torch.stack([A, Q.expand_as(A)], -1).prod(-1), "vectorised"),
        (lambda A, Q: torch.stack([A, Q], -1).prod(-1), "sequential"),
        (lambda A, Q: (A.reshape(len(Q), 1) * Q.reshape(len(Q), 1)).reshape(len(Q)), "sequential"),
        (lambda A, Q: (A[:, None] * Q[:, None]).sum(1), "sequential"),
        (turned, "sequential"),
    ],
)
def test_a_program_that_carries_no_world_axis_along_is_run_node_by_node(
    step: Callable[[Tensor, Tensor], Tensor], way: str
) -> None:
    program = diamond(step)
    equations = read_equations(program, SOME)
    assert choose_strategy(equations, "monotone") == way
    with isolated(0):
        noise = Noise(50, "monotone")
        first, second = sequential_worlds(equations, noise)
        assert torch.equal(first["M"], second["M"])
        ones, zeros = torch.ones(50), torch.zeros(50)
        gap = step(ones, noise.values["Q"]) - step(zeros, noise.values["Q"])
        torch.testing.assert_close(second["D"] - first["D"], gap)
        torch.testing.assert_close(second["Y"] - first["Y"], 1 + gap, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [with_numpy, in_rows])
def test_equations_outside_torch(step: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.warns(UserWarning, match="in a way that torch does not show"):
        equations = read_equations(diamond(step), SOME)
    with isolated(0):
        noise = Noise(50, "monotone")
        first, second = sequential_worlds(equations, noise)
        if choose_strategy(equations, "monotone") != "sequential":
            assert_same((first, second), vectorised_worlds(equations, noise))
    torch.testing.assert_close(second["D"] - first["D"], noise.values["Q"])


def test_a_site_that_changes_its_shape_later_is_caught() -> None:
    program = diamond(lambda A, Q: A * Q if Q.shape[-1] < 60 else (A * Q).flatten()[: Q.shape[-1]])
    equations = read_equations(program, SOME)
    assert choose_strategy(equations, "monotone") == "broadcast"
    big = diamond(lambda A, Q: (A * Q).unsqueeze(0))
    with (
        isolated(0),
        pytest.raises(WorldAxisError, match=r"'D' has the shape \(1, 2, 50\) in 2 worlds, and \(50,\) in one"),
    ):
        vectorised_worlds(replace(equations, program=big), Noise(50, "monotone"))
    odd = replace(equations, program=diamond(lambda A, Q: (A * Q).unsqueeze(0) if A.ndim > 1 else A * Q))
    with isolated(0):
        noise = Noise(50, "monotone")
        assert_same(both_worlds(odd, noise, strategy="vectorised"), sequential_worlds(equations, noise))


@pytest.mark.filterwarnings("ignore:The nodes .* in common, which the graph does not hold")
def test_steps_between_nodes_latent_mediators_vectors_and_nodes_without_effect() -> None:
    program = units(
        {"scale": lambda v: dist.LogNormal(0.0, 0.1)},
        A=lambda v: dist.Categorical(torch.tensor([0.4, 0.6])),
        V=lambda v: dist.Normal(torch.zeros(3), 1.0).to_event(1),
        L=lambda v: dist.Normal(v.A + v.V[..., 0], v.scale),  # a latent mediator
        E=lambda v: dist.Poisson((0.3 * v.A).exp()),  # a step that is no node
        step=lambda v: 2 * v.E,
        D=lambda v: v.L + v.step + v.V[..., 1],
        M=lambda v: v.L - v.step + v.A,
        W=lambda v: v.D + 10 * v.A,  # leads nowhere
        Z=lambda v: dist.Normal(v.M, 1.0),  # neither
        Y=lambda v: v.D + v.M + v.A,
    )
    edges = "A -> L; {A L} -> D; {A L} -> M; {A D} -> W; M -> Z; {A D M} -> Y"
    unfair = graph(edges, latent=["L"]).unfair("A -> D -> Y", "A -> L -> D -> Y", "A -> L -> M -> Y")
    equations = read_equations(program, unfair)
    assert equations.info.parameters == ("scale",)
    assert equations.endogenous == {"L", "E", "Z"}
    with isolated(3):
        noise = Noise(300, "antithetic")
        slow = sequential_worlds(equations, noise)
        assert_same(slow, vectorised_worlds(equations, noise))
    first, second = slow
    # D reads the step with A = 1, M with A = 0, although it is one site.
    rise = (second["D"] - first["D"]) - (second["L"] - first["L"])
    assert bool((rise != 0).any())
    torch.testing.assert_close(second["M"] - first["M"], second["L"] - first["L"])
    torch.testing.assert_close(second["W"] - first["W"], second["D"] - first["D"], rtol=1e-4, atol=1e-5)


def test_a_node_of_several_columns_of_which_one_reads_another() -> None:
    program = units(
        u1=normal(),
        s1=lambda v: v.A + v.u1,
        s2=lambda v: dist.Poisson((0.1 * v.s1).exp() + v.A),
        D=lambda v: v.s1 + v.s2,
        Y=lambda v: v.D + v.s2 + v.A,
    )
    both = graph("A -> S -> D -> Y; A -> Y; S -> Y", columns={"S": ["s1", "s2"]})
    for paths in (["A -> S -> D -> Y", "A -> S -> Y"], ["A -> S -> D -> Y"], ["A -> Y"]):
        first, second = evaluate(program, both.unfair(*paths))
        switched = "A -> S -> Y" in paths  # the columns of S are shown as Y reads them
        torch.testing.assert_close(second["s1"] - first["s1"], torch.full((200,), float(switched)))


def test_memory_is_linear_in_worlds() -> None:
    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for each in out if isinstance(out, tuple) else (out,):
                if isinstance(each, Tensor):
                    self.size = max(self.size, each.untyped_storage().nbytes() // each.element_size())
            return out

    model = Model.draw(7, forms=EXPLICIT)
    seed = next(s for s in range(50) if not model.unfair(s).recanting_witnesses() and model.unfair(s).paths)
    equations = read_equations(model.program, model.unfair(seed))
    with isolated(0), Largest() as largest:
        vectorised_worlds(equations, Noise(1000, "monotone"))
    assert largest.size <= 3 * 1000


# -- the world as it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(8)
def test_units_of_each_group_are_as_in_the_world_of_their_group(seed: int, coupling: Coupling) -> None:
    model = Model.draw(seed)
    equations = read_equations(model.program, model.graph.unfair(predicate=lambda path: True))
    with isolated(seed):
        noise = Noise(200, coupling)
        baseline, contrast = sequential_worlds(equations, noise)
        seen = factual(equations, noise)
    for site in equations.sites:
        if "Y" in (site, *model.graph.descendants(site)):
            expected = torch.where(seen["A"] == 0, baseline[site], contrast[site])
            torch.testing.assert_close(seen[site], expected, rtol=0, atol=0, equal_nan=True)


# -- several nodes in one run -----------------------------------------------------------------------------------------


class NodeByNode(Evaluation):
    """The definition: each node by a run of its own."""

    def _runs(
        self, equations: Equations, needed: Iterable[tuple[str, State]]
    ) -> Iterator[tuple[dict[str, State], dict[str, State | int]]]:
        for site, state in needed:
            yield {site: state}, {**dict(zip(equations.causes[site], state.parts, strict=True)), site: state}


def observe(equations: Equations, noise: Noise) -> None:
    """Let units be observed as they are."""
    seen = {site: value.expand(noise.n) for site, value in factual(equations, noise).items()}
    noise.observed = Observed(seen, dict(seen), {})


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(6)
def test_nodes_of_one_run_are_as_node_by_node(seed: int, observed: bool) -> None:
    model = Model.draw(seed)
    equations = read_equations(model.program, model.unfair(seed))
    longest = 0
    for coupling in COUPLINGS:
        with isolated(seed):
            noise = Noise(100, coupling)
            if observed and coupling in ("monotone", "gumbel"):
                observe(equations, noise)
            sites = [site for site in equations.sites if site in equations.node_of]
            one, other = Evaluation.of(equations, noise), NodeByNode.of(equations, noise)
            assert_same(other.worlds(equations, sites), one.worlds(equations, sites))
            for switched in (False, True):
                few = sites[-2:]
                alone = one.world(equations, few, switched=switched)
                expected = other.worlds(equations, few)[switched]
                for site in few:
                    torch.testing.assert_close(alone[site], expected[site], rtol=0, atol=0, equal_nan=True)
            base = equations.states(equations.unfair.regimes[0])
            runs = [*one._runs(equations, equations.in_order({site: base[site] for site in sites}, {}))]
            longest = max(longest, *(len(nodes) for nodes, _ in runs))
            if coupling in ("independent", "antithetic"):  # one node's distribution must be met before another's
                assert all(len(nodes) == 1 for nodes, _ in runs)
    assert longest > 1


def test_a_node_that_reads_both_arms_starts_another_run() -> None:
    """M is read as in the baseline by D, whose switched value Y reads besides the switched M: two states of M."""
    program = units(
        M=lambda v: dist.Normal(v.A, 1.0),
        D=lambda v: dist.Normal(2.0 * v.A + 3.0 * v.M, 1.0),
        Y=lambda v: dist.Normal(5.0 * v.M + 7.0 * v.D, 1.0),
    )
    unfair = graph("A -> M; A -> D; M -> D; M -> Y; D -> Y").unfair("A -> D -> Y", "A -> M -> Y")
    equations = read_equations(program, unfair)
    for observed in (False, True):
        with isolated(0):
            noise = Noise(50, "monotone")
            if observed:
                observe(equations, noise)
            grouped = Evaluation.of(equations, noise).worlds(equations, ["M", "D", "Y"])
            apart = NodeByNode.of(equations, noise).worlds(equations, ["M", "D", "Y"])
        assert_same(grouped, apart)
        rise = torch.full((50,), 5.0 + 7.0 * 2.0)
        torch.testing.assert_close(grouped[1]["Y"] - grouped[0]["Y"], rise, atol=1e-4, rtol=0)
