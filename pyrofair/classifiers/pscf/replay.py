"""Rows replayed with the unfair paths switched off: noise inferred, fair edges evaluated on it, the outcome scored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._random import labelled_keys, row_keys
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError
from pyrofair.graph import UnfairPaths
from pyrofair.graph.paths import show_path, witness_message
from pyrofair.inference.amortised import AmortisedGuide
from pyrofair.inference.evidence import Evidence, GivenRows, distinct, repeat_each, require_possible
from pyrofair.inference.inversion import CHECKS, Equation, solve
from pyrofair.inference.noise import (
    ImpossibleNoise,
    KeyedNoise,
    KeyedUniforms,
    ReadSites,
    halves,
    noise_of_units,
    precision,
)
from pyrofair.mechanisms.encoders import Encoders
from pyrofair.programs.couplings import Coupling, Noise, inside, noise_given, partner, quantile, unwrap
from pyrofair.programs.provenance import Program
from pyrofair.programs.structural_equations import Equations, sensitive_levels
from pyrofair.programs.worlds import Evaluation, RunOnNoise, World

__all__ = ["FittedProgram", "Latents", "Plan", "Replayed", "fair_world", "outcome_probability", "read_plan", "replay"]

Latents = Literal["abducted", "posterior", "prior"]
UNITS_AT_ONCE = 2**14
"""So many draws of units are evaluated at once: what networks compute of more does not fit into the cache."""


# -- what is replayed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Unfair paths, the nodes redrawn on them in causal order, and the children of A that read the baseline.

    The outcome is one of these children if its edge is unfair. ``as_is``: every edge carries a unit's own value.
    """

    unfair: UnfairPaths
    redrawn: tuple[str, ...]
    switched: frozenset[str]
    as_is: bool = False

    @property
    def baseline(self) -> int:
        """The value, 0 or 1, that unfair paths carry."""
        return self.unfair.regimes[0].on_unfair

    def own(self) -> Plan:
        """Return the plan in which every edge carries a unit's own value, which redraws the unit as it is."""
        return replace(self, switched=frozenset(), as_is=True)

    def reads(self, node: str) -> tuple[str, ...]:
        """Return the observed parents of a node that keep the unit's own value where this node reads them."""
        graph = self.unfair.graph
        left_out = {*graph.latent, *self.redrawn, *([graph.sensitive] if node in self.switched else [])}
        return tuple(parent for parent in graph.parents(node) if parent not in left_out)

    def columns_read(self, latents: Latents) -> list[str]:
        """Return the columns that predictions depend on: unless latents come from the prior, also the redrawn ones."""
        graph = self.unfair.graph
        nodes = {parent for node in (*self.redrawn, graph.outcome) for parent in self.reads(node)}
        if latents != "prior":
            nodes |= {each for node in self.redrawn for each in (node, *graph.parents(node))}
        return graph.columns_of(node for node in graph.order if node in nodes - {*graph.latent})

    def keeps(self, group: int | None) -> bool:
        """Return whether no node of a group's rows takes another value; None if no prediction reads the group."""
        return group is None or group == self.baseline or not self.redrawn

    @property
    def shared(self) -> list[str]:
        """The nodes that a prediction reads and no unfair path touches, the sensitive attribute left out."""
        graph = self.unfair.graph
        nodes = {parent for node in (*self.redrawn, graph.outcome) for parent in self.reads(node)} - {graph.sensitive}
        return [node for node in graph.order if node in nodes]


def read_plan(unfair: UnfairPaths, *, given: bool = False) -> Plan:
    """Read off the unfair paths what must be redrawn.

    A recanting witness, which takes two values at once, is a NotIdentifiedError unless the model is ``given``, for no
    table shows how they belong together. An unfair path through a latent node, whose value no row holds, is a
    GraphError.
    """
    graph = unfair.graph
    if not given and (witnesses := unfair.recanting_witnesses()):
        raise NotIdentifiedError(witness_message(*witnesses[0]))
    redrawn = unfair.paths.nodes - {graph.sensitive, graph.outcome}
    for path in unfair.paths.through(graph.latent)[:1]:
        hidden = next(node for node in path if node in graph.latent)
        raise GraphError(
            f"The unfair path {show_path(path)} runs through the latent node {hidden!r}, whose fair value cannot be "
            "drawn: no data determine its distribution. Draw the graph without it, with edges from its causes to its "
            "effects."
        )
    switched = frozenset(unfair.paths.first_steps)
    return Plan(unfair, tuple(node for node in graph.order if node in redrawn), switched)


@dataclass(frozen=True, eq=False)
class FittedProgram:
    """A program with its parameters held, as structural equations, and the guide of its units' unknown noise.

    ``drawn`` are the noise sites that the guide draws; ``wide``, ``guide_wide``: the program, or the guide, takes
    values in float64. ``restrict`` makes a program of some sites, all others being held.
    """

    equations: Equations
    guide: AmortisedGuide | None
    drawn: tuple[str, ...]
    wide: bool
    guide_wide: bool
    restrict: Callable[[Collection[str]], Program] | None = None

    def only(self, sites: Collection[str]) -> Equations:
        """Return the equations of some sites, all others being held, in a faster program if there is one."""
        return self.equations if self.restrict is None else replace(self.equations, program=self.restrict(sites))

    @cached_property
    def outcome(self) -> str:
        """The site of the outcome."""
        graph = self.equations.unfair.graph
        found = [site for site, node in self.equations.node_of.items() if node == graph.outcome]
        if len(found) != 1:
            raise GraphError(
                f"The program has no site for the outcome {graph.outcome!r}, which is to be predicted. Add it: "
                f"pyro.sample({graph.outcome!r}, dist.Bernoulli(...)) inside the plate."
            )
        return found[0]

    @cached_property
    def hidden(self) -> tuple[str, ...]:
        """The sites of the graph's latent nodes, which no unfair path runs through."""
        equations = self.equations
        return tuple(site for site in equations.sites if equations.node_of[site] in equations.unfair.graph.latent)

    @cached_property
    def moving(self) -> frozenset[str]:
        """The sites that the guide draws whose distribution reads a node."""
        return self.equations.endogenous & {*self.drawn}

    @cached_property
    def noise_of_outcome(self) -> frozenset[str]:
        """The random sites that the outcome reads besides observed nodes: with them its probability differs."""
        seen = tuple(site for site in self.equations.node_of if site not in self.hidden)
        return frozenset(self.equations.info.causes(self.outcome, seen)[1])


# -- the replay --------------------------------------------------------------------------------------------------------


@dataclass
class Replayed:
    """Redrawn sites and the outcome's probability, (draws, m) each, and latent variables, (draws, m, ...)."""

    fair: dict[str, Tensor] = field(default_factory=dict)
    latents: dict[str, Tensor] = field(default_factory=dict)
    score: Tensor = field(default_factory=lambda: torch.empty(0))

    @classmethod
    def joined(cls, parts: Sequence[Replayed], dim: int = 0) -> Replayed:
        """Put the draws (dim 0) or the rows (dim 1) of several replays one after the other."""
        one = parts[0]
        return cls(
            {site: torch.cat([part.fair[site] for part in parts], dim) for site in one.fair},
            {site: torch.cat([part.latents[site] for part in parts], dim) for site in one.latents},
            torch.cat([part.score for part in parts], dim),
        )

    def changed(self, change: Callable[[Tensor], Tensor]) -> Replayed:
        """Return all values changed in one way."""
        fair, latents = ({site: change(each) for site, each in of.items()} for of in (self.fair, self.latents))
        return Replayed(fair, latents, change(self.score))


def replay(
    fitted: FittedProgram,
    plan: Plan,
    values: Mapping[str, Tensor],
    index: pd.Index[Any],
    *,
    latents: Latents,
    draws: int,
    seed: int,
    coupling: Coupling,
    labelled: bool = False,
    every: bool = False,
) -> Replayed:
    """Replay n rows: the redrawn sites where unfair edges carry the baseline and fair ones each row's own value.

    ``values`` (n,) are those of the sites that :meth:`Plan.columns_read` names, ``index`` labels the rows. A row's
    noise is made of its own values and the seed alone; unless it is abducted, of the values that no unfair path
    touches, so that rows which differ by unfair paths only have the same noise, and equal rows are replayed once. With
    ``labelled`` it is made of the row's label in ``index``, too: equal rows of different units have noise of their own.

    With ``"abducted"`` the noise is that of the row: its latent variables are drawn by the guide, and then the noise of
    each redrawn site given its value; a row with the baseline is given back as it is. With ``"posterior"`` the latent
    variables are those of the guide, with ``"prior"`` those of the program, and all other noise is drawn anew. With
    ``every`` the latent variables of such a row are drawn as often as others', though nothing depends on them.
    """
    n, node_of = len(index), fitted.equations.node_of
    keyed = [*node_of.values()] if latents == "abducted" else plan.shared
    keys = row_keys([each for site, each in values.items() if node_of[site] in keyed], n)
    keys = labelled_keys(keys, index) if labelled else keys
    with precision(wide=fitted.wide), torch.no_grad():
        typed = {site: _as_site(fitted, site, each) for site, each in values.items()}
        parts, order = list[Replayed](), list[Tensor]()
        own = typed.get(fitted.equations.sensitive)
        levels = sensitive_levels(fitted.equations.unfair.graph)
        table = torch.stack([torch.zeros(n, dtype=torch.float64), *(each.double() for each in typed.values())], 1)
        first, place = (torch.arange(n),) * 2 if labelled else distinct(table)
        groups: dict[int | None, Tensor] = {None: first}
        if own is not None:
            groups = {group: first[own[first] == levels[group]] for group in (0, 1)}
        for group, mine in groups.items():
            same = latents == "abducted" and plan.keeps(group) and not fitted.noise_of_outcome and not every
            count = 1 if same else draws
            for rows in torch.split(mine, max(UNITS_AT_ONCE // count, 1)) if len(mine) else ():
                at = rows.numpy()
                some = _Rows(
                    fitted, plan, {site: each[rows] for site, each in typed.items()}, keys[at], seed, index[at]
                )
                found = some.replay(group, latents, count, coupling)
                parts.append(found.changed(lambda each: each.expand(draws, *each.shape[1:])))
                order.append(rows)
        replayed = torch.empty(n, dtype=torch.int64)
        replayed[torch.cat(order)] = torch.arange(len(first))
        back = replayed[first[place]]
        return Replayed.joined(parts, 1).changed(lambda each: each[:, back])


def _as_site(fitted: FittedProgram, site: str, values: Tensor) -> Tensor:
    dtype = fitted.equations.info.dtypes[site]
    return values.to(torch.float64 if dtype.is_floating_point and fitted.wide else dtype)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some rows of one group: cells, the values of sites, (m,) each, and keys."""

    fitted: FittedProgram
    plan: Plan
    cells: Mapping[str, Tensor]
    keys: NDArray[np.uint64]
    seed: int
    index: pd.Index[Any]

    @property
    def _redrawn(self) -> list[str]:
        equations = self.fitted.equations
        return [site for site in equations.sites if equations.node_of[site] in self.plan.redrawn]

    def _uniform(self, draws: int) -> KeyedUniforms:
        return KeyedUniforms(self.keys, self.seed, draws)

    def replay(self, group: int | None, latents: Latents, draws: int, coupling: Coupling) -> Replayed:
        """Replay the rows of a group; None if no prediction reads the group."""
        fitted, plan, m = self.fitted, self.plan, len(self.keys)
        equations = fitted.equations
        redrawn = self._redrawn
        kept = latents == "abducted" and plan.keeps(group)
        uniform = self._uniform(draws)
        axes = equations.info.axes
        noise = KeyedNoise(m * draws, coupling, seed=None, uniform=uniform, axes=axes)
        wide = {site: repeat_each(each, draws) for site, each in self.cells.items()}
        latent = self._latents(noise, latents, draws) if redrawn or fitted.noise_of_outcome else {}
        noise.values.update(latent)  # noqa: PD011 - no table
        if latents != "prior":
            noise.values.update(self._solved(redrawn, latent, draws))  # noqa: PD011 - no table
        hidden = self._hidden(noise, wide, latent)
        if fitted.moving & latent.keys() and not (group is not None and group == plan.baseline):
            self._couple(noise, wide, latent, uniform)
        fair: World = {site: wide[site] for site in redrawn} if kept else {}
        if redrawn and not kept:
            if latents == "abducted":
                noise = self._abduct(noise, latent, draws, redrawn)
            held = {site: each for site, each in wide.items() if site not in (*redrawn, equations.sensitive)}
            fair = fair_world(fitted.equations, plan, noise, redrawn, held | hidden, group, fitted.restrict)
        read = plan.baseline if equations.unfair.graph.outcome in plan.switched else group
        held = {site: each for site, each in (wide | fair | hidden).items() if site != equations.sensitive}
        if read is not None:
            level = torch.tensor(sensitive_levels(equations.unfair.graph)[read], dtype=torch.float64)
            held[equations.sensitive] = _as_site(fitted, equations.sensitive, level).expand(m * draws)
        score = outcome_probability(fitted.only([fitted.outcome]), noise, fitted.outcome, held)
        if latents == "prior":
            latent = {site: noise.values[site] for site in fitted.drawn if site in noise.values}  # noqa: PD011 - no table

        def by_draw(each: Tensor, axis: int = 0) -> Tensor:
            units = each.movedim(axis, 0)
            return units.reshape(m, draws, *units.shape[1:]).transpose(0, 1)

        return Replayed(
            {site: by_draw(each) for site, each in fair.items()},
            {site: by_draw(each, axes.get(site, 0)) for site, each in latent.items()},
            by_draw(score),
        )

    # -- noise ---------------------------------------------------------------------------------------------------------

    def _latents(self, noise: KeyedNoise, latents: Latents, draws: int) -> dict[str, Tensor]:
        """Return the values of latent variables, in the shapes of their sites: of the guide, or of the program.

        Networks read a row once for all of its draws; what sites of a user's guide read of each other is not known.
        """
        fitted = self.fitted
        guide: Any = fitted.guide
        if latents == "prior" or guide is None:
            return {}
        types, once = fitted.equations.info.dtypes, isinstance(guide, Encoders)
        rows = {site: each if once else repeat_each(each, draws) for site, each in self.cells.items()}
        if not fitted.guide_wide:
            rows = {site: each.to(types[site]) for site, each in rows.items()}
        draw = partial(guide, rows, draws) if once else partial(guide, rows)
        with precision(wide=fitted.guide_wide):
            RunOnNoise(noise, (), {}).run(lambda _: draw())
        found = {site: noise.values.pop(site) for site in fitted.drawn}  # noqa: PD011 - no table
        return {site: _as_site(fitted, site, each) for site, each in found.items()}

    def _medians(self, noise: KeyedNoise, draws: int) -> dict[str, Tensor]:
        """Return the medians of the guide, in the shapes of its sites."""
        half = KeyedNoise(noise.n, noise.coupling, seed=None, uniform=halves, axes=noise.axes)
        return self._latents(half, "abducted", draws)

    def _hidden(self, noise: KeyedNoise, wide: World, latent: World) -> World:
        """Return the graph's latent nodes of the units, which fair edges carry as they are."""
        if not self.fitted.hidden:
            return {}
        run = ReadSites(noise, self.fitted.equations.endogenous, wide | latent, self.fitted.hidden)
        run.run(self.fitted.equations.program)
        return run.values  # noqa: PD011 - no table

    def _couple(self, noise: KeyedNoise, wide: World, latent: World, uniform: KeyedUniforms) -> None:
        """Put the noise behind latent variables whose distribution reads a node in place of their values."""
        moving = self.fitted.moving & latent.keys()
        run = ReadSites(noise, self.fitted.equations.endogenous, wide | latent, moving)
        run.run(self.fitted.equations.program)
        for site in moving:
            distribution, value = run.distributions[site], noise.values.pop(site)  # noqa: PD011 - no table
            own, _, _ = noise_given(site, distribution, value, noise.coupling, uniform)
            noise.pairs[site] = own, partner(own, noise.coupling, site, uniform)

    def _solved(self, redrawn: Sequence[str], latent: Mapping[str, Tensor], draws: int) -> dict[str, Tensor]:
        """Return the noise that rows determine, in the shapes of its sites; refuse what is neither solved nor drawn."""
        computed = [site for site in self.cells if site not in self.fitted.equations.info.random]
        if not computed and not self.fitted.noise_of_outcome - {*latent}:
            return {}
        evidence = self._evidence
        found = solve(evidence, {}, lines=True)
        explicit = found.noise.keys() - evidence.implicit
        known = {site: repeat_each(found.noise[site], draws) for site in explicit if bool(found.is_known(site).all())}
        for site in redrawn:
            known |= self._steps(site, known, latent, draws)
            if missing := [key for key in evidence.keys[site] if key not in known and key not in latent]:
                raise DataError(
                    f"The noise {', '.join(map(repr, missing))} of {site!r} is neither determined by a row, as that of "
                    "an equation is which is affine or monotone in it, nor drawn by a guide. Draw the node itself, "
                    f"pyro.sample({site!r}, distribution of its parents), or use pyrofair.SEM(...).counterfactual."
                )
        shared = self.fitted.noise_of_outcome & evidence.readers.keys()
        if missing := [key for key in shared if key not in known and key not in latent]:
            raise DataError(
                f"The outcome reads the noise {', '.join(map(repr, missing))}, on which a row bears, and which it does "
                "not determine. Give a guide= that draws it."
            )
        return {site: evidence.as_site(site, each) for site, each in known.items() if site not in latent}

    def _steps(
        self, site: str, known: Mapping[str, Tensor], latent: Mapping[str, Tensor], draws: int
    ) -> dict[str, Tensor]:
        """Return the one noise site of a computed node that is unknown, drawn within the step that gives its value."""
        evidence = self._evidence
        others = {name: evidence.by_rows(name, each) for name, each in latent.items()} | {**known}
        missing = [key for key in evidence.keys[site] if key not in others]
        if len(missing) != 1 or site in evidence.info.random or evidence.readers[missing[0]] != (site,):
            return {}
        if missing[0] in evidence.implicit:
            return {}
        given = evidence.given(repeat=draws)
        held = {key: others[key] for key in evidence.keys[site] if key in others}
        rows = repeat_each(torch.arange(evidence.n), draws)
        equation = Equation(evidence, rows, given, site, missing[0], held)
        found, u = equation.preimage(CHECKS), inside(1.0 - self._uniform(draws)(missing[0], (len(given[site]),)))
        if not bool((found.conclusive & found.possible).all()):
            return {}
        drawn = quantile(missing[0], equation.distribution, u)
        return {missing[0]: equation.draw_within(found, drawn, u)[0]}

    @cached_property
    def _evidence(self) -> Evidence:
        equations = self.fitted.equations
        observed = {site: each.double().numpy() for site, each in self.cells.items()}
        order = tuple(site for site in equations.info.sites if site in equations.node_of)
        columns = {site: site for site in observed}
        given = GivenRows(self.fitted.only(self._redrawn).program, equations.info, order, observed, columns, self.index)
        evidence = Evidence.read(
            given, coupling="gumbel", sensitive=equations.sensitive, parameters={}, wide=self.fitted.wide
        )
        require_possible(evidence, [site for site in observed if equations.node_of[site] in self.plan.redrawn])
        return evidence

    def _abduct(self, noise: KeyedNoise, latent: dict[str, Tensor], draws: int, redrawn: Sequence[str]) -> KeyedNoise:
        """Return the noise of the rows: what is known of it, and that of each redrawn site given its value.

        A draw of the guide that leaves a row's value no probability, in floating-point numbers, is no draw of the
        posterior: the median of the guide takes its place, in ``latent`` too.
        """
        evidence = replace(self._evidence, coupling=noise.coupling)
        replaced = torch.zeros(noise.n, dtype=torch.bool)
        while True:
            known = {site: evidence.by_rows(site, each) for site, each in noise.values.items()}  # noqa: PD011 - no table
            known |= {site: noise.pairs[site][0] for site in self.fitted.moving if site in noise.pairs}
            tails = replaced if latent else ~replaced
            try:
                rows = torch.arange(evidence.n)
                every, _ = noise_of_units(evidence, rows, draws, known, noise.uniform, redrawn, tails=tails)
                break
            except ImpossibleNoise as error:
                if not latent or not bool((error.units & ~replaced).any()):
                    raise
                replaced = replaced | error.units
                for site, median in self._medians(noise, draws).items():
                    axis = noise.axes.get(site, 0)
                    drawn, median = latent[site].movedim(axis, 0), median.movedim(axis, 0)
                    here = replaced.reshape(-1, *[1] * (drawn.ndim - 1))
                    latent[site] = torch.where(here, median, drawn).movedim(0, axis)
                noise.values.update(latent | self._solved(redrawn, latent, draws))  # noqa: PD011 - no table
        anew = self.fitted.noise_of_outcome - known.keys()
        values = {site: each for site, each in every.values.items() if site not in anew}  # noqa: PD011 - no table
        return KeyedNoise(
            noise.n, noise.coupling, values, every.pairs, every.redraws, None, every.observed, noise.uniform, noise.axes
        )


def fair_world(
    equations: Equations,
    plan: Plan,
    noise: Noise,
    sites: Sequence[str],
    held: World,
    group: int | None,
    restrict: Callable[[Collection[str]], Program] | None = None,
) -> World:
    """Evaluate sites on units' noise: fair edges carry the value of their group, and unfair ones the baseline.

    ``restrict`` is as for :class:`FittedProgram`.
    """
    switched = group is not None and group != plan.baseline
    bound = replace(equations, unfair=plan.unfair.reversed()) if switched else equations
    evaluation = replace(Evaluation.of(bound, noise), restrict=restrict)
    return evaluation.world(bound, sites, held, switched=switched and not plan.as_is)


def outcome_probability(equations: Equations, noise: Noise, site: str, held: World) -> Tensor:
    """Return P(outcome = 1) where all that the outcome reads is held, shape (n,)."""
    read = ReadSites(noise, equations.endogenous, held | {site: torch.zeros(noise.n)}, [site])
    read.run(equations.program)
    inner = unwrap(read.distributions[site])
    if isinstance(inner, torch.distributions.Bernoulli) and not read.distributions[site].event_shape:
        return torch.as_tensor(inner.probs).expand(noise.n)
    if isinstance(inner, torch.distributions.Categorical) and inner.probs.shape[-1] == 2:
        return inner.probs[..., 1].expand(noise.n)
    raise GraphError(
        f"The outcome {site!r} must be drawn in the program from a Bernoulli distribution, whose probability is "
        f'averaged: pyro.sample("{site}", dist.Bernoulli(...)).'
    )
