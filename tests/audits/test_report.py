"""Reports of tables made by hand, so that each case is pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyrofair import Audit, CausalGraph
from pyrofair.audits.context import Context
from pyrofair.audits.report import stage_lines
from pyrofair.audits.verdicts import read_audit
from pyrofair.effects.estimates import QUANTITIES

GRAPH = CausalGraph(
    "sex -> M -> Y; sex -> Y", sensitive="sex", outcome="Y", baseline="woman", contrast="man", positive="yes"
)
SETTING = Context(
    paths=GRAPH.unfair("sex -> Y"),
    rows=12_345,
    level=0.95,
    threshold=0.5,
    replicates=200,
    order=("sex", "M"),
    assumptions=("The graph is right.", "The groups overlap."),
)
Span = tuple[float, float, float]
NOTHING: Span = (np.nan, np.nan, np.nan)
PLAIN: dict[str, Span] = {
    "accuracy": (0.8, 0.78, 0.82),
    "positive_rate": (0.4, 0.38, 0.42),
    "majority_rate": (0.7, 0.69, 0.71),
    "p_y0": (0.3, 0.28, 0.32),
    "p_ypi": (0.4, 0.38, 0.42),
    "mean_unfair_effect": (0.1, 0.08, 0.12),
    "piu_paper_bound": (0.92, 0.9, 0.94),
    "piu_lower": (0.1, 0.08, 0.12),
    "piu_upper": (0.7, 0.66, 0.74),
}


def rows(model: str = "plain", note: str = "", **changed: Span) -> pd.DataFrame:
    spans = PLAIN | changed
    return pd.DataFrame(
        [
            (model, decisions, quantity, *spans[quantity], 12_345.0, note if quantity in changed else "")
            for decisions in ("threshold", "score")
            for quantity in QUANTITIES
            if decisions == "threshold" or quantity not in ("accuracy", "majority_rate")
        ],
        columns=["model", "decisions", "quantity", "estimate", "lower", "upper", "ess", "note"],
    )


def groups(*agree: bool | Any) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model": "plain",
            "decisions": "score",
            "quantity": "p_ypi",
            "group_0": 0.3,
            "group_1": 0.42,
            "difference": -0.12,
            "lower": 0.05,
            "upper": 0.19,
            "agree": list(agree),
            "ess_0": 400.0,
            "ess_1": 300.0,
            "note": "",
        },
        index=range(len(agree)),
    )


def read(table: pd.DataFrame | None = None, compared: pd.DataFrame | None = None, **setting: Any) -> str:
    table, compared = rows() if table is None else table, groups() if compared is None else compared
    return Audit(table, compared, pd.DataFrame(), SETTING | setting).details()


def verdicts(**changed: Span) -> list[str]:
    return [line.strip() for line in read(rows(**changed)).splitlines() if "verdict:" in line]


NO_OUTCOMES: Any = {"note": "cannot be made: no column 'Y'", "accuracy": NOTHING, "majority_rate": NOTHING}
MANY_ENDS = {"note": "cannot be made: left", "piu_lower": NOTHING, "piu_upper": NOTHING, "piu_paper_bound": NOTHING}


@pytest.mark.parametrize(
    ("changed", "setting", "held", "absent"),
    [
        (
            {},
            {},
            ["12,345 rows; 95%", "200 bootstrap replicates", "0 is 'woman', 1 is 'man'", "'Y' = 'yes'"],
            ["Warning"],
        ),
        ({}, {}, ["accuracy 0.800 [0.780, 0.820], majority class 0.700", "0.400 [0.380, 0.420]\n"], ["constant"]),
        ({}, {}, ["P(Y0=1) 0.300 [0.280, 0.320], P(Ypi=1) 0.400 [0.380, 0.420]"], ["observed group"]),
        ({}, {}, ["at least 0.100 [0.080, 0.120], at most 0.700 [0.660, 0.740]", "PIU 0.920 [0.900, 0.940]"], []),
        ({}, {"warnings": ["Poor overlap."], "failed": 7}, ["\nWarning: Poor overlap.", "7 of which failed"], []),
        ({}, {"replicates": 1}, ["points only"], ["95%"]),
        ({}, {"doubts": {"plain": "its balance is +4.0"}}, ["withheld: its balance is +4.0."], ["unfair to"]),
        ({}, {"unnamed": ["bare", "other"]}, ["bare, other: fitted without", "given sex, M in this order"], []),
        (
            {},
            {"paths": GRAPH.unfair("sex -> Y").reversed()},
            ["with the contrast, 'man', on all paths, Ypi with the baseline, 'woman'"],
            ["Y0 is the answer with the baseline"],
        ),
        (MANY_ENDS, {}, ["at least (cannot be made: left), at most (cannot be made: left)"], []),
        (NO_OUTCOMES, {}, ["  accuracy cannot be made: no column 'Y'\n"], ["majority"]),
        ({"accuracy": (0.72, 0.69, 0.74)}, {}, ["not clearly better than a constant"], []),
        ({"accuracy": (0.65, np.nan, np.nan)}, {}, ["not clearly better than a constant"], []),
        (
            {"note": "exact test-set bound, 2.5 % on each side", "accuracy": PLAIN["accuracy"]},
            {},
            ["accuracy 0.800 [0.780, 0.820] (exact test-set bound), majority class 0.700"],
            [],
        ),
        # 123 rows of the rarer answer are enough
        ({"positive_rate": (0.01, 0.009, 0.011)}, {}, [": nearly constant"], ["all but about"]),
        ({"note": "vacuous", "piu_paper_bound": (1.1, 1.0, 1.2)}, {}, ["1.100 [1.000, 1.200] (vacuous)"], []),
        ({"mean_unfair_effect": (-0.0, -0.1, 0.1)}, {}, ["mean unfair effect 0.000 [-0.100, 0.100]"], []),
    ],
)
def test_what_the_text_holds(changed: Any, setting: Any, held: list[str], absent: list[str]) -> None:
    text = read(rows(**changed), **setting)
    assert [each for each in held if each not in text] == []
    assert [each for each in absent if each in text] == []


@pytest.mark.parametrize(
    ("agree", "held"),
    [
        ((True, True), ["agree (joint test)"]),
        ((pd.NA,), ["at most 0.120 apart (no intervals)"]),
        (
            (True, False),
            ["in 1 of 2 comparisons", "about 5% of", "wrong propensity model, poor overlap or chance",
             "plain, score, p_ypi: 0.300 from group 0, 0.420 from group 1, difference in [0.050, 0.190]"],
        ),
    ],
)  # fmt: skip
def test_groups(agree: Any, held: list[str]) -> None:
    text = read(None, groups(*agree))
    assert [each for each in held if text.count(each) != 1] == []


def test_each_model_has_its_part_and_one_that_no_unfair_path_reaches_is_named() -> None:
    found = read(pd.concat([rows("b"), rows("a", positive_rate=(0.0, 0.0, 0.0))]), untouched={"a": ("Q", "R")})
    assert found.startswith("Audit of 2 model(s)")
    one, other = found.partition("\na\n")[::2]
    assert one.count("unfair to at least") == 2
    assert other.count("by the graph: it reads Q, R only") == 2
    assert found.index("\nb\n") < found.index("\na\n")


def test_intervals_from_influence_values() -> None:
    weights = pd.DataFrame(
        {"regime": ["baseline", "unfair"], "nodes": ["M, L", "M"], "arm": [0, None], "given": ["Q", ""],
         "mean_weight": [1.0123, 0.7], "mean_weight_z": [0.44, -9.0], "ess": [1234.4, 20.0],
         "problem": ["", "the mean weight is 0.70, not 1 (z -9.0)"]}
    )  # fmt: skip
    stages = pd.DataFrame(
        {"model": ["m", "n", "n"], "regime": ["baseline", "baseline", "unfair"], "nodes": ["M, L", "M, L", "M"],
         "balance_z": [1.2, -2.3, 0.4], "correction_z": [-0.7, 0.1, 4.0], "counts": True}
    )  # fmt: skip
    lines = stage_lines(weights, stages, GRAPH)
    assert lines == [
        "baseline world, stage M, L given Q, rows with sex='woman': mean weight 1.012 (z +0.4), effective size 1,234; "
        "largest |z| of balance 2.3, of correction 0.7",
        "unfair world, stage M, all rows: mean weight 0.700 (z -9.0), effective size 20; largest |z| of balance 0.4, "
        "of correction 4.0; the mean weight is 0.70, not 1 (z -9.0)",
    ]
    text = read(wald=True, stage_lines=lines, form="prefix", replicates=0)
    assert text.startswith("Audit of 1 model(s) on 12,345 rows; 95% Wald intervals from influence values.\n")
    assert f"Estimates in the prefix form, by the stages of each world (assumptions below):\n{lines[0]}\n" in text
    assert stage_lines(weights, pd.DataFrame(), GRAPH)[0].endswith("effective size 1,234")


BLIND: dict[str, Span] = {"mean_unfair_effect": (0.0, -0.01, 0.01)}
NO_ENDS = {"piu_lower": NOTHING, "piu_upper": NOTHING, "piu_paper_bound": NOTHING}


@pytest.mark.parametrize(
    ("changed", "status", "shares"),
    [
        ({}, "unfair", (0.08, 0.74)),
        ({"mean_unfair_effect": (-0.1, -0.12, -0.08)}, "unfair", (0.08, 0.74)),
        ({"piu_lower": (0.5, 0.03, 0.9)}, "unfair", (0.03, 0.74)),
        # a lower bound that is printed as 0.0 % is no finding
        ({"piu_lower": (0.02, 0.0004, 0.05)}, "inconclusive", (0.0, 0.74)),
        ({"piu_lower": (1.6e-6, 1.5e-6, 1.7e-6), "piu_upper": (1.6e-6, 0.0, 0.03)}, "small", (0.0, 0.03)),
        (BLIND | {"piu_lower": (0.0, 0.0, 0.01), "piu_upper": (0.02, 0.01, 0.03)}, "small", (0.0, 0.03)),
        # the upper end of its interval counts
        (BLIND | {"piu_lower": (0.0, 0.0, 0.01), "piu_upper": (0.02, 0.01, 0.06)}, "inconclusive", (0.0, 0.06)),
        # the number beside it counts, whatever the mean effect
        (BLIND | {"piu_lower": (0.05, 0.04, 0.06)}, "unfair", (0.04, 0.74)),
        # ends apart significantly
        (
            {"mean_unfair_effect": (0.3, 0.25, 0.35), "piu_lower": (0.3, 0.25, 0.35), "piu_upper": (0.2, 0.18, 0.22)},
            "doubtful",
            (np.nan, np.nan),
        ),
        ({"piu_upper": (0.7, np.nan, np.nan)}, "no_interval", (np.nan, np.nan)),
        ({name: (value[0], np.nan, np.nan) for name, value in PLAIN.items()}, "no_interval", (np.nan, np.nan)),
        (NO_ENDS, "no_probability", (np.nan, np.nan)),
    ],
)
def test_what_the_numbers_show(changed: dict[str, Span], status: str, shares: tuple[float, float]) -> None:
    table = rows(**changed)
    found = read_audit(table, groups(), SETTING)
    for each in found.values():
        assert each.status == status
        assert (each.least, each.most) == pytest.approx(shares, nan_ok=True)
    assert verdicts(**changed) == [f"verdict: {each.text}" for each in found.values()]
    words = {"doubtful": ("22.0%", "25.0%"), "no_interval": ("10.0%", "70.0%"), "unfair": (f"{shares[0]:.1%}",)}
    assert all(word in each for each in verdicts(**changed) for word in words.get(status, ()))
    assert "nan" not in read(table).lower()


def test_a_failure_is_line_once() -> None:
    gone = rows(**dict.fromkeys(QUANTITIES[3:], NOTHING))
    text = read(gone, failure="df has no woman.")
    assert text.count("df has no woman") == 1
    assert "No unfair effect could be estimated: df has no woman." in text
    assert text.count("no unfair effect could be estimated, see below") == 2
    assert "verdict" not in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize("rate", [0.0, 0.0005, 0.9995, 1.0])
def test_a_constant_classifier_gets_no_verdict(rate: float) -> None:
    text = read(rows(positive_rate=(rate, rate, rate), piu_upper=(0.1, 0.1, 0.1)))
    assert ": nearly constant" in text
    decisions, scores = (line for line in text.splitlines() if "verdict:" in line)
    assert f"none: {'all' if rate in (0.0, 1.0) else 'all but about 6 of the'} rows" in decisions
    assert "unfair to" in scores  # scores vary, whatever the threshold makes of them


def test_overlap() -> None:
    overlap = pd.DataFrame(
        {
            "regime": ["baseline", "baseline", "unfair"],
            "group": ["0", "1", "pooled"],
            "used": [True, False, True],
            "n": [4_000, 60, 9_999],
            "mean_weight": [1.0, 3.0, 0.889],
            "ess": [3_210.4, 2.0, 26.0],
            "unsupported_cells": ["", "x", "M=2"],
        }
    )
    text = read(overlap=overlap)
    assert (
        "baseline world: weights on group 0 (4,000 fitted rows, effective size 3,210; mean weight 1.000, should be "
        "near 1)\nunfair world: weights on both groups, pooled (9,999 fitted rows, effective size 26; mean weight "
        "0.889, should be near 1); no counterpart for M=2\n"
    ) in text
    assert "group 1" not in text


def test_units_seen_in_both_worlds_have_a_point() -> None:
    same = (0.1, 0.08, 0.12)
    text = read(rows(piu_lower=same, piu_upper=same), paired=True)
    assert text.count("PIU 0.100 [0.080, 0.120], a point under the assumptions") == 1
    assert text.count("PIU at least 0.100 [0.080, 0.120], at most 0.100 [0.080, 0.120]") == 1  # scores leave it open
    assert "a point" not in read(paired=True)


def test_groups_without_overlap_are_not_compared() -> None:
    compared = groups(pd.NA, pd.NA, True).assign(quantity=["p_ypi", "p_ypi", "p_y0"], ess_1=[1.0, 1.0, 300.0])
    compared["note"] = ["too little overlap to compare"] * 2 + [""]
    text = read(None, compared)
    line = "p_ypi from either observed group: too little overlap to compare (effective size 400.0 in group 0, 1.0 in gr"
    assert text.count(line) == 1
    assert "agree (joint test)" in text
    alone = read(None, compared.iloc[:2])
    assert line in alone
    assert "weighted alone" not in alone


def test_many_comparisons_are_cut_short() -> None:
    compared = groups(*[False] * 9)
    compared["difference"] = [0.01, -0.9, *[0.02] * 7]
    compared["group_1"] = [0.111, 0.999, *[0.222] * 7]
    text = read(None, compared)
    assert "in 9 of 9 comparisons" in text
    assert text.count("from group 0") == 6
    assert "0.999 from group 1" in text
    assert "0.111 from group 1" not in text
    assert "  and 3 more with smaller differences, see the table of groups\n" in text
