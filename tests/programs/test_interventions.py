"""The safe ``do`` where Pyro's own surprises, and its composition with Pyro's handlers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.contrib.autoname import scope
from pyro.infer import SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoNormal
from pyro.infer.inspect import get_dependencies
from pyro.infer.reparam import LocScaleReparam
from torch import Tensor

from pyrofair._random import isolated
from pyrofair.programs.interventions import NATURAL, InterventionError, do


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with isolated(0), pyro.validation_enabled(True):
        pyro.clear_param_store()
        yield


def chain() -> Tensor:
    """X -> M -> Y for four units; the noise of M and Y is explicit."""
    with pyro.plate("units", 4):
        x = pyro.sample("X", dist.Normal(0.0, 1.0))
        u = pyro.sample("U", dist.Normal(0.0, 1.0))
        m = pyro.deterministic("M", 2.0 * x + u)
        return pyro.sample("Y", dist.Normal(m, 1.0))


def subsampled() -> None:
    with pyro.plate("units", 10, subsample_size=5):
        a = pyro.sample("A", dist.Normal(0.0, 1.0))
        pyro.sample("B", dist.Normal(a, 1.0))


def coded() -> None:
    with pyro.plate("units", 4):
        c = pyro.sample("C", dist.Categorical(torch.tensor([0.2, 0.3, 0.5])))
        pyro.sample("B", dist.Bernoulli(torch.tensor([0.1, 0.5, 0.9])[c]))


def sites(program: Callable[..., Any]) -> dict[str, Any]:
    nodes = poutine.trace(program).get_trace().nodes
    return {k: v for k, v in nodes.items() if v["type"] == "sample" and not poutine.util.site_is_subsample(v)}


def values(program: Callable[..., Any]) -> dict[str, Tensor]:
    return {name: site["value"] for name, site in sites(program).items()}


# -- names and values -------------------------------------------------------------------------------------------------


def vectors() -> Tensor:
    with pyro.plate("units", 4):
        return pyro.sample("V", dist.Normal(torch.zeros(3), 1.0).to_event(1))


@pytest.mark.parametrize(
    ("program", "given", "match"),
    [
        (chain, {"Z": 1}, r"no site 'Z' to intervene on. Its sites: X, U, M, Y\."),
        (chain, {"m": 1}, "Did you mean 'M'"),
        (scope(chain, prefix="s"), {"X": 1}, "no site 'X'"),
        (3, {"A": 1}, "program=3 must be a function, such as one of the number of units"),
        (chain, [("X", 1)], r"values=\[\('X', 1\)\] must be a dictionary from sites to values"),
        (chain, {"X": None}, "is None; leave the site out"),
        (chain, {"X": "high"}, "must be a number, an array or a tensor"),
        (chain, {"X": lambda: 1.0}, "must be a number, an array or a tensor"),
        (chain, {"X": math.nan}, "outside its support"),
        (chain, {"M": math.nan}, "value for the site 'M' is nan, which is not finite"),
        *[
            (chain, {site: bad}, rf"value for the site {site!r} is .*inf.* not finite; drop or fill in")
            for site in "XM"
            for bad in (math.inf, -math.inf, [0.0, 0.0, math.inf, 0.0])
        ],
        (chain, {"X": [1.0, 2.0, 3.0]}, r"'X' has the shape \(3,\).*\(4,\) in the plate 'units' of size 4"),
        (chain, {"M": torch.zeros(3)}, r"'M' has the shape \(3,\)"),
        (vectors, {"V": torch.ones(4)}, r"\(4,\), which does not fit the site's \(4, 3\)"),
        (coded, {"C": 0.5}, r"'C' holds int64, which cannot take the value 0.5"),
        (coded, {"C": 3}, "outside its support"),
        (coded, {"B": 0.5}, "outside its support"),
        (coded, {"B": -1}, "outside its support"),
    ],
)
def test_what_cannot_be_set_is_refused_and_leaves_no_handler_behind(program: Any, given: Any, match: str) -> None:
    before = list(poutine.runtime._PYRO_STACK)
    with pytest.raises(InterventionError, match=match):
        do(program, given)()
    assert list(poutine.runtime._PYRO_STACK) == before


UNWRITABLE = np.ones(4)
UNWRITABLE.flags.writeable = False


@pytest.mark.parametrize(
    "one",
    [
        1,
        1.0,
        True,
        np.float64(1),
        np.bool_(True),
        np.array(1),
        np.ones(4),
        [1, 1, 1, 1],
        torch.tensor(1, dtype=torch.int8),
        torch.ones(4, dtype=torch.float64),
        UNWRITABLE,
        pd.Series(UNWRITABLE, copy=False),
    ],
    ids=str,
)
def test_b6_numbers_are_cast_and_broadcast(one: Any) -> None:
    found = [values(poutine.condition(do(chain, {"X": x}), {"U": torch.arange(4.0)})) for x in (one, torch.ones(4))]
    assert found[0]["X"].dtype == torch.float32
    assert found[0]["X"].shape == (4,)
    torch.testing.assert_close(found[0]["M"], found[1]["M"], rtol=0, atol=0)
    torch.testing.assert_close(found[0]["M"], 2.0 + torch.arange(4.0), rtol=0, atol=0)


def test_each_person_may_have_a_value_and_gradients_flow_through_it() -> None:
    x = torch.arange(4.0, requires_grad=True)
    values(do(chain, {"X": x}))["M"].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0, 2.0]


def test_a_constant_of_the_program_can_differ_between_units() -> None:
    def program() -> Tensor:
        with pyro.plate("units", 4):
            return 1.0 + pyro.deterministic("K", torch.tensor(3.0))

    assert do(program, {"K": 5})().shape == ()
    assert do(program, {"K": [0, 1, 2, 3]})().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_vector_sites() -> None:
    assert do(vectors, {"V": [1.0, 2.0, 3.0]})().tolist() == [[1.0, 2.0, 3.0]] * 4
    assert do(vectors, {"V": 1})().shape == (4, 3)


# -- the trace ------------------------------------------------------------------------------------------------------


def test_the_trace_has_the_intervened_value_under_its_name_and_the_natural_one_beside() -> None:
    natural = torch.tensor([1.0, -1.0, 2.0, 0.0])
    found = sites(do(poutine.condition(chain, {"X": natural}), {"X": 5}))
    assert list(found) == ["X", "X" + NATURAL, "U", "M", "Y"]
    assert found["X"]["value"].tolist() == [5.0] * 4
    assert torch.equal(found["X" + NATURAL]["value"], natural)


def test_descendants_equal_those_of_plain_do_with_the_same_noise() -> None:
    noise = {"U": torch.randn(4)}
    seen = [
        values(poutine.condition(plain, noise))
        for plain in (do(chain, {"X": 1}), poutine.do(chain, {"X": torch.ones(4)}))
    ]
    assert torch.equal(seen[0]["M"], seen[1]["M"])
    torch.manual_seed(3)
    ours = values(do(coded, {"C": 2}))
    torch.manual_seed(3)
    theirs = values(poutine.do(coded, {"C": torch.full((4,), 2)}))
    assert torch.equal(ours["B"], theirs["B"])
    assert torch.equal(ours["C" + NATURAL], theirs["C"])


def test_deterministic_sites_can_be_set() -> None:
    found = values(do(poutine.condition(chain, {"X": torch.zeros(4), "U": torch.ones(4)}), {"M": 7}))
    assert found["M"].tolist() == [7.0] * 4
    assert found["M" + NATURAL].tolist() == [1.0] * 4


def test_b6_every_scale_stays_as_it_is_in_a_subsampled_plate() -> None:
    found = sites(do(subsampled, {"A": 1}))
    assert {name: site["scale"] for name, site in found.items()} == {"A": 2.0, "A" + NATURAL: 2.0, "B": 2.0}


def test_the_intervened_site_adds_no_log_probability_but_evidence_on_the_natural_one_does() -> None:
    free = poutine.trace(do(subsampled, {"A": 1})).get_trace()
    free.compute_log_prob()
    assert free.log_prob_sum() == free.nodes["B"]["log_prob_sum"]
    given = poutine.trace(do(poutine.condition(subsampled, {"A": torch.zeros(5)}), {"A": 1})).get_trace()
    given.compute_log_prob()
    evidence = 2 * dist.Normal(0.0, 1.0).log_prob(torch.zeros(5)).sum()
    torch.testing.assert_close(given.log_prob_sum() - given.nodes["B"]["log_prob_sum"], evidence)


def test_of_two_interventions_the_outer_one_holds() -> None:
    natural = torch.arange(4.0)
    found = values(do(do(poutine.condition(chain, {"X": natural}), {"X": 1, "U": 0}), {"X": 2}))
    assert found["X"].tolist() == [2.0] * 4
    assert found["M"].tolist() == [4.0] * 4
    assert torch.equal(found["X" + NATURAL], natural)


def test_a_plate_outside_gives_each_copy_a_natural_value_of_its_own() -> None:
    with pyro.plate("copies", 3, dim=-2):
        found = values(do(chain, {"X": [0.0, 1.0, 2.0, 3.0]}))
    assert found["X"].tolist() == [[0.0, 1.0, 2.0, 3.0]] * 3
    assert len(found["X" + NATURAL].unique()) == 12


# -- other handlers ---------------------------------------------------------------------------------------------------


def test_condition_outside_on_an_intervened_site_is_refused_and_on_another_holds() -> None:
    with pytest.raises(InterventionError, match=r"do\(poutine.condition\(program, seen\), values\)"):
        poutine.condition(do(chain, {"X": 1}), {"X": torch.zeros(4)})()
    found = sites(poutine.condition(do(chain, {"X": 1}), {"Y": torch.zeros(4)}))
    assert found["Y"]["is_observed"]
    assert found["Y"]["value"].tolist() == [0.0] * 4


def test_scope_inside_and_outside() -> None:
    inside = values(do(scope(chain, prefix="s"), {"s/X": 1}))
    assert list(inside) == ["s/X", "s/X" + NATURAL, "s/U", "s/M", "s/Y"]
    outside = values(scope(do(chain, {"X": 1}), prefix="s"))
    assert list(outside) == list(inside)
    for found in (inside, outside):
        torch.testing.assert_close(found["s/M"], 2.0 + found["s/U"])


@pytest.mark.parametrize("site", ["X", "Y"])
def test_reparam_inside_and_outside(site: str) -> None:
    plan = {site: LocScaleReparam(0.0)}
    for program in (
        do(poutine.reparam(chain, plan), {"X": 1}),
        poutine.reparam(do(chain, {"X": 1}), {"Y": LocScaleReparam(0.0)}),
    ):
        found = values(program)
        assert found["X"].tolist() == [1.0] * 4
        torch.testing.assert_close(found["M"], 2.0 + found["U"])


def test_reparam_outside_of_an_intervened_site_is_refused() -> None:
    with pytest.raises(InterventionError, match=r"'X' is intervened on and reparametrised outside"):
        poutine.reparam(do(chain, {"X": 1}), {"X": LocScaleReparam(0.0)})()


def test_mask_scale_and_block() -> None:
    found = sites(
        poutine.scale(poutine.mask(do(chain, {"X": 1}), mask=torch.tensor([True, True, False, False])), scale=3.0)
    )
    assert {site["scale"] for site in found.values()} == {3.0}
    assert list(values(poutine.block(do(chain, {"X": 1}), hide=["X"]))) == ["X" + NATURAL, "U", "M", "Y"]


def test_inspection_sees_through_it() -> None:
    found = get_dependencies(do(chain, {"X": 1}))["prior_dependencies"]
    assert set(found["Y"]) == {"Y", "U"}  # type: ignore[index]


# -- inference --------------------------------------------------------------------------------------------------------


def mixed(y: Tensor | None = None) -> None:
    """Z -> X -> Y and Z -> Y, all but Y binary."""
    with pyro.plate("units", 3):
        z = pyro.sample("Z", dist.Bernoulli(0.3))
        x = pyro.sample("X", dist.Bernoulli(0.2 + 0.6 * z))
        pyro.sample("Y", dist.Normal(x + 2.0 * z, 1.0), obs=y)


SEEN = torch.tensor([0.5, 2.0, 3.5])


@pytest.mark.parametrize("natural", [None, torch.tensor([1.0, 0.0, 1.0])])
@pytest.mark.parametrize("inside", [True, False])
def test_enumeration_gives_the_exact_evidence(inside: bool, natural: Tensor | None) -> None:
    """Evidence on the natural value of X counts; the intervened one does not."""
    program = config_enumerate(mixed) if inside else mixed
    program = program if natural is None else poutine.condition(program, {"X": natural})
    program = do(program, {"X": 1}) if inside else config_enumerate(do(program, {"X": 1}))
    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(program, lambda y: None, SEEN)
    z = torch.tensor([0.0, 1.0]).unsqueeze(-1)
    terms = dist.Normal(1.0 + 2.0 * z, 1.0).log_prob(SEEN) + torch.tensor([0.7, 0.3]).log().unsqueeze(-1)
    if natural is not None:
        terms = terms + dist.Bernoulli(0.2 + 0.6 * z).log_prob(natural)
    assert loss == pytest.approx(-terms.logsumexp(0).sum().item(), rel=1e-6)


@pytest.mark.parametrize("family", [AutoNormal, AutoDelta])
def test_automatic_guides_leave_an_intervened_discrete_site_out(family: type[Any]) -> None:
    def program() -> None:
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("units", 3):
            x = pyro.sample("X", dist.Bernoulli(0.5))
            pyro.sample("Y", dist.Normal(loc + x, 1.0), obs=SEEN)

    guide = family(do(program, {"X": 1}))
    loss = SVI(do(program, {"X": 1}), guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO()).step()
    assert math.isfinite(loss)
    assert set(guide.median()) == {"loc"}


@pytest.mark.parametrize("parallel", [False, True])
def test_predictive_returns_both_values(parallel: bool) -> None:
    draws = {"loc": torch.tensor([0.0, 10.0, 20.0])}

    def program() -> None:
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("units", 2):
            x = pyro.sample("X", dist.Normal(loc, 0.01))
            pyro.deterministic("M", 2 * x)

    found = Predictive(do(program, {"X": [1.0, 3.0]}), draws, parallel=parallel)()
    assert found["X"].reshape(-1, 2).tolist() == [[1.0, 3.0]] * 3
    assert found["M"].reshape(-1, 2).tolist() == [[2.0, 6.0]] * 3
    natural = found["X" + NATURAL].reshape(-1, 2)
    torch.testing.assert_close(natural, draws["loc"].unsqueeze(-1).expand(3, 2), atol=0.1, rtol=0)
