"""Categories without an order: what is found does not depend on how they are coded, and is named by its coupling."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from pyrofair import SEM, DataError, effect_posterior
from pyrofair._random import isolated
from pyrofair.inference import abduct
from pyrofair.mechanisms.families import Categorical, choose_family
from pyrofair.programs.couplings import gumbel_max, is_nominal, noise_given
from pyrofair.programs.distributions import OrderedCategorical
from tests.programs.models import Scores, normal, through, units

UNFAIR = through("J")
LAW = torch.tensor([[0.4, 0.3, 0.3], [0.3, 0.3, 0.4]])
"""P(J = x, y, z | A)."""


def both_y() -> float:
    """P(J = y in both worlds) under Gumbel noise: 1 / sum_k max_a P(k | a) / P(y | a)."""
    ratios = LAW.numpy().astype(float) / LAW.numpy().astype(float)[:, [1]]
    return float(1.0 / ratios.max(axis=0).sum())


PIU = 0.3 + 0.3 - 2.0 * both_y()
"""PIU of a model that accepts y alone: .0545."""
CODINGS = list(permutations(range(3)))


def yes_to(code: Any) -> Scores:
    """Return a model that accepts one code or label."""
    return Scores(lambda X: X["J"] == code)


def drawn_from(family: Callable[[Tensor], Any], order: tuple[int, ...] = (0, 1, 2)) -> Callable[[int], None]:
    """Return a program whose codes 0, 1, 2 stand for x, y, z in some order."""
    return units(J=lambda v: family(LAW[:, list(order)][v.A.long()]))


def by_one_hot(order: tuple[int, ...]) -> Callable[[int], None]:
    return units(
        place=lambda v: dist.OneHotCategorical(LAW[:, list(order)][v.A.long()]), J=lambda v: v.place.argmax(-1).float()
    )


@pytest.mark.parametrize("order", CODINGS)
@pytest.mark.parametrize("family", ["Categorical", "OneHotCategorical"])
def test_piu_does_not_depend_on_the_coding(order: tuple[int, ...], family: str) -> None:
    program = drawn_from(dist.Categorical, order) if family == "Categorical" else by_one_hot(order)
    sem = SEM(program, UNFAIR)
    found = sem.truth(yes_to(order.index(1)), n=20_000, random_state=0)
    assert found.piu.value == pytest.approx(PIU, abs=4 * found.piu.error)
    assert pytest.approx(0.0545, abs=1e-4) == PIU
    assert found.coupling == "gumbel"
    assert "gumbel noise of" in str(found)
    assert any("by the gumbel coupling" in text for text in sem.assumptions)


@pytest.mark.parametrize("order", CODINGS)
def test_nor_does_a_counterfactual(order: tuple[int, ...]) -> None:
    """A unit with y in the baseline keeps it with P(both y) / P(y)."""
    given = pd.DataFrame({"A": [0], "J": [order.index(1)]})
    found = SEM(drawn_from(dist.Categorical, order), UNFAIR).counterfactual(given, draws=4000, random_state=0)
    assert found.coupling == "gumbel"
    assert found.draws is not None
    kept = found.draws[1]["J"] == order.index(1)
    assert kept.mean() == pytest.approx(both_y() / 0.3, abs=0.02)
    alone = abduct(drawn_from(dist.Categorical, order), given, draws=4000, random_state=0).do({"A": 1.0})
    assert "across the worlds: gumbel noise of J" in str(abduct(drawn_from(dist.Categorical, order), given, draws=10))
    assert alone.draws is not None
    assert (alone.draws["J"] == order.index(1)).mean() == pytest.approx(both_y() / 0.3, abs=0.02)


@pytest.mark.filterwarnings("ignore:The program takes 'A' .by __setitem__.")  # as OrderedLogistic does inside
@pytest.mark.parametrize(("order", "piu"), [((0, 1, 2), 0.2), ((0, 2, 1), 0.0), ((2, 1, 0), 0.2)])
def test_monotone_is_by_rank_for_ordered_categories_and_where_it_is_asked_for(
    order: tuple[int, ...], piu: float
) -> None:
    model = yes_to(order.index(1))
    cut = LAW[:, list(order)].cumsum(-1)[:, :2]

    def ordered_logistic(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.sample("J", dist.OrderedLogistic(0.0 * A, torch.logit(cut)[A.long()]))

    for program, settings in (
        (drawn_from(dist.Categorical, order), {"coupling": "monotone"}),
        (drawn_from(OrderedCategorical, order), {}),
        (ordered_logistic, {}),
    ):
        found = SEM(program, UNFAIR, **settings).truth(model, n=20_000, random_state=0)
        assert found.piu.value == pytest.approx(piu, abs=0.015)
        assert found.coupling == "monotone"


def test_two_categories_are_ordered_either_way() -> None:
    program = units(J=lambda v: dist.Categorical(torch.tensor([[0.75, 0.25], [0.4, 0.6]])[v.A.long()]))
    found = SEM(program, UNFAIR).truth(yes_to(1), n=20_000, random_state=0)
    assert found.piu.value == pytest.approx(0.35, abs=4 * found.piu.error)


def test_the_coupling_is_named_by_what_it_is_about() -> None:
    """Without categories among the coupled sites Gumbel noise plays no part."""
    program = units(
        {"b": normal()},
        aside=lambda v: dist.Categorical(LAW[v.A.long()]),
        J=lambda v: dist.Poisson(torch.exp(v.A * v.b)),
    )
    sem = SEM(program, UNFAIR, posterior={"b": [0.0, 0.5]})
    assert sem.truth(yes_to(1), n=500, random_state=0).coupling == "monotone"
    assert effect_posterior(sem, None, yes_to(1), {"b": [0.5]}, n=500, progress=False).coupling == "monotone"
    assert set(sem.truths(yes_to(1), n=500, random_state=0)["coupling"]) == {"monotone", "independent", "antithetic"}
    nominal = SEM(drawn_from(dist.Categorical), UNFAIR)
    assert set(nominal.truths(yes_to(1), n=500, random_state=0)["coupling"]) == {"gumbel", "independent"}


def test_a_category_without_probability_is_never_drawn() -> None:
    distribution = dist.Categorical(torch.tensor([0.0, 0.5, 0.5, 0.0])).expand([50_000])
    with isolated(0):
        extreme = torch.zeros(50_000, 4)
        extreme[:, 0] = 1000.0
        assert set(gumbel_max(distribution, extreme).unique().tolist()) <= {1, 2}
        values = distribution.sample()
        noise, _, _ = noise_given("J", distribution, values, "gumbel")
    assert bool(noise.isfinite().all())
    torch.testing.assert_close(gumbel_max(distribution, noise), values)
    # The winner carries no information on the noise of a category that cannot win.
    assert noise[:, 3].mean().item() == pytest.approx(0.5772, abs=0.03)


def test_a_row_without_probability_is_refused() -> None:
    """J = z has none where A = 1, whatever the noise that its distribution reads."""
    program = units(
        U=lambda v: dist.Uniform(0.2, 0.8), J=lambda v: dist.Categorical(torch.stack([v.U, 1.0 - v.U, 1.0 - v.A], -1))
    )
    rows = pd.DataFrame({"A": [0, 1], "J": [2, 2]})
    SEM(program, UNFAIR).counterfactual(rows[:1], random_state=0)
    with pytest.raises(DataError, match="Row 1: J = 2 given A=1 has no probability under the program"):
        SEM(program, UNFAIR).counterfactual(rows, random_state=0)


@pytest.mark.parametrize(
    ("distribution", "nominal"),
    [
        (dist.Categorical(torch.ones(3)), True),
        (dist.Categorical(torch.ones(4, 3)).to_event(1), True),
        (dist.Categorical(torch.ones(3)).expand([5]).mask(False), True),
        (dist.OneHotCategorical(torch.ones(3)), True),
        (OrderedCategorical(torch.ones(3)), False),
        (OrderedCategorical(torch.ones(3)).expand([5]), False),
        (dist.OrderedLogistic(torch.zeros(4), torch.tensor([0.0, 1.0])), False),
        (dist.Bernoulli(0.5), False),
        (dist.Binomial(3, 0.5), False),
    ],
)
def test_what_is_nominal(distribution: Any, nominal: bool) -> None:
    assert is_nominal(distribution) is nominal


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        (pd.Series(["x", "y", "z", "x"]), False),
        (pd.Series(["x", "y", "z", "x"], dtype="category"), False),
        (pd.Series(pd.Categorical(["x", "y", "z", "x"], categories=["z", "x", "y"], ordered=True)), True),
        (pd.Series([1, 2, 3, 1]), True),
        (pd.Series([1, 2, 3, 1]).astype("category"), False),
    ],
)
def test_learned_categories_are_ordered_as_their_column_is(values: pd.Series[Any], ordered: bool) -> None:
    family = choose_family(values)
    assert isinstance(family, Categorical)
    assert family.ordered is ordered
    assert isinstance(family.distribution(torch.zeros(2, 3)), OrderedCategorical) is ordered
