# %% [markdown]
# # A simulation study: methods, sizes and seeds, and the truth of each fitted model
#
# How does a method behave, on data whose equations are known? `pf.simulate.study` draws rows, fits each method to the
# same rows, and measures each model by the program: its true mean unfair effect and its probability of individual
# unfairness (PIU). Finished cells are kept in a folder; a call that was interrupted goes on from there, and later calls
# add to it. As a script: `python examples/simulation_study.py [FOLDER]` writes its table and its picture to FOLDER
# (`build/examples` by default). It takes some seconds.

# %%
import sys
import tempfile
from pathlib import Path

import pyro
import pyro.distributions as dist
from sklearn.linear_model import LogisticRegression

import pyrofair as pf

folder = Path("build") / "examples"
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

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
# ## The study
#
# One seed first, then three: the second call computes the new cells only. `n_jobs=-1` would use all processors, and
# `joblib.parallel_config("dask")` a cluster.

# %%
with tempfile.TemporaryDirectory() as cells:
    how = {"sizes": [250, 1_000], "truth_size": 5_000, "test_size": 2_000, "folder": cells, "progress": False}
    pf.simulate.study(scenarios, methods, seeds=1, **how)
    found = pf.simulate.study(scenarios, methods, seeds=3, **how)
print(found)

# %% [markdown]
# ## Paired comparisons
#
# All methods of a scenario, size and seed were fitted to the same rows, so that differences vary less than means do.

# %%
grid = found.to_xarray()
saved = grid["piu"].sel({"method": "plain"}) - grid["piu"].sel({"method": "Oracle"})
print((100 * saved.mean("seed")).round(1).to_pandas().rename_axis(columns="units"), "points of PIU less")

# %%
found.table.to_csv(folder / "simulation-study.csv", index=False)
found.plot().savefig(folder / "simulation-study.png", dpi=120)
print(f"wrote simulation-study.csv and simulation-study.png to {folder}")
