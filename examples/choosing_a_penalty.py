# %% [markdown]
# # How strong should the penalty be?
#
# A penalty buys fairness with accuracy, and its strength sets the price. Accuracy alone always chooses strength 0. So
# look at the whole path with its uncertainty, state what you accept, and let the choice follow. A how-to with three
# ways: a path of strengths, scikit-learn's grid search, and an Optuna study, for which Optuna must be installed. As a
# script: `python examples/choosing_a_penalty.py [FOLDER]` writes two pictures and a table to FOLDER (`build/examples`
# by default).

# %% tags=["hide-cell"]
import sys
from pathlib import Path

folder = Path("build") / "examples"  # where pictures go
if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):  # the kernel of a notebook has arguments of its own
    folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# %%
import matplotlib.pyplot as plt
import optuna
import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold, train_test_split

import pyrofair as pf

# %% [markdown]
# ## A hiring table
#
# Sex `A` and qualification `Q`, children `D`, physical strength `M`; unfair are the direct path and the one through
# children. The table is drawn from a model with additive noise, so that overlap is no trouble here.

# %%
hiring = pf.simulate.scenario("additive")
df = hiring.draw(2_400, random_state=0)
X, X_new, y, y_new = train_test_split(df.drop(columns="Y"), df["Y"], test_size=800, random_state=0)
print(hiring.unfair)

# %% [markdown]
# ## The path
#
# `GComputation` learns the mechanism of the children's column from the table, and the penalty is taken given what both
# worlds share. The mechanism is linear here, and linear ones are learned in a moment (networks, the default, in
# seconds). Each strength starts from the one above; a quarter of the rows is measured on, not trained on.

# %%
source = pf.GComputation(hiring.unfair, draws=20, parameters="linear", components=2, progress=False, random_state=0)
classifier = pf.PenalizedClassifier(
    "logistic", source=source, penalty=pf.disagreement, epochs=30, learning_rate=0.05, progress=False, random_state=0
)
path = pf.penalty_path(classifier, X, y, strengths=[0.0, 0.5, 1.0, 2.0], seeds=2, progress=False)
path.summary()[["accuracy", "positive_rate", "mean_unfair_effect", "piu_lower", "piu_upper", "bimodal"]].round(3)

# %%
figure = path.plot()
figure.savefig(folder / "choosing-path.png", dpi=120)
figure

# %% [markdown]
# Below, right: how much accuracy is bought per unit of unfairness. The whiskers are the far ends of 95 % intervals, on
# rows that were not trained on. `select` judges by these far ends, not by estimates. Either say how much unfairness you
# accept, or how much accuracy you give away.

# %%
accepted = path.select(at_most=0.2)
cheap = path.select(accuracy_loss=0.01)
print(f"PIU at most .2: strength {accepted.strength:g}; at most .01 of accuracy lost: strength {cheap.strength:g}")

# %% [markdown]
# ## A grid search
#
# `AuditScorer` scores each candidate on each fold by accuracy, by the quantity, and by the far end of its interval. Its
# `choose` takes the most accurate candidate that is fair enough. The judge is fitted once, on all rows: its nuisance
# models are cross-fitted, so that each row is judged by models that did not see it.

# %%
judge = pf.OneStep(hiring.unfair, random_state=0).fit(X)
scorer = pf.audits.AuditScorer(judge, at_most=0.2)
search = GridSearchCV(
    classifier,
    {"strength": [0.0, 0.5, 2.0]},
    scoring=scorer,
    refit=scorer.choose,
    cv=KFold(2, shuffle=True, random_state=0),
).fit(X, y)
results = pd.DataFrame(search.cv_results_)[["param_strength", *(f"mean_test_{name}" for name in scorer.names)]]
results.to_csv(folder / "choosing-grid.csv", index=False)
print("chosen:", search.best_params_)
results.round(3)

# %% [markdown]
# ## An Optuna study
#
# Two objectives, accuracy up and the far end down: what is left is the set of trials that none beats in both.

# %%
optuna.logging.set_verbosity(optuna.logging.WARNING)
fitting, X_held, y_fitting, y_held = train_test_split(X, y, test_size=0.4, random_state=1)


def objective(trial: optuna.Trial) -> tuple[float, float]:
    strength = trial.suggest_float("strength", 0.01, 4.0, log=True)
    rate = trial.suggest_float("learning_rate", 0.01, 0.1, log=True)
    model = pf.PenalizedClassifier(
        "logistic", source=source, strength=strength, learning_rate=rate, epochs=30, progress=False, random_state=0
    )
    accuracy, _, far_end = scorer(model.fit(fitting, y_fitting), X_held, y_held).values()
    return accuracy, far_end


study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=5)
names = {"params_strength": "strength", "params_learning_rate": "rate", "values_0": "accuracy", "values_1": "far_end"}
trials = study.trials_dataframe()[list(names)].rename(columns=names)
best = {each.number for each in study.best_trials}
trials[trials.index.isin(best)].sort_values("accuracy").round(3)

# %%
figure, axes = plt.subplots(figsize=(5.5, 4), layout="constrained")
axes.plot(trials["far_end"], trials["accuracy"], "o", color="#666666", label="trial")
front = trials[trials.index.isin(best)].sort_values("far_end")
axes.plot(front["far_end"], front["accuracy"], "o-", color="#D55E00", label="not beaten in both")
axes.axvline(0.2, color="#666666", linestyle="--", linewidth=1, label="accepted")
axes.set(xlabel="PIU: far end of the interval of its upper end", ylabel="accuracy on held-out rows")
axes.legend(frameon=False)
figure.savefig(folder / "choosing-optuna.png", dpi=120)

# %% [markdown]
# ## What the numbers depend on
#
# The chosen one of many looks a little better than it is, on the rows it was chosen by. So the last word has an audit
# on rows that took no part in training or in choosing. It ends with what it depends on.

# %%
models = {"grid search": search.best_estimator_, "path": accepted}
print(
    pf.audit(models, pf.OneStep(hiring.unfair, random_state=0), X_new.assign(Y=y_new), random_state=0, progress=False)
)
