"""One-step estimates: the textbook formula, double robustness, other rows, weights, groups, and what is refused."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

import pyrofair as pf
from pyrofair import IPW, DataError, OneStep, PositivityError, PositivityWarning, identify
from pyrofair.effects.influence import InfluenceValues
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.sources.prefix_form import leaders_of, orders_of

GRAPH = pf.CausalGraph("{Q W} -> A; {A Q W} -> M; {A Q W M} -> L; {A Q W M L} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair(direct=True, through=["M"])
SATURATED = {"propensity": "saturated", "regression": "saturated", "folds": 1}
PLAIN: dict[str, Any] = {"propensity": "logistic", "regression": "logistic", "folds": 2}


def units(n: int, seed: int = 0) -> pd.DataFrame:
    """Two roots, two mediators in turn, and logistic mechanisms with overlap."""
    rng = np.random.default_rng(seed)
    q, w = rng.normal(size=n), rng.integers(0, 3, n)
    a = (rng.random(n) < expit(0.5 * q - 0.4 * (w == 1))).astype(int)
    m = (rng.random(n) < expit(0.8 * a + 0.6 * q - 0.5 * (w == 2) - 0.3)).astype(int)
    lead = 0.6 * m + 0.5 * a + 0.4 * q + rng.normal(size=n)
    return pd.DataFrame({"Q": q, "W": pd.Categorical.from_codes(w, ["x", "y", "z"]), "A": a, "M": m, "L": lead})


def score(world: CounterfactualSample) -> NDArray[np.float64]:
    rows = world.rows
    s = expit(-1.0 + 0.7 * rows["A"] + 0.8 * rows["M"] + 0.6 * rows["L"] + 0.3 * rows["Q"]).to_numpy()
    return np.column_stack([s > 0.5, s]).astype(np.float64)


class Named:
    """Decisions and scores of the score, each the columns of a model."""

    def __init__(self, *columns: tuple[str, Any]) -> None:
        self.columns = columns

    def __call__(self, world: CounterfactualSample) -> NDArray[np.float64]:
        s = score(world)[:, 1]
        return np.column_stack([s if rule == "score" else s > rule for _, rule in self.columns]).astype(np.float64)


@pytest.mark.parametrize("links", [[], [(0, 1)], [(0, 3), (1, 2)], [(0, 1), (1, 2), (2, 3)]])
def test_the_orders_that_are_tried_are_those_with_causes_first(links: list[tuple[int, int]]) -> None:
    def tried(nodes: list[str], arrows: list[tuple[str, str]]) -> list[tuple[str, ...]]:
        texts = [*(f"A -> {node} -> Y" for node in nodes), *(f"{one} -> {other}" for one, other in arrows), "A -> Y"]
        found = identify(pf.CausalGraph("; ".join(texts), sensitive="A", outcome="Y").unfair("A -> Y"))
        return [*orders_of([found.baseline, found.switched])]

    nodes = ["M", "N", "O", "P"]
    arrows = [(nodes[one], nodes[other]) for one, other in links]
    allowed = [
        each for each in permutations(nodes) if all(each.index(one) < each.index(other) for one, other in arrows)
    ]
    assert sorted(tried(nodes, arrows)) == sorted(allowed)
    many = [f"N{i:02}" for i in range(30)]  # of a chain of many nodes there is one order, and it is found at once
    assert tried(many, [*pairwise(many)]) == [tuple(many)]


@cache
def exact(n: int = 400_000) -> dict[str, NDArray[np.float64]]:
    """Both potential outcomes of decisions and scores by simulation with the noise shared."""
    rng = np.random.default_rng(1)
    q, w = rng.normal(size=n), rng.integers(0, 3, n)
    u, e = rng.random(n), rng.normal(size=n)
    found = {}
    for name, arm in (("y0", 0), ("ypi", 1)):
        m = (u < expit(0.8 * arm + 0.6 * q - 0.5 * (w == 2) - 0.3)).astype(int)
        rows = pd.DataFrame({"Q": q, "A": arm, "M": m, "L": 0.6 * m + 0.4 * q + e})
        found[name] = score(CounterfactualSample(rows, np.ones(n))).mean(axis=0)
    return found


def estimate(values: InfluenceValues) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The effect of decisions and of scores, and the standard errors."""
    effect = values.ypi - values.y0
    mean = np.average(effect, axis=0, weights=values.weight)
    return mean, np.sqrt((values.weight**2) @ (effect - mean) ** 2) / values.weight.sum()


# --- the formula -----------------------------------------------------------------------------------------------------


def test_one_mediator_is_the_formula_of_the_textbooks() -> None:
    """E[c(1, M(0), Q)] with logistic nuisance models and no folds, row by row (Tchetgen Tchetgen and Shpitser 2012).

    The residuals are those without the row itself, to first order.
    """
    graph = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
    df = units(500)[["Q", "A", "M"]]
    q, a, m = (df[name].to_numpy(np.float64) for name in "QAM")
    source = OneStep(graph.unfair("A -> Y"), propensity="logistic", regression="logistic", folds=1).fit(df)

    def c(arm: int) -> NDArray[np.float64]:
        return expit(-0.5 + 0.9 * arm + 0.7 * m + 0.3 * q)

    def regress(
        y: NDArray[np.float64], rows: NDArray[np.bool_], *columns: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        X = np.column_stack([np.ones(len(y)), *columns])
        beta = np.zeros(X.shape[1])
        for _ in range(60):
            p = expit(X[rows] @ beta)
            curved = (X[rows] * (p * (1 - p))[:, None]).T @ X[rows]
            beta += np.linalg.solve(curved, X[rows].T @ (y[rows] - p))
        fitted = expit(X @ beta)
        return fitted, fitted * (1 - fitted) * np.einsum("ij,jk,ik->i", X, np.linalg.inv(curved), X)

    everyone = np.ones(len(a), dtype=bool)
    p0 = 1.0 - regress(a, everyone, q)[0]
    for arm, found in ((0, "y0"), (1, "ypi")):
        mean, leverage = regress(c(arm), a == 0, q)
        expected = mean + (a == 0) / p0 * (c(arm) - mean) / (1.0 - leverage)
        values = source.influence(lambda world, arm=arm: c(arm)[_at(world, df)])
        assert getattr(values, found)[:, 0] == pytest.approx(expected, abs=1e-8)


def _at(world: CounterfactualSample, df: pd.DataFrame) -> NDArray[np.int64]:
    return df.index.get_indexer(world.rows.index)


def test_residuals_of_small_cells_are_those_from_a_mean_without_the_row_that_a_further_row_pulls() -> None:
    """Whether the fitted rows are judged alone or beside others, which have no residual of their own.

    The further row has the mean of all; it moves values, and no estimate.
    """
    graph = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
    rows = [(q, a, m) for q, k in enumerate((3, 9, 40)) for a in (0, 1) for m in (0, 1) for _ in range(k - (m < a))]
    df = pd.DataFrame(rows, columns=["Q", "A", "M"])
    c = 0.2 + 0.3 * df["M"] + 0.1 * df["Q"]
    source = OneStep(graph.unfair("A -> Y"), **SATURATED, form="prefix").fit(df)
    judged = [df, pd.concat([df, df.set_index(df.index + 1000)])]
    values = [source.influence(lambda w: (0.2 + 0.3 * w.rows["M"] + 0.1 * w.rows["Q"]).to_numpy(), x) for x in judged]
    zero = df["A"] == 0
    mean = c[zero].groupby(df["Q"]).mean()[df["Q"]].to_numpy()
    size = zero.groupby(df["Q"]).transform("sum")
    weight = np.where(zero, df.groupby("Q")["A"].transform("size") / size, 0.0)
    pull = (c[zero].mean() - mean) / (1.0 + size)
    expected = mean + pull + weight * ((c - mean) / (1.0 - np.where(size < 10, 1.0 / size, 0.0)) - pull)
    assert {*size} == {6, 18, 80}
    assert expected.mean() == pytest.approx(mean.mean(), abs=1e-12)
    assert values[0].y0[:, 0] == pytest.approx(expected, abs=1e-12)
    assert values[1].y0[: len(df), 0] == pytest.approx(expected, abs=1e-12)
    alone = (size < 10) & zero
    assert values[1].y0[len(df) :, 0][~alone] == pytest.approx(expected[~alone], abs=1e-12)
    assert values[1].y0[len(df) :, 0][alone] == pytest.approx(
        (mean + pull + weight * (c - mean - pull))[alone], abs=1e-12
    )


# --- double robustness -----------------------------------------------------------------------------------------------


def spoiled(which: str) -> dict[str, Any]:
    """Nuisances of which one, or both, see noise in the place of the roots and mediators."""
    right: dict[str, Any] = {"propensity": "logistic", "regression": "boosted"}
    wrong = {"propensity": _Blind(), "regression": _BlindRegressor()}
    return right | {name: wrong[name] for name in which.split()}


class _Blind(LogisticRegression):  # type: ignore[misc]
    """The share of the group, whatever the columns."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> _Blind:
        super().fit(np.zeros((len(X), 1)), y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(np.zeros((len(X), 1)))


class _BlindRegressor(LinearRegression):  # type: ignore[misc]
    """The mean, whatever the columns."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> _BlindRegressor:
        super().fit(np.zeros((len(X), 1)), y, sample_weight)
        return self

    def predict(self, X: Any) -> Any:
        return super().predict(np.zeros((len(X), 1)))


@pytest.mark.parametrize(
    ("wrong", "biased"), [("", False), ("propensity", False), ("regression", False), ("propensity regression", True)]
)
@pytest.mark.filterwarnings("ignore:Poor overlap:pyrofair.exceptions.PositivityWarning")
@pytest.mark.some(2)
def test_one_wrong_nuisance_does_no_harm_and_two_do(wrong: str, biased: bool) -> None:
    truth = exact()
    settings = spoiled(wrong)
    found, errors = [], []
    for seed in range(4):
        source = OneStep(UNFAIR, **settings, form="prefix", folds=2, random_state=seed).fit(units(4000, seed))
        mean, error = estimate(source.influence(score))
        found.append(mean)
        errors.append(error)
    gap = np.mean(found, axis=0) - (truth["ypi"] - truth["y0"])
    z = gap / np.sqrt(np.mean(np.square(errors), axis=0) / len(found))
    assert (np.abs(z).max() > 4.0) if biased else (np.abs(z).max() < 3.5), (gap, z)


@pytest.mark.slow
def test_balance_shows_wrong_weights_and_corrections_wrong_regressions() -> None:
    df = units(6000)
    right = OneStep(UNFAIR, propensity="logistic", random_state=0).fit(df).influence(score).stages
    assert right[["balance_z", "correction_z"]].abs().to_numpy().max() < 3.0
    weights = OneStep(UNFAIR, **spoiled("propensity"), form="prefix", random_state=0).fit(df).influence(score).stages
    assert weights["balance_z"].abs().max() > 3.0
    blind = OneStep(UNFAIR, **spoiled("regression"), random_state=0).fit(df).influence(score).stages
    assert blind["correction_z"].abs().max() > 3.0


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_estimates_are_near_the_truth_and_their_errors_are_those_of_the_sample(samples: int) -> None:
    truth = exact()
    found = [estimate(OneStep(UNFAIR, random_state=s).fit(units(3000, s)).influence(score)) for s in range(samples)]
    z = [(mean - (truth["ypi"] - truth["y0"])) / error for mean, error in found]
    assert np.abs(z).max() < 3.5
    assert np.abs(np.mean(z, axis=0)).max() < 2.0


def test_fitted_rows_are_judged_out_of_fold_and_others_by_all_folds() -> None:
    df = units(500)
    train, test = df.iloc[:350], df.iloc[350:]
    source = OneStep(UNFAIR, folds=2, random_state=0).fit(train)
    own, other, both = source.influence(score), source.influence(score, test), source.influence(score, df)
    for name in ("y0", "ypi", "disagreement"):
        joined = np.vstack([getattr(own, name), getattr(other, name)])
        assert getattr(both, name) == pytest.approx(joined, abs=1e-12), name
    shuffled = source.influence(score, train.sample(frac=1.0, random_state=0))
    assert shuffled.y0.mean() == pytest.approx(own.y0.mean(), abs=1e-12)


def test_fitted_rows_judged_alone_have_the_values_that_they_have_among_all() -> None:
    """Regressions are recalled, and what rows draw to themselves is by the fitted rows."""
    df = units(200)
    source = OneStep(UNFAIR, propensity="logistic", regression="logistic", form="prefix").fit(df)
    whole = source.influence(score)
    some = source.influence(score, df.iloc[[5, 9, 150]])
    for name in ("y0", "ypi", "lower"):
        np.testing.assert_allclose(getattr(some, name), getattr(whole, name)[[5, 9, 150]], atol=1e-12)


class _ByRows(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Errs by one over the rows that it learned from."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> _ByRows:
        self.error_ = 1.0 / len(y)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        return np.full(len(X), 0.5 + self.error_)


def test_new_rows_have_the_bias_that_models_from_half_of_the_rows_show() -> None:
    """Of a regression that is .5 + 1 / rows of the group, where weights do not correct it: their mean is 1.25."""
    graph = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y")
    fitted, new = (
        pd.DataFrame({"C": np.arange(n) % 3, "A": np.repeat([0, 1], [zero, n - zero]), "M": np.arange(n) % 2}, at)
        for n, zero, at in ((100, 60, range(100)), (40, 30, range(100, 140)))
    )
    source = OneStep(
        graph.unfair("A -> Y"), propensity=DummyClassifier(strategy="prior"), regression=_ByRows(), form="prefix"
    ).fit(fitted)
    values = source.influence(lambda world: np.where(world.rows["M"] == 1, 0.8, 0.2), new)
    assert values.apart is not None
    *differences, bias = values.apart["y0"].mean(axis=1)[:, 0]
    assert differences == pytest.approx([0.0] * 3, abs=1e-12)
    assert bias == pytest.approx((1.0 - 1.25) * (1 / 30 - 1 / 48))
    assert values.apart["ypi"].mean(axis=1)[-1, 0] == pytest.approx(bias)


@pytest.mark.parametrize("seed", range(2))
def test_ends_keep_effects_of_either_sign_where_few_values_are_shared(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s, a = rng.integers(0, 2, 800), rng.integers(0, 2, 800)
    m = (rng.random(800) < 0.3 + 0.2 * a).astype(int)
    graph = pf.CausalGraph("S -> M; A -> M; {S A M} -> Y", sensitive="A", outcome="Y")

    def scored(world: CounterfactualSample) -> NDArray[np.float64]:
        rows = world.rows
        effect = np.where(rows["S"] == 0, 0.3, -0.3) * (0.5 + 0.5 * rows["M"])
        return np.asarray(0.45 + effect * rows["A"] + 0.1 * rows["M"])

    source = OneStep(graph.unfair("A -> Y"), propensity="saturated", regression="saturated", random_state=0)
    values = source.fit(pd.DataFrame({"S": s, "A": a, "M": m})).influence(scored)
    assert values.lower.mean() == pytest.approx(0.195, abs=0.02)  # .3 (.5 + .5 P(M = 1 | A = 0)), of either sign
    assert abs((values.ypi - values.y0).mean()) < 0.06


def test_columns_of_scores_do_not_touch_each_other() -> None:
    source = OneStep(UNFAIR, propensity="logistic", folds=2, random_state=0).fit(units(400))
    both = source.influence(score)
    for i in range(2):
        alone = source.influence(lambda world, i=i: score(world)[:, i])
        assert both.ypi[:, [i]] == pytest.approx(alone.ypi, abs=1e-12)
        assert both.lower[:, [i]] == pytest.approx(alone.lower, abs=1e-12)


def test_further_decisions_share_the_trees_of_their_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first decisions and the scores are as they were, and others move by far less than a standard error."""
    monkeypatch.setattr("pyrofair.nuisances.learners.REGROWN", 0)
    source = OneStep(UNFAIR, folds=2, splits=1, random_state=0).fit(units(1_500))

    def cut(*at: float) -> InfluenceValues:
        return source.influence(Named(("a", 0.5), ("a", "score"), *(("a", each) for each in at)))

    shared, apart = cut(0.6), source.influence(lambda world: (score(world)[:, 1] > 0.6).astype(float))
    assert np.array_equal(shared.ypi[:, :2], source.influence(score).ypi)
    for name in ("y0", "ypi", "lower", "rest", "disagreement"):
        one, other = getattr(shared, name)[:, 2], getattr(apart, name)[:, 0]
        assert 0.0 < abs(one.mean() - other.mean()) < 0.3 * other.std() / np.sqrt(len(other))
    assert np.array_equal(cut(0.6, 0.7).ypi[:, :3], shared.ypi)
    beside = source.influence(Named(("a", 0.5), ("a", "score"), ("b", 0.6)))  # decisions that another model makes
    assert beside.ypi[:, [2]] == pytest.approx(apart.ypi, abs=1e-12)


@pytest.mark.parametrize(("alone", "expected"), [(1, (0, 1, 1, 3, 4, 5, 6)), (0, (1, 1, 1, 3, 4, 4, 6))])
def test_decisions_are_led_by_the_score_of_their_model(alone: int, expected: tuple[int, ...]) -> None:
    s = np.random.default_rng(0).random((50, 2))
    scores = np.column_stack([s[:, 0] > 0.5, s[:, 0], s[:, 0] > 0.3, np.ones(50), s[:, 1], s[:, 1] > 0.4, s[:, 0] > 0])
    scores[7] = np.nan
    columns = [("a", "threshold"), ("a", "score"), ("a", 0.3), ("a", 0.0), ("b", "score"), ("b", 0.4)]
    assert leaders_of(scores.astype(float), columns, alone) == expected
    assert leaders_of(scores.astype(float), (), alone) == tuple(range(7))


def test_both_groups_estimate_the_same_where_the_propensities_are_right() -> None:
    df = units(4000)
    found = OneStep(UNFAIR, propensity="logistic", random_state=0).fit(df).by_group(score)
    gaps = [one - zero for zero, one in zip(found["group 0"], found["group 1"], strict=True)]
    z = [gap.mean(axis=0) / (gap.std(axis=0) / np.sqrt(len(gap))) for gap in gaps]
    assert np.abs(z).max() < 3.0
    ipw = IPW(UNFAIR, propensity="logistic", arm=1).fit(df)
    for world, own in zip(ipw.worlds(), found["group 1"], strict=True):
        assert own.mean(axis=0) == pytest.approx(world.weight @ score(world), abs=1e-9)


@pytest.mark.parametrize("settings", [PLAIN, pytest.param({}, marks=pytest.mark.slow)], ids=str)
def test_the_two_forms_agree_where_the_graph_is_right_and_differ_where_an_edge_is_missing(
    settings: dict[str, Any],
) -> None:
    edges = "{Q W} -> A; {A Q W} -> M; {A Q W M} -> L; {A Q L M} -> Y"
    df = units(1000)
    right = pf.CausalGraph(edges, sensitive="A", outcome="Y").unfair(direct=True, through=["M"])
    found = OneStep(right, **settings, random_state=0).fit(df).compare_forms(score)
    assert found["z"].abs().max() < 3.5
    wrong = pf.CausalGraph(edges.replace("{A Q W M} -> L", "{A W} -> L"), sensitive="A", outcome="Y")
    found = OneStep(wrong.unfair("A -> Y", "A -> M -> Y"), **settings, random_state=0).fit(df).compare_forms(score)
    assert found["z"].abs().max() > 4.0


# --- nuisance models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"propensity": "stacked", "regression": "stacked", "folds": 2},
        {"propensity": "logistic", "regression": "logistic"},
        {
            "propensity": RandomForestClassifier(50, min_samples_leaf=20, random_state=0),
            "regression": RandomForestRegressor(20, min_samples_leaf=20, random_state=0),
            "folds": 2,
        },
    ],
)
@pytest.mark.some(1)
def test_any_models_serve(settings: dict[str, Any]) -> None:
    df = units(1500)
    if "classifier" in str(type(settings["propensity"])).lower():
        df = df.assign(W=df["W"].cat.codes)
    mean, error = estimate(OneStep(UNFAIR, **settings, random_state=0).fit(df).influence(score))
    truth = exact()
    assert np.abs((mean - (truth["ypi"] - truth["y0"])) / error).max() < 3.5


# --- refusals --------------------------------------------------------------------------------------------------------


def test_weights_without_overlap_are_refused_and_warned_of_where_asked_for() -> None:
    hiring = pf.simulate.scenario("hiring")
    df = hiring.draw(2000, random_state=0)
    with pytest.warns(PositivityWarning, match="The prefix form: .*the mean weight is"):
        source = OneStep(hiring.unfair, form="prefix", random_state=0).fit(df)
    assert source.form_ == "prefix"
    assert (source.stages()["problem"] != "").any()


def test_a_bound_of_propensities_makes_no_counterparts() -> None:
    rng = np.random.default_rng(0)
    c = rng.normal(size=3000)
    df = pd.DataFrame({"C": c, "A": np.where(c > 1.2, 1, rng.random(3000) < 0.5).astype(int)})
    df["M"] = c + df["A"] + rng.normal(size=3000)
    graph = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y")
    for clip in (None, 0.05):
        source = OneStep(graph.unfair("A -> M -> Y"), clip=clip, regression="logistic", splits=1, random_state=0)
        with pytest.raises(PositivityError, match="of that world hardly occurs in the group"):
            source.fit(df)


def test_scores_must_be_probabilities_of_all_rows() -> None:
    source = OneStep(UNFAIR, **SATURATED, form="prefix")
    df = units(400).drop(columns="L").assign(L=0).assign(Q=lambda d: (d["Q"] > 0).astype(int))
    source.fit(df)
    with pytest.raises(DataError, match=r"outside \[0, 1\], such as 2"):
        source.influence(lambda world: np.full(len(world.rows), 2.0))
    with pytest.raises(DataError, match="expected"):
        source.influence(lambda world: np.zeros(3))


def test_a_cell_without_rows_of_the_group_is_refused() -> None:
    df = units(400).drop(columns="L").assign(L=0).assign(Q=lambda d: (d["Q"] > 0).astype(int))
    df = df[~((df["W"] == "x") & (df["A"] == 0) & (df["Q"] == 1))]
    with pytest.warns(PositivityWarning, match=r"Q=1, W=x \([\d.]+% of the target, no row of group 0\)"):
        source = OneStep(UNFAIR, **SATURATED, form="prefix").fit(df)
    assert source.stages()["problem"].str.contains("Q=1, W=x").sum() == 2  # once in each world: numbers are in doubt
    with pytest.raises(PositivityError, match="no row of the group in 34 of the cells of Q, W"):
        source.influence(score)
    df = df[~((df["W"] == "x") & (df["A"] == 0))]
    with pytest.raises(PositivityError, match=r"baseline world, .* W=x \([\d.]+% of the target, no row of group 0\)"):
        OneStep(UNFAIR, **PLAIN, random_state=0).fit(df)


def test_a_failed_fit_is_no_fit_and_a_source_of_influence_values_trains_nothing() -> None:
    df = units(100).assign(Y=np.arange(100) % 2)
    source = OneStep(UNFAIR, **SATURATED)
    with pytest.raises(DataError):
        source.fit(df.drop(columns="M"))
    with pytest.raises(ValueError, match="not fitted"):
        source.influence(score)
    classifier = pf.PenalizedClassifier(source=OneStep(UNFAIR), strength=1.0, progress=False)
    with pytest.raises(DataError, match="It makes no rows of either world: it judges classifiers, in audits"):
        classifier.fit(df.drop(columns="Y"), df["Y"])


# --- small groups and splits -----------------------------------------------------------------------------------------


def effects(
    draw: Any, score: Any, unfair: Any, samples: int, **settings: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """The effects of decisions and their standard errors in some samples, and how many were refused."""
    found, refused = [], 0
    for seed in range(samples):
        try:
            values = OneStep(unfair, random_state=0, **settings).fit(draw(seed)).influence(score)
        except PositivityError:
            refused += 1
            continue
        found.append(estimate(values))
    mean, error = (np.array(each)[:, 0] for each in zip(*found, strict=True))
    return mean, error, refused


@pytest.mark.filterwarnings("ignore:Poor overlap:pyrofair.exceptions.PositivityWarning")
@pytest.mark.parametrize(
    ("n", "samples", "least"),
    [(3000, 60, 0.88), *(pytest.param(n, k, 0.92, marks=pytest.mark.slow) for n, k in ((1000, 4000), (3000, 1000)))],
)
def test_intervals_of_a_group_of_five_percent_hold_the_effect(n: int, samples: int, least: float) -> None:
    """Cells of few rows: those that agree leave no residuals, so that a variance of residuals alone is too small."""
    rng = np.random.default_rng(7)
    d_is, m_is = rng.uniform(0.2, 0.8, (2, 4)), rng.uniform(0.2, 0.8, (2, 4, 2))
    decided = rng.uniform(0, 1, (2, 4, 2, 2)) > 0.5

    def draw(seed: int) -> pd.DataFrame:
        g = np.random.default_rng(seed)
        c = g.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
        a = (g.random(n) < np.array([0.05, 0.06, 0.05, 0.04])[c]).astype(int)
        d = (g.random(n) < d_is[a, c]).astype(int)
        return pd.DataFrame({"C": c, "A": a, "D": d, "M": (g.random(n) < m_is[a, c, d]).astype(int)})

    def score(world: CounterfactualSample) -> NDArray[np.float64]:
        return decided[tuple(world.rows[name].astype(int) for name in "ACDM")].astype(np.float64)

    unfair = pf.CausalGraph("C -> A; {A C} -> D; {A C D} -> M; {A C D M} -> Y", sensitive="A", outcome="Y").unfair(
        "A -> Y", "A -> M -> Y"
    )
    mean, error, _ = effects(draw, score, unfair, samples, **SATURATED)
    assert np.mean(np.abs(mean - 0.3351) < 1.96 * error) >= least
    assert abs(mean.mean() - 0.3351) < 3.5 * mean.std() / np.sqrt(len(mean))


def test_forty_five_rows_of_a_group_are_adjusted_and_seldom_refused() -> None:
    """Weights of a small group are uneven because its rows are few: a large one is no lack of overlap."""

    def draw(seed: int) -> pd.DataFrame:
        g = np.random.default_rng(seed)
        c = g.standard_normal(1000)
        a = (g.random(1000) < expit(-3.1 + 0.5 * c)).astype(int)
        m1 = 0.7 * a + 0.7 * c + g.standard_normal(1000)
        return pd.DataFrame({"C": c, "A": a, "M1": m1, "M2": 0.5 * m1 + 0.7 * a + 0.5 * c + g.standard_normal(1000)})

    def score(world: CounterfactualSample) -> NDArray[np.float64]:
        rows = world.rows
        return expit(0.5 * rows["A"] + 0.5 * rows["M1"] + 0.6 * rows["M2"] - 0.4 * rows["C"] - 0.6).to_numpy()

    graph = pf.CausalGraph("C -> A; {A C} -> M1; {A C M1} -> M2; {A C M1 M2} -> Y", sensitive="A", outcome="Y")
    settings = PLAIN | {"folds": 1}
    mean, error, refused = effects(draw, score, graph.unfair("A -> Y", "A -> M2 -> Y"), 60, **settings)
    assert refused <= 12
    assert abs(mean.mean() - 0.182) < 3.0 * mean.std() / np.sqrt(len(mean))
    assert np.mean(np.abs(mean - 0.182) < 1.96 * error) >= 0.85


def test_estimates_do_not_depend_on_the_order_of_words_nor_of_rows_beyond_the_spread_of_splits() -> None:
    df, splits = units(400), {"form": "prefix", "random_state": 0}
    turned = pf.CausalGraph("{W Q} -> A; {W Q A} -> M; {M A W Q} -> L; {L W M A Q} -> Y", sensitive="A", outcome="Y")
    first = OneStep(UNFAIR, **splits).fit(df).influence(score)
    other = OneStep(turned.unfair(direct=True, through=["M"]), **splits).fit(df).influence(score)
    np.testing.assert_allclose(first.ypi, other.ypi, atol=1e-12)
    rows = OneStep(UNFAIR, **splits).fit(df.sample(frac=1.0, random_state=1)).influence(score)
    gap = (rows.ypi - rows.y0).mean(axis=0) - (first.ypi - first.y0).mean(axis=0)
    spread = sum(((v.apart["ypi"] - v.apart["y0"]).mean(axis=1) ** 2).sum(axis=0) for v in (first, rows))
    assert (np.abs(gap) < 4.0 * np.sqrt(spread)).all()
