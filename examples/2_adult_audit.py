# %% [markdown]
# # Audit and train on Adult
#
# You audit a classifier, train others with a penalty on the unfair effect, and choose one by a stated limit. Finally
# you audit it on rows not used before. You need a table, a causal graph and a fitted classifier. We use a subsample of
# the Adult census data to finish in a minute.

# %%
import warnings
from pathlib import Path

import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import pyrofair as pf

folder = Path("build") / "examples"
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The data and the graph
#
# The data set comes with a graph. Sex `A` and `C` (age and native country) have no causes. Marital status `M`,
# education `L` and work `R` follow, and all of them lead to income `Y`. The graph is an assumption. To write yours, see
# [your own graph](custom_graph.ipynb).

# %%
adult = pf.datasets.load_adult()
train, test = adult.split(random_state=0)
train, test = train.sample(12_000, random_state=0), test.sample(4_000, random_state=0)
graph = adult.graph
train.head()

# %% [markdown]
# ## Merge rare levels
#
# Some levels occur almost only among women or almost only among men, and would get very large weights. pyrofair warns
# about them but never merges levels itself, so we do.

# %%
merged = {
    "marital-status": {"Married-AF-spouse": "Married-civ-spouse"},
    "workclass": {"Without-pay": "Self-emp-not-inc"},
    "occupation": {"Armed-Forces": "Protective-serv", "Priv-house-serv": "Other-service"},
    "native-country": dict.fromkeys(set(train["native-country"].cat.categories) - {"United-States"}, "elsewhere"),
}
for name, levels in merged.items():
    kept = pd.CategoricalDtype(sorted({levels.get(level, level) for level in train[name].cat.categories}))
    train[name], test[name] = (part[name].astype(str).replace(levels).astype(kept) for part in (train, test))

# %% [markdown]
# ## Mark the unfair paths
#
# You decide which paths are unfair. As in the paper, here these are the direct path and all paths through marital
# status. Paths through education and work only are fair.

# %%
unfair = graph.unfair(direct=True, through=["M"])
unfair

# %% [markdown]
# ## Is the effect identified?
#
# Yes. `identify` returns formulas, weights and assumptions, or raises an error that names the cause.

# %%
print(pf.identify(unfair))

# %% [markdown]
# ## Audit a classifier
#
# An audit takes any model with `predict_proba` that reads observed parents of the outcome. `OneStep` estimates both
# worlds with regressions and weights. Its 95 % confidence intervals need no bootstrap. We fit it to the training rows.

# %%
X, y = train.drop(columns=graph.outcome_column), train[graph.outcome_column]
boosted = HistGradientBoostingClassifier(random_state=0, categorical_features="from_dtype").fit(X, y)
source = pf.OneStep(unfair, random_state=0).fit(train)
report = pf.audit({"boosted trees": boosted}, source, test, progress=False, random_state=0)
print(report)

# %% [markdown]
# The verdict comes first, then five numbers. PIU is the share of individuals whose decision the unfair paths change.
# Data give only a lower and an upper bound on it.

# %%
report.plot()

# %% [markdown]
# ## Check overlap before training
#
# Training uses `IPW`, which weights observed rows to represent both worlds. The weights need overlap: each needed kind
# of row occurs in the weighted group. A mean weight far from 1, a small effective size (`ess`) or unsupported rows are
# signs of poor overlap.

# %%
weights = pf.IPW(unfair, propensity="boosted", random_state=0).fit(train)
overlap = weights.overlap()
overlap[["regime", "group", "used", "n", "mean_weight", "max_weight", "ess", "unsupported_mass"]].round(2)

# %% [markdown]
# ## Train with a penalty
#
# `penalty_path` fits one classifier for each strength of the penalty. It measures them on held-out rows with one-step
# estimates. Fitting warns that both groups' rows give somewhat different effects. This affects the penalty, but not the
# measurement.

# %%
warnings.filterwarnings("ignore", "The two observed groups, weighted alone, disagree", pf.PositivityWarning)
classifier = pf.PenalizedClassifier(
    source=weights, penalty=pf.disagreement, epochs=12, batch_size=500, dtype="float32", progress=False, random_state=0
)
path = pf.penalty_path(classifier, X, y, strengths=[0.0, 0.25, 0.5, 1.0, 2.0], progress=False)
path.summary()[["accuracy", "majority_rate", "positive_rate", "mean_unfair_effect", "piu_lower", "piu_upper"]].round(3)

# %% [markdown]
# The plot draws a limit for the upper bound on PIU, and rings the classifier that meets it with the highest accuracy.

# %%
path.plot(at_most=0.2)

# %% [markdown]
# Compare accuracy with the majority rate. If both are close and the positive rate is near 0, the classifier rejects
# almost everyone. Its unfair effect is then small for a trivial reason.

# %% [markdown]
# ## Choose by a stated limit
#
# Accuracy alone would always choose strength 0. State the accuracy you may lose, or the largest amount of a quantity.
# `select` compares your limit with the confidence limit, and raises an error if no classifier meets it.

# %%
chosen = path.select("mean_unfair_effect", accuracy_loss=0.02)
print(f"at most 2 points of accuracy lost: strength {chosen.strength:g}")
try:
    path.select("piu_upper", at_most=0.01)
except pf.DataError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## Audit the chosen classifier
#
# The test rows took no part in training or choosing. `summary()` has one row for each model.

# %%
models = {"boosted trees": boosted, "penalised network": chosen}
report = pf.audit(models, source, test, thresholds=[0.3, 0.5, 0.7], progress=False, random_state=0)
report.summary()

# %%
report.plot()

# %% [markdown]
# `report.details()` prints every quantity, check and assumption, and `to_html` writes one page for others.
# `report.table` is a data frame. This picture has the results at three thresholds:

# %%
report.plot_thresholds()

# %%
report.to_html(folder / "adult-report.html", title="Adult: the audit")
report.table.to_csv(folder / "adult-audit.csv", index=False)

# %% [markdown]
# ## Do the checks pass?
#
# A *stage* is one regression and one weight for consecutive mediators. *Balance* is far from 0 if the weights are
# wrong, and *correction* is far from 0 if the regression is wrong. Beyond the limit the report gives no verdict.

# %%
report.plot_stages()

# %% [markdown]
# ## Compare with the paper's weights
#
# The paper uses logistic propensities. If they were right, women's rows and men's rows would give the same effect up to
# sampling error. They do not, so this report withholds its verdict.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", pf.PositivityWarning)
    paper = pf.audit(models, pf.IPW(unfair).fit(train), test, n_boot=40, progress=False, random_state=0)
wanted = "decisions == 'threshold' and quantity == 'mean_unfair_effect'"
paper.groups.query(wanted)[["model", "group_0", "group_1", "difference", "lower", "upper", "agree"]].round(3)

# %% [markdown]
# ## Your own quantity
#
# `report.influence` has one value per row for each model and quantity, and their mean is the estimate. The delta method
# then gives an interval for any smooth function, here the ratio of positive decisions in both worlds.

# %%
values = report.influence["boosted trees"]["threshold"]
y0, ypi = values["y0"].mean(), values["ypi"].mean()
ratio = ypi / y0
error = ((values["ypi"] - ratio * values["y0"]) / y0).std() / len(values) ** 0.5
print(f"P(Ypi=1) / P(Y0=1) = {ratio:.2f} [{ratio - 1.96 * error:.2f}, {ratio + 1.96 * error:.2f}]")

# %% [markdown]
# ## Assumptions
#
# They depend on the assumptions below, on your judgement about unfair paths, and on the merged levels. A lower bound
# above 0 shows that the unfair paths change some decisions. A small upper bound would have shown that they change few.

# %%
print(*source.assumptions, sep="\n")
