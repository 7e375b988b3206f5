# %% [markdown]
# # Run a simulation study
#
# `pf.simulate.study` compares methods on data whose equations you know. It draws tables from scenarios, fits each
# method to the same rows, and measures the true unfair effect and PIU of each model. It saves each finished run in a
# folder, so you can interrupt and resume it. All settings are on [the page on studies](../docs/studies.md).

# %%
import tempfile

import pyro
import pyro.distributions as dist
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

# %% [markdown]
# ## Choose scenarios
#
# Use a scenario of the paper by name, or your own program. The program below has gender `A`, skill `Q`, a test score
# `M` and a decision `Y`. The path from gender through the test is unfair.


# %%
def testing(n: int) -> None:
    with pyro.plate("units", n):
        A = pyro.sample("A", dist.Bernoulli(0.5))
        Q = pyro.sample("Q", dist.Normal(0.0, 1.0))
        U = pyro.sample("U", dist.Normal(0.0, 1.0))
        M = pyro.deterministic("M", 0.8 * A + Q + U)
        pyro.sample("Y", dist.Bernoulli(logits=2.0 * M + Q))


graph = pf.CausalGraph("{A Q} -> M; {Q M} -> Y", sensitive="A", outcome="Y")
scenarios = {"hiring": "hiring", "testing": (testing, graph.unfair("A -> M -> Y"))}

# %% [markdown]
# ## Choose methods
#
# A method can be an unfitted classifier, a function of the rows, or a named method with your settings.


# %%
def blind(train, scenario, seed):
    """Use only features that no unfair path reaches."""
    return LogisticRegression(max_iter=1000).fit(train[pf.remove(scenario.unfair, "touched")], train["Y"])


methods = {
    "plain": LogisticRegression(max_iter=1000),
    "descendants removed": blind,
    "Oracle": pf.simulate.method("Oracle", model="logistic", starts=1, epochs=60, learning_rate=0.1),
}

# %% [markdown]
# ## Add your own measure
#
# A study records accuracy, rates and the truth. You can add any function of the model, the test rows and the scenario.


# %%
def rate_difference(model, test, scenario):
    """Return the difference of the groups' positive rates (demographic parity), fair paths included."""
    positive = model.predict(test[list(model.feature_names_in_)])
    return float(positive[test["A"] == 1].mean() - positive[test["A"] == 0].mean())


# %% [markdown]
# ## Run, interrupt and resume
#
# The first call runs one seed, as if you had interrupted it there. The second call reads the finished runs from the
# folder and computes the others. `n_jobs=-1` uses all processors, with the same numbers. A run that fails is recorded
# in `failures`, and the study continues.

# %%
with tempfile.TemporaryDirectory() as kept:
    how = {"sizes": [250, 1_000], "truth_size": 5_000, "test_size": 2_000, "folder": kept, "progress": False}
    how["measures"] = {"rate_difference": rate_difference}
    first = pf.simulate.study(scenarios, methods, seeds=1, **how)
    found = pf.simulate.study(scenarios, methods, seeds=3, **how)
print(f"{len(first.table)} runs in the first call, {len(found.table)} after the second, {len(found.failures)} failed")

# %% [markdown]
# ## Read the results
#
# `table` has one row for each run.

# %%
columns = ["scenario", "method", "n", "seed", "accuracy", "mean_unfair_effect", "piu", "piu_error", "rate_difference"]
found.table[columns].head(6).round(3)

# %% [markdown]
# `summary()` has means over seeds with Monte Carlo standard errors. Look at these errors before you rank methods,
# because three seeds cannot separate small differences.

# %%
summary = found.summary()
summary[(summary["quantity"] == "piu") & (summary["n"] == 1_000)].drop(columns=["quantity", "n"]).round(3)

# %%
found.plot()

# %% [markdown]
# ## Compare methods on equal rows
#
# All methods see the same rows in each run, so their differences vary less than their means. `Oracle` is trained with a
# penalty on decisions that differ between each individual's true worlds. The table shows the points of PIU by which it
# is below the plain regression.

# %%
grid = found.to_xarray()
saved = grid["piu"].sel({"method": "plain"}) - grid["piu"].sel({"method": "Oracle"})
points = (100 * saved.mean("seed")).to_pandas().rename_axis(columns="rows")
points.round(1)

# %% [markdown]
# ## Assumptions
#
# * **The scenarios.** A study compares methods on its equations, and on no others.
# * **The truth** has a Monte Carlo error in each run (`piu_error`). It assumes a coupling if a node is drawn without
#   explicit noise.
# * **Seeds.** Three are few. The standard errors describe the spread between tables.
# * **Settings.** A method with other settings is another method.
