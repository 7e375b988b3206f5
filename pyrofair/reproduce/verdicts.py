"""Whether a claim of the paper holds, fails or cannot be tested, and why, from numbers measured over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyrofair.effects import test_set_bound
from pyrofair.reproduce.printed import TEST_ROWS, Printed

__all__ = [
    "FAILS",
    "HOLDS",
    "UNTESTED",
    "Verdict",
    "alike",
    "possible",
    "printed_interval",
    "printed_number",
    "printed_order",
    "small",
    "verdict_table",
]

HOLDS, FAILS, UNTESTED = "holds", "fails", "cannot be tested"
SPREADS = 2.0
"""Numbers within so many standard deviations of a run, the paper's and ours together, are taken for equal."""
WORDS = {"mean_unfair_effect": "mean unfair effect", "piu_paper_bound": "bound on PIU", "true_piu": "true PIU"}
ROUNDED = 0.1001
"""How far a printed end may lie from an exact one, in %: the error itself is rounded too."""


@dataclass(frozen=True)
class Verdict:
    """A claim with its source in the paper (the label of a table, figure or section), a verdict, and its reason."""

    source: str
    data: str
    claim: str
    verdict: str
    why: str


def verdict_table(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Return verdicts as a table, a row each."""
    return pd.DataFrame([astuple(each) for each in verdicts], columns=[each.name for each in fields(Verdict)])


def printed_number(
    claim: Printed,
    ours: npt.ArrayLike,
    traced: Mapping[float, float] | None = None,
    context: str = "",
) -> Verdict:
    """Compare a printed percentage with ours, one value a seed.

    They agree if they differ by at most two standard deviations of one run: the printed and ours or, where none is
    printed, the binomial error of the test rows and ours. A number of a penalised method that does not agree cannot be
    tested if some strength (``traced``: our mean by strength) comes near it, for the paper prints no strength.
    """
    values = np.atleast_1d(np.asarray(ours, dtype=np.float64))
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    spread = float(np.hypot(_printed_spread(claim), sd))
    text = f"ours is {_number(mean, sd, len(values))} %"
    if abs(mean - claim.value) <= SPREADS * spread:
        return _of(claim, HOLDS, f"{text}, within {SPREADS * spread:.1f}{context}")
    near = {strength: abs(value - claim.value) for strength, value in (traced or {}).items()}
    if near and min(near.values()) <= SPREADS * spread:
        strength = min(near, key=lambda each: near[each])
        reason = f"no strength is printed: {text} at ours, {traced[strength]:.1f} % at {strength:g}"  # type: ignore[index]
        return _of(claim, UNTESTED, f"{reason}{context}")
    reach = f"; over all strengths {min(traced.values()):.1f} to {max(traced.values()):.1f} %" if traced else ""
    return _of(claim, FAILS, f"{text}, {mean - claim.value:+.1f}{reach}{context}")


def _of(claim: Printed, verdict: str, why: str) -> Verdict:
    spread = "" if claim.sd is None else f" ± {claim.sd:g}"
    quantity = "PIU" if claim.quantity == "piu" else claim.quantity
    return Verdict(claim.table, claim.data, f"{claim.method}: {quantity} {claim.value:g}{spread} %", verdict, why)


def _printed_spread(claim: Printed) -> float:
    if claim.sd is not None:
        return claim.sd
    share = claim.value / 100.0
    return 100.0 * float(np.sqrt(share * (1.0 - share) / TEST_ROWS[claim.data]))


def _number(mean: float, sd: float, count: int) -> str:
    return f"{mean:.1f} ± {sd:.1f}" if count > 1 else f"{mean:.1f}"


def possible(claim: Printed) -> Verdict | None:
    """Return a verdict on a percentage that no number of right answers on the paper's test rows gives, or None."""
    n = TEST_ROWS[claim.data]
    if claim.sd is not None or n > 1000:  # of means over runs, and of so many rows, any digit is possible
        return None
    if abs(claim.value * n / 100.0 - round(claim.value * n / 100.0)) < 1e-9:
        return None
    return _of(
        claim, FAILS, f"{n} test rows give whole percentages only: it is no share of them, but perhaps a mean over runs"
    )


def printed_interval(claim: Printed) -> Verdict:
    """Compare a printed test set bound with the exact one for the printed error and number of test rows."""
    assert claim.interval is not None, "a bound is printed"
    n = TEST_ROWS[claim.data]
    errors = int(claim.value * n / 100.0 + 0.5)
    low, high = (100.0 * end for end in test_set_bound(errors, n))
    off = max(abs(low - claim.interval[0]), abs(high - claim.interval[1]))
    text = f"{errors} errors in {n:,} rows give [{low:.1f}, {high:.1f}] with 5 % on each side, a 90 % interval"
    if off > ROUNDED and abs(100.0 * test_set_bound(errors + 1, n)[0] - claim.interval[0]) <= ROUNDED:
        text += f"; the printed lower end is that of {errors + 1} errors"
    shown = f"{claim.method}: test set bound [{claim.interval[0]:g}, {claim.interval[1]:g}] %"
    return Verdict(claim.table, claim.data, shown, HOLDS if off <= ROUNDED else FAILS, text)


def printed_order(
    source: str, data: str, claim: str, high: npt.ArrayLike, low: npt.ArrayLike, unit: str = "%", context: str = ""
) -> Verdict:
    """Test that one number exceeds another, both by seed: it holds beyond two standard errors of the mean difference.

    It fails if the difference is negative beyond these, and cannot be told, so not tested, in between. With one seed
    there is no error, and no test. Of two series by seed, those count that both have.
    """
    if isinstance(high, pd.Series) and isinstance(low, pd.Series):
        high, low = high.align(low, join="inner")
    difference = np.asarray(high, dtype=np.float64) - np.asarray(low, dtype=np.float64)
    n, mean = len(difference), float(np.mean(difference))
    if n < 2:
        return Verdict(source, data, claim, UNTESTED, f"one run: the difference is {mean:+.1f} {unit}{context}")
    error = float(difference.std(ddof=1) / np.sqrt(n))
    verdict = HOLDS if mean > 2.0 * error and mean > 0 else FAILS if mean <= -2.0 * error else UNTESTED
    text = f"the difference is {mean:+.1f} ± {error:.1f} {unit} (mean and its standard error over {n} seeds)"
    return Verdict(source, data, claim, verdict, text + context)


def alike(source: str, data: str, claim: str, one: npt.ArrayLike, other: npt.ArrayLike) -> Verdict:
    """Test that two accuracies, in % by seed, are about equal: their means within two standard deviations of a run."""
    a, b = (np.asarray(each, dtype=np.float64) for each in (one, other))
    gap = float(a.mean() - b.mean())
    if len(a) < 2 or len(b) < 2:
        return Verdict(source, data, claim, UNTESTED, f"one run: the difference is {gap:+.1f} %")
    most = SPREADS * float(np.hypot(a.std(ddof=1), b.std(ddof=1)))
    text = f"the difference is {gap:+.1f} %, two standard deviations of a run are {most:.1f}"
    return Verdict(source, data, claim, HOLDS if abs(gap) <= most else FAILS, text)


def small(source: str, data: str, claim: str, sizes: Mapping[str, Any], at_most: float, context: str = "") -> Verdict:
    """Test that all of several statistics are close to zero: none exceeds a limit in absolute value."""
    worst = {name: float(np.mean(np.abs(np.asarray(values, dtype=np.float64)))) for name, values in sizes.items()}
    listed = ", ".join(f"{WORDS.get(name, name)} {value:.3f}" for name, value in worst.items())
    verdict = HOLDS if max(worst.values()) <= at_most else FAILS
    return Verdict(source, data, claim, verdict, f"mean sizes: {listed}; close means at most {at_most:g}{context}")
