"""Runs of a Pyro program, and the provenance of values: which sites a distribution or value is computed from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import pyro
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

from pyrofair._random import isolated
from pyrofair.exceptions import GraphError, PyrofairError

__all__ = [
    "DENSITY",
    "HAND_OVER",
    "Program",
    "Provenance",
    "RefusePlainDo",
    "Signature",
    "UnreadableError",
    "apply_outside",
    "drawn_once",
    "evaluating",
    "fails_at",
    "first_line",
    "follow",
    "is_deterministic",
    "numbers_in",
    "reading",
    "run_program",
    "signature",
    "support_of",
    "to_array",
    "undisturbed",
    "upstream",
    "weights_of",
]

Program = Callable[[int], Any]
"""A Pyro program of the number of units."""
Signature = dict[str, Tensor]
"""What determines a site: its value if computed, else its distribution's parameters and its log-probability."""
DENSITY = "log_prob"
HAND_OVER = (
    "Hand what is known of each unit over with the program: with_covariates(program, table), program(n, covariates), "
    "and covariates['x'] in place of x[:n]; see pyrofair.programs.covariates."
)
LENGTHS = ("size", "shape", "expand", "broadcast", "out of bounds", "out of range")
"""Words in the error of tensors whose lengths differ."""
PARTS = (torch.distributions.Distribution, dist.Distribution, torch.distributions.Transform, torch.nn.Module)
"""What may hold the parameters of a distribution."""


class UnreadableError(GraphError):
    """A step of reading a program failed; that never counts as "no dependence"."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise an UnreadableError that names what was being read, whatever error occurs."""
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
def undisturbed(what: str, dtype: torch.dtype | None = None) -> Iterator[None]:
    """Read a program without side effects: seeded, no gradients, validation or warnings, in a default type if given."""
    with (
        reading(what),
        isolated(0),
        pyro.validation_enabled(False),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        inside = torch.get_default_dtype()
        torch.set_default_dtype(dtype or inside)
        try:
            yield
        finally:
            torch.set_default_dtype(inside)


@contextmanager
def evaluating(n: int, doing: str = "its worlds are evaluated") -> Iterator[None]:
    """Raise a GraphError for a program that fails when it is run for n units, with what was being done."""
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
    """Return the error of a program that fails for n units, with a remedy if it has to do with n or the call."""
    message = f"The program failed when it was called with n={n} units: {first_line(error)}."
    if any(word in str(error) for word in LENGTHS):
        remedy = (
            " It must run for any number. A tensor of fixed length that it closes over (a table, a buffer, data of "
            "poutine.condition or obs=), or a "
            f"plate of fixed size, fits one number of units alone: write pyro.plate('units', n). {HAND_OVER} Rows "
            "of data are handed over as a table (fit_posterior, abduct, SEM.counterfactual)."
        )
    elif isinstance(error, TypeError) and "argument" in str(error):
        remedy = " " + remedy
    else:
        remedy = ""
    return GraphError((message + remedy).strip())


def is_deterministic(site: Any) -> bool:
    """Return whether a site is computed, by ``pyro.deterministic`` or from the noise of a reparametrisation."""
    if (site["infer"] or {}).get("_deterministic"):
        return True
    fn = site["fn"]
    masked = isinstance(fn, dist.MaskedDistribution) and fn._mask is False
    return bool(site["is_observed"]) and masked and isinstance(fn.base_dist, dist.Delta)


def support_of(distribution: Any) -> Any:
    """Return the support of a distribution, or None if it declares none."""
    try:
        return distribution.support
    except (AttributeError, NotImplementedError):
        return None


def weights_of(site: Any) -> list[Any]:
    """Return what masks or scales the log-probability of a site, inside its distribution, too."""
    found, fn = [site["mask"], site["scale"]], site["fn"]
    while fn is not None:
        found.append(getattr(fn, "_mask", None))
        fn = getattr(fn, "base_dist", None)
    return found


def run_program(program: Program, n: int, *handlers: Messenger) -> dict[str, Any]:
    """Run a program, hidden from handlers outside, and return its sites but subsamples and natural values."""
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


def to_array(values: Any) -> NDArray[Any]:
    """Return numbers as an array; a tensor, or a list of them, may require gradients and lie on any device."""
    if isinstance(values, list | tuple):
        return np.asarray([each.detach().cpu() if isinstance(each, Tensor) else each for each in values])
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def apply_outside(handler: Messenger, site: Any) -> None:
    """Apply the handlers outside one to a site; those inside have processed it already."""
    stack = runtime._PYRO_STACK
    inner = stack[stack.index(handler) :]
    del stack[stack.index(handler) :]
    try:
        runtime.apply_stack(site)
    finally:
        stack.extend(inner)


class RefusePlainDo(Messenger):
    """Refuse a program with ``pyro.poutine.do`` inside: the values that it sets are hidden from handlers outside."""

    def _pyro_sample(self, msg: Any) -> None:
        inside = runtime._PYRO_STACK[runtime._PYRO_STACK.index(self) :]
        if found := [handler for handler in inside if type(handler) is DoMessenger]:
            raise GraphError(
                f"pyro.poutine.do sets {', '.join(map(repr, found[0].data))} inside the program, and the site of that "
                "name holds the natural value, which no other site reads. Use pyrofair.do, whose sites hold the values "
                "that they are set to."
            )


def numbers_in(
    part: Any,
    enter: tuple[type, ...] = PARTS,
    skip: Collection[str] = ("_mask",),
    *,
    constants: bool = False,
    keep: type | tuple[()] = (),
) -> dict[str, Any]:
    """Return the tensors (numbers of Python, too, if ``constants``) that a part holds, by their paths in it.

    They are looked for in the types to ``enter``, in containers, and in what functions are bound to, but not in
    attributes to ``skip`` and what is cached. Transforms and their inverses hold each other, so each is entered once.
    Parts to ``keep`` are returned as they are.
    """
    found: dict[str, Any] = {}
    entered: dict[int, Any] = {}
    waiting: list[tuple[str, Any]] = [("", part)]
    while waiting:
        name, each = waiting.pop()
        if isinstance(each, (Tensor, keep)) or (constants and isinstance(each, int | float)):
            found[name] = each
            continue
        inside: Mapping[Any, Any]
        if isinstance(each, torch.distributions.transforms._InverseTransform):
            inside = {"inv": each.inv}
        elif isinstance(each, enter):
            inside = {key: value for key, value in vars(each).items() if key not in skip and "_cache" not in key}
        elif isinstance(each, Mapping):
            inside = each
        elif isinstance(each, list | tuple):
            inside = dict(enumerate(each))
        elif isinstance(each, partial):
            inside = {"args": each.args, "keywords": each.keywords}
        elif isinstance(each, FunctionType):
            inside = {i: cell.cell_contents for i, cell in enumerate(each.__closure__ or ())}
        else:
            continue
        if id(each) not in entered:
            entered[id(each)] = each
            waiting += [(f"{name}/{type(each).__name__}/{key}", value) for key, value in inside.items()]
    return found


def signature(site: Any, *, dense: bool = True) -> Signature:
    """Return the tensors that determine a site, its log-probability among them unless ``dense`` is false.

    Where a site is observed, its value and what masks or scales its log-probability count, too. An unreadable
    distribution, or one with neither a density nor parameters, is an UnreadableError.
    """
    if is_deterministic(site):
        return {"value": site["value"]}
    fn = site["fn"]
    with reading(f"The distribution of the site {site['name']!r}, {type(fn).__name__},"):
        numbers = numbers_in(fn)
        if site["is_observed"]:
            numbers |= {name: site[name] for name in ("value", "mask", "scale") if isinstance(site[name], Tensor)}
        if numbers and not dense:
            return numbers
        try:
            # Detaching also drops the provenance that a value keeps of its draw, as a straight-through draw does.
            return {**numbers, DENSITY: fn.log_prob(detach_provenance(site["value"]).detach())}
        except NotImplementedError:
            if not numbers:
                raise
            return numbers


# -- provenance -------------------------------------------------------------------------------------------------------

EXITS = {"numpy", "tolist", "tensor", "__array__", "__dlpack__", "__setitem__"}
SINGLE = {"item", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__"}
"""The functions of torch whose result carries no provenance, and those that make one number."""


def upstream(names: Iterable[str], reads: Mapping[str, Iterable[str]], stops: Collection[str]) -> set[str]:
    """Return some sites and all that lead to them, going no further up than the ``stops``."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(() if name in stops else reads.get(name, ()))
    return found


@dataclass
class Provenance:
    """The provenance of each site of one run, in the order of the run.

    ``reads`` holds the sites that a distribution or value is computed from, ``weighed`` those that mask or scale its
    log-probability, and ``left`` the sites whose provenance is lost in a function of torch, with its name. ``drawn``
    are the sites that are drawn, ``computed`` those of ``pyro.deterministic``, ``stored`` those of ``pyro.param``.
    """

    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    weighed: dict[str, frozenset[str]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    drawn: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)

    def among(self, names: Iterable[str], stops: Collection[str]) -> set[str]:
        """Return some sites, with those outside ``stops`` that are computed replaced by what they read there."""
        return upstream(names, {name: self.reads[name] for name in self.computed}, stops) & {*stops}

    def descendants(self, sites: Iterable[str]) -> set[str]:
        """Return the sites that some sites influence, without themselves."""
        start = {*sites}
        return {site for site, above in self.reads.items() if upstream(above, self.reads, ()) & start} - start


class _Exits(TorchFunctionMode):
    """Count how often the provenance of each site is lost in each function of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[tuple[str, str], int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in EXITS or name in SINGLE:
            # Provenance of what is assigned into a tensor that has it already is not lost.
            kept = get_provenance(args[0]) if name == "__setitem__" else frozenset()
            for site in get_provenance([args, kwargs]) - kept:
                self.times[site, name] = self.times.get((site, name), 0) + 1
        return made

    def left(self, n: int) -> dict[str, str]:
        """Return the sites that left, and how; a single number that is not read for each unit describes them all."""
        return {site: name for (site, name), times in self.times.items() if name in EXITS or times >= n}


class _Track(Messenger):
    """Let each site's value carry the site's name, and note the names that reach other sites."""

    def __init__(self, exits: _Exits, drawn: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.exits, self.drawn, self.found = exits, drawn, Provenance()
        self.before: dict[tuple[str, str], int] = {}

    def _pyro_sample(self, msg: Any) -> None:
        self.before = dict(self.exits.times)
        if msg["name"] in self.drawn and msg["value"] is None:
            msg["value"], msg["done"] = self.drawn[msg["name"]], True

    def _pyro_post_sample(self, msg: Any) -> None:
        if poutine.util.site_is_subsample(msg) or (msg["infer"] or {}).get("_natural"):
            return
        name, found = msg["name"], self.found
        found.reads[name] = get_provenance(list(signature(msg).values()))
        found.weighed[name] = get_provenance([each for each in weights_of(msg) if isinstance(each, Tensor)])
        if is_deterministic(msg):
            found.computed.append(name)
        elif not msg["is_observed"]:
            found.drawn.append(name)
        msg["value"] = ProvenanceTensor(detach_provenance(msg["value"]), frozenset({name}))
        self.exits.times = self.before  # what is lost in drawing from a distribution has just been read off it

    def _pyro_post_param(self, msg: Any) -> None:
        self.found.stored.append(msg["name"])


def follow(program: Program, n: int) -> tuple[dict[str, Any], Provenance]:
    """Run a program on n units; return its sites, values without provenance, and the provenance of each.

    Some families draw by operations that take no provenance. If one fails, the values are those of another run.
    """
    try:
        return _follow(program, n, {})
    except UnreadableError:
        plain = run_program(program, n)
        return _follow(program, n, {name: site["value"] for name, site in plain.items() if not is_deterministic(site)})


def _follow(program: Program, n: int, drawn: Mapping[str, Tensor]) -> tuple[dict[str, Any], Provenance]:
    exits = _Exits()
    track = _Track(exits, drawn)
    with reading("The program, with the provenance of its values followed,"), exits:
        sites = run_program(program, n, track)
    track.found.left = exits.left(n)
    return {name: {**site, "value": detach_provenance(site["value"])} for name, site in sites.items()}, track.found


def drawn_once(name: str, read: Iterable[str]) -> GraphError:
    """Return the error of a parameter that reads per-unit sites."""
    return GraphError(
        f"The site {name!r} is drawn once, outside the plate of units, and yet reads what differs between "
        f"units: {', '.join(sorted(read))}. Put it inside the plate."
    )
