"""Given units and what is known of their noise: what would they be in other worlds?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from pyrofair._random import isolated
from pyrofair._validation import did_you_mean, require_instance
from pyrofair.exceptions import DataError
from pyrofair.inference.counterfactuals import (
    Counterfactuals,
    CounterfactualWorld,
    Uncertain,
    checks_of,
    frame_of,
    methods_of,
    noise_table,
    shown,
)
from pyrofair.inference.evidence import Evidence
from pyrofair.inference.running import in_batches, precision, repeat_each
from pyrofair.inference.supposition import Crowd
from pyrofair.programs.couplings import named_coupling
from pyrofair.programs.noise import is_point
from pyrofair.programs.structural_equations import Equations
from pyrofair.tables.labels import require_do

__all__ = ["Abduction"]

# A run holds at most so many units times draws.
BATCH = 1_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Abduction:
    """Given units and the posterior of their noise; made by :func:`pyrofair.inference.abduct`.

    Parameters
    ----------
    evidence
        The program and the units.
    columns
        For each observed node site its column, in the order of the table.
    noise_values
        For each noise site that matters its values: known, or drawn.
    laws
        The distributions of observed nodes that are drawn.
    diagnostics : DataFrame
        A row for each unit and node: unit, node, method, ess, r_hat, note.
    draws, chains
        The number of draws, and of the chains that they come from.
    seed
        Seeds what is drawn later.
    """

    evidence: Evidence
    columns: dict[str, str]
    noise_values: dict[str, Uncertain]
    laws: dict[str, Any]
    diagnostics: pd.DataFrame
    draws: int
    chains: int
    seed: int

    def __str__(self) -> str:
        """Say how many units there are, how sure their noise is, and show that of the first of them."""
        n, told = self.evidence.n, self.diagnostics
        drawn = len(set().union(*(each.rows.tolist() for each in self.noise_values.values())))
        lines = [f"noise of {n} units (methods: {methods_of(told)})"]
        if drawn:
            lines.append(f"drawn for {drawn} of {n} units ({drawn / n:.0%}), {self.draws} draws each")
        elif self.noise_values:
            lines.append("determined by their rows for everyone, as far as it is explicit")
        else:
            lines.append("the program has no explicit noise that bears on these rows")
        if known := checks_of(told):
            lines.append(known)
        if coupled := [site for site in self.laws if site in self.evidence.implicit]:
            nominal = not self.evidence.info.nominal.isdisjoint(coupled)
            named = named_coupling(self.evidence.coupling, nominal=nominal)
            lines.append(f"across the worlds: {named} noise of {', '.join(coupled)}")
        if self.noise_values:
            lines.append(shown(self.noise.head(), n))
        return "\n".join([*lines, f".do({{{next(iter(self.columns))!r}: ...}}) says what they would have been"])

    __repr__ = __str__

    @property
    def noise(self) -> pd.DataFrame:
        """Each unit's explicit noise: posterior mean and standard deviation, columns (noise, "mean" or "sd")."""
        return noise_table(self.noise_values, self.evidence.index)

    def do(self, values: Mapping[str, Any]) -> CounterfactualWorld:
        """Return what each unit would have been, had some of her nodes been set to values.

        Parameters
        ----------
        values
            For each node, named by its site or its column, a number, or one for each unit, shape (n,).

        Raises
        ------
        DataError
            If a name is no observed node, or a value does not fit it; a Series with another index than the table's does
            not.

        References
        ----------
        Pearl (2009), theorem 7.1.7: abduction, action, prediction.
        """
        require_instance("values", values, Mapping, "a dictionary: for each node the value it is set to, {'D': 1.0}")
        with isolated(self.seed), precision(wide=self.evidence.wide):
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
            Nodes that are set in both worlds besides, as in :meth:`do`.

        Raises
        ------
        DataError
            If a value does not fit, or the sensitive attribute is among them.
        """
        graph, sensitive = equations.unfair.graph, equations.sensitive
        require_do(values)
        if wrong := [name for name in (sensitive, graph.sensitive_column) if values and name in values]:
            raise DataError(f"do names {wrong[0]!r}, the sensitive attribute, which the two worlds set.")
        with isolated(self.seed), precision(wide=self.evidence.wide):
            set_to = self._read_values(values or {})

            def act(crowd: Crowd, some: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
                return crowd.worlds(equations, some, self.columns)

            found, moments = self._imagine((sensitive, *set_to), set_to, act)
        worlds = []
        for world, regime in zip(found, equations.unfair.regimes, strict=True):
            path = (graph.sensitive, graph.outcome)
            arm = regime.value(path) if path in graph.edges else regime.on_fair
            frame = world.rows.copy()
            label: Any = graph.label(arm)
            frame[graph.sensitive_column] = label
            worlds.append(
                CounterfactualWorld(frame[list(self.columns.values())], world.nodes, world.count, world.exact)
            )
        coupled = [site for site in self.columns if site != sensitive]
        noise = pd.concat([self.noise, frame_of(moments, self.evidence.index)], axis=1)
        return Counterfactuals(
            (worlds[0], worlds[1]),
            noise,
            self.noise_values,
            self.diagnostics,
            graph,
            self.chains,
            coupling=equations.coupling_of(self.evidence.coupling, coupled),
            coupled=equations.coupled(coupled),
        )

    def _read_values(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        require_do(values)
        site_of = {column: site for site, column in self.columns.items()} | {site: site for site in self.columns}
        found: dict[str, Tensor] = {}
        for name, given in values.items():
            if name not in site_of:
                raise DataError(
                    f"do names {name!r}, which is no observed node. They are: {', '.join(self.columns)}."
                    f"{did_you_mean(name, site_of)}"
                )
            site = site_of[name]
            if site in found:
                raise DataError(f"do names the node {site!r} twice, by its site and by its column. Keep one of them.")
            self._require_index(name, given)
            try:
                numbers = torch.tensor(np.array(given, dtype=np.float64, order="C")).expand(self.evidence.n)
            except (TypeError, ValueError, RuntimeError) as error:
                raise DataError(
                    f"The value of {site!r} must be a number, or {self.evidence.n} of them, one for each row; got "
                    f"{given!r}."
                ) from error
            value = numbers.to(self.evidence.observed[site].dtype)
            possible = torch.isfinite(numbers) & (value.double() - numbers).abs().le(1e-6 * numbers.abs())
            if site in self.laws:
                possible = possible & self.laws[site].support.check(value)
            if not bool(possible.all()):
                raise DataError(f"do sets {site!r} to {numbers[~possible][0].item():g}, a value that it cannot take.")
            found[site] = value
        self._require_whole(found)
        return found

    def _require_whole(self, values: Mapping[str, Tensor]) -> None:
        """Refuse values of some components of a vector alone where the others would have to follow, or cannot be."""
        for names, possible in self.evidence.info.joint.items():
            given = [name for name in names if name in values]
            if missing := [name for name in names if given and name not in values]:
                raise DataError(
                    f"do sets {', '.join(given)}, but not {', '.join(missing)}: they are one vector, drawn jointly, "
                    "and the program does not say which of them causes which. Set all of them, or give each component "
                    "a site and an equation of its own."
                )
            inside = possible([values[name] for name in names]) if given else torch.ones(1, dtype=torch.bool)
            if not bool(inside.all()):
                row = int((~inside).int().argmax())
                shown = ", ".join(f"{name} = {values[name][row].item():g}" for name in names)
                raise DataError(f"do sets {shown}, values that the vector cannot take. Correct them.")

    def _require_index(self, name: str, given: Any) -> None:
        if isinstance(given, pd.Series | pd.DataFrame) and not given.index.equals(self.evidence.index):
            raise DataError(
                f"The index of do[{name!r}] is not that of the table, so its values would go to units by position "
                "only. Align them (values.loc[df.index]), or pass values.to_numpy() if the order is right."
            )

    # -- units in batches ---------------------------------------------------------------------------------------------

    def _imagine(
        self,
        targets: Sequence[str] | Mapping[str, Tensor],
        values: Mapping[str, Tensor],
        act: Callable[[Crowd, dict[str, Tensor]], Sequence[dict[str, Tensor]]],
    ) -> tuple[list[CounterfactualWorld], dict[tuple[str, str], npt.NDArray[np.float64]]]:
        """Act on everyone: once on those whose noise is determined, and for each draw on the others.

        Returns
        -------
        worlds
            What ``act`` returns, put together.
        moments
            Mean and standard deviation of the uniforms of nodes drawn without explicit noise, shape (n,).
        """
        evidence = self.evidence
        fixed, varying = self._split(evidence.below(targets))
        batches = [(rows, 1) for rows in in_batches(fixed, BATCH)]
        batches += [(rows, self.draws) for rows in in_batches(varying, BATCH // self.draws)]
        known: list[dict[str, Tensor]] = []
        drawn: list[dict[str, list[Tensor]]] = []
        moments: dict[str, tuple[Tensor, Tensor]] = {}
        for rows, repeat in batches:
            crowd = Crowd(evidence, rows, repeat, self._noise_of(rows, repeat))
            worlds = act(crowd, {site: repeat_each(value[rows], repeat) for site, value in values.items()})
            known = known or [{} for _ in worlds]
            drawn = drawn or [{} for _ in worlds]
            for world, points, samples in zip(worlds, known, drawn, strict=True):
                for site, found in world.items():
                    each = found.double().reshape(len(rows), repeat)
                    points.setdefault(site, torch.full((evidence.n,), torch.nan, dtype=torch.float64))
                    if repeat == 1:
                        points[site][rows] = each[:, 0]
                    else:
                        samples.setdefault(site, []).append(each)
            for site, (mean, variance) in crowd.moments.items():
                empty = torch.empty(2, evidence.n, dtype=torch.float64)
                kept = moments.setdefault(site, (empty[0], empty[1]))
                each, more = (values.double().reshape(len(rows), repeat) for values in (mean, variance))
                kept[0][rows] = each.mean(1)
                kept[1][rows] = (more.mean(1) + each.var(1, correction=0)).sqrt()
        result = []
        for points, samples in zip(known, drawn, strict=True):
            found_values = {}
            for site, column in self.columns.items():
                if site in points:
                    every = torch.cat(samples[site]).numpy() if site in samples else None
                    found_values[column] = Uncertain.of(points[site].numpy(), varying.numpy(), every)
            frame = pd.DataFrame({column: each.point for column, each in found_values.items()}, index=evidence.index)
            result.append(CounterfactualWorld(frame, found_values, self.draws if len(varying) else 1, not len(varying)))
        words = ("mean", "sd")
        told = {
            (f"u({s})", w): v.double().numpy() for s, pair in moments.items() for w, v in zip(words, pair, strict=True)
        }
        return result, told

    def _split(self, affected: frozenset[str]) -> tuple[Tensor, Tensor]:
        """Return the units whose noise is determined as far as it matters to some nodes, and the others."""
        evidence = self.evidence
        vary = np.zeros(evidence.n, dtype=bool)
        for key in evidence.keys_of(affected):
            vary[self.noise_values[key].rows] = True
        for site, law in self.laws.items():
            if site in affected and site in evidence.implicit and not is_point(law, evidence.coupling):
                vary[:] = True
        both = torch.arange(evidence.n)
        return both[torch.from_numpy(~vary)], both[torch.from_numpy(vary)]

    def _noise_of(self, rows: Tensor, repeat: int) -> dict[str, Tensor]:
        """Return the noise of some units, shape (m * repeat, ...)."""
        noise = {}
        for key, each in self.noise_values.items():
            values = torch.tensor(each.take(rows.numpy(), repeat)).flatten(0, 1)
            implicit = key in self.evidence.implicit
            noise[key] = values.to(torch.get_default_dtype()) if implicit else self.evidence.in_type(key, values)
        return noise
