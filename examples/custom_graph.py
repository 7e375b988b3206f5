# %% [markdown]
# # Your own graph: text labels, a node of two columns, a latent node, and a set of paths that is refused
#
# A how-to: how a table with labels, columns of its own and things that were not measured becomes a graph. A simulated
# hiring table stands for yours. As a script: `python examples/custom_graph.py [FOLDER]` writes its pictures to FOLDER
# (`build/examples` by default).

# %% tags=["hide-cell"]
import sys
from pathlib import Path

folder = Path("build") / "examples"  # where pictures go
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %%
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import pyrofair as pf

# %%
rng = np.random.default_rng(0)
n = 3_000
man = rng.random(n) < 0.55
age = rng.integers(20, 60, n)
drive = rng.normal(size=n)  # motivation, which is not measured
hours = np.round(32 + 5 * man + 3 * drive + rng.normal(scale=4, size=n))
sector = np.where(rng.random(n) < 0.3 + 0.25 * man, "industry", "services")
interview = 4 + 0.06 * hours + 0.4 * (sector == "industry") + rng.normal(size=n)
logit = -8 + 0.8 * man + 0.02 * age + 0.08 * hours + 0.5 * interview + drive
units = pd.DataFrame(
    {
        "gender": np.where(man, "man", "woman"),
        "age": age,
        "weekly hours": hours,
        "sector": sector,
        "interview": interview.round(1),
        "hired": np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no"),
    }
)
units.head()

# %% [markdown]
# ## The graph
#
# Labels need not be 0 and 1: `baseline`, `contrast` and `positive` name the values of each role. The node `work` stands
# for two columns. `motivation` is latent: it is in the graph, and in no table.

# %%
graph = pf.CausalGraph(
    """
    gender -> work; motivation -> work
    work -> interview
    {gender age work interview motivation} -> hired
    """,
    sensitive="gender",
    outcome="hired",
    baseline="woman",
    contrast="man",
    positive="yes",
    columns={"work": ["weekly hours", "sector"]},
    latent=["motivation"],
)
print(graph)

# %% [markdown]
# ## A set that is refused
#
# Suppose that only the path through work straight to the decision is unfair, and that through the interview is fair.
# Then `work` would have to be that of a man on one path and that of a woman on the other, for the same unit. No table
# determines that; the error names the node and both paths.

# %%
try:
    pf.identify(graph.unfair("gender -> work -> hired"))
except pf.NotIdentifiedError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## Prediction or outcome?
#
# Call both of these paths unfair and it is identified, for a *prediction*: a classifier is a known function of what it
# reads, and `motivation` is none of it. If only the direct path is unfair and the question is about the *observed*
# decisions, `motivation` stands in the way.

# %%
unfair = graph.unfair(through=["work"])
print(pf.identify(unfair))
unfair.draw().figure.savefig(folder / "custom-graph.png", dpi=120)

# %%
direct = graph.unfair(direct=True)
pf.identify(direct)  # the prediction: no error
try:
    pf.identify(direct, target="outcome")
except pf.NotIdentifiedError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## A column is missing
#
# A column that the table lacks is an error, never a silent change of the question. If it was not measured,
# `with_latent` gives the graph in which that node is latent. The question is then about classifiers that do not read
# it, and is asked anew; here it has an answer again.

# %%
features = ["gender", "age", "weekly hours", "sector", "interview"]
train, test = units[:2_000], units[2_000:]
try:
    pf.IPW(unfair).fit(train.drop(columns="interview"))
except pf.DataError as error:
    print(f"refused: {error}")
print(pf.identify(graph.with_latent("interview").unfair(through=["work"])).switched)

# %% [markdown]
# ## Audit any model
#
# A scikit-learn pipeline that one-hot encodes the text itself. What is audited is the effect along work: the direct
# path was not called unfair, so both worlds read `gender` there as that of a woman. The report also says what speaks
# against its numbers, such as observed groups that disagree: [how wrong can the weights be](3_overlap.ipynb).

# %%
encode = make_column_transformer(
    (OneHotEncoder(), ["gender", "sector"]), (StandardScaler(), ["age", "weekly hours", "interview"])
)
model = make_pipeline(encode, LogisticRegression()).fit(train[features], train["hired"])
source = pf.OneStep(unfair, random_state=0).fit(train)
report = pf.audit({"logistic": model}, source, test, progress=False, random_state=0)
print(report)

# %%
figure = report.plot()
figure.savefig(folder / "custom-audit.png", dpi=120)
figure

# %% [markdown]
# ## What the numbers depend on
#
# The last lines of the report: first of all the graph, in which `motivation` was said to bear on work and on the
# decision, and on nothing else. A latent cause of the interview as well would be another graph, and another answer.
