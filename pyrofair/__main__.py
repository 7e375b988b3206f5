"""The command line as a module: ``python -m pyrofair`` is ``pyrofair``."""

from __future__ import annotations

from pyrofair.commands import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
