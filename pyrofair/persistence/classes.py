"""The closed list of what a file can hold besides data: classes by their attributes, and what is made again of them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass, replace
from functools import cache, cached_property, partial
from importlib import import_module
from itertools import chain
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from torch import nn

from pyrofair._validation import check_settings, shown
from pyrofair.classifiers.penalized import PENALTIES
from pyrofair.classifiers.pscf.networks import LatentSEM, encoders_of
from pyrofair.classifiers.pscf.replay import read_plan
from pyrofair.classifiers.training import make_module
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identify import identify
from pyrofair.graph.parse import EdgeList
from pyrofair.mechanisms.learn import learn_mechanisms
from pyrofair.persistence.data import Kind
from pyrofair.persistence.programs import compare_programs, describe_program
from pyrofair.persistence.trees import restore_boosted, take_boosted
from pyrofair.programs.covariates import ProgramWithCovariates
from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.reading import feature_columns

__all__ = ["CLASSES", "KINDS", "TOP", "find_kind", "refuse_skops"]

State = dict[str, Any]
TOP = ("CausalGraph", "UnfairPaths", "IPW", "OneStep", "GComputation", "SEM", "MilesBounds",
       "Contrasts", "Several", "LearnedMechanisms", "Posterior", "PenalizedClassifier", "PSCF",
       "PenaltyPath")  # fmt: skip
"""The public classes that are saved by themselves."""
CLASSES = {
    "pyrofair": " ".join(TOP),
    "pyrofair.classifiers.pscf.networks": "FixedSpread",
    "pyrofair.effects.potential_outcomes": "GroupSize",
    "pyrofair.graph.identification": "Estimand",
    "pyrofair.graph.paths": "PathSet",
    "pyrofair.mechanisms.conditional": "ConditionalDistribution LearnedProgram Network",
    "pyrofair.mechanisms.families": "Atoms Binary Bounded Categorical Continuous Integer Positive",
    "pyrofair.mechanisms.fitting": "Fit Rows Settings",
    "pyrofair.nuisances.columns": "Bins",
    "pyrofair.nuisances.crossfit": "CrossFit",
    "pyrofair.nuisances.diagnostics": "Cell GroupOverlap",
    "pyrofair.nuisances.learners": "Boosted Estimator Logistic Saturated Stacked",
    "pyrofair.nuisances.rows": "Nuisances Rows",
    "pyrofair.programs.covariates": "ProgramWithCovariates",
    "pyrofair.sources.gcomputation": "SplitMechanisms",
    "pyrofair.sources.mechanism_graph": "MechanismGraph",
    "pyrofair.tables.encoder": "TableEncoder",
    "sklearn.ensemble": "HistGradientBoostingClassifier",
    "sklearn.linear_model": "LogisticRegression",
    "sklearn.pipeline": "Pipeline",
    "sklearn.preprocessing": "StandardScaler",
}
"""The classes that a file can name, by module. A dataclass is saved by its fields, which its constructor takes; an
object of another class by its attributes, without those that its ``__getstate__`` leaves out. The constructor of such a
class is not called."""
FUNCTIONS = PENALTIES | {"learn_mechanisms": learn_mechanisms}
"""The functions that a file can name."""


# -- any class ---------------------------------------------------------------------------------------------------------


def _take(value: Any) -> State:
    of = type(value)
    state = value.__getstate__() if of.__module__.startswith("pyrofair.") else vars(value)
    if is_dataclass(of):
        state = {each.name: state[each.name] for each in fields(of) if each.init}
    else:
        state = {name: each for name, each in state.items() if not isinstance(getattr(of, name, None), cached_property)}
    return TAKE[of.__name__](value, state) if of.__name__ in TAKE else state


def _make(of: type, /, **state: Any) -> Any:
    if is_dataclass(of):
        made: Any = MAKE.get(of.__name__, of)(**state)
    else:
        _require({*inspect.signature(of).parameters} <= {*state}, "it lacks a setting")
        _require(not any(callable(getattr(of, name, None)) for name in state), "it has a value in place of a method")
        made = object.__new__(of)
        made.__dict__.update(state)
        if any(name.endswith("_") for name in state):  # of an object that is not fitted, fit will check the settings
            check_settings(made, getattr(import_module(of.__module__), "CONSTRAINTS", {}))
    RESTORE.get(of.__name__, lambda _: None)(made)
    hints, held = _hints(of), state if is_dataclass(of) else vars(made)
    for name in {*hints} & {*held}:
        _require(_fits(held[name], hints[name]), f"{of.__name__}.{name} is {shown(held[name])}")
    return made


@cache
def _hints(of: type) -> dict[str, Any]:
    """Return the annotated types of a class's fields or attributes, without those that exist for checkers alone."""
    found: dict[str, Any] = {}
    for each in of.__mro__ if of.__module__.startswith("pyrofair.") else ():
        for name, text in vars(each).get("__annotations__", {}).items():
            with contextlib.suppress(NameError, TypeError):
                one = SimpleNamespace(__annotations__={name: text})
                found = get_type_hints(one, vars(import_module(each.__module__))) | found
    return found


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of an annotated type; what can be called, as what stands for code, counts as any."""
    of, inner = get_origin(hint), get_args(hint)
    if of in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if of is Literal:
        return value in inner
    kind: Any = {float: (int, float, np.number), int: (int, np.integer)}.get(hint, of or hint)
    known = isinstance(kind, type | tuple) and kind is not Any and not getattr(kind, "_is_protocol", False)
    if not known or callable(value):
        return True
    if not isinstance(value, kind):
        return False
    if of is tuple and inner and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items())
    return not (isinstance(value, list | tuple | Set) and inner) or all(_fits(each, inner[0]) for each in value)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


# -- graphs and sources ------------------------------------------------------------------------------------------------


def _make_graph(nodes: Any, edges: Any, latent: Any, column_map: Any, label_map: Any = (), **roles: Any) -> CausalGraph:
    """Return a graph by its constructor, which refuses what is none of texts."""
    names = [*nodes, *latent, *chain.from_iterable(edges), roles["sensitive"], roles["outcome"]]
    _require(all(isinstance(each, str) for each in names), "its graph has a name that is no text")
    _require({*names} == {*nodes} and len({*nodes}) == len(nodes), "its graph has other nodes than those it lists")
    settings = {"columns": dict(column_map), "latent": latent, "labels": dict(label_map)}
    made = CausalGraph(EdgeList(nodes, edges, latent), **settings, **roles)
    _require((made.latent, made.column_map) == (latent, column_map), "its graph is not the one that was saved")
    return made


def _check_paths(paths: Any) -> None:
    forward = all(0 <= each < at for at, (_, following) in enumerate(paths.states) for each in following)
    _require(forward, "its paths do not go forward")


def _check_unfair(unfair: Any) -> None:
    """Refuse unfair paths if a step of their automaton is not an edge of the graph."""
    graph, states = unfair.graph, unfair.paths.states
    steps = {(node, states[each][0]) for node, following in states for each in following}
    ends = not states or (states[0] == (graph.outcome, ()) and states[-1][0] == graph.sensitive)
    _require(ends and steps <= {*graph.edges}, "its unfair paths are none of the graph")


def _check_nuisances(nuisances: Any) -> None:
    """Refuse rows that are not as many as their groups and weights, or that lack a column of the graph."""
    rows, clip = nuisances.rows, nuisances.clip
    _require(clip is None or 0.0 < clip < 0.5, f"its clip is {shown(clip)}")
    _require({len(rows.table)} == {len(each) for each in (rows.a, rows.weight, rows.kept)}, "its rows are not as many")
    _require({*feature_columns(nuisances.graph)} <= {*rows.table.columns}, "its rows lack a column of the graph")


def _check_ipw(source: Any) -> None:
    if {"nuisances_", "trimmer_", "candidates_", "groups_"} & {*vars(source)}:
        names = {each.regime.name for each in source._parts()}
        _require(hasattr(source, "trimmer_"), "it lacks a part of its fit")
        _require({*source.groups_} == names == {each.regime for each in source.candidates_}, "it has other worlds")


def _restore_onestep(source: Any) -> None:
    if "nuisances_" in vars(source):
        name = vars(source).pop("_form", None)
        _require(name in ("prefix", "graph"), f"it has the form {name!r}")
        source._form = source._make_form(name)


def _make_covariates(program: Any, table: Any, made: Any) -> ProgramWithCovariates:
    found = ProgramWithCovariates(program, table)
    compare_programs("program", made, found)
    return found


# -- encoders and estimators -------------------------------------------------------------------------------------------


def _restore_encoder(encoder: Any) -> None:
    """Make the encoder of categories again, and refuse an encoder that does not turn a row into numbers."""
    if "numeric_" not in vars(encoder):
        return
    if encoder.categories_:
        encoder.one_hot_ = encoder._one_hot()
    columns = [*encoder.numeric_, *encoder.categories_]
    _require(len({*columns}) == len(columns), "its encoder has a column twice")
    _require(all(each.is_unique for each in encoder.categories_.values()), "its encoder has a category twice")
    for each in (encoder.scaler_.mean_, encoder.scaler_.scale_) if encoder.numeric_ else ():
        _require(each.shape == (len(encoder.numeric_),), "its encoder has other columns of numbers")
    _require(bool(np.isfinite(encoder.transform(_row_of(encoder))).all()), "its encoder does not encode its columns")


def _row_of(encoder: Any) -> pd.DataFrame:
    held: dict[str, Any] = {name: np.zeros(1) for name in encoder.numeric_}
    held |= {name: levels[:1] for name, levels in encoder.categories_.items()}
    held |= {name: [None] for name in encoder.fills_}
    return pd.DataFrame({name: held[name] for name in encoder.reads_})


TRUSTED = ["sklearn.tree._tree.Tree"]
"""The compiled types that skops writes besides those it knows; only files that are trusted are read with them."""


def _skops() -> Any:
    try:
        return import_module("skops.io")
    except ImportError:
        raise DataError("skops writes and reads other estimators: pip install 'pyrofair[save]'.") from None


def _to_skops(value: Any) -> State:
    """Return an estimator of scikit-learn as skops writes it."""
    name, skops = type(value).__name__, _skops()
    try:
        data = skops.dumps(value)
    except Exception as error:  # skops has several errors for what it cannot write
        raise DataError(f"the estimator {name} cannot be written by skops: {error}") from error
    if unknown := {*skops.get_untrusted_types(data=data)} - {*TRUSTED}:
        raise DataError(f"the estimator {name} holds {', '.join(unknown)}, which is code. Fit one of scikit-learn's.")
    return {"data": np.frombuffer(data, dtype=np.uint8)}


def _from_skops(data: Any) -> Any:
    return _skops().loads(data.tobytes(), trusted=TRUSTED)


def refuse_skops(data: Any) -> Any:
    """Refuse what skops wrote."""
    what = "The file holds an estimator of scikit-learn that skops wrote, whose compiled parts are not checked"
    raise DataError(f"{what}. If you trust the file, load it with skops=True.")


# -- classifiers -------------------------------------------------------------------------------------------------------


def _unfitted(source: Any) -> Any:
    """Return a source of the package with its settings alone, so that no row is in the file of a classifier."""
    if isinstance(source, dict):
        return {name: _unfitted(each) for name, each in source.items()}
    if type(source) not in KINDS:
        return source
    made = object.__new__(type(source))
    for name in inspect.signature(type(source)).parameters:
        value = getattr(source, name)
        made.__dict__[name] = _unfitted(value) if name in ("source", "sources") else value
    return made


def _take_penalized(classifier: Any, state: State) -> State:
    """Leave out the fitted source, and with it all rows."""
    if "module_" in state:
        state = state | {"module_": _numbers(classifier.module_), "source_": None}
    return state | {"device": str(classifier.device), "source": _unfitted(classifier.source)}


def _restore_penalized(made: Any) -> None:
    _require(torch.device(made.device).type != "meta", "its device holds no numbers")
    if made.device != "cpu" and not torch.get_device_module(made.device).is_available():
        made.device = "cpu"
    if (numbers := vars(made).get("module_")) is None:
        return
    encoder = made.encoder_
    width = getattr(encoder, "width_", None)
    if width is None and hasattr(encoder, "get_feature_names_out"):
        width = len(encoder.get_feature_names_out())
    if width is None and not isinstance(made.model, nn.Module):
        raise DataError("given['model'] must be a torch module: how many features its encoder makes is not known.")
    # Of the package's own networks sizes take no memory before they are those of the arrays.
    with torch.device("meta") if isinstance(made.model, str) else contextlib.nullcontext():
        module = make_module(made.model, width or 0)
    found, expected = (", ".join(f"{name} {tuple(each.shape)}" for name, each in held.items())
                       for held in (module.state_dict(), numbers))  # fmt: skip
    if expected != found:
        raise DataError(f"given['model'] has other numbers than the module saved: {found}, not {expected}.")
    made.module_ = _with_numbers(module, numbers).to(made.device)
    if isinstance(encoder, TableEncoder) and isinstance(made.model, str):
        _require(made.predict_proba(_row_of(encoder)).shape == (1, len(made.classes_)), "it predicts no probabilities")


def _take_pscf(classifier: Any, state: State) -> State:
    if classifier.model is not None:
        raise DataError(
            "PSCF with a given model= holds the program that was fitted, which is code. Save the learned mechanisms, "
            "or the SEM with its posterior, and fit PSCF on it again with the same random_state."
        )
    state = state | {"device": str(classifier.device)}
    if "sem_" not in state:
        return state
    sem: Any = classifier.sem_
    sizes = [network.body[0].out_features for network in sem.networks if network.body is not None]
    how = {"latents": sem.latents, "drawn_from": sem.drawn_from, "hidden": sizes[0] if sizes else 1}
    return state | {"plan_": None, "sem_": [how, _numbers(sem)], "guide_": _numbers(classifier.guide_)}


def _restore_pscf(made: Any) -> None:
    if "sem_" not in vars(made):
        return
    (how, numbers), graph = made.sem_, made.unfair.graph
    made.plan_ = read_plan(replace(made.unfair, graph=graph.coded()))
    with torch.device("meta"):  # sizes take no memory before they are those of the arrays
        sem = LatentSEM(graph, made.families_, **how)
        guide = encoders_of(sem)
    made.sem_, made.guide_ = _with_numbers(sem, numbers), _with_numbers(guide, made.guide_)
    made._read = ()


def _numbers(module: nn.Module) -> State:
    return {name: each.cpu() for name, each in module.state_dict().items()}


def _with_numbers(module: nn.Module, numbers: State) -> nn.Module:
    module.load_state_dict(numbers, assign=True)
    return module.eval()


# -- all of them -------------------------------------------------------------------------------------------------------

TAKE: dict[str, Callable[[Any, State], State]] = {
    "Estimand": lambda estimand, _: {"unfair": estimand.unfair, "target": estimand.target},
    "GComputation": lambda source, state: state | {"device": str(source.device)},
    "HistGradientBoostingClassifier": take_boosted,
    "OneStep": lambda source, state: state | ({"_form": source.form_} if "_form" in state else {}),
    "PSCF": _take_pscf,
    "PenalizedClassifier": _take_penalized,
    "ProgramWithCovariates": lambda program, state: state | {"made": describe_program(program)},
    "TableEncoder": lambda _, state: {name: each for name, each in state.items() if name != "one_hot_"},
}
"""What is changed of the state of an object before it is written."""
MAKE: dict[str, Callable[..., Any]] = {
    "CausalGraph": _make_graph, "Estimand": identify, "ProgramWithCovariates": _make_covariates
}  # fmt: skip
"""What makes an object of its fields other than its class."""
RESTORE: dict[str, Callable[[Any], None]] = {
    "HistGradientBoostingClassifier": restore_boosted, "IPW": _check_ipw, "Nuisances": _check_nuisances,
    "OneStep": _restore_onestep, "PSCF": _restore_pscf, "PathSet": _check_paths,
    "PenalizedClassifier": _restore_penalized, "TableEncoder": _restore_encoder, "UnfairPaths": _check_unfair,
}  # fmt: skip
"""What makes again what was left out, and refuses attributes that do not belong together."""


_PARTIAL = ("func", "args", "keywords")
KINDS: dict[type, Kind] = {
    partial: Kind("partial", partial, lambda of: {name: getattr(of, name) for name in _PARTIAL},
                  lambda func, args, keywords: partial(func, *args, **keywords)),
    type(identify): Kind("function", type(identify), lambda of: {"name": of.__name__}, lambda name: FUNCTIONS[name]),
    BaseEstimator: Kind("skops", BaseEstimator, _to_skops, _from_skops),
}  # fmt: skip
"""All that a file can name besides data, by class; any other estimator of scikit-learn is written by skops."""
for _module, _names in CLASSES.items():
    for _name in _names.split():
        _of: type = getattr(import_module(_module), _name)
        KINDS[_of] = Kind(f"{_module.removeprefix('pyrofair.')}.{_name}", _of, _take, partial(_make, _of))


def find_kind(value: Any) -> Kind | None:
    """Return the kind of an object, None for data, and for code and objects that no file holds."""
    function = getattr(value, "func", None) if type(value) is partial else value
    if inspect.isfunction(function) or type(value) is partial:
        return KINDS[type(value)] if function in FUNCTIONS.values() else None
    if isinstance(value, BaseEstimator) and not type(value).__module__.startswith("pyrofair."):
        return KINDS.get(type(value), KINDS[BaseEstimator])
    return KINDS.get(type(value))
