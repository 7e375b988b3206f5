"""What the paper prints and claims, and whether it holds, fails or cannot be tested by numbers measured over seeds.

Numbers that only figures show are left out: they cannot be read off exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

import pyrofair as pf

HOLDS, FAILS, UNTESTED = "holds", "fails", "cannot be tested"
SPREADS = 2.0
"""Numbers within so many standard deviations of a run, the paper's and ours together, are taken for equal."""
ROUNDED = 0.1001
"""How far a printed limit may lie from an exact one, in %: the error itself is rounded, too."""
WORDS = {"mean_unfair_effect": "mean unfair effect", "piu_paper_bound": "bound on PIU", "true_piu": "true PIU"}
TEST_ROWS = {"synth": 1000, "additive": 1000, "latent": 1000, "german": 100, "adult": 10_870}
"""The rows that the paper tests on."""


# -- printed numbers ---------------------------------------------------------------------------------------------------


class Printed(NamedTuple):
    """A number of the paper, in %: mean and standard deviation over 10 runs, or a single value.

    ``table`` is the label of its table in the paper's source; ``quantity`` is accuracy, error or piu; ``interval`` is
    the test set bound printed beside it.
    """

    table: str
    data: str
    method: str
    value: float
    sd: float | None = None
    quantity: str = "accuracy"
    interval: tuple[float, float] | None = None


ACCURACIES: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {
    ("table1", "synth"): {
        "Proposed": (80.0, 0.9), "FIO": (84.8, 0.6), "PSCF": (74.8, 1.6), "Unconstrained": (88.2, 0.9),
        "Remove": (76.9, 1.3),
    },
    ("table1", "german"): {
        "Proposed": (75.0,), "FIO": (78.0,), "PSCF": (76.0,), "Unconstrained": (81.0,), "Remove": (73.0,),
    },
    ("table1", "adult"): {
        "Proposed": (75.2,), "FIO": (81.2,), "PSCF": (73.4,), "Unconstrained": (83.2,), "Remove": (74.7,),
    },
    ("table_logistic", "synth"): {
        "Proposed": (78.2, 1.5), "FIO": (83.4, 1.2), "Unconstrained": (87.8, 0.8), "Remove": (76.1, 0.9),
    },
    ("table_logistic", "german"): {"Proposed": (76.0,), "FIO": (77.5,), "Unconstrained": (78.8,), "Remove": (73.8,)},
    ("table_logistic", "adult"): {"Proposed": (75.2,), "FIO": (79.0,), "Unconstrained": (79.7,), "Remove": (74.4,)},
    ("table_adm", "additive"): {"Proposed": (72.5, 1.1), "PSCF": (72.5, 0.4), "Unconstrained": (80.0, 1.3)},
    ("table_bound", "synth"): {"Proposed": (80.0, 0.9), "Oracle": (78.7, 0.9)},
    ("table4", "latent"): {
        "Proposed_ex": (95.7, 0.5), "Proposed": (96.1, 0.6), "FIO": (96.3, 0.6), "PSCF": (93.8, 0.9),
        "Unconstrained": (97.2, 0.6), "Remove": (94.0, 0.6),
    },
}  # fmt: skip
BOUNDS = {
    ("german", "Proposed"): (24.0, 18.0, 32.1),
    ("german", "FIO"): (22.5, 17.1, 31.0),
    ("german", "Unconstrained"): (21.2, 15.4, 28.8),
    ("german", "Remove"): (26.2, 19.8, 34.2),
    ("adult", "Proposed"): (24.8, 24.1, 25.5),
    ("adult", "FIO"): (21.0, 20.4, 21.7),
    ("adult", "Unconstrained"): (20.3, 19.7, 20.9),
    ("adult", "Remove"): (26.6, 25.9, 27.3),
}
"""The error of each logistic model, and its test set bound."""
PRINTED = (
    *(Printed(*at, method, *value) for at, own in ACCURACIES.items() for method, value in own.items()),
    *(Printed("table_testsetbound", *at, error, None, "error", bound) for at, (error, *bound) in BOUNDS.items()),
    Printed("table_bound", "synth", "Proposed", 5.04, 3.25, "piu"),
    Printed("table_bound", "synth", "Oracle", 2.63, 0.90, "piu"),
)
"""All printed numbers."""


def printed(table: str, data: str, quantity: str = "accuracy") -> dict[str, Printed]:
    """Return the numbers of a table for a data set by method."""
    return {each.method: each for each in PRINTED if (each.table, each.data, each.quantity) == (table, data, quantity)}


# -- verdicts ----------------------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """A claim with its source in the paper (the label of a table, figure or section), a verdict, and its reason."""

    source: str
    data: str
    claim: str
    verdict: str
    why: str

    @classmethod
    def of(cls, source: str, data: str, claim: str, holds: bool, why: str) -> Verdict:
        """Return the verdict on a claim that holds or fails."""
        return cls(source, data, claim, HOLDS if holds else FAILS, why)


def printed_number(
    claim: Printed, ours: npt.ArrayLike, traced: Mapping[float, float] | None = None, context: str = ""
) -> Verdict:
    """Compare a printed percentage with ours, one value a seed.

    They agree if they differ by at most two standard deviations of one run: the printed and ours or, where none is
    printed, the binomial error of the test rows and ours. A number of a penalised method that does not agree cannot be
    tested if some strength (``traced``: our mean by strength) comes near it, for the paper prints no strength.
    """
    values = np.atleast_1d(np.asarray(ours, dtype=np.float64))
    mean, sd = values.mean(), values.std(ddof=1) if len(values) > 1 else 0.0
    share = claim.value / 100.0
    binomial = 100.0 * np.sqrt(share * (1.0 - share) / TEST_ROWS[claim.data])
    reach = SPREADS * np.hypot(binomial if claim.sd is None else claim.sd, sd)
    text = f"ours is {mean:.1f} ± {sd:.1f} %" if len(values) > 1 else f"ours is {mean:.1f} %"
    if abs(mean - claim.value) <= reach:
        return _of(claim, HOLDS, f"{text}, within {reach:.1f}{context}")
    near = {strength: abs(value - claim.value) for strength, value in (traced or {}).items()}
    if traced and min(near.values()) <= reach:
        best = min(near, key=near.__getitem__)
        reason = f"no strength is printed: {text} at ours, {traced[best]:.1f} % at {best:g}"
        return _of(claim, UNTESTED, f"{reason}{context}")
    every = f"; over all strengths {min(traced.values()):.1f} to {max(traced.values()):.1f} %" if traced else ""
    return _of(claim, FAILS, f"{text}, {mean - claim.value:+.1f}{every}{context}")


def _of(claim: Printed, verdict: str, why: str) -> Verdict:
    spread = "" if claim.sd is None else f" ± {claim.sd:g}"
    quantity = "PIU" if claim.quantity == "piu" else claim.quantity
    return Verdict(claim.table, claim.data, f"{claim.method}: {quantity} {claim.value:g}{spread} %", verdict, why)


def impossible(claim: Printed) -> list[Verdict]:
    """Return a verdict on a percentage that no number of right answers on the paper's test rows gives, or none."""
    n = TEST_ROWS[claim.data]
    if claim.sd is not None or n > 1000:  # of means over runs, and of so many rows, any digit is possible
        return []
    if abs(claim.value * n / 100.0 - round(claim.value * n / 100.0)) < 1e-9:
        return []
    why = f"{n} test rows give whole percentages only: it is no share of them, but perhaps a mean over runs"
    return [_of(claim, FAILS, why)]


def printed_interval(claim: Printed) -> Verdict:
    """Compare a printed test set bound with the exact one for the printed error and number of test rows."""
    assert claim.interval is not None, "a bound is printed"
    n = TEST_ROWS[claim.data]
    errors = int(claim.value * n / 100.0 + 0.5)
    low, high = (100.0 * end for end in pf.test_set_bound(errors, n))
    off = max(abs(low - claim.interval[0]), abs(high - claim.interval[1]))
    text = f"{errors} errors in {n:,} rows give [{low:.1f}, {high:.1f}] with 5 % on each side, a 90 % interval"
    if off > ROUNDED and abs(100.0 * pf.test_set_bound(errors + 1, n)[0] - claim.interval[0]) <= ROUNDED:
        text += f"; the printed lower end is that of {errors + 1} errors"
    shown = f"{claim.method}: test set bound [{claim.interval[0]:g}, {claim.interval[1]:g}] %"
    return Verdict.of(claim.table, claim.data, shown, off <= ROUNDED, text)


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
    return Verdict.of(source, data, claim, abs(gap) <= most, text)


def small(source: str, data: str, claim: str, sizes: Mapping[str, Any], at_most: float, context: str = "") -> Verdict:
    """Test that all of several statistics are close to zero: none exceeds a limit in absolute value."""
    worst = {name: float(np.mean(np.abs(np.asarray(values, dtype=np.float64)))) for name, values in sizes.items()}
    listed = ", ".join(f"{WORDS.get(name, name)} {value:.3f}" for name, value in worst.items())
    text = f"mean sizes: {listed}; close means at most {at_most:g}{context}"
    return Verdict.of(source, data, claim, max(worst.values()) <= at_most, text)
