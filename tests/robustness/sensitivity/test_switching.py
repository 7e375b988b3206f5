"""Switching of mediators: against linear programs over joint distributions of both worlds, and on samples."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from sklearn.ensemble import HistGradientBoostingClassifier

import pyrofair as pf
from pyrofair.exceptions import DataError, PositivityWarning, PyrofairWarning
from pyrofair.robustness.sensitivity import Switching, switching
from tests.models import Known
from tests.robustness.sensitivity.models import GRAPH, SATURATED, Table, exact, repeated, sample

PATHS = {
    "D": (("A -> Y", "A -> D -> Y", "A -> D -> M -> Y"), (1, 0, 1)),
    "M": (("A -> M -> Y",), (0, 1, 0)),
    "both": (("A -> Y", "A -> M -> Y", "A -> D -> Y", "A -> D -> M -> Y"), (1, 1, 1)),
}
"""Unfair paths, with the values of A that D, M and the outcome read in the unfair-path world."""
UNFAIR = GRAPH.unfair(*PATHS["D"][0])


def units(p: np.ndarray, scores: np.ndarray, paths: str) -> list[tuple[float, list[np.ndarray]]]:
    """For each value of the shared features its weight, and p, q, c0, c1 of the mediators' values."""
    d1, m1, y1 = PATHS[paths][1]
    found = []
    for q in range(2):
        of_d = p[q].sum(axis=2) / p[q].sum(axis=(1, 2))[:, None]
        of_m = p[q] / p[q].sum(axis=2, keepdims=True)
        one, other = of_d[0][:, None] * of_m[0], of_d[d1][:, None] * of_m[m1]
        tables = [one, other, scores[0, q], scores[y1, q]]
        if paths == "M":  # D is shared
            for d in range(3):
                found.append((p[q].sum() * of_d[0][d], [of_m[0][d], of_m[1][d], scores[0, q, d], scores[y1, q, d]]))
        else:
            found.append((p[q].sum(), [each.ravel() for each in tables]))
    return found


def by_program(p: np.ndarray, scores: np.ndarray, paths: str, gamma: float) -> tuple[float, float]:
    """Both bounds on PIU over all joint distributions of the mediators and the decisions of both worlds.

    Units that stay have the scores of their features, and all others have any joint distribution.
    """
    ends = np.zeros(2)
    for weight, (one, other, c0, c1) in units(p, scores, paths):
        k = len(one)
        free = [(*cell, 0) for cell in product(range(k), (0, 1), range(k), (0, 1))]
        cells = np.array([*free, *((x, y, x, z, 1) for x, y, z in product(range(k), (0, 1), (0, 1)))])
        x0, y0, x1, y1, stay = cells.T
        rows, right = [], []
        for x, y in product(range(k), (0, 1)):
            rows += [(x0 == x) & (y0 == y), (x1 == x) & (y1 == y)]
            right += [one[x] * (c0[x] if y else 1 - c0[x]), other[x] * (c1[x] if y else 1 - c1[x])]
        for x in range(k):
            stays = (x0 == x) & (stay == 1)
            rows += [stays * (y0 - c0[x]), stays * (y1 - c1[x])]
            right += [0.0, 0.0]
        limit = 0.5 * np.abs(one - other).sum() + gamma + 1e-12
        for i, sign in enumerate((1, -1)):
            done = linprog(
                sign * (y0 != y1),
                A_ub=[stay == 0],
                b_ub=[limit],
                A_eq=np.array(rows, float),
                b_eq=right,
                method="highs",
            )
            ends[i] += weight * sign * done.fun
    return float(ends[0]), float(ends[1])


def population(rng: np.random.Generator) -> np.ndarray:
    return rng.dirichlet(np.full(24, 2.0)).reshape(2, 2, 3, 2)


def examine(p: np.ndarray, scores: np.ndarray, paths: str, **settings: object) -> Switching:
    df, weight = repeated(p)
    source = pf.OneStep(GRAPH.unfair(*PATHS[paths][0]), **SATURATED, folds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PositivityWarning)
        return switching(Table(scores), source, df, sample_weight=weight, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("paths", PATHS)
def test_decisions_have_the_ends_of_the_program_over_joint_distributions(paths: str) -> None:
    p = population(np.random.default_rng(len(paths)))
    scores = np.random.default_rng(3).random((2, 2, 3, 2))
    found = examine(p, scores, paths, gammas=[0.05, 0.3, 1.0])
    for row in found.table.itertuples():
        ends = by_program(p, (scores > 0.5).astype(float), paths, row.gamma)
        assert (row.low, row.high) == pytest.approx(ends, abs=1e-7)
    assert found.table["sharp"].all()
    least = sum(weight * 0.5 * np.abs(one - other).sum() for weight, (one, other, *_) in units(p, scores, paths))
    assert found.least[0] == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("paths", PATHS)
def test_scores_have_a_valid_interval_that_is_sharp_without_and_with_all_switching(paths: str) -> None:
    p = population(np.random.default_rng(10 + len(paths)))
    scores = np.random.default_rng(4).random((2, 2, 3, 2))
    found = examine(p, scores, paths, gammas=[0.1, 1.0], decisions="score")
    for row in found.table.itertuples():
        low, high = by_program(p, scores, paths, row.gamma)
        assert row.low <= low + 1e-7
        assert row.high >= high - 1e-7
        assert (row.low, row.high) == pytest.approx((low, high), abs=1e-7 if row.sharp else 0.02)
    assert found.table["sharp"].tolist() == [True, False, True]


SCORES = np.fromfunction(
    lambda a, q, d, m: 0.1 + 0.25 * a + 0.05 * q + 0.2 * d * (1 - 0.9 * a) + 0.25 * m, (2, 2, 3, 2)
)


def covered(n: int, seeds: range, gammas: tuple[float, ...] = (0.0, 0.05, 1.0), **settings: object) -> pd.DataFrame:
    """By seed and gamma, whether both ends are held, and the errors of both."""
    truth = {gamma: by_program(exact(), (SCORES > 0.5).astype(float), "D", gamma) for gamma in gammas}
    lines = []
    for seed in seeds:
        source = pf.OneStep(UNFAIR, **(SATURATED | settings))  # type: ignore[arg-type]
        found = switching(Table(SCORES), source, sample(n, seed), gammas=gammas)
        for own in found.table.itertuples():
            low, high = truth[own.gamma]
            lines.append((own.gamma, own.lower <= low and own.upper >= high, own.low - low, own.high - high))
    return pd.DataFrame(lines, columns=["gamma", "held", "low", "high"])


def test_intervals_hold_both_ends() -> None:
    found = covered(1500, range(3), gammas=(0.0, 0.05))
    assert found["held"].mean() >= 0.5
    assert found[["low", "high"]].abs().max().max() < 0.07


@pytest.mark.slow
def test_intervals_hold_both_ends_at_the_nominal_level() -> None:
    found = covered(1500, range(300), gammas=(0.0, 0.02, 0.05, 0.1, 0.3, 1.0))
    assert (found.groupby("gamma")["held"].mean() >= 0.93).all()
    errors = found.groupby("gamma")[["low", "high"]].mean()
    assert (errors["low"] < 0.005).all()  # outward, if at all
    assert (errors["high"] > -0.005).all()


def test_all_switching_is_the_interval_of_the_audit_given_what_is_shared() -> None:
    df = sample(1500, 0)
    source = pf.OneStep(UNFAIR, **SATURATED, folds=1)
    found = switching(Table(SCORES), source, df, above=0.05, at_most=0.9)
    report = pf.audit({"m": Table(SCORES)}, source, df, random_state=0)
    table = report.table[report.table["decisions"] == "threshold"].set_index("quantity")
    own = found.table.set_index("gamma").loc[1.0]
    assert own["low"] == pytest.approx(table.loc["piu_lower", "estimate"], abs=1e-9)
    assert own["high"] == pytest.approx(table.loc["piu_upper", "estimate"], abs=1e-9)
    assert own["lower"] == pytest.approx(table.loc["piu_lower", "lower"], abs=1e-9)
    assert own["upper"] == pytest.approx(table.loc["piu_upper", "upper"], abs=1e-9)
    assert (found.table["lower"] <= found.table["low"]).all()
    assert (found.table["upper"] >= found.table["high"]).all()
    assert found.least[1] < found.least[0] < found.least[2]
    assert len(found.flips_at) == 2
    assert "change between the worlds for at least" in str(found)
    assert "<table" in found._repr_html_()
    assert found.plot().axes[0].get_xlabel() == "gamma (chance that D, M change, beyond the least)"


def test_ends_that_cross_by_sampling_error_are_exchanged_and_the_limits_hold_both() -> None:
    """A does not cause M, so that both ends of each row are P(M < 0), and are estimated apart."""
    rng = np.random.default_rng(5)
    c = rng.integers(2, size=800)
    a = (rng.random(800) < 0.4 + 0.2 * c).astype(int)
    df = pd.DataFrame({"C": c, "A": a, "M": rng.normal(size=800) + c})
    graph = pf.CausalGraph("C -> {A M Y}; A -> {M Y}; M -> Y", sensitive="A", outcome="Y")

    rule = Known(lambda X: (X["M"] > 0.0) | (X["A"] == 1))
    unfair = graph.unfair("A -> Y", "A -> M -> Y")
    source = pf.OneStep(unfair, propensity="logistic", regression="logistic", random_state=0)
    found = switching(rule, source, df, gammas=[0, 0.05, 1], above=0.2, at_most=0.36, random_state=0)
    own = found.table
    assert own["low"].iloc[0] < own["high"].iloc[0] - 0.02
    assert (own["lower"] <= own["low"]).all()
    assert (own["low"] <= own["high"]).all()
    assert (own["high"] <= own["upper"]).all()
    assert own["lower"].max() < 0.5 * (0.5 + 0.1587) < own["upper"].min()


def test_flips_are_where_switching_takes_an_end_to_its_limit() -> None:
    p = population(np.random.default_rng(1))
    scores = np.random.default_rng(3).random((2, 2, 3, 2))
    gammas = np.linspace(0.0, 0.2, 11)
    found = examine(p, scores, "D", gammas=gammas)
    middle = float(found.table["high"].iloc[[0, -1]].mean())
    again = examine(p, scores, "D", gammas=gammas, at_most=middle)
    at = again.flips_at.loc[1, "point"]
    assert by_program(p, (scores > 0.5).astype(float), "D", at)[1] == pytest.approx(middle, abs=2e-3)


def test_a_continuous_mediator_is_compared_by_propensities() -> None:
    """With M normal, of the means 0 and 1, the least probability of a change is 2 Phi(1/2) - 1 = .383."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 2000)
    df = pd.DataFrame({"A": a, "M": a + rng.normal(size=2000)})
    graph = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")

    source = pf.OneStep(
        graph.unfair("A -> M -> Y"), propensity="logistic", regression="logistic", form="prefix", random_state=0
    )
    found = switching(Known(lambda X: X["M"] > 0.5), source, df, gammas=[0, 0.1, 1])
    assert found.least[1] <= 0.3829 <= found.least[2]
    # All who move cross the threshold at 1/2, and more may from both sides of it.
    own = found.table.set_index("gamma")
    assert own.loc[0.0, ["low", "high"]].tolist() == pytest.approx([0.383, 0.383], abs=0.05)
    assert own.loc[0.1, ["low", "high"]].tolist() == pytest.approx([0.383, 0.483], abs=0.05)


def test_boosted_models_and_rows_that_were_not_fitted() -> None:
    source = pf.OneStep(UNFAIR, propensity="boosted", regression="boosted", folds=2, form="prefix", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PyrofairWarning)  # boosted propensities of so few rows
        found = switching(Table(SCORES), source.fit(sample(1500, 0)), sample(1000, 1), gammas=[0.0])
    truth = by_program(exact(), (SCORES > 0.5).astype(float), "D", 0.0)
    assert found.table.loc[0, ["low", "high"]].tolist() == pytest.approx(truth, abs=0.08)


def test_what_cannot_switch_or_is_not_known_in_both_worlds_is_refused() -> None:
    df = sample(1500, 0)
    with pytest.raises(DataError, match="No unfair path runs through a mediator"):
        switching(Table(SCORES), pf.OneStep(GRAPH.unfair("A -> Y"), **SATURATED), df)
    source = pf.OneStep(UNFAIR, **SATURATED)
    given = SCORES[df["A"], df["Q"], df["D"], df["M"]]
    with pytest.raises(DataError, match="Pass the model itself"):
        switching(given, source, df)
    decisions = (np.random.default_rng(0).random(1500) < given).astype(int)
    with pytest.raises(DataError, match="The scores are an outcome"):
        switching(decisions, source, df, scores="outcome")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
def test_boosted_decisions_on_adult() -> None:
    data = pf.datasets.load_adult()
    train, test = data.split(random_state=0)
    X, y = train[data.graph.input_columns], train[data.graph.outcome_column]
    model = HistGradientBoostingClassifier(max_iter=100, random_state=0, categorical_features="from_dtype").fit(X, y)
    found = switching(model, data.unfair, test, gammas=[0.0, 1.0], random_state=0)
    assert found.least[0] == pytest.approx(0.452, abs=0.01)
    assert found.table[["low", "high"]].to_numpy() == pytest.approx(
        np.array([[0.190, 0.207], [0.161, 0.319]]), abs=0.01
    )
