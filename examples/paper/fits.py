"""Classifiers of one method, data set and seed, trained and measured: the cells that all experiments share."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from problems import PROBLEMS, Sizes, Split, bayes_rates, paper_source, split
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import pyrofair as pf

MODES = ("PSCF", "PSCF (one draw)", "PSCF (latents from the posterior)", "PSCF (latents from the prior)")
"""The modes of one fitted PSCF; the last is the paper's."""
PAPER_MODE = MODES[-1]
RATES = "rates"
"""The job that computes the accuracies of the majority class and of the best classifier instead of training one."""
COUNTED = ["accuracy", "positive_rate", "majority_rate"]
WEIGHTED = ["p_y0", "p_ypi", "mean_unfair_effect", "piu_paper_bound", "piu_lower", "piu_upper"]
PSCF_UNITS = 5000
DELTA = 0.05
"""The levels of the choice of a strength: the penalty at most this, and FIO's effect at most half, as in figure 2."""


# -- methods -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A method: the columns that it reads or, if it pays a penalty, its source and the penalty; neither is PSCF's.

    ``beyond`` marks those that the paper does not have; ``by_unit`` those whose penalty is a mean over units: it has no
    two basins, so that one start and fewer epochs serve.
    """

    reads: Callable[[pf.UnfairPaths], list[str]] | None = None
    source: Callable[[Split], Any] | None = None
    penalty: Callable[..., Any] = pf.disagreement
    beyond: bool = False
    by_unit: bool = False


def _paper(data: Split) -> pf.IPW:
    return paper_source(data.problem, data.unfair)


def _weights(**settings: Any) -> Callable[[Split], pf.IPW]:
    """Return a maker of weights that accept missing overlap, which the scenarios have."""
    return lambda data: pf.IPW(data.unfair, max_unsupported=1.0, **settings)


def _given_shared(data: Split) -> pf.GComputation:
    quick = data.sizes.quick
    draws, parameters = (2, "linear") if quick else (10, "network")
    return pf.GComputation(data.unfair, draws=draws, parameters=parameters, progress=False)


BOUNDED = {
    "Proposed (extended)": lambda data: pf.MilesBounds(data.unfair, literal=True),
    "Proposed (extended), corrected": lambda data: pf.MilesBounds(data.bounded),
}
"""The two methods with bounds on marginals, as printed and corrected, and the source of each."""
INTERVAL_PENALTY = dict(zip(BOUNDED, ("train_interval_penalty", "train_corrected_penalty"), strict=True))
"""Their penalties, measured on training rows."""
METHODS = {
    "Unconstrained": Method(reads=lambda unfair: list(unfair.graph.input_columns)),
    "Remove (touched)": Method(reads=lambda unfair: pf.remove(unfair, "touched")),
    "Remove (descendants)": Method(reads=lambda unfair: pf.remove(unfair, "descendants")),
    "Proposed": Method(source=_paper),
    "FIO": Method(source=_paper, penalty=pf.effect_gap),
    "PSCF": Method(),
    "Oracle": Method(source=lambda data: pf.SEM(data.model.program, data.unfair), by_unit=True),
    **{
        name: Method(source=source, penalty=pf.interval_disagreement, beyond="corrected" in name)
        for name, source in BOUNDED.items()
    },
    "Proposed, free group": Method(source=_weights(arm="auto"), beyond=True),
    "Proposed, both groups": Method(source=_weights(arm="pooled"), beyond=True),
    "Proposed, boosted propensities": Method(source=_weights(arm="auto", propensity="boosted"), beyond=True),
    "Proposed given S": Method(source=_given_shared, beyond=True, by_unit=True),
    "FIO given S": Method(source=_given_shared, penalty=pf.effect_gap, beyond=True, by_unit=True),
}
"""All methods by name."""


# -- training ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a cell is made of: a data set, a method, a classifier (``"network"`` or ``"logistic"``) and a seed.

    ``strengths`` are those of a penalty.
    """

    data: str
    method: str
    seed: int
    model: str = "network"
    strengths: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.data}, {self.model}, {self.method}, seed {self.seed}"


def run(job: Job, sizes: Sizes) -> pd.DataFrame:
    """Return a row for each classifier of a job (a strength, or a mode of PSCF) and decisions."""
    started = time.process_time()
    torch.set_num_threads(1)  # of two threads, each mostly waits for the other in small networks
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # the tables show what they are about: overlap, groups, convergence
        if job.method == RATES:
            majority, best = bayes_rates(job.data, 50 * sizes.units)
            found = pd.DataFrame({"classifier": [RATES], "majority_rate": [majority], "bayes_rate": [best]})
        else:
            data = split(job.data, job.seed, sizes)
            found = _measured(_fitted(job, data), job, data)
    labels = {name: getattr(job, name) for name in ("data", "method", "model", "seed")}
    return found.assign(**labels, cpu_seconds=time.process_time() - started)


def _fitted(job: Job, data: Split) -> dict[tuple[str, float], Any]:
    """Return the classifiers of a job by name and strength."""
    method, quick = METHODS[job.method], data.sizes.quick
    if method.source is not None:
        return _path(job, data, method)
    if method.reads is not None:
        model = pf.PenalizedClassifier(job.model, columns=method.reads(data.unfair), **_training(job, data.sizes))
        return {(job.method, np.nan): model.fit(data.X, data.y)}
    short = {"epochs": data.sizes.epochs, "samples": 2} if quick else {}
    settings = {**data.problem.pscf, **short}
    fitted = pf.PSCF(data.unfair, progress=False, random_state=job.seed, **settings).fit(data.X, data.y)
    posterior, prior = copy.copy(fitted), copy.copy(fitted)  # modes differ in predictions alone
    posterior.latents, prior.latents = "posterior", "prior"
    found = zip(MODES, (fitted, fitted.one_draw(), posterior, prior), strict=True)
    return {(mode, np.nan): model for mode, model in found}


def _training(job: Job, sizes: Sizes) -> dict[str, Any]:
    own = dict(PROBLEMS[job.data].training)
    if METHODS[job.method].by_unit:
        own = {"starts": 1, "epochs": 60, **own}
    if sizes.epochs is not None:
        own["epochs"] = sizes.epochs
    return {"dtype": "float32", "progress": False, "random_state": job.seed, **own}


def _path(job: Job, data: Split, method: Method) -> dict[tuple[str, float], Any]:
    """Return the classifiers of a penalty by method and strength, each started from the next stronger one."""
    settings = _training(job, data.sizes)
    start = pf.PenalizedClassifier(job.model, source=method.source(data), penalty=method.penalty, **settings)
    if job.method in BOUNDED:  # no path judges by bounds
        each = [clone(start).set_params(strength=strength) for strength in job.strengths]
        fits = pf.classifiers.fit_many(each, data.X, data.y)
        return {(job.method, strength): model for strength, model in zip(job.strengths, fits, strict=True)}
    path = pf.penalty_path(
        start, data.X, data.y, strengths=job.strengths, seeds=[job.seed], judge=data.weights, n_boot=0, progress=False,
        test=(data.test.drop(columns=data.outcome), data.test[data.outcome]),
    )  # fmt: skip
    return {(job.method, strength): model for (strength, _), model in path.models.items()}


# -- measuring ---------------------------------------------------------------------------------------------------------


class Remembering:
    """A fitted classifier that scores each table once: audits ask for some of them several times."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.feature_names_in_, self.classes_ = model.feature_names_in_, model.classes_
        self.known: dict[bytes, Any] = {}

    def predict_proba(self, X: pd.DataFrame) -> Any:
        """Return the probability of each class, shape (m, 2)."""
        rows = pd.util.hash_pandas_object(X, index=False).to_numpy().tobytes()
        if rows not in self.known:
            self.known[rows] = self.model.predict_proba(X)
        return self.known[rows]


def _measured(fitted: Mapping[tuple[str, float], Any], job: Job, data: Split) -> pd.DataFrame:
    """Measure classifiers on test rows and training rows by the paper's weights, and by what is better known."""
    names = {f"{name} {strength}": (name, strength) for name, strength in fitted}
    fits = dict(zip(names, fitted.values(), strict=True))
    models = {name: Remembering(model) for name, model in fits.items()}
    found = _audited(models, data.weights, data.test, job.seed)[[*COUNTED, *WEIGHTED]]
    if data.bounded is not None and job.method != "PSCF":
        found = found.join(_interval_penalties(fits, data))
    if job.strengths:
        train = _audited(models, data.weights, data.X.assign(**{data.outcome: data.y}), job.seed)
        found = found.join(train[["accuracy", "mean_unfair_effect", "piu_paper_bound"]].add_prefix("train_"))
        decided = found.xs("threshold", level="decisions")
        best = choose_strength(job.method, decided.set_axis([names[name][1] for name in decided.index]))
        found["chosen"] = [names[name][1] == best for name, _ in found.index]
    if data.one_step is not None:
        traced = data.problem.judged_throughout or not job.strengths
        wanted = {name: model for name, model in models.items() if traced or found["chosen"].loc[name].any()}
        judged = _audited(wanted, data.one_step, data.test, job.seed, interval=True)
        found = found.join(judged.drop(columns=COUNTED).add_prefix("one_step_"))
    if data.truth is not None:
        truths = {name: _truth(model, data, job.seed) for name, model in fits.items()}
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
    return float(decided.index.max() if allowed.empty else allowed["train_accuracy"].idxmax())


def _audited(
    models: Mapping[str, Any], source: Any, rows: pd.DataFrame, seed: int, interval: bool = False
) -> pd.DataFrame:
    """Return the quantities of an audit by model and decisions, and the effect's interval if asked for."""
    table = pf.audit(models, source, rows, n_boot=0, progress=False, random_state=seed).table
    wide = table.set_index(["model", "decisions", "quantity"])["estimate"].unstack()  # noqa: PD010 - as it is
    same = ["accuracy", "majority_rate"]  # which the table has once for a model, with thresholded decisions
    wide[same] = wide[same].groupby(level="model").transform("max")
    if interval:
        effect = table[table["quantity"] == "mean_unfair_effect"].set_index(["model", "decisions"])
        wide = wide.join(effect[["lower", "upper"]].add_prefix("effect_"))
    return wide.loc[[(name, decisions) for name in models for decisions in ("threshold", "score")]]


def _interval_penalties(fits: Mapping[str, Any], data: Split) -> pd.DataFrame:
    """Return both interval penalties of classifiers on training rows, and the bounds on P(Ypi = 1), by decisions."""
    sources = {method: make(data).fit(data.X) for method, make in BOUNDED.items()}
    rows = {}
    for name, model in fits.items():
        for decisions in ("threshold", "score"):
            row = rows[name, decisions] = {}
            for method, source in sources.items():
                both = source.intervals(model, decisions=decisions)
                bounds = [pf.effects.MarginalBounds(*torch.tensor(each, dtype=torch.float64)) for each in both]
                row[INTERVAL_PENALTY[method]] = float(pf.interval_disagreement(*bounds))
                row["train_ypi_lower"], row["train_ypi_upper"] = both[1]
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["model", "decisions"])


def _truth(model: Any, data: Split, seed: int) -> dict[str, float]:
    """Return the true effects of thresholded decisions; those of PSCF are the paper's, against the true model.

    With a latent cause of the outcome no true fair score is a function of the shared features; there the effects of
    PSCF are those of its decisions, as of any classifier.
    """
    units, pscf = data.sizes.units, isinstance(model, pf.PSCF)
    few = min(units, PSCF_UNITS) if pscf else units
    against_model = pscf and not data.unfair.graph.latent
    if against_model:
        found = model.truth(data.model, n=few, random_state=seed)
    else:
        found = data.truth.truth(model, n=few, random_state=seed)
    wider = {}
    if data.bounded is not None and not pscf and not data.sizes.quick:
        bounded = pf.SEM(data.model.program, data.bounded).truth(model, n=units, random_state=seed)
        wider = {"true_piu_bounded": bounded.piu.value}
    return wider | {
        "true_effect": np.nan if against_model else found.mean_unfair_effect.value,
        "true_sd": found.conditional_sd.value,
        "true_condmean": found.paper_condmean,
        "true_piu": found.piu.value,
    }
