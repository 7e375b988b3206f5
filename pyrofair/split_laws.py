"""Which rows are laws learned from? All of them, or either half, so that errors of the two halves are independent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyrofair.exceptions import DataError
from pyrofair.families import Family
from pyrofair.isolation import TURN
from pyrofair.law_learning import FEWEST
from pyrofair.nuisances import Rows

if TYPE_CHECKING:
    from pyrofair.mechanisms import LearnedLaws

__all__ = ["HALVES", "PARTS", "SplitLaws"]

HALVES = ("half 0", "half 1")
PARTS = ("all", *HALVES)


@dataclass(frozen=True)
class SplitLaws:
    """Laws learned from all rows or from a random half of them, when first asked for.

    The laws of a half end as a bootstrap replicate does, so that replicates lie around them, whatever fits these.

    Parameters
    ----------
    rows
        The rows.
    learn
        Learns laws from a table: :func:`pyrofair.mechanisms.learn_laws` with all else given but the families, the
        weights and the seed; None if there is nothing to learn.
    families
        The families that the user chose.
    seed
        Seeds the halves and the fits.
    origin
        In a bootstrap replicate the laws of the same rows with their own weights, from which its fits start.
    """

    rows: Rows
    learn: Callable[..., LearnedLaws] | None
    families: Mapping[str, Family] | None
    seed: int
    origin: SplitLaws | None = None
    learned: dict[str, LearnedLaws | None] = field(default_factory=dict)
    starts: dict[str, LearnedLaws] = field(default_factory=dict)

    def of(self, which: str) -> LearnedLaws | None:
        """Return the laws learned from ``"all"`` rows, from ``"half 0"`` or from ``"half 1"``.

        Raises
        ------
        DataError
            If a half has too few rows.
        KeyboardInterrupt
            If Ctrl-C struck while they were learned, which are then dropped: what rests on them would run on, and
            report half learned laws as learned.
        """
        with TURN:
            if which not in self.learned:
                self.learned[which] = self._learn(which) if self.learn else None
            return self.learned[which]

    def reweighted(self, rows: Rows) -> SplitLaws:
        """Return the laws of the same rows with other weights: a bootstrap replicate, fitted in a few steps."""
        return replace(self, rows=rows, origin=self, learned={}, starts={})

    def before(self) -> SplitLaws:
        """Return a replicate's laws of all rows, with the halves' laws of its origin."""
        if self.origin is None:
            return self
        return replace(self, learned={"all": self.of("all"), **{which: self.origin.of(which) for which in HALVES}})

    def _learn(self, which: str) -> LearnedLaws:
        weight = self.rows.weight[self._places(which)]
        if self.origin is not None:
            self.origin.of(which)
            return self.origin.starts[which].refit(weight, random_state=self.seed)
        self.starts[which] = laws = self._first(which, weight)
        return laws.refit(weight, random_state=self.seed) if which in HALVES else laws

    def _first(self, which: str, weight: NDArray[np.float64]) -> LearnedLaws:
        if which in HALVES and (found := int((weight > 0.0).sum())) < FEWEST:
            raise DataError(
                f"The ends of PIU take laws learned from either half of the {int((self.rows.weight > 0.0).sum())} rows "
                f"that have a weight, and a half has only {found}; fit on at least {2 * FEWEST} rows, or train and "
                "take worlds() without an audit."
            )
        whole = self.starts.get("all")
        assert self.learn is not None  # told by the caller
        laws = self.learn(
            self.rows.table.iloc[self._places(which)],
            families=self.families if whole is None else {**whole.families, **(self.families or {})},
            sample_weight=weight,
            random_state=self.seed + PARTS.index(which),
        )
        if any(fit.interrupted for fit in laws.fits.values()):
            raise KeyboardInterrupt
        return laws

    def _places(self, which: str) -> NDArray[np.int64]:
        """Return the rows of a part; either half has rows of both groups wherever a group has two with a weight."""
        if self.origin is not None:
            return self.origin._places(which)
        n = len(self.rows.a)
        if which not in HALVES:
            return np.arange(n)
        order = np.random.default_rng(self.seed).permutation(n)
        group = np.where(self.rows.weight > 0.0, self.rows.a, 2)[order]
        if any(np.isin((0, 1), group[half::2]).sum() < 2 for half in range(len(HALVES))):
            order = order[np.argsort(group, kind="stable")]  # a group's rows are dealt out in turn
        return np.sort(order[HALVES.index(which) :: 2])
