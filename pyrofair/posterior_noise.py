"""Given people and what is known of their noise: what would they be in other worlds?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from pyrofair.counterfactuals import Counterfactuals, SupposedWorld
from pyrofair.equations import Equations
from pyrofair.evidence import Evidence, wide_floats
from pyrofair.exceptions import DataError
from pyrofair.implicit_noise import is_point
from pyrofair.isolation import isolated
from pyrofair.supposition import Crowd

__all__ = ["Abduction"]

# A run holds at most so many people times draws.
BATCH = 1_000_000


@dataclass(frozen=True, eq=False)
class Abduction:
    """Given people and the posterior of their noise; made by :func:`pyrofair.abduction.abduct`.

    Parameters
    ----------
    evidence
        The program and the people.
    columns
        For each observed node site its column, in the order of the table.
    points, known
        For each noise site its values, shape (n, ...), and of whom the rows determine it, shape (n,).
    drawn
        For each noise site that is not determined for everyone its draws, shape (n, draws, ...).
    laws
        The laws of observed nodes that are drawn.
    diagnostics : DataFrame
        A row for each person and node: person, node, method, ess, r_hat, note.
    draws, chains
        The number of draws, and of the chains that they come from.
    seed
        Seeds what is drawn later.
    """

    evidence: Evidence
    columns: dict[str, str]
    points: dict[str, Tensor]
    known: dict[str, Tensor]
    drawn: dict[str, Tensor]
    laws: dict[str, Any]
    diagnostics: pd.DataFrame
    draws: int
    chains: int
    seed: int

    @property
    def noise(self) -> pd.DataFrame:
        """Each person's explicit noise: posterior mean and standard deviation, columns (noise, "mean" or "sd")."""
        parts: dict[tuple[str, str], npt.NDArray[np.float64]] = {}
        for key, values in self.noise_draws().items():
            flat = values.reshape(*values.shape[:2], -1)
            for i in range(flat.shape[2]):
                name = key if values.ndim == 2 else f"{key}[{i}]"
                parts[name, "mean"], parts[name, "sd"] = flat[:, :, i].mean(1), flat[:, :, i].std(1)
        return _frame(parts, self.evidence.index)

    def noise_draws(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return each explicit noise site's draws, shape (n, draws, ...), with one draw where all is determined."""
        every = {**{key: values.unsqueeze(1) for key, values in self.points.items()}, **self.drawn}
        return {key: every[key].double().numpy() for key in self.evidence.info.sites if key in every}

    def do(self, values: Mapping[str, Any]) -> SupposedWorld:
        """Return what each person would have been, had some of her nodes been set to values.

        Parameters
        ----------
        values
            For each node a number, or one for each person, shape (n,).

        Raises
        ------
        DataError
            If a site is no observed node, or a value does not fit it.

        References
        ----------
        Pearl (2009), theorem 7.1.7: abduction, action, prediction.
        """
        with isolated(self.seed), wide_floats(self.evidence.program):
            set_to = self._read_values(values)

            def act(crowd: Crowd, some: dict[str, Tensor]) -> tuple[dict[str, Tensor]]:
                return (crowd.had(some, self.columns),)

            (world,), _ = self._imagine(set_to, set_to, act)
        return world

    def worlds(self, equations: Equations, values: Mapping[str, Any] | None = None) -> Counterfactuals:
        """Return both worlds: the baseline, and the one in which the unfair paths alone are switched.

        Parameters
        ----------
        equations
            The program with its unfair paths.
        values
            Nodes that are set in both worlds besides.
        """
        graph, sensitive = equations.unfair.graph, equations.sensitive
        if values and sensitive in values:
            raise DataError(f"do names {sensitive!r}, the sensitive attribute, which the two worlds set.")
        with isolated(self.seed), wide_floats(self.evidence.program):
            set_to = self._read_values(values or {})

            def act(crowd: Crowd, some: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
                return crowd.worlds(equations, some, self.columns)

            found, moments = self._imagine({sensitive: self.evidence.observed[sensitive], **set_to}, set_to, act)
        rows = []
        for world, regime in zip(found, equations.unfair.regimes, strict=True):
            path = (graph.sensitive, graph.outcome)
            arm = regime.value(path) if path in graph.edges else regime.on_fair
            label = [graph.label(arm)] * self.evidence.n
            frame = world.rows.assign(**{graph.sensitive_column: label})
            rows.append(SupposedWorld(frame[list(self.columns.values())], world.draws, world.exact))
        noise = pd.concat([self.noise, _frame(moments, self.evidence.index)], axis=1)
        return Counterfactuals((rows[0], rows[1]), noise, self.noise_draws(), self.diagnostics, graph, self.chains)

    # -- people in batches -----------------------------------------------------------------------------------------

    def _read_values(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        found = {}
        for site, given in values.items():
            if site not in self.columns:
                raise DataError(f"do names {site!r}, which is no observed node. They are: {', '.join(self.columns)}.")
            kind = self.evidence.observed[site].dtype
            try:
                numbers = torch.tensor(np.asarray(given, dtype=np.float64)).expand(self.evidence.n)
            except (TypeError, ValueError, RuntimeError) as error:
                raise DataError(
                    f"The value of {site!r} must be a number, or {self.evidence.n} of them, one for each row; got "
                    f"{given!r}."
                ) from error
            value = numbers.to(kind)
            possible = torch.isfinite(numbers) & (value.to(numbers.dtype) - numbers).abs().le(1e-6 * numbers.abs())
            if site in self.laws:
                possible = possible & self.laws[site].support.check(value)
            if not bool(possible.all()):
                raise DataError(f"do sets {site!r} to {numbers[~possible][0].item():g}, a value that it cannot take.")
            found[site] = value
        return found

    def _imagine(
        self,
        targets: Mapping[str, Tensor],
        values: Mapping[str, Tensor],
        act: Callable[[Crowd, dict[str, Tensor]], Sequence[dict[str, Tensor]]],
    ) -> tuple[list[SupposedWorld], dict[tuple[str, str], npt.NDArray[np.float64]]]:
        """Act on everyone, those whose noise is determined once and the others once for each draw."""
        evidence = self.evidence
        affected = evidence.below(targets)
        vary = torch.zeros(evidence.n, dtype=torch.bool)
        for key in evidence.keys_of(affected):
            vary = vary | ~self.known.get(key, torch.zeros(evidence.n, dtype=torch.bool))
        if any(not is_point(law, evidence.coupling) for site, law in self.laws.items() if self._is_coupled(site, affected)):
            vary[:] = True
        fixed, varying = (~vary).nonzero().squeeze(1), vary.nonzero().squeeze(1)
        batches = [(rows, 1) for rows in fixed.split(BATCH) if len(rows)]
        batches += [(rows, self.draws) for rows in varying.split(max(1, BATCH // self.draws)) if len(rows)]
        collected: list[_Collected] = []
        moments: dict[str, tuple[Tensor, Tensor]] = {}
        for rows, repeat in batches:
            crowd = Crowd(evidence, rows, repeat, self._noise_of(rows, repeat))
            some = {site: value[rows].repeat_interleave(repeat, 0) for site, value in values.items()}
            worlds = act(crowd, some)
            collected = collected or [_Collected(evidence.n, self.draws if len(varying) else 1) for _ in worlds]
            for into, world in zip(collected, worlds, strict=True):
                for site, found in world.items():
                    into.add(site, rows, found.double().reshape(len(rows), repeat))
            for site, (mean, variance) in crowd.moments.items():
                kept = moments.setdefault(site, (torch.empty(evidence.n), torch.empty(evidence.n)))
                each = mean.double().reshape(len(rows), repeat)
                kept[0][rows] = each.mean(1)
                kept[1][rows] = (variance.reshape(len(rows), repeat).double().mean(1) + each.var(1, correction=0)).sqrt()
        exact = len(varying) == 0
        worlds_found = [each.world(self.columns, evidence.index, exact) for each in collected]
        said = {(f"u({s})", word): v.numpy() for s, pair in moments.items() for word, v in zip(("mean", "sd"), pair)}
        return worlds_found, said

    def _is_coupled(self, site: str, affected: frozenset[str]) -> bool:
        return site in affected and site in self.evidence.implicit and site != self.evidence.sensitive

    def _noise_of(self, rows: Tensor, repeat: int) -> dict[str, Tensor]:
        """Return the noise of some people, shape (m * repeat, ...)."""
        noise = {}
        for key in dict.fromkeys((*self.points, *self.drawn)):
            if key in self.drawn:
                draws = self.drawn[key][rows][:, :repeat]
                noise[key] = draws.reshape(len(rows) * repeat, *draws.shape[2:])
            else:
                noise[key] = self.points[key][rows].repeat_interleave(repeat, 0)
        return noise


class _Collected:
    """A world put together from batches of people."""

    def __init__(self, n: int, draws: int) -> None:
        self.n, self.draws = n, draws
        self.mean: dict[str, npt.NDArray[np.float64]] = {}
        self.every: dict[str, npt.NDArray[np.float64]] = {}

    def add(self, site: str, rows: Tensor, values: Tensor) -> None:
        """Note the values of some people, shape (r, 1 or draws)."""
        at, found = rows.numpy(), values.numpy()
        mean = self.mean.setdefault(site, np.empty(self.n))
        same = (found == found[:, :1]).all(1)
        mean[at] = np.where(same, found[:, 0], found.mean(1))
        if site in self.every:
            self.every[site][at] = found
        elif not same.all():
            every = np.repeat(mean[:, None], self.draws, 1)
            every[at] = found
            self.every[site] = every

    def world(self, columns: Mapping[str, str], index: pd.Index[Any], exact: bool) -> SupposedWorld:
        """Return the world; a node that does not vary takes no memory for its draws."""
        rows = pd.DataFrame({column: self.mean[s] for s, column in columns.items() if s in self.mean}, index=index)
        if exact:
            return SupposedWorld(rows, None, True)
        draws = {
            column: self.every.get(s, np.broadcast_to(self.mean[s][:, None], (self.n, self.draws)))
            for s, column in columns.items()
            if s in self.mean
        }
        return SupposedWorld(rows, draws, False)


def _frame(parts: Mapping[tuple[str, str], npt.NDArray[np.float64]], index: pd.Index[Any]) -> pd.DataFrame:
    columns = pd.MultiIndex.from_tuples(list(parts), names=["noise", "of"]) if parts else None
    return pd.DataFrame(dict(enumerate(parts.values())), index=index).set_axis(
        columns if columns is not None else pd.MultiIndex.from_arrays([[], []], names=["noise", "of"]), axis=1
    )
