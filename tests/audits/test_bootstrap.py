"""The bootstrap: what is resampled, what is refitted, what is kept, and whether its intervals hold the truth."""

from __future__ import annotations

import itertools
import threading
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binomtest
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair.audits.bootstrap import Estimator
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.exceptions import DataError, PositivityWarning, PyrofairWarning
from tests.models import Known

GRAPH = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")


def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """A binary model whose propensities of Q, and of Q and M, are logistic in main effects."""
    q = rng.integers(0, 2, n)
    a = (rng.random(n) < expit(-0.6 + q)).astype(int)
    m = (rng.random(n) < expit(-1.0 + 1.5 * a + 0.8 * q)).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "M": m, "Y": rng.integers(0, 2, n)})


def score(a: Any, q: Any, m: Any) -> Any:
    return 0.1 + 0.2 * a + 0.25 * q + 0.35 * m + 0.1 * a * m


SCORES = Known(lambda X: score(X["A"], X["Q"], X["M"]))


def truth() -> float:
    """P(Ypi = 1) by enumeration: M as under A=0, the score as under A=1."""
    total = 0.0
    for q, m in itertools.product((0, 1), repeat=2):
        one = expit(-1.0 + 0.8 * q)
        total += 0.5 * (one if m else 1.0 - one) * score(1, q, m)
    return total


DF = draw(300, np.random.default_rng(0))
TRAIN = draw(200, np.random.default_rng(1))


def run(source: Any, df: pd.DataFrame = DF, **settings: Any) -> pf.Audit:
    defaults = {"n_boot": 40, "n_jobs": 1, "progress": False, "random_state": 0}
    return pf.audit({"m": SCORES}, source, df, **defaults | settings)


# --- seeds -----------------------------------------------------------------------------------------------------------


def test_seeds_and_threads() -> None:
    one = run(pf.IPW(UNFAIR), random_state=3)
    threads = run(pf.IPW(UNFAIR), random_state=3, n_jobs=2)
    pd.testing.assert_frame_equal(threads.draws, one.draws)
    pd.testing.assert_frame_equal(threads.groups, one.groups)
    assert not np.allclose(run(pf.IPW(UNFAIR), random_state=4).draws, one.draws)
    longer = run(pf.IPW(UNFAIR), random_state=3, n_boot=50)
    pd.testing.assert_frame_equal(longer.draws.iloc[:40], one.draws)


def test_models_run_in_the_callers_gradient_mode_in_every_thread() -> None:
    met = set()

    def watching(X: pd.DataFrame) -> Any:
        met.add((threading.current_thread() is threading.main_thread(), torch.is_grad_enabled()))
        return expit(X["M"])

    rows = DF[:60].assign(M=np.random.default_rng(2).normal(size=60))  # drawn anew in each replicate
    settings: dict[str, Any] = {"parameters": "linear", "most_units": 1, "progress": False, "random_state": 0}
    source = pf.GComputation(GRAPH.unfair("A -> M -> Y"), draws=2, **settings)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)
        pf.audit({"m": Known(watching)}, source, rows, n_boot=4, n_jobs=2, progress=False, random_state=0)
    assert met == {(True, False), (False, False)}


# --- what is resampled -----------------------------------------------------------------------------------------------


class Spy(pf.IPW):
    """Records the weights that each replicate is fitted and audited with."""

    refitted: list[NDArray[np.float64]]
    audited: list[NDArray[np.float64]]

    def refit(self, sample_weight: NDArray[np.float64]) -> pf.IPW:
        self.refitted.append(sample_weight)
        other = super().refit(sample_weight)
        assert isinstance(other, Spy)
        other.audited = self.audited
        return other

    def worlds(self, *args: Any, **kwargs: Any) -> Any:
        self.audited.append(kwargs["sample_weight"])
        return super().worlds(*args, **kwargs)

    def by_group(self, names: Any = None) -> dict[str, pf.IPW]:
        return {}


@pytest.fixture(autouse=True)
def _forget() -> None:
    Spy.refitted, Spy.audited = [], []


@pytest.mark.parametrize("bootstrap", ["bayesian", "multinomial"])
@pytest.mark.parametrize("fit_before", [True, False])
def test_the_same_rows_are_resampled_as_one(bootstrap: Any, fit_before: bool) -> None:
    weight = np.linspace(1.0, 2.0, len(DF)) / 1.5  # their mean is 1, which weights are given
    source = Spy(UNFAIR).fit(DF) if fit_before else Spy(UNFAIR)
    report = run(source, sample_weight=weight, bootstrap=bootstrap)
    assert len(Spy.refitted) == 40
    assert len(Spy.audited) == 41
    np.testing.assert_allclose(Spy.audited[0], weight, rtol=1e-12)
    for counts, audited in zip(Spy.refitted, Spy.audited[1:], strict=True):
        np.testing.assert_allclose(audited, weight * counts, rtol=1e-12)
        assert counts.sum() == pytest.approx(len(DF))
        assert counts.min() >= 0.0
    assert len({float(counts[0]) for counts in Spy.refitted}) > (1 if bootstrap == "multinomial" else 39)
    assert (np.concatenate(Spy.refitted) == 0.0).any() == (bootstrap == "multinomial")
    decided = score(DF["A"], DF["Q"], DF["M"]) > 0.5
    for counts, drawn in zip(Spy.refitted, report.draws["m", "threshold", "positive_rate"], strict=True):
        assert drawn == pytest.approx(np.average(decided, weights=weight * counts))


def test_fitted_and_audited_rows_are_both_resampled() -> None:
    run(Spy(UNFAIR).fit(TRAIN))
    assert len(Spy.refitted) == 40
    assert {len(counts) for counts in Spy.refitted} == {len(TRAIN)}
    assert {len(weight) for weight in Spy.audited} == {len(DF)}
    assert all(weight.std() > 0.5 for weight in [*Spy.refitted, *Spy.audited[1:]])  # Dirichlet: about 1
    for counts, weight in zip(Spy.refitted, Spy.audited[1:], strict=True):
        assert abs(np.corrcoef(counts, weight[: len(counts)])[0, 1]) < 0.4  # independently


def test_nuisances_are_fitted_again() -> None:
    """Each replicate's estimate is that of a source fitted from scratch on its weights."""
    report = run(Spy(UNFAIR, arm="paper", propensity="logistic"))
    fresh = []
    for counts in Spy.refitted:
        _, switched = pf.IPW(UNFAIR, arm="paper").fit(DF, sample_weight=counts).worlds()
        fresh.append(float(switched.weight @ SCORES.score(switched.rows)))
    np.testing.assert_allclose(report.draws["m", "score", "p_ypi"], fresh, atol=1e-6)
    assert np.std(fresh) > 0.005


class Drawn(BaseEstimator):
    """A source that draws other rows at each call, and cannot be refitted."""

    def __init__(self, unfair: Any) -> None:
        self.unfair = unfair

    def fit(self, df: pd.DataFrame, sample_weight: Any = None) -> Drawn:
        self.df_ = df
        self.means_: list[tuple[float, float]] = []
        return self

    def worlds(
        self, n: Any = None, random_state: int | None = None, *, df: Any = None, sample_weight: Any = None
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        rng = np.random.default_rng(random_state)
        one, other = (self.df_[["A", "Q", "M"]].sample(50, random_state=rng).assign(A=a) for a in (0, 1))
        self.means_.append((score(0, one["Q"], one["M"]).mean(), score(1, other["Q"], other["M"]).mean()))
        return CounterfactualSample(one, np.full(50, 0.02)), CounterfactualSample(other, np.full(50, 0.02))


def test_drawn_rows_are_scored_anew() -> None:
    source = Drawn(UNFAIR).fit(DF)
    with pytest.warns(PyrofairWarning, match="Drawn cannot be refitted"):
        report = run(source)
    assert len(source.means_) == 41
    drawn = [report.draws["m", "score", quantity] for quantity in ("p_y0", "p_ypi")]
    np.testing.assert_allclose(np.column_stack(drawn), source.means_[1:])
    assert report.draws["m", "score", "p_ypi"].nunique() > 30
    again = Drawn(UNFAIR).fit(DF)
    with pytest.warns(PyrofairWarning, match="Drawn cannot be refitted"):
        pd.testing.assert_frame_equal(run(again).table, report.table)


class WithUnits(Drawn):
    """A source of drawn units, which happen to look like the audited rows."""

    def worlds(
        self, n: Any = None, random_state: int | None = None, *, df: Any = None, sample_weight: Any = None
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        n = len(self.df_)
        rows, weight, unit = self.df_[["A", "Q", "M"]], np.full(n, 1.0 / n), np.arange(n)
        return CounterfactualSample(rows, weight, unit), CounterfactualSample(rows.assign(A=1), weight, unit)


@pytest.mark.parametrize("bootstrap", ["bayesian", "multinomial"])
def test_drawn_units_have_other_weights_than_audited_rows(bootstrap: Any) -> None:
    with pytest.warns(PyrofairWarning, match="WithUnits"):
        drawn = run(WithUnits(UNFAIR).fit(DF), bootstrap=bootstrap).draws["m"]["score"]
    assert drawn["p_y0"].std() == pytest.approx(drawn["positive_rate"].std(), rel=0.5)
    assert abs(np.corrcoef(drawn["p_y0"], drawn["positive_rate"])[0, 1]) < 0.4


# --- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_are_percentiles() -> None:
    report = run(pf.IPW(UNFAIR), level=0.8)
    rows = report.table.set_index(["decisions", "quantity"])
    for key in [("score", "p_ypi"), ("threshold", "majority_rate"), ("score", "piu_lower")]:
        drawn = np.sort(report.draws[("m", *key)])
        assert rows.loc[key, "lower"] == pytest.approx(np.quantile(drawn, 0.1, method="weibull"))
        assert rows.loc[key, "upper"] == pytest.approx(np.quantile(drawn, 0.9, method="weibull"))
    assert "80% intervals from 40 bootstrap replicates" in report.details()
    gaps = run(pf.IPW(UNFAIR), level=0.5).groups
    assert (gaps["upper"] - gaps["lower"] < report.groups["upper"] - report.groups["lower"]).all()


class Alone(pf.IPW):
    """Without the comparison of the groups, which coverage does not need."""

    def by_group(self, names: Any = None) -> dict[str, pf.IPW]:
        return {}


def coverage(
    data_sets: int, n_boot: int, n: int, n_fitted: int | None, bootstrap: str = "bayesian", **settings: Any
) -> tuple[int, float]:
    """Return how many intervals of P(Ypi) hold the truth, and the bootstrap's deviation over that of the estimates."""
    rng = np.random.default_rng(11)
    held, estimates, deviations = 0, [], []
    for seed in range(data_sets):
        df = draw(n, rng)
        source = Alone(UNFAIR, **settings)
        if n_fitted:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PositivityWarning)
                source.fit(draw(n_fitted, rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PositivityWarning)
            report = run(source, df, n_boot=n_boot, bootstrap=bootstrap, random_state=seed)
        row = report.table.set_index(["decisions", "quantity"]).loc[("score", "p_ypi")]
        held += row["lower"] <= truth() <= row["upper"]
        estimates.append(row["estimate"])
        deviations.append(report.draws["m", "score", "p_ypi"].std())
    assert abs(np.mean(estimates) - truth()) < 4.0 * np.std(estimates) / data_sets**0.5
    return int(held), float(np.mean(deviations) / np.std(estimates))


def test_intervals_know_how_few_rows_the_source_was_fitted_on() -> None:
    """Most of the error is that of nuisance models fitted on 150 rows: without refitting, the ratio is near .2."""
    held, ratio = coverage(8, 40, 600, 150, arm=1, propensity="logistic")
    assert binomtest(held, 8, 0.95).pvalue > 0.01
    assert ratio == pytest.approx(1.0, abs=0.35)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_fitted", "bootstrap", "settings"),
    [
        (None, "bayesian", {"arm": "paper", "propensity": "logistic"}),
        (None, "multinomial", {"arm": "paper", "propensity": "logistic"}),
        (None, "bayesian", {"arm": "pooled", "propensity": "saturated"}),
        (None, "bayesian", {"arm": 0, "propensity": "logistic", "normalize": False}),
        (400, "bayesian", {"arm": "paper", "propensity": "logistic"}),
        (400, "multinomial", {"arm": 1, "propensity": "saturated"}),
    ],
)
def test_coverage(n_fitted: int | None, bootstrap: str, settings: dict[str, Any]) -> None:
    held, ratio = coverage(200, 100, 1_000, n_fitted, bootstrap, **settings)
    assert binomtest(held, 200, 0.95).pvalue > 0.01
    assert ratio == pytest.approx(1.0, abs=0.15)


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_few_replicates_warn() -> None:
    with pytest.warns(PyrofairWarning, match="30 bootstrap replicates are too few for 95% intervals.*use n_boot=40"):
        report = run(pf.IPW(UNFAIR), n_boot=30)
    assert "Warning: 30 bootstrap replicates are too few" in report.details()
    run(pf.IPW(UNFAIR), n_boot=40)  # no warning


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("finished", [0, 50])
@pytest.mark.some(2)
def test_an_interrupt_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch, n_jobs: int, finished: int) -> None:
    whole = run(pf.IPW(UNFAIR), n_boot=60)
    honest, calls = Estimator.resampled, itertools.count()

    def interrupted(self: Estimator, *args: Any) -> Any:
        if next(calls) == finished:
            raise KeyboardInterrupt
        return honest(self, *args)

    monkeypatch.setattr(Estimator, "resampled", interrupted)
    with pytest.warns(PyrofairWarning, match="Interrupted: .* [0-9]+ replicates"):
        report = run(pf.IPW(UNFAIR), n_boot=60, n_jobs=n_jobs)
    done = report.context["replicates"]
    assert done <= finished
    assert done >= finished - 4 * (n_jobs - 1)  # threads at work when it strikes
    assert len(report.draws) == done
    if done:
        pd.testing.assert_frame_equal(report.draws, whole.draws.iloc[:done])
    else:
        assert "points only" in report.details()
    pd.testing.assert_series_equal(report.table["estimate"], whole.table["estimate"])


@pytest.mark.parametrize(("every", "kept"), [(4, False), (10, True)])
def test_failed_replicates_are_counted(monkeypatch: pytest.MonkeyPatch, every: int, kept: bool) -> None:
    honest, calls = pf.IPW.refit, itertools.count()

    def failing(self: pf.IPW, weight: NDArray[np.float64]) -> pf.IPW:
        if next(calls) % every == 0:
            raise DataError("A cell is lost.")
        return honest(self, weight)

    source = pf.IPW(UNFAIR).fit(DF)
    monkeypatch.setattr(pf.IPW, "refit", failing)
    if kept:
        report = run(source, n_boot=60)
        assert "intervals from 60 bootstrap replicates, 6 of which failed" in report.details()
        assert len(report.draws) == 54
        assert report.table["lower"].notna().all()
    else:
        message = "15 of 60 bootstrap replicates failed, so there are no intervals. The first failure: A cell is lost."
        with pytest.warns(PyrofairWarning, match=message):
            report = run(source, n_boot=60)
        assert f"Warning: {message}" in report.details()
        assert report.table[report.table["quantity"] != "accuracy"]["lower"].isna().all()
        assert report.draws.empty
        assert report.groups["agree"].isna().all()


class Fails(LogisticRegression):  # type: ignore[misc]
    """A propensity whose own fit fails for some weights."""

    def fit(self, X: pd.DataFrame, y: Any, sample_weight: Any = None) -> Fails:
        if sample_weight is not None and sample_weight[0] < sample_weight.mean() / 10.0:
            raise ValueError("it will not be fitted")
        return super().fit(X, y, sample_weight)


def test_a_replicate_fails_where_the_users_propensity_cannot_be_fitted() -> None:
    report = run(pf.IPW(UNFAIR, arm="paper", propensity=Fails(), folds=1), n_boot=60)
    assert 0 < report.context["failed"] < 12
    weight = np.r_[0.01, np.ones(len(DF) - 1)]
    with pytest.raises(DataError, match="The propensity model Fails cannot be fitted: it will not be fitted"):
        pf.IPW(UNFAIR, arm="paper", propensity=Fails(), folds=1).fit(DF, sample_weight=weight)


def test_a_fault_is_no_failed_replicate(monkeypatch: pytest.MonkeyPatch) -> None:
    source = pf.IPW(UNFAIR).fit(DF)
    monkeypatch.setattr(pf.IPW, "refit", lambda self, _: np.ones(2) + np.ones(3))
    with pytest.raises(ValueError, match="could not be broadcast"):
        run(source, n_boot=3, n_jobs=1)


def test_a_propensity_that_takes_no_weights() -> None:
    source = pf.IPW(UNFAIR, propensity=LinearDiscriminantAnalysis())
    report = run(source, bootstrap="multinomial")
    assert report.context["failed"] == 0
    assert report.table["lower"].notna().all()
    with pytest.warns(PyrofairWarning, match=r"40 of 40 .* takes no sample_weight.* bootstrap='multinomial'"):
        run(source)


# --- drawn units ----------------------------------------------------------------------------------------------------


def test_a_program_draws_units_in_each_replicate() -> None:
    hiring = pf.simulate.scenario("hiring")
    df = hiring.draw(200, random_state=0)
    reads = list(hiring.graph.input_columns)
    model = LogisticRegression(max_iter=1000).fit(df[reads], df["Y"])

    def report(jobs: int) -> pf.Audit:
        return pf.audit(
            {"m": model}, pf.SEM(hiring.program, hiring.unfair), df, n_boot=5, n_jobs=jobs, progress=False,
            random_state=0,
        )  # fmt: skip

    with pytest.warns(PyrofairWarning) as caught:
        found, other = report(1), report(2)
    assert {str(each.message)[:20] for each in caught} == {"5 bootstrap replicat", "SEM is taken as it i"}
    pd.testing.assert_frame_equal(found.draws, other.draws)
    assert found.context["failed"] == 0
    decided = found.draws["m"]["threshold"]
    assert decided["p_y0"].std() > 0.0
    np.testing.assert_allclose(decided["piu_lower"], decided["piu_upper"])
    text = found.details()
    assert "SEM is taken as it is: the intervals cover the drawing of 200 units and of audited rows" in text
    assert text.count("a point under the assumptions") == 1
