"""Hidden causes that an estimate may have missed, and which stages of either world each of them moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from pyrofair._validation import did_you_mean, require_names
from pyrofair.exceptions import DataError
from pyrofair.graph.identification import Estimand
from pyrofair.nuisances.diagnostics import Stage
from pyrofair.sources.prefix_form import PrefixForm, World

__all__ = ["Block", "HiddenCause", "choose_causes", "hidden_causes", "whole_runs"]

Kind = Literal["", "group", "world", "later"]
"""What a hidden cause does to a stage: nothing; it differs between the groups; or between the world and the group, by
the odds of the sensitive attribute, or by a limit of its own."""
ALL = "all"


@dataclass(frozen=True)
class Block:
    """A stage, or a part of one, and what the hidden cause does to its distribution."""

    stage: Stage
    kind: Kind


@dataclass(frozen=True)
class HiddenCause:
    """A hidden common cause, written as a two-headed edge, with the blocks of both worlds that it moves.

    ``joint`` is whether one block has the same arm in both worlds, so that one ratio of densities enters both;
    ``sharp`` is whether the ends of each world, and of contrasts of both, are attained by a model with such a cause;
    ``limits`` names what gamma, and the limit of later runs if there is one, are limits of.
    """

    name: str
    limits: str
    blocks: tuple[tuple[Block, ...], tuple[Block, ...]]
    joint: bool
    sharp: tuple[bool, bool, bool]
    assumption: str


def hidden_causes(form: PrefixForm) -> tuple[HiddenCause, ...]:
    """Return the hidden causes that a form's numbers can be moved by: one for each child of A, and one of all."""
    estimand = form.estimand
    part = form.worlds[0].part
    nodes = [factor.node for factor in part.factors if factor.arm is not None]
    if estimand.target == "outcome" and part.outcome_arm is not None:
        nodes.append(estimand.unfair.graph.outcome)
    found = []
    if not _joined(estimand):
        found += [_of_group(form, node) for node in nodes]
        found += [each for node in nodes if (each := _of_mediators(form, node))]
    return (*found, _of_all(form)) if nodes else ()


def choose_causes(found: Sequence[HiddenCause], asked: object, estimand: Estimand) -> tuple[HiddenCause, ...]:
    """Return the hidden causes asked for by name, or all."""
    sensitive = estimand.unfair.graph.sensitive
    if not found:
        raise DataError(
            f"{sensitive!r} causes no feature, so that the features have one distribution in both worlds and no hidden "
            "cause moves the numbers: a classifier is a known function. Nothing is to be examined."
        )
    if asked is None:
        return tuple(found)
    names = require_names("hidden_causes", asked, "hidden causes, such as 'A <-> M'", one=True)
    by_name = {each.name: each for each in found}
    by_ends = {_ends(each.name): each for each in found}
    if not names:
        raise DataError("hidden_causes=() leaves nothing to examine; None takes all.")
    for name in names:
        if _ends(name) not in by_ends:
            raise DataError(
                f"hidden_causes={name!r} is not known; known are {', '.join(map(repr, by_name))}."
                f"{_why_unknown(name, found, estimand) or did_you_mean(name, by_name)}"
            )
    return tuple(by_ends[ends] for ends in dict.fromkeys(map(_ends, names)))


def _why_unknown(name: str, found: Sequence[HiddenCause], estimand: Estimand) -> str:
    """Return why there is no hidden cause of a name, or an empty string."""
    graph = estimand.unfair.graph
    outcome, sensitive = graph.outcome, graph.sensitive
    if _joined(estimand):
        return " A graph with latent causes of the features has the last alone."
    if estimand.target == "prediction" and (outcome,) in _ends(name):
        return (
            f" {outcome!r} is a prediction, a known function of the features, which no hidden cause moves; observed "
            "outcomes, passed as scores with scores='outcome', have one."
        )
    ends, caused = _ends(name), {*graph.descendants(sensitive)}
    of_mediators = len(ends) == 2 and all(end and caused >= {*end} for end in ends)
    if of_mediators and all((sensitive,) in _ends(each.name) for each in found):
        return (
            f" All that {sensitive} causes reads one value of it in the unfair-path world, as in a group of the "
            "data, so a hidden cause of mediators moves nothing."
        )
    return ""


def _ends(name: str) -> frozenset[tuple[str, ...]]:
    """Return what a two-headed edge joins, however it is written: either end first, with or without spaces."""
    return frozenset(tuple(sorted(end.strip(" {}").split())) for end in name.split("<->"))


def _joined(estimand: Estimand) -> bool:
    """Whether declared latent nodes join features, whose distributions a further hidden cause would then move too."""
    graph = estimand.unfair.graph
    part = estimand.baseline
    features = {*part.order[part.roots :], *([graph.outcome] if estimand.target == "outcome" else [])}
    return any(set(graph.children(node)) & features for node in graph.latent)


def _of_group(form: PrefixForm, node: str) -> HiddenCause:
    sensitive = form.estimand.unfair.graph.sensitive
    one, other = (_split(world, node, "group") for world in form.worlds)
    joint = _arm_of(one, node) == _arm_of(other, node)
    unread = _unread(form, node)
    text = (
        f"{sensitive} and {node} have a hidden common cause U that causes nothing else. The odds of {sensitive} given "
        f"U and what {sensitive} does not cause are at most gamma times, and at least 1 / gamma times, those without U "
        "(Tan's marginal sensitivity model)."
    )
    wide = f" The interval is valid; since {node} does not read {', '.join(unread)}, it may be too wide."
    text += wide if unread else " Such a U attains every bound."
    return HiddenCause(f"{sensitive} <-> {node}", _odds(sensitive), (one, other), joint, (not unread,) * 3, text)


def _unread(form: PrefixForm, node: str) -> tuple[str, ...]:
    """Return the nodes that A causes, before a node, and that it does not read."""
    part = form.worlds[0].part
    for factor in part.factors:
        if factor.node == node:
            return tuple(each for each in factor.before[part.roots :] if each not in factor.given)
    return tuple(each for each in part.order[part.roots :] if each not in part.outcome_given)


def _of_mediators(form: PrefixForm, node: str) -> HiddenCause | None:
    """Return the hidden cause of a node and of those before it that read the other value, if there are any."""
    sensitive = form.estimand.unfair.graph.sensitive
    world = form.worlds[1]
    nodes = _nodes(world, form.estimand)
    own = dict(nodes)[node]
    before = [each for each, arm in nodes[: [each for each, _ in nodes].index(node)] if arm not in (None, own)]
    if not before:
        return None
    named = before[0] if len(before) == 1 else "{" + " ".join(before) + "}"
    text = (
        f"{', '.join(before)} and {node} have a hidden common cause U, which {sensitive} is independent of given what "
        f"it does not cause. The odds of {sensitive} given U and the features before {node} are at most gamma times, "
        "and at least 1 / gamma times, those without U. The interval is valid; whether U can attain its ends and still "
        f"be independent of {sensitive} depends on the distribution, so that it may be too wide."
    )
    limits = f"gamma: odds of {sensitive} given the features before {node}"
    blocks = tuple(Block(stage, "") for stage in form.worlds[0].stages), _split(world, node, "world")
    return HiddenCause(f"{named} <-> {node}", limits, blocks, False, (True, False, False), text)


def _of_all(form: PrefixForm) -> HiddenCause:
    sensitive = form.estimand.unfair.graph.sensitive
    one, other = (whole_runs(world, form.estimand) for world in form.worlds)
    single = (len(one) == 1, len(other) == 1)
    joint = all(single) and one[0].stage.arm == other[0].stage.arm
    later = ", ".join(node for run in other if run.kind == "later" for node in run.stage.nodes)
    text = (
        f"{sensitive} and all features that it causes have a hidden common cause U, in whatever way. The odds of "
        f"{sensitive} given U and what {sensitive} does not cause are within a factor gamma of those without U"
    )
    text += (
        f". In the unfair-path world {later} follow features that read the other value of {sensitive}. Their "
        "distribution given these features, in that world and among the units of either group, is within a factor "
        "later_ratio of that in the group that reads their value. A cause that is independent of "
        f"{sensitive} may exceed this limit. The interval is valid. For the baseline world it is attained; others may "
        "be too wide."
        if later
        else " (Tan's marginal sensitivity model). Such a U attains every bound."
    )
    limits = _odds(sensitive) + f"; later_ratio: distribution of {later} given the features before" * bool(later)
    return HiddenCause(f"{sensitive} <-> {ALL}", limits, (one, other), joint, (*single, all(single)), text)


def _odds(sensitive: str) -> str:
    return f"gamma: odds of {sensitive} given what it does not cause"


def _nodes(world: World, estimand: Estimand) -> list[tuple[str, int | None]]:
    """Return the nodes after the roots with their arms, the outcome among them where it is averaged."""
    part = world.part
    found = [(factor.node, factor.arm) for factor in part.factors[part.roots :]]
    if estimand.target == "outcome":
        found.append((estimand.unfair.graph.outcome, part.outcome_arm))
    return found


def _arm_of(blocks: Sequence[Block], node: str) -> int | None:
    return next(block.stage.arm for block in blocks if node in block.stage.nodes)


def _split(world: World, node: str, kind: Kind) -> tuple[Block, ...]:
    """Return the stages of a world, that of a node split into what is before it, the node alone, and what is after."""
    found: list[Block] = []
    order = (*world.part.order, *(each for stage in world.stages for each in stage.nodes if each == node))
    for stage in world.stages:
        if node not in stage.nodes:
            found.append(Block(stage, ""))
            continue
        at = stage.nodes.index(node)
        for start, end in pairwise((0, at, at + 1, len(stage.nodes))):
            if start < end:
                first = stage.start + start
                part = Stage(stage.regime, stage.nodes[start:end], stage.arm, order[:first], first)
                found.append(Block(part, kind if start == at else ""))
    return tuple(found)


def whole_runs(world: World, estimand: Estimand) -> tuple[Block, ...]:
    """Return the runs of nodes that read one arm, those without an arm joined to the run before them."""
    nodes = _nodes(world, estimand)
    arms: list[int | None] = []
    for _, arm in nodes:
        arms.append(arm if arm is not None or not arms else arms[-1])
    found: list[Block] = []
    start = world.part.roots
    for arm, run in groupby(zip(nodes, arms, strict=True), key=lambda each: each[1]):
        names = tuple(node for (node, _), _ in run)
        kind: Kind = "" if arm is None else "later" if found else "group"
        found.append(Block(Stage(world.part.regime.name, names, arm, world.part.order[:start], start), kind))
        start += len(names)
    return tuple(found)
