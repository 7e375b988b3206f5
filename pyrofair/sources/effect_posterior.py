"""How unfair is a model, given what the data leave open of the SEM? The posterior of its unfair effect and of PIU."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
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
from pyrofair.effects.estimate import Estimate
from pyrofair.effects.potential_outcomes import CounterfactualSample
from pyrofair.effects.scoring import positive_scores
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths
from pyrofair.inference.posterior import Posterior
from pyrofair.programs.couplings import Coupling, require_couplings
from pyrofair.programs.parameters import read_priors, thin
from pyrofair.programs.sites import Program
from pyrofair.sources.sem import SEM
from pyrofair.sources.truth import TruthDecisions, require_settings

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
    """The posterior of what models do: for each draw of the SEM's parameters their effects in both worlds.

    Attributes
    ----------
    samples : dict of str to ndarray of shape (chain, draw, model)
        ``mean_unfair_effect``, ``piu``, ``p_y0`` and ``p_ypi`` (P(Y = 1) in the baseline and in the switched world).
    errors : dict of str to ndarray of shape (chain, draw, model)
        Their Monte-Carlo standard errors. All draws see the same units, so that these errors move all draws alike:
        the spread of the samples does not hold them.
    models : tuple of str
        The models.
    people : int
        The number of units that each draw was evaluated with.
    decisions, threshold : str, float
        How decisions are made of scores, as in :meth:`pyrofair.SEM.truth`.
    coupling : str
        How the noise of nodes drawn without explicit noise hangs together across the worlds.
    coupled : tuple of str
        These nodes; if there are none, the coupling plays no part.
    level : float
        Of the intervals: equal-tailed in the table, in the summary and in the picture.
    """

    samples: dict[str, NDArray[np.float64]] = field(repr=False)
    errors: dict[str, NDArray[np.float64]] = field(repr=False)
    models: tuple[str, ...]
    people: int
    decisions: TruthDecisions
    threshold: float
    coupling: str
    coupled: tuple[str, ...]
    level: float

    def __str__(self) -> str:
        """Say what was asked, and show each quantity with its interval."""
        draws = self.samples["piu"][..., 0].size
        noise = f", {self.coupling} noise of {', '.join(self.coupled)}" if self.coupled else ""
        lines = [f"posterior of effects: {draws} draws, {self.people} units each; decisions: {self.decisions}{noise}"]
        for row in self.table.itertuples(index=False):
            name = _name(row.quantity, row.model, self.models)
            lines.append(
                f"{name}: {row.estimate:.4f}, {100 * self.level:g} % interval [{row.lower:.4f}, {row.upper:.4f}] "
                f"(Monte-Carlo error {row.mc_error:.4f})"
            )
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def table(self) -> pd.DataFrame:
        """A row for each model and quantity.

        Columns: model, decisions, coupling, quantity, estimate (posterior mean), sd, lower and upper (equal-tailed
        interval), mc_error (root mean square over draws), draws, units.
        """
        tail = (1.0 - self.level) / 2.0
        rows = []
        for place, model in enumerate(self.models):
            for quantity in QUANTITIES:
                drawn = self.samples[quantity][..., place].ravel()
                error = float(np.sqrt(np.mean(self.errors[quantity][..., place] ** 2)))
                low, high = np.quantile(drawn, [tail, 1.0 - tail])
                sd = drawn.std() if drawn.std() > ROUNDING else 0.0
                rows.append((model, self.decisions, self.coupling, quantity, drawn.mean(), sd, low, high, error))
        names = ["model", "decisions", "coupling", "quantity", "estimate", "sd", "lower", "upper", "mc_error"]
        drawn = self.samples["piu"][..., 0]
        return pd.DataFrame(rows, columns=names).assign(draws=drawn.size, people=self.people)

    def to_inference_data(self) -> Any:
        """Return the draws as ArviZ data: the quantities as posterior, a dimension for the models."""
        dims = {quantity: ["model"] for quantity in QUANTITIES}
        return to_arviz({"posterior": self.samples}, coords={"model": self.models}, dims=dims)

    def summary(self, level: float | None = None) -> pd.DataFrame:
        """Return mean, standard deviation and equal-tailed interval of each quantity, as far as the draws tell them.

        With one chain, which has nothing to be compared with, there are no R-hat and effective sample sizes; with one
        draw there are means alone.

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
        tail = (1.0 - self.level) / 2.0
        rows = [(quantity, model) for quantity in QUANTITIES for model in self.models]
        drawn = np.stack([self.samples[quantity][..., self.models.index(model)].ravel() for quantity, model in rows])
        low, first, median, third, high = np.quantile(drawn, [tail, 0.25, 0.5, 0.75, 1.0 - tail], axis=1)
        place = np.arange(len(rows))[::-1]
        figure = ShownFigure(figsize=(8.0, 1.2 + 0.35 * len(rows)), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0.0, color=GREY, linestyle="--", linewidth=1, zorder=0)
        axes.hlines(place, low, high, color=BLUE, linewidth=1.5)
        axes.hlines(place, first, third, color=BLUE, linewidth=4)
        axes.plot(median, place, "o", color=BLUE, markerfacecolor="white")
        axes.set_yticks(place, [_name(quantity, model, self.models) for quantity, model in rows])
        axes.set_xlabel(f"median, quartiles and equal-tailed {100 * self.level:g} % interval")
        noise = f", {self.coupling} noise of {', '.join(self.coupled)}" if self.coupled else ""
        axes.set_title(f"posterior; decisions: {self.decisions}{noise}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        return figure


def effect_posterior(
    sem_or_program: SEM | Program,
    unfair: UnfairPaths | None,
    model: Any,
    posterior: Posterior | Mapping[str, npt.ArrayLike],
    *,
    people: int = 20_000,
    draws: int | None = None,
    decisions: TruthDecisions = "threshold",
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
    people
        The number of units.
    draws
        The number of posterior draws to use, spread evenly; by default all.
    decisions, threshold
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
    >>> from sklearn.linear_model import LogisticRegression
    >>> def program(n):
    ...     b = pyro.sample("b", dist.Normal(0.0, 5.0))
    ...     with pyro.plate("people", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         U = pyro.sample("U", dist.Normal(0.0, 1.0))
    ...         pyro.deterministic("M", b * A + U)
    >>> unfair = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y").unfair("A -> M -> Y")
    >>> model = LogisticRegression().fit(pd.DataFrame({"M": [-1.0, 1.0]}), [0, 1])
    >>> found = effect_posterior(program, unfair, model, {"b": [0.0, 0.5, 1.0]}, progress=False, random_state=0)
    >>> found.samples["piu"].round(1).ravel().tolist()
    [0.0, 0.2, 0.3]
    """
    require_units("people", people)
    require_settings(1, decisions, threshold)
    require_real("level", level, above=0.0, below=1.0)
    if draws is not None:
        require_integer("draws", draws)
    if coupling is not None:
        require_couplings([coupling])
    require_flag("progress", progress)
    require_seed(random_state)
    if not isinstance(sem_or_program, SEM):
        require_callable("sem_or_program", sem_or_program, "an SEM, or a Pyro program of the number of units")
    given = sem_or_program if isinstance(sem_or_program, SEM) else None
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
    samples = {name: np.empty((count, len(models))) for name in QUANTITIES}
    errors = {name: np.empty((count, len(models))) for name in QUANTITIES}
    seed = seed_from(random_state)
    for place in tqdm(range(count), desc="posterior of effects", disable=not progress, leave=False):
        sem.posterior = {name: values[place : place + 1] for name, values in held.items()}
        worlds = sem.worlds(people, seed)
        for which, (name, each) in enumerate(models.items()):
            found = _measure(name, each, worlds, paths.graph, decisions, threshold)
            for quantity, estimate in found.items():
                samples[quantity][place, which], errors[quantity][place, which] = estimate.value, estimate.error
    shape = (chains, count // chains, len(models))
    result = EffectPosterior(
        samples={name: values.reshape(shape) for name, values in samples.items()},
        errors={name: values.reshape(shape) for name, values in errors.items()},
        models=tuple(models),
        people=people,
        decisions=decisions,
        threshold=threshold,
        coupling=sem.equations().coupling_of(sem.coupling, sem.coupled),
        coupled=sem.coupled,
        level=level,
    )
    _warn_of_chance(result.table)
    return result


def _name(quantity: Any, model: Any, models: Sequence[str]) -> str:
    """Return a quantity in words, with the model's name if there are several."""
    return LABELS[quantity] + (f", {model}" if len(models) > 1 else "")


def _measure(
    name: str,
    model: Any,
    worlds: tuple[CounterfactualSample, CounterfactualSample],
    graph: CausalGraph,
    decisions: TruthDecisions,
    threshold: float,
) -> dict[str, Estimate]:
    """Return each quantity with its Monte-Carlo error."""
    c0, c1 = (positive_scores(name, model, world.rows, graph, graph.input_columns) for world in worlds)
    if decisions == "threshold":
        c0, c1 = ((c > threshold).astype(np.float64) for c in (c0, c1))
    differs = c0 + c1 - 2.0 * c0 * c1 if decisions == "own" else np.abs(c1 - c0)
    values = (c1 - c0, differs, c0, c1)
    return {quantity: Estimate.of(each) for quantity, each in zip(QUANTITIES, values, strict=True)}


def _warn_of_chance(table: pd.DataFrame) -> None:
    effects = table[table["quantity"].isin(QUANTITIES[:2])]
    blurred = effects[(effects["sd"] > ROUNDING) & (effects["mc_error"] > effects["sd"] / 2)]
    if len(blurred):
        worst = float((blurred["mc_error"] / blurred["sd"]).max())
        people = int(table["people"].iloc[0])
        wanted = math.ceil(people * (4 * worst) ** 2 / 1000) * 1000
        advice = f"people={wanted} to make it a quarter" if wanted <= MOST_UNITS else "many more units"
        warnings.warn(
            f"With {people} units the Monte-Carlo error is up to {worst:.2f} times the posterior's spread "
            f"({', '.join(blurred['quantity'].unique())}), and the intervals do not hold it. Take {advice}.",
            PyrofairWarning,
            stacklevel=3,
        )
