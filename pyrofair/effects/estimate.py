"""Numbers found by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Estimate"]


@dataclass(frozen=True)
class Estimate:
    """A number found by simulation, and its Monte-Carlo standard error.

    Parameters
    ----------
    value, error : float
        The number and its error: NaN for a single simulated unit.
    posterior_sd : float
        Where the number is a mean over posterior draws of an SEM's parameters: its standard deviation between draws,
        which does not shrink with more units. 0 otherwise.

    Examples
    --------
    >>> print(Estimate(0.25, 0.004))
    0.2500 ± 0.0040
    """

    value: float
    error: float
    posterior_sd: float = 0.0

    @classmethod
    def of(cls, values: Any) -> Estimate:
        """Return the mean of independent values, shape (n,), and its standard error, NaN of one value.

        >>> Estimate.of([0.0, 1.0, 1.0, 0.0])
        Estimate(value=0.5, error=0.25, posterior_sd=0.0)
        """
        x = np.asarray(values, dtype=np.float64)
        return cls(float(x.mean()), float(x.std() / np.sqrt(len(x))) if len(x) > 1 else np.nan)

    @classmethod
    def pooled(cls, parts: Sequence[Estimate]) -> Estimate:
        """Return the mean over posterior draws, each evaluated with units of its own.

        Its error covers the units and the draws used; the standard deviation between draws is freed of the former.

        >>> Estimate.pooled([Estimate(0.2, 0.01), Estimate(0.4, 0.01)])
        Estimate(value=0.30000000000000004, error=0.1, posterior_sd=0.14106735979665885)
        """
        if len(parts) == 1:
            return parts[0]
        values, errors = (np.array([getattr(part, name) for part in parts]) for name in ("value", "error"))
        variance = values.var(ddof=1)
        between = float(np.sqrt(max(variance - np.mean(errors**2), 0.0)))
        return cls(float(values.mean()), float(np.sqrt(variance / len(parts))), between)

    def __str__(self) -> str:
        between = f" (sd between draws {self.posterior_sd:.4f})" if self.posterior_sd else ""
        return f"{self.value:.4f} ± {self.error:.4f}{between}"
