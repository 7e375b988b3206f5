# %% [markdown]
# # Without the true equations: learned mechanisms, their posterior, and PSCF
#
# From a table and a causal graph, a conditional distribution is learned for each column; together they are a Pyro
# program, which is a structural equation model. From it follow bounds on unfairness given what the two worlds of a unit
# share (`GComputation`), the posterior of a classifier's unfair effect (`effect_posterior`), and a classifier that
# predicts from the counterfactual of each row (`PSCF`). What is learned can be wrong, so each part comes with its
# checks: held-out likelihood, calibration, posterior predictive checks, and ArviZ's diagnostics of chains.
#
# As a script: `python examples/4_learned_mechanisms.py [FOLDER]` writes its pictures to FOLDER (`build/examples` by
# default).

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
import pyro
import pyro.distributions as dist
import torch

import pyrofair as pf

# %% [markdown]
# ## A table, a graph, a classifier
#
# The table is drawn from the paper's `hiring` scenario, so that the truth is known at the end. Nothing else of the
# scenario is used before: gender `A`, qualification `Q`, number of children `D`, physical strength `M`, decision `Y`.

# %%
hiring = pf.simulate.scenario("hiring")
units, later = hiring.draw(1_000, random_state=0), hiring.draw(1_000, random_state=1)
features = ["A", "Q", "D", "M"]
model = pf.PenalizedClassifier(epochs=40, progress=False, random_state=0).fit(units[features], units["Y"])
drawing = hiring.unfair.draw().figure
drawing.savefig(folder / "learned-graph.png", dpi=120)
drawing

# %% [markdown]
# ## A distribution for each mediator
#
# Integers get a mixture of normal distributions, rounded; continuous columns a mixture; each given its parents in the
# graph, by a small network. A tenth of the rows is held out: `gain` is in nats per row over the marginal distribution.

# %%
mechanisms = pf.learn_mechanisms(
    units[features], hiring.graph, nodes=["D", "M"], hidden=(16,), components=2, steps=700, progress=False,
    random_state=0,
)  # fmt: skip
mechanisms.held_out.round(3)

# %% [markdown]
# Left, the held-out rows beside what was predicted for them. Right, the share of rows that lie below a quantile of
# their own distribution, minus the level of that quantile: where the distributions are right, the line stays in the
# band.

# %%
calibrated = mechanisms.plot()
calibrated.savefig(folder / "learned-calibration.png", dpi=120)
calibrated

# %% [markdown]
# ## Parameters with a posterior
#
# Linear distributions have few parameters, and a posterior over them is cheap: here a normal distribution for each
# (mean-field), found by variational inference.

# %%
linear = pf.learn_mechanisms(
    units[features],
    hiring.graph,
    parameters="linear",
    components=1,
    posterior="normal",
    steps=700,
    progress=False,
    random_state=0,
)
linear.held_out.round(3)

# %% [markdown]
# ## How narrow is too narrow? Chains of NUTS
#
# Mean-field intervals are too narrow where parameters are dependent, as an intercept and a slope are. The error can be
# seen on a program of your own for one mediator, fitted to 200 rows by NUTS, which has no such error, and by
# variational inference, which is many times faster.

# %%
few = pf.CausalGraph("{A Q} -> D; {A Q D} -> Y", sensitive="A", outcome="Y")


def children(n: int) -> None:
    d = pyro.sample("d", dist.Normal(torch.zeros(3), 5.0).to_event(1))  # intercept, A, Q
    s = pyro.sample("s", dist.HalfNormal(5.0))
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.6))
        Q = pyro.sample("Q", dist.Normal(2.0, 5.0))
        D = pyro.sample("D", dist.Normal(d[0] + d[1] * A + d[2] * Q / 5.0, s))
        pyro.sample("Y", dist.Bernoulli(logits=A + Q + D))


few_rows = units[["A", "Q", "D"]].head(200)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    chains = pf.fit_posterior(children, few_rows, few, draws=120, warmup=100, progress=False, random_state=0)
for each in caught:
    print(each.message)
mean_field = pf.fit_posterior(children, few_rows, few, method="svi", steps=800, progress=False, random_state=0)
summary = chains.summary()
summary.insert(2, "sd, mean-field", mean_field.summary()["sd"])
assert summary.loc["d[1]", "sd, mean-field"] < 0.8 * summary.loc["d[1]", "sd"]
summary.round(3)

# %% [markdown]
# `r_hat` near 1 says that the two chains agree, `ess_bulk` and `ess_tail` how many independent draws they are worth.
# Every posterior here is ArviZ data, by `to_inference_data()`, which serves ArviZ 0.23 and 1.x alike: all of ArviZ's
# plots and statistics take it. In a rank plot, the ranks of each chain's draws among all are uniform if the chains
# sample one distribution (ArviZ 1.x draws how far they are from that).

# %%
data = chains.to_inference_data()

import arviz as az  # after pyrofair's first use of it, which keeps ArviZ 0.23 from announcing ArviZ 1

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ArviZ 0.23 on matplotlib 3.11
    az.plot_rank(data, var_names=["d"])
    plt.gcf().savefig(folder / "learned-ranks.png", dpi=80, bbox_inches="tight")

# %% [markdown]
# ## A posterior predictive check
#
# Does the program draw tables like ours? `to_inference_data` of learned mechanisms holds draws of each column given the
# observed values of its parents. The linear distribution of `D` is compared with that of the network.

# %%
figure, panels = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
for axes, (name, learned) in zip(panels, {"network": mechanisms, "linear": linear}.items(), strict=True):
    checked = learned.to_inference_data(draws=20)
    seen = checked["observed_data"]["D"].to_numpy()
    bins = np.arange(seen.min() - 1.5, seen.max() + 2)
    for draw in checked["posterior_predictive"]["D"].to_numpy()[0]:
        axes.hist(draw, bins, histtype="step", density=True, color="steelblue", alpha=0.3)
    axes.hist(seen, bins, histtype="step", density=True, color="0.1", linewidth=1.5, label="observed")
    axes.plot([], [], color="steelblue", label="20 draws")
    axes.set_xlabel(f"D, by the {name} distribution")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("density")
figure.savefig(folder / "learned-predictive.png", dpi=120)

# %% [markdown]
# ## The posterior of the unfair effect
#
# Each draw of the parameters is a program; the same units go through all of them, in both worlds.

# %%
effects = pf.effect_posterior(
    pf.SEM.from_mechanisms(linear, hiring.unfair), None, {"plain": model}, linear.posterior, draws=20, n=80_000,
    progress=False, random_state=0,
)  # fmt: skip
effects.summary().round(3)

# %%
forest = effects.plot()
forest.savefig(folder / "learned-forest.png", dpi=120)
forest

# %% [markdown]
# ## The shared features
#
# Unfair are the direct path and the one through children, so that both worlds of a unit share qualification and
# strength. Given these, only children have to be drawn, from their learned distribution with A = 0 or 1. An audit then
# bounds PIU value by value of what is shared; the paper's bound, and the sharp one, use two averages only. `SEM.truth`
# is the truth, by the scenario's own program.

# %%
source = pf.GComputation(hiring.unfair, hidden=(16,), components=2, progress=False, random_state=0)
source.fit(units[features])
report = pf.audit({"plain": model}, source, units, n_boot=20, level=0.9, progress=False, n_jobs=1, random_state=0)
found = report.table[report.table["decisions"] == "threshold"].set_index("quantity")
sharp = pf.piu_bounds(found.loc["p_y0", "estimate"], found.loc["p_ypi", "estimate"])
low, high = found.loc["piu_lower"], found.loc["piu_upper"]
truth = pf.SEM(hiring.program, hiring.unfair).truth(model, n=100_000, random_state=0).piu
rows = {
    "given the shared features": (low["estimate"], high["estimate"]),
    "the two marginals, sharp": (sharp.lower, sharp.upper),
    "the paper's bound": (0.0, sharp.paper),
}
print(f"the truth: {truth}")
assert low["lower"] <= truth.value <= high["upper"]
pd.DataFrame(rows, index=["PIU at least", "PIU at most"]).T.round(3)

# %%
figure, axes = plt.subplots(figsize=(8, 2.2), layout="constrained")
for height, (start, end) in enumerate(rows.values()):
    axes.plot([start, end], [height, height], color="#1f77b4", linewidth=6, solid_capstyle="butt")
    axes.plot([start, end], [height, height], "|", color="#1f77b4", markersize=14, markeredgewidth=2)
axes.plot([low["lower"], high["upper"]], [0, 0], color="#1f77b4", linewidth=1.5)
axes.axvline(truth.value, color="#d62728", linewidth=1, label=f"truth {truth.value:.3f}")
axes.set_yticks(range(len(rows)), list(rows))
axes.set(xlim=(0, 1.02), ylim=(-0.6, 2.6), xlabel="probability of individual unfairness (PIU)")
axes.legend(loc="lower right", frameon=False)
figure.savefig(folder / "learned-bounds.png", dpi=120)

# %% [markdown]
# The thin line is the 90 % interval, over bootstrap replicates in which the distributions are learned again.
#
# ## PSCF: a classifier that predicts from the counterfactual
#
# `PSCF` learns the distributions of all columns on unfair paths together with a latent variable for each, infers a
# row's noise from the row, and predicts from what the row would be without the unfair paths. `latents_` says what the
# latent variables are worth: `kl` in nats (near 0: a row says nothing about them), `auc` how well `A` can be told from
# them (.5: not at all, as it should be), `explained` their share of the column's spread. What they do not hold is held
# by the noise of the distribution itself, which is abducted, too.

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pscf = pf.PSCF(
        hiring.unfair, hidden=30, own_noise=0.3, epochs=60, progress=False, random_state=0
    ).fit(units[features], units["Y"])  # fmt: skip
for each in caught:
    print(each.message)
pscf.latents_.round(3)

# %% [markdown]
# The same checks as before, on rows that it has not seen: columns and outcome drawn anew given the latent variables,
# beside those observed; and the children that units with A = 1 would have had without the unfair path.

# %%
checked = pscf.to_inference_data(later[features], later["Y"], draws=50)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
seen = checked["observed_data"]["D"].to_numpy()
bins = np.arange(seen.min() - 1.5, seen.max() + 2)
again = checked["posterior_predictive"]["D"].to_numpy()[0]
left.hist(again.ravel(), bins, density=True, color="steelblue", alpha=0.5, label="drawn anew")
left.hist(seen, bins, histtype="step", density=True, color="0.1", linewidth=1.5, label="observed")
left.set(xlabel="D", ylabel="density")
one = (later["A"] == 1).to_numpy()
fair = checked["posterior"]["fair_D"].to_numpy()[0].mean(0)
for group, color in [(~one, "0.5"), (one, "steelblue")]:
    right.scatter(later["D"][group], fair[group], s=8, alpha=0.4, color=color, label=f"A = {int(one[group][0])}")
right.set(xlabel="D, observed", ylabel="D without the unfair path, mean")
for axes in (left, right):
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
figure.savefig(folder / "learned-pscf.png", dpi=120)

# %% [markdown]
# Rows with the baseline are kept as they are: none of their edges changes. And what did it buy? `SEM.truth` measures
# both classifiers by the scenario's own program. `predict` of PSCF decides by one draw of a unit's noise, and so does
# `one_draw()`, whose scores an audit or a truth thresholds; see the page on PSCF for why a threshold on the mean is
# unfair by itself. Some of 5,000 units lie outside of what 1,000 rows have shown; that is said, too.

# %%
true = pf.SEM(hiring.program, hiring.unfair)
outcome = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name, each in {"plain": model, "PSCF": pscf.one_draw()}.items():
        by_program = true.truth(each, n=5_000, random_state=0)
        outcome[name] = {
            "accuracy": each.score(later[features], later["Y"]),
            "mean unfair effect": by_program.mean_unfair_effect.value,
            "PIU": by_program.piu.value,
        }
for text in dict.fromkeys(str(each.message) for each in caught):
    print(text)
assert abs(outcome["PSCF"]["mean unfair effect"]) < abs(outcome["plain"]["mean unfair effect"]) / 2
pd.DataFrame(outcome).T.round(3)

# %% [markdown]
# ## What the numbers depend on
#
# *The graph*, with every arrow that is not drawn: mechanisms are learned along it, and no fit, however good, speaks for
# it. *The learned distributions*: calibration and predictive checks show where they fail on average, not where they
# fail for few rows; a linear distribution of children that fits badly still gives an interval, and a narrow one.
# *Mean-field posteriors* are too narrow; chains are not, if they have mixed. *Independent errors across the worlds*,
# wherever two mediators read different values of `A`. *The coupling* of a unit's noise in both worlds, which no data
# determine, bears on PIU under an SEM and on PSCF, not on the bounds of `GComputation`. Numbers of one table of 1,000
# rows and one seed: a simulation study, the next tutorial, is how to know more.
