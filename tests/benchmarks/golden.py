"""The golden run: the numbers of every public entry on small data, kept so that two versions can be compared.

``python tests/benchmarks/golden.py run DIR`` calls each entry and keeps what it returns, a file each; ``compare OLD
NEW`` tells which tables are equal, and by how much the others differ. An entry that raises is a result like any other,
so that the same script runs on versions whose names have moved. ``--only REGEX`` chooses entries, ``--tiny`` takes few
rows.
To run it on a checkout that is not the installed one, set ``PYTHONPATH``; the script prints which one it uses.
"""

from __future__ import annotations

import argparse
import dataclasses
import pickle
import re
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import torch
from golden_entries import ENTRIES
from scipy import sparse

import pyrofair as pf

CLOSE = 1e-12
"""Numbers are called close within this difference, absolute or relative."""
KEPT = (
    *("table", "groups", "draws", "influence", "stages", "thresholds", "subgroups", "worst", "union", "audits"),
    *("failures", "bounds", "intervals", "flips_at", "least", "assumptions", "context", "warnings"),
    *("rows", "weight", "unit", "origin", "cell", "effective_size"),
)
"""Attributes of results that are kept wherever they exist, beside the fields of data classes."""
NUMBERS = (bool, int, float, np.number, np.bool_)
OPAQUE = (pf.CausalGraph, pf.UnfairPaths, torch.nn.Module)

# --- run -------------------------------------------------------------------------------------------------------------


def parts_of(value: Any) -> dict[str, Any]:
    """Return the named parts of a result, public fields and known attributes; nothing for what is no result."""
    if isinstance(value, OPAQUE):
        return {}
    names = [each.name for each in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    found = {}
    for name in dict.fromkeys([*names, *KEPT]):
        if not name.startswith("_") and hasattr(value, name) and not callable(getattr(value, name)):
            found[name] = getattr(value, name)
    return found


def flatten(name: str, value: Any, into: dict[str, Any]) -> None:
    """Add a value's numbers to the tables by name, as arrays of floats, and its text, under names with ``text:``."""
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    elif sparse.issparse(value):
        value = value.toarray()
    elif isinstance(value, pd.Series):
        value = value.to_frame("values")
    if value is None:
        return
    if isinstance(value, pd.DataFrame):
        if not isinstance(value.index, pd.RangeIndex):
            index = value.index.to_frame(index=False).add_prefix("index ")
            value = pd.concat([index, value.reset_index(drop=True)], axis=1)
        for column in value.columns:
            flatten(f"{name}[{column}]", list(value[column]), into)
        return
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        into[name] = value.astype(float)
    elif isinstance(value, NUMBERS):
        into[name] = np.array([float(value)])
    elif isinstance(value, (str, Exception)):
        into[name if name.startswith("text:") else f"text:{name}"] = [re.sub(r" at 0x\w+", "", str(value))]
    elif isinstance(value, Mapping):
        for key, part in value.items():
            flatten(join(name, key), part, into)
    elif isinstance(value, (list, tuple, np.ndarray, pd.Index)):
        parts = list(value)
        if all(each is None or isinstance(each, NUMBERS) for each in parts):
            into[name] = np.array([np.nan if each is None else float(each) for each in parts])
        elif all(each is None or isinstance(each, (str, *NUMBERS)) for each in parts):
            into[f"text:{name}"] = [each if isinstance(each, str) else "" for each in parts]
            if any(isinstance(each, NUMBERS) and not pd.isna(each) for each in parts):
                into[name] = np.array([float(each) if isinstance(each, NUMBERS) else np.nan for each in parts])
        else:
            for i, part in enumerate(parts):
                flatten(join(name, i), part, into)
    else:
        for key, part in parts_of(value).items():
            flatten(join(name, key), part, into)


def join(name: str, key: Any) -> str:
    if str(key).startswith("text:"):
        return f"text:{join(name, str(key)[5:])}"
    return f"{name}/{key}" if name and str(key) else f"{name}{key}"


def result(name: str) -> dict[str, Any]:
    """Return the tables of one entry, with its warnings, or the error that it raised."""
    np.random.seed(0)  # noqa: NPY002 - whatever reads the global generators
    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    tables: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            flatten("", ENTRIES[name](), tables)
        except Exception as error:
            tables = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    said = {str(each.message) for each in caught if issubclass(each.category, pf.PyrofairWarning)}
    if said and "error" not in tables:
        tables["text:warnings"] = sorted(said)
    return tables


def run(folder: Path, only: str) -> int:
    """Call the entries that ``only`` names, and write a file for each; return the number of those that raise."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    print(f"pyrofair is {pf.__file__}", flush=True)
    begin, tables, numbers, failed = time.process_time(), 0, 0, 0
    for name in [each for each in ENTRIES if re.search(only, each)]:
        started = time.perf_counter()
        found = result(name)
        (folder / f"{name.replace(' ', '_')}.pickle").write_bytes(pickle.dumps(found))
        if "error" in found:
            failed, told = failed + 1, found["error"].splitlines()[0][:150]
        else:
            arrays = [each for each in found.values() if isinstance(each, np.ndarray)]
            tables, numbers = tables + len(found), numbers + sum(map(np.size, arrays))
            told = f"{len(found)} tables, {sum(map(np.size, arrays))} numbers"
        print(f"{time.perf_counter() - started:6.1f} s  {name}: {told}", flush=True)
    spent = time.process_time() - begin
    print(f"{tables} tables, {numbers} numbers, {failed} entries that raise; {spent:.0f} CPU seconds without commands")
    return failed


# --- compare ---------------------------------------------------------------------------------------------------------


def difference(old: Any, new: Any) -> tuple[str, bool]:
    """Say how two tables differ, and whether they are close; an empty text means that they are equal."""
    if isinstance(old, list) or isinstance(new, list):
        if list(old) == list(new):
            return "", True
        pairs = [(a, b) for a, b in zip(old, new, strict=False) if a != b] or [(len(old), len(new))]
        return "text: " + in_short(*map(str, pairs[0])), True
    if old.shape != new.shape:
        return f"shapes differ: {old.shape} and {new.shape}", False
    if np.array_equal(old, new, equal_nan=True):
        return "", True
    if not np.array_equal(np.isfinite(old), np.isfinite(new)):
        return f"{np.sum(np.isfinite(old) != np.isfinite(new))} of {old.size} are finite in one only", False
    finite = np.isfinite(old)
    if not np.array_equal(old[~finite], new[~finite], equal_nan=True):
        return "infinities and missing values differ", False
    a, b = old[finite], new[finite]
    gap, largest = np.abs(a - b), np.maximum(np.abs(a), np.abs(b))
    relative = gap / np.where(largest > 0, largest, 1.0)
    told = f"largest difference {gap.max():.2g}, relative {relative.max():.2g}, in {np.sum(gap > 0)} of {old.size}"
    return told, bool((np.minimum(gap, relative) <= CLOSE).all())


def soft(table: str) -> bool:
    """Tell whether a table is text, or of the context of a report: its differences are told, and do not count."""
    return table.startswith("text:") or "context/" in table


def in_short(old: str, new: str, width: int = 90) -> str:
    """Return two texts from a little before their first difference on."""
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - 30)
    return f"{old[start : start + width]!r} -> {new[start : start + width]!r}"


def compare(old: Path, new: Path, only: str, most: int, texts: bool) -> int:
    """Print each entry and each table that differs; return the number of entries whose numbers are not close."""
    count: dict[str, int] = dict.fromkeys(["equal", "close", "text", "differ"], 0)
    names = {each.stem for folder in (old, new) for each in folder.glob("*.pickle")}
    for name in sorted(each for each in names if re.search(only, each)):
        given = [folder / f"{name}.pickle" for folder in (old, new)]
        if not all(each.exists() for each in given):
            count["differ"] += 1
            print(f"{name}: only in {old if given[0].exists() else new}")
            continue
        one, other = (pickle.loads(each.read_bytes()) for each in given)
        if "error" in one or "error" in other:
            said = [each.get("error", "no error") for each in (one, other)]
            kind = "equal" if said[0] == said[1] else "text" if "error" in one and "error" in other else "differ"
            count[kind] += 1
            print(f"{name}: raises {said[0]}" + f"\n    and now {said[1]}" * (kind != "equal"))
            continue
        lines: dict[str, list[str]] = {"close": [], "text": [], "differ": []}
        for table in [*one, *(each for each in other if each not in one)]:
            if table not in one or table not in other:
                lines["text" if soft(table) else "differ"].append(f"{table}: {'new' if table in other else 'missing'}")
                continue
            told, close = difference(one[table], other[table])
            if told:
                lines["text" if soft(table) else "close" if close else "differ"].append(f"{table}: {told}")
        worst = next((kind for kind in ("differ", "text", "close") if lines[kind]), "equal")
        count[worst] += 1
        numbers = sum(isinstance(each, np.ndarray) for each in one.values())
        summary = ", ".join(f"{len(each)} {kind}" for kind, each in lines.items() if each)
        print(f"{name}: {numbers} tables of numbers, {summary or 'all equal'}")
        for kind in ("differ", *["text"] * texts, "close"):
            for line in lines[kind][:most]:
                print(f"    {kind:6s} {line}")
            if len(lines[kind]) > most:
                print(f"    {kind:6s} and {len(lines[kind]) - most} more")
    print("entries: " + ", ".join(f"{number} {kind}" for kind, number in count.items()))
    return count["differ"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", choices=["run", "compare"])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="a regular expression: entries whose name it matches")
    parser.add_argument("--tiny", action="store_true", help="few rows; compare with a tiny run only")
    parser.add_argument("--most", type=int, default=12, help="lines for each entry and kind of difference")
    parser.add_argument("--texts", action="store_true", help="print differences of text, too")
    options = parser.parse_args(arguments)
    if len(options.folders) != 1 + (options.command == "compare"):
        parser.error("run takes one folder, compare takes two")
    if options.command == "run":
        return min(run(*options.folders, options.only), 1)
    return min(compare(*options.folders, options.only, options.most, options.texts), 1)


if __name__ == "__main__":
    sys.exit(main())
