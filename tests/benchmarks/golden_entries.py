"""What the golden run calls: each public entry on small data, under a name, with what is kept of what it returns."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import pyrofair as pf

TINY = "--tiny" in sys.argv
ENTRIES: dict[str, Callable[[], Any]] = {}


def entry(variants: Mapping[str, Mapping[str, Any]] | None = None) -> Callable[[Any], Any]:
    """Enter a function under its name, or once for each of the named settings."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.rstrip("_")
        for variant, settings in (variants or {"": {}}).items():
            ENTRIES[f"{name}.{variant}" if variant else name] = partial(function, **settings)
        return function

    return enter


def call(function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Call a function without a bar, in one process and with a fixed seed, as far as it takes such settings."""
    names = set(inspect.signature(function).parameters)
    if function in (pf.audit_graphs, pf.edge_costs):
        names |= set(inspect.signature(pf.audit).parameters)
    usual = {"progress": False, "n_jobs": 1, "random_state": 0}
    return function(*args, **{name: value for name, value in usual.items() if name in names} | settings)


def tried(function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Return what a function returns, or the text of its refusal."""
    try:
        return function(*args, **settings)
    except pf.PyrofairError as error:
        return f"{type(error).__name__}: {error}"


# --- tables, graphs and models ---------------------------------------------------------------------------------------

GRAPH = pf.CausalGraph(
    "C -> A; {A C} -> L; {A C L} -> M; {A C L M} -> Y", sensitive="A", outcome="Y", baseline="f", contrast="m"
)
DIRECT, UNFAIR = GRAPH.unfair(direct=True), GRAPH.unfair("A -> Y", "A -> M -> Y", "A -> L -> M -> Y", "A -> L -> Y")
MEDIATED = GRAPH.unfair("A -> M -> Y")  # L is read at the baseline by M and by Y
THREE = pf.CausalGraph("C -> A; {A C} -> M; {A C M} -> Y", sensitive="A", outcome="Y", baseline="f", contrast="m")
WITNESS = pf.CausalGraph("A -> {R M}; R -> M; {A R M} -> Y; H -> {R Y}", sensitive="A", outcome="Y", latent=["H"])
BOTH = WITNESS.unfair("A -> Y", "A -> R -> Y")
SATURATED: dict[str, Any] = {"propensity": "saturated", "regression": "saturated"}
LOGISTIC: dict[str, Any] = {"propensity": "logistic", "regression": "logistic"}


@cache
def table(n: int = 800, seed: int = 0, levels: str = "fm") -> pd.DataFrame:
    """Few levels in each column, a column outside the graph, an index of its own, text as it is."""
    n = min(n, 250) if TINY else n
    rng = np.random.default_rng(seed)
    C = rng.integers(0, 3, n)
    a = np.clip((rng.random(n) < 0.3 + 0.15 * C).astype(int) + rng.integers(0, len(levels) - 1, n), 0, len(levels) - 1)
    L = (rng.random(n) < 0.25 + 0.25 * a / (len(levels) - 1) + 0.1 * C).astype(int)
    M = (rng.random((n, 2)) < (0.2 + 0.2 * a + 0.15 * L)[:, None] / (1 + 0.2 * C[:, None])).sum(axis=1)
    Y = (rng.random(n) < 1 / (1 + np.exp(2.0 - 0.8 * a - 0.4 * C - 0.5 * L - 0.6 * M))).astype(int)
    df = pd.DataFrame({"C": C, "A": pd.Categorical.from_codes(a, list(levels)), "L": L, "M": M, "Y": Y})
    return df.assign(weight=rng.uniform(0.5, 2.0, n), score=rng.random(n).round(3)).set_axis(range(7, n + 7))


@cache
def witnessed(n: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    A, H = rng.integers(0, 2, (2, n))
    R = (rng.random(n) < 0.2 + 0.3 * A + 0.3 * H).astype(int)
    M = (rng.random(n) < 0.2 + 0.2 * A + 0.3 * R).astype(int)
    return pd.DataFrame({"A": A, "R": R, "M": M, "Y": (rng.random(n) < 0.1 + 0.2 * (A + R + M + H)).astype(int)})


@cache
def hiring(n: int = 600, name: str = "hiring") -> tuple[Any, pd.DataFrame]:
    scenario = pf.simulate.scenario(name)
    return scenario, scenario.draw(min(n, 250) if TINY else n, random_state=0)


@cache
def sample(name: str, n: int = 1000) -> tuple[Any, pd.DataFrame]:
    """Rows of a data set, with the levels that are not rare, so that its groups overlap."""
    data = getattr(pf.datasets, f"load_{name}")()
    df = data.frame
    for column in df.columns.drop([data.graph.sensitive_column, data.graph.outcome_column]):
        if isinstance(df[column].dtype, pd.CategoricalDtype):
            df = df[df[column].map(df[column].value_counts(normalize=True)).astype(float) > 0.08]
    df = df.sample(min(n, 300 if TINY else n, len(df)), random_state=0)
    return data, df.assign(**{each: df[each].cat.remove_unused_categories() for each in df.select_dtypes("category")})


class Model:
    """A known function of the columns, of whatever types."""

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift

    def predict_proba(self, X: pd.DataFrame) -> Any:
        z = sum((0.5 + 0.2 * i) * self.numbers(X[name]) for i, name in enumerate(sorted(X.columns)))
        p = 1 / (1 + np.exp(self.shift - (z - 1.5)))
        return np.column_stack([1 - p, p])

    def predict(self, X: pd.DataFrame) -> Any:
        return (self.predict_proba(X)[:, 1] > 0.5).astype(int)

    @staticmethod
    def numbers(column: pd.Series[Any]) -> Any:
        if isinstance(column.dtype, pd.CategoricalDtype):
            return column.cat.codes.to_numpy(float) / max(len(column.cat.categories) - 1, 1)
        values = column.to_numpy(float)
        return values / (1 + np.abs(values) / 3)


MODELS = {"one": Model(), "two": Model(0.7)}


def scores(rows: Any) -> Any:
    """Scores of both models: of a world's sample, as influence values need them."""
    return np.column_stack([model.predict_proba(rows.rows)[:, 1] for model in MODELS.values()])


def positive(rows: pd.DataFrame) -> Any:
    return Model().predict_proba(rows)[:, 1]


def program(n: int) -> None:
    """Draw n units; the effects b, c and d are parameters with priors."""
    b, c, d = (pyro.sample(name, dist.Normal(0.5, 1.0)) for name in "bcd")
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        M = pyro.deterministic("M", b * A + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
        D = pyro.sample("D", dist.Poisson(torch.exp(0.3 * A)))
        pyro.sample("Y", dist.Bernoulli(logits=c * A + d * M + 0.1 * D - 0.5))


PROGRAM_GRAPH = pf.CausalGraph("A -> {M D}; {A M D} -> Y", sensitive="A", outcome="Y")
PARAMETERS = {"b": [0.5, 0.7, 0.6], "c": [0.4, 0.5, 0.3], "d": [0.9, 1.0, 1.1]}


@cache
def program_table(n: int = 200) -> pd.DataFrame:
    return call(pf.SEM, program, PROGRAM_GRAPH.unfair("A -> Y"), posterior=PARAMETERS).nodes(n, random_state=2)[0]


# --- graphs, identification, and functions of numbers ----------------------------------------------------------------


@entry()
def graphs() -> Any:
    expanded = pf.CausalGraph.expand("A -> {M L}; M - L; {A M L} -> Y", sensitive="A", outcome="Y")
    made = {
        "text": GRAPH, "three": THREE.with_contrast("x"), "witness": WITNESS, "latent": GRAPH.with_latent("L"),
        "pairs": pf.CausalGraph([("A", "M"), ("M", "Y")], sensitive="A", outcome="Y", columns={"M": ["m", "n"]}),
        "networkx": pf.CausalGraph(nx.DiGraph([("A", "M"), ("M", "Y")]), sensitive="A", outcome="Y"),
        "coded": GRAPH.coded(), **expanded,
        "program": pf.CausalGraph.from_pyro(program, nodes=["A", "M", "D", "Y"], sensitive="A", outcome="Y"),
    }  # fmt: skip
    names = ("nodes", "edges", "columns", "order", "observed", "inputs", "input_columns", "node_of")
    return {
        name: {
            **{part: str(getattr(graph, part)) for part in names},
            **{part: str(getattr(graph, part)("A")) for part in ("children", "descendants", "ancestors", "parents")},
            "paths": str(graph.directed_paths("A", "Y")),
            "implied": str(pf.checks.implied_independences(graph)),
        }
        for name, graph in made.items()
    }


@entry()
def identification() -> Any:
    asked = {"direct": DIRECT, "unfair": UNFAIR, "mediated": MEDIATED, "witness": BOTH, "three": THREE.unfair("A -> Y")}
    asked |= {name: hiring(300, name)[0].unfair for name in ("hiring", "additive", "latent")}
    asked |= {"german": sample("german")[0].unfair, "adult": sample("adult")[0].unfair}
    found: dict[str, Any] = {}
    for name, unfair in asked.items():
        parts = ["paths", "fair_paths", "shared", "edges", "touched"]
        found[name] = {part: str(getattr(unfair, part)) for part in parts}
        found[name]["complement, reversed"] = [str(unfair.complement()), str(unfair.reversed())]
        found[name]["witnesses"] = str(unfair.recanting_witnesses())
        found[name]["removed"] = [str(tried(pf.remove, unfair, which)) for which in ("touched", "descendants")]
        for target in ("prediction", "outcome"):
            try:
                estimand = pf.identify(unfair, target=target)
            except pf.NotIdentifiedError as error:
                found[name][target] = [str(error), error.way_out.describe(options=True)]
            else:
                arms = str([regime.arms for regime in unfair.regimes])
                found[name][target] = [str(estimand), str(estimand.latex), str(estimand.assumptions), arms]
    return found


@entry()
def functions_of_numbers() -> Any:
    rng = np.random.default_rng(0)
    p0, p1 = rng.random((2, 20))
    s0, s1 = (
        pf.effects.Scored(torch.tensor(rng.random(60)), torch.full((60,), 1 / 60, dtype=torch.float64), unit)
        for unit in (torch.arange(60) // 3,) * 2
    )
    plain = [pf.effects.Scored(each.score, each.weight) for each in (s0, s1)]
    ends = [pf.effects.MarginalBounds(torch.tensor(low), torch.tensor(low + 0.2)) for low in (0.3, 0.5)]
    penalties = (pf.disagreement, pf.effect_gap, pf.piu_upper)
    return {
        "piu_bounds": pf.piu_bounds(p0, p1),
        "feasible_interval": pf.feasible_interval(p0, 0.3),
        "test_set_bound": [pf.test_set_bound(k, 100, delta) for k in (0, 7, 100) for delta in (0.05, 0.1)],
        "given units": [float(penalty(s0, s1)) for penalty in penalties],
        "marginals": [float(penalty(*plain)) for penalty in penalties],
        "squared": float(pf.effect_gap(s0, s1, squared=True)),
        "interval": float(pf.interval_disagreement(*ends)),
        "estimate": [pf.effects.Estimate.of(p0), pf.effects.Estimate.pooled([pf.effects.Estimate.of(p0)] * 2)],
    }


# --- sources ---------------------------------------------------------------------------------------------------------


def of_weights(source: Any, unfair: Any, df: pd.DataFrame, other: pd.DataFrame) -> Any:
    regimes = unfair.regimes
    return {
        "weights": [source.weights(regime).to_numpy() for regime in regimes],
        "weights of other rows": [source.weights(regime, other).to_numpy() for regime in regimes],
        "overlap": source.overlap(),
        "sizes": source.group_sizes(),
        "worlds": source.worlds(random_state=0),
        "worlds of other rows": source.worlds(random_state=0, df=other),
        "refitted": [each.weight for each in source.refit(np.linspace(0.5, 1.5, len(df))).worlds(random_state=0)],
        "by group": {name: [w.weight for w in each.worlds(random_state=0)] for name, each in source.by_group().items()},
        "compared": pf.effects.compare_groups(source, positive),
        "of the fit": [str(source.arm_), source.trimmed_, source.n_fitted_, source.fitted_rows(df), source.assumptions],
    }


@entry(
    {name: {"propensity": name} for name in ("logistic", "boosted", "saturated", "stacked")}
    | {f"arm {arm}": {"arm": arm} for arm in ("paper", 0, 1, "pooled")}
    | {"own": {"propensity": DecisionTreeClassifier(max_depth=2, min_samples_leaf=60), "folds": 3}}
    | {"unnormalized": {"normalize": False}, "trimmed": {"trim": 0.2}, "clipped": {"clip": 0.3, "arm": "pooled"}}
    | {"mediated": {"unfair": MEDIATED}, "weighted": {"weighted": True}}
)
def ipw(unfair: Any = UNFAIR, weighted: bool = False, **settings: Any) -> Any:
    df = table()
    source = call(pf.IPW, unfair, **settings).fit(df, df["weight"] if weighted else None)
    return of_weights(source, unfair, df, table(300, 1))


@entry(
    {
        f"{data} {name}": {"data": data, "propensity": name}
        for data in ("german", "adult")
        for name in ("logistic", "boosted")
    }
)
def ipw_of_data(data: str, propensity: str) -> Any:
    own, df = sample(data)
    source = call(pf.IPW, own.unfair, propensity=propensity, max_unsupported=1.0).fit(df)
    return of_weights(source, own.unfair, df, df[:100]) | {"outcome": source.for_outcome().overlap()}


@entry(
    {name: {"propensity": name, "regression": name} for name in ("boosted", "logistic", "saturated", "stacked")}
    | {f"{form} form": {"form": form, **LOGISTIC} for form in ("prefix", "graph")}
    | {"graph form boosted": {"form": "graph"}, "mediated": {"unfair": MEDIATED, **LOGISTIC}}
    | {"own": {"propensity": LogisticRegression(), "regression": LinearRegression()}}
    | {"clipped": {"clip": 0.3, "folds": 2, **LOGISTIC}, "weighted": {"weighted": True, **LOGISTIC}}
)
def one_step(unfair: Any = UNFAIR, weighted: bool = False, data: str = "", **settings: Any) -> Any:
    own, df = sample(data) if data else (None, table())
    unfair = own.unfair if own else unfair
    weight = df["weight"].to_numpy() if weighted else None
    source = call(pf.OneStep, unfair, **settings).fit(df, weight)
    other = df[:100] if data else table(300, 1)
    found = {
        "influence": source.influence(scores), "of other rows": source.influence(scores, other),
        "stages": source.stages(), "stages of other rows": source.stages(other), "by fold": source.stages_by_fold(),
        "by group": source.by_group(scores), "sizes": source.group_sizes(),
        "outcome": tried(lambda: source.for_outcome().stages()),
        "of the fit": [source.form_, str(source.conditioned_on), source.assumptions, source.n_fitted_],
    }  # fmt: skip
    if weight is not None:
        found["weighted"] = source.influence(scores, df, weight)
    if settings.get("form", "auto") == "auto" and not data:
        found["forms"] = source.compare_forms(scores)
    return found


entry({f"{data} boosted": {"data": data} for data in ("german", "adult")})(one_step)


@entry(
    {name: {"parameters": name} for name in ("linear", "network")}
    | {"learned": {"shared": "learned"}, "mediated": {"unfair": MEDIATED}}
    | {"saturated": {"propensity": "saturated", "most_units": 100}, "hiring": {"unfair": None}}
)
def g_computation(unfair: Any = UNFAIR, **settings: Any) -> Any:
    unfair, df, other = (
        (unfair, table(400), table(100, 1)) if unfair else (hiring()[0].unfair, hiring(300)[1], hiring(90)[1])
    )
    settings = {"draws": 6, "parameters": "linear"} | settings
    source = call(pf.GComputation, unfair, **settings).fit(df)
    factor = np.linspace(0.5, 1.5, len(df))
    return {
        "worlds": source.worlds(random_state=0), "worlds of other rows": source.worlds(random_state=0, df=other),
        "views": source.views(random_state=0), "refitted": source.refit(factor).worlds(random_state=0),
        "refits": [each.worlds(random_state=0) for each in source.refits([factor, factor[::-1]])],
        "overlap": source.overlap(), "sizes": source.group_sizes(), "effective": source.effective_size(df),
        "assumptions": source.assumptions, "mechanisms": source.mechanisms_.held_out,
    }  # fmt: skip


@entry({name: {"name": name} for name in ("hiring", "additive", "latent")})
def sem(name: str) -> Any:
    scenario, df = hiring(300, name)
    found: dict[str, Any] = {"draw": df}
    for unit in ("noise", "shared") if name != "latent" else ("noise",):
        source = call(pf.SEM, scenario.program, scenario.unfair, unit=unit, draws=5).fit(df)
        found[unit] = {
            "nodes": source.nodes(200, random_state=1), "worlds": source.worlds(200, random_state=1),
            "truths": [source.truth(Model(), 2000, 0, decisions=each) for each in ("threshold", "score")],
            "independent": source.truth(Model(), 2000, 0, decisions="score", score_noise="own"),
            "open": [str(source.coupled), str(source.uncertain_parameters), source.assumptions],
        }  # fmt: skip
    return found


@entry({name: {"coupling": name} for name in ("gumbel", "monotone", "independent", "antithetic")})
def sem_coupled(coupling: str) -> Any:
    unfair = PROGRAM_GRAPH.unfair("A -> Y", "A -> D -> Y", "A -> M -> Y")
    source = call(pf.SEM, program, unfair, coupling=coupling, posterior=PARAMETERS, draws=3).fit(program_table())
    rows = program_table()[:20]
    seen = source.counterfactual(rows, draws=100, random_state=0)
    return {
        "nodes": source.nodes(100, random_state=0), "worlds": source.worlds(100, random_state=0),
        "truth": source.truth(Model(), 1000, 0), "truths": source.truths(Model(), n=1000, random_state=0),
        "counterfactual": [seen.baseline, seen.switched, seen.noise, seen.diagnostics, seen.scores(Model())],
        "open": [str(source.coupled), str(source.uncertain_parameters)],
    }  # fmt: skip


@entry()
def counterfactuals() -> Any:
    scenario, df = hiring(40, "additive")
    rows = df[scenario.graph.columns_of(scenario.graph.observed)] if hasattr(scenario.graph, "columns_of") else df
    source = call(pf.SEM, scenario.program, scenario.unfair)
    seen = source.counterfactual(rows, draws=50, random_state=0)
    units = pf.inference.abduct(scenario.program, rows, draws=50, random_state=0)
    hidden = call(
        pf.inference.abduct, hiring()[0].program, hiring(40)[1][:10], draws=50, method="importance", tolerance=0.3
    )
    found = {"flips": pf.audits.flips(MODELS, source, rows, random_state=0, draws=50)}
    given = pf.programs.with_covariates(covered, df[["Q"]])
    graph = pf.CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
    set_values = pf.do(program, {"A": torch.tensor(1.0)})
    pyro.set_rng_seed(0)
    return found | {
        "both": [seen.baseline, seen.switched, seen.noise, seen.diagnostics, seen.scores(Model())],
        "abducted": [units.noise, units.diagnostics, units.do({"A": 1}).rows],
        "hidden": [hidden.noise, hidden.diagnostics, hidden.do({"D": 2}).rows],
        "covariates": call(pf.SEM, given, graph.unfair("A -> Y")).nodes(40),
        "set": [np.asarray(pyro.poutine.trace(set_values).get_trace(20).nodes[name]["value"]) for name in ("M", "Y")],
    }


def covered(n: int, known: Any) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        M = pyro.deterministic("M", A + 0.1 * known["Q"] + pyro.sample("U_M", dist.Normal(0.0, 1.0)))
        pyro.sample("Y", dist.Bernoulli(logits=A + M - 1.0))


@entry()
def bounding() -> Any:
    df = witnessed()
    miles, literal = (pf.MilesBounds(BOTH, literal=each).fit(df) for each in (False, True))
    found = {"assumptions": [miles.assumptions], "samples": [miles.samples()]}
    for decisions in ("score", "threshold"):
        found[decisions] = [source.bounds(positive, decisions=decisions) for source in (miles, literal)]
        found[decisions] += [miles.levels(positive, decisions=decisions)]
        found[decisions] += [miles.bounds(positive, decisions=decisions, level=0.95)]
    return found


@entry()
def several_sources() -> Any:
    df, wide = table(), table(900, 3, "fmx")
    contrasts = call(pf.IPW, THREE.unfair("A -> Y"))
    contrasts = pf.Contrasts(contrasts).fit(wide)
    several = {"direct": call(pf.IPW, DIRECT), "unfair": call(pf.IPW, UNFAIR)}
    several = pf.Several(several, over={"direct": 0.3, "unfair": 0.7}).fit(df)
    values = torch.tensor([0.2, 0.5], dtype=torch.float64)
    return {
        name: [
            source.pairs(df=rows, random_state=0),
            source.combine(values),
            source.strata(rows),
            str(source.levels(rows)),
        ]
        for name, source, rows in (("contrasts", contrasts, wide), ("several", several, df))
    }


# --- mechanisms and posteriors ---------------------------------------------------------------------------------------


@entry(
    {name: {"parameters": name} for name in ("network", "linear")}
    | {name: {"posterior": name, "parameters": "linear", "posterior_draws": 5} for name in ("normal", "multivariate")}
    | {"weighted": {"sample_weight": True, "parameters": "linear"}}
)
def mechanisms(**settings: Any) -> Any:
    scenario, df = hiring(300)
    settings |= {"sample_weight": np.linspace(0.5, 1.5, len(df))} if "sample_weight" in settings else {}
    learned = call(pf.learn_mechanisms, df, scenario.unfair, steps=150, **settings)
    pyro.set_rng_seed(0)
    first = learned.refit(np.linspace(1.5, 0.5, len(df)), random_state=0)
    moments = {node: learned.distribution(node, df[:30]).log_prob(torch.ones(30)) for node in ("D", "M")}
    source = call(pf.SEM.from_mechanisms, learned, scenario.unfair).fit(df)
    return {
        "calibration": learned.calibration(), "held out": learned.held_out, "history": learned.history,
        "log densities": moments, "refitted": first.held_out, "worlds": source.worlds(60, random_state=0),
        "nodes": source.nodes(60, random_state=0), "text": str(learned.families),
    }  # fmt: skip


@entry()
def families() -> Any:
    data, df = sample("german")
    columns = {name: pf.mechanisms.families.choose_family(df[name]) for name in data.graph.input_columns}
    columns |= {"Q": pf.mechanisms.families.choose_family(hiring()[1]["Q"])}
    return {name: [str(family), family.size, family.offset] for name, family in columns.items()}


@entry(
    {
        "nuts": {"method": "nuts", "draws": 15, "warmup": 15, "chains": 1},
        "svi": {"method": "svi", "draws": 30, "steps": 150},
    }
)
def posterior(**settings: Any) -> Any:
    unfair = PROGRAM_GRAPH.unfair("A -> Y", "A -> M -> Y")
    fitted = call(pf.fit_posterior, program, program_table(), unfair, **settings)
    effect = call(pf.effect_posterior, program, unfair, Model(), fitted, n=400, draws=10)
    drawn = call(pf.inference.predictive, program, fitted, n=20, draws=5, do={"A": 1.0})
    truth = call(pf.SEM, program, unfair, posterior=fitted, draws=5).truth(Model(), 1000, 0)
    return {
        "samples": fitted.samples, "summary": fitted.summary(), "losses": fitted.losses, "effect": effect.samples,
        "effect table": [effect.table, effect.summary()], "predictive": drawn, "truth": truth,
    }  # fmt: skip


# --- classifiers -----------------------------------------------------------------------------------------------------


def of_classifier(model: Any, X: pd.DataFrame) -> Any:
    return {"probabilities": model.predict_proba(X), "decisions": model.predict(X), "history": model.history_}


def linear_draws(unfair: Any, draws: int = 4) -> Any:
    units = {"most_units": 60} if "most_units" in inspect.signature(pf.GComputation).parameters else {}
    return call(pf.GComputation, unfair, draws=draws, parameters="linear", **units)


TRAINED: dict[str, dict[str, Any]] = {
    "plain": {}, "sgd": {"optimizer": "sgd", "learning_rate": 0.1}, "float32": {"dtype": "float32"},
    "network": {"model": "network", "validation_fraction": 0.2, "patience": 3},
    "module": {"model": lambda width: torch.nn.Linear(width, 1)}, "removed": {"columns": pf.remove(UNFAIR, "touched")},
    "ipw disagreement": {"source": partial(pf.IPW, UNFAIR)},
    "ipw pooled gap": {"source": partial(pf.IPW, UNFAIR, arm="pooled"), "penalty": pf.effect_gap, "model": "network"},
    "ipw upper": {"source": partial(pf.IPW, DIRECT, propensity="saturated"), "penalty": pf.piu_upper},
    "g disagreement": {"source": partial(linear_draws, UNFAIR)},
    "g gap": {"source": partial(linear_draws, UNFAIR), "penalty": pf.effect_gap},
    "miles": {"source": lambda: pf.MilesBounds(BOTH), "penalty": pf.interval_disagreement, "df": witnessed},
    "contrasts": {"source": lambda: pf.Contrasts(pf.IPW(THREE.unfair("A -> Y"))), "df": partial(table, 900, 3, "fmx")},
    "smooth": {
        "source": lambda: pf.Contrasts(pf.IPW(THREE.unfair("A -> Y")), over="smooth"),
        "df": partial(table, 900, 3, "fmx"),
    },
    "several": {"source": lambda: pf.Several({"a": pf.IPW(DIRECT), "b": pf.IPW(UNFAIR)}), "penalty": pf.effect_gap},
    "sem": {"source": lambda: pf.SEM(hiring()[0].program, hiring()[0].unfair, draws=200), "df": lambda: hiring(400)[1]},
}  # fmt: skip


@entry(TRAINED)
def penalized(source: Any = None, df: Any = table, **settings: Any) -> Any:
    rows = df()
    X = rows.drop(columns=["Y", *rows.columns.intersection(["weight", "score"])])
    usual = {"model": "logistic", "source": source and source(), "epochs": 6, "batch_size": 200, "learning_rate": 0.05}
    model = call(pf.PenalizedClassifier, **usual | settings).fit(X, rows["Y"])
    return of_classifier(model, X) | {"score": model.score(X, rows["Y"])}


@entry()
def many_classifiers() -> Any:
    df = table()
    X, weight = df[GRAPH.input_columns], df["weight"].to_numpy()
    model = call(pf.PenalizedClassifier, source=pf.IPW(UNFAIR), epochs=4)
    fitted = call(pf.classifiers.fit_many, [model, call(pf.PenalizedClassifier, epochs=4)], X, df["Y"])
    again = call(pf.classifiers.fit_many, model, X, df["Y"], [np.ones(len(X)), weight])
    weighted = call(pf.PenalizedClassifier, source=pf.IPW(UNFAIR), epochs=4).fit(X, df["Y"], weight)
    encoder = pf.tables.TableEncoder().fit(X)
    return {
        "stack": [of_classifier(each, X) for each in [*fitted, *again, weighted]],
        "encoded": [encoder.transform(X), encoder.transform_sparse(X), encoder.width_],
        "german": pf.tables.TableEncoder().fit_transform(sample("german")[1]),
    }


@entry(
    {f"{name}": {"latents": name} for name in ("abducted", "posterior", "prior")}
    | {"drawn": {"decisions": "draw"}, "own noise": {"own_noise": 0.3}}
    | {"monotone": {"coupling": "monotone", "mmd": 1.0}, "program": {"model": True}}
)
def pscf(model: Any = None, **settings: Any) -> Any:
    scenario, df = hiring(300)
    X = df[scenario.graph.input_columns]
    usual = {"epochs": 2, "batch_size": 100, "samples": 20}
    settings |= {"model": scenario.program} if model else {"hidden": 8}
    fitted = call(pf.PSCF, scenario.unfair, **usual | settings).fit(X, df["Y"])
    found = {"fair": fitted.fair_values(X[:50]), "history": fitted.history_, "latents": fitted.latents_}
    found |= {"probabilities": fitted.predict_proba(X), "decisions": fitted.predict(X), "elbo": fitted.elbo_}
    found |= {"truth": fitted.truth(scenario, 500, random_state=0)}
    return found | {"one draw": fitted.one_draw().predict(X)}


# --- audits ----------------------------------------------------------------------------------------------------------


def report(found: Any) -> Any:
    return {"": found, "text:read": str(found), "text:repr": repr(found)}


def bands(rows: pd.DataFrame) -> Any:
    return np.where(rows["C"] > 0, "some", "none")


def outcome_scores(df: pd.DataFrame) -> Any:
    return {"scores": df["score"], "decisions": (df["score"] > 0.4).astype(int)}


def known_scores(df: pd.DataFrame) -> Any:
    return {"scores": positive(df[GRAPH.input_columns])}


AUDITS: dict[str, dict[str, Any]] = {
    "paths alone": {"make": lambda: DIRECT}, "boosted": {"make": lambda: call(pf.OneStep, UNFAIR)},
    "one step": {}, "unfitted": {"fit": None}, "fitted on the rows": {"fit": "same rows"},
    "mediated": {"make": lambda: call(pf.OneStep, MEDIATED, **LOGISTIC)}, "level": {"level": 0.8, "threshold": 0.3},
    "thresholds": {"thresholds": [0.2, 0.4, 0.6]}, "subgroups": {"subgroups": ["C"]},
    "subgroups by function": {"subgroups": {"band": bands, "C": "C"}, "thresholds": [0.3]},
    "weighted": {"sample_weight": "weight", "thresholds": [0.4], "subgroups": "C"},
    "weighted fit": {"sample_weight": "weight", "fit": "weighted"},
    "graph form": {"make": lambda: call(pf.OneStep, UNFAIR, form="graph", **LOGISTIC)},
    "outcome": {"models": outcome_scores, "scores": "outcome", "fit": None},
    "scores": {"models": known_scores, "scores": "prediction", "fit": None}, "no outcome": {"drop": True},
    "adapters": {"models": lambda df: {
        "decided": pf.DecisionsOf(Model()), "function": pf.ScoresOf(positive),
        "logits": pf.ScoresOf(lambda X: np.log(positive(X)) - np.log(1 - positive(X)), returns="logit"),
        "fitted": LogisticRegression().fit(df[["C", "L", "M"]].assign(A=df["A"] == "m")[["C", "L", "M"]], df["Y"]),
    }},
    "ipw": {"make": lambda: call(pf.IPW, UNFAIR)}, "ipw unfitted": {"make": lambda: call(pf.IPW, UNFAIR), "fit": None},
    "ipw multinomial": {"make": lambda: call(pf.IPW, UNFAIR, arm="pooled"), "bootstrap": "multinomial", "fit": None},
    "ipw trimmed": {"make": lambda: call(pf.IPW, UNFAIR, propensity="saturated", trim=0.2), "fit": "same rows"},
    "ipw boosted": {"make": lambda: call(pf.IPW, DIRECT, propensity="boosted"), "n_boot": 3},
    "ipw thresholds": {"make": lambda: call(pf.IPW, UNFAIR), "thresholds": [0.2, 0.6], "sample_weight": "weight"},
    "ipw scores": {"make": lambda: call(pf.IPW, DIRECT, arm="paper"), "models": known_scores, "scores": "prediction"},
    "ipw outcome": {"make": lambda: call(pf.IPW, DIRECT), "models": outcome_scores, "scores": "outcome"},
    "ipw points": {"make": lambda: call(pf.IPW, UNFAIR), "n_boot": 0},
    "g": {"make": lambda: linear_draws(UNFAIR)}, "g unfitted": {"make": lambda: linear_draws(UNFAIR), "fit": None},
    "g weighted": {"make": lambda: linear_draws(UNFAIR), "sample_weight": "weight", "thresholds": [0.3]},
    "batches": {"batched": True, "fit": None},
}  # fmt: skip


@entry(AUDITS)
def audit(
    make: Any = None, fit: Any = "other rows", models: Any = None, drop: bool = False, batched: bool = False,
    **settings: Any,
) -> Any:  # fmt: skip
    df = table().drop(columns="Y") if drop else table()
    source = make() if make else call(pf.OneStep, UNFAIR, **LOGISTIC)
    if fit == "weighted":
        source = source.fit(df, df["weight"].to_numpy())
    elif fit is not None and hasattr(source, "fit"):
        source = source.fit(table(500, 5) if fit == "other rows" else df)
    weight = settings.pop("sample_weight", None)
    settings |= {} if weight is None else {"sample_weight": df[weight].to_numpy()}
    given = models(df) if models else MODELS
    rows = [df[:150].reset_index(drop=True), df[150:].reset_index(drop=True)] if batched else df
    return report(call(pf.audit, given, source, rows, **{"n_boot": 12} | settings))


@entry(
    {
        f"{data} {name}": {"data": data, "name": name}
        for data in ("german", "adult")
        for name in ("one step", "ipw", "g")
    }
)
def audit_of_data(data: str, name: str) -> Any:
    own, df = sample(data)
    train, test = df[: len(df) // 2], df[len(df) // 2 :]
    model = call(pf.PenalizedClassifier, "logistic", epochs=5).fit(
        train[own.graph.input_columns], train[own.graph.outcome_column]
    )
    source = {
        "one step": call(pf.OneStep, own.unfair, **LOGISTIC), "g": linear_draws(own.unfair),
        "ipw": call(pf.IPW, own.unfair, max_unsupported=1.0),
    }[name]  # fmt: skip
    return report(call(pf.audit, {"m": model}, source.fit(train), test, n_boot=5))


@entry()
def outputs_of_audits() -> Any:
    found = call(pf.audit, MODELS, call(pf.OneStep, UNFAIR, **LOGISTIC), table(), thresholds=[0.3], subgroups="C")
    data = found.to_inference_data()
    return {
        "text:json": found.to_json(indent=1),
        "text:html": re.sub(r"data:image/[^\"]*|\d\d\d\d-\d\d-\d\d[^<]*", "", found.to_html()),
        "readings": found.verdicts,
        "inference data": {str(name): values.to_numpy() for name, values in data["posterior"].data_vars.items()},
    }


@entry({"threshold": {}, "shared": {"unit": "shared", "threshold": 0.3, "thresholds": [0.4]}})
def audit_of_program(unit: str = "noise", **settings: Any) -> Any:
    scenario, df = hiring()
    source = call(pf.SEM, scenario.program, scenario.unfair, unit=unit)
    return report(call(pf.audit, MODELS, source, df, n_boot=8, **settings))


@entry(
    {
        "one step": {"make": lambda unfair: call(pf.OneStep, unfair, **SATURATED)},
        "paths": {"make": lambda unfair: unfair},
    }
    | {"ipw": {"make": lambda unfair: call(pf.IPW, unfair), "level": 0.9, "threshold": 0.4}}
    | {"one": {"make": lambda unfair: call(pf.OneStep, unfair, **LOGISTIC), "contrasts": ["x"]}}
)
def contrasts(make: Any, **settings: Any) -> Any:
    unfair = THREE.unfair("A -> Y", "A -> M -> Y")
    return report(call(pf.audit_contrasts, MODELS, make(unfair), table(900, 3, "fmx"), n_boot=45, **settings))


@entry()
def crossed() -> Any:
    rng = np.random.default_rng(0)
    sex, race, C = rng.choice(list("fm"), 900), rng.choice(list("bw"), 900), rng.integers(0, 2, 900)
    M = (rng.random(900) < 0.2 + 0.3 * (sex == "m") + 0.2 * (race == "w") + 0.1 * C).astype(int)
    df = pd.DataFrame({"sex": sex, "race": race, "C": C, "M": M, "Y": (rng.random(900) < 0.2 + 0.5 * M).astype(int)})
    edges = "C -> {race M}; race -> M; sex -> {M race}; {sex race M C} -> Y"
    graph = pf.CausalGraph(edges, sensitive="sex", outcome="Y", baseline="m", contrast="f")
    found = pf.cross(df, graph, ["sex", "race"], baseline=("m", "w"))
    model = pf.ScoresOf(lambda X: 0.1 + 0.2 * (X["sex"] == "f") + 0.3 * X["M"] + 0.1 * (X["race"] == "b"))
    source = call(pf.OneStep, found.graph.unfair(direct=True), **SATURATED)
    audited = call(pf.audit_contrasts, {"m": found.model(model)}, source, found.frame)
    return {
        "frame": found.frame,
        "counts": found.counts,
        "restored": found.restore(found.frame),
        "audit": report(audited),
    }


@entry()
def candidate_graphs() -> Any:
    given = pf.CausalGraph.expand(
        "A -> {M L}; M - L; {A M L} -> Y", sensitive="A", outcome="Y", contrast="m", baseline="f"
    )
    candidates = {name: graph.unfair(direct=True, through=["M"]) for name, graph in given.items()}
    candidates["refused"] = given["L -> M"].unfair(lambda path: path == ("A", "L", "M", "Y"))
    df = table(500).assign(M=(table(500)["M"] > 0).astype(int))
    known = {name: unfair for name, unfair in candidates.items() if name != "refused"}
    return {
        "graphs": report(call(pf.audit_graphs, MODELS, candidates, df, n_boot=10)),
        "without bounds": report(call(pf.audit_graphs, MODELS, known, df, bounds=False)),
    }


@entry(
    {"one step": {"make": lambda: call(pf.OneStep, UNFAIR, **LOGISTIC)}, "ipw": {"make": lambda: call(pf.IPW, UNFAIR)}}
)
def disputed_edges(make: Any) -> Any:
    return report(call(pf.edge_costs, {"m": Model()}, make(), table(600), ["A -> L", "A -> M", "L -> M"], n_boot=40))


@entry(
    {
        "own": {},
        "judged": {"judge": lambda: call(pf.OneStep, UNFAIR, **LOGISTIC)},
        "g": {"source": partial(linear_draws, UNFAIR)},
    }
)
def path(judge: Any = None, source: Any = None, **settings: Any) -> Any:
    df = table()
    X = df[GRAPH.input_columns]
    model = call(
        pf.PenalizedClassifier, "logistic", source=source() if source else pf.IPW(UNFAIR), epochs=4, learning_rate=0.1
    )
    settings |= {"judge": judge()} if judge else {}
    found = call(pf.penalty_path, model, X, df["Y"], strengths=[0.0, 1.0], seeds=2, n_boot=6, **settings)
    chosen = found.select(accuracy_loss=0.1).predict_proba(X)
    scorer = pf.audits.AuditScorer(call(pf.OneStep, UNFAIR, **LOGISTIC), at_most=0.5)
    return report(found) | {
        "chosen": chosen,
        "summary": found.summary(),
        "scorer": scorer(model.fit(X, df["Y"]), X, df["Y"]),
    }


# --- what remains when an assumption fails ---------------------------------------------------------------------------


@entry(
    {
        f"{name} {kind}": {"name": name, "kind": kind}
        for name in ("confounding", "cross_world", "switching")
        for kind in ("one", "german")
        if (name, kind) != ("cross_world", "german")
    }
)
def sensitivity(name: str, kind: str) -> Any:
    one = MEDIATED if name == "cross_world" else UNFAIR
    unfair, df = (one, table(600)) if kind == "one" else (sample("german")[0].unfair, sample("german")[1])
    function = getattr(getattr(pf, "sensitivity", None) or pf.robustness, name)
    settings = SATURATED if kind == "one" else LOGISTIC | {"form": "prefix"}
    decisions = "score" if kind == "german" else "threshold"
    found = call(function, Model(), call(pf.OneStep, unfair, **settings), df, decisions=decisions, at_most=0.4)
    weighted = call(
        function, Model(), call(pf.OneStep, unfair, **settings), df, sample_weight=np.linspace(0.5, 1.5, len(df))
    )
    return report(found) | {"weighted": weighted}


@entry(
    {"outcome": {}, "score": {"score": Model()}, "replicates": {"score": Model(), "decisions": "score", "n_boot": 5}}
)
def sharp(**settings: Any) -> Any:
    df = witnessed()
    found = {name: call(pf.sharp_bounds, WITNESS.unfair(*paths), df, **settings)
             for name, paths in {"both": ("A -> Y", "A -> R -> Y"), "direct": ("A -> Y",)}.items()}  # fmt: skip
    free = call(pf.sharp_bounds, BOTH, df, **{**settings, "independent_errors": False})
    return {name: report(each) for name, each in {**found, "free": free}.items()}


@entry({name: {"regression": name} for name in ("flexible", "smooth", "logistic")})
def graph_check(regression: str) -> Any:
    missing = pf.CausalGraph("A -> L -> M -> Y; C -> {A M Y}", sensitive="A", outcome="Y", baseline="f", contrast="m")
    return report(call(missing.check, table(), regression=regression))


# --- studies, files, data, the command line --------------------------------------------------------------------------


@entry()
def study() -> Any:
    methods = {
        "plain": LogisticRegression(max_iter=1000),
        "FIO": pf.simulate.method("FIO (pooled)", model="logistic", epochs=3),
        "given S": pf.simulate.method("Proposed (given S)", model="logistic", epochs=3),
        "removed": pf.simulate.method("Remove (touched)", model="logistic", epochs=3),
        "oracle": pf.simulate.method("Oracle", model="logistic", epochs=3),
    }
    sizes = {
        "test_size": 300,
        "truth_size": 1000,
        "audit": lambda scenario: pf.IPW(scenario.unfair, arm="pooled"),
        "n_boot": 3,
    }
    found = call(pf.simulate.study, ["hiring", "latent"], methods, 300, 2, strengths=[1.0], **sizes)
    return {"table": found.table.drop(columns="seconds"), "failures": found.failures, "summary": found.summary()}


@entry()
def files() -> Any:
    df, folder = table(), Path(tempfile.mkdtemp())
    X, scenario = df[GRAPH.input_columns], hiring(300)[0]
    learned = call(pf.learn_mechanisms, hiring(300)[1], scenario.unfair, steps=60, parameters="linear")
    model = call(pf.PenalizedClassifier, "logistic", source=pf.IPW(UNFAIR), epochs=3)
    saved = {
        "classifier": model.fit(X, df["Y"]), "graph": GRAPH, "unfair": UNFAIR, "mechanisms": learned,
        "ipw": call(pf.IPW, UNFAIR).fit(df), "g": linear_draws(UNFAIR).fit(df),
        "path": call(pf.penalty_path, model, X, df["Y"], strengths=[0.0, 1.0], n_boot=0),
        "one step": call(pf.OneStep, UNFAIR, **LOGISTIC).fit(df), "miles": pf.MilesBounds(BOTH).fit(witnessed()),
        "pscf": call(pf.PSCF, UNFAIR, epochs=1, hidden=4).fit(X, df["Y"]),
        "sem": call(pf.SEM, scenario.program, scenario.unfair),
    }  # fmt: skip
    show: dict[str, Callable[[Any], Any]] = {
        "classifier": lambda it: it.predict_proba(X), "graph": str, "unfair": str,
        "ipw": lambda it: it.worlds(random_state=0),
        "g": lambda it: it.worlds(random_state=0), "path": lambda it: it.table, "mechanisms": lambda it: it.held_out,
        "one step": lambda it: it.influence(scores), "miles": lambda it: it.bounds(positive),
        "pscf": lambda it: it.predict_proba(X), "sem": lambda it: it.nodes(20, random_state=0),
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name, obj in saved.items():
        try:
            pf.save(obj, folder / name)
            found[name] = show[name](
                pf.load(folder / name, given={"program": scenario.program} if name == "sem" else None)
            )
        except pf.PyrofairError as error:
            found[name] = f"refused: {type(error).__name__}"
    return found


@entry()
def data_sets() -> Any:
    loaded = {
        "adult": pf.datasets.load_adult(),
        "german": pf.datasets.load_german(),
        "raw": pf.datasets.load_adult(variant="raw"),
    }
    loaded |= {"complete": pf.datasets.load_adult(variant="complete"), "all": pf.datasets.load_german(columns="all")}
    return {
        name: {
            "columns": [f"{column}: {kind}" for column, kind in data.frame.dtypes.items()],
            "summary": data.frame.describe(include="all").T, "graph": [str(data.graph), str(data.unfair)],
            "split": [part.index.to_numpy()[:500] for part in data.split(random_state=0)],
        }
        for name, data in loaded.items()
    }  # fmt: skip


TRAINING = ("--model", "logistic", "--penalty", "effect_gap", "--epochs", "5", "--propensity", "saturated")
COMMANDS: dict[str, tuple[str, ...]] = {
    "identify": (),
    "audit scores": ("test.csv", "--score", "score", "--propensity", "logistic", "--regression", "logistic"),
    "audit ipw": ("test.csv", "--score", "known", "--source", "ipw", "--scores", "prediction", "--arm", "paper",
                  "--replicates", "9"),
    "audit options": ("test.csv", "--score", "score", "--thresholds", ".3", ".6", "--subgroups", "C",
                      "--propensity", "saturated", "--regression", "logistic", "--weight", "weight",
                      "--fail-above", ".2"),
    "train": ("train.csv", *TRAINING, "--strength", "2"),
    "path": ("train.csv", *TRAINING, "--test", "test.csv", "--strengths", "0", "1", "--replicates", "9",
             "--accuracy-loss", ".1"),
}  # fmt: skip


@entry({name: {"name": name.split()[0], "options": given} for name, given in COMMANDS.items()})
def command(name: str, options: tuple[str, ...]) -> Any:
    """Return what a command prints and the tables that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        for seed, file in ((7, "train.csv"), (8, "test.csv")):
            rows = table(1000, seed)
            rows.assign(known=positive(rows[GRAPH.input_columns]).round(6)).to_csv(Path(folder, file), index=False)
        edges = "C -> A; {A C} -> L; {A C L} -> M; {A C L M} -> Y"
        given = [*options, "--graph", edges, "--sensitive", "A", "--outcome", "Y", "--unfair", "A -> Y"]
        if name != "identify":
            given += ["--baseline", "f", "--contrast", "m", "--output", "found"]
        where = {**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1])}
        done = subprocess.run(
            [sys.executable, "-m", "pyrofair", name, *given], cwd=folder, env=where, capture_output=True, text=True
        )
        written = {each.name: pd.read_csv(each) for each in sorted(Path(folder, "found").glob("*.csv"))}
        names = sorted(each.name for each in Path(folder, "found").glob("*"))
        model = Path(folder, "found", "model.pyrofair")
        written["saved"] = pf.load(model).predict_proba(table()) if model.exists() else None
    return {"code": done.returncode, "out": done.stdout, "error": done.stderr, "files": names, **written}
