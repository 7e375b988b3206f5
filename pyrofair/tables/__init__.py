"""DataFrames in: the only way by which a table of the user enters the package.

Columns are checked (:mod:`pyrofair.tables.reading`), typed and coded (:mod:`pyrofair.tables.labels`) and encoded for a
classifier (:class:`TableEncoder`), as arrays whose rows and columns are in the order of the input.
"""

from pyrofair.tables.encoder import TableEncoder

__all__ = ["TableEncoder"]
