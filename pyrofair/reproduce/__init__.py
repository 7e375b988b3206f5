"""The paper's comparisons and its tables and figures: every method beside every other, ours beside the printed numbers.

In comes the name of a packaged data set; out goes a :class:`Comparison`: audits of the paper's methods on test rows,
the trade-off over penalty strengths, and a text that describes both. Or in come names of the paper's tables and
figures; out go files of them (:func:`reproduce`). The command line saves both to a folder.
"""

from pyrofair.reproduce.comparison import SETTINGS, Comparison, claim_folder, compare, settings_of
from pyrofair.reproduce.experiments import EXPERIMENTS
from pyrofair.reproduce.fits import MODES, modes
from pyrofair.reproduce.run import claim_cells, reproduce

__all__ = [
    "EXPERIMENTS",
    "MODES",
    "SETTINGS",
    "Comparison",
    "claim_cells",
    "claim_folder",
    "compare",
    "modes",
    "reproduce",
    "settings_of",
]
