"""Laws that every source of potential outcomes obeys; a new source is one more line in ``SOURCES``."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone

from pyrofair.effects.functionals import disagreement, effect_gap, piu_upper
from pyrofair.effects.potential_outcomes import CounterfactualSample, PotentialOutcomes
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths
from pyrofair.sources.ipw import IPW

pytestmark = pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")


@dataclass(frozen=True)
class Case:
    """A source, and which laws do not bind it.

    ``normalized``: its weights sum to 1. ``row_order``: the order of the rows is of no matter; it is where they are
    dealt into folds. ``mirror``: the same source once 0 and 1 change names, if it is another one.
    """

    make: Callable[[UnfairPaths], Any]
    normalized: bool = True
    row_order: bool = True
    mirror: str | None = None


SOURCES: dict[str, Case] = {
    "IPW, saturated": Case(partial(IPW, propensity="saturated")),
    "IPW, logistic": Case(IPW),
    "IPW, logistic, the paper's group": Case(partial(IPW, arm="paper")),
    "IPW, logistic, group 0": Case(partial(IPW, arm=0), mirror="IPW, logistic, group 1"),
    "IPW, logistic, group 1": Case(partial(IPW, arm=1), mirror="IPW, logistic, group 0"),
    "IPW, logistic, Horvitz-Thompson": Case(partial(IPW, arm="paper", normalize=False), normalized=False),
    "IPW, boosted": Case(partial(IPW, propensity="boosted", random_state=0), row_order=False),
}
sources = pytest.mark.parametrize("name", SOURCES)

EDGES = "Q -> A; {Q A} -> D; {Q A D} -> M; W -> M; {Q A D M W} -> Y"
GRAPH = CausalGraph(EDGES, sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y")
ALL, NONE = GRAPH.unfair(lambda path: True), GRAPH.unfair()


@cache
def people(n: int = 500, seed: int = 0) -> pd.DataFrame:
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


def means(worlds: Any, scored: Callable[[pd.DataFrame], NDArray[np.float64]] = score) -> tuple[float, float]:
    """P(Y = 1) in both worlds."""
    first, second = (float(world.weight @ scored(world.rows)) for world in worlds)
    return first, second


def fit(name: str, table: pd.DataFrame, unfair: UnfairPaths = UNFAIR, **settings: Any) -> Any:
    return SOURCES[name].make(unfair).fit(table, **settings)


@cache
def fitted(name: str, unfair: UnfairPaths = UNFAIR) -> Any:
    return fit(name, people(), unfair)


@cache
def estimate(name: str, unfair: UnfairPaths = UNFAIR) -> tuple[float, float]:
    return means(fitted(name, unfair).worlds(random_state=0))


# --- of effects ------------------------------------------------------------------------------------------------------


@sources
def test_the_case_is_worth_its_name(name: str) -> None:
    """The two worlds differ, so that a law that says they do not can fail."""
    baseline, switched = estimate(name)
    assert abs(switched - baseline) > 0.02


@sources
def test_no_unfair_path_no_effect(name: str) -> None:
    baseline, switched = estimate(name, NONE)
    assert switched == pytest.approx(baseline, abs=1e-12)
    assert baseline == pytest.approx(estimate(name)[0], abs=1e-12)


@sources
def test_all_paths_give_the_total_effect(name: str) -> None:
    """Switching every path is the other value of the attribute: the baseline of the reversed roles."""
    assert estimate(name, ALL) == pytest.approx(estimate(name, ALL.reversed())[::-1], abs=1e-12)


@sources
def test_the_baseline_does_not_depend_on_the_paths(name: str) -> None:
    assert (
        estimate(name, ALL)[0] == estimate(name, UNFAIR.complement())[0] == pytest.approx(estimate(name)[0], abs=1e-12)
    )


@sources
def test_reversed_roles_switch_the_complement(name: str) -> None:
    """The unfair paths at 0 and all others at 1 are the others switched from 0 to 1."""
    assert estimate(name, UNFAIR.reversed())[1] == pytest.approx(estimate(name, UNFAIR.complement())[1], abs=1e-12)


@sources
def test_roles_named_the_other_way_round_are_reversed_roles(name: str) -> None:
    other = CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=1, contrast=0).unfair(*UNFAIR.paths)
    expected = estimate(SOURCES[name].mirror or name, UNFAIR.reversed())
    tolerance = 1e-9 if SOURCES[name].row_order else 0.02
    assert means(fit(name, people(), other).worlds(random_state=0)) == pytest.approx(expected, abs=tolerance)


# --- of what does not matter -----------------------------------------------------------------------------------------


@sources
@pytest.mark.parametrize(("baseline", "contrast"), [("m", "f"), ("f", "m"), (True, False)])
def test_labels_of_the_groups(name: str, baseline: Any, contrast: Any) -> None:
    table = people().assign(A=people()["A"].map({0: baseline, 1: contrast}))
    graph = CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=baseline, contrast=contrast)

    def relabelled(rows: pd.DataFrame) -> NDArray[np.float64]:
        assert rows["A"].dtype == table["A"].dtype
        return score(rows.assign(A=(rows["A"] == contrast).astype(int)))

    worlds = fit(name, table, graph.unfair(*UNFAIR.paths)).worlds(random_state=0)
    assert means(worlds, relabelled) == pytest.approx(estimate(name), abs=1e-12)
    assert [set(world.rows["A"]) for world in worlds] == [{baseline}, {contrast}]


@sources
@pytest.mark.parametrize("dtype", ["object", "category"])
def test_names_of_categories(name: str, dtype: Any) -> None:
    new = {"x": "quite other", "y": "names", "z": "in another order"}
    old = {after: before for before, after in new.items()}
    table = people().assign(M=people()["M"].map(new).astype(dtype))
    worlds = fit(name, table).worlds(random_state=0)
    assert means(worlds, lambda rows: score(rows.assign(M=rows["M"].map(old)))) == pytest.approx(
        estimate(name), abs=1e-9
    )


@sources
def test_names_of_nodes_and_columns(name: str) -> None:
    new = {"Q": "qualification", "A": "gender", "D": "children", "M": "a strength", "W": "w", "Y": "hired"}
    edges = [(f"node {new[cause]}", f"node {new[effect]}") for cause, effect in GRAPH.edges]
    columns = {f"node {column}": [column] for column in new.values()}
    graph = CausalGraph(edges, sensitive="node gender", outcome="node hired", columns=columns)
    assert graph.order == tuple(f"node {new[node]}" for node in GRAPH.order)
    unfair = graph.unfair(*(tuple(f"node {new[node]}" for node in path) for path in UNFAIR.paths))
    worlds = fit(name, people().rename(columns=new), unfair).worlds(random_state=0)
    old = {after: before for before, after in new.items()}
    assert means(worlds, lambda rows: score(rows.rename(columns=old))) == pytest.approx(estimate(name), abs=1e-12)


@sources
def test_order_of_columns_and_index(name: str) -> None:
    table = people()[["Y", "W", "M", "D", "A", "Q"]].set_axis(np.arange(500) % 9)
    assert means(fit(name, table).worlds(random_state=0)) == estimate(name)


@sources
def test_order_of_rows(name: str) -> None:
    shuffled = people().sample(frac=1, random_state=1)
    tolerance = 1e-9 if SOURCES[name].row_order else 0.05
    assert means(fit(name, shuffled).worlds(random_state=0)) == pytest.approx(estimate(name), abs=tolerance)


@sources
def test_the_outcome_is_never_read(name: str) -> None:
    for table in (people().drop(columns="Y"), people().assign(Y=1 - people()["Y"])):
        assert means(fit(name, table).worlds(random_state=0)) == estimate(name)


@sources
def test_the_unit_of_sample_weights(name: str) -> None:
    weight = np.random.default_rng(0).integers(1, 4, 500)
    one, two = (fit(name, people(), sample_weight=k * weight) for k in (1, 2))
    assert means(one.worlds(random_state=0)) == pytest.approx(
        means(two.worlds(random_state=0)), abs=1e-9 if SOURCES[name].row_order else 0.02
    )
    assert means(one.worlds(random_state=0)) != pytest.approx(estimate(name), abs=1e-6)


# --- of the samples --------------------------------------------------------------------------------------------------


@sources
def test_a_source_is_known_by_what_it_does(name: str) -> None:
    source = fitted(name)
    assert isinstance(source, PotentialOutcomes)
    assert source.unfair == UNFAIR
    worlds = source.worlds(random_state=0)
    assert len(worlds) == 2
    assert all(isinstance(world, CounterfactualSample) for world in worlds)


@sources
def test_rows_are_what_a_classifier_reads(name: str) -> None:
    seen = people()
    for world, value in zip(fitted(name).worlds(random_state=0), (0, 1), strict=True):
        assert list(world.rows.columns) == GRAPH.input_columns
        assert world.rows.dtypes.equals(seen[GRAPH.input_columns].dtypes)
        assert set(world.rows["A"]) == {value}
        for column in ("Q", "D", "M", "W"):
            assert set(world.rows[column]) <= set(seen[column])
        if world.origin is not None:
            same = world.origin >= 0
            assert (
                world.rows[same]
                .reset_index(drop=True)
                .equals(seen[GRAPH.input_columns].iloc[world.origin[same]].reset_index(drop=True))
            )


@sources
def test_weights_are_weights(name: str) -> None:
    for world in fitted(name).worlds(random_state=0):
        assert world.weight.shape == (len(world.rows),)
        assert np.isfinite(world.weight).all()
        assert (world.weight >= 0).all()
        assert 1 < world.effective_size <= len(world.rows)
        assert world.weight.sum() == pytest.approx(1.0, abs=1e-12 if SOURCES[name].normalized else 0.2)


@sources
def test_gradients_flow(name: str) -> None:
    world0, world1 = fitted(name).worlds(random_state=0)
    for functional in (disagreement, effect_gap, piu_upper):
        scores = [torch.tensor(score(world.rows), requires_grad=True) for world in (world0, world1)]
        functional(world0.scored(scores[0]), world1.scored(scores[1])).backward()
        for world, leaf in zip((world0, world1), scores, strict=True):
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()
            assert ((leaf.grad != 0) == torch.tensor(world.weight > 0)).all()


# --- of the object ---------------------------------------------------------------------------------------------------


@sources
def test_same_seed_same_numbers_and_no_global_generator_is_touched(name: str) -> None:
    before = np.random.get_state(), torch.get_rng_state(), random.getstate()  # noqa: NPY002
    again = means(fit(name, people()).worlds(random_state=0))
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
    assert {k: v for k, v in fresh.get_params().items() if k != "unfair"} == {
        k: v for k, v in source.get_params().items() if k != "unfair"
    }
    assert fresh.unfair == UNFAIR
    assert means(fresh.fit(people()).worlds(random_state=0)) == estimate(name)
    assert means(pickle.loads(pickle.dumps(source)).worlds(random_state=0)) == estimate(name)
    assert means(clone(source).set_params(unfair=NONE).fit(people()).worlds(random_state=0)) == estimate(name, NONE)


@sources
def test_the_table_is_left_as_it_is_and_not_looked_at_again(name: str) -> None:
    table = people().copy()
    source = fit(name, table)
    assert table.equals(people())
    table["M"], table["A"], table["D"] = "x", 0, 9
    assert means(source.worlds(random_state=0)) == estimate(name)


@sources
def test_the_fitted_rows_can_be_passed_again(name: str) -> None:
    source = fitted(name)
    assert means(source.worlds(random_state=0, df=people().copy())) == estimate(name)
    for weight in (np.ones(500), np.full(500, 3.0)):
        assert means(source.worlds(random_state=0, df=people(), sample_weight=weight)) == pytest.approx(estimate(name))


@sources
def test_other_rows_and_their_weights(name: str) -> None:
    source, some = fitted(name), people(300, seed=1).set_index(np.arange(1_000, 1_300))
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 3, len(some))
    weighted = means(source.worlds(random_state=0, df=some, sample_weight=counts))
    repeated = means(source.worlds(random_state=0, df=some.loc[some.index.repeat(counts)]))
    assert weighted == pytest.approx(repeated, abs=1e-9)
    assert weighted != pytest.approx(estimate(name), abs=1e-6)
    assert means(source.worlds(random_state=0)) == estimate(name)  # nothing was learned from them


# --- of saturated weights --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["paper", 0, 1, "pooled"])
@pytest.mark.parametrize("unfair", [UNFAIR, UNFAIR.complement(), ALL, NONE, UNFAIR.reversed()])
def test_saturated_weights_average_1_where_support_is_full(arm: Any, unfair: UnfairPaths) -> None:
    table = people().assign(M=(people()["M"] == "z").astype(int))
    assert len(table[["Q", "A", "D", "M", "W"]].drop_duplicates()) == 3 * 2**4
    source = IPW(unfair, arm=arm, propensity="saturated", normalize=False).fit(table)
    for world in source.worlds():
        assert world.weight.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("arm", ["paper", 0, 1, "pooled"])
def test_the_total_effect_is_standardisation(arm: Any) -> None:
    """The back-door formula over what A does not cause, in code of its own."""
    table = people().assign(M=(people()["M"] == "z").astype(int))

    def c(rows: pd.DataFrame) -> NDArray[np.float64]:
        return expit((rows["A"] + 0.4 * rows["Q"] - 0.7 * rows["D"] + 2.0 * rows["M"] * rows["W"] - 1).to_numpy())

    cells = table.assign(c=c(table)).pivot_table("c", index=["Q", "W"], columns="A")
    share = table.groupby(["Q", "W"]).size() / len(table)
    expected = (share @ cells[0], share @ cells[1])
    source = IPW(ALL, arm=arm, propensity="saturated").fit(table)
    assert means(source.worlds(), c) == pytest.approx(expected, abs=1e-12)
