"""The command ``pyrofair identify``: the formula of the effect along unfair paths, or why data do not identify it."""

from __future__ import annotations

from typing import Any

from pyrofair.commands.options import DONE, Option, Settings, command, config_option
from pyrofair.commands.problem import GRAPH_OPTIONS, VALUE_OPTIONS, make_graph, make_unfair, stated_values

__all__ = ["run"]

OPTIONS = (
    *GRAPH_OPTIONS,
    *(each for each in VALUE_OPTIONS if each.name in ("baseline", "contrast", "labels", "positive")),
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


@command("identify", "print the formula of the effect along unfair paths, or why there is none", EXAMPLE, OPTIONS)
def run(settings: Settings, lines: Any) -> int:
    """Derive whether data identify the effect along the unfair paths, and by which formula, from the graph alone."""
    from pyrofair.graph import identify

    graph = make_graph(settings, stated_values(settings))
    unfair = make_unfair(graph, settings)
    estimand = identify(unfair, settings["target"])
    lines.write(estimand.latex if settings["latex"] else f"{unfair}\n\n{estimand}")
    return DONE
