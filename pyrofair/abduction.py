"""What would this very person be, had other things been so? Abduction, action and prediction for observed rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from pyrofair._validation import (
    did_you_mean,
    require_callable,
    require_choice,
    require_instance,
    require_integer,
    require_names,
    require_real,
    require_seed,
)
from pyrofair.counterfactuals import Counterfactuals, pool
from pyrofair.couplings import Coupling, require_couplings
from pyrofair.equations import Equations
from pyrofair.evidence import Evidence, require_possible
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.given_rows import GivenRows, read_people, read_rows
from pyrofair.gradients import CHAINS, GUIDES, Guide, draw_nuts, draw_svi
from pyrofair.importance import blocks_of, draw_block
from pyrofair.inversion import Findings, Inverse, solve
from pyrofair.isolation import isolated, seed_from
from pyrofair.noise_report import NoiseReport
from pyrofair.parameters import MOST_DRAWS, Priors, read_priors
from pyrofair.posterior_noise import Abduction
from pyrofair.probing import at_parameters, to_array
from pyrofair.programs import Program
from pyrofair.running import precision, takes_float64
from pyrofair.uncertain import Uncertain
from pyrofair.weighing import Block

__all__ = ["METHODS", "Abduction", "Method", "Settings", "abduct", "counterfactuals"]

Method = Literal["auto", "exact", "importance", "nuts", "svi"]
METHODS: tuple[Method, ...] = ("auto", "exact", "importance", "nuts", "svi")


@dataclass(frozen=True, eq=False)
class Settings:
    """How noise is inferred; see :func:`abduct`."""

    method: Method = "auto"
    inverses: Mapping[str, Inverse] = field(default_factory=dict)
    draws: int = 1000
    tolerance: float | Mapping[str, float] | None = None
    guide: Guide = "AutoNormal"

    def __post_init__(self) -> None:
        require_choice("method", self.method, METHODS)
        require_choice("guide", self.guide, tuple(GUIDES))
        require_integer("draws", self.draws)
        named = self.tolerance if isinstance(self.tolerance, Mapping) else {}
        widths: dict[str, object] = {f"tolerance[{site!r}]": width for site, width in named.items()} or {
            "tolerance": self.tolerance
        }
        for name, width in widths.items():
            if width is not None and not isinstance(width, Mapping):
                require_real(name, width, above=0.0)  # a width in the units of a node
        if self.method in ("nuts", "svi") and self.tolerance is None:
            raise DataError(
                f"method={self.method!r} needs tolerance=, the standard deviation of a normal error with which each "
                "node is observed (an approximation: the posterior is right as it goes to 0). Name one number, or one "
                "for each node."
            )

    def width(self, site: str) -> float | None:
        """Return the tolerance of a node."""
        return self.tolerance.get(site) if isinstance(self.tolerance, Mapping) else self.tolerance

    def require_nodes(self, nodes: Sequence[str]) -> None:
        """Refuse a tolerance of a node that is not observed."""
        for site in self.tolerance if isinstance(self.tolerance, Mapping) else ():
            if site not in nodes:
                raise DataError(
                    f"tolerance names {site!r}, which is no observed node. They are: {', '.join(nodes)}."
                    f"{did_you_mean(site, nodes)}"
                )

    def require_width(self, site: str) -> float:
        """Return the tolerance of a node, which must have one."""
        width = self.width(site)
        if width is None:
            raise DataError(f"tolerance names no width for the node {site!r}, which method={self.method!r} needs.")
        return width


def abduct(
    program: Program | Equations,
    df: pd.DataFrame,
    *,
    nodes: Sequence[str] | None = None,
    method: Method = "auto",
    inverses: Mapping[str, Inverse] | None = None,
    draws: int = 1000,
    tolerance: float | Mapping[str, float] | None = None,
    guide: Guide = "AutoNormal",
    coupling: Coupling = "gumbel",
    parameters: Mapping[str, npt.ArrayLike] | None = None,
    random_state: int | None = None,
) -> Abduction:
    """Infer the noise of given people from their rows.

    Noise that feeds several nodes is inferred from all of them; noise of one node from that node, given its parents.
    The noise of a node drawn without explicit noise is a uniform, told by its distribution function: exactly where it
    is continuous, up to an interval where it is discrete.

    Parameters
    ----------
    program
        A Pyro program of the number of people, or its structural equations.
    df
        The n people: a column for each node, ``M[0]``, ``M[1]``, ... for one that is a vector. Sites without a column
        are not observed.
    nodes
        For a bare program the sites that are observed; by default those that have a column.
    method
        ``"exact"``: each equation is solved for its noise, by a declared inverse or because it is affine in it
        (additive and multiplicative noise), which is tried at draws; for a noise vector, as many equations as it has
        components together. ``"importance"``: draws of the noise are kept
        where they give the observed value (counts, floors), or weighted by a kernel (continuous nodes; needs
        ``tolerance``), and resampled. ``"auto"``: exact where equations can be solved, importance elsewhere; a
        continuous node that shares noise with others is solved for its own noise at each draw of the shared one.
        ``"nuts"`` and ``"svi"``: Pyro's inference over all explicit noise, continuous noise only, each node observed
        with a normal error of standard deviation ``tolerance``: an approximation.
    inverses
        For some nodes a function from the row's nodes (a dictionary of tensors of shape (n,)) to their noise: a tensor,
        or a dictionary of them if the node reads several noise sites. It is checked by putting the noise in.
    draws
        The number of posterior draws of each person whose noise is not determined.
    tolerance
        The width of the kernel or the standard deviation of the error, in the units of the nodes: one for all, or one
        for each node.
    guide
        For ``"svi"``: ``"AutoNormal"`` (noise independent) or ``"AutoMultivariateNormal"`` (all noise of all people
        jointly normal: for few people).
    coupling
        What noise a node drawn without explicit noise has where its law is another one, as in
        :class:`pyrofair.sem.SEM`.
    parameters
        The value of each parameter, a site outside the plate. Without them one draw of their prior is used, with a
        warning.
    random_state
        Seeds the draws.

    Returns
    -------
    Abduction
        ``.noise`` (mean and standard deviation), ``.diagnostics``, and ``.do({...})``: what they would have been.

    Raises
    ------
    DataError
        If the table or a setting does not fit, a row is impossible under the program, or the method cannot serve a
        node; the message names the node, the row and the value.

    References
    ----------
    Pearl (2009), theorem 7.1.7; Chikahara et al. (2021), appendix A.1.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> def program(n):
    ...     with pyro.plate("people", n):
    ...         U_h = pyro.sample("U_h", dist.Normal(0.0, 1.0))
    ...         U_y = pyro.sample("U_y", dist.Normal(0.0, 1.0))
    ...         X = pyro.sample("X", dist.Normal(0.0, 1.0))
    ...         H = pyro.deterministic("H", 0.5 * X + U_h)
    ...         pyro.deterministic("Y", 0.7 * X + 0.4 * H + U_y)
    >>> pearl = abduct(program, pd.DataFrame({"X": [0.5], "H": [1.0], "Y": [1.5]}))
    >>> pearl.do({"H": 2.0}).rows.round(4).to_dict("list")
    {'X': [0.5], 'H': [2.0], 'Y': [1.9]}
    """
    settings = Settings(method, read_inverses(inverses), draws, tolerance, guide)
    require_seed(random_state)
    require_couplings([coupling])
    if nodes is not None:
        nodes = require_names("nodes", nodes, "sites")
    if parameters is not None:
        require_instance("parameters", parameters, Mapping, "a dictionary from parameters to values, or None")
    if not isinstance(program, Equations):
        require_callable("program", program, "a Pyro program of the number of units")
    one = {name: [value] for name, value in parameters.items()} if isinstance(parameters, Mapping) else {}
    if isinstance(program, Equations):
        rows = read_people(program, df)
    else:
        rows = read_rows(program, df, nodes, at_parameters(program, one))
    run = rows.program
    priors = read_priors(run, rows.info, one)
    values = _read_parameters(priors, parameters or {})
    if priors.names and not values:
        remedy = f"Give a value of each: parameters={{{priors.names[0]!r}: ...}}."
        warnings.warn(priors.unknown(remedy), PyrofairWarning, stacklevel=2)
    return _abduct(rows, settings, coupling=coupling, parameters=values, seed=seed_from(random_state))


def read_inverses(inverses: object) -> dict[str, Inverse]:
    """Return the functions from a row to its noise by node, or refuse what is no dictionary of functions."""
    if inverses is None:
        return {}
    require_instance("inverses", inverses, Mapping, "a dictionary from nodes to functions, or None")
    found: dict[str, Inverse] = dict(cast("Mapping[str, Inverse]", inverses))
    for name, inverse in found.items():
        require_callable(f"inverses[{name!r}]", inverse, "a function from the row's nodes to their noise")
    return found


def _read_parameters(priors: Priors, given: Mapping[Any, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return one value of each parameter, or none at all, if they fit the program."""
    found = {}
    for name, value in given.items():
        one = to_array(value)
        if one.dtype.kind not in "fiub" or not np.isfinite(one).all():
            raise DataError(f"parameters[{name!r}]={value!r} must be a finite number, or an array of them.")
        if one.shape != priors.shapes.get(name, one.shape):
            raise DataError(
                f"parameters[{name!r}] has the shape {one.shape}; expected one value of the parameter, shape "
                f"{priors.shapes[name]}. Draws of a posterior go to SEM(program, unfair, posterior=...).counterfactual."
            )
        found[name] = one
    if found:
        priors.read({name: value[None] for name, value in found.items()}, what="parameters")
    return found


def _abduct(
    rows: GivenRows,
    settings: Settings,
    *,
    coupling: Coupling,
    parameters: Mapping[str, npt.ArrayLike],
    seed: int,
    sensitive: str | None = None,
) -> Abduction:
    """Infer the noise of given people; that of a sensitive attribute that will be set is left alone."""
    settings.require_nodes(tuple(rows.columns))
    with isolated(seed):
        wide = takes_float64(rows.program, rows.info.random.union(rows.nodes, rows.values))
    with isolated(seed), precision(wide=wide):
        evidence = Evidence.read(
            rows.program,
            rows.info,
            rows.nodes,
            rows.values,
            rows.index,
            coupling=coupling,
            sensitive=sensitive,
            parameters={name: torch.as_tensor(np.asarray(value)) for name, value in parameters.items()},
            wide=wide,
        )
        laws = require_possible(evidence).laws
        posterior = _by_gradients if settings.method in ("nuts", "svi") else _by_draws
        return posterior(evidence, settings, rows.columns, laws, seed)


def counterfactuals(
    equations: Equations,
    df: pd.DataFrame,
    settings: Settings,
    *,
    coupling: Coupling = "gumbel",
    posterior: Mapping[str, npt.ArrayLike] | None = None,
    do: Mapping[str, Any] | None = None,
    random_state: int | None = None,
) -> Counterfactuals:
    """Return both worlds of given people; see :meth:`pyrofair.SEM.counterfactual`.

    Parameters
    ----------
    equations
        The program with its unfair paths.
    df
        The people.
    settings
        How their noise is inferred.
    coupling
        What noise a node drawn without explicit noise has where its law is another one.
    posterior
        Draws of the parameters; up to 50 of them, evenly spaced, share the draws of each person.
    do
        Nodes that are set in both worlds besides.
    random_state
        Seeds the draws.
    """
    seed = seed_from(random_state)
    rows = read_people(equations, df)

    def both(how: Settings, parameters: Mapping[str, npt.ArrayLike], start: int) -> Counterfactuals:
        people = _abduct(
            rows,
            how,
            coupling=coupling,
            parameters=parameters,
            seed=start,
            sensitive=equations.sensitive,
        )
        return people.worlds(equations, do)

    if not posterior:
        return both(settings, {}, seed)
    arrays = {name: np.asarray(values) for name, values in posterior.items()}
    size = min(len(values) for values in arrays.values())
    picks = np.unique(np.linspace(0, size - 1, min(size, MOST_DRAWS, settings.draws)).astype(int))
    share = -(-settings.draws // len(picks))
    each = replace(settings, draws=share)
    parts = [both(each, {name: values[i] for name, values in arrays.items()}, seed + int(i)) for i in picks]
    return pool(parts) if len(parts) > 1 else parts[0]


# -- exactly, or by draws ----------------------------------------------------------------------------------------------


def _by_draws(
    evidence: Evidence, settings: Settings, columns: dict[str, str], laws: dict[str, Any], seed: int
) -> Abduction:
    found = solve(evidence, settings.inverses, lines=settings.method != "importance")
    blocks = blocks_of(evidence, found)
    if settings.method == "exact":
        _require_solved(evidence, found, blocks)
    report = NoiseReport(evidence, found, laws, settings.draws)
    noise_values = {key: Uncertain.of(values.double().numpy()) for key, values in found.noise.items()}
    for block in blocks:
        pivots = settings.method == "auto"
        rows, noise, effective, proposals = draw_block(
            evidence, found, block, settings.draws, settings.width, pivots=pivots
        )
        report.block(block, found, rows, effective, proposals)
        for key, values in noise.items():
            unknown = ~found.is_known(key)[rows]
            none = np.full((evidence.n, *values.shape[2:]), np.nan)
            point = noise_values[key].point if key in noise_values else none
            every = (values if bool(unknown.all()) else values[unknown]).double().numpy()
            noise_values[key] = Uncertain.of(point, rows[unknown].numpy(), every, collapse=False)
    return Abduction(
        evidence, columns, _in_order(evidence, noise_values), laws, report.table(), settings.draws, 1, seed
    )


def _in_order(evidence: Evidence, values: Mapping[str, Uncertain]) -> dict[str, Uncertain]:
    return {key: values[key] for key in evidence.info.sites if key in values}


def _require_solved(evidence: Evidence, found: Findings, blocks: Sequence[Block]) -> None:
    for block in blocks:
        for site in block.drawn:
            raise DataError(
                f"method='exact' cannot serve {site!r}: its law reads the noise {', '.join(evidence.keys[site])}, "
                "which other nodes do not determine. Use method='auto' or 'importance'."
            )
        for site in block.computed:
            left = ~found.done[site] & ~found.flat[site]
            if bool(left.any()):
                row = int(left.int().argmax())
                raise DataError(
                    f"{evidence.describe(site, row)}: method='exact' cannot solve the equation of {site!r} for its "
                    f"noise ({', '.join(evidence.keys[site])}): it is not affine in one unknown. Declare an inverse, "
                    f"inverses={{{site!r}: lambda values: ...}}, or use method='auto'."
                )


# -- by gradients ------------------------------------------------------------------------------------------------------


def _by_gradients(
    evidence: Evidence, settings: Settings, columns: dict[str, str], laws: dict[str, Any], seed: int
) -> Abduction:
    if settings.inverses:
        raise DataError(f"method={settings.method!r} uses no inverses; leave them out, or use method='auto'.")
    found = solve(evidence, {}, lines=False)
    report = NoiseReport(evidence, found, laws, settings.draws)
    chains = 1
    noise: dict[str, Tensor] = {}
    if evidence.keys_of(evidence.explained):
        if settings.method == "nuts":
            noise, effective, r_hat = draw_nuts(evidence, settings.require_width, settings.draws)
            chains = CHAINS
            report.gradients("nuts", effective, r_hat)
        else:
            noise, ess = draw_svi(evidence, settings.require_width, settings.draws, settings.guide)
            told = {} if ess is None else dict.fromkeys(noise, ess)
            report.gradients(f"svi ({settings.guide})", told, {})
    size = next(iter(noise.values())).shape[1] if noise else settings.draws
    everyone = np.arange(evidence.n)
    values = {
        key: Uncertain.of(
            np.full((evidence.n, *draws.shape[2:]), np.nan), everyone, draws.double().numpy(), collapse=False
        )
        for key, draws in noise.items()
    }
    return Abduction(evidence, columns, _in_order(evidence, values), laws, report.table(), size, chains, seed)
