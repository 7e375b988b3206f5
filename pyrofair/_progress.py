"""Progress bars: one line, of text where a notebook has no widgets, that is gone when the work is done."""

from __future__ import annotations

import warnings

from tqdm import TqdmWarning

with warnings.catch_warnings():
    # In a notebook without ipywidgets it warns when imported, and shows the same bar as in a terminal.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm

__all__ = ["tqdm"]
