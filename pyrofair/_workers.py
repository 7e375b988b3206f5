"""Processes of this machine that work for another one, and end with it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import current_process
from typing import Any

import joblib

__all__ = ["delayed"]

WATCH = "pyrofair: ends with the caller"
"""The name of a thread of a worker."""


def delayed(function: Callable[..., Any]) -> Any:
    """Return a function as ``joblib.delayed`` does, whose local workers end with this process (not on Windows)."""
    return joblib.delayed(partial(_follow, os.getpid(), function))


def _follow(caller: int, function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    own = current_process().name.startswith("LokyProcess") or os.getppid() == caller
    if own and os.getpid() != caller and WATCH not in {each.name for each in threading.enumerate()}:
        threading.Thread(target=_end_with, args=[caller], name=WATCH, daemon=True).start()
    return function(*args, **settings)


def _end_with(caller: int) -> None:
    """End this process soon after the one that started it has ended, and would take no result."""
    while os.getppid() == caller:
        time.sleep(1.0)
    os._exit(1)
