"""Every site is a node, noise, a parameter or evidence: evidence counts in the posterior, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy.stats import norm

from pyrofair import SEM, CausalGraph, DataError, GraphError, fit_posterior
from pyrofair.inference import abduct, predictive
from pyrofair.inference.likelihood import PosteriorError, read_likelihood
from pyrofair.programs.covariates import with_covariates
from pyrofair.programs.sites import read_sites
from tests.programs.models import normal, sem, through, units

UNFAIR = through("M")
GRAPH = UNFAIR.graph
ROWS = pd.DataFrame({"A": [0, 1] * 5, "M": [0.0, 0.1] * 5, "Y": [0, 1] * 5})
Inside = Callable[[Any, Any, Any, Any], None]


def program_of(
    inside: Inside = lambda *_: None, outside: Callable[[Any], None] = lambda _: None, *, noisy: bool = False
) -> Callable[[int], None]:
    """Return A -> M -> Y with M ~ N(b A, 1) and b ~ N(0, 2), and whatever else stands in its plate and before it."""

    def program(n: int) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 2.0))
        outside(b)
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Normal(0.0, 1.0))
            M = pyro.deterministic("M", b * A + U) if noisy else pyro.sample("M", dist.Normal(b * A, 1.0))
            inside(b, A, U, M)
            pyro.sample("Y", dist.Bernoulli(logits=M))

    return program


def ones(like: Any) -> torch.Tensor:
    return torch.ones(like.shape[-1:])


def log_sigmoid(x: Any) -> Any:
    return torch.nn.functional.logsigmoid(x)


def by_quadrature(evidence: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float]:
    """Return the exact posterior mean and standard deviation of b given the rows and the log-density of evidence."""
    b = np.linspace(-10.0, 10.0, 200_001)
    log_p = norm(0.0, 2.0).logpdf(b) + evidence(b)
    for a, m in zip(ROWS["A"], ROWS["M"], strict=True):
        log_p += norm(b * a, 1.0).logpdf(m)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = float(p @ b)
    return mean, float(np.sqrt(p @ (b - mean) ** 2))


def np_log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0.0, -x)


def of_each_row(b: np.ndarray) -> np.ndarray:
    return 10.0 * np_log_sigmoid(20.0 * (b - 3.0))


ABOUT_B: dict[str, tuple[Callable[[int], None], Callable[[np.ndarray], np.ndarray]]] = {
    "no evidence": (program_of(), lambda b: 0.0 * b),
    "observed site": (
        program_of(lambda b, A, U, M: pyro.sample("S", dist.Bernoulli(logits=20.0 * (b - 3.0)), obs=ones(A))),
        of_each_row,
    ),
    "factor": (
        program_of(lambda b, A, U, M: pyro.factor("f", log_sigmoid(20.0 * (b - 3.0)).expand(A.shape))),
        of_each_row,
    ),
    "factor of one number": (
        program_of(lambda b, A, U, M: pyro.factor("f", log_sigmoid(20.0 * (b - 3.0)))),
        of_each_row,
    ),
    "conditioned site": (
        poutine.condition(
            program_of(lambda b, A, U, M: pyro.sample("S", dist.Normal(b, 2.0))), data={"S": torch.tensor(3.0)}
        ),
        lambda b: 10.0 * norm(b, 2.0).logpdf(3.0),
    ),
    "factor of nodes": (
        program_of(lambda b, A, U, M: pyro.factor("f", b * A - 0.5 * b * M)),
        lambda b: b * (ROWS["A"] - 0.5 * ROWS["M"]).sum(),
    ),
    "selection by a node": (
        program_of(lambda b, A, U, M: pyro.sample("S", dist.Bernoulli(logits=3.0 * b * M), obs=ones(A))),
        lambda b: sum(np_log_sigmoid(3.0 * b * m) for m in ROWS["M"]),
    ),
    "factor outside": (
        program_of(outside=lambda b: pyro.factor("f", -50.0 * (b - 3.0) ** 2)),
        lambda b: -50.0 * (b - 3.0) ** 2,
    ),
    "observed site outside": (
        program_of(outside=lambda b: pyro.sample("S", dist.Normal(b, 0.1), obs=torch.tensor(3.0))),
        lambda b: norm(b, 0.1).logpdf(3.0),
    ),
    "noise that only evidence reads": (
        program_of(lambda b, A, U, M: pyro.sample("S", dist.Normal(b + U, 1.0), obs=2.0 * ones(A))),
        lambda b: 10.0 * norm(b, np.sqrt(2.0)).logpdf(2.0),
    ),
    "a computed node beside evidence": (
        program_of(lambda b, A, U, M: pyro.factor("f", b * M), noisy=True),
        lambda b: b * ROWS["M"].sum(),
    ),
    "masked evidence": (
        program_of(
            lambda b, A, U, M: poutine.mask(
                lambda: pyro.sample("S", dist.Normal(b, 2.0), obs=3.0 * ones(A)), mask=A > 0
            )()
        ),
        lambda b: 5.0 * norm(b, 2.0).logpdf(3.0),
    ),
    "scaled evidence": (
        program_of(
            lambda b, A, U, M: poutine.scale(lambda: pyro.sample("S", dist.Normal(b, 2.0), obs=3.0 * ones(A)), 0.5)()
        ),
        lambda b: 5.0 * norm(b, 2.0).logpdf(3.0),
    ),
}


@pytest.mark.parametrize("case", ABOUT_B)
def test_the_density_holds_the_evidence(case: str) -> None:
    """Up to a constant the log-density of b is that by hand, the per-unit noise being integrated out."""
    program, evidence = ABOUT_B[case]
    model = read_likelihood(program, ROWS, GRAPH)
    found = []
    for b in (2.0, 3.5):
        given = {"b": torch.tensor(b), "U": torch.full((10,), (2.0 - b) / 2.0)}  # where the noise is most likely
        trace = poutine.trace(poutine.condition(model, data=given)).get_trace()
        found.append(trace.log_prob_sum().item())

    def by_hand(b: float) -> float:
        rows = sum(float(norm(b * a, 1.0).logpdf(m)) for a, m in zip(ROWS["A"], ROWS["M"], strict=True))
        return float(norm(0.0, 2.0).logpdf(b)) + rows + float(evidence(np.array(b)))

    assert found[1] - found[0] == pytest.approx(by_hand(3.5) - by_hand(2.0), abs=1e-4)


@pytest.mark.filterwarnings("ignore:The chains have not mixed")  # the exact posterior judges them
@pytest.mark.parametrize(
    ("case", "method", "draws"),
    [
        ("observed site", "svi", 400),
        ("factor", "nuts", 150),
        *[
            pytest.param(case, method, 500, marks=pytest.mark.slow)
            for case in ABOUT_B
            for method in ("nuts", "svi")
            if case != "noise that only evidence reads" or method == "nuts"  # mean-field guides are too narrow there
        ],
    ],
)
@pytest.mark.some(1)
def test_the_posterior_is_that_of_quadrature(case: str, method: Literal["nuts", "svi"], draws: int) -> None:
    program, evidence = ABOUT_B[case]
    mean, sd = by_quadrature(evidence)
    settings: dict[str, Any] = {"draws": draws, "warmup": 100, "chains": 1 + (draws == 500), "steps": 1000}
    found = fit_posterior(program, ROWS, GRAPH, method=method, progress=False, random_state=0, **settings)
    assert found.flat["b"].mean() == pytest.approx(mean, abs=0.25 * sd)
    assert found.flat["b"].std() == pytest.approx(sd, rel=0.25)
    if case in ("observed site", "factor"):
        assert mean == pytest.approx(3.16, abs=0.02)


def rise(program: Any, df: pd.DataFrame = ROWS) -> float:
    """Return what the log-density gains from b = 0 to b = 1 beside the prior of b."""
    model = read_likelihood(program, df, GRAPH)
    at = [poutine.condition(model, data={"b": torch.tensor(value)}) for value in (0.0, 1.0)]
    one, other = (poutine.trace(each).get_trace().log_prob_sum().item() for each in at)
    return float(other - one - norm(0.0, 2.0).logpdf(1.0) + norm(0.0, 2.0).logpdf(0.0))


def test_a_mask_and_a_scale_on_noise_count_in_the_density_of_its_node() -> None:
    def program(n: int, mask: Any = None, scale: float = 1.0) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 2.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            with poutine.scale(scale=scale), poutine.mask(mask=True if mask is None else mask == A):
                U = pyro.sample("U", dist.Normal(0.0, 1.0))
            pyro.deterministic("M", b * A + U)

    whole = sum(norm(1.0, 1.0).logpdf(0.1) - norm(0.0, 1.0).logpdf(0.1) for _ in range(5))
    for settings, share in (({}, 1.0), ({"scale": 0.5}, 0.5), ({"mask": 1.0}, 1.0), ({"mask": 0.0}, 0.0)):
        assert rise(partial(program, **settings)) == pytest.approx(share * whole, abs=1e-4)


def test_evidence_of_each_row_is_handed_over_with_the_program() -> None:
    """S ~ N(b x, 1) is observed as a column of the table: the density is evaluated at the rows at hand."""

    def program(n: int, covariates: dict[str, torch.Tensor]) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 2.0))
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            pyro.sample("M", dist.Normal(b * A, 1.0))
            pyro.sample("S", dist.Normal(b * covariates["x"], 1.0), obs=covariates["s"])

    rng = np.random.default_rng(0)
    table = ROWS[["A", "M"]].assign(x=rng.normal(size=10), s=rng.normal(size=10))

    def by_hand(b: float) -> float:
        return (norm(b * table["A"], 1.0).logpdf(table["M"]) + norm(b * table["x"], 1.0).logpdf(table["s"])).sum()

    found = rise(with_covariates(program, table[["x", "s"]].iloc[::-1]), table)
    assert found == pytest.approx(by_hand(1.0) - by_hand(0.0), abs=1e-4)


@pytest.mark.parametrize(
    ("program", "error", "match"),
    [
        (
            program_of(lambda b, A, U, M: pyro.factor("f", b * U), noisy=True),
            PosteriorError,
            r"'M' .*no noise of its own \(the evidence 'f' reads it too\)",
        ),
        (
            program_of(lambda b, A, U, M: pyro.sample("S", dist.Bernoulli(logits=b), obs=2.0 * ones(A))),
            DataError,
            r"10 value\(s\) of the evidence 'S', such as 2, cannot be drawn",
        ),
        (
            program_of(lambda b, A, U, M: pyro.sample("Q", dist.Bernoulli(torch.sigmoid(b)), obs=ones(A))),
            GraphError,
            r"'Q' is given data \(obs=\.\.\.\)",
        ),
        (
            program_of(
                lambda b, A, U, M: pyro.sample("Q", dist.Normal(b, 1.0), obs=7.0 * ones(A), obs_mask=torch.tensor(True))
            ),
            GraphError,
            r"'Q' is given data \(obs_mask=\.\.\., for some units\)",
        ),
    ],
)
def test_evidence_that_cannot_count_is_refused(program: Any, error: type[Exception], match: str) -> None:
    graph = CausalGraph("A -> M -> Y; Q -> Y", sensitive="A", outcome="Y") if "given data" in match else GRAPH
    with pytest.raises(error, match=match):
        fit_posterior(program, ROWS.assign(Q=1.0) if graph is not GRAPH else ROWS, graph, progress=False)


def test_whole_numbers_are_not_cut_to_fit() -> None:
    program = units(
        {"b": normal()}, M=lambda v: dist.Categorical(logits=torch.stack([0.0 * v.A, v.b * v.A, 0.0 * v.A], -1))
    )
    with pytest.raises(DataError, match=r"The column 'M' holds 0\.1, but the program's site 'M' holds int64"):
        fit_posterior(program, ROWS, GRAPH, progress=False)


# -- worlds -----------------------------------------------------------------------------------------------------------

ABOUT_UNITS: dict[str, tuple[Callable[[int], None], str]] = {
    "selection": (
        program_of(lambda b, A, U, M: pyro.sample("S", dist.Bernoulli(logits=3.0 * M), obs=ones(A))),
        "'S' is evidence .* reads 'M'",
    ),
    "factor": (program_of(lambda b, A, U, M: pyro.factor("f", M - A)), "'f' is evidence .* reads 'A', 'M'"),
    "factor beside a vector": (
        program_of(
            lambda b, A, U, M: pyro.factor(
                "f", pyro.sample("V", dist.Normal(A[:, None].expand(-1, 2), 1.0).to_event(1)).sum(-1)
            )
        ),
        "'f' is evidence .* reads",
    ),
    "factor of noise": (program_of(lambda b, A, U, M: pyro.factor("f", U), noisy=True), "'f' is evidence .* reads 'U'"),
    "conditioned descendant": (
        poutine.condition(
            program_of(lambda b, A, U, M: pyro.sample("S", dist.Normal(M, 1.0))), data={"S": torch.tensor(3.0)}
        ),
        "'S' is evidence .* reads 'M'",
    ),
    "mask of a node": (
        program_of(
            lambda b, A, U, M: poutine.mask(
                lambda: pyro.sample("S", dist.Normal(b, 2.0), obs=3.0 * ones(A)), mask=A > 0
            )()
        ),
        "'S' is evidence .* reads 'A'",
    ),
    "a step between": (
        program_of(lambda b, A, U, M: pyro.factor("f", pyro.deterministic("D", torch.exp(-(M**2))))),
        "'f' is evidence .* reads 'M'",
    ),
}


@pytest.mark.parametrize("case", ABOUT_UNITS)
@pytest.mark.some(3)
def test_evidence_about_units_is_refused_by_name(case: str) -> None:
    program, match = ABOUT_UNITS[case]
    posterior = {"b": [2.0]}
    entries: list[Callable[[], Any]] = [
        lambda: CausalGraph.from_pyro(program, nodes=["A", "M", "Y"], sensitive="A", outcome="Y"),
        lambda: SEM(program, UNFAIR, posterior=posterior).nodes(10),
        lambda: SEM(program, UNFAIR, posterior=posterior).worlds(10),
        lambda: SEM(program, UNFAIR, posterior=posterior, unit="shared").worlds(10),
        lambda: SEM(program, UNFAIR, posterior=posterior).counterfactual(ROWS),
        lambda: abduct(program, ROWS, parameters={"b": 2.0}),
        lambda: predictive(program, posterior, n=10),
    ]
    for entry in entries:
        with pytest.raises(GraphError, match="(?s)" + match.replace("'A', 'M'", "'[AM]'").split(" reads")[0]):
            entry()
    with pytest.raises(GraphError, match="(?s)" + match):
        SEM(program, UNFAIR, posterior=posterior).nodes(10)


@pytest.mark.parametrize("case", ["observed site", "factor", "conditioned site", "factor outside", "no evidence"])
def test_evidence_about_parameters_alone_changes_no_world(case: str) -> None:
    """Once b is given, it adds nothing."""
    sem = SEM(ABOUT_B[case][0], UNFAIR, posterior={"b": [2.0]})
    baseline, switched = sem.nodes(50, random_state=0)
    np.testing.assert_allclose(switched["M"] - baseline["M"], 2.0, atol=1e-5)
    found = sem.counterfactual(pd.DataFrame({"A": [0, 1], "M": [0.5, 2.5]}), random_state=0)
    np.testing.assert_allclose(found.switched["M"], [2.5, 2.5], atol=1e-5)
    np.testing.assert_allclose(predictive(ABOUT_B[case][0], {"b": [2.0]}, n=3, do={"M": 1.0})["M"], 1.0)


@pytest.mark.parametrize("node", ["A", "M", "Q"])
@pytest.mark.parametrize("mask", ["half", "all", "none"])
@pytest.mark.some(4)
def test_nodes_observed_in_part_are_refused(node: str, mask: str) -> None:
    """``obs_mask`` gives some units' value, so that no world moves it."""

    def program(n: int) -> None:
        with pyro.plate("units", n):
            known = pyro.sample("known", dist.Bernoulli(0.5))
            given = {"half": known > 0, "all": known >= 0, "none": known < 0}[mask]
            settings = {name: {"obs": torch.ones(n), "obs_mask": given} if name == node else {} for name in "AQM"}
            A = pyro.sample("A", dist.Bernoulli(0.5), **settings["A"])
            Q = pyro.sample("Q", dist.Normal(0.0, 1.0), **settings["Q"])
            pyro.sample("M", dist.Normal(A + Q, 1.0), **settings["M"])

    rows = pd.DataFrame({"A": [0, 1], "Q": [0.0, 0.0], "M": [0.5, 2.5]})
    source = sem(program, "{A Q} -> M -> Y", "A -> M -> Y")
    match = rf"'{node}' is given data \(obs_mask=\.\.\., for some units\)"
    for entry in (lambda: source.nodes(5), lambda: source.counterfactual(rows), lambda: abduct(program, rows)):
        with pytest.raises(GraphError, match=match):
            entry()
    assert node in read_sites(program).observed


def observing(name: str, obs: float, mask: Callable[[int, Any], Any] | None = None) -> Callable[[int], None]:
    """Return M ~ N(A + U, 1) in which a site is observed, for those units that a function of A tells."""

    def program(n: int) -> None:
        def given(site: str, A: Any = None) -> dict[str, Any]:
            own = {"obs": torch.full((n,), obs)} if site == name else {}
            return own | {"obs_mask": mask(n, A)} if own and mask else own

        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            U = pyro.sample("U", dist.Normal(0.0, 1.0), **given("U", A))
            pyro.sample("M", dist.Normal(A + U, 1.0), **given("M", A))

    return program


@pytest.mark.parametrize(
    ("program", "match"),
    [
        *[
            (
                observing(name, 7.0, lambda n, A: torch.arange(n) % 2 == 0),
                rf"'{name}' is given data \(obs_mask=\.\.\., for some units\), and which units",
            )
            for name in "MU"
        ],
        (observing("U", 7.0), r"'U' is evidence .* is read by 'M'"),
        (observing("U", 0.0, lambda n, A: A > 0), r"'U_observed' is evidence .* reads 'A'"),
    ],
)
def test_what_is_observed_and_read_is_refused(program: Any, match: str) -> None:
    for entry in (
        lambda: SEM(program, UNFAIR).nodes(5),
        lambda: CausalGraph.from_pyro(program, nodes=["A", "M"], sensitive="A", outcome="M"),
    ):
        with pytest.raises(GraphError, match=match):
            entry()


@pytest.mark.parametrize("how", ["mask", "rare mask", "scale", "masked distribution", "rarely masked distribution"])
def test_a_row_is_not_weighed_by_a_masked_or_scaled_distribution(how: str) -> None:
    def program(n: int) -> None:
        with pyro.plate("units", n):
            A = pyro.sample("A", dist.Bernoulli(0.5))
            usual = pyro.sample("H", dist.Normal(0.0, 1.0)) < 4.0  # as it is for nearly all units
            masks = {"masked distribution": A > 0, "rarely masked distribution": usual}
            handlers: dict[str, Any] = {
                "mask": poutine.mask(mask=False),
                "rare mask": poutine.mask(mask=usual),
                "scale": poutine.scale(scale=0.5),
            }
            distribution = dist.Normal(A, 1.0)
            with handlers.get(how, nullcontext()):
                pyro.sample("M", distribution.mask(masks[how]) if how in masks else distribution)

    sem = SEM(program, UNFAIR)
    baseline, switched = sem.nodes(10, random_state=0)
    np.testing.assert_allclose(switched["M"] - baseline["M"], 1.0, atol=1e-6)  # what is drawn is as it was
    rows = pd.DataFrame({"A": [0, 1], "M": [0.5, 2.5]})
    for entry in (lambda: sem.counterfactual(rows), lambda: abduct(program, rows)):
        with pytest.raises(DataError, match="log-probability of the site 'M' is masked or scaled"):
            entry()


def test_noise_that_nothing_reads_changes_nothing() -> None:
    program = units(
        {"b": normal(0.0, 2.0)}, idle=lambda v: dist.Poisson(torch.exp(v.b)), M=lambda v: dist.Normal(v.b * v.A, 1.0)
    )
    whole = float(
        sum(norm(a, 1.0).logpdf(m) - norm(0.0, 1.0).logpdf(m) for a, m in zip(ROWS["A"], ROWS["M"], strict=True))
    )
    assert rise(program) == pytest.approx(whole, abs=1e-4)
    _, switched = SEM(program, UNFAIR, posterior={"b": [2.0]}).nodes(20, random_state=0)
    assert switched["M"].shape == (20,)
