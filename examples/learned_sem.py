# %% [markdown]
# # Without the true equations: learned mechanisms, and bounds given what both worlds share
#
# From a table and a causal graph, a conditional distribution is learned for each column; together they are a Pyro
# program, which is a structural equation model. From it follow the posterior of a classifier's unfair effect, and
# bounds given what the two worlds of a unit share. As a script: `python examples/learned_sem.py [FOLDER]` writes its
# pictures to FOLDER (`build/examples` by default). It takes about a minute.

# %%
import sys
import warnings
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt

import pyrofair as pf

folder = Path("build") / "examples"
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A table, a graph, a classifier
#
# The table is drawn from the paper's `hiring` scenario, so that the truth is known at the end. Nothing else of the
# scenario is used before: gender `A`, qualification `Q`, number of children `D`, physical strength `M`, decision `Y`.

# %%
hiring = pf.simulate.scenario("hiring")
units = hiring.draw(1_000, random_state=0)
features = ["A", "Q", "D", "M"]
model = pf.PenalizedClassifier(epochs=40, progress=False, random_state=0).fit(units[features], units["Y"])
print(hiring.unfair)

# %% [markdown]
# ## A distribution for each mediator
#
# Integers get a mixture of normal distributions, rounded; continuous columns a mixture; each given its parents in the
# graph, by a small network. A tenth of the rows is held out: the gain is in nats per row over the marginal
# distribution.

# %%
mechanisms = pf.learn_mechanisms(
    units[features], hiring.graph, nodes=["D", "M"], hidden=(16,), components=2, steps=1_000, progress=False,
    random_state=0,
)  # fmt: skip
print(mechanisms.held_out.round(3).to_string(index=False))
drawn = mechanisms.plot()
drawn.savefig(folder / "learned_mechanisms.png", dpi=120)
drawn

# %% [markdown]
# ## The posterior of the unfair effect
#
# Linear distributions have few parameters, and a posterior over them is cheap: here a normal distribution for each
# (mean-field), so that the intervals are too narrow where parameters are dependent. Each draw is a program; the same
# units go through all.

# %%
linear = pf.learn_mechanisms(
    units[features], hiring.graph, parameters="linear", components=1, posterior="normal", steps=1_200, progress=False,
    random_state=0,
)  # fmt: skip
effects = pf.effect_posterior(
    pf.SEM.from_mechanisms(linear, hiring.unfair), None, {"plain": model}, linear.posterior, draws=50, n=30_000,
    progress=False, random_state=0,
)  # fmt: skip
print(effects.summary().round(3).to_string())
forest = effects.plot()
forest.savefig(folder / "learned_forest.png", dpi=120)
forest

# %%
warnings.filterwarnings("ignore", "Passing a dict or None as alias_mapping")  # ArviZ 0.23 on matplotlib 3.11
traced = az.plot_trace(effects.to_inference_data(), var_names=["mean_unfair_effect", "piu"])
if hasattr(traced, "savefig"):  # ArviZ 1.x
    traced.savefig(folder / "learned_trace.png")
else:
    figure = traced.ravel()[0].figure
    figure.set_layout_engine("constrained")
    figure.savefig(folder / "learned_trace.png", dpi=120)

# %% [markdown]
# ## What both worlds share
#
# Unfair are the direct path and the one through children, so that both worlds of a unit share qualification and
# strength. Given these, only children have to be drawn, from their learned distribution with A = 0 or 1. An audit then
# bounds PIU value by value of what is shared; the paper's bound, and the sharp one, use two averages only.

# %%
source = pf.GComputation(hiring.unfair, hidden=(16,), components=2, progress=False, random_state=0)
source.fit(units[features])
report = pf.audit({"plain": model}, source, units, n_boot=20, level=0.9, progress=False, n_jobs=1, random_state=0)
found = report.table[report.table["decisions"] == "threshold"].set_index("quantity")
p0, p1 = found.loc["p_y0", "estimate"], found.loc["p_ypi", "estimate"]
sharp = pf.piu_bounds(p0, p1)
truth = pf.SEM(hiring.program, hiring.unfair).truth(model, n=100_000, random_state=0).piu
low, high = found.loc["piu_lower"], found.loc["piu_upper"]
print(f"the paper's bound             at most {sharp.paper:.3f}")
print(f"the two marginals, sharp      [{sharp.lower:.3f}, {sharp.upper:.3f}]")
print(f"given what both worlds share  [{low['estimate']:.3f}, {high['estimate']:.3f}]", end=" ")
print(f"with 90 % intervals [{low['lower']:.3f}, {high['upper']:.3f}]")
print(f"the truth                     {truth}")

# %%
figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
rows = {
    "given what both\nworlds share": (low["estimate"], high["estimate"]),
    "the two marginals,\nsharp": (sharp.lower, sharp.upper),
    "the paper's\nbound": (0.0, sharp.paper),
}
for height, (start, end) in enumerate(rows.values()):
    axes.plot([start, end], [height, height], color="#1f77b4", linewidth=6, solid_capstyle="butt")
    axes.plot([start, end], [height, height], "|", color="#1f77b4", markersize=14, markeredgewidth=2)
axes.plot([low["lower"], high["upper"]], [0, 0], color="#1f77b4", linewidth=1.5)
axes.axvline(truth.value, color="#d62728", linewidth=1, label=f"truth {truth.value:.3f}")
axes.set_yticks(range(len(rows)), list(rows))
axes.set(xlim=(0, 1.02), ylim=(-0.6, 2.6), xlabel="probability of individual unfairness (PIU)")
axes.legend(loc="lower right", frameon=False)
figure.savefig(folder / "learned_bounds.png", dpi=120)
print("wrote learned_mechanisms.png, learned_forest.png, learned_trace.png, learned_bounds.png")
