"""The sources of potential outcomes that the options of a command name, with the settings of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrofair.commands.options import Option, Settings, UsageError, grouped

if TYPE_CHECKING:
    from pyrofair.graph import UnfairPaths

__all__ = ["AUDIT_SOURCES", "TRAIN_SOURCES", "make_source", "source_options"]

AUDIT_SOURCES = ("onestep", "ipw", "gcomputation")
TRAIN_SOURCES = ("ipw", "gcomputation")
SETTINGS = {
    "onestep": ("propensity", "regression", "form", "folds", "clip"),
    "ipw": ("arm", "propensity", "folds", "clip", "trim", "max-unsupported"),
    "gcomputation": ("draws", "propensity", "folds"),
}
"""The options that each source takes, by the names of its own settings."""
DESCRIBED = {
    "onestep": "onestep, regressions and weights, each repairing the other",
    "ipw": "ipw, weighted observed rows",
    "gcomputation": "gcomputation, learned mechanisms",
}


def source_options(names: tuple[str, ...], default: str) -> tuple[Option, ...]:
    """Return the option ``--source`` with those of the sources of some names."""
    own = {
        "propensity": Option("propensity", "the model of P(sensitive | features): boosted, logistic, saturated or (of "
                             "onestep) stacked", choices=("boosted", "logistic", "saturated", "stacked")),
        "regression": Option("regression", "of onestep: the model of the mean score",
                             choices=("boosted", "logistic", "saturated", "stacked")),
        "form": Option("form", "of onestep: condition each stage on all features before it (prefix) or on its parents "
                       "(graph)", choices=("auto", "prefix", "graph")),
        "folds": Option("folds", "the folds of cross-fitting", int, least=1),
        "clip": Option("clip", "of onestep and ipw: bound propensities to [clip, 1 - clip]", float, above=0.0,
                       below=0.5),
        "arm": Option("arm", "of ipw: which group carries the weights (default auto; of columns of scores paper, the "
                      "group whose rows keep their scores)", choices=("auto", "paper", "0", "1", "pooled")),
        "trim": Option("trim", "of ipw: leave out rows with a propensity outside [trim, 1 - trim]", float, above=0.0,
                       below=0.5),
        "max-unsupported": Option("max-unsupported", "of ipw: the largest share of a world that may lack a counterpart",
                                  float, least=0.0, most=1.0),
        "draws": Option("draws", "of gcomputation: draws per unit", int, least=1),
    }  # fmt: skip
    taken = dict.fromkeys(each for name in names for each in SETTINGS[name])
    described = "; ".join(DESCRIBED[name] for name in names)
    return grouped(
        "the source of both worlds",
        Option("source", f"what makes the two worlds: {described}", default=default, choices=names),
        *(own[each] for each in taken),
    )


def make_source(settings: Settings, unfair: UnfairPaths) -> Any:
    """Return the source of the settings, unfitted; an option of another source is a UsageError."""
    from pyrofair import sources

    name = settings["source"]
    own = SETTINGS[name]
    for option in dict.fromkeys(each for options in SETTINGS.values() for each in options):
        if option in settings.given and option not in own:
            fits = " or ".join(f"--source {each}" for each, taken in SETTINGS.items() if option in taken)
            raise UsageError(f"--{option} belongs to {fits}, and not to --source {name}.")
    given: dict[str, Any] = {
        option.replace("-", "_"): settings[option]
        for option in own
        if option in settings.values and settings[option] is not None
    }
    if given.get("arm") in ("0", "1"):
        given["arm"] = int(given["arm"])
    if name == "ipw" and "arm" not in given and settings.values.get("score"):
        given["arm"] = "paper"  # a column has no scores of the other group's rows in another world
    make = getattr(sources, {"onestep": "OneStep", "ipw": "IPW", "gcomputation": "GComputation"}[name])
    return make(unfair, random_state=settings["seed"], **given)
