"""Both worlds of a program: each node evaluated from its equation, reading A as its path says."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._random import isolated
from pyrofair.exceptions import NotIdentifiedError
from pyrofair.programs.couplings import Coupling, CouplingError, law_parameters
from pyrofair.programs.noise import Noise, choose_noise, draw_from
from pyrofair.programs.provenance import evaluating
from pyrofair.programs.structural_equations import Equations, State, sensitive_levels

__all__ = [
    "StopTracing",
    "Way",
    "WithNoise",
    "World",
    "WorldAxisError",
    "both_worlds",
    "choose_way",
    "factual",
    "node_by_node",
    "quiet",
    "require_shared_first",
    "sensitive_values",
    "shared_worlds",
    "side_by_side",
]

World = dict[str, Tensor]


class StopTracing(Exception):
    """All the sites that were asked for have been met; it ends a run whose further sites nobody needs."""


class WithNoise(Messenger):
    """Give every random site its value from the noise, so that a run only computes, and intervene on some nodes.

    Parameters
    ----------
    equations, noise
        The program, and the units.
    held
        What nodes are set to: others read this, and ``natural`` keeps what the node would have been.
    """

    def __init__(self, equations: Equations, noise: Noise, held: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.equations, self.noise, self.held = equations, noise, held or {}
        self.natural: World = {}

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or msg["value"] is not None or poutine.util.site_is_subsample(msg):
            return
        name, law = msg["name"], msg["fn"]
        msg["value"] = self.respond(name, law) if name in self.equations.endogenous else self.noise.draw(name, law)
        msg["done"] = True

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if name in self.equations.node_of:
            self.natural[name] = msg["value"]
            msg["value"] = self.held.get(name, msg["value"])

    def respond(self, name: str, law: Any) -> Tensor:
        """Return the value of a site whose distribution depends on a node."""
        raise NotImplementedError

    def pair(self, name: str, law: Any) -> tuple[Tensor, Tensor]:
        """Return the noise of a site in the baseline and in another world."""
        return self.noise.pair(name, law, self.equations.info.shape(name, self.noise.n))


@contextmanager
def quiet() -> Iterator[None]:
    """Compute without validation, gradients, or handlers outside that look on."""
    with poutine.block(), pyro.validation_enabled(False), torch.no_grad():
        yield


def sensitive_values(equations: Equations, n: int, arms: Iterable[int] | int) -> Tensor:
    """Return the sensitive attribute for n units in arm 0 or 1; for several arms, along a leading axis."""
    levels = torch.tensor(sensitive_levels(equations.unfair.graph), dtype=equations.info.dtypes[equations.sensitive])
    one = levels[torch.as_tensor(arms)]
    return one.unsqueeze(-1).expand(*one.shape, n)


# -- the definition: a run for each site and state --------------------------------------------------------------------


class _OneWorld(WithNoise):
    """Draw with the baseline's noise; in another world only where the distribution is the baseline's.

    Parameters
    ----------
    equations, noise, held
        The program, the units, and what nodes are set to.
    laws
        The parameters of the distributions that the baseline met; None in the baseline itself, which fills ``met``.
    idle
        The sites for which any draw will do.
    last
        The site at which the run ends; None for all.
    """

    def __init__(
        self,
        equations: Equations,
        noise: Noise,
        held: Mapping[str, Tensor],
        laws: dict[str, list[Tensor]] | None,
        idle: frozenset[str],
        last: str | None = None,
    ) -> None:
        super().__init__(equations, noise, held)
        self.laws, self.idle, self.last = laws, idle, last
        self.met: dict[str, list[Tensor]] = {}

    def _pyro_post_sample(self, msg: Any) -> None:
        super()._pyro_post_sample(msg)
        if msg["name"] == self.last:
            raise StopTracing

    def respond(self, name: str, law: Any) -> Tensor:
        if name in self.idle:
            return draw_from(law)
        if (redraws := self.noise.redraw(name, law)) is not None:
            return self.noise.draw_apart(name, law, redraws)
        own, second = self.pair(name, law)
        if second is not own:
            if self.laws is None:
                self.met[name] = law_parameters(law)
            elif name in self.laws:
                own = choose_noise(own, second, self.laws[name], law_parameters(law))
        return self.noise.value(name, law, own)


def _run(handler: _OneWorld) -> World:
    """Run the program, and return the natural value of every node that was met."""
    with quiet(), handler, suppress(StopTracing):
        handler.equations.program(handler.noise.n)
    return handler.natural


def node_by_node(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
) -> tuple[World, World]:
    """Evaluate each site in both worlds by runs of its own: ``do`` on all it reads, the noise held, and read it.

    This is the definition. It serves any set of paths, recanting witnesses included.

    Parameters
    ----------
    equations, noise
        The program, and the units.
    wanted
        The sites to evaluate, by default all but that of the sensitive attribute.
    held
        Sites that are set to the same values in both worlds.

    Returns
    -------
    baseline, switched : dict of Tensor
        For each wanted site its values.

    Raises
    ------
    CouplingError
        If a site that is needed is drawn without explicit noise from a family that cannot be coupled.
    """
    known = held or {}
    base, switched = (equations.states(regime) for regime in equations.unfair.regimes)
    done: dict[tuple[str, State], Tensor] = {}
    laws: dict[str, dict[str, list[Tensor]]] = {}

    def read(site: str, state: State | int) -> Tensor:
        if isinstance(state, State):
            return known[site] if site in known else done[site, state]
        return sensitive_values(equations, noise.n, state)

    def evaluate(states: Mapping[str, State]) -> World:
        for site, state in equations.in_order(states, known):
            if (site, state) not in done:
                parents = {
                    parent: read(parent, part) for parent, part in zip(equations.causes[site], state.parts, strict=True)
                }
                idle = equations.idle([site], parents)
                handler = _OneWorld(equations, noise, parents, None if state == base[site] else laws[site], idle, site)
                done[site, state] = _run(handler)[site]
                laws.setdefault(site, handler.met)
        return {site: read(site, state) for site, state in states.items()}

    chosen = equations.sites if wanted is None else tuple(wanted)
    first = evaluate({site: base[site] for site in chosen})
    return first, evaluate({site: switched[site] for site in chosen})


# -- the world as it is -----------------------------------------------------------------------------------------------


def factual(equations: Equations, noise: Noise, wanted: Iterable[str] | None = None) -> World:
    """Return node sites as they are for these units.

    Where the noise differs between worlds, a unit has the baseline's at each site whose distribution is the baseline's.

    Parameters
    ----------
    equations, noise
        The program, and the units.
    wanted
        The sites, by default all, that of the sensitive attribute included.
    """
    equations.info.confirm(noise.n)
    chosen = tuple(equations.node_of if wanted is None else wanted)
    idle = equations.idle(chosen, ())
    low = sensitive_values(equations, noise.n, equations.unfair.regimes[0].on_fair)
    baseline = _OneWorld(equations, noise, {equations.sensitive: low}, None, idle)
    if noise.coupling in ("independent", "antithetic") and equations.endogenous:
        _run(baseline)
    found = _run(_OneWorld(equations, noise, {}, baseline.met, idle))
    return {site: found[site] for site in chosen}


Way = Literal["narrow", "wide", "node by node"]
"""One run with the sensitive attribute as one number a world, or one for each unit; or a run for each node."""

TRIAL = (2, 3, 50)
"""The numbers of units with which a program is tried: as many as there are worlds, and more."""


class WorldAxisError(RuntimeError):
    """A program does not carry the axis of worlds along; it must be run node by node."""


@dataclass(frozen=True)
class _Sides:
    """The worlds that run side by side: the baseline, and the switched world read with one value of A or with either.

    Parameters
    ----------
    values
        The value of the sensitive attribute on each side, the baseline first.
    of
        For each site the side that shows it in the switched world.
    """

    values: tuple[int, ...]
    of: dict[str, int]

    @classmethod
    def needed(cls, equations: Equations, held: Iterable[str]) -> _Sides:
        """Find the side of each site.

        A site that is held, or reads nothing switched, is as in the baseline: side 0. One that reads the switched value
        of A is on side 1, and so is one that does not read A. Only a site that reads A as in the baseline and another
        site that is switched needs a side of its own, 2.
        """
        baseline, switched = equations.unfair.regimes
        low, arms = baseline.on_fair, switched.arms
        of: dict[str, int] = dict.fromkeys(held, 0)
        for site in [each for each in equations.sites if each not in of]:
            causes = equations.causes[site]
            moved = any(of.get(parent, 0) for parent in causes)
            reads = equations.sensitive in causes
            if reads and arms.get(equations.node_of[site], low) != low:
                of[site] = 1
            else:
                of[site] = (2 if reads else 1) if moved else 0
        return cls((low, 1 - low, low) if 2 in of.values() else (low, 1 - low), of)


class _SideBySide(WithNoise):
    """Run the worlds side by side along a leading axis.

    At each node the switched world takes the value from its own side and hands it to all of its sides, which is ``do``
    on that node.
    """

    def __init__(
        self, equations: Equations, noise: Noise, wanted: Iterable[str], held: Mapping[str, Tensor], *, narrow: bool
    ) -> None:
        super().__init__(equations, noise)
        self.held, self.narrow = held, narrow
        self.sides = _Sides.needed(equations, held)
        self.wanted = set(wanted)
        self.idle = equations.idle(self.wanted, [equations.sensitive, *held])
        # Zeros will do for idle noise where the program has been tried with them; elsewhere they might break it.
        self.tried = not held and self.wanted == set(read_by_classifier(equations))
        self.read = frozenset(parent for parents in equations.causes.values() for parent in parents)
        self.first: World = {}
        self.second: World = {}

    def _pyro_sample(self, msg: Any) -> None:
        name, info = msg["name"], self.equations.info
        if name in self.idle and msg["value"] is None:
            empty = torch.zeros((), dtype=info.dtypes[name]).expand(info.shape(name, self.noise.n))
            msg["value"], msg["done"] = empty if self.tried else draw_from(msg["fn"]), True
        else:
            super()._pyro_sample(msg)

    def respond(self, name: str, law: Any) -> Tensor:
        if self.noise.redraw(name, law) is not None:
            raise WorldAxisError(f"The site {name!r} is drawn for each distribution apart, and so for each world.")
        own, second = self.pair(name, law)
        if second is not own and self._has_axis(name, law.shape()):
            laws = law_parameters(law)
            first = [each[0] for each in laws]
            others = [choose_noise(own, second, first, [p[i] for p in laws]) for i in range(1, len(self.sides.values))]
            own = torch.stack([own, *others])
        return self.noise.value(name, law, own)

    def _shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a site in one world; a constant may come to differ between units."""
        return self.equations.info.shape(name, self.noise.n) or (self.noise.n,)

    def _has_axis(self, name: str, got: Iterable[int]) -> bool:
        """Tell whether a shape has taken on the axis of worlds, and refuse any other change."""
        shape, count, plain = tuple(got), len(self.sides.values), self._shape(name)
        once = self.equations.info.shape(name, 1) or (1,)
        if shape in (plain, self.equations.info.shape(name, self.noise.n)):
            return False
        if shape not in ((count, *plain), (count, *once)):
            raise WorldAxisError(f"The site {name!r} has the shape {shape} in {count} worlds, and {plain} in one.")
        return True

    def _pyro_post_sample(self, msg: Any) -> None:
        name, value = msg["name"], msg["value"]
        if name == self.equations.sensitive:
            msg["value"] = sensitive_values(self.equations, 1 if self.narrow else self.noise.n, self.sides.values)
        elif name in self.equations.node_of:
            side = self.sides.of[name]
            first = second = value
            if name in self.held:
                first = second = msg["value"] = self.held[name]
            elif self._has_axis(name, value.shape):
                # Where it depends on the sensitive attribute alone, it may be one number a world.
                value = msg["value"] = value.expand(len(value), *self._shape(name))
                first, second = value[0], value[side]
                if side == 0:
                    msg["value"] = first
                elif len(self.sides.values) > 2 and name in self.read:
                    msg["value"] = torch.stack([first, second, second])
            self.first[name], self.second[name] = first, second
            self.wanted.discard(name)
            if not self.wanted:
                raise StopTracing


def side_by_side(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
    *,
    narrow: bool = False,
) -> tuple[World, World]:
    """Evaluate sites in both worlds by one run with a leading axis of two or three worlds.

    It equals :func:`node_by_node` where a program's operations carry a leading axis along, as elementwise ones do.

    Parameters
    ----------
    equations, noise
        The program, and the units.
    wanted
        The sites to evaluate, by default all; the run ends once it has met them.
    held
        Sites that are set to the same values in both worlds.
    narrow
        Whether the sensitive attribute is one number a world, which saves time, and not one for each unit.

    Raises
    ------
    NotIdentifiedError
        If the paths have a recanting witness, which takes more worlds than three.
    WorldAxisError
        If a site changes its shape otherwise than by the axis of worlds.
    """
    chosen = equations.sites if wanted is None else tuple(wanted)
    handler = _SideBySide(equations, noise, chosen, held or {}, narrow=narrow)
    if chosen:
        with quiet(), handler, suppress(StopTracing):
            equations.program(noise.n)
    return {site: handler.first[site] for site in chosen}, {site: handler.second[site] for site in chosen}


def read_by_classifier(equations: Equations) -> tuple[str, ...]:
    """Return the sites of the nodes that a classifier reads, but for the sensitive attribute."""
    return tuple(site for site in equations.sites if equations.node_of[site] in equations.unfair.graph.inputs)


def choose_way(equations: Equations, coupling: Coupling) -> Way:
    """Choose how to run a program: the quickest way that equals the definition on a few units.

    It is tried for the nodes that a classifier reads, which lets other noise idle, and for all nodes.

    Raises
    ------
    CouplingError
        If a node that a classifier reads needs one that is drawn without explicit noise from a family that cannot be
        coupled.
    GraphError
        If the program fails.
    """
    inputs = read_by_classifier(equations)
    trials = []
    with isolated(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in TRIAL:
            noise = Noise(n, coupling)
            with evaluating(n):
                trials.append((noise, inputs, node_by_node(equations, noise, inputs)))
            with suppress(CouplingError), evaluating(n):  # of a node that is shown, not read; whoever asks is told
                trials.append((noise, equations.sites, node_by_node(equations, noise)))
        ways: tuple[Way, ...] = ("narrow", "wide")
        for way in ways:
            if all(_equals(equations, *trial, narrow=way == "narrow") for trial in trials):
                return way
    return "node by node"


def _equals(
    equations: Equations, noise: Noise, wanted: tuple[str, ...], slow: tuple[World, World], *, narrow: bool
) -> bool:
    try:
        fast = side_by_side(equations, noise, wanted, narrow=narrow)
    except Exception:  # whatever goes wrong in the quick way, the definition is used in its place
        return False
    return all(_same(one, other) for one, other in zip(slow, fast, strict=True))


def _same(slow: World, fast: World) -> bool:
    return all(
        fast[site].shape == slow[site].shape
        and torch.allclose(fast[site].double(), slow[site].double(), equal_nan=True)
        for site in fast
    )


def both_worlds(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
    *,
    way: Way,
) -> tuple[World, World]:
    """Evaluate sites in both worlds in one of the ways.

    Parameters
    ----------
    equations, noise, wanted, held
        As for :func:`pyrofair.programs.worlds.node_by_node`.
    way
        What :func:`choose_way` says.
    """
    equations.info.confirm(noise.n)
    if way != "node by node":
        with suppress(WorldAxisError):
            return side_by_side(equations, noise, wanted, held, narrow=way == "narrow")
    return node_by_node(equations, noise, wanted, held)


def require_shared_first(equations: Equations, shared: Sequence[str]) -> None:
    """Refuse sites that cannot be drawn given the shared ones by the program alone.

    The others are drawn with ``do`` on the shared ones. That is their distribution given the shared ones if no shared
    site reads one of the others but the sensitive attribute, nor has noise in common with one.

    Parameters
    ----------
    equations
        The program.
    shared
        The sites that both worlds share. Latent nodes count as noise.

    Raises
    ------
    NotIdentifiedError
        With the two nodes, and the noise that they have in common.
    """
    latent = equations.unfair.graph.latent
    seen = tuple(site for site, node in equations.node_of.items() if node not in latent)
    read = {site: equations.info.causes(site, seen) for site in seen if site != equations.sensitive}
    for one in shared:
        for other in [site for site in read if site not in shared]:
            why = f"{one!r} reads {other!r}" if other in read[one][0] else ""
            if common := sorted({*read[one][1]} & {*read[other][1]}):
                why = f"the two have the noise {', '.join(common)} in common"
            if why:
                raise NotIdentifiedError(
                    f"Both worlds share {one!r}, and {other!r} would be drawn anew in each, given its parents alone; "
                    f"but {why}, so that is not its distribution given {one!r}. Use unit='noise'."
                )


def shared_worlds(
    equations: Equations,
    n: int,
    draws: int,
    coupling: Coupling,
    parameters: Mapping[str, Tensor],
    wanted: Sequence[str],
    *,
    way: Way,
) -> tuple[World, World]:
    """Draw the shared nodes once for each of n units, and the others ``draws`` times in each world, independently.

    Within one world, a site that is no node and is read by two of them is one site, coupled with itself as ``coupling``
    says where the two read different values of the sensitive attribute.

    Parameters
    ----------
    equations, wanted, way
        As for :func:`pyrofair.programs.worlds.both_worlds`.
    n, draws
        The number of units, and of draws of each in each world.
    coupling
        How a site hangs together with itself.
    parameters
        The values of the sites outside the plate.

    Returns
    -------
    baseline, switched : dict of Tensor
        For each wanted site its values, shape (n * draws,), those of a unit one after the other.

    Raises
    ------
    NotIdentifiedError
        If other nodes cannot be drawn given the shared ones by the program alone.
    """
    shared = [site for site in equations.sites if equations.node_of[site] in equations.unfair.shared]
    require_shared_first(equations, shared)
    seeds = torch.randint(2**31 - 1, (3,)).tolist()  # first of all, so that the way of evaluation changes nothing
    units = Noise(n, coupling, dict(parameters), seed=seeds[2])
    first, _ = both_worlds(equations, units, shared, way=way)
    held = {site: first[site].repeat_interleave(draws, 0) for site in shared}
    known = {name: units.values[name] for name in equations.info.parameters if name in units.values}
    one, other = (
        both_worlds(equations, Noise(n * draws, coupling, dict(known), seed=seeds[which]), wanted, held, way=way)[which]
        for which in (0, 1)
    )
    return one, other
