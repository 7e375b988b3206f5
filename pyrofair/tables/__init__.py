"""DataFrames in: the only way by which a table of the user enters the package.

Columns are checked (:mod:`pyrofair.tables.reading`), typed and coded (:mod:`pyrofair.tables.labels`) and encoded for a
classifier (:class:`TableEncoder`), as arrays whose rows and columns are in the order of the input. Tables too large for
memory come in as :class:`Batches`, made by :func:`as_batches`.
"""

from pyrofair.tables.batches import Batches, as_batches
from pyrofair.tables.encoder import TableEncoder

__all__ = ["Batches", "TableEncoder", "as_batches"]
