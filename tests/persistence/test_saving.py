"""What is saved gives the same numbers when it is loaded; what cannot be saved is refused before a file is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

import pyrofair as pf
from pyrofair.mechanisms.families import Continuous
from pyrofair.programs import with_covariates

RNG = np.random.default_rng(0)
N = 400
A, Q = RNG.integers(0, 2, N), RNG.normal(size=N)
M = 0.4 * A + 0.5 * Q + RNG.normal(size=N)
TABLE = pd.DataFrame(
    {
        "sex": pd.array(np.where(A == 1, "f", "m"), dtype="str"),
        "Q": Q.astype(np.float32),
        "C": pd.Categorical(RNG.choice(["x", "y"], N), categories=["y", "x", "never"]),
        "D": pd.array(RNG.poisson(1.0 + 0.5 * A).clip(max=3), dtype="Int64"),
        "M": M,
        "Y": np.where(RNG.random(N) < 1 / (1 + np.exp(1.5 - A - Q - M)), "yes", "no"),
    },
    index=pd.Index(RNG.permutation(N) + 1000, name="case"),
)
GRAPH = pf.CausalGraph(
    "{sex Q} -> D; {sex Q C} -> M; {sex Q C D M} -> Y",
    sensitive="sex",
    outcome="Y",
    baseline="m",
    contrast="f",
    positive="yes",
)
UNFAIR = GRAPH.unfair("sex -> Y", "sex -> D -> Y")
X, Y = TABLE.drop(columns="Y"), TABLE["Y"]
COARSE = TABLE.assign(Q=(Q > 0).astype(int), M=(M > 0).astype(int))
FEW = TABLE.sample(150, random_state=1)
SIMPLE = pf.CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
NUMBERS = pd.DataFrame({"A": A, "Q": Q, "M": M, "Y": (Y == "yes").astype(int).to_numpy()})


def again(obj: Any, folder: Path, **settings: Any) -> Any:
    path = folder / "saved.pyrofair"
    pf.save(obj, path)
    return pf.load(path, **settings)


def assert_same_worlds(one: Any, other: Any, **call: Any) -> None:
    for world, loaded in zip(one.worlds(**call), other.worlds(**call), strict=True):
        pd.testing.assert_frame_equal(world.rows, loaded.rows, check_exact=True)
        np.testing.assert_array_equal(world.weight, loaded.weight)
        np.testing.assert_array_equal(world.origin, loaded.origin)


def program(n: int) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        a, q = pyro.sample("A", dist.Bernoulli(0.5)), pyro.sample("Q", dist.Normal(0.0, 1.0))
        m = pyro.deterministic("M", slope * a + 0.5 * q + pyro.sample("U", dist.Normal(0.0, 1.0)))
        pyro.sample("Y", dist.Bernoulli(logits=a + q + m))


def steeper(n: int) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        a, q = pyro.sample("A", dist.Bernoulli(0.5)), pyro.sample("Q", dist.Normal(0.0, 1.0))
        m = pyro.deterministic("M", slope * a + 0.6 * q + pyro.sample("U", dist.Normal(0.0, 1.0)))
        pyro.sample("Y", dist.Bernoulli(logits=a + q + m))


def other_sites(n: int) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        a, q = pyro.sample("A", dist.Bernoulli(0.5)), pyro.sample("Q", dist.Laplace(0.0, 1.0))
        m = pyro.deterministic("M", slope * a + 0.5 * q + pyro.sample("V", dist.Normal(0.0, 1.0)))
        pyro.sample("Y", dist.Bernoulli(logits=a + q + m))


class Own(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(rows)
        return scores


def deep(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4), nn.LayerNorm(4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 2))


def half_gap(one: Any, other: Any) -> Any:
    return 0.5 * pf.effect_gap(one, other)


# -- the same numbers -------------------------------------------------------------------------------------------------


def test_graphs_and_paths_are_equal(tmp_path: Path) -> None:
    latent = pf.CausalGraph("U -> M; U -> Y; A -> M -> Y", sensitive="A", outcome="Y", columns={"M": ["m 1", "m 2"]},
                            latent=["U"], baseline=1.5, contrast=2.5, positive="ja", labels={2.5: "b"})  # fmt: skip
    saved = again(latent, tmp_path)
    assert saved == latent
    assert saved.labels == {2.5: "b"}
    found = again(latent.unfair("A -> M -> Y").reversed(), tmp_path / "..")
    assert found == latent.unfair("A -> M -> Y").reversed()
    assert found.graph == latent
    (tmp_path / ".." / "saved.pyrofair").unlink()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "propensity", ["logistic", "saturated", "boosted", pytest.param("stacked", marks=SLOW), LogisticRegression(C=0.5)]
)
@pytest.mark.filterwarnings("ignore::pyrofair.PositivityWarning")
def test_weights_are_equal(propensity: Any, tmp_path: Path) -> None:
    table = COARSE if propensity == "saturated" else TABLE
    unfair = UNFAIR
    if not isinstance(propensity, str):
        table, unfair = NUMBERS, SIMPLE.unfair("A -> Y")
    source = pf.IPW(unfair, propensity=propensity, max_unsupported=1.0, random_state=0).fit(table)
    loaded = again(source, tmp_path)
    weight = np.random.default_rng(1).exponential(size=N)
    assert_same_worlds(source, loaded)
    assert_same_worlds(source, loaded, df=table.iloc[::-3])
    assert_same_worlds(source.refit(weight), loaded.refit(weight))
    pd.testing.assert_frame_equal(source.overlap(), loaded.overlap(), check_exact=True)
    assert loaded.assumptions == source.assumptions
    np.testing.assert_array_equal(loaded.fitted_rows(table.iloc[5:]), np.arange(5, N))
    assert_same_worlds(source.refit(weight), again(source.refit(weight), tmp_path / ".." / tmp_path.name / ".."))
    (tmp_path / ".." / "saved.pyrofair").unlink()


WITNESS = pf.CausalGraph("A -> {R M}; R -> M; {A R M} -> Y", sensitive="A", outcome="Y").unfair("A -> Y", "A -> R -> Y")
RACE = pf.CausalGraph("race -> M -> Y; race -> Y", sensitive="race", outcome="Y", baseline="w", contrast="b")
OF_SEVERAL: dict[str, tuple[Any, dict[str, Any]]] = {
    "bounds": (pf.MilesBounds(WITNESS), {"A": A, "R": Q, "M": (M > 0).astype(int)}),
    "contrasts": (
        pf.Contrasts(pf.IPW(RACE.unfair("race -> Y")), over={"a": 1.0, "b": 2.0}),
        {"race": np.array(["w", "b", "a"])[RNG.integers(0, 3, N)], "M": M},
    ),
    "several": (
        pf.Several({"one": pf.IPW(SIMPLE.unfair("A -> Y")), "two": pf.IPW(SIMPLE.unfair("A -> M -> Y"))}),
        {"A": A, "Q": Q, "M": M},
    ),
}


@pytest.mark.parametrize("name", OF_SEVERAL)
@pytest.mark.filterwarnings("ignore::pyrofair.PyrofairWarning")
def test_sources_to_train_with_are_equal(name: str, tmp_path: Path) -> None:
    source, columns = OF_SEVERAL[name]
    table = pd.DataFrame(columns)
    model = pf.PenalizedClassifier(
        "logistic", source=source, penalty=pf.interval_disagreement, epochs=2, progress=False, random_state=0
    ).fit(table, (M > 0).astype(int))
    loaded = again(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    assert getattr(loaded.source, "over", None) == getattr(source, "over", None)
    pf.save(source, tmp_path / "unfitted")
    assert type(pf.load(tmp_path / "unfitted").fit(table)) is type(source)
    fitted = model.source_
    pf.save(fitted, tmp_path / "fitted")
    found = pf.load(tmp_path / "fitted")
    if name == "bounds":
        assert found.intervals(model) == fitted.intervals(model)
        return
    for key, pair in fitted.pairs(df=table).items():
        for one, other in zip(pair, found.pairs(df=table)[key], strict=True):
            np.testing.assert_array_equal(one.weight, other.weight)


def test_trimmed_weights_are_equal_and_generators_are_refused(tmp_path: Path) -> None:
    source = pf.IPW(SIMPLE.unfair("A -> Y"), trim=0.3, clip=0.01, random_state=3)
    with pytest.warns(pf.PositivityWarning, match="trim=0.3 drops"):
        source.fit(NUMBERS)
    loaded = again(source, tmp_path)
    assert loaded.trimmed_ == source.trimmed_ > 0
    assert_same_worlds(source, loaded, df=NUMBERS.iloc[:99])
    with pytest.raises(pf.DataError, match="random_state is an object of the class Generator"):
        pf.save(pf.OneStep(UNFAIR, random_state=np.random.default_rng(5)), tmp_path / "other")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=SLOW),
        pytest.param({"form": "graph"}, marks=SLOW),
        {"propensity": "logistic", "regression": "logistic"},
    ],
)
def test_audits_are_equal(settings: dict[str, Any], tmp_path: Path) -> None:
    source = pf.OneStep(UNFAIR, random_state=0, **settings).fit(TABLE)
    loaded = again(source, tmp_path)
    model = pf.PenalizedClassifier("logistic", epochs=2, progress=False, random_state=0).fit(X.drop(columns="D"), Y)
    reports = [pf.audit({"m": model}, each, FEW, progress=False, random_state=0) for each in (source, loaded)]
    pd.testing.assert_frame_equal(reports[0].table, reports[1].table, check_exact=True)
    assert str(reports[0]) == str(reports[1])
    assert loaded.form_ == source.form_


@pytest.mark.parametrize("model", ["network", "logistic", deep(8), deep])
def test_classifiers_predict_the_same(model: Any, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 2, "progress": False, "random_state": 0, "dtype": "float32"}
    fitted = pf.PenalizedClassifier(model, source=pf.IPW(UNFAIR, random_state=0), penalty=half_gap, **settings)
    fitted.fit(X, Y)
    given = {} if isinstance(model, str) else {"model": model}
    loaded = again(fitted, tmp_path, given=given)
    np.testing.assert_array_equal(fitted.predict_proba(FEW), loaded.predict_proba(FEW))
    np.testing.assert_array_equal(fitted.predict(FEW), loaded.predict(FEW))
    pd.testing.assert_frame_equal(fitted.history_, loaded.history_, check_exact=True)
    assert loaded.source_ is None
    assert loaded.source.get_params().keys() == fitted.source.get_params().keys()
    with pytest.raises(
        pf.DataError, match=r"without its penalty \(the function half_gap\).*given=\{'penalty': \.\.\.\}"
    ):
        loaded.penalty(None, None)
    assert pf.load(tmp_path / "saved.pyrofair", given=given | {"penalty": half_gap}).penalty is half_gap


@pytest.mark.parametrize("model", [Own, Own(7)])
def test_a_module_of_ones_own_is_given_again(model: Any, tmp_path: Path) -> None:
    fitted = pf.PenalizedClassifier(model, epochs=2, progress=False, random_state=0).fit(X.drop(columns="D"), Y)
    with pytest.raises(pf.DataError, match=r"code of yours.*'model', which was .*Own.*given=\{'model': \.\.\.\}"):
        again(fitted, tmp_path)
    path, few = tmp_path / "saved.pyrofair", FEW[["sex", "Q", "C", "M"]]
    for given in (Own, Own(7)):
        np.testing.assert_array_equal(
            pf.load(path, given={"model": given}).predict_proba(few), fitted.predict_proba(few)
        )
    with pytest.raises(pf.DataError, match=r"given\['model'\] has other numbers .*\(1, 3\), .* not .*\(1, 7\)"):
        pf.load(path, given={"model": Own(3)})
    with pytest.raises(pf.DataError, match=r"given names 'modle', .* takes 'model'.*mean 'model'"):
        pf.load(path, given={"modle": Own})


@pytest.mark.filterwarnings("ignore::pyrofair.PyrofairWarning")
def test_pscf_predicts_the_same(tmp_path: Path) -> None:
    for settings in ({}, {"own_noise": 0.3, "hidden": 3}):
        fitted = pf.PSCF(UNFAIR, epochs=2, progress=False, random_state=0, **settings).fit(X.astype({"D": int}), Y)
        pf.save(fitted, tmp_path / "pscf.pyrofair", overwrite=True)
        loaded = pf.load(tmp_path / "pscf.pyrofair")
        few = FEW.astype({"D": int})
        np.testing.assert_array_equal(fitted.predict_proba(few), loaded.predict_proba(few))
        np.testing.assert_array_equal(fitted.predict(few), loaded.predict(few))
        np.testing.assert_array_equal(fitted.fair_values(few)["D"], loaded.fair_values(few)["D"])
        pd.testing.assert_frame_equal(fitted.latents_, loaded.latents_, check_exact=True)


@pytest.mark.filterwarnings("ignore::pyrofair.PyrofairWarning")
def test_mechanisms_and_their_worlds_are_equal(tmp_path: Path) -> None:
    table = TABLE.astype({"D": int})
    source = pf.GComputation(UNFAIR, hidden=(3,), draws=20, progress=False, random_state=0).fit(table)
    loaded = again(source, tmp_path)
    assert_same_worlds(source, loaded)
    weight = np.random.default_rng(1).exponential(size=N)
    assert_same_worlds(source.refit(weight), loaded.refit(weight))
    learned = source.mechanisms_
    assert learned is not None
    found = again(learned, tmp_path / ".." / tmp_path.name / "..")
    (tmp_path / ".." / "saved.pyrofair").unlink()
    pd.testing.assert_frame_equal(learned.held_out, found.held_out, check_exact=True)
    pd.testing.assert_frame_equal(learned.calibration(), found.calibration(), check_exact=True)
    pd.testing.assert_frame_equal(
        learned.refit(weight, random_state=0).held_out, found.refit(weight, random_state=0).held_out, check_exact=True
    )
    assert found.dtypes == learned.dtypes


def test_programs_are_given_again(tmp_path: Path) -> None:
    unfair = SIMPLE.unfair("A -> Y")
    posterior = pf.fit_posterior(program, NUMBERS, unfair, method="svi", steps=200, progress=False, random_state=0)
    path = tmp_path / "posterior.pyrofair"
    pf.save(posterior, path)
    found = pf.load(path)
    pd.testing.assert_frame_equal(posterior.summary(), found.summary(), check_exact=True)
    assert found.diagnostics == posterior.diagnostics
    source = pf.SEM(program, unfair, posterior=posterior, random_state=3)
    with pytest.raises(pf.DataError, match=r"'program', which was the function program.*given=\{'program': \.\.\.\}"):
        again(source, tmp_path)
    path = tmp_path / "saved.pyrofair"
    loaded = pf.load(path, given={"program": program})
    for one, other in zip(source.nodes(50), loaded.nodes(50), strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    with pytest.raises(pf.DataError, match=r"it lacks 'U'; it has 'V' besides; it has .*'Q' as Laplace .* not Normal"):
        pf.load(path, given={"program": other_sites})
    with pytest.raises(pf.DataError, match=r"other values of 'M' from one seed"):
        pf.load(path, given={"program": steeper})
    with pytest.raises(pf.DataError, match="does not run on 4 units"):
        pf.load(path, given={"program": lambda: None})


def test_learned_programs_and_covariates(tmp_path: Path) -> None:
    learned = pf.learn_mechanisms(NUMBERS, SIMPLE, parameters="linear", components=1, progress=False, random_state=0)
    source = pf.SEM.from_mechanisms(learned, SIMPLE.unfair("A -> Y"))
    loaded = again(source, tmp_path)
    pd.testing.assert_frame_equal(source.nodes(30, 1)[1], loaded.nodes(30, 1)[1], check_exact=True)

    def of_covariates(n: int, known: dict[str, torch.Tensor]) -> None:
        with pyro.plate("units", n):
            a = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.deterministic("M", a * known["need"] + pyro.sample("U", dist.Normal(0.0, 1.0)))

    graph = pf.CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    sem = pf.SEM(with_covariates(of_covariates, {"need": [0.0, 1.0, 2.0]}), graph.unfair("A -> M -> Y"))
    path = tmp_path / "covariates.pyrofair"
    pf.save(sem, path)
    found = pf.load(path, given={"program": of_covariates})
    pd.testing.assert_frame_equal(sem.nodes(9, 2)[1], found.nodes(9, 2)[1], check_exact=True)


def test_a_path_goes_on(tmp_path: Path) -> None:
    classifier = pf.PenalizedClassifier("logistic", source=pf.IPW(SIMPLE.unfair("A -> Y")), epochs=3, progress=False)
    settings: dict[str, Any] = {"seeds": 1, "n_boot": 0, "progress": False}
    features, outcome = NUMBERS.drop(columns="Y"), NUMBERS["Y"]
    path = pf.penalty_path(classifier, features, outcome, strengths=[1.0, 0.1], **settings)
    loaded = again(path, tmp_path)
    pd.testing.assert_frame_equal(path.table, loaded.table, check_exact=True)
    assert loaded.fingerprint == path.fingerprint
    assert [*loaded.models] == [*path.models]
    resumed = pf.penalty_path(classifier, features, outcome, strengths=[1.0, 0.1], resume=loaded, **settings)
    pd.testing.assert_frame_equal(path.table, resumed.table, check_exact=True)


# -- estimators of scikit-learn ---------------------------------------------------------------------------------------


def test_estimators_of_other_classes_are_written_by_skops(tmp_path: Path) -> None:
    pytest.importorskip("skops.io")
    forest = RandomForestClassifier(5, min_samples_leaf=30, random_state=0)
    source = pf.IPW(SIMPLE.unfair("A -> Y"), propensity=forest, folds=2, random_state=0).fit(NUMBERS)
    with pytest.raises(pf.DataError, match=r"that skops wrote.*load it with skops=True"):
        again(source, tmp_path)
    assert_same_worlds(source, pf.load(tmp_path / "saved.pyrofair", skops=True), df=NUMBERS.iloc[:50])


def test_boosted_trees_and_encoders_of_ones_own(tmp_path: Path) -> None:
    trees = HistGradientBoostingClassifier(max_iter=4, monotonic_cst={"Q": 1}, random_state=0)
    unfair = pf.CausalGraph("{A Q} -> Y", sensitive="A", outcome="Y").unfair("A -> Y")
    source = pf.IPW(unfair, propensity=trees, random_state=0)
    classifier = pf.PenalizedClassifier("logistic", source=source, encoder=StandardScaler(), epochs=2, progress=False)
    table = NUMBERS[["A", "Q"]]
    classifier.fit(table, NUMBERS["Y"])
    assert classifier.source_ is not None
    assert_same_worlds(classifier.source_, again(classifier.source_, tmp_path), df=table.iloc[:50])
    pf.save(classifier, tmp_path / "classifier")
    loaded = pf.load(tmp_path / "classifier")
    np.testing.assert_array_equal(loaded.predict_proba(table), classifier.predict_proba(table))
    assert loaded.source.propensity.get_params() == trees.get_params()


# -- refusals ---------------------------------------------------------------------------------------------------------


class Strange(Continuous):
    """A family of one's own."""


def test_what_cannot_be_saved_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "no.pyrofair"
    with pytest.raises(pf.DataError, match=r"class dict; .* CausalGraph, .*PenaltyPath"):
        pf.save({}, path)
    with pytest.raises(pf.DataError, match=r"class ABCMeta.*not its class|class type.*not its class"):
        pf.save(pf.IPW, path)
    with pytest.raises(pf.DataError, match=r"folds.* is an object of the class Path|folds is an object"):
        pf.save(pf.IPW(UNFAIR, folds=Path("x")), path)  # type: ignore[arg-type]
    given = pf.PSCF(SIMPLE.unfair("A -> Y"), model=program)
    with pytest.raises(pf.DataError, match=r"given model= holds the program .*Save the learned mechanisms"):
        pf.save(given, path)
    periods = pd.Index(pd.period_range("2020", periods=N, freq="D"))
    with pytest.raises(pf.DataError, match=r"rows\.table\.index.* of the type period\[D\]"):
        pf.save(pf.IPW(SIMPLE.unfair("A -> Y")).fit(NUMBERS.set_axis(periods)), path)
    circle: list[Any] = []
    circle.append({"again": circle})
    with pytest.raises(pf.DataError, match=r"nested more than 100 levels"):
        pf.save(pf.IPW(UNFAIR, random_state=circle), path)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_a_family_of_ones_own_is_given_again(tmp_path: Path) -> None:
    source = pf.GComputation(UNFAIR, families={"M": Strange(0.0, 1.0)})
    with pytest.raises(pf.DataError, match=r"'families.M', which was an object of the class Strange"):
        again(source, tmp_path)
    loaded = pf.load(tmp_path / "saved.pyrofair", given={"families.M": Strange(0.0, 1.0)})
    assert type(loaded.families["M"]) is Strange


def test_files_are_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "paths.pyrofair"
    pf.save(UNFAIR, path)
    before = path.read_bytes()
    with pytest.raises(pf.DataError, match=r"paths.pyrofair' exists. Pass overwrite=True"):
        pf.save(GRAPH, path)
    assert path.read_bytes() == before
    pf.save(UNFAIR, path, overwrite=True)
    assert path.read_bytes() == before  # equal objects make equal files
    pf.save(GRAPH, path, overwrite=True)
    assert pf.load(path) == GRAPH
    with pytest.raises(pf.DataError, match=r"is a folder; name a file in it"):
        pf.save(GRAPH, tmp_path)
    with pytest.raises(pf.DataError, match=r"folder '.*none' does not exist; make it first"):
        pf.save(GRAPH, tmp_path / "none" / "x.pyrofair")
    for wrong in (3, "", None, b"x", "x" * 300, "a\0b", "\ud800"):
        with pytest.raises(pf.DataError, match=r"path=.* (must|cannot) be the path of a file"):
            pf.save(GRAPH, wrong)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["paths.pyrofair"]


def test_a_classifier_holds_no_row(tmp_path: Path) -> None:
    secret = NUMBERS.assign(Q=NUMBERS["Q"].round(12))
    source = pf.IPW(SIMPLE.unfair("A -> Y"), random_state=0)
    fitted = pf.PenalizedClassifier(source=source.fit(secret), epochs=1, progress=False, random_state=0)
    fitted.fit(secret.drop(columns="Y"), secret["Y"])
    sizes = []
    for name, each in {"classifier": fitted, "source": source}.items():
        pf.save(each, tmp_path / name)
        sizes.append((tmp_path / name).read_bytes().count(secret["Q"].to_numpy()[:3].tobytes()))
    assert sizes == [0, 1]
