# %% [markdown]
# # The unfair effect of a classifier of the Adult census data, and the cost of reducing it
#
# You have a table, a causal graph and some fitted classifier. This tutorial goes from there to a report with intervals,
# and to a second classifier that pays for unfair effects. Cells run top to bottom in any editor that knows `# %%`, or
# as a script: `python examples/adult_audit.py [FOLDER]` writes three pictures and a table to FOLDER (`build/examples`
# by default). It takes well under a minute on two cores, because it keeps 20,000 training and 4,000 test rows, drawn
# with a seed: its numbers are those of the subsample, not of Adult.

# %%
import sys
import warnings
from pathlib import Path

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import pyrofair as pf

folder = Path("build") / "examples"
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The data and the graph
#
# Sex `A` and `C` = {age, native country} are roots; marital status `M`, education `L` and work `R` follow; all lead to
# income `Y`. The graph is an assumption: nothing in the table can confirm it.

# %%
adult = pf.datasets.load_adult()
train, test = adult.split(random_state=0)
train, test = train.sample(20_000, random_state=0), test.sample(4_000, random_state=0)
graph = adult.graph
print(graph)

# %% [markdown]
# Levels that hardly any woman, or hardly any man, has (a country of one row, the armed forces) have no counterpart in
# the other group, and a row there would get an enormous weight. They are merged here, by hand and in the open: the
# package merges nothing, it warns and names such cells.

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
# ## The unfair paths
#
# Which paths are unfair is a judgement, yours to make and to defend. Here, as in the paper: the direct path, and every
# path through marital status. Paths through education and work alone are called fair.

# %%
unfair = graph.unfair(direct=True, through=["M"])
print(unfair)
unfair.draw().figure.savefig(folder / "adult-graph.png", dpi=120)

# %% [markdown]
# ## Is the effect identified?
#
# `identify` writes the formula of both potential outcomes, the weights that reproduce them, and the assumptions, or
# raises an error that names the cause.

# %%
print(pf.identify(unfair))

# %% [markdown]
# ## Some fitted classifier
#
# Anything with `predict_proba` will do. It may read the observed parents of the outcome in the graph, and nothing else.

# %%
X, y = train.drop(columns=graph.outcome_column), train[graph.outcome_column]
text = list(X.select_dtypes("category"))
encode = ColumnTransformer(
    [("text", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), text)],
    remainder="passthrough",
    verbose_feature_names_out=False,
)
boosted = make_pipeline(encode, HistGradientBoostingClassifier(random_state=0)).fit(X, y)

# %% [markdown]
# ## Weights for training, and their overlap
#
# `IPW` weights observed rows to the two worlds. Its propensities are boosted trees here, each row judged by trees that
# did not see it: with logistic ones, the paper's, women's rows and men's rows estimate different effects on Adult. Look
# at the overlap before any result. A mean weight far from 1, a small effective size (`ess`) or unsupported cells mean
# that the other world has no counterpart in the data. Without the merging above, this line warns and names the cells.

# %%
weights = pf.IPW(unfair, propensity="boosted", random_state=0).fit(train)
print(weights.overlap().drop(columns=["trimmed", "clipped"]).round(3).to_string(index=False))

# %% [markdown]
# ## A classifier that pays for unfair effects
#
# The same loss as any network, plus `strength` times the paper's penalty. The source is cloned and fitted inside. The
# fit compares women's rows with men's, weighted alone, and warns that they still estimate somewhat different effects:
# what is penalised is the unfair effect up to that difference. The audit below does not rest on these weights.

# %%
warnings.filterwarnings("ignore", "The two observed groups, weighted alone, disagree", pf.PositivityWarning)
penalised = pf.PenalizedClassifier(
    source=weights,
    penalty=pf.disagreement,
    strength=0.5,
    epochs=40,
    batch_size=500,
    dtype="float32",
    progress=False,
    random_state=0,
).fit(X, y)

# %% [markdown]
# ## The audit
#
# A classifier is a known function, so what a world makes of it can be estimated twice over: by averaging its scores
# over the features with regressions, and by weighting the residuals of observed rows. `OneStep` does both. It is right
# if at each stage either is, and gives intervals without a bootstrap. Fitted on the training rows it judges the test
# rows; read the bounds beside accuracy and the positive rate, for a constant classifier has a bound of 0. The last
# lines are the assumptions that the numbers rest on.

# %%
models = {"boosted trees": boosted, "penalised network": penalised}
source = pf.OneStep(unfair, random_state=0).fit(train)
report = pf.audit(models, source, test, progress=False, random_state=0)
print(report)

# %% [markdown]
# ## What the numbers rest on
#
# Each stage has a weight, whose mean should be 1, and a regression. *Balance* is far from 0 where the weights are
# wrong, *correction* where the regression is; beyond the limit no verdict is given.

# %%
stages = report.plot_stages()
stages.savefig(folder / "adult-stages.png", dpi=120)
stages

# %% [markdown]
# ## The paper's weights beside it
#
# Logistic propensities and a bootstrap, as in the paper. If they are right, women's rows and men's rows, weighted
# alone, estimate the same; a latent cause cannot part them, a propensity that is too simple can. Here they are far
# apart, so that one of the two numbers is wrong, and the report on these weights gives no verdict.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", pf.PositivityWarning)
    paper = pf.audit(models, pf.IPW(unfair).fit(train), test, n_boot=50, progress=False, random_state=0)
wanted = "decisions == 'threshold' and quantity == 'mean_unfair_effect'"
both = {"one-step": report, "paper's weights": paper}
effects = pd.concat({name: each.table.query(wanted).set_index("model") for name, each in both.items()})
print(effects[["estimate", "lower", "upper"]].round(3).to_string())
print(
    paper.groups.query(wanted)[["model", "group_0", "group_1", "difference", "agree"]].round(3).to_string(index=False)
)

# %% [markdown]
# ## An interval of your own
#
# `report.influence` has one value per row for each model and functional, whose mean is the estimate. So any smooth
# function of them has an interval by the delta method: how many times as often would a woman be granted, if only the
# unfair paths were switched?

# %%
own = report.influence["boosted trees"]["threshold"]
y0, ypi = own["y0"].mean(), own["ypi"].mean()
ratio = ypi / y0
error = ((own["ypi"] - ratio * own["y0"]) / y0).std() / len(own) ** 0.5
print(f"P(Ypi=1) / P(Y0=1) = {ratio:.2f} [{ratio - 1.96 * error:.2f}, {ratio + 1.96 * error:.2f}]")

# %% [markdown]
# ## The table and the picture

# %%
decisions = report.table[report.table["decisions"] == "threshold"]
shown = decisions.pivot_table(index="quantity", columns="model", values="estimate")
print(shown.loc[decisions["quantity"].drop_duplicates()].round(3).to_string())
report.table.to_csv(folder / "adult-audit.csv", index=False)
figure = report.plot()
figure.savefig(folder / "adult-audit.png", dpi=120)
print(f"wrote adult-graph.png, adult-stages.png, adult-audit.csv and adult-audit.png to {folder}")
figure
