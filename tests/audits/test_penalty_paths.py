from __future__ import annotations

import itertools
import pickle
import warnings
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import spearmanr
from torch import nn

import pyrofair as pf
from pyrofair import DataError, PenaltyPath, PyrofairWarning, penalty_path
from pyrofair.audits import penalty_paths
from pyrofair.classifiers.training import evaluate

GRAPH = pf.CausalGraph("Q -> D; A -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> D -> Y")
STRENGTHS = (0.0, 0.5, 2.0)
MEASURED = [
    "accuracy", "majority_rate", "positive_rate", "p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound",
    "piu_lower", "piu_upper",
]  # fmt: skip


def draw(n: int, seed: int) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    q, a = rng.normal(size=n), rng.integers(0, 2, n)
    d = 0.8 * a + 0.5 * q + rng.normal(size=n)
    y = (rng.random(n) < expit(-0.5 + a + q + d)).astype(int)
    return pd.DataFrame({"Q": q, "A": a, "D": d}), y


X, Y = draw(160, 0)


def classifier(**settings: Any) -> pf.PenalizedClassifier:
    defaults = {"source": pf.IPW(UNFAIR), "starts": 1, "epochs": 4, "batch_size": 80, "random_state": 99}
    return pf.PenalizedClassifier("logistic", **defaults | settings)


def trace(**settings: Any) -> PenaltyPath:
    """Measure on the rows trained on, by the source trained with: most of what is tested here is the same elsewhere."""
    model = classifier()
    given = {"strengths": STRENGTHS, "seeds": 2, "progress": False, "n_boot": 0, "test": (X, Y), "judge": model.source}
    return penalty_path(model, X, Y, **given | settings)


@cache
def whole() -> PenaltyPath:
    return trace()


@pytest.fixture(autouse=True, scope="module")
def _traced() -> None:
    """Before any test changes how a path is traced."""
    whole()


# --- the table -------------------------------------------------------------------------------------------------------


def test_columns_and_order() -> None:
    table = whole().table
    assert list(table.columns) == ["strength", "seed", "decisions", "objective", *MEASURED]
    assert list(table["strength"]) == [2.0, 2.0, 0.5, 0.5, 0.0, 0.0] * 2  # strongest first
    assert list(table["seed"]) == [0] * 6 + [1] * 6
    assert list(table["decisions"]) == ["threshold", "score"] * 6
    assert table.notna().all(axis=None)
    assert whole().unfinished == {}


def test_each_row_is_what_an_audit_measures() -> None:
    """Strength 0 is plain training; its rows are those of an audit of a plain classifier."""
    test_X, test_y = draw(120, 1)
    table = trace(test=(test_X, test_y), threshold=0.4).table
    for seed in (0, 1):
        plain = pf.PenalizedClassifier("logistic", epochs=4, batch_size=80, random_state=seed).fit(X, Y)
        report = pf.audit(
            {"m": plain}, pf.IPW(UNFAIR).fit(X), test_X.assign(Y=test_y), n_boot=0, threshold=0.4, progress=False
        )
        expected = report.table.pivot_table(index="decisions", columns="quantity", values="estimate")
        own = table[(table["strength"] == 0.0) & (table["seed"] == seed)].set_index("decisions")
        for decisions in ("threshold", "score"):
            for quantity in MEASURED[2:]:
                assert own.loc[decisions, quantity] == pytest.approx(expected.loc[decisions, quantity], rel=1e-9)
            assert own.loc[decisions, "accuracy"] == expected.loc["threshold", "accuracy"]
            assert own.loc[decisions, "majority_rate"] == expected.loc["threshold", "majority_rate"]


def test_the_strongest_is_an_ordinary_fit() -> None:
    model = classifier(strength=2.0, random_state=1).fit(X, Y)
    own = whole().table.query("strength == 2.0 and seed == 1 and decisions == 'score'").iloc[0]
    assert own["positive_rate"] == pytest.approx(model.predict_proba(X)[:, 1].mean(), rel=1e-12)


def test_strengths_start_from_the_one_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start is the module fitted before, but strength 0 starts cold."""
    honest, starts, ends = penalty_paths.train_many, [], []

    def state(net: nn.Module) -> NDArray[np.float64]:
        return np.concatenate([each.detach().numpy().ravel() for each in net.parameters()])

    def spy(fits: Any, max_stack: Any) -> list[Exception | None]:
        (fit,) = fits
        starts.append((fit.strength, state(fit.module)))
        errors: list[Exception | None] = honest(fits, max_stack)
        ends.append(state(fit.module))
        return errors

    monkeypatch.setattr(penalty_paths, "train_many", spy)
    trace(seeds=[5])
    assert [strength for strength, _ in starts] == [2.0, 0.5, 0.0]
    cold = starts[0][1]
    np.testing.assert_array_equal(starts[1][1], ends[0])
    np.testing.assert_array_equal(starts[2][1], cold)
    assert not np.array_equal(ends[0], cold)


def test_warm_fits_take_epochs_of_their_own_and_come_as_far_in_fewer() -> None:
    """The falling rate ends below the constant one. Cold fits take all epochs."""
    model = classifier(epochs=60)
    given: dict[str, Any] = {"strengths": [2.0, 0.8, 0.0], "seeds": 3, "test": (X, Y), "judge": model.source}

    def epochs_of(**settings: Any) -> tuple[PenaltyPath, dict[float, list[int]]]:
        path = penalty_path(model, X, Y, **given, n_boot=0, progress=False, **settings)
        lengths = {
            strength: [len(path.models[strength, seed].history_) for seed in range(3)] for strength in (2, 0.8, 0)
        }
        return path, lengths

    together, lengths = epochs_of(warm_epochs=40)
    assert lengths == {2: [60] * 3, 0.8: [40] * 3, 0: [60] * 3}
    pd.testing.assert_frame_equal(epochs_of(warm_epochs=40, max_stack=1)[0].table, together.table)
    whole, lengths = epochs_of()
    assert lengths[0.8] == [60] * 3
    objectives = [path.table.query("strength == 0.8")["objective"].mean() for path in (together, whole)]
    assert objectives[0] < objectives[1]


def test_seeds() -> None:
    pd.testing.assert_frame_equal(trace(seeds=[1, 0]).table.query("seed == 1").reset_index(drop=True),
                                  whole().table.query("seed == 1").reset_index(drop=True))  # fmt: skip
    pd.testing.assert_frame_equal(trace(seeds=np.int64(2)).table, whole().table)
    one, other = (whole().table[whole().table["seed"] == seed]["p_ypi"].to_numpy() for seed in (0, 1))
    assert not np.allclose(one, other, atol=1e-6)


def test_nothing_given_is_changed() -> None:
    own, kept, state = classifier(), X.copy(), np.random.get_state()[1].copy()  # noqa: NPY002 - is it left alone?
    before = own.get_params()
    penalty_path(own, X, Y, strengths=[1.0], n_boot=0, progress=False, judge=own.source)
    assert own.get_params() == before
    assert not hasattr(own, "module_")
    pd.testing.assert_frame_equal(X, kept)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_the_bound_falls_as_the_penalty_grows() -> None:
    many, outcomes = draw(600, 2)
    model = classifier(epochs=60, batch_size=600, learning_rate=0.05)
    strengths = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    given: dict[str, Any] = {"strengths": strengths, "seeds": 2, "n_boot": 0, "progress": False, "judge": model.source}
    table = penalty_path(model, many, outcomes, **given).table
    soft = table[table["decisions"] == "score"].groupby("strength")["piu_paper_bound"].mean()
    assert spearmanr(soft.index, soft).statistic < -0.95
    assert soft[2.0] < 0.5 * soft[0.0]
    accuracy = table.groupby("strength")["accuracy"].mean()
    assert accuracy[2.0] < accuracy[0.0] - 0.05


# --- interrupted -----------------------------------------------------------------------------------------------------


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    honest, calls = penalty_paths.train_many, itertools.count()

    def train(*args: Any) -> list[Exception | None]:
        if next(calls) == after:
            raise KeyboardInterrupt
        return honest(*args)  # type: ignore[no-any-return]

    monkeypatch.setattr(penalty_paths, "train_many", train)


@pytest.mark.parametrize("after", range(6))
@pytest.mark.some(3)
def test_an_interrupted_path_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    with monkeypatch.context() as patched:
        interrupt(patched, after)
        with pytest.warns(
            PyrofairWarning, match=rf"Interrupted in seed {after // 3}; .* Pass it as resume=\.\.\. to go"
        ):
            part = trace(max_stack=1)
    assert len(part.table) == 2 * after
    assert list(part.unfinished) == ([after // 3] if after % 3 else [])
    if after:
        pd.testing.assert_frame_equal(part.table, whole().table.iloc[: 2 * after])
    part = pickle.loads(pickle.dumps(part))
    calls = []
    honest = penalty_paths.train_many
    monkeypatch.setattr(penalty_paths, "train_many", lambda *args: calls.append(args) or honest(*args))
    rest = trace(resume=part, max_stack=1)
    assert len(calls) == 6 - after  # nothing is fitted twice
    pd.testing.assert_frame_equal(rest.table, whole().table)
    assert rest.unfinished == {}


@pytest.mark.parametrize("after", range(3))
@pytest.mark.some(1)
def test_seeds_that_are_trained_together_are_interrupted_together(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    together = trace(seeds=3)
    pd.testing.assert_frame_equal(together.table, trace(seeds=3, max_stack=1).table, rtol=1e-9)
    with monkeypatch.context() as patched:
        interrupt(patched, after)
        with pytest.warns(PyrofairWarning, match="Interrupted in seed 0, 1, 2; what was finished is returned"):
            part = trace(seeds=3)
    assert len(part.table) == 6 * after
    assert list(part.unfinished) == ([0, 1, 2] if after else [])
    rest = trace(seeds=3, resume=pickle.loads(pickle.dumps(part)))
    pd.testing.assert_frame_equal(rest.table, together.table)
    assert list(rest.models) == list(together.models)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_any_number_of_processes_gives_the_same_path() -> None:
    settings: dict[str, Any] = {"seeds": 2, "n_boot": 2, "test": draw(80, 1)}
    whole = trace(**settings)
    with joblib.parallel_config("threading", n_jobs=2):
        divided = trace(**settings)
    first = trace(**settings | {"seeds": [1]})
    resumed = trace(**settings, resume=first, n_jobs=1)
    for other in (divided, resumed):
        for name in ("table", "intervals", "groups"):
            by = ["seed", "strength", "decisions"][: 3 if name == "table" else 2]
            one, two = (
                getattr(path, name).sort_values(by, kind="stable").reset_index(drop=True) for path in (whole, other)
            )
            pd.testing.assert_frame_equal(one, two, rtol=1e-9)
    assert list(divided.table["seed"].unique()) == [0, 1]
    assert list(resumed.table["seed"].unique()) == [1, 0]


def test_what_workers_warn_of_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(self: Any, *given: Any, **named: Any) -> Any:
        warnings.warn("few rows", PyrofairWarning, stacklevel=2)
        return honest(self, *given, **named)

    honest = pf.IPW.fit
    monkeypatch.setattr(pf.IPW, "fit", warn)
    with joblib.parallel_config("threading", n_jobs=2), pytest.warns(PyrofairWarning, match="few rows") as caught:
        trace()
    assert len(caught) == 1


def test_a_finished_path_can_be_given_more_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    first = trace(seeds=1)
    pd.testing.assert_frame_equal(trace(resume=first).table, whole().table)
    interrupt(monkeypatch, 0)
    pd.testing.assert_frame_equal(trace(resume=whole()).table, whole().table)  # nothing to do


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"classifier": classifier(epochs=5)}, "another classifier;"),
        ({"classifier": classifier(source=pf.IPW(UNFAIR, arm=0))}, "another source;"),
        ({"classifier": classifier(source=pf.IPW(GRAPH.unfair("A -> Y")))}, "another source;"),
        ({"classifier": classifier(penalty=pf.effect_gap)}, "another penalty;"),
        ({"classifier": classifier(penalty=lambda one, other: (one.mean - other.mean) ** 2)}, "another penalty;"),
        ({"X": X.assign(Q=X["Q"] + 1.0)}, "another training data;"),
        ({"y": 1 - Y}, "another training data;"),
        ({"sample_weight": np.where(Y == 1, 2.0, 1.0)}, "another training data;"),
        ({"test": (X, 1 - Y)}, "another test set;"),
        ({"test": draw(80, 1)}, "another test set;"),
        ({"threshold": 0.4}, "another threshold;"),
        ({"threshold": 0.4, "classifier": classifier(epochs=5)}, "another classifier, another threshold;"),
        ({"n_boot": 30}, "another n_boot;"),
        ({"judge": None}, "another judge;"),
        ({"judge": pf.IPW(UNFAIR, arm=0)}, "another judge;"),
        ({"strengths": (0.0, 0.5, 1.0, 2.0)}, r"strengths \[2\.0, 0\.5, 0\.0\] for seed 0, which are no beginning"),
        ({"strengths": (0.0, 0.5, 3.0)}, r"strengths \[2\.0, 0\.5, 0\.0\] for seed 0, which are no beginning"),
        (
            {"resume": PenaltyPath(pd.DataFrame({"strength": [2.0], "seed": 0}))},
            r"strengths \[2\.0\] for seed 0",
        ),  # without its module
    ],
)
def test_another_call_is_no_resumption(changed: dict[str, Any], message: str) -> None:
    own: dict[str, Any] = {"classifier": classifier(), "X": X, "y": Y, "test": (X, Y), "resume": whole()} | changed
    settings: dict[str, Any] = {"strengths": STRENGTHS, "progress": False, "n_boot": 0}
    with pytest.raises(DataError, match=f"resume .*{message}"):
        penalty_path(**settings | {"judge": own["classifier"].source} | own)


def test_what_a_path_sets_itself_may_differ() -> None:
    again = classifier(strength=0.3, random_state=1, progress=False)
    data = {"X": X[["D", "A", "Q"]].copy(), "y": list(Y), "test": (X, pd.Series(Y)), "judge": again.source}
    found = penalty_path(again, **data, strengths=STRENGTHS, seeds=2, n_boot=0, progress=False, resume=whole())
    pd.testing.assert_frame_equal(found.table, whole().table)


def test_a_fit_that_diverges_is_an_error() -> None:
    with pytest.raises(DataError, match="diverged"):
        penalty_path(classifier(optimizer="sgd", learning_rate=1e6), X, Y, test=(X, Y), seeds=2, progress=False)


# --- summary and choice ----------------------------------------------------------------------------------------------


def made(*rows: tuple[float, int, float, float, float], majority: float = 0.6) -> PenaltyPath:
    """Return a path whose upper ends are given; the estimates are half of them, and each classifier is its key."""
    columns = ["strength", "seed", "accuracy", "positive_rate", "piu_upper"]
    table = pd.DataFrame(rows, columns=columns).assign(decisions="threshold", majority_rate=majority)
    ends = table.rename(columns={"piu_upper": "upper"}).assign(lower=0.0, quantity="piu_upper")
    other = table.assign(decisions="score", accuracy=0.0, piu_upper=0.0, positive_rate=0.5)
    models: Any = {(row[0], row[1]): (row[0], row[1]) for row in rows}
    return PenaltyPath(
        pd.concat([table.assign(piu_upper=table["piu_upper"] / 2), other], ignore_index=True), models, intervals=ends
    )


PATH = made(
    (0.0, 0, 0.90, 0.5, 0.8),
    (0.0, 1, 0.88, 0.4, 0.6),
    (1.0, 0, 0.80, 0.9, 0.2),
    (1.0, 1, 0.82, 0.3, 0.4),
    (2.0, 0, 0.70, 0.4, 0.1),
    (2.0, 1, 0.70, 0.4, 0.1),
)


def test_summary() -> None:
    found = PATH.summary()
    assert list(found.index) == [0.0, 1.0, 2.0]
    assert list(found["accuracy"]) == pytest.approx([0.89, 0.81, 0.70])
    assert list(found["piu_upper"]) == pytest.approx([0.35, 0.15, 0.05])
    assert list(found["bimodal"]) == [False, True, False]
    assert "seed" not in found
    assert (PATH.summary("score")["piu_upper"] == 0.0).all()
    with pytest.raises(DataError, match="decisions='hard' is not known"):
        PATH.summary("hard")  # type: ignore[arg-type]
    line = whole().plot("score").axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), whole().summary()["accuracy"])


def test_what_it_says_of_itself() -> None:
    assert repr(whole()) == "<PenaltyPath of 3 strength(s) and 2 seed(s); print it for a summary>"
    assert f"{whole().summary().loc[2.0, 'accuracy']:.3f}" in str(whole())
    assert max(map(len, str(whole()).splitlines())) <= 100
    unfinished = PenaltyPath(PATH.table, unfinished={0: nn.Linear(1, 1)})
    for text in (str(unfinished), unfinished._repr_html_()):
        assert all(word in text for word in ("2 seed(s)", "bimodal", "two groups of solutions", "resume=..."))
    assert "two groups of solutions" not in str(EQUAL)
    nothing = PenaltyPath(pd.DataFrame())
    assert all("no strength" in text for text in (str(nothing), repr(nothing), nothing._repr_html_()))


def test_a_mean_without_one_of_its_seeds_is_none() -> None:
    lacking = made(
        (1.0, 0, 0.8, 0.5, np.nan), (1.0, 1, 0.8, 0.5, 0.01), (2.0, 0, 0.7, 0.5, 0.1), (2.0, 1, 0.7, 0.5, 0.3)
    )
    assert np.isnan(lacking.summary().loc[1.0, "piu_upper"])
    assert lacking.select(at_most=0.5) == (1.0, 1)


@pytest.mark.filterwarnings("ignore::pyrofair.PyrofairWarning")
def test_the_picture_shows_the_limit_and_the_choice_if_there_is_one() -> None:
    path = replace(PATH, models={key: SimpleNamespace(strength=key[0]) for key in PATH.models})

    def told(**limit: float) -> list[str]:
        return [text.get_text() for text in path.plot(**limit).legends[0].get_texts()]

    assert told(at_most=0.2)[-2:] == ["limit 20 %", "chosen: strength 1"]
    assert told(at_most=0.001)[-1] == "limit 0.1 %"
    assert len(told()) == len(told(at_most=0.001)) - 1
    assert len(whole().plot(details=True).axes) == 4


def test_seeds_of_other_objectives_are_of_two_kinds() -> None:
    """Positive rates alone, .36 and .74, do not show that one seed is in a basin of .647 where the others have .41."""
    path = made((1.0, 0, 0.8, 0.36, 0.1), (1.0, 1, 0.7, 0.74, 0.1), (2.0, 0, 0.7, 0.3, 0.1), (2.0, 1, 0.7, 0.3, 0.1))
    assert list(path.summary()["bimodal"]) == [False, False]
    longer = PenaltyPath(path.table.assign(objective=[0.41, 0.647, 0.565, 0.573] * 2))
    assert list(longer.summary()["bimodal"]) == [True, False]


PRICED = made((0.0, 0, 0.80, 0.5, 0.4), (0.0, 1, 0.79, 0.5, 0.3), (1.0, 0, 0.75, 0.5, 0.1), (1.0, 1, 0.7, 0.5, 0.05))
EQUAL = made((0.0, 0, 0.8, 0.5, 0.4), (1.0, 0, 0.8, 0.5, 0.1), (2.0, 0, 0.7, 0.5, 0.1))
ENDS = PATH.intervals.assign(lower=[-0.5, -0.5, -0.3, -0.3, -0.02, -0.2], upper=0.02)
SIGNED = PenaltyPath(PATH.table, PATH.models, intervals=ENDS)


@pytest.mark.parametrize(
    ("path", "limit", "chosen"),
    [
        (PATH, {"at_most": 0.9}, (0.0, 0)),
        (PATH, {"at_most": 0.79}, (0.0, 1)),  # though the estimate of the most accurate one is .4
        (PATH, {"at_most": 0.2}, (1.0, 0)),
        (PATH, {"at_most": 0.15}, (2.0, 0)),
        (SIGNED, {"at_most": 0.1}, (2.0, 0)),  # the size of an effect counts
        (SIGNED, {"at_most": 0.3}, (1.0, 1)),
        (PRICED, {"accuracy_loss": 0.0}, (0.0, 0)),
        (PRICED, {"accuracy_loss": 0.02}, (0.0, 1)),
        (PRICED, {"accuracy_loss": 0.06}, (1.0, 0)),
        (PRICED, {"accuracy_loss": 0.5}, (1.0, 1)),
        (EQUAL, {"at_most": 0.9}, (1.0, 0)),  # the fairest of those that are equally accurate
        (EQUAL, {"accuracy_loss": 0.2}, (1.0, 0)),
    ],
)
def test_select(path: PenaltyPath, limit: Any, chosen: Any) -> None:
    assert path.select(**limit) == chosen


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((2.0, 0, 0.6, 0.0, 0.1), "strength 2, seed 0, is a constant: it predicts no for all units"),
        ((2.0, 0, 0.4, 1.0, 0.1), "is a constant: it predicts yes for all units"),
        ((2.0, 0, 0.6, 0.02, 0.1), "has the accuracy 0.600, no more than the 0.600 of a constant prediction"),
    ],
)
def test_select_warns_of_a_classifier_that_is_no_better_than_a_constant(row: Any, message: str) -> None:
    with pytest.warns(PyrofairWarning, match=message):
        assert made(row).select(at_most=0.5) == (2.0, 0)


def test_select_warns_where_the_rows_were_trained_on() -> None:
    alike = {"training data": "of these rows", "test set": "of these rows"}
    path = PenaltyPath(PATH.table, PATH.models, PATH.intervals, fingerprint=alike)
    with pytest.warns(PyrofairWarning, match="judged on the rows that it was trained on"):
        path.select(at_most=0.9)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_select_hands_back_the_fitted_classifier_of_the_path() -> None:
    many, outcomes = draw(500, 3)
    model = classifier(epochs=20)
    given: dict[str, Any] = {"strengths": STRENGTHS, "n_boot": 20, "seeds": 2, "progress": False, "judge": model.source}
    path = penalty_path(model, many, outcomes, **given)
    chosen = path.select("piu_paper_bound", at_most=1.0, decisions="score")
    assert isinstance(chosen, pf.PenalizedClassifier)
    assert chosen is path.models[chosen.strength, chosen.random_state]
    kept = path.intervals.query("decisions == 'score' and quantity == 'piu_paper_bound' and upper <= 1.0")
    decided = path.table.query("decisions == 'threshold'").set_index(["strength", "seed"])["accuracy"]
    assert (
        decided[chosen.strength, chosen.random_state] == decided[list(zip(kept.strength, kept.seed, strict=True))].max()
    )
    assert list(chosen.history_["epoch"]) == list(range(20))


@pytest.mark.parametrize(
    ("path", "given", "message"),
    [
        (PATH, {}, "give one of them"),
        (PATH, {"at_most": 0.1, "accuracy_loss": 0.1}, "give one of them"),
        (PATH, {"at_most": 0.05}, r"piu_upper below 0\.05 .*; the smallest end is 0\.1, at strength 2, seed 0"),
        (PATH, {"quantity": "piu", "at_most": 0.5}, "quantity='piu' is not known"),
        (PATH, {"at_most": "much"}, "at_most='much'"),
        (made((1.0, 0, 0.8, 0.5, np.nan)), {"at_most": 0.5}, "has an interval of piu_upper"),
        (  # the most accurate one has no interval
            made((0.0, 0, 0.80, 0.5, np.nan), (1.0, 0, 0.75, 0.5, 0.1)),
            {"accuracy_loss": 0.01},
            r"has an accuracy of at least 0\.79 and piu_upper up to",
        ),
        (PenaltyPath(PATH.table, PATH.models), {"at_most": 0.5}, "has no intervals to judge by"),
    ],
)
def test_select_reports_what_is_not_available(path: PenaltyPath, given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        path.select(**given)


# --- rows that are not trained on ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_a_share_of_the_rows_is_measured_on_and_not_trained_on() -> None:
    path = trace(test=None, seeds=1, n_boot=5, held_out=0.25)
    model = path.models[2.0, 0]
    assert model.source_.n_fitted_ == 120
    sizes = path.intervals.query("quantity == 'positive_rate'")["ess"]
    assert sizes.tolist() == pytest.approx([40] * 6)
    points = path.table.set_index(["strength", "decisions"])["piu_upper"]
    for row in path.intervals.query("quantity == 'piu_upper'").itertuples():
        assert row.estimate == pytest.approx(points[row.strength, row.decisions], rel=1e-12)
        assert row.lower <= row.upper


def test_weights_are_aligned_and_count() -> None:
    weight = pd.Series(np.where(Y == 1, 2.0, 1.0), index=X.index)
    weighted = trace(sample_weight=weight, test=None, held_out=0.3)
    same = trace(sample_weight=3.0 * weight.to_numpy(), test=None, held_out=0.3)
    pd.testing.assert_frame_equal(weighted.table, same.table, rtol=1e-6)
    plain = trace(test=None, held_out=0.3)
    assert (weighted.table["positive_rate"] > plain.table["positive_rate"]).any()
    with pytest.raises(DataError, match="The index of sample_weight is not that of X"):
        trace(sample_weight=weight.iloc[::-1])


# --- the two observed groups -----------------------------------------------------------------------------------------


def spread(n: int) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """M is N(0, 1) in one group and N(0, 9) in the other, which no logistic propensity in M can separate."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    m = rng.normal(size=n) * np.where(a == 1, 3.0, 1.0)
    return pd.DataFrame({"A": a, "M": m}), (np.abs(m) > 1.5).astype(int)


def squares(width: int) -> nn.Module:
    """A module that separates large numbers from small ones."""
    return nn.Sequential(nn.Linear(width, 20), nn.Tanh(), nn.Linear(20, 1))


WIDE = pf.CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")


def test_groups_that_disagree_are_told_by_path_and_fit() -> None:
    many, outcomes = spread(2000)
    model = pf.PenalizedClassifier(
        squares, source=pf.IPW(WIDE), strength=0.1, starts=1, epochs=40, batch_size=500, random_state=0
    )
    with pytest.warns(
        pf.PositivityWarning, match="groups, weighted alone, disagree significantly .one test at 95 %.: p_y"
    ):
        model.fit(many, outcomes)
    with pytest.warns(pf.PositivityWarning, match="disagree significantly at strength"):
        path = penalty_path(model, many, outcomes, strengths=[0.1], n_boot=40, progress=False, judge=model.source)
    assert (path.groups["agree"] == False).any()  # noqa: E712 - it may be missing, too
    assert "The two observed groups, weighted alone, disagree" in str(path)
    with pytest.warns(PyrofairWarning, match="is one of which the two observed groups"):
        path.select("positive_rate", at_most=1.0)


# --- two basins ------------------------------------------------------------------------------------------------------


def objective_of(model: pf.PenalizedClassifier, rows: pd.DataFrame, outcomes: Any) -> float:
    return evaluate(model.module_, model.prepare(rows, outcomes), model.penalty, model.strength)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_several_starts_leave_the_worse_basin() -> None:
    """From one start a penalty of middling strength ends where both worlds answer yes to most."""
    hiring = pf.simulate.scenario("hiring")
    df = hiring.draw(1000, random_state=0)
    rows, outcomes = df[["A", "Q", "D", "M"]], df["Y"]
    settings: dict[str, Any] = {
        "source": pf.IPW(hiring.unfair, arm="paper"), "epochs": 100, "learning_rate": 0.02, "dtype": "float32",
        "strength": 1.0,
    }  # fmt: skip
    one = pf.PenalizedClassifier(**settings, starts=1, random_state=0).fit(rows, outcomes)
    several = [pf.PenalizedClassifier(**settings, starts=2, random_state=seed).fit(rows, outcomes) for seed in (0, 1)]
    found = [objective_of(model, rows, outcomes) for model in several]
    assert max(found) - min(found) < 0.02
    assert objective_of(one, rows, outcomes) > max(found) + 0.15


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
def test_all_seeds_of_a_path_come_near_the_best_objective() -> None:
    hiring = pf.simulate.scenario("hiring")
    df = hiring.draw(5000, random_state=0)
    model = pf.PenalizedClassifier(source=pf.IPW(hiring.unfair, arm="paper"), epochs=40, dtype="float32")
    rows, settings = df[["A", "Q", "D", "M"]], {"strengths": [1, 2], "seeds": 10, "n_boot": 0, "progress": False}
    settings["judge"] = model.source
    path = penalty_path(model, rows, df["Y"], **settings)
    for _, objectives in path.table.groupby("strength")["objective"]:
        assert objectives.max() - objectives.min() < 0.02
    assert not path.summary()["bimodal"].any()


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"classifier": classifier(source=None)}, "classifier=.* must be a classifier with a source"),
        ({"strengths": [0.5, -0.1]}, r"strengths=\[0\.5, -0\.1\] must hold a positive one and none that is negative"),
        ({"strengths": [0.0]}, r"strengths=\[0\.0\] must hold a positive one"),
        ({"test": X}, r"test=.* must be a pair \(X, y\), rows and their outcomes, or None"),
        ({"test": (X, Y, Y)}, r"test=.* must be a pair \(X, y\)"),
        ({"test": (X, Y), "X": X.to_numpy()}, "X must be a pandas DataFrame"),
        ({"test": (X, Y[:-1])}, "X has 160 rows and y has 159"),
        ({"test": (X, pd.Series(Y, index=X.index[::-1]))}, "The index of y is not that of X"),
        ({"test": (X.drop(columns="D"), Y)}, "the table to measure on lacks the column 'D'"),
        ({"test": (X.assign(Q=np.nan), Y)}, "the table to measure on has 160 missing"),
        ({"y": Y + 5}, "never takes the positive value 1"),
        ({"X": X.drop(columns="A")}, "lacks the column 'A'"),
        ({"warm_epochs": 0}, "warm_epochs=0 must be an integer of at least 1"),
        ({"judge": pf.IPW(GRAPH.unfair("A -> Y"))}, "judge= has other unfair paths than the source of the classifier"),
    ],
)
def test_bad_input(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], message: str) -> None:
    monkeypatch.setattr(pf.IPW, "fit", lambda *_, **__: pytest.fail("work was done before the input was read"))
    given = {"classifier": classifier(), "X": X, "y": Y, "progress": False} | wrong
    with pytest.raises(DataError, match=message):
        penalty_path(**given)


def test_a_path_given_what_both_worlds_share_errs_outward_as_audits_do() -> None:
    hiring = pf.simulate.scenario("hiring")
    df, reads = hiring.draw(600, random_state=0), ["A", "Q", "D", "M"]
    source = pf.SEM(hiring.program, hiring.unfair, unit="shared", draws=20)
    clf = pf.PenalizedClassifier("logistic", source=source, epochs=20, progress=False)
    path = pf.penalty_path(clf, df[reads], df["Y"], strengths=[1.0], n_boot=0, progress=False, judge=source)
    assert (path.table["piu_lower"] <= path.table["piu_upper"]).all()
    assert (path.table["piu_upper"] <= path.table["piu_double_disagreement"] + 1e-9).all()


# --- the judge -------------------------------------------------------------------------------------------------------


MANY, OUTCOMES = draw(600, 5)
LIGHT = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)
JUDGED: dict[str, Any] = {
    "strengths": STRENGTHS, "seeds": 2, "progress": False, "test": draw(400, 6), "max_stack": 1
}  # fmt: skip


def judged(**settings: Any) -> PenaltyPath:
    return penalty_path(classifier(), MANY, OUTCOMES, **{"judge": LIGHT} | JUDGED | settings)


@pytest.fixture(scope="module")
def by_one_step() -> PenaltyPath:
    return judged()


def test_one_step_estimates_judge_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, honest = [], pf.OneStep.fit
    monkeypatch.setattr(
        pf.OneStep, "fit", lambda self, *given, **named: calls.append(1) or honest(self, *given, **named)
    )
    path = judged(judge=None, strengths=(0.5, 2.0))
    assert len(calls) == 1
    test_X, test_y = JUDGED["test"]
    models = {f"strength {strength!r}": path.models[strength, 1] for strength in (2.0, 0.5)}
    source = pf.OneStep(UNFAIR, random_state=0).fit(test_X)
    report = pf.audit(models, source, test_X.assign(Y=test_y), random_state=1)
    expected = report.table.set_index(["model", "decisions", "quantity"])
    own = path.table.query("seed == 1").set_index(["strength", "decisions"])
    assert list(path.table.columns[4:]) == [*MEASURED, "piu_double_disagreement"]
    assert path.table.notna().all(axis=None)
    intervals = path.intervals.set_index(["strength", "seed", "decisions", "quantity"])
    for strength, decisions, quantity in itertools.product((0.5, 2.0), ("threshold", "score"), MEASURED[2:]):
        row = expected.loc[(f"strength {strength!r}", decisions, quantity)]
        assert own.loc[(strength, decisions), quantity] == pytest.approx(row["estimate"], abs=1e-12)
        assert intervals.loc[(strength, 1, decisions, quantity), "upper"] == pytest.approx(row["upper"])
    assert path.groups.empty
    assert path.select(at_most=1.1) in path.models.values()


@pytest.mark.parametrize("after", [2, 4])
@pytest.mark.some(1)
def test_an_interrupted_path_is_judged_as_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, by_one_step: PenaltyPath, after: int
) -> None:
    with monkeypatch.context() as patched:
        interrupt(patched, after)
        with pytest.warns(PyrofairWarning, match="Interrupted in seed"):
            part = judged()
    assert part.table["piu_upper"].notna().all()
    assert len(part.table) == 2 * after
    assert set(part.intervals["seed"] if len(part.intervals) else []) == set(range(after // 3))
    rest = judged(resume=pickle.loads(pickle.dumps(part)))
    for name in ("table", "intervals", "groups"):
        pd.testing.assert_frame_equal(getattr(rest, name), getattr(by_one_step, name))


def test_another_source_judges() -> None:
    test_X, test_y = JUDGED["test"]
    judge = pf.IPW(UNFAIR, arm=0)
    path = judged(judge=judge, seeds=1, n_boot=0)
    assert path.intervals.empty
    report = pf.audit({"m": path.models[2.0, 0]}, judge, test_X.assign(Y=test_y), n_boot=0)
    own = path.table.set_index(["strength", "decisions"]).loc[(2.0, "score")]
    expected = report.table.query("decisions == 'score'").set_index("quantity")["estimate"]
    assert own["p_ypi"] == pytest.approx(expected["p_ypi"], abs=1e-12)


def test_a_judge_that_refuses_does_so_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penalty_paths, "train_many", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(pf.OneStep, "fit", lambda *_, **__: (_ for _ in ()).throw(DataError("Too few rows.")))
    with pytest.raises(
        DataError, match=r"OneStep cannot judge the rows measured on: Too few rows\. Name another judge"
    ):
        judged(judge=None)


def test_select_warns_of_doubtful_stages(by_one_step: PenaltyPath) -> None:
    noted = by_one_step.intervals.assign(note="in doubt by diagnostics")
    path = PenaltyPath(by_one_step.table, by_one_step.models, noted)
    with pytest.warns(PyrofairWarning, match="has numbers in doubt by diagnostics"):
        path.select("positive_rate", at_most=1.1)
