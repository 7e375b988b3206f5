# %% [markdown]
# # Does leaving out sex close the gap?
#
# A model predicts a high income far more often for men than for women. Here you split this gap along the arrows of a
# causal graph, for a model that reads sex and for one that does not. You will see why a part needs an order, what the
# unfair paths add up to, and which parts were in the data before the model. You need no more than a table, a graph and
# fitted models. The data, Adult, are in the package. It keeps 6,000 test rows, so that all cells take half a minute.

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
for table in (train, test):  # levels that hardly any woman, or hardly any man, has are merged
    inside = table["native-country"] == "United-States"
    table["native-country"] = inside.map({True: "United States", False: "elsewhere"}).astype("category")
    rare = {"Armed-Forces": "Protective-serv", "Priv-house-serv": "Other-service"}
    table["occupation"] = table["occupation"].astype(str).replace(rare).astype("category")
pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## The graph
#
# Sex `A` and `C` (age and native country) have no causes here. Marital status `M`, education `L` and work `R` follow,
# and all of them lead to income `Y`. Red are the paths that we call unfair in this example: the direct one, and those
# through marital status. That is a judgement. You may make another one.

# %%
unfair

# %% [markdown]
# ## Two models
#
# Both are boosted trees. The second one cannot read sex, which many people take for a fair model. Leaving it out costs
# hardly any accuracy.

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
# `decompose` takes what `audit` takes. There is a part for each arrow out of sex, with all paths that begin with it.
# *Confounding* is the gap that would remain without any effect of sex, because women and men differ in age and native
# country. The parts add up to the gap, and their intervals hold together. `outcome=False`: the incomes come later.

# %%
names = {"M": "marital status", "L": "education", "R": "work"}
parts = pf.decompose(models, graph, test, unfair=unfair, outcome=False, names=names, random_state=0)
print(parts)

# %% [markdown]
# Leaving out sex does not close the gap. Most of it comes by way of marital status, which both models read.

# %%
parts.plot("all columns")

# %%
parts.plot("without sex")

# %% [markdown]
# ## Why does the order matter?
#
# The grey bars show how much a part depends on what is switched before it. Take the direct part of the first model.
# It is what the model's own use of sex adds, after some other arrows have been switched. `contrasts` lists it after
# each set of others. Its sign changes, because the model combines sex with the other columns. The part above is the
# average over all orders. Read it together with the smallest and the largest one.

# %%
direct = parts.contrasts.query("part == 'directly' and decisions == 'threshold'")
direct.drop(columns=["decisions", "part"]).round(3)

# %% [markdown]
# ## Unfair paths as one block
#
# Because you said which paths are unfair, they are one block, and the others a second block. An audit reports the mean
# unfair effect, which is the unfair block if it is switched *first*. The table has the average of first and last, and
# both of them as `smallest` and `largest`. The audit has the first one, up to how the rows fall into folds.

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
# All of this was about decisions, that is scores above 0.5. Mean scores have parts of their own. A difference in scores
# matters for decisions only if it crosses the threshold.

# %%
parts.table.pivot_table("estimate", index="part", columns=["model", "decisions"]).round(3)

# %% [markdown]
# ## Was it in the data?
#
# The incomes that people had can be split in the same way. If the groups overlap too little for some orders, state one
# order. Here the direct arrow comes first (`Y` stands for it), then marital status, education and work: each cause
# before what it leads to. `differences` has what a part of a model is beyond that of the observed incomes.

# %%
stated = pf.decompose(models, graph, test, order=["Y", "M", "L", "R"], names=names, random_state=0)
stated.plot(stated.outcome)

# %%
stated.differences.query("decisions == 'threshold'").drop(columns="decisions").round(3)

# %% [markdown]
# ## What may you say?
#
# * "Most of the gap in decisions comes by way of marital status, and both models add to what is in the data there." The
#   intervals above say how sure that is.
# * "The model without sex does not use sex." So its direct part is 0 up to chance. Do *not* say that it is fair: sex
#   reaches its decisions along other paths.
# * "Directly" depends on the order for the first model. Quote its range, not one number.
# * Do not read a part as a verdict. Which paths are unfair is your judgement, and confounding may be unfair as well.
# * A part is a mean. It may be 0 although many individuals are decided on differently; that is what the bounds of an
#   [audit](2_adult_audit.ipynb) are for.
#
# The same split of a published example, COMPAS, beside the printed numbers: [where does the gap come
# from?](../docs/decompose.md#does-it-agree-with-published-examples)

# %% [markdown]
# ## What the numbers depend on
#
# A table cannot confirm a graph. These are the assumptions of every number above.

# %%
print(*parts.assumptions, sep="\n")
