"""Every node of a program in both worlds, for the same people: path-specific counterfactuals from ``poutine.do``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair.couplings import Coupling, gumbel_max, law_parameters, quantile, unwrap
from pyrofair.paths import Regime, UnfairPaths
from pyrofair.programs import Program, ProgramSites

__all__ = ["Equations", "Noise", "World", "factual", "node_by_node", "side_by_side"]

World = dict[str, Tensor]
State = tuple[Any, ...]
"""For each parent of a site the value of the sensitive attribute that it reads, or that parent's own state."""


@dataclass(frozen=True)
class Equations:
    """A program as structural equations: its node sites, which node each belongs to, and who reads whom.

    Parameters
    ----------
    program, unfair, info
        The program, the unfair paths, and what was read off the program.
    node_of
        For each node site, in the order of the graph, its node; a node of several columns has a site for each.
    """

    program: Program
    unfair: UnfairPaths
    info: ProgramSites
    node_of: dict[str, str]

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """The node sites but that of the sensitive attribute."""
        return tuple(site for site, node in self.node_of.items() if node != self.unfair.graph.sensitive)

    @cached_property
    def sensitive(self) -> str:
        """The site of the sensitive attribute."""
        return next(site for site, node in self.node_of.items() if node == self.unfair.graph.sensitive)

    @cached_property
    def causes(self) -> dict[str, tuple[str, ...]]:
        """For each node site the node sites that it reads."""
        every = tuple(self.node_of)
        return {site: self.info.causes(site, every)[0] for site in every}

    @cached_property
    def endogenous(self) -> frozenset[str]:
        """The random sites whose law depends on a node."""
        every = tuple(self.node_of)
        return frozenset(site for site in self.info.random if self.info.causes(site, every)[0])

    def idle(self, wanted: Iterable[str]) -> frozenset[str]:
        """Return the random sites that no wanted site needs once the sensitive attribute is set."""
        needed: set[str] = set()
        waiting = list(wanted)
        while waiting:
            site = waiting.pop()
            if site not in needed and site != self.sensitive:
                needed.add(site)
                waiting.extend(self.info.reads[site])
        return self.info.random - needed

    def states(self, regime: Regime) -> dict[str, State]:
        """Return the state in which each site is shown in a world.

        That of its node's edge to the outcome, if there is one; otherwise of its shortest way there. A node that does
        not lead to the outcome is shown as the fair paths leave it.
        """
        graph = self.unfair.graph

        def state(site: str, way: tuple[str, ...] | None) -> State:
            parts: list[Any] = []
            for parent in self.causes[site]:
                node = self.node_of[parent]
                if parent == self.sensitive:
                    parts.append(regime.on_fair if way is None else regime.value((node, *way)))
                else:
                    inside = node == self.node_of[site]
                    parts.append(state(parent, way if way is None or inside else (node, *way)))
            return tuple(parts)

        ways = {node: graph.directed_paths(node, graph.outcome) for node in self.node_of.values()}
        return {s: state(s, min(ways[self.node_of[s]], key=len, default=None)) for s in self.sites}


@dataclass
class Noise:
    """What people are made of: the value of each exogenous site, and uniforms for each node drawn without noise.

    Made on first use and kept, so that every run of the program sees the same people.

    Parameters
    ----------
    n
        The number of people.
    coupling
        How the noise of a node drawn without explicit noise hangs together across the worlds.
    values
        The values of exogenous sites and of parameters.
    """

    n: int
    coupling: Coupling
    values: dict[str, Tensor] = field(default_factory=dict)
    pairs: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def pair(self, name: str, law: Any) -> tuple[Tensor, Tensor]:
        """Return the noise of a node in the baseline and, where its law differs there, in the switched world."""
        if name not in self.pairs:
            inner = unwrap(law)
            if self.coupling == "gumbel" and isinstance(inner, torch.distributions.Categorical):
                first = -torch.log(-torch.log(_uniform(self.n, inner.logits.shape[-1])))
            else:
                first = _uniform(self.n, *law.event_shape)
            second = first
            if self.coupling == "independent":
                second = _uniform(*first.shape)
            elif self.coupling == "antithetic":
                second = 1.0 - first
            self.pairs[name] = first, second
        return self.pairs[name]

    def value(self, name: str, law: Any, noise: Tensor) -> Tensor:
        """Return the value that a law takes at some noise."""
        categorical = isinstance(unwrap(law), torch.distributions.Categorical)
        return gumbel_max(law, noise) if self.coupling == "gumbel" and categorical else quantile(name, law, noise)


def _uniform(*shape: int) -> Tensor:
    least = torch.finfo(torch.get_default_dtype()).eps / 2
    return torch.rand(shape).clamp(least, 1.0 - least)


class _WithNoise(Messenger):  # type: ignore[misc]
    """Give every random site its value from the noise, so that a run only computes."""

    def __init__(self, equations: Equations, noise: Noise) -> None:
        super().__init__()
        self.equations, self.noise = equations, noise

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or msg["value"] is not None or poutine.util.site_is_subsample(msg):
            return
        name = msg["name"]
        if name in self.equations.endogenous:
            msg["value"], msg["done"] = self.draw(name, msg["fn"]), True
        elif name in self.noise.values:
            msg["value"], msg["done"] = self.noise.values[name], True

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if not msg["is_observed"] and not poutine.util.site_is_subsample(msg) and name not in self.equations.endogenous:
            self.noise.values[name] = msg["value"]

    def draw(self, name: str, law: Any) -> Tensor:
        """Return the value of a node drawn without explicit noise."""
        raise NotImplementedError


@contextmanager
def _quiet() -> Iterator[None]:
    with pyro.validation_enabled(False), torch.no_grad():
        yield


# -- the definition: a run for each site and state ---------------------------------------------------------------------


class _OneSite(_WithNoise):
    """Draw with the noise of one world, but with the baseline's where the law is the baseline's."""

    def __init__(self, equations: Equations, noise: Noise, baseline: bool, laws: dict[str, Any]) -> None:
        super().__init__(equations, noise)
        self.baseline, self.laws = baseline, laws

    def draw(self, name: str, law: Any) -> Tensor:
        first, second = self.noise.pair(name, law)
        if self.baseline:
            self.laws[name] = law
        elif name in self.laws:
            second = _choose(first, second, zip(law_parameters(law), law_parameters(self.laws[name]), strict=True))
        return self.noise.value(name, law, first if self.baseline else second)


def _choose(first: Tensor, second: Tensor, parameters: Any) -> Tensor:
    """Return the first noise for people whose law is the same in both worlds, and the second for all others."""
    if first is second:
        return first
    same = torch.ones(len(first), dtype=torch.bool)
    for one, other in parameters:
        equal = one == other
        same = same & (equal if equal.ndim <= 1 else equal.reshape(len(equal), -1).all(-1))
    return torch.where(same.reshape(-1, *[1] * (first.ndim - 1)), first, second)


def node_by_node(equations: Equations, noise: Noise) -> tuple[World, World]:
    """Evaluate each site in both worlds by runs of its own: ``do`` on all it reads, the noise held, and read it.

    This is the definition. It serves any set of paths, recanting witnesses included.
    """
    unfair = equations.unfair
    base = equations.states(unfair.regimes[0])
    kind = equations.info.dtypes[equations.sensitive]
    done: dict[tuple[str, State], Tensor] = {}
    laws: dict[str, Any] = {}

    def evaluate(site: str, state: State) -> Tensor:
        if (site, state) not in done:
            held = {
                parent: torch.full((noise.n,), part, dtype=kind)
                if parent == equations.sensitive
                else evaluate(parent, part)
                for parent, part in zip(equations.causes[site], state, strict=True)
            }
            own: dict[str, Any] = {}
            baseline = state == base[site]
            handler = _OneSite(equations, noise, baseline, own if baseline else laws.get(site, {}))
            with _quiet(), poutine.trace() as tracer, handler, poutine.do(data=held):
                equations.program(noise.n)
            if baseline:
                laws[site] = own
            done[site, state] = tracer.trace.nodes[site]["value"]
        return done[site, state]

    first = {site: evaluate(site, state) for site, state in base.items()}
    switched = equations.states(unfair.regimes[1])
    return first, {site: evaluate(site, state) for site, state in switched.items()}


# -- the fast way: one run with a leading axis of worlds --------------------------------------------------------------


class _Enough(Exception):  # noqa: N818 - no error: it ends a run whose further sites nobody needs
    """All the sites that were asked for have been met."""


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
    def needed(cls, equations: Equations) -> _Sides:
        """Leave out the side that is nowhere needed: a node that nothing switches is as in the baseline."""
        baseline, switched = equations.unfair.regimes
        low = baseline.on_fair
        arms = {site: switched.arms.get(node, low) for site, node in equations.node_of.items()}
        differs: set[str] = set()
        mixed = False
        for site in equations.info.sites:
            if site not in equations.causes or site == equations.sensitive:
                continue
            moved = any(parent in differs for parent in equations.causes[site])
            reads = equations.sensitive in equations.causes[site]
            if moved or (reads and arms[site] != low):
                differs.add(site)
            mixed |= moved and reads and arms[site] == low
        values = (low, 1 - low, low) if mixed else (low, 1 - low)
        side = {s: 2 if mixed and arms[s] == low and equations.sensitive in equations.causes[s] else 1 for s in differs}
        return cls(values, {site: side.get(site, 0) for site in equations.sites})


class _SideBySide(_WithNoise):
    """Run the worlds side by side along a leading axis.

    At each node the switched world takes the value from its own side and hands it to all of its sides, which is ``do``
    on that node; a node that nobody reads is left as it is.
    """

    def __init__(self, equations: Equations, noise: Noise, sides: _Sides, wanted: frozenset[str]) -> None:
        super().__init__(equations, noise)
        self.sides, self.wanted = sides, set(wanted)
        self.idle = equations.idle(wanted)
        self.read = frozenset(parent for parents in equations.causes.values() for parent in parents)
        self.values: World = {}

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.idle and msg["value"] is None:
            msg["value"], msg["done"] = torch.zeros(()).expand(self.noise.n, *msg["fn"].event_shape), True
        else:
            super()._pyro_sample(msg)

    def wide(self, site: str) -> bool:
        """Tell whether a site has taken on the axis of worlds."""
        return self.values[site].ndim > self.equations.info.dimensions[site]

    def draw(self, name: str, law: Any) -> Tensor:
        first, second = self.noise.pair(name, law)
        if first is second or len(law.batch_shape) < 2:
            return self.noise.value(name, law, first)
        parameters = law_parameters(law)
        others = [_choose(first, second, ((p[0], p[i]) for p in parameters)) for i in range(1, len(self.sides.values))]
        return self.noise.value(name, law, torch.stack([first, *others]))

    def _pyro_post_sample(self, msg: Any) -> None:
        site = msg["name"]
        if site not in self.idle:
            super()._pyro_post_sample(msg)
        if site not in self.equations.node_of:
            return
        if site == self.equations.sensitive:
            values = torch.tensor(self.sides.values, dtype=msg["value"].dtype)
            msg["value"] = values.unsqueeze(-1).expand(-1, self.noise.n)
            return
        self.values[site] = msg["value"]
        count = len(self.sides.values)
        if self.wide(site) and site in self.read and (count > 2 or self.sides.of[site] == 0):
            msg["value"] = msg["value"][[0, *[self.sides.of[site]] * (count - 1)]]
        self.wanted.discard(site)
        if not self.wanted:
            raise _Enough


def side_by_side(equations: Equations, noise: Noise, wanted: Iterable[str] | None = None) -> tuple[World, World]:
    """Evaluate sites in both worlds by one run with a leading axis of two or three worlds.

    Parameters
    ----------
    equations, noise
        The program, and the people.
    wanted
        The sites to evaluate, by default all; the run ends once it has met them.

    Raises
    ------
    NotIdentifiedError
        If the paths have a recanting witness, which takes more worlds than three.
    """
    sides = _Sides.needed(equations)
    chosen = equations.sites if wanted is None else tuple(wanted)
    handler = _SideBySide(equations, noise, sides, frozenset(chosen))
    with _quiet(), handler, suppress(_Enough):
        equations.program(noise.n)
    first: World = {}
    second: World = {}
    for site in chosen:
        value = handler.values[site]
        wide = handler.wide(site)
        first[site] = value[0] if wide else value
        second[site] = value[sides.of[site]] if wide else value
    return first, second


# -- the world as it is -----------------------------------------------------------------------------------------------


class _Factual(_WithNoise):
    """Draw with the noise of the world that the person's own group names."""

    def draw(self, name: str, law: Any) -> Tensor:
        first, second = self.noise.pair(name, law)
        if first is second:
            return self.noise.value(name, law, first)
        group = self.noise.values.get(self.equations.sensitive)
        group = self.group if group is None else group
        mine = (group == self.equations.unfair.regimes[0].on_fair).reshape(-1, *[1] * (first.ndim - 1))
        return self.noise.value(name, law, torch.where(mine, first, second))

    def _pyro_post_sample(self, msg: Any) -> None:
        super()._pyro_post_sample(msg)
        if msg["name"] == self.equations.sensitive:
            self.group = msg["value"]


def factual(equations: Equations, noise: Noise) -> World:
    """Return every node site as it is for these people, the sensitive attribute included."""
    handler = _Factual(equations, noise)
    with _quiet(), poutine.trace() as tracer, handler:
        equations.program(noise.n)
    return {site: tracer.trace.nodes[site]["value"] for site in equations.node_of}
