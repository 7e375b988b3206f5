"""The likelihood of a program's parameters: the program with its nodes set to the rows of a table, as a Pyro model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._random import isolated
from pyrofair.exceptions import DataError, PyrofairError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.inference.evidence import unequal
from pyrofair.inference.roots import Roots, find_roots, grid_of
from pyrofair.programs.couplings import unwrap
from pyrofair.programs.covariates import covariate_names, covariates_of_rows
from pyrofair.programs.distributions import FAR, log_normal_interval
from pyrofair.programs.provenance import Program, Provenance, is_deterministic, upstream
from pyrofair.programs.sites import ProgramSites, read_outline, read_sites
from pyrofair.programs.structural_equations import sensitive_levels
from pyrofair.programs.vectors import Components, ScalarProgram, find_vectors, has_points
from pyrofair.tables.labels import codes_of, read_levels, read_outcome, read_sensitive
from pyrofair.tables.reading import read_table, warn_unused

__all__ = ["Likelihood", "PosteriorError", "read_likelihood", "site_values"]

Counts = Callable[[Tensor], Tensor]
"""Scales and masks log-densities, shape (n,), as the program does."""


class Flat(NamedTuple):
    """Where a node is flat around its value: the noise there, from ``low`` to ``high``, and whether it is ``possible``.

    ``here`` (n,) are the units whose value has so much noise, and hence a probability.
    """

    low: Tensor
    high: Tensor
    here: Tensor
    possible: Tensor


class Equation(NamedTuple):
    """A computed node as ``start + slope * noise``, the distribution of its noise, and how its density counts.

    A node that is not affine is the line that touches it at its value, unless it is ``flat`` there.
    """

    start: Tensor
    slope: Tensor
    noise: Any
    counts: Counts
    flat: Flat | None = None

    def at(self, value: Tensor) -> Tensor:
        """Return the log-density of values; of one at which the node is flat, the log-probability of its noise."""
        d, noise = self.noise, (value - self.start) / self.slope
        inside = d.support.check(noise)
        if not bool(inside.all()):  # distributions may refuse such values, or return a number all the same
            noise = torch.where(inside.reshape(*inside.shape, *[1] * d.event_dim), noise, d.sample())
        density, steep = d.log_prob(noise).masked_fill(~inside, -torch.inf), self.slope.abs().log()
        found: Tensor = density - (steep.flatten(steep.ndim - d.event_dim).sum(-1) if d.event_dim else steep)
        if self.flat is None:
            return found
        if bool(self.flat.here.any()):
            found = torch.where(self.flat.here, _log_mass(d, self.flat.low, self.flat.high), found)
        return found.masked_fill(~self.flat.possible, -torch.inf)


def _log_mass(d: Any, low: Tensor, high: Tensor) -> Tensor:
    """Return the log-probability of noise between two ends, which may be infinite."""
    inner = unwrap(d)
    if isinstance(inner, torch.distributions.Normal):
        return log_normal_interval(*(((end - inner.loc) / inner.scale).clamp(-FAR, FAR) for end in (low, high)))
    try:
        least, most = (
            torch.where(end.isinf(), limit, inner.cdf(torch.where(end.isinf(), d.sample(), end)))
            for end, limit in ((low, 0.0), (high, 1.0))
        )
    except NotImplementedError as error:
        family = type(inner).__name__
        raise PosteriorError(
            f"A node is cut off, or level, at a value of its row, whose probability needs the distribution function of "
            f"its noise, and {family} has none. Draw the noise from another family, such as dist.Normal."
        ) from error
    return (most - least).clamp(min=torch.finfo(most.dtype).tiny).log()


PRIOR_DRAWS = 3
TOLERANCE = 1e-3
BESIDE = (-1.0, -0.1, -0.001, 0.001, 0.1, 1.0)
MOST_CONFIGURATIONS = 64
"""The program is run once for each joint value of its discrete unknowns, at each step."""


class PosteriorError(PyrofairError):
    """The parameters of a program cannot be learned as the program stands."""


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A program with its nodes set to n rows: a Pyro model of no arguments, for any inference algorithm of Pyro's.

    A drawn node is conditioned on. A node ``V = f0 + f1 U`` computed from private noise becomes a factor, its
    log-density ``log p_U((V - f0) / f1) - log |f1|``; of a vector, element by element. A number that is monotone in its
    noise is solved for it by bisection, and ``f1`` is its slope there; a value at which it is flat, such as a cap, has
    the log-probability of its noise (Tobin, 1958). A computed node that no parameter reaches is only set. Over per-unit
    unknowns with finitely many values, such as latent classes, the density of each row is summed, and all of it is one
    factor. Evidence, sites that the program itself gives a value and ``pyro.factor``, counts as in Pyro, at the rows.

    ``rows`` are the values of each node site, shape (n,), or those of a vector-valued site; ``inverted`` names the
    noise of each computed node that has a density, and ``idle`` holds noise that does not bear on the parameters.
    ``parameters`` are the sites to learn, drawn outside the plate, ``derived`` those computed from them there,
    ``latent`` the sites drawn per unit that stay unknown, such as common causes, ``evidence`` per-unit sites that the
    program gives a value, and factors. ``types`` and ``shapes`` are those of per-unit sites, ``axes`` the axis of their
    units, ``classes`` the values of unknowns that are summed over, and ``curved`` the computed nodes that are solved by
    bisection.
    """

    program: Program
    n: int
    rows: dict[str, Tensor]
    inverted: dict[str, str]
    idle: dict[str, Tensor]
    parameters: tuple[str, ...]
    derived: tuple[str, ...]
    latent: tuple[str, ...]
    evidence: tuple[str, ...]
    types: Mapping[str, torch.dtype]
    shapes: Mapping[str, tuple[int, ...]]
    axes: Mapping[str, int]
    classes: Mapping[str, Tensor] = field(default_factory=dict)
    curved: tuple[str, ...] = ()

    @property
    def observed(self) -> dict[str, NDArray[Any]]:
        """The values of each node site, individuals first, shape (n, ...)."""
        return {site: np.moveaxis(values.numpy(), self.axes.get(site, 0), 0) for site, values in self.rows.items()}

    def __call__(self) -> None:
        """Run the model once, the handlers outside seeing the unknown sites, the drawn nodes and the factors."""
        if self.classes:
            pyro.factor("rows__log_density", self._summed())
            return
        for node, equation in self.lines()[0].items():
            pyro.factor(f"{node}__log_density", equation.counts(equation.at(self.rows[node])))

    def configurations(self) -> list[dict[str, Tensor]]:
        """Return all joint values of the unknowns that are summed over, for all units each; one if there are none."""
        found = []
        for values in product(*self.classes.values()):
            each = zip(self.classes, values, strict=True)
            found.append({site: value.to(self.types[site]).expand(self.shapes[site]) for site, value in each})
        return found

    def _summed(self) -> Tensor:
        """Return the log-density of each row, shape (n,), summed over the discrete unknowns: one run for each value."""
        parts: list[Tensor] = []
        unknown: dict[str, Tensor] = {}
        for values in self.configurations():
            hidden = poutine.block if parts else nullcontext  # the handlers outside see the first run alone
            with hidden(), poutine.trace() as tracer, poutine.condition(data=unknown):
                equations, run = self.lines(values, hide=True)
            densities = [each.counts(each.at(self.rows[node])) for node, each in equations.items()]
            for site in {*self.rows, *self.evidence, *values} & run.counts.keys() - equations.keys():
                value = {**self.rows, **values}.get(site, run.natural.get(site))
                densities.append(run.counts[site](run.distributions[site].log_prob(value)))
            for density in densities:
                if density.shape not in ((), (1,), (self.n,)):
                    raise PosteriorError(
                        f"A density has the shape {tuple(density.shape)} for {self.n} units, so that it is not known "
                        f"for each of them, and cannot be summed over {', '.join(self.classes)}. Write vectors as "
                        "events (.to_event(1)), and the plate of units as the last."
                    )
            parts.append(sum(densities, torch.zeros(self.n)))
            sites: Any = tracer.trace.nodes
            unknown = unknown or {name: sites[name]["value"] for name in (*self.parameters, *self.latent)}
        return torch.logsumexp(torch.stack(parts), 0)

    def at(self, rows: Tensor) -> Likelihood:
        """Return the model of some of the rows, (m,)."""
        shapes = {
            site: tuple(len(rows) if i == self.axes.get(site) else size for i, size in enumerate(shape))
            for site, shape in self.shapes.items()
        }
        some = partial(self._some, rows)
        return replace(self, n=len(rows), rows=some(self.rows), idle=some(self.idle), shapes=shapes)

    def _some(self, rows: Tensor, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the values of per-unit sites for some of the rows, (m,)."""
        return {site: each.index_select(self.axes.get(site, 0), rows) for site, each in values.items()}

    def lines(
        self, values: Mapping[str, Tensor] | None = None, *, hide: bool = False
    ) -> tuple[dict[str, Equation], _Rows]:
        """Return the equations and the run, as :meth:`equations` does, curved nodes as lines that touch them."""
        with poutine.trace() as tracer:
            found, run = self.equations(values, hide=hide)
        if not self.curved:
            return found, run
        sites: Any = tracer.trace.nodes
        known = {name: sites[name]["value"] for name in (*self.parameters, *self.latent)}
        roots = self._roots(found, known, values or {})
        value = torch.stack([self.rows[node] for node in self.curved])

        def touch(noise: Tensor) -> tuple[Tensor, Tensor]:
            at = dict(zip((self.inverted[node] for node in self.curved), noise, strict=True))
            with poutine.block(), poutine.condition(data=known):
                every = self.equations(values, hide=hide, at=at)[0]
            start, slope = (torch.stack([getattr(every[s], name) for s in self.curved]) for name in ("start", "slope"))
            return start, slope

        inner = roots.within
        start, slope = touch(inner)
        here, size = slope == 0.0, value.abs() + value.abs().mean(-1, keepdim=True)
        possible = roots.reached & ((start + slope * inner - value).abs() <= TOLERANCE * size)
        low, high = (
            self._edge(touch, outer, inner, value, here & possible) if bool(here.any()) else outer
            for outer in (roots.below, roots.above)
        )
        point = possible & ~here
        # The root as a function of the parameters, and the slope there, which has gradients through it, too.
        start, slope = touch(torch.where(point, (value - start) / torch.where(point, slope, 1.0), inner))
        start, slope = torch.where(point, start, value - inner), torch.where(point, slope, 1.0)
        low, high = torch.where(here, low, -torch.inf), torch.where(here, high, inner)
        for node, *each in zip(self.curved, start, slope, low, high, here, possible, strict=True):
            found[node] = found[node]._replace(start=each[0], slope=each[1], flat=Flat(*each[2:]))
        return found, run

    def _roots(self, found: Mapping[str, Equation], known: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Roots:
        """Return the noise that gives curved nodes their values, (e, n); refuse one that is not monotone in it."""

        def natural(noise: Tensor) -> Tensor:
            wide = self.at(rows := torch.arange(self.n).repeat_interleave(noise.shape[-1]))
            zero = {other: torch.zeros(wide.shapes[other]) for other in self.inverted.values()}
            zero |= {self.inverted[node]: u.flatten() for node, u in zip(self.curved, noise, strict=True)}
            held = {**known, **self._some(rows, {site: each for site, each in known.items() if site in self.axes})}
            with (
                poutine.block(),
                poutine.condition(data=held),
                _Rows(wide, {**zero, **self._some(rows, values)}) as run,
            ):
                self.program(wide.n)
            return torch.stack([run.natural[node].expand(wide.n).reshape(noise.shape[1:]) for node in self.curved])

        with torch.no_grad():
            grid = torch.stack([grid_of(found[node].noise, self.n) for node in self.curved])
            roots = find_roots(natural, grid, torch.stack([self.rows[node] for node in self.curved]))
        for node, monotone in zip(self.curved, roots.monotone, strict=True):
            if not bool(monotone.all()):
                raise _unusable(
                    node, f"is neither affine nor monotone as a function of its noise {self.inverted[node]!r}"
                )
        return roots

    def _edge(self, touch: Any, outer: Tensor, inner: Tensor, value: Tensor, here: Tensor) -> Tensor:
        """Return the noise at which nodes become flat, (e, n), from lines that touch them just outside."""
        ends = here & outer.isfinite()
        start, slope = touch(torch.where(ends, outer, inner))
        for node, wrong in zip(self.curved, ends & (slope == 0.0), strict=True):
            if bool(wrong.any()):
                raise _unusable(
                    node, f"goes by steps, without a slope, as a function of its noise {self.inverted[node]!r}"
                )
        return torch.where(ends, (value - start) / torch.where(ends, slope, 1.0), outer)

    def equations(
        self,
        values: Mapping[str, Tensor] | None = None,
        *,
        hide: bool = False,
        at: Mapping[str, Tensor] | None = None,
    ) -> tuple[dict[str, Equation], _Rows]:
        """Run the program at noise 0, or ``at`` other noise, and return nodes as the lines that touch them there.

        ``values`` are those of the discrete unknowns; with ``hide`` the handlers outside see other unknowns alone.
        """
        zero = {u: torch.zeros(self.shapes[u], dtype=self.types[u]) for u in self.inverted.values()} | {**(at or {})}
        zero = {noise: each if each.requires_grad else each.clone().requires_grad_() for noise, each in zero.items()}
        with torch.enable_grad(), _Rows(self, {**zero, **(values or {})}, hide=hide) as run:
            self.program(self.n)
            if not zero:
                return {}, run
            start = {node: run.natural[node] for node in self.inverted}
            # Each noise belongs to one node and one unit, so the gradient of the sum holds each unit's slope.
            total = sum((values.sum() for values in start.values()), torch.zeros((), requires_grad=True))
            slopes = torch.autograd.grad(total, list(zero.values()), create_graph=True, allow_unused=True)
        found = {}
        for (node, noise), slope in zip(self.inverted.items(), slopes, strict=True):
            if slope is None:
                raise _unusable(node, f"does not read its noise {noise!r} by operations of torch")
            line = start[node] - slope * zero[noise]
            found[node] = Equation(line, slope, run.distributions[noise], run.counts[noise])
        return found, run


class _Rows(Messenger):
    """Set nodes to their rows and noise to given values, and hide from the handlers outside what they need not see.

    With ``hide`` they see the unknowns alone.
    """

    def __init__(self, likelihood: Likelihood, noise: Mapping[str, Tensor], *, hide: bool = False) -> None:
        super().__init__()
        self.likelihood, self.noise, self.hide = likelihood, noise, hide
        self.natural: dict[str, Tensor] = {}
        self.distributions: dict[str, Any] = {}
        self.counts: dict[str, Counts] = {}

    def _pyro_sample(self, msg: Any) -> None:
        name, computed = msg["name"], is_deterministic(msg)
        if name in self.likelihood.rows:
            if computed:
                self.natural[name] = msg["value"]
            else:
                self._note(msg)
            msg["value"], msg["is_observed"] = self.likelihood.rows[name], True
            msg["stop"] = bool(computed) or self.hide
        elif self.hide and name in self.likelihood.evidence:
            self._note(msg)
            self.natural[name], msg["stop"] = msg["value"], True
        elif name in self.noise or name in self.likelihood.idle:
            self._note(msg)
            msg["value"] = self.noise[name] if name in self.noise else self.likelihood.idle[name]
            msg["done"] = msg["stop"] = True
        elif computed and name not in self.likelihood.derived:
            msg["stop"] = True

    def _note(self, msg: Any) -> None:
        self.distributions[msg["name"]] = msg["fn"]
        self.counts[msg["name"]] = partial(scale_and_mask, scale=msg["scale"], mask=msg["mask"])


# -- reading a program and a table ------------------------------------------------------------------------------------


def read_likelihood(
    program: Program,
    df: pd.DataFrame,
    graph: CausalGraph,
    levels: Mapping[str, Sequence[Any]] | None = None,
    *,
    units: bool = False,
    numbers: bool = False,
) -> Likelihood:
    """Set the nodes of a program to the rows of a table, and determine what is left unknown.

    The column of the outcome may be absent; its parameters are then not learned. ``levels`` names for a node site whose
    values are codes 0, 1, ..., the labels that the table holds. With ``units`` the noise of each drawn node is unknown,
    too, and that of computed nodes that read several, whether it bears on a parameter or not, and no parameter need be
    drawn; with ``numbers`` the program may have numbers that are fitted without a prior (``pyro.param``, networks). A
    PosteriorError refuses a program that cannot be fitted as written, a DataError or GraphError a table that does not
    fit it.
    """
    outline = read_outline(program)
    if has_points(outline):
        program, outline = ScalarProgram(program, {}), read_outline(ScalarProgram(program, {}))
    info = read_sites(program, outline)
    reads = info.dependencies
    nodes = {*graph.nodes, *graph.columns_of(graph.observed)}
    evidence = info.evidence(nodes)
    info.require_drawn(site for site in info.sites if site in nodes)
    vectors = find_vectors(info, {node: graph.columns_of([node]) for node in graph.observed})
    rows = site_values(df, graph, info, vectors, levels, covariate_names(program))
    program, covariates = covariates_of_rows(program, info.sites, df)
    rows |= {site: torch.as_tensor(values).to(info.dtypes[site]) for site, values in covariates.items()}
    parameters = tuple(site for site in reads.drawn if site not in info.sites)
    derived = tuple(site for site in reads.computed if site not in info.sites)
    _require_fittable(info, rows, any_parameters=bool(parameters) or units, numbers=numbers)
    open_ = {site for site in info.random if site in rows} | _undetermined(reads, info, tuple(rows)) if units else set()
    if numbers:
        open_ |= {*rows} - {graph.sensitive, *graph.columns_of([graph.sensitive])}
    info.confirm(len(df))
    with isolated(1), torch.no_grad(), pyro.validation_enabled(False), poutine.trace() as tracer:
        program(len(df))
    drawn: Any = tracer.trace.nodes
    values = {} if units else {site: _values(drawn[site]["fn"]) for site in info.random}
    finite = {site: each for site, each in values.items() if each is not None}
    inverted, latent, known = _roles(reads, info, graph, (*rows, *evidence), frozenset(parameters), open_, finite)
    if uninformed := [site for site in parameters if site not in known]:
        warnings.warn(
            f"No node of the table depends on the parameter {', '.join(map(repr, uninformed))}, as far as torch can "
            "see; its posterior is its prior. Read parameters as tensors (no .item() or NumPy), and check the columns.",
            PyrofairWarning,
            stacklevel=3,
        )
    idle = {s: drawn[s]["value"] for s in info.random - {*rows, *inverted.values(), *latent, *evidence}}
    shapes = {site: info.shape(site, len(df)) for site in info.sites}
    classes = {site: finite[site] for site in latent if site in finite}
    _require_summable(classes, reads, info, latent)
    latent = tuple(site for site in latent if site not in classes)
    likelihood = Likelihood(
        program, len(df), rows, inverted, idle, parameters, derived, latent, evidence, info.dtypes, shapes, info.axes,
        classes,
    )  # fmt: skip
    with isolated(1), torch.no_grad(), pyro.validation_enabled(False):
        return _check(likelihood)


def _values(distribution: Any) -> Tensor | None:
    """Return the finitely many values of a discrete number or a one-hot vector, (k, ...), or None."""
    if not distribution.has_enumerate_support:
        return None
    try:
        values: Tensor = distribution.enumerate_support(expand=False)
    except NotImplementedError:  # each unit has values of its own
        return None
    event = distribution.event_shape
    return values.reshape(-1, *event) if values.numel() == len(values) * event.numel() else None


def _require_summable(
    classes: Mapping[str, Tensor], reads: Provenance, info: ProgramSites, latent: Sequence[str]
) -> None:
    """Refuse discrete unknowns that other unknowns, or sites outside the plate, read, and too many of them."""
    for site in reads.reads:
        alone = (site in latent and site not in classes) or site not in info.sites
        if alone and (met := sorted(upstream(reads.reads[site], reads.reads, ()) & classes.keys())):
            raise PosteriorError(
                f"{site!r} reads the discrete unknown {met[0]!r}, so that the density of each row cannot be summed "
                "over its values. Let nodes alone read it."
            )
    if (count := math.prod(map(len, classes.values()))) > MOST_CONFIGURATIONS:
        raise PosteriorError(
            f"The discrete unknowns {', '.join(classes)} have {count} joint values, and the density of each row would "
            f"be summed over all of them; at most {MOST_CONFIGURATIONS} can be. Give them fewer values."
        )


def _require_fittable(info: ProgramSites, nodes: Iterable[str], *, any_parameters: bool, numbers: bool) -> None:
    """Refuse a program that has nothing to learn, or something without a prior or a density."""
    for name in () if numbers else info.dependencies.stored:
        raise PosteriorError(
            f"The program reads {name!r} by pyro.param, which has no prior and hence no posterior. Give it one, "
            f"pyro.sample({name!r}, prior) outside the plate, or write its value as a constant."
        )
    if not any_parameters:
        raise PosteriorError(
            "The program has no parameters to learn: no site is drawn outside the plate of units. Write each as "
            "pyro.sample(name, prior) before the plate."
        )
    for node in nodes:
        if node in info.reparametrised:
            raise PosteriorError(
                f"The node {node!r} is reparametrised (poutine.reparam), so that it has no density of its own. Leave "
                "it out of the config: that changes no distribution. Parameters may stay reparametrised."
            )


def site_values(
    df: pd.DataFrame,
    graph: CausalGraph,
    info: ProgramSites,
    vectors: Mapping[str, Components],
    levels: Mapping[str, Sequence[Any]] | None,
    covariates: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Return the columns of a table as values of a program's sites; the outcome's may be absent.

    A DataError or GraphError names what does not fit.
    """
    parts = {name: site for site, vector in vectors.items() for name in vector.names}
    site_of: dict[str, str] = {}
    node_of: dict[str, str] = {}
    for node in graph.observed:
        columns = graph.columns_of([node])
        if len(columns) == 1 and columns[0] not in info.sites and node in info.sites:
            site_of[columns[0]] = node
        elif node != graph.outcome or columns[0] in (*info.sites, *parts):
            info.require(parts.get(column, column) for column in columns)
            site_of |= {column: column for column in columns}
        node_of |= {site_of[column]: node for column in columns if column in site_of}
    labels = read_levels(levels, node_of, graph)
    missing = isinstance(df, pd.DataFrame) and graph.outcome_column not in df.columns
    if missing:
        site_of.pop(graph.outcome_column, None)
    table = read_table(df, list(site_of))
    warn_unused(df, graph, covariates)
    rows = {}
    for column, site in site_of.items():
        coded = site in labels
        given = codes_of(column, labels[site], table[column]) if coded else _numbers(table, column, site, graph)
        kept = info.dtypes[parts.get(site, site)]
        rows[site] = torch.as_tensor(given).to(kept)
        if bool((wrong := unequal(rows[site], torch.as_tensor(given))).any()):
            dtype = str(kept).removeprefix("torch.")
            raise DataError(
                f"The column {column!r} holds {torch.as_tensor(given)[wrong][0].item():g}, but the program's site "
                f"{site!r} holds {dtype}. Code the column as the program does."
            )
    for site, vector in vectors.items():
        if all(name in rows for name in vector.names):
            rows[site] = vector.join([rows.pop(name) for name in vector.names])
    return rows


def _numbers(table: pd.DataFrame, column: str, site: str, graph: CausalGraph) -> NDArray[Any]:
    values = table[column]
    if column == graph.sensitive_column:
        return np.asarray(sensitive_levels(graph))[read_sensitive(table, graph, both=False)]
    if column == graph.outcome_column and values.nunique() <= 2:
        return np.asarray(read_outcome(values, graph.positive)[0])
    if not is_numeric_dtype(values.dtype):
        raise DataError(
            f"The column {column!r} holds {values.iloc[0]!r}, and the program's sites are numbers. Name its "
            f"labels, that of code 0 first, levels={{{site!r}: [...]}}, or code it as the program does, 0, 1, 2, ..."
        )
    return values.to_numpy(dtype=np.float64, copy=True)


def _roles(
    reads: Provenance,
    info: ProgramSites,
    graph: CausalGraph,
    rows: Sequence[str],
    parameters: frozenset[str],
    open_: Collection[str],
    finite: Collection[str],
) -> tuple[dict[str, str], tuple[str, ...], set[str]]:
    """Return the noise of each node to invert, the per-unit unknowns, and all sites that rows and evidence bear on.

    Evidence is like a drawn node: its value is given. The noise of ``open_`` nodes counts in any case. Noise with
    ``finite`` values is summed over, beside one that has a density.
    """
    above = {node: upstream(reads.reads[node], reads.reads, rows) - {*rows} for node in rows}
    hidden = {*graph.latent} & info.random
    noise = {node: [s for s in info.sites if s in above[node] & info.random - hidden] for node in rows}
    users = {s: {node for node in rows if s in noise[node]} for node in rows for s in noise[node]}
    settled = {node for node in rows if not above[node] & (parameters | hidden) and node not in open_}
    while loose := {node for node in settled if any(users[s] - settled for s in noise[node])}:
        settled -= loose
    inverted: dict[str, str] = {}
    for node in rows:
        if node in settled or node in info.random:
            continue
        private = [s for s in noise[node] if users[s] == {node}]
        private = [s for s in private if s not in finite] or private
        if len(private) != 1:
            which = f"the private noise {', '.join(map(repr, private))}" if private else "no noise of its own"
            if shared := sorted({site for s in noise[node] for site in users[s] & info.observed}):
                which += f" (the evidence {', '.join(map(repr, shared))} reads it too)"
            raise _unusable(node, f"is computed from parameters and {which}; exactly one noise can be recovered")
        inverted[node] = private[0]
    known: set[str] = set().union(*(above[node] for node in rows if node not in settled))
    latent = tuple(s for s in info.sites if s in known & info.random and s not in inverted.values())
    return inverted, latent, known


def _undetermined(reads: Provenance, info: ProgramSites, rows: Sequence[str]) -> set[str]:
    """Return the computed nodes that read several noise sites which others, one after the other, do not determine."""
    computed = [node for node in info.sites if node in rows and node not in info.random]
    left = {node: upstream(reads.reads[node], reads.reads, rows) & info.random - {*rows} for node in computed}
    while single := [node for node, noise in left.items() if len(noise) == 1]:
        known = set().union(*(left.pop(node) for node in single))
        left = {node: noise - known for node, noise in left.items()}
    return {node for node, noise in left.items() if noise}


# -- checks with parameters drawn from their priors -------------------------------------------------------------------


def _unusable(node: str, why: str) -> PosteriorError:
    return PosteriorError(
        f"The node {node!r} {why}. Write it as a drawn site, pyro.sample({node!r}, distribution), or as a function of "
        f"its parents and one continuous noise U = pyro.sample('U_{node}', distribution) that no other node reads and "
        "in which it rises, or falls, with a slope (such as f0 + f1 * U, exp(f0 + U), or either cut off by clamp)."
    )


def _check(likelihood: Likelihood) -> Likelihood:
    """Refuse what cannot be fitted, and return the likelihood with the nodes that are not affine in their noise."""
    impossible, unmet, dead = dict[str, Tensor](), dict[str, Tensor](), dict[str, Tensor]()
    for _, values in product(range(PRIOR_DRAWS), likelihood.configurations()):
        with poutine.trace() as tracer:
            equations, _ = likelihood.lines(values)
        sites: Any = tracer.trace.nodes
        distributions = {name: sites[name]["fn"] for name in sites if sites[name]["type"] == "sample"}
        _check_unknowns(likelihood, distributions, {node: each.noise for node, each in equations.items()})
        for node, equation in equations.items():
            _check_shape(likelihood, node, equation.start.shape)
            if (flat := equation.flat) is not None:
                _note(dead, node, flat.low.isinf() & flat.high.isinf())
                _note(unmet, node, ~flat.possible)
                equation.at(likelihood.rows[node])  # which may need a distribution function
                continue
            _note(dead, node, equation.slope == 0.0)
            if not _is_affine(likelihood, tracer.trace, node, equation, values):
                if likelihood.shapes[node] != (likelihood.n,):
                    raise _unusable(node, f"is not affine as a function of its noise {likelihood.inverted[node]!r}")
                return _check(replace(likelihood, curved=(*likelihood.curved, node)))
        for site in likelihood.rows.keys() & distributions.keys():
            _check_shape(likelihood, site, distributions[site].shape())
        given = [*(likelihood.rows.keys() & distributions.keys()), *likelihood.evidence]
        for site in [each for each in given if sites[each]["value"].numel()]:  # a factor has no value
            wrong = ~distributions[site].support.check(sites[site]["value"])
            _note(impossible, site, wrong if sites[site]["mask"] is None else wrong & sites[site]["mask"])
    for site, wrong in impossible.items():
        if wrong.any():
            what, remedy = "node", "Code the column as the program does."
            if site in likelihood.evidence:
                what, remedy = "evidence", "Correct what it is given (obs=...)."
            raise DataError(
                f"{int(wrong.sum())} value(s) of the {what} {site!r}, such as {_shown(sites[site]['value'], wrong)}, "
                f"cannot be drawn by the program's site: its support is {distributions[site].support}. {remedy}"
            )
    for node, rows in dead.items():
        if node in unmet and unmet[node].any():
            raise DataError(
                f"{int(unmet[node].sum())} value(s) of the node {node!r}, such as "
                f"{_shown(likelihood.rows[node], unmet[node])}, are given by no noise {likelihood.inverted[node]!r} at "
                f"{PRIOR_DRAWS} draws of the parameters. Correct them, or the program."
            )
        if rows.any():
            raise _unusable(node, f"does not read its noise in {int(rows.sum())} row(s), and has no density there")
    return likelihood


def _note(always: dict[str, Tensor], name: str, wrong: Tensor) -> None:
    """Note which values are wrong at all draws so far."""
    always[name] = always.get(name, wrong) & wrong


def _shown(values: Tensor, wrong: Tensor) -> str:
    """Return the first of the wrong values as text."""
    if values.shape[: wrong.ndim] != wrong.shape:
        values = values.expand(torch.broadcast_shapes(values.shape, wrong.shape))  # type: ignore[no-untyped-call]
    first = values[wrong][0]
    return f"{first.item():g}" if first.numel() == 1 else str(first.tolist())


def _check_unknowns(likelihood: Likelihood, distributions: Mapping[str, Any], recovered: Mapping[str, Any]) -> None:
    for name in (*likelihood.parameters, *likelihood.latent):
        d = distributions[name]
        if d.support.is_discrete:
            what = "parameter" if name in likelihood.parameters else "per-unit unknown"
            raise PosteriorError(
                f"The {what} {name!r} is discrete ({type(d).__name__}), and the gradients of SVI and NUTS need "
                "continuous unknowns. An unknown of each unit is summed over if it has finitely many values: a count "
                "from dist.Categorical(logits=law.log_prob(torch.arange(30.0))), its law cut off at 29. Otherwise make "
                "it continuous."
            )
    for node, noise in likelihood.inverted.items():
        if recovered[node].support.is_discrete or likelihood.shapes[noise] != likelihood.shapes[node]:
            raise _unusable(node, f"has the noise {noise!r}, which is discrete or of another shape than the node")
        if isinstance(recovered[node], dist.MaskedDistribution):
            raise _unusable(node, f"has the noise {noise!r}, whose density is masked; mask the site by poutine.mask")


def _check_shape(likelihood: Likelihood, site: str, shape: torch.Size) -> None:
    if shape != likelihood.shapes[site]:
        raise PosteriorError(
            f"The site {site!r} has the shape {tuple(shape)} for {likelihood.n} units; expected "
            f"{likelihood.shapes[site]}, in a plate that does not subsample."
        )


def _is_affine(likelihood: Likelihood, trace: Any, node: str, equation: Equation, known: Mapping[str, Tensor]) -> bool:
    """Return whether a node lies on its line at draws of its noise and beside its rows."""
    name, (start, slope, d) = likelihood.inverted[node], equation[:3]
    if not bool((start.isfinite() & slope.isfinite()).all()):
        return False
    drawn, row = d.sample(), (likelihood.rows[node] - start) / slope
    beside = [torch.where(row.isfinite(), row, drawn) + step * (drawn - drawn.mean()) for step in BESIDE]
    for noise in (drawn, 1.0 + 3.0 * drawn, torch.full_like(drawn, -2.5), *beside):
        zero = {other: torch.zeros(likelihood.shapes[other]) for other in likelihood.inverted.values()}
        values = {**zero, **known, name: noise}
        with poutine.replay(trace=trace), _Rows(likelihood, values) as run:
            likelihood.program(likelihood.n)
        value, line = run.natural[node], start + slope * noise
        off = ((value - line).abs() / (start.abs() + (slope * noise).abs() + 1e-3))[value.isfinite() & line.isfinite()]
        if bool((off > TOLERANCE).any()):
            return False
    return True
