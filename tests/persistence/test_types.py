"""Types that dataclasses declare."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

from pyrofair.persistence.types import _fits

T = TypeVar("T", bound=np.generic)


def test_a_type_that_has_a_name_is_what_the_name_stands_for() -> None:
    """`NDArray` is such a name in releases of numpy for Python 3.12 and later."""
    make: Any = pytest.importorskip("typing_extensions").TypeAliasType
    named = make("named", np.ndarray[Any, np.dtype[T]], type_params=(T,))
    assert _fits(np.zeros(2), named[np.float64])
    assert not _fits([0.0], named[np.float64])
    assert not _fits(np.array(["a"]), named[np.float64])
