"""``pyrofair graph``, ``check`` and ``sensitivity``: from a table without a graph to what a conclusion withstands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair.commands.running import as_options
from pyrofair.graph.parse import read_edges

Call = Callable[..., tuple[int, str, str]]
ROLES = ("--sensitive", "sex", "--outcome", "hired")
LABELS = ("--baseline", "male", "--contrast", "female", "--positive", "yes", "--unfair", "sex -> hired")
RIGHT = "skill; sex; {sex skill} -> job; {sex skill job} -> hired"
WRONG = "skill; sex -> job; {sex job skill} -> hired"  # skill and job are not independent given sex
FAST = ("--propensity", "saturated", "--regression", "saturated")


@pytest.fixture
def call(call_here: Call, no_pictures: None) -> Call:
    """Run a command beside a table."""
    table().to_csv("t.csv", index=False)
    return call_here


def table(n: int = 500) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    female, skill = rng.random(n) < 0.5, rng.integers(0, 3, n)
    manager = rng.random(n) < 0.2 + 0.25 * skill
    p = 0.3 + 0.15 * skill + 0.2 * manager - 0.2 * female
    frame = pd.DataFrame({"sex": np.where(female, "female", "male"), "skill": skill, "p": p.round(3)})
    frame["job"] = np.where(manager, "manager", "clerk")
    frame["hired"] = np.where(rng.random(n) < p, "yes", "no")
    frame["decile"] = (1 + 9 * p).round().astype(int)
    return frame


# --- graph -----------------------------------------------------------------------------------------------------------


def test_without_tiers_there_is_a_template_of_the_own_columns(call: Call) -> None:
    table().rename(columns={"job": "last job"}).to_csv("t.csv", index=False)
    code, out, err = call("graph", "t.csv", *ROLES)
    assert (code, out) == (2, "")
    written = [line for line in err.split("\n\n")[1].splitlines() if not line.startswith("#")]
    assert written == ["sex", 'skill p "last job" decile', "hired"]
    Path("tiers.txt").write_text(err.split("\n\n")[1])
    code, out, _ = call("graph", "t.csv", *ROLES, "--tiers", "tiers.txt")
    assert code == 0
    assert {("sex", "last job"), ("last job", "hired")} <= {*read_edges(out).edges}


def test_tiers_become_a_graph_to_cut_down(call: Call) -> None:
    Path("tiers.txt").write_text("# from the start\nsex, skill\n\njob\nhired\n")
    some = ("--missing-values", "NA", "-9", "-o", "graph.txt")  # -9 is a value, and -o an option
    code, out, _ = call("graph", "t.csv", *ROLES, "--tiers", "tiers.txt", *some)
    assert code == 0
    text = Path("graph.txt").read_text()
    assert text in out
    assert Path("graph.svg").exists()
    expected = pf.CausalGraph.from_tiers([["sex", "skill"], ["job"], ["hired"]], sensitive="sex", outcome="hired")
    assert {*read_edges(text).edges} == {*expected.edges}
    assert "holds: skill independent of sex" in text
    assert call("check", "t.csv", "--graph", "graph.txt", *ROLES)[0] == 0
    before = Path("graph.txt").read_bytes()
    code, _, err = call("graph", "t.csv", *ROLES, "--tiers", "tiers.txt", "-o", "graph.txt")
    assert (code, Path("graph.txt").read_bytes()) == (2, before)
    assert "--overwrite" in err
    given = ("--groups", "town", "--text", "skill", "--missing-values", "-", "?", "--tests", "smooth")
    pd.read_csv("t.csv").assign(town=range(len(pd.read_csv("t.csv")))).to_csv("towns.csv", index=False)
    code, out, err = call("graph", "towns.csv", *ROLES, "--tiers", "tiers.txt", *given)
    gaps = pd.read_csv("t.csv").assign(job=lambda df: df["job"].where(df.index > 50))
    gaps.to_csv("gaps.csv", index=False)
    code, gappy, _ = call("graph", "gaps.csv", *ROLES, "--tiers", "tiers.txt")
    assert (code, "--missing-as-value" in gappy, "--missing-as-value" in out) == (0, True, False)
    then = shlex.split(next(line for line in out.splitlines() if "Then:" in line).partition("pyrofair ")[2])
    assert then == ["check", "towns.csv", "--graph", "graph.txt", *ROLES, "--tests", "smooth", "--groups", "town",
                    "--text", "skill", "--missing-values", "-", "?"]  # fmt: skip
    assert call(*then)[0] == 0
    code, out, _ = call("graph", "t.csv", *ROLES, "--tiers", "tiers.txt", "--within")
    assert ("sex", "skill") in read_edges(out).edges


@pytest.mark.parametrize(
    ("tiers", "arguments", "parts"),
    [
        ("sex\nskil\nhired\n", (), ["'skil'", "--tiers tiers.txt", "Did you mean 'skill'"]),
        ("sex\nsex job\nhired\n", (), ["'sex' twice"]),
        ("sex job\n", (), ["'hired'", "not in the graph"]),
        ("sex\nhired\n", ("--tiers", "none.txt"), ["--tiers", "'none.txt'"]),
        ("sex\nhired\n", ("--sensitive", "sexx"), ["'sexx'", "Did you mean 'sex'"]),
    ],
)
def test_tiers_that_do_not_fit(call: Call, tiers: str, arguments: tuple[str, ...], parts: list[str]) -> None:
    Path("tiers.txt").write_text(tiers)
    code, _, err = call("graph", "t.csv", *ROLES, "--tiers", "tiers.txt", *arguments)
    assert code == 2
    assert [part for part in parts if part not in err] == []


# --- check -----------------------------------------------------------------------------------------------------------


def test_check_tests_what_the_graph_implies(call: Call) -> None:
    code, out, err = call("check", "t.csv", "--graph", RIGHT, *ROLES, "--strict")
    assert (code, err) == (0, "")
    df = table()[["sex", "skill", "job", "hired"]]
    same = pf.CausalGraph(RIGHT, sensitive="sex", outcome="hired").check(df, random_state=0)
    assert as_options(str(same)) in out
    found = pd.read_csv("check-t/check.csv")
    assert found["p_value"].tolist() == pytest.approx(same.table["p_value"].tolist(), abs=1e-12)
    assert Path("check-t/graph.png").exists()


def test_check_is_a_gate_if_strict(call: Call) -> None:
    wrong = ("check", "t.csv", "--graph", WRONG, *ROLES)
    assert call(*wrong)[0] == 0
    assert call(*wrong, "--strict", "--output", "strict")[0] == 3
    constant = table().assign(skill=1)
    constant.to_csv("t.csv", index=False)
    code, out, _ = call("check", "t.csv", "--graph", RIGHT, *ROLES, "--strict", "--output", "untested")
    assert "not tested: skill independent of sex" in out
    assert code == 4


def test_check_needs_no_two_groups(call: Call) -> None:
    df = table()
    df.loc[::3, "sex"] = "other"
    df.assign(w=2).to_csv("t.csv", index=False)
    code, out, _ = call("check", "t.csv", "--graph", RIGHT, *ROLES, "--weight", "w")
    assert code == 0
    assert "500 rows" in out
    assert "without --weight" in out


# --- sensitivity -----------------------------------------------------------------------------------------------------

QUESTION = ("t.csv", "--graph", RIGHT, *ROLES, *LABELS, *FAST, "--score", "p")


def test_sensitivity_to_hidden_common_causes(call: Call) -> None:
    code, out, err = call("sensitivity", *QUESTION, "--amounts", "1", "2", "--benchmark")
    assert (code, err) == (0, "")
    unfair = pf.CausalGraph(
        RIGHT, sensitive="sex", outcome="hired", baseline="male", contrast="female", positive="yes"
    ).unfair("sex -> hired")
    source = pf.OneStep(unfair, propensity="saturated", regression="saturated", random_state=0)
    df = table()
    same = pf.sensitivity.confounding(
        df["p"], source, df[["skill", "sex", "job", "hired"]], gammas=[1, 2], scores="outcome", random_state=0
    )
    found = pd.read_csv("sensitivity-t/sensitivity.csv")
    for column in ("low", "high", "lower", "upper"):
        assert found[column].tolist() == pytest.approx(same.table[column].tolist(), abs=1e-12)
    assert as_options(str(same)) in out
    assert pd.read_csv("sensitivity-t/flips.csv")["hidden_cause"].tolist() == same.flips_at["hidden_cause"].tolist()
    assert "skill" in pd.read_csv("sensitivity-t/benchmark.csv")["column"].tolist()


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("--doubt", "cross-world", "--amounts", "0", ".5"), "sensitivity.csv"),
        (("--doubt", "edges", "--absent", "sex -> job"), "edges.csv"),
        (("--hidden-causes", "sex <-> job"), "sensitivity.csv"),
    ],
)
def test_other_assumptions(call: Call, arguments: tuple[str, ...], file: str) -> None:
    code, _, err = call("sensitivity", *QUESTION, *arguments)
    assert (code, err) == (0, "")
    assert len(pd.read_csv(f"sensitivity-t/{file}"))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--doubt", "edges", "--amounts", "2"), ["--amounts", "--doubt edges"]),
        (("--doubt", "cross-world", "--benchmark"), ["--benchmark", "--doubt confounding"]),
        (("--hidden-causes", "{skill job} <-> hired"), ["'{skill job} <-> hired' is not known; known are"]),
        (("--hidden-causes", "sex <-> zz", "--score", "absent"), ["--hidden-causes", "'zz'"]),  # before any work
        (("--amounts", ".5"), ["gammas", "0.5"]),
        (("--doubt", "switching"), ["Pass the model"]),
    ],
)
def test_what_an_assumption_does_not_take(call: Call, arguments: tuple[str, ...], parts: list[str]) -> None:
    code, _, err = call("sensitivity", *QUESTION, *arguments)
    assert code == 2
    assert [part for part in parts if part not in err] == []


# --- in the report of an audit ---------------------------------------------------------------------------------------


def test_an_audit_has_both_as_parts(call: Call) -> None:
    code, out, _ = call("audit", *QUESTION, "--check", "--sensitivity")
    assert code == 0
    folder = Path("audit-t")
    check = pd.read_csv(folder / "check.csv")
    assert f"{len(check)} conditional independence(s)" in out
    parts = json.loads((folder / "report.json").read_text())["sections"]
    assert [part["title"] for part in parts.values()] == ["The graph against the table", "Hidden common causes (p)"]
    swept = pd.read_csv(folder / "sensitivity.csv")
    assert [row["low"] for row in parts["sensitivity-0-part"]["tables"][0]] == pytest.approx(swept["low"].tolist())
    page = (folder / "report.html").read_text()
    assert [page.count(f'<h2 id="{name}">') for name in parts] == [1, 1]
    assert "<summary>Hidden common causes (p), in words</summary>" in page
    audited = pd.read_csv(folder / "audit.csv").query("quantity == 'mean_unfair_effect' and decisions == 'threshold'")
    neutral = swept.query("quantity == 'mean_unfair_effect' and gamma == 1")
    assert neutral["low"].tolist() == pytest.approx([audited["estimate"].item()] * len(neutral))


def test_a_part_that_cannot_be_made_says_why(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise pf.DataError("Make numbers of them: df['skill'].astype(float).")

    monkeypatch.setattr("pyrofair.commands.audit.analyse", refuse)
    code, out, _ = call("audit", *QUESTION, "--sensitivity")
    assert code == 0
    assert "Not available: Make numbers of them: --number 'skill'." in out


def test_missing_values_count_as_values_when_asked(call: Call) -> None:
    df = table()
    df.assign(job=df["job"].where(df.index % 6 > 0, "")).to_csv("t.csv", index=False)
    question = ("t.csv", "--graph", RIGHT, *ROLES, *LABELS, "--missing-as-value")
    for arguments in (("check", *question, "--tests", "smooth"), ("sensitivity", *question, "--score", "p", *FAST)):
        code, _, err = call(*arguments)
        assert code == 0, err
        told = Path(f"{arguments[0]}-t/report.txt").read_text()
        assert "Missing values, share of rows" in told
        assert "job may be missing" in told


def test_a_test_of_the_graph_is_about_all_groups(call: Call) -> None:
    table().assign(sex=lambda df: df["sex"].where(df.index > 50, "other")).to_csv("t.csv", index=False)
    asked = ("check", "t.csv", "--graph", RIGHT, *ROLES, "--baseline", "male")
    outs = [call(*asked, *more, "--overwrite")[:2] for more in ((), ("--contrast", "all"))]
    assert [code for code, _ in outs] == [0, 0]
    assert outs[0][1] == outs[1][1]
