"""How well is each person's noise known, and by what method? A row for each person and node."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from pyrofair.evidence import Evidence
from pyrofair.exceptions import PyrofairWarning
from pyrofair.implicit_noise import is_point
from pyrofair.inversion import Findings
from pyrofair.weighing import Block

__all__ = ["NoiseReport"]

# Below so many effective draws, or above such an R-hat, a warning says that noise is poorly known.
FEW, R_HAT = 30.0, 1.05


class NoiseReport:
    """Diagnostics that are filled in as the noise is inferred.

    Parameters
    ----------
    evidence, found
        The people, and what the equations determined.
    laws
        The laws of observed nodes that are drawn.
    draws
        The number of posterior draws asked for.
    """

    def __init__(self, evidence: Evidence, found: Findings, laws: Mapping[str, Any], draws: int) -> None:
        self.evidence, self.draws = evidence, draws
        self.parts: dict[str, dict[str, NDArray[Any]]] = {}
        for site in evidence.nodes:
            if site not in evidence.observed:
                continue
            method, note = "exact", "determined by the row"
            if site not in evidence.explained:
                method, note = "none", "set in both worlds; its noise feeds no other node"
            elif site in laws:
                method, note = self._of_law(site, laws[site])
            elif site in found.declared:
                method = "declared inverse"
            elif not evidence.keys[site]:
                note = "no noise of its own"
            self._put(site, slice(None), method=method, note=note)

    def _of_law(self, site: str, law: Any) -> tuple[str, str]:
        if site not in self.evidence.implicit:
            return "exact", "its value is its noise"
        if is_point(law, self.evidence.coupling):
            return "distribution function", "determined by the row"
        if self.evidence.coupling == "independent":
            return "distribution function", "its noise is drawn anew where its law is another one"
        return "distribution function", "known up to what gives the value"

    def _put(self, site: str, rows: Any, **said: Any) -> None:
        n = self.evidence.n
        if site not in self.parts:
            empty = {"method": np.full(n, "", object), "note": np.full(n, "", object)}
            self.parts[site] = empty | {"ess": np.full(n, np.nan), "r_hat": np.full(n, np.nan)}
        for name, value in said.items():
            self.parts[site][name][rows] = value

    def block(self, block: Block, found: Findings, rows: Tensor, effective: Tensor, proposals: Tensor) -> None:
        """Note how a block of nodes was inferred by importance."""
        at, ess = rows.numpy(), effective.numpy()
        for site in block.computed:
            flat = found.flat[site][rows].numpy() & (ess >= proposals.numpy() * (1.0 - 1e-9))
            note = f"noise {', '.join(block.keys)} weighed" + (
                f" jointly with {', '.join(s for s in (*block.computed, *block.drawn) if s != site)}"
                if len(block.computed) + len(block.drawn) > 1
                else ""
            )
            done = found.done[site][rows].numpy()
            kept = at[~done]
            self._put(
                site,
                kept,
                method=np.where(flat, "prior", "importance")[~done],
                ess=np.minimum(ess, self.draws)[~done],
                note=np.where(flat, f"{site} does not depend on its noise in this row: it stays as its prior", note)[
                    ~done
                ],
            )
        for site in block.drawn:
            self._put(
                site,
                at,
                method="importance",
                ess=np.minimum(ess, self.draws),
                note=f"its law reads {', '.join(block.keys)}",
            )
        few = int((ess < min(FEW, self.draws)).sum())
        if few:
            warnings.warn(
                f"The noise {', '.join(block.keys)} of {few} of {self.evidence.n} people rests on fewer than {FEW:g} "
                f"effective draws (at least {ess.min():.1f}); see .diagnostics. Raise draws or the tolerance, or "
                "declare an inverse.",
                PyrofairWarning,
                stacklevel=5,
            )

    def gradients(self, method: str, effective: Mapping[str, Tensor], r_hat: Mapping[str, Tensor]) -> None:
        """Note how all noise was inferred by chains or a guide."""
        for site in self.evidence.explained:
            keys = self.evidence.keys[site]
            if not keys:
                continue
            said: dict[str, Any] = {"method": method, "note": "each node observed with a normal error"}
            if mine := [effective[key].numpy() for key in keys if key in effective]:
                said["ess"] = np.min(mine, 0)
            if mine := [r_hat[key].numpy() for key in keys if key in r_hat]:
                said["r_hat"] = np.max(mine, 0)
            self._put(site, slice(None), **said)
        worst = max((float(values.max()) for values in r_hat.values()), default=1.0)
        least = min((float(values.min()) for values in effective.values()), default=np.inf)
        if worst > R_HAT or least < min(FEW, self.draws):
            warnings.warn(
                f"{method} serves some people badly (R-hat up to {worst:.3f}, effective draws down to {least:.0f}); "
                "see .diagnostics. Raise draws or the tolerance, or use method='auto'.",
                PyrofairWarning,
                stacklevel=5,
            )

    def table(self) -> pd.DataFrame:
        """Return a row for each person and node: person, node, method, ess, r_hat, note."""
        sites = list(self.parts)
        n = self.evidence.n
        columns = {
            name: np.stack([self.parts[s][name] for s in sites], 1).ravel()
            for name in ("method", "ess", "r_hat", "note")
        }
        return pd.DataFrame(
            {"person": self.evidence.index.repeat(len(sites)), "node": np.tile(np.array(sites, object), n), **columns}
        )
