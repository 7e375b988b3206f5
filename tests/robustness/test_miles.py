"""Closed-form bounds with a recanting witness: known cases, enumeration, refusals, training, sampling error."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

import pyrofair as pf
from pyrofair.classifiers import fit_many
from pyrofair.effects import Bounding, MarginalBounds, PotentialOutcomes
from pyrofair.exceptions import PyrofairWarning
from tests.robustness.models import P_Y

Array = NDArray[np.float64]
EDGES = "A -> {R M}; R -> M; {A R M} -> Y; H -> {R Y}"
GRAPH = pf.CausalGraph(EDGES, sensitive="A", outcome="Y", latent=["H"])
BOTH = GRAPH.unfair("A -> Y", "A -> R -> Y")
DIRECT = GRAPH.unfair("A -> Y")


def cells(p_r: Array, p_m: Array) -> tuple[pd.DataFrame, Array]:
    """Return the cells of binary A, R, M and their probabilities, from P(R = 1 | A) and P(M = 1 | A, R)."""
    rows = pd.DataFrame(list(product((0, 1), repeat=3)), columns=["A", "R", "M"])
    a, r, m = rows.to_numpy().T
    return rows, 0.5 * np.where(r, p_r[a], 1 - p_r[a]) * np.where(m, p_m[a, r], 1 - p_m[a, r])


def scorer(table: Array) -> Any:
    """Return a classifier as a function of rows, from its scores by A, R and M."""
    return lambda rows: table[tuple(rows[["A", "R", "M"]].to_numpy(dtype=int).T)]


CELLS, MASS = cells(np.array([0.41, 0.67]), np.array([[0.2, 0.6], [0.45, 0.8]]))
CASE = scorer(np.array([P_Y[key] for key in product((0, 1), repeat=3)]).reshape(2, 2, 2))


def near(found: Any, tolerance: float = 1e-12) -> Any:
    """Return what both intervals are compared with, as four numbers."""
    return pytest.approx(np.ravel(found), abs=tolerance)


def table(n: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, h = rng.integers(0, 2, n), rng.normal(size=n)
    r = a + h + 0.3 * rng.normal(size=n)
    m = np.digitize(r + 0.5 * a + rng.normal(size=n), [0.3, 1.2])
    y = (rng.random(n) < 1 / (1 + np.exp(1.5 - 2 * a - h - 0.8 * m))).astype(int)
    return pd.DataFrame({"A": a, "R": r, "M": m, "Y": y})


def smooth(rows: pd.DataFrame) -> pd.Series[float]:
    return 1 / (1 + np.exp(1.0 - rows["A"] - 0.7 * rows["R"] - 0.5 * rows["M"]))


def classifier(source: Any, strength: float = 2.0, **settings: Any) -> pf.PenalizedClassifier:
    given: dict[str, Any] = {
        "epochs": 40,
        "batch_size": 100,
        "starts": 1,
        "learning_rate": 0.03,
        "progress": False,
        "random_state": 0,
    } | settings
    return pf.PenalizedClassifier(
        "logistic", source=source, penalty=given.pop("penalty", pf.interval_disagreement), strength=strength, **given
    )


# -- printed and enumerated values ------------------------------------------------------------------------------------


def test_the_case_with_known_values() -> None:
    source = pf.MilesBounds(BOTH).fit(CELLS, MASS)
    (l0, u0), (l1, u1) = source.intervals(CASE)
    assert (l0, l1, u1) == pytest.approx((0.4663322, 0.318879, 0.993926), abs=1e-6)
    assert l0 == u0
    literal = pf.MilesBounds(DIRECT, literal=True).fit(CELLS, MASS).intervals(CASE)
    assert literal[0] == pytest.approx((0.049761, 0.777761), abs=1e-6)
    assert literal[1] == pytest.approx((l1, u1), abs=1e-12)
    assert pf.MilesBounds(BOTH, literal=True).fit(CELLS, MASS).intervals(CASE) == literal
    more = pf.CausalGraph(f"{EDGES}; U -> {{R M Y}}; V -> A", sensitive="A", outcome="Y", latent=["H", "U", "V"])
    harmless = pf.MilesBounds(more.unfair("A -> Y", "A -> R -> Y")).fit(CELLS, MASS)
    assert harmless.intervals(CASE) == source.intervals(CASE)
    assert (harmless.witness_, harmless.mediator_, harmless.n_fitted_) == ("R", "M", 8)
    decided = source.intervals(CASE, decisions="threshold", threshold=0.6)
    assert decided == source.intervals(lambda rows: (CASE(rows) > 0.6).astype(int)) != source.intervals(CASE)
    levels = source.levels(CASE)
    assert levels["probability"].tolist() == pytest.approx([0.636, 0.364])
    assert levels[["lower", "upper"]].sum().tolist() == pytest.approx([l1, u1])


def truth_of(p_r: Array, p_m: Array, score: Array, same: float) -> float:
    """Return P(Ypi = 1) along A -> Y and A -> R -> Y; R has one uniform number in both worlds in a share ``same``."""
    total = 0.0
    for r0, r1 in product((0, 1), repeat=2):
        apart = (p_r[0] if r0 else 1 - p_r[0]) * (p_r[1] if r1 else 1 - p_r[1])
        both = {(1, 1): p_r.min(), (0, 0): 1 - p_r.max(), (1, 0): max(p_r[0] - p_r[1], 0)}
        joint = same * both.get((r0, r1), max(p_r[1] - p_r[0], 0)) + (1 - same) * apart
        total += joint * sum((p_m[0, r0] if m else 1 - p_m[0, r0]) * score[1, r1, m] for m in (0, 1))
    return total


def test_enumerated_models_lie_within_the_bounds_and_the_paper_s_question_does_not() -> None:
    missed = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        p_r, p_m = rng.random(2), rng.random((2, 2))
        score = rng.beta(0.5, 0.5, (2, 2, 2))
        rows, mass = cells(p_r, p_m)
        (low, _), (l1, u1) = pf.MilesBounds(BOTH).fit(rows, mass).intervals(scorer(score))
        for same in (0.0, 0.5, 1.0):
            assert l1 - 1e-9 <= truth_of(p_r, p_m, score, same) <= u1 + 1e-9
        group = rows["A"] == 0
        assert low == pytest.approx(np.average(scorer(score)(rows[group]), weights=mass[group]))
        direct = np.average(scorer(score)(rows[group].assign(A=1)), weights=mass[group])
        l1, u1 = pf.MilesBounds(DIRECT, literal=True).fit(rows, mass).intervals(scorer(score))[1]
        missed += not l1 - 1e-9 <= direct <= u1 + 1e-9
    assert missed >= 2


def test_an_observed_outcome_with_a_latent_cause_lies_within_the_bounds_of_its_regression() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        p_h, p_r, p_m, p_y = rng.random(), rng.random((2, 2)), rng.random((2, 2)), rng.beta(0.5, 0.5, (2, 2, 2, 2))
        h = np.array([1 - p_h, p_h])
        given = np.stack([1 - p_r, p_r], 2) * h[:, None]  # by A, H, R
        joint = given.sum(1)
        regression = np.einsum("ahr,armh->arm", given, p_y) / joint[:, :, None]
        rows, mass = cells(joint[:, 1], p_m)
        (l1, u1) = pf.MilesBounds(BOTH).fit(rows, mass).intervals(scorer(regression))[1]
        truth = sum(h[k] * truth_of(p_r[:, k], p_m, p_y[..., k], 1.0) for k in (0, 1))
        assert l1 - 1e-9 <= truth <= u1 + 1e-9


def test_a_continuous_witness_enters_by_the_rows_of_its_group() -> None:
    df = table()
    source = pf.MilesBounds(BOTH).fit(df[["A", "R", "M"]])
    group = df[df["A"] == 1]
    p = df.loc[df["A"] == 0, "M"].value_counts(normalize=True).sort_index()
    f = np.array([smooth(group.assign(M=m)).mean() for m in p.index])
    expected = np.maximum(0, p + f - 1).sum(), np.minimum(p, f).sum()
    assert source.intervals(smooth)[1] == pytest.approx(expected, abs=1e-12)
    assert source.levels(smooth)["mean_score"].tolist() == pytest.approx(f.tolist())


def test_other_sets_by_which_both_mediators_read_different_values() -> None:
    """The arms of the bounded world, by the paths: what R and M read, and what the classifier reads itself."""
    df = table()
    switched = df.assign(A=1 - df["A"])
    plain, other = (pf.MilesBounds(BOTH).fit(each[["A", "R", "M"]]) for each in (df, switched))
    through = pf.MilesBounds(GRAPH.unfair(through="M")).fit(switched[["A", "R", "M"]])
    # Paths through M unfair, with 0 and 1 renamed: R reads what it read, M too, and the direct edge is fair.
    direct_fair = pf.MilesBounds(GRAPH.unfair("A -> R -> Y")).fit(df[["A", "R", "M"]])
    assert through.intervals(lambda rows: smooth(rows.assign(A=0)))[1] == pytest.approx(
        direct_fair.intervals(smooth)[1], abs=1e-12
    )
    back = pf.MilesBounds(BOTH.reversed()).fit(switched[["A", "R", "M"]])
    mirrored = back.intervals(lambda rows: smooth(rows.assign(A=1 - rows["A"])))
    assert np.ravel(mirrored) == near(plain.intervals(smooth))
    assert np.ravel(other.intervals(smooth)) != near(plain.intervals(smooth), 1e-3)
    graph = pf.CausalGraph("A -> R; R -> M; {R M} -> Y", sensitive="A", outcome="Y")
    few = pf.MilesBounds(graph.unfair("A -> R -> Y")).fit(df[["A", "R", "M"]])
    assert list(few.samples()[1].rows) == ["R", "M"]
    assert few.intervals(lambda rows: smooth(rows.assign(A=1)))[1] == pytest.approx(plain.intervals(smooth)[1])


# -- what does not matter ---------------------------------------------------------------------------------------------


def test_weights_are_repeats_and_order_and_names_do_not_matter() -> None:
    df = table(300)
    X = df[["A", "R", "M"]]
    weight = np.random.default_rng(1).integers(0, 3, len(X))
    one = pf.MilesBounds(BOTH).fit(df, weight).intervals(smooth)  # the outcome is not read
    assert np.ravel(pf.MilesBounds(BOTH).fit(X, 7.0 * weight).intervals(smooth)) == near(one)
    repeated = pf.MilesBounds(BOTH).fit(X.loc[X.index.repeat(weight)])
    assert np.ravel(repeated.intervals(smooth)) == near(one)
    plain = pf.MilesBounds(BOTH).fit(X).intervals(smooth)
    shuffled = X[["M", "A", "R"]].sample(frac=1, random_state=0)
    assert np.ravel(pf.MilesBounds(BOTH).fit(shuffled).intervals(smooth)) == near(plain)
    assert pf.MilesBounds(BOTH).fit(X).samples(df=X)[1].weight.tolist() == pytest.approx(
        pf.MilesBounds(BOTH).fit(X).samples()[1].weight.tolist()
    )
    graph = pf.CausalGraph(
        "sex -> {salary job}; salary -> job; {sex salary job} -> hired", sensitive="sex", outcome="hired",
        baseline="m", contrast="f", columns={"salary": ["base", "bonus"]},
    )  # fmt: skip
    named = pd.DataFrame(
        {
            "sex": X["A"].map({0: "m", 1: "f"}).astype("category"),
            "job": X["M"].map({0: "low", 1: "mid", 2: "top"}).astype("category"),
            "base": X["R"].round(),
            "bonus": X["R"] - X["R"].round(),
        }
    )

    def renamed(rows: pd.DataFrame) -> Any:
        assert [str(each) for each in rows.dtypes] == ["category", "float64", "float64", "category"]
        job = rows["job"].map({"low": 0, "mid": 1, "top": 2}).astype(int)
        return smooth(
            pd.DataFrame({"A": rows["sex"] == "f", "R": rows["base"] + rows["bonus"], "M": job}).astype(float)
        )

    source = pf.MilesBounds(graph.unfair("sex -> hired", "sex -> salary -> hired")).fit(named)
    assert np.ravel(source.intervals(renamed)) == near(plain)
    assert list(source.levels(renamed)["job"]) == ["low", "mid", "top"]


# -- models, and what follows from the ends ---------------------------------------------------------------------------


def test_ends_of_the_effect_and_of_piu_are_those_of_all_pairs_of_marginals() -> None:
    for seed in range(5):
        df = table(60, seed)
        source = pf.MilesBounds(DIRECT, literal=True).fit(df[["A", "R", "M"]])
        slope = np.random.default_rng(seed).normal(size=3)
        score = lambda rows: 1 / (1 + np.exp(-(rows[["A", "R", "M"]].to_numpy() @ slope)))  # noqa: B023, E731
        found = source.bounds(score)
        a, b = np.meshgrid(*(np.linspace(*found.loc[name], 301) for name in ("p_y0", "p_ypi")))
        pairs = pf.piu_bounds(a, b)
        assert found.loc["piu"].tolist() == pytest.approx([pairs.lower.min(), pairs.upper.max()], abs=0.01)
        assert found.loc["mean_unfair_effect"].tolist() == pytest.approx([(b - a).min(), (b - a).max()])


# -- sampling error ---------------------------------------------------------------------------------------------------


def coverage(samples: int, n: int, level: float = 0.9) -> tuple[float, float]:
    """Return how often the intervals of both worlds hold the true ends, of samples of the case."""
    exact = pf.MilesBounds(BOTH).fit(CELLS, MASS).intervals(CASE)
    rng, held = np.random.default_rng(0), np.zeros(2)
    for _ in range(samples):
        counts = rng.multinomial(n, MASS / MASS.sum())
        rows = CELLS.loc[CELLS.index.repeat(counts)]
        source = pf.MilesBounds(BOTH).fit(rows)
        wide = source.intervals(CASE, level=level, random_state=int(rng.integers(1000)))
        held += [
            low <= ends[0] + 1e-12 and ends[1] - 1e-12 <= high for (low, high), ends in zip(wide, exact, strict=True)
        ]
    return float(held[0] / samples), float(held[1] / samples)


def test_ends_moved_outward_cover() -> None:
    first, second = coverage(40, 400)
    assert first >= 0.8
    assert second >= 0.8


def test_decisions_that_are_one_have_an_interval() -> None:
    df = table(300)
    source = pf.MilesBounds(GRAPH.unfair("A -> Y", "A -> R -> Y")).fit(df)
    for same in (0.0, 1.0):
        for low, high in source.intervals(lambda rows, same=same: np.full(len(rows), same), level=0.95):
            assert low <= same <= high
            assert 3 / 300 <= high - low <= 12 / 100


def test_ends_are_moved_outward_by_a_sampling_error() -> None:
    df = table(2000)
    for source in (pf.MilesBounds(BOTH), pf.MilesBounds(DIRECT, literal=True)):
        fitted = source.fit(df[["A", "R", "M"]])
        plain, wide = fitted.intervals(smooth), fitted.intervals(smooth, level=0.95)
        wider = fitted.intervals(smooth, level=0.99)
        for ends, some, more in zip(plain, wide, wider, strict=True):
            assert more[0] <= some[0] <= ends[0] <= ends[1] <= some[1] <= more[1]
            assert ends[0] - some[0] < 0.1
    assert fitted.intervals(smooth, level=0.95) == wide
    assert fitted.bounds(smooth, level=0.9).loc[["p_y0", "p_ypi"]].to_numpy() == pytest.approx(
        np.array(wide), abs=1e-12
    )
    assert fitted.intervals(smooth, level=0.95, random_state=1) != wide
    few = pf.MilesBounds(BOTH).fit(df[["A", "R", "M"]].iloc[:12])
    with pytest.raises(
        pf.DataError, match=r"Group \d has an effective size of \d\.0 rows, fewer than 10: too few for a"
    ):
        few.intervals(smooth, level=0.95)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "paths", "literal", "message"),
    [
        (EDGES, ["A -> Y"], False, r"along A -> Y is identified, a point.*mean of c\(1, M, R\) over the rows with A=0.*"
         r"Use IPW.*bounds the effect along A -> Y and A -> R -> Y together.*literal=True"),
        (EDGES, [], False, "The effect along no path is identified"),
        (EDGES, ["A -> Y", "A -> R -> Y", "A -> R -> M -> Y", "A -> M -> Y"], False, "is identified, a point"),
        (EDGES, ["A -> R -> M -> Y"], False, "'M' would read one value of 'A' itself and the other through 'R'"),
        (EDGES, ["A -> R -> Y"], True, "literal=True has the paper's formulas, which are for A -> Y; got A -> R -> Y"),
        (f"{EDGES}; Q -> {{M Y}}", ["A -> Y", "A -> R -> Y"], False, "'Q' is a covariate, which 'A' does not cause"),
        (f"{EDGES}; {{P Q}} -> {{M Y}}", ["A -> Y"], False, "'P', 'Q' are covariates"),
        (f"{EDGES}; R -> Z -> Y", ["A -> Y"], False, r"the graph has 3 observed mediator\(s\), 'R', 'M', 'Z'"),
        ("A -> {R M} -> Y; A -> Y; H -> {R Y}", ["A -> Y"], False, "without A -> R, R -> M, R -> Y or M -> Y no"),
        (f"{EDGES}; U -> {{A R}}", ["A -> Y", "A -> R -> Y"], False, "'U' causes both 'A' and 'R'.*Measure 'U'"),
        (f"{EDGES}; U -> A; U -> V -> M", ["A -> Y", "A -> R -> Y"], False, "node 'U' causes both 'A' and 'M'"),
        (f"{EDGES}; A -> H", ["A -> Y", "A -> R -> Y"], False, "The latent node 'H' is caused by 'A'"),
    ],
)  # fmt: skip
def test_graphs_and_paths_that_have_no_such_bounds(edges: str, paths: list[str], literal: bool, message: str) -> None:
    latent = [node for node in "HUV" if node in edges]
    graph = pf.CausalGraph(edges, sensitive="A", outcome="Y", latent=latent)
    with pytest.raises(pf.GraphError, match=message):
        pf.MilesBounds(graph.unfair(*paths), literal=literal).fit(table(50))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda df: (df.assign(M=df["R"] + 1.0), None), r"'M' takes 1,\d\d\d values and 'R' 1,\d\d\d, .*Bin it before"),
        (lambda df: (df[df["A"] == 0], None), "never takes the value 1"),
        (lambda df: (df, df["A"]), "sample_weight is 0 in all rows with A=0"),
        (lambda df: (df[["A", "R"]], None), "lacks the column 'M'"),
    ],
)
def test_tables_that_are_unfit(change: Any, message: str) -> None:
    with pytest.raises(pf.DataError, match=message):
        pf.MilesBounds(BOTH).fit(*change(table(3000)))


AT_RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (np.ones(3000), "Scores of observed rows give none for rows with 'M' set to each level"),
        (3, "score=3 must be a fitted classifier, or a function of a table"),
        (lambda rows: np.full(len(rows), 2.0), r"outside \[0, 1\], such as 2\.0"),
        (lambda rows: np.full(len(rows), np.nan), r"'score' returned \d+ number\(s\) that are not finite"),
        (lambda rows: np.ones(3), r"'score' returned the shape \(3,\), expected"),
        (lambda rows: AT_RANDOM.integers(2, size=len(rows)), r"'score' gives \d+ of 200 rows another score"),
    ],
)
def test_scores_that_are_unfit(score: Any, message: str) -> None:
    df = table(3000)[["A", "R", "M"]]
    source = pf.MilesBounds(BOTH).fit(df)
    with pytest.raises(pf.DataError, match=message):
        source.intervals(score)
    with pytest.raises(pf.DataError, match="sample_weight= is of the rows of df="):
        source.samples(sample_weight=np.ones(len(df)))


def test_audits_and_paths_name_what_to_use_instead() -> None:
    df = table(100)
    X, y = df[["A", "R", "M"]], df["Y"]
    source = pf.MilesBounds(BOTH)
    model = pf.PenalizedClassifier("logistic", epochs=1, progress=False, random_state=0).fit(X, y)
    message = r"source=MilesBounds\(.*\) bounds the marginals.*an audit reports estimates.*bounds\(model\)"
    for penalty in (pf.disagreement, pf.effect_gap, pf.piu_upper):
        with pytest.raises(pf.DataError, match=rf"penalty={penalty.__name__} is a function of two marginals.*interval"):
            classifier(source, penalty=penalty).fit(X, y)
    for call in (
        lambda: pf.audit({"model": model}, source, df),  # type: ignore[arg-type]
        lambda: pf.audit({"model": model}, source.fit(X), df),  # type: ignore[arg-type]
        lambda: pf.audit_contrasts({"model": model}, source, df),  # type: ignore[arg-type]
        lambda: pf.audits.AuditScorer(source, at_most=0.1),  # type: ignore[arg-type]
    ):
        with pytest.raises(pf.DataError, match=message):
            call()
    with pytest.raises(pf.DataError, match=r"a path judges by estimates of them. Fit the strengths with .*fit_many"):
        pf.penalty_path(classifier(source), X, y)
    with pytest.raises(pf.DataError, match=r"judge=MilesBounds\(.*bounds the marginals"):
        pf.penalty_path(classifier(pf.IPW(DIRECT), penalty=pf.disagreement), X, y, judge=source)  # type: ignore[arg-type]
    assert isinstance(source, Bounding)
    assert not isinstance(source, PotentialOutcomes)


# -- training ---------------------------------------------------------------------------------------------------------


def test_the_ends_are_differentiable_in_the_scores() -> None:
    df = table(200)
    for source in (pf.MilesBounds(BOTH), pf.MilesBounds(DIRECT, literal=True)):
        worlds = source.fit(df[["A", "R", "M"]]).samples()
        scores = [torch.tensor(smooth(world.rows).to_numpy(), requires_grad=True) for world in worlds]

        def penalty(parts: list[torch.Tensor], source: Any = source, worlds: Any = worlds) -> torch.Tensor:
            scored = (world.scored(part) for world, part in zip(worlds, parts, strict=True))
            return pf.interval_disagreement(*source.ends(*scored))

        value = penalty(scores)
        slopes = torch.autograd.grad(value, scores)
        for k in (0, 1):
            for at in (0, len(scores[k]) // 2, len(scores[k]) - 1):
                moved = [each.detach().clone() for each in scores]
                moved[k][at] += 1e-6
                assert float((penalty(moved) - value).detach()) / 1e-6 == pytest.approx(float(slopes[k][at]), abs=1e-7)


@pytest.mark.parametrize("paths", [BOTH, DIRECT])
def test_a_classifier_is_trained_under_bounds(paths: Any) -> None:
    df = table(300)
    X, y = df[["A", "R", "M"]], df["Y"]
    source = pf.MilesBounds(paths, literal=paths is DIRECT)
    weak, strong = (classifier(source, strength).fit(X, y) for strength in (0.05, 3.0))

    def penalty(model: Any) -> float:
        ends = (MarginalBounds(*map(torch.tensor, each)) for each in strong.source_.intervals(model))
        return float(pf.interval_disagreement(*ends))

    assert penalty(strong) < 0.8 * penalty(weak)
    assert strong.history_["penalty"].iloc[-1] == pytest.approx(penalty(strong), abs=0.02)
    plain = classifier(None, 0.0, columns=["A", "R", "M"], epochs=2).fit(X, y)
    without = classifier(source, 0.0, epochs=2).fit(X, y)
    np.testing.assert_array_equal(without.predict_proba(X), plain.predict_proba(X))


def test_many_at_once_and_held_out_rows() -> None:
    df = table(300)
    X, y = df[["A", "R", "M"]], df["Y"]
    models = [classifier(pf.MilesBounds(BOTH), strength, epochs=3, starts=2) for strength in (0.0, 1.0, 3.0)]
    together = fit_many(models, X, y)
    for model, one in zip(models, together, strict=True):
        np.testing.assert_allclose(one.predict_proba(X), model.fit(X, y).predict_proba(X), atol=1e-6)
    held = classifier(pf.MilesBounds(BOTH), epochs=3, validation_fraction=0.2).fit(X, y)
    assert held.history_["validation"].notna().all()


def test_many_levels_are_warned_of_and_flat_ends_after_training() -> None:
    df = table(300)
    many = df.assign(M=np.random.default_rng(5).permutation(len(df)) % 40)
    with pytest.warns(PyrofairWarning, match=r"'M' has 40 levels m.*which is 5\.0% of \[0, 1\].*joining levels"):
        source = pf.MilesBounds(BOTH).fit(many[["A", "R", "M"]])
    half = lambda rows: np.full(len(rows), 0.5)  # noqa: E731
    assert source.intervals(half)[1] == pytest.approx((0.0, 1.0), abs=1e-12)
    text = source.flatness(half)
    assert "move with the mean scores of 0 of the 40 levels of 'M', which have 0.0% of its distribution" in text
    few = pf.MilesBounds(BOTH).fit(df[["A", "R", "M"]])
    assert few.flatness(smooth) == ""
    with pytest.warns(PyrofairWarning) as caught:
        classifier(pf.MilesBounds(BOTH), 0.01, epochs=1, learning_rate=1e-4).fit(many[["A", "R", "M"]], df["Y"])
    assert {"'M' has 40 levels", "The ends of P(Ypi"} == {str(each.message)[:17] for each in caught}
