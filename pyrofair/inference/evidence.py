"""Observed rows of a program, and the equations evaluated at them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pyro import poutine
from torch import Tensor

from pyrofair._validation import plain_value
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.programs.couplings import Coupling, Noise, at_noise, noise_like
from pyrofair.programs.covariates import ROW, covariate_names, covariates_of_rows
from pyrofair.programs.parameters import at_parameters
from pyrofair.programs.provenance import Program, is_deterministic
from pyrofair.programs.sites import UNITS, ProgramSites
from pyrofair.programs.structural_equations import Equations, sensitive_levels
from pyrofair.programs.vectors import read_scalar_sites
from pyrofair.programs.worlds import RunOnNoise, StopTracing, World, quiet
from pyrofair.tables.labels import is_categorical, read_sensitive
from pyrofair.tables.reading import read_table, warn_unused

__all__ = [
    "Evidence",
    "GivenRows",
    "ReadSites",
    "Reading",
    "distinct",
    "read_rows",
    "read_units",
    "repeat_each",
    "require_possible",
    "unequal",
]


@dataclass(frozen=True, eq=False)
class GivenRows:
    """A program with what was read off it, and n rows: ``observed`` holds the values of sites, covariates too, (n,).

    ``nodes`` are the node sites, observed or not, in causal order; ``columns`` names the column of each observed site,
    in the order of the table; ``index`` holds the units' labels.
    """

    program: Program
    info: ProgramSites
    nodes: tuple[str, ...]
    observed: dict[str, NDArray[np.float64]]
    columns: dict[str, str]
    index: pd.Index[Any]


def read_units(equations: Equations, df: pd.DataFrame) -> GivenRows:
    """Read rows of a program with a graph: all observed nodes, and the outcome if it has a column."""
    graph = equations.unfair.graph
    columns: dict[str, str] = {}
    for site, node in equations.node_of.items():
        own = graph.columns.get(node, [])
        if node not in graph.latent and not (node == graph.outcome and own[0] not in getattr(df, "columns", ())):
            columns[site] = site if site in own else own[0]
    table = read_table(df, list(columns.values()))
    program, covariates = covariates_of_rows(equations.program, equations.info.sites, df)
    warn_unused(df, graph, covariate_names(equations.program))
    order = list(df.columns)
    columns = dict(sorted(columns.items(), key=lambda pair: order.index(pair[1])))
    values = {}
    for site, column in columns.items():
        if site == equations.sensitive:
            values[site] = np.asarray(sensitive_levels(graph))[read_sensitive(table, graph, both=False)]
        elif equations.node_of[site] == graph.outcome and is_categorical(table[column]):
            values[site] = np.asarray(table[column] == graph.positive, dtype=np.float64)
        else:
            values[site] = _numbers(table[column])
    values |= covariates
    nodes = tuple(site for site in equations.node_of if site != ROW)
    return GivenRows(program, equations.info, nodes, values, columns, table.index)


def read_rows(
    program: Program, df: pd.DataFrame, nodes: Sequence[str] | None, probe: Program | None = None
) -> GivenRows:
    """Read rows of a program without a graph: the columns named like its sites, or their components, are its nodes.

    ``nodes`` names the observed ones; ``probe`` is run on a few units instead of the program, with its parameters set.
    """
    read_table(df, [])  # a table at all
    have = list(map(str, df.columns))
    named = [name for each in (have if nodes is None else nodes) for name in (each, each.partition("[")[0])]
    read = read_scalar_sites(program, dict.fromkeys(named, ()), probe)
    info = read.info
    if nodes is None:
        nodes = [name for name in have if name in info.sites and name != ROW]
        if not nodes:
            raise DataError(
                f"No column of the data is a site of the program. Its sites: {', '.join(info.sites)}; the columns: "
                f"{', '.join(have) or 'none'}."
            )
        if others := [name for name in have if name not in info.sites]:
            warnings.warn(f"Columns that are no sites are ignored: {', '.join(others)}.", PyrofairWarning, stacklevel=3)
    if not nodes:
        raise DataError(f"nodes=[] names no site. Name one at least, of {', '.join(info.sites)}.")
    nodes = [name for node in nodes for name in read.columns.get(node, (node,))]
    info.require(nodes)
    info.require_drawn(nodes)
    info.refuse_evidence(tuple(nodes))
    table = read_table(df, nodes)
    ordered = tuple(site for site in info.sites if site in nodes)
    bound, covariates = covariates_of_rows(read.program, info.sites, df)
    values = {site: _numbers(table[site]) for site in nodes} | covariates
    return GivenRows(bound, info, ordered, values, {n: n for n in nodes}, table.index)


def _numbers(values: pd.Series[Any]) -> NDArray[np.float64]:
    if is_categorical(values):
        raise DataError(
            f"The column {values.name!r} holds categories, but the program's values are numbers. Code them as it does."
        )
    return values.to_numpy(dtype=np.float64)


Partly = Mapping[str, tuple[Tensor, Tensor]]
"""For each noise site values, shape (m, ...), and where they hold, shape (m,); elsewhere it is drawn."""

ROUNDING = 1e-5
"""How far, relative to the size of a node, a row may be from what the program computes: float32 rounding."""
FEW_DRAWS = 4
"""Draws of noise that show what size a node has in a unit: one alone may happen to be near 0."""


@dataclass
class Reading:
    """One run for m units.

    ``natural`` holds the value that the equation of each observed deterministic site gives, shape (m,),
    ``distributions`` that of each random site, and ``noise``, shape (m, ...), the noise of each unobserved one: its
    value, or what :func:`noise_like` draws where its distribution depends on a node, mostly a uniform number.
    """

    natural: dict[str, Tensor] = field(default_factory=dict)
    distributions: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A program, and n units of which some nodes are observed.

    ``nodes`` are the node sites, observed or not, in causal order; ``observed`` the values of the observed ones, shape
    (n,), in the types of their sites. ``coupling`` is that of the noise of nodes drawn without explicit noise across
    worlds. ``sensitive`` is the site of the sensitive attribute, whose own noise is not needed, or None. ``parameters``
    holds the values of sites outside the plate, ``spare`` for each random site the value of one unit, a placeholder.
    ``wide``: the program takes values in float64; otherwise each site has the type that the program gives it.
    """

    program: Program
    info: ProgramSites
    nodes: tuple[str, ...]
    observed: dict[str, Tensor]
    index: pd.Index[Any]
    coupling: Coupling
    sensitive: str | None
    parameters: dict[str, Tensor]
    spare: dict[str, Tensor]
    wide: bool

    @classmethod
    def read(
        cls,
        rows: GivenRows,
        *,
        coupling: Coupling,
        sensitive: str | None,
        parameters: Mapping[str, npt.ArrayLike],
        wide: bool,
    ) -> Evidence:
        """Put the values of rows, and parameters, in the types of their sites.

        Refused are fractions of an integer site, sites of more than one number a unit, and sites that matter whose
        log-probability is masked or scaled.
        """
        info, index = rows.info, rows.index
        held = {name: np.asarray(value)[None] for name, value in parameters.items()}
        with quiet(), poutine.trace() as tracer:
            at_parameters(rows.program, held)(2)
        met: dict[str, Any] = {n: site["value"] for n, site in tracer.trace.nodes.items() if site["type"] == "sample"}
        observed = {}
        for site, values in rows.observed.items():
            if len(info.shapes[site]) > 1:
                raise DataError(
                    f"The site {site!r} has more than one number a unit, so no column can hold it. Give each of its "
                    "numbers a site of its own."
                )
            dtype = info.dtypes[site]
            numbers = torch.tensor(np.array(values, order="C"))  # torch takes no negative strides, as of df[::-1]
            observed[site] = numbers.to(_widened(dtype, wide=wide))
            wrong = unequal(observed[site], numbers)
            if bool(wrong.any()):
                at = int(wrong.int().argmax())
                raise DataError(
                    f"Row {plain_value(index[at])!r}: {site} = {values[at]:g}, but in the program it is "
                    f"{'True or False' if dtype == torch.bool else 'an integer'} ({str(dtype).removeprefix('torch.')})."
                )
        spare = {name: met[name].narrow(info.shapes[name].index(UNITS), 0, 1) for name in info.random - info.observed}
        fixed = {name: met[name] for name in info.parameters}
        found = cls(rows.program, info, rows.nodes, observed, index, coupling, sensitive, fixed, spare, wide)
        for site in (*observed, *found.keys_of(observed)):
            if site in info.weighted:
                raise DataError(
                    f"The log-probability of the site {site!r} is masked or scaled in the program (poutine.mask, "
                    "poutine.scale, .mask()), so it is not that of what the program draws. Pass the program without it."
                )
        return found

    def spare_for(self, site: str, m: int) -> Tensor:
        """Return a placeholder for m units of a random site."""
        return self.spare[site].expand(self.info.shape(site, m))

    def by_rows(self, key: str, value: Tensor) -> Tensor:
        """Return the value of a random site with units first, as its noise is kept, shape (m, ...)."""
        return value.movedim(self.info.axes[key], 0)

    def as_site(self, key: str, noise: Tensor) -> Tensor:
        """Return noise that is kept with units first in the shape of its site."""
        return noise.movedim(0, self.info.axes[key])

    def possible(self, key: str, d: Any, noise: Tensor) -> Tensor:
        """Return for which units noise, shape (m, ...), is in the support of its distribution, shape (m,)."""
        inside = self.by_rows(key, d.support.check(self.as_site(key, noise)))
        return inside.reshape(len(noise), -1).all(-1)

    def in_type(self, site: str, noise: Tensor) -> Tensor:
        """Return the values of an explicit noise site in the type that the program takes."""
        return noise.to(_widened(self.spare[site].dtype, wide=self.wide))

    @property
    def n(self) -> int:
        """The number of units."""
        return len(self.index)

    # -- what depends on what ------------------------------------------------------------------------------------------

    @cached_property
    def implicit(self) -> frozenset[str]:
        """The random sites whose distribution depends on a node: their value is no noise, but has noise of its own."""
        return frozenset(site for site in self.info.random if self.info.causes(site, self.nodes)[0])

    @cached_property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """For each observed site the noise that its equation reads: unobserved random sites."""
        return {site: self.keys_of([site]) for site in self.observed}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """For each unobserved random site that an observed one reads, those that read it."""
        every = dict.fromkeys(key for keys in self.keys.values() for key in keys)
        return {key: tuple(site for site in self.observed if key in self.keys[site]) for key in every}

    @cached_property
    def above(self) -> dict[str, tuple[str, ...]]:
        """For each noise site that an observed one reads, the noise that its own distribution reads in turn."""
        return {key: self.info.causes(key, tuple(self.observed))[1] for key in self.readers}

    @cached_property
    def explained(self) -> tuple[str, ...]:
        """The observed sites whose values bear on the noise that is needed, in causal order.

        The sensitive attribute, which is set in both worlds, does so only if its noise feeds another node.
        """
        own = () if self.sensitive is None else self.keys[self.sensitive]
        idle = self.sensitive if all(self.readers[key] == (self.sensitive,) for key in own) else None
        return tuple(site for site in self.nodes if site in self.observed and site != idle)

    def below(self, targets: Iterable[str]) -> frozenset[str]:
        """Return the nodes that depend on some targets, these left out."""
        chosen = frozenset(targets)
        return frozenset(node for node in self.nodes if self.info.above(node, frozenset()) & chosen) - chosen

    def keys_of(self, sites: Iterable[str]) -> tuple[str, ...]:
        """Return the noise that some node sites read, through unobserved sites too.

        What lies behind a noise site does not matter once its value is given; what lies behind a random step whose
        distribution depends on a node does, for its value changes with its distribution.
        """
        stop = self.info.random - self.implicit | {*self.observed}
        met = {above for site in sites for above in self.info.above(site, stop)}
        return tuple(site for site in self.info.sites if site in met & self.info.random and site not in self.observed)

    def noise_of(self, sites: Iterable[str]) -> tuple[str, ...]:
        """Return the noise that some node sites read, their own included where they are unobserved and drawn."""
        mine = {*sites}
        own = mine & self.info.random - {*self.observed}
        met = {*self.keys_of(mine), *own}
        met |= {above for key in met for above in self.info.causes(key, tuple(self.observed))[1]}
        return tuple(site for site in self.info.sites if site in met)

    def is_root(self, key: str) -> bool:
        """Return whether a noise site is one number whose value leaves no other noise to be weighed by it."""
        alone = key in self.implicit or not any(above in self.readers for above in self.above[key])
        return self.is_number(key) and alone

    def is_number(self, key: str) -> bool:
        """Return whether the noise of a site is one number: its value, or a uniform where its law reads a node."""
        gumbel = key in self.implicit and self.coupling == "gumbel" and key in self.info.nominal
        return len(self.info.shapes[key]) == 1 and not gumbel

    def way_out(self, keys: Iterable[str]) -> str:
        """Return the advice to standardise noise whose distribution reads a node; empty if there is none."""
        moving = ", ".join(key for key in keys if key in self.implicit)
        plain = "as a function of that node and of noise whose distribution reads none"
        return f" Write {moving}, whose distribution reads a node, {plain}." if moving else ""

    # -- running it ----------------------------------------------------------------------------------------------------

    def given(
        self, rows: Tensor | None = None, repeat: int = 1, sites: Iterable[str] | None = None
    ) -> dict[str, Tensor]:
        """Return the observed values of some units (all), each ``repeat`` times in a row, shape (m * repeat,).

        With ``sites``, those whose equations are to be evaluated, nodes that these do not read may be left out.
        """
        wanted = set(self.observed)
        if sites is not None:
            wanted = {*sites, *(s for site in sites for s in self.info.causes(site, tuple(self.observed))[0])}
        chosen = {s: v if rows is None else v[rows] for s, v in self.observed.items() if s in wanted}
        return {site: repeat_each(values, repeat) for site, values in chosen.items()}

    def run(
        self,
        given: Mapping[str, Tensor],
        sites: Iterable[str],
        noise: Mapping[str, Tensor] | None = None,
        partly: Partly | None = None,
    ) -> Reading:
        """Evaluate the equations of some observed sites with all observed sites held: ``do`` on all their parents.

        ``given`` holds the observed values, shape (m,), ``noise`` what is known of all units, shape (m, ...), and
        ``partly`` of some; other noise that the sites read is drawn. The run ends once it has met the sites.
        """
        m, sites = len(next(iter(given.values()))), {*sites}
        self.info.confirm(m)
        keys = {key for site in sites for key in self.keys.get(site, ())} | {*self.noise_of(sites - self.keys.keys())}
        keys |= {above for key in keys for above in self.above.get(key, ())}
        values = {site: self.spare_for(site, m) for site in self.spare if site not in keys} | self.parameters
        known = {key: each if key in self.implicit else self.in_type(key, each) for key, each in (noise or {}).items()}
        held = _PartlyKnown(m, self.coupling, values, seed=None, known=known, partly=partly or {}, axes=self.info.axes)
        run = ReadSites(held, self.implicit, given, sites | keys)
        run.run(self.program)
        uniform: Any = dist.Uniform
        moving = {key: uniform(0.0, 1.0) for key in self.implicit & keys if self.is_number(key)}
        return Reading(run.natural, run.distributions | moving, held.met)

    def close(self, site: str, natural: Tensor, rows: Tensor) -> Tensor:
        """Return where a value computed for some units is the observed one up to rounding, shape (m,)."""
        value = self.observed[site][rows].to(torch.get_default_dtype())
        return (natural.to(value.dtype) - value).abs() <= self.leeway(site, rows)

    def leeway(self, site: str, rows: Tensor) -> Tensor:
        """Return how far the observed values of some units may be from the computed ones by rounding, shape (m,)."""
        return ROUNDING * self.scale[site][rows]

    @cached_property
    def scale(self) -> dict[str, Tensor]:
        """For each observed site computed from others the size that it has in each unit, (n,), to judge rounding by.

        That is of its value or of what its equation gives at a few draws, whichever is larger: a value near 0 may be
        the difference of large ones. What other units are like does not matter.
        """
        computed = [site for site in self.observed if site not in self.info.random]
        given = self.given(repeat=FEW_DRAWS)
        natural = self.run(given, computed).natural if computed else {}
        found = {}
        for site in computed:
            drawn = natural[site].double().abs().expand(self.n * FEW_DRAWS).reshape(-1, FEW_DRAWS)
            size = torch.maximum(self.observed[site].double().abs(), drawn.where(drawn.isfinite(), 0.0).mean(1))
            usual = size[size > 0.0]
            found[site] = size.where(size > 0.0, usual.median() if len(usual) else 1.0).to(torch.get_default_dtype())
        return found

    def describe(self, row: int, *sites: str) -> str:
        """Return the unit's label, its values of some sites, and at which parents, for messages."""
        texts = []
        for site in sites:
            parents = [s for s in self.info.causes(site, self.nodes)[0] if s in self.observed]
            at = ", ".join(f"{s}={self.observed[s][row].item():g}" for s in parents)
            texts.append(f"{site} = {self.observed[site][row].item():g}" + (f" given {at}" if at else ""))
        return f"Row {plain_value(self.index[row])!r}: {'; '.join(texts)}"

    def refuse(self, wrong: Tensor, site: str, text: str | Callable[[int], str], rows: Tensor | None = None) -> None:
        """Refuse the first of some units (all) that is wrong, shape (m,), by a text, or a function of its index."""
        if bool(wrong.any()):
            first = int(wrong.int().argmax())
            row = first if rows is None else int(rows[first])
            raise DataError(self.describe(row, site) + (text if isinstance(text, str) else text(first)))


def _widened(dtype: torch.dtype, *, wide: bool) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point and wide else dtype


def repeat_each(values: Tensor, repeat: int) -> Tensor:
    """Repeat each value: an expanded view copied, several times faster than ``repeat_interleave``."""
    return values.unsqueeze(1).expand(len(values), repeat, *values.shape[1:]).flatten(0, 1)


def distinct(table: Tensor) -> tuple[Tensor, Tensor]:
    """Return a position of each different row of a table (n, k), and which of them each row is (n,)."""
    found, which = torch.unique(table, dim=0, return_inverse=True)
    position = torch.empty(len(found), dtype=torch.int64)
    position[which] = torch.arange(len(which))
    return position, which


def unequal(stored: Tensor, given: Tensor) -> Tensor:
    """Return which numbers are other ones in the type that they are stored in, but for the rounding of real numbers."""
    if stored.is_floating_point():
        return torch.zeros(stored.shape, dtype=torch.bool)
    return stored.double() != given.double()


class ReadSites(RunOnNoise):
    """Run a program on noise until some sites have been met, and keep their values and distributions.

    ``natural`` holds what the equations of the nodes that are held give.
    """

    def __init__(
        self, noise: Noise, endogenous: Collection[str], held: Mapping[str, Tensor], sites: Iterable[str]
    ) -> None:
        super().__init__(noise, endogenous, held)
        self.sites = {*sites}
        self.values, self.natural = World(), World()
        self.distributions: dict[str, Any] = {}

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.held and is_deterministic(msg):
            self.natural[msg["name"]] = msg["value"]
        super()._pyro_sample(msg)

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.sites:
            self.values[msg["name"]], self.distributions[msg["name"]] = msg["value"], msg["fn"]
            if len(self.values) == len(self.sites):
                raise StopTracing


@dataclass
class _PartlyKnown(Noise):
    """Noise of units that is known, of all or ``partly``, and drawn where it is not; ``met`` is what has been used."""

    known: Mapping[str, Tensor] = field(default_factory=dict)
    partly: Partly = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)
    met: dict[str, Tensor] = field(default_factory=dict)

    def draw(self, name: str, distribution: Any) -> Tensor:
        """Return the value of an exogenous site."""
        if name in self.values:
            return self.values[name]
        noise = self._noise(name, lambda: distribution().movedim(self.axes[name], 0))
        return noise.movedim(0, self.axes[name])

    def value(self, name: str, distribution: Any, *_: Any, **__: Any) -> Tensor:
        """Return the value of a site whose distribution depends on a node."""
        if name in self.values:
            return self.values[name]
        shape = (self.n, *distribution.event_shape)
        noise = self._noise(name, lambda: noise_like(distribution, shape, self.coupling))
        return at_noise(name, distribution, noise, self.coupling)

    def _noise(self, name: str, draw: Callable[[], Tensor]) -> Tensor:
        """Return the noise of a site, units first."""
        noise = self.known[name] if name in self.known else draw()
        if name in self.partly and name not in self.known:
            values, holds = self.partly[name]
            noise = torch.where(holds.reshape(-1, *[1] * (noise.ndim - 1)), values.to(noise.dtype), noise)
        self.met[name] = noise
        return noise


def require_possible(evidence: Evidence, sites: Collection[str] | None = None) -> dict[str, Any]:
    """Refuse rows with a value that its distribution cannot take, and return the distributions of drawn nodes.

    By default all observed ones are read, or those of some sites.
    """
    read = evidence.observed if sites is None else sites
    drawn = [site for site in evidence.observed if site in evidence.info.random and site in read]
    given = evidence.given()
    distributions = evidence.run(given, drawn).distributions if drawn else {}
    for site in drawn:
        d, value = distributions[site], given[site]
        possible = d.support.check(value) & torch.ones(evidence.n, dtype=torch.bool)
        if not evidence.keys[site] and bool(possible.all()) and d.support.is_discrete:
            possible = possible & (d.log_prob(value) > -torch.inf)
        evidence.refuse(~possible, site, partial(_impossible, d))
    return distributions


def _impossible(d: Any, _: int) -> str:
    """Return why a row is refused; only then is the support shown, which takes time if it holds numbers of rows."""
    return (
        f" is impossible under the program: its distribution there, {type(d).__name__}, has the support {d.support}, "
        "and gives it no probability. Correct the row, or the program."
    )
