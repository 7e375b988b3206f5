"""The command line, a module for each command: ``pyrofair audit``, ``train``, ``path``, ``identify`` and others.

In come arguments, a file of settings and a table in CSV or Parquet; out go a folder of results, a report on standard
output and an exit code. The modules declare their options when loaded, and load pandas, torch and the rest of the
package only inside the functions that compute: help, the version and errors of usage are immediate.
"""

from pyrofair.commands.line import main

__all__ = ["main"]
