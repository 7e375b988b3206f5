"""Training frame by frame: steps of training in memory where one frame holds all rows, and its objective elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pyrofair.classifiers.large_tables import RunningMean

import pyrofair as pf
from pyrofair.classifiers.batches import Share, World
from pyrofair.exceptions import DataError
from pyrofair.tables import TableEncoder, as_batches

GRAPH = pf.CausalGraph("{Q R} -> A; {A Q R} -> M; {A Q M} -> Y", sensitive="A", outcome="Y", positive="yes")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")


def draw(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    q, r = rng.normal(size=n), rng.integers(0, 3, n)
    a = (rng.random(n) < 1.0 / (1.0 + np.exp(-0.5 * q - 0.2 * r))).astype(int)
    m = q + 0.8 * a + rng.normal(size=n)
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-m - a)), "yes", "no")
    return pd.DataFrame(
        {"A": a, "Q": q, "R": np.array(["x", "y", "z"])[r], "M": m, "Y": y, "w": rng.uniform(0.5, 2, n)}
    )


DF = draw(1500)
FEATURES = DF.drop(columns=["Y", "w"])


def made(**settings: Any) -> pf.PenalizedClassifier:
    chosen: dict[str, Any] = {"source": pf.IPW(UNFAIR, arm="pooled"), "model": "logistic", "starts": 2, "epochs": 3}
    chosen |= {"batch_size": 200, "random_state": 4, "progress": False} | settings
    return pf.PenalizedClassifier(**chosen)


def objective(model: Any, strength: float) -> float:
    one, other = pf.IPW(UNFAIR, arm="pooled").fit(FEATURES).worlds()
    at = list(model.classes_).index("yes")
    a, b = (float(world.weight @ model.predict_proba(world.rows)[:, at]) for world in (one, other))
    p = model.predict_proba(DF)[:, at]
    return float(-np.where(DF["Y"] == "yes", np.log(p), np.log1p(-p)).mean() + strength * (a + b - 2.0 * a * b))


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({}, None),
        ({}, "w"),
        ({"source": pf.IPW(UNFAIR, arm=0, normalize=False), "penalty": pf.effect_gap, "dtype": "float32"}, None),
        ({"source": None, "columns": ["Q", "R", "M"]}, None),
        ({"strength": 0.0, "columns": ["M", "A"]}, "w"),
    ],
)
def test_one_frame_is_trained_on_as_in_memory(settings: Any, weight: str | None) -> None:
    df = DF if weight else DF.drop(columns="w")
    memory = made(**settings).fit(
        df.drop(columns=["Y", "w"], errors="ignore"), df["Y"], None if weight is None else df["w"]
    )
    batched = made(**settings).fit_batches(as_batches(df), "Y" if settings.get("source", 1) is None else None, weight)
    tolerance = 1e-5 if "dtype" in settings else 1e-9
    np.testing.assert_allclose(memory.predict_proba(DF), batched.predict_proba(DF), atol=tolerance)
    np.testing.assert_allclose(memory.history_, batched.history_, atol=tolerance)
    assert memory.classes_.tolist() == batched.classes_.tolist()
    assert memory.positive_ == batched.positive_
    assert memory.feature_names_in_.tolist() == batched.feature_names_in_.tolist()


def test_several_frames_end_at_the_objective_of_one(tmp_path: Path) -> None:
    DF.drop(columns="w").to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    batches = as_batches(tmp_path / "rows.parquet", batch_rows=300)
    assert len(batches.sizes) == 5
    settings: dict[str, Any] = {"epochs": 25, "batch_size": 150, "strength": 1.5, "learning_rate": 0.03}
    memory, batched = made(**settings).fit(FEATURES, DF["Y"]), made(**settings).fit_batches(batches)
    assert objective(batched, 1.5) == pytest.approx(objective(memory, 1.5), abs=0.004)
    assert objective(batched, 1.5) < objective(made(strength=0.0, epochs=25).fit(FEATURES, DF["Y"]), 1.5) - 0.05


def test_a_frame_without_the_weighted_group_trains_on_its_loss() -> None:
    df = DF.drop(columns="w").sort_values("A")
    found = made(source=pf.IPW(UNFAIR, arm=0), epochs=2).fit_batches(as_batches(df, batch_rows=250))
    assert np.isfinite(found.history_).all(axis=None)


def test_the_global_state_and_a_failed_fit_leave_things_alone() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    model = made(epochs=1).fit_batches(as_batches(DF.drop(columns="w"), batch_rows=600))
    assert torch.equal(state, torch.get_rng_state())
    before = model.predict_proba(DF)
    with pytest.raises(DataError, match="must be binary, but holds 3 classes"):
        model.fit_batches(as_batches(DF.drop(columns="w").assign(Y=[*["maybe"] * 5, *DF["Y"][5:]])))
    np.testing.assert_array_equal(before, model.predict_proba(DF))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": pf.GComputation(UNFAIR)}, "source=GComputation makes worlds of units or draws"),
        ({"validation_fraction": 0.1}, "validation_fraction=0.1 would hold out rows"),
        ({"encoder": TableEncoder()}, "would be fitted on all rows in memory"),
        ({"source": None}, "Without a source the outcome must be named"),
        ({"columns": ["R"]}, "columns names 'R', which is no observed parent of the outcome"),
        ({"penalty": lambda one, other: one.score}, "it must return a finite torch scalar"),
    ],
)
def test_what_needs_all_rows_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        made(**settings).fit_batches(as_batches(DF.drop(columns="w"), batch_rows=500))


def test_a_table_is_no_batches() -> None:
    with pytest.raises(DataError, match="must be rows in batches, made by"):
        made().fit_batches(DF)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="fit takes rows in memory; fit_batches"):
        made().fit(as_batches(DF), DF["Y"])


def test_open_epochs_read_two_million_rows() -> None:
    from pyrofair.classifiers.large_tables import epochs_of

    schedule = made(epochs=None, batch_size=1000, random_state=0)
    schedule.seed_ = 0
    lengths = [epochs_of(schedule.schedule(), rows) for rows in (5_000, 100_000, 1_000_000, 10_000_000)]
    assert lengths == [200, 20, 2, 1]


def test_a_running_mean_is_that_of_all_rows() -> None:
    """Two frames: the mean is that of the scores last seen, and a batch's gradient stands for all rows."""
    mean = RunningMean()
    worlds = [World(torch.arange(4), torch.full((4,), share), None) for share in (0.15, 0.1)]
    first, second = torch.tensor([0.2, 0.4, 0.6, 0.8]), torch.tensor([0.1, 0.1, 0.3, 0.3])
    for frame, (world, scores) in enumerate(zip(worlds, (first, second), strict=True)):
        mean.enter(frame, world, scores, 2.0)
    mean.enter(0, worlds[0], first, 2.0)
    scores = torch.tensor([0.2, 0.4], requires_grad=True)
    scored = mean.scored(Share(torch.tensor([0, 1]), torch.tensor([0, 1]), 2.0), scores)
    assert scored.mean.item() == pytest.approx(0.15 * first.sum().item() + 0.1 * second.sum().item())
    scored.mean.backward()
    np.testing.assert_allclose(scores.grad, 0.15 * 2.0 * 2.0)
    moved = mean.scored(Share(torch.tensor([0, 1]), torch.tensor([0, 1]), 2.0), torch.tensor([0.3, 0.5]))
    assert moved.mean.item() == pytest.approx(scored.mean.item() + 0.1, abs=1e-6), "all other rows move with the batch"
