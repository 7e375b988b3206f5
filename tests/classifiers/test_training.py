"""Training under a penalty: the objective, its gradient, the loop, modules and optimizers."""

from __future__ import annotations

import dataclasses
import functools
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from pyrofair import IPW, CausalGraph, DataError, PenalizedClassifier, disagreement, effect_gap
from pyrofair.classifiers.batches import Problem
from pyrofair.classifiers.stacks import logits_of
from pyrofair.classifiers.training import Schedule, make_module, make_optimizer, train
from pyrofair.effects.potential_outcomes import CounterfactualSample, PotentialOutcomes, Scored

GRAPH = CausalGraph("Q -> A; {A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")
DIRECT = 2.0  # the effect of A on the log-odds of Y that is not through D


@functools.cache
def make_data(n: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[int]]:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    a = rng.binomial(1, 1 / (1 + np.exp(-0.5 * q)))
    d = 0.5 * a + 0.5 * q + rng.normal(size=n)
    y = rng.binomial(1, 1 / (1 + np.exp(-(DIRECT * a + q + d - 1))))
    return pd.DataFrame({"A": a, "Q": q, "D": d}), pd.Series(y, name="Y")


def at_rate(rate: float) -> Any:
    return partial(torch.optim.SGD, lr=rate)


def small_module() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


class Fixed:
    """A source made by hand, that is nothing but the protocol: two samples given beforehand."""

    def __init__(self, *samples: CounterfactualSample) -> None:
        self.samples = samples
        self.unfair = UNFAIR

    def fit(self, df: pd.DataFrame, sample_weight: Any = None) -> Self:
        return self

    def worlds(
        self, n: Any = None, random_state: Any = None, *, df: Any = None, sample_weight: Any = None
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        return self.samples[0], self.samples[1]


class Watch:
    """A penalty that keeps what it was given."""

    def __init__(self, penalty: Any = disagreement) -> None:
        self.penalty = penalty
        self.calls: list[tuple[Scored, Scored]] = []
        self.values: list[float] = []

    def __call__(self, one: Scored, other: Scored) -> torch.Tensor:
        value: torch.Tensor = self.penalty(one, other)
        self.calls.append((one, other))
        self.values.append(value.item())
        return value

    def __deepcopy__(self, memo: Any) -> Watch:
        return self


def means(source: IPW, classifier: PenalizedClassifier) -> list[float]:
    """P(Y = 1) in both worlds."""
    return [float(world.weight @ classifier.predict_proba(world.rows)[:, 1]) for world in source.worlds()]


# -- the objective ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hajek", [True, False], ids=["hajek", "horvitz-thompson"])
@pytest.mark.parametrize("arm", ["paper", 0, 1, "pooled"])
def test_the_gradient_is_that_of_the_formula(arm: Any, hajek: bool) -> None:
    X, y = make_data(300)
    source = IPW(UNFAIR, arm=arm, normalize=hajek)
    start = small_module()
    fitted = PenalizedClassifier(
        start, source=source, strength=1.5, epochs=1, batch_size=300, optimizer=at_rate(1.0), random_state=0
    ).fit(X, y)
    step = [(a - b).detach() for a, b in zip(start.parameters(), fitted.module_.parameters(), strict=True)]

    def scores(table: pd.DataFrame) -> torch.Tensor:
        numbers = (table[["A", "Q", "D"]] - X.mean()) / X.std(ddof=0)
        return torch.sigmoid(start(torch.tensor(numbers.to_numpy()))).flatten()

    source.fit(X)
    outside, world_means = torch.zeros(()), []
    for value, regime in enumerate(UNFAIR.regimes):
        weight = torch.tensor(source.weights(regime).to_numpy())
        mean = weight @ scores(X.assign(A=value)) / (weight.sum() if hajek else len(X))
        outside = outside + torch.relu(mean - 1)
        world_means.append(mean)
    a, b = world_means
    target = torch.tensor(y.to_numpy(dtype=float))
    observed = scores(X)
    loss = -(target * observed.log() + (1 - target) * (1 - observed).log()).mean()
    objective = loss + 1.5 * (a * (1 - b) + (1 - a) * b + outside)
    expected = torch.autograd.grad(objective, list(start.parameters()))
    for ours, theirs in zip(step, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert fitted.history_["loss"][0] == pytest.approx(loss.item(), rel=1e-12)
    assert fitted.history_["penalty"][0] == pytest.approx((objective - loss).item() / 1.5, rel=1e-12)


@pytest.mark.parametrize("arm", ["paper", 0, 1, "pooled"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.some(3)
def test_the_batches_average_to_the_whole(arm: Any, normalize: bool) -> None:
    X, y = make_data(2000)

    def first_epoch(batch_size: int) -> pd.Series[float]:
        source = IPW(UNFAIR, arm=arm, normalize=normalize)
        still = PenalizedClassifier(
            small_module(), source=source, epochs=5, batch_size=batch_size, optimizer=at_rate(0.0), random_state=0
        )
        return still.fit(X, y).history_.mean()

    whole, parts = first_epoch(2000), first_epoch(100)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-12)
    assert parts["penalty"] == pytest.approx(whole["penalty"], rel=1e-12)


def test_with_weights_the_batches_average_to_the_whole_too() -> None:
    """Twenty rows of weight 50: a batch's mean by its own weights would not average to the mean of all."""
    X, y = make_data(2000)
    weight = np.where(np.arange(2000) < 20, 50.0, 1.0)

    def first_epoch(batch_size: int) -> float:
        still = PenalizedClassifier(
            small_module(), epochs=5, batch_size=batch_size, optimizer=at_rate(0.0), random_state=0
        )
        return float(still.fit(X, y, sample_weight=weight).history_["loss"].mean())

    assert first_epoch(50) == pytest.approx(first_epoch(2000), rel=1e-12)


def drawn_worlds(people_: int, draws: int, seen: bool) -> list[CounterfactualSample]:
    """Rows drawn for each unit in both worlds, in an order of their own; ``seen`` gives them an origin as well."""
    rng = np.random.default_rng(0)
    found = []
    for value in (0, 1):
        unit = rng.permutation(np.repeat(np.arange(people_), draws))
        table = pd.DataFrame({"A": value, "Q": unit / people_, "D": rng.normal(size=len(unit))})
        weight = np.full(len(unit), 1 / len(unit))
        found.append(CounterfactualSample(table, weight, unit, np.full(len(unit), -1) if seen else None))
    return found


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("batch_size", [400, 90])
def test_units_reach_the_penalty_whole(seen: bool, batch_size: int) -> None:
    X, y = make_data(400)
    watch = Watch()
    source = Fixed(*drawn_worlds(300, 5, seen))
    assert isinstance(source, PotentialOutcomes)
    fitted = PenalizedClassifier(
        "logistic", source=source, penalty=watch, starts=1, epochs=2, batch_size=batch_size, random_state=0
    ).fit(X, y)
    assert np.isfinite(fitted.history_[["loss", "penalty"]].to_numpy()).all()
    assert len(watch.calls) == 2 * -(-400 // batch_size)
    for one, other in watch.calls:  # a mean score for each unit
        assert one.unit.tolist() == other.unit.tolist() == list(range(300))
        assert one.weight.tolist() == other.weight.tolist() == pytest.approx([1 / 300] * 300)


def test_the_penalty_of_units_is_that_of_their_own_means() -> None:
    """Full batch, scores by hand, unit means by pandas."""
    X, y = make_data(400)
    worlds = drawn_worlds(300, 5, seen=False)
    module = small_module()
    still = PenalizedClassifier(
        module, source=Fixed(*worlds), penalty=effect_gap, epochs=1, batch_size=400, optimizer=at_rate(0.0)
    ).fit(X, y)
    by_unit = []
    for world in worlds:
        numbers = (world.rows - X.mean()) / X.std(ddof=0)
        scores = torch.sigmoid(module(torch.tensor(numbers.to_numpy()))).detach().flatten().numpy()
        by_unit.append(pd.Series(scores).groupby(world.unit).mean())
    assert still.history_["penalty"][0] == pytest.approx((by_unit[0] - by_unit[1]).abs().mean(), rel=1e-9)


# -- what penalties do ------------------------------------------------------------------------------------------------


@functools.cache
def trained(penalty: Any, strength: float) -> tuple[float, float, float]:
    """Both means, and how much the scores vary."""
    X, y = make_data(1500)
    fitted = PenalizedClassifier(
        "logistic", source=IPW(UNFAIR), penalty=penalty, strength=strength, epochs=150, learning_rate=0.05,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    a, b = means(IPW(UNFAIR).fit(X), fitted)
    return a, b, float(fitted.predict_proba(X)[:, 1].std())


@pytest.mark.parametrize("penalty", [effect_gap, partial(effect_gap, squared=True)], ids=["gap", "squared"])
def test_a_strong_gap_penalty_removes_the_unfair_effect(penalty: Any) -> None:
    a, b, _ = trained(penalty, 0.0)
    plain = abs(b - a)
    assert plain > 0.2  # there is something to remove
    a, b, spread = trained(penalty, 20.0)
    assert abs(b - a) < 0.2 * plain
    assert spread > 0.1  # and the classifier still separates units


def test_a_strong_disagreement_penalty_collapses_to_a_constant() -> None:
    a, b, plain = trained(disagreement, 0.0)
    assert plain > 0.2
    assert a + b - 2 * a * b > 0.4
    a, b, spread = trained(disagreement, 10.0)
    assert spread < 0.05
    assert a + b - 2 * a * b < 0.08


def test_with_the_other_class_as_positive_the_penalty_counts_that_class() -> None:
    X, y = make_data(500)
    labels = y.map({0: "reject", 1: "accept"})  # sorted, "accept" is the first class

    def raise_both(one: Scored, other: Scored) -> torch.Tensor:
        return 2 - one.mean - other.mean

    rates = {}
    for positive in ("accept", "reject"):
        graph = CausalGraph(GRAPH.edges, sensitive="A", outcome="Y", positive=positive)
        fitted = PenalizedClassifier(
            "logistic", source=IPW(graph.unfair("A -> Y")), penalty=raise_both, strength=3.0, learning_rate=0.1,
            epochs=60, random_state=0,
        ).fit(X, labels)  # fmt: skip
        rates[positive] = (fitted.predict(X) == positive).mean()
    assert min(rates.values()) > 0.9


# -- the loop ---------------------------------------------------------------------------------------------------------


def schedule(**settings: Any) -> Schedule:
    return Schedule(
        **{"epochs": 3, "batch_size": 20, "optimizer": at_rate(0.1), "patience": None, "seed": 0, **settings}
    )


def plain_problem(n: int = 60) -> Problem:
    X, y = make_data(n)
    return Problem(torch.tensor(X.to_numpy()), torch.tensor(y.to_numpy(dtype=float)), torch.ones(n).double())


def test_dropout_draws_from_its_own_seed() -> None:
    problem = plain_problem()

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(8)
        module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double()
        torch.manual_seed(seed)  # the state of the global generator must not matter
        before = torch.get_rng_state()
        module = train(module, problem, None, 0.0, schedule())
        assert torch.equal(torch.get_rng_state(), before)
        assert not module.training
        return module[0].weight.detach()

    assert torch.equal(weights(1), weights(2))


def test_without_worlds_or_strength_the_penalty_is_not_called() -> None:
    def never(one: Scored, other: Scored) -> torch.Tensor:
        pytest.fail("called")

    problem = PenalizedClassifier(source=IPW(UNFAIR), random_state=0).prepare(*make_data(100))
    plain = dataclasses.replace(problem, worlds=None, stratum=None)
    cases = [(problem, never, 0.0), (problem, None, 1.0), (plain, never, 1.0), (plain, None, 0.0)]
    found = [train(small_module(), rows, penalty, strength, schedule()) for rows, penalty, strength in cases]
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0].parameters(), other.parameters(), strict=True))


def test_the_best_epoch_is_kept() -> None:
    X, y = make_data(200)
    settings: dict[str, Any] = {"validation_fraction": 0.4, "learning_rate": 0.05, "random_state": 0, "batch_size": 30,
                                "starts": 1}  # fmt: skip
    stopped = PenalizedClassifier(source=IPW(UNFAIR), epochs=200, patience=5, **settings).fit(X, y)
    history = stopped.history_
    best = int(history["validation"].idxmin())
    assert list(history.columns) == ["epoch", "loss", "penalty", "validation"]
    assert len(history) == best + 6 < 200
    # Cut off right after that epoch, training gives the same module.
    short = PenalizedClassifier(source=IPW(UNFAIR), epochs=best + 1, **settings).fit(X, y)
    assert np.array_equal(stopped.predict_proba(X), short.predict_proba(X))
    long = PenalizedClassifier(source=IPW(UNFAIR), epochs=len(history), **settings).fit(X, y)
    assert np.array_equal(stopped.predict_proba(X), long.predict_proba(X))


def test_validation_is_the_objective_on_the_held_out_rows() -> None:
    X, y = make_data(300)
    classifier = PenalizedClassifier(
        "logistic", source=IPW(UNFAIR), strength=2.0, epochs=1, validation_fraction=0.5, random_state=0
    )
    problem = classifier.prepare(X, y)
    assert len(problem.outcome) == len(problem.validation.outcome) == 150
    fitted = classifier.fit(X, y)
    held = problem.validation
    with torch.no_grad():
        scores = torch.sigmoid(fitted.module_(held.rows)).flatten()
    loss = nn.functional.binary_cross_entropy(scores[:150], held.outcome)
    a, b = (world.weight @ scores[world.rows] for world in held.worlds)
    assert fitted.history_["validation"][0] == pytest.approx((loss + 2 * (a + b - 2 * a * b)).item(), rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "sgd", "learning_rate": 1e6}, "diverged: the objective"),
        ({"optimizer": "adam", "learning_rate": 1e6, "source": IPW(UNFAIR)}, "diverged: the objective"),
        ({"optimizer": at_rate(1e308)}, "not finite: training diverged"),
    ],
)
def test_divergence_is_an_error(settings: dict[str, Any], message: str) -> None:
    X, y = make_data(200)
    wild = PenalizedClassifier(epochs=3, batch_size=50, random_state=0, **settings)
    with pytest.raises(DataError, match=message):
        wild.fit(X, y)
    assert not hasattr(wild, "module_")


@pytest.mark.parametrize("returned", [0.5, torch.zeros(1), None], ids=["float", "vector", "None"])
def test_a_penalty_must_return_a_scalar(returned: Any) -> None:
    X, y = make_data(100)
    with pytest.raises(DataError, match=r"The penalty returned .*; it must return a torch scalar"):
        PenalizedClassifier(source=IPW(UNFAIR), penalty=lambda one, other: returned).fit(X, y)


# -- modules and optimizers -------------------------------------------------------------------------------------------


class Returns(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, rows: torch.Tensor) -> Any:
        return self.make(rows)


def test_log_odds_come_as_a_vector_a_column_or_two_logits() -> None:
    rows = torch.tensor([[1.0, 3.0], [2.0, -1.0], [0.0, 0.0]])
    expected = [2.0, -3.0, 0.0]
    for make in (lambda x: x, lambda x: x[:, 1] - x[:, 0], lambda x: (x[:, 1] - x[:, 0])[:, None]):
        assert logits_of(Returns(make), rows).tolist() == expected


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda x: x.repeat(1, 2), r"\(3, 4\)"),
        (lambda x: x[:2, 0], r"\(2,\)"),
        (lambda x: x[:, :1].T, r"\(1, 3\)"),
        (lambda x: x.sum(), r"\(\)"),
        (lambda x: (x, x), "tuple"),
        (lambda x: x[:, 0] / 0.0, ""),
    ],
)
def test_log_odds_of_another_shape_or_not_finite_are_refused(make: Any, what: str) -> None:
    with pytest.raises(DataError, match=f"returned {what};" if what else "not finite"):
        logits_of(Returns(make), torch.ones(3, 2))


def test_the_network_is_the_papers() -> None:
    shapes = [tuple(p.shape) for p in make_module("network", 7).parameters()]
    assert shapes == [(100, 7), (100,), (50, 100), (50,), (1, 50), (1,)]
    assert [type(layer).__name__ for layer in make_module("network", 7)][1:4:2] == ["Sigmoid", "Sigmoid"]
    assert [tuple(p.shape) for p in make_module("logistic", 7).parameters()] == [(1, 7), (1,)]


def test_optimizers() -> None:
    parameters = list(nn.Linear(2, 1).parameters())
    adam, sgd = (make_optimizer(name, None)(iter(parameters)) for name in ("adam", "sgd"))
    assert isinstance(adam, torch.optim.Adam)
    assert adam.defaults["lr"] == 0.01
    assert isinstance(sgd, torch.optim.SGD)
    assert (sgd.defaults["lr"], sgd.defaults["momentum"]) == (0.1, 0.9)
    assert make_optimizer("sgd", 0.3)(iter(parameters)).defaults["lr"] == 0.3
    own = at_rate(0.7)
    assert make_optimizer(own, None) is own
