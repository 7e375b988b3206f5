"""Models that read their batch or draw at random are found at every entry, and functions of one row are not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer
from torch import nn

import pyrofair as pf
from pyrofair.__main__ import main
from pyrofair.effects.row_functions import find_difference
from pyrofair.effects.scoring import positive_scores
from pyrofair.robustness import sensitivity
from tests.programs.models import Scores

GRAPH = pf.CausalGraph("A -> M; Q -> M; {A Q M} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y")
WITNESS = pf.CausalGraph("A -> R -> M; {A R M} -> Y", sensitive="A", outcome="Y").unfair("A -> R -> Y")
INPUTS = ["A", "Q", "M"]


def base(n: int = 3_000) -> pd.DataFrame:
    r = np.random.default_rng(0)
    a, q = r.integers(0, 2, n), r.integers(0, 3, n)
    m = (r.random(n) < 0.2 + 0.3 * a + 0.1 * q).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "M": m, "Y": (r.random(n) < 0.1 + 0.2 * a + 0.3 * m + 0.1 * q).astype(int)})


TABLE = base()


def codes(X: pd.DataFrame) -> Any:
    return 0.2 + 0.5 * (X["M"] > 0.5) + 0.3 * X["A"].astype(str).astype("category").cat.codes


def dummies(X: pd.DataFrame) -> Any:
    return 0.2 + 0.5 * X["M"] + 0.3 * pd.get_dummies(X["A"].astype(str), dtype=float)["1"]


def squashed(X: pd.DataFrame) -> Any:
    x = X["A"] + X["M"]
    return 0.2 + 0.6 * (x - x.min()) / (x.max() - x.min())


def normalised(X: pd.DataFrame) -> Any:
    with torch.no_grad():
        return torch.sigmoid(nn.BatchNorm1d(3).train()(torch.tensor(X[INPUTS].to_numpy(np.float32)))[:, 0]).numpy()


OF_A_BATCH: dict[str, Callable[[pd.DataFrame], Any]] = {
    "codes": codes,
    "factorize": lambda X: 0.2 + 0.3 * pd.factorize(X["A"])[0],
    "dummies": dummies,
    "codes of a covariate": lambda X: 0.1 + 0.2 * X["M"] + 0.3 * X["Q"].astype("category").cat.codes,
    "quantile": lambda X: 0.2 + 0.6 * (X["A"] + X["M"] > (X["A"] + X["M"]).quantile(0.7)),
    "min-max": squashed,
    "rank": lambda X: (X["A"] + X["M"]).rank(pct=True),
    "mean": lambda X: 0.3 + 0.4 * (X["M"] > X["M"].mean()),
    "batch normalisation": normalised,
    "rare rows": lambda X: 0.2 + 0.6 * (X["Q"] == X["Q"].max()) * (X["M"] == 1) * X["A"],
}


def difference(model: Any, df: pd.DataFrame = TABLE, graph: pf.CausalGraph = GRAPH) -> Any:
    def ask(rows: pd.DataFrame) -> Any:
        return positive_scores("m", model, rows, graph)

    ties = model.ties("m", graph, None) if isinstance(model, pf.DecisionsOf) else None
    return find_difference(ask, df[INPUTS], ask(df[INPUTS]), graph, ties)


@pytest.mark.parametrize("name", OF_A_BATCH)
def test_a_model_that_reads_its_batch_is_found(name: str) -> None:
    for model in (Scores(OF_A_BATCH[name]), pf.DecisionsOf(lambda X: (OF_A_BATCH[name](X) > 0.45).astype(int))):
        found = difference(model)
        assert found is not None
        assert not found.at_random


@pytest.mark.parametrize("what", ["each call", "each row", "each position", "dropout"])
def test_a_model_that_draws_is_told_apart(what: str) -> None:
    random = np.random.default_rng(0)
    layer = nn.Dropout(0.5).train()
    scores: dict[str, Callable[[pd.DataFrame], Any]] = {
        "each call": lambda X: np.full(len(X), random.random()),
        "each row": lambda X: random.random(len(X)),
        "each position": lambda X: np.random.default_rng(0).random(len(X)),
        "dropout": lambda X: torch.sigmoid(layer(torch.ones(len(X)))).numpy(),
    }
    found = difference(Scores(scores[what]))
    assert found is not None
    assert found.at_random
    assert "eval()" in str(found.refusal("m", "A"))


def test_functions_of_a_row_pass() -> None:
    """Rounding by the size of a batch, a squeezed single row, categories, and decisions at a tie."""
    plain = LogisticRegression().fit(TABLE[INPUTS], TABLE["Y"])

    def noisy(X: pd.DataFrame) -> Any:
        return np.float32(0.5) + np.float32(1e-7) * (-1) ** len(X) + 0.0 * X["A"].to_numpy(np.float32)

    class Tied(Scores):
        def predict(self, X: pd.DataFrame) -> Any:
            return (self.predict_proba(X)[:, 1] > 0.5).astype(int)

    weight = torch.tensor([[0.3], [-0.2], [0.4]])
    squeezing = pf.ScoresOf(lambda X: torch.sigmoid(torch.tensor(X.to_numpy(np.float32)) @ weight).squeeze().numpy())
    for model in (plain, Scores(noisy), pf.DecisionsOf(Tied(noisy)), pf.DecisionsOf(plain), squeezing):
        assert difference(model) is None
    declared = TABLE.assign(A=pd.Categorical(TABLE["A"]))
    assert difference(Scores(lambda X: 0.2 + 0.3 * X["A"].cat.codes), declared) is None
    unread = pf.CausalGraph("A -> M; {Q M} -> Y", sensitive="A", outcome="Y")
    assert difference(Scores(lambda X: 0.2 + 0.3 * X["M"]), graph=unread) is None
    assert difference(Scores(lambda X: 0.2 + 0.3 * X["M"].rank(pct=True)), graph=unread) is not None


def test_few_rows_are_asked() -> None:
    sizes: list[int] = []

    def counted(X: pd.DataFrame) -> Any:
        sizes.append(len(X))
        return np.full(len(X), 0.5)

    difference(Scores(counted))
    assert len(sizes) <= 16
    assert sum(sizes[1:]) <= 1_000


def program(n: int) -> None:
    with pyro.plate("units", n):
        a = pyro.sample("A", dist.Bernoulli(0.5))
        q = pyro.sample("Q", dist.Normal(0.0, 1.0))
        pyro.deterministic("M", a + q + pyro.sample("U", dist.Normal(0.0, 1.0)))


def drifting(n: int) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("units", n):
        pyro.sample("A", dist.Bernoulli(0.5))
        pyro.sample("Q", dist.Normal(b, 1.0))
        pyro.deterministic("M", pyro.sample("U", dist.Normal(0.0, 1.0)))


def witness() -> pd.DataFrame:
    r, df = np.random.default_rng(1), base(600)
    return df.assign(R=r.integers(0, 2, 600)).drop(columns="Q")


SEM = pf.SEM(program, UNFAIR)
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "audit": lambda m: pf.audit({"m": m}, UNFAIR, TABLE),
    "weights": lambda m: pf.audit({"m": m}, pf.IPW(UNFAIR), TABLE, n_boot=0, progress=False),
    "subgroups": lambda m: pf.audit({"m": m}, UNFAIR, TABLE, subgroups="Q"),
    "thresholds": lambda m: pf.audit({"m": m}, UNFAIR, TABLE, thresholds=[0.4]),
    "partitions": lambda m: pf.audit({"m": m}, UNFAIR, [TABLE, TABLE], sample=2_000, random_state=0),
    "contrasts": lambda m: pf.audit_contrasts({"m": m}, UNFAIR, TABLE),
    "graphs": lambda m: pf.audit_graphs({"m": m}, {"one": UNFAIR}, TABLE),
    "edges": lambda m: pf.edge_costs({"m": m}, UNFAIR, TABLE),
    "scorer": lambda m: pf.audits.AuditScorer(UNFAIR, at_most=0.1)(m, TABLE[INPUTS], TABLE["Y"]),
    "sharp": lambda m: pf.sharp_bounds(UNFAIR, TABLE, m),
    "miles": lambda m: pf.MilesBounds(WITNESS).fit(witness()).bounds(m),
    "sensitivity": lambda m: sensitivity.confounding(m, UNFAIR, TABLE),
    "SEM.truth": lambda m: SEM.truth(m, n=500, random_state=0),
    "effect_posterior": lambda m: pf.effect_posterior(
        drifting, UNFAIR, m, {"b": [0.0, 1.0]}, n=500, progress=False, random_state=0
    ),
    "flips": lambda m: pf.audits.flips({"m": m}, SEM, TABLE[:20]),
    "groups": lambda m: pf.effects.compare_groups(
        pf.IPW(UNFAIR, arm="pooled", propensity="saturated").fit(TABLE), lambda X: m.predict_proba(X)[:, 1]
    ),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_refuses_a_model_that_reads_its_batch(entry: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pf.PyrofairWarning)
        with pytest.raises(
            pf.DataError, match=r"rows another score.*'A'.*get_dummies.*make_pipeline\(encoder, model\)"
        ):
            ENTRIES[entry](Scores(codes))


def test_the_command_line_refuses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joblib.dump(Scores(codes), tmp_path / "m.joblib")
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    graph = ["--graph", "A -> M; Q -> M; {A Q M} -> Y", "--sensitive", "A", "--outcome", "Y", "--unfair", "A -> Y"]
    with pytest.raises(SystemExit):
        main(["audit", str(tmp_path / "rows.csv"), *graph, "--model", str(tmp_path / "m.joblib"), "--trust-pickle"])
    assert "get_dummies" in capsys.readouterr().err


def test_an_encoder_that_reads_its_batch_is_refused_before_training() -> None:
    encoder = FunctionTransformer(lambda X: X.assign(A=X["A"].astype(str).astype("category").cat.codes))
    settings: dict[str, Any] = {"source": pf.IPW(UNFAIR), "epochs": 2, "progress": False, "random_state": 0}
    with pytest.raises(pf.DataError, match=r"encoder=.*FunctionTransformer.*get_dummies"):
        pf.PenalizedClassifier("logistic", encoder=encoder, **settings).fit(TABLE[INPUTS], TABLE["Y"])
    scaled = FunctionTransformer(lambda X: 1e4 * X)
    pf.PenalizedClassifier("logistic", encoder=scaled, dtype="float32", **settings).fit(TABLE[INPUTS], TABLE["Y"])
