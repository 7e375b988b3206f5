"""Units drawn from a program in both worlds, spread over draws of its parameters, and the tables of these worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._random import isolated, set_seed
from pyrofair._validation import require_integer
from pyrofair.graph.paths import UnfairPaths
from pyrofair.programs.couplings import Coupling, Noise
from pyrofair.programs.covariates import covariate_names
from pyrofair.programs.parameters import MOST_DRAWS, Priors, allocate, at_parameters, read_priors
from pyrofair.programs.provenance import Program
from pyrofair.programs.sites import require_finite
from pyrofair.programs.structural_equations import Equations, read_equations
from pyrofair.programs.worlds import Strategy, World, both_worlds, choose_strategy, factual, shared_worlds
from pyrofair.tables.labels import Levels, as_column, labels_of

__all__ = ["Population", "Units", "read_population", "world_tables"]

Draws = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Units:
    """Units in the baseline, the unfair-path world and, on request, the world as it is.

    ``sizes`` holds how many of them share each draw of the parameters, in the order of the rows.
    """

    worlds: tuple[World, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Population:
    """A program that units can be drawn from: its equations, priors and coupling, and how worlds are evaluated."""

    equations: Equations
    priors: Priors
    coupling: Coupling
    strategy: Strategy

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The sites that a classifier reads, in the order of its columns."""
        return tuple(self.equations.site_of(column) for column in self.equations.unfair.graph.input_columns)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The same without the sensitive attribute, which worlds set."""
        return tuple(site for site in self.columns if site != self.equations.sensitive)

    @cached_property
    def coupled(self) -> tuple[str, ...]:
        """The sites drawn without explicit noise that these depend on."""
        return self.equations.coupled(self.inputs)

    @property
    def named_coupling(self) -> Coupling:
        """The coupling of these."""
        return self.equations.coupling_of(self.coupling, self.inputs)

    def assumptions(self, unit: str, held: Draws) -> tuple[str, ...]:
        """Return the assumptions of numbers made of these units, a sentence each; ``unit`` is as for an SEM."""
        found = ["The program is right: its equations, the distributions of its noise, and the independence of errors."]
        if names := ", ".join(covariate_names(self.equations.program)):
            found.append(f"The covariates {names} are distributed as in the table handed over with the program.")
        if self.coupled and unit == "noise":
            found.append(
                f"The noise of {', '.join(self.coupled)} is coupled across worlds by the {self.named_coupling} "
                "coupling. No data identify it, and PIU depends on it: SEM.truths compares several."
            )
        if unit == "shared":
            shared = ", ".join(self.equations.unfair.shared) or "nothing"
            found.append(f"Both worlds of a unit share {shared}, and all else is drawn anew in each.")
        if self.priors.names:
            use = self.priors.use(held, MOST_DRAWS)
            found.append(f"Parameters: {use}. Intervals leave out their uncertainty; effect_posterior includes it.")
        return tuple(found)

    def draw(
        self, n: int, seed: int, held: Draws, wanted: Sequence[str] | None = None, *, actual: bool = False
    ) -> Units:
        """Draw n units, on the same noise in both worlds, spread over up to 50 of the draws held.

        Sites are those wanted, by default all; with ``actual`` a classifier's columns come as they are, too.
        """

        def worlds(size: int, values: dict[str, Tensor]) -> tuple[World, ...]:
            noise = Noise(size, self.coupling, values)
            both = both_worlds(self.equations, noise, wanted, strategy=self.strategy)
            return (*both, factual(self.equations, noise, self.columns)) if actual else both

        return self._spread(n, seed, held, worlds)

    def draw_units(self, n: int, draws: int, seed: int, held: Draws) -> Units:
        """Draw n units that share only the nodes that no unfair path touches, each with draws in each world."""
        require_integer("draws", draws, least=2)  # one draw of each unit shows no unit's mean, only noise

        def worlds(size: int, values: dict[str, Tensor]) -> tuple[World, ...]:
            return shared_worlds(
                self.equations, size, draws, self.coupling, values, self.inputs, strategy=self.strategy
            )

        return self._spread(n, seed, held, worlds, draws)

    def _spread(
        self,
        n: int,
        seed: int,
        held: Draws,
        worlds: Callable[[int, dict[str, Tensor]], tuple[World, ...]],
        rows: int = 1,
    ) -> Units:
        """Evaluate the worlds of the units of each draw of the parameters, and concatenate them."""
        require_integer("n", n)
        with isolated(seed):
            parts = allocate(self.priors.tensors(held), n)
            seeds = torch.randint(2**31 - 1, (len(parts),)).tolist() if len(parts) > 1 else []
            found = []
            for i, (size, values) in enumerate(parts):
                if seeds:  # the noise of some units must not decide which come next
                    set_seed(seeds[i])
                found.append(worlds(size, values))
        sizes = tuple(size for size, _ in parts)
        return Units(found[0] if len(found) == 1 else _join(found, [size * rows for size in sizes]), sizes)


def read_population(program: Program, unfair: UnfairPaths, coupling: Coupling, posterior: Any = None) -> Population:
    """Read a program's equations and parameters, and how its worlds can be evaluated, at posterior draws if given.

    With parameters drawn from their priors it may behave as it never does at likely ones, or not run at all.
    """
    equations = read_equations(program, unfair, at_parameters(program, posterior))
    strategy = choose_strategy(replace(equations, program=at_parameters(equations.program, posterior)), coupling)
    return Population(equations, read_priors(equations.program, equations.info, posterior), coupling, strategy)


def _join(parts: Sequence[tuple[World, ...]], sizes: Sequence[int]) -> tuple[World, ...]:
    def column(which: int, site: str) -> Tensor:
        every = [worlds[which][site] for worlds in parts]
        return torch.cat([each.expand(size, *each.shape[1:]) for each, size in zip(every, sizes, strict=True)])

    return tuple({site: column(which, site) for site in world} for which, world in enumerate(parts[0]))


def world_tables(
    equations: Equations,
    worlds: Sequence[World],
    columns: Sequence[str],
    size: int,
    levels: Levels,
    dtypes: Mapping[Any, Any] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``columns``, or sites, of both worlds as tables of ``size`` rows, A as the outcome reads it.

    ``levels`` label sites that hold codes; ``dtypes`` are the pandas types of some columns. The two tables share memory
    where the worlds are the same, so their columns are read-only.
    """
    types = dict(dtypes or {})
    graph = equations.unfair.graph
    path = (graph.sensitive, graph.outcome)
    made: dict[tuple[Any, ...], Any] = {}
    tables = []
    for world, regime in zip(worlds, equations.unfair.regimes, strict=True):
        data: dict[str, Any] = {}
        for column in columns:
            if column == graph.sensitive_column:
                label = graph.label(regime.value(path) if path in graph.edges else regime.on_fair)
                data[column] = np.broadcast_to(np.asarray(label), size)
                if column in types:
                    one = as_column(column, np.asarray([label]), types[column])
                    data[column] = one.iloc[np.zeros(size, dtype=np.int64)].set_axis(range(size))
                continue
            site = equations.site_of(column)
            values = world[site]
            key = (site, values.data_ptr(), values.shape, values.stride())
            if key not in made:
                require_finite(site, values)
                made[key] = values.expand(size).numpy()
                if site in levels:
                    made[key] = labels_of(site, levels[site], made[key])
                if column in types:
                    typed = as_column(column, made[key], types[column])
                    plain = isinstance(typed.dtype, np.dtype) and typed.dtype != object
                    made[key] = typed.to_numpy() if plain else typed
                if isinstance(made[key], np.ndarray):
                    made[key].flags.writeable = False
            data[column] = made[key]
        tables.append(pd.DataFrame(data, copy=False))
    return tables[0], tables[1]
