"""How unfair is a model in truth? Effects and their spread, from units whose outcome in both worlds is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_choice, require_real, require_units
from pyrofair.effects.estimate import Estimate
from pyrofair.effects.scoring import positive_scores
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.programs.parameters import NO_PARAMETERS, ParameterUse

__all__ = [
    "DECISIONS",
    "Truth",
    "TruthDecisions",
    "describe_groups",
    "measure_truth",
    "require_settings",
    "spread_of_groups",
]

TruthDecisions = Literal["threshold", "shared", "own"]
DECISIONS: tuple[TruthDecisions, ...] = ("threshold", "shared", "own")
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Truth:
    """What a model does to units whose outcomes in both worlds are known.

    Unit i has the scores c0 and c1 in the baseline and with the unfair paths switched, and from them, with her
    decision noise averaged out, an effect t and a probability p that her two decisions differ:

    ===============  =======================================================  ==========  =====================
    ``decisions``    the decision in world k                                  effect t    differs with p
    ===============  =======================================================  ==========  =====================
    ``"threshold"``  d_k = 1 if c_k > threshold, else 0                       d1 - d0     abs(d1 - d0)
    ``"shared"``     1 if U_Y < c_k, one noise U_Y in both worlds             c1 - c0     abs(c1 - c0)
    ``"own"``        1 if U_Yk < c_k, a noise of its own in each world        c1 - c0     c0 + c1 - 2 c0 c1
    ===============  =======================================================  ==========  =====================

    Attributes
    ----------
    mean_unfair_effect : Estimate
        The mean of t (the paper's eq. 6).
    piu : Estimate
        The probability of individual unfairness, the mean of p (definition 4).
    conditional_sd : Estimate
        Definition 1's spread: the standard deviation, over units, of the conditional mean unfair effect
        mu(x) = E[t | X = x], where X is all that a classifier may read of the unit as she really is. It is 0 if and
        only if the effect is the same at every x; the model is fair by definition 1 if the mean is 0 as well.
        Groups of identical x count as often as they have units, and the mean effects differ with their sign. The noise
        of the mean of a group with few units is subtracted; a group of one cannot tell it, and counts as it is.
    paper_condmean : float
        The formula in the paper's appendix G.2 to the letter, ``sqrt((sum_k mu_k - mu) / K)`` over the K groups, with
        ``mu_k`` the share of the group whose decisions differ and ``mu`` the plain mean of the ``mu_k``. It lacks the
        square, has an indicator where definition 1 has a difference, and weighs groups equally, so it equals
        ``sqrt(mu * (K - 1) / K)`` and is no spread. (Read as a sum of ``mu_k - mu`` it is 0 for every model.) It has no
        standard error because K grows with n.
    grouping : str
        How units were grouped by their features. If one of these is continuous, every group has one member, and both
        numbers are over individuals: `conditional_sd` is then the spread of t itself. This is definition 1's where the
        features tell a unit's noise as far as the effect depends on it; otherwise it is larger.
    decisions, threshold : str, float
        How decisions are made of scores.
    coupling : str
        How the noise of nodes drawn without explicit noise hangs together across the worlds.
    coupled : tuple of str
        These nodes; if there are none, the coupling plays no part.
    n : int
        The number of units.
    parameters : ParameterUse
        How the program's parameters came by their values. If they have several posterior draws, units are spread over
        up to 50 of them, and each number is its posterior mean: the mean of what it is at each draw. Its error holds
        the chance of which draws were used, and its ``posterior_sd`` is the spread between draws.

    References
    ----------
    Chikahara et al. (2021), definition 1, eq. (6), definition 4, and appendix G.2, "Computing unfair effects".
    """

    mean_unfair_effect: Estimate
    piu: Estimate
    conditional_sd: Estimate
    paper_condmean: float
    grouping: str
    decisions: TruthDecisions
    threshold: float
    coupling: str
    coupled: tuple[str, ...]
    n: int
    parameters: ParameterUse = NO_PARAMETERS

    @property
    def definition1_sd(self) -> Estimate:
        """The same as `conditional_sd`, under the name of the definition."""
        return self.conditional_sd

    @property
    def table(self) -> pd.DataFrame:
        """A row for each quantity: decisions, coupling, quantity, estimate, error, posterior_sd, n."""
        numbers = {
            "mean_unfair_effect": self.mean_unfair_effect,
            "piu": self.piu,
            "conditional_sd": self.conditional_sd,
            "paper_condmean": Estimate(self.paper_condmean, np.nan, np.nan),
        }
        return pd.DataFrame(
            [
                (self.decisions, self.coupling, name, each.value, each.error, each.posterior_sd, self.n)
                for name, each in numbers.items()
            ],
            columns=["decisions", "coupling", "quantity", "estimate", "error", "posterior_sd", "n"],
        )

    def __str__(self) -> str:
        how = f"score > {self.threshold:g}" if self.decisions == "threshold" else f"drawn, noise: {self.decisions}"
        noise = f"{self.coupling} noise of {', '.join(self.coupled)}" if self.coupled else "all noise explicit"
        means = "; means over draws" if self.parameters.used > 1 else ""
        given = f"parameters: {self.parameters}{means}\n" if self.parameters.names else ""
        return (
            f"truth over {self.n} units (decisions: {how}; {noise})\n{given}"
            f"mean unfair effect  {self.mean_unfair_effect}\n"
            f"PIU                 {self.piu}\n"
            f"conditional sd      {self.conditional_sd}  ({self.grouping})\n"
            f"paper's condmean    {self.paper_condmean:.4f}"
        )


def require_settings(n: int, decisions: str, threshold: float) -> None:
    """Refuse an unknown kind of decisions, a threshold outside [0, 1), and a number of units that is none.

    Raises
    ------
    DataError
        With what would do.
    """
    require_choice("decisions", decisions, DECISIONS)
    require_real("threshold", threshold, least=0.0, below=1.0)  # a decision is 1 where score > threshold
    require_units("n", n)


def measure_truth(
    model: Any,
    worlds: tuple[pd.DataFrame, pd.DataFrame],
    factual: pd.DataFrame,
    graph: CausalGraph,
    *,
    decisions: TruthDecisions,
    threshold: float,
    coupling: str,
    coupled: tuple[str, ...] = (),
    parameters: ParameterUse = NO_PARAMETERS,
    sizes: Sequence[int] | None = None,
) -> Truth:
    """Score the same n units in both worlds, and group them by their features as they are.

    Parameters
    ----------
    model
        Anything with ``predict_proba``.
    worlds, factual
        What the model reads of each unit in the baseline, in the switched world, and in the world as it is.
    graph
        The graph.
    decisions, threshold
        How decisions are made of scores.
    coupling, coupled, parameters
        What the result says of the noise and of the parameters.
    sizes
        How many units share each draw of the parameters, in the order of the rows; by default all share one.

    Raises
    ------
    DataError
        If the model does not fit the graph, or a setting is unknown.
    """
    require_settings(len(factual), decisions, threshold)
    name = type(model).__name__
    c0, c1 = (positive_scores(name, model, rows, graph) for rows in worlds)
    if decisions == "threshold":
        c0, c1 = ((c > threshold).astype(np.float64) for c in (c0, c1))
    effect = c1 - c0
    differs = c0 + c1 - 2.0 * c0 * c1 if decisions == "own" else np.abs(effect)
    group = factual.groupby(list(factual), sort=False, dropna=False).ngroup().to_numpy().astype(np.int64)
    ends = np.cumsum(sizes or [len(group)])
    draws = [slice(end - size, end) for end, size in zip(ends, sizes or [len(group)], strict=True)]
    cells = [_cells(group[draw]) for draw in draws]
    spreads = [spread_of_groups(effect[draw], *cell) for draw, cell in zip(draws, cells, strict=True)]
    return Truth(
        mean_unfair_effect=Estimate.pooled([Estimate.of(effect[draw]) for draw in draws]),
        piu=Estimate.pooled([Estimate.of(differs[draw]) for draw in draws]),
        conditional_sd=Estimate.pooled(spreads),
        paper_condmean=float(
            np.mean([_to_the_letter(differs[d], *cell) for d, cell in zip(draws, cells, strict=True)])
        ),
        grouping=describe_groups(list(factual.columns), np.concatenate([size for _, size in cells]), len(draws)),
        decisions=decisions,
        threshold=threshold,
        coupling=coupling,
        coupled=coupled,
        n=len(effect),
        parameters=parameters,
    )


def _cells(group: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group of each unit, numbered from 0 without gaps, and the sizes of the groups."""
    _, place, size = np.unique(group, return_inverse=True, return_counts=True)
    return place.astype(np.int64), size.astype(np.int64)


def _to_the_letter(differs: Vector, group: NDArray[np.int64], size: NDArray[np.int64]) -> float:
    """Return the formula of the paper's appendix G.2."""
    mu = np.bincount(group, differs) / size
    return float(np.sqrt(max(mu.sum() - mu.mean(), 0.0) / len(mu)))


def spread_of_groups(effect: Vector, group: NDArray[np.int64], size: NDArray[np.int64]) -> Estimate:
    """Return the standard deviation of the groups' mean effects over units.

    The variance of the observed group means exceeds that of the true ones by the noise within groups, which is
    estimated from groups of two and more and subtracted.
    """
    n = len(effect)
    mean = np.bincount(group, effect) / size
    within = np.bincount(group, (effect - mean[group]) ** 2) / np.maximum(size - 1, 1)
    noise = within / size
    centred = mean[group] - effect.mean()
    variance = max(float(np.mean(centred**2) - (size / n) @ noise), 0.0)
    # The influence of each unit on the variance; then the noise within groups, all that is left where it is 0.
    influence = centred**2 + 2.0 * (effect - mean[group]) * centred
    error = float(np.sqrt(influence.var() / n + 2.0 * ((size / n * noise) ** 2).sum()))
    sd = float(np.sqrt(variance))
    return Estimate(sd, float(np.sqrt(variance + error)) - sd if n > 1 else np.nan)


def describe_groups(columns: list[str], size: NDArray[np.int64], draws: int = 1) -> str:
    """Say how units are grouped, from the columns and the groups' sizes."""
    alone, n = int((size == 1).sum()), int(size.sum())
    names = ", ".join(columns)
    if len(size) == n:
        return f"no two of {n} units share {names}: a spread over individuals"
    text = f"{len(size)} groups of identical {names}" + (" and draw" if draws > 1 else "")
    return text + (f", {alone} of one unit ({alone / n:.1%} of all)" if alone else "")
