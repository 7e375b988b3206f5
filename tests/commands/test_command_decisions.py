"""Columns of scores on other scales, low scores for yes, and outcomes of several values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

Call = Callable[..., tuple[int, str, str]]
QUESTION = ("audit", "t.csv", "--graph", "A -> M; {A M} -> Y", "--sensitive", "A", "--outcome", "Y", "--direct",
            "--propensity", "saturated", "--regression", "saturated")  # fmt: skip


@pytest.fixture
def call(call_here: Call, no_pictures: None) -> Call:
    """Run a command beside a table."""
    table().to_csv("t.csv", index=False)
    return call_here


def table(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    m = (rng.random(n) < 0.3 + 0.4 * a).astype(int)
    decile = np.clip(1 + 3 * m + 2 * a + rng.integers(0, 4, n), 1, 10)
    p = (decile - 1) / 9
    y = np.where(rng.random(n) < p, 1, 0)
    stars = np.where(y == 1, 3, rng.integers(1, 3, n))
    verdict = np.where(decile > 5, "granted", np.where(decile > 3, "pending", "denied"))
    return pd.DataFrame({"A": a, "M": m, "Y": y, "decile": decile, "p": p, "q": 1 - p, "stars": stars,
                         "verdict": verdict})  # fmt: skip


def numbers(output: str) -> pd.DataFrame:
    return pd.read_csv(Path(output) / "audit.csv").drop(columns="model")


@pytest.mark.parametrize(
    ("column", "options", "threshold", "decided"),
    [
        ("decile", ("--score-scale", "1", "10"), ("--threshold", "4"), lambda df: df["decile"] > 4),
        ("decile", ("--score-scale", "1", "10"), (), lambda df: df["decile"] > 5.5),
        ("q", ("--score-negative",), ("--threshold", ".4"), lambda df: df["q"] < 0.4),
        ("decile", ("--score-scale", "1", "10", "--score-negative"), ("--threshold", "5"), lambda df: df["decile"] < 5),
    ],
)
def test_scores_of_another_scale(
    call: Call,
    column: str,
    options: tuple[str, ...],
    threshold: tuple[str, ...],
    decided: Callable[[pd.DataFrame], pd.Series],
) -> None:
    code, out, _ = call(*QUESTION, "--score", column, *options, *threshold)
    assert code == 0
    assert "Scores run from" in out
    df = table()
    df.assign(own=decided(df).astype(int)).to_csv("t.csv", index=False)
    assert call(*QUESTION, "--score", "own", "--output", "own")[0] == 0
    one, other = (numbers(each).query("decisions == 'threshold'") for each in ("audit-t", "own"))
    pd.testing.assert_frame_equal(one, other)
    again = call("audit", "--config", "audit-t/settings.toml", "--overwrite")
    assert again[0] == 0
    pd.testing.assert_frame_equal(numbers("audit-t").query("decisions == 'threshold'"), one)


def test_a_scale_makes_probabilities_by_a_line(call: Call) -> None:
    call(*QUESTION, "--score", "decile", "--score-scale", "1", "10", "--thresholds", "3", "7")
    call(*QUESTION, "--score", "p", "--output", "p", "--thresholds", str(2 / 9), str(6 / 9))
    pd.testing.assert_frame_equal(numbers("audit-t"), numbers("p"))
    one, other = (pd.read_csv(f"{each}/thresholds.csv").drop(columns="model") for each in ("audit-t", "p"))
    pd.testing.assert_frame_equal(one, other)


def test_the_rest_is_no(call: Call) -> None:
    outcome = ("--outcome", "stars", "--positive", "3", "--graph", "A -> M; {A M} -> stars")
    code, _, err = call(*QUESTION, *outcome, "--score", "p")
    assert code == 2
    assert "--rest-is-no" in err
    code, out, _ = call(*QUESTION, *outcome, "--score", "p", "--rest-is-no")
    assert code == 0
    assert "(--rest-is-no)" in out
    call(*QUESTION, "--score", "p", "--output", "plain")
    pd.testing.assert_frame_equal(numbers("audit-t"), numbers("plain"))


def test_the_rest_is_no_without_an_outcome_and_where_all_say_yes(call: Call) -> None:
    ipw = ("--source", "ipw", "--replicates", "0", "--train", "train.csv")
    rest = (*QUESTION[:-4], *ipw, "--score", "p", "--positive", "1", "--rest-is-no")
    for name, other in (("none", table().drop(columns="Y")), ("yes", table().assign(Y=1))):
        other.to_csv("t.csv", index=False)
        table().assign(Y=table()["stars"]).to_csv("train.csv", index=False)
        code, out, _ = call(*rest, "--output", name)
        assert code == 0
        assert "(--rest-is-no)" not in out


def test_decisions_of_several_values(call: Call) -> None:
    verdict = (*QUESTION, "--score", "verdict", "--score-positive", "granted")
    code, _, err = call(*verdict)
    assert code == 2
    assert "--rest-is-no" in err
    assert call(*verdict, "--rest-is-no")[0] == 0
    table().assign(own=(table()["verdict"] == "granted").astype(int)).to_csv("t.csv", index=False)
    call(*QUESTION, "--score", "own", "--output", "own")
    pd.testing.assert_frame_equal(numbers("audit-t"), numbers("own"))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--score", "decile"), ["'decile'", "outside [0, 1]", "--score-scale"]),
        (("--score", "decile", "--score-scale", "1", "5"), ["outside [1, 5]"]),
        (("--score", "decile", "--score-scale", "10", "1"), ["--score-scale 10 1"]),
        (("--score", "decile", "--score-scale", "1"), ["--score-scale 1 must"]),
        (("--score", "decile", "--score-scale", "1", "10", "--threshold", "10"), ["threshold 10"]),
        (("--score", "q", "--score-negative", "--threshold", "0"), ["threshold 0"]),
        (("--score", "p", "--thresholds", "2"), ["threshold 2"]),
        (("--score", "p", "--model", "t.csv", "--score-negative"), ["--score-negative", "models"]),
        (("--score", "verdict", "--score-positive", "granted", "--score-negative"), ["--score-positive"]),
    ],
)
def test_scales_that_do_not_fit(call: Call, arguments: tuple[str, ...], parts: list[str]) -> None:
    code, _, err = call(*QUESTION, *arguments)
    assert code == 2
    assert [part for part in parts if part not in err] == []
