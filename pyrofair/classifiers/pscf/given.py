"""A given program as PSCF's model: its parameters and a guide of its units' unknown noise fitted to a table."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyro
import torch
from pyro import poutine
from pyro.infer.autoguide import AutoNormal
from pyro.infer.autoguide.initialization import init_to_median
from torch import Tensor, nn

from pyrofair._validation import require_callable
from pyrofair.classifiers.pscf.replay import FittedProgram
from pyrofair.exceptions import DataError, GraphError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.inference.amortised import AmortisedGuide, Problem, Steps, fit_amortised
from pyrofair.inference.likelihood import Likelihood, read_likelihood, site_values
from pyrofair.inference.noise import takes_float64
from pyrofair.inference.numbers import (
    Stored,
    allow_local_parameters,
    collect_numbers,
    copied_state,
    modules_of,
    warn_of_unseen_numbers,
)
from pyrofair.inference.samplers import fitting
from pyrofair.mechanisms.encoders import Encoders
from pyrofair.mechanisms.families import Categorical, Continuous, Family
from pyrofair.mechanisms.learn import LearnedMechanisms, require_graph
from pyrofair.programs.couplings import CouplingError, quantile, unwrap
from pyrofair.programs.covariates import covariate_names
from pyrofair.programs.parameters import MOST_DRAWS, at_parameters, read_priors
from pyrofair.programs.provenance import Program
from pyrofair.programs.sites import ProgramSites
from pyrofair.programs.structural_equations import Equations, read_equations
from pyrofair.programs.vectors import ScalarProgram
from pyrofair.sources.sem import SEM
from pyrofair.tables.labels import read_levels

__all__ = ["Fit", "FittedGiven", "Model", "fit_given", "fit_program", "read_model", "require_model", "require_used"]

PARAMETER_DRAWS = 200
FEW = 11
"""A guide is tried on so many rows."""


def require_model(name: str, value: Any) -> None:
    """Refuse what is no program, SEM or learned mechanisms."""
    if value is not None and not isinstance(value, SEM | LearnedMechanisms):
        require_callable(name, value, "a Pyro program of the number of units, an SEM, learned mechanisms, or None")


OF_NETWORKS = ("families", "own_noise", "hidden", "device")
"""Settings of the default networks."""


def require_used(classifier: Any) -> None:
    """Refuse settings that a given model does not use, and a guide of no model."""
    if classifier.model is None:
        if classifier.guide is not None:
            raise DataError("guide= is that of a given model's noise; the default networks have one of their own.")
        return
    usual = inspect.signature(type(classifier)).parameters
    for name in OF_NETWORKS:
        if (value := getattr(classifier, name)) != usual[name].default:
            raise DataError(
                f"{name}={value!r} is a setting of the default networks; a given model has distributions of its own. "
                f"Leave it out."
            )


@dataclass(frozen=True, eq=False)
class Model:
    """A program, a guide of its units' noise if there is one, draws of its parameters if they are known, and labels.

    ``levels`` label the sites that hold codes. ``analytic``: the guide's divergence from the prior has a closed form.
    """

    program: Program
    guide: AmortisedGuide | None
    posterior: Any = None
    levels: Mapping[str, Sequence[Any]] | None = None
    analytic: bool = False


def read_model(model: Any, guide: AmortisedGuide | None, unfair: UnfairPaths) -> Model:
    """Return the program of a given model, copied with its guide as far as they hold networks of their own."""
    sem = SEM.from_mechanisms(model, unfair) if isinstance(model, LearnedMechanisms) else model
    posterior, levels = None, None
    if isinstance(sem, SEM):
        require_graph(sem.unfair, unfair.graph)
        posterior, levels = getattr(sem.posterior, "flat", sem.posterior), sem.levels
    program = sem.program if isinstance(sem, SEM) else model
    if covariate_names(program):
        raise DataError(
            "PSCF takes no program with covariates of its own; make them nodes of the graph and the program."
        )
    program, guide = copy.deepcopy((program, guide))
    for module in modules_of(program, guide):
        allow_local_parameters(module)
    return Model(program, guide, posterior, levels)


# -- fitting -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fit:
    """A program and a guide after their fit: the problem with both, the losses of each epoch, and the parameters.

    ``losses`` is a list for each of the fits that were needed; ``drawn`` are the sites that the guide draws, if it
    draws any.
    """

    program: Program
    problem: Problem
    losses: list[list[float]]
    parameters: dict[str, Tensor]
    numbers: dict[str, Tensor]
    drawn: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FittedGiven:
    """A given program with its parameters fitted or known: a program for each draw of them, and the labels of codes."""

    programs: tuple[FittedProgram, ...]
    levels: Mapping[str, Sequence[Any]] | None

    @property
    def equations(self) -> Equations:
        """The program as structural equations, its parameters at one draw."""
        return self.programs[0].equations

    @cached_property
    def columns(self) -> dict[str, str]:
        """For each site of an observed node but the outcome its column."""
        graph = self.equations.unfair.graph
        found = {}
        for site, node in self.equations.node_of.items():
            own = graph.columns.get(node, [])
            if own and node != graph.outcome:
                found[site] = site if site in own else own[0]
        return found

    def values(self, table: pd.DataFrame) -> dict[str, Tensor]:
        """Return the columns of a table as values of the program's sites, (n,) each."""
        info, graph = self.equations.info, self.equations.unfair.graph
        return site_values(table[[*self.columns.values()]], graph, info, {}, self.levels)


@dataclass(frozen=True, eq=False)
class _AnyDraw:
    """A program whose parameters are at a draw of their posterior, another one in each run."""

    program: Program
    posterior: Mapping[str, Any]

    def __call__(self, n: int) -> None:
        count = len(next(iter(self.posterior.values())))
        _held_at(self.program, self.posterior, int(torch.randint(count, ())))(n)


def fit_given(
    model: Model,
    table: pd.DataFrame,
    unfair: UnfairPaths,
    weight: Tensor,
    group: Tensor,
    steps: Steps,
    discrepancy: float,
    seed: int,
) -> tuple[FittedGiven, Fit | None]:
    """Read a given program and fit it to a table by :func:`fit_program`, as far as its parameters are not known."""
    graph = unfair.graph
    equations = read_equations(model.program, unfair, at_parameters(model.program, model.posterior))
    read_levels(model.levels, equations.node_of, graph)
    priors = read_priors(equations.program, equations.info, model.posterior)
    held = priors.read(model.posterior) if model.posterior and priors.names else {}
    learns = bool(equations.info.dependencies.stored) or any(
        each.requires_grad for module in modules_of(model.program) for each in module.parameters()
    )
    known = _held_at(model.program, held) if held else model.program
    likelihood = read_likelihood(known, table, graph, model.levels, units=True, numbers=learns)
    warn_of_unseen_numbers(model.program)
    if model.guide is not None and not likelihood.latent:
        raise DataError("guide= draws the noise that rows do not determine, and here they determine all of it.")
    if not learns and not likelihood.latent and (held or not priors.names):
        return FittedGiven(_at_draws(model.program, equations, held, None, ()), model.levels), None
    if held:
        likelihood = replace(likelihood, program=_AnyDraw(model.program, held))
    fit = fit_program(model, likelihood, equations, weight, group, steps, discrepancy, seed, learns=learns)
    draws = held or {name: value.numpy()[None] for name, value in fit.parameters.items()}
    if fit.program is not model.program or isinstance(fit.program, nn.Module):  # what was read holds the numbers before
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PyrofairWarning)  # given above
            equations = read_equations(fit.program, unfair, at_parameters(fit.program, draws))
    of_units: Any = fit.problem.guide  # whose parameters are those of the program
    guide: Any = at_parameters(of_units, draws) if fit.drawn else None
    return FittedGiven(_at_draws(fit.program, equations, draws, guide, fit.drawn), model.levels), fit


def fit_program(
    model: Model,
    likelihood: Likelihood,
    equations: Equations,
    weight: Tensor,
    group: Tensor,
    steps: Steps,
    discrepancy: float,
    seed: int,
    *,
    learns: bool,
) -> Fit:
    """Fit a program's unknown parameters, and a guide of its units' noise given their features.

    Parameters that are drawn get a normal guide, and are held at its median; ``pyro.param`` and networks are fitted
    along, which ``learns`` says that there are. The guide never sees the outcome. Where the outcome reads unknown
    noise, which its value then says something of, parameters are fitted first with a guide that does see it, and the
    guide of predictions after them. ``discrepancy`` is that of the :class:`Problem`.
    """
    graph, info = equations.unfair.graph, equations.info
    outcome = {site for site, node in equations.node_of.items() if node == graph.outcome} & likelihood.rows.keys()
    few = torch.arange(min(len(weight), FEW))

    def problem(latents: Likelihood, guide: AmortisedGuide, of_parameters: Any, **more: Any) -> Problem:
        given = {"analytic": model.analytic, "discrepancy": discrepancy, **more}
        return Problem(latents, guide, weight, group, of_parameters, **given)

    with fitting(stored=True):
        unknown = likelihood.latent
        seen = [site for site in likelihood.rows if site not in outcome]
        sighted = bool(unknown) and any(
            {*info.causes(site, tuple(likelihood.rows))[1]} & {*unknown} for site in outcome
        )
        guide = model.guide
        ignored = frozenset[str]()
        if sighted and not (learns or likelihood.parameters):  # nothing but the guide is fitted
            sighted, ignored = False, frozenset(outcome)
        if unknown and (guide is None or sighted):
            first: AmortisedGuide = _encoders(likelihood, info, [*seen, *outcome] if sighted else seen)
        else:
            first = guide if guide is not None else _draws_nothing
        if guide is not None and unknown:
            given = _sites_of(guide, likelihood, few, outcome)
            if sighted and (of := [name for name in likelihood.parameters if name in given]):
                raise DataError(
                    f"The guide draws the parameter {', '.join(map(repr, of))}, but the outcome reads unknown noise: "
                    "parameters are fitted first then, with a guide that sees the outcome. Let it draw the noise alone."
                )
        drawn = _sites_of(first, likelihood, few, outcome if not sighted else ())
        of_parameters = _guide_of_parameters(likelihood, [name for name in likelihood.parameters if name not in drawn])
        unseen = frozenset[str]() if sighted else frozenset(outcome)
        one = problem(likelihood, first, of_parameters, hidden=unseen, ignored=ignored)
        numbers = collect_numbers(lambda: one.loss(few), model.program, first, of_parameters)
        losses = [fit_amortised(one, numbers, steps, seed)] if numbers else []
        parameters = _median(one, few, likelihood.parameters)
        if sighted:
            at_median = {name: value.numpy()[None] for name, value in parameters.items()}
            fixed = replace(likelihood, program=_held_at(likelihood.program, at_median), parameters=(), derived=())
            second: AmortisedGuide = guide or _encoders(likelihood, info, seen)
            one = problem(fixed, second, None, hidden=frozenset(outcome), ignored=frozenset(outcome))
            known = {id(each) for each in numbers}
            numbers = [each for each in collect_numbers(lambda: one.loss(few), second) if id(each) not in known]
            losses += [fit_amortised(one, numbers, steps, seed)] if numbers else []
        store = pyro.get_param_store()
        stored = [name for name in dict.fromkeys(equations.info.dependencies.stored) if name in store]
        named = {name: store[name].detach().clone() for name in stored}
        kept = copied_state(store.get_state())
    for value in kept["params"].values():
        value.requires_grad_(requires_grad=False)
    frozen = replace(one.likelihood, program=_freeze(one.likelihood.program, kept))
    guided = one.guide is not _draws_nothing
    one = replace(one, likelihood=frozen, guide=_freeze(one.guide, kept))
    return Fit(_freeze(model.program, kept), one, losses, parameters, named, tuple(unknown) if guided else ())


def _draws_nothing(rows: Mapping[str, Tensor]) -> None:
    """Draw no noise, for none is unknown."""


def _freeze(call: Callable[..., Any], state: Mapping[str, Any]) -> Any:
    for module in modules_of(call):
        module.requires_grad_(requires_grad=False).eval()
    return Stored(call, state) if state["params"] else call


def _held_at(program: Program, draws: Mapping[str, Any], draw: int = 0) -> Program:
    """Return a program with its parameters held at one draw, and hidden from the handlers outside."""
    if not draws:
        return program
    held: Program = poutine.block(at_parameters(program, draws, draw), hide=[*draws])
    return held


def _at_draws(
    program: Program, equations: Equations, held: Mapping[str, Any], guide: AmortisedGuide | None, drawn: Sequence[str]
) -> tuple[FittedProgram, ...]:
    """Return the fitted program at each of some draws of its parameters."""
    count = len(next(iter(held.values()))) if held else 1
    picks = np.unique(np.linspace(0, count - 1, min(count, MOST_DRAWS)).astype(int))
    if isinstance(equations.program, ScalarProgram):
        program = replace(equations.program, program=program)
    programs = [at_parameters(program, held, int(i)) if held else program for i in picks]
    wide = takes_float64(programs[0], equations.info.random.union(equations.node_of))
    return tuple(
        FittedProgram(replace(equations, program=each), guide, tuple(drawn), wide, guide_wide=False)
        for each in programs
    )


def _encoders(likelihood: Likelihood, info: ProgramSites, seen: Sequence[str]) -> Encoders:
    """Return networks as a guide of the unknown noise given the sites that it may see."""
    families: dict[str, Family] = {}
    for site in seen:
        values = likelihood.rows[site]
        if values.ndim > 1:
            raise DataError(f"The node {site!r} is a vector; write a guide=, which reads it as rows[{site!r}].")
        if site in info.nominal:
            size = int(values.max()) + 1
            families[site] = Categorical(tuple(range(size)), (1.0 / size,) * size)
        else:
            numbers = values.double()
            families[site] = Continuous(float(numbers.mean()), float(numbers.std(correction=0)) or 1.0)
    with poutine.trace() as tracer:
        likelihood.at(torch.arange(min(likelihood.n, 8)))()
    supports = {}
    for site in likelihood.latent:
        fn: Any = tracer.trace.nodes[site]["fn"]
        support = fn.support
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        if len(fn.batch_shape) != 1 or support.event_dim:
            raise DataError(
                f"The noise {site!r} is drawn from {type(fn).__name__}, for which there is no default guide. Write a "
                "guide=."
            )
        supports[site] = (tuple(fn.event_shape), support)
    return Encoders(families, dict.fromkeys(likelihood.latent, tuple(seen)), supports, plate="units__rows")


def _sites_of(guide: AmortisedGuide, likelihood: Likelihood, few: Tensor, hidden: Any) -> frozenset[str]:
    """Return the sites that a guide draws; refuse one that does not draw the units' noise, or cannot be replayed."""
    some = likelihood.at(few)
    rows = {site: values for site, values in some.rows.items() if site not in hidden}
    with poutine.trace() as tracer:
        try:
            guide(rows)
        except Exception as error:
            raise DataError(
                f"The guide fails: {type(error).__name__}: {error}. It is called with a dictionary of the values of "
                f"{', '.join(rows)}, each of shape (m,), and draws the units' noise inside a plate of m."
            ) from error
    sites: Any = tracer.trace.nodes
    drawn = {
        name: site["fn"]
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"] and not poutine.util.site_is_subsample(site)
    }
    noise = ", ".join(likelihood.latent) or "nothing, for the rows determine all noise"
    if missing := [site for site in likelihood.latent if site not in drawn]:
        raise GraphError(
            f"The guide draws no {', '.join(map(repr, missing))}: noise of units that rows do not determine. It must "
            f"draw each of {noise}, by pyro.sample."
        )
    if unknown := [site for site in drawn if site not in (*likelihood.latent, *likelihood.parameters)]:
        raise GraphError(
            f"The guide draws {', '.join(map(repr, unknown))}, no unknown of the program. What it draws of units is "
            f"{noise}."
        )
    for site in likelihood.latent:
        found, expected = tuple(drawn[site].shape()), some.shapes[site]
        if found != expected:
            raise GraphError(
                f"The guide draws {site!r} in the shape {found} for {len(few)} rows; the program's is {expected}. Draw "
                "it inside a plate of the rows: with pyro.plate('rows', len(rows[...])):"
            )
        try:
            quantile(site, drawn[site], torch.full(found, 0.5))
        except CouplingError as error:
            raise DataError(
                f"The guide draws {site!r} from {type(unwrap(drawn[site])).__name__}, which has no usable quantile "
                "function, by which a row's draws belong to it. Use another family, such as the normal or a "
                "transformed normal one, for each number by itself."
            ) from error
    return frozenset(drawn)


def _guide_of_parameters(likelihood: Likelihood, names: Sequence[str]) -> AutoNormal | None:
    if not names:
        return None
    exposed = poutine.block(likelihood, expose=[*names])
    family = AutoNormal(exposed, init_loc_fn=init_to_median)  # type: ignore[no-untyped-call]
    family()
    return family


def _median(problem: Problem, few: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the median of each parameter: the guide's own, or that of draws of a given guide."""
    with torch.no_grad():
        family = problem.of_parameters
        found = dict(family.median()) if isinstance(family, AutoNormal) else {}  # type: ignore[no-untyped-call]
        if left := [name for name in names if name not in found]:
            rows = {s: v for s, v in problem.likelihood.at(few).rows.items() if s not in problem.hidden}
            drawn: dict[str, list[Tensor]] = {name: [] for name in left}
            for _ in range(PARAMETER_DRAWS):
                with poutine.trace() as tracer:
                    problem.guide(rows)
                for name in left:
                    drawn[name].append(torch.as_tensor(tracer.trace.nodes[name]["value"]))
            found |= {name: torch.stack(values).median(0)[0] for name, values in drawn.items()}
        return {name: found[name].detach() for name in names}
