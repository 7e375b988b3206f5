"""Every part of a group difference against enumeration, its laws, its coverage, and what is refused."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

import pyrofair as pf
from pyrofair.audits.decompose import Decomposition, decompose
from pyrofair.audits.parts import union_of
from pyrofair.graph.first_edges import Switched, beginning_with, heads_of
from tests.test_oracles import Sem, random_graph, random_model

COPIES = 40


def population(sem: Sem) -> tuple[pd.DataFrame, np.ndarray]:
    """The cells of a model, each as so many rows that its weights count as supported."""
    cells, probability = sem.table
    at = np.repeat(np.arange(len(cells)), COPIES)
    return cells.iloc[at].reset_index(drop=True), probability[at]


class Classifier:
    """The scores of a model with finite noise."""

    def __init__(self, sem: Sem) -> None:
        self.sem = sem

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        p = self.sem.scores_of(X)
        return np.column_stack([1.0 - p, p])


def mean_in(sem: Sem, switched: Switched, target: str) -> float:
    return sem.truth(beginning_with(switched, sem.graph).regimes[1], target)


def check(sem: Sem, target: str) -> Decomposition:
    """Every part of a population against the means in all worlds by enumeration of the noise."""
    graph = sem.graph
    table, weight = population(sem)
    y = table[graph.columns["Y"][0]].to_numpy(float)
    models = {"m": Classifier(sem)} if target == "prediction" else {"m": y}
    saturated = {"propensity": "saturated", "regression": "saturated"}
    found = decompose(models, graph, table, sample_weight=weight, outcome=False, **saturated)
    own = found.table.query("decisions == 'score'").set_index("part")
    score = sem.scores_of(table) if target == "prediction" else y
    a, whole = table["A"].to_numpy(), Switched(heads_of(graph.directed_paths("A", "Y"), graph))
    m0, m1 = (np.average(score[a == g], weights=weight[a == g]) for g in (0, 1))
    mean = {each: mean_in(sem, each, target) for each in found.plan.worlds}
    total = mean[whole] - mean[Switched()]
    assert own["estimate"][["gap", "total effect", "confounding"]].tolist() == pytest.approx(
        [m1 - m0, total, m1 - m0 - total], abs=1e-10
    )
    blocks = found.plan.blocks
    for block, name in zip(
        blocks, [each for each in own.index if each not in ("gap", "total effect", "confounding")], strict=True
    ):
        orders = [order[: order.index(block)] for order in permutations(blocks)]
        added = [mean[union_of(before) | {*block}] - mean[union_of(before)] for before in orders]
        assert own["estimate"][name] == pytest.approx(np.mean(added), abs=1e-10)
        assert own[["smallest", "largest"]].loc[name].tolist() == pytest.approx([min(added), max(added)], abs=1e-10)
    parts = own.drop(index=["gap", "total effect"])["estimate"]
    assert parts.sum() == pytest.approx(own["estimate"]["gap"], abs=1e-12)
    return found


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("target", ["prediction", "outcome"])
@pytest.mark.some(12)
def test_parts_are_those_of_all_worlds(seed: int, target: str) -> None:
    rng = np.random.default_rng(7000 + seed)
    latent = {"causes": int(rng.integers(0, 3)), "mediators": int(rng.integers(0, 2))} if seed % 2 else {}
    sem = random_model(random_graph(rng, **latent), rng)
    try:
        check(sem, target)
    except pf.NotIdentifiedError:
        pytest.skip("the total effect is not identified")
