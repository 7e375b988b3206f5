"""How a command computes: threads bounded, all warnings gathered, its question read and its report written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape, unescape
from typing import TYPE_CHECKING, Any

from pyrofair.commands.decisions import check_decisions, model_files, read_models, tell_scale
from pyrofair.commands.options import DONE, FAILED, Settings
from pyrofair.commands.problem import Problem, files_read, read_problem
from pyrofair.commands.results import ResultsFolder
from pyrofair.exceptions import PyrofairError

if TYPE_CHECKING:
    from pyrofair.audits.audit import Audit
    from pyrofair.audits.view import Report

__all__ = ["Run", "add_page", "as_options", "computing", "running"]

COLUMN = r"df\[(?P<column>'[^']*'|\"[^\"]*\"|[^\]]+)\]"
ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
CATEGORIES = rf"{COLUMN}(?:\.astype\(str\))?\.astype\((?:'category'|pd\.CategoricalDtype{ARGUMENTS})\)"
AS_OPTIONS = tuple(
    (re.compile(python), said)
    for python, said in (
        (r"(?:pass )?missing=.recorded.", "--missing-as-value"),
        (r"\((propensity|regression)=\)", r"(--\1)"),
        (r"\bscores='(outcome|prediction)'", r"--scores \1"),
        (r"\b(sensitive|outcome)=None, and", r"--\1 is not given, and"),
        (r"\b(sensitive|outcome)='\.\.\.'", r"--\1 NODE"),
        (r"graph\.with_latent\(\.\.\.\)", "--latent NODE"),
        (r"when making the graph: CausalGraph\(\.\.\., (baseline)=([^,)]*)[^)]*\)", r"--\1 \2 --contrast all"),
        (r"\bcontrast=None\b", "--contrast all"),
        (r"other='its label'", "other=VALUE among the columns of --one-hot"),
        (r"keep it once, df\.drop_duplicates\(\), ", "keep it once in the file, "),
        (r"\bgroups='(\w+)'", r"--groups \1"),
        (r"\bgroups=", "--groups"),
        (r"\border=\[[^\]]*\]", "pyrofair explain --order"),
        (r"write (?:them|the rows) out: df\.loc\[.*?\)\]", "write each row into the file as often, without --weight"),
        (r"\bsample_weight (holds|is)", r"--weight \1"),
        (r", of all such columns at once, df\.infer_objects\(\)", ""),
        (rf": \(pd\.to_datetime\({COLUMN}\) - pd\.Timestamp\('[\d-]*'\)\)\.dt\.days", ", as a column of the file"),
        (
            rf"\bfit on rows with this level, or declare it before fitting: {CATEGORIES}",
            "or train on rows with this level",
        ),
        (CATEGORIES, r"--text \g<column>"),
        (rf"{COLUMN}\.astype\(float\)|pd\.to_numeric\(df\[(?P<other>[^\]]*)\]\)", r"--number \g<column>\g<other>"),
        (rf"{COLUMN}\.replace{ARGUMENTS}", r"in the column \g<column> of the file"),
        (rf"{COLUMN} = pd\.q?cut{ARGUMENTS}", r"write its bands into the column \g<column> of the file"),
        (rf"{COLUMN} / ([\d.e+-]*\d)", r"divide the column \g<column> of the file by \2"),
        (rf"{COLUMN} - df\[[^\]]*\]\.(?:min|mean)\(\)", r"the least value, from the column \g<column> of the file"),
        (
            r"subgroups=\{(?:'[^']*'|\"[^\"]*\"): lambda table: pd\.cut\(table\['([^']*)'\], (\d+)\)\}",
            r"--subgroups \1=\2",
        ),
        (r": pf\.(?:Scores|Decisions)Of\(.*?(?=\.$|\. For|$)", ": write it into a column of the table, --score COLUMN"),
        (
            r"pf\.audits\.flips\(models.*pf\.learn_mechanisms\(graph, df\)",
            "--source gcomputation estimates the probability of a flip by mechanisms that it learns from the table",
        ),
        (r"audit\(\.\.\., threshold=([\d.e-]+)\)", r"--threshold \1"),
        (r"(?:pass |(?<=, or ))pf\.DecisionsOf\(model\)", "name a column of its decisions, --score COLUMN"),
        (r"More: \.details\(\), .*", "More: report.txt has the details."),
        (r"take 1 minus them\b", "use --score-negative"),
        (r"make 1 and 0: \(decisions == 'yes'\)\.astype\(int\)", "name the one that is yes: --score-positive VALUE"),
        (r"costs\.unfair\[name\]\.graph\.check\(df\)", "pyrofair check, with the graph without it"),
        (r"\bdf (?=has|holds|lacks|must|needs)", "the table "),
        # What no option does is marked as what it is.
        (rf"(?>\b(?:df|pd|pf|np)(?:\.\w+|\[[^\]]*\]|{ARGUMENTS})+)(?! \(in Python\))", r"\g<0> (in Python)"),
    )
)
"""What messages of the package say in Python, and how it is said on the command line."""

MARKUP = re.compile(r"<style\b.*?</style>|<script\b.*?</script>|<[^>]*>|[^<]+", re.DOTALL)
OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning)


def as_options(text: str) -> str:
    """Return a text in which what is said in Python is said by options of the command line, or marked as Python."""
    for python, said in AS_OPTIONS:
        text = python.sub(said, text)
    return text


def add_page(folder: ResultsFolder, report: Audit | Report, name: str = "report.html") -> None:
    """Add the page of a report, which speaks of options as its text does."""

    def said(found: re.Match[str]) -> str:
        text = unescape(found[0])
        return found[0] if found[0][0] == "<" or as_options(text) == text else escape(as_options(text))

    folder.add(name, lambda path: path.write_text(MARKUP.sub(said, report.to_html()), encoding="utf-8"))


@contextmanager
def computing(settings: Settings) -> Iterator[Callable[[], list[str]]]:
    """Run with the threads of the settings; the function returns the texts of warnings so far, each once.

    An error of the package is given them as notes, for no report will show them and they may name its cause.
    """
    from threadpoolctl import threadpool_limits

    from pyrofair.tables.recorded import join_truths

    def texts() -> list[str]:
        concern = (each.message for each in caught if not issubclass(each.category, OF_DEVELOPERS))
        return join_truths(as_options(str(each)) for each in concern)

    with warnings.catch_warnings(record=True) as caught, threadpool_limits(settings["threads"]):
        warnings.simplefilter("always")
        try:
            yield texts
        except PyrofairError as error:
            for text in texts():
                error.add_note(f"Warning: {text}")
            raise


@dataclass(frozen=True, eq=False)
class Run:
    """A command at work: what is asked, the folder of its results, and what was warned of so far."""

    settings: Settings
    problem: Problem
    folder: ResultsFolder
    warned: Callable[[], list[str]]

    @cached_property
    def models(self) -> dict[str, Any]:
        """The columns of scores and the models by name."""
        return read_models(self.settings, self.problem)

    def finish(self, lines: Any, *texts: Any, of: str = "of", tell: bool = True, spare: str = "") -> int:
        """Write the results with a report, what was read above it and, to ``tell`` them, warnings below.

        Of an audit among the texts, the details are written and the short report is printed.
        """
        command, data = self.settings.command, self.settings["data"]
        scale = tell_scale(self.settings) if "score" in self.settings.values else ()
        head = [f"pyrofair {command} {of} {data}", *self.problem.notes, *scale]
        details = [each if isinstance(each, str) else each.details() for each in texts]
        told, short = (as_options("\n".join([*head, *map(str, each)])) for each in (details, texts))
        warned = [f"Warning: {each}" for each in self.warned()]
        told = "\n".join([told, *(each for each in warned if tell and each.removeprefix("Warning: ") not in told)])
        short = "\n".join([short, *(each for each in warned if each.removeprefix("Warning: ") not in short)])
        return DONE if self.folder.finish(told, lines, short=short, spare=spare) else FAILED


@contextmanager
def running(settings: Settings, names: Sequence[str], *tables: str, **how: Any) -> Iterator[Run]:
    """Read what is asked, with further ``tables``, and hold the folder of results, files of some names."""
    judges = "score" in settings.values
    if judges:
        check_decisions(settings, settings.values.get("thresholds", ()))
    with computing(settings) as warned:
        scores = dict.fromkeys(settings["score"], "--score") if judges else {}
        problem = read_problem(settings, others=tables, **{**how, "extra": scores | how.get("extra", {})})
        models = model_files(settings["model"]).values() if judges else ()
        with ResultsFolder.claimed(settings, [*files_read(settings, *tables), *models], names) as folder:
            yield Run(settings, problem, folder, warned)
