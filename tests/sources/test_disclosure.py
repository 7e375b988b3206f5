"""A sensitive attribute known in some rows: the estimates are those of all rows, or refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import pyrofair as pf
from pyrofair.exceptions import DataError, PositivityError
from pyrofair.sources.disclosure import Disclosed
from tests.models import Known

GRAPH = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
SCORES = np.array([[[0.2, 0.7], [0.3, 0.6]], [[0.4, 0.9], [0.7, 0.8]]])
"""By A, C and M."""
P_M = np.array([[0.3, 0.3], [0.7, 0.7]])
"""P(M = 1 | A, C), so that the distribution of A given C, M and W is logistic if that given C and W is."""


def model_of(*, reads_a: bool = True) -> Known:
    """Return scores by A, C and M, or by C and M alone."""
    return Known(
        lambda X: SCORES[tuple(X[name].astype(int) if reads_a or name != "A" else 0 for name in ("A", "C", "M"))]
    )


def draw(n: int, seed: int = 0, *, crossed: str = "") -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Return n rows and whether A is known; ``crossed`` is what depends on C and W otherwise than a logistic model has.

    W is a cause of A that the graph may leave out: it affects nothing else.
    """
    rng = np.random.default_rng(seed)
    c, w = rng.integers(0, 2, (2, n))
    jump = 1.2 * np.where(c == w, 1.0, -1.0)
    a = (rng.random(n) < expit(1.6 * w - 0.8 + 0.3 * c + jump * (crossed == "A"))).astype(int)
    m = (rng.random(n) < P_M[a, c]).astype(int)
    known = rng.random(n) < expit(1.5 * w - 0.8 - m + jump * (crossed == "disclosure"))
    y = rng.integers(0, 2, n)
    return pd.DataFrame({"C": c, "A": a, "M": m, "W": w, "Y": y}), known


def source(**more: Any) -> pf.OneStep:
    return pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0, **more)


def audit(df: pd.DataFrame, known: Any = None, model: Any = None, **more: Any) -> pf.Audit:
    gaps = df if known is None else df.assign(A=df["A"].where(known))
    more = ({} if known is None else {"proxies": ["W"]}) | more
    return pf.audit(
        {"m": model_of() if model is None else model}, more.pop("source", source()), gaps, random_state=0, **more
    )


def row(report: pf.Audit, quantity: str = "mean_unfair_effect", decisions: str = "threshold") -> Any:
    return report.table.set_index(["decisions", "quantity"]).loc[(decisions, quantity)]


def truth(a_given: np.ndarray[Any, Any]) -> float:
    """Return the mean unfair effect on decisions; all is unfair that A causes, and C is uniform."""
    decided = SCORES > 0.5
    mean = [[abs(1 - m - P_M[a, c]) * decided[a, c, m] for m in (0, 1)] for a, c in itertools.product((0, 1), (0, 1))]
    by_cell = np.sum(mean, axis=1).reshape(2, 2)
    return float((by_cell[1] - by_cell[0]) @ a_given)


HALVES = np.array([0.5, 0.5])


def test_estimates_are_those_of_the_rows_with_the_probable_groups() -> None:
    """Saturated, they are what the formula gives for the table in which each row is of either group by its share."""
    df, known = draw(6_000)
    cells, seen = ["C", "M", "W"], df[known]
    share = df[cells].merge(seen.groupby(cells)["A"].mean().rename("p").reset_index(), how="left")["p"].to_numpy()
    law = pd.concat([df.assign(A=a, share=share if a else 1.0 - share) for a in (0, 1)])
    decided = SCORES > 0.5
    expected = []
    for a in (0, 1):
        own = law[law["A"] == a]
        of_m = own.groupby(["C", "M"])["share"].sum() / own.groupby("C")["share"].sum()
        chance = df["C"].value_counts(normalize=True)
        expected.append(sum(chance[c] * of_m[c, m] * decided[a, c, m] for c in (0, 1) for m in (0, 1)))
    report = audit(df, known, disclosure="saturated")
    assert row(report, "p_y0")["estimate"] == pytest.approx(expected[0], abs=1e-3)
    assert row(report, "p_ypi")["estimate"] == pytest.approx(expected[1], abs=1e-3)
    rate = sum((np.where(law["A"] == a, law["share"], 0.0) * decided[a, law["C"], law["M"]]).sum() for a in (0, 1))
    assert row(report, "positive_rate")["estimate"] == pytest.approx(rate / len(df), abs=1e-9)
    right = decided[law["A"], law["C"], law["M"]] == law["Y"].to_numpy()
    assert row(report, "accuracy")["estimate"] == pytest.approx((law["share"] * right).sum() / len(df), abs=0.02)
    assert "exact" not in row(report, "accuracy")["note"]


@pytest.mark.parametrize("wrong", ["A", "disclosure"])
def test_either_model_may_be_wrong(wrong: str) -> None:
    """Logistic models have neither probability where C and W cross; the rows with a known A alone mislead there."""
    df, known = draw(40_000, 1, crossed=wrong)
    found, true = row(audit(df, known)), truth(HALVES)
    error = (found["upper"] - found["lower"]) / 3.92
    assert abs(found["estimate"] - true) < 2.0 * error
    assert error < 0.012
    alone = row(audit(df[known].drop(columns="W")))["estimate"]
    assert abs(alone - true) > 3.0 * error


def test_standard_errors_are_those_of_repeated_samples() -> None:
    pairs = []
    for seed in range(60):
        df, known = draw(800, seed)
        found = row(audit(df, known))
        pairs.append((found["estimate"] - truth(HALVES), (found["upper"] - found["lower"]) / 3.92))
    errors, told = np.array(pairs).T
    assert abs(errors.mean()) < 3.0 * errors.std() / np.sqrt(len(errors))
    assert 0.75 < told.mean() / errors.std() < 1.3


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "category", "text"])
def test_gaps_of_any_type_are_read(dtype: str) -> None:
    df, known = draw(600)
    gaps = df["A"].where(known)
    labels = {"baseline": "men", "contrast": "women"} if dtype == "text" else {}
    typed = gaps.map({0.0: "men", 1.0: "women"}) if labels else gaps.astype(dtype)  # type: ignore[call-overload]
    found = []
    for values, own in ((gaps, {}), (typed, labels)):
        unread = pf.CausalGraph("C -> A; {A C} -> M; {C M} -> Y", sensitive="A", outcome="Y", **own)
        of = pf.OneStep(unread.unfair("A -> M -> Y"), propensity="saturated", regression="saturated", random_state=0)
        found.append(
            row(audit(df.assign(A=values), model=model_of(reads_a=False), source=of, proxies=["W"]))["estimate"]
        )
    assert found[0] == pytest.approx(found[1], abs=1e-9)


def test_decisions_that_read_no_sensitive_attribute_are_known_in_all_rows() -> None:
    df, known = draw(800)
    report = audit(df, known, model_of(reads_a=False), source=pf.OneStep(
        pf.CausalGraph("C -> A; {A C} -> M; {C M} -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y"),
        propensity="saturated", regression="saturated"))  # fmt: skip
    decided = SCORES[0, df["C"], df["M"]] > 0.5
    assert row(report, "positive_rate")["estimate"] == pytest.approx(decided.mean(), abs=1e-12)
    assert row(report, "accuracy")["estimate"] == pytest.approx((decided == df["Y"]).mean(), abs=1e-12)
    assert "exact" in row(report, "accuracy")["note"]


def test_other_quantities_come_with_it() -> None:
    df, known = draw(1_500)
    report = audit(df, known, thresholds=[0.3, 0.7], subgroups=["C"])
    assert report.thresholds["estimate"].notna().all()
    within = report.subgroups.query("quantity == 'mean_unfair_effect'")
    share = within["rows"] / len(df)
    assert share @ within["estimate"] == pytest.approx(row(report)["estimate"], abs=1e-9)
    assert report.groups.empty
    crossed = audit(df, known, source=pf.OneStep(UNFAIR, random_state=0))
    assert abs(row(crossed)["estimate"] - row(report)["estimate"]) < 0.05
    assert "means of 3 splits" in crossed.context.resampling


def test_weights_are_counts_of_rows() -> None:
    df, known = draw(500)
    weight = np.random.default_rng(0).integers(1, 4, len(df))
    repeated = df.loc[df.index.repeat(weight)]
    one = audit(df, known, sample_weight=weight.astype(float), disclosure="saturated")
    other = audit(repeated, np.repeat(known, weight), disclosure="saturated")
    assert row(one, "p_ypi")["estimate"] == pytest.approx(row(other, "p_ypi")["estimate"], abs=2e-3)


def test_scores_that_are_an_outcome_count_among_the_proxies() -> None:
    df, known = draw(6_000, 2)
    human = (np.random.default_rng(0).random(len(df)) < 0.2 + 0.5 * df["A"]).astype(int)
    of = pf.OneStep(GRAPH.unfair("A -> Y"), propensity="saturated", regression="saturated")
    report = audit(df, known, human, scores="outcome", disclosure="saturated", source=of)
    found = row(report)
    assert found["lower"] < 0.5 < found["upper"]
    assert "the scores 'm'" in report.context.assumptions[-1]
    assert row(report, "positive_rate")["estimate"] == pytest.approx(human.mean(), abs=1e-12)


def test_a_report_says_what_is_assumed_and_shown() -> None:
    df, known = draw(900)
    df["score by name"] = np.random.default_rng(0).random(len(df)) + 0.5 * df["A"]
    report = audit(df, known, proxies=["W", "score by name"])
    last = report.context.assumptions[-1]
    assert "depends on A only through the features, W and score by name;" in last
    shares = report.context.disclosure
    assert shares.groupby("proxy")["rows"].sum().tolist() == [900, 900]
    assert shares["proxy"].tolist() == ["W"] * 2 + ["score by name"] * 4
    ends = shares["level"].iloc[2:].str.split(" to ", expand=True).astype(float).to_numpy()
    assert (np.diff(ends.ravel()) > 0.0).all()  # the observed ends of each quarter, in order
    own = shares[shares["proxy"] == "W"].set_index("level")
    assert own["known"].tolist() == [known[df["W"] == w].mean() for w in (0, 1)]
    assert (own["probability"] - own["known"]).abs().max() < 0.02
    text = report.details()
    assert f"known in {known.sum():,} of 900 rows" in text
    assert text.count("known in") == 7
    assert "smallest_probability" in report.to_html()
    assert len(json.loads(report.to_json())["tables"]["disclosure"]) == 6
    assert report.context.settings["proxies"] == "W, score by name"


@pytest.mark.filterwarnings("ignore:The true C acts on A:pyrofair.exceptions.PyrofairWarning")
@pytest.mark.parametrize("settings", [{}, {"groups": "home", "sample_weight": "share"}, {"scores": "outcome"}])
def test_features_with_gaps_have_the_numbers_of_the_table_recoded_by_hand(settings: dict[str, Any]) -> None:
    df, known = draw(1_500)
    share = pd.Series(np.random.default_rng(4).integers(1, 4, len(df)), df.index)
    df = df.assign(M=df["M"].map({0: "no", 1: "yes"}))
    if "groups" in settings:
        df["home"] = df.index // 2
    gaps = df.assign(M=df["M"].mask((df.index % 7 == 0) | ((df.index % 5 == 0) & (df["A"] == 1))))
    coded = gaps.assign(M=gaps["M"].fillna("(not recorded)"))

    def read(X: pd.DataFrame) -> Any:
        return 0.3 + 0.2 * X["A"] + 0.3 * X["M"].map({"no": 0.0, "yes": 1.0, "(not recorded)": 0.5}).fillna(0.5)

    model = df["Y"].astype(float) if "scores" in settings else Known(read)
    more = settings | ({"sample_weight": share} if "sample_weight" in settings else {})
    found, by_hand = audit(gaps, known, model, missing="recorded", **more), audit(coded, known, model, **more)
    names = ["estimate", "lower", "upper", "ess"]
    np.testing.assert_allclose(found.table[names], by_hand.table[names], rtol=0.0, atol=1e-9)
    weight = share if "sample_weight" in settings else share * 0 + 1
    for a in (0, 1):  # of the rows known to be of a group
        own = known & (df["A"] == a)
        expected = np.average(gaps["M"].isna()[own], weights=weight[own])
        assert found.context.missing[f"A={a:.1f}"].item() == pytest.approx(expected)


def test_folds_hold_whole_groups() -> None:
    df, known = draw(900)
    house = np.arange(900) // 3
    made = Disclosed(source(), df.assign(A=df["A"].where(known)).drop(columns="Y"), ["W"], "boosted")
    chance = made.fit(made.filled, groups=house).chance
    assert len(np.unique(made.nuisances_.rows.groups)) == len(np.unique(house[known]))
    assert not np.array_equal(chance, made.fit(made.filled).chance)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"proxies": ["M"]}, r"proxies=\['M'\].*'M' is in it"),
        ({"proxies": []}, r"proxies=\[\].*outside the graph"),
        ({"proxies": ["Z"]}, "lacks the column 'Z'"),
        ({"proxies": None}, r"'A' of df is missing in .*proxies=\['name_score'\]"),
        ({"source": pf.IPW(UNFAIR)}, "IPW.*sample_weight"),
        ({"source": pf.GComputation(UNFAIR)}, "GComputation.*sample_weight"),
        ({"source": source().fit(draw(400)[0].drop(columns="W"))}, "unfitted OneStep.*OneStep is fitted"),
        ({"disclosure": "guess"}, "disclosure='guess'"),
    ],
)
def test_what_does_not_fit_is_refused(more: dict[str, Any], said: str) -> None:
    df, known = draw(400)
    with pytest.raises(DataError, match=said):
        audit(df, known, **more)


def test_tables_that_do_not_fit_are_refused() -> None:
    df, known = draw(400)
    gaps = df.assign(A=df["A"].where(known))
    with pytest.raises(DataError, match=r"missing value.*'W'"):
        audit(df.assign(W=df["W"].where(df.index > 3)), known)
    with pytest.raises(DataError, match=r"known in every row.*leave out proxies="):
        audit(df, proxies=["W"])
    with pytest.raises(DataError, match="missing in every row"):
        audit(df.assign(A=np.nan), proxies=["W"])
    with pytest.raises(DataError, match="partitions"):
        pf.audit({"m": model_of()}, UNFAIR, [gaps], proxies=["W"])
    reader = model_of()
    reader.feature_names_in_ = np.array(["C", "W"])  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"'m' reads 'W'.*add it to the graph"):
        audit(df, known, reader)
    made = Disclosed(source(), gaps, ["W"])
    with pytest.raises(DataError, match="rows fitted are those judged"):
        made.influence(lambda world: world.rows["M"].to_numpy(float), made.filled)


def test_rows_that_are_hardly_ever_known_are_refused() -> None:
    df, known = draw(2_000)
    with pytest.raises(PositivityError, match=r"'A' is hardly ever known in [\d,]+ of 2,000 rows.*'W'.*0\.02"):
        audit(df, known & ((df["W"] == 1) | (df.index < 10)))
    some = known & ((df["A"] == 0) | (df.groupby("A").cumcount() < 12))
    with pytest.raises(PositivityError, match=r"A=1.*effective size .*fewer than 10"):
        audit(df, some)
