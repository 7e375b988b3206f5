"""Audits for readers: tables as texts, plain words, the templates of pages and fragments, and data for JSON.

In come an audit's tables and its context; out go texts. Judgements are those of ``audits.verdicts``; ``audits.view``
puts the parts together.
"""

from pyrofair.audits.display.export import SCHEMA_VERSION
from pyrofair.audits.display.page import table_fragment

__all__ = ["SCHEMA_VERSION", "table_fragment"]
