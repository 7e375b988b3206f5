"""Audits from end to end: the numbers against formulas written here, and the messages where there are none."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import beta
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import pyrofair as pf
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError, PositivityError, PositivityWarning, PyrofairWarning
from tests.models import Known

MEDIATOR = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
DIRECT = MEDIATOR.unfair("A -> Y")
CAUSAL = ["p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper"]
ALL = ["accuracy", "positive_rate", "majority_rate", *CAUSAL]


def one_mediator(more: int = 0) -> pd.DataFrame:
    """Case A1: counts 30, 10, 15, 45; and some rows A=0, M=2."""
    a = [0] * 40 + [1] * 60 + [0] * more
    m = [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45 + [2] * more
    return pd.DataFrame({"A": a, "M": m, "Y": ([0, 1, 1] * len(a))[: len(a)]})


SCORES = Known(lambda X: np.select([X["A"] * 10 + X["M"] == cell for cell in (0, 1, 10)], [0.2, 0.4, 0.5], 0.9))
"""Case A1's scores."""


class Constant:
    """The same score for all units."""

    def __init__(self, p: float) -> None:
        self.p = p

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return np.tile([1.0 - self.p, self.p], (len(X), 1))


def saturated(**settings: Any) -> pf.IPW:
    return pf.IPW(DIRECT, propensity="saturated", **settings)


def run(model: Any, source: Any, df: pd.DataFrame, **settings: Any) -> pf.Audit:
    return pf.audit(
        {"m": model}, source, df, **{"n_boot": 0, "n_jobs": 1, "progress": False, "random_state": 0} | settings
    )


def column(report: pf.Audit, name: str, decisions: str = "score") -> dict[str, Any]:
    rows = report.table[report.table["decisions"] == decisions]
    return dict(zip(rows["quantity"], rows[name], strict=True))


def simulated(n: int, seed: int, *, curve: float = 0.0) -> pd.DataFrame:
    """Q -> A; {A Q} -> M, with a propensity that is logistic in Q unless it is curved."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    a = (rng.random(n) < expit(-0.2 + 0.7 * q + curve * (q**2 - 1.0))).astype(int)
    m = 0.8 * a + 0.5 * q + rng.normal(size=n)
    y = (rng.random(n) < expit(-0.5 + 0.9 * a + 0.4 * q + 0.6 * m)).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "M": m, "Y": y})


HIRING = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = HIRING.unfair("A -> Y")


# --- the numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["auto", "paper", 0, 1, "pooled"])
def test_one_mediator(arm: Any) -> None:
    """Cases A1 and A2: P(Y0) = .75 x .2 + .25 x .4, P(Ypi) = .75 x .5 + .25 x .9."""
    df = one_mediator()
    report = run(SCORES, saturated(arm=arm), df, n_boot=40)
    soft, hard = column(report, "estimate"), column(report, "estimate", "threshold")
    assert soft == pytest.approx(
        {
            "positive_rate": 0.3 * 0.2 + 0.1 * 0.4 + 0.15 * 0.5 + 0.45 * 0.9,
            "p_y0": 0.25,
            "p_ypi": 0.60,
            "mean_unfair_effect": 0.35,
            "piu_paper_bound": 1.10,
            "piu_lower": 0.35,
            "piu_upper": 0.85,
        }
    )
    decided = (df["A"] == 1) & (df["M"] == 1)  # .5 does not exceed the threshold
    assert hard == pytest.approx(
        {
            "accuracy": (decided == (df["Y"] == 1)).mean(),
            "positive_rate": 0.45,
            "majority_rate": 0.66,
            "p_y0": 0.0,
            "p_ypi": 0.25,
            "mean_unfair_effect": 0.25,
            "piu_paper_bound": 0.5,
            "piu_lower": 0.25,
            "piu_upper": 0.25,
        },
        abs=1e-9,
    )
    assert "vacuous" in column(report, "note")["piu_paper_bound"]
    assert column(report, "note", "threshold")["piu_paper_bound"] == ""
    assert list(report.table.columns) == [
        "model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note",
    ]  # fmt: skip
    assert list(hard) == ALL
    given = report.table[report.table["quantity"] != "accuracy"]  # that interval is exact and needs no replicate
    assert (given["lower"] <= given["estimate"] + 1e-9).all()
    assert (given["estimate"] <= given["upper"] + 1e-9).all()
    assert "a bound of 1 or more proves nothing" in report.details()


@pytest.mark.parametrize("arm", ["paper", 0, 1])
def test_logistic_weights_by_hand(arm: Any) -> None:
    """Odds from scikit-learn's own logistic regression, and the weights of either group written out."""
    df = simulated(800, 0)
    model = LogisticRegression().fit(df[["Q", "A", "M"]], df["Y"])

    def odds(columns: list[str]) -> NDArray[np.float64]:
        p = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(df[columns], df["A"]).predict_proba(df[columns])
        return p[:, 1] / p[:, 0]

    def score(value: int) -> NDArray[np.float64]:
        return model.predict_proba(df[["Q", "A", "M"]].assign(A=value))[:, 1]

    def mean(group: int, outcome_reads: int) -> float:
        """M reads A=0: group 1 is weighted by P(M | 0, Q) / P(M | 1, Q); both by 1 / P(group | Q)."""
        before, after = odds(["Q"]), odds(["Q", "M"])
        weight = (1.0 + before) if group == 0 else (1.0 + 1.0 / before) * before / after
        weight = np.where(df["A"] == group, weight, 0.0)
        return float(weight @ score(outcome_reads) / weight.sum())

    groups = (0, 1) if arm == "paper" else (arm, arm)
    report = run(model, pf.IPW(UNFAIR, arm=arm), df)
    soft = column(report, "estimate")
    assert soft["p_y0"] == pytest.approx(mean(groups[0], 0), abs=1e-6)
    assert soft["p_ypi"] == pytest.approx(mean(groups[1], 1), abs=1e-6)
    assert soft["positive_rate"] == pytest.approx(model.predict_proba(df[["Q", "A", "M"]])[:, 1].mean())
    hard = column(report, "estimate", "threshold")
    assert hard["accuracy"] == pytest.approx(model.score(df[["Q", "A", "M"]], df["Y"]))
    by_group = report.groups.set_index(["decisions", "quantity"])
    assert by_group.loc[("score", "p_ypi"), "group_0"] == pytest.approx(mean(0, 1), abs=1e-6)
    assert by_group.loc[("score", "p_ypi"), "group_1"] == pytest.approx(mean(1, 1), abs=1e-6)


@pytest.mark.parametrize(("errors", "n"), [(24, 100), (2_696, 10_870)])
def test_accuracy_has_the_test_set_bound(errors: int, n: int) -> None:
    """Case A12, against the beta quantiles of Clopper and Pearson."""
    df = pd.DataFrame({"A": np.arange(n) % 2, "M": 0, "Y": np.arange(n) < n // 2})
    right = np.arange(n) >= errors
    scores = np.where(right == df["Y"], 0.9, 0.1)
    report = run(scores, pf.IPW(DIRECT, arm="paper"), df.astype(int), level=0.9)
    row = report.table.set_index(["decisions", "quantity"]).loc[("threshold", "accuracy")]
    assert row["estimate"] == pytest.approx(1 - errors / n)
    low, high = {24: (0.17135, 0.32060), 2_696: (0.24121, 0.25493)}[errors]
    assert 1 - row["upper"] == pytest.approx(low, abs=5e-6)
    assert 1 - row["lower"] == pytest.approx(high, abs=5e-6)
    assert 1 - row["upper"] == pytest.approx(beta.ppf(0.05, errors, n - errors + 1))
    assert "exact test-set bound, 5 % on each side" in row["note"]


def test_weighted_accuracy_has_a_bootstrap_interval() -> None:
    df = one_mediator()
    report = run(SCORES, saturated(), df, n_boot=40, sample_weight=1.0 + df["Y"])
    row = report.table.set_index(["decisions", "quantity"]).loc[("threshold", "accuracy")]
    drawn = report.draws[("m", "threshold", "accuracy")]
    assert row["lower"] == pytest.approx(np.quantile(drawn, 0.025, method="weibull"))
    assert row["note"] == ""


def test_effective_sizes() -> None:
    df = one_mediator()
    weight = 1.0 + df["Y"].to_numpy()
    sizes = column(run(SCORES, saturated(arm="paper"), df), "ess", "threshold")
    switched = 100**2 / (15 * 5**2 + 45 * (5 / 9) ** 2)
    expected = dict.fromkeys(["accuracy", "positive_rate", "majority_rate"], 100.0) | dict.fromkeys(CAUSAL, switched)
    assert sizes == pytest.approx(expected | {"p_y0": 40.0})
    weighted = column(run(SCORES, saturated(arm="paper"), df, sample_weight=weight), "ess", "threshold")
    assert weighted["accuracy"] == weighted["positive_rate"] == pytest.approx(weight.sum() ** 2 / (weight @ weight))


# --- few rows, and no effect -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 30])
@pytest.mark.parametrize("fitted_before", [False, True])
@pytest.mark.some(3)
def test_a_group_of_a_few_rows_gets_no_interval_and_no_verdict(rows: int, fitted_before: bool) -> None:
    """M = 2 A + Q + noise, and few rows of group 0: P(Y0 = 1) is .5, and one row may show anything."""
    rng = np.random.default_rng(0)
    a = np.r_[np.zeros(rows, dtype=int), np.ones(400 - rows, dtype=int)]
    q = rng.normal(size=400)
    df = pd.DataFrame({"A": a, "Q": q, "M": 2.0 * a + q + rng.normal(size=400)})
    unfair = pf.CausalGraph("Q -> M; A -> M; M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")

    source = pf.IPW(unfair)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PositivityWarning)
        report = run(Known(lambda X: expit(X["M"])), source.fit(df) if fitted_before else source, df, n_boot=40)
    table = report.table.set_index(["decisions", "quantity"])
    small = ["p_y0", *CAUSAL[2:]]
    if rows < 10:
        assert table.loc["score"].loc[small, ["lower", "upper"]].isna().all(axis=None)
        note = f"no interval: group 0 has {rows} row(s), effective size {float(rows):.1f}, fewer than 10"
        assert note in table.loc[("score", "p_y0"), "note"]
        assert report.details().count(f"verdict: none: group 0 has {rows} row(s), effective size") == 2
    else:
        assert table.loc["score"].loc[small, ["lower", "upper"]].notna().all(axis=None)
        low, high = table.loc[("score", "p_y0"), ["lower", "upper"]]
        assert low <= 0.5 <= high
    assert table.loc["score"].loc[["p_ypi", "positive_rate"], ["lower", "upper"]].notna().all(axis=None)
    assert table["estimate"].drop(["accuracy", "majority_rate"], level=1).notna().all()


# --- no verdict where there is none ----------------------------------------------------------------------------------


class Coin:
    """Both worlds see a fair coin Z in M; only the model turns it round where A is 1."""

    def __init__(self, *, shared: bool) -> None:
        self.unfair = DIRECT
        self.shared = shared

    def fit(self, df: pd.DataFrame, sample_weight: Any = None) -> Coin:
        raise AssertionError("a source that cannot be cloned is used as it is")

    def worlds(
        self,
        n: int | None = None,
        random_state: int | None = None,
        *,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        unit = np.arange(2) if self.shared else None
        one, other = (
            CounterfactualSample(pd.DataFrame({"A": [a, a], "M": [0, 1]}), np.array([0.5, 0.5]), unit) for a in (0, 1)
        )
        return one, other


@pytest.mark.parametrize(("shared", "lower"), [(True, 1.0), (False, 0.0)])
def test_the_mean_effect_is_blind(shared: bool, lower: float) -> None:
    """Case A3."""
    df = one_mediator()
    warned = (
        "Coin is taken as it is" if shared else "Coin cannot be refitted, so the intervals leave out the uncertainty"
    )
    with pytest.warns(PyrofairWarning, match=warned):
        report = run(Known(lambda X: np.abs(X["M"] - X["A"])), Coin(shared=shared), df, n_boot=40)
    found = column(report, "estimate")
    assert found["mean_unfair_effect"] == 0.0
    assert (found["piu_lower"], found["piu_upper"], found["piu_paper_bound"]) == (lower, 1.0, 1.0)
    assert ("unfair to at least" in report.details()) == shared
    assert ("inconclusive" in report.details()) == (not shared)
    assert f"Warning: {warned}" in report.details()
    assert "(the source states none)" in report.details()


def test_a_model_that_no_unfair_path_reaches_is_not_called_unfair() -> None:
    """Under a wrong propensity the weights claim an effect even of a model that reads Q alone."""
    df = simulated(2_000, 4, curve=0.8)
    squared = make_pipeline(Squares(), LogisticRegression()).fit(df[["Q"]], df["Y"])
    squared.steps[0][1].feature_names_in_ = np.array(["Q"], dtype=object)
    verdict = LogisticRegression().fit(df[["Q", "A"]], df["Y"])
    report = pf.audit(
        {"Q": squared, "both": verdict}, pf.IPW(UNFAIR, arm="paper"), df, n_boot=40, progress=False, random_state=0
    )
    effect = report.table.set_index(["model", "decisions", "quantity"]).loc[("Q", "score", "mean_unfair_effect")]
    assert effect["upper"] < 0 or effect["lower"] > 0
    assert report.context["untouched"] == {"Q": ("Q",)}
    own, other = report.details().split("\nboth\n")
    assert own.count("verdict: no unfair effect, by the graph: it reads Q only") == 2
    assert "no unfair effect" not in other


def test_no_support_reaches_the_report() -> None:
    """Case A10: the only trace of 5 rows without a counterpart is a mean weight of 8/9."""
    df = one_mediator(5)
    for settings in ({}, {"normalize": False}):
        with pytest.raises(PositivityError, match="M=2"):
            run(SCORES, saturated(arm="paper", **settings), df)
    for normalize, expected in [(True, 0.60), (False, 56 / 105)]:
        source = saturated(arm="paper", normalize=normalize, max_unsupported=0.2)
        with pytest.warns(PositivityWarning, match="M=2"):
            report = run(SCORES, source, df)
        assert column(report, "estimate")["p_ypi"] == pytest.approx(expected)
        text = report.details()
        assert "Warning: Poor overlap in world 'unfair', group 1: the mean weight is 0.889" in text
        assert "mean weight 0.889, should be near 1); no counterpart for M=2" in text
    with pytest.warns(PositivityWarning, match="drops 5 of 105 rows"):
        trimmed = run(SCORES, saturated(arm="paper", trim=1e-6), df)
    assert column(trimmed, "estimate")["p_ypi"] == pytest.approx(0.60)
    assert "Warning: trim=1e-06 drops 5 of 105 rows" in trimmed.details()


def test_no_outcomes_no_accuracy() -> None:
    report = run(SCORES, saturated(), one_mediator().drop(columns="Y"), n_boot=40)
    found, notes, sizes = (column(report, each, "threshold") for each in ("estimate", "note", "ess"))
    for name in ("accuracy", "majority_rate"):
        assert np.isnan(found[name])
        assert np.isnan(sizes[name])
        assert notes[name] == "cannot be made: df has no outcome column 'Y'"
    assert not np.isnan([found[name] for name in ["positive_rate", *CAUSAL]]).any()
    assert "accuracy cannot be made: df has no outcome column 'Y'" in report.details()
    assert "accuracy" not in report.draws.columns.get_level_values(2)
    assert next(iter(report.to_inference_data()["posterior"].data_vars)) == "positive_rate"
    report.plot()


@pytest.mark.parametrize(("value", "read"), [(0, "no"), (1, "yes"), ("other", "no")])
def test_outcomes_of_one_class(value: Any, read: str) -> None:
    with pytest.warns(PyrofairWarning, match=rf"The outcome 'Y' of df is always {value}, read as {read} \(yes is 1\)"):
        report = run(SCORES, saturated(), one_mediator().assign(Y=value))
    found = column(report, "estimate", "threshold")
    assert found["accuracy"] == pytest.approx(found["positive_rate"] if read == "yes" else 1 - found["positive_rate"])
    assert found["majority_rate"] == 1.0
    assert report.context["warnings"][0].startswith("The outcome 'Y' of df is always")


@pytest.mark.parametrize("arm", ["auto", "paper", "pooled", 0, 1])
@pytest.mark.parametrize("group", [0, 1])
def test_rows_of_one_group_only(arm: Any, group: int) -> None:
    source = saturated(arm=arm).fit(one_mediator())
    df = one_mediator().query(f"A == {group}")
    report = run(SCORES, source, df, n_boot=40)
    found, notes = column(report, "estimate"), column(report, "note")
    for name in CAUSAL:
        assert np.isnan(found[name])
        assert np.isnan(column(report, "ess")[name])
        assert notes[name] == f"cannot be made: df has no row with A={1 - group}; both groups are needed"
    row = report.table.set_index(["decisions", "quantity"]).loc[("score", "positive_rate")]
    assert row["lower"] < row["estimate"] < row["upper"]
    assert report.groups.empty
    text = report.details()
    assert f"No unfair effect could be estimated: df has no row with A={1 - group}" in text
    assert "scores (as if each decision were drawn with its score): no unfair effect could be estimated" in text
    report.plot()


def test_rows_of_one_group_have_no_weight_either() -> None:
    df = one_mediator()
    report = run(SCORES, saturated().fit(df), df.iloc[::-1], sample_weight=1.0 * (df["A"] == 1).iloc[::-1])
    assert np.isnan(column(report, "estimate")["p_y0"])


def test_rows_that_the_propensity_cannot_judge() -> None:
    """A cell that is absent from the fitted rows is reported, and the rest is still estimated."""
    report = run(SCORES, saturated(arm="paper").fit(one_mediator()), one_mediator(3))
    assert "not seen in fit" in column(report, "note")["p_ypi"]
    assert not np.isnan(column(report, "estimate", "threshold")["accuracy"])


def test_a_group_that_the_audited_rows_cannot_weight_is_not_compared() -> None:
    """The rows of group 0 carry the distribution of M as they are; those of group 1 would need a propensity at M=2."""
    with pytest.warns(PyrofairWarning, match="group 1 cannot be weighted alone, so the groups are not compared"):
        report = run(SCORES, saturated().fit(one_mediator()), one_mediator(3))
    assert report.groups.empty
    assert column(report, "estimate")["p_y0"] == pytest.approx((30 * 0.2 + 10 * 0.4 + 3 * 0.9) / 43)
    assert "so the groups are not compared" in report.details()


# --- the source ------------------------------------------------------------------------------------------------------


def test_a_fitted_source_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = simulated(400, 0), simulated(300, 1)
    model = LogisticRegression().fit(train[["Q", "A", "M"]], train["Y"])
    source = pf.IPW(UNFAIR, arm="paper").fit(train)
    one, other = source.worlds(df=test)
    expected = [float(w.weight @ model.predict_proba(w.rows)[:, 1]) for w in (one, other)]
    here = run(model, pf.IPW(UNFAIR, arm="paper"), test)
    monkeypatch.setattr(pf.IPW, "fit", lambda *_, **__: pytest.fail("fitted again"))
    with pytest.warns(PositivityWarning, match="among the audited rows, world 'unfair': the mean weight is 1.28"):
        report = run(model, source, test)
    found = column(report, "estimate")
    assert [found["p_y0"], found["p_ypi"]] == pytest.approx(expected, rel=1e-12)
    assert column(here, "estimate")["p_ypi"] != pytest.approx(found["p_ypi"], abs=1e-6)


def test_an_unfitted_source_stays_unfitted() -> None:
    df = one_mediator()
    source = saturated(arm="paper")
    before = dict(vars(source))
    report = run(SCORES, source, df, sample_weight=1.0 + df["M"])
    assert vars(source) == before
    by_hand = saturated(arm="paper").fit(df, sample_weight=1.0 + df["M"])
    assert column(report, "estimate")["p_ypi"] == pytest.approx(
        column(run(SCORES, by_hand, df, sample_weight=1.0 + df["M"]), "estimate")["p_ypi"]
    )


@pytest.mark.parametrize("arm", ["paper", "pooled"])
def test_rows_outside_a_trimmed_source_are_counted(arm: Any) -> None:
    """M=2 has no counterpart: 5 of 105 rows, of these and, in another order, of others."""
    df = one_mediator(5)
    warned = (
        "trim=1e-06 leaves 5 of 105 audited rows without weight: the unfair effect and PIU are those among the others"
    )
    with pytest.warns(PositivityWarning, match="drops 5 of 105 rows"):
        fresh = run(SCORES, saturated(arm=arm, trim=1e-6), df)
    with pytest.warns(PositivityWarning, match="drops 5 of 105 rows"):
        source = saturated(arm=arm, trim=1e-6).fit(df)
    with pytest.warns(PositivityWarning, match=warned):
        other = run(SCORES, source, df.iloc[::-1])
    for report in (fresh, other):
        assert (
            f"Warning: {warned}, while accuracy and the positive prediction rate are over all rows." in report.details()
        )
        assert len(report.context["warnings"]) == (2 if report is fresh else 1)
    inside = run(SCORES, source, one_mediator())
    assert inside.context["warnings"] == []


def test_support_of_the_audited_rows_is_reported() -> None:
    """The fitted rows overlap well; of the audited ones, few of group 1 stand for the many without M."""
    source = saturated(arm=1).fit(one_mediator())
    df = pd.DataFrame({"A": [0] * 90 + [1] * 200, "M": [0] * 90 + [0] + [1] * 199, "Y": [0, 1] * 145})
    with pytest.warns(PositivityWarning) as caught:
        report = run(SCORES, source, df)
    texts = [str(each.message) for each in caught]
    assert len(texts) == 2
    for text, world in zip(texts, ("baseline", "unfair"), strict=True):
        assert text.startswith(f"Poor overlap among the audited rows, world {world!r}: ")
    assert report.context["warnings"] == texts
    assert all("the mean weight is 0." in text for text in texts)
    assert source.worlds()[0].effective_size > 20


def test_an_effective_size_of_a_row_is_reported() -> None:
    class Lone(Coin):
        def worlds(self, *args: Any, **kwargs: Any) -> tuple[CounterfactualSample, CounterfactualSample]:
            rows = pd.DataFrame({"A": [0] * 40, "M": 0})
            return CounterfactualSample(rows, np.ones(40) / 40), CounterfactualSample(rows, np.eye(40)[0])

    with pytest.warns(PositivityWarning, match=r"world 'unfair': the effective size 1\.0 is below 5% of 40 rows\."):
        run(SCORES, Lone(shared=False), one_mediator())


# --- the two groups --------------------------------------------------------------------------------------------------


CURVED = Known(lambda X: expit(-1.5 + 0.6 * X["A"] + 1.2 * X["Q"] ** 2 + 0.3 * X["M"]))
"""A score that bends with Q, so that a wrong propensity of Q shows."""


def test_groups_agree_under_a_right_propensity() -> None:
    report = run(CURVED, pf.IPW(UNFAIR), simulated(2_000, 4), n_boot=60)
    groups = report.groups
    assert list(groups.columns) == [
        "model", "decisions", "quantity", "group_0", "group_1", "difference", "lower", "upper", "p_value", "agree",
        "ess_0", "ess_1", "note",
    ]  # fmt: skip
    assert len(groups) == 6
    np.testing.assert_allclose(groups["difference"], groups["group_1"] - groups["group_0"])
    assert groups["agree"].all()
    assert "agree (joint test)" in report.details()


def test_groups_disagree_under_a_wrong_propensity() -> None:
    df = simulated(2_000, 4, curve=0.8)
    report = run(CURVED, pf.IPW(UNFAIR), df, n_boot=60)
    assert column(report, "note")["mean_unfair_effect"] == "the two observed groups disagree"
    assert report.details().count("verdict: withheld: estimates of p_y0, p_ypi") == 2
    flagged = report.groups.set_index(["decisions", "quantity"])["agree"]
    assert not flagged["score", "p_y0"]
    assert not flagged["score", "p_ypi"]
    squared = make_pipeline(Squares(), LogisticRegression(C=np.inf))  # the right one
    right = run(CURVED, pf.IPW(UNFAIR, propensity=squared), df)
    gap = right.groups.set_index(["decisions", "quantity"])["difference"].abs()
    assert (
        gap["score", "p_y0"]
        < 0.3 * abs(report.groups.set_index(["decisions", "quantity"])["difference"])["score", "p_y0"]
    )
    assert right.groups["agree"].isna().all()


class Squares(BaseEstimator):
    def fit(self, X: pd.DataFrame, y: Any = None) -> Squares:
        self.fitted_ = True
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return np.hstack([X.to_numpy(), X.to_numpy() ** 2])


def test_given_scores_have_no_groups() -> None:
    report = run(np.full(100, 0.3), saturated(arm="paper"), one_mediator())
    assert report.groups.empty
    assert "observed group" not in report.details()


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.fixture
def never_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong is found before the source is fitted."""
    monkeypatch.setattr(pf.IPW, "fit", lambda *_, **__: pytest.fail("work was done before the input was read"))


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"models": {"m": LinearSVC()}}, "'m' is a LinearSVC without predict_proba"),
    ({"models": {"m": np.full(99, 0.5)}}, r"'m' is given as scores of shape \(99,\)"),
    ({"models": {"m": np.full(100, np.nan)}}, r"'m' gives 100 score\(s\) outside \[0, 1\], such as nan"),
    ({"models": {"m": np.full(100, -2.0)}}, r"such as -2\.0\. Scores are probabilities"),
    ({"models": {"m": pd.Series(np.full(100, 0.5), index=range(1, 101))}}, "index of the scores 'm'"),
    ({"source": pf.IPW(MEDIATOR)}, "is no source of potential outcomes"),  # type: ignore[arg-type]
    ({"df": one_mediator().drop(columns="M")}, "df lacks the column 'M'"),
    ({"df": one_mediator().replace({"Y": {1: 2}})}, "The outcome 'Y' never takes the positive value 1"),
]


@pytest.mark.usefixtures("never_fitted")
@pytest.mark.parametrize(("wrong", "message"), BAD_INPUT)
def test_bad_input(wrong: dict[str, Any], message: str) -> None:
    given = {"models": {"m": SCORES}, "source": saturated(), "df": one_mediator(), "progress": False} | wrong
    with pytest.raises(DataError, match=message):
        pf.audit(**given)


def test_both_groups_are_needed_to_fit() -> None:
    with pytest.raises(DataError, match="both groups are needed to compare them"):
        run(SCORES, saturated(), one_mediator().query("A == 1"))


# --- what comes out --------------------------------------------------------------------------------------------------


def test_points_only() -> None:
    report = run(SCORES, saturated(), one_mediator())
    rows = report.table[report.table["quantity"] != "accuracy"]
    assert rows[["lower", "upper"]].isna().all(axis=None)
    assert report.draws.empty
    assert "35.0% to 85.0%" in report.verdicts.set_index("decisions").loc["score", "verdict"]
    assert repr(report) == "<Audit of m on 100 rows; print it for a verdict>"
    for decisions, word in (("threshold", "decisions"), ("score", "scores")):
        assert report.plot(decisions).axes[1].get_xlabel().endswith(word)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no bootstrap replicates"):
        report.to_inference_data()


def test_inference_data() -> None:
    report = pf.audit({"a": SCORES, "b": Constant(0.7)}, saturated(), one_mediator(), n_boot=40, progress=False)
    assert report.draws.columns.names == ["model", "decisions", "quantity"]
    posterior = report.to_inference_data()["posterior"]
    assert posterior["piu_upper"].dims == ("chain", "draw", "model", "decisions")
    assert posterior["accuracy"].dims == ("chain", "draw", "model")
    assert set(posterior.data_vars) == set(ALL)
    for model in ("a", "b"):
        np.testing.assert_array_equal(
            posterior["piu_upper"].sel(chain=0, model=model, decisions="score"),
            report.draws[model, "score", "piu_upper"],
        )
        np.testing.assert_array_equal(
            posterior["accuracy"].sel(chain=0, model=model), report.draws[model, "threshold", "accuracy"]
        )
