"""Coverage of the bootstrap intervals of sharp bounds: how often they hold both ends of the bounds of the population.

Run ``python tests/benchmarks/sharp_bounds_coverage.py DESIGN N DATASETS REPLICATES``; designs: witness, instrument,
joined, kinks, hidden. Printed are the shares of tables whose interval holds both population ends, and their mean excess
length.
"""

from __future__ import annotations

import itertools
import sys
import warnings

import numpy as np
import pandas as pd

import pyrofair as pf


def witness() -> tuple[pf.UnfairPaths, pd.DataFrame, np.ndarray]:
    """A -> R -> M, a latent cause of R and Y, and the unfair paths A -> Y and A -> R -> Y; R is a recanting witness."""
    graph = pf.CausalGraph("A -> R; {A R} -> M; {A R M H} -> Y; H -> R", sensitive="A", outcome="Y", latent=["H"])
    r = {0: 0.41, 1: 0.67}
    m = {(0, 0): 0.2, (0, 1): 0.6, (1, 0): 0.45, (1, 1): 0.8}
    y = dict(
        zip(
            itertools.product((0, 1), repeat=3),
            [
                0.3128661017,
                0.4614050847,
                0.5589512195,
                0.7014048780,
                0.4879454545,
                0.5577454545,
                0.6998567164,
                0.7535776119,
            ],
            strict=True,
        )
    )
    rows = [*itertools.product((0, 1), repeat=4)]
    weight = [0.5 * abs(1 - i - r[a]) * abs(1 - j - m[a, i]) * abs(1 - k - y[a, i, j]) for a, i, j, k in rows]
    return graph.unfair("A -> Y", "A -> R -> Y"), pd.DataFrame(rows, columns=list("ARMY")), np.array(weight)


def instrument() -> tuple[pf.UnfairPaths, pd.DataFrame, np.ndarray]:
    """An instrument Z of A, and a latent cause of A and Y."""
    graph = pf.CausalGraph("Z -> A; {A H} -> Y; H -> A", sensitive="A", outcome="Y", latent=["H"])
    rows = [*itertools.product((0, 1), repeat=3)]
    a, y = [0.3, 0.7], {(0, 0): 0.3, (0, 1): 0.45, (1, 0): 0.6, (1, 1): 0.5}
    weight = [0.5 * abs(1 - i - a[z]) * abs(1 - k - y[i, z]) for z, i, k in rows]
    return graph.unfair("A -> Y"), pd.DataFrame(rows, columns=list("ZAY")), np.array(weight)


def joined() -> tuple[pf.UnfairPaths, pd.DataFrame, np.ndarray]:
    """Without latent nodes, a fair mediator M: PIU is bounded alone, and its lower end is at a kink (no effect)."""
    graph = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    rows = [*itertools.product((0, 1), repeat=3)]
    m, y = [0.3, 0.6], {(0, 0): 0.4, (0, 1): 0.6, (1, 0): 0.4, (1, 1): 0.75}
    weight = [0.5 * abs(1 - i - m[a]) * abs(1 - k - y[a, i]) for a, i, k in rows]
    return graph.unfair("A -> Y"), pd.DataFrame(rows, columns=list("AMY")), np.array(weight)


def kinks() -> tuple[pf.UnfairPaths, pd.DataFrame, np.ndarray]:
    """Ten levels of a covariate, and no effect in any of them: the lower bound on PIU is 0, at ten kinks."""
    graph = pf.CausalGraph("Q -> A; {A Q} -> Y", sensitive="A", outcome="Y")
    rows = [*itertools.product(range(10), (0, 1), (0, 1))]
    weight = [0.05 * abs(1 - k - (0.2 + 0.06 * q)) for q, a, k in rows]
    return graph.unfair("A -> Y"), pd.DataFrame(rows, columns=list("QAY")), np.array(weight)


def hidden() -> tuple[pf.UnfairPaths, pd.DataFrame, np.ndarray]:
    """A latent cause of A and M: the factor of their district is not identified in a world, and is left free."""
    graph = pf.CausalGraph("A -> M -> Y; A -> Y; H -> {A M}", sensitive="A", outcome="Y", latent=["H"])
    rows = [*itertools.product((0, 1), repeat=3)]
    weight = [
        sum(0.5 * abs(1 - a - (0.3 + 0.4 * h)) * abs(1 - m - (0.2 + 0.3 * a + 0.4 * h)) for h in (0, 1))
        * abs(1 - y - (0.1 + 0.2 * a + 0.4 * m))
        for a, m, y in rows
    ]
    return graph.unfair("A -> M -> Y"), pd.DataFrame(rows, columns=list("AMY")), np.array(weight)


DESIGNS = {each.__name__: each for each in (witness, instrument, joined, kinks, hidden)}


def main(design: str, n: int, datasets: int, replicates: int) -> None:
    """Print the coverage of intervals at 95 % for each quantity."""
    unfair, table, weight = DESIGNS[design]()
    weight = weight / weight.sum()
    truth = pf.sharp_bounds(unfair, table, sample_weight=weight)
    random = np.random.default_rng(0)
    names = [*truth.table.index]
    hits, length, moved = np.zeros(len(names)), np.zeros(len(names)), 0
    for _ in range(datasets):
        df = table.loc[np.repeat(table.index, random.multinomial(n, weight))].reset_index(drop=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = pf.sharp_bounds(unfair, df, n_boot=replicates, random_state=random)
        moved += found.slack > 0
        for i, name in enumerate(names):
            (start, end), (low, high) = found.interval(name), getattr(truth, name)
            hits[i] += start <= low + 1e-9 and high <= end + 1e-9
            length[i] += (end - start) - (high - low)
    for i, name in enumerate(names):
        print(design, n, name, getattr(truth, name), f"{hits[i] / datasets:.3f} {length[i] / datasets:.3f}")
    print(f"{moved} of {datasets} tables were moved to a distribution that the graph allows")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
