"""Who reads whom in a Pyro program? Its sites in one run, and marks that travel along with their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine import runtime
from pyro.poutine.do_messenger import DoMessenger
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pyrofair.exceptions import GraphError, PyrofairError

__all__ = [
    "DENSITY",
    "HAND_OVER",
    "Followed",
    "Program",
    "RefusePlainDo",
    "UnreadableError",
    "at_parameters",
    "drawn_once",
    "evaluating",
    "fails_at",
    "first_line",
    "followed",
    "is_deterministic",
    "reading",
    "run_program",
    "says",
    "support_of",
    "to_array",
]

Program = Callable[[int], Any]
"""A Pyro program of the number of units."""
DENSITY = "log_prob"
HAND_OVER = (
    "Hand what is known of each unit over with the program: with_covariates(program, table), program(n, covariates), "
    "and covariates['x'] in place of x[:n]; see pyrofair.programs.covariates."
)
LENGTHS = ("size", "shape", "expand", "broadcast", "out of bounds", "out of range")
"""Words with which a failure tells that tensors have not the same length."""
PARTS = (torch.distributions.Distribution, dist.Distribution, torch.distributions.Transform, torch.nn.Module)
"""What a distribution may be made of."""


class UnreadableError(GraphError):
    """A step of reading a program failed, so that the program says nothing; it never counts as "no dependence"."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Refuse, naming what was being read, where reading it fails in any way."""
    try:
        yield
    except PyrofairError:
        raise
    except Exception as error:
        raise UnreadableError(
            f"{what} cannot be read: {first_line(error)}. Nothing is known of what it depends on, so the program is "
            "refused. Write it in Pyro's distributions and torch operations."
        ) from error


@contextmanager
def evaluating(n: int, doing: str = "its worlds are evaluated") -> Iterator[None]:
    """Refuse a program that fails when it is run for n units, with what was being done."""
    try:
        yield
    except PyrofairError:
        raise
    except Exception as error:
        raise GraphError(
            f"The program fails when {doing} for n={n} units: {first_line(error)}. It must run for any number of "
            "units, with its nodes set to any of their values."
        ) from error


def first_line(error: BaseException) -> str:
    """Return an error's type and the first line of its text; Pyro adds a table of shapes."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def fails_at(n: int, error: Exception, remedy: str = "") -> GraphError:
    """Return the refusal of a program that fails for n units, with a remedy: another one if lengths do not match."""
    told = f"The program failed when it was called with n={n} units: {first_line(error)}. It must run for any number. "
    if any(word in str(error) for word in LENGTHS):
        remedy = (
            "A tensor of fixed length that it closes over (a table, a buffer, data of poutine.condition or obs=), or a "
            f"plate of fixed size, fits one number of units alone: write pyro.plate('units', n). {HAND_OVER} Rows "
            "of data are handed over as a table (fit_posterior, abduct, SEM.counterfactual)."
        )
    return GraphError((told + remedy).strip())


def is_deterministic(site: Any) -> bool:
    """Tell whether a site is computed, by ``pyro.deterministic`` or as a reparametrised site is from its new noise."""
    if (site["infer"] or {}).get("_deterministic"):
        return True
    law = site["fn"]
    masked = isinstance(law, dist.MaskedDistribution) and law._mask is False
    return bool(site["is_observed"]) and masked and isinstance(law.base_dist, dist.Delta)


def support_of(law: Any) -> Any:
    """Return the support of a distribution, or None if it declares none."""
    try:
        return law.support
    except (AttributeError, NotImplementedError):
        return None


def run_program(program: Program, n: int, *handlers: Messenger) -> dict[str, Any]:
    """Run a program, hidden from handlers outside, and return its sites.

    Left out are those that choose a subsample, and what a site would have been that an intervention has set.
    """
    wrapped: Any = program
    for handler in reversed(handlers):
        wrapped = handler(wrapped)
    with poutine.block():
        nodes = poutine.trace(wrapped).get_trace(n).nodes
    return {
        name: site
        for name, site in nodes.items()
        if site["type"] == "sample" and not (poutine.util.site_is_subsample(site) or site["infer"].get("_natural"))
    }


class _AtParameters(Messenger):
    """Give parameters values that they can take."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.values = values

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values and msg["value"] is None:
            drawn = msg["fn"]()
            value = torch.as_tensor(self.values[msg["name"]], device="cpu").to(drawn.dtype)
            support = support_of(msg["fn"])
            possible = value.shape == drawn.shape and bool(value.isfinite().all())
            possible = possible and (support is None or bool(support.check(value).all()))
            msg["value"], msg["done"] = value if possible else drawn, True


def at_parameters(program: Program, posterior: Any, draw: int = 0) -> Program:
    """Return a program whose parameters are those of a draw of their posterior: elsewhere it may not even run.

    What is no value of a parameter is passed over; :meth:`pyrofair.programs.parameters.Priors.read` refuses it by name.

    Parameters
    ----------
    program
        The program. What is none is returned as it is.
    posterior
        A :class:`pyrofair.Posterior`, or for each parameter its draws.
    draw
        Which draw.
    """
    values = {}
    given = getattr(posterior, "flat", posterior)
    for name, draws in given.items() if isinstance(given, Mapping) else ():
        try:
            held = np.array(to_array(draws), order="C")
            values[str(name)] = torch.as_tensor(held[draw], device="cpu")
        except (TypeError, ValueError, IndexError, RuntimeError):  # no draws: Priors.read says so, by name
            continue
    handled: Program = _AtParameters(values)(program) if values and callable(program) else program
    return handled


def to_array(values: Any) -> NDArray[Any]:
    """Return numbers as an array; a tensor, or a list of them, may require gradients and lie on any device.

    >>> to_array([torch.tensor(1.0, requires_grad=True), 2]).tolist()
    [1.0, 2.0]
    """
    if isinstance(values, list | tuple):
        return np.asarray([each.detach().cpu() if isinstance(each, Tensor) else each for each in values])
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


class RefusePlainDo(Messenger):
    """Refuse a program that Pyro's own ``do`` intervenes on: what it sets is hidden from all handlers outside."""

    def _pyro_sample(self, msg: Any) -> None:
        inside = runtime._PYRO_STACK[runtime._PYRO_STACK.index(self) :]
        if found := [handler for handler in inside if type(handler) is DoMessenger]:
            raise GraphError(
                f"pyro.poutine.do sets {', '.join(map(repr, found[0].data))} inside the program, and the site of that "
                "name is what it would have been, which nobody reads. Use pyrofair.do, whose sites are "
                "what they are set to."
            )


def _numbers(law: Any) -> dict[str, Tensor]:
    """Return the tensors that a distribution is made of, by where they stand in it, without what it remembers of other
    runs.

    They are looked for in distributions, transforms, modules, containers and bound arguments. Transforms and their
    inverses hold each other, so each is entered once.
    """
    found: dict[str, Tensor] = {}
    entered: dict[int, Any] = {}
    waiting: list[tuple[str, Any]] = [("", law)]
    while waiting:
        name, part = waiting.pop()
        if isinstance(part, Tensor):
            found[name] = part
            continue
        inside: Mapping[Any, Any]
        if isinstance(part, PARTS):
            inside = {key: value for key, value in vars(part).items() if key != "_mask" and key[:7] != "_cached"}
        elif isinstance(part, Mapping):
            inside = part
        elif isinstance(part, list | tuple):
            inside = dict(enumerate(part))
        elif isinstance(part, partial):
            inside = {"args": part.args, "keywords": part.keywords}
        else:
            continue
        if id(part) not in entered:
            entered[id(part)] = part
            waiting += [(f"{name}/{type(part).__name__}/{key}", value) for key, value in inside.items()]
    return found


def says(site: Any, *, dense: bool = True) -> dict[str, Tensor]:
    """Return what tells a site's equation: its value, or the numbers of its distribution and its log-probability.

    A distribution that has no density, or whose density is not asked for, is told by its numbers. Where a site is
    observed, its value and what masks or scales the log-probability count, too.

    Raises
    ------
    UnreadableError
        If the distribution cannot be read, or has neither a density nor numbers.
    """
    if is_deterministic(site):
        return {"value": site["value"]}
    law = site["fn"]
    with reading(f"The distribution of the site {site['name']!r}, {type(law).__name__},"):
        numbers = _numbers(law)
        if site["is_observed"]:
            numbers |= {name: site[name] for name in ("value", "mask", "scale") if isinstance(site[name], Tensor)}
        if numbers and not dense:
            return numbers
        try:
            # Detaching also drops what a value remembers of its draw, as that of a straight-through distribution does.
            return {**numbers, DENSITY: law.log_prob(detach_provenance(site["value"]).detach())}
        except NotImplementedError:
            if not numbers:
                raise
            return numbers


# -- marks that travel along ------------------------------------------------------------------------------------------

EXITS = {"numpy", "tolist", "tensor", "__array__", "__dlpack__", "__setitem__"}
SINGLE = {"item", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__"}
"""The functions of torch whose result carries no marks, and those that make one number."""


@dataclass
class Followed:
    """What is seen of a program by following marks.

    Parameters
    ----------
    reads
        For each site the sites whose marks reach its distribution or value.
    left
        The sites whose marks are lost on the way, and where: what reads them cannot be followed from there.
    """

    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


class _Exits(TorchFunctionMode):
    """Count how often each mark leaves torch by each function."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[tuple[str, str], int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in EXITS or name in SINGLE:
            # What is assigned into a tensor that has its mark anyhow is not lost.
            kept = get_provenance(args[0]) if name == "__setitem__" else frozenset()
            for mark in get_provenance([args, kwargs]) - kept:
                self.times[mark, name] = self.times.get((mark, name), 0) + 1
        return made

    def left(self, n: int) -> dict[str, str]:
        """Return the marks that left, and how; a number that is not read for each unit is one of them all."""
        return {mark: name for (mark, name), times in self.times.items() if name in EXITS or times >= n}


class _Track(Messenger):
    """Mark each per-unit site's value with its name, and note which marks its distribution or value carries."""

    def __init__(self, sites: Collection[str], parameters: Collection[str], exits: _Exits) -> None:
        super().__init__()
        self.sites, self.parameters, self.exits = sites, parameters, exits
        self.reads: dict[str, frozenset[str]] = {}
        self.before: dict[tuple[str, str], int] = {}

    def _pyro_sample(self, msg: Any) -> None:
        self.before = dict(self.exits.times)

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if name in self.sites:
            self.reads[name] = get_provenance(list(says(msg).values()))
            msg["value"] = ProvenanceTensor(detach_provenance(msg["value"]), frozenset({name}))
        elif name in self.parameters and (marks := get_provenance(list(says(msg).values()))):
            raise drawn_once(name, marks)
        self.exits.times = (
            self.before
        )  # a distribution that is drawn from keeps its secrets: its marks have just been read


def drawn_once(name: str, marks: Iterable[str]) -> GraphError:
    """Return the error of a parameter that reads per-unit sites."""
    return GraphError(
        f"The site {name!r} is drawn once, outside the plate of units, and yet reads what differs between "
        f"people: {', '.join(sorted(marks))}. Put it inside the plate."
    )


def followed(program: Program, n: int, sites: Collection[str], parameters: Collection[str]) -> Followed:
    """Return what each site reads through torch's operations, and what cannot be followed.

    Parameters
    ----------
    program, n
        The program, and the number of units.
    sites, parameters
        The per-unit sites; those drawn once.

    Raises
    ------
    GraphError
        If a site that is drawn once reads a per-unit one, or the program or a distribution fails with marked values.
    """
    exits = _Exits()
    track = _Track(sites, parameters, exits)
    with reading("The program, followed by marks on its values,"), exits:
        run_program(program, n, track)
    return Followed(track.reads, exits.left(n))
