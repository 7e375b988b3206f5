"""Which worlds does the paper simulate? Its structural equation models as Pyro programs, and what is true in them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pyro import poutine
from torch import Tensor

from pyrofair._random import isolated, seed_from
from pyrofair._validation import did_you_mean, require_choice, require_seed, require_units
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths
from pyrofair.programs.distributions import TruncatedNormal
from pyrofair.simulate.facts import Facts, Rest, best_accuracies, overlap_of, whole_law

__all__ = ["Scenario", "additive", "hiring", "latent", "scenario"]

Truncation = Literal["floor", "truncate"]
Cut = tuple[float, float, float, float]
WHOLE: dict[str, Callable[[Tensor], Tensor]] = {"floor": torch.floor, "truncate": torch.trunc}
COUNTS = ("A", "Q", "D", "Y")


# -- the programs -----------------------------------------------------------------------------------------------------


def hiring(
    n: int,
    *,
    p_a: float = 0.6,
    u_q: tuple[float, float] = (2.0, 5.0),
    u_d: Cut = (2.0, 1.0, 0.1, 3.0),
    u_m: Cut = (3.0, 2.0, 0.1, 3.0),
    d_q: float = 0.5,
    m_a: float = 3.0,
    m_q: float = 0.4,
    intercept: float = -10.0,
    y_a: float = 5.0,
    truncation: Truncation = "floor",
) -> None:
    """Draw n units of the hiring scenario: gender A, qualification Q, children D, physical strength M, decision Y.

    These are the equations of the paper's appendix G.2. Noise multiplies in D and M, so they are not additive.

    Parameters
    ----------
    n
        The number of units.
    p_a
        P(A = 1).
    u_q
        Mean and standard deviation of U_Q.
    u_d, u_m
        Of the noise of D and M: mean and standard deviation before truncation, lower and upper end.
    d_q, m_a, m_q, intercept, y_a
        The coefficients of Q in D, of A and Q in M, and the intercept and that of A in Y.
    truncation
        ``"floor"``, the paper's sign; or ``"truncate"``, its words ("removing the decimal places"), which differ for
        negative numbers.
    """
    whole = WHOLE[truncation]
    with pyro.plate("people", n):
        U_A = pyro.sample("U_A", dist.Bernoulli(p_a))
        U_Q = pyro.sample("U_Q", dist.Normal(*u_q))
        U_D = pyro.sample("U_D", TruncatedNormal(*u_d))
        U_M = pyro.sample("U_M", TruncatedNormal(*u_m))
        A = pyro.deterministic("A", U_A)
        Q = pyro.deterministic("Q", whole(U_Q))
        D = pyro.deterministic("D", A + whole(d_q * Q * U_D))
        M = pyro.deterministic("M", m_a * A + m_q * Q * U_M)
        pyro.sample("Y", dist.Bernoulli(logits=intercept + y_a * A + Q + D + M))


def additive(
    n: int,
    *,
    p_a: float = 0.6,
    u_q: tuple[float, float] = (2.5, 5.0),
    u_d: tuple[float, float] = (1.0, 0.5),
    u_m: tuple[float, float] = (1.0, 0.5),
    d_q: float = 0.1,
    m_a: float = 3.0,
    m_q: float = 0.4,
    intercept: float = -10.0,
    y_a: float = 5.0,
    truncation: Truncation = "floor",
) -> None:
    """Draw n units of the additive scenario, the paper's appendix on data that satisfy functional assumptions.

    The paper gives no h here; that of the hiring scenario is used. Parameters as for :func:`hiring`, but ``u_d`` and
    ``u_m`` are means and standard deviations of normal noise.
    """
    whole = WHOLE[truncation]
    with pyro.plate("people", n):
        U_A = pyro.sample("U_A", dist.Bernoulli(p_a))
        U_Q = pyro.sample("U_Q", dist.Normal(*u_q))
        U_D = pyro.sample("U_D", dist.Normal(*u_d))
        U_M = pyro.sample("U_M", dist.Normal(*u_m))
        A = pyro.deterministic("A", U_A)
        Q = pyro.deterministic("Q", whole(U_Q))
        D = pyro.deterministic("D", A + whole(d_q * Q) + whole(U_D))
        M = pyro.deterministic("M", m_a * A + whole(m_q * Q) + whole(U_M))
        pyro.sample("Y", dist.Bernoulli(logits=intercept + y_a * A + Q + D + M))


def latent(
    n: int,
    *,
    p_a: float = 0.6,
    h: tuple[float, float] = (1.0, 0.5),
    u_r: tuple[float, float] = (1.0, 0.5),
    u_m: tuple[float, float] = (1.0, 0.5),
    r_a: float = 3.0,
    r_h: float = 10.0,
    intercept: float = -10.0,
    y_a: float = 5.0,
    y_h: float = 10.0,
    truncation: Truncation = "floor",
) -> None:
    """Draw n units of the scenario with a latent confounder H of R and Y, the paper's appendix on its extension.

    Parameters as for :func:`hiring`; ``h`` is the mean and standard deviation of H, and ``r_a, r_h, y_h`` are the
    coefficients of A and H in R and of H in Y.
    """
    whole = WHOLE[truncation]
    with pyro.plate("people", n):
        U_A = pyro.sample("U_A", dist.Bernoulli(p_a))
        H = pyro.sample("H", dist.Normal(*h))
        U_R = pyro.sample("U_R", dist.Normal(*u_r))
        U_M = pyro.sample("U_M", dist.Normal(*u_m))
        A = pyro.deterministic("A", U_A)
        R = pyro.deterministic("R", r_a * A + whole(r_h * H) + whole(U_R))
        M = pyro.deterministic("M", A + R + whole(U_M))
        pyro.sample("Y", dist.Bernoulli(logits=intercept + y_a * A + R + M + y_h * H))


# -- scenarios --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A structural equation model of the paper, with its graph and its unfair paths.

    Parameters
    ----------
    name
        Its name.
    program
        A Pyro program of the number of units.
    graph, unfair
        The graph, and the paths that the paper calls unfair.

    Examples
    --------
    >>> people = scenario("hiring").draw(5000, random_state=0)
    >>> list(people), len(people)
    (['A', 'Q', 'D', 'M', 'Y'], 5000)
    """

    name: str
    program: Callable[[int], Any]
    graph: CausalGraph
    unfair: UnfairPaths

    def draw(self, n: int, random_state: int | np.random.Generator | None = None) -> pd.DataFrame:
        """Return n units as they are, a column for each observed node.

        Parameters
        ----------
        n
            Their number.
        random_state
            Seeds the draw; the global generators stay as they are.
        """
        values, _ = self._simulate(n, random_state)
        return pd.DataFrame({node: _column(node, values[node]) for node in self.graph.observed})

    def facts(self, n: int = 200_000, random_state: int = 0) -> Facts:
        """Return what is true here: the best accuracies, and where the groups do not overlap.

        Parameters
        ----------
        n, random_state
            The number of units to simulate, and the seed. The same question is answered once.
        """
        require_units("n", n)
        require_seed(random_state)
        return _facts(self, n, random_state)

    def _simulate(self, n: int, random_state: int | np.random.Generator | None) -> tuple[dict[str, Tensor], Tensor]:
        """Return the values of all sites, and P(Y = 1) given all causes of Y."""
        require_units("n", n)
        with isolated(seed_from(random_state)), torch.no_grad(), poutine.trace() as tracer:
            self.program(int(n))
        sites: dict[str, Any] = dict(tracer.trace.nodes)
        values = {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}
        return values, sites[self.graph.outcome]["fn"].probs


@lru_cache(maxsize=32)
def _facts(scenario: Scenario, n: int, random_state: int) -> Facts:
    values, probability = scenario._simulate(n, random_state)
    table = {name: value.to(torch.float64) for name, value in values.items()}
    graph = scenario.graph
    observed = pd.DataFrame({node: _column(node, values[node]) for node in graph.inputs}) if graph.latent else None
    majority, bayes = best_accuracies(probability, observed)
    model = MODELS[scenario.name]
    parameters = _parameters(model.program) | getattr(scenario.program, "keywords", {})
    return Facts(majority, bayes, overlap_of(table, model.rests(parameters)), n)


def _column(node: str, value: Tensor) -> NDArray[Any]:
    return value.numpy().astype(np.int64 if node in COUNTS else np.float64)


def _parameters(program: Callable[..., None]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(program).parameters.items() if name != "n"}


# -- the three scenarios ----------------------------------------------------------------------------------------------


def _noise(numbers: Sequence[float]) -> Any:
    """Return the distribution of a noise in double precision, from two parameters or from four."""
    exact = torch.tensor(numbers, dtype=torch.float64)
    family: Any = dist.Normal if len(numbers) == 2 else TruncatedNormal
    return family(*exact, validate_args=False)


def _hiring_rests(p: Mapping[str, Any]) -> dict[str, Rest]:
    d, m = _noise(p["u_d"]), _noise(p["u_m"])

    def strength(x: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        scale = p["m_q"] * values["Q"]
        density = torch.exp(m.log_prob(x / scale)) / scale.abs()
        return torch.where(scale == 0, (x == 0).to(x.dtype), density)

    return {
        "D": Rest(("Q",), 1.0, lambda x, v: whole_law(d, x, p["d_q"] * v["Q"], truncation=p["truncation"])),
        "M": Rest(("Q",), p["m_a"], strength),
    }


def _additive_rests(p: Mapping[str, Any]) -> dict[str, Rest]:
    whole = WHOLE[p["truncation"]]

    def law(noise: str, slope: str) -> Callable[[Tensor, Mapping[str, Tensor]], Tensor]:
        u = _noise(p[noise])
        return lambda x, v: whole_law(u, x - whole(p[slope] * v["Q"]), truncation=p["truncation"])

    return {"D": Rest(("Q",), 1.0, law("u_d", "d_q")), "M": Rest(("Q",), p["m_a"], law("u_m", "m_q"))}


def _latent_rests(p: Mapping[str, Any]) -> dict[str, Rest]:
    h, r, m = (_noise(p[name]) for name in ("h", "u_r", "u_m"))
    steps = torch.arange(math.floor(r.mean - 10 * r.stddev), math.ceil(r.mean + 10 * r.stddev) + 1.0).to(torch.float64)

    def confounded(x: Tensor, _: Mapping[str, Tensor]) -> Tensor:
        level, place = torch.unique(x, return_inverse=True)
        given = whole_law(h, level.unsqueeze(-1) - steps, p["r_h"], truncation=p["truncation"])
        return (given @ whole_law(r, steps, truncation=p["truncation"]))[place]

    return {
        "R": Rest((), p["r_a"], confounded),
        "M": Rest(("R",), 1.0, lambda x, v: whole_law(m, x - v["R"], truncation=p["truncation"])),
    }


@dataclass(frozen=True)
class _Model:
    program: Callable[..., None]
    edges: str
    unfair: tuple[str, ...]
    rests: Callable[[Mapping[str, Any]], dict[str, Rest]]
    latent: tuple[str, ...] = ()


HIRING = "{A Q} -> D; {A Q} -> M; {A Q D M} -> Y"
MODELS = {
    "hiring": _Model(hiring, HIRING, ("A -> Y", "A -> D -> Y"), _hiring_rests),
    "additive": _Model(additive, HIRING, ("A -> Y", "A -> D -> Y"), _additive_rests),
    "latent": _Model(latent, "{A H} -> R; {A R} -> M; {A R M H} -> Y", ("A -> Y",), _latent_rests, ("H",)),
}


def scenario(name: str, **parameters: Any) -> Scenario:
    """Return a structural equation model of the paper.

    Parameters
    ----------
    name
        ``"hiring"`` (:func:`hiring`), ``"additive"`` (:func:`additive`) or ``"latent"`` (:func:`latent`).
    parameters
        Parameters of the program other than the paper's.

    Raises
    ------
    DataError
        For an unknown scenario or parameter.

    References
    ----------
    Chikahara et al. (2021), appendix G.2, and the appendices on additive data and on the extension.

    Examples
    --------
    >>> print(scenario("hiring").unfair)
    unfair: A -> D -> Y
    unfair: A -> Y
    fair:   A -> M -> Y
    shared by both worlds: Q, M
    """
    require_choice("name", name, tuple(MODELS))
    model = MODELS[name]
    known = _parameters(model.program)
    for key in parameters:
        if key not in known:
            raise DataError(
                f"The scenario {name!r} has no parameter {key!r}; it has {', '.join(known)}.{did_you_mean(key, known)}"
            )
    truncation = parameters.get("truncation", "floor")
    if truncation not in WHOLE:
        raise DataError(f"truncation={truncation!r} is not known; it is {' or '.join(map(repr, WHOLE))}.")
    program = partial(model.program, **parameters) if parameters else model.program
    graph = CausalGraph(model.edges, sensitive="A", outcome="Y", latent=model.latent)
    return Scenario(name, program, graph, graph.unfair(*model.unfair))
