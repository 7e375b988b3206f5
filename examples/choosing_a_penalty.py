# %% [markdown]
# # Choose a penalty's strength
#
# State a limit, and let `select` choose. Accuracy alone always chooses strength 0. This page shows three ways: a path
# of strengths, a grid search of scikit-learn, and an Optuna study. You need Optuna for the third one.

# %%
import optuna
import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold, train_test_split

import pyrofair as pf

# %% [markdown]
# ## A hiring table
#
# The table has sex `A`, qualification `Q`, children `D` and physical strength `M`. The direct path and the path through
# children are unfair. The table is simulated, and its groups overlap well.

# %%
hiring = pf.simulate.scenario("additive")
df = hiring.draw(2_000, random_state=0)
X, X_new, y, y_new = train_test_split(df.drop(columns="Y"), df["Y"], test_size=600, random_state=0)
hiring.unfair

# %% [markdown]
# ## Fit a path of strengths
#
# `GComputation` learns the distribution of children from the table, and the penalty is computed given the shared
# features. We use a linear distribution because it is fast; the default is a network. `penalty_path` measures each
# classifier on a quarter of the rows, which it does not train on.

# %%
source = pf.GComputation(hiring.unfair, draws=20, parameters="linear", components=2, progress=False, random_state=0)
classifier = pf.PenalizedClassifier(
    "logistic", source=source, penalty=pf.disagreement, epochs=30, learning_rate=0.05, progress=False, random_state=0
)
path = pf.penalty_path(classifier, X, y, strengths=[0.0, 0.5, 2.0], seeds=2, progress=False)
path.summary()[["accuracy", "positive_rate", "mean_unfair_effect", "piu_lower", "piu_upper", "bimodal"]].round(3)

# %% [markdown]
# `select` compares your limit with the upper confidence limit, not with the estimate. The plot shows the limit and
# rings the classifier that `select` returns. Alternatively, state how much accuracy you may lose.

# %%
accepted = path.select(at_most=0.2)
cheap = path.select(accuracy_loss=0.01)
print(f"PIU at most 20 %: strength {accepted.strength:g}; 1 point of accuracy lost: strength {cheap.strength:g}")
path.plot(at_most=0.2)

# %% [markdown]
# `details=True` shows each quantity by strength:

# %%
path.plot(details=True)

# %% [markdown]
# ## Use a grid search
#
# `AuditScorer` scores each candidate on each fold by accuracy, by PIU's upper bound, and by its confidence limit.
# `choose` returns the most accurate candidate within your limit. The audit source is fitted once, on all rows. It is
# cross-fitted, so each row is judged by nuisance models that did not see it.

# %%
source_of_audits = pf.OneStep(hiring.unfair, random_state=0).fit(X)
scorer = pf.audits.AuditScorer(source_of_audits, at_most=0.2)
search = GridSearchCV(
    classifier,
    {"strength": [0.0, 0.5, 2.0]},
    scoring=scorer,
    refit=scorer.choose,
    cv=KFold(2, shuffle=True, random_state=0),
).fit(X, y)
print("chosen:", search.best_params_)
pd.DataFrame(search.cv_results_)[["param_strength", *(f"mean_test_{name}" for name in scorer.names)]].round(3)

# %% [markdown]
# ## Use an Optuna study
#
# The study has two objectives: a high accuracy and a low confidence limit of the upper bound. The table marks the
# trials that no other trial beats in both objectives.

# %%
optuna.logging.set_verbosity(optuna.logging.WARNING)
fitting, X_held, y_fitting, y_held = train_test_split(X, y, test_size=0.4, random_state=1)


def objective(trial: optuna.Trial) -> tuple[float, float]:
    strength = trial.suggest_float("strength", 0.01, 4.0, log=True)
    rate = trial.suggest_float("learning_rate", 0.01, 0.1, log=True)
    model = pf.PenalizedClassifier(
        "logistic", source=source, strength=strength, learning_rate=rate, epochs=30, progress=False, random_state=0
    )
    accuracy, _, limit = scorer(model.fit(fitting, y_fitting), X_held, y_held).values()
    return accuracy, limit


study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=4)
names = {"params_strength": "strength", "params_learning_rate": "rate", "values_0": "accuracy", "values_1": "limit"}
trials = study.trials_dataframe()[list(names)].rename(columns=names)
trials["best"] = trials.index.isin([each.number for each in study.best_trials])
trials.sort_values("limit").round(3)

# %% [markdown]
# ## Assumptions
#
# You chose the best of several models on these rows, so its result is slightly optimistic there. Audit it once more on
# rows that took no part in training or choosing:

# %%
models = {"grid search": search.best_estimator_, "path": accepted}
report = pf.audit(
    models, pf.OneStep(hiring.unfair, random_state=0), X_new.assign(Y=y_new), random_state=0, progress=False
)
print(report)

# %% [markdown]
# The numbers depend on these assumptions:

# %%
print(*source_of_audits.assumptions, sep="\n")
