from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import KBinsDiscretizer

from pyrofair import IPW, CausalGraph, PenalizedClassifier, effect_gap

GRAPH = CausalGraph(
    "Q -> A; {A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y", baseline="woman", contrast="man", positive="hired"
)
UNFAIR = GRAPH.unfair("A -> Y")
QUICK: dict[str, Any] = {"model": "logistic", "epochs": 10, "random_state": 0}

CHECKS = """
import json
from pyrofair.classifiers.penalized import PenalizedClassifier
from sklearn.utils.estimator_checks import check_estimator

estimator = PenalizedClassifier(random_state=0, progress=False, {settings})
results = check_estimator(estimator, on_fail=None, on_skip=None)
print(json.dumps([(one["check_name"], one["status"], repr(one["exception"])) for one in results]))
"""


def make_data(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[str]]:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    a = rng.binomial(1, 1 / (1 + np.exp(-0.5 * q)))
    d = 0.5 * a + 0.5 * q + rng.normal(size=n)
    y = rng.binomial(1, 1 / (1 + np.exp(-(2 * a + q + d - 1))))
    index = pd.RangeIndex(1000, 1000 + n)
    X = pd.DataFrame({"A": np.where(a == 1, "man", "woman"), "Q": q, "D": d}, index=index)
    return X, pd.Series(np.where(y == 1, "hired", "rejected"), index=index, name="Y")


def penalised(**settings: Any) -> PenalizedClassifier:
    return PenalizedClassifier(**{"source": IPW(UNFAIR), "batch_size": 100, **QUICK, **settings})


# -- scikit-learn's own checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", ["epochs=30", pytest.param("", marks=pytest.mark.slow)])
def test_every_check_of_scikit_learn_passes(settings: str) -> None:
    """In a process of its own, where SCIPY_ARRAY_API lets the array API check run, and with warnings as errors."""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"}
    code = CHECKS.replace("{settings}", settings)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [one for one in results if one[1] != "passed"] == []
    assert len(results) > 50
    tags = PenalizedClassifier().__sklearn_tags__()  # of which checks would be skipped
    assert not any((tags.classifier_tags.poor_score, tags.non_deterministic, tags.no_validation, tags._skip_test))
    release = tuple(map(int, sklearn.__version__.split(".")[:2]))
    assert ("check_array_api_input" in {name for name, _, _ in results}) == (release >= (1, 9))


# -- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The two observed groups:pyrofair.exceptions.PositivityWarning")
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["deep", "pickle"])
def test_copies_of_a_fitted_classifier_predict_alike(copied: Any) -> None:
    X, y = make_data()
    fitted = penalised(penalty=partial(effect_gap, squared=True), model="network").fit(X, y)
    other = copied(fitted)
    assert np.array_equal(other.predict_proba(X), fitted.predict_proba(X))
    assert other.score(X, y) == fitted.score(X, y)
    pd.testing.assert_frame_equal(other.history_, fitted.history_)
    for one, two in zip(other.source_.worlds(), fitted.source_.worlds(), strict=True):
        assert np.array_equal(one.weight, two.weight)
    # A copy can be fitted anew and leaves the first alone.
    before = fitted.predict_proba(X)
    other.set_params(random_state=1).fit(X, y)
    assert np.array_equal(fitted.predict_proba(X), before)


# -- selection --------------------------------------------------------------------------------------------------------


class Watched(IPW):
    """IPW that keeps the index of each table it was fitted on."""

    fitted_on: ClassVar[list[list[int]]] = []

    def fit(self, df: pd.DataFrame, sample_weight: Any = None) -> Self:
        Watched.fitted_on.append(df.index.tolist())
        return super().fit(df, sample_weight)


def test_nuisances_stay_inside_their_fold() -> None:
    X, y = make_data()
    Watched.fitted_on.clear()
    folds = KFold(3, shuffle=True, random_state=0)
    cross_val_score(penalised(source=Watched(UNFAIR)), X, y, cv=folds)
    assert Watched.fitted_on == [X.index[train].tolist() for train, _ in folds.split(X)]


def test_nuisances_never_see_held_out_rows() -> None:
    X, y = make_data()
    Watched.fitted_on.clear()
    fitted = penalised(source=Watched(UNFAIR), validation_fraction=0.25, patience=50).fit(X, y)
    (seen,) = Watched.fitted_on
    assert len(seen) == 225
    assert set(seen) < set(X.index)
    assert fitted.encoder_.scaler_.n_samples_seen_ == 225
    assert fitted.history_["validation"].notna().all()


@pytest.mark.filterwarnings("ignore:The two observed groups:pyrofair.exceptions.PositivityWarning")
def test_grid_search_over_strength_and_propensity() -> None:
    X, y = make_data()
    grid = {"strength": [0.0, 5.0], "source__propensity": ["logistic", LogisticRegression(C=0.01)]}
    search = GridSearchCV(penalised(epochs=30, learning_rate=0.1), grid, cv=3).fit(X, y)
    table = pd.DataFrame(search.cv_results_)
    assert len(table) == 4
    assert table["mean_test_score"].between(0.3, 1.0).all()
    assert search.best_params_["strength"] == 0.0
    assert table.groupby("param_strength")["mean_test_score"].max().diff().iloc[-1] < 0
    # The propensity makes no difference without a penalty, and some difference with one.
    scores = [
        cross_val_score(penalised(strength=strength, source=IPW(UNFAIR, propensity=each)), X, y, scoring="neg_log_loss")
        for strength in (0.0, 5.0)
        for each in grid["source__propensity"]
    ]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[2], scores[3])
    assert search.predict_proba(X).shape == (300, 2)
    assert search.n_features_in_ == 3


def test_a_pipeline_with_a_step_that_leaves_graph_columns_as_they_are() -> None:
    X, y = make_data()
    table = X.assign(number=np.arange(len(X)))
    choose = ColumnTransformer([("graph", "passthrough", ["A", "Q", "D"])], verbose_feature_names_out=False)
    pipe = Pipeline([("choose", choose), ("classify", penalised())]).set_output(transform="pandas").fit(table, y)
    direct = penalised().fit(X, y)
    assert np.array_equal(pipe.predict_proba(table), direct.predict_proba(X))
    assert pipe.score(table, y) == direct.score(X, y)
    weighted = pipe.fit(table, y, classify__sample_weight=np.arange(1.0, 301.0))
    assert not np.array_equal(weighted.predict_proba(table), direct.predict_proba(X))


# -- names and numbers of features ------------------------------------------------------------------------------------


def test_feature_names_with_a_source_are_the_columns_read() -> None:
    X, y = make_data()
    fitted = penalised().fit(X[["D", "A", "Q"]], y)
    assert fitted.feature_names_in_.tolist() == ["D", "A", "Q"]
    assert fitted.n_features_in_ == 3
    assert np.array_equal(fitted.predict_proba(X), fitted.predict_proba(X[["Q", "D", "A"]]))
    fewer = penalised(columns=["D"]).fit(X, y)
    assert fewer.feature_names_in_.tolist() == ["D"]
    assert fewer.n_features_in_ == 1


def test_names_on_one_side_only_warn_and_go_by_position() -> None:
    X, y = make_data()
    X = X[["Q", "D"]]
    named, bare = PenalizedClassifier(**QUICK).fit(X, y), PenalizedClassifier(**QUICK).fit(X.to_numpy(), y)
    expected = named.predict_proba(X)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        assert np.array_equal(named.predict_proba(X.to_numpy()), expected)
    with pytest.warns(UserWarning, match="X has feature names, but PenalizedClassifier was fitted without"):
        assert np.array_equal(bare.predict_proba(X), expected)


def test_refitting_on_another_type_of_table_forgets_the_first() -> None:
    X, y = make_data()
    classifier = PenalizedClassifier(**QUICK).fit(X, y)
    classifier.fit(X[["Q", "D"]].to_numpy(), y)
    assert not hasattr(classifier, "feature_names_in_")
    assert classifier.n_features_in_ == 2
    penal = penalised(columns=["Q"]).fit(X, y).set_params(columns=None).fit(X, y)
    assert penal.n_features_in_ == 3


@pytest.mark.filterwarnings("ignore:Poor overlap:pyrofair.exceptions.PositivityWarning")
def test_random_parts_left_open_are_seeded() -> None:
    """An encoder that draws rows, and a propensity that shuffles, neither of them given a seed."""
    X, y = make_data()
    X = pd.concat([X] * 3, ignore_index=True)
    y = pd.concat([y] * 3, ignore_index=True)
    bins = KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf", subsample=100)
    shuffling = LogisticRegression(solver="saga", max_iter=3, tol=1e9)

    def proba(seed: int, other: int) -> Any:
        np.random.seed(other)  # noqa: NPY002 - the global state must not matter
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        encoder = ColumnTransformer([("bins", bins, ["Q", "D"])])
        source = IPW(UNFAIR, propensity=on_numbers(shuffling))
        fitted = penalised(source=source, encoder=encoder, random_state=seed).fit(X, y)
        assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
        return fitted.predict_proba(X)

    assert np.array_equal(proba(0, 1), proba(0, 2))
    assert not np.array_equal(proba(0, 1), proba(3, 1))


def on_numbers(classifier: Any) -> Pipeline:
    """The classifier on the numbers of a prefix."""
    encode = ColumnTransformer([("numbers", "passthrough", make_column_selector(dtype_include="number"))])
    return Pipeline([("encode", encode), ("classify", classifier)])
