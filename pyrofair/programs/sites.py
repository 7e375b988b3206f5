"""The sites of a Pyro program: which are drawn for each unit, and what each reads directly."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from pyro.ops.provenance import get_provenance
from torch import Tensor

from pyrofair._validation import did_you_mean
from pyrofair.exceptions import DataError, GraphError, PyrofairWarning
from pyrofair.graph.parse import EdgeList
from pyrofair.programs.checks import PERTURBED, KnownUnits, check_units, perturbed, trial_of_run
from pyrofair.programs.couplings import COMPARING, Coupling, CouplingError, is_nominal, parameters_of
from pyrofair.programs.provenance import (
    Program,
    Provenance,
    RefusePlainDo,
    UnreadableError,
    drawn_once,
    fails_at,
    follow,
    is_deterministic,
    run_program,
    undisturbed,
    upstream,
    weights_of,
)

__all__ = [
    "UNITS",
    "Outline",
    "Program",
    "ProgramSites",
    "caller_level",
    "read_outline",
    "read_sites",
    "require_finite",
]

PROBES = (61, 53)
UNITS = -1
"""Stands for the number of units in the shape of a site."""

_PLATE = "Write it as program(n), with 'with pyro.plate(\"units\", n):' around the equations."


@dataclass(frozen=True)
class ProgramSites:
    """The per-unit sites of a program (nodes, steps, noise) in the order it runs, and what each reads directly.

    ``random`` sites are drawn; the value of ``observed`` ones is given (``obs=``, ``condition``), or that of some units
    (``obs_mask=``), so that nothing causes it, as is ``pyro.factor``; ``parameters`` stand outside the plate.
    ``shapes`` have -1 for n. A handler (``poutine.reparam``) computes ``reparametrised`` sites from noise of its own.
    ``joint`` holds, for components of a vector that are not drawn independently, which of their values, shape (n,)
    each, are possible together, shape (n,). The log-probability of ``weighted`` sites is masked or scaled; ``nominal``
    ones are categories without an order. ``opaque`` ones read something that none of their distribution's parameters
    shows. ``dependencies`` include
    parameters and what masks or scales a log-probability, ``outside`` are the sites outside the plate in two runs, and
    ``known`` units are compared with those of other runs.
    """

    sites: tuple[str, ...]
    random: frozenset[str]
    observed: frozenset[str]
    parameters: tuple[str, ...]
    reads: dict[str, tuple[str, ...]]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, torch.dtype]
    reparametrised: frozenset[str] = frozenset()
    joint: Mapping[tuple[str, ...], Callable[[Sequence[torch.Tensor]], torch.Tensor]] = field(default_factory=dict)
    weighted: frozenset[str] = frozenset()
    opaque: frozenset[str] = frozenset()
    nominal: frozenset[str] = frozenset()
    dependencies: Provenance = field(default_factory=Provenance, repr=False, compare=False)
    outside: tuple[dict[str, Any], ...] = field(default=(), repr=False, compare=False)
    known: KnownUnits | None = field(default=None, repr=False, compare=False)

    @property
    def axes(self) -> dict[str, int]:
        """For each site with a value for each unit, the axis of the units."""
        return {site: shape.index(UNITS) for site, shape in self.shapes.items() if UNITS in shape}

    def shape(self, site: str, n: int) -> tuple[int, ...]:
        """Return the shape of a site's values for n units."""
        return tuple(n if size == UNITS else size for size in self.shapes[site])

    def confirm(self, n: int) -> None:
        """Refuse a program whose equations differ for the same units among n; call it before a run on n units."""
        if self.known is not None:
            self.known.confirm(n)

    def require(self, nodes: Iterable[str]) -> None:
        """Refuse names that are no per-unit sites with a GraphError."""
        for node in nodes:
            if node in self.parameters:
                raise GraphError(
                    f"{node!r} is drawn once, outside the plate of units, so it is a parameter and no node. Put it "
                    "inside the plate, or leave it out of the nodes."
                )
            if node not in self.sites:
                raise GraphError(
                    f"The program has no per-unit site {node!r}. It has: {', '.join(self.sites)}. Name it with "
                    f"pyro.sample or pyro.deterministic inside the plate.{did_you_mean(node, self.sites)}"
                )

    def require_drawn(self, nodes: Iterable[str]) -> None:
        """Refuse nodes whose value the program is given, for all units or for some, with a GraphError."""
        for node in nodes:
            if node in self.observed:
                how = "obs=..." if node in self.random else "obs_mask=..., for some units"
                raise GraphError(
                    f"The site {node!r} is given data ({how}), so no intervention can change it. Pass the program as "
                    "it draws units, without data."
                )

    def require_comparable(self, site: str, coupling: Coupling) -> None:
        """Raise a CouplingError if distributions of a site must be compared and their parameters do not show all."""
        if coupling in COMPARING and site in self.opaque:
            raise CouplingError(
                f"The distribution of the site {site!r} reads {', '.join(map(repr, self.reads[site]))}, and its "
                "parameters (arg_constraints, and the tensors of its transforms) do not show it. So it cannot be "
                f"determined whether it is the same in two worlds, as coupling={coupling!r} asks. Write its noise as a "
                "site of its own, or take another coupling."
            )

    def evidence(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the per-unit sites besides nodes that draw nothing and weigh units: observed, or ``pyro.factor``."""
        known = {*nodes}
        return tuple(site for site in self.sites if site in self.observed & self.random and site not in known)

    def refuse_evidence(self, nodes: Sequence[str]) -> None:
        """Refuse evidence about units with a GraphError: the units that are drawn are not those described.

        Evidence that reads parameters alone does not bear on units once these are given, and is no hindrance.
        """
        stop = frozenset(nodes)
        for site in self.evidence(nodes):
            above = self.above(site, stop)
            read = [one for one in self.sites if one in above and (one in stop or one in self.random - self.observed)]
            readers = [node for node in nodes if site in self.above(node, stop)]
            if read or readers:
                how = f"reads {', '.join(map(repr, read))}" if read else f"is read by {', '.join(map(repr, readers))}"
                raise GraphError(
                    f"The site {site!r} is evidence (obs=..., obs_mask=..., condition or pyro.factor) and {how}, so "
                    "the units that the program draws are not those that it describes. Pass the program without it, as "
                    "it draws units. (Evidence counts in fit_posterior, which learns parameters.)"
                )

    def sites_of(self, node: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the sites of a node: those named like its columns or, if it has one column, like itself."""
        if len(columns) == 1 and columns[0] not in self.sites and node in self.sites:
            return (node,)
        return tuple(columns)

    def causes(self, node: str, nodes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the nodes that a node reads, directly or through sites that are no nodes, and the noise it reads."""
        met = self.above(node, frozenset(nodes))
        noise = tuple(site for site in self.sites if site in met and site in self.random and site not in nodes)
        return tuple(each for each in nodes if each in met), noise

    def graph_of(self, nodes: Sequence[str], columns: Mapping[str, Sequence[str]] | None = None) -> EdgeList:
        """Return the causal graph over nodes; ``columns`` has the sites of a node that is not one site of its name.

        Noise that feeds two nodes, or a random step between nodes that does, becomes a latent node; noise that feeds
        one node is its own error term and is left out. A GraphError names what is no per-unit site, or evidence.
        """
        sites = {node: self.sites_of(node, (columns or {}).get(node, (node,))) for node in nodes}
        owner = {site: node for node, own in sites.items() for site in own}
        self.require(owner)
        self.refuse_evidence(tuple(owner))
        owner |= {site: site for site in self.random if site not in owner}
        above: dict[str, list[str]] = {node: [] for node in (*nodes, *(owner[s] for s in self.sites if s in owner))}
        for site, node in owner.items():
            met = self.above(site, frozenset(owner))
            found = [owner[s] for s in self.sites if s in met and s in owner and owner[s] != node]
            above[node] += [parent for parent in dict.fromkeys(found) if parent not in above[node]]
        while single := [s for s in above if s not in sites and sum(s in p for p in above.values()) <= 1]:
            parents = above.pop(single[0])
            for child, others in above.items():
                if single[0] in others:
                    others.remove(single[0])
                    above[child] = others + [p for p in parents if p not in others]
        latent = tuple(site for site in above if site not in sites)
        index = (*nodes, *latent)
        edges = [(parent, child) for parent in index for child in index if parent in above[child]]
        return EdgeList(index, tuple(edges), latent)

    def above(self, site: str, stop: frozenset[str]) -> set[str]:
        """Return the sites that lead to a site, going no further up than those in ``stop``."""
        return upstream(self.reads[site], self.reads, stop)


def require_finite(site: str, values: Tensor) -> None:
    """Refuse values of a node that are NaN or infinite with a DataError: node, value, and share of units.

    A finite sum has finite terms only, and takes a tenth of the time of looking at each.
    """
    if not bool(values.sum().isfinite()) and not bool((finite := values.isfinite()).all()):
        raise DataError(
            f"The program gives the node {site!r} the value {values[~finite].flatten()[0].item()} for "
            f"{float((~finite).double().mean()):.0%} of the units. Correct its equation, such as a division by zero."
        )


@dataclass(frozen=True, eq=False)
class Outline:
    """What two runs, on 61 and 53 units, show of a program: what is read off them, and the sites of each."""

    info: ProgramSites
    plain: dict[str, Any]
    other: dict[str, Any]


def read_outline(program: Program) -> Outline:
    """Read off two runs of a program its sites, and what they read through torch's operations."""
    with undisturbed("The program"):
        plain = _first_run(program, PROBES[0])
        try:
            other, seen = follow(program, PROBES[1])
        except UnreadableError:
            _first_run(program, PROBES[1])  # which fails if it is the number of units that the program cannot take
            raise
        shapes = _shapes(plain, other)
        drawn = [name for name, site in plain.items() if not is_deterministic(site)]
        given = {name for name in drawn if name in shapes and plain[name]["is_observed"]}
        # obs_mask gives some units' value, and Pyro draws the others under a second name.
        imputed = {s for s in shapes if s not in drawn and f"{s}_observed" in given and f"{s}_unobserved" in plain}
        parameters = tuple(name for name in drawn if name not in shapes)
        for name in parameters:
            if read := seen.among(seen.reads[name], shapes):
                raise drawn_once(name, read)
        random = [name for name in drawn if name in shapes]
        computed = [name for name in shapes if name not in drawn]
        info = ProgramSites(
            sites=tuple(shapes),
            random=frozenset(random),
            observed=frozenset(given | imputed),
            parameters=parameters,
            reads={site: tuple(seen.among(seen.reads[site], shapes)) for site in shapes},
            shapes=shapes,
            dtypes={name: plain[name]["value"].dtype for name in shapes},
            reparametrised=frozenset(name for name in computed if not plain[name]["infer"].get("_deterministic")),
            weighted=frozenset(name for name in random if seen.weighed[name] or _is_weighted(plain[name])),
            opaque=frozenset(name for name in random if seen.reads[name] - _shown_by(other[name]["fn"])),
            nominal=frozenset(name for name in random if is_nominal(plain[name]["fn"])),
            dependencies=seen,
            outside=tuple({n: s for n, s in run.items() if n not in shapes} for run in (plain, other)),
        )
        return Outline(info, plain, other)


def read_sites(program: Program, outline: Outline | None = None) -> ProgramSites:
    """Read off a few runs of a program its sites and what each reads.

    Dependencies are followed through torch's operations. What a program reads in other ways (``.item()``, NumPy,
    assignment into a tensor) is looked for by changing each site while all others are held: such a dependence is added,
    with a warning, and so is a warning of what leaves torch unread. Each unit's equations must be the same at any
    index among any number of units of any values.

    Besides the two runs of the outline, there are one on known units, three on many of them, and one in which every
    site is changed; where values leave torch, two more. A GraphError names a program that fails or cannot be read, has
    no per-unit sites, or other ones for another number of units, takes a subsample of its plate, draws random numbers
    outside Pyro, mixes units, or depends on their index.
    """
    found = outline or read_outline(program)
    info, seen = found.info, found.info.dependencies
    with undisturbed("The program"):
        dims = {site: shape.index(UNITS) if UNITS in shape else None for site, shape in info.shapes.items()}
        trial = trial_of_run(program, dims, found.plain, {name: site["value"] for name, site in found.other.items()})
        known = KnownUnits.of_trial(trial)
        check_units(known, info.parameters)
        moving = known.moving(site for site in info.sites if not info.reads[site])
        left = {site: how for name, how in seen.left.items() for site in seen.among([name], info.sites)}
        hidden = perturbed(trial, info.reads)
        if causes := _unclear(info.sites, left, hidden, moving):
            larger = trial_of_run(program, dims, run_program(program, 2 * PERTURBED))
            reads = {site: {*info.reads[site], *hidden.get(site, ())} for site in info.sites}
            more = perturbed(larger, reads, causes)
            hidden = {s: hidden.get(s, []) + more.get(s, []) for s in info.sites if s in hidden or s in more}
        hidden = {name: [site for site in info.sites if site in read] for name, read in hidden.items()}
    _warn(hidden, left, moving)
    met = {name: {*info.reads[name], *hidden.get(name, ())} - {name} for name in info.sites}
    every = {name: above | seen.weighed[name] | {*met.get(name, ())} for name, above in seen.reads.items()}
    return replace(
        info,
        reads={name: tuple(site for site in info.sites if site in met[name]) for name in info.sites},
        dependencies=replace(seen, reads=every),
        known=known,
    )


def _shown_by(distribution: Any) -> frozenset[str]:
    """Return the sites that the parameters of a distribution are computed from, as its tensors carry them."""
    try:
        return frozenset(get_provenance(parameters_of(distribution)))
    except Exception:  # what cannot be read is refused where it is needed
        return frozenset()


def _is_weighted(site: Any) -> bool:
    """Return whether a site's log-probability is masked or scaled for some unit."""
    return any(each is not None and not bool((torch.as_tensor(each) == 1).all()) for each in weights_of(site))


def _unclear(
    sites: Sequence[str], left: Mapping[str, str], hidden: Mapping[str, Sequence[str]], moving: set[str]
) -> Sequence[str]:
    """Return the sites that may be read where torch does not show it; all if something is read in unknown ways."""
    unseen = any(cause not in left for causes in hidden.values() for cause in causes)
    return sites if unseen or moving - hidden.keys() else [site for site in sites if site in left]


def _warn(hidden: Mapping[str, Sequence[str]], left: Mapping[str, str], moving: set[str]) -> None:
    """Warn of dependencies that torch does not show, and of those that there may be."""
    remedy = "write the equation in torch operations if you can."
    messages = [
        f"The program's site {name!r} reads {', '.join(map(repr, more))} in a way that torch does not show (.item(), "
        f"NumPy, or assignment into a tensor). Changing values, which found it, can miss a rare dependence: {remedy}"
        for name, more in hidden.items()
    ]
    found = {cause for more in hidden.values() for cause in more}
    if lost := [f"{site!r} (by {how})" for site, how in left.items() if site not in found]:
        messages.append(
            f"The program takes {', '.join(lost)} out of torch, where reading it cannot be followed. Changing values "
            f"of {PERTURBED} units showed no site that reads it, but a rare dependence can be missed: {remedy}"
        )
    if unknown := sorted(moving - hidden.keys()):
        messages.append(
            f"The parents of {', '.join(map(repr, unknown))} cannot be followed: the value or distribution changes "
            f"with other sites, and none was found that changes it: {remedy}"
        )
    for each in messages:
        warnings.warn(each, PyrofairWarning, stacklevel=caller_level())


def caller_level() -> int:
    """Return the stack level of the code that called the package, for a warning to point there."""
    level, frame = 1, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith("pyrofair."):
        level, frame = level + 1, frame.f_back
    return level - 1


def _first_run(program: Program, n: int) -> dict[str, Any]:
    if not callable(program):
        raise GraphError(f"A program is a function of the number of units, not {program!r}. {_PLATE}")
    try:
        return run_program(program, n, RefusePlainDo())
    except GraphError:
        raise
    except Exception as error:
        raise fails_at(n, error, _PLATE) from error


def _shapes(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the per-unit sites, those that change with the number of units, -1 for that number."""
    if odd := sorted(one.keys() ^ other.keys()):
        raise GraphError(
            f"The program has other sites for {PROBES[0]} units than for {PROBES[1]}: {', '.join(odd[:5])}. Its sites "
            f"must be the same for any number; do not loop over units. {_PLATE}"
        )
    found = {}
    for name, site in one.items():
        first, second = tuple(site["value"].shape), tuple(other[name]["value"].shape)
        grown = [i for i, sizes in enumerate(zip(first, second, strict=False)) if sizes == PROBES]
        inside = any(frame.vectorized and frame.size == PROBES[0] for frame in site["cond_indep_stack"])
        if subsampled := [frame for frame in site["cond_indep_stack"] if frame.full_size != frame.size]:
            raise GraphError(
                f"The site {name!r} stands in the plate {subsampled[0].name!r}, which takes a subsample of "
                f"{subsampled[0].size} of {subsampled[0].full_size} (subsample_size=, subsample=); a model of units "
                "needs all of them. Leave these arguments out."
            )
        if grown and not inside and not is_deterministic(site):
            raise GraphError(
                f"The site {name!r} has a value for each of n units, but stands outside the plate of units. {_PLATE}"
            )
        if len(first) != len(second) or len(grown) > 1:
            raise GraphError(
                f"The site {name!r} has the shapes {first} for {PROBES[0]} units and {second} for {PROBES[1]}; it "
                "must have one dimension of the number of units."
                + " Their plate has another dimension (dim=) than what it holds; leave that out."
                * any(frame.dim != -1 for frame in site["cond_indep_stack"] if frame.size == PROBES[0])
            )
        if grown or (inside and not first):
            found[name] = tuple(UNITS if i in grown else size for i, size in enumerate(first))
    if not found:
        raise GraphError(
            "The program has no per-unit sites: none stands in a plate of the size that it was called with. " + _PLATE
        )
    return found
