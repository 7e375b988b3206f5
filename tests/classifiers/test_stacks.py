"""Modules trained as one stack: equal to single fits, apart where they cannot be stacked, and untouched by failures."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from torch import nn

import pyrofair as pf
from pyrofair.classifiers import fit_many, training
from pyrofair.classifiers.batches import Epochs, Problem, World
from pyrofair.classifiers.stacks import Stack, architecture, optimizer_settings
from pyrofair.effects.functionals import formula_of
from pyrofair.effects.potential_outcomes import Scored
from pyrofair.exceptions import DataError

HIRING = pf.simulate.scenario("hiring")
READS = ["A", "Q", "D", "M"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What weights and mechanisms of few rows are warned of is tested elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pf.PyrofairWarning)
        yield


@functools.cache
def rows(n: int = 160) -> tuple[pd.DataFrame, pd.Series[int]]:
    df = HIRING.draw(n, random_state=0)
    return df[READS], df["Y"]


def bootstrap(copies: int, n: int = 160) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.multinomial(n, np.full(n, 1 / n)).astype(float) for _ in range(copies)]


def own(one: Scored, other: Scored) -> torch.Tensor:
    """A penalty of the user's, which reads single scores."""
    return (one.score.square() * one.weight).sum() + (other.mean - 0.5).square()


IPW = pf.IPW(HIRING.unfair, arm="paper")
POOLED = pf.IPW(HIRING.unfair, arm="pooled")
SHARED = pf.SEM(HIRING.program, HIRING.unfair, unit="shared", draws=3)
MODELS: dict[str, dict[str, Any]] = {
    "paper": {"source": IPW, "starts": 2},
    "pooled": {"source": POOLED},
    "units": {"source": SHARED, "penalty": pf.effect_gap},
    "upper end": {"source": POOLED, "penalty": pf.piu_upper},
    "squared": {"source": IPW, "penalty": partial(pf.effect_gap, squared=True)},
    "own": {"source": POOLED, "penalty": own},
    "sgd": {"source": IPW, "optimizer": "sgd", "learning_rate": 0.02},
    "held out": {"source": IPW, "validation_fraction": 0.3, "patience": 4},
    "plain": {},
}
MODELS = {name: {"starts": 1} | settings for name, settings in MODELS.items()}


def equal(one: Any, other: Any, within: float = 1e-6) -> None:
    for name, weight in one.module_.state_dict().items():
        torch.testing.assert_close(weight, other.module_.state_dict()[name], rtol=within, atol=within)
    pd.testing.assert_frame_equal(one.history_, other.history_, rtol=within)
    assert not other.module_.training


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("model", ["network", "logistic"])
@pytest.mark.some(3)
def test_a_stack_is_as_many_single_fits(model: Any, settings: dict[str, Any]) -> None:
    n = 100 if settings.get("source") is SHARED else 160
    X, y = rows(n)
    weights = [None, None, *bootstrap(2, n)]
    models = [
        pf.PenalizedClassifier(
            model, epochs=20, batch_size=50, random_state=seed, progress=False, **settings
        ).set_params(**{"strength": strength} if "source" in settings else {})
        for strength, seed in ((0.4, 0), (1.7, 0), (1.0, 1), (2.5, 2))
    ]
    together = fit_many(models, X, y, weights)
    for single, weight, fitted in zip(models, weights, together, strict=True):
        assert not hasattr(single, "module_")
        equal(pf.PenalizedClassifier(**single.get_params(deep=False)).fit(X, y, weight), fitted)


def test_stacks_of_any_size_and_any_number_of_processes_are_alike() -> None:
    X, y = rows()
    model = pf.PenalizedClassifier("logistic", source=IPW, epochs=5, batch_size=60, random_state=0, progress=False)
    copies = bootstrap(3)
    whole, single = fit_many(model, X, y, copies), fit_many(model, X, y, copies, max_stack=1)
    with joblib.parallel_config("threading", n_jobs=2):
        divided = fit_many(model, X, y, copies)
    for one, other, third in zip(whole, single, divided, strict=True):
        equal(one, other, 1e-9)
        equal(one, third, 1e-9)


def test_a_generator_seeds_each_fit_once_whatever_the_processes() -> None:
    X, y = rows()
    seeds = np.random.RandomState(0).randint(2**31 - 1, size=2).tolist()
    model = pf.PenalizedClassifier("logistic", epochs=1, random_state=np.random.RandomState(0), progress=False)
    with joblib.parallel_config("threading", n_jobs=2):
        found = fit_many(model, X, y, [None, None])
    for seed, fitted in zip(seeds, found, strict=True):
        equal(pf.PenalizedClassifier("logistic", epochs=1, random_state=seed, progress=False).fit(X, y), fitted)


def test_equal_rows_are_one_tensor_and_alike_modules_one_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows()
    stacks, honest = [], training.Stack
    monkeypatch.setattr(training, "Stack", lambda modules: stacks.append(len(modules)) or honest(modules))
    seen, train = [], training.train_many
    monkeypatch.setattr(
        "pyrofair.classifiers.many.train_many", lambda fits, size: seen.append(fits) or train(fits, size)
    )
    models = [
        pf.PenalizedClassifier(source=IPW, starts=1, epochs=1, strength=strength, random_state=0)
        for strength in (0.5, 1.0, 2.0, 0.0)
    ]
    fit_many(models, X, y)
    assert stacks == [3, 1]  # strength 0 has the batches of plain training
    assert len({id(fit.problem.rows) for fit in seen[0]}) == 1
    stacks.clear()
    fit_many(models[:3], X, y, max_stack=2)
    assert stacks == [2, 1]


# -- what is trained apart --------------------------------------------------------------------------------------------


class Halved(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.linear(values) / 2


def normalised(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def dropping(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4), nn.Dropout(0.5), nn.Linear(4, 1))


def tied(width: int) -> nn.Module:
    layer = nn.Linear(width, width)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(width, 1))


def hooked(width: int) -> nn.Module:
    layer = nn.Linear(width, 1)
    layer.register_forward_hook(lambda module, given, out: out / 2)
    return layer


def clipped(parameters: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    weights = optimizer.param_groups[0]["params"]

    def clip(*_: Any) -> None:
        nn.utils.clip_grad_norm_(weights, 0.01)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def by_shape(parameters: Any) -> torch.optim.Optimizer:
    """Decays matrices alone; a stack of biases is a matrix too."""
    several = list(parameters)
    groups = [{"params": [each for each in several if (each.ndim > 1) == many]} for many in (True, False)]
    return torch.optim.AdamW([groups[0] | {"weight_decay": 0.5}, groups[1] | {"weight_decay": 0.0}], lr=0.01)


APART = {
    "own class": {"model": Halved},
    "batch normalisation": {"model": normalised},
    "dropout": {"model": dropping},
    "tied": {"model": tied},
    "hook": {"model": hooked},
    "clipped": {"model": "logistic", "optimizer": clipped},
    "by shape": {"model": "network", "optimizer": by_shape},
}


@pytest.mark.parametrize("settings", APART.values(), ids=APART)
@pytest.mark.some(3)
def test_what_cannot_be_stacked_is_fitted_one_by_one(settings: dict[str, Any]) -> None:
    X, y = rows()
    models = [
        pf.PenalizedClassifier(
            source=IPW, starts=1, epochs=3, batch_size=50, random_state=seed, progress=False, **settings
        )
        for seed in (0, 1)
    ]
    for single, fitted in zip(models, fit_many(models, X, y), strict=True):
        equal(single.fit(X, y), fitted, 1e-12)


@pytest.mark.parametrize("layer", [nn.Dropout(), nn.BatchNorm1d(1), nn.Softmax(-1), Halved(1), nn.Linear(3, 3)])
def test_layers_that_mix_rows_or_numbers_are_not_stacked(layer: nn.Module) -> None:
    assert architecture(nn.Sequential(nn.Linear(4, 1), layer), 4) is None
    assert architecture(nn.Sequential(nn.Sequential(nn.Linear(4, 2), nn.Tanh()), nn.Linear(2, 1)), 4) is not None
    assert architecture(nn.Linear(4, 1), 5) is None


def test_optimizers_that_see_whole_modules_are_not_stacked() -> None:
    module = nn.Linear(3, 1)

    class Own(torch.optim.SGD):
        pass

    def settings(make: Any) -> Any:
        weights = list(module.parameters())
        return optimizer_settings(make(weights), weights)

    assert settings(torch.optim.LBFGS) is None
    assert settings(partial(Own, lr=0.1)) is None
    assert settings(partial(torch.optim.SGD, lr=0.1)) is not None
    assert settings(partial(torch.optim.SGD, lr=0.1)) != settings(partial(torch.optim.SGD, lr=0.2))


def test_modules_keep_weights_of_their_own() -> None:
    modules = [nn.Linear(3, 1) for _ in range(2)]
    before = [module.weight.detach().clone() for module in modules]
    stack = Stack(modules)
    values = torch.randn(2, 5, 3)
    expected = torch.stack([module(each)[:, 0] for module, each in zip(modules, values, strict=True)])
    torch.testing.assert_close(stack.logits(values), expected)
    stack.release()
    with torch.no_grad():
        stack.parameters()[0].zero_()
    assert all(torch.equal(module.weight, each) for module, each in zip(modules, before, strict=True))


# -- failures ---------------------------------------------------------------------------------------------------------


def test_one_that_diverges_spoils_no_other() -> None:
    X, y = rows()
    settings: dict[str, Any] = {"source": IPW, "starts": 1, "epochs": 5, "batch_size": 50, "progress": False}

    def steep(one: Scored, other: Scored) -> torch.Tensor:
        return (one.mean - 0.5).square() * 1e9

    models = [
        pf.PenalizedClassifier("logistic", random_state=0, penalty=penalty, optimizer="sgd", **settings)
        for penalty in (own, steep, lambda one, other: one.mean * float("nan"), own)
    ]
    found = fit_many(models, X, y, errors="return")
    equal(models[0].fit(X, y), found[0])
    equal(found[0], found[3], 0.0)
    for at in (1, 2):
        assert isinstance(found[at], DataError)
        with pytest.raises(DataError) as single:
            models[at].fit(X, y)
        assert str(single.value) == str(found[at])
    assert "diverged" in str(found[1])
    assert "The penalty returned nan" in str(found[2])
    with pytest.raises(DataError, match="diverged") as raised:
        fit_many(models, X, y)
    assert raised.value.__notes__ == ["This is the error of classifier 1 of 4; 2 failed in all."]


class Spoilt(BaseEstimator, TransformerMixin):
    """An encoder with one number missing."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> Spoilt:
        return self

    def transform(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        found = X.to_numpy(dtype=float, copy=True)
        found[0, 0] = np.nan
        return found


def failing(*_: Any) -> Any:
    raise ZeroDivisionError("mine")


@pytest.mark.parametrize(
    "given",
    [
        {"penalty": failing},
        {"penalty": failing, "strength": 3.0},
        {"optimizer": failing, "starts": 1},
        {"model": failing},
        {"encoder": Spoilt(), "starts": 1},
        {"encoder": Spoilt(), "starts": 1, "penalty": own},
    ],
    ids=["penalty in a trial", "penalty in a strong trial", "optimizer", "module", "first scores", "own first scores"],
)
def test_what_fails_before_training_spoils_no_other(given: dict[str, Any]) -> None:
    X, y = rows()
    settings = {"source": IPW, "starts": 2, "epochs": 2, "batch_size": 80, "random_state": 0, "progress": False}
    good = settings | {"starts": given.get("starts", 2), "penalty": own if given.get("penalty") is own else failing}
    if good["penalty"] is failing:
        del good["penalty"]
    models = [pf.PenalizedClassifier(**({"model": "logistic"} | each)) for each in (good, settings | given, good)]
    found = fit_many(models, X, y, errors="return")
    with pytest.raises(type(found[1])) as single:
        models[1].fit(X, y)
    assert str(single.value) == str(found[1])
    equal(models[0].fit(X, y), found[0])
    equal(found[0], found[2], 0.0)


def test_an_optimizer_that_fails_on_stacked_weights_gets_single_modules() -> None:
    def by_bias(parameters: Any) -> torch.optim.Optimizer:
        weight, bias = parameters
        return torch.optim.SGD([weight, bias], lr=0.1 + abs(bias.item()))

    X, y = rows()
    models = [
        pf.PenalizedClassifier("logistic", optimizer=by_bias, epochs=1, random_state=seed, progress=False)
        for seed in (0, 1)
    ]
    for single, fitted in zip(models, fit_many(models, X, y), strict=True):
        equal(single.fit(X, y), fitted, 1e-12)


def test_a_penalty_that_draws_numbers_is_seeded_by_its_fit() -> None:
    def noisy(one: Scored, other: Scored) -> torch.Tensor:
        return (one.mean - other.mean - torch.rand(())).square()

    X, y = rows()
    settings: dict[str, Any] = {"source": IPW, "starts": 2, "epochs": 3, "batch_size": 80, "progress": False}
    models = [
        pf.PenalizedClassifier("logistic", penalty=noisy, validation_fraction=0.2, random_state=seed, **settings)
        for seed in (0, 1, 0)
    ]
    before = torch.random.get_rng_state()
    found = fit_many(models, X, y)
    equal(models[1].fit(X, y), found[1])
    equal(found[0], found[2], 0.0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_best_state_of_a_module_holds_no_other_module(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, honest = [], training._Waiting.finish

    def finish(self: Any) -> None:
        sizes.append(sum(each.untyped_storage().nbytes() for each in self.state.values()))
        honest(self)

    monkeypatch.setattr(training._Waiting, "finish", finish)
    X, y = rows()
    models = [
        pf.PenalizedClassifier("logistic", validation_fraction=0.2, epochs=1, random_state=seed, progress=False)
        for seed in range(5)
    ]
    found = fit_many(models, X, y)
    assert sizes == [sum(each.nbytes for each in found[0].module_.state_dict().values())] * 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"classifiers": [None]}, r"classifiers=\[None\] must be a PenalizedClassifier, or several in a list"),
        ({"sample_weights": 3}, "sample_weights=3 must list weights for each classifier"),
        ({"sample_weights": [None] * 3}, "There are 2 classifiers and 3 sample_weights"),
        ({"n_jobs": 0}, "n_jobs=0 leaves no process to work in"),
    ],
)
def test_unfit_arguments_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit_many(**{"classifiers": [pf.PenalizedClassifier()] * 2, "X": None, "y": None} | given)


# -- epochs as tensors, penalties as formulas -------------------------------------------------------------------------


@pytest.mark.parametrize("minority", [70, 3])
@pytest.mark.parametrize("batch_size", [7, 50, 230, 500])
@pytest.mark.parametrize("pooled", [True, False])
def test_an_epoch_weighs_rows_as_its_batches_apart_do(pooled: bool, batch_size: int, minority: int) -> None:
    """Also where a world comes whole."""
    rng, n = np.random.default_rng(0), 230
    group = rng.permutation(np.arange(n) < minority).astype(int)
    worlds, size = [], n
    for world in (0, 1):
        taken = np.arange(n) if pooled else np.flatnonzero(group == 1)
        changed = pooled & (group[taken] == world)
        ids = np.where(changed, size + np.cumsum(changed) - 1, taken)
        size += int(changed.sum())
        worlds.append(World(torch.tensor(ids), torch.tensor(rng.exponential(size=len(ids))), None))
    problem = Problem(
        torch.tensor(rng.normal(size=(size, 2))), torch.tensor(rng.integers(2, size=n) * 1.0),
        torch.tensor(rng.exponential(size=n)), (worlds[0], worlds[1]), torch.tensor(group),
    )  # fmt: skip
    listed, epoch = (
        Epochs(problem, batch_size, torch.Generator().manual_seed(3), penalised=True, apart=apart).draw()
        for apart in (True, False)
    )
    (batches,) = listed.batches
    assert epoch.rows.shape[:2] == (len(batches), 1)
    for at, batch in enumerate(batches):
        whole = torch.zeros(size + 1, dtype=torch.float64)
        observed = batch.rows[: batch.size]
        expected = whole.index_add(0, observed, problem.weight[observed] / problem.weight.mean() / batch.size)
        torch.testing.assert_close(whole.index_add(0, epoch.rows[at, 0], epoch.factor[at, 0]), expected)
        for i, (share, world) in enumerate(zip(batch.shares, worlds, strict=True)):
            weighed = whole.index_add(0, batch.rows[share.indices], world.weight[share.entries])
            torch.testing.assert_close(whole.index_add(0, epoch.rows[at, 0], epoch.share[at, 0, i]), weighed)
            assert epoch.scale[at, 0, i] == pytest.approx(share.scale)


@pytest.mark.parametrize(
    "functional", [pf.disagreement, pf.effect_gap, partial(pf.effect_gap, squared=True), pf.piu_upper]
)
def test_the_slope_of_a_formula_is_its_gradient(functional: Any) -> None:
    ends = torch.tensor([-0.3, 0.0, 0.2, 0.5, 0.8, 1.0, 1.4], dtype=torch.float64)
    a, b = (each.requires_grad_() for each in torch.cartesian_prod(ends, ends).T.clone())
    one = torch.ones(1, dtype=torch.float64)
    value = torch.stack([functional(Scored(x[None], one), Scored(y[None], one)) for x, y in zip(a, b, strict=True)])
    expected = torch.stack(torch.autograd.grad(value.sum(), (a, b)), 1)
    formula = formula_of(functional)
    torch.testing.assert_close(formula.value(a, b), value)
    torch.testing.assert_close(formula.slope(torch.stack([a, b], 1).detach()), expected)


def test_only_the_functionals_themselves_are_formulas() -> None:
    assert formula_of(own) is None
    assert formula_of(partial(pf.piu_upper)) is None
    assert formula_of(partial(pf.effect_gap, squared=False)) is formula_of(pf.effect_gap)
