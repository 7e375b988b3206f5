# %% [markdown]
# # Learn the mechanisms from data
#
# You have a table and a causal graph, but no equations. pyrofair learns a *mechanism* for each column: its distribution
# given its parents. With these you bound PIU given the shared features, get a posterior of the unfair effect, and train
# a classifier that predicts from counterfactuals. Each part comes with checks, because mechanisms can be wrong.

# %%
import warnings

import pandas as pd
import pyro
import pyro.distributions as dist
import torch

import pyrofair as pf

warnings.simplefilter("once", pf.PyrofairWarning)
warnings.showwarning = lambda message, *_: print(message)  # as text in the page

# %% [markdown]
# ## Table, graph and classifier
#
# The table comes from the `hiring` scenario of the paper: gender `A`, qualification `Q`, children `D`, physical
# strength `M` and decision `Y`. We use the true equations only for comparison.

# %%
hiring = pf.simulate.scenario("hiring")
train, later = hiring.draw(1_000, random_state=0), hiring.draw(1_000, random_state=1)
features = ["A", "Q", "D", "M"]
model = pf.PenalizedClassifier(epochs=40, progress=False, random_state=0).fit(train[features], train["Y"])
hiring.unfair

# %% [markdown]
# ## Learn the mediators' distributions
#
# Each mediator gets a mixture of normal distributions given its parents, from a small network. For integers the mixture
# is rounded. A tenth of the rows is held out. `gain` is the improvement over the marginal distribution, in nats per
# row.

# %%
mechanisms = pf.learn_mechanisms(
    train[features], hiring.graph, nodes=["D", "M"], hidden=(16,), components=2, steps=700, progress=False,
    random_state=0,
)  # fmt: skip
mechanisms.held_out.round(3)

# %% [markdown]
# Left: held-out rows and the predicted distribution. Right: the calibration error at each quantile. It stays within the
# band if the distributions are right.

# %%
mechanisms.plot()

# %% [markdown]
# ## Linear mechanisms with a posterior
#
# Linear distributions have few parameters. Variational inference gives these a posterior, here with independent normal
# distributions (mean-field).

# %%
linear = pf.learn_mechanisms(
    train[features],
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
# ## Compare with NUTS
#
# Mean-field intervals are too narrow if parameters are dependent, such as an intercept and a slope. NUTS does not have
# this error, but it is many times slower. We compare both on your own program for one mediator and 200 rows.

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


few_rows = train[["A", "Q", "D"]].head(200)
chains = pf.fit_posterior(children, few_rows, few, draws=120, warmup=100, progress=False, random_state=0)
mean_field = pf.fit_posterior(children, few_rows, few, method="svi", steps=800, progress=False, random_state=0)
summary = chains.summary()
summary.insert(2, "sd, mean-field", mean_field.summary()["sd"])
summary.round(3)

# %% [markdown]
# `r_hat` near 1 means that the two chains agree. `ess_bulk` and `ess_tail` are their effective numbers of independent
# draws. Every posterior converts to ArviZ data with `to_inference_data()`, so you can use all plots of ArviZ. If the
# chains agree, the ranks of their draws are uniform:

# %%
data = chains.to_inference_data()

import arviz as az  # after pyrofair: it silences an announcement of ArviZ 0.23

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ArviZ 0.23 on matplotlib 3.11
    ranks = az.plot_rank(data, var_names=["d"])

# %% [markdown]
# ## Draw the table again
#
# A posterior predictive check compares the observed column with draws from the mechanism. Both mechanisms match the
# mean. The linear one misses the lowest values.

# %%
checked = {name: each.to_inference_data(draws=20) for name, each in {"network": mechanisms, "linear": linear}.items()}
columns = {"observed": checked["network"]["observed_data"]["D"].to_numpy()}
columns |= {name: each["posterior_predictive"]["D"].to_numpy().ravel() for name, each in checked.items()}
numbers = {name: pd.Series(values).describe()[["mean", "std", "min", "50%", "max"]] for name, values in columns.items()}
pd.DataFrame(numbers).T.round(2)

# %% [markdown]
# ## Posterior of the unfair effect
#
# Each draw of the parameters gives one program. The same individuals go through all of these programs, in both worlds.

# %%
effects = pf.effect_posterior(
    pf.SEM.from_mechanisms(linear, hiring.unfair), None, {"plain": model}, linear.posterior, draws=20, n=80_000,
    progress=False, random_state=0,
)  # fmt: skip
effects.plot()

# %%
effects.summary().round(3)

# %% [markdown]
# ## Bounds given the shared features
#
# Both worlds share qualification and strength, so only the children have to be drawn. The audit bounds PIU for each
# value of the shared features, and averages. This interval is narrower than one from two averages alone.

# %%
source = pf.GComputation(hiring.unfair, hidden=(16,), components=2, progress=False, random_state=0)
source.fit(train[features])
report = pf.audit({"plain": model}, source, train, n_boot=20, level=0.9, progress=False, n_jobs=1, random_state=0)
numbers = report.table[report.table["decisions"] == "threshold"].set_index("quantity")
sharp = pf.piu_bounds(numbers.loc["p_y0", "estimate"], numbers.loc["p_ypi", "estimate"])
truth = pf.SEM(hiring.program, hiring.unfair).truth(model, n=100_000, random_state=0).piu
print(f"true PIU: {truth}")
rows = {
    "given the shared features": (numbers.loc["piu_lower", "estimate"], numbers.loc["piu_upper", "estimate"]),
    "the two marginals, sharp": (sharp.lower, sharp.upper),
    "the paper's bound": (0.0, sharp.paper),
}
pd.DataFrame(rows, index=["lower bound", "upper bound"]).T.round(3)

# %% [markdown]
# The thin lines are 90 % intervals. The bootstrap learns the distributions again in each replicate.

# %%
report.plot(paper_bound=True)

# %% [markdown]
# ## Train a PSCF classifier
#
# PSCF (path-specific counterfactual fairness) infers the noise of each row, and predicts from the values that the row
# would have without the unfair paths. `latents_` describes its latent variables. `kl` is the information that a row
# gives about them, in nats. `auc` near 0.5 means that they do not reveal `A`. `explained` is their share of the
# column's spread.

# %%
pscf = pf.PSCF(
    hiring.unfair, hidden=30, own_noise=0.3, epochs=60, progress=False, random_state=0
).fit(train[features], train["Y"])  # fmt: skip
pscf.latents_.round(3)

# %% [markdown]
# The next table compares children on new rows: the observed number, the number drawn again, and the number without the
# unfair path. Rows with A = 0 keep their values, because none of their edges changes.

# %%
checked = pscf.to_inference_data(later[features], later["Y"], draws=50)
means = {
    "observed": later["D"].to_numpy(),
    "drawn again": checked["posterior_predictive"]["D"].to_numpy()[0].mean(0),
    "without the unfair path": checked["posterior"]["fair_D"].to_numpy()[0].mean(0),
}
pd.DataFrame(means).groupby(later["A"].to_numpy()).mean().rename_axis("A").round(2)

# %% [markdown]
# ## Compare with the truth
#
# `SEM.truth` measures both classifiers with the true equations. `predict` of PSCF decides with one draw of the noise.
# `one_draw()` returns this classifier for audits. The [PSCF page](../docs/pscf.md) explains why you should not
# threshold the mean score. Some rows lie outside the training data, and a warning says so.

# %%
true = pf.SEM(hiring.program, hiring.unfair)
outcome = {}
for name, each in {"plain": model, "PSCF": pscf.one_draw()}.items():
    measured = true.truth(each, n=5_000, random_state=0)
    outcome[name] = {
        "accuracy": each.score(later[features], later["Y"]),
        "mean unfair effect": measured.mean_unfair_effect.value,
        "PIU": measured.piu.value,
    }
pd.DataFrame(outcome).T.round(3)

# %% [markdown]
# ## Assumptions
#
# * **The graph**, and every arrow left out. A good fit is not evidence for the graph.
# * **The learned distributions.** Checks show average errors, and can miss errors for few rows. A badly fitting
#   distribution still gives a narrow interval.
# * **The posterior.** Mean-field intervals are too narrow. Those of NUTS are not, if the chains have mixed.
# * **Independent errors across worlds**, when two mediators read different values of `A`.
# * **The coupling** of noise. No data determine it. PIU under an SEM and PSCF depend on it, the bounds do not.
#
# These are numbers of one table with 1,000 rows. The [next tutorial](5_simulation_study.ipynb) repeats such comparisons
# over many tables.
