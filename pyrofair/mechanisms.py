"""What law made each column of a table? Conditional laws along a causal graph, learned, as a Pyro program."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyro
import torch
from matplotlib.figure import Figure

from pyrofair._validation import (
    did_you_mean,
    require_flag,
    require_integer,
    require_names,
    require_rate,
    require_seed,
    shown,
)
from pyrofair.calibration import calibrate, check_fits, plot_calibration
from pyrofair.conditional_laws import LearnedProgram
from pyrofair.equations import sensitive_levels
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.families import Family, encode, levels
from pyrofair.graph import CausalGraph
from pyrofair.inference_data import to_arviz
from pyrofair.isolation import isolated, neutral_torch, seed_from
from pyrofair.law_fitting import Fit, Guide, Rows, Settings
from pyrofair.law_learning import (
    FEWEST,
    Parameters,
    fit_laws,
    make_laws,
    marginal_log_likelihood,
    refit_laws,
    require_settings,
    reweigh_rows,
    split_rows,
    try_laws,
)
from pyrofair.law_reports import held_out_lines, held_out_table, history_table, inference_groups
from pyrofair.law_tables import choose_families, code_columns, code_labels, graph_of, plan_reads, require_graph
from pyrofair.paths import UnfairPaths
from pyrofair.sem import SEM
from pyrofair.tables import read_table, read_weight

__all__ = ["LearnedLaws", "learn_laws"]

REFIT_STEPS, REFIT_RATE, REFIT_BATCH = 80, 5e-3, 2048
"""How posteriors, and families of one's own, are fitted again; see :meth:`LearnedLaws.refit`."""


@dataclass(frozen=True, eq=False, repr=False)
class LearnedLaws:
    """The law of each column given others, as :func:`learn_laws` found it.

    Attributes
    ----------
    graph
        The causal graph.
    fits
        For each column its fit, in topological order.
    families
        The family of each column that is learned or read.
    rows
        The table as a program's values, split into training and held-out rows.
    outcome_labels
        The outcome's labels, negative first; None if they are 0 and 1.
    settings
        How the laws were fitted.
    seed
        Seeds the marginal laws.
    dtypes
        The pandas type of each column of the table.
    index
        The index of the table.
    """

    graph: CausalGraph
    fits: Mapping[str, Fit]
    families: Mapping[str, Family]
    rows: Rows
    outcome_labels: tuple[Hashable, ...] | None
    settings: Settings
    seed: int
    dtypes: Mapping[str, Any]
    index: pd.Index[Any]

    # -- as a program -------------------------------------------------------------------------------------------------

    @cached_property
    def program(self) -> LearnedProgram:
        """The Pyro program of the number of people: parameters from their priors, then a site for each column.

        Raises
        ------
        GraphError
            If a law reads a column that was not learned.
        """
        laws = tuple(fit.law for fit in self.fits.values())
        return LearnedProgram(laws, self.graph.sensitive_column, sensitive_levels(self.graph))

    @property
    def posterior(self) -> dict[str, npt.NDArray[Any]]:
        """Draws of each parameter, shape (draws, ...): what ``SEM(posterior=...)`` takes."""
        return {name: draws.numpy() for fit in self.fits.values() for name, draws in fit.draws.items()}

    @property
    def levels(self) -> dict[str, tuple[Hashable, ...]]:
        """For each learned column whose program values are codes: its labels. The graph has the sensitive one's."""
        found = {name: known for name in self.fits if (known := levels(self.families[name])) is not None}
        if self.outcome_labels is not None and self.graph.outcome_column in self.fits:
            found[self.graph.outcome_column] = self.outcome_labels
        return found

    def sem(self, unfair: UnfairPaths, **settings: Any) -> SEM:
        """Return the laws as a source: an SEM with their posterior.

        Parameters
        ----------
        unfair
            The unfair paths, in the graph that the laws were learned along; others are refused.
        settings
            As for :class:`pyrofair.SEM`: ``unit``, ``coupling``, ``draws``, ...

        Raises
        ------
        DataError, GraphError
            If they are no unfair paths, or those of another graph.
        """
        require_graph(unfair, self.graph)
        if self.levels:
            settings.setdefault("levels", self.levels)
        settings.setdefault("dtypes", {name: self.dtypes[name] for name in self.fits if name in self.dtypes})
        return SEM(self.program, unfair, **{"posterior": self.posterior or None, **settings})

    def law(self, column: str, table: pd.DataFrame, draw: int | None = None) -> Any:
        """Return the law of a column for each row of a table.

        Parameters
        ----------
        column
            A learned column.
        table
            A table that holds the columns that the law reads, with the labels of the one learned from.
        draw
            Which draw of the parameters; by default their median.

        Returns
        -------
        A Pyro distribution of batch shape (n,), of a program's values: see ``.families`` and
        :func:`pyrofair.families.decode`.

        Raises
        ------
        DataError
            If the column was not learned, or the table lacks one that its law reads, or holds a level not seen.
        """
        fit = self._fit(column)
        if draw is not None:
            require_integer("draw", draw, least=0)
            if draw >= self._draws:
                raise DataError(f"draw={draw!r} is none of the {self._draws} draws, 0 to {self._draws - 1}.")
        chosen = fit.centre if draw is None else {name: draws[draw] for name, draws in fit.draws.items()}
        with neutral_torch(), torch.no_grad():
            values = code_columns(table, self.graph, self.families, [*fit.law.reads]) if fit.law.reads else {}
            return fit.law.at(chosen)(values).expand((len(table),))

    def _fit(self, column: str) -> Fit:
        if not isinstance(column, str) or column not in self.fits:
            raise DataError(
                f"No law of {shown(column)} was learned; column= takes one of {', '.join(self.fits)}."
                f"{did_you_mean(column, self.fits)}"
            )
        return self.fits[column]

    @property
    def _draws(self) -> int:
        return 1 if self.settings.posterior == "point" else self.settings.draws

    # -- how good it is -----------------------------------------------------------------------------------------------

    @property
    def history(self) -> pd.DataFrame:
        """What was seen while fitting: column, step, loss (nats per training row), held_out (nats per held-out row)."""
        return history_table(self.fits)

    @cached_property
    def marginal(self) -> dict[str, float]:
        """For each column the held-out log-likelihood of its marginal law, in nats per row; fitted when asked for."""
        laws = (fit.law for fit in self.fits.values())
        return {law.column: marginal_log_likelihood(law, self.rows, self.settings, self.seed) for law in laws}

    @property
    def held_out(self) -> pd.DataFrame:
        """For each column: what it reads, its log-likelihood in held-out rows, and that of its marginal law."""
        return held_out_table(self.fits, self.rows, self.marginal)

    def calibration(self, random_state: int | None = 0) -> pd.DataFrame:
        """Return predicted against observed for each column, in held-out rows (in all, if none were held out).

        The columns are those of :func:`pyrofair.calibration.calibrate`. ``random_state`` seeds the random share that a
        value has of its own probability.
        """
        with self._quiet(random_state):
            return calibrate(check_fits(self.fits, self.rows))

    def plot(self, random_state: int | None = 0) -> Figure:
        """Draw what :meth:`calibration` tells: the predicted law of each column, and where values lie in their laws."""
        with self._quiet(random_state):
            return plot_calibration(check_fits(self.fits, self.rows))

    @contextmanager
    def _quiet(self, random_state: int | None) -> Iterator[None]:
        with isolated(seed_from(random_state)), pyro.validation_enabled(False), torch.no_grad():
            yield

    # -- further ------------------------------------------------------------------------------------------------------

    def refit(
        self,
        sample_weight: npt.ArrayLike | None = None,
        random_state: int | None = None,
        *,
        steps: int = REFIT_STEPS,
        batch_size: int = REFIT_BATCH,
        learning_rate: float = REFIT_RATE,
    ) -> LearnedLaws:
        """Return the laws fitted to the same training rows with other weights, starting from these: a replicate.

        Held-out rows play no part in it, and are judged again. Where a network or a linear predictor computes the
        numbers, its last layer moves by as much as the weights say, by Newton's method to the end, and its hidden
        layers stay; equal weights change nothing. Parameters of your own are fitted by L-BFGS to the end. Posteriors,
        and families of your own, take the steps below.

        Parameters
        ----------
        sample_weight
            A weight for each row of the table that the laws were learned from.
        random_state
            Seeds the fit.
        steps, batch_size, learning_rate
            The steps of Adam, on batches of so many rows, and the size of the first.

        Raises
        ------
        DataError
            If a setting is out of its range, or the weights do not fit the rows, or leave hardly any.
        KeyboardInterrupt
            If Ctrl-C struck: a replicate that is half done is none.
        """
        require_integer("steps", steps)
        require_integer("batch_size", batch_size)
        require_rate(learning_rate)
        require_seed(random_state)
        weight = read_weight(sample_weight, self.index)
        with neutral_torch():
            rows = reweigh_rows(self.rows, torch.as_tensor(weight).to(torch.get_default_dtype()))
        settings = replace(self.settings, steps=steps, batch_size=batch_size, learning_rate=learning_rate)
        fits = refit_laws(self.fits, rows, self.rows, settings, seed_from(random_state))
        return replace(self, fits=fits, rows=rows)

    def to_inference_data(self, draws: int = 50, random_state: int | None = 0) -> Any:
        """Return ArviZ data: the posterior, posterior predictive draws of each row, observed data, and the loss.

        Each column is predicted given the observed values of the columns that its law reads.

        Parameters
        ----------
        draws
            The predictive draws of each row: one for each of the first draws of the posterior, or all from a point.
        random_state
            Seeds them.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
        """
        require_integer("draws", draws)
        with self._quiet(random_state):
            groups = inference_groups(self.fits, self.rows, draws)
        dims = {**{name: ["person"] for name in self.fits}, "loss": ["column"]}
        return to_arviz(groups, coords={"column": [*self.fits]}, dims=dims)

    def __repr__(self) -> str:
        return (
            f"LearnedLaws({len(self.fits)} columns, {len(self.rows.train)} training and {len(self.rows.held)} held-out "
            f"rows, posterior={self.settings.posterior!r})"
        )

    def __str__(self) -> str:
        return "\n".join([repr(self), *held_out_lines(self.held_out)])


# -- learning ---------------------------------------------------------------------------------------------------------


def learn_laws(
    df: pd.DataFrame,
    graph_or_unfair: CausalGraph | UnfairPaths,
    *,
    families: Mapping[str, Family] | None = None,
    parameters: Parameters | Mapping[str, Parameters] = "network",
    hidden: Sequence[int] = (32, 32),
    components: int = 5,
    posterior: Guide = "point",
    posterior_draws: int = 200,
    given: Mapping[str, str | Iterable[str]] | None = None,
    nodes: str | Iterable[str] | None = None,
    steps: int = 3000,
    batch_size: int = 256,
    learning_rate: float = 0.01,
    validation_fraction: float = 0.1,
    patience: int = 500,
    sample_weight: npt.ArrayLike | None = None,
    progress: bool = True,
    random_state: int | np.random.Generator | None = None,
) -> LearnedLaws:
    """Learn the law of each column given its parents in a causal graph, as a Pyro program.

    Each column has a family, chosen by its type (:func:`pyrofair.families.choose_family`), whose numbers a small
    network computes from the columns read. The laws are fitted one by one, by stochastic variational inference, each
    until rows that are held out get no likelier; the point of a linear law of log-odds, of logits or of one normal
    component by Newton's method, to its optimum. A node of several columns is learned by the chain rule.

    Laws of real numbers have a density. Where a column has a spike (many zeros, or values clipped at an end), it shows
    as a density that is high there, in ``held_out`` too, and as a step in ``plot()`` and ``calibration()``.

    *Assumes* that rows are independent, and that nothing but its parents causes two columns of the graph in common.

    Parameters
    ----------
    df
        The n rows. Columns that the graph lacks are ignored.
    graph_or_unfair
        The causal graph, or unfair paths in it. The sensitive attribute becomes 0 and 1, and so does the outcome.
    families
        For some columns a family of your choice: an instance, with the column's own numbers, such as
        ``pf.families.Continuous(mean=2.0, sd=1.5, components=8)``. ``pf.families.choose_family(df["M"])`` is the one
        chosen by default, to start from.
    parameters
        What turns the columns read into the family's numbers: ``"network"``, ``"linear"``, or, for a column,
        a function of your own. That is called outside the plate of people, draws its parameters there
        (``pyro.sample(name, prior)``), and returns a function from the values read, a dict of tensors of shape (...),
        to the family's numbers, shape (..., size).
    hidden
        The units of each hidden layer of a network.
    components
        The components of a mixture.
    posterior
        What is learned of the parameters: ``"point"``, the most probable ones; ``"normal"``, a normal law of each
        (mean-field; usually too narrow); ``"multivariate"``, with all correlations, for laws of few parameters: about
        as wide as the textbook's.
    posterior_draws
        The draws of the last two.
    given
        For some nodes the node or nodes that their law reads; by default the observed parents.
    nodes
        The nodes to learn; by default all whose columns are in the table, which must hold what their laws read, too.
    steps, batch_size, learning_rate
        At most so many steps of Adam for each column, on batches of so many rows; the size of the first step, the last
        being a twentieth of it.
    validation_fraction
        The share of rows held out; without any, all steps are taken.
    patience
        A column is done when its held-out rows have got no likelier for so many steps. Of all states in which they are
        as likely as in the best, but for a standard error of the difference, the last is kept.
    sample_weight
        A weight for each row.
    progress
        Whether to show a progress bar.
    random_state
        Seeds everything; the global generators and Pyro's parameter store are left as they were. The law of a column
        does not depend on which others are learned.

    Returns
    -------
    LearnedLaws

    Raises
    ------
    DataError
        If the table does not fit the graph, or a family its column; if a setting is unknown, parameters of your own
        fail, two sites of the program would have one name, or the loss is not a number.
    GraphError
        If a node is unknown, or a law would read one that does not come before it.

    Warns
    -----
    PyrofairWarning
        If a column is constant; if the fit of a law has not settled, or was interrupted (Ctrl-C), in which case the
        best parameters so far are kept, and laws after it are left near their marginal ones. While posteriors are
        fitted, Ctrl-C goes on to the caller.

    References
    ----------
    Bishop (1994), mixture density networks; Kingma and Ba (2015), Adam; Polyak and Juditsky (1992), averaging.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> A = rng.integers(2, size=500)
    >>> df = pd.DataFrame({"A": A, "M": A + rng.normal(size=500), "Y": A})
    >>> graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    >>> laws = learn_laws(df, graph, nodes=["M"], parameters="linear", components=1, progress=False, random_state=0)
    >>> law = laws.law("M", pd.DataFrame({"A": [0, 1]}))
    >>> bool(((law.mean - torch.tensor([0.0, 1.0])).abs() < 0.2).all())
    True
    """
    graph = graph_of(graph_or_unfair)
    settings = Settings(posterior, posterior_draws, steps, batch_size, learning_rate, patience)
    require_settings(settings, hidden, validation_fraction)
    require_integer("components", components)
    require_flag("progress", progress)
    require_seed(random_state)
    if nodes is not None:
        nodes = require_names("nodes", nodes, "node names", one=True)
    read_table(df, [])  # whatever its columns, it is a table
    reads = plan_reads(df, graph, nodes, given)
    columns = [*dict.fromkeys(name for column, read in reads.items() for name in (*read, column))]
    table = read_table(df, columns)
    coded, labels = code_labels(table, graph)
    weight = read_weight(sample_weight, coded)
    if (found := int((weight > 0).sum())) < FEWEST:
        raise DataError(f"The table has {found} rows with a weight above 0; at least {FEWEST} are needed.")
    chosen = choose_families(coded, {} if families is None else families, components, weight)
    seed = seed_from(random_state)
    with neutral_torch():
        values = {name: encode(chosen[name], coded[name]) for name in columns}
        laws = make_laws(reads, chosen, parameters, hidden)
    with isolated(seed):
        rows = split_rows(values, torch.as_tensor(weight).to(torch.get_default_dtype()), validation_fraction)
    try_laws(laws, rows)
    fits, texts = fit_laws(laws, rows, settings, seed, progress)
    constant = [name for name in reads if (coded[name] == coded[name].iloc[0]).all()]
    if constant:
        texts.append(f"Constant, so that their laws know no other value: {', '.join(map(repr, constant))}.")
    for text in texts:
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    dtypes = {str(name): dtype for name, dtype in table.dtypes.items()}
    return LearnedLaws(graph, fits, chosen, rows, labels, settings, seed, dtypes, table.index)
