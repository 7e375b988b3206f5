"""The command line: ``python -m pyrofair compare adult``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from pyrofair._version import __version__
from pyrofair.reproduce import SETTINGS, compare

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; see ``python -m pyrofair --help``."""
    parser = argparse.ArgumentParser(prog="python -m pyrofair", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pyrofair {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    job = commands.add_parser("compare", help="compare the paper's methods on packaged data")
    job.add_argument("data", choices=sorted(SETTINGS))
    job.add_argument("--strength", type=float, default=1.0, help="strength of the penalties in the audit (default 1)")
    job.add_argument("--replicates", type=int, default=50, help="bootstrap replicates (default 50, at least 50)")
    job.add_argument("--seed", type=int, default=0, help="seeds the split, the training and the bootstrap (default 0)")
    job.add_argument("--output", type=Path, default=None, help="folder for the results (default compare-DATA)")
    options = parser.parse_args(arguments)
    if options.replicates < 50:
        parser.error("--replicates must be at least 50, or the intervals mean little")
    if not 0.0 <= options.strength < math.inf:
        parser.error("--strength must be a finite number that is not negative")
    if options.seed < 0:
        parser.error("--seed must not be negative")
    with _one_thread():
        result = compare(options.data, strength=options.strength, n_boot=options.replicates, seed=options.seed)
    print(result.text)
    for path in result.save(options.output or Path(f"compare-{options.data}")):
        print(f"wrote {path}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: the networks are small, and two threads wait for each other where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
