"""What does a Pyro program say? Its sites, which of them are per unit, and who reads whom."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import pyro
import torch
from torch import Tensor

from pyrofair._random import isolated
from pyrofair._validation import did_you_mean
from pyrofair.exceptions import DataError, GraphError, PyrofairWarning
from pyrofair.graph.parse import EdgeList
from pyrofair.programs.checks import MANY, Everywhere, Trial, perturbed, separated
from pyrofair.programs.couplings import WRAPPERS, is_nominal
from pyrofair.programs.provenance import (
    Followed,
    Program,
    RefusePlainDo,
    fails_at,
    followed,
    is_deterministic,
    reading,
    run_program,
)

__all__ = ["Program", "ProgramSites", "caller_level", "read_sites", "require_finite"]

PROBES = (61, 53)
CROWD = 1009
"""So many units are looked at where dependencies cannot be followed, and change places."""
OTHER_CROWD = 997
MOST_NUMBERS = 2_000_000
"""Equations are compared among units whose sites hold so many numbers at most."""
PEOPLE = -1
"""Stands for the number of units in the shape of a site."""

_PLATE = "Write it as program(n), with 'with pyro.plate(\"units\", n):' around the equations."


@dataclass(frozen=True)
class ProgramSites:
    """The per-unit sites of a program in the order it runs, and what each reads directly.

    Parameters
    ----------
    sites
        All per-unit sites: nodes, deterministic steps, and noise.
    random
        Those that are drawn.
    observed
        Those whose value the program is given (``obs=``, ``condition``), or that of some units (``obs_mask=``), so
        that nothing causes it; and ``pyro.factor``.
    parameters
        The sites outside the plate, drawn once.
    reads
        For each per-unit site the per-unit sites that it reads.
    shapes, dtypes
        For each per-unit site its shape, with -1 for the number of units, and its type.
    reparametrised
        The per-unit sites that a handler (``poutine.reparam``) computes from noise of its own.
    joint
        For the components of each vector that are not drawn independently: tells from their values, shape (n,) each,
        which ones are possible, shape (n,).
    weighted
        The drawn per-unit sites whose log-probability is masked or scaled.
    nominal
        Those drawn from categories without an order.
    everywhere
        Looks whether the equations are the same for another number of units.
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
    nominal: frozenset[str] = frozenset()
    everywhere: Everywhere | None = field(default=None, repr=False, compare=False)

    @property
    def dimensions(self) -> dict[str, int]:
        """For each per-unit site the number of its dimensions, units included."""
        return {site: len(shape) for site, shape in self.shapes.items()}

    def shape(self, site: str, n: int) -> tuple[int, ...]:
        """Return the shape of a site's values for n units."""
        return tuple(n if size == PEOPLE else size for size in self.shapes[site])

    def confirm(self, n: int) -> None:
        """Refuse a program whose equations say something else of the same units among n; call it before a run.

        Raises
        ------
        GraphError
            With the site that depends on n, or on the place where a unit stands.
        """
        if self.everywhere is not None:
            self.everywhere.confirm(n)

    def require(self, nodes: Iterable[str]) -> None:
        """Refuse names that are no per-unit sites.

        Raises
        ------
        GraphError
            With the sites that there are.
        """
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
        """Refuse nodes whose value the program is given, of everybody or of some units.

        Raises
        ------
        GraphError
            With the first of them.
        """
        for node in nodes:
            if node in self.observed:
                how = "obs=..." if node in self.random else "obs_mask=..., for some units"
                raise GraphError(
                    f"The site {node!r} is given data ({how}), so no intervention can change it. Pass the program as "
                    "it draws units, without data."
                )

    def evidence(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the per-unit sites that draw nothing and say how likely units are: observed, or ``pyro.factor``.

        Parameters
        ----------
        nodes
            The nodes, which are none.
        """
        known = {*nodes}
        return tuple(site for site in self.sites if site in self.observed & self.random and site not in known)

    def refuse_evidence(self, nodes: Sequence[str]) -> None:
        """Refuse evidence that bears on units: those that the program draws are not those that it then describes.

        Evidence that reads parameters alone says nothing of units once these are given, and is no hindrance.

        Raises
        ------
        GraphError
            With the site and what it reads, or what reads it.
        """
        stop = frozenset(nodes)
        for site in self.evidence(nodes):
            above = self._above(site, stop)
            read = [one for one in self.sites if one in above and (one in stop or one in self.random - self.observed)]
            readers = [node for node in nodes if site in self._above(node, stop)]
            if read or readers:
                how = f"reads {', '.join(map(repr, read))}" if read else f"is read by {', '.join(map(repr, readers))}"
                raise GraphError(
                    f"The site {site!r} is evidence (obs=..., obs_mask=..., condition or pyro.factor) and {how}, so "
                    "the units that the program draws are not those that it describes: their worlds would leave that "
                    "evidence out. Pass the program without it, as it draws units. (Evidence counts in "
                    "fit_posterior, which learns parameters.)"
                )

    def sites_of(self, node: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the sites of a node: those named like its columns or, if it has one column, like itself."""
        if len(columns) == 1 and columns[0] not in self.sites and node in self.sites:
            return (node,)
        return tuple(columns)

    def causes(self, node: str, nodes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the nodes that a node reads, directly or through sites that are no nodes, and the noise it reads."""
        met = self._above(node, frozenset(nodes))
        return tuple(n for n in nodes if n in met), tuple(
            s for s in self.sites if s in met and s in self.random and s not in nodes
        )

    def graph_of(self, nodes: Sequence[str], columns: Mapping[str, Sequence[str]] | None = None) -> EdgeList:
        """Return the causal graph over some nodes; noise that feeds two of them becomes a latent node.

        Noise that feeds one node is its own error term and is left out; a random step between nodes is a latent node
        if it feeds two.

        Parameters
        ----------
        nodes
            The nodes.
        columns
            For a node that is not one site of the same name: the sites of its columns.

        Raises
        ------
        GraphError
            If a name is no per-unit site, or evidence bears on units.
        """
        sites = {node: self.sites_of(node, (columns or {}).get(node, (node,))) for node in nodes}
        owner = {site: node for node, own in sites.items() for site in own}
        self.require(owner)
        self.refuse_evidence(tuple(owner))
        owner |= {site: site for site in self.random if site not in owner}
        above: dict[str, list[str]] = {node: [] for node in (*nodes, *(owner[s] for s in self.sites if s in owner))}
        for site, node in owner.items():
            met = self._above(site, frozenset(owner))
            found = [owner[s] for s in self.sites if s in met and s in owner and owner[s] != node]
            above[node] += [parent for parent in dict.fromkeys(found) if parent not in above[node]]
        while single := [s for s in above if s not in sites and sum(s in p for p in above.values()) <= 1]:
            parents = above.pop(single[0])
            for child, others in above.items():
                if single[0] in others:
                    others.remove(single[0])
                    above[child] = others + [p for p in parents if p not in others]
        latent = tuple(site for site in above if site not in sites)
        place = {node: i for i, node in enumerate((*nodes, *latent))}
        edges = sorted(
            ((p, c) for c, parents in above.items() for p in parents), key=lambda e: (place[e[0]], place[e[1]])
        )
        return EdgeList(tuple(place), tuple(edges), latent)

    def _above(self, site: str, stop: frozenset[str]) -> set[str]:
        """Return the sites that lead to a site, going no further up than those in ``stop``."""
        met: set[str] = set()
        waiting = list(self.reads[site])
        while waiting:
            one = waiting.pop()
            if one not in met:
                met.add(one)
                waiting.extend(() if one in stop else self.reads[one])
        return met


def require_finite(site: str, values: Tensor) -> None:
    """Refuse values of a node that are NaN or infinite.

    Raises
    ------
    DataError
        With the node, the value and how many units have one.
    """
    if not bool((finite := values.isfinite()).all()):
        raise DataError(
            f"The program gives the node {site!r} the value {values[~finite].flatten()[0].item()} for "
            f"{float((~finite).double().mean()):.0%} of the units. Mend its equation, which divides by zero, "
            "say, or leaves the range of its numbers."
        )


def read_sites(program: Program, *, outline: bool = False) -> ProgramSites:
    """Run a program on a few units and read off its sites and who reads whom.

    Dependencies are followed through torch's operations. What a program reads in other ways (``.item()``, NumPy,
    assignment into a tensor) is looked for by changing each site while all others are held: such a dependence is added,
    with a warning. Where nothing is found to read what leaves torch, a warning says so.

    Values of some units are changed to see that no equation mixes units: nobody's may read the values of others. And
    units change places, to see that no equation depends on where a unit stands.

    A step that fails is an error. It never counts as "no dependence".

    Parameters
    ----------
    program
        The program; it is called with a number of units.
    outline
        Whether to return after a few runs, with nothing but what can be followed.

    Raises
    ------
    GraphError
        If the program fails or cannot be read, has no per-unit sites, has other sites for another number of units,
        takes a subsample of its plate, draws random numbers outside Pyro, mixes units, or depends on their places.

    Examples
    --------
    >>> import pyro.distributions as dist
    >>> def program(n):
    ...     with pyro.plate("people", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         pyro.sample("D", dist.Normal(2 * A, 1.0))
    >>> read_sites(program).reads
    {'A': (), 'D': ('A',)}
    """
    with (
        reading("The program"),
        isolated(0),
        pyro.validation_enabled(False),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        plain, other = (_first_run(program, n) for n in PROBES)
        shapes = _shapes(plain, other)
        drawn = [name for name, site in plain.items() if not is_deterministic(site)]
        given = {name for name in drawn if name in shapes and plain[name]["is_observed"]}
        found = ProgramSites(
            sites=tuple(shapes),
            random=frozenset(name for name in drawn if name in shapes),
            observed=frozenset(given | {name for name in shapes if _is_imputed(name, plain, given)}),
            parameters=tuple(name for name in drawn if name not in shapes),
            reads={},
            shapes=shapes,
            dtypes={name: plain[name]["value"].dtype for name in shapes},
            reparametrised=frozenset(
                name for name in shapes if name not in drawn and not plain[name]["infer"].get("_deterministic")
            ),
            weighted=frozenset(name for name in drawn if name in shapes and _is_weighted(plain[name])),
            nominal=frozenset(name for name in drawn if name in shapes and is_nominal(plain[name]["fn"])),
        )
        marks = followed(program, PROBES[0], found.sites, found.parameters)
        if outline:
            found.reads.update({site: tuple(marks.reads.get(site, ())) for site in found.sites})
            return found
        trial = Trial(program, PROBES[0], _places(shapes), plain)
        silent = frozenset(site for site in found.sites if not marks.reads.get(site))
        moving = separated(trial, found.parameters, silent)
        crowd, other_crowd = (Trial(program, size, trial.places) for size in (CROWD, OTHER_CROWD))
        found = replace(found, everywhere=Everywhere((other_crowd, crowd)))
        numbers = sum(abs(prod(shape)) for shape in shapes.values())
        try:
            found.confirm(min(MANY, max(CROWD, MOST_NUMBERS // max(1, numbers))))
        except GraphError:
            found.confirm(CROWD)  # where a table that is too short for many tells which site reads it
            raise
        hidden = perturbed(trial, marks.reads)
        causes = _unclear(found.sites, marks, hidden, moving)
        if causes:
            known = {site: marks.reads.get(site, frozenset()) | {*hidden.get(site, ())} for site in found.sites}
            more = perturbed(crowd, known, causes)
            hidden = {s: hidden.get(s, []) + more.get(s, []) for s in found.sites if s in hidden or s in more}
    _warn(hidden, marks.left, moving)
    for name in found.sites:
        met = {*marks.reads.get(name, ()), *hidden.get(name, ())} - {name}
        found.reads[name] = tuple(site for site in found.sites if site in met)
    return found


def _is_imputed(name: str, sites: Mapping[str, Any], given: Collection[str]) -> bool:
    """Tell whether ``obs_mask`` gives some units' value: Pyro draws the others under a second name."""
    return is_deterministic(sites[name]) and f"{name}_observed" in given and f"{name}_unobserved" in sites


def _is_weighted(site: Any) -> bool:
    """Tell whether a site's log-probability is masked or scaled for somebody."""
    masks = [site["mask"]]
    law = site["fn"]
    while isinstance(law, WRAPPERS):
        masks.append(getattr(law, "_mask", None))
        law = law.base_dist
    masked = any(mask is not None and not bool(torch.as_tensor(mask).all()) for mask in masks)
    return masked or not bool((torch.as_tensor(site["scale"]) == 1.0).all())


def _places(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int | None]:
    """Return which dimension of each site is that of units."""
    return {site: shape.index(PEOPLE) if PEOPLE in shape else None for site, shape in shapes.items()}


def _unclear(
    sites: Sequence[str], marks: Followed, hidden: Mapping[str, Sequence[str]], moving: set[str]
) -> Sequence[str]:
    """Return the sites that may be read where torch does not show it; all if something is read in unknown ways."""
    unseen = any(cause not in marks.left for causes in hidden.values() for cause in causes)
    return sites if unseen or moving - hidden.keys() else [site for site in sites if site in marks.left]


def _warn(hidden: Mapping[str, Sequence[str]], left: Mapping[str, str], moving: set[str]) -> None:
    """Warn of what is read in other ways than torch shows, or may be."""
    remedy = "write the equation in torch operations if you can."
    said = [
        f"The program's site {name!r} reads {', '.join(map(repr, more))} in a way that torch does not show "
        "(.item(), NumPy, or assignment into a tensor). It was found by changing values, which can miss a rare "
        f"dependence: {remedy}"
        for name, more in hidden.items()
    ]
    found = {cause for more in hidden.values() for cause in more}
    if lost := [f"{site!r} (by {how})" for site, how in left.items() if site not in found]:
        said.append(
            f"The program takes {', '.join(lost)} out of torch, from where it cannot be followed who reads it. "
            f"Changing values of {CROWD} units showed no site that does so, but a rare dependence can be missed: "
            + remedy
        )
    if unknown := sorted(moving - hidden.keys()):
        said.append(
            f"The parents of {', '.join(map(repr, unknown))} cannot be followed: the value or distribution changes "
            f"with other "
            f"sites, and none was found that changes it: {remedy}"
        )
    for each in said:
        warnings.warn(each, PyrofairWarning, stacklevel=caller_level())


def caller_level() -> int:
    """Return how far up the caller is who called the package, for a warning to point there."""
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
    """Return the per-unit sites with their shapes, told by what changes with the number of units."""
    if odd := sorted(one.keys() ^ other.keys()):
        raise GraphError(
            f"The program has other sites for {PROBES[0]} units than for {PROBES[1]}: {', '.join(odd[:5])}. Its sites "
            f"must be the same for any number; do not loop over units. {_PLATE}"
        )
    found = {}
    for name, site in one.items():
        first, second = tuple(site["value"].shape), tuple(other[name]["value"].shape)
        places = [i for i, sizes in enumerate(zip(first, second, strict=False)) if sizes == PROBES]
        inside = any(frame.vectorized and frame.size == PROBES[0] for frame in site["cond_indep_stack"])
        if subsampled := [frame for frame in site["cond_indep_stack"] if frame.full_size != frame.size]:
            raise GraphError(
                f"The site {name!r} stands in the plate {subsampled[0].name!r}, which takes a subsample of "
                f"{subsampled[0].size} of {subsampled[0].full_size} (subsample_size=, subsample=); a model of units "
                "needs all of them. Leave these arguments out."
            )
        if places and not inside and not is_deterministic(site):
            raise GraphError(
                f"The site {name!r} has a value for each of n units, but stands outside the plate of units. {_PLATE}"
            )
        if len(first) != len(second) or len(places) > 1:
            raise GraphError(
                f"The site {name!r} has the shapes {first} for {PROBES[0]} units and {second} for {PROBES[1]}; it "
                "must have one dimension of the number of units."
                + " Their plate has another dimension (dim=) than what it holds; leave that out."
                * any(frame.dim != -1 for frame in site["cond_indep_stack"] if frame.size == PROBES[0])
            )
        if places or (inside and not first):
            found[name] = tuple(PEOPLE if i in places else size for i, size in enumerate(first))
    if not found:
        raise GraphError(
            "The program has no per-unit sites: none stands in a plate of the size that it was called with. " + _PLATE
        )
    return found
