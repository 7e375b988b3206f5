# %% [markdown]
# # How wrong can weights be?
#
# Weights can be wrong in two ways. Feature values may occur in one group only (poor *overlap*). Or the model of P(A |
# features), the *propensity*, may be wrong. This tutorial causes both on simulated tables with a known effect, and
# shows which diagnostics reveal them.

# %%
import warnings

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

warnings.filterwarnings("ignore", category=pf.PyrofairWarning)  # these tables are bad on purpose

# %% [markdown]
# ## A table with known truth
#
# Group `A` and skill `Q` both affect a test score `M`, and all three affect the decision `Y`. `shift` is the distance
# between the groups' test scores. With `curved=True` their spread also differs. Only the direct path is unfair. In the
# unfair-path world the classifier therefore reads A = 1 with the test scores of A = 0.


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
unfair

# %% [markdown]
# `truth` simulates the true mean unfair effect of one fixed classifier, and `effect` estimates it with weights.

# %%
past = draw(4_000, shift=1.0, seed=1)
model = LogisticRegression().fit(past[features], past["Y"])


def truth(shift: float, curved: bool = False) -> float:
    rows = draw(400_000, shift, curved, seed=2, group=0)[features]
    other, baseline = (model.predict_proba(rows.assign(A=a))[:, 1] for a in (1, 0))
    return float((other - baseline).mean())


def effect(source: pf.IPW) -> float:
    baseline, other = (
        float((world.weight * model.predict_proba(world.rows[features])[:, 1]).sum()) for world in source.worlds()
    )
    return other - baseline


# %% [markdown]
# ## What is a weight?
#
# A weight makes rows of one group represent a counterfactual world. `identify` derives it from the graph as a ratio of
# propensities.

# %%
print(pf.identify(unfair).switched.weight(1))

# %% [markdown]
# `IPW` estimates the propensities, and `weights` returns the weight of each row. It is 0 outside the weighted group and
# 1 on average.

# %%
table = draw(3_000, shift=1.0)
source = pf.IPW(unfair, arm="paper").fit(table)
weight = pd.DataFrame({regime.name: source.weights(regime) for regime in unfair.regimes})
pd.concat([table, weight], axis=1).head().round(2)

# %% [markdown]
# In the unfair-path world, rows with A = 1 and a low test score get large weights. Low scores are common for A = 0.

# %% [markdown]
# ## Check overlap
#
# `overlap()` has one row for each world and weighted group. `n` is the number of weighted rows. `ess` is the effective
# size, the number of equally weighted rows with the same precision: $(\sum w)^2 / \sum w^2$.

# %%
columns = ["regime", "group", "n", "mean_weight", "max_weight", "ess", "unsupported_mass"]
source.overlap()[columns].round(2)

# %% [markdown]
# Now move the groups apart, with ten tables for each shift. The largest weight grows, the effective size falls, and the
# error of the estimate grows. A mean weight below 1 shows that needed rows never occurred.

# %%
found = []
for shift in (0.0, 1.0, 2.0, 3.0, 4.0):
    true = truth(shift)
    for seed in range(10):
        fitted = pf.IPW(unfair, arm="paper").fit(draw(3_000, shift, seed=seed))
        world = fitted.overlap().set_index("regime").loc["unfair", ["mean_weight", "max_weight", "ess"]]
        found.append({"shift": shift, "truth": true, "error": effect(fitted) - true, **world})
errors = pd.DataFrame(found)
by_shift = errors.groupby("shift")[["truth", "mean_weight", "max_weight", "ess"]].median()
by_shift["root mean square error"] = (errors["error"] ** 2).groupby(errors["shift"]).mean() ** 0.5
by_shift.round(3)

# %%
axes = errors.plot.scatter("shift", "error", ylabel="error of the mean unfair effect", grid=True)

# %% [markdown]
# ## Which group is weighted?
#
# Either group can represent either world, because the classifier can be evaluated with any value of `A`. With correct
# propensities all choices of `arm` estimate the same effect, but they need different overlap. Here both worlds have the
# test scores of A = 0, so the rows with A = 0 need almost no weighting.

# %%
arms = ["paper", 0, 1, "pooled"]


def compare(df: pd.DataFrame, propensity: str) -> dict[str, float]:
    sources = (pf.IPW(unfair, arm=arm, propensity=propensity, random_state=0).fit(df) for arm in arms)
    return {f"arm={arm!r}": effect(source) for arm, source in zip(arms, sources, strict=True)}


far = {shift: compare(draw(3_000, shift), "logistic") | {"truth": truth(shift)} for shift in (1.0, 4.0)}
pd.DataFrame(far).T.rename_axis("shift").round(3)

# %% [markdown]
# The default, `arm="auto"`, chooses by support, then by the number of propensity models, then by effective size.

# %%
print("chosen:", pf.IPW(unfair).fit(table).arm_)

# %% [markdown]
# ## A propensity that is too simple
#
# Now the spread of the test scores differs between the groups. The log-odds of `A` are then quadratic in `M`, but a
# logistic regression is linear. The overlap table hardly shows the error: the mean weight is somewhat off 1.

# %%
curved = draw(3_000, shift=1.0, curved=True)
wrong = pf.IPW(unfair, arm="paper").fit(curved)
wrong.overlap()[columns].round(2)

# %% [markdown]
# The paper's estimate is nevertheless far from the truth. Boosted trees find the curve.

# %%
both = {propensity: compare(curved, propensity) for propensity in ("logistic", "boosted")}
by_model = pd.DataFrame(both).T.rename_axis("propensity").assign(truth=truth(1.0, curved=True))
by_model.round(3)

# %% [markdown]
# ## Compare the two groups
#
# You can detect this error without the truth. Group 0 and group 1, weighted alone, estimate the same effect with
# different propensities. If they differ significantly, a propensity is wrong or overlap is poor. An audit then
# withholds its verdict.

# %%
audits = {}
for propensity in ("logistic", "boosted"):
    weights = pf.IPW(unfair, arm="paper", propensity=propensity, random_state=0)
    audits[propensity] = pf.audit({"model": model}, weights, curved, n_boot=40, progress=False, random_state=0)
groups = pd.concat({name: each.groups for name, each in audits.items()}, names=["propensity"])
effects = groups[(groups["quantity"] == "mean_unfair_effect") & (groups["decisions"] == "score")]
effects.droplevel(1)[["group_0", "group_1", "difference", "lower", "upper", "agree"]].round(3)

# %% [markdown]
# ## Trimming changes the question
#
# You can drop rows with an extreme propensity. The weights become smaller, but the estimate is then the effect among
# the remaining rows only.

# %%
apart = draw(3_000, shift=2.5)
trimmed = {}
for trim in (None, 0.02, 0.1):
    fitted = pf.IPW(unfair, arm="paper", trim=trim).fit(apart)
    world = fitted.overlap().set_index("regime").loc["unfair"]
    trimmed[f"trim={trim}"] = {
        "rows left": len(apart) - fitted.trimmed_,
        "largest weight": world["max_weight"],
        "effective size": world["ess"],
        "effect": effect(fitted),
    }
pd.DataFrame(trimmed).T.round(3)

# %% [markdown]
# ## Missing support is refused
#
# Suppose that some rows of group 0 work at night, and none of group 1 do. No weights can represent these rows. `fit`
# names such levels, and raises an error if they exceed `max_unsupported`, by default 1 % of the population.

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
# You can merge the level with another one, or leave these rows out and report that. Or you weight the other group, as
# here: the night workers have A = 0.

# %%
supported = pf.IPW(with_shift.unfair("A -> Y"), arm=0).fit(shifts)
supported.overlap()[columns].round(2)

# %% [markdown]
# ## One-step estimates
#
# Audits use `OneStep` by default. It averages scores with regressions and corrects their error with weighted residuals.
# It works in *stages*: one regression and one weight for consecutive mediators that read one value of `A`. The estimate
# is right if at each stage the weights or the regression are right. Here a second mediator `D` lies on the unfair path,
# and its neighbour `M` on a fair one.


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
    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        p = 1 / (1 + np.exp(1.0 - 0.5 * X["A"] - X["Q"] - X["D"] - 0.5 * X["M"] - 0.3 * X["D"] * X["M"]))
        return np.column_stack([1 - p, p])


report = pf.audit({"known": Known()}, pf.OneStep(through_d, random_state=0), draw_two(3_000, 1.0), random_state=0)
report.stages.query("decisions == 'score'")[
    ["regime", "nodes", "arm", "given", "mean_weight", "ess", "balance_z", "correction_z", "problem"]
].round(2)

# %% [markdown]
# `balance_z` checks the weights: the weighted and the unweighted mean of the regression should agree. `correction_z`
# checks the regression: its weighted residuals should average to 0. Beyond a limit the report gives no verdict.
#
# Now the spreads differ again, so a logistic propensity is wrong while the regressions are right.

# %%
unequal = draw_two(3_000, 1.0, curved=True)
reports = {}
for propensity in ("logistic", "boosted"):
    by_stages = pf.OneStep(through_d, propensity=propensity, form="prefix", random_state=0)
    reports[propensity] = pf.audit({"known": Known()}, by_stages, unequal, random_state=0)
tables = pd.concat({name: each.table for name, each in reports.items()}, names=["propensity"])
wanted = tables[(tables["quantity"] == "mean_unfair_effect") & (tables["decisions"] == "score")]
wanted.droplevel(1)[["estimate", "lower", "upper", "note"]].round(3)

# %%
reports["logistic"].plot_stages()

# %% [markdown]
# The two estimates are close, because the regressions correct the wrong weights. The report still withholds its verdict
# with logistic propensities, because no check confirms that the regressions are right.

# %% [markdown]
# ## Graph or prefix form?
#
# The *prefix* form conditions each stage on all earlier features, and needs overlap given these. Here the groups are
# far apart in both mediators, so this overlap is missing. The *graph* form conditions on parents only. This is enough
# if `M` does not cause `D`, as the graph states. `form="auto"` switches to the graph form when it must.

# %%
far_apart = draw_two(3_000, 4.0)
rescued = pf.OneStep(through_d, random_state=0).fit(far_apart)
print("form:", next(each for each in rescued.assumptions if "form:" in each))

# %% [markdown]
# If you draw the edge from `M` to `D`, the graph form no longer helps, and `fit` raises an error:

# %%
chain = pf.CausalGraph("{A Q} -> M; {A Q M} -> D; {A Q D M} -> Y", sensitive="A", outcome="Y")
try:
    pf.OneStep(chain.unfair("A -> D -> Y"), random_state=0).fit(far_apart)
except pf.PositivityError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## Assumptions
#
# * **The graph.** No diagnostic on this page checks it.
# * **Overlap.** Look at the largest weight and the effective size before any result. The mean weight is not enough,
#   because fitting a propensity pulls it towards 1.
# * **The propensity or the regression.** Compare the two groups, compare logistic with boosted propensities, and look
#   at the stages. With few rows these checks miss errors, and both models can be wrong at once.
# * **The estimand.** Trimming and leaving rows out change it.
