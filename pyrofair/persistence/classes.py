"""The closed list of what a file can hold besides data: classes by their fields, and what is made again of them."""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from pyrofair import effects
from pyrofair._validation import check_settings
from pyrofair.classifiers.pscf.networks import LatentSEM, encoders_of
from pyrofair.classifiers.pscf.replay import read_plan
from pyrofair.classifiers.training import make_module
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identify import identify
from pyrofair.graph.parse import EdgeList
from pyrofair.mechanisms.learn import learn_mechanisms
from pyrofair.persistence.codec import Code, NotGiven
from pyrofair.persistence.data import Kind
from pyrofair.persistence.programs import compare_programs, describe_program
from pyrofair.persistence.trees import make_boosted, take_boosted
from pyrofair.persistence.types import require_types
from pyrofair.sources.gformula import MechanismGraph
from pyrofair.tables.encoder import TableEncoder

__all__ = ["CLASSES", "KINDS", "TOP", "find_kind", "from_skops"]

State = dict[str, Any]
CLASSES = {
    "audits.penalty_path": "PenaltyPath",
    "classifiers.penalized": "PenalizedClassifier",
    "classifiers.pscf.classifier": "PSCF",
    "classifiers.pscf.networks": "FixedSpread",
    "effects.potential_outcomes": "GroupSize",
    "graph.causal_graph": "CausalGraph",
    "graph.identification": "Estimand",
    "graph.paths": "PathSet UnfairPaths",
    "inference.posterior": "Posterior",
    "mechanisms.conditional": "ConditionalDistribution LearnedProgram Network",
    "mechanisms.families": "Binary Categorical Continuous Integer Positive",
    "mechanisms.fitting": "Fit Rows Settings",
    "mechanisms.learn": "LearnedMechanisms",
    "nuisances.columns": "Bins",
    "nuisances.crossfit": "CrossFit",
    "nuisances.diagnostics": "Cell GroupOverlap",
    "nuisances.learners": "Boosted Estimator Logistic Saturated Stacked",
    "nuisances.rows": "Nuisances Rows",
    "programs.covariates": "ProgramWithCovariates",
    "robustness.miles": "MilesBounds",
    "robustness.several": "Several",
    "robustness.sensitivity.switching.training": "SwitchingBounds",
    "sources.contrasts": "Contrasts",
    "sources.gcomputation": "GComputation SplitMechanisms",
    "sources.ipw": "IPW",
    "sources.onestep": "OneStep",
    "sources.sem": "SEM",
    "tables.encoder": "TableEncoder",
}
"""The classes of the package that a file can name, by module. A dataclass is saved by its fields; another class by its
settings, the attributes that its annotations name, and those whose names end in ``_``."""
TOP = ("CausalGraph", "UnfairPaths", "IPW", "OneStep", "GComputation", "SEM", "MilesBounds", "SwitchingBounds",
       "Contrasts", "Several", "LearnedMechanisms", "Posterior", "PenalizedClassifier", "PSCF",
       "PenaltyPath")  # fmt: skip
"""Those that are saved by themselves."""
LEFT_OUT = {
    "CrossFit": "_design _parts", "Estimand": "baseline switched", "GComputation": "graph_", "Nuisances": "matches",
    "OneStep": "_form", "PSCF": "plan_ sem_ guide_ _read", "PenalizedClassifier": "source_ module_",
    "nuisances.rows.Rows": "probability views", "SEM": "_read", "TableEncoder": "one_hot_",
}  # fmt: skip
"""The attributes that are made again, and caches."""
BESIDES = {"OneStep": "form_name", "PSCF": "networks", "PenalizedClassifier": "module",
           "ProgramWithCovariates": "made", "SEM": "_given"}  # fmt: skip
"""Names in a file other than these: of what attributes that are left out are made again, and ``_given``."""
PENALTIES = (effects.disagreement, effects.effect_gap, effects.interval_disagreement, effects.piu_upper)
FUNCTIONS = {each.__name__: each for each in (*PENALTIES, learn_mechanisms)}
"""The functions that a file can name."""


# -- any class ---------------------------------------------------------------------------------------------------------


def _names_of(of: type, name: str) -> tuple[list[str], set[str], set[str]]:
    """Return the names that the state of an object must have, others that it may have, and attributes left out."""
    left_out = {*LEFT_OUT.get(name, LEFT_OUT.get(of.__name__, "")).split()}
    besides = {*BESIDES.get(of.__name__, "").split()}
    if is_dataclass(of):
        return [each.name for each in fields(of) if each.init and each.name not in left_out], besides, left_out
    annotated = {each for base in of.__mro__ for each in vars(base).get("__annotations__", ())}
    return [*inspect.signature(of).parameters], besides | annotated, left_out


def _is_fitted(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _take(name: str, value: Any) -> State:
    of = type(value)
    needed, allowed, left_out = _names_of(of, name)
    state = {each: one for each, one in vars(value).items() if each not in left_out}
    if is_dataclass(of):
        state = {each: state[each] for each in needed}
    elif unknown := [each for each in state if each not in {*needed, *allowed} and not _is_fitted(each)]:
        raise DataError(f"the attribute {unknown[0]!r} of {of.__name__} is not known here, and would be lost.")
    return TAKE[of.__name__](value, state) if of.__name__ in TAKE else state


def _make(name: str, of: type, /, **state: Any) -> Any:
    """Return an object of its attributes, whose constructor is not called, or of the fields of a dataclass."""
    needed, allowed, left_out = _names_of(of, name)
    known = {*needed, *allowed} - left_out
    unknown = [each for each in state if each not in known and (is_dataclass(of) or not _is_fitted(each))]
    if unknown or (missing := [each for each in needed if each not in state]):
        raise ValueError(f"it has a state named {unknown[0]!r}" if unknown else f"it lacks {missing[0]!r}")
    require_types(of, state, NotGiven)
    if is_dataclass(of):
        made: Any = MAKE.get(of.__name__, of)(**state)
    else:
        made = object.__new__(of)
        made.__dict__.update(state)
        check_settings(made, getattr(sys.modules[of.__module__], "CONSTRAINTS", {}))
    AFTER.get(name, AFTER.get(of.__name__, lambda _: None))(made)
    return made


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


# -- graphs and sources ------------------------------------------------------------------------------------------------


def _make_graph(nodes: Any, edges: Any, latent: Any, column_map: Any, **roles: Any) -> CausalGraph:
    """Return a graph by its constructor, which refuses what is none."""
    made = CausalGraph(EdgeList(nodes, edges, latent), columns=dict(column_map), latent=latent, **roles)
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


def _after_onestep(source: Any) -> None:
    if (name := vars(source).pop("form_name", None)) is not None:
        _require(name in ("prefix", "graph"), f"it has the form {name!r}")
        source._form = source._make_form(name)


def _after_gcomputation(source: Any) -> None:
    if hasattr(source, "estimand_"):
        source.graph_ = MechanismGraph.of(source.estimand_)


def _check_rows(rows: Any) -> None:
    parts = [rows.a, rows.weight, rows.kept, *(each for each in (rows.position, rows.groups) if each is not None)]
    own = all(each.shape == (len(rows.table),) for each in parts) and np.isfinite(rows.weight).all()
    _require(bool(own), "the parts of its rows do not belong together")


def _check_miles(source: Any) -> None:
    """Refuse rows or nodes that no fit leaves: the rows are read again."""
    if "table_" in vars(source):
        with warnings.catch_warnings(action="ignore"):
            again = copy.copy(source).fit(source.table_, source.weight_)
        own = (source.witness_, source.mediator_) == (again.witness_, again.mediator_)
        _require(own and np.array_equal(again.weight_, source.weight_), "its rows are not those of a fit")


def _make_covariates(program: Any, table: Any, made: Any) -> Any:
    from pyrofair.programs.covariates import ProgramWithCovariates

    found = ProgramWithCovariates(program, table)
    compare_programs("program", made, found)
    return found


# -- encoders, estimators and modules ----------------------------------------------------------------------------------


def _after_encoder(encoder: TableEncoder) -> None:
    """Make the encoder of categories again, and refuse an encoder that does not turn a row into numbers."""
    if "numeric_" not in vars(encoder):
        return
    if encoder.categories_:
        encoder.one_hot_ = encoder._one_hot()
    _require(all(each.is_unique for each in encoder.categories_.values()), "its encoder has a category twice")
    held = {name: np.zeros(1) for name in encoder.numeric_}
    row = pd.DataFrame(held | {name: levels[:1] for name, levels in encoder.categories_.items()})
    _require(bool(np.isfinite(encoder.transform(row)).all()), "its encoder does not encode its own columns")


def _check_linear(model: Any) -> None:
    """Refuse numbers of a standardiser or a linear model that are not one for each column."""
    for name in ("mean_", "var_", "scale_", "coef_"):
        if (each := vars(model).get(name)) is not None:
            own = each.shape[-1:] == (model.n_features_in_,) and np.isfinite(each).all()
            _require(bool(own), f"its {name} is not one number for each column")


TRUSTED = ["sklearn.tree._tree.Tree"]
"""The compiled types that skops writes besides those it knows; only files that are trusted are read with them."""


def _to_skops(value: Any) -> State:
    """Return an estimator of scikit-learn as skops writes it."""
    name, skops = type(value).__name__, _skops()
    try:
        data = skops.dumps(value)
        unknown = sorted({*skops.get_untrusted_types(data=data)} - {*TRUSTED})
    except Exception as error:  # skops has several errors for what it cannot write
        raise DataError(f"the estimator {name} cannot be written by skops: {error}") from error
    if unknown:
        raise DataError(
            f"the estimator {name} holds {', '.join(unknown)}, which is code. Fit one of scikit-learn's own."
        )
    return {"data": np.frombuffer(data, dtype=np.uint8)}


def from_skops(data: Any) -> Any:
    """Return an estimator that skops wrote, if it is of scikit-learn's own types alone."""
    with ZipFile(BytesIO(data.tobytes())) as archive:
        _require(sum(each.file_size for each in archive.infolist()) <= len(data), "its estimator is compressed")
    return _skops().loads(data.tobytes(), trusted=TRUSTED)


def _skops() -> Any:
    try:
        return import_module("skops.io")
    except ImportError:
        raise DataError("skops writes and reads other estimators: pip install 'pyrofair[save]'.") from None


def _refuse_skops(data: Any) -> Any:
    raise DataError(
        "The file holds an estimator of scikit-learn that skops wrote, whose compiled parts are not checked. If you "
        "trust the file, load it with skops=True."
    )


LAYERS = (nn.Linear, nn.LayerNorm, nn.BatchNorm1d, nn.Sigmoid, nn.Tanh, nn.ReLU, nn.SiLU, nn.Identity, nn.GELU, nn.ELU,
          nn.LeakyReLU, nn.Softplus, nn.Dropout, nn.Sequential)  # fmt: skip
"""The layers that are saved whole; another module's numbers are, and its code is given again."""
PARTS = ("_parameters", "_buffers", "_modules")
OWN = {*vars(nn.Module())}
"""The attributes that each module has: its parts, and hooks."""


def _is_known(module: Any) -> bool:
    """Return whether a module is a layer, or a sequence of them, with nothing hooked to it."""
    hooked = any(vars(module)[name] for name in OWN if name.endswith("_hooks")) or hasattr(module, "parametrizations")
    return type(module) in LAYERS and not hooked and all(map(_is_known, module.children()))


def _take_layer(module: Any) -> State:
    if not _is_known(module):
        raise DataError(f"a {type(module).__name__} of other layers, or with hooks, cannot be saved by itself.")
    state = {name: each for name, each in vars(module).items() if name not in OWN or name == "training"}
    return {"attributes": state, **{name: dict(vars(module)[name]) for name in PARTS}}


def _make_layer(of: type, /, attributes: State, **parts: State) -> Any:
    made: Any = object.__new__(of)
    nn.Module.__init__(made)
    _require(not any(hasattr(of, name) or name in PARTS for name in attributes), "a layer has another's attributes")
    made.__dict__.update(attributes)
    for name, each in parts["_parameters"].items():
        made.register_parameter(name, None if each is None else nn.Parameter(each))
    for name, each in parts["_buffers"].items():
        made.register_buffer(name, each)
    for name, each in parts["_modules"].items():
        _require(type(each) in LAYERS, "it has a layer that is none")
        made.add_module(name, each)
    return made


# -- classifiers -------------------------------------------------------------------------------------------------------


def _unfitted(source: Any) -> Any:
    """Return a source of the package with its settings alone, so that no row is in the file of a classifier."""
    if isinstance(source, dict):
        return {name: _unfitted(each) for name, each in source.items()}
    if type(source) not in KINDS:
        return source
    made = object.__new__(type(source))
    names = inspect.signature(type(source)).parameters
    made.__dict__.update({name: getattr(source, name) for name in names})
    made.__dict__.update({name: _unfitted(getattr(source, name)) for name in ("source", "sources") if name in names})
    return made


def _width(encoder: Any) -> int | None:
    """Return the number of encoded features, where it is known: a function of it makes the module again."""
    return getattr(encoder, "width_", None) or (
        len(encoder.get_feature_names_out()) if hasattr(encoder, "get_feature_names_out") else None
    )


def _take_penalized(classifier: Any, state: State) -> State:
    """Leave out the fitted source, and with it all rows; a module of code of the user's is its numbers."""
    module, model = vars(classifier).get("module_"), state["model"]
    known = module is None or _is_known(module)
    if not isinstance(model, str) and not (isinstance(model, nn.Module) and _is_known(model)):
        model = Code("model", model, not known)
    state |= {"device": str(classifier.device), "source": _unfitted(classifier.source), "model": model}
    if module is None:
        return state
    module = copy.deepcopy(module).cpu()
    return state | {"module": module if known else [_width(classifier.encoder_), dict(module.state_dict())]}


def _after_penalized(made: Any) -> None:
    _require(torch.device(made.device).type != "meta", "its device holds no numbers")
    if made.device != "cpu" and not torch.get_device_module(made.device).is_available():
        made.device = "cpu"
    module = vars(made).pop("module", None)
    if module is None:
        return
    width = _width(made.encoder_)
    if isinstance(module, list):
        module = _given_module(made.model, *module)
    elif width is not None:
        module(torch.zeros(2, width, dtype=next(module.parameters()).dtype))  # which fails if its layers do not fit
    made.module_, made.source_ = module.eval().to(made.device), None


def _given_module(model: Any, width: int | None, numbers: State) -> Any:
    """Return the module of code that was given again, with the numbers that were trained."""
    if width is None and not isinstance(model, nn.Module):
        raise DataError("given['model'] must be a torch module: how many features its encoder makes is not known.")
    built = make_module(model, width or 0)
    found, expected = (", ".join(f"{name} {tuple(each.shape)}" for name, each in held.items())
                       for held in (built.state_dict(), numbers))  # fmt: skip
    if expected != found:
        raise DataError(f"given['model'] has other numbers than the module saved: {found}, not {expected}.")
    built.load_state_dict(numbers, assign=True)
    return built


def _take_pscf(classifier: Any, state: State) -> State:
    if classifier.model is not None:
        raise DataError(
            "PSCF with a given model= holds the program that was fitted, which is code. Save what the model is made "
            "of, pyrofair.save(learned_mechanisms, ...) or the SEM with its posterior, and fit PSCF on it again with "
            "the same random_state; parameters_ holds the numbers that were fitted."
        )
    if "sem_" not in vars(classifier):
        return state
    model, guide = classifier.sem_, classifier.guide_
    sizes = [network.body[0].out_features for network in model.networks if network.body is not None]
    how = {"drawn_from": model.drawn_from, "hidden": sizes[0] if sizes else 1}
    numbers = [dict(each.state_dict()) for each in (model, guide)]
    return state | {"networks": {"latents": model.latents, "how": how, "numbers": numbers}}


def _after_pscf(made: Any) -> None:
    if (networks := vars(made).pop("networks", None)) is None:
        return
    graph = made.unfair.graph
    made.plan_ = read_plan(replace(made.unfair, graph=graph.coded()))
    with torch.device("meta"):  # sizes take no memory before they are those of the arrays
        made.sem_ = LatentSEM(graph, made.families_, networks["latents"], **networks["how"])
        made.guide_ = encoders_of(made.sem_)
    for module, numbers in zip((made.sem_, made.guide_), networks["numbers"], strict=True):
        module.load_state_dict(numbers, assign=True)
        module.eval()
    made._read = ()


# -- all of them -------------------------------------------------------------------------------------------------------

TAKE: dict[str, Callable[[Any, State], State]] = {
    "OneStep": lambda source, state: state | ({"form_name": source.form_} if hasattr(source, "_form") else {}),
    "PSCF": _take_pscf,
    "PenalizedClassifier": _take_penalized,
    "ProgramWithCovariates": lambda program, state: state | {"made": describe_program(program)},
}
"""What is changed of the state of an object before it is written."""
MAKE: dict[str, Callable[..., Any]] = {
    "CausalGraph": _make_graph,
    "Estimand": identify,
    "ProgramWithCovariates": _make_covariates,
}
"""What makes an object of its fields other than its class."""
AFTER: dict[str, Callable[[Any], None]] = {
    "GComputation": _after_gcomputation, "LogisticRegression": _check_linear, "MilesBounds": _check_miles,
    "OneStep": _after_onestep, "PSCF": _after_pscf, "PathSet": _check_paths, "PenalizedClassifier": _after_penalized,
    "StandardScaler": _check_linear, "TableEncoder": _after_encoder, "UnfairPaths": _check_unfair,
    "nuisances.rows.Rows": _check_rows,
}  # fmt: skip
"""What is made again of an object's attributes, and what refuses those that do not belong together."""


def _kind(name: str, of: type) -> Kind:
    return Kind(name, of, partial(_take, name), partial(_make, name, of))


_OWN = ((f"{module}.{name}", getattr(import_module(f"pyrofair.{module}"), name))
        for module, names in CLASSES.items() for name in names.split())  # fmt: skip
_PARTIAL = ("func", "args", "keywords")
KINDS: dict[type, Kind] = {
    **{of: _kind(name, of) for name, of in _OWN},
    **{of: _kind(of.__name__, of) for of in (StandardScaler, LogisticRegression, Pipeline)},
    **{of: Kind(f"torch.{of.__name__}", of, _take_layer, partial(_make_layer, of)) for of in LAYERS},
    HistGradientBoostingClassifier: Kind("boosted", HistGradientBoostingClassifier, take_boosted, make_boosted),
    partial: Kind("partial", partial, lambda of: {name: getattr(of, name) for name in _PARTIAL},
                  lambda func, args, keywords: partial(func, *args, **keywords)),
    type(learn_mechanisms): Kind("function", type(learn_mechanisms), lambda of: {"name": of.__name__},
                                 lambda name: FUNCTIONS[name]),
    BaseEstimator: Kind("skops", BaseEstimator, _to_skops, _refuse_skops),
}  # fmt: skip
"""All that a file can name besides data, by class; any other estimator of scikit-learn is written by skops."""


def find_kind(value: Any) -> Kind | None:
    """Return the kind of an object, None for data, and for code and objects that no file holds."""
    function = getattr(value, "func", None) if type(value) is partial else value
    if inspect.isfunction(function) or type(value) is partial:
        return KINDS[type(value)] if function in FUNCTIONS.values() else None
    if isinstance(value, BaseEstimator) and not type(value).__module__.startswith("pyrofair."):
        return KINDS.get(type(value), KINDS[BaseEstimator])
    return KINDS.get(type(value))
