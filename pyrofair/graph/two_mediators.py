"""Graphs of two mediators, one of them a recanting witness: what each node reads in a world, or why not."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from pyrofair.exceptions import GraphError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import Regime, UnfairPaths, show_path

__all__ = ["Arms", "Form"]


@dataclass(frozen=True)
class Arms:
    """The value of the sensitive attribute that the outcome (None: it reads none), R and M read in a world."""

    outcome: int | None
    witness: int
    mediator: int


@dataclass(frozen=True)
class Form:
    """The two mediators, and the arms of each world; None for one that is identified, whose rows have ``baseline``."""

    witness: str
    mediator: str
    worlds: tuple[Arms | None, Arms]
    baseline: int

    @classmethod
    def of(cls, unfair: UnfairPaths, *, literal: bool) -> Form:
        """Return the form of unfair paths, or refuse a graph or paths to which it does not apply."""
        graph = unfair.graph
        witness, mediator = _mediators(graph)
        _refuse_latent(graph, witness, mediator)
        before, after = (_arms(regime, witness, mediator) for regime in unfair.regimes)
        a, y, low, high = graph.sensitive, graph.outcome, before.witness, 1 - before.witness
        if literal and {*unfair.paths} not in ({(a, y)}, {(a, y), (a, witness, y)}):
            raise GraphError(
                f"literal=True has the paper's formulas, which are for {a} -> {y}; got "
                f"{'; '.join(map(show_path, unfair.paths)) or 'no path'}. Leave literal out."
            )
        if literal:
            return cls(witness, mediator, (Arms(low, low, low), Arms(high, high, low)), low)
        if after.witness == after.mediator:
            raise GraphError(_why_identified(unfair, after, witness, mediator))
        return cls(witness, mediator, (None, after), low)


def _mediators(graph: CausalGraph) -> tuple[str, str]:
    """Return the nodes R and M of a graph of the right form."""
    a, y = graph.sensitive, graph.outcome
    others = [node for node in graph.observed if node not in (a, y)]
    form = f"the closed form is for {a} -> R; {a} -> M; R -> M; {{{a} R M}} -> {y}, with two observed mediators R and M"
    if covariates := [node for node in others if a not in graph.ancestors(node)]:
        what = f"{', '.join(map(repr, covariates))} {'is a covariate' if len(covariates) == 1 else 'are covariates'}"
        raise GraphError(f"{what}, which {a!r} does not cause, and {form} and no covariates.")
    if len(others) != 2:
        raise GraphError(
            f"{form}; the graph has {len(others)} observed mediator(s), {', '.join(map(repr, others)) or 'none'}. A "
            "node may have several columns: CausalGraph(..., columns={'R': [...]})."
        )
    edges = {*graph.edges}
    for witness, mediator in (others, others[::-1]):
        if {(a, witness), (witness, mediator), (witness, y), (mediator, y)} <= edges:
            return witness, mediator
    missing = "; ".join(f"{tail} -> {head}" for tail, head in graph.edges if tail not in graph.latent)
    raise GraphError(
        f"{form}; without {a} -> R, R -> M, R -> {y} or M -> {y} no bounds are needed. The graph: {missing}."
    )


def _refuse_latent(graph: CausalGraph, witness: str, mediator: str) -> None:
    """Refuse latent nodes that confound the sensitive attribute with R or M, or mediate its effect."""
    a = graph.sensitive
    for node in graph.latent:
        if node in graph.descendants(a):
            raise GraphError(
                f"The latent node {node!r} is caused by {a!r}, and paths through it have no bounds here: the closed "
                "form takes latent nodes that are common causes."
            )
        if node not in graph.ancestors(a):
            continue
        below = nx.descendants(graph.dag.subgraph({*graph.nodes} - {a}), node)
        if other := next((each for each in (witness, mediator) if each in below), None):
            raise GraphError(
                f"The latent node {node!r} causes both {a!r} and {other!r}: P({other} given {a}) is not what {other!r} "
                f"would be with {a!r} set, on which the bounds rest. Measure {node!r}."
            )


def _arms(regime: Regime, witness: str, mediator: str) -> Arms:
    """Return what the outcome, R and M read in a regime; refuse an M that reads one value itself and one through R."""
    graph = regime.unfair.graph
    a, y = graph.sensitive, graph.outcome
    direct, through = (a, mediator, y), (a, witness, mediator, y)
    value = regime.value(through)
    if (a, mediator) in graph.edges and regime.value(direct) != value:
        raise GraphError(
            f"{show_path(direct)} and {show_path(through)} are on different sides, so that {mediator!r} would read one "
            f"value of {a!r} itself and the other through {witness!r}. Call both paths unfair, or both fair."
        )
    return Arms(regime.value((a, y)) if (a, y) in graph.edges else None, regime.value((a, witness, y)), value)


def _why_identified(unfair: UnfairPaths, arms: Arms, witness: str, mediator: str) -> str:
    """Return why the paths need no bounds, and what to use."""
    graph = unfair.graph
    a, y = graph.sensitive, graph.outcome
    paths = "; ".join(map(show_path, unfair.paths)) or "no path"
    inside = f"{arms.outcome}, {mediator}, {witness}" if arms.outcome is not None else f"{mediator}, {witness}"
    text = (
        f"The effect along {paths} is identified, a point: {y} is a prediction from known columns, so P(Ypi = 1) is "
        f"the mean of c({inside}) over the rows with {a}={arms.witness}, and a latent common cause of {witness} and "
        f"the observed {y} confounds nothing. Use IPW(unfair), GComputation(unfair) or pf.audit(models, unfair, df)."
    )
    if {*unfair.paths} == {(a, y)}:
        text += (
            f" The closed form answers another question: it takes {witness} given {a}=1, so that it bounds the effect "
            f"along {a} -> {y} and {a} -> {witness} -> {y} together. Call both unfair for that; literal=True gives the "
            "formulas as the paper prints them."
        )
    return text
