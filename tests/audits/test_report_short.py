"""The short report: verdicts and five numbers, for any labels, withheld verdicts and several groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import pyrofair as pf
from tests.models import Known

GRAPH = pf.CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
SATURATED: Any = {"propensity": "saturated", "regression": "saturated", "random_state": 0}


def coded(of: Any = lambda a: a) -> Known:
    """Return a known function of features; ``of`` codes the sensitive attribute."""
    return Known(lambda X: 0.1 + 0.3 * of(X["A"]) + 0.3 * X["M"])


def rows(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, q = rng.integers(0, 2, (2, n))
    m = (rng.random(n) < 0.2 + 0.3 * a + 0.2 * q).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "M": m, "Y": (rng.random(n) < 0.2 + 0.3 * a + 0.2 * m).astype(int)})


def test_the_short_report_names_the_groups_of_any_labels() -> None:
    df = rows()
    rate = df.assign(yes=df["A"] * df["M"])[["A", "yes"]].groupby("A")["yes"].mean()
    source = pf.OneStep(GRAPH.unfair("A -> Y"), **SATURATED)
    text = str(pf.audit({"m": coded()}, source, df, random_state=0))
    assert f"A=0 {rate[0]:.1%}, A=1 {rate[1]:.1%}" in text
    assert "Positive: Y = 1, a score above 0.5.\n" in text
    graph = pf.CausalGraph(
        list(GRAPH.edges), sensitive="A", outcome="Y", baseline="difference is not a group", contrast="yes"
    )
    named = df.assign(A=np.where(df["A"] == 1, "yes", "difference is not a group"))
    source = pf.OneStep(graph.unfair("A -> Y"), **SATURATED)
    text = str(pf.audit({"m": coded(lambda a: (a == "yes").astype(int))}, source, named, random_state=0))
    assert f"difference is not a group {rate[0]:.1%}, yes {rate[1]:.1%}\n" in text
    assert "accuracy" not in text.split("positive decisions")[1]


def test_a_verdict_that_is_withheld_is_no_check_that_passed() -> None:
    report = pf.audit({"m": coded()}, pf.OneStep(GRAPH.unfair("A -> Y"), **SATURATED), rows())
    assert "Checks: none failed" in str(report)
    doubtful = replace(report, context=report.context | {"doubts": {"m": "a stage fails"}})
    assert "m: withheld: a stage fails." in str(doubtful)
    assert "Checks: failed for m." in str(doubtful)
    groups = pd.DataFrame([{"model": "m", "decisions": "threshold", "quantity": "p_y0", "agree": False, "note": ""}])
    apart = replace(report, context=report.context | {"wald": False}, groups=groups)
    assert apart.verdicts.set_index("decisions")["status"]["threshold"] == "groups_disagree"
    assert "Checks: failed for m." in str(apart)


def test_contrasts_print_a_verdict_and_effect_each() -> None:
    df = rows().assign(A=lambda df: np.where(df.index % 3 == 2, "c", np.where(df["A"] == 1, "b", "a")))
    graph = pf.CausalGraph(list(GRAPH.edges), sensitive="A", outcome="Y", baseline="a")
    model = coded(lambda a: (a == "b").astype(int))
    report = pf.audit({"m": model}, pf.OneStep(graph.unfair("A -> Y"), **SATURATED), df, random_state=0)
    text = str(report)
    own = report.verdicts.query("decisions == 'threshold'").set_index("contrast")["verdict"]
    effects = report.table.query("decisions == 'threshold' and quantity == 'mean_unfair_effect'")
    for row in effects.itertuples():
        assert (
            f"m, {row.contrast!r}: {own[row.contrast]}\n  mean unfair effect   {100 * row.estimate:+.1f} points" in text
        )
    assert len(text.splitlines()) < 20 < len(report.details().splitlines())


def test_a_long_name_takes_lines_of_a_picture_not_its_width() -> None:
    name = "a model with a long name, fitted in winter on all applicants"
    source = pf.OneStep(GRAPH.unfair("A -> Y"), **SATURATED)
    labels = pf.audit({name: coded()}, source, rows(), random_state=0).plot().axes[0].get_yticklabels()
    assert [each.get_text().replace("\n", " ") for each in labels] == [name]
    assert max(map(len, labels[0].get_text().splitlines())) <= 26


def test_a_summary_has_a_row_for_each_model_and_each_group() -> None:
    df = rows()
    report = pf.audit({"m": coded(), "n": coded(lambda a: 0 * a)}, pf.OneStep(GRAPH.unfair("A -> Y"), **SATURATED), df)
    found = report.summary()
    table = report.table.query("decisions == 'threshold'").set_index(["model", "quantity"])
    assert list(found.index) == ["m", "n"]
    for model in found.index:
        assert found.loc[model, "piu_least"] == table.loc[(model, "piu_lower"), "lower"]
        assert found.loc[model, "piu_most"] == table.loc[(model, "piu_upper"), "upper"]
        assert found.loc[model, "effect_lower"] == table.loc[(model, "mean_unfair_effect"), "lower"]
    several = df.assign(A=np.random.default_rng(1).integers(0, 3, len(df)))
    graph = pf.CausalGraph(list(GRAPH.edges), sensitive="A", outcome="Y", baseline=0, contrast=None)
    family = pf.audit({"m": coded()}, graph.unfair("A -> Y"), several, random_state=0)
    own = family.quantities.query("quantity == 'piu_upper' and decisions == 'threshold'")
    assert family.summary()["piu_most"].tolist() == own["upper"].tolist()
    assert family.summary().index.tolist() == [(1, "m"), (2, "m")]
