"""Families of audits, one for each contrast, graph or absent edge: one runner, one tidy table, one result."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone

from pyrofair._random import seed_from
from pyrofair._validation import require_choice, require_seed, shown
from pyrofair.audits.audit import Audit, require_audit_settings
from pyrofair.audits.audit_view import RIGHT_GRAPH, basis_of, missing_blocks, rates_block, settings_of
from pyrofair.audits.display.export import audit_data, known_versions
from pyrofair.audits.display.page import spans_table
from pyrofair.audits.display.words import answer, changes, describe_comparison, of_decisions
from pyrofair.audits.plots import plot_members
from pyrofair.audits.report import check_line, in_doubt, section_lines, verdict_lines
from pyrofair.audits.verdicts import Verdict, judge, quantities_of, read_audit, summed_up
from pyrofair.audits.view import MOST_CARDS, Block, Report, View
from pyrofair.audits.wald import require_estimates
from pyrofair.effects.potential_outcomes import SeveralContrasts, refuse_fitted
from pyrofair.exceptions import DataError, NotIdentifiedError, PositivityError, PyrofairWarning
from pyrofair.graph import UnfairPaths
from pyrofair.graph.paths import require_unfair
from pyrofair.tables.partitions import require_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "KEY",
    "REFUSALS",
    "SCHEMA",
    "FamilyAudit",
    "Members",
    "read_seed",
    "require_unfitted",
    "with_paths",
]

SCHEMA = "pyrofair-family"
EFFECTS = ("mean_unfair_effect", "piu_lower", "piu_upper")
"""The numbers of the short report, if there are few members."""
MORE = 'More: .details(), .summary(), .verdicts, .plot(), .to_html("audit.html").'
KEY = ["model", "decisions", "quantity"]
REFUSALS = (DataError, PositivityError)
FAILURES = (NotIdentifiedError, *REFUSALS)
"""Errors that leave one member without an audit, while the others go on."""
NUMBERS = ("estimate", "low", "high", "lower", "upper", "ess")


@dataclass(frozen=True, eq=False, repr=False)
class FamilyAudit(Report):
    """The audits of a family; print it for its verdicts.

    Attributes
    ----------
    quantities : DataFrame
        For each member (the first column), model, decisions and quantity: estimate, lower, upper, ess and note, and
        what else belongs to a kind of family. A member without an answer has NaN, and the reason in note.
    overall : DataFrame
        What is read over all members.
    audits : dict
        The audit of each member by itself.
    failures : dict
        Why a member has none, an error; ``.way_out`` of one that is not identified is what can be done.
    context : dict
        rows, level, warnings, and what else belongs to a kind of family.
    unfair : dict
        The unfair paths of each member; None where none is left.
    """

    quantities: pd.DataFrame
    overall: pd.DataFrame
    audits: Mapping[Any, Audit]
    failures: Mapping[Any, Exception]
    context: Mapping[str, Any]
    unfair: Mapping[Any, UnfairPaths | None]
    key: ClassVar[str]
    """The first column of the quantities, which names the members."""

    @property
    def table(self) -> pd.DataFrame:
        """The quantities of each member."""
        return self.quantities

    @property
    def verdicts(self) -> pd.DataFrame:
        """What the numbers show of each member, model and decisions, as in :attr:`pyrofair.Audit.verdicts`."""
        rows = [(*of, each.status, each.least, each.most, each.text) for of, each in self.read().items()]
        return pd.DataFrame(rows, columns=[self.key, "model", "decisions", "status", "least", "most", "verdict"])

    def read(self) -> dict[tuple[Any, str, Any], Verdict]:
        """Return the verdict of each member, model and decisions."""
        rates = {
            of: quantities["positive_rate"]
            for each in self.audits.values()
            for of, quantities in quantities_of(each.table).items()
        }  # of the rows as they are, whatever the graph
        found: dict[tuple[Any, str, Any], Verdict] = {}
        for name, own in self.quantities.groupby(self.key, sort=False):
            one = self.audits.get(name)
            if one is not None:
                table = own if own["quantity"].eq("positive_rate").any() else one.table
                found |= {(name, *of): each for of, each in read_audit(table, one.groups, one.context).items()}
                continue
            for (model, decisions), of in quantities_of(own).items():
                if np.isnan(of["piu_upper"].estimate):
                    cause = str(of["piu_upper"].note).rstrip(".")
                    found[name, model, decisions] = Verdict("failed", cause=cause)
                    continue
                rate = rates.get((model, decisions))
                decided = rate is not None and decisions != "score"
                ends = of | {"positive_rate": rate}
                found[name, model, decisions] = judge(ends, (), (), pd.DataFrame(), "", decided=decided)
        return found

    def plot(self, model: str | None = None, decisions: str = "threshold") -> Figure:
        """Draw the mean unfair effect of a model, by default of all, and where its PIU lies, by member."""
        known = list(dict.fromkeys(self.quantities["model"]))
        if model is not None:
            require_choice("model", model, known)
        models = known if model is None else [model]
        own = self.quantities[self.quantities["model"].isin(models)]
        require_choice("decisions", decisions, list(dict.fromkeys(own["decisions"])))
        own = own[own["decisions"] == decisions]
        several = len(models) > 1

        def named(each: str, name: Any) -> str:
            return f"{each}, {self.label(name)}" if several else self.label(name)

        rows = own.assign(member=list(map(named, own["model"], own[self.key]))).set_index(["member", "quantity"])
        beside = {named(each, name): text for each in models for name, text in self._beside(each, decisions).items()}
        what = of_decisions(decisions) + ("" if several else f" of {models[0]}")
        return plot_members(rows, beside, what, self.context["level"], self._title())

    def _title(self) -> str:
        """Return the comparison and the rows, as figures are headed."""
        unfair = next((each for each in self.unfair.values() if each is not None), None)
        compares = "" if unfair is None else f"{describe_comparison(unfair)}; "
        return f"{compares}{self.context['rows']:,} rows"

    def gathered(self, name: str) -> pd.DataFrame:
        """Return the tables that all audits have under a name, such as "stages", with the member in front."""
        parts: dict[Any, pd.DataFrame] = {each: getattr(one, name) for each, one in self.audits.items()}
        return pd.concat([own.assign(**{self.key: each})[[self.key, *own]] for each, own in parts.items()])

    @property
    def rates(self) -> pd.DataFrame:
        """As :attr:`pyrofair.Audit.rates`, which no graph changes."""
        found = pd.concat([pd.DataFrame(), *(each.rates for each in self.audits.values())])
        return found.drop_duplicates(ignore_index=True)

    def label(self, name: Any) -> str:
        """Return the name of a member as texts have it."""
        return str(name)

    def _beside(self, model: str, decisions: str) -> dict[Any, str]:
        """Return the members in the order of the picture, and what stands beside each."""
        why = {
            name: "not identified" if isinstance(each, NotIdentifiedError) else "not audited"
            for name, each in self.failures.items()
        }
        return {name: why.get(name, "") for name in dict.fromkeys(self.quantities[self.key])}

    @property
    def view(self) -> View:
        """The report as data."""
        made, verdicts = self._told(), self.read()
        of = {name: quantities_of(own) for name, own in self.quantities.groupby(self.key)}
        chosen = self._chosen(verdicts)
        level, warned = self.context["level"], self.context.get("warnings", ())
        paths = self.unfair if len(chosen) <= MOST_CARDS else {}  # in a long list the direction is left out
        answers = [
            (f"{model}, {self.label(name)}", answer(each, of[name][model, decisions], paths.get(name), level))
            for (name, model, decisions), each in chosen.items()
        ]
        contexts = {name: each.context for name, each in self.audits.items()}
        doubts = [
            f"In doubt, {self.label(name)}, {model}: {text}."
            for name, each in contexts.items()
            for model, text in each.doubts.items()
        ]
        assumptions = [("These numbers assume:", self._rest_on())]
        if outcomes := self._each("outcome_assumptions"):
            assumptions.append(("Those of an outcome assume:", outcomes))
        first, found = next(iter(contexts.values()), None), self.rates
        rates = [] if first is None or found.empty else [rates_block(found, self.context.get("graph", first.graph))]
        return replace(
            made,
            blocks=[*self._blocks(verdicts), *made.blocks, *rates, *missing_blocks(self._missing())],
            answers=answers,
            basis=[RIGHT_GRAPH] if first is None else basis_of(replace(first, level=level)),
            changes=changes([*chosen.values()], len(warned))[:4],
            assumptions=assumptions,
            closing=[*doubts, *made.closing],
            warnings=warned,
            settings=[]
            if first is None
            else settings_of(replace(first, paths=self.context.get("unfair", first.paths))),
        )

    @staticmethod
    def _chosen(verdicts: dict[tuple[Any, str, Any], Verdict]) -> dict[tuple[Any, str, Any], Verdict]:
        """Return the verdicts on decisions, or on scores if there are no others."""
        return {key: each for key, each in verdicts.items() if key[2] == "threshold"} or verdicts

    @abstractmethod
    def _told(self) -> View:
        """Return what this kind of family says beside its quantities."""

    def _rest_on(self) -> list[str]:
        """Return what is taken as independent in each audit, and what these depend on besides, each once."""
        units = dict.fromkeys(each.context.units for each in self.audits.values())
        return [*units, *self._each("assumptions")]

    def _missing(self) -> pd.DataFrame:
        """Return the shares of missing values by column and group, of all audits together."""
        found = pd.concat([pd.DataFrame(), *(each.context.missing for each in self.audits.values())]).drop_duplicates()
        if len(found) and not found["column"].is_unique:  # of contrasts, whose rows differ
            found = found.drop(columns="all rows").groupby("column", sort=False).first().reset_index()
        return found

    def _each(self, name: str) -> list[str]:
        """Return the texts that the contexts of all audits have under a name, each once."""
        return list(dict.fromkeys(text for each in self.audits.values() for text in each.context[name]))

    def _blocks(self, verdicts: Mapping[tuple[Any, str, Any], Verdict]) -> list[Block]:
        """Return for each model the members side by side: a table for decisions and one for scores."""
        blocks = []
        for i, (model, of_model) in enumerate(self.quantities.groupby("model", sort=False)):
            tables = [
                spans_table(
                    f"{self.key}-{i}-{decisions}",
                    f"{model}, {of_decisions(decisions)}",
                    rows,
                    self.key,
                    named=self.label,
                    before=self._before,
                    last=(
                        "verdict",
                        {name: each.head for (name, *of), each in verdicts.items() if of == [model, decisions]},
                    ),
                    note=self._notes(rows),
                )
                for decisions, rows in of_model.groupby("decisions", sort=False)
            ]
            blocks.append(Block(f"model-{i}", str(model), tables=tables))
        return blocks

    def _notes(self, rows: pd.DataFrame) -> str:
        """Return the notes on the effects of a model."""
        own = rows[(rows["quantity"] == "mean_unfair_effect") & (rows["note"] != "")]
        notes = zip(own[self.key], own["note"], strict=True)
        return " ".join(f"{self.label(name)}: {str(note).rstrip('.')}." for name, note in notes)

    def _before(self, name: Any, of: Mapping[str, Any]) -> dict[str, str]:
        """Return what else the tables show of a member."""
        return {}

    def _data(self, rows: bool) -> dict[str, Any]:
        found: dict[str, Any] = {
            "versions": known_versions(),
            "members": self.key,
            "context": {name: each for name, each in self.context.items() if isinstance(each, int | float | str)},
            "quantities": self.quantities,
            "overall": self.overall,
            "verdicts": self.verdicts,
            "unfair": {name: None if each is None else str(each) for name, each in self.unfair.items()},
            "failures": {name: str(getattr(each, "cause", each)) for name, each in self.failures.items()},
            "rates": self.rates,
            "missing": self._missing(),
            "assumptions": self._rest_on(),
            "warnings": self.context.get("warnings", ()),
        }
        if rows:
            found["audits"] = {name: audit_data(each, rows) for name, each in self.audits.items()}
        return found

    def to_json(self, *, rows: bool = False, indent: int | None = None) -> str:
        """Return the family as JSON: quantities, overall, verdicts and failures; with ``rows`` the audits as well."""
        return self.view.json(rows=rows, indent=indent)

    def summary(self) -> pd.DataFrame:
        """Return one row for each member and model, as :meth:`pyrofair.Audit.summary` does."""
        verdicts, found = self.read(), {}
        for name, own in self.quantities.groupby(self.key, sort=False):
            for (model, decisions), of in quantities_of(own).items():
                if (name, model) not in found:
                    found[name, model] = summed_up(verdicts[name, model, decisions].status, of)
        return pd.DataFrame([*found.values()], index=pd.MultiIndex.from_tuples(found, names=[self.key, "model"]))

    def _opening(self) -> list[str]:
        """Return the first lines of the short report: what was compared."""
        return list(self._told().lead)

    def _short(self, model: str, decisions: str) -> list[str]:
        """Return what the short report says of a model over all members."""
        return []

    def __str__(self) -> str:
        verdicts, context = self.read(), self.context
        of = {name: quantities_of(own) for name, own in self.quantities.groupby(self.key)}
        chosen = self._chosen(verdicts)
        numbers = EFFECTS if len(chosen) <= MOST_CARDS else ()
        lines = self._opening() + [""] * (not numbers)
        for (name, model, decisions), each in chosen.items():
            told = verdict_lines(f"{model}, {self.label(name)}", each, of[name][model, decisions], {}, numbers)[1:]
            beside = self._beside(model, decisions)[name]
            told[0] += f" ({beside})" if beside else ""
            lines += [*([""] if numbers else []), *told]
        pairs = dict.fromkeys(key[1:] for key in chosen)
        failed = [
            f"{model}, {self.label(name)}"
            for name, one in self.audits.items()
            for model in in_doubt({key[1:]: each for key, each in verdicts.items() if key[0] == name}, one.context)
        ]
        lines += [line for pair in pairs for line in self._short(*pair)]
        lines += section_lines(context.get("sections", ()))
        return "\n".join([*lines, "", check_line(failed, context.get("warnings", ())), MORE])

    def __repr__(self) -> str:
        names = ", ".join(repr(each) for each in dict.fromkeys(self.quantities[self.key]))
        return f"<{type(self).__name__} of {names} on {self.context['rows']:,} rows; print it for a verdict>"


@dataclass(eq=False)
class Members:
    """The audits, or other answers, of the members of a family, why some have none, and what was warned of.

    ``named`` makes a noun phrase of some names, the beginning of a sentence; ``done`` is what could not be done.
    """

    key: str
    named: Callable[[Sequence[Any]], str]
    done: str = "audited"
    audits: dict[Any, Any] = field(default_factory=dict)
    failures: dict[Any, Exception] = field(default_factory=dict)
    said: dict[str, tuple[type[Warning], list[Any]]] = field(default_factory=dict)

    def run(self, name: Any, make: Callable[[], Any], caught: tuple[type[Exception], ...] = FAILURES) -> Any:
        """Make the answer of a member, or keep the error that it has in its place."""
        with self.listening(name):
            try:
                self.audits[name] = make()
            except caught as error:
                self.failures[name] = error
        return self.audits.get(name)

    @contextmanager
    def listening(self, name: Any) -> Iterator[None]:
        """Keep what is warned of as that of a member."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for each in caught:
            self.said.setdefault(str(each.message), (each.category, []))[1].append(name)

    def rewarn(self, stacklevel: int = 3) -> list[str]:
        """Warn of what the audits warned of, and name the members unless it was all of them; return the texts."""
        texts = []
        for text, (category, names) in self.said.items():
            whose = list(dict.fromkeys(names))
            every = len(whose) == len(self.audits) and not self.failures
            told = text if every else f"{self.named(whose)}: {text}"
            warnings.warn(told, category, stacklevel=stacklevel)
            texts += [told] if issubclass(category, PyrofairWarning) else []
        for name, error in self.failures.items():
            if not isinstance(error, NotIdentifiedError):
                texts.append(f"{self.named([name])} could not be {self.done}: {error}")
                warnings.warn(texts[-1], PyrofairWarning, stacklevel=stacklevel)
        return texts

    def table(
        self,
        names: Sequence[Any],
        parts: Mapping[Any, pd.DataFrame] | None = None,
        reasons: Mapping[Any, str] | None = None,
    ) -> pd.DataFrame:
        """Return the quantities of all members under each other, with the member in the first column.

        ``parts`` are tables in place of, or beside, those of the audits; ``reasons`` why a member lacks some rows.
        """
        tables: dict[Any, pd.DataFrame] = {name: each.table for name, each in self.audits.items()} | dict(parts or {})
        asked = pd.concat([each[KEY] for each in tables.values()]).drop_duplicates()
        held = [name for name in NUMBERS if any(name in each for each in tables.values())]
        whole = []
        for name in names:
            reason = (reasons or {}).get(name, "")
            if name in tables:
                part = asked.merge(tables[name], on=KEY, how="left")
                part["note"] = part["note"].fillna(reason or "not reported")
            else:
                error = self.failures[name]
                note = "; ".join(filter(None, [str(getattr(error, "cause", error)), reason]))
                part = asked.assign(**dict.fromkeys(held, np.nan), note=note)
            part.insert(0, self.key, [name] * len(part))
            whole.append(part)
        return pd.concat(whole, ignore_index=True)


def read_seed(df: Any, random_state: Any, settings: Mapping[str, Any], name: str) -> int | None:
    """Return the seed of all members; refuse a table, a seed or settings of which none could be made."""
    require_table(df, name)
    require_seed(random_state)
    require_audit_settings(settings, name)
    return None if random_state is None else seed_from(random_state)


def with_paths(source: Any, unfair: UnfairPaths) -> Any:
    """Return the source of other unfair paths."""
    return unfair if isinstance(source, UnfairPaths) else clone(source).set_params(unfair=unfair)


def require_unfitted(source: Any, each: str) -> None:
    """Refuse what cannot be cloned for each contrast, or graph: no paths, and no unfitted source of estimates."""
    if isinstance(source, UnfairPaths):
        require_unfair("source", source, each=each == "contrast")
        return
    if isinstance(source, SeveralContrasts):
        raise DataError(
            f"source={shown(source)} is for training. Audit with its paths, audit_{each}s(models, unfair, df), or "
            "with an unfitted source, IPW(unfair)."
        )
    require_estimates("source", source, each=each == "contrast")
    refuse_fitted("source", source, each, "or the unfair paths")
