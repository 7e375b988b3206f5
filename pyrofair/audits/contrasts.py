"""Audits of a sensitive attribute of several levels: each against the baseline, with simultaneous intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from pyrofair._progress import progress_bar
from pyrofair._validation import require_integer, require_real
from pyrofair.audits.audit import Audit, audit, default_source, refuse_gaps, with_missing
from pyrofair.audits.audit_view import (
    graph_block,
    subgroup_tables,
    subgroups_markup,
    threshold_tables,
    thresholds_markup,
    tracks_markup,
)
from pyrofair.audits.display.page import Table
from pyrofair.audits.display.tracks import forest
from pyrofair.audits.display.words import of_decisions
from pyrofair.audits.family import (
    KEY,
    REFUSALS,
    SCHEMA,
    FamilyAudit,
    Members,
    read_seed,
    require_unfitted,
    with_paths,
)
from pyrofair.audits.report import asked_lines, exact_accuracy
from pyrofair.audits.subgroups import estimate_levels, tell_subgroups
from pyrofair.audits.verdicts import quantities_of
from pyrofair.audits.view import Block, View
from pyrofair.audits.wald import is_influence_based
from pyrofair.effects.estimates import AUDITED, OF_WORLDS, Key, absolute_interval, reach_of_all
from pyrofair.effects.influence import InfluenceBased
from pyrofair.effects.potential_outcomes import PotentialOutcomes, few_rows, rows_of_levels
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph import CausalGraph, UnfairPaths
from pyrofair.graph.paths import show_paths
from pyrofair.tables.labels import read_contrasts
from pyrofair.tables.reading import as_pandas, describe_reading, feature_columns, read_groups, read_table, read_weight
from pyrofair.tables.recorded import Missing
from pyrofair.tables.row_identity import hash_groups

__all__ = ["POPULATION", "ContrastAudit", "Levels", "audit_contrasts"]

WORST_OF = OF_WORLDS[2:]
WORDS = {"mean_unfair_effect": ("mean unfair effect", " points"), "piu_upper": ("upper bound on PIU", "%")}
"""The largest of these are said, each in its unit."""
REPLICATES_BEYOND = 5
"""The replicates beyond each end of an interval that 200 have at 95 %; with fewer, ends are unstable."""
POPULATION = "A contrast refers to the population of its two levels together; rows of other levels are left out of it."
MAX_T, BONFERRONI = "max |t|", "Bonferroni"
SCALE = (
    "PIU is on one scale from 0 to 100%, effects on their own. The thick bar runs from the lower to the upper bound on "
    "PIU. Thin lines are intervals that hold at once for all contrasts."
)


@dataclass(frozen=True, eq=False, repr=False)
class ContrastAudit(FamilyAudit):
    """The result of :func:`audit_contrasts`; print it for a verdict in plain text.

    Attributes
    ----------
    table : DataFrame
        For each contrast, model, decisions and quantity: estimate; lower and upper, which hold at once for all
        contrasts of one model and quantity; n, the rows of the two levels, the population that the contrast refers to;
        ess and note. A contrast that could not be audited is NaN in it, with the reason.
    worst : DataFrame
        For each model, decisions and effect or bound: the contrast of the largest absolute value, this (``size``),
        and the interval of the largest absolute value of all contrasts.
    audits : dict
        The audit of each contrast by itself, whose intervals hold for one contrast alone where ``intervals`` is
        ``"max |t|"``, and are Bonferroni's otherwise.
    intervals : str
        ``"max |t|"``, of the joint normal distribution of the estimates, or ``"Bonferroni"``.
    thresholds, subgroups : DataFrame
        As those of :class:`pyrofair.Audit`, by contrast: the intervals at a threshold hold at once for all contrasts,
        and those of subgroups for all contrasts and subgroups.
    """

    intervals: str
    thresholds: pd.DataFrame = field(default_factory=pd.DataFrame)
    subgroups: pd.DataFrame = field(default_factory=pd.DataFrame)
    key = "contrast"

    @property
    def rates(self) -> pd.DataFrame:
        """As :attr:`pyrofair.Audit.rates`, by contrast: each interval for itself."""
        return self.gathered("rates").reset_index(drop=True)

    @property
    def worst(self) -> pd.DataFrame:
        """The contrast of the largest effect or bound of each model and decisions."""
        return self.overall

    @property
    def flips(self) -> pd.DataFrame:
        """The rows whose decision flips as in :attr:`pyrofair.Audit.flips`, by contrast."""
        return self.gathered("flips").reset_index(drop=True)

    def label(self, name: Any) -> str:
        """Return the level as texts have it."""
        return repr(self.context["graph"].named(name))

    def _opening(self) -> list[str]:
        context = self.context
        return [
            self._told().lead[0],
            *asked_lines(context["unfair"], context["threshold"]),
            f"In brackets: {context['level']:.0%} intervals that hold at once for all contrasts.",
        ]

    def _title(self) -> str:
        context = self.context
        column, baseline = context["graph"].sensitive_column, context["graph"].named(context["graph"].baseline)
        return f"{column}: each level instead of {baseline} on unfair paths; {context['rows']:,} rows"

    def _picture(self) -> Markup:
        """Draw PIU of the decisions of each model, and its effect, by contrast."""
        panels = []
        for model, own in self.table[self.table["decisions"] == "threshold"].groupby("model", sort=False):
            members = {
                self.label(name): next(iter(quantities_of(rows).values()))
                for name, rows in own.groupby("contrast", sort=False)
            }
            panels += forest(f"{model}, decisions", members)
        return tracks_markup("track", panels)

    def _more_blocks(self) -> list[Block]:
        """Return the tables and pictures of thresholds and of subgroups, by contrast."""
        found = []
        for title, table in (("Thresholds", self.thresholds), ("Subgroups", self.subgroups)):
            name, tables, pictures = title.lower(), list[Table](), list[Callable[[], Markup]]()
            for i, (contrast, own) in enumerate(table.groupby("contrast", sort=False) if len(table) else ()):
                if contrast not in self.audits:
                    continue
                held: dict[str, Any] = {name: own}
                part, of = replace(self.audits[contrast], **held), f"{self.label(contrast)}, "
                if name == "thresholds":
                    made = threshold_tables(part)
                    pictures.append(partial(thresholds_markup, part, f"{name}-drawing-{i}"))
                else:
                    made = subgroup_tables(part, "threshold")
                    pictures.append(partial(subgroups_markup, part, f"subgroup-{i}", of))
                tables += [replace(each, name=f"{each.name}-{i}", caption=of + each.caption) for each in made]
            if tables:
                found.append(Block(name, title, tables=tables, markup=partial(_joined, pictures)))
        return found

    def _data(self, rows: bool) -> dict[str, Any]:
        labels = self.context["graph"].labels
        return super()._data(rows) | {"labels": labels, "thresholds": self.thresholds, "subgroups": self.subgroups}

    def _before(self, name: Any, of: Mapping[str, Any]) -> dict[str, str]:
        return {"rows": f"{self.context['sizes'][name]:,}"}

    def _told(self) -> View:
        context, table = self.context, self.table
        graph, unfair, sizes = context["graph"], context["unfair"], context["sizes"]
        column, baseline = graph.sensitive_column, self.label(graph.baseline)
        joint = "the largest |t| of their joint normal distribution"
        how = joint if self.intervals == MAX_T else "Bonferroni's inequality"
        every = "all audited contrasts" if self.failures else "all contrasts"
        lines = []
        for row in self.worst[self.worst["quantity"].isin(WORDS)].to_dict("records"):
            what, unit = WORDS[row["quantity"]]
            size, low, high = (f"{100.0 * row[each]:.1f}" for each in ("size", "lower", "upper"))
            lines.append(
                f"{row['model']}, {of_decisions(row['decisions'])}: worst {what}: {self.label(row['contrast'])}, "
                f"{size}{unit} in size"
                f"{f'; the largest of {every} is in [{low}, {high}]' if np.isfinite(row['lower']) else ''}"
            )
        return View(
            title=f"Audit of the contrasts of {column}",
            question=[
                f"Does the decision depend on {column} through the unfair paths, and for how many individuals?",
                f"Comparison: as if each other level instead of {baseline} on the unfair paths only. "
                f"{context['rows']:,} people were audited.",
                f"Unfair: {show_paths(unfair.paths)}.",
            ],
            lead=[
                f"Audit of {table['model'].nunique()} model(s) on {context['rows']:,} rows: "
                f"{table['contrast'].nunique()} contrast(s) of {column!r} with the baseline {baseline} "
                f"({sizes[graph.baseline]:,} rows).",
                f"{context['level']:.0%} intervals that hold at once for all contrasts of a model and quantity, by "
                f"{how}.",
                POPULATION,
                f"Positive is {graph.outcome_column!r} = {graph.positive!r}; a decision is positive if the score "
                f"exceeds {context['threshold']:g}.",
                *str(unfair).splitlines(),
            ],
            blocks=[
                Block("worst", "The worst contrasts", lines),
                Block("intervals", "Intervals", aside=[SCALE], markup=self._picture),
                *self._more_blocks(),
                *context.get("sections", ()),
                graph_block(unfair),
            ],
            schema=SCHEMA,
            data=self._data,
        )


def audit_contrasts(
    models: Mapping[str, Any],
    source: UnfairPaths | PotentialOutcomes | InfluenceBased,
    df: pd.DataFrame,
    *,
    contrasts: Sequence[Hashable] | None = None,
    n_boot: int = 200,
    level: float = 0.95,
    sample_weight: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    missing: Missing = "refuse",
    progress: bool = True,
    random_state: int | np.random.Generator | None = None,
    **settings: Any,
) -> ContrastAudit:
    """Audit models for each level of the sensitive attribute against the baseline, with simultaneous intervals.

    A contrast is :func:`pyrofair.audit` on the rows of its two levels, which are the population that its numbers refer
    to; rows of other levels are left out of it. For each model and quantity the intervals hold at once for all
    contrasts. With influence values these come from the joint normal distribution of the estimates, correlated by the
    rows of the baseline, which all contrasts share (the quantile of the largest abs(t)); with another source each has
    the level that Bonferroni's inequality asks for. With one contrast the numbers are those of :func:`pyrofair.audit`.

    Parameters
    ----------
    models
        As for :func:`pyrofair.audit`; given scores are those of all rows of ``df``.
    source
        The unfair paths, whose graph has the baseline (its ``contrast`` is not used), for one-step estimates; or an
        unfitted source, which is cloned and fitted for each contrast.
    df
        n rows with the graph's columns.
    contrasts
        The levels that are compared with the baseline; by default all that are observed.
    level
        The level at which the intervals of all contrasts hold at once. Accuracy has exact test-set bounds, by
        Bonferroni's inequality, over the number of contrasts asked for, those that cannot be made included.
    n_boot
        As for :func:`pyrofair.audit`. Of a source without influence values and k > 1 contrasts, (1 - level) / (2 k) of
        the replicates lie beyond each end: at 95 % and k = 4, 800 are needed for 5. Fewer are warned of, and refused
        below 1.
    sample_weight, groups, missing, progress, random_state, **settings
        As for :func:`pyrofair.audit`: ``threshold``, ``scores``, ``thresholds``, ``subgroups``, ... Intervals at each
        threshold hold at once for all contrasts, and those of subgroups for all contrasts and subgroups.

    Returns
    -------
    ContrastAudit
        A level that cannot be compared, because it has fewer than 10 rows or does not overlap with the baseline, is
        noted with its reason, and the others go on.

    Raises
    ------
    DataError
        If a setting, a model or the table is unfit; if the sensitive attribute is continuous or has more than 20
        levels; if no contrast can be audited.
    NotIdentifiedError
        If the effect is not identified.

    Warns
    -----
    PyrofairWarning
        Of each contrast that could not be audited, of few replicates, and what the audits warn of, with the contrast.

    References
    ----------
    Hothorn, Bretz and Westfall (2008), for simultaneous intervals by the largest abs(t).

    Examples
    --------
    >>> from pyrofair import CausalGraph
    >>> graph = CausalGraph(
    ...     "race -> M -> Y; race -> Y", sensitive="race", outcome="Y", baseline="white", contrast="black"
    ... )
    >>> rng = np.random.default_rng(0)
    >>> race = rng.choice(["white", "black", "asian"], 900, p=[0.5, 0.3, 0.2])
    >>> df = pd.DataFrame({"race": race, "M": (rng.random(900) < 0.3 + 0.4 * (race == "black")).astype(int)})
    >>> class Model:
    ...     def predict_proba(self, X):
    ...         p = 0.3 + 0.2 * X["M"] - 0.1 * (X["race"] == "asian")
    ...         return np.column_stack([1 - p, p])
    >>> report = audit_contrasts({"model": Model()}, graph.unfair("race -> M -> Y"), df, random_state=0)
    >>> report.worst.query("decisions == 'score' and quantity == 'mean_unfair_effect'")["contrast"].item()
    'black'
    """
    seed = read_seed(df, random_state, settings, "audit_contrasts")
    if settings.get("proxies") is not None:
        raise DataError(
            "proxies= is for two groups, and here each level is compared with the baseline. Name one of them: "
            "unfair.with_contrast('its label')."
        )
    require_real("level", level, above=0.0, below=1.0, such_as=0.95)
    require_unfitted(source, "contrast")
    unfair: UnfairPaths = (source if isinstance(source, UnfairPaths) else source.unfair).with_contrast(None)
    graph = unfair.graph
    chosen = with_missing(default_source(source, seed) if isinstance(source, UnfairPaths) else source, missing)
    own: dict[str, Any] = {
        "sample_weight": sample_weight,
        "groups": groups,
        "missing": getattr(chosen, "missing", None),
    }
    compared = Levels.of(df, graph, contrasts, **own)
    rows, table = compared.rows, compared.table
    joint = isinstance(source, UnfairPaths) or is_influence_based(source)
    require_integer("n_boot", n_boot, least=0)
    few_replicates = "" if joint else _few_replicates(n_boot, level, len(rows))
    each_level = level if joint else 1.0 - (1.0 - level) / len(rows)
    settings |= {"n_boot": n_boot, "level": each_level, "progress": progress, "random_state": seed, "missing": missing}
    if few_replicates:
        warnings.warn(few_replicates, PyrofairWarning, stacklevel=2)
    paths = {each: unfair.with_contrast(each) for each in rows}

    def make(each: Any, own: Any, df: pd.DataFrame, **within: Any) -> Audit:
        return audit(own, with_paths(source, paths[each]), df, **settings | within)

    members = compared.run(models, make, settings.get("subgroups"), progress=progress)
    context = {
        "rows": len(table),
        "level": level,
        "threshold": settings.get("threshold", 0.5),
        "graph": graph,
        "unfair": unfair,
        "sizes": compared.sizes,
        "warnings": [*filter(None, [few_replicates]), *members.rewarn()],
    }
    units = compared.units
    found = _simultaneous(members, rows, level, units, joint=joint)
    cut = any(len(each.thresholds) for each in members.audits.values())
    return ContrastAudit(
        found,
        _worst(found),
        members.audits,
        members.failures,
        context,
        paths,
        MAX_T if joint else BONFERRONI,
        _simultaneous(members, rows, level, units, joint=joint, cut=True) if cut else pd.DataFrame(),
        _in_subgroups(members, rows, level, units),
    )


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a sensitive attribute that are compared with the baseline, each by the ``rows`` of both.

    ``labels`` are those of clusters (n,).
    """

    df: pd.DataFrame
    graph: CausalGraph
    table: pd.DataFrame
    weight: NDArray[np.float64]
    labels: NDArray[Any] | None
    rows: Mapping[Any, NDArray[np.int64]]
    warned: Sequence[str]

    @classmethod
    def of(
        cls, df: Any, graph: CausalGraph, contrasts: Sequence[Hashable] | None, *, sample_weight: Any, groups: Any,
        missing: Missing | None,
    ) -> Levels:  # fmt: skip
        """Read the levels of a table, those named or all others than the baseline, and the rows of each."""
        df = as_pandas(df)
        refuse_gaps(df, graph)
        table = read_table(df, feature_columns(graph), what="df", missing=missing)
        values = table[graph.sensitive_column]
        levels = read_contrasts(values, graph, contrasts)
        weight, labels = read_weight(sample_weight, table), read_groups(groups, df, graph)
        rows = {each: rows_of_levels(values, each, graph.baseline) for each in levels}
        return cls(df, graph, table, weight, labels, rows, describe_reading(df, graph, groups=groups))

    @property
    def sizes(self) -> dict[Any, int]:
        """The rows of the baseline and of each level."""
        values = self.table[self.graph.sensitive_column]
        return {each: int(np.asarray(values == each).sum()) for each in (self.graph.baseline, *self.rows)}

    @property
    def units(self) -> NDArray[np.int64] | None:
        """The codes of clusters (n,), if there are any."""
        hashed = hash_groups(self.labels)
        return None if hashed is None else np.unique(hashed, return_inverse=True)[1]

    def run(
        self, models: Any, make: Callable[..., Any], subgroups: Any, done: str = "audited", *, progress: bool
    ) -> Members:
        """Let ``make(level, models, df, ...)`` answer for each level; what it refuses is noted, and others go on."""
        df, n, members = self.df, len(self.table), Members("contrast", self._named, done)
        few: dict[Any, DataError] = {}
        members.said |= {text: (PyrofairWarning, [*self.rows]) for text in self.warned}
        known = [name for name in df.columns if name in (*self.table.columns, self.graph.outcome_column)]
        for each, at in progress_bar("contrasts", self.rows.items(), shown=progress):
            if text := few_rows(self.weight, self.table[self.graph.sensitive_column], each, self.graph.baseline):
                few[each] = members.failures[each] = DataError(text)
                continue
            within = {
                "sample_weight": self.weight[at],
                "groups": None if self.labels is None else self.labels[at],
                "subgroups": _labels_of(subgroups, at, n),
            }
            own = models  # the audit refuses what is no dictionary
            if isinstance(models, Mapping):
                own = {name: _scores_of(name, model, at, n) for name, model in models.items()}
            members.run(each, partial(make, each, own, df[known].iloc[at], **within), REFUSALS)
        if not members.audits:
            first = next((error for each, error in members.failures.items() if each not in few), None)
            raise first or DataError(
                f"No level can be compared with the baseline. {'; '.join(map(str, few.values()))}."
            )
        return members

    def _named(self, contrasts: Sequence[Any]) -> str:
        named = ", ".join(repr(self.graph.named(each)) for each in contrasts)
        return f"The contrast{'s' if len(contrasts) > 1 else ''} {named}"


def _joined(pictures: Sequence[Callable[[], Markup]]) -> Markup:
    return Markup("").join(each() for each in pictures)


def _few_replicates(n_boot: int, level: float, k: int) -> str:
    """Return a warning where few of the replicates lie beyond each end of intervals of Bonferroni's level.

    With one or fewer in expectation the ends are the extreme replicates, whatever the level, which is refused.
    """
    tail = (1.0 - level) / (2.0 * k)
    if k == 1 or n_boot < 2 or n_boot * tail >= REPLICATES_BEYOND * (1.0 - 1e-9):
        return ""
    needed = math.ceil(REPLICATES_BEYOND / tail * (1.0 - 1e-9))
    text = (
        f"Bonferroni's intervals of {k} contrasts at {level:.0%} leave {tail:.2%} beyond each end, where "
        f"{n_boot * tail:.1f} of {n_boot:,} replicates lie"
    )
    remedy = f"Use n_boot={needed}, of which {REPLICATES_BEYOND} do, or fewer contrasts, or OneStep, which needs none."
    if n_boot * tail < 1.0 - 1e-9:
        raise DataError(f"{text}: no replicate is as far out as the ends should be. {remedy}")
    return f"{text}: the ends are unstable, and tend to be too near. {remedy}"


def _scores_of(name: str, model: Any, at: NDArray[np.int64], n: int) -> Any:
    """Return a model, or given scores (n,) of some rows; refuse scores that are not of all rows, one for each."""
    if not isinstance(model, pd.Series | np.ndarray | list | tuple):
        return model
    scores = model if isinstance(model, pd.Series | np.ndarray) else np.asarray(model)
    if scores.shape != (n,):
        raise DataError(
            f"{name!r} is given as scores of shape {scores.shape}; expected {(n,)}, one for each row, those of levels "
            "without a contrast included: of predict_proba, pass the column of the positive class."
        )
    return scores.iloc[at] if isinstance(scores, pd.Series) else scores[at]


def _simultaneous(
    members: Members,
    rows: Mapping[Any, NDArray[np.int64]],
    level: float,
    units: NDArray[np.int64] | None,
    *,
    joint: bool,
    cut: bool = False,
) -> pd.DataFrame:
    """Return the quantities of all contrasts, with intervals that hold at once for each model and quantity.

    With ``cut`` they are those at further thresholds, each by itself. ``units`` are codes of clusters (n,).
    """
    names, k = {"threshold": "decisions"}, len(rows)
    parts = {name: each.thresholds.rename(columns=names) for name, each in members.audits.items()} if cut else None
    table = members.table(list(rows), parts)
    sizes = table["contrast"].map({each: len(at) for each, at in rows.items()})
    table.insert([*table].index("ess"), "n", sizes)
    made = {name: each.context["cut" if cut else "estimates"] for name, each in members.audits.items()}
    estimates = {name: each.placed(rows[name], units) for name, each in made.items() if each is not None}
    keys: Any = table.groupby(KEY, sort=False)
    for of, own in keys:
        key = Key(AUDITED, *of)
        found = {name: each.of(key) for name, each in estimates.items() if key in each.keys}
        reach = np.nan
        for i, row in zip(own.index, own.to_dict("records"), strict=True):
            if "test-set" in row["note"]:
                low, high, notes = exact_accuracy(row["estimate"], row["n"], (1.0 - level) / (2.0 * k))
                table.loc[i, ["lower", "upper"]], table.loc[i, "note"] = (low, high), notes[0]
            elif joint and np.isfinite(row["lower"]):
                reach = reach_of_all([*found.values()], level) if np.isnan(reach) else reach
                table.loc[i, ["lower", "upper"]] = found[row["contrast"]].interval(level, reach)
    return table.rename(columns={"decisions": "threshold"}) if cut else table


def _in_subgroups(
    members: Members, rows: Mapping[Any, NDArray[np.int64]], level: float, units: NDArray[np.int64] | None
) -> pd.DataFrame:
    """Return the quantities in all levels of subgroups of all contrasts, whose intervals hold together."""
    told = []
    for name, one in members.audits.items():
        within = [(of, own.placed(rows[name][own.at], units), models) for of, own, models in one.context.within]
        told += [(name, each) for each in estimate_levels(within)]
    table = tell_subgroups([each for _, each in told], level)
    table.insert(0, "contrast", [name for name, _ in told])
    return table


def _labels_of(subgroups: Any, at: NDArray[np.int64], n: int) -> Any:
    """Return subgroups, with given labels (n,) those of some rows."""
    if not isinstance(subgroups, Mapping):
        return subgroups
    return {
        name: each.iloc[at] if isinstance(each, pd.Series) and len(each) == n else each
        for name, each in subgroups.items()
    }


def _worst(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each model, decisions and effect or bound the contrast of the largest absolute value."""
    rows = []
    for key, own in table[table["quantity"].isin(WORST_OF)].groupby(KEY, sort=False):
        own = own.dropna(subset="estimate")
        if own.empty:
            continue
        ends: Any = [absolute_interval(*each) for each in own[["lower", "upper"]].to_numpy()]
        known = np.isfinite(own[["lower", "upper"]]).all(axis=None)
        low, high = np.max(ends, axis=0) if known else (np.nan, np.nan)
        worst = own.iloc[own["estimate"].abs().argmax()]
        rows.append((*key, worst["contrast"], abs(worst["estimate"]), low, high))
    return pd.DataFrame(rows, columns=[*KEY, "contrast", "size", "lower", "upper"])
