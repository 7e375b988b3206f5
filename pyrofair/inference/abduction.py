"""Abduction: the exogenous noise of observed units, and their counterfactuals on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._random import isolated, seed_from
from pyrofair._validation import (
    require_callable,
    require_choice,
    require_instance,
    require_integer,
    require_known,
    require_names,
    require_real,
    require_seed,
)
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.inference.counterfactuals import (
    Counterfactuals,
    CounterfactualWorld,
    PartiallyKnown,
    checks_of,
    frame_of,
    head_of,
    methods_of,
    noise_table,
    pool,
)
from pyrofair.inference.evidence import Evidence, GivenRows, read_rows, read_units, repeat_each, require_possible
from pyrofair.inference.importance import CHAINS, Block, blocks_of, draw_block, draw_by_gradients, in_batches
from pyrofair.inference.inversion import BATCH, Findings, Inverse, solve
from pyrofair.inference.noise import noise_of_units, precision, takes_float64
from pyrofair.inference.samplers import NormalGuide
from pyrofair.programs.couplings import (
    Coupling,
    is_point,
    named_coupling,
    require_couplings,
)
from pyrofair.programs.covariates import ROW
from pyrofair.programs.parameters import MOST_DRAWS, Priors, at_parameters, read_priors
from pyrofair.programs.provenance import Program, to_array
from pyrofair.programs.structural_equations import Equations
from pyrofair.programs.worlds import Evaluation, World
from pyrofair.tables.labels import require_do

__all__ = [
    "METHODS",
    "Abduction",
    "Method",
    "Settings",
    "abduct",
    "counterfactuals",
]

FEW, R_HAT = 30.0, 1.05
"""Below so many effective draws, or above such an R-hat, a warning names the noise as poorly known."""


# -- diagnostics -------------------------------------------------------------------------------------------------------


class _NoiseReport:
    """Diagnostics that are filled in as the noise of n units is inferred."""

    def __init__(self, evidence: Evidence, found: Findings, distributions: Mapping[str, Any], draws: int) -> None:
        self.evidence, self.draws = evidence, draws
        self.sites = [site for site in evidence.nodes if site in evidence.observed]
        shape = (evidence.n, len(self.sites))
        self.parts = {name: np.full(shape, "", object) for name in ("method", "note")}
        self.parts |= {name: np.full(shape, np.nan) for name in ("ess", "r_hat")}
        for site in self.sites:
            method, note = "exact", "determined by the row"
            if site not in evidence.explained:
                method, note = "none", "set in both worlds; its noise feeds no other node"
            elif site in distributions and site not in evidence.implicit:
                note = "its value is its noise"
            elif site in distributions:
                method = "distribution function"
                if not is_point(distributions[site], evidence.coupling):
                    again = "its noise is drawn anew where the two distributions differ"
                    note = again if evidence.coupling == "independent" else "known up to what gives the value"
            elif site in found.declared:
                method = "declared inverse"
            elif not evidence.keys[site]:
                note = "no noise of its own"
            self._put(site, slice(None), method=method, note=note)

    def _put(self, site: str, rows: Any, **entries: Any) -> None:
        for name, value in entries.items():
            self.parts[name][rows, self.sites.index(site)] = value

    def block(self, block: Block, found: Findings, rows: Tensor, effective: Tensor, proposals: Tensor) -> None:
        """Record how a block of nodes was inferred by importance."""
        at, ess = rows.numpy(), effective.numpy()
        for site in block.computed:
            flat = found.flat[site][rows].numpy() & (ess >= proposals.numpy() * (1.0 - 1e-9))
            others = ", ".join(each for each in (*block.computed, *block.drawn) if each != site)
            note = f"noise {', '.join(block.keys)} weighed" + (f" jointly with {others}" if others else "")
            prior = f"{site} does not depend on its noise in this row: it stays as its prior"
            left = ~found.done[site][rows].numpy()
            methods, notes = np.where(flat, "prior", "importance"), np.where(flat, prior, note)
            self._put(site, at[left], method=methods[left], ess=np.minimum(ess, self.draws)[left], note=notes[left])
        for site in block.drawn:
            note = f"its distribution reads {', '.join(block.keys)}"
            self._put(site, at, method="importance", ess=np.minimum(ess, self.draws), note=note)
        few = int((ess < min(FEW, self.draws)).sum())
        if few:
            warnings.warn(
                f"The noise {', '.join(block.keys)} of {few} of {self.evidence.n} units depends on fewer than {FEW:g} "
                f"effective draws (at least {ess.min():.1f}); see .diagnostics. Raise draws or the tolerance, or "
                "declare an inverse.",
                PyrofairWarning,
                stacklevel=4,
            )

    def gradients(self, method: str, effective: Mapping[str, Tensor], r_hat: Mapping[str, Tensor]) -> None:
        """Record how all noise was inferred by chains or a guide."""
        for site in filter(self.evidence.keys.get, self.evidence.explained):
            keys = self.evidence.keys[site]
            entries: dict[str, Any] = {"method": method, "note": "each node observed with a normal error"}
            if mine := [effective[key].numpy() for key in keys if key in effective]:
                entries["ess"] = np.min(mine, 0)
            if mine := [r_hat[key].numpy() for key in keys if key in r_hat]:
                entries["r_hat"] = np.max(mine, 0)
            self._put(site, slice(None), **entries)
        worst = max((float(values.max()) for values in r_hat.values()), default=1.0)
        least = min((float(values.min()) for values in effective.values()), default=np.inf)
        if worst > R_HAT or least < min(FEW, self.draws):
            warnings.warn(
                f"{method} did not converge for some units (R-hat up to {worst:.3f}, effective draws down to "
                f"{least:.0f}); see .diagnostics. Raise draws or the tolerance, or use method='auto'.",
                PyrofairWarning,
                stacklevel=4,
            )

    def table(self) -> pd.DataFrame:
        """Return a row for each unit and node: unit, node, method, ess, r_hat, note."""
        index = self.evidence.index
        columns = {"unit": index.repeat(len(self.sites)), "node": np.tile(np.array(self.sites, object), len(index))}
        return pd.DataFrame(columns | {name: self.parts[name].ravel() for name in ("method", "ess", "r_hat", "note")})


# -- settings ----------------------------------------------------------------------------------------------------------


Method = Literal["auto", "exact", "importance", "nuts", "svi"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, eq=False)
class Settings:
    """How noise is inferred; see :func:`abduct`."""

    method: Method = "auto"
    inverses: Mapping[str, Inverse] | None = None
    draws: int = 1000
    tolerance: float | Mapping[str, float] | None = None
    guide: NormalGuide = "normal"

    def __post_init__(self) -> None:
        require_choice("method", self.method, METHODS)
        if self.inverses is not None:
            require_instance("inverses", self.inverses, Mapping, "a dictionary from nodes to functions, or None")
            for name, inverse in self.inverses.items():
                require_callable(f"inverses[{name!r}]", inverse, "a function from the row's nodes to their noise")
        require_choice("guide", self.guide, get_args(NormalGuide))
        require_integer("draws", self.draws)
        named = self.tolerance if isinstance(self.tolerance, Mapping) else {}
        widths: dict[str, object] = {f"tolerance[{site!r}]": width for site, width in named.items()}
        for name, width in (widths or {"tolerance": self.tolerance}).items():
            if width is not None and not isinstance(width, Mapping):
                require_real(name, width, above=0.0)  # a width in the units of a node
        if self.by_gradients and self.tolerance is None:
            raise DataError(
                f"method={self.method!r} needs tolerance=, the standard deviation of a normal error with which each "
                "node is observed (an approximation): one number, or one for each node."
            )
        if self.by_gradients and self.inverses:
            raise DataError(f"method={self.method!r} uses no inverses; leave them out, or use method='auto'.")

    @property
    def by_gradients(self) -> bool:
        """Whether Pyro's inference draws all noise."""
        return self.method in ("nuts", "svi")

    def widths(self, nodes: Sequence[str]) -> dict[str, float]:
        """Return the tolerance of each node that has one; a DataError names one of a node that is not observed."""
        if not isinstance(self.tolerance, Mapping):
            return {} if self.tolerance is None else dict.fromkeys(nodes, self.tolerance)
        require_known("tolerance", self.tolerance, nodes, "observed node")
        return dict(self.tolerance)


# -- observed units ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Abduction:
    """Observed units and the posterior of their noise, made by :func:`pyrofair.inference.abduct`.

    Parameters
    ----------
    evidence
        The program and the units.
    columns
        For each observed node site its column, in the order of the table.
    noise_values
        For each noise site that matters its values: known, or drawn.
    distributions
        The distributions of observed nodes that are drawn.
    diagnostics : DataFrame
        A row for each unit and node: unit, node, method, ess, r_hat, note.
    draws, chains
        The number of draws, and of the chains that they come from.
    seed
        Seeds later draws.
    """

    evidence: Evidence
    columns: dict[str, str]
    noise_values: dict[str, PartiallyKnown]
    distributions: dict[str, Any]
    diagnostics: pd.DataFrame
    draws: int
    chains: int
    seed: int

    def __str__(self) -> str:
        """Describe how many units there are, how well their noise is known, and that of the first of them."""
        n = self.evidence.n
        drawn = len(set().union(*(each.rows.tolist() for each in self.noise_values.values())))
        lines = [f"noise of {n} units (methods: {methods_of(self.diagnostics)})"]
        if drawn:
            lines.append(f"drawn for {drawn} of {n} units ({drawn / n:.0%}), {self.draws} draws each")
        elif self.noise_values:
            lines.append("determined by their rows for all units, as far as it is explicit")
        else:
            lines.append("the program has no explicit noise that bears on these rows")
        if known := checks_of(self.diagnostics):
            lines.append(known)
        if coupled := [site for site in (*self.distributions, *self.noise_values) if site in self.evidence.implicit]:
            nominal = not self.evidence.info.nominal.isdisjoint(coupled)
            named = named_coupling(self.evidence.coupling, nominal=nominal)
            lines.append(f"across the worlds: {named} noise of {', '.join(coupled)}")
        if self.noise_values:
            lines.append(head_of(self.noise.head(), n))
        return "\n".join([*lines, f".do({{{next(iter(self.columns))!r}: ...}}) returns their counterfactuals"])

    __repr__ = __str__

    @property
    def noise(self) -> pd.DataFrame:
        """Each unit's noise: posterior mean and standard deviation, columns (noise, "mean" or "sd").

        Of noise U whose distribution reads a node it is the uniform ``u(U)`` that its quantile function turns into U.
        """
        uniform = {key for key in self.evidence.implicit & self.noise_values.keys() if self.evidence.is_number(key)}
        named = {f"u({key})" if key in uniform else key: each for key, each in self.noise_values.items()}
        return noise_table(named, self.evidence.index)

    def do(self, values: Mapping[str, Any]) -> CounterfactualWorld:
        """Return the units with some nodes set to values, the noise of each as it was.

        It equals ``poutine.do(poutine.condition(program, data=noise), data=values)`` at each draw of the noise.

        Parameters
        ----------
        values
            For each node, named by its site or its column, a number, or one for each unit, shape (n,).

        Raises
        ------
        DataError
            If a name is no observed node, a value does not fit it, or a Series has another index than the table.

        References
        ----------
        Pearl (2009), theorem 7.1.7: abduction, action, prediction.
        """
        require_instance("values", values, Mapping, "a dictionary: for each node the value it is set to, {'D': 1.0}")
        with isolated(self.seed), precision(wide=self.evidence.wide):
            set_to = self._read_values(values)

            def act(evaluation: Evaluation, some: World) -> tuple[World]:
                return (evaluation.under_do(some, self.columns),)

            (world,), _ = self._predict(set_to, set_to, act)
        return world

    def worlds(
        self, equations: Equations, values: Mapping[str, Any] | None = None, predict: Sequence[str] = ()
    ) -> Counterfactuals:
        """Return both worlds: the baseline, and the one in which only the unfair paths are switched.

        Parameters
        ----------
        equations
            The program with its unfair paths.
        values
            Nodes that are set in both worlds besides, as in :meth:`do`.
        predict
            Nodes without a column that the worlds show as well: latent ones, or the outcome.

        Raises
        ------
        DataError
            If a value does not fit, the sensitive attribute is among them, or no such node can be predicted.
        """
        graph, sensitive = equations.unfair.graph, equations.sensitive
        require_do(values)
        if wrong := [name for name in (sensitive, graph.sensitive_column) if values and name in values]:
            raise DataError(f"do names {wrong[0]!r}, the sensitive attribute, which the two worlds set.")
        with isolated(self.seed), precision(wide=self.evidence.wide):
            set_to = self._read_values(values or {})
            units = self._with_prior(_sites_to_predict(equations, self.columns, predict))
            bound = replace(equations, program=self.evidence.program)
            shown = [site for site in units.columns if site != sensitive]

            def act(evaluation: Evaluation, some: World) -> tuple[World, World]:
                return evaluation.worlds(bound, shown, some)

            found, moments = units._predict((sensitive, *set_to), set_to, act)
        worlds, path = [], (graph.sensitive, graph.outcome)
        for world, regime in zip(found, equations.unfair.regimes, strict=True):
            label: Any = graph.label(regime.value(path) if path in graph.edges else regime.on_fair)
            frame = world.rows.assign(**{graph.sensitive_column: label})
            worlds.append(replace(world, rows=frame[list(units.columns.values())]))
        noise = pd.concat([units.noise, frame_of(moments, self.evidence.index)], axis=1)
        return Counterfactuals(
            (worlds[0], worlds[1]),
            noise,
            units.noise_values,
            self.diagnostics,
            graph,
            self.chains,
            coupling=equations.coupling_of(self.evidence.coupling, shown),
            coupled=equations.coupled(shown),
        )

    def _with_prior(self, columns: Mapping[str, str]) -> Abduction:
        """Show unobserved nodes too: noise that they read and no row bears on is drawn, given that which is known."""
        evidence = self.evidence
        open_ = [key for key in evidence.noise_of(columns) if key not in self.noise_values]
        drawn: dict[str, list[Tensor]] = {key: [] for key in open_}
        for rows in in_batches(torch.arange(evidence.n), BATCH // self.draws) if open_ else ():
            given, known = evidence.given(rows, self.draws), self._noise_of(rows, self.draws)
            noise = evidence.run(given, columns, known).noise
            for key in open_:
                drawn[key].append(noise[key].reshape(len(rows), self.draws, *noise[key].shape[1:]))
        values = dict(self.noise_values)
        for key, each in drawn.items():
            none = np.full((evidence.n, *each[0].shape[2:]), np.nan)
            values[key] = PartiallyKnown.of(none, np.arange(evidence.n), torch.cat(each).double().numpy())
        return replace(self, columns={**self.columns, **columns}, noise_values=values)

    def _read_values(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        require_do(values)
        site_of = {column: site for site, column in self.columns.items()} | {site: site for site in self.columns}
        require_known("do", values, site_of, "observed node")
        found: dict[str, Tensor] = {}
        for name, given in values.items():
            site = site_of[name]
            if site in found:
                raise DataError(f"do names the node {site!r} twice, by its site and by its column. Keep one of them.")
            if isinstance(given, pd.Series | pd.DataFrame) and not given.index.equals(self.evidence.index):
                raise DataError(
                    f"The index of do[{name!r}] is not that of the table. Align the values (values.loc[df.index]), or "
                    "pass values.to_numpy() if their order is right."
                )
            try:
                numbers = torch.tensor(np.array(given, dtype=np.float64, order="C")).expand(self.evidence.n)
            except (TypeError, ValueError, RuntimeError) as error:
                raise DataError(
                    f"The value of {site!r} must be a number, or {self.evidence.n} of them; got {given!r}."
                ) from error
            value = numbers.to(self.evidence.observed[site].dtype)
            possible = torch.isfinite(numbers) & (value.double() - numbers).abs().le(1e-6 * numbers.abs())
            if site in self.distributions:
                possible = possible & self.distributions[site].support.check(value)
            if not bool(possible.all()):
                raise DataError(f"do sets {site!r} to {numbers[~possible][0].item():g}, a value that it cannot take.")
            found[site] = value
        self._require_joint(found)
        return found

    def _require_joint(self, values: Mapping[str, Tensor]) -> None:
        """Raise a DataError for values of some components of a joint vector only, and for values it cannot take."""
        for names, possible in self.evidence.info.joint.items():
            given = [name for name in names if name in values]
            if missing := [name for name in names if given and name not in values]:
                raise DataError(
                    f"do sets {', '.join(given)}, but not {', '.join(missing)}: they are one vector, drawn jointly. "
                    "Set all of them, or give each component a site and an equation of its own."
                )
            inside = possible([values[name] for name in names]) if given else torch.ones(1, dtype=torch.bool)
            if not bool(inside.all()):
                row = int((~inside).int().argmax())
                shown = ", ".join(f"{name} = {values[name][row].item():g}" for name in names)
                raise DataError(f"do sets {shown}, values that the vector cannot take. Correct them.")

    # -- units in batches ----------------------------------------------------------------------------------------------

    def _predict(
        self,
        targets: Sequence[str] | Mapping[str, Tensor],
        values: Mapping[str, Tensor],
        act: Callable[[Evaluation, World], Sequence[World]],
    ) -> tuple[list[CounterfactualWorld], dict[tuple[str, str], NDArray[np.float64]]]:
        """Evaluate worlds on each unit's noise: once where it is determined, otherwise at each of its draws.

        Returned are the worlds, and mean and standard deviation (n,) of the uniforms of nodes without explicit noise.
        """
        evidence = self.evidence
        fixed, varying = self._split(evidence.below(targets) & self.columns.keys())
        batches = [(rows, 1) for rows in in_batches(fixed, BATCH)]
        batches += [(rows, self.draws) for rows in in_batches(varying, BATCH // self.draws)]
        parts: dict[tuple[int, str], list[tuple[NDArray[np.int64], PartiallyKnown]]] = {}
        moments: dict[tuple[str, str], NDArray[np.float64]] = {}
        for rows, repeat in batches:
            units = rows.numpy()
            noise, uniforms = noise_of_units(evidence, rows, repeat, self._noise_of(rows, repeat))
            evaluation = Evaluation(evidence.program, evidence.info, evidence.nodes, evidence.implicit, noise)
            worlds = act(evaluation, {site: repeat_each(value[rows], repeat) for site, value in values.items()})
            for i, site in ((i, site) for i, world in enumerate(worlds) for site in world):
                each = worlds[i][site].double().reshape(len(units), repeat).numpy()
                part = PartiallyKnown.of(each[:, 0], np.arange(len(units)) if repeat > 1 else None, each)
                parts.setdefault((i, site), []).append((units, part))
            for site, pair in uniforms.items():
                mean, variance = (part.double().reshape(len(units), repeat) for part in pair)
                spread = (variance.mean(1) + mean.var(1, correction=0)).sqrt()
                for name, found in (("mean", mean.mean(1)), ("sd", spread)):
                    moments.setdefault((f"u({site})", name), np.empty(evidence.n))[units] = found.numpy()
        result = []
        for i in range(len(worlds)):
            nodes = {
                column: PartiallyKnown.joined(parts.pop((i, site)), evidence.n)
                for site, column in self.columns.items()
                if (i, site) in parts
            }
            frame = pd.DataFrame({column: each.point for column, each in nodes.items()}, index=evidence.index)
            result.append(CounterfactualWorld(frame, nodes, self.draws if len(varying) else 1, not len(varying)))
        return result, moments

    def _split(self, affected: frozenset[str]) -> tuple[Tensor, Tensor]:
        """Return the units whose noise is determined as far as it matters to some nodes, and the others."""
        evidence, noise = self.evidence, {*self.evidence.noise_of(affected)}
        implicit = affected & evidence.implicit & self.distributions.keys()
        intervals = any(not is_point(self.distributions[site], evidence.coupling) for site in implicit)
        intervals |= evidence.coupling == "independent" and not evidence.implicit.isdisjoint(noise)
        vary = torch.full((evidence.n,), intervals)
        for key in self.noise_values.keys() & noise:
            vary[torch.from_numpy(self.noise_values[key].rows)] = True
        return (~vary).nonzero().squeeze(1), vary.nonzero().squeeze(1)

    def _noise_of(self, rows: Tensor, repeat: int) -> dict[str, Tensor]:
        """Return the noise of some units, shape (m * repeat, ...)."""
        noise = {}
        for key, each in self.noise_values.items():
            values = torch.tensor(each.take(rows.numpy(), repeat)).flatten(0, 1)
            implicit = key in self.evidence.implicit
            noise[key] = values.to(torch.get_default_dtype()) if implicit else self.evidence.in_type(key, values)
        return noise


def _sites_to_predict(equations: Equations, columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the sites of nodes without a column that are to be predicted, and the names of their columns."""
    graph, open_ = equations.unfair.graph, dict[str, str]()
    for site, node in equations.node_of.items():
        if site not in columns and site != ROW and len(equations.info.shapes[site]) == 1:
            own = graph.columns.get(node, [site])
            open_ |= {site: site if site in own else own[0]}
    by_name = {name: site for site, column in open_.items() for name in (site, column)}
    require_known("predict", names, by_name, "node without a column and with one number for each unit")
    return {by_name[name]: open_[by_name[name]] for name in names}


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
    """Infer the noise of observed units from their rows.

    Noise that feeds several nodes is inferred from all of them; noise of one node from that node, given its parents.
    The noise of a node drawn without explicit noise is a uniform, known from its distribution function: exactly where
    the node is continuous, up to an interval where it is discrete.

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
        ``"exact"``: each equation is solved for its noise: by a declared inverse, or because it is affine in it
        (additive and multiplicative noise) or monotone; for a noise vector, as many affine equations as it has
        components jointly. ``"importance"``: draws of the noise are kept where they give the observed value (counts,
        floors), or weighted by a kernel (continuous nodes; needs ``tolerance``), and resampled. ``"auto"``: exact
        where equations can be solved, importance elsewhere. A value that many numbers of noise give (a floor, a cap, a
        rounded number) leaves the noise between two ends; a node of several noise sites is solved for those of its
        own, in turn, at each draw of the others. ``"nuts"`` and ``"svi"``: Pyro's inference over all explicit
        noise, continuous noise only, each node observed with a normal error of standard deviation ``tolerance``: an
        approximation.
    inverses
        For some nodes a function from the row's nodes (a dictionary of tensors of shape (n,)) to their noise: a tensor,
        or a dictionary of them if the node reads several noise sites. The equation checks its result.
    draws
        The number of posterior draws of each unit whose noise is not determined.
    tolerance
        The width of the kernel or the standard deviation of the error, in units of the nodes: for all, or for each.
    guide
        For ``"svi"``: ``"normal"`` (independent) or ``"multivariate"`` (all noise jointly normal: for few units).
    coupling
        How the noise of a node drawn without explicit noise is coupled across worlds, as in :class:`pyrofair.SEM`.
    parameters
        The value of each parameter, a site outside the plate; otherwise one draw of the prior, with a warning.
    random_state
        Seeds the draws.

    Returns
    -------
    Abduction
        ``.noise`` (mean and standard deviation), ``.diagnostics``, and ``.do({...})``, their counterfactuals.

    Raises
    ------
    DataError
        If the table or a setting does not fit, a row is impossible, or the method cannot serve a node.

    References
    ----------
    Pearl (2009), theorem 7.1.7; Chikahara et al. (2021), appendix A.1.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> def program(n):
    ...     with pyro.plate("units", n):
    ...         U_h = pyro.sample("U_h", dist.Normal(0.0, 1.0))
    ...         U_y = pyro.sample("U_y", dist.Normal(0.0, 1.0))
    ...         X = pyro.sample("X", dist.Normal(0.0, 1.0))
    ...         H = pyro.deterministic("H", 0.5 * X + U_h)
    ...         pyro.deterministic("Y", 0.7 * X + 0.4 * H + U_y)
    >>> pearl = abduct(program, pd.DataFrame({"X": [0.5], "H": [1.0], "Y": [1.5]}))
    >>> pearl.do({"H": 2.0}).rows.round(4).to_dict("list")
    {'X': [0.5], 'H': [2.0], 'Y': [1.9]}
    """
    settings = Settings(method, inverses, draws, tolerance, guide)
    require_seed(random_state)
    require_couplings([coupling])
    if nodes is not None:
        nodes = require_names("nodes", nodes, "sites")
    if parameters is not None:
        require_instance("parameters", parameters, Mapping, "a dictionary from parameters to values, or None")
    one = {name: [value] for name, value in (parameters or {}).items()}
    if isinstance(program, Equations):
        rows = read_units(program, df)
    else:
        require_callable("program", program, "a Pyro program of the number of units")
        rows = read_rows(program, df, nodes, at_parameters(program, one))
    priors = read_priors(rows.program, rows.info, one)
    values = _read_parameters(priors, parameters or {})
    if priors.names and not values:
        remedy = f"Give a value of each: parameters={{{priors.names[0]!r}: ...}}."
        warnings.warn(priors.unknown(remedy), PyrofairWarning, stacklevel=2)
    return _abduct(rows, settings, coupling=coupling, parameters=values, seed=seed_from(random_state))


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
    """Infer the noise of observed units, except that of a sensitive attribute that will be set.

    Equations are solved for the noise, and what is left of it is drawn: block by block, or all of it by gradients.
    """
    widths = settings.widths(tuple(rows.columns))
    with isolated(seed):
        wide = takes_float64(rows.program, rows.info.random.union(rows.nodes, rows.observed))
    with isolated(seed), precision(wide=wide):
        evidence = Evidence.read(rows, coupling=coupling, sensitive=sensitive, parameters=parameters, wide=wide)
        distributions = require_possible(evidence)
        found = solve(evidence, settings.inverses or {}, lines=settings.method in ("auto", "exact"))
        report = _NoiseReport(evidence, found, distributions, settings.draws)
        values = {key: PartiallyKnown.of(each.double().numpy()) for key, each in found.noise.items()}

        def learn(key: str, units: Tensor, drawn: Tensor) -> None:
            point = values[key].point if key in values else np.full((evidence.n, *drawn.shape[2:]), np.nan)
            values[key] = PartiallyKnown.of(point, units.numpy(), drawn.double().numpy(), collapse=False)

        size, chains = settings.draws, 1
        if not settings.by_gradients:
            blocks = blocks_of(evidence, found)
            if settings.method == "exact":
                _require_solved(evidence, found, blocks)
            for block in blocks:
                units, noise, effective, proposals = draw_block(
                    evidence, found, block, size, widths, pivots=settings.method == "auto"
                )
                report.block(block, found, units, effective, proposals)
                for key, drawn in noise.items():
                    unknown = ~found.is_known(key)[units]
                    learn(key, units[unknown], drawn if bool(unknown.all()) else drawn[unknown])
        elif evidence.keys_of(evidence.explained):
            for site in evidence.explained:
                if site not in evidence.info.random and widths.get(site) is None:
                    raise DataError(
                        f"tolerance names no width for the node {site!r}, which method={settings.method!r} needs."
                    )
            guide = settings.guide if settings.method == "svi" else None
            noise, sizes, r_hat = draw_by_gradients(evidence, widths, size, guide)
            report.gradients(f"svi ({guide})" if guide else "nuts", sizes, r_hat)
            for key, drawn in noise.items():
                learn(key, torch.arange(evidence.n), drawn)
                size, chains = drawn.shape[1], 1 if guide else CHAINS
        ordered = {key: values[key] for key in evidence.info.sites if key in values}
        return Abduction(evidence, rows.columns, ordered, distributions, report.table(), size, chains, seed)


def counterfactuals(
    equations: Equations,
    df: pd.DataFrame,
    settings: Settings,
    *,
    coupling: Coupling = "gumbel",
    posterior: Mapping[str, npt.ArrayLike] | None = None,
    do: Mapping[str, Any] | None = None,
    predict: Sequence[str] = (),
    random_state: int | None = None,
) -> Counterfactuals:
    """Return both worlds of observed units; see :meth:`pyrofair.SEM.counterfactual`.

    Up to 50 ``posterior`` draws of the parameters, evenly spaced, share the draws of each unit; ``do`` sets nodes in
    both worlds.
    """
    seed = seed_from(random_state)
    rows = read_units(equations, df)

    def both(how: Settings, parameters: Mapping[str, npt.ArrayLike], start: int) -> Counterfactuals:
        units = _abduct(rows, how, coupling=coupling, parameters=parameters, seed=start, sensitive=equations.sensitive)
        return units.worlds(equations, do, predict)

    if not posterior:
        return both(settings, {}, seed)
    arrays = {name: np.asarray(values) for name, values in posterior.items()}
    size = min(len(values) for values in arrays.values())
    picks = np.unique(np.linspace(0, size - 1, min(size, MOST_DRAWS, settings.draws)).astype(int))
    share = -(-settings.draws // len(picks))
    each = replace(settings, draws=share)
    parts = [both(each, {name: values[i] for name, values in arrays.items()}, seed + int(i)) for i in picks]
    return pool(parts) if len(parts) > 1 else parts[0]


def _require_solved(evidence: Evidence, found: Findings, blocks: Sequence[Block]) -> None:
    for block in blocks:
        for site in block.drawn:
            raise DataError(
                f"method='exact' cannot serve {site!r}: its distribution reads the noise "
                f"{', '.join(evidence.keys[site])}, which other nodes do not determine. Use method='auto' or "
                "'importance'."
            )
        for site in block.computed:
            left = ~found.done[site] & ~found.flat[site]
            if bool(left.any()):
                raise DataError(
                    f"{evidence.describe(int(left.int().argmax()), site)}: method='exact' cannot solve the equation of "
                    f"{site!r} for its noise ({', '.join(evidence.keys[site])}): it is neither affine nor monotone in "
                    "one unknown, or takes this value at many. Declare an inverse, "
                    f"inverses={{{site!r}: lambda values: ...}}, or use method='auto'."
                )
