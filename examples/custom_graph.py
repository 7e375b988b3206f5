# %% [markdown]
# # Your own graph
#
# This page turns a table with text labels and unmeasured causes into a graph. You map a node to two columns, declare a
# latent node, and see which sets of paths are refused. A simulated hiring table stands in for yours.

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
applicants = pd.DataFrame(
    {
        "gender": np.where(man, "man", "woman"),
        "age": age,
        "weekly hours": hours,
        "sector": sector,
        "interview": interview.round(1),
        "hired": np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no"),
    }
)
applicants.head()

# %% [markdown]
# ## Write the graph
#
# Name your labels with `baseline`, `contrast` and `positive`. They need not be 0 and 1. The node `work` stands for two
# columns. `motivation` is latent: it is in the graph, but not in the table.

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
graph

# %% [markdown]
# ## A set that is refused
#
# Suppose that only the path from work straight to the decision is unfair, and the path through the interview is fair.
# Then `work` needs two values in the same individual: a man's on one path, and a woman's on the other. No table shows
# that. The error names the node and both paths.

# %%
try:
    pf.identify(graph.unfair("gender -> work -> hired"))
except pf.NotIdentifiedError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## Prediction or outcome?
#
# If you mark both of these paths as unfair, the effect on a *prediction* is identified. A classifier is a known
# function of its features, and does not read `motivation`.

# %%
unfair = graph.unfair(through=["work"])
print(pf.identify(unfair))
unfair

# %% [markdown]
# The effect on the *observed* decisions can still be unidentified, because `motivation` affects them:

# %%
direct = graph.unfair(direct=True)
pf.identify(direct)  # the effect on a prediction is identified
try:
    pf.identify(direct, target="outcome")
except pf.NotIdentifiedError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## A column is missing
#
# If the table lacks a column of the graph, you get an error. If you did not measure it, `with_latent` makes its node
# latent. The question is then about classifiers that do not read this column. Here it is identified:

# %%
features = ["gender", "age", "weekly hours", "sector", "interview"]
train, test = applicants[:2_000], applicants[2_000:]
try:
    pf.IPW(unfair).fit(train.drop(columns="interview"))
except pf.DataError as error:
    print(f"refused: {error}")
print(pf.identify(graph.with_latent("interview").unfair(through=["work"])).switched)

# %% [markdown]
# ## Audit any model
#
# Here we audit a scikit-learn pipeline that encodes the text columns itself. The audit measures the effect through
# work. The direct path is not marked as unfair, so the classifier reads `gender` as "woman" in both worlds.

# %%
encode = make_column_transformer(
    (OneHotEncoder(), ["gender", "sector"]), (StandardScaler(), ["age", "weekly hours", "interview"])
)
model = make_pipeline(encode, LogisticRegression()).fit(train[features], train["hired"])
source = pf.OneStep(unfair, random_state=0).fit(train)
report = pf.audit({"logistic": model}, source, test, progress=False, random_state=0)
print(report)

# %%
report.plot()

# %% [markdown]
# ## Assumptions
#
# They depend on the graph first. It states that `motivation` affects work and the decision, but not the interview. If
# it also affected the interview, the graph and the answer would be different. See [how wrong can weights
# be?](3_overlap.ipynb) for the checks of a report.

# %%
print(*source.assumptions, sep="\n")
