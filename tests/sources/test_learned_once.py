"""The regressions of a one-step source are learned once for the same scores of the fitted rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

import pyrofair as pf
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.sources import donors

GRAPH = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
FUNCTIONALS = ("y0", "ypi", "lower", "rest", "disagreement")


class Counting(LinearRegression):  # type: ignore[misc]
    """A regression that counts its fits."""

    fits = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        Counting.fits += 1
        return super().fit(X, y, sample_weight)


def draw(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    a = (rng.random(n) < 1.0 / (1.0 + np.exp(-0.5 * q))).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "M": 0.5 * q + 0.7 * a + rng.normal(size=n)})


class Score:
    """A classifier of a slope, which counts the rows that it scores."""

    def __init__(self, slope: float) -> None:
        self.slope, self.rows = slope, 0

    def __call__(self, sample: CounterfactualSample) -> NDArray[np.float64]:
        self.rows += len(sample.rows)
        values = self.slope * sample.rows["A"] + sample.rows["M"]
        return np.asarray(1.0 / (1.0 + np.exp(-values)), dtype=np.float64)


def equal(one: Any, other: Any) -> None:
    for name in FUNCTIONALS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("paths", "settings"),  # with features that both worlds share, and without
    [
        (("A -> Y",), {"propensity": "logistic"}),
        (("A -> Y",), {"propensity": "logistic", "folds": 1}),
        (("A -> Y", "A -> M -> Y"), {"folds": 2}),
    ],
)
@pytest.mark.filterwarnings("ignore:folds=1:pyrofair.exceptions.PyrofairWarning")
def test_prefix_form(paths: tuple[str, ...], settings: dict[str, Any]) -> None:
    def made(paths: tuple[str, ...], **settings: Any) -> Any:
        given = {"regression": Counting(), "splits": 2, "random_state": 0, **settings}
        return pf.OneStep(GRAPH.unfair(*paths), **given).fit(draw(400, 0))

    source, fresh = made(paths, **settings), made(paths, **settings)
    Counting.fits = 0
    first = source.influence(Score(1.0), draw(300, 1))
    learned = Counting.fits
    assert learned > 0
    other = source.influence(Score(1.0), draw(200, 2))
    assert Counting.fits == learned
    own = source.influence(Score(1.0))
    with_splits = Counting.fits
    assert (with_splits > learned) == (settings.get("folds") != 1)
    equal(source.influence(Score(1.0)), own)
    assert Counting.fits == with_splits
    changed = source.influence(Score(2.0), draw(300, 1))
    assert Counting.fits == with_splits + learned
    equal(first, made(paths, **settings).influence(Score(1.0), draw(300, 1)))
    equal(other, fresh.influence(Score(1.0), draw(200, 2)))
    equal(own, made(paths, **settings).influence(Score(1.0)))
    equal(changed, fresh.influence(Score(2.0), draw(300, 1)))


def test_saturated_cells_keep_their_correction() -> None:
    """A fitted row that draws its own mean to itself is corrected for it, also where the mean is recalled."""
    df = draw(60, 0).round(0)
    made = pf.OneStep(GRAPH.unfair("A -> Y"), propensity="logistic", regression="saturated", form="prefix")
    with pytest.warns(pf.PositivityWarning):
        source = made.fit(df)
    first = source.influence(Score(1.0))
    equal(source.influence(Score(1.0)), first)


def test_graph_form(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, kept = [], donors._LeafMeans.__init__

    def counted(self: Any, *args: Any) -> None:
        calls.append(1)
        kept(self, *args)

    monkeypatch.setattr(donors._LeafMeans, "__init__", counted)
    settings: dict[str, Any] = {"propensity": "logistic", "form": "graph", "folds": 2, "random_state": 0}
    source, fresh = (pf.OneStep(GRAPH.unfair("A -> Y"), **settings).fit(draw(400, 0)) for _ in range(2))
    source.influence(Score(1.0), draw(300, 1))
    learned = len(calls)
    assert learned > 0
    other = source.influence(Score(1.0), draw(200, 2))
    assert len(calls) == learned
    changed = source.influence(Score(2.0), draw(200, 2))
    assert len(calls) == 2 * learned
    equal(other, fresh.influence(Score(1.0), draw(200, 2)))
    equal(changed, fresh.influence(Score(2.0), draw(200, 2)))


@pytest.mark.parametrize("form", ["prefix", "graph"])
def test_learned_sources_judge_rows_and_score_no_fitted_ones(form: Any) -> None:
    made = pf.OneStep(GRAPH.unfair("A -> Y"), propensity="logistic", form=form, folds=1, random_state=0)
    source, score = made.fit(draw(400, 0)), Score(1.0)
    judge = source.learn(score)
    rows = source.nuisances_.rows_of(draw(200, 2), None)
    one, scored = judge(score, rows), score.rows
    equal(one, source.influence(Score(1.0), draw(200, 2)))
    judge(score, rows)
    again = score.rows - scored
    source.influence(score, draw(200, 2))
    assert again < score.rows - scored - again


def test_what_was_learned_is_not_pickled() -> None:
    source = pf.OneStep(GRAPH.unfair("A -> Y"), regression="logistic", random_state=0).fit(draw(400, 0))
    before = len(pickle.dumps(source))
    own = source.influence(Score(1.0), draw(300, 1))
    assert len(pickle.dumps(source)) < 1.2 * before
    equal(pickle.loads(pickle.dumps(source)).influence(Score(1.0), draw(300, 1)), own)
