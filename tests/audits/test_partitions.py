"""Audits of tables in partitions: against audits in memory, by every way in, with lost workers and clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import pyrofair as pf
from pyrofair.audits import partitions
from pyrofair.audits.partitions import FITS, Plan, keep_levels
from pyrofair.effects.estimates import Estimates, Key, Samples

GRAPH = pf.CausalGraph("{Q area} -> A; {A Q} -> M; {A Q M area} -> Y", sensitive="A", outcome="Y")
UNFAIR = GRAPH.unfair("A -> Y", "A -> M -> Y")
QUANTITIES = ["p_y0", "p_ypi", "mean_unfair_effect"]
AREAS = np.array(["north", "east", "south", "west"])
OF_Q, OF_A = np.array([0.3, 0.7]), np.array([0.35, 0.65])
"""P(Q = 1) by half of the areas, and P(A = 1 | Q)."""


def chance_of_m(a: Any, q: Any) -> Any:
    return 0.2 + 0.3 * a + 0.3 * q


def score(a: Any, q: Any, m: Any) -> Any:
    return 0.15 + 0.2 * a + 0.2 * q + 0.35 * m - 0.1 * a * m


class Known:
    """A known classifier; it refuses areas that are none, as models refuse levels that they have not met."""

    def predict_proba(self, X: pd.DataFrame) -> NDArray[Any]:
        assert X["area"].astype(str).isin([*AREAS, "isle", "reef"]).all()
        p = score(X["A"].to_numpy(), X["Q"].to_numpy(), X["M"].to_numpy())
        return np.column_stack([1.0 - p, p])


def draw(n: int, seed: Any = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    area = rng.integers(0, 4, n)
    q = (rng.random(n) < OF_Q[area // 2]).astype(int)
    a = (rng.random(n) < OF_A[q]).astype(int)
    m = (rng.random(n) < chance_of_m(a, q)).astype(int)
    y = (rng.random(n) < score(a, q, m)).astype(int)
    return pd.DataFrame({"A": a, "Q": q, "area": AREAS[area], "M": m, "Y": y})


def cut(df: pd.DataFrame, parts: int = 4) -> list[pd.DataFrame]:
    return [df.iloc[at] for at in np.array_split(np.arange(len(df)), parts)]


def light(**settings: Any) -> pf.OneStep:
    """A source that is fitted in no time, and right."""
    return pf.OneStep(UNFAIR, propensity="saturated", regression="saturated", random_state=0, **settings)


def run(data: Any, source: Any = None, **settings: Any) -> pf.Audit:
    return pf.audit({"known": Known()}, source or light(), data, random_state=0, **settings)


def numbers(report: pf.Audit) -> pd.DataFrame:
    tables = [report.table, report.thresholds, report.subgroups]
    return pd.concat([table[["estimate", "lower", "upper", "ess"]] for table in tables if len(table)])


def same(one: pf.Audit, other: pf.Audit) -> None:
    """But for the order in which sums were added, all numbers are equal."""
    pd.testing.assert_frame_equal(numbers(one), numbers(other), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("source", [light(), pytest.param(UNFAIR, marks=pytest.mark.slow)], ids=["light", "boosted"])
def test_partitions_agree_with_memory(source: Any) -> None:
    n = 100_000 if source is UNFAIR else 20_000
    df, asked = draw(n), {"thresholds": [0.3, 0.7], "subgroups": "area"}
    found, memory = run(cut(df), source, **asked), run(df, source, **asked)
    assert found.context["rows"] == n
    assert found.table["note"].tolist() == memory.table["note"].tolist()
    for one, other in ((found.table, memory.table), (found.thresholds, memory.thresholds)):
        width = other["upper"] - other["lower"]
        assert ((one["estimate"] - other["estimate"]).abs() <= 0.25 * width + 1e-12).all()
        assert ((one["upper"] - one["lower"]) / width - 1.0)[width > 1e-6].abs().max() < 0.05
    rates = found.table["quantity"].isin(["accuracy", "positive_rate", "majority_rate"])
    columns = ["estimate", "lower", "upper", "ess"]
    pd.testing.assert_frame_equal(found.table[rates][columns], memory.table[rates][columns], atol=1e-9)
    pd.testing.assert_frame_equal(found.rates, memory.rates, rtol=1e-3)  # n - 1 in place of n
    levels = ["subgroup", "level", "model", "quantity", "rows", "note"]
    pd.testing.assert_frame_equal(found.subgroups[levels], memory.subgroups[levels])
    width = memory.subgroups["upper"] - memory.subgroups["lower"]
    assert ((found.subgroups["estimate"] - memory.subgroups["estimate"]).abs() <= 0.25 * width + 1e-12).all()


def test_reports_are_made_of_all_rows(tmp_path: Path) -> None:
    report = run(cut(draw(20_000)), thresholds=[0.3], subgroups=["area"])
    text = report.details()
    assert "20,000 rows" in text
    assert f"{FITS} sources" in text
    assert "comes from the samples" in text
    assert text.count("of all rows") == 1  # what a selection rate is
    assert "by area" in text
    page = report.to_html(tmp_path / "page.html")
    assert "comes from the samples" in page
    assert '"rows": 20000' in report.to_json(rows=True)
    assert set(report.draws.columns.get_level_values("decisions")) == {"threshold", "score"}
    assert report.influence.empty
    report.to_inference_data()
    report.plot()
    report.plot_stages()


class Frames:
    """Frames that are made anew in each pass, and never held."""

    def __init__(self, df: pd.DataFrame) -> None:
        self.df, self.passes = df, 0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        self.passes += 1
        return iter(cut(self.df))


def test_every_way_in(tmp_path: Path) -> None:
    df, asked = draw(2_000), {"thresholds": [0.3], "subgroups": "area"}
    frames, file = cut(df), tmp_path / "rows.parquet"
    expected = run(frames, **asked)
    with pq.ParquetWriter(file, pa.Table.from_pandas(df, preserve_index=False).schema) as writer:
        for frame in frames:
            writer.write_table(pa.Table.from_pandas(frame, preserve_index=False))
    dask = pytest.importorskip("dask.dataframe").from_pandas(df, npartitions=4, sort=False)
    tables = tuple(pa.Table.from_pandas(frame, preserve_index=False) for frame in frames)
    ways = {
        "path": file, "folder": str(tmp_path), "dataset": pyarrow.dataset.dataset(tmp_path), "Dask": dask,
        "iterable": Frames(df), "Arrow": tables,
    }  # fmt: skip
    for way, data in ways.items():
        assert numbers(run(data, **asked)).equals(numbers(expected)), way


def test_order_and_size_of_partitions_do_not_matter_beyond_sampling() -> None:
    df = draw(20_000)
    base = run(cut(df)).table
    width = base["upper"] - base["lower"]
    for frames in (cut(df)[::-1], cut(df, 9), cut(df.sort_values(["A", "M", "Q"])), [df]):
        other = run(frames).table
        assert ((other["estimate"] - base["estimate"]).abs() <= 0.25 * width + 1e-12).all()
        assert ((other["upper"] - other["lower"]) / width - 1.0)[width > 0.0].abs().max() < 0.1


def test_categories_that_differ_by_partition_and_what_is_of_no_account() -> None:
    df = draw(3_000).sort_values("area", ignore_index=True)
    frames = [part.assign(area=part["area"].astype("category")) for part in cut(df, 3)]
    assert len({tuple(frame["area"].cat.categories) for frame in frames}) > 1
    expected = run(cut(df, 3), subgroups="area")
    same(run(frames, subgroups="area"), expected)
    empty, first = df[:0].astype({"Q": float}), cut(df, 3)[0].assign(other=object())
    same(run([first, *cut(df, 3)[1:], empty], subgroups="area"), expected)


@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PositivityWarning")
def test_rare_levels_are_joined_for_nuisances_and_models_read_them() -> None:
    df = draw(5_000)
    df.loc[:39, "area"], df.loc[40:42, "area"] = "isle", "reef"
    sample = np.random.default_rng(9).integers(0, FITS, len(df))
    known, other = keep_levels(df, sample, GRAPH)["area"]
    assert len(known) == 3  # 43 rows in five samples are too few even together, so that the rarest level joins them
    assert known < {*AREAS}
    assert other == "(other)"
    many = df.assign(area=np.where(np.arange(len(df)) < 600, np.arange(len(df)) % 60, df["area"]).astype(str))
    assert keep_levels(many, sample, GRAPH)["area"] == (frozenset(AREAS), "(other)")
    assert keep_levels(draw(5_000), sample, GRAPH)["area"][0] == frozenset(AREAS)
    source = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)
    frames = [df, draw(5_000, 1), draw(100, 2).assign(area="reef")]
    assert run(frames, source, sample=3_000).context["rows"] == 10_100


def test_weights_are_a_column() -> None:
    df = draw(20_000)
    df["w"] = np.random.default_rng(1).exponential(size=len(df))
    found, memory = run(cut(df), sample_weight="w"), run(df.drop(columns="w"), sample_weight=df["w"])
    width = memory.table["upper"] - memory.table["lower"]
    assert ((found.table["estimate"] - memory.table["estimate"]).abs() <= 0.3 * width).all()
    assert found.table["ess"].iloc[0] == pytest.approx(memory.table["ess"].iloc[0])
    rates = found.table["quantity"].isin(["accuracy", "positive_rate"])
    pd.testing.assert_frame_equal(
        found.table[rates][["estimate", "lower", "upper"]], memory.table[rates][["estimate", "lower", "upper"]]
    )
    thrice = draw(2_000).assign(w=3.0)
    same(run(cut(thrice), sample_weight="w"), run(cut(thrice.assign(w=1.0)), sample_weight="w"))
    df.loc[19_999, "w"] = -1.0
    with pytest.raises(pf.DataError, match=r"Partition 3 has the weight -1\.0 in 'w'"):
        run(cut(df), sample_weight="w", sample=5_000)


def test_clusters_are_units_wherever_their_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    one = draw(3_000).assign(home=np.arange(3_000) % 1_500)
    four = pd.concat([one] * 4, ignore_index=True)
    whole, apart = run([four.sort_values("home")], groups="home"), run(cut(four, 5), groups="home")
    same(run([four], groups="home"), apart)  # membership goes by the cluster, not by the place
    same(whole, apart)
    memory = run(four, groups="home")
    of = memory.rates["group"] != "difference"
    pd.testing.assert_frame_equal(apart.rates[of], memory.rates[of], rtol=1e-2)
    assert apart.rates.loc[~of, "lower"].isna().all()  # a home may be in both groups
    assert "1,500 groups (of 'home'" in apart.details()
    alone = run([four])
    found = (apart.table["upper"] - apart.table["lower"]) / (alone.table["upper"] - alone.table["lower"])
    assert (found[alone.table["quantity"] == "positive_rate"] > 1.8).all()  # four copies of a row are one
    plan = Plan(0, 0.4, "home")
    sample, judges = plan.of(0, four)
    assert pd.Series(sample).groupby(four["home"]).nunique().max() == 1
    assert not (judges == sample[:, None]).any()
    assert (plan.of(7, four[5_000:])[0] == sample[5_000:]).all()
    named = four.astype({"area": "category"})  # its levels are those of a column that clusters are not counted with
    same(run(cut(named, 5), groups="home"), apart)
    text = one.assign(home=one["home"].map("home {}".format))
    assert len(numbers(run(cut(text), groups="home")))
    monkeypatch.setattr(partitions, "MOST_CROSSING", 10)
    with pytest.raises(pf.DataError, match=r"1,500 clusters of 'home'.* more than 10.*Sort"):
        run(cut(four), groups="home")
    with pytest.raises(pf.DataError, match=r"'home' have 1 missing"):
        run([text[1:], text.assign(home=text["home"].mask(text.index == 7))], groups="home")


def test_no_row_is_judged_by_its_own_sample_and_all_fits_judge_alike() -> None:
    frame = draw(50_000)
    for share in (0.3, 1.0):
        sample, judges = Plan(3, share, None).of(4, frame)
        assert np.bincount(sample + 1)[1:] / len(frame) == pytest.approx(share / FITS, abs=0.01)
        assert ((sample >= 0).all()) == (share == 1.0)
        assert (judges[:, 0] < judges[:, 1]).all()
        assert not (judges == sample[:, None]).any()
        assert np.bincount(judges.ravel()) / len(frame) == pytest.approx(2.0 / FITS, abs=0.02)
        again = Plan(3, share, None).of(4, frame)
        assert all(np.array_equal(*pair) for pair in zip((sample, judges), again, strict=True))
        assert not np.array_equal(Plan(3, share, None).of(5, frame)[0], sample)


def test_estimates_of_moments_are_those_of_rows() -> None:
    memory = run(draw(2_000))
    rows = Estimates(memory.influence, np.ones(2_000), True)
    none = Samples(np.zeros((len(rows.mean),) * 2), 4.0)
    made = Estimates.of_moments(memory.influence.columns, rows.mean, rows.covariance, none)
    np.testing.assert_allclose(made.mean, rows.mean, atol=1e-12)
    np.testing.assert_allclose(made.covariance, rows.covariance, atol=1e-15)
    assert made.keys == rows.keys
    for key in rows.keys:
        np.testing.assert_allclose(made.of(key).interval(0.9), rows.of(key).interval(0.9), atol=1e-9)
    wide = Samples(rows.covariance, 4.0)  # half of the variance comes from five samples
    more = Estimates.of_moments(memory.influence.columns, rows.mean, rows.covariance, wide)
    key = Key("audited", "known", "score", "p_ypi")
    assert more.of(key).spread == pytest.approx(np.sqrt(2.0) * rows.of(key).spread)
    assert more.of(key).degrees == pytest.approx(16.0)  # (1 + 1)^2 / (1 / 4)
    assert Samples(rows.covariance, 4.0, 10.0).degrees_of(1.0, 1.0) == pytest.approx(4.0 / 0.35)


def test_spread_between_samples_counts() -> None:
    """Few rows a sample: what the sources have from them shows in the differences of judges of the same rows."""
    df = draw(100_000)
    few, many = (run(cut(df), sample=sample) for sample in (3_000, 100_000))
    keys = few.table["quantity"].isin(QUANTITIES)
    width = [(each.table["upper"] - each.table["lower"])[keys].to_numpy() for each in (few, many)]
    assert (width[0] > 1.05 * width[1]).all()


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (iter([draw(100)]), {}, "is an iterator, which can be read once.*starts anew"),
        ((each for each in [draw(100)]), {}, "read once"),
        ([draw(100).drop(columns="M")], {}, "The data lacks the column 'M'"),
        ([draw(100), draw(100).drop(columns="Q")], {}, "Partition 1 lacks the column 'Q'"),
        ([draw(100), draw(100).astype({"Q": float})], {}, "'Q' has the type float64 in partition 1, and int64"),
        ([draw(100)[:0]], {}, "no rows"),
        ([draw(100), "rows"], {}, "Partition 1 is 'rows'; expected a DataFrame"),
        ("absent.parquet", {}, "'absent.parquet' is no Parquet file"),
        ([draw(900), draw(900).assign(Y="maybe")], {}, "'Y' has the type"),
        ([draw(4_000), draw(4_000).assign(Y=[2] + [0] * 3_999)], {}, "Partition 1 has Y=2; the first sample has"),
        ([draw(900), draw(900).assign(A=2)], {}, "'A' holds 2 besides baseline=0 and contrast=1"),
        ([draw(100)], {"source": pf.IPW(UNFAIR)}, "IPW needs all rows in memory.*OneStep.*pf.sample_rows"),
        ([draw(100)], {"source": pf.GComputation(UNFAIR)}, "GComputation needs all rows in memory.*pf.sample_rows"),
        ([draw(100)], {"source": light().fit(draw(400).drop(columns="Y"))}, "is fitted.*clone.*pf.sample_rows"),
        ([draw(100)], {"models": {"given": np.zeros(100)}}, "'given' is given as scores of rows.*pf.sample_rows"),
        ([draw(100)], {"sample_weight": np.ones(100)}, "sample_weight=.* name of a column.*pf.sample_rows"),
        ([draw(100)], {"groups": 3}, "groups=3 must be the name of a column"),
        ([draw(100)], {"groups": "Q"}, "groups='Q' is a column of the graph"),
        ([draw(100)], {"groups": "home"}, "lacks the column 'home'"),
        ([draw(100)], {"subgroups": {"half": lambda table: table["Q"]}}, "subgroups.*must be the name of a column"),
        ([draw(900)], {"subgroups": "M"}, "M"),
        ([draw(900)], {"scores": "outcome"}, "scores='outcome' describes given scores"),
        ([draw(100)], {"sample": 2}, "sample"),
        (draw(100), {"sample": 50}, "sample= is for tables in partitions"),
    ],
)  # fmt: skip
def test_what_is_refused(data: Any, settings: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"models": {"known": Known()}, "source": light()} | settings
    with pytest.raises(pf.DataError, match=message):
        pf.audit(given.pop("models"), given.pop("source"), data, random_state=0, **given)


class AtRandom(Known):
    """A model that draws its decisions."""

    def predict_proba(self, X: pd.DataFrame) -> NDArray[Any]:
        p = (np.random.default_rng().random(len(X)) < super().predict_proba(X)[:, 1]).astype(float)
        return np.column_stack([1.0 - p, p])


def test_outcomes_are_refused() -> None:
    with (
        pytest.warns(pf.PyrofairWarning, match="'drawn' is taken for an outcome"),
        pytest.raises(pf.DataError, match=r"'drawn' is an outcome.*pf.sample_rows"),
    ):
        pf.audit({"drawn": AtRandom()}, light(), cut(draw(2_000)), random_state=0)


def test_a_subgroup_that_the_first_sample_lacks_has_no_estimate() -> None:
    df = draw(5_000).assign(area=lambda table: np.where(np.arange(5_000) == 4_999, "isle", table["area"]))
    source = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)
    found = run(cut(df), source, subgroups="area", sample=1_000).subgroups.set_index(["level", "quantity"])
    row = found.loc[("isle", "mean_unfair_effect")]
    assert (row["rows"], row["note"]) == (1, "no estimate: in the first sample, no row")
    assert np.isnan(row["estimate"])


@pytest.mark.parametrize("learner", ["saturated", pytest.param("boosted", marks=pytest.mark.slow)])
def test_graph_form(learner: str) -> None:
    """Its draws differ between partitions, or their errors would not average out."""
    df, source = draw(6_000), light().set_params(form="graph", regression=learner, propensity=learner)
    found, memory = run(cut(df), source).table, run(df, source).table
    width = memory["upper"] - memory["lower"]
    assert ((found["estimate"] - memory["estimate"]).abs() <= 0.5 * width + 1e-12).all()
    assert ((found["upper"] - found["lower"]) / width)[width > 0.0].between(0.7, 1.4).all()


# -- lost work --------------------------------------------------------------------------------------------------------


def load(number: int, folder: str) -> pd.DataFrame:
    """A partition; the worker that loads the sixth in the third pass is lost, once."""
    tries = Path(folder) / f"{number} {len(list(Path(folder).glob(f'{number} *')))}"
    tries.touch()
    if tries.name == "5 2":
        os._exit(1)
    return draw(1_000, number)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_worker_that_is_killed_halfway_changes_nothing(tmp_path: Path) -> None:
    dd, distributed = pytest.importorskip("dask.dataframe"), pytest.importorskip("distributed")
    calls = tmp_path / "calls"
    calls.mkdir()
    expected = run([draw(1_000, number) for number in range(8)], subgroups="area")
    place: dict[str, Any] = {"dashboard_address": ":0", "local_directory": str(tmp_path), "silence_logs": 60}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **place) as cluster, distributed.Client(cluster):
        data = dd.from_map(load, range(8), folder=str(calls), meta=draw(1))
        same(run(data, subgroups="area"), expected)
    assert len(list(calls.glob("5 *"))) >= 4  # loaded again after it was lost


def test_partitions_are_judged_again_with_equal_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a worker is lost: each partition is judged twice, in another order."""
    frames = cut(draw(4_000))
    expected, kept = run(frames, groups=None, subgroups="area"), partitions.Partitions.map

    def twice(self: Any, function: Any) -> Any:
        work = [*enumerate(kept(self, lambda number, frame: (function(number, frame), function(number, frame))))]
        return [found[1] for _, found in work]

    monkeypatch.setattr(partitions.Partitions, "map", twice)
    same(run(frames, subgroups="area"), expected)


# -- streams, passes and small levels ----------------------------------------------------------------------------------


def test_samples_do_not_follow_data_that_were_drawn_with_the_same_seed() -> None:
    df = draw(20_000, 3)
    own = np.random.default_rng(3).random((2, len(df)))[0]
    sample, _ = Plan(3, 1.0, None).of(0, df)
    assert abs(np.corrcoef(own, sample)[0, 1]) < 0.03
    chosen = np.random.default_rng(3).choice(len(df), 500, replace=False, shuffle=False)
    taken = pf.sample_rows([df], ["Q"], 500, random_state=3).index
    assert len(np.intersect1d(chosen, taken)) < 50


def test_each_pair_of_fits_judges_as_many_rows() -> None:
    sample, judges = Plan(0, 0.1, None).of(0, draw(50_000))
    pairs, counts = np.unique(judges[sample < 0], axis=0, return_counts=True)
    assert len(pairs) == 10
    assert counts / counts.sum() == pytest.approx(0.1, abs=0.01)


def test_levels_of_a_subgroup_are_independent() -> None:
    """Their rows differ; intervals that hold together reach as far as those in memory."""
    df = draw(20_000)
    reach = []
    for data in (cut(df), df):
        report = run(data, subgroups="area")
        rates = report.subgroups[report.subgroups["quantity"] == "positive_rate"]
        width = (rates["upper"] - rates["lower"]).to_numpy() / 2.0
        spread = np.sqrt(rates["estimate"] * (1.0 - rates["estimate"]) / rates["rows"]).to_numpy()
        reach.append(width / spread)
    assert reach[0] == pytest.approx(reach[1], rel=0.02)


def test_a_level_of_one_group_has_no_estimate_and_the_others_keep_theirs() -> None:
    df = draw(6_000).assign(home=np.arange(6_000) // 10, region=np.where(np.arange(6_000) < 10, "small", "large"))
    found = run(cut(df), groups="home", subgroups="area").subgroups
    assert found["upper"].notna().all()
    town = df.assign(home=np.where(df["area"] == "west", -1, df["home"]))
    found = run(cut(town), groups="home", subgroups="area").subgroups
    effects = found[found["quantity"] == "mean_unfair_effect"].set_index("level")
    assert effects["lower"].notna().to_dict() == {"east": True, "north": True, "south": True, "west": False}
    assert "1.0 effective group(s)" in effects.loc["west", "note"]
    with pytest.raises(pf.DataError, match=r"'home' has 12 group"):
        run(cut(df.assign(home=np.arange(6_000) % 12)), groups="home")


def test_a_sample_without_overlap_is_refused_though_the_first_has_it() -> None:
    rng, n = np.random.default_rng(1), 6_000
    q = rng.normal(size=n)
    a = (rng.random(n) < expit(1.7 * q)).astype(int)
    df = pd.DataFrame({"Q": q, "A": a, "M": (rng.random(n) < 0.3 + 0.3 * a).astype(int), "area": "north"})
    graph = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M area} -> Y", sensitive="A", outcome="Y")
    source = pf.OneStep(graph.unfair("A -> M -> Y"), propensity="logistic", regression="logistic", random_state=0)
    with pytest.raises(pf.PositivityError, match=r"hardly occurs in the group.*one of the 5 samples"):
        pf.audit({"m": Flat()}, source, cut(df.assign(Y=a)), random_state=0)


class Flat(Known):
    """Another known classifier, of any Q."""

    def predict_proba(self, X: pd.DataFrame) -> NDArray[Any]:
        return super().predict_proba(X.assign(Q=0))


def test_a_level_without_weight_has_no_estimate() -> None:
    df = draw(6_000)
    df["w"] = np.where(df["area"] == "west", 0.0, 1.0)
    source = pf.OneStep(UNFAIR, propensity="logistic", regression="logistic", random_state=0)
    found = run(cut(df), source, sample_weight="w", subgroups="area").subgroups.set_index(["level", "quantity"])
    assert found.loc[("west", "mean_unfair_effect"), "note"].startswith("no estimate")
    assert np.isfinite(found.loc[("east", "mean_unfair_effect"), "upper"])


class Shrinks:
    """Frames of which later passes give fewer, or shorter ones."""

    def __init__(self, frames: list[pd.DataFrame], later: list[pd.DataFrame]) -> None:
        self.left, self.later = [frames, frames], later

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return iter(self.left.pop() if self.left else self.later)


def test_passes_must_give_the_same_rows() -> None:
    frames = cut(draw(4_000))
    for later, said in ((frames[:2], "2 partition.*had 4"), ([*frames[:3], frames[3][1:]], "Partition 3 has 999 row")):
        with pytest.raises(pf.DataError, match=rf"{said}[\s\S]*same rows"):
            run(Shrinks(frames, later))


@pytest.mark.parametrize("ask", ["edge_costs", "audit_graphs"])
def test_families_of_graphs_need_a_table(ask: str) -> None:
    asked = {"edge_costs": (UNFAIR, cut(draw(100)), ["A -> M"]), "audit_graphs": ({"one": UNFAIR}, cut(draw(100)))}
    with pytest.raises(pf.DataError, match=rf"{ask}[\s\S]*pf.sample_rows"):
        getattr(pf, ask)({"known": Known()}, *asked[ask])


def test_a_sample_names_its_columns() -> None:
    with pytest.raises(pf.DataError, match=r"columns=\[\]"):
        pf.sample_rows(cut(draw(100)), [], 3)


# -- coverage ---------------------------------------------------------------------------------------------------------


class Curved:
    """Continuous features, and a score that no logistic regression fits."""

    graph = pf.CausalGraph("Q -> A; {A Q} -> M; {A Q M} -> Y", sensitive="A", outcome="Y")

    @staticmethod
    def table(a: Any, q: Any, e: Any) -> pd.DataFrame:
        return pd.DataFrame({"A": a, "Q": q, "M": np.sin(2.0 * q) + 0.6 * a + e})

    @classmethod
    def draw(cls, n: int, seed: int) -> pd.DataFrame:
        rng = np.random.default_rng([7, seed])
        q = rng.normal(size=n)
        a = (rng.random(n) < expit(0.8 * np.sin(2.0 * q))).astype(int)
        return cls.table(a, q, rng.normal(size=n))

    @staticmethod
    def predict_proba(X: pd.DataFrame) -> NDArray[Any]:
        p = expit(0.5 * X["A"] + np.cos(X["Q"]) * X["M"] - 0.3).to_numpy()
        return np.column_stack([1.0 - p, p])


def truth(design: str, decisions: str) -> dict[str, float]:
    if design == "curved":
        rng = np.random.default_rng(0)
        q, e = rng.normal(size=(2, 2_000_000))
        worlds = [Curved.predict_proba(Curved.table(arm, q, e))[:, 1] for arm in (0, 1)]
        p0, p1 = (float((s if decisions == "score" else s > 0.5).mean()) for s in worlds)
        return {"p_y0": p0, "p_ypi": p1, "mean_unfair_effect": p1 - p0}
    q, m = np.meshgrid([0, 1], [0, 1])
    of_q = np.where(q == 1, OF_Q.mean(), 1.0 - OF_Q.mean())
    found = []
    for arm in (0, 1):
        mass, value = of_q * np.where(m == 1, chance_of_m(arm, q), 1.0 - chance_of_m(arm, q)), score(arm, q, m)
        found.append(float((mass * (value if decisions == "score" else value > 0.5)).sum()))
    return {"p_y0": found[0], "p_ypi": found[1], "mean_unfair_effect": found[1] - found[0]}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pyrofair.exceptions.PyrofairWarning")
@pytest.mark.parametrize(("design", "tables"), [("cells", 400), ("curved", 150)])
def test_coverage(design: str, tables: int) -> None:
    """Fits of few rows, so that their errors are a good part of the whole: intervals that leave them out cover .8."""
    unfair = Curved.graph.unfair("A -> Y", "A -> M -> Y")
    asked = ["score"] if design == "curved" else ["threshold", "score"]
    known, held = {each: truth(design, each) for each in asked}, []
    for seed in range(tables):
        if design == "curved":
            model, source, df = Curved, pf.OneStep(unfair, random_state=seed), Curved.draw(20_000, seed)
        else:
            model, source, df = Known(), light(), draw(20_000, [1, seed])
        sample = 10_000 if design == "curved" else 5_000
        table = pf.audit({"known": model}, source, cut(df), random_state=seed, sample=sample).table
        table = table.set_index(["decisions", "quantity"])
        ends = table[["lower", "upper"]].to_dict("index")
        held.append([[ends[d, q]["lower"] <= known[d][q] <= ends[d, q]["upper"] for q in QUANTITIES] for d in asked])
    covered = np.mean(held, axis=(0, 2))
    print(design, dict(zip(asked, covered.round(3), strict=True)))
    assert ((covered >= 0.93) & (covered <= 0.97)).all()
