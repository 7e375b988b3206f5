"""What latent variables say of rows: their divergence from the prior, the sensitive attribute, columns' residuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyro
import torch
from numpy.typing import NDArray
from pyro import poutine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor

from pyrofair._random import isolated
from pyrofair.classifiers.pscf.replay import FittedProgram
from pyrofair.inference.amortised import Problem
from pyrofair.inference.evidence import repeat_each
from pyrofair.programs.couplings import Noise
from pyrofair.programs.provenance import run_program
from pyrofair.programs.worlds import Evaluation

__all__ = ["describe_latents", "latent_table"]

LEAST_NATS, MOST_AUC = 0.05, 0.6
"""Below so many nats a latent variable says nothing of a row; above such an AUC it tells the groups apart."""
MOST_ROWS, FOLDS, FEWEST = 5_000, 3, 6
DRAWS = 20
"""The values of a latent variable for each row by which the share that it explains is estimated."""


def latent_table(fitted: FittedProgram, problem: Problem | None, seed: int) -> pd.DataFrame:
    """Return a row for each latent variable that the guide draws, as estimated from at most 5,000 of the rows.

    Columns: latent; reads, the columns whose distributions read it; kl, the mean divergence of its posterior from its
    prior in nats; auc, by how much of it boosted trees tell the two groups apart in rows left out (.5: not at all);
    explained, the share of the columns' variance given their causes that is its own, the least of several columns'.
    """
    columns = ["latent", "reads", "kl", "auc", "explained"]
    if problem is None or fitted.guide is None or not fitted.drawn:
        return pd.DataFrame({name: pd.Series(dtype=object if i < 2 else float) for i, name in enumerate(columns)})
    equations = fitted.equations
    with isolated(seed), torch.no_grad(), pyro.validation_enabled(False):
        rows = torch.randperm(len(problem))[:MOST_ROWS].sort()[0]
        some = {site: each[rows] for site, each in problem.likelihood.rows.items()}
        group, weight = problem.group[rows], problem.weight[rows]
        features = {site: each for site, each in some.items() if site != fitted.outcome}
        guide = run_program(lambda _: fitted.guide(features), len(rows))  # type: ignore[misc]
        drawn = {site: guide[site]["value"] for site in fitted.drawn}
        program = run_program(equations.program, len(rows), poutine.condition(data=some | drawn))
        every = tuple(site for site in equations.node_of if site not in fitted.hidden)
        found = []
        for site in fitted.drawn:
            readers = [node for node in every if site in equations.info.causes(node, every)[1]]
            owners = [node for node in readers if node != fitted.outcome] or readers
            shares = [_explained(fitted, site, node, some, drawn) for node in owners if node in some]
            axis = equations.info.axes[site]
            points = drawn[site].movedim(axis, 0).reshape(len(rows), -1).double().numpy()
            found.append(
                {
                    "latent": site,
                    "reads": ", ".join(readers),
                    "kl": _divergence(guide[site]["fn"], program[site]["fn"], drawn[site], weight),
                    "auc": _auc(points, group.numpy(), weight.double().numpy()),
                    "explained": min((share for share in shares if np.isfinite(share)), default=np.nan),
                }
            )
    return pd.DataFrame(found, columns=columns)


def _divergence(posterior: Any, prior: Any, drawn: Tensor, weight: Tensor) -> float:
    """Return the mean divergence of the units' posteriors from the prior, in nats: exact, or by a draw of each."""
    try:
        each = torch.distributions.kl_divergence(posterior, prior)
    except NotImplementedError:
        many = posterior.sample((DRAWS,))
        each = (posterior.log_prob(many) - prior.log_prob(many)).mean(0)
    each = each.expand(each.shape if each.ndim else weight.shape).reshape(-1, len(weight)).sum(0)
    return float((weight * each).sum() / weight.sum())


def _auc(points: NDArray[np.float64], group: NDArray[Any], weight: NDArray[np.float64]) -> float:
    """Return how well boosted trees tell the groups apart by a latent variable, in rows left out."""
    if min(np.bincount(group.astype(int), minlength=2)) < FEWEST:
        return np.nan
    trees = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, random_state=0)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    given = {} if (weight == weight[0]).all() else {"sample_weight": weight}  # weighted numbers are slow to bin
    score = cross_val_predict(trees, points, group, cv=folds, method="predict_proba", params=given)
    return float(roc_auc_score(group, score[:, 1], sample_weight=weight))


def _explained(
    fitted: FittedProgram, site: str, node: str, values: Mapping[str, Tensor], latents: Mapping[str, Tensor]
) -> float:
    """Return the share of a node's variance, given its causes, that comes from a latent variable drawn from its prior.

    It is the covariance of two values that have the latent variable in common, and nothing else; of categories without
    an order, by how much more often than others they agree.
    """
    equations, n = fitted.equations, len(next(iter(values.values())))
    count = max(min(DRAWS, 40_000 // n), 2)
    held = {each: repeat_each(value, count) for each, value in values.items() if each != node}
    base = {name: repeat_each(value, count) for name, value in latents.items()}
    given = poutine.condition(data=held | {name: value for name, value in base.items() if name != site})
    drawn = run_program(fitted.only([]).program, n * count, given)[site]["value"]

    def at(latent: Tensor) -> Tensor:
        noise = Noise(n * count, "independent", {**base, site: latent})
        program = fitted.only([node]).program
        evaluation = Evaluation(program, equations.info, {*equations.node_of}, equations.endogenous, noise)
        return evaluation.node(node, held).double().reshape(n, count)

    same, again = at(drawn), at(drawn)
    other = same.roll(1, 1)  # another draw of the latent variable for the same row
    if node in equations.info.nominal:
        agree, chance = (same == again).double().mean(), (same == other).double().mean()
        return float((agree - chance) / (1.0 - chance)) if chance < 1.0 else np.nan
    total = float(((same - other) ** 2).mean() / 2.0)
    return float(1.0 - ((same - again) ** 2).mean() / 2.0 / total) if total > 0.0 else np.nan


def describe_latents(table: pd.DataFrame, group: NDArray[Any]) -> str:
    """Return the warning of latent variables that say nothing of a row, or tell the groups apart; may be empty."""
    texts = []
    if len(silent := table[table["kl"] < LEAST_NATS]):
        names = ", ".join(f"{row.latent} ({row.kl:.3f})" for row in silent.itertuples())
        texts.append(
            f"The latent variables {names} say nothing of a row: less than {LEAST_NATS} nats. Predictions by "
            "latents='abducted' do not depend on them; for 'posterior' set own_noise."
        )
    sizes = np.bincount(group.astype(int), minlength=2) * min(1.0, MOST_ROWS / len(group))
    error = np.sqrt((sizes.sum() + 1.0) / (12.0 * max(sizes.prod(), 1.0)))  # of the AUC where the groups are alike
    if len(known := table[(table["auc"] > MOST_AUC) & (table["auc"] - 0.5 > 2.0 * error)]):
        names = ", ".join(f"{row.latent} (AUC {row.auc:.2f})" for row in known.itertuples())
        texts.append(f"The latent variables {names} tell the two groups apart, which noise must not. Raise mmd.")
    return " ".join(texts)
