"""What a Pyro program says: its sites, which of them are per person, and who reads whom."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine.messenger import Messenger

from pyrofair.edges import EdgeList
from pyrofair.exceptions import GraphError, PyrofairWarning
from pyrofair.isolation import isolated

__all__ = ["Program", "ProgramSites", "read_sites"]

Program = Callable[[int], Any]
"""A Pyro program of the number of people."""

PROBE = 64


@dataclass(frozen=True)
class ProgramSites:
    """The per-person sites of a program in the order it runs, and what each reads directly.

    Parameters
    ----------
    sites
        All per-person sites: nodes, deterministic steps, and noise.
    random
        Those that are drawn.
    parameters
        The sites outside the plate, drawn once.
    reads
        For each per-person site the per-person sites that it reads.
    dimensions, dtypes
        For each per-person site the number of its dimensions, people included, and its type.
    """

    sites: tuple[str, ...]
    random: frozenset[str]
    parameters: tuple[str, ...]
    reads: dict[str, tuple[str, ...]]
    dimensions: dict[str, int]
    dtypes: dict[str, torch.dtype]

    def require(self, nodes: Iterable[str]) -> None:
        """Refuse names that are no per-person sites.

        Raises
        ------
        GraphError
            With the sites that there are.
        """
        for node in nodes:
            if node in self.parameters:
                raise GraphError(
                    f"{node!r} is drawn once, outside the plate of people, so it is a parameter and no node. Put it "
                    "inside the plate, or leave it out of the nodes."
                )
            if node not in self.sites:
                raise GraphError(
                    f"The program has no per-person site {node!r}. It has: {', '.join(self.sites) or 'none'}. Name it with "
                    "pyro.sample or pyro.deterministic inside the plate."
                )

    def causes(self, node: str, nodes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the nodes that a node reads, directly or through sites that are no nodes, and the noise it reads."""
        found: dict[str, None] = {}
        noise: dict[str, None] = {}
        waiting = list(reversed(self.reads[node]))
        seen: set[str] = set()
        while waiting:
            site = waiting.pop()
            if site in seen:
                continue
            seen.add(site)
            if site in nodes:
                found[site] = None
                continue
            if site in self.random:
                noise[site] = None
            waiting.extend(reversed(self.reads[site]))
        return tuple(node for node in nodes if node in found), tuple(site for site in self.sites if site in noise)

    def graph_of(self, nodes: Sequence[str]) -> EdgeList:
        """Return the causal graph over some sites; noise that feeds two of them becomes a latent node.

        Noise that feeds one node is its own error term and is left out; a random step between nodes is a latent node
        if it feeds two.
        """
        self.require(nodes)
        kept = set(nodes) | {site for site in self.random if site not in nodes}
        parents = {site: self._kept_parents(site, kept) for site in self.sites if site in kept}
        changed = True
        while changed:
            changed = False
            for site in [s for s in parents if s not in nodes]:
                children = [child for child, above in parents.items() if site in above]
                if len(children) <= 1:
                    for child in children:
                        others = [p for p in parents[child] if p != site]
                        parents[child] = [*others, *(p for p in parents[site] if p not in others)]
                    del parents[site]
                    changed = True
        place = {site: i for i, site in enumerate([*nodes, *(s for s in parents if s not in nodes)])}
        edges = sorted(
            ((p, child) for child, above in parents.items() for p in above), key=lambda e: (place[e[0]], place[e[1]])
        )
        return EdgeList(tuple(place), tuple(edges), tuple(s for s in place if s not in nodes))

    def _kept_parents(self, site: str, kept: set[str]) -> list[str]:
        found: dict[str, None] = {}
        waiting = list(self.reads[site])
        while waiting:
            parent = waiting.pop(0)
            if parent in kept:
                found[parent] = None
            else:
                waiting.extend(self.reads[parent])
        return list(found)


class _Track(Messenger):  # type: ignore[misc]
    """Mark each site's value with its name, and note which marks its law or value carries."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: dict[str, frozenset[str]] = {}

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["type"] != "sample" or poutine.util.site_is_subsample(msg):
            return
        value = detach_provenance(msg["value"])
        fn = msg["fn"]
        if msg["infer"].get("_deterministic"):
            marks = get_provenance(msg["value"])
        else:
            marks = get_provenance(fn.log_prob(value))
        self.reads[msg["name"]] = frozenset(marks)
        msg["value"] = ProvenanceTensor(value, frozenset({msg["name"]}))


def _trace(program: Program, n: int, *handlers: Messenger) -> Any:
    tracer = poutine.trace()
    with tracer:
        for handler in handlers:
            handler.__enter__()
        try:
            program(n)
        finally:
            for handler in reversed(handlers):
                handler.__exit__(None, None, None)
    return tracer.get_trace()


def _is_person_site(site: Any, n: int) -> bool:
    if site["type"] != "sample" or poutine.util.site_is_subsample(site):
        return False
    if any(frame.size == n for frame in site["cond_indep_stack"]):
        return True
    return bool(site["infer"].get("_deterministic")) and n in tuple(site["value"].shape)


def read_sites(program: Program, *, check: Sequence[str] = ()) -> ProgramSites:
    """Run a program on a few people and read off its sites and who reads whom.

    Dependencies are followed through torch's operations. What a program reads by leaving torch (``.item()``, NumPy) is
    caught by perturbing each earlier site while its later ones' known causes are held: such a dependence is added, with
    a warning.

    Parameters
    ----------
    program
        The program; it is called with a number of people.
    check
        The nodes between which dependencies are also sought by perturbation.

    Raises
    ------
    GraphError
        If the program has no per-person sites.
    """
    n = PROBE
    with isolated(0), pyro.validation_enabled(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracker = _Track()
        _trace(program, n, tracker)
        plain = _trace(program, n)
    sites = tuple(name for name, site in plain.nodes.items() if _is_person_site(site, n))
    if not sites:
        raise GraphError(
            f"The program has no per-person sites: none stands in a plate of the size n={n} that it was called with. "
            "Write it as program(n) with 'with pyro.plate(\"people\", n):' around the equations."
        )
    drawn = frozenset(name for name in sites if not plain.nodes[name]["infer"].get("_deterministic"))
    parameters = tuple(
        name
        for name, site in plain.nodes.items()
        if site["type"] == "sample" and name not in sites and not poutine.util.site_is_subsample(site)
    )
    reads = {name: tuple(s for s in sites if s in tracker.reads.get(name, ()) and s != name) for name in sites}
    values = {name: plain.nodes[name]["value"] for name in sites}
    dimensions = {name: value.ndim for name, value in values.items()}
    dtypes = {name: value.dtype for name, value in values.items()}
    found = ProgramSites(sites, drawn, parameters, reads, dimensions, dtypes)
    hidden = _hidden_reads(program, found, check) if check else {}
    for name, more in hidden.items():
        warnings.warn(
            f"The program's site {name!r} reads {', '.join(map(repr, more))} outside torch (.item() or NumPy); the edge "
            "was found by perturbation and added.",
            PyrofairWarning,
            stacklevel=3,
        )
        reads[name] = tuple(s for s in sites if s in {*reads[name], *more})
    return found


def _hidden_reads(program: Program, found: ProgramSites, nodes: Sequence[str]) -> dict[str, list[str]]:
    """Perturb each node, hold noise and the known causes of later nodes, and see whether one moves all the same."""
    with isolated(1), pyro.validation_enabled(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = _trace(program, PROBE)
        other = _trace(program, PROBE)
        values = {name: base.nodes[name]["value"] for name in found.sites}
        noise = {s: values[s] for s in found.random if s not in nodes}
        result: dict[str, list[str]] = {}
        for cause in nodes:
            moved = other.nodes[cause]["value"]
            for node in nodes:
                if node == cause or cause in found.causes(node, nodes)[0]:
                    continue
                held = {p: values[p] for p in nodes if p not in (node, cause)}
                before = _law(program, node, {**held, cause: values[cause]}, noise)
                after = _law(program, node, {**held, cause: moved}, noise)
                if before is not None and after is not None and not torch.equal(before, after):
                    result.setdefault(node, []).append(cause)
        return result


def _law(program: Program, node: str, held: dict[str, Any], noise: dict[str, Any]) -> Any:
    """Return a node's value, or the log-probability of a fixed value under its law, with others held."""
    torch.manual_seed(2)
    wrapped = poutine.do(poutine.condition(program, data=noise), data=held)
    try:
        site = _trace(wrapped, PROBE).nodes[node]
    except (ValueError, RuntimeError, KeyError):
        return None
    if site["infer"].get("_deterministic"):
        return site["value"]
    return site["fn"].log_prob(site["value"])
