"""The graph form: exact on enumerated tables, and what its draws and weights are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair import DataError, NotIdentifiedError, PositivityError, UnfairPaths, identify
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.nuisances.rows import Nuisances, Rows
from pyrofair.sources.donors import Block, LeafMechanisms, Pool
from pyrofair.sources.graph_form import GraphForm
from pyrofair.sources.prefix_form import PrefixForm
from tests.test_oracles import Sem, random_graph, random_latent, random_model, random_unfair

Array = NDArray[np.float64]


# --- enumerated tables -----------------------------------------------------------------------------------------------


def score_of(sem: Sem) -> Callable[[CounterfactualSample], Array]:
    def score(sample: CounterfactualSample) -> Array:
        columns = [sample.rows[sem.graph.columns[node]].to_numpy() for node in sem.graph.inputs]
        codes = [c[:, 0] if c.shape[1] == 1 else 2 * c[:, 0] + c[:, 1] for c in columns]
        found = sem.score[tuple(codes)]
        return np.column_stack([found, found > 0.5])

    return score


def saturated(sem: Sem, unfair: UnfairPaths, copies: int = 1) -> tuple[GraphForm, PrefixForm, Rows]:
    """Both forms on so many rows for each cell of the features, weighted by its probability."""
    cells, probability = sem.table
    nodes = [node for node in sem.graph.observed if node != sem.graph.outcome]
    names = sem.graph.columns_of(nodes)
    table = cells.assign(p=probability).groupby(names, as_index=False)["p"].sum()
    table = pd.concat([table] * copies, ignore_index=True)
    rows = Rows.read(table[names], table["p"].to_numpy(), sem.graph)
    nuisances, estimand = Nuisances(sem.graph, "saturated", rows, 0, None), identify(unfair)
    graph = GraphForm(estimand, nuisances, 0, regression="saturated")
    return graph, PrefixForm(estimand, nuisances, "saturated", 0), rows


def identified(seed: int) -> list[tuple[Sem, UnfairPaths]]:
    """The models and path sets of a seed, without and with latent nodes."""
    rng = np.random.default_rng(seed)
    sem = random_model(random_graph(rng), rng)
    unfair = random_unfair(sem.graph, rng)
    found = [(sem, unfair), (sem, unfair.reversed())]
    other, sets = random_latent(seed)
    for each in sets:
        try:
            identify(each)
        except NotIdentifiedError:
            continue
        found.append((other, each))
    return found


def mean(values: Array, weight: Array) -> Array:
    return np.asarray(weight @ values / weight.sum())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(5)
def test_equals_the_formula_on_enumerated_tables(seed: int) -> None:
    for sem, unfair in identified(seed):
        graph, prefix, rows = saturated(sem, unfair)
        values, other = graph.influence(score_of(sem), rows), prefix.influence(score_of(sem), rows)
        for regime, found in zip(unfair.regimes, (values.y0, values.ypi), strict=True):
            assert mean(found, values.weight)[0] == pytest.approx(sem.truth(regime), abs=1e-10)
        assert np.allclose(graph.stages(rows)["mean_weight"].astype(float), 1.0, atol=1e-10)
        for name in ("y0", "ypi", "lower", "rest", "disagreement"):
            one, two = getattr(values, name), getattr(other, name)
            assert np.allclose(mean(one, values.weight), mean(two, other.weight), atol=1e-10), name


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(5)
def test_has_no_larger_variance_than_the_prefix_form(seed: int) -> None:
    """Where each cell has many rows: a saturated regression pulls the means of small ones towards that of all."""
    copies = 1000
    for sem, unfair in identified(seed):
        graph, prefix, rows = saturated(sem, unfair, copies)
        values, other = graph.influence(score_of(sem), rows), prefix.influence(score_of(sem), rows)
        for one, two in (
            (values.y0, other.y0),
            (values.ypi, other.ypi),
            (values.ypi - values.y0, other.ypi - other.y0),
        ):
            center, wide = one - mean(one, values.weight), two - mean(two, other.weight)
            spread, most = mean(center**2, values.weight), mean(wide**2, other.weight)
            assert (spread <= most * (1.0 + 1.0 / copies) + 1e-10).all()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.some(3)
def test_is_the_derivative_of_the_formula(seed: int) -> None:
    """The truth moves with the distributions of the noise as the mean of the influence values does."""
    step, rng = 1e-5, np.random.default_rng([seed, 7])
    for sem, unfair in identified(seed):
        graph, _, rows = saturated(sem, unfair)
        values = graph.influence(score_of(sem), rows)
        names = list(rows.table.columns)
        moves = {name: rng.normal(size=len(p)) * p for name, p in sem.noise.items()}

        def moved(sign: int, of: Sem = sem, by: Mapping[str, Array] = moves) -> Sem:
            return replace(of, noise={k: p + sign * step * (by[k] - p * by[k].sum()) for k, p in of.noise.items()})

        up, down = moved(1), moved(-1)
        tables = []
        for model in (up, down):
            cells, probability = model.table
            tables.append(cells.assign(p=probability).groupby(names)["p"].sum())
        keys = pd.MultiIndex.from_frame(rows.table) if len(names) > 1 else rows.table[names[0]]
        change = (tables[0] - tables[1]).loc[keys].to_numpy()
        for regime, found in zip(unfair.regimes, (values.y0, values.ypi), strict=True):
            slope = (up.truth(regime) - down.truth(regime)) / (2 * step)
            assert change @ found[:, 0] / (2 * step) == pytest.approx(slope, abs=1e-6)


# --- drawn worlds ----------------------------------------------------------------------------------------------------

MIXED = pf.CausalGraph(
    "Q -> A; {A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y", baseline="no", contrast="yes"
)
UNFAIR = MIXED.unfair("A -> Y", "A -> D -> Y")


def draw(n: int, seed: int) -> pd.DataFrame:
    """Rows with a categorical, a number and an integer; D overlaps, M nearly separates the groups."""
    rng = np.random.default_rng(seed)
    q = rng.integers(4, size=n)
    a = rng.random(n) < expit(0.5 * q - 0.7)
    d = np.array(["low", "mid", "high"])[np.clip(q // 2 + a + (rng.random(n) < 0.5), 0, 2)]
    m = 3.0 * a + 0.5 * q + rng.normal(size=n)
    return pd.DataFrame({"A": np.where(a, "yes", "no"), "Q": q, "D": pd.Categorical(d), "M": m})


def score(sample: CounterfactualSample) -> Array:
    x = sample.rows
    p = expit(((x["A"] == "yes") + (x["D"] == "high") + x["M"] + 0.5 * x["Q"] - 2.0).to_numpy(float))
    return np.column_stack([p, p > 0.5])


def form_of(df: pd.DataFrame, weight: Array | None = None, **settings: int) -> tuple[GraphForm, Rows]:
    rows = Rows.read(df, weight, MIXED)
    nuisances = Nuisances(MIXED, "logistic", rows, 0, None, 2)
    return GraphForm(identify(UNFAIR), nuisances, 0, **{"draws": 20, "learned": 8000, **settings}), rows


@cache
def truth(n: int = 400_000) -> tuple[Array, Array]:
    """The means of both worlds, by the equations: D and the outcome read A = 1 in the second, M reads 0 in both."""
    rng = np.random.default_rng(99)
    q, found = rng.integers(4, size=n), []
    m = 0.5 * q + rng.normal(size=n)
    for arm, label in enumerate(("no", "yes")):
        d = np.array(["low", "mid", "high"])[np.clip(q // 2 + arm + (rng.random(n) < 0.5), 0, 2)]
        rows = pd.DataFrame({"A": label, "Q": q, "D": d, "M": m})
        found.append(score(CounterfactualSample(rows, np.ones(n))).mean(axis=0))
    return found[0], found[1]


def test_estimates_where_only_parents_overlap() -> None:
    form, rows = form_of(draw(2000, 0))
    values = form.influence(score, rows)
    for found, expected in zip((values.y0, values.ypi), truth(), strict=True):
        error = np.std(found, axis=0) / np.sqrt(len(found))
        assert (np.abs(found.mean(axis=0) - expected) < 3.5 * error).all()
        assert (error < 0.02).all()
    assert (form.stages(rows)["problem"] == "").all()
    assert len(values.stages) == 2 * len(form.stages(rows))
    assert (values.stages[["balance_z", "correction_z"]].abs() < 4.0).all(axis=None)
    low, high = np.abs(values.lower.mean(axis=0)), 1.0 - np.abs(values.rest.mean(axis=0))
    assert (low <= high + 0.01).all()
    assert (low <= values.disagreement.mean(axis=0) + 0.03).all()


def test_new_rows_are_judged_by_what_was_learned() -> None:
    form, _ = form_of(draw(2000, 0))
    other = draw(1500, 5).set_index(np.arange(10_000, 11_500))
    rows = form.nuisances.rows_of(other, None)
    assert rows.position is not None
    assert (rows.position < 0).all()
    values = form.influence(score, rows)
    for found, expected in zip((values.y0, values.ypi), truth(), strict=True):
        assert (np.abs(found.mean(axis=0) - expected) < 4.0 * np.std(found, axis=0) / np.sqrt(1500)).all()


def test_drawn_rows_keep_labels_and_types() -> None:
    df, seen = draw(400, 1), []
    form, rows = form_of(df, draws=3, learned=1000)

    def spy(sample: CounterfactualSample) -> Array:
        seen.append(sample.rows)
        return score(sample)

    form.influence(spy, rows)
    reads = list(MIXED.input_columns)
    for each in seen:
        assert list(each.columns) == reads
        assert (each.dtypes == df[reads].dtypes).all()
        assert len(set(each["A"])) == 1
        assert set(each["M"]) <= set(df["M"])
    assert {label for each in seen for label in each["A"]} == {"no", "yes"}


def test_one_seed_gives_one_result() -> None:
    df = draw(400, 2)
    (one, rows), (other, _) = form_of(df, draws=3, learned=1000), form_of(df, draws=3, learned=1000)
    first = one.influence(score, rows)
    for again in (other.influence(score, rows), one.influence(score, rows)):
        for name in ("y0", "ypi", "lower", "rest"):
            assert np.array_equal(getattr(first, name), getattr(again, name))


def test_rows_without_weight_change_no_estimate_but_are_valued() -> None:
    df = draw(600, 3)
    absent = df.assign(M=50.0).head(100)
    weight = np.repeat([1.0, 0.0], [600, 100])
    one, rows = form_of(pd.concat([df, absent], ignore_index=True), weight, draws=10, learned=2000)
    other, alone = form_of(df, draws=10, learned=2000)
    values, expected = one.influence(score, rows), other.influence(score, alone)
    for found, target in ((values.y0, expected.y0), (values.ypi, expected.ypi)):
        assert np.allclose(mean(found, values.weight), target.mean(axis=0), atol=0.02)
    assert np.isfinite(values.y0).all()
    assert values.weight.mean() == pytest.approx(1.0)


@pytest.mark.parametrize("given", [(), ("Q",)])
def test_donors_have_the_weighted_distribution_given_parents(given: tuple[str, ...]) -> None:
    df = draw(4000, 4)
    weight = np.where(df["D"] == "high", 3.0, 1.0)
    a = (df["A"] == "yes").to_numpy(np.int8)
    pool, mechanisms = Pool(MIXED, df), LeafMechanisms(np.arange(4000), a, weight, 0)
    block = Block(("D", "M"), given, 1, False)
    world = mechanisms.start(pool, ("Q",), np.arange(4000), 5)
    drawn = mechanisms.expand(pool, world, block, np.random.default_rng(0)).at
    assert (drawn["D"] == drawn["M"]).all()
    assert (a[drawn["D"]] == 1).all()
    high = (df["D"] == "high").to_numpy()
    for level in range(4) if given else [None]:
        own = (a == 1) & ((df["Q"] == level).to_numpy() if level is not None else True)
        asked = (df["Q"] == level).to_numpy()[drawn["Q"]] if level is not None else np.ones(20_000, bool)
        expected = np.average(high[own], weights=weight[own])
        assert high[drawn["D"][asked]].mean() == pytest.approx(expected, abs=0.04)


# --- weights ---------------------------------------------------------------------------------------------------------


def test_a_chain_without_overlap_is_reported() -> None:
    graph = pf.CausalGraph("A -> {M1 M2 M3}; M1 -> M2; M2 -> M3; {M2 M3} -> Y", sensitive="A", outcome="Y")
    unfair = graph.unfair(lambda path: path[1] in ("M1", "M3"))
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=1500)
    m1 = 4.0 * a + rng.normal(size=1500)
    m2 = 0.5 * m1 + 0.5 * a * np.sin(m1) + 0.5 * rng.normal(size=1500)
    m3 = 0.5 * m2 + 0.5 * a + 0.5 * rng.normal(size=1500)
    rows = Rows.read(pd.DataFrame({"A": a, "M1": m1, "M2": m2, "M3": m3}), None, graph)
    form = GraphForm(identify(unfair), Nuisances(graph, "logistic", rows, 0, None, 2), 0, learned=3000)
    stages = form.stages(rows).set_index(["regime", "nodes"])
    assert "effective size" in stages.loc[("unfair", "M2"), "problem"]
    assert (stages.loc["baseline", "problem"] == "").all()


def test_nodes_of_one_arm_and_the_same_parents_are_one_block() -> None:
    graph = pf.CausalGraph("Q -> A; {A Q} -> B; {A Q} -> C; {A Q B} -> D; {B C D} -> Y", sensitive="A", outcome="Y")
    df = pd.DataFrame({name: [0, 1, 0, 1] for name in "ABCDQ"})
    form_blocks = []
    for ends in ("BD", "BCD"):
        unfair = graph.unfair(lambda path, ends=ends: path[1] in ends)
        form = GraphForm(identify(unfair), Nuisances(graph, "logistic", Rows.read(df, None, graph), 0, None), 0)
        form_blocks.append([(block.nodes, block.given, block.arm) for block in form.blocks if block.world])
    assert (("B", "D"), ("Q",), 1) in form_blocks[0]
    assert (("C",), ("Q",), 0) in form_blocks[0]
    assert len(form_blocks[1]) == 2


# --- refusals --------------------------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    df = draw(300, 6)
    with pytest.raises(DataError, match="graph form estimates predictions only"):
        GraphForm(identify(UNFAIR, "outcome"), form_of(df)[0].nuisances, 0)
    form, rows = form_of(df, draws=2, learned=500)
    with pytest.raises(DataError, match=r"outside \[0, 1\]"):
        form.influence(lambda sample: np.full(len(sample.rows), 2.0), rows)
    cells = pd.DataFrame({"A": ["no", "yes"] * 4, "Q": [0, 0, 1, 1, 2, 2, 3, 3], "D": "low", "M": 0.0})
    cells = cells[(cells["A"] == "no") | (cells["Q"] < 3)]
    rows = Rows.read(cells.reset_index(drop=True), None, MIXED)
    exact = GraphForm(identify(UNFAIR), Nuisances(MIXED, "saturated", rows, 0, None), 0, regression="saturated")
    with pytest.raises(PositivityError, match=r"A world holds Q=.*3.*no row with A='yes'"):
        exact.influence(score, rows)
