"""Counterfactuals of observed units: values known or drawn, and both worlds as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair._arviz import to_arviz
from pyrofair._validation import require_real
from pyrofair.effects.scoring import checked_scores, decide
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.inference.inversion import BATCH
from pyrofair.programs.couplings import Coupling
from pyrofair.programs.parameters import NO_PARAMETERS, ParameterUse
from pyrofair.tables.labels import Levels, as_column, labels_of

__all__ = [
    "CounterfactualWorld",
    "Counterfactuals",
    "PartiallyKnown",
    "checks_of",
    "frame_of",
    "head_of",
    "methods_of",
    "noise_table",
    "pool",
]

WIDTH = 120


@dataclass(frozen=True, eq=False)
class PartiallyKnown:
    """Values of n units, (n, ...): known, or posterior draws, (r, draws, ...), of the units ``rows`` (r,).

    ``point`` (n, ...) is what is known, and the mean of the draws where it is not.
    """

    point: NDArray[np.float64]
    rows: NDArray[np.int64]
    draws: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        point: NDArray[np.float64],
        rows: NDArray[np.int64] | None = None,
        draws: NDArray[np.float64] | None = None,
        *,
        collapse: bool = True,
    ) -> PartiallyKnown:
        """Combine known values and draws; with ``collapse`` a unit whose draws are all the same counts as known."""
        if rows is None or draws is None or not len(rows):
            return cls(point, np.empty(0, dtype=np.int64), np.empty((0, 0, *point.shape[1:])))
        same = (draws == draws[:, :1]).reshape(len(rows), -1).all(1)
        filled = point.copy()
        filled[rows] = draws.mean(1)
        filled[rows[same]] = draws[same, 0]
        if not collapse or not same.any():
            return cls(filled, rows, draws)
        return cls(filled, rows[~same], draws[~same])

    @cached_property
    def sd(self) -> NDArray[np.float64]:
        """The standard deviation of the draws, 0 for what is known, shape (n, ...)."""
        found = np.zeros(self.point.shape)
        size = max(BATCH // max(self.draws.shape[1], 1), 1)
        for start in range(0, len(self.rows), size):  # deviations of all draws take as much memory as the draws
            found[self.rows[start : start + size]] = self.draws[start : start + size].std(1)
        return found

    @property
    def mode(self) -> NDArray[np.float64]:
        """What is known, and of integers that are drawn the most frequent one, shape (n,)."""
        found = self.point.copy()
        if len(self.rows):
            values = np.unique(self.draws)
            counts = [(self.draws == value).sum(1) for value in values]
            found[self.rows] = values[np.argmax(counts, 0)]
        return found

    def dense(self, count: int) -> NDArray[np.float64]:
        """Return ``count`` draws of every unit, shape (n, count, ...); a view that takes no memory if all is known."""
        return self.take(np.arange(len(self.point)), count)

    def take(self, units: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Return ``count`` draws of some units, given by their indices (m,), shape (m, count, ...)."""
        wide = np.broadcast_to(self.point[units, None], (len(units), count, *self.point.shape[1:]))
        index = np.full(len(self.point), -1)
        index[self.rows] = np.arange(len(self.rows))
        drawn = index[units]
        if (drawn >= 0).any():
            wide = wide.copy()
            wide[drawn >= 0] = self.draws[drawn[drawn >= 0], :count]
        return wide

    @classmethod
    def pooled(cls, parts: Sequence[PartiallyKnown], count: int) -> PartiallyKnown:
        """Put ``count`` draws from each of several parts side by side."""
        dense = np.concatenate([part.dense(count) for part in parts], 1)
        return cls.of(parts[0].point, np.arange(len(dense)), dense)

    @classmethod
    def joined(cls, parts: Sequence[tuple[NDArray[np.int64], PartiallyKnown]], n: int) -> PartiallyKnown:
        """Put the values of some of n units, given by their indices (m,), together."""
        point = np.full(n, np.nan)
        for units, part in parts:
            point[units] = part.point
        drawn = [(units[part.rows], part.draws) for units, part in parts if part.draws.shape[1]]
        return cls(point, *map(np.concatenate, zip(*drawn, strict=True))) if drawn else cls.of(point)


def _is_drawn(parts: Sequence[PartiallyKnown], n: int) -> NDArray[np.bool_]:
    """Return for which units some value is drawn, shape (n,)."""
    found = np.zeros(n, dtype=bool)
    for part in parts:
        found[part.rows] = True
    return found


@dataclass(frozen=True, eq=False)
class CounterfactualWorld:
    """The rows of n observed units in one counterfactual world.

    Parameters
    ----------
    rows : DataFrame of n rows
        The value of each node, or its posterior mean where it is not determined (of labels the most frequent one).
    nodes : dict
        The numbers of each node, of labels their codes, drawn where they are not determined.
    count : int
        The number of draws; 1 if all is determined.
    exact : bool
        Whether the rows determine all noise that matters here.
    labels, dtypes : dict
        For some nodes the label of each code, shape (k,), and for some columns their pandas type.
    """

    rows: pd.DataFrame
    nodes: Mapping[str, PartiallyKnown]
    count: int
    exact: bool
    labels: Levels = field(default_factory=dict)
    dtypes: Mapping[Any, Any] = field(default_factory=dict)

    @cached_property
    def draws(self) -> dict[str, NDArray[Any]] | None:
        """For each node its posterior draws, shape (n, draws), draw i of all nodes jointly; None if exact."""
        if self.exact:
            return None
        return {name: self._named(name, each.dense(self.count)) for name, each in self.nodes.items()}

    @property
    def sd(self) -> pd.DataFrame:
        """The posterior standard deviation of each node, 0 where it is determined, NaN of labels that are not."""
        spread = {}
        for name in self.rows.columns:
            found = self.nodes[name].sd if name in self.nodes else np.zeros(len(self.rows))
            spread[name] = np.where(found > 0, np.nan, found) if name in self.labels else found
        return pd.DataFrame(spread, index=self.rows.index)

    def _named(self, name: str, values: NDArray[np.float64]) -> NDArray[Any]:
        return labels_of(name, self.labels[name], values) if name in self.labels else values

    def column(self, name: str, values: NDArray[np.float64]) -> pd.Series[Any]:
        """Return values (m,) of a node: labels in the type of its column, or numbers, which may be means, as is."""
        named, dtype = self._named(name, values), self.dtypes.get(name)
        return pd.Series(named) if dtype is None or name not in self.labels else as_column(name, named, dtype)

    def labelled(self, labels: Levels, dtypes: Mapping[Any, Any]) -> CounterfactualWorld:
        """Return the same world with labels in place of the codes of some nodes, in the types of their columns."""
        mine = {name: each for name, each in labels.items() if name in self.nodes}
        if not mine:
            return self
        world, index = replace(self, labels=mine, dtypes=dtypes), self.rows.index
        names = {name: world.column(name, self.nodes[name].mode).set_axis(index) for name in mine}
        return replace(world, rows=self.rows.assign(**names))


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactuals:
    """Both worlds of n observed units: the baseline, and the one in which only the unfair paths are switched.

    Parameters
    ----------
    worlds : (CounterfactualWorld, CounterfactualWorld)
        The two worlds; draw i of both is one unit with one and the same noise.
    noise : DataFrame of n rows
        For each noise site, and for each node drawn without explicit noise its uniform ``u(NODE)``, the posterior mean
        and standard deviation (0 where the row determines it): columns (noise, "mean" or "sd").
    noise_values : dict
        The explicit noise, drawn where it is not determined.
    diagnostics : DataFrame
        A row for each unit and node: unit, node, method, ess, r_hat, note.
    graph : CausalGraph
        The graph.
    chains : int
        How many chains the draws come from, one after the other.
    parameters : ParameterUse
        The origin of the values of the program's parameters.
    coupling : str
        How the noise of nodes drawn without explicit noise is coupled across the two worlds.
    coupled : tuple of str
        These nodes, as far as the rows shown depend on them; if there are none, the coupling plays no part.

    References
    ----------
    Chikahara et al. (2021), appendix A.1 (woman i and man j); Pearl (2009), theorem 7.1.7.
    """

    worlds: tuple[CounterfactualWorld, CounterfactualWorld]
    noise: pd.DataFrame
    noise_values: Mapping[str, PartiallyKnown]
    diagnostics: pd.DataFrame
    graph: CausalGraph
    chains: int = 1
    parameters: ParameterUse = NO_PARAMETERS
    coupling: Coupling = "monotone"
    coupled: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Describe how many units there are, how well their worlds are known, and the first of them."""
        n = len(self.baseline)
        drawn = int(_is_drawn([each for world in self.worlds for each in world.nodes.values()], n).sum())
        lines = [f"counterfactuals of {n} units (methods: {methods_of(self.diagnostics)})"]
        if drawn:
            named = ", of labels the most frequent one" if any(world.labels for world in self.worlds) else ""
            lines.append(f"drawn for {drawn} of {n} units ({drawn / n:.0%}), {self.count} draws each")
            lines.append(f"means are shown{named}")
        else:
            lines.append(
                "determined by their rows for all units" + ("" if self.parameters.known else ", up to the parameters")
            )
        if drawn and (known := checks_of(self.diagnostics)):
            lines.append(known)
        if self.coupled:
            lines.append(f"across the worlds: {self.coupling} noise of {', '.join(self.coupled)}")
        if self.parameters.names:
            lines.append(f"parameters: {self.parameters}")
        head = pd.concat({"baseline": self.baseline.head(), "switched": self.switched.head()}, axis=1)
        return "\n".join([*lines, head_of(head, n)])

    __repr__ = __str__

    def labelled(self, labels: Levels, dtypes: Mapping[Any, Any]) -> Counterfactuals:
        """Return the same with labels in place of the codes of some nodes, in the types of their columns."""
        first, second = (world.labelled(labels, dtypes) for world in self.worlds)
        return replace(self, worlds=(first, second))

    @property
    def baseline(self) -> pd.DataFrame:
        """Each unit's row in the baseline, on the index of the table: values, or posterior means."""
        return self.worlds[0].rows

    @property
    def switched(self) -> pd.DataFrame:
        """Each unit's row with the unfair paths switched, on the index of the table: values, or posterior means."""
        return self.worlds[1].rows

    @property
    def exact(self) -> bool:
        """Whether the rows determine both worlds of every unit, the program's parameters being given or none."""
        return self.worlds[0].exact and self.worlds[1].exact and self.parameters.known

    @property
    def count(self) -> int:
        """The number of draws; 1 if the rows determine all noise."""
        drawn = [int(each.draws.shape[1]) for each in self.noise_values.values()]
        return max([world.count for world in self.worlds] + drawn)

    @property
    def draws(self) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]] | None:
        """Both worlds' draws, for each node of shape (n, draws); None if the rows determine all worlds."""
        first, second = (world.draws for world in self.worlds)
        return None if first is None or second is None else (first, second)

    def scores(self, model: Any, *, threshold: float = 0.5) -> pd.DataFrame:
        """Return a classifier's scores of each unit in both worlds.

        Parameters
        ----------
        model
            Anything with ``predict_proba``.
        threshold
            A decision is 1 where the score exceeds it.

        Returns
        -------
        DataFrame of n rows, on the index of the table
            ``baseline`` and ``switched``, the posterior means of the two scores; ``effect``, that of their difference,
            and ``effect_sd``, its standard deviation; ``decisions_differ``, the probability that the two decisions
            differ: the unit's own PIU, under ``coupling`` where the model's columns depend on ``coupled`` nodes.

        Raises
        ------
        DataError
            If the model does not fit the graph, or the threshold is not in [0, 1).
        """
        require_real("threshold", threshold, least=0.0, below=1.0, hint="A decision is 1 if score > threshold.")
        reads = [name for name in self.graph.input_columns if name in self.baseline.columns]
        parts = [world.nodes[name] for world in self.worlds for name in reads if name in world.nodes]
        vary = _is_drawn(parts, len(self.baseline))
        found = np.empty((len(vary), 5))
        for units, count in [(np.flatnonzero(~vary), 1), (np.flatnonzero(vary), max(w.count for w in self.worlds))]:
            size = max(BATCH // count, 1)
            for rows in (units[start : start + size] for start in range(0, len(units), size)):
                tables = [self._rows(world, reads, rows, count) for world in self.worlds]
                scores = checked_scores(type(model).__name__, model, tables, self.graph)
                (first, yes), (second, then) = (
                    [decide(each, rule, threshold).reshape(len(rows), count) for rule in ("score", "threshold")]
                    for each in scores
                )
                effect, differ = second - first, yes != then
                each = [first.mean(1), second.mean(1), effect.mean(1), effect.std(1), differ.mean(1)]
                found[rows] = np.stack(each, 1)
        names = ["baseline", "switched", "effect", "effect_sd", "decisions_differ"]
        return pd.DataFrame(found, index=self.baseline.index, columns=names)

    def _rows(
        self, world: CounterfactualWorld, reads: Sequence[str], rows: NDArray[np.int64], count: int
    ) -> pd.DataFrame:
        """Return the rows of every draw of some units in a world, draw after draw of each unit."""
        data: dict[str, Any] = {}
        for name in reads:
            if name in world.nodes:
                data[name] = world.column(name, world.nodes[name].take(rows, count).ravel())
            else:
                data[name] = world.rows[name].iloc[rows].repeat(count).reset_index(drop=True)
        return pd.DataFrame(data)

    def to_inference_data(self) -> Any:
        """Return noise and both worlds as ArviZ data: a posterior over units.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
            In the group ``posterior`` each noise site, and each node as ``baseline_NODE`` and ``switched_NODE``, with
            the dimensions chain, draw, unit. If all is determined there is one draw.
        """
        found = dict(self.noise_values)
        for word, world in zip(("baseline", "switched"), self.worlds, strict=True):
            nodes = {name: each for name, each in world.nodes.items() if name != self.graph.sensitive_column}
            found |= {f"{word}_{name}": each for name, each in nodes.items()}
        count = self.count
        chains = self.chains if count % self.chains == 0 else 1
        posterior, dims = {}, {}
        for name, each in found.items():
            moved = np.moveaxis(each.dense(count), 0, 1)
            posterior[name] = moved.reshape(chains, count // chains, *moved.shape[1:])
            dims[name] = ["unit", *(f"{name}_axis_{i}" for i in range(moved.ndim - 2))]
        # ArviZ takes no tuples as labels, as an index of several levels has.
        labels = [", ".join(map(str, each)) if isinstance(each, tuple) else each for each in self.baseline.index]
        return to_arviz({"posterior": posterior}, coords={"unit": labels}, dims=dims)


# -- tables and texts --------------------------------------------------------------------------------------------------


def methods_of(diagnostics: pd.DataFrame) -> str:
    """Return the methods of a table of diagnostics as text."""
    return ", ".join(m for m in dict.fromkeys(diagnostics["method"].astype(str)) if m != "none") or "none needed"


def checks_of(diagnostics: pd.DataFrame) -> str:
    """Return the least effective sample size and the largest R-hat as text, as far as they are known."""
    checks = {"least effective sample size": diagnostics["ess"].min(), "largest R-hat": diagnostics["r_hat"].max()}
    return ", ".join(f"{name} {value:.4g}" for name, value in checks.items() if np.isfinite(value))


def head_of(head: pd.DataFrame, n: int) -> str:
    """Return the first of n rows as text."""
    return head.to_string(line_width=WIDTH) + (f"\n... ({n} rows)" if n > len(head) else "")


def noise_table(values: Mapping[str, PartiallyKnown], index: pd.Index[Any]) -> pd.DataFrame:
    """Return means and standard deviations of noise, columns (noise, "mean" or "sd"); of a vector, each component."""
    parts: dict[tuple[str, str], NDArray[np.float64]] = {}
    for key, each in values.items():
        mean, sd = each.point.reshape(len(index), -1), each.sd.reshape(len(index), -1)
        for i in range(mean.shape[1]):
            name = key if each.point.ndim == 1 else f"{key}[{i}]"
            parts[name, "mean"], parts[name, "sd"] = mean[:, i], sd[:, i]
    return frame_of(parts, index)


def frame_of(parts: Mapping[tuple[str, str], NDArray[np.float64]], index: pd.Index[Any]) -> pd.DataFrame:
    """Return a table with a column for each pair (noise, "mean" or "sd")."""
    columns = pd.MultiIndex.from_arrays([[a for a, _ in parts], [b for _, b in parts]], names=["noise", "of"])
    data = np.stack(list(parts.values()), 1) if parts else np.empty((len(index), 0))
    return pd.DataFrame(data, index=index, columns=columns)


def pool(parts: Sequence[Counterfactuals]) -> Counterfactuals:
    """Pool the counterfactuals of the same units at several draws of a program's parameters, with equal weights."""
    draws = max(part.count for part in parts)

    def pooled(each: Sequence[Mapping[str, PartiallyKnown]]) -> dict[str, PartiallyKnown]:
        return {key: PartiallyKnown.pooled([values[key] for values in each], draws) for key in each[0]}

    def world(i: int) -> CounterfactualWorld:
        nodes = pooled([part.worlds[i].nodes for part in parts])
        rows = parts[0].worlds[i].rows.assign(**{name: each.point for name, each in nodes.items()})
        return CounterfactualWorld(rows, nodes, draws * len(parts), False)

    means = np.stack([part.noise.xs("mean", axis=1, level="of").to_numpy() for part in parts])
    spreads = np.stack([part.noise.xs("sd", axis=1, level="of").to_numpy() for part in parts])
    noise = parts[0].noise.copy()
    noise.loc[:, (slice(None), "mean")] = means.mean(0)
    noise.loc[:, (slice(None), "sd")] = np.sqrt((spreads**2).mean(0) + means.var(0))
    diagnostics = parts[0].diagnostics.copy()
    diagnostics["ess"] = np.sum([part.diagnostics["ess"].to_numpy() for part in parts], 0)
    diagnostics["note"] = diagnostics["note"] + f" ({len(parts)} draws of the parameters)"
    values = pooled([part.noise_values for part in parts])
    return replace(
        parts[0], worlds=(world(0), world(1)), noise=noise, noise_values=values, diagnostics=diagnostics, chains=1
    )
