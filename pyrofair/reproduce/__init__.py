"""The paper's comparisons on real data: every method beside every other, in tables and figures."""

from pyrofair.reproduce.compare import Comparison, claim_folder, compare, methods, settings_of

__all__ = ["Comparison", "claim_folder", "compare", "methods", "settings_of"]
