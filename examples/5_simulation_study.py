# %% [markdown]
# # A simulation study: methods, sizes and seeds, and the truth of each fitted model
#
# How does a method behave on data whose equations are known? One table and one seed, as in the other tutorials, are an
# anecdote. `pf.simulate.study` draws rows from scenarios, fits each method to the same rows, and measures each fitted
# model by the program: its true mean unfair effect and its true probability of individual unfairness (PIU). Finished
# cells are kept in a folder; a call that was interrupted goes on from there, and later calls add to it.
#
# As a script: `python examples/5_simulation_study.py [FOLDER]` writes its table and its picture to FOLDER
# (`build/examples` by default). All settings are on [the page on studies](../docs/studies.md).

# %% tags=["hide-cell"]
import sys
from pathlib import Path

folder = Path("build") / "examples"  # where pictures go
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %%
import tempfile

import pyro
import pyro.distributions as dist
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

# %% [markdown]
# ## Two scenarios
#
# One of the paper's by name, and a program of our own: gender `A`, skill `Q`, a test score `M`, the decision `Y`. The
# path from gender through the test is called unfair.


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
# ## Three methods
#
# Any classifier that is not fitted, a named method with settings of our own, and a function of the rows.


# %%
def blind(train, scenario, seed):
    """Read the features that no unfair path touches."""
    return LogisticRegression(max_iter=1000).fit(train[pf.remove(scenario.unfair, "touched")], train["Y"])


methods = {
    "plain": LogisticRegression(max_iter=1000),
    "touched nodes removed": blind,
    "Oracle": pf.simulate.method("Oracle", model="logistic", starts=1, epochs=60, learning_rate=0.1),
}

# %% [markdown]
# ## A measure of one's own
#
# Beside accuracy, rates and the truths, a study records any function of `(model, test, scenario)`.


# %%
def rate_difference(model, test, scenario):
    """Return the difference of the groups' positive rates, fair paths included: what demographic parity asks about."""
    positive = model.predict(test[list(model.feature_names_in_)])
    return float(positive[test["A"] == 1].mean() - positive[test["A"] == 0].mean())


# %% [markdown]
# ## The study, interrupted and resumed
#
# One seed first, as if it had been interrupted there; then three. The second call finds the finished cells in the
# folder and computes the others only. `n_jobs=-1` would use all processors, and `joblib.parallel_config("dask")` a
# cluster; the numbers do not depend on it. A cell that ends in an error is recorded in `found.failures`, and the rest
# goes on.

# %%
with tempfile.TemporaryDirectory() as kept:
    how = {"sizes": [250, 1_000], "truth_size": 5_000, "test_size": 2_000, "folder": kept, "progress": False}
    how["measures"] = {"rate_difference": rate_difference}
    first = pf.simulate.study(scenarios, methods, seeds=1, **how)
    found = pf.simulate.study(scenarios, methods, seeds=3, **how)
print(f"{len(first.table)} cells in the first call, {len(found.table)} after the second, {len(found.failures)} failed")
same = found.table[found.table["seed"] == 0].reset_index(drop=True)
assert same["seconds"].tolist() == first.table["seconds"].tolist()  # read from the folder, not computed again

# %% [markdown]
# ## A tidy result
#
# `table` has a row for each cell, so that pandas, a plotting library or a regression can take it from there.

# %%
columns = ["scenario", "method", "n", "seed", "accuracy", "mean_unfair_effect", "piu", "piu_error", "rate_difference"]
found.table[columns].head(6).round(3)

# %% [markdown]
# `summary()` has means over seeds with their Monte Carlo standard errors. Read these before any ranking: three seeds
# say little about small differences.

# %%
summary = found.summary()
summary[(summary["quantity"] == "piu") & (summary["n"] == 1_000)].drop(columns=["quantity", "n"]).round(3)

# %%
found.table.to_csv(folder / "simulation-study.csv", index=False)
figure = found.plot()
figure.savefig(folder / "simulation-study.png", dpi=120)
figure

# %% [markdown]
# ## Paired comparisons
#
# All methods of a scenario, size and seed were fitted to the same rows, so that differences vary less than means do.
# Here: the points of PIU that `Oracle`, which pays for the disagreement of each unit's own worlds, saves against the
# plain regression, mean over seeds.

# %%
grid = found.to_xarray()
saved = grid["piu"].sel({"method": "plain"}) - grid["piu"].sel({"method": "Oracle"})
points = (100 * saved.mean("seed")).to_pandas().rename_axis(columns="rows")
points.round(1)

# %% [markdown]
# ## What the numbers depend on
#
# *The scenarios*: a method is judged on the equations that were written down, and on no others. *The truth* is that of
# the program, with a Monte Carlo error for each cell (`piu_error`, from 5,000 units here), and a coupling where a node
# is drawn without explicit noise. *Seeds*: three, which is few; standard errors over seeds are in the summary, and they
# are of the spread between tables, not of the error of the truth alone. *Fitting*: a method with other settings is
# another method; what is compared is what was passed.
