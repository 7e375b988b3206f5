# %% [markdown]
# # How wrong can the weights be?
#
# Data show each unit in one world only. Weights make up for that: rows of one group are weighted until their features
# have the distribution of a counterfactual world. Every number of the paper depends on such weights, and weights can be
# wrong in two ways. Features may occur in one group and not in the other (*overlap*), or the model of P(A | features),
# the *propensity*, may be wrong (*misspecification*). This tutorial makes both happen on simulated tables, where the
# true effect is known, and reads the diagnostics that are all one has on real ones.
#
# As a script: `python examples/3_overlap.py [FOLDER]` writes its pictures to FOLDER (`build/examples` by default).

# %% tags=["hide-cell"]
import sys
from pathlib import Path

folder = Path("build") / "examples"  # where pictures go
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

# %% [markdown]
# ## A table whose truth is known
#
# Group `A`, skill `Q`, a test score `M` that both bear on, decision `Y`. How far apart the two groups' scores are is
# `shift`; with `curved=True` the *spread* of the scores differs as well. Unfair is the direct path alone: the switched
# world reads A = 1 where a classifier reads `A`, and the scores of A = 0. So P(Ypi = 1) is the mean of c(1, Q, M) over
# units that the program draws with A = 0.


# %%
def draw(n: int, shift: float, curved: bool = False, seed: int = 0, group: int | None = None) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n) if group is None else np.full(n, group)
    q = rng.normal(size=n)
    spread = 1.0 + 1.0 * a if curved else 1.0
    m = shift * a + 0.5 * q + spread * rng.normal(size=n)
    y = rng.random(n) < 1 / (1 + np.exp(-(0.8 * a + q + 1.5 * m - 1.0)))
    return pd.DataFrame({"A": a, "Q": q, "M": m, "Y": y.astype(int)})


graph = pf.CausalGraph("{A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
unfair = graph.unfair("A -> Y")
features = ["A", "Q", "M"]
drawing = unfair.draw().figure
drawing.savefig(folder / "overlap-graph.png", dpi=120)
drawing

# %% [markdown]
# The classifier that is judged is fixed once and for all; it is a known function, so nothing about it is in doubt.

# %%
past = draw(4_000, shift=1.0, seed=1)
model = LogisticRegression().fit(past[features], past["Y"])


def truth(shift: float, curved: bool = False) -> float:
    """Return the true mean unfair effect on scores, from 400,000 units."""
    units = draw(400_000, shift, curved, seed=2, group=0)[features]
    switched, baseline = (model.predict_proba(units.assign(A=a))[:, 1] for a in (1, 0))
    return float((switched - baseline).mean())


def effect(source: pf.IPW) -> float:
    """Return the mean unfair effect on scores that the weights of a fitted source estimate."""
    baseline, switched = source.worlds()
    first, second = (
        float((world.weight * model.predict_proba(world.rows[features])[:, 1]).sum()) for world in (baseline, switched)
    )
    return second - first


# %% [markdown]
# ## What a weight is
#
# `identify` derives the weights from the graph. For the direct path, rows of the group whose `A` the outcome reads in
# that world are weighted; the weight of a row in the other world is a ratio of propensities.

# %%
print(pf.identify(unfair).switched.weight(1))

# %% [markdown]
# `IPW(...).fit` estimates the propensities, and `weights` returns the weight of each row in a world: 0 outside the
# weighted group, and 1 on average.

# %%
table = draw(3_000, shift=1.0)
source = pf.IPW(unfair, arm="paper").fit(table)
weight = pd.DataFrame({regime.name: source.weights(regime) for regime in unfair.regimes})
pd.concat([table, weight], axis=1).head().round(2)

# %% [markdown]
# In the unfair-path world rows with A = 1 and a low test score stand for many (those of A = 0 have such scores), rows
# with a high one for few.

# %% [markdown]
# ## Overlap in one table
#
# `overlap()` has a row for each world and weighted group. `n` rows carry weight; `ess`, the effective size (sum w)² /
# sum w², is how many rows with equal weights would be as good; `max_weight` is the largest. The mean weight is 1 in
# expectation.

# %%
columns = ["regime", "group", "n", "mean_weight", "max_weight", "ess", "at_bounds", "unsupported_mass"]
source.overlap()[columns].round(2)

# %% [markdown]
# Now pull the groups apart. The largest weight grows, the effective size falls, and the error of the estimate, here
# over ten tables for each shift, grows with it. A mean weight below 1 is what is left of rows that were needed and
# never occurred.

# %%
found = []
with warnings.catch_warnings():
    warnings.simplefilter("ignore", pf.PositivityWarning)  # these tables are meant to be bad
    for shift in (0.0, 1.0, 2.0, 3.0, 4.0):
        true = truth(shift)
        for seed in range(10):
            fitted = pf.IPW(unfair, arm="paper").fit(draw(3_000, shift, seed=seed))
            world = fitted.overlap().set_index("regime").loc["unfair", ["mean_weight", "max_weight", "ess"]]
            found.append({"shift": shift, "truth": true, "error": effect(fitted) - true, **world})
errors = pd.DataFrame(found)
by_shift = errors.groupby("shift").agg(
    truth=("truth", "first"),
    error=("error", lambda each: np.sqrt((each**2).mean())),  # root mean square
    mean_weight=("mean_weight", "median"),
    max_weight=("max_weight", "median"),
    effective_size=("ess", "median"),
)
assert by_shift["error"].is_monotonic_increasing
assert by_shift["effective_size"].is_monotonic_decreasing
by_shift.round(3)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for axes, name, label in [(left, "ess", "effective size, rows"), (right, "error", "error of the mean unfair effect")]:
    axes.scatter(errors["shift"], errors[name], s=14, alpha=0.6, color="steelblue", linewidth=0)
    axes.set_xlabel("shift between the groups")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
left.set_yscale("log")
right.axhline(0.0, color="0.3", linewidth=1)
figure.savefig(folder / "overlap-shift.png", dpi=120)

# %% [markdown]
# ## Whose rows carry the weights?
#
# A classifier is a known function, so `A` can be set in any row, and either group can carry the weights of either
# world: `arm=0`, `arm=1`, both (`arm="pooled"`), or the group that the outcome's own value names (`arm="paper"`). With
# the right propensities all of them estimate the same. They do not need the same overlap: the scores of both worlds are
# those of A = 0 here, so rows with A = 0 need next to no weighting.

# %%
arms = ["paper", 0, 1, "pooled"]


def compare(df: pd.DataFrame, propensity: str) -> dict[str, float]:
    sources = (pf.IPW(unfair, arm=arm, propensity=propensity, random_state=0).fit(df) for arm in arms)
    return {f"arm={arm!r}": effect(source) for arm, source in zip(arms, sources, strict=True)}


with warnings.catch_warnings():
    warnings.simplefilter("ignore", pf.PositivityWarning)
    far = {shift: compare(draw(3_000, shift), "logistic") | {"truth": truth(shift)} for shift in (1.0, 4.0)}
pd.DataFrame(far).T.rename_axis("shift").round(3)

# %% [markdown]
# `arm="auto"`, the default, chooses by support, then by the fewest propensities that have to be modelled, then by
# effective size; `arm_` says what it took.

# %%
print(pf.IPW(unfair).fit(table).arm_)

# %% [markdown]
# ## A propensity that is too simple
#
# Overlap was the first way to be wrong. Here is the second: the *spread* of the scores differs between the groups, so
# that the log-odds of `A` are quadratic in `M`, and the paper's propensity, a logistic regression, has no square. The
# effective size looks better than before, and the only trace in `overlap()` is a mean weight that is somewhat off 1.

# %%
curved = draw(3_000, shift=1.0, curved=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", pf.PositivityWarning)
    wrong = pf.IPW(unfair, arm="paper").fit(curved)
    both = {propensity: compare(curved, propensity) for propensity in ("logistic", "boosted")}
wrong.overlap()[["regime", "group", "n", "mean_weight", "max_weight", "ess"]].round(2)

# %% [markdown]
# And yet the paper's estimate is far off, and the one that weights group 1 alone is off as well. Boosted trees,
# cross-fitted so that each row is judged by trees that did not see it, find the curve by themselves.

# %%
by_model = pd.DataFrame(both).T.rename_axis("propensity").assign(truth=truth(1.0, curved=True))
off = by_model.drop(columns="truth").sub(by_model["truth"], axis=0).abs().max(axis=1)
assert off["logistic"] > 5 * off["boosted"]
by_model.round(3)

# %% [markdown]
# ## What gives it away without the truth: the two groups
#
# Group 0 and group 1, weighted alone, estimate the same number by different propensities. If they disagree beyond
# chance, one of them is wrong, and so is a propensity or the overlap: a latent cause alone cannot part them. An audit
# makes one joint test of all differences, prints it, and withholds its verdict.

# %%
audits = {}
for propensity in ("logistic", "boosted"):
    weights = pf.IPW(unfair, arm="paper", propensity=propensity, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pf.PositivityWarning)
        audits[propensity] = pf.audit({"model": model}, weights, curved, n_boot=40, progress=False, random_state=0)
groups = pd.concat({name: each.groups for name, each in audits.items()}, names=["propensity"])
effects = groups[(groups["quantity"] == "mean_unfair_effect") & (groups["decisions"] == "score")]
assert effects["agree"].tolist() == [False, True]
effects.droplevel(1)[["group_0", "group_1", "difference", "lower", "upper", "agree"]].round(3)

# %% [markdown]
# ## Trimming answers another question
#
# Rows with an extreme propensity can be dropped. The weights become harmless, and the estimand becomes the effect among
# the rows that are left: `trim` says so each time, and so does every report.

# %%
apart = draw(3_000, shift=2.5)
trimmed = {}
for trim in (None, 0.02, 0.1):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = pf.IPW(unfair, arm="paper", trim=trim).fit(apart)
    for each in caught:
        print(f"trim={trim}: {each.message}")
    world = fitted.overlap().set_index("regime").loc["unfair"]
    trimmed[f"trim={trim}"] = {
        "rows left": len(apart) - fitted.trimmed_,
        "largest weight": world["max_weight"],
        "effective size": world["ess"],
        "effect": effect(fitted),
    }
pd.DataFrame(trimmed).T.round(3)

# %% [markdown]
# ## Support that is missing is refused
#
# Weights cannot make up for units that do not exist. Say that some units of group 0 work at night, and none of group 1
# does. A Hajek mean, which divides by the sum of weights, would return a number all the same. `fit` looks for such
# cells, names them, and refuses beyond `max_unsupported`, 1 % of the target population.

# %%
rng = np.random.default_rng(0)
night = (table["A"] == 0) & (rng.random(len(table)) < 0.05)
shifts = table.assign(S=np.where(night, "night", "day"))
with_shift = pf.CausalGraph("A -> S; {A Q} -> M; {A Q M S} -> Y", sensitive="A", outcome="Y")
try:
    pf.IPW(with_shift.unfair("A -> Y"), arm="paper").fit(shifts)
except pf.PositivityError as error:
    print(f"refused: {error}")

# %% [markdown]
# The remedies are in the data or in the question: merge the level with its neighbour, leave those units out and say so,
# or weight the other group. The night workers have A = 0, and what a *classifier* makes of them with A = 1 is known:

# %%
supported = pf.IPW(with_shift.unfair("A -> Y"), arm=0).fit(shifts)
supported.overlap()[["regime", "group", "n", "mean_weight", "max_weight", "ess", "unsupported_mass"]].round(2)

# %% [markdown]
# ## Two chances to be right: one-step estimates and their stages
#
# `OneStep`, what audits use by default, averages the classifier's score by regressions, stage by stage, and corrects
# their error by weighted residuals. It is right where at each stage either the weights or the regression are. Each
# stage is a run of mediators that read one value of `A`; with a second mediator `D` whose path is unfair there is more
# than one.


# %%
def draw_two(n: int, shift: float, curved: bool = False, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, q = rng.integers(0, 2, n), rng.normal(size=n)
    spread = 1.0 + 1.0 * a if curved else 1.0
    d, m = (shift * a + 0.5 * q + spread * rng.normal(size=n) for _ in range(2))
    return pd.DataFrame({"A": a, "Q": q, "D": d, "M": m})


two = pf.CausalGraph("{A Q} -> D; {A Q} -> M; {A Q D M} -> Y", sensitive="A", outcome="Y")
through_d = two.unfair("A -> D -> Y")


class Known:
    """A classifier that is known: a logistic function of all features, with an interaction."""

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        p = 1 / (1 + np.exp(1.0 - 0.5 * X["A"] - X["Q"] - X["D"] - 0.5 * X["M"] - 0.3 * X["D"] * X["M"]))
        return np.column_stack([1 - p, p])


report = pf.audit({"known": Known()}, pf.OneStep(through_d, random_state=0), draw_two(3_000, 1.0), random_state=0)
report.stages.query("decisions == 'score'")[
    ["regime", "nodes", "arm", "given", "mean_weight", "ess", "balance_z", "correction_z", "problem"]
].round(2)

# %% [markdown]
# `balance_z` asks whether the weights fit: weighted and unweighted regressions have one mean. `correction_z` asks
# whether the regression fits: its weighted residuals average to 0. Beyond the limit in the picture no verdict is given.
# Now give it a logistic propensity on the table of unequal spreads: the weights are wrong, the regressions are not.

# %%
unequal = draw_two(3_000, 1.0, curved=True)
reports = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for propensity in ("logistic", "boosted"):
        by_stages = pf.OneStep(through_d, propensity=propensity, form="prefix", random_state=0)
        reports[propensity] = pf.audit({"known": Known()}, by_stages, unequal, random_state=0)
for each in caught:
    print(each.message)
tables = pd.concat({name: each.table for name, each in reports.items()}, names=["propensity"])
wanted = tables[(tables["quantity"] == "mean_unfair_effect") & (tables["decisions"] == "score")]
assert wanted["estimate"].diff().abs().max() < 0.03
assert wanted["note"].astype(bool).tolist() == [True, False]
wanted.droplevel(1)[["estimate", "lower", "upper", "note"]].round(3)

# %%
stages = reports["logistic"].plot_stages()
stages.savefig(folder / "overlap-stages.png", dpi=120)
stages

# %% [markdown]
# The two estimates are close, for the regressions repair the wrong weights, and still the first one is not vouched for:
# where one of the two models is seen to fail, the other had better be right, and nothing checks it.

# %% [markdown]
# ## Overlap given what?
#
# The *prefix* form conditions each stage on all features before it, and needs overlap given these. With the groups far
# apart in both mediators, no row of one group has a counterpart at the `M` of the other, which comes before `D` here.
# But `M` does not cause `D` in this graph. The *graph* form conditions on parents only, which is enough *if the missing
# edge is really missing*. `form="auto"` takes it where it must. Draw the edge, and there is nothing left to depend on:
# it refuses.

# %%
far_apart = draw_two(3_000, 4.0)
rescued = pf.OneStep(through_d, random_state=0).fit(far_apart)
print("form:", next(each for each in rescued.assumptions if "form:" in each))
chain = pf.CausalGraph("{A Q} -> M; {A Q M} -> D; {A Q D M} -> Y", sensitive="A", outcome="Y")
try:
    pf.OneStep(chain.unfair("A -> D -> Y"), random_state=0).fit(far_apart)
except pf.PositivityError as error:
    print(f"\nrefused: {error}")

# %% [markdown]
# ## What the numbers depend on
#
# *The graph.* No diagnostic on this page looks at it: weights with perfect overlap and a right propensity answer the
# question that the graph asks, right or wrong. *Overlap*: look at `overlap()` or the stages before any result, at the
# largest weight and the effective size rather than at the mean weight, which a fitted propensity draws to 1. *The
# propensity, or the regression*: compare the two groups, compare logistic with boosted, and read the stages; a test
# that finds nothing has little to say on few rows, and both models can be wrong alike. *The estimand*: trimming, and
# leaving units out, change it. The numbers here are of simulated tables of 3,000 rows, by single seeds where no spread
# is shown.
