"""Effects of a model over units whose outcomes in both worlds are known, and their posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pyrofair._arviz import equal_tailed, summarise, to_arviz
from pyrofair._figures import BLUE, GREY, make_rows
from pyrofair._validation import require_choice, require_real
from pyrofair.effects.potential_outcomes import Estimate
from pyrofair.effects.scoring import DECISIONS, Decisions, checked_scores, decide, positive_scores
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.programs.parameters import NO_PARAMETERS, ParameterUse

__all__ = [
    "QUANTITIES",
    "DecisionRule",
    "EffectPosterior",
    "ScoreNoise",
    "Truth",
    "measure_truth",
    "summarise_effects",
]

ScoreNoise = Literal["shared", "own"]
Vector = NDArray[np.float64]

LABELS = {"mean_unfair_effect": "mean unfair effect", "piu": "PIU", "p_y0": "P(Y0 = 1)", "p_ypi": "P(Ypi = 1)"}
QUANTITIES = tuple(LABELS)
ROUNDING = 1e-9
"""A spread of probabilities below this is none."""


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
        *,
        check: bool = True,
    ) -> tuple[Vector, Vector, Vector, Vector]:
        """Return of the same n units the probabilities of a positive decision, effects, and probabilities to differ.

        These are c0, c1, t and p of :class:`Truth`, each of shape (n,). ``check`` whether the model, if it was not
        checked before, is a function of one row.
        """
        alone = (positive_scores(name, model, rows, graph, order) for rows in worlds)
        scores = checked_scores(name, model, worlds, graph, order) if check else alone
        c0, c1 = (decide(each, self.decisions, self.threshold) for each in scores)
        own = self.decisions == "score" and self.score_noise == "own"
        return c0, c1, c1 - c0, c0 + c1 - 2.0 * c0 * c1 if own else np.abs(c1 - c0)

    def __str__(self) -> str:
        hard = self.decisions == "threshold"
        return f"score > {self.threshold:g}" if hard else f"drawn, score noise {self.score_noise}"


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
        ``mu_k`` the share of the group whose decisions differ and ``mu`` the plain mean of the ``mu_k``. It equals
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
        means = "; means over draws" if self.parameters.used > 1 else ""
        given = f"parameters: {self.parameters}{means}\n" if self.parameters.names else ""
        return (
            f"truth over {self.n} units ({_describe(self)})\n{given}"
            f"mean unfair effect  {self.mean_unfair_effect}\n"
            f"PIU                 {self.piu}\n"
            f"conditional sd      {self.conditional_sd}  ({self.grouping})\n"
            f"paper's condmean    {self.paper_condmean:.4f}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class EffectPosterior:
    """The posterior of the effects of models: for each draw of the SEM's parameters their effects in both worlds.

    Attributes
    ----------
    samples : dict of str to ndarray of shape (chain, draw, model)
        ``mean_unfair_effect``, ``piu``, ``p_y0`` and ``p_ypi`` (P(Y = 1) in the baseline and in the unfair-path world).
    errors : dict of str to ndarray of shape (chain, draw, model)
        Their Monte-Carlo standard errors. All draws see the same units, so that these errors move all draws alike:
        the spread of the samples does not hold them.
    models : tuple of str
        The models.
    n : int
        The number of units that each draw was evaluated with.
    decisions, score_noise, threshold : str, str, float
        How decisions are made of scores, as in :meth:`pyrofair.SEM.truth`.
    coupling : str
        How the noise of nodes drawn without explicit noise is coupled across the worlds.
    coupled : tuple of str
        These nodes; if there are none, the coupling plays no part.
    level : float
        Of the intervals: equal-tailed in the table, in the summary and in the picture.
    """

    samples: dict[str, NDArray[np.float64]] = field(repr=False)
    errors: dict[str, NDArray[np.float64]] = field(repr=False)
    models: tuple[str, ...]
    n: int
    decisions: Decisions
    score_noise: ScoreNoise
    threshold: float
    coupling: str
    coupled: tuple[str, ...]
    level: float

    def __str__(self) -> str:
        draws = self.samples["piu"][..., 0].size
        lines = [f"posterior of effects: {draws} draws, {self.n} units each; {_describe(self)}"]
        lines += [
            f"{self._name(row.quantity, row.model)}: {row.estimate:.4f}, {100 * self.level:g} % interval "
            f"[{row.lower:.4f}, {row.upper:.4f}] (Monte-Carlo error {row.mc_error:.4f})"
            for row in self.table.itertuples(index=False)
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _name(self, quantity: Any, model: Any) -> str:
        """Return a quantity in words, with the model's name if there are several."""
        return LABELS[quantity] + (f", {model}" if len(self.models) > 1 else "")

    @property
    def table(self) -> pd.DataFrame:
        """A row for each model and quantity.

        Columns: model, decisions, score_noise, coupling, quantity, estimate (posterior mean), sd, lower and upper
        (equal-tailed interval), mc_error (root mean square over draws), draws, n.
        """
        rows = []
        for (index, model), quantity in product(enumerate(self.models), QUANTITIES):
            drawn = self.samples[quantity][..., index].ravel()
            sd = drawn.std() if drawn.std() > ROUNDING else 0.0
            error = float(np.sqrt(np.mean(self.errors[quantity][..., index] ** 2)))
            how = (model, self.decisions, self.score_noise, self.coupling, quantity)
            rows.append((*how, drawn.mean(), sd, *equal_tailed(drawn, self.level), error, drawn.size, self.n))
        names = "model decisions score_noise coupling quantity estimate sd lower upper mc_error draws n"
        return pd.DataFrame(rows, columns=names.split())

    def to_inference_data(self) -> Any:
        """Return the draws as ArviZ data: the quantities as posterior, a dimension for the models."""
        dims = {quantity: ["model"] for quantity in QUANTITIES}
        return to_arviz({"posterior": self.samples}, coords={"model": self.models}, dims=dims)

    def summary(self, level: float | None = None) -> pd.DataFrame:
        """Return mean, standard deviation and equal-tailed interval of each quantity, and convergence diagnostics.

        The table, with a row for each quantity of each model, is that of :meth:`pyrofair.Posterior.summary`; its level
        is by default that of :attr:`table`.
        """
        with np.errstate(invalid="ignore"):  # a PIU of 0 in all draws has no error to estimate
            return summarise(self.to_inference_data(), level=self.level if level is None else level)

    def plot(self) -> Figure:
        """Return a forest plot: of each quantity the median, the quartiles, and the interval of the table."""
        drawn = np.concatenate([self.samples[quantity].reshape(-1, len(self.models)) for quantity in QUANTITIES], 1)
        names = [self._name(*row) for row in product(QUANTITIES, self.models)]
        figure, (axes,), height = make_rows(names, (1,), 8.0, f"Posterior; {_describe(self)}; {self.n:,} units")
        axes.axvline(0.0, color=GREY, linestyle="--", linewidth=1, zorder=0)
        axes.hlines(height, *equal_tailed(drawn, self.level), color=BLUE, linewidth=1.5)
        axes.hlines(height, *equal_tailed(drawn, 0.5), color=BLUE, linewidth=4)
        axes.plot(np.median(drawn, axis=0), height, "o", color=BLUE, markerfacecolor="white")
        axes.set_xlabel(f"median, quartiles and equal-tailed {100 * self.level:g} % interval")
        return figure


def _describe(found: Truth | EffectPosterior) -> str:
    """Return in words how decisions are made and how noise is coupled."""
    rule = DecisionRule(found.decisions, found.threshold, found.score_noise)
    noise = f"{found.coupling} noise of {', '.join(found.coupled)}" if found.coupled else "all noise explicit"
    return f"decisions: {rule}; {noise}"


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
    found = summarise_effects(effect, differs, factual, sizes) | asdict(rule)
    return Truth(**found, coupling=coupling, coupled=coupled, parameters=parameters)


def summarise_effects(
    effect: Vector, differs: Vector, factual: pd.DataFrame, sizes: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return the quantities of :class:`Truth` by name: of n units the effects, probabilities to differ, and features.

    ``sizes`` are those of :func:`measure_truth`.
    """
    n = len(effect)
    group = factual.groupby(list(factual), sort=False, dropna=False).ngroup().to_numpy().astype(np.int64)
    parts = [slice(*each) for each in pairwise(np.cumsum([0, *(sizes or [n])]))]
    spreads, letter, counts = [], [], []
    for part in parts:
        _, cell, size = np.unique(group[part], return_inverse=True, return_counts=True)
        mu = np.bincount(cell, differs[part]) / size
        spreads.append(_spread_of_groups(effect[part], cell, size))
        letter.append(np.sqrt(max(mu.sum() - mu.mean(), 0.0) / len(mu)))
        counts.append(size)
    return {
        "mean_unfair_effect": Estimate.pooled([Estimate.of(effect[part]) for part in parts]),
        "piu": Estimate.pooled([Estimate.of(differs[part]) for part in parts]),
        "conditional_sd": Estimate.pooled(spreads),
        "paper_condmean": float(np.mean(letter)),
        "grouping": _describe_groups(", ".join(map(str, factual)), np.concatenate(counts), len(parts)),
        "n": n,
    }


def _spread_of_groups(effect: Vector, group: NDArray[np.int64], size: NDArray[np.int64]) -> Estimate:
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


def _describe_groups(names: str, size: NDArray[np.int64], draws: int) -> str:
    """Describe how units are grouped, from the names of columns and the groups' sizes."""
    alone, n = int((size == 1).sum()), int(size.sum())
    if len(size) == n:
        return f"no two of {n} units share {names}: a spread over individuals"
    text = f"{len(size)} groups of identical {names}" + (" and draw" if draws > 1 else "")
    return text + (f", {alone} of one unit ({alone / n:.1%} of all)" if alone else "")
