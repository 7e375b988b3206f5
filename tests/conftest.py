"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tables are small here, and threads that wait for each other are slow on a busy machine."""
    with threadpool_limits(1):
        yield
