# %% [markdown]
# # A structural equation model in Pyro: each unit's score, had only the unfair paths been switched
#
# You have written down how a hiring table comes about, as an ordinary Pyro program. From it come the causal graph, each
# unit in both worlds, and how unfair a classifier is in truth. As a script: `python examples/hiring_sem.py [FOLDER]`
# writes its picture to FOLDER (`build/examples` by default). It takes some seconds.

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
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

folder = Path("build") / "examples"
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A page of Pyro
#
# Sites in the plate are per unit. Gender `A`, qualification `Q`, children `D`, physical strength `M`, decision `Y`.
# Strength has its noise written out, `U_M`: a unit keeps it in every world. Children are drawn from a Poisson
# distribution, and nothing in the program determines how many a man would have had as a woman.


# %%
def hiring(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.6))
        Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
        D = pyro.sample("D", dist.Poisson(torch.exp(0.5 - 0.7 * A + 0.1 * Q)))
        U_M = pyro.sample("U_M", dist.LogNormal(0.0, 0.3))
        M = pyro.deterministic("M", (2.0 + 1.5 * A) * U_M)
        pyro.sample("Y", dist.Bernoulli(logits=-1.5 + 0.3 * A + 1.2 * Q - 0.9 * D + 0.8 * M))


# %% [markdown]
# The graph is read off the program, parents through deterministic sites and noise included.

# %%
graph = pf.CausalGraph.from_pyro(hiring, nodes=["A", "Q", "D", "M", "Y"], sensitive="A", outcome="Y")
unfair = graph.unfair("A -> Y", "A -> D -> Y")
print(graph)
print(unfair)

# %% [markdown]
# ## A table of units, and a classifier of it
#
# The program is also what draws the data here. With real data you would fit its parameters to them.

# %%
pyro.set_rng_seed(0)
sites = poutine.trace(hiring).get_trace(3_000).nodes
units = pd.DataFrame({node: sites[node]["value"].double().numpy() for node in graph.observed}).astype({"Y": int})
features = ["A", "Q", "D", "M"]
plain = LogisticRegression().fit(units[features], units["Y"])
print(f"accuracy {plain.score(units[features], units['Y']):.3f}")

# %% [markdown]
# ## Five units in both worlds
#
# Each row is one unit with its noise. In the baseline it reads A = 0 along every path; in the switched world the unfair
# paths alone carry A = 1: the direct one, and that through children. Strength stays what it was.

# %%
sem = pf.SEM(hiring, unfair)
worlds = [world[features].astype({"A": int, "D": int}) for world in sem.nodes(5, random_state=4)]
table = pd.concat({"baseline": worlds[0], "unfair paths switched": worlds[1]}, axis=1)
for name, world in zip(["baseline", "unfair paths switched"], worlds, strict=True):
    table[name, "score"] = plain.predict_proba(world.astype(float))[:, 1]
table = table.reindex(columns=["baseline", "unfair paths switched"], level=0)
print(table.round(2).to_string())

# %% [markdown]
# ## The mean unfair effect and PIU
#
# `SEM.truth` scores many units in both worlds: by the classifier above, and by one that paid for the disagreement of
# the worlds in training. The mean unfair effect is what data can identify. The probability of individual unfairness
# (PIU), that a unit's decision changes, also depends on how the children that a unit has in the two worlds are coupled.
# The program does not determine that, so the coupling is named, never hidden in a seed: `monotone` (a unit keeps its
# rank), `independent`, `antithetic` (its rank is reversed).

# %%
print(sem.truth(plain, n=20_000, random_state=0))
penalised = pf.PenalizedClassifier(
    "logistic", source=sem, strength=1.0, epochs=60, batch_size=500, progress=False, random_state=0
)
penalised.fit(units[features], units["Y"])
print(f"penalised: accuracy {penalised.score(units[features], units['Y']):.3f}")
models = {"plain": plain, "penalised": penalised}
truths = pd.concat(
    {name: sem.truths(model, n=20_000, random_state=0) for name, model in models.items()}, names=["model", "row"]
).reset_index("model")
shown = truths[truths["quantity"].isin(["mean_unfair_effect", "piu"])]
print(shown.pivot_table(index=["model", "coupling"], columns="quantity", values="estimate").round(3).to_string())

# %% [markdown]
# ## The picture
#
# Unfair paths are drawn in red. The dashed line is the size of the plain model's mean unfair effect: no coupling makes
# its PIU smaller, and under some it is much larger.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=[1.1, 1])
unfair.draw(ax=left)
couplings = ["monotone", "independent", "antithetic"]
piu = truths[truths["quantity"] == "piu"].set_index(["model", "coupling"])
for i, (name, colour) in enumerate({"plain": "0.45", "penalised": "steelblue"}.items()):
    bars = piu.loc[name].loc[couplings]
    right.bar(np.arange(3) + 0.38 * i, bars["estimate"], 0.36, yerr=1.96 * bars["error"], color=colour, label=name)
effect = truths[(truths["quantity"] == "mean_unfair_effect") & (truths["model"] == "plain")]["estimate"].iloc[0]
right.axhline(abs(effect), color="0.2", linestyle="--", linewidth=1, label="plain: size of the mean effect")
right.set_xticks(np.arange(3) + 0.19, couplings)
right.set_xlabel("coupling of the children in both worlds")
right.set_ylabel("probability of individual unfairness")
right.legend(frameon=False)
right.spines[["top", "right"]].set_visible(False)
figure.savefig(folder / "hiring-sem.png", dpi=120)
print(f"wrote hiring-sem.png to {folder}")
