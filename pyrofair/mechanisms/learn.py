"""Mechanisms learned from a table, as a Pyro program."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyro
import torch
from matplotlib.figure import Figure
from torch import Tensor

from pyrofair._arviz import to_arviz
from pyrofair._devices import require_wide_device
from pyrofair._random import isolated, neutral_torch, seed_from
from pyrofair._validation import (
    did_you_mean,
    listed,
    require_flag,
    require_instance,
    require_integer,
    require_known,
    require_names,
    require_rate,
    require_seed,
    shown,
)
from pyrofair.exceptions import DataError, GraphError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths
from pyrofair.inference.samplers import Guide
from pyrofair.mechanisms.conditional import LearnedProgram
from pyrofair.mechanisms.diagnostics import check_fits, describe_misfit, plot_calibration
from pyrofair.mechanisms.families import GAP, Family, choose_family, encode, levels
from pyrofair.mechanisms.fitting import (
    FEWEST,
    Fit,
    Parameters,
    Rows,
    Settings,
    fit_mechanisms,
    log_likelihood,
    make_mechanisms,
    marginal_log_likelihood,
    refit_mechanisms,
    require_settings,
    split_rows,
    try_mechanisms,
)
from pyrofair.mechanisms.newton import LastLayer
from pyrofair.programs.structural_equations import sensitive_levels
from pyrofair.tables.labels import code_labels
from pyrofair.tables.reading import read_table, read_weight
from pyrofair.tables.recorded import Missing, require_missing

__all__ = ["LearnedMechanisms", "learn_mechanisms", "require_families", "require_fitting", "require_graph"]


def require_graph(unfair: object, graph: CausalGraph) -> None:
    """Refuse what are no unfair paths, and unfair paths in another graph than that of the mechanisms."""
    require_instance("unfair", unfair, UnfairPaths, "unfair paths, made by graph.unfair(...)")
    assert isinstance(unfair, UnfairPaths)
    for name in (field.name for field in fields(CausalGraph)):
        own, other = getattr(graph, name), getattr(unfair.graph, name)
        if name in ("nodes", "edges", "latent", "column_map"):
            own, other = (sorted({*each} - {*less}) for each, less in ((own, other), (other, own)))
        if own != other:
            raise GraphError(
                "The mechanisms were learned along another graph than that of the unfair paths. They differ in "
                f"{name}: {own!r} there, {other!r} here. Use paths of the mechanisms' .graph, or learn them again."
            )


def _plan_reads(
    df: pd.DataFrame,
    graph: CausalGraph,
    nodes: Sequence[str] | None,
    given: Mapping[str, str | Iterable[str]] | None,
) -> dict[str, tuple[str, ...]]:
    """Return for each column to learn the columns that its distribution reads, in topological order.

    A node of several columns is learned by the chain rule: each column reads those before it, too. A node that is
    unknown, latent, or after the one that reads it is a GraphError; a column that the table lacks a DataError.
    """
    have = [node for node in graph.observed if {*graph.columns_of([node])} <= {*df.columns}]
    chosen = have if nodes is None else nodes
    if not isinstance(given, Mapping | None):
        raise DataError(f"given={given!r:.60} must be a dictionary: for a node the nodes that its distribution reads.")
    above = {
        node: require_names(f"given[{node!r}]", read, "node names", one=True) for node, read in (given or {}).items()
    }
    _require_order(graph, chosen, above)
    reads: dict[str, tuple[str, ...]] = {}
    for node in sorted(dict.fromkeys(chosen), key=graph.order.index):
        parents = above.get(node, tuple(each for each in graph.parents(node) if each in graph.observed))
        columns = graph.columns_of([node])
        for i, column in enumerate(columns):
            reads[column] = (*graph.columns_of(parents), *columns[:i])
            absent = next((name for name in reads[column] if name not in df.columns), None)
            if absent is not None and column in df.columns:  # reading the table reports an absent column itself
                raise DataError(
                    f"The distribution of {column!r} reads {absent!r}, and the data lacks the column {absent!r}. It "
                    f"has: {', '.join(map(str, df.columns))}.{did_you_mean(absent, df.columns)} Learn other nodes "
                    "(nodes=...), name what it reads instead (given=...), or use graph.with_latent(...)."
                )
    if not reads:
        raise GraphError(f"There is no node to learn. The graph has: {', '.join(graph.observed)}.")
    return reads


def _require_order(graph: CausalGraph, chosen: Iterable[str], above: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse nodes to learn, or to read (``above``), that are unknown, latent, or after the one that reads them."""
    position = {node: i for i, node in enumerate(graph.order)}
    asked = [("nodes", node) for node in chosen]
    asked += [("given", each) for node, read in above.items() for each in (node, *read)]
    for setting, node in asked:
        if node not in graph.observed:
            latent = " It is latent, and has no column." if node in graph.latent else did_you_mean(node, graph.observed)
            raise GraphError(
                f"{node!r} is no observed node of the graph. It has: {', '.join(graph.observed)}.{latent} "
                f"It is named in {setting}=."
            )
    for node, read in above.items():
        for each in read:
            if position[each] >= position[node] or each == graph.outcome:
                raise GraphError(
                    f"The distribution of {node!r} cannot read {each!r}, which does not come before it in the order "
                    f"{', '.join(graph.order)}."
                )


def require_families(own: object, columns: Sequence[str]) -> None:
    """Refuse what is no dictionary of families by column."""
    example = f"{{{columns[0]!r}: families.choose_family(df[{columns[0]!r}])}}"
    require_instance("families", own, Mapping, f"a dictionary from columns to families, such as {example}")
    assert isinstance(own, Mapping)
    require_known("families", own, columns, "column with a distribution")


def require_fitting(family: Family, values: pd.Series[Any]) -> None:
    """Refuse a family whose distributions have wrong shapes, or give a value of the column no probability."""
    name = values.name
    if isinstance(family, type | str):
        held = f"the class {family.__name__}" if isinstance(family, type) else f"the text {family!r}"
        raise DataError(
            f"families[{name!r}] is {held}; a family is an instance of those in pyrofair.mechanisms.families, such as "
            f"Binary(p=0.5). The default is families.choose_family(df[{name!r}])."
        )
    title = f"The family {type(family).__name__} of {name!r}"
    try:
        size, offset = int(family.size), family.offset
        some = family.distribution(offset.expand(3, size))
        shapes = tuple(offset.shape), tuple(some.batch_shape), tuple(some.event_shape)
    except Exception as error:
        raise DataError(
            f"{title} fails: {type(error).__name__}: {error}. A family has an integer size, a tensor offset of shape "
            "(size,), and distribution(out), which makes distributions of numbers of shape (..., size)."
        ) from error
    if shapes != ((size,), (3,), ()):
        raise DataError(
            f"{title} makes distributions of batch shape {shapes[1]} and event shape {shapes[2]} from numbers of shape "
            f"(3, {size}), and has an offset of shape {shapes[0]}; expected (3,), () and ({size},)."
        )
    numbers = encode(family, values)
    with torch.no_grad(), pyro.validation_enabled(False):
        marginal: Any = family.distribution(offset.expand(len(numbers), size))
        wrong = ~(marginal.support.check(numbers) & marginal.log_prob(numbers).isfinite())
    if bool(wrong.any()):
        raise DataError(
            f"{title} gives the value {numbers[wrong][0].item():g} no probability, and {int(wrong.sum())} row(s) hold "
            "such values. Choose another family, or leave it to the column's type."
        )


REFIT_STEPS, REFIT_RATE, REFIT_BATCH = 80, 5e-3, 2048
"""How posteriors, and families of one's own, are fitted again; see :meth:`LearnedMechanisms.refit`."""


@dataclass(frozen=True, eq=False, repr=False)
class LearnedMechanisms:
    """The distribution of each column given others, learned by :func:`learn_mechanisms`.

    Attributes
    ----------
    graph, fits, families
        The causal graph; for each column its fit, in topological order, and (if only read, too) its family.
    rows, dtypes, index
        The table as a program's values, split into training and held-out rows, and its pandas types and index.
    outcome_labels
        The outcome's labels, negative first; None if they are 0 and 1.
    settings, seed
        How the distributions were fitted, and what seeds their marginal ones.
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
        """The Pyro program of the number of units: parameters from their priors, then a site for each column.

        A distribution that reads a column without one is a ``GraphError``.
        """
        mechanisms = tuple(fit.mechanism for fit in self.fits.values())
        return LearnedProgram(mechanisms, self.graph.sensitive_column, sensitive_levels(self.graph))

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

    def distribution(self, column: str, table: pd.DataFrame, draw: int | None = None) -> Any:
        """Return the distribution of a learned column for each of n rows: a Pyro distribution of batch shape (n,).

        It is one of a program's values, which :func:`pyrofair.mechanisms.families.decode` turns into the column's own.
        The table holds the columns that it reads, with the labels of the one learned from; a column that is missing or
        was not learned, and an unseen level, are ``DataError``. ``draw`` is the index of a draw of the parameters, by
        default their median.
        """
        if not isinstance(column, str) or column not in self.fits:
            raise DataError(
                f"No distribution of {shown(column)} was learned; column= takes one of {', '.join(self.fits)}."
                f"{did_you_mean(column, self.fits)}"
            )
        fit = self.fits[column]
        if draw is not None:
            count = 1 if self.settings.posterior == "point" else self.settings.draws
            require_integer("draw", draw, least=0, most=count - 1)
        chosen = fit.centre if draw is None else {name: draws[draw] for name, draws in fit.draws.items()}
        with neutral_torch(), torch.no_grad():
            return fit.mechanism.at(chosen)(self.encoded(table, fit.mechanism.reads)).expand((len(table),))

    def encoded(self, table: pd.DataFrame, columns: Iterable[str]) -> dict[str, Tensor]:
        """Return some columns of a table with the labels of the one learned from, as a program's values, each (n,)."""
        if not (names := [*columns]):
            return {}
        read = read_table(table, names, what="the table", fitted=True, missing="recorded")
        coded, _ = code_labels(read, self.graph, both=False)
        return {name: encode(self.families[name], coded[name]) for name in names}

    # -- diagnostics --------------------------------------------------------------------------------------------------

    @property
    def history(self) -> pd.DataFrame:
        """The course of the fits: column, step, loss (nats per training row), held_out (nats per held-out row)."""
        parts = [pd.DataFrame(fit.history).assign(column=name) for name, fit in self.fits.items()]
        table = pd.concat(parts, ignore_index=True)[["column", "step", "loss", "held_out"]]
        return table.astype({"step": int})

    @cached_property
    def marginal(self) -> dict[str, float]:
        """For each column the held-out log-likelihood of its marginal distribution, in nats per row, on demand."""
        return {
            column: marginal_log_likelihood(fit.mechanism, self.rows, self.settings, self.seed)
            for column, fit in self.fits.items()
        }

    @property
    def held_out(self) -> pd.DataFrame:
        """For each column: what it reads, its held-out log-likelihood, and that of its marginal distribution."""
        fits, held = self.fits.values(), self.rows.held
        columns = {
            "column": [*self.fits],
            "reads": [", ".join(fit.mechanism.reads) for fit in fits],
            "family": [type(fit.mechanism.family).__name__ for fit in fits],
            "rows": len(held),
            "log_likelihood": [log_likelihood(fit.mechanism, fit.centre, self.rows, held) for fit in fits],
            "marginal": [*self.marginal.values()],
        }
        found = pd.DataFrame(columns)
        return found.assign(gain=found["log_likelihood"] - found["marginal"])

    def calibration(self, random_state: int | None = 0) -> pd.DataFrame:
        """Return predicted against observed for each column, in held-out rows (in all, if none were held out).

        Columns: column, family, rows; pit_distance: the Kolmogorov distance from uniform of the probability integral
        transforms of the values, and pit_p, its p-value; inside_50 and inside_90: the share of rows in the middle half
        and nine tenths of their distributions; gap: the largest difference between the predicted and the observed
        probability of being at most some value, over all rows. ``random_state`` seeds the random share that a value
        has of its own probability.
        """
        with self._quiet(random_state):
            return pd.DataFrame([each.as_row() for each in check_fits(self.fits, self.rows)])

    def doubts(self) -> list[str]:
        """Return the columns whose distributions the rows of :meth:`calibration` refute in a group, a clause each.

        That is, the p-value of a group is below 1e-4 though all tests are counted, and the distance at least 0.05.
        """
        with self._quiet(0):
            checked = check_fits(self.fits, self.rows)
        chosen, name = self.rows.held if len(self.rows.held) else self.rows.train, self.graph.sensitive_column
        code = self.rows.columns.get(name, self.rows.weight * 0.0)[chosen].numpy()
        checked = [each for each in checked if each.column != name]  # it is constant in a group
        return describe_misfit(checked, {f"{name}={self.graph.label(a)!r}": code == a for a in (0, 1)})

    def plot(self, random_state: int | None = 0) -> Figure:
        """Draw :meth:`calibration`: predicted against observed distributions, and probability integral transforms."""
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
        converge: bool = True,
    ) -> LearnedMechanisms:
        """Return the mechanisms fitted to the same training rows with other weights, starting from these: a replicate.

        Held-out rows play no part in it, and are evaluated again. Where a network or a linear predictor computes the
        numbers, its last layer moves as far as the weights require, by Newton's method to convergence, and its hidden
        layers stay; equal weights change nothing. Parameters of your own are fitted by L-BFGS to convergence.
        Posteriors, and families of your own, take the steps below.

        Parameters
        ----------
        sample_weight
            A weight for each row of the table that the mechanisms were learned from; ``DataError`` if hardly any row
            is left.
        random_state
            Seeds the fit.
        steps, batch_size, learning_rate
            The steps of Adam, on batches of so many rows, and the size of the first.
        converge
            Whether last layers move to convergence; otherwise by one step of Newton's method, which comes as near as
            the square of its length, and takes a fraction of the time.
        """
        found = self.refits(
            [sample_weight],
            random_state,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            converge=converge,
        )[0]
        if isinstance(found, DataError):
            raise found
        return found

    def refits(
        self,
        sample_weights: Sequence[npt.ArrayLike | None],
        random_state: int | None = None,
        *,
        steps: int = REFIT_STEPS,
        batch_size: int = REFIT_BATCH,
        learning_rate: float = REFIT_RATE,
        converge: bool = True,
    ) -> list[LearnedMechanisms | DataError]:
        """Return a replicate of :meth:`refit` for each of several weights, or why there is none.

        All move their last layers at once, which is several times as quick as one after the other.
        """
        require_integer("steps", steps)
        require_integer("batch_size", batch_size)
        require_rate(learning_rate)
        require_seed(random_state)
        require_flag("converge", converge)
        require_wide_device("device", self.settings.device)  # of a file from another machine
        if (many := listed(sample_weights)) is None:
            raise DataError(f"sample_weights={shown(sample_weights)} must be a list of weights, one a replicate.")
        with neutral_torch():
            given = [torch.as_tensor(read_weight(each, self.index)) for each in many]
            weights = [each.to(torch.get_default_dtype()) for each in given]
        settings = replace(self.settings, steps=steps, batch_size=batch_size, learning_rate=learning_rate)
        seed = seed_from(random_state)
        found = refit_mechanisms(self.fits, weights, self.rows, settings, seed, self._layers, converge=converge)
        return [each if isinstance(each, DataError) else replace(self, fits=each[0], rows=each[1]) for each in found]

    @cached_property
    def _layers(self) -> dict[str, LastLayer]:
        """What replicates have in common."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_layers"}

    def to_inference_data(self, draws: int = 50, random_state: int | None = 0) -> Any:
        """Return ArviZ data: the posterior, posterior predictive draws of each row, observed data, and the loss.

        Each column is predicted given the observed values of the columns that its distribution reads, in so many draws
        of each row: one for each of the first draws of the posterior, or all from a point.
        """
        require_integer("draws", draws)
        posterior = self.posterior
        with self._quiet(random_state):
            predicted = {name: self._predict(fit, draws) for name, fit in self.fits.items()}
        table = self.history.pivot_table("loss", "step", "column", dropna=False).reindex(columns=[*self.fits])
        groups = {
            "posterior": {site: values[None] for site, values in posterior.items()},
            "posterior_predictive": predicted,
            "observed_data": {name: _with_nan(self.rows.columns[name]) for name in self.fits},
            "sample_stats": {"loss": table.to_numpy()[None]},
        }
        dims = {**{name: ["unit"] for name in self.fits}, "loss": ["column"]}
        groups = {group: variables for group, variables in groups.items() if variables}
        return to_arviz(groups, coords={"column": [*self.fits]}, dims=dims)

    def _predict(self, fit: Fit, draws: int) -> npt.NDArray[Any]:
        """Return one chain of predictive draws of a column for each row, shape (1, draws, n)."""
        known = min((len(values) for values in fit.draws.values()), default=1)
        found = []
        for i in range(draws if known == 1 else min(draws, known)):
            mechanism = fit.mechanism.at({site: values[min(i, known - 1)] for site, values in fit.draws.items()})
            found.append(_with_nan(mechanism(self.rows.columns).expand(self.rows.weight.shape).sample()))
        return np.stack(found)[None]

    def __repr__(self) -> str:
        return (
            f"LearnedMechanisms({len(self.fits)} columns, {len(self.rows.train)} training and {len(self.rows.held)} "
            f"held-out rows, posterior={self.settings.posterior!r})"
        )

    def __str__(self) -> str:
        lines = [
            repr(self),
            "log-likelihood of held-out rows in nats per row, and gain over the marginal distribution:",
        ]
        for row in self.held_out.to_dict("records"):
            given = f" | {row['reads']}" if row["reads"] else ""
            lines.append(f"  {row['column']}{given}: {row['family']}, {row['log_likelihood']:.3f} ({row['gain']:+.3f})")
        return "\n".join(lines)


def _with_nan(values: Tensor) -> npt.NDArray[Any]:
    """Return a program's values with NaN for numbers that are not recorded."""
    plain, gaps = values.numpy(), (values == GAP).numpy()
    return np.where(gaps, np.nan, plain) if gaps.any() else plain


# -- learning ---------------------------------------------------------------------------------------------------------


def learn_mechanisms(
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
    missing: Missing = "refuse",
    device: str | torch.device = "cpu",
    progress: bool = True,
    random_state: int | np.random.Generator | None = None,
) -> LearnedMechanisms:
    """Learn the distribution of each column given its parents in a causal graph, as a Pyro program.

    Each column has a family, chosen by its type (:func:`pyrofair.mechanisms.families.choose_family`), whose numbers a
    small network computes from the columns read. The distributions are fitted one by one, points of networks by Adam
    on the log-posterior and all else by stochastic variational inference, each until the held-out log-likelihood no
    longer rises; the point of a linear predictor of log-odds, of logits or of one normal component by Newton's method,
    to its optimum, from which networks start. A node of several columns is learned by the chain rule.

    Values of a real number that recur (zeros, ends at which it is clipped, a standard number) have a probability of
    their own, and an end where many values are is an end of all: ``families.Atoms``. All else has a density.

    *Assumes* that rows are independent, and that nothing but its parents causes two columns of the graph in common.

    Parameters
    ----------
    df
        The n rows. Columns that the graph lacks are ignored.
    graph_or_unfair
        The causal graph, or unfair paths in it. The sensitive attribute becomes 0 and 1, and so does the outcome.
    families
        For some columns a family of your choice: an instance, with the column's own numbers, such as
        ``pf.mechanisms.families.Continuous(mean=2.0, sd=1.5, components=8)``. The default is
        ``pf.mechanisms.families.choose_family(df["M"])``.
    parameters
        What turns the columns read into the family's numbers: ``"network"``, ``"linear"``, or, for a column,
        a function of your own. That is called outside the plate of units, draws its parameters there
        (``pyro.sample(name, prior)``), and returns a function from the values read, a dict of tensors of shape (...),
        to the family's numbers, shape (..., size).
    hidden
        The units of each hidden layer of a network.
    components
        The components of a mixture.
    posterior
        What is learned of the parameters: ``"point"``, the most probable ones; ``"normal"``, a normal distribution of
        each (mean-field; usually too narrow); ``"multivariate"``, with all correlations, for distributions of few
        parameters: about as wide as the textbook's.
    posterior_draws
        The draws of the last two.
    given
        For some nodes the node or nodes that their distribution reads; by default the observed parents.
    nodes
        The nodes to learn; by default all whose columns are in the table, which must hold what their distributions
        read, too.
    steps, batch_size, learning_rate
        At most so many steps of Adam for each column, on batches of so many rows; the size of the first step, the last
        being a twentieth of it.
    validation_fraction
        The share of rows held out; without any, all steps are taken.
    patience
        A column is done when its held-out log-likelihood has not risen for so many steps. Of all states that are as
        good as the best, but for a standard error of the difference, the last is kept.
    sample_weight
        A weight for each row.
    missing
        What becomes of missing values: ``"refuse"``, or ``"recorded"``: "not recorded" is a value like others, which
        distributions give a probability and read. The sensitive attribute and the outcome have none.
    device
        The device of torch on which distributions are fitted, such as ``"cuda:1"``, also to other weights. What was
        learned lies on the CPU, and worlds are drawn there.
    progress
        Whether to show a progress bar.
    random_state
        Seeds everything; the global generators and Pyro's parameter store are left as they were. The distribution of a
        column does not depend on which others are learned.

    Returns
    -------
    LearnedMechanisms

    Raises
    ------
    DataError
        If the table does not fit the graph, or a family its column; if a setting is unknown, parameters of your own
        fail, two sites of the program would have one name, or the loss is not a number.
    GraphError
        If a node is unknown, or a distribution would read one that does not come before it.

    Warns
    -----
    PyrofairWarning
        If a column is constant; if the fit of a distribution has not settled, or was interrupted (Ctrl-C), in which
        case the best parameters so far are kept, and distributions after it are left near their marginal ones. While
        posteriors are fitted, Ctrl-C goes on to the caller.

    References
    ----------
    Bishop (1994), mixture density networks; Kingma and Ba (2015), Adam; Polyak and Juditsky (1992), averaging.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> A = rng.integers(2, size=500)
    >>> df = pd.DataFrame({"A": A, "M": A + rng.normal(size=500), "Y": A})
    >>> graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    >>> learned = learn_mechanisms(df, graph, nodes=["M"], parameters="linear", components=1, progress=False,
    ...                            random_state=0)
    >>> mean = learned.distribution("M", pd.DataFrame({"A": [0, 1]})).mean
    >>> bool(((mean - torch.tensor([0.0, 1.0])).abs() < 0.2).all())
    True
    """
    graph = graph_or_unfair.graph if isinstance(graph_or_unfair, UnfairPaths) else graph_or_unfair
    require_instance("graph_or_unfair", graph, CausalGraph, "a CausalGraph, or unfair paths in one")
    require_wide_device("device", device)
    settings = Settings(posterior, posterior_draws, steps, batch_size, learning_rate, patience, device=str(device))
    require_settings(settings, hidden, validation_fraction)
    require_integer("components", components)
    require_missing(missing)
    require_flag("progress", progress)
    require_seed(random_state)
    asked = None if nodes is None else require_names("nodes", nodes, "node names", one=True)
    read_table(df, [])  # whatever its columns, it is a table
    reads = _plan_reads(df, graph, asked, given)
    columns = [*dict.fromkeys(name for column, read in reads.items() for name in (*read, column))]
    table = read_table(df, columns, missing=missing)
    coded, labels = code_labels(table, graph)
    weight = read_weight(sample_weight, coded)
    if (found := int((weight > 0).sum())) < FEWEST:
        raise DataError(f"The table has {found} rows with a weight above 0; at least {FEWEST} are needed.")
    own = {} if families is None else families
    require_families(own, columns)
    chosen: dict[str, Family] = {}
    for name in columns:
        if name in own:
            require_fitting(own[name], coded[name])
            chosen[name] = own[name]
        else:
            chosen[name] = choose_family(coded[name], components=components, weight=weight, missing=missing)
    seed = seed_from(random_state)
    with neutral_torch():
        values = {name: encode(chosen[name], coded[name]) for name in columns}
        mechanisms = make_mechanisms(reads, chosen, parameters, hidden)
    with isolated(seed):
        rows = split_rows(values, torch.as_tensor(weight).to(torch.get_default_dtype()), validation_fraction)
    try_mechanisms(mechanisms, rows)
    fits, texts = fit_mechanisms(mechanisms, rows, settings, seed, progress)
    constant = [name for name in reads if bool((values[name] == values[name][0]).all())]
    if constant:
        texts.append(f"Constant, so that their distributions have no other value: {', '.join(map(repr, constant))}.")
    for text in texts:
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    dtypes = {str(name): dtype for name, dtype in table.dtypes.items()}
    return LearnedMechanisms(graph, fits, chosen, rows, labels, settings, seed, dtypes, table.index)
