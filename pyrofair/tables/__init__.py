"""DataFrames in: the only way by which a table of the user enters the package.

Columns are checked (:mod:`pyrofair.tables.reading`), typed (:mod:`pyrofair.tables.labels`), coded
(:mod:`pyrofair.tables.labels`) and encoded for a classifier (:class:`TableEncoder`). Out go arrays whose rows and
columns are in the order of the input; pandas is met again only in results.
"""

from pyrofair.tables.encoder import TableEncoder

__all__ = ["TableEncoder"]
