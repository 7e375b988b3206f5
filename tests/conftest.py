"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is imported, which is later than this


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tables are small here, and threads that wait for each other are slow on a busy machine."""
    with threadpool_limits(1):
        yield
