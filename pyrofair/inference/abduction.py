"""Abduction: the exogenous noise of observed units."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._random import isolated, seed_from
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
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.inference.counterfactuals import Counterfactuals, Uncertain, pool
from pyrofair.inference.evidence import Evidence, GivenRows, read_rows, read_units, require_possible
from pyrofair.inference.gradients import CHAINS, draw_nuts, draw_svi
from pyrofair.inference.importance import Block, blocks_of, draw_block
from pyrofair.inference.inversion import Findings, Inverse, solve
from pyrofair.inference.noise_posterior import Abduction
from pyrofair.inference.running import precision, takes_float64
from pyrofair.inference.samplers import NormalGuide
from pyrofair.programs.couplings import Coupling, require_couplings
from pyrofair.programs.noise import is_point
from pyrofair.programs.parameters import MOST_DRAWS, Priors, read_priors
from pyrofair.programs.provenance import at_parameters, to_array
from pyrofair.programs.sites import Program
from pyrofair.programs.structural_equations import Equations

__all__ = ["METHODS", "Abduction", "Method", "NoiseReport", "Settings", "abduct", "counterfactuals"]

# Below so many effective draws, or above such an R-hat, a warning says that noise is poorly known.
FEW, R_HAT = 30.0, 1.05


class NoiseReport:
    """Diagnostics that are filled in as the noise is inferred.

    Parameters
    ----------
    evidence, found
        The units, and what the equations determined.
    laws
        The distributions of observed nodes that are drawn.
    draws
        The number of posterior draws asked for.
    """

    def __init__(self, evidence: Evidence, found: Findings, laws: Mapping[str, Any], draws: int) -> None:
        self.evidence, self.draws = evidence, draws
        self.parts: dict[str, dict[str, NDArray[Any]]] = {}
        for site in evidence.nodes:
            if site not in evidence.observed:
                continue
            method, note = "exact", "determined by the row"
            if site not in evidence.explained:
                method, note = "none", "set in both worlds; its noise feeds no other node"
            elif site in laws:
                method, note = self._of_law(site, laws[site])
            elif site in found.declared:
                method = "declared inverse"
            elif not evidence.keys[site]:
                note = "no noise of its own"
            self._put(site, slice(None), method=method, note=note)

    def _of_law(self, site: str, law: Any) -> tuple[str, str]:
        if site not in self.evidence.implicit:
            return "exact", "its value is its noise"
        if is_point(law, self.evidence.coupling):
            return "distribution function", "determined by the row"
        if self.evidence.coupling == "independent":
            return "distribution function", "its noise is drawn anew where its distribution is another one"
        return "distribution function", "known up to what gives the value"

    def _put(self, site: str, rows: Any, **said: Any) -> None:
        n = self.evidence.n
        if site not in self.parts:
            empty = {"method": np.full(n, "", object), "note": np.full(n, "", object)}
            self.parts[site] = empty | {"ess": np.full(n, np.nan), "r_hat": np.full(n, np.nan)}
        for name, value in said.items():
            self.parts[site][name][rows] = value

    def block(self, block: Block, found: Findings, rows: Tensor, effective: Tensor, proposals: Tensor) -> None:
        """Note how a block of nodes was inferred by importance."""
        at, ess = rows.numpy(), effective.numpy()
        for site in block.computed:
            flat = found.flat[site][rows].numpy() & (ess >= proposals.numpy() * (1.0 - 1e-9))
            note = f"noise {', '.join(block.keys)} weighed" + (
                f" jointly with {', '.join(s for s in (*block.computed, *block.drawn) if s != site)}"
                if len(block.computed) + len(block.drawn) > 1
                else ""
            )
            done = found.done[site][rows].numpy()
            kept = at[~done]
            self._put(
                site,
                kept,
                method=np.where(flat, "prior", "importance")[~done],
                ess=np.minimum(ess, self.draws)[~done],
                note=np.where(flat, f"{site} does not depend on its noise in this row: it stays as its prior", note)[
                    ~done
                ],
            )
        for site in block.drawn:
            self._put(
                site,
                at,
                method="importance",
                ess=np.minimum(ess, self.draws),
                note=f"its distribution reads {', '.join(block.keys)}",
            )
        few = int((ess < min(FEW, self.draws)).sum())
        if few:
            warnings.warn(
                f"The noise {', '.join(block.keys)} of {few} of {self.evidence.n} units rests on fewer than {FEW:g} "
                f"effective draws (at least {ess.min():.1f}); see .diagnostics. Raise draws or the tolerance, or "
                "declare an inverse.",
                PyrofairWarning,
                stacklevel=5,
            )

    def gradients(self, method: str, effective: Mapping[str, Tensor], r_hat: Mapping[str, Tensor]) -> None:
        """Note how all noise was inferred by chains or a guide."""
        for site in self.evidence.explained:
            keys = self.evidence.keys[site]
            if not keys:
                continue
            said: dict[str, Any] = {"method": method, "note": "each node observed with a normal error"}
            if mine := [effective[key].numpy() for key in keys if key in effective]:
                said["ess"] = np.min(mine, 0)
            if mine := [r_hat[key].numpy() for key in keys if key in r_hat]:
                said["r_hat"] = np.max(mine, 0)
            self._put(site, slice(None), **said)
        worst = max((float(values.max()) for values in r_hat.values()), default=1.0)
        least = min((float(values.min()) for values in effective.values()), default=np.inf)
        if worst > R_HAT or least < min(FEW, self.draws):
            warnings.warn(
                f"{method} serves some units badly (R-hat up to {worst:.3f}, effective draws down to {least:.0f}); "
                "see .diagnostics. Raise draws or the tolerance, or use method='auto'.",
                PyrofairWarning,
                stacklevel=5,
            )

    def table(self) -> pd.DataFrame:
        """Return a row for each unit and node: unit, node, method, ess, r_hat, note."""
        sites = list(self.parts)
        n = self.evidence.n
        columns = {
            name: np.stack([self.parts[s][name] for s in sites], 1).ravel()
            for name in ("method", "ess", "r_hat", "note")
        }
        return pd.DataFrame(
            {"person": self.evidence.index.repeat(len(sites)), "node": np.tile(np.array(sites, object), n), **columns}
        )


Method = Literal["auto", "exact", "importance", "nuts", "svi"]
METHODS: tuple[Method, ...] = ("auto", "exact", "importance", "nuts", "svi")


@dataclass(frozen=True, eq=False)
class Settings:
    """How noise is inferred; see :func:`abduct`."""

    method: Method = "auto"
    inverses: Mapping[str, Inverse] = field(default_factory=dict)
    draws: int = 1000
    tolerance: float | Mapping[str, float] | None = None
    guide: NormalGuide = "normal"

    def __post_init__(self) -> None:
        require_choice("method", self.method, METHODS)
        require_choice("guide", self.guide, get_args(NormalGuide))
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
    guide: NormalGuide = "normal",
    coupling: Coupling = "gumbel",
    parameters: Mapping[str, npt.ArrayLike] | None = None,
    random_state: int | None = None,
) -> Abduction:
    """Infer the noise of given units from their rows.

    Noise that feeds several nodes is inferred from all of them; noise of one node from that node, given its parents.
    The noise of a node drawn without explicit noise is a uniform, told by its distribution function: exactly where it
    is continuous, up to an interval where it is discrete.

    Parameters
    ----------
    program
        A Pyro program of the number of units, or its structural equations.
    df
        The n units: a column for each node, ``M[0]``, ``M[1]``, ... for one that is a vector. Sites without a column
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
        The number of posterior draws of each unit whose noise is not determined.
    tolerance
        The width of the kernel or the standard deviation of the error, in the units of the nodes: one for all, or one
        for each node.
    guide
        For ``"svi"``: ``"normal"`` (noise independent) or ``"multivariate"`` (all noise of all units jointly normal:
        for few units).
    coupling
        What noise a node drawn without explicit noise has where its distribution is another one, as in
        :class:`pyrofair.SEM`.
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
        rows = read_units(program, df)
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
    """Infer the noise of given units; that of a sensitive attribute that will be set is left alone."""
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
        laws = require_possible(evidence).distributions
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
    """Return both worlds of given units; see :meth:`pyrofair.SEM.counterfactual`.

    Parameters
    ----------
    equations
        The program with its unfair paths.
    df
        The units.
    settings
        How their noise is inferred.
    coupling
        What noise a node drawn without explicit noise has where its distribution is another one.
    posterior
        Draws of the parameters; up to 50 of them, evenly spaced, share the draws of each unit.
    do
        Nodes that are set in both worlds besides.
    random_state
        Seeds the draws.
    """
    seed = seed_from(random_state)
    rows = read_units(equations, df)

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
                f"method='exact' cannot serve {site!r}: its distribution reads the noise "
                f"{', '.join(evidence.keys[site])}, "
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
