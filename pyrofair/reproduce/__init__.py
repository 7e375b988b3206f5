"""The paper's comparisons on real data: every method beside every other, in tables and figures.

In comes the name of a packaged data set; out goes a :class:`Comparison`: audits of the paper's methods on test rows,
the trade-off over penalty strengths, and a text that describes both. The command line saves it to a folder.
"""

from pyrofair.reproduce.compare import Comparison, claim_folder, compare, methods, settings_of

__all__ = ["Comparison", "claim_folder", "compare", "methods", "settings_of"]
