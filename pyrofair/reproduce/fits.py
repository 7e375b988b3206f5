"""Classifiers of one method, data set and seed, trained and measured: the cells that all experiments share."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from pyrofair._random import one_thread
from pyrofair.audits import audit, penalty_path
from pyrofair.classifiers import PSCF, PenalizedClassifier, fit_many, remove
from pyrofair.effects import Bounding, MarginalBounds, disagreement, effect_gap, interval_disagreement
from pyrofair.effects.scoring import DECISIONS
from pyrofair.reproduce.kept import KeptModel
from pyrofair.reproduce.problems import PROBLEMS, Sizes, Split, bayes_rates, paper_source, split
from pyrofair.robustness import MilesBounds
from pyrofair.sources import IPW, SEM, GComputation

__all__ = [
    "DELTA",
    "METHODS",
    "MODES",
    "PAPER_MODE",
    "RATES",
    "Job",
    "Method",
    "Model",
    "choose_strength",
    "modes",
    "run",
]

MODES = {
    "PSCF": "replays each unit with the noise that its row implies on the fair edges (scores are means over 100 draws "
    "of it)",
    "PSCF (one draw)": "decides by one draw of that noise instead of the mean, as predict does by default",
    "PSCF (latents from the posterior)": "infers the latent variables alone and draws all other noise anew (Chiappa)",
    "PSCF (latents from the prior)": "draws all noise anew, 5 times, so that of the columns on unfair paths nothing is "
    "left (the paper)",
}
"""The modes of one fitted PSCF, and what each does."""
PAPER_MODE = "PSCF (latents from the prior)"
RATES = "rates"
"""The job that computes the accuracies of the majority class and of the best classifier instead of training one."""
COUNTED = ("accuracy", "positive_rate", "majority_rate")
WEIGHTED = ("p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper")
PSCF_UNITS = 5000
DELTA = 0.05
"""The levels of the choice of a strength: the penalty at most this, and FIO's effect at most half, as in figure 2."""
Model = Literal["network", "logistic"]


@dataclass(frozen=True)
class Method:
    """A method: the columns that it reads or, if it pays a penalty, its source and the penalty.

    ``beyond`` marks those that the paper does not have; ``by_unit`` those whose penalty is a mean over units: it has no
    two basins, so that one start and fewer epochs serve.
    """

    reads: Callable[[Any], list[str]] | None = None
    source: Callable[[Split], Any] | None = None
    penalty: Callable[..., Any] = disagreement
    beyond: bool = False
    by_unit: bool = False


def _weights(**settings: Any) -> Callable[[Split], IPW]:
    """Return a maker of weights that accept missing overlap, which the scenarios have."""
    return lambda data: IPW(data.unfair, max_unsupported=1.0, **settings)


def _paper(data: Split) -> IPW:
    return paper_source(data.problem, data.unfair)


def _given_shared(data: Split) -> GComputation:
    parameters: Any = "linear" if data.sizes.quick else "network"
    return GComputation(data.unfair, draws=2 if data.sizes.quick else 10, parameters=parameters, progress=False)


def _true_model(data: Split) -> SEM:
    assert data.model is not None, "the Oracle knows the model"
    return SEM(data.model.program, data.unfair)


def _as_printed(data: Split) -> MilesBounds:
    return MilesBounds(data.unfair, literal=True)


def _corrected(data: Split) -> MilesBounds:
    assert data.bounded is not None, "the closed form is for some problems alone"
    return MilesBounds(data.bounded)


BOUNDED = {"Proposed (extended)": _as_printed, "Proposed (extended), corrected": _corrected}
"""The two methods with bounds on marginals, and the source of each."""
METHODS = {
    "Unconstrained": Method(reads=lambda unfair: list(unfair.graph.input_columns)),
    "Remove (touched)": Method(reads=lambda unfair: remove(unfair, "touched")),
    "Remove (descendants)": Method(reads=lambda unfair: remove(unfair, "descendants")),
    "Proposed": Method(source=_paper),
    "FIO": Method(source=_paper, penalty=effect_gap),
    "PSCF": Method(),
    "Oracle": Method(source=_true_model, by_unit=True),
    "Proposed (extended)": Method(source=_as_printed, penalty=interval_disagreement),
    "Proposed (extended), corrected": Method(source=_corrected, penalty=interval_disagreement, beyond=True),
    "Proposed, free group": Method(source=_weights(arm="auto"), beyond=True),
    "Proposed, both groups": Method(source=_weights(arm="pooled"), beyond=True),
    "Proposed, boosted propensities": Method(source=_weights(arm="auto", propensity="boosted"), beyond=True),
    "Proposed given S": Method(source=_given_shared, beyond=True, by_unit=True),
    "FIO given S": Method(source=_given_shared, penalty=effect_gap, beyond=True, by_unit=True),
}
"""All methods by name."""


@dataclass(frozen=True)
class Job:
    """What a cell is made of: a data set, a method, a classifier (``"network"`` or ``"logistic"``) and a seed.

    ``strengths`` are those of a penalty.
    """

    data: str
    method: str
    seed: int
    model: Model = "network"
    strengths: tuple[float, ...] = ()

    @property
    def key(self) -> dict[str, Any]:
        """What identifies the cell."""
        return {
            "data": self.data,
            "method": self.method,
            "model": self.model,
            "seed": self.seed,
            "strengths": list(self.strengths),
        }

    def __str__(self) -> str:
        return f"{self.data}, {self.model}, {self.method}, seed {self.seed}"


def run(job: Job, sizes: Sizes) -> pd.DataFrame:
    """Return a row for each classifier of a job (a strength, or a mode of PSCF) and decisions."""
    started = time.process_time()
    with warnings.catch_warnings(), one_thread(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # the tables show what they are about: overlap, groups, convergence
        found = _rates(job, sizes) if job.method == RATES else _measured(job, sizes)
    labels = {name: value for name, value in job.key.items() if name != "strengths"}
    return found.assign(**labels, cpu_seconds=time.process_time() - started)


def _rates(job: Job, sizes: Sizes) -> pd.DataFrame:
    majority, best = bayes_rates(job.data, 50 * sizes.units)
    return pd.DataFrame({"classifier": [RATES], "majority_rate": [majority], "bayes_rate": [best]})


def _measured(job: Job, sizes: Sizes) -> pd.DataFrame:
    data = split(job.data, job.seed, sizes)
    method = METHODS[job.method]
    if method.source is not None:
        fitted = _path(job, data, method, sizes)
    elif method.reads is not None:
        model = PenalizedClassifier(job.model, columns=method.reads(data.unfair), **_training(job, sizes))
        fitted = {(job.method, np.nan): model.fit(data.X, data.y)}
    else:
        short: dict[str, Any] = {"epochs": sizes.epochs, "samples": 2} if sizes.quick else {}
        settings = {**data.problem.pscf, **short}
        pscf = PSCF(data.unfair, progress=False, random_state=job.seed, **settings).fit(data.X, data.y)
        fitted = {(mode, np.nan): each for mode, each in modes(pscf).items()}
    return _measure(fitted, job.method, data, job.seed, sizes)


def _training(job: Job, sizes: Sizes) -> dict[str, Any]:
    own = dict(PROBLEMS[job.data].training)
    if METHODS[job.method].by_unit:
        own = {"starts": 1, "epochs": 60, **own}
    if sizes.epochs is not None:
        own["epochs"] = sizes.epochs
    return {"dtype": "float32", "progress": False, "random_state": job.seed, **own}


def _path(job: Job, data: Split, method: Method, sizes: Sizes) -> dict[tuple[str, float], Any]:
    """Return the classifiers of a penalty by method and strength, each started from the next stronger one."""
    assert method.source is not None, "a penalty has a source"
    start = PenalizedClassifier(job.model, source=method.source(data), penalty=method.penalty, **_training(job, sizes))
    if isinstance(start.source, Bounding):  # no path judges by bounds
        fits = fit_many([clone(start).set_params(strength=each) for each in job.strengths], data.X, data.y)
        return {(job.method, strength): model for strength, model in zip(job.strengths, fits, strict=True)}
    test = (data.test.drop(columns=data.outcome), data.test[data.outcome])
    path = penalty_path(
        start, data.X, data.y, strengths=job.strengths, seeds=[job.seed], test=test, judge=data.paper, n_boot=0,
        progress=False,
    )  # fmt: skip
    return {(job.method, strength): model for (strength, _), model in path.models.items()}


def _measure(
    fitted: Mapping[tuple[str, float], Any], method: str, data: Split, seed: int, sizes: Sizes
) -> pd.DataFrame:
    """Measure classifiers on test rows and training rows by the paper's weights, and by what is better known."""
    names = {f"{method} {strength}": (method, strength) for method, strength in fitted}
    fits = dict(zip(names, fitted.values(), strict=True))
    models = {name: KeptModel.remembering(name, model) for name, model in fits.items()}
    found = _audited(models, data.paper, data.test, seed)[[*COUNTED, *WEIGHTED]]
    if data.bounded is not None and method != "PSCF":
        found = found.join(_interval_penalties(fits, data))
    if any(np.isfinite(strength) for _, strength in fitted):
        train = _audited(models, data.paper, data.X.assign(**{data.outcome: data.y}), seed)
        chosen = ["accuracy", "mean_unfair_effect", "piu_paper_bound"]
        found = found.join(train[chosen].add_prefix("train_"))
        decided: Any = found.xs("threshold", level="decisions")
        best = choose_strength(method, decided.set_axis([names[name][1] for name in decided.index]))
        found["chosen"] = [names[name][1] == best for name, _ in found.index]
    if data.one_step is not None:
        traced = data.problem.judged_throughout or "chosen" not in found
        wanted = {name: model for name, model in models.items() if traced or found["chosen"].loc[name].any()}
        judged = _audited(wanted, data.one_step, data.test, seed, ends=True)
        found = found.join(judged.drop(columns=list(COUNTED)).add_prefix("one_step_"))
    if data.truth is not None:
        truths = {name: _truth(model, data, seed, sizes) for name, model in fits.items()}
        found = found.join(pd.DataFrame.from_dict(truths, orient="index").rename_axis("model"), on="model")
    found = found.reset_index()
    labels = pd.DataFrame([names[name] for name in found["model"]], columns=["classifier", "strength"])
    return labels.join(found.drop(columns="model")).assign(n_test=len(data.test))


def choose_strength(method: str, decided: pd.DataFrame) -> float:
    """Return the strength of a method that stands for it in tables, from its measures on the training rows by strength.

    It is the most accurate among those whose penalty by the paper's weights is small enough (:data:`DELTA`), or else
    the strongest. Methods given S have strength 1, for their penalty is not the paper's; those with bounds on marginals
    are judged by their own.
    """
    if method.endswith("given S") and 1.0 in decided.index:
        return 1.0
    if method in BOUNDED:
        allowed = decided[decided[INTERVAL_PENALTY[method]] <= DELTA]
    elif method == "FIO":
        allowed = decided[decided["train_mean_unfair_effect"].abs() <= DELTA / 2.0]
    else:
        allowed = decided[decided["train_piu_paper_bound"] <= 2.0 * DELTA]
    best: Any = decided.index.max() if allowed.empty else allowed["train_accuracy"].idxmax()
    return float(best)


def _audited(models: Mapping[str, Any], source: Any, rows: pd.DataFrame, seed: int, ends: bool = False) -> pd.DataFrame:
    """Return the quantities of an audit by model and decisions, with the ends of the effect's interval if asked for."""
    table = audit(models, source, rows, n_boot=0, progress=False, random_state=seed).table
    wide = table.set_index(["model", "decisions", "quantity"])["estimate"].unstack()  # noqa: PD010 - as it is
    alike = ["accuracy", "majority_rate"]  # which the table has once for a model, with thresholded decisions
    wide[alike] = wide[alike].groupby(level="model").transform("max")
    if ends:
        effect = table[table["quantity"] == "mean_unfair_effect"].set_index(["model", "decisions"])
        wide = wide.join(effect[["lower", "upper"]].add_prefix("effect_"))
    return wide.loc[[(name, decisions) for name in models for decisions in ("threshold", "score")]]


INTERVAL_PENALTY = {
    "Proposed (extended)": "train_interval_penalty",
    "Proposed (extended), corrected": "train_corrected_penalty",
}
"""The penalties of :data:`BOUNDED`, measured on training rows."""


def _interval_penalties(fits: Mapping[str, Any], data: Split) -> pd.DataFrame:
    """Return both interval penalties of classifiers on training rows, and the ends of P(Ypi = 1), by decisions."""
    sources = {method: make(data).fit(data.X) for method, make in BOUNDED.items()}
    rows = {}
    for name, model in fits.items():
        for decisions in DECISIONS:
            row = {}
            for method, source in sources.items():
                both = source.intervals(model, decisions=decisions)
                bounds = (MarginalBounds(*(torch.tensor(end, dtype=torch.float64) for end in each)) for each in both)
                row[INTERVAL_PENALTY[method]] = float(interval_disagreement(*bounds))
                row["train_ypi_lower"], row["train_ypi_upper"] = both[1]
            rows[name, decisions] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["model", "decisions"])


def _truth(model: Any, data: Split, seed: int, sizes: Sizes) -> dict[str, float]:
    """Return the true effects of thresholded decisions; those of PSCF are the paper's, against the true model.

    With a latent cause of the outcome no true fair score is a function of what both worlds share; there the effects of
    PSCF are those of its decisions, as of any classifier.
    """
    assert data.truth is not None, "a scenario has a truth"
    if isinstance(model, PSCF) and not data.unfair.graph.latent:
        found: Any = model.truth(data.model, n=min(sizes.units, PSCF_UNITS), random_state=seed)
        effect = np.nan
    else:
        units = min(sizes.units, PSCF_UNITS) if isinstance(model, PSCF) else sizes.units
        found = data.truth.truth(model, n=units, random_state=seed)
        effect = found.mean_unfair_effect.value
    wider = {}
    if data.bounded is not None and data.model is not None and not isinstance(model, PSCF) and not sizes.quick:
        bounded = SEM(data.model.program, data.bounded).truth(model, n=sizes.units, random_state=seed)
        wider = {"true_piu_bounded": bounded.piu.value}
    return wider | {
        "true_effect": effect,
        "true_sd": found.conditional_sd.value,
        "true_condmean": found.paper_condmean,
        "true_piu": found.piu.value,
    }


def modes(fitted: PSCF) -> dict[str, PSCF]:
    """Return a fitted PSCF in each of its :data:`MODES`, which differ in predictions alone."""
    posterior, prior = copy.copy(fitted), copy.copy(fitted)
    posterior.latents, prior.latents = "posterior", "prior"
    return dict(zip(MODES, (fitted, fitted.one_draw(), posterior, prior), strict=True))
