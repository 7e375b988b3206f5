# %% [markdown]
# # A law school: a latent cause, a posterior, and the counterfactuals of given students
#
# The model follows the law-school example of Kusner et al. (2017): a student's knowledge `K`, which no table holds, is
# behind the undergraduate grade `G` and the admission test `L`; the group `R` bears on both. No weights identify what
# is asked here, for `K` is a latent cause of both. A model that one is ready to defend does: a Pyro program, whose
# parameters have a posterior given a table. With it each *given* student has counterfactuals: abduction of the
# student's noise from the row, action on the unfair paths, prediction. At the end `pf.PSCF` makes a classifier of it.
#
# The data are *simulated* from known equations, so that each claim can be compared with the truth. As a script: `python
# examples/6_law_school.py [FOLDER]` writes its pictures to FOLDER (`build/examples` by default).

# %% tags=["hide-cell"]
import sys
from pathlib import Path

folder = Path("build") / "examples"  # where pictures go
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %%
import matplotlib.pyplot as plt
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
# ## The program, and which paths are unfair
#
# `Y` says whether a student passes. Parameters are drawn outside the plate, each with its prior. `k` is positive, for
# data cannot tell knowledge from its negative. Say that the direct edge `R -> Y` is unfair, and so is `R -> L -> Y`:
# the test favours those who could pay for its preparation. What `R` does to the grade, say, is fair: it is earned.


# %%
def law(n: int) -> None:
    b = pyro.sample("b", dist.Normal(torch.tensor([3.0, 3.4, 0.0]), 1.0).to_event(1))  # intercepts of G, L, Y
    r = pyro.sample("r", dist.Normal(torch.zeros(3), 1.0).to_event(1))  # what R does to each
    k = pyro.sample("k", dist.HalfNormal(torch.full((2,), 0.5)).to_event(1))  # what K does to G, L
    w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))  # what G, L do to Y
    s = pyro.sample("s", dist.HalfNormal(1.0))
    with pyro.plate("students", n):
        R = pyro.sample("R", dist.Bernoulli(0.5))
        K = pyro.sample("K", dist.Normal(0.0, 1.0))
        G = pyro.sample("G", dist.Normal(b[0] + k[0] * K + r[0] * R, s))
        L = pyro.sample("L", dist.Poisson(torch.exp(b[1] + k[1] * K + r[1] * R)))
        pyro.sample("Y", dist.Bernoulli(logits=b[2] + w[0] * (G - 3.0) + w[1] * (L - 30.0) / 10.0 + r[2] * R))


graph = pf.CausalGraph("R -> {G L Y}; K -> {G L}; {G L} -> Y", sensitive="R", outcome="Y", latent=["K"])
unfair = graph.unfair("R -> Y", "R -> L -> Y")
drawing = unfair.draw().figure
drawing.savefig(folder / "law-graph.png", dpi=120)
drawing

# %% [markdown]
# `G` and `L` have a latent cause in common, and only one of them is to be switched: no weights identify that. The
# program determines it.

# %%
try:
    pf.identify(unfair)
except pf.NotIdentifiedError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## The data: 2,000 students to learn from, 2,000 others to judge by
#
# The truth is the same program with its parameters set. The knowledge `K` is kept to compare with, never shown to a
# method.

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
# ## The posterior of the parameters
#
# `fit_posterior` conditions the program on the table. Here by variational inference, with a normal distribution for
# each unknown: each of the 1,000 students whose rows are used has a `K` of its own, and NUTS (`method="nuts"`) takes
# minutes then. The price is that the intervals are a little too narrow: dependence between parameters is left out.

# %%
posterior = pf.fit_posterior(
    law, train[observed].head(1_000), graph, method="svi", steps=1_000, progress=False, random_state=0
)


def numbers(values: dict[str, torch.Tensor]) -> list[float]:
    """Return the numbers of all parameters in the order of a summary's rows."""
    return [float(each) for name in truth for each in torch.as_tensor(values[name]).reshape(-1)]


summary = posterior.summary()
assert [name.split("[")[0] for name in summary.index] == [name for name in truth for _ in truth[name].reshape(-1)]
summary.assign(truth=numbers(truth)).round(2)

# %% [markdown]
# ## Given students in both worlds
#
# `SEM(...).counterfactual` takes rows. For each student it infers `K` and the noise of `G` and `L`; here by importance
# sampling, for a row does not determine them. In the baseline world `R = 0` along every path; in the unfair-path world
# the unfair paths alone carry `R = 1`. The draws of the parameters are spread over the draws of the noise, so that both
# uncertainties are in; shown are means.

# %%
sem = pf.SEM(law, unfair, posterior=posterior)
found = sem.counterfactual(test[features].head(200), draws=200, random_state=0)
worlds = pd.concat({"baseline": found.baseline[["G", "L"]], "switched": found.switched[["G", "L"]]}, axis=1)
worlds["row", "R"], worlds["row", "G"], worlds["row", "L"] = (test[name].head(200) for name in features)
worlds.head(6).round(2)

# %% [markdown]
# A student with `R = 0` has the baseline, which is the row as observed, and in the unfair-path world the test that
# would have been. With `R = 1` the observed test is that of the unfair-path world, and the baseline's is inferred; the
# grade, whose path is fair, reads the baseline in both worlds.
#
# A classifier can be asked about each of them. `effect` is the mean difference between its two scores, `effect_sd` what
# the row leaves open, and `decisions_differ` the probability that the student's decision changes: the student's own
# probability of individual unfairness.

# %%
plain = LogisticRegression().fit(train[features], train["Y"])
scores = found.scores(plain)
scores.join(test[features]).head(6).round(3)

# %% [markdown]
# How sure is a single student's answer? For most the decision is the same in all draws, or in none.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.hist(scores["decisions_differ"], bins=np.linspace(0, 1, 21), color="steelblue")
left.set_xlabel("a student's own probability that the decision changes")
left.set_ylabel("students")
student = int((scores["decisions_differ"] - 0.5).abs().to_numpy().argmin())  # the least certain one
world = int(test["R"].iloc[student] == 0)
values = found.draws[world]["L"][student]
right.hist(values, bins=np.arange(values.min() - 0.5, values.max() + 1), color="steelblue", label="200 draws")
right.axvline(test["L"].iloc[student], color="0.3", linestyle="--", label="observed test")
right.set_xlabel(f"test of student {student} in the {['baseline', 'switched'][world]} world")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
figure.savefig(folder / "law-students.png", dpi=120)

# %% [markdown]
# ## Are they right?
#
# Here the knowledge and the luck of each student are known, up to what a count leaves open: the quantile at which `L`
# stands is drawn within its step, as the coupling of the counts (monotone) has it. So the draws can be checked: the
# true counterfactual test should lie in the central 90 % of them for as many students, or a few more, for tests are
# counts.


# %%
def true_test(students: pd.DataFrame, group: int | pd.Series, seed: int = 0) -> np.ndarray:
    """Return the test of each student if it had read the group, knowledge and luck being the same."""
    rng = np.random.default_rng(seed)
    rate, other = (np.exp(3.4 + 0.2 * students["K"] - 0.25 * each) for each in (students["R"], group))
    luck = rng.uniform(poisson.cdf(students["L"] - 1, rate), poisson.cdf(students["L"], rate))
    return poisson.ppf(luck, other)


given = test.head(200)
draws = np.where(given[["R"]] == 0, found.draws[1]["L"], found.draws[0]["L"])  # in the world that was not observed
low, high = np.quantile(draws, [0.05, 0.95], axis=1)
would_be = true_test(given, 1 - given["R"])
inside = (low <= would_be) & (would_be <= high)
errors = draws.mean(1) - would_be
print(f"in the central 90 % of the draws: {inside.mean():.0%} of {len(given)} students")
print(f"mean error of the test {errors.mean():+.2f}, root mean square {np.sqrt((errors**2).mean()):.2f}")
assert inside.mean() > 0.8

# %% [markdown]
# ## Other suppositions
#
# `do` sets further nodes in both worlds: the same students with a grade of 3.5, say. What they know is still inferred
# from the rows they have.

# %%
better = sem.counterfactual(test[features].head(200), draws=200, do={"G": 3.5}, random_state=0)
pd.DataFrame({"as graded": scores.mean(), "grade 3.5": better.scores(plain).mean()}).T.round(3)

# %% [markdown]
# ## A classifier that predicts from the fair world
#
# `pf.PSCF(unfair, model=program)` fits the parameters of a program and a guide of `K` to the table, and predicts what
# each student's chance would be without the unfair paths: it evaluates the row again, unfair edges carrying the
# baseline. Without a guide of your own, networks make a normal distribution of `K` given a row. `parameters_` are the
# posterior medians. `latents_` says whether `K` is known at all: the divergence of its posterior from its prior in
# nats, how well the two groups are told apart by it (.5: not at all), and the share of the columns' spread that it
# explains.

# %%
settings = {"epochs": 150, "batch_size": 500, "learning_rate": 0.03, "progress": False, "random_state": 0}
model = pf.PSCF(unfair, model=law, **settings).fit(train[features], train["Y"])
model.latents_.round(2)

# %% [markdown]
# ## A guide of your own
#
# In this model the posterior of `K` is close to normal, with a mean that is linear in the group, the grade and the
# logarithm of the test. A guide is a function of `rows`, the features of m students by name, that draws the noise which
# no row determines; a network is such a function. This one has five numbers.


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
print(f"evidence lower bound, nats a student: networks {model.elbo_:.4f}, own guide {own.elbo_:.4f}")
fitted = {"truth": truth, "networks": model.parameters_, "own guide": own.parameters_}
pd.DataFrame({name: numbers(values) for name, values in fitted.items()}, index=summary.index).T.round(2)

# %% [markdown]
# ## Against the truth
#
# The test that a student would have had: `K` and the student's own luck in the test are kept, `R` reads the baseline.
# The truth has one such value for each draw of the luck within the step that the observed count leaves (the counts are
# coupled monotonically, as PSCF does by default). Students of the baseline group keep what they have, exactly.

# %%
test["fair L"] = true_test(test, 0)
fair = 1.0 / (1.0 + np.exp(-(0.3 + 1.5 * (test["G"] - 3.0) + 0.1 * (test["fair L"] - 30.0))))

found = {}
one = test["R"] == 1
for name, fitted in {"networks": model, "own guide": own}.items():
    draws = fitted.to_inference_data(test[features], draws=50)["posterior"]
    test[f"{name}: K"] = draws["K"].to_numpy()[0].mean(0)
    test[f"{name}: L"] = draws["fair_L"].to_numpy()[0].mean(0)
    found[name] = {
        "accuracy": fitted.score(test[features], test["Y"]),
        "correlation of K": np.corrcoef(test[f"{name}: K"], test["K"])[0, 1],
        "mean shift of L": (test[f"{name}: L"] - test["L"])[one].mean(),
        "true shift of L": (test["fair L"] - test["L"])[one].mean(),
        "off the fair chance": np.abs(fitted.predict_proba(test[features])[:, 1] - fair).mean(),
        "baseline kept": (test[f"{name}: L"] == test["L"])[~one].mean(),
    }
pd.DataFrame(found).round(3)

# %% [markdown]
# ## The unfair effect
#
# `pf.audit` takes a source of both worlds: here the program at its fitted parameters. `SEM.truth` evaluates the same on
# the true program: PSCF is fair by its own model, and what is left is the error of that model. A plain logistic
# regression of the same columns stands beside it. `predict` of PSCF decides by one draw of each unit's noise, and so
# does `one_draw()`, whose scores an audit thresholds; `predict_proba` of PSCF itself is the mean over 100 draws.

# %%
plain = LogisticRegression().fit(train[features], train["Y"])
models = {"plain": plain, "PSCF": model.one_draw()}
at_fit = {name: np.asarray(value)[None] for name, value in model.parameters_.items()}
at_truth = {name: value.numpy()[None] for name, value in truth.items()}
fitted_sem, true_sem = (pf.SEM(law, unfair, posterior=at) for at in (at_fit, at_truth))
report = pf.audit(models, fitted_sem.fit(train[observed]), test[observed], n_boot=0, random_state=0)
effects = report.table[report.table["quantity"] == "mean_unfair_effect"].set_index(["model", "decisions"])["estimate"]
shown = effects.to_frame("audit, fitted program").assign(truth=np.nan)
for name, decisions in shown.index:
    found = true_sem.truth(models[name], n=5_000, random_state=0, decisions=decisions)
    shown.loc[(name, decisions), "truth"] = found.mean_unfair_effect.value
shown.round(3)

# %% [markdown]
# ## The picture
#
# Left: a row does not determine `K`, so that its posterior mean lies nearer to 0 than the truth. Middle: the test that
# students of group 1 would have had, the mean over draws against the truth. Right: the effects above.

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
for axes, x, y, name in [
    (left, test["K"], test["own guide: K"], "knowledge K"),
    (middle, test.loc[one, "fair L"], test.loc[one, "own guide: L"], "test L without the unfair path"),
]:
    axes.scatter(x, y, s=6, alpha=0.35, color="steelblue", linewidth=0)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    axes.plot(ends, ends, color="0.3", linewidth=1, linestyle="--", label="equal")
    axes.set_xlabel(f"{name}, true")
    axes.set_ylabel("mean of 50 draws")
    axes.legend(frameon=False)
labels = [f"{name}, {'decisions' if kind == 'threshold' else 'scores'}" for name, kind in shown.index]
place = np.arange(len(shown))[::-1]
right.barh(place + 0.19, shown["truth"], 0.36, color="0.45", label="truth")
right.barh(place - 0.19, shown["audit, fitted program"], 0.36, color="steelblue", label="audit, fitted program")
right.axvline(0.0, color="0.2", linewidth=1)
right.set_yticks(place, labels)
right.set_xlabel("mean unfair effect of R")
right.legend(frameon=False)
for axes in (left, middle, right):
    axes.spines[["top", "right"]].set_visible(False)
figure.savefig(folder / "law-school.png", dpi=120)

# %% [markdown]
# ## What the numbers depend on
#
# *The program*: its equations, its latent `K`, normal noise and Poisson counts. Data can contradict it, and cannot
# confirm it; where `R` and `K` have a common cause, say, everything here is off and nothing shows it. *The coupling*:
# how a student's test in one world goes with that in the other is not determined by any table, and is monotone here.
# *The posterior*: variational, so that its intervals are somewhat too narrow; `PSCF` holds the parameters at their
# medians. *The guide* of `K`: normal given a row, which is close to the truth in this model. Importance sampling is
# described by effective sizes in `found.diagnostics`. And "unfair" is what we called so: `R -> Y` and `R -> L -> Y`.
