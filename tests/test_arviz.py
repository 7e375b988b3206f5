"""The adapter under the ArviZ that is installed, and under one that takes what ArviZ 1 takes."""

from __future__ import annotations

import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyrofair._arviz
from pyrofair._arviz import summarise, to_arviz
from pyrofair.exceptions import DataError

EFFECT = np.arange(24.0).reshape(1, 6, 2, 2)
GROUPS = {"posterior": {"effect": EFFECT, "bound": EFFECT[..., 0]}, "observed_data": {"y": np.arange(3.0)}}
COORDS = {"model": ("plain", "penalised"), "decisions": ("threshold", "score")}
DIMS = {"effect": ("model", "decisions"), "bound": ("model",)}


def test_groups_variables_and_labels() -> None:
    data = to_arviz(GROUPS, coords=COORDS, dims=DIMS)
    effect = data["posterior"]["effect"]
    assert effect.dims == ("chain", "draw", "model", "decisions")
    np.testing.assert_array_equal(effect.sel(chain=0, model="penalised", decisions="threshold"), EFFECT[0, :, 1, 0])
    assert data["posterior"]["bound"].dims == ("chain", "draw", "model")
    np.testing.assert_array_equal(data["observed_data"]["y"], np.arange(3.0))


def test_plain_arrays() -> None:
    data = to_arviz({"posterior": {"effect": [[1.0, 2.0]]}})
    assert data["posterior"]["effect"].shape == (1, 2)


def test_arviz_reads_the_result() -> None:
    draws = np.random.default_rng(0).normal(size=(2, 100, 2))
    data = to_arviz({"posterior": {"effect": draws}}, coords={"model": ["a", "b"]}, dims={"effect": ["model"]})
    import arviz  # quiet, for the adapter has imported it

    table = arviz.summary(data)
    assert list(table.index) == ["effect[a]", "effect[b]"]
    assert [float(mean) for mean in table["mean"]] == pytest.approx(draws.mean(axis=(0, 1)), abs=0.06)


def test_arviz_1_takes_one_nested_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def from_dict(
        data: Any,
        *,
        name: Any = None,
        sample_dims: Any = None,
        save_warmup: Any = None,
        index_origin: Any = None,
        coords: Any = None,
        dims: Any = None,
        pred_dims: Any = None,
        pred_coords: Any = None,
        check_conventions: bool = True,
        attrs: Any = None,
    ) -> str:
        calls.append((data, coords, dims))
        return "a tree"

    fake = types.ModuleType("arviz")
    fake.from_dict = from_dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "arviz", fake)
    assert to_arviz(GROUPS, coords=COORDS, dims=DIMS) == "a tree"
    [(data, coords, dims)] = calls
    assert {group: list(variables) for group, variables in data.items()} == {
        "posterior": ["effect", "bound"],
        "observed_data": ["y"],
    }
    np.testing.assert_array_equal(data["posterior"]["effect"], EFFECT)
    assert coords == {"model": ["plain", "penalised"], "decisions": ["threshold", "score"]}
    assert dims == {"effect": ["model", "decisions"], "bound": ["model"]}


def test_arviz_0_takes_a_keyword_for_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_dict(posterior: Any = None, *, observed_data: Any = None, coords: Any = None, dims: Any = None) -> Any:
        return posterior, observed_data

    fake = types.ModuleType("arviz")
    fake.from_dict = from_dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "arviz", fake)
    posterior, observed = to_arviz(GROUPS)
    np.testing.assert_array_equal(posterior["effect"], EFFECT)
    np.testing.assert_array_equal(observed["y"], np.arange(3.0))


def test_the_import_is_quiet(tmp_path: Path) -> None:
    """ArviZ 0.23 warns at the first import of a day, which it notes in the user's cache."""
    code = (
        "import importlib.util, sys; "
        "spec = importlib.util.spec_from_file_location('adapter', sys.argv[1]); "
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module); "
        "assert 'arviz' not in sys.modules, 'imported before it was asked for'; "
        "print(dict(module.to_arviz({'posterior': {'x': [[1.0, 2.0]]}})['posterior'].sizes))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", code, pyrofair._arviz.__file__],
        env={"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": "", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'chain': 1, 'draw': 2}\n"


def test_only_that_warning_is_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loud(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name != "from_dict":
                raise AttributeError(name)
            warnings.warn("something else changes", FutureWarning, stacklevel=2)
            return lambda *_, **__: None

    monkeypatch.setitem(sys.modules, "arviz", Loud("arviz"))
    with pytest.warns(FutureWarning, match="something else changes"):
        to_arviz(GROUPS)


def test_no_setting_of_arviz_decides_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of a skewed posterior is the equal-tailed one, at the stated level, whatever ArviZ would show."""
    draws = np.random.default_rng(0).exponential(size=(2, 400))
    data = to_arviz({"posterior": {"b": draws}})

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("ArviZ's own summary has its own interval")

    import arviz

    monkeypatch.setattr(arviz, "summary", refuse)
    found = summarise(data)
    assert list(found) == [
        "mean",
        "sd",
        "eti_2.5%",
        "eti_97.5%",
        "mcse_mean",
        "mcse_sd",
        "ess_bulk",
        "ess_tail",
        "r_hat",
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    row = found.loc["b"]
    np.testing.assert_allclose(row[["eti_2.5%", "eti_97.5%"]], [low, high], rtol=1e-12)
    np.testing.assert_allclose(row[["mean", "sd"]], [draws.mean(), draws.std(ddof=1)], rtol=1e-12)
    monkeypatch.setitem(arviz.rcParams, "stats.ci_prob", 0.5)
    pd.testing.assert_frame_equal(summarise(data), found)


def test_the_diagnostics_of_a_summary_are_those_of_arviz() -> None:
    draws = np.random.default_rng(1).normal(size=(3, 200, 2))
    data = to_arviz({"posterior": {"v": draws}}, coords={"model": ["a", "b"]}, dims={"v": ["model"]})
    found = summarise(data, level=0.8)
    assert list(found.index) == ["v[a]", "v[b]"]
    import arviz

    shown = pd.DataFrame(arviz.summary(data))
    np.testing.assert_allclose(found["r_hat"], shown["r_hat"].astype(float), atol=0.006)
    np.testing.assert_allclose(found["ess_bulk"], shown["ess_bulk"].astype(float), atol=1.0)
    assert list(found)[2:4] == ["eti_10%", "eti_90%"]


def test_summaries_of_one_chain_and_of_one_draw() -> None:
    draws = np.arange(101.0)[None]
    found = summarise(to_arviz({"posterior": {"b": draws}}), level=0.9).round(2)
    assert found.to_dict("index") == {"b": {"mean": 50.0, "sd": 29.3, "eti_5%": 5.0, "eti_95%": 95.0}}
    assert summarise(to_arviz({"posterior": {"b": draws[:, :1]}})).to_dict("index") == {"b": {"mean": 0.0}}


@pytest.mark.parametrize("level", [0.0, 1.0, 95, "95", None])
def test_a_level_lies_between_0_and_1(level: Any) -> None:
    with pytest.raises(DataError, match=r"level=.* must be a number above 0 and below 1, such as 0\.95"):
        summarise(to_arviz({"posterior": {"b": np.zeros((1, 8))}}), level=level)
