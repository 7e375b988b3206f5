"""Hidden common causes of limited strength: against enumerated models with such causes, and on samples."""

from __future__ import annotations

import importlib
import json
import re
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import pyrofair as pf
from pyrofair.exceptions import DataError, PositivityWarning
from pyrofair.nuisances import learners
from pyrofair.robustness.sensitivity import Confounding, confounding
from pyrofair.robustness.sensitivity.tilting import Target, find_cuts
from tests.models import Known
from tests.robustness.sensitivity.models import GRAPH, SATURATED, Table, exact, repeated, sample

UNFAIR = {
    "through D": GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> D -> M -> Y"),
    "through M": GRAPH.unfair("A -> Y", "A -> M -> Y"),
    "direct": GRAPH.unfair("A -> Y"),
    "all": GRAPH.unfair(direct=True, through=["D", "M"]),
}
LEVELS = {"q": 2, "u": 3, "a": 2, "d": 3, "m": 2}
CELLS = list(product(*(range(each) for each in LEVELS.values())))


class Model:
    """A discrete model with a hidden cause U, by its conditional distributions: last axis the variable itself."""

    def __init__(self, rng: np.random.Generator, u_causes: str, strength: float = 1.0) -> None:
        def law(*shape: int, reads_u: bool) -> np.ndarray:
            """Log-probabilities with a part that depends on U, which is the second axis, if it is read."""
            raw = rng.normal(0.0, 0.7, shape)
            if not reads_u:
                raw = raw.mean(axis=1, keepdims=True) + 0.0 * raw
            else:
                raw = raw.mean(axis=1, keepdims=True) + strength * (raw - raw.mean(axis=1, keepdims=True))
            return np.exp(raw) / np.exp(raw).sum(axis=-1, keepdims=True)

        self.q = rng.dirichlet([5, 5])
        self.u = rng.dirichlet([3, 3, 3], 2)
        self.a = law(2, 3, 2, reads_u="A" in u_causes)  # q u a
        self.d = law(2, 3, 2, 3, reads_u="D" in u_causes)  # q u a d
        self.m = law(2, 3, 2, 3, 2, reads_u="M" in u_causes)  # q u a d m

    def observed(self) -> np.ndarray:
        """The distribution of (q, u, a, d, m)."""
        found = np.zeros(tuple(LEVELS.values()))
        for q, u, a, d, m in CELLS:
            found[q, u, a, d, m] = (
                self.q[q] * self.u[q, u] * self.a[q, u, a] * self.d[q, u, a, d] * self.m[q, u, a, d, m]
            )
        return found

    def mean(self, scores: np.ndarray, arms: dict[str, int]) -> float:
        """P(Y = 1) in a world in which D, M and Y read these values of A."""
        total = 0.0
        for q, u, d, m in product(range(2), range(3), range(3), range(2)):
            mass = self.q[q] * self.u[q, u] * self.d[q, u, arms["D"], d] * self.m[q, u, arms["M"], d, m]
            total += mass * scores[arms["Y"], q, d, m]
        return total

    def table(self) -> tuple[pd.DataFrame, np.ndarray]:
        """All observed cells, with their probabilities as weights."""
        return repeated(self.observed().sum(axis=1))


def odds_ratio(joint: np.ndarray, axes: tuple[int, ...]) -> float:
    """The largest factor by which U moves the odds of A, given the variables on some axes of (q, u, a, d, m)."""
    rest = tuple(i for i in range(5) if i not in (*axes, 1, 2))
    p = joint.sum(axis=rest, keepdims=True)
    with_u = p[:, :, 1:2] / p[:, :, 0:1]
    without = p.sum(axis=1, keepdims=True)
    ratio = with_u / (without[:, :, 1:2] / without[:, :, 0:1])
    return float(np.exp(np.abs(np.log(ratio)).max()))


def arms_of(unfair: pf.UnfairPaths) -> list[dict[str, int]]:
    return [{"D": 0, "M": 0, "Y": 0} | dict(regime.arms) for regime in unfair.regimes]


def examine(
    unfair: pf.UnfairPaths, table: tuple[pd.DataFrame, np.ndarray], scores: np.ndarray, gamma: float, cause: str
) -> pd.DataFrame:
    source = pf.OneStep(unfair, **SATURATED, folds=1)  # the rows are the population
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PositivityWarning)  # a row stands for a cell, and there are few
        found = confounding(
            Table(scores), source, table[0], gammas=[gamma], hidden_causes=cause, decisions="score", above=0.999,
            sample_weight=table[1],
        )  # fmt: skip
    own = found.table[found.table["gamma"] == found.table["gamma"].max()]
    return own.set_index("quantity")


def truth(model: Model, unfair: pf.UnfairPaths, scores: np.ndarray) -> dict[str, float]:
    y0, ypi = (model.mean(scores, arms) for arms in arms_of(unfair))
    return {"p_y0": y0, "p_ypi": ypi, "mean_unfair_effect": ypi - y0}


CASES = [("A <-> D", "AD"), ("A <-> M", "AM"), ("D <-> M", "DM")]


@pytest.mark.parametrize("which", UNFAIR)
@pytest.mark.parametrize(("cause", "read"), CASES)
def test_the_truth_of_a_model_with_a_hidden_cause_lies_inside(cause: str, read: str, which: str) -> None:
    unfair = UNFAIR[which]
    if cause == "D <-> M" and which not in ("through D", "through M"):
        pytest.skip("all mediators read one value")
    rng = np.random.default_rng(5)
    for _ in range(1 + (which == "through D")):
        model, scores = Model(rng, read, 2.0), rng.random((2, 2, 3, 2))
        gamma = odds_ratio(model.observed(), (0,) if read[0] == "A" else (0, 3))
        found, true = examine(unfair, model.table(), scores, gamma, cause), truth(model, unfair, scores)
        for quantity, value in true.items():
            assert found.loc[quantity, "low"] - 1e-9 <= value <= found.loc[quantity, "high"] + 1e-9
        assert found.loc["piu", "low"] - 1e-9 <= abs(true["mean_unfair_effect"])


@pytest.mark.parametrize("which", UNFAIR)
def test_the_truth_lies_inside_where_a_hidden_cause_causes_all(which: str) -> None:
    unfair = UNFAIR[which]
    rng = np.random.default_rng(6)
    for _ in range(2):
        model, scores = Model(rng, "ADM", 1.5), rng.random((2, 2, 3, 2))
        gamma = odds_ratio(model.observed(), (0,))
        if which not in ("direct", "all"):
            gamma = max(gamma, later_ratio(model, arms_of(unfair)[1]))
        found, true = examine(unfair, model.table(), scores, gamma, "A <-> all"), truth(model, unfair, scores)
        assert found.loc["p_y0", "sharp"]
        assert found.loc["p_ypi", "sharp"] == (which in ("direct", "all"))
        for quantity, value in true.items():
            assert found.loc[quantity, "low"] - 1e-9 <= value <= found.loc[quantity, "high"] + 1e-9


def later_ratio(model: Model, arms: dict[str, int]) -> float:
    """The largest ratio of M's distribution in the world, given (q, d) there and a group, to that which is observed."""
    joint = model.observed()
    largest = 1.0
    for q, d, group in product(range(2), range(3), range(2)):
        mass = model.u[q] * model.a[q, :, group] * model.d[q, :, arms["D"], d]
        world = (mass[:, None] * model.m[q, :, arms["M"], d]).sum(axis=0) / mass.sum()
        seen = joint[q, :, arms["M"], d].sum(axis=0)
        largest = max(largest, float(np.exp(np.abs(np.log(world / (seen / seen.sum()))).max())))
    return largest


def worst_model(base: Model, unfair: pf.UnfairPaths, scores: np.ndarray, node: str, gamma: float, sign: int) -> Model:
    """A model with the observed distribution of one without a hidden cause, whose effect is the most extreme.

    U is binary: 1 where the odds of A are gamma times those without U, 0 where they are 1 / gamma times. In the group
    with the value that the node reads, U splits the node's distribution at a tail, found by a linear program.
    """
    p = base.observed().sum(axis=1)  # q a d m
    law_d = p.sum(axis=3) / p.sum(axis=(2, 3))[:, :, None]  # q a d
    law_m = p / p.sum(axis=3, keepdims=True)  # q a d m
    one, other = arms_of(unfair)
    found = Model(np.random.default_rng(0), "")
    found.q = p.sum(axis=(1, 2, 3))
    e = p.sum(axis=(2, 3)) / found.q[:, None]  # q a
    high = np.array([1 / (1 + gamma), gamma / (1 + gamma)])  # P(U = 1 | A)
    u = np.stack([1 - e @ high, e @ high, np.zeros(2)], axis=1)
    found.u = u
    found.a = np.zeros((2, 3, 2))
    for a in (0, 1):
        found.a[:, 1, a] = e[:, a] * high[a] / u[:, 1]
        found.a[:, 0, a] = e[:, a] * (1 - high[a]) / u[:, 0]
    found.a[:, 2] = 0.5
    found.d = np.repeat(law_d[:, None], 3, axis=1)
    found.m = np.repeat(law_m[:, None], 3, axis=1)

    def split(law: np.ndarray, value: np.ndarray, arm: int) -> np.ndarray:
        """The distributions given U = 0, 1, 2 in a group, so that the mean of a value over all units is greatest."""
        # Mass x of U = rare (probability 1 / (1 + gamma) in the group) of each level; its density ratio is gamma.
        rare = 1 / (1 + gamma)
        done = linprog(-value, A_eq=np.ones((1, len(law))), b_eq=[rare], bounds=list(zip(0 * law, law, strict=True)))
        x = done.x
        of_rare, of_common = x / rare, (law - x) / (1 - rare)
        return np.stack([of_rare, of_common, law] if arm else [of_common, of_rare, law])

    after = {"D": [(arms, (law_m[:, arms["M"]] * scores[arms["Y"]]).sum(axis=2)) for arms in (one, other)],
             "M": [(arms, scores[arms["Y"]]) for arms in (one, other)]}  # fmt: skip
    same = one[node] == other[node]
    for arm in {one[node], other[node]}:
        if node == "D":
            value = sum((1 if arms is other else -1) * mean for arms, mean in after["D"] if same or arms[node] == arm)
            for q in range(2):
                found.d[q, :, arm] = split(law_d[q, arm], sign * np.asarray(value)[q], arm)
        else:
            for q, d in product(range(2), range(3)):
                value = sum(
                    (1 if arms is other else -1) * law_d[q, arms["D"], d] * mean[q, d]
                    for arms, mean in after["M"]
                    if same or arms[node] == arm
                )
                found.m[q, :, arm, d] = split(law_m[q, arm, d], sign * np.asarray(value), arm)
    return found


@pytest.mark.parametrize("which", UNFAIR)
@pytest.mark.parametrize("node", ["D", "M"])
def test_the_ends_are_attained_by_a_hidden_cause_of_that_strength(node: str, which: str) -> None:
    unfair = UNFAIR[which]
    rng = np.random.default_rng(7)
    for gamma in (1.3, 3.0)[: 1 + (which == "through D")]:
        base, scores = Model(rng, ""), rng.random((2, 2, 3, 2))
        found = examine(unfair, base.table(), scores, gamma, f"A <-> {node}")
        for sign, end in ((1, "high"), (-1, "low")):
            worst = worst_model(base, unfair, scores, node, gamma, sign)
            joint = worst.observed()
            np.testing.assert_allclose(joint.sum(axis=1), base.observed().sum(axis=1), atol=1e-12)
            assert odds_ratio(joint[:, :2], (0,)) == pytest.approx(gamma)
            effect = truth(worst, unfair, scores)["mean_unfair_effect"]
            assert effect == pytest.approx(found.loc["mean_unfair_effect", end], abs=1e-9)
            assert found.loc["mean_unfair_effect", "sharp"]


def test_a_single_stage_is_the_known_closed_form() -> None:
    """Tan's model for a binary decision: the mean in the group that lacks it is min(gamma p, 1 - (1 - p) / gamma)."""
    df = pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})
    graph = pf.CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> M -> Y"), propensity="saturated", regression="saturated", folds=1)

    found = confounding(Known(lambda X: X["M"]), source, df, gammas=[2.0], hidden_causes="A <-> M")
    own = found.table[found.table["gamma"] == 2.0].set_index("quantity")
    y0 = (0.4 * 0.25 + 0.6 * 0.125, 0.4 * 0.25 + 0.6 * 0.5)
    ypi = (0.6 * 0.75 + 0.4 * 0.5, 0.6 * 0.75 + 0.4 * 0.875)
    assert own.loc["p_y0", ["low", "high"]].tolist() == pytest.approx(y0)
    assert own.loc["p_ypi", ["low", "high"]].tolist() == pytest.approx(ypi)
    assert own.loc["mean_unfair_effect", ["low", "high"]].tolist() == pytest.approx((ypi[0] - y0[1], ypi[1] - y0[0]))
    assert own.loc["piu", ["low", "high"]].tolist() == pytest.approx((ypi[0] - y0[1], 1.0))


# -- samples ----------------------------------------------------------------------------------------------------------


SCORES = np.fromfunction(lambda a, q, d, m: 0.1 + 0.15 * a + 0.05 * q + 0.15 * d + 0.3 * m, (2, 2, 3, 2))


def run(df: pd.DataFrame, which: str = "through D", **settings: object) -> Confounding:
    source = pf.OneStep(UNFAIR[which], **SATURATED)
    return confounding(Table(SCORES), source, df, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("decisions", ["score", "threshold"])
def test_without_a_hidden_cause_the_numbers_are_those_of_the_audit(decisions: str) -> None:
    df = sample(1500, 0)
    found = run(df, decisions=decisions, gammas=[1.5])
    report = pf.audit({"m": Table(SCORES)}, pf.OneStep(UNFAIR["through D"], **SATURATED), df, random_state=0)
    weighted = pf.audit(
        {"m": Table(SCORES)}, pf.IPW(UNFAIR["through D"], arm="paper", propensity="saturated"), df, n_boot=0
    )
    for audited, same in ((report, True), (weighted, False)):
        table = audited.table[audited.table["decisions"] == decisions].set_index("quantity")
        for _, own in found.table[found.table["gamma"] == 1.0].groupby("hidden_cause"):
            for row in own[own["quantity"] != "piu"].itertuples():
                assert row.low == pytest.approx(table.loc[row.quantity, "estimate"], abs=1e-12)
                assert row.high == row.low
                if same:
                    assert (row.lower, row.upper) == pytest.approx(tuple(table.loc[row.quantity, ["lower", "upper"]]))


def test_what_other_splits_into_folds_add_is_that_of_each_quantity() -> None:
    df, source = sample(400, 0), pf.OneStep(UNFAIR["direct"], folds=2, splits=2, form="prefix", random_state=0)
    found = confounding(Table(SCORES), source, df, decisions="score", gammas=[2.0], hidden_causes="A <-> all")
    table = pf.audit({"m": Table(SCORES)}, source, df, random_state=0).table.query("decisions == 'score'")
    for row in found.table[(found.table["gamma"] == 1.0) & (found.table["quantity"] != "piu")].itertuples():
        ends = table.set_index("quantity").loc[row.quantity, ["lower", "upper"]]
        assert (row.lower, row.upper) == pytest.approx(tuple(ends), abs=1e-9)


def test_flips_lie_where_the_interval_meets_the_limit() -> None:
    df = sample(6000, 0)  # cuts learned from other rows make the ends jump a little in smaller samples
    settings: dict[str, Any] = {"decisions": "score", "above": 0.2, "at_most": 0.95}
    found = run(df, gammas=[1.5, 2.0, 2.5, 3.2, 4.0, 5.0], hidden_causes="A <-> D", **settings)
    for row in found.flips_at.itertuples():
        for name, column, other_end in (("point", "low", "high"), ("interval", "lower", "upper")):
            at = getattr(row, name)
            if not np.isfinite(at):
                continue
            other = run(df, gammas=[at], hidden_causes=row.hidden_cause, **settings).table
            piu = other[(other["quantity"] == "piu") & (other["gamma"] == other["gamma"].max())].iloc[0]
            value, limit = (piu[column], 0.2) if "above" in row.conclusion else (piu[other_end], 0.95)
            assert value == pytest.approx(limit, abs=0.01)
    assert np.isfinite(found.flips_at["interval"]).any()


def test_the_outcome_itself_may_have_a_hidden_cause() -> None:
    df = sample(3000, 3)
    p = SCORES[tuple(df[name].to_numpy() for name in ("A", "Q", "D", "M"))]
    decided = (np.random.default_rng(0).random(len(df)) < p).astype(float)
    source = pf.OneStep(UNFAIR["direct"], **SATURATED)
    found = confounding(decided, source, df, gammas=[2.0], scores="outcome")
    assert list(found.assumptions) == ["A <-> D", "A <-> M", "A <-> Y", "{D M} <-> Y", "A <-> all"]
    own = found.table[found.table["quantity"] == "mean_unfair_effect"]
    assert own[own["gamma"] == 1.0]["low"].to_numpy() == pytest.approx(0.15, abs=0.05)
    wide = own[own["gamma"] == 2.0].set_index("hidden_cause")
    assert wide.loc["A <-> Y", "high"] - wide.loc["A <-> Y", "low"] > 0.2


def test_boosted_nuisances_find_the_ends_of_the_population() -> None:
    df = sample(800, 4)
    source = pf.OneStep(UNFAIR["through M"], form="prefix", random_state=0, folds=2)
    found = confounding(Table(SCORES), source, df, gammas=[2.0], decisions="score", hidden_causes="A <-> M")
    right = examine(UNFAIR["through M"], repeated(exact()), SCORES, 2.0, "A <-> M")
    own = found.table[found.table["gamma"] == 2.0].set_index("quantity")
    for quantity in ("p_y0", "p_ypi", "mean_unfair_effect"):
        assert own.loc[quantity, "lower"] <= right.loc[quantity, "low"] + 1e-9
        assert own.loc[quantity, "upper"] >= right.loc[quantity, "high"] - 1e-9
        ends = right.loc[quantity, ["low", "high"]].tolist()
        assert own.loc[quantity, ["low", "high"]].tolist() == pytest.approx(ends, abs=0.06)


def test_hidden_causes_and_their_limits_share_their_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    df, fits = sample(500, 4), []
    count = learners.fit_weighted
    monkeypatch.setattr(learners, "fit_weighted", lambda *given, **more: fits.append(1) or count(*given, **more))

    def fits_of(gammas: list[float], causes: list[str]) -> int:
        fits.clear()
        source = pf.OneStep(UNFAIR["through M"], form="prefix", propensity="logistic", random_state=0, folds=2)
        confounding(Table(SCORES), source, df, gammas=gammas, decisions="score", hidden_causes=causes)
        return len(fits)

    one = fits_of([2.0], ["A <-> M"])
    assert fits_of([1.25, 1.5, 2.0, 3.0], ["A <-> M"]) == one
    assert fits_of([2.0], ["A <-> M", "A <-> D", "A <-> all"]) < 2 * one


@pytest.mark.parametrize("cause", ["A <-> D", "A <-> M", "D <-> M", "A <-> all"])
def test_influence_values_are_the_derivatives_of_the_bounds(cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value at the cut of a tail has a ratio between both limits: means of later steps are weighted by it."""
    module, kept = importlib.import_module(confounding.__module__), []

    def sweep(problem: Any, parameter: Any, values: Any, departures: Any) -> Any:
        kept.append((departures[0].bounds, problem.rows.weight / problem.rows.weight.sum()))
        return found(problem, parameter, values, departures)

    found = module.sweep
    monkeypatch.setattr(module, "sweep", sweep)
    h, step = np.random.default_rng(1).normal(size=exact().shape), 1e-4
    h -= (exact() * h).sum() / exact().sum()
    moved = [
        examine(UNFAIR["through D"], repeated(exact() * (1.0 + sign * step * h), copies=100), SCORES, 2.0, cause)
        for sign in (1, -1)
    ]
    slopes = (moved[0][["low", "high"]] - moved[1][["low", "high"]]) / (2.0 * step)
    examine(UNFAIR["through D"], repeated(exact(), copies=100), SCORES, 2.0, cause)
    bounds, share = kept[-1]
    change = share * np.tile(h.ravel(), len(share) // h.size)
    for name in ("p_y0", "p_ypi", "mean_unfair_effect"):
        own = [change @ values[:, -1] for values in bounds[name]]
        assert own == pytest.approx(slopes.loc[name].tolist(), abs=2e-3)


def covered(n: int, seeds: range, cause: str) -> pd.DataFrame:
    """Whether intervals hold the ends of the population, and both at once, by seed and quantity."""
    right = examine(UNFAIR["through D"], repeated(exact()), SCORES, 2.0, cause)
    found = []
    for seed in seeds:
        own = run(sample(n, seed), hidden_causes=cause, gammas=[2.0], decisions="score", above=0.99).table
        own = own[own["gamma"] == 2.0].set_index("quantity")
        held = (own["lower"] <= right["low"] + 1e-12) & (own["upper"] >= right["high"] - 1e-12)
        found.append(held)
    return pd.DataFrame(found)


def test_intervals_hold_both_ends() -> None:
    held = covered(600, range(8), "A <-> D")
    assert held.mean().min() >= 0.75


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["A <-> D", "A <-> M", "D <-> M", "A <-> all"])
def test_intervals_hold_both_ends_at_the_nominal_level(cause: str) -> None:
    held = covered(1500, range(1000), cause)
    assert held.mean().min() >= 0.92


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Poor overlap")
def test_the_page_runs_and_has_the_numbers_that_it_states() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "sensitivity.md").read_text(encoding="utf-8")
    code, *_ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "sensitivity.md", "exec"), names)
    flips = names["found"].flips_at.set_index("hidden_cause")["interval"]
    (example,) = re.findall("^## A worked example.*?(?=^## )", page, re.MULTILINE | re.DOTALL)
    stated_flips = re.findall(r"^\| (\w <-> \w+) \|.*\| ([\d.]+|above 5) \|$", example, re.MULTILINE)
    assert {cause for cause, _ in stated_flips} == {*flips.index}
    for cause, stated in stated_flips:
        assert flips[cause] == pytest.approx(np.inf if stated == "above 5" else float(stated), rel=0.05)
    effect = names["coupled"].table.query("quantity == 'mean_unfair_effect' and delta == 1.0").iloc[0]
    assert (effect["low"], effect["high"]) == pytest.approx((0.058, 0.337), abs=0.01)


# -- results, and what is refused ------------------------------------------------------------------------------------


def test_the_benchmark_is_the_odds_ratio_of_a_dropped_column() -> None:
    df = sample(3000, 0)
    found = run(df, gammas=[2.0])
    table = found.benchmark().set_index(["of", "column"])
    p = df.groupby("Q")["A"].mean().to_numpy()
    odds, whole = p / (1 - p), df["A"].mean() / (1 - df["A"].mean())
    ratios = np.exp(np.abs(np.log(odds / whole)))
    assert table.loc[("Q", "Q"), "max"] == pytest.approx(ratios.max())
    assert table.loc[("Q", "(none)"), "max"] == pytest.approx(1.0)
    assert set(table.index.get_level_values("of")) == {"Q", "Q, D"}
    with pytest.raises(DataError, match=r"columns=.'Z'.: a benchmark takes .* Q, D"):
        found.benchmark(["Z"])


def test_a_cause_that_the_attribute_is_independent_of_has_a_limit_of_its_own() -> None:
    """A and U are independent fair coins, D and M are U xor A with an error of .1: P(Ypi = 1) is .244, not .756."""
    cells = [*product((0, 1), repeat=4)]  # of A, U and both errors
    chance = [0.25 * (0.1 if one else 0.9) * (0.1 if other else 0.9) for _, _, one, other in cells]
    df = pd.DataFrame([(a, u ^ a ^ one, u ^ a ^ other) for a, u, one, other in cells * 40], columns=["A", "D", "M"])
    graph = pf.CausalGraph("A -> {D M}; D -> M; {D M} -> Y", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> D -> Y", "A -> D -> M -> Y"), **SATURATED, folds=1)
    model = Known(lambda X: 0.1 + 0.8 * (X["D"] == X["M"]))
    ratio = 0.82 / 0.18  # of P(M | D) in the world to that which is observed

    def at(**limits: Any) -> pd.Series:
        found = confounding(
            model, source, df, hidden_causes="A <-> all", decisions="score", sample_weight=np.tile(chance, 40) * 1e3,
            **limits,
        )  # fmt: skip
        text = found.details()
        assert "gamma: odds of A" in text
        assert "later_ratio: distribution of M" in text
        assert all(part in text for part in ("gamma  later ratio", "later_ratio of that"))
        assert "later_ratio = " in found.plot().axes[0].get_title()
        return found.table[found.table["quantity"] == "p_ypi"].iloc[-1]

    both = at(gammas=[2.0])
    assert (both["gamma"], both["later_ratio"]) == (2.0, 2.0)
    assert both["low"] > 0.6
    own = at(gammas=[1.0], later_ratio=ratio)
    assert (own["gamma"], own["later_ratio"]) == (1.0, ratio)
    assert own["low"] == pytest.approx(0.244, abs=1e-3)
    assert not own["sharp"]
    with pytest.raises(DataError, match=r"later_ratio=0\.5"):
        at(later_ratio=0.5)


def test_results_are_shown() -> None:
    found = run(sample(1500, 0), gammas=[1.5, 3.0], at_most=0.9)
    assert all(part in found.details() for part in ("A <-> D", "mean unfair effect", "not sharp"))
    assert "<table" in found._repr_html_()
    held, data = found.flips_at.set_index(["hidden_cause", "conclusion"])["interval"], json.loads(found.to_json())
    assert [row["interval"] for row in data["flips_at"]] == [each if np.isfinite(each) else None for each in held]
    assert len(data["table"]) == len(found.table)
    assert len(str(found).splitlines()) < len(found.details().splitlines())
    for (cause, what), at in held.items():
        ending = f"holds up to gamma = {at:.3g}." if np.isfinite(at) else "gamma"
        told = [line for line in str(found).splitlines() if line.startswith(f"{cause}: '{what}'")]
        assert len(told) == 1
        assert ending in told[0]
    page, tables = found.to_html(), found.view.blocks[0].tables
    assert 'id="bounds-drawing-title"' in page
    assert [*tables[0].columns[:2]] == ["gamma", "bounds"]  # no column of a limit that this cause lacks
    assert "points [" in tables[0].rows[0][1]
    assert data["schema"] == "pyrofair-sensitivity"
    for quantity in ("mean_unfair_effect", "piu"):
        figure = found.plot(quantity, benchmark=found.benchmark())
        assert next(axes.get_title() for axes in figure.axes if axes.get_visible()) == "A <-> D"
    with pytest.raises(DataError, match="quantity='accuracy' is not known"):
        found.plot("accuracy")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"hidden_causes": "A <-> Z"}, "known are 'A <-> D', 'A <-> M', 'D <-> M', 'A <-> all'"),
        (
            {"hidden_causes": "Y <-> A"},
            "'A <-> all'. 'Y' is a prediction, .* which no hidden cause moves; observed outcomes",
        ),
        ({"hidden_causes": []}, "leaves nothing"),
        ({"sample_weight": sample(300, 0)["A"].astype(float)}, "sample_weight is 0 in all rows with A=0"),
        ({"which": "direct", "hidden_causes": "D <-> M"}, r"'A <-> all'\. All that A causes reads one value"),
        ({"decisions": "both"}, "decisions='both'"),
        ({"above": 1.0}, "above=1"),
        ({"at_most": 0.0}, "at_most=0"),
        ({"level": 1.0}, "level=1"),
        ({"scores": "outcome"}, "describes given scores"),
    ],
)
def test_unfit_settings_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(DataError, match=match):
        run(sample(300, 0), **settings)


def test_hidden_causes_are_named_either_end_first() -> None:
    df = sample(400, 0)
    found = run(df, gammas=[2.0], hidden_causes=["D<->A", "M <-> D", "A <-> D"])
    assert list(found.assumptions) == ["A <-> D", "D <-> M"]
    figure = found.plot()
    assert figure.get_size_inches()[0] >= 7.0
    narrow = run(df, gammas=[1.1, 1.2, 7.0], hidden_causes="all <-> A").plot()
    assert narrow.get_size_inches()[0] >= 7.0
    assert [round(each, 6) for each in narrow.axes[0].get_xticks()] == [1.0, 1.2, 7.0]
    with pytest.raises(DataError, match="benchmark has no column column, hidden_causes, of, q90"):
        found.plot(benchmark=found.table)


def test_an_interval_of_one_point_is_attained() -> None:
    found = run(sample(400, 0).assign(M=1, D=2), gammas=[2.0], hidden_causes="A <-> all", decisions="score")
    assert found.table[found.table["quantity"] != "piu"]["sharp"].all()


def test_bounds_are_not_called_sharp_where_only_some_cuts_were_tried() -> None:
    """A mean score of many values is cut at quantiles of it: valid, and too wide by up to a tenth."""
    df = sample(1500, 0)
    df["M"] = df["M"] + np.random.default_rng(0).normal(size=len(df))

    smooth = Known(lambda X: 1.0 / (1.0 + np.exp(-0.5 * X["A"] - X["M"])))
    graph = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> M -> Y"), propensity="logistic", regression="logistic", random_state=0)
    for decisions, sharp in (("score", False), ("threshold", True)):
        settings: dict[str, Any] = {"gammas": [8.0], "hidden_causes": "A <-> M", "decisions": decisions}
        found = confounding(smooth, source, df[["A", "M"]], **settings)
        own = found.table[(found.table["gamma"] == 8.0) & (found.table["quantity"] == "mean_unfair_effect")]
        assert own["sharp"].tolist() == [sharp]
    assert found.table.loc[found.table["gamma"] == 1.0, "sharp"].all()


def test_ends_are_not_called_sharp_where_an_edge_is_missing() -> None:
    graph = pf.CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> Y", "A -> D -> Y"), **SATURATED)
    found = confounding(Table(SCORES), source, sample(1500, 0), gammas=[2.0])
    effect = found.table[(found.table["quantity"] == "mean_unfair_effect") & (found.table["gamma"] == 2.0)]
    assert effect.set_index("hidden_cause")["sharp"].to_dict() == {
        "A <-> M": True, "A <-> D": False, "M <-> D": False, "A <-> all": False,
    }  # fmt: skip
    assert "since D does not read M" in found.assumptions["A <-> D"]


def test_unfit_sources_are_refused() -> None:
    df, unfair = sample(300, 0), UNFAIR["through D"]
    with pytest.raises(DataError, match="must be the unfair paths, or a OneStep"):
        confounding(Table(SCORES), pf.IPW(unfair), df)  # type: ignore[arg-type]
    graph = pf.CausalGraph("Q -> A; {Q A} -> Y", sensitive="A", outcome="Y")

    with pytest.raises(DataError, match="causes no feature"):
        confounding(Known(lambda X: 0.3 + 0.2 * X["A"]), graph.unfair("A -> Y"), df[["Q", "A"]])


def test_declared_latent_causes_leave_one_hidden_cause_of_all() -> None:
    graph = pf.CausalGraph("A -> D; A -> M; {A D M} -> Y; H -> D; H -> M", sensitive="A", outcome="Y", latent=["H"])
    unfair = graph.unfair(direct=True, through=["D", "M"])
    source = pf.OneStep(unfair, **SATURATED)
    df = sample(800, 0)[["A", "D", "M"]]

    three = Known(lambda X: 0.1 + 0.2 * X["A"] + 0.1 * X["D"] + 0.3 * X["M"])
    made = confounding(three, source, df, gammas=[2.0])
    assert list(made.assumptions) == ["A <-> all"]
    with pytest.raises(DataError, match="A graph with latent causes of the features has the last alone"):
        confounding(three, source, df, hidden_causes="A <-> D")


def test_worst_ratios_have_the_mean_1_where_values_differ_by_rounding() -> None:
    values = np.array([0.1 + 0.2, 0.3, 0.3, 0.6, 0.1, 0.1])[:, None]
    targets = tuple(Target(gamma, sign) for gamma in (1.0, 1.5, 5.0) for sign in (1, -1))
    [cuts] = find_cuts(values, (0,) * 6, np.ones(6), targets, lambda columns: [columns.mean(axis=0, keepdims=True)])
    excess = cuts.excess(values, targets)
    np.testing.assert_allclose(excess.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose((excess * (values - cuts.cut)).mean(axis=0), cuts.moved[0], atol=1e-9)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_missing_values_count_as_values() -> None:
    df = sample(600, 0)
    lost = np.random.default_rng(0).random(len(df)) < 0.1 + 0.2 * df["A"]
    missing = df.assign(D=df["D"].astype(float).where(~lost))

    model = Known(lambda X: 0.2 + 0.3 * X["A"] + 0.1 * X["D"].replace(9.0, 0.0).fillna(0.0) + 0.2 * X["M"])
    found = confounding(model, pf.OneStep(UNFAIR["through M"], **SATURATED), missing, missing="recorded")
    same = confounding(model, pf.OneStep(UNFAIR["through M"], **SATURATED), missing.fillna({"D": 9.0}))
    pd.testing.assert_frame_equal(found.table, same.table)
    pd.testing.assert_frame_equal(found.benchmark(), same.benchmark())
    for text in (found.details(), found._repr_html_()):
        assert "counts as a value" in text
        assert "Missing values, share of rows" in text
