"""Both worlds of a program: each node evaluated from its equation, reading A as its path prescribes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair._random import isolated
from pyrofair.exceptions import NotIdentifiedError
from pyrofair.programs.couplings import (
    COMPARING,
    Coupling,
    CouplingError,
    Noise,
    at_noise,
    choose_noise,
    draw_from,
    parameters_of,
)
from pyrofair.programs.provenance import Program, evaluating, upstream
from pyrofair.programs.sites import UNITS, ProgramSites
from pyrofair.programs.structural_equations import Equations, State, sensitive_levels

__all__ = [
    "Evaluation",
    "RunOnNoise",
    "StopTracing",
    "Strategy",
    "World",
    "WorldAxisError",
    "both_worlds",
    "choose_strategy",
    "factual",
    "quiet",
    "require_shared_first",
    "sequential_worlds",
    "shared_worlds",
    "vectorised_worlds",
]

World = dict[str, Tensor]


class StopTracing(Exception):
    """All sites that were asked for have been met, which ends a run."""


@contextmanager
def quiet() -> Iterator[None]:
    """Run a program without validation, gradients or outer handlers."""
    with poutine.block(), pyro.validation_enabled(False), torch.no_grad():
        yield


class RunOnNoise(Messenger):
    """Give every random site its value from the noise, so that a run only computes, and hold some sites: ``do``."""

    def __init__(self, noise: Noise, endogenous: Collection[str], held: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.noise, self.endogenous, self.held = noise, endogenous, held

    def _pyro_sample(self, msg: Any) -> None:
        if poutine.util.site_is_subsample(msg):
            return
        name, distribution = msg["name"], msg["fn"]
        if name in self.held:
            msg["value"] = self.held[name]
        elif msg["is_observed"] or msg["value"] is not None:
            return
        elif name in self.endogenous:
            msg["value"] = self.respond(name, distribution)
        else:
            msg["value"] = self.noise.draw(name, distribution)
        msg["done"] = True

    def run(self, program: Program) -> None:
        """Run a program on the units of the noise, to its end or until all that is asked for has been met."""
        with quiet(), self, suppress(StopTracing):
            program(self.noise.n)

    def respond(self, name: str, distribution: Any) -> Tensor:
        """Return the value of a random site whose distribution depends on a node."""
        return self.noise.value(name, distribution, distribution.shape(), {}, baseline=False)


def _sensitive_values(
    equations: Equations, n: int, arms: Iterable[int] | int, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the sensitive attribute for n units in arm 0 or 1; for several arms, along a leading axis."""
    dtype = dtype or equations.info.dtypes[equations.sensitive]
    one = torch.tensor(sensitive_levels(equations.unfair.graph), dtype=dtype)[torch.as_tensor(arms)]
    return one.unsqueeze(-1).expand(*one.shape, n)


# -- the definition: a run for each site and state ---------------------------------------------------------------------


class _OneWorld(RunOnNoise):
    """Run one world up to the last of some sites, or to the end, and keep values of nodes.

    ``met`` is as for :meth:`Noise.value`; ``settle`` gives the value of a site that is evaluated, by its name, the
    value that its equation gives, and what has been found before it.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        held: Mapping[str, Tensor],
        met: dict[str, list[Tensor]],
        *,
        baseline: bool,
        idle: Collection[str] = (),
        until: Collection[str] = (),
        settle: Callable[[str, Tensor, World], Tensor] = lambda name, value, found: value,
    ) -> None:
        super().__init__(evaluation.noise, evaluation.endogenous, held)
        self.info, self.nodes, self.found = evaluation.info, evaluation.nodes, World()
        self.met, self.baseline, self.idle, self.settle = met, baseline, idle, settle
        self.evaluated, self.left = {*until}, {*until}
        only = evaluation.restrict
        self.run(only(until) if only and until else evaluation.program)

    def respond(self, name: str, distribution: Any) -> Tensor:
        if name in self.idle:  # any value will do
            return draw_from(distribution)
        self.info.require_comparable(name, self.noise.coupling)
        shape = self.info.shape(name, self.noise.n)
        return self.noise.value(name, distribution, shape, self.met, baseline=self.baseline)

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if name in self.evaluated:
            msg["value"] = self.settle(name, msg["value"], self.found)
            self.left.discard(name)
        if name in self.nodes:
            self.found[name] = msg["value"]
        if self.evaluated and not self.left:
            raise StopTracing


@dataclass
class Evaluation:
    """A program's equations on the noise of some units, drawn or observed.

    ``endogenous`` are the random sites whose distribution depends on one of the ``nodes``; ``met`` holds, for each node
    evaluated in the baseline, the parameters of the distributions met there. ``restrict`` makes a faster program of
    some sites, all other nodes being held.
    """

    program: Program
    info: ProgramSites
    nodes: Collection[str]
    endogenous: Collection[str]
    noise: Noise
    met: dict[str, dict[str, list[Tensor]]] = field(default_factory=dict)
    restrict: Callable[[Collection[str]], Program] | None = None

    @classmethod
    def of(cls, equations: Equations, noise: Noise) -> Evaluation:
        """Return the evaluation of a program's equations on drawn noise."""
        return cls(equations.program, equations.info, equations.node_of, equations.endogenous, noise)

    def node(self, site: str, held: Mapping[str, Tensor]) -> Tensor:
        """Evaluate a node: ``do`` on all that it reads, shape (n, ...) each, the noise held, and read the node."""
        return self.nodes_at([site], held)[site]

    def nodes_at(
        self, sites: Sequence[str], held: Mapping[str, Tensor], *, baseline: bool = False, idle: Collection[str] = ()
    ) -> World:
        """Evaluate nodes in one run: ``do`` on all that they read, but for those among them, the noise held.

        A node of observed units whose parents are as observed is as observed. So is one that comes out as it did at the
        observed parents: rounding must not make another value, and so another distribution, of it.
        """
        observed = self.noise.observed
        met = self.met.setdefault(sites[0], {})
        if observed is None:
            found = _OneWorld(self, held, met, baseline=baseline, idle=idle, until=sites).found
            return {site: found[site] for site in sites}
        distributions_matter = baseline and any(own is not other for own, other in self.noise.pairs.values())
        known: World = {}
        if not distributions_matter:
            for site in sites:
                causes = self.info.causes(site, tuple(self.nodes))[0]
                if all(each in held for each in causes) and bool(self._as_observed(causes, held).all()):
                    known[site] = observed.values[site]
        left = [site for site in sites if site not in known]
        if not left:
            return known

        def settle(site: str, value: Tensor, found: World) -> Tensor:
            causes = self.info.causes(site, tuple(self.nodes))[0]
            value = value.expand(self.noise.n)
            same = self._as_observed(causes, found) | (value == observed.natural[site])
            return torch.where(same, observed.values[site], value.to(observed.values[site].dtype))

        run = _OneWorld(self, {**held, **known}, met, baseline=baseline, until=left, settle=settle)
        return known | {site: run.found[site] for site in left}

    def _as_observed(self, causes: Iterable[str], values: Mapping[str, Tensor]) -> Tensor:
        """Return for which observed units some nodes have the values observed, shape (n,)."""
        assert self.noise.observed is not None
        same = torch.ones(self.noise.n, dtype=torch.bool)
        for parent in causes:
            equal = values[parent] == self.noise.observed.values[parent]
            if equal.ndim > 1:  # a latent node may be a vector
                by_unit = equal.movedim(self.info.shapes[parent].index(UNITS), 0)
                equal = by_unit.reshape(self.noise.n, -1).all(-1)
            same = same & equal
        return same

    def under_do(self, values: Mapping[str, Tensor], wanted: Iterable[str]) -> World:
        """Return the wanted nodes with some nodes set to values, shape (n,) each."""
        found, chosen = dict(values), tuple(wanted)
        parents = {site: self.info.causes(site, tuple(self.nodes))[0] for site in self.nodes}
        needed = upstream(chosen, parents, found) - found.keys()
        for site in sorted(needed, key=self.info.sites.index):
            found[site] = self.node(site, {parent: found[parent] for parent in parents[site]})
        return {site: found[site] for site in chosen}

    def worlds(
        self, equations: Equations, wanted: Iterable[str], known: Mapping[str, Tensor] | None = None
    ) -> tuple[World, World]:
        """Return the wanted nodes in both worlds by the definition; ``known`` ones are the same in both."""
        done: dict[tuple[str, State], Tensor] = {}
        chosen = tuple(wanted)
        first, second = (self._world(equations, chosen, known or {}, which, done) for which in (0, 1))
        return first, second

    def world(
        self, equations: Equations, wanted: Iterable[str], known: Mapping[str, Tensor] | None = None, *, switched: bool
    ) -> World:
        """Return the wanted nodes in one of both worlds, as :meth:`worlds` does."""
        if self.noise.coupling in COMPARING:  # the noise of a unit elsewhere depends on the baseline
            return self.worlds(equations, wanted, known)[int(switched)]
        return self._world(equations, tuple(wanted), known or {}, int(switched), {})

    def _world(
        self,
        equations: Equations,
        wanted: Sequence[str],
        known: Mapping[str, Tensor],
        which: int,
        done: dict[tuple[str, State], Tensor],
    ) -> World:
        observed = self.noise.observed
        dtype = None if observed is None else observed.values[equations.sensitive].dtype
        base = equations.states(equations.unfair.regimes[0])
        states = equations.states(equations.unfair.regimes[which]) if which else base
        shown = {site: states[site] for site in wanted}

        def read(site: str, state: State | int) -> Tensor:
            if isinstance(state, State):
                return known[site] if site in known else done[site, state]
            return _sensitive_values(equations, self.noise.n, state, dtype)

        needed = [pair for pair in equations.in_order(shown, known) if pair not in done]
        for sites, parts in self._runs(equations, needed):
            held = {site: read(site, part) for site, part in parts.items() if site not in sites}
            idle = equations.idle([*sites], held) if observed is None else ()
            baseline = all(state == base[site] for site, state in sites.items())
            found = self.nodes_at([*sites], held, baseline=baseline, idle=idle)
            done |= {(site, state): found[site] for site, state in sites.items()}
        return {site: read(site, state) for site, state in shown.items()}

    def _runs(
        self, equations: Equations, needed: Iterable[tuple[str, State]]
    ) -> Iterator[tuple[dict[str, State], dict[str, State | int]]]:
        """Yield the nodes that one run evaluates, in order, and the states of all that is read there.

        A run goes on as long as each node is read in one state; where noise depends on the world it has one node.
        """
        sites: dict[str, State] = {}
        parts: dict[str, State | int] = {}
        for site, state in needed:
            own = dict(zip(equations.causes[site], state.parts, strict=True))
            alike = all(parts.get(parent, part) == part for parent, part in own.items())
            if sites and (self.noise.coupling in COMPARING or site in parts or not alike):
                yield sites, parts
                sites, parts = {}, {}
            sites[site] = parts[site] = state
            parts |= own
        if sites:
            yield sites, parts


def sequential_worlds(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
) -> tuple[World, World]:
    """Evaluate sites in both worlds, each by a run of its own: ``do`` on all it reads, the noise held, and read it.

    This is the definition, for any set of paths, recanting witnesses included. For a site
    ``M`` that reads ``A`` and ``D`` it is equivalent to the program::

        with poutine.condition(data=noise.values), poutine.do(data={"A": a_of_this_path, "D": D_of_this_path}):
            M = poutine.trace(program).get_trace(n).nodes["M"]["value"]

    where the noise of a site drawn without explicit noise is a uniform, or Gumbel numbers, that its quantile function
    turns into its value (:mod:`pyrofair.programs.couplings`). By default all sites but A are wanted; ``held`` ones are
    set to the same values in both worlds. Returned are the values of the baseline and of the unfair-path world, units
    along the axis of the plate. A CouplingError names a site that cannot be coupled.
    """
    return Evaluation.of(equations, noise).worlds(equations, equations.sites if wanted is None else wanted, held)


def factual(equations: Equations, noise: Noise, wanted: Iterable[str] | None = None) -> World:
    """Return node sites (by default all, A included) as they are for these units.

    Where the noise differs between worlds, a unit has the baseline's at each site whose distribution is the baseline's.
    """
    equations.info.confirm(noise.n)
    chosen = tuple(equations.node_of if wanted is None else wanted)
    idle = equations.idle(chosen, ())
    evaluation, met = Evaluation.of(equations, noise), dict[str, list[Tensor]]()
    if noise.coupling in COMPARING and equations.endogenous:
        low = _sensitive_values(equations, noise.n, equations.unfair.regimes[0].on_fair)
        _OneWorld(evaluation, {equations.sensitive: low}, met, baseline=True, idle=idle)
    found = _OneWorld(evaluation, {}, met, baseline=False, idle=idle).found
    return {site: found[site] for site in chosen}


# -- the fast way: one run with an axis of worlds ----------------------------------------------------------------------

Strategy = Literal["broadcast", "vectorised", "sequential"]
"""One run with the sensitive attribute as one number a world, or one for each unit; or a run for each node."""

TRIAL = 50
"""The number of units with which a program is tried, besides one as small as the number of worlds."""


class WorldAxisError(RuntimeError):
    """A program does not carry the axis of worlds along, so its nodes must be run one by one."""


def _sides(equations: Equations, held: Iterable[str]) -> tuple[tuple[int, ...], dict[str, int]]:
    """Return the arm of each world of a run, the baseline first, and for each site the world that shows it switched.

    A site that is held, or reads nothing switched, is as in the baseline: world 0. One that reads the switched value of
    A is in world 1, and so is one that does not read A. Only a site that reads A as in the baseline and another site
    that is switched needs a world of its own, 2.
    """
    baseline, switched = equations.unfair.regimes
    low, arms = baseline.on_fair, switched.arms
    side: dict[str, int] = dict.fromkeys(held, 0)
    for site in [each for each in equations.sites if each not in side]:
        causes = equations.causes[site]
        moved = any(side.get(parent, 0) for parent in causes)
        reads = equations.sensitive in causes
        if reads and arms.get(equations.node_of[site], low) != low:
            side[site] = 1
        else:
            side[site] = (2 if reads else 1) if moved else 0
    return ((low, 1 - low, low) if 2 in side.values() else (low, 1 - low)), side


class _Vectorised(RunOnNoise):
    """Run the worlds along a leading axis; at each node do() the switched value from its side into all its sides."""

    def __init__(
        self, equations: Equations, noise: Noise, wanted: Iterable[str], held: Mapping[str, Tensor], *, broadcast: bool
    ) -> None:
        super().__init__(noise, equations.endogenous, {})
        self.equations, self.set_to, self.broadcast = equations, held, broadcast
        self.arms, self.side = _sides(equations, held)
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

    def respond(self, name: str, distribution: Any) -> Tensor:
        if self.noise.is_redrawn(name, distribution):
            raise WorldAxisError(f"The site {name!r} is drawn for each distribution apart, and so for each world.")
        own, second = self.noise.pair(name, distribution, self.equations.info.shape(name, self.noise.n))
        self.equations.info.require_comparable(name, self.noise.coupling)
        if second is not own and self._has_axis(name, distribution.shape()):
            parameters = parameters_of(distribution)
            first = [each[0] for each in parameters]
            batch = len(distribution.batch_shape) - 1
            others = [
                choose_noise(own, second, first, [each[i] for each in parameters], batch)
                for i in range(1, len(self.arms))
            ]
            own = torch.stack([own, *others])
        return at_noise(name, distribution, own, self.noise.coupling)

    def _shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a site in one world; a constant may come to differ between units."""
        return self.equations.info.shape(name, self.noise.n) or (self.noise.n,)

    def _has_axis(self, name: str, got: Iterable[int]) -> bool:
        """Return whether a shape has taken on the axis of worlds, and refuse any other change."""
        shape, count, plain = tuple(got), len(self.arms), self._shape(name)
        once = self.equations.info.shape(name, 1) or (1,)
        if shape in (plain, self.equations.info.shape(name, self.noise.n)):
            return False
        if shape not in ((count, *plain), (count, *once)):
            raise WorldAxisError(f"The site {name!r} has the shape {shape} in {count} worlds, and {plain} in one.")
        return True

    def _pyro_post_sample(self, msg: Any) -> None:
        name, value = msg["name"], msg["value"]
        if name == self.equations.sensitive:
            msg["value"] = _sensitive_values(self.equations, 1 if self.broadcast else self.noise.n, self.arms)
        elif name in self.equations.node_of:
            side = self.side[name]
            first = second = value
            if name in self.set_to:
                first = second = msg["value"] = self.set_to[name]
            elif self._has_axis(name, value.shape):
                # Where it depends on the sensitive attribute alone, it may be one number a world.
                value = msg["value"] = value.expand(len(value), *self._shape(name))
                first, second = value[0], value[side]
                if side == 0:
                    msg["value"] = first
                elif len(self.arms) > 2 and name in self.read:
                    msg["value"] = torch.stack([first, second, second])
            self.first[name], self.second[name] = first, second
            self.wanted.discard(name)
            if not self.wanted:
                raise StopTracing


def vectorised_worlds(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
    *,
    broadcast: bool = False,
) -> tuple[World, World]:
    """Evaluate sites in both worlds by one run with a leading axis of two or three worlds.

    It equals :func:`sequential_worlds` where a program's operations carry a leading axis along, as elementwise ones do.
    With two worlds it is equivalent to the program::

        A = torch.tensor([[0.0], [1.0]])           # instead of the site A: one row for each world
        D = f(A, Q, U_D)                           # (2, n): noise U_D and node Q, (n,), are shared
        D = torch.stack([D[0], D[0]])              # where no unfair path leads to D, otherwise left as it is

    The run ends once it has met the wanted sites. With ``broadcast`` A is one number a world, as above, which saves
    time; otherwise one for each unit. A recanting witness, which takes more worlds, is a NotIdentifiedError; a site
    that changes its shape otherwise than by the axis of worlds a WorldAxisError.
    """
    chosen = equations.sites if wanted is None else tuple(wanted)
    handler = _Vectorised(equations, noise, chosen, held or {}, broadcast=broadcast)
    if chosen:
        handler.run(equations.program)
    return {site: handler.first[site] for site in chosen}, {site: handler.second[site] for site in chosen}


def read_by_classifier(equations: Equations) -> tuple[str, ...]:
    """Return the sites of the nodes that a classifier reads, except the sensitive attribute."""
    return tuple(site for site in equations.sites if equations.node_of[site] in equations.unfair.graph.inputs)


def choose_strategy(equations: Equations, coupling: Coupling) -> Strategy:
    """Choose how to run a program: the quickest strategy whose values satisfy the definition for a few units.

    A CouplingError names a site that a classifier's columns need and that cannot be coupled; a GraphError a program
    that fails.
    """
    with isolated(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strategies: tuple[Strategy, ...] = ("broadcast", "vectorised")
        for strategy in strategies:
            try:
                if _serves(equations, coupling, broadcast=strategy == "broadcast"):
                    return strategy
            except Exception:  # whatever fails in the quick way, the definition is used instead
                continue
        with evaluating(TRIAL):  # which raises what it cannot evaluate
            sequential_worlds(equations, Noise(TRIAL, coupling), read_by_classifier(equations))
    return "sequential"


def _serves(equations: Equations, coupling: Coupling, *, broadcast: bool) -> bool:
    """Return whether runs with an axis of worlds give what the definition does, for all nodes and a classifier's alone.

    They must also do so for as few units as there are worlds, where the two axes have the same length.
    """
    inputs, wanted = read_by_classifier(equations), equations.sites
    for n in (TRIAL, len(_sides(equations, ())[0])):
        noise = Noise(n, coupling)
        try:
            found = vectorised_worlds(equations, noise, wanted, broadcast=broadcast)
        except CouplingError:  # of a node that is shown, not read; using it raises
            states = [equations.states(regime) for regime in equations.unfair.regimes]
            pairs = [pair for own in states for pair in equations.in_order({site: own[site] for site in inputs})]
            wanted = tuple({site: None for site, _ in pairs})
            found = vectorised_worlds(equations, noise, wanted, broadcast=broadcast)
        alone = vectorised_worlds(equations, noise, inputs, broadcast=broadcast)
        for own, quick, right in zip(alone, found, sequential_worlds(equations, noise, wanted), strict=True):
            if not all(_same(world[site], right[site]) for world in (quick, own) for site in world):
                return False
    return True


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), equal_nan=True)


def both_worlds(
    equations: Equations,
    noise: Noise,
    wanted: Iterable[str] | None = None,
    held: Mapping[str, Tensor] | None = None,
    *,
    strategy: Strategy,
) -> tuple[World, World]:
    """Evaluate sites in both worlds as :func:`sequential_worlds` does, by a strategy of :func:`choose_strategy`."""
    equations.info.confirm(noise.n)
    if strategy != "sequential":
        with suppress(WorldAxisError):
            return vectorised_worlds(equations, noise, wanted, held, broadcast=strategy == "broadcast")
    return sequential_worlds(equations, noise, wanted, held)


# -- units that share some nodes only ----------------------------------------------------------------------------------


def require_shared_first(equations: Equations, shared: Sequence[str]) -> None:
    """Raise NotIdentifiedError if the others cannot be drawn given the shared sites by the program alone.

    They are drawn with ``do`` on the shared ones. That is their distribution given the shared ones if no shared site
    reads one of the others but the sensitive attribute, nor has noise, or a latent node, in common with one.
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
                    f"but {why}, so its distribution given {one!r} is another. Use unit='noise'."
                )


def shared_worlds(
    equations: Equations,
    n: int,
    draws: int,
    coupling: Coupling,
    parameters: Mapping[str, Tensor],
    wanted: Sequence[str],
    *,
    strategy: Strategy,
) -> tuple[World, World]:
    """Draw the shared nodes once for each of n units, and the others ``draws`` times in each world, independently.

    Within one world, a site that is no node and is read by two of them is one site, coupled with itself by
    ``coupling`` where the two read different values of the sensitive attribute. Returned are, for each wanted site, its
    values, (n * draws,), those of a unit one after the other. A NotIdentifiedError names nodes that cannot be drawn
    given the shared ones by the program alone. It is equivalent to the program::

        Q = pyro.sample("Q", q)                                        # shared: once for each unit
        with pyro.plate("draws", draws):
            D0 = pyro.sample("D0", d(Q, A=0))                          # drawn anew in each world
            D1 = pyro.sample("D1", d(Q, A=1))
    """
    shared = [site for site in equations.sites if equations.node_of[site] in equations.unfair.shared]
    require_shared_first(equations, shared)
    seeds = torch.randint(2**31 - 1, (3,)).tolist()  # first of all, so that the strategy changes nothing
    units = Noise(n, coupling, dict(parameters), seed=seeds[2])
    first, _ = both_worlds(equations, units, shared, strategy=strategy)
    held = {site: first[site].repeat_interleave(draws, 0) for site in shared}
    known = {name: units.values[name] for name in equations.info.parameters if name in units.values}

    def drawn_anew(which: int) -> World:
        noise = Noise(n * draws, coupling, dict(known), seed=seeds[which])
        return both_worlds(equations, noise, wanted, held, strategy=strategy)[which]

    return drawn_anew(0), drawn_anew(1)
