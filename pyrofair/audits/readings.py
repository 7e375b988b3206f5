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
    "VERDICTS",
    "Reading",
    "Status",
    "accuracy_remark",
    "judge",
    "quantities_of",
    "rate_remark",
    "read_audit",
    "read_levels",
    "read_thresholds",
]

SMALL = 0.05
"""An upper bound of at most this share of units is called small."""
SHOWN = 0.0005
"""A lower bound below this share of units is printed as 0.0 %, and is no finding; a smaller difference is not seen."""
SAME_FOR_ALL = 0.02
FEW = 10
ROUNDING = 1e-9
CROSSED = "below the lower end by chance, for either end is estimated by itself"
"""The note of an upper end of PIU that the lower one exceeds."""

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
"""The judgements: the first three rest on intervals, "untouched" on the graph alone, and the others are none."""


class Verdict(NamedTuple):
    """A judgement in words: a headline, what it means, its tone, and what would change it.

    ``word`` opens the sentence of the printed report, and ``body`` goes on; braces are filled with what was found.
    """

    head: str
    word: str
    body: str
    tone: Literal["unfair", "calm", "open"]
    change: str


VERDICTS: dict[Status, Verdict] = {
    "unfair": Verdict(
        "Yes, for at least {least}", "", "unfair to at least {least} of units, and to at most {most}.", "unfair",
        "A model trained with a penalty on this effect, or without the columns on the unfair paths; audit it again, "
        "and compare accuracy and rates.",
    ),
    "small": Verdict(
        "Little, at most {most}", "", "unfair to at most {most} of units.", "calm",
        "Other rows: the share holds for the population that these rows stand for, and for decisions made in this way. "
        "It is no proof of fairness.",
    ),
    "inconclusive": Verdict(
        "Undecided", "inconclusive",
        "the data allow anything from 0 % to {most} of units; a wide interval is no evidence of unfairness, nor of its "
        "absence.", "open",
        "More rows narrow what chance adds; where the ends stay apart with many rows, a model of how features arise "
        "(learned mechanisms or a program) narrows them.",
    ),
    "untouched": Verdict(
        "No, if the graph is right", "no unfair effect, by the graph",
        "it reads {cause} only, which no unfair path touches, so its two answers are the same. A mean unfair effect "
        "other than 0 is the error of the estimate.", "calm",
        "An arrow that the graph lacks, from the sensitive attribute to a column that the model reads.",
    ),
    "constant": Verdict(
        "No answer: it decides alike for all", "none",
        "{cause}: a bound that is small for that reason is no merit.", "open",
        "Another threshold, or a model that decides differently on more rows.",
    ),
    "few_rows": Verdict(
        "No answer: too few rows", "none",
        "{cause}, and what a few rows lack, no interval made of them shows.", "open",
        "More rows of the smaller group, or coarser features.",
    ),
    "doubtful": Verdict(
        "Withheld: a check failed", "withheld", "{cause}.", "open",
        "Models for weights, regressions or mechanisms that pass the check; the diagnostics name the stage or column.",
    ),
    "groups_disagree": Verdict(
        "Withheld: two estimates disagree", "withheld",
        "the two observed groups, weighted alone, disagree on {cause} beyond chance (see below), so the numbers above "
        "may be those of a wrong propensity.", "open",
        "Another model of the propensities, or coarser features where groups overlap too little.",
    ),
    "no_probability": Verdict(
        "No answer: no valid estimate", "",
        "none, for the estimate is no probability; normalise the weights (normalize=True) or look at overlap.", "open",
        "Normalised weights, or more overlap between the groups.",
    ),
    "no_interval": Verdict(
        "No answer: no intervals", "",
        "none, for there are no intervals; the point estimates allow {low} to {high} of units.{cause}", "open",
        "Intervals: audit with replicates (n_boot=200).",
    ),
    "failed": Verdict(
        "No answer: it cannot be estimated", "no unfair effect could be estimated", "{cause}.", "open",
        "Rows, or a source, without the reason given; until then no number here bears on the question.",
    ),
}  # fmt: skip
"""Every judgement in words, for each form of the report."""


@dataclass(frozen=True)
class Reading:
    """What the quantities of a model show, or why no verdict is given.

    ``least`` and ``most`` bound the share of units decided on unfairly, NaN where no verdict rests on them; ``cause``
    is the reason of a verdict that is not given; ``low`` and ``high`` are the ends of PIU as they are estimated.
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
    def text(self) -> str:
        """The sentence of the printed report."""
        word = VERDICTS[self.status].word
        return f"{word}: {self.body}" if word else self.body

    @property
    def head(self) -> str:
        """A headline of a few words."""
        return self._filled(VERDICTS[self.status].head)

    @property
    def body(self) -> str:
        """What the headline means, in a sentence."""
        return self._filled(VERDICTS[self.status].body)

    @property
    def tone(self) -> str:
        """``"unfair"``, ``"calm"`` or ``"open"``."""
        return VERDICTS[self.status].tone

    def as_json(self) -> dict[str, Any]:
        """Return what JSON holds of it."""
        return {name: getattr(self, name) for name in ("status", "text", "least", "most", "cause")}

    def _filled(self, words: str) -> str:
        shares = {name: f"{getattr(self, name):.1%}" for name in ("least", "most", "low", "high")}
        return words.format(cause=self.cause, **shares)


def quantities_of(table: pd.DataFrame) -> dict[tuple[str, Any], dict[str, Any]]:
    """Return the rows of each model and decisions of a tidy table, by quantity."""
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    rows: Any = table.itertuples()
    for row in rows:
        found.setdefault((row.model, row.decisions), {})[row.quantity] = row
    return found


def read_audit(table: pd.DataFrame, groups: pd.DataFrame, context: Context) -> dict[tuple[str, Any], Reading]:
    """Return the reading of each model and decisions of an audit's table (or of its thresholds)."""
    found = {}
    comparable = groups.iloc[:0] if context.wald else groups
    doubts = context.doubts
    for (model, decisions), of in quantities_of(table).items():
        if context.failure:
            found[model, decisions] = Reading("failed", cause=context.failure.rstrip("."))
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


def read_thresholds(table: pd.DataFrame, context: Context) -> dict[tuple[str, Any], Reading]:
    """Return the reading of each model at each threshold of an audit's table of thresholds."""
    if table.empty:
        return {}
    own = replace(context, doubts=context.threshold_doubts, wald=True)
    return read_audit(table.rename(columns={"threshold": "decisions"}), pd.DataFrame(), own)


def read_levels(table: pd.DataFrame, context: Context) -> dict[tuple[str, str, str], Reading]:
    """Return the reading of each subgroup, level and model of an audit's table of subgroups."""
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
) -> Reading:
    """Return what the quantities of a model show, or why no verdict is given.

    ``untouched`` names the columns of a model that no unfair path reaches, whatever effect the weights show; ``few``
    the worlds of too few rows; ``apart`` the quantities on which the groups disagree, of which at least one is wrong;
    ``doubt`` what diagnostics show.
    """
    lower, upper = of["piu_lower"], of["piu_upper"]
    if untouched:
        return Reading("untouched", 0.0, 0.0, ", ".join(untouched))
    if decided:
        rate = of["positive_rate"]
        rarer = max(min(rate.estimate, 1.0 - rate.estimate), 0.0) * rate.ess
        if rarer < FEW:
            few = f"all but about {rarer:.0f} of the" if rarer >= 0.5 else "all"
            return Reading("constant", cause=f"{few} rows get the same answer")
    if reason := next(filter(None, few), ""):
        return Reading("few_rows", cause=reason)
    if doubt:
        return Reading("doubtful", cause=doubt)
    if len(apart):
        return Reading("groups_disagree", cause=", ".join(apart["quantity"]))
    if np.isnan(lower.estimate):
        return Reading("no_probability")
    if np.isnan(lower.lower) or np.isnan(upper.upper):
        cause = f" The upper end is {CROSSED}." if CROSSED in upper.note else ""
        return Reading("no_interval", cause=cause, low=lower.estimate, high=upper.estimate)
    least, most = lower.lower, upper.upper
    if most < least - ROUNDING:  # by chance alone the intervals of both ends would overlap
        cause = (
            f"the interval of PIU's upper end ends at {most:.1%}, below that of the lower end, which begins at "
            f"{least:.1%}; no population has such ends, so a model behind them is wrong"
        )
        return Reading("doubtful", cause=cause)
    if least >= SHOWN:
        return Reading("unfair", least, most)
    return Reading("small" if most <= SMALL else "inconclusive", 0.0, most)


def accuracy_remark(accuracy: Any, majority: Any) -> str:
    """Return what is to be said of an accuracy beside the majority class, or an empty string."""
    low = accuracy.estimate if np.isnan(accuracy.lower) else accuracy.lower
    return "not clearly better than a constant prediction" if low <= majority.estimate else ""


def rate_remark(rate: Any) -> str:
    """Return what is to be said of a positive prediction rate, or an empty string."""
    return "nearly constant" if min(rate.estimate, 1.0 - rate.estimate) < SAME_FOR_ALL else ""
