"""DataFrames in: the only way by which a table of the user enters the package.

Columns are checked (:mod:`pyrofair.tables.reading`), typed and coded (:mod:`pyrofair.tables.labels`) and encoded for a
classifier (:class:`TableEncoder`), as arrays whose rows and columns are in the order of the input. Tables larger than
memory are read partition by partition (:mod:`pyrofair.tables.partitions`), and :func:`sample_rows` draws rows of them.
"""

from pyrofair.tables.encoder import TableEncoder
from pyrofair.tables.partitions import sample_rows

__all__ = ["TableEncoder", "sample_rows"]
