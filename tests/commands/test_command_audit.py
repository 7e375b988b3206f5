"""``pyrofair audit``, from a CSV to a folder of results and an exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import pyrofair as pf
from pyrofair.commands.gate import judge

GRAPH = "sex -> job; {sex job} -> hired"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(call_here: Call, request: pytest.FixtureRequest) -> Call:
    """Run a command beside a table, and return its exit code and what it printed; none fails unforeseen."""
    if not request.node.name.startswith("test_from_a_csv"):
        request.getfixturevalue("no_pictures")
    table().to_csv("court.csv", index=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        code, out, err = call_here(*arguments)
        assert code != 1, err
        return code, out, err

    return run


def table(n: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, n)
    job = (rng.random(n) < 0.3 + 0.3 * sex).astype(int) + (rng.random(n) < 0.3)
    p = 0.2 + 0.25 * sex + 0.2 * job
    hired = np.where(rng.random(n) < p, "yes", "no")
    return pd.DataFrame(
        {
            "id": np.arange(n),
            "sex": np.where(sex == 1, "male", "female"),
            "job": np.array(["none of these", "clerk", "manager"])[job],
            "hired": hired,
            "p": p.round(3),
            "decided": np.where(p > 0.5, "granted", "denied"),
            "three": np.where(p > 0.5, "granted", np.where(p > 0.4, "pending", "denied")),
            "w": rng.integers(1, 3, n),
        }
    )


def details(folder: str = "audit-court") -> str:
    """What report.txt holds; the short report is printed."""
    return (Path(folder) / "report.txt").read_text(encoding="utf-8")


QUESTION = ("--graph", GRAPH, "--sensitive", "sex", "--outcome", "hired", "--baseline", "male", "--contrast", "female",
            "--positive", "yes", "--unfair", "sex -> hired")  # fmt: skip
FAST = ("--propensity", "saturated", "--regression", "saturated")
AUDIT = ("audit", "court.csv", *QUESTION, *FAST)


def test_from_a_csv_to_a_folder_of_results(call: Call) -> None:
    code, out, err = call(*AUDIT, "--score", "p")
    assert (code, err) == (0, "")
    assert "Columns of court.csv that are not used: id, decided, three, w.\n" in out
    whole = details()
    assert "sex is 'sex': 0 is 'male', 1 is 'female'. Positive is 'hired' = 'yes'" in whole
    assert "scores are known only for observed rows" in whole
    assert "These numbers assume:\n  1. Rows are independent" in whole
    assert "These numbers assume:" not in out, "the short report is printed"
    assert "Positive: hired = 'yes', a score above 0.5.\n\np: unfair to at least" in out
    assert "More: report.txt has the details.\n\nThe results are in audit-court: " in out
    folder = Path("audit-court")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert ("<svg" in page, "name their column: --groups." in page, "groups=" in page) == (True, True, False)
    assert "sex is &#39;sex&#39;" in page
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["schema"] == "pyrofair-audit"
    assert (folder / "audit.png").read_bytes().startswith(b"\x89PNG")
    names = {
        "report.txt",
        "audit.csv",
        "stages.csv",
        "audit.png",
        "stages.png",
        "graph.png",
        "settings.toml",
        "run.json",
    }
    assert names <= {path.name for path in folder.iterdir()}
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    effect = pd.read_csv(folder / "audit.csv").query("quantity == 'mean_unfair_effect' and decisions == 'score'")
    df = table()
    unfair = pf.CausalGraph(GRAPH, sensitive="sex", outcome="hired", baseline="male", contrast="female",
                            positive="yes").unfair("sex -> hired")  # fmt: skip
    source = pf.OneStep(unfair, propensity="saturated", regression="saturated", random_state=0)
    same = pf.audit(
        {"p": df["p"]}, source, df[["sex", "job", "hired"]], scores="outcome", random_state=0, progress=False
    )
    expected = same.table.query("quantity == 'mean_unfair_effect' and decisions == 'score'")
    assert effect["estimate"].tolist() == pytest.approx(expected["estimate"].tolist(), abs=1e-12)
    assert effect["estimate"].item() == pytest.approx(-0.25, abs=0.01)
    run = json.loads((folder / "run.json").read_text())
    assert run["run"]["files"].keys() == {"court.csv"}
    assert {"pyrofair", "python", "torch", "scikit-learn"} <= run["versions"].keys()


def test_the_settings_of_a_run_repeat_it(call: Call) -> None:
    first = call(*AUDIT, "--score", "p", "--level", "0.9")
    before = {path.name: path.read_bytes() for path in Path("audit-court").glob("*.[ct]*")}
    again = call("audit", "--config", "audit-court/settings.toml")
    assert again == first
    assert {path.name: path.read_bytes() for path in Path("audit-court").glob("*.[ct]*")} == before
    other = call("audit", "--config", "audit-court/settings.toml", "--level", "0.8", "--output", "other")
    assert "80% confidence intervals" in other[1]


def test_results_of_another_run_are_kept(call: Call) -> None:
    call(*AUDIT, "--score", "p")
    before = {path.name: path.read_bytes() for path in Path("audit-court").iterdir()}
    code, out, err = call(*AUDIT, "--score", "p", "--seed", "1")
    assert (code, out) == (2, "")
    assert "of another run: settings.seed is 0 there and 1 here" in err
    assert "--overwrite" in err
    table().assign(p=0.5).to_csv("court.csv", index=False)
    code, _, err = call(*AUDIT, "--score", "p")
    assert code == 2
    assert "files.court.csv is" in err
    assert {path.name: path.read_bytes() for path in Path("audit-court").iterdir()} == before
    Path("audit-court/notes.txt").write_text("mine")
    assert call(*AUDIT, "--score", "p", "--through", "job", "--overwrite")[0] == 0
    assert Path("audit-court/notes.txt").read_text() == "mine"
    Path("mine").mkdir()
    Path("mine/report.txt").write_text("mine")
    code, _, err = call(*AUDIT, "--score", "p", "--output", "mine")
    assert code == 2
    assert "'mine' holds report.txt of another run, which no run.json identifies" in err
    assert Path("mine/report.txt").read_text() == "mine"


def test_a_run_that_fails_leaves_no_folder(call: Call) -> None:
    df = table()
    df["job"] = np.where(df["sex"] == "male", "clerk", "manager")
    df.to_csv("apart.csv", index=False)
    code, out, err = call("audit", "apart.csv", *QUESTION, "--score", "p")
    assert (code, out) == (4, "")
    assert err.startswith("pyrofair audit: cannot be judged: The two groups do not overlap")
    assert not Path("audit-apart").exists()
    Path("file").write_text("x")
    assert "is a file" in call(*AUDIT, "--score", "p", "--output", "file")[2]


# --- scores, models, weights, other rows -----------------------------------------------------------------------------


def estimate(folder: str, model: str, quantity: str = "mean_unfair_effect", decisions: str = "threshold") -> float:
    found = pd.read_csv(Path(folder) / "audit.csv")
    rows = found.query("model == @model and quantity == @quantity and decisions == @decisions")
    return float(rows["estimate"].item())


def test_decisions_as_text_and_outcomes(call: Call) -> None:
    code, out, _ = call(*AUDIT, "--score", "decided", "--score-positive", "granted", "--output", "a")
    assert code == 0
    assert call(*AUDIT, "--score", "p", "--output", "b")[0] == 0
    assert estimate("a", "decided") == pytest.approx(estimate("b", "p"), abs=1e-12)
    code, out, _ = call(*AUDIT, "--score", "hired", "--scores", "outcome", "--output", "c")
    assert code == 0
    assert "an outcome, no function of the features: 600 of 600 rows agree" in details("c")
    assert "that of the outcome itself" in out
    assert estimate("c", "hired", "accuracy") == pytest.approx(1.0, abs=1e-12)


def test_ipw_weights_the_group_of_the_paper(call: Call) -> None:
    code, _, err = call("audit", "court.csv", *QUESTION, "--source", "ipw", "--propensity", "saturated",
                          "--replicates", "20", "--level", "0.9", "--score", "p", "--weight", "w")  # fmt: skip
    assert (code, err) == (0, "")
    assert "90% intervals from 20 bootstrap replicates" in details()
    assert "taken for a function of the features" in details()
    df = table()
    a, w = df["sex"] == "female", df["w"]
    baseline = df["p"][~a]
    switched = sum(
        (df["p"][a & (df["job"] == job)]).mean() * w[~a & (df["job"] == job)].sum() for job in df["job"].unique()
    )
    expected = switched / w[~a].sum() - float((baseline * w[~a]).sum() / w[~a].sum())
    assert estimate("audit-court", "p", decisions="score") == pytest.approx(expected, abs=1e-9)


def test_other_rows_fit_the_source(call: Call) -> None:
    table(800).to_csv("more.csv", index=False)
    code, _, err = call(*AUDIT, "--score", "p", "--train", "more.csv", "--scores", "outcome")
    assert code == 2
    assert "--train fits the source on other rows" in err
    assert "leave out --train" in err
    Path("m.joblib").write_bytes(b"")
    joblib.dump(Rule(), "m.joblib")
    code, _, _ = call(*AUDIT, "--model", "rule=m.joblib", "--trust-pickle", "--train", "more.csv")
    assert code == 0
    assert estimate("audit-court", "rule", decisions="score") == pytest.approx(-0.25, abs=1e-9)
    table().assign(job=1.5).to_csv("more.csv", index=False)
    code, _, err = call(*AUDIT, "--model", "rule=m.joblib", "--trust-pickle", "--train", "more.csv", "--output", "o")
    assert code == 2
    assert "'job' is text in court.csv and numbers in more.csv (--train); --text job" in err


class Rule:
    """A model of the features, as scikit-learn has them."""

    classes_ = np.array(["no", "yes"])
    feature_names_in_ = np.array(["sex", "job"], dtype=object)

    def predict_proba(self, X: pd.DataFrame) -> Any:
        jobs = X["job"].map({"none of these": 0, "clerk": 1, "manager": 2}).astype(float)
        p = 0.2 + 0.25 * (X["sex"] == "male") + 0.2 * jobs
        return np.column_stack([1 - p, p])


def test_pickles_only_where_they_are_trusted(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    joblib.dump(Rule(), "m.pkl")
    loaded: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(joblib, "load", lambda file: loaded.append(file) or Rule())
        code, out, err = call(*AUDIT, "--model", "m.pkl")
        assert (code, out, loaded) == (2, "", [])
        assert "'m.pkl' is a pickle, which runs whatever code its author put in it" in err
        assert not Path("audit-court").exists()
        assert call(*AUDIT, "--model", "m.pkl", "--trust-pickle")[0] == 0
        assert loaded == ["m.pkl"]
    Path("broken.pkl").write_bytes(b"broken")
    code, _, err = call(*AUDIT, "--model", "broken.pkl", "--trust-pickle", "--output", "other")
    assert code == 2
    assert "the pickle 'broken.pkl' cannot be used:" in err


def test_models_of_the_package_are_loaded_without_trust(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pf, "load", lambda file: Rule())
    Path("a.pyrofair").write_bytes(b"")
    Path("b.pyrofair").write_bytes(b"")
    code, out, _ = call(*AUDIT, "--model", "a.pyrofair", "other=b.pyrofair", "--score", "p")
    assert code == 0
    assert "Audit of 3 model(s)" in out
    assert estimate("audit-court", "a", decisions="score") == estimate("audit-court", "other", decisions="score")


def test_other_groups_and_missing_values_are_left_out_when_asked(call: Call) -> None:
    df = table()
    df.loc[:9, "sex"] = "unknown to us"
    df.loc[10:14, "job"] = ""
    df["job"] = df["job"].mask((df["job"] == "clerk") & (df["id"] % 2 == 0), "Clerk")
    df.to_csv("court.csv", index=False)
    code, _, err = call(*AUDIT, "--score", "p")
    assert code == 2
    assert "5 of the 600 rows of court.csv have a missing value, in the columns 'job' (5)" in err
    code, _, err = call(*AUDIT, "--score", "p", "--drop-missing")
    assert code == 2
    assert "'unknown to us' is neither --baseline nor --contrast; --drop-other-groups" in err
    code, out, err = call(*AUDIT, "--score", "p", "--drop-missing", "--drop-other-groups")
    assert (code, err) == (0, "")
    assert "Audit of 1 model(s) on 585 rows" in out
    assert (
        "Warning: 5 of 600 rows of court.csv have a missing value, in 'job' (5), and are left out. The numbers" in out
    )
    assert "Warning: 10 rows of court.csv of other groups are left out: 'unknown to us' (10 rows)." in out
    assert "Warning: The column 'job' of court.csv holds 'clerk' and 'Clerk', which are taken for different" in out


def test_missing_values_count_as_values_when_asked(call: Call) -> None:
    df = table()
    df.loc[df.index % 7 == 0, "job"] = ""
    df.loc[:4, "hired"] = ""
    df.to_csv("court.csv", index=False)
    code, _, err = call(*AUDIT, "--score", "p")
    assert code == 2
    assert "--missing-as-value counts those of features as a value" in err
    assert "missing=" not in err
    code, out, err = call(*AUDIT, "--score", "p", "--missing-as-value")
    assert (code, err) == (0, "")
    assert "'hired' is missing in 5 of 600 rows, which accuracy leaves out" in out
    assert "job may be missing, and 'not recorded' counts as a value" in details()
    assert json.loads(Path("audit-court/report.json").read_text())["tables"]["missing"][0]["column"] == "job"
    df.assign(sex=df["sex"].where(df.index > 2, ""), p=df["p"].where(df.index > 1)).to_csv("court.csv", index=False)
    code, _, err = call(*AUDIT, "--score", "p", "--missing-as-value")
    assert code == 2
    assert "in the columns 'sex' (3), 'p' (2)" in err
    code, out, _ = call(*AUDIT, "--score", "p", "--missing-as-value", "--drop-missing", "--overwrite")
    assert code == 0
    assert "on 597 rows" in out


def test_a_node_of_several_columns_latent_nodes_and_files_of_graphs(call: Call) -> None:
    df = table().assign(north=lambda d: (d["id"] % 3 == 0).astype(int), south=lambda d: (d["id"] % 5 == 0).astype(int))
    df.to_csv("court.csv", index=False)
    Path("g.txt").write_text("# what we assume\nsex -> job; {sex job region} -> hired\nU -> sex  \n", encoding="utf-8")
    Path("g.dot").write_text("digraph { sex -> job; {sex job region} -> hired; U -> sex }")
    options = ("--columns", "region=north, south", "--latent", "U", "--score", "p")
    for name in ("g.txt", "g.dot"):
        arguments = [
            "audit",
            "court.csv",
            *QUESTION,
            *options,
            "--source",
            "ipw",
            "--replicates",
            "0",
            "--output",
            name[2:],
        ]
        arguments[arguments.index(GRAPH)] = name
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        assert "north" not in out.split("not used:")[1].splitlines()[0]
    assert json.loads(Path("dot/run.json").read_text())["run"]["files"].keys() == {"court.csv", "g.dot"}


def test_bands_of_numbers_are_subgroups(call: Call) -> None:
    df, rng = table(), np.random.default_rng(5)
    df = df.assign(age=rng.integers(20, 65, len(df)), town=rng.choice(["north", "south"], len(df)))
    df.to_csv("court.csv", index=False)
    logistic = ("--propensity", "logistic", "--regression", "logistic")
    arguments = ["audit", "court.csv", *QUESTION, *logistic, "--score", "p", "--subgroups"]
    arguments[arguments.index(GRAPH)] = "sex -> job; {sex job age town} -> hired"
    code, _, err = call(*arguments, "age")
    assert code == 2
    assert "'age' has 45 levels, more than 20" in err
    assert "--subgroups age=4" in err
    assert "'town' holds categories" in call(*arguments, "town=3")[2]
    assert "the number of bands is one from 2 to 20, such as age=4" in call(*arguments, "age=1")[2]
    assert "'job=2' is made of 'job', which 'sex' causes" in call(*arguments, "job=2")[2]
    assert "made of 'ages', which is no column of the graph. Did you mean 'age'?" in call(*arguments, "ages=4")[2]
    df.assign(age=np.where(np.arange(len(df)) % 40, 30, 60)).to_csv("alike.csv", index=False)
    alike = [each.replace("court.csv", "alike.csv") for each in arguments]
    assert "so many rows have the same 'age' that all fall into one band" in call(*alike, "age=4")[2]
    code, _, err = call(*arguments, "age=3", "town", "--thresholds", ".3", ".7")
    assert (code, err) == (0, "")
    assert sorted(pd.read_csv("audit-court/thresholds.csv")["threshold"].unique()) == [0.3, 0.7]
    found = pd.read_csv("audit-court/subgroups.csv")
    assert sorted(found[found["subgroup"] == "town"]["level"].unique()) == ["north", "south"]
    bands = found[found["subgroup"] == "age=3"]["level"].unique().tolist()
    within = df["age"].groupby(pd.qcut(df["age"], 3), observed=True).agg(["min", "max"]).to_numpy()
    assert bands == [f"{low} to {high}" for low, high in within]
    assert call("audit", "--config", "audit-court/settings.toml", "--overwrite")[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv("audit-court/subgroups.csv"), found)


# --- the gate --------------------------------------------------------------------------------------------------------


def test_the_gate(call: Call) -> None:
    arguments = (*AUDIT, "--score", "p", "--fail-quantity", "mean_unfair_effect")
    code, out, err = call(*arguments, "--fail-above", "0.9")
    assert (code, err) == (0, "")
    assert (
        "Gate, mean_unfair_effect of decisions at most 0.9 up to the end of its interval: passed.\n  p passes:" in out
    )
    code, out, err = call(*arguments, "--fail-above", "0.1", "--output", "b")
    assert code == 3
    assert "failed.\n  p exceeds the limit: mean_unfair_effect reaches up to 0." in err
    assert err.strip() in out
    assert err.strip() in Path("b/report.txt").read_text(encoding="utf-8")
    found = pd.read_csv("b/audit.csv").query("quantity == 'mean_unfair_effect' and decisions == 'threshold'")
    assert f"up to {found[['lower', 'upper']].abs().max(axis=None):.3f}." in err
    assert call(*AUDIT, "--score", "p", "--fail-above", "0.1", "--output", "c")[0] == 3, "PIU's upper bound by default"


def test_a_gate_never_passes_what_was_not_measured(call: Call) -> None:
    df = table()
    df["rare"] = 0.1
    df.loc[0, "rare"] = 0.9
    df.to_csv("court.csv", index=False)
    code, _, err = call(*AUDIT, "--score", "rare", "--fail-above", "0.5")
    assert code == 4
    assert "not passed.\n  rare cannot be judged: none: all but about 1 of the rows get the same decision" in err
    code, _, err = call(*AUDIT, "--score", "rare", "p", "--fail-above", "0.05", "--output", "b")
    assert code == 3, "exceeded by one, it is exceeded"
    assert "rare cannot be judged" in err
    code, _, err = call("audit", "court.csv", *QUESTION, "--source", "ipw", "--replicates", "0", "--score", "p",
                        "--fail-above", "0.5")  # fmt: skip
    assert code == 2
    assert "--fail-above needs intervals, and --replicates 0 makes none" in err


@pytest.fixture(scope="module")
def report() -> pf.Audit:
    df = table()
    unfair = pf.CausalGraph(GRAPH, sensitive="sex", outcome="hired", baseline="male", contrast="female",
                            positive="yes").unfair("sex -> hired")  # fmt: skip
    source = pf.OneStep(unfair, propensity="saturated", regression="saturated", random_state=0)
    return pf.audit({"p": Rule()}, source, df[["sex", "job", "hired"]], random_state=0, progress=False)


def test_what_withholds_a_verdict_cannot_be_judged(report: pf.Audit) -> None:
    from dataclasses import replace

    assert judge(report, 1.0, "piu_upper")[0] == 0
    assert judge(report, 0.0, "piu_upper")[0] == 3
    nothing = report.table.assign(lower=np.nan, upper=np.nan)
    assert judge(replace(report, table=nothing), 1.0, "piu_upper")[0] == 4
    row = (report.table["quantity"] == "piu_paper_bound") & (report.table["decisions"] == "threshold")
    one = report.table.assign(upper=report.table["upper"].mask(row))
    assert judge(replace(report, table=one), 1.0, "piu_upper")[0] == 0
    code, lines = judge(replace(report, table=one), 1.0, "piu_paper_bound")
    assert code == 4
    assert lines[1] == "  p cannot be judged: there is no interval of piu_paper_bound."
    for context, text in [
        ({"doubts": {"p": "a stage is wrong"}}, "withheld: a stage is wrong"),
        ({"small": {"p": ("few rows", "")}}, "few rows"),
        ({"failure": "no world"}, "no world"),
    ]:
        code, lines = judge(replace(report, context=report.context | context), 1.0, "piu_upper")
        assert code == 4
        assert text in lines[1]
    untouched = replace(report, context=report.context | {"untouched": {"p": ("job",)}, "doubts": {"p": "x"}})
    code, lines = judge(untouched, 0.0, "piu_upper")
    assert (code, lines[1]) == (
        0,
        "  p passes: by the graph it has no unfair effect, for it reads job only.",
    )


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is nothing to audit: name columns of scores, --score COLUMN, or models, --model FILE"),
        (("--score", "pp"), r"no column 'pp' \(--score\)\. It has: .*Did you mean 'p'"),
        (("--score", "decided"), r"the scores 'decided' are text: 'denied' .*--score-positive VALUE"),
        (("--score", "three", "--score-positive", "granted"), "'three' have more than two values: .*'pending'"),
        (("--score", "w"), r"the scores 'w' hold \d+ value\(s\) outside \[0, 1\], such as 2"),
        (("--score", "p", "--positive", "Yes"), "--positive 'Yes' is no value of .*mean --positive yes"),
        (("--score", "p", "--contrast", "Female"), "--contrast 'Female' is no value.*Did you mean --contrast female"),
        (("--score", "p", "--contrast", "male"), "'male', which is the baseline"),
        (("--score", "p", "--train", "court.csv"), "--train fits the source on other rows.*--score p, .*--model FILE"),
        (("--score", "p", "--columns", "sex=se'x"), "--columns 'sex=sex'; one never"),
        (("--score", "p", "--weight", "ww"), r"no column 'ww' \(--weight\)"),
        (("--score", "p", "--trim", ".1"), "--trim belongs to --source ipw, and not to --source onestep"),
        (("--score", "p", "--replicates", "9"), "--replicates belongs to --source ipw or gcomputation"),
        (("--score", "p", "--fail-quantity", "piu_lower"), "--fail-quantity needs a limit"),
        (("--score", "p", "p"), "'p' is named twice"),
        (("--model", "absent.pyrofair"), "there is no file 'absent.pyrofair'"),
        (("--model", "court.csv", "x=court.csv", "--scores", "outcome"), "--scores describes columns of scores"),
        (("--score", "p", "--graph", "sex -> hired; sexx -> hired"), "no column 'sexx'.*the node 'sexx'.*--latent"),
        (("--score", "p", "--graph", "g.txt"), "--graph 'g.txt': there is no file 'g.txt' .*has arrows"),
        (("--score", "p", "--unfair", "sex -> jb -> hired"), "'jb'"),
        (("--score", "p", "--columns", "job"), "--columns 'job' must name a node and its columns"),
        (("--score", "p", "--output", "a\udcff"), r"--output 'a\\udcff' holds '\\udcff', a byte or half"),
        (("--score", "p\ud800"), r"--score 'p\\ud800' holds"),
        (("--score", "p", "--output", "x" * 300), "folder='x+'.*cannot be the path of a folder.*300 bytes"),
        (("--score", "p", "--output", "x\0"), "cannot be the path of a folder.*NUL"),
        (("--score", "p", "--source", "ipw", "--train", "x" * 300), "is no file: it has a name of 300 bytes"),
        (("--model", "x" * 300), "--model: 'x+'.*is no file: it has a name of 300 bytes"),
        (("--score", "p", "--graph", "x" * 300), "is no file: it has a name of 300 bytes.*has arrows"),
        (("--score", "p", "--config", "x" * 300), "file of settings 'x+' cannot be read"),
        (("--score", "p", "--encoding", "a\0b"), r"--encoding 'a\\x00b' is no encoding of text"),
        (("--score", "p", "--encoding", "hex"), "--encoding 'hex' is no encoding of text"),
        (("--score", "p", "--separator", "é"), "--separator 'é' must be one character of ASCII"),
        (("--score", "p", "--separator", '"'), "--separator '\"' must be one character of ASCII"),
        (("--score", "p", "--baseline", "9" * 5000), "--baseline '9+.* is no value of the column 'sex'"),
        (("--score", "p", "--seed", "9" * 5000), "--seed"),
        (("--score", "p", "--proxy", "ww"), r"no column 'ww' \(--proxy\)"),
        (("--score", "p", "--proxy", "w", "--source", "ipw"), "--proxy is for --source onestep"),
        (("--score", "p", "--proxy", "w", "--drop-other-groups"), "--proxy.*--drop-other-groups"),
        (("--score", "p", "--explain", "--order", "nobody"), "--order must name each node"),
        (("--score", "p", "--flips", "flips.csv"), "--flips.*--score p.*--model FILE"),
        (("--model", "court.csv", "--flips", "audit.csv"), "--flips 'audit.csv' must be the name of a further CSV"),
        (("--model", "court.csv", "--flips", "a/flips.csv"), "--flips 'a/flips.csv' must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_any_work(call: Call, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = call(*AUDIT, *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err), err
    assert "Traceback" not in err
    assert not Path("audit-court").exists()


def test_what_is_not_named_is_asked(call: Call) -> None:
    bare = ["audit", "court.csv", "--graph", GRAPH, "--sensitive", "sex", "--outcome", "hired", "--score", "p", *FAST]
    for more, message in [
        ([], "no path is called unfair. From 'sex' to 'hired' there are: sex -> job -> hired; sex -> hired."),
        (["--direct"], "--baseline male --contrast female"),
        (["--direct", "--contrast", "female"], "the outcome 'hired' of court.csv holds 'yes'"),
    ]:
        code, _, err = call(*bare, *more)
        assert code == 2
        assert message in err
    code, _, err = call(*bare, "--direct", "--contrast", "female", "--positive", "yes")
    assert (code, err) == (0, "")
    assert "0 is 'male', 1 is 'female'" in details()
    code, _, err = call("audit", "--score", "p", "court.csv", *QUESTION)
    assert code == 2
    assert "DATA comes before the options" in err


def doubled(df: pd.DataFrame) -> pd.DataFrame:
    """Rows of two groups that share no job, each twice, with ages that hardly repeat."""
    df = df[:300].assign(sex=lambda df: np.where(df["job"] == "clerk", "male", "female"), age=np.arange(300) + 0.5)
    return pd.concat([df, df])


AGED = ("--graph", "{sex age} -> job; {sex job age} -> hired")


@pytest.mark.parametrize(
    ("change", "options", "code", "parts"),
    [
        (lambda df: df.drop(columns="hired"), (), 0, ["no column 'hired', the outcome: accuracy is not available"]),
        (
            lambda df: df.assign(p=(1 - df["p"]).round(3)),
            (),
            0,
            ["Warning: The scores of 'p' run against the outcome: of a row with 'hired' = 'yes'"],
        ),
        (
            lambda df: df.assign(job="clerk"),
            ("--scores", "outcome"),
            0,
            ["Warning: The column 'job' of court.csv holds 'clerk' (600 rows) and no other value."],
        ),
        (
            doubled,
            AGED,
            4,
            [
                "\nWarning: 600 of 600 rows repeat another one in all 4 columns (sex, age, job, hired), though 'age'",
                "If one unit stands there several times, keep it once in the file, ",
            ],
        ),
    ],
    ids=["no outcome", "scores of the other label", "one value", "a refusal and the warnings before it"],
)
def test_what_a_table_lacks_is_told(call: Call, change: Any, options: tuple[str, ...], code: int, parts: Any) -> None:
    change(table()).to_csv("court.csv", index=False)
    found, out, err = call(*AUDIT, "--score", "p", *options)
    assert found == code, err
    assert [part for part in parts if part not in (err if code else out)] == []


def test_each_warning_is_in_the_report_and_printed_once(call: Call) -> None:
    df = table()
    df["job"] = df["job"].mask((df["job"] == "clerk") & (df["id"] % 2 == 0), "Clerk")
    df.assign(p=(1 - df["p"]).round(3)).to_csv("court.csv", index=False)
    code, out, err = call(*AUDIT, "--score", "p")
    assert (code, err) == (0, "")
    found = json.loads(Path("audit-court/report.json").read_text(encoding="utf-8"))["warnings"]
    page = Path("audit-court/report.html").read_text(encoding="utf-8")
    for part in ("taken for different categories", "run against the outcome"):
        assert out.count(part) == 1
        assert len([text for text in found if part in text]) == 1
        assert part in page


FORMULA = "=cmd|' /C calc'!A1"


def test_no_table_of_a_folder_holds_a_formula(call: Call) -> None:
    df = table().rename(columns={"p": FORMULA})
    df.assign(town=np.where(df["id"] % 2, FORMULA, "b")).to_csv("court.csv", index=False)
    arguments = [*AUDIT, "--score", FORMULA, "--subgroups", "town"]
    arguments[arguments.index(GRAPH)] = "sex -> job; {sex job town} -> hired"
    code, _, err = call(*arguments)
    assert (code, err) == (0, "")
    texts = {path.name: path.read_text(encoding="utf-8") for path in Path("audit-court").glob("*.csv")}
    assert {"audit.csv", "subgroups.csv"} <= {name for name, text in texts.items() if f"'{FORMULA}" in text}
    assert [name for name, text in texts.items() if re.search(f'(^|,|")({re.escape(FORMULA)})', text, re.M)] == []


def test_flips_are_written_without_formulas(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pf, "load", lambda file: Rule())
    Path("a.pyrofair").write_bytes(b"")
    df = table().replace({"sex": {"female": "=1+1"}})
    df.to_csv("court.csv", index=False)
    arguments = [{"female": "=1+1"}.get(each, each) for each in (*AUDIT, "--model", "a.pyrofair")]
    code, out, err = call(*arguments, "--flips", "flips.csv")
    assert (code, err) == (0, "")
    assert "flips.csv" in out
    found = pd.read_csv("audit-court/flips.csv")
    jobs = df["job"].map({"none of these": 0, "clerk": 1, "manager": 2}) * 0.2
    flip = (0.2 + jobs > 0.5) != (0.45 + jobs > 0.5)
    assert found["row"].tolist() == (df.index[flip] + 1).tolist()  # as a file counts them
    assert found["sex"].tolist() == df.loc[flip, "sex"].replace("=1+1", "'=1+1").tolist()
    through = [{"sex -> hired": "sex -> job -> hired"}.get(each, each) for each in arguments]
    code, _, err = call(*through, "--flips", "flips.csv", "--output", "other")
    assert code == 2
    assert "'a' reads 'job'" in err
    assert "--source gcomputation" in err
    assert not Path("other").exists()


def test_flips_that_no_row_shows_are_estimated_by_learned_mechanisms(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pf, "load", lambda file: Rule())
    Path("a.pyrofair").write_bytes(b"")
    table().to_csv("court.csv", index=False)
    through = [{"sex -> hired": "sex -> job -> hired"}.get(each, each) for each in ("court.csv", *QUESTION)]
    by = ("--source", "gcomputation", "--draws", "2", "--replicates", "0")
    code, _, err = call("audit", *through, *by, "--model", "a.pyrofair", "--flips", "flips.csv")
    assert (code, err) == (0, "")
    found = pd.read_csv("audit-court/flips.csv")
    whole = pd.read_csv("audit-court/audit.csv").set_index(["decisions", "quantity"])["estimate"]["threshold"]
    share = found["flips"].sum() / 600  # all nodes of a unit keep their noise
    assert whole["piu_lower"] - 0.05 < share < whole["piu_upper"] + 0.05
    assert found["flips"].between(0.0, 1.0).all()


@pytest.mark.parametrize("name", ["court.csv", "court.parquet"])
def test_the_sensitive_attribute_may_be_missing_beside_proxies(call: Call, name: str) -> None:
    rng, df = np.random.default_rng(1), table()
    df["name score"] = (0.3 * (df["sex"] == "male") + 0.7 * rng.random(600)).round(3)
    df["sex"] = df["sex"].where(rng.random(600) < 0.6)
    getattr(df, "to_csv" if name.endswith("csv") else "to_parquet")(name, index=False)
    arguments = [name if each == "court.csv" else each for each in AUDIT]
    code, _, err = call(*arguments, "--score", "p")
    assert code == 2
    assert "'sex'" in err
    assert "--proxy COLUMN" in err
    code, _, err = call(*arguments, "--score", "p", "--proxy", "name score")
    assert (code, err) == (0, "")
    assert f"'sex' is known in {df['sex'].notna().sum()} of 600 rows" in details()
    assert "through the features, name score and the scores" in details()
    assert pd.read_csv("audit-court/disclosure.csv")["rows"].sum() in (600, 1200)


def test_scores_in_single_precision_are_cut_as_those_in_double(call: Call) -> None:
    found = []
    for dtype in (np.float64, np.float32):
        table().astype({"p": dtype}).to_parquet("court.parquet")
        how = (*QUESTION, *FAST, "--score", "p", "--threshold", ".45", "--output", dtype.__name__)
        assert call("audit", "court.parquet", *how)[0] == 0
        found.append(estimate(dtype.__name__, "p"))
    assert found[0] == found[1] != 0.0


def races(n: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    race = rng.choice(["White", "Black", "Asian", "Other"], n, p=[0.4, 0.3, 0.27, 0.03])
    job = (rng.random(n) < 0.3 + 0.3 * (race == "Black")).astype(int)
    p = (0.2 + 0.3 * job + 0.25 * (race == "Asian")).round(2)
    return pd.DataFrame({"race": race, "job": job, "hired": (rng.random(n) < p).astype(int), "p": p, "q": p})


RACES = ("--graph", "race -> job; {race job} -> hired", "--sensitive", "race", "--outcome", "hired", "--direct")


def test_several_values_are_compared_with_the_baseline(call: Call) -> None:
    df = races()
    df.to_csv("races.csv", index=False)
    asked = ("audit", "races.csv", *RACES, *FAST, "--score", "p")
    white = f"'White' ({(df['race'] == 'White').sum()} rows)"
    for more, part in (((), "--baseline White --contrast all"), (("--contrast", "all"), "needs --baseline")):
        code, _, err = call(*asked, *more)
        assert (code, part in err, white in err) == (2, True, True)
    asked = (*asked, "--baseline", "White", "--threshold", "0.4")
    code, out, _ = call(*asked, "--contrast", "all", "--fail-above", "0.1", "--subgroups", "job", "--overwrite")
    assert code == 2  # race causes job
    code, out, _ = call(*asked, "--contrast", "all", "--fail-above", "0.1", "--thresholds", "0.3")
    folder = Path("audit-races")
    unfair = pf.CausalGraph(RACES[1], sensitive="race", outcome="hired", baseline="White").unfair(direct=True)
    source = pf.OneStep(unfair, propensity="saturated", regression="saturated", random_state=0)
    rows = df.drop(columns=["p", "q"])
    report = pf.audit({"p": df["p"]}, source, rows, scores="outcome", threshold=0.4, thresholds=[0.3], random_state=0)
    for name, table in (("audit", report.table), ("thresholds", report.thresholds), ("worst", report.worst)):
        written = pd.read_csv(folder / f"{name}.csv").fillna({"note": ""})
        pd.testing.assert_frame_equal(written, table.reset_index(drop=True), check_dtype=False, rtol=1e-9)
    rates = pd.read_csv(folder / "rates.csv").set_index(["contrast", "group", "quantity"])["estimate"]
    for each, own in df.assign(yes=df["p"] > 0.4).groupby("race")["yes"]:
        of = "Asian" if each == "White" else each
        assert rates[of, each, "selection_rate"] == pytest.approx(own.mean(), abs=1e-12)
        assert len(re.findall(rf"^p +race={each} +{len(own)} ", details(str(folder)), re.MULTILINE)) == 1
    upper = report.table.query("quantity == 'piu_upper' and decisions == 'threshold'").set_index("contrast")["upper"]
    assert code == (3 if upper.max() > 0.1 else 0) == 3
    for name, most in upper.items():
        assert f"  p, {name!r} {'exceeds the limit' if most > 0.1 else 'passes'}: piu_upper" in out
    assert 'contrast = ["all"]' in (folder / "settings.toml").read_text()
    assert call("audit", "--config", str(folder / "settings.toml"))[0] == code
    worst = float(upper.max())
    assert call(*asked, "--contrast", "all", "--overwrite", "--fail-above", f"{worst + 0.001:.6f}")[0] == 0
    assert call(*asked, "--contrast", "all", "--overwrite", "--fail-above", f"{worst - 0.001:.6f}")[0] == 3
    code, out, _ = call(*asked, "--contrast", "Black", "Asian", "--overwrite")
    assert (code, "2 contrast(s)" in out, "'Other'" in out) == (0, True, False)
    df.assign(race=df["race"].where(df.index > 3, "Rare")).to_csv("races.csv", index=False)
    code, out, _ = call(*asked, "--contrast", "all", "--overwrite", "--fail-above", "0.999")
    assert (code, "p, 'Rare' cannot be judged" in out) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("audit", "--contrast", "Blakc", "Asian", "--score", "p"), "Did you mean --contrast Black"),
        (("audit", "--contrast", "Black", "White", "--score", "p"), "'White', which is the baseline"),
        (("audit", "--contrast", "all", "--score", "p", "--drop-other-groups"), "--drop-other-groups"),
        (("audit", "--contrast", "all", "--model", "races.csv", "--train", "races.csv"), "--train"),
        (("audit", "--contrast", "all", "--score", "p", "--sensitivity"), "--sensitivity: for two groups"),
        (("path", "--contrast", "all"), "pyrofair path compares two values"),
        (("audit", "--contrast", "all", "--score", "p", "--one-hot", "job=p,q"), "'job'"),
    ],
)
def test_contrasts_that_do_not_fit_are_refused(call: Call, arguments: tuple[str, ...], part: str) -> None:
    races().to_csv("races.csv", index=False)
    code, _, err = call(arguments[0], "races.csv", *RACES, "--baseline", "White", *arguments[1:])
    assert (code, part in err) == (2, True), err


def test_codes_have_labels_in_reports_and_stay_codes_in_files(call: Call) -> None:
    codes = {"White": 0, "Black": 1, "Asian": 2, "Other": 3}
    df = races()
    df.assign(race=df["race"].map(codes)).to_csv("races.csv", index=False)
    asked = ("audit", "races.csv", *RACES, *FAST, "--score", "p", "--baseline", "0", "--contrast", "all")
    code, out, _ = call(*asked, "--labels", "0=White", "1=Black", "2=a=b")
    assert (code, "p, 'Black': " in out, "p, 'a=b': " in out, "p, 3: " in out) == (0, True, True, True)
    assert {*pd.read_csv("audit-races/audit.csv")["contrast"]} == {1, 2, 3}
    for labels, part in (
        (["0"], "--labels '0' must be VALUE=LABEL"),
        (["4=x"], "--labels '4' is no value of the column 'race'"),
        (["0=x", "0.0=y"], "'0.0' two labels, 'x' and 'y'"),
        (["0=x", "1=x"], "look alike"),
        (["0=x,1=y"], "'0=x,1=y' holds several: separate them by blanks"),
    ):
        code, _, err = call(*asked, "--labels", *labels)
        assert (code, part in err) == (2, True), err
    code, out, err = call(*asked[:-1], "1", "--drop-other-groups", "--output", "two", "--labels", "0=White", "2=Asian")
    assert (code, "White" in out, "Asian" in out) == (0, True, False), err
    code, out, _ = call("check", *asked[1:8], "--labels", "3=Other")
    assert code == 0
    code, out, _ = call("identify", *RACES, "--labels", "0=White")
    assert (code, "race=0 is 'White' (coded 0), 1 is 1" in out) == (0, True)


def test_one_hot_columns_are_one_attribute(call: Call) -> None:
    df = races()
    hot = pd.get_dummies(df["race"], dtype=int)
    table = pd.concat([hot, df.drop(columns="race")], axis=1)
    table.to_csv("hot.csv", index=False)
    joblib.dump(LogisticRegression().fit(table[[*hot, "job"]], table["hired"]), "m.joblib")
    model = ("--model", "m.joblib", "--trust-pickle", "--baseline", "White", "--contrast", "all", *FAST)
    code, _, _ = call("audit", "hot.csv", *RACES, *model, "--one-hot", "race=Asian,Black,Other,White")
    found = pd.read_csv("audit-hot/audit.csv")
    crossed = pf.from_one_hot(table, pf.CausalGraph(RACES[1], sensitive="race", outcome="hired", baseline="White"),
                              ["Asian", "Black", "Other", "White"])  # fmt: skip
    source = pf.OneStep(crossed.graph.unfair(direct=True), propensity="saturated", regression="saturated",
                        random_state=0)  # fmt: skip
    rows = crossed.frame.drop(columns=["p", "q"])
    same = pf.audit({"m": crossed.model(joblib.load("m.joblib"))}, source, rows, random_state=0)
    assert code == 0
    np.testing.assert_allclose(found["estimate"], same.table["estimate"], rtol=1e-9)
    question = ("audit", "hot.csv", *RACES, "--score", "p", *model[3:], "--overwrite")
    white = f"{hot['White'].sum()} of 900 rows"
    code, _, err = call(*question, "--one-hot", "race=Asian,Black,Other")
    assert (code, white in err, "other=" in err) == (2, True, True)
    code, out, _ = call(*question, "--one-hot", "race=Asian,Black,Other,other=White")
    assert (code, f"baseline 'White' ({hot['White'].sum()} rows)" in out) == (0, True)
    train = ("--epochs", "2", "--starts", "1", "--penalty", "effect_gap", "--baseline", "White", "--contrast", "all")
    one_hot = ("--one-hot", "race=Asian,Black,Other,White")
    assert call("train", "hot.csv", *RACES, *train, "--model", "logistic", *one_hot)[0] == 0
    classifier = pf.load("train-hot/model.pyrofair")
    assert list(classifier.feature_names_in_) == ["race", "job"]
    saved = ("--model", "train-hot/model.pyrofair", *one_hot, "--output", "trained")
    assert call("audit", "hot.csv", *RACES, *model[3:], *saved)[0] == 0


def test_groups_are_a_column_outside_the_graph(call: Call) -> None:
    table().assign(town=np.arange(600) % 60).to_csv("court.csv", index=False)
    code, *_ = call("audit", "court.csv", *QUESTION, *FAST, "--score", "p", "--groups", "town")
    assert code == 0
    assert "60 groups (largest 10 rows" in details()
    rates = pd.read_csv("audit-court/rates.csv").set_index(["group", "quantity"])
    assert rates.loc[("female", "selection_rate"), "lower"] < rates.loc[("female", "selection_rate"), "estimate"]
    settings = json.loads(Path("audit-court/report.json").read_text())["settings"]
    assert settings["groups"] == "town"
    for name, words in (("job", "'job' is a column of the graph"), ("city", "city")):
        code, _, err = call("audit", "court.csv", *QUESTION, *FAST, "--score", "p", "--groups", name)
        assert code == 2
        assert words in err
