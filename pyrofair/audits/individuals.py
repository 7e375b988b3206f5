"""Which decisions on given units flip: where both answers are known, or by a source with counterfactuals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from pyrofair._random import seed_from
from pyrofair._validation import require_instance, require_real, require_seed, shown
from pyrofair.effects.scoring import decide
from pyrofair.exceptions import DataError
from pyrofair.graph.paths import require_unfair, show_path
from pyrofair.tables.labels import repeat_label

if TYPE_CHECKING:
    from pyrofair.audits.models import AuditedModel
    from pyrofair.effects.row_functions import Scores
    from pyrofair.graph import UnfairPaths
    from pyrofair.sources import SEM

__all__ = ["flips", "known_flips", "likely_flips", "unknown_answers"]

MOST_PATHS = 20
ALL = "all unfair paths"
COLUMNS = ["row", "model", "path", "baseline", "switched", "effect", "effect_sd", "flips"]
SAME = 1e-6
"""Scores that differ by less are those of the same model."""
BOTH, OBSERVED = "of both worlds", "as observed"
"""What the features of a row are: those of the baseline world as well, or those that its own group has."""


def known_flips(
    model: AuditedModel, table: pd.DataFrame, a: NDArray[np.int8], scores: Scores, paths: UnfairPaths, threshold: float
) -> Callable[[], pd.DataFrame | str] | str:
    """Return what makes the rows whose decision flips when the unfair paths are switched, or why they are not known.

    They are known of a model whose features no unfair path touches, so that only the sensitive attribute changes. It
    predicts when it is called, and returns why it cannot if the model refuses. Of the n rows, with a sensitive
    attribute in each, ``a`` are its codes (n,), -1 where it is not known, and ``scores`` the model's.
    """
    graph, name = paths.graph, paths.graph.sensitive_column
    if text := unknown_answers(model, paths):
        return text
    if _switches(model, paths) and (
        absent := [label for label in map(graph.label, (0, 1)) if not (table[name] == label).any()]
    ):
        return f"No row has {name}={absent[0]!r}, which a model is to read in the other world."
    return partial(_both_answers, model, table, a, scores, paths, threshold)


def unknown_answers(model: AuditedModel, paths: UnfairPaths) -> str:
    """Return why no table shows the answers of a model in both worlds, or an empty string."""
    graph = paths.graph
    if model.is_scores:
        return (
            f"The scores of {model.name!r} are known for rows as they are alone: pass a model, a function of features."
        )
    reads = {graph.node_of[each] for each in model.reads or ()} - {graph.sensitive}
    if touched := [node for node in graph.nodes if node in reads and node not in paths.shared]:
        return (
            f"{model.name!r} reads {', '.join(map(repr, touched))}, which unfair paths change, and no row shows both "
            "values. pf.audits.flips(models, sem, rows) estimates the probability of a flip by an SEM, your own or of "
            "mechanisms learned from the table, pf.learn_mechanisms(graph, df)."
        )
    return ""


def _switches(model: AuditedModel, paths: UnfairPaths) -> bool:
    """Return whether a model reads another value of the sensitive attribute itself if the paths are switched."""
    direct = (paths.graph.sensitive, paths.graph.outcome) in paths.paths
    return direct and paths.graph.sensitive_column in (model.reads or ())


def _both_answers(
    model: AuditedModel, table: pd.DataFrame, a: NDArray[np.int8], scores: Scores, paths: UnfairPaths, threshold: float
) -> pd.DataFrame | str:
    graph, name = paths.graph, paths.graph.sensitive_column
    reads, labels = {graph.node_of[each] for each in model.reads or ()}, [graph.label(value) for value in (0, 1)]
    columns = ["row", name, "features", "model", "baseline", "switched", "baseline_decision", "switched_decision"]
    zero, one = (repeat_label(table[name], label, table.index) for label in labels)
    is_zero = (table[name] == labels[0]).to_numpy(bool)
    other = scores
    try:
        if _switches(model, paths):
            if not np.allclose(model.predict(table)[a >= 0], scores[a >= 0], rtol=0.0, atol=SAME):
                return f"{model.name!r} no longer gives the scores that were audited: it was fitted again since."
            other = model.predict(table.assign(**{name: one.where(is_zero, zero)}))
    except DataError as error:
        return str(error)
    first = ~is_zero if paths.swapped else is_zero
    baseline, switched = np.where(first, scores, other), np.where(first, other, scores)
    before, after = (decide(each, "threshold", threshold) for each in (baseline, switched))
    at = np.flatnonzero(before != after)
    same = (a == int(paths.swapped)) | reads.isdisjoint(graph.descendants(graph.sensitive))
    groups, features = np.array([None, *labels], dtype=object)[a[at] + 1], np.where(same, BOTH, OBSERVED)[at]
    numbers = (baseline[at], switched[at], before[at].astype(int), after[at].astype(int))
    return pd.DataFrame(dict(zip(columns, (table.index[at], groups, features, model.name, *numbers), strict=True)))


def flips(
    models: Mapping[str, Any],
    sem: SEM,
    rows: pd.DataFrame,
    *,
    threshold: float = 0.5,
    random_state: int | np.random.Generator | None = None,
    **abduction: Any,
) -> pd.DataFrame:
    """Return whether the decisions on given units flip when unfair paths are switched: all of them, and each alone.

    The noise of each unit is inferred from its row (abduction), and both worlds are evaluated on it, so that a unit is
    compared with itself. The flips of single paths need not add up to those of all: two paths may each be too weak to
    flip a decision, or cancel.

    *Assumes* that the program's equations hold, and the coupling of nodes drawn without explicit noise.

    Parameters
    ----------
    models
        Fitted models by name, with ``predict_proba``.
    sem
        A structural equation model with the unfair paths.
    rows
        The n units, with a column for each node of the program that is not latent.
    threshold
        A decision is positive where the score exceeds it.
    random_state
        Seeds the draws of noise that the rows do not determine; the same noise serves all paths.
    abduction
        Settings of :meth:`pyrofair.SEM.counterfactual`: method, inverses, draws, tolerance, guide, do.

    Returns
    -------
    DataFrame
        A line for each unit, model and set of paths (``path``: "all unfair paths", or a path): ``row``, the label of
        the unit in the index; ``baseline`` and ``switched``, the scores in both worlds (posterior means); ``effect``,
        their difference, with its standard deviation over draws, ``effect_sd``; and ``flips``, the probability that the
        two decisions differ, 0 or 1 where the row determines both worlds.

    Raises
    ------
    DataError
        If a setting, a model or the table is unfit, or there are more than 20 unfair paths.

    References
    ----------
    Chikahara et al. (2021), appendix A.1; Pearl (2009), theorem 7.1.7.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> from sklearn.linear_model import LogisticRegression
    >>> from pyrofair import SEM, CausalGraph
    >>> def program(n):
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         pyro.deterministic("M", 2 * A + pyro.sample("U", dist.Normal(0.0, 1.0)))
    >>> graph = CausalGraph("A -> M -> Y; A -> Y", sensitive="A", outcome="Y")
    >>> train = pd.DataFrame({"A": [0.0, 1.0, 0.0, 1.0], "M": [-1.0, 1.0, 0.4, 0.2]})
    >>> model = LogisticRegression(C=100.0).fit(train, [0, 1, 0, 1])
    >>> given = pd.DataFrame({"A": [0, 1], "M": [-3.0, 0.5]}, index=["one", "other"])
    >>> found = flips({"model": model}, SEM(program, graph.unfair("A -> Y", "A -> M -> Y")), given)
    >>> found[["row", "path", "flips"]].to_dict("tight")["data"]  # doctest: +NORMALIZE_WHITESPACE
    [['one', 'all unfair paths', 1.0], ['other', 'all unfair paths', 1.0], ['one', 'A -> M -> Y', 0.0],
     ['other', 'A -> M -> Y', 0.0], ['one', 'A -> Y', 0.0], ['other', 'A -> Y', 1.0]]
    """
    if not isinstance(models, Mapping) or not models or not all(isinstance(name, str) for name in models):
        raise DataError(f"models={shown(models)} must give models by name: flips({{'plain': model}}, sem, rows).")
    if not hasattr(sem, "counterfactual"):
        raise DataError(
            f"sem={shown(sem)} has no counterfactuals of given units; weights and regressions compare populations "
            "alone. Pass an SEM: SEM(program, unfair), or SEM.from_mechanisms(learned, unfair)."
        )
    require_instance("rows", rows, pd.DataFrame, "a DataFrame of the units")
    require_real("threshold", threshold, least=0.0, below=1.0, hint="A decision is 1 if score > threshold.")
    require_seed(random_state)
    paths = require_unfair("sem.unfair", sem.unfair).paths
    if paths.size > MOST_PATHS:
        raise DataError(
            f"There are {paths.size:,} unfair paths, more than {MOST_PATHS} to switch one by one. Name fewer: "
            "SEM(program, graph.unfair('A -> M -> Y'))."
        )
    sets = {ALL: sem.unfair} | {show_path(path): _alone(sem, path) for path in (paths if paths.size > 1 else ())}
    return _flips_of(sets, models, sem, rows, threshold, seed_from(random_state), **abduction)


def likely_flips(name: str, model: Any, sem: SEM, rows: pd.DataFrame, threshold: float, seed: int) -> pd.DataFrame:
    """Return the rows whose decision may flip when all unfair paths are switched, the most probable first."""
    found = _flips_of({ALL: sem.unfair}, {name: model}, sem, rows, threshold, seed)
    return found[found["flips"] > 0.0].sort_values("flips", ascending=False, kind="stable", ignore_index=True)


def _flips_of(
    sets: Mapping[str, UnfairPaths],
    models: Mapping[str, Any],
    sem: SEM,
    rows: pd.DataFrame,
    threshold: float,
    seed: int,
    **abduction: Any,
) -> pd.DataFrame:
    """Return a line for each unit, model and set of paths, by model."""
    parts = []
    for name, unfair in sets.items():
        found = clone(sem).set_params(unfair=unfair).counterfactual(rows, random_state=seed, **abduction)
        for model, each in models.items():
            scores = found.scores(each, threshold=threshold).rename(columns={"decisions_differ": "flips"})
            scores = scores.assign(row=list(rows.index), model=model, path=name)
            parts.append(scores.reset_index(drop=True)[COLUMNS])
    place = {name: i for i, name in enumerate(models)}
    joined: pd.DataFrame = pd.concat(parts)
    return joined.sort_values("model", key=lambda names: names.map(place), kind="stable", ignore_index=True)


def _alone(sem: Any, path: tuple[str, ...]) -> Any:
    """Return one path as the only unfair one, with the roles of the two values kept."""
    unfair = sem.unfair.graph.unfair(show_path(path))
    return unfair.reversed() if sem.unfair.swapped else unfair
