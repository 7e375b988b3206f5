"""Every setting of a public function is checked before any work; a wrong one is refused by its name and value."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import pyrofair as pf
from pyrofair._validation import Constraint
from pyrofair.classifiers import penalized
from pyrofair.classifiers.pscf import classifier as pscf

GRAPH = pf.CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")
TABLE = pd.DataFrame({"A": [0, 1] * 30, "M": np.tile([0, 1, 1, 0, 1], 12), "Y": np.tile([0, 1, 1], 20)})


def must_not_run(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("work was done before the setting was read")


class Untouchable(ClassifierMixin, BaseEstimator):
    """A classifier that must not be fitted or asked before all settings are read."""

    fit = predict_proba = must_not_run


def program(n: int) -> None:
    must_not_run(n)


def usable(n: int) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        a = pyro.sample("A", dist.Bernoulli(0.5))
        m = pyro.deterministic("M", slope * a + pyro.sample("U", dist.Normal(0.0, 1.0)))
        pyro.sample("Y", dist.Bernoulli(logits=m))


def plain(n: int) -> None:
    with pyro.plate("units", n):
        a = pyro.sample("A", dist.Bernoulli(0.5))
        m = pyro.deterministic("M", a + pyro.sample("U", dist.Normal(0.0, 1.0)))
        pyro.sample("Y", dist.Bernoulli(logits=m))


THING = object()
NEVER: tuple[Any, ...] = ("x", [1], THING, math.nan)
WRONG: dict[str, tuple[Any, ...]] = {
    "count": (*NEVER, True, None, 2.5, -1, 0, math.inf),
    "count or none": (*NEVER, True, 2.5, -1, 0, math.inf),
    "units": (*NEVER, True, None, 2.5, -1, 0, math.inf, 2**63),
    "units or none": (*NEVER, True, 2.5, -1, 0, math.inf, 2**63),
    "whole": (*NEVER, True, None, 2.5, -1, math.inf),
    "positive": (*NEVER, True, None, -1, 0, math.inf),
    "positive or none": (*NEVER, True, -1, 0, math.inf),
    "not negative": (*NEVER, True, None, -1, math.inf),
    "share": (*NEVER, True, None, -1, 2, math.inf),
    "inner share": (*NEVER, True, None, -1, 0, 1, math.inf),
    "inner share or none": (*NEVER, True, -1, 0, 1, math.inf),
    "below half or none": (*NEVER, True, -1, 0, 0.5, math.inf),
    "threshold": (*NEVER, True, None, -0.1, 1, math.inf),
    "flag": (*NEVER, "no", 1, 0, None),
    "choice": (*NEVER, True, None, -1, 2**63),
    "choice or none": (*NEVER, True, -1),
    "seed": (*NEVER, "a", True, 1.5, -1, math.inf, 2**64),
    "names": ("A", 1, True, [1], THING, math.nan),
    "names or none": ("A", 1, True, [1], THING, math.nan),
    "mapping or none": ("x", 1, True, [1], THING, math.nan),
    "levels or none": ("x", 1, True, [2], [], THING, math.nan),
    "pair or none": ("no", 1, True, [1], [1, 1], THING, math.nan),
    "device": ("x", "meta", 1, True, None, [1], THING, math.nan),
    "encoder or none": ("x", 1, True, [1], THING, math.nan),
    "names or one": (1, True, [1], THING, math.nan),
    "mapping": ("x", 1, True, [1], THING, math.nan),
    "layers": ("x", 1, True, None, [0], [2.5], [True], ["x"], THING, math.nan),
    "paths": (*NEVER, None, "A -> Y", GRAPH),
    "paths or none": (*NEVER, "A -> Y", GRAPH),
    "label": ([1], {1: 2}, math.nan, None, THING.__class__.__subclasses__),
    "label or none": ([1], {1: 2}, math.nan, THING.__class__.__subclasses__),
    "node": (1, True, [1], THING, math.nan, None),
    "jobs": (*NEVER, True, None, 2.5, 0, 2**63),
    "jobs or none": (*NEVER, True, 2.5, 0, 2**63),
    "strengths": ("x", [], [-1], ["x"], [True], THING, math.nan, True, None, -1, math.inf, 0),
    "seeds": ("x", [], [-1], ["x"], [True], [2.5], [1, 1], THING, math.nan, True, None, -1, math.inf, 0),
    "thresholds or none": ("x", [], [2], [1], [-0.1], [True], ["x"], [0.5, 0.5], THING, math.nan, True, -1, math.inf),
    "subgroups or none": (1, [], {}, [1], ["M", "M"], {1: "M"}, THING, math.nan, True),
    "shares": ("x", [2], ["x"], THING, math.nan, True, None, -1, math.inf),
    "weight": (*NEVER, [-1.0] * 60, [0.0] * 60, -1, 0, math.inf),
    "callable": (*NEVER, 1),
    "path": ("", 1, True, None, [1], THING, math.nan, b"x"),
    "savable": (*NEVER, True, None, 2.5, pf.IPW, TABLE),
    "source": (*NEVER, 1, UNFAIR),
    "source or paths": (*NEVER, 1),
}

ANYTHING = (*NEVER, "no", True, None, 2.5, -1, 0, 1, math.inf, 2**64, "A -> Y", GRAPH, [0], [2.5], [True], ["x"])

Call = Callable[..., Any]
CALLS: dict[str, tuple[Call, dict[str, str]]] = {}


NAMED = {
    "below half or none": "clip trim",
    "callable": "model predicate program sem_or_program",
    "choice": "arm bootstrap coupling decisions disclosure form graph_or_unfair guide method missing name over "
    "parameters"
    " propensity regression score_noise scores shared target unit value variant",
    "choice or none": "joint returns",
    "count": "batch_size chains components draws folds max_types most_levels most_units patience posterior_draws splits"
    " steps warmup",
    "count or none": "max_stack",
    "device": "device",
    "data": "df X y sample_weight sample_weights ax edges paths graph tolerance rows abduction sem disputed settings"
    " score groups",
    "encoder or none": "encoder",
    "flag": "converge direct independent_errors literal normalize overwrite progress skops within",
    "inner share": "delta held_out level",
    "jobs": "n_jobs",
    "label": "baseline positive",
    "label or none": "contrast",
    "layers": "hidden",
    "levels or none": "contrasts",
    "mapping": "do dtypes families given inverses levels models posterior values",
    "mapping or none": "passes",
    "names": "nodes predict tiers",
    "names or none": "columns",
    "names or one": "latent proxies test through",
    "node": "node outcome sensitive",
    "pair or none": "labels",
    "path": "path",
    "paths": "unfair",
    "positive": "learning_rate",
    "positive or none": "least_gain",
    "savable": "obj",
    "seed": "random_state",
    "seeds": "seeds",
    "share": "max_unsupported validation_fraction",
    "shares": "p0 p1",
    "source": "classifier classifiers judge resume",
    "source or paths": "source",
    "strengths": "strengths",
    "subgroups or none": "subgroups",
    "threshold": "threshold",
    "thresholds or none": "thresholds",
    "units": "n",
    "whole": "errors n_boot",
}
"""What settings are whose names mean the same everywhere, by kind of what is wrong for them."""
KIND = {name: kind for kind, names in NAMED.items() for name in names.split()}


def settings(of: Call, call: Call, *, besides: str = "", **kinds: str) -> None:
    """List all settings of a public function; ``besides`` names data, ``kinds`` what means something else here."""
    names = {*inspect.signature(of).parameters} - {"self", "cls"}
    assert names >= {*kinds, *besides.split()}, of
    found = {name: kinds.get(name) or KIND[name] for name in names - {*besides.split()}}
    CALLS[of.__qualname__] = call, {name: kind for name, kind in sorted(found.items()) if kind != "data"}


def refuses(constraint: Constraint, value: object) -> bool:
    try:
        constraint("name", value)
    except pf.DataError:
        return True
    return False


def constrained(of: Call, call: Call, constraints: Mapping[str, Constraint], **kinds: str) -> None:
    """List the settings of an estimator by its table of constraints; ``kinds`` are those outside it."""
    for setting, constraint in constraints.items():
        kinds[setting] = f"{of.__qualname__}.{setting}"
        WRONG[kinds[setting]] = tuple(value for value in ANYTHING if refuses(constraint, value))
    settings(of, call, **kinds)


settings(
    pf.CausalGraph,
    lambda **given: pf.CausalGraph("A -> M -> Y", **({"sensitive": "A", "outcome": "Y"} | given)),
    columns="mapping",
    labels="mapping or none",
)
settings(
    pf.CausalGraph.from_pyro,
    lambda **given: pf.CausalGraph.from_pyro(
        given.pop("program", program), **({"nodes": ["A", "M", "Y"], "sensitive": "A", "outcome": "Y"} | given)
    ),
    columns="mapping",
    labels="mapping or none",
)
settings(
    pf.CausalGraph.from_tiers,
    lambda **given: pf.CausalGraph.from_tiers(**({"tiers": [["A"], ["Y"]], "sensitive": "A", "outcome": "Y"} | given)),
)
settings(pf.CausalGraph.unfair, GRAPH.unfair)
settings(pf.CausalGraph.columns_of, GRAPH.columns_of)
for each in ("parents", "children", "ancestors", "descendants"):
    settings(getattr(pf.CausalGraph, each), getattr(GRAPH, each))
settings(
    pf.CausalGraph.directed_paths,
    lambda **given: GRAPH.directed_paths(**({"source": "A", "target": "Y"} | given)),
    source="node",
    target="node",
)
settings(pf.CausalGraph.label, GRAPH.label)
settings(pf.CausalGraph.draw, GRAPH.draw, unfair="paths or none")
settings(pf.identify, lambda **given: pf.identify(**({"unfair": UNFAIR} | given)))
settings(
    pf.sharp_bounds,
    lambda **given: pf.sharp_bounds(**({"unfair": UNFAIR, "df": TABLE, "score": Untouchable()} | given)),
)
settings(pf.remove, lambda **given: pf.remove(UNFAIR, **given), nodes="choice")
settings(pf.IPW, lambda **given: pf.IPW(**({"unfair": UNFAIR, "propensity": Untouchable()} | given)).fit(TABLE))
settings(pf.IPW.worlds, lambda **given: pf.IPW(UNFAIR, arm="pooled").fit(TABLE).worlds(**given), besides="n")
settings(pf.OneStep, lambda **given: pf.OneStep(**({"unfair": UNFAIR, "propensity": Untouchable()} | given)).fit(TABLE))
settings(pf.GComputation, lambda **given: pf.GComputation(**({"unfair": UNFAIR} | given)).fit(TABLE))
settings(pf.SEM, lambda **given: pf.SEM(given.pop("program", program), given.pop("unfair", UNFAIR), **given).nodes(10))
settings(pf.SEM.nodes, lambda **given: pf.SEM(program, UNFAIR).nodes(**({"n": 10} | given)))
settings(pf.SEM.worlds, lambda **given: pf.SEM(program, UNFAIR).worlds(**({"n": 10} | given)), n="units or none")
settings(pf.SEM.truth, lambda **given: pf.SEM(program, UNFAIR).truth(Untouchable(), **given), besides="model")
settings(pf.SEM.counterfactual, lambda **given: pf.SEM(program, UNFAIR).counterfactual(TABLE, **given))
settings(
    pf.inference.abduct,
    lambda **given: pf.inference.abduct(given.pop("program", program), TABLE, **given),
    parameters="mapping",
)
settings(
    pf.fit_posterior,
    lambda **given: pf.fit_posterior(
        given.pop("program", program), TABLE, given.pop("graph_or_unfair", GRAPH), **({"progress": False} | given)
    ),
)
settings(
    pf.inference.predictive,
    lambda **given: pf.inference.predictive(
        given.pop("program", program), {"slope": np.zeros(4)}, **({"n": 3} | given)
    ),
    besides="posterior",
    n="units or none",
    draws="count or none",
)
settings(
    pf.effect_posterior,
    lambda **given: pf.effect_posterior(
        given.pop("sem_or_program", program),
        given.pop("unfair", UNFAIR),
        Untouchable(),
        {"slope": np.zeros(4)},
        **given,
    ),
    besides="model posterior",
    draws="count or none",
    coupling="choice or none",
)
settings(
    pf.learn_mechanisms,
    lambda **given: pf.learn_mechanisms(TABLE, given.pop("graph_or_unfair", GRAPH), **given),
    posterior="choice",
    nodes="names or one",
)
constrained(
    pf.PenalizedClassifier,
    lambda **given: pf.PenalizedClassifier(**({"progress": False} | given)).fit(TABLE[["A", "M"]], TABLE["Y"]),
    penalized.CONSTRAINTS,
)
constrained(
    pf.PSCF,
    lambda **given: pf.PSCF(**({"unfair": UNFAIR, "progress": False} | given)).fit(TABLE[["A", "M"]], TABLE["Y"]),
    pscf.CONSTRAINTS,
)
settings(
    pf.audit,
    lambda **given: pf.audit(
        given.pop("models", {"m": Untouchable()}),
        given.pop("source", pf.IPW(UNFAIR, propensity=Untouchable())),
        TABLE,
        **given,
    ),
    besides="sample",  # of partitions only
)
settings(
    pf.audit_contrasts,
    lambda **given: pf.audit_contrasts(
        given.pop("models", {"m": Untouchable()}),
        given.pop("source", pf.IPW(UNFAIR, propensity=Untouchable())),
        TABLE,
        **given,
    ),
)
settings(
    pf.edge_costs,
    lambda **given: pf.edge_costs(
        given.pop("models", {"m": Untouchable()}),
        given.pop("source", pf.IPW(UNFAIR, propensity=Untouchable())),
        TABLE,
        **given,
    ),
)
settings(
    pf.Contrasts,
    lambda **given: pf.Contrasts(**({"source": pf.IPW(UNFAIR, propensity=Untouchable())} | given)).fit(TABLE),
    source="source",
)
settings(pf.MilesBounds, lambda **given: pf.MilesBounds(**({"unfair": UNFAIR} | given)).fit(TABLE))
WITNESS = pf.CausalGraph("A -> {R M}; R -> M; {A R M} -> Y", sensitive="A", outcome="Y").unfair("A -> Y", "A -> R -> Y")
BOUNDED = pf.MilesBounds(WITNESS).fit(
    TABLE[["A"]].assign(R=np.arange(len(TABLE)) % 3, M=np.arange(len(TABLE)) % 5 // 3)
)
for bounded, given in [
    (pf.MilesBounds.intervals, {"level": "inner share or none", "random_state": "seed"}),
    (pf.MilesBounds.bounds, {"level": "inner share or none", "random_state": "seed"}),
    (pf.MilesBounds.levels, {}),
]:
    settings(bounded, partial(getattr(BOUNDED, bounded.__name__), must_not_run), **given)
settings(pf.DecisionsOf, lambda **given: pf.DecisionsOf(**({"model": must_not_run} | given)))
settings(pf.ScoresOf, lambda **given: pf.ScoresOf(**({"model": must_not_run} | given)))
settings(
    pf.audits.flips,
    lambda **given: pf.audits.flips(
        given.pop("models", {"m": Untouchable()}), pf.SEM(program, UNFAIR), TABLE[["A", "M"]], **given
    ),
)
settings(
    pf.penalty_path,
    lambda **given: pf.penalty_path(
        given.pop("classifier", pf.PenalizedClassifier(source=pf.IPW(UNFAIR, propensity=Untouchable()))),
        TABLE[["A", "M"]],
        TABLE["Y"],
        **given,
    ),
    n_jobs="jobs or none",
    sample_weight="weight",
)
settings(
    pf.classifiers.fit_many,
    lambda **given: pf.classifiers.fit_many(
        given.pop("classifiers", pf.PenalizedClassifier()), TABLE[["A", "M"]], TABLE["Y"], **given
    ),
    n_jobs="jobs or none",
    errors="choice",
)
settings(pf.test_set_bound, lambda **given: pf.test_set_bound(**({"errors": 3, "n": 10} | given)), n="count")
settings(pf.audits.plot_feasible_region, pf.audits.plot_feasible_region, levels="shares")
settings(
    pf.feasible_interval, lambda **given: pf.feasible_interval(**({"p0": 0.5, "level": 0.1} | given)), level="shares"
)
settings(pf.piu_bounds, lambda **given: pf.piu_bounds(**({"p0": 0.5, "p1": 0.1} | given)))
settings(pf.do, lambda **given: pf.do(**({"program": program, "values": {"A": 1}} | given)))
settings(pf.simulate.scenario, lambda **given: pf.simulate.scenario(**given), besides="parameters")
settings(pf.simulate.Scenario.draw, lambda **given: pf.simulate.scenario("hiring").draw(**({"n": 5} | given)))
settings(pf.datasets.load_adult, pf.datasets.load_adult, besides="path", columns="choice")
settings(pf.datasets.load_german, pf.datasets.load_german, besides="path", columns="choice")
settings(pf.datasets.Dataset.split, lambda **given: pf.datasets.load_german().split(**given))
settings(
    pf.mechanisms.families.choose_family,
    lambda **given: pf.mechanisms.families.choose_family(TABLE["M"], **given),
    besides="values weight",
)

settings(
    pf.save,
    lambda **given: pf.save(
        given.pop("obj", UNFAIR), given.pop("path", "no folder of this name/x"), **({"overwrite": False} | given)
    ),
)
settings(
    pf.load, lambda **given: pf.load(given.pop("path", "no folder of this name/x"), **given), given="mapping or none"
)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrofair.classifiers.penalized.train", must_not_run)
    monkeypatch.setattr("pyrofair.classifiers.many.train_many", must_not_run)
    monkeypatch.setattr("pyrofair.classifiers.pscf.given.fit_amortised", must_not_run)
    monkeypatch.setattr("pyrofair.mechanisms.learn.fit_mechanisms", must_not_run)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_setting_is_refused_by_name(name: str) -> None:
    call, kinds = CALLS[name]
    for setting, value in [(setting, value) for setting, kind in kinds.items() for value in WRONG[kind]]:
        with pytest.raises((ValueError, TypeError)) as caught:
            call(**{setting: value})
        text = str(caught.value)
        assert isinstance(caught.value, pf.PyrofairError), f"{setting}={value!r}: {text}"
        assert "work was done" not in text
        assert re.search(rf"\b{setting}\b", text), f"{setting}={value!r}: {text}"
        first = value[0] if isinstance(value, list) and value else value
        assert repr(value) in text or repr(first) in text or type(value).__name__ in text, f"{value!r}: {text}"


def test_constraints_refuse_what_is_out_of_range() -> None:
    for name, setting, *values in [
        ("PenalizedClassifier", "strength", -1, math.inf, True),
        ("PenalizedClassifier", "starts", 0, None, 2.5),
        ("PenalizedClassifier", "epochs", 0, True),
        ("PenalizedClassifier", "learning_rate", 0, -1, math.inf),
        ("PenalizedClassifier", "validation_fraction", 0, 1, -1),
        ("PenalizedClassifier", "patience", 0, 2.5),
        ("PenalizedClassifier", "random_state", -1, True, 2.5, 2**64),
        ("PSCF", "unfair", None, "A -> Y", GRAPH),
        ("PSCF", "samples", 0, -1, 2.5),
        ("PSCF", "mmd", -1, None, math.inf),
        ("PSCF", "latents", "no", None, 1),
        ("PSCF", "coupling", "no", None, 1),
        ("PSCF", "decisions", "no", 1),
        ("PSCF", "own_noise", 0, -1, math.inf),
        ("PSCF", "progress", "no", 1, 0, None),
        ("PSCF", "learning_rate", 0, None, math.inf),
    ]:
        refused = WRONG[f"{name}.{setting}"]
        assert all(any(type(value) is type(each) and value == each for each in refused) for value in values), setting


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", [name for name, (_, kinds) in CALLS.items() if "seed" in kinds.values()])
def test_a_generator_is_taken_wherever_a_seed_is(name: str) -> None:
    """Either there is a result, or what fails is the work, after all settings were read."""
    for seed in (np.random.default_rng(0), np.random.RandomState(0), np.int64(3), None):
        failure = ""
        try:
            CALLS[name][0](random_state=seed)
        except (AssertionError, pf.PyrofairError) as error:
            failure = str(error)
        assert failure == "" or "work was done before the setting was read" in failure
