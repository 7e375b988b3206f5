"""What both worlds of a million units cost, in times of the same arithmetic by hand, and of ChiRho on the same query.

The hiring scenario with A -> Y and A -> D -> Y unfair: Q, D and M in the baseline, and D where it is switched. Ratios
of medians of CPU time over repetitions in turns, in one run on one thread. Last the memory of ``SEM.counterfactual``
for given units of it: the most above the start, and what the result holds. Run it as ``python
tests/benchmarks/counterfactual_worlds.py``; without ChiRho (``pip install chirho``) it leaves that out.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from pyrofair.programs.distributions import TruncatedNormal
from pyrofair.simulate import scenario
from pyrofair.sources.sem import SEM

try:
    from chirho.counterfactual.handlers import MultiWorldCounterfactual
    from chirho.indexed.ops import IndexSet, gather
    from chirho.interventional.handlers import do
except ImportError:
    MultiWorldCounterfactual = None

BAR = 1.3
NORMAL = torch.distributions.Normal(0.0, 1.0)


def truncated(u: Tensor, loc: float, scale: float, low: float = 0.1, high: float = 3.0) -> Tensor:
    """Quantiles of the truncated normal distribution, as one writes them down."""
    first, last = (NORMAL.cdf(torch.tensor((end - loc) / scale)) for end in (low, high))
    return loc + scale * NORMAL.icdf(first + (last - first) * u)


def by_hand(n: int) -> list[Tensor]:
    """A, Q, D and M of the baseline, A and D of the other world."""
    Q = (2 + 5 * torch.randn(n)).floor()
    D = (0.5 * Q * truncated(torch.rand(n), 2, 1)).floor()
    M = 0.4 * Q * truncated(torch.rand(n), 3, 2)
    return [torch.zeros(n), Q, D, M, torch.ones(n), D + 1]


def equations(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The scenario for ChiRho, which intervenes on drawn sites only."""
    with pyro.plate("units", n, dim=-1):
        A = pyro.sample("A", dist.Bernoulli(0.6))
        Q = torch.floor(pyro.sample("U_Q", dist.Normal(2.0, 5.0)))
        U_D = pyro.sample("U_D", TruncatedNormal(2.0, 1.0, 0.1, 3.0))
        U_M = pyro.sample("U_M", TruncatedNormal(3.0, 2.0, 0.1, 3.0))
        return Q, A + torch.floor(0.5 * Q * U_D), 3.0 * A + 0.4 * Q * U_M


@torch.no_grad()
def by_chirho(n: int) -> list[Tensor]:
    """The same six columns from ChiRho's worlds: as it is, A = 0 and A = 1."""
    zeros, ones = torch.zeros(n), torch.ones(n)
    with pyro.validation_enabled(False), MultiWorldCounterfactual(-2), do(actions={"A": (zeros, ones)}):
        Q, D, M = equations(n)
        baseline, switched = IndexSet(A={1}), IndexSet(A={2})
        found = [gather(each, baseline, event_dim=0) for each in (D, M)]
        return [zeros, Q, *found, ones, gather(D, switched, event_dim=0)]


def medians(ways: dict[str, Callable[[int], object]], n: int, repetitions: int) -> dict[str, float]:
    """Median time of each way, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way(n)  # warm up
    for _ in range(repetitions):
        for name, way in ways.items():
            start = time.process_time()
            way(n)
            times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def megabytes() -> float:
    """Return the most memory that the process has held so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(sem: SEM, given: pd.DataFrame) -> None:
    sem.counterfactual(given.head(20), random_state=0)
    before, start = megabytes(), time.process_time()
    found = sem.counterfactual(given, random_state=0)
    spent = time.process_time() - start
    parts = [*found.noise_values.values(), *(node for world in found.worlds for node in world.nodes.values())]
    held = sum(part.draws.nbytes for part in parts) / 2**20
    print(f"SEM.counterfactual of {len(given)} units: {spent:.1f} CPU s, at most {megabytes() - before:.0f} MB more,")
    print(f"of which the draws of its result hold {held:.0f} MB")


def main(n: int, repetitions: int, given: int) -> None:
    torch.set_num_threads(1)
    hiring = scenario("hiring")
    sem = SEM(hiring.program, hiring.unfair)
    ways: dict[str, Callable[[int], object]] = {
        "by hand": by_hand,
        "SEM.worlds": lambda n: sem.worlds(n=n, random_state=0),
    }
    median = medians(ways, n, repetitions)
    hand = median["by hand"]
    print(f"{n} units, one thread, median of {repetitions}: by hand {hand:.3f} CPU s")
    print(f"SEM.worlds takes {median['SEM.worlds'] / hand:.2f} x the time by hand (bar {BAR})")
    memory(sem, hiring.draw(given, random_state=0))
    if MultiWorldCounterfactual is None:
        print("ChiRho is not installed; its part is left out.")
        return
    median = medians({"SEM.worlds": ways["SEM.worlds"], "ChiRho": by_chirho}, n, repetitions)
    print(f"SEM.worlds takes {median['SEM.worlds'] / median['ChiRho']:.2f} x the time of ChiRho (bar: below 1)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--given", type=int, default=4000)
    settings = parser.parse_args()
    main(settings.units, settings.repetitions, settings.given)
