# %% [markdown]
# # Latent causes: a law school
#
# Data alone do not identify an effect if mediators have a latent common cause. A program can. You write it in Pyro, fit
# a posterior to a table, and get counterfactuals of given students. Finally `pf.PSCF` turns the program into a
# classifier. The data are simulated, so you can compare each result with the truth.
#
# The model follows the law-school example of Kusner et al. (2017). A student's knowledge `K` is in no table. It affects
# the grade `G` and the admission test `L`, and the group `R` affects both.

# %%
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from scipy.stats import poisson
from sklearn.linear_model import LogisticRegression
from torch import nn

import pyrofair as pf

# %% [markdown]
# ## Write the program
#
# Parameters have priors outside the plate. `Y` is whether a student passes. `k` is positive because data cannot tell
# knowledge from its negative. We mark `R -> Y` and `R -> L -> Y` as unfair, because the test favours those who can
# afford its preparation. The effect of `R` on the grade is fair here.


# %%
def law(n: int) -> None:
    b = pyro.sample("b", dist.Normal(torch.tensor([3.0, 3.4, 0.0]), 1.0).to_event(1))  # intercepts of G, L, Y
    r = pyro.sample("r", dist.Normal(torch.zeros(3), 1.0).to_event(1))  # effects of R on G, L, Y
    k = pyro.sample("k", dist.HalfNormal(torch.full((2,), 0.5)).to_event(1))  # effects of K on G, L
    w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))  # effects of G, L on Y
    s = pyro.sample("s", dist.HalfNormal(1.0))
    with pyro.plate("students", n):
        R = pyro.sample("R", dist.Bernoulli(0.5))
        K = pyro.sample("K", dist.Normal(0.0, 1.0))
        G = pyro.sample("G", dist.Normal(b[0] + k[0] * K + r[0] * R, s))
        L = pyro.sample("L", dist.Poisson(torch.exp(b[1] + k[1] * K + r[1] * R)))
        pyro.sample("Y", dist.Bernoulli(logits=b[2] + w[0] * (G - 3.0) + w[1] * (L - 30.0) / 10.0 + r[2] * R))


graph = pf.CausalGraph("R -> {G L Y}; K -> {G L}; {G L} -> Y", sensitive="R", outcome="Y", latent=["K"])
unfair = graph.unfair("R -> Y", "R -> L -> Y")
unfair

# %% [markdown]
# `G` and `L` have a latent common cause, and only the path through `L` is unfair. The program determines this effect,
# but data alone do not:

# %%
try:
    pf.identify(unfair)
except pf.NotIdentifiedError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## Draw the data
#
# The truth is the same program with fixed parameters. We draw 2,000 students to learn from and 2,000 others to test on.
# No method sees the knowledge `K`.

# %%
truth = {
    "b": torch.tensor([3.0, 3.4, 0.3]),
    "r": torch.tensor([-0.2, -0.25, -0.5]),
    "k": torch.tensor([0.3, 0.2]),
    "w": torch.tensor([1.5, 1.0]),
    "s": torch.tensor(0.25),
}


def draw(n: int, seed: int) -> pd.DataFrame:
    pyro.set_rng_seed(seed)
    sites = poutine.trace(poutine.condition(law, truth)).get_trace(n).nodes
    table = pd.DataFrame({name: sites[name]["value"].double().numpy() for name in "RGLYK"})
    return table.astype({"R": int, "L": int, "Y": int})


train, test = draw(2_000, seed=0), draw(2_000, seed=1)
features = ["R", "G", "L"]
observed = [*features, "Y"]
train[observed].head().round(2)

# %% [markdown]
# ## Fit the posterior
#
# `fit_posterior` conditions the program on the table. Variational inference takes seconds here, and `method="nuts"`
# takes minutes, because each of the 1,000 students has an unknown `K`. The intervals are slightly too narrow, because
# variational inference ignores dependence between parameters.

# %%
posterior = pf.fit_posterior(
    law, train[observed].head(1_000), graph, method="svi", steps=1_000, progress=False, random_state=0
)


def numbers(values: dict[str, torch.Tensor]) -> list[float]:
    """Return all parameters in the order of the summary's rows."""
    return [float(each) for name in truth for each in torch.as_tensor(values[name]).reshape(-1)]


summary = posterior.summary()
summary.assign(truth=numbers(truth)).round(2)

# %% [markdown]
# ## Counterfactuals of given students
#
# `counterfactual` infers `K` and the noise of each student by importance sampling. In the baseline world, R = 0 on all
# paths. In the unfair-path world, R = 1 on the unfair paths only. The draws combine uncertainty about parameters and
# noise. The table shows their means.

# %%
sem = pf.SEM(law, unfair, posterior=posterior)
found = sem.counterfactual(test[features].head(200), draws=200, random_state=0)
worlds = {
    "row": test[features],
    "baseline": found.baseline[["G", "L"]],
    "unfair-path world": found.switched[["G", "L"]],
}
pd.concat(worlds, axis=1, join="inner").head(6).round(2)

# %% [markdown]
# A student with R = 0 keeps the row in the baseline world, and gets another test in the unfair-path world. For R = 1
# the observed test is that of the unfair-path world. The path through the grade is fair, so the grade is that of R = 0
# in both worlds.
#
# `scores` compares the decisions. `decisions_differ` is the probability that a student's decision changes.

# %%
plain = LogisticRegression().fit(train[features], train["Y"])
scores = found.scores(plain)
scores.join(test[features]).head(6).round(3)

# %% [markdown]
# For most students this probability is near 0 or 1:

# %%
axes = scores["decisions_differ"].plot.hist(bins=20, xlabel="probability that the decision changes", ylabel="students")

# %% [markdown]
# ## Are the counterfactuals right?
#
# Yes, up to simulation error. The central 90 % of the draws should contain the true test of about 90 % of the students.
# It may contain slightly more, because tests are counts. The true test keeps a student's knowledge and luck. Luck is
# the quantile of the test, drawn within the range that the count leaves open.


# %%
def true_test(students: pd.DataFrame, group: int | pd.Series, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rate, other = (np.exp(3.4 + 0.2 * students["K"] - 0.25 * each) for each in (students["R"], group))
    luck = rng.uniform(poisson.cdf(students["L"] - 1, rate), poisson.cdf(students["L"], rate))
    return poisson.ppf(luck, other)


given = test.head(200)
draws = np.where(given[["R"]] == 0, found.draws[1]["L"], found.draws[0]["L"])  # in the world that was not observed
low, high = np.quantile(draws, [0.05, 0.95], axis=1)
true = true_test(given, 1 - given["R"])
inside = (low <= true) & (true <= high)
errors = draws.mean(1) - true
print(f"inside the central 90 % of the draws: {inside.mean():.0%} of {len(given)} students")
print(f"mean error of the test {errors.mean():+.2f}, root mean square {np.sqrt((errors**2).mean()):.2f}")

# %% [markdown]
# ## Set other nodes
#
# `do` sets other nodes in both worlds, for example a grade of 3.5. Each student's knowledge is still inferred from the
# observed row.

# %%
better = sem.counterfactual(test[features].head(200), draws=200, do={"G": 3.5}, random_state=0)
pd.DataFrame({"as graded": scores.mean(), "grade 3.5": better.scores(plain).mean()}).T.round(3)

# %% [markdown]
# ## Train a PSCF classifier
#
# `pf.PSCF(unfair, model=program)` fits the program's parameters and a *guide*, the distribution of `K` given a row. It
# predicts each student's chance without the unfair paths. By default the guide is a network. `latents_` shows how much
# a row reveals about `K`: `kl` in nats. `auc` near 0.5 means that `K` does not reveal the group. `explained` is the
# share of the columns' spread.

# %%
settings = {"epochs": 150, "batch_size": 500, "learning_rate": 0.03, "progress": False, "random_state": 0}
model = pf.PSCF(unfair, model=law, **settings).fit(train[features], train["Y"])
model.latents_.round(2)

# %% [markdown]
# ## Write your own guide
#
# A guide takes `rows`, the features by name, and samples the latent noise. In this model `K` is nearly normal given a
# row. Its mean is linear in the group, the grade and the logarithm of the test, so five parameters are enough.


# %%
class Knowledge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(3))
        self.start, self.spread = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, rows: dict[str, torch.Tensor]) -> None:
        seen = torch.stack([rows["R"] - 0.5, rows["G"] - 3.0, ((1.0 + rows["L"]) / 30.0).log()], -1)
        with pyro.plate("rows", len(seen)):
            mean = self.start + (seen * self.slopes.to(seen)).sum(-1)
            pyro.sample("K", dist.Normal(mean, self.spread.exp()))


own = pf.PSCF(unfair, model=law, guide=Knowledge(), **settings).fit(train[features], train["Y"])
print(f"evidence lower bound, nats per student: networks {model.elbo_:.4f}, own guide {own.elbo_:.4f}")
fitted = {"truth": truth, "networks": model.parameters_, "own guide": own.parameters_}
pd.DataFrame({name: numbers(values) for name, values in fitted.items()}, index=summary.index).T.round(2)

# %% [markdown]
# ## Compare with the truth
#
# The table compares each student's fair test with the true one. A fair test keeps knowledge and luck, and has R = 0.
# Students with R = 0 keep their observed test.

# %%
fair_test = true_test(test, 0)
fair = 1.0 / (1.0 + np.exp(-(0.3 + 1.5 * (test["G"] - 3.0) + 0.1 * (fair_test - 30.0))))
one = test["R"] == 1
compared = {}
for name, each in {"networks": model, "own guide": own}.items():
    draws = each.to_inference_data(test[features], draws=50)["posterior"]
    knowledge, tests = (draws[site].to_numpy()[0].mean(0) for site in ("K", "fair_L"))
    compared[name] = {
        "accuracy": each.score(test[features], test["Y"]),
        "correlation of K with the truth": np.corrcoef(knowledge, test["K"])[0, 1],
        "mean change of L, R = 1": (tests - test["L"])[one].mean(),
        "true change of L, R = 1": (fair_test - test["L"])[one].mean(),
        "mean error of the fair chance": np.abs(each.predict_proba(test[features])[:, 1] - fair).mean(),
        "unchanged L, R = 0": (tests == test["L"])[~one].mean(),
    }
pd.DataFrame(compared).round(3)

# %% [markdown]
# ## Audit both classifiers
#
# The audit uses the program with its fitted parameters, and `SEM.truth` uses the true ones. PSCF is fair under its own
# model. Its remaining effect is the error of that model. `one_draw()` decides as `predict` does, with one draw of each
# student's noise. `predict_proba` is the mean over 100 draws.

# %%
models = {"plain": plain, "PSCF": model.one_draw()}
at_fit = {name: np.asarray(value)[None] for name, value in model.parameters_.items()}
at_truth = {name: value.numpy()[None] for name, value in truth.items()}
fitted_sem, true_sem = (pf.SEM(law, unfair, posterior=at) for at in (at_fit, at_truth))
report = pf.audit(models, fitted_sem.fit(train[observed]), test[observed], n_boot=0, random_state=0)
effects = report.table[report.table["quantity"] == "mean_unfair_effect"].set_index(["model", "decisions"])["estimate"]
shown = effects.to_frame("audit, fitted program").assign(truth=np.nan)
for name, decisions in shown.index:
    measured = true_sem.truth(models[name], n=5_000, random_state=0, decisions=decisions)
    shown.loc[(name, decisions), "truth"] = measured.mean_unfair_effect.value
shown.round(3)

# %%
axes = shown.plot.barh(xlabel="mean unfair effect")

# %% [markdown]
# ## Assumptions
#
# * **The program**: its equations, the latent `K`, normal noise and Poisson counts. Data can contradict it but not
#   confirm it. If `R` and `K` had a common cause, all numbers here would be wrong, and no check would show it.
# * **The coupling** of a student's tests in both worlds. No table determines it. Here it is monotone.
# * **The posterior.** Variational intervals are slightly too narrow. PSCF uses the parameters' medians.
# * **The guide**: normal given a row, which is nearly true in this model. `found.diagnostics` has the effective sizes
#   of importance sampling.
# * **Your judgement** that `R -> Y` and `R -> L -> Y` are unfair.
