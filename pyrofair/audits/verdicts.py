"""What the numbers of an audit show of each model, judged in one place for every form of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from pyrofair.audits.context import Context
from pyrofair.effects.group_agreement import disagreeing

__all__ = [
    "CROSSED",
    "SHOWN",
    "WORDINGS",
    "Quantities",
    "Verdict",
    "Verdicts",
    "accuracy_remark",
    "judge",
    "quantities_of",
    "rate_remark",
    "read_audit",
    "read_levels",
    "read_thresholds",
    "summed_up",
]

SMALL = 0.05
"""An upper bound of at most this share of units is called small."""
SHOWN = 0.0005
"""A lower bound below this share of units is printed as 0.0 %, and is no finding; a smaller difference is not seen."""
SAME_FOR_ALL = 0.02
FEW = 10
ROUNDING = 1e-9
CROSSED = "below the lower bound by chance, because each bound is estimated separately"
"""The note of an upper bound on PIU that the lower one exceeds."""

Status = Literal[
    "unfair",
    "small",
    "inconclusive",
    "untouched",
    "constant",
    "few_rows",
    "doubtful",
    "groups_disagree",
    "no_probability",
    "no_interval",
    "failed",
]
"""The judgements: the first three depend on intervals, "untouched" on the graph alone, and the others are none."""


class Wording(NamedTuple):
    """A judgement in words: a headline, what it means, its tone, and what would change it.

    ``word`` opens the sentence of the printed report, and ``body`` goes on; braces are filled with what was found.
    """

    head: str
    word: str
    body: str
    tone: Literal["unfair", "calm", "open"]
    change: str


WORDINGS: dict[Status, Wording] = {
    "unfair": Wording(
        "Yes, for at least {least}", "", "unfair to at least {least} of individuals, and to at most {most}.", "unfair",
        "Train with a penalty on this effect, or leave out the columns on the unfair paths. Audit the new model, and "
        "compare accuracy and rates.",
    ),
    "small": Wording(
        "Little, at most {most}", "", "unfair to at most {most} of individuals.", "calm",
        "Audit other rows: this share is about the population of these rows, and about decisions made in this way. It "
        "does not show that the model is fair.",
    ),
    "inconclusive": Wording(
        "Undecided", "inconclusive",
        "the data allow anything from 0% to {most} of individuals. A wide interval is evidence neither of unfairness "
        "nor of its absence.", "open",
        "More rows narrow the confidence intervals. If the bounds stay apart with many rows, learned mechanisms or "
        "structural equations narrow them.",
    ),
    "untouched": Wording(
        "No, if the graph is right", "no unfair effect, by the graph",
        "it reads {cause} only, which no unfair path touches, so its decisions are the same in both worlds. A mean "
        "unfair effect other than 0 is estimation error.", "calm",
        "Look for a missing arrow from the sensitive attribute to a column that the model reads.",
    ),
    "constant": Wording(
        "No verdict: nearly the same decision for everyone", "none",
        "{cause}, so the unfair effect is small for a trivial reason.", "open",
        "Use another threshold, or a model that decides differently on more rows.",
    ),
    "few_rows": Wording(
        "No verdict: too few rows", "none",
        "{cause}, and intervals from so few rows cannot be trusted.", "open",
        "Add rows of the smaller group, or use coarser features.",
    ),
    "doubtful": Wording(
        "Withheld: a check failed", "withheld", "{cause}.", "open",
        "Choose models of weights, regressions or mechanisms that pass the check; the diagnostics name the stage or "
        "column.",
    ),
    "groups_disagree": Wording(
        "Withheld: two estimates disagree", "withheld",
        "estimates of {cause} from the two observed groups, each weighted alone, differ significantly (see the "
        "comparison of groups). A propensity model may be wrong.", "open",
        "Choose other propensity models, or coarser features if the groups overlap too little.",
    ),
    "no_probability": Wording(
        "No verdict: no valid estimate", "none",
        "the estimate is outside [0, 1]. Normalise the weights (normalize=True) or look at overlap.", "open",
        "Normalise the weights, or find groups that overlap more.",
    ),
    "no_interval": Wording(
        "No verdict: no intervals", "none",
        "there are no intervals. The point estimates allow {low} to {high} of individuals.{cause}", "open",
        "Audit with replicates to get intervals (n_boot=200).",
    ),
    "failed": Wording(
        "No verdict: it cannot be estimated", "no unfair effect could be estimated", "{cause}.", "open",
        "Remove the reason above, or use another source. Until then no number here answers the question.",
    ),
}  # fmt: skip
"""Every judgement in words, for each form of the report."""


@dataclass(frozen=True)
class Verdict:
    """What the quantities of a model show, or why no verdict is given.

    ``least`` and ``most`` bound the share of individuals decided on unfairly, NaN without a verdict; ``cause`` is the
    reason if none is given; ``low`` and ``high`` are the estimated bounds on PIU.
    """

    status: Status
    least: float = np.nan
    most: float = np.nan
    cause: str = ""
    low: float = np.nan
    high: float = np.nan

    @property
    def is_verdict(self) -> bool:
        """Whether the numbers, or the graph, support a statement on the share of units."""
        return self.status in ("unfair", "small", "inconclusive", "untouched")

    @property
    def is_withheld(self) -> bool:
        """Whether a check failed, so that no verdict is given."""
        return self.status in ("doubtful", "groups_disagree")

    @property
    def text(self) -> str:
        """The sentence of the printed report."""
        word = WORDINGS[self.status].word
        return f"{word}: {self.body}" if word else self.body

    @property
    def head(self) -> str:
        """A headline of a few words."""
        return self._filled(WORDINGS[self.status].head)

    @property
    def body(self) -> str:
        """What the headline means, in a sentence."""
        return self._filled(WORDINGS[self.status].body)

    @property
    def tone(self) -> str:
        """``"unfair"``, ``"calm"`` or ``"open"``."""
        return WORDINGS[self.status].tone

    def as_json(self) -> dict[str, Any]:
        """Return what JSON holds of it."""
        return {name: getattr(self, name) for name in ("status", "text", "least", "most", "cause")}

    def _filled(self, words: str) -> str:
        shares = {name: f"{getattr(self, name):.1%}" for name in ("least", "most", "low", "high")}
        return words.format(cause=self.cause, **shares)


Verdicts = Mapping[tuple[str, Any], Verdict]
"""The verdict of each model and decisions."""
Quantities = Mapping[tuple[str, Any], Mapping[str, Any]]
"""The rows of each model and decisions, by quantity."""


def quantities_of(table: pd.DataFrame) -> dict[tuple[str, Any], dict[str, Any]]:
    """Return the rows of each model and decisions of a tidy table, by quantity."""
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    rows: Any = table.itertuples()
    for row in rows:
        found.setdefault((row.model, row.decisions), {})[row.quantity] = row
    return found


def summed_up(status: str, of: Mapping[str, Any]) -> dict[str, Any]:
    """Return a verdict with the numbers behind it, as a row of a summary; rates that are not known are left out."""
    effect, rates = of["mean_unfair_effect"], ("accuracy", "majority_rate", "positive_rate")
    return {
        "verdict": status,
        "mean_unfair_effect": effect.estimate,
        "effect_lower": effect.lower,
        "effect_upper": effect.upper,
        "piu_least": of["piu_lower"].lower,
        "piu_most": of["piu_upper"].upper,
        **{name: of[name].estimate for name in rates if name in of},
    }


def read_audit(table: pd.DataFrame, groups: pd.DataFrame, context: Context) -> dict[tuple[str, Any], Verdict]:
    """Return the verdict of each model and decisions of an audit's table (or of its thresholds)."""
    found = {}
    comparable = groups.iloc[:0] if context.wald else groups
    doubts = context.doubts
    for (model, decisions), of in quantities_of(table).items():
        if context.failure:
            found[model, decisions] = Verdict("failed", cause=context.failure.rstrip("."))
            continue
        found[model, decisions] = judge(
            of,
            context.untouched.get(model, ()),
            context.small.get(model, ()),
            disagreeing(comparable, {"model": model, "decisions": decisions}),
            doubts.get((model, decisions), doubts.get(model, "")),
            decided=decisions != "score",
        )
    return found


def read_thresholds(table: pd.DataFrame, context: Context) -> dict[tuple[str, Any], Verdict]:
    """Return the verdict of each model at each threshold of an audit's table of thresholds."""
    if table.empty:
        return {}
    own = replace(context, doubts=context.threshold_doubts, wald=True)
    return read_audit(table.rename(columns={"threshold": "decisions"}), pd.DataFrame(), own)


def read_levels(table: pd.DataFrame, context: Context) -> dict[tuple[str, str, str], Verdict]:
    """Return the verdict of each subgroup, level and model of an audit's table of subgroups."""
    found = {}
    keys: Any = table.groupby(["subgroup", "level", "model"], sort=False)
    for (subgroup, level, model), own in keys:
        of = {row.quantity: row for row in own.itertuples()}
        note = of["mean_unfair_effect"].note
        few = [note.removeprefix("no estimate: ")] if note.startswith("no estimate") else []
        doubt = note.removeprefix("in doubt: ") if note.startswith("in doubt") else ""
        doubt = context.doubts.get(model, doubt)
        untouched = context.untouched.get(model, ())
        found[subgroup, level, model] = judge(of, untouched, few, pd.DataFrame(), doubt, decided=not few)
    return found


def judge(
    of: Mapping[str, Any],
    untouched: Sequence[str],
    few: Sequence[str],
    apart: pd.DataFrame,
    doubt: str,
    *,
    decided: bool,
) -> Verdict:
    """Return what the quantities of a model show, or why no verdict is given.

    ``untouched`` names the columns of a model that no unfair path reaches, whatever effect the weights show; ``few``
    the worlds of too few rows; ``apart`` the quantities on which the groups disagree, of which at least one is wrong;
    ``doubt`` what diagnostics show.
    """
    lower, upper = of["piu_lower"], of["piu_upper"]
    if untouched:
        return Verdict("untouched", 0.0, 0.0, ", ".join(untouched))
    if decided:
        rate = of["positive_rate"]
        rarer = max(min(rate.estimate, 1.0 - rate.estimate), 0.0) * rate.ess
        if rarer < FEW:
            few = f"all but about {rarer:.0f} of the" if rarer >= 0.5 else "all"
            return Verdict("constant", cause=f"{few} rows get the same decision")
    if reason := next(filter(None, few), ""):
        return Verdict("few_rows", cause=reason)
    if doubt:
        return Verdict("doubtful", cause=doubt)
    if len(apart):
        return Verdict("groups_disagree", cause=", ".join(apart["quantity"]))
    if np.isnan(lower.estimate):
        return Verdict("no_probability")
    if np.isnan(lower.lower) or np.isnan(upper.upper):
        cause = f" The upper bound is {CROSSED}." if CROSSED in upper.note else ""
        return Verdict("no_interval", cause=cause, low=lower.estimate, high=upper.estimate)
    least, most = lower.lower, upper.upper
    if most < least - ROUNDING:  # by chance alone the intervals of both ends would overlap
        cause = (
            f"the upper limit of PIU's upper bound, {most:.1%}, is below the lower limit of its lower bound, "
            f"{least:.1%}; no population has such bounds, so a model behind them is wrong"
        )
        return Verdict("doubtful", cause=cause)
    if least >= SHOWN:
        return Verdict("unfair", least, most)
    return Verdict("small" if most <= SMALL else "inconclusive", 0.0, most)


COPY = "that of the outcome itself"


def accuracy_remark(accuracy: Any, majority: Any) -> str:
    """Return what is to be said of an accuracy beside the majority class, or an empty string."""
    if accuracy.estimate > 1.0 - ROUNDING:
        return COPY
    low = accuracy.estimate if np.isnan(accuracy.lower) else accuracy.lower
    return "not clearly better than a constant prediction" if low <= majority.estimate else ""


def rate_remark(rate: Any) -> str:
    """Return what is to be said of a positive prediction rate, or an empty string."""
    return "nearly constant" if min(rate.estimate, 1.0 - rate.estimate) < SAME_FOR_ALL else ""
