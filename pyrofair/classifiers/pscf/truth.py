"""PSCF's predictions against those of the true structural equation model, made in the same way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyrofair._random import isolated, seed_from
from pyrofair._validation import require_seed, require_units
from pyrofair.classifiers.pscf.replay import Plan, fair_world, outcome_probability
from pyrofair.effects import Estimate
from pyrofair.exceptions import GraphError
from pyrofair.programs.couplings import Coupling, Noise
from pyrofair.programs.provenance import Program
from pyrofair.programs.structural_equations import Equations, read_equations, sensitive_levels
from pyrofair.programs.worlds import World, factual, require_shared_first
from pyrofair.sources.truth import DecisionRule, Truth, summarise_effects

__all__ = ["PSCFTruth", "measure_approximation"]

COUPLING: Coupling = "gumbel"


@dataclass(frozen=True, kw_only=True)
class PSCFTruth(Truth):
    """PSCF's predictions beside those of the true structural equation model, for the same units.

    The paper measures PSCF by the error of its learned model. Unit i, drawn from the true model with its own A, gets
    two decisions, whose difference is the effect t of :class:`pyrofair.sources.Truth`:

    - ``yhat_i``, that of :meth:`PSCF.predict`: the nodes on unfair paths redrawn by the learned mechanisms;
    - ``y_i``, 1 where the mean over the samples exceeds 1/2 by the true equations, the unit's other columns held: the
      noise of the redrawn nodes is drawn anew for each sample (``latents="prior"``) or the unit's own (else), that of
      the outcome is averaged over. Latent causes of the outcome keep the unit's values.

    The noise of both is independent, so that even the true distributions have a PIU above 0 with few samples from the
    prior. Errors are those of drawing units. ``SEM.truth(pscf)`` measures another quantity: the difference of PSCF, as
    a function of a unit's row, between two worlds; with ``latents="prior"`` it is exactly 0 where no fair path carries
    A on to what is redrawn.

    Attributes
    ----------
    accuracy, true_accuracy : Estimate
        The share of these units whose outcome equals ``yhat_i``, and ``y_i``.
    latents, samples
        The settings.

    References
    ----------
    Chikahara et al. (2021), appendix G.2, "Unfair effects of PSCF".
    """

    accuracy: Estimate
    true_accuracy: Estimate
    latents: str
    samples: int

    def __str__(self) -> str:
        return (
            f"PSCF beside the true model (latents: {self.latents}; {self.samples} samples): {super().__str__()}\n"
            f"accuracy            {self.accuracy}, of the true model's {self.true_accuracy}"
        )


def measure_approximation(model: Any, program: Program, *, n: int, random_state: int | None) -> PSCFTruth:
    """Draw n units from the true model, and decide on each by PSCF, fitted, and by the true equations.

    A GraphError refuses a program that does not fit the graph, or whose outcome is not drawn from a Bernoulli
    distribution; a NotIdentifiedError, with latents from the prior, other nodes that read the redrawn nodes' noise.
    """
    require_units("n", n)
    require_seed(random_state)
    replay: Plan = model.plan_
    graph, rule = replay.unfair.graph, DecisionRule("threshold", 0.5, "shared")
    with isolated(seed_from(random_state)):
        true = read_equations(program, replay.unfair)
        outcome, units, scores = _simulate(true, replay, int(n), model.latents, model.draws_)
    y = (scores.double().mean(0) > rule.threshold).double().numpy()
    yhat = (model.predict(units) == graph.positive).astype(np.float64)
    return PSCFTruth(
        **summarise_effects(yhat - y, np.abs(yhat - y), units[graph.input_columns]),
        **asdict(rule),
        coupling=COUPLING,
        coupled=true.coupled(site for site in true.sites if true.node_of[site] in replay.redrawn),
        accuracy=Estimate.of(yhat == outcome),
        true_accuracy=Estimate.of(y == outcome),
        latents=model.latents,
        samples=model.draws_,
    )


def _simulate(
    equations: Equations, replay: Plan, n: int, latents: str, samples: int
) -> tuple[NDArray[np.float64], pd.DataFrame, Tensor]:
    """Return units' outcomes, shape (n,), their columns, and the true fair scores, shape (samples, n)."""
    graph = replay.unfair.graph
    redrawn = [site for site in equations.sites if equations.node_of[site] in replay.redrawn]
    kept = [site for site in equations.sites if equations.node_of[site] not in (*replay.redrawn, graph.outcome)]
    noise = Noise(n, COUPLING)
    actual = {site: value.expand(n) for site, value in factual(equations, noise).items()}
    levels = sensitive_levels(graph)
    own = (actual[equations.sensitive] == levels[1]).long()
    target = next((site for site, node in equations.node_of.items() if node == graph.outcome), None)
    if target is None:
        raise GraphError(
            f"The program has no site for the outcome {graph.outcome!r}; its true distribution is needed here."
        )
    drawn: World = noise.values  # noqa: PD011 - no table
    parameters = {name: drawn[name] for name in equations.info.parameters if name in drawn}
    held = {site: actual[site] for site in kept}
    if latents == "prior":
        require_shared_first(equations, [site for site in kept if equations.node_of[site] not in graph.latent])
    read = torch.full_like(own, int(replay.baseline)) if graph.outcome in replay.switched else own
    scores = []
    for _ in range(samples if latents == "prior" else 1):  # all samples of a unit's own noise are the same
        fresh = Noise(n, COUPLING, dict(parameters)) if latents == "prior" else noise
        zero, one = (fair_world(equations, replay, fresh, redrawn, held, group) for group in (0, 1))
        fair = {site: torch.where(own == 0, zero[site], one[site]) for site in redrawn}
        sensitive = torch.tensor(levels, dtype=actual[equations.sensitive].dtype)[read]
        scores.append(outcome_probability(equations, noise, target, held | fair | {equations.sensitive: sensitive}))
    label = {0: graph.baseline, 1: graph.contrast}
    columns = {
        column: np.array([label[k] for k in (0, 1)], dtype=object)[own.numpy()]
        if column == graph.sensitive_column
        else actual[equations.site_of(column)].numpy()
        for column in graph.columns_of(node for node in graph.observed if node != graph.outcome)
    }
    units = pd.DataFrame(columns).infer_objects()
    return actual[target].double().numpy(), units, torch.stack(scores).expand(samples, n)
