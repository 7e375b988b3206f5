"""Every part of a group difference against enumeration, its laws, its coverage, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair.audits.decomposition import Decomposition
from pyrofair.audits.parts import tell_all, union_of
from pyrofair.graph.first_edges import Switched, beginning_with, heads_of
from tests.models import Known
from tests.test_oracles import Sem, random_graph, random_model

COPIES = 40


def population(sem: Sem) -> tuple[pd.DataFrame, np.ndarray]:
    """The cells of a model, each as so many rows that its weights count as supported."""
    cells, probability = sem.table
    at = np.repeat(np.arange(len(cells)), COPIES)
    return cells.iloc[at].reset_index(drop=True), probability[at]


def mean_in(sem: Sem, switched: Switched, target: str) -> float:
    return sem.truth(beginning_with(switched, sem.graph).regimes[1], target)


def check(sem: Sem, target: str) -> Decomposition:
    """Every part of a population against the means in all worlds by enumeration of the noise."""
    graph = sem.graph
    table, weight = population(sem)
    y = table[graph.columns["Y"][0]].to_numpy(float)
    models = {"m": Known(sem.scores_of)} if target == "prediction" else {"m": y}
    saturated = {"propensity": "saturated", "regression": "saturated"}
    found = pf.decompose(models, graph, table, sample_weight=weight, outcome=False, **saturated)
    own = found.table.query("decisions == 'score'").set_index("part")
    score = sem.scores_of(table) if target == "prediction" else y
    a, whole = table["A"].to_numpy(), Switched(heads_of(graph.directed_paths("A", "Y"), graph))
    m0, m1 = (np.average(score[a == g], weights=weight[a == g]) for g in (0, 1))
    mean = {each: mean_in(sem, each, target) for each in found.plan.worlds}
    total = mean[whole] - mean[Switched()]
    assert own["estimate"][["gap", "total effect", "confounding"]].tolist() == pytest.approx(
        [m1 - m0, total, m1 - m0 - total], abs=1e-10
    )
    blocks = found.plan.blocks
    for block, name in zip(
        blocks, [each for each in own.index if each not in ("gap", "total effect", "confounding")], strict=True
    ):
        orders = [order[: order.index(block)] for order in permutations(blocks)]
        added = [mean[union_of(before) | {*block}] - mean[union_of(before)] for before in orders]
        assert own["estimate"][name] == pytest.approx(np.mean(added), abs=1e-10)
        assert own[["smallest", "largest"]].loc[name].tolist() == pytest.approx([min(added), max(added)], abs=1e-10)
    parts = own.drop(index=["gap", "total effect"])["estimate"]
    assert parts.sum() == pytest.approx(own["estimate"]["gap"], abs=1e-12)
    return found


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("target", ["prediction", "outcome"])
@pytest.mark.some(12)
def test_parts_are_those_of_all_worlds(seed: int, target: str) -> None:
    rng = np.random.default_rng(7000 + seed)
    latent = {"causes": int(rng.integers(0, 3)), "mediators": int(rng.integers(0, 2))} if seed % 2 else {}
    sem = random_model(random_graph(rng, **latent), rng)
    try:
        check(sem, target)
    except pf.NotIdentifiedError:
        pytest.skip("the total effect is not identified")


# --- laws, on a table of binary columns ------------------------------------------------------------------------------

SATURATED = {"propensity": "saturated", "regression": "saturated"}
EDGES = "C -> A; {C A} -> M; {C A M} -> L; {C A M L} -> Y"
GRAPH = pf.CausalGraph(EDGES, sensitive="A", outcome="Y")


def linear(AM: float = 0.0, **slopes: float) -> Known:
    """Return a score that is linear in some columns, and in a product of two."""
    return Known(
        lambda X: (
            0.1
            + sum(slope * X[name].astype(float) for name, slope in slopes.items())
            + (AM * X["A"] * X["M"] if AM else 0.0)
        )
    )


MODEL = linear(C=0.1, A=0.15, M=0.2, L=0.2, AM=0.2)


def draw(n: int = 1500, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    c = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.35 + 0.3 * c).astype(int)
    m = (rng.random(n) < 0.2 + 0.4 * a + 0.2 * c).astype(int)
    table = pd.DataFrame({"C": c, "A": a, "M": m, "L": (rng.random(n) < 0.2 + 0.2 * a + 0.4 * m).astype(int)})
    return table.assign(Y=(rng.random(n) < MODEL.score(table)).astype(int))


TABLE = draw()


@pytest.fixture(scope="module")
def parts() -> Decomposition:
    return pf.decompose({"m": MODEL}, GRAPH, TABLE, random_state=0, **SATURATED)


def scores(found: Decomposition, decisions: object = "score", model: str = "m") -> pd.DataFrame:
    own = found.table
    return own[(own["model"] == model) & (own["decisions"] == decisions)].set_index("part")


def test_exchanged_groups_turn_the_sign_of_an_average_but_not_of_an_order(parts: Decomposition) -> None:
    other = pf.CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=1, contrast=0)
    turned = pf.decompose({"m": MODEL}, other, TABLE, random_state=0, **SATURATED)
    one, two = scores(parts), scores(turned)
    for name in ("gap", "by way of M", "by way of L", "directly"):
        assert two["estimate"][name] == pytest.approx(-one["estimate"][name], abs=1e-12)
        assert two["upper"][name] == pytest.approx(-one["lower"][name], abs=1e-12)
    chains = [
        scores(pf.decompose({"m": MODEL}, graph, TABLE, order=["M", "L", "Y"], random_state=0, **SATURATED))
        for graph in (GRAPH, other)
    ]
    assert abs(chains[0]["estimate"]["by way of M"] + chains[1]["estimate"]["by way of M"]) > 0.01


def test_the_total_and_the_unfair_block_are_those_of_audits() -> None:
    unfair = GRAPH.unfair("A -> Y", through=["M"])
    found = pf.decompose({"m": MODEL}, GRAPH, TABLE, unfair=unfair, outcome=False, random_state=0, **SATURATED)
    assert found.unfair == ("by way of M", "directly")
    everything = GRAPH.unfair(lambda path: True)
    own = found.contrasts.query("part == 'unfair paths' and after == ''").set_index("decisions")["estimate"]
    for paths, values in (
        (everything, found.table.query("part == 'total effect'").set_index("decisions")["estimate"]),
        (unfair, own),
    ):
        report = pf.audit({"m": MODEL}, pf.OneStep(paths, **SATURATED), TABLE, random_state=0).table
        effect = report[report["quantity"] == "mean_unfair_effect"].set_index("decisions")["estimate"]
        for decisions in ("score", "threshold"):
            assert values[decisions] == pytest.approx(effect[decisions], abs=1e-10)
    of = scores(found)["estimate"]
    assert of["by way of M"] + of["directly"] == pytest.approx(of["unfair paths"], abs=1e-12)
    assert of["unfair paths"] + of["fair paths"] == pytest.approx(of["total effect"], abs=1e-12)
    assert "as an audit does" in str(found)


def test_reversed_paths_begin_at_the_other_group() -> None:
    unfair = GRAPH.unfair("A -> Y", through=["M"]).reversed()
    found = pf.decompose({"m": MODEL}, GRAPH, TABLE, unfair=unfair, outcome=False, random_state=0, **SATURATED)
    report = pf.audit({"m": MODEL}, pf.OneStep(unfair, **SATURATED), TABLE, random_state=0).table
    effect = report[report["quantity"] == "mean_unfair_effect"].set_index("decisions")["estimate"]
    first = found.contrasts.query("part == 'unfair paths' and after == ''").set_index("decisions")["estimate"]
    assert first[effect.index].tolist() == pytest.approx(effect.tolist(), abs=1e-10)
    exchanged = pf.CausalGraph(EDGES, sensitive="A", outcome="Y", baseline=1, contrast=0)
    paths = exchanged.unfair("A -> Y", through=["M"])
    same = pf.decompose({"m": MODEL}, exchanged, TABLE, unfair=paths, outcome=False, random_state=0, **SATURATED)
    for decisions in ("score", "threshold"):
        one, two = scores(found, decisions)["estimate"], scores(same, decisions)["estimate"]
        assert one.tolist() == pytest.approx(two[one.index].tolist(), abs=1e-12)
    assert str(found) == str(same)


def test_an_edge_that_does_nothing_has_no_part() -> None:
    found = scores(pf.decompose({"m": linear(C=0.1, M=0.3)}, GRAPH, TABLE, **SATURATED))
    assert found["estimate"][["directly", "by way of L"]].abs().max() < 1e-12
    assert found["estimate"]["by way of M"] > 0.05


def test_the_order_of_columns_rows_and_edges_does_not_matter(parts: Decomposition) -> None:
    table = TABLE.sample(frac=1.0, random_state=1)[["L", "Y", "C", "M", "A"]]
    graph = pf.CausalGraph("{L M A C} -> Y; {M A C} -> L; {A C} -> M; C -> A", sensitive="A", outcome="Y")
    found = pf.decompose({"m": MODEL}, graph, table, **SATURATED)
    pd.testing.assert_series_equal(
        scores(found)["estimate"].sort_index(), scores(parts)["estimate"].sort_index(), rtol=0.0, atol=1e-12
    )


def test_one_order_is_a_chain_of_its_worlds(parts: Decomposition) -> None:
    chain = pf.decompose({"m": MODEL}, GRAPH, TABLE, order=["L", "Y", "M"], random_state=0, **SATURATED)
    every = parts.contrasts.query("model == 'm' and decisions == 'score'").set_index(["part", "after"])["estimate"]
    after = {"by way of L": "", "directly": "by way of L", "by way of M": "by way of L; directly"}
    for name, before in after.items():
        assert scores(chain)["estimate"][name] == pytest.approx(every[name, before], abs=1e-12)
    assert scores(chain)["smallest"].isna().all()


# --- what cannot be told apart ----------------------------------------------------------------------------------------


def test_a_latent_cause_of_two_mediators_joins_their_parts() -> None:
    graph = pf.CausalGraph(
        "C -> A; {C A H} -> M; {C A M H} -> L; {C A M L} -> Y", sensitive="A", outcome="Y", latent=["H"]
    )
    found = pf.decompose({"m": MODEL}, graph, TABLE, **SATURATED)
    assert scores(found).index.tolist()[3:] == ["by way of M and by way of L", "directly"]
    assert "by way of M and by way of L" in " ".join(found.notes)


def test_poor_overlap_joins_parts_or_refuses_all() -> None:
    rng = np.random.default_rng(3)
    graph = pf.CausalGraph("A -> {M W Y}; {M W} -> Y", sensitive="A", outcome="Y")
    a = rng.integers(0, 2, 2000)
    table = pd.DataFrame({"A": a, "M": 6.0 * a + rng.normal(size=2000)})
    table["W"] = 6.0 * a + rng.normal(size=2000)
    model = linear(A=0.1, W=0.02)
    found = pf.decompose({"m": model}, graph, table, propensity="logistic", regression="logistic")
    assert len(found.plan.blocks) < 3
    assert "overlap" in " ".join(found.notes)
    apart = pf.CausalGraph("C -> {A M Y}; A -> {M Y}; M -> Y", sensitive="A", outcome="Y")
    table = pd.DataFrame({"A": a, "C": 8.0 * a + rng.normal(size=2000), "M": rng.normal(size=2000)})
    with pytest.raises(pf.PositivityError, match="total effect"):
        pf.decompose({"m": linear(A=0.1, M=0.01)}, apart, table, propensity="logistic", regression="logistic")


def test_paths_that_part_after_their_first_edge_are_two_parts() -> None:
    graph = pf.CausalGraph("A -> M; {A M} -> L; {A M L} -> Y", sensitive="A", outcome="Y")
    unfair = graph.unfair("A -> M -> Y")
    with pytest.raises(pf.NotIdentifiedError):
        pf.decompose({"m": MODEL}, graph, TABLE, unfair=unfair, **SATURATED)


def test_more_than_six_edges_need_an_order() -> None:
    names = list("BCDEFGH")
    edges = "; ".join(f"A -> {name}; {name} -> Y" for name in names)
    graph = pf.CausalGraph(edges, sensitive="A", outcome="Y")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.integers(0, 2, 400) for name in ["A", *names]})
    model = linear(B=0.2, C=0.1)
    with pytest.raises(pf.DataError, match=r"7 edges.*order="):
        pf.decompose({"m": model}, graph, table)
    learners = {"propensity": "logistic", "regression": "logistic"}
    found = pf.decompose({"m": model}, graph, table, order=names, **learners)
    assert len(str(found).splitlines()) <= 12
    assert scores(found)["estimate"][[f"by way of {name}" for name in names]].sum() == pytest.approx(
        scores(found)["estimate"]["total effect"], abs=1e-12
    )


# --- settings --------------------------------------------------------------------------------------------------------


def test_thresholds_subgroups_and_clusters(parts: Decomposition) -> None:
    table = TABLE.assign(site=np.arange(len(TABLE)) // 5)
    found = pf.decompose({"m": MODEL}, GRAPH, table, thresholds=[0.3], subgroups="C", groups="site", **SATURATED)
    assert {"threshold", "score", 0.3} <= {*found.table["decisions"]}
    assert scores(found)["estimate"].to_numpy() == pytest.approx(scores(parts)["estimate"].to_numpy(), abs=1e-12)
    assert not np.allclose(scores(found)["lower"], scores(parts)["lower"], atol=1e-6)
    within = found.subgroups.query("decisions == 'score' and model == 'm'")
    assert {*within["level"]} == {"0", "1"}
    for level, own in within.groupby("level"):
        rows = TABLE[TABLE["C"] == int(level)]
        p = MODEL.predict_proba(rows)[:, 1]
        by = own.set_index("part")["estimate"]
        assert by["gap"] == pytest.approx(p[rows["A"] == 1].mean() - p[rows["A"] == 0].mean(), abs=1e-12)
        assert abs(by["confounding"]) < 1e-10, "C is the only cause"
        assert by.drop(["gap", "total effect"]).sum() == pytest.approx(by["gap"], abs=1e-12)
    at = found.subgroups.query("decisions == 'threshold'")
    shown = next(block for block in found.view.blocks if block.name == "subgroups")
    assert [len(each.rows) for each in shown.tables] == at.groupby("model", sort=False).size().tolist()
    assert found.to_html().count('class="track effect"') == len(at)
    assert len(json.loads(found.to_json())["subgroups"]) == len(found.subgroups)


def test_levels_of_which_none_has_an_answer_are_listed(parts: Decomposition) -> None:
    assert parts.estimates is not None
    means = replace(parts.estimates, within={}, absent={("C", "0"): "too few rows"})
    table = tell_all({"": means}, 0.95)[""]["subgroups"]
    assert table[["subgroup", "level", "note"]].to_numpy().tolist() == [["C", "0", "too few rows"]]
    shown = next(block for block in replace(parts, subgroups=table).view.blocks if block.name == "subgroups")
    assert (list(shown.lines), list(shown.tables)) == (["C 0: too few rows."], [])


def test_copies_as_weights_change_nothing_but_intervals(parts: Decomposition) -> None:
    weight = np.where(TABLE["M"] == 1, 2.0, 1.0)
    found = pf.decompose({"m": MODEL}, GRAPH, TABLE, sample_weight=weight, **SATURATED)
    twice = TABLE.iloc[np.repeat(np.arange(len(TABLE)), weight.astype(int))].reset_index(drop=True)
    copied = pf.decompose({"m": MODEL}, GRAPH, twice, **SATURATED)
    assert scores(found)["estimate"].to_numpy() == pytest.approx(scores(copied)["estimate"].to_numpy(), abs=1e-9)


def test_the_observed_outcome_is_split_beside_the_models(parts: Decomposition) -> None:
    assert parts.outcome == "Y, observed"
    own, other = scores(parts), scores(parts, "threshold", "Y, observed")
    apart = parts.differences.query("decisions == 'score'").set_index("part")
    for name in apart.index:
        assert apart["estimate"][name] == pytest.approx(own["estimate"][name] - other["estimate"][name], abs=1e-12)
        assert apart["lower"][name] <= 0.0 <= apart["upper"][name], "the outcome was drawn from the scores"
    assert "in the data" in str(parts)
    without = pf.decompose({"m": MODEL}, GRAPH, TABLE.drop(columns="Y"), **SATURATED)
    assert without.outcome is None
    assert without.differences.empty
    with pytest.raises(pf.DataError, match="outcome=True"):
        pf.decompose({"m": MODEL}, GRAPH, TABLE.drop(columns="Y"), outcome=True, **SATURATED)


def test_decisions_of_humans_are_split_as_an_outcome() -> None:
    decided = (np.random.default_rng(5).random(len(TABLE)) < MODEL.predict_proba(TABLE)[:, 1]).astype(float)
    found = pf.decompose({"humans": decided}, GRAPH, TABLE, outcome=False, **SATURATED)
    own = scores(found, "threshold", "humans")["estimate"]
    a = TABLE["A"].to_numpy()
    assert own["gap"] == pytest.approx(decided[a == 1].mean() - decided[a == 0].mean(), abs=1e-12)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"by": "paths"}, "edges"),
        ({"order": ["M", "L"]}, "M, L, Y"),
        ({"names": {"Z": "zeal"}}, "'Z'"),
        ({"names": ["M"]}, "names"),
        ({"unfair": pf.CausalGraph("A -> Y", sensitive="A", outcome="Y").unfair("A -> Y")}, "graph"),
        ({"level": 95}, "level"),
        ({"splits": 0}, "splits"),
        ({"propensity": "forest"}, "propensity"),
        ({"subgroups": "M"}, "'M'"),
        ({"groups": "site"}, "'site'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict, named: str) -> None:
    with pytest.raises((pf.DataError, pf.GraphError), match=named):
        pf.decompose({"m": MODEL}, GRAPH, TABLE, **given)


@pytest.mark.parametrize("models", [{}, MODEL, {1: MODEL}])
def test_models_have_names(models: object) -> None:
    with pytest.raises(pf.DataError, match="models"):
        pf.decompose(models, GRAPH, TABLE)


# --- forms of the report ---------------------------------------------------------------------------------------------


def test_text_page_picture_and_json_show_the_same_parts(parts: Decomposition) -> None:
    lines = str(parts).splitlines()
    assert len(lines) <= 12
    gap = scores(parts, "threshold")["estimate"]["gap"]
    assert f"{100.0 * gap:+.1f}" in lines[1]
    page = parts.to_html()
    held = json.loads(parts.to_json())
    assert held["schema"] == "pyrofair-decomposition"
    assert len(held["table"]) in (len(parts.table), len(parts.table.columns))
    for name in ("confounding", "by way of M", "by way of L", "directly"):
        assert name in str(parts)
        assert name in page
    figure = parts.plot("m", "score")
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["1", "directly", "by way of L", "by way of M", "confounding (C)", "0"]
    with pytest.raises(pf.DataError, match="'n'"):
        parts.plot("n")


def test_worlds_have_short_names(parts: Decomposition) -> None:
    names = {"M": "marital status"}
    found = pf.decompose({"m": MODEL}, GRAPH, TABLE, names=names, outcome=False, random_state=0, **SATURATED)
    assert {"baseline", "direct", "marital status + direct", "L + direct"} <= {*found.means["mean"]}
    doubted = replace(found, doubts={"m": "at the stage L of the L + direct world"})
    assert "L + direct world" in str(doubted)


def test_the_share_of_a_gap_that_may_be_none_is_left_out() -> None:
    table = TABLE.assign(A=np.random.default_rng(1).integers(0, 2, len(TABLE)))
    found = scores(pf.decompose({"m": linear(C=0.01)}, GRAPH, table, outcome=False, **SATURATED))
    assert found["lower"]["gap"] < 0.0 < found["upper"]["gap"]
    assert found["share"].isna().all()


@pytest.mark.filterwarnings("ignore:The true M acts on L by:pyrofair.exceptions.PyrofairWarning")
def test_missing_values_count_as_values() -> None:
    rng = np.random.default_rng(7)
    lost = rng.random(len(TABLE)) < np.where(TABLE["A"] == 1, 0.3, 0.1)
    table = TABLE.assign(M=TABLE["M"].where(~lost))

    complete = linear(C=0.1, A=0.15, M=0.2, L=0.2)
    model = Known(lambda X: complete.score(X.assign(M=X["M"].fillna(0.5))))
    with pytest.raises(pf.DataError, match="missing"):
        pf.decompose({"m": model}, GRAPH, table, outcome=False, **SATURATED)
    lost_group = table.assign(A=table["A"].where(table.index > 3))
    with pytest.raises(pf.DataError, match="sensitive attribute 'A' of df is missing in 4 of"):
        pf.decompose({"m": model}, GRAPH, lost_group, missing="recorded", **SATURATED)
    found = pf.decompose({"m": model}, GRAPH, table, outcome=False, missing="recorded", **SATURATED)
    coded = table.assign(M=table["M"].map({0.0: "0", 1.0: "1"}).fillna("(not recorded)"))
    of_codes = Known(lambda X: complete.score(X.assign(M=X["M"].map({"0": 0.0, "1": 1.0, "(not recorded)": 0.5}))))
    by_hand = pf.decompose({"m": of_codes}, GRAPH, coded, outcome=False, **SATURATED)
    assert scores(found)["estimate"].to_numpy() == pytest.approx(scores(by_hand)["estimate"].to_numpy(), abs=1e-12)
    assert any("not recorded" in text for text in found.assumptions)
    assert not any("unfair" in text for text in found.assumptions)


@pytest.mark.filterwarnings("ignore:The true M acts on:pyrofair.exceptions.PyrofairWarning")
@pytest.mark.parametrize("beside", [False, True])
def test_an_observed_outcome_may_follow_the_truth_behind_a_record(beside: bool) -> None:
    table = TABLE.assign(M=TABLE["M"].where(TABLE.index % 4 > 0))
    models = {"m": linear(C=0.2, A=0.2)} if beside else {"humans": table["Y"].astype(float)}
    with pytest.warns(pf.PyrofairWarning, match="The true M acts on .*Y by its record alone"):
        found = pf.decompose(models, GRAPH, table, outcome=beside, missing="recorded", **SATURATED)
    for told in (found.assumptions, found.warnings):
        assert any("Y by its record alone" in text for text in told)
    alone = pf.decompose({"m": linear(C=0.2)}, GRAPH, table, outcome=False, missing="recorded", **SATURATED)
    assert not any("Y by its record alone" in text for text in (*alone.assumptions, *alone.warnings))


OF_LEVELS = Known(lambda X: 0.2 + 0.3 * X["M"] + 0.2 * (X["W"] == "x") + 0.1 * X["A"])


def with_a_rare_level() -> pd.DataFrame:
    """600 rows of which one of A=1 and six of A=0 hold the level "rare" of W."""
    rng = np.random.default_rng(1)
    a = (rng.random(600) < 0.15).astype(int)
    W = rng.choice(["x", "y"], 600).astype(object)
    W[np.concatenate([np.flatnonzero(a == 0)[:6], np.flatnonzero(a == 1)[:1]])] = "rare"
    return pd.DataFrame({"A": a, "W": W, "M": (rng.random(600) < 0.4 + 0.2 * a).astype(int)})


@pytest.mark.parametrize("seed", [0, 3])  # two splits of three have overlap, and all
def test_parts_and_forms_are_those_with_overlap_in_every_split(seed: int) -> None:
    df, how = with_a_rare_level(), {"regression": "logistic", "random_state": seed}
    for edge in ("W -> M; ", ""):
        graph = pf.CausalGraph(f"A -> {{W M Y}}; {edge}{{W M}} -> Y", sensitive="A", outcome="Y")
        lacks, source = seed == 0 and bool(edge), pf.OneStep(graph.unfair("A -> M -> Y"), **how)
        found = pf.decompose({"m": OF_LEVELS}, graph, df, **how)
        merged = [("W", "M"), ("Y",)] if lacks else [("W",), ("M",), ("Y",)]
        assert [*found.plan.blocks] == merged
        assert (("by way of W and by way of M" in str(found.notes)) and "split 3" in str(found.notes)) == lacks
        assert found.table["estimate"].abs().max() < 1.0
        if lacks:
            with pytest.raises(pf.PositivityError, match=r"stage M: .*\(by split 3"):
                source.fit(df)
            continue
        values = source.fit(df).influence(lambda world: OF_LEVELS.predict_proba(world.rows)[:, 1])
        assert source.form_ == ("graph" if seed == 0 else "prefix")
        assert (source.stages()["problem"] == "").all()
        assert abs((values.ypi - values.y0).mean()) < 0.2


def test_where_a_split_has_no_overlap_the_form_asked_for_gives_no_number() -> None:
    graph = pf.CausalGraph("A -> {W M Y}; W -> M; {W M} -> Y", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> M -> Y"), form="prefix", regression="logistic", random_state=0)
    with pytest.warns(pf.PositivityWarning, match="by split 3"):
        report = pf.audit({"m": OF_LEVELS}, source, with_a_rare_level())
    rows = report.table.set_index(["decisions", "quantity"]).loc["score"]
    assert rows.loc["p_y0", ["estimate", "lower"]].notna().all()
    assert rows.loc[["p_ypi", "mean_unfair_effect", "piu_upper"], ["estimate", "lower"]].isna().all(axis=None)
    assert "effective size 6.7" in rows.loc["p_ypi", "note"]
    assert "mean unfair effect (no estimate: a stage of the world 'unfair'" in report.details()


def test_a_level_of_a_subgroup_without_overlap_has_no_parts() -> None:
    rng, at = np.random.default_rng(0), np.arange(2000)
    df = pd.DataFrame({"S": (at < 68).astype(int), "A": at % 2, "W": rng.integers(0, 2, 2000)})
    df.loc[[0, 2, *range(1, 60, 2)], "W"] = 2  # of S=1 nearly all with A=1, and two of 34 with A=0
    df["M"] = (rng.random(2000) < 0.4 + 0.2 * df["A"]).astype(int)
    graph = pf.CausalGraph("S -> {M W Y}; A -> {M W Y}; W -> M; {M W} -> Y", sensitive="A", outcome="Y")
    model, unfair = {"m": linear(M=0.2, W=0.1)}, graph.unfair("A -> M -> Y")
    found = pf.decompose(model, graph, df, subgroups="S", **SATURATED).subgroups
    assert found.groupby("level")["estimate"].apply(lambda each: each.notna().all()).to_dict() == {
        "0": True,
        "1": False,
    }
    assert "overlap too little, stage" in found["note"].iloc[-1]
    of = pf.audit(model, pf.OneStep(unfair, **SATURATED), df, subgroups="S").subgroups
    effect = of[of["quantity"] == "mean_unfair_effect"].set_index("level")
    assert effect["estimate"].isna().to_dict() == {"0": False, "1": True}
    assert "effective size" in effect.loc["1", "note"]


def test_parts_of_few_rows_are_refused_and_those_of_one_fold_warned_of() -> None:
    graph = pf.CausalGraph("C -> Y; A -> Y", sensitive="A", outcome="Y")
    df = pd.DataFrame({"A": [1] * 3 + [0] * 500, "C": np.linspace(0, 1, 503)})
    with pytest.raises(pf.DataError, match=r"3\.0 effective rows"):
        pf.decompose({"m": linear(A=0.2)}, graph, df, **SATURATED)
    with pytest.warns(pf.PyrofairWarning, match="folds=1"):
        pf.decompose({"m": MODEL}, GRAPH, TABLE, folds=1, random_state=0, outcome=False)


# --- several levels ---------------------------------------------------------------------------------------------------


def levels_of(n: int = 1500) -> pd.DataFrame:
    """The rows of two levels, and of a third one whose M is as often 1 as 0."""
    other = draw(n, 1).query("A == 1").assign(A=2, M=lambda df: np.arange(len(df)) % 2)
    table = pd.concat([draw(n), other], ignore_index=True)
    return table.assign(A=table["A"].map({0: "zero", 1: "one", 2: "two"}))


LEVELS = levels_of()
EACH = pf.CausalGraph(EDGES, sensitive="A", outcome="Y", baseline="zero")
BY_LEVEL = Known(lambda X: MODEL.score(X.assign(A=X["A"] != "zero", M=X["M"].fillna(0.5))))
"""It reads a level other than the baseline as 1."""
WEIGHT = np.where(LEVELS["L"] == 1, 2.0, 1.0)


@pytest.mark.filterwarnings("ignore:.*by its record alone:pyrofair.exceptions.PyrofairWarning")
@pytest.mark.parametrize(
    "how",
    [
        lambda at: {"subgroups": "C", "thresholds": [0.3], "outcome": False},
        lambda at: {"sample_weight": WEIGHT[at], "groups": at // 2},
        lambda at: {"unfair": EACH.unfair("A -> Y", through=["M"]).with_contrast(None), "missing": "recorded"},
        lambda at: {"order": ["Y", "M", "L"], "unfair": EACH.unfair("A -> Y").with_contrast(None).reversed()},
    ],
)
def test_each_level_has_the_parts_of_its_rows(how: Callable[[Any], dict]) -> None:
    table, every = LEVELS, np.arange(len(LEVELS))
    if "missing" in how(every):
        table = table.assign(M=table["M"].where(table.index % 7 > 0))
    found = pf.decompose({"m": BY_LEVEL}, EACH, table, random_state=0, **how(every), **SATURATED)
    assert {*found.levels} == {"one", "two"} == {*found.table["contrast"]}
    for level, own in found.table.groupby("contrast"):
        at = np.flatnonzero(LEVELS["A"].isin(["zero", level]))
        given = how(at)
        if "unfair" in given:
            given["unfair"] = given["unfair"].with_contrast(level)
        alone = pf.decompose(
            {"m": BY_LEVEL}, EACH.with_contrast(level), table.iloc[at], random_state=0, **given, **SATURATED
        )
        for name in ("table", "subgroups", "contrasts"):
            one, two = getattr(found.levels[level], name), getattr(alone, name)
            pd.testing.assert_series_equal(one["estimate"], two["estimate"], rtol=0.0, atol=1e-12)
            assert (one["upper"] >= two["upper"] - 1e-12).all()
        widths = (own["upper"] - own["lower"]).to_numpy() / (alone.table["upper"] - alone.table["lower"]).to_numpy()
        assert 1.0 < np.nanmin(widths[own["decisions"] == "score"]) <= np.nanmax(widths) < 1.5
        pd.testing.assert_frame_equal(own.drop(columns="contrast").reset_index(drop=True), found.levels[level].table)


def test_one_level_has_the_intervals_of_two_groups() -> None:
    rows = LEVELS[LEVELS["A"] != "two"]
    of_level = pf.decompose({"m": BY_LEVEL}, EACH, LEVELS, contrasts=["one"], random_state=0, **SATURATED)
    alone = pf.decompose({"m": BY_LEVEL}, EACH.with_contrast("one"), rows, random_state=0, **SATURATED)
    for name in ("table", "contrasts", "means", "differences"):
        pd.testing.assert_frame_equal(getattr(of_level.levels["one"], name), getattr(alone, name), rtol=0.0, atol=1e-12)


def test_rows_that_are_there_twice_add_nothing_if_they_are_groups() -> None:
    twice = pd.concat([LEVELS, LEVELS], ignore_index=True).assign(home=[*range(len(LEVELS))] * 2)
    one = pf.decompose({"m": BY_LEVEL}, EACH, LEVELS.assign(home=range(len(LEVELS))), groups="home", **SATURATED)
    two = pf.decompose({"m": BY_LEVEL}, EACH, twice, groups="home", **SATURATED)
    for name in ("estimate", "lower", "upper"):
        np.testing.assert_allclose(scores(two)[name], scores(one)[name], rtol=0.0, atol=2e-4)


def test_a_level_that_cannot_be_compared_is_told_and_others_go_on() -> None:
    table = LEVELS.assign(A=LEVELS["A"].where(LEVELS.index > 3, "rare"))
    with pytest.warns(pf.PyrofairWarning, match="'rare' could not be split"):
        found = pf.decompose({"m": BY_LEVEL}, EACH, table, outcome=False, **SATURATED)
    assert ({*found.failures}, {*found.levels}) == ({"rare"}, {"one", "two"})
    assert "'rare'" in str(found)
    with pytest.raises(pf.DataError, match="contrasts"):
        pf.decompose({"m": BY_LEVEL}, EACH, table, contrasts=[None], **SATURATED)


def test_the_report_of_several_levels_shows_each() -> None:
    unfair = EACH.unfair("A -> Y").with_contrast(None)
    found = pf.decompose({"m": BY_LEVEL}, EACH, LEVELS, unfair=unfair, outcome=False, random_state=0, **SATURATED)
    text, page = str(found), found.to_html()
    for level in ("one", "two"):
        gap = found.levels[level].table["estimate"].iloc[0]
        assert f"A={level}" in text
        assert f"{100.0 * gap:+.1f}".replace("-", "\N{MINUS SIGN}") in text
        assert f"A={level} and zero" in page
    held = json.loads(found.to_json())
    assert {row["contrast"] for row in held["table"]} == {"one", "two"}
    assert len(text.splitlines()) <= 12 * 2
    assert len(found.plot().axes) == 2
