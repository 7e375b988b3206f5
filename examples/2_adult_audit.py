# %% [markdown]
# # From a DataFrame to an audited model and a chosen penalty: the Adult census data
#
# You have a table, a causal graph and some fitted classifier. This tutorial goes from there to a report with intervals,
# to a path of classifiers that pay more and more for unfair effects, to a choice among them by a stated limit, and to
# the audit of the chosen one on rows that took no part in anything before.
#
# It keeps 12,000 training and 4,000 test rows, drawn with a seed, so that it runs in a minute: its numbers are those of
# the subsample, not of Adult. As a script: `python examples/2_adult_audit.py [FOLDER]` writes its pictures and tables
# to FOLDER (`build/examples` by default).

# %% tags=["hide-cell"]
import sys
from pathlib import Path

folder = Path("build") / "examples"  # where pictures go
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %%
import warnings

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import pyrofair as pf

# %% [markdown]
# ## The data and the graph
#
# `graph` is an ordinary `pf.CausalGraph`, written in the data set's docstring; your own is a string of arrows (see
# [your own graph](custom_graph.ipynb)). Sex `A` and `C` = {age, native country} are roots; marital status `M`,
# education `L` and work `R` follow; all lead to income `Y`. The graph is an assumption: nothing in the table can
# confirm it.

# %%
adult = pf.datasets.load_adult()
train, test = adult.split(random_state=0)
train, test = train.sample(12_000, random_state=0), test.sample(4_000, random_state=0)
graph = adult.graph
train.head()

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
drawing = unfair.draw().figure
drawing.savefig(folder / "adult-graph.png", dpi=120)
drawing

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
overlap = weights.overlap()
overlap[["regime", "group", "used", "n", "mean_weight", "max_weight", "ess", "at_bounds", "unsupported_mass"]].round(2)

# %% [markdown]
# ## Classifiers that is trained with a penalty on unfair effects
#
# `PenalizedClassifier` minimises the loss of any network plus `strength` times a penalty on the two worlds. Accuracy
# alone would always choose strength 0, so do not guess a strength: `penalty_path` fits a classifier at each, from the
# strongest down, and measures all of them on a quarter of the training rows that is held out. The fit compares women's
# rows with men's, weighted alone, and warns where they still estimate somewhat different effects: what is *penalised*
# is the unfair effect up to that difference. What is *measured* is not: the path is judged by one-step estimates, as in
# the audit below.

# %%
warnings.filterwarnings("ignore", "The two observed groups, weighted alone, disagree", pf.PositivityWarning)
classifier = pf.PenalizedClassifier(
    source=weights, penalty=pf.disagreement, epochs=12, batch_size=500, dtype="float32", progress=False, random_state=0
)
path = pf.penalty_path(classifier, X, y, strengths=[0.0, 0.25, 0.5, 1.0, 2.0], progress=False)
path.summary()[["accuracy", "majority_rate", "positive_rate", "mean_unfair_effect", "piu_lower", "piu_upper"]].round(3)

# %% [markdown]
# Read the columns together. The penalty is small for a classifier that says no to nearly all, too: where accuracy comes
# near the majority rate and the positive rate near 0, it is constancy that was bought.

# %%
figure = path.plot()
figure.savefig(folder / "adult-path.png", dpi=120)
figure

# %% [markdown]
# ## A choice by a stated limit
#
# `select` takes one limit: the accuracy that may be given away, or the amount of a quantity that is accepted. It goes
# by the far end of the 95 % interval, not by the estimate, and refuses where no classifier of the path meets the limit.

# %%
chosen = path.select("mean_unfair_effect", accuracy_loss=0.02)
print(f"at most .02 of accuracy lost: strength {chosen.strength:g}")
try:
    path.select("piu_upper", at_most=0.01)
except pf.DataError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## The audit
#
# A classifier is a known function, so what a world makes of it can be estimated twice over: by averaging its scores
# over the features with regressions, and by weighting the residuals of observed rows. `OneStep` does both. It is right
# if at each stage either is, and gives intervals without a bootstrap. Fitted on the training rows it judges the test
# rows, which took no part in training or in choosing; read the bounds beside accuracy and the positive rate, for a
# constant classifier has a bound of 0. The last lines are the assumptions that the numbers depend on.

# %%
models = {"boosted trees": boosted, "penalised network": chosen}
source = pf.OneStep(unfair, random_state=0).fit(train)
report = pf.audit(models, source, test, thresholds=[0.3, 0.5, 0.7], progress=False, random_state=0)
report.to_html(folder / "adult-report.html", title="Adult: the audit")
report

# %% [markdown]
# That is the answer. `adult-report.html` is one file for others: the question and the answer on one screen, and below
# it the graph, overlap, a table over thresholds, assumptions and warnings. In words, with every quantity:

# %%
print(report)

# %% [markdown]
# ## Can the stages be trusted?
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
    paper = pf.audit(models, pf.IPW(unfair).fit(train), test, n_boot=40, progress=False, random_state=0)
wanted = "decisions == 'threshold' and quantity == 'mean_unfair_effect'"
both = {"one-step": report, "paper's weights": paper}
effects = pd.concat({name: each.table.query(wanted).set_index("model") for name, each in both.items()})
effects[["estimate", "lower", "upper", "note"]].round(3)

# %%
own_groups = paper.groups.query(wanted)
assert not own_groups["agree"].any()
own_groups[["model", "group_0", "group_1", "difference", "lower", "upper", "agree"]].round(3)

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
#
# Everything is in `report.table`, a row for each model, quantity and kind of decisions.

# %%
report.table.to_csv(folder / "adult-audit.csv", index=False)
decisions = report.table[report.table["decisions"] == "threshold"]
shown = decisions.pivot_table(index="quantity", columns="model", values="estimate")
shown.loc[decisions["quantity"].drop_duplicates()].round(3)

# %%
figure = report.plot()
figure.savefig(folder / "adult-audit.png", dpi=120)
figure

# %% [markdown]
# ## What the numbers depend on
#
# Each report ends with its assumptions; here they are once more, in the words of the source. Beyond them: the judgement
# that the paths through marital status are unfair and those through education and work are fair, the merging of rare
# levels, and 12,000 rows of a census of 1994. A small upper end would have shown that few are decided on unfairly along
# these paths; a lower end above 0 shows that some are.

# %%
print(*source.assumptions, sep="\n")
