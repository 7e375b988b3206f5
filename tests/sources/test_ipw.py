"""Weighted rows: the worked cases with known values, and every setting of the source."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair import IPW, CausalGraph, DataError, GraphError, NotIdentifiedError, PositivityError, PositivityWarning
from pyrofair.effects.group_agreement import compare_groups, disagreeing
from pyrofair.effects.potential_outcomes import CounterfactualSample, PotentialOutcomes

ONE = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
TWO = CausalGraph("A -> M -> D -> Y; A -> D; A -> Y; M -> Y", sensitive="A", outcome="Y")
HIRING = CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y")
GROUPS: tuple[Any, ...] = ("paper", 0, 1, "pooled")
groups = pytest.mark.parametrize("arm", GROUPS)
RNG = np.random.default_rng


def one_mediator() -> pd.DataFrame:
    """Counts n(A, M): 30, 10, 15, 45."""
    return pd.DataFrame({"A": [0] * 40 + [1] * 60, "M": [0] * 30 + [1] * 10 + [0] * 15 + [1] * 45})


def score(rows: pd.DataFrame) -> NDArray[np.float64]:
    return np.array([[0.2, 0.4], [0.5, 0.9]])[rows["A"], rows["M"]]


def two_mediators() -> pd.DataFrame:
    cells = [(0, 0, 0, 360), (0, 0, 1, 40), (0, 1, 0, 50), (0, 1, 1, 50)]
    cells += [(1, 0, 0, 90), (1, 0, 1, 60), (1, 1, 0, 70), (1, 1, 1, 280)]
    table = pd.DataFrame(cells, columns=["A", "M", "D", "n"])
    return table.loc[table.index.repeat(table["n"]), ["A", "M", "D"]].reset_index(drop=True)


@cache
def hiring() -> pd.DataFrame:
    return pd.read_csv(Path(__file__).parents[1] / "cases" / "hiring_discrete.csv")


def unsupported() -> pd.DataFrame:
    """The one mediator, and five units of group 0 with M = 2, which no unit of group 1 has."""
    return pd.concat([one_mediator(), pd.DataFrame({"A": [0] * 5, "M": [2] * 5})], ignore_index=True)


def means(source: IPW, scored: Any, **settings: Any) -> tuple[float, float]:
    world0, world1 = source.worlds(**settings)
    return float(world0.weight @ scored(world0.rows)), float(world1.weight @ scored(world1.rows))


def observed_means(source: IPW, y: NDArray[Any]) -> tuple[float, float]:
    """With the observed outcome as the score: each row has the outcome of the row it came from."""
    found = []
    for world in source.worlds():
        assert world.origin is not None
        assert (world.origin >= 0).all()
        found.append(float(world.weight @ y[world.origin]))
    return found[0], found[1]


# --- worked cases ----------------------------------------------------------------------------------------------------


def test_one_mediator_row_by_row() -> None:
    table, unfair = one_mediator(), ONE.unfair("A -> Y")
    source = IPW(unfair, arm="paper", propensity="saturated").fit(table)
    assert source.arm_ == {"baseline": 0, "unfair": 1}
    baseline, switched = (source.weights(regime) for regime in unfair.regimes)
    assert baseline.to_numpy() == pytest.approx([2.5] * 40 + [0.0] * 60)
    assert switched.to_numpy() == pytest.approx([0.0] * 40 + [5.0] * 15 + [5 / 9] * 45)
    assert (baseline.name, switched.name) == ("Y(A<=0)", "Y(A<=1||pi)")
    world0, world1 = source.worlds()
    assert isinstance(source, PotentialOutcomes)
    assert isinstance(world0, CounterfactualSample)
    assert world0.rows.equals(table[:40])
    assert world1.rows.equals(table[40:])
    assert world0.origin is not None
    assert world0.origin.tolist() == list(range(40))
    assert world0.unit is None
    assert world0.weight.tolist() == pytest.approx([1 / 40] * 40)
    assert world0.scored(torch.tensor(score(world0.rows))).mean.item() == pytest.approx(0.25)


@groups
def test_a_mediator_that_no_table_holds(arm: Any) -> None:
    """Without M, the distribution of D given A alone carries the paths through M too: they must be on the side of A ->
    D."""
    table = two_mediators()[["A", "D"]]
    with pytest.raises(DataError, match=r"lacks the column 'M'\. .*declared latent: graph\.with_latent\("):
        IPW(TWO.unfair("A -> Y"), arm=arm).fit(table)
    graph = TWO.with_latent("M")
    source = IPW(graph.unfair("A -> Y"), arm=arm, propensity="saturated").fit(table)

    def c(rows: pd.DataFrame) -> NDArray[np.float64]:
        assert list(rows.columns) == ["A", "D"]
        return (0.1 + 0.2 * rows["A"] + 0.3 * rows["D"]).to_numpy()

    d0 = 90 / 500  # P(D=1 | A=0)
    assert means(source, c) == pytest.approx((0.1 + 0.3 * d0, 0.3 + 0.3 * d0), abs=1e-12)
    with pytest.raises(
        NotIdentifiedError, match="with M latent, the edge A -> D stands for the unfair path A -> D -> Y"
    ):
        IPW(graph.unfair("A -> D -> Y"), arm=arm).fit(table)


@pytest.mark.parametrize(
    ("normalize", "expected"), [(True, (0.40595785, 0.63276448)), (False, (0.40433869, 0.62842085))]
)
def test_hiring_logistic(normalize: bool, expected: tuple[float, float]) -> None:
    unfair = HIRING.unfair("A -> Y", "A -> D -> Y")
    source = IPW(unfair, arm="paper", propensity="logistic", normalize=normalize).fit(hiring())
    assert observed_means(source, hiring()["Y"].to_numpy()) == pytest.approx(expected, abs=1e-6)
    same = IPW(unfair, arm="paper", propensity=LogisticRegression(C=np.inf, tol=1e-10), folds=1, normalize=normalize)
    assert observed_means(same.fit(hiring()), hiring()["Y"].to_numpy()) == pytest.approx(expected, abs=1e-6)


def test_hiring_by_hand() -> None:
    """The paper's eq. (9) from cell counts, in code of its own."""
    t = hiring()

    def share(value: int, *prefix: str) -> NDArray[np.float64]:
        return (t["A"] == value).groupby([t[c] for c in prefix]).transform("mean").to_numpy()

    w1 = share(1, "Q", "D") * share(0, "Q", "D", "M")
    w1 /= share(1, "Q") * share(0, "Q", "D") * share(1, "Q", "D", "M")
    a, y = t["A"].to_numpy(), t["Y"].to_numpy()
    unfair = HIRING.unfair("A -> Y", "A -> D -> Y")
    source = IPW(unfair, arm="paper", propensity="saturated").fit(t)
    assert source.weights(unfair.regimes[0]).to_numpy() == pytest.approx((a == 0) / share(0, "Q"), rel=1e-12)
    assert source.weights(unfair.regimes[1]).to_numpy() == pytest.approx((a == 1) * w1, rel=1e-12)
    assert observed_means(source, y)[1] == pytest.approx(np.mean((a == 1) * w1 * y), rel=1e-12)
    assert observed_means(source, y) == pytest.approx((0.40790191, 0.62655145), abs=1e-8)
    other_order = CausalGraph("Q -> A; {Q A} -> M; {Q A} -> D; {Q A D M} -> Y", sensitive="A", outcome="Y")
    source = IPW(other_order.unfair("A -> Y", "A -> D -> Y"), arm="paper", propensity="saturated").fit(t)
    assert observed_means(source, y) == pytest.approx((0.40790191, 0.62403095), abs=1e-8)


# --- which group carries the weights ---------------------------------------------------------------------------------


def test_rows_of_the_other_group_read_the_arm_of_the_outcome() -> None:
    table, unfair = one_mediator(), ONE.unfair("A -> Y")
    source = IPW(unfair, arm=0, propensity="saturated").fit(table)
    world0, world1 = source.worlds()
    assert source.arm_ == {"baseline": 0, "unfair": 0}
    assert set(world0.rows["A"]) == {0}
    assert set(world1.rows["A"]) == {1}
    assert world0.origin is not None
    assert world1.origin is not None
    assert world0.origin.tolist() == list(range(40))
    assert world1.origin.tolist() == [-1] * 40
    assert world1.rows["M"].equals(table["M"][:40])
    pooled = IPW(unfair, arm="pooled", propensity="saturated").fit(table).worlds()[1]
    assert pooled.origin is not None
    assert pooled.origin.tolist() == [-1] * 40 + list(range(40, 100))
    assert set(pooled.rows["A"]) == {1}


@groups
def test_a_classifier_that_reads_no_sensitive_attribute(arm: Any) -> None:
    """Without an edge A -> Y the rows have no A, whichever group they come from, and all are unchanged."""
    unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    source = IPW(unfair, arm=arm, propensity="saturated").fit(one_mediator())
    assert source.arm_ == dict.fromkeys(("baseline", "unfair"), 0 if arm == "paper" else arm)
    assert means(source, lambda rows: rows["M"].to_numpy(float)) == pytest.approx((0.25, 0.75), abs=1e-12)
    for world in source.worlds():
        assert list(world.rows.columns) == ["M"]
        assert world.origin is not None
        assert one_mediator()[["M"]].iloc[world.origin].equals(world.rows)


def test_pooled_needs_no_row_of_a_group_where_no_law_of_it_is_conditioned_on() -> None:
    """M=2 occurs in group 0 alone, which is where the distribution of M is taken from; D depends on M in both groups
    alike."""
    graph = CausalGraph("A -> M -> D -> Y; A -> Y", sensitive="A", outcome="Y")
    cells = [(0, 0, 0, 10), (0, 0, 1, 10), (0, 1, 0, 10), (0, 1, 1, 10), (0, 2, 0, 5), (0, 2, 1, 15)]
    cells += [(1, 0, 0, 15), (1, 0, 1, 15), (1, 1, 0, 5), (1, 1, 1, 5)]
    table = pd.DataFrame(cells, columns=["A", "M", "D", "n"])
    table = table.loc[table.index.repeat(table["n"]), ["A", "M", "D"]].reset_index(drop=True)
    for arm in (0, "pooled"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PositivityWarning)  # "a propensity at 0": true of M = 2, and harmless
            source = IPW(graph.unfair("A -> Y"), arm=arm, propensity="saturated", normalize=False).fit(table)
        expected = (1 * 0.5 + 1 * 0.5 + 1 * 0.75) / 3  # P(M | A=0) is uniform
        assert means(source, lambda rows: rows["D"].to_numpy(float)) == pytest.approx((expected, expected), abs=1e-12)
        assert source.overlap()["mean_weight"].tolist() == pytest.approx([1.0, 1.0])


def test_auto_goes_by_support_then_by_the_propensities_to_estimate() -> None:
    unfair = ONE.unfair("A -> Y")
    # P(M | A=0) is that of the rows of group 0, as they are.
    assert IPW(unfair).fit(one_mediator()).arm_ == {"baseline": 0, "unfair": 0}

    # Group 1 lacks M=2, which a ninth of the target has; pooling needs it in either group.
    source = IPW(unfair, propensity="saturated").fit(unsupported())
    table = source.overlap().set_index(["regime", "group"])
    assert table["unsupported_mass"].tolist() == pytest.approx([0, 0, 1 / 9] * 2)
    assert table["used"].tolist() == [False, True, False] * 2
    assert means(source, lambda rows: (rows["M"] == 2).to_numpy(float)) == pytest.approx((1 / 9, 1 / 9))


def test_auto_does_not_go_by_a_mean_weight_that_the_fit_forces() -> None:
    """M has mean 0 in both groups, and three times the spread in group 1: a logistic propensity finds no difference.

    Its score equation makes the mean of the pooled weights 1, with nearly all rows as effective size, and both
    marginals the share of all rows; the rows of either group as they are give the right ones.
    """
    rng, n = RNG(0), 4_000
    a = rng.integers(0, 2, n)
    table = pd.DataFrame({"A": a, "M": rng.normal(size=n) * np.where(a == 1, 3.0, 1.0)})

    def decide(rows: pd.DataFrame) -> NDArray[np.float64]:
        return (rows["M"].abs() > 1.5).to_numpy(float)

    unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    source = IPW(unfair).fit(table)
    overlap = source.overlap().set_index(["regime", "group"])
    assert overlap.loc[("baseline", "pooled"), "mean_weight"] == pytest.approx(1.0, abs=1e-9)
    assert overlap["ess"].idxmax()[1] == "pooled"
    assert source.arm_ == {"baseline": 0, "unfair": 1}
    right = 2.0 * norm.sf(1.5), 2.0 * norm.sf(0.5)  # .134, .617
    assert means(source, decide) == pytest.approx(right, abs=0.025)
    pooled = IPW(unfair, arm="pooled").fit(table)
    assert means(pooled, decide) == pytest.approx((0.38, 0.38), abs=0.02)
    for each in (source, pooled):
        groups = compare_groups(each, decide).set_index("quantity")
        assert groups["agree"].to_dict() == {"p_y0": False, "p_ypi": False, "mean_unfair_effect": True}
        assert list(disagreeing(groups.reset_index())["quantity"]) == ["p_y0", "p_ypi"]
        assert groups.loc["p_y0", ["group_0", "group_1"]].tolist() == pytest.approx([right[0], right[1]], abs=0.025)


@pytest.mark.parametrize(
    ("arm", "world", "propensity", "clip"),
    [
        (1, "baseline", "logistic", None),
        (0, "unfair", "logistic", 0.05),
        (0, "unfair", "boosted", None),
        (1, "baseline", LogisticRegression(), 0.05),
    ],
)
def test_groups_that_the_features_separate_are_refused_by_fit(
    arm: int, world: str, propensity: Any, clip: float | None
) -> None:
    """M separates the groups: no row of one group looks like one of the other, and clipping makes none."""
    a = np.arange(200) % 2
    table = pd.DataFrame({"A": a, "M": 100.0 * a + RNG(0).normal(size=200)})
    unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    cause = (
        rf"no overlap in world '{world}', group {arm}: given M, the probability of A={1 - arm} is at most .* 100 rows"
    )
    with pytest.raises(PositivityError, match=cause):
        IPW(unfair, arm=arm, propensity=propensity, clip=clip, random_state=0).fit(table)
    assert IPW(unfair).fit(table).arm_ == {"baseline": 0, "unfair": 1}  # which needs no ratio


def test_a_rare_group_is_not_separated_by_being_rare() -> None:
    a = (np.arange(20_000) % 1000 == 0).astype(int)
    table = pd.DataFrame({"A": a, "M": RNG(0).normal(size=len(a))})
    source = IPW(CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y"), arm=0).fit(table)
    assert source.overlap()["mean_weight"].tolist() == pytest.approx([1.0, 1.0], abs=0.05)


def test_groups_are_offered_one_by_one_if_they_have_support() -> None:
    whole = IPW(ONE.unfair("A -> Y"), propensity="saturated").fit(one_mediator()).by_group()
    assert {name: each.arm_["unfair"] for name, each in whole.items()} == {"group 0": 0, "group 1": 1}
    source = IPW(ONE.unfair("A -> Y"), arm=0, propensity="saturated").fit(unsupported())
    assert list(source.by_group()) == ["group 0"]


# --- settings --------------------------------------------------------------------------------------------------------


def test_worlds_are_not_drawn() -> None:
    with pytest.raises(DataError, match="n=10 cannot be chosen: IPW draws no rows, it weights those observed"):
        IPW(ONE.unfair("A -> Y")).fit(one_mediator()).worlds(n=10)


def test_weights_of_a_foreign_regime() -> None:
    source = IPW(ONE.unfair("A -> Y")).fit(one_mediator())
    with pytest.raises(GraphError, match=r"Take it from unfair\.regimes of the same paths"):
        source.weights(ONE.unfair("A -> M -> Y").regimes[1])


def test_clipping_bounds_propensities_and_is_counted() -> None:
    unfair = ONE.unfair("A -> Y")
    with pytest.warns(PositivityWarning, match=r"the mean weight is 1\.23"):
        source = IPW(unfair, arm="paper", propensity="saturated", clip=0.3).fit(one_mediator())
    # P(A=1 | M) is 1/3 and 9/11; only the latter is clipped, to .7.
    assert source.weights(unfair.regimes[1]).to_numpy()[40:] == pytest.approx(
        [2 / 3 / (1 / 3 * 0.4)] * 15 + [0.3 / (0.7 * 0.4)] * 45
    )
    assert source.overlap()["clipped"].tolist() == [0, 45]
    unclipped = IPW(unfair, arm="paper", propensity="saturated", clip=0.01).fit(one_mediator())
    assert unclipped.overlap()["clipped"].tolist() == [0, 0]
    assert means(unclipped, score) == pytest.approx((0.25, 0.60), abs=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
def test_trimming_says_what_it_drops_and_fits_again(normalize: bool) -> None:
    unfair = ONE.unfair("A -> Y")
    with pytest.warns(PositivityWarning, match=r"trim=0\.01 drops 5 of 105 rows"):
        source = IPW(unfair, arm="paper", propensity="saturated", trim=0.01, normalize=normalize).fit(unsupported())
    assert source.trimmed_ == source.refit(np.ones(105)).trimmed_ == 5
    assert source.overlap()["trimmed"].tolist() == [5, 5]
    assert source.overlap()["mean_weight"].tolist() == pytest.approx([1.0, 1.0])
    for each in (source, source.refit(np.ones(105))):
        assert means(each, score) == pytest.approx((0.25, 0.60), abs=1e-12)
    plain = IPW(unfair, arm="paper", propensity="saturated").fit(one_mediator())
    for regime in unfair.regimes:
        weights = source.weights(regime)
        assert len(weights) == 105
        assert weights[:100].to_numpy() == pytest.approx(plain.weights(regime).to_numpy())
        assert weights[100:].tolist() == [0.0] * 5
    # New rows are trimmed by the same propensities.
    new = pd.concat([unsupported()[90:], one_mediator()[:30]], ignore_index=True)
    world0, world1 = source.worlds(df=new)
    assert len(world0.rows) == 30
    assert len(world1.rows) == 10
    assert source.weights(unfair.regimes[0], new).tolist() == pytest.approx([0.0] * 15 + [2.5] * 30)
    assert source.weights(unfair.regimes[1], new).tolist() == pytest.approx([5 / 9] * 10 + [0.0] * 35)


def test_rows_trimmed_from_an_outcome_are_counted() -> None:
    df = unsupported().assign(Y=lambda d: (d["M"] + d["A"]) % 2)
    source = IPW(ONE.unfair("A -> Y"), propensity="saturated", trim=0.01)
    with pytest.warns(PositivityWarning, match=r"trim=0\.01 leaves 5 of 105 audited rows|trim=0\.01 drops 5 of 105"):
        report = pf.audit({"people": df["Y"]}, source, df, scores="outcome", n_boot=40, progress=False, random_state=0)
    assert "trim=0.01 leaves 5 of 105 audited rows" in "".join(report.context.warnings)


def test_trimming_that_leaves_one_group() -> None:
    with pytest.raises(DataError, match=r"trim=0\.45 leaves one group only \(0 rows\); choose a smaller value"):
        IPW(ONE.unfair("A -> Y"), trim=0.45).fit(one_mediator())


# --- weights of the sample, other rows, copies -----------------------------------------------------------------------

PROPENSITIES: tuple[Any, ...] = ("logistic", "saturated")


@groups
@pytest.mark.parametrize("propensity", PROPENSITIES)
@pytest.mark.some(5)
@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
def test_a_weight_is_so_many_rows_and_a_refit_a_fit_on_resampled_rows(arm: Any, propensity: Any) -> None:
    table, unfair = hiring()[:600], HIRING.unfair("A -> Y", "A -> D -> Y")
    rng = RNG(1)
    weight = rng.integers(1, 3, 600)

    def fit(*, sample_weight: Any = None, times: Any = 1) -> IPW:
        rows = table.loc[table.index.repeat(np.ones(600, dtype=int) * times)].reset_index(drop=True)
        return IPW(unfair, arm=arm, propensity=propensity, max_unsupported=1).fit(rows, sample_weight)

    def c(rows: pd.DataFrame) -> NDArray[np.float64]:
        return (0.1 + 0.2 * rows["A"] + 0.1 * rows["Q"] + 0.2 * rows["D"] + 0.1 * rows["M"]).to_numpy()

    source, repeated = fit(sample_weight=weight), fit(times=weight)
    before = means(source, c)
    assert before == pytest.approx(means(repeated, c), abs=1e-9)
    one, two = source.overlap(), repeated.overlap()
    for column in ("mean_weight", "max_weight", "unsupported_mass"):
        assert one[column].to_numpy() == pytest.approx(two[column].to_numpy(), abs=1e-8)
    assert one["unsupported_cells"].equals(two["unsupported_cells"])
    for _ in range(3):
        counts = rng.multinomial(600, np.full(600, 1 / 600))
        refit = source.refit(counts.astype(float))
        assert means(refit, c) == pytest.approx(means(fit(times=counts * weight), c), abs=1e-8)
        assert refit.arm_ == source.arm_
    assert means(source, c) == before


@groups
@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
def test_a_bootstrap_may_miss_the_only_row_of_a_cell(arm: Any) -> None:
    """Row 0 is all that group 1 has at M = 2; without it the cell has no counterpart, and no weight is infinite."""
    table = pd.concat([pd.DataFrame({"A": [1] + [0] * 4, "M": 2}), one_mediator()], ignore_index=True)
    source = IPW(ONE.unfair("A -> Y"), arm=arm, propensity="saturated", max_unsupported=1).fit(table)
    counts = np.r_[0.0, np.ones(104)]
    fresh = IPW(ONE.unfair("A -> Y"), arm=arm, propensity="saturated", max_unsupported=1).fit(table[1:])
    for one, two in zip(source.refit(counts).worlds(), fresh.worlds(), strict=True):
        kept = one.weight > 0
        assert np.isfinite(one.weight).all()
        assert one.weight[kept] == pytest.approx(two.weight[two.weight > 0], abs=1e-12)
    weighted = IPW(ONE.unfair("A -> Y"), arm=arm, propensity="saturated", max_unsupported=1).fit(table, counts)
    pd.testing.assert_frame_equal(weighted.overlap(), fresh.overlap())


def test_other_rows_are_weighted_with_the_fitted_propensities() -> None:
    unfair = ONE.unfair("A -> Y")
    source = IPW(unfair, arm="paper", propensity="saturated").fit(one_mediator())
    new = pd.DataFrame({"M": [1, 0, 0, 1], "A": [1, 1, 0, 0], "Y": 0}, index=list("abcd"))
    weights = source.weights(unfair.regimes[1], new)
    assert weights.index.tolist() == list("abcd")
    assert weights.tolist() == pytest.approx([5 / 9, 5.0, 0.0, 0.0])
    world = source.worlds(df=new, sample_weight=[9.0, 1.0, 1.0, 1.0])[1]
    assert world.rows.equals(new[["A", "M"]][:2])
    assert world.weight == pytest.approx([0.5, 0.5])
    assert world.origin is not None
    assert world.origin.tolist() == [0, 1]


def test_a_sample_of_one_group_is_enough_for_its_own_world_only() -> None:
    source = IPW(ONE.unfair("A -> Y"), arm="paper", propensity="saturated").fit(one_mediator())
    with pytest.raises(
        DataError, match=r"The world Y\(A<=1\|\|pi\) has no row to weight: these 40 rows hold none of gro"
    ):
        source.worlds(df=one_mediator()[:40])
    pooled = IPW(ONE.unfair("A -> Y"), arm="pooled", propensity="saturated").fit(one_mediator())
    assert len(pooled.worlds(df=one_mediator()[:40])[1].rows) == 40
    with pytest.raises(DataError, match="holds 2 besides"):
        source.worlds(df=pd.DataFrame({"A": [2], "M": [0]}))


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
def test_the_fitted_rows_keep_their_out_of_fold_propensities() -> None:
    rng = RNG(0)
    table = pd.DataFrame({"A": rng.integers(0, 2, 300), "M": rng.normal(size=300)})
    unfair = ONE.unfair("A -> Y")
    source = IPW(unfair, arm="pooled", propensity="boosted", random_state=0).fit(table)
    fitted = source.weights(unfair.regimes[1])
    assert source.weights(unfair.regimes[1], table.copy()).equals(fitted)
    weighted = source.worlds(df=table, sample_weight=np.full(300, 2.0))[1]
    assert weighted.weight == pytest.approx(source.worlds()[1].weight)
    shifted = table.set_axis(table.index + 1)
    assert (source.weights(unfair.regimes[1], shifted).to_numpy() == fitted.to_numpy()).all()
    assert source.weights(unfair.regimes[1], shifted).index.equals(shifted.index)
    other = table.assign(M=table["M"] + 0.01)  # more than another precision would change
    assert not np.allclose(source.weights(unfair.regimes[1], other), fitted)
    assert (source.fitted_rows(table.copy()) >= 0).all()
    assert (source.fitted_rows(shifted) >= 0).all()
    assert not (source.fitted_rows(other) >= 0).all()
    assert source.n_fitted_ == 300
    reseeded = clone(source).set_params(random_state=1).fit(table)
    assert not np.array_equal(reseeded.weights(unfair.regimes[1]), fitted)


# -- tables that are asked for again ----------------------------------------------------------------------------------


def test_a_table_changed_in_place_is_read_again() -> None:
    source = IPW(TWO.unfair("A -> Y"), propensity="saturated").fit(two_mediators())
    df = two_mediators().sample(frac=1.0, random_state=0)
    before = source.worlds(df=df)
    df.loc[df.index[:200], "A"] = 1
    after, anew = source.worlds(df=df), source.worlds(df=df.copy())
    for one, other, old in zip(after, anew, before, strict=True):
        pd.testing.assert_frame_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.weight, other.weight)
        assert not old.rows.equals(one.rows)
    del df["M"]
    with pytest.raises(DataError, match="lacks the column 'M'"):
        source.worlds(df=df)


@pytest.mark.parametrize("own", [True, False])
def test_changes_to_the_rows_of_a_world_stay_there(own: bool) -> None:
    df = two_mediators() if own else two_mediators().iloc[::-1]
    source = IPW(TWO.unfair("A -> Y"), propensity="saturated").fit(two_mediators())
    expected = [world.rows.copy() for world in source.worlds(df=df)]
    for world in source.worlds(df=df):
        world.rows.loc[:, "M"] = 7
        assert world.origin is not None
        world.origin[:] = 3
    for world, rows in zip(source.refit(np.ones(1000)).worlds(df=df), expected, strict=True):
        pd.testing.assert_frame_equal(world.rows, rows)
        assert (world.origin != 3).any()
