"""What given people would have been: their rows in supposed worlds, with what is not known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.graph import CausalGraph
from pyrofair.inference_data import to_arviz
from pyrofair.scoring import positive_scores

__all__ = ["Counterfactuals", "SupposedWorld", "pool"]

Draws = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class SupposedWorld:
    """The rows of n given people in one supposed world.

    Parameters
    ----------
    rows : DataFrame of n rows
        The value of each node, or its posterior mean where it is not determined.
    draws : dict, or None
        For each node its posterior draws, shape (n, draws), those of one person's nodes belonging together; None if all
        is determined.
    exact : bool
        Whether all is determined.
    """

    rows: pd.DataFrame
    draws: Draws | None
    exact: bool

    def spread(self) -> pd.DataFrame:
        """Return the posterior standard deviation of each node, 0 where it is determined."""
        if self.draws is None:
            return pd.DataFrame(0.0, index=self.rows.index, columns=self.rows.columns)
        sd = {name: self.draws[name].std(1) if name in self.draws else 0.0 for name in self.rows.columns}
        return pd.DataFrame(sd, index=self.rows.index)


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """Both worlds of n given people: the baseline, and the one in which the unfair paths alone are switched.

    Parameters
    ----------
    worlds : (SupposedWorld, SupposedWorld)
        The two worlds; draw i of both is one person with one and the same noise.
    noise : DataFrame of n rows
        For each noise site, and for each node drawn without explicit noise its uniform ``u(NODE)``, the posterior mean
        and standard deviation (0 where the row determines it): columns (noise, "mean" or "sd").
    noise_draws : dict
        For each explicit noise site its draws, shape (n, draws, ...), with one draw where all is determined.
    diagnostics : DataFrame
        A row for each person and node: person, node, method, ess, r_hat, note.
    graph : CausalGraph
        The graph.
    chains : int
        How many chains the draws come from, one after the other.

    References
    ----------
    Chikahara et al. (2021), appendix A.1 (woman i and man j); Pearl (2009), section 7.1.
    """

    worlds: tuple[SupposedWorld, SupposedWorld]
    noise: pd.DataFrame
    noise_draws: Draws
    diagnostics: pd.DataFrame
    graph: CausalGraph
    chains: int = 1

    @property
    def baseline(self) -> pd.DataFrame:
        """Each person's row in the baseline, on the index of the table: values, or posterior means."""
        return self.worlds[0].rows

    @property
    def switched(self) -> pd.DataFrame:
        """Each person's row with the unfair paths switched, on the index of the table: values, or posterior means."""
        return self.worlds[1].rows

    @property
    def exact(self) -> bool:
        """Whether both worlds are determined for everyone."""
        return self.worlds[0].exact and self.worlds[1].exact

    @property
    def draws(self) -> tuple[Draws, Draws] | None:
        """Both worlds' draws, for each node of shape (n, draws); None if all is determined."""
        first, second = self.worlds
        return None if first.draws is None or second.draws is None else (first.draws, second.draws)

    def scores(self, model: Any, *, threshold: float = 0.5) -> pd.DataFrame:
        """Return what a classifier says of each person in both worlds.

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
            differ: the person's own PIU.

        Raises
        ------
        DataError
            If the model does not fit the graph, or the threshold is not in [0, 1).
        """
        if not 0.0 <= threshold < 1.0:
            raise DataError(f"threshold={threshold!r} must be at least 0 and below 1: a decision is 1 if score > threshold.")
        first, second = (self._scores(model, world) for world in self.worlds)
        effect = second - first
        differ = (first > threshold) != (second > threshold)
        return pd.DataFrame(
            {
                "baseline": first.mean(1),
                "switched": second.mean(1),
                "effect": effect.mean(1),
                "effect_sd": effect.std(1),
                "decisions_differ": differ.mean(1),
            },
            index=self.baseline.index,
        )

    def _scores(self, model: Any, world: SupposedWorld) -> NDArray[np.float64]:
        """Return the scores of every draw, shape (n, draws); rows that do not vary are scored once."""
        name = type(model).__name__
        reads = self.graph.input_columns
        if world.draws is None:
            return positive_scores(name, model, world.rows[reads], self.graph)[:, None]
        vary = np.zeros(len(world.rows), dtype=bool)
        for column in reads:
            values = world.draws.get(column)
            if values is not None and values.strides[1]:
                vary |= (values != values[:, :1]).any(1)
        count = next(iter(world.draws.values())).shape[1]
        found = np.empty((len(world.rows), count))
        if not vary.all():
            found[~vary] = positive_scores(name, model, world.rows.loc[~vary, reads], self.graph)[:, None]
        if vary.any():
            rows = pd.DataFrame({column: self._drawn(world, column, vary, count) for column in reads})
            found[vary] = positive_scores(name, model, rows, self.graph).reshape(-1, count)
        return found

    def _drawn(self, world: SupposedWorld, column: str, rows: NDArray[np.bool_], count: int) -> Any:
        if column == self.graph.sensitive_column:
            return world.rows.loc[rows, column].repeat(count).to_numpy()
        return (world.draws or {})[column][rows].ravel()

    def to_inference_data(self) -> Any:
        """Return noise and both worlds as ArviZ data: a posterior over people.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
            In the group ``posterior`` each noise site, and each node as ``baseline_NODE`` and ``switched_NODE``, with
            the dimensions chain, draw, person. What is determined has one draw.
        """
        count = max((values.shape[1] for values in self._variables().values()), default=1)
        chains = self.chains if count % self.chains == 0 else 1
        posterior = {}
        dims = {}
        for name, values in self._variables().items():
            wide = np.broadcast_to(values, (len(values), count, *values.shape[2:])) if values.shape[1] == 1 else values
            moved = np.moveaxis(wide, 0, 1)
            posterior[name] = moved.reshape(chains, count // chains, *moved.shape[1:])
            dims[name] = ["person", *(f"{name}_axis_{i}" for i in range(values.ndim - 2))]
        return to_arviz({"posterior": posterior}, coords={"person": list(self.baseline.index)}, dims=dims)

    def _variables(self) -> dict[str, NDArray[np.float64]]:
        found = dict(self.noise_draws)
        for word, world in zip(("baseline", "switched"), self.worlds, strict=True):
            for column in world.rows.columns:
                if column != self.graph.sensitive_column:
                    values = world.rows[column].to_numpy()[:, None] if world.draws is None else world.draws[column]
                    found[f"{word}_{column}"] = values
        return found


def pool(parts: Sequence[Counterfactuals], draws: int) -> Counterfactuals:
    """Put together what several draws of a program's parameters say of the same people, each with the same weight.

    Parameters
    ----------
    parts
        What each says.
    draws
        The draws that each has where it is not exact; an exact one counts as so many equal draws.
    """
    worlds = [_pool_worlds([part.worlds[i] for part in parts], draws) for i in (0, 1)]
    mean = sum(part.noise.xs("mean", axis=1, level="of") for part in parts) / len(parts)
    square = sum(
        part.noise.xs("sd", axis=1, level="of") ** 2 + part.noise.xs("mean", axis=1, level="of") ** 2 for part in parts
    ) / len(parts)
    deviation = (square - mean**2).clip(lower=0.0) ** 0.5
    noise = parts[0].noise.copy()
    for name, word in noise.columns:
        noise[name, word] = (mean if word == "mean" else deviation)[name]
    drawn = {
        key: np.concatenate([_widen(part.noise_draws[key], draws) for part in parts], 1) for key in parts[0].noise_draws
    }
    told = parts[0].diagnostics.copy()
    told["ess"] = sum(part.diagnostics["ess"] for part in parts)
    told["note"] = told["note"] + f" ({len(parts)} draws of the parameters)"
    return Counterfactuals((worlds[0], worlds[1]), noise, drawn, told, parts[0].graph)


def _widen(values: NDArray[np.float64], draws: int) -> NDArray[np.float64]:
    return values if values.shape[1] == draws else np.repeat(values[:, :1], draws, 1)


def _pool_worlds(worlds: Sequence[SupposedWorld], draws: int) -> SupposedWorld:
    first = worlds[0].rows
    names = [name for name in first.columns if all(w.draws is None or name in w.draws for w in worlds)]
    numbers = [name for name in names if pd.api.types.is_numeric_dtype(first[name])]
    every = {}
    for name in numbers:
        each = [w.rows[name].to_numpy(float)[:, None] if w.draws is None else w.draws[name] for w in worlds]
        every[name] = np.concatenate([_widen(values, draws) for values in each], 1)
    rows = first.assign(**{name: values.mean(1) for name, values in every.items()})
    return SupposedWorld(rows, every, False)
