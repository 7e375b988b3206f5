"""The posterior of a model's unfair effect and PIU, given draws of an SEM's parameters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tqdm.auto import tqdm

from pyrofair._arviz import summarise, to_arviz
from pyrofair._figures import ShownFigure
from pyrofair._random import seed_from
from pyrofair._validation import (
    require_callable,
    require_flag,
    require_integer,
    require_real,
    require_seed,
    require_units,
)
from pyrofair.effects.potential_outcomes import Estimate
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.paths import UnfairPaths
from pyrofair.inference.posterior import Posterior
from pyrofair.programs.couplings import Coupling, require_couplings
from pyrofair.programs.parameters import read_priors, thin
from pyrofair.programs.provenance import Program
from pyrofair.sources.sem import SEM
from pyrofair.sources.truth import DecisionRule, ScoreNoise, coupling_text

__all__ = ["EffectPosterior", "effect_posterior"]

LABELS = {"mean_unfair_effect": "mean unfair effect", "piu": "PIU", "p_y0": "P(Y0 = 1)", "p_ypi": "P(Ypi = 1)"}
QUANTITIES = tuple(LABELS)
ROUNDING = 1e-9
"""A spread of probabilities below this is none."""
MOST_UNITS = 10_000_000
"""Beyond so many units no number is recommended."""
BLUE, GREY = "#0072B2", "#666666"


@dataclass(frozen=True, eq=False, repr=False)
class EffectPosterior:
    """The posterior of the effects of models: for each draw of the SEM's parameters their effects in both worlds.

    Attributes
    ----------
    samples : dict of str to ndarray of shape (chain, draw, model)
        ``mean_unfair_effect``, ``piu``, ``p_y0`` and ``p_ypi`` (P(Y = 1) in the baseline and in the switched world).
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
        lines = [f"posterior of effects: {draws} draws, {self.n} units each; {self._how}"]
        for row in self.table.itertuples(index=False):
            lines.append(
                f"{self._name(row.quantity, row.model)}: {row.estimate:.4f}, {100 * self.level:g} % interval "
                f"[{row.lower:.4f}, {row.upper:.4f}] (Monte-Carlo error {row.mc_error:.4f})"
            )
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def _how(self) -> str:
        """How decisions and noise were treated, in words."""
        rule = DecisionRule(self.decisions, self.threshold, self.score_noise)
        return f"decisions: {rule}; {coupling_text(self.coupling, self.coupled)}"

    def _name(self, quantity: Any, model: Any) -> str:
        """Return a quantity in words, with the model's name if there are several."""
        return LABELS[quantity] + (f", {model}" if len(self.models) > 1 else "")

    def _quantiles(self, quantity: str, model: str) -> NDArray[np.float64]:
        """Return the lower end of the interval, the quartiles and the upper end, shape (5,)."""
        tail = (1.0 - self.level) / 2.0
        drawn = self.samples[quantity][..., self.models.index(model)]
        return np.quantile(drawn, [tail, 0.25, 0.5, 0.75, 1.0 - tail])

    @property
    def table(self) -> pd.DataFrame:
        """A row for each model and quantity.

        Columns: model, decisions, score_noise, coupling, quantity, estimate (posterior mean), sd, lower and upper
        (equal-tailed interval), mc_error (root mean square over draws), draws, n.
        """
        rows = []
        for place, model in enumerate(self.models):
            for quantity in QUANTITIES:
                drawn = self.samples[quantity][..., place].ravel()
                low, *_, high = self._quantiles(quantity, model)
                sd = drawn.std() if drawn.std() > ROUNDING else 0.0
                error = float(np.sqrt(np.mean(self.errors[quantity][..., place] ** 2)))
                how = (self.decisions, self.score_noise, self.coupling)
                rows.append((model, *how, quantity, drawn.mean(), sd, low, high, error, drawn.size, self.n))
        names = "model decisions score_noise coupling quantity estimate sd lower upper mc_error draws n"
        return pd.DataFrame(rows, columns=names.split())

    def to_inference_data(self) -> Any:
        """Return the draws as ArviZ data: the quantities as posterior, a dimension for the models."""
        dims = {quantity: ["model"] for quantity in QUANTITIES}
        return to_arviz({"posterior": self.samples}, coords={"model": self.models}, dims=dims)

    def summary(self, level: float | None = None) -> pd.DataFrame:
        """Return mean, standard deviation and equal-tailed interval of each quantity, and convergence diagnostics.

        One chain has no R-hat and no effective sample sizes; one draw has means alone.

        Parameters
        ----------
        level
            Of the interval, by default that of the table.

        Returns
        -------
        DataFrame with a row for each quantity of each model
            As :meth:`pyrofair.Posterior.summary`.

        Raises
        ------
        DataError
            If the level is not between 0 and 1.
        """
        with np.errstate(invalid="ignore"):  # a PIU of 0 in all draws has no error to estimate
            return summarise(self.to_inference_data(), level=self.level if level is None else level)

    def plot(self) -> Figure:
        """Return a forest plot: of each quantity the median, the quartiles, and the interval of the table."""
        rows = [(quantity, model) for quantity in QUANTITIES for model in self.models]
        low, first, median, third, high = np.transpose([self._quantiles(*row) for row in rows])
        place = np.arange(len(rows))[::-1]
        figure = ShownFigure(figsize=(8.0, 1.2 + 0.35 * len(rows)), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0.0, color=GREY, linestyle="--", linewidth=1, zorder=0)
        axes.hlines(place, low, high, color=BLUE, linewidth=1.5)
        axes.hlines(place, first, third, color=BLUE, linewidth=4)
        axes.plot(median, place, "o", color=BLUE, markerfacecolor="white")
        axes.set_yticks(place, [self._name(*row) for row in rows])
        axes.set_xlabel(f"median, quartiles and equal-tailed {100 * self.level:g} % interval")
        axes.set_title(f"posterior; {self._how}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        return figure


def effect_posterior(
    sem_or_program: SEM | Program,
    unfair: UnfairPaths | None,
    model: Any,
    posterior: Posterior | Mapping[str, npt.ArrayLike],
    *,
    n: int = 20_000,
    draws: int | None = None,
    decisions: Decisions = "threshold",
    score_noise: ScoreNoise = "shared",
    threshold: float = 0.5,
    coupling: Coupling | None = None,
    level: float = 0.95,
    progress: bool = True,
    random_state: int | np.random.Generator | None = None,
) -> EffectPosterior:
    """Return the posterior of a model's mean unfair effect and of its PIU.

    For each draw of the parameters both worlds are made for the same units: the noise has the same seed in all draws,
    so that draws differ by their parameters and not by chance.

    *Assumes* that the program's equations hold, and that the posterior of their parameters is sound. A model fitted on
    the rows that the posterior rests on is taken as given: its own uncertainty plays no part.

    Parameters
    ----------
    sem_or_program
        A program with parameters, or an SEM made of it, which also gives ``unfair`` and ``coupling`` if they are None.
    unfair
        The unfair paths.
    model
        Anything with ``predict_proba``, or a dictionary of such models by name.
    posterior
        What :func:`pyrofair.fit_posterior` returns, or for each parameter its draws, shape (draws, ...).
    n
        The number of units.
    draws
        The number of posterior draws to use, spread evenly; by default all.
    decisions, score_noise, threshold
        As in :meth:`pyrofair.SEM.truth`.
    coupling
        As in :class:`pyrofair.SEM`.
    level
        Of the intervals.
    progress
        Whether to show a progress bar.
    random_state
        Seeds the units.

    Raises
    ------
    DataError
        If the posterior lacks a parameter of the program, has others, or holds draws that no posterior of it holds; if
        a model does not fit the graph, or a setting is unknown.

    Warns
    -----
    PyrofairWarning
        If the Monte-Carlo error is more than half the posterior's spread: take more units.

    References
    ----------
    Chikahara et al. (2021), eq. (6) and definition 4, for each draw.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> from pyrofair import CausalGraph
    >>> from sklearn.linear_model import LogisticRegression
    >>> def program(n):
    ...     b = pyro.sample("b", dist.Normal(0.0, 5.0))
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         U = pyro.sample("U", dist.Normal(0.0, 1.0))
    ...         pyro.deterministic("M", b * A + U)
    >>> unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    >>> model = LogisticRegression().fit(pd.DataFrame({"M": [-1.0, 1.0]}), [0, 1])
    >>> found = effect_posterior(program, unfair, model, {"b": [0.0, 0.5, 1.0]}, progress=False, random_state=0)
    >>> found.samples["piu"].round(1).ravel().tolist()
    [0.0, 0.2, 0.3]
    """
    require_units("n", n)
    rule = DecisionRule(decisions, threshold, score_noise)
    require_real("level", level, above=0.0, below=1.0)
    if draws is not None:
        require_integer("draws", draws)
    if coupling is not None:
        require_couplings([coupling])
    require_flag("progress", progress)
    require_seed(random_state)
    given = sem_or_program if isinstance(sem_or_program, SEM) else None
    if given is None:
        require_callable("sem_or_program", sem_or_program, "an SEM, or a Pyro program of the number of units")
    paths = unfair if unfair is not None or given is None else given.unfair
    if paths is None:
        raise DataError("unfair is None: name the unfair paths, or pass an SEM.")
    sem = SEM(
        given.program if given is not None else sem_or_program,
        paths,
        coupling=coupling or (given.coupling if given is not None else "gumbel"),
        posterior=posterior,
        levels=given.levels if given is not None else None,
        dtypes=given.dtypes if given is not None else None,
    )
    models = dict(model) if isinstance(model, Mapping) else {type(model).__name__: model}
    if not models:
        raise DataError("model={} names no model. Pass a fitted model, or a dictionary of them, {'name': model}.")
    held = thin(read_priors(sem.equations().program, sem.equations().info, posterior).read(posterior), draws)
    count = len(next(iter(held.values())))
    chains = next(iter(posterior.samples.values())).shape[0] if isinstance(posterior, Posterior) else 1
    chains = chains if count % chains == 0 else 1
    found = np.empty((2, len(QUANTITIES), count, len(models)))
    seed, graph = seed_from(random_state), paths.graph
    for place in tqdm(range(count), desc="posterior of effects", disable=not progress, leave=False):
        sem.posterior = {name: values[place : place + 1] for name, values in held.items()}
        worlds = [world.rows for world in sem.worlds(n, seed)]
        for which, (name, each) in enumerate(models.items()):
            c0, c1, effect, differs = rule.compare(name, each, worlds, graph, graph.input_columns)
            estimates = [Estimate.of(values) for values in (effect, differs, c0, c1)]
            found[:, :, place, which] = np.transpose([(estimate.value, estimate.error) for estimate in estimates])
    samples, errors = (
        dict(zip(QUANTITIES, part.reshape(len(QUANTITIES), chains, -1, len(models)), strict=True)) for part in found
    )
    result = EffectPosterior(
        samples=samples,
        errors=errors,
        models=tuple(models),
        n=n,
        decisions=decisions,
        score_noise=score_noise,
        threshold=threshold,
        coupling=sem.equations().coupling_of(sem.coupling, sem.coupled),
        coupled=sem.coupled,
        level=level,
    )
    _warn_of_chance(result.table)
    return result


def _warn_of_chance(table: pd.DataFrame) -> None:
    """Warn if the Monte-Carlo error of an effect is more than half its posterior's spread."""
    effects = table[table["quantity"].isin(QUANTITIES[:2])]
    blurred = effects[(effects["sd"] > ROUNDING) & (effects["mc_error"] > effects["sd"] / 2)]
    if len(blurred):
        worst = float((blurred["mc_error"] / blurred["sd"]).max())
        n = int(table["n"].iloc[0])
        wanted = math.ceil(n * (4 * worst) ** 2 / 1000) * 1000
        advice = f"n={wanted} to make it a quarter" if wanted <= MOST_UNITS else "many more units"
        warnings.warn(
            f"With {n} units the Monte-Carlo error is up to {worst:.2f} times the posterior's spread "
            f"({', '.join(blurred['quantity'].unique())}), and the intervals do not hold it. Take {advice}.",
            PyrofairWarning,
            stacklevel=3,
        )
