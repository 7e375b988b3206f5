from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC
from torch import nn

import pyrofair as pf
from pyrofair.effects.scoring import decide, positive_scores
from pyrofair.exceptions import DataError
from tests.models import Known

RNG = np.random.default_rng(0)
A, Q = RNG.integers(0, 2, 400), RNG.integers(0, 3, 400)
M = (RNG.random(400) < (0.3 + 0.4 * A)).astype(int)
Y = np.where(RNG.random(400) < 0.2 + 0.2 * A + 0.4 * M, "yes", "no")
TABLE = pd.DataFrame({"A": A, "Q": Q, "M": M, "Y": Y})
X = TABLE[["A", "Q", "M"]]
GRAPH = pf.CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y", positive="yes")
PREFIX: dict[str, Any] = {"propensity": "saturated", "regression": "saturated", "random_state": 0}


def one_step(*paths: str) -> pf.OneStep:
    return pf.OneStep(GRAPH.unfair(*(paths or ("A -> Y",))), **PREFIX)


def rule(rows: pd.DataFrame) -> NDArray[Any]:
    return np.where((rows["M"] + rows["A"]) > 1, "yes", "no")


class Slow(nn.Module):
    """A network with dropout that lets other threads run inside it, around layers that others may share."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.dropout = inner, nn.Dropout(0.5)

    def forward(self, rows: torch.Tensor) -> Any:
        first = self.inner(rows)
        time.sleep(0.001)
        return self.dropout(first)


def test_threads_score_modules_that_share_layers_in_evaluation_mode() -> None:
    shared = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5))
    modules = [Slow(shared).train(), Slow(shared).train()]
    shared[0].eval()
    modules[1].dropout.eval()
    modes = [[each.training for each in module.modules()] for module in modules]
    models = [pf.ScoresOf(module, returns="logit") for module in modules]
    expected = [positive_scores("m", model, X, GRAPH) for model in models]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: (i % 2, positive_scores("m", models[i % 2], X, GRAPH)), range(60)))
    assert all(np.array_equal(scores, expected[i]) for i, scores in found)
    assert [[each.training for each in module.modules()] for module in modules] == modes


def test_numbers_of_a_module_keep_their_precision_for_decisions() -> None:
    """Log-odds at a threshold do not exceed it, and numbers of brain precision are read."""
    odds = torch.tensor([0.3, 0.7, 0.8]).logit().repeat(len(X))[: len(X)]
    found = positive_scores("m", pf.ScoresOf(lambda rows: odds, returns="logit"), X, GRAPH)
    assert found.dtype == np.float32
    assert decide(found, "threshold", 0.7).tolist() == (odds.sigmoid() > 0.7).double().tolist()
    brief = odds.sigmoid().bfloat16()
    found = positive_scores("m", pf.ScoresOf(lambda rows: brief), X, GRAPH)
    assert found.tolist() == brief.tolist()


# --- decisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [SVC(), RidgeClassifier()], ids=lambda model: type(model).__name__)
def test_decisions_are_those_of_predict(model: Any) -> None:
    model.fit(X, TABLE["Y"])
    found = positive_scores("m", pf.DecisionsOf(model), X, GRAPH)
    assert found.tolist() == (model.predict(X) == "yes").tolist()
    unnamed = type(model)().fit(X.to_numpy(), TABLE["Y"])
    assert positive_scores("m", pf.DecisionsOf(unnamed), X, GRAPH).tolist() == found.tolist()


def test_an_audit_of_decisions_has_no_rows_of_scores() -> None:
    proba = LogisticRegression().fit(X, TABLE["Y"])
    models = {"rule": pf.DecisionsOf(rule), "logistic": proba}
    report = pf.audit(models, one_step(), TABLE, random_state=0)
    count = report.table.groupby(["model", "decisions"]).size()
    assert ("rule", "score") not in count.index
    assert count["rule", "threshold"] == count["logistic", "threshold"]
    assert report.table[report.table["model"] == "rule"]["estimate"].notna().all()
    assert "no scores: it gives decisions alone" in report.details()
    assert ("rule", "score") not in list(report.influence.columns.droplevel(2))
    data = report.to_inference_data()
    draws = data.posterior["mean_unfair_effect"].sel(model="rule")
    assert np.isnan(draws.sel(decisions="score").to_numpy()).all()
    assert np.isfinite(draws.sel(decisions="threshold").to_numpy()).all()
    report.plot("score")
    for basis in ("threshold", "score"):
        assert "rule" in report.to_html(decisions=basis)
    assert "rule" in str(report.to_json())


def test_decisions_are_audited_as_scores_of_0_and_1_are() -> None:
    for source, settings in [(one_step(), {}), (pf.IPW(GRAPH.unfair("A -> Y"), propensity="saturated"), {"n_boot": 0})]:
        models = {"rule": pf.DecisionsOf(rule, labels=("no", "yes")), "same": Known(lambda rows: rule(rows) == "yes")}
        table = pf.audit(models, source, TABLE, progress=False, random_state=0, **settings).table
        one, other = (
            table[(table["model"] == name) & (table["decisions"] == "threshold")]
            .drop(columns="model")
            .reset_index(drop=True)
            for name in models
        )
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.9])
def test_no_threshold_moves_decisions(threshold: float) -> None:
    report = pf.audit({"rule": pf.DecisionsOf(rule)}, one_step(), TABLE, threshold=threshold, random_state=0)
    rate = report.table.set_index("quantity").loc["positive_rate", "estimate"]
    assert rate == pytest.approx((rule(X) == "yes").mean())


@pytest.mark.parametrize(
    ("labels", "positive", "returned"),
    [
        ((0, 1), 1, [0, 1, 1]),
        ((False, True), 1, [False, True, True]),
        ((2, 1), 1, [2, 1, 1]),
        (("-", "+"), "+", ["-", "+", "+"]),
    ],
)
def test_labels_are_matched(labels: tuple[Any, Any], positive: Any, returned: list[Any]) -> None:
    graph = pf.CausalGraph("A -> Y", sensitive="A", outcome="Y", positive=positive)
    rows = pd.DataFrame({"A": [0, 1, 1]})
    for given in (labels, None):
        model = pf.DecisionsOf(lambda rows: np.array(returned), labels=given)
        assert positive_scores("m", model, rows, graph).tolist() == [0.0, 1.0, 1.0]
        assert positive_scores("m", model, rows, graph, labels=labels).tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0, 1, 1], r"'m': predict returned 0, 1, and the labels are 'no' and 'yes', of which 'yes' is positive"),
        (["no", "Yes", "no"], "predict returned 'Yes', and the labels are 'no' and 'yes'"),
        ([True, False, True], "predict returned True, False"),
        ([0.2, 0.7, 0.3], r"predict returned 0.2, 0.7, 0.3.*audit scores of a regression through ScoresOf"),
        (["no", None, "yes"], r"missing values \(NaN\) for some of 3 rows"),
        (["no", "yes"], r"returned the shape \(2,\), expected \(3,\)"),
        ([["no", "yes"]] * 3, r"returned the shape \(3, 2\)"),
    ],
)
def test_labels_that_do_not_match(returned: Any, message: str) -> None:
    model = pf.DecisionsOf(lambda rows: np.array(returned))
    with pytest.raises(pf.DataError, match=message):
        positive_scores("m", model, X[:3], GRAPH, labels=("no", "yes"))


def test_without_known_labels_values_must_be_of_the_positives_type() -> None:
    zero = pf.DecisionsOf(lambda rows: np.zeros(len(rows)))
    with pytest.raises(pf.DataError, match=r"predict returned 0.0, and the labels are the outcome's, of which 'yes'"):
        positive_scores("m", zero, X, GRAPH)
    three = pf.DecisionsOf(lambda rows: np.array(["yes", "no", "maybe"]))
    with pytest.raises(pf.DataError, match="predict returned 'yes', 'no', 'maybe'"):
        positive_scores("m", three, X[:3], GRAPH)
    fitted = SVC().fit(X, TABLE["Y"] == "yes")
    with pytest.raises(pf.DataError, match=r"has the labels \[False, True\], not the graph's positive value 'yes'"):
        positive_scores("m", pf.DecisionsOf(fitted), X, GRAPH)


def test_columns_are_passed_by_keyword_and_count_as_read() -> None:
    def grouped(rows: pd.DataFrame, *, sensitive_features: pd.Series[Any]) -> NDArray[Any]:
        assert list(rows.columns) == ["Q", "M"]
        return np.where(rows["M"] + sensitive_features > 1, "yes", "no")

    model = pf.DecisionsOf(grouped, columns=["Q", "M"], passes={"sensitive_features": "A"})
    assert model.reads(["A", "Q", "M"]) == ("Q", "M", "A")
    found = pf.audit({"m": model}, one_step(), TABLE, random_state=0).table.set_index("quantity")
    plain = pf.audit({"m": pf.DecisionsOf(rule)}, one_step(), TABLE, random_state=0).table.set_index("quantity")
    pd.testing.assert_frame_equal(found, plain)
    indirect = pf.CausalGraph("A -> M; {Q M} -> Y", sensitive="A", outcome="Y", positive="yes")
    with pytest.raises(pf.DataError, match="'m' reads 'A', but the graph has no edge A -> Y"):
        pf.audit({"m": model}, indirect.unfair("A -> M -> Y"), TABLE)


def test_a_predict_that_draws_is_an_outcome() -> None:
    rng = np.random.default_rng(3)

    def fresh(rows: pd.DataFrame) -> NDArray[Any]:
        return np.where(rows["M"] > rng.random(len(rows)) * 3, "yes", "no")

    def seeded(rows: pd.DataFrame) -> NDArray[Any]:  # the same numbers in each call: by position, not by row
        return np.where(rows["M"] > np.random.default_rng(0).random(len(rows)) * 3, "yes", "no")

    for draws in (fresh, seeded):
        with pytest.warns(pf.PyrofairWarning, match=r"'m' is taken for an outcome.*pf\.ScoresOf"):
            report = pf.audit({"m": pf.DecisionsOf(draws)}, one_step(), TABLE, random_state=0)
        assert "an outcome, no function of the features" in report.details()
        assert set(report.table["decisions"]) == {"threshold"}
    with pytest.warns(pf.PyrofairWarning), pytest.raises(pf.DataError, match="is an outcome, no function of the"):
        pf.audit({"m": pf.DecisionsOf(fresh)}, pf.GComputation(GRAPH.unfair("A -> Y"), draws=5, random_state=0), TABLE)
    with pytest.raises(pf.DataError, match="scores='prediction' takes the scores of 'm' for a function"):
        pf.audit({"m": pf.DecisionsOf(fresh)}, one_step(), TABLE, scores="prediction")


def test_what_gives_no_decisions() -> None:
    with pytest.raises(pf.DataError, match="has no predict and is no function of rows"):
        pf.DecisionsOf("svc")
    with pytest.raises(
        pf.DataError, match=r"A torch module returns numbers, no labels: ScoresOf\(module, returns='logit'\)"
    ):
        pf.DecisionsOf(nn.Linear(2, 1))
    with pytest.raises(pf.DataError, match="labels='no' must be two: the negative label, then the positive one"):
        pf.DecisionsOf(rule, labels="no")  # type: ignore[arg-type]
    regression = LinearRegression().fit(X, TABLE["Y"] == "yes")
    with pytest.raises(pf.DataError, match="through ScoresOf"):
        pf.audit({"m": pf.DecisionsOf(regression)}, one_step(), TABLE)
    scorer = pf.audits.AuditScorer(one_step(), at_most=0.1, decisions="score")
    with pytest.raises(pf.DataError, match="the model gives decisions alone: take decisions='threshold'"):
        scorer(pf.DecisionsOf(rule), X, TABLE["Y"])


# --- scores of functions and modules ---------------------------------------------------------------------------------


def test_a_function_of_rows() -> None:
    fitted = LogisticRegression().fit(X, TABLE["Y"])
    right = fitted.predict_proba(X)[:, 1]
    odds = np.log(right / (1 - right))
    for model in (
        pf.ScoresOf(fitted.predict_proba),
        pf.ScoresOf(lambda rows: fitted.predict_proba(rows)[:, [1]]),
        pf.ScoresOf(lambda rows: fitted.predict_proba(rows)[:, 1]),
        pf.ScoresOf(fitted.decision_function, returns="logit"),
        pf.ScoresOf(lambda rows: np.column_stack([np.zeros(len(rows)), odds]), returns="logit"),
    ):
        np.testing.assert_allclose(positive_scores("m", model, X, GRAPH), right, rtol=1e-12)
    both = pf.audit({"own": fitted, "function": pf.ScoresOf(fitted.predict_proba)}, one_step(), TABLE, random_state=0)
    one, other = (own.drop(columns="model").reset_index(drop=True) for _, own in both.table.groupby("model"))
    pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("last", ["logit", "two logits", "probability"])
def test_a_torch_module(last: str) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = [
        nn.Linear(3, 4),
        nn.Dropout(0.5),
        nn.Tanh(),
        nn.Linear(4, 2 if last == "two logits" else 1),
    ]
    module = nn.Sequential(*layers, *([nn.Sigmoid()] if last == "probability" else []))
    module[1].eval()
    model = pf.ScoresOf(module, returns="probability" if last == "probability" else "logit")
    found = positive_scores("m", model, X, GRAPH)
    assert module.training
    assert not module[1].training  # each layer is left as it was
    with torch.no_grad():
        out = module.eval()(torch.tensor(X.to_numpy(np.float32)))
    right = {
        "logit": lambda: torch.sigmoid(out[:, 0]),
        "two logits": lambda: torch.softmax(out, 1)[:, 1],
        "probability": lambda: out[:, 0],
    }[last]()
    np.testing.assert_allclose(found, right.numpy(), rtol=1e-5)
    report = pf.audit({"m": model}, one_step(), TABLE, random_state=0)
    assert report.table["estimate"].notna().all()
    with torch.inference_mode():
        np.testing.assert_array_equal(positive_scores("m", model, X, GRAPH), found)


def test_a_torch_module_behind_an_encoder() -> None:
    rows = X.assign(Q=pd.Categorical.from_codes(X["Q"], ["low", "middle", "high"]))
    encoder = make_column_transformer((OneHotEncoder(), ["Q"]), remainder="passthrough", sparse_threshold=1.0).fit(rows)
    module = nn.Linear(5, 1, dtype=torch.float64)
    model = pf.ScoresOf(module, returns="logit", encoder=encoder)
    found = positive_scores("m", model, rows, GRAPH)
    matrix = encoder.transform(rows)
    dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    with torch.no_grad():
        np.testing.assert_allclose(found, torch.sigmoid(module(torch.tensor(dense)))[:, 0].numpy())
    with pytest.raises(pf.DataError, match=r"'m' is a torch module, and 'Q' hold\(s\) no numbers.*encoder=fitted"):
        positive_scores("m", pf.ScoresOf(module, returns="logit"), rows, GRAPH)


def test_what_gives_no_scores() -> None:
    with pytest.raises(pf.DataError, match="A torch module returns log-odds or probabilities, and nothing in it shows"):
        pf.ScoresOf(nn.Linear(3, 1))
    with pytest.raises(
        pf.DataError, match="returns='logit', and the module ends in Sigmoid, which makes probabilities"
    ):
        pf.ScoresOf(nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()), returns="logit")
    with pytest.raises(pf.DataError, match="is no function of rows and no torch module"):
        pf.ScoresOf(LogisticRegression())
    passing = pf.ScoresOf(nn.Linear(3, 1), returns="logit", passes={"sensitive_features": "A"})
    with pytest.raises(pf.DataError, match="takes a tensor alone, not sensitive_features"):
        positive_scores("m", passing, X, GRAPH)
    for returned, message in [
        (np.full(400, 1.5), r"'m' returned 400 score\(s\) outside \[0, 1\], such as 1.5. If these are log-odds"),
        (np.full(400, np.nan), "returned 400 number.s. that are not finite"),
        (np.full(399, 0.5), r"'m' returned the shape \(399,\), expected \(400,\)"),
        (np.full((400, 3), 0.5), r"'m' returned the shape \(400, 3\)"),
        (np.full((400, 2), 0.2), "do not sum to 1"),
        (np.full(400, "yes"), "returned the type <U3, expected real numbers"),
    ]:
        with pytest.raises(pf.DataError, match=message):
            positive_scores("m", pf.ScoresOf(lambda rows, given=returned: given), X, GRAPH)
    with pytest.raises(pf.DataError, match="'m' could not score 400 rows: the adapted model raised KeyError"):
        pf.audit({"m": pf.ScoresOf(lambda rows: rows["Z"])}, one_step(), TABLE)


@pytest.mark.parametrize("adapt", [pf.ScoresOf, pf.DecisionsOf])
def test_what_is_returned_in_another_order_is_refused(adapt: Any) -> None:
    def number(rows: pd.DataFrame) -> pd.Series[Any]:
        return rows["A"] * 0.3 if adapt is pf.ScoresOf else rows["A"].map({0: "no", 1: "yes"})

    positive_scores("f", adapt(number), X, GRAPH)
    positive_scores("f", adapt(lambda rows: number(rows).reset_index(drop=True)), X.set_index(X.index + 7), GRAPH)
    with pytest.raises(DataError, match="'f' returned a Series whose index is not that of the rows"):
        positive_scores("f", adapt(lambda rows: number(rows).sort_values()), X, GRAPH)
