# %% [markdown]
# # Two worlds
#
# You write a structural equation model as a Pyro program. From it pyrofair derives the causal graph, counterfactuals of
# given applicants, and the true unfair effect of a classifier. You also see why bounds on the probability of individual
# unfairness (PIU) are wide. Later tutorials need no program.

# %%
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

# %% [markdown]
# ## Write the program
#
# The plate draws applicants: gender `A`, qualification `Q`, children `D`, physical strength `M` and decision `Y`. The
# noise of strength is a site, `U_M`, so every applicant keeps it in both worlds. Children are drawn from a Poisson
# distribution, and the program does not determine how many a man would have had as a woman.


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
# pyrofair reads the graph from the program. You decide which paths are unfair. Here these are the direct path and the
# path through children. The path through strength is fair because the work is heavy.

# %%
graph = pf.CausalGraph.from_pyro(hiring, nodes=["A", "Q", "D", "M", "Y"], sensitive="A", outcome="Y")
unfair = graph.unfair("A -> Y", "A -> D -> Y")
print(unfair)
unfair

# %% [markdown]
# ## Draw a table, fit a classifier
#
# Here the program also draws the data. With real data you would fit its parameters to your table.

# %%
pyro.set_rng_seed(0)
sites = poutine.trace(hiring).get_trace(3_000).nodes
applicants = pd.DataFrame({node: sites[node]["value"].double().numpy() for node in graph.observed}).astype({"Y": int})
features = ["A", "Q", "D", "M"]
plain = LogisticRegression().fit(applicants[features], applicants["Y"])
print(f"accuracy {plain.score(applicants[features], applicants['Y']):.1%}")

# %% [markdown]
# ## Five applicants in both worlds
#
# Each row is one applicant. In the baseline world, A = 0 on all paths. In the unfair-path world, A = 1 on the unfair
# paths only: directly, and through children. Strength is equal in both worlds.

# %%
sem = pf.SEM(hiring, unfair)
worlds = [world[features].astype({"A": int, "D": int}) for world in sem.nodes(5, random_state=4)]
names = ["baseline", "unfair-path world"]
table = pd.concat(dict(zip(names, worlds, strict=True)), axis=1)
for name, world in zip(names, worlds, strict=True):
    table[name, "score"] = plain.predict_proba(world.astype(float))[:, 1]
table = table.reindex(columns=names, level=0)
table.round(2)

# %% [markdown]
# ## Counterfactuals of given applicants
#
# A row of a table does not contain its noise. `counterfactual` infers the noise (*abduction*), sets the unfair edges
# (*action*), and evaluates the nodes again (*prediction*). The row determines the noise of strength, but not that of
# children. The number of children in the other world is therefore drawn.

# %%
given = applicants[features].head(200)
found = sem.counterfactual(given, draws=200, random_state=0)
worlds = {"row": given, "baseline": found.baseline[["D", "M"]], "unfair-path world": found.switched[["D", "M"]]}
pd.concat(worlds, axis=1).head().round(2)

# %% [markdown]
# The baseline of an applicant with A = 0 is the row itself. If only the path through strength were unfair, these rows
# would determine both worlds: the standard deviation over the draws is then 0.

# %%
women = given[given["A"] == 0]
heavy = pf.SEM(hiring, graph.unfair("A -> M -> Y")).counterfactual(women)
spread = {"through children": found.worlds[1].sd.loc[women.index], "through strength": heavy.worlds[1].sd}
pd.DataFrame({name: sd[["Q", "D", "M"]].mean() for name, sd in spread.items()}).T.round(2)

# %% [markdown]
# `scores` compares both worlds for each applicant. `effect` is the mean difference of the scores, and `effect_sd` its
# standard deviation over the draws. `decisions_differ` is the probability that this applicant's decision changes.

# %%
found.scores(plain).join(given["A"]).head().round(3)

# %% [markdown]
# ## The true effect and PIU
#
# `SEM.truth` simulates many applicants in both worlds. The mean unfair effect is the difference of the mean decisions.
# PIU is the share of applicants whose decision differs between the worlds.

# %%
print(sem.truth(plain, n=20_000, random_state=0))

# %% [markdown]
# PIU depends on the *coupling*: how an applicant's children in both worlds depend on each other. The program does not
# determine it, so you name it. `monotone` keeps the rank, `independent` draws it again, and `antithetic` reverses it.
# The second classifier is trained with a penalty on decisions that differ between the worlds.

# %%
penalised = pf.PenalizedClassifier(
    "logistic", source=sem, strength=1.0, epochs=60, batch_size=500, progress=False, random_state=0
)
penalised.fit(applicants[features], applicants["Y"])
models = {"plain": plain, "penalised": penalised}
couplings = ["monotone", "independent", "antithetic"]
all_truths = {name: sem.truths(model, n=20_000, random_state=0) for name, model in models.items()}
truths = pd.concat(all_truths, names=["model"])
by_coupling = truths.pivot_table("estimate", index="model", columns=["quantity", "coupling"], sort=False)
shown = by_coupling["piu"][couplings]
shown.insert(0, "mean unfair effect", by_coupling["mean_unfair_effect", "monotone"])
shown.insert(0, "accuracy", [model.score(applicants[features], applicants["Y"]) for model in models.values()])
shown.round(3)

# %%
axes = shown[couplings].T.plot.bar(rot=0, xlabel="coupling of children", ylabel="PIU")

# %% [markdown]
# The mean effect does not depend on the coupling. PIU is never below the size of the mean effect, up to simulation
# error. It can be much larger, because applicants who lose and applicants who gain cancel in the mean.

# %% [markdown]
# ## Why are the bounds wide?
#
# Data show each applicant in at most one world. They identify only the two *marginals*, $a = P(Y_0 = 1)$ and
# $b = P(Y_\pi = 1)$. Many joint distributions have these marginals, so PIU has a lower and an upper bound:
#
# $$|a - b| \le \mathrm{PIU} \le 1 - |1 - a - b|$$
#
# These bounds are sharp: some joint distribution attains each of them. The paper's upper bound,
# $2 (a (1 - b) + (1 - a) b)$, is never smaller.
#
# Shared features narrow the interval. `unit="shared"` computes the bounds for applicants with equal `Q` and `M`, which
# are equal in both worlds, and averages them. Use `GComputation` if you have only a table.

# %%
baseline, other = (
    plain.predict_proba(world.rows[features].astype(float))[:, 1] > 0.5 for world in sem.worlds(20_000, random_state=0)
)
bounds = pf.piu_bounds(float(baseline.mean()), float(other.mean()))
shared = pf.SEM(hiring, unfair, unit="shared", draws=100)
report = pf.audit({"plain": plain}, shared, applicants.head(1_000), n_boot=0, progress=False, random_state=0)
given_shared = report.table.query("decisions == 'threshold'").set_index("quantity")["estimate"]
intervals = {
    "given the shared features": (given_shared["piu_lower"], given_shared["piu_upper"]),
    "the two marginals, sharp": (bounds.lower, bounds.upper),
    "the paper's bound": (0.0, bounds.paper),
}
print(f"P(Y0 = 1) = {baseline.mean():.3f}, P(Ypi = 1) = {other.mean():.3f}")
pd.DataFrame(intervals, index=["lower bound", "upper bound"]).T.round(3)

# %% [markdown]
# PIU lies in all three intervals under each coupling above. The audit draws the paper's bound on request. It gives no
# verdict here, because `n_boot=0` asks for no intervals.

# %%
report.plot(paper_bound=True)

# %% [markdown]
# ## Assumptions
#
# * **The program.** With real data its equations are assumptions that no table confirms.
# * **The coupling** of children. PIU and the counterfactuals depend on it. The mean effect and the bounds do not.
# * **Your judgement** about which paths are unfair.
# * **Simulation error**, which `truth` prints.
