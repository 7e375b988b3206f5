"""Ground truth of a model's unfairness: effects over units whose outcomes in both worlds are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._validation import require_choice, require_real
from pyrofair.effects.potential_outcomes import Estimate
from pyrofair.effects.scoring import DECISIONS, Decisions, decide, positive_scores
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.programs.parameters import NO_PARAMETERS, ParameterUse

__all__ = [
    "DecisionRule",
    "ScoreNoise",
    "Truth",
    "coupling_text",
    "describe_groups",
    "measure_truth",
    "spread_of_groups",
]

ScoreNoise = Literal["shared", "own"]
Vector = NDArray[np.float64]


class Compared(NamedTuple):
    """The probabilities of a positive decision of n units in both worlds, their effects, and how likely they differ."""

    c0: Vector
    c1: Vector
    effect: Vector
    differs: Vector


@dataclass(frozen=True)
class DecisionRule:
    """How decisions are made of scores, as :class:`Truth` describes; settings out of range raise ``DataError``."""

    decisions: Decisions
    threshold: float
    score_noise: ScoreNoise

    def __post_init__(self) -> None:
        require_choice("decisions", self.decisions, DECISIONS)
        require_real("threshold", self.threshold, least=0.0, below=1.0)  # a decision is 1 where score > threshold
        require_choice("score_noise", self.score_noise, ("shared", "own"))

    def compare(
        self,
        name: str,
        model: Any,
        worlds: Sequence[pd.DataFrame],
        graph: CausalGraph,
        order: Sequence[str] | None = None,
    ) -> Compared:
        """Return the decisions of a model about the same n units in both worlds, noise averaged out, shapes (n,)."""
        c0, c1 = (
            decide(positive_scores(name, model, rows, graph, order), self.decisions, self.threshold) for rows in worlds
        )
        own = self.decisions == "score" and self.score_noise == "own"
        return Compared(c0, c1, c1 - c0, c0 + c1 - 2.0 * c0 * c1 if own else np.abs(c1 - c0))

    def __str__(self) -> str:
        return (
            f"score > {self.threshold:g}" if self.decisions == "threshold" else f"drawn, score noise {self.score_noise}"
        )


def coupling_text(coupling: str, coupled: Sequence[str]) -> str:
    """Return how the noise of nodes without explicit noise is coupled, in words."""
    return f"{coupling} noise of {', '.join(coupled)}" if coupled else "all noise explicit"


@dataclass(frozen=True)
class Truth:
    """The effects of a model on units whose outcomes in both worlds are known.

    Unit i has the scores c0 and c1 in the baseline and with the unfair paths switched. From them follow, with the noise
    of its decisions averaged out, an effect t and a probability p that its two decisions differ:

    ===============  ===============  ==================================================  ==========  ==================
    ``decisions``    ``score_noise``  decision in world k                                 effect t    differs with p
    ===============  ===============  ==================================================  ==========  ==================
    ``"threshold"``                   d_k = 1 if c_k > threshold, else 0                  d1 - d0     abs(d1 - d0)
    ``"score"``      ``"shared"``     1 if U_Y < c_k, one noise U_Y in both worlds        c1 - c0     abs(c1 - c0)
    ``"score"``      ``"own"``        1 if U_Yk < c_k, a noise of its own in each world   c1 - c0     c0 + c1 - 2 c0 c1
    ===============  ===============  ==================================================  ==========  ==================

    Attributes
    ----------
    mean_unfair_effect : Estimate
        The mean of t (the paper's eq. 6).
    piu : Estimate
        The probability of individual unfairness, the mean of p (definition 4).
    conditional_sd : Estimate
        Definition 1's spread: the standard deviation, over units, of the conditional mean unfair effect
        mu(x) = E[t | X = x], where X are the observed features that a classifier may read. It is 0 if and only if the
        effect is the same at every x; the model is fair by definition 1 if the mean is 0 as well. Groups of identical x
        count as often as they have units, and the mean effects differ with their sign. The noise of a group's mean is
        subtracted; it cannot be estimated in a group of one unit, which counts as it is.
    paper_condmean : float
        The formula in the paper's appendix G.2 to the letter, ``sqrt((sum_k mu_k - mu) / K)`` over the K groups, with
        ``mu_k`` the share of the group whose decisions differ and ``mu`` the plain mean of the ``mu_k``. It lacks the
        square, has an indicator where definition 1 has a difference, and weighs groups equally, so it equals
        ``sqrt(mu * (K - 1) / K)`` and is no spread. (Read as a sum of ``mu_k - mu`` it is 0 for every model.) It has no
        standard error because K grows with n.
    grouping : str
        How units were grouped by their features. If one of these is continuous, every group has one member, and both
        numbers are over individuals: `conditional_sd` is then the spread of t itself. This is definition 1's where the
        features determine a unit's noise as far as the effect depends on it; otherwise it is larger.
    decisions, score_noise, threshold : str, str, float
        How decisions are made of scores.
    coupling : str
        How the noise of nodes drawn without explicit noise is coupled across the worlds.
    coupled : tuple of str
        These nodes; if there are none, the coupling plays no part.
    n : int
        The number of units.
    parameters : ParameterUse
        How the program's parameters came by their values. If they have several posterior draws, units are spread over
        up to 50 of them, and each number is its posterior mean: the mean of what it is at each draw. Its error includes
        the choice of draws, and its ``posterior_sd`` is the spread between draws.

    References
    ----------
    Chikahara et al. (2021), definition 1, eq. (6), definition 4, and appendix G.2, "Computing unfair effects".
    """

    mean_unfair_effect: Estimate
    piu: Estimate
    conditional_sd: Estimate
    paper_condmean: float
    grouping: str
    decisions: Decisions
    score_noise: ScoreNoise
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
        """A row for each quantity: decisions, score_noise, coupling, quantity, estimate, error, posterior_sd, n."""
        numbers = {
            "mean_unfair_effect": self.mean_unfair_effect,
            "piu": self.piu,
            "conditional_sd": self.conditional_sd,
            "paper_condmean": Estimate(self.paper_condmean, np.nan, np.nan),
        }
        how = (self.decisions, self.score_noise, self.coupling)
        return pd.DataFrame(
            [(*how, name, each.value, each.error, each.posterior_sd, self.n) for name, each in numbers.items()],
            columns=["decisions", "score_noise", "coupling", "quantity", "estimate", "error", "posterior_sd", "n"],
        )

    def __str__(self) -> str:
        rule = DecisionRule(self.decisions, self.threshold, self.score_noise)
        means = "; means over draws" if self.parameters.used > 1 else ""
        given = f"parameters: {self.parameters}{means}\n" if self.parameters.names else ""
        return (
            f"truth over {self.n} units (decisions: {rule}; {coupling_text(self.coupling, self.coupled)})\n{given}"
            f"mean unfair effect  {self.mean_unfair_effect}\n"
            f"PIU                 {self.piu}\n"
            f"conditional sd      {self.conditional_sd}  ({self.grouping})\n"
            f"paper's condmean    {self.paper_condmean:.4f}"
        )


def measure_truth(
    model: Any,
    worlds: tuple[pd.DataFrame, pd.DataFrame],
    factual: pd.DataFrame,
    graph: CausalGraph,
    rule: DecisionRule,
    *,
    coupling: str,
    coupled: tuple[str, ...] = (),
    parameters: ParameterUse = NO_PARAMETERS,
    sizes: Sequence[int] | None = None,
) -> Truth:
    """Score the same n units in both worlds, and group them by their observed features.

    ``sizes`` are the numbers of units that share each draw of the parameters, in the order of the rows; by default all
    share one.
    """
    *_, effect, differs = rule.compare(type(model).__name__, model, worlds, graph)
    n = len(effect)
    group = factual.groupby(list(factual), sort=False, dropna=False).ngroup().to_numpy().astype(np.int64)
    ends = np.cumsum([0, *(sizes or [n])])
    parts = [slice(start, end) for start, end in pairwise(ends)]
    cells = [_cells(group[part]) for part in parts]
    spreads = [spread_of_groups(effect[part], *cell) for part, cell in zip(parts, cells, strict=True)]
    letter = [_to_the_letter(differs[part], *cell) for part, cell in zip(parts, cells, strict=True)]
    return Truth(
        mean_unfair_effect=Estimate.pooled([Estimate.of(effect[part]) for part in parts]),
        piu=Estimate.pooled([Estimate.of(differs[part]) for part in parts]),
        conditional_sd=Estimate.pooled(spreads),
        paper_condmean=float(np.mean(letter)),
        grouping=describe_groups(list(factual.columns), np.concatenate([size for _, size in cells]), len(parts)),
        decisions=rule.decisions,
        score_noise=rule.score_noise,
        threshold=rule.threshold,
        coupling=coupling,
        coupled=coupled,
        n=n,
        parameters=parameters,
    )


def _cells(group: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group of each unit, numbered from 0 without gaps, and the sizes of the groups."""
    _, cell, size = np.unique(group, return_inverse=True, return_counts=True)
    return cell.astype(np.int64), size.astype(np.int64)


def _to_the_letter(differs: Vector, group: NDArray[np.int64], size: NDArray[np.int64]) -> float:
    """Return the formula of the paper's appendix G.2."""
    mu = np.bincount(group, differs) / size
    return float(np.sqrt(max(mu.sum() - mu.mean(), 0.0) / len(mu)))


def spread_of_groups(effect: Vector, group: NDArray[np.int64], size: NDArray[np.int64]) -> Estimate:
    """Return the standard deviation over n units of the mean effects of their groups, (n,), of sizes (groups,).

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
    """Describe how units are grouped, from the columns and the groups' sizes."""
    alone, n = int((size == 1).sum()), int(size.sum())
    names = ", ".join(columns)
    if len(size) == n:
        return f"no two of {n} units share {names}: a spread over individuals"
    text = f"{len(size)} groups of identical {names}" + (" and draw" if draws > 1 else "")
    return text + (f", {alone} of one unit ({alone / n:.1%} of all)" if alone else "")
