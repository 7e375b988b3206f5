"""The closed list of what a file can hold: for each class the state that is saved, and how an object is made of it."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from pyrofair._validation import check_settings
from pyrofair.audits.penalty_path import PenaltyPath
from pyrofair.classifiers import penalized
from pyrofair.classifiers.penalized import PenalizedClassifier
from pyrofair.classifiers.pscf import classifier as pscf
from pyrofair.classifiers.pscf.classifier import PSCF
from pyrofair.classifiers.pscf.networks import FixedSpread, LatentSEM, encoders_of
from pyrofair.classifiers.pscf.replay import read_plan
from pyrofair.classifiers.training import make_module
from pyrofair.effects import functionals
from pyrofair.effects.potential_outcomes import Bounding, GroupSize, PotentialOutcomes
from pyrofair.exceptions import DataError
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.identification import Estimand
from pyrofair.graph.identify import identify
from pyrofair.graph.parse import EdgeList
from pyrofair.graph.paths import PathSet, UnfairPaths
from pyrofair.inference.posterior import Posterior
from pyrofair.mechanisms import families, fitting
from pyrofair.mechanisms.conditional import ConditionalDistribution, LearnedProgram, Network
from pyrofair.mechanisms.learn import LearnedMechanisms
from pyrofair.nuisances import diagnostics, learners
from pyrofair.nuisances import rows as nuisance_rows
from pyrofair.nuisances.columns import Bins
from pyrofair.nuisances.crossfit import CrossFit
from pyrofair.persistence.codec import Code, Kind, Kinds, NotGiven
from pyrofair.persistence.programs import compare_programs, fingerprint
from pyrofair.persistence.trees import make_boosted, take_boosted
from pyrofair.persistence.types import require_types
from pyrofair.programs.covariates import ProgramWithCovariates
from pyrofair.robustness import miles, switching
from pyrofair.robustness.miles import MilesBounds
from pyrofair.robustness.several import Several
from pyrofair.robustness.switching import SwitchingBounds
from pyrofair.sources import gcomputation, ipw, onestep, sem
from pyrofair.sources.contrasts import Contrasts
from pyrofair.sources.gcomputation import GComputation, SplitMechanisms
from pyrofair.sources.gformula import MechanismGraph
from pyrofair.sources.graph_form import GraphForm
from pyrofair.sources.ipw import IPW
from pyrofair.sources.onestep import OneStep
from pyrofair.sources.sem import SEM
from pyrofair.tables.encoder import TableEncoder

__all__ = ["KINDS", "TOP"]

State = dict[str, Any]
FUNCTIONS = {
    name: getattr(functionals, name) for name in ("disagreement", "effect_gap", "interval_disagreement", "piu_upper")
}
"""The penalties of the package, which a file names."""


def _require(state: Mapping[str, Any], allowed: Iterable[str], needed: Iterable[str] = ()) -> None:
    if unknown := [name for name in state if name not in {*allowed}]:
        raise ValueError(f"it has a state named {unknown[0]!r}")
    if missing := [name for name in needed if name not in state]:
        raise ValueError(f"it lacks {missing[0]!r}")


def _new(of: type, state: Mapping[str, Any]) -> Any:
    """Return an object of a class with some attributes, its constructor not called."""
    made: Any = object.__new__(of)
    made.__dict__.update(state)
    return made


def _settings(of: type) -> list[str]:
    return [name for name in inspect.signature(of).parameters if name != "self"]


# -- ways to save a class ----------------------------------------------------------------------------------------------


def _value(of: type, *, drop: tuple[str, ...] = (), check: Callable[[State], bool] | None = None) -> Kind:
    """Return how a dataclass is saved: by its fields, without some that are made again; ``check`` compares them."""
    assert is_dataclass(of)
    names = [each.name for each in fields(of) if each.init and each.name not in drop]

    def make(state: State) -> Any:
        _require(state, names, names)
        require_types(of, state)
        if check is not None and not check(state):
            raise ValueError(f"the parts of its {of.__name__} do not belong together")
        return of(**state)

    return Kind(of.__name__, of, lambda value: {name: getattr(value, name) for name in names}, make)


def _attributes(
    of: type,
    names: str,
    *,
    drop: str = "",
    name: str = "",
    constraints: Mapping[str, Any] | None = None,
    after: Callable[[Any], None] | None = None,
    made_of: str | None = None,
) -> Kind:
    """Return how an object is saved by its settings and some attributes, those to ``drop`` being made again.

    ``made_of`` are the settings of a class whose constructor takes others.
    """
    settings = _settings(of) if made_of is None else made_of.split()
    allowed, left_out = {*settings, *names.split()}, {*drop.split()}

    def take(value: Any) -> State:
        state = {key: each for key, each in vars(value).items() if key not in left_out}
        if unknown := [key for key in state if key not in allowed]:
            raise DataError(f"the attribute {unknown[0]!r} of {of.__name__} is not known here, and would be lost.")
        return state

    def make(state: State) -> Any:
        _require(state, allowed, settings)
        made = _new(of, state)
        if constraints is not None:
            check_settings(made, constraints)
        if after is not None:
            after(made)
        return made

    return Kind(name or of.__name__, of, take, make)


def _estimator(of: type, names: str) -> Kind:
    """Return how an estimator of scikit-learn is saved: by its settings, and arrays of a fit."""
    fitted = names.split()

    def take(value: Any) -> State:
        found = {name: getattr(value, name) for name in fitted if name in vars(value)}
        return {"settings": value.get_params(deep=False), "fitted": found}

    def make(state: State) -> Any:
        _require(state["fitted"], fitted)
        made = of(**state["settings"])
        for name, each in state["fitted"].items():
            setattr(made, name, each)
        return made

    return Kind(of.__name__, of, take, make)


# -- graphs ------------------------------------------------------------------------------------------------------------


def _make_graph(state: State) -> CausalGraph:
    """Return a graph by its constructor, which refuses what is none."""
    nodes, latent = state["nodes"], state["latent"]
    made = CausalGraph(
        EdgeList(nodes, state["edges"], latent),
        **{name: state[name] for name in ("sensitive", "outcome", "baseline", "contrast", "positive")},
        columns={node: list(columns) for node, columns in state["column_map"]},
        latent=latent,
    )
    if any(getattr(made, each.name) != state[each.name] for each in fields(CausalGraph)):
        raise ValueError("its graph is not the one that was saved")
    return made


def _take_graph(graph: CausalGraph) -> State:
    return {each.name: getattr(graph, each.name) for each in fields(CausalGraph)}


def _make_unfair(state: State) -> UnfairPaths:
    """Return unfair paths after each step of their automaton was found in the graph."""
    graph, states = state["graph"], state["states"]
    edges = {*graph.edges}
    for at, (node, following) in enumerate(states):
        if any(not 0 <= each < at or (node, states[each][0]) not in edges for each in following):
            raise ValueError("its unfair paths are none of the graph")
    if states and (states[0] != (graph.outcome, ()) or states[-1][0] != graph.sensitive):
        raise ValueError("its unfair paths do not lead from the sensitive attribute to the outcome")
    return UnfairPaths(graph, PathSet(states), bool(state["swapped"]))


def _take_unfair(unfair: UnfairPaths) -> State:
    return {"graph": unfair.graph, "states": unfair.paths.states, "swapped": unfair.swapped}


# -- sources -----------------------------------------------------------------------------------------------------------


def _take_onestep(source: OneStep) -> State:
    state = {name: each for name, each in vars(source).items() if name != "_form"}
    if hasattr(source, "_form"):
        form = source._form
        state["form_name"] = form.name
        state["usable"] = dict(form._usable) if isinstance(form, GraphForm) else {}
    return state


def _make_onestep(state: State) -> OneStep:
    settings = _settings(OneStep)
    _require(state, [*settings, "estimand_", "nuisances_", "form_name", "usable"], settings)
    made: OneStep = _new(OneStep, {name: each for name, each in state.items() if name not in ("form_name", "usable")})
    check_settings(made, onestep.CONSTRAINTS)
    if "form_name" in state:
        made._form = form = made._make_form(("prefix", "graph")[("prefix", "graph").index(state["form_name"])])
        if isinstance(form, GraphForm):
            form._usable.update(state["usable"])
    return made


def _take_split(split: SplitMechanisms) -> State:
    """Leave out what learns, which the source makes again of its settings."""
    return {each.name: getattr(split, each.name) for each in fields(split) if each.name != "learn"}


def _make_split(state: State) -> SplitMechanisms:
    require_types(SplitMechanisms, state)
    return SplitMechanisms(learn=None, **state)


def _after_gcomputation(source: GComputation) -> None:
    if "split_" not in vars(source):
        return
    source.graph_ = MechanismGraph.of(source.estimand_)
    learn = source.learner()
    split: SplitMechanisms | None = source.split_
    seen: set[int] = set()
    while split is not None and id(split) not in seen:
        seen.add(id(split))
        object.__setattr__(split, "learn", learn)
        split = split.origin


def _check_contrasts(source: Contrasts) -> None:
    """Refuse contrasts that no fit makes; one of code that was given again is its own."""
    if not isinstance(source.source, NotGiven):
        source._check_settings()
    fitted = [name for name in ("sources_", "left_out_") if name in vars(source)]
    if fitted and not (len(fitted) == 2 and all(isinstance(getattr(source, name), dict) for name in fitted)):
        raise ValueError("its contrasts are no dictionaries")
    if fitted and not all(isinstance(each, PotentialOutcomes) for each in source.sources_.values()):
        raise ValueError("a contrast has no source")


def _check_several(source: Several) -> None:
    """Refuse sources that no fit makes; those of code that was given again are their own."""
    if isinstance(source.sources, NotGiven) or not isinstance(source.sources, dict):
        raise ValueError("its sources are no dictionary")
    if not any(isinstance(each, NotGiven) for each in source.sources.values()):
        source._check_settings()
    if "sources_" not in vars(source):
        return
    if not isinstance(source.sources_, dict) or [*source.sources_] != [*source.sources]:
        raise ValueError("its fitted sources are not those of its settings")
    for name, each in source.sources_.items():
        own = getattr(source.sources[name], "unfair", None)
        if not isinstance(each, PotentialOutcomes | Bounding) or own not in (None, each.unfair):
            raise ValueError("a fitted source is none, or of other paths")


def _check_bounds(source: MilesBounds) -> None:
    """Refuse rows or nodes that no fit leaves; both are read again."""
    fitted = [name for name in ("table_", "weight_", "witness_", "mediator_") if name in vars(source)]
    if not fitted:
        return
    if len(fitted) < 4 or not isinstance(source.table_, pd.DataFrame) or not isinstance(source.weight_, np.ndarray):
        raise ValueError("its rows are not those of a fit")
    named = source.witness_, source.mediator_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = copy.copy(source).fit(source.table_, source.weight_)
    if named != (again.witness_, again.mediator_) or not np.array_equal(again.weight_, source.weight_):
        raise ValueError("its rows or nodes are not those of a fit")


def _check_switching(source: SwitchingBounds) -> None:
    """Refuse a fitted source that is none, or of other paths."""
    if "source_" not in vars(source):
        return
    if not isinstance(source.source_, GComputation) or source.source_.unfair != source.unfair:
        raise ValueError("its fitted source is not one of its paths")


def _same_rows(state: State) -> bool:
    """Return whether the parts of a table's rows are as many as the rows."""
    n, position = len(state["table"]), state["position"]
    parts = [state[name] for name in ("a", "weight", "kept")] + ([] if position is None else [position])
    return all(each.shape == (n,) for each in parts) and bool(np.isfinite(state["weight"]).all())


def _take_covariates(program: ProgramWithCovariates) -> State:
    return {"program": Code("program", program.program, True), "table": program.table, "made": fingerprint(program)}


def _make_covariates(state: State) -> ProgramWithCovariates:
    made = ProgramWithCovariates(state["program"], dict(state["table"]))
    compare_programs("program", state["made"], made)
    return made


# -- torch modules -----------------------------------------------------------------------------------------------------

LAYERS: dict[type, str] = {
    nn.Linear: "in_features out_features bias", nn.LayerNorm: "normalized_shape eps elementwise_affine bias",
    nn.BatchNorm1d: "num_features eps momentum affine track_running_stats",
    nn.Sigmoid: "", nn.Tanh: "", nn.ReLU: "", nn.SiLU: "", nn.Identity: "", nn.GELU: "approximate",
    nn.ELU: "alpha", nn.LeakyReLU: "negative_slope", nn.Softplus: "beta threshold", nn.Dropout: "p",
}  # fmt: skip
"""The layers that are saved whole, with their settings; another module's numbers are, and its code is given again."""


def _is_known(module: nn.Module) -> bool:
    """Return whether a module is a layer, or a sequence of them, with nothing hooked to it."""
    hooked = any(vars(module).get(name) for name in ("_forward_hooks", "_forward_pre_hooks", "_parametrizations"))
    if type(module) is nn.Sequential:
        return not hooked and all(_is_known(each) for each in module)
    return not hooked and type(module) in LAYERS


def _layer(of: type, names: str) -> Kind:
    settings = names.split()

    def take(module: Any) -> State:
        if not _is_known(module):
            raise DataError(f"a {of.__name__} with hooks cannot be saved.")
        chosen = {name: getattr(module, name) for name in settings}
        if "bias" in chosen:
            chosen["bias"] = chosen["bias"] is not None
        return {"settings": chosen, "state": dict(module.state_dict()), "training": module.training}

    def make(state: State) -> Any:
        _require(state["settings"], settings, settings)
        with torch.device("meta"):  # sizes take no memory before they are those of the arrays
            made = of(**state["settings"])
        return _loaded(made, state)

    return Kind(f"torch.{of.__name__}", of, take, make)


def _loaded(module: Any, state: State) -> Any:
    """Return a module with the numbers of a state, which must have its names and shapes."""
    module.load_state_dict(state["state"], strict=True, assign=True)
    return module.train(bool(state["training"]))


def _take_sequential(module: nn.Sequential) -> State:
    if not _is_known(module):
        raise DataError("a Sequential of other layers cannot be saved by itself.")
    return {"layers": [(name, each) for name, each in module.named_children()], "training": module.training}


def _make_sequential(state: State) -> nn.Sequential:
    made = nn.Sequential()
    for name, each in state["layers"]:
        if type(each) is not nn.Sequential and type(each) not in LAYERS:
            raise ValueError("it has a layer that is none")
        made.add_module(str(name), each)
    made.training = bool(state["training"])
    return made


# -- classifiers -------------------------------------------------------------------------------------------------------

PENALIZED = "classes_ positive_ reads_ feature_names_in_ n_features_in_ seed_ encoder_ history_"


def _take_penalized(classifier: PenalizedClassifier) -> State:
    """Leave out the fitted source, and with it all rows; a module of code of the user's is its numbers."""
    state = {
        name: each for name, each in vars(classifier).items() if name not in ("source_", "module_", "source", "model")
    }
    if unknown := [name for name in state if name not in {*_settings(PenalizedClassifier), *PENALIZED.split()}]:
        raise DataError(f"the attribute {unknown[0]!r} of PenalizedClassifier is not known here, and would be lost.")
    state["device"] = str(classifier.device)
    state["source"] = _unfitted(classifier.source)
    module = vars(classifier).get("module_")
    known = module is None or _is_known(module)
    model: Any = classifier.model
    if not isinstance(model, str) and not (isinstance(model, nn.Module) and _is_known(model)):
        model = Code("model", model, not known)
    state["model"] = model
    if module is not None:
        module = copy.deepcopy(module).cpu()
        own = {"state": dict(module.state_dict()), "training": module.training, "width": _width(classifier)}
        state["module"] = module if known else own
    return state


def _unfitted(source: Any, name: str = "source") -> Any:
    """Return the settings of a source, without what it has fitted; one of code of the user's is given again by name."""
    if type(source) in SOURCES:
        return _new(type(source), {name: getattr(source, name) for name in _settings(type(source))})
    if type(source) is Contrasts:
        return Contrasts(_unfitted(source.source), contrasts=source.contrasts, over=source.over)
    if type(source) is Several and isinstance(source.sources, Mapping):
        own = {each: _unfitted(one, f"source {each!r}") for each, one in source.sources.items()}
        return Several(own, over=source.over)
    return None if source is None else Code(name, source, True)


def _width(classifier: PenalizedClassifier) -> int | None:
    """Return the number of encoded features, where it is known: a function of it makes the module again."""
    encoder = classifier.encoder_
    if isinstance(encoder, TableEncoder):
        return encoder.width_
    return len(encoder.get_feature_names_out()) if hasattr(encoder, "get_feature_names_out") else None


def _make_penalized(state: State) -> PenalizedClassifier:
    settings = _settings(PenalizedClassifier)
    _require(state, [*settings, *PENALIZED.split(), "module"], settings)
    module = state.pop("module", None)
    made: PenalizedClassifier = _new(PenalizedClassifier, state)
    made.device = _device(made.device)
    check_settings(made, penalized.CONSTRAINTS)
    if module is None:
        return made
    if not isinstance(module, nn.Module):
        if isinstance(made.model, nn.Module):
            built: Any = copy.deepcopy(made.model)
        elif module["width"] is None:
            raise DataError(
                "given['model'] must be a torch module here: how many features its encoder makes is not known."
            )
        else:
            if module["width"] != _width(made):
                raise ValueError("its module is of another width than its encoder")
            built = make_module(made.model, int(module["width"]))
        expected = {name: tuple(each.shape) for name, each in module["state"].items()}
        found = {name: tuple(each.shape) for name, each in built.state_dict().items()}
        if expected != found:
            raise DataError(
                f"given['model'] has other numbers than the module saved: {_shapes(found)}, not {_shapes(expected)}. "
                "Give the model that was trained."
            )
        module = _loaded(built, module)
    made.module_, made.source_ = module.to(made.device), None
    return made


def _device(name: str) -> str:
    """Return a device, or the processor where it is not available."""
    if torch.device(name).type == "meta":
        raise ValueError("its device holds no numbers")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        return "cpu"
    return name


def _shapes(found: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in found.items())


FITTED_PSCF = "classes_ seed_ feature_names_in_ n_features_in_ history_ elbo_ latents_ families_"


def _take_pscf(classifier: PSCF) -> State:
    left_out = ("plan_", "sem_", "guide_", "_read")
    state = {name: each for name, each in vars(classifier).items() if name not in left_out}
    if classifier.model is not None:
        raise DataError(
            "PSCF with a given model= holds the program that was fitted, which is code. Save what the model is made "
            "of, pyrofair.save(learned_mechanisms, ...) or the SEM with its posterior, and fit PSCF on it again with "
            "the same random_state; parameters_ holds the numbers that were fitted."
        )
    if unknown := [name for name in state if name not in {*_settings(PSCF), *FITTED_PSCF.split()}]:
        raise DataError(f"the attribute {unknown[0]!r} of PSCF is not known here, and would be lost.")
    if "sem_" in vars(classifier):
        sem_: Any = classifier.sem_
        sizes = [network.body[0].out_features for network in sem_.networks if network.body is not None]
        state["networks"] = {
            "latents": sem_.latents,
            "drawn_from": sem_.drawn_from,
            "hidden": sizes[0] if sizes else 1,
            "sem": dict(sem_.state_dict()),
            "guide": dict(classifier.guide_.state_dict()),
            "training": sem_.training,
        }
    return state


def _make_pscf(state: State) -> PSCF:
    settings = _settings(PSCF)
    _require(state, [*settings, *FITTED_PSCF.split(), "networks"], settings)
    networks = state.pop("networks", None)
    made: PSCF = _new(PSCF, state)
    check_settings(made, pscf.CONSTRAINTS)
    if networks is None:
        return made
    graph = made.unfair.graph
    made.plan_ = read_plan(replace(made.unfair, graph=graph.coded()))
    with torch.device("meta"):
        built = LatentSEM(
            graph,
            made.families_,
            networks["latents"],
            drawn_from=networks["drawn_from"],
            hidden=int(networks["hidden"]),
        )
        guide = encoders_of(built)
    made.sem_ = _loaded(built, {"state": networks["sem"], "training": networks["training"]})
    made.guide_ = _loaded(guide, {"state": networks["guide"], "training": networks["training"]})
    made._read = ()
    return made


# -- all of them -------------------------------------------------------------------------------------------------------


def _after_encoder(encoder: TableEncoder) -> None:
    if vars(encoder).get("categories_"):
        encoder.one_hot_ = encoder._one_hot()


SOURCES = (IPW, OneStep, GComputation, SEM, MilesBounds, SwitchingBounds)
_LOGISTIC = "classes_ coef_ intercept_ n_iter_ n_features_in_ feature_names_in_"

_ALL: list[Kind] = [
    Kind("CausalGraph", CausalGraph, _take_graph, _make_graph),
    Kind("UnfairPaths", UnfairPaths, _take_unfair, _make_unfair),
    Kind(
        "Estimand",
        Estimand,
        lambda value: {"unfair": value.unfair, "target": value.target},
        lambda state: identify(state["unfair"], state["target"]),
    ),
    _attributes(
        IPW,
        "estimand_ nuisances_ trimmer_ trimming_prefixes_ candidates_ groups_",
        constraints=ipw.CONSTRAINTS,
    ),
    Kind("OneStep", OneStep, _take_onestep, _make_onestep),
    _attributes(
        GComputation,
        "estimand_ seed_ nuisances_ split_",
        drop="graph_",
        constraints=gcomputation.CONSTRAINTS,
        after=_after_gcomputation,
    ),
    Kind("SplitMechanisms", SplitMechanisms, _take_split, _make_split),
    _attributes(SEM, "_given", drop="_read", constraints=sem.CONSTRAINTS),
    _attributes(Contrasts, "sources_ left_out_", after=_check_contrasts),
    _attributes(Several, "sources_", after=_check_several),
    _attributes(MilesBounds, "table_ weight_ witness_ mediator_", constraints=miles.CONSTRAINTS, after=_check_bounds),
    _attributes(SwitchingBounds, "source_", constraints=switching.CONSTRAINTS, after=_check_switching),
    Kind("ProgramWithCovariates", ProgramWithCovariates, _take_covariates, _make_covariates),
    _value(nuisance_rows.Nuisances, drop=("matches",)),
    replace(_value(nuisance_rows.Rows, drop=("probability", "views"), check=_same_rows), name="propensity.Rows"),
    _value(diagnostics.GroupOverlap),
    _value(diagnostics.Cell),
    _value(GroupSize),
    _attributes(CrossFit, "learner fits fitted weight", drop="_design _parts"),
    *(_value(getattr(learners, name)) for name in ("Saturated", "Logistic", "Estimator", "Boosted", "Stacked")),
    _value(Bins),
    _attributes(TableEncoder, "categories_ numeric_ scaler_", drop="one_hot_", after=_after_encoder),
    _estimator(StandardScaler, "mean_ var_ scale_ n_samples_seen_ n_features_in_ feature_names_in_"),
    _estimator(LogisticRegression, _LOGISTIC),
    _estimator(Pipeline, "feature_names_in_"),
    Kind("HistGradientBoostingClassifier", HistGradientBoostingClassifier, take_boosted, make_boosted),
    _value(LearnedMechanisms),
    replace(_value(fitting.Rows), name="mechanisms.Rows"),
    _value(fitting.Settings),
    _value(fitting.Fit),
    _value(ConditionalDistribution),
    _value(LearnedProgram),
    _value(Network),
    *(_value(getattr(families, name)) for name in ("Binary", "Categorical", "Integer", "Continuous", "Positive")),
    _value(FixedSpread),
    _value(Posterior),
    Kind("PenalizedClassifier", PenalizedClassifier, _take_penalized, _make_penalized),
    Kind("PSCF", PSCF, _take_pscf, _make_pscf),
    _value(PenaltyPath),
    Kind("torch.Sequential", nn.Sequential, _take_sequential, _make_sequential),
    *(_layer(of, names) for of, names in LAYERS.items()),
]

TOP = (
    CausalGraph,
    UnfairPaths,
    *SOURCES,
    Contrasts,
    Several,
    LearnedMechanisms,
    Posterior,
    PenalizedClassifier,
    PSCF,
    PenaltyPath,
)
"""The classes of objects that are saved by themselves."""


TRUSTED = ["sklearn.tree._tree.Tree"]
"""The compiled types that skops writes besides those it knows; only files that are trusted are read with them."""


def _to_skops(value: Any) -> bytes | None:
    """Return an estimator of scikit-learn as skops writes it; None for what is none."""
    if not isinstance(value, BaseEstimator) or type(value).__module__.startswith("pyrofair."):
        return None
    name = type(value).__name__
    try:
        import skops.io as skops
    except ImportError:
        raise DataError(
            f"the estimator {name} is none of those that a file holds by itself, and is written by the package skops: "
            "pip install 'pyrofair[save]'."
        ) from None
    try:
        data: bytes = skops.dumps(value)
        unknown = sorted({*skops.get_untrusted_types(data=data)} - {*TRUSTED})
    except Exception as error:  # skops has several errors for what it cannot write
        raise DataError(f"the estimator {name} cannot be written by skops: {error}") from error
    if unknown:
        raise DataError(
            f"the estimator {name} holds {', '.join(unknown)}, which is code and none of scikit-learn's own. Use one "
            "that is, or save the parts and fit again."
        )
    return data


def _from_skops(data: bytes) -> Any:
    """Return an estimator that skops wrote, if it is of scikit-learn's own types alone."""
    try:
        import skops.io as skops
    except ImportError:
        raise DataError(
            "the file holds an estimator that skops wrote, which is not installed: pip install 'pyrofair[save]'."
        ) from None
    try:
        return skops.loads(data, trusted=TRUSTED)
    except Exception as error:
        raise DataError(f"an estimator in it cannot be read by skops: {type(error).__name__}: {error}") from error


KINDS = Kinds(
    {kind.of: kind for kind in _ALL}, FUNCTIONS, _to_skops, _from_skops, fingerprint, compare_programs
)  # fmt: skip
"""All that a file can name."""
