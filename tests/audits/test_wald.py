"""Audits by influence values: a saturated source of our own, against plug-in formulas and simulated coverage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair.effects.estimates import AUDITED, Estimates, Key
from pyrofair.effects.influence import InfluenceValues
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError, PyrofairWarning

GRAPH = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")
ALL_PATHS = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y").unfair("A -> Y", "A -> M -> Y")
CAUSAL = ["p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper"]


def mean_in(cell: Any, values: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    """The weighted mean of the rows in the cell of each row, (n, Q); 0 where the cell has no weight."""
    table = pd.DataFrame(values * weight[:, None]).groupby(cell).transform("sum").to_numpy()
    total = pd.Series(weight).groupby(cell).transform("sum").to_numpy()[:, None]
    return np.divide(table, total, out=np.zeros_like(table), where=total > 0)


class Saturated:
    """A -> Y is unfair, M reads A = 0: influence values with cell shares for both models, of columns Q, A, M."""

    assumptions = ("All cells are large.",)

    def __init__(self, unfair: pf.UnfairPaths = UNFAIR, change: Callable[[InfluenceValues], Any] | None = None) -> None:
        """Influence values are changed in place, or by what ``change`` returns."""
        self.unfair, self.change = unfair, change
        self.rows: pd.DataFrame | None = None
        self.calls = 0

    def fit(self, df: pd.DataFrame, sample_weight: Any = None) -> Saturated:
        self.rows, self.weight = df, np.ones(len(df)) if sample_weight is None else np.asarray(sample_weight)
        return self

    def given(self, df: pd.DataFrame | None, sample_weight: Any = None) -> tuple[pd.DataFrame, NDArray[Any]]:
        if df is None:
            assert self.rows is not None
            return self.rows, self.weight / self.weight.mean()
        weight = np.ones(len(df)) if sample_weight is None else np.asarray(sample_weight)
        return df, weight / weight.mean()

    def scores(self, score: Any, rows: pd.DataFrame) -> list[NDArray[Any]]:
        self.calls += 1
        found = []
        for arm in (0, 1):
            origin = np.where(rows["A"] == arm, np.arange(len(rows)), -1)
            world = rows[self.unfair.graph.input_columns].assign(A=arm)
            found.append(score(CounterfactualSample(world, np.ones(len(rows)), origin=origin)))
        return found

    def parts(self, df: pd.DataFrame | None, weight: Any = None) -> Any:
        rows, w = self.given(df, weight)
        cell = rows["Q"].to_numpy() if "Q" in rows else np.zeros(len(rows), int)
        a = rows["A"].to_numpy()
        h = (a == 0) / (1.0 - mean_in(cell, a[:, None].astype(float), w)[:, 0])
        return rows, w, cell, a, h

    def influence(self, score: Any, df: Any = None, sample_weight: Any = None) -> InfluenceValues:
        rows, w, cell, a, h = self.parts(df, sample_weight)
        c = self.scores(score, rows)
        m = [mean_in(cell, each, w * (a == 0)) for each in c]
        y0, ypi = (own + h[:, None] * (each - own) for each, own in zip(c, m, strict=True))
        effect, rest = np.sign(m[1] - m[0]), np.sign(1.0 - m[0] - m[1])
        both = m[0] + m[1] - 2.0 * m[0] * m[1]
        stages = [
            {
                "column": q, "regime": regime, "nodes": "M", "arm": 0, "given": "Q",
                "mean_weight": np.average(h, weights=w), "mean_weight_z": 0.2, "ess": h.sum() ** 2 / (h @ h),
                "max_weight": h.max(), "balance": 0.0, "balance_z": 0.1, "correction": 0.0, "correction_z": -0.4,
            }
            for q in range(c[0].shape[1])
            for regime in ("baseline", "unfair")
        ]  # fmt: skip
        disagreement = both + (1.0 - 2.0 * m[1]) * (y0 - m[0]) + (1.0 - 2.0 * m[0]) * (ypi - m[1])
        ends = effect * (ypi - y0), rest * (1.0 - y0 - ypi)
        found = InfluenceValues(y0, ypi, *ends, disagreement, weight=w, stages=pd.DataFrame(stages))
        return found if self.change is None else self.change(found) or found

    def stages(self, df: Any = None, sample_weight: Any = None) -> pd.DataFrame:
        found = self.influence(lambda sample: np.zeros((len(sample.rows), 1)), df, sample_weight).stages
        found = found.drop(columns=["column", "balance", "balance_z", "correction", "correction_z"])
        return found if "problem" in found else found.assign(problem="")

    def by_group(self, score: Any, df: Any = None, sample_weight: Any = None) -> Any:
        rows, w, cell, a, h = self.parts(df, sample_weight)
        c = self.scores(score, rows)
        key = cell * 10 + rows["M"].to_numpy()
        before, after = (mean_in(each, a[:, None].astype(float), w)[:, 0] for each in (cell, key))
        with np.errstate(divide="ignore", invalid="ignore"):
            other = np.where(a == 1, (1.0 - after) / after / (1.0 - before), 0.0)
        return {
            "group 0": tuple(centred(each, h, w) for each in c),
            "group 1": tuple(centred(each, other, w) for each in c),
        }


def centred(scores: NDArray[Any], h: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    """The influence values of weighted means of scores, (n, Q)."""
    share = w * h / (w * h).sum()
    mean = share @ scores
    return np.asarray(mean + h[:, None] * (scores - mean) * (w.sum() / (w * h).sum()))


class Model:
    """Scores of a logistic formula, which may favour a group."""

    def __init__(self, direct: float = 1.0, level: float = -0.6) -> None:
        self.direct, self.level = direct, level
        self.scored = 0

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        self.scored += len(X)
        p = expit(self.level + self.direct * X["A"] + 0.8 * X["M"] + (0.5 * (X["Q"] - 1) if "Q" in X else 0.0))
        return np.column_stack([1.0 - p, p])


def simulated(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 3, n)
    a = (rng.random(n) < 0.3 + 0.2 * q).astype(int)
    m = (rng.random(n) < 0.2 + 0.3 * a + 0.1 * q).astype(int)
    y = (rng.random(n) < 0.1 + 0.2 * a + 0.4 * m + 0.1 * q).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "M": m, "Y": y})


def run(model: Any, source: Any, df: pd.DataFrame, **settings: Any) -> pf.Audit:
    models = model if isinstance(model, dict) else {"m": model}
    return pf.audit(models, source, df, **{"random_state": 0} | settings)


def column(report: pf.Audit, name: str, decisions: str = "score") -> dict[str, Any]:
    rows = report.table[report.table["decisions"] == decisions]
    return dict(zip(rows["quantity"], rows[name], strict=True))


def fitted(df: pd.DataFrame, unfair: pf.UnfairPaths = UNFAIR) -> Saturated:
    return Saturated(unfair).fit(df)


# --- estimates and intervals -----------------------------------------------------------------------------------------


def test_saturated_influence_values_are_saturated_weights() -> None:
    df = simulated(2000, 0)
    found = column(run(Model(), fitted(df), df), "estimate")
    ipw = pf.IPW(UNFAIR, arm=0, propensity="saturated")
    weighted = column(run(Model(), ipw, df, n_boot=0), "estimate")
    assert list(found) == ["positive_rate", *CAUSAL, "piu_double_disagreement"]
    for quantity in ("positive_rate", "p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound"):
        assert found[quantity] == pytest.approx(weighted[quantity], abs=1e-12)
    a, b, share = [], [], df["Q"].value_counts(normalize=True).sort_index()
    for q in range(3):
        own = df[(df["Q"] == q) & (df["A"] == 0)]
        for arm, into in ((0, a), (1, b)):
            into.append(Model().predict_proba(own.assign(A=arm))[:, 1].mean())
    a, b = np.array(a), np.array(b)
    assert found["piu_lower"] == pytest.approx(share @ np.abs(b - a), abs=1e-12)
    assert found["piu_upper"] == pytest.approx(1.0 - share @ np.abs(1.0 - a - b), abs=1e-12)
    assert found["piu_double_disagreement"] == pytest.approx(2.0 * share @ (a + b - 2.0 * a * b), abs=1e-12)


def test_wald_intervals_by_hand() -> None:
    df = simulated(500, 1)
    weight = np.random.default_rng(2).uniform(0.2, 3.0, 500)
    report = run(Model(), Saturated().fit(df, weight), df, level=0.9, sample_weight=weight)
    values = report.influence["m"]["score"]
    w = weight / weight.sum()
    low, high = column(report, "lower"), column(report, "upper")

    def ends(phi: Any) -> tuple[float, float]:
        theta = w @ phi
        half = 1.6448536269514722 * np.sqrt(np.sum(w**2 * (phi - theta) ** 2))
        return float(theta - half), float(theta + half)

    assert (low["p_y0"], high["p_y0"]) == pytest.approx(ends(values["y0"]))
    assert (low["mean_unfair_effect"], high["mean_unfair_effect"]) == pytest.approx(ends(values["ypi"] - values["y0"]))
    assert (low["positive_rate"], high["positive_rate"]) == pytest.approx(ends(values["positive"]))
    assert (low["piu_double_disagreement"], high["piu_double_disagreement"]) == pytest.approx(
        ends(2.0 * values["disagreement"])
    )
    rest = ends(values["rest"])
    assert rest[0] < 0.0 < rest[1] or rest[0] > 0.0 or rest[1] < 0.0
    size = max(rest[0], -rest[1], 0.0), max(rest[1], -rest[0])
    assert (low["piu_upper"], high["piu_upper"]) == pytest.approx((1.0 - size[1], 1.0 - size[0]))
    decided = report.influence["m"]["threshold"]
    accuracy = report.table.set_index(["decisions", "quantity"]).loc[("threshold", "accuracy")]
    assert (accuracy["lower"], accuracy["upper"]) == pytest.approx(ends(decided["correct"]))
    assert accuracy["estimate"] == pytest.approx(w @ decided["correct"])
    rate = report.table.set_index(["decisions", "quantity"]).loc[("threshold", "majority_rate")]
    assert rate["estimate"] == pytest.approx(max(w @ decided["outcome"], 1.0 - w @ decided["outcome"]))


def joint(a: NDArray[Any], b: NDArray[Any]) -> Estimates:
    """Estimates of two means; the other functionals follow as they do where nothing is shared."""
    parts = {"y0": a, "ypi": b, "lower": b - a, "rest": 1.0 - a - b, "disagreement": a + b, "positive": a}
    frame = pd.DataFrame(parts)
    frame.columns = pd.MultiIndex.from_tuples([("m", "score", each) for each in parts])
    return Estimates(frame, np.ones(len(a)), given_shared=False)


@pytest.mark.parametrize("correlation", [-1.0, 0.3, 1.0])
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.52, 0.47), (0.3, 0.6), (0.2, 0.2)])
@pytest.mark.some(3)
def test_every_quantity_is_covered(a: float, b: float, correlation: float) -> None:
    """Kinks, where a = b or a + b = 1, and the stationary point of the paper's bound, 1/2 and 1/2, included."""
    rng = np.random.default_rng(0)
    held, runs = dict.fromkeys(CAUSAL, 0), 200
    truth = {
        "p_y0": a, "p_ypi": b, "mean_unfair_effect": b - a, "piu_paper_bound": 2.0 * (a + b - 2.0 * a * b),
        "piu_lower": abs(b - a), "piu_upper": 1.0 - abs(1.0 - a - b),
    }  # fmt: skip
    for _ in range(runs):
        x, noise = rng.normal(size=(2, 300))
        y = correlation * x + np.sqrt(1.0 - correlation**2) * noise
        law = joint(a + 0.5 * x, b + 0.4 * y)
        for quantity in CAUSAL:
            low, high = law.of(Key(AUDITED, "m", "score", quantity)).interval(0.95)
            assert high > low
            held[quantity] += low <= truth[quantity] + 1e-12 and truth[quantity] - 1e-12 <= high
    assert min(held.values()) >= 0.92 * runs
    assert max(held[each] for each in ("p_y0", "p_ypi", "mean_unfair_effect")) <= 0.985 * runs


def test_no_rate_is_clipped() -> None:
    values = np.full(100, -0.02) + np.random.default_rng(0).normal(0.0, 0.01, 100)
    law = joint(values, values + 1.0)
    key = Key(AUDITED, "m", "score", "p_y0")
    assert law.of(key).estimate < 0.0
    assert "outside [0, 1] by sampling error" in law.notes[key]
    assert law.of(key).interval(0.95)[0] < law.of(key).estimate


def test_where_nothing_is_shared_the_ends_are_those_of_the_marginals() -> None:
    df = simulated(800, 3).drop(columns="Q")
    report = run(Model(), fitted(df, ALL_PATHS), df)
    found = column(report, "estimate")
    assert list(found) == ["positive_rate", *CAUSAL]
    assert found["piu_lower"] == pytest.approx(abs(found["p_ypi"] - found["p_y0"]))
    assert found["piu_upper"] == pytest.approx(1.0 - abs(1.0 - found["p_y0"] - found["p_ypi"]))


# --- what is called, and what is refused -----------------------------------------------------------------------------


def test_replicates_are_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        import_module("pyrofair.audits.audit"), "replicate", lambda *given, **settings: pytest.fail("replicates")
    )
    df = simulated(300, 0)
    model, source = Model(), fitted(df)
    report = run({"one": model, "two": Model(0.2)}, source, df, n_boot=10**9)
    assert source.calls == 3  # influence, its stages, the groups: all models at once
    assert list(report.table["model"].unique()) == ["one", "two"]


def test_several_models_are_as_each_alone() -> None:
    df = simulated(400, 0)
    both = run({"one": Model(), "two": Model(0.2)}, fitted(df), df)
    for name, model in {"one": Model(), "two": Model(0.2)}.items():
        alone = run({name: model}, fitted(df), df).table
        own = both.table[both.table["model"] == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(own, alone)


def test_a_source_fitted_elsewhere_scores_the_rows_it_was_fitted_on() -> None:
    class Elsewhere(Saturated):
        def influence(self, score: Any, df: Any = None, sample_weight: Any = None) -> InfluenceValues:
            if df is not None:
                assert self.rows is not None
                score(CounterfactualSample(self.rows[["Q", "A", "M"]], np.ones(len(self.rows))))
            return super().influence(score, df, sample_weight)

    df, other = simulated(400, 0), simulated(300, 1)
    model = Model()
    run(model, Elsewhere().fit(other), df)
    assert model.scored >= 700
    scores = Model().predict_proba(df)[:, 1]
    with pytest.raises(DataError, match="Leave the source unfitted, so that it is fitted on these rows"):
        run(scores, Elsewhere().fit(other), df, scores="prediction")


@pytest.mark.parametrize(
    ("fit", "scores", "message"),
    [
        (True, "prediction", "'m' is given as scores, but"),
        (False, "prediction", r"switches 'A' in them or draws them\. Pass the model itself"),
        (True, "outcome", r"Saturated asks for the scores of changed rows.*IPW\(unfair\) weights"),
    ],
)
def test_given_scores_have_none_in_the_other_world(fit: bool, scores: str, message: str) -> None:
    df = simulated(400, 0)
    given = df["Y"].to_numpy() if scores == "outcome" else Model().predict_proba(df)[:, 1]
    with pytest.raises(DataError, match=message):
        run(given, fitted(df) if fit else UNFAIR, df, scores=scores)


def test_given_scores_suffice_where_no_row_is_switched() -> None:
    df = simulated(800, 0)
    paths = GRAPH.unfair("A -> Y", "A -> M -> Y")  # each row is read in its own group
    source = pf.OneStep(paths, propensity="saturated", regression="saturated", random_state=0)
    given = run(Model().predict_proba(df)[:, 1], source, df, scores="prediction")
    pd.testing.assert_frame_equal(given.table, run(Model(), source, df).table)


def test_one_group_alone_has_no_effect() -> None:
    df = simulated(400, 0)
    report = run(Model(), fitted(df), df[df["A"] == 1])
    assert "both groups are needed" in column(report, "note")["p_ypi"]
    assert np.isfinite(column(report, "lower")["positive_rate"])
    assert "No unfair effect could be estimated" in report.details()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y0: y0[:-1], r"Saturated gave influence values y0 of shape \(399, 2\); expected \(400, 2\)"),
        (
            lambda y0: np.where(np.arange(400)[:, None] < 3, np.nan, y0),
            r"Saturated gave 6 influence value\(s\) y0 that are not",
        ),
    ],
)
def test_odd_influence_values_are_refused(change: Any, message: str) -> None:
    df = simulated(400, 0)
    with pytest.raises(DataError, match=message):
        run(Model(), Saturated(change=lambda found: replace(found, y0=change(found.y0))).fit(df), df)


def test_what_a_fitted_source_refuses_is_the_reason() -> None:
    def refuse(_: Any) -> None:
        raise DataError("The overlap of these rows is too poor.")

    df = simulated(400, 0)
    report = run(Model(), Saturated(change=refuse).fit(df), df)
    assert column(report, "note")["p_y0"] == "cannot be made: The overlap of these rows is too poor."
    assert np.isnan(column(report, "ess")["p_y0"])


def test_an_error_of_a_model_is_no_refusal() -> None:
    df = simulated(400, 0)

    class Broken(Model):
        def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
            if self.scored:
                raise RuntimeError("out of order")
            return super().predict_proba(X)

    with pytest.raises(DataError, match="'m' could not score"):
        run(Broken(), fitted(df), df)


def test_few_effective_rows_have_no_number() -> None:
    def thin(found: InfluenceValues) -> None:
        found.stages.loc[found.stages["regime"] == "unfair", "ess"] = 7.0

    df = simulated(400, 0)
    report = run(Model(), Saturated(change=thin).fit(df), df)
    notes, low, value = (column(report, name) for name in ("note", "lower", "estimate"))
    assert "'unfair' has the effective size 7.0" in notes["p_ypi"]
    assert np.isnan([low["p_ypi"], value["p_ypi"], value["mean_unfair_effect"]]).all()
    assert np.isfinite([low["p_y0"], value["p_y0"]]).all()


# --- values and draws ------------------------------------------------------------------------------------------------


def test_influence_values_are_uncentred_and_by_row() -> None:
    df = simulated(300, 0).set_index(pd.Index(np.arange(300) + 1000))
    report = run(Model(), fitted(df), df)
    assert (report.influence.index == df.index).all()
    assert report.influence.columns.names == ["model", "decisions", "functional"]
    assert list(report.influence["m"]["score"]) == ["y0", "ypi", "lower", "rest", "disagreement", "positive"]
    assert list(report.influence["m"]["threshold"])[-3:] == ["positive", "correct", "outcome"]
    means = report.influence["m"]["score"].mean()
    assert means["y0"] == pytest.approx(column(report, "estimate")["p_y0"])


def test_draws_have_the_moments_of_the_intervals() -> None:
    pytest.importorskip("arviz")
    df = simulated(1500, 0)
    report = run({"one": Model(), "two": Model(0.1)}, fitted(df), df)
    posterior = report.to_inference_data()["posterior"]
    assert dict(posterior["p_ypi"].sizes) == {"chain": 1, "draw": 2000, "model": 2, "decisions": 2}
    assert dict(posterior["accuracy"].sizes) == {"chain": 1, "draw": 2000, "model": 2}
    rows = report.table.set_index(["model", "decisions", "quantity"])
    for quantity in ("p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound", "positive_rate"):
        drawn = posterior[quantity].sel(model="one", decisions="score").to_numpy().ravel()
        row = rows.loc[("one", "score", quantity)]
        assert drawn.mean() == pytest.approx(row["estimate"], abs=4e-3)
        assert drawn.std() == pytest.approx((row["upper"] - row["lower"]) / 2 / 1.96, rel=0.06)
    a, b = (posterior[each].to_numpy() for each in ("p_y0", "p_ypi"))
    np.testing.assert_allclose(posterior["mean_unfair_effect"], b - a, atol=1e-12)
    np.testing.assert_allclose(posterior["piu_paper_bound"], 2 * (a + b - 2 * a * b), atol=1e-12)
    assert (posterior["piu_lower"].to_numpy() >= 0.0).all()
    again = run({"one": Model(), "two": Model(0.1)}, fitted(df), df)
    pd.testing.assert_frame_equal(report.draws, again.draws)


# --- groups and stages -----------------------------------------------------------------------------------------------


def test_groups_are_weighted_means_of_each_groups_rows() -> None:
    df = simulated(3000, 0)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 3000)
    report = run({"m": Model(), "n": Model(0.3)}, Saturated().fit(df, weight), df, sample_weight=weight)
    weighted = run({"m": Model(), "n": Model(0.3)}, pf.IPW(UNFAIR, propensity="saturated"), df, n_boot=0,
                   sample_weight=weight).groups  # fmt: skip
    assert list(report.groups.columns) == list(weighted.columns)
    names = ["model", "decisions", "quantity"]
    assert (report.groups[names] == weighted[names]).all(axis=None)
    for name in ("group_0", "group_1", "difference", "ess_0", "ess_1"):
        np.testing.assert_allclose(report.groups[name], weighted[name].astype(float), atol=1e-8, rtol=1e-6)
    assert report.groups["agree"].tolist() == [True] * 12


def test_the_difference_of_groups_has_a_wald_interval() -> None:
    df = simulated(2000, 0)
    source = fitted(df)
    row = run(Model(), source, df).groups.set_index(["decisions", "quantity"]).loc[("score", "mean_unfair_effect")]
    score = lambda sample: Model().predict_proba(sample.rows)[:, 1:]  # noqa: E731
    (a0, b0), (a1, b1) = (source.by_group(score)[f"group {group}"] for group in (0, 1))
    gap = ((b1 - a1) - (b0 - a0)).ravel()
    assert row["difference"] == pytest.approx(gap.mean())
    assert row["upper"] - row["lower"] == pytest.approx(2.0 * 1.959964 * gap.std() / np.sqrt(2000), rel=1e-5)


class Apart(Saturated):
    """Group 1 is weighted as it is, without a weight for M."""

    def by_group(self, score: Any, df: Any = None, sample_weight: Any = None) -> Any:
        rows, w, _, a, _ = self.parts(df, sample_weight)
        found = super().by_group(score, df, sample_weight)
        plain = tuple(centred(each, (a == 1) / 0.5, w) for each in self.scores(score, rows))
        return found | {"group 1": plain}


def test_groups_that_disagree_are_reported_and_withhold_nothing() -> None:
    df = simulated(3000, 0)
    report = run(Model(), Apart().fit(df), df)
    assert not report.groups["agree"].all()
    assert "no stage fails its check" in report.details()
    assert "withheld" not in report.details()


def test_one_group_without_support_is_not_compared() -> None:
    class Lone(Saturated):
        def by_group(self, score: Any, df: Any = None, sample_weight: Any = None) -> Any:
            return {}

    df = simulated(400, 0)
    report = run(Model(), Lone().fit(df), df)
    assert report.groups.empty
    assert "Either observed group" not in report.details()


@pytest.mark.parametrize("kind", ["balance", "correction"])
@pytest.mark.parametrize("z", [2.9, -3.1])
def test_a_stage_beyond_its_limit_withholds_the_verdict(kind: str, z: float) -> None:
    def off(found: InfluenceValues) -> None:
        found.stages.loc[(found.stages["regime"] == "unfair") & (found.stages["column"] == 0), f"{kind}_z"] = z

    df = simulated(600, 0)
    report = run({"off": Model(), "n": Model(0.3)}, Saturated(change=off).fit(df), df)
    verdicts = [line for line in report.details().splitlines() if "verdict:" in line]
    assert [f"at the stage M of the unfair world its {kind} is -3.1" in line for line in verdicts] == [
        z < -3, z < -3, False, False,
    ]  # fmt: skip
    notes = report.table.set_index(["model", "decisions", "quantity"])["note"]
    assert ("in doubt" in notes["off", "score", "mean_unfair_effect"]) == (z < -3)
    assert "in doubt" not in notes["n", "score", "mean_unfair_effect"]
    assert (
        f"largest |z| of balance {3.1 if kind == 'balance' and z < -3 else 2.9 if kind == 'balance' else 0.1}"
        in report.details()
    )


def test_a_stage_of_decisions_that_hardly_vary_withholds_nothing() -> None:
    def skew(found: InfluenceValues) -> None:
        found.stages.loc[found.stages["column"] == 0, "correction_z"] = 9.0

    class Yes(Model):
        def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
            return np.clip(super().predict_proba(X), [[0.0, 0.6]], [[0.4, 1.0]])

    df = simulated(600, 0)
    report = run(Yes(), Saturated(change=skew).fit(df), df)
    assert report.stages.groupby("decisions")["counts"].all().to_dict() == {"threshold": False, "score": True}
    assert "withheld" not in report.details()
    assert "of correction 0.4" in report.details()
    assert "none: all rows get the same decision" in report.details()


def test_poor_stages_among_audited_rows_are_warned_of() -> None:
    def spoil(found: InfluenceValues) -> None:
        found.stages["problem"] = "the effective size is 30 of 300 rows"

    df = simulated(600, 0)
    with pytest.warns(pf.PositivityWarning, match="Poor overlap among the audited rows, [a-z]* world, stage M: the"):
        report = run(Model(), Saturated(change=spoil).fit(df), df)
    assert "withheld: at the stage M of the baseline world the effective size is 30 of 300 rows" in report.details()
    assert "Warning: Poor overlap among the audited rows" in report.details()


def test_stages_are_by_model_and_decisions() -> None:
    df = simulated(400, 0)
    report = run({"m": Model(), "n": Model(0.3)}, fitted(df), df)
    assert list(report.stages.columns[:5]) == ["model", "decisions", "regime", "nodes", "arm"]
    assert len(report.stages) == 8
    text = report.details()
    assert text.startswith("Audit of 2 model(s) on 400 rows; 95% Wald intervals from influence values.\n")
    assert "unfair world, stage M given Q, rows with A=0: mean weight 1.000 (z +0.2), effective size" in text
    assert "  2. All cells are large." in text


def test_rows_that_were_not_fitted_on_have_a_wider_limit() -> None:
    """The z of a diagnostic does not count the error of nuisance models that were made of other rows."""
    train, test = simulated(500, 10), simulated(1500, 101)
    source = pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0).fit(train)
    test.index += 500
    with pytest.warns(PyrofairWarning, match="fitted on 500 rows, fewer than the 1,500 others"):
        assert run(Model(), source, test).context["largest_z"] == pytest.approx(3.0 * 2.0)
    both = pd.concat([train, test.iloc[:500]])
    assert run(Model(), source, both).context["largest_z"] == pytest.approx(3.0 * np.sqrt(2.0))
    assert run(Model(), source, train).context["largest_z"] == 3.0


def test_stages_are_drawn() -> None:
    df = simulated(400, 0)
    figure = run(Model(), fitted(df), df).plot_stages("m")
    assert [axes.get_xlabel() for axes in figure.axes][1] == "effective size, rows"
    with pytest.raises(DataError, match="no stages to draw: nothing that an unfair path touches"):
        run(Model(), pf.IPW(UNFAIR, propensity="saturated"), df, n_boot=0).plot_stages()


# --- the source that is made of unfair paths -------------------------------------------------------------------------


def test_unfair_paths_are_audited_by_one_step_estimates() -> None:
    df = simulated(800, 0)
    report = run(Model(), UNFAIR, df)
    same = run(Model(), pf.OneStep(UNFAIR, random_state=0), df)
    pd.testing.assert_frame_equal(report.table, same.table)
    pd.testing.assert_frame_equal(report.groups, same.groups)
    truth = column(run(Model(), fitted(df), df), "estimate")
    found = column(report, "estimate")
    for quantity in ("p_y0", "p_ypi", "mean_unfair_effect"):
        assert found[quantity] == pytest.approx(truth[quantity], abs=0.02)
    assert "Prefix form" in report.details()
    assert not report.stages.empty


def test_an_outcome_is_audited_by_its_own_formula() -> None:
    df = simulated(2000, 0)
    models = {"m": Model(), "hired": df["Y"].to_numpy()}
    report = run(models, pf.OneStep(UNFAIR, propensity="saturated", regression="saturated"), df, scores="outcome")
    weighted = run(models, pf.IPW(UNFAIR, propensity="saturated"), df, scores="outcome", n_boot=0)
    for name in models:
        one, other = (
            table.set_index(["model", "decisions", "quantity"])["estimate"].loc[(name, "score", "p_ypi")]
            for table in (report.table, weighted.table)
        )
        assert one == pytest.approx(other, abs=1e-6)
    assert list(report.table["model"].unique()) == ["m", "hired"]
    assert "Those of hired, an outcome, assume:" in report.details()
