"""What all tests share."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any
from zlib import crc32

import pytest
from threadpoolctl import threadpool_limits

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is imported, which is later than this


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tables are small here, and threads that wait for each other are slow on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[Any], list[Any]]:
    """Read tests once: doctests are those of the package, and no script of this folder is loaded in search of them."""
    found = yield
    return [each for each in found if type(each) is pytest.Module]


LONG = ("test_site.py", "test_examples.py", "test_paper.py", "test_display.py", "test_docs.py")
"""Files with tests of many seconds: they come first, so that no process waits for another at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, and mark as slow the cases that a test with the mark ``some(k)`` does not run by default.

    It runs k of them, spread over their list from a place that its name decides: tests of the same cases run others.
    """
    items.sort(key=lambda item: item.path.name not in LONG)
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("some"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, found in cases.items():
        mark = found[0].get_closest_marker("some")
        assert mark is not None
        few, count = mark.args[0], len(found)
        if count <= few:
            continue
        start = crc32(name.encode()) % count
        chosen = {(start + place * count // few) % count for place in range(few)}
        for index, item in enumerate(found):
            if index not in chosen:
                item.add_marker("slow")
