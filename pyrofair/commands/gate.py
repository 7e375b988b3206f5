"""The gate of a pipeline: whether a quantity of every model stays within a limit, as what is unmeasured never does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyrofair.commands.options import CANNOT_BE_JUDGED, DONE, LIMIT_EXCEEDED, Option, grouped

if TYPE_CHECKING:
    from pyrofair.audits import Audit, ContrastAudit
    from pyrofair.audits.verdicts import Verdict

__all__ = ["GATE_OPTIONS", "QUANTITIES", "judge"]

QUANTITIES = ("piu_upper", "piu_lower", "piu_paper_bound", "mean_unfair_effect")
GATE_OPTIONS = grouped(
    "the gate",
    Option("fail-above", "end with exit code 3 if the interval of PIU's upper bound, or of --fail-quantity, reaches "
           "above this limit for the decisions of any model and contrast; with 4 if that cannot be judged", float,
           least=0.0, most=1.0, metavar="LIMIT"),
    Option("fail-quantity", "what --fail-above is about: the end of the interval farther from 0", default="piu_upper",
           choices=QUANTITIES),
)  # fmt: skip


def _judged(report: Audit | ContrastAudit) -> Iterator[tuple[str, Verdict, Mapping[str, Any]]]:
    """Yield the name, the verdict and the quantities of the decisions of each model, or of each model and contrast."""
    from pyrofair.audits import Audit
    from pyrofair.audits.verdicts import quantities_of

    if isinstance(report, Audit):
        of = quantities_of(report.table)
        found = report.read()
        yield from ((key[0], each, of[key]) for key, each in found.items() if key[1] == "threshold")
        return
    own = {name: quantities_of(rows) for name, rows in report.table.groupby("contrast")}
    for (name, *key), each in report.read().items():
        if key[1] == "threshold":
            yield f"{key[0]}, {report.label(name)}", each, own[name][key[0], key[1]]


def judge(report: Audit | ContrastAudit, limit: float, quantity: str) -> tuple[int, list[str]]:
    """Return whether decisions of every model stay within a limit up to the interval's end: an exit code, and lines.

    Exceeded by one model, or contrast, it is exceeded. Without an interval, or with a verdict that is withheld, a model
    cannot be judged; one that reads nothing that an unfair path touches has no unfair effect, by the graph.
    """
    lines, codes = [], []
    for model, verdict, of in _judged(report):
        ends = [abs(float(each)) for each in (of[quantity].lower, of[quantity].upper)]
        end = math.nan if any(map(math.isnan, ends)) else max(ends)
        if verdict.status == "untouched":
            code, text = DONE, f"passes: by the graph it has no unfair effect, for it reads {verdict.cause} only"
        elif not verdict.is_verdict:
            cause = f": {verdict.cause}" if verdict.cause and verdict.cause not in verdict.text else ""
            code, text = CANNOT_BE_JUDGED, f"cannot be judged: {verdict.text}{cause}"
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
    return code, [first, *lines]
