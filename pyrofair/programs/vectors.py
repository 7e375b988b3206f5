"""Vector-valued sites of a program as scalar sites: one for each component, drawn given those before it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor, distributions

from pyrofair.exceptions import GraphError
from pyrofair.programs.couplings import unwrap
from pyrofair.programs.provenance import Program, apply_outside, is_deterministic
from pyrofair.programs.sites import UNITS, Outline, ProgramSites, read_outline, read_sites

__all__ = [
    "Components",
    "ScalarProgram",
    "ScalarSites",
    "component_names",
    "component_of",
    "find_vectors",
    "has_points",
    "is_vector",
    "read_scalar_sites",
]

WRAPPERS = (distributions.Independent, dist.ExpandedDistribution)
WHOLE = "{} (vector)"
"""The site of a vector of one component, which has its name."""


# -- which sites, and what their components are called -----------------------------------------------------------------


@dataclass(frozen=True)
class Components:
    """A vector-valued site as scalar sites: its shape, -1 for n, and a name for each component, last index fastest."""

    shape: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def dim(self) -> int:
        """The dimension of units, counted from the right: -1 is the last."""
        return self.shape.index(UNITS) - len(self.shape)

    def indices(self, dims: int = 0) -> list[tuple[Any, ...]]:
        """Return the index of each component into tensors of the site's dimensions but for the last ``dims``."""
        shape = self.shape[: len(self.shape) - dims]
        every = product(*([slice(None)] if size == UNITS else range(size) for size in shape))
        return [(Ellipsis, *index) for index in every]

    def join(self, values: Sequence[Tensor]) -> Tensor:
        """Return the values of the components, shape (..., n) each, as one tensor in the shape of the site."""
        every: list[Tensor] = list(torch.broadcast_tensors(*values))  # type: ignore[no-untyped-call]
        vector = torch.stack(every, -1)
        vector = vector.reshape(*vector.shape[:-1], *(size for size in self.shape if size != UNITS))
        return vector.movedim(-len(self.shape), self.dim)


def component_names(site: str, shape: Sequence[int]) -> tuple[str, ...]:
    """Return the default names of the components of a site; a site with one component keeps its name."""
    sizes = [size for size in shape if size != UNITS]
    every = [",".join(map(str, index)) for index in product(*map(range, sizes))]
    return (site,) if len(every) == 1 else tuple(f"{site}[{index}]" for index in every)


@dataclass(frozen=True, eq=False)
class ScalarSites:
    """A program whose nodes have one number for each unit, and what was read off it.

    ``columns`` holds for each node its sites, or names for its columns, ``vectors`` the sites replaced by components.
    """

    program: Program
    info: ProgramSites
    columns: dict[str, tuple[str, ...]]
    vectors: dict[str, Components]


def read_scalar_sites(
    program: Program,
    columns: Mapping[str, Sequence[str]],
    probe: Program | None = None,
    latent: Collection[str] = (),
    *,
    nodes_only: bool = False,
) -> ScalarSites:
    """Read a program, and replace each vector-valued node by a scalar site for each of its components.

    The components of a vector are drawn one after the other, each given those before it: independent elements from
    their own distributions, those of a ``MultivariateNormal`` from their conditional distributions (the noise is that
    of its Cholesky factor), and those of a ``OneHotCategorical`` are computed from one category. Any other distribution
    stays a site of its own, from which the components are computed. So is a random vector that is no node and depends
    on one.

    ``columns`` has for each node the names of its columns; without names it has one for each component, ``M[0]``,
    ``M[1]``, ..., or one of its own name if it is one number. ``probe``, by default the program, is run to read it,
    with its parameters set, for example. ``latent`` nodes, which no table holds, may stay vectors; with ``nodes_only``
    so do random vectors that are no nodes. A GraphError names a node with another number of components than columns,
    or a component with the name of another site.
    """
    outline = read_outline(probe or program)
    info = outline.info
    vectors = find_vectors(info, {node: own for node, own in columns.items() if node not in latent})
    named = {node: vectors[node].names if node in vectors else tuple(own) or (node,) for node, own in columns.items()}
    sites = tuple(site for node, own in columns.items() for site in (*own, node) if site in info.sites)
    for site in () if nodes_only else info.random - info.observed - vectors.keys():
        if is_vector(info.shapes[site]) and info.causes(site, sites)[0]:
            vectors[site] = Components(info.shapes[site], component_names(site, info.shapes[site]))
    for site, found in vectors.items():
        info.require_drawn([site])
        for name in found.names:
            if name != site and name in (*info.sites, *info.parameters):
                raise GraphError(
                    f"The component {name!r} of the site {site!r} has the name of another site. Name the "
                    f"columns of {site!r} otherwise: columns={{{site!r}: [...]}}."
                )
    if not vectors and not has_points(outline):
        return ScalarSites(program, read_sites(probe or program, outline), named, {})
    scalar = read_sites(ScalarProgram(probe or program, vectors))
    scalar = replace(scalar, joint=_joint(outline, scalar, vectors))
    latents = {n: vectors[n].names for n in latent if n in vectors}
    return ScalarSites(ScalarProgram(program, vectors), scalar, named | latents, vectors)


def has_points(outline: Outline) -> bool:
    """Return whether some site of units is drawn from ``Delta``, and so computed."""
    return any(_is_point(outline.plain[site]) for site in outline.info.random - outline.info.observed)


def _is_point(site: Any) -> bool:
    return isinstance(unwrap(site["fn"]), dist.Delta) and bool(site["cond_indep_stack"]) and not is_deterministic(site)


@dataclass(frozen=True)
class _Possible:
    """Whether values of a vector's components, shape (n,) each, are possible together, shape (n,)."""

    vector: Components
    support: Any

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        inside: Tensor = self.support.check(self.vector.join(values))
        return inside.movedim(self.vector.shape.index(UNITS), 0).reshape(len(values[0]), -1).all(-1)


def _joint(
    outline: Outline, scalar: ProgramSites, vectors: Mapping[str, Components]
) -> dict[tuple[str, ...], _Possible]:
    """Return the vectors whose components are not drawn independently of each other."""
    return {
        vector.names: _Possible(vector, outline.plain[site]["fn"].support)
        for site, vector in vectors.items()
        if site in outline.info.random
        and any(name not in scalar.random or {*vector.names} & {*scalar.reads[name]} for name in vector.names)
    }


def is_vector(shape: Sequence[int]) -> bool:
    """Return whether a site of some shape has more dimensions than that of units."""
    return len(shape) > 1 and UNITS in shape


def find_vectors(info: ProgramSites, columns: Mapping[str, Sequence[str]]) -> dict[str, Components]:
    """Return the components of vector-valued sites of nodes; ``columns`` has for each node the names of its columns.

    Without names they have the default ones. A GraphError names a node with another number of components than columns.
    """
    found = {}
    for node, own in columns.items():
        for site in own if any(name in info.sites for name in own) else (node,):
            if site in info.sites and is_vector(info.shapes[site]):
                found[site] = _components(info, site, node, tuple(own))
    return found


def _components(info: ProgramSites, site: str, node: str, own: tuple[str, ...]) -> Components:
    shape = info.shapes[site]
    default = component_names(site, shape)
    names: tuple[str, ...] = ()
    if not own or (site in own and len(default) == 1):
        names = default
    elif site == node and site not in own and len(own) == len(default):
        names = own
    if not names:
        text = ", ".join("n" if size == UNITS else str(size) for size in shape)
        remedy = f"columns={{{node!r}: {list(default)}}}" if site == node else "a scalar site for each column"
        raise GraphError(
            f"The site {site!r} of the node {node!r} has the shape ({text}), {len(default)} numbers for each "
            f"unit, but the node has {len(own)} column{'s' * (len(own) != 1)}: {', '.join(own)}. Name a column "
            f"for each of its components: {remedy}."
        )
    return Components(shape, names)


# -- a program with its vectors taken apart ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScalarProgram:
    """A program with the components of some sites in place of them, and sites drawn from ``Delta`` as computed ones."""

    program: Program
    vectors: Mapping[str, Components]

    def __call__(self, n: int) -> Any:
        """Run the program on n units."""
        with _ByComponents(self.vectors):
            return self.program(n)


class _ByComponents(Messenger):
    """Show the handlers outside a site for each component of a vector, and give the program what they return."""

    def __init__(self, vectors: Mapping[str, Components]) -> None:
        super().__init__()
        self.vectors = vectors

    def _pyro_sample(self, msg: Any) -> None:
        if poutine.util.site_is_subsample(msg):
            return
        if _is_point(msg) and not msg["is_observed"]:
            value = msg["fn"]() if msg["value"] is None else msg["value"]
            msg |= {"value": value, "is_observed": True, "infer": {**msg["infer"], "_deterministic": True}}
        if msg["name"] not in self.vectors:
            return
        vector = self.vectors[msg["name"]]
        msg["value"] = vector.join(self._show(msg, vector))
        msg["done"] = msg["stop"] = True

    def _show(self, msg: Any, vector: Components) -> list[Tensor]:
        """Show the components of a site, and return their values."""
        given, fn = msg["value"], msg["fn"]
        if not is_deterministic(msg):
            inner = unwrap(fn, WRAPPERS)
            if not inner.event_shape and (split := _elements(fn, inner, vector)):
                parts = [None] * len(split) if given is None else [given[index] for index in vector.indices()]
                return [self._emit(msg, *each) for each in zip(vector.names, split, parts, strict=True)]
            if isinstance(inner, NORMAL) and vector.dim < -1:
                return self._show_normal(msg, vector, inner, given)
            if isinstance(inner, distributions.OneHotCategorical) and vector.dim < -1 and given is None:
                return self._show_one_hot(msg, vector, inner)
            hidden = msg["name"] if msg["name"] not in vector.names else WHOLE.format(msg["name"])
            given = self._emit(msg, hidden, fn, given, keep=True)
        values = [given[index] for index in vector.indices()]
        return [self._compute(msg, *each) for each in zip(vector.names, values, strict=True)]

    def _show_normal(self, msg: Any, vector: Components, normal: Any, given: Tensor | None) -> list[Tensor]:
        """Draw each component given those before it, which determine the noise of the Cholesky factor so far."""
        make: Any = dist.Normal
        size = normal.event_shape[0]
        batch = msg["fn"].batch_shape + msg["fn"].event_shape[:-1]
        loc, factor = normal.loc.expand((*batch, size)), normal.scale_tril.expand((*batch, size, size))
        names, found = iter(vector.names), []
        for index in vector.indices(1):
            noise: list[Tensor] = []
            for i in range(size):
                mean, scale = loc[(*index, i)], factor[(*index, i, i)]
                for j, z in enumerate(noise):
                    mean = mean + factor[(*index, i, j)] * z
                one = make(mean, scale, validate_args=False)
                value = self._emit(msg, next(names), one, None if given is None else given[(*index, i)])
                noise.append((value - mean) / scale)
                found.append(value)
        return found

    def _show_one_hot(self, msg: Any, vector: Components, one_hot: Any) -> list[Tensor]:
        """Draw a category, and compute from it whether it is each one."""
        make: Any = dist.Categorical
        size = one_hot.event_shape[0]
        batch = msg["fn"].batch_shape + msg["fn"].event_shape[:-1]
        every = vector.indices(1)
        hidden = component_names(msg["name"], vector.shape[:-1]) if len(every) > 1 else (msg["name"],)
        probs = one_hot.probs.expand((*batch, size))
        names, found = iter(vector.names), []
        for name, index in zip(hidden, every, strict=True):
            drawn = self._emit(msg, name, make(probs[(*index, slice(None))], validate_args=False))
            found += [self._compute(msg, next(names), (drawn == i).to(probs.dtype)) for i in range(size)]
        return found

    def _compute(self, msg: Any, name: str, value: Tensor) -> Tensor:
        """Show a computed site."""
        point = dist.Delta(value, event_dim=value.ndim).mask(False)  # type: ignore[no-untyped-call]
        computed = msg | {"infer": {**msg["infer"], "_deterministic": True}, "is_observed": True}
        return self._emit(computed, name, point, value)

    def _emit(self, msg: Any, name: str, fn: Any, value: Tensor | None = None, *, keep: bool = False) -> Tensor:
        """Show a site to the handlers outside, and return its value."""
        frames = msg["cond_indep_stack"] if keep else _plate_of_units(msg["cond_indep_stack"], fn.shape()[-1:])
        one = msg | {"name": name, "fn": fn, "args": (), "kwargs": {}, "value": value}
        one |= {"infer": dict(msg["infer"]), "cond_indep_stack": frames}
        apply_outside(self, one)
        found: Tensor = one["value"]
        return found


def _plate_of_units(frames: Iterable[Any], shape: Sequence[int]) -> tuple[Any, ...]:
    """Return the plate of units among those of a vector, as a component of that shape stands in it."""
    mine = [frame for frame in frames if frame.vectorized and tuple(shape) == (frame.size,)]
    return tuple(frame._replace(dim=-1) for frame in mine[:1])


# -- the distribution of a component -----------------------------------------------------------------------------------

NORMAL = (distributions.MultivariateNormal, distributions.LowRankMultivariateNormal)


def _elements(distribution: Any, inner: Any, vector: Components) -> list[Any] | None:
    """Return the distribution of each element of a vector of independent ones; None if its family has no parts."""
    try:
        wide = inner.expand(distribution.shape())
        return [component_of(wide, index) for index in vector.indices()]
    except NotImplementedError:
        return None


def component_of(d: Any, index: tuple[Any, ...]) -> Any:
    """Return the distribution of ``d.sample()[index]``, d of scalars with a batch in the shape of its values.

    The index begins with an ellipsis. A family that cannot be taken apart is a NotImplementedError.
    """
    batch = d.batch_shape

    def part(value: Any, dims: int = 0) -> Tensor:
        wide = torch.as_tensor(value)
        wide = wide.expand((*batch, *wide.shape[wide.ndim - dims :]))
        return wide[(*index, *[slice(None)] * dims)]

    make: Any = type(d)
    if isinstance(d, dist.ZeroInflatedDistribution):
        mixed: Any = dist.ZeroInflatedDistribution
        return mixed(component_of(d.base_dist, index), gate=part(d.gate))
    if isinstance(d, distributions.MixtureSameFamily):
        parts = component_of(d.component_distribution, (*index, slice(None)))
        return make(component_of(d.mixture_distribution, index), parts, validate_args=False)
    if isinstance(d, dist.Delta):
        return make(part(d.v), part(d.log_density), validate_args=False)
    if make in (dist.TransformedDistribution, distributions.TransformedDistribution):
        return make(component_of(d.base_dist, index), [_transform(each, part) for each in d.transforms])
    names = [name for name in d.arg_constraints if not (name.endswith("logits") and "probs" in d.arg_constraints)]
    every = inspect.signature(make.__init__).parameters.keys() - {"self", "validate_args", "logits"}
    plain = {name: getattr(d, name, None) for name in every - {*names}}
    if not names or not {*names} <= every or any(v is None or isinstance(v, Tensor) for v in plain.values()):
        raise NotImplementedError
    dims = {name: int(d.arg_constraints[name].event_dim) for name in names}
    return make(**{name: part(getattr(d, name), dims[name]) for name in names}, **plain, validate_args=False)


def _transform(transform: Any, part: Callable[[Any], Tensor]) -> Any:
    if isinstance(transform, distributions.AffineTransform):
        return distributions.AffineTransform(part(transform.loc), part(transform.scale))
    if transform.domain.event_dim or any(isinstance(each, Tensor) for each in vars(transform).values()):
        raise NotImplementedError
    return transform
