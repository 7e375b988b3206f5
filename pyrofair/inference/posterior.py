"""Posteriors of a program's parameters, and predictions from them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.infer.autoguide import init_to_median

from pyrofair._arviz import diagnose, summarise, to_arviz
from pyrofair._progress import tqdm
from pyrofair._random import isolated, neutral_torch, seed_from
from pyrofair._validation import (
    require_callable,
    require_choice,
    require_flag,
    require_instance,
    require_integer,
    require_rate,
    require_seed,
    require_units,
)
from pyrofair.exceptions import DataError, PyrofairWarning
from pyrofair.graph.causal_graph import CausalGraph
from pyrofair.graph.paths import UnfairPaths
from pyrofair.inference.likelihood import Likelihood, PosteriorError, read_likelihood
from pyrofair.inference.samplers import NormalGuide, Schedule, fall, fit_guide, fitting, outside, run_nuts, sizes_of
from pyrofair.programs.covariates import ROW
from pyrofair.programs.interventions import do as intervene
from pyrofair.programs.parameters import at_parameters, read_priors, require_posterior, thin
from pyrofair.programs.provenance import Program, evaluating
from pyrofair.programs.sites import ProgramSites, read_sites, require_finite

__all__ = ["Posterior", "PosteriorError", "fit_posterior", "predictive"]

Draws = dict[str, NDArray[Any]]
R_HAT = 1.01
SETTLED = 0.5
"""A loss has settled if, over the last quarter of the steps, it falls by less than so many nats times the root of the
number of unknowns: its own noise grows like that root."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of a program's parameters, given a table.

    Attributes
    ----------
    samples : dict of str to ndarray of shape (chain, draw, ...)
        All sites outside the plate of units, those that the program computes (``pyro.deterministic``) included.
    parameters : tuple of str
        The sites that are drawn in the program.
    observed : dict of str to ndarray of shape (n,), or (n, ...) for vector-valued sites
        The nodes as the program saw them, the sensitive attribute as 0 and 1.
    method : str
        ``"nuts"``, or ``"svi"`` with its guide: ``"svi, normal guide"``.
    diagnostics : dict
        NUTS: for the worst element of each parameter ``r_hat`` (split R-hat) and ``ess`` (effective sample size);
        ``divergences``, ``acceptance`` (of each chain). SVI: ``steps``, ``drop`` (how far the loss fell over the last
        quarter of the steps), ``drop_error`` (its standard error).
    sample_stats : dict of str to ndarray of shape (chain, draw)
        NUTS: ``diverging`` and ``lp``, the log-density of the unconstrained parameters up to a constant.
    losses : ndarray of shape (steps,), or None
        SVI: the negative evidence lower bound at each step, in nats.
    """

    samples: Draws = field(repr=False)
    parameters: tuple[str, ...]
    observed: Draws = field(repr=False)
    method: str
    diagnostics: dict[str, Any]
    sample_stats: Draws = field(repr=False, default_factory=dict)
    losses: npt.NDArray[np.float64] | None = field(repr=False, default=None)

    @property
    def flat(self) -> Draws:
        """The drawn parameters with the chains in a row, shape (draws, ...): what ``SEM(posterior=...)`` takes."""
        return {name: self.samples[name].reshape(-1, *self.samples[name].shape[2:]) for name in self.parameters}

    def to_inference_data(self, predictive: Mapping[str, npt.ArrayLike] | None = None) -> Any:
        """Return the posterior as ArviZ data, with the observed data and the sampler's statistics (SVI: the loss).

        Parameters
        ----------
        predictive
            Draws of per-unit sites, shape (chains * draws, units, ...), for the group ``posterior_predictive``: what
            :func:`pyrofair.inference.predictive` returns.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)
        """
        groups: dict[str, Draws] = {"posterior": self.samples, "observed_data": self.observed}
        if self.sample_stats:
            groups["sample_stats"] = self.sample_stats
        elif self.losses is not None:
            groups["sample_stats"] = {"loss": self.losses[None]}
        if predictive is not None:
            require_instance("predictive", predictive, Mapping, "a dictionary from sites to their draws, or None")
            shape = next(iter(self.samples.values())).shape[:2]
            drawn = {site: np.asarray(values) for site, values in predictive.items()}
            for site, values in drawn.items():
                if values.ndim < 2 or len(values) != math.prod(shape):
                    raise DataError(
                        f"predictive[{site!r}] has the shape {values.shape}; expected ({math.prod(shape)}, units, "
                        "...), a row for each posterior draw. Draw it with draws=None."
                    )
            groups["posterior_predictive"] = {s: v.reshape(*shape, *v.shape[1:]) for s, v in drawn.items()}
        units = (*self.observed, *groups.get("posterior_predictive", {}))
        return to_arviz(groups, dims={site: ["unit"] for site in units})

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return mean, standard deviation and equal-tailed interval of each parameter.

        With one chain there are no R-hat and effective sample sizes (those of NUTS are in ``diagnostics``); with one
        draw there are means alone. ArviZ's own summary is ``arviz.summary(posterior.to_inference_data(), ...)``.

        Parameters
        ----------
        level
            The level of the interval.

        Returns
        -------
        DataFrame with a row for each number
            ``mean``, ``sd``, the ends of the interval (``eti_2.5%`` and ``eti_97.5%`` at level 0.95); with several
            chains ``mcse_mean``, ``mcse_sd``, ``ess_bulk``, ``ess_tail``, ``r_hat``.

        Raises
        ------
        DataError
            If the level is not between 0 and 1.

        References
        ----------
        Vehtari et al. (2021), R-hat and effective sample sizes.
        """
        return summarise(self.to_inference_data(), level=level)


def fit_posterior(
    program: Program,
    df: pd.DataFrame,
    graph_or_unfair: CausalGraph | UnfairPaths,
    *,
    method: Literal["nuts", "svi"] = "nuts",
    guide: NormalGuide = "normal",
    draws: int = 500,
    warmup: int = 500,
    chains: int = 2,
    steps: int = 4000,
    learning_rate: float = 0.1,
    progress: bool = True,
    random_state: int | np.random.Generator | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
) -> Posterior:
    """Fit the posterior of a program's parameters, given a table.

    Sites outside the program's plate of units are parameters, and what they are drawn from is their prior. The node
    sites are conditioned on the table: a drawn node by its density; a node that is computed from one private continuous
    noise U in which it is affine, ``V = f0 + f1 U``, by ``log p_U((V - f0) / f1) - log |f1|``, a vector element by
    element. Noise that is shared by several nodes stays unknown for each unit and is drawn along with the parameters;
    over a discrete unknown of each unit (a latent class, the component of a mixture) the density of its row is summed.
    Draws of per-unit sites are not kept. Evidence in the program (other sites with ``obs=`` or conditioned on, and
    ``pyro.factor``, in the plate or outside) counts as in Pyro, evaluated at the rows; ``poutine.mask`` and
    ``poutine.scale`` do, too.

    *Assumes* that the program describes how the rows arose, independently of each other.

    Parameters
    ----------
    program
        A Pyro program of the number of units, without data.
    df
        The n rows. Without the column of the outcome the parameters of its equation are not learned. The outcome is
        coded as 0 and 1 by the graph's ``positive`` if it has two values, and is a number otherwise.
    graph_or_unfair
        The causal graph, or unfair paths in it.
    method
        ``"nuts"``, the No-U-Turn sampler: exact but for Monte-Carlo error; or ``"svi"``: a normal distribution in the
        unconstrained space, by variational inference; fast, but too narrow where it does not fit.
    guide
        SVI: ``"normal"``, independent for each parameter (mean-field), or ``"multivariate"``, with all correlations.
    draws, warmup, chains
        The draws of each chain, and NUTS's steps before them. Chains run one after the other; SVI draws one chain.
    steps, learning_rate
        SVI: the number of steps of Adam, and the size of the first; they shrink to a twentieth of it.
    progress
        Whether to show a progress bar.
    random_state
        Seeds everything; the global generators and Pyro's parameter store are left as they were.
    levels
        For a node site with the codes 0, 1, ..., the labels that the table holds, as in :class:`pyrofair.SEM`.

    Returns
    -------
    Posterior

    Raises
    ------
    PosteriorError
        If the program cannot be fitted as written: no parameters, ``pyro.param``, a discrete parameter, a node whose
        density is not known; or if the loss is not a number.
    DataError
        If the table does not fit the program, evidence is no value of its site, or a setting is unknown.
    GraphError
        If a node has no per-unit site, or is given data in the program (``obs=``, ``obs_mask=``).

    Warns
    -----
    PyrofairWarning
        If NUTS has split R-hat above 1.01 or divergences; if the loss of SVI may not have settled; if Ctrl-C ended the
        fit, in which case the steps or chains done so far are used; if no node depends on a parameter.

    References
    ----------
    Hoffman and Gelman (2014), the sampler; Kucukelbir et al. (2017), the variational fit; Gelman et al. (2013),
    section 11.4, split R-hat.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> def program(n):
    ...     b = pyro.sample("b", dist.Normal(0.0, 5.0))
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         U = pyro.sample("U", dist.Normal(0.0, 1.0))
    ...         pyro.deterministic("M", b * A + U)
    >>> graph = CausalGraph("A -> M -> Y", sensitive="A", outcome="Y")
    >>> df = pd.DataFrame({"A": [0, 1] * 50, "M": [0.0, 2.0] * 50})
    >>> found = fit_posterior(program, df, graph, method="svi", steps=1000, progress=False, random_state=0)
    >>> found.flat["b"].shape, bool(abs(found.flat["b"].mean() - 2) < 0.1)
    ((500,), True)
    """
    require_choice("method", method, ("nuts", "svi"))
    require_choice("guide", guide, get_args(NormalGuide))
    for name, number in {"draws": draws, "warmup": warmup, "chains": chains, "steps": steps}.items():
        require_integer(name, number, least=4 if name == "draws" else 1)
    require_rate(learning_rate)
    require_flag("progress", progress)
    require_seed(random_state)
    if levels is not None:
        require_instance("levels", levels, Mapping, "a dictionary from node sites to their labels, or None")
    require_callable("program", program, "a Pyro program of the number of units")
    graph = graph_or_unfair.graph if isinstance(graph_or_unfair, UnfairPaths) else graph_or_unfair
    require_instance("graph_or_unfair", graph, CausalGraph, "a CausalGraph, or unfair paths in one")
    with neutral_torch():
        likelihood = read_likelihood(program, df, graph, levels)
    with isolated(seed_from(random_state)), fitting():
        likelihood = replace(likelihood, program=outside(likelihood.program))
        if method == "nuts":
            samples, found, texts = _by_nuts(likelihood, draws, warmup, chains, progress)
        else:
            samples, found, texts = _by_svi(likelihood, guide, draws, steps, learning_rate, progress)
        samples |= _derive(likelihood, samples)
    for text in texts:
        warnings.warn(text, PyrofairWarning, stacklevel=2)
    return Posterior(
        samples=samples,
        parameters=likelihood.parameters,
        observed={site: values for site, values in likelihood.observed.items() if site != ROW},
        method="nuts" if method == "nuts" else f"svi, {guide} guide",
        **found,
    )


def _by_nuts(
    likelihood: Likelihood, draws: int, warmup: int, chains: int, progress: bool
) -> tuple[Draws, dict[str, Any], list[str]]:
    """Draw the parameters by NUTS; return samples (chain, draw, ...), what a posterior holds besides, and warnings."""
    found = run_nuts(
        likelihood, likelihood.parameters, draws=draws, warmup=warmup, chains=chains, keep=True, progress=progress
    )
    texts = [found.text] if found.text else []
    samples = {name: values.numpy() for name, values in found.samples.items()}
    sizes, mixing = diagnose(samples)
    r_hat = {name: float(values.max()) for name, values in mixing.items()}
    # An R-hat that is not a number comes from a chain that never moved.
    if unmixed := {name: value for name, value in r_hat.items() if not value <= R_HAT}:
        texts.append(
            f"The chains have not mixed: R-hat is {', '.join(f'{v:.3f} for {n!r}' for n, v in unmixed.items())} (at "
            f"most {R_HAT} is wanted). Take more warmup and draws, several chains, or tighter priors."
        )
    diverging = found.diverging
    if diverging.any():
        texts.append(
            f"{int(diverging.sum())} of {diverging.size} draws diverged, so parts of the posterior may be missing. "
            "Take more warmup, or write the program so that its parameters are of one scale and independent a priori."
        )
    diagnostics = {
        "r_hat": r_hat,
        "ess": {name: float(values.min()) for name, values in sizes.items()},
        "divergences": int(diverging.sum()),
        "acceptance": found.acceptance,
    }
    return samples, {"diagnostics": diagnostics, "sample_stats": {"diverging": diverging, "lp": found.lp}}, texts


def _by_svi(
    likelihood: Likelihood, guide: NormalGuide, draws: int, steps: int, learning_rate: float, progress: bool
) -> tuple[Draws, dict[str, Any], list[str]]:
    """Fit a guide to all unknowns and draw the parameters from it, shape (1, draw, ...); return as :func:`_by_nuts`."""
    with tqdm(total=steps, desc="SVI", disable=not progress, leave=False) as bar:

        def check(step: int, loss: float) -> None:
            if not math.isfinite(loss):
                raise PosteriorError(
                    f"The loss is {loss} at step {step}. Lower learning_rate={learning_rate:g}, tighten the "
                    "priors, or see whether a row is impossible under the program."
                )
            bar.update()

        schedule = Schedule(steps, learning_rate)
        family, made = fit_guide(likelihood, guide, schedule, init=init_to_median, keep=True, on_step=check)
    losses, texts = np.array(made), []
    if len(losses) < steps:
        texts.append(f"Interrupted after {len(losses)} of {steps} steps; the guide is used as it is then.")
    trend = fall(losses)
    if math.isnan(trend.error):
        texts.append(
            f"{len(losses)} steps are too few to fit anything, and to judge whether the loss has settled. Take "
            "steps=4000, the default, or as many as the loss takes to settle."
        )
    elif not trend.settled(SETTLED * math.sqrt(sum(sizes_of(likelihood).values()))):
        texts.append(
            f"The loss may not have settled: it falls by {trend.drop:.2f} nats (standard error {trend.error:.2f}) over "
            f"the last quarter of {len(losses)} steps. Take more steps, or another learning_rate than "
            f"{learning_rate:g}."
        )
    with torch.no_grad():
        drawn = [family() for _ in range(draws)]
    samples = {name: torch.stack([each[name] for each in drawn])[None].numpy() for name in likelihood.parameters}
    diagnostics = {"steps": len(losses), "drop": trend.drop, "drop_error": trend.error}
    return samples, {"diagnostics": diagnostics, "losses": losses}, texts


def _derive(likelihood: Likelihood, samples: Draws) -> Draws:
    """Return the sites that the program computes from each draw of its parameters, shape (chain, draw, ...)."""
    if not likelihood.derived:
        return {}
    shape = next(iter(samples.values())).shape[:2]
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in likelihood.derived}
    for index in np.ndindex(*shape):
        given = {name: torch.as_tensor(values[index]) for name, values in samples.items()}
        with torch.no_grad(), poutine.trace() as tracer, poutine.condition(data=given):
            likelihood()
        sites: Any = tracer.trace.nodes
        for name, values in found.items():
            values.append(sites[name]["value"].numpy())
    return {name: np.stack(values).reshape(*shape, *values[0].shape) for name, values in found.items()}


def predictive(
    program: Program,
    posterior: Posterior | Mapping[str, npt.ArrayLike],
    *,
    do: Mapping[str, Any] | None = None,
    n: int | None = None,
    draws: int | None = None,
    random_state: int | np.random.Generator | None = None,
) -> dict[str, NDArray[Any]]:
    """Draw units from a program with posterior parameters, after an intervention if one is named.

    It is ``pyro.infer.Predictive`` of ``do(program, values)``, except that draws of each intervened site and of all its
    descendants are dropped and drawn anew: Predictive would replay them, and the intervention would
    have no effect below.

    Parameters
    ----------
    program
        A Pyro program of the number of units.
    posterior
        What :func:`pyrofair.fit_posterior` returns; or draws of shape (draws, ...) of all parameters, and
        of per-unit sites (draws, n, ...) if they are to be kept. Sites that the program computes are computed anew.
    do
        For each site to set its value, as in :func:`pyrofair.do`.
    n
        The number of units; by default that of the rows fitted, or of the per-unit draws.
    draws
        The number of draws to use, spread evenly; by default all.
    random_state
        Seeds what is drawn; the global generators and Pyro's parameter store are left as they were.

    Returns
    -------
    dict of str to ndarray of shape (draws, n, ...)
        All per-unit sites, an intervened one with its new value.

    Raises
    ------
    DataError
        If the posterior names a site that the program does not have, lacks a parameter, or holds draws that no
        posterior of this program holds (of another shape, missing, infinite, outside the prior's support); if draws
        differ in number, per-unit draws are not of n units, or n is not known.
    GraphError
        If evidence bears on units.
    InterventionError
        If ``do`` names an unknown site, or a value does not fit it.

    Examples
    --------
    >>> import pyro
    >>> import pyro.distributions as dist
    >>> def program(n):
    ...     b = pyro.sample("b", dist.Normal(0.0, 5.0))
    ...     with pyro.plate("units", n):
    ...         A = pyro.sample("A", dist.Bernoulli(0.5))
    ...         D = pyro.sample("D", dist.Normal(b * A, 0.1))
    ...         pyro.sample("M", dist.Normal(D, 0.1))
    >>> stale = {"b": np.full(100, 2.0), "D": np.zeros((100, 3))}
    >>> predictive(program, stale, do={"A": 1}, random_state=0)["M"].mean().round(1)
    np.float32(2.0)
    """
    if n is not None:
        require_units("n", n)
    if draws is not None:
        require_integer("draws", draws)
    if do is not None:
        require_instance("do", do, Mapping, "a dictionary from sites to values, or None")
    require_callable("program", program, "a Pyro program of the number of units")
    require_posterior(posterior)
    require_seed(random_state)
    probe = at_parameters(program, posterior)
    info = read_sites(probe)
    info.refuse_evidence(())
    values = dict(do or {})
    stale = {*values, *info.dependencies.descendants(values)}
    priors = read_priors(program, info, posterior)
    held = thin(priors.read(posterior, replay=True, spare=stale), draws)
    n = _count_units(posterior, held, info) if n is None else n
    info.confirm(n)
    types = {**priors.dtypes, **info.dtypes}
    replayed = [site for site in info.dependencies.drawn if site in held and site not in stale]
    kept = {site: torch.as_tensor(held[site], device="cpu").to(types[site]) for site in replayed}
    for site in kept.keys() & {*info.sites}:
        if kept[site].shape[1:2] != (n,):
            raise DataError(
                f"The draws of the per-unit site {site!r} have the shape {tuple(kept[site].shape)}; expected (draws, "
                f"{n}, ...) for n={n} units."
            )
    axes = info.axes
    kept = {site: each.movedim(1, axes[site] + 1) if site in axes else each for site, each in kept.items()}
    found: dict[str, list[NDArray[Any]]] = {}
    with isolated(seed_from(random_state)), torch.no_grad():
        for i in range(len(next(iter(held.values())))):
            run = poutine.condition(program, data={site: each[i] for site, each in kept.items()})
            with evaluating(n, "units are drawn from it"):
                sites: Any = poutine.trace(intervene(run, values) if values else run).get_trace(n).nodes
            for site in info.shapes:
                require_finite(site, sites[site]["value"])
                value = sites[site]["value"].numpy()
                found.setdefault(site, []).append(np.moveaxis(value, axes[site], 0) if site in axes else value)
    return {site: np.stack(each) for site, each in found.items()}


def _count_units(posterior: object, held: Mapping[str, NDArray[Any]], info: ProgramSites) -> int:
    """Return the number of units that per-unit draws hold, or else that of the rows fitted."""
    rows = {len(values[0]) for site, values in held.items() if site in info.sites and values.ndim > 1}
    if isinstance(posterior, Posterior) and posterior.observed:
        rows = rows or {len(next(iter(posterior.observed.values())))}
    if len(rows) != 1:
        raise DataError("The number of units is not known from the posterior; pass n=...")
    return rows.pop()
