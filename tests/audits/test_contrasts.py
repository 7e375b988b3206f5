from __future__ import annotations

import itertools
import json
import re
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import pyrofair as pf
from pyrofair.audits.contrasts import _few_replicates
from tests.models import Known

LEVELS = ("white", "black", "asian")
P_Q = {0: 0.5, 1: 0.5}
P_A = {0: dict(zip(LEVELS, (0.5, 0.25, 0.25), strict=True)), 1: dict(zip(LEVELS, (0.25, 0.5, 0.25), strict=True))}
P_M = {"white": 0.25, "black": 0.75, "asian": 0.5}  # of M = 1, raised by Q below
GRAPH = pf.CausalGraph(
    "Q -> R; {R Q} -> M; {R Q M} -> Y", sensitive="R", outcome="Y", baseline="white", contrast="black"
)
SETTINGS: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "random_state": 0}


def p_m(race: str, q: int) -> float:
    return P_M[race] + 0.125 * (2 * q - 1)


def score(race: Any, q: Any, m: Any) -> Any:
    return 0.1 + 0.3 * (race == "black") + 0.1 * (race == "asian") + 0.2 * q + 0.25 * m + 0.1 * m * (race == "black")


MODEL = Known(lambda X: score(X["R"].to_numpy(dtype=str), X["Q"].to_numpy(), X["M"].to_numpy()))


def exact_table(size: int = 128) -> pd.DataFrame:
    """A table whose shares are the probabilities of the SEM."""
    rows = []
    for q, race, m in itertools.product((0, 1), LEVELS, (0, 1)):
        p = P_Q[q] * P_A[q][race] * (p_m(race, q) if m else 1 - p_m(race, q))
        rows += [(race, q, m)] * round(size * p)
    assert len(rows) == size
    table = pd.DataFrame(rows, columns=["R", "Q", "M"])
    return table.assign(R=pd.Categorical(table["R"]), Y=np.arange(size) % 3 % 2)


def truth(contrast: str, paths: str) -> tuple[float, float]:
    """P(Y0 = 1) and P(Ypi = 1) by enumeration, in the population of the two levels."""
    share = {q: P_Q[q] * (P_A[q]["white"] + P_A[q][contrast]) for q in P_Q}
    found = []
    for switched in (False, True):
        arm_y = contrast if switched and "direct" in paths else "white"
        arm_m = contrast if switched and "mediated" in paths else "white"
        total = 0.0
        for q, m in itertools.product((0, 1), (0, 1)):
            p = p_m(arm_m, q)
            total += share[q] * (p if m else 1 - p) * float(score(arm_y, q, m))
        found.append(total / sum(share.values()))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("paths", "named"),
    [("direct", ["R -> Y"]), ("mediated", ["R -> M -> Y"]), ("direct, mediated", ["R -> Y", "R -> M -> Y"])],
)
def test_each_contrast_is_that_of_the_enumeration(paths: str, named: list[str]) -> None:
    source = pf.OneStep(GRAPH.unfair(*named), **SETTINGS)
    report = pf.audit_contrasts({"model": MODEL}, source, exact_table())
    assert report.intervals == "max |t|"
    assert list(report.table["contrast"].unique()) == ["asian", "black"]  # the order of the categories
    own = report.table[report.table["decisions"] == "score"].set_index(["contrast", "quantity"])["estimate"]
    for contrast in ("black", "asian"):
        y0, ypi = truth(contrast, paths)
        assert own[contrast, "p_y0"] == pytest.approx(y0, abs=1e-9)
        assert own[contrast, "p_ypi"] == pytest.approx(ypi, abs=1e-9)
    effects = {contrast: abs(np.subtract(*truth(contrast, paths))) for contrast in ("black", "asian")}
    worst = report.worst.query("decisions == 'score' and quantity == 'mean_unfair_effect'").iloc[0]
    assert worst["contrast"] == max(effects, key=lambda each: effects[each])
    assert worst["size"] == pytest.approx(max(effects.values()), abs=1e-9)
    assert worst["lower"] <= worst["size"] <= worst["upper"]


def test_the_populations_are_those_of_the_two_levels() -> None:
    report = pf.audit_contrasts({"model": MODEL}, pf.OneStep(GRAPH.unfair("R -> Y"), **SETTINGS), exact_table())
    sizes = exact_table()["R"].value_counts()
    n = report.table.groupby("contrast")["n"].first()
    assert n.to_dict() == {each: sizes["white"] + sizes[each] for each in ("black", "asian")}
    text = report.details()
    assert "A contrast refers to the population of its two levels together" in text
    assert "2 contrast(s) of 'R' with the baseline 'white' (48 rows)" in text
    assert re.search(r"^'black' +48 ", text, re.MULTILINE)
    assert re.search(r"worst mean unfair effect: 'black', \d+\.\d points in size", text)
    assert report.audits["black"].context["assumptions"][0] in text
    assert repr(report) == "<ContrastAudit of 'asian', 'black' on 128 rows; print it for a verdict>"


def sampled(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = exact_table().sample(n, replace=True, random_state=seed, ignore_index=True)
    return table.assign(Y=(rng.random(n) < score(table["R"].to_numpy(dtype=str), table["Q"], table["M"])).astype(int))


def test_a_binary_attribute_has_the_numbers_of_an_audit() -> None:
    table = sampled(600)
    table = table[table["R"] != "asian"]
    unfair = GRAPH.unfair("R -> Y")
    for source in (pf.OneStep(unfair, **SETTINGS), pf.IPW(unfair, propensity="saturated")):
        settings: dict[str, Any] = {"n_boot": 20 if isinstance(source, pf.IPW) else 0, "progress": False}
        with pytest.warns(pf.PyrofairWarning, match="too few") if settings["n_boot"] else _nothing():
            alone = pf.audit({"model": MODEL}, source, table, random_state=1, **settings)
        with pytest.warns(pf.PyrofairWarning, match="too few") if settings["n_boot"] else _nothing():
            several = pf.audit_contrasts({"model": MODEL}, source, table, random_state=1, **settings)
        columns = list(alone.table)
        pd.testing.assert_frame_equal(several.table[columns], alone.table, check_exact=True)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_simultaneous_intervals_are_wider_and_share_the_baseline() -> None:
    table = sampled(900)
    source = pf.OneStep(GRAPH.unfair("R -> M -> Y"), **SETTINGS)
    both = pf.audit_contrasts({"model": MODEL}, source, table)
    own = both.table.query("decisions == 'score' and quantity == 'mean_unfair_effect'").set_index("contrast")
    for contrast in ("black", "asian"):
        alone = both.audits[contrast].table.query("decisions == 'score' and quantity == 'mean_unfair_effect'").iloc[0]
        ratio = (own.loc[contrast, "upper"] - own.loc[contrast, "lower"]) / (alone["upper"] - alone["lower"])
        sidak = NormalDist().inv_cdf((1 + 0.95**0.5) / 2)
        assert 1.0 < ratio < sidak / 1.96  # correlated by the rows of the baseline, hence below Sidak's
    accuracy = both.table.query("quantity == 'accuracy'")
    assert accuracy["note"].str.contains("1.25 % on each side").all()
    single = both.audits["black"].table.query("quantity == 'accuracy'").iloc[0]
    of_black = accuracy[accuracy["contrast"] == "black"].iloc[0]
    assert of_black["lower"] < single["lower"] < single["upper"] < of_black["upper"]


def test_other_sources_have_bonferronis_intervals() -> None:
    table = sampled(300)
    source = pf.IPW(GRAPH.unfair("R -> Y"), propensity="saturated")
    with pytest.warns(pf.PyrofairWarning, match=r"1.25% beyond each end, where 1.0 of 80 replicates lie.*n_boot=400,"):
        report = pf.audit_contrasts({"model": MODEL}, source, table, n_boot=80, progress=False, random_state=0)
    assert "Bonferroni's intervals of 2 contrasts" in report.context["warnings"][0]
    assert report.intervals == "Bonferroni"
    assert [audit.context["level"] for audit in report.audits.values()] == pytest.approx([0.975, 0.975])
    assert "Bonferroni's inequality" in report.details()
    assert report.worst["lower"].notna().all()


def test_too_few_replicates_for_bonferronis_intervals_are_told_and_refused_before_work() -> None:
    enough = [(200, 1), (400, 2), (2_000, 10), (0, 9)]
    assert [_few_replicates(n_boot, 0.95, k) for n_boot, k in enough] == [""] * 4
    for n_boot, k, needed in [(200, 2, 400), (799, 4, 800), (200, 4, 800)]:
        assert f"n_boot={needed}," in _few_replicates(n_boot, 0.95, k)
    source = pf.IPW(GRAPH.unfair("R -> Y"), propensity="saturated")
    with pytest.raises(pf.DataError, match=r"0\.9 of 70 replicates lie: no replicate is as far out.*Use n_boot=400"):
        pf.audit_contrasts({"model": MODEL}, source, exact_table(), n_boot=70, progress=False)


def test_a_level_of_few_rows_is_named_and_the_others_go_on() -> None:
    table = sampled(400)
    race = table["R"].astype(str)
    race.iloc[:4] = "other"
    table = table.assign(R=pd.Categorical(race))
    source = pf.OneStep(GRAPH.unfair("R -> Y"), **SETTINGS)
    with pytest.warns(pf.PyrofairWarning, match="The contrast 'other' could not be audited: 4 row.s. have R='other'"):
        report = pf.audit_contrasts({"model": MODEL}, source, table)
    assert list(report.failures) == ["other"]
    assert list(report.audits) == ["asian", "black"]
    failed = report.table[report.table["contrast"] == "other"]
    assert failed["estimate"].isna().all()
    assert failed["note"].str.contains("4 row.s. have R='other'").all()
    assert "the largest of all audited contrasts" in report.details()
    assert report.verdicts.set_index("contrast").loc["other", "status"].tolist() == ["failed", "failed"]
    with pytest.raises(pf.DataError, match=r"No level can be compared with the baseline. 4 row\(s\) have R='other'"):
        pf.audit_contrasts({"model": MODEL}, source, table, contrasts=["other"])


def test_scores_and_weights_are_those_of_all_rows() -> None:
    table = sampled(600).set_axis([f"r{i}" for i in range(600)])
    scores = pd.Series(MODEL.predict_proba(table)[:, 1], table.index)
    weight = pd.Series(np.linspace(0.5, 1.5, 600), table.index)
    source = pf.OneStep(GRAPH.unfair("R -> Y"), **SETTINGS)
    given: dict[str, Any] = {"sample_weight": weight, "contrasts": ["black"]}
    one = pf.audit_contrasts({"m": MODEL}, source, table, **given).table
    own = one.set_index(["decisions", "quantity"])["estimate"]
    black = table["R"] != "asian"
    mean = np.average(scores[black], weights=weight[black])
    assert own["score", "positive_rate"] == pytest.approx(mean)
    ipw = pf.IPW(GRAPH.unfair("R -> Y"), arm="paper", propensity="saturated")
    report = pf.audit_contrasts({"s": scores}, ipw, table, scores="prediction", n_boot=0, **given)
    rate = report.table.set_index(["decisions", "quantity"]).loc[("score", "positive_rate"), "estimate"]
    assert rate == pytest.approx(mean)


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (
            {"R": np.linspace(18.0, 90.5, 128)},
            {},
            r"'R' holds 128 different numbers, from 18.0 to 90.5.*Bin it.*: df\['R'\] = pd.cut",
        ),
        ({"R": np.arange(128) % 30}, {}, r"30 different numbers, from 0 to 29.*at most 20 levels.*Bin it"),
        ({"R": [f"r{i % 40}" for i in range(128)]}, {}, "40 different categories.*Join levels"),
        (
            {"R": ["black", "asian"] * 64},
            {},
            r"never takes the baseline 'white'; it holds .*'black' \(64 rows\).*baseline=",
        ),
        ({"R": "white"}, {}, "is always 'white'; there is nothing to compare"),
        ({}, {"contrasts": ["blakc"]}, "contrasts names 'blakc', which is not observed.*Did you mean 'black'"),
        ({}, {"contrasts": ["white"]}, "contrasts names 'white', which is the baseline"),
        ({}, {"contrasts": ["black", "black"]}, "must name at least one level, and each once"),
    ],
)
def test_an_attribute_that_has_no_contrasts(change: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    table = exact_table().assign(**change)
    with pytest.raises(pf.DataError, match=message):
        pf.audit_contrasts({"model": MODEL}, GRAPH.unfair("R -> Y"), table, **settings)


def test_a_source_that_belongs_to_one_contrast() -> None:
    table = exact_table()
    fitted = pf.IPW(GRAPH.unfair("R -> Y"), propensity="saturated").fit(table[table["R"] != "asian"])
    with pytest.raises(pf.DataError, match=r"is fitted or needs no fit, so that it belongs to one contrast"):
        pf.audit_contrasts({"model": MODEL}, fitted, table)
    with pytest.raises(pf.DataError, match=r"is for training\. Audit with its paths"):
        pf.audit_contrasts({"model": MODEL}, pf.Contrasts(pf.IPW(GRAPH.unfair("R -> Y"))), table)
    counts = r"'black' \(48 rows\), 'white' \(48 rows\), 'asian' \(32 rows\)"
    with pytest.raises(pf.DataError, match=rf"{counts}.*CausalGraph\(\.\.\., baseline='white'\)"):
        pf.audit({"model": MODEL}, GRAPH.unfair("R -> Y"), table)
    unnamed = pf.CausalGraph("Q -> R; {R Q} -> M; {R Q M} -> Y", sensitive="R", outcome="Y")
    with pytest.raises(pf.DataError, match=rf"never the baseline or the contrast.*{counts}.*baseline='black'"):
        pf.audit({"model": MODEL}, unnamed.unfair("R -> Y"), table)


def test_what_holds_for_all_contrasts_is_an_error() -> None:
    class Broken:
        def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
            return np.full((len(X), 2), 0.7)

    with pytest.raises(pf.DataError, match="'broken': predict_proba returned rows that do not sum to 1"):
        pf.audit_contrasts({"broken": Broken()}, GRAPH.unfair("R -> Y"), exact_table())


def test_given_scores_are_of_all_rows() -> None:
    df = exact_table()
    own = df[df["R"].isin(["white", "black"])]  # the rows of one contrast, whose number is not that of the table
    for given in (np.full(len(own), 0.5), [0.5] * len(own), np.full((len(df), 2), 0.5)):
        with pytest.raises(pf.DataError, match=r"'model' is given as scores of shape .*; expected \(128,\)"):
            pf.audit_contrasts({"model": given}, GRAPH.unfair("R -> M -> Y"), df, contrasts=["black"])


EACH = GRAPH.with_contrast(None)


def test_an_audit_without_a_contrast_is_that_of_each() -> None:
    table = sampled(600)
    source = pf.OneStep(GRAPH.unfair("R -> Y"), **SETTINGS)
    named = pf.audit_contrasts({"model": MODEL}, source, table, random_state=1)
    report = pf.audit({"model": MODEL}, source.set_params(unfair=EACH.unfair("R -> Y")), table, random_state=1)
    assert isinstance(report, pf.ContrastAudit)
    pd.testing.assert_frame_equal(report.table, named.table, check_exact=True)
    text = report.details()
    assert "0 is &#39;white&#39;, 1 is each other level" in report.to_html()
    assert text == named.details()
    stages = report.gathered("stages")
    assert len(stages) == sum(len(one.stages) for one in report.audits.values())
    assert list(stages["contrast"].unique()) == ["asian", "black"]
    with pytest.raises(TypeError, match=r"treshold.*Did you mean 'threshold'"):
        pf.audit_contrasts({"model": MODEL}, source, table, treshold=0.5)


def test_thresholds_and_subgroups_hold_at_once_for_all_contrasts() -> None:
    table = sampled(900)
    given: dict[str, Any] = {"thresholds": [0.3, 0.5], "subgroups": ["Q"], "random_state": 0, "progress": False}
    source = pf.OneStep(EACH.unfair("R -> M -> Y"), **SETTINGS)
    report = pf.audit({"model": MODEL}, source, table, **given)
    at = report.thresholds[report.thresholds["threshold"] == 0.5].drop(columns="threshold").reset_index(drop=True)
    main = report.table[report.table["decisions"] == "threshold"].drop(columns="decisions").reset_index(drop=True)
    pd.testing.assert_frame_equal(at, main, check_exact=True)  # the threshold of the audit is one of them
    sidak = NormalDist().inv_cdf((1 + 0.95 ** (1 / 2)) / 2) / NormalDist().inv_cdf(0.975)
    for name, one in report.audits.items():
        for of, most in (("thresholds", sidak), ("subgroups", 1.5)):
            every, alone = (
                each[each["quantity"] == "mean_unfair_effect"] for each in (getattr(report, of), getattr(one, of))
            )
            own, alone = every[every["contrast"] == name].reset_index(drop=True), alone.reset_index(drop=True)
            assert own["estimate"].tolist() == alone["estimate"].tolist()
            ratio = (own["upper"] - own["lower"]) / (alone["upper"] - alone["lower"])
            assert len(ratio) == 2
            assert ratio.between(1.0 + 1e-6, most).all()
    labels = pd.Series(np.where(table["Q"] == 1, "1", "0"), table.index)
    series = pf.audit({"model": MODEL}, source, table, **given | {"subgroups": {"Q": labels}})
    columns = ["contrast", "level", "estimate", "lower", "upper"]
    pd.testing.assert_frame_equal(series.subgroups[columns], report.subgroups[columns])  # given labels are of all rows
    text, page, found = report.details(), report.to_html(), json.loads(report.to_json())
    for part in ("'asian', model: decisions at several thresholds", "'black', model, by Q"):
        assert part in text
        assert part.replace("'", "&#39;") in page
    assert page.count('class="track piu"') == 2 + 4  # of contrasts, and of two levels of Q in each
    assert page.count('class="plot"') == 2
    assert len(found["thresholds"]) == len(report.thresholds)
    assert len(found["subgroups"]) == len(report.subgroups)


def test_replicates_give_thresholds_bonferronis_intervals() -> None:
    source = pf.IPW(EACH.unfair("R -> Y"), propensity="saturated")
    given: dict[str, Any] = {"n_boot": 400, "thresholds": [0.5], "progress": False, "random_state": 0}
    report = pf.audit({"model": MODEL}, source, sampled(300), **given)
    at, main = report.thresholds, report.table[report.table["decisions"] == "threshold"].reset_index(drop=True)
    pd.testing.assert_frame_equal(at[["estimate", "lower", "upper"]], main[["estimate", "lower", "upper"]])


def test_a_picture_holds_the_contrasts_of_all_models() -> None:
    models = {"one": MODEL, "two": MODEL}
    report = pf.audit(models, pf.OneStep(EACH.unfair("R -> Y"), **SETTINGS), exact_table(), random_state=0)

    def labels(figure: Any) -> list[str]:
        return [each.get_text() for each in figure.axes[0].get_yticklabels()]

    assert labels(report.plot("two")) == ["'asian'", "'black'"]
    assert labels(report.plot()) == [f"{model}, {level}" for model in models for level in ("'asian'", "'black'")]


def test_what_needs_one_contrast_asks_for_it() -> None:
    table, unfair = exact_table(), EACH.unfair("R -> Y")
    X, y = table[["R", "Q", "M"]], table["Y"]
    needs = [
        lambda: pf.IPW(unfair).fit(table),
        lambda: pf.PenalizedClassifier("logistic", source=pf.IPW(unfair)).fit(X, y),
        lambda: pf.penalty_path(pf.PenalizedClassifier("logistic", source=pf.IPW(unfair)), X, y),
        lambda: pf.audit_graphs({"m": MODEL}, {"one": unfair}, table),
        lambda: pf.edge_costs({"m": MODEL}, unfair, table),
        lambda: pf.sharp_bounds(unfair, table),
        lambda: pf.audits.AuditScorer(pf.OneStep(unfair), at_most=0.1)(MODEL, X, y),
        lambda: pf.PSCF(unfair).fit(X, y),
    ]
    for call in needs:
        with pytest.raises(pf.DataError, match=r"baseline 'white' of 'R' and no contrast.*with_contrast.*Contrasts"):
            call()
    assert list(pf.Contrasts(pf.IPW(unfair)).fit(table).sources_) == ["asian", "black"]
    with pytest.raises(pf.DataError, match="audit_contrasts needs a table in memory"):
        pf.audit({"m": MODEL}, unfair, [table, table])


def test_proxies_are_for_two_groups() -> None:
    table = exact_table(8)
    hidden = table.assign(R=table["R"].where(table.index % 3 > 0), W=0.5)
    with pytest.raises(pf.DataError, match=r"proxies=.*with_contrast"):
        pf.audit_contrasts({"m": MODEL}, GRAPH.unfair("R -> Y"), hidden, proxies=["W"])


def test_rates_and_flips_are_those_of_each_contrast() -> None:
    table = exact_table()
    report = pf.audit_contrasts({"m": MODEL}, pf.OneStep(GRAPH.unfair("R -> Y"), **SETTINGS), table, progress=False)
    for name, one in report.audits.items():
        for gathered, own in ((report.rates, one.rates), (report.flips, one.flips)):
            part = gathered[gathered["contrast"] == name].drop(columns="contrast").reset_index(drop=True)
            pd.testing.assert_frame_equal(part, own, check_dtype=False)
    assert len(report.flips) > 0
    yes = (MODEL.score(table) > 0.5).astype(int)
    (rates,) = next(block for block in report.view.blocks if block.name == "rates").tables
    sizes = table["R"].value_counts()
    asian, black, white = (sizes[name] for name in sorted(LEVELS))
    assert [row[:3] for row in rates.rows] == [
        ["m", "R=white", f"{white}"],
        ["m", "R=asian", f"{asian}"],
        ["m", "difference of R=asian", f"{asian + white}"],
        ["m", "R=black", f"{black}"],
        ["m", "difference of R=black", f"{black + white}"],
    ]
    rate = report.rates.query("group == 'black' and quantity == 'selection_rate'")["estimate"].item()
    assert rate == pytest.approx(yes[table["R"] == "black"].mean())
    assert "Rates by group" in report.to_html()
    assert report.details().count("Each interval holds by itself") == 1
    assert len(json.loads(report.to_json())["rates"]) == len(report.rates)


@pytest.mark.parametrize("missing", ["refuse", "recorded"])
def test_an_unknown_level_is_no_value(missing: Any) -> None:
    table = exact_table()
    with pytest.raises(pf.DataError, match=r"sensitive attribute 'R' of df is missing in 4 of 128 rows"):
        pf.audit_contrasts(
            {"m": MODEL}, GRAPH.unfair("R -> Y"), table.assign(R=table["R"].where(table.index > 3)), missing=missing
        )
