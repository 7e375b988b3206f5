# %% [markdown]
# # Two worlds: a structural equation model in Pyro, and each unit's score had only the unfair paths been switched
#
# You have written down how a hiring table comes about, as an ordinary Pyro program. From it come the causal graph, each
# unit in both worlds, the counterfactuals of given units, and how unfair a classifier is in truth. With the truth at
# hand, this tutorial shows what the quantities of this package are, and why the bounds that data alone give on one of
# them, the probability of individual unfairness (PIU), are wide. The later tutorials do without the program.
#
# As a script: `python examples/1_hiring_sem.py [FOLDER]` writes its pictures to FOLDER (`build/examples` by default).

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
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

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
# The graph is read off the program, parents through deterministic sites and noise included. Which paths are unfair is a
# judgement, not a finding. Here: the direct one, and that through children. The path through strength is called fair,
# for the work is heavy.

# %%
graph = pf.CausalGraph.from_pyro(hiring, nodes=["A", "Q", "D", "M", "Y"], sensitive="A", outcome="Y")
unfair = graph.unfair("A -> Y", "A -> D -> Y")
print(unfair)
drawing = unfair.draw().figure
drawing.savefig(folder / "hiring-graph.png", dpi=120)
drawing

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
# Each row is one unit with its noise. In the baseline it reads A = 0 along every path; in the unfair-path world the
# unfair paths alone carry A = 1: the direct one, and that through children. Strength stays what it was.

# %%
sem = pf.SEM(hiring, unfair)
worlds = [world[features].astype({"A": int, "D": int}) for world in sem.nodes(5, random_state=4)]
table = pd.concat({"baseline": worlds[0], "unfair paths switched": worlds[1]}, axis=1)
for name, world in zip(["baseline", "unfair paths switched"], worlds, strict=True):
    table[name, "score"] = plain.predict_proba(world.astype(float))[:, 1]
table = table.reindex(columns=["baseline", "unfair paths switched"], level=0)
table.round(2)

# %% [markdown]
# ## Given units
#
# The five units above were drawn with their noise. A row of a table has lost its noise, and `counterfactual` infers it
# (*abduction*), sets the unfair edges (*action*), and evaluates the nodes again (*prediction*). Strength is computed
# from one noise, so that the row determines it. Children are drawn: a count of 2 leaves the quantile at which the unit
# stands open, and the number in the other world is drawn accordingly.

# %%
given = units[features].head(200)
found = sem.counterfactual(given, draws=200, random_state=0)
five = pd.concat({"row": given, "baseline": found.baseline[["D", "M"]], "switched": found.switched[["D", "M"]]}, axis=1)
five.head().round(2)

# %% [markdown]
# Units with A = 0 are their own baseline, exactly; for the others the baseline has the strength of A = 0 with the same
# noise, and children that are drawn. If the path through strength were the unfair one, nothing would have to be drawn
# for units with A = 0: both of their worlds are determined by their rows, so that the standard deviation is 0.

# %%
women = given[given["A"] == 0]
heavy = pf.SEM(hiring, graph.unfair("A -> M -> Y")).counterfactual(women)
assert (heavy.worlds[1].sd == 0).all(axis=None)
left_open = {"through children": found.worlds[1].sd.loc[women.index], "through strength": heavy.worlds[1].sd}
pd.DataFrame({name: sd[["Q", "D", "M"]].mean() for name, sd in left_open.items()}).T.round(2)

# %% [markdown]
# A classifier can be asked about each given unit: `effect` is the mean difference of its two scores, `effect_sd` what
# the row leaves open, and `decisions_differ` the probability that the decision changes, the unit's own PIU.

# %%
found.scores(plain).join(given["A"]).head().round(3)

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
models = {"plain": plain, "penalised": penalised}
truths = pd.concat(
    {name: sem.truths(model, n=20_000, random_state=0) for name, model in models.items()}, names=["model", "row"]
).reset_index("model")
piu = truths[truths["quantity"] == "piu"].set_index(["model", "coupling"])
effects = truths[truths["quantity"] == "mean_unfair_effect"].set_index(["model", "coupling"])["estimate"]
couplings = ["monotone", "independent", "antithetic"]
shown = pd.DataFrame({name: piu.loc[name, "estimate"] for name in models}).T[couplings]
shown.insert(0, "mean unfair effect", [effects[name, "monotone"] for name in models])
shown.insert(0, "accuracy", [model.score(units[features], units["Y"]) for model in models.values()])
assert (shown[couplings].min(axis=1) >= shown["mean unfair effect"].abs() - 0.01).all()
shown.round(3)

# %% [markdown]
# The mean effect is the same under every coupling, up to Monte Carlo error: it takes the two worlds one at a time. PIU
# needs both worlds of one unit. No coupling makes it smaller than the size of the mean effect, and under some it is
# much larger, for units that lose by the switch cancel those that gain.

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for i, (name, colour) in enumerate({"plain": "0.45", "penalised": "steelblue"}.items()):
    bars = piu.loc[name].loc[couplings]
    axes.bar(np.arange(3) + 0.38 * i, bars["estimate"], 0.36, yerr=1.96 * bars["error"], color=colour, label=name)
mean = abs(shown.loc["plain", "mean unfair effect"])
axes.axhline(mean, color="0.2", linestyle="--", linewidth=1, label="plain: size of the mean effect")
axes.set_xticks(np.arange(3) + 0.19, couplings)
axes.set_xlabel("coupling of the children in both worlds")
axes.set_ylabel("probability of individual unfairness")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig(folder / "hiring-couplings.png", dpi=120)

# %% [markdown]
# ## Why bounds on PIU are wide
#
# Data show each unit in one world at most. All that they can identify of the two decisions are the two *marginals*, a =
# P(Y0 = 1) and b = P(Ypi = 1). Many joint distributions have these, from one in which as many decisions as possible
# agree to one in which as few as possible do:
#
#     |a - b|  <=  PIU  <=  1 - |1 - a - b|
#
# Both ends are attained by some joint distribution, so nothing that knows the marginals alone can do better. The
# paper's bound, 2 (a (1 - b) + (1 - a) b), is never below the upper bound. What does narrow the interval is what both
# worlds of a unit *share*: qualification and strength are the same in both, so that marginals can be compared among
# units of one `Q` and `M`, and the bounds averaged. `unit="shared"` does that with the program, `GComputation` with a
# table.

# %%
baseline, switched = (
    plain.predict_proba(world.rows[features].astype(float))[:, 1] > 0.5 for world in sem.worlds(20_000, random_state=0)
)
bounds = pf.piu_bounds(float(baseline.mean()), float(switched.mean()))
shared = pf.SEM(hiring, unfair, unit="shared", draws=100)
report = pf.audit({"plain": plain}, shared, units.head(1_000), n_boot=0, progress=False, random_state=0)
by_units = report.table.query("decisions == 'threshold'").set_index("quantity")["estimate"]
intervals = {
    "given what both\nworlds share": (by_units["piu_lower"], by_units["piu_upper"]),
    "the two marginals,\nsharp": (bounds.lower, bounds.upper),
    "the paper's\nbound": (0.0, bounds.paper),
}
for low, high in intervals.values():
    assert low - 0.01 <= piu.loc["plain", "estimate"].min() <= piu.loc["plain", "estimate"].max() <= high + 0.01
print(f"P(Y0 = 1) = {baseline.mean():.3f}, P(Ypi = 1) = {switched.mean():.3f}")
rows = {name.replace("\n", " "): ends for name, ends in intervals.items()}
pd.DataFrame(rows, index=["PIU at least", "PIU at most"]).T.round(3)

# %%
figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
for height, (start, end) in enumerate(intervals.values()):
    axes.plot([start, end], [height, height], color="#1f77b4", linewidth=6, solid_capstyle="butt")
for coupling, marker in zip(couplings, "osD", strict=True):
    axes.plot(piu.loc[("plain", coupling), "estimate"], -0.8, marker, color="#d62728", label=f"truth, {coupling}")
axes.set_yticks(range(len(intervals)), list(intervals))
axes.set(ylim=(-1.3, 2.6), xlim=(0, 1.3), xlabel="probability of individual unfairness (PIU)")
axes.axvline(1.0, color="0.6", linewidth=1, linestyle=":")
axes.legend(frameon=False, loc="lower right")
axes.spines[["top", "right"]].set_visible(False)
figure.savefig(folder / "hiring-bounds.png", dpi=120)

# %% [markdown]
# Each truth lies in each interval: couplings differ in what the marginals, and what is shared, leave open. A paper
# bound near 1 is no sign of unfairness; it is 1 for any classifier that says yes to half of the units in one of the
# worlds.

# %% [markdown]
# ## What the numbers depend on
#
# *The program.* It drew the table here, so that "truth" means the truth of a simulation; with real data its equations
# are assumptions, and no table confirms them. *The coupling* of what is drawn without explicit noise, children here:
# PIU and the counterfactuals of given units depend on it, the mean unfair effect and the bounds do not. *The judgement*
# of which paths are unfair. *Monte Carlo*: 20,000 units, with the errors that `truth` prints.
