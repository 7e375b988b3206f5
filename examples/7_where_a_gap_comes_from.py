# %% [markdown]
# # Where does a gap come from?
#
# A model predicts a high income far more often for men than for women. Here you split this gap along the arrows of
# a causal graph, for a model that reads sex and for one that does not. You will see why the order matters, what the
# unfair paths add up to, and which parts were in the data before the model. You need a table, a graph and fitted
# models. In short: leaving out sex does not close the gap.

# %%
import pandas as pd
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline

import pyrofair as pf

adult = pf.datasets.load_adult()
graph, unfair = adult.graph, adult.unfair
train, test = adult.split(random_state=0)
test = test.sample(6_000, random_state=0)
for table in (train, test):  # merge levels that occur almost only among women or almost only among men
    inside = table["native-country"] == "United-States"
    table["native-country"] = inside.map({True: "United States", False: "elsewhere"}).astype("category")
    rare = {"Armed-Forces": "Protective-serv", "Priv-house-serv": "Other-service"}
    table["occupation"] = table["occupation"].astype(str).replace(rare).astype("category")
pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## The graph
#
# Sex `A` and `C` (age and native country) have no causes here. Marital status `M`, education `L` and work `R` follow,
# and all of them lead to income `Y`. Unfair paths are red: the direct path, and the paths through marital status. This
# is our judgement for this example. You may mark other paths.

# %%
unfair

# %% [markdown]
# ## Two models
#
# Both models are boosted trees. The second one cannot read sex, and many people would call it fair. Leaving out sex
# costs hardly any accuracy.

# %%
X, y = train[graph.input_columns], train[graph.outcome_column]
trees = HistGradientBoostingClassifier(max_iter=100, random_state=0, categorical_features="from_dtype")
leave_out = make_column_transformer(("drop", ["sex"]), remainder="passthrough", verbose_feature_names_out=False)
blind = make_pipeline(leave_out.set_output(transform="pandas"), clone(trees))
models = {"all columns": trees.fit(X, y), "without sex": blind.fit(X, y)}
of_test = test[graph.input_columns], test[graph.outcome_column]
pd.Series({name: model.score(*of_test) for name, model in models.items()}, name="accuracy").to_frame().round(3)

# %% [markdown]
# ## The parts of the gap
#
# `decompose` takes the same arguments as `audit`. It returns a part for each arrow out of sex, with all paths that
# begin with this arrow. *Confounding* is the gap that would remain without any effect of sex, because women and men
# differ in age and native country. The parts add up to the gap. Their intervals are simultaneous: they all cover the
# truth in 95 % of samples. We leave out the observed incomes for now with `outcome=False`.

# %%
names = {"M": "marital status", "L": "education", "R": "work"}
parts = pf.decompose(models, graph, test, unfair=unfair, outcome=False, names=names, random_state=0)
print(parts)

# %% [markdown]
# Leaving out sex does not close the gap. Most of it goes through marital status, which both models read.

# %%
parts.plot("all columns")

# %%
parts.plot("without sex")

# %% [markdown]
# ## Why does the order matter?
#
# The grey bars show how much a part depends on the arrows that are switched before it. An example is the direct part of
# the first model, the effect of its own use of sex. `contrasts` lists this part after each set of other arrows. Its
# sign changes, because the model combines sex with the other columns. The part above is the average over all orders.
# Read it together with the smallest and the largest value.

# %%
direct = parts.contrasts.query("part == 'directly' and decisions == 'threshold'")
direct.drop(columns=["decisions", "part"]).round(3)

# %% [markdown]
# ## Unfair paths as one block
#
# Because you marked the unfair paths, they form one block, and the fair paths form a second block. An audit reports the
# unfair block switched *first*: the mean unfair effect. The table has the average of first and last, and both values as
# `smallest` and `largest`. The audit below repeats the value for *first*, up to the random folds.

# %%
blocks = parts.table.query("part in ['unfair paths', 'fair paths'] and decisions == 'threshold'")
blocks.drop(columns="decisions").round(3)

# %%
report = pf.audit(models, unfair, test, random_state=0)
effect = report.table.query("quantity == 'mean_unfair_effect' and decisions == 'threshold'")
effect[["model", "estimate", "lower", "upper"]].round(3)

# %% [markdown]
# ## Decisions and scores
#
# So far we split the gap in decisions, that is in scores above 0.5. Mean scores have their own parts. A difference in
# scores changes a decision only if it crosses the threshold.

# %%
parts.table.pivot_table("estimate", index="part", columns=["model", "decisions"]).round(3)

# %% [markdown]
# ## Was it in the data?
#
# You can split the observed incomes in the same way. If the groups overlap too little for some orders, state one order.
# Here the direct arrow (`Y`) comes first, then marital status, education and work, so causes come before effects.
# `differences` compares each part of a model with the part of the observed incomes.

# %%
stated = pf.decompose(models, graph, test, order=["Y", "M", "L", "R"], names=names, random_state=0)
stated.plot(stated.outcome)

# %%
stated.differences.query("decisions == 'threshold'").drop(columns="decisions").round(3)

# %% [markdown]
# ## What may you say?
#
# * "Most of the gap in decisions goes through marital status." "Both models add to the part in the data." The intervals
#   above show how sure this is.
# * "The model without sex does not use sex." Its direct part is 0 up to sampling error. Do *not* say that it is fair:
#   sex affects its decisions along other paths.
# * "Directly" depends on the order for the first model. Quote its range, not one number.
# * Do not take a part for a verdict. You judge which paths are unfair, and confounding may also be unfair.
# * A part is a mean. It may be 0 although the decisions of many individuals differ. The bounds of an
#   [audit](2_adult_audit.ipynb) cover this case.
#
# For a comparison with a published split of the COMPAS data, see [where does the gap come
# from?](../docs/decompose.md#does-it-agree-with-published-examples)

# %% [markdown]
# ## Assumptions
#
# No table can confirm a graph. All numbers above depend on these assumptions:

# %%
print(*parts.assumptions, sep="\n")
