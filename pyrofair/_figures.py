"""The style of all figures, and figures and axes that a notebook shows whether or not pyplot has been imported."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["BLUE", "COLOURS", "GREEN", "GREY", "LEGEND", "RED", "ShownAxes", "ShownFigure"]

BLUE, RED, GREY, GREEN = "#0072B2", "#D55E00", "#5A5A5A", "#009E73"
COLOURS = (RED, BLUE, GREEN, "#CC79A7", "#E69F00")
"""Colours that people with a colour vision deficiency can tell apart (Okabe and Ito, 2008); texts are grey or black."""
LEGEND: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 9}


def _png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=100)
    return written.getvalue()


class ShownFigure(Figure):
    """A figure with a picture of itself: without pyplot a notebook would show the text ``<Figure ...>``."""

    def _repr_png_(self) -> bytes:
        return _png(self)


class ShownAxes(Axes):
    """The axes of a figure of their own, shown as that figure."""

    def _repr_png_(self) -> bytes:
        return _png(self.figure)
