"""DataFrames in: the only way by which a table of the user enters the package.

Columns are checked, typed (:mod:`pyrofair.tables.column_types`) and encoded for a classifier (:class:`TableEncoder`).
Out go arrays and tensors whose rows and columns are in the order of the input; pandas is met again only in results.
"""

from pyrofair.tables.tables import TableEncoder

__all__ = ["TableEncoder"]
