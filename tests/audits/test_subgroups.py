"""Effects within subgroups against exact ones of a known model, and what cannot be a subgroup."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair.audits.subgroups import Level, estimate_level, read_subgroups
from pyrofair.effects.estimates import Estimates
from tests.models import Known

# Q causes A and M; W causes A, M and the score; A causes M. The effect runs with opposite signs in Q=0 and Q=1.
GRAPH = pf.CausalGraph("{Q W} -> A; {A Q W} -> M; {A Q W M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> M -> Y")
P_Q, P_W = 0.4, 0.3


def p_a(q: Any, w: Any) -> Any:
    return 0.25 + 0.3 * q + 0.2 * w


def p_m(a: Any, q: Any, w: Any) -> Any:
    return 0.3 + 0.4 * a * (1 - q) - 0.25 * a * q + 0.2 * w


def score(a: Any, q: Any, w: Any, m: Any) -> Any:
    return 0.1 + 0.1 * a + 0.1 * w + 0.55 * m + 0.1 * (q == 1) * m


MODEL = Known(lambda X: score(*(X[name].to_numpy() for name in "AQWM")))


def draw(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q, w = (rng.random(n) < P_Q).astype(int), (rng.random(n) < P_W).astype(int)
    a = (rng.random(n) < p_a(q, w)).astype(int)
    m = (rng.random(n) < p_m(a, q, w)).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "W": w, "M": m}, index=[f"u{i}" for i in range(n)])


def truth(kept: Callable[[int, int], bool]) -> float:
    """Return the mean unfair effect on decisions among units with some Q and W, by enumeration."""
    total = mass = 0.0
    for q, w in product((0, 1), repeat=2):
        if not kept(q, w):
            continue
        p = (P_Q if q else 1 - P_Q) * (P_W if w else 1 - P_W)
        mass += p
        for arm, sign in ((1, 1.0), (0, -1.0)):
            for m in (0, 1):
                chance = p_m(arm, q, w) if m else 1 - p_m(arm, q, w)
                total += p * sign * chance * float(score(0, q, w, m) > 0.5)
    return total / mass


def run(df: pd.DataFrame, **settings: Any) -> pf.audits.Audit:
    source = settings.pop("source", pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0))
    return pf.audit({"model": MODEL}, source, df, random_state=0, progress=False, **settings)


@pytest.fixture(scope="module")
def report() -> pf.audits.Audit:
    within = {"Q": "Q", "both": lambda table: np.where(table["Q"] + table["W"] == 2, "yes", "no")}
    return run(draw(20_000, 1), subgroups=within)


def effects(report: pf.audits.Audit) -> pd.DataFrame:
    own = report.subgroups.query("quantity == 'mean_unfair_effect'")
    return own.set_index(own["subgroup"] + "=" + own["level"])


def test_effects_in_subgroups_are_those_of_the_model(report: pf.audits.Audit) -> None:
    exact = {
        "Q=0": truth(lambda q, w: q == 0),
        "Q=1": truth(lambda q, w: q == 1),
        "both=no": truth(lambda q, w: q + w < 2),
        "both=yes": truth(lambda q, w: q + w == 2),
    }
    assert exact["Q=0"] > 0.3
    assert exact["Q=1"] < -0.2  # the whole hides opposite effects
    found = effects(report)
    for name, value in exact.items():
        row = found.loc[name]
        error = (row["upper"] - row["lower"]) / 2 / 2.3
        assert abs(row["estimate"] - value) < 4 * error, name
        assert error < 0.04
        assert row["rows"] > row["ess"] > 500
    assert found["rows"].tolist()[:2] == [int((draw(20_000, 1)["Q"] == q).sum()) for q in (0, 1)]


def test_levels_average_to_the_whole(report: pf.audits.Audit) -> None:
    own = report.subgroups.query("subgroup == 'Q'").pivot_table(index="quantity", columns="level", values="estimate")
    shares = report.subgroups.query("subgroup == 'Q' and quantity == 'p_y0'")["rows"].to_numpy() / 20_000
    whole = report.table.query("decisions == 'threshold'").set_index("quantity")["estimate"]
    for quantity in ("positive_rate", "p_y0", "p_ypi", "mean_unfair_effect", "piu_lower"):
        assert own.loc[quantity].to_numpy() @ shares == pytest.approx(whole[quantity], abs=1e-9)
    exact = [abs(truth(lambda q, w, k=k: q == k)) for k in (0, 1)]  # of one sign in each level
    assert own.loc["piu_lower"].to_numpy() == pytest.approx(exact, abs=0.03)
    assert whole["piu_lower"] > 0.3 > 0.2 > abs(whole["mean_unfair_effect"])


def test_intervals_hold_together(report: pf.audits.Audit) -> None:
    """The critical value is above that of one interval, and below Bonferroni's."""
    values = report.influence["model"]["threshold"]
    effect = (values["ypi"] - values["y0"])[draw(20_000, 1)["Q"] == 0]
    row = effects(report).loc["Q=0"]
    half = (row["upper"] - row["lower"]) / 2
    reach = half / (effect.std(ddof=0) / np.sqrt(len(effect)))
    assert 1.96 < reach < 3.4  # times the inflation of the standard error


@pytest.mark.slow
def test_simultaneous_coverage() -> None:
    exact = np.array([truth(lambda q, w, k=k: q == k) for k in (0, 1)])
    hits = []
    for seed in range(300):
        found = effects(run(draw(1500, 100 + seed), subgroups=["Q"]))
        hits.append(((found["lower"] <= exact) & (exact <= found["upper"])).all())
    assert 0.93 <= np.mean(hits) <= 1.0


def test_series_and_columns_give_the_same() -> None:
    df = draw(2_000, 2)
    one = run(df, subgroups=["Q"]).subgroups
    other = run(df, subgroups={"Q": df["Q"].sample(frac=1.0, random_state=0).reindex(df.index)}).subgroups
    pd.testing.assert_frame_equal(one, other)
    weighted = run(df, subgroups="Q", sample_weight=2.0 * np.ones(len(df))).subgroups
    pd.testing.assert_frame_equal(one, weighted, check_exact=False, rtol=1e-9)


def test_levels_with_too_little_have_no_interval() -> None:
    df = draw(4_000, 3)
    few = df[df["Q"] == 0].groupby(["A", "W", "M"]).head(2).assign(Q=2)  # 8 rows of either group
    found = run(pd.concat([df, few]).reset_index(drop=True), subgroups=["Q"])
    own = effects(found).loc["Q=2"]
    assert np.isnan(own["estimate"])
    assert np.isnan(own["lower"])
    assert own["note"] == "no estimate: 8 row(s) with A=0, fewer than 10"
    assert effects(found).loc["Q=1", "note"] == ""
    page = found.to_html()
    assert "No verdict: too few rows" in page


def test_ordered_categories_keep_their_order() -> None:
    df = draw(2_000, 4)
    levels = {"W": lambda table: pd.Categorical(np.where(table["W"] == 1, "late", "early"), ["late", "early", "none"])}
    found = run(df, subgroups={"W": lambda table: pd.Series(levels["W"](table), index=table.index)}).subgroups
    assert found["level"].unique().tolist() == ["late", "early"]


TABLE = draw(400, 5)


@pytest.mark.parametrize(
    ("subgroups", "message"),
    [
        (["M"], "'M' is made of 'M', which 'A' causes: .* Choose among 'Q', 'W'"),
        (["A"], "made of 'A', the sensitive attribute: .* Choose among 'Q', 'W'"),
        (["hobby"], "made of 'hobby', which is no column of the graph. .* Add it to the graph"),
        (["w"], "made of 'w', which is no column of the graph. Did you mean 'W'[?] Choose among 'Q', 'W'[.]$"),
        (["V"], "which is no cause of what a classifier reads"),
        ({"x": 3}, "The subgroup 'x' is 3; give a column"),
        ({"x": TABLE["M"]}, "The labels 'x' differ between rows that agree in 'Q', 'W'"),
        ({"x": TABLE["Q"].head(3)}, "the subgroup 'x'"),
        ({"x": lambda table: table["M"]}, "asks for 'M', and is given 'Q', 'W'"),
        ({"x": lambda table: [1, 2]}, r"returned the shape \(2,\) for 400 rows"),
        ({"x": lambda table: table["Q"].reset_index(drop=True)}, "must keep the index of the table"),
        ({"x": lambda table: table["Q"].where(table["Q"] == 1)}, "has no label for .* row"),
        ({"x": lambda table: np.arange(len(table))}, "The labels 'x' differ between rows that agree in 'Q', 'W'"),
    ],
)
def test_what_is_no_subgroup(subgroups: Any, message: str) -> None:
    graph = pf.CausalGraph("{Q W} -> A; {A Q W} -> M; {A Q W M} -> Y; Q -> V", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> M -> Y"), propensity="saturated", regression="saturated")
    df = TABLE.assign(V=TABLE["Q"], hobby=1)
    with pytest.raises(pf.DataError, match=message):
        run(df, source=source, subgroups=subgroups)


@pytest.mark.parametrize("index", ["names", "numbers"])
def test_a_function_that_reads_another_table_by_the_index_is_refused(index: str) -> None:
    df = TABLE.assign(Q=np.random.default_rng(0).normal(size=len(TABLE)))
    df = df if index == "names" else df.reset_index(drop=True)
    message = "fails on the same rows in another order" if index == "names" else "rows another label when the same rows"
    source = pf.OneStep(UNFAIR, propensity="logistic")
    with pytest.raises(pf.DataError, match=f"{message}.*no function of the columns that it is given, 'Q', 'W'"):
        run(df, subgroups={"s": lambda table: df.loc[table.index, "M"]}, source=source)
    with pytest.raises(pf.DataError, match="rows another label when the same rows"):
        run(df, subgroups={"s": lambda table: df["M"].to_numpy()}, source=source)
    with pytest.raises(pf.DataError, match="The labels 's' differ between rows that agree in 'Q', 'W'"):
        run(TABLE, subgroups={"s": lambda table: TABLE.loc[table.index, "M"]})


def test_functions_of_continuous_columns_are_taken() -> None:
    df = TABLE.assign(Q=np.random.default_rng(0).normal(size=len(TABLE)))
    cuts = {"four": lambda table: pd.qcut(table["Q"], 4), "two": lambda table: pd.cut(table["Q"], 2).array}
    found = read_subgroups(cuts, pf.OneStep(UNFAIR, propensity="logistic"), df[["A", "Q", "W", "M"]])
    assert [len(each.levels) for each in found] == [4, 2]


def test_an_impossible_effect_is_no_number() -> None:
    columns = pd.MultiIndex.from_product([["model"], ["threshold"], ["ypi", "y0", "positive"]])
    influence = pd.DataFrame(0.5, index=range(40), columns=columns)
    influence["model", "threshold", "ypi"] = 2.0
    level = Level("Q", "0", 40, 40.0, 40.0, "", "")
    row, estimate = estimate_level(level, Estimates(influence, np.ones(40)), "model", "p_y0")
    assert estimate is None
    assert np.isnan(row["estimate"])
    assert row["note"].startswith("in doubt: the mean unfair effect is estimated at 1.50")
    influence["model", "threshold", "ypi"] = 1.5
    row, estimate = estimate_level(level, Estimates(influence, np.ones(40)), "model", "p_y0")
    assert row["estimate"] == pytest.approx(0.5)
    assert estimate is not None
    assert row["note"] == ""


def test_labels_of_columns_without_repeats_cannot_be_checked() -> None:
    df = TABLE.assign(Q=np.random.default_rng(0).normal(size=len(TABLE)))
    with pytest.raises(pf.DataError, match=r"Only 0 row\(s\) repeat another one in 'Q', 'W', fewer than 300"):
        run(df, subgroups={"x": df["Q"] > 0}, source=pf.OneStep(UNFAIR, propensity="logistic"))


def test_sources_without_values_for_rows_are_refused() -> None:
    with pytest.raises(
        pf.DataError, match=r"subgroups need a source .* IPW has none. Pass the unfair paths, or OneStep"
    ):
        run(TABLE, source=pf.IPW(UNFAIR, propensity="saturated"), subgroups=["Q"])


def test_the_graph_form_conditions_on_parents_alone() -> None:
    graph = pf.CausalGraph("{Q W} -> A; {A Q} -> M; {A Q W M} -> Y", sensitive="A", outcome="Y")
    settings: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "random_state": 0}
    source = pf.OneStep(graph.unfair("A -> M -> Y"), form="graph", **settings)
    assert source.fit(TABLE).conditioned_on == ("Q",)
    with pytest.raises(pf.DataError, match=r"'W', on which not every stage of OneStep \(form 'graph'\) conditions"):
        run(TABLE, source=source, subgroups=["W"])
    assert pf.OneStep(graph.unfair("A -> M -> Y"), form="prefix", **settings).fit(TABLE).conditioned_on == ("Q", "W")


# --- thresholds -------------------------------------------------------------------------------------------------------


def quantities(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_index(["model", "quantity"])[["estimate", "lower", "upper", "ess", "note"]]


@pytest.mark.parametrize("source", ["influence", "weights"])
@pytest.mark.some(1)
def test_a_threshold_has_the_numbers_of_an_audit_at_it(source: str) -> None:
    made: Any = {
        "influence": pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0),
        "weights": pf.IPW(UNFAIR, propensity="saturated"),
    }[source]
    df = TABLE.assign(Y=TABLE["M"])
    found = run(df, source=made, thresholds=[0.15, 0.5], n_boot=40)
    for threshold in (0.15, 0.5):
        alone = run(df, source=made, threshold=threshold, n_boot=40)
        one = quantities(found.thresholds[found.thresholds["threshold"] == threshold])
        pd.testing.assert_frame_equal(one, quantities(alone.table[alone.table["decisions"] == "threshold"]))
    plain = run(df, source=made, n_boot=40)
    pd.testing.assert_frame_equal(found.table, plain.table)
    pd.testing.assert_frame_equal(found.draws, plain.draws, check_column_type=False)
    assert plain.thresholds.empty
