"""Both worlds from a structural equation model, given as a Pyro program, and the posterior of its effects."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from pyrofair._progress import progress_bar
from pyrofair._random import seed_from
from pyrofair._validation import (
    Constraint,
    check_settings,
    optional,
    require_callable,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_names,
    require_real,
    require_seed,
    require_units,
)
from pyrofair.effects.potential_outcomes import CounterfactualSample, Estimate, GroupSize
from pyrofair.effects.scoring import Decisions
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.paths import UnfairPaths, require_unfair
from pyrofair.inference.abduction import Method, Settings, counterfactuals
from pyrofair.inference.counterfactuals import Counterfactuals
from pyrofair.inference.inversion import Inverse
from pyrofair.inference.posterior import Posterior
from pyrofair.inference.samplers import NormalGuide
from pyrofair.mechanisms.conditional import LearnedProgram
from pyrofair.mechanisms.learn import LearnedMechanisms, require_graph
from pyrofair.programs.couplings import Coupling, require_couplings
from pyrofair.programs.covariates import ROW
from pyrofair.programs.parameters import MOST_DRAWS, read_priors, require_posterior, thin
from pyrofair.programs.populations import Population, Units, read_population, world_tables
from pyrofair.programs.provenance import Program
from pyrofair.programs.structural_equations import Equations
from pyrofair.sources.truth import (
    QUANTITIES,
    DecisionRule,
    EffectPosterior,
    ScoreNoise,
    Truth,
    measure_truth,
)
from pyrofair.tables.labels import codes_of_do, codes_of_rows, levels_by_column, outcome_levels, read_levels
from pyrofair.tables.reading import as_pandas, read_weight

__all__ = ["SEM", "effect_posterior"]

DEFAULT_UNITS = 10_000
MOST_UNITS = 10_000_000
"""Beyond so many units no number is recommended."""


def _require_dtypes(name: str, value: Any) -> None:
    if not isinstance(value, Mapping | pd.Series):
        raise DataError(f"{name}={value!r:.60} must be types by column, such as df.dtypes.")


CONSTRAINTS: dict[str, Constraint] = {
    "unfair": partial(require_instance, types=UnfairPaths, expected="unfair paths, made by graph.unfair(...)"),
    "program": partial(require_callable, what="a Pyro program of the number of units"),
    "unit": partial(require_choice, choices=("noise", "shared")),
    "draws": require_integer,
    "random_state": lambda name, value: require_seed(value, name),
    "posterior": optional(lambda _, value: require_posterior(value)),
    "levels": optional(
        partial(require_instance, types=Mapping, expected="a dictionary from node sites to their labels, or None")
    ),
    "dtypes": optional(_require_dtypes),
    "coupling": lambda _, value: require_couplings([value]),
}


class SEM(BaseEstimator):  # type: ignore[misc]
    """Potential outcomes computed by a structural equation model: ``do`` on the parents, the noise shared.

    It is :class:`~pyrofair.effects.Diagnosed`. It cannot be refitted, for the program is given.

    Parameters
    ----------
    program
        A Pyro program of the number of units. Sites in its plate are per unit: those named like a node of the graph
        (or a column of it) are nodes, the others exogenous noise. A vector-valued node (an event, or a plate of items)
        has a column for each component. Sites outside are parameters, drawn once. Covariates that are observed and not
        modelled are passed by :func:`pyrofair.programs.covariates.with_covariates`.
    unfair
        The unfair paths, recanting witnesses included.
    unit
        What the worlds share: ``"noise"``, the unit; or ``"shared"``, only the nodes that no unfair path touches, the
        others being drawn anew in each world.
    coupling
        How the noise of a node drawn without explicit noise is coupled across the worlds: ``"gumbel"``, Gumbel-max for
        categories without an order, whatever their codes, and monotone for all others; ``"monotone"`` (one uniform
        through the quantile function, that of the codes for categories), ``"independent"``, or ``"antithetic"``.
        Ordered categories are declared by :class:`pyrofair.programs.OrderedCategorical` or Pyro's ``OrderedLogistic``.
        Of a vector each component is coupled given those before it.
    posterior
        Draws of the parameters: what :func:`pyrofair.fit_posterior` returns, or for each an array of shape
        (draws, ...). Units are spread over up to 50 of them, picked at random, at least 100 units to each; a unit's
        two worlds share one. Without it one draw of their prior is used, with a warning.
    draws
        With ``unit="shared"``: the draws of each unit, at least 2.
    random_state
        Seeds calls without a seed of their own.
    levels
        For a node site whose values are codes 0, 1, ..., their labels in all tables; the sensitive attribute has those
        of the graph.
    dtypes
        For some columns their pandas type in both worlds, such as ``df.dtypes``. By default that of the table given to
        ``worlds``, or else to ``fit``, or else the program's. Numbers that a type cannot hold exactly stay as they are.

    References
    ----------
    Chikahara et al. (2021), section 2.2 and appendix A; Pearl (2009), chapter 7.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> from pyrofair import CausalGraph
    >>> def program(n):
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         U = pyro.sample("U", dist.Normal(0.0, 1.0))
    ...         pyro.deterministic("M", 2 * A + U)
    >>> graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    >>> baseline, switched = SEM(program, graph.unfair("A -> M -> Y")).nodes(3, random_state=0)
    >>> (switched["M"] - baseline["M"]).round(4).tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        program: Program,
        unfair: UnfairPaths,
        *,
        unit: Literal["noise", "shared"] = "noise",
        coupling: Coupling = "gumbel",
        posterior: Posterior | Mapping[str, npt.ArrayLike] | None = None,
        draws: int = 200,
        random_state: int | None = None,
        levels: Mapping[str, Sequence[Any]] | None = None,
        dtypes: Mapping[Any, Any] | None = None,
    ) -> None:
        self.program = program
        self.unfair = unfair
        self.unit = unit
        self.coupling = coupling
        self.posterior = posterior
        self.draws = draws
        self.random_state = random_state
        self.levels = levels
        self.dtypes = dtypes

    @classmethod
    def from_mechanisms(cls, learned: LearnedMechanisms, unfair: UnfairPaths, **settings: Any) -> Self:
        """Return mechanisms learned by :func:`pyrofair.learn_mechanisms` as an SEM with their posterior.

        The unfair paths must be those of the graph that they were learned along (``GraphError``); ``settings`` are
        those of :class:`pyrofair.SEM`, such as ``unit``, ``coupling`` and ``draws``.
        """
        require_instance("learned", learned, LearnedMechanisms, "mechanisms made by learn_mechanisms(...)")
        require_graph(unfair, learned.graph)
        if learned.levels:
            settings.setdefault("levels", learned.levels)
        settings.setdefault("dtypes", {name: learned.dtypes[name] for name in learned.fits if name in learned.dtypes})
        return cls(learned.program, unfair, **{"posterior": learned.posterior or None, **settings})

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Return itself: the program is given, and nothing is learned from the table or its weights."""
        df = as_pandas(df)
        _require_weights(sample_weight, df)
        if isinstance(df, pd.DataFrame):
            self._given = df.dtypes
        equations = self.equations()
        read_levels(self.levels, equations.node_of, equations.unfair.graph)
        self._held(warn=False)
        return self

    # -- reading the program ------------------------------------------------------------------------------------------

    def equations(self) -> Equations:
        """Return the program as structural equations, read once; a GraphError if it does not fit the graph."""
        check_settings(self, CONSTRAINTS)
        if self.unit == "shared":
            require_integer("draws", self.draws, least=2)
        self._types(None)
        key = (self.program, self.unfair, self.unit, self.coupling)
        if getattr(self, "_read", (None, None))[0] != key:
            self._read = (key, read_population(self.program, self.unfair, self.coupling, self.posterior))
        return self._read[1].equations

    @property
    def coupled(self) -> tuple[str, ...]:
        """The sites drawn without explicit noise that a classifier's columns depend on; these are coupled."""
        return self._population().coupled

    @property
    def uncertain_parameters(self) -> tuple[str, ...]:
        """The parameters without posterior draws; one draw of their prior is used."""
        return () if self._is_given() else self._population().priors.names

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind its numbers, one sentence each."""
        return self._population().assumptions(self.unit, self._held(warn=False))

    def overlap(self) -> pd.DataFrame:
        """Return an empty table: both worlds are computed by the program, and depend on no observed group."""
        return pd.DataFrame()

    def group_sizes(self) -> dict[str, tuple[GroupSize, ...]]:
        """Return no observed group for either world."""
        return {regime.name: () for regime in self.unfair.regimes}

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_read"}

    # -- both worlds --------------------------------------------------------------------------------------------------

    def nodes(self, n: int, random_state: int | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return every node of the program in both worlds, DataFrames of n rows: row i of both is one unit.

        A node that reaches the outcome by several paths which disagree (a recanting witness) is shown as the outcome
        reads it, and so is the sensitive attribute. Latent nodes of several numbers are left out.
        """
        require_units("n", n)
        require_seed(random_state)
        equations = self.equations()
        units = self._population().draw(n, self._seed(random_state), self._held())
        few = {site for site in equations.sites if len(equations.info.shapes[site]) <= 1 and site != ROW}
        order = [site for site in equations.node_of if site in few]
        first, second = self._tables(units, [self.unfair.graph.sensitive_column, *order], n)
        return first.copy(), second.copy()

    def worlds(
        self,
        n: int | None = None,
        random_state: int | None = None,
        *,
        df: pd.DataFrame | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> tuple[CounterfactualSample, CounterfactualSample]:
        """Return both worlds as the classifier reads them.

        Parameters
        ----------
        n
            The number of units, drawn from the program; by default as many as ``df`` has rows, or 10,000.
        random_state
            Seeds the draw.
        df, sample_weight
            Only the number of rows and the types of columns are used: units come from the program.

        Returns
        -------
        baseline, switched : CounterfactualSample
            In the types of the table, or else in the program's precision, mostly float32: put ``rows`` in float64
            before scoring them by hand.
        """
        _require_weights(sample_weight, df)
        require_seed(random_state)
        size = require_units("n", n) if n is not None else (len(df) if df is not None else DEFAULT_UNITS)
        population, seed, held = self._population(), self._seed(random_state), self._held()
        if self.unit == "shared":
            units, unit = population.draw_units(size, self.draws, seed, held), np.repeat(np.arange(size), self.draws)
        else:
            units, unit = population.draw(size, seed, held, population.inputs), np.arange(size)
        weight = np.broadcast_to(1.0 / len(unit), len(unit))  # takes no memory, which costs more time than arithmetic
        df = as_pandas(df)
        types = df.dtypes if isinstance(df, pd.DataFrame) else None
        first, second = self._tables(units, self.unfair.graph.input_columns, len(unit), types)
        return CounterfactualSample(first, weight, unit), CounterfactualSample(second, weight, unit)

    # -- given units -------------------------------------------------------------------------------------------------

    def counterfactual(
        self,
        df: pd.DataFrame,
        *,
        method: Method = "auto",
        inverses: Mapping[str, Inverse] | None = None,
        draws: int = 1000,
        tolerance: float | Mapping[str, float] | None = None,
        guide: NormalGuide = "normal",
        do: Mapping[str, Any] | None = None,
        predict: Sequence[str] = (),
        random_state: int | None = None,
    ) -> Counterfactuals:
        """Return both worlds of observed units: abduction of their noise, action, prediction.

        A world whose paths all carry a unit's own value of the sensitive attribute equals its observed row.

        Parameters
        ----------
        df
            The n units: a column for each node of the program that is not latent. The outcome, if it is a column, is
            evidence too, and predicted in both worlds.
        method, inverses, draws, tolerance, guide
            How the noise is inferred; see :func:`pyrofair.inference.abduct`.
        do
            Nodes, by site or column, set in both worlds besides: each to a number or to one for each unit.
        predict
            Nodes without a column that the worlds show as well, each a number: latent ones, or the outcome, as the
            program draws it (0 and 1 if it is a decision). Their noise has its prior where no observed node reads it.
        random_state
            Seeds the draws. Units are inferred in blocks, in the order of the table, so that a unit's draws depend on
            the units before it. The result holds 8 bytes for each draw of noise, and of a node that differs between
            draws; besides these the memory does not grow with the table. Take fewer ``draws`` for many units.

        Returns
        -------
        Counterfactuals
            ``.baseline``, ``.switched``, ``.draws``, ``.noise``, ``.diagnostics``, ``.exact``, ``.scores(model)``;
            print it for a summary. With posterior draws of the program's parameters, up to 50 of them share each
            unit's draws; its row does not change their posterior.

        Raises
        ------
        DataError
            If the table or a setting does not fit, a row is impossible under the program, or the method cannot serve a
            node.

        References
        ----------
        Chikahara et al. (2021), appendix A.1 (woman i and man j); Pearl (2009), theorem 7.1.7.

        Examples
        --------
        >>> import pyro, pyro.distributions as dist
        >>> from pyrofair import CausalGraph
        >>> def program(n):
        ...     with pyro.plate("units", n):
        ...         A = pyro.sample("A", dist.Bernoulli(0.5))
        ...         U = pyro.sample("U", dist.Normal(0.0, 1.0))
        ...         pyro.deterministic("M", 2 * A + U)
        >>> graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
        >>> given = pd.DataFrame({"A": [0, 1], "M": [0.5, 2.5]}, index=["woman", "man"])
        >>> SEM(program, graph.unfair("A -> M -> Y")).counterfactual(given).switched
               A    M
        woman  0  2.5
        man    0  2.5
        """
        settings = Settings(method, inverses, draws, tolerance, guide)
        require_seed(random_state)
        if do is not None:
            require_instance("do", do, Mapping, "a dictionary from nodes to values, or None")
        predict = require_names("predict", predict, "nodes without a column")
        equations = self.equations()
        graph, node_of = equations.unfair.graph, equations.node_of
        levels = outcome_levels(read_levels(self.levels, node_of, graph), node_of, graph, df)
        labels, held = levels_by_column(levels, node_of, graph), self._held()
        found = counterfactuals(
            equations,
            codes_of_rows(df, labels),
            settings,
            coupling=self.coupling,
            posterior=held,
            do=codes_of_do(do, {**labels, **levels}),
            predict=predict,
            random_state=self._seed(random_state),
        )
        used = self._population().priors.use(held, min(draws, MOST_DRAWS))
        types = self._types(getattr(df, "dtypes", None))
        return replace(found.labelled(labels, types), parameters=used)

    # -- ground truth -------------------------------------------------------------------------------------------------

    def truth(
        self,
        model: Any,
        n: int = 100_000,
        random_state: int | None = None,
        decisions: Decisions = "threshold",
        threshold: float = 0.5,
        score_noise: ScoreNoise = "shared",
    ) -> Truth:
        """Return the unfair effects of a model on n units drawn from the program, each evaluated in both worlds.

        Parameters
        ----------
        model
            Anything with ``predict_proba``. One that was fitted without column names gets them in the graph's order.
        n
            The number of units, whatever ``unit`` is.
        random_state
            Seeds the draw.
        decisions, threshold
            Whether a score makes a decision by exceeding the threshold (``"threshold"``), or is the probability of one
            (``"score"``). Drawn decisions are averaged over exactly.
        score_noise
            With ``"score"``: whether decisions are drawn with one noise in both worlds (``"shared"``) or with a noise
            in each (``"own"``).

        Returns
        -------
        Truth
            With several posterior draws the posterior means, units being spread over draws, and the standard
            deviation between draws (``effect_posterior`` has intervals).

        Raises
        ------
        DataError
            If the model reads other columns than the outcome's observed parents, or a setting is unknown.
        CouplingError
            If a node without explicit noise cannot be coupled.

        References
        ----------
        Chikahara et al. (2021), eq. (6), definitions 1 and 4, appendix G.2. See :class:`pyrofair.sources.Truth`.
        """
        rule = DecisionRule(decisions, threshold, score_noise)
        require_units("n", n)
        require_seed(random_state)
        population, columns, held = self._population(), self.unfair.graph.input_columns, self._held()
        units = population.draw(n, self._seed(random_state), held, population.inputs, actual=True)
        actual = [units.worlds[2][site].expand(n).numpy() for site in population.columns]
        return measure_truth(
            model,
            self._tables(units, columns, n),
            pd.DataFrame(dict(zip(columns, actual, strict=True))),
            self.unfair.graph,
            rule,
            coupling=population.named_coupling,
            coupled=population.coupled,
            parameters=population.priors.use(held, len(units.sizes)),
            sizes=units.sizes,
        )

    def truths(self, model: Any, couplings: Sequence[Coupling] | None = None, **settings: Any) -> pd.DataFrame:
        """Return the ground truth of a model under several couplings, with one seed: a row for each quantity of each.

        Parameters
        ----------
        model, settings
            As for :meth:`truth`.
        couplings
            By default monotone, independent and antithetic; with nominal categories among the coupled sites Gumbel and
            independent, which do not depend on their codes. All imply the same distribution of the data, and the same
            results if all noise is explicit.

        Returns
        -------
        DataFrame
            With columns decisions, score_noise, coupling, quantity, estimate, error, posterior_sd, n.
        """
        seed = self._seed(settings.pop("random_state", None))
        found = []
        nominal = self.equations().info.nominal.intersection(self.coupled)
        default = ["gumbel", "independent"] if nominal else ["monotone", "independent", "antithetic"]
        for coupling in require_couplings(default if couplings is None else couplings):
            sem: SEM = clone(self).set_params(coupling=coupling)
            found.append(sem.truth(model, random_state=seed, **settings).table)
        return pd.concat(found, ignore_index=True)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _population(self) -> Population:
        self.equations()
        return self._read[1]

    def _tables(
        self, units: Units, columns: Sequence[str], size: int, types: Mapping[Any, Any] | pd.Series[Any] | None = None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        equations = self.equations()
        levels = read_levels(self.levels, equations.node_of, equations.unfair.graph)
        tables = world_tables(equations, units.worlds[:2], columns, size, levels, self._types(types))
        if not isinstance(self.program, LearnedProgram):
            return tables
        baseline, switched = map(self.program.with_exact_atoms, tables)
        return baseline, switched

    def _types(self, types: Mapping[Any, Any] | pd.Series[Any] | None) -> dict[Any, Any]:
        """Return the pandas types that worlds take: those given, of the constructor, or of the table of ``fit``."""
        found = types if types is not None else self.dtypes if self.dtypes is not None else getattr(self, "_given", {})
        try:
            return {name: pd.api.types.pandas_dtype(each) for name, each in found.items()}
        except TypeError as error:
            raise DataError(f"dtypes holds what is no type: {error}. Pass df.dtypes, say.") from error

    def _seed(self, random_state: int | None) -> int:
        require_seed(random_state)
        return seed_from(self.random_state if random_state is None else random_state)

    def _is_given(self) -> bool:
        return self.posterior is not None and (not isinstance(self.posterior, Mapping) or bool(self.posterior))

    def _held(self, *, warn: bool = True) -> dict[str, NDArray[Any]]:
        """Return the posterior draws of the parameters, or none, with a warning to the caller's caller."""
        priors = self._population().priors
        if self._is_given():
            return priors.read(self.posterior)
        if priors.names and warn:
            warnings.warn(priors.unknown(), PyrofairWarning, stacklevel=3)
        return {}


def _require_weights(sample_weight: object, df: object) -> None:
    """Refuse unfit weights of the rows of a table, though only the number of its rows is used."""
    if sample_weight is not None and isinstance(df, pd.DataFrame):
        read_weight(sample_weight, df)


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

    *Assumes* that the program's equations hold, and that the posterior of their parameters is sound. The model is taken
    as given: its own uncertainty plays no part.

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
    n, random_state
        The number of units, and the seed that draws them. What so few units add to a mean, their spread over
        ``sqrt(n)``, is the same in all draws, so that intervals do not hold it.
    draws
        The number of posterior draws to use, spread evenly; by default all.
    decisions, score_noise, threshold, coupling
        As in :meth:`pyrofair.SEM.truth` and :class:`pyrofair.SEM`.
    level
        Of the intervals.
    progress
        Whether to show a progress bar.

    Raises
    ------
    DataError
        If the posterior lacks a parameter of the program, has others, or holds draws that no posterior of it holds; if
        a model does not fit the graph, or a setting is unknown.

    Warns
    -----
    PyrofairWarning
        If the Monte-Carlo error is more than half the posterior's spread.

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
    optional(require_integer)("draws", draws)
    optional(CONSTRAINTS["coupling"])("coupling", coupling)
    require_flag("progress", progress)
    require_seed(random_state)
    given = sem_or_program if isinstance(sem_or_program, SEM) else SEM(sem_or_program, unfair)  # type: ignore[arg-type]
    require_callable("sem_or_program", given.program, "an SEM, or a Pyro program of the number of units")
    paths = require_unfair("unfair", given.unfair if unfair is None else unfair)
    settings: dict[str, Any] = {"coupling": coupling or given.coupling, "levels": given.levels, "dtypes": given.dtypes}
    sem = SEM(given.program, paths, posterior=posterior, **settings)
    models = dict(model) if isinstance(model, Mapping) else {type(model).__name__: model}
    if not models:
        raise DataError("model={} names no model. Pass a fitted model, or a dictionary of them, {'name': model}.")
    equations, graph = sem.equations(), paths.graph
    held = thin(read_priors(equations.program, equations.info, posterior).read(posterior), draws)
    count = len(next(iter(held.values())))
    chains = next(iter(posterior.samples.values())).shape[0] if isinstance(posterior, Posterior) else 1
    chains = chains if count % chains == 0 else 1
    found = np.empty((2, len(QUANTITIES), count, len(models)))
    seed = seed_from(random_state)
    for draw in progress_bar("posterior of effects", range(count), shown=progress):
        sem.posterior = {name: values[draw : draw + 1] for name, values in held.items()}
        worlds = [world.rows for world in sem.worlds(n, seed)]
        for index, (name, each) in enumerate(models.items()):
            c0, c1, effect, differs = rule.compare(name, each, worlds, graph, graph.input_columns, check=draw == 0)
            estimates = [Estimate.of(values) for values in (effect, differs, c0, c1)]
            found[:, :, draw, index] = np.transpose([(estimate.value, estimate.error) for estimate in estimates])
    samples, errors = (
        dict(zip(QUANTITIES, part.reshape(len(QUANTITIES), chains, -1, len(models)), strict=True)) for part in found
    )
    named: dict[str, Any] = {"coupling": equations.coupling_of(sem.coupling, sem.coupled), "coupled": sem.coupled}
    result = EffectPosterior(samples, errors, tuple(models), n, **asdict(rule), **named, level=level)
    _warn_of_chance(result.table)
    return result


def _warn_of_chance(table: pd.DataFrame) -> None:
    """Warn if the Monte-Carlo error of an effect is more than half its posterior's spread."""
    effects = table[table["quantity"].isin(QUANTITIES[:2]) & (table["sd"] > 0.0)]
    times = effects["mc_error"] / effects["sd"]
    if not (times > 0.5).any():
        return
    n = int(table["n"].iloc[0])
    wanted = math.ceil(n * (4 * float(times.max())) ** 2 / 1000) * 1000
    advice = f"n={wanted} to make it a quarter" if wanted <= MOST_UNITS else "many more units"
    text = (
        f"With {n} units the Monte-Carlo error is up to {times.max():.2f} times the posterior's spread "
        f"({', '.join(effects['quantity'][times > 0.5].unique())}), and the intervals do not hold it. Take {advice}."
    )
    warnings.warn(text, PyrofairWarning, stacklevel=3)
