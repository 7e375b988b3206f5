# %% [markdown]
# # Fair predictions from your own Pyro program: grades of law students
#
# The model follows the law-school example of Kusner et al. (2017): a student's knowledge `K`, which no table holds, is
# behind the undergraduate grade `G` and the admission test `L`; the group `R` bears on both. The data here are
# *simulated* from known equations, so that each claim can be compared with the truth. `pf.PSCF(unfair, model=program)`
# fits the parameters of a program and a guide of `K` to the table, and predicts what each student's chance would be
# without the unfair paths. As a script: `python examples/law_school.py [FOLDER]` writes its picture to FOLDER
# (`build/examples` by default). It takes about half a minute.

# %%
import sys
from pathlib import Path

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

folder = Path("build") / "examples"
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

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

# %% [markdown]
# `G` and `L` have a latent cause in common, and only one of them is to be switched: no weights identify that. The
# program determines it.

# %%
try:
    pf.identify(unfair)
except pf.NotIdentifiedError as error:
    print(f"{type(error).__name__}: {error}\n")

# %% [markdown]
# ## The data: 3,000 students to learn from, 2,000 others to judge by
#
# The truth is the same program with its parameters set. The knowledge `K` is kept to compare with, never shown.

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


train, test = draw(3_000, seed=0), draw(2_000, seed=1)
features = ["R", "G", "L"]

# %% [markdown]
# ## Fitting
#
# Without a guide of your own, networks make a normal distribution of `K` given a row. `parameters_` are the posterior
# medians. `latents_` says whether `K` is known at all: the divergence of its posterior from its prior in nats, how well
# the two groups are told apart by it (.5: not at all), and the share of the columns' spread that it explains.

# %%
settings = {"epochs": 150, "batch_size": 500, "learning_rate": 0.03, "progress": False, "random_state": 0}
model = pf.PSCF(unfair, model=law, **settings).fit(train[features], train["Y"])


def compared(fitted: pf.PSCF) -> pd.DataFrame:
    names = [f"{name}[{i}]" if value.ndim else name for name, value in truth.items() for i in range(value.numel())]
    columns = {"truth": truth, "fitted": {name: torch.as_tensor(each) for name, each in fitted.parameters_.items()}}
    values = {label: torch.cat([of[name].reshape(-1) for name in truth]) for label, of in columns.items()}
    return pd.DataFrame({label: each.numpy() for label, each in values.items()}, index=names).round(2)


print(compared(model).T.to_string())
print(model.latents_.round(2).to_string(index=False))

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
print(compared(own).T.to_string())
print(own.latents_.round(2).to_string(index=False))
print(f"evidence lower bound, nats a student: networks {model.elbo_:.4f}, own guide {own.elbo_:.4f}")

# %% [markdown]
# ## Against the truth
#
# The test that a student would have had: `K` and the student's own luck in the test are kept, `R` reads the baseline.
# The truth has one such value for each draw of the luck within the step that the observed count leaves (the counts are
# coupled monotonically, as PSCF does by default). Students of the baseline group keep what they have, exactly.

# %%
rng = np.random.default_rng(0)
rate, switched = (np.exp(3.4 + 0.2 * test["K"] - 0.25 * group) for group in (test["R"], 0))
luck = rng.uniform(poisson.cdf(test["L"] - 1, rate), poisson.cdf(test["L"], rate))
test["fair L"] = poisson.ppf(luck, switched)
fair = 1.0 / (1.0 + np.exp(-(0.3 + 1.5 * (test["G"] - 3.0) + 0.1 * (test["fair L"] - 30.0))))

found = {}
for name, fitted in {"networks": model, "own guide": own}.items():
    draws = fitted.to_inference_data(test[features], draws=50)["posterior"]
    test[f"{name}: K"] = draws["K"].to_numpy()[0].mean(0)
    test[f"{name}: L"] = draws["fair_L"].to_numpy()[0].mean(0)
    one = test["R"] == 1
    found[name] = {
        "accuracy": fitted.score(test[features], test["Y"]),
        "correlation of K": np.corrcoef(test[f"{name}: K"], test["K"])[0, 1],
        "mean shift of L": (test[f"{name}: L"] - test["L"])[one].mean(),
        "true shift of L": (test["fair L"] - test["L"])[one].mean(),
        "off the fair chance": np.abs(fitted.predict_proba(test[features])[:, 1] - fair).mean(),
        "baseline kept": (test[f"{name}: L"] == test["L"])[~one].mean(),
    }
print(pd.DataFrame(found).round(3).to_string())

# %% [markdown]
# ## The unfair effect
#
# `pf.audit` takes a source of both worlds: here the program at its fitted parameters. `SEM.truth` evaluates the same on
# the true program: PSCF is fair by its own model, and what is left is the error of that model. A plain logistic
# regression of the same columns stands beside it. Scores of PSCF are means over 100 draws of a student's noise;
# `predict` decides by one draw of each unit, and so does `one_draw()`, whose scores an audit thresholds.

# %%
plain = LogisticRegression().fit(train[features], train["Y"])
models = {"plain": plain, "PSCF": model, "PSCF (one draw)": model.one_draw()}
at_fit = {name: np.asarray(value)[None] for name, value in model.parameters_.items()}
at_truth = {name: value.numpy()[None] for name, value in truth.items()}
fitted_sem, true_sem = (pf.SEM(law, unfair, posterior=at) for at in (at_fit, at_truth))
observed = [*features, "Y"]
report = pf.audit(models, fitted_sem.fit(train[observed]), test[observed], n_boot=0, random_state=0)
effects = report.table[report.table["quantity"] == "mean_unfair_effect"].set_index(["model", "decisions"])["estimate"]
shown = effects.to_frame("audit, fitted program").assign(truth=np.nan)
for name, decisions in shown.index:
    found = true_sem.truth(models[name], n=20_000, random_state=0, decisions=decisions)
    shown.loc[(name, decisions), "truth"] = found.mean_unfair_effect.value
print(shown.round(3).to_string())

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
print(f"wrote law-school.png to {folder}")
