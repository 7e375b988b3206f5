"""Scenarios with known ground truth: the simulations of the paper as Pyro programs, and programs of one's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from pyrofair._validation import did_you_mean, require_choice, require_units
from pyrofair.exceptions import DataError, GraphError
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.programs.distributions import TruncatedNormal

__all__ = ["Scenario", "additive", "hiring", "latent", "scenario"]


Truncation = Literal["floor", "truncate"]
Cut = tuple[float, float, float, float]
INTEGER_PART: dict[str, Callable[[Tensor], Tensor]] = {"floor": torch.floor, "truncate": torch.trunc}
INTEGERS = ("A", "Q", "D", "Y")


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

    Examples
    --------
    >>> list(scenario("hiring").draw(3, random_state=0))
    ['A', 'Q', 'D', 'M', 'Y']
    """
    integer = INTEGER_PART[truncation]
    with pyro.plate("units", n):
        U_A = pyro.sample("U_A", dist.Bernoulli(p_a))
        U_Q = pyro.sample("U_Q", dist.Normal(*u_q))
        U_D = pyro.sample("U_D", TruncatedNormal(*u_d))
        U_M = pyro.sample("U_M", TruncatedNormal(*u_m))
        A = pyro.deterministic("A", U_A)
        Q = pyro.deterministic("Q", integer(U_Q))
        D = pyro.deterministic("D", A + integer(d_q * Q * U_D))
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

    Examples
    --------
    >>> list(scenario("additive").draw(3, random_state=0))
    ['A', 'Q', 'D', 'M', 'Y']
    """
    integer = INTEGER_PART[truncation]
    with pyro.plate("units", n):
        U_A = pyro.sample("U_A", dist.Bernoulli(p_a))
        U_Q = pyro.sample("U_Q", dist.Normal(*u_q))
        U_D = pyro.sample("U_D", dist.Normal(*u_d))
        U_M = pyro.sample("U_M", dist.Normal(*u_m))
        A = pyro.deterministic("A", U_A)
        Q = pyro.deterministic("Q", integer(U_Q))
        D = pyro.deterministic("D", A + integer(d_q * Q) + integer(U_D))
        M = pyro.deterministic("M", m_a * A + integer(m_q * Q) + integer(U_M))
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

    Examples
    --------
    >>> list(scenario("latent").draw(3, random_state=0))
    ['A', 'R', 'M', 'Y']
    """
    integer = INTEGER_PART[truncation]
    with pyro.plate("units", n):
        U_A = pyro.sample("U_A", dist.Bernoulli(p_a))
        H = pyro.sample("H", dist.Normal(*h))
        U_R = pyro.sample("U_R", dist.Normal(*u_r))
        U_M = pyro.sample("U_M", dist.Normal(*u_m))
        A = pyro.deterministic("A", U_A)
        R = pyro.deterministic("R", r_a * A + integer(r_h * H) + integer(U_R))
        M = pyro.deterministic("M", A + R + integer(U_M))
        pyro.sample("Y", dist.Bernoulli(logits=intercept + y_a * A + R + M + y_h * H))


# -- scenarios --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A structural equation model, with its graph and its unfair paths.

    Parameters
    ----------
    name, program
        Its name, and a Pyro program of the number of units.
    graph, unfair
        The graph, and the paths that are called unfair.

    Examples
    --------
    >>> df = scenario("hiring").draw(5000, random_state=0)
    >>> list(df), len(df)
    (['A', 'Q', 'D', 'M', 'Y'], 5000)
    """

    name: str
    program: Callable[[int], Any]
    graph: CausalGraph
    unfair: UnfairPaths

    def draw(self, n: int, random_state: int | np.random.Generator | None = None) -> pd.DataFrame:
        """Return n units drawn from the program, a column for each observed node; global generators stay unchanged.

        Integers of the sensitive attribute, of the outcome and of the paper's other integers are ``int64``, all else is
        ``float64``.

        Raises
        ------
        GraphError
            If the program has no site of an observed node, or one that is no column of n numbers.
        """
        require_units("n", n)
        with isolated(seed_from(random_state)), torch.no_grad(), poutine.trace() as tracer:
            self.program(int(n))
        sites: dict[str, Any] = dict(tracer.trace.nodes)
        columns = {node: self.graph.columns_of([node]) for node in self.graph.observed}
        if several := [node for node, names in columns.items() if len(names) != 1]:
            raise GraphError(f"{', '.join(several)} have several columns each; draws have one column for each node.")
        return pd.DataFrame({names[0]: self._column(node, sites, n) for node, names in columns.items()})

    def _column(self, node: str, sites: Mapping[str, Any], n: int) -> NDArray[Any]:
        if node not in sites:
            raise GraphError(
                f"The program of the scenario {self.name!r} has no site {node!r}, an observed node of its graph. Its "
                f"sites are {', '.join(name for name in sites if not name.startswith('_'))}."
            )
        values = sites[node]["value"].detach().numpy()
        if values.shape != (n,):
            raise GraphError(f"The site {node!r} has the shape {values.shape} in {n} units; expected {(n,)}.")
        graph = self.graph
        column: NDArray[np.float64] = values.astype(np.float64)
        if node in (*INTEGERS, graph.sensitive, graph.outcome) and (column == np.floor(column)).all():
            return column.astype(np.int64)
        return column


def _scenario(
    name: str, program: Callable[..., None], edges: str, *unfair: str, latent: tuple[str, ...] = ()
) -> Scenario:
    graph = CausalGraph(edges, sensitive="A", outcome="Y", latent=latent)
    return Scenario(name, program, graph, graph.unfair(*unfair))


HIRING = "{A Q} -> D; {A Q} -> M; {A Q D M} -> Y"
SCENARIOS = {
    "hiring": _scenario("hiring", hiring, HIRING, "A -> Y", "A -> D -> Y"),
    "additive": _scenario("additive", additive, HIRING, "A -> Y", "A -> D -> Y"),
    "latent": _scenario("latent", latent, "{A H} -> R; {A R} -> M; {A R M H} -> Y", "A -> Y", latent=("H",)),
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
    require_choice("name", name, tuple(SCENARIOS))
    found = SCENARIOS[name]
    known = [each for each in inspect.signature(found.program).parameters if each != "n"]
    for key in parameters:
        if key not in known:
            raise DataError(
                f"The scenario {name!r} has no parameter {key!r}; it has {', '.join(known)}.{did_you_mean(key, known)}"
            )
    require_choice("truncation", parameters.get("truncation", "floor"), tuple(INTEGER_PART))
    return replace(found, program=partial(found.program, **parameters)) if parameters else found
