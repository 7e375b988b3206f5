"""Both worlds from a structural equation model that is a Pyro program."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pyro import poutine
from sklearn.base import BaseEstimator, clone

from pyrofair.couplings import COUPLINGS, Coupling
from pyrofair.exceptions import DataError, GraphError, NotIdentifiedError
from pyrofair.isolation import isolated, seed_from
from pyrofair.paths import UnfairPaths
from pyrofair.potential_outcomes import CounterfactualSample
from pyrofair.programs import Program, read_sites
from pyrofair.truth import Truth, TruthDecisions, measure_truth, require_decisions
from pyrofair.worlds import Equations, Noise, World, factual, node_by_node, side_by_side

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
            equations = _equations(self.program, self.unfair)
            self._read = (key, equations, _can_run_side_by_side(equations, self.coupling))
        return self._read[1]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_read"}

    # -- both worlds --------------------------------------------------------------------------------------------------

    def nodes(self, n: int, random_state: int | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return every node of the program in both worlds, for the same n people.

        A node that reaches the outcome by several paths which disagree (a recanting witness) is shown as the outcome
        reads it. The sensitive attribute is shown as the outcome reads it.

        Returns
        -------
        baseline, switched : DataFrames of n rows
            Row i of both is one person.
        """
        equations = self.equations()
        first, second = self._run(n, random_state)
        columns = [site for site in equations.node_of if site != equations.sensitive]
        return self._frame(first, columns, 0), self._frame(second, columns, 1)

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
        columns = [column for column in graph.input_columns if column != graph.sensitive_column]
        if self.unit == "shared":
            first, second, unit = self._run_shared(size, random_state)
        else:
            first, second = self._run(size, random_state, [self._site(column) for column in columns])
            unit = np.arange(size)
        weight = np.full(len(unit), 1.0 / len(unit))
        reads = graph.input_columns
        return (
            CounterfactualSample(self._frame(first, columns, 0)[reads], weight, unit),
            CounterfactualSample(self._frame(second, columns, 1)[reads], weight, unit),
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
        require_decisions(decisions, threshold)
        equations = self.equations()
        graph = self.unfair.graph
        columns = [column for column in graph.input_columns if column != graph.sensitive_column]
        sites = [self._site(column) for column in columns]
        with isolated(self._seed(random_state)):
            noise = Noise(n, self.coupling, self._parameters())
            run = side_by_side(equations, noise, sites) if self._read[2] else node_by_node(equations, noise)
            actual = factual(equations, noise)
        people = pd.DataFrame({column: actual[self._site(column)].numpy() for column in graph.input_columns})
        return measure_truth(
            model,
            (self._frame(run[0], columns, 0)[graph.input_columns], self._frame(run[1], columns, 1)[graph.input_columns]),
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
            The couplings to compare. They agree on all that data could tell, and on everything if all noise is explicit.

        Returns
        -------
        DataFrame
            With columns decisions, coupling, quantity, estimate, error, n.
        """
        seed = self._seed(settings.pop("random_state", None))
        runs = [clone(self).set_params(coupling=each) for each in couplings]
        return pd.concat([sem.truth(model, random_state=seed, **settings).table for sem in runs], ignore_index=True)

    def _run(self, n: int, random_state: int | None, wanted: Sequence[str] | None = None) -> tuple[World, World]:
        equations = self.equations()
        with isolated(self._seed(random_state)):
            noise = Noise(n, self.coupling, self._parameters())
            fast = self._read[2]
            return side_by_side(equations, noise, wanted) if fast else node_by_node(equations, noise)

    def _run_shared(self, n: int, random_state: int | None) -> tuple[World, World, npt.NDArray[np.int64]]:
        """Draw the shared nodes once for each unit, and the others ``draws`` times in each world, independently."""
        equations = self.equations()
        shared = [site for site, node in equations.node_of.items() if node in self.unfair.shared]
        _require_no_common_noise(equations, shared)
        people = n * self.draws
        found = []
        with isolated(self._seed(random_state)):
            parameters = self._parameters()
            first, _ = side_by_side(equations, noise := Noise(n, self.coupling, dict(parameters)))
            parameters = {name: noise.values[name] for name in equations.info.parameters if name in noise.values}
            held = {site: first[site].repeat_interleave(self.draws, 0) for site in shared}
            given = replace(equations, program=poutine.do(self.program, data=held))
            for which in (0, 1):
                drawn = Noise(people, "monotone", dict(parameters))
                found.append(side_by_side(given, drawn)[which] | held)
        return found[0], found[1], np.repeat(np.arange(n), self.draws)

    def _seed(self, random_state: int | None) -> int:
        return seed_from(self.random_state if random_state is None else random_state)

    def _parameters(self) -> dict[str, torch.Tensor]:
        if self.posterior is None:
            return {}
        draws = {name: torch.as_tensor(np.asarray(values)) for name, values in self.posterior.items()}
        pick = int(torch.randint(min(len(values) for values in draws.values()), ()))
        return {name: values[pick].to(torch.get_default_dtype()) for name, values in draws.items()}

    def _site(self, column: str) -> str:
        """Return the site of a column: its own name, or that of its node."""
        node_of = self.equations().node_of
        return (
            column if column in node_of else next(n for n, own in self.unfair.graph.columns.items() if own == [column])
        )

    def _frame(self, world: World, columns: list[str], which: int) -> pd.DataFrame:
        graph = self.unfair.graph
        regime = self.unfair.regimes[which]
        path = (graph.sensitive, graph.outcome)
        arm = regime.value(path) if path in graph.edges else regime.on_fair
        size = len(next(iter(world.values())))
        data: dict[str, Any] = {graph.sensitive_column: np.full(size, graph.label(arm))}
        data |= {column: world[self._site(column)].numpy() for column in columns}
        return pd.DataFrame(data, copy=False)


def _equations(program: Program, unfair: UnfairPaths) -> Equations:
    """Match the program's sites with the graph's nodes, and refuse a parent that the graph lacks."""
    graph = unfair.graph
    info = read_sites(program)
    node_of: dict[str, str] = {}
    for node in graph.order:
        columns = graph.columns.get(node, [node])
        if len(columns) == 1 and columns[0] not in info.sites and node in info.sites:
            columns = [node]
        if all(column not in info.sites for column in columns) and (node in graph.latent or node == graph.outcome):
            continue
        info.require(columns)
        node_of |= dict.fromkeys(columns, node)
    info = read_sites(program, check=tuple(node_of))
    equations = Equations(program, unfair, info, node_of)
    for site, causes in equations.causes.items():
        node = node_of[site]
        for cause in causes:
            if node_of[cause] != node and node_of[cause] not in graph.parents(node):
                raise GraphError(
                    f"In the program {site!r} reads {cause!r}, but the graph has no edge {node_of[cause]} -> {node}. Add "
                    f"it to the graph, or remove it from the program. The program's edges: "
                    f"{'; '.join(f'{c} -> {s}' for s, above in equations.causes.items() for c in above)}."
                )
    return equations


def _require_no_common_noise(equations: Equations, shared: Sequence[str]) -> None:
    every = tuple(equations.node_of)
    noise = {site: set(equations.info.causes(site, every)[1]) for site in every if site != equations.sensitive}
    for one in shared:
        for other in [site for site in noise if site not in shared]:
            common = sorted(noise[one] & noise[other])
            if common:
                raise NotIdentifiedError(
                    f"The shared node {one!r} and the node {other!r}, which is drawn anew in each world, have the noise "
                    f"{', '.join(common)} in common, so {other!r} cannot be drawn given its parents alone. Use "
                    "unit='noise'."
                )


def _can_run_side_by_side(equations: Equations, coupling: Coupling) -> bool:
    """Try one run with an axis of worlds, and compare it with the definition on the same few people."""
    n = 50
    with isolated(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noise = Noise(n, coupling)
        slow = node_by_node(equations, noise)
        try:
            fast = side_by_side(equations, noise)
        except (NotIdentifiedError, RuntimeError, ValueError, IndexError, TypeError):
            return False
    pairs = [(a[site], b[site]) for a, b in zip(slow, fast, strict=True) for site in a]
    return all(one.shape == other.shape and torch.allclose(one, other, equal_nan=True) for one, other in pairs)
