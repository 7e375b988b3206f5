"""The penalised classifier: equivalences, columns, encoders, modules, and what is refused."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from pyrofair import IPW, CausalGraph, DataError, GraphError, PenalizedClassifier, PyrofairWarning, effect_gap, remove
from pyrofair.datasets.uci import load_adult, load_german
from pyrofair.tables.encoder import TableEncoder

EDGES = "Q -> A; {A Q} -> D; {A Q Z} -> Y; D -> Y; Z -> D; K -> A"


def graph(positive: str = "hired") -> CausalGraph:
    """K is a cause of A that the classifier must not read."""
    return CausalGraph(
        EDGES,
        sensitive="A",
        outcome="Y",
        baseline="woman",
        contrast="man",
        positive=positive,
        columns={"Z": ["z1", "z2"]},
    )


UNFAIR = graph().unfair("A -> Y")
READ = ["A", "Q", "D", "z1", "z2"]


@functools.cache
def draw(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series[str]]:
    rng = np.random.default_rng(seed)
    q, k, z1 = rng.normal(size=(3, n))
    z2 = rng.choice(["north", "south", "west"], size=n)
    a = rng.binomial(1, 1 / (1 + np.exp(-0.4 * q - 0.4 * k)))
    d = 0.5 * a + 0.5 * q + 0.3 * z1 + rng.normal(size=n)
    y = rng.binomial(1, 1 / (1 + np.exp(-(2 * a + q + d + (z2 == "west") - 1))))
    index = pd.Index([f"p{i}" for i in range(n)])
    table = {"A": np.where(a == 1, "man", "woman"), "Q": q, "D": d, "z1": z1, "z2": z2, "K": k}
    return pd.DataFrame(table, index=index), pd.Series(np.where(y == 1, "hired", "rejected"), index=index, name="Y")


def data(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[str]]:
    X, y = draw(n, seed)
    return X.copy(), y.copy()


def make(**settings: Any) -> PenalizedClassifier:
    usual = {"model": "logistic", "source": IPW(UNFAIR), "epochs": 5, "batch_size": 50, "random_state": 0}
    return PenalizedClassifier(**{**usual, **settings})


def plain(**settings: Any) -> PenalizedClassifier:
    return make(**{"source": None, "columns": READ, **settings})


# -- strength 0, seeds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["network", "logistic"])
@pytest.mark.parametrize("positive", ["hired", "rejected"])
@pytest.mark.parametrize("extra", [{}, {"validation_fraction": 0.2, "patience": 2}], ids=["all", "held out"])
@pytest.mark.some(3)
def test_strength_0_is_no_source_bit_for_bit(model: str, positive: str, extra: dict[str, Any]) -> None:
    X, y = data()
    zero = make(model=model, source=IPW(graph(positive).unfair("A -> Y")), strength=0.0, **extra).fit(X, y)
    none = plain(model=model, **extra).fit(X, y)
    assert np.array_equal(zero.predict_proba(X), none.predict_proba(X))
    assert np.array_equal(zero.decision_function(X), none.decision_function(X))
    pd.testing.assert_frame_equal(zero.history_, none.history_)
    assert zero.source_ is None
    assert (zero.positive_, none.positive_) == (positive, "rejected")
    other = make(model=model, strength=1.0, **extra).fit(X, y)
    assert not np.array_equal(other.predict_proba(X), none.predict_proba(X))


def test_a_penalty_goes_by_name_and_the_strength_is_1_by_default() -> None:
    X, y = data()
    named = make(penalty="effect_gap", strength=1.0).fit(X, y)
    given = make(penalty=effect_gap, strength=None).fit(X, y)
    assert np.array_equal(named.predict_proba(X), given.predict_proba(X))


# -- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [True, False], ids=["source", "plain"])
@pytest.mark.parametrize(("good", "bad"), [("a", "b"), ("b", "a"), (1, 0), (0, 1), (True, False), (-1.0, 1.0)])
@pytest.mark.some(4)
def test_labels_are_mapped_by_name(good: Any, bad: Any, source: bool) -> None:
    X, y = data(400)
    y = y.map({"hired": good, "rejected": bad})
    sem = IPW(graph(good).unfair("A -> Y"))
    fitted = make(source=sem if source else None, columns=READ, epochs=60, learning_rate=0.05).fit(X, y)
    assert fitted.classes_.tolist() == sorted([good, bad])
    assert fitted.classes_.dtype == np.asarray(y).dtype
    assert fitted.positive_ == (good if source else max(good, bad))
    proba = pd.DataFrame(fitted.predict_proba(X), columns=fitted.classes_, index=X.index)
    assert proba.sum(axis=1).to_numpy() == pytest.approx(1.0)
    # Units that were hired have the higher score for it, whatever the label is called.
    assert proba[good][y == good].mean() > proba[good][y == bad].mean() + 0.1
    predicted = pd.Series(fitted.predict(X), index=X.index)
    assert (predicted == proba.idxmax(axis=1)).all()
    assert fitted.score(X, y) == (predicted == y).mean() > 0.7
    assert np.array_equal(fitted.decision_function(X) > 0, proba[fitted.classes_[1]] > 0.5)


# -- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["logistic", "network"])
@pytest.mark.parametrize("source", [None, *(IPW(UNFAIR, arm=arm) for arm in ("paper", 0, 1, "pooled"))], ids=str)
@pytest.mark.some(3)
def test_a_weight_of_two_is_a_row_repeated(model: str, source: Any) -> None:
    X, y = data()
    times = np.random.default_rng(1).integers(1, 3, size=len(X))
    rows = np.repeat(np.arange(len(X)), times)
    settings = {"model": model, "source": source, "columns": READ, "batch_size": 1000, "epochs": 30}
    weighted = make(**settings).fit(X, y, sample_weight=times)
    repeated = make(**settings).fit(X.iloc[rows], y.iloc[rows])
    unweighted = make(**settings).fit(X, y)
    assert np.abs(weighted.predict_proba(X) - repeated.predict_proba(X)).max() < 1e-8
    assert np.abs(weighted.predict_proba(X) - unweighted.predict_proba(X)).max() > 1e-4


@pytest.mark.parametrize("source", [None, IPW(UNFAIR)], ids=["plain", "penalised"])
def test_rows_of_no_weight_are_as_if_absent(source: Any) -> None:
    X, y = data()
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    settings = {"source": source, "columns": READ, "validation_fraction": 0.2}
    weighted = make(**settings).fit(X, y, sample_weight=pd.Series(weight, index=X.index))
    absent = make(**settings).fit(X[weight > 0], y[weight > 0])
    assert np.array_equal(weighted.predict_proba(X), absent.predict_proba(X))


# -- columns and encoders ---------------------------------------------------------------------------------------------


def test_remove_reads_only_what_is_left() -> None:
    X, y = data()
    left = remove(UNFAIR, "touched")
    assert left == ["Q", "D", "z1", "z2"]
    fitted = plain(columns=left).fit(X, y)
    assert np.array_equal(fitted.predict_proba(X[left]), fitted.predict_proba(X.assign(A="other")))
    with pytest.raises(DataError, match="lacks the column 'D'"):
        fitted.predict(X.drop(columns="D"))


PAPER = CausalGraph("Q -> A; {Q A} -> D; {Q A} -> M; {Q A D M} -> Y", sensitive="A", outcome="Y")
OTHERS = CausalGraph("{A Z H} -> M; {A M W} -> Y; A -> K; H -> Y", sensitive="A", outcome="Y", latent=["H"])
ALONE = CausalGraph("A -> Y", sensitive="A", outcome="Y")
HIRING = PAPER.unfair("A -> Y", "A -> D -> Y")


@pytest.mark.parametrize(
    ("given", "nodes", "left"),
    [
        (HIRING, "touched", ["Q", "M"]),
        (HIRING.reversed(), "touched", ["Q", "M"]),
        (PAPER.unfair(), "touched", ["Q", "A", "D", "M"]),
        (HIRING, "descendants", ["Q"]),
        (PAPER, "descendants", ["Q"]),
        (lambda: load_adult().unfair, "touched", ["age", "native-country"]),
        (lambda: load_adult().graph, "descendants", ["age", "native-country"]),
        (lambda: load_german().unfair, "touched", ["age", "purpose", "credit-amount", "duration"]),
        (lambda: load_german().unfair, "descendants", ["age", "purpose"]),
        (OTHERS.unfair("A -> Y"), "touched", ["M", "W"]),
        (OTHERS, "descendants", ["W"]),
        (PAPER, "touched", "needs the unfair paths"),
        (ALONE, "descendants", "Nothing is left to predict from: A are all"),
        (ALONE.unfair("A -> Y"), "touched", "Nothing is left to predict from: A are all"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_remove_leaves(given: Any, nodes: Any, left: Any) -> None:
    given = given() if callable(given) else given
    if isinstance(left, list):
        assert remove(given, nodes) == left
        return
    with pytest.raises(GraphError, match=left):
        remove(given, nodes)


def test_columns_with_a_source_limit_the_classifier_and_not_the_source() -> None:
    X, y = data()
    fitted = make(columns=["D", "Q"]).fit(X, y)
    assert np.array_equal(fitted.predict_proba(X), fitted.predict_proba(X[["Q", "D"]]))
    assert set(fitted.source_.nuisances_.rows.table.columns) == {*READ, "K"}


def test_by_default_the_parents_of_the_outcome_are_read() -> None:
    X, y = data()
    fitted = make().fit(X, y)
    assert fitted.reads_ == READ
    assert np.array_equal(fitted.predict_proba(X), fitted.predict_proba(X.drop(columns="K")))
    with pytest.warns(PyrofairWarning, match="Columns outside the graph are ignored: shoe"):
        other = make().fit(X.assign(shoe=40), y)
    assert np.array_equal(other.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("source", [None, IPW(UNFAIR, arm="pooled")], ids=["plain", "penalised"])
def test_an_encoder_of_your_own(sparse: bool, source: Any) -> None:
    X, y = data()
    encoder = ColumnTransformer(
        [("numbers", StandardScaler(), ["Q", "D", "z1"]), ("words", OneHotEncoder(sparse_output=sparse), ["A", "z2"])],
        sparse_threshold=1.0,
    )
    assert hasattr(encoder.fit_transform(X), "toarray") == sparse
    fitted = make(source=source, columns=READ, encoder=encoder).fit(X, y)
    usual = make(source=source, columns=READ, encoder=None).fit(X, y)
    assert fitted.encoder_ is not encoder
    # The same features in another order: the seed's first weights differ, the model does not.
    assert fitted.module_.weight.shape == usual.module_.weight.shape == (1, 8)
    assert np.isfinite(fitted.predict_proba(X)).all()
    assert not hasattr(encoder.transformers[0][1], "mean_")


# -- models -----------------------------------------------------------------------------------------------------------


def test_a_module_is_copied_and_trained_from_its_weights() -> None:
    X, y = data()
    module = nn.Linear(8, 1)
    before = module.weight.detach().clone()
    fitted = make(model=module).fit(X, y)
    assert torch.equal(module.weight, before)
    assert module.weight.dtype == torch.float32
    assert fitted.module_ is not module
    assert fitted.module_.weight.dtype == torch.float64
    assert not torch.allclose(fitted.module_.weight.float(), before)
    still = make(model=module, optimizer=partial(torch.optim.SGD, lr=0.0)).fit(X, y)
    assert torch.equal(still.module_.weight.float(), before)


def test_two_logits_are_those_of_the_sorted_classes() -> None:
    X, y = data()
    one = nn.Linear(8, 1).double()
    two = nn.Linear(8, 2).double()
    with torch.no_grad():
        two.weight[1], two.bias[1] = two.weight[0] + one.weight[0], two.bias[0] + one.bias[0]
    still = {"epochs": 1, "optimizer": partial(torch.optim.SGD, lr=0.0)}
    for positive in ("hired", "rejected"):
        source = IPW(graph(positive).unfair("A -> Y"))
        a, b = (make(model=module, source=source, **still).fit(X, y) for module in (one, two))
        assert a.predict_proba(X) == pytest.approx(b.predict_proba(X), abs=1e-12)
        assert a.history_.to_numpy() == pytest.approx(b.history_.to_numpy(), abs=1e-12)


def test_epochs_left_open_are_about_a_thousand_steps_but_not_too_few_or_many() -> None:
    X, y = data()
    still = {"epochs": None, "optimizer": partial(torch.optim.SGD, lr=0.0)}
    for batch_size, batches, epochs in ((1000, 1, 200), (24, 10, 100), (6, 40, 25), (2, 120, 20)):
        fitted = plain(batch_size=batch_size, **still).fit(X, y)
        assert len(fitted.history_) == epochs
        assert -(-len(X) // batch_size) == batches
    assert plain(batch_size=2, epochs=3).fit(X, y).history_["epoch"].tolist() == [0, 1, 2]


def test_a_function_makes_the_module() -> None:
    X, y = data()
    widths = []

    def model(width: int) -> nn.Module:
        widths.append(width)
        return nn.Linear(width, 1)

    made = make(model=model).fit(X, y)
    assert widths == [8] * 4  # one for each start
    make(model=model, starts=1).fit(X, y)
    assert widths == [8] * 5
    assert np.array_equal(made.predict_proba(X), make(model="logistic").fit(X, y).predict_proba(X))
    with pytest.raises(DataError, match="made a int; it must make a torch module"):
        make(model=lambda width: width).fit(X, y)


@pytest.mark.parametrize("model", ["network", "logistic"])
def test_float32(model: str) -> None:
    X, y = data()
    single = make(model=model, source=IPW(UNFAIR, arm="pooled"), dtype="float32").fit(X, y)
    double = make(model=model, source=IPW(UNFAIR, arm="pooled")).fit(X, y)
    assert all(p.dtype == torch.float32 for p in single.module_.parameters())
    assert single.predict_proba(X).dtype == np.float32
    assert single.predict_proba(X) == pytest.approx(double.predict_proba(X), abs=1e-3)
    assert not np.array_equal(single.predict_proba(X), double.predict_proba(X))


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": torch.optim.Adam, "learning_rate": 0.1}, r"learning_rate=0\.1 is not used with an optimizer of"),
        ({"patience": 3}, "patience needs held-out rows: set validation_fraction"),
        ({"source": None, "strength": 1.0}, r"strength=1\.0 is set and source is None.*source=IPW\(unfair\)"),
        ({"source": None, "penalty": effect_gap}, "penalty is set and source is None"),
        ({"source": IPW}, "source=.* is no source of potential outcomes"),
        ({"source": IPW("A -> Y")}, "source=.* is no source of potential outcomes"),
        ({"columns": ["A", "K"]}, "columns names 'K', which is no observed parent.* may read Q, A, D, z1, z2"),
        ({"columns": []}, r"columns=\[\] names no column"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value)[:40],
)
def test_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    X, y = data()
    classifier = make(**settings)
    with pytest.raises(DataError, match=message):
        classifier.fit(X, y)
    assert not [name for name in vars(classifier) if name.endswith("_")]


def broken(**changes: Any) -> tuple[pd.DataFrame, pd.Series[str]]:
    X, y = data()
    for name, value in changes.items():
        X[name] = X[name].astype(object) if isinstance(value, str) else X[name]
        X.loc["p3", name] = value
    return X, y


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (data()[0], data()[1].iloc[::-1], "index of y is not that of X, so their rows would be matched"),
        (data()[0], data()[1][:100], "X has 240 rows and y has 100"),
        (data()[0], None, "requires y to be passed, but the target y is None"),
        (broken(K=np.nan)[0], data()[1], r"missing value\(s\) \(NaN\) in the column 'K'"),
        (data()[0].assign(A="man"), data()[1], "'A' never takes the value 'woman' in these 240 rows"),
        (data()[0], data()[1].replace({"hired": "called"}), "y never takes the positive value 'hired'; it holds"),
        (data()[0], pd.Series("hired", index=data()[0].index), "y has one class only, 'hired'"),
        (data()[0], data()[1].replace({"rejected": 0}), "y mixes labels of two types, 0 and 'hired'"),
    ],
    ids=[
        "order", "length", "no y", "K missing", "one group", "no positive", "one class", "types",
    ],
)  # fmt: skip
def test_tables_are_refused_before_anything_is_fitted(X: Any, y: Any, message: str) -> None:
    classifier = make()
    with pytest.raises(DataError, match=message):
        classifier.fit(X, y)
    assert not [name for name in vars(classifier) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        classifier.predict(data()[0])


def test_at_strength_0_the_table_is_checked_too() -> None:
    X, y = data()
    with pytest.raises(DataError, match="'A' never takes the value 'woman'"):
        make(strength=0.0).fit(X.assign(A="man"), y)
    with pytest.raises(DataError, match="lacks the column 'K'"):
        make(strength=0.0).fit(X.drop(columns="K"), y)


def test_weights_of_one_class_are_refused() -> None:
    X, y = data()
    with pytest.raises(DataError, match="rows with positive weight hold one class only"):
        make().fit(X, y, sample_weight=(y == "hired").astype(float))


def test_a_fit_that_fails_leaves_the_last_one_as_it_was() -> None:
    X, y = data()
    fitted = make().fit(X, y)
    before, attributes = fitted.predict_proba(X), dict(vars(fitted))
    with pytest.raises(DataError, match="never takes the positive value"):
        fitted.fit(X[[*READ, "K"]][::-1], y[::-1].replace({"hired": "called"}))
    with pytest.raises(DataError, match="diverged"):
        fitted.set_params(optimizer="sgd", learning_rate=1e6).fit(X, y)
    fitted.set_params(optimizer="adam", learning_rate=None)
    assert vars(fitted) == attributes
    assert np.array_equal(fitted.predict_proba(X), before)


def test_rows_to_predict_are_checked() -> None:
    X, y = data()
    fitted = make().fit(X, y)
    with pytest.raises(DataError, match="lacks the column 'D'") as caught:
        fitted.predict(X.drop(columns="D"))
    assert "latent" not in str(caught.value)
    with pytest.raises(DataError, match="missing value"):
        fitted.predict_proba(broken(Q=np.nan)[0])
    with pytest.raises(DataError, match="got ndarray"):
        fitted.predict(X.to_numpy())
    with pytest.raises(DataError, match="has no rows"):
        fitted.predict(X[:0])
    with pytest.raises(NotFittedError):
        make().predict(X)


def test_an_encoder_inside_a_pipeline_of_encoders() -> None:
    X, y = data()
    encoder = make_pipeline(TableEncoder(), StandardScaler())
    fitted = make(encoder=encoder, penalty=effect_gap).fit(X, y, sample_weight=np.arange(1, 241))
    assert np.isfinite(fitted.predict_proba(X)).all()
