"""Several candidate graphs as one source: the worst case and weighted sums of their penalties, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import pyrofair as pf
from tests.robustness.models import graphs, table


def source(**settings: Any) -> pf.Several:
    """Where M -> L all paths are unfair, and where L -> M the direct one: both are identified."""
    paths = {"M -> L": {"direct": True, "through": ["M", "L"]}, "L -> M": {"direct": True}}
    made = {name: pf.IPW(graph.unfair(**paths[name])) for name, graph in graphs().items()}
    return pf.Several(made, **settings)


def classifier(given: Any, **settings: Any) -> pf.PenalizedClassifier:
    chosen = {"epochs": 12, "batch_size": 500, "progress": False, "random_state": 0, "strength": 3.0} | settings
    return pf.PenalizedClassifier("logistic", source=given, penalty=pf.effect_gap, **chosen)


def gaps(model: Any, df: pd.DataFrame) -> dict[str, float]:
    found = {}
    for name, (one, other) in source().fit(df).pairs(df=df).items():
        means = [np.average(model.predict_proba(world.rows)[:, 1], weights=world.weight) for world in (one, other)]
        found[name] = abs(means[1] - means[0])
    return found


def test_one_source_is_trained_on_as_by_itself_and_pairs_are_those_of_each() -> None:
    df = table(500)
    X, y = df.drop(columns="Y"), df["Y"]
    several = source()
    fitted = clone(several).fit(df)
    assert list(fitted.by_contrast()) == ["M -> L", "L -> M"]
    assert fitted.strata(df).tolist() == df["A"].tolist()
    for name, pair in fitted.pairs(df=df).items():
        alone = clone(several.sources[name]).fit(df).worlds(df=df)
        for one, other in zip(pair, alone, strict=True):
            assert one.weight == pytest.approx(other.weight)
    name = "M -> L"
    one = classifier(several.sources[name], epochs=4).fit(X, y).predict_proba(X)
    for made in (pf.Several({name: several.sources[name]}), source(over={name: 1.0, "L -> M": 0.0})):
        np.testing.assert_allclose(classifier(made, epochs=4).fit(X, y).predict_proba(X), one, atol=1e-5)


def test_the_worst_graph_is_lowered() -> None:
    df = table(500)
    X, y = df.drop(columns="Y"), df["Y"]
    before = gaps(classifier(None, strength=0.0, columns=["A", "M", "L"]).fit(X, y), df)
    after = gaps(classifier(source(), epochs=30).fit(X, y), df)
    assert max(after.values()) < max(before.values()) / 2


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: pf.Several({}), "must be a dictionary of sources by name"),
        (lambda: pf.Several({"g": 1}), r"sources\['g'\]=1 must be a source"),
        (lambda: pf.Several({"g": pf.OneStep(graphs()["M -> L"].unfair("A -> Y"))}), "that can be fitted"),
        (lambda: source(over="mean"), "over='mean' is not known"),
        (lambda: pf.Several({"b": pf.MilesBounds(graphs()["L -> M"].unfair(direct=True))}), "In 'b': "),
        (lambda: source(over={"M -> L": 0.0}), "gives no source a weight above 0"),
        (lambda: source(over={"other": 1.0}), "over names 'other', which is no source"),
    ],
)
def test_settings_that_are_refused(made: Any, message: str) -> None:
    with pytest.raises((pf.DataError, pf.GraphError), match=message):
        made().fit(table(500))


def test_graphs_that_do_not_agree_are_refused() -> None:
    first = pf.IPW(graphs()["M -> L"].unfair("A -> Y"))
    for other, message in (
        (pf.CausalGraph("A -> {M L}; {A M} -> Y; L -> M", sensitive="A", outcome="Y"), "inputs of the classifier"),
        (pf.CausalGraph("A -> {M L Z}; {A M L} -> Y", sensitive="A", outcome="Y"), "The columns of 'b'"),
        (graphs(baseline=1, contrast=0)["M -> L"], "The labels of 'b' and of 'a' differ"),
    ):
        with pytest.raises(pf.DataError, match=message):
            pf.Several({"a": first, "b": pf.IPW(other.unfair("A -> Y"))}).fit(table(500))
    with pytest.raises(pf.DataError, match="is fitted or needs no fit"):
        pf.Several({"a": pf.IPW(graphs()["M -> L"].unfair("A -> Y")).fit(table(500))}).fit(table(500))
    refused = pf.Several({"a": first, "b": pf.IPW(graphs()["M -> L"].unfair("A -> M -> Y"))})
    with pytest.raises(pf.NotIdentifiedError, match="In 'b': Not identified: 'M' is a recanting witness") as caught:
        refused.fit(table(500))
    assert caught.value.way_out.relabellings


def test_bounds_where_one_graph_is_not_identified() -> None:
    """Where L -> M, A -> L -> Y and A -> Y are bounded; where M -> L the direct path is identified."""
    df = table(500)
    X, y = df.drop(columns="Y"), df["Y"]
    bounded = pf.MilesBounds(graphs()["L -> M"].unfair("A -> L -> Y", "A -> Y"))
    several = pf.Several({"M -> L": pf.IPW(graphs()["M -> L"].unfair("A -> Y")), "L -> M": bounded})
    with pytest.raises(pf.DataError, match="penalty=effect_gap is a function of two marginals"):
        classifier(several).fit(X, y)

    def made(given: Any, **settings: Any) -> pf.PenalizedClassifier:
        return classifier(given, **settings).set_params(penalty=pf.interval_disagreement).fit(X, y)

    def upper(model: Any) -> float:
        return float(bounded_fitted.bounds(model).loc["piu", "upper"])  # type: ignore[arg-type]

    bounded_fitted = clone(bounded).fit(df)
    alone = made(bounded, epochs=4).predict_proba(X)
    for name, weights in (("L -> M", {"M -> L": 0.0, "L -> M": 1.0}), ("M -> L", {"M -> L": 1.0, "L -> M": 0.0})):
        own = clone(several).set_params(over=weights)
        if name == "L -> M":
            np.testing.assert_allclose(made(own, epochs=4).predict_proba(X), alone, atol=1e-5)
        else:
            one = made(several.sources[name], epochs=4).predict_proba(X)
            np.testing.assert_allclose(made(own, epochs=4).predict_proba(X), one, atol=1e-5)
    plain = classifier(None, strength=0.0, columns=["A", "M", "L"]).fit(X, y)
    assert upper(made(several, epochs=30)) < upper(plain)
    fitted = clone(several).fit(df)
    for one, other in zip(fitted.pairs(df=df)["L -> M"], bounded_fitted.samples(df=df), strict=True):
        assert one.weight == pytest.approx(other.weight)


def test_it_is_for_training_and_other_functions_say_what_takes_graphs() -> None:
    df = table(200)
    X, y = df.drop(columns="Y"), df["Y"]
    model = classifier(source(), epochs=1).fit(X, y)
    for given in (source(), model.source_):
        with pytest.raises(pf.DataError, match=r"holds several sources, and an audit has one.*pf\.audit_graphs"):
            pf.audit({"m": model}, given, df)
    with pytest.raises(pf.DataError, match=r"holds several sources, and a path judges by one.*pf\.audit_graphs"):
        pf.penalty_path(classifier(source()), X, y)
