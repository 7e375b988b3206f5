"""Properties that every source of potential outcomes has; a new source is one more line in ``SOURCES``."""

from __future__ import annotations

import inspect
import pickle
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone

from pyrofair import effects
from pyrofair.effects.functionals import disagreement, effect_gap, piu_upper
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths
from pyrofair.mechanisms.learn import learn_mechanisms
from pyrofair.sources.gcomputation import GComputation
from pyrofair.sources.ipw import IPW
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.sem import SEM

pytestmark = pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sources.md"
RENAMED = {"x": "quite other", "y": "names", "z": "in another order"}
PROTOCOLS = ("PotentialOutcomes", "Refittable", "Diagnosed", "Stratified", "SampleSplit")
EVERY = (*PROTOCOLS, "InfluenceBased")


@dataclass(frozen=True)
class Case:
    """A source, and the properties that it need not have.

    ``normalized``: its weights sum to 1. ``row_order``: the order of the rows is of no matter; it is where they are
    dealt into folds or held out. ``mirror``: the same source once 0 and 1 change names, if it is another one.
    ``across``: the largest difference of one potential outcome by other unfair paths, where it is estimated otherwise.
    ``renamed``: the largest difference where names or codes change, which order the draws or the fits of some sources.
    ``learns``: ``fit`` learns from the table. ``weighs``: ``worlds`` depends on the rows it is given.
    ``protocols``: those it satisfies beside ``PotentialOutcomes``.
    """

    fit: Callable[..., Any]
    protocols: tuple[str, ...]
    normalized: bool = True
    row_order: bool = True
    mirror: str | None = None
    across: float = 1e-12
    renamed: float = 1e-9
    learns: bool = True
    weighs: bool = True


@dataclass(frozen=True)
class Program:
    """The mechanisms of the graph below as a Pyro program, its sites named as the nodes.

    Zeros and ones are labels of the sensitive attribute as they are; ``baseline`` is 1 where True has the role of 0.
    """

    names: tuple[str, ...]
    baseline: int = 0

    def __call__(self, n: int) -> None:
        q, w, a, d, m = self.names
        with pyro.plate("units", n):
            Q = pyro.sample(q, dist.Categorical(torch.ones(3) / 3))
            W = pyro.sample(w, dist.Bernoulli(0.5))
            A = pyro.sample(a, dist.Bernoulli(torch.sigmoid((0.5 * Q - 0.6) * (1 - 2 * self.baseline))))
            A = (A - self.baseline).abs()
            D = pyro.sample(d, dist.Bernoulli(torch.sigmoid(A + 0.5 * Q - 1.0)))
            logits = torch.stack([0.5 + 0.0 * A, 0.3 * (A + D) + 0.4 * W - 0.2 * Q, 0.3 * W - 0.5 * A], -1)
            pyro.sample(m, dist.Categorical(logits=logits))


def weighting(**settings: Any) -> Callable[..., Any]:
    return lambda table, unfair, **weight: IPW(unfair, **settings).fit(table, **weight)


def drawing(table: pd.DataFrame, unfair: UnfairPaths, **weight: Any) -> Any:
    return GComputation(unfair, parameters="linear", progress=False, random_state=0).fit(table, **weight)


def computing(**settings: Any) -> Callable[..., Any]:
    def fit(table: pd.DataFrame, unfair: UnfairPaths, **weight: Any) -> Any:
        names = tuple(node for node in unfair.graph.order if node != unfair.graph.outcome)
        labels = list(RENAMED) if "M" not in table or "x" in set(table["M"]) else list(RENAMED.values())
        baseline = int(unfair.graph.label(0) is True)
        return SEM(Program(names, baseline), unfair, levels={names[-1]: labels}, **settings).fit(table, **weight)

    return fit


def learning(table: pd.DataFrame, unfair: UnfairPaths, sample_weight: Any = None) -> Any:
    nodes = [node for node in unfair.graph.order if node != unfair.graph.outcome]
    learned = learn_mechanisms(
        table,
        unfair.graph,
        nodes=nodes,
        parameters="linear",
        progress=False,
        random_state=0,
        sample_weight=sample_weight,
    )
    return SEM.from_mechanisms(learned, unfair).fit(table)


@cache
def page() -> ModuleType:
    """The page that shows a source written by a user, as a module."""
    module = sys.modules["sources_page"] = ModuleType("sources_page")
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    return module


def written_by_a_user(table: pd.DataFrame, unfair: UnfairPaths, **weight: Any) -> Any:
    return page().CellWeights(unfair).fit(table, **weight)


def judging(**settings: Any) -> Callable[..., Any]:
    settings = {"form": "prefix", "random_state": 0} | settings
    return lambda table, unfair, **weight: OneStep(unfair, **settings).fit(table, **weight)


WEIGHTED = ("Refittable", "Diagnosed", "Stratified")
MODEL, INFLUENCE = ("Diagnosed",), ("InfluenceBased",)
SOURCES: dict[str, Case] = {
    "IPW, saturated": Case(weighting(propensity="saturated"), WEIGHTED),
    "IPW, logistic": Case(weighting(), WEIGHTED),
    "IPW, logistic, the paper's group": Case(weighting(arm="paper"), WEIGHTED),
    "IPW, logistic, group 0": Case(weighting(arm=0), WEIGHTED, mirror="IPW, logistic, group 1"),
    "IPW, logistic, group 1": Case(weighting(arm=1), WEIGHTED, mirror="IPW, logistic, group 0"),
    "IPW, logistic, pooled": Case(weighting(arm="pooled"), WEIGHTED),
    "IPW, logistic, Horvitz-Thompson": Case(weighting(arm="paper", normalize=False), WEIGHTED, normalized=False),
    "IPW, boosted": Case(weighting(propensity="boosted", random_state=0), WEIGHTED, row_order=False),
    "GComputation": Case(
        drawing, ("Refittable", "Diagnosed", "SampleSplit"), row_order=False, across=0.03, renamed=1e-6
    ),
    "SEM, the units' noise": Case(computing(), MODEL, renamed=0.03, learns=False, weighs=False),
    "SEM, shared nodes": Case(
        computing(unit="shared", draws=50), MODEL, across=0.03, renamed=0.03, learns=False, weighs=False
    ),
    "SEM of learned mechanisms": Case(learning, MODEL, row_order=False, renamed=0.03, weighs=False),
    "written by a user": Case(written_by_a_user, ("Refittable",)),
    "OneStep, saturated": Case(judging(propensity="saturated", regression="saturated"), INFLUENCE),
    "OneStep, logistic": Case(
        judging(propensity="logistic", regression="logistic"), INFLUENCE, normalized=False, across=0.02
    ),
    "OneStep, boosted": Case(judging(folds=2), INFLUENCE, row_order=False, normalized=False, across=0.05, renamed=0.01),
}


def of_each(names: Iterable[str]) -> Callable[[Any], Any]:
    """Run a test for each source by these names; by default for some of them, which differ from test to test."""
    cases = pytest.mark.parametrize("name", list(names))
    return lambda test: pytest.mark.some(6)(cases(test))


sources = of_each(SOURCES)
samplers = of_each(name for name, case in SOURCES.items() if case.protocols != INFLUENCE)
learners = of_each(name for name, case in SOURCES.items() if case.learns)
weighers = of_each(name for name, case in SOURCES.items() if case.weighs)

EDGES = "Q -> A; {Q A} -> D; {Q A D} -> M; W -> M; {Q A D M W} -> Y"
GRAPH = CausalGraph(EDGES, sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
ALL, NONE = GRAPH.unfair(lambda path: True), GRAPH.unfair()


@cache
def units(n: int = 500, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q, w = rng.integers(0, 3, n), rng.integers(0, 2, n)
    a = (rng.random(n) < expit(0.5 * q - 0.6)).astype(int)
    d = (rng.random(n) < expit(a + 0.5 * q - 1)).astype(int)
    m = np.array(["x", "y", "z"])[(rng.random((n, 1)) > np.array([0.3, 0.65]) - 0.1 * (a + d + w)[:, None]).sum(axis=1)]
    y = (rng.random(n) < 0.5).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "D": d, "M": m, "W": w, "Y": y})


def score(rows: pd.DataFrame) -> NDArray[np.float64]:
    """A classifier; it takes the sensitive attribute as 0 and 1, and the levels of M as x, y, z."""
    level = rows["M"].map({"x": 0.0, "y": 0.5, "z": 1.0}).to_numpy(float)
    linear = rows["A"] + 0.4 * rows["Q"] - 0.7 * rows["D"] + 2 * level * rows["W"] - rows["A"] * rows["D"]
    return expit(linear.to_numpy(float) - 1)


def means(both: Any, scored: Callable[[pd.DataFrame], NDArray[np.float64]] = score) -> tuple[float, float]:
    """P(Y = 1) in both worlds."""
    if isinstance(both, Judged):
        values = both.source.influence(lambda world: scored(world.rows), **both.settings)
        return tuple(float(values.weight @ each[:, 0] / values.weight.sum()) for each in (values.y0, values.ypi))
    first, second = (float(world.weight @ scored(world.rows)) for world in both)
    return first, second


@dataclass(frozen=True)
class Judged:
    """A source of influence values, and the rows to judge; its worlds are the rows that it asks scores of."""

    source: Any
    settings: dict[str, Any]

    def __iter__(self) -> Iterator[CounterfactualSample]:
        seen: list[CounterfactualSample] = []
        self.source.influence(lambda world: (seen.append(world), np.full(len(world.rows), 0.5))[1], **self.settings)
        return iter(seen)


def fit(name: str, table: pd.DataFrame, unfair: UnfairPaths = UNFAIR, **settings: Any) -> Any:
    return SOURCES[name].fit(table, unfair, **settings)


def worlds(source: Any, **settings: Any) -> Any:
    """Both worlds by one seed; an SEM draws as many units as the table has rows."""
    if isinstance(source, OneStep):
        return Judged(source, settings)
    return source.worlds(random_state=0, **({"n": 500} if isinstance(source, SEM) else {}), **settings)


@cache
def fitted(name: str, unfair: UnfairPaths = UNFAIR) -> Any:
    return fit(name, units(), unfair)


@cache
def estimate(name: str, unfair: UnfairPaths = UNFAIR) -> tuple[float, float]:
    return means(worlds(fitted(name, unfair)))


# --- of effects ------------------------------------------------------------------------------------------------------


@sources
def test_the_two_worlds_of_the_example_differ(name: str) -> None:
    """Otherwise a property that they share could not fail."""
    baseline, switched = estimate(name)
    assert abs(switched - baseline) > 0.02


@sources
def test_no_unfair_path_no_effect(name: str) -> None:
    """Both regimes are equal then."""
    assert NONE.regimes[0].arms == NONE.regimes[1].arms
    baseline, switched = estimate(name, NONE)
    assert switched == pytest.approx(baseline, abs=1e-12)
    assert baseline == pytest.approx(estimate(name)[0], abs=SOURCES[name].across)


@sources
def test_all_paths_give_the_total_effect(name: str) -> None:
    """Switching every path is the other value of the attribute: the baseline of the reversed roles."""
    assert estimate(name, ALL) == pytest.approx(estimate(name, ALL.reversed())[::-1], abs=SOURCES[name].across)


@sources
def test_the_baseline_does_not_depend_on_the_paths(name: str) -> None:
    for unfair in (ALL, UNFAIR.complement()):
        assert estimate(name, unfair)[0] == pytest.approx(estimate(name)[0], abs=SOURCES[name].across)


@sources
def test_reversed_roles_switch_the_complement(name: str) -> None:
    """The unfair paths at 0 and all others at 1 are the others switched from 0 to 1."""
    switched = estimate(name, UNFAIR.complement())[1]
    assert estimate(name, UNFAIR.reversed())[1] == pytest.approx(switched, abs=SOURCES[name].across)


@sources
def test_roles_named_the_other_way_round_are_reversed_roles(name: str) -> None:
    other = CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=1, contrast=0).unfair(*UNFAIR.paths)
    expected = estimate(SOURCES[name].mirror or name, UNFAIR.reversed())
    found = means(worlds(fit(name, units(), other)))
    assert found == pytest.approx(expected, abs=SOURCES[name].renamed if SOURCES[name].row_order else 0.03)


# --- of what does not matter -----------------------------------------------------------------------------------------


@sources
@pytest.mark.parametrize(("baseline", "contrast"), [("m", "f"), ("f", "m"), (True, False)])
def test_labels_of_the_groups(name: str, baseline: Any, contrast: Any) -> None:
    table = units().assign(A=units()["A"].map({0: baseline, 1: contrast}))
    graph = CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=baseline, contrast=contrast)

    def relabelled(rows: pd.DataFrame) -> NDArray[np.float64]:
        assert rows["A"].dtype == table["A"].dtype
        return score(rows.assign(A=(rows["A"] == contrast).astype(int)))

    both = worlds(fit(name, table, graph.unfair(*UNFAIR.paths)))
    same = not isinstance(baseline, bool)  # True is 1 to a program, and changes which of its values is the baseline
    assert means(both, relabelled) == pytest.approx(estimate(name), abs=1e-12 if same else SOURCES[name].renamed)
    assert [set(world.rows["A"]) for world in both] == [{baseline}, {contrast}]


@sources
@pytest.mark.parametrize("dtype", ["object", "category"])
def test_names_of_categories(name: str, dtype: Any) -> None:
    old = {after: before for before, after in RENAMED.items()}
    both = worlds(fit(name, units().assign(M=units()["M"].map(RENAMED).astype(dtype))))
    found = means(both, lambda rows: score(rows.assign(M=rows["M"].map(old))))
    assert found == pytest.approx(estimate(name), abs=SOURCES[name].renamed)


@sources
def test_names_of_nodes_and_columns(name: str) -> None:
    new = {"Q": "qualification", "A": "gender", "D": "children", "M": "a strength", "W": "w", "Y": "hired"}
    edges = [(f"node {new[cause]}", f"node {new[effect]}") for cause, effect in GRAPH.edges]
    columns = {f"node {column}": [column] for column in new.values()}
    graph = CausalGraph(edges, sensitive="node gender", outcome="node hired", columns=columns)
    assert graph.order == tuple(f"node {new[node]}" for node in GRAPH.order)
    unfair = graph.unfair(*(tuple(f"node {new[node]}" for node in path) for path in UNFAIR.paths))
    both = worlds(fit(name, units().rename(columns=new), unfair))
    old = {after: before for before, after in new.items()}
    found = means(both, lambda rows: score(rows.rename(columns=old)))
    assert found == pytest.approx(estimate(name), abs=SOURCES[name].renamed)


@sources
def test_order_of_columns_and_index(name: str) -> None:
    table = units()[["Y", "W", "M", "D", "A", "Q"]].set_axis(np.arange(500) % 9)
    assert means(worlds(fit(name, table))) == estimate(name)


@sources
def test_order_of_rows(name: str) -> None:
    found = means(worlds(fit(name, units().sample(frac=1, random_state=1))))
    assert found == pytest.approx(estimate(name), abs=1e-9 if SOURCES[name].row_order else 0.05)


@sources
def test_the_outcome_is_never_read(name: str) -> None:
    for table in (units().drop(columns="Y"), units().assign(Y=1 - units()["Y"])):
        assert means(worlds(fit(name, table))) == estimate(name)


@learners
def test_the_unit_of_sample_weights(name: str) -> None:
    weight = np.random.default_rng(0).integers(1, 4, 500)
    one, two = (means(worlds(fit(name, units(), sample_weight=k * weight))) for k in (1, 2))
    assert one == pytest.approx(two, abs=1e-9 if SOURCES[name].row_order else 0.02)
    assert one != pytest.approx(estimate(name), abs=1e-6)


@learners
def test_weights_are_repeats(name: str) -> None:
    """But for the leverage of logistic regressions: a row of weight 2 is one row, and its copies are two."""
    near = 1e-4 if name == "OneStep, logistic" else 1e-9
    weight = np.random.default_rng(0).integers(1, 4, 500)
    weighted = means(worlds(fit(name, units(), sample_weight=weight)))
    repeated = means(worlds(fit(name, units().loc[units().index.repeat(weight)])))
    assert weighted == pytest.approx(repeated, abs=near if SOURCES[name].row_order else 0.05)


# --- of the samples --------------------------------------------------------------------------------------------------


@sources
def test_protocols(name: str) -> None:
    source = fitted(name)
    kept = {each for each in EVERY if isinstance(source, getattr(effects, each))}
    assert kept == {*SOURCES[name].protocols, *(() if SOURCES[name].protocols == INFLUENCE else PROTOCOLS[:1])}
    for protocol in kept:
        for member, function in inspect.getmembers(getattr(effects, protocol), inspect.isfunction):
            if not member.startswith("_"):
                asked, found = (
                    inspect.signature(each).parameters for each in (function, getattr(type(source), member))
                )
                own, more = list(found.values())[: len(asked)], list(found.values())[len(asked) :]
                assert [(each.name, each.kind) for each in own] == [(k, each.kind) for k, each in asked.items()], member
                assert all(each.default is not each.empty for each in more), member  # what a source takes besides


def test_the_page_has_the_table_of_protocols() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| .* \| (yes|no) \| (yes|no) \| (yes|no) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert [row[0] for row in rows] == list(PROTOCOLS)
    for column, name in enumerate(("IPW, logistic", "GComputation", "SEM, the units' noise"), 1):
        shown = {row[0] for row in rows if row[column] == "yes"}
        assert shown == {"PotentialOutcomes", *SOURCES[name].protocols}


@samplers
def test_a_source_makes_two_samples(name: str) -> None:
    source = fitted(name)
    assert source.unfair == UNFAIR
    both = worlds(source)
    assert len(both) == 2
    assert all(isinstance(world, CounterfactualSample) for world in both)


@samplers
def test_rows_are_what_a_classifier_reads(name: str) -> None:
    seen = units()
    for world, value in zip(worlds(fitted(name)), (0, 1), strict=True):
        assert list(world.rows.columns) == GRAPH.input_columns
        assert world.rows.dtypes.equals(seen[GRAPH.input_columns].dtypes)
        assert set(world.rows["A"]) == {value}
        for column in ("Q", "D", "M", "W"):
            assert set(world.rows[column]) <= set(seen[column])
        if world.origin is not None:
            same = world.origin >= 0
            original = seen[GRAPH.input_columns].iloc[world.origin[same]]
            assert world.rows[same].reset_index(drop=True).equals(original.reset_index(drop=True))


@samplers
def test_weights_are_weights(name: str) -> None:
    for world in worlds(fitted(name)):
        assert world.weight.shape == (len(world.rows),)
        assert np.isfinite(world.weight).all()
        assert (world.weight >= 0).all()
        assert 1 < world.effective_size <= len(world.rows) + 1e-9
        assert world.weight.sum() == pytest.approx(1.0, abs=1e-12 if SOURCES[name].normalized else 0.2)


@samplers
def test_gradients_flow(name: str) -> None:
    world0, world1 = worlds(fitted(name))
    for functional in (disagreement, effect_gap, piu_upper):
        scores = [torch.tensor(score(world.rows), requires_grad=True) for world in (world0, world1)]
        functional(world0.scored(scores[0]), world1.scored(scores[1])).backward()
        for world, leaf in zip((world0, world1), scores, strict=True):
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()
            moved = (leaf.grad != 0).numpy()
            assert not moved[world.weight == 0].any()
            assert moved[world.weight > 0].all() if world.unit is None else moved.any()


# --- of the object ---------------------------------------------------------------------------------------------------


@sources
def test_same_seed_same_numbers_and_no_global_generator_is_touched(name: str) -> None:
    before = np.random.get_state(), torch.get_rng_state(), random.getstate()  # noqa: NPY002
    again = means(worlds(fit(name, units())))
    after = np.random.get_state(), torch.get_rng_state(), random.getstate()  # noqa: NPY002
    assert again == estimate(name)
    assert np.array_equal(before[0][1], after[0][1])
    assert before[0][2] == after[0][2]
    assert torch.equal(before[1], after[1])
    assert before[2] == after[2]


@sources
def test_copies(name: str) -> None:
    source = fitted(name)
    fresh = clone(source)
    own, others = ({k: repr(v) for k, v in each.get_params().items()} for each in (source, fresh))
    assert own == others
    assert fresh.unfair == UNFAIR
    assert means(worlds(fresh.fit(units()))) == estimate(name)
    assert means(worlds(pickle.loads(pickle.dumps(source)))) == estimate(name)
    assert means(worlds(clone(source).set_params(unfair=NONE).fit(units()))) == estimate(name, NONE)


@sources
def test_the_table_is_left_as_it_is_and_not_looked_at_again(name: str) -> None:
    table = units().copy()
    source = fit(name, table)
    assert table.equals(units())
    table["M"], table["A"], table["D"] = "x", 0, 9
    assert means(worlds(source)) == estimate(name)


@sources
def test_the_fitted_rows_can_be_passed_again(name: str) -> None:
    source = fitted(name)
    assert means(worlds(source, df=units().copy())) == estimate(name)
    for weight in (np.ones(500), np.full(500, 3.0)):
        assert means(worlds(source, df=units(), sample_weight=weight)) == pytest.approx(estimate(name))


@weighers
def test_other_rows_and_their_weights(name: str) -> None:
    source, some = fitted(name), units(300, seed=1).set_index(np.arange(1_000, 1_300))
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 3, len(some))
    weighted = means(worlds(source, df=some, sample_weight=counts))
    repeated = means(worlds(source, df=some.loc[some.index.repeat(counts)]))
    assert weighted == pytest.approx(repeated, abs=1e-9)
    assert weighted != pytest.approx(estimate(name), abs=1e-6)
    assert means(worlds(source)) == estimate(name)  # nothing was learned from them
