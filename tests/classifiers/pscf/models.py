"""What tests of PSCF share: the model's own word on the outcome, copies with other settings, what is warned of."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from pyrofair.classifiers.pscf import PSCF

QUIET = [
    pytest.mark.filterwarnings("ignore:The loss may not have settled"),
    pytest.mark.filterwarnings("ignore:The latent variables"),
    pytest.mark.filterwarnings("ignore:.* lies so far in a tail"),
]
"""Marks of fits that are as short as tests can be."""


def outcome_distribution(model: PSCF, X: pd.DataFrame) -> NDArray[Any]:
    """Return what the learned model says of the outcome, (m,), at rows as they are."""
    program: Any = copy.deepcopy(model.sem_).double()
    with torch.no_grad():
        values = {name: each.double() for name, each in model._encode(X).items()}
        found: NDArray[Any] = program.distribution(model.unfair.graph.outcome_column, values).probs.numpy()
    return found


def clone_of(model: PSCF, **settings: Any) -> PSCF:
    """Return a fitted copy with other settings."""
    copied: PSCF = pickle.loads(pickle.dumps(model))
    return copied.set_params(**settings)
