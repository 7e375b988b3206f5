"""The data of the paper, Adult and German Credit, with their causal graphs and unfair paths.

The raw files are in the package, each with its hash; :func:`load_adult` and :func:`load_german` return the table, the
graph, the unfair paths and the split of the paper.
"""

from pyrofair.datasets.uci import Dataset, load_adult, load_german

__all__ = ["Dataset", "load_adult", "load_german"]
