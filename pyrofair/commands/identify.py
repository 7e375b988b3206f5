"""The command ``pyrofair identify``: the formula of the effect along unfair paths, or why data do not identify it."""

from __future__ import annotations

from typing import Any

from pyrofair.commands.options import DONE, Command, Option, Settings, config_option
from pyrofair.commands.problem import GRAPH_OPTIONS, LABEL_OPTIONS, make_graph, make_unfair, stated_labels

__all__ = ["COMMAND"]

OPTIONS = (
    *GRAPH_OPTIONS,
    *(each for each in LABEL_OPTIONS if each.name in ("baseline", "contrast", "labels", "positive")),
    Option("target", "whose outcome: the prediction of a classifier of the outcome's parents, or the outcome itself",
           default="prediction", choices=("prediction", "outcome")),
    Option("latex", "print the formulas as LaTeX", bool),
    config_option(),
    Option("traceback", "show where an error was raised", bool),
)  # fmt: skip
EXAMPLE = """\
example:

  pyrofair identify --graph '{sex skill} -> job; {sex skill job} -> hired' --sensitive sex --outcome hired \\
      --unfair 'sex -> hired; sex -> job -> hired'

Where the effect is not identified it names the cause and what can be done, and ends with exit code 4.
"""


def run(settings: Settings, lines: Any) -> int:
    """Print the unfair paths and their estimand."""
    from pyrofair.graph import identify

    graph = make_graph(settings, stated_labels(settings))
    unfair = make_unfair(graph, settings)
    estimand = identify(unfair, settings["target"])
    lines.write(estimand.latex if settings["latex"] else f"{unfair}\n\n{estimand}")
    return DONE


COMMAND = Command(
    "identify",
    "print the formula of the effect along unfair paths, or why there is none",
    "Derive from the graph alone whether data identify the effect along the unfair paths, and by which formula.",
    EXAMPLE,
    OPTIONS,
    run,
)
