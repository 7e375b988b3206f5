"""The gate of a pipeline: whether a quantity of every model stays within a limit, as what is unmeasured never does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrofair.commands.options import CANNOT_BE_JUDGED, DONE, LIMIT_EXCEEDED, Option, grouped

if TYPE_CHECKING:
    from pyrofair.audits import Audit

__all__ = ["GATE_OPTIONS", "QUANTITIES", "Verdict", "judge"]

QUANTITIES = ("piu_upper", "piu_lower", "piu_paper_bound", "mean_unfair_effect")
GATE_OPTIONS = grouped(
    "the gate",
    Option("fail-above", "end with exit code 3 if the interval of PIU's upper end, or of --fail-quantity, reaches "
           "above this limit for the decisions of any model; with 4 if that cannot be judged", float, least=0.0,
           most=1.0, metavar="LIMIT"),
    Option("fail-quantity", "what --fail-above is about: the end of the interval farther from 0", default="piu_upper",
           choices=QUANTITIES),
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The exit code of a gate, and a line for each model."""

    code: int
    lines: tuple[str, ...]


def judge(report: Audit, limit: float, quantity: str) -> Verdict:
    """Return whether the thresholded decisions of every model stay within a limit, up to the end of the interval.

    Exceeded by one model, it is exceeded. A model without an interval, or whose verdict is withheld, cannot be judged;
    one that reads nothing that an unfair path touches has no unfair effect, by the graph.
    """
    from pyrofair.audits.readings import read_audit

    lines, codes = [], []
    for (model, decisions), reading in read_audit(report.table, report.groups, report.context).items():
        if decisions != "threshold":
            continue
        rows = report.table[(report.table["model"] == model) & (report.table["decisions"] == "threshold")]
        row: Any = rows.set_index("quantity").loc[quantity]
        ends = [abs(float(row[each])) for each in ("lower", "upper")]
        end = math.nan if any(map(math.isnan, ends)) else max(ends)
        if reading.status == "untouched":
            code, text = DONE, f"passes: by the graph it has no unfair effect, for it reads {reading.cause} only"
        elif not reading.is_verdict:
            cause = f": {reading.cause}" if reading.cause and reading.cause not in reading.text else ""
            code, text = CANNOT_BE_JUDGED, f"cannot be judged: {reading.text}{cause}"
        elif math.isnan(end):
            code, text = CANNOT_BE_JUDGED, f"cannot be judged: there is no interval of {quantity}"
        elif end > limit:
            code, text = LIMIT_EXCEEDED, f"exceeds the limit: {quantity} reaches up to {end:.3f}"
        else:
            code, text = DONE, f"passes: {quantity} reaches up to {end:.3f}"
        codes.append(code)
        lines.append(f"  {model} {text.rstrip('.')}.")
    code = next((each for each in (LIMIT_EXCEEDED, CANNOT_BE_JUDGED) if each in codes), DONE)
    outcome = {DONE: "passed", LIMIT_EXCEEDED: "failed", CANNOT_BE_JUDGED: "not passed"}[code]
    first = f"Gate, {quantity} of decisions at most {limit:g} up to the end of its interval: {outcome}."
    return Verdict(code, (first, *lines))
