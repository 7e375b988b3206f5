"""Covariates of a program: what is known of each unit and not modelled, a row of a table for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
import pyro
import torch
from numpy.typing import NDArray
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from pyrofair.exceptions import DataError
from pyrofair.programs.provenance import Program
from pyrofair.programs.vectors import ScalarProgram
from pyrofair.tables.labels import is_categorical
from pyrofair.tables.reading import read_table

__all__ = ["ROW", "ProgramWithCovariates", "RowOfTable", "covariate_names", "covariates_of_rows", "with_covariates"]

ROW = "covariates"
"""The site of the index of a unit's row in the table."""


class RowOfTable(TorchDistribution):
    """The uniform distribution over the rows 0, 1, ..., rows - 1 of a table."""

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 - as torch declares it

    def __init__(self, rows: int, batch_shape: Any = ()) -> None:
        self.rows = rows
        super().__init__(torch.Size(batch_shape), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> RowOfTable:
        """Return the distribution of as many independent rows."""
        return RowOfTable(self.rows, batch_shape)

    @property
    def support(self) -> Any:
        """The rows."""
        interval: Any = constraints.integer_interval
        return interval(0, self.rows - 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw rows."""
        return torch.randint(self.rows, (*sample_shape, *self.batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of 1 / rows."""
        inside = (value >= 0) & (value < self.rows) & torch.ones(self.batch_shape, dtype=torch.bool)
        return torch.where(inside, -float(np.log(self.rows)), -torch.inf)


@dataclass(frozen=True, eq=False)
class ProgramWithCovariates:
    """A program of n and of a dictionary with a tensor of shape (n, ...) for each covariate, as a program of n alone.

    Each unit has a row of the table, drawn at random with replacement; its columns become computed sites. Where rows
    of a table are given, units have these rows' covariates.
    """

    program: Callable[[int, dict[str, Tensor]], Any]
    table: dict[str, Tensor]

    def __call__(self, n: int) -> Any:
        """Run the program on n units."""
        size = len(next(iter(self.table.values())))
        with pyro.plate("plate of covariates", n):
            row = pyro.sample(ROW, RowOfTable(size))
            own = {name: pyro.deterministic(name, _as_default(values[row])) for name, values in self.table.items()}
        return self.program(n, own)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing in it changes

    def given(self, df: pd.DataFrame) -> ProgramWithCovariates:
        """Return the program with the covariates of the rows of a table, row i for unit i.

        A DataError names a covariate without a column, or of another type than the one handed over.
        """
        if not all(values.ndim == 1 for values in self.table.values()):
            wide = next(name for name, values in self.table.items() if values.ndim > 1)
            raise DataError(
                f"The covariate {wide!r} has the shape {tuple(self.table[wide].shape)}, and a column of a table holds "
                "one number a row. Hand it over as covariates of one number each."
            )
        have = [str(name) for name in getattr(df, "columns", ())]
        if missing := [name for name in self.table if name not in have]:
            raise DataError(
                f"The table lacks the covariate {', '.join(map(repr, missing))}, which the program takes "
                f"(with_covariates). It has the columns: {', '.join(have) or 'none'}. Add it."
            )
        found = _read(df[list(self.table)], "the data")
        for name, values in self.table.items():
            if values.dtype != found[name].dtype:
                cast = found[name].to(values.dtype)
                if not torch.equal(cast.double(), found[name].double()):
                    raise DataError(
                        f"The covariate {name!r} holds {_type(found[name])} here, and was handed over with the program "
                        f"as {_type(values)}. Give both the same type."
                    )
                found[name] = cast
        return ProgramWithCovariates(self.program, found)


def with_covariates(
    program: Callable[[int, dict[str, Tensor]], Any], table: pd.DataFrame | Mapping[str, Any]
) -> ProgramWithCovariates:
    """Return a program of the number of units with covariates: values of each unit that it takes and does not model.

    Units that are drawn have a row of the table each, drawn with replacement, the same in both worlds. Where a table of
    units is given (``SEM.counterfactual``, ``abduct``, ``fit_posterior``), its columns of the same names are their
    covariates. *Assumes* that covariates are not affected by the sensitive attribute or by a node of the program.

    Parameters
    ----------
    program
        A Pyro program ``program(n, covariates)``: of the number n of units, and of a dictionary with a tensor of shape
        (n, ...) for each covariate. Each is also a computed site of its name, which may be a node of the graph.
    table
        The covariates: a DataFrame of numbers, or a dictionary of tensors or arrays with one value for each row.
        Integers stay integers; other numbers come in torch's default type.

    Raises
    ------
    DataError
        If there is no row or no column, a value is missing or no number, or columns differ in length.

    Examples
    --------
    >>> import pyro.distributions as dist
    >>> from pyrofair import SEM, CausalGraph
    >>> def program(n, covariates):
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         U = pyro.sample("U", dist.Normal(0.0, 1.0))
    ...         pyro.deterministic("M", A * covariates["need"] + U)
    >>> graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    >>> sem = SEM(with_covariates(program, {"need": [0.0, 1.0, 2.0]}), graph.unfair("A -> M -> Y"))
    >>> given = pd.DataFrame({"A": [0, 1], "M": [0.5, 2.5], "need": [2.0, 1.0]})
    >>> sem.counterfactual(given).switched["M"].tolist()
    [2.5, 2.5]
    """
    if not callable(program):
        raise DataError(f"program={program!r} must be a function of the number of units and their covariates.")
    if isinstance(program, ProgramWithCovariates):
        raise DataError("The program has covariates already. Put all of them in one table.")
    return ProgramWithCovariates(program, _read(table, "the covariates"))


def covariate_names(program: Any) -> tuple[str, ...]:
    """Return the covariates of a program."""
    if isinstance(program, ScalarProgram):
        return covariate_names(program.program)
    return tuple(program.table) if isinstance(program, ProgramWithCovariates) else ()


def covariates_of_rows(
    program: Program, sites: Any, df: pd.DataFrame
) -> tuple[Program, dict[str, NDArray[np.float64]]]:
    """Return a program with the covariates of given rows, and the index of each unit's row, shape (n,), by site.

    A DataError names a covariate without a column, or covariates inside a handler, so that they cannot be given.
    """
    if isinstance(program, ScalarProgram):
        bound, values = covariates_of_rows(program.program, sites, df)
        return replace(program, program=bound), values
    if isinstance(program, ProgramWithCovariates):
        return program.given(df), {ROW: np.arange(len(df), dtype=np.float64)}
    if ROW in sites:
        raise DataError(
            f"The program has a site {ROW!r} and no covariates that rows could be given for. Handlers go inside: "
            "with_covariates(do(program, values), table); and no site of a program without covariates has this name."
        )
    return program, {}


def _read(table: object, what: str) -> dict[str, Tensor]:
    if isinstance(table, Mapping):
        columns: dict[str, Any] = dict(table)
    elif isinstance(table, pd.DataFrame):
        columns = {str(name): table[name] for name in read_table(table, list(table.columns), what=what)}
    else:
        raise DataError(
            f"{what} are a {type(table).__name__}; expected a DataFrame, or a dictionary with a tensor for each one."
        )
    found = {}
    for name, values in columns.items():
        if not isinstance(name, str) or name == ROW or not name:
            raise DataError(f"A covariate is called {name!r}; its name must be text, and another than {ROW!r}.")
        if isinstance(values, pd.Series) and is_categorical(values):
            raise DataError(f"The covariate {name!r} holds categories. Code them as the program does, by numbers.")
        array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
        if array.dtype.kind not in "fiub" or array.ndim == 0 or not np.isfinite(array).all():
            raise DataError(f"The covariate {name!r} must hold finite numbers, one or more for each row.")
        dtype = np.int64 if array.dtype.kind in "iu" else np.float64
        found[name] = torch.tensor(np.array(array, dtype=dtype, order="C"))
    lengths = {name: len(values) for name, values in found.items()}
    if not lengths or len(set(lengths.values())) > 1 or not all(lengths.values()):
        raise DataError(f"{what} must have one column and one row at least, all of one length: {lengths or 'none'}.")
    return found


def _as_default(values: Tensor) -> Tensor:
    return values.to(torch.get_default_dtype()) if values.is_floating_point() else values


def _type(values: Tensor) -> str:
    return "numbers" if values.is_floating_point() else "integers"
