"""Parameters of a program: which posteriors are refused, how units are spread over draws, and what is reported."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyrofair import SEM, DataError, GraphError, PyrofairWarning, effect_posterior
from pyrofair.inference.abduction import abduct
from pyrofair.inference.posterior import predictive
from pyrofair.programs.parameters import ParameterUse, read_priors
from pyrofair.programs.sites import read_sites
from tests.programs.models import Scores, normal, through, units

UNFAIR = through("M")
UNITS = pd.DataFrame({"A": [0, 1], "M": [0.5, 2.5]})


program = units(
    {
        "b": normal(2.0),
        "scale": lambda v: dist.HalfNormal(1.0),
        "share": lambda v: dist.Uniform(0.0, v.scale),
        "mix": lambda v: dist.Dirichlet(torch.ones(3)),
        "twice": lambda v: 2 * v.b + 0.0 * v.share * v.mix.sum(),
    },
    U=normal(),
    M=lambda v: v.b * v.A + v.U,
)


def posterior(draws: int = 400, **others: Any) -> dict[str, Any]:
    b = np.random.default_rng(0).normal(2.0, 0.3, draws)[::-1]  # with a stride below 0, which torch does not take
    given: dict[str, Any] = {
        "b": b,
        "scale": np.ones(draws),
        "share": np.full(draws, 0.5),
        "mix": np.full((draws, 3), 1 / 3),
    }
    return {name: values for name, values in (given | others).items() if values is not None}


SCORE = Scores(lambda X: np.clip(0.5 + X["M"] / 100, 0.0, 1.0))
"""P(Y = 1) is 1/2 + M / 100, so that the mean effect is b / 100 to rounding."""


# -- no posterior ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda sem: sem.truth(SCORE, n=100),
        lambda sem: sem.worlds(10),
        lambda sem: sem.nodes(10),
        lambda sem: sem.counterfactual(UNITS),
    ],
)
def test_parameters_without_values_are_named(ask: Callable[[SEM], Any]) -> None:
    with pytest.warns(
        PyrofairWarning, match=r"parameters b, scale, share, mix: one draw of their prior.*posterior="
    ) as w:
        ask(SEM(program, UNFAIR, random_state=0))
    assert [each.filename for each in w] == [__file__]


def test_results_report_that_one_draw_of_the_prior_was_used() -> None:
    sem = SEM(program, UNFAIR, random_state=0)
    assert sem.uncertain_parameters == ("b", "scale", "share", "mix")
    with pytest.warns(PyrofairWarning):
        truth, again, given = sem.truth(SCORE, n=100), sem.truth(SCORE, n=100), sem.counterfactual(UNITS)
    assert truth == again
    assert str(truth.parameters) == "one draw from the prior of b, scale, share, mix, which have no posterior"
    assert str(truth.parameters) in str(truth)
    assert str(truth.parameters) in str(given)
    assert not given.exact
    assert "for all units, up to the parameters" in str(given)
    fitted = SEM(program, UNFAIR, posterior=posterior(1))
    assert fitted.uncertain_parameters == ()
    assert fitted.counterfactual(UNITS).exact
    assert "one given value of b" in str(fitted.counterfactual(UNITS))
    found = fitted.counterfactual(UNITS)
    worlds = replace(found.worlds[0], exact=False), found.worlds[1]  # of a noise that no world shown depends on
    assert "for all units\n" in str(replace(found, worlds=worlds))


def test_a_program_without_open_parameters_reports_none() -> None:
    values = {name: torch.tensor(each[0], dtype=torch.float32) for name, each in posterior().items()}
    sem = SEM(poutine.condition(program, data=values), UNFAIR)
    assert sem.uncertain_parameters == ()
    truth = sem.truth(SCORE, n=50)
    assert truth.parameters == ParameterUse()
    assert "parameters" not in str(truth)
    assert str(truth.parameters) == "none"
    sem.set_params(posterior={"b": [1.0]})
    with pytest.raises(DataError, match=r"holds 'b', to which the program gives a value itself.*It has no parameters"):
        sem.nodes(3)


# -- several draws -----------------------------------------------------------------------------------------------------


def test_the_truth_is_the_posterior_mean_with_the_spread_between_draws() -> None:
    draws = posterior()
    settings: Any = {"n": 10_000, "decisions": "score"}
    truths = [SEM(program, UNFAIR, posterior=draws).truth(SCORE, random_state=s, **settings) for s in range(8)]
    truth = truths[0]
    assert truth.parameters == ParameterUse(("b", "scale", "share", "mix"), 50, 400)
    assert "50 of 400 posterior draws of b, scale, share, mix; means over draws" in str(truth)
    assert "(sd between draws 0.00" in str(truth)
    values = np.array([each.mean_unfair_effect.value for each in truths])
    errors = np.array([each.mean_unfair_effect.error for each in truths])
    assert values.mean() == pytest.approx(draws["b"].mean() / 100, abs=4 * errors.mean() / 8**0.5)
    assert values.std(ddof=1) == pytest.approx(errors.mean(), rel=0.5)  # it holds the chance of which draws are used
    assert np.mean([t.mean_unfair_effect.posterior_sd for t in truths]) == pytest.approx(
        draws["b"].std() / 100, rel=0.1
    )
    assert truth.table.set_index("quantity").loc["piu", "posterior_sd"] == truth.piu.posterior_sd
    assert truths[1] != truth == SEM(program, UNFAIR, posterior=draws).truth(SCORE, random_state=0, **settings)


def test_one_person_has_no_error() -> None:
    truth = SEM(program, UNFAIR, posterior=posterior()).truth(SCORE, n=1, random_state=0)
    assert truth.parameters.used == 1
    assert all(np.isnan(each.error) for each in (truth.mean_unfair_effect, truth.piu, truth.conditional_sd))


def test_units_are_spread_over_draws_and_worlds_share_them() -> None:
    sem = SEM(program, UNFAIR, posterior=posterior(7), random_state=3)
    first, second = (world.rows["M"].to_numpy() for world in sem.worlds(705))
    gaps, counts = np.unique((second - first).round(4), return_counts=True)
    rounded = np.unique(posterior(7)["b"].round(4))
    assert len(gaps) >= 7
    assert all(np.abs(rounded - gap).min() < 2e-4 for gap in gaps)
    assert counts.sum() == 705
    nodes = sem.nodes(705)
    np.testing.assert_array_equal(nodes[1]["M"], second)
    few = sem.nodes(150)
    assert np.ptp(few[1]["M"] - few[0]["M"]) < 1e-3  # less than 200 units share a draw
    shared = SEM(program, UNFAIR, unit="shared", draws=4, posterior=posterior(3)).worlds(300, random_state=0)
    assert len(shared[0].rows) == len(shared[1].unit) == 1200


def test_counterfactuals_say_how_many_draws_share_them() -> None:
    found = SEM(program, UNFAIR, posterior=posterior()).counterfactual(UNITS, draws=20)
    assert found.parameters == ParameterUse(("b", "scale", "share", "mix"), 20, 400)
    assert "drawn for 2 of 2 units (100%), 20 draws each" in str(found)


def test_whole_numbers_stay_whole() -> None:
    counted = units(
        {"k": lambda v: dist.Categorical(torch.ones(3))}, M=lambda v: torch.tensor([1.0, 2.0, 5.0])[v.k] * v.A
    )
    first, second = SEM(counted, UNFAIR, posterior={"k": [2]}).nodes(3)
    assert (second["M"] - first["M"]).tolist() == [5.0] * 3
    with pytest.raises(DataError, match="Draw 1 of the parameter 'k' is 3, outside the support of its prior"):
        SEM(counted, UNFAIR, posterior={"k": [2, 3]}).nodes(3)


def test_a_support_that_moves_rarely_is_that_of_each_draw() -> None:
    """Two runs show the same end of it; draws of the posterior need not."""
    prior = {"a": normal(), "b": lambda v: dist.Uniform(0.0, v.a.clamp(min=5.0))}
    program = units(prior, M=lambda v: v.b * v.A)
    first, second = SEM(program, UNFAIR, posterior={"a": [7.0], "b": [6.0]}).nodes(3)
    assert (second["M"] - first["M"]).tolist() == [6.0] * 3
    with pytest.raises(DataError, match=r"Draw 0 of the parameter 'b' is 6.0, outside the support of its prior"):
        SEM(program, UNFAIR, posterior={"a": [3.0], "b": [6.0]}).nodes(3)


# -- what is no posterior of the program -------------------------------------------------------------------------------

BAD: list[tuple[Any, str]] = [
    (posterior(b=None), "lacks the program's parameter 'b'; it would be drawn from its prior. It holds: scale, share"),
    (posterior(b=2.0), r"'b' is one number; expected draws, shape \(draws, ...\). For one value write {'b': \[2.0\]}"),
    (posterior(b=np.zeros((2, 400))), r"'b' has the shape \(2, 400\); expected \(draws,\).*Put the chains in a row"),
    (posterior(mix=np.zeros(400)), r"'mix' has the shape \(400,\); expected \(draws, 3\)"),
    (posterior(b=np.r_[0.0, np.nan, np.zeros(398)]), "1 of 400 draws of 'b' are not finite, the first at 1"),
    (posterior(b=np.full(400, np.inf)), "400 of 400 draws of 'b' are not finite"),
    (posterior(scale=-np.ones(400)), "Draw 0 of the parameter 'scale' is -1.0, outside the support of its prior"),
    (posterior(share=np.r_[np.ones(3), 2.0 * np.ones(397)]), "Draw 3 of the parameter 'share' is 2.0, outside"),
    (posterior(mix=np.ones((400, 3))), r"'mix' is \[1.0, 1.0, 1.0\], outside the support of its prior, Simplex"),
    (posterior(b=["x"] * 400), "'b' holds no numbers"),
    (posterior(b=[1.0, [2.0]]), "'b' holds no numbers"),
    (posterior(bb=np.zeros(400)), "holds 'bb', which the program does not have. It has: b, scale.*Did you mean 'b'"),
    (posterior(b=np.zeros(3)), "equally many draws of each site; it holds {'b': 3"),
    (posterior(0), "equally many draws of each site; it holds {'b': 0"),
    ([1.0], r"posterior=\[1\.0\] must be a Posterior, or a dictionary with an array of shape"),
]
PER_PERSON: list[tuple[Any, str]] = [
    (posterior(U=np.zeros(400)), "holds 'U', which is drawn for each unit, and so is no parameter; leave it out"),
    (posterior(M=np.zeros(400)), "holds 'M', which the program computes or sets itself; leave it out"),
    (posterior(twice=np.zeros(400)), "holds 'twice', which the program computes or sets itself"),
]


@pytest.mark.parametrize(("given", "match"), BAD + PER_PERSON)
def test_what_is_no_posterior_is_refused(given: Any, match: str) -> None:
    sem = SEM(program, UNFAIR, posterior=given)
    asked: list[Callable[[], Any]] = [
        lambda: sem.worlds(5),
        lambda: sem.counterfactual(UNITS),
        lambda: sem.fit(UNITS),
        lambda: effect_posterior(program, UNFAIR, SCORE, given, n=50, progress=False),
    ]
    if not any(name in given for name in ("U", "M", "twice")):  # which predictive takes
        asked.append(lambda: predictive(program, given, n=5))
    for ask in asked:
        with pytest.raises(DataError, match=match):
            ask()


def test_draws_that_change_in_place_are_checked_again() -> None:
    given = posterior()
    sem = SEM(program, UNFAIR, posterior=given)
    sem.nodes(3)
    given["share"][5] = 7.0
    with pytest.raises(DataError, match=r"Draw 5 of the parameter 'share' is 7.0"):
        sem.nodes(3)


def test_an_intervention_makes_up_for_a_missing_parameter() -> None:
    found = predictive(program, posterior(4, b=None), do={"b": 7.0, "A": 1}, n=500, random_state=0)
    assert found["M"].mean() == pytest.approx(7.0, abs=0.2)


def test_gradients_and_distributions_without_support_are_fine() -> None:
    odd = units({"b": lambda v: dist.Delta(torch.tensor(1.0)).mask(False), "c": normal()}, M=lambda v: v.c * v.A)
    given = {"b": torch.ones(2, requires_grad=True), "c": [1.0, 2.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        priors = read_priors(odd, read_sites(odd))
        assert priors.read({n: given[n] for n in priors.names})["c"].tolist() == [1.0, 2.0]
        assert str(ParameterUse(tuple("abcdefgh"), 8, 8)) == "all 8 posterior draws of a, b, c, d, e, f and 2 more"


def test_a_program_is_tried_with_likely_parameters() -> None:
    narrow = units(
        {"p": normal(0.0, 100.0)}, U=lambda v: dist.Bernoulli(probs=v.p), M=lambda v: v.A + v.U
    )  # p is mostly no probability
    draws = {"p": np.array([0.2, 0.3, 0.4])}
    sem = SEM(narrow, UNFAIR, posterior=draws, random_state=0)
    first, second = sem.nodes(2000)
    assert (second["M"] - first["M"]).mean() == 1.0
    assert sem.counterfactual(UNITS.assign(M=[0, 2]), draws=6).baseline["M"].tolist() == [0.0, 1.0]
    found = effect_posterior(narrow, UNFAIR, SCORE, draws, n=3000, progress=False, random_state=0)
    assert found.samples["piu"].shape == (1, 3, 1)
    assert predictive(narrow, draws, n=500, random_state=0)["M"].mean() == pytest.approx(0.8, abs=0.1)
    assert abduct(narrow, UNITS.assign(M=[0, 2]), parameters={"p": 0.3}).noise["U", "mean"].tolist() == [0.0, 1.0]
    with pytest.raises(GraphError, match=r"program failed .* RuntimeError"):
        SEM(narrow, UNFAIR).nodes(3)


# -- one value of each, for given units -------------------------------------------------------------------------------

ONE: dict[str, Any] = {"b": 2.0, "scale": 1.0, "share": 0.5, "mix": [0.2, 0.3, 0.5]}


def test_abduction_with_values_and_without() -> None:
    assert abduct(program, UNITS, parameters=ONE).noise["U", "mean"].tolist() == [0.5, 0.5]
    given = ONE | {"b": torch.tensor(1.0, requires_grad=True)}
    assert abduct(program, UNITS, parameters=given).noise["U", "mean"].tolist() == [0.5, 1.5]
    with pytest.warns(PyrofairWarning, match=r"parameters b, scale, share, mix: one .*parameters={'b': ...}") as w:
        abduct(program, UNITS, random_state=0)
    assert [each.filename for each in w] == [__file__]


def test_draws_may_be_a_list_of_tensors_with_gradients() -> None:
    draws = [torch.tensor(value, requires_grad=True) for value in posterior(3)["b"]]
    found = SEM(program, UNFAIR, posterior=posterior(3, b=draws)).nodes(3, random_state=0)
    pd.testing.assert_frame_equal(found[1], SEM(program, UNFAIR, posterior=posterior(3)).nodes(3, random_state=0)[1])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (ONE | {"bb": 1.0}, "parameters holds 'bb', which the program does not have.*Did you mean 'b'"),
        (ONE | {"U": 1.0}, "parameters holds 'U', which is drawn for each unit"),
        ({"b": 1.0}, "parameters lacks the program's parameter 'scale', 'share', 'mix'; it would be drawn"),
        (ONE | {"b": [0.5, 0.6]}, r"parameters\['b'\] has the shape \(2,\); expected one value .*SEM\(program"),
        (
            ONE | {"mix": 0.5},
            r"parameters\['mix'\] has the shape \(\); expected one value of the parameter, shape \(3,\)",
        ),
        (ONE | {"b": np.nan}, r"parameters\['b'\]=nan must be a finite number"),
        (ONE | {"b": "x"}, r"parameters\['b'\]='x' must be a finite number"),
        (ONE | {"scale": -1.0}, "parameter 'scale' is -1.0, outside the support"),
        ([0.5], r"parameters=\[0\.5\] must be a dictionary from parameters to values, or None"),
    ],
)
def test_what_is_no_value_is_refused(given: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        abduct(program, UNITS, parameters=given)
