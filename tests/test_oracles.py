"""Estimates against structural equation models solved by enumeration, written here without the package's formulas.

Each model has finite noise, so a potential outcome is a finite sum over the noise, by its definition: the recursion
over paths in which the sensitive attribute takes the value that each path carries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from pyrofair.edges import EdgeList
from pyrofair.estimands import RegimeEstimand
from pyrofair.exceptions import FormulaNotApplicableError, NotIdentifiedError
from pyrofair.graph import CausalGraph
from pyrofair.identification import identify
from pyrofair.ipw import IPW
from pyrofair.paths import Path, Regime, UnfairPaths

Values = NDArray[np.int64]
GROUPS = ("paper", 0, 1, "pooled")


@dataclass(frozen=True)
class Sem:
    """A structural equation model: ``equation[node][values of its parents, noise]`` is the node's value.

    A node with four levels stands for two binary columns. ``score`` is the classifier, a table over its inputs.
    """

    graph: CausalGraph
    noise: Mapping[str, NDArray[np.float64]]
    equation: Mapping[str, Values]
    score: NDArray[np.float64]

    @cached_property
    def units(self) -> tuple[dict[str, Values], NDArray[np.float64]]:
        """Every combination of noise, and its probability."""
        names = list(self.noise)
        grid = np.meshgrid(*(np.arange(len(p)) for p in self.noise.values()), indexing="ij")
        noise = {name: axis.ravel() for name, axis in zip(names, grid, strict=True)}
        return noise, np.prod([self.noise[name][noise[name]] for name in names], axis=0)

    def levels(self, node: str) -> int:
        return int(self.equation[node].max()) + 1

    @cached_property
    def natural(self) -> dict[str, Values]:
        """The value of every node for every unit, nothing being switched."""
        noise, _ = self.units
        found: dict[str, Values] = {}
        for node in self.graph.order:
            found[node] = self.equation[node][(*(found[p] for p in self.graph.parents(node)), noise[node])]
        return found

    def nested(self, regime: Regime, node: str, suffix: Path) -> Values:
        """The value of a node as it is read along the rest of a path, by definition."""
        if node == self.graph.sensitive:
            return np.full(len(self.units[1]), regime.value((node, *suffix)))
        parents = [self.nested(regime, parent, (node, *suffix)) for parent in self.graph.parents(node)]
        return self.equation[node][(*parents, self.units[0][node])]

    def truth(self, regime: Regime) -> float:
        """P(prediction = 1) in a regime."""
        outcome = self.graph.outcome
        inputs = [self.nested(regime, node, (outcome,)) for node in self.graph.inputs]
        return float(self.units[1] @ self.score[tuple(inputs)])

    def outcome_truth(self, regime: Regime) -> float:
        """P(Y = 1) in a regime, Y being the model's own outcome."""
        return float(self.units[1] @ self.nested(regime, self.graph.outcome, ()))

    @cached_property
    def joint(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """The observed nodes, and their joint law as an array with an axis for each."""
        nodes = self.graph.observed
        table = np.zeros([self.levels(node) for node in nodes])
        np.add.at(table, tuple(self.natural[node] for node in nodes), self.units[1])
        return nodes, table

    @cached_property
    def table(self) -> tuple[pd.DataFrame, NDArray[np.float64]]:
        """One row for each cell of what is observed but the outcome, and its probability."""
        nodes, joint = self.joint
        cells = np.argwhere(joint > 0)
        codes = pd.DataFrame(cells, columns=list(nodes))
        frame = pd.concat(
            [codes[[n]] if len(c) == 1 else pd.DataFrame({c[0]: codes[n] // 2, c[1]: codes[n] % 2})
             for n, c in self.graph.columns.items()], axis=1
        )
        return frame, joint[tuple(cells.T)]
