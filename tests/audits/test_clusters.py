"""Groups of rows as units: of every source and analysis, refused where they cannot be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator

import pyrofair as pf
from pyrofair.audits import audit_contrasts
from pyrofair.audits.bootstrap import Draw, Units
from pyrofair.audits.clusters import ROWS
from pyrofair.effects.estimates import kish_size
from pyrofair.nuisances.rows import Rows
from pyrofair.robustness.sensitivity import confounding, cross_world, switching
from pyrofair.sources.gcomputation import SplitMechanisms

GRAPH = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{text}") for text in ("Columns outside the graph", "rows repeat another one")
]


class Model:
    """A known classifier."""

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        p = 1.0 / (1.0 + np.exp(-(X["A"] + X["M"] - 0.5 * X["Q"] - 0.8)))
        return np.column_stack([1.0 - p, p])


def draw(groups: int = 60, size: int = 5, seed: int = 0, *, by_group: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    home = np.repeat(np.arange(groups), size)
    u, v = rng.normal(size=(2, groups))[:, home] + rng.normal(size=(2, len(home)))
    chance = rng.random(groups)[home] if by_group else rng.random(len(home))
    A = (chance < 0.5).astype(int)
    M = A + 0.5 * u + v
    Y = (M + u + rng.normal(size=len(home)) > 0.5).astype(int)
    return pd.DataFrame({"Q": u, "A": A, "M": M, "Y": Y, "home": home})


def one_step(**settings: Any) -> pf.OneStep:
    return pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0, **settings)


def run(df: pd.DataFrame, source: Any = None, **settings: Any) -> pf.Audit:
    settings = {"random_state": 0, "progress": False, "n_jobs": 1} | settings
    return pf.audit({"m": Model()}, source or one_step(), df, **settings)


def ends(report: pf.Audit, quantity: str = "mean_unfair_effect", decisions: str = "score") -> np.ndarray:
    own = report.table.query("quantity == @quantity and decisions == @decisions")
    return own[["estimate", "lower", "upper"]].to_numpy()[0]


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_errors_are_summed_by_group_and_reach_a_quantile_of_student_t() -> None:
    df = draw()
    report = run(df, groups="home")
    values = report.influence["m"]["score"]
    phi = (values["ypi"] - values["y0"]).to_numpy()
    sums = np.bincount(df["home"], phi - phi.mean()) / len(df)
    error = np.sqrt(60 / 59 * sums @ sums)
    degrees = min(kish_size(df["A"].to_numpy() == value, df["home"].to_numpy()) for value in (0, 1)) - 1.0
    half = stats.t.ppf(0.975, degrees) * error
    assert ends(report) == pytest.approx([phi.mean(), phi.mean() - half, phi.mean() + half])


@pytest.mark.parametrize("weighted", [False, True])
def test_copies_of_rows_in_a_group_count_once(weighted: bool) -> None:
    df = draw(150, 1)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 150) if weighted else np.ones(150)
    one = run(df, sample_weight=weight, groups="home")
    twice = run(pd.concat([df, df]), sample_weight=np.tile(weight, 2), groups="home")
    for quantity in ("mean_unfair_effect", "piu_upper", "accuracy", "positive_rate"):
        assert ends(twice, quantity, "threshold") == pytest.approx(ends(one, quantity, "threshold"))
    names = ["mean_weight_z", "balance_z", "correction_z"]
    pd.testing.assert_frame_equal(twice.stages[names], one.stages[names])
    pd.testing.assert_frame_equal(twice.rates.drop(columns="rows"), one.rates.drop(columns="rows"))
    assert not any("repeat another one" in text for text in twice.context.warnings)


def test_neither_the_form_of_labels_nor_the_order_of_rows_matters() -> None:
    df = draw()
    shuffled, plain = df.sample(frac=1.0, random_state=1), df.drop(columns="home")
    names = df["home"].map("home {}".format)
    expected = ends(run(df, groups="home"))
    for other in (run(plain, groups=df["home"]), run(plain, groups=names.tolist()), run(shuffled, groups="home")):
        assert ends(other) == pytest.approx(expected, abs=1e-12)


def test_degrees_follow_the_arm_of_fewer_groups() -> None:
    df = draw(60, 5, by_group=True)
    df.loc[df["home"] < 60, "A"] = (df["home"] % 4 == 0).astype(int)  # 15 groups of an arm
    with pytest.warns(pf.PyrofairWarning, match="15.0 effective group"):
        report = run(df, groups="home")
    assert report.context.estimates is not None
    assert report.context.estimates.clusters == pytest.approx(15.0)


def test_fewer_than_ten_groups_of_an_arm_have_no_interval() -> None:
    df = draw(60, 5, by_group=True)
    df["A"] = (df["home"] < 8).astype(int)
    report = run(df, one_step(form="prefix"), groups="home")
    assert report.table[["lower", "upper"]].isna().all(axis=None)
    assert report.table["estimate"].notna().all()
    assert set(report.verdicts["status"]) == {"few_rows"}
    assert report.table["note"].str.contains("8.0 effective group").all()
    rates = report.rates.set_index(["group", "quantity"])["lower"].xs("selection_rate", level="quantity")
    assert rates.isna().to_dict() == {"0": False, "1": True, "difference": True}


def test_a_level_of_few_groups_has_no_interval_and_leaves_the_others_theirs() -> None:
    df = draw(60, 5)
    df["Q"] = (df["home"] // 9).clip(upper=2)  # levels 0 and 1 have nine groups each
    settings: dict[str, Any] = {"propensity": "logistic", "regression": "logistic", "random_state": 0}
    found = run(df, groups="home", subgroups="Q").subgroups
    parts = pf.decompose({"m": Model()}, GRAPH, df, groups="home", subgroups="Q", **settings).subgroups
    for table in (found, parts):
        few = table["level"] != "2"
        assert table.loc[few, ["lower", "upper"]].isna().all(axis=None)
        assert table.loc[few, "note"].str.contains("effective group").all()
        assert (table["upper"] - table["lower"])[~few].between(0.0, 0.9).all(), "not by the quantile of so few groups"


def test_folds_and_stages_of_boosted_models_hold_whole_groups() -> None:
    df = draw(120, 5)
    fitted = pf.OneStep(UNFAIR, splits=1, random_state=0).fit(df, groups="home")
    for train, test in fitted.nuisances_.split():
        assert not {*df["home"].iloc[train]} & {*df["home"].iloc[test]}
    assert fitted.stages_by_fold()["units"].max() <= 120 / 5 + 1e-9


def test_subgroups_and_thresholds_sum_by_group() -> None:
    df = draw(80, 4)
    df["Q"] = (df["Q"] > 0.0).astype(int)
    settings: dict[str, Any] = {"subgroups": "Q", "thresholds": [0.4]}
    twice = run(pd.concat([df, df]), groups=np.tile(np.arange(320), 2), **settings)
    one = run(df, groups=np.arange(320), **settings)
    found, known = (each.thresholds[["lower", "upper"]] for each in (twice, one))
    pd.testing.assert_frame_equal(found, known)
    for (_, own, _), (_, other, _) in zip(twice.context.within, one.context.within, strict=True):
        assert own.covariance == pytest.approx(other.covariance, abs=1e-14)
        assert own.clusters == pytest.approx(other.clusters)


# -- other sources ----------------------------------------------------------------------------------------------------


def test_a_replicate_draws_whole_groups_once_for_fitted_and_audited_rows() -> None:
    audited, fitted = np.array([7, 7, 3, 9]), np.array([3, 7, 5, 5])
    units = Units.of_groups(audited, fitted)
    for bootstrap in ("bayesian", "multinomial"):
        counts, own = Draw(0, 1).both(units, bootstrap)  # type: ignore[arg-type]
        assert counts[0] == counts[1]
        assert own[2] == own[3]
        assert counts[2] * own[1] == pytest.approx(counts[0] * own[0])
        assert bootstrap == "multinomial" or (counts.sum(), own.sum()) == pytest.approx((4.0, 4.0))


def test_replicates_of_ipw_widen_by_groups() -> None:
    df = draw(40, 6)
    copies, groups = pd.concat([df] * 4), np.tile(np.arange(len(df)), 4)
    by_rows, by_groups = (run(copies, pf.IPW(UNFAIR), n_boot=40, groups=each) for each in (None, groups))
    for quantity in ("mean_unfair_effect", "positive_rate"):
        (_, low, high), (_, least, most) = ends(by_rows, quantity), ends(by_groups, quantity)
        assert most - least > 1.4 * (high - low)  # twice as long but for chance
    assert "whole groups" in by_groups.context.resampling


def test_halves_of_mechanisms_hold_whole_groups() -> None:
    df = draw(30, 4)
    split = SplitMechanisms(Rows.read(df, None, GRAPH, "home"), None, None, 0)
    one, other = (split._part(which) for which in ("half 0", "half 1"))
    assert not {*df["home"].iloc[one]} & {*df["home"].iloc[other]}
    assert sorted([*one, *other]) == list(range(120))


def test_contrasts_share_the_numbering_of_groups() -> None:
    rng = np.random.default_rng(2)
    df = draw(60, 6).assign(A=rng.choice(["a", "b", "c"], 360))
    graph = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y", baseline="a", contrast="b")

    class Known:
        def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
            p = 1.0 / (1.0 + np.exp(-(X["M"] + (X["A"] == "b") - 0.5)))
            return np.column_stack([1.0 - p, p])

    source = pf.OneStep(graph.unfair("A -> Y"), propensity="logistic", regression="logistic", random_state=0)
    found = [
        audit_contrasts({"m": Known()}, source, table, groups=groups, progress=False, random_state=0)
        for table, groups in ((df, np.arange(360)), (pd.concat([df, df]), np.tile(np.arange(360), 2)))
    ]
    names = ["estimate", "lower", "upper"]
    pd.testing.assert_frame_equal(found[0].table[names], found[1].table[names])
    assert found[0].details().count("groups (largest 1 rows") == 2  # one for the rows of each contrast


@pytest.mark.parametrize("analysis", [confounding, cross_world, switching])
def test_sensitivity_starts_from_the_intervals_of_the_audit(analysis: Any) -> None:
    df = draw(60, 5)
    df["M"] = (df["M"] > 0.5).astype(int)
    unfair = GRAPH.unfair("A -> M -> Y") if analysis is not switching else UNFAIR
    source = pf.OneStep(unfair, propensity="logistic", regression="logistic", random_state=0)
    if analysis is cross_world:
        source = source.set_params(unfair=GRAPH.unfair("A -> Y"))
        df, model = df.drop(columns=[]), df["Y"]
    else:
        model = Model()
    asked: dict[str, Any] = {"scores": "outcome"} if analysis is cross_world else {}
    by_rows, by_groups = (analysis(model, source, df, groups=each, **asked) for each in (None, "home"))
    width = [(each.table["upper"] - each.table["lower"]).iloc[0] for each in (by_rows, by_groups)]
    assert width[1] != pytest.approx(width[0])
    assert ROWS in by_rows.details()
    assert "60 groups (largest 5 rows" in by_groups.details()
    if analysis is confounding:
        report = pf.audit({"m": model}, source, df, groups="home", random_state=0)
        own = by_groups.table.query("quantity == 'mean_unfair_effect' and gamma == 1")[["lower", "upper"]].iloc[0]
        assert own.tolist() == pytest.approx(ends(report, decisions="threshold")[1:].tolist())


# -- reports ----------------------------------------------------------------------------------------------------------


def test_every_form_of_the_report_says_what_is_independent() -> None:
    df = draw()
    for report, text in ((run(df), ROWS), (run(df, groups="home"), "60 groups (largest 5 rows; effective number 60)")):
        data = json.loads(report.to_json())
        assert text in data["assumptions"][0]
        for form in (report.details(), report.to_html(), report._repr_html_()):
            assert text in form
    assert data["settings"]["groups"] == "home"
    assert not any("home" in text for text in report.context.warnings)  # it is no column that is ignored


# -- refused ----------------------------------------------------------------------------------------------------------


class Other(BaseEstimator):
    """A source that knows no groups."""

    def __init__(self, unfair: Any = UNFAIR) -> None:
        self.unfair = unfair

    def fit(self, df: Any, sample_weight: Any = None) -> Other:
        return self

    def worlds(self, n: Any = None, random_state: Any = None, *, df: Any = None, sample_weight: Any = None) -> Any:
        raise AssertionError("it is refused before")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("M", "'M' is a column of the graph"),
        (draw()["Q"], "'Q' is a column of the graph"),
        ("house", "is no column of df.*'home'"),
        (np.arange(299), "300 rows and groups has 299"),
        (np.zeros((300, 2)), "expected .300,."),
        ([None, *range(299)], "lacks a label in 1 of 300"),
        (np.zeros(300), "holds one label"),
        (np.where(draw()["A"] == 1, -1, draw()["home"]), "A=1 are of one group"),
        (draw()["home"].iloc[::-1], "index of groups"),
    ],
)
def test_unfit_groups_are_refused(groups: Any, words: str) -> None:
    with pytest.raises(pf.DataError, match=words):
        run(draw(), groups=groups)


def test_a_fitted_source_knows_the_same_groups() -> None:
    df, other = draw(), draw(seed=1)
    fitted = one_step().fit(df, groups="home")
    assert ends(run(df, fitted, groups="home")) == pytest.approx(ends(run(df, groups="home")))
    for source, table, groups, words in [
        (one_step().fit(df), df, "home", "fitted without groups"),
        (fitted, df, None, "fitted with groups"),
        (fitted, df.assign(home=df["home"] + 1), "home", "other groups"),
        (fitted, other, "home", "300 new rows are of groups"),
        (Other(), df, "home", "takes no groups"),
    ]:
        with pytest.raises(pf.DataError, match=words):
            run(table, source, groups=groups)
    report = run(other.assign(home=other["home"] + 60), fitted, groups="home")
    assert np.isfinite(ends(report)).all()
    assert report.stages["units"].max() <= 60.0


# -- paths, checks, bounds ---------------------------------------------------------------------------------------------


def test_a_path_of_strengths_holds_out_whole_groups_and_judges_by_them() -> None:
    df = draw(160, 4)
    X, y = df.drop(columns="Y"), df["Y"]
    classifier = pf.PenalizedClassifier(
        "logistic", source=pf.IPW(UNFAIR), strength=1.0, epochs=2, validation_fraction=None, starts=1
    )
    settings: dict[str, Any] = {"strengths": [1.0], "judge": one_step(), "progress": False}
    path = pf.penalty_path(classifier, X, y, groups="home", **settings)
    assert "40 groups (largest 4 rows" in str(path)
    assert path.intervals["upper"].notna().any()
    for given, words in [
        ({"judge": classifier.source}, "leave judge out"),
        ({"test": (X, y), "groups": df["home"]}, "name a column of both"),
    ]:
        with pytest.raises(pf.DataError, match=words):
            pf.penalty_path(classifier, X, y, **({"groups": "home"} | settings | given))


def test_a_check_sums_products_of_residuals_by_group() -> None:
    graph = pf.CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    rng = np.random.default_rng(4)
    home, one, two = np.repeat(np.arange(40), 10), rng.normal(size=(40, 2)), rng.normal(size=(400, 4))
    A, Q = (two[:, 0] > 0.0).astype(int), two[:, 1]
    df = pd.DataFrame({"A": A, "Q": Q, "D": Q + one[home, 0] + 0.3 * two[:, 2], "M": one[home, 1] + 0.3 * two[:, 3]})
    found = [
        graph.check(df.assign(home=home), groups=each, regression="smooth", random_state=0) for each in (None, "home")
    ]
    by_rows, by_groups = (each.table.query("left == 'D' and right == 'M'").iloc[0] for each in found)
    assert abs(by_groups["statistic"]) < 0.6 * abs(by_rows["statistic"])  # of 40 groups, in place of 400 rows
    assert by_groups["p_value"] > by_rows["p_value"]
    assert "40 groups" in found[1].assumptions[0]
    assert found[0].assumptions[0] == ROWS
    with pytest.raises(pf.DataError, match="effective group"):
        graph.check(df, groups=home % 5)
    with pytest.raises(pf.DataError, match="'Q' is a column of the graph"):
        graph.check(df, groups="Q")


def test_sharp_bounds_draw_whole_groups() -> None:
    graph = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    rng = np.random.default_rng(3)
    A = rng.integers(0, 2, 80)
    M = (rng.random(80) < 0.3 + 0.4 * A).astype(int)
    df = pd.DataFrame({"A": A, "M": M, "Y": (rng.random(80) < 0.3 + 0.3 * M).astype(int), "home": np.arange(80)})
    copies, unfair = pd.concat([df] * 4), graph.unfair("A -> Y")
    one, many, rows = (
        pf.sharp_bounds(unfair, table, groups=groups, n_boot=100, random_state=0)
        for table, groups in ((df, "home"), (copies, "home"), (copies, None))
    )
    width = [np.ptp(each.interval("y0")) for each in (one, many, rows)]
    assert width[1] == pytest.approx(width[0])
    assert width[1] > 1.5 * width[2]
    assert "80 groups" in many.assumptions[-1]
    with pytest.raises(pf.DataError, match="effective group"):
        pf.sharp_bounds(unfair, df, groups=np.arange(80) % 8, n_boot=2)


def test_candidate_graphs_and_edges_take_groups() -> None:
    df = draw(40, 5)
    df["M"] = (df["M"] > 0.5).astype(int)
    settings: dict[str, Any] = {"groups": "home", "random_state": 0}
    found = pf.audit_graphs({"m": Model()}, {"one": UNFAIR}, df, **settings)
    own = pf.audit({"m": Model()}, UNFAIR, df, **settings)
    pick = "quantity == 'mean_unfair_effect' and decisions == 'score'"
    assert found.table.query(pick)["lower"].item() == own.table.query(pick)["lower"].item()
    costs = pf.edge_costs({"m": Model()}, one_step(), df, disputed=["A -> M"], **settings)
    assert "40 groups (largest 5 rows" in costs.details()
