"""The quantities of an audit at several thresholds of the same scores."""

from __future__ import annotations

import pandas as pd

from pyrofair._validation import listed, require_real, shown
from pyrofair.exceptions import DataError

__all__ = ["doubts_by_threshold", "read_thresholds"]


def read_thresholds(thresholds: object) -> tuple[float, ...]:
    """Return thresholds in [0, 1), none of them twice, in the order given; none of None."""
    if thresholds is None:
        return ()
    given = listed(thresholds)
    if given is None or not given:
        raise DataError(
            f"thresholds={shown(thresholds)} must be a list of thresholds, such as np.arange(0.1, 0.95, 0.1), or None."
        )
    found = [
        require_real(f"thresholds[{i}]", each, least=0.0, below=1.0, hint="A decision is 1 where the score exceeds it.")
        for i, each in enumerate(given)
    ]
    twice = [each for i, each in enumerate(found) if each in found[:i]]
    if twice:
        raise DataError(f"thresholds holds {twice[0]:g} twice; give each threshold once.")
    return tuple(found)


def doubts_by_threshold(thresholds: tuple[float, ...], apart: pd.DataFrame) -> dict[tuple[str, float], str]:
    """Return for each model and threshold the doubt that holds there by the comparisons of groups that disagree.

    These are of the decisions of the audit alone; where groups disagree on these, every threshold is in doubt.
    """
    found: dict[tuple[str, float], str] = {}
    for model, own in apart.groupby("model", sort=False) if len(apart) else ():
        text = (
            f"the two observed groups, weighted alone, disagree on {', '.join(own['quantity'].unique())} at the "
            "audit's own threshold or on scores, significantly"
        )
        found |= {(str(model), each): text for each in thresholds}
    return found
