"""Estimates against structural equation models solved by enumeration, written here without the package's formulas.

Each model has finite noise, so a potential outcome is a finite sum over the noise, by its definition: the recursion
over paths in which the sensitive attribute takes the value that each path carries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from pyrofair import IPW, CausalGraph, FormulaNotApplicableError, NotIdentifiedError, OneStep, identify
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.graph.identification import RegimeEstimand, Target
from pyrofair.graph.paths import Path, Regime, UnfairPaths

# The tables list the cells of a distribution, a row each: few rows, whose number has no meaning.
pytestmark = pytest.mark.filterwarnings("ignore:Poor overlap:pyrofair.exceptions.PositivityWarning")

Values = NDArray[np.int64]
Probabilities = NDArray[np.float64]
GROUPS = ("paper", 0, 1, "pooled")
TARGETS: tuple[Target, Target] = ("prediction", "outcome")


# --- models with finite noise ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sem:
    """``equation[node][values of its parents, noise]`` is a node's value, ``score[values of the inputs]`` a classifier.

    A node with four levels stands for two binary columns.
    """

    graph: CausalGraph
    noise: Mapping[str, Probabilities]
    equation: Mapping[str, Values]
    score: Probabilities

    @cached_property
    def units(self) -> tuple[dict[str, Values], Probabilities]:
        """Every combination of noise, and its probability."""
        grid = np.meshgrid(*(np.arange(len(p)) for p in self.noise.values()), indexing="ij")
        noise = {name: axis.ravel() for name, axis in zip(self.noise, grid, strict=True)}
        return noise, np.prod([p[noise[name]] for name, p in self.noise.items()], axis=0)

    def read(self, regime: Regime | None, node: str, suffix: Path = ()) -> Values:
        """The value of a node for every unit, as read along the rest of a path; without a regime, as observed."""
        graph, (noise, weight) = self.graph, self.units
        if node == graph.sensitive and regime is not None and suffix:
            return np.full(len(weight), regime.value((node, *suffix)))
        parents = (self.read(regime, parent, (node, *suffix)) for parent in graph.parents(node))
        return self.equation[node][(*parents, noise[node])]

    def target(self, regime: Regime, target: Target = "prediction") -> NDArray[np.float64]:
        """P(Y = 1) of every unit: of the prediction, or of the model's own outcome."""
        outcome = self.graph.outcome
        if target == "outcome":
            return self.read(regime, outcome).astype(np.float64)
        return self.score[tuple(self.read(regime, node, (outcome,)) for node in self.graph.inputs)]

    def truth(self, regime: Regime, target: Target = "prediction") -> float:
        """P(Y = 1)."""
        return float(self.units[1] @ self.target(regime, target))

    @cached_property
    def joint(self) -> Probabilities:
        """The distribution of the observed nodes, an axis for each in the order of ``graph.observed``."""
        nodes = self.graph.observed
        p = np.zeros([int(self.equation[node].max()) + 1 for node in nodes])
        np.add.at(p, tuple(self.read(None, node) for node in nodes), self.units[1])
        return p

    @cached_property
    def table(self) -> tuple[pd.DataFrame, Probabilities]:
        """A row for each cell of the observed nodes, and its probability."""
        cells = np.argwhere(self.joint > 0)
        frame = pd.DataFrame(index=range(len(cells)))
        for node, codes in zip(self.graph.observed, cells.T, strict=True):
            names = self.graph.columns[node]
            frame[names] = codes[:, None] if len(names) == 1 else np.column_stack([codes // 2, codes % 2])
        return frame, self.joint[tuple(cells.T)]

    def scores_of(self, rows: pd.DataFrame) -> Probabilities:
        columns = [rows[self.graph.columns[node]].to_numpy() for node in self.graph.inputs]
        codes = [c[:, 0] if c.shape[1] == 1 else 2 * c[:, 0] + c[:, 1] for c in columns]
        return self.score[tuple(codes)]

    def estimate(self, world: CounterfactualSample) -> float:
        return float(world.weight @ self.scores_of(world.rows))

    def by_formula(self, part: RegimeEstimand, target: Target) -> float:
        return g_formula(part, target, self.graph.observed, self.joint, self.score)


def g_formula(part: RegimeEstimand, target: Target, nodes: Path, joint: Probabilities, score: Probabilities) -> float:
    """P(Y = 1) by the factors of an estimand, from the joint distribution of the observed nodes, an axis for each."""
    graph = part.regime.unfair.graph
    axis = {node: i for i, node in enumerate(nodes)}
    sensitive = axis[graph.sensitive]

    def factor_of(node: str, given: Path, arm: int | None) -> Probabilities:
        kept = {node, *given, *([graph.sensitive] if arm is not None else [])}
        both = joint.sum(axis=tuple(axis[other] for other in nodes if other not in kept), keepdims=True)
        own = both / both.sum(axis=axis[node], keepdims=True)
        return own if arm is None else own.take([arm], axis=sensitive)

    total = np.ones([1] * len(nodes))
    for factor in part.factors:
        total = total * factor_of(factor.node, factor.given, factor.arm)
    if target == "outcome":
        own = factor_of(graph.outcome, part.outcome_given, part.outcome_arm).take([1], axis=axis[graph.outcome])
    else:
        own = score.transpose(np.argsort([axis[node] for node in graph.inputs]))
        own = np.expand_dims(own, tuple(axis[node] for node in nodes if node not in graph.inputs))
        if part.outcome_arm is not None:
            own = own.take([part.outcome_arm], axis=sensitive)
    return float((total * own).sum())


def random_model(graph: CausalGraph, rng: np.random.Generator, size: int = 3, most: int = 3) -> Sem:
    """Random equations of up to ``most`` levels in which every value of a node occurs whatever its parents are."""
    levels = dict.fromkeys(graph.nodes, 2)
    for node in graph.nodes:
        if node in graph.latent:
            levels[node] = 3
        elif node not in (graph.sensitive, graph.outcome):
            levels[node] = 4 if len(graph.columns[node]) == 2 else min(most, int(rng.choice([2, 2, 3])))
    noise, equation = {}, {}
    for node in graph.nodes:
        shape = [levels[parent] for parent in graph.parents(node)]
        values = max(size, levels[node]) if shape else levels[node]
        noise[node] = rng.dirichlet(np.ones(values)) * 0.7 + 0.3 / values
        once = np.broadcast_to(np.arange(levels[node]), (*shape, levels[node]))
        more = rng.integers(levels[node], size=(*shape, values - levels[node]))
        equation[node] = rng.permuted(np.concatenate([once, more], axis=-1), axis=-1)
    return Sem(graph, noise, equation, rng.uniform(size=[levels[node] for node in graph.inputs]))


def random_graph(rng: np.random.Generator, *, causes: int = 0, mediators: int = 0) -> CausalGraph:
    """A random graph, with latent common causes and latent mediators, its edges declared in random order."""
    letters = rng.permutation(list("BCDEFGHIJKLMN"))[: rng.integers(3, 6 - causes)].tolist()
    at = int(rng.integers(0, 3))
    order = [*letters[:at], "A", *letters[at:], "Y"]
    edges = [pair for pair in combinations(order, 2) if rng.random() < 0.55]
    for number in range(causes):
        edges += [(f"U{number}", str(node)) for node in rng.choice(order, size=2, replace=False)]
    directed = nx.DiGraph(edges)
    directed.add_nodes_from("AY")
    hidden = rng.choice(letters, size=mediators, replace=False).tolist()
    if not nx.has_path(directed, "A", "Y") or {*directed.predecessors("Y")} <= {*hidden, "U0", "U1"}:
        edges.append(("A", "Y"))
    edges = [edges[i] for i in rng.permutation(len(edges))]
    inner = sorted({node for edge in edges for node in edge} & {*letters} - {*hidden})
    double = {node: [f"{node} one", f"{node} two"] for node in inner if rng.random() < 0.15}
    latent = [node for node in (*hidden, "U0", "U1") if any(node in edge for edge in edges)]
    return CausalGraph(edges, sensitive="A", outcome="Y", columns=double, latent=latent)


def random_unfair(graph: CausalGraph, rng: np.random.Generator) -> UnfairPaths:
    """Paths through a random set of children of A, so that no child is on both sides."""
    children = {path[1]: bool(rng.random() < 0.5) for path in graph.directed_paths("A", "Y")}
    return graph.unfair(lambda path: children[path[1]])


def random_latent(seed: int) -> tuple[Sem, list[UnfairPaths]]:
    """A model with latent nodes, and three sets of paths: by child, any, and all."""
    rng = np.random.default_rng(1000 + seed)
    graph = random_graph(rng, causes=int(rng.integers(0, 3)), mediators=int(rng.integers(0, 2)))
    some = [path for path in graph.directed_paths("A", "Y") if rng.random() < 0.5]
    sets = [random_unfair(graph, rng), graph.unfair(*some), graph.unfair(lambda path: True)]
    return random_model(graph, rng), sets


def check_by_weighting(sem: Sem, unfair: UnfairPaths) -> None:
    """With true propensities every group reproduces the truth, and its weights average to 1."""
    cells, probability = sem.table
    for group in GROUPS:
        source = IPW(unfair, arm=group, propensity="saturated").fit(cells, sample_weight=probability)
        for regime, world in zip(unfair.regimes, source.worlds(), strict=True):
            assert sem.estimate(world) == pytest.approx(sem.truth(regime), abs=1e-12)
            assert probability @ source.weights(regime) == pytest.approx(1.0, abs=1e-12)


def given_shared(sem: Sem, unfair: UnfairPaths, target: Target) -> dict[str, float]:
    """The bounds on PIU and the disagreement given the nodes that both worlds share, by enumeration of the noise."""
    baseline, directed = unfair.regimes[0], nx.DiGraph(sem.graph.edges)
    part = identify(unfair, target).baseline
    same = {*part.order[: part.roots], *unfair.shared}  # an observed outcome may have roots that no prediction has
    suffixes = {node: tuple(nx.shortest_path(directed, node, sem.graph.outcome)[1:]) for node in same}
    shared = [sem.read(baseline, node, suffix) for node, suffix in suffixes.items()]
    weight = sem.units[1]
    values = np.column_stack([*shared, np.zeros_like(weight)])
    cell = np.unique(values, axis=0, return_inverse=True)[1].ravel()
    mass = np.bincount(cell, weight)
    a, b = (np.bincount(cell, weight * sem.target(regime, target)) / mass for regime in unfair.regimes)
    return {
        "lower": mass @ np.abs(b - a),
        "rest": mass @ np.abs(1.0 - a - b),
        "disagreement": mass @ (a + b - 2.0 * a * b),
    }


def check_by_one_step(sem: Sem, unfair: UnfairPaths, target: Target) -> None:
    """With saturated nuisance models the one-step estimates are the truth, at every stage and given what is shared."""
    cells, probability = sem.table
    source = OneStep(unfair, propensity="saturated", regression="saturated", form="prefix", folds=1)
    source.fit(cells, sample_weight=probability)
    outcome = cells[sem.graph.columns[sem.graph.outcome][0]].to_numpy(np.float64)

    def score(world: CounterfactualSample) -> Probabilities:
        if target == "outcome":
            assert world.origin is not None
            assert world.origin.min() >= 0
            return outcome[world.origin]
        return sem.scores_of(world.rows)

    found = (source.for_outcome() if target == "outcome" else source).influence(score)
    expected = given_shared(sem, unfair, target)
    expected |= {name: sem.truth(r, target) for name, r in zip(("y0", "ypi"), unfair.regimes, strict=True)}
    for name, value in expected.items():
        assert probability @ getattr(found, name)[:, 0] == pytest.approx(value, abs=1e-10), name
    assert found.stages[["balance", "correction"]].abs().to_numpy().max(initial=0.0) < 1e-10
    assert found.stages["mean_weight"].sub(1.0).abs().max() < 1e-10 or found.stages.empty


# --- graphs without latent nodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.some(10)
def test_every_identified_set_in_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sem = random_model(random_graph(rng), rng)
    unfair = random_unfair(sem.graph, rng)
    for each in (unfair, unfair.reversed()):
        for target in TARGETS:
            found = identify(each, target)
            for part in (found.baseline, found.switched):
                assert sem.by_formula(part, target) == pytest.approx(sem.truth(part.regime, target), abs=1e-12)
            check_by_one_step(sem, each, target)
        check_by_weighting(sem, each)


def test_the_random_graphs_are_varied() -> None:
    """What the test above goes through, so that it cannot become empty by a change of the generator."""
    seen = Counter()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng)
        sem = random_model(graph, rng)
        below, above = set(graph.descendants("A")), {*graph.ancestors("Y")}
        seen["A has parents"] += bool(graph.parents("A"))
        seen["A is no parent of Y"] += "A" not in graph.parents("Y")
        seen["confounder of a mediator and Y, no parent of A"] += any(
            {*graph.children(root)} & below & above and "Y" in graph.children(root) and "A" not in graph.children(root)
            for root in graph.nodes
            if root not in below and root != "A"
        )
        seen["chain of mediators"] += any(len(path) > 3 for path in graph.directed_paths("A", "Y"))
        seen["siblings without an edge"] += any(
            one not in graph.parents(two) and two not in graph.parents(one)
            for one, two in combinations(below & above, 2)
        )
        seen["no ancestor of Y"] += bool({*graph.nodes} - above - {"Y"})
        seen["several columns"] += any(len(names) > 1 for names in graph.columns.values())
        seen["three levels"] += 3 in sem.joint.shape
        seen["declared against the order"] += graph.order != graph.nodes
    assert min(seen.values()) >= 5, seen


@pytest.mark.parametrize("seed", range(40))
def test_identified_if_and_only_if_no_child_is_on_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    paths = graph.directed_paths("A", "Y")
    for _ in range(4):
        unfair = graph.unfair(*(path for path in paths if rng.random() < 0.5))
        both = {path[1] for path in unfair.paths} & {path[1] for path in unfair.fair_paths}
        assert {path[1] for _, path, _ in unfair.recanting_witnesses()} == both
        if both:
            with pytest.raises(NotIdentifiedError, match="is a recanting witness"):
                identify(unfair)
        else:
            assert identify(unfair).switched.regime.arms == {path[1]: int(path in unfair.paths) for path in paths}


# --- graphs with latent nodes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.some(8)
def test_with_latent_nodes_what_is_identified_is_right(seed: int) -> None:
    sem, sets = random_latent(seed)
    for unfair in sets:
        for target in TARGETS:
            try:
                found = identify(unfair, target)
            except NotIdentifiedError:
                continue
            for part in (found.baseline, found.switched):
                assert sem.by_formula(part, target) == pytest.approx(sem.truth(part.regime, target), abs=1e-12)
            check_by_one_step(sem, unfair, target)
            if target == "prediction":
                check_by_weighting(sem, unfair)


def test_the_random_latent_graphs_are_varied() -> None:
    seen = Counter()
    for seed in range(40):
        sem, sets = random_latent(seed)
        latent = {node: bool(sem.graph.parents(node)) for node in sem.graph.latent}
        for target in TARGETS:
            for unfair in sets:
                found = verdict(unfair, target)
                seen[target, found] += 1
                if found == "identified":
                    seen[target, "identified, a latent mediator"] += any(latent.values())
                    seen[target, "identified, a latent common cause"] += not all(latent.values())
    assert min(seen[target, each] for target in TARGETS for each in ("identified", "not identified")) >= 15, seen
    assert min(seen.values()) >= 2, seen


def local_dependence(sem: Sem, regime: Regime, target: Target) -> float:
    """How much P(Y = 1) varies with the distributions of the noise where the distribution of the observed nodes does
    not, to first order.

    It is zero wherever P(Y = 1) is a function of the observed distribution: both are polynomials in the distributions
    of the noise, and the gradient of the one is then a combination of the gradients of the other.
    """
    noise, weight = sem.units
    nodes = [node for node in sem.graph.observed if target == "outcome" or node != sem.graph.outcome]
    values = [sem.read(None, node) for node in nodes]
    cell = np.unique(np.column_stack(values), axis=0, return_inverse=True)[1].ravel()
    score = sem.target(regime, target)
    observed, wanted = [], []
    for node, probabilities in sem.noise.items():
        given = [np.where(noise[node] == value, weight / p, 0.0) for value, p in enumerate(probabilities)]
        observed += [np.bincount(cell, each - given[0]) for each in given[1:]]
        wanted += [(each - given[0]) @ score for each in given[1:]]
    gradients, gradient = np.array(observed), np.array(wanted)
    solution = np.linalg.lstsq(gradients, gradient, rcond=1e-9)[0]
    return float(np.linalg.norm(gradients @ solution - gradient))


def verdict(unfair: UnfairPaths, target: Target) -> str:
    try:
        identify(unfair, target)
    except FormulaNotApplicableError:
        return "another formula"
    except NotIdentifiedError:
        return "not identified"
    return "identified"


@pytest.mark.parametrize("seed", range(20))
def test_what_is_called_identified_is_a_function_of_the_observed_law(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, causes=2, mediators=seed % 2)
    graph = CausalGraph(graph.edges, sensitive="A", outcome="Y", latent=graph.latent)
    sem = random_model(graph, rng, size=4, most=2)
    some = [path for path in graph.directed_paths("A", "Y") if rng.random() < 0.5]
    for unfair in (graph.unfair(*some), graph.unfair(lambda path: True)):
        for target in TARGETS:
            if verdict(unfair, target) != "not identified":
                for regime in unfair.regimes:
                    assert local_dependence(sem, regime, target) < 1e-12


ADULT = "{A C} -> M; {A C M} -> L; {A C M L} -> R; {A C M L R} -> Y"
DIRECT_AND_M = ("A -> Y", "A -> M -> Y", "A -> M -> L -> Y", "A -> M -> R -> Y", "A -> M -> L -> R -> Y")
KITE = "A -> M1 -> M2 -> Y; {A M1} -> Y"


@pytest.mark.parametrize(
    ("edges", "latent", "paths", "target"),
    [
        ("A -> M -> Y; U -> {A M}", "U", ["A -> M -> Y"], "prediction"),
        ("A -> Y; U -> {A Y}", "U", ["A -> Y"], "outcome"),
        ("A -> {M L}; {M L} -> Y; U -> {M L}", "U", ["A -> M -> Y"], "prediction"),
        ("A -> {Y M} ; M -> Y; U -> {M Y}", "U", ["A -> Y"], "outcome"),
        ("U -> {A C}; V -> {C M}; {A C} -> M; {A M C} -> Y", "UV", ["A -> M -> Y"], "prediction"),
        (KITE, "", ["A -> M1 -> M2 -> Y"], "prediction"),
        (KITE, "", ["A -> M1 -> Y"], "outcome"),
        ("A -> H -> {M L}; {M L} -> Y", "H", ["A -> H -> M -> Y"], "prediction"),
        ("A -> H -> M; A -> M -> Y", "H", ["A -> M -> Y"], "prediction"),
        ("A -> M -> L -> Y; A -> L; U -> {M L}", "U", ["A -> M -> L -> Y"], "prediction"),
    ],
)
def test_what_is_called_not_identified_varies_under_one_observed_law(
    edges: str, latent: str, paths: list[str], target: Target
) -> None:
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=list(latent))
    unfair = graph.unfair(*paths)
    assert verdict(unfair, target) == "not identified"
    sem = random_model(graph, np.random.default_rng(1), size=9, most=2)
    assert max(local_dependence(sem, regime, target) for regime in unfair.regimes) > 1e-4


@pytest.mark.parametrize(
    ("edges", "latent", "target"),
    [
        ("A -> M -> Y; U -> {A Y}", "U", "outcome"),
        ("A -> M -> L -> Y; U -> {A L}", "U", "prediction"),
        ("W -> R -> A -> Y; U -> {W A}; V -> {W Y}", "UV", "outcome"),
        ("W -> R -> A -> M -> Y; U -> {W A}; V -> {W M}", "UV", "prediction"),
        ("C -> A; A -> {M L}; {M L} -> Y; U -> {C M}; V -> {C L}", "UV", "prediction"),
    ],
    ids=["front door", "front door of a mediator", "napkin", "napkin of a mediator", "collider"],
)
def test_another_formula_is_needed_where_the_edge_formula_is_refused(edges: str, latent: str, target: Target) -> None:
    """P(Y = 1) is a function of the observed distribution there, and the edge formula of the graph without latents is
    wrong."""
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=list(latent))
    unfair = graph.unfair(lambda path: "M" in path or len(path) == 2)
    assert verdict(unfair, target) == "another formula"
    sem = random_model(graph, np.random.default_rng(3), size=4, most=2)
    assert max(local_dependence(sem, regime, target) for regime in unfair.regimes) < 1e-12
    seen = [edge for edge in graph.edges if edge[0] not in graph.latent]
    naive = CausalGraph(seen, sensitive="A", outcome="Y").unfair(*unfair.paths)
    found = identify(naive, target)
    errors = [
        abs(g_formula(part, target, graph.observed, sem.joint, sem.score) - sem.truth(regime, target))
        for part, regime in zip((found.baseline, found.switched), unfair.regimes, strict=True)
    ]
    assert max(errors) > 1e-4


def test_a_recanting_witness_depends_on_the_coupling_of_noise() -> None:
    """Two models with one observed distribution: M1 reacts to A in all units, or in none."""
    graph = CausalGraph(KITE, sensitive="A", outcome="Y")
    coin, third = np.array([0.5, 0.5]), np.array([0.7, 0.3])
    m2 = np.array([[0, 0], [0, 1]])
    score = np.array([[[0.1, 0.2], [0.2, 0.9]], [[0.3, 0.5], [0.4, 1.0]]])
    noise = {"A": coin, "M1": coin, "M2": third, "Y": coin}

    def model(m1: list[list[int]]) -> Sem:
        return Sem(
            graph, noise, {"A": np.arange(2), "M1": np.array(m1), "M2": m2, "Y": np.zeros((2, 2, 2, 2), int)}, score
        )

    always, never = model([[0, 1], [1, 0]]), model([[0, 1], [0, 1]])
    assert always.joint == pytest.approx(never.joint)
    for paths, same in [
        (["A -> M1 -> M2 -> Y"], False),
        (["A -> M1 -> Y"], False),
        (["A -> Y"], True),
        (["A -> M1 -> Y", "A -> M1 -> M2 -> Y"], True),
    ]:
        regime = graph.unfair(*paths).regimes[1]
        gap = abs(always.truth(regime) - never.truth(regime))
        assert gap < 1e-12 if same else gap > 0.02
