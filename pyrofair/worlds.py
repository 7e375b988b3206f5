"""Every node of a program in both worlds, for the same people: path-specific counterfactuals by intervention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair.couplings import law_parameters
from pyrofair.equations import Equations, State, sensitive_levels
from pyrofair.noise import Noise, choose_noise, draw_from

__all__ = ["Enough", "WithNoise", "World", "factual", "node_by_node", "quiet", "sensitive_values"]

World = dict[str, Tensor]


class Enough(Exception):
    """All the sites that were asked for have been met; it ends a run whose further sites nobody needs."""


class WithNoise(Messenger):
    """Give every random site its value from the noise, so that a run only computes, and intervene on some nodes.

    Parameters
    ----------
    equations, noise
        The program, and the people.
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
        """Return the value of a site whose law depends on a node."""
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
    """Return the sensitive attribute for n people in arm 0 or 1; for several arms, along a leading axis."""
    levels = torch.tensor(sensitive_levels(equations.unfair.graph), dtype=equations.info.dtypes[equations.sensitive])
    one = levels[torch.as_tensor(arms)]
    return one.unsqueeze(-1).expand(*one.shape, n)


# -- the definition: a run for each site and state --------------------------------------------------------------------


class _OneWorld(WithNoise):
    """Draw with the baseline's noise; in another world only where the law is the baseline's.

    Parameters
    ----------
    equations, noise, held
        The program, the people, and what nodes are set to.
    laws
        The parameters of the laws that the baseline met; None in the baseline itself, which fills ``met``.
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
            raise Enough

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
    with quiet(), handler, suppress(Enough):
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
        The program, and the people.
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
    """Return node sites as they are for these people.

    Where the noise differs between worlds, a person has the baseline's at each site whose law is the baseline's.

    Parameters
    ----------
    equations, noise
        The program, and the people.
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
