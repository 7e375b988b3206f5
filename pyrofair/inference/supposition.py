"""What would these units' nodes be, had others been set? Action and prediction with the noise that they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from pyrofair.exceptions import DataError
from pyrofair.inference.evidence import Evidence
from pyrofair.inference.running import StopTracing, quiet
from pyrofair.programs.couplings import law_parameters
from pyrofair.programs.noise import Redraws, at_noise, choose_noise, draw_from, has_distribution, noise_given, partner
from pyrofair.programs.provenance import is_deterministic
from pyrofair.programs.structural_equations import Equations, State, sensitive_levels

__all__ = ["Crowd"]


class Crowd:
    """Units with their noise: some rows, each as often as its noise has draws.

    Where all that a node reads is as observed, the node is as observed. The noise of a node drawn without explicit
    noise is drawn given its value; where its distribution is another one, the coupling says what its noise is there.

    Parameters
    ----------
    evidence
        The units whose rows are given.
    rows
        Who of them, shape (r,).
    repeat
        How often each; m = r * repeat.
    noise
        For each unobserved random site that an observed one reads its noise, shape (m, ...).
    """

    def __init__(self, evidence: Evidence, rows: Tensor, repeat: int, noise: Mapping[str, Tensor]) -> None:
        self.evidence, self.noise = evidence, noise
        self.m = len(rows) * repeat
        evidence.info.confirm(self.m)
        given = evidence.given(rows, repeat)
        handler = _Factual(self, given)
        with quiet(), handler:
            evidence.program(self.m)
        self.factual, self.laws, self.parameters = handler.values, handler.laws, handler.parameters
        self.natural = {site: handler.natural.get(site, value) for site, value in handler.values.items()}
        self.base_laws: dict[str, dict[str, list[Tensor]]] = {}
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.own: dict[str, Tensor] = {}
        self.other: dict[str, Tensor] = {}
        self.redraws = {
            site: Redraws()
            for site, law in self.laws.items()
            if site in given and evidence.coupling == "independent" and not has_distribution(site, law, given[site])
        }
        for site, law in self.laws.items():
            if site not in given:
                self.own[site] = noise[site]
            elif site in self.redraws:
                self.redraws[site].add(law, given[site])
                self.own[site] = self.other[site] = given[site]
                unknown = torch.full(given[site].shape, torch.nan)
                self.moments[site] = unknown, unknown
                continue
            else:
                self.own[site], mean, variance = noise_given(site, law, given[site], evidence.coupling)
                self.moments[site] = mean, variance
                impossible = (variance <= 0) if law.support.is_discrete else ~torch.isfinite(self.own[site])
                if bool(impossible.any()):
                    row = int(rows[int(impossible.int().argmax()) // repeat])
                    raise DataError(
                        f"{evidence.describe(site, row)} has no probability under the program, given what the other "
                        "nodes say of the noise. Correct the row or the program."
                    )
                self.natural[site] = at_noise(site, law, self.own[site], evidence.coupling)
            self.other[site] = partner(self.own[site], law, evidence.coupling)

    # -- a node at given parents ---------------------------------------------------------------------------------------

    def value(self, site: str, held: Mapping[str, Tensor], *, base: bool | None = None) -> Tensor:
        """Return a node with the nodes that it reads held at some values: ``do`` on all of them, the noise as it is.

        Parameters
        ----------
        site
            The node's site.
        held
            For each node site that it reads the value, shape (m,); of a latent vector (m, ...).
        base
            Whether this is the baseline world or the switched one, for couplings that tell them apart; None where
            there is no such pair.
        """
        same = torch.ones(self.m, dtype=torch.bool)
        for parent, values in held.items():
            equal = values == self.factual[parent]
            if equal.ndim > 1:  # a latent node may be a vector
                equal = self.evidence.by_rows(parent, equal).reshape(self.m, -1).all(-1)
            same = same & equal
        laws_matter = base is True and any(self.other[name] is not self.own[name] for name in self.laws)
        if bool(same.all()) and not laws_matter:
            return self.factual[site]
        handler = _Supposed(self, site, held, base)
        with quiet(), handler, suppress(StopTracing):
            self.evidence.program(self.m)
        # What comes out as it did at the observed parents is as observed: rounding must not make another value, and so
        # another distribution, of it.
        found = handler.value.expand(self.m)
        same = same | (found == self.natural[site])
        return torch.where(same, self.factual[site], found.to(self.factual[site].dtype))

    # -- whole worlds --------------------------------------------------------------------------------------------------

    def had(self, values: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
        """Return the wanted nodes had some been set to values, shape (m,) each."""
        evidence = self.evidence
        found, chosen = dict(values), tuple(wanted)
        parents: dict[str, tuple[str, ...]] = {}
        waiting = list(chosen)
        while waiting:
            site = waiting.pop()
            if site not in found and site not in parents:
                parents[site] = evidence.info.causes(site, evidence.nodes)[0]
                waiting.extend(parents[site])
        for site in sorted(parents, key=evidence.info.sites.index):
            found[site] = self.value(site, {parent: found[parent] for parent in parents[site]})
        return {site: found[site] for site in chosen}

    def worlds(
        self, equations: Equations, values: Mapping[str, Tensor], wanted: Iterable[str]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the wanted nodes, the sensitive one left out, in the baseline and with the unfair paths switched.

        Parameters
        ----------
        equations
            The program with its unfair paths.
        values
            Nodes that are set in both worlds besides, shape (m,) each.
        wanted
            The node sites.
        """
        sensitive, (low, high) = equations.sensitive, equations.unfair.regimes
        base, switched = equations.states(low), equations.states(high)
        levels = sensitive_levels(equations.unfair.graph)
        done: dict[tuple[str, State], Tensor] = {}

        def read(site: str, state: State | int) -> Tensor:
            if isinstance(state, State):
                return values[site] if site in values else done[site, state]
            return torch.full_like(self.factual[sensitive], levels[state])

        def evaluate(states: Mapping[str, State]) -> dict[str, Tensor]:
            for site, state in equations.in_order(states, values):
                if (site, state) not in done:
                    held = {
                        parent: read(parent, part)
                        for parent, part in zip(equations.causes[site], state.parts, strict=True)
                    }
                    done[site, state] = self.value(site, held, base=state == base[site])
            return {site: read(site, state) for site, state in states.items()}

        shown = [site for site in wanted if site != sensitive]
        first = evaluate({site: base[site] for site in shown})
        return first, evaluate({site: switched[site] for site in shown})


class _WithNoise(Messenger):
    """Hold some sites, and give every other random site its value from the noise, so that a run only computes."""

    def __init__(self, crowd: Crowd, held: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.crowd, self.held = crowd, held

    def _pyro_sample(self, msg: Any) -> None:
        name, crowd, evidence = msg["name"], self.crowd, self.crowd.evidence
        if poutine.util.site_is_subsample(msg):
            return
        if name in self.held:
            self.note(name, msg)
            value = self.held[name]
        elif msg["is_observed"] or msg["value"] is not None:
            return
        elif name in evidence.parameters:
            value = evidence.parameters[name]
        elif name in evidence.implicit:
            value = self.draw(name, msg["fn"])
        elif name in crowd.noise:
            value = evidence.as_site(name, crowd.noise[name])
        elif name in evidence.observed:
            value = crowd.factual[name]
        elif name in evidence.spare:
            value = evidence.spare_for(name, crowd.m)
        else:
            return
        msg["value"], msg["done"] = value, True

    def note(self, name: str, msg: Any) -> None:
        """See a site that is held."""

    def draw(self, name: str, law: Any) -> Tensor:
        """Return the value of a site drawn without explicit noise."""
        raise NotImplementedError


class _Factual(_WithNoise):
    """Keep every node, and the distributions of those drawn without explicit noise."""

    def __init__(self, crowd: Crowd, given: Mapping[str, Tensor]) -> None:
        super().__init__(crowd, given)
        self.laws: dict[str, Any] = {}
        self.parameters: dict[str, list[Tensor]] = {}
        self.values: dict[str, Tensor] = {}
        self.natural: dict[str, Tensor] = {}

    def note(self, name: str, msg: Any) -> None:
        if is_deterministic(msg):
            self.natural[name] = msg["value"]
        if name in self.crowd.evidence.implicit and name != self.crowd.evidence.sensitive:
            self.keep(name, msg["fn"])

    def keep(self, name: str, law: Any) -> None:
        """Keep a distribution, and its parameters if other distributions will be compared with it."""
        self.laws[name] = law
        if self.crowd.evidence.coupling in ("independent", "antithetic"):
            self.parameters[name] = law_parameters(law)

    def draw(self, name: str, law: Any) -> Tensor:
        if name not in self.crowd.noise:
            return self.crowd.evidence.spare_for(name, self.crowd.m)
        self.keep(name, law)
        return at_noise(name, law, self.crowd.noise[name], self.crowd.evidence.coupling)

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.crowd.evidence.nodes or msg["name"] in self.crowd.evidence.observed:
            self.values[msg["name"]] = msg["value"]


class _Supposed(_WithNoise):
    """Draw with the noise that units have in this world, up to the site that is wanted."""

    def __init__(self, crowd: Crowd, site: str, held: Mapping[str, Tensor], base: bool | None) -> None:
        super().__init__(crowd, held)
        self.site, self.base = site, base
        self.base_laws = crowd.base_laws.setdefault(site, {})
        self.value = torch.empty(0)

    def draw(self, name: str, law: Any) -> Tensor:
        crowd = self.crowd
        coupling = crowd.evidence.coupling
        if name in crowd.redraws:
            return crowd.redraws[name].value(law, lambda _: draw_from(law))
        if name not in crowd.own:  # nothing observed depends on it
            return crowd.evidence.spare_for(name, crowd.m)
        own, other = crowd.own[name], crowd.other[name]
        if other is not own:
            now, factual = law_parameters(law), crowd.parameters[name]
            if self.base:
                self.base_laws[name] = now
            # There are two noises, the baseline distribution's and that of all other distributions; a unit's own one is
            # that of the distribution
            # under which she was observed.
            baseline = self.base_laws.get(name, factual)
            first = choose_noise(own, other, baseline, factual)
            second = choose_noise(other, own, baseline, factual)
            own = choose_noise(first, second, baseline, now)
        return at_noise(name, law, own, coupling)

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] == self.site:
            self.value = msg["value"]
            raise StopTracing
