"""Audits for readers: one self-contained page, a fragment for notebooks, and JSON.

In comes an audit with its tables and its context; out go texts. Judgements are those of ``audits.readings``; here they
are put into plain words, drawn, and written.
"""

from pyrofair.audits.display.export import SCHEMA_VERSION, audit_to_json
from pyrofair.audits.display.page import audit_fragment, audit_to_html, table_fragment

__all__ = ["SCHEMA_VERSION", "audit_fragment", "audit_to_html", "audit_to_json", "table_fragment"]
