"""Numbers of a program without a prior: those of ``pyro.param`` and of networks, found, kept, and read again."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro import poutine
from torch import Tensor, nn

from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.inference.samplers import fitting
from pyrofair.programs.provenance import Program

__all__ = [
    "Stored",
    "allow_local_parameters",
    "collect_numbers",
    "copied_state",
    "modules_of",
    "warn_of_unseen_numbers",
]

MODULE = "$$$"
"""Stands in Pyro's names of parameters between a module and its own."""
TRIED = 11
"""A program is tried on so many units."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A program, or a guide, that reads fitted values of ``pyro.param`` instead of those of the global store."""

    call: Callable[..., Any]
    state: Mapping[str, Any]

    def __call__(self, *args: Any) -> None:
        """Run it."""
        params = {name: value.detach() for name, value in self.state["params"].items()}  # the store marks what it holds
        state: Any = {"params": params, "constraints": dict(self.state["constraints"])}
        with pyro.settings.context(module_local_params=True), pyro.get_param_store().scope(state):
            self.call(*args)


def copied_state(state: Any) -> Any:
    """Return a state of the parameter store with values of its own."""
    params = {name: value.detach().clone().requires_grad_() for name, value in state["params"].items()}
    return {"params": params, "constraints": dict(state["constraints"])}


def modules_of(*parts: Any) -> list[nn.Module]:
    """Return the networks that programs are, or whose methods they are."""
    owners = [part.__self__ if isinstance(part, types.MethodType) else part for part in parts]
    return [owner for owner in owners if isinstance(owner, nn.Module)]


def _unconstrained(site: Any) -> Tensor:
    """Return the number behind a ``param`` site; a module's own parameter is its own."""
    value: Any = site["value"]
    return value.unconstrained() if hasattr(value, "unconstrained") else value  # type: ignore[no-any-return]


def collect_numbers(run: Callable[[], Any], *parts: Any) -> list[Tensor]:
    """Return the numbers that a run reads by ``pyro.param``, and those of networks, each once."""
    with poutine.trace(param_only=True) as tracer:
        run()
    sites: Any = tracer.trace.nodes
    own = [each for module in modules_of(*parts) for each in module.parameters()]
    found, owned = [*map(_unconstrained, sites.values()), *own], {*map(id, own)}
    for name, site in sites.items():
        if MODULE in name and id(_unconstrained(site)) not in owned:
            raise DataError(
                f"The program or guide trains {name.split(MODULE)[0]!r} by pyro.module, a network that it closes over, "
                "so that a fit would change it in place. Make the network's class the program: a method of it, or "
                "forward(n)."
            )
    return list({id(each): each for each in found if each.requires_grad}.values())


def warn_of_unseen_numbers(program: Program) -> None:
    """Warn of numbers that require a gradient, and that are no part of the program that a fit can see."""
    with fitting(stored=True), poutine.trace() as tracer, torch.enable_grad():
        program(TRIED)
    sites: Any = tracer.trace.nodes
    tracer.trace.compute_log_prob()
    every = [site["log_prob"] if site["type"] == "sample" else site["value"] for site in sites.values() if "fn" in site]
    known = {id(_unconstrained(site)) for site in sites.values() if site["type"] == "param"}
    known |= {id(each) for module in modules_of(program) for each in module.parameters()}
    if any(id(leaf) not in known for leaf in _leaves(each for each in every if isinstance(each, Tensor))):
        warnings.warn(
            "The program reads numbers that require a gradient and reach it neither by pyro.param or pyro.module nor "
            "as those of a module that is the program, or whose method it is. They stay as they are. Make the class of "
            "the network the program, or, if they are known, put requires_grad_(False).",
            PyrofairWarning,
            stacklevel=4,
        )


def _leaves(values: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors that require a gradient on which values depend."""
    waiting, seen, found = [each.grad_fn for each in values if each.grad_fn is not None], set[Any](), list[Tensor]()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            if hasattr(node, "variable"):
                found.append(node.variable)
            waiting += [before for before, _ in node.next_functions if before is not None]
    return found


def allow_local_parameters(module: nn.Module) -> None:
    """Let Pyro's modules be run with numbers of their own, though they were made to keep them in the global store."""
    for part in module.modules():
        context = getattr(part, "_pyro_context", None)
        if context is not None and not hasattr(context, "param_state"):
            context.param_state = {"params": {}, "constraints": {}}
