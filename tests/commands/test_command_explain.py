"""``pyrofair explain``, and the same part of an audit's report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

Call = Callable[..., tuple[int, str, str]]
ROLES = ("--graph", "skill; {sex skill} -> job; {sex skill job} -> hired", "--sensitive", "sex", "--outcome", "hired",
         "--baseline", "male", "--contrast", "female", "--positive", "yes", "--score", "p")  # fmt: skip
FAST = ("--propensity", "saturated", "--regression", "saturated")


@pytest.fixture
def call(call_here: Call, no_pictures: None) -> Call:
    """Run a command beside a table."""
    rng = np.random.default_rng(0)
    female, skill = rng.random(600) < 0.5, rng.integers(0, 2, 600)
    manager = rng.random(600) < 0.4 + 0.2 * skill - 0.2 * female
    p = (0.3 + 0.2 * skill + 0.2 * manager - 0.2 * female).round(3)
    table = pd.DataFrame({"sex": np.where(female, "female", "male"), "skill": skill, "p": p})
    table["job"] = np.where(manager, "manager", "clerk")
    table["hired"] = np.where(rng.random(600) < p, "yes", "no")
    table.to_csv("t.csv", index=False)
    return call_here


def test_the_parts_of_a_column_of_scores(call: Call) -> None:
    code, out, _ = call("explain", "t.csv", *ROLES, *FAST)
    assert code == 0
    table = pd.read_csv("explain-t/parts.csv")
    own = table[(table["model"] == "p") & (table["decisions"] == "score")].set_index("part")["estimate"]
    assert own.drop(["gap", "total effect"]).sum() == pytest.approx(own["gap"], abs=1e-12)
    assert own["directly"] == pytest.approx(-0.2, abs=1e-9)
    for name in ("confounding", "by way of job", "directly", "in the data"):
        assert name in out
    assert {*table["model"]} == {"p", "hired, observed"}
    assert json.loads(Path("explain-t/report.json").read_text())["schema"] == "pyrofair-decomposition"
    assert {"report.html", "contrasts.csv", "means.csv", "differences.csv"} <= {
        each.name for each in Path("explain-t").iterdir()
    }


def test_one_order_and_unfair_paths(call: Call) -> None:
    code, out, _ = call("explain", "t.csv", *ROLES, *FAST, "--order", "hired", "job", "--overwrite")
    assert code == 0
    assert "by order" not in out
    code, out, _ = call("explain", "t.csv", *ROLES, *FAST, "--direct", "--overwrite", "--output", "other")
    assert code == 0
    assert "unfair paths" in pd.read_csv("other/parts.csv")["part"].to_numpy()
    code, _, err = call("explain", "t.csv", *ROLES, *FAST, "--order", "job", "--output", "third")
    assert code == 2
    assert "hired" in err


def test_a_report_of_an_audit_says_where_the_gap_comes_from(call: Call) -> None:
    code, out, _ = call("audit", "t.csv", *ROLES, *FAST, "--direct", "--explain")
    assert code == 0
    assert "by way of job" in out
    page = Path("audit-t/report.html").read_text()
    contents = page.split('<nav aria-label="Contents">')[1].split("</nav>")[0]
    assert contents.index("#graph") < contents.index("#parts") < contents.index("#worlds")
    assert page.index('id="parts"') < page.index('id="waterfall-0-title"') < page.index('id="worlds"')
    assert pd.read_csv("audit-t/parts.csv")["smallest"].notna().any()
    ordered = ("audit", "t.csv", *ROLES, *FAST, "--direct", "--order", "hired", "job", "--overwrite")
    assert call(*ordered, "--explain")[0] == 0
    assert pd.read_csv("audit-t/parts.csv")["smallest"].isna().all()
    code, _, err = call(*ordered)
    assert (code, "--explain" in err) == (2, True)


def test_each_group_is_compared_with_the_baseline(call: Call) -> None:
    table = pd.read_csv("t.csv")
    table["sex"] = table["sex"].where(table.index % 5 > 0, "other")
    table.to_csv("t.csv", index=False)
    roles = (*ROLES[:8], *ROLES[10:], *FAST, "--direct")
    code, out, _ = call("explain", "t.csv", *roles, "--contrast", "all")
    assert (code, "sex=other" in out, "sex=female" in out) == (0, True, True)
    parts = pd.read_csv("explain-t/parts.csv")
    assert list(parts)[:2] == ["contrast", "model"]
    assert {*parts["contrast"]} == {"female", "other"}
    hot = pd.concat([pd.get_dummies(table["sex"], dtype=int), table.drop(columns="sex")], axis=1)
    hot.to_csv("hot.csv", index=False)
    asked = ("--one-hot", "sex=male,female,other", "--contrast", "other", "female")
    assert call("explain", "hot.csv", *roles, *asked)[0] == 0
    same = pd.read_csv("explain-hot/parts.csv").set_index(["contrast", "model", "decisions", "part"])
    pd.testing.assert_frame_equal(same.sort_index(), parts.set_index(same.index.names).sort_index())
    code, out, _ = call("audit", "t.csv", *roles, "--contrast", "all", "--explain")
    assert code == 0
    pd.testing.assert_frame_equal(pd.read_csv("audit-t/parts.csv"), parts)
    assert Path("audit-t/report.html").read_text().count('id="waterfall-0-title"') == 1


def test_parts_count_gaps_and_are_of_whole_groups(call: Call) -> None:
    table = pd.read_csv("t.csv")
    table.loc[::9, "job"] = None
    twice = pd.concat([table.assign(home=range(len(table)))] * 2)
    twice.to_csv("t.csv", index=False)
    widths = []
    for name, more in (("rows", ()), ("homes", ("--groups", "home"))):
        code, _, _ = call("audit", "t.csv", *ROLES, *FAST, "--direct", "--explain", "--missing-as-value", *more,
                          "--output", f"audit-{name}")  # fmt: skip
        parts = pd.read_csv(f"audit-{name}/parts.csv")
        assert code == 0
        assert (
            call("explain", "t.csv", *ROLES, *FAST, "--direct", "--missing-as-value", *more, "--output", name)[0] == 0
        )
        pd.testing.assert_frame_equal(pd.read_csv(f"{name}/parts.csv"), parts)
        gap = parts[(parts["part"] == "gap") & (parts["decisions"] == "threshold")].iloc[0]
        widths.append(gap["upper"] - gap["lower"])
    assert widths[1] > 1.2 * widths[0]


def test_the_outcome_as_a_score_is_split_once(call: Call) -> None:
    assert call("explain", "t.csv", *ROLES[:-1], "hired", *FAST)[0] == 0
    assert {*pd.read_csv("explain-t/parts.csv")["model"]} == {"hired"}
