"""Both worlds from a structural equation model that is a Pyro program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone

from pyrofair.abduction import Method, Settings, counterfactuals
from pyrofair.counterfactuals import Counterfactuals
from pyrofair.couplings import COUPLINGS, Coupling
from pyrofair.equations import Equations, read_equations
from pyrofair.exceptions import DataError
from pyrofair.gradients import Guide
from pyrofair.inversion import Inverse
from pyrofair.isolation import isolated, seed_from
from pyrofair.noise import Noise
from pyrofair.parallel_worlds import both_worlds, choose_way
from pyrofair.paths import UnfairPaths
from pyrofair.potential_outcomes import CounterfactualSample
from pyrofair.programs import Program
from pyrofair.shared_units import shared_worlds
from pyrofair.truth import Truth, TruthDecisions, measure_truth, require_settings
from pyrofair.worlds import World, factual

__all__ = ["SEM"]

DEFAULT_PEOPLE = 10_000


class SEM(BaseEstimator):  # type: ignore[misc]
    """Potential outcomes computed by a structural equation model: ``do`` on the parents, the noise shared.

    Parameters
    ----------
    program
        A Pyro program of the number of people. Sites in its plate are per person: those named like a node of the graph
        (or like a column of it) are nodes, the others are exogenous noise. Sites outside are parameters, drawn once.
    unfair
        The unfair paths, recanting witnesses included.
    unit
        What the worlds share: ``"noise"``, the person; or ``"shared"``, only the nodes that no unfair path touches, the
        others being drawn anew in each world.
    coupling
        How the noise of a node drawn without explicit noise hangs together across the worlds: ``"monotone"`` (one
        uniform through the quantile function), ``"independent"``, ``"antithetic"``, or ``"gumbel"`` (Gumbel-max for
        categorical nodes, monotone for others).
    posterior
        Draws of the parameters: for each an array of shape (draws, ...). Each call picks one draw.
    draws
        With ``unit="shared"``: the draws of each unit.
    random_state
        Seeds calls that name no seed of their own.

    References
    ----------
    Chikahara et al. (2021), section 2.2 and appendix A; Pearl (2009), chapter 7.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> from pyrofair import CausalGraph
    >>> def program(n):
    ...     with pyro.plate("people", n):
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
        coupling: Coupling = "monotone",
        posterior: Mapping[str, npt.ArrayLike] | None = None,
        draws: int = 200,
        random_state: int | None = None,
    ) -> None:
        self.program = program
        self.unfair = unfair
        self.unit = unit
        self.coupling = coupling
        self.posterior = posterior
        self.draws = draws
        self.random_state = random_state

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, df: pd.DataFrame, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Return itself: the program is given, and nothing is learned from the table."""
        self.equations()
        return self

    # -- reading the program ------------------------------------------------------------------------------------------

    def equations(self) -> Equations:
        """Return the program as structural equations, read once.

        Raises
        ------
        GraphError
            If a node has no site, or a site reads a parent that the graph lacks.
        DataError
            If a setting is unknown.
        """
        key = (self.program, self.unfair, self.unit, self.coupling)
        if getattr(self, "_read", (None, None))[0] != key:
            if self.coupling not in COUPLINGS:
                raise DataError(f"coupling={self.coupling!r} is not known; it is one of {', '.join(COUPLINGS)}.")
            if self.unit not in ("noise", "shared"):
                raise DataError(f"unit={self.unit!r} is not known; it is 'noise' or 'shared'.")
            equations = read_equations(self.program, self.unfair)
            self._read = (key, equations, choose_way(equations, self.coupling))
        return self._read[1]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_read"}

    # -- both worlds --------------------------------------------------------------------------------------------------

    def nodes(self, n: int, random_state: int | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return every node of the program in both worlds, for the same n people.

        A node that reaches the outcome by several paths which disagree (a recanting witness) is shown as the outcome
        reads it, and so is the sensitive attribute. Latent nodes of several numbers are left out.

        Returns
        -------
        baseline, switched : DataFrames of n rows
            Row i of both is one person.
        """
        equations = self.equations()
        first, second = self._run(n, random_state)
        shown = [site for site in equations.sites if equations.info.dimensions[site] <= 1]
        order = [site for site in equations.node_of if site in shown]
        columns = [self.unfair.graph.sensitive_column, *order]
        return self._frame(first, columns, 0, n).copy(), self._frame(second, columns, 1, n).copy()

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
            Only their number is used: people come from the program.
        """
        size = n if n is not None else (len(df) if df is not None else DEFAULT_PEOPLE)
        graph = self.unfair.graph
        reads = graph.input_columns
        sites = [self._site(column) for column in reads if column != graph.sensitive_column]
        if self.unit == "shared":
            first, second = self._run_shared(size, random_state, sites)
            unit = np.repeat(np.arange(size), self.draws)
        else:
            first, second = self._run(size, random_state, sites)
            unit = np.arange(size)
        weight = np.broadcast_to(1.0 / len(unit), len(unit))  # takes no memory, which costs more time than arithmetic
        return (
            CounterfactualSample(self._frame(first, reads, 0, len(unit)), weight, unit),
            CounterfactualSample(self._frame(second, reads, 1, len(unit)), weight, unit),
        )

    # -- given people -------------------------------------------------------------------------------------------------

    def counterfactual(
        self,
        df: pd.DataFrame,
        *,
        method: Method = "auto",
        inverses: Mapping[str, Inverse] | None = None,
        draws: int = 1000,
        tolerance: float | Mapping[str, float] | None = None,
        guide: Guide = "AutoNormal",
        do: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> Counterfactuals:
        """Return both worlds of observed people: abduction of their noise, action, prediction.

        A world whose paths all carry a person's own value of the sensitive attribute gives her row back.

        Parameters
        ----------
        df
            The n people: a column for each node of the program that is not latent. If the outcome is there, it is
            evidence too, and predicted in both worlds.
        method, inverses, draws, tolerance, guide
            How the noise is inferred; see :func:`pyrofair.abduction.abduct`.
        do
            Nodes that are set in both worlds besides, each to a number or to one for each person.
        random_state
            Seeds the draws.

        Returns
        -------
        Counterfactuals
            ``.baseline``, ``.switched``, ``.draws``, ``.noise``, ``.diagnostics``, ``.exact``, ``.scores(model)``. With
            posterior draws of the program's parameters, up to 50 of them share each person's draws; her row does not
            change their posterior.

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
        ...     with pyro.plate("people", n):
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
        return counterfactuals(
            self.equations(),
            df,
            Settings(method, dict(inverses or {}), draws, tolerance, guide),
            coupling=self.coupling,
            posterior=getattr(self.posterior, "flat", self.posterior),
            do=do,
            random_state=self._seed(random_state),
        )

    # -- the truth about a model --------------------------------------------------------------------------------------

    def truth(
        self,
        model: Any,
        n: int = 100_000,
        random_state: int | None = None,
        decisions: TruthDecisions = "threshold",
        threshold: float = 0.5,
    ) -> Truth:
        """Return how unfair a model is to n people drawn from the program, each of whom is seen in both worlds.

        Parameters
        ----------
        model
            Anything with ``predict_proba``. One that was fitted without column names gets them in the graph's order.
        n
            The number of people, whatever ``unit`` is.
        random_state
            Seeds the draw.
        decisions, threshold
            Whether a score makes a decision by exceeding the threshold (``"threshold"``) or is the probability of one,
            drawn with one noise in both worlds (``"shared"``) or with a noise in each (``"own"``). Drawn decisions are
            averaged over exactly.

        Raises
        ------
        DataError
            If the model reads other columns than the outcome's observed parents, or a setting is unknown.
        CouplingError
            If a node without explicit noise cannot be coupled.

        References
        ----------
        Chikahara et al. (2021), eq. (6), definitions 1 and 4, appendix G.2. See :class:`pyrofair.truth.Truth`.
        """
        require_settings(n, decisions, threshold)
        equations = self.equations()
        graph = self.unfair.graph
        sites = [self._site(column) for column in graph.input_columns if column != graph.sensitive_column]
        with isolated(self._seed(random_state)):
            noise = Noise(n, self.coupling, self._parameters())
            run = both_worlds(equations, noise, sites, way=self._read[2])
            actual = factual(equations, noise, [self._site(column) for column in graph.input_columns])
        people = pd.DataFrame({column: actual[self._site(column)].numpy() for column in graph.input_columns})
        return measure_truth(
            model,
            (self._frame(run[0], graph.input_columns, 0, n), self._frame(run[1], graph.input_columns, 1, n)),
            people,
            graph,
            decisions=decisions,
            threshold=threshold,
            coupling=self.coupling,
            coupled=tuple(s for s in equations.info.sites if s in equations.endogenous - equations.idle(sites)),
        )

    def truths(
        self, model: Any, couplings: Sequence[Coupling] = ("monotone", "independent", "antithetic"), **settings: Any
    ) -> pd.DataFrame:
        """Return the truth about a model under several couplings, with one seed: a row for each quantity of each.

        Parameters
        ----------
        model, settings
            As for :meth:`truth`.
        couplings
            The couplings to compare. They agree on all that data could tell, and on everything if all noise is
            explicit.

        Returns
        -------
        DataFrame
            With columns decisions, coupling, quantity, estimate, error, n.
        """
        seed = self._seed(settings.pop("random_state", None))
        found = []
        for coupling in couplings:
            sem: SEM = clone(self).set_params(coupling=coupling)
            found.append(sem.truth(model, random_state=seed, **settings).table)
        return pd.concat(found, ignore_index=True)

    def _run(self, n: int, random_state: int | None, wanted: Sequence[str] | None = None) -> tuple[World, World]:
        equations = self.equations()
        _require_count("n", n)
        with isolated(self._seed(random_state)):
            noise = Noise(n, self.coupling, self._parameters())
            return both_worlds(equations, noise, wanted, way=self._read[2])

    def _run_shared(self, n: int, random_state: int | None, wanted: Sequence[str]) -> tuple[World, World]:
        equations = self.equations()
        _require_count("n", n)
        _require_count("draws", self.draws)
        with isolated(self._seed(random_state)):
            parameters = self._parameters()
            return shared_worlds(equations, n, self.draws, self.coupling, parameters, wanted, way=self._read[2])

    def _seed(self, random_state: int | None) -> int:
        return seed_from(self.random_state if random_state is None else random_state)

    def _parameters(self) -> dict[str, torch.Tensor]:
        if not self.posterior:
            return {}
        given = getattr(self.posterior, "flat", self.posterior)
        draws = {name: torch.as_tensor(np.atleast_1d(np.asarray(values))) for name, values in given.items()}
        unknown, sizes = sorted(set(draws) - set(self.equations().info.parameters)), {len(d) for d in draws.values()}
        if unknown or len(sizes) > 1:
            raise DataError(
                f"posterior names {unknown} that are no parameters, or holds draws of sizes {sorted(sizes)}."
            )
        pick = int(torch.randint(sizes.pop(), ()))
        return {name: values[pick].to(torch.get_default_dtype()) for name, values in draws.items()}

    def _site(self, column: str) -> str:
        """Return the site of a column: its own name, or that of its node."""
        node_of = self.equations().node_of
        return (
            column if column in node_of else next(n for n, own in self.unfair.graph.columns.items() if own == [column])
        )

    def _frame(self, world: World, columns: Sequence[str], which: int, size: int) -> pd.DataFrame:
        """Return some columns of a world as a table, the sensitive attribute as the outcome reads it.

        The two worlds share memory where they are the same, so that the columns are read-only.
        """
        graph = self.unfair.graph
        regime = self.unfair.regimes[which]
        path = (graph.sensitive, graph.outcome)
        label = graph.label(regime.value(path) if path in graph.edges else regime.on_fair)
        data: dict[str, npt.NDArray[Any]] = {}
        for column in columns:
            if column == graph.sensitive_column:
                data[column] = np.broadcast_to(np.asarray(label), size)
            else:
                data[column] = world[self._site(column)].expand(size).numpy()
                data[column].flags.writeable = False
        return pd.DataFrame(data, copy=False)


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise DataError(f"{name}={value!r} must be a whole number of at least 1.")
