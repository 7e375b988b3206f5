"""Figures and axes that a notebook shows, whether or not pyplot has been imported."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["ShownAxes", "ShownFigure"]


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
