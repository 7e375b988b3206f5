"""Which worlds does the paper simulate? Its structural equation models as Pyro programs, and what is true in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pyro import poutine
from torch import Tensor

from pyrofair.distributions import TruncatedNormal
from pyrofair.exceptions import DataError, did_you_mean
from pyrofair.graph import CausalGraph
from pyrofair.isolation import isolated, seed_from
from pyrofair.paths import UnfairPaths
from pyrofair.truth import Estimate

__all__ = ["Facts", "Overlap", "Scenario", "additive", "hiring", "latent", "scenario"]

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
    """Draw n people of the hiring scenario, eq. (14) of the paper's appendix G.2: noise multiplies, so it is not additive.

    Gender A, qualification Q, children D, physical strength M, decision Y.

    Parameters
    ----------
    n
        The number of people.
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
    """Draw n people of the additive scenario, the paper's appendix on data that satisfy functional assumptions.

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
    """Draw n people of the scenario with a latent confounder H of R and Y, the paper's appendix on its extension.

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
