"""How are many laws fitted? Each column by itself, for given all columns no law tells anything of another."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal
from zlib import crc32

import pyro
import torch
from pyro import poutine
from torch import Tensor
from tqdm.auto import tqdm

from pyrofair._validation import (
    did_you_mean,
    require_choice,
    require_integer,
    require_layers,
    require_rate,
    require_real,
)
from pyrofair.conditional_laws import ConditionalLaw, Numbers
from pyrofair.exceptions import DataError
from pyrofair.families import Binary, Categories, Family, features
from pyrofair.isolation import isolated, set_seed
from pyrofair.law_fitting import GUIDES, Fit, Rows, Settings, fit_law, log_likelihood, refit_law
from pyrofair.law_newton import LastLayer, has_last_layer
from pyrofair.networks import Network

__all__ = [
    "FEWEST",
    "Parameters",
    "fit_laws",
    "make_laws",
    "marginal_log_likelihood",
    "refit_laws",
    "require_settings",
    "reweigh_rows",
    "split_rows",
    "try_laws",
]

Parameters = Literal["network", "linear"] | Numbers
"""What turns the columns read into a family's numbers: a network, a linear predictor, or a function of one's own."""

FEWEST = 20
"""The fewest rows that laws are learned from."""
MARGINAL_STEPS, MARGINAL_RATE = 1000, 3e-2
REFIT_MEMORY = 0.9
FEWEST_TRAINED, TRIED = 10, 3
RESERVED = ("people", "row", "rows")


def make_laws(
    reads: Mapping[str, Sequence[str]],
    families: Mapping[str, Family],
    parameters: Parameters | Mapping[str, Parameters],
    hidden: Sequence[int],
) -> list[ConditionalLaw]:
    """Return an unfitted law for each column.

    Parameters
    ----------
    reads
        For each column to learn the columns that its law reads.
    families
        The family of each.
    parameters
        One for all, or for some columns; the others have networks.
    hidden
        The units of each hidden layer of a network.

    Raises
    ------
    DataError
        If a name is no column to learn, or something else is given.
    """
    each = parameters if isinstance(parameters, Mapping) else dict.fromkeys(reads, parameters)
    if unknown := [name for name in each if name not in reads]:
        raise DataError(
            f"parameters names {unknown[0]!r}, which is no column that is learned. There are: {', '.join(reads)}."
            f"{did_you_mean(unknown[0], reads)}"
        )
    laws = []
    for column, names in reads.items():
        kind, family = each.get(column, "network"), families[column]
        own = {name: families[name] for name in names}
        if callable(kind):
            laws.append(ConditionalLaw(column, family, own, kind))
            continue
        if kind not in ("network", "linear"):
            raise DataError(
                f"parameters={kind!r} of {column!r} is not known; it is 'network', 'linear', or a function "
                "that returns a function from the values read to the numbers of the family."
            )
        widths = tuple(features(families[name], torch.zeros(1)).shape[-1] for name in names)
        network = Network(widths, tuple(hidden) if kind == "network" else (), family.size, direct=True)
        laws.append(ConditionalLaw(column, family, own, network))
    return laws


def split_rows(values: Mapping[str, Tensor], weight: Tensor, fraction: float) -> Rows:
    """Split the rows that have a weight in training and held-out ones, by torch's global generator.

    Raises
    ------
    DataError
        If hardly any are left to learn from.
    """
    places = torch.randperm(len(weight))
    places = places[weight[places] > 0]
    held = round(fraction * len(places))
    if len(places) - held < FEWEST_TRAINED:
        raise DataError(
            f"validation_fraction={fraction!r} leaves {len(places) - held} of {len(places)} rows to learn from; at "
            f"least {FEWEST_TRAINED} are needed."
        )
    return Rows(values, weight / weight[places[held:]].mean(), places[held:], places[:held])


def try_laws(laws: Sequence[ConditionalLaw], rows: Rows) -> None:
    """Run each law on a few rows before any is fitted.

    Parameters
    ----------
    laws, rows
        The laws, and the table.

    Raises
    ------
    DataError
        If parameters of one's own fail, or two sites of the program would have one name.
    """
    taken = {law.column: f"the column {law.column!r}" for law in laws}
    with isolated(0), _quiet(), torch.no_grad():
        for law in laws:
            for name in _try_law(law, rows.at(rows.train[:TRIED])):
                if name in taken or name in RESERVED:
                    raise DataError(
                        f"A parameter of the law of {law.column!r} has the name {name!r} in the program, which is that "
                        f"of {taken.get(name, 'a plate or a site of rows')} too. Rename one of them."
                    )
                taken[name] = f"a parameter of the law of {law.column!r}"


def _try_law(law: ConditionalLaw, values: Mapping[str, Tensor]) -> list[str]:
    """Return the names of a law's parameters."""
    try:
        with poutine.block(), poutine.trace() as tracer:
            made = law.draw()
        made(values).expand((TRIED,)).log_prob(values[law.column])
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"The parameters of {law.column!r} fail: {type(error).__name__}: {error}. Parameters of one's own are a "
            "function without arguments that draws them (pyro.sample) and returns a function from the values read, a "
            f"dictionary of tensors ({', '.join(law.reads) or 'empty'}), to the family's numbers."
        ) from error
    nodes: Mapping[str, Any] = tracer.trace.nodes
    return [name for name, site in nodes.items() if site["type"] == "sample"]


def reweigh_rows(rows: Rows, weight: Tensor) -> Rows:
    """Return rows with other weights, without those of weight 0.

    Raises
    ------
    DataError
        If hardly any are left to learn from.
    """
    train, held = (places[weight[places] > 0] for places in (rows.train, rows.held))
    if len(train) < FEWEST_TRAINED:
        raise DataError(f"Only {len(train)} training rows have a weight above 0; at least {FEWEST_TRAINED} are needed.")
    return Rows(rows.columns, weight / weight[train].mean(), train, held)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out Pyro's checks, and its warning of a loss that is not a number, which is an error here."""
    with pyro.validation_enabled(False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Encountered ", UserWarning)
        yield


@contextmanager
def _apart(seed: int, column: str) -> Iterator[None]:
    """Fit one law with a seed and a parameter store of its own, so that it does not depend on what else is learned."""
    set_seed(crc32(f"{seed} {column}".encode()))
    with pyro.get_param_store().scope():
        yield


def fit_laws(
    laws: Sequence[ConditionalLaw], rows: Rows, settings: Settings, seed: int, progress: bool
) -> tuple[dict[str, Fit], list[str]]:
    """Fit laws one after the other, and return what there is to warn of.

    An interruption (Ctrl-C) keeps the best parameters so far of the law that was being fitted, and leaves those after
    it near their marginal laws; while posteriors are fitted it goes on to the caller.
    """
    fits: dict[str, Fit] = {}
    missed: list[str] = []
    with (
        isolated(seed),
        _quiet(),
        tqdm(total=settings.steps * len(laws), desc="laws", disable=not progress, leave=False) as bar,
    ):
        for i, law in enumerate(laws, 1):
            bar.set_postfix_str(law.column)
            stopped = any(fit.interrupted for fit in fits.values())
            with _apart(seed, law.column):
                how = replace(settings, steps=0) if stopped else settings
                fits[law.column] = fit_law(law, rows, how, bar, keep=True)
            missed += [law.column] * stopped
            bar.update(i * settings.steps - bar.n)
    texts = [fit.text for fit in fits.values() if fit.text]
    if missed:
        texts.append(f"Not fitted at all, and near their marginal laws: {', '.join(map(repr, missed))}.")
    return fits, texts


def refit_laws(fits: Mapping[str, Fit], rows: Rows, before: Rows, settings: Settings, seed: int) -> dict[str, Fit]:
    """Fit the same laws again, starting from what they are, whatever held-out rows say.

    Parameters
    ----------
    fits
        The laws as fitted.
    rows, before
        The rows with other weights, and with those they were fitted with.
    settings, seed
        How, and what seeds it.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C struck: a replicate that is half done is none.
    """
    found = {}
    settings = replace(settings, patience=None, memory=REFIT_MEMORY)
    with isolated(seed), _quiet():
        for column, fit in fits.items():
            with _apart(seed, column):
                found[column] = refit_law(fit, rows, before, settings)
    return found


def marginal_log_likelihood(law: ConditionalLaw, rows: Rows, settings: Settings, seed: int) -> float:
    """Return the log-likelihood of held-out rows under the marginal law of a column, fitted with the same family.

    For zeros and ones and categories it is known: their frequencies. An interruption (Ctrl-C) goes on to the caller: a
    gain over half a marginal law is none.
    """
    network = Network((), (), law.family.size)
    alone = ConditionalLaw(law.column, law.family, {}, network)
    with isolated(seed), _quiet(), _apart(seed, law.column):
        centre = network.start(law.column)
        if not has_last_layer(alone):
            chosen = replace(settings, posterior="point", learning_rate=MARGINAL_RATE, steps=MARGINAL_STEPS)
            centre = fit_law(alone, rows, chosen).centre
        elif not isinstance(law.family, Binary | Categories):
            last = LastLayer.of(alone, centre, rows)
            for theta, _, _ in last.steps(last.read(centre)):
                centre = last.write(theta, centre)
        return log_likelihood(alone, centre, rows, rows.held)


def require_settings(settings: Settings, hidden: Sequence[int], fraction: float) -> None:
    """Refuse settings that are unknown or out of range."""
    require_choice("posterior", settings.posterior, tuple(GUIDES))
    require_layers("hidden", hidden)
    whole = {"posterior_draws": settings.draws, "steps": settings.steps, "batch_size": settings.batch_size,
             "patience": settings.patience}  # fmt: skip
    for name, number in whole.items():
        require_integer(name, number)
    require_real("validation_fraction", fraction, least=0.0, below=1.0)
    require_rate(settings.learning_rate)
