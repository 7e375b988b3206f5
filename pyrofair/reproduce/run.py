"""Running the paper's experiments: cells computed once, each kept at once, and the files made of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import joblib
import pandas as pd

from pyrofair._cells import Cell, CellFolder, Failure
from pyrofair._validation import require_integer
from pyrofair.exceptions import DataError
from pyrofair.graph.identify import identify
from pyrofair.reproduce.experiments import EXPERIMENTS
from pyrofair.reproduce.fits import Job, run
from pyrofair.reproduce.problems import PROBLEMS, Sizes, unfair_paths
from pyrofair.reproduce.results import FULL, QUICK, Outcome, Results, Scale, Table, markdown
from pyrofair.reproduce.verdicts import FAILS, HOLDS, UNTESTED, verdict_table
from pyrofair.robustness import MilesBounds

__all__ = ["claim_cells", "reproduce"]

SLOWEST_FIRST = ("given S", "PSCF", "Proposed", "FIO", "Oracle")


def claim_cells(folder: Path, *, quick: bool = False, overwrite: bool = False) -> CellFolder:
    """Make a folder for the cells and files of experiments, before any work; a DataError refuses one of another run."""
    scale = QUICK if quick else FULL
    return CellFolder.claimed(folder, {"command": "reproduce", "scale": asdict(scale)}, overwrite=overwrite)


def reproduce(
    names: Sequence[str],
    folder: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> list[Path]:
    """Run experiments of the paper, write their tables, figures and pages, and return the files.

    Each classifier's measurements are a cell, kept as soon as it is finished, that experiments share: a run that ends
    early, in whatever way, goes on from there when it is called again.

    Parameters
    ----------
    names
        Names of :data:`EXPERIMENTS`.
    folder
        The folder of the files, with those of the cells inside.
    quick
        Fewer rows, seeds and strengths, and short training: whether it runs, not what comes out.
    jobs
        The processes. The numbers do not depend on it.
    overwrite
        Whether the cells of another run in the folder are deleted.
    report
        Receives progress, a line at a time.

    Raises
    ------
    DataError
        If a name is unknown, or the folder is unfit or another run's; nothing has been computed then. If cells failed:
        all others are kept, and each experiment has been written in which some seed of every method is left.
    """
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown or not names:
        raise DataError(f"names={list(names)!r} must be of {', '.join(EXPERIMENTS)}.")
    require_integer("jobs", jobs)
    scale = QUICK if quick else FULL
    cells = claim_cells(folder, quick=quick, overwrite=overwrite)
    needed = {name: EXPERIMENTS[name].jobs(scale) for name in names}
    every = list(dict.fromkeys(job for own in needed.values() for job in own))
    found = _compute(every, cells, scale, jobs, report)
    paths, failed = [], {str(key): each for key, each in found.items() if isinstance(each, Failure)}
    for name in names:
        lacking = [job for job in needed[name] if str(job) in failed]
        known = {_method_of(job) for job in needed[name] if job not in lacking}
        if any(_method_of(job) not in known for job in lacking):  # no seed is left of a method
            report(f"{name} is left out, for want of {'; '.join(map(str, lacking))}")
            continue
        tables = [cell.table for job in needed[name] if isinstance(cell := found[job], Cell)]
        results = Results(pd.concat(tables, ignore_index=True))
        without = [f"{job} ({failed[str(job)].error})" for job in lacking]
        report(f"writing {name}" + (f", without {'; '.join(map(str, lacking))}" if lacking else ""))
        paths += _write(name, EXPERIMENTS[name].assemble(results), results, folder, scale, without)
    paths.append(_write_report(folder))
    if failed:
        first = next(iter(failed))
        raise DataError(
            f"{len(failed)} of {len(every)} cells failed, the first is {first}: {failed[first].error} All tracebacks "
            f"are in {cells.failed}; a rerun tries them again."
        )
    return paths


def _method_of(job: Job) -> tuple[str, str, str]:
    return job.data, job.method, job.model


def _compute(
    every: Sequence[Job], cells: CellFolder, scale: Scale, jobs: int, report: Callable[[str], None]
) -> dict[Job, Cell | Failure]:
    """Return all cells: those that are finished from the folder, the others computed, the longest first."""
    read = {job: cells.read(job.key) for job in every}
    found: dict[Job, Cell | Failure] = {job: cell for job, cell in read.items() if isinstance(cell, Cell)}
    left = sorted((job for job in every if job not in found), key=_rank)
    report(f"{len(found)} of {len(every)} cells are finished" if found else f"{len(every)} cells to compute")
    started, spent = time.perf_counter(), 0.0
    for number, (job, cell) in enumerate(_run_all(left, cells, scale, jobs), 1):
        found[job] = cell
        clock = time.perf_counter() - started
        spent += float(cell.about["seconds"])
        rest = clock / number * (len(left) - number)
        what = f"failed: {cell.error:.120}" if isinstance(cell, Failure) else f"{cell.about['seconds']:.1f} s"
        report(f"[{clock:5.0f} s] {number}/{len(left)} {job} ({what}); about {rest / 60:.0f} min left")
    return found


def _run_all(left: Sequence[Job], cells: CellFolder, scale: Scale, jobs: int) -> Iterator[tuple[Job, Cell | Failure]]:
    parallel = joblib.Parallel(n_jobs=min(jobs, max(len(left), 1)), return_as="generator_unordered")
    yield from parallel(joblib.delayed(_run_one)(job, cells, scale.sizes[job.data]) for job in left)


def _run_one(job: Job, cells: CellFolder, sizes: Sizes) -> tuple[Job, Cell | Failure]:
    return job, cells.once(job.key, lambda: run(job, sizes))


def _rank(job: Job) -> tuple[int, str, int]:
    """Sort long jobs first, so that no process waits for another at the end, and those of one split together."""
    slow = next((i for i, part in enumerate(SLOWEST_FIRST) if part in job.method), len(SLOWEST_FIRST))
    return int(slow > 0 or job.data != "adult"), job.data, job.seed


# -- files ------------------------------------------------------------------------------------------------------------


def _write(
    name: str, outcome: Outcome, results: Results, folder: Path, scale: Scale, without: Sequence[str]
) -> list[Path]:
    """Write the files of an experiment and return them: CSV and Markdown of its tables, figures, verdicts, its page."""
    paths = []
    for each, table in outcome.tables.items():
        paths += [folder / f"{each}.csv", folder / f"{each}.md"]
        table.frame.to_csv(paths[-2], index=False)
        paths[-1].write_text(_titled(table) + "\n", encoding="utf-8")
    for each, figure in outcome.figures.items():
        paths.append(folder / f"{each}.png")
        figure.savefig(paths[-1], dpi=130)
    verdicts = verdict_table(outcome.verdicts)
    paths += [folder / f"{name}-verdicts.csv", folder / f"{name}-seeds.csv", folder / f"{name}-page.md"]
    verdicts.to_csv(paths[-3], index=False)
    results.rows.to_csv(paths[-2], index=False)
    paths[-1].write_text(_page(name, outcome, verdicts, results, scale, without), encoding="utf-8")
    return paths


def _titled(table: Table) -> str:
    return f"**{table.title}**\n\n{markdown(table.shown)}"


def _page(
    name: str, outcome: Outcome, verdicts: pd.DataFrame, results: Results, scale: Scale, without: Sequence[str]
) -> str:
    """Return the page of an experiment in Markdown: tables, figures, verdicts, and what the numbers rest on."""
    spent = results.rows.groupby(["data", "method", "model", "seed"])["cpu_seconds"].first()
    quick = " --quick" if scale is QUICK else ""
    parts = [
        f"## {EXPERIMENTS[name].title}",
        f"`python -m pyrofair reproduce {name}{quick}`: {len(spent)} cells, {spent.sum() / 60:.1f} minutes of "
        "processor time, those that other experiments share included.",
    ]
    parts += [_titled(table) for table in outcome.tables.values()]
    parts += list(outcome.notes)
    parts += [f"Left out is what failed: {'; '.join(without)}"] if without else []
    parts += [f"![{each}]({each}.png)" for each in outcome.figures]
    parts += ["**The paper's claims**", markdown(verdicts.rename(columns={"source": "label", "data": "on"}))]
    parts.append(_rests_on(results))
    return "\n\n".join(parts) + "\n"


def _rests_on(results: Results) -> str:
    """Return what the numbers of an experiment rest on."""
    used = [data for data in PROBLEMS if data in set(results.rows["data"])]
    lines = ["These numbers rest on:", ""]
    for data in used:
        own = results.rows[(results.rows["data"] == data) & results.rows["n_test"].notna()]
        n, last = own["n_test"].max(), own["seed"].max()
        drawn = "rows drawn" if PROBLEMS[data].scenario else "splits"
        lines.append(f"- {PROBLEMS[data].title}: {drawn} with seeds 0 to {last}, {int(n):,} test rows each.")
    assumptions: dict[str, None] = {}
    for data in used:
        assumptions |= dict.fromkeys(identify(unfair_paths(data)).assumptions)
        if PROBLEMS[data].bounded:
            printed = MilesBounds(unfair_paths(data), literal=True).assumptions
            assumptions |= dict.fromkeys(f"Of the bounds: {each}" for each in printed[1:])
    lines += [f"- {each}" for each in assumptions]
    return "\n".join(lines)


def _write_report(folder: Path) -> Path:
    """Write one page of all experiments whose pages are in a folder, and return it."""
    done = [name for name in EXPERIMENTS if (folder / f"{name}-page.md").exists()]
    counts = {}
    for name in done:
        verdicts = pd.read_csv(folder / f"{name}-verdicts.csv")["verdict"]
        counts[EXPERIMENTS[name].title] = [int((verdicts == each).sum()) for each in (HOLDS, FAILS, UNTESTED)]
    summary = pd.DataFrame.from_dict(counts, orient="index", columns=["holds", "fails", "cannot be tested"])
    parts = [
        "**Claims of the paper, counted**\n",
        markdown(summary.rename_axis("experiment").reset_index()) + "\n",
        *((folder / f"{name}-page.md").read_text(encoding="utf-8") for name in done),
    ]
    path = folder / "report.md"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path
