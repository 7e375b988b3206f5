"""Make the tables and figures of the paper, ours beside the printed numbers, with a verdict on each claim."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import joblib
import pandas as pd
from claims import FAILS, HOLDS, UNTESTED, Verdict
from experiments import EXPERIMENTS, Outcome
from fits import Job, run
from problems import PROBLEMS, Sizes
from results import FULL, QUICK, Results, Scale, markdown

import pyrofair as pf

SLOWEST_FIRST = ("given S", "PSCF", "Proposed", "FIO", "Oracle")
EXAMPLE = "example: python examples/paper/reproduce.py fig5 --jobs 4\n\nRun the same command again to resume a run."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run experiments, and write their files."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=[*EXPERIMENTS, "all"], help="the table or figure")
    parser.add_argument("--quick", action="store_true", help="few rows, seeds and strengths: whether it runs, no more")
    parser.add_argument("--jobs", type=int, default=1, metavar="NUMBER", help="processes; the numbers stay the same")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the results (default: reproduction)")
    given = parser.parse_args(arguments)
    if given.jobs < 1:
        parser.error(f"--jobs must be at least 1, and is {given.jobs}")
    folder = given.output or Path("reproduction-quick" if given.quick else "reproduction")
    names = list(EXPERIMENTS) if given.name == "all" else [given.name]
    failed = reproduce(names, folder, QUICK if given.quick else FULL, jobs=given.jobs)
    for job, error in failed.items():
        print(f"\n{job} failed:\n{error}", file=sys.stderr)
    return 1 if failed else 0


def reproduce(names: Sequence[str], folder: Path, scale: Scale, jobs: int = 1) -> dict[Job, str]:
    """Run experiments and write their files; return the jobs that failed, with the traceback of each.

    Each job is kept in ``cells`` of the folder as soon as it is finished, for all experiments. One that failed is left
    out, and so are experiments in which no seed of some method is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    needed = {name: EXPERIMENTS[name].jobs(scale) for name in names}
    found = _compute(list(dict.fromkeys(job for own in needed.values() for job in own)), folder, scale, jobs)
    failed = {job: result for job, result in found.items() if isinstance(result, str)}
    for name, own in needed.items():
        lacking = [job for job in own if job in failed]
        known = {(job.data, job.method) for job in own if job not in failed}
        if all((job.data, job.method) in known for job in lacking):
            results = Results(pd.concat([found[job] for job in own if job not in failed], ignore_index=True))
            print(f"writing {name}", flush=True)
            _write(name, EXPERIMENTS[name].assemble(results), results, folder, scale, lacking)
        else:
            print(f"{name} is left out, for want of {'; '.join(map(str, lacking))}", flush=True)
    _write_report(folder)
    print(f"wrote {folder / 'report.md'}", flush=True)
    return failed


def _compute(every: Sequence[Job], folder: Path, scale: Scale, jobs: int) -> dict[Job, pd.DataFrame | str]:
    """Return the tables of all jobs, or tracebacks: those that are finished are read, the others take the rest."""
    cells = joblib.Memory(folder / "cells" / pf.__version__, verbose=0).cache(run)
    ready = [job for job in every if cells.check_call_in_cache(job, scale.sizes[job.data])]
    left = sorted((job for job in every if job not in ready), key=_rank)
    print(f"{len(ready)} of {len(every)} cells are finished", flush=True)
    found = {job: cells(job, scale.sizes[job.data]) for job in ready}
    started = time.perf_counter()
    for number, (job, result) in enumerate(_run_all(cells, left, scale, jobs), 1):
        found[job] = result
        clock = time.perf_counter() - started
        rest = clock / number * (len(left) - number) / 60
        failed = " failed" if isinstance(result, str) else ""
        print(f"[{clock:5.0f} s] {number}/{len(left)} {job}{failed}; about {rest:.0f} min left", flush=True)
    return found


def _run_all(
    cells: Callable[..., pd.DataFrame], left: Sequence[Job], scale: Scale, jobs: int
) -> Iterator[tuple[Job, pd.DataFrame | str]]:
    parallel = joblib.Parallel(n_jobs=min(jobs, max(len(left), 1)), return_as="generator_unordered")
    return parallel(joblib.delayed(_run_one)(cells, job, scale.sizes[job.data]) for job in left)


def _run_one(cells: Callable[..., pd.DataFrame], job: Job, sizes: Sizes) -> tuple[Job, pd.DataFrame | str]:
    try:
        return job, cells(job, sizes)
    except Exception:  # an error in a job loses no other one
        return job, traceback.format_exc()


def _rank(job: Job) -> tuple[int, str, int]:
    """Sort long jobs first, so that no process waits for another at the end, and those of one split together."""
    slow = next((i for i, part in enumerate(SLOWEST_FIRST) if part in job.method), len(SLOWEST_FIRST))
    return int(slow > 0 or job.data != "adult"), job.data, job.seed


# -- files -------------------------------------------------------------------------------------------------------------


def _write(name: str, outcome: Outcome, results: Results, folder: Path, scale: Scale, lacking: Sequence[Job]) -> None:
    """Write the files of an experiment: its tables as CSV and Markdown, figures, verdicts, the rows, and its page."""
    for each, table in outcome.tables.items():
        table.frame.to_csv(folder / f"{each}.csv", index=False)
        (folder / f"{each}.md").write_text(table.markdown() + "\n", encoding="utf-8")
    for each, figure in outcome.figures.items():
        figure.savefig(folder / f"{each}.png", dpi=130)
    verdicts = pd.DataFrame(outcome.verdicts, columns=Verdict._fields)
    verdicts.to_csv(folder / f"{name}-verdicts.csv", index=False)
    results.rows.to_csv(folder / f"{name}-seeds.csv", index=False)
    spent = results.rows.groupby(["data", "method", "model", "seed"])["cpu_seconds"].first()
    parts = [
        f"## {EXPERIMENTS[name].title}",
        f"`python examples/paper/reproduce.py {name}{' --quick' if scale is QUICK else ''}`: {len(spent)} cells, "
        f"{spent.sum() / 60:.1f} minutes of processor time, those that other experiments share included.",
        *(table.markdown() for table in outcome.tables.values()),
        *outcome.notes,
        *([f"Left out is what failed: {'; '.join(map(str, lacking))}"] if lacking else []),
        *(f"![{each}]({each}.png)" for each in outcome.figures),
        "**The paper's claims**",
        markdown(verdicts.rename(columns={"source": "label", "data": "on"})),
        _assumptions(results),
    ]
    (folder / f"{name}-page.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _assumptions(results: Results) -> str:
    """Return what the numbers of an experiment assume."""
    rows = results.rows[results.rows["n_test"].notna()]
    problems = [problem for name, problem in PROBLEMS.items() if name in set(rows["data"])]
    lines, assumptions = ["These numbers depend on:", ""], {}
    for problem in problems:
        own = rows[rows["data"] == problem.name]
        drawn = "rows drawn" if problem.scenario else "splits"
        last, n = own["seed"].max(), int(own["n_test"].max())
        lines.append(f"- {problem.title}: {drawn} with seeds 0 to {last}, {n:,} test rows each.")
        assumptions |= dict.fromkeys(pf.identify(problem.unfair).assumptions)
        if problem.bounded:
            bounds = pf.MilesBounds(problem.unfair, literal=True).assumptions[1:]
            assumptions |= dict.fromkeys(f"Of the bounds: {each}" for each in bounds)
    return "\n".join([*lines, *(f"- {each}" for each in assumptions)])


def _write_report(folder: Path) -> None:
    """Write one page of all experiments whose pages are in a folder."""
    done = [name for name in EXPERIMENTS if (folder / f"{name}-page.md").exists()]
    counts = []
    for name in done:
        verdicts = pd.read_csv(folder / f"{name}-verdicts.csv")["verdict"]
        numbers = {each: int((verdicts == each).sum()) for each in (HOLDS, FAILS, UNTESTED)}
        counts.append({"experiment": EXPERIMENTS[name].title, **numbers})
    pages = [(folder / f"{name}-page.md").read_text(encoding="utf-8") for name in done]
    parts = ["**Claims of the paper, counted**\n", markdown(pd.DataFrame(counts)) + "\n", *pages]
    (folder / "report.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
